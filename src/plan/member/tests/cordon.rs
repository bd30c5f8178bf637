//! Facts about a cordoned member.

use super::*;

fn cordon(world: &mut World, member: &str, yes: bool) {
    let id = Id::new(Kind::MemberCluster, "", member);
    world.edit(&Cluster::Hub, &id, |body| body["spec"]["unschedulable"] = yes.into());
}

#[test]
fn what_is_not_admitted_on_a_cordoned_member_goes_where_it_fits_and_comes_back_without_a_back_off() {
    let (mut world, root) = reserved();
    is(&mut world, &group(), "Inqueue");
    cordon(&mut world, "eu", true);
    world.step(&root);
    let spec = world.placement_of(&root).unwrap().spec;
    assert_eq!((spec.stage, &*spec.withdrawal.unwrap().reason), (Stage::Withdrawing, "Cordoned"));
    until(&mut world, &root, Stage::Waiting);
    assert_eq!(world.placement_of(&root).unwrap().spec.back_offs.get("eu"), None);
    cordon(&mut world, "us", true);
    world.publish(&["eu", "us"]);
    world.step(&root);
    let status = world.placement_of(&root).unwrap().status;
    assert!(status.verdicts.iter().all(|v| v.verdict == "Cordoned"), "{:?}", status.verdicts);
    assert!(status.message.contains("rayfleet member uncordon us"), "{}", status.message);
    cordon(&mut world, "us", false);
    world.step(&root);
    let spec = world.placement_of(&root).unwrap().spec;
    assert_eq!((spec.stage, spec.member.as_deref(), spec.generation), (Stage::Reserving, Some("us"), 2));
}

#[test]
fn a_binding_to_a_member_that_was_cordoned_meanwhile_is_taken_back_by_one_write() {
    let (mut world, root) = bound();
    cordon(&mut world, "eu", true);
    world.step(&root);
    let spec = world.placement_of(&root).unwrap().spec;
    assert!(spec.stage == Stage::Waiting && !spec.unclean && spec.back_offs.is_empty(), "{spec:?}");
    assert_eq!(world.get(&eu(), &root), None, "nothing was sent");
}

#[test]
fn what_is_admitted_on_a_member_goes_on_when_it_is_cordoned() {
    let (mut world, root) = admitted();
    cordon(&mut world, "eu", true);
    world.step(&root);
    is(&mut world, &group(), "Running");
    world.step(&root);
    assert_eq!(stage(&world, &root), Stage::Running);
    world.edit(&eu(), &root, |body| {
        body["status"] = json!({"jobDeploymentStatus": "Complete", "jobStatus": "SUCCEEDED"});
    });
    until(&mut world, &root, Stage::Finished);
}
