//! Kubernetes' namespace life cycle: each new namespace gets its ServiceAccount `default`; one that is being deleted is
//! emptied type by type, and finalized when lists of all types were empty.
//! Must not know what the objects are for.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};

use super::object::{body, delete, deleting, list, name, post, put, uid, version};
use super::resource::Resource;
use super::writes::Writes;
use super::{Surrounding, WorldEvent, WorldRequest};
use crate::api::wire::Request;
use crate::api::{Kind, Time};

/// A namespace that was not empty is looked through again after this time.
const AGAIN: Duration = Duration::from_millis(500);

/// One look through all types of a namespace that is being deleted.
#[derive(Debug, Default)]
struct Sweep {
    /// Types whose list is still to be answered.
    open: BTreeSet<Arc<Resource>>,
    /// Objects found.
    left: usize,
    /// How many of them have finalizers.
    held: usize,
    failed: bool,
    /// Something was deleted.
    deleted: bool,
    /// It follows one that deleted something, and counts what that left: a real controller tells what remains, not what was.
    counts: bool,
}

/// The namespace controller of one API server.
#[derive(Debug)]
pub struct Namespaces {
    watches: Vec<Arc<Resource>>,
    /// Types whose objects fill namespaces.
    types: Vec<Arc<Resource>>,
    known: BTreeMap<String, Arc<Value>>,
    accounts: BTreeSet<String>,
    accounts_synced: bool,
    sweeps: BTreeMap<String, Sweep>,
    lists: BTreeMap<u64, (String, Arc<Resource>)>,
    again: BTreeMap<String, Time>,
    writes: Writes,
}

impl Default for Namespaces {
    fn default() -> Self {
        Self {
            watches: vec![Resource::of(Kind::Namespace), Resource::of(Kind::ServiceAccount), Resource::definitions()],
            types: Resource::builtin().into_iter().filter(|r| r.namespaced).collect(),
            known: BTreeMap::new(),
            accounts: BTreeSet::new(),
            accounts_synced: false,
            sweeps: BTreeMap::new(),
            lists: BTreeMap::new(),
            again: BTreeMap::new(),
            writes: Writes::default(),
        }
    }
}

impl Surrounding for Namespaces {
    fn name(&self) -> &'static str {
        "namespace-controller"
    }

    fn watches(&self) -> &[Arc<Resource>] {
        &self.watches
    }

    fn handle(&mut self, event: &WorldEvent, now: Time) -> Vec<WorldRequest> {
        let mut out = Vec::new();
        match event {
            WorldEvent::Applied(resource, object) => {
                self.applied(resource, object);
                self.look_at_all(now, &mut out);
            }
            WorldEvent::Deleted(resource, object) => {
                self.gone(resource, object);
                self.look_at_all(now, &mut out);
            }
            WorldEvent::Synced(resource) => {
                self.accounts_synced |= resource.kind == "ServiceAccount";
                self.look_at_all(now, &mut out);
            }
            WorldEvent::Answered(id, reply) => {
                if let Some((namespace, resource)) = self.lists.remove(id) {
                    let found = reply.is_success().then(|| body(reply));
                    self.listed(&namespace, &resource, found.as_ref(), now, &mut out);
                } else {
                    self.writes.answered(*id, reply, now);
                }
            }
            WorldEvent::Tick => {
                self.writes.rested(now);
                self.again.retain(|_, at| *at > now);
                self.look_at_all(now, &mut out);
            }
        }
        out
    }

    fn next_tick(&self) -> Option<Time> {
        self.again.values().copied().chain(self.writes.next_at()).min()
    }
}

impl Namespaces {
    fn applied(&mut self, resource: &Resource, object: &Arc<Value>) {
        match resource.kind.as_str() {
            "Namespace" => {
                self.writes.seen(name(object), version(object));
                self.known.insert(name(object).to_owned(), object.clone());
            }
            "ServiceAccount" if name(object) == "default" => {
                let namespace = super::object::namespace(object);
                self.writes.seen(&account_key(namespace), version(object));
                self.accounts.insert(namespace.to_owned());
            }
            "CustomResourceDefinition" => {
                if let Some(defined) = Resource::defined_by(object)
                    && defined.namespaced
                    && !self.types.contains(&defined)
                {
                    self.types.push(defined);
                }
            }
            _ => {}
        }
    }

    fn gone(&mut self, resource: &Resource, object: &Value) {
        match resource.kind.as_str() {
            "Namespace" => {
                self.writes.gone(name(object));
                self.known.remove(name(object));
                self.sweeps.remove(name(object));
                self.again.remove(name(object));
            }
            "ServiceAccount" if name(object) == "default" => {
                self.writes.gone(&account_key(super::object::namespace(object)));
                self.accounts.remove(super::object::namespace(object));
            }
            _ => {}
        }
    }

    fn look_at_all(&mut self, now: Time, out: &mut Vec<WorldRequest>) {
        let (active, ending): (Vec<_>, Vec<_>) = self.known.values().cloned().partition(|n| !deleting(n));
        for namespace in active {
            let namespace = name(&namespace);
            let key = account_key(namespace);
            if self.accounts_synced && !self.accounts.contains(namespace) && !self.writes.busy(&key, now) {
                let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}});
                let target = Resource::of(Kind::ServiceAccount).collection(namespace);
                out.push(self.writes.send(&key, post(target, &account)));
            }
        }
        for namespace in ending {
            let key = name(&namespace);
            if !self.sweeps.contains_key(key) && !self.again.contains_key(key) && !self.writes.busy(key, now) {
                self.sweep(key, false, out);
            }
        }
    }

    fn sweep(&mut self, namespace: &str, counts: bool, out: &mut Vec<WorldRequest>) {
        let sweep = Sweep { open: self.types.iter().cloned().collect(), counts, ..Sweep::default() };
        for resource in &self.types {
            let sent = self.writes.tell(Request::get(resource.collection(namespace)));
            self.lists.insert(sent.id, (namespace.to_owned(), resource.clone()));
            out.push(sent);
        }
        self.sweeps.insert(namespace.to_owned(), sweep);
    }

    fn listed(
        &mut self,
        namespace: &str,
        resource: &Arc<Resource>,
        found: Option<&Value>,
        now: Time,
        out: &mut Vec<WorldRequest>,
    ) {
        let Some(sweep) = self.sweeps.get_mut(namespace) else { return };
        sweep.open.remove(resource);
        sweep.failed |= found.is_none();
        for object in found.map_or(&[][..], |f| list(f, "/items")) {
            sweep.left += 1;
            sweep.held += usize::from(!list(object, "/metadata/finalizers").is_empty());
            if !deleting(object) {
                sweep.deleted = true;
                let options = json!({"propagationPolicy": "Background"});
                out.push(self.writes.tell(delete(resource.path_of(object), uid(object), options)));
            }
        }
        if !sweep.open.is_empty() {
            return;
        }
        let Some(sweep) = self.sweeps.remove(namespace) else { return };
        if sweep.deleted && !sweep.counts {
            self.sweep(namespace, true, out);
            return;
        }
        let Some(object) = self.known.get(namespace).cloned() else { return };
        let empty = !sweep.failed && sweep.left == 0;
        if !empty {
            self.again.insert(namespace.to_owned(), now + AGAIN);
        }
        // A real server first tells how the deletion stands, and only then gives the namespace up.
        let conditions = conditions(&sweep, now);
        let target = Resource::of(Kind::Namespace).path("", namespace);
        if !same_conditions(&object, &conditions) {
            let mut told = (*object).clone();
            told["status"] = json!({"phase": "Terminating", "conditions": conditions});
            out.push(self.writes.send(namespace, put(format!("{target}/status"), &told)));
        } else if empty && has_kubernetes_finalizer(&object) {
            let mut ended = (*object).clone();
            ended["spec"]["finalizers"] = json!([]);
            out.push(self.writes.send(namespace, put(format!("{target}/finalize"), &ended)));
        }
    }
}

fn account_key(namespace: &str) -> String {
    format!("{namespace}/default")
}

fn has_kubernetes_finalizer(namespace: &Value) -> bool {
    list(namespace, "/spec/finalizers").iter().any(|f| f == "kubernetes")
}

fn same_conditions(namespace: &Value, conditions: &[Value]) -> bool {
    let now = list(namespace, "/status/conditions");
    conditions.iter().all(|c| now.iter().any(|n| n["type"] == c["type"] && n["status"] == c["status"]))
}

/// As recorded in `namespace-delete`, with the counts of what remains.
fn conditions(sweep: &Sweep, now: Time) -> Vec<Value> {
    let condition = |kind: &str, bad: bool, reasons: [&str; 2], message: String| {
        json!({"type": kind, "status": if bad { "True" } else { "False" }, "lastTransitionTime": now.seconds_text(),
               "reason": reasons[usize::from(bad)], "message": message})
    };
    let fine = |bad: bool, good: &str, otherwise: String| if bad { otherwise } else { good.to_owned() };
    vec![
        condition(
            "NamespaceDeletionDiscoveryFailure",
            false,
            ["ResourcesDiscovered", "DiscoveryFailed"],
            "All resources successfully discovered".to_owned(),
        ),
        condition(
            "NamespaceDeletionGroupVersionParsingFailure",
            false,
            ["ParsedGroupVersions", "GroupVersionParsingFailed"],
            "All legacy kube types successfully parsed".to_owned(),
        ),
        condition(
            "NamespaceDeletionContentFailure",
            sweep.failed,
            ["ContentDeleted", "ContentDeletionFailed"],
            fine(
                sweep.failed,
                "All content successfully deleted, may be waiting on finalization",
                "Some collections could not be listed".to_owned(),
            ),
        ),
        condition(
            "NamespaceContentRemaining",
            sweep.left > 0,
            ["ContentRemoved", "SomeResourcesRemain"],
            fine(
                sweep.left > 0,
                "All content successfully removed",
                format!("Some resources are remaining: {} instances", sweep.left),
            ),
        ),
        condition(
            "NamespaceFinalizersRemaining",
            sweep.held > 0,
            ["ContentHasNoFinalizers", "SomeFinalizersRemain"],
            fine(
                sweep.held > 0,
                "All content-preserving finalizers finished",
                format!("Some content in the namespace has finalizers remaining: {} instances", sweep.held),
            ),
        ),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sandbox::world::object::text;

    #[test]
    fn conditions_say_what_remains() {
        let sweep = Sweep { left: 2, held: 1, ..Sweep::default() };
        let told = conditions(&sweep, Time(0));
        assert_eq!(text(&told[3], "/status"), "True");
        assert_eq!(text(&told[4], "/reason"), "SomeFinalizersRemain");
        assert_eq!(text(&told[2], "/status"), "False");
    }
}
