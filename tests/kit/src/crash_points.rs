//! Every crash point of one RayJob's life: at each write of the controller, in three variants, it dies and comes back, or
//! another replica takes over.
//! Must not know what the writes are: it counts them.

use std::num::NonZero;
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crate::dangers::Danger;
use crate::fleet::MemberPlan;
use crate::job::{RayJob, ray_job};
use crate::life::judge;
use crate::world::{DEATHS, Death, World};

/// Sum of all runs.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tally {
    /// Writes at which a controller died.
    pub points: usize,
    /// Runs.
    pub variants: usize,
    /// What was wrong.
    pub violations: usize,
}

/// The job whose life is played, and the pods that it may have.
#[derive(Clone, Debug)]
pub struct Story {
    /// Its name in messages.
    pub name: &'static str,
    /// What is submitted.
    pub job: RayJob,
    /// Pods it has in all.
    pub pods: usize,
    /// Every so many of its writes are points where all stories are played: what is nearly another's life again need not be
    /// played at each.
    pub step: usize,
}

/// The stories that are played: every way of submission that is built, and everything that a cluster may have beside its
/// pods.
pub fn stories() -> Vec<Story> {
    vec![
        Story { name: "http", job: ray_job("train").cpus(1).workers(2, 1), pods: 3, step: 1 },
        Story { name: "k8s", job: ray_job("train").cpus(1).workers(1, 1).mode("K8sJobMode"), pods: 3, step: 1 },
        Story { name: "sidecar", job: ray_job("train").cpus(1).workers(1, 1).mode("SidecarMode"), pods: 2, step: 4 },
        Story { name: "beside", job: ray_job("train").cpus(1).workers(2, 1).beside(), pods: 4, step: 4 },
        Story { name: "selects", job: ray_job("train").mode("K8sJobMode").on(SHARED), pods: 1, step: 4 },
    ]
}

/// The RayCluster of the story that brings none. No object of it may have a name that looks like the job's.
const SHARED: &str = "shared";

/// How long a replica stays away where another is to take over: for good.
const AWAY: Duration = Duration::from_secs(24 * 3600);

/// From the start of the replicas until each unit is with its owner.
const REST: Duration = Duration::from_secs(15);

/// Q: longer than any write of these lives is late, and not most of each run.
const HOLD: Duration = Duration::from_secs(60);

/// What is played around the story.
#[derive(Clone, Copy, Debug)]
pub struct Setting {
    /// Seed of the delays.
    pub seed: u64,
    /// With one, it comes back after a second; with more, another takes over.
    pub replicas: usize,
    /// The job comes when the fleet is at rest and each unit with its owner; otherwise it comes with the replicas, and units
    /// change hands in the middle of its life.
    pub at_rest: bool,
}

impl Setting {
    /// One replica, from the empty fleet.
    pub fn alone(seed: u64) -> Self {
        Self { seed, replicas: 1, at_rest: false }
    }

    /// The settings in which the stories of this many replicas are played.
    pub fn all(seed: u64, replicas: usize) -> Vec<Self> {
        let beginnings: &[bool] = if replicas > 1 { &[false, true] } else { &[false] };
        beginnings.iter().map(|at_rest| Self { seed, replicas, at_rest: *at_rest }).collect()
    }
}

/// One life.
struct Life {
    world: World,
    /// Numbers of the writes from the submission until the root object was gone.
    writes: Range<usize>,
    wrong: Vec<String>,
}

/// Plays one life until the root object is gone and all is quiet; gives the world and what was wrong.
pub fn live(story: &Story, setting: Setting, death: Option<(usize, Death)>, trace: bool) -> (World, Vec<String>) {
    let life = play(story, setting, death, trace, &[]);
    (life.world, life.wrong)
}

fn shared_path() -> String {
    format!("/apis/ray.io/v1/namespaces/default/rayclusters/{SHARED}")
}

/// A controller whose writes carry no resourceVersion dies at write `at`, which is carried out late: what was wrong.
pub fn live_without_versions(story: &Story, seed: u64, at: usize) -> Vec<String> {
    let dangers = [Danger::NoVersionOnHub, Danger::NoVersionOnMembers];
    play(story, Setting::alone(seed), Some((at, Death::CarriedOutLate)), false, &dangers).wrong
}

fn play(story: &Story, setting: Setting, death: Option<(usize, Death)>, trace: bool, dangers: &[Danger]) -> Life {
    let members = [MemberPlan::new("eu", 1, 8), MemberPlan::new("us", 1, 8)];
    let mut world = World::with_replicas(setting.seed, &members, setting.replicas);
    world.hold = HOLD;
    if setting.replicas > 1 {
        world.away = AWAY;
    }
    world.trace = trace.then(String::new);
    world.dangers = dangers.iter().copied().collect();
    if let Some((at, death)) = death {
        world.die_at(at, death);
    }
    let mut wrong = Vec::new();
    if setting.at_rest {
        world.run_for(REST);
        wrong.extend(world.unowned_units());
    }
    let shared = story.job.cluster_manifest();
    if let Some(cluster) = &shared {
        world.submit(cluster);
        let is_ready = |w: &World| w.hub(&shared_path()).is_some_and(|cluster| cluster["status"]["state"] == "ready");
        if !world.until(Duration::from_secs(600), is_ready) {
            wrong.push("the RayCluster that the job runs on is not ready after 10 min".to_owned());
        }
    }
    let as_it_was = world.hub(&shared_path()).map(|cluster| cluster["spec"].clone());
    let begin = world.writes.len();
    world.submit(&story.job.manifest());
    let ended = world.until(Duration::from_secs(3 * 3600), |w| w.recorder.ending("train").is_some());
    if !ended {
        wrong.push(format!("not ended after 3 h; root {:?}", world.root("train").map(|r| &r["status"])));
    }
    // What the end brings with it (tear-down of the Ray cluster, reports) is part of the life.
    world.run_for(Duration::from_secs(20));
    world.delete("hub", "/apis/ray.io/v1/namespaces/default/rayjobs/train");
    let gone = world.until(Duration::from_secs(6 * 3600), |w| w.root("train").is_none());
    if !gone {
        wrong.push("the root object is not gone 6 h after its deletion".to_owned());
    }
    let writes = begin..world.writes.len();
    if shared.is_some() {
        let there = world.hub(&shared_path()).filter(|there| there["metadata"]["deletionTimestamp"].is_null());
        if there.is_none_or(|there| Some(&there["spec"]) != as_it_was.as_ref() || there["status"]["state"] != "ready") {
            wrong.push(format!("the RayCluster that the job ran on is not what it was: {there:?}"));
        }
        world.delete("hub", &shared_path());
        if !world.until(Duration::from_secs(6 * 3600), |w| w.hub(&shared_path()).is_none()) {
            wrong.push("the RayCluster is not gone 6 h after its deletion".to_owned());
        }
    }
    // Whatever comes late: pods get 30 s to end, and each member is looked at anew in that time.
    world.run_for(Duration::from_secs(60));
    wrong.extend(judge(&world, "train", story.pods, true));
    wrong.extend(world.unowned_units());
    if death.is_some() && !world.has_died() {
        wrong.push("nobody died".to_owned());
    }
    Life { world, writes, wrong }
}

/// All points of these stories in all settings, from the first on in steps of `step` (each story's own where none is given),
/// on all cores. `tell` gets a line for each thing that went wrong.
pub fn run(stories: &[Story], settings: &[Setting], step: Option<usize>, tell: impl Fn(String) + Sync) -> Tally {
    let mut tally = Tally::default();
    let mut runs = Vec::new();
    for (story, setting) in stories.iter().flat_map(|story| settings.iter().map(move |setting| (story, *setting))) {
        let Life { world, writes, wrong } = play(story, setting, None, false, &[]);
        tally.violations += wrong.len();
        for sentence in wrong {
            tell(format!("{} without any crash: {sentence}", title(story, setting)));
        }
        let is_point = |at: &usize| setting.replicas == 1 || world.points.binary_search(at).is_ok();
        for at in writes.filter(is_point).step_by(step.unwrap_or(story.step).max(1)) {
            tally.points += 1;
            runs.extend(DEATHS.map(|death| (story, setting, at, death, world.writes[at].clone())));
        }
    }
    tally.variants = runs.len();
    let (next, violations) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let workers = std::thread::available_parallelism().map_or(1, NonZero::get);
    std::thread::scope(|scope| {
        for _ in 0..workers {
            scope.spawn(|| {
                while let Some((story, setting, at, death, what)) = runs.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let (_, wrong) = live(story, *setting, Some((*at, *death)), false);
                    violations.fetch_add(wrong.len(), Ordering::Relaxed);
                    for sentence in wrong {
                        tell(format!("{} write {at} ({what}) {death:?}: {sentence}", title(story, *setting)));
                    }
                }
            });
        }
    });
    tally.violations += violations.into_inner();
    tally
}

fn title(story: &Story, setting: Setting) -> String {
    let rest = if setting.at_rest { ", from rest" } else { "" };
    format!("{}, seed {}{rest}:", story.name, setting.seed)
}
