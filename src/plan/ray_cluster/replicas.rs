//! Worker groups whose replicas have several hosts: a replica comes and goes as a whole (specs/raycluster.md 2.6.2).
//! Must not know groups of single pods.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::json;

use super::pods::{INDEX, delete_worker, free_name, is_spent, surplus_goes};
use super::{Draft, Pod};
use crate::api::Kind;
use crate::api::ray::WorkerGroupSpec;
use crate::plan::pass::Flow;
use crate::plan::{build, names};

/// Label with the name of a replica.
const REPLICA: &str = "ray.io/worker-group-replica-name";

/// The pods of one replica.
struct Replica<'a> {
    name: &'a str,
    index: i32,
    pods: Vec<Pod<'a>>,
}

impl Replica<'_> {
    /// Deletes all its pods that are not going already; says whether there were any.
    fn delete(&self, draft: &mut Draft<'_>, why: &str) -> bool {
        let mut any = false;
        for pod in &self.pods {
            any |= delete_worker(draft, *pod, why);
        }
        any
    }

    fn is_going(&self) -> bool {
        self.pods.iter().all(|pod| pod.row.deleting.is_some())
    }

    fn is_ready(&self) -> bool {
        self.pods.iter().all(|pod| pod.facts.ready)
    }
}

/// One group. Pods without the label belong to no replica and are left alone, as in KubeRay.
pub(super) fn group(draft: &mut Draft<'_>, group: &WorkerGroupSpec, pods: &[Pod<'_>]) -> Flow {
    let hosts = usize::try_from(group.hosts()).unwrap_or(1);
    let mut replicas = by_name(pods);
    // A replica is never mended: Ray could not use a host that comes later.
    if let Some(broken) = replicas.iter().find(|replica| replica.pods.len() < hosts) {
        let why = format!("replica {} has {} of its {hosts} hosts", broken.name, broken.pods.len());
        broken.delete(draft, &why);
        draft.failed = true;
        draft.pass.waits_for(format!("{why}: all of it goes"));
        return Flow::Stop;
    }
    replicas.retain(|replica| {
        let spent = replica.pods.iter().find_map(|pod| is_spent(*pod, &group.template));
        let Some(why) = spent else { return true };
        replica.delete(draft, &format!("of a host of its replica {why}"));
        false
    });
    let leaving: BTreeSet<&str> = group.to_delete().collect();
    let named = |replica: &&Replica<'_>| replica.pods.iter().any(|pod| leaving.contains(&*pod.row.id.name));
    let chosen: Vec<&Replica<'_>> = replicas.iter().filter(named).collect();
    if !chosen.is_empty() {
        for replica in chosen {
            replica.delete(draft, "workersToDelete names a host of its replica");
        }
        draft.failed = true;
        draft.pass.waits_for(format!("replicas of group {} that workersToDelete names are going", group.group_name));
        return Flow::Stop;
    }
    let wanted = usize::try_from(build::desired_pods(group)).unwrap_or(0) / hosts.max(1);
    let mut taken: BTreeSet<i32> = replicas.iter().map(|replica| replica.index).collect();
    let mut names: BTreeSet<String> = by_name(pods).iter().map(|replica| replica.name.to_owned()).collect();
    for _ in replicas.len()..wanted {
        create(draft, group, &mut taken, &mut names);
    }
    if replicas.len() > wanted && surplus_goes(draft) {
        let going = replicas.iter().filter(|replica| replica.is_going()).count();
        let surplus = (replicas.len() - wanted).saturating_sub(going);
        // Those that do not run go first, then the newest numbers.
        replicas.sort_by_key(|replica| (replica.is_ready(), std::cmp::Reverse(replica.index)));
        for replica in replicas.iter().filter(|replica| !replica.is_going()).take(surplus) {
            replica.delete(draft, "the group has more replicas than it should");
        }
    }
    Flow::Next
}

fn by_name<'a>(pods: &[Pod<'a>]) -> Vec<Replica<'a>> {
    let mut all: BTreeMap<&'a str, Replica<'a>> = BTreeMap::new();
    for pod in pods {
        let name = pod.row.label(REPLICA);
        if name.is_empty() {
            continue;
        }
        let index = pod.row.label(INDEX).parse().unwrap_or(0);
        all.entry(name).or_insert_with(|| Replica { name, index, pods: Vec::new() }).pods.push(*pod);
    }
    all.into_values().collect()
}

fn create(draft: &mut Draft<'_>, group: &WorkerGroupSpec, taken: &mut BTreeSet<i32>, names: &mut BTreeSet<String>) {
    let index = (0..i32::MAX).find(|i| !taken.contains(i)).unwrap_or(0);
    taken.insert(index);
    let uid = draft.cluster.metadata.uid();
    let replica = names::replica(uid, &group.group_name, index, |name| names.contains(name));
    names.insert(replica.clone());
    let prefix = names::worker_prefix(draft.cluster.metadata.name(), &group.group_name);
    for host in 0..group.hosts() {
        let slot = build::Slot { replica: index, host: Some((&replica, host)) };
        let mut body = build::worker_pod(&draft.cluster, group, slot, draft.flags);
        // The replica's name is part of it: hosts of two replicas never compete for one.
        let name = free_name(draft, &prefix, &format!("{}/{replica}", group.group_name), host);
        let full = draft.pass.full_name(&name);
        body["metadata"]["name"] = json!(name);
        draft.pass.create(Kind::Pod, body);
        draft.pass.note(false, "CreatedWorkerPod", "Create", format!("Created worker Pod {full}"));
    }
    draft.pass.waits_for("worker pods are being made");
}
