//! How a `Placement` is made and moved on: one PUT of the whole object, specification and explanation together.
//! Must not know when that is right.

use serde_json::{Value, json};

use super::{Action, Flags, Me, Precondition};
use crate::api::fleet::{BackOff, GangShape, HistoryEntry, Placement, Stage, Withdrawal};
use crate::api::names::PLACEMENT_FINALIZER;
use crate::api::{Cluster, Id, Kind, Time};
use crate::row::{Facts, Row};

/// Longest history that is kept.
const HISTORY: usize = 20;
/// Back-off after the first withdrawal from a member; it doubles with each.
const BACK_OFF_MIN: i64 = 60_000;
/// Longest back-off.
const BACK_OFF_MAX: i64 = 30 * 60_000;

/// The decision that a row holds; `None` if the row is of another kind.
pub fn of(row: &Row) -> Option<&Placement> {
    match &row.facts {
        Facts::Placement(placement) => Some(placement),
        _ => None,
    }
}

/// The whole object of a row, as it came; `None` where the row keeps no body.
pub fn body(row: &Row) -> Option<Value> {
    serde_json::from_str(row.body.as_deref()?).ok()
}

/// The PUT that makes the `Placement` equal to `next`; `None` if it is already.
pub fn put(row: &Row, next: &Placement) -> Option<Action> {
    if of(row) == Some(next) {
        return None;
    }
    let mut body = body(row)?;
    body["spec"] = serde_json::to_value(&next.spec).ok()?;
    body["status"] = serde_json::to_value(&next.status).ok()?;
    Some(Action::Replace { cluster: Cluster::Hub, id: row.id.clone(), body, seen: Precondition::from(row) })
}

/// Creates the `Placement` of a root object: `Waiting`, generation 0 (`sharding.md` 1.15).
pub fn create(root: &Row, queue: &str, gang: GangShape, now: Time) -> Action {
    let kind = root.id.kind;
    let name = super::placement_name(kind.name(), &root.id.name);
    let body = json!({
        "apiVersion": Kind::Placement.api_version(),
        "kind": Kind::Placement.name(),
        "metadata": {
            "name": name,
            "namespace": root.id.namespace,
            "finalizers": [PLACEMENT_FINALIZER],
            "ownerReferences": [{
                "apiVersion": kind.api_version(),
                "kind": kind.name(),
                "name": root.id.name,
                "uid": root.uid,
            }],
        },
        "spec": {
            "root": { "kind": kind.name(), "name": root.id.name, "uid": root.uid, "rootId": root.uid },
            "queue": queue,
            "stage": Stage::Waiting,
            "generation": 0,
            "stageSince": now.micro_text(),
        },
        "status": { "gang": gang },
    });
    let id = Id::new(Kind::Placement, root.id.namespace.clone(), name);
    Action::Create { cluster: Cluster::Hub, id, body }
}

/// When the present stage was entered; the time of creation where that is not stored.
pub fn stage_since(row: &Row, placement: &Placement) -> Time {
    placement.spec.stage_since.as_deref().and_then(Time::parse).unwrap_or(row.created)
}

/// Enters a stage.
pub fn enter(placement: &mut Placement, stage: Stage, now: Time) {
    placement.spec.stage = stage;
    placement.spec.stage_since = Some(now.micro_text());
}

/// Adds a line of history about the present generation.
pub fn note(placement: &mut Placement, event: &str, message: impl Into<String>, now: Time) {
    let history = &mut placement.status.history;
    history.push(HistoryEntry {
        generation: placement.spec.generation,
        member: placement.spec.member.clone().unwrap_or_default(),
        at: now.micro_text(),
        event: event.to_owned(),
        message: message.into(),
    });
    let surplus = history.len().saturating_sub(HISTORY);
    history.drain(..surplus);
}

/// Whether nobody else and nothing unknown can still write for this generation (`sharding.md` 1.10).
pub fn is_clean(placement: &Placement, me: &Me) -> bool {
    !placement.spec.unclean && !me.unknown && placement.spec.claims.get(&*me.unit) == Some(&me.epoch)
}

/// The move to `Withdrawing`; unknown outcomes make the generation unclean (`sharding.md` 1.11).
pub fn withdraw(now_is: &Placement, withdrawal: Withdrawal, me: &Me, now: Time) -> Placement {
    let mut next = now_is.clone();
    enter(&mut next, Stage::Withdrawing, now);
    // A former owner of this unit may still have requests under way: it had claimed and we have not.
    let superseded = now_is.spec.claims.get(&*me.unit).is_some_and(|epoch| *epoch != me.epoch);
    next.spec.unclean |= me.unknown || superseded;
    next.status.message.clone_from(&withdrawal.message);
    next.spec.withdrawal = Some(withdrawal);
    next
}

/// The move to `Waiting`, with back-off from the member where the withdrawal asks for it.
pub fn release(now_is: &Placement, me: &Me, now: Time) -> Placement {
    let mut next = now_is.clone();
    enter(&mut next, Stage::Waiting, now);
    next.spec.unclean = !is_clean(now_is, me);
    let (back_off, message) = match &next.spec.withdrawal {
        Some(w) => (w.back_off, format!("{}: {}", w.reason, w.message)),
        None => (false, String::new()),
    };
    if back_off && let Some(member) = next.spec.member.clone() {
        let entry = next.spec.back_offs.entry(member).or_default();
        *entry = longer(entry, now);
    }
    note(&mut next, "Withdrawn", message, now);
    next
}

/// Until when an object stays away from a member, if it has to. A time that no back-off can reach from here was written by
/// a wrong clock, and binds nobody.
pub fn backs_off(back_off: &BackOff, now: Time) -> Option<Time> {
    let until = Time::parse(&back_off.until)?;
    (until > now && until.0 - now.0 <= BACK_OFF_MAX).then_some(until)
}

fn longer(before: &BackOff, now: Time) -> BackOff {
    let wait = BACK_OFF_MIN.saturating_mul(1 << before.count.min(10)).min(BACK_OFF_MAX);
    BackOff { count: before.count.saturating_add(1), until: Time(now.0.saturating_add(wait)).micro_text() }
}

/// Annotation `rayfleet.io/placement-generation` of a mirror; 0 where it has none.
pub fn generation_of(mirror: &Row) -> i64 {
    mirror.annotation(crate::api::names::GENERATION).parse().unwrap_or(0)
}

/// Whether its pods need room: those of a job on a RayCluster that is there already have it.
pub fn brings_gang(placement: &Placement) -> bool {
    placement.status.gang.as_ref().is_none_or(|gang| gang.cluster().is_none())
}

/// Marks that the writer is who the settings say: the annotation of the fleet.
pub fn is_of_fleet(row: &Row, flags: &Flags) -> bool {
    let fleet = row.annotation(crate::api::names::FLEET_ID);
    fleet.is_empty() || fleet == &*flags.fleet_id
}
