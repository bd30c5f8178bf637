//! The status of a pod as a kubelet writes it, from what its containers do.
//! Must not know when containers are started or ended.

use serde_json::{Value, json};

use super::object::{has, list, text};
use crate::api::Time;

/// What a container does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    /// Does not run (yet).
    Waiting {
        /// `PodInitializing`, `ContainerCreating`, `CrashLoopBackOff`, …
        reason: String,
        /// In words; may be empty.
        message: String,
    },
    /// Runs.
    Running {
        /// Since when.
        since: Time,
    },
    /// Has ended.
    Terminated(End),
}

/// How a container ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct End {
    /// Exit code.
    pub exit_code: i32,
    /// `Completed`, `Error`, …
    pub reason: String,
    /// In words; may be empty.
    pub message: String,
    /// When it had started.
    pub started: Time,
    /// When it ended.
    pub finished: Time,
}

/// One container, as far as its status goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Run {
    /// Its name.
    pub name: String,
    /// Its image, as the spec names it.
    pub image: String,
    /// What it does.
    pub state: State,
    /// The end of its run before this one.
    pub last: Option<End>,
    /// How often it was started again.
    pub restarts: u32,
    /// Readiness.
    pub ready: bool,
    /// Startup probe passed.
    pub started: bool,
    /// Empty before its first start.
    pub id: String,
}

impl Run {
    /// A container that has not run yet.
    pub fn new(container: &Value, reason: &str) -> Self {
        Self {
            name: text(container, "/name").to_owned(),
            image: text(container, "/image").to_owned(),
            state: State::Waiting { reason: reason.to_owned(), message: String::new() },
            last: None,
            restarts: 0,
            ready: false,
            started: false,
            id: String::new(),
        }
    }

    /// Whether it has ended with this exit code being zero, or not.
    pub fn ended(&self) -> Option<&End> {
        match &self.state {
            State::Terminated(end) => Some(end),
            _ => None,
        }
    }

    fn status(&self) -> Value {
        let mut out = json!({
            "image": self.image, "imageID": "", "lastState": {}, "name": self.name, "ready": self.ready,
            "restartCount": self.restarts, "started": self.started, "state": state(&self.state),
        });
        if let Some(last) = &self.last {
            out["lastState"] = state(&State::Terminated(last.clone()));
        }
        if !self.id.is_empty() {
            out["containerID"] = json!(self.id);
        }
        out
    }
}

fn state(state: &State) -> Value {
    match state {
        State::Waiting { reason, message } if message.is_empty() => json!({"waiting": {"reason": reason}}),
        State::Waiting { reason, message } => json!({"waiting": {"reason": reason, "message": message}}),
        State::Running { since } => json!({"running": {"startedAt": since.seconds_text()}}),
        State::Terminated(end) => {
            let mut out = json!({
                "exitCode": end.exit_code, "reason": end.reason,
                "startedAt": end.started.seconds_text(), "finishedAt": end.finished.seconds_text(),
            });
            if !end.message.is_empty() {
                out["message"] = json!(end.message);
            }
            json!({"terminated": out})
        }
    }
}

/// A pod on a node.
#[derive(Debug)]
pub struct Facts<'a> {
    /// Init containers, in order.
    pub init: &'a [Run],
    /// The others.
    pub main: &'a [Run],
    /// `Always`, `OnFailure` or `Never`.
    pub restart_policy: &'a str,
    /// Where it runs.
    pub host_ip: &'a str,
    /// Its own address.
    pub ip: &'a str,
    /// When the node took it.
    pub start: Time,
}

/// Whether an init container is one that goes on beside the others.
pub fn is_sidecar(pod: &Value, init: &str) -> bool {
    list(pod, "/spec/initContainers").iter().any(|c| name_is(c, init) && text(c, "/restartPolicy") == "Always")
}

fn name_is(container: &Value, wanted: &str) -> bool {
    text(container, "/name") == wanted
}

/// `Pending`, `Running`, `Succeeded` or `Failed`.
pub fn phase(pod: &Value, facts: &Facts) -> &'static str {
    let never = facts.restart_policy == "Never";
    let init: Vec<&Run> = facts.init.iter().filter(|c| !is_sidecar(pod, &c.name)).collect();
    if never && init.iter().any(|c| c.ended().is_some_and(|e| e.exit_code != 0)) {
        return "Failed";
    }
    if init.iter().any(|c| c.ended().is_none_or(|e| e.exit_code != 0)) {
        return "Pending";
    }
    let started = |c: &&Run| !c.id.is_empty() || c.last.is_some();
    if !facts.main.iter().all(|c| started(&c)) {
        return if facts.main.iter().any(|c| started(&c)) { "Running" } else { "Pending" };
    }
    if facts.main.iter().any(|c| c.ended().is_none()) || facts.restart_policy == "Always" {
        return "Running";
    }
    let failed = facts.main.iter().any(|c| c.ended().is_some_and(|e| e.exit_code != 0));
    match (failed, never) {
        (false, _) => "Succeeded",
        (true, true) => "Failed",
        (true, false) => "Running",
    }
}

/// The whole status. Times of conditions that have not changed are kept from the pod.
pub fn status(pod: &Value, facts: &Facts, phase: &str, now: Time) -> Value {
    let mut out = pod.get("status").cloned().unwrap_or_else(|| json!({}));
    let initialized =
        facts.init.iter().filter(|c| !is_sidecar(pod, &c.name)).all(|c| c.ended().is_some_and(|e| e.exit_code == 0));
    let finished = matches!(phase, "Succeeded" | "Failed");
    let unready: Vec<&str> = facts.main.iter().filter(|c| !c.ready).map(|c| c.name.as_str()).collect();
    let not_ready = (!unready.is_empty() || !initialized || finished).then(|| match phase {
        "Succeeded" => ("PodCompleted", String::new()),
        "Failed" => ("PodFailed", String::new()),
        _ => ("ContainersNotReady", format!("containers with unready status: [{}]", unready.join(" "))),
    });
    let ready_message = not_ready.as_ref().map(|(r, m)| (*r, m.as_str()));
    let incomplete: Vec<&str> = facts.init.iter().filter(|c| c.ended().is_none()).map(|c| c.name.as_str()).collect();
    let init_message = format!("containers with incomplete status: [{}]", incomplete.join(" "));
    let sandbox = facts.init.iter().chain(facts.main).any(|c| matches!(c.state, State::Running { .. }));
    let conditions = [
        condition(pod, "PodReadyToStartContainers", sandbox, None, now),
        condition(
            pod,
            "Initialized",
            initialized,
            (!initialized).then_some(("ContainersNotInitialized", &init_message)),
            now,
        ),
        condition(pod, "Ready", not_ready.is_none(), ready_message, now),
        condition(pod, "ContainersReady", not_ready.is_none(), ready_message, now),
        condition(pod, "PodScheduled", true, None, now),
    ];
    out["conditions"] = json!(conditions);
    out["phase"] = json!(phase);
    out["hostIP"] = json!(facts.host_ip);
    out["hostIPs"] = json!([{"ip": facts.host_ip}]);
    out["podIP"] = json!(facts.ip);
    out["podIPs"] = json!([{"ip": facts.ip}]);
    out["startTime"] = json!(facts.start.seconds_text());
    out["containerStatuses"] = facts.main.iter().map(Run::status).collect();
    if !facts.init.is_empty() {
        out["initContainerStatuses"] = facts.init.iter().map(Run::status).collect();
    }
    out
}

fn condition(pod: &Value, kind: &str, holds: bool, why: Option<(&str, &str)>, now: Time) -> Value {
    let status = if holds { "True" } else { "False" };
    let before = list(pod, "/status/conditions").iter().find(|c| text(c, "/type") == kind);
    let since = before
        .filter(|c| text(c, "/status") == status && has(c, "/lastTransitionTime"))
        .map_or_else(|| now.seconds_text(), |c| text(c, "/lastTransitionTime").to_owned());
    let mut out = json!({"type": kind, "status": status, "lastProbeTime": null, "lastTransitionTime": since});
    if let Some((reason, message)) = why {
        out["reason"] = json!(reason);
        if !message.is_empty() {
            out["message"] = json!(message);
        }
    }
    out
}
