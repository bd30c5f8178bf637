//! Facts about jobs on a RayCluster that is there, from the hub to the member and back.

use serde_json::{Value, json};

use crate::api::fleet::{Placement, Stage};
use crate::api::{Cluster, Id, Kind, Time};
use crate::plan::testing::{World, ray_job};
use crate::plan::{Action, Dashboard, JobView, Plan, Question};

fn eu() -> Cluster {
    Cluster::Member("eu".into())
}

fn shared_id() -> Id {
    Id::new(Kind::RayCluster, "default", "shared")
}

fn shared() -> Value {
    json!({
        "apiVersion": "ray.io/v1", "kind": "RayCluster",
        "metadata": {"name": "shared", "namespace": "default", "labels": {"volcano.sh/queue-name": "ml"}},
        "spec": ray_job("x", "ml", "2")["spec"]["rayClusterSpec"],
    })
}

fn selecting(name: &str) -> Value {
    json!({
        "apiVersion": "ray.io/v1", "kind": "RayJob",
        "metadata": {"name": name, "namespace": "default", "labels": {"volcano.sh/queue-name": "ml"}},
        "spec": {
            "submissionMode": "HTTPMode", "entrypoint": "python x.py", "clusterSelector": {"ray.io/cluster": "shared"},
        },
    })
}

/// Two members, of which `eu` alone has room for the RayCluster.
fn world() -> World {
    let mut world = World::new(&[("eu", "8"), ("us", "1")]);
    world.publish(&["eu", "us"]);
    world
}

fn steps(world: &mut World, root: &Id, count: usize) -> Plan {
    (0..count).map(|_| world.step(root)).last().expect("a plan")
}

/// Explanations may be written again.
fn later(world: &mut World) {
    world.now = Time(world.now.0 + 2_100);
    world.publish(&["eu", "us"]);
}

fn placement(world: &World, root: &Id) -> Placement {
    world.placement_of(root).expect("a Placement")
}

fn message(world: &World, root: &Id) -> String {
    let status = &world.get(&Cluster::Hub, root).unwrap()["status"];
    assert_eq!(status["reason"], "WaitingForRayCluster", "{status}");
    assert_eq!(status["message"], placement(world, root).status.message);
    placement(world, root).status.message
}

fn admitted(world: &mut World) {
    let root = shared_id();
    steps(world, &root, 8);
    world.edit(&eu(), &Id::new(Kind::PodGroup, "default", "ray-shared-pg"), |g| {
        g["status"]["phase"] = "Inqueue".into();
    });
    steps(world, &root, 8);
    assert_eq!(placement(world, &root).spec.stage, Stage::Admitted);
}

fn ready(world: &mut World) {
    world.edit(&eu(), &shared_id(), |cluster| cluster["status"] = json!({"state": "ready"}));
    steps(world, &shared_id(), 4);
    later(world);
}

/// The RayCluster is ready on `eu`, and the job admitted there.
fn on_the_member() -> (World, Id) {
    let mut world = world();
    world.put(&Cluster::Hub, shared());
    admitted(&mut world);
    ready(&mut world);
    let root = world.put(&Cluster::Hub, selecting("train"));
    world.forget_sent();
    steps(&mut world, &root, 8);
    assert_eq!(placement(&world, &root).spec.stage, Stage::Admitted, "{:?}", placement(&world, &root));
    (world, root)
}

#[test]
fn a_job_waits_for_its_raycluster_and_says_how_far_that_is() {
    let mut world = world();
    let root = world.put(&Cluster::Hub, selecting("train"));
    let events: Vec<_> = (0..8).flat_map(|_| world.step(&root).events).collect();
    assert!(message(&world, &root).contains("RayCluster default/shared is not on the hub"));
    let told: Vec<&str> = events.iter().map(|event| &*event.reason).collect();
    assert_eq!(told, ["RayClusterNotFound"]);
    assert_eq!(placement(&world, &root).status.position, None);

    let says = |world: &mut World, what: &str| {
        // Other words under the same verdicts come at their pace.
        world.now = Time(world.now.0 + 8_000);
        later(world);
        let plan = steps(world, &root, 4);
        assert!(message(world, &root).contains(what), "{what}: {}", message(world, &root));
        assert!(plan.actions.is_empty() && plan.next.is_some(), "{plan:?}");
    };
    let cluster = world.put(&Cluster::Hub, shared());
    says(&mut world, "is not placed on a member yet");
    steps(&mut world, &cluster, 4);
    says(&mut world, "is still being reserved on eu");
    admitted(&mut world);
    says(&mut world, "is not ready yet on eu");
    world.edit(&Cluster::Hub, &cluster, |c| c["status"] = json!({"state": "suspended"}));
    says(&mut world, "is not ready on eu (its state is suspended)");
    world.edit(&Cluster::Hub, &cluster, |c| c["spec"]["authOptions"] = json!({"mode": "token"}));
    says(&mut world, "asks for tokens");
    world.edit(&Cluster::Hub, &cluster, |c| c["spec"]["managedBy"] = "kueue.x-k8s.io/multikueue".into());
    says(&mut world, "is managed by another controller");
}

#[test]
fn it_goes_where_its_raycluster_is_and_is_admitted_without_a_reservation() {
    let (world, root) = on_the_member();
    let placement = placement(&world, &root);
    assert_eq!(placement.spec.member.as_deref(), Some("eu"));
    let verdict = |member: &str| placement.status.verdicts.iter().find(|v| v.member == member).unwrap().verdict.clone();
    assert_eq!((&*verdict("eu"), &*verdict("us")), ("Fits", "ClusterElsewhere"));
    assert!(world.get(&eu(), &root).is_some(), "its mirror");
    assert!(world.get(&eu(), &Id::new(Kind::PodGroup, "default", "ray-train-pg")).is_none());
    let gang = placement.status.gang.unwrap();
    assert_eq!((gang.cluster(), gang.min_member, gang.pods.len()), (Some("shared"), 0, 0));
}

#[test]
fn no_deadline_for_a_start_takes_it_away() {
    let (mut world, root) = on_the_member();
    for _ in 0..4 {
        world.now = Time(world.now.0 + 600_000);
        world.publish(&["eu", "us"]);
        steps(&mut world, &root, 4);
    }
    assert_eq!(placement(&world, &root).spec.stage, Stage::Admitted);
}

#[test]
fn nobody_waits_behind_a_job_that_waits_for_its_raycluster_nor_is_its_room_counted() {
    let mut world = world();
    let waiting = world.put(&Cluster::Hub, selecting("train"));
    steps(&mut world, &waiting, 4);
    later(&mut world);
    let other = world.put(&Cluster::Hub, ray_job("other", "ml", "4"));
    steps(&mut world, &other, 3);
    assert_eq!(placement(&world, &other).spec.stage, Stage::Reserving);

    let (mut world, _) = on_the_member();
    world.publish(&["eu", "us"]);
    let capacity = world.get(&Cluster::Hub, &Id::new(Kind::MemberCapacity, "", "eu")).unwrap();
    assert_eq!(capacity["spec"]["queues"]["ml"]["podGroups"], 1, "the RayCluster's alone");
}

#[test]
fn a_cordoned_member_takes_no_job_for_its_raycluster() {
    let mut world = world();
    world.put(&Cluster::Hub, shared());
    admitted(&mut world);
    ready(&mut world);
    world.edit(&Cluster::Hub, &Id::new(Kind::MemberCluster, "", "eu"), |m| m["spec"]["unschedulable"] = true.into());
    let root = world.put(&Cluster::Hub, selecting("train"));
    steps(&mut world, &root, 5);
    assert!(message(&world, &root).starts_with("waits for eu, where its RayCluster is: Cordoned"));
}

#[test]
fn a_reservation_goes_back_where_the_raycluster_is_not() {
    let bound = || {
        let mut world = world();
        world.put(&Cluster::Hub, shared());
        admitted(&mut world);
        ready(&mut world);
        let root = world.put(&Cluster::Hub, selecting("train"));
        world.forget_sent();
        steps(&mut world, &root, 3);
        assert_eq!(placement(&world, &root).spec.stage, Stage::Reserving);
        (world, root)
    };
    // The hub does not know it yet: not at once again.
    let (mut world, root) = bound();
    world.remove(&eu(), &shared_id());
    world.step(&root);
    let back = placement(&world, &root);
    assert_eq!((back.spec.stage, back.spec.back_offs.len()), (Stage::Waiting, 1), "{back:?}");
    assert!(back.spec.withdrawal.unwrap().message.contains("ClusterMissing"));
    // The hub does, and tells when it may go again.
    let (mut world, root) = bound();
    world.edit(&Cluster::Hub, &shared_id(), |cluster| cluster["status"] = json!({"state": "failed"}));
    world.step(&root);
    let back = placement(&world, &root);
    assert_eq!((back.spec.stage, back.spec.back_offs.len()), (Stage::Waiting, 0), "{back:?}");
    assert!(world.get(&eu(), &root).is_none());
}

#[test]
fn a_job_that_does_not_run_yet_leaves_with_its_raycluster_and_one_that_runs_stays() {
    // The mirror runs before its Placement says so: the owner may change between the two.
    for (runs, is_told, stage) in
        [(false, false, Stage::Withdrawing), (true, false, Stage::Running), (true, true, Stage::Running)]
    {
        let (mut world, root) = on_the_member();
        if runs {
            world.edit(&eu(), &root, |mirror| mirror["status"] = json!({"jobDeploymentStatus": "Running"}));
        }
        if is_told {
            steps(&mut world, &root, 3);
        }
        world.edit(&Cluster::Hub, &shared_id(), |c| c["spec"]["suspend"] = true.into());
        world.step(&shared_id());
        assert_eq!(placement(&world, &shared_id()).spec.stage, Stage::Withdrawing);
        steps(&mut world, &root, if is_told || !runs { 1 } else { 3 });
        let placement = placement(&world, &root);
        assert_eq!(placement.spec.stage, stage, "{placement:?}");
        assert_eq!(placement.spec.withdrawal.map(|w| w.reason), (!runs).then(|| "ClusterLeft".to_owned()));
    }
}

#[test]
fn another_selector_before_it_runs_places_it_afresh() {
    let (mut world, root) = on_the_member();
    world.edit(&Cluster::Hub, &root, |job| job["spec"]["clusterSelector"]["ray.io/cluster"] = "other".into());
    steps(&mut world, &root, 1);
    assert_eq!(placement(&world, &root).spec.withdrawal.unwrap().reason, "SpecChanged");
}

#[test]
fn a_raycluster_of_the_jobs_own_name_does_not_make_it_run() {
    let mut world = world();
    world.put(&Cluster::Hub, shared());
    admitted(&mut world);
    ready(&mut world);
    let group = Id::new(Kind::PodGroup, "default", "ray-shared-pg");
    world.edit(&eu(), &group, |g| g["status"]["phase"] = "Running".into());
    let root = world.put(&Cluster::Hub, selecting("shared"));
    world.forget_sent();
    steps(&mut world, &root, 10);
    assert_eq!(placement(&world, &root).spec.stage, Stage::Admitted);
}

#[test]
fn a_withdrawn_job_is_stopped_once_more_when_its_submitter_is_gone_and_the_raycluster_stays() {
    let (mut world, root) = on_the_member();
    let status = json!({
        "jobDeploymentStatus": "Initializing", "jobId": "train-x", "rayClusterName": "shared",
        "dashboardURL": "shared-head-svc.default.svc.cluster.local:8265",
    });
    world.edit(&eu(), &root, |mirror| mirror["status"] = status);
    let before = world.get(&eu(), &shared_id()).cloned();
    let submitter = json!({
        "apiVersion": "batch/v1", "kind": "Job",
        "metadata": {"name": "train", "namespace": "default", "ownerReferences": [{
            "uid": world.get(&eu(), &root).unwrap()["metadata"]["uid"], "controller": true,
        }]},
    });
    let submitter = world.put(&eu(), submitter);
    world.edit(&Cluster::Hub, &root, |body| body["metadata"]["deletionTimestamp"] = "2026-11-29T12:30:00Z".into());
    world.step(&root);
    assert_eq!(placement(&world, &root).spec.stage, Stage::Withdrawing);
    let mut stopped_beside = Vec::new();
    for _ in 0..30 {
        let plan = world.step(&root);
        for action in &plan.actions {
            if let Action::Ask { member, dashboard, question: Question::Stop { job } } = action {
                assert_eq!(&*dashboard.service, "shared-head-svc");
                stopped_beside.push(world.get(&eu(), &submitter).is_some());
                let view = JobView { stopped: Some(world.now), ..JobView::default() };
                world.rays.jobs.insert((member.clone(), Dashboard::clone(dashboard), job.clone()), view);
            }
        }
        world.collect();
    }
    assert_eq!(stopped_beside, [true, false]);
    assert_eq!(placement(&world, &root).spec.stage, Stage::Waiting);
    assert_eq!(world.get(&eu(), &shared_id()), before.as_ref());
}
