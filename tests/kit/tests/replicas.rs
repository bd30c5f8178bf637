//! Stories of several replicas: who works on what when one of them dies, freezes, leaves, or loses a link.
//! Must not look into the product: what is asserted is what the API says.

use std::cell::Cell;
use std::time::Duration;

use kit::crash_points::{self, Setting};
use kit::fleet::MemberPlan;
use kit::job::ray_job;
use kit::life::judge;
use kit::world::World;
use shards::hash::queue_units;
use shards::{queue_unit, ring};

const MINUTE: Duration = Duration::from_secs(60);

fn fleet(seed: u64) -> World {
    let mut world = World::with_replicas(seed, &[MemberPlan::new("eu", 1, 8), MemberPlan::new("us", 1, 8)], 3);
    assert!(world.until(MINUTE, |w| w.unowned_units().is_empty()), "{:?}", world.unowned_units());
    world
}

fn ends(world: &mut World, name: &'static str) {
    assert!(world.until(30 * MINUTE, |w| w.recorder.ending(name).is_some()), "{:#?}", world.journal());
    world.run_for(Duration::from_secs(30));
    assert_eq!(judge(world, name, 3, false), Vec::<String>::new());
    assert_eq!(world.recorder.violations, Vec::<String>::new());
}

/// A job of three pods, whose placement is followed from stage to stage.
fn submit(world: &mut World, name: &str) {
    world.submit(&ray_job(name).cpus(1).workers(2, 1).manifest());
}

fn stage(world: &World, name: &str) -> String {
    world.placement(name).and_then(|p| p["spec"]["stage"].as_str()).unwrap_or_default().to_owned()
}

#[test]
fn a_job_goes_on_whoever_dies_at_whatever_stage() {
    for (seed, at) in ["Waiting", "Reserving", "Admitted", "Running"].into_iter().enumerate() {
        for replica in 0..3 {
            let mut world = fleet(seed as u64 + 1);
            submit(&mut world, "train");
            assert!(world.until(5 * MINUTE, |w| stage(w, "train") == at), "never {at}");
            world.restart_replica(replica, 2 * MINUTE);
            ends(&mut world, "train");
        }
    }
}

#[test]
fn a_write_that_left_a_frozen_replica_late_changes_nothing() {
    // Numbers of writes behind the point at which the fleet is at rest: each is frozen with its check behind it.
    for behind in (0..60).step_by(7) {
        let mut world = fleet(9);
        let at = world.writes.len() + behind;
        world.freeze_at(at, Duration::from_secs(45));
        submit(&mut world, "train");
        ends(&mut world, "train");
    }
}

#[test]
fn a_replica_whose_machine_and_clock_stood_still_gives_up_what_others_have_taken() {
    for seed in 0..6 {
        let mut world = fleet(20 + seed);
        submit(&mut world, "train");
        let at = ["Reserving", "Admitted", "Running"][seed as usize % 3];
        assert!(world.until(5 * MINUTE, |w| stage(w, "train") == at), "never {at}");
        for replica in 0..2 {
            world.pause_machine(replica, MINUTE);
        }
        world.run_for(MINUTE);
        assert!(world.until(MINUTE, |w| (0..2).all(|r| !w.has_wrong_clock(r))), "they never learn it");
        ends(&mut world, "train");
        assert_eq!(world.unowned_units(), Vec::<String>::new());
    }
}

#[test]
fn a_replica_that_leaves_hands_everything_on_and_comes_back() {
    let mut world = fleet(4);
    submit(&mut world, "train");
    assert!(world.until(5 * MINUTE, |w| stage(w, "train") == "Running"));
    for replica in 0..3 {
        world.leave(replica);
        assert!(world.until(MINUTE, |w| !w.runs(replica)), "it never ends");
        assert!(world.until(Duration::from_secs(5), |w| w.unowned_units().is_empty()), "{:?}", world.unowned_units());
        world.start_replica(replica);
        world.run_for(Duration::from_secs(20));
    }
    ends(&mut world, "train");
}

#[test]
fn a_replica_without_the_hub_stops_and_takes_its_part_again_without_a_restart() {
    let mut world = fleet(6);
    submit(&mut world, "train");
    world.part(0, "hub", true);
    world.run_for(MINUTE);
    assert!(world.unowned_units().is_empty(), "{:?}", world.unowned_units());
    world.part(0, "hub", false);
    assert!(world.runs(0), "a silent hub is no reason to end");
    ends(&mut world, "train");
    assert!(world.until(MINUTE, |w| w.unowned_units().is_empty()), "{:?}", world.unowned_units());
}

#[test]
fn a_hub_that_is_silent_for_all_fences_nobody_and_ends_nothing() {
    let mut world = fleet(8);
    submit(&mut world, "train");
    assert!(world.until(5 * MINUTE, |w| stage(w, "train") == "Running"));
    for replica in 0..3 {
        world.part(replica, "hub", true);
    }
    world.run_for(2 * MINUTE);
    for replica in 0..3 {
        world.part(replica, "hub", false);
    }
    assert!(world.until(MINUTE, |w| w.unowned_units().is_empty()), "{:?}", world.unowned_units());
    ends(&mut world, "train");
}

#[test]
fn at_rest_a_replica_writes_the_hub_once_in_a_renewal_and_once_per_member_and_half_minute() {
    let mut world = fleet(2);
    world.run_for(2 * MINUTE);
    let before = world.writes.len();
    world.run_for(10 * MINUTE);
    let writes = &world.writes[before..];
    let capacities = writes.iter().filter(|w| w.contains("/membercapacities/")).count();
    let renewals = writes.iter().filter(|w| w.contains("/leases/seat-")).count();
    assert_eq!(
        capacities + renewals,
        writes.len(),
        "{:?}",
        writes.iter().find(|w| !w.contains("/leases/seat-") && !w.contains("/membercapacities/"))
    );
    assert!(capacities <= 2 * 20 + 2, "{capacities} refreshes of 2 members in 10 minutes");
    assert!(renewals <= 3 * 600 * 10 / 27 + 3, "{renewals} renewals of 3 seats in 10 minutes");
}

/// Two replicas, one member with room for one gang of three, and the name of a queue whose unit is not with the owner of
/// `ml`.
fn one_member_for_two_owners(seed: u64, scheduler_delay_ms: u64) -> (World, String) {
    let units: Vec<String> = queue_units().chain((0..4).map(|index| format!("m-eu-{index}"))).collect();
    let seats = ["a".to_owned(), "b".to_owned()];
    let targets = ring::targets(&seats, units.iter().map(String::as_str));
    let is_foreign = |queue: &String| targets[&queue_unit(queue)] != targets[&queue_unit("ml")];
    let other = (0..64).map(|number| format!("queue-{number}")).find(is_foreign).expect("units are shared");
    let plan = MemberPlan::new("eu", 1, 4).queue(&other, 4).late(scheduler_delay_ms);
    let mut world = World::with_replicas(seed, &[plan], 2);
    let as_the_ring_says = |w: &World| {
        let with = |queue: &str| holder(w, queue) == targets[&queue_unit(queue)];
        w.unowned_units().is_empty() && with("ml") && with(&other)
    };
    assert!(world.until(2 * MINUTE, as_the_ring_says), "{:?}", world.unowned_units());
    (world, other)
}

/// Seat that holds the unit of a queue.
fn holder(world: &World, queue: &str) -> String {
    let unit = queue_unit(queue);
    let lease = world.hub(&format!("/apis/coordination.k8s.io/v1/namespaces/rayfleet-system/leases/{unit}"));
    let holder = lease.and_then(|l| l["spec"]["holderIdentity"].as_str()).unwrap_or_default();
    holder.split('#').next().unwrap_or_default().to_owned()
}

fn is_bound(world: &World, name: &str) -> bool {
    matches!(&*stage(world, name), "Reserving" | "Admitted" | "Running")
}

#[test]
fn gangs_of_queues_with_different_owners_are_counted_by_each_other() {
    for seed in 1..=6 {
        let (mut world, other) = one_member_for_two_owners(seed, 2_000);
        world.submit(&ray_job("first").cpus(3).entrypoint("sleep 60").manifest());
        // Bound, and no picture of the member counts it yet.
        assert!(world.until(MINUTE, |w| is_bound(w, "first")));
        world.submit(&ray_job("second").queue(&other).cpus(3).entrypoint("sleep 60").manifest());
        let both = Cell::new(false);
        let passed = world.until(10 * MINUTE, |w| {
            both.set(both.get() || (is_bound(w, "first") && is_bound(w, "second")));
            w.recorder.ending("second").is_some()
        });
        assert!(passed && !both.get(), "seed {seed}: both were bound: {}", both.get());
        assert_eq!((world.recorder.counts.bound, world.recorder.counts.wrong_fits), (2, 0), "seed {seed}");
        assert_eq!(world.recorder.violations, Vec::<String>::new());
    }
}

#[test]
fn of_two_owners_that_bind_at_the_same_time_the_members_owner_lets_one_through() {
    let mut wrong_fits = 0;
    for seed in 1..=6 {
        let (mut world, other) = one_member_for_two_owners(seed, 2_000);
        world.submit(&ray_job("first").cpus(3).entrypoint("sleep 60").manifest());
        world.submit(&ray_job("second").queue(&other).cpus(3).entrypoint("sleep 60").manifest());
        let past = |w: &World, name: &str| matches!(&*stage(w, name), "Admitted" | "Running");
        let both = Cell::new(false);
        let passed = world.until(20 * MINUTE, |w| {
            both.set(both.get() || (past(w, "first") && past(w, "second")));
            ["first", "second"].iter().all(|name| w.recorder.ending(name).is_some())
        });
        assert!(passed && !both.get(), "seed {seed}: {:#?}", world.journal());
        assert!(world.recorder.counts.wrong_fits <= 1, "seed {seed}: {:?}", world.recorder.counts);
        wrong_fits += world.recorder.counts.wrong_fits;
        assert_eq!(world.recorder.violations, Vec::<String>::new());
    }
    assert!(wrong_fits > 0, "they never met: the story proves nothing");
}

#[test]
fn the_next_owner_of_a_queue_counts_what_others_have_on_its_way() {
    for seed in 1..=4 {
        let (mut world, other) = one_member_for_two_owners(seed, 25_000);
        world.submit(&ray_job("first").cpus(3).entrypoint("sleep 60").manifest());
        assert!(world.until(MINUTE, |w| is_bound(w, "first")));
        let owner = usize::from(holder(&world, &other) == "b");
        world.restart_replica(owner, 30 * MINUTE);
        world.submit(&ray_job("second").queue(&other).cpus(3).manifest());
        let both = Cell::new(false);
        let passed = world.until(20 * MINUTE, |w| {
            both.set(both.get() || (is_bound(w, "first") && is_bound(w, "second")));
            w.recorder.ending("second").is_some()
        });
        assert!(passed && !both.get(), "seed {seed}: both were bound: {}", both.get());
        assert_eq!(world.recorder.counts.wrong_fits, 0, "seed {seed}");
        assert_eq!(world.recorder.violations, Vec::<String>::new());
    }
}

#[test]
fn a_renewal_is_no_crash_point_and_every_write_to_a_member_is_one() {
    let story = &crash_points::stories()[0];
    for setting in Setting::all(1, 3) {
        let (world, wrong) = crash_points::live(story, setting, None, false);
        assert_eq!(wrong, Vec::<String>::new());
        let is_point = |at: usize| world.points.binary_search(&at).is_ok();
        let of_seat_a = world.writes.iter().enumerate().filter(|(_, w)| w.contains("/leases/seat-a"));
        let (points, renewals): (Vec<_>, Vec<_>) = of_seat_a.partition(|(at, _)| is_point(*at));
        assert!(points.len() <= 2 && renewals.len() > 10, "{} and {}", points.len(), renewals.len());
        let mut on_members = world.writes.iter().enumerate().filter(|(_, w)| !w.ends_with(" on hub"));
        assert!(on_members.all(|(at, _)| is_point(at)));
    }
}
