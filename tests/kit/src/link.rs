//! The links between replicas and API servers: how long a message takes, and what happens to it.
//! Every link draws from a generator of its own, so one more draw here does not shift all others.

use std::time::Duration;

/// How links behave. Probabilities are per message, in 1/1000.
#[derive(Clone, Debug)]
pub struct LinkProfile {
    /// Shortest one-way delay, ms.
    pub delay_min_ms: u64,
    /// Longest ordinary one-way delay, ms.
    pub delay_max_ms: u64,
    /// Messages that take up to `slow_max_ms`.
    pub slow_permille: u32,
    /// Longest delay of a slow message, ms; beyond the request's time limit its answer is not waited for.
    pub slow_max_ms: u64,
    /// Requests that get lost on the way.
    pub lose_request_permille: u32,
    /// Requests that are carried out, and whose answer gets lost.
    pub lose_answer_permille: u32,
    /// Watch lines at which the stream is cut.
    pub cut_watch_permille: u32,
    /// Writes that meet a conflict: another writer touches the object's metadata right before.
    pub conflict_permille: u32,
    /// Refusals by an overloaded server (429, 500, 503) without carrying out.
    pub refuse_permille: u32,
}

impl LinkProfile {
    /// Everything arrives, within a few milliseconds.
    pub fn calm() -> Self {
        Self {
            delay_min_ms: 1,
            delay_max_ms: 5,
            slow_permille: 0,
            slow_max_ms: 0,
            lose_request_permille: 0,
            lose_answer_permille: 0,
            cut_watch_permille: 0,
            conflict_permille: 0,
            refuse_permille: 0,
        }
    }

    /// A bad day.
    pub fn stormy() -> Self {
        Self {
            delay_min_ms: 1,
            delay_max_ms: 80,
            slow_permille: 20,
            slow_max_ms: 12_000,
            lose_request_permille: 8,
            lose_answer_permille: 8,
            cut_watch_permille: 6,
            conflict_permille: 10,
            refuse_permille: 10,
        }
    }
}

/// What becomes of one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// Arrives after the first delay, is answered after the second.
    Answered(Duration, Duration),
    /// Arrives after the delay; the answer is lost.
    AnswerLost(Duration),
    /// Never arrives.
    Lost,
    /// Arrives after the delay; the server refuses it with this status.
    Refused(Duration, u16),
}

/// One link: its behaviour and its own dice.
#[derive(Clone, Debug)]
pub struct Link {
    /// How it behaves now.
    pub profile: LinkProfile,
    dice: fastrand::Rng,
}

impl Link {
    /// A link with dice of its own.
    pub fn new(profile: LinkProfile, seed: u64) -> Self {
        Self { profile, dice: fastrand::Rng::with_seed(seed) }
    }

    /// Throws with a chance in 1/1000.
    pub fn chance(&mut self, permille: u32) -> bool {
        permille > 0 && self.dice.u32(0..1000) < permille
    }

    /// One way.
    pub fn delay(&mut self) -> Duration {
        let p = &self.profile;
        let (low, high, slow, slow_max) = (p.delay_min_ms, p.delay_max_ms, p.slow_permille, p.slow_max_ms);
        if self.chance(slow) {
            return Duration::from_millis(self.dice.u64(high..=slow_max.max(high)));
        }
        Duration::from_millis(self.dice.u64(low..=high.max(low)))
    }

    /// What becomes of the next request.
    pub fn fate(&mut self) -> Fate {
        let there = self.delay();
        if self.chance(self.profile.lose_request_permille) {
            return Fate::Lost;
        }
        if self.chance(self.profile.refuse_permille) {
            let status = [429, 500, 503][self.dice.usize(0..3)];
            return Fate::Refused(there, status);
        }
        if self.chance(self.profile.lose_answer_permille) {
            return Fate::AnswerLost(there);
        }
        Fate::Answered(there, self.delay())
    }

    /// Whether the stream is cut at this line.
    pub fn cuts(&mut self) -> bool {
        self.chance(self.profile.cut_watch_permille)
    }

    /// Whether another writer gets in first.
    pub fn conflicts(&mut self) -> bool {
        self.chance(self.profile.conflict_permille)
    }
}
