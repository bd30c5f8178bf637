//! Services of a RayCluster and the head Service of a RayJob (specs/raycluster.md 4.1 to 4.3, rayjob.md 6.3).
//! Must not know which Services exist.

use serde_json::{Map, Value, json};

use super::owner_reference;
use crate::api::names::{ORIGINATED_KIND_LABEL, ORIGINATED_NAME_LABEL, RAY_CLUSTER_LABEL, RAY_NODE_TYPE_LABEL};
use crate::api::ray::{RayCluster, RayJob, Texts};
use crate::plan::names;

/// Label by which the headless Service of the workers is known.
const HEADLESS_LABEL: &str = "ray.io/headless-worker-svc";

/// Name of the head Service: the user's, else `<cluster>-head-svc`.
pub fn head_service_name(cluster: &RayCluster) -> String {
    let head = cluster.spec.head();
    let own = head.head_service.as_ref().and_then(|s| s["metadata"]["name"].as_str()).filter(|n| !n.is_empty());
    own.map_or_else(|| format!("{}-head-svc", cluster.metadata.name()), str::to_owned)
}

/// The five labels that select the head pod.
fn selector(cluster: &RayCluster) -> Texts {
    let name = cluster.metadata.name();
    let head = cluster.spec.head();
    let app = head.template.labels().find(|(k, _)| *k == "app.kubernetes.io/name").map_or("kuberay", |(_, v)| v);
    Texts::from([
        (RAY_CLUSTER_LABEL.to_owned(), name.to_owned()),
        (RAY_NODE_TYPE_LABEL.to_owned(), "head".to_owned()),
        ("ray.io/identifier".to_owned(), names::label_value(&format!("{name}-head"))),
        ("app.kubernetes.io/name".to_owned(), app.to_owned()),
        ("app.kubernetes.io/created-by".to_owned(), "kuberay-operator".to_owned()),
    ])
}

/// Ports of the Ray container, or KubeRay's defaults; `metrics` always. Sorted by name.
fn ports(cluster: &RayCluster) -> Vec<Value> {
    let head = cluster.spec.head();
    let container = head.template.ray_container();
    let mut ports: Vec<(String, i64)> = container
        .iter()
        .flat_map(|c| c.ports())
        .map(|(name, port)| (if name.is_empty() { format!("{port}-port") } else { name.to_owned() }, port))
        .collect();
    if ports.is_empty() {
        let defaults =
            [("client", 10001), ("gcs-server", 6379), ("dashboard", 8265), ("metrics", 8080), ("serve", 8000)];
        ports = defaults.map(|(name, port)| (name.to_owned(), port)).to_vec();
    }
    if !ports.iter().any(|(name, _)| name == "metrics") {
        ports.push(("metrics".into(), 8080));
    }
    ports.sort();
    ports.into_iter().map(|(name, port)| json!({ "name": name, "port": port, "appProtocol": "tcp" })).collect()
}

/// The head Service of a RayCluster.
pub fn head_service(cluster: &RayCluster) -> Value {
    let head = cluster.spec.head();
    let mut service = match &head.head_service {
        Some(Value::Object(own)) => Value::Object(own.clone()),
        _ => json!({}),
    };
    let custom = head.head_service.is_some();
    service["apiVersion"] = json!("v1");
    service["kind"] = json!("Service");
    let mut labels = object(&service["metadata"]["labels"]);
    labels.extend(selector(cluster).into_iter().map(|(k, v)| (k, v.into())));
    let mut annotations = object(&service["metadata"]["annotations"]);
    annotations.extend(cluster.spec.head_service_annotations.iter().flatten().map(|(k, v)| (k.clone(), json!(v))));
    let mut metadata = json!({
        "name": head_service_name(cluster),
        "namespace": cluster.metadata.namespace(),
        "labels": labels,
        "ownerReferences": [owner_reference("RayCluster", &cluster.metadata)],
    });
    if !annotations.is_empty() {
        metadata["annotations"] = Value::Object(annotations);
    }
    service["metadata"] = metadata;

    let mut all = service["spec"]["ports"].as_array().cloned().unwrap_or_default();
    all.extend(ports(cluster));
    service["spec"]["ports"] = Value::Array(all);
    service["spec"]["selector"] = json!(selector(cluster));
    let wanted = head.service_type.as_deref().unwrap_or_default();
    if !wanted.is_empty() && service["spec"]["type"].is_null() {
        service["spec"]["type"] = json!(wanted);
    }
    if !custom && matches!(wanted, "" | "ClusterIP") {
        service["spec"]["clusterIP"] = json!("None");
        service["spec"]["publishNotReadyAddresses"] = json!(true);
    }
    service
}

/// Port of the dashboard, as the head Service has it.
pub(super) fn dashboard_port(cluster: &RayCluster) -> i64 {
    let named = ports(cluster).into_iter().find(|port| port["name"] == "dashboard");
    named.and_then(|port| port["port"].as_i64()).unwrap_or(8265)
}

/// Name of the Service that gives hosts of replicas with several of them their names; `None` where no group has such.
pub fn headless_service_name(cluster: &RayCluster) -> Option<String> {
    let several = cluster.spec.groups().iter().any(|group| group.hosts() > 1);
    several.then(|| format!("{}-headless", cluster.metadata.name()))
}

/// That Service: all workers, by name, whether they are ready or not.
pub fn headless_service(cluster: &RayCluster, name: &str) -> Value {
    let cluster_name = cluster.metadata.name();
    json!({
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {
            "name": name,
            "namespace": cluster.metadata.namespace(),
            "labels": { HEADLESS_LABEL: cluster_name },
            "ownerReferences": [owner_reference("RayCluster", &cluster.metadata)],
        },
        "spec": {
            "clusterIP": "None",
            "type": "ClusterIP",
            "publishNotReadyAddresses": true,
            "selector": { RAY_CLUSTER_LABEL: cluster_name, RAY_NODE_TYPE_LABEL: "worker" },
        },
    })
}

/// Name of the Service for Serve on all nodes; `None` where the RayCluster does not ask for it.
pub fn serve_service_name(cluster: &RayCluster) -> Option<String> {
    let wanted = cluster.metadata.annotation("ray.io/enable-serve-service") == "true";
    wanted.then(|| format!("{}-serve-svc", cluster.metadata.name()))
}

/// That Service; `None` where the head's Ray container has no port for Serve.
pub fn serve_service(cluster: &RayCluster, name: &str) -> Option<Value> {
    let cluster_name = cluster.metadata.name();
    let head = cluster.spec.head();
    let is_serve = |port: &Value| {
        let name = port["name"].as_str().unwrap_or_default();
        name == "serve" || name.starts_with("serve-")
    };
    let of_serve = ports(cluster).into_iter().filter(is_serve);
    let ports: Vec<Value> = of_serve.map(|port| json!({ "name": port["name"], "port": port["port"] })).collect();
    if ports.is_empty() {
        return None;
    }
    let mut spec = json!({ "selector": { RAY_CLUSTER_LABEL: cluster_name }, "ports": ports });
    if let Some(kind) = head.service_type.as_deref().filter(|kind| !kind.is_empty()) {
        spec["type"] = json!(kind);
    }
    Some(json!({
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {
            "name": name,
            "namespace": cluster.metadata.namespace(),
            "labels": {
                ORIGINATED_NAME_LABEL: cluster_name,
                ORIGINATED_KIND_LABEL: "RayCluster",
                "ray.io/serve": format!("{cluster_name}-serve"),
            },
            "ownerReferences": [owner_reference("RayCluster", &cluster.metadata)],
        },
        "spec": spec,
    }))
}

fn object(value: &Value) -> Map<String, Value> {
    value.as_object().cloned().unwrap_or_default()
}

/// The Service that follows a RayJob from RayCluster to RayCluster.
pub fn job_head_service(job: &RayJob, cluster: &RayCluster) -> Value {
    let name = job.metadata.name();
    let mut service = head_service(cluster);
    let mut metadata = json!({
        "name": format!("{name}-head-svc"),
        "namespace": job.metadata.namespace(),
        "labels": {
            ORIGINATED_NAME_LABEL: name,
            ORIGINATED_KIND_LABEL: "RayJob",
            RAY_NODE_TYPE_LABEL: "head",
            "ray.io/identifier": names::label_value(&format!("{name}-head")),
        },
        "ownerReferences": [owner_reference("RayJob", &job.metadata)],
    });
    let annotations = &service["metadata"]["annotations"];
    if !annotations.is_null() {
        metadata["annotations"] = annotations.clone();
    }
    service["metadata"] = metadata;
    service
}
