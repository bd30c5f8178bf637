//! ResourceQuotas: what a namespace has of something, and when one more is too much (the admission plugin
//! `ResourceQuota`). Usage is counted in the store at each request: there is no controller whose numbers could be late,
//! and `status` of a quota stays empty.
//! Must not know the store.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::pod_resources::{amounts, of_pod};
use super::registry::ResourceType;
use crate::api::quantity::Quantity;

/// Kinds of the core group that may be counted by their bare names.
const BY_BARE_NAME: &[&str] = &[
    "pods",
    "services",
    "configmaps",
    "secrets",
    "persistentvolumeclaims",
    "replicationcontrollers",
    "resourcequotas",
];

/// Amounts by the name that a quota has for them.
pub(super) type Usage = BTreeMap<String, Quantity>;

/// Why this quota cannot be enforced; `None` = it can.
pub(super) fn unsupported(quota: &Value) -> Option<&'static str> {
    let empty =
        |field: &str| quota["spec"][field].as_array().is_none_or(Vec::is_empty) && !quota["spec"][field].is_object();
    (!empty("scopes") || !empty("scopeSelector")).then_some("a ResourceQuota with scopes")
}

/// What one object counts for.
pub(super) fn usage(ty: &ResourceType, object: &Value) -> Usage {
    let mut usage = Usage::from([(format!("count/{}", ty.qualified()), Quantity::whole(1))]);
    if !ty.builtin || !ty.group.is_empty() {
        return usage;
    }
    if ty.plural == "pods" {
        if matches!(object["status"]["phase"].as_str(), Some("Succeeded" | "Failed")) {
            return usage;
        }
        usage.extend(asked_by(object));
    }
    if BY_BARE_NAME.contains(&ty.plural.as_str()) {
        usage.insert(ty.plural.clone(), Quantity::whole(1));
    }
    match ty.plural.as_str() {
        "persistentvolumeclaims" => {
            let asked = object["spec"]["resources"]["requests"]["storage"].as_str().and_then(|text| text.parse().ok());
            usage.extend(asked.map(|asked| ("requests.storage".to_owned(), asked)));
        }
        "services" => {
            let kind = object["spec"]["type"].as_str().unwrap_or_default();
            let counted = [("LoadBalancer", "services.loadbalancers"), ("NodePort", "services.nodeports")];
            let counted = counted.into_iter().filter(|(of, _)| *of == kind);
            usage.extend(counted.map(|(_, name)| (name.to_owned(), Quantity::whole(1))));
        }
        _ => {}
    }
    usage
}

/// Under the names that quotas have for requests and limits.
fn asked_by(pod: &Value) -> Usage {
    let mut usage = Usage::new();
    for field in ["requests", "limits"] {
        for (name, amount) in of_pod(pod, field) {
            // A bare name means the requests.
            if field == "requests" {
                usage.insert(name.clone(), amount);
            }
            usage.insert(format!("{field}.{name}"), amount);
        }
    }
    usage
}

/// What the quota refuses of one more object: in words, `None` = it fits. `used`: the sum over what is there.
pub(super) fn refusal(quota: &Value, ty: &ResourceType, object: &Value, used: &Usage) -> Option<String> {
    let name = quota["metadata"]["name"].as_str().unwrap_or_default();
    let hard: Usage = amounts(&quota["spec"]["hard"]);
    let more = usage(ty, object);
    if ty.builtin && ty.plural == "pods" {
        let missing = unspecified(&hard, object);
        if !missing.is_empty() {
            return Some(format!("failed quota: {name}: must specify {}", missing.join("; ")));
        }
    }
    let nothing = Quantity::default();
    let over: Vec<(&String, Quantity, Quantity, Quantity)> = hard
        .iter()
        .filter_map(|(what, limit)| {
            let more = *more.get(what)?;
            let used = *used.get(what).unwrap_or(&nothing);
            (!more.is_zero() && used + more > *limit).then_some((what, more, used, *limit))
        })
        .collect();
    if over.is_empty() {
        return None;
    }
    let said = |pick: fn(&(&String, Quantity, Quantity, Quantity)) -> Quantity| -> String {
        let each: Vec<String> = over.iter().map(|one| format!("{}={}", one.0, pick(one))).collect();
        each.join(",")
    };
    Some(format!(
        "exceeded quota: {name}, requested: {}, used: {}, limited: {}",
        said(|one| one.1),
        said(|one| one.2),
        said(|one| one.3)
    ))
}

/// CPU and memory that a quota limits and a container does not name: `requests.cpu for: a,b`.
fn unspecified(hard: &Usage, pod: &Value) -> Vec<String> {
    let mut missing = Vec::new();
    for what in hard.keys() {
        let (field, resource) = match what.split_once('.') {
            Some((field @ ("requests" | "limits"), resource @ ("cpu" | "memory"))) => (field, resource),
            None if matches!(what.as_str(), "cpu" | "memory") => ("requests", what.as_str()),
            _ => continue,
        };
        let list = |of: &str| pod["spec"][of].as_array().into_iter().flatten();
        let without = |container: &&Value| container["resources"][field].get(resource).is_none();
        let names: BTreeSet<&str> = list("containers")
            .chain(list("initContainers"))
            .filter(without)
            .filter_map(|container| container["name"].as_str())
            .collect();
        if !names.is_empty() {
            missing.push(format!("{what} for: {}", names.into_iter().collect::<Vec<_>>().join(",")));
        }
    }
    missing
}
