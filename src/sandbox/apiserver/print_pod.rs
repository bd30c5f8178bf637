//! Cells of a pod: what its containers amount to, in one word.
//! Must not know other kinds. Source of the rules: kubectl's printer of pods as its output shows it.

use serde_json::Value;

use super::print::{age, age_between, list, number, or_none, text};
use crate::api::Time;

/// Name, ready, status, restarts, age; then address, node, nominated node, readiness gates.
pub(super) fn cells(pod: &Value, now: Time) -> Vec<Value> {
    let (spec, status) = (&pod["spec"], &pod["status"]);
    let total = list(&spec["containers"]).count() + list(&spec["initContainers"]).filter(|c| is_sidecar(c)).count();
    let sidecar_names: Vec<&Value> =
        list(&spec["initContainers"]).filter(|c| is_sidecar(c)).map(|c| &c["name"]).collect();
    let ready_sidecars =
        list(&status["initContainerStatuses"]).filter(|s| sidecar_names.contains(&&s["name"]) && s["ready"] == true);
    let ready = list(&status["containerStatuses"]).filter(|c| c["ready"] == true && is_running(c)).count()
        + ready_sidecars.count();
    vec![
        pod["metadata"]["name"].clone(),
        format!("{ready}/{total}").into(),
        reason(pod).into(),
        restarts(pod, now).into(),
        age(&pod["metadata"]["creationTimestamp"], now).into(),
        address(status).into(),
        or_none(&spec["nodeName"]).into(),
        or_none(&status["nominatedNodeName"]).into(),
        gates(pod).into(),
    ]
}

fn is_sidecar(container: &Value) -> bool {
    container["restartPolicy"] == "Always"
}

fn is_running(status: &Value) -> bool {
    status["state"]["running"].is_object()
}

/// One word for the pod, from its phase, init containers, containers and deletion, in this order.
fn reason(pod: &Value) -> String {
    let status = &pod["status"];
    let mut reason = text(&status["reason"]);
    if reason.is_empty() {
        reason = text(&status["phase"]);
    }
    let gated = list(&status["conditions"]).any(|c| c["type"] == "PodScheduled" && c["reason"] == "SchedulingGated");
    if gated {
        "SchedulingGated".clone_into(&mut reason);
    }
    match initialising(pod) {
        Some(init) => reason = init,
        None => reason = running(pod, reason),
    }
    if pod["metadata"].get("deletionTimestamp").is_some() {
        let lost = status["reason"] == "NodeLost";
        if lost {
            "Unknown".clone_into(&mut reason);
        } else if !["Succeeded", "Failed"].contains(&text(&status["phase"]).as_str()) {
            "Terminating".clone_into(&mut reason);
        }
    }
    reason
}

/// `Init:…` while an init container has not ended well.
fn initialising(pod: &Value) -> Option<String> {
    let containers = &pod["spec"]["initContainers"];
    let total = list(containers).count();
    for (i, status) in list(&pod["status"]["initContainerStatuses"]).enumerate() {
        let sidecar = list(containers).any(|c| c["name"] == status["name"] && is_sidecar(c));
        let (state, ended) = (&status["state"], &status["state"]["terminated"]);
        if ended.is_object() && ended["exitCode"] == 0 {
            continue;
        }
        if sidecar && status["started"] == true {
            continue;
        }
        if ended.is_object() {
            return Some(format!("Init:{}", ending(ended)));
        }
        let waiting = text(&state["waiting"]["reason"]);
        if !waiting.is_empty() && waiting != "PodInitializing" {
            return Some(format!("Init:{waiting}"));
        }
        return Some(format!("Init:{i}/{total}"));
    }
    None
}

/// The state of the containers of a pod that is past its init containers.
fn running(pod: &Value, mut reason: String) -> String {
    let mut any_running = false;
    let statuses: Vec<&Value> = list(&pod["status"]["containerStatuses"]).collect();
    for status in statuses.iter().rev() {
        let state = &status["state"];
        let waiting = text(&state["waiting"]["reason"]);
        if !waiting.is_empty() {
            reason = waiting;
        } else if state["terminated"].is_object() {
            reason = ending(&state["terminated"]);
        } else if status["ready"] == true && is_running(status) {
            any_running = true;
        }
    }
    if reason == "Completed" && any_running {
        let ready = list(&pod["status"]["conditions"]).any(|c| c["type"] == "Ready" && c["status"] == "True");
        return if ready { "Running".to_owned() } else { "NotReady".to_owned() };
    }
    reason
}

fn ending(ended: &Value) -> String {
    let reason = text(&ended["reason"]);
    match (reason.is_empty(), number(&ended["signal"])) {
        (false, _) => reason,
        (true, 0) => format!("ExitCode:{}", number(&ended["exitCode"])),
        (true, signal) => format!("Signal:{signal}"),
    }
}

/// Number of restarts, and how long ago the last one was.
fn restarts(pod: &Value, now: Time) -> String {
    let statuses: Vec<&Value> = list(&pod["status"]["containerStatuses"]).collect();
    let total: i64 = statuses.iter().map(|s| number(&s["restartCount"])).sum();
    let last = statuses
        .iter()
        .filter_map(|s| Time::parse(s["lastState"]["terminated"]["finishedAt"].as_str()?))
        .max()
        .filter(|_| total > 0);
    last.map_or_else(|| total.to_string(), |t| format!("{total} ({} ago)", age_between(t, now)))
}

fn address(status: &Value) -> String {
    let first = list(&status["podIPs"]).next().map(|a| &a["ip"]);
    or_none(first.unwrap_or(&status["podIP"]))
}

fn gates(pod: &Value) -> String {
    let gates: Vec<&Value> = list(&pod["spec"]["readinessGates"]).collect();
    if gates.is_empty() {
        return "<none>".to_owned();
    }
    let met = gates.iter().filter(|g| {
        list(&pod["status"]["conditions"]).any(|c| c["type"] == g["conditionType"] && c["status"] == "True")
    });
    format!("{}/{}", met.count(), gates.len())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn shown(status: &Value) -> (String, String) {
        let pod = json!({"metadata": {"name": "a"}, "spec": {"containers": [{"name": "c"}]}, "status": status});
        let cells = cells(&pod, Time(60_000));
        (text(&cells[1]), text(&cells[2]))
    }

    #[test]
    fn a_pod_is_shown_by_what_its_containers_do() {
        let pair = |a: &str, b: &str| (a.to_owned(), b.to_owned());
        assert_eq!(shown(&json!({"phase": "Pending"})), pair("0/1", "Pending"));
        let waiting = json!({"phase": "Pending", "containerStatuses": [{"name": "c", "state": {"waiting": {"reason": "ContainerCreating"}}}]});
        assert_eq!(shown(&waiting), pair("0/1", "ContainerCreating"));
        let running =
            json!({"phase": "Running", "containerStatuses": [{"name": "c", "ready": true, "state": {"running": {}}}]});
        assert_eq!(shown(&running), pair("1/1", "Running"));
        let done = json!({"phase": "Succeeded", "containerStatuses": [{"name": "c", "ready": false,
            "state": {"terminated": {"reason": "Completed", "exitCode": 0}}}]});
        assert_eq!(shown(&done), pair("0/1", "Completed"));
        let bad =
            json!({"phase": "Failed", "containerStatuses": [{"name": "c", "state": {"terminated": {"exitCode": 3}}}]});
        assert_eq!(shown(&bad), pair("0/1", "ExitCode:3"));
    }
}
