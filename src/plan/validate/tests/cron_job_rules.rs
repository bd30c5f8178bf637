//! Each rule of specs/raycronjob.md 2, with what breaks it and where that is said.

use serde_json::json;

use super::{cron_job, rules};

const SPEC: &str = "InvalidRayCronJobSpec";

rules! { cron_job SPEC
    a_cron_jobs_name_has_at_most_36_characters:
        [("metadata.name", json!("x".repeat(37)))] => "metadata.name";
    a_schedule_names_no_zone:
        [("spec.schedule", json!("TZ=UTC 0 * * * *"))] => "spec.schedule",
        [("spec.schedule", json!("CRON_TZ=UTC 0 * * * *"))] => "spec.schedule";
    a_schedule_is_five_fields_or_a_descriptor:
        [("spec.schedule", json!("0 * * *"))] => "spec.schedule",
        [("spec.schedule", json!("0 0 * * 7"))] => "spec.schedule",
        [("spec.schedule", json!(""))] => "spec.schedule";
    a_time_zone_is_not_empty:
        [("spec.timeZone", json!(""))] => "spec.timeZone";
    a_time_zone_is_known:
        [("spec.timeZone", json!("Europe/Atlantis"))] => "spec.timeZone",
        [("spec.timeZone", json!("europe/berlin"))] => "spec.timeZone";
    a_job_template_keeps_the_rules_of_a_jobs_spec:
        [("spec.jobTemplate", json!({}))] => "spec.jobTemplate.rayClusterSpec",
        [("spec.jobTemplate.suspend", json!(true))] => "spec.jobTemplate.suspend",
        [("spec.jobTemplate.rayClusterSpec.headGroupSpec.template.spec.containers", json!([]))]
            => "spec.jobTemplate.rayClusterSpec.headGroupSpec.template.spec.containers";
}

#[test]
fn what_keeps_the_rules_of_a_cron_job_is_taken() {
    for edits in [
        vec![],
        // The shape of the name is the RayJobs' business.
        vec![("metadata.name", json!("1-a"))],
        vec![("spec.schedule", json!("@every 90m"))],
        vec![("spec.timeZone", json!("Asia/Taipei"))],
        vec![("spec.timeZone", json!("UTC"))],
        vec![("spec.suspend", json!(true))],
    ] {
        assert_eq!(cron_job(&edits), Ok(()), "{edits:?}");
    }
}
