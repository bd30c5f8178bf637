//! Lease-based ownership by consistent hashing: seats, units, epochs. Knows nothing of Ray, nor of any client.
//!
//! * [`hash`]: which unit a thing belongs to: pinned hashes.
//! * [`lease`]: the two kinds of records as Kubernetes Leases.
//! * [`ring`]: order of preference of seats for a unit, with a cap.
//! * [`authority`]: "may act now", as the executor asks it.
//! * [`core`]: the protocol as a synchronous machine: inputs and time in, effects out.
//!
//! The protocol and its proof obligations: a seat is a Lease that one process renews; a unit record is a Lease that is
//! never renewed and names a seat, its incarnation, and an epoch that grows with every acquisition.

pub mod authority;
pub mod core;
pub mod hash;
pub mod lease;
pub mod ring;

pub use authority::Authority;
pub use core::{
    Ask, Call, Change, Effect, Failure, Gain, Identity, Input, Listing, Loss, Profile, Shards, Tally, Unowned,
};

pub use hash::{bucket, member_unit, queue_unit};
pub use lease::Record;

/// Monotonic time of one process, ms. Never compared between processes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct Mono(pub u64);

impl std::ops::Add<u64> for Mono {
    type Output = Mono;
    fn add(self, ms: u64) -> Mono {
        Mono(self.0.saturating_add(ms))
    }
}
