//! Which plan is which function.
//! Must not know anything else.

use super::Which;
use crate::api::{Id, MemberName, Time};
use crate::plan::{Plan, Seen, bound, member, place, ray_cluster, ray_job, reserve, withdraw};

/// Looks at one key: the plans that [`super::Engine::new`] has.
pub fn plan(which: Which, seen: &Seen<'_>, id: &Id, now: Time) -> Plan {
    match which {
        Which::Place => place::plan(seen, id, now),
        Which::Reserve => reserve::plan(seen, id, now),
        Which::Withdraw => withdraw::plan(seen, id, now),
        Which::Bound => bound::plan(seen, id, now),
        Which::RayJob => ray_job::plan(seen, id, now),
        Which::RayCluster => ray_cluster::plan(seen, id, now),
        Which::Member => member::plan(seen, &MemberName(id.name.clone()), now),
    }
}
