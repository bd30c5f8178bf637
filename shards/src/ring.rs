//! The ring: in which order seats are preferred for a unit, and with a cap, which seat a unit should be with.
//! Must not know who holds it now.

use std::collections::BTreeMap;
use std::hash::{BuildHasher, Hash, Hasher};

use hashring::HashRing;

use crate::hash::xxh3;

/// Tokens of one seat on the ring.
pub const TOKENS: u32 = 200;
/// No seat gets more than this share of its fair part, in percent.
pub const CAP_PERCENT: u64 = 125;

/// One token of a seat.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Token {
    seat: String,
    number: u32,
}

impl Hash for Token {
    fn hash<H: Hasher>(&self, state: &mut H) {
        // Bytes, so that word size and std's own way of hashing strings do not matter.
        state.write(format!("{}/{}", self.seat, self.number).as_bytes());
    }
}

/// A unit's name as a key of the ring.
struct Point<'a>(&'a str);

impl Hash for Point<'_> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write(self.0.as_bytes());
    }
}

/// xxh3 with the fixed seed; the default hasher is not pinned.
#[derive(Clone, Copy, Debug, Default)]
struct Pinned;

#[derive(Default)]
struct PinnedHasher(Vec<u8>);

impl Hasher for PinnedHasher {
    fn finish(&self) -> u64 {
        xxh3(&self.0)
    }
    fn write(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(bytes);
    }
}

impl BuildHasher for Pinned {
    type Hasher = PinnedHasher;
    fn build_hasher(&self) -> PinnedHasher {
        PinnedHasher::default()
    }
}

/// Which seat each unit should be with: the first seat on the ring after the unit that is below the cap
/// ceil(1.25 × fair share); units are visited in the order of their hash. Same sets, same answer, in every process.
pub fn targets<'a>(seats: &[String], units: impl IntoIterator<Item = &'a str>) -> BTreeMap<String, String> {
    if seats.is_empty() {
        return BTreeMap::new();
    }
    let mut ring = HashRing::with_hasher(Pinned);
    ring.batch_add(
        seats.iter().flat_map(|seat| (0..TOKENS).map(|number| Token { seat: seat.clone(), number })).collect(),
    );
    let mut units: Vec<&str> = units.into_iter().collect();
    units.sort_by_key(|unit| (xxh3(unit.as_bytes()), *unit));
    units.dedup();
    let cap = (units.len() as u64 * CAP_PERCENT).div_ceil(100 * seats.len() as u64).max(1);
    let mut load: BTreeMap<&str, u64> = BTreeMap::new();
    let mut targets = BTreeMap::new();
    for unit in units {
        let order = ring.get_with_replicas(&Point(unit), ring.len() - 1).unwrap_or_default();
        let seat = order
            .iter()
            .map(|token| token.seat.as_str())
            .find(|seat| load.get(seat).copied().unwrap_or(0) < cap)
            .and_then(|found| seats.iter().find(|seat| *seat == found));
        if let Some(seat) = seat {
            *load.entry(seat).or_default() += 1;
            targets.insert(unit.to_owned(), seat.clone());
        }
    }
    targets
}

#[cfg(test)]
mod tests {
    use super::*;

    fn units(n: u32) -> Vec<String> {
        (0..n).map(|i| format!("m-x-{i}")).collect()
    }

    fn seats(n: u32) -> Vec<String> {
        (0..n).map(|i| format!("rayfleet-{i}")).collect()
    }

    #[test]
    fn every_unit_has_one_seat_and_no_seat_is_above_the_cap() {
        for n in [1, 2, 3, 10] {
            let units = units(256);
            let targets = targets(&seats(n), units.iter().map(String::as_str));
            assert_eq!(targets.len(), 256);
            let mut load: BTreeMap<&str, u64> = BTreeMap::new();
            for seat in targets.values() {
                *load.entry(seat).or_default() += 1;
            }
            let cap = (256 * CAP_PERCENT).div_ceil(100 * u64::from(n));
            assert!(load.values().all(|l| *l <= cap), "{n} seats: {load:?} above {cap}");
        }
    }

    #[test]
    fn a_seat_that_joins_moves_about_its_share() {
        let units = units(1024);
        let of = |n| targets(&seats(n), units.iter().map(String::as_str));
        let (before, after) = (of(10), of(11));
        let moved = before.iter().filter(|(unit, seat)| after[*unit] != **seat).count();
        assert!((60..=140).contains(&moved), "{moved} of 1024 moved; the ideal is 93");
    }

    #[test]
    fn the_ring_is_pinned() {
        let units = ["m-eu-0", "m-eu-1", "m-us-0", "q-00", "q-1f", "q-3f"];
        let got: Vec<_> = targets(&seats(3), units).into_iter().map(|(u, s)| format!("{u}={s}")).collect();
        assert_eq!(got, GOLDEN);
    }

    const GOLDEN: &[&str] = &[
        "m-eu-0=rayfleet-1",
        "m-eu-1=rayfleet-0",
        "m-us-0=rayfleet-2",
        "q-00=rayfleet-1",
        "q-1f=rayfleet-2",
        "q-3f=rayfleet-0",
    ];
}
