//! Facts about what follows a bound root object to its member.

use std::time::Duration;

use serde_json::{Value, json};

use crate::api::fleet::Stage;
use crate::api::{Cluster, Id, Kind, Time};
use crate::plan::testing::{World, ray_job};
use crate::plan::{Action, Fetched, Plan};

fn eu() -> Cluster {
    Cluster::Member("eu".into())
}

fn config_map(name: &str, text: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": "default"},
        "data": {"main.py": text},
    })
}

fn id_of(name: &str) -> Id {
    Id::new(Kind::ConfigMap, "default", name)
}

fn mounts(names: &[&str]) -> Value {
    names.iter().map(|name| json!({"name": name, "configMap": {"name": name}})).collect()
}

/// A job on `eu` whose pods mount ConfigMap `script`, all of it read and copied just now.
fn placed() -> (World, Id) {
    let mut world = World::new(&[("eu", "8")]);
    world.publish(&["eu"]);
    world.put(&Cluster::Hub, config_map("script", "print(1)"));
    let mut job = ray_job("train", "ml", "2");
    job["spec"]["rayClusterSpec"]["headGroupSpec"]["template"]["spec"]["volumes"] = mounts(&["script"]);
    let root = world.put(&Cluster::Hub, job);
    for _ in 0..12 {
        world.step(&root);
    }
    world.edit(&eu(), &Id::new(Kind::PodGroup, "default", "ray-train-pg"), |g| g["status"]["phase"] = "Inqueue".into());
    for _ in 0..12 {
        world.step(&root);
    }
    assert_eq!(world.placement_of(&root).map(|p| p.spec.stage), Some(Stage::Admitted));
    assert_eq!(text(&world), "print(1)");
    (world, root)
}

/// What the copy on the member says.
fn text(world: &World) -> &str {
    world.get(&eu(), &id_of("script")).and_then(|copy| copy["data"]["main.py"].as_str()).unwrap_or_default()
}

/// Something is changed on the hub, and what was read before is all that is known.
fn unseen(world: &mut World, change: impl FnOnce(&mut World)) {
    let known = world.fetched.clone();
    change(world);
    world.fetched = known;
}

fn later(world: &mut World, seconds: u64) {
    world.now = world.now + Duration::from_secs(seconds);
    world.publish(&["eu"]);
}

fn look(world: &mut World, root: &Id) -> Plan {
    (0..6).map(|_| world.step(root)).last().expect("a plan")
}

#[test]
fn what_changes_on_the_hub_reaches_the_copy_within_a_minute_and_is_read_no_more_often() {
    let (mut world, root) = placed();
    unseen(&mut world, |w| w.edit(&Cluster::Hub, &id_of("script"), |c| c["data"]["main.py"] = "print(2)".into()));
    let plan = look(&mut world, &root);
    assert_eq!(plan.fetch, []);
    assert!(plan.next.is_some_and(|at| at <= world.now + Duration::from_secs(60)), "{plan:?}");
    later(&mut world, 20);
    assert_eq!(look(&mut world, &root).fetch, []);
    assert_eq!(text(&world), "print(1)");
    later(&mut world, 41);
    look(&mut world, &root);
    assert_eq!(text(&world), "print(2)");
}

#[test]
fn a_copy_that_was_deleted_on_its_member_comes_back() {
    let (mut world, root) = placed();
    unseen(&mut world, |w| w.remove(&eu(), &id_of("script")));
    later(&mut world, 61);
    look(&mut world, &root);
    assert_eq!(text(&world), "print(1)");
}

#[test]
fn what_the_hub_lost_or_cannot_tell_leaves_the_copy_and_the_job_alone() {
    let error = |begun: Time| Fetched { begun, body: None, error: Some("time-out".to_owned()), failures: 9 };
    for lost in [true, false] {
        let (mut world, root) = placed();
        later(&mut world, 61);
        if lost {
            unseen(&mut world, |w| w.remove(&Cluster::Hub, &id_of("script")));
        } else {
            world.fetched.insert((Cluster::Hub, id_of("script")), error(world.now));
        }
        for _ in 0..6 {
            let plan = world.step(&root);
            assert!(plan.actions.iter().all(|a| !matches!(a, Action::Delete { .. })), "{plan:?}");
        }
        assert_eq!(text(&world), "print(1)");
        assert_eq!(world.placement_of(&root).map(|p| p.spec.stage), Some(Stage::Admitted));
    }
}

#[test]
fn what_a_new_spec_names_is_there_before_the_spec() {
    let (mut world, root) = placed();
    world.put(&Cluster::Hub, config_map("more", "print(3)"));
    world.edit(&Cluster::Hub, &root, |body| {
        body["spec"]["rayClusterSpec"]["headGroupSpec"]["template"]["spec"]["volumes"] = mounts(&["script", "more"]);
    });
    let named = |world: &World| {
        let mirror = world.get(&eu(), &Id::new(Kind::RayJob, "default", "train")).expect("a mirror");
        mirror["spec"].to_string().contains("\"more\"")
    };
    for _ in 0..8 {
        world.step(&root);
        assert!(!named(&world) || world.get(&eu(), &id_of("more")).is_some());
    }
    assert!(named(&world));

    // One that cannot be read holds nothing up for ever.
    world.edit(&Cluster::Hub, &root, |body| {
        body["spec"]["rayClusterSpec"]["headGroupSpec"]["template"]["spec"]["volumes"] = mounts(&["more", "third"]);
    });
    let failed = Fetched { begun: world.now, body: None, error: Some("time-out".to_owned()), failures: 1 };
    for cluster in [Cluster::Hub, eu()] {
        world.fetched.insert((cluster, id_of("third")), failed.clone());
    }
    look(&mut world, &root);
    let mirror = world.get(&eu(), &Id::new(Kind::RayJob, "default", "train")).expect("a mirror");
    assert!(mirror["spec"].to_string().contains("\"third\""), "{mirror}");
}

#[test]
fn a_stranger_in_a_copys_place_is_not_touched() {
    let (mut world, root) = placed();
    unseen(&mut world, |w| {
        w.remove(&eu(), &id_of("script"));
        w.put(&eu(), config_map("script", "mine"));
    });
    later(&mut world, 61);
    let plan = look(&mut world, &root);
    assert_eq!(text(&world), "mine");
    assert!(plan.why.0.contains("is not ours and is not overwritten"), "{plan:?}");
}

/// A RayCluster with Ray's autoscaler on `eu`, admitted.
fn scaled() -> (World, Id) {
    let mut world = World::new(&[("eu", "16")]);
    world.publish(&["eu"]);
    let mut cluster = ray_job("scaled", "ml", "1");
    cluster["kind"] = "RayCluster".into();
    cluster["spec"] = cluster["spec"]["rayClusterSpec"].take();
    cluster["spec"]["enableInTreeAutoscaling"] = true.into();
    cluster["spec"]["workerGroupSpecs"][0]["maxReplicas"] = 9.into();
    let root = world.put(&Cluster::Hub, cluster);
    for _ in 0..12 {
        world.step(&root);
    }
    world
        .edit(&eu(), &Id::new(Kind::PodGroup, "default", "ray-scaled-pg"), |g| g["status"]["phase"] = "Inqueue".into());
    for _ in 0..12 {
        world.step(&root);
    }
    world
        .edit(&eu(), &Id::new(Kind::PodGroup, "default", "ray-scaled-pg"), |g| g["status"]["phase"] = "Running".into());
    world.step(&root);
    assert_eq!(world.placement_of(&root).map(|p| p.spec.stage), Some(Stage::Running));
    (world, root)
}

#[test]
fn what_the_autoscaler_wrote_on_the_member_stays_and_every_other_change_goes_through() {
    let (mut world, root) = scaled();
    let groups = |world: &World| world.get(&eu(), &root).expect("a mirror")["spec"]["workerGroupSpecs"].clone();
    world.edit(&eu(), &root, |mirror| {
        mirror["spec"]["workerGroupSpecs"][0]["replicas"] = 5.into();
        mirror["spec"]["workerGroupSpecs"][0]["scaleStrategy"] = json!({"workersToDelete": ["p"]});
    });
    look(&mut world, &root);
    assert_eq!(groups(&world)[0]["replicas"], 5, "it is not taken back");
    // The hub changes sizes, order and limits, and brings a group.
    world.edit(&Cluster::Hub, &root, |object| {
        let generation = object["metadata"]["generation"].as_i64().unwrap_or(1);
        object["metadata"]["generation"] = (generation + 1).into();
        let groups = object["spec"]["workerGroupSpecs"].as_array_mut().expect("groups");
        let mut new = groups[0].clone();
        new["groupName"] = "new".into();
        new["replicas"] = 2.into();
        groups[0]["replicas"] = 1.into();
        groups[0]["maxReplicas"] = 7.into();
        groups.insert(0, new);
    });
    look(&mut world, &root);
    let now = groups(&world);
    assert_eq!((&now[0]["groupName"], &now[0]["replicas"]), (&json!("new"), &json!(2)));
    let kept = (&now[1]["replicas"], &now[1]["maxReplicas"], &now[1]["scaleStrategy"]["workersToDelete"]);
    assert_eq!(kept, (&json!(5), &json!(7), &json!(["p"])));
    // With the autoscaler off the hub's word counts again.
    world.edit(&Cluster::Hub, &root, |object| {
        object["metadata"]["generation"] = 9.into();
        object["spec"]["enableInTreeAutoscaling"] = false.into();
    });
    look(&mut world, &root);
    assert_eq!(groups(&world)[1]["replicas"], 1);
}
