//! Stories of RayJobs.

use serde_json::{Value, json};

use crate::api::{Id, Kind};
use crate::plan::SubmitOutcome;
use crate::plan::tiny_world::{World, ray_job};

mod selected;
mod sidecar;

fn state(world: &World, id: &Id) -> String {
    world.status(id)["jobDeploymentStatus"].as_str().unwrap_or_default().to_owned()
}

fn cluster(world: &World) -> (Id, Value) {
    let clusters = world.of(Kind::RayCluster);
    assert_eq!(clusters.len(), 1, "{:?}", world.log);
    clusters.into_iter().next().unwrap()
}

/// A job that runs in Ray.
fn running(mode: &str, edit: impl FnOnce(&mut Value)) -> (World, Id) {
    let mut world = World::new();
    let mut job = ray_job(mode);
    edit(&mut job);
    let id = world.apply(job);
    world.settle();
    assert_eq!(state(&world, &id), "Initializing", "{:?} {}", world.log, world.why(&id));
    assert_eq!(world.of(Kind::Pod).len(), 3, "{:?}", world.log);
    world.run_pods();
    assert_eq!(state(&world, &id), "Running", "{:?} {}", world.log, world.why(&id));
    (world, id)
}

fn ray_says(world: &mut World, status: &str) {
    let end = if matches!(status, "SUCCEEDED" | "FAILED" | "STOPPED") { world.now.0 } else { 0 };
    world.ray_says = Some(json!({ "status": status, "message": status, "start_time": world.now.0, "end_time": end }));
    world.after(3);
}

fn submitter_ends(world: &mut World, condition: &str) {
    let id = world.of(Kind::Job)[0].0.clone();
    let now = world.now.seconds_text();
    world.edit(&id, |job| {
        job["status"] = json!({ "conditions": [{
            "type": condition, "status": "True", "lastTransitionTime": now, "reason": "R", "message": "M",
        }] });
    });
    world.settle();
}

#[test]
fn a_job_by_http_is_submitted_once_and_ends() {
    let (mut world, id) = running("HTTPMode", |_| {});
    assert_eq!(world.submissions.len(), 1, "{:?} {}", world.log, world.why(&id));
    assert_eq!(world.submissions[0].1["entrypoint"], "python train.py");
    assert_eq!(world.submissions[0].1["submission_id"], world.status(&id)["jobId"]);
    ray_says(&mut world, "RUNNING");
    assert_eq!(world.status(&id)["jobStatus"], "RUNNING");
    ray_says(&mut world, "SUCCEEDED");
    let status = world.status(&id);
    assert_eq!(
        (&status["jobDeploymentStatus"], &status["succeeded"], &status["failed"]),
        (&json!("Complete"), &json!(1), &json!(0))
    );
    assert!(status["endTime"].is_string());
    assert_eq!(world.submissions.len(), 1);
    assert!(world.get(Kind::Service, "train-head-svc").is_some());
}

#[test]
fn names_are_stored_before_anything_is_made_by_them() {
    let (world, _) = running("HTTPMode", |_| {});
    let at = |what: &str| {
        world.log.iter().position(|l| l.starts_with(what)).unwrap_or_else(|| panic!("{what}: {:?}", world.log))
    };
    assert!(at("replace RayJob") < at("status RayJob default/train Initializing"));
    assert!(at("status RayJob default/train Initializing") < at("create RayCluster"));
    assert!(at("create RayCluster") < at("create Pod"));
}

#[test]
fn a_job_with_a_submitter_ends_when_both_have_ended() {
    let (mut world, id) = running("K8sJobMode", |_| {});
    assert_eq!(world.of(Kind::Job).len(), 1);
    ray_says(&mut world, "SUCCEEDED");
    assert_eq!(state(&world, &id), "Running");
    submitter_ends(&mut world, "Complete");
    world.after(3);
    assert_eq!(state(&world, &id), "Complete");
    assert_eq!(world.submissions.len(), 0);
}

#[test]
fn a_submitter_that_fails_fails_the_job() {
    let (mut world, id) = running("K8sJobMode", |_| {});
    submitter_ends(&mut world, "Failed");
    world.after(6);
    let status = world.status(&id);
    assert_eq!((&status["jobDeploymentStatus"], &status["reason"]), (&json!("Failed"), &json!("SubmissionFailed")));
    assert_eq!(status["failed"], 1);
}

#[test]
fn a_silent_end_of_the_submitter_fails_a_job_that_does_not_begin_within_thirty_seconds() {
    let (mut world, id) = running("K8sJobMode", |_| {});
    ray_says(&mut world, "PENDING");
    submitter_ends(&mut world, "Complete");
    world.after(29);
    assert_eq!(state(&world, &id), "Running");
    world.after(4);
    let status = world.status(&id);
    assert_eq!((&status["jobDeploymentStatus"], &status["jobStatus"]), (&json!("Failed"), &json!("FAILED")));
}

#[test]
fn a_job_that_runs_is_followed_whatever_became_of_its_submitter() {
    for end in ["Complete", "Failed"] {
        let (mut world, id) = running("K8sJobMode", |_| {});
        ray_says(&mut world, "RUNNING");
        submitter_ends(&mut world, end);
        world.after(120);
        assert_eq!(state(&world, &id), "Running", "submitter {end}");
        ray_says(&mut world, "SUCCEEDED");
        world.after(4);
        assert_eq!(state(&world, &id), "Complete", "submitter {end}");
    }
}

#[test]
fn only_silence_without_a_break_for_five_minutes_fails_a_job() {
    for mode in ["K8sJobMode", "HTTPMode", "InteractiveMode"] {
        let (mut world, id) = running(mode, |job| {
            if mode == "InteractiveMode" {
                job["spec"]["jobId"] = json!("theirs");
            }
        });
        for _ in 0..3 {
            world.ray_is_silent = true;
            world.after(200);
            let since = world.status(&id)["jobStatusCheckFailureStartTime"].clone();
            assert!(since.is_string(), "{mode}: {}", world.why(&id));
            // An answer that does not know the job (its submitter may wait for room) is an answer.
            world.ray_is_silent = false;
            world.ray_says = None;
            world.after(200);
            let status = world.status(&id);
            assert!(status["jobStatusCheckFailureStartTime"].is_null(), "{mode}: {status}");
            assert_eq!(state(&world, &id), "Running", "{mode}");
        }
        world.ray_is_silent = true;
        world.after(3);
        world.after(300);
        assert_eq!(world.status(&id)["reason"], "JobStatusCheckTimeoutExceeded", "{mode}");
    }
}

#[test]
fn a_submission_that_never_comes_through_fails_the_job_after_five_minutes() {
    for outcome in [SubmitOutcome::Unknown("no answer".into()), SubmitOutcome::Refused("no".into())] {
        let mut world = World::new();
        world.ray_takes = outcome.clone();
        let id = world.apply(ray_job("HTTPMode"));
        world.settle();
        world.run_pods();
        let mut seconds = 0;
        while state(&world, &id) == "Running" && seconds < 600 {
            world.after(4);
            seconds += 4;
        }
        assert_eq!(world.status(&id)["reason"], "JobStatusCheckTimeoutExceeded", "{outcome:?} {}", world.why(&id));
        assert!((300..330).contains(&seconds), "{outcome:?}: {seconds} s");
        assert!(world.submissions.len() > 10, "{outcome:?}: it is tried again all the while");
    }
}

#[test]
fn a_time_in_which_nobody_asked_is_no_silence_of_ray() {
    let (mut world, id) = running("K8sJobMode", |_| {});
    world.ray_is_silent = true;
    world.after(3);
    assert!(world.status(&id)["jobStatusCheckFailureStartTime"].is_string());
    // No controller runs for an hour; Ray is well again meanwhile.
    world.ray_is_silent = false;
    world.ray_says = Some(json!({ "status": "RUNNING" }));
    world.after(3600);
    let status = world.status(&id);
    assert_eq!((&status["jobDeploymentStatus"], &status["jobStatus"]), (&json!("Running"), &json!("RUNNING")));
    assert!(status["jobStatusCheckFailureStartTime"].is_null(), "{status}");
}

#[test]
fn a_failed_job_is_tried_again_on_a_new_cluster_with_a_new_id() {
    let (mut world, id) = running("HTTPMode", |job| job["spec"]["backoffLimit"] = json!(1));
    let first = world.status(&id);
    ray_says(&mut world, "FAILED");
    world.bury();
    world.ray_says = None;
    world.settle();
    let second = world.status(&id);
    assert_eq!(second["failed"], 1);
    assert_ne!(first["rayClusterName"], second["rayClusterName"]);
    assert_ne!(first["jobId"], second["jobId"]);
    assert_eq!(cluster(&world).0.name.as_ref(), second["rayClusterName"].as_str().unwrap());
    world.run_pods();
    assert_eq!(world.submissions.len(), 2);
    ray_says(&mut world, "FAILED");
    assert_eq!(state(&world, &id), "Failed");
    assert_eq!(world.status(&id)["failed"], 2);
}

#[test]
fn a_suspended_job_gives_its_cluster_back_and_starts_anew() {
    let (mut world, id) = running("HTTPMode", |job| job["spec"]["shutdownAfterJobFinishes"] = json!(true));
    world.edit(&id, |job| job["spec"]["suspend"] = json!(true));
    world.settle();
    world.bury();
    world.settle();
    assert_eq!(state(&world, &id), "Suspended");
    assert_eq!(world.of(Kind::RayCluster).len(), 0);
    world.ray_says = None;
    world.edit(&id, |job| job["spec"]["suspend"] = json!(false));
    world.after(1);
    assert_eq!(state(&world, &id), "Initializing");
    cluster(&world);
}

#[test]
fn deadlines_end_an_attempt() {
    let mut world = World::new();
    let mut job = ray_job("HTTPMode");
    job["spec"]["activeDeadlineSeconds"] = json!(60);
    job["spec"]["backoffLimit"] = json!(3);
    let id = world.apply(job);
    world.settle();
    world.after(59);
    assert_eq!(state(&world, &id), "Initializing");
    assert!(world.last[&id].next.is_some());
    world.after(1);
    // No retry after this one.
    assert_eq!((state(&world, &id).as_str(), &world.status(&id)["reason"]), ("Failed", &json!("DeadlineExceeded")));
}

#[test]
fn the_cluster_goes_after_the_end_and_the_job_stays() {
    let (mut world, id) = running("HTTPMode", |job| {
        job["spec"]["shutdownAfterJobFinishes"] = json!(true);
        job["spec"]["ttlSecondsAfterFinished"] = json!(10);
    });
    ray_says(&mut world, "SUCCEEDED");
    assert_eq!(world.of(Kind::RayCluster).len(), 1);
    world.after(10);
    assert_eq!(world.of(Kind::RayCluster).len(), 0);
    assert_eq!(state(&world, &id), "Complete");
}

#[test]
fn rules_delete_workers_then_cluster_then_the_job() {
    let rule = |policy: &str, ttl: i32| json!({ "policy": policy, "condition": { "jobStatus": "SUCCEEDED", "ttlSeconds": ttl } });
    let (mut world, id) = running("HTTPMode", |job| {
        let rules = [rule("DeleteWorkers", 0), rule("DeleteCluster", 10), rule("DeleteSelf", 20)];
        job["spec"]["deletionStrategy"] = json!({ "deletionRules": rules });
    });
    ray_says(&mut world, "SUCCEEDED");
    world.bury();
    world.settle();
    assert_eq!(world.of(Kind::Pod).len(), 1, "the head stays");
    world.after(10);
    assert_eq!(world.of(Kind::RayCluster).len(), 0);
    world.after(10);
    assert!(!world.objects.contains_key(&id));
}

#[test]
fn deleting_a_running_job_stops_it_first_and_leaves_nothing() {
    let (mut world, id) = running("HTTPMode", |_| {});
    world.delete(&id);
    world.settle();
    world.bury();
    assert!(world.log.iter().any(|l| l.starts_with("stop ")), "{:?}", world.log);
    assert!(world.objects.is_empty(), "{:?}", world.objects.keys());
}

#[test]
fn a_job_in_the_users_hands_waits_for_its_id() {
    let mut world = World::new();
    let id = world.apply(ray_job("InteractiveMode"));
    world.settle();
    world.run_pods();
    assert_eq!(state(&world, &id), "Waiting");
    assert!(world.status(&id)["jobId"].is_null());
    world.edit(&id, |job| job["spec"]["jobId"] = json!("mine"));
    world.settle();
    assert_eq!((state(&world, &id).as_str(), &world.status(&id)["jobId"]), ("Running", &json!("mine")));
}

#[test]
fn a_job_of_a_queue_has_one_pod_group_with_room_for_its_submitter() {
    let (mut world, _) =
        running("K8sJobMode", |job| job["metadata"]["labels"] = json!({ "volcano.sh/queue-name": "ml" }));
    let group = world.get(Kind::PodGroup, "ray-train-pg").unwrap().clone();
    assert_eq!(
        group["spec"],
        json!({ "minMember": 3, "minResources": { "cpu": "3500m", "memory": "3272Mi" }, "queue": "ml" })
    );
    assert_eq!(world.of(Kind::PodGroup).len(), 1);
    for (_, pod) in world.of(Kind::Pod) {
        assert_eq!(pod["metadata"]["annotations"]["scheduling.k8s.io/group-name"], "ray-train-pg");
        assert_eq!(pod["spec"]["schedulerName"], "volcano");
    }
    ray_says(&mut world, "SUCCEEDED");
    submitter_ends(&mut world, "Complete");
    world.after(3);
    let group = world.get(Kind::PodGroup, "ray-train-pg").unwrap();
    assert_eq!(group["spec"]["minResources"], json!({ "cpu": "3", "memory": "3Gi" }));
}

#[test]
fn a_refused_job_says_which_field_and_makes_nothing() {
    let mut world = World::new();
    let mut job = ray_job("HTTPMode");
    job["spec"]["rayClusterSpec"]["headGroupSpec"]["template"]["spec"]["containers"][0]["resources"]["limits"]["cpu"] =
        json!("many");
    let id = world.apply(job);
    world.settle();
    assert_eq!(state(&world, &id), "ValidationFailed");
    assert!(world.status(&id)["message"].as_str().unwrap().contains("limits.cpu"));
    assert!(world.events[0].starts_with("InvalidRayJobSpec"));
    assert_eq!(world.objects.len(), 1);
}

#[test]
fn a_mirror_makes_no_pod_group_and_its_pods_are_in_its_queue() {
    let mut world = World::new();
    let mut job = ray_job("HTTPMode");
    job["metadata"]["annotations"] = json!({
        "rayfleet.io/root": "RayJob/default/train", "rayfleet.io/root-id": "r-1", "rayfleet.io/placement-generation": "1",
        "mine": "kept",
    });
    job["metadata"]["labels"] = json!({ "rayfleet.io/root-id": "r-1" });
    let placement = json!({
        "apiVersion": "rayfleet.io/v1alpha1", "kind": "Placement",
        "metadata": { "name": "rayjob-train", "namespace": "default", "uid": "p", "resourceVersion": "1",
            "creationTimestamp": "2026-11-29T12:00:00Z" },
        "spec": { "queue": "ml", "root": { "kind": "RayJob", "name": "train", "uid": "u", "rootId": "r-1" } },
    });
    world.hub.push(crate::row::decode(Kind::Placement, placement.to_string().as_bytes()).unwrap());
    world.apply(job);
    world.settle();
    assert_eq!(world.of(Kind::PodGroup).len(), 0);
    let (_, made) = cluster(&world);
    assert_eq!(made["metadata"]["labels"]["volcano.sh/queue-name"], "ml");
    assert_eq!(made["metadata"]["annotations"], json!({ "mine": "kept" }));
    for (_, pod) in world.of(Kind::Pod) {
        assert_eq!(pod["metadata"]["labels"]["volcano.sh/queue-name"], "ml");
        assert_eq!(pod["metadata"]["annotations"]["scheduling.k8s.io/group-name"], "ray-train-pg");
    }
}
