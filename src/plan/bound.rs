//! A root object that is bound to a member: its mirror follows its spec, then its status comes back.
//! Knows both objects and their `Placement`. Must not know how the mirror is worked on.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Map, Value};

use super::dependencies::{self, Dependencies};
use super::gang::{Gang, pod_group_name};
use super::mirror::{self, Slot};
use super::place::{Subject, View, fits_elsewhere, stands_on, unreadable};
use super::registration::without_member;
use super::root::{Root, is_unreadable, policy};
use super::{Action, Ask, Fetch, Member, Note, Plan, Precondition, Propagation, Seen, Why, asked, decision};
use crate::api::fleet::{GangShape, Placement, Stage, Withdrawal};
use crate::api::names::SPEC_HASH;
use crate::api::{Cluster, Id, Kind, Time};
use crate::row::{Facts, Row};

/// Time from `Admitted` to the first bound pod, where the policy gives none.
const START_DEADLINE_S: u32 = 300;
/// A gang that is past its start deadline and has nowhere to go is looked at again after this time.
const LATE_LOOK: Duration = Duration::from_secs(30);

/// What the hub has of what the root object names is compared with the copies this often (`architecture.md` 6, item 10).
const REFRESH_EVERY: Duration = Duration::from_mins(1);

/// All that one look works with.
struct Draft<'a> {
    seen: &'a Seen<'a>,
    on: Member<'a>,
    id: &'a Id,
    row: &'a Row,
    decided: &'a Placement,
    root: Root<'a>,
    ask: Arc<Ask>,
    now: Time,
}

/// One look at a root object whose `Placement` is `Admitted`, `Running` or `Finished`.
pub fn plan(seen: &Seen, id: &Id, now: Time) -> Plan {
    let Some(row) = seen.placement_of(id.kind.name(), &id.namespace, &id.name) else { return wait("has no Placement") };
    let Some(decided) = decision::of(row) else { return wait("its Placement cannot be read") };
    if !matches!(decided.spec.stage, Stage::Admitted | Stage::Running | Stage::Finished) {
        return wait("its Placement is in another stage");
    }
    if let Some(plan) = without_member(seen, row, decided, now) {
        return plan;
    }
    let Some(on) = seen.member else { return wait("its member is not seen") };
    if let Some(object) = seen.hub.quarantined(id) {
        return unreadable(object);
    }
    if is_unreadable(on.tables, id) {
        return wait("its copy on the member cannot be read");
    }
    let undo = |reason: &str, message: &str| withdraw(seen, row, decided, reason, message, false, now);
    let root = match seen.hub.get(id) {
        Some(root) if root.deleting.is_none() && *root.uid.0 == *decided.spec.root.uid => root,
        _ => return undo("RootDeleted", "its root object is gone or being deleted"),
    };
    if row.deleting.is_some() {
        return undo("PlacementDeleted", "its Placement is being deleted");
    }
    let Some(root) = Root::read(root) else { return wait("its body is missing") };
    let ask = asked::of(seen, &root);
    Draft { seen, on, id, row, decided, root, ask, now }.steps()
}

fn wait(why: impl Into<std::sync::Arc<str>>) -> Plan {
    Plan { why: Why::new(why), ..Plan::default() }
}

fn withdraw(
    seen: &Seen,
    row: &Row,
    decided: &Placement,
    reason: &str,
    message: &str,
    back_off: bool,
    now: Time,
) -> Plan {
    let withdrawal = Withdrawal { reason: reason.to_owned(), message: message.to_owned(), back_off };
    let next = decision::withdraw(decided, withdrawal, seen.me, now);
    let mut plan = wait(format!("is withdrawn: {message}"));
    plan.actions.extend(decision::put(row, &next));
    plan
}

impl Draft<'_> {
    fn withdraw(&self, reason: &str, message: &str, back_off: bool) -> Plan {
        withdraw(self.seen, self.row, self.decided, reason, message, back_off, self.now)
    }

    fn steps(&self) -> Plan {
        let finished = self.decided.spec.stage == Stage::Finished;
        let mirror = match mirror::slot(self.on.tables, self.id, self.decided) {
            Slot::Ours(mirror) => mirror,
            _ if finished => return wait(format!("has ended; its mirror on {} is gone", self.on.name)),
            _ if self.root.suspended() => return self.withdraw("Suspended", "suspended by its user", false),
            _ => return self.withdraw("MirrorMissing", &format!("its mirror on {} is missing", self.on.name), false),
        };
        let Some(mirror_body) = decision::body(mirror) else { return wait("the mirror's body is missing") };
        // What has ended on its member is stored as such before anything else is made of it: a result that is not told
        // yet must not be lost to a suspend, an edit or a deleted mirror, and the job run again.
        if !finished && self.stage(&mirror_body) == Stage::Finished {
            return self.report(mirror, &mirror_body);
        }
        if self.root.suspended() && !finished {
            return self.withdraw("Suspended", "suspended by its user", false);
        }
        if mirror.deleting.is_some() {
            if deletes_itself(&mirror_body) {
                let root = self.root.row;
                let delete = Action::Delete {
                    cluster: Cluster::Hub,
                    id: root.id.clone(),
                    seen: Precondition::from(root),
                    children: Propagation::Background,
                };
                return Plan { actions: vec![delete], ..wait("deletes itself, as its deletion rules say") };
            }
            if !finished {
                return self.withdraw("MirrorMissing", &format!("its mirror on {} was deleted", self.on.name), false);
            }
        }
        if finished || mirror.deleting.is_some() {
            return self.follow(mirror).unwrap_or_else(|| self.report(mirror, &mirror_body));
        }
        if let Some(why) = self.cluster_has_left(&mirror_body) {
            return self.withdraw("ClusterLeft", &why, false);
        }
        // Pods may still start: what they name follows the hub.
        let copies = dependencies::look(
            self.seen,
            self.on.name,
            &self.root,
            mirror,
            Time(self.now.0 - REFRESH_EVERY.as_millis() as i64),
            self.now,
        );
        let plan = if !copies.actions.is_empty() {
            let why = format!("its dependencies follow it to {}", self.on.name);
            Plan { actions: copies.actions.clone(), ..wait(why) }
        } else if let Some(plan) = self.follow(mirror) {
            match self.unread(&copies) {
                unread if unread.is_empty() => plan,
                fetch => Plan { fetch, ..wait("what its new spec names is read first") },
            }
        } else {
            self.report(mirror, &mirror_body)
        };
        self.refreshed(plan, copies)
    }

    /// The RayCluster that it runs on, where it brings none.
    fn cluster(&self) -> Option<&str> {
        self.decided.status.gang.as_ref().and_then(GangShape::cluster)
    }

    /// Why a job that does not run yet must not wait here: its RayCluster is not on this member any more. One that runs stays
    /// where it is, whatever becomes of the RayCluster: it is not run elsewhere (ADR 8). The mirror knows first.
    fn cluster_has_left(&self, mirror_body: &Value) -> Option<String> {
        let name = self.cluster().filter(|_| self.stage(mirror_body) == Stage::Admitted)?;
        match stands_on(self.seen.hub, &self.id.namespace, name) {
            Ok(member) if member == self.on.name.as_str() => None,
            Ok(member) => Some(format!("RayCluster {}/{name} is on {member} by now", self.id.namespace)),
            Err(why) => Some(why),
        }
    }

    /// What was never read: named for the first time.
    fn unread(&self, copies: &Dependencies) -> Vec<Fetch> {
        let is_new = |wanted: &&Fetch| !self.seen.fetched.contains_key(&(wanted.cluster.clone(), wanted.id.clone()));
        copies.fetch.iter().filter(is_new).cloned().collect()
    }

    /// The plan with the reads that are due, and the time of the next ones. What the hub lacks, or does not tell, leaves
    /// the copies as they are: pods that run have what they need.
    fn refreshed(&self, mut plan: Plan, copies: Dependencies) -> Plan {
        if copies.names.is_empty() && copies.fetch.is_empty() && copies.blocked.is_none() {
            return plan;
        }
        let due = self.now + REFRESH_EVERY;
        plan.next = Some(plan.next.map_or(due, |at| at.min(due)));
        if plan.fetch.is_empty() {
            plan.fetch = copies.fetch;
        }
        if let Some(why) = copies.blocked {
            plan.why = Why::new(format!("{}; {why}", plan.why.0));
        }
        plan
    }

    /// The mirror gets the root's spec; a gang that changed before it runs is placed afresh (`docs/WALK.md` 6).
    fn follow(&self, mirror: &Row) -> Option<Plan> {
        if mirror.deleting.is_some() || mirror.annotation(SPEC_HASH) == self.ask.spec_hash {
            return None;
        }
        let shape = self.ask.shape();
        let changed = shape.is_some() && shape != self.decided.status.gang.as_ref();
        if changed && self.decided.spec.stage == Stage::Admitted {
            return Some(self.withdraw("SpecChanged", "its gang changed before it ran", false));
        }
        let put = mirror::put_spec(self.on.name, mirror, &self.root)?;
        Some(Plan { actions: vec![put], ..wait(format!("its new spec goes to {}", self.on.name)) })
    }

    fn report(&self, mirror: &Row, mirror_body: &Value) -> Plan {
        let stage = self.stage(mirror_body);
        let mut plan = wait(format!("{} on {}", stage_words(stage), self.on.name));
        let mut next = self.decided.clone();
        // What runs may grow and shrink; its gang is what its spec says now.
        if stage != Stage::Admitted
            && let Some(shape) = self.ask.shape()
        {
            next.status.gang = Some(shape.clone());
        }
        if stage != self.decided.spec.stage {
            decision::enter(&mut next, stage, self.now);
            let message = format!("{} on {}", stage_words(stage), self.on.name);
            next.status.message.clone_from(&message);
            decision::note(&mut next, &format!("{stage:?}"), message.clone(), self.now);
            plan.events.push(self.event(&format!("{stage:?}"), message));
        } else if stage == Stage::Admitted && self.cluster().is_none() {
            let deadline = self.start_deadline();
            if self.bound_pods() == 0 {
                if self.now < deadline {
                    plan.next = Some(deadline);
                } else if self.fits_elsewhere() {
                    let message = format!("none of its pods was bound on {} by its start deadline", self.on.name);
                    return self.withdraw("StartDeadline", &message, true);
                } else {
                    plan.next = Some(self.now + LATE_LOOK);
                    plan.why = Why::new(format!("on {}, past its start deadline, and fits nowhere else", self.on.name));
                }
            }
        }
        plan.actions.extend(decision::put(self.row, &next));
        // One write to the root object at a time: each carries the version that was seen.
        if let Some(put) = self.put_status(mirror, mirror_body) {
            plan.actions.push(put);
        } else if let Some(put) = self.root.put_index(self.on.name.as_str(), &format!("{stage:?}")) {
            plan.actions.push(put);
        }
        plan
    }

    /// The stage that the member's objects show; it never goes back.
    fn stage(&self, mirror_body: &Value) -> Stage {
        let state = mirror_body["status"]["jobDeploymentStatus"].as_str().unwrap_or_default();
        let group = self.on.tables.table(Kind::PodGroup).get(&self.id.namespace, &pod_group_name(&self.id.name));
        let group_runs = matches!(group.map(|g| &g.facts), Some(Facts::PodGroup(facts)) if &*facts.phase == "Running");
        // Without a gang of its own a PodGroup of this name is that of a RayCluster of the same name.
        let group_runs = group_runs && self.cluster().is_none();
        let shown = match state {
            "Complete" | "Failed" | "ValidationFailed" => Stage::Finished,
            "Running" => Stage::Running,
            _ if group_runs => Stage::Running,
            _ => Stage::Admitted,
        };
        shown.max(self.decided.spec.stage)
    }

    /// The mirror's status, as the root object shows it.
    fn put_status(&self, mirror: &Row, mirror_body: &Value) -> Option<Action> {
        let mut status: Map<String, Value> = mirror_body["status"].as_object().filter(|s| !s.is_empty())?.clone();
        if let Some(observed) = status.get_mut("observedGeneration") {
            // Generations count per object: "has seen all" is told by the root's own number.
            let up_to_date = observed.as_i64() == Some(mirror.generation);
            *observed = if up_to_date {
                self.root.row.generation.into()
            } else {
                self.root.status().get("observedGeneration").cloned().unwrap_or_default()
            };
        }
        self.root.put_status(status)
    }

    fn bound_pods(&self) -> usize {
        let root = crate::api::RootId::from(&*self.decided.spec.root.root_id);
        let bound = |row: &&Row| matches!(&row.facts, Facts::Pod(pod) if !pod.node.is_empty());
        self.on.tables.of_root(&root).filter(bound).count()
    }

    fn start_deadline(&self) -> Time {
        let seconds = policy(self.seen.hub, &self.id.namespace).start_deadline_seconds.unwrap_or(START_DEADLINE_S);
        decision::stage_since(self.row, self.decided) + Duration::from_secs(u64::from(seconds))
    }

    fn fits_elsewhere(&self) -> bool {
        let spec = &self.decided.spec;
        let Some(Ok(gang)) = self.decided.status.gang.as_ref().map(Gang::parse) else { return false };
        let subject = Subject {
            root_id: &spec.root.root_id,
            queue: &spec.queue,
            gang: &gang,
            so_far: Some((spec, self.row.version)),
        };
        let view = View {
            hub: self.seen.hub,
            received: self.seen.capacity_received,
            epochs: Some(self.seen.epochs),
            flags: self.seen.flags,
            now: self.now,
        };
        fits_elsewhere(view, &subject, self.on.name.as_str())
    }

    fn event(&self, reason: &str, note: String) -> Note {
        Note {
            cluster: Cluster::Hub,
            about: self.id.clone(),
            uid: self.root.row.uid.clone(),
            warning: false,
            reason: reason.into(),
            action: "Report".into(),
            note,
        }
    }
}

fn stage_words(stage: Stage) -> &'static str {
    match stage {
        Stage::Finished => "has ended",
        Stage::Running => "runs",
        _ => "is admitted",
    }
}

/// Whether a finished RayJob that is being deleted asked for that itself (specs/rayjob.md 14): a policy `DeleteSelf`
/// whose condition its end meets.
fn deletes_itself(mirror: &Value) -> bool {
    let (job, deployment) = (&mirror["status"]["jobStatus"], &mirror["status"]["jobDeploymentStatus"]);
    let ended = matches!(deployment.as_str(), Some("Complete" | "Failed"));
    let strategy = &mirror["spec"]["deletionStrategy"];
    let rules = strategy["deletionRules"].as_array().into_iter().flatten().filter(|rule| {
        let condition = &rule["condition"];
        (condition["jobStatus"].is_string() && condition["jobStatus"] == *job)
            || (condition["jobDeploymentStatus"].is_string() && condition["jobDeploymentStatus"] == *deployment)
    });
    let legacy = match job.as_str() {
        Some("SUCCEEDED") => &strategy["onSuccess"],
        Some("FAILED") => &strategy["onFailure"],
        _ => &Value::Null,
    };
    ended && rules.chain(std::iter::once(legacy)).any(|rule| rule["policy"] == "DeleteSelf")
}

#[cfg(test)]
mod tests;
