//! Facts about reservations that do not come to their end: nobody waits behind them for ever.

use super::*;

fn past_its_deadline(world: &mut World) {
    world.now = Time(world.now.0 + 31_000);
    world.publish(&["eu"]);
}

/// It waits again, stays away from the member for a while, and says why.
fn went_back(world: &mut World, root: &Id, words: &str) {
    until(world, root, Stage::Waiting);
    let placement = world.placement_of(root).unwrap();
    assert_eq!(placement.spec.back_offs["eu"].count, 1);
    let last = &placement.status.history.last().unwrap().message;
    assert!(last.contains(words), "{last}");
}

#[test]
fn what_its_member_refuses_goes_back_at_the_deadline_with_the_reason() {
    // At each of the writes: the mirror, what its pods name, its PodGroup.
    for steps in 1..=12 {
        let mut world = World::new(&[("eu", "8")]);
        world.publish(&["eu"]);
        world.put(
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
        for _ in 1..steps {
            world.step(&root);
        }
        if world.get(&eu(), &group()).is_some() {
            return;
        }
        world.trouble = Some("refused with 403: exceeded quota".into());
        let plan = world.look("m-eu-0", Some("eu"), |seen, now| crate::plan::reserve::plan(seen, &root, now));
        assert!(!plan.actions.is_empty() || !plan.fetch.is_empty(), "before its deadline it is tried again: {plan:?}");
        past_its_deadline(&mut world);
        went_back(&mut world, &root, "exceeded quota");
    }
    panic!("its PodGroup never came");
}

#[test]
fn a_slow_start_without_trouble_goes_on_after_the_deadline() {
    let (mut world, root) = bound();
    past_its_deadline(&mut world);
    for _ in 0..4 {
        world.step(&root);
    }
    assert_eq!(stage(&world, &root), Stage::Reserving);
    assert!(world.get(&eu(), &root).is_some());
}

#[test]
fn a_namespace_that_does_not_end_keeps_nobody_waiting() {
    let (mut world, root) = bound();
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {
        "name": "default", "deletionTimestamp": "2026-11-29T12:00:00Z", "finalizers": ["example.com/stuck"],
    }});
    world.put(&eu(), namespace);
    let plan = world.step(&root);
    assert!(plan.next.is_some(), "it is looked at again: {plan:?}");
    past_its_deadline(&mut world);
    went_back(&mut world, &root, "Namespace default is being deleted");
}

#[test]
fn a_pod_group_that_is_somebody_elses_keeps_nobody_waiting() {
    let (mut world, root) = bound();
    let stranger = json!({
        "apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "PodGroup",
        "metadata": {"name": group().name, "namespace": "default"}, "spec": {"queue": "ml"},
    });
    world.put(&eu(), stranger);
    for _ in 0..4 {
        world.step(&root);
    }
    assert_eq!(stage(&world, &root), Stage::Reserving);
    past_its_deadline(&mut world);
    went_back(&mut world, &root, "somebody else's");
}

#[test]
fn a_mirror_that_somebody_deletes_again_and_again_is_not_made_again_at_once() {
    let (mut world, root) = reserved();
    world.edit(&eu(), &root, |body| body["metadata"]["deletionTimestamp"] = "2026-11-29T12:00:00Z".into());
    went_back(&mut world, &root, "deleted on the member");
}
