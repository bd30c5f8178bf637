//! Takes inputs in: clusters that come and go, rows, units; and what time alone brings about.
//! Must not know what a plan says.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use super::tables::{decision, member_key};
use super::units::{HUB_KINDS, MEMBER_KINDS, listed_since, member_of};
use super::{Effect, Engine, Input, Presence, Standing};
use crate::api::{Cluster, Id, Key, Kind, MemberName, Time, Version, member_unit};
use crate::plan::identity::HOME;
use crate::row::{Facts, Quarantined, Row, TableChange, Tables};

/// A member's own key is looked at no more often than this: each of its pods wakes it.
const MEMBER_PAUSE: Duration = Duration::from_millis(100);
/// A member that cannot be talked to is tried again after this.
const MEMBER_RETRY: Duration = Duration::from_secs(30);
/// A list that was asked for and has not come is asked for again after this.
const LIST_AGAIN: Duration = Duration::from_secs(30);
/// Expectations that take longer than this are settled by a list.
const EXPECTATION_LIMIT: Duration = Duration::from_secs(10);
const CHECK_EVERY: Duration = Duration::from_secs(5);
/// Answers that nobody asked for again are dropped after this.
const ANSWERS_KEPT: Duration = Duration::from_mins(10);
const TIDY_EVERY: Duration = Duration::from_mins(1);

/// Objects of a table that do not decode, by namespace and name.
type Hidden = BTreeMap<(Arc<str>, Arc<str>), Quarantined>;

/// Whether a row is where a cluster's identity stands.
fn is_home(row: Option<&Row>) -> bool {
    row.is_some_and(|row| *row.id.name == *HOME)
}

impl Engine {
    pub(super) fn take_in(&mut self, input: Input, now: Time, out: &mut Vec<Effect>) {
        match input {
            Input::Cluster(cluster, presence) => self.cluster_is(cluster, presence, now, out),
            Input::Rows(cluster, kind, change) => self.rows(&cluster, kind, change, now, out),
            Input::Done(ticket, outcome) => self.done(ticket, outcome, now, out),
            Input::Fetched(ticket, begun, result) => self.was_fetched(ticket, begun, result, now, out),
            Input::Ray(ticket, outcome) => self.ray_answered(ticket, outcome, now, out),
            Input::Unit(unit, standing) => self.unit_is(unit, standing, now, out),
            Input::Epochs(epochs) => {
                // Verdicts ask whether anybody has ever held a member's first unit, and no more than that.
                let is_first = |unit: &Arc<str>| unit.starts_with("m-") && unit.ends_with("-0");
                let taken_over = epochs.keys().any(|unit| is_first(unit) && !self.epochs.contains_key(unit));
                self.epochs.extend(epochs);
                if taken_over {
                    let keys: Vec<Key> = self.world.unbound_keys().map(|(_, key)| key.clone()).collect();
                    self.wake_all(keys, now);
                }
            }
            Input::Tick => {}
        }
    }

    /// What time alone brings about.
    pub(super) fn ring(&mut self, now: Time, out: &mut Vec<Effect>) {
        for ticket in self.inflight.lost(now) {
            self.answer_lost(ticket, now, out);
        }
        for (ticket, flight) in self.inflight.due_read_backs(now) {
            self.read_back(ticket, flight, now, out);
        }
        if self.check_at.is_some_and(|at| at <= now) {
            self.check_at = None;
            for ((cluster, kind), since) in self.inflight.overdue(now - EXPECTATION_LIMIT) {
                self.ask_lists(&cluster, &[kind], since, now, out);
            }
            // Units whose first lists do not come: their members' keys say so.
            self.check_barriers(now, out);
            self.keep_checking(now);
        }
        let due: Vec<MemberName> = self.retries.iter().filter(|(_, at)| **at <= now).map(|(m, _)| m.clone()).collect();
        for member in due {
            self.retries.remove(&member);
            if let Some(spec) = self.specs.get(&member) {
                out.push(Effect::Member(member, Some(Box::new(spec.clone()))));
            }
        }
        if self.tidy_at <= now {
            self.tidy_at = now + TIDY_EVERY;
            self.tidy(now);
        }
    }

    pub(super) fn keep_checking(&mut self, now: Time) {
        if self.check_at.is_none() && (self.inflight.expects() || !self.units.all_passed()) {
            self.check_at = Some(now + CHECK_EVERY);
        }
    }

    fn tidy(&mut self, now: Time) {
        let old = now - ANSWERS_KEPT;
        self.fetched.retain(|_, fetched| fetched.begun > old);
        self.asked.retain(|_, at| *at > old);
        let world = &self.world;
        self.handovers.retain(|key, _| super::owner::of(world, key).is_ok());
        let asked = &self.asked;
        self.rays.jobs.retain(|job, _| asked.contains_key(job));
        let journal = &self.journal;
        self.asks.retain(|root, _| {
            let key = Key { cluster: Cluster::Hub, id: root.clone() };
            journal.get(&key).is_some_and(|entry| entry.looked > old)
        });
        let gone: Vec<Key> = self
            .journal
            .iter()
            .filter(|(key, entry)| entry.looked < old && super::owner::of(&self.world, key).is_err())
            .map(|(key, _)| key.clone())
            .collect();
        for key in gone {
            self.journal.forget(&key);
            self.queue.release(&key);
        }
    }

    // --- wakes ---

    pub(super) fn wake(&mut self, key: &Key, now: Time) {
        if self.inflight.is_busy(key) {
            // It is woken when it is free again.
            return;
        }
        let is_member = key.cluster == Cluster::Hub && key.id.kind == Kind::MemberCluster;
        let pause = self.journal.get(key).filter(|_| is_member).map(|entry| entry.looked + MEMBER_PAUSE);
        self.queue.put(key, pause.map_or(now, |at| at.max(now)));
    }

    pub(super) fn wake_all(&mut self, keys: impl IntoIterator<Item = Key>, now: Time) {
        for key in keys {
            self.wake(&key, now);
        }
    }

    // --- clusters ---

    fn cluster_is(&mut self, cluster: Cluster, presence: Presence, now: Time, out: &mut Vec<Effect>) {
        self.presence.insert(cluster.clone(), presence.clone());
        let Cluster::Member(member) = &cluster else {
            if presence == Presence::Added && !self.watching.contains_key(&cluster) {
                let kinds: BTreeSet<Kind> = HUB_KINDS.iter().copied().collect();
                self.watching.insert(cluster.clone(), kinds.clone());
                out.push(Effect::Watch(cluster, kinds));
            }
            return;
        };
        match presence {
            Presence::Added => {
                self.refused.remove(member);
                self.retries.remove(member);
            }
            Presence::Refused(why) => {
                self.refused.insert(member.clone(), why);
                self.retries.insert(member.clone(), now + MEMBER_RETRY);
            }
            Presence::Gone => {
                self.refused.remove(member);
                self.retries.remove(member);
                self.presence.remove(&cluster);
            }
        }
        self.update_watch(member, now, out);
        let keys: Vec<Key> = self.world.unbound_keys().map(|(_, key)| key.clone()).collect();
        self.wake_all(keys, now);
        self.wake(&member_key(member), now);
    }

    /// Watches a member exactly while it can be talked to and a unit of it is ours.
    fn update_watch(&mut self, member: &MemberName, now: Time, out: &mut Vec<Effect>) {
        let cluster = Cluster::Member(member.clone());
        let there = self.presence.get(&cluster) == Some(&Presence::Added) && !self.world.is_given_up(member);
        let wanted = there && self.units.holds_of(member);
        if wanted == self.watching.contains_key(&cluster) {
            return;
        }
        if wanted {
            let kinds: BTreeSet<Kind> = MEMBER_KINDS.iter().copied().collect();
            self.watching.insert(cluster.clone(), kinds.clone());
            self.world.members.entry(member.clone()).or_default();
            out.push(Effect::Watch(cluster, kinds));
            return;
        }
        self.watching.remove(&cluster);
        self.world.drop_member(member);
        self.identities.remove(member);
        // An empty table must never look like an empty cluster: nothing is planned before new lists.
        for (unit, holding) in self.units.iter_mut() {
            if member_of(unit) == Some(member.as_str()) {
                holding.passed = false;
                holding.member_since = now;
            }
        }
        self.relists.retain(|(c, _), _| *c != cluster);
        out.push(Effect::Watch(cluster.clone(), BTreeSet::new()));
        for key in self.inflight.waiting_on_cluster(&cluster) {
            self.free_if_met(&key, now, out);
        }
    }

    // --- units ---

    fn unit_is(&mut self, unit: Arc<str>, standing: Standing, now: Time, out: &mut Vec<Effect>) {
        let member = member_of(&unit).map(MemberName::from);
        if let Standing::Held(epoch) = standing {
            self.epochs.insert(unit.clone(), epoch);
        }
        self.units.set(unit.clone(), standing, now);
        if let Some(member) = member {
            self.update_watch(&member, now, out);
        } else if standing == Standing::Lost {
            // From now on nothing of the hub wakes them here: what is told of them must not be what was once so.
            let of_unit = self.world.unbound_keys().filter(|(queue, _)| shards::queue_unit(queue) == *unit);
            let keys: Vec<Key> = of_unit.map(|(_, key)| key.clone()).collect();
            self.wake_all(keys, now);
        }
        self.check_barriers(now, out);
        self.keep_checking(now);
    }

    /// Asks for the lists that units wait for, and wakes the keys of those whose lists have come.
    pub(super) fn check_barriers(&mut self, now: Time, out: &mut Vec<Effect>) {
        let hub = listed_since(&self.world.hub, HUB_KINDS);
        let mut wake: BTreeSet<Key> = BTreeSet::new();
        let mut ask: Vec<(Cluster, Time)> = Vec::new();
        for (unit, holding) in self.units.iter_mut().filter(|(_, holding)| !holding.passed) {
            if hub < Some(holding.since) {
                ask.push((Cluster::Hub, holding.since));
                continue;
            }
            let Some(member) = member_of(unit).map(MemberName::from) else {
                (holding.hub_passed, holding.passed) = (true, true);
                let of_unit = self.world.unbound_keys().filter(|(queue, _)| shards::queue_unit(queue) == **unit);
                wake.extend(of_unit.map(|(_, key)| key.clone()));
                let is_units = |key: &Key| shards::queue_unit(&self.world.queue_of(&key.id)) == **unit;
                wake.extend(self.world.unreadable_roots().filter(is_units));
                continue;
            };
            holding.hub_passed = true;
            wake.insert(member_key(&member));
            if self.world.is_given_up(&member) {
                wake.extend(self.world.keys_on(&member).cloned());
                continue;
            }
            let Some(tables) = self.world.members.get(&member) else { continue };
            let cluster = Cluster::Member(member.clone());
            if listed_since(tables, MEMBER_KINDS) < Some(holding.member_since) {
                ask.push((cluster, holding.member_since));
                continue;
            }
            holding.passed = true;
            wake.extend(self.world.keys_of(&member));
        }
        for (cluster, since) in ask {
            let kinds = if cluster == Cluster::Hub { HUB_KINDS } else { MEMBER_KINDS };
            self.ask_lists(&cluster, kinds, since, now, out);
        }
        self.wake_all(wake, now);
    }

    /// Asks for lists of those of the kinds whose last one was begun before `since`, unless one is asked for already.
    pub(super) fn ask_lists(
        &mut self,
        cluster: &Cluster,
        kinds: &[Kind],
        since: Time,
        now: Time,
        out: &mut Vec<Effect>,
    ) {
        let Some(watched) = self.watching.get(cluster) else { return };
        let Some(tables) = self.world.tables(cluster) else { return };
        let mut ask = BTreeSet::new();
        for kind in kinds.iter().filter(|kind| watched.contains(kind)) {
            let table = tables.table(*kind);
            // Before the first list the informer is busy with just that.
            let Some(known) = table.listed.max(table.unserved) else { continue };
            let place = (cluster.clone(), *kind);
            let asked = self.relists.get(&place).is_some_and(|at| *at >= since && now < *at + LIST_AGAIN);
            if known < since && !asked {
                self.relists.insert(place, now);
                ask.insert(*kind);
            }
        }
        if !ask.is_empty() {
            out.push(Effect::Relist(cluster.clone(), ask));
        }
    }

    // --- rows ---

    fn rows(&mut self, cluster: &Cluster, kind: Kind, change: TableChange, now: Time, out: &mut Vec<Effect>) {
        if !self.watching.get(cluster).is_some_and(|kinds| kinds.contains(&kind)) {
            // A late line of a watch that was given up: taken in, it would make a table of one row.
            return;
        }
        let silent = |tables: Option<&Tables>| tables.is_some_and(|t| t.table(kind).silent.is_some());
        let was_silent = silent(self.world.tables(cluster));
        let is_list = matches!(change, TableChange::Reset { .. } | TableChange::Unserved { .. });
        let hidden = self.world.tables(cluster).map(|t| t.table(kind).quarantined.clone()).unwrap_or_default();
        let touched = self.world.apply(cluster, kind, change, now);
        let mut keys = BTreeSet::new();
        self.hidden_wakes(cluster, kind, &hidden, &mut keys);
        for (before, after) in &touched {
            let (before, after) = (before.as_deref(), after.as_deref());
            let ours = |queue: &str| self.units.get(&shards::queue_unit(queue)).is_some();
            self.world.wakes(cluster, before, after, &ours, &mut keys);
            if *cluster == Cluster::Hub {
                self.hub_row(before, after, now, out);
            }
        }
        if let Cluster::Member(member) = cluster
            && kind == Kind::Namespace
            && touched.iter().any(|(before, after)| [before, after].iter().any(|r| is_home(r.as_deref())))
        {
            self.identify(member, now);
        }
        if let Cluster::Member(member) = cluster
            && was_silent != silent(self.world.tables(cluster))
        {
            keys.insert(member_key(member));
        }
        for key in self.inflight.waiting_on(cluster, kind) {
            self.free_if_met(&key, now, out);
        }
        self.wake_all(keys, now);
        if is_list {
            let listed = self.world.tables(cluster).and_then(|t| t.table(kind).listed.max(t.table(kind).unserved));
            if self.relists.get(&(cluster.clone(), kind)).is_some_and(|asked| listed >= Some(*asked)) {
                self.relists.remove(&(cluster.clone(), kind));
            }
            self.check_barriers(now, out);
        }
    }

    /// Objects that do not decode have no rows to wake anybody by; what cannot be read stops whoever it may belong to.
    fn hidden_wakes(&self, cluster: &Cluster, kind: Kind, before: &Hidden, keys: &mut BTreeSet<Key>) {
        let nothing = Hidden::new();
        let after = self.world.tables(cluster).map_or(&nothing, |t| &t.table(kind).quarantined);
        if before == after {
            return;
        }
        let changed = before.keys().chain(after.keys()).filter(|name| before.get(*name) != after.get(*name));
        for (namespace, name) in changed {
            if Kind::ROOTS.contains(&kind) {
                let id = Id::new(kind, namespace.clone(), name.clone());
                keys.insert(Key { cluster: cluster.clone(), id });
            }
            if *cluster == Cluster::Hub {
                keys.extend(self.world.users_of_hidden(kind, namespace, name).cloned());
            }
            if let Cluster::Member(member) = cluster {
                keys.insert(member_key(member));
                let may_be_theirs = |key: &&Key| namespace.is_empty() || key.id.namespace == *namespace;
                keys.extend(self.world.keys_on(member).filter(may_be_theirs).cloned());
            }
        }
    }

    /// What a row of the hub means besides waking keys.
    fn hub_row(&mut self, before: Option<&Row>, after: Option<&Row>, now: Time, out: &mut Vec<Effect>) {
        let Some(row) = after.or(before) else { return };
        match row.id.kind {
            Kind::MemberCluster => {
                let name = MemberName(row.id.name.clone());
                let spec = match after.map(|row| &row.facts) {
                    Some(Facts::MemberCluster(facts)) => Some(facts.spec.clone()),
                    _ => None,
                };
                if self.specs.get(&name) != spec.as_ref() {
                    match &spec {
                        Some(spec) => self.specs.insert(name.clone(), spec.clone()),
                        None => self.specs.remove(&name),
                    };
                    out.push(Effect::Member(name.clone(), spec.map(Box::new)));
                }
                self.update_watch(&name, now, out);
                self.update_units(out);
                self.identify(&name, now);
            }
            Kind::Placement => {
                let Some(spec) = after.or(before).and_then(decision).map(|p| &p.spec) else { return };
                let root = super::tables::root_of(row, spec);
                let Some(root) = root else { return };
                let same = |memo: &super::Memo| after.is_some() && memo.generation == spec.generation;
                if self.memos.get(&root).is_some_and(|memo| !same(memo)) {
                    self.memos.remove(&root);
                }
                let members =
                    [before, after].into_iter().flatten().filter_map(|row| decision(row)?.spec.member.as_deref());
                if members.map(MemberName::from).any(|member| !self.specs.contains_key(&member)) {
                    self.update_units(out);
                }
            }
            _ => {}
        }
    }

    /// The units of all members that are registered; and the first one of those that are not and that a `Placement` stands
    /// on: there its owner decides what becomes of it.
    fn update_units(&mut self, out: &mut Vec<Effect>) {
        let unregistered = self.world.members_in_use().filter(|member| !self.specs.contains_key(*member));
        let mut wanted: BTreeSet<Arc<str>> = unregistered.map(|member| member_unit(&member.0, 0)).collect();
        for member in self.specs.keys() {
            let count = self.world.unit_count(&member.0).unwrap_or(0);
            wanted.extend((0..count).map(|index| member_unit(&member.0, index)));
        }
        if wanted != self.wanted_units {
            self.wanted_units.clone_from(&wanted);
            out.push(Effect::Units(wanted));
        }
    }

    /// Highest version of `Placement`s that was taken in.
    pub(super) fn placements_up_to(&self) -> Version {
        self.world.hub.table(Kind::Placement).version
    }
}
