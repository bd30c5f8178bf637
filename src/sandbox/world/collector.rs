//! Kubernetes' garbage collection: what an object's owners mean for it, by UID, in background, foreground and orphaning
//! deletion. Before anything is deleted for an absent owner, the owner is asked for.
//! Must not know any kind in particular: types come from the built-in list and from CustomResourceDefinitions.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde_json::{Value, json};

use super::object::{body, delete, deleting, has_finalizer, list, merge, namespace, text, uid, version};
use super::resource::Resource;
use super::writes::Writes;
use super::{Surrounding, WorldEvent, WorldRequest};
use crate::api::Time;
use crate::api::wire::Request;

const FOREGROUND: &str = "foregroundDeletion";
const ORPHAN: &str = "orphan";

/// What is kept of an object.
#[derive(Debug)]
struct Item {
    resource: Arc<Resource>,
    object: Arc<Value>,
}

/// The collector of one API server.
#[derive(Debug)]
pub struct Collector {
    watches: Vec<Arc<Resource>>,
    synced: BTreeSet<Arc<Resource>>,
    items: BTreeMap<String, Item>,
    /// UID of an owner → UIDs of its dependants.
    dependants: BTreeMap<String, BTreeSet<String>>,
    /// UIDs that do not exist and never will again.
    absent: BTreeSet<String>,
    /// UIDs to look at.
    dirty: BTreeSet<String>,
    writes: Writes,
}

impl Default for Collector {
    fn default() -> Self {
        let mut watches = Resource::builtin();
        watches.push(Resource::definitions());
        Self {
            watches,
            synced: BTreeSet::new(),
            items: BTreeMap::new(),
            dependants: BTreeMap::new(),
            absent: BTreeSet::new(),
            dirty: BTreeSet::new(),
            writes: Writes::default(),
        }
    }
}

impl Surrounding for Collector {
    fn name(&self) -> &'static str {
        "garbage-collector"
    }

    fn watches(&self) -> &[Arc<Resource>] {
        &self.watches
    }

    fn handle(&mut self, event: &WorldEvent, now: Time) -> Vec<WorldRequest> {
        match event {
            WorldEvent::Applied(resource, object) => self.applied(resource, object),
            WorldEvent::Deleted(_, object) => self.gone(object),
            WorldEvent::Synced(resource) => {
                self.synced.insert(resource.clone());
                self.dirty.extend(self.items.keys().cloned());
            }
            WorldEvent::Answered(id, reply) => {
                let Some(done) = self.writes.answered(*id, reply, now) else { return Vec::new() };
                if let Some(owner) = done.key.strip_prefix("ask ") {
                    self.writes.clear(&done.key);
                    let found = body(reply);
                    if reply.status == 404 || (reply.is_success() && uid(&found) != owner) {
                        self.absent.insert(owner.to_owned());
                        self.wake_dependants(owner);
                    }
                } else {
                    self.dirty.insert(done.key);
                }
            }
            WorldEvent::Tick => {
                let rested = self.writes.rested(now);
                self.dirty.extend(rested);
            }
        }
        self.work(now)
    }

    fn next_tick(&self) -> Option<Time> {
        self.writes.next_at()
    }
}

impl Collector {
    fn applied(&mut self, resource: &Arc<Resource>, object: &Arc<Value>) {
        if resource.kind == "CustomResourceDefinition"
            && let Some(defined) = Resource::defined_by(object)
            && !self.watches.contains(&defined)
        {
            self.watches.push(defined);
        }
        let id = uid(object).to_owned();
        self.writes.seen(&id, version(object));
        for owner in self.items.get(&id).map(|i| owner_uids(&i.object)).unwrap_or_default() {
            if let Some(of) = self.dependants.get_mut(&owner) {
                of.remove(&id);
            }
            self.dirty.insert(owner);
        }
        for owner in owner_uids(object) {
            self.dependants.entry(owner.clone()).or_default().insert(id.clone());
            self.dirty.insert(owner);
        }
        if deleting(object) {
            self.wake_dependants(&id);
        }
        self.items.insert(id.clone(), Item { resource: resource.clone(), object: object.clone() });
        self.dirty.insert(id);
    }

    fn gone(&mut self, object: &Value) {
        let id = uid(object);
        self.writes.gone(id);
        if let Some(item) = self.items.remove(id) {
            for owner in owner_uids(&item.object) {
                if let Some(of) = self.dependants.get_mut(&owner) {
                    of.remove(id);
                    if of.is_empty() {
                        self.dependants.remove(&owner);
                    }
                }
                self.dirty.insert(owner);
            }
        }
        if self.dependants.contains_key(id) {
            self.absent.insert(id.to_owned());
            self.wake_dependants(id);
        }
    }

    fn wake_dependants(&mut self, owner: &str) {
        self.dirty.extend(self.dependants.get(owner).into_iter().flatten().cloned());
    }

    fn work(&mut self, now: Time) -> Vec<WorldRequest> {
        let mut out = Vec::new();
        for id in std::mem::take(&mut self.dirty) {
            // A key that rests is looked at again when its answer, its change or the end of its rest comes.
            if !self.writes.busy(&id, now) {
                self.look(&id, now, &mut out);
            }
        }
        out
    }

    fn look(&mut self, id: &str, now: Time, out: &mut Vec<WorldRequest>) {
        let Some(item) = self.items.get(id) else { return };
        let (resource, object) = (item.resource.clone(), item.object.clone());
        if deleting(&object) {
            if has_finalizer(&object, FOREGROUND) {
                self.finish_foreground(id, &resource, &object, out);
            } else if has_finalizer(&object, ORPHAN) {
                self.orphan(id, &resource, &object, now, out);
            }
            return;
        }
        let owners = list(&object, "/metadata/ownerReferences");
        if owners.is_empty() {
            return;
        }
        let (mut solid, mut waiting) = (Vec::new(), Vec::new());
        for owner in owners {
            let owner_uid = text(owner, "/uid");
            if self.absent.contains(owner_uid) {
                continue;
            }
            let Some(there) = self.items.get(owner_uid) else {
                // Unknown, not absent: ask, and decide when the answer is there.
                self.ask(owner, namespace(&object), now, out);
                return;
            };
            // A namespaced owner in another namespace is no owner (the recording `absent-owner`).
            if there.resource.namespaced && namespace(&there.object) != namespace(&object) {
                continue;
            }
            // Goes with its owner, whether or not it holds it back.
            if deleting(&there.object) && has_finalizer(&there.object, FOREGROUND) {
                waiting.push(owner.clone());
            } else {
                solid.push(owner.clone());
            }
        }
        let target = resource.path_of(&object);
        if !solid.is_empty() {
            if solid.len() < owners.len() {
                out.push(self.writes.send(id, merge(target, &with_owners(&object, solid))));
            }
            return;
        }
        let has_own = self.dependants.get(id).is_some_and(|d| !d.is_empty());
        let policy = if (!waiting.is_empty() && has_own) || has_finalizer(&object, FOREGROUND) {
            "Foreground"
        } else if has_finalizer(&object, ORPHAN) {
            "Orphan"
        } else {
            "Background"
        };
        let preconditions = json!({"uid": id, "resourceVersion": text(&object, "/metadata/resourceVersion")});
        let options = json!({"preconditions": preconditions, "propagationPolicy": policy});
        out.push(self.writes.send(id, delete(target, id, options)));
    }

    /// The owner's live state: 404 or another UID means that it is absent for ever.
    fn ask(&mut self, owner: &Value, namespace: &str, now: Time, out: &mut Vec<WorldRequest>) {
        let found = self
            .watches
            .iter()
            .find(|r| r.kind == text(owner, "/kind") && r.group == group_of(text(owner, "/apiVersion")))
            .cloned();
        // A kind that is not served decides nothing: the dependant stays, as on a real server.
        let Some(resource) = found else { return };
        if !self.synced.contains(&resource) {
            return;
        }
        let key = format!("ask {}", text(owner, "/uid"));
        if !self.writes.busy(&key, now) {
            let target = resource.path(namespace, text(owner, "/name"));
            out.push(self.writes.send(&key, Request::get(target)));
        }
    }

    /// The owner goes when no dependant is left that blocks it.
    fn finish_foreground(&mut self, id: &str, resource: &Resource, object: &Value, out: &mut Vec<WorldRequest>) {
        let held = self.dependants.get(id).into_iter().flatten().any(|d| {
            self.items.get(d).is_some_and(|item| {
                list(&item.object, "/metadata/ownerReferences").iter().any(|r| {
                    text(r, "/uid") == id && r.get("blockOwnerDeletion").and_then(Value::as_bool).unwrap_or(false)
                })
            })
        });
        if !held && self.all_synced() {
            out.push(self.writes.send(id, merge(resource.path_of(object), &without_finalizer(object, FOREGROUND))));
        }
    }

    fn orphan(&mut self, id: &str, resource: &Resource, object: &Value, now: Time, out: &mut Vec<WorldRequest>) {
        let dependants: Vec<String> = self.dependants.get(id).into_iter().flatten().cloned().collect();
        for dependant in &dependants {
            let Some(item) = self.items.get(dependant) else { continue };
            let rest: Vec<Value> = list(&item.object, "/metadata/ownerReferences")
                .iter()
                .filter(|r| text(r, "/uid") != id)
                .cloned()
                .collect();
            let patch = merge(item.resource.path_of(&item.object), &with_owners(&item.object, rest));
            if !self.writes.busy(dependant, now) {
                out.push(self.writes.send(dependant, patch));
            }
        }
        if dependants.is_empty() && self.all_synced() {
            out.push(self.writes.send(id, merge(resource.path_of(object), &without_finalizer(object, ORPHAN))));
        }
    }

    /// Whether every collection was listed: before that, no dependant seen does not mean that there is none.
    fn all_synced(&self) -> bool {
        self.watches.iter().all(|r| self.synced.contains(r))
    }
}

fn owner_uids(object: &Value) -> Vec<String> {
    list(object, "/metadata/ownerReferences").iter().map(|r| text(r, "/uid").to_owned()).collect()
}

fn group_of(api_version: &str) -> &str {
    api_version.split_once('/').map_or("", |(group, _)| group)
}

/// Patch that leaves these owners; refused if the object has changed or was replaced.
fn with_owners(object: &Value, owners: Vec<Value>) -> Value {
    let owners = if owners.is_empty() { Value::Null } else { Value::Array(owners) };
    json!({"metadata": {
        "uid": uid(object),
        "resourceVersion": text(object, "/metadata/resourceVersion"),
        "ownerReferences": owners,
    }})
}

fn without_finalizer(object: &Value, finalizer: &str) -> Value {
    let rest: Vec<&Value> = list(object, "/metadata/finalizers").iter().filter(|f| *f != finalizer).collect();
    let rest = if rest.is_empty() { Value::Null } else { json!(rest) };
    json!({"metadata": {
        "uid": uid(object),
        "resourceVersion": text(object, "/metadata/resourceVersion"),
        "finalizers": rest,
    }})
}
