//! The reservation on a member: second check, mirror, dependencies, PodGroup, Volcano's Inqueue, third check.
//! Knows the order of `docs/WALK.md` 4. Must not know who runs the job afterwards.

use std::time::Duration;

use serde_json::{Value, json};

use super::gang::{Gang, HEAD_GROUP, SUBMITTER_GROUP, pod_group_name};
use super::member::capacity::own_picture;
use super::mirror::Slot;
use super::place::{FITS, Finding, Subject, View, fits_elsewhere, judge, ready_on, unreadable};
use super::registration::{cordoned, is_cordoned, without_member};
use super::root::{Root, is_unreadable, policy, queue_of, unit_count};
use super::{Action, Member, Plan, Seen, Why, asked, decision, dependencies, mirror};
use crate::api::fleet::{GangShape, Placement, Stage, Withdrawal};
use crate::api::{Cluster, Id, Kind, RootId, Time};
use crate::row::{Facts, PodGroupFacts, Row};

/// Time from binding to Volcano's Inqueue, where the policy gives none.
const ADMISSION_DEADLINE_S: u32 = 30;
/// A gang that is past its deadline and has nowhere to go is looked at again after this time.
const LATE_LOOK: Duration = Duration::from_secs(5);

/// Verdicts about the RayCluster that a job runs on, by the hub alone.
const NOT_READY: &str = "ClusterNotReady";
const ELSEWHERE: &str = "ClusterElsewhere";

/// All that one look at a reservation works with.
struct Draft<'a> {
    seen: &'a Seen<'a>,
    on: Member<'a>,
    id: &'a Id,
    row: &'a Row,
    decided: &'a Placement,
    root: Root<'a>,
    gang: &'a Gang,
    now: Time,
}

/// One look at a root object whose `Placement` is `Reserving`.
pub fn plan(seen: &Seen, id: &Id, now: Time) -> Plan {
    let Some(row) = seen.placement_of(id.kind.name(), &id.namespace, &id.name) else { return wait("has no Placement") };
    let Some(decided) = decision::of(row) else { return wait("its Placement cannot be read") };
    if decided.spec.stage != Stage::Reserving {
        return wait("its Placement is not being reserved");
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
    let give_back =
        |reason: &str, message: &str| give_back(seen, on, id, row, decided, withdrawal(reason, message, false), now);
    let root = match seen.hub.get(id) {
        Some(root) if root.deleting.is_none() && *root.uid.0 == *decided.spec.root.uid => root,
        _ => return give_back("RootDeleted", "its root object is gone or being deleted"),
    };
    if row.deleting.is_some() {
        return give_back("PlacementDeleted", "its Placement is being deleted");
    }
    let Some(root) = Root::read(root) else { return wait("its body is missing") };
    if root.suspended() {
        return give_back("Suspended", "suspended by its user");
    }
    // The verdict of the second and third check (`placement.md` section 4) whatever there is room for. It is no shortage
    // that passes by itself, so neither deadline nor back-off: it waits where it can go.
    if is_cordoned(seen.hub, on.name.as_str()) {
        return give_back("Cordoned", &format!("not admitted on {} yet: {}", on.name, cordoned(on.name.as_str())));
    }
    let ask = asked::of(seen, &root);
    if ask.shape() != decided.status.gang.as_ref() || queue_of(seen.hub, root.row, seen.flags) != decided.spec.queue {
        return give_back("SpecChanged", "its gang or queue changed before it was admitted");
    }
    let gang = match &ask.gang {
        Ok((_, gang)) => gang,
        Err(why) => return give_back("SpecChanged", why),
    };
    Draft { seen, on, id, row, decided, root, gang, now }.steps()
}

fn wait(why: impl Into<std::sync::Arc<str>>) -> Plan {
    Plan { why: Why::new(why), ..Plan::default() }
}

fn withdrawal(reason: &str, message: &str, back_off: bool) -> Withdrawal {
    Withdrawal { reason: reason.to_owned(), message: message.to_owned(), back_off }
}

/// Undoes the binding: straight to `Waiting` where this epoch saw the generation begin and sent nothing
/// (`placement.md` section 4), else through `Withdrawing`.
fn give_back(
    seen: &Seen,
    on: Member,
    id: &Id,
    row: &Row,
    decided: &Placement,
    withdrawal: Withdrawal,
    now: Time,
) -> Plan {
    let me = seen.me;
    let ours = matches!(mirror::slot(on.tables, id, decided), Slot::Ours(_));
    let untouched = !me.sent && !ours && decision::is_clean(decided, me);
    let why = format!("{}: {}", withdrawal.reason, withdrawal.message);
    let mut next = decision::withdraw(decided, withdrawal, me, now);
    if untouched {
        next = decision::release(&next, me, now);
    }
    Plan { actions: decision::put(row, &next).into_iter().collect(), ..wait(why) }
}

impl Draft<'_> {
    fn steps(&self) -> Plan {
        match mirror::slot(self.on.tables, self.id, self.decided) {
            Slot::Empty => self.begin(),
            // Whoever deletes it there may do so again: not at once on the same member.
            Slot::Ours(mirror) if mirror.deleting.is_some() => {
                self.give_back("MirrorMissing", "its mirror was deleted on the member", true)
            }
            Slot::Ours(mirror) => self.go_on(mirror),
            Slot::Other(..) => self.give_back("NameTaken", "the name is still held by an earlier generation", true),
            Slot::Stranger(_) => {
                let why = format!("{} on {} is somebody else's and is not touched", self.id, self.on.name);
                self.give_back("NameTaken", &why, true)
            }
        }
    }

    fn give_back(&self, reason: &str, message: &str, back_off: bool) -> Plan {
        give_back(self.seen, self.on, self.id, self.row, self.decided, withdrawal(reason, message, back_off), self.now)
    }

    /// The RayCluster that it runs on, where it brings none.
    fn cluster(&self) -> Option<&str> {
        self.decided.status.gang.as_ref().and_then(GangShape::cluster)
    }

    /// Whether the RayCluster that it runs on is ready on this member, by the hub, and stands there, by the member.
    fn check_cluster(&self, name: &str) -> Finding {
        let id = Id::new(Kind::RayCluster, self.id.namespace.clone(), name);
        match ready_on(self.seen.hub, &id.namespace, name) {
            Err(why) => return Finding::no(NOT_READY, why),
            Ok(on) if on != self.on.name.as_str() => return Finding::no(ELSEWHERE, format!("{id} is on {on}")),
            Ok(_) => {}
        }
        let placement = self.seen.placement_of(id.kind.name(), &id.namespace, name).and_then(decision::of);
        match placement.map(|placement| mirror::slot(self.on.tables, &id, placement)) {
            Some(Slot::Ours(mirror)) if mirror.deleting.is_none() => {
                Finding { verdict: FITS, bound: format!("{id} is ready there"), ..Finding::default() }
            }
            _ => Finding::no("ClusterMissing", format!("{id} is not there")),
        }
    }

    /// Judges our gang by the member's own tables, other gangs that came before counted.
    fn check(&self) -> Finding {
        if let Some(name) = self.cluster() {
            return self.check_cluster(name);
        }
        match own_picture(self.seen, self.on, self.row, self.decided, self.now) {
            Ok(picture) => judge(&picture, &self.decided.spec.queue, self.gang),
            Err(why) => Finding::no("NotReady", why),
        }
    }

    fn deadline(&self) -> Time {
        let seconds = policy(self.seen.hub, &self.id.namespace).admission_deadline_seconds;
        let since = decision::stage_since(self.row, self.decided);
        since + Duration::from_secs(u64::from(seconds.unwrap_or(ADMISSION_DEADLINE_S)))
    }

    /// The write that comes next; past the deadline not one more, where the last was refused or lost: what this member does
    /// not take must keep nobody waiting for it.
    fn next_write(&self, action: Action, why: String) -> Plan {
        match self.seen.trouble.filter(|_| self.now >= self.deadline()) {
            Some(trouble) => self.give_back("AdmissionDeadline", &format!("could not be set up: {trouble}"), true),
            None => Plan { actions: vec![action], ..wait(why) },
        }
    }

    /// What is in the way is no shortage: it is waited for until the deadline, and then others may go.
    fn hindered(&self, reason: &str, why: &str) -> Plan {
        let deadline = self.deadline();
        if self.now >= deadline {
            return self.give_back(reason, why, true);
        }
        Plan {
            next: Some(deadline.min(self.now + dependencies::READ_AGAIN)),
            ..wait(format!("on {}: {why}", self.on.name))
        }
    }

    /// The check says no. What the hub itself says of its RayCluster is waited for there, without a back-off.
    fn no_longer_fits(&self, finding: &Finding) -> Plan {
        let why = format!("{} on {}: {}", finding.verdict, self.on.name, words(finding));
        self.give_back("NoLongerFits", &why, !matches!(finding.verdict, NOT_READY | ELSEWHERE))
    }

    /// Nothing is there yet: second check, namespace, mirror.
    fn begin(&self) -> Plan {
        // A write that gave it back may still land: the Placement is moved on first, and that write with it.
        if self.seen.me.unknown && !self.seen.me.sent {
            return self.give_back("Unsettled", "a write that gives it back may still arrive", false);
        }
        let finding = self.check();
        if !finding.fits() {
            return self.no_longer_fits(&finding);
        }
        let namespace = Id::new(Kind::Namespace, "", self.id.namespace.clone());
        let action = match self.on.tables.get(&namespace) {
            Some(row) if row.deleting.is_some() => {
                return self.hindered("AdmissionDeadline", &format!("{namespace} is being deleted"));
            }
            Some(_) => mirror::create(self.on.name, self.id, self.decided, Some(&self.root)),
            None => Action::Create {
                cluster: Cluster::Member(self.on.name.clone()),
                body: json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": namespace.name } }),
                id: namespace,
            },
        };
        self.next_write(action, format!("is reserved on {}", self.on.name))
    }

    /// The mirror is there: dependencies, PodGroup, Inqueue.
    fn go_on(&self, mirror: &Row) -> Plan {
        let since = decision::stage_since(self.row, self.decided);
        let deadline = self.deadline();
        let dependencies = dependencies::look(self.seen, self.on.name, &self.root, mirror, since, self.now);
        if !dependencies.fetch.is_empty() {
            return Plan { fetch: dependencies.fetch, next: Some(deadline), ..wait("its dependencies are read") };
        }
        if let Some(first) = dependencies.actions.first().cloned() {
            let plan = self.next_write(first.clone(), format!("its dependencies follow it to {}", self.on.name));
            let goes_on = plan.actions.first() == Some(&first);
            return if goes_on { Plan { actions: dependencies.actions, ..plan } } else { plan };
        }
        if self.cluster().is_some() && dependencies.blocked.is_none() {
            // Nothing of it needs room that Volcano could keep (ADR 8).
            let finding = self.check();
            if !finding.fits() {
                return self.no_longer_fits(&finding);
            }
            let message = format!("on {}: {}", self.on.name, finding.bound);
            return self.admit(mirror, dependencies.names, message);
        }
        let blocked = match (dependencies.blocked, self.pod_group(mirror)) {
            (Some(why), _) => return self.hindered("DependencyMissing", &why),
            (None, Err(why)) => return self.hindered("NameTaken", &why),
            (None, Ok(None)) => {
                return self.next_write(
                    self.create_pod_group(mirror),
                    format!("asks Volcano on {} for admission", self.on.name),
                );
            }
            (None, Ok(Some(group))) => match &*group.phase {
                "Inqueue" | "Running" => {
                    let finding = self.check();
                    if finding.fits() {
                        let message = format!("admitted by Volcano on {}", self.on.name);
                        return self.admit(mirror, dependencies.names, message);
                    }
                    format!(
                        "Volcano has admitted it; now {} has {}: {}",
                        self.on.name,
                        finding.verdict,
                        words(&finding)
                    )
                }
                "" => "Volcano has not looked at its PodGroup yet".to_owned(),
                phase => format!("Volcano has not admitted its PodGroup (phase {phase})"),
            },
        };
        self.late(&blocked, deadline)
    }

    /// Waits until the deadline; then goes elsewhere if there is a place, and back if it has none here any more; else it
    /// keeps its place in the member's queue.
    fn late(&self, why: &str, deadline: Time) -> Plan {
        if self.now < deadline {
            return Plan {
                next: Some(deadline.min(self.now + dependencies::READ_AGAIN)),
                ..wait(format!("on {}: {why}", self.on.name))
            };
        }
        let spec = &self.decided.spec;
        let subject = Subject {
            root_id: &spec.root.root_id,
            queue: &spec.queue,
            gang: self.gang,
            so_far: Some((spec, self.row.version)),
        };
        let view = View {
            hub: self.seen.hub,
            received: self.seen.capacity_received,
            epochs: Some(self.seen.epochs),
            flags: self.seen.flags,
            now: self.now,
        };
        if fits_elsewhere(view, &subject, self.on.name.as_str()) {
            return self.give_back("AdmissionDeadline", why, true);
        }
        // Its room here is gone (ADR 6): in the hub's queue it keeps its turn, and here others of its queue may go.
        let finding = self.check();
        if !finding.fits() {
            let why = format!("{} on {}: {}", finding.verdict, self.on.name, words(&finding));
            return self.give_back("NoLongerFits", &why, false);
        }
        let message = format!("on {}, past its deadline, and fits nowhere else: {why}", self.on.name);
        let mut plan = Plan { next: Some(self.now + LATE_LOOK), ..wait(message.clone()) };
        if self.decided.status.message == message {
            plan.actions.extend(self.root.put_waiting_status(false, "Admitting", &message));
        } else {
            let mut next = self.decided.clone();
            next.status.message = message;
            plan.actions.extend(decision::put(self.row, &next));
        }
        plan
    }

    /// The PodGroup, if it is there and ours.
    fn pod_group(&self, mirror: &Row) -> Result<Option<&PodGroupFacts>, String> {
        let name = pod_group_name(&self.id.name);
        let Some(row) = self.on.tables.table(Kind::PodGroup).get(&self.id.namespace, &name) else { return Ok(None) };
        if row.owner.as_ref() != Some(&mirror.uid) {
            return Err(format!("{} on {} is somebody else's", row.id, self.on.name));
        }
        if row.deleting.is_some() {
            return Err(format!("{} on {} is being deleted", row.id, self.on.name));
        }
        match &row.facts {
            Facts::PodGroup(facts) => Ok(Some(facts)),
            _ => Err(format!("{} on {} cannot be read", row.id, self.on.name)),
        }
    }

    /// The PodGroup alone, complete, before any pod (`placement.md` section 4).
    fn create_pod_group(&self, mirror: &Row) -> Action {
        let shape = self.decided.status.gang.clone().unwrap_or_default();
        let tasks: serde_json::Map<String, Value> = shape
            .pods
            .iter()
            .filter(|p| p.group != SUBMITTER_GROUP)
            .map(|p| (p.group.clone(), if p.group == HEAD_GROUP { 1.into() } else { p.count.into() }))
            .collect();
        let mut spec = json!({
            "minMember": shape.min_member,
            "minTaskMember": tasks,
            "minResources": shape.min_resources,
            "queue": self.decided.spec.queue,
        });
        if !shape.priority_class.is_empty() {
            spec["priorityClassName"] = shape.priority_class.into();
        }
        let name = pod_group_name(&self.id.name);
        let annotations: serde_json::Map<String, Value> = self.root.body()["metadata"]["annotations"]
            .as_object()
            .into_iter()
            .flatten()
            .filter(|(key, _)| mirror::is_copied(key))
            .map(|(k, v)| (k.clone(), v.clone()))
            .collect();
        let body = json!({
            "apiVersion": Kind::PodGroup.api_version(),
            "kind": Kind::PodGroup.name(),
            "metadata": {
                "name": name,
                "namespace": self.id.namespace,
                "annotations": annotations,
                "ownerReferences": [{
                    "apiVersion": mirror.id.kind.api_version(),
                    "kind": mirror.id.kind.name(),
                    "name": mirror.id.name,
                    "uid": mirror.uid,
                    "controller": true,
                    "blockOwnerDeletion": true,
                }],
            },
            "spec": spec,
        });
        let id = Id::new(Kind::PodGroup, self.id.namespace.clone(), name);
        Action::Create { cluster: Cluster::Member(self.on.name.clone()), id, body }
    }

    /// Passes the object on to its bucket's unit.
    fn admit(&self, mirror: &Row, dependencies: Vec<String>, message: String) -> Plan {
        let mut next = self.decided.clone();
        let member = self.on.name.as_str();
        let unit = RootId::from(&*next.spec.root.root_id).member_unit(member, unit_count(self.seen.hub, member));
        // Where the epoch is not known the new owner claims for itself.
        if let Some(epoch) = self.seen.epochs.get(&unit).filter(|_| unit != self.seen.me.unit) {
            next.spec.claims.insert(unit.to_string(), *epoch);
        }
        next.spec.unclean |= self.seen.me.unknown;
        next.spec.was_admitted = true;
        next.spec.mirror_uid = Some(mirror.uid.to_string());
        next.spec.dependencies = dependencies;
        decision::enter(&mut next, Stage::Admitted, self.now);
        next.status.message.clone_from(&message);
        decision::note(&mut next, "Admitted", message.clone(), self.now);
        Plan { actions: decision::put(self.row, &next).into_iter().collect(), ..wait(message) }
    }
}

/// A finding in words.
fn words(finding: &Finding) -> String {
    if finding.need.is_empty() {
        finding.bound.clone()
    } else {
        format!("needs {}, has {} ({})", finding.need, finding.have, finding.bound)
    }
}
