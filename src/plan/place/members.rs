//! Verdicts for all members from what stands on the hub: pictures, gangs in flight, back-offs.
//! Knows `MemberCluster`, `MemberCapacity` and `Placement`. Must not know what is done about a verdict.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use super::board::Board;
use super::picture::{Picture, Received};
use super::verdict::{Finding, judge};
use crate::api::fleet::{MemberCapacity, MemberCluster, Placement, PlacementSpec, Stage};
use crate::api::{Kind, Time, Version, member_unit};
use crate::plan::gang::Gang;
use crate::plan::registration::{cordoned, is_held};
use crate::plan::{Flags, decision};
use crate::row::{Facts, Row, Tables};

/// What verdicts are made from.
#[derive(Clone, Copy)]
pub struct View<'a> {
    /// Tables of the hub.
    pub hub: &'a Tables,
    /// The present version of each `MemberCapacity`.
    pub received: &'a BTreeMap<Arc<str>, Received>,
    /// Epochs of units; `None` in a dry run, which binds nothing.
    pub epochs: Option<&'a BTreeMap<Arc<str>, u64>>,
    /// Settings.
    pub flags: &'a Flags,
    /// The time.
    pub now: Time,
}

/// What is placed.
pub struct Subject<'a> {
    /// Root id; empty in a dry run.
    pub root_id: &'a str,
    /// Queue.
    pub queue: &'a str,
    /// Gang.
    pub gang: &'a Gang,
    /// The decision so far and its version; `None` in a dry run.
    pub so_far: Option<(&'a PlacementSpec, Version)>,
}

impl<'a> Subject<'a> {
    /// The root object of the `Placement` in this row, as it is to be written.
    pub(super) fn of(placement: &'a Placement, row: &Row, gang: &'a Gang) -> Self {
        let spec = &placement.spec;
        Self { root_id: &spec.root.root_id, queue: &spec.queue, gang, so_far: Some((spec, row.version)) }
    }
}

/// What stands for and against a member, whoever asks. Whether it is fresh depends on the time.
#[derive(Clone, Debug)]
pub(super) struct Standing {
    /// What keeps everything away before it matters how fresh its picture is.
    first: Option<Finding>,
    /// When its picture came.
    received: Option<Time>,
    /// The picture with gangs in flight counted, or what keeps everything away.
    picture: Result<Arc<Picture>, Finding>,
}

/// Pictures of all members with gangs in flight counted, or why there is none.
pub struct Members<'a> {
    view: View<'a>,
    standings: Cow<'a, BTreeMap<Arc<str>, Standing>>,
}

impl<'a> Members<'a> {
    /// Reads all members. Gangs of `except` (a root id) are not counted.
    pub fn read(view: View<'a>, except: &str) -> Self {
        Self { view, standings: Cow::Owned(standings(view.hub, view.received, except)) }
    }

    /// As a board has them.
    pub(super) fn of(view: View<'a>, board: &'a Board) -> Self {
        Self { view, standings: Cow::Borrowed(&board.standings) }
    }

    /// Names of all members.
    pub fn names(&self) -> impl Iterator<Item = &Arc<str>> {
        self.standings.keys()
    }

    /// The verdict for one member.
    pub fn judge(&self, member: &str, subject: &Subject) -> Finding {
        match self.picture(member) {
            Err(finding) => finding,
            Ok(picture) => {
                let finding = judge(picture, subject.queue, subject.gang);
                if finding.fits() { self.held_back(member, subject).unwrap_or(finding) } else { finding }
            }
        }
    }

    /// What keeps a root object from a member whatever room there is.
    pub(super) fn keeps_away(&self, member: &str, subject: &Subject) -> Option<Finding> {
        self.picture(member).err().or_else(|| self.held_back(member, subject))
    }

    /// The member's picture, or what keeps everything away from it.
    #[expect(clippy::result_large_err, reason = "a finding is the answer as often; it is moved once per member")]
    fn picture(&self, member: &str) -> Result<&Picture, Finding> {
        let Some(standing) = self.standings.get(member) else {
            return Err(Finding::no("NotRegistered", format!("there is no MemberCluster {member}")));
        };
        if let Some(finding) = &standing.first {
            return Err(finding.clone());
        }
        let age = standing.received.map(|received| self.view.now.since(received));
        if age.is_none_or(|age| age.as_millis() > u128::from(self.view.flags.capacity_stale_ms)) {
            let words = age.map_or("never received".to_owned(), |age| format!("{} s old", age.as_secs()));
            return Err(Finding::no("StaleView", format!("what is known of it is {words}")));
        }
        standing.picture.as_deref().map_err(Clone::clone)
    }

    /// Whether the member's picture is younger than the end of an earlier generation there: before that it cannot tell
    /// whether the name is free again (E6).
    pub fn is_settled(&self, member: &str, subject: &Subject) -> bool {
        let Some((spec, version)) = subject.so_far else { return true };
        let been_there = spec.generation > 0 && spec.member.as_deref() == Some(member);
        !been_there || capacity_of(self.view.hub, member).is_some_and(|c| c.spec.counts_up_to >= version.0)
    }

    /// What keeps a gang from a member that has room for it.
    fn held_back(&self, member: &str, subject: &Subject) -> Option<Finding> {
        let view = &self.view;
        if let Some(epochs) = view.epochs
            && !epochs.contains_key(&member_unit(member, 0))
        {
            return Some(Finding::no("Unreachable", "no replica has taken over this member yet"));
        }
        if view.epochs.is_some() && !view.hub.table(Kind::MemberCluster).get("", member).is_some_and(is_held) {
            return Some(Finding::no("NotReady", "its MemberCluster is not taken over yet"));
        }
        let capacity = capacity_of(view.hub, member)?;
        let tombstone = capacity.spec.tombstones.iter().any(|id| id == subject.root_id);
        let (spec, _) = subject.so_far?;
        if tombstone {
            return Some(Finding::no("NameTaken", "the name is still held there by its withdrawn copy"));
        }
        let until = decision::backs_off(spec.back_offs.get(member)?, view.now)?;
        Some(Finding::no(
            "BackoffUntil",
            format!("withdrawn from there before; not again before {}", until.seconds_text()),
        ))
    }
}

/// The stored picture of a member.
pub(super) fn capacity_of<'a>(hub: &'a Tables, member: &str) -> Option<&'a MemberCapacity> {
    match &hub.table(Kind::MemberCapacity).get("", member)?.facts {
        Facts::MemberCapacity(capacity) => Some(capacity),
        _ => None,
    }
}

/// What stands for and against each member. Gangs of `except` (a root id) are not counted.
pub(super) fn standings(
    hub: &Tables,
    received: &BTreeMap<Arc<str>, Received>,
    except: &str,
) -> BTreeMap<Arc<str>, Standing> {
    let each = hub.rows(Kind::MemberCluster);
    each.map(|row| (row.id.name.clone(), standing(hub, received.get(&row.id.name), row, except))).collect()
}

fn standing(hub: &Tables, received: Option<&Received>, cluster: &Row, except: &str) -> Standing {
    let known = known(hub, cluster);
    let picture = match &known {
        Err(finding) => Err(finding.clone()),
        Ok((registered, capacity)) => picture(hub, received, cluster, registered, capacity, except),
    };
    Standing { first: known.err(), received: received.map(|received| received.at), picture }
}

/// What is registered and known of a member, or why that does not matter yet.
#[expect(clippy::result_large_err, reason = "a finding is the answer as often; it is moved once per member")]
fn known<'a>(hub: &'a Tables, cluster: &'a Row) -> Result<(&'a MemberCluster, &'a MemberCapacity), Finding> {
    let member = &*cluster.id.name;
    let Facts::MemberCluster(registered) = &cluster.facts else {
        return Err(Finding::no("NotReady", "its MemberCluster cannot be read"));
    };
    let condition = |kind: &str| registered.status.conditions.iter().find(|c| c.r#type == kind && c.status == "False");
    if let Some(c) = condition("CredentialsValid").or_else(|| condition("Reachable")) {
        return Err(Finding::no("Unreachable", c.message.clone()));
    }
    let Some(capacity) = capacity_of(hub, member) else {
        if let Some(c) = condition("Ready") {
            return Err(Finding::no("NotReady", c.message.clone()));
        }
        return Err(Finding::no("StaleView", "nothing is known of it yet"));
    };
    if !capacity.spec.reachable {
        return Err(Finding::no("Unreachable", capacity.spec.unreachable_reason.clone()));
    }
    Ok((registered, capacity))
}

#[expect(clippy::result_large_err, reason = "a finding is the answer as often; it is moved once per member")]
fn picture(
    hub: &Tables,
    received: Option<&Received>,
    cluster: &Row,
    registered: &MemberCluster,
    capacity: &MemberCapacity,
    except: &str,
) -> Result<Arc<Picture>, Finding> {
    let member = &*cluster.id.name;
    if cluster.deleting.is_some() {
        return Err(Finding::no("Cordoned", "it is being removed from the fleet"));
    }
    if registered.spec.unschedulable {
        return Err(Finding::no("Cordoned", cordoned(member)));
    }
    if !matches!(&*registered.spec.mode, "" | "Full") {
        return Err(Finding::no("PolicyExcluded", format!("mode {} is not built yet", registered.spec.mode)));
    }
    let read =
        received.map_or_else(|| Picture::parse(&capacity.spec).map(Arc::new), |received| received.picture.clone());
    let mut picture = read.map_err(|why| Finding::no("NotReady", format!("its picture cannot be read: {why}")))?;
    for (placement, gang) in in_flight(hub, member, capacity.spec.counts_up_to, except) {
        Arc::make_mut(&mut picture).assume(&placement.spec.queue, &gang);
    }
    Ok(picture)
}

/// Gangs that are bound to a member and that its picture does not count yet (`placement.md` section 1).
fn in_flight<'a>(hub: &'a Tables, member: &str, counts_up_to: u64, except: &str) -> Vec<(&'a Placement, Gang)> {
    hub.rows(Kind::Placement)
        .filter(|row| row.version.0 > counts_up_to)
        .filter_map(decision::of)
        .filter(|p| p.spec.member.as_deref() == Some(member) && p.spec.root.root_id != except)
        .filter(|p| matches!(p.spec.stage, Stage::Reserving | Stage::Admitted | Stage::Running))
        .filter(|p| decision::brings_gang(p))
        .filter_map(|p| Some((p, Gang::parse(p.status.gang.as_ref()?).ok()?)))
        .collect()
}

/// Whether any member other than `not` has the verdict `Fits` now.
pub fn fits_elsewhere(view: View, subject: &Subject, not: &str) -> bool {
    let members = Members::read(view, subject.root_id);
    members.names().filter(|name| &***name != not).any(|name| members.judge(name, subject).fits())
}
