//! Answers to requests: what came of writes, reads and questions, and when their keys are looked at again.
//! Must not know what was decided.

use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;

use super::gate::{target, writes_member};
use super::inflight::{Expectation, Flight, Purpose, What};
use super::look::LIMIT_MS;
use super::owner::{self, Which};
use super::ray_answers::no_answer;
use super::request::identity;
use super::{Effect, Engine, Outcome, Ticket};
use crate::api::{Cluster, Id, Key, Kind, Time, Version};
use crate::plan::{Action, Fetched, Note};

/// Back-off of a key whose writes fail: doubled each time.
const BACK_OFF_FIRST_MS: u64 = 100;
const BACK_OFF_LAST_MS: u64 = 60_000;
/// A read that is to find out an outcome and fails itself is tried again after this.
pub(super) const READ_BACK_AGAIN: Duration = Duration::from_secs(2);
/// The longest pause between such reads: nothing else is sent for the root object meanwhile.
const READ_BACK_LAST: Duration = Duration::from_secs(15);
/// The longest pause after a conflict.
const CONFLICT_LAST: Duration = Duration::from_secs(2);
/// So many conflicts in a row, and our sight is doubted.
const CONFLICTS_MAX: u32 = 5;

/// Whether an object that is being deleted ends when it is stored like this.
fn is_let_go(body: &Value) -> bool {
    let metadata = &body["metadata"];
    !metadata["deletionTimestamp"].is_null() && metadata["finalizers"].as_array().is_none_or(Vec::is_empty)
}

impl Engine {
    /// The outcome of a write has come.
    pub(super) fn done(&mut self, ticket: Ticket, outcome: Outcome, now: Time, out: &mut Vec<Effect>) {
        let Some(flight) = self.inflight.answered(ticket) else { return };
        let action = match &flight.purpose {
            Purpose::Write(action) => (**action).clone(),
            Purpose::ReadBack(_) | Purpose::Fetch(..) => {
                let error = match outcome {
                    Outcome::NotSent(why) | Outcome::Refused(_, why) | Outcome::Unknown(_, why) => why,
                    _ => "no answer".to_owned(),
                };
                self.read_ended(ticket, flight, now, Err(error), now, out);
                return;
            }
        };
        if let Action::Ask { question, .. } = &action {
            let answer = no_answer(question, &outcome);
            self.ray_ended(ticket, &flight, &action, answer, now, out);
            return;
        }
        if let Some(id) = target(&action)
            && !matches!(outcome, Outcome::NotSent(_))
        {
            // What was read of it before is not what is there now.
            self.fetched.remove(&(action.cluster(), id.clone()));
        }
        match outcome {
            Outcome::Unknown(status, words) => self.outcome_unknown(ticket, flight, action, (status, words), now),
            Outcome::Ok { version, .. } => {
                self.journal.success(&flight.key);
                self.queue.release(&flight.key);
                self.carried_out(&flight, &action, version, now);
                self.finish(ticket, &flight, now, out);
            }
            failure => {
                self.inflight.mark_failed(&flight.key);
                self.write_failed(&flight.key, &action, &failure, now, out);
                self.finish(ticket, &flight, now, out);
            }
        }
    }

    /// What must be in sight before the next look.
    fn carried_out(&mut self, flight: &Flight, action: &Action, version: Version, now: Time) {
        let Some(id) = target(action) else { return };
        let cluster = action.cluster();
        if let Some((root, identity, generation)) = &flight.root
            && writes_member(action)
            && let Some(memo) = self.memo(root, identity, *generation)
        {
            let written = &mut memo.written;
            let highest = written.entry(id.kind).or_default();
            *highest = version.max(*highest);
            if *highest == Version(0) {
                written.remove(&id.kind);
            }
        }
        let what = match action {
            Action::Delete { seen, .. } => What::Going(seen.uid.clone()),
            // The server answers with the version that it was at before, which is in sight already.
            Action::Replace { body, seen, .. } if is_let_go(body) => What::Gone(seen.uid.clone()),
            _ => What::Reached(version),
        };
        for key in flight.blocks() {
            self.expect(&key, cluster.clone(), id.clone(), what.clone(), now);
        }
    }

    /// Waits for something of a table, where there is one.
    fn expect(&mut self, key: &Key, cluster: Cluster, id: Id, what: What, now: Time) {
        if self.watching.get(&cluster).is_some_and(|kinds| kinds.contains(&id.kind)) {
            self.inflight.expect(key, Expectation { cluster, id, what, since: now });
        }
    }

    fn write_failed(&mut self, key: &Key, action: &Action, failure: &Outcome, now: Time, out: &mut Vec<Effect>) {
        let Some(id) = target(action) else { return };
        let cluster = action.cluster();
        let text = match failure {
            Outcome::Exists => format!("{id} on {cluster}: the name is taken"),
            Outcome::Conflict => format!("{id} on {cluster}: another version is there"),
            Outcome::Gone => format!("{id} on {cluster}: it is not there"),
            Outcome::NotSent(why) => format!("{id} on {cluster}: not sent: {why}"),
            // Servers quote what they refuse.
            Outcome::Refused(status, _) if matches!(id.kind, Kind::Secret | Kind::ConfigMap) => {
                format!("{id} on {cluster}: refused with {status}")
            }
            Outcome::Refused(status, message) => format!("{id} on {cluster}: refused with {status}: {message}"),
            Outcome::Ok { .. } | Outcome::Unknown(..) => return,
        };
        if matches!(failure, Outcome::Refused(..)) {
            self.tell_refusal(key, &text, out);
        }
        let failures = self.journal.trouble(key, text);
        let delay = self.back_off(failures);
        match failure {
            // News of the object is what helps, and is not kept waiting for long; if none comes, our sight is the trouble.
            Outcome::Exists | Outcome::Conflict | Outcome::Gone => {
                let delay = delay.min(CONFLICT_LAST);
                self.queue.put(key, now + delay);
                if failures.is_multiple_of(CONFLICTS_MAX) {
                    self.ask_lists(&cluster, &[id.kind], now, now, out);
                }
                self.queue.hold_until(key, now + delay);
            }
            _ => self.queue.hold_until(key, now + delay),
        }
    }

    /// How long a key waits after so many failures in a row.
    pub(super) fn back_off(&mut self, failures: u32) -> Duration {
        let full = BACK_OFF_FIRST_MS.saturating_mul(1 << failures.saturating_sub(1).min(12)).min(BACK_OFF_LAST_MS);
        Duration::from_millis(self.rng.u64(full / 2..=full))
    }

    /// A refusal is told to people at the object that is planned.
    fn tell_refusal(&self, key: &Key, text: &str, out: &mut Vec<Effect>) {
        let Some(row) = self.world.tables(&key.cluster).and_then(|tables| tables.get(&key.id)) else { return };
        out.push(Effect::Record(Note {
            cluster: key.cluster.clone(),
            about: key.id.clone(),
            uid: row.uid.clone(),
            warning: true,
            reason: "WriteRefused".into(),
            action: "Write".into(),
            note: text.to_owned(),
        }));
    }

    // --- unknown outcomes ---

    fn outcome_unknown(
        &mut self,
        ticket: Ticket,
        flight: Flight,
        action: Action,
        (status, words): (Option<u16>, String),
        now: Time,
    ) {
        self.inflight.mark_failed(&flight.key);
        let text = unknown_text(&action, status, &words);
        self.journal.trouble(&flight.key, text);
        if writes_member(&action) || self.gives_back(&flight.key, &action) {
            self.left_unknown(&flight);
        }
        // Not earlier: the request may still be carried out until its time limit has passed.
        let at = Time(flight.sent.0.saturating_add(flight.limit_ms as i64)).max(now);
        let flight = Flight { purpose: Purpose::ReadBack(Box::new(action)), ..flight };
        self.inflight.read_back_at(at, ticket, flight);
    }

    fn is_given_up(&self, cluster: &Cluster) -> bool {
        matches!(cluster, Cluster::Member(member) if self.world.is_given_up(member))
    }

    /// A write that gives a reservation straight back. While it may still land, nothing may be sent in this generation. Other
    /// writes to `Waiting` come after the tombstone, or only explain.
    fn gives_back(&self, key: &Key, action: &Action) -> bool {
        let Action::Replace { id, body, .. } = action else { return false };
        id.kind == Kind::Placement
            && body["spec"]["stage"] == "Waiting"
            && owner::of(&self.world, key).is_ok_and(|owner| owner.which == Which::Reserve)
    }

    /// The generation is clean no more (`sharding.md` 1.10, 1.11): something sent to the member may yet happen there.
    pub(super) fn left_unknown(&mut self, flight: &Flight) {
        if let Some((root, identity, generation)) = &flight.root
            && let Some(memo) = self.memo(root, identity, *generation)
        {
            memo.unknown = true;
        }
    }

    /// Sends the read that finds an outcome out.
    pub(super) fn read_back(&mut self, ticket: Ticket, flight: Flight, now: Time, out: &mut Vec<Effect>) {
        let Purpose::ReadBack(action) = &flight.purpose else { return };
        let Some(id) = target(action).cloned() else { return };
        let cluster = action.cluster();
        self.inflight.resend(ticket, Flight { sent: now, limit_ms: LIMIT_MS, ..flight });
        out.push(Effect::Fetch(ticket, cluster, id));
    }

    /// The shell never answered.
    pub(super) fn answer_lost(&mut self, ticket: Ticket, now: Time, out: &mut Vec<Effect>) {
        self.done(ticket, Outcome::Unknown(None, "the answer was lost".to_owned()), now, out);
    }

    // --- reads ---

    pub(super) fn was_fetched(
        &mut self,
        ticket: Ticket,
        begun: Time,
        result: Result<Option<Arc<Value>>, String>,
        now: Time,
        out: &mut Vec<Effect>,
    ) {
        let Some(flight) = self.inflight.answered(ticket) else { return };
        self.read_ended(ticket, flight, begun, result, now, out);
    }

    fn read_ended(
        &mut self,
        ticket: Ticket,
        flight: Flight,
        begun: Time,
        result: Result<Option<Arc<Value>>, String>,
        now: Time,
        out: &mut Vec<Effect>,
    ) {
        match (&flight.purpose, result) {
            (Purpose::Fetch(cluster, id), result) => {
                let before = self.fetched.get(&(cluster.clone(), id.clone())).map_or(0, |before| before.failures);
                let fetched = match result {
                    Ok(body) => Fetched { begun, body, error: None, failures: 0 },
                    Err(error) => Fetched { begun, body: None, error: Some(error), failures: before + 1 },
                };
                self.fetched.insert((cluster.clone(), id.clone()), fetched);
                self.finish(ticket, &flight, now, out);
            }
            // Nobody can tell any more, and nothing can come of it.
            (Purpose::ReadBack(action), Err(_)) if self.is_given_up(&action.cluster()) => {
                self.finish(ticket, &flight, now, out);
            }
            (Purpose::ReadBack(_), Err(why)) => {
                let failures = self.journal.trouble(&flight.key, format!("what came of a write cannot be read: {why}"));
                let again = self.back_off(failures).clamp(READ_BACK_AGAIN, READ_BACK_LAST);
                self.inflight.read_back_at(now + again, ticket, flight);
            }
            (Purpose::ReadBack(action), Ok(found)) => {
                self.hold_unless_done(&flight.key, action, found.as_deref(), now);
                if let Some(id) = target(action).cloned() {
                    self.found_out(&flight, action.cluster(), id, found.as_deref(), now);
                }
                self.finish(ticket, &flight, now, out);
            }
            (Purpose::Write(_), _) => self.finish(ticket, &flight, now, out),
        }
    }

    /// A server that answers with nothing but errors is not asked at once again, unless there was progress in spite of it.
    fn hold_unless_done(&mut self, key: &Key, action: &Action, found: Option<&Value>, now: Time) {
        if is_done(action, found) {
            self.journal.success(key);
            self.queue.release(key);
            return;
        }
        let failures = self.journal.get(key).map_or(1, |entry| entry.failures);
        let delay = self.back_off(failures);
        self.queue.hold_until(key, now + delay);
    }

    /// What there is after a write whose outcome was unknown: our table must show as much before the next look.
    fn found_out(&mut self, flight: &Flight, cluster: Cluster, id: Id, found: Option<&Value>, now: Time) {
        let what = match found {
            Some(object) => {
                let (_, version) = identity(object);
                if let (Some((root, identity, generation)), Cluster::Member(_)) = (&flight.root, &cluster)
                    && let Some(memo) = self.memo(root, identity, *generation)
                {
                    let highest = memo.written.entry(id.kind).or_default();
                    *highest = version.max(*highest);
                }
                What::Reached(version)
            }
            None => match self.world.tables(&cluster).and_then(|tables| tables.get(&id)) {
                Some(row) => What::Going(row.uid.clone()),
                None => return,
            },
        };
        for key in flight.blocks() {
            self.expect(&key, cluster.clone(), id.clone(), what.clone(), now);
        }
    }

    // --- the end of a request ---

    pub(super) fn finish(&mut self, ticket: Ticket, flight: &Flight, now: Time, out: &mut Vec<Effect>) {
        self.inflight.close(flight);
        for key in self.inflight.settle(ticket, flight) {
            self.free_if_met(&key, now, out);
        }
        if let Some((root, _, _)) = &flight.root
            && !matches!(flight.purpose, Purpose::Fetch(..))
        {
            let open = self.inflight.open_of(root);
            if open.hub == 0 || open.member == 0 {
                let held = self.inflight.take_held(root);
                // The root object's own key first: it may want to hand over before the others go on writing.
                if held.contains(root) {
                    self.wake(root, now);
                }
                self.wake_all(held, now);
            }
        }
        self.keep_checking(now);
    }

    /// Looks at a key again, if nothing more is waited for.
    pub(super) fn free_if_met(&mut self, key: &Key, now: Time, out: &mut Vec<Effect>) {
        let world = &self.world;
        let Some(notes) = self.inflight.free_if_met(key, |cluster| world.tables(cluster)) else { return };
        out.extend(notes.into_iter().map(Effect::Record));
        self.wake(key, now);
    }
}

/// What is told of a write whose outcome is unknown.
fn unknown_text(action: &Action, status: Option<u16>, words: &str) -> String {
    let what = target(action).map_or_else(String::new, |id| format!("{id} on {}: ", action.cluster()));
    let secret = target(action).is_some_and(|id| matches!(id.kind, Kind::Secret | Kind::ConfigMap));
    match status {
        // Servers quote what they were sent.
        Some(status) if secret => format!("{what}outcome unknown: {status}"),
        Some(status) => format!("{what}outcome unknown: {status}: {words}"),
        None => format!("{what}outcome unknown: {words}"),
    }
}

/// Whether what a write wanted is so, as far as the object tells: ours or not, there was progress.
fn is_done(action: &Action, found: Option<&Value>) -> bool {
    match (action, found) {
        (Action::Create { .. }, found) => found.is_some(),
        (Action::Delete { seen, .. }, Some(object)) => {
            identity(object).0 != seen.uid || !object["metadata"]["deletionTimestamp"].is_null()
        }
        (_, None) => true,
        (Action::Replace { seen, .. } | Action::Status { seen, .. } | Action::Merge { seen, .. }, Some(object)) => {
            let (uid, version) = identity(object);
            uid != seen.uid || version != seen.version
        }
        (Action::Ask { .. }, _) => true,
    }
}
