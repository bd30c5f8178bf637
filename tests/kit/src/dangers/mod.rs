//! Replicas that break one rule of the protocol each (`sharding.md` 2.11): a story that is told well must notice.
//! The product keeps all rules: what is broken is what a replica of the kit sends, is told, or looks with.
//!
//! * [`mutant`]: the rules, broken.
//! * `stories`, `late_writes`, `takeovers`: one directed story per rule.

mod late_writes;
pub mod mutant;
mod stories;
mod takeovers;

pub use self::stories::Setting;

/// A rule of the protocol that a replica does not keep.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Danger {
    /// Writes to the hub carry no resourceVersion (E1).
    NoVersionOnHub,
    /// Writes to members carry none (E1).
    NoVersionOnMembers,
    /// A higher epoch of one's own unit is passed over (E3).
    NoStopOnHigherEpoch,
    /// A higher epoch of any unit stops (1.8).
    EpochsAcrossUnits,
    /// Keys are planned and written whether or not their unit is ours at that time (κ).
    NoOwnerCheck,
    /// Members are written to without one's own claim, and a unit that was gained is planned without new lists (1.10, 2.6).
    NoClaimNoBarrier,
    /// An empty slot is left without a tombstone (E6).
    EmptySlotWithoutTombstone,
    /// The next placement is stored before the slot is a tombstone (E6).
    NextBeforeTombstone,
    /// A tombstone is released at once (E7).
    TombstoneReleasedEarly,
    /// A status with a decision is written before the stamp of its epoch (1.8).
    StatusBeforeStamp,
    /// A mirror is judged a stray by what the tables show (1.14).
    StrayOnOldView,
    /// The seat is trusted for H from the answer to its renewal, not from its sending (2.3).
    DeadlineFromAnswer,
    /// A unit is released while requests in its name are under way (2.6).
    ReleaseBeforeQuiesce,
    /// A member is written to while the write that gives the reservation straight back may still land (1.11).
    SentBesideGivenBack,
}

/// All of them.
pub const DANGERS: [Danger; 14] = [
    Danger::NoVersionOnHub,
    Danger::NoVersionOnMembers,
    Danger::NoStopOnHigherEpoch,
    Danger::EpochsAcrossUnits,
    Danger::NoOwnerCheck,
    Danger::NoClaimNoBarrier,
    Danger::EmptySlotWithoutTombstone,
    Danger::NextBeforeTombstone,
    Danger::TombstoneReleasedEarly,
    Danger::StatusBeforeStamp,
    Danger::StrayOnOldView,
    Danger::DeadlineFromAnswer,
    Danger::ReleaseBeforeQuiesce,
    Danger::SentBesideGivenBack,
];

/// Seeds that a story is played with until its mutant is caught.
const SEEDS: u64 = 20;

impl Danger {
    /// Its name on the command line and in the output.
    pub fn name(self) -> &'static str {
        match self {
            Danger::NoVersionOnHub => "no-version-on-hub",
            Danger::NoVersionOnMembers => "no-version-on-members",
            Danger::NoStopOnHigherEpoch => "no-stop-on-higher-epoch",
            Danger::EpochsAcrossUnits => "epochs-across-units",
            Danger::NoOwnerCheck => "no-owner-check",
            Danger::NoClaimNoBarrier => "no-claim-no-barrier",
            Danger::EmptySlotWithoutTombstone => "empty-slot-without-tombstone",
            Danger::NextBeforeTombstone => "next-before-tombstone",
            Danger::TombstoneReleasedEarly => "tombstone-released-early",
            Danger::StatusBeforeStamp => "status-before-stamp",
            Danger::StrayOnOldView => "stray-on-old-view",
            Danger::DeadlineFromAnswer => "deadline-from-answer",
            Danger::ReleaseBeforeQuiesce => "release-before-quiesce",
            Danger::SentBesideGivenBack => "sent-beside-given-back",
        }
    }

    /// Plays its story: what was wrong in the end; an error: it never came to its point, and proves nothing.
    fn play(self, setting: &Setting) -> Result<Vec<String>, String> {
        match self {
            Danger::NoVersionOnHub => late_writes::binding(setting),
            Danger::NoVersionOnMembers => late_writes::finalizer(setting),
            Danger::NoStopOnHigherEpoch => takeovers::records_deleted_by_hand(setting),
            Danger::EpochsAcrossUnits => takeovers::one_unit_changed_hands_more_often(setting),
            Danger::NoOwnerCheck => late_writes::without_the_hub(setting),
            Danger::NoClaimNoBarrier | Danger::EmptySlotWithoutTombstone | Danger::TombstoneReleasedEarly => {
                late_writes::mirror(setting)
            }
            Danger::NextBeforeTombstone => stories::suspended_on_a_silent_member(setting),
            Danger::StatusBeforeStamp => takeovers::decision_in_a_forgotten_epoch(setting),
            Danger::StrayOnOldView => takeovers::old_list_of_placements(setting),
            Danger::DeadlineFromAnswer => takeovers::frozen_renewal(setting),
            Danger::ReleaseBeforeQuiesce => takeovers::left_with_a_write_under_way(setting),
            Danger::SentBesideGivenBack => late_writes::given_back(setting),
        }
    }
}

/// What came of one mutant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// The rule that was broken.
    pub danger: Danger,
    /// The story noticed, and finds nothing where the rule is kept.
    pub caught: bool,
    /// What was seen first, or why it counts for nothing.
    pub seen: String,
    /// Seed at which it was caught, or the last one.
    pub seed: u64,
    /// Stories that were played, those with the rule kept included.
    pub runs: u32,
}

/// Plays a mutant's story until it is caught, then the very same one with the rule kept. `trace`: writes whose target
/// contains this are printed.
pub fn judge(danger: Danger, trace: Option<&str>) -> Verdict {
    let setting = |seed, dangers: &[Danger]| Setting {
        seed,
        dangers: dangers.iter().copied().collect(),
        trace: trace.map(str::to_owned),
    };
    let mut verdict = Verdict { danger, caught: false, seen: String::new(), seed: 0, runs: 0 };
    for seed in 1..=SEEDS {
        verdict.seed = seed;
        verdict.runs += 1;
        match danger.play(&setting(seed, &[danger])) {
            Err(why) => verdict.seen = format!("the story never came to its point: {why}"),
            Ok(wrong) if wrong.is_empty() => "nothing".clone_into(&mut verdict.seen),
            Ok(wrong) => {
                verdict.runs += 1;
                verdict.seen = match danger.play(&setting(seed, &[])) {
                    Ok(kept) if kept.is_empty() => {
                        verdict.caught = true;
                        wrong.into_iter().next().unwrap_or_default()
                    }
                    Ok(kept) => format!("the rule is kept, and still: {}", kept.join("; ")),
                    Err(why) => format!("the rule is kept, and the story never came to its point: {why}"),
                };
                return verdict;
            }
        }
    }
    verdict
}

#[cfg(test)]
mod tests;
