//! Undoing a placement: the Ray job is stopped, the slot becomes a tombstone, children are confirmed gone.
//! Knows `sharding.md` 1.6, 1.12 and E6. Must not know why it is undone, or what comes after `Waiting`.

use std::collections::BTreeSet;
use std::time::Duration;

use super::hidden::{Family, hidden_child};
use super::mirror::{self, Slot};
use super::ray_cluster::redis_cleanup::{self, Heir};
use super::registration::without_member;
use super::root::{Root, is_unreadable};
use super::{Action, Dashboard, Fetch, Member, Plan, Precondition, Propagation, Question, Seen, Why, decision};
use crate::api::fleet::{Placement, Stage};
use crate::api::names::{FOREGROUND_FINALIZER, REDIS_FINALIZER, TOMBSTONE_FINALIZER};
use crate::api::{Cluster, Id, Kind, RootId, Time, Uid};
use crate::row::{Row, Tables};

/// How long the end of a Ray job is waited for.
const STOP: Duration = Duration::from_secs(10);
/// A read that failed is repeated after this time.
const READ_AGAIN: Duration = Duration::from_secs(2);
/// Kinds that a root object has on a member and that are watched there.
pub const CHILD_KINDS: &[Kind] = &[Kind::RayCluster, Kind::Pod, Kind::Service, Kind::Job, Kind::PodGroup];

/// One look at a root object whose `Placement` is `Withdrawing`.
pub fn plan(seen: &Seen, id: &Id, now: Time) -> Plan {
    let Some(row) = seen.placement_of(id.kind.name(), &id.namespace, &id.name) else { return wait("has no Placement") };
    let Some(decided) = decision::of(row) else { return wait("its Placement cannot be read") };
    if decided.spec.stage != Stage::Withdrawing {
        return wait("its Placement is not being withdrawn");
    }
    if let Some(plan) = without_member(seen, row, decided, now) {
        return plan;
    }
    let Some(on) = seen.member else { return wait("its member is not seen") };
    if is_unreadable(on.tables, id) {
        return wait(format!("its mirror on {} cannot be read", on.name));
    }
    let (root, mirror) =
        (RootId::from(decided.spec.root.root_id.as_str()), decided.spec.mirror_uid.as_deref().map(Uid::from));
    let seen_mirror = on.tables.get(id).map(|row| &row.uid);
    let family = Family { namespace: &id.namespace, root: &root, mirror: mirror.as_ref().or(seen_mirror) };
    if let Some(why) = hidden_child(on.tables, family, seen.flags) {
        return wait(format!("an object on {} that may be of it cannot be read: {why}", on.name));
    }
    let clean = decision::is_clean(decided, seen.me);
    match mirror::slot(on.tables, id, decided) {
        Slot::Empty if clean && !seen.me.sent && !decided.spec.was_admitted => release(seen, row, decided, None, now),
        Slot::Empty => {
            // A create may still be under way: the name is taken first (E6).
            let namespace = Id::new(Kind::Namespace, "", id.namespace.clone());
            if on.tables.get(&namespace).is_none_or(|ns| ns.deleting.is_some()) {
                return release(seen, row, decided, None, now);
            }
            let root = seen.hub.get(id).and_then(Root::read);
            let create = mirror::create(on.name, id, decided, root.as_ref());
            act(vec![create], format!("takes its name on {} as a tombstone", on.name))
        }
        Slot::Ours(mirror) if mirror.deleting.is_none() => end(seen, on, row, decided, mirror, now),
        Slot::Ours(tombstone) => bury(seen, on, row, decided, tombstone, now),
        // An older tombstone holds the name: nothing of ours can have come beside it.
        Slot::Other(_, generation) if generation < decided.spec.generation => release(seen, row, decided, None, now),
        Slot::Other(_, generation) => {
            wait(format!("{} carries generation {generation}, which is later than its Placement", on.name))
        }
        Slot::Stranger(_) => release(seen, row, decided, None, now),
    }
}

fn wait(why: impl Into<std::sync::Arc<str>>) -> Plan {
    Plan { why: Why::new(why), ..Plan::default() }
}

fn act(actions: Vec<Action>, why: impl Into<std::sync::Arc<str>>) -> Plan {
    Plan { actions, ..wait(why) }
}

/// The mirror lives: its Ray job is stopped, then it is deleted.
fn end(seen: &Seen, on: Member, row: &Row, decided: &Placement, mirror: &Row, now: Time) -> Plan {
    if let Some(plan) = stop(seen, on, mirror, decision::stage_since(row, decided), now) {
        return plan;
    }
    if !mirror.has_finalizer(TOMBSTONE_FINALIZER) {
        // Without it the name would be free again too early.
        let Some(mut body) = decision::body(mirror) else { return wait("the mirror's body is missing") };
        let mut finalizers: Vec<serde_json::Value> = mirror.finalizers.iter().map(|f| f.to_string().into()).collect();
        finalizers.push(TOMBSTONE_FINALIZER.into());
        body["metadata"]["finalizers"] = finalizers.into();
        let cluster = Cluster::Member(on.name.clone());
        let put = Action::Replace { cluster, id: mirror.id.clone(), body, seen: Precondition::from(mirror) };
        return act(vec![put], "its mirror becomes a tombstone");
    }
    act(vec![delete(on, mirror, propagation(on.tables, mirror))], format!("its mirror on {} is deleted", on.name))
}

/// How a mirror is deleted: in the foreground the collector takes what is below it. But it would also take what state in
/// Redis is cleared with, a Job and copies of Secrets: those are left, and all else is deleted one by one (ADR 9).
pub fn propagation(tables: &Tables, mirror: &Row) -> Propagation {
    let mut family = std::iter::once(mirror).chain(children(tables, mirror));
    if family.any(redis_cleanup::is_held) { Propagation::Background } else { Propagation::Foreground }
}

/// Has the Ray job stopped, unless that was answered since `since`; asks for a limited time.
fn stop(seen: &Seen, on: Member, mirror: &Row, since: Time, now: Time) -> Option<Plan> {
    let until = since + STOP;
    let (dashboard, job) = running_job(mirror).filter(|_| now < until)?;
    let key = (on.name.clone(), dashboard.clone(), job.clone());
    if seen.rays.jobs.get(&key).and_then(|view| view.stopped).is_some_and(|at| at >= since) {
        return None;
    }
    let ask = Action::Ask { member: on.name.clone(), dashboard, question: Question::Stop { job } };
    let next = Some(until.min(now + Duration::from_secs(3)));
    Some(Plan { next, ..act(vec![ask], "its Ray job is stopped") })
}

/// Whether the Ray that a mirror's job runs on stays when all of the mirror is gone.
fn outlived_by_ray(mirror: &Row) -> bool {
    decision::body(mirror)
        .is_some_and(|body| body["spec"]["clusterSelector"].as_object().is_some_and(|s| !s.is_empty()))
}

/// Dashboard and submission id of a Ray job that has not ended, as far as the mirror's status tells.
fn running_job(mirror: &Row) -> Option<(Dashboard, std::sync::Arc<str>)> {
    if mirror.id.kind != Kind::RayJob {
        return None;
    }
    let body = decision::body(mirror)?;
    let status = &body["status"];
    if matches!(status["jobStatus"].as_str(), Some("STOPPED" | "SUCCEEDED" | "FAILED")) {
        return None;
    }
    let job = status["jobId"].as_str().filter(|j| !j.is_empty())?;
    let dashboard = Dashboard::of(&mirror.id.namespace, status["dashboardURL"].as_str()?)?;
    Some((dashboard, job.into()))
}

fn delete(on: Member, row: &Row, children: Propagation) -> Action {
    Action::Delete {
        cluster: Cluster::Member(on.name.clone()),
        id: row.id.clone(),
        seen: Precondition::from(row),
        children,
    }
}

/// The tombstone stands: what is left below it goes, and its absence is confirmed.
fn bury(seen: &Seen, on: Member, row: &Row, decided: &Placement, tombstone: &Row, now: Time) -> Plan {
    // Nobody plans it any more, so nobody else takes these off.
    if let Some(put) = mirror::put_without_finalizers(on.name, tombstone, |f| is_idle(tombstone, f)) {
        return act(vec![put], "finalizers of Ray are taken off its tombstone");
    }
    let (plan, left) = clear(seen, on, tombstone, Heir::None, now);
    if !left.is_empty() || tombstone.has_finalizer(FOREGROUND_FINALIZER) || redis_cleanup::is_held(tombstone) {
        let all = if left.is_empty() { "all of it".to_owned() } else { left.join(", ") };
        let more = if plan.why.0.is_empty() { String::new() } else { format!("; {}", plan.why.0) };
        let why = Why::new(format!("waits until {all} is gone on {}{more}", on.name));
        return Plan { why, ..plan };
    }
    // The read of the tombstone is asked for only here: that it was begun says since when it was seen without the
    // collector's mark. Lists begun later cannot miss a child (`sharding.md` 1.6).
    let marker = (Cluster::Member(on.name.clone()), tombstone.id.clone());
    let Some(confirmed) = confirmed_since(seen, &marker, tombstone) else {
        // A read that told nothing is not repeated at once.
        if let Some(again) = seen.fetched.get(&marker).map(|f| f.begun + READ_AGAIN).filter(|again| now < *again) {
            return Plan { next: Some(again), ..wait(format!("its tombstone on {} could not be read", on.name)) };
        }
        let fetch = Fetch { cluster: marker.0, id: marker.1, not_before: now };
        return Plan { fetch: vec![fetch], ..wait(format!("confirms that nothing of it is left on {}", on.name)) };
    };
    let relist: Vec<(Kind, Time)> = CHILD_KINDS
        .iter()
        .filter(|kind| on.tables.table(**kind).listed.is_none_or(|listed| listed < confirmed))
        .map(|kind| (*kind, confirmed))
        .collect();
    if !relist.is_empty() {
        return Plan { relist, ..wait(format!("confirms that nothing of it is left on {}", on.name)) };
    }
    // What its submitter sent last came after the first stop, and lives on with the RayCluster.
    if outlived_by_ray(tombstone)
        && let Some(plan) = stop(seen, on, tombstone, confirmed, now)
    {
        return plan;
    }
    release(seen, row, decided, Some(tombstone), now)
}

/// When the read was begun that showed this very tombstone without the collector's mark.
fn confirmed_since(seen: &Seen, marker: &(Cluster, Id), tombstone: &Row) -> Option<Time> {
    let fetched = seen.fetched.get(marker)?;
    let metadata = &fetched.body.as_ref()?["metadata"];
    let marked = metadata["finalizers"].as_array().into_iter().flatten().any(|f| f == FOREGROUND_FINALIZER);
    (metadata["uid"].as_str() == Some(&tombstone.uid.0) && !marked).then_some(fetched.begun)
}

/// A finalizer of Ray's on a tombstone or below it that nothing is done for any more: all but that of state in Redis.
pub fn is_idle(row: &Row, finalizer: &str) -> bool {
    let holds = finalizer == REDIS_FINALIZER && redis_cleanup::is_held(row);
    finalizer.starts_with("ray.io/") && !holds
}

/// Deletes every child of a tombstone that is seen, by UID, and names those that are still there. State in Redis is
/// cleared first of RayClusters that have some, the tombstone among them.
pub(super) fn clear(seen: &Seen, on: Member, tombstone: &Row, heir: Heir, now: Time) -> (Plan, Vec<String>) {
    let family = children(on.tables, tombstone);
    let held = |row: &&&Row| redis_cleanup::is_held(row);
    let clearing: Vec<&Row> = std::iter::once(&tombstone).chain(&family).filter(held).copied().collect();
    let (mut plan, mut left) = (Plan::default(), Vec::new());
    for cluster in clearing.iter().filter(|cluster| cluster.deleting.is_some()) {
        plan.join(redis_cleanup::withdrawn(seen, &cluster.id, heir, now));
    }
    for child in family {
        left.push(child.id.to_string());
        let actions = if redis_cleanup::clears(child) && !clearing.is_empty() {
            None
        } else if child.deleting.is_none() {
            Some(delete(on, child, Propagation::Background))
        } else {
            mirror::put_without_finalizers(on.name, child, |f| is_idle(child, f))
        };
        plan.join(Plan { actions: actions.into_iter().collect(), ..Plan::default() });
    }
    (plan, left)
}

/// What descends from an object by owner references, or carries its root id, or descends from what does.
pub fn children<'a>(tables: &'a Tables, of: &'a Row) -> Vec<&'a Row> {
    let mut found: BTreeSet<&Id> = BTreeSet::new();
    let mut open = vec![of];
    if let Some(root) = &of.root_id {
        let labelled = tables.of_root(root).filter(|r| r.id != of.id && r.id.namespace == of.id.namespace);
        for row in labelled.filter(|r| CHILD_KINDS.contains(&r.id.kind)) {
            found.insert(&row.id);
            open.push(row);
        }
    }
    while let Some(row) = open.pop() {
        for child in tables.owned_by(&row.uid) {
            if CHILD_KINDS.contains(&child.id.kind) && found.insert(&child.id) {
                open.push(child);
            }
        }
    }
    found.into_iter().filter_map(|id| tables.get(id)).collect()
}

/// `Waiting` again, when the rules allow it (`sharding.md` 1.12).
fn release(seen: &Seen, row: &Row, decided: &Placement, tombstone: Option<&Row>, now: Time) -> Plan {
    if decided.spec.was_admitted && !decision::is_clean(decided, seen.me) {
        let since = decision::stage_since(row, decided);
        let buried = tombstone.and_then(|t| t.deleting).map_or(since, |at| at.max(since));
        let free = buried.max(seen.me.since) + Duration::from_millis(seen.flags.tombstone_hold_ms);
        if now < free {
            let why = format!(
                "requests of a former owner may still be under way: it is placed again after {}",
                free.seconds_text()
            );
            return Plan { next: Some(free), ..wait(why) };
        }
    }
    let next = decision::release(decided, seen.me, now);
    act(decision::put(row, &next).into_iter().collect(), "is withdrawn")
}
