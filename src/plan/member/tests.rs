//! Facts about a member as a whole, and about the way of one job through reservation, work and withdrawal.
//! Must not know how verdicts are counted.

use serde_json::{Value, json};

use crate::api::fleet::Stage;
use crate::api::{Cluster, Id, Kind, Quantity, Time};
use crate::plan::testing::{World, ray_job, template};

mod cordon;
mod deadline;
mod hidden;
mod identity;
mod redis;
mod removal;
mod unreadable;

fn eu() -> Cluster {
    Cluster::Member("eu".into())
}

fn stage(world: &World, root: &Id) -> Stage {
    world.placement_of(root).expect("a Placement").spec.stage
}

fn group() -> Id {
    Id::new(Kind::PodGroup, "default", "ray-train-pg")
}

fn capacity(world: &World) -> Value {
    world.get(&Cluster::Hub, &Id::new(Kind::MemberCapacity, "", "eu")).expect("published")["spec"].clone()
}

fn cluster() -> Id {
    Id::new(Kind::MemberCluster, "", "eu")
}

fn condition(world: &World, kind: &str) -> Option<Value> {
    let conditions = world.get(&Cluster::Hub, &cluster())?["status"]["conditions"].as_array()?.clone();
    conditions.into_iter().find(|c| c["type"] == kind)
}

fn is(world: &mut World, id: &Id, phase: &str) {
    let phase = phase.to_owned();
    world.edit(&eu(), id, |body| body["status"] = json!({"phase": phase}));
}

/// A job that is bound to `eu`, the only member; nothing was sent there.
fn bound() -> (World, Id) {
    let mut world = World::new(&[("eu", "8")]);
    world.publish(&["eu"]);
    let root = world.put(&Cluster::Hub, ray_job("train", "ml", "2"));
    for _ in 0..3 {
        world.step(&root);
    }
    assert_eq!(stage(&world, &root), Stage::Reserving);
    (world, root)
}

/// A job whose PodGroup stands on `eu`, not admitted yet.
fn reserved() -> (World, Id) {
    let mut world = World::new(&[("eu", "8"), ("us", "8")]);
    world.put(
        &Cluster::Hub,
        json!({
            "apiVersion": "rayfleet.io/v1alpha1", "kind": "PlacementPolicy",
            "metadata": {"name": "default", "namespace": "default"}, "spec": {"preference": ["eu", "us"]},
        }),
    );
    world.publish(&["eu", "us"]);
    let root = world.put(&Cluster::Hub, ray_job("train", "ml", "2"));
    for _ in 0..10 {
        world.step(&root);
    }
    assert_eq!(stage(&world, &root), Stage::Reserving);
    assert!(world.get(&eu(), &group()).is_some());
    (world, root)
}

/// A job that is admitted on `eu`.
fn admitted() -> (World, Id) {
    let (mut world, root) = reserved();
    is(&mut world, &group(), "Inqueue");
    world.step(&root);
    assert_eq!(stage(&world, &root), Stage::Admitted);
    (world, root)
}

fn until(world: &mut World, root: &Id, wanted: Stage) {
    for _ in 0..20 {
        if stage(world, root) == wanted {
            return;
        }
        world.step(root);
        world.collect();
    }
    panic!("{root} is {:?}, not {wanted:?}", stage(world, root));
}

#[test]
fn namespace_mirror_and_pod_group_come_in_this_order_and_pods_never() {
    let mut world = World::new(&[("eu", "8")]);
    world.publish(&["eu"]);
    let root = world.put(&Cluster::Hub, ray_job("train", "ml", "2"));
    for _ in 0..3 {
        world.step(&root);
    }
    let created = |world: &mut World| -> Vec<String> {
        let plan = world.step(&root);
        plan.actions
            .iter()
            .map(|a| match a {
                crate::plan::Action::Create { id, .. } => id.to_string(),
                other => panic!("{other:?}"),
            })
            .collect()
    };
    assert_eq!(created(&mut world), ["Namespace default"]);
    assert_eq!(created(&mut world), ["RayJob default/train"]);
    assert_eq!(created(&mut world), ["PodGroup default/ray-train-pg"]);
    let mirror = world.get(&eu(), &root).unwrap();
    assert_eq!(mirror["metadata"]["finalizers"], json!(["rayfleet.io/tombstone"]));
    assert_eq!(mirror["metadata"]["annotations"]["rayfleet.io/placement-generation"], "1");
    let spec = &world.get(&eu(), &group()).unwrap()["spec"];
    assert_eq!((&spec["minMember"], &spec["minTaskMember"]), (&json!(2), &json!({"headgroup": 1, "w": 1})));
    assert_eq!(spec["minResources"], json!({"cpu": "4", "memory": "2Gi"}));
}

#[test]
fn only_an_admitted_gang_is_passed_on_and_the_next_owner_is_named() {
    let (mut world, root) = reserved();
    assert_eq!(world.step(&root).actions, [], "Volcano has not looked yet");
    is(&mut world, &group(), "Pending");
    assert_eq!(world.step(&root).actions, []);
    is(&mut world, &group(), "Inqueue");
    world.step(&root);
    let spec = world.placement_of(&root).unwrap().spec;
    assert!(spec.was_admitted && spec.stage == Stage::Admitted && spec.mirror_uid.is_some());
    let unit = crate::api::RootId::from(&*spec.root.root_id).member_unit("eu", 4);
    assert!(spec.claims.contains_key(&*unit), "{:?}", spec.claims);
}

#[test]
fn a_gang_that_lost_its_nodes_is_not_passed_on_though_volcano_admitted_it() {
    let (mut world, root) = reserved();
    is(&mut world, &group(), "Inqueue");
    world.edit(&eu(), &Id::new(Kind::Node, "", "n1"), |body| body["spec"]["unschedulable"] = true.into());
    world.step(&root);
    assert_eq!(stage(&world, &root), Stage::Reserving);
}

#[test]
fn what_no_longer_fits_goes_back_by_one_write_if_nothing_was_sent() {
    let (mut world, root) = bound();
    world.forget_sent();
    let mut claimed = world.placement_of(&root).unwrap();
    world.edit(&eu(), &Id::new(Kind::Node, "", "n1"), |body| body["status"]["allocatable"]["cpu"] = "2".into());
    world.step(&root);
    let placement = world.placement_of(&root).unwrap();
    assert_eq!(placement.spec.stage, Stage::Waiting);
    assert!(!placement.spec.unclean);
    assert_eq!(placement.spec.back_offs["eu"].count, 1);
    // The same by an owner that took over: through Withdrawing.
    claimed.spec.unclean = true;
    let id = Id::new(Kind::Placement, "default", "rayjob-train");
    world.edit(&Cluster::Hub, &id, |body| body["spec"] = serde_json::to_value(&claimed.spec).unwrap());
    world.step(&root);
    assert_eq!(stage(&world, &root), Stage::Withdrawing);
}

/// A write that gave the reservation straight back may still land: no mirror is made that it would forget.
#[test]
fn after_a_write_without_an_answer_the_placement_moves_before_anything_is_sent() {
    let (mut world, root) = bound();
    world.me.unknown = true;
    world.step(&root);
    assert_eq!(stage(&world, &root), Stage::Withdrawing);
    assert_eq!(world.get(&eu(), &root), None);
    until(&mut world, &root, Stage::Waiting);
}

#[test]
fn past_its_admission_deadline_a_gang_moves_only_where_it_fits() {
    let (mut world, root) = reserved();
    world.now = Time(world.now.0 + 31_000);
    world.publish(&["eu", "us"]);
    let queue = Id::new(Kind::Queue, "", "ml");
    world.edit(&Cluster::Member("us".into()), &queue, |body| body["status"]["state"] = "Closed".into());
    world.publish(&["us"]);
    world.step(&root);
    assert_eq!(stage(&world, &root), Stage::Reserving, "it keeps its place in the member's queue");
    assert!(world.placement_of(&root).unwrap().status.message.contains("fits nowhere else"));
    world.edit(&Cluster::Member("us".into()), &queue, |body| body["status"]["state"] = "Open".into());
    world.publish(&["us"]);
    world.step(&root);
    assert_eq!(stage(&world, &root), Stage::Withdrawing);
    until(&mut world, &root, Stage::Waiting);
    let placement = world.placement_of(&root).unwrap();
    assert_eq!(placement.spec.back_offs["eu"].count, 1);
    world.publish(&["eu", "us"]);
    world.step(&root);
    let placement = world.placement_of(&root).unwrap();
    assert_eq!((placement.spec.member.as_deref(), placement.spec.generation), (Some("us"), 2));
}

#[test]
fn past_its_deadline_a_reservation_without_room_or_dependency_goes_back_and_keeps_nobody_waiting() {
    // Its room is gone: its turn in the hub's queue stays, so no back-off.
    let (mut world, root) = reserved();
    world.edit(&eu(), &Id::new(Kind::Node, "", "n1"), |body| body["status"]["allocatable"]["cpu"] = "3".into());
    let node = Id::new(Kind::Node, "", "n1");
    world.edit(&Cluster::Member("us".into()), &node, |body| body["status"]["allocatable"]["cpu"] = "3".into());
    world.publish(&["eu", "us"]);
    world.step(&root);
    assert_eq!(stage(&world, &root), Stage::Reserving, "its deadline is yet to come");
    world.now = Time(world.now.0 + 31_000);
    world.publish(&["eu", "us"]);
    until(&mut world, &root, Stage::Waiting);
    let placement = world.placement_of(&root).unwrap();
    assert_eq!(placement.spec.back_offs.get("eu"), None);
    assert_eq!(placement.status.history.last().unwrap().event, "Withdrawn");

    // What its pods name went away after it was bound.
    let mut world = World::new(&[("eu", "8")]);
    world.publish(&["eu"]);
    let script = world.put(
        &Cluster::Hub,
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "script", "namespace": "default"}}),
    );
    let mut job = ray_job("train", "ml", "2");
    job["spec"]["rayClusterSpec"]["headGroupSpec"]["template"]["spec"]["volumes"] =
        json!([{"name": "code", "configMap": {"name": "script"}}]);
    let root = world.put(&Cluster::Hub, job);
    for _ in 0..2 {
        world.step(&root);
    }
    until(&mut world, &root, Stage::Reserving);
    world.remove(&Cluster::Hub, &script);
    for _ in 0..6 {
        world.step(&root);
    }
    assert_eq!(stage(&world, &root), Stage::Reserving);
    world.now = Time(world.now.0 + 31_000);
    world.publish(&["eu"]);
    until(&mut world, &root, Stage::Waiting);
    let placement = world.placement_of(&root).unwrap();
    assert_eq!(placement.spec.back_offs["eu"].count, 1);
    assert!(placement.status.history.last().unwrap().message.contains("script"), "{placement:?}");
}

#[test]
fn a_changed_gang_or_a_deleted_root_is_withdrawn_while_it_is_reserved() {
    for change in [
        |body: &mut Value| body["spec"]["rayClusterSpec"]["workerGroupSpecs"][0]["maxReplicas"] = 5.into(),
        |body: &mut Value| body["metadata"]["deletionTimestamp"] = "2026-11-29T12:00:00Z".into(),
        |body: &mut Value| body["spec"]["suspend"] = true.into(),
        |body: &mut Value| body["metadata"]["labels"]["volcano.sh/queue-name"] = "other".into(),
    ] {
        let (mut world, root) = reserved();
        world.edit(&Cluster::Hub, &root, |body| {
            body["spec"]["rayClusterSpec"]["workerGroupSpecs"][0]["replicas"] = 2.into();
            change(body);
        });
        world.step(&root);
        assert_eq!(stage(&world, &root), Stage::Withdrawing);
    }
}

#[test]
fn a_strangers_object_of_the_same_name_is_never_touched() {
    let mut world = World::new(&[("eu", "8")]);
    world.publish(&["eu"]);
    let stranger = world.put(&eu(), ray_job("train", "ml", "1"));
    let before = world.get(&eu(), &stranger).cloned();
    let root = world.put(&Cluster::Hub, ray_job("train", "ml", "2"));
    for _ in 0..12 {
        world.step(&root);
        world.tend("eu");
    }
    assert_eq!(world.get(&eu(), &stranger).cloned(), before);
}

#[test]
fn stages_follow_what_the_member_shows_and_status_comes_back() {
    let (mut world, root) = admitted();
    is(&mut world, &group(), "Running");
    world.edit(&eu(), &root, |body| body["status"] = json!({"jobDeploymentStatus": "Running", "jobStatus": "RUNNING"}));
    world.step(&root);
    world.step(&root);
    assert_eq!(stage(&world, &root), Stage::Running);
    world.edit(&eu(), &root, |body| {
        body["status"] = json!({"jobDeploymentStatus": "Complete", "jobStatus": "SUCCEEDED"});
    });
    for _ in 0..3 {
        world.step(&root);
    }
    assert_eq!(stage(&world, &root), Stage::Finished);
    let body = world.get(&Cluster::Hub, &root).unwrap();
    assert_eq!(body["status"]["jobStatus"], "SUCCEEDED");
    assert_eq!(body["metadata"]["labels"]["rayfleet.io/stage"], "Finished");
    assert_eq!(body["metadata"]["labels"]["rayfleet.io/cluster"], "eu");
    assert_eq!(world.step(&root).actions, [], "quiet at rest");
}

#[test]
fn a_new_spec_goes_to_the_mirror_and_a_new_gang_is_placed_afresh_before_it_runs() {
    let (mut world, root) = admitted();
    world.edit(&Cluster::Hub, &root, |body| body["spec"]["entrypoint"] = "python y.py".into());
    world.step(&root);
    assert_eq!(world.get(&eu(), &root).unwrap()["spec"]["entrypoint"], "python y.py");
    assert_eq!(stage(&world, &root), Stage::Admitted);
    world.edit(&Cluster::Hub, &root, |body| {
        body["spec"]["rayClusterSpec"]["headGroupSpec"]["template"] = crate::plan::testing::template("3");
    });
    world.step(&root);
    assert_eq!(stage(&world, &root), Stage::Withdrawing);
}

#[test]
fn a_missing_mirror_is_withdrawn_but_not_when_the_job_has_ended() {
    let (mut world, root) = admitted();
    world.remove(&eu(), &root);
    world.step(&root);
    assert_eq!(stage(&world, &root), Stage::Withdrawing);
    let (mut world, root) = admitted();
    world.edit(&eu(), &root, |body| body["status"] = json!({"jobDeploymentStatus": "Failed"}));
    world.step(&root);
    world.remove(&eu(), &root);
    world.step(&root);
    assert_eq!(stage(&world, &root), Stage::Finished);
}

/// A mirror that has succeeded, with one deletion rule, and that is being deleted.
fn mirror_deleted_after_success(condition: &str) -> (World, Id) {
    let (mut world, root) = admitted();
    world.edit(&eu(), &root, |body| {
        body["status"] = json!({"jobStatus": "SUCCEEDED", "jobDeploymentStatus": "Complete"});
        body["spec"]["deletionStrategy"] =
            json!({"deletionRules": [{"policy": "DeleteSelf", "condition": {"jobStatus": condition}}]});
    });
    world.step(&root);
    world.edit(&eu(), &root, |body| body["metadata"]["deletionTimestamp"] = "2026-11-29T12:00:00Z".into());
    world.step(&root);
    (world, root)
}

#[test]
fn a_mirror_that_deletes_itself_deletes_the_root() {
    let (world, root) = mirror_deleted_after_success("SUCCEEDED");
    assert!(!world.get(&Cluster::Hub, &root).unwrap()["metadata"]["deletionTimestamp"].is_null());
}

#[test]
fn a_rule_for_failures_does_not_delete_a_root_that_succeeded() {
    let (world, root) = mirror_deleted_after_success("FAILED");
    assert!(world.get(&Cluster::Hub, &root).unwrap()["metadata"]["deletionTimestamp"].is_null());
    assert_eq!(stage(&world, &root), Stage::Finished);
}

#[test]
fn a_result_that_is_not_told_yet_is_stored_before_anything_undoes_it() {
    for trouble in ["suspend", "mirror deleted", "gang edited"] {
        let (mut world, root) = admitted();
        world.edit(&eu(), &root, |body| {
            body["status"] = json!({"jobStatus": "SUCCEEDED", "jobDeploymentStatus": "Complete"});
        });
        match trouble {
            "suspend" => world.edit(&Cluster::Hub, &root, |body| body["spec"]["suspend"] = true.into()),
            "mirror deleted" => world.edit(&eu(), &root, |body| {
                body["metadata"]["deletionTimestamp"] = "2026-11-29T12:00:00Z".into();
            }),
            _ => world.edit(&Cluster::Hub, &root, |body| {
                body["spec"]["rayClusterSpec"]["headGroupSpec"]["template"]["spec"]["containers"][0]["resources"] =
                    json!({"requests": {"cpu": "3"}});
            }),
        }
        for _ in 0..4 {
            world.step(&root);
        }
        assert_eq!(stage(&world, &root), Stage::Finished, "{trouble}");
        assert_eq!(world.get(&Cluster::Hub, &root).unwrap()["status"]["jobStatus"], "SUCCEEDED", "{trouble}");
    }
}

#[test]
fn a_gang_without_a_bound_pod_moves_after_its_start_deadline_if_it_fits_elsewhere() {
    let (mut world, root) = admitted();
    let plan = world.step(&root);
    assert!(plan.next.is_some());
    world.now = Time(world.now.0 + 300_000);
    world.publish(&["eu", "us"]);
    world.step(&root);
    assert_eq!(stage(&world, &root), Stage::Withdrawing);
}

#[test]
fn a_deleted_root_leaves_nothing_behind() {
    let (mut world, root) = admitted();
    world.edit(&Cluster::Hub, &root, |body| body["metadata"]["deletionTimestamp"] = "2026-11-29T12:00:00Z".into());
    until(&mut world, &root, Stage::Withdrawing);
    until(&mut world, &root, Stage::Waiting);
    assert!(world.get(&eu(), &group()).is_none(), "children are gone before Waiting");
    assert!(world.get(&eu(), &root).is_some(), "the tombstone holds the name");
    assert_eq!(world.step(&root).actions, [], "the hub's objects stay while the name is held");
    world.publish(&["eu"]);
    assert!(world.get(&eu(), &root).is_none(), "released: the generation was clean");
    world.publish(&["eu"]);
    for _ in 0..4 {
        world.step(&root);
        world.publish(&["eu"]);
    }
    assert_eq!(world.get(&Cluster::Hub, &root), None);
    assert_eq!(world.placement_of(&root), None);
}

#[test]
fn waiting_is_stored_only_after_lists_begun_later_than_the_tombstone_was_read() {
    let (mut world, root) = admitted();
    world.edit(&Cluster::Hub, &root, |body| body["spec"]["suspend"] = true.into());
    world.step(&root);
    let mut saw_relist = false;
    for _ in 0..10 {
        let plan = world.step(&root);
        if plan.actions.iter().any(|a| a.cluster() == Cluster::Hub) {
            assert!(saw_relist);
            assert_eq!(stage(&world, &root), Stage::Waiting);
            return;
        }
        saw_relist |= !plan.relist.is_empty();
        world.collect();
    }
    panic!("not released");
}

#[test]
fn a_child_that_appears_under_a_tombstone_is_deleted_by_uid() {
    let (mut world, root) = admitted();
    world.edit(&Cluster::Hub, &root, |body| body["spec"]["suspend"] = true.into());
    for _ in 0..3 {
        world.step(&root);
    }
    world.collect();
    let owner = world.get(&eu(), &root).unwrap()["metadata"]["uid"].clone();
    let late = world.put(&eu(), json!({
        "apiVersion": "ray.io/v1", "kind": "RayCluster",
        "metadata": {"name": "late", "namespace": "default", "ownerReferences": [{"apiVersion": "ray.io/v1", "kind": "RayJob", "name": "train", "uid": owner}]},
        "spec": {},
    }));
    world.step(&root);
    assert!(world.get(&eu(), &late).is_none());
    assert_eq!(stage(&world, &root), Stage::Withdrawing);
}

#[test]
fn waiting_of_an_unclean_admitted_generation_starts_only_after_q() {
    let (mut world, root) = admitted();
    world.edit(&Cluster::Hub, &root, |body| body["spec"]["suspend"] = true.into());
    world.me.unknown = true;
    world.step(&root);
    world.me.unknown = false;
    assert!(world.placement_of(&root).unwrap().spec.unclean, "an unknown outcome makes it unclean");
    let mut plan = crate::plan::Plan::default();
    for _ in 0..12 {
        plan = world.step(&root);
        world.collect();
    }
    assert_eq!(stage(&world, &root), Stage::Withdrawing);
    world.now = plan.next.expect("Q");
    world.step(&root);
    assert_eq!(stage(&world, &root), Stage::Waiting);
}

#[test]
fn an_unclean_generation_that_was_never_admitted_waits_at_once_and_its_tombstone_stays() {
    let (mut world, root) = reserved();
    world.edit(&Cluster::Hub, &root, |body| body["spec"]["suspend"] = true.into());
    world.me.unknown = true;
    world.step(&root);
    world.me.unknown = false;
    until(&mut world, &root, Stage::Waiting);
    world.publish(&["eu"]);
    assert!(world.get(&eu(), &root).is_some());
    assert_eq!(capacity(&world)["tombstones"].as_array().map(Vec::len), Some(1));
    world.edit(&Cluster::Hub, &root, |body| body["spec"]["suspend"] = false.into());
    world.step(&root);
    let placement = world.placement_of(&root).unwrap();
    assert_eq!(placement.spec.member.as_deref(), Some("us"), "the same member waits for the release (E6)");
    world.now = Time(world.now.0 + 3_600_000);
    world.tend("eu");
    assert!(world.get(&eu(), &root).is_none(), "after Q it is released");
}

#[test]
fn a_tombstone_is_released_only_on_a_fresh_read() {
    let (mut world, root) = admitted();
    world.edit(&Cluster::Hub, &root, |body| body["spec"]["suspend"] = true.into());
    until(&mut world, &root, Stage::Withdrawing);
    until(&mut world, &root, Stage::Waiting);
    let plan = world.tend("eu");
    assert!(world.get(&eu(), &root).is_some());
    assert!(plan.fetch.iter().any(|f| f.id.kind == Kind::Placement), "{:?}", plan.fetch);
    // What was read grows old: it is read again.
    world.now = Time(world.now.0 + 6000);
    let plan = world.tend("eu");
    assert!(world.get(&eu(), &root).is_some() && plan.fetch.iter().any(|f| f.id.kind == Kind::Placement));
    world.tend("eu");
    assert!(world.get(&eu(), &root).is_none());
}

#[test]
fn a_new_owner_does_not_release_a_tombstone_before_q() {
    let (mut world, root) = admitted();
    world.edit(&Cluster::Hub, &root, |body| body["spec"]["suspend"] = true.into());
    until(&mut world, &root, Stage::Withdrawing);
    until(&mut world, &root, Stage::Waiting);
    world.me.epoch = 2;
    world.publish(&["eu"]);
    assert!(world.get(&eu(), &root).is_some());
}

#[test]
fn an_empty_slot_becomes_a_tombstone_before_anything_else() {
    let (mut world, root) = admitted();
    world.remove(&eu(), &root);
    world.step(&root);
    world.step(&root);
    let mirror = world.get(&eu(), &root).expect("taken");
    assert_eq!(mirror["metadata"]["finalizers"], json!(["rayfleet.io/tombstone"]));
    world.step(&root);
    assert!(!world.get(&eu(), &root).unwrap()["metadata"]["deletionTimestamp"].is_null());
}

#[test]
fn a_mirror_that_no_placement_names_is_ended_only_after_two_reads() {
    let (mut world, root) = reserved();
    let id = Id::new(Kind::Placement, "default", "rayjob-train");
    world.edit(&Cluster::Hub, &id, |body| {
        body["spec"]["member"] = "us".into();
        body["spec"]["generation"] = 2.into();
    });
    let alive = |world: &World| world.get(&eu(), &root).unwrap()["metadata"]["deletionTimestamp"].is_null();
    world.tend("eu");
    assert!(alive(&world));
    world.tend("eu");
    assert!(alive(&world));
    world.tend("eu");
    assert!(!alive(&world));
}

#[test]
fn a_mirror_that_has_run_and_has_no_placement_is_kept_for_adoption() {
    let (mut world, root) = admitted();
    world.edit(&eu(), &root, |body| body["status"] = json!({"jobDeploymentStatus": "Running"}));
    world.remove(&Cluster::Hub, &Id::new(Kind::Placement, "default", "rayjob-train"));
    for _ in 0..6 {
        world.tend("eu");
    }
    assert!(world.get(&eu(), &root).unwrap()["metadata"]["deletionTimestamp"].is_null());
}

#[test]
fn the_picture_counts_gangs_once_and_is_quiet_at_rest() {
    let (mut world, root) = reserved();
    world.publish(&["eu"]);
    let promised = |world: &World| capacity(world)["queues"]["ml"]["inqueue"]["cpu"].clone();
    assert_eq!(promised(&world), "4", "its PodGroup is not admitted yet: counted by the Placement");
    is(&mut world, &group(), "Inqueue");
    world.publish(&["eu"]);
    assert_eq!(promised(&world), "4", "now by the PodGroup");
    world.step(&root);
    world.publish(&["eu"]);
    assert_eq!(capacity(&world)["reserved"]["cpu"], "4");
    world.publish(&["eu"]);
    let plan = world.tend("eu");
    assert_eq!((plan.actions.len(), plan.fetch.len()), (0, 0), "{plan:?}");
    assert!(plan.next.is_some());
    world.now = Time(world.now.0 + 30_000);
    let plan = world.tend("eu");
    assert_eq!(plan.actions.len(), 1, "refreshed every 30 s");
}

/// Tables of two kinds need not be of one moment: a watch that was cut shows the PodGroup's phase long before the pods.
#[test]
fn a_gang_holds_its_whole_room_whatever_moment_each_table_shows() {
    let mut world = World::new(&[("eu", "8")]);
    world.publish(&["eu"]);
    let mut job = ray_job("train", "ml", "2");
    job["spec"]["submissionMode"] = json!("K8sJobMode");
    let root = world.put(&Cluster::Hub, job);
    for _ in 0..10 {
        world.step(&root);
    }
    is(&mut world, &group(), "Inqueue");
    until(&mut world, &root, Stage::Admitted);
    let pods = [("h", "headgroup", "2"), ("w", "w", "2"), ("s", "submittergroup", "500m")];
    for phase in ["", "Pending", "Inqueue", "Running", "Unknown", "Completed"] {
        for on_nodes in 0..8 {
            is(&mut world, &group(), phase);
            for (i, (name, task, cpu)) in pods.into_iter().enumerate() {
                let node = if on_nodes >> i & 1 == 1 { "n1" } else { "" };
                world.put(&eu(), pod_of_gang(name, task, cpu, node, "Pending"));
            }
            let what = format!("PodGroup {phase:?}, pods on nodes {on_nodes:03b}");
            assert_eq!(held(&mut world), 4500, "on nodes: {what}");
            let queue = capacity(&world)["queues"]["ml"].clone();
            assert_eq!(milli_cpus(&queue["allocated"]) + milli_cpus(&queue["inqueue"]), 4500, "in the queue: {what}");
        }
    }
    // What has ended gives its room back, and only a submitter that is done is not made anew.
    is(&mut world, &group(), "Running");
    for (name, task, cpu) in pods {
        world.put(&eu(), pod_of_gang(name, task, cpu, "n1", "Running"));
    }
    for (phase, left) in [("Running", 4500), ("Failed", 4500), ("Succeeded", 4000)] {
        world.put(&eu(), pod_of_gang("s", "submittergroup", "500m", "n1", phase));
        assert_eq!(held(&mut world), left, "the submitter is {phase}");
    }
}

fn pod_of_gang(name: &str, task: &str, cpu: &str, node: &str, phase: &str) -> Value {
    let mut pod = template(cpu);
    pod["apiVersion"] = json!("v1");
    pod["kind"] = json!("Pod");
    pod["metadata"] = json!({"name": name, "namespace": "default", "annotations": {
        "scheduling.k8s.io/group-name": "ray-train-pg", "volcano.sh/task-spec": task,
    }});
    pod["spec"]["nodeName"] = json!(node);
    pod["status"] = json!({"phase": phase});
    pod
}

/// Thousandths of a core that are in use on eu, or promised.
fn held(world: &mut World) -> i128 {
    world.publish(&["eu"]);
    let picture = capacity(world);
    let promised = picture["promised"].as_array().into_iter().flatten();
    let promised: i128 =
        promised.map(|p| milli_cpus(&p["requests"]) * i128::from(p["count"].as_i64().unwrap_or_default())).sum();
    milli_cpus(&picture["used"]) + promised
}

fn milli_cpus(amounts: &Value) -> i128 {
    amounts["cpu"].as_str().unwrap_or("0").parse::<Quantity>().unwrap().nanos() / 1_000_000
}

#[test]
fn equal_nodes_are_one_class_and_conditions_are_told() {
    let mut world = World::new(&[("eu", "8")]);
    for name in ["n2", "n3"] {
        let mut node = world.get(&eu(), &Id::new(Kind::Node, "", "n1")).unwrap().clone();
        node["metadata"] =
            json!({"name": name, "labels": {"kubernetes.io/hostname": name, "kubernetes.io/arch": "amd64"}});
        world.put(&eu(), node);
    }
    world.publish(&["eu"]);
    let classes = capacity(&world)["nodeClasses"].clone();
    assert_eq!((&classes[0]["count"], &classes[1]["count"]), (&json!(1), &json!(2)), "{classes}");
    assert_eq!(classes[1]["labels"], json!({"kubernetes.io/arch": "amd64"}));
    let cluster = world.get(&Cluster::Hub, &Id::new(Kind::MemberCluster, "", "eu")).unwrap();
    let ready = cluster["status"]["conditions"].as_array().unwrap().iter().find(|c| c["type"] == "Ready").unwrap();
    assert_eq!((&ready["status"], &cluster["status"]["nodes"]), (&json!("True"), &json!(3)));
}

#[test]
fn a_member_with_long_lived_credentials_says_so_and_for_how_long_names_are_held() {
    let mut world = World::new(&[("eu", "8")]);
    world.publish(&["eu"]);
    assert_eq!(condition(&world, "LongLivedCredentials"), None);
    world.edit(&Cluster::Hub, &cluster(), |body| {
        body["spec"]["kubeconfigSecret"] = json!({"namespace": "rayfleet-system", "name": "member-eu"});
    });
    world.publish(&["eu"]);
    let told = condition(&world, "LongLivedCredentials").expect("a condition");
    assert_eq!((&told["status"], &told["reason"]), (&json!("True"), &json!("Kubeconfig")));
    assert!(told["message"].as_str().unwrap().contains("60 minutes"), "{told}");
    assert_eq!(condition(&world, "Ready").unwrap()["status"], "True");
}
