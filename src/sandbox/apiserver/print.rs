//! Cells of built-in kinds as `kubectl get` shows them.
//! Must not know tables' frame or custom resources (`table`). Source of the rules: the recordings and kubectl's output.

use serde_json::Value;

use super::registry::ResourceType;
use super::table::Heading;
use super::{print_more, print_pod};
use crate::api::Time;

/// Headings of a kind. Kinds without a printer of their own show name and time of creation.
pub(super) fn headings(ty: &ResourceType) -> Vec<Heading> {
    let (plain, wide) = words(ty);
    // Where wide columns stand between others they are marked by a leading `+`.
    let plain = plain.iter().map(|w| w.strip_prefix('+').map_or((*w, 0), |w| (w, 1)));
    plain.chain(wide.iter().map(|w| (*w, 1))).map(|(name, priority)| Heading { name, priority }).collect()
}

type Words = (&'static [&'static str], &'static [&'static str]);

fn words(ty: &ResourceType) -> Words {
    match (ty.group.as_str(), ty.kind.as_str()) {
        ("", "Pod") => {
            (&["Name", "Ready", "Status", "Restarts", "Age"], &["IP", "Node", "Nominated Node", "Readiness Gates"])
        }
        ("", "Service") => (&["Name", "Type", "Cluster-IP", "External-IP", "Port(s)", "Age"], &["Selector"]),
        ("", "Node") => (
            &["Name", "Status", "Roles", "Age", "Version"],
            &["Internal-IP", "External-IP", "OS-Image", "Kernel-Version", "Container-Runtime"],
        ),
        ("", "Namespace") => (&["Name", "Status", "Age"], &[]),
        ("", "Secret") => (&["Name", "Type", "Data", "Age"], &[]),
        ("", "ConfigMap") => (&["Name", "Data", "Age"], &[]),
        ("", "ServiceAccount") => (&["Name", "Age"], &[]),
        ("", "Endpoints") => (&["Name", "Endpoints", "Age"], &[]),
        ("" | "events.k8s.io", "Event") => (
            &["Last Seen", "Type", "Reason", "Object", "+Subobject", "+Source", "Message"],
            &["First Seen", "Count", "Name"],
        ),
        ("batch", "Job") => {
            (&["Name", "Status", "Completions", "Duration", "Age"], &["Containers", "Images", "Selector"])
        }
        ("apps", "Deployment") => {
            (&["Name", "Ready", "Up-to-date", "Available", "Age"], &["Containers", "Images", "Selector"])
        }
        ("apps", "ReplicaSet") => {
            (&["Name", "Desired", "Current", "Ready", "Age"], &["Containers", "Images", "Selector"])
        }
        ("apps", "StatefulSet") => (&["Name", "Ready", "Age"], &["Containers", "Images"]),
        ("coordination.k8s.io", "Lease") => (&["Name", "Holder", "Age"], &[]),
        ("discovery.k8s.io", "EndpointSlice") => (&["Name", "AddressType", "Ports", "Endpoints", "Age"], &[]),
        ("scheduling.k8s.io", "PriorityClass") => {
            (&["Name", "Value", "Global-Default", "Age", "PreemptionPolicy"], &[])
        }
        ("rbac.authorization.k8s.io", "RoleBinding" | "ClusterRoleBinding") => {
            (&["Name", "Role", "Age"], &["Users", "Groups", "ServiceAccounts"])
        }
        ("networking.k8s.io", "NetworkPolicy") => (&["Name", "Pod-Selector", "Age"], &[]),
        ("networking.k8s.io", "Ingress") => (&["Name", "Class", "Hosts", "Address", "Ports", "Age"], &[]),
        ("policy", "PodDisruptionBudget") => {
            (&["Name", "Min Available", "Max Unavailable", "Allowed Disruptions", "Age"], &[])
        }
        ("", "PersistentVolumeClaim") => (
            &["Name", "Status", "Volume", "Capacity", "Access Modes", "StorageClass", "VolumeAttributesClass", "Age"],
            &["VolumeMode"],
        ),
        _ => (&["Name", "Created At"], &[]),
    }
}

/// Cells in the order of the headings.
pub(super) fn cells(ty: &ResourceType, item: &Value, now: Time) -> Vec<Value> {
    let name = &item["metadata"]["name"];
    let age = age(&item["metadata"]["creationTimestamp"], now);
    match (ty.group.as_str(), ty.kind.as_str()) {
        ("", "Pod") => print_pod::cells(item, now),
        ("", "Service") => service(item, &age),
        ("", "Node") => node(item, &age),
        ("", "Namespace") => vec![name.clone(), item["status"]["phase"].clone(), age.into()],
        ("", "Secret") => vec![name.clone(), item["type"].clone(), count(&item["data"]).into(), age.into()],
        ("", "ConfigMap") => {
            vec![name.clone(), (count(&item["data"]) + count(&item["binaryData"])).into(), age.into()]
        }
        ("", "ServiceAccount") => vec![name.clone(), age.into()],
        ("", "Endpoints") => vec![name.clone(), endpoints(item).into(), age.into()],
        ("" | "events.k8s.io", "Event") => event(item, now),
        ("batch", "Job") => job(item, &age, now),
        ("apps", "Deployment") => deployment(item, &age),
        ("apps", "ReplicaSet") => {
            let mut row = vec![name.clone(), number(&item["spec"]["replicas"]).into()];
            row.push(number(&item["status"]["replicas"]).into());
            row.push(number(&item["status"]["readyReplicas"]).into());
            row.push(age.into());
            row.extend(template(item));
            row.push(selector(&item["spec"]["selector"]["matchLabels"]).into());
            row
        }
        ("apps", "StatefulSet") => {
            let mut row = vec![name.clone(), ready(item).into(), age.into()];
            row.extend(template(item));
            row
        }
        ("coordination.k8s.io", "Lease") => {
            vec![name.clone(), text(&item["spec"]["holderIdentity"]).into(), age.into()]
        }
        ("discovery.k8s.io", "EndpointSlice") => slice(item, &age),
        ("scheduling.k8s.io", "PriorityClass") => vec![
            name.clone(),
            item["value"].clone(),
            item["globalDefault"].as_bool().unwrap_or(false).into(),
            age.into(),
            item["preemptionPolicy"].clone(),
        ],
        ("rbac.authorization.k8s.io", "RoleBinding" | "ClusterRoleBinding") => print_more::binding(item, &age),
        ("networking.k8s.io", "NetworkPolicy") => print_more::policy(item, &age),
        ("networking.k8s.io", "Ingress") => print_more::ingress(item, &age),
        ("policy", "PodDisruptionBudget") => print_more::budget(item, &age),
        ("", "PersistentVolumeClaim") => print_more::claim(item, &age),
        _ => vec![name.clone(), item["metadata"]["creationTimestamp"].clone()],
    }
}

fn service(item: &Value, age: &str) -> Vec<Value> {
    let spec = &item["spec"];
    let external = match text(&spec["type"]).as_str() {
        "ExternalName" => text(&spec["externalName"]),
        "LoadBalancer" => "<pending>".to_owned(),
        _ => {
            let ips: Vec<String> = list(&spec["externalIPs"]).map(text).collect();
            if ips.is_empty() { "<none>".to_owned() } else { ips.join(",") }
        }
    };
    let ports: Vec<String> = list(&spec["ports"])
        .map(|p| {
            let node = p["nodePort"].as_i64().filter(|n| *n > 0).map_or_else(String::new, |n| format!(":{n}"));
            format!("{}{node}/{}", p["port"], text(&p["protocol"]))
        })
        .collect();
    vec![
        item["metadata"]["name"].clone(),
        spec["type"].clone(),
        or_none(&spec["clusterIP"]).into(),
        external.into(),
        if ports.is_empty() { "<none>".into() } else { ports.join(",").into() },
        age.into(),
        selector(&spec["selector"]).into(),
    ]
}

fn node(item: &Value, age: &str) -> Vec<Value> {
    let (status, info) = (&item["status"], &item["status"]["nodeInfo"]);
    let ready = list(&status["conditions"]).find(|c| c["type"] == "Ready");
    let mut state = match ready.and_then(|c| c["status"].as_str()) {
        Some("True") => "Ready".to_owned(),
        Some(_) => "NotReady".to_owned(),
        None => "Unknown".to_owned(),
    };
    if item["spec"]["unschedulable"] == true {
        state.push_str(",SchedulingDisabled");
    }
    let labels = item["metadata"]["labels"].as_object();
    let roles: Vec<String> = labels
        .into_iter()
        .flatten()
        .filter_map(|(key, value)| {
            let named = key.strip_prefix("node-role.kubernetes.io/").filter(|r| !r.is_empty());
            named.map(str::to_owned).or_else(|| (key == "kubernetes.io/role").then(|| text(value)))
        })
        .collect();
    let address = |kind: &str| {
        list(&status["addresses"]).find(|a| a["type"] == kind).map_or("<none>".to_owned(), |a| text(&a["address"]))
    };
    let known = |key: &str| info[key].as_str().filter(|t| !t.is_empty()).unwrap_or("<unknown>").to_owned();
    let mut kernel = known("kernelVersion");
    if let Some(arch) = info["architecture"].as_str().filter(|a| !a.is_empty()) {
        kernel = format!("{kernel} ({arch})");
    }
    vec![
        item["metadata"]["name"].clone(),
        state.into(),
        if roles.is_empty() { "<none>".into() } else { roles.join(",").into() },
        age.into(),
        text(&info["kubeletVersion"]).into(),
        address("InternalIP").into(),
        address("ExternalIP").into(),
        known("osImage").into(),
        kernel.into(),
        known("containerRuntimeVersion").into(),
    ]
}

/// Both forms of Event: fields that the newer one renamed are looked for under both names.
fn event(item: &Value, now: Time) -> Vec<Value> {
    let either = |a: &str, b: &str| if item.get(a).is_some_and(|v| !v.is_null()) { &item[a] } else { &item[b] };
    let first = either("firstTimestamp", "deprecatedFirstTimestamp");
    let first = if first.is_string() { first } else { &item["eventTime"] };
    let last = either("lastTimestamp", "deprecatedLastTimestamp");
    let (last, count) = if item["series"].is_object() {
        (&item["series"]["lastObservedTime"], number(&item["series"]["count"]))
    } else {
        let count = number(either("count", "deprecatedCount"));
        (if last.is_string() { last } else { first }, count.max(1))
    };
    let object = either("involvedObject", "regarding");
    let target = match object["name"].as_str() {
        Some(name) if !name.is_empty() => format!("{}/{name}", text(&object["kind"]).to_lowercase()),
        _ => text(&object["kind"]).to_lowercase(),
    };
    let source = either("source", "deprecatedSource");
    let mut from = text(&source["component"]);
    if from.is_empty() {
        from = text(either("reportingComponent", "reportingController"));
    }
    let mut host = text(&source["host"]);
    if host.is_empty() {
        host = text(&item["reportingInstance"]);
    }
    if !host.is_empty() {
        from = format!("{from}, {host}");
    }
    vec![
        age(last, now).into(),
        text(&item["type"]).into(),
        text(&item["reason"]).into(),
        target.into(),
        text(&object["fieldPath"]).into(),
        from.into(),
        text(either("message", "note")).trim().into(),
        age(first, now).into(),
        count.into(),
        item["metadata"]["name"].clone(),
    ]
}

fn job(item: &Value, age: &str, now: Time) -> Vec<Value> {
    let (spec, status) = (&item["spec"], &item["status"]);
    let is = |kind: &str| list(&status["conditions"]).any(|c| c["type"] == kind && c["status"] == "True");
    let state = if is("Complete") {
        "Complete"
    } else if is("Failed") {
        "Failed"
    } else if item["metadata"].get("deletionTimestamp").is_some() {
        "Terminating"
    } else {
        ["Suspended", "FailureTarget", "SuccessCriteriaMet"].into_iter().find(|c| is(c)).unwrap_or("Running")
    };
    let done = number(&status["succeeded"]);
    let completions = match (spec["completions"].as_i64(), spec["parallelism"].as_i64()) {
        (Some(wanted), _) => format!("{done}/{wanted}"),
        (None, Some(parallel)) if parallel > 1 => format!("{done}/1 of {parallel}"),
        _ => format!("{done}/1"),
    };
    let start = status["startTime"].as_str().and_then(Time::parse);
    let end = status["completionTime"].as_str().and_then(Time::parse).unwrap_or(now);
    let mut row = vec![
        item["metadata"]["name"].clone(),
        state.into(),
        completions.into(),
        start.map_or_else(String::new, |s| age_between(s, end)).into(),
        age.into(),
    ];
    row.extend(template(item));
    row.push(selector(&spec["selector"]["matchLabels"]).into());
    row
}

fn deployment(item: &Value, age: &str) -> Vec<Value> {
    let status = &item["status"];
    let mut row = vec![
        item["metadata"]["name"].clone(),
        ready(item).into(),
        number(&status["updatedReplicas"]).into(),
        number(&status["availableReplicas"]).into(),
        age.into(),
    ];
    row.extend(template(item));
    row.push(selector(&item["spec"]["selector"]["matchLabels"]).into());
    row
}

fn slice(item: &Value, age: &str) -> Vec<Value> {
    let ports: Vec<String> = list(&item["ports"]).map(|p| p["port"].to_string()).collect();
    let addresses: Vec<String> = list(&item["endpoints"]).flat_map(|e| list(&e["addresses"])).map(text).collect();
    let shown = |all: &[String]| if all.is_empty() { "<unset>".to_owned() } else { all.join(",") };
    vec![
        item["metadata"]["name"].clone(),
        item["addressType"].clone(),
        shown(&ports).into(),
        shown(&addresses).into(),
        age.into(),
    ]
}

/// Addresses with ports, the first three of them.
fn endpoints(item: &Value) -> String {
    let mut all = Vec::new();
    for subset in list(&item["subsets"]) {
        for port in list(&subset["ports"]) {
            all.extend(list(&subset["addresses"]).map(|a| format!("{}:{}", text(&a["ip"]), port["port"])));
        }
    }
    match all.len() {
        0 => "<none>".to_owned(),
        1..=3 => all.join(","),
        more => format!("{} + {} more...", all[..3].join(","), more - 3),
    }
}

fn ready(item: &Value) -> String {
    format!("{}/{}", number(&item["status"]["readyReplicas"]), number(&item["spec"]["replicas"]))
}

/// Names and images of the containers of a pod template.
fn template(item: &Value) -> Vec<Value> {
    let containers = &item["spec"]["template"]["spec"]["containers"];
    let joined = |key: &str| list(containers).map(|c| text(&c[key])).collect::<Vec<_>>().join(",");
    vec![joined("name").into(), joined("image").into()]
}

/// Labels as a selector, `<none>` where there are none.
pub(super) fn selector(labels: &Value) -> String {
    let parts: Vec<String> =
        labels.as_object().into_iter().flatten().map(|(k, v)| format!("{k}={}", text(v))).collect();
    if parts.is_empty() { "<none>".to_owned() } else { parts.join(",") }
}

/// Text of a string, empty for anything else.
pub(super) fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

/// Text, or `<none>` where it is empty.
pub(super) fn or_none(value: &Value) -> String {
    value.as_str().filter(|t| !t.is_empty()).unwrap_or("<none>").to_owned()
}

/// Elements of an array, none for anything else.
pub(super) fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

/// A whole number, 0 for anything else.
pub(super) fn number(value: &Value) -> i64 {
    value.as_i64().unwrap_or(0)
}

fn count(value: &Value) -> usize {
    value.as_object().map_or(0, serde_json::Map::len)
}

/// Time since a timestamp, `<unknown>` where there is none.
pub(super) fn age(timestamp: &Value, now: Time) -> String {
    timestamp.as_str().and_then(Time::parse).map_or_else(|| "<unknown>".to_owned(), |t| age_between(t, now))
}

/// A duration as kubectl shows it: two units at most, coarser the longer it is.
pub(super) fn age_between(from: Time, to: Time) -> String {
    let seconds = (to.0 - from.0).div_euclid(1000);
    if seconds < -1 {
        return "<invalid>".to_owned();
    }
    let seconds = seconds.max(0);
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86_400);
    let two = |a: i64, x: char, b: i64, y: char| if b == 0 { format!("{a}{x}") } else { format!("{a}{x}{b}{y}") };
    if seconds < 120 {
        format!("{seconds}s")
    } else if minutes < 10 {
        two(minutes, 'm', seconds % 60, 's')
    } else if minutes < 180 {
        format!("{minutes}m")
    } else if hours < 8 {
        two(hours, 'h', minutes % 60, 'm')
    } else if hours < 48 {
        format!("{hours}h")
    } else if hours < 192 {
        two(days, 'd', hours % 24, 'h')
    } else if days < 730 {
        format!("{days}d")
    } else if days < 8 * 365 {
        two(days / 365, 'y', days % 365, 'd')
    } else {
        format!("{}y", days / 365)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::registry::Registry;
    use super::*;

    #[test]
    fn durations_read_as_kubectl_shows_them() {
        for (seconds, text) in [
            (0, "0s"),
            (119, "119s"),
            (120, "2m"),
            (605, "10m"),
            (125, "2m5s"),
            (3 * 3600, "3h"),
            (3 * 3600 + 60, "3h1m"),
            (50 * 3600, "2d2h"),
            (20 * 86_400, "20d"),
        ] {
            assert_eq!(age_between(Time(0), Time(seconds * 1000)), text);
        }
    }

    #[test]
    fn each_row_has_as_many_cells_as_headings() {
        for ty in Registry::new().all() {
            let item = json!({"metadata": {"name": "a"}});
            assert_eq!(headings(ty).len(), cells(ty, &item, Time(0)).len(), "{}", ty.qualified());
        }
    }
}
