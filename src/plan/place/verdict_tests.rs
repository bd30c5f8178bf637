//! Worked examples of specs/volcano.md 3.9 for flat queues, by their numbers.
//! Must not know where pictures come from.

use super::super::picture::Class;
use super::*;
use crate::plan::quantity::Resources;

fn resources(list: &[(&str, &str)]) -> Resources {
    Resources::parse(list.iter().copied()).unwrap()
}

fn cpu(n: &str) -> Resources {
    resources(&[("cpu", n)])
}

/// One node with everything; what is used is taken from it.
fn world(total: Resources, used: Resources) -> Picture {
    let free = total.clone().minus(&used);
    Picture {
        installed: true,
        capacity_plugin: true,
        classes: vec![Class { count: 1, free, allocatable: total.clone(), ..Class::default() }],
        total,
        used,
        ..Picture::default()
    }
}

fn open() -> Queue {
    Queue { state: "Open".into(), weight: 1, pod_groups: 1, ..Queue::default() }
}

fn gang_of(pods: &[(i64, Resources)]) -> Gang {
    let mut gang = Gang::default();
    for (count, requests) in pods {
        gang.full.add(&requests.times(*count));
        gang.tasks.push(Task { group: "w".into(), count: *count, requests: requests.clone(), ..Task::default() });
    }
    gang.min = gang.full.clone();
    gang
}

fn gang(requests: Resources) -> Gang {
    gang_of(&[(1, requests)])
}

/// Verdict and short dimension.
fn said(picture: &Picture, queue: &str, gang: &Gang) -> (String, String) {
    let finding = judge(picture, queue, gang);
    let dimension = if finding.fits() { String::new() } else { finding.dimension };
    (finding.verdict.to_owned(), dimension)
}

fn is(verdict: &str, dimension: &str) -> (String, String) {
    (verdict.to_owned(), dimension.to_owned())
}

fn e1() -> Picture {
    let gpu = "nvidia.com/gpu";
    let mut p = world(
        resources(&[("cpu", "64"), ("memory", "256Gi"), (gpu, "8")]),
        resources(&[("cpu", "24"), ("memory", "96Gi")]),
    );
    let promised = resources(&[("cpu", "16"), ("memory", "64Gi")]);
    p.reserved = promised.clone();
    let a = Queue {
        allocated: resources(&[("cpu", "24"), ("memory", "96Gi")]),
        inqueue: promised,
        pod_groups: 2,
        ..open()
    };
    let b = Queue { guarantee: resources(&[("cpu", "16"), ("memory", "64Gi")]), ..open() };
    p.queues.extend([("a".to_owned(), a), ("b".to_owned(), b)]);
    p
}

#[test]
fn e1_a_guarantee_of_another_queue_is_kept_free() {
    let p = e1();
    let ask = |list: &[(&str, &str)]| said(&p, "a", &gang(resources(list)));
    assert_eq!(ask(&[("cpu", "8"), ("memory", "32Gi")]), is("Fits", ""));
    assert_eq!(ask(&[("cpu", "8001m"), ("memory", "32Gi")]), is("QueueFull", "cpu"));
    assert_eq!(ask(&[("memory", "33Gi")]), is("QueueFull", "memory"));
    assert_eq!(ask(&[("cpu", "8"), ("memory", "32Gi"), ("nvidia.com/gpu", "8")]), is("Fits", ""));
    assert_eq!(ask(&[("cpu", "8"), ("memory", "32Gi"), ("nvidia.com/gpu", "9")]), is("NeverFits", "nvidia.com/gpu"));
    assert_eq!(ask(&[("cpu", "1"), ("amd.com/gpu", "1")]), is("NeverFits", "amd.com/gpu"));
}

#[test]
fn e2_what_a_running_gang_uses_beyond_its_minimum_passes_enqueue_but_not_the_run_gate() {
    let mut p = world(cpu("64"), cpu("20"));
    let c = Queue { capability: cpu("24"), allocated: cpu("20"), elastic: cpu("12"), ..open() };
    p.queues.insert("c".into(), c);
    assert_eq!(said(&p, "c", &gang(cpu("4"))), is("Fits", ""));
    assert_eq!(said(&p, "c", &gang(cpu("5"))), is("RunGate", "cpu"));
    assert_eq!(said(&p, "c", &gang(cpu("16"))), is("RunGate", "cpu"));
    assert_eq!(said(&p, "c", &gang(cpu("17"))), is("QueueFull", "cpu"));
}

#[test]
fn e3_a_gang_without_min_resources_is_invisible_to_enqueue() {
    let mut p = world(cpu("64"), cpu("20"));
    p.queues.insert("c".into(), Queue { capability: cpu("24"), allocated: cpu("20"), elastic: cpu("20"), ..open() });
    assert_eq!(said(&p, "c", &gang(cpu("24"))), is("RunGate", "cpu"));
    assert_eq!(said(&p, "c", &gang(cpu("4"))), is("Fits", ""));
}

#[test]
fn e4_a_half_placed_reservation_counts_once() {
    let mut p = world(cpu("64"), cpu("12"));
    p.reserved = cpu("16");
    p.queues.insert("c".into(), Queue { capability: cpu("24"), allocated: cpu("12"), inqueue: cpu("4"), ..open() });
    assert_eq!(said(&p, "c", &gang(cpu("8"))), is("Fits", ""));
    assert_eq!(said(&p, "c", &gang(cpu("9"))), is("QueueFull", "cpu"));
}

#[test]
fn e5_guarantees_bound_everyone_else() {
    let picture = |total: &str| {
        let mut p = world(cpu(total), cpu("0"));
        p.queues.insert("a".into(), Queue { guarantee: cpu("30"), ..open() });
        p.queues.insert("b".into(), Queue { guarantee: cpu("50"), ..open() });
        p.queues.insert("c".into(), Queue { capability: cpu("40"), ..open() });
        p
    };
    let limits = |p: &Picture| ["a", "b", "c"].map(|q| p.real_capability(&p.queues[q], "cpu"));
    assert_eq!(limits(&picture("100")), [Limit::At(50_000), Limit::At(70_000), Limit::At(20_000)]);
    assert_eq!(limits(&picture("60")), [Limit::At(30_000), Limit::At(50_000), Limit::At(0)]);
    assert_eq!(said(&picture("60"), "c", &gang(cpu("1"))), is("NeverFits", "cpu"));
}

#[test]
fn e8_a_share_by_weight_can_refuse_what_enqueue_lets_in() {
    let mut p = world(cpu("100"), cpu("60"));
    p.capacity_plugin = false;
    p.overcommit = Some(1.2);
    p.queues.insert("q1".into(), Queue { allocated: cpu("60"), requested: cpu("60"), ..open() });
    p.queues.insert("q2".into(), Queue { requested: cpu("45"), ..open() });
    assert_eq!(said(&p, "q1", &gang(cpu("10"))), is("RunGate", "cpu"));
    let mut p2 = p.clone();
    p2.queues.get_mut("q1").unwrap().requested = cpu("70");
    p2.queues.get_mut("q2").unwrap().requested = Resources::new();
    assert_eq!(said(&p2, "q2", &gang_of(&[(3, cpu("15"))])), is("Overcommit", "cpu"), "only 40 are free");
}

#[test]
fn e9_a_share_admits_three_more_tasks_and_not_a_fourth() {
    let both = |c: &str, m: &str| resources(&[("cpu", c), ("memory", m)]);
    let mut p = world(both("120", "480Gi"), both("70", "220Gi"));
    p.capacity_plugin = false;
    let a = Queue { guarantee: both("20", "80Gi"), requested: both("8", "32Gi"), ..open() };
    let b = |request: Resources| Queue { weight: 2, allocated: both("40", "160Gi"), requested: request, ..open() };
    let c = Queue {
        weight: 3,
        capability: cpu("36"),
        allocated: both("30", "60Gi"),
        requested: both("42", "84Gi"),
        ..open()
    };
    p.queues.extend([("a".to_owned(), a), ("b".to_owned(), b(both("56", "224Gi"))), ("c".to_owned(), c)]);
    assert_eq!(said(&p, "b", &gang_of(&[(3, both("8", "32Gi"))])), is("Fits", ""));
    p.queues.insert("b".into(), b(both("48", "192Gi")));
    assert_eq!(said(&p, "b", &gang_of(&[(4, both("8", "32Gi"))])), is("RunGate", "cpu"));
    assert_eq!(said(&p, "c", &gang(both("12", "24Gi"))), is("QueueFull", "cpu"));
}

#[test]
fn e10_overcommit_counts_reservations_in_full() {
    let mut p = world(cpu("100"), cpu("90"));
    p.overcommit = Some(1.2);
    p.queues.insert("q".into(), open());
    assert_eq!(said(&p, "q", &gang(cpu("10"))), is("Fits", ""));
    p.reserved = cpu("20");
    p.queues.get_mut("q").unwrap().inqueue = cpu("20");
    assert_eq!(said(&p, "q", &gang(cpu("11"))), is("Overcommit", "cpu"));
    let finding = judge(&p, "q", &gang(cpu("11")));
    assert_eq!((&*finding.need, &*finding.have), ("cpu 11", "cpu 10"));
    assert_eq!(finding.bound, "allocatable 100 × 1.2 − used 90 − promised 20");
    // Volcano itself would let 10 in; places of others count in full here.
    assert_eq!(judge(&p, "q", &gang(cpu("10"))).bound, "free on nodes 10 − promised to admitted gangs 20");
}

#[test]
fn the_overcommit_bound_is_volcanos_floating_point_product() {
    let mut p = world(cpu("3"), cpu("0"));
    p.overcommit = Some(1.15);
    p.queues.insert("q".into(), open());
    let refused = overcommit(&p, &Gang { min: cpu("3450m"), ..Gang::default() });
    assert_eq!(refused.map(|f| f.verdict), Some("Overcommit"));
    p.total = cpu("4");
    assert_eq!(overcommit(&p, &Gang { min: cpu("4600m"), ..Gang::default() }), None);
}

#[test]
fn e11_and_e12_survivors_of_a_gang_keep_their_part_only() {
    let mut p = world(cpu("64"), cpu("4"));
    p.queues.insert("d".into(), Queue { capability: cpu("10"), allocated: cpu("4"), ..open() });
    assert_eq!(said(&p, "d", &gang(cpu("10"))), is("QueueFull", "cpu"));
    assert_eq!(said(&p, "d", &gang(cpu("6"))), is("Fits", ""));
    p.queues.insert("d".into(), Queue { capability: cpu("10"), allocated: cpu("4"), inqueue: cpu("6"), ..open() });
    assert_eq!(said(&p, "d", &gang(cpu("1"))), is("QueueFull", "cpu"));
}

#[test]
fn e16_a_sum_that_no_node_has_is_fragmented() {
    let mut p = world(cpu("64"), cpu("40"));
    p.overcommit = Some(1.2);
    p.classes = vec![Class { count: 4, free: cpu("6"), allocatable: cpu("16"), ..Class::default() }];
    p.queues.insert("q".into(), open());
    let finding = judge(&p, "q", &gang_of(&[(3, cpu("8"))]));
    assert_eq!((finding.verdict, &*finding.need, &*finding.have), ("Fragmented", "3 × cpu 8", "place for 0"));
    assert_eq!(finding.bound, "group w: 4 nodes have cpu 6 free");
}

#[test]
fn e17_of_two_members_the_one_that_starts_now_fits() {
    let both = |c: &str, m: &str| resources(&[("cpu", c), ("memory", m)]);
    let mut east = world(both("96", "384Gi"), both("40", "160Gi"));
    let ray = Queue { capability: cpu("64"), allocated: both("40", "160Gi"), elastic: both("24", "96Gi"), ..open() };
    east.queues.insert("ray".into(), ray);
    east.queues.insert("other".into(), Queue { guarantee: both("24", "96Gi"), ..open() });
    let mut west = world(both("64", "256Gi"), both("28", "112Gi"));
    west.reserved = both("16", "64Gi");
    // 36 are free on nodes, 8 of them promised to a gang that is half there.
    let ray = Queue { allocated: both("28", "112Gi"), inqueue: both("8", "32Gi"), ..open() };
    west.queues.insert("ray".into(), ray);
    let gang = gang(both("26", "104Gi"));
    assert_eq!(said(&east, "ray", &gang), is("RunGate", "cpu"));
    assert_eq!(said(&west, "ray", &gang), is("Fits", ""));
}

#[test]
fn e18_only_an_open_queue_takes_anything() {
    for state in ["", "Closing", "Closed", "Unknown"] {
        let mut p = e1();
        p.queues.get_mut("b").unwrap().state = state.into();
        assert_eq!(said(&p, "b", &gang(cpu("1"))), is("QueueNotOpen", ""), "{state:?}");
    }
    assert_eq!(said(&e1(), "nowhere", &gang(cpu("1"))), is("QueueMissing", ""));
}

#[test]
fn pods_of_ours_must_not_hold_back_what_another_queue_has_admitted() {
    let mut p = world(cpu("100"), cpu("0"));
    p.capacity_plugin = false;
    p.reserved = cpu("60");
    p.queues.insert("q1".into(), Queue { inqueue: cpu("60"), requested: cpu("60"), ..open() });
    p.queues.insert("q2".into(), Queue { pod_groups: 0, ..open() });
    assert_eq!(said(&p, "q2", &gang(cpu("40"))), is("Fits", ""));
    p.queues.get_mut("q2").unwrap().weight = 3;
    assert_eq!(said(&p, "q2", &gang(cpu("40"))), is("Fits", ""), "60 of 100 are asked for, 100 are given");
    assert_eq!(said(&p, "q2", &gang(cpu("50"))), is("Overcommit", "cpu"));
}

#[test]
fn a_taint_that_is_not_tolerated_and_a_label_that_no_node_has_are_named() {
    let mut p = world(cpu("8"), cpu("0"));
    p.queues.insert("q".into(), open());
    p.classes[0].taints = vec![("gpu".into(), "yes".into(), "NoSchedule".into())];
    let finding = judge(&p, "q", &gang(cpu("1")));
    assert_eq!(finding.verdict, "TaintNotTolerated");
    p.classes[0].taints.clear();
    let mut picky = gang(cpu("1"));
    picky.tasks[0].node_selector.insert("zone".into(), "a".into());
    let finding = judge(&p, "q", &picky);
    assert_eq!(
        (finding.verdict, &*finding.bound),
        ("NeverFits", "no node that takes pods has the labels zone=a of group w")
    );
}

#[test]
fn a_gang_in_flight_takes_exactly_its_part() {
    let mut p = world(cpu("64"), cpu("0"));
    p.queues.insert("q".into(), Queue { capability: cpu("24"), ..open() });
    p.assume("q", &gang(cpu("10")));
    assert_eq!(said(&p, "q", &gang(cpu("14"))), is("Fits", ""));
    assert_eq!(judge(&p, "q", &gang(cpu("15"))).have, "cpu 14");
}
