//! Stories of units that change hands: by hand, too early, in the midst of a write, or with an old view.
//! Must not know what a mutant does.

use rayfleet::api::fleet::MemberClusterSpec;
use rayfleet::api::member_unit;
use serde_json::Value;
use shards::hash::queue_units;
use shards::queue_unit;

use super::stories::{Ending, MINUTE, SECOND, Setting, holder, lease, owner, reach, runs_on, stage, to_the_end, train};
use crate::fleet::MemberPlan;
use crate::world::{Death, Trap, World};

/// A person deletes the records of all units.
fn delete_records(world: &mut World, members: &[&str]) {
    let of_member = |name: &str| {
        let name = name.to_owned();
        (0..MemberClusterSpec::default().unit_count()).map(move |index| member_unit(&name, index).to_string())
    };
    for unit in queue_units().chain(members.iter().flat_map(|name| of_member(name))) {
        world.delete("hub", &lease(&unit));
    }
}

/// While the controller is away a person deletes the records of units: epochs begin anew below what objects carry.
pub(super) fn records_deleted_by_hand(setting: &Setting) -> Ending {
    let mut world = setting.two_members(1)?;
    world.submit(&train().entrypoint("sleep 120").manifest());
    reach(&mut world, MINUTE, "it is reserved", |w| stage(w) == "Reserving")?;
    world.restart(SECOND);
    reach(&mut world, 5 * MINUTE, "it runs on eu", |w| runs_on(w, "eu"))?;
    world.restart(2 * SECOND);
    world.run_for(SECOND);
    delete_records(&mut world, &["eu", "us"]);
    Ok(to_the_end(&mut world, 3))
}

/// The queue's unit has changed hands more often than the member's: its epoch is higher.
pub(super) fn one_unit_changed_hands_more_often(setting: &Setting) -> Ending {
    let mut world = setting.fleet(&[MemberPlan::new("eu", 1, 8)], 2)?;
    let epoch = |w: &World, unit: &str| w.hub(&lease(unit)).and_then(|l| l["spec"]["leaseTransitions"].as_u64());
    let unit = queue_unit("ml");
    for _ in 0..2 {
        let first = owner(&world, &unit)?;
        world.leave(first);
        reach(&mut world, MINUTE, "it has left", |w| !w.runs(first))?;
        world.start_replica(first);
        reach(&mut world, 2 * MINUTE, "the unit is back", |w| {
            holder(w, &unit) == Some(first) && w.unowned_units().is_empty()
        })?;
    }
    let epochs = [epoch(&world, &unit), epoch(&world, "m-eu-0")];
    if epochs[0] <= epochs[1] {
        return Err(format!("epochs of {unit} and m-eu-0 are {epochs:?}"));
    }
    world.submit(&train().manifest());
    Ok(to_the_end(&mut world, 3))
}

/// A RayJob that was applied straight to a member: in one epoch it gets its finalizer, in the next its names, and then a
/// person deletes the records of units. What is on the object alone tells how high epochs were.
pub(super) fn decision_in_a_forgotten_epoch(setting: &Setting) -> Ending {
    let mut world = setting.fleet(&[MemberPlan::new("eu", 1, 8)], 1)?;
    let job = "/apis/ray.io/v1/namespaces/default/rayjobs/train";
    let status = ["PUT", "/rayjobs/train/status?"];
    let mut manifest = train().manifest();
    manifest["metadata"]["labels"] = Value::Null;
    world.trap(&status, Trap::Die(Death::NotSent));
    world.apply("eu", &manifest);
    reach(&mut world, MINUTE, "its names are to be stored", |w| w.trapped().is_some())?;
    world.trap(&status, Trap::Die(Death::AnswerLost));
    reach(&mut world, MINUTE, "its names are stored", |w| {
        w.trapped().is_some() && w.site("eu").get(job).is_some_and(|j| j["status"]["jobId"].is_string())
    })?;
    delete_records(&mut world, &["eu"]);
    let ended = |w: &World| w.site("eu").get(job).is_some_and(|j| j["status"]["jobDeploymentStatus"] == "Complete");
    if !world.until(10 * MINUTE, ended) {
        world.recorder.violations.push(format!("it never ended: {:?}", world.site("eu").get(job)));
    }
    Ok(world.recorder.violations.clone())
}

/// The member's owner comes back while an API server of the hub lags behind: its list of placements is from before the
/// job that runs there.
pub(super) fn old_list_of_placements(setting: &Setting) -> Ending {
    let mut world = setting.two_members(2)?;
    let first = owner(&world, "m-eu-0")?;
    world.lag(first, "hub", "/apis/rayfleet.io/v1alpha1/placements");
    world.leave(first);
    reach(&mut world, MINUTE, "it has left", |w| !w.runs(first) && w.unowned_units().is_empty())?;
    world.submit(&train().entrypoint("sleep 300").manifest());
    reach(&mut world, 5 * MINUTE, "it runs on eu", |w| runs_on(w, "eu"))?;
    world.start_replica(first);
    reach(&mut world, MINUTE, "the unit is back", |w| holder(w, "m-eu-0") == Some(first))?;
    world.run_for(MINUTE);
    world.catch_up();
    let mut wrong = to_the_end(&mut world, 3);
    if world.recorder.counts.withdrawals > 0 {
        wrong.insert(0, "what ran where its placement says was ended".to_owned());
    }
    Ok(wrong)
}

/// A replica freezes with the answer to its renewal on the way, and loses the hub. When it thaws, that answer is old.
pub(super) fn frozen_renewal(setting: &Setting) -> Ending {
    let mut world = setting.fleet(&[MemberPlan::new("eu", 1, 8)], 2)?;
    let version = |w: &World| w.hub(&lease("seat-a")).map(|l| l["metadata"]["resourceVersion"].clone());
    let before = version(&world);
    reach(&mut world, MINUTE, "a renewal is stored", |w| version(w) != before)?;
    world.freeze(0, 14 * SECOND);
    world.part(0, "hub", true);
    world.run_for(MINUTE);
    world.part(0, "hub", false);
    world.run_for(MINUTE);
    let mut wrong = world.recorder.violations.clone();
    wrong.extend(world.unowned_units());
    Ok(wrong)
}

/// The member's owner is asked to leave while a write of it is under way: the unit is another's only when that is over.
pub(super) fn left_with_a_write_under_way(setting: &Setting) -> Ending {
    let mut world = setting.two_members(2)?;
    world.trap(&["POST", "/rayjobs?", " on eu"], Trap::Part);
    world.submit(&train().manifest());
    reach(&mut world, MINUTE, "the mirror is on its way", |w| w.trapped().is_some())?;
    let first = owner(&world, "m-eu-0")?;
    world.leave(first);
    let mut wrong = to_the_end(&mut world, 3);
    wrong.extend(world.recorder.overlaps.clone());
    Ok(wrong)
}
