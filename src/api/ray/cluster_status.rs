//! RayCluster: its status, and the condition that all kinds share.
//! Must not know rules.

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::schema::{Builtin, CONDITION_REASON, CONDITION_TYPE, times};
use super::{Other, RayCluster, Texts};

/// What was found of a RayCluster (specs/raycluster.md 1.10).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RayClusterStatus {
    /// `ready` or `suspended`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state: Option<String>,
    /// CPU of all wanted pods, quantity.
    #[serde(rename = "desiredCPU", default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<Builtin<Quantity>>")]
    pub desired_cpu: Option<Value>,
    /// Memory of all wanted pods, quantity.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<Builtin<Quantity>>")]
    pub desired_memory: Option<Value>,
    /// GPUs of all wanted pods, quantity.
    #[serde(rename = "desiredGPU", default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<Builtin<Quantity>>")]
    pub desired_gpu: Option<Value>,
    /// TPUs of all wanted pods, quantity.
    #[serde(rename = "desiredTPU", default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<Builtin<Quantity>>")]
    pub desired_tpu: Option<Value>,
    /// When this was written, RFC 3339.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("format" = "date-time", "x-nullable" = true))]
    pub last_update_time: Option<String>,
    /// State → when it was entered, RFC 3339.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "times")]
    pub state_transition_times: Option<Texts>,
    /// Name of a port → port.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub endpoints: Option<Texts>,
    /// Where the head is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub head: Option<HeadInfo>,
    /// Why the state is what it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Conditions, one per type.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Option<Vec<ClusterCondition>>,
    /// Workers that are ready.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ready_worker_replicas: Option<i32>,
    /// Workers that run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub available_worker_replicas: Option<i32>,
    /// Workers that are wanted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub desired_worker_replicas: Option<i32>,
    /// Fewest workers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_worker_replicas: Option<i32>,
    /// Most workers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_worker_replicas: Option<i32>,
    /// Generation that was looked at.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// The rest.
    #[serde(flatten)]
    pub other: Other,
}

/// Where the head is.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct HeadInfo {
    /// Address of the head pod.
    #[serde(rename = "podIP", skip_serializing_if = "Option::is_none")]
    pub pod_ip: Option<String>,
    /// Address of the head Service.
    #[serde(rename = "serviceIP", skip_serializing_if = "Option::is_none")]
    pub service_ip: Option<String>,
    /// Name of the head pod.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pod_name: Option<String>,
    /// Name of the head Service.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub service_name: Option<String>,
    /// The rest.
    #[serde(flatten)]
    pub other: Other,
}

/// `metav1.Condition` as KubeRay writes it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("required" = ["type", "status", "reason", "message", "lastTransitionTime"]))]
pub struct ClusterCondition {
    /// Type.
    #[schemars(extend("pattern" = CONDITION_TYPE, "maxLength" = 316))]
    #[serde(default)]
    pub r#type: String,
    /// `True`, `False` or `Unknown`.
    #[schemars(extend("enum" = ["True", "False", "Unknown"]))]
    #[serde(default)]
    pub status: String,
    /// One word.
    #[schemars(extend("pattern" = CONDITION_REASON, "minLength" = 1, "maxLength" = 1024))]
    #[serde(default)]
    pub reason: String,
    /// A sentence; may be empty.
    #[schemars(extend("maxLength" = 32768))]
    #[serde(default)]
    pub message: String,
    /// RFC 3339.
    #[schemars(extend("format" = "date-time"))]
    #[serde(default)]
    pub last_transition_time: String,
    /// Generation that it speaks of.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub observed_generation: Option<i64>,
    /// The rest.
    #[serde(flatten)]
    pub other: Other,
}

impl RayCluster {
    /// The condition of a type.
    pub fn condition(&self, kind: &str) -> Option<&ClusterCondition> {
        self.status.as_ref()?.conditions.iter().flatten().find(|c| c.r#type == kind)
    }

    /// Whether the condition of a type is `True`.
    pub fn is(&self, kind: &str) -> bool {
        self.condition(kind).is_some_and(|c| c.status == "True")
    }
}
