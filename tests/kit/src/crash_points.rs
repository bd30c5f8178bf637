//! Every crash point of one RayJob's life: at each write of the controller, in three variants, it dies and comes back, or
//! another replica takes over.
//! Must not know what the writes are: it counts them.

use std::time::Duration;

use crate::fleet::MemberPlan;
use crate::job::{RayJob, ray_job};
use crate::life::judge;
use crate::world::{DEATHS, Death, World};

/// Sum of all runs.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tally {
    /// Writes at which the controller died.
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
}

/// The stories that are played: HTTPMode with two workers, and K8sJobMode.
pub fn stories() -> Vec<Story> {
    vec![
        Story { name: "http", job: ray_job("train").cpus(1).workers(2, 1), pods: 3 },
        Story { name: "k8s", job: ray_job("train").cpus(1).workers(1, 1).mode("K8sJobMode"), pods: 3 },
    ]
}

/// How long a replica stays away where another is to take over: longer than that takes.
const AWAY: Duration = Duration::from_secs(60);

/// What is played around the story.
#[derive(Clone, Copy, Debug)]
pub struct Setting {
    /// Seed of the delays.
    pub seed: u64,
    /// With one, it comes back after a second; with more, another takes over.
    pub replicas: usize,
}

impl Setting {
    /// One replica.
    pub fn alone(seed: u64) -> Self {
        Self { seed, replicas: 1 }
    }
}

/// Plays one life from the empty fleet to the deleted root object; gives the number of writes and what was wrong.
pub fn live(story: &Story, setting: Setting, death: Option<(usize, Death)>, trace: bool) -> (World, Vec<String>) {
    let (world, _, wrong) = play(story, setting, death, trace, false);
    (world, wrong)
}

/// A controller whose writes carry no resourceVersion dies at write `at`, which is carried out late: what was wrong.
pub fn live_without_versions(story: &Story, seed: u64, at: usize) -> Vec<String> {
    play(story, Setting::alone(seed), Some((at, Death::CarriedOutLate)), false, true).2
}

/// The same; the number is that of the writes until the root object was gone.
fn play(
    story: &Story,
    setting: Setting,
    death: Option<(usize, Death)>,
    trace: bool,
    unconditional: bool,
) -> (World, usize, Vec<String>) {
    let members = [MemberPlan::new("eu", 1, 8), MemberPlan::new("us", 1, 8)];
    let mut world = World::with_replicas(setting.seed, &members, setting.replicas);
    if setting.replicas > 1 {
        world.away = AWAY;
    }
    world.trace = trace.then(String::new);
    world.unconditional = unconditional;
    if let Some((at, death)) = death {
        world.die_at(at, death);
    }
    world.submit(&story.job.manifest());
    let mut wrong = Vec::new();
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
    let writes = world.writes.len();
    // Whatever comes late.
    world.run_for(Duration::from_secs(120));
    wrong.extend(judge(&world, "train", story.pods, true));
    (world, writes, wrong)
}

/// All points of one story, from `from` on in steps of `step`. `tell` gets a line for each run that went wrong.
pub fn run(story: &Story, setting: Setting, step: usize, mut tell: impl FnMut(String)) -> Tally {
    let (world, life, wrong) = play(story, setting, None, false, false);
    let writes = &world.writes[..life];
    let mut tally = Tally::default();
    for sentence in wrong {
        tally.violations += 1;
        tell(format!("{}: without any crash: {sentence}", story.name));
    }
    for (at, what) in writes.iter().enumerate().step_by(step.max(1)) {
        tally.points += 1;
        for death in DEATHS {
            tally.variants += 1;
            let (_, wrong) = live(story, setting, Some((at, death)), false);
            for sentence in wrong {
                tally.violations += 1;
                tell(format!("{}: write {at} ({what}) {death:?}: {sentence}", story.name));
            }
        }
    }
    tally
}
