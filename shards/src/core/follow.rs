//! How the records are followed: one list, then a stream of changes behind it; a list again where the stream ends or is
//! mute. Must not know what a record means.
//!
//! Without a seat of our own there are lists alone, one per renew period: nothing of ours would come through a stream and
//! show that it lives. With a seat our own renewals do.

use std::collections::BTreeMap;

use super::calls::Purpose;
use super::message::{Ask, Call, Change, Effect, Failure, Listing};
use super::{Shards, Stage};
use crate::Mono;
use crate::lease::{Record, is_newer};

#[derive(Debug, Default)]
pub(super) struct Follow {
    /// No list before.
    pub(super) next_list: Mono,
    /// Version of the last list, while no stream has begun behind it.
    listed: Option<String>,
    stream: Option<Call>,
    /// Version of our own seat that came last through list or stream.
    seen: String,
    /// Since when a confirmed renewal of ours has not come through the stream.
    unseen_since: Option<Mono>,
}

impl Follow {
    pub(super) fn streams(&self) -> bool {
        self.stream.is_some()
    }

    /// The hub has confirmed a renewal: it must come through the stream too.
    pub(super) fn renewed(&mut self, version: &str, now: Mono) {
        if is_newer(version, &self.seen) {
            self.unseen_since.get_or_insert(now);
        }
    }

    /// Our own seat came through list or stream.
    fn saw(&mut self, version: &str) {
        version.clone_into(&mut self.seen);
        self.unseen_since = None;
    }
}

impl Shards {
    pub(super) fn follow(&mut self, now: Mono, out: &mut Vec<Effect>) {
        let mute_ms = 2 * self.profile.renew_ms;
        let mute = self.follow.unseen_since.is_some_and(|since| now.0.saturating_sub(since.0) >= mute_ms);
        if self.follow.streams() && mute {
            self.unfollow(out);
        }
        if self.follow.streams() || self.calls.any(|p| matches!(p, Purpose::List)) {
            return;
        }
        if matches!(self.stage, Stage::Seated | Stage::Leaving)
            && let Some(version) = self.follow.listed.take()
        {
            self.follow.stream = Some(self.ask(Purpose::Watch, Ask::Watch(version), out));
        } else if now >= self.follow.next_list {
            self.follow.next_list = now + self.profile.renew_ms;
            self.ask(Purpose::List, Ask::List, out);
        }
    }

    /// What is known is in doubt: the next look is a list, at once.
    pub(super) fn unfollow(&mut self, out: &mut Vec<Effect>) {
        if let Some(call) = self.follow.stream.take() {
            self.calls.end(call);
            out.push(Effect::Close(call));
        }
        self.follow.listed = None;
        self.follow.unseen_since = None;
        self.follow.next_list = Mono(0);
    }

    pub(super) fn stream_ended(&mut self, call: Call, now: Mono) {
        self.calls.end(call);
        if self.follow.stream != Some(call) {
            return;
        }
        self.follow.stream = None;
        self.follow.unseen_since = None;
        // A server that ends meets all its watchers again: not at one moment.
        let spread = self.seat.spread(self.profile.renew_ms / 2);
        self.follow.next_list = self.follow.next_list.max(now + spread);
    }

    pub(super) fn listed(&mut self, call: Call, result: Result<Listing, Failure>, now: Mono, out: &mut Vec<Effect>) {
        if self.calls.end(call).is_none() {
            return;
        }
        let Ok(Listing { version, records }) = result else { return };
        let mut seats = BTreeMap::new();
        let mut units = BTreeMap::new();
        for record in records {
            match record.seat().map(str::to_owned) {
                Some(seat) => seats.insert(seat, record),
                None => units.insert(record.name.clone(), record),
            };
        }
        self.follow.listed = Some(version);
        if let Some(own) = seats.get(&self.me.seat) {
            self.follow.saw(&own.version);
        }
        self.view.heard(&self.profile, now);
        self.view.listed(seats, &units, &self.profile, now);
        self.units_listed(call, units, out);
        if self.stage == Stage::New {
            self.stage = Stage::Joining;
        }
        self.attest_predecessor(out);
    }

    pub(super) fn changed(&mut self, call: Call, change: Change, now: Mono, out: &mut Vec<Effect>) {
        if self.follow.stream != Some(call) {
            return;
        }
        match change {
            Change::Put(record) => match record.seat().map(str::to_owned) {
                Some(seat) => self.seat_changed(&seat, record, now, out),
                None => self.unit_changed(record, now, out),
            },
            Change::Deleted { name, version } => {
                let seat = Record { name, ..Record::default() };
                match seat.seat() {
                    Some(seat) => self.seat_deleted(seat, &version, now, out),
                    None => self.unit_deleted(&seat.name, &version, out),
                }
            }
        }
    }

    fn seat_changed(&mut self, seat: &str, record: Record, now: Mono, out: &mut Vec<Effect>) {
        if seat == self.me.seat {
            self.follow.saw(&record.version);
            self.view.heard(&self.profile, now);
            let ours = record.holder == self.me.process && record.transitions == self.seat.incarnation;
            if !ours {
                self.look_at_seat(&record.version, out);
            }
        }
        self.view.take_in_news(seat, record, &self.profile, now);
    }

    fn seat_deleted(&mut self, seat: &str, version: &str, now: Mono, out: &mut Vec<Effect>) {
        if seat == self.me.seat {
            self.look_at_seat(version, out);
        }
        self.view.deleted(seat, version, now);
    }
}
