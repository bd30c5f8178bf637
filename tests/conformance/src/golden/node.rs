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

/// Name of the container that submits in SidecarMode.
const SIDECAR: &str = "ray-job-submitter";

/// The container of a head that submits a job, if it has one.
fn sidecar(pod: &Value) -> Option<&Value> {
    pod["spec"]["containers"].as_array()?.iter().find(|c| c["name"] == SIDECAR).filter(|_| role(pod) == "head")
}

/// Whether a job is submitted from this pod.
pub(super) fn submits(pod: &Value) -> bool {
    role(pod) == "submitter" || sidecar(pod).is_some()
}

/// Whether a head's submitter runs.
pub(super) fn sidecar_runs(pod: &Value) -> bool {
    let statuses = pod["status"]["containerStatuses"].as_array();
    statuses.into_iter().flatten().any(|c| c["name"] == SIDECAR && c["state"]["running"].is_object())
}

/// Exit code of a head's submitter whose job ended in this state: its script waits for the job, or follows the logs.
pub(super) fn sidecar_code(pod: &Value, state: &str) -> i32 {
    let waits = sidecar(pod).is_some_and(|c| !c["args"].to_string().contains("--no-wait"));
    i32::from(waits && state == "FAILED")
}

/// How a pod stands.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Life {
    /// All containers run and are ready.
    Running,
    /// All have ended with this exit code.
    Ended(i32),
    /// The submitter of a head has ended with this exit code, the others run.
    Submitted(i32),
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
    let state = |container: &Value| match life {
        Life::Ended(code) => (false, ended(code)),
        Life::Submitted(code) if container["name"] == SIDECAR => (false, ended(code)),
        Life::Running | Life::Submitted(_) => (true, running.clone()),
    };
    let (network, ready) = (!matches!(life, Life::Ended(_)), life == Life::Running);
    let listed = |field: &str| pod["spec"][field].as_array().cloned().unwrap_or_default();
    let main = |c: &Value| {
        let (ready, state) = state(c);
        one(c, state, ready, ready)
    };
    let main: Vec<Value> = listed("containers").iter().map(main).collect();
    let init: Vec<Value> = listed("initContainers").iter().map(|c| one(c, ended(0), true, false)).collect();
    let condition = |kind: &str, holds: bool| {
        let mut one = json!({
            "type": kind, "status": if holds { "True" } else { "False" },
            "lastProbeTime": null, "lastTransitionTime": at,
        });
        if !holds && matches!(kind, "Ready" | "ContainersReady") {
            one["reason"] = match life {
                Life::Ended(0) => "PodCompleted",
                Life::Ended(_) => "PodFailed",
                Life::Running | Life::Submitted(_) => "ContainersNotReady",
            }
            .into();
            if let Life::Submitted(_) = life {
                one["message"] = format!("containers with unready status: [{SIDECAR}]").into();
            }
        }
        one
    };
    let mut status = json!({
        "phase": match life {
            Life::Running | Life::Submitted(_) => "Running",
            Life::Ended(0) => "Succeeded",
            Life::Ended(_) => "Failed",
        },
        "conditions": [
            condition("PodReadyToStartContainers", network), condition("Initialized", true), condition("Ready", ready),
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
