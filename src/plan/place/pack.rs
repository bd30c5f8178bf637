//! Whether a gang's pods fit on nodes, pod by pod: best fit, largest first. What it says fits can really be placed.
//! Knows selectors, taints and what nodes have left. Must not know queues.

use super::picture::Class;
use crate::plan::gang::Task;
use crate::plan::quantity::Resources;

/// Nodes as they fill up; equal ones together.
pub(super) struct Nodes<'a> {
    total: &'a Resources,
    bins: Vec<Bin<'a>>,
}

struct Bin<'a> {
    class: &'a Class,
    free: Resources,
    count: i64,
}

/// Pods that found no place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Left {
    /// Their group.
    pub(super) group: String,
    /// How many found none.
    pub(super) homeless: i64,
    /// How many of the group found one.
    pub(super) placed: i64,
    /// What one asks for.
    pub(super) requests: Resources,
}

/// How large a pod is: by its scarcest dimension, or by all together.
#[derive(Clone, Copy)]
enum Size {
    Scarcest,
    Sum,
}

impl<'a> Nodes<'a> {
    /// Nodes as they are now; `total` says how scarce a dimension is.
    fn new(classes: &'a [Class], total: &'a Resources) -> Self {
        let bins = classes.iter().map(|class| Bin { class, free: class.free.clone(), count: class.count }).collect();
        Self { total, bins }
    }

    /// Share of the whole that the amounts are, in millionths.
    fn size(&self, of: &Resources, size: Size) -> i128 {
        let parts =
            of.iter().filter(|(_, n)| *n > 0).map(|(d, n)| n.saturating_mul(1_000_000) / self.total.get(d).max(1));
        match size {
            Size::Scarcest => parts.max().unwrap_or(0),
            Size::Sum => parts.sum(),
        }
    }

    /// Places all pods that it can, largest first; says what is left of the first group that is not placed whole.
    fn place_all(&mut self, tasks: &[Task], size: Size) -> Option<Left> {
        let mut order: Vec<&Task> = tasks.iter().filter(|t| t.count > 0).collect();
        // Pods that few nodes take go first, then large ones.
        order.sort_by_cached_key(|task| {
            let nodes: i64 = self.bins.iter().filter(|b| fits_class(b.class, task)).map(|b| b.count).sum();
            (nodes, -self.size(&task.requests, size), task.group.clone())
        });
        let mut left = None;
        for task in order {
            for placed in 0..task.count {
                if !self.place(task, size) {
                    left.get_or_insert_with(|| Left {
                        group: task.group.clone(),
                        homeless: task.count - placed,
                        placed,
                        requests: task.requests.clone(),
                    });
                    break;
                }
            }
        }
        left
    }

    /// Places one pod on the node where the least is left afterwards.
    fn place(&mut self, task: &Task, size: Size) -> bool {
        let best = self
            .bins
            .iter()
            .enumerate()
            .filter(|(_, b)| b.count > 0 && fits_class(b.class, task) && task.requests.over_node(&b.free).is_none())
            .min_by_key(|(index, b)| (self.size(&b.free.clone().minus(&task.requests), size), *index))
            .map(|(index, _)| index);
        let Some(index) = best else { return false };
        let bin = &mut self.bins[index];
        let free = bin.free.clone().minus(&task.requests);
        if bin.count == 1 {
            bin.free = free;
        } else {
            bin.count -= 1;
            let class = bin.class;
            self.bins.push(Bin { class, free, count: 1 });
        }
        true
    }

    /// What nodes have left, in words: the fullest description that is short.
    fn free_for_people(&self, requests: &Resources) -> String {
        let mut seen: Vec<(String, i64)> = Vec::new();
        for bin in self.bins.iter().filter(|b| b.count > 0) {
            let mut free = Resources::new();
            for (dimension, _) in requests.asked() {
                free.set(dimension, bin.free.get(dimension));
            }
            let text = free.people();
            match seen.iter_mut().find(|(t, _)| *t == text) {
                Some((_, count)) => *count += bin.count,
                None => seen.push((text, bin.count)),
            }
        }
        seen.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
        let mut words: Vec<String> = seen
            .iter()
            .take(3)
            .map(|(text, n)| format!("{n} {} {text} free", if *n == 1 { "node has" } else { "nodes have" }))
            .collect();
        if seen.len() > 3 {
            words.push(format!("{} more", seen[3..].iter().map(|(_, n)| n).sum::<i64>()));
        }
        if words.is_empty() { "no node takes pods".to_owned() } else { words.join(", ") }
    }
}

/// Whether nodes of the class take such pods at all.
pub(super) fn fits_class(class: &Class, task: &Task) -> bool {
    class.selected_by(task) && class.repels(task).is_none()
}

/// Whether `tasks` can be placed after `before` took their places. `Err` says what is left, and what nodes have, in words.
pub(super) fn pack(
    classes: &[Class],
    total: &Resources,
    before: &[Task],
    tasks: &[Task],
) -> Result<(), (Left, String)> {
    let mut refusal = None;
    for size in [Size::Scarcest, Size::Sum] {
        let mut nodes = Nodes::new(classes, total);
        nodes.place_all(before, size);
        let words = Nodes { total, bins: nodes.bins.iter().map(Bin::again).collect() };
        match nodes.place_all(tasks, size) {
            None => return Ok(()),
            Some(left) => {
                let free = words.free_for_people(&left.requests);
                refusal.get_or_insert((left, free));
            }
        }
    }
    Err(refusal.expect("each order that fails says what is left"))
}

impl<'a> Bin<'a> {
    fn again(&self) -> Bin<'a> {
        Bin { class: self.class, free: self.free.clone(), count: self.count }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resources(list: &[(&str, &str)]) -> Resources {
        Resources::parse(list.iter().copied()).unwrap()
    }

    fn class(count: i64, free: &[(&str, &str)]) -> Class {
        Class { count, free: resources(free), allocatable: resources(free), ..Class::default() }
    }

    fn task(group: &str, count: i64, requests: &[(&str, &str)]) -> Task {
        Task { group: group.into(), count, requests: resources(requests), ..Task::default() }
    }

    #[test]
    fn e16_what_fits_in_sum_but_on_no_node_is_fragmented() {
        let classes = [class(4, &[("cpu", "6")])];
        let (left, words) =
            pack(&classes, &resources(&[("cpu", "64")]), &[], &[task("w", 3, &[("cpu", "8")])]).unwrap_err();
        assert_eq!((left.homeless, left.placed), (3, 0));
        assert_eq!(words, "4 nodes have cpu 6 free");
    }

    #[test]
    fn small_pods_leave_gpu_nodes_to_those_that_need_them() {
        let classes = [class(1, &[("cpu", "8"), ("nvidia.com/gpu", "4")]), class(1, &[("cpu", "8")])];
        let total = resources(&[("cpu", "16"), ("nvidia.com/gpu", "4")]);
        let gang = [task("head", 1, &[("cpu", "8")]), task("w", 4, &[("cpu", "2"), ("nvidia.com/gpu", "1")])];
        assert_eq!(pack(&classes, &total, &[], &gang), Ok(()));
    }

    #[test]
    fn places_that_are_promised_are_taken() {
        let classes = [class(2, &[("cpu", "8")])];
        let total = resources(&[("cpu", "16")]);
        assert!(pack(&classes, &total, &[], &[task("w", 2, &[("cpu", "8")])]).is_ok());
        assert!(pack(&classes, &total, &[task("p", 1, &[("cpu", "1")])], &[task("w", 2, &[("cpu", "8")])]).is_err());
    }

    #[test]
    fn the_number_of_pods_on_a_node_counts() {
        let classes = [class(1, &[("cpu", "8"), ("pods", "2")])];
        let total = resources(&[("cpu", "8")]);
        let pods = |n| [task("w", n, &[("cpu", "1"), ("pods", "1")])];
        assert!(pack(&classes, &total, &[], &pods(2)).is_ok());
        assert!(pack(&classes, &total, &[], &pods(3)).is_err());
    }

    /// Every gang that `pack` takes is placed by brute force too: `Fits` is never wrong. Seeded by a counter.
    #[test]
    fn what_is_said_to_fit_can_be_placed_and_most_of_what_can_be_placed_is_found() {
        fn possible(free: &mut [i128], pods: &[i128]) -> bool {
            let Some((first, rest)) = pods.split_first() else { return true };
            for i in 0..free.len() {
                if free[i] >= *first {
                    free[i] -= first;
                    let ok = possible(free, rest);
                    free[i] += first;
                    if ok {
                        return true;
                    }
                }
            }
            false
        }
        let (mut state, mut missed, mut feasible) = (7u64, 0, 0);
        let mut next = |n: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            i128::from((state >> 33) % n + 1)
        };
        for _ in 0..400 {
            let free: Vec<i128> = (0..3).map(|_| next(12)).collect();
            let pods: Vec<i128> = (0..5).map(|_| next(7)).collect();
            let unit = |n: i128| Resources::of([("cpu", crate::api::Quantity::from_nanos(n * 1_000_000_000))]);
            let classes: Vec<Class> = free
                .iter()
                .map(|n| Class { count: 1, free: unit(*n), allocatable: unit(*n), ..Class::default() })
                .collect();
            let tasks: Vec<Task> = pods
                .iter()
                .enumerate()
                .map(|(i, n)| Task { group: format!("g{i}"), count: 1, requests: unit(*n), ..Task::default() })
                .collect();
            let said = pack(&classes, &unit(36), &[], &tasks).is_ok();
            let can = possible(&mut free.clone(), &pods);
            assert!(!said || can, "free {free:?}, pods {pods:?}");
            feasible += i32::from(can);
            missed += i32::from(can && !said);
        }
        assert!(missed * 20 <= feasible, "missed {missed} of {feasible}");
    }
}
