//! What all that wait have in common: the members' pictures with the gangs in flight, the order within each queue, the
//! handshakes under way. Made once for a state of the hub, so that a look at one of many does not go through all of them.
//! Must not know what is decided for one of them.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;

use super::members::{Standing, standings};
use super::picture::Received;
use super::priority;
use crate::api::fleet::{Placement, Stage};
use crate::api::{Id, Kind, Time};
use crate::plan::decision;
use crate::plan::root::root_id_of;
use crate::row::{Row, Tables};

/// Kinds of the hub that a board is made of.
const KINDS: [Kind; 6] =
    [Kind::MemberCluster, Kind::MemberCapacity, Kind::Placement, Kind::RayJob, Kind::RayCluster, Kind::PriorityClass];

/// Order within a queue: priority, then age, then name.
pub(super) type Rank = (Reverse<i32>, Time, Id);

/// The board of one state of the hub.
#[derive(Debug)]
pub struct Board {
    state: [u64; KINDS.len()],
    pub(super) standings: BTreeMap<Arc<str>, Standing>,
    /// What waits in each queue and could go, in order: rank and `Placement`.
    queues: BTreeMap<String, Vec<(Rank, Id)>>,
    /// `Placement`s in stage `Reserving` by member and queue.
    handshakes: BTreeMap<(String, String), Vec<Id>>,
}

fn state(hub: &Tables) -> [u64; KINDS.len()] {
    KINDS.map(|kind| hub.table(kind).changes)
}

impl Board {
    /// Reads the hub. `received` are the present versions of all `MemberCapacity`.
    pub fn read(hub: &Tables, received: &BTreeMap<Arc<str>, Received>) -> Self {
        let mut board = Self {
            state: state(hub),
            standings: standings(hub, received, ""),
            queues: BTreeMap::new(),
            handshakes: BTreeMap::new(),
        };
        for row in hub.rows(Kind::Placement) {
            let Some(placement) = decision::of(row) else { continue };
            let (spec, queue) = (&placement.spec, placement.spec.queue.clone());
            if !decision::brings_gang(placement) {
                // It waits for no room, and nobody waits for it.
                continue;
            }
            match (spec.stage, spec.member.clone()) {
                (Stage::Reserving, Some(member)) => {
                    board.handshakes.entry((member, queue)).or_default().push(row.id.clone());
                }
                (Stage::Waiting, _) if row.deleting.is_none() && placement.status.gang.is_some() => {
                    let root = root_id_of(row).and_then(|id| hub.get(&id));
                    let there = root.filter(|root| root.deleting.is_none() && *root.uid.0 == *spec.root.uid);
                    if let Some(root) = there {
                        board.queues.entry(queue).or_default().push((rank(hub, root, placement), row.id.clone()));
                    }
                }
                _ => {}
            }
        }
        board.queues.values_mut().for_each(|waiting| waiting.sort());
        board
    }

    /// Whether this is the hub that it was read from, unchanged.
    pub fn holds_for(&self, hub: &Tables) -> bool {
        self.state == state(hub)
    }

    /// What waits in a queue besides the `Placement` `own`, of this rank: those that come earlier, and how many come later.
    pub(super) fn others<'a>(
        &'a self,
        queue: &str,
        own: &'a Id,
        rank: &Rank,
    ) -> (impl Iterator<Item = &'a Id> + Clone + use<'a>, usize) {
        let waiting = self.queues.get(queue).map_or(&[][..], Vec::as_slice);
        let (earlier, later) = waiting.split_at(waiting.partition_point(|(other, _)| other < rank));
        let not_own = move |id: &&Id| *id != own;
        (earlier.iter().map(|(_, id)| id).filter(not_own), later.iter().filter(|(_, id)| id != own).count())
    }

    /// The root object of this queue whose handshake on the member is under way: one at a time.
    pub(super) fn handshake<'a>(
        &self,
        hub: &'a Tables,
        member: &str,
        queue: &str,
        except: &str,
    ) -> Option<(&'a Row, &'a Placement)> {
        let there = self.handshakes.get(&(member.to_owned(), queue.to_owned()))?;
        let mut rows = there.iter().filter_map(|id| hub.get(id)).filter_map(|row| Some((row, decision::of(row)?)));
        rows.find(|(_, placement)| placement.spec.root.root_id != except)
    }
}

/// Where a root object stands within its queue.
pub(super) fn rank(hub: &Tables, root: &Row, placement: &Placement) -> Rank {
    let class = placement.status.gang.as_ref().map_or("", |g| &g.priority_class);
    (Reverse(priority(hub, class)), root.created, root.id.clone())
}
