//! "May act now": what the executor asks right before every request. A snapshot that the driver publishes.
//! Must not know how it came about.

use std::collections::BTreeMap;

use crate::Mono;

/// Authority of one process at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Authority {
    /// Until when the seat is trusted: H after the moment before the last successful renewal was sent.
    pub until: Option<Mono>,
    /// Units held, with their epochs; those that are being given up are not among them.
    pub units: BTreeMap<String, u64>,
}

impl Authority {
    /// Time left for a request in the name of `unit` at `epoch`, ms; `None` = it must not be sent.
    pub fn left_ms(&self, unit: &str, epoch: u64, now: Mono) -> Option<u64> {
        let until = self.until?;
        (self.units.get(unit) == Some(&epoch) && now < until).then(|| until.0 - now.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn authority_ends_with_the_deadline_and_holds_for_one_epoch_only() {
        let a = Authority { until: Some(Mono(100)), units: [("q-00".to_owned(), 4)].into() };
        assert_eq!(a.left_ms("q-00", 4, Mono(40)), Some(60));
        assert_eq!(a.left_ms("q-00", 4, Mono(100)), None);
        assert_eq!(a.left_ms("q-00", 3, Mono(40)), None);
        assert_eq!(a.left_ms("q-01", 4, Mono(40)), None);
        assert_eq!(Authority::default().left_ms("q-00", 4, Mono(0)), None);
    }
}
