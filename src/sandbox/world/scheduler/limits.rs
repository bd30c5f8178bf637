//! What a queue may have: its real capability, and its share in the proportion plugin (specs/volcano.md 3.6).
//! Must not know pods or sessions.

use std::collections::{BTreeMap, BTreeSet};

use super::amounts::Amounts;
use super::snapshot::{Queue, Snapshot};

/// Upper limit in one dimension; `f64::INFINITY` is none.
pub fn real_capability(snapshot: &Snapshot, queue: &Queue, name: &str) -> f64 {
    let guaranteed: f64 = snapshot.queues.values().map(|q| q.guarantee.get(name)).sum();
    let shared = (snapshot.total.get(name) - guaranteed).max(0.0) + queue.guarantee.get(name);
    let native = name == "cpu" || name == "memory";
    let own = match queue.capability.0.get(name) {
        // Zero means unlimited for cpu and memory, closed for all others.
        Some(amount) if !native || *amount > 0.0 => *amount,
        _ => f64::INFINITY,
    };
    shared.min(own)
}

/// The share of each queue that has PodGroups, by water filling over weights.
pub fn shares(snapshot: &Snapshot) -> BTreeMap<String, Amounts> {
    let mut requests: BTreeMap<&str, Amounts> = BTreeMap::new();
    for gang in snapshot.gangs.values() {
        requests.entry(&gang.queue).or_default().add(&gang.requested());
    }
    let names: BTreeSet<&str> = snapshot.total.0.keys().map(String::as_str).collect();
    let mut share: BTreeMap<&str, Amounts> = requests.keys().map(|q| (*q, Amounts::default())).collect();
    let mut rest = snapshot.total.clone();
    let mut done: BTreeSet<&str> = BTreeSet::new();
    // Ends at the latest when every queue was satisfied or nothing is handed out any more.
    for _ in 0..1000 {
        let weights: f64 = requests.keys().filter(|q| !done.contains(*q)).map(|q| snapshot.queues[*q].weight).sum();
        if weights <= 0.0 {
            break;
        }
        let (mut given, mut taken) = (Amounts::default(), Amounts::default());
        for (queue, request) in requests.iter().filter(|(q, _)| !done.contains(*q)).collect::<Vec<_>>() {
            let of = &snapshot.queues[*queue];
            let before = share[*queue].clone();
            let mut after = Amounts::default();
            for name in &names {
                let filled = before.get(name) + rest.get(name) * of.weight / weights;
                let within = filled.min(real_capability(snapshot, of, name)).min(request.get(name));
                after.0.insert((*name).to_owned(), within.max(of.guarantee.get(name)));
            }
            let satisfied =
                request.0.keys().all(|n| request.get(n) <= after.get(n) + 0.1 || !names.contains(n.as_str()));
            if satisfied || after == before {
                done.insert(queue);
            }
            given.add(&after.beyond(&before));
            taken.add(&before.beyond(&after));
            share.insert(queue, after);
        }
        let before = rest.clone();
        rest.add(&taken);
        rest.sub(&given);
        for amount in rest.0.values_mut() {
            *amount = amount.max(0.0);
        }
        if rest == before || rest.0.values().all(|a| *a <= 0.0) {
            break;
        }
    }
    share.into_iter().map(|(q, a)| (q.to_owned(), a)).collect()
}
