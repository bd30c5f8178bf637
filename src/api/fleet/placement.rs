//! `Placement`: the stored decision "root object → member", and its explanation.
//! Spec is the decision, status the explanation; there is no status subresource, so both change in one stamped PUT.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Where a root object is on its way (`sharding.md` 1.1 gives each stage its owner).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub enum Stage {
    /// Not bound to a member. Owner: the queue's unit.
    #[default]
    Waiting,
    /// Bound; the member's own reservation is under way. Owner: `m-<m>-0`.
    Reserving,
    /// Volcano has admitted the gang; pods may be created. Owner: the bucket's unit of the member.
    Admitted,
    /// The gang runs.
    Running,
    /// The root object has ended on its member.
    Finished,
    /// The placement is being undone. Owner: `m-<m>-0`.
    Withdrawing,
}

/// The decision.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct PlacementSpec {
    /// The root object that is placed.
    pub root: RootRef,
    /// Volcano queue that the decision is made for.
    pub queue: String,
    /// Where it is on its way.
    pub stage: Stage,
    /// Counts bindings; 0 = never bound.
    pub generation: i64,
    /// The member it is bound to; kept in `Waiting` as the member of the last generation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub member: Option<String>,
    /// When the present stage was entered, RFC 3339 with microseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stage_since: Option<String>,
    /// Epoch of each unit that may write to the member for this generation (`sharding.md` 1.10).
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub claims: BTreeMap<String, u64>,
    /// An owner changed, or a request's outcome stayed unknown, within this generation (`sharding.md` 1.10, 1.11).
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub unclean: bool,
    /// This generation was `Admitted` at some time (`sharding.md` 1.12).
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub was_admitted: bool,
    /// UID of the mirror of this generation, once known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mirror_uid: Option<String>,
    /// Highest resourceVersion per kind on the member that the last owner's writes got back (`architecture.md` 6.4).
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub written_up_to: BTreeMap<String, u64>,
    /// What follows the root object to the member: `Secret/name`, `ConfigMap/name`, `ServiceAccount/name`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub dependencies: Vec<String>,
    /// Members to stay away from for a while, by name.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub back_offs: BTreeMap<String, BackOff>,
    /// Why it is being withdrawn; set with stage `Withdrawing`, kept in `Waiting` until the next binding.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub withdrawal: Option<Withdrawal>,
}

/// Which root object.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct RootRef {
    /// `RayJob` or `RayCluster`; the namespace is the `Placement`'s.
    pub kind: String,
    /// Name of the root object.
    pub name: String,
    /// UID of the present root object.
    pub uid: String,
    /// Identity that survives the hub: the UID it had when the `Placement` was made.
    pub root_id: String,
    /// resourceVersion of the root object at the last change of stage: the next owner decides on nothing older.
    #[serde(skip_serializing_if = "is_zero")]
    pub version: u64,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde's signature")]
fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// Back-off from one member for this object: 1, 2, 4 … 30 min (`placement.md` section 4).
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct BackOff {
    /// How often it was withdrawn from that member.
    pub count: u32,
    /// Not before, RFC 3339.
    pub until: String,
}

/// Why a placement is undone.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Withdrawal {
    /// `AdmissionDeadline`, `StartDeadline`, `NoLongerFits`, `Cordoned`, `RootDeleted`, `Suspended`, `SpecChanged`, `MirrorMissing`, …
    pub reason: String,
    /// A sentence for people.
    pub message: String,
    /// Whether the member is backed off from afterwards.
    pub back_off: bool,
}

/// The explanation.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct PlacementStatus {
    /// Shape of the gang that is placed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gang: Option<GangShape>,
    /// Verdict for every member, from the last decision.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub verdicts: Vec<MemberVerdict>,
    /// The sentence that says what it waits for, or why the member was chosen.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// What its pods name and the hub lacks, in sentences: while there is any it is not bound, and others go before it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub missing: Vec<String>,
    /// When verdicts and message were last written, RFC 3339.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub decided_at: String,
    /// Place in its queue while `Waiting`: 1 = next.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub position: Option<u32>,
    /// Earlier generations, newest last, at most 20.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub history: Vec<HistoryEntry>,
    /// Conditions of the root object (RayJob has none of its own).
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
}

/// Shape of a gang.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct GangShape {
    /// `spec.minMember` of its PodGroup.
    pub min_member: i32,
    /// `spec.minResources` of its PodGroup: resource → quantity.
    pub min_resources: BTreeMap<String, String>,
    /// `spec.priorityClassName`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub priority_class: String,
    /// Its pods: group name, how many, requests of one.
    pub pods: Vec<GangPods>,
    /// The RayCluster of its namespace that it runs on: it then brings no gang, and goes where that one is.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub runs_on: String,
}

impl GangShape {
    /// The RayCluster that it runs on instead of bringing one.
    pub fn cluster(&self) -> Option<&str> {
        Some(self.runs_on.as_str()).filter(|name| !name.is_empty())
    }
}

/// Equal pods of a gang.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct GangPods {
    /// `headgroup`, the worker group's name, or `submitter`.
    pub group: String,
    /// How many.
    pub count: i32,
    /// Requests of one pod: resource → quantity.
    pub requests: BTreeMap<String, String>,
    /// Labels that a node must have (`spec.nodeSelector` of the pod).
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub node_selector: BTreeMap<String, String>,
    /// Taints that it tolerates.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tolerations: Vec<GangToleration>,
}

/// A toleration as a pod has it.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct GangToleration {
    /// Key of the taint; empty with `Exists` = all.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub key: String,
    /// `Equal` (also where empty) or `Exists`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub operator: String,
    /// Value to equal.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub value: String,
    /// Effect; empty = all.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub effect: String,
}

/// Verdict for one member (`placement.md` section 2).
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct MemberVerdict {
    /// The member.
    pub member: String,
    /// `Fits`, `QueueFull`, `Overcommit`, `RunGate`, `Fragmented`, `NeverFits`, `BackoffUntil`, `Unreachable`, …
    pub verdict: String,
    /// Resource that is short: `cpu`; empty where none is.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub dimension: String,
    /// How much is needed, with unit.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub need: String,
    /// How much there is, with unit.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub have: String,
    /// Which bound it is, in words with numbers.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub bound: String,
}

/// One earlier generation.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct HistoryEntry {
    /// Generation.
    pub generation: i64,
    /// Where it was.
    pub member: String,
    /// When this happened, RFC 3339.
    pub at: String,
    /// `Bound`, `Admitted`, `Running`, `Finished`, `Withdrawn`.
    pub event: String,
    /// A sentence.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub message: String,
}

/// `metav1.Condition`.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Condition {
    /// Type.
    pub r#type: String,
    /// `True`, `False` or `Unknown`.
    pub status: String,
    /// One word.
    pub reason: String,
    /// A sentence.
    pub message: String,
    /// RFC 3339.
    pub last_transition_time: String,
    /// Generation of the object it was judged on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
}

/// Spec and status of a `Placement` as a row keeps them.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Placement {
    /// The decision.
    pub spec: PlacementSpec,
    /// The explanation.
    pub status: PlacementStatus,
}
