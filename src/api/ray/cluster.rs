//! RayCluster: spec and status.
//! Must not know rules.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{Object, Other, PodTemplate, Texts};

/// A RayCluster.
pub type RayCluster = Object<RayClusterSpec, RayClusterStatus>;

/// What a RayCluster should be.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("required" = ["headGroupSpec"]))]
pub struct RayClusterSpec {
    /// How changes of templates reach running pods.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub upgrade_strategy: Option<UpgradeStrategy>,
    /// Token authentication.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub auth_options: Option<AuthOptions>,
    /// Deletes all pods and keeps the object.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub suspend: Option<bool>,
    /// Who reconciles the object.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-kubernetes-validations" = managed_by_rules()))]
    pub managed_by: Option<String>,
    /// Settings of Ray's autoscaler.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub autoscaler_options: Option<AutoscalerOptions>,
    /// Annotations of the head Service.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub head_service_annotations: Option<Texts>,
    /// Ray's autoscaler runs beside the head.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub enable_in_tree_autoscaling: Option<bool>,
    /// State of the head outside the head.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "open_object")]
    pub gcs_fault_tolerance_options: Option<Value>,
    /// Collectors for the history server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "open_object")]
    pub history_server_options: Option<Value>,
    /// NetworkPolicies of the cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "open_object")]
    pub network_policy: Option<Value>,
    /// mTLS between nodes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "open_object")]
    pub tls_options: Option<Value>,
    /// The head.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub head_group_spec: Option<HeadGroupSpec>,
    /// Version of Ray in the images.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ray_version: Option<String>,
    /// Groups of equal workers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub worker_group_specs: Option<Vec<WorkerGroupSpec>>,
    /// The rest.
    #[serde(flatten)]
    pub other: Other,
}

/// How changes of templates reach running pods.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct UpgradeStrategy {
    /// `Recreate` or `None`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("enum" = ["Recreate", "None"]))]
    pub r#type: Option<String>,
    /// The rest.
    #[serde(flatten)]
    pub other: Other,
}

/// Token authentication.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AuthOptions {
    /// Kubernetes judges the tokens.
    #[serde(rename = "enableK8sTokenAuth", skip_serializing_if = "Option::is_none")]
    pub enable_k8s_token_auth: Option<bool>,
    /// Secret with key `auth_token`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub secret_name: Option<String>,
    /// `token` or `disabled`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("enum" = ["disabled", "token"]))]
    pub mode: Option<String>,
    /// The rest.
    #[serde(flatten)]
    pub other: Other,
}

/// Settings of Ray's autoscaler.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AutoscalerOptions {
    /// Seconds after which an idle worker goes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub idle_timeout_seconds: Option<i32>,
    /// `v1` or `v2`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("enum" = ["v1", "v2"]))]
    pub version: Option<String>,
    /// How eagerly it adds workers.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("enum" = ["Default", "Aggressive", "Conservative"]))]
    pub upscaling_mode: Option<String>,
    /// Environment of its container.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "open_list")]
    pub env: Option<Vec<Value>>,
    /// The rest.
    #[serde(flatten)]
    pub other: Other,
}

/// The head group.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("required" = ["template"]))]
pub struct HeadGroupSpec {
    /// Template of the head pod.
    #[serde(default)]
    pub template: PodTemplate,
    /// Base of the head Service.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "open_object")]
    pub head_service: Option<Value>,
    /// An Ingress for the dashboard.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub enable_ingress: Option<bool>,
    /// Logical resources of the node.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resources: Option<Texts>,
    /// Labels of the Ray node and its pod.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub labels: Option<Texts>,
    /// Flags of `ray start`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ray_start_params: Option<Texts>,
    /// Type of the head Service.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub service_type: Option<String>,
    /// The rest.
    #[serde(flatten)]
    pub other: Other,
}

/// A group of equal workers.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("required" = ["groupName", "minReplicas", "maxReplicas", "template"]))]
pub struct WorkerGroupSpec {
    /// Deletes the group's pods.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub suspend: Option<bool>,
    /// Name of the group.
    #[serde(default)]
    pub group_name: String,
    /// Wanted replicas.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = 0))]
    pub replicas: Option<i32>,
    /// Lower bound of replicas.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = 0))]
    pub min_replicas: Option<i32>,
    /// Upper bound of replicas.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = i32::MAX))]
    pub max_replicas: Option<i32>,
    /// Seconds after which an idle worker goes (autoscaler v2).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub idle_timeout_seconds: Option<i32>,
    /// Order in which the autoscaler prefers groups.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = 0))]
    pub priority: Option<i32>,
    /// Logical resources of one node.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resources: Option<Texts>,
    /// Labels of the Ray nodes and their pods.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub labels: Option<Texts>,
    /// Flags of `ray start`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ray_start_params: Option<Texts>,
    /// Template of one worker pod.
    #[serde(default)]
    pub template: PodTemplate,
    /// Which pods go now.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scale_strategy: Option<ScaleStrategy>,
    /// Pods per replica.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = 1))]
    pub num_of_hosts: Option<i32>,
    /// The rest.
    #[serde(flatten)]
    pub other: Other,
}

/// Which pods go now.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ScaleStrategy {
    /// Names of pods.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub workers_to_delete: Option<Vec<String>>,
    /// The rest.
    #[serde(flatten)]
    pub other: Other,
}

/// What was found of a RayCluster (specs/raycluster.md 1.10).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RayClusterStatus {
    /// `ready` or `suspended`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state: Option<String>,
    /// CPU of all wanted pods, quantity.
    #[serde(rename = "desiredCPU", default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "quantity")]
    pub desired_cpu: Option<Value>,
    /// Memory of all wanted pods, quantity.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "quantity")]
    pub desired_memory: Option<Value>,
    /// GPUs of all wanted pods, quantity.
    #[serde(rename = "desiredGPU", default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "quantity")]
    pub desired_gpu: Option<Value>,
    /// TPUs of all wanted pods, quantity.
    #[serde(rename = "desiredTPU", default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "quantity")]
    pub desired_tpu: Option<Value>,
    /// When this was written, RFC 3339.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("format" = "date-time", "nullable" = true))]
    pub last_update_time: Option<String>,
    /// State → when it was entered, RFC 3339.
    #[serde(skip_serializing_if = "Option::is_none")]
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
    #[serde(default)]
    pub r#type: String,
    /// `True`, `False` or `Unknown`.
    #[schemars(extend("enum" = ["True", "False", "Unknown"]))]
    #[serde(default)]
    pub status: String,
    /// One word.
    #[schemars(extend("pattern" = "^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$", "minLength" = 1, "maxLength" = 1024))]
    #[serde(default)]
    pub reason: String,
    /// A sentence; may be empty.
    #[serde(default)]
    pub message: String,
    /// RFC 3339.
    #[schemars(extend("format" = "date-time"))]
    #[serde(default)]
    pub last_transition_time: String,
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

impl RayClusterSpec {
    /// Worker groups in order.
    pub fn groups(&self) -> &[WorkerGroupSpec] {
        self.worker_group_specs.as_deref().unwrap_or_default()
    }

    /// The head group; an empty one where there is none (validation refuses that).
    pub fn head(&self) -> std::borrow::Cow<'_, HeadGroupSpec> {
        match &self.head_group_spec {
            Some(head) => std::borrow::Cow::Borrowed(head),
            None => std::borrow::Cow::Owned(HeadGroupSpec::default()),
        }
    }

    /// Whether Ray's autoscaler is on.
    pub fn autoscaling(&self) -> bool {
        self.enable_in_tree_autoscaling == Some(true)
    }
}

impl WorkerGroupSpec {
    /// Pods per replica.
    pub fn hosts(&self) -> i32 {
        self.num_of_hosts.unwrap_or(1)
    }

    /// Whether the group's pods are to go.
    pub fn suspended(&self) -> bool {
        self.suspend == Some(true)
    }

    /// Names of pods that are to go now.
    pub fn to_delete(&self) -> impl Iterator<Item = &str> {
        let strategy = self.scale_strategy.as_ref();
        strategy.and_then(|s| s.workers_to_delete.as_ref()).into_iter().flatten().map(String::as_str)
    }
}

/// Rules of `managedBy`: KubeRay's two values and ours; it never changes once set.
pub(super) fn managed_by_rules() -> Value {
    serde_json::json!([
        { "message": "managedBy cannot be changed", "rule": "self == oldSelf" },
        {
            "message": "managedBy is one of 'ray.io/kuberay-operator', 'kueue.x-k8s.io/multikueue', 'rayfleet.io/hub'",
            "rule": "self in ['ray.io/kuberay-operator', 'kueue.x-k8s.io/multikueue', 'rayfleet.io/hub']",
        },
    ])
}

/// Schema of an object whose fields are kept without being known.
pub(super) fn open_object(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
    schemars::json_schema!({ "type": "object", "x-kubernetes-preserve-unknown-fields": true })
}

fn open_list(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
    schemars::json_schema!({
        "type": "array",
        "items": { "type": "object", "x-kubernetes-preserve-unknown-fields": true },
    })
}

fn quantity(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
    schemars::json_schema!({ "anyOf": [{ "type": "integer" }, { "type": "string" }], "x-kubernetes-int-or-string": true })
}
