//! RayCronJob: spec and status (specs/raycronjob.md 1).
//! Must not know rules.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Object, Other, RayJobSpec};

/// A RayCronJob.
pub type RayCronJob = Object<RayCronJobSpec, RayCronJobStatus>;

/// Which RayJobs are made, and when.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("required" = ["jobTemplate", "schedule"]))]
pub struct RayCronJobSpec {
    /// Spec of each RayJob.
    #[serde(default)]
    pub job_template: RayJobSpec,
    /// Five fields or a descriptor.
    #[serde(default)]
    pub schedule: String,
    /// IANA name of the zone that the schedule is read in.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1))]
    pub time_zone: Option<String>,
    /// Makes no RayJobs while it is set.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub suspend: Option<bool>,
    /// The rest.
    #[serde(flatten)]
    pub other: Other,
}

/// How far a RayCronJob is.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RayCronJobStatus {
    /// The tick that was handled last, RFC 3339.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("format" = "date-time"))]
    pub last_schedule_time: Option<String>,
    /// The rest.
    #[serde(flatten)]
    pub other: Other,
}
