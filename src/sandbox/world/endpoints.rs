//! Kubernetes' endpoint controllers: for each Service with a selector an Endpoints object and an EndpointSlice with the
//! addresses of the pods that it selects.
//! Must not know what listens there.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde_json::{Value, json};

use super::labels::{LabelIndex, Pair, pairs};
use super::object::{
    condition, deleting, entry, fnv, has, list, name, namespace, place, post, put, selects, suffix, text, uid, version,
};
use super::resource::Resource;
use super::writes::Writes;
use super::{Surrounding, WorldEvent, WorldRequest};
use crate::api::{Kind, Time};

/// The endpoint controllers of one API server.
#[derive(Debug)]
pub struct Endpoints {
    watches: [Arc<Resource>; 4],
    synced: usize,
    /// By `namespace/name`.
    services: BTreeMap<String, Arc<Value>>,
    /// Services under one pair of their selector: a pod that has not that pair is not selected.
    selecting: LabelIndex,
    /// That pair: the one that the fewest others stood under.
    rarest: BTreeMap<String, Pair>,
    /// By UID.
    pods: BTreeMap<String, Arc<Value>>,
    /// UIDs of pods under each of their labels.
    labelled: LabelIndex,
    /// What stands on the server, by path.
    written: BTreeMap<String, Arc<Value>>,
    /// The Service that each path belongs to.
    owners: BTreeMap<String, String>,
    dirty: BTreeSet<String>,
    writes: Writes,
}

impl Default for Endpoints {
    fn default() -> Self {
        Self {
            watches: [
                Resource::new("", "v1", "endpoints", "Endpoints", true),
                Resource::new("discovery.k8s.io", "v1", "endpointslices", "EndpointSlice", true),
                Resource::of(Kind::Service),
                Resource::of(Kind::Pod),
            ],
            synced: 0,
            services: BTreeMap::new(),
            selecting: LabelIndex::default(),
            rarest: BTreeMap::new(),
            pods: BTreeMap::new(),
            labelled: LabelIndex::default(),
            written: BTreeMap::new(),
            owners: BTreeMap::new(),
            dirty: BTreeSet::new(),
            writes: Writes::default(),
        }
    }
}

impl Surrounding for Endpoints {
    fn name(&self) -> &'static str {
        "endpoint-controller"
    }

    fn watches(&self) -> &[Arc<Resource>] {
        &self.watches
    }

    fn handle(&mut self, event: &WorldEvent, now: Time) -> Vec<WorldRequest> {
        match event {
            WorldEvent::Applied(resource, object) => self.seen(resource, object, true),
            WorldEvent::Deleted(resource, object) => self.seen(resource, object, false),
            WorldEvent::Synced(_) => {
                self.synced += 1;
                self.dirty.extend(self.services.keys().cloned());
            }
            WorldEvent::Answered(id, reply) => {
                self.writes.answered(*id, reply, now);
            }
            WorldEvent::Tick => {
                let rested = self.writes.rested(now);
                self.dirty.extend(rested.iter().filter_map(|path| self.owners.get(path).cloned()));
            }
        }
        if self.synced < self.watches.len() {
            return Vec::new();
        }
        let mut out = Vec::new();
        for at in std::mem::take(&mut self.dirty) {
            if let Some(service) = self.services.get(&at).cloned()
                && has(&service, "/spec/selector")
                && !deleting(&service)
            {
                let (object, slice) = self.wanted(&service);
                self.write(&self.watches[0].clone(), &at, object, now, &mut out);
                self.write(&self.watches[1].clone(), &at, slice, now, &mut out);
            }
        }
        out
    }

    fn next_tick(&self) -> Option<Time> {
        self.writes.next_at()
    }
}

impl Endpoints {
    fn seen(&mut self, resource: &Resource, object: &Arc<Value>, there: bool) {
        match resource.kind.as_str() {
            "Service" => {
                let at = place(object);
                let before = self.rarest.remove(&at);
                self.selecting.replace(&at, before, None);
                self.services.remove(&at);
                if there {
                    self.services.insert(at.clone(), object.clone());
                    let rarest = pairs(object, "/spec/selector").min_by_key(|pair| self.selecting.count(pair));
                    self.selecting.replace(&at, None, rarest.clone());
                    self.rarest.extend(rarest.map(|pair| (at.clone(), pair)));
                }
                self.dirty.insert(at);
            }
            "Pod" => {
                let before = if there {
                    self.pods.insert(uid(object).to_owned(), object.clone())
                } else {
                    self.pods.remove(uid(object))
                };
                if there && before.as_ref().is_some_and(|b| address(b) == address(object)) {
                    return;
                }
                for pod in before.iter().chain([object]) {
                    for pair in pairs(pod, "/metadata/labels") {
                        let selecting = self.selecting.get(&pair).filter(|service| {
                            let selector = self.services.get(*service).and_then(|s| s.pointer("/spec/selector"));
                            selector.is_some_and(|selector| selects(selector, pod.pointer("/metadata/labels")))
                        });
                        self.dirty.extend(selecting.map(str::to_owned));
                    }
                }
                let labels = |pod: &Arc<Value>| pairs(pod, "/metadata/labels").collect::<Vec<_>>();
                self.labelled.replace(
                    uid(object),
                    before.iter().flat_map(labels),
                    there.then(|| labels(object)).into_iter().flatten(),
                );
            }
            kind => {
                let path = resource.path_of(object);
                let service = if kind == "Endpoints" {
                    name(object)
                } else {
                    entry(object, "/metadata/labels", "kubernetes.io/service-name")
                };
                let service = format!("{}/{service}", namespace(object));
                self.dirty.insert(service.clone());
                if there {
                    self.owners.insert(path.clone(), service);
                    self.writes.seen(&path, version(object));
                    self.written.insert(path, object.clone());
                } else {
                    self.owners.remove(&path);
                    self.writes.gone(&path);
                    self.written.remove(&path);
                }
            }
        }
    }

    fn write(&mut self, resource: &Resource, service: &str, wanted: Value, now: Time, out: &mut Vec<WorldRequest>) {
        let path = resource.path_of(&wanted);
        if !self.owners.contains_key(&path) {
            self.owners.insert(path.clone(), service.to_owned());
        }
        if self.writes.busy(&path, now) {
            return;
        }
        let request = match self.written.get(&path) {
            None => post(resource.collection(namespace(&wanted)), &wanted),
            Some(there) => {
                let same =
                    ["subsets", "endpoints", "ports", "addressType"].iter().all(|f| there.get(f) == wanted.get(f));
                if same {
                    return;
                }
                let mut body = wanted;
                body["metadata"]["resourceVersion"] = there["metadata"]["resourceVersion"].clone();
                put(path.as_str(), &body)
            }
        };
        out.push(self.writes.send(&path, request));
    }

    /// The Endpoints object and the EndpointSlice of a Service.
    fn wanted(&self, service: &Value) -> (Value, Value) {
        let not_ready_too = service.pointer("/spec/publishNotReadyAddresses").and_then(Value::as_bool).unwrap_or(false);
        let selector = service.pointer("/spec/selector").unwrap_or(&Value::Null);
        let rarest = pairs(service, "/spec/selector").min_by_key(|pair| self.labelled.count(pair));
        let pods = rarest.iter().flat_map(|pair| self.labelled.get(pair)).filter_map(|uid| self.pods.get(uid));
        let chosen = pods.filter(|p| {
            selects(selector, p.pointer("/metadata/labels"))
                && !text(p, "/status/podIP").is_empty()
                && !matches!(text(p, "/status/phase"), "Succeeded" | "Failed")
        });
        let (mut ready, mut unready, mut entries) = (Vec::new(), Vec::new(), Vec::new());
        for pod in chosen {
            let is_ready = condition(pod, "Ready").is_some_and(|c| text(c, "/status") == "True");
            let serves = (is_ready && !deleting(pod)) || not_ready_too;
            let target = json!({"kind": "Pod", "name": name(pod), "namespace": namespace(pod), "uid": uid(pod)});
            let address =
                json!({"ip": text(pod, "/status/podIP"), "nodeName": text(pod, "/spec/nodeName"), "targetRef": target});
            if serves {
                ready.push(address);
            } else {
                unready.push(address);
            }
            entries.push(json!({
                "addresses": [text(pod, "/status/podIP")],
                "conditions": {"ready": serves, "serving": is_ready || not_ready_too, "terminating": deleting(pod)},
                "nodeName": text(pod, "/spec/nodeName"), "targetRef": target,
            }));
        }
        let ports: Vec<Value> = list(service, "/spec/ports").iter().map(port).collect();
        let mut subset = json!({});
        for (field, addresses) in [("addresses", ready), ("notReadyAddresses", unready)] {
            if !addresses.is_empty() {
                subset[field] = json!(addresses);
            }
        }
        let any = subset.as_object().is_some_and(|s| !s.is_empty());
        if !ports.is_empty() {
            subset["ports"] = json!(ports);
        }
        let mut object = json!({
            "apiVersion": "v1", "kind": "Endpoints",
            "metadata": {"name": name(service), "namespace": namespace(service)},
        });
        if any {
            object["subsets"] = json!([subset]);
        }
        let slice = json!({
            "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
            "metadata": {
                "name": format!("{}-{}", name(service).get(..57).unwrap_or(name(service)), suffix(fnv(&[uid(service)]))),
                "namespace": namespace(service),
                "labels": {
                    "kubernetes.io/service-name": name(service),
                    "endpointslice.kubernetes.io/managed-by": "endpointslice-controller.k8s.io",
                },
                "ownerReferences": [{
                    "apiVersion": "v1", "kind": "Service", "name": name(service), "uid": uid(service), "controller": true,
                    "blockOwnerDeletion": true,
                }],
            },
            "endpoints": entries, "ports": ports,
        });
        // Endpoints have no owner on a real server: their controller removes them. Here the collector does.
        object["metadata"]["ownerReferences"] = slice["metadata"]["ownerReferences"].clone();
        (object, slice)
    }
}

/// Everything about a pod that an endpoint depends on.
fn address(pod: &Value) -> (&str, &str, &str, bool, bool, Option<&Value>) {
    let ready = condition(pod, "Ready").is_some_and(|c| text(c, "/status") == "True");
    let (ip, node, phase) = (text(pod, "/status/podIP"), text(pod, "/spec/nodeName"), text(pod, "/status/phase"));
    (ip, node, phase, ready, deleting(pod), pod.pointer("/metadata/labels"))
}

fn port(of_service: &Value) -> Value {
    let number = match of_service.get("targetPort") {
        Some(Value::Number(target)) if target.as_i64() != Some(0) => json!(target),
        // A name is a matter of the pod's containers; the Service's own number stands for it here.
        _ => of_service.get("port").cloned().unwrap_or(Value::Null),
    };
    let protocol = match text(of_service, "/protocol") {
        "" => "TCP",
        protocol => protocol,
    };
    let mut out = json!({"port": number, "protocol": protocol});
    if !text(of_service, "/name").is_empty() {
        out["name"] = of_service["name"].clone();
    }
    out
}
