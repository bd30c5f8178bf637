//! A member as a whole: its registration, its published capacity, its conditions, copies that no `Placement` names.
//! Owner of `m-<m>-0`. Must not know how a root object is placed.

pub mod capacity;
mod conditions;
mod removal;
pub mod scheduler;
mod strays;
#[cfg(test)]
mod tests;

use std::time::Duration;

use serde_json::json;

use super::identity::{Identity, home, identity, put_mark, put_off_mark};
use super::registration::{Registration, registration};
use super::{Action, Member, Plan, Precondition, Seen, Why, decision};
use crate::api::fleet::{MemberCapacity, MemberCapacitySpec};
use crate::api::{Cluster, Id, Kind, MemberName, Time, Version};
use crate::row::{Facts, Row};

/// A picture that did not change is written again after this time.
const REFRESH: Duration = Duration::from_secs(30);
/// What the hub says of its own identity counts this long.
const HUB_COUNTS: Duration = Duration::from_mins(1);
/// A hub that does not say is asked again after this time.
const HUB_AGAIN: Duration = Duration::from_secs(5);
/// So often in a row: then it is one that keeps its namespaces from us, and the question is left open.
const HUB_FAILURES: u32 = 3;
/// A picture is written at most this often.
const WRITE_EVERY: Duration = Duration::from_secs(1);

/// One look at a member.
pub fn plan(seen: &Seen, member: &MemberName, now: Time) -> Plan {
    let Some(cluster) = seen.hub.table(Kind::MemberCluster).get("", member.as_str()) else {
        return Plan { why: Why::new("its MemberCluster is gone"), ..Plan::default() };
    };
    let mut plan = Plan { why: Why::new("watched"), ..Plan::default() };
    let held = removal::put(seen, cluster, member);
    if cluster.deleting.is_some() && held.is_some() {
        let marked = seen.member.and_then(|on| put_off_mark(member, cluster, on.tables, seen.flags));
        let gone = registration(seen.hub, member.as_str()) == Registration::GoneForGood;
        plan.actions.extend(marked.filter(|_| !gone).or(held));
        return Plan { why: Why::new("nothing is left there: let go"), ..plan };
    }
    // One write to one object: the conditions follow at the next look.
    plan.actions.extend(held.or_else(|| conditions::put(seen, cluster, member, now)));
    if registration(seen.hub, member.as_str()) == Registration::GoneForGood {
        plan.why = Why::new("gone for good: what stood there is given up");
        return plan;
    }
    let Some(on) = seen.member else { return plan };
    if seen.refused.contains_key(member) || !is_listed(on) {
        plan.why = Why::new("not seen yet");
        return plan;
    }
    match identity(cluster, on.tables, seen.flags) {
        Identity::Settled => {
            strays::plan(seen, on, now, &mut plan);
            publish(seen, on, cluster, now, &mut plan);
        }
        Identity::Marked => plan.why = Why::new("its identity is recorded"),
        Identity::Free if cluster.deleting.is_some() => plan.why = Why::new("let go"),
        Identity::Free => register(seen, on, cluster, now, &mut plan),
        Identity::Unseen(why) => plan.why = Why::new(why),
        Identity::Wrong(why) => {
            plan.why = Why::new(why.clone());
            write_picture(seen, on, cluster, unreachable(seen, why), now, &mut plan);
        }
    }
    plan
}

/// Takes the cluster for this registration, unless it is the hub itself. What the hub's own identity is, it may be asked.
fn register(seen: &Seen, on: Member, cluster: &Row, now: Time, plan: &mut Plan) {
    let asked = (Cluster::Hub, home());
    let Some(read) = seen.fetched.get(&asked).filter(|read| read.begun + HUB_COUNTS > now) else {
        plan.fetch.push(super::Fetch { cluster: asked.0, id: asked.1, not_before: now });
        return;
    };
    if conditions::is_hub(seen, on.tables) {
        plan.why = Why::new(conditions::THE_HUB);
        plan.next = Some(plan.next.map_or(now + HUB_COUNTS, |at| at.min(now + HUB_COUNTS)));
        return;
    }
    if read.error.is_some() && read.failures < HUB_FAILURES {
        let again = read.begun + HUB_AGAIN;
        plan.why = Why::new("the hub does not say which cluster it is");
        if again <= now {
            plan.fetch.push(super::Fetch { cluster: asked.0, id: asked.1, not_before: now });
        }
        plan.next = Some(plan.next.map_or(again.max(now + HUB_AGAIN), |at| at.min(again.max(now + HUB_AGAIN))));
        return;
    }
    plan.actions.extend(put_mark(on.name, cluster, on.tables, seen.flags));
    plan.why = Why::new("it is registered");
}

/// A picture that says nothing but why nothing can be placed there.
fn unreachable(seen: &Seen, why: String) -> MemberCapacitySpec {
    MemberCapacitySpec {
        counts_up_to: seen.me.placements_up_to.0,
        reachable: false,
        unreachable_reason: why,
        ..MemberCapacitySpec::default()
    }
}

/// Whether enough was listed to say anything about the member.
fn is_listed(on: Member) -> bool {
    [Kind::Namespace, Kind::Node, Kind::Pod, Kind::RayJob, Kind::RayCluster]
        .iter()
        .all(|kind| on.tables.table(*kind).listed.is_some())
}

/// Writes the picture: on change at most once a second, and every 30 s.
fn publish(seen: &Seen, on: Member, cluster: &Row, now: Time, plan: &mut Plan) {
    let config = Id::new(Kind::ConfigMap, scheduler::NAMESPACE, scheduler::CONFIG_MAP);
    let read = seen.fetched.get(&(Cluster::Member(on.name.clone()), config.clone()));
    if read.is_none_or(|f| f.begun + scheduler::READ_EVERY <= now) {
        plan.fetch.push(super::Fetch { cluster: Cluster::Member(on.name.clone()), id: config, not_before: now });
        if read.is_none() {
            // Without it the first picture would be one of assumptions.
            return;
        }
    }
    let mut spec = capacity::observe(seen, on, now, &|_| false).unwrap_or_else(|why| {
        let why = format!("its capacity cannot be counted: {why}");
        plan.why = Why::new(why.clone());
        unreachable(seen, why)
    });
    spec.tombstones = strays::held(seen.hub, on, seen.flags);
    write_picture(seen, on, cluster, spec, now, plan);
}

fn write_picture(seen: &Seen, on: Member, cluster: &Row, mut spec: MemberCapacitySpec, now: Time, plan: &mut Plan) {
    let row = seen.hub.table(Kind::MemberCapacity).get("", on.name.as_str());
    let stored = row.and_then(|row| match &row.facts {
        Facts::MemberCapacity(stored) => Some((row, stored)),
        _ => None,
    });
    let Some((row, stored)) = stored else {
        spec.observed_at = now.micro_text();
        plan.actions.push(create(on, cluster, &spec));
        return;
    };
    let received = seen.capacity_received.get(on.name.as_str()).map_or(now, |received| received.at);
    let due = received + if differs(seen, on, &stored.spec, &spec) { WRITE_EVERY } else { REFRESH };
    if now < due {
        plan.next = Some(plan.next.map_or(due, |at| at.min(due)));
        return;
    }
    spec.observed_at = now.micro_text();
    plan.next = Some(plan.next.map_or(now + REFRESH, |at| at.min(now + REFRESH)));
    plan.actions.extend(replace(row, &spec));
}

/// Whether the picture says something else, or `Placement`s of this member wait to be counted.
fn differs(seen: &Seen, on: Member, stored: &MemberCapacitySpec, fresh: &MemberCapacitySpec) -> bool {
    let same = MemberCapacitySpec {
        observed_at: stored.observed_at.clone(),
        counts_up_to: stored.counts_up_to,
        ..fresh.clone()
    } == *stored;
    let uncounted = seen.hub.rows(Kind::Placement).any(|row| {
        let here = decision::of(row).is_some_and(|p| p.spec.member.as_deref() == Some(on.name.as_str()));
        here && row.version > Version(stored.counts_up_to) && row.version <= Version(fresh.counts_up_to)
    });
    !same || uncounted
}

fn create(on: Member, cluster: &Row, spec: &MemberCapacitySpec) -> Action {
    let body = json!({
        "apiVersion": Kind::MemberCapacity.api_version(),
        "kind": Kind::MemberCapacity.name(),
        "metadata": {
            "name": on.name.as_str(),
            "ownerReferences": [{
                "apiVersion": Kind::MemberCluster.api_version(),
                "kind": Kind::MemberCluster.name(),
                "name": cluster.id.name,
                "uid": cluster.uid,
            }],
        },
        "spec": spec,
    });
    Action::Create { cluster: Cluster::Hub, id: Id::new(Kind::MemberCapacity, "", on.name.0.clone()), body }
}

fn replace(row: &Row, spec: &MemberCapacitySpec) -> Option<Action> {
    let mut body = decision::body(row)?;
    body["spec"] = serde_json::to_value(&MemberCapacity { spec: spec.clone() }.spec).ok()?;
    Some(Action::Replace { cluster: Cluster::Hub, id: row.id.clone(), body, seen: Precondition::from(row) })
}
