//! The node `node-1`: what it writes about pods that it starts, that end, and that are gone.
//! Must not know when.

use rayfleet::api::Time;
use serde_json::{Value, json};

/// Its name.
pub(super) const NODE: &str = "node-1";

/// What a pod is for, as stimuli name it.
pub(super) fn role(pod: &Value) -> &'static str {
    let label = |key: &str| pod["metadata"]["labels"][key].as_str().unwrap_or_default();
    match label("ray.io/node-type") {
        "head" => "head",
        "worker" => "worker",
        "redis-cleanup" => "redis-cleanup",
        _ if !label("job-name").is_empty() && label("ray.io/originated-from-crd") == "RayJob" => "submitter",
        _ => "other",
    }
}

/// Id of the Ray job that a pod submits; empty where it submits none.
pub(super) fn submission(pod: &Value) -> &str {
    let containers = pod["spec"]["containers"].as_array();
    let variables = containers.into_iter().flatten().filter_map(|c| c["env"].as_array()).flatten();
    let mut named = variables.filter(|v| v["name"] == "RAY_JOB_SUBMISSION_ID");
    named.next().and_then(|v| v["value"].as_str()).unwrap_or_default()
}

/// How a pod stands.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Life {
    /// All containers run and are ready.
    Running,
    /// All have ended with this exit code.
    Ended(i32),
}

/// The status of a pod with this address, the `number`th that was started.
pub(super) fn status(pod: &Value, life: Life, address: &str, now: Time) -> Value {
    let at = now.seconds_text();
    let ended = |code: i32| {
        let reason = if code == 0 { "Completed" } else { "Error" };
        json!({ "terminated": { "exitCode": code, "reason": reason, "startedAt": at, "finishedAt": at } })
    };
    let running = json!({ "running": { "startedAt": at } });
    let one = |container: &Value, state: Value, ready: bool, started: bool| {
        json!({
            "name": container["name"], "image": container["image"], "imageID": "", "lastState": {}, "restartCount": 0,
            "containerID": format!("containerd://{}", container["name"].as_str().unwrap_or_default()),
            "ready": ready, "started": started, "state": state,
        })
    };
    let (ready, state) = match life {
        Life::Running => (true, running.clone()),
        Life::Ended(code) => (false, ended(code)),
    };
    let listed = |field: &str| pod["spec"][field].as_array().cloned().unwrap_or_default();
    let main: Vec<Value> = listed("containers").iter().map(|c| one(c, state.clone(), ready, ready)).collect();
    let init: Vec<Value> = listed("initContainers").iter().map(|c| one(c, ended(0), true, false)).collect();
    let condition = |kind: &str, holds: bool| {
        let mut one = json!({
            "type": kind, "status": if holds { "True" } else { "False" },
            "lastProbeTime": null, "lastTransitionTime": at,
        });
        if !holds && matches!(kind, "Ready" | "ContainersReady") {
            let over = if life == Life::Ended(0) { "PodCompleted" } else { "PodFailed" };
            one["reason"] = over.into();
        }
        one
    };
    let mut status = json!({
        "phase": match life { Life::Running => "Running", Life::Ended(0) => "Succeeded", Life::Ended(_) => "Failed" },
        "conditions": [
            condition("PodReadyToStartContainers", ready), condition("Initialized", true), condition("Ready", ready),
            condition("ContainersReady", ready), condition("PodScheduled", true),
        ],
        "containerStatuses": main, "hostIP": "192.168.0.1", "hostIPs": [{ "ip": "192.168.0.1" }],
        "podIP": address, "podIPs": [{ "ip": address }], "startTime": at,
    });
    if !init.is_empty() {
        status["initContainerStatuses"] = init.into();
    }
    status
}
