//! How long a seat is trusted, renewed and waited for.

/// Durations of the protocol, ms. D / (1 + ρ) ≥ H · (1 + ρ) + margin must hold for the worst clock rate error ρ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Profile {
    /// R: renew period.
    pub renew_ms: u64,
    /// H: how long a seat is trusted, from before its renewal was sent.
    pub hold_ms: u64,
    /// D: how long a seat must be silent before another may fence it.
    pub dead_ms: u64,
}

impl Profile {
    /// Crash failover within 7.5 s.
    pub const FAST: Profile = Profile { renew_ms: 1_000, hold_ms: 3_000, dead_ms: 5_000 };
    /// Crash failover within 17.5 s; the default.
    pub const DEFAULT: Profile = Profile { renew_ms: 3_000, hold_ms: 9_000, dead_ms: 15_000 };
    /// Crash failover within 32.5 s.
    pub const RELAXED: Profile = Profile { renew_ms: 5_000, hold_ms: 18_000, dead_ms: 30_000 };
}
