//! KubeRay's rules for a RayCluster, in its order (specs/raycluster.md 1.11).
//! Must not know RayJobs.

use serde_json::Value;

use super::{Carrier, GATE_OFF, Gates, Refusal, Rule, broken, fault_tolerance, features};
use super::{name, refused, shape, topology};
use crate::api::names::ORIGINATED_KIND_LABEL;
use crate::api::ray::{Container, RayCluster, RayClusterSpec, Texts, WorkerGroupSpec};
use crate::plan::build::version_at_least;

const SPEC: &str = "InvalidRayClusterSpec";

/// All rules for a RayCluster that stands for itself.
pub fn ray_cluster(cluster: &RayCluster) -> Result<(), Refusal> {
    ray_cluster_by(cluster, Gates::KUBERAY)
}

/// The same with these gates.
pub(super) fn ray_cluster_by(cluster: &RayCluster, gates: Gates) -> Result<(), Refusal> {
    let carrier = Carrier { metadata: &cluster.metadata, gates };
    refused(name(cluster.metadata.name(), 53), "InvalidRayClusterMetadata")?;
    refused(spec(&cluster.spec, "spec", carrier), SPEC)?;
    refused(features::cert_manager(&cluster.spec, gates), SPEC)?;
    refused(upgrade(cluster), SPEC)?;
    if cluster.is("RayClusterSuspending") && cluster.is("RayClusterSuspended") {
        let both = broken("status.conditions", "RayClusterSuspending and RayClusterSuspended exclude each other");
        refused(both, "InvalidRayClusterStatus")?;
    }
    refused(topology(&cluster.metadata), SPEC)
}

/// What is only warned of (1.11 C): the pass goes on.
pub fn ray_cluster_warning(spec: &RayClusterSpec, at: &str) -> Option<Refusal> {
    let version = spec.autoscaler_options.as_ref().and_then(|o| o.version.as_deref());
    if !spec.autoscaling() || version != Some("v1") {
        return None;
    }
    let restarts = |group: &&WorkerGroupSpec| !matches!(group.template.restart_policy(), "" | "Never");
    let names: Vec<&str> = spec.groups().iter().filter(restarts).map(|group| group.group_name.as_str()).collect();
    (!names.is_empty()).then(|| Refusal {
        event_reason: SPEC,
        field: format!("{at}.workerGroupSpecs"),
        message: format!("restartPolicy should be Never with autoscaler v1, in groups {}", names.join(", ")),
    })
}

/// Rules for the spec, in their order; `at` is where it stands.
pub(super) fn spec(spec: &RayClusterSpec, at: &str, carrier: Carrier<'_>) -> Rule {
    let head = spec.head();
    let head_at = format!("{at}.headGroupSpec");
    if spec.head_group_spec.is_none() {
        return broken(&head_at, "is missing: a Ray cluster has a head");
    }
    shape::template(&head.template, &format!("{head_at}.template"))?;
    let Some(ray) = head.template.ray_container() else {
        return broken(format!("{head_at}.template.spec.containers"), "must have at least one container");
    };
    group_fields(head.ray_start_params.as_ref(), head.resources.as_ref(), head.labels.as_ref(), &head_at)?;
    head_service(head.head_service.as_ref(), &format!("{head_at}.headService"))?;
    let v2 = autoscaler_v2(spec, ray);
    for (i, group) in spec.groups().iter().enumerate() {
        worker_group(spec, group, v2, &format!("{at}.workerGroupSpecs[{i}]"))?;
    }
    fault_tolerance::rules(spec, ray, at, carrier)?;
    let params = head.ray_start_params.as_ref();
    if param(params, "redis-username") || ray.has_env("REDIS_USERNAME") {
        return broken(format!("{at}.gcsFaultToleranceOptions.redisUsername"), "is where the Redis user is given");
    }
    if !carrier.gates.deletion_policy
        && let Some(i) = spec.groups().iter().position(WorkerGroupSpec::suspended)
    {
        return broken(format!("{at}.workerGroupSpecs[{i}].suspend"), GATE_OFF);
    }
    autoscaler(spec, ray, at)?;
    features::history_server(spec, at, carrier.gates)?;
    auth(spec, at)?;
    features::network_policy(spec, at, carrier.gates)?;
    features::tls(spec, at, carrier.gates)
}

pub(super) fn param(params: Option<&Texts>, key: &str) -> bool {
    params.and_then(|p| p.get(key)).is_some_and(|v| !v.is_empty())
}

/// Rules 2 to 4: what stands both in `rayStartParams` and in fields of the group.
fn group_fields(params: Option<&Texts>, resources: Option<&Texts>, labels: Option<&Texts>, at: &str) -> Rule {
    let sized = ["num-cpus", "num-gpus", "memory", "resources"].iter().find(|k| param(params, k));
    if let Some(key) = sized
        && resources.is_some_and(|r| !r.is_empty())
    {
        return broken(format!("{at}.resources"), format!("and rayStartParams.{key} exclude each other"));
    }
    if params.is_some_and(|p| p.contains_key("labels")) {
        return broken(format!("{at}.rayStartParams.labels"), "is not supported; use the field labels of the group");
    }
    let mut wrong = Vec::new();
    for (key, value) in labels.into_iter().flatten() {
        if !is_qualified_name(key) {
            wrong.push(format!("{key:?} is no label key"));
        }
        if !is_label_value(value) {
            wrong.push(format!("{value:?} of {key:?} is no label value"));
        }
    }
    if wrong.is_empty() { Ok(()) } else { broken(format!("{at}.labels"), wrong.join("; ")) }
}

fn is_label_part(text: &str) -> bool {
    let edge = |b: Option<u8>| b.is_some_and(|b| b.is_ascii_alphanumeric());
    text.len() <= 63
        && edge(text.bytes().next())
        && edge(text.bytes().last())
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.'))
}

fn is_label_value(text: &str) -> bool {
    text.is_empty() || is_label_part(text)
}

fn is_qualified_name(text: &str) -> bool {
    let Some((prefix, name)) = text.split_once('/') else { return is_label_part(text) };
    let ok = |part: &str| {
        let edge = |b: Option<u8>| b.is_some_and(|b| b.is_ascii_lowercase() || b.is_ascii_digit());
        edge(part.bytes().next())
            && edge(part.bytes().last())
            && part.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
    };
    prefix.len() <= 253 && prefix.split('.').all(ok) && is_label_part(name)
}

fn head_service(service: Option<&Value>, at: &str) -> Rule {
    let Some(service) = service else { return Ok(()) };
    shape::object(service, at)?;
    shape::object(&service["metadata"], &format!("{at}.metadata"))?;
    shape::object(&service["spec"], &format!("{at}.spec"))
}

/// Whether autoscaler v2 is chosen, by field or by the head's environment.
fn autoscaler_v2(spec: &RayClusterSpec, ray: Container<'_>) -> bool {
    let field = spec.autoscaler_options.as_ref().and_then(|o| o.version.as_deref());
    field == Some("v2") || matches!(ray.env_value("RAY_enable_autoscaler_v2"), Some("1" | "true"))
}

/// Rule 5: one worker group.
fn worker_group(spec: &RayClusterSpec, group: &WorkerGroupSpec, v2: bool, at: &str) -> Rule {
    shape::template(&group.template, &format!("{at}.template"))?;
    if group.template.ray_container().is_none() {
        return broken(format!("{at}.template.spec.containers"), "must have at least one container");
    }
    for (key, bound) in [("minReplicas", group.min_replicas), ("maxReplicas", group.max_replicas)] {
        if bound.is_none() && !spec.autoscaling() {
            return broken(format!("{at}.{key}"), "must be set");
        }
    }
    for (key, bound) in [("minReplicas", group.min_replicas), ("maxReplicas", group.max_replicas)] {
        if let Some(bound) = bound.filter(|b| *b < 0) {
            return broken(format!("{at}.{key}"), format!("must not be negative, is {bound}"));
        }
    }
    if let (Some(min), Some(max)) = (group.min_replicas, group.max_replicas)
        && min > max
    {
        return broken(format!("{at}.minReplicas"), format!("is {min}, more than maxReplicas {max}"));
    }
    group_fields(group.ray_start_params.as_ref(), group.resources.as_ref(), group.labels.as_ref(), at)?;
    if let Some(idle) = group.idle_timeout_seconds {
        if idle < 0 {
            return broken(format!("{at}.idleTimeoutSeconds"), format!("must not be negative, is {idle}"));
        }
        if !v2 {
            return broken(format!("{at}.idleTimeoutSeconds"), "needs autoscaler v2 (autoscalerOptions.version: v2)");
        }
    }
    if group.priority.is_some_and(|p| p != 0) {
        let version = spec.ray_version.as_deref().unwrap_or_default();
        if version_at_least(version, (2, 56, 0)) != Some(true) {
            return broken(format!("{at}.priority"), format!("needs rayVersion 2.56.0 or newer, is {version:?}"));
        }
        if !v2 {
            return broken(format!("{at}.priority"), "needs autoscaler v2 (autoscalerOptions.version: v2)");
        }
    }
    Ok(())
}

/// Rules 12 to 15.
fn autoscaler(spec: &RayClusterSpec, ray: Container<'_>, at: &str) -> Rule {
    let v2_env = ray.env_value("RAY_enable_autoscaler_v2");
    let options = spec.autoscaler_options.as_ref();
    let at_options = format!("{at}.autoscalerOptions");
    if !spec.autoscaling() && matches!(v2_env, Some("1" | "true")) {
        return broken(format!("{at}.enableInTreeAutoscaling"), "must be true if RAY_enable_autoscaler_v2 is set");
    }
    if spec.autoscaling() {
        if let Some(i) = spec.groups().iter().position(WorkerGroupSpec::suspended) {
            return broken(format!("{at}.workerGroupSpecs[{i}].suspend"), "and autoscaling exclude each other");
        }
        let version = options.and_then(|o| o.version.as_deref());
        if version.is_some() && ray.has_env("RAY_enable_autoscaler_v2") {
            return broken(format!("{at_options}.version"), "and RAY_enable_autoscaler_v2 exclude each other");
        }
        if version == Some("v2") {
            let never = |policy: &str| matches!(policy, "" | "Never");
            if !never(spec.head().template.restart_policy()) {
                return broken(format!("{at}.headGroupSpec.template.spec.restartPolicy"), "must be Never with v2");
            }
            if let Some(i) = spec.groups().iter().position(|g| !never(g.template.restart_policy())) {
                return broken(
                    format!("{at}.workerGroupSpecs[{i}].template.spec.restartPolicy"),
                    "must be Never with v2",
                );
            }
        }
    }
    if options.and_then(|o| o.idle_timeout_seconds).is_some_and(|s| s < 0) {
        return broken(format!("{at_options}.idleTimeoutSeconds"), "must not be negative");
    }
    let env = options.and_then(|o| o.env.as_ref()).into_iter().flatten();
    if env.into_iter().any(|e| e["name"] == "KUBERAY_GEN_AUTOSCALER_START_CMD") {
        return broken(format!("{at_options}.env"), "must not set KUBERAY_GEN_AUTOSCALER_START_CMD");
    }
    Ok(())
}

/// Rule 17.
fn auth(spec: &RayClusterSpec, at: &str) -> Rule {
    let Some(auth) = &spec.auth_options else { return Ok(()) };
    let at = format!("{at}.authOptions");
    let token = auth.mode.as_deref() == Some("token");
    let by_kubernetes = auth.enable_k8s_token_auth == Some(true);
    let version = spec.ray_version.as_deref().unwrap_or_default();
    if token && version_at_least(version, (2, 52, 0)) != Some(true) {
        return broken(format!("{at}.mode"), format!("token needs rayVersion 2.52.0 or newer, is {version:?}"));
    }
    if token && by_kubernetes {
        if version_at_least(version, (2, 55, 0)) != Some(true) {
            return broken(
                format!("{at}.enableK8sTokenAuth"),
                format!("needs rayVersion 2.55.0 or newer, is {version:?}"),
            );
        }
        if auth.secret_name.as_deref().is_some_and(|s| !s.is_empty()) {
            return broken(format!("{at}.secretName"), "and enableK8sTokenAuth exclude each other");
        }
    }
    if by_kubernetes && !token {
        return broken(format!("{at}.enableK8sTokenAuth"), "needs mode token");
    }
    Ok(())
}

/// Rule E: how templates reach running pods.
fn upgrade(cluster: &RayCluster) -> Rule {
    let Some(kind) = cluster.spec.upgrade_strategy.as_ref().and_then(|s| s.r#type.as_deref()) else { return Ok(()) };
    if !matches!(kind, "Recreate" | "None") {
        return broken("spec.upgradeStrategy.type", format!("{kind:?} is neither Recreate nor None"));
    }
    let creator = cluster.metadata.label(ORIGINATED_KIND_LABEL);
    if matches!(creator, "RayJob" | "RayService") {
        return broken("spec.upgradeStrategy.type", format!("must not be set on a RayCluster that a {creator} made"));
    }
    Ok(())
}
