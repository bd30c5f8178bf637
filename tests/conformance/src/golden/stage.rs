//! The simulated fleet of one case: a hub, one member with the surroundings of the recordings instead of the usual ones, and
//! one replica of the real controller.
//! Must not know steps, nor what the controller ought to do.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Result, ensure};
use kit::fleet::{self, MemberPlan};
use kit::link::LinkProfile;
use kit::site::{self, Site, collection};
use kit::world::{BEGIN, World};
use rayfleet::api::wire::{Method, Reply, Request};
use rayfleet::api::{Cluster, crds};
use rayfleet::sandbox::apiserver::{ApiServer, Options};
use rayfleet::sandbox::world::Surrounding;
use rayfleet::sandbox::world::collector::Collector;
use rayfleet::sandbox::world::endpoints::Endpoints;
use rayfleet::sandbox::world::jobs::Jobs;
use rayfleet::sandbox::world::namespaces::Namespaces;
use rayfleet::sandbox::world::object::{self, uid};
use serde_json::{Value, json};

use super::cases::{NAMESPACE, Simulation};
use super::dashboard::Dashboard;
use super::node::{self, Life, NODE};
use crate::samples::stranger;

/// The member's name.
pub(super) const MEMBER: &str = "here";
const SEED: u64 = 1;
/// One way between replica and server, ms.
const WAY_MS: u64 = 2;
const JSON: &str = "application/json";
const JSON_PATCH: &str = "application/json-patch+json";
const MERGE_PATCH: &str = "application/merge-patch+json";

/// The fleet, and how its surroundings behave at present.
pub(super) struct Stage {
    /// The world.
    pub(super) world: World,
    /// No pod is started.
    pub(super) holds_pods: bool,
    /// What becomes of submitters, where it is not the usual.
    pub(super) submitters: Option<String>,
    /// Pods that were started so far: the next one's address follows from it.
    pub(super) started: u32,
    /// Pods by UID, in the order in which they came.
    born: BTreeMap<String, usize>,
}

impl Stage {
    /// A fleet at rest whose member serves every kind of these objects. Kinds that are nobody's here take everything.
    pub(super) fn new(objects: &[Value], simulation: &Simulation) -> Result<Self> {
        let mut definitions: Vec<Value> = crds::member().into_iter().chain(crds::volcano()).collect();
        definitions.extend(strangers(objects, &definitions));
        let serve = simulation.app_states.is_some() || simulation.proxy_health.is_some();
        ensure!(!serve, "Serve applications are no part of these surroundings yet");
        let mut dashboard = Dashboard::default();
        dashboard.fails_with = simulation.dash_fail;
        if let Some(states) = &simulation.job_states {
            dashboard.states.clone_from(states);
        }
        let cores: Vec<Box<dyn Surrounding>> = vec![
            Box::new(Collector::default()),
            Box::new(Namespaces::default()),
            Box::new(Jobs::default()),
            Box::new(Endpoints::default()),
            Box::new(dashboard),
        ];
        let there = [
            json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": NAMESPACE } }),
            json!({ "apiVersion": "v1", "kind": "Node", "metadata": { "name": NODE } }),
        ];
        let hub = fleet::hub(SEED, &[MemberPlan::new(MEMBER, 1, 1)], BEGIN);
        let member = Site::new(
            Cluster::Member(MEMBER.into()),
            SEED + 1,
            &site::definitions(&definitions, BEGIN),
            &there,
            cores,
            BEGIN,
        );
        let mut world = World::of_sites(SEED, [hub, member], 1);
        // Every message takes as long: what is sent first is there first, as for an operator that waits for each answer.
        world.links(&LinkProfile { delay_min_ms: WAY_MS, delay_max_ms: WAY_MS, ..LinkProfile::calm() });
        let (holds_pods, submitters) = (simulation.hold_pods == Some(true), simulation.submit_pod_result.clone());
        let mut stage = Self { world, holds_pods, submitters, started: 0, born: BTreeMap::new() };
        let registered = |w: &World| {
            let cluster = w.hub(&format!("/apis/rayfleet.io/v1alpha1/memberclusters/{MEMBER}"));
            cluster.is_some_and(|c| c["status"]["clusterId"].as_str().is_some_and(|id| !id.is_empty()))
        };
        ensure!(stage.world.until(Duration::from_secs(120), registered), "the member is never registered");
        stage.world.run_for(Duration::from_secs(10));
        let account = format!("/api/v1/namespaces/{NAMESPACE}/serviceaccounts");
        if stage.world.site(MEMBER).get(&format!("{account}/default")).is_none() {
            let body = json!({ "apiVersion": "v1", "kind": "ServiceAccount", "metadata": { "name": "default" } });
            stage.send(Method::Post, &account, JSON, &body);
        }
        Ok(stage)
    }

    /// The dashboard behind all Services.
    pub(super) fn dashboard(&mut self) -> &mut Dashboard {
        self.world.site_mut(MEMBER).core_mut::<Dashboard>().expect("it was put there")
    }

    /// A person creates an object; what the server says.
    pub(super) fn apply(&mut self, object: &Value) -> Reply {
        let path = collection(&self.world.site(MEMBER).server, object);
        self.send(Method::Post, &path, JSON, object)
    }

    /// A person patches an object: a list is a JSON patch, a map a merge patch.
    pub(super) fn patch(&mut self, path: &str, patch: &Value) -> Reply {
        let content_type = if patch.is_array() { JSON_PATCH } else { MERGE_PATCH };
        self.send(Method::Patch, path, content_type, patch)
    }

    /// A person deletes an object, and the collector its children.
    pub(super) fn delete(&mut self, path: &str) -> Reply {
        let options = json!({ "apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": "Background" });
        self.send(Method::Delete, path, JSON, &options)
    }

    fn send(&mut self, method: Method, path: &str, content_type: &str, body: &Value) -> Reply {
        let request = Request::new(method, path, content_type, body.to_string().into_bytes().into());
        self.world.send(MEMBER, &request)
    }

    /// Lets time pass.
    pub(super) fn pass(&mut self, time: Duration) {
        self.world.run_for(time);
        self.pods();
    }

    /// Pods of the namespace, in order of creation.
    pub(super) fn pods(&mut self) -> Vec<Value> {
        let of = |object: &&Value| object["kind"] == "Pod" && object["metadata"]["namespace"] == NAMESPACE;
        let mut pods: Vec<Value> = self.world.site(MEMBER).objects().filter(of).cloned().collect();
        // Of those that were not seen before nothing was written yet.
        pods.sort_by_key(|pod| (self.born.get(uid(pod)).copied().unwrap_or(usize::MAX), object::version(pod)));
        for pod in &pods {
            let next = self.born.len();
            self.born.entry(uid(pod).to_owned()).or_insert(next);
        }
        pods
    }

    /// Binds a pod and lets it run.
    pub(super) fn start(&mut self, pod: &Value) {
        self.started += 1;
        let path = path(pod);
        let binding = json!({
            "apiVersion": "v1", "kind": "Binding", "metadata": { "name": pod["metadata"]["name"] },
            "target": { "apiVersion": "v1", "kind": "Node", "name": NODE },
        });
        self.must(Method::Post, &format!("{path}/binding"), &binding);
        let address = format!("10.244.0.{}", self.started);
        self.tell(pod, Life::Running, &address);
        let id = node::submission(pod).to_owned();
        if node::submits(pod) && self.submitters.as_deref() != Some("Failed") && !id.is_empty() {
            self.dashboard().register(&id, "");
        }
    }

    /// All containers of a pod end.
    pub(super) fn end(&mut self, pod: &Value, code: i32) {
        // It may have been started after it was looked at.
        let present = self.pods().into_iter().find(|one| uid(one) == uid(pod));
        let address = present.as_ref().map_or("", |pod| pod["status"]["podIP"].as_str().unwrap_or_default());
        self.tell(pod, Life::Ended(code), address);
    }

    /// The submitter beside a head ends.
    pub(super) fn end_sidecar(&mut self, pod: &Value, code: i32) {
        let address = pod["status"]["podIP"].as_str().unwrap_or_default().to_owned();
        self.tell(pod, Life::Submitted(code), &address);
    }

    fn tell(&mut self, pod: &Value, life: Life, address: &str) {
        let status = node::status(pod, life, address, self.world.now);
        self.must(Method::Patch, &format!("{}/status", path(pod)), &json!({ "status": status }));
    }

    /// A Gateway of the namespace, else an HTTPRoute, that its controller has said nothing about.
    pub(super) fn unanswered_route(&self) -> Option<Value> {
        let objects =
            || self.world.site(MEMBER).objects().filter(|object| object["metadata"]["namespace"] == NAMESPACE);
        let silent = |object: &&Value, kind: &str| object["kind"] == kind && object["status"].is_null();
        let gateway = objects().find(|object| silent(object, "Gateway"));
        gateway.or_else(|| objects().find(|object| silent(object, "HTTPRoute"))).cloned()
    }

    /// A Gateway becomes accepted and programmed, an HTTPRoute accepted with its references resolved.
    pub(super) fn accept_route(&mut self, route: &Value) {
        let condition = |kind: &str| json!({ "type": kind, "status": "True", "reason": kind, "message": "" });
        let status = if route["kind"] == "Gateway" {
            json!({ "conditions": [condition("Accepted"), condition("Programmed")] })
        } else {
            let conditions = json!([condition("Accepted"), condition("ResolvedRefs")]);
            json!({ "parents": [{ "conditions": conditions, "controllerName": "example.com/gateway" }] })
        };
        let collection = collection(&self.world.site(MEMBER).server, route);
        let path = format!("{collection}/{}", route["metadata"]["name"].as_str().unwrap_or_default());
        self.must(Method::Patch, &path, &json!({ "status": status }));
    }

    /// A deleted pod is gone.
    pub(super) fn remove(&mut self, pod: &Value) {
        let options = json!({ "apiVersion": "v1", "kind": "DeleteOptions", "gracePeriodSeconds": 0 });
        self.must(Method::Delete, &path(pod), &options);
    }

    fn must(&mut self, method: Method, path: &str, body: &Value) {
        let content_type = if method == Method::Patch { MERGE_PATCH } else { JSON };
        let reply = self.send(method, path, content_type, body);
        let text = String::from_utf8_lossy(&reply.body);
        assert!(reply.is_success(), "the node's {} {path}: {text}", method.as_str());
    }
}

/// Path of an object of a built-in kind of the core group.
fn path(pod: &Value) -> String {
    format!("/api/v1/namespaces/{NAMESPACE}/pods/{}", pod["metadata"]["name"].as_str().unwrap_or_default())
}

/// Definitions of kinds that neither a server nor these definitions have.
fn strangers(objects: &[Value], definitions: &[Value]) -> Vec<Value> {
    let server = ApiServer::new(Options::default());
    let mut made: Vec<Value> = Vec::new();
    for object in objects {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let (api_version, kind) = (text(&object["apiVersion"]), text(&object["kind"]));
        let Some((group, version)) = api_version.split_once('/').filter(|(group, _)| group.contains('.')) else {
            continue;
        };
        let defines = |d: &Value| d["spec"]["group"] == group && d["spec"]["names"]["kind"] == kind.as_str();
        let known = server.registry().find_kind(&api_version, &kind).is_some();
        if !known && !definitions.iter().chain(&made).any(defines) {
            made.push(stranger(group, version, &kind));
        }
    }
    made
}
