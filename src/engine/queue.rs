//! Keys that want a look, by the time they want it; fair between members.
//! Must not know what a look is.

use std::collections::{BTreeMap, BTreeSet};

use crate::api::{Cluster, Key, Kind, MemberName, Time};

/// The queue. A key stands in it once, at the earliest time that was asked for.
#[derive(Debug, Default)]
pub(super) struct Queue {
    due: BTreeMap<Key, Time>,
    /// Per group the keys in order of time; no group is empty.
    groups: BTreeMap<Cluster, BTreeSet<(Time, Key)>>,
    /// The group that was served last: the next one in order comes next.
    served: Option<Cluster>,
    /// No look before: keys whose last write was refused.
    not_before: BTreeMap<Key, Time>,
}

/// Whose work a key is, for fairness: a member's backlog must not hold up the hub's keys or other members'.
fn group_of(key: &Key) -> Cluster {
    if key.cluster == Cluster::Hub && key.id.kind == Kind::MemberCluster {
        return Cluster::Member(MemberName(key.id.name.clone()));
    }
    key.cluster.clone()
}

impl Queue {
    /// The key wants a look at `at`, or earlier if it is in the queue for an earlier time.
    pub(super) fn put(&mut self, key: &Key, at: Time) {
        let at = self.not_before.get(key).map_or(at, |floor| at.max(*floor));
        match self.due.get(key) {
            Some(old) if *old <= at => return,
            Some(old) => {
                let old = (*old, key.clone());
                self.remove_entry(&old);
            }
            None => {}
        }
        self.due.insert(key.clone(), at);
        self.groups.entry(group_of(key)).or_default().insert((at, key.clone()));
    }

    /// Looks at the key wait until then, whoever wakes it.
    pub(super) fn hold_until(&mut self, key: &Key, at: Time) {
        self.not_before.insert(key.clone(), at);
        if self.due.get(key).is_some_and(|due| *due < at) {
            self.forget(key);
            self.put(key, at);
        }
    }

    /// Nothing holds the key any more.
    pub(super) fn release(&mut self, key: &Key) {
        self.not_before.remove(key);
    }

    fn forget(&mut self, key: &Key) {
        if let Some(at) = self.due.remove(key) {
            self.remove_entry(&(at, key.clone()));
        }
    }

    fn remove_entry(&mut self, entry: &(Time, Key)) {
        let group = group_of(&entry.1);
        if let Some(set) = self.groups.get_mut(&group) {
            set.remove(entry);
            if set.is_empty() {
                self.groups.remove(&group);
            }
        }
    }

    /// Takes the next key that is due: one of each group in turn, the oldest wish of the group first.
    pub(super) fn take(&mut self, now: Time) -> Option<Key> {
        let is_due = |set: &BTreeSet<(Time, Key)>| set.first().is_some_and(|(at, _)| *at <= now);
        let after = self.groups.iter().filter(|(group, _)| self.served.as_ref().is_none_or(|served| *group > served));
        let group = after.chain(self.groups.iter()).find(|(_, set)| is_due(set)).map(|(group, _)| group.clone())?;
        let (_, key) = self.groups.get(&group)?.first()?.clone();
        self.forget(&key);
        if self.not_before.get(&key).is_some_and(|floor| *floor <= now) {
            self.not_before.remove(&key);
        }
        self.served = Some(group);
        Some(key)
    }

    /// When the next key is due.
    pub(super) fn next(&self) -> Option<Time> {
        self.groups.values().filter_map(|set| set.first()).map(|(at, _)| *at).min()
    }

    /// How many keys are in it.
    pub(super) fn len(&self) -> usize {
        self.due.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::Id;

    fn key(cluster: &str, name: &str) -> Key {
        let cluster = if cluster == "hub" { Cluster::Hub } else { Cluster::Member(cluster.into()) };
        Key { cluster, id: Id::new(Kind::RayJob, "n", name) }
    }

    fn all(queue: &mut Queue, now: i64) -> Vec<String> {
        std::iter::from_fn(|| queue.take(Time(now))).map(|k| format!("{}/{}", k.cluster, k.id.name)).collect()
    }

    #[test]
    fn members_take_turns() {
        let mut queue = Queue::default();
        for name in ["a", "b", "c"] {
            queue.put(&key("eu", name), Time(1));
        }
        queue.put(&key("us", "d"), Time(2));
        queue.put(&key("hub", "e"), Time(3));
        assert_eq!(all(&mut queue, 5), ["hub/e", "eu/a", "us/d", "eu/b", "eu/c"]);
        assert_eq!(queue.len(), 0);
    }

    #[test]
    fn a_key_is_in_it_once_at_the_earliest_time() {
        let mut queue = Queue::default();
        queue.put(&key("eu", "a"), Time(9));
        queue.put(&key("eu", "a"), Time(4));
        queue.put(&key("eu", "a"), Time(6));
        assert_eq!((queue.len(), queue.next()), (1, Some(Time(4))));
        assert!(all(&mut queue, 3).is_empty());
        assert_eq!(all(&mut queue, 4), ["eu/a"]);
        assert_eq!(queue.next(), None);
    }

    #[test]
    fn a_held_key_waits_whoever_wakes_it() {
        let mut queue = Queue::default();
        queue.put(&key("eu", "a"), Time(1));
        queue.hold_until(&key("eu", "a"), Time(10));
        queue.put(&key("eu", "a"), Time(2));
        assert!(all(&mut queue, 9).is_empty());
        assert_eq!(all(&mut queue, 10), ["eu/a"]);
        queue.put(&key("eu", "a"), Time(11));
        assert_eq!(queue.next(), Some(Time(11)));
    }
}
