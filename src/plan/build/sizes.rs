//! How many pods a RayCluster wants and what they ask for in all (specs/raycluster.md 5.3).
//! Must not know pods that exist.

use super::ray_start::is_gpu;
use crate::api::quantity::Quantity;
use crate::api::ray::{PodTemplate, RayClusterSpec, WorkerGroupSpec};
use crate::row::Demand;

/// Numbers of a RayCluster's status.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Sizes {
    /// Wanted workers.
    pub desired: i32,
    /// Fewest workers.
    pub min: i32,
    /// Most workers.
    pub max: i32,
    /// CPU of head and wanted workers.
    pub cpu: Quantity,
    /// Memory of head and wanted workers, bytes.
    pub memory: Quantity,
    /// GPUs of all kinds.
    pub gpu: Quantity,
    /// TPUs.
    pub tpu: Quantity,
}

/// Wanted pods of a group: replicas within their bounds, times hosts; none while suspended.
pub fn desired_pods(group: &WorkerGroupSpec) -> i32 {
    if group.suspended() {
        return 0;
    }
    let min = group.min_replicas.unwrap_or(0);
    let max = group.max_replicas.unwrap_or(i32::MAX);
    let replicas = group.replicas.unwrap_or(min);
    let replicas = if replicas < min { min } else { replicas.min(max.max(min)) };
    replicas.saturating_mul(group.hosts())
}

/// Fewest pods of a group; none while suspended.
pub fn min_pods(group: &WorkerGroupSpec) -> i32 {
    if group.suspended() { 0 } else { group.min_replicas.unwrap_or(0).saturating_mul(group.hosts()) }
}

/// What KubeRay counts for one pod: requests of its containers, a limit for a missing request; no init containers, no
/// overhead. Quantities that cannot be read count as nothing (validation refuses them).
pub fn pod_resources(template: &PodTemplate) -> Demand {
    let mut sum = Demand::new();
    for container in template.containers() {
        let mut one = Demand::new();
        for which in ["limits", "requests"] {
            for (name, text) in container.resources(which) {
                if let Ok(quantity) = text.parse::<Quantity>() {
                    one.insert(name.into(), quantity);
                }
            }
        }
        for (name, quantity) in one {
            *sum.entry(name).or_default() += quantity;
        }
    }
    sum
}

/// Head plus, per group that is not suspended, `replicas(group)` times hosts times one pod.
pub(super) fn total(spec: &RayClusterSpec, replicas: impl Fn(&WorkerGroupSpec) -> i32) -> Demand {
    let mut sum = pod_resources(&spec.head().template);
    for group in spec.groups().iter().filter(|g| !g.suspended()) {
        let count = i64::from(replicas(group)) * i64::from(group.hosts());
        for (name, quantity) in pod_resources(&group.template) {
            *sum.entry(name).or_default() += quantity.times(count);
        }
    }
    sum
}

/// All numbers; resources by the replicas as written, not clamped, as KubeRay counts.
pub fn sizes(spec: &RayClusterSpec) -> Sizes {
    let total = total(spec, |g| g.replicas.unwrap_or(0));
    let get = |name: &str| total.get(name).copied().unwrap_or_default();
    let gpu = total.iter().filter(|(name, _)| is_gpu(name)).fold(Quantity::ZERO, |sum, (_, q)| sum + *q);
    let max =
        spec.groups().iter().filter(|g| !g.suspended()).fold(0_i64, |sum, group| {
            sum + i64::from(group.max_replicas.unwrap_or(i32::MAX)) * i64::from(group.hosts())
        });
    Sizes {
        desired: spec.groups().iter().map(desired_pods).fold(0, i32::saturating_add),
        min: spec.groups().iter().map(min_pods).fold(0, i32::saturating_add),
        max: i32::try_from(max).unwrap_or(i32::MAX),
        cpu: get("cpu"),
        memory: get("memory"),
        gpu,
        tpu: get("google.com/tpu"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn group(replicas: Option<i32>, min: i32, max: i32) -> WorkerGroupSpec {
        WorkerGroupSpec { replicas, min_replicas: Some(min), max_replicas: Some(max), ..WorkerGroupSpec::default() }
    }

    #[test]
    fn replicas_are_kept_within_their_bounds() {
        assert_eq!(desired_pods(&group(None, 1, 5)), 1);
        assert_eq!(desired_pods(&group(Some(0), 1, 5)), 1);
        assert_eq!(desired_pods(&group(Some(9), 1, 5)), 5);
        assert_eq!(desired_pods(&group(Some(3), 1, 5)), 3);
        assert_eq!(desired_pods(&WorkerGroupSpec { num_of_hosts: Some(4), ..group(Some(2), 0, 5) }), 8);
        assert_eq!(desired_pods(&WorkerGroupSpec { suspend: Some(true), ..group(Some(2), 0, 5) }), 0);
    }
}
