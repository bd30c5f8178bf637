//! Whether a member is there to be worked on, and what becomes of a `Placement` on one that is not.
//! Knows the finalizer that holds a `MemberCluster` while anything stands on its member, and the person's word that a
//! member is gone for good. Must not know members' objects.

use super::{Plan, Seen, Why, decision};
use crate::api::fleet::{Placement, Stage, Withdrawal};
use crate::api::names::{GONE_FOR_GOOD, MEMBER_FINALIZER};
use crate::api::{Kind, Time};
use crate::row::{Facts, Row, Tables};

/// A member's standing on the hub.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Registration {
    /// Its `MemberCluster` is there, maybe being deleted: what stands on it is worked on.
    Registered,
    /// A person deletes it and says that it is gone for good: nothing on it can run any more, nobody is asked there.
    GoneForGood,
    /// There is no `MemberCluster`: somebody took the finalizer off it, or bound to it by an old view.
    Missing,
}

/// How a member stands.
pub fn registration(hub: &Tables, member: &str) -> Registration {
    match hub.table(Kind::MemberCluster).get("", member) {
        None => Registration::Missing,
        Some(row) if row.deleting.is_some() && row.annotation(GONE_FOR_GOOD) == member => Registration::GoneForGood,
        Some(_) => Registration::Registered,
    }
}

/// Whether new work may go there: the finalizer stands, so that its end is noticed.
pub fn is_held(cluster: &Row) -> bool {
    cluster.has_finalizer(MEMBER_FINALIZER)
}

/// Whether an operator takes no new work there (`rayfleet member cordon`). One that is being removed takes none either,
/// and is not meant here: what stands on it goes on to its end.
pub fn is_cordoned(hub: &Tables, member: &str) -> bool {
    let row = hub.table(Kind::MemberCluster).get("", member);
    row.is_some_and(|row| matches!(&row.facts, Facts::MemberCluster(cluster) if cluster.spec.unschedulable))
}

/// The verdict on a cordoned member, in words.
pub fn cordoned(member: &str) -> String {
    format!("its operator takes no new work there until: rayfleet member uncordon {member}")
}

/// What becomes of a bound `Placement` whose member is not there; `None` where it is.
pub(super) fn without_member(seen: &Seen, row: &Row, decided: &Placement, now: Time) -> Option<Plan> {
    let member = decided.spec.member.as_deref()?;
    let message = match registration(seen.hub, member) {
        Registration::Registered => return None,
        // The person's word stands for fence, tombstone and Q: nothing that was sent there can happen any more.
        Registration::GoneForGood => format!("{member} is gone for good, by the word of its MemberCluster"),
        // Bound by an old view after the finalizer was let go: the one that binds sends nothing, and neither did we.
        Registration::Missing
            if decided.spec.stage == Stage::Reserving && !seen.me.sent && decision::is_clean(decided, seen.me) =>
        {
            format!("{member} is not registered any more")
        }
        Registration::Missing => return Some(Plan { why: Why::new(missing(member)), ..Plan::default() }),
    };
    let mut next = decided.clone();
    next.spec.withdrawal = Some(Withdrawal { reason: "MemberGone".into(), message: message.clone(), back_off: false });
    next.status.message.clone_from(&message);
    let next = decision::release(&next, seen.me, now);
    Some(Plan { actions: decision::put(row, &next).into_iter().collect(), why: Why::new(message), ..Plan::default() })
}

/// What is to be done about an object on a member whose `MemberCluster` was removed by force.
pub fn missing(member: &str) -> String {
    format!(
        "member {member} is not registered any more: register it again under this name; what is left of it there is then \
         taken away, or let go if that MemberCluster is deleted and annotated {GONE_FOR_GOOD}={member}"
    )
}
