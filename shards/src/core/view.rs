//! What the records say of other seats: who is silent, who may be fenced, which unit record dangles.
//! Must not decide which units are ours.
//!
//! Silence is counted on our own clock from the moment when a change was received, never from times in records.

use std::collections::{BTreeMap, BTreeSet};

use super::calls::Purpose;
use super::message::{Ask, Effect};
use super::{Profile, Shards};
use crate::Mono;
use crate::lease::Record;

/// What an observer remembers of a seat.
#[derive(Clone, Debug)]
struct Observed {
    version: String,
    changed: Mono,
}

#[derive(Debug, Default)]
pub(super) struct View {
    seats: BTreeMap<String, Record>,
    observed: BTreeMap<String, Observed>,
    /// Seats that unit records name and that are not there: since when we see that.
    absent: BTreeMap<String, Mono>,
    /// Last success of our own towards the hub: silence of others counts only while we are heard.
    connected: Option<Mono>,
}

impl View {
    pub(super) fn seat(&self, name: &str) -> Option<&Record> {
        self.seats.get(name)
    }

    /// The hub has answered us.
    pub(super) fn heard(&mut self, now: Mono) {
        self.connected = Some(now);
    }

    /// D of silence, observed on our own clock, while we ourselves were heard.
    pub(super) fn silent(&self, seat: &str, profile: &Profile, now: Mono) -> bool {
        let own = self.seats.get(seat).map_or(0, |record| record.duration_seconds * 1000);
        let dead_ms = if own > 0 { own } else { profile.dead_ms };
        let heard = self.connected.is_some_and(|at| now.0.saturating_sub(at.0) <= 2 * profile.renew_ms);
        heard && self.observed.get(seat).is_some_and(|o| now.0.saturating_sub(o.changed.0) >= dead_ms)
    }

    /// A unit record names a holder that can never write again.
    pub(super) fn dangling(&self, record: &Record, profile: &Profile, now: Mono) -> bool {
        match record.held_by() {
            None => record.holder.is_empty() || !record.holder.contains('#'),
            Some((seat, incarnation)) => match self.seats.get(seat) {
                // A seat that a person deleted: its holder may trust it for H yet.
                None => self.absent.get(seat).is_some_and(|since| now.0.saturating_sub(since.0) >= profile.dead_ms),
                Some(s) => s.transitions > incarnation || s.holder.is_empty(),
            },
        }
    }

    /// All seats as they were listed, and the unit records listed with them.
    pub(super) fn listed(&mut self, seats: BTreeMap<String, Record>, units: &BTreeMap<String, Record>, now: Mono) {
        for (name, record) in &seats {
            let seen = self.observed.get(name).is_some_and(|o| o.version == record.version);
            if !seen {
                self.observed.insert(name.clone(), Observed { version: record.version.clone(), changed: now });
            }
        }
        self.observed.retain(|name, _| seats.contains_key(name));
        let holders = units.values().filter_map(Record::held_by).map(|(seat, _)| seat);
        let absent: BTreeSet<&str> = holders.filter(|seat| !seats.contains_key(*seat)).collect();
        self.absent.retain(|seat, _| absent.contains(seat.as_str()));
        for seat in absent {
            self.absent.entry(seat.to_owned()).or_insert(now);
        }
        self.seats = seats;
    }

    /// A seat's record as our own request found or left it.
    pub(super) fn seat_written(&mut self, seat: &str, record: Record) {
        self.seats.insert(seat.to_owned(), record);
    }

    /// Our own request found that the seat's record is gone.
    pub(super) fn seat_absent(&mut self, seat: &str) {
        self.seats.remove(seat);
    }
}

impl Shards {
    /// One write makes all units of a dead seat dangling. If it was renewed meanwhile, the write fails: no harm done.
    pub(super) fn fence_silent(&mut self, now: Mono, out: &mut Vec<Effect>) {
        let (view, calls) = (&self.view, &self.calls);
        let silent: Vec<(String, Record)> = view
            .seats
            .iter()
            .filter(|(name, record)| {
                **name != self.me.seat
                    && !record.holder.is_empty()
                    && view.silent(name, &self.profile, now)
                    && !calls.any(|p| matches!(p, Purpose::Fence(n) if n == *name))
            })
            .map(|(name, record)| (name.clone(), record.clone()))
            .collect();
        for (name, mut record) in silent {
            record.holder.clear();
            record.transitions += 1;
            self.ask(Purpose::Fence(name), Ask::Put(record), out);
        }
    }
}
