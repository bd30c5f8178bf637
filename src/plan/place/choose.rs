//! Which of the members that fit is taken, and whose turn it is within a queue.
//! Knows order and preference. Must not know how a verdict is found, or what is written.

use std::cmp::Reverse;

use super::board::{Board, rank};
use super::members::{Members, Subject, View};
use super::verdict::Finding;
use crate::api::fleet::{MemberVerdict, Placement};
use crate::api::{Id, RootId};
use crate::plan::decision;
use crate::plan::gang::Gang;
use crate::plan::root::{Root, policy, root_id_of};
use crate::row::Row;

/// How long a handshake on a preferred member is waited for before another member is taken.
const PATIENCE_MS: u128 = 5_000;

/// What one look at a waiting object comes to.
pub(super) struct Choice {
    /// Verdict for every member.
    pub(super) verdicts: Vec<MemberVerdict>,
    /// Where it goes now.
    pub(super) member: Option<String>,
    /// What it waits for, or why it goes there.
    pub(super) message: String,
    /// Its place in the queue, 1 = next; `None` where it needs none.
    pub(super) position: Option<u32>,
    /// It fits, and waits only for its turn.
    pub(super) turn: bool,
    /// How many wait in its queue, it included.
    pub(super) waiting: u32,
}

/// Judges all members for the root object of this `Placement` (as it is to be written), and takes one if it is its turn.
pub(super) fn choose(view: View, board: &Board, row: &Row, placement: &Placement, gang: &Gang) -> Choice {
    let spec = &placement.spec;
    let subject = Subject::of(placement, row, gang);
    let members = Members::of(view, board);
    let mut findings: Vec<(String, Finding)> =
        members.names().map(|m| (m.to_string(), members.judge(m, &subject))).collect();
    let root = root_id_of(row).and_then(|id| view.hub.get(&id));
    let place = root.map(|root| board.others(&spec.queue, &row.id, &rank(view.hub, root, placement)));
    let (earlier, later) = place.map_or((None, 0), |(earlier, later)| (Some(earlier), later));
    let earlier = earlier.into_iter().flatten();
    let count = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
    let position = count(earlier.clone().count()).saturating_add(1);
    let waiting = position.saturating_add(count(later));
    let preference = policy(view.hub, &row.id.namespace).preference;
    let verdicts = findings.iter().map(|(member, finding)| finding.clone().of(member)).collect();
    let mut choice =
        Choice { verdicts, member: None, message: String::new(), position: Some(position), turn: false, waiting };
    let mut reason = None;
    // One after the other: a member whose turn it is not is left out, and the next best is asked.
    while let Some(index) = best(&findings, &preference, &spec.root.root_id) {
        let member = findings[index].0.clone();
        if let Some((other, busy)) = board.handshake(view.hub, &member, &spec.queue, &spec.root.root_id) {
            choice.turn = true;
            reason.get_or_insert(format!("its turn: {} is being admitted on {member}", title(&busy.spec.root)));
            let young = view.now.since(decision::stage_since(other, busy)).as_millis() < PATIENCE_MS;
            if young && preference.contains(&member) {
                break;
            }
        } else if !members.is_settled(&member, &subject) {
            choice.turn = true;
            reason.get_or_insert(format!("{member} to say that it holds nothing of it any more"));
        } else if let Some(ahead) = ahead_on(view, &members, earlier.clone(), &member) {
            choice.turn = true;
            reason.get_or_insert(format!("its turn: {ahead} comes before it and fits {member} too"));
        } else {
            choice.message = format!("goes to {member}: {}", why_there(&findings[index].1));
            choice.member = Some(member);
            return choice;
        }
        findings.remove(index);
    }
    choice.message = match reason {
        Some(reason) => format!("waits for {reason}"),
        None => sentence(&findings, None),
    };
    choice
}

/// The best of those that fit: the operator's order, then most room left, then a stable hash.
pub(super) fn best(findings: &[(String, Finding)], preference: &[String], root_id: &str) -> Option<usize> {
    (0..findings.len()).filter(|i| findings[*i].1.fits()).min_by_key(|i| {
        let (member, finding) = &findings[*i];
        let rank = preference.iter().position(|p| p == member).unwrap_or(usize::MAX);
        let tie = RootId::from(format!("{root_id}/{member}")).bucket();
        (rank, Reverse(finding.room_permille / 50), tie, member.clone())
    })
}

fn why_there(finding: &Finding) -> String {
    if finding.need.is_empty() {
        return finding.bound.clone();
    }
    format!("needs {}, has {} ({})", finding.need, finding.have, finding.bound)
}

/// What it waits for, in a sentence; or where it would go.
pub(super) fn sentence(findings: &[(String, Finding)], choice: Option<&str>) -> String {
    if let Some(member) = choice {
        let finding = findings.iter().find(|(m, _)| m == member).map(|(_, f)| why_there(f)).unwrap_or_default();
        return format!("goes to {member}: {finding}");
    }
    if findings.is_empty() {
        return "no member is registered".to_owned();
    }
    let one = |(member, finding): &(String, Finding)| match (&*finding.need, &*finding.bound) {
        ("", bound) => format!("{member} {} ({bound})", finding.verdict),
        (need, bound) => format!("{member} {} (needs {need}, has {}: {bound})", finding.verdict, finding.have),
    };
    let mut words: Vec<String> = findings.iter().take(5).map(one).collect();
    if findings.len() > 5 {
        words.push(format!("and {} more", findings.len() - 5));
    }
    format!("waits for capacity: {}", words.join("; "))
}

fn title(root: &crate::api::fleet::RootRef) -> String {
    format!("{}/{}", root.kind.to_lowercase(), root.name)
}

/// The first of the earlier ones that fits this member: it goes before us.
fn ahead_on<'a>(
    view: View,
    members: &Members,
    mut earlier: impl Iterator<Item = &'a Id>,
    member: &str,
) -> Option<String> {
    earlier.find_map(|id| {
        let row = view.hub.get(id)?;
        let placement = decision::of(row)?;
        let spec = &placement.spec;
        let gang = Gang::parse(placement.status.gang.as_ref()?).ok()?;
        let subject = Subject::of(placement, row, &gang);
        if !members.judge(member, &subject).fits() {
            return None;
        }
        let root = Root::read(view.hub.get(&root_id_of(row)?)?)?;
        let complete = placement.status.missing.is_empty();
        let goes = complete && !root.suspended() && !matches!(root.state(), "Complete" | "Failed" | "ValidationFailed");
        goes.then(|| title(&spec.root))
    })
}
