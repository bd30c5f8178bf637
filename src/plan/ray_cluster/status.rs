//! Status of a RayCluster (specs/raycluster.md 5).
//! Must not know how pods come to be.

use serde_json::{Value, json};

use super::services::head_services;
use super::{Draft, Pod};
use crate::api::Time;
use crate::api::names::RAY_NODE_TYPE_LABEL;
use crate::api::ray::{ClusterCondition, RayClusterStatus, Texts};
use crate::plan::build;
use crate::plan::pass::Flow;
use crate::row::{Facts, Row};

/// Computes the status and writes it where it says something new.
pub(super) fn step(draft: &mut Draft<'_>) -> Flow {
    let services = head_services(draft);
    let [service] = services.as_slice() else {
        draft.pass.waits_for("its head Service is not there yet");
        return Flow::Stop;
    };
    let old = draft.cluster.status.clone().unwrap_or_default();
    let mut new = old.clone();
    new.observed_generation = Some(draft.pass.row.generation);
    numbers(draft, &mut new);
    let running = all_run(&draft.pods);
    let wanted = usize::try_from(new.desired_worker_replicas.unwrap_or(0)).unwrap_or(0) + 1;
    if !draft.failed && running && draft.pods.len() == wanted {
        new.state = Some("ready".into());
        new.reason = None;
    }
    if conditions(draft, &mut new, running) == Flow::Stop {
        return Flow::Stop;
    }
    if draft.cluster.spec.suspend == Some(true) && draft.pods.is_empty() {
        new.state = Some("suspended".into());
    }
    if head(draft, service, &mut new) == Flow::Stop {
        return Flow::Stop;
    }
    if differs(&old, &new) {
        let now = draft.pass.now.seconds_text();
        if new.state != old.state
            && let Some(state) = &new.state
        {
            new.state_transition_times.get_or_insert_default().insert(state.clone(), now.clone());
        }
        new.last_update_time = Some(now);
        write(draft, &new);
    }
    waits(draft, &new);
    Flow::Next
}

/// What the cluster waits for, unless a step has said it.
fn waits(draft: &mut Draft<'_>, new: &RayClusterStatus) {
    if new.state.as_deref() == Some("ready") && all_run(&draft.pods) {
        draft.pass.waits_for("it runs");
        return;
    }
    let waiting = draft.pods.iter().filter(|p| !p.facts.ready).count();
    draft.pass.waits_for(format!("{waiting} of its {} pods are not ready", draft.pods.len()));
}

fn write(draft: &mut Draft<'_>, new: &RayClusterStatus) {
    let mut body = draft.body.clone();
    let mut status = serde_json::to_value(new).unwrap_or_default();
    // Always there in KubeRay's, also when nothing is known.
    if status["head"].is_null() {
        status["head"] = json!({});
    }
    body["status"] = status;
    draft.pass.status(body, false);
}

/// Go leaves out numbers that are 0.
fn count(n: usize) -> Option<i32> {
    i32::try_from(n).ok().filter(|n| *n != 0)
}

fn numbers(draft: &Draft<'_>, new: &mut RayClusterStatus) {
    let workers = || draft.pods.iter().filter(|p| p.row.label(RAY_NODE_TYPE_LABEL) == "worker");
    new.ready_worker_replicas = count(workers().filter(|p| &*p.facts.phase == "Running" && p.facts.ready).count());
    new.available_worker_replicas = count(workers().filter(|p| &*p.facts.phase == "Running").count());
    let sizes = build::sizes(&draft.cluster.spec);
    let some = |n: i32| Some(n).filter(|n| *n != 0);
    new.desired_worker_replicas = some(sizes.desired);
    new.min_worker_replicas = some(sizes.min);
    new.max_worker_replicas = some(sizes.max);
    new.desired_cpu = Some(json!(sizes.cpu.to_string()));
    new.desired_memory = Some(json!(sizes.memory.to_string()));
    new.desired_gpu = Some(json!(sizes.gpu.to_string()));
    new.desired_tpu = Some(json!(sizes.tpu.to_string()));
}

/// At least one pod, all `Running`, and none that says it is not ready (5.5).
fn all_run(pods: &[Pod<'_>]) -> bool {
    let runs = |p: &Pod<'_>| {
        &*p.facts.phase == "Running" && p.facts.ready_condition.as_ref().is_none_or(|c| &*c.status == "True")
    };
    !pods.is_empty() && pods.iter().all(runs)
}

fn conditions(draft: &mut Draft<'_>, new: &mut RayClusterStatus, running: bool) -> Flow {
    let now = draft.pass.now;
    let mut list = new.conditions.take().unwrap_or_default();
    let is = |list: &[ClusterCondition], kind: &str| list.iter().any(|c| c.r#type == kind && c.status == "True");
    list.retain(|c| c.r#type != "ReplicaFailure");

    let heads = draft.heads();
    match heads.as_slice() {
        [] => set(&mut list, "HeadPodReady", "False", "HeadPodNotFound", "There is no head pod", now),
        [head] => {
            let (status, reason, message) = head_ready(*head);
            set(&mut list, "HeadPodReady", &status, &reason, &message, now);
        }
        // Which of several counts is not for us to say.
        _ => return Flow::Stop,
    }
    let suspended = is(&list, "RayClusterSuspended");
    if !is(&list, "RayClusterProvisioned") && !suspended {
        if running {
            let (reason, text) = ("AllPodRunningAndReadyFirstTime", "All pods were ready for the first time");
            set(&mut list, "RayClusterProvisioned", "True", reason, text, now);
        } else {
            let (reason, text) = ("RayClusterPodsProvisioning", "Pods are being made for the first time");
            set(&mut list, "RayClusterProvisioned", "False", reason, text, now);
        }
    }
    suspension(draft, &mut list);
    new.conditions = Some(list);
    Flow::Next
}

/// The state machine of 2.8, one step per pass.
fn suspension(draft: &Draft<'_>, list: &mut Vec<ClusterCondition>) {
    let now = draft.pass.now;
    let mut both = |suspended: &str, suspending: &str| {
        set(list, "RayClusterSuspended", suspended, "RayClusterSuspended", "", now);
        set(list, "RayClusterSuspending", suspending, "RayClusterSuspending", "", now);
    };
    let suspend = draft.cluster.spec.suspend;
    if draft.cluster.is("RayClusterSuspending") {
        if draft.pods.is_empty() {
            both("True", "False");
            let text = "The cluster was suspended";
            set(list, "RayClusterProvisioned", "False", "RayClusterPodsProvisioning", text, now);
        }
    } else if draft.cluster.is("RayClusterSuspended") {
        // Taking the field away does not resume: only an explicit `false` does.
        if suspend == Some(false) {
            both("False", "False");
        }
    } else if suspend == Some(true) {
        both("False", "True");
    } else {
        both("False", "False");
    }
}

/// Condition `HeadPodReady` from the pod's own (5.4).
fn head_ready(head: Pod<'_>) -> (String, String, String) {
    let Some(ready) = &head.facts.ready_condition else {
        return ("False".into(), "Unknown".into(), String::new());
    };
    let mut reason = ready.reason.to_string();
    let mut message = ready.message.to_string();
    if reason.is_empty() {
        reason = if &*ready.status == "True" { "HeadPodRunningAndReady".into() } else { "Unknown".into() };
    }
    if reason == "ContainersNotReady"
        && let Some(container) = head.facts.containers.iter().find(|c| !c.reason.is_empty())
    {
        reason = container.reason.to_string();
        let detail = format!("{}: {}", container.name, container.message);
        message = if message.is_empty() { detail } else { format!("{message}; {detail}") };
    }
    (ready.status.to_string(), reason, message)
}

fn set(list: &mut Vec<ClusterCondition>, kind: &str, status: &str, reason: &str, message: &str, now: Time) {
    if let Some(there) = list.iter_mut().find(|c| c.r#type == kind) {
        if there.status != status {
            there.last_transition_time = now.seconds_text();
        }
        there.status = status.into();
        there.reason = reason.into();
        there.message = message.into();
        return;
    }
    list.push(ClusterCondition {
        r#type: kind.into(),
        status: status.into(),
        reason: reason.into(),
        message: message.into(),
        last_transition_time: now.seconds_text(),
        ..ClusterCondition::default()
    });
}

/// Endpoints and where the head is (5.7).
fn head(draft: &mut Draft<'_>, service: &Row, new: &mut RayClusterStatus) -> Flow {
    let Facts::Service(facts) = &service.facts else { return Flow::Stop };
    if facts.cluster_ip.is_empty() {
        draft.pass.waits_for("its head Service has no address yet");
        return Flow::Stop;
    }
    let mut endpoints: Texts = new.endpoints.take().unwrap_or_default();
    for port in facts.ports.iter().filter(|p| !p.name.is_empty()) {
        let value = if port.node_port == 0 { port.target.to_string() } else { port.node_port.to_string() };
        if !value.is_empty() {
            endpoints.insert(port.name.to_string(), value);
        }
    }
    new.endpoints = Some(endpoints).filter(|e| !e.is_empty());
    let pod = draft.heads().first().copied();
    let text = |value: &str| Some(value.to_owned()).filter(|v| !v.is_empty());
    let mut info = new.head.take().unwrap_or_default();
    info.pod_ip = pod.and_then(|p| text(&p.facts.ip));
    info.pod_name = pod.and_then(|p| text(&p.row.id.name));
    info.service_ip = if &*facts.cluster_ip == "None" { info.pod_ip.clone() } else { text(&facts.cluster_ip) };
    info.service_name = text(&service.id.name);
    new.head = Some(info);
    Flow::Next
}

/// Whether the status says something new (5.6): resources, times and generation alone are not enough.
pub(in crate::plan) fn differs(old: &RayClusterStatus, new: &RayClusterStatus) -> bool {
    let reduced = |status: &RayClusterStatus| {
        let mut status = status.clone();
        status.desired_cpu = None;
        status.desired_memory = None;
        status.desired_gpu = None;
        status.desired_tpu = None;
        status.last_update_time = None;
        status.observed_generation = None;
        status.state_transition_times = None;
        status.other.clear();
        status.head.get_or_insert_default();
        status.conditions = status.conditions.filter(|c| !c.is_empty());
        let mut value = serde_json::to_value(&status).unwrap_or_default();
        for key in ["state", "reason"] {
            if value[key] == "" {
                value[key] = Value::Null;
            }
        }
        if let Some(map) = value.as_object_mut() {
            map.retain(|_, v| !v.is_null());
        }
        value
    };
    reduced(old) != reduced(new)
}
