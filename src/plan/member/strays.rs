//! Mirrors that no `Placement` names at present: strays are ended, tombstones are released when that is safe.
//! Knows `sharding.md` 1.6, 1.14 and E7. Must not know placements that are under way.

use std::time::Duration;

use super::super::hidden::{Family, hidden_child};
use super::super::mirror::put_without_finalizers;
use super::super::ray_cluster::redis_cleanup::{Heir, is_held};
use super::super::withdraw::{clear, is_idle, propagation};
use super::super::{Action, Fetch, Fetched, Flags, Member, Plan, Precondition, Seen, Why, decision, placement_name};
use crate::api::fleet::{Placement, Stage};
use crate::api::names::{FOREGROUND_FINALIZER, ROOT, TOMBSTONE_FINALIZER};
use crate::api::{Cluster, Id, Kind, Time};
use crate::row::{Facts, Row, Tables};

/// A read of a `Placement` is fresh for this time.
const FRESH: Duration = Duration::from_secs(5);
/// A read that changed nothing is repeated after this time.
const READ_AGAIN: Duration = Duration::from_secs(10);

/// Mirrors of this fleet on the member: another fleet's are its own business.
fn mirrors<'a>(tables: &'a Tables, flags: &'a Flags) -> impl Iterator<Item = &'a Row> {
    [Kind::RayJob, Kind::RayCluster]
        .into_iter()
        .flat_map(|kind| tables.rows(kind))
        .filter(|row| row.root_id.is_some() && !row.annotation(ROOT).is_empty() && decision::is_of_fleet(row, flags))
}

/// Whether the `Placement` names this mirror, in any stage but `Waiting`.
fn is_named(placement: &Placement, on: Member, mirror: &Row) -> bool {
    let spec = &placement.spec;
    spec.stage != Stage::Waiting
        && spec.member.as_deref() == Some(on.name.as_str())
        && spec.generation == decision::generation_of(mirror)
        && mirror.root_id.as_ref().is_some_and(|root| root.as_str() == spec.root.root_id)
}

/// Id of the `Placement` of a mirror.
fn placement_id(mirror: &Row) -> Id {
    Id::new(Kind::Placement, mirror.id.namespace.clone(), placement_name(mirror.id.kind.name(), &mirror.id.name))
}

/// Root ids whose name is taken by a mirror that is being deleted, or that no `Placement` names.
pub(super) fn held(hub: &Tables, on: Member, flags: &Flags) -> Vec<String> {
    let mut ids: Vec<String> = mirrors(on.tables, flags)
        .filter(|mirror| {
            let placement = hub.get(&placement_id(mirror)).and_then(decision::of);
            mirror.deleting.is_some() || !placement.is_some_and(|p| is_named(p, on, mirror))
        })
        .filter_map(|mirror| mirror.root_id.as_ref().map(ToString::to_string))
        .collect();
    ids.sort();
    ids.dedup();
    ids
}

/// Adds what is to be done about strays and tombstones.
pub(super) fn plan(seen: &Seen, on: Member, now: Time, plan: &mut Plan) {
    for mirror in mirrors(on.tables, seen.flags) {
        let placement = seen.hub.get(&placement_id(mirror)).and_then(decision::of);
        if placement.is_some_and(|p| is_named(p, on, mirror)) {
            continue;
        }
        if mirror.deleting.is_some() {
            tombstone(seen, on, mirror, now, plan);
        } else {
            stray(seen, on, mirror, now, plan);
        }
    }
}

fn look_at(plan: &mut Plan, at: Time) {
    plan.next = Some(plan.next.map_or(at, |next| next.min(at)));
}

/// A mirror that lives and is named by no `Placement`: ended, once the `Placement` was read after the mirror was seen.
fn stray(seen: &Seen, on: Member, mirror: &Row, now: Time, plan: &mut Plan) {
    // The read of the mirror is asked for only once it was seen: what is read after that read was begun is later.
    let marker = (Cluster::Member(on.name.clone()), mirror.id.clone());
    let marked = seen
        .fetched
        .get(&marker)
        .filter(|f| f.body.as_ref().is_some_and(|b| b["metadata"]["uid"].as_str() == Some(&mirror.uid.0)));
    let Some(marked) = marked else {
        read(seen, plan, marker, now);
        return;
    };
    let key = (Cluster::Hub, placement_id(mirror));
    let fresh =
        seen.fetched.get(&key).filter(|f| f.begun >= marked.begun && f.begun + FRESH >= now && f.error.is_none());
    let Some(fresh) = fresh else {
        read(seen, plan, key, now);
        return;
    };
    let (placement, found) = placement_in(fresh);
    let later = placement.as_ref().is_some_and(|p| p.spec.generation < decision::generation_of(mirror));
    let named = placement.as_ref().is_some_and(|p| is_named(p, on, mirror));
    // A mirror that has run and has no Placement, or is ahead of it, is what adoption is for: it is not ended here.
    let ran = !found && has_run(mirror);
    if named || later || ran {
        look_at(plan, now + READ_AGAIN);
        return;
    }
    plan.actions.push(Action::Delete {
        cluster: Cluster::Member(on.name.clone()),
        id: mirror.id.clone(),
        seen: Precondition::from(mirror),
        children: propagation(on.tables, mirror),
    });
}

/// Asks for a read, unless one was begun a moment ago and told nothing.
fn read(seen: &Seen, plan: &mut Plan, key: (Cluster, Id), now: Time) {
    let again = seen.fetched.get(&key).filter(|f| f.error.is_some()).map(|f| f.begun + FRESH);
    match again.filter(|again| now < *again) {
        Some(again) => look_at(plan, again),
        None => plan.fetch.push(Fetch { cluster: key.0, id: key.1, not_before: now }),
    }
}

/// The `Placement` in an answer, and whether there is an object at all.
fn placement_in(fetched: &Fetched) -> (Option<Placement>, bool) {
    match &fetched.body {
        None => (None, false),
        Some(body) => {
            (serde_json::from_value(serde_json::json!({"spec": body["spec"], "status": body["status"]})).ok(), true)
        }
    }
}

fn has_run(mirror: &Row) -> bool {
    let Some(body) = decision::body(mirror) else { return true };
    let status = &body["status"];
    let state = status["jobDeploymentStatus"].as_str().or(status["state"].as_str());
    state.is_some_and(|s| !s.is_empty())
}

/// A tombstone: what is left below it goes; then its finalizer, when E7 allows it.
fn tombstone(seen: &Seen, on: Member, mirror: &Row, now: Time, plan: &mut Plan) {
    if let Some(put) = put_without_finalizers(on.name, mirror, |f| is_idle(mirror, f)) {
        plan.actions.push(put);
        return;
    }
    // Its root object may have been placed again since.
    let (clearing, left) = clear(seen, on, mirror, Heir::Possible, now);
    plan.join(Plan { why: Why::default(), ..clearing });
    let family =
        mirror.root_id.as_ref().map(|root| Family { namespace: &mirror.id.namespace, root, mirror: Some(&mirror.uid) });
    if family.is_none_or(|family| hidden_child(on.tables, family, seen.flags).is_some())
        || !left.is_empty()
        || mirror.has_finalizer(FOREGROUND_FINALIZER)
        || is_held(mirror)
        || !mirror.has_finalizer(TOMBSTONE_FINALIZER)
    {
        return;
    }
    let hold = Duration::from_millis(seen.flags.tombstone_hold_ms);
    let free = mirror.deleting.map_or(seen.me.since, |at| at.max(seen.me.since)) + hold;
    if now >= free {
        plan.actions.extend(put_without_finalizers(on.name, mirror, |f| f == TOMBSTONE_FINALIZER));
        return;
    }
    look_at(plan, free);
    // Sooner only for a clean generation, judged on a fresh read: what our tables show decides whether it is worth one.
    let Some(row) = seen.hub.get(&placement_id(mirror)) else { return };
    let Facts::Placement(known) = &row.facts else { return };
    if !may_go(seen, on, known, mirror) {
        return;
    }
    let key = (Cluster::Hub, placement_id(mirror));
    match seen.fetched.get(&key).filter(|f| f.begun + FRESH >= now && f.error.is_none()) {
        Some(fresh) if placement_in(fresh).0.is_some_and(|p| may_go(seen, on, &p, mirror)) => {
            plan.actions.extend(put_without_finalizers(on.name, mirror, |f| f == TOMBSTONE_FINALIZER));
        }
        // A read from before the withdrawal was stored says nothing yet.
        Some(_) => look_at(plan, now + Duration::from_secs(1)),
        None => read(seen, plan, key, now),
    }
}

/// Whether the generation of this tombstone ended clean and nothing was placed since (E7, `sharding.md` 1.10).
fn may_go(seen: &Seen, on: Member, placement: &Placement, mirror: &Row) -> bool {
    let spec = &placement.spec;
    spec.stage == Stage::Waiting
        && spec.generation == decision::generation_of(mirror)
        && spec.member.as_deref() == Some(on.name.as_str())
        && mirror.root_id.as_ref().is_some_and(|root| root.as_str() == spec.root.root_id)
        && !spec.unclean
        && spec.claims.get(&*seen.me.unit) == Some(&seen.me.epoch)
}
