//! `MemberCapacity` (cluster-scoped, one per member): what a placement decision needs to know of a member.
//! Written only by the owner of `m-<m>-0`; no status subresource.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Resource name → quantity text.
pub type ResourceList = BTreeMap<String, String>;

/// Spec of a `MemberCapacity` as a row keeps it.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct MemberCapacity {
    /// The picture.
    pub spec: MemberCapacitySpec,
}

/// The picture of a member.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct MemberCapacitySpec {
    /// When it was drawn, by the author's clock, RFC 3339: for people. Its age counts from receipt.
    pub observed_at: String,
    /// Hub resourceVersion of `Placement`s that its author had taken in (`architecture.md` 6.11).
    pub counts_up_to: u64,
    /// Whether the member answers its owner.
    pub reachable: bool,
    /// Why not, in words.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub unreachable_reason: String,
    /// Volcano's scheduler and its settings.
    pub scheduler: SchedulerPicture,
    /// Queues by name.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub queues: BTreeMap<String, QueuePicture>,
    /// Sum of allocatable of all nodes.
    pub allocatable: ResourceList,
    /// Sum of requests of all pods on nodes.
    pub used: ResourceList,
    /// What overcommit counts as promised (specs/volcano.md 3.5): minResources of Inqueue PodGroups, and of running ones
    /// what their pods have not taken.
    pub reserved: ResourceList,
    /// Pods that admitted gangs have yet to bring; equal ones together.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub promised: Vec<super::GangPods>,
    /// Nodes, equal ones together.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub node_classes: Vec<NodeClass>,
    /// Root ids whose name is still taken there by a tombstone.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tombstones: Vec<String>,
}

/// Volcano's scheduler on a member.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct SchedulerPicture {
    /// Volcano's kinds are served there.
    pub installed: bool,
    /// A PodGroup stays without any phase for too long: no sign of life.
    pub silent: bool,
    /// `proportion` or `capacity`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub queue_plugin: String,
    /// The capacity plugin works on a tree of queues (`enableHierarchy`).
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub hierarchy: bool,
    /// Factor of the overcommit plugin; empty = plugin off.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub overcommit_factor: String,
    /// What the settings were read from, or that defaults are assumed.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub settings_source: String,
}

/// One queue of a member, with the terms of the arithmetic (specs/volcano.md 3.6).
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct QueuePicture {
    /// `Open`, `Closed`, `Closing`, `Unknown`.
    pub state: String,
    /// Weight.
    pub weight: i32,
    /// Priority.
    #[serde(skip_serializing_if = "is_zero")]
    pub priority: i32,
    /// Parent queue.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub parent: String,
    /// `spec.capability`.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub capability: ResourceList,
    /// `spec.guarantee.resource`.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub guarantee: ResourceList,
    /// `spec.deserved`.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub deserved: ResourceList,
    /// Requests of the queue's pods on nodes, summed by us from rows.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub allocated: ResourceList,
    /// minResources of Inqueue PodGroups beyond what their pods have allocated.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub inqueue: ResourceList,
    /// What its running gangs use beyond their minResources: enqueue does not count it (specs/volcano.md 3.3).
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub elastic: ResourceList,
    /// Requests of all the queue's pods, also of those that wait (proportion's `request`).
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub requested: ResourceList,
    /// PodGroups in it; proportion shares among queues that have one.
    #[serde(skip_serializing_if = "is_zero")]
    pub pod_groups: i32,
    /// PodGroups that wait ahead.
    #[serde(skip_serializing_if = "is_zero")]
    pub pending: i32,
}

/// Equal nodes.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeClass {
    /// How many such nodes.
    pub count: i32,
    /// What one has free (allocatable − requests of its pods).
    pub free: ResourceList,
    /// What one has in all.
    pub allocatable: ResourceList,
    /// Labels that node selectors of waiting gangs may name.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// `key=value:effect` of its taints.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub taints: Vec<String>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands references to skip_serializing_if")]
fn is_zero(n: &i32) -> bool {
    *n == 0
}
