//! Our clock against the hub's. A machine that stood still and whose clock did so too (a paused or migrated VM) cannot tell
//! by itself; every reply of the hub carries the time of a clock that went on (`sharding.md` 2.9).
//! Must not know what is given up for it.
//!
//! Both ends of a reply bound the difference of the two clocks, so that a slow reply is no jump. Each reply is compared with
//! the one before: clocks whose rates differ a little drift apart without end, and are no jump either.

use crate::Mono;

/// The hub's clock may have gone so much further than ours between two replies, ms.
const AHEAD_MAX_MS: i64 = 2_000;
/// Jumps that follow sooner are not believed, ms: behind the hub's address are several servers whose clocks differ.
const BELIEVED_AGAIN_MS: u64 = 600_000;

/// What the replies so far say.
#[derive(Debug, Default)]
pub(super) struct Outside {
    /// The hub's clock was ahead of ours by no more than this at the last reply, ms.
    ahead_at_most: Option<i64>,
    jumped: Option<Mono>,
}

impl Outside {
    /// A reply to a request that was sent at `sent` carries the hub's time, in whole seconds. Gives by how much, at least,
    /// our clock stood still since the reply before, where that is too much.
    pub(super) fn heard(&mut self, hub_seconds: u64, sent: Mono, now: Mono) -> Option<u64> {
        let ms = |time: Mono| i64::try_from(time.0).unwrap_or(i64::MAX);
        let hub = i64::try_from(hub_seconds).unwrap_or(i64::MAX).saturating_mul(1_000);
        let ahead_at_least = hub.saturating_sub(ms(now));
        let before = self.ahead_at_most.replace(hub.saturating_add(999).saturating_sub(ms(sent)));
        let stood = ahead_at_least.saturating_sub(before?);
        let believed = self.jumped.is_none_or(|at| now.0.saturating_sub(at.0) >= BELIEVED_AGAIN_MS);
        if stood <= AHEAD_MAX_MS || !believed {
            return None;
        }
        self.jumped = Some(now);
        u64::try_from(stood).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn heard(outside: &mut Outside, hub_ms: u64, sent: u64, now: u64) -> Option<u64> {
        outside.heard(hub_ms / 1_000, Mono(sent), Mono(now))
    }

    #[test]
    fn a_clock_that_stood_still_between_two_replies_is_found() {
        let mut outside = Outside::default();
        assert_eq!(heard(&mut outside, 50_000, 1_000, 1_010), None);
        assert_eq!(heard(&mut outside, 53_000, 4_000, 4_010), None);
        // A minute passed on the hub, and nothing here.
        assert_eq!(heard(&mut outside, 116_000, 7_000, 7_010), Some(58_991));
        assert_eq!(heard(&mut outside, 119_000, 10_000, 10_010), None, "told once");
    }

    #[test]
    fn whole_seconds_slow_replies_and_clocks_of_other_rates_are_no_jump() {
        let mut outside = Outside::default();
        // Handled by the hub anywhere between sending and receipt, up to 5 s apart; its clock goes 1 % faster.
        let (mut now, mut dice) = (0_u64, 7_u64);
        for _ in 0..10_000 {
            dice = dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let (there, back) = (dice >> 33 & 0x9ff, dice >> 45 & 0x9ff);
            let hub = (now + there) * 101 / 100 + 77_777;
            assert_eq!(heard(&mut outside, hub, now, now + there + back), None);
            now += there + back + 3_000;
        }
    }

    #[test]
    fn servers_whose_clocks_differ_do_not_take_the_seat_away_time_and_again() {
        let mut outside = Outside::default();
        let replies = (1..200).map(|n| heard(&mut outside, n * 3_000 + (n % 2) * 30_000, n * 3_000, n * 3_000 + 5));
        assert_eq!(replies.flatten().count(), 1);
    }
}
