//! Stories of a submitter beside the head (SidecarMode).

use super::*;

/// A job in SidecarMode whose cluster runs; its head.
fn beside_the_head() -> (World, Id, Id) {
    let mut world = World::new();
    let id = world.apply(ray_job("SidecarMode"));
    world.settle();
    world.run_pods();
    let heads = world.of(Kind::Pod).into_iter().filter(|(_, p)| p["metadata"]["labels"]["ray.io/node-type"] == "head");
    let head = heads.map(|(id, _)| id).next().unwrap();
    (world, id, head)
}

fn submitter_ends(world: &mut World, head: &Id, code: i32) {
    let now = world.now.seconds_text();
    world.edit(head, |pod| {
        pod["status"]["containerStatuses"] = json!([{
            "name": "ray-job-submitter",
            "state": { "terminated": { "exitCode": code, "reason": "Error", "finishedAt": now } },
        }]);
    });
}

#[test]
fn a_submitter_beside_the_head_submits_the_stored_id_and_the_job_ends_with_both() {
    let (mut world, id, head) = beside_the_head();
    let pod = &world.objects[&head];
    let script = pod["spec"]["containers"][1]["args"][0].as_str().unwrap();
    let job = world.status(&id)["jobId"].as_str().unwrap().to_owned();
    assert!(
        script.contains(&format!("ray job submit --address http://127.0.0.1:8265 --submission-id {job} -- ")),
        "{script}"
    );
    assert!(!script.contains("--no-wait") && !script.contains("ray job logs"), "{script}");
    assert_eq!(pod["spec"]["restartPolicy"], "Never");
    assert!(world.of(Kind::Job).is_empty() && world.submissions.is_empty());
    world.ray_says = Some(json!({ "status": "SUCCEEDED" }));
    world.after(3);
    assert_eq!(world.status(&id)["jobDeploymentStatus"], "Running", "the submitter has not ended yet");
    submitter_ends(&mut world, &head, 0);
    world.after(3);
    assert_eq!(world.status(&id)["jobDeploymentStatus"], "Complete");
}

#[test]
fn a_submitter_beside_the_head_that_fails_is_told_with_its_code() {
    let (mut world, id, head) = beside_the_head();
    submitter_ends(&mut world, &head, 3);
    world.after(3);
    world.after(3);
    let status = world.status(&id);
    assert_eq!((&status["jobDeploymentStatus"], &status["reason"]), (&json!("Failed"), &json!("SubmissionFailed")));
    assert!(status["message"].as_str().unwrap().contains("ray-job-submitter ended with code 3"), "{status}");
}

#[test]
fn a_head_that_is_gone_with_its_submitter_fails_the_job_and_is_not_made_again() {
    let (mut world, id, head) = beside_the_head();
    assert_eq!(world.status(&id)["jobDeploymentStatus"], "Running");
    world.objects.remove(&head);
    world.settle();
    let status = world.status(&id);
    assert_eq!((&status["jobDeploymentStatus"], &status["reason"]), (&json!("Failed"), &json!("AppFailed")));
    let heads = world.of(Kind::Pod).into_iter().filter(|(_, p)| p["metadata"]["labels"]["ray.io/node-type"] == "head");
    assert_eq!(heads.count(), 0);
}

/// Found by the simulator: the job had ended before its workers ran, its head was not ready any more, and the cluster never.
#[test]
fn a_job_that_is_quicker_than_its_workers_ends() {
    let mut world = World::new();
    let id = world.apply(ray_job("SidecarMode"));
    world.settle();
    let heads = world.of(Kind::Pod).into_iter().filter(|(_, p)| p["metadata"]["labels"]["ray.io/node-type"] == "head");
    let head = heads.map(|(id, _)| id).next().unwrap();
    world.edit(&head, |pod| {
        pod["status"] = json!({
            "phase": "Running", "podIP": "10.0.0.1", "conditions": [{ "type": "Ready", "status": "False" }],
        });
    });
    submitter_ends(&mut world, &head, 0);
    world.ray_says = Some(json!({ "status": "SUCCEEDED" }));
    world.after(3);
    world.after(3);
    assert_eq!(world.status(&id)["jobDeploymentStatus"], "Complete", "{}", world.why(&id));
}

/// Report R22.
#[test]
fn a_submitter_that_fails_while_workers_are_pending_fails_the_job_promptly() {
    let mut world = World::new();
    let mut job = ray_job("SidecarMode");
    job["spec"]["shutdownAfterJobFinishes"] = json!(true);
    let id = world.apply(job);
    world.settle();
    let heads = world.of(Kind::Pod).into_iter().filter(|(_, p)| p["metadata"]["labels"]["ray.io/node-type"] == "head");
    let head = heads.map(|(id, _)| id).next().unwrap();
    world.edit(&head, |pod| pod["status"] = json!({ "phase": "Running", "podIP": "10.0.0.1" }));
    submitter_ends(&mut world, &head, 1);
    world.after(3);
    world.after(3);
    let status = world.status(&id);
    assert_eq!((&status["jobDeploymentStatus"], &status["reason"]), (&json!("Failed"), &json!("SubmissionFailed")));
    world.after(60);
    world.bury();
    world.settle();
    assert_eq!(world.of(Kind::RayCluster).len(), 0, "it is shut down, as asked");
}
