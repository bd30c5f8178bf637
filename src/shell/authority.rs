//! "May act now", shared between the heartbeat's thread, which publishes it, and the executor, which asks it right before
//! each request; and the monotonic clock that both read.
//! Must not know how units are won.

use std::sync::RwLock;
use std::time::Duration;

use nix::time::{ClockId, clock_gettime};
use shards::{Authority, Mono};

/// On Linux std's monotonic clock stands still while the machine is suspended; a deadline must not. Elsewhere the monotonic
/// clock goes on.
#[cfg(target_os = "linux")]
const CLOCK: ClockId = ClockId::CLOCK_BOOTTIME;
#[cfg(not(target_os = "linux"))]
const CLOCK: ClockId = ClockId::CLOCK_MONOTONIC;

fn machine_time() -> Duration {
    Duration::from(clock_gettime(CLOCK).expect("every system has this clock"))
}

/// The standing of this process.
#[derive(Debug)]
pub struct Standing {
    begun: Duration,
    authority: RwLock<Authority>,
    trouble: RwLock<String>,
}

impl Default for Standing {
    fn default() -> Self {
        Self { begun: machine_time(), authority: RwLock::default(), trouble: RwLock::default() }
    }
}

impl Standing {
    /// Monotonic time of this process.
    pub fn now(&self) -> Mono {
        Mono(u64::try_from(machine_time().saturating_sub(self.begun).as_millis()).unwrap_or(u64::MAX))
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
