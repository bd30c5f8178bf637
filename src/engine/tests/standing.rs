//! Units, barrier, clusters, watches, fairness, determinism.

use super::*;

#[test]
fn the_hub_is_watched_once_it_is_there() {
    let mut story = Story::new();
    let effects = story.tell(Input::Cluster(Cluster::Hub, Presence::Added));
    assert_eq!(effects[0], Effect::Watch(Cluster::Hub, HUB_KINDS.iter().copied().collect()));
}

#[test]
fn a_hub_that_keeps_kinds_back_that_decide_nothing_has_its_share_of_the_work_done() {
    let mut story = Story::new();
    story.tell(Input::Cluster(Cluster::Hub, Presence::Added));
    let warm = |effects: &[Effect]| effects.contains(&Effect::Warm);
    let (last, first) = HUB_KINDS.split_last().unwrap();
    for kind in first.iter().filter(|kind| !matches!(kind, Kind::RayService | Kind::RayCronJob)) {
        assert!(!warm(&story.list(&Cluster::Hub, &[*kind], vec![])), "before {last} is known");
    }
    assert!(warm(&story.list(&Cluster::Hub, &[*last], vec![])));
    // What is missing is told all the same: the replica takes work and does not call itself ready.
    assert_eq!(story.engine.not_listed(), ["RayService", "RayCronJob"]);
}

#[test]
fn a_registered_member_is_told_to_the_shell_and_its_units_are_wanted() {
    let mut story = Story::new();
    story.tell(Input::Cluster(Cluster::Hub, Presence::Added));
    let object = json!({"metadata": {"name": "us"}, "spec": {"units": 2}});
    let effects = story.see(&Cluster::Hub, row(Kind::MemberCluster, object, 3));
    assert!(effects.iter().any(|e| matches!(e, Effect::Member(name, Some(_)) if name.as_str() == "us")));
    let units: BTreeSet<Arc<str>> = ["m-us-0".into(), "m-us-1".into()].into();
    assert!(effects.contains(&Effect::Units(units)));
    // Status changes of it are nobody's business.
    let object = json!({"metadata": {"name": "us"}, "spec": {"units": 2}, "status": {"kubernetesVersion": "1"}});
    let effects = story.see(&Cluster::Hub, row(Kind::MemberCluster, object, 4));
    assert!(!effects.iter().any(|e| matches!(e, Effect::Member(..) | Effect::Units(_))), "{effects:?}");
}

#[test]
fn a_member_is_watched_only_while_a_unit_of_it_is_held_and_it_can_be_talked_to() {
    let mut story = Story::ready();
    let watch = |effects: &[Effect]| {
        let watch = |e: &Effect| match e {
            Effect::Watch(cluster, kinds) => Some((cluster.clone(), kinds.len())),
            _ => None,
        };
        effects.iter().find_map(watch)
    };
    for index in 0..3 {
        let effects = story.tell(Input::Unit(format!("m-eu-{index}").into(), Standing::Lost));
        assert_eq!(watch(&effects), None);
    }
    let effects = story.tell(Input::Unit("m-eu-3".into(), Standing::Lost));
    assert_eq!(watch(&effects), Some((eu_cluster(), 0)));
    let effects = story.tell(Input::Unit("m-eu-3".into(), Standing::Held(6)));
    assert_eq!(watch(&effects), Some((eu_cluster(), MEMBER_KINDS.len())));
    let effects = story.tell(Input::Cluster(eu_cluster(), Presence::Refused("bad kubeconfig".into())));
    assert_eq!(watch(&effects), Some((eu_cluster(), 0)));
}

#[test]
fn a_unit_is_planned_only_on_lists_begun_after_it_was_gained() {
    let mut story = Story::new();
    story.tell(Input::Cluster(Cluster::Hub, Presence::Added));
    story.list(&Cluster::Hub, HUB_KINDS, vec![root(3)]);
    story.later(1_000);
    let unit: Arc<str> = shards::queue_unit("ml").into();
    let effects = story.tell(Input::Unit(unit, Standing::Held(1)));
    assert_eq!(relists(&effects), [(Cluster::Hub, HUB_KINDS.iter().copied().collect())]);
    let (first, rest) = HUB_KINDS.split_first().unwrap();
    story.list(&Cluster::Hub, rest, vec![]);
    assert!(!story.looked(Which::Place));
    story.list(&Cluster::Hub, &[*first], vec![root(3)]);
    assert_eq!(story.looks(), [(Which::Place, "train".to_owned())]);
}

#[test]
fn a_key_of_a_unit_that_is_not_held_is_left_alone() {
    let mut story = Story::ready();
    story.tell(Input::Unit(shards::queue_unit("ml").into(), Standing::Lost));
    story.looks();
    story.see(&Cluster::Hub, root(101));
    assert!(story.looks().is_empty());
    let key = Key { cluster: Cluster::Hub, id: Id::new(Kind::RayJob, "n", "train") };
    assert!(story.engine.why(&key).unwrap().why.0.contains("is not held by this replica"));
}

#[test]
fn tables_that_were_dropped_are_never_taken_for_an_empty_cluster() {
    let mut story = Story::ready_with(vec![root(3), placement("Running", 4)], vec![mirror(5)]);
    assert!(story.looked(Which::Bound));
    story.tell(Input::Cluster(eu_cluster(), Presence::Refused("gone".into())));
    story.tell(Input::Cluster(eu_cluster(), Presence::Added));
    story.looks();
    story.see(&Cluster::Hub, root(110));
    assert!(!story.looked(Which::Bound), "nothing is known of the member yet");
    story.later(5);
    story.list(&eu_cluster(), MEMBER_KINDS, vec![mirror(5)]);
    assert!(story.looked(Which::Bound));
}

#[test]
fn a_member_that_cannot_be_listed_is_looked_at_all_the_same() {
    let mut story = Story::new();
    story.tell(Input::Cluster(Cluster::Hub, Presence::Added));
    story.tell(Input::Unit("m-eu-0".into(), Standing::Held(1)));
    story.later(1);
    story.tell(Input::Cluster(eu_cluster(), Presence::Refused("no such Secret".into())));
    story.plan(Which::Member, |seen, _| {
        assert_eq!(seen.refused.get(&MemberName::from("eu")).map(String::as_str), Some("no such Secret"));
        Plan::default()
    });
    story.list(&Cluster::Hub, HUB_KINDS, vec![row(Kind::MemberCluster, json!({"metadata": {"name": "eu"}}), 1)]);
    story.later(100);
    assert!(story.looked(Which::Member));
    // And it is tried again.
    let effects = story.later(31_000);
    assert!(effects.iter().any(|e| matches!(e, Effect::Member(_, Some(_)))));
}

#[test]
fn a_member_without_volcano_passes_its_barrier() {
    let mut story = Story::new();
    story.tell(Input::Cluster(Cluster::Hub, Presence::Added));
    story.tell(Input::Cluster(eu_cluster(), Presence::Added));
    let hub = vec![row(Kind::MemberCluster, json!({"metadata": {"name": "eu"}}), 1), root(3), placement("Running", 4)];
    story.list(&Cluster::Hub, HUB_KINDS, hub);
    let unit: Arc<str> = bucket_unit().into();
    story.tell(Input::Unit(unit, Standing::Held(1)));
    for kind in MEMBER_KINDS.iter().filter(|kind| !matches!(kind, Kind::PodGroup | Kind::Queue)) {
        story.list(&eu_cluster(), &[*kind], vec![]);
    }
    assert!(!story.looked(Which::Bound));
    for kind in [Kind::PodGroup, Kind::Queue] {
        let begun = story.now;
        story.tell(Input::Rows(eu_cluster(), kind, TableChange::Unserved { begun }));
    }
    assert!(story.looked(Which::Bound));
}

#[test]
fn of_all_epochs_only_the_first_of_a_members_first_unit_wakes_what_waits() {
    let mut story = Story::ready_with(vec![root(3)], vec![]);
    story.looks();
    let mut looks = |unit: &str, epoch: u64| {
        story.tell(Input::Epochs([(unit.into(), epoch)].into()));
        story.looks().len()
    };
    assert_eq!((looks("m-ap-0", 1), looks("m-ap-0", 2), looks("m-ap-1", 1), looks("q-00", 9)), (1, 0, 0, 0));
}

#[test]
fn a_plan_is_called_again_at_the_time_that_it_names() {
    let mut story = Story::ready();
    let next = Time(story.now.0 + 7_000);
    story.plan(Which::Place, move |_, _| Plan { next: Some(next), ..Plan::default() });
    let effects = story.see(&Cluster::Hub, root(101));
    assert!(effects.contains(&Effect::WakeAt(next)) || story.engine.wake_at <= Some(next));
    story.looks();
    // A tick that comes early, from a clock that runs faster, is asked for again.
    let early = story.later(6_999);
    assert!(early.iter().any(|effect| matches!(effect, Effect::WakeAt(at) if *at <= next)), "{early:?}");
    assert!(!story.looked(Which::Place));
    story.later(1);
    assert!(story.looked(Which::Place));
}

#[test]
fn one_call_does_a_bounded_amount_of_work_and_asks_for_the_next_at_once() {
    let jobs: Vec<Row> =
        (0..300).map(|n| row(Kind::RayJob, json!({"metadata": {"name": format!("job-{n:03}")}}), 3)).collect();
    let mut story = Story::ready_with(jobs.clone(), vec![]);
    while story.engine.queue.next().is_some_and(|at| at <= story.now) {
        story.tell(Input::Tick);
    }
    story.looks();
    let capacity = row(Kind::MemberCapacity, json!({"metadata": {"name": "eu"}}), 200);
    let effects = story.see(&Cluster::Hub, capacity);
    assert_eq!(story.looks().len(), LOOKS_MAX);
    assert!(effects.contains(&Effect::WakeAt(story.now)));
    while story.engine.queue.next().is_some_and(|at| at <= story.now) {
        story.tell(Input::Tick);
    }
    assert!(story.looks().len() >= 300 - LOOKS_MAX);
}

#[test]
fn what_waits_in_a_queue_of_another_replica_is_told_of_once_and_woken_by_no_member() {
    let jobs = (0..20).map(|n| row(Kind::RayJob, json!({"metadata": {"name": format!("job-{n:03}")}}), 3));
    let keys: Vec<Key> = jobs.clone().map(|row| Key { cluster: Cluster::Hub, id: row.id }).collect();
    let mut story = Story::ready_with(jobs.collect(), vec![]);
    let unit: Arc<str> = shards::queue_unit(&Flags::default().default_queue).into();
    story.tell(Input::Unit(unit.clone(), Standing::Lost));
    let lost = story.now;
    let told = |story: &Story| keys.iter().map(|key| story.engine.why(key).cloned().unwrap()).collect::<Vec<_>>();
    let why = Why::new(format!("unit {unit} is not held by this replica"));
    assert!(told(&story).iter().all(|entry| entry.why == why && entry.looked == lost), "{:?}", told(&story));
    story.later(50);
    story.see(&Cluster::Hub, row(Kind::MemberCapacity, json!({"metadata": {"name": "eu"}}), 200));
    assert!(told(&story).iter().all(|entry| entry.looked == lost));
    // Whoever gets the unit looks at all of it behind the barrier.
    story.looks();
    story.tell(Input::Unit(unit, Standing::Held(7)));
    story.later(1);
    let rows = story.rows_of(&Cluster::Hub);
    story.list(&Cluster::Hub, HUB_KINDS, rows);
    assert_eq!(story.looks().iter().filter(|(which, _)| *which == Which::Place).count(), keys.len());
}

#[test]
fn the_same_inputs_give_the_same_effects() {
    let run = || {
        let mut story = Story::ready_with(vec![root(3), placement("Running", 4)], vec![mirror(5)]);
        story.plan(Which::RayJob, |_, _| does(vec![create_pod("a"), create_pod("b")]));
        let mut effects = story.see(&eu_cluster(), mirror(120));
        for (ticket, _) in writes(&effects) {
            effects.extend(story.tell(Input::Done(ticket, Outcome::Refused(403, "no".into()))));
        }
        for _ in 0..20 {
            effects.extend(story.later(777));
        }
        effects
    };
    assert_eq!(run(), run());
}

#[test]
fn a_pass_that_changes_nothing_does_not_scan_the_tables() {
    let pass = |jobs: usize| {
        let object = |n: usize| json!({"metadata": {"name": format!("job-{n:05}")}, "spec": {}});
        let rows: Vec<Row> = (0..jobs).map(|n| row(Kind::RayJob, object(n), 3)).collect();
        let mut story = Story::ready_with(rows.clone(), vec![]);
        while story.engine.queue.next().is_some_and(|at| at <= story.now) {
            story.tell(Input::Tick);
        }
        story.looks();
        let before = crate::row::rows_given_out();
        let mut effects = Vec::new();
        for n in 0..50 {
            effects.extend(story.see(&Cluster::Hub, Row { version: Version(1_000 + n), ..rows[7].clone() }));
        }
        assert!(effects.iter().all(|effect| matches!(effect, Effect::WakeAt(_))), "{effects:?}");
        (story.looks().len(), (crate::row::rows_given_out() - before) / 50)
    };
    let (small, large) = (pass(500), pass(8_000));
    assert_eq!(small, large);
    assert!(small.0 == 50 && small.1 <= 20, "{small:?}: one look per change, at a few rows each");
}

#[test]
fn what_waiting_objects_have_in_common_is_worked_out_once_per_state_of_the_hub() {
    const MANY: u64 = 300;
    let waits = |n: u64| {
        let name = format!("job-{n:03}");
        let root = row(Kind::RayJob, json!({"metadata": {"name": name, "uid": format!("u-{n}")}}), 10 + n);
        let spec = json!({
            "root": {"kind": "RayJob", "name": name, "uid": format!("u-{n}"), "rootId": format!("u-{n}")},
            "queue": "ml", "stage": "Waiting",
        });
        let placement = json!({"metadata": {"name": format!("rayjob-{name}")}, "spec": spec, "status": {"gang": {}}});
        [root, row(Kind::Placement, placement, 1_000 + n)]
    };
    let mut story = Story::ready_with((0..MANY).flat_map(waits).collect(), vec![]);
    story.looks();
    story.plan(Which::Place, |seen, _| {
        let board = seen.board.expect("every look at a waiting object has one");
        assert!(board.holds_for(seen.hub));
        Plan::default()
    });
    let before = crate::row::rows_given_out();
    // Every one of them is looked at after this.
    story.see(&Cluster::Hub, row(Kind::MemberCluster, json!({"metadata": {"name": "us"}}), 5_000));
    for _ in 0..20 {
        story.later(100);
    }
    assert_eq!(story.looks().iter().filter(|(which, _)| *which == Which::Place).count() as u64, MANY);
    let given_out = crate::row::rows_given_out() - before;
    assert!(given_out < 30 * MANY, "{given_out} rows for {MANY} looks: some are gone through by each");
}

#[test]
fn what_a_root_object_asks_for_is_worked_out_once_per_specification() {
    let job = |generation: u64, message: &str, version: u64| {
        let mut job = crate::plan::testing::ray_job("train", "ml", "2");
        job["metadata"]["namespace"] = json!("n");
        job["metadata"]["generation"] = json!(generation);
        job["status"]["message"] = json!(message);
        row(Kind::RayJob, job, version)
    };
    let mut story = Story::ready_with(vec![job(1, "", 3)], vec![]);
    let ask = |story: &Story| story.engine.asks.values().next().map(|asked| asked.ask.clone()).unwrap();
    let first = ask(&story);
    story.see(&Cluster::Hub, job(1, "waits", 101));
    story.see(&Cluster::Hub, row(Kind::MemberCapacity, json!({"metadata": {"name": "eu"}}), 102));
    assert!(Arc::ptr_eq(&first, &ask(&story)));
    story.see(&Cluster::Hub, job(2, "waits", 103));
    assert!(!Arc::ptr_eq(&first, &ask(&story)));
    story.gone(&Cluster::Hub, &job(2, "waits", 103), 104);
    for _ in 0..3 {
        story.later(600_000);
    }
    assert!(story.engine.asks.is_empty());
}

/// The `MemberCluster` of `eu`, deleted, by a person who says that the cluster is gone for good.
fn gone_for_good(version: u64) -> Row {
    let metadata = json!({"name": "eu", "deletionTimestamp": "2026-11-29T12:00:00Z",
        "annotations": {"rayfleet.io/gone-for-good": "eu"}});
    row(Kind::MemberCluster, json!({"metadata": metadata}), version)
}

#[test]
fn a_member_that_is_gone_for_good_is_not_watched_and_nothing_on_it_is_waited_for() {
    let mut story = Story::ready_with(vec![root(3), placement("Running", 4)], vec![mirror(5)]);
    let mut ticket = None;
    for (outcome, version) in [(ok(900), 120), (lost(), 121)] {
        // A write whose return was never seen, then one whose answer was lost.
        story.once(Which::RayJob, does(vec![create_pod("a")]));
        let effects = story.see(&eu_cluster(), mirror(version));
        let Some((write, _)) = writes(&effects).first().cloned() else { continue };
        story.tell(Input::Done(write, outcome));
        ticket = Some(write);
    }
    assert!(ticket.is_some());
    story.looks();
    let effects = story.see(&Cluster::Hub, gone_for_good(130));
    assert!(effects.contains(&Effect::Watch(eu_cluster(), BTreeSet::new())), "{effects:?}");
    assert!(story.looked(Which::Bound), "its root object is looked at though nothing of the member is in sight");
}

#[test]
fn a_read_that_is_to_find_out_an_outcome_is_given_up_with_its_member() {
    let mut story = Story::ready_with(vec![root(3), placement("Running", 4)], vec![mirror(5)]);
    story.once(Which::RayJob, does(vec![create_pod("a")]));
    let (write, _) = only_write(&story.see(&eu_cluster(), mirror(120)));
    story.tell(Input::Done(write, lost()));
    story.see(&Cluster::Hub, gone_for_good(130));
    let free = |b: &mut Value| b["spec"]["stage"] = json!("Waiting");
    let plan = replace(Cluster::Hub, &placement("Running", 4), free);
    story.plan(Which::Bound, move |_, _| does(vec![plan.clone()]));
    let mut written = false;
    for _ in 0..12 {
        let mut effects = story.later(1_000);
        for (read, _) in fetches(&effects.clone()) {
            effects.extend(story.tell(Input::Fetched(read, story.now, Err("eu cannot be reached".into()))));
        }
        written |= writes(&effects).iter().any(|(_, action)| action.cluster() == Cluster::Hub);
    }
    assert!(written, "the root object is let go");
}

#[test]
fn an_owner_that_starts_when_a_member_is_gone_for_good_passes_its_barrier_without_it() {
    let mut story = Story::new();
    story.tell(Input::Cluster(Cluster::Hub, Presence::Added));
    for index in 0..4 {
        story.tell(Input::Unit(format!("m-eu-{index}").into(), Standing::Held(5)));
    }
    story.later(1);
    story.list(&Cluster::Hub, HUB_KINDS, vec![gone_for_good(2), root(3), placement("Running", 4)]);
    assert!(story.looked(Which::Bound));
}

#[test]
fn somebody_owns_a_binding_to_a_member_that_is_not_registered() {
    let mut story = Story::new();
    story.tell(Input::Cluster(Cluster::Hub, Presence::Added));
    let effects = story.list(&Cluster::Hub, HUB_KINDS, vec![root(3), placement("Reserving", 4)]);
    assert!(effects.contains(&Effect::Units(["m-eu-0".into()].into())), "{effects:?}");
    story.later(1);
    story.tell(Input::Unit("m-eu-0".into(), Standing::Held(5)));
    story.later(1);
    story.list(&Cluster::Hub, HUB_KINDS, vec![root(3), placement("Reserving", 4)]);
    assert!(story.looked(Which::Reserve));
    let effects = story.see(&Cluster::Hub, placement("Waiting", 120));
    assert!(effects.contains(&Effect::Units(BTreeSet::new())), "{effects:?}");
}
