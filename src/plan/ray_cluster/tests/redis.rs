//! Stories of RayClusters that keep their state in Redis.

use super::*;
use crate::api::names::{FOREGROUND_FINALIZER, REDIS_FINALIZER};

const JOB: &str = "c-redis-cleanup";

fn with_redis() -> Value {
    let mut cluster = ray_cluster();
    cluster["spec"]["gcsFaultToleranceOptions"] = json!({
        "redisAddress": "redis:6379",
        "redisPassword": { "valueFrom": { "secretKeyRef": { "name": "redis", "key": "password" } } },
    });
    cluster
}

/// One that runs.
fn running_with_redis() -> (World, Id) {
    let mut world = World::new();
    let id = world.apply(with_redis());
    world.settle();
    world.run_pods();
    assert_eq!(world.status(&id)["state"], "ready", "{:?} {}", world.log, world.why(&id));
    (world, id)
}

/// One whose pods are gone, after its deletion.
fn deleted() -> (World, Id) {
    let (mut world, id) = running_with_redis();
    world.delete(&id);
    world.settle();
    world.bury();
    (world, id)
}

fn finalizers(world: &World, id: &Id) -> Value {
    world.objects[id]["metadata"]["finalizers"].clone()
}

fn job_ends(world: &mut World, name: &str, condition: &str) {
    let id = Id::new(Kind::Job, "default", name);
    world.edit(&id, |job| job["status"] = json!({ "conditions": [{ "type": condition, "status": "True" }] }));
    world.settle();
}

fn told(world: &World, reason: &str) -> bool {
    world.events.iter().any(|event| event.starts_with(&format!("{reason} ")))
}

#[test]
fn the_finalizer_stands_before_anything_is_made() {
    let (world, id) = running_with_redis();
    assert_eq!(world.log[0], "replace RayCluster default/c");
    assert_eq!(finalizers(&world, &id), json!([REDIS_FINALIZER]));
    assert_eq!(world.of(Kind::Pod).len(), 3);
    assert!(world.get(Kind::Job, JOB).is_none());
}

#[test]
fn the_head_is_told_where_its_state_is_and_workers_wait_for_a_head_on_its_way_back() {
    let (world, id) = running_with_redis();
    for (pod, body) in world.of(Kind::Pod) {
        let env = body["spec"]["containers"][0]["env"].as_array().unwrap().clone();
        let value = |name: &str| env.iter().find(|e| e["name"] == name).map(|e| e["value"].clone());
        if body["metadata"]["labels"]["ray.io/node-type"] == "head" {
            let own = world.objects[&id]["metadata"]["uid"].clone();
            assert_eq!(value("RAY_REDIS_ADDRESS"), Some(json!("redis:6379")));
            assert_eq!(value("RAY_external_storage_namespace"), Some(own));
            let password = env.iter().find(|e| e["name"] == "REDIS_PASSWORD").unwrap();
            assert_eq!(password["valueFrom"]["secretKeyRef"]["name"], "redis");
        } else {
            assert_eq!(value("RAY_gcs_rpc_server_reconnect_timeout_s"), Some(json!("600")), "{pod}");
            assert_eq!(value("RAY_REDIS_ADDRESS"), None, "{pod}");
        }
    }
}

#[test]
fn its_pods_go_then_redis_is_cleared_then_it_goes() {
    let (mut world, id) = running_with_redis();
    world.delete(&id);
    world.settle();
    assert!(world.of(Kind::Pod).iter().all(|(_, pod)| pod["metadata"]["deletionTimestamp"].is_string()));
    assert!(world.get(Kind::Job, JOB).is_none(), "its head may still write");
    assert!(world.why(&id).contains("head pod is going"), "{}", world.why(&id));
    // Workers are not waited for.
    world
        .objects
        .retain(|_, object| object["metadata"]["labels"]["ray.io/node-type"] != "head" || object["kind"] != "Pod");
    world.settle();
    let job = world.get(Kind::Job, JOB).expect("a Job").clone();
    assert_eq!(job["metadata"]["ownerReferences"][0]["uid"], world.objects[&id]["metadata"]["uid"]);
    assert_eq!(job["spec"]["template"]["spec"]["containers"].as_array().map(Vec::len), Some(1));
    assert!(told(&world, "CreatedRedisCleanupJob"));
    assert!(world.why(&id).contains("clears its state in Redis"), "{}", world.why(&id));
    world.bury();
    world.settle();
    assert_eq!(finalizers(&world, &id), json!([REDIS_FINALIZER]), "until the Job has ended");
    job_ends(&mut world, JOB, "Complete");
    assert!(world.objects.is_empty(), "{:?}", world.objects.keys());
}

#[test]
fn a_job_that_fails_lets_it_go_and_says_so() {
    for condition in ["Failed", "FailureTarget"] {
        let (mut world, _) = deleted();
        world.settle();
        job_ends(&mut world, JOB, condition);
        assert!(world.objects.is_empty(), "{condition}: {:?}", world.objects.keys());
        assert!(told(&world, "FailedRedisCleanupJob"));
    }
}

#[test]
fn a_job_that_never_ends_holds_it_for_a_limited_time() {
    for (annotation, seconds) in [(None, 300), (Some("20"), 20), (Some("0"), 300), (Some("soon"), 300)] {
        let (mut world, id) = running_with_redis();
        if let Some(annotation) = annotation {
            world.edit(&id, |c| c["metadata"]["annotations"] = json!({ "ray.io/gcs-ft-deletion-timeout": annotation }));
        }
        world.delete(&id);
        world.settle();
        world.bury();
        world.settle();
        let due = world.plan(&id).next;
        assert_eq!(due, Some(Time(world.now.0 + seconds * 1000)), "{annotation:?}");
        world.after(seconds - 1);
        assert!(world.objects.contains_key(&id), "{annotation:?}");
        world.after(1);
        assert!(world.objects.is_empty(), "{annotation:?}: {:?}", world.objects.keys());
        assert!(told(&world, "ForceDeletedStuckCluster"));
    }
}

#[test]
fn a_job_that_somebody_deletes_is_made_again() {
    let (mut world, _) = deleted();
    world.settle();
    world.objects.remove(&Id::new(Kind::Job, "default", JOB));
    world.settle();
    assert!(world.get(Kind::Job, JOB).is_some());
}

#[test]
fn with_clean_up_off_nothing_holds_it() {
    let mut world = World::new();
    world.flags.redis_cleanup = false;
    let id = world.apply(with_redis());
    world.settle();
    assert_eq!(finalizers(&world, &id), Value::Null);
    assert_eq!(world.of(Kind::Pod).len(), 3);
    // One that has the finalizer from before.
    world.edit(&id, |c| c["metadata"]["finalizers"] = json!([REDIS_FINALIZER]));
    world.delete(&id);
    world.settle();
    assert!(!world.objects.contains_key(&id));
    assert!(world.get(Kind::Job, JOB).is_none());
}

#[test]
fn a_finalizer_that_its_spec_no_longer_asks_for_holds_nothing() {
    for options in [Value::Null, json!({ "backend": "rocksdb" })] {
        let (mut world, id) = running_with_redis();
        world.edit(&id, |c| c["spec"]["gcsFaultToleranceOptions"] = options.clone());
        world.delete(&id);
        world.settle();
        assert!(!world.objects.contains_key(&id), "{options}");
        assert!(world.get(Kind::Job, JOB).is_none());
    }
}

#[test]
fn one_that_breaks_a_rule_by_now_is_cleared_all_the_same() {
    let (mut world, id) = running_with_redis();
    world.edit(&id, |c| c["spec"]["workerGroupSpecs"][0]["minReplicas"] = json!(-1));
    world.delete(&id);
    world.settle();
    world.bury();
    world.settle();
    assert!(world.get(Kind::Job, JOB).is_some());
    job_ends(&mut world, JOB, "Complete");
    assert!(world.objects.is_empty());
}

#[test]
fn where_its_namespace_goes_no_job_is_waited_for() {
    let (mut world, id) = running_with_redis();
    let namespace = world.apply(json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": "default" } }));
    let mut body = world.objects.remove(&namespace).unwrap();
    body["metadata"]["namespace"] = Value::Null;
    body["metadata"]["deletionTimestamp"] = json!(world.now.seconds_text());
    body["metadata"]["finalizers"] = json!(["kubernetes"]);
    world.objects.insert(Id::new(Kind::Namespace, "", "default"), body);
    world.delete(&id);
    world.settle();
    assert!(!world.objects.contains_key(&id));
    assert!(world.get(Kind::Job, JOB).is_none());
}

#[test]
fn one_that_is_deleted_in_the_foreground_keeps_what_clears_redis() {
    let (mut world, id) = running_with_redis();
    world.edit(&id, |c| c["metadata"]["finalizers"] = json!([REDIS_FINALIZER, FOREGROUND_FINALIZER]));
    world.delete(&id);
    world.settle();
    assert_eq!(finalizers(&world, &id), json!([REDIS_FINALIZER]));
    assert!(world.get(Kind::Job, JOB).is_none());
    world.bury();
    world.settle();
    job_ends(&mut world, JOB, "Complete");
    assert!(world.objects.is_empty());
}

#[test]
fn clusters_whose_long_names_end_alike_have_jobs_of_their_own() {
    let mut world = World::new();
    let tail = "a".repeat(50);
    for first in ["xyz", "zyx"] {
        let mut cluster = with_redis();
        cluster["metadata"]["name"] = json!(format!("{first}{tail}"));
        world.apply(cluster);
    }
    world.settle();
    let clusters: Vec<Id> = world.of(Kind::RayCluster).into_iter().map(|(id, _)| id).collect();
    clusters.iter().for_each(|id| world.delete(id));
    world.settle();
    world.bury();
    world.settle();
    let jobs = world.of(Kind::Job);
    assert_eq!(jobs.len(), 2);
    for (id, job) in &jobs {
        assert!(id.name.len() <= 63, "{id}");
        let labels = job["metadata"]["labels"].as_object().unwrap();
        assert!(labels.values().all(|value| value.as_str().unwrap().len() <= 63), "{labels:?}");
    }
    assert_ne!(jobs[0].1["metadata"]["ownerReferences"][0]["uid"], jobs[1].1["metadata"]["ownerReferences"][0]["uid"]);
}

#[test]
fn the_jobs_pod_belongs_to_no_gang_and_keeps_what_its_user_gave_the_head() {
    let mut world = World::new();
    let mut cluster = with_redis();
    cluster["metadata"]["labels"] = json!({ "volcano.sh/queue-name": "ml" });
    cluster["spec"]["headGroupSpec"]["template"]["metadata"] = json!({ "annotations": { "note": "mine" } });
    let id = world.apply(cluster);
    world.settle();
    world.delete(&id);
    world.settle();
    world.bury();
    world.settle();
    let template = &world.get(Kind::Job, JOB).expect("a Job")["spec"]["template"];
    assert_eq!(template["spec"]["schedulerName"], Value::Null);
    assert_eq!(template["metadata"]["annotations"]["scheduling.k8s.io/group-name"], Value::Null);
    assert_eq!(template["metadata"]["labels"]["volcano.sh/queue-name"], Value::Null);
    assert_eq!(template["metadata"]["annotations"]["note"], "mine");
}

/// A child was lost just now, its head: the Job is made once the cluster itself was read since, though it is being deleted.
#[test]
fn a_cluster_that_is_known_to_be_going_gets_its_job_after_a_read() {
    let (world, id) = deleted();
    let lost = Time(7_000);
    let look = |begun: Time, body: Option<Value>| {
        let cluster = Cluster::Member(MemberName::from("eu"));
        let read = Fetched { begun, body: body.map(Arc::new), error: None, failures: 0 };
        let fetched = BTreeMap::from([((cluster, id.clone()), read)]);
        let gone = Id::new(Kind::Service, "default", "c-head-svc");
        let uid = world.objects[&gone]["metadata"]["uid"].as_str().unwrap().into();
        let change = TableChange::Remove { id: gone, uid, version: Version(u64::MAX) };
        let plan = world.plan_seeing(&id, |tables| drop(tables.apply(Kind::Service, change, lost)), &fetched);
        plan.actions.iter().any(|a| matches!(a, Action::Create { id, .. } if id.kind == Kind::Job))
    };
    let there = world.objects[&id].clone();
    assert!(!look(Time(6_999), Some(there.clone())), "read too early");
    assert!(look(lost, Some(there)));
    assert!(!look(lost, None));
}

#[test]
fn a_ray_job_waits_for_the_clean_up_of_the_cluster_that_it_deletes() {
    let mut world = World::new();
    let mut job = ray_job("HTTPMode");
    job["spec"]["rayClusterSpec"]["gcsFaultToleranceOptions"] = json!({ "redisAddress": "redis:6379" });
    job["spec"]["shutdownAfterJobFinishes"] = json!(true);
    let id = world.apply(job);
    world.settle();
    world.run_pods();
    let cluster = world.of(Kind::RayCluster)[0].0.clone();
    assert_eq!(finalizers(&world, &cluster), json!([REDIS_FINALIZER]));
    world.edit(&id, |job| job["spec"]["suspend"] = json!(true));
    world.settle();
    world.bury();
    world.settle();
    assert_eq!(world.status(&id)["jobDeploymentStatus"], "Suspending");
    let cleaner = world.of(Kind::Job)[0].0.name.to_string();
    job_ends(&mut world, &cleaner, "Complete");
    assert_eq!(world.status(&id)["jobDeploymentStatus"], "Suspended");
    assert!(!world.objects.contains_key(&cluster));
}
