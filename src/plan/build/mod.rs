//! The objects that Ray's kinds are made of, as KubeRay builds them: pure functions of RayJob and RayCluster.
//! Must not know what is already there.

mod cluster;
mod go;
mod pod;
mod pod_group;
mod probes;
mod ray_start;
mod service;
mod sizes;
mod submitter;

pub use cluster::{cluster_of, runtime_env, submit_body};
pub use go::version_at_least;
pub use pod::{head_pod, spec_hash, worker_pod};
pub use pod_group::{GangSize, pod_group, size_of_cluster, uses_volcano};
pub(super) use pod_group::{TOPOLOGY_MODE_LABEL, TOPOLOGY_TIER_LABEL};
pub use service::{head_service, head_service_name, job_head_service};
pub use sizes::{Sizes, desired_pods, min_pods, pod_resources, sizes};
pub use submitter::{submitter_job, submitter_template};

use serde_json::{Value, json};

use crate::api::ray::{ObjectMeta, RayCluster};

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
