//! Stories of a write that comes late: its author froze with the check behind it, or lost the hub.
//! Must not know what a mutant does.

use std::time::Duration;

use serde_json::json;

use super::stories::{
    Ending, MINUTE, SECOND, Setting, cordon, member, owner, reach, runs_on, stage, suspend, to_the_end, train, uncordon,
};
use crate::fleet::MemberPlan;
use crate::world::{Trap, World};

/// Longer than a take-over and what follows it take.
const FROZEN: Duration = Duration::from_secs(200);

fn thaws(world: &mut World) {
    world.run_for(FROZEN);
}

/// The owner of the queue freezes when it binds; another binds instead. The late binding changes nothing.
pub(super) fn binding(setting: &Setting) -> Ending {
    let mut world = setting.two_members(2)?;
    world.trap(&["PUT", "/placements/rayjob-train?"], Trap::Freeze(MINUTE));
    world.submit(&train().manifest());
    reach(&mut world, MINUTE, "a binding is on its way", |w| w.trapped().is_some())?;
    reach(&mut world, MINUTE, "another replica binds", |w| stage(w) != "Waiting")?;
    thaws(&mut world);
    Ok(to_the_end(&mut world, 3))
}

/// The owner of the mirror freezes when it sets the finalizer; another goes on. The late PUT changes nothing.
pub(super) fn finalizer(setting: &Setting) -> Ending {
    let mut world = setting.two_members(2)?;
    world.trap(&["PUT", "/rayjobs/train?", " on eu"], Trap::Freeze(MINUTE));
    world.submit(&train().entrypoint("sleep 300").manifest());
    reach(&mut world, MINUTE, "the finalizer is on its way", |w| w.trapped().is_some())?;
    reach(&mut world, MINUTE, "another replica goes on", |w| runs_on(w, "eu"))?;
    thaws(&mut world);
    Ok(to_the_end(&mut world, 3))
}

/// The member's owner freezes when it makes the mirror. Another withdraws the placement, and the job runs elsewhere: the
/// late mirror must find its name taken.
pub(super) fn mirror(setting: &Setting) -> Ending {
    let mut world = setting.two_members(2)?;
    world.trap(&["POST", "/rayjobs?", " on eu"], Trap::Freeze(FROZEN));
    world.submit(&train().entrypoint("sleep 600").manifest());
    reach(&mut world, MINUTE, "the mirror is on its way", |w| w.trapped().is_some())?;
    suspend(&mut world, true);
    reach(&mut world, 2 * MINUTE, "it waits again", |w| stage(w) == "Waiting" && member(w) == "eu")?;
    cordon(&mut world, "eu");
    suspend(&mut world, false);
    reach(&mut world, MINUTE, "it runs on us", |w| runs_on(w, "us"))?;
    thaws(&mut world);
    Ok(to_the_end(&mut world, 3))
}

/// The member's owner loses the member when it makes the mirror, and then the hub. Another withdraws the placement,
/// and long after that the job runs elsewhere. Then the first reaches the member again, though not the hub.
pub(super) fn without_the_hub(setting: &Setting) -> Ending {
    let mut world = setting.two_members(2)?;
    // What it cannot set up is tried for as long as the story lasts.
    let policy = "/apis/rayfleet.io/v1alpha1/namespaces/default/placementpolicies/default";
    world.patch("hub", policy, &json!({ "spec": { "admissionDeadlineSeconds": 7200 } }));
    world.trap(&["POST", "/rayjobs?", " on eu"], Trap::Part);
    world.submit(&train().entrypoint("sleep 600").manifest());
    reach(&mut world, MINUTE, "the mirror is sent in vain", |w| w.trapped().is_some())?;
    let first = owner(&world, "m-eu-0")?;
    world.part(first, "hub", true);
    suspend(&mut world, true);
    reach(&mut world, 2 * MINUTE, "it waits again", |w| stage(w) == "Waiting")?;
    let mirror = "/apis/ray.io/v1/namespaces/default/rayjobs/train";
    reach(&mut world, 30 * MINUTE, "its tombstone is gone", |w| w.site("eu").get(mirror).is_none())?;
    cordon(&mut world, "eu");
    suspend(&mut world, false);
    reach(&mut world, MINUTE, "it runs on us", |w| runs_on(w, "us"))?;
    world.part(first, "eu", false);
    world.run_for(MINUTE);
    world.part(first, "hub", false);
    world.run_for(10 * SECOND);
    Ok(to_the_end(&mut world, 3))
}

/// While the binding is on its way the member is cordoned: the reservation is given straight back. That write is not
/// answered in time, and there is room again. It lands when the member may have been written to; then the job goes
/// elsewhere.
pub(super) fn given_back(setting: &Setting) -> Ending {
    let placement = ["PUT", "/placements/rayjob-train?"];
    // Volcano takes its time: the write lands before the gang is admitted.
    let mut world = setting.with_eu(MemberPlan::new("eu", 1, 8).late(12_000), 1)?;
    world.trap(&placement, Trap::Slow(2 * SECOND));
    world.submit(&train().entrypoint("sleep 300").manifest());
    reach(&mut world, MINUTE, "a binding is on its way", |w| w.trapped().is_some())?;
    cordon(&mut world, "eu");
    reach(&mut world, MINUTE, "it is reserved", |w| stage(w) == "Reserving" && member(w) == "eu")?;
    // Longer than a write may take.
    world.trap(&placement, Trap::Slow(Duration::from_millis(5_800)));
    reach(&mut world, MINUTE, "it is given back", |w| w.trapped().is_some())?;
    uncordon(&mut world, "eu");
    reach(&mut world, MINUTE, "it waits, or is withdrawn", |w| matches!(stage(w), "Waiting" | "Withdrawing"))?;
    cordon(&mut world, "eu");
    Ok(to_the_end(&mut world, 3))
}
