//! Stories of groups whose replicas have several hosts.

use std::collections::BTreeMap;

use super::*;

const HOSTS: usize = 4;

/// A cluster with this many replicas of four hosts, all running.
fn slices(replicas: i32) -> (World, Id) {
    let mut world = World::new();
    let mut cluster = ray_cluster();
    let group = &mut cluster["spec"]["workerGroupSpecs"][0];
    group["numOfHosts"] = json!(HOSTS);
    group["replicas"] = json!(replicas);
    let id = world.apply(cluster);
    world.settle();
    world.run_pods();
    (world, id)
}

/// Pods of each replica, by its name: number of the replica, number of the host, whether it is going, name.
fn replicas_of(world: &World) -> BTreeMap<String, Vec<(String, String, bool, Id)>> {
    let mut all: BTreeMap<String, Vec<_>> = BTreeMap::new();
    for (id, pod) in workers(world) {
        let label = |key: &str| pod["metadata"]["labels"][key].as_str().unwrap_or("none").to_owned();
        let going = pod["metadata"]["deletionTimestamp"].is_string();
        let place = (label("ray.io/worker-group-replica-index"), label("ray.io/replica-host-index"), going, id);
        all.entry(label("ray.io/worker-group-replica-name")).or_default().push(place);
    }
    all.values_mut().for_each(|hosts| hosts.sort());
    all
}

/// Every replica is whole, nothing of it is going, and its number is its own.
#[track_caller]
fn assert_whole(world: &World, count: usize) {
    let all = replicas_of(world);
    assert_eq!(all.len(), count, "{all:?}");
    let mut numbers: Vec<&String> = Vec::new();
    for (name, hosts) in &all {
        assert!(name.starts_with("w-"), "{name}");
        let places: Vec<(&str, &str, bool)> = hosts.iter().map(|(r, h, going, _)| (&**r, &**h, *going)).collect();
        let number = places[0].0;
        let expected: Vec<_> = ["0", "1", "2", "3"].map(|host| (number, host, false)).to_vec();
        assert_eq!(places, expected, "{name}");
        numbers.push(&hosts[0].0);
    }
    numbers.sort();
    numbers.dedup();
    assert_eq!(numbers.len(), count);
}

fn buried(world: &mut World) {
    world.settle();
    world.bury();
    world.settle();
    world.bury();
    world.settle();
}

#[test]
fn replicas_are_made_whole_with_names_and_numbers_and_a_service_of_their_own() {
    let (world, id) = slices(2);
    assert_whole(&world, 2);
    let status = world.status(&id);
    assert_eq!((&status["state"], &status["desiredWorkerReplicas"]), (&json!("ready"), &json!(8)));
    let service = world.get(Kind::Service, "c-headless").unwrap();
    assert_eq!(service["spec"]["selector"], json!({"ray.io/cluster": "c", "ray.io/node-type": "worker"}));
    assert_eq!(service["spec"]["publishNotReadyAddresses"], true);
}

#[test]
fn a_replica_that_lost_a_host_goes_as_a_whole_and_comes_back_as_a_whole() {
    let (mut world, _) = slices(2);
    let before = replicas_of(&world);
    let (broken, hosts) = before.iter().next().unwrap();
    world.delete(&hosts[1].3);
    world.bury();
    world.settle();
    let going = replicas_of(&world)[broken].iter().filter(|(_, _, going, _)| *going).count();
    assert_eq!(going, HOSTS - 1, "all that is left of it");
    assert_eq!(replicas_of(&world).len(), 2, "no other comes before it has gone");
    buried(&mut world);
    assert_whole(&world, 2);
    let kept = before.keys().nth(1).unwrap();
    assert!(replicas_of(&world).contains_key(kept), "the other one is left alone");
}

#[test]
fn a_host_that_ended_takes_its_replica_along() {
    let (mut world, _) = slices(1);
    let (_, hosts) = replicas_of(&world).pop_first().unwrap();
    let ended = hosts[2].3.clone();
    world.edit(&ended, |pod| pod["status"]["phase"] = json!("Failed"));
    world.settle();
    assert!(
        workers(&world)
            .iter()
            .filter(|(id, _)| hosts.iter().any(|h| h.3 == *id))
            .all(|(_, pod)| { pod["metadata"]["deletionTimestamp"].is_string() })
    );
    buried(&mut world);
    world.run_pods();
    assert_whole(&world, 1);
}

#[test]
fn a_host_that_is_named_takes_its_replica_along_and_the_surplus_goes_by_replicas() {
    let (mut world, id) = slices(3);
    let (name, hosts) = replicas_of(&world).pop_last().unwrap();
    let victim = hosts[3].3.name.to_string();
    world.edit(&id, |c| {
        c["spec"]["workerGroupSpecs"][0]["replicas"] = json!(2);
        c["spec"]["workerGroupSpecs"][0]["scaleStrategy"] = json!({ "workersToDelete": [victim] });
    });
    buried(&mut world);
    assert_whole(&world, 2);
    assert!(!replicas_of(&world).contains_key(&name));
    world.edit(&id, |c| c["spec"]["workerGroupSpecs"][0]["replicas"] = json!(1));
    buried(&mut world);
    assert_whole(&world, 1);
    assert_eq!(replicas_of(&world).values().next().unwrap()[0].0, "0", "the newest number goes first");
}

#[test]
fn what_bears_no_replicas_name_is_neither_counted_nor_removed() {
    let (mut world, id) = slices(1);
    let (pod, _) = workers(&world).remove(0);
    let mut stranger = world.objects[&pod].clone();
    stranger["metadata"]["name"] = json!("older");
    stranger["metadata"]["labels"].as_object_mut().unwrap().remove("ray.io/worker-group-replica-name");
    let stranger = world.apply(stranger);
    world.edit(&id, |c| c["spec"]["workerGroupSpecs"][0]["replicas"] = json!(0));
    buried(&mut world);
    let left: Vec<Id> = workers(&world).into_iter().map(|(id, _)| id).collect();
    assert_eq!(left, [stranger]);
}
