//! Tables: all rows of one kind in one cluster with their freshness, and the indexes that decisions look through.
//! Must not know where rows come from.

use std::borrow::Borrow;
use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::Arc;

use super::{Quarantined, Row};
use crate::api::{Id, Kind, RootId, Time, Uid, Version};

/// What an informer says about one kind of one cluster.
#[derive(Clone, Debug, PartialEq)]
pub enum TableChange {
    /// A whole consistent list, begun at `begun`: replaces all rows of the kind.
    Reset {
        /// All rows.
        rows: Vec<Row>,
        /// Objects that did not decode: id as far as known.
        quarantined: Vec<(Id, Quarantined)>,
        /// Version of the list.
        version: Version,
        /// When the list request was sent.
        begun: Time,
    },
    /// Added or modified.
    Upsert(Arc<Row>),
    /// Gone, last seen with this uid; `version` is that of the deletion.
    Remove {
        /// Which object.
        id: Id,
        /// Which incarnation.
        uid: Uid,
        /// Version of the deletion.
        version: Version,
    },
    /// A bookmark, or any sign of life that carries a version.
    Progress(Version),
    /// An object came that does not decode: its old row stays, marked.
    Quarantine {
        /// Which object, as far as it could be read.
        id: Id,
        /// Why, and what is known of it.
        object: Quarantined,
        /// Version that did not decode.
        version: Version,
    },
    /// The server does not serve the kind (404 to a list begun at `begun`, and it never did before): no rows, but known.
    Unserved {
        /// When the list request was sent.
        begun: Time,
    },
    /// The watch or list fails since `since`; rows stay and age.
    Silent {
        /// First failure of the present streak.
        since: Time,
        /// In words for people; no secrets.
        error: String,
    },
}

#[cfg(test)]
thread_local! {
    /// Rows that tables gave out on this thread.
    static GIVEN_OUT: std::cell::Cell<u64> = const { std::cell::Cell::new(0) };
}

/// How many rows tables gave out on this thread so far: tests bound the work of a pass by it.
#[cfg(test)]
pub(crate) fn rows_given_out() -> u64 {
    GIVEN_OUT.get()
}

fn counted<T>(_: &T) {
    #[cfg(test)]
    GIVEN_OUT.set(GIVEN_OUT.get() + 1);
}

/// Namespace and name under which a row stands.
type Place = (Arc<str>, Arc<str>);

/// The same, borrowed or owned: rows are looked up without a copy of either.
trait AsPlace {
    fn parts(&self) -> (&str, &str);
}

impl AsPlace for Place {
    fn parts(&self) -> (&str, &str) {
        (&self.0, &self.1)
    }
}

impl AsPlace for (&str, &str) {
    fn parts(&self) -> (&str, &str) {
        *self
    }
}

impl<'a> Borrow<dyn AsPlace + 'a> for Place {
    fn borrow(&self) -> &(dyn AsPlace + 'a) {
        self
    }
}

// As the order of `Place`, which `Borrow` asks for.
impl Ord for dyn AsPlace + '_ {
    fn cmp(&self, other: &Self) -> Ordering {
        self.parts().cmp(&other.parts())
    }
}

impl PartialOrd for dyn AsPlace + '_ {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for dyn AsPlace + '_ {
    fn eq(&self, other: &Self) -> bool {
        self.parts() == other.parts()
    }
}

impl Eq for dyn AsPlace + '_ {}

/// A row before and after a change; absent where there was or is none.
pub type Touched = (Option<Arc<Row>>, Option<Arc<Row>>);

/// Rows of one kind in one cluster.
#[derive(Clone, Debug, Default)]
pub struct Table {
    rows: BTreeMap<Place, Arc<Row>>,
    /// Objects that do not decode.
    pub quarantined: BTreeMap<Place, Quarantined>,
    /// Highest version that the stream has reached.
    pub version: Version,
    /// How often rows of it came, went or changed: what was made of rows holds while this stays.
    pub changes: u64,
    /// When the list behind the present rows was begun; `None` before the first.
    pub listed: Option<Time>,
    /// The server does not serve the kind, found by a list begun then.
    pub unserved: Option<Time>,
    /// Last sign of life.
    pub heard: Time,
    /// Failing since, and why.
    pub silent: Option<(Time, String)>,
}

impl Table {
    /// The row of an object.
    pub fn get(&self, namespace: &str, name: &str) -> Option<&Row> {
        self.rows.get(&(namespace, name) as &dyn AsPlace).map(|row| &**row).inspect(counted)
    }

    /// All rows, by namespace and name.
    pub fn rows(&self) -> impl Iterator<Item = &Row> {
        self.rows.values().map(|row| &**row).inspect(counted)
    }

    /// How many rows.
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }
}

/// All tables of one cluster, with indexes by owner and by root id.
#[derive(Clone, Debug, Default)]
pub struct Tables {
    tables: BTreeMap<Kind, Table>,
    by_owner: BTreeMap<Uid, BTreeSet<Id>>,
    by_root: BTreeMap<RootId, BTreeSet<Id>>,
    /// RayJobs and RayClusters, and when something that each controls was last seen to go.
    lost: BTreeMap<Uid, Option<Time>>,
    none: Table,
}

impl Tables {
    /// Tables that hold these rows: for tests of plans.
    pub fn from_rows(rows: impl IntoIterator<Item = Row>) -> Self {
        let mut tables = Self::default();
        for row in rows {
            let kind = row.id.kind;
            tables.apply(kind, TableChange::Upsert(Arc::new(row)), Time(0));
        }
        for table in tables.tables.values_mut() {
            table.listed = Some(Time(0));
        }
        tables
    }

    /// The table of a kind; an empty one where the kind was never seen.
    pub fn table(&self, kind: Kind) -> &Table {
        self.tables.get(&kind).unwrap_or(&self.none)
    }

    /// The row of an object.
    pub fn get(&self, id: &Id) -> Option<&Row> {
        self.table(id.kind).get(&id.namespace, &id.name)
    }

    /// The object, if it does not decode.
    pub fn quarantined(&self, id: &Id) -> Option<&Quarantined> {
        self.table(id.kind).quarantined.get(&(&*id.namespace, &*id.name) as &dyn AsPlace)
    }

    /// All rows of a kind.
    pub fn rows(&self, kind: Kind) -> impl Iterator<Item = &Row> {
        self.table(kind).rows()
    }

    /// Rows of a kind in a namespace.
    pub fn in_namespace<'a>(&'a self, kind: Kind, namespace: &'a str) -> impl Iterator<Item = &'a Row> {
        let table = self.table(kind);
        table
            .rows
            .range::<dyn AsPlace, _>((Bound::Included(&(namespace, "") as &dyn AsPlace), Bound::Unbounded))
            .map(|(_, row)| &**row)
            .take_while(move |row| &*row.id.namespace == namespace)
            .inspect(counted)
    }

    /// Objects that name `uid` among their owners.
    pub fn owned_by<'a>(&'a self, uid: &Uid) -> impl Iterator<Item = &'a Row> {
        self.by_owner.get(uid).into_iter().flatten().filter_map(|id| self.get(id))
    }

    /// Objects that carry the root id.
    pub fn of_root<'a>(&'a self, root: &RootId) -> impl Iterator<Item = &'a Row> {
        self.by_root.get(root).into_iter().flatten().filter_map(|id| self.get(id))
    }

    /// When a child of this RayJob or RayCluster was last seen to go: the owner may be gone too, and its kind's stream late.
    pub fn lost_child(&self, owner: &Uid) -> Option<Time> {
        self.lost.get(owner).copied().flatten()
    }

    /// Kinds that were listed at least once.
    pub fn kinds(&self) -> impl Iterator<Item = Kind> {
        self.tables.keys().copied()
    }

    /// Takes a change in at `now`. Returns the rows that it touched: before and after, absent where there was or is none.
    /// Rows older than what is there are dropped (a late line of a former watch).
    pub fn apply(&mut self, kind: Kind, change: TableChange, now: Time) -> Vec<Touched> {
        let mut touched = Vec::new();
        if let TableChange::Silent { since, error } = change {
            self.tables.entry(kind).or_default().silent = Some((since, error));
            return touched;
        }
        {
            let table = self.tables.entry(kind).or_default();
            table.heard = now;
            table.silent = None;
        }
        match change {
            TableChange::Reset { rows, quarantined, version, begun } => {
                let mut old = std::mem::take(&mut self.tables.entry(kind).or_default().rows);
                for row in rows {
                    let place = (row.id.namespace.clone(), row.id.name.clone());
                    match old.remove(&place) {
                        Some(same) if *same == row => {
                            self.tables.entry(kind).or_default().rows.insert(place, same);
                        }
                        before => {
                            if let Some(before) = &before {
                                self.unindex(before);
                            }
                            self.index(&row);
                            let row = Arc::new(row);
                            self.tables.entry(kind).or_default().rows.insert(place, row.clone());
                            touched.push((before, Some(row)));
                        }
                    }
                }
                for (_, gone) in old {
                    self.unindex(&gone);
                    touched.push((Some(gone), None));
                }
                let table = self.tables.entry(kind).or_default();
                table.quarantined = quarantined.into_iter().map(|(id, q)| ((id.namespace, id.name), q)).collect();
                table.version = version;
                table.listed = Some(begun);
                table.unserved = None;
            }
            TableChange::Upsert(row) => {
                let key = (row.id.namespace.clone(), row.id.name.clone());
                let table = self.tables.entry(kind).or_default();
                table.version = table.version.max(row.version);
                table.quarantined.remove(&key);
                if table.rows.get(&key).is_some_and(|old| old.version > row.version) {
                    return touched;
                }
                let before = table.rows.insert(key, row.clone());
                // Most lines are of an object whose owners and root stay as they are.
                let stands = |old: &Arc<Row>| old.owners == row.owners && old.root_id == row.root_id;
                if !before.as_ref().is_some_and(stands) {
                    if let Some(before) = &before {
                        self.unindex(before);
                    }
                    self.index(&row);
                }
                touched.push((before, Some(row)));
            }
            TableChange::Remove { id, uid, version } => {
                let key = (id.namespace, id.name);
                let table = self.tables.entry(kind).or_default();
                table.version = table.version.max(version);
                table.quarantined.remove(&key);
                if table.rows.get(&key).is_some_and(|row| row.uid == uid || row.version < version)
                    && let Some(before) = table.rows.remove(&key)
                {
                    self.unindex(&before);
                    touched.push((Some(before), None));
                }
            }
            TableChange::Progress(version) => {
                let table = self.tables.entry(kind).or_default();
                table.version = table.version.max(version);
            }
            TableChange::Quarantine { id, object, version } => {
                let table = self.tables.entry(kind).or_default();
                table.version = table.version.max(version);
                table.quarantined.insert((id.namespace, id.name), object);
            }
            TableChange::Unserved { begun } => {
                self.tables.entry(kind).or_default().unserved = Some(begun);
            }
            TableChange::Silent { .. } => {}
        }
        if !touched.is_empty() {
            self.tables.entry(kind).or_default().changes += 1;
        }
        for (before, after) in &touched {
            let stays = |row: &&Arc<Row>| after.as_ref().is_some_and(|after| after.uid == row.uid);
            if let Some(gone) = before.as_ref().filter(|row| !stays(row)) {
                self.lost.remove(&gone.uid);
                let owner = gone.owner.as_ref().filter(|_| after.is_none());
                if let Some(lost) = owner.and_then(|owner| self.lost.get_mut(owner)) {
                    *lost = Some(now);
                }
            }
            if let Some(owner) = after.as_ref().filter(|row| matches!(row.id.kind, Kind::RayJob | Kind::RayCluster)) {
                self.lost.entry(owner.uid.clone()).or_default();
            }
        }
        touched
    }

    fn index(&mut self, row: &Row) {
        for owner in &row.owners {
            self.by_owner.entry(owner.clone()).or_default().insert(row.id.clone());
        }
        if let Some(root) = &row.root_id {
            self.by_root.entry(root.clone()).or_default().insert(row.id.clone());
        }
    }

    fn unindex(&mut self, row: &Row) {
        for owner in &row.owners {
            if let Some(set) = self.by_owner.get_mut(owner) {
                set.remove(&row.id);
                if set.is_empty() {
                    self.by_owner.remove(owner);
                }
            }
        }
        if let Some(root) = &row.root_id
            && let Some(set) = self.by_root.get_mut(root)
        {
            set.remove(&row.id);
            if set.is_empty() {
                self.by_root.remove(root);
            }
        }
    }
}
