//! Many RayJobs on bad days: 100 of them over 3 members with watch cuts, conflicts, slow and lost answers; with several
//! replicas these crash, freeze, lose the hub, leave and come back.
//! Must not know single jobs: what it judges is the whole.

use std::time::Duration;

use crate::chaos::{Chaos, ChaosCounts};
use crate::check::Counts;
use serde_json::Value;

use crate::fleet::MemberPlan;
use crate::job::ray_job;
use crate::link::LinkProfile;
use crate::site::Site;
use crate::world::World;

/// What one seed gave.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// Seed.
    pub seed: u64,
    /// Events handled.
    pub steps: u64,
    /// What was wrong.
    pub violations: Vec<String>,
    /// Numbers.
    pub counts: Counts,
    /// What happened to replicas.
    pub chaos: ChaosCounts,
}

/// What one run is made of.
#[derive(Clone, Copy, Debug)]
pub struct Plan<'a> {
    /// RayJobs.
    pub jobs: usize,
    /// Replicas; with one, it is killed now and then; with more, all that [`Chaos`] has.
    pub replicas: usize,
    /// Writes to targets and of objects whose name contains this are printed, and what the recorder sees of such objects.
    pub trace: Option<&'a str>,
}

/// Jobs of one run.
pub const JOBS: usize = 100;

/// One seed: submits the jobs over some minutes, waits until all have ended, judges.
pub fn run(seed: u64, plan: Plan<'_>) -> Outcome {
    let Plan { jobs, replicas, trace } = plan;
    let mut dice = fastrand::Rng::with_seed(seed ^ 0x6a6f_6273);
    let members = [
        MemberPlan::new("eu", 2, 8).queue("ml", 12).queue("research", 8),
        MemberPlan::new("us", 3, 8).queue("ml", 24).queue("research", 6),
        MemberPlan::new("ap", 2, 4).queue("ml", 8).late(if dice.bool() { 12_000 } else { 0 }),
    ];
    let mut world = World::with_replicas(seed, &members, replicas);
    let mut chaos = Chaos::new(seed, replicas, &["eu", "us", "ap"]);
    world.trace = trace.map(str::to_owned);
    world.recorder.trace = trace.map(str::to_owned);
    world.links(&LinkProfile::stormy());
    let names: Vec<String> = (0..jobs).map(|i| format!("job-{i:03}")).collect();
    for (index, name) in names.iter().enumerate() {
        let queue = if dice.u32(0..4) == 0 { "research" } else { "ml" };
        let mode = if dice.u32(0..4) == 0 { "K8sJobMode" } else { "HTTPMode" };
        let job = ray_job(name).queue(queue).cpus(dice.u32(1..=3)).workers(dice.u32(0..=3), 1).mode(mode);
        world.submit(&job.manifest());
        world.run_for(Duration::from_millis(dice.u64(0..8_000)));
        if replicas > 1 {
            chaos.step(&mut world);
        } else if index % 25 == 24 && dice.bool() {
            world.restart(Duration::from_secs(dice.u64(1..10)));
        }
    }
    chaos.stop(&mut world);
    // Asked after each step: counted before it is looked at one by one.
    let done =
        |w: &World| w.recorder.ended() >= names.len() && names.iter().all(|name| w.recorder.ending(name).is_some());
    world.until(Duration::from_secs(3600), done);
    // Who holds what is judged at rest: on links such as these a seat may be lost, and taken again, at any moment.
    world.links(&LinkProfile::calm());
    world.run_for(Duration::from_secs(60));
    let mut violations = world.recorder.violations.clone();
    violations.extend(world.unowned_units());
    let submissions = world.submissions();
    for name in &names {
        match world.recorder.ending(name) {
            Some((job, deployment)) if job == "SUCCEEDED" && deployment == "Complete" => {}
            Some(other) => violations.push(format!(
                "{name} ended as {other:?}: {}",
                world.root(name).map(|r| r["status"].to_string()).unwrap_or_default()
            )),
            None => violations.push(format!(
                "{name} never ended: status {:?}, placement {:?}",
                world.root(name).map(|r| r["status"].to_string()),
                world.placement(name).map(|p| p["spec"].to_string())
            )),
        }
        let count: u32 =
            submissions.iter().filter(|(id, _)| id.starts_with(&format!("{name}-"))).map(|(_, n)| *n).sum();
        if count != 1 {
            violations.push(format!("{name} was submitted to Ray {count} times"));
        }
    }
    if names.iter().any(|name| world.recorder.ending(name).is_none()) {
        violations.extend(world.members().map(left_over));
    }
    Outcome { seed, steps: world.steps, violations, counts: world.recorder.counts.clone(), chaos: chaos.counts }
}

/// What a member still runs: a job that never ends waits for something that is seen here.
fn left_over(site: &Site) -> String {
    let text = |v: &Value| v.as_str().unwrap_or("-").to_owned();
    let lines = site.objects().filter_map(|o| {
        let name = text(&o["metadata"]["name"]);
        match o["kind"].as_str()? {
            "Pod" if !matches!(o["status"]["phase"].as_str(), Some("Succeeded" | "Failed")) => {
                let cpus: Vec<_> = o["spec"]["containers"]
                    .as_array()?
                    .iter()
                    .map(|c| text(&c["resources"]["requests"]["cpu"]))
                    .collect();
                Some(format!(
                    "{name} {} on {} cpus {}",
                    text(&o["status"]["phase"]),
                    text(&o["spec"]["nodeName"]),
                    cpus.join("+")
                ))
            }
            "PodGroup" => Some(format!(
                "{name} {} in {} min {}",
                text(&o["status"]["phase"]),
                text(&o["spec"]["queue"]),
                o["spec"]["minResources"]
            )),
            _ => None,
        }
    });
    format!("left on {}: {}", site.cluster, lines.collect::<Vec<_>>().join("; "))
}
