//! Unit records: acquired by compare-and-swap with the next epoch, drained, released, lost.
//! Must not know how seats live; asks the view whether a record dangles.

use std::collections::{BTreeMap, BTreeSet};

use super::Shards;
use super::calls::Purpose;
use super::message::{Ask, Call, Effect, Failure};
use super::tally::{Gain, Loss, Tally};
use crate::Mono;
use crate::hash::queue_units;
use crate::lease::{NEXT, Record, is_newer};

/// Units that are being handed over at once: what a process gives away, it does not work on.
const HAND_OVERS_MAX: usize = 8;
/// A unit is handed over only to a seat that was seen to renew so often.
const RENEWALS_MIN: u32 = 2;

/// Requests for unit records that may be under way at once.
const IN_FLIGHT_MAX: usize = 16;

#[derive(Debug)]
pub(super) struct Units {
    /// Queue units and whatever else is to be held.
    wanted: BTreeSet<String>,
    records: BTreeMap<String, Record>,
    held: BTreeMap<String, u64>,
    /// The last call that was handed out when a unit's acquisition was answered: lists begun before are no news.
    acquired_at: BTreeMap<String, Call>,
    quiescing: BTreeSet<String>,
    /// Epochs that must be exceeded: of stamps seen on objects, and of records that were deleted or set back.
    floors: BTreeMap<String, u64>,
    told: BTreeMap<String, u64>,
    /// Epochs higher than those told.
    untold: BTreeMap<String, u64>,
    tally: Tally,
}

impl Default for Units {
    fn default() -> Self {
        Self {
            wanted: queue_units().collect(),
            records: BTreeMap::new(),
            held: BTreeMap::new(),
            acquired_at: BTreeMap::new(),
            quiescing: BTreeSet::new(),
            floors: BTreeMap::new(),
            told: BTreeMap::new(),
            untold: BTreeMap::new(),
            tally: Tally::default(),
        }
    }
}

impl Units {
    /// Besides the queue units, exactly these are there.
    pub(super) fn want(&mut self, units: BTreeSet<String>) {
        self.wanted = units;
        self.wanted.extend(queue_units());
    }

    pub(super) fn tally(&self) -> &Tally {
        &self.tally
    }

    pub(super) fn record_of(&self, unit: &str) -> Option<&Record> {
        self.records.get(unit)
    }

    /// All units that are there.
    pub(super) fn wanted(&self) -> &BTreeSet<String> {
        &self.wanted
    }

    /// Units that may be acted for: held, and not being given up.
    pub(super) fn authorised(&self) -> impl Iterator<Item = (&str, u64)> {
        let held = self.held.iter().filter(|(unit, _)| !self.quiescing.contains(*unit));
        held.map(|(unit, epoch)| (unit.as_str(), *epoch))
    }

    pub(super) fn none_held(&self) -> bool {
        self.held.is_empty()
    }

    /// The highest incarnation of a seat that unit records name.
    pub(super) fn highest_incarnation(&self, seat: &str) -> u64 {
        let named = self.records.values().filter_map(Record::held_by).filter(|(holder, _)| *holder == seat);
        named.map(|(_, incarnation)| incarnation).max().unwrap_or(0)
    }

    /// The seat is gone: nothing is held.
    pub(super) fn lose_all(&mut self, out: &mut Vec<Effect>) {
        self.quiescing.clear();
        self.tally.lose(Loss::SeatLost, self.held.len() as u64);
        out.extend(std::mem::take(&mut self.held).into_keys().map(Effect::Lost));
    }

    pub(super) fn drain_all(&mut self, out: &mut Vec<Effect>) {
        for unit in self.held.keys() {
            if self.quiescing.insert(unit.clone()) {
                out.push(Effect::Quiesce(unit.clone()));
            }
        }
    }

    fn lose(&mut self, unit: &str, why: Loss, out: &mut Vec<Effect>) {
        self.quiescing.remove(unit);
        if self.held.remove(unit).is_some() {
            self.tally.lose(why, 1);
            out.push(Effect::Lost(unit.to_owned()));
        }
    }

    /// An epoch of this unit that must never come again.
    fn raise_floor(&mut self, unit: &str, epoch: u64) {
        let floor = self.floors.entry(unit.to_owned()).or_default();
        *floor = (*floor).max(epoch);
    }

    /// The record as it is now. What was there before keeps its epoch from coming twice: a person may have deleted the
    /// record or set it back.
    fn record(&mut self, unit: &str, record: Option<Record>) {
        let old = match record {
            Some(record) => {
                if self.told.get(unit).is_none_or(|told| *told < record.transitions) {
                    self.untold.insert(unit.to_owned(), record.transitions);
                }
                self.records.insert(unit.to_owned(), record)
            }
            None => self.records.remove(unit),
        };
        if let Some(old) = old {
            self.raise_floor(unit, old.transitions);
        }
    }

    /// The record as our own write left it, unless a later one is known.
    fn wrote(&mut self, unit: &str, record: Record) -> bool {
        let latest = self.records.get(unit).is_none_or(|known| !is_newer(&known.version, &record.version));
        if latest {
            self.record(unit, Some(record));
        }
        latest
    }

    pub(super) fn tell_epochs(&mut self, out: &mut Vec<Effect>) {
        if !self.untold.is_empty() {
            let untold = std::mem::take(&mut self.untold);
            self.told.extend(untold.clone());
            out.push(Effect::Epochs(untold));
        }
    }
}

impl Shards {
    pub(super) fn acquire(&mut self, now: Mono, out: &mut Vec<Effect>) {
        let holder = format!("{}#{}", self.me.seat, self.seat.incarnation);
        let busy = self.calls.open().filter(|p| matches!(p, Purpose::Acquire { .. } | Purpose::ReadUnit(_))).count();
        let mut room = IN_FLIGHT_MAX.saturating_sub(busy);
        let mut asks = Vec::new();
        for unit in self.units.wanted.iter().filter(|unit| !self.units.held.contains_key(*unit)) {
            if room == 0 {
                break;
            }
            let found = self.units.records.get(unit);
            if !self.may_acquire(unit, found, now) || self.calls.any(|p| p.unit() == Some(unit)) {
                continue;
            }
            let (mut record, exists) = match found {
                None => (Record { name: unit.clone(), ..Record::default() }, false),
                Some(r) if r.holder == holder || self.view.dangling(r, &self.profile, now) => (r.clone(), true),
                Some(_) => continue,
            };
            let why = if exists { self.gain(&record) } else { Gain::New };
            record.annotations.remove(NEXT);
            let floor = |epochs: &BTreeMap<String, u64>| epochs.get(unit).copied().unwrap_or(0);
            let epoch = record.transitions.max(floor(&self.units.floors)).max(floor(&self.units.told)) + 1;
            record.holder.clone_from(&holder);
            record.transitions = epoch;
            let ask = if exists { Ask::Put(record) } else { Ask::Create(record) };
            asks.push((Purpose::Acquire { unit: unit.clone(), epoch, why }, ask));
            room -= 1;
        }
        for (purpose, ask) in asks {
            self.ask(purpose, ask, out);
        }
    }

    /// Whether the unit should come to us if nobody has it. Two need not wait for the view to settle: what was handed to
    /// us by name, and what this very seat had in an earlier life. And what names our present life and is not held, for a
    /// release or an acquisition whose answer was lost, nobody else could take: it is taken, and handed over in order.
    fn may_acquire(&self, unit: &str, record: Option<&Record>, now: Mono) -> bool {
        let me = self.me.seat.as_str();
        let named = record.is_some_and(|r| r.held_by() == Some((me, self.seat.incarnation)));
        let why = record.map(|record| self.gain(record));
        let handed = why == Some(Gain::Handed);
        let at_once = why == Some(Gain::Again) || self.targets.settled(now);
        self.seat.is_ready() && (named || handed || (self.targets.of(unit) == Some(me) && at_once))
    }

    /// Why a unit with this record would come to us.
    fn gain(&self, record: &Record) -> Gain {
        let me = self.me.seat.as_str();
        match record.held_by() {
            Some((seat, _)) if seat == me => Gain::Again,
            None if record.holder.is_empty() && record.annotations.get(NEXT).is_some_and(|next| next == me) => {
                Gain::Handed
            }
            None if record.holder.is_empty() => Gain::Free,
            _ => Gain::TakenOver,
        }
    }

    pub(super) fn acquired(
        &mut self,
        unit: String,
        epoch: u64,
        why: Gain,
        result: Result<Record, Failure>,
        out: &mut Vec<Effect>,
    ) {
        let Ok(record) = result else { return self.ask_again(Purpose::ReadUnit(unit), out) };
        // An answer from before we lost the seat names another incarnation: not ours.
        let ours = record.held_by() == Some((self.me.seat.as_str(), self.seat.incarnation));
        if self.units.wrote(&unit, record) && self.seated() && ours {
            self.units.acquired_at.insert(unit.clone(), self.calls.last());
            self.units.held.insert(unit.clone(), epoch);
            self.units.tally.gain(why);
            out.push(Effect::Held(unit, epoch));
        }
    }

    /// Units that should be another's are drained, a few at once; those that are not there any more, all.
    pub(super) fn hand_over(&mut self, now: Mono, out: &mut Vec<Effect>) {
        let units = &self.units;
        let mut room = HAND_OVERS_MAX.saturating_sub(units.quiescing.len());
        let settled = self.targets.settled(now);
        let mut surplus = Vec::new();
        for unit in units.held.keys().filter(|unit| !units.quiescing.contains(*unit)) {
            if !units.wanted.contains(unit) {
                surplus.push(unit.clone());
            } else if room > 0
                && settled
                && let Some(next) = self.targets.of(unit)
                && next != self.me.seat
                && self.view.renewals(next) >= RENEWALS_MIN
            {
                room -= 1;
                surplus.push(unit.clone());
            }
        }
        for unit in surplus {
            self.units.quiescing.insert(unit.clone());
            out.push(Effect::Quiesce(unit));
        }
    }

    /// Nothing of the unit is in flight: only now may its record be given free.
    pub(super) fn quiesced(&mut self, unit: &str, out: &mut Vec<Effect>) {
        let releasing = self.calls.any(|p| matches!(p, Purpose::Release(u) if u == unit));
        if releasing || !self.units.quiescing.contains(unit) {
            return;
        }
        let Some(mut record) = self.units.records.get(unit).cloned() else { return };
        record.holder.clear();
        match self.targets.of(unit).filter(|next| *next != self.me.seat) {
            Some(next) => record.annotations.insert(NEXT.to_owned(), next.to_owned()),
            None => record.annotations.remove(NEXT),
        };
        self.ask(Purpose::Release(unit.to_owned()), Ask::Put(record), out);
    }

    pub(super) fn released(&mut self, unit: String, result: Result<Record, Failure>, out: &mut Vec<Effect>) {
        self.units.lose(&unit, Loss::Released, out);
        match result {
            Ok(record) => {
                self.units.wrote(&unit, record);
            }
            Err(_) => self.ask_again(Purpose::ReadUnit(unit), out),
        }
    }

    /// A higher stamp of our own unit than our epoch: the hub may have been restored from a backup. Read the record; if
    /// it is still ours, the epoch is raised above the stamp.
    pub(super) fn stamp(&mut self, unit: String, epoch: u64, out: &mut Vec<Effect>) {
        self.units.raise_floor(&unit, epoch);
        if self.units.held.get(&unit).is_some_and(|mine| *mine < epoch) {
            self.units.lose(&unit, Loss::HigherStamp, out);
            self.ask_again(Purpose::ReadUnit(unit), out);
        }
    }

    pub(super) fn unit_read(&mut self, unit: &str, found: Option<Record>, out: &mut Vec<Effect>) {
        if found.is_none() {
            self.units.lose(unit, Loss::Taken, out);
        }
        self.units.record(unit, found);
    }

    /// From the stream, which may lag behind an answer to us.
    pub(super) fn unit_changed(&mut self, record: Record, now: Mono, out: &mut Vec<Effect>) {
        let unit = record.name.clone();
        if self.units.records.get(&unit).is_some_and(|known| !is_newer(&record.version, &known.version)) {
            return;
        }
        self.view.named(&record, now);
        self.unit_is(&unit, Some(record), out);
    }

    /// The same of a record that is gone.
    pub(super) fn unit_deleted(&mut self, unit: &str, version: &str, out: &mut Vec<Effect>) {
        if self.units.records.get(unit).is_some_and(|known| is_newer(version, &known.version)) {
            self.unit_is(unit, None, out);
        }
    }

    /// What others see: a unit whose record does not name us and our epoch is not ours.
    fn unit_is(&mut self, unit: &str, record: Option<Record>, out: &mut Vec<Effect>) {
        let mine = (self.me.seat.as_str(), self.seat.incarnation);
        let epoch = self.units.held.get(unit);
        let ours = record.as_ref().is_some_and(|r| r.held_by() == Some(mine) && Some(&r.transitions) == epoch);
        if !ours {
            self.units.lose(unit, Loss::Taken, out);
        }
        self.units.record(unit, record);
    }

    /// Records as listed by `call`. Where an answer is under way, or our acquisition was answered after the list was
    /// begun, the list is no news.
    pub(super) fn units_listed(&mut self, call: Call, mut listed: BTreeMap<String, Record>, out: &mut Vec<Effect>) {
        let units = &self.units;
        let acquired_since = units.acquired_at.iter().filter(|(_, at)| call <= **at).map(|(unit, _)| unit.clone());
        let busy: BTreeSet<String> =
            self.calls.open().filter_map(Purpose::unit).map(str::to_owned).chain(acquired_since).collect();
        let gone = units.records.keys().chain(units.held.keys()).filter(|unit| !listed.contains_key(*unit));
        let gone: BTreeSet<String> = gone.cloned().collect();
        listed.retain(|unit, _| !busy.contains(unit));
        for unit in gone.difference(&busy) {
            self.unit_is(unit, None, out);
        }
        for (unit, record) in listed {
            self.unit_is(&unit, Some(record), out);
        }
    }
}
