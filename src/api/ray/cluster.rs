//! RayCluster: its spec.
//! Must not know rules.

use k8s_openapi::api::core::v1::Service;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::schema::{Builtin, managed_by_rules};
use super::{
    AuthOptions, AutoscalerOptions, GcsFaultToleranceOptions, HistoryServerOptions, IngressOptions,
    NetworkPolicyConfig, Object, Other, PodTemplate, RayClusterStatus, Texts, TlsOptions,
};

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
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gcs_fault_tolerance_options: Option<GcsFaultToleranceOptions>,
    /// Collectors for the history server.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub history_server_options: Option<HistoryServerOptions>,
    /// NetworkPolicies of the cluster.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub network_policy: Option<NetworkPolicyConfig>,
    /// mTLS between nodes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tls_options: Option<TlsOptions>,
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
    #[schemars(with = "Option<Builtin<Service>>")]
    pub head_service: Option<Value>,
    /// An Ingress for the dashboard.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub enable_ingress: Option<bool>,
    /// What the Ingress says.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ingress_options: Option<IngressOptions>,
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
