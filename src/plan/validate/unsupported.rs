//! What KubeRay does and this release does not: refused with the field's name, never passed over.
//! Must not know KubeRay's own rules.

use super::{NOT_BUILT, Refusal, Rule, broken, refused};
use crate::api::ray::RayJob;

/// Refuses a RayJob that needs what is not built yet.
pub(super) fn ray_job_is_built(job: &RayJob) -> Result<(), Refusal> {
    refused(job_rules(job), NOT_BUILT)
}

fn job_rules(job: &RayJob) -> Rule {
    if job.spec.selected_cluster().is_some() {
        // Then a rayClusterSpec beside it counts for nothing (specs/rayjob.md 2).
        return Ok(());
    }
    let auth = job.spec.ray_cluster_spec.as_ref().and_then(|spec| spec.auth_options.as_ref());
    if auth.is_some_and(|options| options.mode.as_deref() == Some("token")) {
        return broken("spec.rayClusterSpec.authOptions", "jobs on a Ray that asks for tokens are not built yet");
    }
    Ok(())
}
