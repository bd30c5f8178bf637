//! Lease-based ownership by consistent hashing. Knows nothing of Ray.
