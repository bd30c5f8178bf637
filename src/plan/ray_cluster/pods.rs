//! Pods of a RayCluster: suspension, upgrade, PodGroup, head, worker groups (specs/raycluster.md 2.5 to 2.10).
//! Must not know status.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

use super::{Draft, Pod, replicas};
use crate::api::Kind;
use crate::api::names::{DISABLE_HEAD_RESTART, ORIGINATED_KIND_LABEL, RAY_GROUP_LABEL};
use crate::api::ray::{PodTemplate, WorkerGroupSpec};
use crate::plan::pass::Flow;
use crate::plan::{Propagation, build, names};
use crate::row::Facts;

const HASH: &str = "ray.io/upgrade-strategy-recreate-hash";
const VERSION: &str = "ray.io/kuberay-version";
/// Label with the number of a pod's replica within its group.
pub(super) const INDEX: &str = "ray.io/worker-group-replica-index";

/// Suspending deletes all pods, Suspended rests; the status step moves from one to the next (2.8).
pub(super) fn suspension(draft: &mut Draft<'_>) -> Flow {
    if draft.cluster.is("RayClusterSuspending") {
        delete_all(draft, "it is being suspended");
        return Flow::Stop;
    }
    if draft.cluster.is("RayClusterSuspended") || draft.cluster.spec.suspend == Some(true) {
        draft.pass.waits_for("it is suspended");
        return Flow::Stop;
    }
    Flow::Next
}

fn delete_all(draft: &mut Draft<'_>, why: &str) {
    let mut any = false;
    for pod in draft.pods.clone() {
        any |= draft.pass.delete(pod.row, Propagation::Background);
    }
    if any {
        let name = draft.pass.full_name(draft.cluster.metadata.name());
        draft.pass.note(false, "DeletedPod", "Delete", format!("Deleted all Pods of RayCluster {name}: {why}"));
    }
    draft.pass.waits_for(format!("its pods are going: {why}"));
}

/// With strategy Recreate a changed spec deletes all pods; a head that another controller's version made is only marked
/// as ours (2.9).
pub(super) fn recreation(draft: &mut Draft<'_>) -> Flow {
    let strategy = draft.cluster.spec.upgrade_strategy.as_ref().and_then(|s| s.r#type.as_deref());
    if strategy != Some("Recreate") {
        return Flow::Next;
    }
    let Some(head) = draft.heads().first().copied() else { return Flow::Next };
    let hash = build::spec_hash(&draft.cluster.spec);
    let made_by = head.row.annotation(VERSION);
    if !made_by.is_empty() && made_by != &*draft.flags.version {
        if head.row.deleting.is_none() {
            let annotations = json!({ HASH: hash, VERSION: &*draft.flags.version });
            draft.pass.merge(head.row, json!({ "metadata": { "annotations": annotations } }));
        }
        return Flow::Next;
    }
    let had = head.row.annotation(HASH);
    if had.is_empty() || had == hash {
        return Flow::Next;
    }
    delete_all(draft, "its spec changed");
    Flow::Stop
}

/// The PodGroup of a RayCluster that a user applied here. A RayJob has its own, and so has a mirror, from its reservation.
pub(super) fn pod_group(draft: &mut Draft<'_>) -> Flow {
    let of_job = draft.cluster.metadata.label(ORIGINATED_KIND_LABEL) == "RayJob";
    if of_job || draft.pass.is_mirror() || !build::uses_volcano(&draft.cluster.metadata) {
        return Flow::Next;
    }
    let size = build::size_of_cluster(&draft.cluster.spec);
    let metadata = draft.cluster.metadata.clone();
    ensure_pod_group(&mut draft.pass, "RayCluster", &metadata, &size)
}

/// Creates the PodGroup, or corrects its size; nothing else of it is ever changed (specs/volcano.md 5.2).
pub(in crate::plan) fn ensure_pod_group(
    pass: &mut crate::plan::pass::Pass<'_>,
    kind: &str,
    owner: &crate::api::ray::ObjectMeta,
    size: &build::GangSize,
) -> Flow {
    let name = names::pod_group(owner.name());
    let Some(row) = pass.child(Kind::PodGroup, &name) else {
        pass.create(Kind::PodGroup, build::pod_group(kind, owner, size));
        return Flow::Next;
    };
    if !pass.controls(row) {
        pass.waits_for(format!("PodGroup {} belongs to somebody else", pass.full_name(&name)));
        return Flow::Stop;
    }
    resize(pass, row, size);
    Flow::Next
}

/// Patches `minMember` and `minResources` where they differ. Says whether they did.
pub(in crate::plan) fn resize(
    pass: &mut crate::plan::pass::Pass<'_>,
    row: &crate::row::Row,
    size: &build::GangSize,
) -> bool {
    let Facts::PodGroup(facts) = &row.facts else { return false };
    let quantity = |text: &str| text.parse::<crate::api::quantity::Quantity>().unwrap_or_default();
    let wanted = size.resources();
    let there = &facts.min_resources;
    let equal = wanted.len() == there.len()
        && wanted.iter().all(|(name, q)| there.get(name.as_str()).is_some_and(|t| quantity(t) == quantity(q)));
    if equal && facts.min_member == size.min_member {
        return false;
    }
    let mut resources: Map<String, Value> = there.keys().map(|name| (name.to_string(), Value::Null)).collect();
    resources.extend(wanted.into_iter().map(|(name, q)| (name, Value::from(q))));
    pass.merge(row, json!({ "spec": { "minMember": size.min_member, "minResources": resources } }));
    true
}

/// Whether a pod is of no more use (2.10): ended, or its Ray container ended and will not be started again.
pub(super) fn is_spent(pod: Pod<'_>, template: &PodTemplate) -> Option<String> {
    let facts = pod.facts;
    if matches!(&*facts.phase, "Failed" | "Succeeded") {
        let detail = [&*facts.reason, &*facts.message].join(" ");
        return Some(format!("its phase is {} {}", facts.phase, detail.trim()).trim_end().to_owned());
    }
    if &*facts.phase != "Running" || &*facts.restart_policy != "Never" {
        return None;
    }
    let name = template.ray_container().map_or("", crate::api::ray::Container::name);
    let ended = facts.containers.iter().find(|c| &*c.name == name).and_then(|c| c.exit_code);
    ended.map(|code| format!("its Ray container ended with code {code}"))
}

/// Exactly one head (2.5).
pub(super) fn head(draft: &mut Draft<'_>) -> Flow {
    let heads = draft.heads();
    match heads.as_slice() {
        [] => create_head(draft),
        [head] => {
            let group = draft.cluster.spec.head();
            let Some(why) = is_spent(*head, &group.template) else { return Flow::Next };
            drop(group);
            draft.failed = true;
            let name = draft.pass.full_name(&head.row.id.name);
            if draft.pass.delete(head.row, Propagation::Background) {
                draft.pass.note(false, "DeletedHeadPod", "Delete", format!("Deleted head Pod {name}: {why}"));
            }
            draft.pass.waits_for(format!("head pod {name} is going: {why}"));
            Flow::Stop
        }
        many => {
            draft.failed = true;
            let text = format!("it has {} head pods; all but one must be deleted by hand", many.len());
            draft.pass.waits_for(text);
            Flow::Stop
        }
    }
}

fn create_head(draft: &mut Draft<'_>) -> Flow {
    let once = draft.cluster.metadata.annotation(DISABLE_HEAD_RESTART) == "true";
    if once && draft.cluster.is("RayClusterProvisioned") {
        draft.pass.waits_for("its head is gone and is not made again");
        return Flow::Stop;
    }
    if let Some(why) = draft.head_waits_for {
        draft.pass.waits_for(why);
        return Flow::Stop;
    }
    let mut body = build::head_pod(&draft.cluster, draft.flags);
    if body["metadata"]["name"].as_str().is_none_or(str::is_empty) {
        let prefix = names::head_prefix(draft.cluster.metadata.name());
        body["metadata"]["name"] = json!(free_name(draft, &prefix, "headgroup", 0));
    }
    let name = body["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    let full = draft.pass.full_name(&name);
    if draft.pass.child(Kind::Pod, &name).is_some() {
        draft.failed = true;
        draft.pass.waits_for(format!("Pod {full} is not this RayCluster's head, but has its name"));
        return Flow::Stop;
    }
    draft.pass.create(Kind::Pod, body);
    draft.pass.note(false, "CreatedHeadPod", "Create", format!("Created head Pod {full}"));
    draft.pass.waits_for("its head pod is being made");
    Flow::Next
}

/// A name that nobody in sight bears and no list of pods to delete holds (`sharding.md` E5).
pub(super) fn free_name(draft: &Draft<'_>, prefix: &str, group: &str, slot: i32) -> String {
    let leaving: BTreeSet<&str> = draft.cluster.spec.groups().iter().flat_map(WorkerGroupSpec::to_delete).collect();
    names::pod(prefix, draft.cluster.metadata.uid(), group, slot, |name| {
        leaving.contains(name) || draft.pass.child(Kind::Pod, name).is_some()
    })
}

/// Every group in order; a group that lost pods to their end ends the step (2.6).
pub(super) fn workers(draft: &mut Draft<'_>) -> Flow {
    for group in draft.cluster.spec.groups().to_vec() {
        if worker_group(draft, &group) == Flow::Stop {
            return Flow::Stop;
        }
    }
    Flow::Next
}

fn worker_group(draft: &mut Draft<'_>, group: &WorkerGroupSpec) -> Flow {
    let mut pods: Vec<Pod<'_>> =
        draft.pods.iter().filter(|p| p.row.label(RAY_GROUP_LABEL) == group.group_name).copied().collect();
    if group.suspended() {
        let mut any = false;
        for pod in &pods {
            any |= draft.pass.delete(pod.row, Propagation::Background);
        }
        // The operator says so at each pass, pods or none; once per change of the specification is enough.
        if any || draft.is_new_spec() {
            let text = format!("Deleted all Pods of suspended worker group {}", group.group_name);
            draft.pass.note(false, "DeletedWorkerPod", "Delete", text);
        }
        return Flow::Next;
    }
    if group.hosts() > 1 {
        return replicas::group(draft, group, &pods);
    }
    let mut spent = false;
    for pod in &pods {
        if let Some(why) = is_spent(*pod, &group.template) {
            spent |= delete_worker(draft, *pod, &why);
        }
    }
    if spent {
        draft.failed = true;
        draft.pass.waits_for(format!("pods of group {} that have ended are going", group.group_name));
        return Flow::Stop;
    }
    let leaving: BTreeSet<&str> = group.to_delete().collect();
    pods.retain(|pod| !leaving.contains(&*pod.row.id.name) || !delete_worker(draft, *pod, "workersToDelete names it"));
    let wanted = usize::try_from(build::desired_pods(group)).unwrap_or(0);
    if pods.len() < wanted {
        let mut taken: BTreeSet<i32> = pods.iter().filter_map(|p| p.row.label(INDEX).parse().ok()).collect();
        for _ in pods.len()..wanted {
            create_worker(draft, group, &mut taken);
        }
    } else if surplus_goes(draft) {
        remove_surplus(draft, &mut pods, wanted);
    }
    Flow::Next
}

/// Whether pods beyond those wanted go. Where Ray's autoscaler is on it names the ones that it can spare.
pub(super) fn surplus_goes(draft: &Draft<'_>) -> bool {
    !draft.cluster.spec.autoscaling()
}

/// Says whether it was not going already.
pub(super) fn delete_worker(draft: &mut Draft<'_>, pod: Pod<'_>, why: &str) -> bool {
    let deleted = draft.pass.delete(pod.row, Propagation::Background);
    if deleted {
        let name = draft.pass.full_name(&pod.row.id.name);
        draft.pass.note(false, "DeletedWorkerPod", "Delete", format!("Deleted worker Pod {name}: {why}"));
    }
    deleted
}

fn create_worker(draft: &mut Draft<'_>, group: &WorkerGroupSpec, taken: &mut BTreeSet<i32>) {
    let index = (0..i32::MAX).find(|i| !taken.contains(i)).unwrap_or(0);
    taken.insert(index);
    let prefix = names::worker_prefix(draft.cluster.metadata.name(), &group.group_name);
    let name = free_name(draft, &prefix, &group.group_name, index);
    let slot = build::Slot { replica: index, host: None };
    let mut body = build::worker_pod(&draft.cluster, group, slot, draft.flags);
    body["metadata"]["name"] = json!(name);
    draft.pass.create(Kind::Pod, body);
    let full = draft.pass.full_name(&name);
    draft.pass.note(false, "CreatedWorkerPod", "Create", format!("Created worker Pod {full}"));
    draft.pass.waits_for("worker pods are being made");
}

/// Those that do not run go first, then the newest numbers. What is going already counts.
fn remove_surplus(draft: &mut Draft<'_>, pods: &mut [Pod<'_>], wanted: usize) {
    let going = pods.iter().filter(|p| p.row.deleting.is_some()).count();
    let surplus = pods.len().saturating_sub(wanted).saturating_sub(going);
    pods.sort_by_key(|p| (p.facts.ready, std::cmp::Reverse(p.row.label(INDEX).parse::<i32>().unwrap_or(0))));
    let staying: Vec<Pod<'_>> = pods.iter().filter(|p| p.row.deleting.is_none()).copied().collect();
    for pod in staying.into_iter().take(surplus) {
        delete_worker(draft, pod, "the group has more pods than replicas");
    }
}
