//! Facts about a member whose `MemberCluster` is deleted: held, let go, given up.

use super::*;

/// A person deletes the `MemberCluster`.
fn unregister(world: &mut World) {
    world.edit(&Cluster::Hub, &cluster(), |body| body["metadata"]["deletionTimestamp"] = "2026-11-29T12:00:00Z".into());
}

#[test]
fn nothing_is_placed_on_a_member_whose_end_would_not_be_noticed() {
    let mut world = World::new(&[("eu", "8")]);
    world.publish(&["eu"]);
    world.edit(&Cluster::Hub, &cluster(), |body| body["metadata"]["finalizers"] = json!([]));
    let root = world.put(&Cluster::Hub, ray_job("train", "ml", "2"));
    for _ in 0..4 {
        world.step(&root);
    }
    let placement = world.placement_of(&root).unwrap();
    assert_eq!((placement.spec.stage, &*placement.status.verdicts[0].verdict), (Stage::Waiting, "NotReady"));
    world.tend("eu");
    world.step(&root);
    assert_eq!(stage(&world, &root), Stage::Reserving);
}

#[test]
fn a_member_that_is_removed_is_held_until_nothing_stands_on_it_and_says_what_does() {
    let (mut world, root) = admitted();
    unregister(&mut world);
    world.publish(&["eu"]);
    let blocked = condition(&world, "RemovalBlocked").expect("it says why");
    let message = blocked["message"].as_str().unwrap();
    assert!(message.contains("rayjob default/train (Admitted)"), "{message}");
    assert!(message.contains("rayfleet.io/gone-for-good=eu"), "{message}");
    assert_eq!(stage(&world, &root), Stage::Admitted, "what runs goes on");
    // A withdrawn copy that still holds its name is somebody's, too.
    world.edit(&Cluster::Hub, &root, |body| body["spec"]["suspend"] = true.into());
    until(&mut world, &root, Stage::Withdrawing);
    until(&mut world, &root, Stage::Waiting);
    while world.get(&eu(), &root).is_some() {
        assert!(world.get(&Cluster::Hub, &cluster()).is_some(), "its copy is there yet");
        world.publish(&["eu"]);
    }
    world.publish(&["eu"]);
    assert!(world.get(&Cluster::Hub, &cluster()).is_none());
}

#[test]
fn a_silent_member_that_is_removed_is_held_unless_it_is_gone_for_good() {
    let mut world = World::new(&[("eu", "8")]);
    world.publish(&["eu"]);
    unregister(&mut world);
    let unit = crate::api::member_unit("eu", 0);
    let tend = |world: &mut World| {
        let plan = world.look(&unit, None, |seen, now| crate::plan::member::plan(seen, &"eu".into(), now));
        world.carry_out(&plan);
    };
    tend(&mut world);
    assert_eq!(condition(&world, "RemovalBlocked").expect("held")["reason"], "NotSeen");
    for (value, there) in [("true", true), ("us", true), ("eu", false)] {
        world.edit(&Cluster::Hub, &cluster(), |body| {
            body["metadata"]["annotations"] = json!({"rayfleet.io/gone-for-good": value});
        });
        tend(&mut world);
        assert_eq!(world.get(&Cluster::Hub, &cluster()).is_some(), there, "{value}");
    }
}

/// The member `eu` is being removed and a person says that it is gone for good.
fn gone_for_good(world: &mut World) {
    unregister(world);
    world.edit(&Cluster::Hub, &cluster(), |body| {
        body["metadata"]["annotations"] = json!({"rayfleet.io/gone-for-good": "eu"});
    });
}

#[test]
fn what_stood_on_a_member_that_is_gone_for_good_is_placed_elsewhere_whatever_its_stage() {
    for from in [Stage::Reserving, Stage::Admitted, Stage::Withdrawing] {
        let (mut world, root) = if from == Stage::Reserving { reserved() } else { admitted() };
        if from == Stage::Withdrawing {
            world.edit(&Cluster::Hub, &root, |body| body["spec"]["suspend"] = true.into());
            until(&mut world, &root, Stage::Withdrawing);
            world.edit(&Cluster::Hub, &root, |body| body["spec"]["suspend"] = false.into());
        }
        world.me.unknown = true;
        gone_for_good(&mut world);
        let plan = world.step(&root);
        assert_eq!((stage(&world, &root), plan.actions.len()), (Stage::Waiting, 1), "{from:?}: {plan:?}");
        world.publish(&["us"]);
        world.step(&root);
        let placement = world.placement_of(&root).unwrap();
        assert_eq!((placement.spec.member.as_deref(), placement.spec.generation), (Some("us"), 2), "{from:?}");
    }
}

#[test]
fn a_root_that_is_deleted_ends_though_its_member_is_gone_for_good() {
    let (mut world, root) = admitted();
    world.edit(&Cluster::Hub, &root, |body| body["metadata"]["deletionTimestamp"] = "2026-11-29T12:00:00Z".into());
    gone_for_good(&mut world);
    for _ in 0..6 {
        if world.get(&Cluster::Hub, &root).is_some() {
            world.step(&root);
        }
    }
    assert!(world.get(&Cluster::Hub, &root).is_none() && world.placement_of(&root).is_none());
}

#[test]
fn what_ended_on_a_member_that_is_gone_for_good_is_not_run_again() {
    let (mut world, root) = admitted();
    world.edit(&eu(), &root, |body| {
        body["status"] = json!({"jobStatus": "SUCCEEDED", "jobDeploymentStatus": "Complete"});
    });
    until(&mut world, &root, Stage::Finished);
    world.step(&root);
    gone_for_good(&mut world);
    world.step(&root);
    assert_eq!(stage(&world, &root), Stage::Waiting, "it holds the member no more");
    world.publish(&["us"]);
    for _ in 0..4 {
        world.step(&root);
    }
    assert_eq!(stage(&world, &root), Stage::Waiting);
    assert_eq!(world.get(&Cluster::Hub, &root).unwrap()["status"]["jobDeploymentStatus"], "Complete");
}

#[test]
fn a_binding_to_a_member_that_was_let_go_meanwhile_is_undone_and_nothing_else_is() {
    let (mut world, root) = admitted();
    world.remove(&Cluster::Hub, &cluster());
    let plan = world.step(&root);
    assert!(plan.actions.is_empty() && plan.why.0.contains("register it again"), "{plan:?}");
    let (mut world, root) = bound();
    world.remove(&Cluster::Hub, &cluster());
    world.step(&root);
    assert_eq!(stage(&world, &root), Stage::Waiting);
}
