//! Our own seat: taken by compare-and-swap, renewed, lost after H without renewal, left in order.
//! Must not know units but as what is given up with it.

use std::collections::BTreeSet;

use super::calls::Purpose;
use super::message::{Ask, Effect, Failure};
use super::{Shards, Stage};
use crate::Mono;
use crate::hash::ALGORITHM;
use crate::lease::{self, Record, SEAT_PREFIX, is_newer};

#[derive(Debug)]
pub(super) struct Seat {
    /// The record as last known, while the seat is ours.
    record: Option<Record>,
    pub(super) incarnation: u64,
    /// H after the moment before the last successful renewal was handed out.
    pub(super) until: Option<Mono>,
    pub(super) next_renew: Mono,
    /// What the process needs before it can work is there.
    ready: bool,
    /// Processes that are known to have ended.
    dead: BTreeSet<String>,
    dice: u64,
}

impl Seat {
    pub(super) fn new(seed: u64) -> Self {
        Self {
            record: None,
            incarnation: 0,
            until: None,
            next_renew: Mono(0),
            ready: false,
            dead: BTreeSet::new(),
            dice: seed,
        }
    }

    pub(super) fn is_ready(&self) -> bool {
        self.ready
    }

    pub(super) fn died(&mut self, process: String) {
        self.dead.insert(process);
    }

    /// ±10 %.
    fn jittered(&mut self, ms: u64) -> u64 {
        ms * 9 / 10 + self.spread(ms / 5)
    }

    /// Below `ms`, from a small generator of our own (splitmix64): the crate's only dice, seeded from outside.
    pub(super) fn spread(&mut self, ms: u64) -> u64 {
        self.dice = self.dice.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.dice;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % ms.max(1)
    }
}

impl Shards {
    /// Name of our seat's record.
    pub(super) fn seat_name(&self) -> String {
        format!("{SEAT_PREFIX}{}", self.me.seat)
    }

    fn seat_state(&self) -> &'static str {
        match self.stage {
            Stage::Leaving | Stage::Ended => lease::DRAINING,
            _ if self.seat.ready => lease::READY,
            _ => lease::JOINING,
        }
    }

    /// The process is warm: its seat says so at once.
    pub(super) fn ready(&mut self) {
        if !self.seat.ready {
            self.seat.ready = true;
            self.seat.next_renew = Mono(0);
        }
    }

    /// What the record of our seat says of us besides who holds it. Said anew with every renewal: a person may have edited
    /// it.
    fn describe(&self, record: &mut Record) {
        record.duration_seconds = self.profile.dead_ms / 1000;
        record.annotations.insert(lease::PLACE.to_owned(), self.me.place.clone());
        record.annotations.insert(lease::ALGORITHM.to_owned(), ALGORITHM.to_string());
        record.annotations.insert(lease::STATE.to_owned(), self.seat_state().to_owned());
    }

    pub(super) fn join(&mut self, now: Mono, out: &mut Vec<Effect>) {
        if self.calls.any(|p| matches!(p, Purpose::TakeSeat { .. } | Purpose::ReadSeat)) {
            return;
        }
        let highest = self.units.highest_incarnation(&self.me.seat);
        let (mut record, exists) = match self.view.seat(&self.me.seat) {
            // Deleted by a person: another process of this name may trust it for H yet. Ours would make its units free.
            None if highest > self.seat.incarnation && !self.view.is_long_absent(&self.me.seat, &self.profile, now) => {
                return;
            }
            None => (Record { name: self.seat_name(), ..Record::default() }, false),
            Some(record) => {
                let free = record.holder.is_empty()
                    || record.holder == self.me.process
                    || self.seat.dead.contains(&record.holder)
                    || self.view.silent(&self.me.seat, &self.profile, now);
                if !free {
                    return;
                }
                (record.clone(), true)
            }
        };
        record.holder.clone_from(&self.me.process);
        // Above every incarnation that was ever seen: a seat that a person deletes must not begin to count anew, or the
        // unit records of its earlier lives would look alive for ever.
        record.transitions = record.transitions.max(self.seat.incarnation).max(highest) + 1;
        self.describe(&mut record);
        let ask = if exists { Ask::Put(record) } else { Ask::Create(record) };
        self.ask(Purpose::TakeSeat { sent: now }, ask, out);
    }

    /// The seat is held by another process of our place, which may have ended: succession need not wait for silence.
    pub(super) fn attest_predecessor(&self, out: &mut Vec<Effect>) {
        if self.stage == Stage::Joining
            && let Some(record) = self.view.seat(&self.me.seat)
            && !record.holder.is_empty()
            && record.annotations.get(lease::PLACE) == Some(&self.me.place)
            && !self.seat.dead.contains(&record.holder)
            && record.holder != self.me.process
        {
            out.push(Effect::Attest(record.holder.clone()));
        }
    }

    pub(super) fn seat_taken(&mut self, result: Result<Record, Failure>, sent: Mono, now: Mono, out: &mut Vec<Effect>) {
        let Ok(record) = result else { return self.ask_again(Purpose::ReadSeat, out) };
        self.seat.incarnation = record.transitions;
        self.seat.until = Some(sent + self.profile.hold_ms);
        self.view.take_in(&self.me.seat, record.clone(), &self.profile, now);
        self.seat.record = Some(record);
        self.seat.next_renew = sent + self.profile.renew_ms;
        self.stage = Stage::Seated;
    }

    pub(super) fn renew(&mut self, now: Mono, out: &mut Vec<Effect>) {
        if now < self.seat.next_renew
            || self.calls.any(|p| matches!(p, Purpose::Renew { .. } | Purpose::ReadSeat | Purpose::EmptySeat))
        {
            return;
        }
        let Some(mut record) = self.seat.record.clone() else { return };
        self.describe(&mut record);
        self.seat.next_renew = now + self.seat.jittered(self.profile.renew_ms);
        self.ask(Purpose::Renew { sent: now }, Ask::Put(record), out);
    }

    pub(super) fn renewed(&mut self, result: Result<Record, Failure>, sent: Mono, now: Mono, out: &mut Vec<Effect>) {
        match result {
            Ok(record) => {
                if self.seat.record.is_some() {
                    let draining = record.annotations.get(lease::STATE).is_some_and(|s| s == lease::DRAINING);
                    self.seat.until = Some(sent + self.profile.hold_ms);
                    self.follow.renewed(&record.version, now);
                    self.view.take_in(&self.me.seat, record.clone(), &self.profile, now);
                    self.seat.record = Some(record);
                    if self.stage == Stage::Leaving && draining {
                        // The others know: what is given free goes to them and does not come back.
                        self.retarget(now);
                        self.units.drain_all(out);
                    }
                }
            }
            Err(_) => self.ask_again(Purpose::ReadSeat, out),
        }
    }

    /// The stream says that our seat is another's, or gone: a consistent read decides, unless a request of ours to the seat
    /// is under way, which will tell.
    pub(super) fn look_at_seat(&mut self, version: &str, out: &mut Vec<Effect>) {
        let news = self.seat.record.as_ref().is_some_and(|mine| is_newer(version, &mine.version));
        let told = |p: &Purpose| matches!(p, Purpose::Renew { .. } | Purpose::ReadSeat | Purpose::EmptySeat);
        if news && !self.calls.any(told) {
            self.ask_again(Purpose::ReadSeat, out);
        }
    }

    pub(super) fn seat_read(&mut self, found: Option<Record>, now: Mono, out: &mut Vec<Effect>) {
        let Some(record) = found else {
            self.view.forget(&self.me.seat, now);
            self.drop_authority(out);
            return;
        };
        self.view.take_in(&self.me.seat, record.clone(), &self.profile, now);
        let same = record.holder == self.me.process && record.transitions == self.seat.incarnation;
        if same && self.seat.record.is_some() {
            // Our own renewal got through and its answer did not: go on from its version, renew at once.
            self.seat.record = Some(record);
            self.seat.next_renew = Mono(0);
        } else if record.holder.is_empty() || record.holder == self.me.process {
            // Fenced: join again with a new incarnation.
            self.drop_authority(out);
        } else if self.stage == Stage::Joining {
            // Somebody was quicker.
        } else {
            self.exit(format!("seat {} is held by another process", self.me.seat), out);
        }
    }

    pub(super) fn drop_authority(&mut self, out: &mut Vec<Effect>) {
        self.seat.until = None;
        self.seat.record = None;
        self.units.lose_all(out);
        self.unfollow(out);
        if self.stage == Stage::Leaving {
            self.left(out);
        } else {
            self.stage = Stage::Joining;
        }
    }

    fn exit(&mut self, why: String, out: &mut Vec<Effect>) {
        self.drop_authority(out);
        self.stage = Stage::Ended;
        out.push(Effect::Exit(why));
    }

    pub(super) fn leave(&mut self, out: &mut Vec<Effect>) {
        if self.stage != Stage::Seated {
            self.stage = Stage::Ended;
            out.push(Effect::Left);
            return;
        }
        self.stage = Stage::Leaving;
        // First the seat says so, else what is given free would come back: see `renewed`.
        self.seat.next_renew = Mono(0);
    }

    /// The holder is emptied last: only a seat without units may be left.
    pub(super) fn leave_when_empty(&mut self, out: &mut Vec<Effect>) {
        let busy = |p: &Purpose| {
            matches!(p, Purpose::Acquire { .. } | Purpose::Release(_) | Purpose::EmptySeat | Purpose::Renew { .. })
        };
        if !self.units.none_held() || self.calls.any(busy) {
            return;
        }
        let Some(mut record) = self.seat.record.clone() else { return };
        record.holder.clear();
        self.ask(Purpose::EmptySeat, Ask::Put(record), out);
    }

    pub(super) fn left(&mut self, out: &mut Vec<Effect>) {
        self.seat.until = None;
        self.seat.record = None;
        self.stage = Stage::Ended;
        out.push(Effect::Left);
    }
}
