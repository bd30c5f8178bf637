//! The Ingress of a head's dashboard (specs/raycluster.md 4.4).
//! Must not know whether one exists.

use serde_json::{Value, json};

use super::service::dashboard_port;
use super::{child_metadata, head_service_name};
use crate::api::ray::RayCluster;
use crate::plan::names;

/// Annotation of the RayCluster that names the class.
const CLASS: &str = "kubernetes.io/ingress.class";

/// Whether the user wants one.
pub fn has_ingress(cluster: &RayCluster) -> bool {
    cluster.spec.head().enable_ingress == Some(true)
}

/// Its name.
pub fn ingress_name(cluster: &RayCluster) -> String {
    names::object(&format!("{}-head-ingress", cluster.metadata.name()))
}

/// The Ingress: one rule with one path to the head Service.
pub fn ingress(cluster: &RayCluster) -> Value {
    let head = cluster.spec.head();
    let options = head.ingress_options.clone().unwrap_or_default();
    let text = |value: Option<String>| value.filter(|v| !v.is_empty());
    let mut rule = json!({ "http": { "paths": [{
        "path": text(options.path).unwrap_or_else(|| "/".into()),
        "pathType": text(options.path_type).unwrap_or_else(|| "Prefix".into()),
        "backend": { "service": {
            "name": head_service_name(cluster),
            "port": { "number": dashboard_port(cluster) },
        } },
    }] } });
    if let Some(host) = text(options.host) {
        rule["host"] = json!(host);
    }
    let mut spec = json!({ "rules": [rule] });
    if let Some(tls) = options.tls.filter(|tls| !tls.is_empty()) {
        spec["tls"] = json!(tls);
    }
    let class = cluster.metadata.annotation(CLASS);
    if !class.is_empty() {
        spec["ingressClassName"] = json!(class);
    }
    let mut metadata = child_metadata(cluster, &ingress_name(cluster));
    let identifier = names::label_value(&format!("{}-head", cluster.metadata.name()));
    metadata["labels"]["ray.io/identifier"] = json!(identifier);
    // A mirror's own annotations are between us and the hub.
    let theirs = |key: &str| key != CLASS && !key.starts_with("rayfleet.io/");
    let annotations = cluster.metadata.annotations.iter().flatten().filter(|(key, _)| theirs(key));
    let annotations: serde_json::Map<String, Value> = annotations.map(|(k, v)| (k.clone(), json!(v))).collect();
    if !annotations.is_empty() {
        metadata["annotations"] = Value::Object(annotations);
    }
    json!({ "apiVersion": "networking.k8s.io/v1", "kind": "Ingress", "metadata": metadata, "spec": spec })
}
