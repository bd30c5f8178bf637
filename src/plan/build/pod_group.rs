//! What Volcano is told about a RayCluster's pods (specs/volcano.md 5.2, raycluster.md 6.2).
//! Must not know queues or placements.

use serde_json::{Value, json};

use super::sizes::{desired_pods, min_pods, total};
use super::{creator, owner_reference};
use crate::api::names::{ORIGINATED_NAME_LABEL, POD_GROUP_ANNOTATION, QUEUE_LABEL, TASK_SPEC_ANNOTATION};
use crate::api::ray::{ObjectMeta, RayCluster, RayClusterSpec, Texts};
use crate::plan::names;
use crate::row::Demand;

/// Label that KubeRay reads the PodGroup's priority class from.
const PRIORITY_LABEL: &str = "ray.io/priority-class-name";

/// Labels that KubeRay reads the PodGroup's network topology from; the tier counts with a mode only.
pub(in crate::plan) const TOPOLOGY_MODE_LABEL: &str = "volcano.sh/network-topology-mode";
pub(in crate::plan) const TOPOLOGY_TIER_LABEL: &str = "volcano.sh/network-topology-highest-tier-allowed";

/// How large a gang is.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct GangSize {
    /// `spec.minMember`.
    pub min_member: i32,
    /// `spec.minResources`.
    pub min_resources: Demand,
}

impl GangSize {
    /// `minResources` as texts.
    pub fn resources(&self) -> Texts {
        self.min_resources.iter().map(|(name, q)| (name.to_string(), q.to_string())).collect()
    }
}

/// Whether the pods of this object are Volcano's: its labels name a queue.
pub fn uses_volcano(metadata: &ObjectMeta) -> bool {
    !metadata.label(QUEUE_LABEL).is_empty()
}

/// Size of the gang of a RayCluster alone.
pub fn size_of_cluster(spec: &RayClusterSpec) -> GangSize {
    let pods = if spec.autoscaling() { min_pods } else { desired_pods };
    let replicas = |g: &crate::api::ray::WorkerGroupSpec| {
        if spec.autoscaling() { g.min_replicas.unwrap_or(0) } else { g.replicas.unwrap_or(0) }
    };
    GangSize {
        min_member: spec.groups().iter().map(pods).fold(1, i32::saturating_add),
        min_resources: total(spec, replicas),
    }
}

/// The PodGroup of an object that a user applied on the member: controlled by it, with its annotations.
pub fn pod_group(kind: &str, owner: &ObjectMeta, size: &GangSize) -> Value {
    let mut metadata = json!({
        "name": names::pod_group(owner.name()),
        "namespace": owner.namespace(),
        "ownerReferences": [owner_reference(kind, owner)],
    });
    if let Some(annotations) = owner.annotations.as_ref().filter(|a| !a.is_empty()) {
        metadata["annotations"] = json!(annotations);
    }
    let mut spec = json!({
        "minMember": size.min_member,
        "minResources": size.resources(),
        "queue": owner.label(QUEUE_LABEL),
    });
    let priority = owner.label(PRIORITY_LABEL);
    if !priority.is_empty() {
        spec["priorityClassName"] = json!(priority);
    }
    let mode = owner.label(TOPOLOGY_MODE_LABEL);
    if !mode.is_empty() {
        spec["networkTopology"] = json!({ "mode": mode });
        if let Ok(tier) = owner.label(TOPOLOGY_TIER_LABEL).parse::<i64>() {
            spec["networkTopology"]["highestTierAllowed"] = json!(tier);
        }
    }
    json!({
        "apiVersion": "scheduling.volcano.sh/v1beta1",
        "kind": "PodGroup",
        "metadata": metadata,
        "spec": spec,
        "status": { "phase": "Pending" },
    })
}

/// Labels, annotations and scheduler of a pod of the RayCluster, if Volcano is to see it.
pub(super) fn volcano_metadata(cluster: &RayCluster, task: &str, pod: &mut Value) {
    let of_job = (creator(cluster) == "RayJob").then(|| cluster.metadata.label(ORIGINATED_NAME_LABEL));
    let owner = of_job.filter(|n| !n.is_empty()).unwrap_or(cluster.metadata.name());
    mark(&cluster.metadata, owner, task, pod);
    if uses_volcano(&cluster.metadata) {
        pod["spec"]["schedulerName"] = json!("volcano");
    }
}

/// Labels and annotations by which Volcano finds the PodGroup of `owner`, taken from `labels_of`.
pub(super) fn mark(labels_of: &ObjectMeta, owner: &str, task: &str, object: &mut Value) {
    if !uses_volcano(labels_of) {
        return;
    }
    for key in [QUEUE_LABEL, PRIORITY_LABEL] {
        let value = labels_of.label(key);
        if !value.is_empty() {
            object["metadata"]["labels"][key] = json!(value);
        }
    }
    object["metadata"]["annotations"][POD_GROUP_ANNOTATION] = json!(names::pod_group(owner));
    object["metadata"]["annotations"][TASK_SPEC_ANNOTATION] = json!(task);
}
