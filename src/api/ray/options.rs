//! RayCluster: the groups of options that its spec may carry (specs/raycluster.md 1.5 to 1.9).
//! Must not know rules.

use k8s_openapi::api::core::v1::{
    EnvFromSource, EnvVar, EnvVarSource, ResourceRequirements, SecurityContext, VolumeMount,
};
use k8s_openapi::api::networking::v1::{IngressTLS, NetworkPolicyEgressRule, NetworkPolicyIngressRule};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::Other;
use super::schema::Builtin;

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
    /// Resources of its container.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<Builtin<ResourceRequirements>>")]
    pub resources: Option<Value>,
    /// Image; the head's where it is not set.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub image: Option<String>,
    /// When the image is fetched.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub image_pull_policy: Option<String>,
    /// Privileges of its container.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<Builtin<SecurityContext>>")]
    pub security_context: Option<Value>,
    /// Environment of its container.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<Vec<Builtin<EnvVar>>>")]
    pub env: Option<Vec<Value>>,
    /// Environment from ConfigMaps and Secrets.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<Vec<Builtin<EnvFromSource>>>")]
    pub env_from: Option<Vec<Value>>,
    /// What is mounted into its container.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<Vec<Builtin<VolumeMount>>>")]
    pub volume_mounts: Option<Vec<Value>>,
    /// Replaces the command.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub command: Option<Vec<String>>,
    /// Replaces the arguments.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub args: Option<Vec<String>>,
    /// The rest.
    #[serde(flatten)]
    pub other: Other,
}

/// State of the head outside the head.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct GcsFaultToleranceOptions {
    /// `redis` or `rocksdb`; redis where it is not set.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend(
        "enum" = ["redis", "rocksdb"],
        "x-kubernetes-validations" = [{ "message": "backend cannot be changed", "rule": "self == oldSelf" }],
    ))]
    pub backend: Option<String>,
    /// Where Redis is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub redis_address: Option<String>,
    /// User of Redis.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub redis_username: Option<RedisCredential>,
    /// Password of Redis.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub redis_password: Option<RedisCredential>,
    /// Prefix of keys in Redis; the UID where it is not set.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub external_storage_namespace: Option<String>,
    /// The volume of the embedded store.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub storage: Option<GcsStorage>,
    /// The rest.
    #[serde(flatten)]
    pub other: Other,
}

/// User or password of Redis. Its value is never printed.
#[derive(Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RedisCredential {
    /// The value itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub value: Option<String>,
    /// Where the value stands.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<Builtin<EnvVarSource>>")]
    pub value_from: Option<Value>,
    /// The rest.
    #[serde(flatten)]
    pub other: Other,
}

impl std::fmt::Debug for RedisCredential {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let value = self.value.as_ref().map(|_| "hidden");
        f.debug_struct("RedisCredential")
            .field("value", &value)
            .field("value_from", &self.value_from)
            .finish_non_exhaustive()
    }
}

/// The volume of the embedded store.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct GcsStorage {
    /// A claim that exists.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub claim_name: Option<String>,
    /// Size of the claim that is made, quantity.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<Builtin<Quantity>>")]
    pub size: Option<Value>,
    /// Class of the claim that is made.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub storage_class_name: Option<String>,
    /// Access modes of the claim that is made.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub access_modes: Option<Vec<String>>,
    /// Path within the volume.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sub_path: Option<String>,
    /// What becomes of the claim.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("enum" = ["DeleteWithCluster", "Retain"]))]
    pub deletion_policy: Option<String>,
    /// The rest.
    #[serde(flatten)]
    pub other: Other,
}

/// Collectors for the history server.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct HistoryServerOptions {
    /// The collector beside each Ray container.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub collector_options: Option<CollectorOptions>,
    /// The rest.
    #[serde(flatten)]
    pub other: Other,
}

/// The collector beside each Ray container.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CollectorOptions {
    /// Image.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub image: Option<String>,
    /// When the image is fetched.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub image_pull_policy: Option<String>,
    /// Resources of its container.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<Builtin<ResourceRequirements>>")]
    pub resources: Option<Value>,
    /// Environment of its container.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<Vec<Builtin<EnvVar>>>")]
    pub env: Option<Vec<Value>>,
    /// The rest.
    #[serde(flatten)]
    pub other: Other,
}

/// NetworkPolicies of the cluster.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NetworkPolicyConfig {
    /// Which directions are restricted.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("enum" = ["DenyAll", "DenyAllIngress", "DenyAllEgress"], "default" = "DenyAll"))]
    pub mode: Option<String>,
    /// Additions for the head.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub head: Option<NetworkRules>,
    /// Additions for all workers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub worker: Option<NetworkRules>,
    /// What one group has instead of `worker`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["groupName"]))]
    pub worker_groups: Option<Vec<GroupNetworkRules>>,
    /// The rest.
    #[serde(flatten)]
    pub other: Other,
}

/// Rules that are added to a policy.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NetworkRules {
    /// Who may connect to the pods.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<Vec<Builtin<NetworkPolicyIngressRule>>>")]
    pub ingress_rules: Option<Vec<Value>>,
    /// Whom the pods may connect to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<Vec<Builtin<NetworkPolicyEgressRule>>>")]
    pub egress_rules: Option<Vec<Value>>,
    /// The rest.
    #[serde(flatten)]
    pub other: Other,
}

/// Rules of one worker group.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("required" = ["groupName"]))]
pub struct GroupNetworkRules {
    /// Name of the group.
    #[serde(default)]
    pub group_name: String,
    /// Who may connect to the pods.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<Vec<Builtin<NetworkPolicyIngressRule>>>")]
    pub ingress_rules: Option<Vec<Value>>,
    /// Whom the pods may connect to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<Vec<Builtin<NetworkPolicyEgressRule>>>")]
    pub egress_rules: Option<Vec<Value>>,
    /// The rest.
    #[serde(flatten)]
    pub other: Other,
}

/// mTLS between nodes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TlsOptions {
    /// Whether it is on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub enabled: Option<bool>,
    /// The rest.
    #[serde(flatten)]
    pub other: Other,
}

/// What the head's Ingress says.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct IngressOptions {
    /// Host of its rule; any where it is not set.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    /// Path of its rule.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// How the path is compared.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("enum" = ["Exact", "Prefix", "ImplementationSpecific"]))]
    pub path_type: Option<String>,
    /// Certificates.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<Vec<Builtin<IngressTLS>>>")]
    pub tls: Option<Vec<Value>>,
    /// The rest.
    #[serde(flatten)]
    pub other: Other,
}
