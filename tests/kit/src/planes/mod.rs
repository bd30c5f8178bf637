//! Real Kubernetes control planes for tests: etcd, API server and a small controller manager as processes on loopback.
//! What they say is the truth that stand-ins are held against. Must not know Ray, Volcano or our own kinds.
//!
//! * [`Plane`]: one cluster's control plane, which is started, paused, killed, restarted and wiped.
//! * [`Proxy`]: the network in front of one, with its faults.
//! * [`Binary`]: what `make planes` builds.

mod access;
mod binary;
mod connection_owner;
mod plane;
mod process;
mod proxy;

pub use access::ADMINISTRATOR;
pub use binary::Binary;
pub use plane::{Part, Plane};
pub use proxy::{Mode, Proxy};
