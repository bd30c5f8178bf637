//! Whether a RayJob or RayCluster can be worked on: KubeRay's rules in KubeRay's order (specs/rayjob.md 2, raycluster.md
//! 1.11), then what is not built here yet. The first rule that is broken is the answer.
//! Must not know what becomes of a refusal.

mod cluster;
mod cron_job;
mod deletion;
mod fault_tolerance;
mod features;
mod go_duration;
mod job;
mod schedule;
mod service;
mod shape;
mod unsupported;

pub use cluster::{ray_cluster, ray_cluster_warning};
pub use cron_job::ray_cron_job;
pub use job::ray_job;
pub use service::ray_service;

use serde_json::Value;

use crate::api::Kind;
use crate::api::ray::{ObjectMeta, PodTemplate};

/// Why an object cannot be worked on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// Reason of the Event: KubeRay's, or [`NOT_BUILT`].
    pub event_reason: &'static str,
    /// Field that breaks the rule: `spec.workerGroupSpecs[0].minReplicas`.
    pub field: String,
    /// What is wrong with it, in a sentence without the field.
    pub message: String,
}

/// Event reason of a spec that KubeRay would take and this release does not.
pub const NOT_BUILT: &str = "NotSupportedYet";

impl Refusal {
    /// Whether the object keeps every rule, and asks for what this release does not do: it is not built, or stands behind a
    /// gate of KubeRay's that is off.
    pub fn is_of_this_release(&self) -> bool {
        self.event_reason == NOT_BUILT || self.is_by_gate()
    }

    /// Whether KubeRay refuses it too, with its gates as they are by default.
    pub fn is_by_gate(&self) -> bool {
        self.message.ends_with(GATE_OFF)
    }
}

impl std::fmt::Display for Refusal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.field, self.message)
    }
}

/// The rules of an object's kind, by what the API server holds of it.
pub fn object(kind: Kind, body: &Value) -> Result<(), Refusal> {
    match kind {
        Kind::RayJob => ray_job(&read(body, "InvalidRayJobSpec")?),
        Kind::RayService => ray_service(&read(body, "InvalidRayServiceSpec")?),
        Kind::RayCronJob => ray_cron_job(&read(body, "InvalidRayCronJobSpec")?),
        _ => ray_cluster(&read(body, "InvalidRayClusterSpec")?),
    }
}

fn read<T: serde::de::DeserializeOwned>(body: &Value, event_reason: &'static str) -> Result<T, Refusal> {
    T::deserialize(body).map_err(|error| Refusal {
        event_reason,
        field: "the object".into(),
        message: format!("cannot be read: {error}"),
    })
}

/// KubeRay's feature gates that rules ask for (specs/raycluster.md 7.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gates {
    /// RayJobDeletionPolicy.
    pub deletion_policy: bool,
    /// RayServiceIncrementalUpgrade.
    pub incremental_upgrade: bool,
    /// GCSFaultToleranceEmbeddedStorage.
    pub embedded_storage: bool,
    /// RayClusterHistoryServer.
    pub history_server: bool,
    /// RayClusterNetworkPolicy.
    pub network_policy: bool,
    /// RayClusterMTLS.
    pub mtls: bool,
    /// No gate, but asked for like one: whether cert-manager is there.
    pub cert_manager: bool,
}

impl Gates {
    /// As KubeRay 1.7 has them where nobody says otherwise.
    pub const KUBERAY: Gates = Gates {
        deletion_policy: true,
        incremental_upgrade: true,
        embedded_storage: false,
        history_server: false,
        network_policy: false,
        mtls: false,
        cert_manager: false,
    };
}

/// What is said of a field behind a gate that is off.
const GATE_OFF: &str = "is behind a feature gate that is off";

/// The object that carries a RayCluster's spec: rules read its annotations.
#[derive(Clone, Copy)]
struct Carrier<'a> {
    metadata: &'a ObjectMeta,
    gates: Gates,
}

/// What a rule comes to: nothing, or field and message.
type Rule = Result<(), (String, String)>;

/// Whether a pod template has the shape that building pods takes for granted. The sentence names the field.
pub fn template_shape(template: &PodTemplate, at: &str) -> Result<(), String> {
    shape::template(template, at).map_err(|(field, message)| format!("{field}: {message}"))
}

/// A broken rule.
fn broken<T>(field: impl Into<String>, message: impl Into<String>) -> Result<T, (String, String)> {
    Err((field.into(), message.into()))
}

/// A rule's answer as a refusal with this Event reason.
fn refused<T>(rule: Result<T, (String, String)>, event_reason: &'static str) -> Result<T, Refusal> {
    rule.map_err(|(field, message)| Refusal { event_reason, field, message })
}

/// Names: DNS-1035, and short enough for what is made from them.
fn name(name: &str, longest: usize) -> Rule {
    if name.len() > longest {
        return broken("metadata.name", format!("has {} characters, at most {longest} are allowed", name.len()));
    }
    if !super::names::is_dns_1035(name) {
        return broken(
            "metadata.name",
            format!(
                "{name:?} must consist of small letters, digits and dashes, begin with a letter and not end with a dash"
            ),
        );
    }
    Ok(())
}

/// Volcano's topology tier must be a number; KubeRay fails at it later, again and again.
fn topology(metadata: &crate::api::ray::ObjectMeta) -> Rule {
    use super::build::{TOPOLOGY_MODE_LABEL, TOPOLOGY_TIER_LABEL};
    let tier = metadata.label(TOPOLOGY_TIER_LABEL);
    if metadata.label(TOPOLOGY_MODE_LABEL).is_empty() || tier.is_empty() || tier.parse::<i64>().is_ok() {
        return Ok(());
    }
    broken(format!("metadata.labels[{TOPOLOGY_TIER_LABEL}]"), format!("{tier:?} is no whole number"))
}

#[cfg(test)]
mod tests;
