//! Small stories, each with a stated fact: the walk of one RayJob first (docs/WALK.md).
//! Must not look into the product: what is asserted is what the API says.

use std::time::Duration;

use kit::crash_points::{self, Setting};
use kit::fleet::MemberPlan;
use kit::job::ray_job;
use kit::world::World;
use serde_json::{Value, json};

const MINUTE: Duration = Duration::from_secs(60);

fn two_members() -> World {
    World::new(7, &[MemberPlan::new("eu", 1, 4), MemberPlan::new("us", 1, 8)])
}

fn stage(world: &World, name: &str) -> String {
    world.placement(name).and_then(|p| p["spec"]["stage"].as_str()).unwrap_or_default().to_owned()
}

fn member(world: &World, name: &str) -> String {
    world.placement(name).and_then(|p| p["spec"]["member"].as_str()).unwrap_or_default().to_owned()
}

fn ended(name: &'static str) -> impl Fn(&World) -> bool {
    move |w| w.recorder.ending(name).is_some()
}

#[test]
fn a_ray_job_goes_from_the_hub_to_ray_and_back_and_leaves_nothing() {
    for story in crash_points::stories() {
        let (world, wrong) = crash_points::live(&story, Setting::alone(1), None, false);
        assert!(wrong.is_empty(), "{}: {wrong:#?}", story.name);
        let roots = 1 + u64::from(story.job.cluster_manifest().is_some());
        assert!(world.recorder.counts.bound == roots && world.recorder.counts.wrong_fits == 0, "{}", story.name);
    }
}

#[test]
fn a_job_goes_to_the_only_member_that_it_fits_in() {
    let mut world = two_members();
    world.submit(&ray_job("big").cpus(6).manifest());
    assert!(world.until(5 * MINUTE, ended("big")), "{:?}", world.placement("big"));
    assert_eq!(member(&world, "big"), "us");
    assert_eq!(world.recorder.violations, Vec::<String>::new());
}

#[test]
fn a_job_that_fits_nowhere_waits_on_the_hub_and_says_why_for_every_member() {
    let mut world = two_members();
    world.submit(&ray_job("huge").cpus(100).manifest());
    world.run_for(MINUTE);
    assert_eq!(stage(&world, "huge"), "Waiting");
    let placement = world.placement("huge").expect("a placement");
    let verdicts = placement["status"]["verdicts"].as_array().cloned().unwrap_or_default();
    assert_eq!(verdicts.len(), 2, "{placement}");
    assert!(verdicts.iter().all(|v| v["verdict"] != "Fits" && v["need"] != ""), "{verdicts:?}");
    let root = world.root("huge").expect("the root");
    assert_ne!(root["status"]["message"], Value::Null, "{root}");
    for site in world.members() {
        let left = site.server.objects().filter(|o| o["metadata"]["labels"]["rayfleet.io/root-id"].is_string()).count();
        assert_eq!(left, 0, "nothing is sent to {}", site.cluster);
    }
}

#[test]
fn the_second_of_two_that_compete_for_a_queue_waits_and_then_runs() {
    let mut world = World::new(3, &[MemberPlan::new("eu", 1, 4)]);
    world.submit(&ray_job("first").cpus(3).entrypoint("sleep 30").manifest());
    world.submit(&ray_job("second").cpus(3).manifest());
    assert!(world.until(2 * MINUTE, |w| stage(w, "first") == "Running" || stage(w, "second") == "Running"));
    let waits = if stage(&world, "first") == "Running" { "second" } else { "first" };
    assert_eq!(stage(&world, waits), "Waiting");
    let message = world.root(waits).and_then(|r| r["status"]["message"].as_str()).unwrap_or_default().to_owned();
    assert!(message.contains("eu"), "it says what it waits for: {message:?}");
    assert!(world.until(10 * MINUTE, ended("first")) && world.until(10 * MINUTE, ended("second")));
    assert_eq!(world.recorder.violations, Vec::<String>::new());
}

#[test]
fn a_gang_that_is_admitted_too_late_is_withdrawn_and_runs_elsewhere() {
    let mut world = World::new(5, &[MemberPlan::new("eu", 1, 8).late(300_000), MemberPlan::new("us", 1, 8)]);
    world.submit(&json!({
        "apiVersion": "rayfleet.io/v1alpha1",
        "kind": "PlacementPolicy",
        "metadata": { "namespace": "default", "name": "default" },
        "spec": { "preference": ["eu", "us"], "admissionDeadlineSeconds": 10 },
    }));
    // Of members that are not known yet none is preferred.
    let of = |w: &World, kind: &str, m: &str| w.hub(&format!("/apis/rayfleet.io/v1alpha1/{kind}/{m}")).cloned();
    let known = |w: &World, m: &str| {
        let held = of(w, "memberclusters", m).is_some_and(|c| c["metadata"]["finalizers"] != Value::Null);
        held && of(w, "membercapacities", m).is_some()
    };
    assert!(world.until(MINUTE, |w| ["eu", "us"].iter().all(|m| known(w, m))));
    world.submit(&ray_job("patient").cpus(2).manifest());
    assert!(world.until(10 * MINUTE, ended("patient")), "{:?}", world.placement("patient"));
    assert_eq!(member(&world, "patient"), "us");
    assert_eq!(world.recorder.counts.refused_after_bind, 1);
    assert_eq!(world.recorder.violations, Vec::<String>::new());
    assert_eq!(world.submissions().len(), 1);
}

#[test]
fn a_job_on_a_silent_member_is_not_placed_twice() {
    let mut world = two_members();
    world.submit(&ray_job("train").cpus(6).entrypoint("sleep 600").manifest());
    assert!(world.until(5 * MINUTE, |w| stage(w, "train") == "Running"));
    world.cut("us", true);
    world.run_for(30 * MINUTE);
    assert_eq!(member(&world, "train"), "us");
    world.cut("us", false);
    assert!(world.until(30 * MINUTE, ended("train")), "{:?}", world.root("train"));
    assert_eq!(world.recorder.violations, Vec::<String>::new());
}

#[test]
fn a_silent_member_does_not_stop_the_others() {
    let mut world = two_members();
    world.cut("eu", true);
    world.run_for(2 * MINUTE);
    world.submit(&ray_job("small").cpus(1).manifest());
    assert!(world.until(10 * MINUTE, ended("small")), "{:?}", world.placement("small"));
    assert_eq!(member(&world, "small"), "us");
}

#[test]
fn deleting_the_root_ends_cleanly_at_any_stage() {
    let plain = || ray_job("train").cpus(2).workers(1, 1).entrypoint("sleep 20");
    let moments = [0, 1, 2, 3, 5, 8, 13, 21, 34];
    for (seconds, job) in moments.into_iter().flat_map(|at| [(at, plain()), (at, plain().beside())]) {
        let mut world = two_members();
        world.submit(&job.manifest());
        world.run_for(Duration::from_secs(seconds));
        world.delete("hub", "/apis/ray.io/v1/namespaces/default/rayjobs/train");
        assert!(
            world.until(10 * MINUTE, |w| w.root("train").is_none()),
            "after {seconds} s: {:?}",
            world.placement("train")
        );
        world.run_for(5 * MINUTE);
        assert!(world.placement("train").is_none(), "after {seconds} s");
        for site in world.members() {
            let ours: Vec<_> = site
                .server
                .objects()
                .filter(|o| o["metadata"]["labels"]["rayfleet.io/root-id"].is_string())
                .map(|o| format!("{} {}", o["kind"], o["metadata"]["name"]))
                .collect();
            assert!(ours.is_empty(), "after {seconds} s, left on {}: {ours:?}", site.cluster);
        }
        assert_eq!(world.recorder.violations, Vec::<String>::new(), "after {seconds} s");
    }
}

#[test]
fn what_is_withdrawn_while_it_runs_clears_its_state_in_redis_first() {
    let mut world = two_members();
    world.submit(&ray_job("train").cpus(1).workers(1, 1).beside().entrypoint("sleep 3000").manifest());
    assert!(world.until(5 * MINUTE, |w| stage(w, "train") == "Running" && !w.submissions().is_empty()));
    let there = member(&world, "train");
    let of = |w: &World, kind: &str| w.site(&there).server.objects().find(|o| o["kind"] == kind).cloned();
    assert_eq!(of(&world, "Job"), None);
    world.delete("hub", "/apis/ray.io/v1/namespaces/default/rayjobs/train");
    let cleared = |w: &World| of(w, "Job").is_some_and(|job| job["status"]["succeeded"] == 1);
    assert!(world.until(5 * MINUTE, cleared), "{:#?}", world.journal());
    assert!(of(&world, "RayCluster").is_some(), "it is held until then");
    assert_eq!(stage(&world, "train"), "Withdrawing");
    assert!(world.until(10 * MINUTE, |w| w.root("train").is_none()), "{:?}", world.placement("train"));
    world.run_for(MINUTE);
    for kind in ["RayCluster", "Job", "Pod"] {
        assert_eq!(of(&world, kind), None);
    }
    assert_eq!(world.recorder.violations, Vec::<String>::new());
}

#[test]
fn the_same_seed_gives_the_same_run() {
    let story = &crash_points::stories()[0];
    let (a, _) = crash_points::live(story, Setting::alone(11), None, false);
    let (b, _) = crash_points::live(story, Setting::alone(11), None, false);
    assert_eq!((a.steps, &a.writes), (b.steps, &b.writes));
}

#[test]
fn at_rest_nothing_is_written_but_leases_and_capacities() {
    let mut world = two_members();
    world.submit(&ray_job("train").cpus(1).shutdown(false).manifest());
    assert!(world.until(5 * MINUTE, ended("train")));
    world.run_for(2 * MINUTE);
    let before = world.writes.len();
    world.run_for(10 * MINUTE);
    let surplus: Vec<_> = world.writes[before..]
        .iter()
        .filter(|w| !w.contains("/leases/") && !w.contains("/membercapacities/"))
        .collect();
    assert!(surplus.is_empty(), "{surplus:#?}");
}

#[test]
fn a_controller_whose_writes_carry_no_resource_version_is_caught_by_the_crash_points() {
    let story = &crash_points::stories()[0];
    let (world, wrong) = crash_points::live(story, Setting::alone(1), None, false);
    assert!(wrong.is_empty(), "{wrong:#?}");
    let points = world.writes.iter().enumerate().filter(|(_, w)| w.starts_with("PUT") && !w.contains("/leases/"));
    let caught = points.map(|(at, _)| at).find(|at| !crash_points::live_without_versions(story, 1, *at).is_empty());
    assert!(caught.is_some(), "no crash point notices that preconditions are missing");
}

const US: &str = "/apis/rayfleet.io/v1alpha1/memberclusters/us";

fn blocked(world: &World) -> String {
    let conditions = world.hub(US).and_then(|m| m["status"]["conditions"].as_array().cloned()).unwrap_or_default();
    let found = conditions.iter().find(|c| c["type"] == "RemovalBlocked");
    found.and_then(|c| c["message"].as_str()).unwrap_or_default().to_owned()
}

#[test]
fn a_member_that_is_removed_while_a_job_runs_there_stays_until_the_job_is_gone() {
    let mut world = two_members();
    world.submit(&ray_job("train").cpus(6).entrypoint("sleep 3000").manifest());
    assert!(world.until(5 * MINUTE, |w| !w.submissions().is_empty()));
    world.delete("hub", US);
    assert!(world.until(5 * MINUTE, |w| blocked(w).contains("rayjob default/train")), "{:?}", world.hub(US));
    world.run_for(5 * MINUTE);
    assert_eq!((stage(&world, "train"), member(&world, "train")), ("Running".to_owned(), "us".to_owned()));
    world.delete("hub", "/apis/ray.io/v1/namespaces/default/rayjobs/train");
    assert!(world.until(30 * MINUTE, |w| w.root("train").is_none() && w.hub(US).is_none()), "{:?}", world.hub(US));
    assert_eq!(world.placement("train"), None);
    assert_eq!(world.submissions().values().copied().collect::<Vec<_>>(), [1], "nothing ran twice");
    for site in world.members() {
        let left = site.server.objects().filter(|o| o["metadata"]["labels"]["rayfleet.io/root-id"].is_string()).count();
        assert_eq!(left, 0, "nothing is left on {}", site.cluster);
    }
    assert_eq!(world.recorder.violations, Vec::<String>::new());
}

#[test]
fn a_member_that_is_gone_for_good_is_let_go_by_a_persons_word_and_by_nothing_less() {
    let mut world = two_members();
    world.submit(&ray_job("train").cpus(6).entrypoint("sleep 3000").manifest());
    assert!(world.until(5 * MINUTE, |w| !w.submissions().is_empty()));
    world.cut("us", true);
    world.delete("hub", US);
    world.delete("hub", "/apis/ray.io/v1/namespaces/default/rayjobs/train");
    world.restart(Duration::from_secs(1));
    world.run_for(90 * MINUTE);
    assert!(blocked(&world).contains("rayfleet.io/gone-for-good=us"), "{:?}", world.hub(US));
    assert!(world.root("train").is_some() && world.placement("train").is_some());
    let word = json!({ "metadata": { "annotations": { "rayfleet.io/gone-for-good": "us" } } });
    world.patch("hub", US, &word);
    assert!(world.until(10 * MINUTE, |w| w.root("train").is_none() && w.hub(US).is_none()), "{:#?}", world.journal());
    assert_eq!(world.placement("train"), None);
    assert_eq!(world.submissions().values().copied().collect::<Vec<_>>(), [1], "nothing ran twice");
    assert_eq!(world.recorder.violations, Vec::<String>::new());
}

#[test]
fn a_cordoned_member_gets_nothing_new_gives_back_what_waits_and_keeps_what_runs() {
    let mut world = World::new(5, &[MemberPlan::new("eu", 1, 4).late(300_000), MemberPlan::new("us", 1, 8)]);
    world.submit(&ray_job("runs").cpus(6).entrypoint("sleep 600").manifest());
    assert!(world.until(5 * MINUTE, |w| !w.submissions().is_empty()));
    world.submit(&ray_job("waits").cpus(3).manifest());
    let on_eu = |w: &World| stage(w, "waits") == "Reserving" && member(w, "waits") == "eu";
    assert!(world.until(5 * MINUTE, on_eu), "{:?}", world.placement("waits"));
    let cordon = |w: &mut World, member: &str, yes: bool| {
        let path = format!("/apis/rayfleet.io/v1alpha1/memberclusters/{member}");
        w.patch("hub", &path, &json!({ "spec": { "unschedulable": yes } }));
    };
    cordon(&mut world, "eu", true);
    cordon(&mut world, "us", true);
    let given_back = |w: &World| {
        let verdicts = w.placement("waits").and_then(|p| p["status"]["verdicts"].as_array().cloned());
        let cordoned =
            |v: &Value| v["verdict"] == "Cordoned" && v["bound"].as_str().is_some_and(|b| b.contains("uncordon"));
        stage(w, "waits") == "Waiting" && verdicts.is_some_and(|all| all.len() == 2 && all.iter().all(cordoned))
    };
    assert!(world.until(5 * MINUTE, given_back), "{:?}", world.placement("waits"));
    let ours = |o: &&Value| o["metadata"]["labels"]["rayfleet.io/root-id"].is_string();
    assert!(
        world.until(MINUTE, |w| w.site("eu").server.objects().filter(ours).count() == 0),
        "it leaves nothing there"
    );
    assert!(world.until(30 * MINUTE, ended("runs")), "what runs goes on to its end");
    world.run_for(5 * MINUTE);
    assert_eq!((stage(&world, "waits"), member(&world, "runs")), ("Waiting".to_owned(), "us".to_owned()));
    cordon(&mut world, "us", false);
    assert!(world.until(10 * MINUTE, ended("waits")), "{:?}", world.placement("waits"));
    assert_eq!(member(&world, "waits"), "us");
    assert!(world.submissions().values().all(|count| *count == 1));
    assert_eq!(world.recorder.violations, Vec::<String>::new());
}
