//! "May act now": which units this process holds, and until when it trusts its own seat. Written by the heartbeat, read
//! right before each request.
//! Must not know how units are won.

use std::collections::BTreeMap;
use std::sync::{Arc, RwLock};
use std::time::{Duration, Instant};

/// The standing of this process, shared between the heartbeat's thread and the executor.
#[derive(Debug, Default)]
pub struct Authority {
    standing: RwLock<Option<Held>>,
}

/// What is held.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Held {
    /// Units and their epochs. Those that are being given up are left out.
    pub units: BTreeMap<Arc<str>, u64>,
    /// End of trust in our own seat: H after the last renewal was sent, on the monotonic clock (`sharding.md` 2.3).
    pub until: Instant,
}

impl Authority {
    /// Replaces the standing; `None`: nothing is held.
    pub fn set(&self, held: Option<Held>) {
        *self.standing.write().expect("no code panics while it holds the standing") = held;
    }

    /// How long a request in the name of `unit` at `epoch` may still take; `None`: it must not be sent.
    pub fn time_left(&self, unit: &str, epoch: u64, now: Instant) -> Option<Duration> {
        let standing = self.standing.read().expect("no code panics while it holds the standing");
        let held = standing.as_ref()?;
        if held.units.get(unit) != Some(&epoch) {
            return None;
        }
        held.until.checked_duration_since(now).filter(|left| !left.is_zero())
    }

    /// Whether the seat is held and trusted.
    pub fn seated(&self, now: Instant) -> bool {
        self.standing
            .read()
            .expect("no code panics while it holds the standing")
            .as_ref()
            .is_some_and(|h| h.until > now)
    }

    /// How many units are held.
    pub fn unit_count(&self) -> usize {
        self.standing.read().expect("no code panics while it holds the standing").as_ref().map_or(0, |h| h.units.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_needs_the_unit_the_epoch_and_time() {
        let now = Instant::now();
        let authority = Authority::default();
        assert_eq!(authority.time_left("q-01", 3, now), None);
        let second = Duration::from_secs(1);
        authority.set(Some(Held { units: BTreeMap::from([("q-01".into(), 3)]), until: now + second }));
        assert_eq!(authority.time_left("q-01", 3, now), Some(second));
        assert_eq!(authority.time_left("q-01", 2, now), None);
        assert_eq!(authority.time_left("q-02", 3, now), None);
        assert_eq!(authority.time_left("q-01", 3, now + second), None);
    }
}
