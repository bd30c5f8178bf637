//! Counters, retry and the writing of a RayJob's status (specs/rayjob.md 4.3, 12).
//! Must not know how a state is come to.

use serde_json::{Value, json};

use super::Draft;
use crate::api::ray::{RayClusterStatus, RayJobStatus};
use crate::plan::pass::Flow;
use crate::plan::ray_cluster;

/// Counts the attempt, begins the next one if there is one left, and writes what changed.
pub(super) fn step(draft: &mut Draft<'_>) -> Flow {
    let state = draft.new.job_deployment_status.clone().unwrap_or_default();
    let ended_now = draft.old.job_deployment_status.as_deref() != Some(&state);
    if state == "Failed" && ended_now {
        let failed = draft.new.failed.unwrap_or(0) + 1;
        draft.new.failed = Some(failed);
        let limit = draft.job.spec.backoff_limit.unwrap_or(0);
        let reason = draft.new.reason.as_deref().unwrap_or_default();
        let final_ = matches!(reason, "DeadlineExceeded" | "JobStatusCheckTimeoutExceeded");
        if draft.job.spec.backoff_limit.is_some() && failed < limit.saturating_add(1) && !final_ {
            draft.new.job_deployment_status = Some("Retrying".into());
        }
    }
    if state == "Complete" && ended_now && draft.new.job_status.as_deref() == Some("SUCCEEDED") {
        draft.new.succeeded = Some(draft.new.succeeded.unwrap_or(0) + 1);
    }
    if differs(&draft.old, &draft.new) {
        write(draft);
    }
    Flow::Next
}

/// Writes the status; the end is dated when it is stored.
pub(super) fn write(draft: &mut Draft<'_>) {
    let new = &mut draft.new;
    if matches!(new.job_deployment_status.as_deref(), Some("Complete" | "Failed")) {
        new.end_time = Some(draft.pass.now.seconds_text());
    }
    // What was refused before it began counts nothing.
    if new.job_deployment_status.as_deref() != Some("ValidationFailed") {
        new.failed.get_or_insert(0);
        new.succeeded.get_or_insert(0);
    }
    new.ray_job_info.get_or_insert_default();
    let mut status = serde_json::to_value(&*new).unwrap_or_default();
    // Always there in KubeRay's, also when nothing is known.
    let cluster = &mut status["rayClusterStatus"];
    for key in ["desiredCPU", "desiredMemory", "desiredGPU", "desiredTPU"] {
        if cluster[key].is_null() {
            cluster[key] = json!("0");
        }
    }
    if cluster["head"].is_null() {
        cluster["head"] = json!({});
    }
    let decision = draft.new.job_deployment_status != draft.old.job_deployment_status
        || draft.new.job_id != draft.old.job_id
        || draft.new.ray_cluster_name != draft.old.ray_cluster_name;
    let mut body = draft.body.clone();
    body["status"] = status;
    draft.pass.status(body, decision);
}

/// Whether one of the four changed that are worth a write.
fn differs(old: &RayJobStatus, new: &RayJobStatus) -> bool {
    let text = |t: &Option<String>| Value::from(t.clone().unwrap_or_default());
    let empty = RayClusterStatus::default();
    text(&old.job_status) != text(&new.job_status)
        || text(&old.job_deployment_status) != text(&new.job_deployment_status)
        || text(&old.job_status_check_failure_start_time) != text(&new.job_status_check_failure_start_time)
        || ray_cluster::differs(
            old.ray_cluster_status.as_ref().unwrap_or(&empty),
            new.ray_cluster_status.as_ref().unwrap_or(&empty),
        )
}
