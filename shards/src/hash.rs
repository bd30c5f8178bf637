//! Which unit a thing belongs to. All hashes are pinned: golden vectors stand in the tests, since two versions of the
//! product must agree.
//! Must not know who owns a unit.

use xxhash_rust::xxh3::xxh3_64_with_seed;

/// Seed of every xxh3 here; part of the ring's algorithm version.
pub const SEED: u64 = 0x5241_5946_4c45_4554;

/// Version of the algorithms of this module and of [`crate::ring`]; seats of another version are not in one view.
pub const ALGORITHM: u32 = 1;

/// Number of queue units: `q-00` to `q-3f`.
pub const QUEUE_UNITS: u32 = 64;

/// Bucket of an identity, 0 to 255: the top 8 bits of its FNV-1a-64.
pub fn bucket(identity: &str) -> u8 {
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    for byte in identity.bytes() {
        hash ^= u64::from(byte);
        hash = hash.wrapping_mul(0x0000_0100_0000_01b3);
    }
    (hash >> 56) as u8
}

/// Unit of a queue: top 6 bits of the xxh3-64 of its name.
pub fn queue_unit(queue: &str) -> String {
    format!("q-{:02x}", xxh3_64_with_seed(queue.as_bytes(), SEED) >> 58)
}

/// All queue units, in order.
pub fn queue_units() -> impl Iterator<Item = String> {
    (0..QUEUE_UNITS).map(|i| format!("q-{i:02x}"))
}

/// Unit of a member that a bucket falls in, out of `units` (a power of two, 1 to 32): contiguous ranges of buckets.
pub fn member_unit(member: &str, bucket: u8, units: u32) -> String {
    format!("m-{member}-{}", u32::from(bucket) * units.clamp(1, 32) / 256)
}

/// xxh3-64 with the fixed seed.
pub(crate) fn xxh3(bytes: &[u8]) -> u64 {
    xxh3_64_with_seed(bytes, SEED)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_are_pinned() {
        assert_eq!((bucket(""), bucket("a"), bucket("foobar")), (0xcb, 0xaf, 0x85));
        assert_eq!(queue_unit("default"), GOLDEN_DEFAULT);
        assert_eq!(queue_unit("ml"), GOLDEN_ML);
    }

    const GOLDEN_DEFAULT: &str = "q-02";
    const GOLDEN_ML: &str = "q-20";

    #[test]
    fn units_of_a_member_are_contiguous_and_cover_all_buckets() {
        for units in [1, 2, 4, 32] {
            let of: Vec<_> = (0..=255).map(|b| member_unit("eu", b, units)).collect();
            let mut seen = of.clone();
            seen.dedup();
            assert_eq!(seen.len(), units as usize);
            assert_eq!(of[0], "m-eu-0");
            assert_eq!(of[255], format!("m-eu-{}", units - 1));
        }
    }
}
