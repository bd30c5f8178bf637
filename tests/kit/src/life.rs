//! The judge of one RayJob's whole life: what must be true when all is quiet.
//! Must not know how the life went.

use crate::world::World;

/// Everything that is wrong with job `name` after it has ended (`deleted`: and its root object is gone).
/// `pods` = how many pods it may have had in all.
pub fn judge(world: &World, name: &str, pods: usize, deleted: bool) -> Vec<String> {
    let mut wrong = world.recorder.violations.clone();
    let mut claim = |holds: bool, sentence: String| {
        if !holds {
            wrong.push(sentence);
        }
    };
    let ending = world.recorder.ending(name);
    claim(
        ending.is_some_and(|e| e.0 == "SUCCEEDED" && e.1 == "Complete"),
        format!("{name} ended as {ending:?}, not as SUCCEEDED, Complete"),
    );
    let submissions = world.submissions();
    let of_job: Vec<_> = submissions.iter().filter(|(id, _)| id.starts_with(&format!("{name}-"))).collect();
    claim(
        of_job.len() == 1 && of_job.iter().all(|(_, count)| **count == 1),
        format!("exactly one Ray submission, but there were {of_job:?}"),
    );
    let created = world.recorder.pods_ever(&format!("{name}-"));
    claim(created == pods, format!("{pods} pods, but {created} were created"));
    if deleted {
        claim(world.root(name).is_none(), format!("root {name} is still there"));
        claim(world.placement(name).is_none(), format!("placement of {name} is still there"));
        for site in world.members() {
            for object in site.server.objects() {
                let ours = object["metadata"]["labels"]["rayfleet.io/root-id"].is_string();
                let (kind, metadata) = (&object["kind"], &object["metadata"]);
                claim(!ours, format!("left on {}: {kind} {metadata}", site.cluster));
            }
        }
    }
    wrong
}
