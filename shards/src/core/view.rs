//! What the records say of other seats: who is silent, who may be fenced, which unit record dangles.
//! Must not decide which units are ours.
//!
//! Silence is counted on our own clock from the moment when a change was received, never from times in records; and only
//! while what we hear is known to be alive, else the first replica back after an outage of the hub would fence all others.

use std::collections::{BTreeMap, BTreeSet};

use super::calls::Purpose;
use super::message::{Ask, Effect};
use super::{Profile, Shards};
use crate::Mono;
use crate::hash::ALGORITHM;
use crate::lease::{self, Record, is_newer};

/// A seat, and when its record was last seen to change.
#[derive(Clone, Debug)]
struct Observed {
    record: Record,
    changed: Mono,
    /// How often its present holder was seen to renew it.
    renewals: u32,
}

impl Observed {
    /// When it counts as silent.
    fn due(&self, profile: &Profile) -> Mono {
        let own = self.record.duration_seconds * 1000;
        self.changed + if own > 0 { own } else { profile.dead_ms }
    }
}

#[derive(Debug, Default)]
pub(super) struct View {
    seats: BTreeMap<String, Observed>,
    /// Seats that unit records name and that are not there: since when we see that.
    absent: BTreeMap<String, Mono>,
    /// Unit records whose holder no seat's record accounts for, a person's writing for example: the unit's name, and its
    /// record with the time since when we see it.
    strange: BTreeMap<String, (Record, Mono)>,
    /// When a list, or our own renewal, last came through.
    heard: Option<Mono>,
    /// No seat falls silent before.
    pub(super) next_silence: Mono,
}

impl View {
    pub(super) fn seat(&self, name: &str) -> Option<&Record> {
        self.seats.get(name).map(|seat| &seat.record)
    }

    /// What we hear of the hub is alive. After a gap all silence is counted anew.
    pub(super) fn heard(&mut self, profile: &Profile, now: Mono) {
        if !self.hears(profile, now) {
            let seats = self.seats.values_mut().map(|seat| &mut seat.changed);
            let began = seats.chain(self.absent.values_mut()).chain(self.strange.values_mut().map(|(_, since)| since));
            began.for_each(|since| *since = now);
        }
        self.heard = Some(now);
    }

    pub(super) fn ever_heard(&self) -> bool {
        self.heard.is_some()
    }

    fn hears(&self, profile: &Profile, now: Mono) -> bool {
        self.heard.is_some_and(|at| now.0.saturating_sub(at.0) <= 2 * profile.renew_ms)
    }

    /// D of silence, observed on our own clock, while we hear.
    pub(super) fn silent(&self, seat: &str, profile: &Profile, now: Mono) -> bool {
        self.hears(profile, now) && self.seats.get(seat).is_some_and(|seat| seat.due(profile) <= now)
    }

    /// Seats that take their share of the units, in order: ready, not silent, and with the same hashing as ours.
    pub(super) fn ready_seats(&self, profile: &Profile, now: Mono) -> Vec<String> {
        let algorithm = ALGORITHM.to_string();
        let ready = self.seats.iter().filter(|(name, seat)| {
            let said = |key: &str| seat.record.annotations.get(key).map(String::as_str);
            !seat.record.holder.is_empty()
                && said(lease::STATE) == Some(lease::READY)
                && said(lease::ALGORITHM) == Some(&algorithm)
                && !self.silent(name, profile, now)
        });
        ready.map(|(name, _)| name.clone()).collect()
    }

    /// How often a seat's present holder was seen to renew it.
    pub(super) fn renewals(&self, seat: &str) -> u32 {
        self.seats.get(seat).map_or(0, |seat| seat.renewals)
    }

    /// A unit record names a holder that can never write again.
    pub(super) fn dangling(&self, record: &Record, profile: &Profile, now: Mono) -> bool {
        match record.held_by() {
            None => {
                record.holder.is_empty() || !record.holder.contains('#') || self.stays_strange(record, profile, now)
            }
            Some((seat, incarnation)) => match self.seat(seat) {
                // A seat that a person deleted: its holder may trust it for H yet.
                None => self.is_long_absent(seat, profile, now),
                Some(s) if s.transitions == incarnation => s.holder.is_empty(),
                // An older life than the record names: our sight is old, or a person has set the seat back.
                Some(s) if s.transitions < incarnation => {
                    s.holder.is_empty() && self.silent(seat, profile, now) || self.stays_strange(record, profile, now)
                }
                Some(_) => true,
            },
        }
    }

    /// For D, in fresh sight, the seat has not been there.
    pub(super) fn is_long_absent(&self, seat: &str, profile: &Profile, now: Mono) -> bool {
        self.hears(profile, now) && self.absent.get(seat).is_some_and(|since| *since + profile.dead_ms <= now)
    }

    /// For D, in fresh sight, no seat has accounted for the holder: nobody of that name can have authority.
    fn stays_strange(&self, record: &Record, profile: &Profile, now: Mono) -> bool {
        let seen = self.strange.get(&record.name).filter(|(seen, _)| seen.version == record.version);
        self.hears(profile, now) && seen.is_some_and(|(_, since)| *since + profile.dead_ms <= now)
    }

    /// All seats as they were listed, and the unit records listed with them.
    pub(super) fn listed(
        &mut self,
        seats: BTreeMap<String, Record>,
        units: &BTreeMap<String, Record>,
        profile: &Profile,
        now: Mono,
    ) {
        self.seats.retain(|name, _| seats.contains_key(name));
        for (name, record) in seats {
            self.take_in(&name, record, profile, now);
        }
        let holders: BTreeSet<&str> = units.values().filter_map(Record::held_by).map(|(seat, _)| seat).collect();
        self.absent.retain(|seat, _| holders.contains(seat.as_str()));
        self.strange.retain(|unit, _| units.contains_key(unit));
        units.values().for_each(|unit| self.named(unit, now));
    }

    /// A unit record names its holder.
    pub(super) fn named(&mut self, unit: &Record, now: Mono) {
        let strange = match unit.held_by() {
            None => unit.holder.contains('#'),
            Some((seat, incarnation)) => {
                if self.seat(seat).is_none() {
                    self.absent.entry(seat.to_owned()).or_insert(now);
                }
                self.seat(seat).is_some_and(|known| known.transitions < incarnation)
            }
        };
        if !strange {
            self.strange.remove(&unit.name);
        } else if self.strange.get(&unit.name).is_none_or(|(seen, _)| seen.version != unit.version) {
            self.strange.insert(unit.name.clone(), (unit.clone(), now));
        }
    }

    /// A seat's record as a list or an answer to us shows it.
    pub(super) fn take_in(&mut self, seat: &str, record: Record, profile: &Profile, now: Mono) {
        self.absent.remove(seat);
        self.strange.retain(|_, (unit, _)| {
            unit.held_by().is_none_or(|(name, incarnation)| name != seat || record.transitions < incarnation)
        });
        let known = self.seats.get(seat).filter(|known| known.record.transitions == record.transitions);
        let same = known.filter(|known| known.record.version == record.version);
        let renewals = known.map_or(0, |known| known.renewals + u32::from(same.is_none()));
        let seen = Observed { changed: same.map_or(now, |known| known.changed), renewals, record };
        self.next_silence = self.next_silence.min(seen.due(profile));
        self.seats.insert(seat.to_owned(), seen);
    }

    /// The same from the stream, which may lag behind an answer to us.
    pub(super) fn take_in_news(&mut self, seat: &str, record: Record, profile: &Profile, now: Mono) {
        if self.seat(seat).is_none_or(|known| is_newer(&record.version, &known.version)) {
            self.take_in(seat, record, profile, now);
        }
    }

    /// A request of ours found no such seat. The stream's word of that may come later, and is none any more.
    pub(super) fn forget(&mut self, seat: &str, now: Mono) {
        self.seats.remove(seat);
        self.absent.entry(seat.to_owned()).or_insert(now);
    }

    /// The stream says that the seat was deleted.
    pub(super) fn deleted(&mut self, seat: &str, version: &str, now: Mono) {
        if self.seat(seat).is_some_and(|known| is_newer(version, &known.version)) {
            self.seats.remove(seat);
            self.absent.insert(seat.to_owned(), now);
        }
    }
}

impl Shards {
    /// One write makes all units of a dead seat dangling. If it was renewed meanwhile, the write fails: no harm done.
    pub(super) fn fence_silent(&mut self, now: Mono, out: &mut Vec<Effect>) {
        if now < self.view.next_silence {
            return;
        }
        // What is due and cannot be fenced now is looked at again.
        let mut next = now + self.profile.dead_ms;
        let mut silent = Vec::new();
        for (name, seat) in &self.view.seats {
            if *name == self.me.seat || seat.record.holder.is_empty() {
                continue;
            }
            let due = seat.due(&self.profile);
            next = next.min(if due > now { due } else { now + self.profile.renew_ms });
            let asked = |p: &Purpose| matches!(p, Purpose::Fence(n) | Purpose::ReadOther(n) if n == name);
            if self.view.silent(name, &self.profile, now) && !self.calls.any(asked) {
                silent.push((name.clone(), seat.record.clone()));
            }
        }
        self.view.next_silence = next;
        for (name, mut record) in silent {
            record.holder.clear();
            record.transitions += 1;
            self.ask(Purpose::Fence(name), Ask::Put(record), out);
        }
    }
}
