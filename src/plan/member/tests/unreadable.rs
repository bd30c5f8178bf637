//! Facts about what a member's picture makes of objects that cannot be read, or share a name.

use super::*;

/// What `eu` says of the queue.
fn queue(world: &World, name: &str) -> Value {
    capacity(world)["queues"][name].clone()
}

#[test]
fn an_unreadable_queue_or_pod_group_stops_its_own_queue_and_no_other() {
    let other = json!({
        "apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "Queue", "metadata": {"name": "research"},
        "spec": {"weight": 1}, "status": {"state": "Open"},
    });
    let bad_queue = |world: &mut World| {
        let id = Id::new(Kind::Queue, "", "research");
        world.edit(&eu(), &id, |body| body["spec"]["capability"] = json!({"cpu": "abc"}));
    };
    let bad_group = |world: &mut World| {
        world.put(
            &eu(),
            json!({
                "apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "PodGroup",
                "metadata": {"name": "odd", "namespace": "default"},
                "spec": {"queue": "research", "minResources": {"cpu": "abc"}}, "status": {"phase": "Inqueue"},
            }),
        );
    };
    for spoil in [&bad_queue as &dyn Fn(&mut World), &bad_group] {
        let mut world = World::new(&[("eu", "8")]);
        world.put(&eu(), other.clone());
        spoil(&mut world);
        world.publish(&["eu"]);
        let state = queue(&world, "research")["state"].as_str().unwrap_or_default().to_owned();
        assert!(state.starts_with("unreadable: ") && state.contains("abc"), "{state}");
        assert_eq!(queue(&world, "ml")["state"], "Open");
        for (name, fits) in [("ml", true), ("research", false)] {
            let root = world.put(&Cluster::Hub, ray_job(name, name, "2"));
            for _ in 0..3 {
                world.step(&root);
            }
            let placement = world.placement_of(&root).unwrap();
            assert_eq!(placement.spec.stage == Stage::Reserving, fits, "{:?}", placement.status);
        }
    }
}

#[test]
fn a_node_that_cannot_be_read_takes_nothing_and_the_others_do() {
    let mut world = World::new(&[("eu", "8")]);
    let node = |name: &str, cpu: &str| {
        json!({
            "apiVersion": "v1", "kind": "Node", "metadata": {"name": name},
            "status": {"allocatable": {"cpu": cpu, "memory": "100Gi", "pods": "110"}, "conditions": [{"type": "Ready", "status": "True"}]},
        })
    };
    world.put(&eu(), node("n2", "abc"));
    world.put(&eu(), node("n3", "4"));
    world.publish(&["eu"]);
    let classes = capacity(&world)["nodeClasses"].clone();
    let free: Vec<_> = classes.as_array().unwrap().iter().map(|c| c["free"]["cpu"].clone()).collect();
    assert_eq!(free, [json!("8"), json!("4")], "{classes}");
}

#[test]
fn a_ray_job_and_a_ray_cluster_of_one_name_are_counted_both() {
    let (mut world, _) = reserved();
    let before = held(&mut world);
    let placement = Id::new(Kind::Placement, "default", "rayjob-train");
    let mut twin = world.get(&Cluster::Hub, &placement).unwrap().clone();
    twin["metadata"] = json!({"name": "raycluster-train", "namespace": "default"});
    for key in ["uid", "rootId"] {
        twin["spec"]["root"][key] = "twin".into();
    }
    twin["spec"]["root"]["kind"] = "RayCluster".into();
    world.put(&Cluster::Hub, twin);
    assert_eq!(held(&mut world), 2 * before);
}
