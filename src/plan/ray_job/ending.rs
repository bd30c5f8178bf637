//! After the end of a RayJob, and its deletion (specs/rayjob.md 14, 15).
//! Must not know how a job runs.

use std::time::Duration;

use serde_json::{Value, json};

use super::attempt::shrink_pod_group;
use super::poll::is_terminal;
use super::{Draft, after, time};
use crate::api::Kind;
use crate::api::names::RAYJOB_FINALIZER;
use crate::api::ray::{DeletionRule, DeletionStrategy, RayCluster};
use crate::plan::pass::Flow;
use crate::plan::{Action, Propagation, Question};

/// How long a deletion waits for Ray to stop the job.
const STOP_LIMIT: Duration = Duration::from_secs(10);

/// A RayJob that is being deleted: its Ray job is stopped as far as possible, then the finalizer goes.
pub(super) fn deletion(draft: &mut Draft<'_>) -> Flow {
    let Some(since) = draft.pass.row.deleting else { return Flow::Next };
    draft.pass.waits_for("it is being deleted");
    if !draft.pass.row.has_finalizer(RAYJOB_FINALIZER) {
        return Flow::Stop;
    }
    let running = !is_terminal(draft.old.job_status.as_deref().unwrap_or_default());
    let limit = since + STOP_LIMIT;
    if running && draft.pass.now < limit && stop(draft) {
        draft.pass.look_at(limit);
        return Flow::Stop;
    }
    let mut body = draft.body.clone();
    if let Some(list) = body["metadata"]["finalizers"].as_array_mut() {
        list.retain(|name| name != RAYJOB_FINALIZER);
    }
    let row = draft.pass.row;
    draft.pass.replace(row, body);
    Flow::Stop
}

/// Asks Ray to stop the job, once; `false` where there is nothing to ask or the answer is there.
fn stop(draft: &mut Draft<'_>) -> bool {
    let job = draft.old.job_id.clone().unwrap_or_default();
    let cluster_is_there = draft.pass.child(Kind::RayCluster, draft.cluster_name()).is_some();
    let Some(dashboard) = draft.dashboard().filter(|_| cluster_is_there && !job.is_empty()) else { return false };
    let key = (draft.pass.member.clone(), dashboard.clone(), job.as_str().into());
    let since = draft.pass.row.deleting.unwrap_or(draft.pass.now);
    if draft.rays.jobs.get(&key).and_then(|view| view.stopped).is_some_and(|at| at >= since) {
        return false;
    }
    let member = draft.pass.member.clone();
    let question = Question::Stop { job: job.into() };
    draft.pass.plan.actions.push(Action::Ask { member, dashboard, question });
    true
}

/// Complete or Failed: what is to be deleted, and when.
pub(super) fn ended(draft: &mut Draft<'_>) -> Flow {
    if draft.selected().is_some() {
        // What it used is not its own, and its own stays (specs/rayjob.md 14).
        let state = draft.state().to_owned();
        draft.pass.waits_for(format!("it has ended: {state}"));
        return Flow::Stop;
    }
    let state = draft.state().to_owned();
    let strategy = draft.job.spec.deletion_strategy.clone();
    // A strategy stands in the place of shutdownAfterJobFinishes, also where none of it applies.
    if let Some(strategy) = strategy {
        match &strategy.deletion_rules {
            Some(rules) => by_rules(draft, rules),
            None => by_policy(draft, &strategy),
        }
    } else if draft.job.spec.shutdown_after_job_finishes == Some(true) && ttl_is_over(draft) {
        draft.delete_cluster();
    }
    // After what is deleted: room of a cluster that goes now is given back at once.
    shrink_pod_group(draft);
    draft.pass.waits_for(format!("it has ended: {state}"));
    Flow::Stop
}

/// The older two policies: by the Ray job's status, nothing for any other than these two.
fn by_policy(draft: &mut Draft<'_>, strategy: &DeletionStrategy) {
    let side = match draft.old.job_status.as_deref() {
        Some("SUCCEEDED") => &strategy.on_success,
        Some("FAILED") => &strategy.on_failure,
        _ => return,
    };
    let policy = side.as_ref().and_then(|s| s.policy.as_deref()).unwrap_or_default();
    if !matches!(policy, "" | "DeleteNone") && ttl_is_over(draft) {
        carry_out(draft, policy);
    }
}

fn is_due(draft: &mut Draft<'_>, seconds: i32) -> bool {
    let Some(ended) = time(draft.old.end_time.as_deref()) else { return false };
    let due = after(ended, seconds);
    if draft.pass.now < due {
        draft.pass.look_at(due);
    }
    draft.pass.now >= due
}

fn ttl_is_over(draft: &mut Draft<'_>) -> bool {
    let seconds = draft.job.spec.ttl_seconds_after_finished.unwrap_or(0);
    is_due(draft, seconds)
}

/// Of the rules that are due and not carried out yet, the most destructive one.
fn by_rules(draft: &mut Draft<'_>, rules: &[DeletionRule]) {
    let mut worst: Option<(u8, &str)> = None;
    for rule in rules {
        let condition = &rule.condition;
        let applies = match (&condition.job_status, &condition.job_deployment_status) {
            (Some(status), _) => draft.old.job_status.as_ref() == Some(status),
            (None, Some(state)) => draft.old.job_deployment_status.as_ref() == Some(state),
            (None, None) => false,
        };
        if !applies || !is_due(draft, condition.ttl_seconds.unwrap_or(0)) || is_achieved(draft, &rule.policy) {
            continue;
        }
        let weight = match rule.policy.as_str() {
            "DeleteSelf" => 3,
            "DeleteCluster" => 2,
            "DeleteWorkers" => 1,
            _ => 0,
        };
        if worst.is_none_or(|(w, _)| weight > w) {
            worst = Some((weight, &rule.policy));
        }
    }
    if let Some((_, policy)) = worst {
        carry_out(draft, policy);
    }
}

fn is_achieved(draft: &Draft<'_>, policy: &str) -> bool {
    // What another has made is neither suspended nor deleted (report R26): a job may have named one before its spec changed.
    let cluster = draft.ray_cluster().filter(|(row, _)| draft.pass.controls(row));
    let gone = cluster.as_ref().is_none_or(|(row, _)| row.deleting.is_some());
    let idle = |cluster: &RayCluster| cluster.spec.groups().iter().all(crate::api::ray::WorkerGroupSpec::suspended);
    match policy {
        "DeleteWorkers" => gone || cluster.is_some_and(|(_, cluster)| idle(&cluster)),
        "DeleteCluster" => gone,
        "DeleteSelf" => false,
        _ => true,
    }
}

fn carry_out(draft: &mut Draft<'_>, policy: &str) {
    match policy {
        "DeleteSelf" => {
            let row = draft.pass.row;
            draft.pass.delete(row, Propagation::Background);
        }
        "DeleteCluster" => {
            draft.delete_cluster();
        }
        "DeleteWorkers" => suspend_workers(draft),
        _ => {}
    }
}

fn suspend_workers(draft: &mut Draft<'_>) {
    if is_achieved(draft, "DeleteWorkers") {
        return;
    }
    let Some(row) = draft.pass.child(Kind::RayCluster, draft.cluster_name()) else { return };
    let Ok(mut body) = serde_json::from_str::<Value>(row.body.as_deref().unwrap_or("null")) else { return };
    for group in body["spec"]["workerGroupSpecs"].as_array_mut().into_iter().flatten() {
        group["suspend"] = json!(true);
    }
    let name = draft.pass.full_name(&row.id.name);
    draft.pass.replace(row, body);
    let text = format!("Set suspend to true for all worker groups of cluster {name}");
    draft.pass.note(false, "UpdatedRayCluster", "Update", text);
}
