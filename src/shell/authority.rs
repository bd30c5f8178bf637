//! "May act now", shared between the heartbeat's thread, which publishes it, and the executor, which asks it right before
//! each request; and the monotonic clock that both read.
//! Must not know how units are won.

use std::sync::RwLock;
use std::time::{Duration, Instant};

use shards::{Authority, Mono};

/// The standing of this process.
#[derive(Debug)]
pub struct Standing {
    begun: Instant,
    authority: RwLock<Authority>,
    trouble: RwLock<String>,
}

impl Default for Standing {
    fn default() -> Self {
        Self { begun: Instant::now(), authority: RwLock::default(), trouble: RwLock::default() }
    }
}

impl Standing {
    /// Monotonic time of this process.
    pub fn now(&self) -> Mono {
        Mono(u64::try_from(self.begun.elapsed().as_millis()).unwrap_or(u64::MAX))
    }

    /// Replaces the standing.
    pub fn publish(&self, authority: Authority) {
        *self.authority.write().expect("no code panics while it holds the standing") = authority;
    }

    /// How long a request in the name of `unit` at `epoch` may still take; `None`: it must not be sent.
    pub fn time_left(&self, unit: &str, epoch: u64) -> Option<Duration> {
        let authority = self.authority.read().expect("no code panics while it holds the standing");
        authority.left_ms(unit, epoch, self.now()).filter(|ms| *ms > 0).map(Duration::from_millis)
    }

    /// Whether the seat is held and trusted.
    pub fn seated(&self) -> bool {
        let authority = self.authority.read().expect("no code panics while it holds the standing");
        authority.until.is_some_and(|until| until > self.now())
    }

    /// Why the Leases on the hub cannot be read or written, in words; empty: they can.
    pub fn trouble(&self, why: String) {
        *self.trouble.write().expect("no code panics while it holds the trouble") = why;
    }

    /// What was said last with [`Standing::trouble`].
    pub fn troubled(&self) -> String {
        self.trouble.read().expect("no code panics while it holds the trouble").clone()
    }

    /// Units held, with their epochs.
    pub fn units(&self) -> std::collections::BTreeMap<String, u64> {
        self.authority.read().expect("no code panics while it holds the standing").units.clone()
    }
}
