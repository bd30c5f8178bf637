//! The simulated world: hub, members, replicas, links with faults, and the recorder that watches it.
//! The real cores run here, in one thread, on virtual time: the same seed gives the same run, bit for bit.

pub mod check;
pub mod job;
pub mod link;
