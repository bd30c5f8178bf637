//! Stories of jobs on a RayCluster that is there (specs/rayjob.md 10).

use super::*;

/// A RayCluster that a user applied.
fn shared() -> Value {
    json!({
        "apiVersion": "ray.io/v1", "kind": "RayCluster", "metadata": { "name": "shared" },
        "spec": ray_job("HTTPMode")["spec"]["rayClusterSpec"],
    })
}

fn selecting(mode: &str) -> Value {
    let mut job = ray_job(mode);
    job["spec"]["rayClusterSpec"].take();
    job["spec"]["clusterSelector"] = json!({ "ray.io/cluster": "shared" });
    job
}

/// A job that runs on the RayCluster, and that.
fn on_shared(mode: &str, edit: impl FnOnce(&mut Value)) -> (World, Id, Id) {
    let mut world = World::new();
    let cluster = world.apply(shared());
    world.settle();
    world.run_pods();
    let mut job = selecting(mode);
    edit(&mut job);
    let id = world.apply(job);
    world.settle();
    assert_eq!(state(&world, &id), "Running", "{:?} {}", world.log, world.why(&id));
    (world, id, cluster)
}

#[test]
fn a_job_that_brings_its_own_by_now_leaves_the_raycluster_that_it_selected_as_it_is() {
    let (mut world, id, shared) = on_shared("HTTPMode", |_| ());
    ray_says(&mut world, "SUCCEEDED");
    assert_eq!(state(&world, &id), "Complete");
    let before = world.objects[&shared].clone();
    for policy in ["DeleteWorkers", "DeleteCluster"] {
        world.edit(&id, |job| {
            let condition = json!({ "jobStatus": "SUCCEEDED", "ttlSeconds": 0 });
            job["spec"]["clusterSelector"].take();
            job["spec"]["rayClusterSpec"] = ray_job("HTTPMode")["spec"]["rayClusterSpec"].clone();
            job["spec"]["deletionStrategy"] =
                json!({ "deletionRules": [{ "policy": policy, "condition": condition }] });
        });
        world.settle();
        world.after(60);
        assert_eq!(world.objects[&shared], before, "{policy}");
    }
}

#[test]
fn a_job_runs_on_the_raycluster_that_it_selects_and_leaves_it_as_it_is() {
    for mode in ["HTTPMode", "K8sJobMode"] {
        let (mut world, id, shared) = on_shared(mode, |job| {
            job["spec"]["shutdownAfterJobFinishes"] = json!(true);
        });
        let before = world.objects[&shared]["spec"].clone();
        assert_eq!(world.status(&id)["rayClusterName"], "shared");
        assert_eq!(world.submissions.len(), usize::from(mode == "HTTPMode"));
        ray_says(&mut world, "SUCCEEDED");
        if mode == "K8sJobMode" {
            submitter_ends(&mut world, "Complete");
            world.after(3);
        }
        assert_eq!(state(&world, &id), "Complete", "{mode}");
        world.after(600);
        assert_eq!(cluster(&world).0, shared);
        assert!(world.get(Kind::Service, "train-head-svc").is_none());
        world.delete(&id);
        world.settle();
        assert!(!world.objects.contains_key(&id));
        let after = &world.objects[&shared];
        assert_eq!((&after["spec"], &after["metadata"]["ownerReferences"]), (&before, &Value::Null));
        assert!(after["metadata"]["deletionTimestamp"].is_null());
        assert!(!world.log.iter().any(|line| line.starts_with("delete RayCluster")), "{:?}", world.log);
    }
}

#[test]
fn a_running_job_that_is_deleted_is_stopped_and_the_raycluster_stays() {
    let (mut world, id, shared) = on_shared("HTTPMode", |_| {});
    ray_says(&mut world, "RUNNING");
    world.delete(&id);
    world.settle();
    assert!(world.log.iter().any(|l| l.starts_with("stop ")), "{:?}", world.log);
    assert!(!world.objects.contains_key(&id) && world.objects[&shared]["metadata"]["deletionTimestamp"].is_null());
}

#[test]
fn a_job_waits_for_a_raycluster_that_is_not_there_or_not_ready() {
    let mut world = World::new();
    let id = world.apply(selecting("HTTPMode"));
    world.settle();
    assert_eq!(state(&world, &id), "Initializing");
    assert!(world.why(&id).contains("RayCluster default/shared, which clusterSelector names, is not there"));
    assert!(world.events.iter().any(|event| event.starts_with("RayClusterNotFound")), "{:?}", world.events);
    let soon = world.last[&id].next.expect("it looks again");
    assert!(soon.0 <= world.now.0 + 3_000);
    world.apply(shared());
    world.after(3);
    assert_eq!(state(&world, &id), "Initializing");
    assert!(world.why(&id).contains("shared is not ready"), "{}", world.why(&id));
    world.run_pods();
    world.after(3);
    assert_eq!(state(&world, &id), "Running", "{}", world.why(&id));
}

#[test]
fn its_submitter_is_in_no_gang_and_where_to_stop_it_is_stored_first() {
    let (world, id, _) = on_shared("K8sJobMode", |job| {
        job["metadata"]["labels"] = json!({ "volcano.sh/queue-name": "ml" });
    });
    assert!(world.of(Kind::PodGroup).is_empty());
    let (_, submitter) = world.of(Kind::Job).into_iter().next().unwrap();
    let template = &submitter["spec"]["template"];
    assert_eq!(template["spec"]["containers"][0]["image"], "ray", "the head's");
    assert!(template["spec"]["schedulerName"].is_null() && template["metadata"]["annotations"].is_null());
    let made = world.log.iter().position(|l| l.starts_with("create Job")).unwrap();
    let stored = world.log[..made].iter().filter(|l| *l == "status RayJob default/train Initializing").count();
    assert_eq!(stored, 2, "{:?}", world.log);
    assert!(world.status(&id)["dashboardURL"].as_str().unwrap().starts_with("shared-head-svc."));
}

#[test]
fn a_raycluster_that_goes_ends_its_running_job_like_silence_and_it_is_not_run_again() {
    let (mut world, id, shared) = on_shared("HTTPMode", |_| {});
    ray_says(&mut world, "RUNNING");
    world.delete(&shared);
    world.settle();
    world.bury();
    world.after(3);
    assert_eq!(state(&world, &id), "Running");
    world.after(290);
    assert_eq!(state(&world, &id), "Running", "{}", world.why(&id));
    world.after(12);
    let status = world.status(&id);
    assert_eq!(
        (&status["jobDeploymentStatus"], &status["reason"]),
        (&json!("Failed"), &json!("JobStatusCheckTimeoutExceeded"))
    );
    assert_eq!((world.submissions.len(), world.of(Kind::RayCluster).len()), (1, 0));
}

#[test]
fn ray_knows_the_job_by_one_id_in_every_generation() {
    let job_id = |generation: &str, begun: i64, job: Value| {
        let mut world = World::new();
        world.now = crate::api::Time(world.now.0 + begun);
        let mut mirror = job;
        mirror["metadata"]["labels"] = json!({ "rayfleet.io/root-id": "r-1" });
        mirror["metadata"]["annotations"] = json!({
            "rayfleet.io/root": "RayJob/default/train", "rayfleet.io/root-id": "r-1",
            "rayfleet.io/placement-generation": generation,
        });
        let id = world.apply(mirror);
        world.settle();
        world.status(&id)["jobId"].as_str().unwrap().to_owned()
    };
    assert_eq!(job_id("1", 0, selecting("HTTPMode")), job_id("2", 60_000, selecting("HTTPMode")));
    assert_ne!(job_id("1", 0, ray_job("HTTPMode")), job_id("2", 60_000, ray_job("HTTPMode")), "with a Ray of its own");
}

#[test]
fn what_the_hub_placed_uses_no_raycluster_that_stands_in_the_place_of_the_hubs() {
    for (root, reached) in [("RayCluster/default/shared", true), ("RayCluster/default/other", false), ("", false)] {
        let mut world = World::new();
        let mut cluster = shared();
        if !root.is_empty() {
            cluster["metadata"]["annotations"] = json!({ "rayfleet.io/root": root });
        }
        let cluster = world.apply(cluster);
        world.settle();
        world.run_pods();
        assert_eq!(world.status(&cluster)["state"], "ready");
        let mut job = selecting("HTTPMode");
        job["metadata"]["annotations"] = json!({ "rayfleet.io/root": "RayJob/default/train" });
        let id = world.apply(job);
        world.settle();
        assert_eq!(state(&world, &id) == "Running", reached, "{root}: {}", world.why(&id));
    }
}

#[test]
fn a_raycluster_that_asks_for_tokens_is_waited_for_with_that_reason() {
    let mut world = World::new();
    let mut cluster = shared();
    cluster["spec"]["authOptions"] = json!({ "mode": "token" });
    cluster["spec"]["rayVersion"] = json!("2.52.0");
    world.apply(cluster);
    let id = world.apply(selecting("HTTPMode"));
    world.settle();
    assert_eq!(state(&world, &id), "Initializing");
    assert!(world.why(&id).contains("asks for tokens"), "{}", world.why(&id));
}
