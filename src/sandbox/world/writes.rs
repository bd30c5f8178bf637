//! Own requests that are under way: at most one for a key, and after success none before the change was seen.
//! Must not know what the requests do.

use std::collections::BTreeMap;
use std::time::Duration;

use super::WorldRequest;
use super::object::{body, version};
use crate::api::Time;
use crate::api::wire::{Reply, Request};

/// After a refusal a key rests this long, unless its object changes before.
const BACK_OFF: Duration = Duration::from_millis(500);
/// A change that does not come back within this time is not waited for any longer.
const PATIENCE: Duration = Duration::from_secs(5);

#[derive(Clone, Debug)]
enum Wait {
    /// Not yet answered.
    Sent,
    /// Carried out; the object must be seen at this version or gone. Not waited for beyond the time.
    Seen(u64, Time),
    /// Refused; tried again at this time.
    Until(Time),
}

/// The requests of one core.
#[derive(Debug, Default)]
pub struct Writes {
    next: u64,
    open: BTreeMap<u64, String>,
    waits: BTreeMap<String, Wait>,
    /// What was seen of keys whose answer is still out: events may be faster than answers.
    early: BTreeMap<String, u64>,
}

/// What became of a request.
#[derive(Debug)]
pub struct Done {
    /// The key that it was sent for.
    pub key: String,
    /// The answer.
    pub reply: Reply,
}

impl Writes {
    /// Sends a request for a key.
    pub fn send(&mut self, key: &str, request: Request) -> WorldRequest {
        self.next += 1;
        self.open.insert(self.next, key.to_owned());
        self.waits.insert(key.to_owned(), Wait::Sent);
        WorldRequest { id: self.next, request }
    }

    /// Sends a request whose outcome nothing waits for (events).
    pub fn tell(&mut self, request: Request) -> WorldRequest {
        self.next += 1;
        WorldRequest { id: self.next, request }
    }

    /// Whether the key must rest: unanswered, not yet seen, or refused a moment ago.
    pub fn busy(&self, key: &str, now: Time) -> bool {
        match self.waits.get(key) {
            None => false,
            Some(Wait::Sent) => true,
            Some(Wait::Seen(_, until) | Wait::Until(until)) => now < *until,
        }
    }

    /// Takes in an answer; `None` if it was for nothing that is waited for.
    pub fn answered(&mut self, id: u64, reply: &Reply, now: Time) -> Option<Done> {
        let key = self.open.remove(&id)?;
        let early = self.early.remove(&key);
        if reply.is_success() {
            let wanted = version(&body(reply));
            if early.is_some_and(|seen| seen >= wanted) {
                self.waits.remove(&key);
            } else {
                self.waits.insert(key.clone(), Wait::Seen(wanted, now + PATIENCE));
            }
        } else {
            self.waits.insert(key.clone(), Wait::Until(now + BACK_OFF));
        }
        Some(Done { key, reply: reply.clone() })
    }

    /// The key need not rest any longer: its answer asks for nothing to be seen.
    pub fn clear(&mut self, key: &str) {
        self.waits.remove(key);
    }

    /// The object of a key was seen at a version.
    pub fn seen(&mut self, key: &str, at: u64) {
        match self.waits.get(key) {
            Some(Wait::Seen(wanted, _)) if at >= *wanted => {
                self.waits.remove(key);
            }
            Some(Wait::Until(_)) => {
                self.waits.remove(key);
            }
            Some(Wait::Sent) => {
                self.early.insert(key.to_owned(), at);
            }
            _ => {}
        }
    }

    /// The object of a key is gone.
    pub fn gone(&mut self, key: &str) {
        if matches!(self.waits.get(key), Some(Wait::Sent)) {
            self.early.insert(key.to_owned(), u64::MAX);
        } else {
            self.waits.remove(key);
        }
    }

    /// The earliest time at which a key may be tried again without any event.
    pub fn next_at(&self) -> Option<Time> {
        self.waits
            .values()
            .filter_map(|w| match w {
                Wait::Sent => None,
                Wait::Seen(_, at) | Wait::Until(at) => Some(*at),
            })
            .min()
    }

    /// Keys whose rest has ended by now; they are forgotten here and should be looked at.
    pub fn rested(&mut self, now: Time) -> Vec<String> {
        let over: Vec<String> = self
            .waits
            .iter()
            .filter(|(_, w)| matches!(w, Wait::Seen(_, at) | Wait::Until(at) if *at <= now))
            .map(|(k, _)| k.clone())
            .collect();
        for key in &over {
            self.waits.remove(key);
        }
        over
    }
}
