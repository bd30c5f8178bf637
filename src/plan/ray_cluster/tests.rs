//! Stories of RayClusters.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Value, json};

use crate::api::{Cluster, Id, Kind, MemberName, Time, Version};
use crate::plan::tiny_world::{World, ray_job};
use crate::plan::{Action, Fetched};
use crate::row::TableChange;

mod beside;
mod redis;
mod replicas;

fn ray_cluster() -> Value {
    json!({
        "apiVersion": "ray.io/v1", "kind": "RayCluster", "metadata": { "name": "c" },
        "spec": ray_job("HTTPMode")["spec"]["rayClusterSpec"],
    })
}

fn running() -> (World, Id) {
    let mut world = World::new();
    let id = world.apply(ray_cluster());
    world.settle();
    world.run_pods();
    assert_eq!(world.status(&id)["state"], "ready", "{:?} {}", world.log, world.why(&id));
    (world, id)
}

fn workers(world: &World) -> Vec<(Id, Value)> {
    let pods = world.of(Kind::Pod).into_iter();
    pods.filter(|(_, p)| p["metadata"]["labels"]["ray.io/node-type"] == "worker").collect()
}

fn replicas(world: &mut World, id: &Id, n: i32) {
    world.edit(id, |c| c["spec"]["workerGroupSpecs"][0]["replicas"] = json!(n));
    world.settle();
    world.bury();
    world.settle();
}

#[test]
fn a_cluster_becomes_ready() {
    let (world, id) = running();
    let status = world.status(&id);
    assert_eq!(status["readyWorkerReplicas"], 2);
    assert_eq!(status["desiredCPU"], "3");
    assert_eq!(status["desiredMemory"], "3Gi");
    assert_eq!(status["head"]["serviceName"], "c-head-svc");
    assert_eq!(status["head"]["serviceIP"], status["head"]["podIP"]);
    assert_eq!(status["endpoints"]["dashboard"], "8265");
    assert!(status["stateTransitionTimes"]["ready"].is_string());
    let kinds: Vec<&str> =
        status["conditions"].as_array().unwrap().iter().map(|c| c["type"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["HeadPodReady", "RayClusterProvisioned", "RayClusterSuspended", "RayClusterSuspending"]);
}

#[test]
fn groups_grow_and_shrink() {
    let (mut world, id) = running();
    replicas(&mut world, &id, 4);
    let mut indices: Vec<String> = workers(&world)
        .iter()
        .map(|(_, p)| p["metadata"]["labels"]["ray.io/worker-group-replica-index"].as_str().unwrap().to_owned())
        .collect();
    indices.sort();
    assert_eq!(indices, ["0", "1", "2", "3"]);
    replicas(&mut world, &id, 9);
    assert_eq!(workers(&world).len(), 4, "not more than maxReplicas");
    replicas(&mut world, &id, 1);
    assert_eq!(workers(&world).len(), 1);
}

#[test]
fn what_is_going_already_is_not_made_up_for_nor_deleted_twice() {
    let (mut world, id) = running();
    world.edit(&id, |c| c["spec"]["workerGroupSpecs"][0]["replicas"] = json!(1));
    world.settle();
    world.settle();
    let going = workers(&world).iter().filter(|(_, p)| p["metadata"]["deletionTimestamp"].is_string()).count();
    assert_eq!((workers(&world).len(), going), (2, 1));
}

#[test]
fn named_workers_go_and_their_names_are_not_given_again() {
    let (mut world, id) = running();
    let victim = workers(&world)[0].0.name.to_string();
    world.edit(&id, |c| {
        c["spec"]["workerGroupSpecs"][0]["scaleStrategy"] = json!({ "workersToDelete": [victim.clone(), "unknown"] });
    });
    world.settle();
    world.bury();
    world.settle();
    assert_eq!(workers(&world).len(), 2);
    assert!(workers(&world).iter().all(|(id, _)| *id.name != *victim));
}

#[test]
fn a_failed_pod_is_replaced_when_it_is_gone() {
    let (mut world, id) = running();
    let failed = workers(&world)[0].0.clone();
    world.edit(&failed, |p| p["status"] = json!({ "phase": "Failed", "reason": "Evicted" }));
    world.settle();
    assert_eq!(workers(&world).len(), 2, "{:?}", world.log);
    world.bury();
    assert_eq!(workers(&world).len(), 1);
    world.settle();
    assert_eq!(workers(&world).len(), 2);
    assert_eq!(world.status(&id)["state"], "ready", "ready is sticky");
}

#[test]
fn a_failed_head_is_replaced_when_it_is_gone() {
    let (mut world, _) = running();
    let head =
        world.of(Kind::Pod).into_iter().find(|(_, p)| p["metadata"]["labels"]["ray.io/node-type"] == "head").unwrap().0;
    world.edit(&head, |p| p["status"] = json!({ "phase": "Failed" }));
    world.settle();
    assert_eq!(world.of(Kind::Pod).len(), 3);
    world.bury();
    world.settle();
    assert_eq!(world.of(Kind::Pod).len(), 3);
    assert!(world.events.iter().any(|e| e.starts_with("DeletedHeadPod")));
}

#[test]
fn suspension_deletes_all_pods_and_resuming_makes_them_again() {
    let (mut world, id) = running();
    world.edit(&id, |c| c["spec"]["suspend"] = json!(true));
    world.settle();
    world.bury();
    world.settle();
    assert_eq!(world.of(Kind::Pod).len(), 0);
    assert_eq!(world.status(&id)["state"], "suspended");
    world.edit(&id, |c| c["spec"]["suspend"] = json!(false));
    world.settle();
    world.run_pods();
    assert_eq!((world.of(Kind::Pod).len(), &world.status(&id)["state"]), (3, &json!("ready")));
}

#[test]
fn what_is_told_once_per_specification_is_told_again_with_the_next_one_only() {
    type Change = fn(&mut Value);
    let suspended: Change = |spec| {
        let mut off = spec["workerGroupSpecs"][0].clone();
        off["groupName"] = json!("off");
        off["suspend"] = json!(true);
        spec["workerGroupSpecs"].as_array_mut().unwrap().push(off);
    };
    let warned: Change = |spec| {
        spec["enableInTreeAutoscaling"] = json!(true);
        spec["autoscalerOptions"] = json!({"version": "v1"});
        spec["workerGroupSpecs"][0]["template"]["spec"]["restartPolicy"] = json!("Always");
    };
    for (change, reason) in [(suspended, "DeletedWorkerPod"), (warned, "InvalidRayClusterSpec")] {
        let mut world = World::new();
        let mut cluster = ray_cluster();
        change(&mut cluster["spec"]);
        let id = world.apply(cluster);
        let told = |world: &World| world.events.iter().filter(|event| event.starts_with(reason)).count();
        world.settle();
        world.run_pods();
        assert_eq!(world.status(&id)["observedGeneration"], 1, "{}", world.why(&id));
        let first = told(&world);
        assert!(first >= 1, "{reason}: {:?}", world.events);
        world.run_pods();
        assert_eq!(told(&world), first, "{reason}");
        world.edit(&id, |c| c["metadata"]["generation"] = json!(2));
        world.settle();
        assert!(told(&world) > first, "{reason}");
    }
}

#[test]
fn recreate_replaces_all_pods_when_the_spec_changes() {
    let mut world = World::new();
    let mut cluster = ray_cluster();
    cluster["spec"]["upgradeStrategy"] = json!({ "type": "Recreate" });
    let id = world.apply(cluster);
    world.settle();
    world.run_pods();
    let before: Vec<Value> = world.of(Kind::Pod).into_iter().map(|(_, p)| p["metadata"]["uid"].clone()).collect();
    world.edit(&id, |c| c["spec"]["workerGroupSpecs"][0]["replicas"] = json!(1));
    world.settle();
    assert!(world.of(Kind::Pod).iter().filter(|(_, p)| p["metadata"]["deletionTimestamp"].is_string()).count() <= 1);
    world.edit(&id, |c| c["spec"]["rayVersion"] = json!("2.53.0"));
    world.settle();
    world.bury();
    world.settle();
    assert!(world.of(Kind::Pod).iter().all(|(_, p)| !before.contains(&p["metadata"]["uid"])));
}

#[test]
fn a_service_of_somebody_else_is_not_taken() {
    let mut world = World::new();
    world.apply(json!({ "apiVersion": "v1", "kind": "Service", "metadata": { "name": "c-head-svc" }, "spec": {} }));
    let id = world.apply(ray_cluster());
    world.settle();
    assert_eq!(world.of(Kind::Pod).len(), 0);
    assert!(world.why(&id).contains("c-head-svc"), "{}", world.why(&id));
}

/// Found by the simulator: the deletion of a RayCluster came late, its pods' end was seen before its own, and its head was
/// made again and again.
#[test]
fn nothing_that_went_is_made_again_before_the_cluster_itself_was_read() {
    let (world, id) = running();
    let cluster = Cluster::Member(MemberName::from("eu"));
    let lost_at = Time(7_000);
    let look = |begun: Time, body: Option<Value>, kind: Kind| {
        let (gone, object) = world.of(kind).into_iter().next().unwrap();
        let uid = object["metadata"]["uid"].as_str().unwrap().into();
        let read = Fetched { begun, body: body.map(Arc::new), error: None, failures: 0 };
        let fetched = BTreeMap::from([((cluster.clone(), id.clone()), read)]);
        let change = TableChange::Remove { id: gone, uid, version: Version(u64::MAX) };
        let plan = world.plan_seeing(&id, |tables| drop(tables.apply(kind, change, lost_at)), &fetched);
        let creates = plan.actions.iter().filter(|a| matches!(a, Action::Create { .. })).count();
        let reads: Vec<_> = plan.fetch.iter().map(|f| (f.id.clone(), f.not_before)).collect();
        (creates, reads)
    };
    let there = world.get(Kind::RayCluster, "c").unwrap().clone();
    let mut going = there.clone();
    going["metadata"]["deletionTimestamp"] = json!("2026-11-29T00:00:00Z");
    let mut another = there.clone();
    another["metadata"]["uid"] = json!("another");
    for kind in [Kind::Pod, Kind::Service] {
        assert_eq!(look(Time(6_999), Some(there.clone()), kind), (0, vec![(id.clone(), lost_at)]), "read too early");
        assert_eq!(look(lost_at, Some(there.clone()), kind), (1, vec![]));
        for gone in [None, Some(going.clone()), Some(another.clone())] {
            assert_eq!(look(lost_at, gone, kind), (0, vec![]));
        }
    }
}
