//! KubeRay's rules for a RayService, in its order (specs/rayservice.md 2).
//! Must not know what a RayService does.

use super::{Carrier, Gates, NOT_BUILT, Refusal, Rule, broken, cluster, go_duration, name, refused};
use crate::api::ray::{RayClusterSpec, RayService, RayServiceSpec};

/// Annotation with the time that a service may take to come up.
const TIMEOUT: &str = "ray.io/initializing-timeout";
/// Upgrade type that moves traffic in steps.
const INCREMENTAL: &str = "NewClusterWithIncrementalUpgrade";

/// All rules, then that the kind is not built yet.
pub fn ray_service(service: &RayService) -> Result<(), Refusal> {
    ray_service_by(service, Gates::KUBERAY)?;
    refused(broken("kind", "RayServices are kept, and nothing is started for them: that is not built yet"), NOT_BUILT)
}

/// KubeRay's rules alone, with these gates.
pub(super) fn ray_service_by(service: &RayService, gates: Gates) -> Result<(), Refusal> {
    refused(name(service.metadata.name(), 47), "InvalidRayServiceMetadata")?;
    refused(timeout(service.metadata.annotation(TIMEOUT)), "InvalidRayServiceMetadata")?;
    refused(spec(service, gates), "InvalidRayServiceSpec")
}

/// A positive number of seconds, or a positive duration of Go's; nothing where it is empty.
fn timeout(text: &str) -> Rule {
    let positive = text.parse::<i64>().map_or_else(|_| go_duration::nanos(text).is_some_and(|n| n > 0), |s| s > 0);
    if text.is_empty() || positive {
        return Ok(());
    }
    broken(
        format!("metadata.annotations[{TIMEOUT}]"),
        format!("{text:?} must be a positive duration such as 5m or 300"),
    )
}

fn spec(service: &RayService, gates: Gates) -> Rule {
    let spec = &service.spec;
    let at = "spec.rayClusterConfig";
    let Some(config) = &spec.ray_cluster_config else { return broken(at, "must be set") };
    if config.auth_options.as_ref().is_some_and(|a| a.enable_k8s_token_auth == Some(true)) {
        return broken(format!("{at}.authOptions.enableK8sTokenAuth"), "is not supported for RayServices");
    }
    cluster::spec(config, at, Carrier { metadata: &service.metadata, gates })?;
    let head = config.head();
    let named = head.head_service.as_ref().and_then(|s| s["metadata"]["name"].as_str());
    if named.is_some_and(|name| !name.is_empty()) {
        return broken(
            format!("{at}.headGroupSpec.headService.metadata.name"),
            "must not be set: each cluster has its own",
        );
    }
    let kind = spec.upgrade_strategy.as_ref().and_then(|s| s.r#type.as_deref());
    if kind.is_some_and(|kind| !matches!(kind, "NewCluster" | "None" | INCREMENTAL)) {
        return broken("spec.upgradeStrategy.type", format!("is none of NewCluster, None, {INCREMENTAL}"));
    }
    if spec.ray_cluster_deletion_delay_seconds.is_some_and(|delay| delay < 0) {
        return broken("spec.rayClusterDeletionDelaySeconds", "must not be negative");
    }
    if kind == Some(INCREMENTAL) && gates.incremental_upgrade { incremental(spec, config) } else { Ok(()) }
}

/// Rule 6: capacity and traffic in steps.
fn incremental(spec: &RayServiceSpec, config: &RayClusterSpec) -> Rule {
    if !config.autoscaling() {
        let what = format!("must be true for {INCREMENTAL}");
        return broken("spec.rayClusterConfig.enableInTreeAutoscaling", what);
    }
    let at = "spec.upgradeStrategy.clusterUpgradeOptions";
    let options = spec.upgrade_strategy.as_ref().and_then(|s| s.cluster_upgrade_options.as_ref());
    let Some(options) = options else { return broken(at, format!("must be set for {INCREMENTAL}")) };
    // The definition's default; KubeRay itself would crash on an absent one.
    let surge = options.max_surge_percent.unwrap_or(100);
    let step = options.step_size_percent.unwrap_or(0);
    if !(0..=100).contains(&surge) {
        return broken(format!("{at}.maxSurgePercent"), format!("must be within 0 to 100, is {surge}"));
    }
    if !(0..=100).contains(&step) {
        return broken(format!("{at}.stepSizePercent"), format!("must be within 0 to 100, is {step}"));
    }
    if step > surge {
        return broken(format!("{at}.stepSizePercent"), format!("is {step}, more than maxSurgePercent {surge}"));
    }
    if options.interval_seconds.unwrap_or(0) <= 0 {
        return broken(format!("{at}.intervalSeconds"), "must be more than 0");
    }
    if options.gateway_class_name.as_deref().is_none_or(str::is_empty) {
        return broken(format!("{at}.gatewayClassName"), "must be set");
    }
    Ok(())
}
