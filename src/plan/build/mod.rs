//! The objects that Ray's kinds are made of, as KubeRay builds them: pure functions of RayJob and RayCluster.
//! Must not know what is already there.

mod auth;
mod autoscaler;
mod cluster;
mod fault_tolerance;
mod go;
mod ingress;
mod pod;
mod pod_group;
mod probes;
mod ray_start;
mod service;
mod sizes;
mod submitter;

pub use auth::{has_secret, secret, secret_name};
pub use autoscaler::{account, account_name, own_account, role, role_binding, role_name};
pub use cluster::{cluster_of, runtime_env, submit_body};
pub use fault_tolerance::{REDIS_CLEANUP, redis_cleanup_job, redis_cleanup_name, shares_namespace, uses_redis};
pub use go::version_at_least;
pub use ingress::{has_ingress, ingress, ingress_name};
pub use pod::{Slot, head_pod, spec_hash, worker_pod};
pub use pod_group::{GangSize, pod_group, size_of_cluster, uses_volcano};
pub(super) use pod_group::{TOPOLOGY_MODE_LABEL, TOPOLOGY_TIER_LABEL};
pub use service::{
    head_service, head_service_name, headless_service, headless_service_name, job_head_service, serve_service,
    serve_service_name,
};
pub use sizes::{Sizes, desired_pods, min_pods, pod_resources, sizes};
pub use submitter::{SUBMITTER, submitter_job, submitter_template};

use serde_json::{Value, json};

use crate::api::names::RAY_CLUSTER_LABEL;
use crate::api::ray::{Container, ObjectMeta, RayCluster};

/// A controlling owner reference, as KubeRay writes it.
fn owner_reference(kind: &str, metadata: &ObjectMeta) -> Value {
    json!({
        "apiVersion": "ray.io/v1",
        "kind": kind,
        "name": metadata.name(),
        "uid": metadata.uid(),
        "controller": true,
        "blockOwnerDeletion": true,
    })
}

/// Metadata of most children of a RayCluster.
fn child_metadata(cluster: &RayCluster, name: &str) -> Value {
    json!({
        "name": name,
        "namespace": cluster.metadata.namespace(),
        "labels": {
            RAY_CLUSTER_LABEL: cluster.metadata.name(),
            "app.kubernetes.io/name": "kuberay",
            "app.kubernetes.io/created-by": "kuberay-operator",
        },
        "ownerReferences": [owner_reference("RayCluster", &cluster.metadata)],
    })
}

fn push(object: &mut Value, key: &str, item: Value) {
    match object[key].as_array_mut() {
        Some(list) => list.push(item),
        None => object[key] = Value::Array(vec![item]),
    }
}

/// Unless one of its name is there.
fn push_if_absent(object: &mut Value, key: &str, item: Value) {
    if !object[key].as_array().is_some_and(|list| list.iter().any(|other| other["name"] == item["name"])) {
        push(object, key, item);
    }
}

fn push_env(container: &mut Value, name: &str, value: &str) {
    push(container, "env", json!({ "name": name, "value": value }));
}

fn push_env_if_absent(container: &mut Value, name: &str, value: &str) {
    if !Container(container).has_env(name) {
        push_env(container, name, value);
    }
}

/// Which kind made the RayCluster: `RayJob`, `RayService` or `RayCluster` (specs/raycluster.md 3.12).
pub fn creator(cluster: &RayCluster) -> &'static str {
    match cluster.metadata.label(crate::api::names::ORIGINATED_KIND_LABEL) {
        "RayJob" => "RayJob",
        "RayService" => "RayService",
        _ => "RayCluster",
    }
}

/// Whether a switch that is written as text is on: `true` in any case.
fn is_on(text: &str) -> bool {
    text.eq_ignore_ascii_case("true")
}

#[cfg(test)]
mod golden;
