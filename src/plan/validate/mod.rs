//! Whether a RayJob or RayCluster can be worked on: KubeRay's rules in KubeRay's order (specs/rayjob.md 2, raycluster.md
//! 1.11), then what is not built here yet. The first rule that is broken is the answer.
//! Must not know what becomes of a refusal.

mod cluster;
mod deletion;
mod job;
mod shape;
mod unsupported;

pub use cluster::ray_cluster;
pub use job::ray_job;
pub use unsupported::ray_cluster_is_built;

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

impl std::fmt::Display for Refusal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.field, self.message)
    }
}

/// What a rule comes to: nothing, or field and message.
type Rule = Result<(), (String, String)>;

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
