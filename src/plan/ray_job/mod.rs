//! RayJob on a member: KubeRay's state machine (specs/rayjob.md 4).
//! Must not know clients, clocks, or how its plan is carried out.

mod attempt;
mod ending;
mod poll;
mod status;

use std::time::Duration;

use serde_json::{Value, json};

use super::pass::{Flow, Pass};
use super::{Dashboard, Flags, Plan, Propagation, RayTable, Seen, validate};
use crate::api::names::{GENERATION, RAYJOB_FINALIZER};
use crate::api::ray::{RayCluster, RayJob, RayJobSpec, RayJobStatus};
use crate::api::{Id, Kind, Time};
use crate::row::Row;

/// One pass over a RayJob. Total: every view gives a plan, also one that only waits.
pub fn plan(seen: &Seen<'_>, id: &Id, now: Time) -> Plan {
    const STEPS: &[Step] = &[read, managed_by, ending::deletion, validation, state, status::step];
    let Some(mut draft) = Draft::begin(seen, id, now) else { return Plan::default() };
    for step in STEPS {
        if step(&mut draft) == Flow::Stop {
            break;
        }
    }
    draft.pass.finish()
}

type Step = fn(&mut Draft<'_>) -> Flow;

/// What a pass works on.
struct Draft<'a> {
    pass: Pass<'a>,
    flags: &'a Flags,
    rays: &'a RayTable,
    /// The object as stored.
    body: Value,
    /// The object, typed; a mirror's has the queue among its labels.
    job: RayJob,
    /// Status as stored.
    old: RayJobStatus,
    /// Status as it is to be.
    new: RayJobStatus,
}

impl<'a> Draft<'a> {
    fn begin(seen: &Seen<'a>, id: &Id, now: Time) -> Option<Self> {
        let pass = Pass::begin(seen, id, now)?;
        Some(Self {
            pass,
            flags: seen.flags,
            rays: seen.rays,
            body: Value::Null,
            job: RayJob::default(),
            old: RayJobStatus::default(),
            new: RayJobStatus::default(),
        })
    }

    /// The stored state; empty = new.
    fn state(&self) -> &str {
        self.old.job_deployment_status.as_deref().unwrap_or_default()
    }

    /// Goes to a state, with a reason and a message where the state has them.
    fn go(&mut self, state: &str, reason: &str, message: impl Into<String>) {
        self.new.job_deployment_status = Some(state.to_owned()).filter(|s| !s.is_empty());
        self.new.reason = Some(reason.to_owned()).filter(|r| !r.is_empty());
        let message = message.into();
        if !message.is_empty() {
            self.new.message = Some(message);
        }
    }

    /// Name of the stored RayCluster.
    fn cluster_name(&self) -> &str {
        self.old.ray_cluster_name.as_deref().unwrap_or_default()
    }

    /// The RayCluster of the present attempt: its row, and itself.
    fn ray_cluster(&self) -> Option<(&'a Row, RayCluster)> {
        let row = self.pass.child(Kind::RayCluster, self.cluster_name())?;
        let typed = serde_json::from_str(row.body.as_deref().unwrap_or("null")).ok()?;
        Some((row, typed))
    }

    /// Where the dashboard of the present attempt is.
    fn dashboard(&self) -> Option<Dashboard> {
        Dashboard::of(&self.pass.row.id.namespace, self.new.dashboard_url.as_deref()?)
    }

    /// The RayCluster that the job selects instead of bringing its own; never changed or deleted by it.
    fn selected(&self) -> Option<&str> {
        self.job.spec.selected_cluster()
    }

    /// Deletes the RayCluster. Says whether one is still there.
    fn delete_cluster(&mut self) -> bool {
        if self.selected().is_some() {
            return false;
        }
        let Some(row) = self.pass.child(Kind::RayCluster, self.cluster_name()) else { return false };
        if !self.pass.controls(row) {
            return false;
        }
        if self.pass.delete(row, Propagation::Background) {
            let name = self.pass.full_name(&row.id.name);
            self.pass.note(false, "DeletedRayCluster", "Delete", format!("Deleted cluster {name}"));
        }
        true
    }
}

/// The point in time a stored RFC 3339 text means.
fn time(text: Option<&str>) -> Option<Time> {
    text.and_then(Time::parse)
}

/// `start` + seconds.
fn after(start: Time, seconds: i32) -> Time {
    start + Duration::from_secs(u64::try_from(seconds).unwrap_or(0))
}

fn read(draft: &mut Draft<'_>) -> Flow {
    let Some((body, job)) = draft.pass.read::<RayJobSpec, RayJobStatus>() else { return Flow::Stop };
    draft.old = job.status.clone().unwrap_or_default();
    draft.new = draft.old.clone();
    draft.body = body;
    draft.job = job;
    Flow::Next
}

fn managed_by(draft: &mut Draft<'_>) -> Flow {
    draft.pass.if_ours(draft.job.spec.managed_by.as_deref())
}

/// A refusal is stored as `ValidationFailed`, from any state, and nothing is cleaned up (specs/rayjob.md 2).
fn validation(draft: &mut Draft<'_>) -> Flow {
    let Err(refusal) = validate::ray_job(&draft.job) else { return Flow::Next };
    let text = refusal.to_string();
    draft.pass.waits_for(text.clone());
    let said = draft.state() == "ValidationFailed" && draft.old.message.as_deref() == Some(text.as_str());
    if !said {
        let name = draft.pass.full_name(draft.job.metadata.name());
        draft.pass.note(true, refusal.event_reason, "Validate", format!("RayJob {name} is refused: {text}"));
        draft.go("ValidationFailed", "ValidationFailed", text);
        status::write(draft);
    }
    Flow::Stop
}

/// What the state asks for. `Flow::Next` = the status is compared and written.
fn state(draft: &mut Draft<'_>) -> Flow {
    match draft.state() {
        "" => new(draft),
        "Initializing" => attempt::initializing(draft),
        "Waiting" => attempt::waiting(draft),
        "Running" => poll::running(draft),
        "Suspending" | "Retrying" => attempt::undoing(draft),
        "Suspended" => suspended(draft),
        "Complete" | "Failed" => ending::ended(draft),
        "ValidationFailed" => {
            draft.pass.waits_for("its spec was refused; a corrected one must be a new RayJob");
            Flow::Stop
        }
        other => {
            let text = format!("status.jobDeploymentStatus {other:?} is not known");
            draft.pass.waits_for(text);
            Flow::Stop
        }
    }
}

/// Finalizer first; then the names of the attempt, before anything is made by them.
fn new(draft: &mut Draft<'_>) -> Flow {
    if !draft.pass.row.has_finalizer(RAYJOB_FINALIZER) {
        let mut body = draft.body.clone();
        let mut finalizers = body["metadata"]["finalizers"].as_array().cloned().unwrap_or_default();
        finalizers.push(json!(RAYJOB_FINALIZER));
        body["metadata"]["finalizers"] = Value::Array(finalizers);
        let row = draft.pass.row;
        draft.pass.replace(row, body);
        draft.pass.waits_for("its finalizer is being set");
        return Flow::Stop;
    }
    let started = draft.pass.now.seconds_text();
    let row = draft.pass.row;
    let root = row.root_id.as_ref().map_or(row.uid.as_str(), |id| id.as_str());
    let failed = draft.old.failed.unwrap_or(0);
    // A Ray that stays must know the job again, however often it is placed: there it is submitted once (`sharding.md` E10).
    let (generation, begun) = match draft.selected() {
        Some(_) => ("", ""),
        None => (row.annotation(GENERATION), started.as_str()),
    };
    let made_up = |what: &str| super::names::of_attempt(&row.id.name, what, root, generation, failed, begun);
    let given = |text: Option<&String>| text.filter(|t| !t.is_empty()).cloned();
    if given(draft.old.job_id.as_ref()).is_none() && draft.job.spec.mode() != "InteractiveMode" {
        draft.new.job_id = Some(given(draft.job.spec.job_id.as_ref()).unwrap_or_else(|| made_up("job")));
    }
    if given(draft.old.ray_cluster_name.as_ref()).is_none() {
        let name = draft.selected().map_or_else(|| made_up("cluster"), str::to_owned);
        draft.new.ray_cluster_name = Some(name);
    }
    draft.new.start_time = Some(started);
    draft.go("Initializing", "", "");
    draft.pass.waits_for("its names are being stored");
    Flow::Next
}

fn suspended(draft: &mut Draft<'_>) -> Flow {
    if draft.job.spec.suspend == Some(true) {
        draft.pass.waits_for("suspended by its user");
        return Flow::Stop;
    }
    draft.new.job_status = None;
    draft.go("", "", "");
    Flow::Next
}

#[cfg(test)]
mod tests;
