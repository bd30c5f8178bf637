//! Objects, the one counter of versions, and the window of past changes that watches and continued lists read.
//! Must not know requests, validation or who watches.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound;
use std::sync::{Arc, OnceLock};

use serde_json::Value;

use super::{text, watch_event};

/// One version of one object. Shared by lists, watchers and history; its text is written once.
#[derive(Debug)]
pub(super) struct Entry {
    /// The object, with kind and apiVersion.
    pub value: Arc<Value>,
    /// Its resourceVersion as a number.
    pub version: u64,
    builtin: bool,
    full: OnceLock<Arc<[u8]>>,
    item: OnceLock<Arc<[u8]>>,
}

impl Entry {
    fn new(value: Value, version: u64, builtin: bool) -> Arc<Self> {
        Arc::new(Self { value: Arc::new(value), version, builtin, full: OnceLock::new(), item: OnceLock::new() })
    }

    /// The object as a reply or an event carries it.
    pub(super) fn text(&self) -> &Arc<[u8]> {
        self.full.get_or_init(|| written(&self.value, self.builtin).into())
    }

    /// The object as an item of a list: built-in kinds come without kind and apiVersion.
    pub(super) fn item_text(&self) -> &Arc<[u8]> {
        if !self.builtin {
            return self.text();
        }
        self.item.get_or_init(|| text::item(&self.value).into())
    }

    /// A field of `metadata`.
    pub(super) fn meta(&self, field: &str) -> Option<&Value> {
        self.value.get("metadata")?.get(field)
    }

    /// A text field of `metadata`; empty if absent.
    pub(super) fn meta_text(&self, field: &str) -> &str {
        self.meta(field).and_then(Value::as_str).unwrap_or_default()
    }
}

/// An object's text in the order of fields of its kind.
pub(super) fn written(value: &Value, builtin: bool) -> Vec<u8> {
    if builtin { text::ordered(value) } else { text::sorted(value) }
}

/// What happened to an object.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum What {
    Added,
    Modified,
    Deleted,
}

impl What {
    pub(super) fn name(self) -> &'static str {
        match self {
            What::Added => "ADDED",
            What::Modified => "MODIFIED",
            What::Deleted => "DELETED",
        }
    }
}

/// One change, kept so that watches can start in the past.
#[derive(Debug)]
pub(super) struct Change {
    /// Version that the change made.
    pub version: u64,
    /// Key of the object within its collection.
    pub key: Arc<str>,
    /// What it was.
    pub what: What,
    /// The object before; none for an addition.
    pub old: Option<Arc<Entry>>,
    /// The object after; for a deletion its last content with the deletion's version.
    pub new: Arc<Entry>,
    lines: [OnceLock<Arc<[u8]>>; 3],
}

impl Change {
    /// The event of this change in the stored form, named as the watcher sees it. Written once for all watchers.
    pub(super) fn line(&self, what: What) -> &Arc<[u8]> {
        self.lines[what as usize].get_or_init(|| watch_event::line(what.name(), self.new.text()))
    }

    /// What left a selector keeps its content of before, with the version of the change.
    pub(super) fn left(&self) -> Value {
        let mut value = Value::clone(&self.old.as_ref().unwrap_or(&self.new).value);
        set_version(&mut value, self.version);
        value
    }
}

/// All objects of one resource, whatever version they are served in.
#[derive(Clone, Debug, Default)]
pub(super) struct Collection {
    /// By `namespace/name`, or `name` for cluster-scoped kinds: the order of lists.
    pub objects: BTreeMap<Arc<str>, Arc<Entry>>,
    /// Oldest first.
    pub changes: VecDeque<Arc<Change>>,
    /// Changes up to this version are forgotten.
    pub floor: u64,
    /// Version of the last change.
    pub last: u64,
}

impl Collection {
    /// Objects whose key begins so, from `after` (exclusive) on.
    pub(super) fn range<'a, 'p>(
        &'a self,
        prefix: &'p str,
        after: &'p str,
    ) -> impl Iterator<Item = (&'a Arc<str>, &'a Arc<Entry>)> {
        let start = if after > prefix { Bound::Excluded(after) } else { Bound::Included(prefix) };
        self.objects.range::<str, _>((start, Bound::Unbounded)).take_while(move |(k, _)| k.starts_with(prefix))
    }

    /// As `range`, as it was at a version that the window still reaches; none if it does not.
    pub(super) fn range_at(&self, prefix: &str, after: &str, version: u64) -> Option<Vec<(Arc<str>, Arc<Entry>)>> {
        if version < self.floor {
            return None;
        }
        let mut undone: BTreeMap<&Arc<str>, Option<&Arc<Entry>>> = BTreeMap::new();
        for change in self.changes.iter().rev().take_while(|c| c.version > version) {
            undone.insert(&change.key, change.old.as_ref());
        }
        let mut out: BTreeMap<Arc<str>, Arc<Entry>> =
            self.range(prefix, after).map(|(k, e)| (k.clone(), e.clone())).collect();
        for (key, old) in undone {
            if !key.starts_with(prefix) || &**key <= after {
                continue;
            }
            match old {
                Some(entry) => out.insert(key.clone(), entry.clone()),
                None => out.remove(key),
            };
        }
        Some(out.into_iter().collect())
    }

    fn remember(&mut self, change: Arc<Change>, window: usize) {
        self.last = change.version;
        self.changes.push_back(change);
        if self.changes.len() > window
            && let Some(oldest) = self.changes.pop_front()
        {
            self.floor = oldest.version;
        }
    }
}

/// All collections by `plural.group` (`pods`, `widgets.example.dev`).
#[derive(Clone, Debug)]
pub(super) struct Store {
    version: u64,
    /// Changes that a collection keeps.
    window: usize,
    collections: BTreeMap<Arc<str>, Collection>,
    none: Collection,
}

impl Store {
    /// `first` is the version before the first write.
    pub(super) fn new(first: u64, window: usize) -> Self {
        Self { version: first, window, collections: BTreeMap::new(), none: Collection::default() }
    }

    /// Takes over a collection as another store has it, and goes on from that store's version.
    pub(super) fn take_collection(&mut self, other: &Self, resource: &str) {
        self.collections.insert(resource.into(), other.collection(resource).clone());
        self.version = self.version.max(other.version);
    }

    /// Version of the last write.
    pub(super) fn version(&self) -> u64 {
        self.version
    }

    pub(super) fn collection(&self, resource: &str) -> &Collection {
        self.collections.get(resource).unwrap_or(&self.none)
    }

    pub(super) fn collections(&self) -> impl Iterator<Item = (&Arc<str>, &Collection)> {
        self.collections.iter()
    }

    pub(super) fn get(&self, resource: &str, key: &str) -> Option<&Arc<Entry>> {
        self.collections.get(resource)?.objects.get(key)
    }

    /// Stores an object; gives it the next version.
    pub(super) fn put(&mut self, resource: &str, key: &str, mut value: Value, builtin: bool) -> Arc<Change> {
        self.version += 1;
        let (version, window) = (self.version, self.window);
        set_version(&mut value, version);
        let new = Entry::new(value, version, builtin);
        let collection = self.of(resource);
        let old = collection.objects.get(key).cloned();
        let key = collection.objects.get_key_value(key).map_or_else(|| Arc::from(key), |(k, _)| k.clone());
        collection.objects.insert(key.clone(), new.clone());
        let what = if old.is_some() { What::Modified } else { What::Added };
        let change = Arc::new(Change { version, key, what, old, new, lines: Default::default() });
        collection.remember(change.clone(), window);
        change
    }

    /// Takes an object away. The event carries what was stored, with the version of the deletion.
    pub(super) fn remove(&mut self, resource: &str, key: &str) -> Option<Arc<Change>> {
        let collection = self.collections.get_mut(resource)?;
        let (key, old) = collection.objects.remove_entry(key)?;
        self.version += 1;
        let version = self.version;
        let mut value = Value::clone(&old.value);
        set_version(&mut value, version);
        let new = Entry::new(value, version, old.builtin);
        let change =
            Arc::new(Change { version, key, what: What::Deleted, old: Some(old), new, lines: Default::default() });
        collection.remember(change.clone(), self.window);
        Some(change)
    }

    /// Forgets changes up to a version, as etcd's compaction followed by a restart of the server does.
    pub(super) fn compact(&mut self, version: u64) {
        for collection in self.collections.values_mut() {
            while collection.changes.front().is_some_and(|c| c.version <= version) {
                collection.changes.pop_front();
            }
            collection.floor = collection.floor.max(version);
        }
        self.none.floor = self.none.floor.max(version);
    }

    fn of(&mut self, resource: &str) -> &mut Collection {
        if !self.collections.contains_key(resource) {
            let empty = Collection { floor: self.none.floor, ..Collection::default() };
            self.collections.insert(Arc::from(resource), empty);
        }
        self.collections.get_mut(resource).expect("the collection was made just now")
    }
}

/// Writes `metadata.resourceVersion`.
pub(super) fn set_version(value: &mut Value, version: u64) {
    if let Some(metadata) = value.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.insert("resourceVersion".into(), version.to_string().into());
    }
}
