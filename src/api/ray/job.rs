//! RayJob: spec and status.
//! Must not know rules.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Number;

use super::schema::managed_by_rules;
use super::{Object, Other, PodTemplate, RayClusterSpec, RayClusterStatus, Texts};

/// A RayJob.
pub type RayJob = Object<RayJobSpec, RayJobStatus>;

/// What a RayJob should do (specs/rayjob.md 1.1).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RayJobSpec {
    /// Seconds that one attempt may take.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub active_deadline_seconds: Option<i32>,
    /// Further attempts, each on a new RayCluster.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = 0))]
    pub backoff_limit: Option<i32>,
    /// The RayCluster to make.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ray_cluster_spec: Option<RayClusterSpec>,
    /// The submitter's pod.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub submitter_pod_template: Option<PodTemplate>,
    /// Metadata of the Ray job.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub metadata: Option<Texts>,
    /// A RayCluster that exists, by label `ray.io/cluster`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cluster_selector: Option<Texts>,
    /// Settings of the submitter.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub submitter_config: Option<SubmitterConfig>,
    /// Who reconciles the object.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-kubernetes-validations" = managed_by_rules()))]
    pub managed_by: Option<String>,
    /// What is deleted when the job has ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deletion_strategy: Option<DeletionStrategy>,
    /// The command.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub entrypoint: Option<String>,
    /// Runtime environment, YAML text.
    #[serde(rename = "runtimeEnvYAML", skip_serializing_if = "Option::is_none")]
    pub runtime_env_yaml: Option<String>,
    /// Submission id; made up where it is empty.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub job_id: Option<String>,
    /// `K8sJobMode`, `HTTPMode`, `InteractiveMode` or `SidecarMode`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = "K8sJobMode"))]
    pub submission_mode: Option<String>,
    /// Custom resources of the entrypoint, JSON text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub entrypoint_resources: Option<String>,
    /// CPUs of the entrypoint.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<f32>")]
    pub entrypoint_num_cpus: Option<Number>,
    /// GPUs of the entrypoint.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<f32>")]
    pub entrypoint_num_gpus: Option<Number>,
    /// Seconds between the end and the deletion of the RayCluster.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = 0))]
    pub ttl_seconds_after_finished: Option<i32>,
    /// Seconds to reach `Running`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub pre_running_deadline_seconds: Option<i32>,
    /// Deletes the RayCluster when the job has ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shutdown_after_job_finishes: Option<bool>,
    /// Deletes the RayCluster and starts anew when it is taken back.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub suspend: Option<bool>,
    /// The rest.
    #[serde(flatten)]
    pub other: Other,
}

/// Settings of the submitter.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SubmitterConfig {
    /// How often its pod is tried again.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub backoff_limit: Option<i32>,
    /// The rest.
    #[serde(flatten)]
    pub other: Other,
}

/// What is deleted when the job has ended (specs/rayjob.md 1.2).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [
    {
        "message": "onSuccess/onFailure and deletionRules exclude each other",
        "rule": "!((has(self.onSuccess) || has(self.onFailure)) && has(self.deletionRules))",
    },
    {
        "message": "deletionStrategy needs both onSuccess and onFailure, or deletionRules",
        "rule": "((has(self.onSuccess) && has(self.onFailure)) || has(self.deletionRules))",
    },
]))]
pub struct DeletionStrategy {
    /// Policy of a job that succeeded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub on_success: Option<DeletionPolicy>,
    /// Policy of a job that failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub on_failure: Option<DeletionPolicy>,
    /// Rules with conditions and delays.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1), extend("x-kubernetes-list-type" = "atomic"))]
    pub deletion_rules: Option<Vec<DeletionRule>>,
    /// The rest.
    #[serde(flatten)]
    pub other: Other,
}

/// One of the older two policies.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct DeletionPolicy {
    /// What is deleted.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("enum" = ["DeleteCluster", "DeleteWorkers", "DeleteSelf", "DeleteNone"]))]
    pub policy: Option<String>,
    /// The rest.
    #[serde(flatten)]
    pub other: Other,
}

/// One rule.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(extend("required" = ["condition", "policy"]))]
pub struct DeletionRule {
    /// What is deleted.
    #[serde(default)]
    #[schemars(extend("enum" = ["DeleteCluster", "DeleteWorkers", "DeleteSelf", "DeleteNone"]))]
    pub policy: String,
    /// When.
    #[serde(default)]
    pub condition: DeletionCondition,
    /// The rest.
    #[serde(flatten)]
    pub other: Other,
}

/// When a rule applies.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [
    {
        "message": "jobStatus and jobDeploymentStatus exclude each other",
        "rule": "!(has(self.jobStatus) && has(self.jobDeploymentStatus))",
    },
    {
        "message": "one of jobStatus and jobDeploymentStatus is needed",
        "rule": "has(self.jobStatus) || has(self.jobDeploymentStatus)",
    },
]))]
pub struct DeletionCondition {
    /// Status of the Ray job.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("enum" = ["SUCCEEDED", "FAILED"]))]
    pub job_status: Option<String>,
    /// Status of the RayJob.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("enum" = ["Failed"]))]
    pub job_deployment_status: Option<String>,
    /// Seconds after the end.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0), extend("default" = 0))]
    pub ttl_seconds: Option<i32>,
    /// The rest.
    #[serde(flatten)]
    pub other: Other,
}

/// How far a RayJob is (specs/rayjob.md 1.3).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RayJobStatus {
    /// Times of the Ray job.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ray_job_info: Option<RayJobInfo>,
    /// Submission id.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub job_id: Option<String>,
    /// Name of the RayCluster.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ray_cluster_name: Option<String>,
    /// `host:port` of the dashboard, no scheme.
    #[serde(rename = "dashboardURL", skip_serializing_if = "Option::is_none")]
    pub dashboard_url: Option<String>,
    /// Status of the Ray job, as the dashboard says it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub job_status: Option<String>,
    /// State of the RayJob.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub job_deployment_status: Option<String>,
    /// Why it is in that state.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// A sentence.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// When the attempt began, RFC 3339.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("format" = "date-time"))]
    pub start_time: Option<String>,
    /// When it ended, RFC 3339.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("format" = "date-time"))]
    pub end_time: Option<String>,
    /// Attempts that succeeded.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = 0))]
    pub succeeded: Option<i32>,
    /// Attempts that failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = 0))]
    pub failed: Option<i32>,
    /// Copy of the RayCluster's status.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ray_cluster_status: Option<RayClusterStatus>,
    /// First failed question to the dashboard of the present streak, RFC 3339.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("format" = "date-time"))]
    pub job_status_check_failure_start_time: Option<String>,
    /// Generation that was looked at.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// The rest.
    #[serde(flatten)]
    pub other: Other,
}

/// Times of the Ray job.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RayJobInfo {
    /// RFC 3339.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("format" = "date-time"))]
    pub start_time: Option<String>,
    /// RFC 3339.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("format" = "date-time"))]
    pub end_time: Option<String>,
    /// The rest.
    #[serde(flatten)]
    pub other: Other,
}

impl RayJobSpec {
    /// How the job reaches Ray; KubeRay's default where it is not said.
    pub fn mode(&self) -> &str {
        match self.submission_mode.as_deref() {
            None | Some("") => "K8sJobMode",
            Some(mode) => mode,
        }
    }

    /// Name of the RayCluster that the job is to use, if it selects one; empty where the selector lacks the label.
    pub fn selected_cluster(&self) -> Option<&str> {
        let selector = self.cluster_selector.as_ref().filter(|s| !s.is_empty())?;
        Some(selector.get("ray.io/cluster").map_or("", String::as_str))
    }
}
