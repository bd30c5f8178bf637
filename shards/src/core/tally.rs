//! How often units came and went, and why; and units that nobody owns: for metrics. Counted, never read by the protocol.
//! Must not decide anything.

use std::collections::BTreeMap;

use super::Shards;
use crate::Mono;

/// Why a unit came.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Gain {
    /// There was no record of it.
    New,
    /// Its record was free, and named nobody.
    Free,
    /// Its former holder handed it to this seat by name.
    Handed,
    /// An earlier life of this very seat had it.
    Again,
    /// Its holder's seat was fenced, left, taken over or deleted.
    TakenOver,
}

/// Why a unit went.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Loss {
    /// Released in order: to the seat that the ring names, on leaving, or because the unit is there no more.
    Released,
    /// The seat was lost: not renewed in time, fenced, deleted or taken.
    SeatLost,
    /// Its record named another, or was deleted.
    Taken,
    /// An object carried a higher epoch: the record is read again.
    HigherStamp,
}

impl Gain {
    /// All reasons.
    pub const ALL: [Gain; 5] = [Gain::New, Gain::Free, Gain::Handed, Gain::Again, Gain::TakenOver];

    /// As a metric's label.
    pub fn label(self) -> &'static str {
        match self {
            Gain::New => "new",
            Gain::Free => "free",
            Gain::Handed => "handed",
            Gain::Again => "again",
            Gain::TakenOver => "taken_over",
        }
    }
}

impl Loss {
    /// All reasons.
    pub const ALL: [Loss; 4] = [Loss::Released, Loss::SeatLost, Loss::Taken, Loss::HigherStamp];

    /// As a metric's label.
    pub fn label(self) -> &'static str {
        match self {
            Loss::Released => "released",
            Loss::SeatLost => "seat_lost",
            Loss::Taken => "taken",
            Loss::HigherStamp => "higher_stamp",
        }
    }
}

/// Counts since the process began.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Tally {
    gained: BTreeMap<Gain, u64>,
    lost: BTreeMap<Loss, u64>,
}

impl Tally {
    /// How many units came for this reason.
    pub fn gained(&self, why: Gain) -> u64 {
        self.gained.get(&why).copied().unwrap_or(0)
    }

    /// How many units went for this reason.
    pub fn lost(&self, why: Loss) -> u64 {
        self.lost.get(&why).copied().unwrap_or(0)
    }

    pub(super) fn gain(&mut self, why: Gain) {
        *self.gained.entry(why).or_default() += 1;
    }

    pub(super) fn lose(&mut self, why: Loss, count: u64) {
        *self.lost.entry(why).or_default() += count;
    }
}

/// Units that no process holds, as this one sees the records.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Unowned {
    /// How many.
    pub count: usize,
    /// How long the oldest has been seen so, ms; never longer than this process has looked.
    pub oldest_ms: u64,
}

impl Shards {
    /// How often units came and went.
    pub fn tally(&self) -> &Tally {
        self.units.tally()
    }

    /// Units without a holder that lives: of no record, free, of a fenced life, or of a seat that is gone or silent for D.
    /// Ages count from the first call that saw them so: to be called now and then.
    pub fn unowned(&mut self, now: Mono) -> Unowned {
        if !self.view.ever_heard() {
            return Unowned::default();
        }
        let is_unowned = |unit: &String| match self.units.record_of(unit) {
            None => true,
            Some(record) => {
                let silent = record.held_by().is_some_and(|(seat, _)| self.view.silent(seat, &self.profile, now));
                silent || self.view.dangling(record, &self.profile, now)
            }
        };
        let free: Vec<String> = self.units.wanted().iter().filter(|unit| is_unowned(unit)).cloned().collect();
        let since = std::mem::take(&mut self.unowned_since);
        self.unowned_since = free
            .into_iter()
            .map(|unit| {
                let at = since.get(&unit).copied().unwrap_or(now);
                (unit, at)
            })
            .collect();
        let oldest = self.unowned_since.values().min();
        Unowned { count: self.unowned_since.len(), oldest_ms: oldest.map_or(0, |at| now.0.saturating_sub(at.0)) }
    }
}
