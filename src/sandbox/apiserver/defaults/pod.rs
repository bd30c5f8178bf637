//! What a server fills into Pods and pod templates, admission of the default plug-ins included.
//! Must not know what makes a Pod wrong (`pod_check`).

use data_encoding::HEXLOWER;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::{default, each, list, part, text};
use crate::api::quantity::Quantity;

/// A Pod: its spec as of a template, then what admission adds, then its first status.
pub(super) fn fill(pod: &mut Value, old: Option<&Value>) {
    fill_spec(pod);
    let uid = text(&pod["metadata"]["uid"]).to_owned();
    let spec = part(pod, "spec");
    default(spec, "enableServiceLinks", json!(true));
    for container in each(spec, "containers") {
        requests_from_limits(container);
    }
    for container in each(spec, "initContainers") {
        requests_from_limits(container);
    }
    if old.is_none() {
        admit(spec, &uid);
        let class = quality(spec);
        pod["status"] = json!({"phase": "Pending", "qosClass": class});
    } else if let Some(old) = old {
        // These follow from the creation and from the binding; a client that leaves them out means no change.
        for key in ["serviceAccountName", "serviceAccount", "priority", "preemptionPolicy", "tolerations", "nodeName"] {
            if let Some(value) = old["spec"].get(key) {
                default(part(pod, "spec"), key, value.clone());
            }
        }
        tolerate_outages(part(pod, "spec"));
    }
}

/// The spec of a pod or of a template, whichever `owner` is: `owner["spec"]`.
pub(super) fn fill_spec(owner: &mut Value) {
    let spec = part(owner, "spec");
    for key in ["initContainers", "containers"] {
        each(spec, key).for_each(container);
    }
    each(spec, "volumes").for_each(volume);
    default(spec, "restartPolicy", json!("Always"));
    default(spec, "terminationGracePeriodSeconds", json!(30));
    default(spec, "dnsPolicy", json!("ClusterFirst"));
    default(spec, "securityContext", json!({}));
    default(spec, "schedulerName", json!("default-scheduler"));
    if !text(&spec["serviceAccountName"]).is_empty() {
        let name = spec["serviceAccountName"].clone();
        default(spec, "serviceAccount", name);
    }
}

fn container(container: &mut Value) {
    default(container, "resources", json!({}));
    default(container, "terminationMessagePath", json!("/dev/termination-log"));
    default(container, "terminationMessagePolicy", json!("File"));
    let policy = pull_policy(text(&container["image"]));
    default(container, "imagePullPolicy", json!(policy));
    each(container, "ports").for_each(|port| default(port, "protocol", json!("TCP")));
    for variable in each(container, "env") {
        if let Some(field) = variable.pointer_mut("/valueFrom/fieldRef") {
            default(field, "apiVersion", json!("v1"));
        }
    }
    for key in ["livenessProbe", "readinessProbe", "startupProbe"] {
        if container[key].is_object() {
            probe(&mut container[key]);
        }
    }
}

fn probe(probe: &mut Value) {
    for (key, value) in [("timeoutSeconds", 1), ("periodSeconds", 10), ("successThreshold", 1), ("failureThreshold", 3)]
    {
        default(probe, key, json!(value));
    }
    if let Some(get) = probe.get_mut("httpGet") {
        default(get, "path", json!("/"));
        default(get, "scheme", json!("HTTP"));
    }
}

/// `latest`, said or meant, is always pulled.
fn pull_policy(image: &str) -> &'static str {
    if image.contains('@') {
        return "IfNotPresent";
    }
    let last = image.rsplit('/').next().unwrap_or_default();
    match last.split_once(':') {
        Some((_, tag)) if tag != "latest" => "IfNotPresent",
        _ => "Always",
    }
}

pub(super) fn volume(volume: &mut Value) {
    for key in ["configMap", "secret", "downwardAPI", "projected"] {
        if volume[key].is_object() {
            default(&mut volume[key], "defaultMode", json!(0o644));
        }
    }
    let sources = volume.pointer_mut("/projected/sources").and_then(Value::as_array_mut);
    for token in sources.into_iter().flatten().filter_map(|source| source.get_mut("serviceAccountToken")) {
        if token.is_object() {
            default(token, "expirationSeconds", json!(3600));
        }
    }
}

/// A limit without a request is also the request.
fn requests_from_limits(container: &mut Value) {
    let Some(limits) = container["resources"]["limits"].as_object().cloned().filter(|l| !l.is_empty()) else { return };
    let requests = part(part(container, "resources"), "requests");
    for (name, amount) in limits {
        default(requests, &name, amount);
    }
}

/// ServiceAccount, Priority and DefaultTolerationSeconds.
fn admit(spec: &mut Value, uid: &str) {
    default(spec, "serviceAccountName", json!("default"));
    let account = spec["serviceAccountName"].clone();
    default(spec, "serviceAccount", account);
    if spec["automountServiceAccountToken"] != false {
        mount_token(spec, uid);
    }
    tolerate_outages(spec);
    let priority = match text(&spec["priorityClassName"]) {
        "system-node-critical" => 2_000_001_000,
        "system-cluster-critical" => 2_000_000_000,
        _ => 0,
    };
    default(spec, "priority", json!(priority));
    default(spec, "preemptionPolicy", json!("PreemptLowerPriority"));
}

/// DefaultTolerationSeconds, which also looks at changes.
fn tolerate_outages(spec: &mut Value) {
    let mut tolerations: Vec<Value> = list(&spec["tolerations"]).cloned().collect();
    for key in ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"] {
        let tolerated = tolerations.iter().any(|t| {
            (text(&t["key"]) == key || text(&t["key"]).is_empty()) && matches!(text(&t["effect"]), "NoExecute" | "")
        });
        if !tolerated {
            let toleration = json!({"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300});
            tolerations.push(toleration);
        }
    }
    spec["tolerations"] = Value::Array(tolerations);
}

/// Where a pod finds the token of its ServiceAccount. The suffix of the volume's name follows from the UID.
fn mount_token(spec: &mut Value, uid: &str) {
    let suffix: String = HEXLOWER.encode(&Sha256::digest(uid)).chars().take(5).collect();
    let name = format!("kube-api-access-{suffix}");
    const PATH: &str = "/var/run/secrets/kubernetes.io/serviceaccount";
    let mut used = false;
    for key in ["initContainers", "containers"] {
        for container in each(spec, key) {
            let mut mounts: Vec<Value> = list(&container["volumeMounts"]).cloned().collect();
            if mounts.iter().any(|m| m["mountPath"] == PATH) {
                continue;
            }
            mounts.push(json!({"name": name, "readOnly": true, "mountPath": PATH}));
            container["volumeMounts"] = Value::Array(mounts);
            used = true;
        }
    }
    if used {
        let mut volumes: Vec<Value> = list(&spec["volumes"]).cloned().collect();
        volumes.push(json!({"name": name, "projected": {"defaultMode": 0o644, "sources": [
            {"serviceAccountToken": {"expirationSeconds": 3607, "path": "token"}},
            {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
            {"downwardAPI": {"items": [{"path": "namespace",
                "fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.namespace"}}]}},
        ]}}));
        spec["volumes"] = Value::Array(volumes);
    }
}

/// Guaranteed: all containers have limits of CPU and memory and ask for just that. BestEffort: none asks for anything.
fn quality(spec: &Value) -> &'static str {
    let all: Vec<&Value> = list(&spec["containers"]).chain(list(&spec["initContainers"])).collect();
    let amount = |container: &Value, kind: &str, name: &str| -> Option<Quantity> {
        text(&container["resources"][kind][name]).parse().ok().filter(|q: &Quantity| !q.is_zero())
    };
    let both = ["cpu", "memory"];
    let any = all.iter().any(|c| both.iter().any(|n| amount(c, "requests", n).or(amount(c, "limits", n)).is_some()));
    let guaranteed = all.iter().all(|c| {
        both.iter().all(|n| {
            let limit = amount(c, "limits", n);
            limit.is_some() && limit == amount(c, "requests", n)
        })
    });
    match (any, guaranteed) {
        (false, _) => "BestEffort",
        (true, true) => "Guaranteed",
        (true, false) => "Burstable",
    }
}
