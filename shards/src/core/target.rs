//! Which units this seat should hold: the ring's word on the seats in view, and how soon it is followed.
//! Must not know records of units, or how they change hands.
//!
//! Nobody agrees on a view: each process follows its own, and compare-and-swap on the records decides. A view is followed
//! once it has stood for a while, so that what comes and goes at once moves nothing (`sharding.md` 2.5).

use std::collections::{BTreeMap, BTreeSet};

use crate::Mono;
use crate::ring;

/// A view is followed when it has not changed for this long, ms.
const SETTLED_MS: u64 = 2_000;

/// Target of every unit under the present view.
#[derive(Debug, Default)]
pub(super) struct Targets {
    /// Ready seats, in order.
    seats: Vec<String>,
    since: Mono,
    of: BTreeMap<String, String>,
    /// The set of units has changed since `of` was worked out.
    outdated: bool,
}

impl Targets {
    /// The set of units is another one.
    pub(super) fn units_changed(&mut self) {
        self.outdated = true;
    }

    /// The seats in view at `now`, in order.
    pub(super) fn see(&mut self, seats: Vec<String>, units: &BTreeSet<String>, now: Mono) {
        let same = self.seats == seats;
        if !same {
            self.seats = seats;
            self.since = now;
        }
        if !same || self.outdated {
            self.outdated = false;
            self.of = ring::targets(&self.seats, units.iter().map(String::as_str));
        }
    }

    /// The seat that the unit should be with; none while no seat is ready.
    pub(super) fn of(&self, unit: &str) -> Option<&str> {
        self.of.get(unit).map(String::as_str)
    }

    /// Whether the view may be followed. A seat that is alone has nobody to take turns with.
    pub(super) fn settled(&self, now: Mono) -> bool {
        self.seats.len() < 2 || now >= self.settles_at()
    }

    /// When the view may be followed, if it does not change before.
    pub(super) fn settles_at(&self) -> Mono {
        self.since + SETTLED_MS
    }
}
