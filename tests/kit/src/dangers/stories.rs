//! What the stories of dangers are made of, and the one that needs a single replica.
//! Must not know what a mutant does: what is judged is what the API says.

use std::collections::BTreeSet;
use std::time::Duration;

use serde_json::{Value, json};

use super::Danger;
use crate::fleet::MemberPlan;
use crate::job::{RayJob, ray_job};
use crate::life::judge;
use crate::world::World;

/// How a story ends: what was wrong, or why it proves nothing.
pub(super) type Ending = Result<Vec<String>, String>;

pub(super) const SECOND: Duration = Duration::from_secs(1);
pub(super) const MINUTE: Duration = Duration::from_secs(60);

/// What a story is played with.
#[derive(Clone, Debug)]
pub struct Setting {
    /// Seed of delays.
    pub seed: u64,
    /// Rules that the replicas do not keep.
    pub dangers: BTreeSet<Danger>,
    /// Writes whose target contains this are printed.
    pub trace: Option<String>,
}

impl Setting {
    /// A fleet in which every unit is with the replica that should have it.
    pub(super) fn fleet(&self, members: &[MemberPlan], replicas: usize) -> Result<World, String> {
        let mut world = World::with_replicas(self.seed, members, replicas);
        world.dangers.clone_from(&self.dangers);
        world.trace.clone_from(&self.trace);
        reach(&mut world, MINUTE, "every unit has an owner", |w| w.unowned_units().is_empty())?;
        world.run_for(30 * SECOND);
        reach(&mut world, MINUTE, "every unit has an owner again", |w| w.unowned_units().is_empty())?;
        Ok(world)
    }

    /// Members `eu` and `us`, of which `eu` is preferred.
    pub(super) fn two_members(&self, replicas: usize) -> Result<World, String> {
        self.with_eu(MemberPlan::new("eu", 1, 8), replicas)
    }

    /// The same, with this `eu`.
    pub(super) fn with_eu(&self, eu: MemberPlan, replicas: usize) -> Result<World, String> {
        let mut world = self.fleet(&[eu, MemberPlan::new("us", 1, 8)], replicas)?;
        world.submit(&json!({
            "apiVersion": "rayfleet.io/v1alpha1",
            "kind": "PlacementPolicy",
            "metadata": { "namespace": "default", "name": "default" },
            "spec": { "preference": ["eu", "us"] },
        }));
        // Of members that are not known yet none is preferred.
        let known = |w: &World, kind: &str, m: &str| w.hub(&format!("/apis/rayfleet.io/v1alpha1/{kind}/{m}")).cloned();
        let held = |w: &World, m: &str| {
            known(w, "memberclusters", m).is_some_and(|c| c["metadata"]["finalizers"] != Value::Null)
                && known(w, "membercapacities", m).is_some()
        };
        reach(&mut world, MINUTE, "both members are known", |w| ["eu", "us"].iter().all(|m| held(w, m)))?;
        Ok(world)
    }
}

/// Goes on until the condition holds; an error names what never came.
pub(super) fn reach(
    world: &mut World,
    limit: Duration,
    what: &str,
    condition: impl Fn(&World) -> bool,
) -> Result<(), String> {
    if world.until(limit, condition) { Ok(()) } else { Err(format!("within {limit:?} never: {what}")) }
}

/// A job of three pods.
pub(super) fn train() -> RayJob {
    ray_job("train").cpus(1).workers(2, 1)
}

pub(super) fn stage(world: &World) -> &str {
    world.placement("train").and_then(|p| p["spec"]["stage"].as_str()).unwrap_or_default()
}

pub(super) fn member(world: &World) -> &str {
    world.placement("train").and_then(|p| p["spec"]["member"].as_str()).unwrap_or_default()
}

pub(super) fn runs_on(world: &World, name: &str) -> bool {
    stage(world) == "Running" && member(world) == name
}

/// The user suspends the job, or lets it go on.
pub(super) fn suspend(world: &mut World, yes: bool) {
    let path = "/apis/ray.io/v1/namespaces/default/rayjobs/train";
    world.patch("hub", path, &json!({ "spec": { "suspend": yes } }));
}

/// Nothing new is placed on the member.
pub(super) fn cordon(world: &mut World, name: &str) {
    unschedulable(world, name, true);
}

/// The member is placed on again.
pub(super) fn uncordon(world: &mut World, name: &str) {
    unschedulable(world, name, false);
}

fn unschedulable(world: &mut World, name: &str, yes: bool) {
    let path = format!("/apis/rayfleet.io/v1alpha1/memberclusters/{name}");
    world.patch("hub", &path, &json!({ "spec": { "unschedulable": yes } }));
}

/// Path of the Lease of this name.
pub(super) fn lease(name: &str) -> String {
    format!("/apis/coordination.k8s.io/v1/namespaces/rayfleet-system/leases/{name}")
}

/// The replica that holds a unit, by its record.
pub(super) fn holder(world: &World, unit: &str) -> Option<usize> {
    let record = world.hub(&lease(unit))?;
    let seat = record["spec"]["holderIdentity"].as_str()?.split('#').next()?;
    ('a'..='z').position(|letter| seat == letter.to_string())
}

/// The replica that a unit is with must be known.
pub(super) fn owner(world: &World, unit: &str) -> Result<usize, String> {
    holder(world, unit).ok_or_else(|| format!("nobody holds {unit}"))
}

/// The job has ended, and its life is judged.
pub(super) fn to_the_end(world: &mut World, pods: usize) -> Vec<String> {
    let ended = world.until(60 * MINUTE, |w| w.recorder.ending("train").is_some());
    world.run_for(MINUTE);
    if !ended {
        let mut wrong = world.recorder.violations.clone();
        wrong.push(format!("train never ended, in stage {:?} on {:?}", stage(world), member(world)));
        return wrong;
    }
    judge(world, "train", pods, false)
}

/// A job runs on a member that falls silent; its user suspends it, and lets it go on. It must not go on elsewhere: what
/// stands on the silent member cannot be ended.
pub(super) fn suspended_on_a_silent_member(setting: &Setting) -> Ending {
    let mut world = setting.two_members(1)?;
    world.submit(&train().entrypoint("sleep 600").manifest());
    reach(&mut world, 5 * MINUTE, "it runs on eu", |w| runs_on(w, "eu"))?;
    world.cut("eu", true);
    suspend(&mut world, true);
    reach(&mut world, MINUTE, "it is withdrawn", |w| matches!(stage(w), "Withdrawing" | "Waiting"))?;
    world.run_for(5 * SECOND);
    cordon(&mut world, "eu");
    suspend(&mut world, false);
    world.run_for(5 * MINUTE);
    world.cut("eu", false);
    let ended = world.until(60 * MINUTE, |w| w.recorder.ending("train").is_some());
    let mut wrong = world.recorder.violations.clone();
    if !ended {
        wrong.push(format!("train never ended, in stage {:?} on {:?}", stage(&world), member(&world)));
    }
    Ok(wrong)
}
