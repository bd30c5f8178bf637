//! One look at one key: whose it is, whether we may, what the plan says, and what is sent of it.
//! Must not know what plans are about.

use std::collections::BTreeMap;
use std::time::Duration;

use super::gate::{Gate, Verdict, not_ours, not_reached, writes_member};
use super::inflight::{Expectation, Flight, Purpose, What};
use super::owner::{self, Owner, Which};
use super::units::Holding;
use super::{Effect, Engine, Memo};
use crate::api::{Cluster, Id, Key, Kind, RootId, Time};
use crate::plan::place::Board;
use crate::plan::{Action, Asked, Me, Member, Note, Plan, Seen, Why};

/// Time that one request may take.
pub(super) const LIMIT_MS: u64 = 5_000;
/// A read that failed is tried again after this.
const FETCH_AGAIN: Duration = Duration::from_secs(5);
/// So long a hand-over keeps other writes for its root object back.
const CLOSING: Duration = Duration::from_secs(1);
/// A binding waits this long for the sight of the one before it.
const BINDING_AGAIN: Duration = Duration::from_millis(20);
/// So long after gaining a unit a member's key waits for the member's first lists.
const FIRST_LISTS: Duration = Duration::from_secs(10);

impl Engine {
    pub(super) fn look(&mut self, key: &Key, now: Time, out: &mut Vec<Effect>) {
        if self.inflight.is_busy(key) {
            // It is woken when it is free again.
            return;
        }
        let owner = match owner::of(&self.world, key) {
            Ok(owner) => owner,
            Err(why) => {
                self.journal.say(key, why, now);
                return;
            }
        };
        let holding = match self.may_plan(&owner, now) {
            Ok(holding) => holding,
            Err(why) => {
                self.journal.say(key, why, now);
                return;
            }
        };
        if let Some(why) = self.unsettled(&owner) {
            self.journal.say(key, why, now);
            return;
        }
        if self.waits_for_former_owner(key, &owner, now) {
            return;
        }
        self.remember_ask(key, &owner);
        self.refresh_board(&owner);
        let plan = self.plan(key, &owner, &holding, now);
        self.journal.say(key, plan.why.clone(), now);
        self.carry_out(key, &owner, &holding, plan, now, out);
        self.keep_checking(now);
    }

    /// Our standing in the owning unit, if it is past its barrier.
    fn may_plan(&self, owner: &Owner, now: Time) -> Result<Holding, Why> {
        let Some(holding) = self.units.get(&owner.unit) else { return Err(Why::new(not_ours(&owner.unit))) };
        if holding.doubted {
            return Err(Why::new(format!("a higher epoch of unit {} was seen; its record is read again", owner.unit)));
        }
        if holding.passed {
            return Ok(holding.clone());
        }
        // There is nothing to be listed on a member that is there no more.
        if holding.hub_passed && owner.member.as_ref().is_some_and(|member| self.world.is_given_up(member)) {
            return Ok(holding.clone());
        }
        if owner.which == Which::Member && holding.hub_passed {
            // A member that cannot be listed is reported as such, not waited for.
            let unlisted = owner.member.as_ref().is_some_and(|member| {
                let tables = self.world.members.get(member);
                self.refused.contains_key(member)
                    || tables.is_some_and(|t| t.kinds().any(|kind| t.table(kind).silent.is_some()))
            });
            if unlisted || now >= holding.since + FIRST_LISTS {
                return Ok(holding.clone());
            }
        }
        Err(Why::new(format!("unit {} was just taken over; its objects are listed first", owner.unit)))
    }

    /// What the former owner saw of the root object, and wrote on the member, must be in sight here first.
    fn waits_for_former_owner(&mut self, key: &Key, owner: &Owner, now: Time) -> bool {
        let mut missing = not_reached(&self.world, key, owner);
        if missing.is_empty() {
            self.handovers.remove(key);
            return false;
        }
        // A consistent list begun after we first looked settles it whatever it shows: a cluster that was restored from a
        // backup may never reach the version.
        let noticed = match self.handovers.get(key) {
            Some((wanted, at)) if *wanted == missing => *at,
            _ => now,
        };
        self.handovers.insert(key.clone(), (missing.clone(), noticed));
        missing.retain(|(cluster, kind, _)| {
            let tables = self.world.tables(cluster);
            tables.is_none_or(|tables| tables.table(*kind).listed.is_none_or(|begun| begun <= noticed))
        });
        for (cluster, kind, version) in missing.clone() {
            let id = Id::new(kind, "", "");
            self.inflight.expect(key, Expectation { cluster, id, what: What::Reached(version), since: now });
        }
        if let Some((cluster, kind, version)) = missing.first() {
            let why =
                Why::new(format!("its former owner had {kind} version {version} of {cluster}: not seen here yet"));
            self.journal.say(key, why, now);
            self.keep_checking(now);
        }
        !missing.is_empty()
    }

    /// Works out what a root object asks for, unless it is known for this specification.
    fn remember_ask(&mut self, key: &Key, owner: &Owner) {
        if !matches!(owner.which, Which::Place | Which::Reserve | Which::Bound) {
            return;
        }
        let Some(row) = self.world.hub.get(&key.id) else { return };
        if self.asks.get(&key.id).is_none_or(|asked| !asked.holds_for(row)) {
            let asked = Asked::read(row, &self.flags);
            self.asks.extend(asked.map(|asked| (key.id.clone(), asked)));
        }
    }

    /// Works out what all waiting objects have in common, unless it is known for this state of the hub.
    fn refresh_board(&mut self, owner: &Owner) {
        let hub = &self.world.hub;
        if owner.which == Which::Place && !self.board.as_ref().is_some_and(|board| board.holds_for(hub)) {
            self.board = Some(Board::read(hub, &self.world.capacity_received));
        }
    }

    fn plan(&self, key: &Key, owner: &Owner, holding: &Holding, now: Time) -> Plan {
        let memo = owner.root.as_ref().and_then(|root| self.remembered(root));
        let me = Me {
            unit: owner.unit.clone(),
            epoch: holding.epoch,
            since: holding.since,
            unknown: memo.is_some_and(|memo| memo.unknown),
            sent: memo.is_some_and(|memo| memo.sent.contains(&(owner.unit.clone(), holding.epoch))),
            placements_up_to: self.placements_up_to(),
        };
        let member = owner.member.as_ref().and_then(|name| {
            let tables = self.world.members.get(name);
            let tables = if owner.which == Which::Member { tables.or(Some(&self.no_tables)) } else { tables };
            Some(Member { name, tables: tables? })
        });
        let trouble = self.journal.get(key).and_then(|entry| entry.trouble.as_deref());
        let seen = Seen {
            trouble,
            hub: &self.world.hub,
            member,
            refused: &self.refused,
            members: &self.world.members,
            rays: &self.rays,
            fetched: &self.fetched,
            capacity_received: &self.world.capacity_received,
            epochs: &self.epochs,
            asks: &self.asks,
            board: self.board.as_ref(),
            me: &me,
            flags: &self.flags,
        };
        (self.plans)(owner.which, &seen, &key.id, now)
    }

    fn carry_out(&mut self, key: &Key, owner: &Owner, holding: &Holding, plan: Plan, now: Time, out: &mut Vec<Effect>) {
        let Plan { actions, fetch, relist, events, next, why: _ } = plan;
        let cluster = owner.member.clone().map_or(Cluster::Hub, Cluster::Member);
        for (kind, since) in relist {
            let expectation =
                Expectation { cluster: cluster.clone(), id: Id::new(kind, "", ""), what: What::Listed, since };
            if !expectation.is_met(self.world.tables(&cluster)) {
                self.ask_lists(&cluster, &[kind], since, now, out);
                self.inflight.expect(key, expectation);
            }
        }
        for wanted in fetch {
            self.fetch(key, &wanted.cluster, &wanted.id, wanted.not_before, now, out);
        }
        if let Some(next) = next {
            self.queue.put(key, next);
        }
        if actions.is_empty() {
            out.extend(events.into_iter().map(Effect::Record));
            return;
        }
        let binds = owner.which == Which::Place && actions.iter().any(is_binding);
        if binds && self.binding_is_out_of_sight(key, owner) {
            self.journal.say(key, Why::new("another object of its queue was bound just now: not seen here yet"), now);
            self.queue.put(key, now + BINDING_AGAIN);
            return;
        }
        match self.judge(key, owner, holding, actions, now) {
            Verdict::Send { actions, whole } => {
                if binds {
                    self.bound_last.insert(owner.unit.clone(), key.clone());
                }
                let notes = if whole { events } else { Vec::new() };
                self.send_all(key, owner, holding, actions, notes, now, out);
            }
            Verdict::Relist(cluster, kinds) => {
                self.ask_lists(&cluster, &kinds, now, now, out);
                for kind in kinds {
                    let id = Id::new(kind, "", "");
                    self.inflight
                        .expect(key, Expectation { cluster: cluster.clone(), id, what: What::Listed, since: now });
                }
            }
            Verdict::Wait { handing_over } => {
                let Some(root) = &owner.root else { return };
                if handing_over && let Some(memo) = self.memo(&root.key, &root.identity, root.generation) {
                    memo.closing = Some(now + CLOSING);
                }
                self.inflight.hold(&root.key, key);
                self.queue.put(key, now + CLOSING);
            }
            Verdict::Superseded(epoch) => {
                if let Some(holding) = self.units.get_mut(&owner.unit) {
                    holding.doubted = true;
                }
                out.push(Effect::Doubt(owner.unit.clone(), epoch));
            }
        }
    }

    /// What a queue bound last is missing from the tables that the next choice was made from: two objects would get the
    /// same room, and the second would be sent back by its member's own check, with a back-off.
    fn binding_is_out_of_sight(&self, key: &Key, owner: &Owner) -> bool {
        let Some(last) = self.bound_last.get(&owner.unit).filter(|last| *last != key) else { return false };
        self.inflight.is_busy(last) && owner::of(&self.world, last).is_ok_and(|last| last.which == Which::Place)
    }

    fn judge(&self, key: &Key, owner: &Owner, holding: &Holding, actions: Vec<Action>, now: Time) -> Verdict {
        let root = owner.root.as_ref();
        let memo = root.and_then(|root| self.remembered(root));
        let nothing = BTreeMap::new();
        let gate = Gate {
            world: &self.world,
            key,
            owner,
            epoch: holding.epoch,
            fleet_id: &self.flags.fleet_id,
            open: root.map(|root| self.inflight.open_of(&root.key)).unwrap_or_default(),
            closing: memo.and_then(|memo| memo.closing).is_some_and(|until| now < until),
            unknown: memo.is_some_and(|memo| memo.unknown),
            written: memo.map_or(&nothing, |memo| &memo.written),
            now,
        };
        gate.judge(actions)
    }

    /// What is remembered of a generation of a root object, if it is the present one. Late answers of an earlier one, or of a
    /// root object that had the same name, say nothing about it: it began only after those had come to rest.
    pub(super) fn memo(&mut self, root: &Key, identity: &RootId, generation: i64) -> Option<&mut Memo> {
        let present = owner::of(&self.world, root).ok().and_then(|owner| owner.root);
        if present.is_some_and(|present| present.generation != generation || present.identity != *identity) {
            return None;
        }
        let memo = self.memos.entry(root.clone()).or_default();
        if memo.generation != generation || memo.identity.as_ref() != Some(identity) {
            *memo = Memo { identity: Some(identity.clone()), generation, ..Memo::default() };
        }
        Some(memo)
    }

    /// The same, to look at.
    fn remembered(&self, root: &owner::Root) -> Option<&Memo> {
        let memo = self.memos.get(&root.key)?;
        (memo.generation == root.generation && memo.identity.as_ref() == Some(&root.identity)).then_some(memo)
    }

    #[expect(clippy::too_many_arguments, reason = "everything that one sending needs, each once")]
    fn send_all(
        &mut self,
        key: &Key,
        owner: &Owner,
        holding: &Holding,
        actions: Vec<Action>,
        notes: Vec<Note>,
        now: Time,
        out: &mut Vec<Effect>,
    ) {
        for action in actions {
            let root = owner.root.as_ref().map(|root| (root.key.clone(), root.identity.clone(), root.generation));
            if let Some((root, identity, generation)) = &root
                && writes_member(&action)
            {
                let sent = (owner.unit.clone(), holding.epoch);
                if let Some(memo) = self.memo(root, identity, *generation) {
                    memo.sent.insert(sent);
                }
            }
            if let Action::Ask { member, dashboard, question } = &action {
                self.asked.insert((member.clone(), dashboard.clone(), question.job().clone()), now);
            }
            let purpose = Purpose::Write(Box::new(action.clone()));
            let ticket = self.inflight.begin(Flight { key: key.clone(), purpose, sent: now, limit_ms: LIMIT_MS, root });
            out.push(Effect::Write {
                ticket,
                unit: owner.unit.clone(),
                epoch: holding.epoch,
                action,
                time_limit_ms: LIMIT_MS,
            });
        }
        self.inflight.attach_notes(key, notes);
    }

    /// Reads an object for a plan, unless what is kept, or a read under way, will do.
    fn fetch(&mut self, key: &Key, cluster: &Cluster, id: &Id, not_before: Time, now: Time, out: &mut Vec<Effect>) {
        if let Some(kept) = self.fetched.get(&(cluster.clone(), id.clone()))
            && kept.begun >= not_before
        {
            let again = kept.begun + FETCH_AGAIN;
            if kept.error.is_none() {
                return;
            }
            if now < again {
                self.queue.put(key, again);
                return;
            }
        }
        if self.inflight.join_fetch(key, cluster, id, not_before) {
            return;
        }
        let ticket = self.inflight.begin_fetch(key, cluster, id, now, LIMIT_MS);
        out.push(Effect::Fetch(ticket, cluster.clone(), id.clone()));
    }
}

/// Whether it is the write that gives a waiting object a member.
fn is_binding(action: &Action) -> bool {
    matches!(action, Action::Replace { id, body, .. } if id.kind == Kind::Placement && body["spec"]["stage"] == "Reserving")
}
