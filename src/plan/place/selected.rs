//! RayJobs that run on a RayCluster which is there already (`spec.clusterSelector`): they go where it is, once it is ready,
//! and ask for no room (ADR 8).
//! Reads the hub only. Must not know members' objects, or what is written.

use super::choose::Choice;
use super::members::{Members, Subject};
use super::verdict::{FITS, Finding};
use crate::api::fleet::Stage;
use crate::api::{Id, Kind};
use crate::plan::root::{Root, is_unreadable};
use crate::plan::{decision, placement_name};
use crate::row::{Row, Tables};

/// The member that the hub's RayCluster of this name can be used on; else what keeps jobs from it, in a sentence.
pub fn ready_on(hub: &Tables, namespace: &str, name: &str) -> Result<String, String> {
    let id = Id::new(Kind::RayCluster, namespace, name);
    let member = stands_on(hub, namespace, name)?;
    let Some(root) = hub.get(&id).and_then(Root::read) else { return Err(format!("{id} cannot be read")) };
    if root.body()["spec"]["authOptions"]["mode"] == "token" {
        return Err(format!("{id} asks for tokens: jobs on such a Ray are not built yet"));
    }
    if root.suspended() {
        return Err(format!("{id} is suspended by its user"));
    }
    match root.state() {
        "ready" => Ok(member),
        "" => Err(format!("{id} is not ready yet on {member}")),
        state => Err(format!("{id} is not ready on {member} (its state is {state})")),
    }
}

/// The member that the hub's RayCluster of this name stands on, ready or not; else where it is instead, in a sentence.
pub fn stands_on(hub: &Tables, namespace: &str, name: &str) -> Result<String, String> {
    let id = Id::new(Kind::RayCluster, namespace, name);
    if is_unreadable(hub, &id) {
        return Err(format!("{id} cannot be read"));
    }
    let Some(row) = hub.get(&id) else { return Err(format!("{id} is not on the hub")) };
    if row.deleting.is_some() {
        return Err(format!("{id} is being deleted"));
    }
    if !Root::read(row).is_some_and(|root| root.is_ours()) {
        return Err(format!("{id} is managed by another controller"));
    }
    let placement_id = Id::new(Kind::Placement, namespace, placement_name(Kind::RayCluster.name(), name));
    if is_unreadable(hub, &placement_id) {
        return Err(format!("where {id} is cannot be read"));
    }
    let placement = hub.get(&placement_id).and_then(decision::of);
    let placement = placement.filter(|placement| *placement.spec.root.uid == *row.uid.0);
    match placement.and_then(|placement| Some((placement.spec.stage, placement.spec.member.as_deref()?))) {
        Some((Stage::Admitted | Stage::Running, member)) => Ok(member.to_owned()),
        Some((Stage::Reserving, member)) => Err(format!("{id} is still being reserved on {member}")),
        Some((Stage::Withdrawing, member)) => Err(format!("{id} is being withdrawn from {member}")),
        Some((Stage::Finished, member)) => Err(format!("{id} has ended on {member}")),
        Some((Stage::Waiting, _)) | None => Err(format!("{id} is not placed on a member yet")),
    }
}

/// Whether the hub has no RayCluster of this name at all.
pub(super) fn is_absent(hub: &Tables, namespace: &str, name: &str) -> bool {
    let id = Id::new(Kind::RayCluster, namespace, name);
    hub.get(&id).is_none() && !is_unreadable(hub, &id)
}

/// The verdict for every member: `Fits` for the one that the RayCluster is ready on, if nothing keeps the job from there.
pub(super) fn findings(
    hub: &Tables,
    members: &Members,
    subject: &Subject,
    namespace: &str,
    name: &str,
) -> (Vec<(String, Finding)>, Result<String, String>) {
    let there = ready_on(hub, namespace, name);
    let of = |member: &str| match &there {
        Err(why) => Finding::no("ClusterNotReady", why.clone()),
        Ok(on) if on == member => members.keeps_away(member, subject).unwrap_or_else(|| Finding {
            verdict: FITS,
            bound: format!("RayCluster {namespace}/{name} is ready there"),
            ..Finding::default()
        }),
        Ok(on) => Finding::no("ClusterElsewhere", format!("RayCluster {namespace}/{name} is on {on}")),
    };
    let findings = members.names().map(|member| (member.to_string(), of(member))).collect();
    (findings, there)
}

/// What it waits for, in a sentence; or where it goes.
pub(super) fn sentence(findings: &[(String, Finding)], there: &Result<String, String>) -> String {
    let member = match there {
        Err(why) => return format!("waits for its RayCluster: {why}"),
        Ok(member) => member,
    };
    match findings.iter().find(|(name, _)| name == member) {
        Some((_, finding)) if finding.fits() => format!("goes to {member}: {}", finding.bound),
        Some((_, finding)) => {
            format!("waits for {member}, where its RayCluster is: {} ({})", finding.verdict, finding.bound)
        }
        None => format!("waits for {member}, where its RayCluster is: it is not registered"),
    }
}

/// Where the RayJob of this `Placement` goes now. It is in nobody's way, so it has no turn.
pub(super) fn choose(hub: &Tables, members: &Members, row: &Row, subject: &Subject, name: &str) -> Choice {
    let (findings, there) = findings(hub, members, subject, &row.id.namespace, name);
    let mut message = sentence(&findings, &there);
    let mut member = findings.iter().find(|(_, finding)| finding.fits()).map(|(member, _)| member.clone());
    if let Some(chosen) = member.take_if(|chosen| !members.is_settled(chosen, subject)) {
        message = format!("waits for {chosen} to say that it holds nothing of it any more");
    }
    let verdicts = findings.into_iter().map(|(member, finding)| finding.of(&member)).collect();
    Choice { verdicts, member, message, position: None, turn: false, waiting: 0 }
}

#[cfg(test)]
mod tests;
