//! `MemberCluster` (cluster-scoped): how a member is reached and how it may be used.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Condition;

/// Spec and status of a `MemberCluster` as a row keeps them.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
// A rule on changes of the spec is skipped where there was none.
#[schemars(extend("required" = ["spec"]))]
pub struct MemberCluster {
    /// What an operator wrote.
    pub spec: MemberClusterSpec,
    /// What was found.
    pub status: MemberClusterStatus,
}

/// How a member is reached and used.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("x-kubernetes-validations" = [
    {
        "message": "units is a power of two from 1 to 32",
        "rule": "!has(self.units) || self.units in [1, 2, 4, 8, 16, 32]",
    },
    // Another number gives every root object of the member another owner, while the former one still acts.
    {
        "message": "units cannot be changed after registration (4 where none is given)",
        "rule": "(has(self.units) ? self.units : 4) == (has(oldSelf.units) ? oldSelf.units : 4)",
    },
]))]
pub struct MemberClusterSpec {
    /// Secret on the hub with a kubeconfig whose credentials stand inline (key `kubeconfig` unless named).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kubeconfig_secret: Option<SecretKey>,
    /// `Full` (default): RayFleet is this member's KubeRay operator.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub mode: String,
    /// Cordoned: nothing new is placed there, and what is not admitted there yet goes back to the hub; what was admitted
    /// goes on.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub unschedulable: bool,
    /// Queue for root objects that name none, on this member.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub default_queue: Option<String>,
    /// Units of this member: a power of two, 1 to 32, default 4; never changes after registration.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub units: Option<u32>,
    /// Labels for policies.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
}

impl MemberClusterSpec {
    /// Number of units; 4 where none is given, or one that is none: buckets would be left without a unit.
    pub fn unit_count(&self) -> u32 {
        self.units.filter(|count| count.is_power_of_two() && *count <= 32).unwrap_or(4)
    }
}

/// A Secret's key on the hub.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct SecretKey {
    /// Namespace of the Secret.
    pub namespace: String,
    /// Name of the Secret.
    pub name: String,
    /// Key in its data; `kubeconfig` where empty.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub key: String,
}

/// What was found about a member.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct MemberClusterStatus {
    /// `Ready`, `Reachable`, `VolcanoReady`, `CredentialsValid`; `LongLivedCredentials` where withdrawn copies are held
    /// longer for them; `RemovalBlocked` while it is being deleted and something stands on the member.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
    /// `gitVersion` of its API server.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub kubernetes_version: String,
    /// UID of its namespace `kube-system`: the cluster that this name stands for, recorded at registration. A kubeconfig that
    /// leads to another one is refused.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub cluster_id: String,
    /// Number of nodes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nodes: Option<i64>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_of_units_that_would_leave_buckets_without_one_counts_as_none() {
        for (units, count) in [(None, 4), (Some(1), 1), (Some(32), 32), (Some(0), 4), (Some(3), 4), (Some(64), 4)] {
            assert_eq!(MemberClusterSpec { units, ..MemberClusterSpec::default() }.unit_count(), count, "{units:?}");
        }
    }
}
