//! The request budget of one API server: lanes that do not wait for each other, each with a rate and a width.
//! Must not know what the requests are.

use std::sync::Mutex;
use std::time::Duration;

use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::Instant;

/// What a request is for. Lanes of one API server never wait for each other.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Lane {
    /// Renewals and unit records: on the hub, by the heartbeat, on a connection of its own.
    Leases,
    /// Writes, and reads that a plan waits for.
    Effects,
    /// Lists, and openings of watches.
    Sight,
    /// Calls to Ray dashboards through the API server's proxy: a dashboard that hangs must not hold back writes.
    Dashboards,
}

impl Lane {
    /// As a metric's label.
    pub fn label(self) -> &'static str {
        match self {
            Lane::Leases => "leases",
            Lane::Effects => "effects",
            Lane::Sight => "sight",
            Lane::Dashboards => "dashboards",
        }
    }

    /// Requests per second, burst, requests at once. client-go's 5 per second and burst 10 decided MultiKueue's
    /// throughput; ten times that is still little for an API server.
    fn budget(self) -> (f64, f64, usize) {
        match self {
            Lane::Leases => (50.0, 100.0, 8),
            Lane::Effects => (50.0, 100.0, 16),
            Lane::Sight => (20.0, 60.0, 8),
            Lane::Dashboards => (50.0, 100.0, 32),
        }
    }
}

/// The lanes of one API server.
#[derive(Debug)]
pub struct Lanes {
    lanes: [(Lane, LaneState); 4],
}

#[derive(Debug)]
struct LaneState {
    bucket: Mutex<Bucket>,
    width: Semaphore,
}

/// The right to send one request; given back when dropped.
#[derive(Debug)]
pub struct Turn<'a> {
    _permit: SemaphorePermit<'a>,
}

impl Default for Lanes {
    fn default() -> Self {
        let now = Instant::now();
        let lane = |lane: Lane| {
            let (per_second, burst, width) = lane.budget();
            (lane, LaneState { bucket: Mutex::new(Bucket::new(per_second, burst, now)), width: Semaphore::new(width) })
        };
        Self { lanes: [lane(Lane::Leases), lane(Lane::Effects), lane(Lane::Sight), lane(Lane::Dashboards)] }
    }
}

impl Lanes {
    /// Waits for a turn in the lane, `limit` at most; `None` when it did not come in that time.
    pub async fn turn(&self, lane: Lane, limit: Duration) -> Option<Turn<'_>> {
        let state = self.lanes.iter().find(|(name, _)| *name == lane).map(|(_, state)| state)?;
        tokio::time::timeout(limit, async {
            let permit = state.width.acquire().await.ok()?;
            loop {
                let wait = state.bucket.lock().expect("no code panics while it holds the bucket").take(Instant::now());
                match wait {
                    None => return Some(Turn { _permit: permit }),
                    Some(wait) => tokio::time::sleep(wait).await,
                }
            }
        })
        .await
        .ok()
        .flatten()
    }
}

/// A token bucket; the clock is handed in.
#[derive(Debug)]
struct Bucket {
    per_second: f64,
    burst: f64,
    tokens: f64,
    filled: Instant,
}

impl Bucket {
    fn new(per_second: f64, burst: f64, now: Instant) -> Self {
        Self { per_second, burst, tokens: burst, filled: now }
    }

    /// Takes a token, or says how long to wait before asking again.
    fn take(&mut self, now: Instant) -> Option<Duration> {
        let passed = now.saturating_duration_since(self.filled).as_secs_f64();
        self.tokens = (self.tokens + passed * self.per_second).min(self.burst);
        self.filled = now;
        if self.tokens >= 1.0 {
            self.tokens -= 1.0;
            return None;
        }
        Some(Duration::from_secs_f64((1.0 - self.tokens) / self.per_second))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_gives_its_burst_and_then_its_rate() {
        let start = Instant::now();
        let mut bucket = Bucket::new(10.0, 3.0, start);
        assert!((0..3).all(|_| bucket.take(start).is_none()));
        let wait = bucket.take(start).unwrap();
        assert!(wait > Duration::from_millis(99) && wait < Duration::from_millis(101), "{wait:?}");
        assert_eq!(bucket.take(start + Duration::from_millis(101)), None);
        let later = start + Duration::from_mins(1);
        assert!((0..3).all(|_| bucket.take(later).is_none()) && bucket.take(later).is_some());
    }

    #[tokio::test]
    async fn a_full_lane_does_not_hold_back_another() {
        let lanes = Lanes::default();
        let mut held = Vec::new();
        for _ in 0..Lane::Sight.budget().2 {
            held.push(lanes.turn(Lane::Sight, Duration::from_secs(5)).await.unwrap());
        }
        assert!(lanes.turn(Lane::Sight, Duration::from_millis(5)).await.is_none());
        assert!(lanes.turn(Lane::Effects, Duration::from_secs(5)).await.is_some());
        held.clear();
        assert!(lanes.turn(Lane::Sight, Duration::from_secs(5)).await.is_some());
    }
}
