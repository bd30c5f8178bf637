//! Our standing in units, and the barrier: a unit that was just gained is planned only on lists begun since then
//! (`sharding.md` 2.6).
//! Must not know how units are won.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::Standing;
use crate::api::{Kind, MemberName, Time};
use crate::row::Tables;

/// What is watched on the hub.
pub const HUB_KINDS: &[Kind] = &[
    Kind::RayJob,
    Kind::RayCluster,
    Kind::RayService,
    Kind::RayCronJob,
    Kind::Placement,
    Kind::PlacementPolicy,
    Kind::MemberCluster,
    Kind::MemberCapacity,
    Kind::PriorityClass,
];

/// What is watched on a member.
pub const MEMBER_KINDS: &[Kind] = &[
    Kind::RayJob,
    Kind::RayCluster,
    Kind::Pod,
    Kind::Service,
    Kind::Job,
    Kind::Node,
    Kind::PodGroup,
    Kind::Queue,
    Kind::PriorityClass,
    Kind::Namespace,
];

/// A unit that is ours.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Holding {
    /// Its fencing number.
    pub(super) epoch: u64,
    /// When we took it.
    pub(super) since: Time,
    /// The member's lists must have been begun since then: taken over, or its tables were dropped in between.
    pub(super) member_since: Time,
    /// A higher epoch of it was seen: nothing of it is sent until its record was read again.
    pub(super) doubted: bool,
    /// Its keys were woken after the hub's part of the barrier.
    pub(super) hub_passed: bool,
    /// Its keys were woken after the whole barrier.
    pub(super) passed: bool,
}

/// Units that are ours.
#[derive(Debug, Default)]
pub(super) struct Units {
    held: BTreeMap<Arc<str>, Holding>,
}

impl Units {
    pub(super) fn set(&mut self, unit: Arc<str>, standing: Standing, now: Time) {
        match standing {
            Standing::Held(epoch) if self.held.get(&unit).is_some_and(|h| h.epoch == epoch && !h.doubted) => {}
            Standing::Held(epoch) => {
                let holding =
                    Holding { epoch, since: now, member_since: now, doubted: false, hub_passed: false, passed: false };
                self.held.insert(unit, holding);
            }
            Standing::Lost => {
                self.held.remove(&unit);
            }
        }
    }

    pub(super) fn get(&self, unit: &str) -> Option<&Holding> {
        self.held.get(unit)
    }

    pub(super) fn get_mut(&mut self, unit: &str) -> Option<&mut Holding> {
        self.held.get_mut(unit)
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = (&Arc<str>, &mut Holding)> {
        self.held.iter_mut()
    }

    pub(super) fn all_passed(&self) -> bool {
        self.held.values().all(|holding| holding.passed)
    }

    pub(super) fn len(&self) -> usize {
        self.held.len()
    }

    /// Whether any unit of the member is ours.
    pub(super) fn holds_of(&self, member: &MemberName) -> bool {
        self.held.keys().any(|unit| member_of(unit) == Some(member.as_str()))
    }
}

/// The member whose unit this is; `None` for queue units. Names of members may hold dashes, indexes do not.
pub(super) fn member_of(unit: &str) -> Option<&str> {
    unit.strip_prefix("m-")?.rsplit_once('-').map(|(member, _)| member)
}

/// Whether what is written of a kind decides anything. Kinds of Ray's that no plan carries out decide nothing and are
/// waited for nowhere: a hub whose definitions or roles are older than this release goes on with what it has.
pub(super) fn decides(kind: Kind) -> bool {
    !matches!(kind, Kind::RayService | Kind::RayCronJob)
}

/// Since when all these kinds are known by a list, as far as they decide something: the time at which the oldest list
/// was begun; `None` before the first. A Volcano kind that the server does not serve counts as an empty list.
pub(super) fn listed_since(tables: &Tables, kinds: &[Kind]) -> Option<Time> {
    let listed = |kind: &Kind| {
        let table = tables.table(*kind);
        let unserved = if matches!(kind, Kind::PodGroup | Kind::Queue) { table.unserved } else { None };
        table.listed.max(unserved)
    };
    kinds.iter().filter(|kind| decides(**kind)).map(listed).min().flatten()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::Version;
    use crate::row::TableChange;

    #[test]
    fn only_kinds_that_decide_something_are_waited_for() {
        let mut tables = Tables::default();
        for kind in HUB_KINDS.iter().filter(|kind| decides(**kind)) {
            assert_eq!(listed_since(&tables, HUB_KINDS), None, "{kind}");
            let change =
                TableChange::Reset { rows: Vec::new(), quarantined: Vec::new(), version: Version(1), begun: Time(5) };
            tables.apply(*kind, change, Time(6));
        }
        assert_eq!(listed_since(&tables, HUB_KINDS), Some(Time(5)));
    }

    #[test]
    fn a_units_member_is_found_by_its_name() {
        assert_eq!(member_of("m-eu-0"), Some("eu"));
        assert_eq!(member_of("m-eu-west-1-12"), Some("eu-west-1"));
        assert_eq!(member_of("q-1f"), None);
    }
}
