//! What users write and what stands on the wire: types and names only.
//! Must not know how anything is decided, sent or kept.

pub mod crds;
pub mod fleet;
pub mod ids;
pub mod json;
pub mod kind;
pub mod names;
pub mod quantity;
pub mod ray;
pub mod time;
pub mod wire;
pub mod yaml;

pub use ids::{Cluster, Id, Key, MemberName, RootId, Uid, Version, member_unit};
pub use kind::Kind;
pub use quantity::Quantity;
pub use time::Time;
