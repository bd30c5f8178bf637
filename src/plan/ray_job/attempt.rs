//! Beginning and undoing an attempt: RayCluster, submitter, suspension, retry (specs/rayjob.md 4.2, 10 to 13).
//! Must not know what Ray says about the job.

use std::time::Duration;

use serde_json::json;

use super::poll::has_submitted;
use super::{Draft, after, status, time};
use crate::api::Kind;
use crate::api::names::ROOT;
use crate::api::ray::{RayCluster, RayJobInfo};
use crate::plan::pass::Flow;
use crate::plan::ray_cluster::{ensure_pod_group, resize};
use crate::plan::{Propagation, build};
use crate::row::Facts;

/// A RayCluster that is not the job's own does not wake it: it is looked at again after this time, as by KubeRay (section 3).
const SELECTED_AGAIN: Duration = Duration::from_secs(3);

/// Whether a deadline of `seconds` from `status.startTime` is over; the pass comes back for it otherwise.
pub(super) fn is_over(draft: &mut Draft<'_>, seconds: Option<i32>) -> bool {
    let (Some(seconds), Some(started)) = (seconds, time(draft.old.start_time.as_deref())) else { return false };
    let due = after(started, seconds);
    if draft.pass.now < due {
        draft.pass.look_at(due);
    }
    draft.pass.now >= due
}

/// Suspension and the deadline of the attempt: looked at first in Initializing and Running.
pub(super) fn is_stopped(draft: &mut Draft<'_>) -> bool {
    if draft.job.spec.suspend == Some(true) {
        draft.go("Suspending", "", "");
        return true;
    }
    let limit = draft.job.spec.active_deadline_seconds;
    if is_over(draft, limit) {
        let text = format!("the attempt took longer than activeDeadlineSeconds ({} s)", limit.unwrap_or(0));
        draft.go("Failed", "DeadlineExceeded", text);
        return true;
    }
    false
}

fn is_late(draft: &mut Draft<'_>) -> bool {
    let limit = draft.job.spec.pre_running_deadline_seconds;
    if is_over(draft, limit) {
        let text = format!("it did not run within preRunningDeadlineSeconds ({} s)", limit.unwrap_or(0));
        draft.go("Failed", "PreRunningDeadlineExceeded", text);
        return true;
    }
    false
}

/// PodGroup, RayCluster, its dashboard, the submitter: one after the other.
pub(super) fn initializing(draft: &mut Draft<'_>) -> Flow {
    if is_stopped(draft) || is_late(draft) {
        return Flow::Next;
    }
    if pod_group(draft) == Flow::Stop {
        return Flow::Stop;
    }
    let Some(cluster) = ensure_cluster(draft) else { return Flow::Stop };
    if draft.new.dashboard_url.as_deref().unwrap_or_default().is_empty() {
        let state = cluster.status.as_ref().and_then(|s| s.state.as_deref()).unwrap_or_default();
        // A head whose submitter has ended is not ready any more: where the job was quicker than its workers, the cluster
        // never would be.
        if state != "ready" && !has_submitted(draft, &cluster) {
            draft.new.ray_cluster_status.clone_from(&cluster.status);
            let text = format!("RayCluster {} is not ready", cluster.metadata.name());
            draft.pass.waits_for(text);
            return Flow::Next;
        }
        let Some(url) = dashboard_url(draft, &cluster) else { return Flow::Stop };
        draft.new.dashboard_url = Some(url);
        if draft.selected().is_some() {
            // This Ray outlives the job: where to stop it is stored before anybody can submit it.
            status::write(draft);
            draft.pass.waits_for("the address of its dashboard is being stored");
            return Flow::Stop;
        }
    }
    let mode = draft.job.spec.mode();
    if mode == "InteractiveMode" {
        draft.go("Waiting", "", "");
        return Flow::Next;
    }
    if mode == "K8sJobMode" && submitter(draft, &cluster) == Flow::Stop {
        return Flow::Stop;
    }
    draft.go("Running", "", "");
    Flow::Next
}

/// The PodGroup of a RayJob that a user applied here; a mirror's exists from its reservation.
fn pod_group(draft: &mut Draft<'_>) -> Flow {
    if draft.pass.is_mirror() || !build::uses_volcano(&draft.job.metadata) || draft.selected().is_some() {
        return Flow::Next;
    }
    let cluster = match build::cluster_of(&draft.job, "") {
        Ok(cluster) => cluster,
        Err(error) => return not_made(draft, "", &error),
    };
    let mut size = build::size_of_cluster(&cluster.spec);
    if draft.job.spec.mode() == "K8sJobMode" {
        // The submitter comes later: it is room that is kept, not a member that is waited for.
        let template = build::submitter_template(&draft.job, &cluster).unwrap_or_default();
        for (name, quantity) in build::pod_resources(&crate::api::ray::PodTemplate(template)) {
            *size.min_resources.entry(name).or_default() += quantity;
        }
    }
    let metadata = draft.job.metadata.clone();
    ensure_pod_group(&mut draft.pass, "RayJob", &metadata, &size)
}

/// The RayCluster of the attempt, made if it is not there and not selected; `None` = nothing more can be done in this pass.
pub(super) fn ensure_cluster(draft: &mut Draft<'_>) -> Option<RayCluster> {
    if draft.selected().is_some() {
        return selected_cluster(draft);
    }
    let name = draft.cluster_name().to_owned();
    let full = draft.pass.full_name(&name);
    match draft.pass.child(Kind::RayCluster, &name) {
        None => {
            let built = match build::cluster_of(&draft.job, &name) {
                Ok(built) => built,
                Err(error) => {
                    not_made(draft, &name, &error);
                    return None;
                }
            };
            let body = serde_json::to_value(built).unwrap_or_default();
            draft.pass.create(Kind::RayCluster, body);
            draft.pass.note(false, "CreatedRayCluster", "Create", format!("Created RayCluster {full}"));
            draft.pass.waits_for(format!("RayCluster {full} is being made"));
            None
        }
        Some(row) if !draft.pass.controls(row) => {
            draft.pass.waits_for(format!("RayCluster {full} belongs to somebody else"));
            None
        }
        Some(row) if row.deleting.is_some() => {
            draft.pass.waits_for(format!("RayCluster {full} is being deleted; it is made again when it is gone"));
            None
        }
        Some(_) => {
            let found = draft.ray_cluster().map(|(_, cluster)| cluster);
            if found.is_none() {
                draft.pass.waits_for(format!("RayCluster {full} cannot be read"));
            }
            found
        }
    }
}

/// The RayCluster that the job selects, if it can be used.
fn selected_cluster(draft: &mut Draft<'_>) -> Option<RayCluster> {
    let name = draft.cluster_name().to_owned();
    let full = draft.pass.full_name(&name);
    draft.pass.look_at(draft.pass.now + SELECTED_AGAIN);
    let Some(row) = draft.pass.child(Kind::RayCluster, &name) else {
        let text = format!("RayCluster {full}, which clusterSelector names, is not there");
        draft.pass.note(true, "RayClusterNotFound", "Validate", text.clone());
        draft.pass.waits_for(text);
        return None;
    };
    if row.deleting.is_some() {
        draft.pass.waits_for(format!("RayCluster {full} is being deleted"));
        return None;
    }
    // What the hub placed must not end up on a RayCluster that somebody has put in the place of the hub's.
    if draft.pass.is_mirror() && row.annotation(ROOT) != format!("{}/{full}", Kind::RayCluster.name()) {
        draft.pass.waits_for(format!("RayCluster {full} is not the one of the hub"));
        return None;
    }
    let Some((_, cluster)) = draft.ray_cluster() else {
        draft.pass.waits_for(format!("RayCluster {full} cannot be read"));
        return None;
    };
    let auth = cluster.spec.auth_options.as_ref().and_then(|options| options.mode.as_deref());
    if auth == Some("token") {
        draft.pass.waits_for(format!("RayCluster {full} asks for tokens: jobs on such a Ray are not built yet"));
        return None;
    }
    Some(cluster)
}

/// What a RayCluster is made of cannot be used.
fn not_made(draft: &mut Draft<'_>, name: &str, error: &str) -> Flow {
    let text = format!("Failed to create RayCluster {}: {error}", draft.pass.full_name(name));
    draft.pass.note(true, "FailedToCreateRayCluster", "Create", text.clone());
    draft.pass.waits_for(text);
    Flow::Stop
}

/// `host:port` of the head Service's port `dashboard`.
fn dashboard_url(draft: &mut Draft<'_>, cluster: &RayCluster) -> Option<String> {
    let service = build::head_service_name(cluster);
    let full = draft.pass.full_name(&service);
    let ports = draft.pass.child(Kind::Service, &service).map(|row| &row.facts);
    let Some(Facts::Service(facts)) = ports else {
        draft.pass.waits_for(format!("Service {full} is not there yet"));
        return None;
    };
    let Some(port) = facts.ports.iter().find(|p| &*p.name == "dashboard") else {
        draft.pass.waits_for(format!("Service {full} has no port named dashboard: nobody can ask Ray about the job"));
        return None;
    };
    Some(format!("{service}.{}.svc.{}:{}", draft.pass.row.id.namespace, draft.flags.cluster_domain, port.port))
}

/// The submitter's Job, made if it is not there. Running is stored only when it is.
fn submitter(draft: &mut Draft<'_>, cluster: &RayCluster) -> Flow {
    let name = draft.job.metadata.name().to_owned();
    let full = draft.pass.full_name(&name);
    match draft.pass.child(Kind::Job, &name) {
        Some(row) if draft.pass.controls(row) => return Flow::Next,
        Some(_) => {
            draft.pass.waits_for(format!("Job {full} belongs to somebody else"));
            return Flow::Stop;
        }
        None => {}
    }
    let mut job = draft.job.clone();
    job.status = Some(draft.new.clone());
    match build::submitter_job(&job, cluster) {
        Ok(body) => {
            draft.pass.create(Kind::Job, body);
            draft.pass.note(false, "CreatedRayJobSubmitter", "Create", format!("Created Kubernetes Job {full}"));
            draft.pass.waits_for("its submitter is being made");
        }
        Err(error) => {
            let text = format!("Failed to create new Kubernetes Job {full}: {error}");
            draft.pass.note(true, "FailedToCreateRayJobSubmitter", "Create", text.clone());
            draft.pass.waits_for(text);
        }
    }
    Flow::Stop
}

/// InteractiveMode: the user submits, and tells the id.
pub(super) fn waiting(draft: &mut Draft<'_>) -> Flow {
    if is_late(draft) {
        return Flow::Next;
    }
    let Some(id) = draft.job.spec.job_id.clone().filter(|id| !id.is_empty()) else {
        draft.pass.waits_for("its user submits a job and sets spec.jobId");
        return Flow::Stop;
    };
    draft.new.job_id = Some(id);
    draft.go("Running", "", "");
    Flow::Next
}

/// Suspending and Retrying: RayCluster and submitter go, then everything of the attempt is forgotten.
pub(super) fn undoing(draft: &mut Draft<'_>) -> Flow {
    let cluster = draft.delete_cluster();
    let job = delete_submitter(draft);
    if cluster || job {
        draft.pass.waits_for("what the attempt made is going");
        return Flow::Stop;
    }
    shrink_pod_group(draft);
    let new = &mut draft.new;
    new.ray_cluster_status = None;
    new.ray_cluster_name = None;
    new.dashboard_url = None;
    new.job_id = None;
    new.message = None;
    new.ray_job_info = Some(RayJobInfo::default());
    new.job_status_check_failure_start_time = None;
    new.job_status = None;
    let next = if draft.state() == "Suspending" { "Suspended" } else { "" };
    draft.go(next, "", "");
    Flow::Next
}

fn delete_submitter(draft: &mut Draft<'_>) -> bool {
    if matches!(draft.job.spec.mode(), "HTTPMode" | "SidecarMode") {
        return false;
    }
    let Some(row) = draft.pass.child(Kind::Job, draft.job.metadata.name()) else { return false };
    if !draft.pass.controls(row) {
        return false;
    }
    if draft.pass.delete(row, Propagation::Background) {
        let name = draft.pass.full_name(&row.id.name);
        draft.pass.note(false, "DeletedRayJobSubmitter", "Delete", format!("Deleted submitter K8s Job {name}"));
    }
    true
}

/// Gives room back to Volcano (specs/rayjob.md 17): the PodGroup asks for what the live RayCluster asks for, nothing where
/// it is gone. A mirror that will be tried again keeps what was reserved for it. Says whether anything changed.
pub(super) fn shrink_pod_group(draft: &mut Draft<'_>) -> bool {
    let undoing = matches!(draft.state(), "Suspending" | "Retrying");
    if !build::uses_volcano(&draft.job.metadata) || draft.selected().is_some() || (draft.pass.is_mirror() && undoing) {
        return false;
    }
    let name = crate::plan::names::pod_group(draft.job.metadata.name());
    let Some(row) = draft.pass.child(Kind::PodGroup, &name).filter(|row| draft.pass.controls(row)) else {
        return false;
    };
    let live = draft.ray_cluster().filter(|(row, _)| !draft.pass.is_going(row)).map(|(_, cluster)| cluster);
    let changed = match live {
        // The reservation was computed by our own rule and stays until the cluster goes.
        Some(_) if draft.pass.is_mirror() => false,
        Some(cluster) => resize(&mut draft.pass, row, &build::size_of_cluster(&cluster.spec)),
        None => nothing_left(draft, row),
    };
    if changed {
        let full = draft.pass.full_name(draft.job.metadata.name());
        let text = format!("Cleaned up batch scheduler resources for RayJob {full}");
        draft.pass.note(false, "BatchSchedulerCleanedUp", "Cleanup", text);
    }
    changed
}

fn nothing_left(draft: &mut Draft<'_>, row: &crate::row::Row) -> bool {
    let Facts::PodGroup(facts) = &row.facts else { return false };
    if facts.min_task_member.is_empty() {
        return resize(&mut draft.pass, row, &build::GangSize::default());
    }
    let spec = json!({ "minMember": 0, "minTaskMember": null, "minResources": null });
    draft.pass.merge(row, json!({ "spec": spec }));
    true
}
