//! What KubeRay does and this release does not: refused with the field's name, never passed over.
//! Must not know KubeRay's own rules.

use super::{NOT_BUILT, Refusal, Rule, broken, refused};
use crate::api::ray::{RayCluster, RayClusterSpec, RayJob};

/// Refuses a RayCluster that needs what is not built yet.
pub fn ray_cluster_is_built(cluster: &RayCluster) -> Result<(), Refusal> {
    let annotation = |key: &str| cluster.metadata.annotation(key).to_owned();
    refused(spec(&cluster.spec, "spec", &annotation), NOT_BUILT)
}

/// Refuses a RayJob that needs what is not built yet.
pub(super) fn ray_job_is_built(job: &RayJob) -> Result<(), Refusal> {
    let annotation = |key: &str| job.metadata.annotation(key).to_owned();
    refused(job_rules(job, &annotation), NOT_BUILT)
}

fn job_rules(job: &RayJob, annotation: &dyn Fn(&str) -> String) -> Rule {
    if job.spec.mode() == "SidecarMode" {
        return broken("spec.submissionMode", "SidecarMode is not built yet; K8sJobMode and HTTPMode are");
    }
    if job.spec.selected_cluster().is_some() {
        return broken("spec.clusterSelector", "jobs on a RayCluster that exists are not built yet");
    }
    match &job.spec.ray_cluster_spec {
        Some(cluster) => spec(cluster, "spec.rayClusterSpec", annotation),
        None => Ok(()),
    }
}

fn spec(spec: &RayClusterSpec, at: &str, annotation: &dyn Fn(&str) -> String) -> Rule {
    let auth = spec.auth_options.as_ref().is_some_and(|a| a.mode.as_deref() != Some("disabled"));
    let on = |key: &str| annotation(key).eq_ignore_ascii_case("true");
    for (set, field, what) in [
        (spec.autoscaling(), "enableInTreeAutoscaling", "Ray's autoscaler"),
        (spec.gcs_fault_tolerance_options.is_some(), "gcsFaultToleranceOptions", "GCS fault tolerance"),
        (auth, "authOptions", "token authentication"),
        (spec.head().enable_ingress == Some(true), "headGroupSpec.enableIngress", "an Ingress for the head"),
    ] {
        if set {
            return broken(format!("{at}.{field}"), format!("{what} is not built yet"));
        }
    }
    for (key, what) in [
        ("ray.io/ft-enabled", "GCS fault tolerance"),
        ("ray.io/enable-serve-service", "a Serve Service of a RayCluster"),
    ] {
        if on(key) {
            return broken(format!("metadata.annotations[{key}]"), format!("{what} is not built yet"));
        }
    }
    if let Some(i) = spec.groups().iter().position(|g| g.hosts() > 1) {
        return broken(
            format!("{at}.workerGroupSpecs[{i}].numOfHosts"),
            "replicas of more than one host are not built yet",
        );
    }
    Ok(())
}
