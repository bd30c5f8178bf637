//! One session of Volcano's scheduler on a picture of the cluster: enqueue, allocate, backfill, close.
//! Total function: picture and settings in, decisions out. Must not know requests.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::amounts::Amounts;
use super::limits::{real_capability, shares};
use super::machines::{choose, unavailable};
use super::snapshot::{Gang, Snapshot, Status};
use crate::sandbox::world::object::uid;

/// Which plugin limits queues.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum QueuePlugin {
    /// `capacity` without the tree.
    Capacity,
    /// `proportion`, Volcano's default.
    Proportion,
}

/// The scheduler's configuration.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Configuration {
    /// Which plugin limits queues.
    pub queue_plugin: QueuePlugin,
    /// Factor of the overcommit plugin; `None`: off. Below 1 it counts as 1.2.
    pub overcommit: Option<f64>,
    /// Overcommit stands in an earlier tier: its yes ends the vote.
    pub overcommit_first: bool,
    /// Whether the action enqueue is on.
    pub enqueue: bool,
}

impl Default for Configuration {
    fn default() -> Self {
        Self { queue_plugin: QueuePlugin::Proportion, overcommit: Some(1.2), overcommit_first: false, enqueue: true }
    }
}

/// What a session decided, besides the phases that stand in the gangs.
#[derive(Debug, Default)]
pub struct Decisions {
    /// UID of a pod → node.
    pub bind: Vec<(String, String)>,
    /// PodGroups refused at enqueue, with the words of the event.
    pub refused: BTreeMap<String, String>,
    /// PodGroups that are not ready at the session's end: reason and message of the condition.
    pub unready: BTreeMap<String, (String, String)>,
}

/// One session. Phases and tasks in the snapshot are changed; `held` PodGroups are not yet looked at by enqueue.
pub fn run(snapshot: &mut Snapshot, how: &Configuration, held: &BTreeSet<String>) -> Decisions {
    let mut out = Decisions::default();
    if how.enqueue {
        enqueue(snapshot, how, held, &mut out);
    }
    allocate(snapshot, how, held, &mut out);
    close(snapshot, &mut out);
    out
}

/// Every waiting PodGroup is tried, in order; a refused one does not block those behind it.
fn enqueue(snapshot: &mut Snapshot, how: &Configuration, held: &BTreeSet<String>, out: &mut Decisions) {
    let waits = |g: &Gang| g.phase.is_empty() || g.phase == "Pending";
    let mut order: Vec<String> =
        snapshot.gangs.iter().filter(|(p, g)| waits(g) && !held.contains(*p)).map(|(p, _)| p.clone()).collect();
    let queue_shares = queue_shares(snapshot, how);
    order.sort_by(|a, b| {
        let (ga, gb) = (&snapshot.gangs[a], &snapshot.gangs[b]);
        queue_order(snapshot, &queue_shares, &ga.queue, &gb.queue)
            .then(gb.priority.cmp(&ga.priority))
            .then(ga.created.cmp(&gb.created))
            .then(a.cmp(b))
    });
    for place in order {
        match admits(snapshot, how, &place) {
            Vote::Yes => {
                if let Some(gang) = snapshot.gangs.get_mut(&place) {
                    "Inqueue".clone_into(&mut gang.phase);
                }
            }
            Vote::No(Some(message)) => {
                out.refused.insert(place, message);
            }
            Vote::No(None) => {}
        }
    }
}

enum Vote {
    Yes,
    /// With the words of the event, if the refusal has any.
    No(Option<String>),
}

fn admits(snapshot: &Snapshot, how: &Configuration, place: &str) -> Vote {
    let gang = &snapshot.gangs[place];
    // Without a demand nobody is asked, not even whether the queue is open.
    let Some(demand) = &gang.min_resources else { return Vote::Yes };
    if let Some(factor) = how.overcommit {
        let short = overcommitted(snapshot, factor, demand);
        if !short.is_empty() {
            return Vote::No(Some(format!("resource in cluster is overused: overused {}", short.join(", "))));
        }
        if how.overcommit_first {
            return Vote::Yes;
        }
    }
    let queue = &snapshot.queues[&gang.queue];
    if !queue.open {
        return Vote::No(None);
    }
    let mut after = demand.clone();
    for other in snapshot.gangs.values().filter(|g| g.queue == gang.queue) {
        after.add(&other.allocated().0);
        after.add(&other.inqueue());
        after.sub(&other.elastic());
    }
    let short: Vec<String> = demand
        .asked()
        .filter(|(name, _)| *name != "pods" && after.get(name) > real_capability(snapshot, queue, name))
        .map(|(name, _)| format!("insufficient {name}"))
        .collect();
    if short.is_empty() {
        Vote::Yes
    } else {
        Vote::No(Some(format!("queue resource quota insufficient: {}", short.join(", "))))
    }
}

/// The dimensions in which the cluster would be promised beyond the factor (specs/volcano.md 3.5).
fn overcommitted(snapshot: &Snapshot, factor: f64, demand: &Amounts) -> Vec<String> {
    let factor = if factor < 1.0 { 1.2 } else { factor };
    let mut promised = demand.clone();
    for gang in snapshot.gangs.values() {
        let Some(min) = &gang.min_resources else { continue };
        let (have, count) = gang.allocated();
        match gang.phase.as_str() {
            // The whole demand, although its pods may be on nodes already.
            "Inqueue" => promised.add(&min.beyond(&gang.gated())),
            "Running" if count >= gang.min_member => promised.add(&min.beyond(&have)),
            _ => {}
        }
    }
    let used = |name: &str| snapshot.machines.values().map(|m| m.used.get(name)).sum::<f64>();
    // The same floating-point product as Volcano's: it decides ties.
    let short = demand
        .asked()
        .filter(|(name, _)| *name != "pods" && promised.get(name) > snapshot.total.get(name) * factor - used(name));
    short.map(|(name, _)| name.to_owned()).collect()
}

/// How much of its due a queue has: least first.
fn queue_shares(snapshot: &Snapshot, how: &Configuration) -> BTreeMap<String, f64> {
    let due = if how.queue_plugin == QueuePlugin::Proportion { shares(snapshot) } else { BTreeMap::new() };
    let share = |queue: &super::snapshot::Queue| {
        let due = match how.queue_plugin {
            QueuePlugin::Proportion => due.get(&queue.name).cloned().unwrap_or_default(),
            QueuePlugin::Capacity => queue.deserved.clone(),
        };
        let have = allocated_of(snapshot, &queue.name);
        let parts = due.0.iter().map(|(n, d)| if *d > 0.0 { have.get(n) / d } else { f64::from(have.get(n) > 0.0) });
        parts.fold(if due.0.is_empty() { 1.0 } else { 0.0 }, f64::max)
    };
    snapshot.queues.values().map(|q| (q.name.clone(), share(q))).collect()
}

fn queue_order(snapshot: &Snapshot, shares: &BTreeMap<String, f64>, a: &str, b: &str) -> std::cmp::Ordering {
    let (qa, qb) = (&snapshot.queues[a], &snapshot.queues[b]);
    qb.priority
        .cmp(&qa.priority)
        .then(shares[a].total_cmp(&shares[b]))
        .then(qa.created.cmp(&qb.created))
        .then(qa.name.cmp(&qb.name))
}

/// Requests of everything of a queue that holds room.
pub fn allocated_of(snapshot: &Snapshot, queue: &str) -> Amounts {
    let mut sum = Amounts::default();
    for gang in snapshot.gangs.values().filter(|g| g.queue == queue) {
        sum.add(&gang.allocated().0);
    }
    sum
}

/// Gangs by order, each placed as a whole or not at all; then one more pod at a time.
fn allocate(snapshot: &mut Snapshot, how: &Configuration, held: &BTreeSet<String>, out: &mut Decisions) {
    let due = if how.queue_plugin == QueuePlugin::Proportion { shares(snapshot) } else { BTreeMap::new() };
    let mut open: BTreeSet<String> = BTreeSet::new();
    for (place, gang) in &mut snapshot.gangs {
        if !how.enqueue && !held.contains(place) && (gang.phase.is_empty() || gang.phase == "Pending") {
            "Inqueue".clone_into(&mut gang.phase);
        }
        let started = !gang.phase.is_empty() && gang.phase != "Pending";
        if started && gang.is_valid() && gang.tasks.iter().any(|t| t.status == Status::Pending && !t.gated) {
            open.insert(place.clone());
        }
    }
    // Nodes that refused a role of a gang are not tried again for that role (no role: no memory).
    let mut refused: BTreeMap<(String, String), BTreeSet<String>> = BTreeMap::new();
    while let Some(place) = next_gang(snapshot, how, &due, &open) {
        let placed = place_gang(snapshot, how, &due, &place, &mut refused);
        out.bind.extend(placed.iter().cloned());
        let more = snapshot.gangs[&place].tasks.iter().any(|t| t.status == Status::Pending && !t.gated);
        if placed.is_empty() || !more {
            open.remove(&place);
        }
    }
}

fn next_gang(
    snapshot: &Snapshot,
    how: &Configuration,
    due: &BTreeMap<String, Amounts>,
    open: &BTreeSet<String>,
) -> Option<String> {
    let shares = queue_shares(snapshot, how);
    let usable = |g: &Gang| {
        let queue = &snapshot.queues[&g.queue];
        queue.open && !due.get(&g.queue).is_some_and(|share| used_up(share, &allocated_of(snapshot, &g.queue)))
    };
    let dominant = |g: &Gang| {
        let have = g.allocated().0;
        have.asked()
            .map(|(n, a)| if snapshot.total.get(n) > 0.0 { a / snapshot.total.get(n) } else { 0.0 })
            .fold(0.0, f64::max)
    };
    open.iter()
        .filter(|p| usable(&snapshot.gangs[*p]))
        .min_by(|a, b| {
            let (ga, gb) = (&snapshot.gangs[*a], &snapshot.gangs[*b]);
            queue_order(snapshot, &shares, &ga.queue, &gb.queue)
                .then(gb.priority.cmp(&ga.priority))
                .then(ga.is_ready().cmp(&gb.is_ready()))
                .then(dominant(ga).total_cmp(&dominant(gb)))
                .then(ga.created.cmp(&gb.created))
                .then(a.cmp(b))
        })
        .cloned()
}

fn used_up(share: &Amounts, have: &Amounts) -> bool {
    share.0.iter().all(|(name, due)| name == "pods" || *due <= have.get(name))
}

/// Places what makes the gang ready, or one more pod of a ready one. What it placed; nothing if that was not enough.
fn place_gang(
    snapshot: &mut Snapshot,
    how: &Configuration,
    due: &BTreeMap<String, Amounts>,
    place: &str,
    refused: &mut BTreeMap<(String, String), BTreeSet<String>>,
) -> Vec<(String, String)> {
    let mut placed: Vec<(usize, String)> = Vec::new();
    for at in 0..snapshot.gangs[place].tasks.len() {
        let gang = &snapshot.gangs[place];
        let task = gang.tasks[at].clone();
        if task.status != Status::Pending || task.gated {
            continue;
        }
        let found = if within_queue(snapshot, how, due, &gang.queue, &task.asks) {
            let not = refused.entry((place.to_owned(), task.role.clone())).or_default();
            let usable = snapshot.machines.values().filter(|m| task.role.is_empty() || !not.contains(&m.name));
            let found = choose(usable, &task.pod, &task.asks);
            not.extend(
                snapshot
                    .machines
                    .values()
                    .filter(|m| m.refuses(&task.pod, &task.asks).is_some())
                    .map(|m| m.name.clone()),
            );
            found.map_err(|reasons| unavailable(&reasons))
        } else {
            Err(String::new())
        };
        let Some(gang) = snapshot.gangs.get_mut(place) else { break };
        match found {
            Ok(node) => {
                gang.tasks[at].status = Status::Binding;
                if let Some(machine) = snapshot.machines.get_mut(&node) {
                    machine.used.add(&task.asks);
                }
                placed.push((at, node));
                if gang.is_ready() {
                    break;
                }
            }
            Err(message) => {
                gang.tasks[at].failure = Some(message);
                // One pod that finds no node ends the try of a gang, unless others may still make it ready.
                if gang.ready() + pending_behind(gang, at) < gang.min_member {
                    break;
                }
            }
        }
    }
    let Some(gang) = snapshot.gangs.get_mut(place) else { return Vec::new() };
    if gang.is_ready() {
        return placed.into_iter().map(|(at, node)| (uid(&gang.tasks[at].pod).to_owned(), node)).collect();
    }
    for (at, node) in placed {
        gang.tasks[at].status = Status::Pending;
        gang.tasks[at].possible = true;
        if let Some(machine) = snapshot.machines.get_mut(&node) {
            machine.used.sub(&gang.tasks[at].asks);
        }
    }
    Vec::new()
}

fn pending_behind(gang: &Gang, at: usize) -> i64 {
    gang.tasks[at + 1..].iter().filter(|t| t.status == Status::Pending && !t.gated).count() as i64
}

/// The run gate (specs/volcano.md 3.6): on the dimensions that the pod asks for.
fn within_queue(
    snapshot: &Snapshot,
    how: &Configuration,
    due: &BTreeMap<String, Amounts>,
    queue: &str,
    asks: &Amounts,
) -> bool {
    let have = allocated_of(snapshot, queue);
    let of = &snapshot.queues[queue];
    asks.asked().filter(|(name, _)| *name != "pods").all(|(name, amount)| {
        let limit = match how.queue_plugin {
            QueuePlugin::Capacity => real_capability(snapshot, of, name),
            QueuePlugin::Proportion => due.get(queue).map_or(0.0, |share| share.get(name)),
        };
        have.get(name) + amount <= limit
    })
}

/// Phases as at the end of a session (specs/volcano.md 2.3).
fn close(snapshot: &mut Snapshot, out: &mut Decisions) {
    for (place, gang) in &mut snapshot.gangs {
        let count = |wanted: &[Status]| gang.tasks.iter().filter(|t| wanted.contains(&t.status)).count() as i64;
        let running = count(&[Status::Running]);
        let over = count(&[Status::Succeeded, Status::Failed]);
        // Pods that end but still have a node count, too.
        let settled = running + over + count(&[Status::Bound, Status::Releasing]);
        let ready = gang.is_ready();
        if !ready && !gang.tasks.is_empty() {
            out.unready.insert(place.clone(), unready(gang));
        }
        let phase = if running > 0 && !ready {
            "Unknown"
        } else if settled >= gang.min_member {
            if over == settled { "Completed" } else { "Running" }
        } else if gang.phase == "Inqueue" {
            "Inqueue"
        } else {
            "Pending"
        };
        phase.clone_into(&mut gang.phase);
    }
}

/// Reason and message of the condition of a gang that is not ready.
fn unready(gang: &Gang) -> (String, String) {
    let reason = if gang.is_valid() { "NotEnoughResources" } else { "NotEnoughTasks" };
    let mut by_status: BTreeMap<String, i64> = BTreeMap::new();
    for task in &gang.tasks {
        *by_status.entry(format!("{:?}", task.status)).or_insert(0) += 1;
    }
    by_status.insert("minAvailable".to_owned(), gang.min_member);
    let counts: Vec<String> = by_status.iter().map(|(s, n)| format!("{n} {s}")).collect();
    let pending: Vec<_> = gang.tasks.iter().filter(|t| t.status == Status::Pending).collect();
    let possible = pending.iter().filter(|t| t.possible).count();
    let parts = [(possible, "Schedulable"), (pending.len() - possible, "Unschedulable")];
    let parts: Vec<String> = parts.iter().filter(|(n, _)| *n > 0).map(|(n, w)| format!("{n} {w}")).collect();
    let short = gang.min_member - gang.ready();
    let mut message = format!(
        "{short}/{} tasks in gang unschedulable: pod group is not ready, {}",
        gang.tasks.len(),
        counts.join(", ")
    );
    if !parts.is_empty() {
        message = format!("{message}; Pending: {}", parts.join(", "));
    }
    if let Some(why) = gang.tasks.iter().find_map(|t| t.failure.as_deref().filter(|f| !f.is_empty()).map(|f| (t, f))) {
        message = format!("{message}. Origin reason is {}: {}", crate::sandbox::world::object::name(&why.0.pod), why.1);
    }
    (reason.to_owned(), message)
}

/// Counts for the status of a PodGroup.
pub fn counts(gang: &Gang) -> [(&'static str, i64); 3] {
    let count = |wanted: Status| gang.tasks.iter().filter(|t| t.status == wanted).count() as i64;
    [("running", count(Status::Running)), ("succeeded", count(Status::Succeeded)), ("failed", count(Status::Failed))]
}

/// Whether a stored status says the same, apart from times and identifiers of sessions.
pub fn same_condition(a: &Value, b: &Value) -> bool {
    ["type", "status", "reason", "message"].iter().all(|f| a.get(f) == b.get(f))
}
