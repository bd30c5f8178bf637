//! What every object of `ray.io/v1` has around its spec and status.
//! Must not know kinds.

use serde::{Deserialize, Serialize};

use super::{ObjectMeta, Other};

/// An object with spec `S` and status `T`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Object<S, T> {
    /// `ray.io/v1`.
    #[serde(default)]
    pub api_version: String,
    /// The kind.
    #[serde(default)]
    pub kind: String,
    /// Metadata.
    #[serde(default)]
    pub metadata: ObjectMeta,
    /// What the user wants.
    #[serde(default)]
    pub spec: S,
    /// What was found, or how far it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<T>,
    /// The rest.
    #[serde(flatten)]
    pub other: Other,
}
