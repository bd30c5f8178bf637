//! Facts about placing, told with a small world.
//! Must not know how verdicts are counted.

use serde_json::json;

use crate::api::fleet::Stage;
use crate::api::{Cluster, Id, Kind, Time};
use crate::plan::testing::{World, ray_job};
use crate::plan::{Action, Fetched};

fn stage(world: &World, root: &Id) -> Option<Stage> {
    world.placement_of(root).map(|p| p.spec.stage)
}

fn hub(world: &mut World, body: serde_json::Value) -> Id {
    world.put(&Cluster::Hub, body)
}

#[test]
fn a_job_gets_finalizer_placement_and_a_member_in_this_order() {
    let mut world = World::new(&[("eu", "8"), ("us", "2")]);
    world.publish(&["eu", "us"]);
    let root = hub(&mut world, ray_job("train", "ml", "2"));
    world.step(&root);
    assert_eq!(world.get(&Cluster::Hub, &root).unwrap()["metadata"]["finalizers"], json!(["rayfleet.io/root"]));
    assert_eq!(stage(&world, &root), None);
    world.step(&root);
    let placement = world.placement_of(&root).unwrap();
    assert_eq!((placement.spec.stage, placement.spec.generation), (Stage::Waiting, 0));
    world.step(&root);
    let placement = world.placement_of(&root).unwrap();
    assert_eq!((placement.spec.stage, placement.spec.generation), (Stage::Reserving, 1));
    assert_eq!(placement.spec.member.as_deref(), Some("eu"));
    assert_eq!(placement.spec.claims.get("m-eu-0"), Some(&1));
    let us = placement.status.verdicts.iter().find(|v| v.member == "us").unwrap();
    assert_eq!((&*us.verdict, &*us.need), ("NeverFits", "cpu 4"));
    assert_eq!(placement.status.history.len(), 1);
}

#[test]
fn a_root_being_deleted_never_gets_a_placement() {
    let mut world = World::new(&[("eu", "8")]);
    world.publish(&["eu"]);
    let root = hub(&mut world, ray_job("train", "ml", "2"));
    world.step(&root);
    world.edit(&Cluster::Hub, &root, |body| body["metadata"]["deletionTimestamp"] = "2026-11-29T12:00:00Z".into());
    world.step(&root);
    world.step(&root);
    assert_eq!(world.get(&Cluster::Hub, &root), None, "its finalizer was taken off");
    assert_eq!(stage(&world, &root), None);
}

#[test]
fn a_job_that_fits_nowhere_waits_with_its_reason_and_then_is_quiet() {
    let mut world = World::new(&[("eu", "2")]);
    world.publish(&["eu"]);
    let root = hub(&mut world, ray_job("train", "ml", "2"));
    for _ in 0..6 {
        world.step(&root);
    }
    assert_eq!(stage(&world, &root), Some(Stage::Waiting));
    let status = world.get(&Cluster::Hub, &root).unwrap()["status"].clone();
    assert_eq!(status["reason"], "WaitingForCapacity");
    let message = status["message"].as_str().unwrap();
    assert!(message.contains("eu NeverFits (needs cpu 4, has cpu 2"), "{message}");
    assert_eq!(status["jobDeploymentStatus"], json!(null));
    let plan = world.step(&root);
    assert_eq!((plan.actions.len(), plan.fetch.len()), (0, 0), "{plan:?}");
    assert!(plan.next.is_some());
}

#[test]
fn verdicts_are_written_at_most_once_in_two_seconds() {
    let mut world = World::new(&[("eu", "2")]);
    world.publish(&["eu"]);
    let root = hub(&mut world, ray_job("train", "ml", "2"));
    for _ in 0..5 {
        world.step(&root);
    }
    let member = Id::new(Kind::MemberCluster, "", "eu");
    world.edit(&Cluster::Hub, &member, |body| body["spec"]["unschedulable"] = true.into());
    let plan = world.step(&root);
    assert!(plan.actions.is_empty() && plan.next.unwrap() <= Time(world.now.0 + 2000), "{plan:?}");
    world.now = Time(world.now.0 + 2000);
    assert_eq!(world.step(&root).actions.len(), 1);
    assert_eq!(world.placement_of(&root).unwrap().status.verdicts[0].verdict, "Cordoned");
}

#[test]
fn an_explanation_is_written_the_more_rarely_the_more_objects_wait_unless_its_turn_is_near() {
    // How many wait, which of them is looked at, and how long other numbers and another verdict wait for their turn.
    for (waiting, which, numbers_ms, verdict_ms) in
        [(1, 0, 10_000, 2_000), (60, 1, 10_000, 2_000), (12, 11, 10_000, 6_000), (60, 59, 30_000, 30_000)]
    {
        for (verdict, pace_ms) in [("NeverFits", numbers_ms), ("Cordoned", verdict_ms)] {
            let mut world = World::new(&[("eu", "8")]);
            world.publish(&["eu"]);
            let name = |n: usize| format!("train-{n:02}");
            let roots: Vec<Id> = (0..waiting).map(|n| hub(&mut world, ray_job(&name(n), "ml", "20"))).collect();
            for root in roots.iter().cycle().take(4 * waiting) {
                world.step(root);
            }
            let root = &roots[which];
            let written = Time::parse(&world.placement_of(root).unwrap().status.decided_at).unwrap();
            if verdict == "Cordoned" {
                let member = Id::new(Kind::MemberCluster, "", "eu");
                world.edit(&Cluster::Hub, &member, |body| body["spec"]["unschedulable"] = true.into());
            } else {
                let node = Id::new(Kind::Node, "", "n1");
                let on = Cluster::Member("eu".into());
                world.edit(&on, &node, |body| body["status"]["allocatable"]["cpu"] = "7".into());
            }
            let case = format!("{which} of {waiting}, {verdict}");
            if verdict == "NeverFits" {
                // Which takes 4.4 s.
                world.now = Time(written.0 + pace_ms - 4_401);
                world.publish(&["eu"]);
            }
            world.now = Time(written.0 + pace_ms - 1);
            let plan = world.step(root);
            assert!(plan.actions.is_empty() && plan.next.is_some(), "{case}: {plan:?}");
            world.now = Time(written.0 + pace_ms);
            assert_eq!(world.step(root).actions.len(), 1, "{case}");
            assert_eq!(world.placement_of(root).unwrap().status.verdicts[0].verdict, verdict, "{case}");
        }
    }
}

#[test]
fn another_gang_is_stored_at_once_however_many_wait() {
    let mut world = World::new(&[("eu", "8")]);
    world.publish(&["eu"]);
    let roots: Vec<Id> = (0..12).map(|n| hub(&mut world, ray_job(&format!("train-{n:02}"), "ml", "20"))).collect();
    for root in roots.iter().cycle().take(48) {
        world.step(root);
    }
    let written = Time::parse(&world.placement_of(&roots[11]).unwrap().status.decided_at).unwrap();
    world.edit(&Cluster::Hub, &roots[11], |body| {
        body["spec"]["rayClusterSpec"]["workerGroupSpecs"][0]["replicas"] = 2.into();
        body["spec"]["rayClusterSpec"]["workerGroupSpecs"][0]["maxReplicas"] = 2.into();
    });
    world.now = Time(written.0 + 1_999);
    assert_eq!(world.step(&roots[11]).actions, []);
    world.now = Time(written.0 + 2_000);
    assert_eq!(world.step(&roots[11]).actions.len(), 1, "those behind it judge it by what is stored");
    let gang = world.placement_of(&roots[11]).unwrap().status.gang.unwrap();
    assert!(gang.pods.iter().any(|pods| pods.count == 2), "{gang:?}");
}

#[test]
fn a_back_off_that_ends_later_than_any_can_is_a_wrong_clocks_and_binds_nobody() {
    for (hours, stage_then) in [(0.4, Stage::Waiting), (0.6, Stage::Reserving)] {
        let mut world = World::new(&[("eu", "8")]);
        world.publish(&["eu"]);
        let root = hub(&mut world, ray_job("train", "ml", "2"));
        world.step(&root);
        world.step(&root);
        let until = Time(world.now.0 + (hours * 3_600_000.0) as i64).micro_text();
        let placement = Id::new(Kind::Placement, "default", "rayjob-train");
        world.edit(&Cluster::Hub, &placement, |body| {
            body["spec"]["backOffs"] = json!({ "eu": { "count": 1, "until": until } });
        });
        world.step(&root);
        assert_eq!(stage(&world, &root), Some(stage_then), "{hours} h");
    }
}

#[test]
fn an_explanation_of_a_time_that_is_yet_to_come_is_written_afresh() {
    let mut world = World::new(&[("eu", "2")]);
    world.publish(&["eu"]);
    let root = hub(&mut world, ray_job("train", "ml", "2"));
    for _ in 0..5 {
        world.step(&root);
    }
    let ahead = Time(world.now.0 + 3_600_000).micro_text();
    let placement = Id::new(Kind::Placement, "default", "rayjob-train");
    world.edit(&Cluster::Hub, &placement, |body| body["status"]["decidedAt"] = ahead.into());
    let member = Id::new(Kind::MemberCluster, "", "eu");
    world.edit(&Cluster::Hub, &member, |body| body["spec"]["unschedulable"] = true.into());
    world.step(&root);
    assert_eq!(world.placement_of(&root).unwrap().status.verdicts[0].verdict, "Cordoned");
}

#[test]
fn a_suspended_job_waits_and_says_so() {
    let mut world = World::new(&[("eu", "8")]);
    world.publish(&["eu"]);
    let mut job = ray_job("train", "ml", "2");
    job["spec"]["suspend"] = true.into();
    job["spec"]["shutdownAfterJobFinishes"] = true.into();
    let root = hub(&mut world, job);
    for _ in 0..5 {
        world.step(&root);
    }
    assert_eq!(stage(&world, &root), Some(Stage::Waiting));
    let status = &world.get(&Cluster::Hub, &root).unwrap()["status"];
    assert_eq!(
        (&status["jobDeploymentStatus"], &status["message"]),
        (&json!("Suspended"), &json!("suspended by its user"))
    );
    world.edit(&Cluster::Hub, &root, |body| body["spec"]["suspend"] = false.into());
    world.step(&root);
    assert_eq!(stage(&world, &root), Some(Stage::Reserving));
}

#[test]
fn a_manifest_without_a_head_is_refused_by_status_and_event() {
    let mut world = World::new(&[("eu", "8")]);
    let mut job = ray_job("train", "ml", "2");
    job["spec"]["rayClusterSpec"] = json!({});
    let root = hub(&mut world, job);
    let plan = world.step(&root);
    assert_eq!(&*plan.events[0].reason, "InvalidRayJobSpec");
    let body = world.get(&Cluster::Hub, &root).unwrap();
    assert_eq!(body["status"]["jobDeploymentStatus"], "ValidationFailed");
    assert_eq!(body["metadata"]["finalizers"], json!(null));
    assert_eq!(world.step(&root).actions, []);
}

#[test]
fn a_root_object_that_cannot_be_read_says_so_by_an_event() {
    let mut world = World::new(&[("eu", "8")]);
    world.publish(&["eu"]);
    let mut job = ray_job("train", "ml", "2");
    job["metadata"]["generation"] = 1.into();
    let deep = (0..110).fold(json!(1), |inner, _| json!({ "a": inner }));
    job["spec"]["newer"] = deep;
    let root = hub(&mut world, job);
    let plan = world.step(&root);
    assert_eq!(&*plan.why.0, "it cannot be read: RayJob default/train: nested more than 100 levels deep");
    let said: Vec<_> = plan.events.iter().map(|note| (&*note.reason, note.warning, note.about.clone())).collect();
    assert_eq!(said, [("Unreadable", true, root.clone())]);
    assert_eq!(plan.actions, [], "nothing is written to what cannot be read whole");
    world.edit(&Cluster::Hub, &root, |body| body["spec"]["newer"] = json!(null));
    world.step(&root);
    assert!(world.get(&Cluster::Hub, &root).unwrap()["metadata"]["finalizers"].is_array());
}

#[test]
fn a_job_that_has_run_and_lost_its_placement_is_not_started_again() {
    let mut world = World::new(&[("eu", "8")]);
    world.publish(&["eu"]);
    for (state, told) in [("Running", 1), ("Complete", 0), ("Failed", 0), ("Initializing", 1), ("SomebodyElses", 1)] {
        let mut job = ray_job(&format!("job-{}", state.to_lowercase()), "ml", "1");
        job["status"] = json!({"jobDeploymentStatus": state});
        let root = hub(&mut world, job);
        for _ in 0..3 {
            let plan = world.step(&root);
            assert_eq!((plan.actions.len(), plan.events.len()), (0, told), "{state}: {:?}", plan.why);
            assert!(plan.events.iter().all(|note| note.warning && note.note.contains(state)), "{:?}", plan.events);
        }
    }
}

#[test]
fn a_job_whose_placement_cannot_be_read_is_not_started_nor_told_to_be_applied_anew() {
    for state in ["", "Running", "Initializing"] {
        let mut world = World::new(&[("eu", "8")]);
        world.publish(&["eu"]);
        let root = hub(&mut world, ray_job("train", "ml", "2"));
        for _ in 0..2 {
            world.step(&root);
        }
        let placement = Id::new(Kind::Placement, "default", "rayjob-train");
        world.edit(&Cluster::Hub, &placement, |body| body["spec"] = json!("of another release"));
        world.edit(&Cluster::Hub, &root, |body| body["status"] = json!({"jobDeploymentStatus": state}));
        let plan = world.look("q-00", None, |seen, now| super::plan(seen, &root, now));
        assert_eq!(plan.actions, [], "{state:?}");
        assert!(plan.why.0.starts_with("its Placement cannot be read: "), "{:?}", plan.why);
        let said: Vec<_> = plan.events.iter().map(|note| &*note.reason).collect();
        assert_eq!(said, ["Unreadable"], "{state:?}");
    }
}

#[test]
fn another_managers_job_is_left_alone() {
    let mut world = World::new(&[("eu", "8")]);
    let mut job = ray_job("train", "ml", "1");
    job["spec"]["managedBy"] = "kueue.x-k8s.io/multikueue".into();
    let root = hub(&mut world, job);
    assert_eq!(world.step(&root).actions, []);
}

#[test]
fn a_later_job_waits_for_an_earlier_one_that_fits_and_passes_one_that_does_not() {
    let mut world = World::new(&[("eu", "8")]);
    world.publish(&["eu"]);
    let large = hub(&mut world, ray_job("a-large", "ml", "20"));
    let first = hub(&mut world, ray_job("b-first", "ml", "2"));
    let second = hub(&mut world, ray_job("c-second", "ml", "2"));
    for root in [&large, &first, &second] {
        world.step(root);
        world.step(root);
    }
    world.step(&second);
    assert_eq!(stage(&world, &second), Some(Stage::Waiting), "b-first is older and fits");
    let message = world.placement_of(&second).unwrap().status.message;
    assert!(message.contains("rayjob/b-first comes before it"), "{message}");
    world.step(&first);
    assert_eq!(stage(&world, &first), Some(Stage::Reserving), "a-large does not block it");
    let plan = world.step(&second);
    assert_eq!(stage(&world, &second), Some(Stage::Waiting), "one handshake at a time");
    assert!(plan.next.is_some());
}

#[test]
fn a_job_whose_pods_name_what_is_missing_says_so_and_holds_neither_place_nor_turn() {
    let mut world = World::new(&[("eu", "16")]);
    world.publish(&["eu"]);
    let mut job = ray_job("first", "ml", "2");
    job["spec"]["rayClusterSpec"]["headGroupSpec"]["template"]["spec"]["volumes"] = json!([
        {"name": "code", "configMap": {"name": "script"}},
        {"name": "more", "configMap": {"name": "extras", "optional": true}},
        {"name": "key", "secret": {"secretName": "key"}},
    ]);
    let first = hub(&mut world, job);
    world.now = Time(world.now.0 + 1_000);
    let second = hub(&mut world, ray_job("second", "ml", "2"));
    for _ in 0..8 {
        world.step(&first);
        world.now = Time(world.now.0 + 1_000);
    }
    let placement = world.placement_of(&first).unwrap();
    assert_eq!(placement.spec.stage, Stage::Waiting);
    let lacks = ["Secret default/key is missing on the hub", "ConfigMap default/script is missing on the hub"];
    let mut missing = placement.status.missing.clone();
    missing.sort();
    assert_eq!(missing, [lacks[1], lacks[0]]);
    let status = world.get(&Cluster::Hub, &first).unwrap()["status"].clone();
    assert_eq!(status["reason"], "DependencyMissing");
    let message = status["message"].as_str().unwrap();
    assert!(message.starts_with("waits for what its pods name: ") && message.ends_with("and 1 more"), "{message}");

    world.publish(&["eu"]);
    for _ in 0..4 {
        world.step(&second);
    }
    assert_eq!(stage(&world, &second), Some(Stage::Reserving), "{:?}", world.placement_of(&second));
    let name = Id::new(Kind::Placement, "default", "rayjob-second");
    world.edit(&Cluster::Hub, &name, |body| body["spec"]["stage"] = "Running".into());

    // One of two is not enough; what comes is seen without anybody's help.
    for (kind, name, then) in [("ConfigMap", "script", Stage::Waiting), ("Secret", "key", Stage::Reserving)] {
        hub(&mut world, json!({"apiVersion": "v1", "kind": kind, "metadata": {"name": name, "namespace": "default"}}));
        for _ in 0..8 {
            world.now = Time(world.now.0 + 1_000);
            world.publish(&["eu"]);
            world.step(&first);
            if stage(&world, &first) == Some(Stage::Reserving) {
                break;
            }
        }
        assert_eq!(stage(&world, &first), Some(then), "{:?}", world.placement_of(&first));
    }
    assert_eq!(world.placement_of(&first).unwrap().status.missing, [""; 0]);
}

#[test]
fn what_is_read_of_the_hub_counts_for_a_while_and_one_failed_read_costs_no_turn() {
    let mut world = World::new(&[("eu", "16")]);
    world.publish(&["eu"]);
    let script = hub(
        &mut world,
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "script", "namespace": "default"}}),
    );
    let mut job = ray_job("train", "ml", "2");
    job["spec"]["rayClusterSpec"]["headGroupSpec"]["template"]["spec"]["volumes"] =
        json!([{"name": "code", "configMap": {"name": "script"}}]);
    let root = hub(&mut world, job);
    for _ in 0..2 {
        world.step(&root);
    }
    let key = (Cluster::Hub, script.clone());
    let read = |begun, body: bool, failures| Fetched {
        begun,
        body: body.then(|| std::sync::Arc::new(json!({}))),
        error: (failures > 0).then(|| format!("time-out {failures}")),
        failures,
    };
    let hour_ago = Time(world.now.0 - 3_600_000);
    // What is known, and what comes of a look: reads, and what is said to be missing.
    let cases = [
        (None, 1, 0),
        (Some(read(hour_ago, true, 0)), 1, 0),
        (Some(read(hour_ago, false, 0)), 1, 1),
        (Some(read(world.now, false, 0)), 0, 1),
        (Some(read(world.now, false, 1)), 0, 0),
        (Some(read(hour_ago, false, 2)), 1, 0),
        (Some(read(world.now, false, 3)), 0, 1),
    ];
    for (known, reads, missing) in cases {
        world.fetched.remove(&key);
        world.fetched.extend(known.clone().map(|read| (key.clone(), read)));
        let plan = world.look("q-00", None, |seen, now| super::plan(seen, &root, now));
        assert_eq!(plan.fetch.len(), reads, "{known:?}: {plan:?}");
        assert!(reads > 0 || plan.next.is_some(), "{known:?}: it is looked for again");
        let said = plan.actions.iter().find_map(|action| match action {
            Action::Replace { body, .. } => Some(body["status"]["missing"].as_array().map_or(0, Vec::len)),
            _ => None,
        });
        assert_eq!(said.unwrap_or(0), missing, "{known:?}: {plan:?}");
        let binds = plan
            .actions
            .iter()
            .any(|a| matches!(a, Action::Replace { body, .. } if body["spec"]["stage"] == "Reserving"));
        assert!(!binds, "{known:?}");
    }
    world.fetched.insert(key, read(world.now, true, 0));
    world.step(&root);
    assert_eq!(stage(&world, &root), Some(Stage::Reserving));
}

#[test]
fn gangs_in_flight_are_counted_until_the_picture_counts_them() {
    let mut world = World::new(&[("eu", "8")]);
    let queue = Id::new(Kind::Queue, "", "ml");
    world.put(
        &Cluster::Member("eu".into()),
        json!({
            "apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "Queue", "metadata": {"name": "other"},
            "spec": {"weight": 1}, "status": {"state": "Open"},
        }),
    );
    assert!(world.get(&Cluster::Member("eu".into()), &queue).is_some());
    world.publish(&["eu"]);
    let one = hub(&mut world, ray_job("one", "ml", "3"));
    let two = hub(&mut world, ray_job("two", "other", "3"));
    for _ in 0..3 {
        world.step(&one);
        world.step(&two);
    }
    assert_eq!(stage(&world, &one), Some(Stage::Reserving));
    assert_eq!(stage(&world, &two), Some(Stage::Waiting), "8 cores do not hold 6 + 6");
    world.publish(&["eu"]);
    world.now = Time(world.now.0 + 3000);
    world.step(&two);
    assert_eq!(stage(&world, &two), Some(Stage::Waiting), "counted by the picture now, not twice and not never");
    let verdict = world.placement_of(&two).unwrap().status.verdicts[0].clone();
    assert_eq!((&*verdict.need, &*verdict.have), ("cpu 6", "cpu 3.6"), "{verdict:?}");
}

#[test]
fn an_old_picture_binds_nothing() {
    let mut world = World::new(&[("eu", "8")]);
    world.publish(&["eu"]);
    let root = hub(&mut world, ray_job("train", "ml", "1"));
    world.step(&root);
    world.step(&root);
    world.now = Time(world.now.0 + 91_000);
    world.step(&root);
    assert_eq!(stage(&world, &root), Some(Stage::Waiting));
    assert_eq!(world.placement_of(&root).unwrap().status.verdicts[0].verdict, "StaleView");
}

#[test]
fn a_member_whose_first_unit_nobody_holds_gets_nothing() {
    let mut world = World::new(&[("eu", "8")]);
    world.publish(&["eu"]);
    world.epochs.remove("m-eu-0");
    let root = hub(&mut world, ray_job("train", "ml", "1"));
    for _ in 0..3 {
        world.step(&root);
    }
    assert_eq!(stage(&world, &root), Some(Stage::Waiting));
}

#[test]
fn a_dry_run_answers_without_a_placement() {
    let mut world = World::new(&[("eu", "8"), ("us", "2")]);
    world.publish(&["eu", "us"]);
    let manifest = ray_job("train", "ml", "2");
    let mut answer = None;
    world.look("", None, |seen, now| {
        answer = Some(super::explain(seen.hub, seen.capacity_received, &manifest, seen.flags, now).unwrap());
        crate::plan::Plan::default()
    });
    let answer = answer.unwrap();
    assert_eq!((answer.choice.as_deref(), &*answer.queue, answer.verdicts.len()), (Some("eu"), "ml", 2));
}
