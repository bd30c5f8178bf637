//! What a server finds wrong with Pods and pod templates.
//! Must not know defaults. Only rules that people run into; the rest of a real server's list is not checked.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::super::cause::Cause;
use super::{list, text};
use crate::api::quantity::Quantity;

/// Everything wrong with a Pod.
pub(super) fn check(pod: &Value, old: Option<&Value>) -> Vec<Cause> {
    match old {
        Some(old) => {
            let mut out = changes(&pod["spec"], &old["spec"]);
            out.extend(addresses(&pod["status"]));
            out
        }
        None => check_spec(&pod["spec"], "spec"),
    }
}

/// Addresses in the status that are none.
fn addresses(status: &Value) -> impl Iterator<Item = Cause> {
    let given = list(&status["podIPs"]).map(|one| text(&one["ip"])).enumerate();
    let wrong = given.filter(|(_, ip)| ip.parse::<std::net::IpAddr>().is_err());
    wrong.map(|(i, ip)| {
        let detail = "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)";
        Cause::invalid(format!("status.podIPs[{i}]"), &json!(ip), detail)
    })
}

/// Everything wrong with the spec of a pod or of a template at `at`.
pub(super) fn check_spec(spec: &Value, at: &str) -> Vec<Cause> {
    let mut out = Vec::new();
    let volumes: BTreeSet<&str> = list(&spec["volumes"]).map(|v| text(&v["name"])).collect();
    if list(&spec["containers"]).next().is_none() {
        out.push(Cause::required(format!("{at}.containers"), ""));
    }
    let mut names = BTreeSet::new();
    for key in ["containers", "initContainers"] {
        for (i, container) in list(&spec[key]).enumerate() {
            check_container(container, &format!("{at}.{key}[{i}]"), &volumes, &mut names, &mut out);
        }
    }
    one_of(&spec["restartPolicy"], &format!("{at}.restartPolicy"), &["Always", "OnFailure", "Never"], &mut out);
    let node = text(&spec["nodeName"]);
    if !node.is_empty() && !is_subdomain(node) {
        out.push(Cause::invalid(format!("{at}.nodeName"), &json!(node), SUBDOMAIN));
    }
    out
}

fn check_container<'a>(
    container: &'a Value,
    at: &str,
    volumes: &BTreeSet<&str>,
    names: &mut BTreeSet<&'a str>,
    out: &mut Vec<Cause>,
) {
    let name = text(&container["name"]);
    if name.is_empty() {
        out.push(Cause::required(format!("{at}.name"), ""));
    } else if !is_label(name) {
        out.push(Cause::invalid(format!("{at}.name"), &json!(name), LABEL));
    } else if !names.insert(name) {
        out.push(Cause::duplicate(format!("{at}.name"), &json!(name)));
    }
    if text(&container["image"]).is_empty() {
        out.push(Cause::required(format!("{at}.image"), ""));
    }
    let policies = ["Always", "IfNotPresent", "Never"];
    one_of(&container["imagePullPolicy"], &format!("{at}.imagePullPolicy"), &policies, out);
    for (i, port) in list(&container["ports"]).enumerate() {
        let number = &port["containerPort"];
        match number.as_i64().unwrap_or(0) {
            0 => out.push(Cause::required(format!("{at}.ports[{i}].containerPort"), "")),
            1..=65535 => {}
            _ => {
                let detail = "must be between 1 and 65535, inclusive";
                out.push(Cause::invalid(format!("{at}.ports[{i}].containerPort"), number, detail));
            }
        }
    }
    for (i, mount) in list(&container["volumeMounts"]).enumerate() {
        if !volumes.contains(text(&mount["name"])) {
            out.push(Cause {
                reason: "FieldValueNotFound",
                message: format!("Not found: {}", mount["name"]),
                field: format!("{at}.volumeMounts[{i}].name"),
            });
        }
    }
    check_resources(&container["resources"], &format!("{at}.resources"), out);
}

fn check_resources(resources: &Value, at: &str, out: &mut Vec<Cause>) {
    let (requests, limits) = (&resources["requests"], &resources["limits"]);
    for (kind, amounts) in [("limits", limits), ("requests", requests)] {
        for name in amounts.as_object().into_iter().flatten().map(|(name, _)| name) {
            let standard =
                ["cpu", "memory", "ephemeral-storage"].contains(&name.as_str()) || name.starts_with("hugepages-");
            if !standard && !name.contains('/') {
                let field = format!("{at}.{kind}[{name}]");
                for detail in [
                    "must be a standard resource type or fully qualified",
                    "must be a standard resource for containers",
                ] {
                    out.push(Cause::invalid(&field, &json!(name), detail));
                }
            }
        }
    }
    for (name, asked) in requests.as_object().into_iter().flatten() {
        let extended = name.contains('/');
        let parsed = |v: &Value| -> Option<Quantity> { text(v).parse().ok() };
        match (parsed(asked), parsed(&limits[name])) {
            (Some(asked_amount), Some(limit)) if extended && asked_amount != limit => {
                let detail = format!("must be equal to {name} limit of {limit}");
                out.push(Cause::invalid(format!("{at}.requests"), asked, detail));
            }
            (Some(asked_amount), Some(limit)) if asked_amount > limit => {
                let detail = format!("must be less than or equal to {name} limit of {limit}");
                out.push(Cause::invalid(format!("{at}.requests"), asked, detail));
            }
            (Some(_), None) if extended => {
                let detail = "Limit must be set for non overcommitable resources";
                out.push(Cause::required(format!("{at}.limits"), detail));
            }
            _ => {}
        }
    }
}

/// What may change in a Pod once it is there. The real server adds a comparison of the two specs; this one does not.
fn changes(spec: &Value, old: &Value) -> Vec<Cause> {
    let mut out = Vec::new();
    if list(&spec["containers"]).count() != list(&old["containers"]).count() {
        return vec![Cause::forbidden("spec.containers", "pod updates may not add or remove containers")];
    }
    if let Some(before) = old["activeDeadlineSeconds"].as_i64() {
        match spec["activeDeadlineSeconds"].as_i64() {
            Some(now) if now > before => {
                let detail = "must be less than or equal to previous value";
                out.push(Cause::invalid("spec.activeDeadlineSeconds", &json!(now), detail));
            }
            None => {
                let detail = "must not update from a positive integer to nil value";
                out.push(Cause::invalid("spec.activeDeadlineSeconds", &Value::Null, detail));
            }
            Some(_) => {}
        }
    }
    let kept = list(&old["tolerations"]).all(|t| list(&spec["tolerations"]).any(|n| n == t));
    for (i, gate) in list(&spec["schedulingGates"]).enumerate() {
        if !list(&old["schedulingGates"]).any(|o| o == gate) {
            let detail = format!("only deletion is allowed, but found new scheduling gate '{}'", text(&gate["name"]));
            out.push(Cause::forbidden(format!("spec.schedulingGates[{i}].name"), detail));
        }
    }
    let gated = list(&old["schedulingGates"]).next().is_some();
    let unbounded = old["terminationGracePeriodSeconds"].as_i64().is_some_and(|s| s < 0);
    if !kept || rest(spec, gated, unbounded) != rest(old, gated, unbounded) {
        out.push(Cause::forbidden("spec", POD_CHANGES));
    }
    out
}

/// The part of a spec that stays as it is. A gated pod may still be told where to run, and a grace below zero corrected.
fn rest(spec: &Value, gated: bool, unbounded: bool) -> Value {
    let mut spec = spec.clone();
    for key in ["containers", "initContainers"] {
        for container in spec.get_mut(key).and_then(Value::as_array_mut).into_iter().flatten() {
            container["image"] = Value::Null;
        }
    }
    if let Some(map) = spec.as_object_mut() {
        for key in ["activeDeadlineSeconds", "tolerations", "schedulingGates"] {
            map.remove(key);
        }
        if gated {
            map.remove("nodeSelector");
        }
        if unbounded {
            map.remove("terminationGracePeriodSeconds");
        }
    }
    spec
}

const POD_CHANGES: &str = "pod updates may not change fields other than `spec.containers[*].image`,\
                           `spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only \
                           additions to existing tolerations),`spec.terminationGracePeriodSeconds` (allow it to be \
                           set to 1 if it was previously negative)\n";

/// A value outside a list, unless it is empty.
pub(super) fn one_of(value: &Value, field: &str, allowed: &[&str], out: &mut Vec<Cause>) {
    let word = text(value);
    if !word.is_empty() && !allowed.contains(&word) {
        let allowed: Vec<String> = allowed.iter().map(|a| (*a).to_owned()).collect();
        out.push(Cause::unsupported(field, value, &allowed));
    }
}

const LABEL: &str = "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must \
                     start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for \
                     validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')";
const SUBDOMAIN: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or \
                         '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used \
                         for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";

fn is_label(text: &str) -> bool {
    let inner = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    !text.is_empty() && text.len() <= 63 && text.chars().all(inner) && !text.starts_with('-') && !text.ends_with('-')
}

fn is_subdomain(text: &str) -> bool {
    text.len() <= 253 && text.split('.').all(is_label)
}
