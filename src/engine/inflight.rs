//! Requests that are under way and what must be seen before a key is looked at again: our expectations, kept per
//! cluster, kind and object; never counters, never a wait without end.
//! Must not know plans.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::Ticket;
use super::gate::target;
use crate::api::{Cluster, Id, Key, Kind, RootId, Time, Uid, Version};
use crate::plan::{Action, Note};
use crate::row::Tables;

/// What a request is for.
#[derive(Clone, Debug)]
pub(super) enum Purpose {
    /// A write.
    Write(Box<Action>),
    /// Finding out what came of a write whose outcome is unknown.
    ReadBack(Box<Action>),
    /// A read that plans asked for.
    Fetch(Cluster, Id),
}

/// One request under way.
#[derive(Clone, Debug)]
pub(super) struct Flight {
    pub(super) key: Key,
    pub(super) purpose: Purpose,
    pub(super) sent: Time,
    pub(super) limit_ms: u64,
    /// The root object that it is about.
    pub(super) root: Option<(Key, RootId, i64)>,
}

impl Flight {
    /// The keys that must not be looked at before this has ended and is in sight: the one that sent it, and the one of
    /// the object that is written, where that is planned by itself. (A RayCluster that its RayJob deletes must not find
    /// its pods missing and make them again.)
    pub(super) fn blocks(&self) -> Vec<Key> {
        let mut keys = vec![self.key.clone()];
        if let Purpose::Write(action) | Purpose::ReadBack(action) = &self.purpose
            && let Some(id) = target(action)
            && matches!(id.kind, Kind::RayJob | Kind::RayCluster)
        {
            let object = Key { cluster: action.cluster(), id: id.clone() };
            if object != self.key {
                keys.push(object);
            }
        }
        keys
    }
}

/// What a key waits for before its next look.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Expectation {
    pub(super) cluster: Cluster,
    pub(super) id: Id,
    pub(super) what: What,
    /// A consistent list begun at this time or later settles it whatever it shows.
    pub(super) since: Time,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum What {
    /// The table, or the row, has reached this version.
    Reached(Version),
    /// This incarnation is gone or on its way.
    Going(Uid),
    /// This incarnation is gone.
    Gone(Uid),
    /// Nothing but the list.
    Listed,
}

impl Expectation {
    pub(super) fn is_met(&self, tables: Option<&Tables>) -> bool {
        // Nobody watches there any more: nothing can be waited for.
        let Some(tables) = tables else { return true };
        let table = tables.table(self.id.kind);
        if table.listed.is_some_and(|begun| begun >= self.since) {
            return true;
        }
        let row = tables.get(&self.id);
        match &self.what {
            What::Reached(version) => table.version >= *version || row.is_some_and(|row| row.version >= *version),
            What::Going(uid) => row.is_none_or(|row| row.uid != *uid || row.deleting.is_some()),
            What::Gone(uid) => row.is_none_or(|row| row.uid != *uid),
            What::Listed => false,
        }
    }
}

/// A key that is not looked at for now.
#[derive(Clone, Debug, Default)]
pub(super) struct Busy {
    pub(super) tickets: BTreeSet<Ticket>,
    pub(super) expectations: Vec<Expectation>,
    /// Events that are told once everything has succeeded.
    pub(super) notes: Vec<Note>,
    pub(super) failed: bool,
}

/// Writes for one root object whose outcome is not known yet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Open {
    /// To the hub.
    pub(super) hub: u32,
    /// To a member.
    pub(super) member: u32,
}

/// Everything that is under way.
#[derive(Debug, Default)]
pub(super) struct Inflight {
    next_ticket: u64,
    flights: BTreeMap<Ticket, Flight>,
    busy: BTreeMap<Key, Busy>,
    /// Keys with expectations on a table.
    waiting_on: BTreeMap<(Cluster, Kind), BTreeSet<Key>>,
    /// When a ticket without any answer is given up: a shell that loses one must not stop a key for good.
    deadlines: BTreeSet<(Time, Ticket)>,
    /// Outcomes to be found out, by the time at which they may be.
    read_backs: BTreeMap<(Time, Ticket), Flight>,
    open: BTreeMap<Key, Open>,
    /// Reads under way for plans.
    fetching: BTreeMap<(Cluster, Id), (Ticket, Time)>,
    /// Keys that wait until no write for this root object is open.
    held: BTreeMap<Key, BTreeSet<Key>>,
}

/// Longer than any request's own limit by this: then its answer is lost.
const LOST_AFTER_MS: i64 = 30_000;

impl Inflight {
    pub(super) fn is_busy(&self, key: &Key) -> bool {
        self.busy.contains_key(key)
    }

    pub(super) fn len(&self) -> usize {
        self.flights.len() + self.read_backs.len()
    }

    pub(super) fn open_of(&self, root: &Key) -> Open {
        self.open.get(root).copied().unwrap_or_default()
    }

    fn new_ticket(&mut self) -> Ticket {
        self.next_ticket += 1;
        Ticket(self.next_ticket)
    }

    /// A request is sent now; its key is busy until it is settled.
    pub(super) fn begin(&mut self, flight: Flight) -> Ticket {
        let ticket = self.new_ticket();
        if let Purpose::Write(action) = &flight.purpose {
            self.count(&flight, action, 1);
        }
        for key in flight.blocks() {
            self.busy.entry(key).or_default().tickets.insert(ticket);
        }
        self.deadlines.insert((deadline(&flight), ticket));
        self.flights.insert(ticket, flight);
        ticket
    }

    fn count(&mut self, flight: &Flight, action: &Action, by: i32) {
        let Some((root, _, _)) = &flight.root else { return };
        if matches!(action, Action::Ask { question, .. } if question.is_read()) {
            return;
        }
        let open = self.open.entry(root.clone()).or_default();
        let side = if action.cluster() == Cluster::Hub { &mut open.hub } else { &mut open.member };
        *side = side.saturating_add_signed(by);
        if *open == Open::default() {
            self.open.remove(root);
        }
    }

    /// The request of this ticket, which is answered now. The key's ticket stays until [`Inflight::settle`].
    pub(super) fn answered(&mut self, ticket: Ticket) -> Option<Flight> {
        let flight = self.flights.remove(&ticket)?;
        self.deadlines.remove(&(deadline(&flight), ticket));
        if let Purpose::Fetch(cluster, id) = &flight.purpose {
            self.fetching.remove(&(cluster.clone(), id.clone()));
        }
        Some(flight)
    }

    /// The outcome of a write is known.
    pub(super) fn close(&mut self, flight: &Flight) {
        if let Purpose::Write(action) | Purpose::ReadBack(action) = &flight.purpose {
            self.count(flight, &action.clone(), -1);
        }
    }

    /// The outcome is unknown: to be found out at `at`.
    pub(super) fn read_back_at(&mut self, at: Time, ticket: Ticket, flight: Flight) {
        self.read_backs.insert((at, ticket), flight);
    }

    /// Outcomes that may be found out now.
    pub(super) fn due_read_backs(&mut self, now: Time) -> Vec<(Ticket, Flight)> {
        let mut due = Vec::new();
        while let Some(entry) = self.read_backs.first_entry().filter(|entry| entry.key().0 <= now) {
            let ((_, ticket), flight) = entry.remove_entry();
            due.push((ticket, flight));
        }
        due
    }

    /// The same ticket goes out again, as a read.
    pub(super) fn resend(&mut self, ticket: Ticket, flight: Flight) {
        self.deadlines.insert((deadline(&flight), ticket));
        self.flights.insert(ticket, flight);
    }

    /// Tickets whose answers are lost.
    pub(super) fn lost(&mut self, now: Time) -> Vec<Ticket> {
        self.deadlines.iter().take_while(|(at, _)| *at <= now).map(|(_, ticket)| *ticket).collect()
    }

    /// A read that a plan asked for: joins one that is under way, if it was begun late enough.
    pub(super) fn join_fetch(&mut self, key: &Key, cluster: &Cluster, id: &Id, not_before: Time) -> bool {
        let Some((ticket, begun)) = self.fetching.get(&(cluster.clone(), id.clone())) else { return false };
        if *begun < not_before {
            return false;
        }
        self.busy.entry(key.clone()).or_default().tickets.insert(*ticket);
        true
    }

    pub(super) fn begin_fetch(&mut self, key: &Key, cluster: &Cluster, id: &Id, now: Time, limit_ms: u64) -> Ticket {
        let purpose = Purpose::Fetch(cluster.clone(), id.clone());
        let ticket = self.begin(Flight { key: key.clone(), purpose, sent: now, limit_ms, root: None });
        self.fetching.insert((cluster.clone(), id.clone()), (ticket, now));
        ticket
    }

    pub(super) fn expect(&mut self, key: &Key, expectation: Expectation) {
        let place = (expectation.cluster.clone(), expectation.id.kind);
        self.waiting_on.entry(place).or_default().insert(key.clone());
        self.busy.entry(key.clone()).or_default().expectations.push(expectation);
    }

    pub(super) fn attach_notes(&mut self, key: &Key, notes: Vec<Note>) {
        if let Some(busy) = self.busy.get_mut(key) {
            busy.notes.extend(notes);
        }
    }

    pub(super) fn mark_failed(&mut self, key: &Key) {
        if let Some(busy) = self.busy.get_mut(key) {
            busy.failed = true;
        }
    }

    /// The ticket asks for nothing more. Returns every key that waited for it.
    pub(super) fn settle(&mut self, ticket: Ticket, flight: &Flight) -> Vec<Key> {
        if !matches!(flight.purpose, Purpose::Fetch(..)) {
            let keys = flight.blocks();
            for key in &keys {
                if let Some(busy) = self.busy.get_mut(key) {
                    busy.tickets.remove(&ticket);
                }
            }
            return keys;
        }
        let mut keys = Vec::new();
        for (key, busy) in &mut self.busy {
            if busy.tickets.remove(&ticket) {
                keys.push(key.clone());
            }
        }
        keys
    }

    /// Keys that wait for something of this table.
    pub(super) fn waiting_on(&self, cluster: &Cluster, kind: Kind) -> Vec<Key> {
        self.waiting_on.get(&(cluster.clone(), kind)).into_iter().flatten().cloned().collect()
    }

    /// Keys that wait for something of this cluster.
    pub(super) fn waiting_on_cluster(&self, cluster: &Cluster) -> Vec<Key> {
        let places = self.waiting_on.iter().filter(|((c, _), _)| c == cluster);
        places.flat_map(|(_, keys)| keys.iter().cloned()).collect::<BTreeSet<_>>().into_iter().collect()
    }

    /// Drops what is met; if nothing is left, the key is free, and what it had to tell is returned.
    pub(super) fn free_if_met<'a>(
        &mut self,
        key: &Key,
        tables: impl Fn(&Cluster) -> Option<&'a Tables>,
    ) -> Option<Vec<Note>> {
        let busy = self.busy.get_mut(key)?;
        let (met, open): (Vec<_>, Vec<_>) =
            std::mem::take(&mut busy.expectations).into_iter().partition(|e| e.is_met(tables(&e.cluster)));
        let still: BTreeSet<(Cluster, Kind)> = open.iter().map(|e| (e.cluster.clone(), e.id.kind)).collect();
        busy.expectations = open;
        let free = busy.tickets.is_empty() && busy.expectations.is_empty();
        let notes = if busy.failed { Vec::new() } else { std::mem::take(&mut busy.notes) };
        for expectation in met {
            let place = (expectation.cluster, expectation.id.kind);
            if !still.contains(&place)
                && let Some(keys) = self.waiting_on.get_mut(&place)
            {
                keys.remove(key);
                if keys.is_empty() {
                    self.waiting_on.remove(&place);
                }
            }
        }
        if free {
            self.busy.remove(key);
            return Some(notes);
        }
        if let Some(busy) = self.busy.get_mut(key) {
            busy.notes = notes;
        }
        None
    }

    /// The key waits until no write for the root object is open.
    pub(super) fn hold(&mut self, root: &Key, key: &Key) {
        self.held.entry(root.clone()).or_default().insert(key.clone());
    }

    /// Keys that waited for the root object's writes.
    pub(super) fn take_held(&mut self, root: &Key) -> BTreeSet<Key> {
        self.held.remove(root).unwrap_or_default()
    }

    /// Tables of which something has been expected since before `since`, each with the time from which on a list would
    /// settle all of it.
    pub(super) fn overdue(&self, since: Time) -> BTreeMap<(Cluster, Kind), Time> {
        let mut tables = BTreeMap::new();
        let open = self.busy.values().flat_map(|busy| &busy.expectations);
        for expectation in open.filter(|e| e.since <= since) {
            let settled = tables.entry((expectation.cluster.clone(), expectation.id.kind)).or_insert(expectation.since);
            *settled = expectation.since.max(*settled);
        }
        tables
    }

    /// Whether anything is expected at all.
    pub(super) fn expects(&self) -> bool {
        !self.waiting_on.is_empty()
    }

    pub(super) fn next_time(&self) -> Option<Time> {
        let lost = self.deadlines.first().map(|(at, _)| *at);
        let read_back = self.read_backs.keys().next().map(|(at, _)| *at);
        lost.into_iter().chain(read_back).min()
    }

    /// Names what a busy key waits for.
    pub(super) fn describe(&self, key: &Key) -> Option<Arc<str>> {
        let busy = self.busy.get(key)?;
        if !busy.tickets.is_empty() {
            return Some(format!("{} of its requests are under way", busy.tickets.len()).into());
        }
        let first = busy.expectations.first()?;
        Some(format!("its own write of {} has not come back yet", first.id).into())
    }
}

fn deadline(flight: &Flight) -> Time {
    Time(flight.sent.0.saturating_add(flight.limit_ms as i64).saturating_add(LOST_AFTER_MS))
}
