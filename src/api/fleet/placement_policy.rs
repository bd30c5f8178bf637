//! `PlacementPolicy` (namespaced): how the root objects of a namespace are placed.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Spec of a `PlacementPolicy` as a row keeps it. The one named `default` is the namespace's.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct PlacementPolicy {
    /// What an operator wrote.
    pub spec: PlacementPolicySpec,
}

/// How root objects are placed.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct PlacementPolicySpec {
    /// Queue of root objects that name none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub default_queue: Option<String>,
    /// Members in order of preference; a member that is not named comes after all that are.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub preference: Vec<String>,
    /// Seconds from binding to Volcano's `Inqueue` (default 30).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub admission_deadline_seconds: Option<u32>,
    /// Seconds from `Admitted` to the first bound pod (default 300).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub start_deadline_seconds: Option<u32>,
}
