//! Facts about the list of dangers, and the cheap ones of its stories.

use std::collections::BTreeSet;

use super::{DANGERS, Danger, judge};

#[test]
fn there_are_fourteen_dangers_and_each_has_a_name_of_its_own() {
    let names: BTreeSet<&str> = DANGERS.iter().map(|danger| danger.name()).collect();
    assert_eq!((DANGERS.len(), names.len()), (14, 14), "{names:?}");
}

fn is_caught(danger: Danger) {
    let verdict = judge(danger, None);
    assert!(verdict.caught, "{verdict:?}");
}

#[test]
fn a_late_mirror_beside_a_released_tombstone_is_noticed() {
    is_caught(Danger::TombstoneReleasedEarly);
}

#[test]
fn a_deadline_that_counts_from_the_answer_is_noticed() {
    is_caught(Danger::DeadlineFromAnswer);
}

#[test]
fn a_mirror_that_is_made_while_its_reservation_is_given_back_is_noticed() {
    is_caught(Danger::SentBesideGivenBack);
}
