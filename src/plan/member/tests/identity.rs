//! Facts about which cluster a member is.

use super::*;
use crate::api::names::REGISTERED_BY;
use crate::plan::Fetched;

fn home() -> Id {
    crate::plan::identity::home()
}

/// Nobody has registered the member yet.
fn unregistered() -> World {
    let mut world = World::new(&[("eu", "8")]);
    world.edit(&eu(), &home(), |body| body["metadata"]["annotations"] = json!({}));
    world.edit(&Cluster::Hub, &cluster(), |body| body["status"] = json!({}));
    let hub = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "kube-system"}});
    world.put(&Cluster::Hub, hub);
    world
}

fn marked(world: &World) -> String {
    let home = world.get(&eu(), &home()).expect("kube-system");
    home["metadata"]["annotations"][REGISTERED_BY].as_str().unwrap_or_default().to_owned()
}

fn recorded(world: &World) -> Value {
    world.get(&Cluster::Hub, &cluster()).expect("a MemberCluster")["status"]["clusterId"].clone()
}

fn ready(world: &World) -> (String, String, String) {
    let condition = condition(world, "Ready").expect("it says whether it is ready");
    let text = |key: &str| condition[key].as_str().unwrap_or_default().to_owned();
    (text("status"), text("reason"), text("message"))
}

/// What a waiting object is told of `eu`.
fn verdict(world: &mut World) -> (String, String) {
    let root = world.put(&Cluster::Hub, ray_job("asks", "ml", "2"));
    for _ in 0..3 {
        world.step(&root);
    }
    let verdict = world.placement_of(&root).expect("a Placement").status.verdicts.remove(0);
    (verdict.verdict, verdict.bound)
}

#[test]
fn a_new_member_is_marked_recorded_and_only_then_placed_on() {
    let mut world = unregistered();
    world.publish(&["eu"]);
    world.publish(&["eu"]);
    let uid = world.get(&Cluster::Hub, &cluster()).unwrap()["metadata"]["uid"].as_str().unwrap().to_owned();
    assert_eq!(marked(&world), format!("fleet/eu/{uid}"));
    assert_eq!(recorded(&world), world.get(&eu(), &home()).unwrap()["metadata"]["uid"]);
    assert_eq!(ready(&world).0, "True");
    assert_eq!(verdict(&mut world).0, "Fits");
}

#[test]
fn the_hub_itself_is_no_member() {
    let mut world = unregistered();
    let uid = world.get(&eu(), &home()).unwrap()["metadata"]["uid"].clone();
    world.edit(&Cluster::Hub, &home(), |body| body["metadata"]["uid"] = uid);
    for _ in 0..3 {
        world.publish(&["eu"]);
        world.now = Time(world.now.0 + 30_000);
    }
    assert_eq!((marked(&world), recorded(&world)), (String::new(), Value::Null));
    let (status, reason, message) = ready(&world);
    assert_eq!((&*status, &*reason), ("False", "WrongCluster"));
    assert!(message.contains("the hub itself"), "{message}");
    assert_ne!(verdict(&mut world).0, "Fits");
}

#[test]
fn a_hub_that_keeps_its_namespaces_to_itself_keeps_no_member_away() {
    let mut world = unregistered();
    let error = Some("403 Forbidden".to_owned());
    let denied = Fetched { begun: world.now, body: None, error, failures: 2 };
    for (failures, is_marked) in [(2, false), (3, true)] {
        world.fetched.insert((Cluster::Hub, home()), Fetched { failures, ..denied.clone() });
        world.tend("eu");
        assert_eq!(!marked(&world).is_empty(), is_marked, "{failures}");
    }
}

#[test]
fn a_cluster_that_is_another_registrations_is_not_touched_and_says_whose_it_is() {
    for other in ["fleet/us/u-other", "other/eu/u-other"] {
        let mut world = unregistered();
        world.edit(&eu(), &home(), |body| body["metadata"]["annotations"] = json!({ REGISTERED_BY: other }));
        // A mirror of that one's, which no Placement here names.
        let mut mirror = ray_job("theirs", "ml", "2");
        mirror["metadata"]["labels"]["rayfleet.io/root-id"] = "r".into();
        mirror["metadata"]["annotations"] = json!({"rayfleet.io/root": "RayJob/default/theirs"});
        let mirror = world.put(&eu(), mirror);
        for _ in 0..4 {
            world.publish(&["eu"]);
        }
        assert_eq!(marked(&world), other);
        assert!(world.get(&eu(), &mirror).unwrap()["metadata"]["deletionTimestamp"].is_null());
        let (status, reason, message) = ready(&world);
        assert_eq!((&*status, &*reason), ("False", "WrongCluster"), "{message}");
        assert!(message.contains(other) && message.contains("kubectl annotate"), "{message}");
        let (verdict, bound) = verdict(&mut world);
        assert_eq!(verdict, "Unreachable");
        assert!(bound.contains("registered already"), "{bound}");
        // It can be unregistered: what stands there is not ours.
        world.edit(&Cluster::Hub, &cluster(), |body| {
            body["metadata"]["deletionTimestamp"] = "2026-11-29T12:00:00Z".into();
        });
        world.publish(&["eu"]);
        assert!(world.get(&Cluster::Hub, &cluster()).is_none());
        assert_eq!(marked(&world), other);
    }
}

#[test]
fn a_kubeconfig_that_leads_to_another_cluster_stops_all_and_loses_nothing() {
    let (mut world, root) = admitted();
    world.edit(&Cluster::Hub, &cluster(), |body| body["status"]["clusterId"] = "another".into());
    // The other cluster has a copy of ours that is none.
    let mut stray = ray_job("stray", "ml", "2");
    stray["metadata"]["labels"]["rayfleet.io/root-id"] = "r".into();
    stray["metadata"]["annotations"] = json!({"rayfleet.io/root": "RayJob/default/stray"});
    let stray = world.put(&eu(), stray);
    for _ in 0..4 {
        world.publish(&["eu"]);
    }
    let (status, reason, message) = ready(&world);
    assert_eq!((&*status, &*reason), ("False", "WrongCluster"));
    assert!(message.contains("put the former kubeconfig back"), "{message}");
    assert!(world.get(&eu(), &stray).unwrap()["metadata"]["deletionTimestamp"].is_null());
    assert_eq!(recorded(&world), "another");
    assert_eq!(capacity(&world)["reachable"], false);
    world.edit(&Cluster::Hub, &cluster(), |body| {
        body["metadata"]["deletionTimestamp"] = "2026-11-29T12:00:00Z".into();
    });
    world.edit(&Cluster::Hub, &Id::new(Kind::Placement, "default", "rayjob-train"), |body| {
        body["spec"]["stage"] = "Waiting".into();
    });
    world.publish(&["eu"]);
    let blocked = condition(&world, "RemovalBlocked").expect("copies may stand where nobody can look");
    assert_eq!(blocked["reason"], "NotSeen", "{blocked}");
    assert_eq!(stage(&world, &root), Stage::Waiting);
}

#[test]
fn a_member_that_is_let_go_bears_no_mark() {
    let mut world = World::new(&[("eu", "8")]);
    world.publish(&["eu"]);
    assert!(!marked(&world).is_empty());
    world.edit(&Cluster::Hub, &cluster(), |body| {
        body["metadata"]["deletionTimestamp"] = "2026-11-29T12:00:00Z".into();
    });
    world.publish(&["eu"]);
    assert!(world.get(&Cluster::Hub, &cluster()).is_none());
    assert_eq!(marked(&world), "");
}

#[test]
fn another_fleets_mirrors_are_its_own_business() {
    let mut world = World::new(&[("eu", "8")]);
    world.publish(&["eu"]);
    let mut mirror = ray_job("theirs", "ml", "2");
    mirror["metadata"]["labels"]["rayfleet.io/root-id"] = "r".into();
    mirror["metadata"]["annotations"] =
        json!({"rayfleet.io/root": "RayJob/default/theirs", "rayfleet.io/fleet-id": "another"});
    let mirror = world.put(&eu(), mirror);
    for _ in 0..6 {
        world.publish(&["eu"]);
    }
    assert!(world.get(&eu(), &mirror).unwrap()["metadata"]["deletionTimestamp"].is_null());
    assert!(capacity(&world)["tombstones"].as_array().is_none_or(Vec::is_empty));
}
