//! Running: what submitter and Ray say about the job (specs/rayjob.md 4.2, 5, 7, 13).
//! Must not know how an attempt begins.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};

use super::attempt::{ensure_cluster, is_stopped};
use super::{Draft, after, time};
use crate::api::names::RAY_NODE_TYPE_LABEL;
use crate::api::ray::RayCluster;
use crate::api::{Kind, Time, Uid};
use crate::plan::pass::Flow;
use crate::plan::{Action, JobAnswer, Question, SubmitOutcome, build};
use crate::row::Facts;

/// A running job is asked this often.
const PERIOD: Duration = Duration::from_secs(3);
/// Between the submitter's end and the job's (13.3).
const SUBMITTER_GRACE_SECONDS: i32 = 30;
/// Between the Ray job's end and the state that follows from it (13.4).
const TRANSITION_GRACE_SECONDS: i32 = 300;
/// How long the dashboard may fail to answer (13.5).
const CHECK_TIMEOUT_SECONDS: i32 = 300;

/// One look at a running job.
pub(super) fn running(draft: &mut Draft<'_>) -> Flow {
    if is_stopped(draft) || transition_is_overdue(draft) {
        return Flow::Next;
    }
    let Some(cluster) = ensure_cluster(draft) else {
        // A RayCluster that stays away answers no more than a silent one, and nobody makes it anew for the job (ADR 8).
        return if draft.selected().is_some() { check_failed(draft) } else { Flow::Stop };
    };
    if draft.selected().is_none() && head_service(draft, &cluster) == Flow::Stop {
        return Flow::Stop;
    }
    let submitter = match submitter(draft, &cluster) {
        Ok(submitter) => submitter,
        Err(NoSubmitter::Unclear(why)) => {
            draft.pass.waits_for(why);
            return Flow::Stop;
        }
        Err(NoSubmitter::Lost(why)) => {
            draft.go("Failed", "AppFailed", why);
            return Flow::Next;
        }
    };
    let end = submitter_end(draft, &submitter);
    ask(draft, &cluster, submitter.finished, end)
}

/// What KubeRay makes of a submitter that has ended. It stands only where Ray itself does not know better: a job that
/// runs is followed, and a job that has ended counts with its own result, however late we look (report R16).
enum SubmitterEnd {
    /// It ended more than [`SUBMITTER_GRACE_SECONDS`] ago, and the job has not.
    Overdue(String),
    /// It failed, for this reason.
    Failed(&'static str, String),
}

impl SubmitterEnd {
    fn apply(self, draft: &mut Draft<'_>) -> Flow {
        match self {
            SubmitterEnd::Overdue(text) => {
                draft.new.job_status = Some("FAILED".into());
                draft.go("Failed", "JobDeploymentStatusTransitionGracePeriodExceeded", text);
            }
            SubmitterEnd::Failed(reason, text) => draft.go("Failed", reason, text),
        }
        Flow::Next
    }
}

fn submitter_end(draft: &mut Draft<'_>, submitter: &Submitter) -> Option<SubmitterEnd> {
    if let Some(finished) = submitter.finished {
        let due = after(finished, SUBMITTER_GRACE_SECONDS);
        if draft.pass.now >= due {
            return Some(SubmitterEnd::Overdue(format!(
                "The RayJob submitter finished at {} but the ray job did not reach terminal state within {SUBMITTER_GRACE_SECONDS}s",
                finished.seconds_text()
            )));
        }
        draft.pass.look_at(due);
    }
    let message = submitter.failed.clone()?;
    Some(match draft.old.job_status.as_deref() {
        Some("FAILED") => SubmitterEnd::Failed("AppFailed", String::new()),
        _ => SubmitterEnd::Failed("SubmissionFailed", message),
    })
}

/// A terminal Ray job whose RayJob does not follow for too long ends it.
fn transition_is_overdue(draft: &mut Draft<'_>) -> bool {
    let status = draft.old.job_status.clone().unwrap_or_default();
    let ended = draft.old.ray_job_info.as_ref().and_then(|i| time(i.end_time.as_deref()));
    let (true, Some(ended)) = (is_terminal(&status), ended) else { return false };
    let due = after(ended, TRANSITION_GRACE_SECONDS);
    if draft.pass.now < due {
        draft.pass.look_at(due);
        return false;
    }
    let state = if status == "FAILED" { "Failed" } else { "Complete" };
    let text = format!("the Ray job ended more than {TRANSITION_GRACE_SECONDS} s ago, the submitter has not");
    draft.go(state, "JobDeploymentStatusTransitionGracePeriodExceeded", text);
    true
}

/// The Service that follows the job from RayCluster to RayCluster.
fn head_service(draft: &mut Draft<'_>, cluster: &RayCluster) -> Flow {
    let body = build::job_head_service(&draft.job, cluster);
    let name = body["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    let full = draft.pass.full_name(&name);
    let Some(row) = draft.pass.child(Kind::Service, &name) else {
        draft.pass.create(Kind::Service, body);
        draft.pass.note(false, "CreatedService", "Create", format!("Created the service {full}"));
        return Flow::Next;
    };
    if !draft.pass.controls(row) {
        draft.pass.waits_for(format!("Service {full} belongs to somebody else"));
        return Flow::Stop;
    }
    let Facts::Service(facts) = &row.facts else { return Flow::Next };
    let leads_to = facts.selector.get(crate::api::names::RAY_CLUSTER_LABEL).map_or("", |c| &**c);
    if leads_to != cluster.metadata.name() {
        let patch = json!({ "selector": body["spec"]["selector"], "ports": body["spec"]["ports"] });
        draft.pass.merge(row, json!({ "spec": patch }));
        draft.pass.note(false, "UpdatedService", "Update", format!("Updated the service {full}"));
    }
    Flow::Next
}

/// What is known of the submitter.
struct Submitter {
    finished: Option<Time>,
    /// It failed: condition's reason and message.
    failed: Option<String>,
}

/// Why nothing is known of the submitter.
enum NoSubmitter {
    /// It may come to be known.
    Unclear(String),
    /// It is gone for good, and the job with it.
    Lost(String),
}

fn submitter(draft: &Draft<'_>, cluster: &RayCluster) -> Result<Submitter, NoSubmitter> {
    match draft.job.spec.mode() {
        "K8sJobMode" => by_job(draft),
        "SidecarMode" => beside_head(draft, cluster),
        _ => Ok(Submitter { finished: None, failed: None }),
    }
}

fn by_job(draft: &Draft<'_>) -> Result<Submitter, NoSubmitter> {
    let name = draft.job.metadata.name();
    let row = draft.pass.child(Kind::Job, name);
    let Some(Facts::Job(facts)) = row.map(|row| &row.facts) else {
        return Err(NoSubmitter::Unclear(format!("its submitter, Job {}, is gone", draft.pass.full_name(name))));
    };
    let ended = facts.conditions.iter().find(|(kind, ..)| matches!(&**kind, "Complete" | "Failed"));
    let failed = facts.conditions.iter().find(|(kind, ..)| &**kind == "Failed");
    Ok(Submitter {
        finished: ended.and_then(|(.., at)| *at),
        failed: failed.map(|(_, reason, message, _)| format!("the submitter failed: {reason}: {message}")),
    })
}

/// Whether a submitter beside the head has ended.
pub(super) fn has_submitted(draft: &Draft<'_>, cluster: &RayCluster) -> bool {
    draft.job.spec.mode() == "SidecarMode"
        && beside_head(draft, cluster).is_ok_and(|submitter| submitter.finished.is_some())
}

/// The container in the head's pod (7.3). A head that is gone takes job and submitter along.
fn beside_head(draft: &Draft<'_>, cluster: &RayCluster) -> Result<Submitter, NoSubmitter> {
    let uid = Uid::from(cluster.metadata.uid());
    let pods = draft.pass.tables.owned_by(&uid);
    let heads = pods.filter_map(|row| match &row.facts {
        Facts::Pod(facts) if row.label(RAY_NODE_TYPE_LABEL) == "head" => Some(facts),
        _ => None,
    });
    let heads: Vec<_> = heads.collect();
    let name = draft.pass.full_name(cluster.metadata.name());
    let [head] = heads.as_slice() else {
        return Err(if heads.is_empty() {
            NoSubmitter::Lost(format!("the head pod of RayCluster {name} is gone, and the submitter with it"))
        } else {
            NoSubmitter::Unclear(format!("RayCluster {name} has {} head pods", heads.len()))
        });
    };
    let Some(container) = head.containers.iter().find(|c| &*c.name == build::SUBMITTER) else {
        return Ok(Submitter { finished: None, failed: None });
    };
    let failed = container.exit_code.filter(|code| *code != 0);
    let failed = failed.map(|code| {
        format!("the submitter failed: container {} ended with code {code} ({})", build::SUBMITTER, container.reason)
    });
    Ok(Submitter { finished: container.exit_code.and(container.finished), failed })
}

/// Asks Ray about the job, or uses the answer if it is fresh.
fn ask(draft: &mut Draft<'_>, cluster: &RayCluster, finished: Option<Time>, end: Option<SubmitterEnd>) -> Flow {
    let Some(dashboard) = draft.dashboard() else {
        draft.pass.waits_for("status.dashboardURL is not readable");
        return if draft.old.job_status_check_failure_start_time.is_some() { check_failed(draft) } else { Flow::Stop };
    };
    let job: Arc<str> = draft.new.job_id.as_deref().unwrap_or_default().into();
    let key = (draft.pass.member.clone(), dashboard.clone(), job.clone());
    let view = draft.rays.jobs.get(&key).cloned().unwrap_or_default();
    let fresh = view.answer.filter(|(at, _)| draft.pass.now < *at + PERIOD);
    let Some((at, answer)) = fresh else {
        let member = draft.pass.member.clone();
        draft.pass.plan.actions.push(Action::Ask { member, dashboard, question: Question::Job { job } });
        draft.pass.look_at(draft.pass.now + PERIOD);
        draft.pass.waits_for("Ray is asked about the job");
        return Flow::Stop;
    };
    draft.pass.look_at(at + PERIOD);
    match answer {
        JobAnswer::Failed(why) => {
            // Where Ray stays silent a failed submitter is all there is; one that is merely overdue may have left a good job.
            // One lost answer is no silence: Ray may know the job to run (report R16).
            let since = time(draft.new.job_status_check_failure_start_time.as_deref());
            let silent = since.is_some_and(|since| draft.pass.now >= after(since, SUBMITTER_GRACE_SECONDS));
            if let Some(end @ SubmitterEnd::Failed(..)) = end
                && silent
            {
                return end.apply(draft);
            }
            draft.pass.waits_for(format!("Ray does not answer about the job: {why}"));
            check_failed(draft)
        }
        JobAnswer::NotFound if draft.job.spec.mode() == "HTTPMode" => {
            let Some((when, outcome)) = view.submitted else { return submit(draft, dashboard, job) };
            if when >= at {
                return submitted(draft, outcome);
            }
            // Ray was asked since, and does not know it: what we tried before has failed, and is tried again.
            let failed = match outcome {
                SubmitOutcome::Refused(_) | SubmitOutcome::Unknown(_) => check_failed(draft),
                SubmitOutcome::Accepted | SubmitOutcome::Exists => Flow::Stop,
            };
            let sent = submit(draft, dashboard, job);
            if failed == Flow::Next { failed } else { sent }
        }
        // An answer from before the submitter had ended says nothing about what it did: Ray is asked once more.
        JobAnswer::NotFound if finished.is_some_and(|ended| at < ended + PERIOD) => {
            draft.pass.waits_for("the submitter has ended; Ray is asked once more about the job");
            answered(draft)
        }
        JobAnswer::NotFound => {
            if let Some(end) = end {
                return end.apply(draft);
            }
            if finished.is_some() {
                draft.go("Failed", "AppFailed", "the submitter completed, but Ray does not know the job");
                return Flow::Next;
            }
            draft.pass.waits_for("Ray does not know the job yet");
            answered(draft)
        }
        JobAnswer::Info(info) => {
            let status = info["status"].as_str().unwrap_or_default();
            if let Some(end) = end
                && status != "RUNNING"
                && !is_terminal(status)
            {
                return end.apply(draft);
            }
            known(draft, cluster, &info, finished.is_some());
            Flow::Next
        }
    }
}

/// Begins the streak of failures, or ends the job where it lasts too long. Judged only where Ray was asked and failed: that
/// nobody asked for long, because no controller ran, is no failure of Ray.
fn check_failed(draft: &mut Draft<'_>) -> Flow {
    let Some(since) = time(draft.new.job_status_check_failure_start_time.as_deref()) else {
        draft.new.job_status_check_failure_start_time = Some(draft.pass.now.seconds_text());
        return Flow::Next;
    };
    let due = after(since, CHECK_TIMEOUT_SECONDS);
    if draft.pass.now < due {
        draft.pass.look_at(due);
        return Flow::Stop;
    }
    let text = format!("Ray has not answered about the job: exceeded timeout of {CHECK_TIMEOUT_SECONDS}s");
    draft.go("Failed", "JobStatusCheckTimeoutExceeded", text);
    Flow::Next
}

/// Ends the streak of failures: Ray answers again, though it does not know the job yet (ADR 5).
fn answered(draft: &mut Draft<'_>) -> Flow {
    let had = draft.new.job_status_check_failure_start_time.take();
    if had.is_some() { Flow::Next } else { Flow::Stop }
}

/// HTTPMode: what came of our submission, where Ray was not asked since.
fn submitted(draft: &mut Draft<'_>, outcome: SubmitOutcome) -> Flow {
    match outcome {
        SubmitOutcome::Refused(why) => {
            draft.pass.waits_for(format!("Ray refuses the job: {why}"));
            check_failed(draft)
        }
        SubmitOutcome::Unknown(why) => {
            draft.pass.waits_for(format!("the job may be submitted ({why}); Ray is asked about it next"));
            check_failed(draft)
        }
        SubmitOutcome::Accepted | SubmitOutcome::Exists => {
            draft.pass.waits_for("the job was submitted; Ray is asked about it next");
            answered(draft)
        }
    }
}

/// HTTPMode: the job is submitted once Ray has said that it does not know it. The id makes a repeat harmless.
fn submit(draft: &mut Draft<'_>, dashboard: crate::plan::Dashboard, job: Arc<str>) -> Flow {
    match build::submit_body(&draft.job, &job) {
        Ok(body) => {
            let member = draft.pass.member.clone();
            let question = Question::Submit { job, body };
            draft.pass.plan.actions.push(Action::Ask { member, dashboard, question });
            draft.pass.waits_for("the job is being submitted");
            Flow::Stop
        }
        Err(error) => {
            draft.pass.waits_for(error);
            check_failed(draft)
        }
    }
}

/// Ray knows the job: its status, and the state that follows from it (5.1).
fn known(draft: &mut Draft<'_>, cluster: &RayCluster, info: &Value, submitter_finished: bool) {
    let text = |key: &str| info[key].as_str().unwrap_or_default().to_owned();
    let status = text("status");
    draft.new.job_status_check_failure_start_time = None;
    draft.new.ray_cluster_status.clone_from(&cluster.status);
    draft.new.job_status = Some(status.clone()).filter(|s| !s.is_empty());
    draft.new.message = Some(text("message")).filter(|m| !m.is_empty());
    let mut times = draft.new.ray_job_info.take().unwrap_or_default();
    for (key, field) in [("start_time", &mut times.start_time), ("end_time", &mut times.end_time)] {
        if let Some(ms) = info[key].as_i64().filter(|ms| *ms > 0) {
            *field = Some(Time(ms).seconds_text());
        }
    }
    draft.new.ray_job_info = Some(times);
    let done = !matches!(draft.job.spec.mode(), "K8sJobMode" | "SidecarMode") || submitter_finished;
    match status.as_str() {
        "FAILED" if done => draft.go("Failed", "AppFailed", ""),
        status if done && is_terminal(status) => draft.go("Complete", "", ""),
        _ => draft.go("Running", "", ""),
    }
    let said = if status.is_empty() { "nothing yet".into() } else { status };
    draft.pass.waits_for(format!("it runs; Ray says {said}"));
}

/// Whether a Ray job has ended.
pub(super) fn is_terminal(status: &str) -> bool {
    matches!(status, "STOPPED" | "SUCCEEDED" | "FAILED")
}
