//! Which member a root object goes to, and when: its way from the first sight to `Reserving`, and its end on the hub.
//! Reads the hub only. Must not know members' objects, or how a reservation is carried out.

mod board;
mod choose;
mod members;
mod pack;
mod picture;
mod retire;
mod selected;
mod shares;
#[cfg(test)]
mod tests;
mod told;
mod unbuilt;
mod verdict;

pub use board::Board;
pub use members::{Members, Subject, View, fits_elsewhere};
pub use picture::{Picture, Received};
pub use selected::{ready_on, stands_on};
pub(super) use told::unreadable;
pub use verdict::{FITS, Finding, judge};

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;

use super::gang::Gang;
use super::root::{Root, queue_of};
use super::{Action, Ask, Flags, Note, Plan, Seen, Why, asked, decision, dependencies};
use crate::api::fleet::{GangShape, MemberVerdict, Placement, Stage};
use crate::api::names::ROOT_FINALIZER;
use crate::api::{Id, Kind, Time, member_unit};
use crate::row::{Facts, Row, Tables};

/// Other verdicts than the stored ones are written at most this often.
const VERDICTS_EVERY: Duration = Duration::from_secs(2);
/// Other numbers under the same verdicts are written at most this often.
const NUMBERS_EVERY: Duration = Duration::from_secs(10);
/// All that wait in one queue are explained afresh at most this often together: every gang that comes or goes changes what
/// is to be said of each of them.
const QUEUE_PACE: Duration = Duration::from_millis(500);
/// The longest that an explanation stays as it is on that account.
const PACE_MAX: Duration = Duration::from_mins(5);
/// The first ones of a queue, whose turn is near, are explained without regard to the others.
const FRONT: u32 = 3;
/// A waiting object is looked at again after this time at the latest.
const LOOK_EVERY: Duration = Duration::from_secs(30);
/// The same where it waits for its turn.
const TURN_EVERY: Duration = Duration::from_secs(1);

/// One look at a root object that is not bound to a member.
pub fn plan(seen: &Seen, id: &Id, now: Time) -> Plan {
    let row = seen.hub.get(id);
    let placement = seen.placement_of(id.kind.name(), &id.namespace, &id.name);
    if let Some(object) = seen.hub.quarantined(id) {
        return told::unreadable(object);
    }
    // What a list shows of a Placement that does not decode is nothing: the object may be running by it.
    let placement_id = Id::new(Kind::Placement, id.namespace.clone(), super::placement_name(id.kind.name(), &id.name));
    if let (Some(row), Some(object)) = (row, seen.hub.quarantined(&placement_id)) {
        return told::placement_unreadable(row, object);
    }
    match (row, placement) {
        (None, None) => Plan::default(),
        (None, Some(placement)) => retire::plan(seen, placement),
        (Some(row), None) => first(seen, row, now),
        (Some(row), Some(placement)) => match decision::of(placement) {
            Some(decided)
                if row.deleting.is_some() || placement.deleting.is_some() || *decided.spec.root.uid != *row.uid.0 =>
            {
                retire::plan(seen, placement)
            }
            Some(decided) => waiting(seen, row, placement, decided, now),
            None => wait("its Placement cannot be read"),
        },
    }
}

fn wait(why: impl Into<Arc<str>>) -> Plan {
    Plan { why: Why::new(why), ..Plan::default() }
}

fn act(action: Option<Action>, why: &str) -> Plan {
    match action {
        Some(action) => Plan { actions: vec![action], why: Why::new(why), ..Plan::default() },
        None => wait(format!("{why}: its body is missing")),
    }
}

/// A root object without a `Placement`.
fn first(seen: &Seen, row: &Row, now: Time) -> Plan {
    let Some(root) = Root::read(row) else { return wait("its body is missing") };
    if row.deleting.is_some() {
        // `sharding.md` 1.15: an object that is being deleted never gets a Placement.
        let ours = row.has_finalizer(ROOT_FINALIZER);
        let free = || root.put_finalizers(|list| list.retain(|f| f != ROOT_FINALIZER));
        return if ours { act(free(), "nothing of it is on any member: let go") } else { wait("being deleted") };
    }
    if !root.is_ours() {
        return wait("managed by another controller");
    }
    if matches!(row.id.kind, Kind::RayService | Kind::RayCronJob) {
        return unbuilt::plan(&root, now);
    }
    match root.state() {
        "" | "Suspended" | "suspended" => {}
        "ValidationFailed" => {
            return wait("broke a rule before; KubeRay does not take that back either: apply it under a new name");
        }
        state => {
            return told::has_run(row, state);
        }
    }
    let ask = asked::of(seen, &root);
    let (shape, _) = match gang_of(&root, &ask) {
        Ok(gang) => gang,
        Err((reason, message)) => return told::invalid(&root, reason, &message),
    };
    if !row.has_finalizer(ROOT_FINALIZER) {
        return act(root.put_finalizers(|list| list.push(ROOT_FINALIZER.into())), "taken into the fleet");
    }
    let queue = queue_of(seen.hub, row, seen.flags);
    act(Some(decision::create(row, &queue, shape.clone(), now)), "gets its Placement")
}

/// The gang of a root object that keeps the rules; else the Event's reason and a sentence.
fn gang_of<'a>(root: &Root, ask: &'a Ask) -> Result<&'a (GangShape, Gang), (&'static str, String)> {
    match (&ask.refusal, &ask.gang) {
        (Some(refusal), _) => Err((refusal.event_reason, refusal.to_string())),
        (None, Ok(gang)) => Ok(gang),
        (None, Err(message)) => Err((bad_spec(root), message.clone())),
    }
}

/// KubeRay's Event reason for a specification that breaks a rule.
fn bad_spec(root: &Root) -> &'static str {
    if root.row.id.kind == Kind::RayJob { "InvalidRayJobSpec" } else { "InvalidRayClusterSpec" }
}

/// A root object whose `Placement` is `Waiting`.
fn waiting(seen: &Seen, row: &Row, placement: &Row, decided: &Placement, now: Time) -> Plan {
    let Some(root) = Root::read(row) else { return wait("its body is missing") };
    if decided.spec.stage != Stage::Waiting {
        return wait("its Placement is bound");
    }
    if matches!(root.state(), "Complete" | "Failed") {
        return wait("has ended; it is not started a second time");
    }
    if !row.has_finalizer(ROOT_FINALIZER) {
        return act(root.put_finalizers(|list| list.push(ROOT_FINALIZER.into())), "taken into the fleet");
    }
    let ask = asked::of(seen, &root);
    let (shape, gang) = match gang_of(&root, &ask) {
        Ok(gang) => gang,
        Err((reason, message)) => return told::invalid(&root, reason, &message),
    };
    let mut next = decided.clone();
    next.spec.queue = queue_of(seen.hub, row, seen.flags);
    next.status.gang = Some(shape.clone());
    let view =
        View { hub: seen.hub, received: seen.capacity_received, epochs: Some(seen.epochs), flags: seen.flags, now };
    let (mut pace, mut fetch) = (Duration::ZERO, Vec::new());
    let look = if root.suspended() {
        next.status.verdicts.clear();
        next.status.missing.clear();
        next.status.position = None;
        "suspended by its user".clone_into(&mut next.status.message);
        None
    } else {
        let read;
        let board = if let Some(board) = seen.board.filter(|board| board.holds_for(seen.hub)) {
            board
        } else {
            read = Board::read(seen.hub, seen.capacity_received);
            &read
        };
        let choice = match shape.cluster() {
            Some(name) => {
                let subject = Subject::of(&next, placement, gang);
                selected::choose(seen.hub, &Members::of(view, board), placement, &subject, name)
            }
            None => choose::choose(view, board, placement, &next, gang),
        };
        if choice.position.is_some_and(|position| position > FRONT) {
            pace = (QUEUE_PACE * choice.waiting).min(PACE_MAX);
        }
        next.status.verdicts = choice.verdicts;
        next.status.position = choice.position;
        next.status.message = choice.message;
        let mut again = now + if choice.turn { TURN_EVERY } else { LOOK_EVERY };
        // What cannot start does not hold a place on a member, nor its turn. Looked for once it could go, then until found.
        if choice.member.is_some() || !decided.status.missing.is_empty() {
            let named = dependencies::on_hub(seen, &root, decision::stage_since(placement, decided), now);
            if let Some(member) = choice.member.filter(|_| named.is_complete()) {
                return bind(seen, placement, next, &member, now);
            }
            if named.missing.is_empty() && (named.unread || !named.fetch.is_empty()) {
                let next = named.next;
                return Plan { fetch: named.fetch, next, ..wait("what its pods name is read on the hub") };
            }
            again = again.min(named.next.unwrap_or(again));
            fetch = named.fetch;
            if let [first, ..] = &*named.missing {
                next.status.message = match named.missing.len() {
                    1 => format!("waits for what its pods name: {first}"),
                    n => format!("waits for what its pods name: {first}, and {} more", n - 1),
                };
            }
            next.status.missing = named.missing;
        }
        Some(again)
    };
    let mut plan = Plan { fetch, ..wait(next.status.message.clone()) };
    // Whether others go before it is told without delay.
    if next.status.missing != decided.status.missing {
        pace = Duration::ZERO;
    }
    plan.next = look.map(|at| at.min(next_back_off(&next, now).unwrap_or(at)));
    let news = next.status.message != decided.status.message;
    explain_it(&mut plan, &root, placement, decided, next, pace, now);
    let told = plan.actions.iter().any(|action| matches!(action, Action::Replace { id, .. } if *id == placement.id));
    if let Some(name) = shape.cluster().filter(|_| news && told && !root.suspended())
        && selected::is_absent(seen.hub, &root.row.id.namespace, name)
    {
        plan.events.push(told::not_found(root.row, name));
    }
    plan
}

/// What of an explanation is told first: all but numbers and the words made of them.
fn essence(placement: &Placement) -> impl PartialEq {
    let verdicts = placement.status.verdicts.iter();
    let kinds: Vec<_> = verdicts.map(|v| (v.member.clone(), v.verdict.clone(), v.dimension.clone())).collect();
    let status = &placement.status;
    (placement.spec.clone(), status.gang.clone(), kinds, status.missing.clone(), status.position.is_none())
}

/// End of the back-off that ends first.
fn next_back_off(placement: &Placement, now: Time) -> Option<Time> {
    placement.spec.back_offs.values().filter_map(|back_off| decision::backs_off(back_off, now)).min()
}

/// Writes verdicts and message where they differ from what is stored, and the root's status after them. What others decide
/// by, queue and gang, does not keep the pace of explanations; and a time of writing that is yet to come is a wrong clock's.
fn explain_it(
    plan: &mut Plan,
    root: &Root,
    row: &Row,
    stored: &Placement,
    mut next: Placement,
    pace: Duration,
    now: Time,
) {
    let written = Time::parse(&stored.status.decided_at).unwrap_or_default();
    let wanted = next.status.message.clone();
    if next != *stored {
        let least = if essence(&next) == essence(stored) { NUMBERS_EVERY } else { VERDICTS_EVERY };
        let asks_the_same = next.spec == stored.spec && next.status.gang == stored.status.gang;
        let due = written + if asks_the_same { least.max(pace) } else { least };
        if now >= due || now < written {
            next.status.decided_at = now.micro_text();
            plan.actions.extend(decision::put(row, &next));
        } else {
            plan.next = Some(plan.next.map_or(due, |at| at.min(due)));
        }
    }
    // The root's status follows what is stored, hence at the same pace.
    if !plan.actions.is_empty() {
        return;
    }
    let message = if stored.status.message.is_empty() { &wanted } else { &stored.status.message };
    let reason = match (root.suspended(), stored.status.missing.is_empty()) {
        (true, _) => "Suspended",
        (false, false) => "DependencyMissing",
        (false, true) if decision::brings_gang(stored) => "WaitingForCapacity",
        (false, true) => "WaitingForRayCluster",
    };
    plan.actions.extend(root.put_waiting_status(root.suspended(), reason, message));
    if plan.actions.is_empty() && !root.row.label(crate::api::names::STAGE_LABEL).is_empty() {
        plan.actions.extend(root.put_index("", "Waiting"));
    }
}

/// Binds: the one write that starts a generation (`sharding.md` 1.10).
fn bind(seen: &Seen, row: &Row, mut next: Placement, member: &str, now: Time) -> Plan {
    let unit = member_unit(member, 0);
    let Some(epoch) = seen.epochs.get(&unit) else { return wait(format!("no replica has taken over {member} yet")) };
    let spec = &mut next.spec;
    if spec.member.as_deref() != Some(member) {
        // Versions of another cluster's objects say nothing here.
        spec.written_up_to.clear();
    }
    spec.member = Some(member.to_owned());
    spec.generation += 1;
    spec.claims = BTreeMap::from([(unit.to_string(), *epoch)]);
    spec.unclean = false;
    spec.was_admitted = false;
    spec.mirror_uid = None;
    spec.dependencies.clear();
    spec.withdrawal = None;
    next.status.missing.clear();
    decision::enter(&mut next, Stage::Reserving, now);
    next.status.position = None;
    next.status.decided_at = now.micro_text();
    let message = next.status.message.clone();
    decision::note(&mut next, "Bound", message.clone(), now);
    let mut plan = act(decision::put(row, &next), &message);
    let root = super::root::root_id_of(row).and_then(|id| seen.hub.get(&id));
    plan.events.extend(root.map(|root| Note { warning: false, ..told::warning(root, "Bound", "Place", &message) }));
    plan
}

/// Answer of a dry run.
#[derive(Clone, Debug, PartialEq)]
pub struct Explanation {
    /// Queue that it would wait in.
    pub queue: String,
    /// Shape of its gang.
    pub gang: GangShape,
    /// Verdict for every member.
    pub verdicts: Vec<MemberVerdict>,
    /// The member that would be chosen now.
    pub choice: Option<String>,
    /// In a sentence.
    pub message: String,
}

/// What would become of an object that does not exist yet. `hub` needs `MemberCluster`, `MemberCapacity`, `Placement`,
/// `PlacementPolicy`; `received` is each `MemberCapacity` with the time when it came (where it was just read: now). `Err`: what is wrong
/// with the manifest.
pub fn explain(
    hub: &Tables,
    received: &BTreeMap<Arc<str>, Received>,
    manifest: &Value,
    flags: &Flags,
    now: Time,
) -> Result<Explanation, String> {
    let gang = super::gang::shape(manifest, flags)?;
    let namespace = manifest["metadata"]["namespace"].as_str().unwrap_or("default");
    let policy = super::root::policy(hub, namespace);
    let queue = match manifest["metadata"]["labels"][crate::api::names::QUEUE_LABEL].as_str() {
        Some(named) if !named.is_empty() => named.to_owned(),
        _ => policy.default_queue.clone().unwrap_or_else(|| flags.default_queue.to_string()),
    };
    let numbers = Gang::parse(&gang)?;
    let view = View { hub, received, epochs: None, flags, now };
    let subject = Subject { root_id: "", queue: &queue, gang: &numbers, so_far: None };
    let members = Members::read(view, "");
    let (findings, choice, message) = if let Some(name) = gang.cluster() {
        let (findings, there) = selected::findings(hub, &members, &subject, namespace, name);
        let choice = findings.iter().find(|(_, finding)| finding.fits()).map(|(member, _)| member.clone());
        let message = selected::sentence(&findings, &there);
        (findings, choice, message)
    } else {
        let findings: Vec<(String, Finding)> =
            members.names().map(|m| (m.to_string(), members.judge(m, &subject))).collect();
        let choice = choose::best(&findings, &policy.preference, "").map(|index| findings[index].0.clone());
        let message = choose::sentence(&findings, choice.as_deref());
        (findings, choice, message)
    };
    let verdicts = findings.into_iter().map(|(member, finding)| finding.of(&member)).collect();
    Ok(Explanation { queue, gang, verdicts, choice, message })
}

/// Value of a PriorityClass; 0 where it is not there (as Volcano reads it).
fn priority(hub: &Tables, class: &str) -> i32 {
    match hub.table(Kind::PriorityClass).get("", class).map(|row| &row.facts) {
        Some(Facts::Priority(value)) => *value,
        _ => 0,
    }
}
