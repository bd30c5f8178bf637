//! `ray.io/v1` as KubeRay 1.7 has it: its four kinds, typed where rules read, kept where they do not.
//! Must not know rules.
//!
//! No field is lost: what has no type here stays in `other` at its level, and pod templates stay JSON.

pub mod cluster;
mod cluster_status;
mod cron_job;
pub mod job;
pub mod meta;
mod object;
mod options;
mod schema;
mod service;
mod template;

pub use cluster::{HeadGroupSpec, RayCluster, RayClusterSpec, ScaleStrategy, UpgradeStrategy, WorkerGroupSpec};
pub use cluster_status::{ClusterCondition, HeadInfo, RayClusterStatus};
pub use cron_job::{RayCronJob, RayCronJobSpec, RayCronJobStatus};
pub use job::{
    DeletionCondition, DeletionPolicy, DeletionRule, DeletionStrategy, RayJob, RayJobInfo, RayJobSpec, RayJobStatus,
    SubmitterConfig,
};
pub use meta::{ObjectMeta, OwnerReference};
pub use object::Object;
pub use options::{
    AuthOptions, AutoscalerOptions, CollectorOptions, GcsFaultToleranceOptions, GcsStorage, GroupNetworkRules,
    HistoryServerOptions, IngressOptions, NetworkPolicyConfig, NetworkRules, RedisCredential, TlsOptions,
};
pub use schema::BUILTIN;
pub use service::{
    ClusterUpgradeOptions, RayService, RayServiceSpec, RayServiceStatus, RayServiceUpgradeStrategy, ServeApplication,
    ServeDeployment, ServiceStatus,
};
pub use template::{Container, PodTemplate};

use std::collections::BTreeMap;

use serde_json::{Map, Value};

/// Fields that have no type here, kept as they came.
pub type Other = Map<String, Value>;

/// Text → text, as labels, annotations and `rayStartParams` are.
pub type Texts = BTreeMap<String, String>;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_of_redis_is_never_printed() {
        let options = serde_json::json!({ "redisPassword": { "value": "hunter2" }, "redisAddress": "redis:6379" });
        let options: GcsFaultToleranceOptions = serde_json::from_value(options).unwrap();
        let text = format!("{options:?}");
        assert!(text.contains("redis:6379") && !text.contains("hunter2"), "{text}");
    }

    /// Every sample manifest of one kind as JSON.
    fn samples(kind: &str) -> Vec<(String, Value)> {
        let shared =
            std::env::var("RAYFLEET_SHARED").unwrap_or(concat!(env!("CARGO_MANIFEST_DIR"), "/../shared").into());
        let folder = std::path::Path::new(&shared).join("samples");
        let entries = std::fs::read_dir(&folder).unwrap_or_else(|e| {
            panic!("sample manifests are read from {} (set RAYFLEET_SHARED): {e}", folder.display())
        });
        let mut found = Vec::new();
        for entry in entries {
            let path = entry.unwrap().path();
            if path.extension().is_none_or(|e| e != "yaml") {
                continue;
            }
            let text = std::fs::read_to_string(&path).unwrap();
            for document in text.split("\n---") {
                let Ok(value) = serde_saphyr::from_str::<Value>(document) else { continue };
                if value["kind"] == kind {
                    found.push((path.display().to_string(), value));
                }
            }
        }
        found
    }

    #[test]
    fn no_field_of_a_sample_is_lost() {
        let jobs = samples("RayJob");
        let clusters = samples("RayCluster");
        assert!(jobs.len() >= 15 && clusters.len() >= 30, "{} and {}", jobs.len(), clusters.len());
        let (services, cron_jobs) = (samples("RayService"), samples("RayCronJob"));
        assert!(services.len() >= 10 && cron_jobs.len() >= 2, "{} and {}", services.len(), cron_jobs.len());
        for (path, value) in services {
            let typed: RayService = serde_json::from_value(value.clone()).unwrap_or_else(|e| panic!("{path}: {e}"));
            assert_eq!(serde_json::to_value(typed).unwrap(), value, "{path}");
        }
        for (path, value) in cron_jobs {
            let typed: RayCronJob = serde_json::from_value(value.clone()).unwrap_or_else(|e| panic!("{path}: {e}"));
            assert_eq!(serde_json::to_value(typed).unwrap(), value, "{path}");
        }
        for (path, value) in jobs {
            let typed: RayJob = serde_json::from_value(value.clone()).unwrap_or_else(|e| panic!("{path}: {e}"));
            assert_eq!(serde_json::to_value(typed).unwrap(), value, "{path}");
        }
        for (path, value) in clusters {
            let typed: RayCluster = serde_json::from_value(value.clone()).unwrap_or_else(|e| panic!("{path}: {e}"));
            assert_eq!(serde_json::to_value(typed).unwrap(), value, "{path}");
        }
    }
}
