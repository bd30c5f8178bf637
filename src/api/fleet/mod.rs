//! RayFleet's own objects, group `rayfleet.io/v1alpha1` (`architecture.md` section 2).
//! Types only; one file per kind. Must not know how they are decided or kept.

mod member_capacity;
mod member_cluster;
mod placement;
mod placement_policy;

pub use member_capacity::*;
pub use member_cluster::*;
pub use placement::*;
pub use placement_policy::*;
