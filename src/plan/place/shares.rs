//! Shares of queues under Volcano's proportion plugin: water filling, in its floating point (specs/volcano.md 3.6).
//! Must not know what is compared with them.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::picture::Picture;
use crate::plan::quantity::{Limit, Resources};

/// Volcano's tolerance in its general comparisons.
const EPSILON: f64 = 0.1;

/// Dimension → share of one queue.
pub(super) type Share = BTreeMap<Arc<str>, f64>;

struct Filling<'a> {
    name: &'a str,
    weight: f64,
    limit: BTreeMap<Arc<str>, f64>,
    guarantee: BTreeMap<Arc<str>, f64>,
    request: BTreeMap<Arc<str>, f64>,
    share: Share,
    satisfied: bool,
}

/// `W` of every queue that has a PodGroup, with `extra` added to the request of the queue it names.
pub(super) fn shares(picture: &Picture, extra: Option<(&str, &Resources)>) -> BTreeMap<String, Share> {
    let mut fillings = Vec::new();
    for (name, queue) in &picture.queues {
        let mut request = queue.requested.clone();
        let mut groups = queue.pod_groups;
        if let Some((of, more)) = extra
            && of == name
        {
            request.add(more);
            groups += 1;
        }
        if groups == 0 {
            continue;
        }
        let dimensions = || picture.total.iter().map(|(d, _)| d.clone());
        fillings.push(Filling {
            name,
            weight: queue.weight as f64,
            limit: dimensions()
                .filter_map(|d| match picture.real_capability(queue, &d) {
                    Limit::At(most) => Some((d, most as f64)),
                    Limit::Unlimited => None,
                })
                .collect(),
            guarantee: queue.guarantee.iter().map(|(d, n)| (d.clone(), n as f64)).collect(),
            request: request.iter().map(|(d, n)| (d.clone(), n as f64)).collect(),
            share: dimensions().map(|d| (d, 0.0)).collect(),
            satisfied: false,
        });
    }
    fill(&mut fillings, picture.total.iter().map(|(d, n)| (d.clone(), n as f64)).collect());
    fillings.into_iter().map(|f| (f.name.to_owned(), f.share)).collect()
}

fn fill(fillings: &mut [Filling], mut rest: BTreeMap<Arc<str>, f64>) {
    loop {
        let weights: f64 = fillings.iter().filter(|f| !f.satisfied).map(|f| f.weight).sum();
        if weights == 0.0 {
            return;
        }
        let before = rest.clone();
        let mut given: BTreeMap<Arc<str>, f64> = BTreeMap::new();
        for filling in fillings.iter_mut().filter(|f| !f.satisfied) {
            let old = filling.share.clone();
            for (dimension, share) in &mut filling.share {
                let get = |map: &BTreeMap<Arc<str>, f64>| map.get(dimension).copied().unwrap_or(0.0);
                *share += get(&before) * filling.weight / weights;
                *share = share.min(filling.limit.get(dimension).copied().unwrap_or(f64::INFINITY));
                *share = share.min(get(&filling.request)).max(get(&filling.guarantee));
            }
            let covered = filling.request.iter().all(|(d, n)| {
                *n <= filling.share.get(d).copied().unwrap_or(0.0) + EPSILON || !filling.share.contains_key(d)
            });
            filling.satisfied = covered || filling.share == old;
            for (dimension, share) in &filling.share {
                *given.entry(dimension.clone()).or_default() += share - old.get(dimension).copied().unwrap_or(0.0);
            }
        }
        for (dimension, amount) in &mut rest {
            *amount = (*amount - given.get(dimension).copied().unwrap_or(0.0)).max(0.0);
        }
        if rest.values().all(|n| *n < EPSILON) || rest == before {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::picture::Queue;
    use super::*;

    fn resources(list: &[(&str, &str)]) -> Resources {
        Resources::parse(list.iter().copied()).unwrap()
    }

    fn queue(weight: i64, request: &[(&str, &str)]) -> Queue {
        Queue { weight, requested: resources(request), pod_groups: 1, state: "Open".into(), ..Queue::default() }
    }

    fn cores(share: &Share) -> f64 {
        (share["cpu"] / 10.0).round() / 100.0
    }

    #[test]
    fn e6_water_filling() {
        let mut picture = Picture { total: resources(&[("cpu", "100")]), ..Picture::default() };
        picture.queues.insert("q1".into(), queue(1, &[("cpu", "20")]));
        picture.queues.insert("q2".into(), queue(1, &[("cpu", "100")]));
        picture.queues.insert("q3".into(), queue(2, &[("cpu", "100")]));
        let w: Vec<f64> = shares(&picture, None).values().map(cores).collect();
        assert_eq!(w, [20.0, 26.67, 53.33]);
        picture.queues.get_mut("q3").unwrap().capability = resources(&[("cpu", "40")]);
        let w: Vec<f64> = shares(&picture, None).values().map(cores).collect();
        assert_eq!(w, [20.0, 40.0, 40.0]);
    }

    #[test]
    fn e9_guarantee_and_capability() {
        let mut picture = Picture { total: resources(&[("cpu", "120"), ("memory", "480Gi")]), ..Picture::default() };
        let mut a = queue(1, &[("cpu", "8"), ("memory", "32Gi")]);
        a.guarantee = resources(&[("cpu", "20"), ("memory", "80Gi")]);
        let b = queue(2, &[("cpu", "80"), ("memory", "320Gi")]);
        let mut c = queue(3, &[("cpu", "42"), ("memory", "84Gi")]);
        c.capability = resources(&[("cpu", "36")]);
        picture.queues.extend([("a".to_owned(), a), ("b".to_owned(), b), ("c".to_owned(), c)]);
        let w = shares(&picture, None);
        let gib = |share: &Share| (share["memory"] / f64::from(1 << 30)).round();
        assert_eq!((cores(&w["a"]), gib(&w["a"])), (20.0, 80.0));
        assert_eq!((cores(&w["b"]), gib(&w["b"])), (64.0, 316.0));
        assert_eq!((cores(&w["c"]), gib(&w["c"])), (36.0, 84.0));
    }

    #[test]
    fn e7_two_queues_split_three_gpus_in_halves() {
        let mut picture = Picture { total: resources(&[("nvidia.com/gpu", "3")]), ..Picture::default() };
        picture.queues.insert("q1".into(), queue(1, &[("nvidia.com/gpu", "2")]));
        picture.queues.insert("q2".into(), queue(1, &[("nvidia.com/gpu", "2")]));
        let w = shares(&picture, None);
        assert_eq!((w["q1"]["nvidia.com/gpu"], w["q2"]["nvidia.com/gpu"]), (1500.0, 1500.0));
    }
}
