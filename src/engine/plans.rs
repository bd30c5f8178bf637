//! Which plan is which function.
//! Must not know anything else.

use super::Which;
use crate::api::{Id, Time};
use crate::plan::{Plan, Seen, Why};

/// Looks at one key.
pub(super) fn plan(which: Which, seen: &Seen<'_>, id: &Id, now: Time) -> Plan {
    let _ = (seen, now);
    Plan { why: Why::new(format!("{id}: plan {which:?} is not built yet")), ..Plan::default() }
}
