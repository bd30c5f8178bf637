//! The definitions of `ray.io/v1`, with KubeRay's names, columns, defaults and rules.
//! Must not know files or clusters.

use serde_json::Value;

use super::{Shape, age, column, definition, of_parts, wide};
use crate::api::Kind;
use crate::api::ray::{
    RayClusterSpec, RayClusterStatus, RayCronJobSpec, RayCronJobStatus, RayJobSpec, RayJobStatus, RayServiceSpec,
    RayServiceStatus,
};

/// All four, RayJobs first.
pub(super) fn definitions() -> Vec<Value> {
    vec![ray_job(), ray_cluster(), ray_service(), ray_cron_job()]
}

fn ray_job() -> Value {
    definition(Shape {
        kind: Kind::RayJob,
        short: &[],
        categories: &["all"],
        columns: vec![
            column("job status", "string", ".status.jobStatus"),
            column("deployment status", "string", ".status.jobDeploymentStatus"),
            column("ray cluster name", "string", ".status.rayClusterName"),
            column("start time", "string", ".status.startTime"),
            column("end time", "string", ".status.endTime"),
            age(),
        ],
        status: true,
        schema: of_parts::<RayJobSpec, RayJobStatus>("A Ray job and the cluster that it runs on."),
    })
}

fn ray_cluster() -> Value {
    definition(Shape {
        kind: Kind::RayCluster,
        short: &[],
        categories: &["all"],
        columns: vec![
            column("desired workers", "integer", ".status.desiredWorkerReplicas"),
            column("available workers", "integer", ".status.availableWorkerReplicas"),
            column("cpus", "string", ".status.desiredCPU"),
            column("memory", "string", ".status.desiredMemory"),
            column("gpus", "string", ".status.desiredGPU"),
            wide("tpus", "string", ".status.desiredTPU"),
            column("status", "string", ".status.state"),
            age(),
            wide("head pod IP", "string", ".status.head.podIP"),
            wide("head service IP", "string", ".status.head.serviceIP"),
        ],
        status: true,
        schema: of_parts::<RayClusterSpec, RayClusterStatus>("A Ray cluster: one head and groups of workers."),
    })
}

fn ray_service() -> Value {
    definition(Shape {
        kind: Kind::RayService,
        short: &[],
        categories: &["all"],
        columns: vec![
            column("service status", "string", ".status.serviceStatus"),
            column("num serve endpoints", "string", ".status.numServeEndpoints"),
        ],
        status: true,
        schema: of_parts::<RayServiceSpec, RayServiceStatus>(
            "Ray Serve applications and the clusters that they run on.",
        ),
    })
}

fn ray_cron_job() -> Value {
    definition(Shape {
        kind: Kind::RayCronJob,
        short: &[],
        categories: &["all"],
        columns: vec![
            column("schedule", "string", ".spec.schedule"),
            column("timezone", "string", ".spec.timeZone"),
            column("last schedule", "date", ".status.lastScheduleTime"),
            age(),
            column("suspend", "boolean", ".spec.suspend"),
        ],
        status: true,
        schema: of_parts::<RayCronJobSpec, RayCronJobStatus>("RayJobs that are made at set times."),
    })
}
