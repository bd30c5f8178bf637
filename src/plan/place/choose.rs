//! Which of the members that fit is taken, and whose turn it is within a queue.
//! Knows order and preference. Must not know how a verdict is found, or what is written.

use std::cmp::Reverse;

use super::members::{Members, Subject, View, handshake};
use super::priority;
use super::verdict::Finding;
use crate::api::fleet::{MemberVerdict, Placement, Stage};
use crate::api::{Id, Kind, RootId, Time};
use crate::plan::decision;
use crate::plan::gang::Gang;
use crate::plan::root::{Root, policy, root_id_of};
use crate::row::{Row, Tables};

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
    /// Its place in the queue, 1 = next.
    pub(super) position: u32,
    /// It fits, and waits only for its turn.
    pub(super) turn: bool,
    /// How many wait in its queue, it included.
    pub(super) waiting: u32,
}

/// Judges all members for the root object of this `Placement` (as it is to be written), and takes one if it is its turn.
pub(super) fn choose(view: View, row: &Row, placement: &Placement, gang: &Gang) -> Choice {
    let spec = &placement.spec;
    let subject = Subject { root_id: &spec.root.root_id, queue: &spec.queue, gang, so_far: Some((spec, row.version)) };
    let members = Members::read(view, &spec.root.root_id);
    let mut findings: Vec<(String, Finding)> =
        members.names().map(|m| (m.to_string(), members.judge(m, &subject))).collect();
    let (earlier, later) = others(view.hub, row, placement);
    let count = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
    let position = count(earlier.len()).saturating_add(1);
    let waiting = position.saturating_add(count(later));
    let preference = policy(view.hub, &row.id.namespace).preference;
    let verdicts = findings.iter().map(|(member, finding)| finding.clone().of(member)).collect();
    let mut choice = Choice { verdicts, member: None, message: String::new(), position, turn: false, waiting };
    let mut reason = None;
    // One after the other: a member whose turn it is not is left out, and the next best is asked.
    while let Some(index) = best(&findings, &preference, &spec.root.root_id) {
        let member = findings[index].0.clone();
        if let Some((other, busy)) = handshake(view.hub, &member, &spec.queue, &spec.root.root_id) {
            choice.turn = true;
            reason.get_or_insert(format!("its turn: {} is being admitted on {member}", title(&busy.spec.root)));
            let young = view.now.since(decision::stage_since(other, busy)).as_millis() < PATIENCE_MS;
            if young && preference.contains(&member) {
                break;
            }
        } else if !members.is_settled(&member, &subject) {
            choice.turn = true;
            reason.get_or_insert(format!("{member} to say that it holds nothing of it any more"));
        } else if let Some(ahead) = ahead_on(view, &members, &earlier, &member) {
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

/// An object of the queue that comes earlier and could go.
struct Earlier<'a> {
    row: &'a Row,
    placement: &'a Placement,
}

/// Order within a queue: priority, then age, then name.
type Rank = (Reverse<i32>, Time, Id);

fn rank(hub: &Tables, root: &Row, placement: &Placement) -> Rank {
    let class = placement.status.gang.as_ref().map_or("", |g| &g.priority_class);
    (Reverse(priority(hub, class)), root.created, root.id.clone())
}

/// Those that come earlier, in order, and how many come later.
fn others<'a>(hub: &'a Tables, row: &Row, placement: &Placement) -> (Vec<Earlier<'a>>, usize) {
    let Some(own) = root_id_of(row).and_then(|id| hub.get(&id)) else { return (Vec::new(), 0) };
    let own = rank(hub, own, placement);
    let mut later = 0;
    let mut found: Vec<(Rank, Earlier<'a>)> = hub
        .rows(Kind::Placement)
        .filter(|other| other.id != row.id && other.deleting.is_none())
        .filter_map(|other| Some((other, decision::of(other)?)))
        .filter(|(_, p)| {
            p.spec.stage == Stage::Waiting && p.spec.queue == placement.spec.queue && p.status.gang.is_some()
        })
        .filter_map(|(other, p)| {
            let root = hub.get(&root_id_of(other)?)?;
            let there = root.deleting.is_none() && *root.uid.0 == *p.spec.root.uid;
            let order = rank(hub, root, p);
            let earlier = there && order < own;
            later += usize::from(there && !earlier);
            earlier.then_some((order, Earlier { row: other, placement: p }))
        })
        .collect();
    found.sort_by(|a, b| a.0.cmp(&b.0));
    (found.into_iter().map(|(_, e)| e).collect(), later)
}

/// The first of the earlier ones that fits this member: it goes before us.
fn ahead_on(view: View, members: &Members, earlier: &[Earlier], member: &str) -> Option<String> {
    earlier.iter().find_map(|e| {
        let spec = &e.placement.spec;
        let gang = Gang::parse(e.placement.status.gang.as_ref()?).ok()?;
        let subject = Subject {
            root_id: &spec.root.root_id,
            queue: &spec.queue,
            gang: &gang,
            so_far: Some((spec, e.row.version)),
        };
        if !members.judge(member, &subject).fits() {
            return None;
        }
        let root = Root::read(view.hub.get(&root_id_of(e.row)?)?)?;
        let goes = !root.suspended() && !matches!(root.state(), "Complete" | "Failed" | "ValidationFailed");
        goes.then(|| title(&spec.root))
    })
}
