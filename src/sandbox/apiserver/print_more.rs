//! Cells of kinds that Ray's surroundings bring along: bindings of roles, networking, budgets, claims.
//! Must not know tables' frame. Source: what a real server prints.

use serde_json::Value;

use super::print::{list, number, selector, text};

/// RoleBinding and ClusterRoleBinding.
pub(super) fn binding(item: &Value, age: &str) -> Vec<Value> {
    let role = &item["roleRef"];
    let subjects = |kind: &str| -> Value {
        let named = list(&item["subjects"]).filter(|s| s["kind"] == kind);
        let shown = named.map(|s| match s["namespace"].as_str() {
            Some(namespace) if kind == "ServiceAccount" => format!("{namespace}/{}", text(&s["name"])),
            _ => text(&s["name"]),
        });
        shown.collect::<Vec<_>>().join(", ").into()
    };
    vec![
        item["metadata"]["name"].clone(),
        format!("{}/{}", text(&role["kind"]), text(&role["name"])).into(),
        age.into(),
        subjects("User"),
        subjects("Group"),
        subjects("ServiceAccount"),
    ]
}

/// NetworkPolicy.
pub(super) fn policy(item: &Value, age: &str) -> Vec<Value> {
    let pods = selector(&item["spec"]["podSelector"]["matchLabels"]);
    vec![item["metadata"]["name"].clone(), pods.into(), age.into()]
}

/// Ingress.
pub(super) fn ingress(item: &Value, age: &str) -> Vec<Value> {
    let spec = &item["spec"];
    let class = spec["ingressClassName"].as_str().unwrap_or("<none>");
    let hosts: Vec<String> = list(&spec["rules"]).map(|r| text(&r["host"])).filter(|h| !h.is_empty()).collect();
    let hosts = if hosts.is_empty() { "*".to_owned() } else { hosts.join(",") };
    let address = |a: &Value| if text(&a["ip"]).is_empty() { text(&a["hostname"]) } else { text(&a["ip"]) };
    let addresses: Vec<String> = list(&item["status"]["loadBalancer"]["ingress"]).map(address).collect();
    let ports = if list(&spec["tls"]).next().is_some() { "80, 443" } else { "80" };
    vec![
        item["metadata"]["name"].clone(),
        class.into(),
        hosts.into(),
        addresses.join(",").into(),
        ports.into(),
        age.into(),
    ]
}

/// PodDisruptionBudget.
pub(super) fn budget(item: &Value, age: &str) -> Vec<Value> {
    let limit = |value: &Value| match value {
        Value::Null => "N/A".to_owned(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    vec![
        item["metadata"]["name"].clone(),
        limit(&item["spec"]["minAvailable"]).into(),
        limit(&item["spec"]["maxUnavailable"]).into(),
        number(&item["status"]["disruptionsAllowed"]).into(),
        age.into(),
    ]
}

/// PersistentVolumeClaim.
pub(super) fn claim(item: &Value, age: &str) -> Vec<Value> {
    let (spec, status) = (&item["spec"], &item["status"]);
    let bound = !text(&spec["volumeName"]).is_empty();
    let modes = list(&status["accessModes"]).map(|m| match m.as_str().unwrap_or_default() {
        "ReadWriteOnce" => "RWO",
        "ReadOnlyMany" => "ROX",
        "ReadWriteMany" => "RWX",
        "ReadWriteOncePod" => "RWOP",
        _ => "",
    });
    let (modes, capacity) = if bound {
        (modes.collect::<Vec<_>>().join(","), text(&status["capacity"]["storage"]))
    } else {
        (String::new(), String::new())
    };
    vec![
        item["metadata"]["name"].clone(),
        if item["metadata"].get("deletionTimestamp").is_some() {
            "Terminating".into()
        } else {
            status["phase"].clone()
        },
        text(&spec["volumeName"]).into(),
        capacity.into(),
        modes.into(),
        text(&spec["storageClassName"]).into(),
        spec["volumeAttributesClassName"].as_str().unwrap_or("<unset>").into(),
        age.into(),
        spec["volumeMode"].as_str().unwrap_or("<unset>").into(),
    ]
}
