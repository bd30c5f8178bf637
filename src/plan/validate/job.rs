//! KubeRay's rules for a RayJob, in its order (specs/rayjob.md 2).
//! Must not know what a RayJob does.

use super::{Carrier, Gates, Refusal, Rule, broken, cluster, deletion, name, refused, shape, topology, unsupported};
use crate::api::ray::RayJob;
use crate::plan::build::{runtime_env, submit_body};

/// All rules, then what is not built yet.
pub fn ray_job(job: &RayJob) -> Result<(), Refusal> {
    ray_job_by(job, Gates::KUBERAY)?;
    refused(ours(job), "InvalidRayJobSpec")?;
    unsupported::ray_job_is_built(job)
}

/// KubeRay's rules alone, with these gates.
pub(super) fn ray_job_by(job: &RayJob, gates: Gates) -> Result<(), Refusal> {
    // A RayCluster's 53 less the suffix of six that it gets.
    refused(name(job.metadata.name(), 47), "InvalidRayJobMetadata")?;
    refused(spec(job, gates), "InvalidRayJobSpec")?;
    let waiting = job.status.as_ref().and_then(|s| s.job_deployment_status.as_deref()) == Some("Waiting");
    if waiting && job.spec.mode() != "InteractiveMode" {
        let rule = broken("status.jobDeploymentStatus", "Waiting belongs to InteractiveMode");
        refused(rule, "InvalidRayJobStatus")?;
    }
    Ok(())
}

/// Rules for the spec, in their order.
pub(super) fn spec(job: &RayJob, gates: Gates) -> Rule {
    let spec = &job.spec;
    let shutdown = spec.shutdown_after_job_finishes == Some(true);
    let suspend = spec.suspend == Some(true);
    let backoff = spec.backoff_limit.unwrap_or(0);
    let selects = spec.cluster_selector.as_ref().is_some_and(|s| !s.is_empty());
    if suspend && !shutdown {
        return broken("spec.suspend", "needs shutdownAfterJobFinishes: true");
    }
    if spec.ttl_seconds_after_finished.is_some_and(|ttl| ttl < 0) {
        return broken("spec.ttlSecondsAfterFinished", "must not be negative");
    }
    deletion::rules(spec, gates)?;
    if suspend && selects {
        return broken("spec.suspend", "and clusterSelector exclude each other");
    }
    if spec.ray_cluster_spec.is_none() && !selects {
        return broken("spec.rayClusterSpec", "or clusterSelector must be set");
    }
    modes(job, selects, backoff)?;
    if let Some(inner) = &spec.ray_cluster_spec {
        if inner.auth_options.as_ref().is_some_and(|a| a.enable_k8s_token_auth == Some(true)) {
            return broken("spec.rayClusterSpec.authOptions.enableK8sTokenAuth", "is not supported for RayJobs");
        }
        cluster::spec(inner, "spec.rayClusterSpec", Carrier { metadata: &job.metadata, gates })?;
    }
    if let Err(error) = runtime_env(job) {
        return broken("spec.runtimeEnvYAML", format!("cannot be read: {error}"));
    }
    for (field, value) in [
        ("activeDeadlineSeconds", spec.active_deadline_seconds),
        ("preRunningDeadlineSeconds", spec.pre_running_deadline_seconds),
    ] {
        if value.is_some_and(|seconds| seconds <= 0) {
            return broken(format!("spec.{field}"), "must be more than 0");
        }
    }
    if backoff < 0 {
        return broken("spec.backoffLimit", "must not be negative");
    }
    Ok(())
}

/// Rules 6 to 8: what the submission modes exclude.
fn modes(job: &RayJob, selects: bool, backoff: i32) -> Rule {
    let spec = &job.spec;
    let mode = spec.mode();
    if selects {
        if spec.selected_cluster().is_none_or(str::is_empty) {
            return broken("spec.clusterSelector", "must have a value for ray.io/cluster");
        }
        if mode == "SidecarMode" {
            return broken("spec.clusterSelector", "and SidecarMode exclude each other");
        }
        if backoff > 0 {
            return broken("spec.backoffLimit", "and clusterSelector exclude each other");
        }
    }
    if mode == "InteractiveMode" && backoff > 0 {
        return broken("spec.backoffLimit", "and InteractiveMode exclude each other");
    }
    if mode == "SidecarMode" {
        if spec.submitter_pod_template.is_some() {
            return broken("spec.submitterPodTemplate", "and SidecarMode exclude each other");
        }
        if spec.submitter_config.is_some() {
            return broken("spec.submitterConfig", "and SidecarMode exclude each other");
        }
        let head = spec.ray_cluster_spec.as_ref().map(|s| s.head().template.restart_policy().to_owned());
        if head.is_some_and(|policy| !matches!(policy.as_str(), "" | "Never")) {
            return broken(
                "spec.rayClusterSpec.headGroupSpec.template.spec.restartPolicy",
                "must be Never in SidecarMode",
            );
        }
    }
    Ok(())
}

/// What would only fail later, again and again: said at once instead.
fn ours(job: &RayJob) -> Rule {
    if let Some(template) = &job.spec.submitter_pod_template {
        shape::template(template, "spec.submitterPodTemplate")?;
        if template.ray_container().is_none() {
            return broken("spec.submitterPodTemplate.spec.containers", "must have at least one container");
        }
    }
    topology(&job.metadata)?;
    if job.spec.mode() == "HTTPMode"
        && let Err(error) = submit_body(job, "")
    {
        let (field, message) = error.split_once(": ").unwrap_or(("spec", &error));
        return broken(field, message);
    }
    let kind = job.spec.ray_cluster_spec.as_ref().and_then(|s| s.upgrade_strategy.as_ref());
    if kind.is_some_and(|s| s.r#type.is_some()) {
        return broken(
            "spec.rayClusterSpec.upgradeStrategy.type",
            "must not be set on a RayCluster that a RayJob makes",
        );
    }
    Ok(())
}
