//! The nodes of one cluster as a client of its API server: Node objects, the kubelets, and simulated containers with
//! their dashboards, unless real processes stand behind the pods; then orders are fetched and events pushed from outside.
//! Must not know real processes.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use serde_json::{Value, json};

use super::container::{Order, PodEvent};
use super::dashboard::Dashboard;
use super::kubelet::Kubelet;
use super::object::{bytes, condition, list, merge, name, post, text};
use super::resource::Resource;
use super::simulated::{Profile, Simulated};
use super::{Surrounding, WorldEvent, WorldRequest};
use crate::api::wire::{Reply, Request};
use crate::api::{Kind, Time};
use crate::sandbox::apiserver::{LogCall, ProxyCall};

/// Ids of the requests that create Node objects; the kubelets' own begin at 1.
const NODE_IDS: u64 = 1 << 62;
const NOT_READY: &str = "node.kubernetes.io/not-ready";

/// A Service that whoever runs real containers must know.
#[derive(Clone, Debug, PartialEq)]
pub enum ServiceChange {
    /// It is new or has changed.
    Applied(Arc<Value>),
    /// It is gone.
    Gone(Arc<Value>),
}

/// The nodes of one cluster.
#[derive(Debug)]
pub struct Nodes {
    watches: [Arc<Resource>; 3],
    objects: Vec<Value>,
    seen: BTreeSet<String>,
    kubelet: Kubelet,
    simulated: Option<Simulated>,
    /// From whoever runs real containers.
    told: VecDeque<PodEvent>,
    /// For whoever runs real containers.
    services: VecDeque<ServiceChange>,
    /// Requests about nodes so far.
    requests: u64,
}

impl Nodes {
    /// Nodes with simulated containers. `objects` are complete Node objects, made where they are missing at the start;
    /// `network` tells the pod addresses of clusters apart.
    pub fn simulated(objects: Vec<Value>, network: u8, profile: Profile) -> Self {
        Self { simulated: Some(Simulated::new(profile)), ..Self::real(objects, network) }
    }

    /// Nodes whose containers are run by somebody else: see [`Nodes::take_orders`] and [`Nodes::push`].
    pub fn real(objects: Vec<Value>, network: u8) -> Self {
        let mut kubelet = Kubelet::new(network);
        for object in &objects {
            kubelet.node(name(object));
        }
        Self {
            watches: [Resource::of(Kind::Node), Resource::of(Kind::Service), Resource::of(Kind::Pod)],
            objects,
            seen: BTreeSet::new(),
            kubelet,
            simulated: None,
            told: VecDeque::new(),
            services: VecDeque::new(),
            requests: 0,
        }
    }

    /// The orders since the last call, in order; none where containers are simulated.
    pub fn take_orders(&mut self) -> Vec<Order> {
        self.kubelet.take_orders()
    }

    /// The Services that changed since the last call; none where containers are simulated.
    pub fn take_services(&mut self) -> Vec<ServiceChange> {
        self.services.drain(..).collect()
    }

    /// What whoever runs the containers tells. Taken in at the next tick, which is due at once.
    pub fn push(&mut self, event: PodEvent) {
        self.told.push_back(event);
    }

    /// The dashboards of simulated heads.
    pub fn dashboard(&self) -> Option<&Dashboard> {
        self.simulated.as_ref().map(|s| &s.dashboard)
    }

    /// What the dashboard of a simulated head at this address answers; `None` where there is none.
    pub fn dashboard_at(&mut self, ip: &str, request: &Request, now: Time) -> Option<Reply> {
        let simulated = self.simulated.as_mut()?;
        let head = simulated.head_at(ip)?.to_owned();
        simulated.dashboard.answer(&head, request.method, &request.target, &request.body, now)
    }

    /// Lets a simulated container end: for faults. The pod is named by its UID.
    pub fn crash(&mut self, uid: &str, container: &str, exit_code: i32, now: Time) {
        if let Some(simulated) = &mut self.simulated {
            simulated.crash(uid, container, exit_code, now);
        }
    }

    /// Orders to the simulated containers, and what happens there by now, until both are quiet.
    fn pump(&mut self, now: Time, out: &mut Vec<WorldRequest>) {
        while let Some(event) = self.told.pop_front() {
            out.extend(self.kubelet.told(&event, now));
        }
        let Some(simulated) = &mut self.simulated else { return };
        loop {
            for order in self.kubelet.take_orders() {
                simulated.order(&order, now);
            }
            let happened = simulated.happened(now);
            if happened.is_empty() {
                return;
            }
            for event in happened {
                out.extend(self.kubelet.told(&event, now));
            }
        }
    }

    fn missing_nodes(&mut self) -> Vec<WorldRequest> {
        let target = Resource::of(Kind::Node).collection("");
        let missing = self.objects.iter().filter(|o| !self.seen.contains(name(o)));
        let requests: Vec<_> = missing.map(|o| post(target.as_str(), o)).collect();
        requests.into_iter().map(|request| self.unanswered(request)).collect()
    }

    /// Every new node is tainted at admission until it is ready; these are ready from the start.
    fn untaint(&mut self, node: &Value) -> Option<WorldRequest> {
        let taints = list(node, "/spec/taints");
        let rest: Vec<&Value> = taints.iter().filter(|t| text(t, "/key") != NOT_READY).collect();
        let ready = condition(node, "Ready").is_some_and(|c| text(c, "/status") == "True");
        if !ready || rest.len() == taints.len() {
            return None;
        }
        let rest = if rest.is_empty() { Value::Null } else { json!(rest) };
        let version = text(node, "/metadata/resourceVersion");
        let patch = json!({"metadata": {"resourceVersion": version}, "spec": {"taints": rest}});
        Some(self.unanswered(merge(Resource::of(Kind::Node).path("", name(node)), &patch)))
    }

    /// A request whose outcome shows in the node itself.
    fn unanswered(&mut self, request: Request) -> WorldRequest {
        self.requests += 1;
        WorldRequest { id: NODE_IDS + self.requests, request }
    }
}

impl Surrounding for Nodes {
    fn name(&self) -> &'static str {
        "kubelet"
    }

    fn watches(&self) -> &[Arc<Resource>] {
        &self.watches
    }

    fn handle(&mut self, event: &WorldEvent, now: Time) -> Vec<WorldRequest> {
        let mut out = Vec::new();
        match event {
            WorldEvent::Applied(resource, object) => match (resource.kind.as_str(), &mut self.simulated) {
                ("Node", _) => {
                    self.seen.insert(name(object).to_owned());
                    self.kubelet.node(name(object));
                    out.extend(self.untaint(object));
                }
                ("Service", Some(simulated)) => simulated.service(object),
                ("Service", None) => self.services.push_back(ServiceChange::Applied(object.clone())),
                _ => {}
            },
            WorldEvent::Deleted(resource, object) if resource.kind == "Service" => match &mut self.simulated {
                Some(simulated) => simulated.service_gone(object),
                None => self.services.push_back(ServiceChange::Gone(object.clone())),
            },
            WorldEvent::Synced(resource) if resource.kind == "Node" => out = self.missing_nodes(),
            _ => {}
        }
        out.extend(self.kubelet.handle(event, now));
        self.pump(now, &mut out);
        out
    }

    fn next_tick(&self) -> Option<Time> {
        if !self.told.is_empty() {
            return Some(Time(i64::MIN));
        }
        let simulated = self.simulated.as_ref().and_then(Simulated::next_at);
        self.kubelet.next_tick().into_iter().chain(simulated).min()
    }

    fn proxy(&mut self, call: &ProxyCall, now: Time) -> Option<Reply> {
        let simulated = self.simulated.as_mut()?;
        let head = simulated.head_of(&call.namespace, &call.service).map(str::to_owned);
        let answer = head.and_then(|head| {
            simulated.dashboard.answer(&head, call.request.method, &call.target, &call.request.body, now)
        });
        Some(answer.unwrap_or_else(|| no_endpoints(&call.service)))
    }

    fn log(&mut self, call: &LogCall, now: Time) -> Option<Reply> {
        let text = self.simulated.as_ref()?.log(&call.namespace, &call.pod, &call.container, now)?;
        let lines: Vec<&str> = text.lines().collect();
        let from = call.tail_lines.map_or(0, |n| lines.len().saturating_sub(n));
        let text: String = lines[from..].iter().flat_map(|l| [l, "\n"]).collect();
        let headers = vec![("content-type".to_owned(), "text/plain".to_owned())];
        Some(Reply { status: 200, headers, body: Arc::from(text.into_bytes()) })
    }
}

/// As recorded: a Service without ready pods.
fn no_endpoints(service: &str) -> Reply {
    let status = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": format!("no endpoints available for service \"{service}\""),
        "reason": "ServiceUnavailable", "code": 503,
    });
    let headers = vec![("content-type".to_owned(), "application/json".to_owned())];
    Reply { status: 503, headers, body: bytes(&status) }
}
