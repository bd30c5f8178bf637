//! The protocol as a synchronous machine: a process takes its seat, renews it, and holds units by compare-and-swap on
//! their records. Inputs and time in, effects out.
//! Must not know a client, a clock, or what a unit stands for.
//!
//! * `message`, `profile`: what goes in and out, and how long things last.
//! * `seat`: our own seat: taken, renewed, lost, left.
//! * `view`: what the records say of the others: who is silent, who is fenced, which unit dangles.
//! * `follow`: how records are followed: a list, then a stream of changes.
//! * `target`: which units should be ours: the ring on that view.
//! * `units`: unit records: acquired, drained, released, lost; epochs.
//! * `tally`: how often units came and went, and which nobody owns: for metrics.
//! * `outside`: our clock against the hub's.
//! * `answers`: which answer goes where. `calls`: what is under way.
//!
//! Every write carries the resourceVersion that was read; whoever loses the race learns it from the conflict. A renewal
//! counts from the moment before it was handed out, never from its answer.

mod answers;
mod calls;
mod follow;
mod message;
mod outside;
mod profile;
mod seat;
mod tally;
mod target;
mod units;
mod view;

use std::collections::BTreeMap;

use calls::{Calls, Purpose};
use follow::Follow;
pub use message::{Ask, Call, Change, Effect, Failure, Identity, Input, Listing};
use outside::Outside;
pub use profile::Profile;
use seat::Seat;
pub use tally::{Gain, Loss, Tally, Unowned};
use target::Targets;
use units::Units;
use view::View;

use crate::{Authority, Mono};

/// Shortest time to the next wake-up, ms.
const WAKE_MIN_MS: u64 = 20;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stage {
    /// Nothing is known yet.
    New,
    /// Looking at the seat until it can be taken.
    Joining,
    /// The seat is ours.
    Seated,
    /// Units are being given up.
    Leaving,
    /// Over.
    Ended,
}

/// The state of one process.
#[derive(Debug)]
pub struct Shards {
    me: Identity,
    profile: Profile,
    stage: Stage,
    calls: Calls,
    seat: Seat,
    view: View,
    units: Units,
    targets: Targets,
    follow: Follow,
    outside: Outside,
    stalled: bool,
    /// Since when units are seen to be nobody's; kept by [`Shards::unowned`] alone.
    unowned_since: BTreeMap<String, Mono>,
}

impl Shards {
    /// A process that has not begun. `seed` spreads renewals.
    pub fn new(me: Identity, profile: Profile, seed: u64) -> Self {
        Self {
            me,
            profile,
            stage: Stage::New,
            calls: Calls::default(),
            seat: Seat::new(seed),
            view: View::default(),
            units: Units::default(),
            targets: Targets::default(),
            follow: Follow::default(),
            outside: Outside::default(),
            stalled: false,
            unowned_since: BTreeMap::new(),
        }
    }

    /// What the executor may do at present.
    pub fn authority(&self) -> Authority {
        Authority {
            until: self.seat.until,
            units: self.units.authorised().map(|(unit, epoch)| (unit.to_owned(), epoch)).collect(),
        }
    }

    /// The units for which this process may act at `now`, with their epochs.
    pub fn may_act(&self, now: Mono) -> impl Iterator<Item = (&str, u64)> {
        let trusted = self.seat.until.is_some_and(|until| now < until);
        self.units.authorised().filter(move |_| trusted)
    }

    /// Whether the seat is ours.
    pub fn seated(&self) -> bool {
        self.stage == Stage::Seated
    }

    /// Takes one thing in; gives what is to be done, in order.
    pub fn handle(&mut self, input: Input, now: Mono) -> Vec<Effect> {
        let mut out = Vec::new();
        if self.stage == Stage::Ended {
            return out;
        }
        match input {
            Input::Tick => {}
            Input::Ready => self.ready(),
            Input::Wanted(units) => {
                self.units.want(units);
                self.targets.units_changed();
            }
            Input::Dead(process) => self.seat.died(process),
            Input::Stamp(unit, epoch) => self.stamp(unit, epoch, &mut out),
            Input::Stalled(stalled) => self.stalled = stalled,
            Input::HubTime { seconds, sent } => self.hub_time(seconds, sent, now, &mut out),
            Input::Leave => self.leave(&mut out),
            Input::Quiesced(unit) => self.quiesced(&unit, &mut out),
            Input::Listed(call, result) => self.listed(call, result, now, &mut out),
            Input::Changed(call, change) => self.changed(call, change, now, &mut out),
            Input::Ended(call) => self.stream_ended(call, now),
            Input::Read(call, result) => self.read(call, result, now, &mut out),
            Input::Written(call, result) => self.written(call, result, now, &mut out),
        }
        self.move_on(now, &mut out);
        out
    }

    /// A clock that stood still has not counted the time for which the seat was trusted: nothing is, and the seat is taken
    /// again.
    fn hub_time(&mut self, seconds: u64, sent: Mono, now: Mono, out: &mut Vec<Effect>) {
        let Some(stood_ms) = self.outside.heard(seconds, sent, now) else { return };
        if self.seat.until.is_some() {
            out.push(Effect::StoodStill(stood_ms));
            self.drop_authority(out);
        }
    }

    // What time and knowledge ask for.
    fn move_on(&mut self, now: Mono, out: &mut Vec<Effect>) {
        if self.stage == Stage::Ended {
            return;
        }
        if self.seat.until.is_some_and(|until| now >= until) {
            self.drop_authority(out);
        }
        self.follow(now, out);
        match self.stage {
            Stage::New | Stage::Ended => {}
            _ if self.stalled => {}
            Stage::Joining => self.join(now, out),
            Stage::Seated => {
                self.renew(now, out);
                self.fence_silent(now, out);
                self.retarget(now);
                self.acquire(now, out);
                self.hand_over(now, out);
            }
            Stage::Leaving => {
                self.renew(now, out);
                self.retarget(now);
                self.leave_when_empty(out);
            }
        }
        self.units.tell_epochs(out);
        let seated = matches!(self.stage, Stage::Seated | Stage::Leaving);
        let next = [
            (!self.follow.streams()).then_some(self.follow.next_list),
            seated.then_some(self.seat.next_renew),
            (self.seated() && !self.stalled).then_some(self.view.next_silence),
            (self.seated() && !self.targets.settled(now)).then(|| self.targets.settles_at()),
            self.seat.until,
        ];
        let next = next.into_iter().flatten().min().unwrap_or(now + self.profile.renew_ms);
        // What is overdue waits for an answer that is under way: never ask to be called at once, again and again.
        out.push(Effect::WakeAt(next.max(now + WAKE_MIN_MS)));
    }

    /// What the view says now: who should have which unit.
    fn retarget(&mut self, now: Mono) {
        let seats = self.view.ready_seats(&self.profile, now);
        self.targets.see(seats, self.units.wanted(), now);
    }

    fn ask(&mut self, purpose: Purpose, ask: Ask, out: &mut Vec<Effect>) -> Call {
        let call = self.calls.begin(purpose);
        out.push(Effect::Ask(call, ask));
        call
    }
}

#[cfg(test)]
mod tests;
