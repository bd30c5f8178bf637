//! Which unit and plan a key has, and what wakes it.

use super::*;
use crate::api::fleet::{GangShape, RootRef};
use crate::row::Facts;

fn owner(story: &Story, cluster: &Cluster, id: Id) -> Result<(String, Which), String> {
    let key = Key { cluster: cluster.clone(), id };
    match super::super::owner::of(&story.engine.world, &key) {
        Ok(owner) => Ok((owner.unit.to_string(), owner.which)),
        Err(why) => Err(why.0.to_string()),
    }
}

fn train() -> Id {
    Id::new(Kind::RayJob, "n", "train")
}

#[test]
fn a_root_objects_unit_and_plan_follow_from_its_stage() {
    let unbound = shards::queue_unit("ml");
    for (stage, unit, which) in [
        ("Waiting", unbound.clone(), Which::Place),
        ("Reserving", "m-eu-0".to_owned(), Which::Reserve),
        ("Withdrawing", "m-eu-0".to_owned(), Which::Withdraw),
        ("Admitted", bucket_unit(), Which::Bound),
        ("Running", bucket_unit(), Which::Bound),
        ("Finished", bucket_unit(), Which::Bound),
    ] {
        let story = Story::ready_with(vec![root(3), placement(stage, 4)], vec![]);
        assert_eq!(owner(&story, &Cluster::Hub, train()), Ok((unit, which)), "{stage}");
    }
    let story = Story::ready_with(vec![root(3)], vec![]);
    assert_eq!(owner(&story, &Cluster::Hub, train()), Ok((unbound, Which::Place)));
}

#[test]
fn a_placement_whose_root_object_is_gone_is_planned_all_the_same() {
    let mut story = Story::ready_with(vec![root(3), placement("Running", 4)], vec![]);
    story.looks();
    story.gone(&Cluster::Hub, &root(3), 110);
    assert_eq!(story.looks(), [(Which::Bound, "train".to_owned())]);
}

#[test]
fn a_queue_comes_from_label_policy_or_default() {
    let job = |label: Value| row(Kind::RayJob, json!({"metadata": {"name": "train", "labels": label}}), 3);
    let policy =
        row(Kind::PlacementPolicy, json!({"metadata": {"name": "default"}, "spec": {"defaultQueue": "research"}}), 3);
    let unit = |rows: Vec<Row>| owner(&Story::ready_with(rows, vec![]), &Cluster::Hub, train()).unwrap().0;
    assert_eq!(unit(vec![job(json!({}))]), shards::queue_unit("default"));
    assert_eq!(unit(vec![job(json!({})), policy.clone()]), shards::queue_unit("research"));
    assert_eq!(unit(vec![job(json!({"volcano.sh/queue-name": "ml"})), policy]), shards::queue_unit("ml"));
}

#[test]
fn a_mirror_is_planned_only_at_its_placements_member_generation_and_stage() {
    let at = |placement: Row| owner(&Story::ready_with(vec![placement], vec![mirror(5)]), &eu_cluster(), train());
    for stage in ["Admitted", "Running", "Finished"] {
        assert_eq!(at(placement(stage, 4)), Ok((bucket_unit(), Which::RayJob)));
    }
    for stage in ["Waiting", "Reserving", "Withdrawing"] {
        assert!(at(placement(stage, 4)).is_err(), "{stage}");
    }
    assert!(at(placement_with("Running", 4, json!({"generation": 2}))).is_err());
    assert!(at(placement_with("Running", 4, json!({"member": "us"}))).is_err());
    assert!(owner(&Story::ready_with(vec![], vec![mirror(5)]), &eu_cluster(), train()).is_err());
}

#[test]
fn a_mirror_whose_annotations_were_stripped_is_no_users_object() {
    let bare = row(Kind::RayJob, json!({"metadata": {"name": "train", "uid": "u-mirror"}}), 5);
    let named = placement_with("Running", 4, json!({"mirrorUid": "u-mirror"}));
    let story = Story::ready_with(vec![named], vec![bare.clone()]);
    assert_eq!(owner(&story, &eu_cluster(), train()), Ok((bucket_unit(), Which::RayJob)));
    let withdrawn = placement_with("Withdrawing", 4, json!({"mirrorUid": "u-mirror"}));
    let story = Story::ready_with(vec![withdrawn], vec![bare]);
    assert!(owner(&story, &eu_cluster(), train()).is_err());
}

#[test]
fn children_belong_to_the_unit_of_their_mirror() {
    let cluster = ray_cluster("train-abcde", Some("u-mirror"), 6);
    let story = Story::ready_with(vec![placement("Running", 4)], vec![mirror(5), cluster.clone()]);
    assert_eq!(owner(&story, &eu_cluster(), cluster.id.clone()), Ok((bucket_unit(), Which::RayCluster)));
    let story = Story::ready_with(vec![placement("Withdrawing", 4)], vec![mirror(5), cluster.clone()]);
    assert!(owner(&story, &eu_cluster(), cluster.id).is_err());
}

#[test]
fn what_a_user_applied_straight_to_a_member_is_planned_there() {
    let job = row(Kind::RayJob, json!({"metadata": {"name": "own", "uid": "u-own"}}), 5);
    let cluster = ray_cluster("own-abcde", Some("u-own"), 6);
    let story = Story::ready_with(vec![], vec![job.clone(), cluster.clone()]);
    let unit = shards::member_unit("eu", shards::bucket("u-own"), 4);
    assert_eq!(owner(&story, &eu_cluster(), job.id), Ok((unit.clone(), Which::RayJob)));
    assert_eq!(owner(&story, &eu_cluster(), cluster.id), Ok((unit, Which::RayCluster)), "with its parent");
}

#[test]
fn a_child_whose_mirror_is_gone_is_nobodys() {
    let mut stray = ray_cluster("train-abcde", Some("u-mirror"), 6);
    stray.root_id = Some("r-1".into());
    let story = Story::ready_with(vec![], vec![stray.clone()]);
    assert!(owner(&story, &eu_cluster(), stray.id).is_err());
}

#[test]
fn a_pod_wakes_its_ray_cluster_its_root_object_and_its_member() {
    let cluster = ray_cluster("train-abcde", Some("u-mirror"), 6);
    let hub = vec![root(3), placement("Running", 4)];
    let mut story = Story::ready_with(hub, vec![mirror(5), cluster]);
    story.later(1_000);
    story.looks();
    let mut pod = pod("p", "u-train-abcde", 120);
    pod.root_id = Some("r-1".into());
    story.see(&eu_cluster(), pod);
    let looks: BTreeSet<(Which, String)> = story.looks().into_iter().collect();
    let wanted = [(Which::RayCluster, "train-abcde"), (Which::Bound, "train"), (Which::Member, "eu")];
    assert_eq!(looks, wanted.map(|(which, name)| (which, name.to_owned())).into());
}

#[test]
fn the_submitters_pod_wakes_the_ray_job_through_its_job() {
    let owners = json!([{"uid": "u-mirror", "controller": true}]);
    let job = row(Kind::Job, json!({"metadata": {"name": "train", "uid": "u-job", "ownerReferences": owners}}), 6);
    let mut story = Story::ready_with(vec![root(3), placement("Running", 4)], vec![mirror(5), job]);
    story.looks();
    story.see(&eu_cluster(), pod("submitter", "u-job", 120));
    assert!(story.looked(Which::RayJob));
}

#[test]
fn a_submitter_beside_the_head_that_fails_wakes_the_ray_job() {
    let cluster = ray_cluster("train-abcde", Some("u-mirror"), 6);
    let mut story = Story::ready_with(vec![root(3), placement("Running", 4)], vec![mirror(5), cluster]);
    let mut head = pod("head", "u-train-abcde", 120);
    for (container, code, wakes) in [("ray", 1, false), ("ray-job-submitter", 0, false), ("ray-job-submitter", 1, true)]
    {
        let owners = json!([{"uid": "u-train-abcde", "controller": true}]);
        let statuses = json!([{"name": container, "state": {"terminated": {"exitCode": code}}}]);
        let metadata = json!({"name": "head", "uid": "u-head", "ownerReferences": owners});
        let object = json!({"metadata": metadata, "status": {"containerStatuses": statuses}});
        head = row(Kind::Pod, object, head.version.0 + 1);
        story.later(1_000);
        story.looks();
        story.see(&eu_cluster(), head.clone());
        assert_eq!(story.looked(Which::RayJob), wakes, "{container} {code}");
    }
}

#[test]
fn a_raycluster_of_the_hub_wakes_the_jobs_that_run_on_it() {
    let shared = |version| row(Kind::RayCluster, json!({"metadata": {"name": "shared", "uid": "u-shared"}}), version);
    let job = |runs_on: &str, version| {
        let mut row = placement("Waiting", version);
        if let Facts::Placement(placement) = &mut row.facts {
            placement.status.gang = Some(GangShape { runs_on: runs_on.to_owned(), ..GangShape::default() });
        }
        row
    };
    let mut story = Story::ready_with(vec![root(3), job("shared", 4), shared(3)], vec![]);
    let woken = |story: &mut Story| {
        let looks = story.looks();
        looks.contains(&(Which::Place, "train".to_owned()))
    };
    story.looks();
    story.see(&Cluster::Hub, shared(120));
    assert!(woken(&mut story));
    let mut placed = placement("Waiting", 121);
    placed.id = Id::new(Kind::Placement, "n", "raycluster-shared");
    if let Facts::Placement(placement) = &mut placed.facts {
        placement.spec.root = RootRef { kind: "RayCluster".into(), name: "shared".into(), ..RootRef::default() };
    }
    story.see(&Cluster::Hub, placed);
    assert!(woken(&mut story));
    // One of the two cannot be read any more.
    for (kind, name) in [(Kind::RayCluster, "shared"), (Kind::Placement, "raycluster-shared")] {
        let object = Quarantined { error: "spec: expected a map".into(), known: None };
        let (id, version) = (Id::new(kind, "n", name), Version(121));
        story.looks();
        story.tell(Input::Rows(Cluster::Hub, kind, TableChange::Quarantine { id, object, version }));
        assert!(woken(&mut story), "{kind}");
    }
    // It selects another one by now.
    story.see(&Cluster::Hub, job("other", 122));
    story.looks();
    story.see(&Cluster::Hub, shared(123));
    assert!(!woken(&mut story));
}

#[test]
fn a_placement_wakes_root_mirror_and_children_together() {
    let cluster = ray_cluster("train-abcde", Some("u-mirror"), 6);
    let labelled = Row { root_id: Some("r-1".into()), ..cluster };
    let mut story = Story::ready_with(vec![root(3), placement("Reserving", 4)], vec![mirror(5), labelled]);
    story.later(1_000);
    story.looks();
    story.see(&Cluster::Hub, placement("Admitted", 120));
    let looks: BTreeSet<Which> = story.looks().into_iter().map(|(which, _)| which).collect();
    assert_eq!(looks, [Which::Bound, Which::RayJob, Which::RayCluster, Which::Member].into());
}

#[test]
fn capacity_wakes_what_waits_and_a_stage_wakes_its_queue() {
    let waiting = |name: &str, queue: &str| {
        row(Kind::RayJob, json!({"metadata": {"name": name, "labels": {"volcano.sh/queue-name": queue}}}), 3)
    };
    let hub = vec![root(3), placement("Reserving", 4), waiting("a", "ml"), waiting("b", "other")];
    let mut story = Story::ready_with(hub, vec![]);
    story.looks();
    story.see(&Cluster::Hub, row(Kind::MemberCapacity, json!({"metadata": {"name": "eu"}}), 120));
    let placed = |story: &Story| -> BTreeSet<String> {
        story.looks().into_iter().filter(|(which, _)| *which == Which::Place).map(|(_, name)| name).collect()
    };
    assert_eq!(placed(&story), ["a".to_owned(), "b".to_owned()].into());
    story.see(&Cluster::Hub, placement("Admitted", 121));
    assert_eq!(placed(&story), ["a".to_owned()].into());
}

#[test]
fn queues_nodes_and_pod_groups_wake_reservations_on_their_member() {
    let mut story = Story::ready_with(vec![root(3), placement("Reserving", 4)], vec![]);
    for (n, kind) in [Kind::Queue, Kind::Node, Kind::PodGroup, Kind::Pod].into_iter().enumerate() {
        story.later(1_000);
        story.looks();
        story.see(&eu_cluster(), row(kind, json!({"metadata": {"name": "x"}}), 120 + n as u64));
        let looks: BTreeSet<Which> = story.looks().into_iter().map(|(which, _)| which).collect();
        assert_eq!(looks, [Which::Reserve, Which::Member].into(), "{kind}");
    }
}

#[test]
fn a_members_own_key_is_not_looked_at_for_each_of_a_hundred_pods() {
    let mut story = Story::ready();
    story.later(1_000);
    story.looks();
    for n in 0..100 {
        story.see(&eu_cluster(), pod(&format!("p-{n}"), "nobody", 120 + n));
    }
    assert_eq!(story.looks().len(), 1);
    story.later(100);
    assert_eq!(story.looks().len(), 1);
}

#[test]
fn rows_of_a_watch_that_was_given_up_make_no_table() {
    let mut story = Story::ready();
    for n in 0..4 {
        story.tell(Input::Unit(format!("m-eu-{n}").into(), Standing::Lost));
    }
    story.see(&eu_cluster(), pod("late", "x", 120));
    assert!(story.engine.tables(&eu_cluster()).is_none());
}

#[test]
fn the_end_of_an_unreadable_object_wakes_whoever_it_may_have_belonged_to() {
    let mut story = Story::ready_with(vec![root(3), placement("Withdrawing", 4)], vec![mirror(5)]);
    story.later(1_000);
    story.looks();
    let (id, version) = (Id::new(Kind::Pod, "n", "p"), Version(120));
    let object = Quarantined { error: "Pod n/p: spec.nodeName: expected a string".into(), known: None };
    let change = TableChange::Quarantine { id: id.clone(), object, version };
    story.tell(Input::Rows(eu_cluster(), Kind::Pod, change.clone()));
    assert!(story.looked(Which::Withdraw));
    story.later(1_000);
    story.looks();
    story.tell(Input::Rows(eu_cluster(), Kind::Pod, change));
    assert!(story.looks().is_empty(), "nothing is new");
    let gone = TableChange::Remove { id, uid: "u".into(), version: Version(121) };
    story.tell(Input::Rows(eu_cluster(), Kind::Pod, gone));
    assert!(story.looked(Which::Withdraw));
}

#[test]
fn an_unreadable_root_object_is_looked_at_by_the_owner_of_its_queue_and_by_nobody_else() {
    for kind in Kind::ROOTS {
        let mut story = Story::ready();
        story.looks();
        let known = json!({"metadata": {"name": "bad", "namespace": "n", "labels": {names::QUEUE_LABEL: "ml"}}});
        let known = Some(Box::new(row(kind, known, 120)));
        let (id, version) = (Id::new(kind, "n", "bad"), Version(120));
        let object = Quarantined { error: "spec: expected a map".into(), known };
        let unit: Arc<str> = shards::queue_unit("ml").into();
        story.tell(Input::Unit(unit.clone(), Standing::Lost));
        story.tell(Input::Rows(
            Cluster::Hub,
            kind,
            TableChange::Quarantine { id: id.clone(), object: object.clone(), version },
        ));
        assert!(story.looks().is_empty(), "{kind}: another replica's");
        story.tell(Input::Unit(unit, Standing::Held(6)));
        story.later(1);
        for listed in HUB_KINDS {
            let quarantined = if *listed == kind { vec![(id.clone(), object.clone())] } else { Vec::new() };
            let change = TableChange::Reset { rows: Vec::new(), quarantined, version, begun: story.now };
            story.tell(Input::Rows(Cluster::Hub, *listed, change));
        }
        story.later(1);
        assert!(story.looks().contains(&(Which::Place, "bad".to_owned())), "{kind}");
    }
}
