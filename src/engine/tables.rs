//! What is seen of hub and members, joined: which root object, `Placement` and mirror belong together, whose a child is,
//! and which keys a change touches.
//! Must not know units, requests, or what is decided.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::api::fleet::{Placement, PlacementSpec, Stage};
use crate::api::{Cluster, Id, Key, Kind, MemberName, RootId, Time, Uid, names};
use crate::plan::build::SUBMITTER;
use crate::plan::place::Received;
use crate::plan::registration::{Registration, registration};
use crate::plan::{Flags, placement_name, root};
use crate::row::{ContainerFact, Facts, Row, TableChange, Tables, Touched};

/// Owners above an object that are followed: pod → Job → RayJob, pod → RayCluster → RayJob.
const ANCESTORS_MAX: usize = 4;

/// Where a root object on the hub stands.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Class {
    /// Not bound; of this queue.
    Unbound(Arc<str>),
    /// Its reservation on this member is under way.
    Reserving(MemberName),
    /// In a later stage on this member.
    Bound(MemberName),
}

/// The tables of the fleet, with the indexes that decisions about keys need.
#[derive(Debug, Default)]
pub(super) struct World {
    pub(super) hub: Tables,
    pub(super) members: BTreeMap<MemberName, Tables>,
    /// The present version of each `MemberCapacity`.
    pub(super) capacity_received: BTreeMap<Arc<str>, Received>,
    /// RayJobs, RayClusters and Jobs on members.
    by_uid: BTreeMap<(MemberName, Uid), Id>,
    root_keys: BTreeMap<RootId, Key>,
    /// `Placement`s by the UID of their mirror.
    mirrors: BTreeMap<Uid, Id>,
    classes: BTreeMap<Key, Class>,
    unbound: BTreeMap<Arc<str>, BTreeSet<Key>>,
    reserving: BTreeMap<MemberName, BTreeSet<Key>>,
    bound: BTreeMap<MemberName, BTreeSet<Key>>,
    /// Root objects that run on a RayCluster of the hub instead of bringing one, by its id.
    users: BTreeMap<Id, BTreeSet<Key>>,
    flags: Flags,
}

/// The decision in the row of a `Placement`.
pub(super) fn decision(row: &Row) -> Option<&Placement> {
    match &row.facts {
        Facts::Placement(placement) => Some(placement),
        _ => None,
    }
}

/// The key of a member as a whole.
pub(super) fn member_key(member: &MemberName) -> Key {
    Key { cluster: Cluster::Hub, id: Id::new(Kind::MemberCluster, "", member.0.clone()) }
}

/// The kind of a root object or mirror by its name.
fn ray_kind(name: &str) -> Option<Kind> {
    [Kind::RayJob, Kind::RayCluster].into_iter().find(|kind| kind.name() == name)
}

/// The key of the root object that a `Placement` is about.
pub(super) fn root_of(row: &Row, spec: &PlacementSpec) -> Option<Key> {
    let id = Id::new(ray_kind(&spec.root.kind)?, row.id.namespace.clone(), spec.root.name.as_str());
    Some(Key { cluster: Cluster::Hub, id })
}

fn root_key(row: &Row) -> Option<Key> {
    root_of(row, &decision(row)?.spec)
}

/// The RayCluster of the hub that the root object of a `Placement` runs on, where it brings none.
fn cluster_of(row: &Row) -> Option<Id> {
    let name = decision(row)?.status.gang.as_ref()?.cluster()?;
    Some(Id::new(Kind::RayCluster, row.id.namespace.clone(), name))
}

/// The root object that a mirror's annotation names.
pub(super) fn annotated_root(row: &Row) -> Option<Key> {
    let mut parts = row.annotation(names::ROOT).splitn(3, '/');
    let (kind, namespace, name) = (parts.next()?, parts.next()?, parts.next()?);
    Some(Key { cluster: Cluster::Hub, id: Id::new(ray_kind(kind)?, namespace, name) })
}

impl World {
    pub(super) fn new(flags: Flags) -> Self {
        Self { flags, ..Self::default() }
    }

    pub(super) fn tables(&self, cluster: &Cluster) -> Option<&Tables> {
        match cluster {
            Cluster::Hub => Some(&self.hub),
            Cluster::Member(name) => self.members.get(name),
        }
    }

    /// The row of the `Placement` of a root object on the hub.
    pub(super) fn placement_of(&self, root: &Id) -> Option<&Row> {
        let name = placement_name(root.kind.name(), &root.name);
        self.hub.get(&Id::new(Kind::Placement, root.namespace.clone(), name))
    }

    /// The queue that an unbound root object waits in: of its `Placement`, else of its label, else of its policy.
    pub(super) fn queue_of(&self, root: &Id) -> Arc<str> {
        let stored = self.placement_of(root).and_then(decision).map(|p| p.spec.queue.as_str());
        if let Some(queue) = stored.filter(|q| !q.is_empty()) {
            return queue.into();
        }
        match self.hub.get(root).or_else(|| self.known_of(root)) {
            Some(row) => root::queue_of(&self.hub, row, &self.flags).into(),
            None => self.flags.default_queue.clone(),
        }
    }

    /// What is known of a root object on the hub that does not decode.
    pub(super) fn known_of(&self, root: &Id) -> Option<&Row> {
        self.hub.quarantined(root)?.known.as_deref()
    }

    /// Root objects on the hub that do not decode.
    pub(super) fn unreadable_roots(&self) -> impl Iterator<Item = Key> {
        Kind::ROOTS.into_iter().flat_map(|kind| {
            let places = self.hub.table(kind).quarantined.keys();
            places.map(move |(namespace, name)| Key {
                cluster: Cluster::Hub,
                id: Id::new(kind, namespace.clone(), name.clone()),
            })
        })
    }

    /// Number of units of a member that is registered.
    pub(super) fn unit_count(&self, member: &str) -> Option<u32> {
        let row = self.hub.get(&Id::new(Kind::MemberCluster, "", member))?;
        let Facts::MemberCluster(facts) = &row.facts else { return None };
        Some(facts.spec.unit_count())
    }

    /// Whether nobody can be asked on the member any more: it is not registered, or a person says that it is gone for good.
    pub(super) fn is_given_up(&self, member: &MemberName) -> bool {
        registration(&self.hub, member.as_str()) != Registration::Registered
    }

    /// Members that `Placement`s stand on.
    pub(super) fn members_in_use(&self) -> impl Iterator<Item = &MemberName> {
        self.reserving.keys().chain(self.bound.keys())
    }

    pub(super) fn unbound_keys(&self) -> impl Iterator<Item = (&Arc<str>, &Key)> {
        self.unbound.iter().flat_map(|(queue, keys)| keys.iter().map(move |key| (queue, key)))
    }

    /// Root objects that are bound to the member, in whatever stage.
    pub(super) fn keys_on(&self, member: &MemberName) -> impl Iterator<Item = &Key> {
        self.reserving.get(member).into_iter().chain(self.bound.get(member)).flatten()
    }

    /// All that is planned of a member: root objects bound to it, and what stands on it with a plan of its own.
    pub(super) fn keys_of(&self, member: &MemberName) -> impl Iterator<Item = Key> {
        let rows = self.members.get(member).into_iter();
        let rows =
            rows.flat_map(|tables| [Kind::RayJob, Kind::RayCluster].into_iter().flat_map(|kind| tables.rows(kind)));
        let there = rows.map(|row| Key { cluster: Cluster::Member(member.clone()), id: row.id.clone() });
        self.keys_on(member).cloned().chain(there)
    }

    pub(super) fn reserving_on(&self, member: &MemberName) -> impl Iterator<Item = &Key> {
        self.reserving.get(member).into_iter().flatten()
    }

    /// The `Placement` that names this mirror by UID.
    pub(super) fn placement_by_mirror(&self, uid: &Uid) -> Option<&Row> {
        self.mirrors.get(uid).and_then(|id| self.hub.get(id))
    }

    /// The row of the object on the member that controls this one, as far as it is a RayJob, RayCluster or Job.
    pub(super) fn controller(&self, member: &MemberName, row: &Row) -> Option<&Row> {
        let id = self.by_uid.get(&(member.clone(), row.owner.clone()?))?;
        self.members.get(member)?.get(id)
    }

    /// The nearest RayJob or RayCluster above an object of a member.
    fn planned_above(&self, member: &MemberName, row: &Row) -> Option<Key> {
        let mut above = self.controller(member, row)?;
        for _ in 0..ANCESTORS_MAX {
            if matches!(above.id.kind, Kind::RayJob | Kind::RayCluster) {
                return Some(Key { cluster: Cluster::Member(member.clone()), id: above.id.clone() });
            }
            above = self.controller(member, above)?;
        }
        None
    }

    /// Forgets a member's tables.
    pub(super) fn drop_member(&mut self, member: &MemberName) {
        self.members.remove(member);
        self.by_uid.retain(|(name, _), _| name != member);
    }

    /// Takes a change in; returns the rows that it touched, before and after.
    pub(super) fn apply(&mut self, cluster: &Cluster, kind: Kind, change: TableChange, now: Time) -> Vec<Touched> {
        let tables = match cluster {
            Cluster::Hub => &mut self.hub,
            Cluster::Member(name) => self.members.entry(name.clone()).or_default(),
        };
        let touched = tables.apply(kind, change, now);
        for (before, after) in &touched {
            match cluster {
                Cluster::Hub => self.index_hub(before.as_deref(), after.as_deref(), now),
                Cluster::Member(member) => self.index_member(member, before.as_deref(), after.as_deref()),
            }
        }
        touched
    }

    fn index_member(&mut self, member: &MemberName, before: Option<&Row>, after: Option<&Row>) {
        let is_owner = |row: &&Row| matches!(row.id.kind, Kind::RayJob | Kind::RayCluster | Kind::Job);
        if before.zip(after).is_some_and(|(before, after)| before.uid == after.uid) {
            return;
        }
        if let Some(row) = before.filter(is_owner) {
            self.by_uid.remove(&(member.clone(), row.uid.clone()));
        }
        if let Some(row) = after.filter(is_owner) {
            self.by_uid.insert((member.clone(), row.uid.clone()), row.id.clone());
        }
    }

    fn index_hub(&mut self, before: Option<&Row>, after: Option<&Row>, now: Time) {
        let Some(row) = after.or(before) else { return };
        match row.id.kind {
            Kind::MemberCapacity => {
                let name = row.id.name.clone();
                if let Some(Facts::MemberCapacity(capacity)) = after.map(|row| &row.facts) {
                    self.capacity_received.insert(name, Received::read(&capacity.spec, now));
                } else {
                    self.capacity_received.remove(&name);
                }
            }
            Kind::Placement => {
                for (row, present) in [(before, false), (after, true)] {
                    let Some((row, spec)) = row.and_then(|row| Some((row, &decision(row)?.spec))) else { continue };
                    let Some(key) = root_key(row) else { continue };
                    let root_id = RootId::from(spec.root.root_id.as_str());
                    let mirror = spec.mirror_uid.as_deref().map(Uid::from);
                    if let Some(cluster) = cluster_of(row) {
                        if present {
                            self.users.entry(cluster).or_default().insert(key.clone());
                        } else {
                            take(&mut self.users, &cluster, &key);
                        }
                    }
                    if present {
                        self.root_keys.insert(root_id, key);
                        self.mirrors.extend(mirror.map(|uid| (uid, row.id.clone())));
                    } else {
                        self.root_keys.remove(&root_id);
                        mirror.and_then(|uid| self.mirrors.remove(&uid));
                    }
                }
                for key in [before, after].into_iter().flatten().filter_map(root_key) {
                    self.classify(&key);
                }
            }
            Kind::RayJob | Kind::RayCluster | Kind::RayService | Kind::RayCronJob => {
                self.classify(&Key { cluster: Cluster::Hub, id: row.id.clone() });
            }
            Kind::PlacementPolicy => {
                let namespace = row.id.namespace.clone();
                let keys: Vec<Key> =
                    self.unbound_keys().map(|(_, key)| key).filter(|k| k.id.namespace == namespace).cloned().collect();
                for key in keys {
                    self.classify(&key);
                }
            }
            _ => {}
        }
    }

    /// Puts a root object where its rows say that it stands.
    fn classify(&mut self, key: &Key) {
        let placement = self.placement_of(&key.id).and_then(decision);
        let class = match placement.map(|p| (p.spec.stage, p.spec.member.as_deref())) {
            Some((Stage::Reserving, Some(member))) => Some(Class::Reserving(member.into())),
            Some((Stage::Waiting, _) | (_, None)) => Some(Class::Unbound(self.queue_of(&key.id))),
            Some((_, Some(member))) => Some(Class::Bound(member.into())),
            None if self.hub.get(&key.id).is_some() => Some(Class::Unbound(self.queue_of(&key.id))),
            None => None,
        };
        if self.classes.get(key) == class.as_ref() {
            return;
        }
        if let Some(old) = self.classes.remove(key) {
            match &old {
                Class::Unbound(queue) => take(&mut self.unbound, queue, key),
                Class::Reserving(member) => take(&mut self.reserving, member, key),
                Class::Bound(member) => take(&mut self.bound, member, key),
            }
        }
        if let Some(class) = class {
            match &class {
                Class::Unbound(queue) => self.unbound.entry(queue.clone()).or_default().insert(key.clone()),
                Class::Reserving(member) => self.reserving.entry(member.clone()).or_default().insert(key.clone()),
                Class::Bound(member) => self.bound.entry(member.clone()).or_default().insert(key.clone()),
            };
            self.classes.insert(key.clone(), class);
        }
    }

    /// The keys that a change of one row touches (`docs/WALK.md` section 1).
    /// Of what waits in a queue only that of `ours` (by the queue's name): whoever else holds its unit looks at it.
    pub(super) fn wakes(
        &self,
        cluster: &Cluster,
        before: Option<&Row>,
        after: Option<&Row>,
        ours: &dyn Fn(&str) -> bool,
        keys: &mut BTreeSet<Key>,
    ) {
        match cluster {
            Cluster::Hub => self.hub_wakes(before, after, ours, keys),
            Cluster::Member(member) => {
                for row in [before, after].into_iter().flatten() {
                    self.member_wakes(member, row, before.is_none() || after.is_none(), keys);
                }
            }
        }
    }

    fn hub_wakes(
        &self,
        before: Option<&Row>,
        after: Option<&Row>,
        ours: &dyn Fn(&str) -> bool,
        keys: &mut BTreeSet<Key>,
    ) {
        let Some(row) = after.or(before) else { return };
        match row.id.kind {
            Kind::RayService | Kind::RayCronJob => {
                keys.insert(Key { cluster: Cluster::Hub, id: row.id.clone() });
            }
            Kind::RayJob | Kind::RayCluster => {
                keys.insert(Key { cluster: Cluster::Hub, id: row.id.clone() });
                keys.extend(self.users.get(&row.id).into_iter().flatten().cloned());
                // One less in the queue: others may be first now.
                let leaves = |row: Option<&Row>| row.is_none_or(|row| row.deleting.is_some());
                if before.is_some() && leaves(after) && !leaves(before) {
                    keys.extend(self.waiting_in(&self.queue_of(&row.id), ours));
                }
            }
            Kind::Placement => self.placement_wakes(before, after, ours, keys),
            Kind::MemberCapacity | Kind::MemberCluster | Kind::PlacementPolicy | Kind::PriorityClass => {
                keys.extend(self.unbound.keys().flat_map(|queue| self.waiting_in(queue, ours)));
                if matches!(row.id.kind, Kind::MemberCapacity | Kind::MemberCluster) {
                    let member = MemberName(row.id.name.clone());
                    if row.id.kind == Kind::MemberCluster {
                        keys.extend(self.keys_on(&member).cloned());
                    }
                    keys.insert(member_key(&member));
                }
            }
            _ => {}
        }
    }

    /// Jobs that run on a RayCluster of the hub which this object is, or whose `Placement` it is.
    pub(super) fn users_of_hidden(&self, kind: Kind, namespace: &str, name: &str) -> impl Iterator<Item = &Key> {
        let is_it = move |cluster: &Id| {
            *cluster.namespace == *namespace
                && match kind {
                    Kind::RayCluster => *cluster.name == *name,
                    Kind::Placement => placement_name(cluster.kind.name(), &cluster.name) == name,
                    _ => false,
                }
        };
        self.users.iter().filter(move |(cluster, _)| is_it(cluster)).flat_map(|(_, keys)| keys)
    }

    /// What waits in a queue, if it is one of ours.
    fn waiting_in(&self, queue: &str, ours: &dyn Fn(&str) -> bool) -> impl Iterator<Item = Key> {
        self.unbound.get(queue).filter(|_| ours(queue)).into_iter().flatten().cloned()
    }

    fn placement_wakes(
        &self,
        before: Option<&Row>,
        after: Option<&Row>,
        ours: &dyn Fn(&str) -> bool,
        keys: &mut BTreeSet<Key>,
    ) {
        for row in [before, after].into_iter().flatten() {
            if let Some(root) = root_key(row) {
                keys.extend(self.users.get(&root.id).into_iter().flatten().cloned());
                keys.insert(root);
            }
            let Some(spec) = decision(row).map(|p| &p.spec) else { continue };
            let Some(member) = spec.member.as_deref().map(MemberName::from) else { continue };
            keys.insert(member_key(&member));
            let cluster = Cluster::Member(member.clone());
            if let Some(kind) = ray_kind(&spec.root.kind) {
                let id = Id::new(kind, row.id.namespace.clone(), spec.root.name.as_str());
                keys.insert(Key { cluster: cluster.clone(), id });
            }
            if let Some(tables) = self.members.get(&member) {
                let root_id = RootId::from(spec.root.root_id.as_str());
                let of_root = tables.of_root(&root_id);
                let planned = of_root.filter(|row| matches!(row.id.kind, Kind::RayJob | Kind::RayCluster));
                keys.extend(planned.map(|row| Key { cluster: cluster.clone(), id: row.id.clone() }));
            }
        }
        let stage = |row: Option<&Row>| row.and_then(decision).map(|p| (p.spec.stage, p.spec.member.clone()));
        if stage(before) != stage(after)
            && let Some(queue) = after.or(before).and_then(decision).map(|p| p.spec.queue.as_str())
        {
            keys.extend(self.waiting_in(queue, ours));
        }
    }

    fn member_wakes(&self, member: &MemberName, row: &Row, comes_or_goes: bool, keys: &mut BTreeSet<Key>) {
        let kind = row.id.kind;
        if matches!(kind, Kind::RayJob | Kind::RayCluster) {
            keys.insert(Key { cluster: Cluster::Member(member.clone()), id: row.id.clone() });
            keys.extend(annotated_root(row));
            if row.has_finalizer(names::TOMBSTONE_FINALIZER) {
                keys.insert(member_key(member));
            }
            if comes_or_goes && let Some(tables) = self.members.get(member) {
                let children = tables.owned_by(&row.uid).filter(|child| child.id.kind == Kind::RayCluster);
                keys.extend(children.map(|c| Key { cluster: Cluster::Member(member.clone()), id: c.id.clone() }));
            }
        }
        if let Some(root) = row.root_id.as_ref().and_then(|id| self.root_keys.get(id)) {
            keys.insert(root.clone());
        }
        keys.extend(self.planned_above(member, row));
        // A submitter beside the head that has failed ends the job, which does not wait for the RayCluster's status.
        let failed = |container: &ContainerFact| container.exit_code.is_some_and(|code| code != 0);
        if let Facts::Pod(pod) = &row.facts
            && pod.containers.iter().any(|container| *container.name == *SUBMITTER && failed(container))
        {
            keys.extend(self.controller(member, row).and_then(|cluster| self.planned_above(member, cluster)));
        }
        if matches!(kind, Kind::Node | Kind::Pod | Kind::PodGroup | Kind::Queue) {
            keys.insert(member_key(member));
        }
        if matches!(kind, Kind::Node | Kind::Pod | Kind::PodGroup | Kind::Queue | Kind::Namespace) {
            keys.extend(self.reserving_on(member).cloned());
        }
    }
}

fn take<K: Ord>(index: &mut BTreeMap<K, BTreeSet<Key>>, place: &K, key: &Key) {
    if let Some(set) = index.get_mut(place) {
        set.remove(key);
        if set.is_empty() {
            index.remove(place);
        }
    }
}
