//! The verdict for one member: the first test that fails, with what is needed, what there is, and which bound it is.
//! Knows the tests and their order (`placement.md` section 2). Must not know tables, or which member is chosen.

use super::pack::{fits_class, pack};
use super::picture::{Picture, Queue};
use super::shares::shares;
use crate::api::fleet::MemberVerdict;
use crate::plan::gang::{Gang, Task};
use crate::plan::quantity::{Limit, people, people_amount, short_name};

/// The verdict that lets a gang go.
pub const FITS: &str = "Fits";

/// Why a gang does not go, or that it does; everything but the member's name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Finding {
    /// `Fits` or the name of the test that failed.
    pub verdict: &'static str,
    /// Resource that is short; the tightest one where it fits.
    pub dimension: String,
    /// With unit.
    pub need: String,
    /// With unit.
    pub have: String,
    /// In words.
    pub bound: String,
    /// How much of the tightest bound would be left, in thousandths; 0 where it does not fit.
    pub room_permille: i128,
}

impl Finding {
    /// A test that failed without numbers.
    pub fn no(verdict: &'static str, bound: impl Into<String>) -> Self {
        Self { verdict, bound: bound.into(), ..Self::default() }
    }

    /// Whether the gang goes.
    pub fn fits(&self) -> bool {
        self.verdict == FITS
    }

    /// With the member's name, as it is stored.
    pub fn of(self, member: &str) -> MemberVerdict {
        MemberVerdict {
            member: member.to_owned(),
            verdict: self.verdict.to_owned(),
            dimension: self.dimension,
            need: self.need,
            have: self.have,
            bound: self.bound,
        }
    }

    fn short(verdict: &'static str, dimension: &str, need: i128, have: i128, bound: String) -> Self {
        Self {
            verdict,
            dimension: dimension.to_owned(),
            need: people(dimension, need),
            have: people(dimension, have),
            bound,
            room_permille: 0,
        }
    }
}

/// Tests a gang against a picture, gangs in flight counted before (`Picture::assume`).
pub fn judge(picture: &Picture, queue_name: &str, gang: &Gang) -> Finding {
    if picture.silent {
        return Finding::no(
            "SchedulerSilent",
            "Volcano's scheduler gives no sign of life: a PodGroup stays without any phase",
        );
    }
    if !picture.installed {
        return Finding::no("KindNotServed", "Volcano's Queue and PodGroup are not served");
    }
    let Some(queue) = picture.queues.get(queue_name) else {
        return Finding::no("QueueMissing", format!("there is no queue {queue_name}"));
    };
    if queue.state != "Open" {
        let state = if queue.state.is_empty() { "not open yet" } else { &queue.state };
        return Finding::no("QueueNotOpen", format!("queue {queue_name} is {state}"));
    }
    if picture.hierarchy {
        return Finding::no("QueueTreeInvalid", "queue trees (enableHierarchy) are not understood by this version");
    }
    let tests: [&dyn Fn() -> Option<Finding>; 5] = [
        &|| never(picture, queue_name, queue, gang),
        &|| queue_full(picture, queue_name, queue, gang),
        &|| overcommit(picture, gang),
        &|| run_gate(picture, queue_name, queue, gang),
        &|| fragmented(picture, gang),
    ];
    tests.iter().find_map(|test| test()).unwrap_or_else(|| fits(picture, queue_name, queue, gang))
}

/// What can never fit, however empty the member is.
fn never(picture: &Picture, name: &str, queue: &Queue, gang: &Gang) -> Option<Finding> {
    for (dimension, need) in gang.full.asked() {
        if picture.total.get(dimension) == 0 {
            return Some(Finding::short(
                "NeverFits",
                dimension,
                need,
                0,
                format!("no node has {}", short_name(dimension)),
            ));
        }
        if let Limit::At(most) = picture.real_capability(queue, dimension)
            && need > most
        {
            let bound = if queue.capability.as_capability(dimension) == Limit::At(most) {
                format!("capability of queue {name}")
            } else {
                format!(
                    "all nodes have {}, less guarantees of other queues",
                    people_amount(dimension, picture.total.get(dimension))
                )
            };
            return Some(Finding::short("NeverFits", dimension, need, most, bound));
        }
    }
    gang.tasks.iter().filter(|t| t.count > 0).find_map(|task| no_node(picture, task))
}

/// A pod that no node takes even when it is empty.
fn no_node(picture: &Picture, task: &Task) -> Option<Finding> {
    let large = |c: &&super::picture::Class| task.requests.over_node(&c.allocatable).is_none();
    if picture.classes.iter().any(|c| fits_class(c, task) && large(&c)) {
        return None;
    }
    if let Some(class) = picture.classes.iter().filter(|c| c.selected_by(task)).find(large) {
        let (key, value, effect) = class.repels(task)?;
        return Some(Finding::no(
            "TaintNotTolerated",
            format!("nodes that could take a pod of group {} have taint {key}={value}:{effect}", task.group),
        ));
    }
    let selected: Vec<_> = picture.classes.iter().filter(|c| c.selected_by(task)).collect();
    if selected.is_empty() {
        let labels: Vec<String> = task.node_selector.iter().map(|(k, v)| format!("{k}={v}")).collect();
        let bound = if labels.is_empty() {
            "no node takes pods".to_owned()
        } else {
            format!("no node that takes pods has the labels {} of group {}", labels.join(", "), task.group)
        };
        return Some(Finding::no("NeverFits", bound));
    }
    // The dimension in which even the best node is too small.
    for (dimension, need) in task.requests.iter() {
        let most = selected.iter().map(|c| c.allocatable.get(dimension)).max().unwrap_or(0);
        if need > most {
            let bound = format!("largest node for a pod of group {}", task.group);
            return Some(Finding::short("NeverFits", dimension, need, most, bound));
        }
    }
    Some(Finding::no(
        "NeverFits",
        format!("no node has all that a pod of group {} asks for: {}", task.group, task.requests.people()),
    ))
}

/// The enqueue test: m + A + I − E ≤ RC (specs/volcano.md 3.4).
fn queue_full(picture: &Picture, name: &str, queue: &Queue, gang: &Gang) -> Option<Finding> {
    for (dimension, need) in gang.min.asked() {
        let usage = queue.allocated.get(dimension) + queue.inqueue.get(dimension) - queue.elastic.get(dimension);
        let bound = picture.real_capability(queue, dimension).minus(usage);
        if let Limit::At(have) = bound
            && need > have
        {
            return Some(Finding::short(
                "QueueFull",
                dimension,
                need,
                have,
                limit_words(picture, name, queue, dimension),
            ));
        }
    }
    None
}

/// Which limit of a queue it is, with the amounts that are taken.
fn limit_words(picture: &Picture, name: &str, queue: &Queue, dimension: &str) -> String {
    let amount = |n| people_amount(dimension, n);
    let taken = format!(
        "− allocated {} − reserved {}",
        amount(queue.allocated.get(dimension)),
        amount(queue.inqueue.get(dimension))
    );
    match picture.real_capability(queue, dimension) {
        limit @ Limit::At(most) if limit == queue.capability.as_capability(dimension) => {
            format!("capability {} of queue {name} {taken}", amount(most))
        }
        Limit::At(most) => format!("{} for queue {name} beside guarantees of others {taken}", amount(most)),
        Limit::Unlimited => taken,
    }
}

/// Volcano's overcommit test (specs/volcano.md 3.5); then the same with factor 1 on nodes that take pods: reservations of
/// others count in full, whatever the factor (`placement.md` section 4).
fn overcommit(picture: &Picture, gang: &Gang) -> Option<Finding> {
    if let Some(factor) = picture.overcommit {
        for (dimension, need) in gang.min.asked() {
            let (total, used) = (picture.total.get(dimension), picture.used.get(dimension));
            let reserved = picture.reserved.get(dimension);
            // The same product in floating point as Volcano's, or a verdict at the very bound would differ.
            let idle = total as f64 * factor - used as f64;
            if (need + reserved) as f64 > idle {
                let amount = |n| people_amount(dimension, n);
                let bound = format!(
                    "allocatable {} × {factor} − used {} − promised {}",
                    amount(total),
                    amount(used),
                    amount(reserved)
                );
                return Some(Finding::short("Overcommit", dimension, need, idle.floor() as i128 - reserved, bound));
            }
        }
    }
    for (dimension, need) in gang.full.asked() {
        let have = picture.left_on_nodes(dimension);
        if need > have {
            let amount = |n| people_amount(dimension, n);
            let promised = picture.promised_of(dimension);
            let bound =
                format!("free on nodes {} − promised to admitted gangs {}", amount(have + promised), amount(promised));
            return Some(Finding::short("Overcommit", dimension, need, have, bound));
        }
    }
    None
}

/// What the queue may run (specs/volcano.md 3.6, 3.7): gangs that are admitted and have no pods yet count as running.
fn run_gate(picture: &Picture, name: &str, queue: &Queue, gang: &Gang) -> Option<Finding> {
    let taken = |q: &Queue, d: &str| q.allocated.get(d) + q.inqueue.get(d);
    if picture.capacity_plugin {
        for (dimension, need) in gang.full.asked() {
            if let Limit::At(have) = picture.real_capability(queue, dimension).minus(taken(queue, dimension))
                && need > have
            {
                return Some(Finding::short(
                    "RunGate",
                    dimension,
                    need,
                    have,
                    limit_words(picture, name, queue, dimension),
                ));
            }
        }
        return None;
    }
    let with_us = shares(picture, Some((name, &gang.full)));
    for (dimension, need) in gang.full.asked() {
        let share = with_us.get(name).and_then(|w| w.get(dimension)).copied().unwrap_or(0.0);
        if (need + taken(queue, dimension)) as f64 > share {
            let have = share.floor() as i128 - taken(queue, dimension);
            let bound = format!(
                "share {} of queue {name} by weight (proportion) − allocated and reserved {}",
                people_amount(dimension, share.floor() as i128),
                people_amount(dimension, taken(queue, dimension))
            );
            return Some(Finding::short("RunGate", dimension, need, have, bound));
        }
    }
    // A gang that another queue has admitted must not lose its share through our pods.
    let without_us = shares(picture, None);
    for (other, theirs) in picture.queues.iter().filter(|(other, q)| *other != name && !q.inqueue.is_zero()) {
        for (dimension, promised) in theirs.inqueue.asked() {
            let needs = taken(theirs, dimension) as f64;
            let share = |of: &std::collections::BTreeMap<String, super::shares::Share>| {
                of.get(other).and_then(|w| w.get(dimension)).copied().unwrap_or(0.0)
            };
            if needs > share(&with_us) && needs <= share(&without_us) {
                let bound = format!("its pods would hold back a gang that queue {other} has admitted (proportion)");
                return Some(Finding::short("RunGate", dimension, gang.full.get(dimension), 0, bound))
                    .filter(|_| promised > 0);
            }
        }
    }
    None
}

/// Places on nodes, after those of admitted gangs.
fn fragmented(picture: &Picture, gang: &Gang) -> Option<Finding> {
    let (left, words) = pack(&picture.classes, &picture.total, &picture.promised, &gang.tasks).err()?;
    let mut asks = left.requests.clone();
    asks.remove(crate::plan::quantity::PODS);
    let dimension = asks.asked().next().map(|(d, _)| d.to_string()).unwrap_or_default();
    Some(Finding {
        verdict: "Fragmented",
        dimension,
        need: format!("{} × {}", left.homeless + left.placed, asks.people()),
        have: format!("place for {}", left.placed),
        bound: format!("group {}: {words}", left.group),
        room_permille: 0,
    })
}

/// It fits: the dimension with the least room left says how well.
fn fits(picture: &Picture, name: &str, queue: &Queue, gang: &Gang) -> Finding {
    let mut best: Option<Finding> = None;
    for (dimension, need) in gang.full.asked() {
        let on_nodes = picture.left_on_nodes(dimension);
        let usage = queue.allocated.get(dimension) + queue.inqueue.get(dimension);
        let (have, bound) = match picture.real_capability(queue, dimension) {
            Limit::At(most) if most - usage <= on_nodes => (most - usage, limit_words(picture, name, queue, dimension)),
            _ => (on_nodes, "free on nodes".to_owned()),
        };
        let whole = picture.total.get(dimension).max(1);
        let room = (have - need).max(0) * 1000 / whole;
        if best.as_ref().is_none_or(|b| room < b.room_permille) {
            best = Some(Finding { room_permille: room, ..Finding::short(FITS, dimension, need, have, bound) });
        }
    }
    best.unwrap_or_else(|| Finding { room_permille: 1000, ..Finding::no(FITS, "asks for nothing") })
}

#[cfg(test)]
#[path = "verdict_tests.rs"]
mod tests;
