//! RayService: spec and status (specs/rayservice.md 1).
//! Must not know rules.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Service;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::schema::{Builtin, managed_by_rules};
use super::{ClusterCondition, Object, Other, RayClusterSpec, RayClusterStatus};

/// A RayService.
pub type RayService = Object<RayServiceSpec, RayServiceStatus>;

/// What a RayService should serve, and on which clusters.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("required" = ["rayClusterConfig"]))]
pub struct RayServiceSpec {
    /// Seconds between a cluster's last use and its deletion.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub ray_cluster_deletion_delay_seconds: Option<i32>,
    /// Has no effect any more.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub service_unhealthy_second_threshold: Option<i32>,
    /// Has no effect any more.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deployment_unhealthy_second_threshold: Option<i32>,
    /// Base of the serve Service.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<Builtin<Service>>")]
    pub serve_service: Option<Value>,
    /// How changes of the cluster's spec are carried out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub upgrade_strategy: Option<RayServiceUpgradeStrategy>,
    /// Who reconciles the object.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-kubernetes-validations" = managed_by_rules()))]
    pub managed_by: Option<String>,
    /// Applications and deployments, YAML text.
    #[serde(rename = "serveConfigV2", skip_serializing_if = "Option::is_none")]
    pub serve_config_v2: Option<String>,
    /// The RayClusters to make.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ray_cluster_config: Option<RayClusterSpec>,
    /// The head takes no requests.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exclude_head_pod_from_serve_svc: Option<bool>,
    /// Deletes the clusters and keeps the object.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub suspend: Option<bool>,
    /// The rest.
    #[serde(flatten)]
    pub other: Other,
}

/// How changes of the cluster's spec are carried out.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RayServiceUpgradeStrategy {
    /// `NewCluster`, `None` or `NewClusterWithIncrementalUpgrade`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub r#type: Option<String>,
    /// Steps of an incremental upgrade.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cluster_upgrade_options: Option<ClusterUpgradeOptions>,
    /// The rest.
    #[serde(flatten)]
    pub other: Other,
}

/// Steps of an incremental upgrade.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("required" = ["gatewayClassName", "intervalSeconds", "stepSizePercent"]))]
pub struct ClusterUpgradeOptions {
    /// Capacity that is added at a time.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = 100))]
    pub max_surge_percent: Option<i32>,
    /// Traffic that is moved at a time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub step_size_percent: Option<i32>,
    /// Seconds between two steps.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub interval_seconds: Option<i32>,
    /// Class of the Gateway.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gateway_class_name: Option<String>,
    /// The rest.
    #[serde(flatten)]
    pub other: Other,
}

/// How far a RayService is.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RayServiceStatus {
    /// Conditions, one per type.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Option<Vec<ClusterCondition>>,
    /// When this was written, RFC 3339.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("format" = "date-time"))]
    pub last_update_time: Option<String>,
    /// `Running` or empty.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub service_status: Option<String>,
    /// The cluster that serves.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub active_service_status: Option<ServiceStatus>,
    /// The cluster that is to serve.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pending_service_status: Option<ServiceStatus>,
    /// Pods that take requests.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub num_serve_endpoints: Option<i32>,
    /// Generation that was looked at.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// The rest.
    #[serde(flatten)]
    pub other: Other,
}

/// One cluster of a RayService.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ServiceStatus {
    /// Name of an application → how it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub application_statuses: Option<BTreeMap<String, ServeApplication>>,
    /// Share of the wanted capacity that it has.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target_capacity: Option<i32>,
    /// Share of the traffic that it gets.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub traffic_routed_percent: Option<i32>,
    /// When traffic was moved last, RFC 3339.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("format" = "date-time"))]
    pub last_traffic_migrated_time: Option<String>,
    /// Name of the RayCluster.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ray_cluster_name: Option<String>,
    /// Copy of the RayCluster's status.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ray_cluster_status: Option<RayClusterStatus>,
    /// The rest.
    #[serde(flatten)]
    pub other: Other,
}

/// How an application is.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ServeApplication {
    /// Name of a deployment → how it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub serve_deployment_statuses: Option<BTreeMap<String, ServeDeployment>>,
    /// One word of Serve's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<String>,
    /// A sentence.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// The rest.
    #[serde(flatten)]
    pub other: Other,
}

/// How a deployment is.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ServeDeployment {
    /// One word of Serve's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<String>,
    /// A sentence.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// The rest.
    #[serde(flatten)]
    pub other: Other,
}
