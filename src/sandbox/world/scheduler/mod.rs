//! A scheduler with Volcano's flat queues, as a client of one API server: watches, runs a session once a period when
//! something changed, and writes what it decided. Also the few things that Volcano's controllers do: queue states, and a
//! PodGroup for each pod that comes without one.
//! Must not know the product's placement; shares only quantities with it.

pub mod amounts;
pub mod kube;
pub mod limits;
pub mod machines;
pub mod session;
pub mod snapshot;
mod writing;

#[cfg(test)]
mod replay;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};

pub use self::session::{Configuration, QueuePlugin};
use self::snapshot::{Seen, Snapshot};
use super::object::{body, entry, has, name, namespace, number, place, post, text, uid, version};
use super::resource::Resource;
use super::writes::Writes;
use super::{Surrounding, WorldEvent, WorldRequest};
use crate::api::names::POD_GROUP_ANNOTATION;
use crate::api::{Kind, Time};

/// Name that pods ask for.
pub const SCHEDULER: &str = "volcano";

/// How the scheduler of a member behaves.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// Time between sessions.
    pub period: Duration,
    /// PodGroups are not looked at by enqueue before this age: a scheduler that admits late.
    pub delay: Duration,
    /// Plugins.
    pub configuration: Configuration,
}

impl Default for Settings {
    fn default() -> Self {
        Self { period: Duration::from_secs(1), delay: Duration::ZERO, configuration: Configuration::default() }
    }
}

/// Volcano on one cluster.
#[derive(Debug)]
pub struct Volcano {
    settings: Settings,
    watches: [Arc<Resource>; 5],
    synced: BTreeSet<String>,
    seen: Seen,
    /// When each PodGroup was seen first: `settings.delay` counts from there.
    first_seen: BTreeMap<String, Time>,
    /// Something changed since the last session.
    dirty: bool,
    last_session: Time,
    writes: Writes,
    /// Bindings that are not answered yet: key of the write → UID of the pod.
    binding: BTreeMap<String, String>,
    told: BTreeMap<String, String>,
}

impl Volcano {
    /// With these settings.
    pub fn new(settings: Settings) -> Self {
        Self {
            settings,
            watches: [Kind::Queue, Kind::PodGroup, Kind::Node, Kind::PriorityClass, Kind::Pod].map(Resource::of),
            synced: BTreeSet::new(),
            seen: Seen::default(),
            first_seen: BTreeMap::new(),
            dirty: false,
            last_session: Time(i64::MIN / 2),
            writes: Writes::default(),
            binding: BTreeMap::new(),
            told: BTreeMap::new(),
        }
    }

    /// Another configuration from now on, as when its file is replaced.
    pub fn configure(&mut self, configuration: Configuration) {
        self.settings.configuration = configuration;
        self.dirty = true;
    }

    fn applied(&mut self, resource: &Resource, object: &Arc<Value>, now: Time) {
        self.dirty = true;
        let at = place(object);
        match resource.kind.as_str() {
            "Queue" => {
                self.writes.seen(&format!("queue {at}"), version(object));
                self.seen.queues.insert(name(object).to_owned(), object.clone());
            }
            "PodGroup" => {
                self.writes.seen(&format!("group {at}"), version(object));
                self.first_seen.entry(uid(object).to_owned()).or_insert(now);
                self.seen.groups.insert(at, object.clone());
            }
            "Node" => {
                self.seen.nodes.insert(name(object).to_owned(), object.clone());
            }
            "PriorityClass" => {
                self.seen.priorities.insert(name(object).to_owned(), number(object, "/value").unwrap_or(0));
            }
            _ => {
                self.writes.seen(&format!("pod {}", uid(object)), version(object));
                if !text(object, "/spec/nodeName").is_empty() {
                    self.seen.assumed.remove(uid(object));
                }
                self.seen.pods.insert(uid(object).to_owned(), object.clone());
            }
        }
    }

    fn gone(&mut self, resource: &Resource, object: &Value) {
        self.dirty = true;
        let at = place(object);
        match resource.kind.as_str() {
            "Queue" => {
                self.writes.gone(&format!("queue {at}"));
                self.seen.queues.remove(name(object));
            }
            "PodGroup" => {
                self.writes.gone(&format!("group {at}"));
                self.first_seen.remove(uid(object));
                self.told.remove(uid(object));
                self.seen.groups.remove(&at);
            }
            "Node" => {
                self.seen.nodes.remove(name(object));
            }
            "PriorityClass" => {
                self.seen.priorities.remove(name(object));
            }
            _ => {
                self.writes.gone(&format!("pod {}", uid(object)));
                self.seen.assumed.remove(uid(object));
                self.seen.pods.remove(uid(object));
            }
        }
    }

    fn ready(&self) -> bool {
        self.synced.len() == self.watches.len()
    }

    /// The controllers' part: queues, their states, PodGroups of single pods.
    fn keep_house(&mut self, now: Time, out: &mut Vec<WorldRequest>) {
        let queues = Resource::of(Kind::Queue);
        for (queue, spec) in [
            ("root", json!({"weight": 1, "reclaimable": false})),
            ("default", json!({"weight": 1, "reclaimable": true})),
        ] {
            let key = format!("queue /{queue}");
            if !self.seen.queues.contains_key(queue) && !self.writes.busy(&key, now) {
                let object = json!({
                    "apiVersion": Kind::Queue.api_version(), "kind": "Queue", "metadata": {"name": queue}, "spec": spec,
                });
                out.push(self.writes.send(&key, post(queues.collection(""), &object)));
            }
        }
        let alone = |pod: &&Arc<Value>| {
            text(pod, "/spec/schedulerName") == SCHEDULER
                && entry(pod, "/metadata/annotations", POD_GROUP_ANNOTATION).is_empty()
        };
        for pod in self.seen.pods.values().filter(alone).cloned().collect::<Vec<_>>() {
            self.own_group(&pod, now, out);
        }
    }

    /// A pod without a PodGroup gets one, and then the annotation that names it.
    fn own_group(&mut self, pod: &Value, now: Time, out: &mut Vec<WorldRequest>) {
        let (group, object) = writing::own_group(pod);
        let at = format!("{}/{group}", namespace(pod));
        let key = if self.seen.groups.contains_key(&at) { format!("pod {}", uid(pod)) } else { format!("group {at}") };
        if self.writes.busy(&key, now) {
            return;
        }
        let request = if self.seen.groups.contains_key(&at) {
            writing::annotate(pod, &group)
        } else {
            post(Resource::of(Kind::PodGroup).collection(namespace(pod)), &object)
        };
        out.push(self.writes.send(&key, request));
    }

    fn session(&mut self, now: Time, out: &mut Vec<WorldRequest>) {
        self.dirty = false;
        self.last_session = now;
        let mut snapshot = Snapshot::of(&self.seen);
        let held = self.held(now);
        let decisions = session::run(&mut snapshot, &self.settings.configuration, &held);
        for (pod, node) in &decisions.bind {
            let Some(object) = self.seen.pods.get(pod).cloned() else { continue };
            let key = format!("bind {pod}");
            self.seen.assumed.insert(pod.clone(), node.clone());
            self.binding.insert(key.clone(), pod.clone());
            out.push(self.writes.send(&key, writing::bind(&object, node)));
        }
        for (at, gang) in &snapshot.gangs {
            self.write_group(at, gang, &decisions, now, out);
        }
        for queue in snapshot.queues.keys() {
            self.write_queue(queue, &snapshot, now, out);
        }
    }

    fn write_group(
        &mut self,
        at: &str,
        gang: &snapshot::Gang,
        decisions: &session::Decisions,
        now: Time,
        out: &mut Vec<WorldRequest>,
    ) {
        let refusal = decisions.refused.get(at);
        let unready = decisions.unready.get(at);
        if let Some(event) = writing::group_event(gang, refusal, unready) {
            // Told again only when the words change: a real one repeats itself each session.
            let words = event.words();
            if self.told.insert(uid(&gang.object).to_owned(), words.clone()) != Some(words) {
                out.push(self.writes.tell(event.request(now)));
            }
        }
        for task in &gang.tasks {
            let key = format!("pod {}", uid(&task.pod));
            if let Some(unready) = unready
                && !self.writes.busy(&key, now)
                && let Some(request) = writing::unscheduled(task, &unready.1, now)
            {
                out.push(self.writes.send(&key, request));
            }
        }
        let key = format!("group {at}");
        if self.writes.busy(&key, now) {
            self.dirty = true;
            return;
        }
        if let Some(request) = writing::group_status(gang, unready, now) {
            out.push(self.writes.send(&key, request));
        }
    }

    fn write_queue(&mut self, queue: &str, snapshot: &Snapshot, now: Time, out: &mut Vec<WorldRequest>) {
        let Some(object) = self.seen.queues.get(queue).cloned() else { return };
        let key = format!("queue /{queue}");
        let groups = self.seen.groups.values().filter(|g| snapshot::queue_of(g) == queue).count();
        let Some(request) = writing::queue_status(&object, snapshot, groups) else { return };
        if self.writes.busy(&key, now) {
            self.dirty = true;
        } else {
            out.push(self.writes.send(&key, request));
        }
    }

    /// PodGroups that are younger than this scheduler's delay.
    fn held(&self, now: Time) -> BTreeSet<String> {
        let young = |g: &Value| self.first_seen.get(uid(g)).is_some_and(|at| *at + self.settings.delay > now);
        self.seen.groups.iter().filter(|(_, g)| young(g)).map(|(at, _)| at.clone()).collect()
    }

    /// When the next held PodGroup may be looked at.
    fn next_release(&self) -> Option<Time> {
        if self.settings.delay.is_zero() {
            return None;
        }
        let waiting =
            self.seen.groups.values().filter(|g| !has(g, "/status/phase") || text(g, "/status/phase") == "Pending");
        let release = waiting.filter_map(|g| self.first_seen.get(uid(g)).map(|at| *at + self.settings.delay));
        release.filter(|at| *at > self.last_session).min()
    }
}

impl Surrounding for Volcano {
    fn name(&self) -> &'static str {
        SCHEDULER
    }

    fn watches(&self) -> &[Arc<Resource>] {
        &self.watches
    }

    fn handle(&mut self, event: &WorldEvent, now: Time) -> Vec<WorldRequest> {
        let mut out = Vec::new();
        match event {
            WorldEvent::Applied(resource, object) => self.applied(resource, object, now),
            WorldEvent::Deleted(resource, object) => self.gone(resource, object),
            WorldEvent::Synced(resource) => {
                self.synced.insert(resource.kind.clone());
                self.dirty = true;
            }
            WorldEvent::Answered(id, reply) => {
                let Some(done) = self.writes.answered(*id, reply, now) else { return out };
                if let Some(pod) = self.binding.remove(&done.key) {
                    self.writes.clear(&done.key);
                    // Refused: the room is free again, and the pod is tried again in the next session.
                    if !reply.is_success() {
                        tracing::debug!(%pod, status = reply.status, answer = %body(reply), "binding refused");
                        self.seen.assumed.remove(&pod);
                        self.dirty = true;
                    }
                } else if !reply.is_success() {
                    self.dirty = true;
                }
            }
            WorldEvent::Tick => {
                self.dirty |= !self.writes.rested(now).is_empty();
                if self.next_release().is_some_and(|at| at <= now) {
                    self.dirty = true;
                }
            }
        }
        if !self.ready() {
            return out;
        }
        self.keep_house(now, &mut out);
        if self.dirty && now >= self.last_session + self.settings.period {
            self.session(now, &mut out);
        }
        out
    }

    fn next_tick(&self) -> Option<Time> {
        if !self.ready() {
            return None;
        }
        let next = self.last_session + self.settings.period;
        let release = self.next_release().map(|at| at.max(next));
        let session = self.dirty.then_some(next);
        session.into_iter().chain(release).chain(self.writes.next_at()).min()
    }
}
