//! What a server fills into objects of built-in kinds, and what it finds wrong with them.
//! Must not know the store: what depends on other objects (namespaces, ServiceAccounts, PriorityClasses) is admitted there.

mod configuration;
mod pod;
mod pod_check;
mod quantities;
mod service;
mod workload;

use serde_json::{Map, Value, json};

use super::cause::Cause;
use super::registry::ResourceType;

pub use quantities::canonical_quantities;
pub use service::allocate_addresses;

/// Fills in what a real server does. On create (`old` is `None`) name and UID stand in the metadata already, and a
/// Pod's `spec.priority` where its class is none of the system's. On update, `old` is what is stored.
pub fn apply(ty: &ResourceType, object: &mut Value, old: Option<&Value>) {
    match (ty.group.as_str(), ty.kind.as_str()) {
        ("", "Pod") => pod::fill(object, old),
        ("", "Service") => service::fill(object, old),
        ("", "Secret") => configuration::fill_secret(object),
        ("", "Namespace") => namespace(object, old),
        ("", "Node") => node(object, old),
        ("", "Event") => event(object),
        ("events.k8s.io", "Event") => newer_event(object),
        ("", "Endpoints") => endpoints(object),
        ("", "PersistentVolumeClaim") => claim(object, old),
        ("batch", "Job") => workload::fill_job(object, old),
        ("batch", "CronJob") => workload::fill_cron_job(object, old),
        ("apps", "Deployment" | "ReplicaSet" | "StatefulSet" | "DaemonSet") => workload::fill(&ty.kind, object, old),
        ("discovery.k8s.io", "EndpointSlice") => slice(object),
        ("scheduling.k8s.io", "PriorityClass") => default(object, "preemptionPolicy", json!("PreemptLowerPriority")),
        ("rbac.authorization.k8s.io", "RoleBinding" | "ClusterRoleBinding") => binding(object),
        ("policy", "PodDisruptionBudget") if old.is_none() => {
            object["status"] =
                json!({"disruptionsAllowed": 0, "currentHealthy": 0, "desiredHealthy": 0, "expectedPods": 0});
        }
        ("coordination.k8s.io", "Lease") => default(object, "spec", json!({})),
        ("networking.k8s.io", "NetworkPolicy") => network_policy(object),
        ("networking.k8s.io", "Ingress") if old.is_none() => object["status"] = json!({"loadBalancer": {}}),
        ("", "ResourceQuota") if old.is_none() => object["status"] = json!({}),
        ("", "LimitRange") => super::limit_range::fill_range(object),
        ("autoscaling", "HorizontalPodAutoscaler") => autoscaler(object, old),
        _ => {}
    }
}

/// Everything wrong with the object, defaults filled in. On update, `old` is what is stored. Metadata is not looked at.
pub fn validate(ty: &ResourceType, object: &Value, old: Option<&Value>) -> Vec<Cause> {
    match (ty.group.as_str(), ty.kind.as_str()) {
        ("", "Pod") => pod_check::check(object, old),
        ("", "Service") => service::check(object, old),
        ("", "ConfigMap") => configuration::check_config_map(object, old),
        ("", "Secret") => configuration::check_secret(object, old),
        ("", "Event") => event_check(object),
        ("", "ResourceQuota") => quota_check(object, old),
        ("events.k8s.io", "Event") => newer_event_check(object, old),
        ("", "Node") => node_check(object),
        ("batch", "Job") => workload::check_job(object, old),
        ("batch", "CronJob") => workload::check_cron_job(object),
        ("apps", "Deployment" | "ReplicaSet" | "StatefulSet" | "DaemonSet") => workload::check(&ty.kind, object, old),
        ("coordination.k8s.io", "Lease") => lease_check(object),
        ("discovery.k8s.io", "EndpointSlice") => {
            let mut out = Vec::new();
            immutable("addressType", object, old, &mut out);
            out
        }
        ("scheduling.k8s.io", "PriorityClass") => match old {
            Some(old) if old["value"] != object["value"] => {
                vec![Cause::forbidden("value", "may not be changed in an update.")]
            }
            _ => Vec::new(),
        },
        ("rbac.authorization.k8s.io", "Role" | "ClusterRole") => rules_check(object),
        ("rbac.authorization.k8s.io", "RoleBinding" | "ClusterRoleBinding") => binding_check(object, old),
        _ => Vec::new(),
    }
}

/// CPU at 80 % where nothing is said of metrics.
fn autoscaler(object: &mut Value, old: Option<&Value>) {
    let spec = part(object, "spec");
    default(spec, "minReplicas", json!(1));
    let target = json!({"type": "Utilization", "averageUtilization": 80});
    default(spec, "metrics", json!([{"type": "Resource", "resource": {"name": "cpu", "target": target}}]));
    if old.is_none() {
        object["status"] = json!({"desiredReplicas": 0, "currentMetrics": null});
    }
}

/// Which objects a quota counts is said once.
fn quota_check(object: &Value, old: Option<&Value>) -> Vec<Cause> {
    let Some(old) = old else { return Vec::new() };
    let changed = |field: &&str| old["spec"][*field] != object["spec"][*field];
    let causes = ["scopes", "scopeSelector"].into_iter().filter(changed);
    causes.map(|field| Cause::invalid(format!("spec.{field}"), &object["spec"][field], "field is immutable")).collect()
}

/// Sets a field that is missing or null.
fn default(object: &mut Value, key: &str, value: Value) {
    if let Some(map) = object.as_object_mut()
        && map.get(key).is_none_or(Value::is_null)
    {
        map.insert(key.to_owned(), value);
    }
}

/// The object at a key, made where it is missing.
fn part<'a>(object: &'a mut Value, key: &str) -> &'a mut Value {
    if !object[key].is_object() {
        object[key] = Value::Object(Map::new());
    }
    &mut object[key]
}

/// Elements of an array to change, none for anything else.
fn each<'a>(object: &'a mut Value, key: &str) -> impl Iterator<Item = &'a mut Value> {
    object.get_mut(key).and_then(Value::as_array_mut).into_iter().flatten()
}

/// Elements of an array, none for anything else.
fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

/// Text of a string, empty for anything else.
fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// A field that never changes.
fn immutable(field: &str, object: &Value, old: Option<&Value>, out: &mut Vec<Cause>) {
    let at = |value: &Value| field.split('.').try_fold(value.clone(), |v, key| v.get(key).cloned());
    if let Some(old) = old
        && at(old) != at(object)
    {
        out.push(Cause::invalid(field, &at(object).unwrap_or_default(), "field is immutable"));
    }
}

fn namespace(object: &mut Value, old: Option<&Value>) {
    let name = object["metadata"]["name"].clone();
    part(part(object, "metadata"), "labels")["kubernetes.io/metadata.name"] = name;
    // Later only the subresource `finalize` changes the finalizers: updates have carried them over already.
    if old.is_none() {
        let finalizers = part(object, "spec");
        let mut all = vec![json!("kubernetes")];
        all.extend(list(&finalizers["finalizers"]).filter(|f| **f != "kubernetes").cloned());
        finalizers["finalizers"] = Value::Array(all);
        object["status"] = json!({"phase": "Active"});
    }
}

const NODE_INFO: [&str; 10] = [
    "machineID",
    "systemUUID",
    "bootID",
    "kernelVersion",
    "osImage",
    "containerRuntimeVersion",
    "kubeletVersion",
    "kubeProxyVersion",
    "operatingSystem",
    "architecture",
];

fn node(object: &mut Value, old: Option<&Value>) {
    let status = part(object, "status");
    if status["capacity"].is_object() {
        let capacity = status["capacity"].clone();
        default(status, "allocatable", capacity);
    }
    default(part(status, "daemonEndpoints"), "kubeletEndpoint", json!({"Port": 0}));
    let info = part(status, "nodeInfo");
    for key in NODE_INFO {
        default(info, key, json!(""));
    }
    for condition in each(status, "conditions") {
        default(condition, "lastHeartbeatTime", Value::Null);
        default(condition, "lastTransitionTime", Value::Null);
    }
    if old.is_none() {
        // Admission taints each new node; whoever sees it ready takes the taint away.
        let taint = json!({"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"});
        let spec = part(object, "spec");
        let mut taints: Vec<Value> = list(&spec["taints"]).cloned().collect();
        if !taints.iter().any(|t| t["key"] == taint["key"] && t["effect"] == taint["effect"]) {
            taints.push(taint);
        }
        spec["taints"] = Value::Array(taints);
    } else {
        part(object, "spec");
    }
}

fn node_check(object: &Value) -> Vec<Cause> {
    let allowed = ["NoSchedule", "PreferNoSchedule", "NoExecute"].map(str::to_owned);
    list(&object["spec"]["taints"])
        .enumerate()
        .filter(|(_, t)| !allowed.iter().any(|a| *a == text(&t["effect"])))
        .map(|(i, t)| Cause::unsupported(format!("metadata.taints[{i}].effect"), &t["effect"], &allowed))
        .collect()
}

fn event(object: &mut Value) {
    for key in ["firstTimestamp", "lastTimestamp", "eventTime"] {
        default(object, key, Value::Null);
    }
    part(object, "source");
    default(object, "reportingComponent", json!(""));
    default(object, "reportingInstance", json!(""));
}

fn newer_event(object: &mut Value) {
    default(object, "eventTime", Value::Null);
    part(object, "deprecatedSource");
    default(object, "deprecatedFirstTimestamp", Value::Null);
    default(object, "deprecatedLastTimestamp", Value::Null);
}

fn event_check(object: &Value) -> Vec<Cause> {
    let (own, theirs) = (&object["metadata"]["namespace"], &object["involvedObject"]["namespace"]);
    // Events of cluster-scoped objects stand in `default`.
    let cluster = text(theirs).is_empty() && matches!(text(own), "" | "default");
    if own == theirs || cluster {
        return Vec::new();
    }
    vec![Cause::invalid("involvedObject.namespace", &json!(text(theirs)), "does not match event.namespace")]
}

fn newer_event_check(object: &Value, old: Option<&Value>) -> Vec<Cause> {
    let mut out = Vec::new();
    if old.is_some() {
        return out;
    }
    if text(&object["eventTime"]).is_empty() {
        out.push(Cause::required("eventTime", ""));
    }
    if !matches!(text(&object["type"]), "Normal" | "Warning") {
        let kind = text(&object["type"]);
        out.push(Cause::invalid("type", &json!(""), format!("has invalid value: {kind}")));
    }
    out
}

fn endpoints(object: &mut Value) {
    for subset in each(object, "subsets") {
        each(subset, "ports").for_each(|port| default(port, "protocol", json!("TCP")));
    }
}

fn slice(object: &mut Value) {
    each(object, "endpoints").for_each(|e| default(e, "conditions", json!({})));
    for port in each(object, "ports") {
        default(port, "name", json!(""));
        default(port, "protocol", json!("TCP"));
    }
    for key in ["endpoints", "ports"] {
        if object[key].as_array().is_none_or(Vec::is_empty) {
            object[key] = Value::Null;
        }
    }
}

fn network_policy(object: &mut Value) {
    let spec = part(object, "spec");
    for direction in ["ingress", "egress"] {
        for rule in each(spec, direction) {
            each(rule, "ports").for_each(|port| default(port, "protocol", json!("TCP")));
        }
    }
    let mut kinds = vec!["Ingress"];
    if list(&spec["egress"]).next().is_some() {
        kinds.push("Egress");
    }
    default(spec, "policyTypes", json!(kinds));
}

fn claim(object: &mut Value, old: Option<&Value>) {
    default(part(object, "spec"), "volumeMode", json!("Filesystem"));
    if old.is_none() {
        object["status"] = json!({"phase": "Pending"});
        let metadata = part(object, "metadata");
        let mut finalizers: Vec<Value> = list(&metadata["finalizers"]).cloned().collect();
        finalizers.push(json!("kubernetes.io/pvc-protection"));
        metadata["finalizers"] = Value::Array(finalizers);
    }
}

fn binding(object: &mut Value) {
    default(part(object, "roleRef"), "apiGroup", json!("rbac.authorization.k8s.io"));
    for subject in each(object, "subjects") {
        if matches!(text(&subject["kind"]), "User" | "Group") {
            default(subject, "apiGroup", json!("rbac.authorization.k8s.io"));
        }
    }
}

fn binding_check(object: &Value, old: Option<&Value>) -> Vec<Cause> {
    let role = &object["roleRef"];
    match old {
        Some(old) if old["roleRef"] != *role => {
            let shown =
                format!("{{\"APIGroup\":{},\"Kind\":{},\"Name\":{}}}", role["apiGroup"], role["kind"], role["name"]);
            let message = format!("Invalid value: {shown}: cannot change roleRef");
            vec![Cause { reason: "FieldValueInvalid", message, field: "roleRef".to_owned() }]
        }
        _ => Vec::new(),
    }
}

fn rules_check(object: &Value) -> Vec<Cause> {
    let mut out = Vec::new();
    let empty = |value: &Value| list(value).next().is_none();
    for (i, rule) in list(&object["rules"]).enumerate() {
        if empty(&rule["verbs"]) {
            out.push(Cause::required(format!("rules[{i}].verbs"), "verbs must contain at least one value"));
        }
        if !empty(&rule["nonResourceURLs"]) {
            continue;
        }
        if empty(&rule["apiGroups"]) {
            let detail = "resource rules must supply at least one api group";
            out.push(Cause::required(format!("rules[{i}].apiGroups"), detail));
        }
        if empty(&rule["resources"]) {
            let detail = "resource rules must supply at least one resource";
            out.push(Cause::required(format!("rules[{i}].resources"), detail));
        }
    }
    out
}

fn lease_check(object: &Value) -> Vec<Cause> {
    let spec = &object["spec"];
    let mut out = Vec::new();
    for (key, least, detail) in [
        ("leaseDurationSeconds", 1, "must be greater than 0"),
        ("leaseTransitions", 0, "must be greater than or equal to 0"),
    ] {
        if spec[key].as_i64().is_some_and(|n| n < least) {
            out.push(Cause::invalid(format!("spec.{key}"), &spec[key], detail));
        }
    }
    out
}

#[cfg(test)]
mod tests;
