//! RayCluster on a member: which pods, services and other children it should have, and what to do about the difference.
//! Knows KubeRay's rules (specs/raycluster.md 2.2). Must not know clients, clocks, or how its plan is carried out.

mod pods;
mod status;

pub(in crate::plan) use pods::{ensure_pod_group, resize};
pub(in crate::plan) use status::differs;

use serde_json::Value;

use super::pass::{Flow, Pass};
use super::{Flags, Plan, Seen, build, validate};
use crate::api::names::{RAY_CLUSTER_LABEL, RAY_NODE_TYPE_LABEL};
use crate::api::ray::RayCluster;
use crate::api::{Id, Kind, Time};
use crate::row::{Facts, PodFacts, Row};

/// One pass over a RayCluster. Total: every view gives a plan, also one that only waits.
///
/// A step may end the pass; what depends on the result of an action waits for the next pass, which starts when the write
/// has come back through the watch.
pub fn plan(seen: &Seen<'_>, id: &Id, now: Time) -> Plan {
    const STEPS: &[Step] = &[read, managed_by, deletion, validation, head_service, pods::step, status::step];
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
    /// The object as stored.
    body: Value,
    /// The object, typed; a mirror's has the queue among its labels.
    cluster: RayCluster,
    /// Its pods, by name; those that are going too.
    pods: Vec<Pod<'a>>,
    /// A step met something that KubeRay counts as an error of the pass.
    failed: bool,
}

/// A pod of the cluster.
#[derive(Clone, Copy)]
struct Pod<'a> {
    row: &'a Row,
    facts: &'a PodFacts,
}

impl<'a> Draft<'a> {
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
        Some(Self { pass, flags, body: Value::Null, cluster: RayCluster::default(), pods, failed: false })
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

/// Children go by garbage collection.
fn deletion(draft: &mut Draft<'_>) -> Flow {
    if draft.pass.row.deleting.is_none() {
        return Flow::Next;
    }
    draft.pass.waits_for("it is being deleted");
    Flow::Stop
}

/// A refusal ends the pass: an Event says it, and for what is not built here the status too.
fn validation(draft: &mut Draft<'_>) -> Flow {
    let Err(refusal) = validate::ray_cluster(&draft.cluster) else { return Flow::Next };
    let name = draft.pass.full_name(draft.cluster.metadata.name());
    draft.pass.note(true, refusal.event_reason, "Validate", format!("RayCluster {name} is refused: {refusal}"));
    draft.pass.waits_for(refusal.to_string());
    if refusal.event_reason == validate::NOT_BUILT {
        status::refuse(draft, &refusal.to_string());
    }
    Flow::Stop
}

/// Created where it is missing, never changed (specs/raycluster.md 4.1).
fn head_service(draft: &mut Draft<'_>) -> Flow {
    if head_services(draft).is_empty() {
        let body = build::head_service(&draft.cluster);
        let name = build::head_service_name(&draft.cluster);
        let full = draft.pass.full_name(&name);
        if draft.pass.child(Kind::Service, &name).is_some() {
            let text = format!("Service {full} is not this RayCluster's: the head Service cannot be made");
            draft.pass.note(true, "FailedToCreateService", "Create", text.clone());
            draft.pass.waits_for(text);
            return Flow::Stop;
        }
        draft.pass.create(Kind::Service, body);
        draft.pass.note(false, "CreatedService", "Create", format!("Created service {full}"));
    }
    Flow::Next
}

/// Services of the cluster that lead to its head.
fn head_services<'a>(draft: &Draft<'a>) -> Vec<&'a Row> {
    let name = draft.pass.row.id.name.clone();
    let owned = draft.pass.tables.owned_by(&draft.pass.row.uid);
    owned
        .filter(|row| {
            row.id.kind == Kind::Service
                && row.label(RAY_CLUSTER_LABEL) == &*name
                && row.label(RAY_NODE_TYPE_LABEL) == "head"
        })
        .collect()
}

#[cfg(test)]
mod tests;
