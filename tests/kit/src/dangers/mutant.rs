//! How a replica breaks a rule: what it sends, what it is told, and the plans that it looks with.
//! Must not know stories.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use rayfleet::api::fleet::{Placement, Stage};
use rayfleet::api::wire::{Reply, Request};
use rayfleet::api::{Cluster, Id, Kind, Time, names};
use rayfleet::engine::{self, Engine, Which};
use rayfleet::plan::{self, Action, Flags, Me, Member, Plan, Precondition, Propagation, Seen, decision};
use rayfleet::row::{Facts, Row, TableChange};
use serde_json::Value;
use shards::lease::SEAT_PREFIX;
use shards::{Ask, Authority, Call};

use super::Danger;
use crate::site::Site;
use crate::wish::Outgoing;

/// Time limit of a request whose author does not ask whether it may.
const UNASKED_MS: u64 = 5_000;

/// The rules that one replica breaks; most break none.
#[derive(Debug, Default)]
pub struct Mutant {
    dangers: BTreeSet<Danger>,
    /// The clock of its Leases stands still while a renewal is under way: so long in all, ms.
    pub stood_still_ms: u64,
    renewals: BTreeMap<Call, Time>,
}

/// Whether a write is carried out whatever version is there.
pub fn is_unconditional(dangers: &BTreeSet<Danger>, out: &Outgoing) -> bool {
    let danger = if out.cluster == Cluster::Hub { Danger::NoVersionOnHub } else { Danger::NoVersionOnMembers };
    // Who owns what is decided by compare-and-swap all the same.
    out.is_write && out.name.is_some() && dangers.contains(&danger)
}

/// The request as a controller would send it that knows no preconditions. (Custom resources must name a version in a
/// PUT: it gets the one that is there.)
pub fn without_version(request: &Request, site: &Site) -> Request {
    let mut request = request.clone();
    let Ok(mut body) = serde_json::from_slice::<Value>(&request.body) else { return request };
    if let Some(preconditions) = body["preconditions"].as_object_mut() {
        preconditions.remove("resourceVersion");
    }
    if body["metadata"]["resourceVersion"].is_string() {
        let path = request.target.split('?').next().unwrap_or_default().trim_end_matches("/status");
        if let Some(there) = site.get(path) {
            body["metadata"]["resourceVersion"] = there["metadata"]["resourceVersion"].clone();
        }
    }
    request.body = body.to_string().into_bytes().into();
    request
}

/// Whether an object shows, or has been shown before, in which epoch this was written.
pub fn is_marking(action: &Action) -> bool {
    match action {
        Action::Create { .. } | Action::Replace { .. } | Action::Merge { .. } => true,
        Action::Status { decision, .. } => *decision,
        Action::Delete { .. } | Action::Ask { .. } => false,
    }
}

impl Mutant {
    /// A replica that breaks these rules.
    pub fn new(dangers: BTreeSet<Danger>) -> Self {
        Self { dangers, ..Self::default() }
    }

    /// Whether it breaks this rule.
    pub fn has(&self, danger: Danger) -> bool {
        !self.dangers.is_empty() && self.dangers.contains(&danger)
    }

    /// Its engine: at most one of its rules is one of plans.
    pub fn engine(&self, flags: Flags, seed: u64) -> Engine {
        let plans = self.dangers.iter().find_map(|danger| plans(*danger)).unwrap_or(engine::plan);
        Engine::with_plans(flags, seed, Box::new(plans))
    }

    // --- what it sends ---

    /// How long a write may take and what it is; an error: it is not sent, and why where that is not its authority.
    pub fn sends(
        &self,
        engine: &Engine,
        left: Option<u64>,
        action: Action,
        epoch: u64,
    ) -> Result<(u64, Action), Option<String>> {
        let left = if self.has(Danger::NoOwnerCheck) { left.or(Some(UNASKED_MS)) } else { left };
        let left = left.ok_or(None)?;
        if self.has(Danger::EpochsAcrossUnits)
            && let Some((unit, higher)) = row(engine, &action).and_then(|row| highest(row).filter(|(_, e)| *e > epoch))
        {
            return Err(Some(format!("epoch {higher} of {unit} is higher than our {epoch}")));
        }
        let action = if self.has(Danger::StatusBeforeStamp) { status_at_once(engine, action) } else { action };
        Ok((left, action))
    }

    // --- what it is told ---

    /// What an informer says, as this replica takes it.
    pub fn tell(&self, change: &mut TableChange, authority: impl FnOnce() -> Authority) {
        let change_row: fn(&mut Row, &Authority) = if self.has(Danger::NoStopOnHigherEpoch) {
            hide_higher_epochs
        } else if self.has(Danger::NoClaimNoBarrier) {
            claim_by_thought
        } else {
            return;
        };
        let authority = authority();
        match change {
            TableChange::Reset { rows, .. } => rows.iter_mut().for_each(|row| change_row(row, &authority)),
            TableChange::Upsert(row) => change_row(Arc::make_mut(row), &authority),
            _ => {}
        }
    }

    /// Where there is no barrier: what is known counts as listed now.
    pub fn list_from_memory(&self, engine: &Engine, cluster: &Cluster, kind: Kind, now: Time) -> Option<TableChange> {
        if !self.has(Danger::NoClaimNoBarrier) {
            return None;
        }
        let tables = engine.tables(cluster)?;
        let rows = tables.rows(kind).cloned().collect();
        Some(TableChange::Reset { rows, quarantined: Vec::new(), version: tables.table(kind).version, begun: now })
    }

    // --- what it takes the time for ---

    /// Whether its clock stands still on purpose: the hub's says nothing of that.
    pub fn counts_from_answers(&self) -> bool {
        self.has(Danger::DeadlineFromAnswer)
    }

    /// A Lease is asked for.
    pub fn lease_asked(&mut self, call: Call, ask: &Ask, now: Time) {
        if let Ask::Create(record) | Ask::Put(record) = ask
            && self.has(Danger::DeadlineFromAnswer)
            && record.name.starts_with(SEAT_PREFIX)
        {
            self.renewals.insert(call, now);
        }
    }

    /// Its answer is here: a renewal counts from now.
    pub fn lease_answered(&mut self, call: Call, reply: Option<&Reply>, now: Time) {
        if let Some(sent) = self.renewals.remove(&call)
            && reply.is_some_and(Reply::is_success)
        {
            self.stood_still_ms += now.since(sent).as_millis() as u64;
        }
    }
}

fn row<'a>(engine: &'a Engine, action: &Action) -> Option<&'a Row> {
    let (Action::Replace { id, .. } | Action::Status { id, .. } | Action::Merge { id, .. } | Action::Delete { id, .. }) =
        action
    else {
        return None;
    };
    engine.tables(&action.cluster())?.get(id)
}

/// The highest epoch that an object carries, and whose it is.
fn highest(row: &Row) -> Option<(&Arc<str>, u64)> {
    row.stamps.iter().map(|(unit, epoch)| (unit, *epoch)).max_by_key(|(_, epoch)| *epoch)
}

/// The write that would have stamped the object first becomes the status itself: it carries the new one already.
fn status_at_once(engine: &Engine, action: Action) -> Action {
    let status = |body: &str| serde_json::from_str::<Value>(body).map(|body| body["status"].clone()).ok();
    let known = row(engine, &action).and_then(|row| status(row.body.as_deref()?));
    match action {
        Action::Replace { cluster: cluster @ Cluster::Member(_), id, body, seen }
            if known.is_some_and(|known| known != body["status"]) =>
        {
            Action::Status { cluster, id, body, seen, decision: true }
        }
        other => other,
    }
}

fn hide_higher_epochs(row: &mut Row, authority: &Authority) {
    let is_not_above = |unit: &str, epoch: u64| authority.units.get(unit).is_none_or(|mine| epoch <= *mine);
    row.stamps.retain(|unit, epoch| is_not_above(unit, *epoch));
    if let Facts::Placement(placement) = &mut row.facts {
        placement.spec.claims.retain(|unit, epoch| is_not_above(unit, *epoch));
    }
}

/// Every unit of the member that is ours has claimed, it thinks.
fn claim_by_thought(row: &mut Row, authority: &Authority) {
    if let Facts::Placement(placement) = &mut row.facts
        && let Some(member) = &placement.spec.member
    {
        let prefix = format!("m-{member}-");
        let ours = authority.units.iter().filter(|(unit, _)| unit.starts_with(&prefix));
        placement.spec.claims.extend(ours.map(|(unit, epoch)| (unit.clone(), *epoch)));
    }
}

// --- what it looks with ---

type Look = fn(Which, &Seen<'_>, &Id, Time) -> Plan;

/// The plans that break this rule, if plans do.
fn plans(danger: Danger) -> Option<Look> {
    match danger {
        Danger::EmptySlotWithoutTombstone => Some(empty_slot_is_left),
        Danger::NextBeforeTombstone => Some(next_at_once),
        Danger::TombstoneReleasedEarly => Some(tombstones_go_at_once),
        Danger::StrayOnOldView => Some(strays_by_the_tables),
        Danger::SentBesideGivenBack => Some(forgets_what_is_under_way),
        _ => None,
    }
}

/// The `Placement` of a root object, if this look is at one that is withdrawn.
fn withdrawing<'a>(which: Which, seen: &Seen<'a>, id: &Id) -> Option<(&'a Row, &'a Placement)> {
    let hub = seen.hub;
    let row =
        hub.get(&Id::new(Kind::Placement, id.namespace.clone(), plan::placement_name(id.kind.name(), &id.name)))?;
    let placement = decision::of(row)?;
    (which == Which::Withdraw && placement.spec.stage == Stage::Withdrawing).then_some((row, placement))
}

fn released(row: &Row, placement: &Placement, seen: &Seen<'_>, now: Time) -> Plan {
    let next = decision::release(placement, seen.me, now);
    Plan { actions: decision::put(row, &next).into_iter().collect(), ..Plan::default() }
}

fn empty_slot_is_left(which: Which, seen: &Seen<'_>, id: &Id, now: Time) -> Plan {
    let plan = engine::plan(which, seen, id, now);
    let takes_the_name = plan.actions.iter().any(|action| matches!(action, Action::Create { .. }));
    match withdrawing(which, seen, id) {
        Some((row, placement)) if takes_the_name => released(row, placement, seen, now),
        _ => plan,
    }
}

fn next_at_once(which: Which, seen: &Seen<'_>, id: &Id, now: Time) -> Plan {
    match withdrawing(which, seen, id) {
        Some((row, placement)) => released(row, placement, seen, now),
        None => engine::plan(which, seen, id, now),
    }
}

fn tombstones_go_at_once(which: Which, seen: &Seen<'_>, id: &Id, now: Time) -> Plan {
    if which != Which::Member {
        return engine::plan(which, seen, id, now);
    }
    let flags = Flags { tombstone_hold_ms: 0, ..seen.flags.clone() };
    engine::plan(which, &Seen { flags: &flags, ..*seen }, id, now)
}

fn forgets_what_is_under_way(which: Which, seen: &Seen<'_>, id: &Id, now: Time) -> Plan {
    if which != Which::Reserve {
        return engine::plan(which, seen, id, now);
    }
    let me = Me { unknown: false, ..seen.me.clone() };
    engine::plan(which, &Seen { me: &me, ..*seen }, id, now)
}

fn strays_by_the_tables(which: Which, seen: &Seen<'_>, id: &Id, now: Time) -> Plan {
    let mut plan = engine::plan(which, seen, id, now);
    if let Some(on) = seen.member.filter(|_| which == Which::Member) {
        plan.actions.extend(strays(seen, on));
    }
    plan
}

fn strays(seen: &Seen<'_>, on: Member<'_>) -> Vec<Action> {
    let is_named = |mirror: &Row| {
        let row = seen.placement_of(mirror.id.kind.name(), &mirror.id.namespace, &mirror.id.name);
        row.and_then(decision::of).is_some_and(|placement| {
            let spec = &placement.spec;
            spec.stage != Stage::Waiting
                && spec.member.as_deref() == Some(on.name.as_str())
                && spec.generation == decision::generation_of(mirror)
        })
    };
    let is_mirror = |row: &&Row| !row.annotation(names::ROOT).is_empty() && row.deleting.is_none();
    let mirrors = on.tables.rows(Kind::RayJob).filter(is_mirror);
    mirrors
        .filter(|mirror| !is_named(mirror))
        .map(|mirror| Action::Delete {
            cluster: Cluster::Member(on.name.clone()),
            id: mirror.id.clone(),
            seen: Precondition::from(mirror),
            children: Propagation::Foreground,
        })
        .collect()
}
