//! The one place that asks what time it is.
//! Must not know what the time is for.

use std::sync::Mutex;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crate::api::Time;

/// How far the wall clock may be ahead of ours before we follow it.
const STEP_FOLLOWED_MS: i64 = 2_000;

/// Time for the core: reads like the wall clock, never goes back, and passes as the monotonic clock does.
#[derive(Debug)]
pub struct Clock {
    anchor: Mutex<(Time, Instant)>,
}

impl Default for Clock {
    fn default() -> Self {
        Self { anchor: Mutex::new((wall(), Instant::now())) }
    }
}

impl Clock {
    /// Now. Follows steps of the wall clock forwards only: a time-out that begins again is worse than a late time stamp.
    pub fn now(&self) -> Time {
        let mut anchor = self.anchor.lock().expect("no code panics while it holds the anchor");
        let ours = anchor.0 + anchor.1.elapsed();
        let wall = wall();
        if wall.0 - ours.0 > STEP_FOLLOWED_MS {
            *anchor = (wall, Instant::now());
            return wall;
        }
        ours
    }

    /// How long from now until `time`; zero if it has passed.
    pub fn until(&self, time: Time) -> Duration {
        time.since(self.now())
    }
}

fn wall() -> Time {
    let passed = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Time(i64::try_from(passed.as_millis()).unwrap_or(i64::MAX))
}
