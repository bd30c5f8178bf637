//! Kubernetes' default scheduler, as far as the sandbox needs it: one pod after the other to the fullest node that fits.
//! For pods that name no other scheduler. Must not know queues or gangs.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::Value;

use super::amounts::of_pod;
use super::machines::{choose, finished, machines, unavailable};
use super::writing;
use crate::api::{Kind, Time};
use crate::sandbox::world::object::{created, deleting, list, name, number, place, text, uid, version};
use crate::sandbox::world::resource::Resource;
use crate::sandbox::world::writes::Writes;
use crate::sandbox::world::{Surrounding, WorldEvent, WorldRequest};

/// The default scheduler of one cluster.
#[derive(Debug)]
pub struct DefaultScheduler {
    watches: [Arc<Resource>; 2],
    synced: usize,
    nodes: BTreeMap<String, Arc<Value>>,
    pods: BTreeMap<String, Arc<Value>>,
    /// Pods that were bound but not yet seen so.
    assumed: BTreeMap<String, String>,
    writes: Writes,
}

impl Default for DefaultScheduler {
    fn default() -> Self {
        Self {
            watches: [Kind::Node, Kind::Pod].map(Resource::of),
            synced: 0,
            nodes: BTreeMap::new(),
            pods: BTreeMap::new(),
            assumed: BTreeMap::new(),
            writes: Writes::default(),
        }
    }
}

impl Surrounding for DefaultScheduler {
    fn name(&self) -> &'static str {
        "default-scheduler"
    }

    fn watches(&self) -> &[Arc<Resource>] {
        &self.watches
    }

    fn handle(&mut self, event: &WorldEvent, now: Time) -> Vec<WorldRequest> {
        match event {
            WorldEvent::Applied(resource, object) if resource.kind == "Node" => {
                self.nodes.insert(name(object).to_owned(), object.clone());
            }
            WorldEvent::Applied(_, pod) => {
                self.writes.seen(uid(pod), version(pod));
                if !text(pod, "/spec/nodeName").is_empty() {
                    self.assumed.remove(uid(pod));
                }
                self.pods.insert(uid(pod).to_owned(), pod.clone());
            }
            WorldEvent::Deleted(resource, object) if resource.kind == "Node" => {
                self.nodes.remove(name(object));
            }
            WorldEvent::Deleted(_, pod) => {
                self.writes.gone(uid(pod));
                self.assumed.remove(uid(pod));
                self.pods.remove(uid(pod));
            }
            WorldEvent::Synced(_) => self.synced += 1,
            WorldEvent::Answered(id, reply) => {
                if let Some(done) = self.writes.answered(*id, reply, now)
                    && !reply.is_success()
                {
                    self.assumed.remove(&done.key);
                }
                // An answer alone frees nothing: what it changed comes as an event, or the key rests.
                return Vec::new();
            }
            WorldEvent::Tick => {
                self.writes.rested(now);
            }
        }
        if self.synced < self.watches.len() { Vec::new() } else { self.work(now) }
    }

    fn next_tick(&self) -> Option<Time> {
        self.writes.next_at()
    }
}

impl DefaultScheduler {
    fn work(&mut self, now: Time) -> Vec<WorldRequest> {
        let waits = |p: &Arc<Value>| {
            let by = text(p, "/spec/schedulerName");
            (by.is_empty() || by == "default-scheduler")
                && text(p, "/spec/nodeName").is_empty()
                && !self.assumed.contains_key(uid(p))
                && !deleting(p)
                && !finished(p)
                && list(p, "/spec/schedulingGates").is_empty()
                && !self.writes.busy(uid(p), now)
        };
        let mut waiting: Vec<Arc<Value>> = self.pods.values().filter(|p| waits(p)).cloned().collect();
        if waiting.is_empty() {
            return Vec::new();
        }
        waiting.sort_by_key(|p| (std::cmp::Reverse(number(p, "/spec/priority").unwrap_or(0)), created(p), place(p)));
        let mut machines = machines(self.nodes.values(), self.pods.values(), &self.assumed);
        let mut out = Vec::new();
        for pod in waiting {
            let asks = of_pod(&pod);
            let request = match choose(machines.values(), &pod, &asks) {
                Ok(node) => {
                    if let Some(machine) = machines.get_mut(&node) {
                        machine.used.add(&asks);
                    }
                    self.assumed.insert(uid(&pod).to_owned(), node.clone());
                    Some(writing::bind(&pod, &node))
                }
                Err(reasons) => writing::not_scheduled(&pod, &unavailable(&reasons), now),
            };
            out.extend(request.map(|r| self.writes.send(uid(&pod), r)));
        }
        out
    }
}
