//! KubeRay's rules for parts of a RayCluster that stand behind feature gates: history server, network policies, mTLS
//! (specs/raycluster.md 1.11, B16, B18 to B21 and D).
//! Must not know what is done with them.

use serde_json::Value;

use super::{GATE_OFF, Gates, Rule, broken};
use crate::api::ray::{CollectorOptions, NetworkPolicyConfig, PodTemplate, RayClusterSpec};

/// Name of the collector's container.
const COLLECTOR: &str = "ray-history-collector";
/// Variables that the collector gets from KubeRay.
const COLLECTOR_ENV: &[&str] = &[
    "POD_IP",
    "FQ_RAY_IP",
    "RAY_CLUSTER_NAME",
    "RAY_CLUSTER_NAMESPACE",
    "RAY_ROLE",
    "OWNER_KIND",
    "OWNER_NAME",
    "EVENTS_PORT",
];
/// Variables that mTLS sets.
const TLS_ENV: &[&str] = &["RAY_USE_TLS", "RAY_TLS_SERVER_CERT", "RAY_TLS_SERVER_KEY", "RAY_TLS_CA_CERT"];
/// Name of the certificates' volume, and where it is mounted.
const TLS_VOLUME: &str = "ray-tls";
const TLS_MOUNT: &str = "/etc/ray/tls";

/// Where each pod template of a RayCluster stands.
fn templates<'a>(spec: &'a RayClusterSpec, at: &'a str) -> impl Iterator<Item = (String, &'a PodTemplate)> {
    let head = spec.head_group_spec.iter().map(move |head| (format!("{at}.headGroupSpec.template"), &head.template));
    let groups = spec.groups().iter().enumerate();
    head.chain(groups.map(move |(i, group)| (format!("{at}.workerGroupSpecs[{i}].template"), &group.template)))
}

/// Rule B16.
pub(super) fn history_server(spec: &RayClusterSpec, at: &str, gates: Gates) -> Rule {
    let Some(options) = &spec.history_server_options else { return Ok(()) };
    let here = format!("{at}.historyServerOptions");
    if !gates.history_server {
        return broken(here, GATE_OFF);
    }
    let here = format!("{here}.collectorOptions");
    let Some(collector) = &options.collector_options else { return broken(here, "must be set") };
    collector_rules(collector, &here)?;
    for (at, template) in templates(spec, at) {
        if let Some(i) = template.containers().position(|c| c.name() == COLLECTOR) {
            return broken(
                format!("{at}.spec.containers[{i}].name"),
                format!("{COLLECTOR} is the collector's own name"),
            );
        }
    }
    Ok(())
}

fn collector_rules(collector: &CollectorOptions, at: &str) -> Rule {
    if collector.image.as_deref().is_none_or(str::is_empty) {
        return broken(format!("{at}.image"), "must be set");
    }
    let env: Vec<&Value> = collector.env.iter().flatten().collect();
    let entry = |name: &str| env.iter().copied().find(|e| e["name"] == name);
    let literal = |name: &str| entry(name).and_then(|e| e["value"].as_str()).unwrap_or_default();
    // A value from somewhere else counts as set: nobody knows it here.
    let is_set = |name: &str| entry(name).is_some_and(|e| e["valueFrom"].is_object()) || !literal(name).is_empty();
    let at = format!("{at}.env");
    if let Some(name) = COLLECTOR_ENV.iter().find(|name| entry(name).is_some()) {
        return broken(at, format!("must not set {name}: the collector gets it"));
    }
    let backend = literal("STORAGE_BACKEND").to_uppercase();
    let needed: &[&str] = match backend.as_str() {
        "" => &["STORAGE_BACKEND"],
        "GCS" => &["GCS_BUCKET"],
        "S3" => &["S3_REGION"],
        "ALIYUNOSS" => &["OSS_BUCKET", "OSS_ENDPOINT", "OSS_REGION"],
        "AZUREBLOB" => match literal("AZURE_STORAGE_AUTH_MODE").trim().to_lowercase().as_str() {
            "connection_string" => &["AZURE_STORAGE_CONNECTION_STRING"],
            "workload_identity" | "default" => &["AZURE_STORAGE_ACCOUNT_URL"],
            _ if is_set("AZURE_STORAGE_CONNECTION_STRING") => &[],
            _ => &["AZURE_STORAGE_ACCOUNT_URL"],
        },
        _ => &[],
    };
    match needed.iter().find(|name| backend.is_empty() || !is_set(name)) {
        None => Ok(()),
        Some(name) if backend.is_empty() => broken(at, format!("must set {name} to a literal value")),
        Some(name) => broken(at, format!("must set {name} for STORAGE_BACKEND {backend}")),
    }
}

/// Rules B18 and B19.
pub(super) fn network_policy(spec: &RayClusterSpec, at: &str, gates: Gates) -> Rule {
    let Some(policy) = &spec.network_policy else { return Ok(()) };
    let here = format!("{at}.networkPolicy");
    if !gates.network_policy {
        return broken(here, GATE_OFF);
    }
    directions(policy, &here)?;
    for (i, group) in spec.groups().iter().enumerate() {
        if !is_dns_1123_label(&group.group_name) {
            let what = "must consist of small letters, digits and dashes if networkPolicy is set";
            return broken(format!("{at}.workerGroupSpecs[{i}].groupName"), what);
        }
    }
    for (i, entry) in policy.worker_groups.iter().flatten().enumerate() {
        if !spec.groups().iter().any(|group| group.group_name == entry.group_name) {
            let what = format!("there is no worker group {:?}", entry.group_name);
            return broken(format!("{here}.workerGroups[{i}].groupName"), what);
        }
    }
    Ok(())
}

/// Rules for a direction that the mode leaves open say nothing.
fn directions(policy: &NetworkPolicyConfig, at: &str) -> Rule {
    let (ingress, egress) = match policy.mode.as_deref() {
        Some("DenyAllEgress") => (true, false),
        Some("DenyAllIngress") => (false, true),
        _ => return Ok(()),
    };
    let mut places = Vec::new();
    for (name, rules) in [("head", &policy.head), ("worker", &policy.worker)] {
        let rules = rules.as_ref();
        places.push((format!("{at}.{name}"), rules.map(|r| (&r.ingress_rules, &r.egress_rules))));
    }
    for (i, group) in policy.worker_groups.iter().flatten().enumerate() {
        places.push((format!("{at}.workerGroups[{i}]"), Some((&group.ingress_rules, &group.egress_rules))));
    }
    for (at, rules) in places {
        let Some((in_rules, out_rules)) = rules else { continue };
        let filled = |list: &Option<Vec<Value>>| list.as_ref().is_some_and(|list| !list.is_empty());
        if ingress && filled(in_rules) {
            return broken(format!("{at}.ingressRules"), "and mode DenyAllEgress exclude each other");
        }
        if egress && filled(out_rules) {
            return broken(format!("{at}.egressRules"), "and mode DenyAllIngress exclude each other");
        }
    }
    Ok(())
}

fn is_dns_1123_label(text: &str) -> bool {
    let edge = |b: Option<u8>| b.is_some_and(|b| b.is_ascii_lowercase() || b.is_ascii_digit());
    text.len() <= 63
        && edge(text.bytes().next())
        && edge(text.bytes().last())
        && text.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
}

/// Rules B20 and B21.
pub(super) fn tls(spec: &RayClusterSpec, at: &str, gates: Gates) -> Rule {
    let Some(options) = &spec.tls_options else { return Ok(()) };
    if !gates.mtls {
        return broken(format!("{at}.tlsOptions"), GATE_OFF);
    }
    if options.enabled != Some(true) {
        return Ok(());
    }
    let taken = |name: &str| format!("{name} is set by tlsOptions");
    for (at, template) in templates(spec, at) {
        let Some(ray) = template.ray_container() else { continue };
        let at = format!("{at}.spec.containers[0]");
        if let Some(name) = TLS_ENV.iter().find(|name| ray.has_env(name)) {
            return broken(format!("{at}.env"), taken(name));
        }
        if let Some((path, name)) = ray.mounts().find(|(path, name)| *path == TLS_MOUNT || *name == TLS_VOLUME) {
            return broken(format!("{at}.volumeMounts"), format!("{name} at {path}: taken by tlsOptions"));
        }
    }
    let Some(autoscaler) = &spec.autoscaler_options else { return Ok(()) };
    let at = format!("{at}.autoscalerOptions");
    let set = |name: &&&str| autoscaler.env.iter().flatten().any(|e| e["name"] == **name);
    if let Some(name) = TLS_ENV.iter().find(set) {
        return broken(format!("{at}.env"), taken(name));
    }
    let mut mounts = autoscaler.volume_mounts.iter().flatten();
    if mounts.any(|m| m["name"] == TLS_VOLUME || m["mountPath"] == TLS_MOUNT) {
        return broken(format!("{at}.volumeMounts"), format!("{TLS_VOLUME} and {TLS_MOUNT} are taken by tlsOptions"));
    }
    Ok(())
}

/// Rule D: the certificates are cert-manager's.
pub(super) fn cert_manager(spec: &RayClusterSpec, gates: Gates) -> Rule {
    let enabled = spec.tls_options.as_ref().is_some_and(|o| o.enabled == Some(true));
    if enabled && !gates.cert_manager {
        return broken("spec.tlsOptions.enabled", "needs cert-manager, which is not there");
    }
    Ok(())
}
