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
    if job.spec.selected_cluster().is_some() {
        // Then a rayClusterSpec beside it counts for nothing (specs/rayjob.md 2).
        return Ok(());
    }
    let auth = job.spec.ray_cluster_spec.as_ref().and_then(|spec| spec.auth_options.as_ref());
    if auth.is_some_and(|options| options.mode.as_deref() == Some("token")) {
        return broken("spec.rayClusterSpec.authOptions", "jobs on a Ray that asks for tokens are not built yet");
    }
    match &job.spec.ray_cluster_spec {
        Some(cluster) => spec(cluster, "spec.rayClusterSpec", annotation),
        None => Ok(()),
    }
}

fn spec(spec: &RayClusterSpec, at: &str, annotation: &dyn Fn(&str) -> String) -> Rule {
    const SWITCH: &str = "ray.io/ft-enabled";
    let not_built = "GCS fault tolerance is not built yet";
    if spec.gcs_fault_tolerance_options.is_some() {
        return broken(format!("{at}.gcsFaultToleranceOptions"), not_built);
    }
    if annotation(SWITCH).eq_ignore_ascii_case("true") {
        return broken(format!("metadata.annotations[{SWITCH}]"), not_built);
    }
    Ok(())
}
