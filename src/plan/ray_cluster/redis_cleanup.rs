//! The state of a RayCluster in Redis goes with it: a finalizer, and a Job that clears Redis (specs/raycluster.md 2.4,
//! ADR 9).
//! Must not know what the Job does.

use std::time::Duration;

use super::{Draft, read};
use crate::api::names::{FLEET_ID, FOREGROUND_FINALIZER, RAY_NODE_TYPE_LABEL, REDIS_FINALIZER, ROOT_ID};
use crate::api::{Id, Kind, Time};
use crate::plan::mirror::put_without_finalizers;
use crate::plan::pass::Flow;
use crate::plan::{Plan, Propagation, Seen, build, names};
use crate::row::{Facts, Row};

/// Seconds from the deletion after which a RayCluster goes whatever became of its Job.
const LIMIT_ANNOTATION: &str = "ray.io/gcs-ft-deletion-timeout";
/// The same where the annotation says nothing.
const LIMIT: Duration = Duration::from_secs(300);

/// Whether what stands in Redis may belong to another cluster by now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::plan) enum Heir {
    /// No other cluster was made for the same root object since.
    None,
    /// One may have been.
    Possible,
}

/// Whether Redis is to be cleared before this object goes.
pub(in crate::plan) fn is_held(row: &Row) -> bool {
    row.id.kind == Kind::RayCluster && row.has_finalizer(REDIS_FINALIZER)
}

/// Whether it is a Job that clears Redis, or the Job's pod.
pub(in crate::plan) fn clears(row: &Row) -> bool {
    row.label(RAY_NODE_TYPE_LABEL) == build::REDIS_CLEANUP
}

/// Sets the finalizer before anything is made that writes to Redis.
pub(super) fn finalizer(draft: &mut Draft<'_>) -> Flow {
    let row = draft.pass.row;
    if !draft.flags.redis_cleanup || !build::uses_redis(&draft.cluster) || is_held(row) {
        return Flow::Next;
    }
    let mut body = draft.body.clone();
    let mut finalizers = body["metadata"]["finalizers"].as_array().cloned().unwrap_or_default();
    finalizers.push(REDIS_FINALIZER.into());
    body["metadata"]["finalizers"] = finalizers.into();
    draft.pass.replace(row, body);
    draft.pass.waits_for("its finalizer is being set: its state in Redis goes with it");
    Flow::Stop
}

/// One look at a RayCluster that goes with a withdrawn mirror, for whoever withdraws that: nobody else plans it any more.
pub(in crate::plan) fn withdrawn(seen: &Seen<'_>, id: &Id, heir: Heir, now: Time) -> Plan {
    let Some(mut draft) = Draft::begin(seen, id, now) else { return Plan::default() };
    // From what cannot be read no Job can be made.
    let is_readable = read(&mut draft) == Flow::Next;
    if !is_readable || (heir == Heir::Possible && build::shares_namespace(&draft.cluster)) {
        let_go(&mut draft);
    } else {
        before_it_goes(&mut draft);
    }
    draft.pass.finish()
}

/// A RayCluster that is being deleted: its pods go, Redis is cleared, and it is let go.
pub(super) fn before_it_goes(draft: &mut Draft<'_>) {
    let row = draft.pass.row;
    let Some(since) = row.deleting.filter(|_| is_held(row)) else { return };
    // Where its namespace goes no Job can be made.
    if !draft.flags.redis_cleanup || !build::uses_redis(&draft.cluster) || namespace_goes(draft) {
        return let_go(draft);
    }
    if row.has_finalizer(FOREGROUND_FINALIZER) {
        take_off(draft, FOREGROUND_FINALIZER);
        draft.pass.waits_for("it is not deleted in the foreground: the collector would take what clears Redis");
        return;
    }
    for pod in draft.pods.clone() {
        draft.pass.delete(pod.row, Propagation::Background);
    }
    if !draft.heads().is_empty() {
        draft.pass.waits_for("its head pod is going; then Redis is cleared");
        return;
    }
    let limit = since + limit(row);
    if draft.pass.now >= limit {
        let text = format!(
            "RayCluster {} goes {} s after its deletion: nobody knows whether its state in Redis was cleared",
            draft.pass.full_name(&row.id.name),
            draft.pass.now.since(since).as_secs()
        );
        draft.pass.note(true, "ForceDeletedStuckCluster", "Cleanup", text);
        return let_go(draft);
    }
    draft.pass.look_at(limit);
    run_job(draft);
}

fn run_job(draft: &mut Draft<'_>) {
    let mut of_cluster = draft.pass.tables.owned_by(&draft.pass.row.uid);
    let Some(job) = of_cluster.find(|row| row.id.kind == Kind::Job && clears(row)) else {
        return make_job(draft);
    };
    let full = draft.pass.full_name(&job.id.name);
    match ending(job) {
        None => draft.pass.waits_for(format!("Job {full} clears its state in Redis")),
        Some("Complete") => let_go(draft),
        // As in KubeRay, nobody is held by a Redis that does not answer.
        Some(_) => {
            let text = format!("Job {full} failed: its state in Redis was not cleared");
            draft.pass.note(true, "FailedRedisCleanupJob", "Cleanup", text);
            let_go(draft);
        }
    }
}

fn make_job(draft: &mut Draft<'_>) {
    let uid = draft.cluster.metadata.uid();
    // Long names of clusters can be cut to the same name of a Job.
    let is_taken = |name: &str| draft.pass.child(Kind::Job, name).is_some();
    let name = names::job(&build::redis_cleanup_name(&draft.cluster), uid, is_taken);
    let mut body = build::redis_cleanup_job(&draft.cluster, &name, draft.flags);
    if let Some(root) = &draft.pass.row.root_id {
        // Its pod may outlive it, and what comes next must not be cleared. Of a stray nobody else says whose it is.
        let root = root.as_str();
        body["metadata"]["labels"][ROOT_ID] = root.into();
        body["spec"]["template"]["metadata"]["labels"][ROOT_ID] = root.into();
        for place in ["/metadata", "/spec/template/metadata"] {
            if let Some(metadata) = body.pointer_mut(place) {
                metadata["annotations"][FLEET_ID] = (&*draft.flags.fleet_id).into();
            }
        }
    }
    let full = draft.pass.full_name(&name);
    draft.pass.create(Kind::Job, body);
    draft.pass.note(false, "CreatedRedisCleanupJob", "Create", format!("Created Redis cleanup Job {full}"));
    draft.pass.waits_for(format!("Job {full}, which clears its state in Redis, is being made"));
}

/// The condition that ended a Job.
fn ending(job: &Row) -> Option<&str> {
    let Facts::Job(facts) = &job.facts else { return None };
    let mut kinds = facts.conditions.iter().map(|(kind, ..)| &**kind);
    kinds.find(|kind| matches!(*kind, "Complete" | "Failed" | "FailureTarget"))
}

fn limit(row: &Row) -> Duration {
    let own = row.annotation(LIMIT_ANNOTATION).parse::<u32>().ok().filter(|seconds| *seconds > 0);
    own.map_or(LIMIT, |seconds| Duration::from_secs(seconds.into()))
}

fn namespace_goes(draft: &Draft<'_>) -> bool {
    let namespace = Id::new(Kind::Namespace, "", draft.pass.row.id.namespace.clone());
    draft.pass.tables.get(&namespace).is_some_and(|row| row.deleting.is_some())
}

fn let_go(draft: &mut Draft<'_>) {
    take_off(draft, REDIS_FINALIZER);
    draft.pass.waits_for("it is let go");
}

fn take_off(draft: &mut Draft<'_>, finalizer: &str) {
    let put = put_without_finalizers(draft.pass.member, draft.pass.row, |name| name == finalizer);
    draft.pass.plan.actions.extend(put);
}
