//! Stories of several replicas: who works on what when one of them dies, freezes, leaves, or loses a link.
//! Must not look into the product: what is asserted is what the API says.

use std::time::Duration;

use kit::fleet::MemberPlan;
use kit::job::ray_job;
use kit::life::judge;
use kit::world::World;

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
