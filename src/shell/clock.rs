//! The one place that asks what time it is.
//! Must not know what the time is for.

use std::sync::Mutex;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crate::api::Time;

/// How far the wall clock may be from ours before we follow it.
const STEP_FOLLOWED_US: i64 = 2_000_000;

/// Time for the core: reads like the wall clock, never goes back, and passes as the monotonic clock does. A wall clock that
/// is set forward is followed at once, one that is set back at half the speed.
#[derive(Debug)]
pub struct Clock {
    anchor: Mutex<(i64, Instant)>,
}

impl Default for Clock {
    fn default() -> Self {
        Self { anchor: Mutex::new((wall_us(), Instant::now())) }
    }
}

impl Clock {
    /// Now.
    pub fn now(&self) -> Time {
        let mut anchor = self.anchor.lock().expect("no code panics while it holds the anchor");
        let passed = u64::try_from(anchor.1.elapsed().as_micros()).unwrap_or(u64::MAX);
        let shown = reading(anchor.0, i64::try_from(passed).unwrap_or(i64::MAX), wall_us());
        // Whole microseconds only, or each call would lose the rest of one.
        *anchor = (shown, anchor.1 + Duration::from_micros(passed));
        Time(shown / 1_000)
    }

    /// How long from now until `time`; zero if it has passed.
    pub fn until(&self, time: Time) -> Duration {
        time.since(self.now())
    }
}

/// What our clock shows, `passed` after it showed `before`; all in microseconds. A time-out that begins again is worse than a
/// late time stamp, so it never goes back; and an hour that the wall clock was wrong by is not kept for ever.
fn reading(before: i64, passed: i64, wall: i64) -> i64 {
    let ours = before.saturating_add(passed);
    if wall.saturating_sub(ours) > STEP_FOLLOWED_US {
        wall
    } else if ours.saturating_sub(wall) > STEP_FOLLOWED_US {
        before.saturating_add(passed / 2)
    } else {
        ours
    }
}

fn wall_us() -> i64 {
    let passed = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(passed.as_micros()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wall_clock_that_was_an_hour_ahead_is_followed_both_ways_and_time_never_goes_back() {
        const S: i64 = 1_000_000;
        let (mut ours, mut true_time) = (0, 0);
        let mut run = |seconds: i64, ahead: i64| {
            for _ in 0..seconds * 4 {
                true_time += S / 4;
                let next = reading(ours, S / 4, true_time + ahead);
                assert!(next > ours);
                ours = next;
            }
            ours - true_time
        };
        assert_eq!(run(10, 0), 0);
        assert_eq!(run(10, S), 0, "a second is nothing to follow");
        assert_eq!(run(10, 3_600 * S), 3_600 * S, "at once");
        let left = run(3_600, 0);
        assert_eq!(left, 1_800 * S, "half the time's speed");
        assert!(run(3_600, 0) <= STEP_FOLLOWED_US);
    }
}
