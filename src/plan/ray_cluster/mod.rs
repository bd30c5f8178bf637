//! RayCluster on a member: which pods, services and other children it should have, and what to do about the difference.
//! Knows KubeRay's rules (specs/raycluster.md 2.2). Must not know clients, clocks, or how its plan is carried out.

mod auth;
mod autoscaler;
mod ingress;
mod pods;
pub(in crate::plan) mod redis_cleanup;
mod replicas;
mod services;
mod status;

pub(in crate::plan) use pods::{ensure_pod_group, resize};
pub(in crate::plan) use status::differs;

use serde_json::Value;

use super::pass::{Beside, Flow, Pass};
use super::{Flags, Plan, Seen, validate};
use crate::api::names::{RAY_CLUSTER_LABEL, RAY_NODE_TYPE_LABEL};
use crate::api::ray::RayCluster;
use crate::api::{Id, Kind, Time};
use crate::row::{Facts, PodFacts, Row};

/// One pass over a RayCluster. Total: every view gives a plan, also one that only waits.
///
/// A step may end the pass; what depends on the result of an action waits for the next pass, which starts when the write
/// has come back through the watch.
pub fn plan(seen: &Seen<'_>, id: &Id, now: Time) -> Plan {
    const STEPS: &[Step] = &[read, managed_by, deletion, validation, redis_cleanup::finalizer, children, status::step];
    let Some(mut draft) = Draft::begin(seen, id, now) else { return Plan::default() };
    for step in STEPS {
        if step(&mut draft) == Flow::Stop {
            break;
        }
    }
    draft.pass.finish()
}

type Step = fn(&mut Draft<'_>) -> Flow;

/// All that a RayCluster is made of. The first trouble ends these steps; the status is computed all the same.
fn children(draft: &mut Draft<'_>) -> Flow {
    const STEPS: &[Step] = &[
        beside,
        autoscaler::objects,
        ingress::object,
        auth::secret,
        services::head,
        services::headless,
        services::serve,
        pods::suspension,
        pods::recreation,
        pods::pod_group,
        pods::head,
        pods::workers,
    ];
    for step in STEPS {
        if step(draft) == Flow::Stop {
            break;
        }
    }
    Flow::Next
}

/// What nobody watches is read before anything of a new cluster is made, so that all is made in KubeRay's order; a cluster
/// that has a head goes on meanwhile.
fn beside(draft: &mut Draft<'_>) -> Flow {
    let wanted = [autoscaler::wanted(&draft.cluster), ingress::wanted(&draft.cluster), auth::wanted(&draft.cluster)];
    let mut unread = false;
    for (kind, name) in wanted.concat() {
        unread |= matches!(draft.pass.beside(kind, &name), Beside::Unread);
    }
    if unread && draft.heads().is_empty() {
        draft.pass.waits_for("what it has beside its pods is being read");
        return Flow::Stop;
    }
    Flow::Next
}

/// What a pass works on.
struct Draft<'a> {
    pass: Pass<'a>,
    flags: &'a Flags,
    /// The object as stored.
    body: Value,
    /// The object, typed; a mirror's has the queue among its labels.
    cluster: RayCluster,
    /// Its pods, by name; those that are going too.
    pods: Vec<Pod<'a>>,
    /// A step met something that KubeRay counts as an error of the pass.
    failed: bool,
    /// Why a head is not made yet, where something else comes first.
    head_waits_for: Option<&'static str>,
}

/// A pod of the cluster.
#[derive(Clone, Copy)]
struct Pod<'a> {
    row: &'a Row,
    facts: &'a PodFacts,
}

impl<'a> Draft<'a> {
    /// Whether no status was written for this specification yet: what is told once per specification is told now.
    fn is_new_spec(&self) -> bool {
        let observed = self.cluster.status.as_ref().and_then(|status| status.observed_generation);
        observed != Some(self.pass.row.generation)
    }

    fn begin(seen: &Seen<'a>, id: &Id, now: Time) -> Option<Self> {
        let pass = Pass::begin(seen, id, now)?;
        let name = &pass.row.id.name;
        let owned = pass.tables.owned_by(&pass.row.uid);
        let pods = owned
            .filter(|row| row.id.kind == Kind::Pod && row.label(RAY_CLUSTER_LABEL) == &**name)
            .filter_map(|row| match &row.facts {
                Facts::Pod(facts) => Some(Pod { row, facts }),
                _ => None,
            })
            .collect();
        let flags = seen.flags;
        let (body, cluster) = (Value::Null, RayCluster::default());
        Some(Self { pass, flags, body, cluster, pods, failed: false, head_waits_for: None })
    }

    /// Pods of the head group.
    fn heads(&self) -> Vec<Pod<'a>> {
        self.pods.iter().filter(|p| p.row.label(RAY_NODE_TYPE_LABEL) == "head").copied().collect()
    }
}

fn read(draft: &mut Draft<'_>) -> Flow {
    let Some((body, cluster)) = draft.pass.read() else { return Flow::Stop };
    draft.body = body;
    draft.cluster = cluster;
    Flow::Next
}

fn managed_by(draft: &mut Draft<'_>) -> Flow {
    draft.pass.if_ours(draft.cluster.spec.managed_by.as_deref())
}

/// Children go by garbage collection, but for the pods of a cluster whose state in Redis is cleared after them. Rules are
/// not asked any more: what breaks one goes all the same.
fn deletion(draft: &mut Draft<'_>) -> Flow {
    if draft.pass.row.deleting.is_none() {
        return Flow::Next;
    }
    redis_cleanup::before_it_goes(draft);
    draft.pass.waits_for("it is being deleted");
    Flow::Stop
}

/// What is only warned of is told once per specification.
fn warn(draft: &mut Draft<'_>) {
    let warning = validate::ray_cluster_warning(&draft.cluster.spec, "spec");
    if let Some(warning) = warning.filter(|_| draft.is_new_spec()) {
        let name = draft.pass.full_name(draft.cluster.metadata.name());
        draft.pass.note(true, warning.event_reason, "Validate", format!("RayCluster {name}: {warning}"));
    }
}

/// A refusal ends the pass: an Event says it.
fn validation(draft: &mut Draft<'_>) -> Flow {
    let Err(refusal) = validate::ray_cluster(&draft.cluster) else {
        warn(draft);
        return Flow::Next;
    };
    let name = draft.pass.full_name(draft.cluster.metadata.name());
    draft.pass.note(true, refusal.event_reason, "Validate", format!("RayCluster {name} is refused: {refusal}"));
    draft.pass.waits_for(refusal.to_string());
    Flow::Stop
}

#[cfg(test)]
mod tests;
