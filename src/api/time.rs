//! Points in time as the pure core gets them: milliseconds since the epoch, handed in, never asked for.
//! Must not know a clock.

use std::fmt;
use std::ops::{Add, Sub};
use std::time::Duration;

use jiff::Timestamp;

/// Milliseconds since 1970-01-01 UTC.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Time(pub i64);

impl Time {
    /// From RFC 3339 text such as `2026-11-29T12:00:00Z`; fractions below a millisecond are dropped.
    pub fn parse(text: &str) -> Option<Self> {
        text.parse::<Timestamp>().ok().map(|t| Self(t.as_millisecond()))
    }

    /// RFC 3339 with whole seconds, as Kubernetes writes `metav1.Time`.
    pub fn seconds_text(self) -> String {
        Timestamp::from_second(self.0.div_euclid(1000)).map(|t| t.to_string()).unwrap_or_default()
    }

    /// RFC 3339 with six decimals, as Kubernetes writes `metav1.MicroTime`.
    pub fn micro_text(self) -> String {
        let whole = self.seconds_text();
        format!("{}.{:06}Z", whole.trim_end_matches('Z'), self.0.rem_euclid(1000) * 1000)
    }

    /// Time passed since `earlier`; zero if `earlier` is later.
    pub fn since(self, earlier: Time) -> Duration {
        Duration::from_millis(u64::try_from(self.0.saturating_sub(earlier.0)).unwrap_or(0))
    }
}

impl Add<Duration> for Time {
    type Output = Time;
    fn add(self, d: Duration) -> Time {
        Time(self.0.saturating_add(i64::try_from(d.as_millis()).unwrap_or(i64::MAX)))
    }
}

impl Sub<Duration> for Time {
    type Output = Time;
    fn sub(self, d: Duration) -> Time {
        Time(self.0.saturating_sub(i64::try_from(d.as_millis()).unwrap_or(i64::MAX)))
    }
}

impl fmt::Debug for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.micro_text())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_goes_there_and_back() {
        let t = Time::parse("2026-11-29T12:00:00.25Z").unwrap();
        assert_eq!(t.seconds_text(), "2026-11-29T12:00:00Z");
        assert_eq!(t.micro_text(), "2026-11-29T12:00:00.250000Z");
        assert_eq!(Time::parse(&t.micro_text()), Some(t));
        // "At once" is the earliest time that there is.
        assert_eq!(Time(i64::MIN).since(t), Duration::ZERO);
        assert_eq!((t + Duration::from_millis(750)).since(t), Duration::from_millis(750));
    }
}
