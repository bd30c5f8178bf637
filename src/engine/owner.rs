//! Which unit a key belongs to (κ) and which plan looks at it: a function of stored objects only (`sharding.md` 1.1,
//! `docs/WALK.md` section 1).
//! Must not know which units are ours.

use std::sync::Arc;

use super::tables::{World, annotated_root, decision, root_of};
use crate::api::fleet::{Placement, Stage};
use crate::api::{Cluster, Id, Key, Kind, MemberName, RootId, Uid, member_unit, names};
use crate::plan::registration::missing;
use crate::plan::{Flags, Why};
use crate::row::{Facts, Row, Tables};

/// Which plan looks at a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Which {
    /// A root object on the hub that is not bound.
    Place,
    /// One in stage `Reserving`.
    Reserve,
    /// One in stage `Withdrawing`.
    Withdraw,
    /// One in a stage in which it runs or has run.
    Bound,
    /// A RayJob on a member.
    RayJob,
    /// A RayCluster on a member.
    RayCluster,
    /// A member as a whole.
    Member,
}

/// A key's owner and what belongs to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Owner {
    pub(super) unit: Arc<str>,
    pub(super) which: Which,
    /// The member whose tables the plan sees.
    pub(super) member: Option<MemberName>,
    /// The root object on the hub that this is about; `None` for members and for objects applied straight to one.
    pub(super) root: Option<Root>,
}

/// The root object behind a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Root {
    /// Its key on the hub.
    pub(super) key: Key,
    /// Its identity.
    pub(super) identity: RootId,
    /// Its `Placement`, if there is one.
    pub(super) placement: Option<Id>,
    /// Generation of the `Placement`; 0 = never bound.
    pub(super) generation: i64,
}

/// The unit of a root object on the hub, and what in the object decides it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnitOf {
    /// `q-1f`, `m-eu-0`
    pub unit: Arc<str>,
    /// In words.
    pub because: String,
}

/// κ of a root object, by what the hub shows (`sharding.md` 1.1). An error says why nobody works on it.
pub fn unit_of(hub: Tables, flags: Flags, root: &Id) -> Result<UnitOf, Why> {
    let mut world = World::new(flags);
    world.hub = hub;
    let owner = of(&world, &Key { cluster: Cluster::Hub, id: root.clone() })?;
    let placed = owner.root.as_ref().is_some_and(|root| root.placement.is_some());
    let because = match (owner.which, &owner.member) {
        (Which::Reserve, Some(member)) => format!("its Placement is in stage Reserving on member {member}"),
        (Which::Withdraw, Some(member)) => format!("its Placement is in stage Withdrawing from member {member}"),
        (_, Some(member)) => {
            let bucket = owner.root.as_ref().map_or(0, |root| root.identity.bucket());
            format!("its Placement is on member {member}, and its root id falls in bucket {bucket} of 256")
        }
        (_, None) => {
            let queue = world.queue_of(root);
            let stage = if placed { "its Placement is in stage Waiting" } else { "it has no Placement yet" };
            format!("{stage}, in queue {queue}")
        }
    };
    Ok(UnitOf { unit: owner.unit, because })
}

/// The owner of a key, or in words why nobody plans it.
pub(super) fn of(world: &World, key: &Key) -> Result<Owner, Why> {
    match (&key.cluster, key.id.kind) {
        (Cluster::Hub, Kind::MemberCluster) => {
            if world.hub.get(&key.id).is_none() {
                return Err(Why::new("this member is not registered"));
            }
            let member = MemberName(key.id.name.clone());
            Ok(Owner { unit: member_unit(&member.0, 0), which: Which::Member, member: Some(member), root: None })
        }
        (Cluster::Hub, Kind::RayJob | Kind::RayCluster | Kind::RayService | Kind::RayCronJob) => of_root(world, key),
        (Cluster::Member(member), Kind::RayJob | Kind::RayCluster) => of_member_object(world, member, key),
        _ => Err(Why::new("objects of this kind are not planned")),
    }
}

fn of_root(world: &World, key: &Key) -> Result<Owner, Why> {
    let row = world.hub.get(&key.id);
    let Some((placement_row, placement)) = world.placement_of(&key.id).and_then(|p| Some((p, decision(p)?))) else {
        // One that does not decode is told so by the owner of its queue.
        let Some(row) = row.or_else(|| world.known_of(&key.id)) else {
            return Err(Why::new("the object is not there"));
        };
        let root = Root { key: key.clone(), identity: RootId(row.uid.0.clone()), placement: None, generation: 0 };
        return Ok(unbound(world, root));
    };
    let spec = &placement.spec;
    let root = Root {
        key: key.clone(),
        identity: spec.root.root_id.as_str().into(),
        placement: Some(placement_row.id.clone()),
        generation: spec.generation,
    };
    let member = match (spec.stage, &spec.member) {
        (Stage::Waiting, _) | (_, None) => return Ok(unbound(world, root)),
        (_, Some(member)) => MemberName::from(member.as_str()),
    };
    let (which, unit) = match spec.stage {
        Stage::Reserving => (Which::Reserve, member_unit(&member.0, 0)),
        Stage::Withdrawing => (Which::Withdraw, member_unit(&member.0, 0)),
        _ => (Which::Bound, bucket_unit(world, &root.identity, &member)?),
    };
    Ok(Owner { unit, which, member: Some(member), root: Some(root) })
}

fn unbound(world: &World, root: Root) -> Owner {
    let unit = shards::queue_unit(&world.queue_of(&root.key.id)).into();
    Owner { unit, which: Which::Place, member: None, root: Some(root) }
}

fn bucket_unit(world: &World, root_id: &RootId, member: &MemberName) -> Result<Arc<str>, Why> {
    let Some(units) = world.unit_count(&member.0) else {
        return Err(Why::new(missing(member.as_str())));
    };
    Ok(root_id.member_unit(&member.0, units))
}

/// What an object on a member belongs to.
enum Line<'a> {
    /// A mirror, or what stands below one.
    Mirror { placement: Option<(&'a Row, &'a Placement)>, root: Key, generation: Option<i64> },
    /// A root object's, but its mirror is not in sight.
    Stray,
    /// Applied straight to the member; UID of the topmost object.
    Direct(Uid),
}

fn line<'a>(world: &'a World, member: &MemberName, row: &'a Row) -> Line<'a> {
    let mut top = row;
    for _ in 0..4 {
        // The Placement's word counts also for a mirror whose annotations were stripped: such a one must never be taken
        // for a user's own object.
        if let Some(placement_row) = world.placement_by_mirror(&top.uid)
            && let Some(placement) = decision(placement_row)
            && let Some(root) = annotated_root(top).or_else(|| root_of(placement_row, &placement.spec))
        {
            let generation = top.annotation(names::GENERATION).parse().unwrap_or(placement.spec.generation);
            return Line::Mirror { placement: Some((placement_row, placement)), root, generation: Some(generation) };
        }
        if let Some(root) = annotated_root(top) {
            let placement = world.placement_of(&root.id).and_then(|p| Some((p, decision(p)?)));
            return Line::Mirror { placement, root, generation: top.annotation(names::GENERATION).parse().ok() };
        }
        let Some(above) = world.controller(member, top) else { break };
        top = above;
    }
    if row.root_id.is_some() || top.root_id.is_some() || top.has_finalizer(names::TOMBSTONE_FINALIZER) {
        Line::Stray
    } else {
        Line::Direct(top.uid.clone())
    }
}

fn of_member_object(world: &World, member: &MemberName, key: &Key) -> Result<Owner, Why> {
    let row = world.members.get(member).and_then(|tables| tables.get(&key.id));
    let Some(row) = row else { return Err(Why::new("the object is not there")) };
    let which = if key.id.kind == Kind::RayJob { Which::RayJob } else { Which::RayCluster };
    match line(world, member, row) {
        Line::Stray => Err(Why::new("it belongs to a root object of the hub, but its mirror is not there")),
        Line::Direct(uid) => {
            refuse_delegated(world, member)?;
            let unit = bucket_unit(world, &RootId(uid.0), member)?;
            Ok(Owner { unit, which, member: Some(member.clone()), root: None })
        }
        Line::Mirror { placement, root, generation } => {
            let Some((placement_row, placement)) = placement else {
                return Err(Why::new(format!("a mirror without a Placement; its root object is {root}")));
            };
            let spec = &placement.spec;
            if spec.member.as_deref() != Some(member.as_str()) || generation != Some(spec.generation) {
                return Err(Why::new(format!(
                    "its root object is placed elsewhere: generation {} on {}",
                    spec.generation,
                    spec.member.as_deref().unwrap_or("no member")
                )));
            }
            if !matches!(spec.stage, Stage::Admitted | Stage::Running | Stage::Finished) {
                return Err(Why::new(format!("its Placement is in stage {:?}", spec.stage)));
            }
            let root_id = RootId::from(spec.root.root_id.as_str());
            let unit = bucket_unit(world, &root_id, member)?;
            let root = Root {
                key: root,
                identity: root_id,
                placement: Some(placement_row.id.clone()),
                generation: spec.generation,
            };
            Ok(Owner { unit, which, member: Some(member.clone()), root: Some(root) })
        }
    }
}

fn refuse_delegated(world: &World, member: &MemberName) -> Result<(), Why> {
    let row = world.hub.get(&Id::new(Kind::MemberCluster, "", member.0.clone()));
    match row.map(|row| &row.facts) {
        Some(Facts::MemberCluster(facts)) if !matches!(&*facts.spec.mode, "" | "Full") => Err(Why::new(format!(
            "member {member} has mode {}: objects applied straight to it are its own operator's",
            facts.spec.mode
        ))),
        _ => Ok(()),
    }
}
