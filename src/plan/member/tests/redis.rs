//! Facts about the withdrawal of what keeps state in Redis.

use super::*;
use crate::api::names::{FOREGROUND_FINALIZER, REDIS_FINALIZER};
use crate::plan::Plan;

fn ray_cluster() -> Id {
    Id::new(Kind::RayCluster, "default", "train-abcde")
}

fn head() -> Id {
    Id::new(Kind::Pod, "default", "train-abcde-head-fghij")
}

fn cleaner() -> Id {
    Id::new(Kind::Job, "default", "train-abcde-redis-cleanup")
}

fn owned(name: &str, owner: &Value) -> Value {
    let mut metadata = json!({ "name": name, "namespace": "default" });
    metadata["ownerReferences"] = json!([{
        "apiVersion": "ray.io/v1", "kind": owner["kind"], "name": owner["metadata"]["name"],
        "uid": owner["metadata"]["uid"], "controller": true, "blockOwnerDeletion": true,
    }]);
    metadata
}

/// A job on `eu` whose RayCluster runs there and keeps its state in Redis, under this prefix.
fn running(namespace: Option<&str>) -> (World, Id) {
    let (mut world, root) = admitted();
    let mirror = world.get(&eu(), &root).unwrap().clone();
    let mut metadata = owned("train-abcde", &mirror);
    metadata["finalizers"] = json!([REDIS_FINALIZER]);
    metadata["labels"] = json!({ "rayfleet.io/root-id": mirror["metadata"]["labels"]["rayfleet.io/root-id"] });
    let mut options = json!({ "redisAddress": "redis:6379" });
    if let Some(namespace) = namespace {
        options["externalStorageNamespace"] = namespace.into();
    }
    let mut spec = mirror["spec"]["rayClusterSpec"].clone();
    spec["gcsFaultToleranceOptions"] = options;
    let cluster = world
        .put(&eu(), json!({ "apiVersion": "ray.io/v1", "kind": "RayCluster", "metadata": metadata, "spec": spec }));
    let mut metadata = owned("train-abcde-head-fghij", world.get(&eu(), &cluster).unwrap());
    metadata["labels"] = json!({ "ray.io/cluster": "train-abcde", "ray.io/node-type": "head" });
    // A kubelet needs a moment.
    metadata["finalizers"] = json!(["example.com/kubelet"]);
    world.put(&eu(), json!({ "apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {} }));
    (world, root)
}

fn suspend(world: &mut World, root: &Id) {
    world.edit(&Cluster::Hub, root, |body| body["spec"]["suspend"] = true.into());
}

/// So many looks at the root object, with the collector behind each; the last plan.
fn looks(world: &mut World, root: &Id, count: usize) -> Plan {
    let mut plan = Plan::default();
    for _ in 0..count {
        plan = world.step(root);
        world.collect();
    }
    plan
}

fn job_ends(world: &mut World, condition: &str) {
    let conditions = json!([{ "type": condition, "status": "True" }]);
    world.edit(&eu(), &cleaner(), |job| job["status"] = json!({ "conditions": conditions }));
}

fn pod_ends(world: &mut World, pod: &Id) {
    world.edit(&eu(), pod, |pod| pod["metadata"]["finalizers"] = json!([]));
}

#[test]
fn what_is_withdrawn_clears_redis_before_it_is_gone() {
    for condition in ["Complete", "Failed"] {
        let (mut world, root) = running(None);
        suspend(&mut world, &root);
        looks(&mut world, &root, 6);
        let mirror = world.get(&eu(), &root).expect("a tombstone");
        let finalizers = mirror["metadata"]["finalizers"].as_array().unwrap();
        assert!(!finalizers.contains(&FOREGROUND_FINALIZER.into()), "the collector would take the Job: {mirror}");
        assert!(mirror["metadata"]["deletionTimestamp"].is_string());
        assert!(world.get(&eu(), &head()).unwrap()["metadata"]["deletionTimestamp"].is_string());
        assert!(world.get(&eu(), &cleaner()).is_none(), "its head still runs");

        pod_ends(&mut world, &head());
        let plan = looks(&mut world, &root, 4);
        let job = world.get(&eu(), &cleaner()).expect("a Job");
        assert!(job["metadata"]["deletionTimestamp"].is_null(), "{job}");
        assert!(plan.why.0.contains("clears its state in Redis"), "{:?}", plan.why);
        assert!(plan.next.is_some(), "it is not waited for for ever");
        assert_eq!(stage(&world, &root), Stage::Withdrawing);

        job_ends(&mut world, condition);
        until(&mut world, &root, Stage::Waiting);
        for id in [ray_cluster(), cleaner(), group()] {
            assert!(world.get(&eu(), &id).is_none(), "{id}");
        }
    }
}

#[test]
fn the_jobs_pod_is_left_alone_until_redis_is_clear_and_is_confirmed_gone() {
    let (mut world, root) = running(None);
    suspend(&mut world, &root);
    looks(&mut world, &root, 6);
    pod_ends(&mut world, &head());
    looks(&mut world, &root, 4);
    let mut metadata = owned("train-abcde-redis-cleanup-klmno", world.get(&eu(), &cleaner()).unwrap());
    let template = &world.get(&eu(), &cleaner()).unwrap()["spec"]["template"];
    metadata["labels"] = template["metadata"]["labels"].clone();
    metadata["finalizers"] = json!(["example.com/kubelet"]);
    let pod = world.put(&eu(), json!({ "apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {} }));
    looks(&mut world, &root, 3);
    assert!(world.get(&eu(), &pod).unwrap()["metadata"]["deletionTimestamp"].is_null());
    job_ends(&mut world, "Complete");
    for _ in 0..12 {
        world.step(&root);
    }
    assert!(world.get(&eu(), &pod).unwrap()["metadata"]["deletionTimestamp"].is_string());
    assert_eq!(stage(&world, &root), Stage::Withdrawing, "its pod is still there");
    pod_ends(&mut world, &pod);
    until(&mut world, &root, Stage::Waiting);
}

#[test]
fn a_job_that_never_ends_holds_a_withdrawal_for_a_limited_time() {
    let (mut world, root) = running(None);
    suspend(&mut world, &root);
    looks(&mut world, &root, 6);
    pod_ends(&mut world, &head());
    let plan = looks(&mut world, &root, 4);
    let due = plan.next.expect("a limit");
    let deleted = world.get(&eu(), &ray_cluster()).unwrap()["metadata"]["deletionTimestamp"].clone();
    assert_eq!(due, Time(Time::parse(deleted.as_str().unwrap()).unwrap().0 + 300_000));
    world.now = due;
    let plan = world.step(&root);
    assert!(plan.events.iter().any(|event| &*event.reason == "ForceDeletedStuckCluster"), "{:?}", plan.events);
    until(&mut world, &root, Stage::Waiting);
    assert!(world.get(&eu(), &cleaner()).is_none(), "what comes next is not cleared by it");
}

#[test]
fn a_ray_cluster_that_is_a_mirror_itself_clears_redis_too() {
    let mut world = World::new(&[("eu", "8")]);
    world.publish(&["eu"]);
    let mut spec = ray_job("train", "ml", "2")["spec"]["rayClusterSpec"].clone();
    spec["gcsFaultToleranceOptions"] = json!({ "redisAddress": "redis:6379" });
    let root = world.put(
        &Cluster::Hub,
        json!({
            "apiVersion": "ray.io/v1", "kind": "RayCluster", "spec": spec,
            "metadata": { "name": "train", "namespace": "default", "labels": { "volcano.sh/queue-name": "ml" } },
        }),
    );
    for _ in 0..10 {
        world.step(&root);
    }
    is(&mut world, &group(), "Inqueue");
    world.step(&root);
    assert_eq!(stage(&world, &root), Stage::Admitted);
    world.edit(&eu(), &root, |mirror| {
        mirror["metadata"]["finalizers"] = json!(["rayfleet.io/tombstone", REDIS_FINALIZER]);
    });
    suspend(&mut world, &root);
    looks(&mut world, &root, 6);
    let job = Id::new(Kind::Job, "default", "train-redis-cleanup");
    assert!(world.get(&eu(), &job).is_some(), "it has no pods");
    let held = world.get(&eu(), &root).unwrap()["metadata"]["finalizers"].clone();
    assert_eq!(held, json!(["rayfleet.io/tombstone", REDIS_FINALIZER]));
    let conditions = json!([{ "type": "Complete", "status": "True" }]);
    world.edit(&eu(), &job, |job| job["status"] = json!({ "conditions": conditions }));
    until(&mut world, &root, Stage::Waiting);
    assert!(world.get(&eu(), &job).is_none());
    assert_eq!(world.get(&eu(), &root).unwrap()["metadata"]["finalizers"], json!(["rayfleet.io/tombstone"]));
}

/// A mirror that was left behind while its root object was placed again.
#[test]
fn what_is_left_behind_clears_only_what_nobody_else_can_have_by_now() {
    for (namespace, cleared) in [(None, true), (Some("shared"), false)] {
        let (mut world, root) = running(namespace);
        let id = Id::new(Kind::Placement, "default", "rayjob-train");
        world.edit(&Cluster::Hub, &id, |body| {
            body["spec"]["member"] = "us".into();
            body["spec"]["generation"] = 2.into();
        });
        let mut made = false;
        for _ in 0..24 {
            world.tend("eu");
            world.collect();
            if world.get(&eu(), &head()).is_some_and(|pod| pod["metadata"]["deletionTimestamp"].is_string()) {
                pod_ends(&mut world, &head());
            }
            if world.get(&eu(), &cleaner()).is_some() {
                made = true;
                job_ends(&mut world, "Complete");
            }
        }
        assert_eq!(made, cleared, "{namespace:?}");
        assert!(world.get(&eu(), &ray_cluster()).is_none() && world.get(&eu(), &cleaner()).is_none());
        assert!(world.get(&eu(), &root).is_some(), "its tombstone is kept until Q");
    }
}
