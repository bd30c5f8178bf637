//! What the simulated clusters are made of: CRDs, nodes, queues, and the cores around each API server.
//! Must not know stories.

use std::collections::BTreeMap;
use std::sync::OnceLock;
use std::time::Duration;

use rayfleet::api::{Cluster, Time, crds};
use rayfleet::sandbox::apiserver::ApiServer;
use rayfleet::sandbox::world::Surrounding;
use rayfleet::sandbox::world::collector::Collector;
use rayfleet::sandbox::world::endpoints::Endpoints;
use rayfleet::sandbox::world::jobs::Jobs;
use rayfleet::sandbox::world::namespaces::Namespaces;
use rayfleet::sandbox::world::nodes::Nodes;
use rayfleet::sandbox::world::scheduler::kube::DefaultScheduler;
use rayfleet::sandbox::world::scheduler::{Settings, Volcano};
use rayfleet::sandbox::world::simulated::Profile;
use serde_json::{Value, json};

use crate::site::{self, Site};
use crate::world::BEGIN;

/// One member of the simulated fleet.
#[derive(Clone, Debug)]
pub struct MemberPlan {
    /// Name.
    pub name: String,
    /// Nodes.
    pub nodes: u32,
    /// CPUs of a node.
    pub cpus: u32,
    /// Queues: name and capability in CPUs (`None` = unlimited).
    pub queues: Vec<(String, Option<u32>)>,
    /// Volcano's answers come this much late, ms.
    pub scheduler_delay_ms: u64,
    /// Memory of a node, GiB.
    pub memory_gib: u32,
    /// Other resources of a node: name and quantity.
    pub devices: BTreeMap<String, String>,
    /// Labels of nodes: the first node has the first ones, and so on, then from the beginning.
    pub labels: Vec<BTreeMap<String, String>>,
}

impl MemberPlan {
    /// A member with one queue `ml` that may use all of it.
    pub fn new(name: &str, nodes: u32, cpus: u32) -> Self {
        Self {
            name: name.to_owned(),
            nodes,
            cpus,
            queues: vec![("ml".to_owned(), Some(nodes * cpus))],
            scheduler_delay_ms: 0,
            memory_gib: 64,
            devices: BTreeMap::new(),
            labels: Vec::new(),
        }
    }

    /// With so much memory in each node.
    pub fn memory_gib(mut self, memory_gib: u32) -> Self {
        self.memory_gib = memory_gib;
        self
    }

    /// With so much of another resource in each node.
    pub fn device(mut self, resource: &str, quantity: &str) -> Self {
        self.devices.insert(resource.to_owned(), quantity.to_owned());
        self
    }

    /// With nodes of these labels, beside those of other labels.
    pub fn labelled(mut self, labels: BTreeMap<String, String>) -> Self {
        self.labels.push(labels);
        self
    }

    /// With another queue.
    pub fn queue(mut self, name: &str, cpus: u32) -> Self {
        self.queues.retain(|(n, _)| n != name);
        self.queues.push((name.to_owned(), Some(cpus)));
        self
    }

    /// With a scheduler that answers late.
    pub fn late(mut self, ms: u64) -> Self {
        self.scheduler_delay_ms = ms;
        self
    }
}

fn namespace(name: &str) -> Value {
    json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": name } })
}

/// The hub: our CRDs, one `MemberCluster` per member, garbage collection and namespaces.
pub fn hub(seed: u64, members: &[MemberPlan], now: Time) -> Site {
    let mut objects = vec![namespace("rayfleet-system")];
    for plan in members {
        objects.push(json!({
            "apiVersion": "rayfleet.io/v1alpha1",
            "kind": "MemberCluster",
            "metadata": { "name": plan.name },
            "spec": { "kubeconfigSecret": { "namespace": "rayfleet-system", "name": format!("member-{}", plan.name) } },
        }));
    }
    let cores: Vec<Box<dyn Surrounding>> = vec![Box::new(Collector::default()), Box::new(Namespaces::default())];
    static DEFINITIONS: OnceLock<ApiServer> = OnceLock::new();
    let definitions = DEFINITIONS.get_or_init(|| site::definitions(&crds::hub(), BEGIN));
    Site::new(Cluster::Hub, seed, definitions, &objects, cores, now)
}

/// A member: our CRDs and Volcano's, nodes, queues, and everything that Kubernetes and Volcano do there.
pub fn member(seed: u64, index: usize, plan: &MemberPlan, now: Time) -> Site {
    let mut objects = Vec::new();
    for (name, cpus) in &plan.queues {
        let mut spec = json!({ "weight": 1 });
        if let Some(cpus) = cpus {
            spec["capability"] = json!({ "cpu": cpus.to_string() });
        }
        objects.push(json!({
            "apiVersion": "scheduling.volcano.sh/v1beta1",
            "kind": "Queue",
            "metadata": { "name": name },
            "spec": spec,
        }));
    }
    let nodes = (0..plan.nodes as usize).map(|i| node(plan, i)).collect();
    let settings = Settings { delay: Duration::from_millis(plan.scheduler_delay_ms), ..Settings::default() };
    let cores: Vec<Box<dyn Surrounding>> = vec![
        Box::new(Collector::default()),
        Box::new(Namespaces::default()),
        Box::new(Jobs::default()),
        Box::new(Endpoints::default()),
        Box::new(Volcano::new(settings)),
        Box::new(DefaultScheduler::default()),
        Box::new(Nodes::simulated(nodes, index as u8, Profile::default())),
    ];
    static DEFINITIONS: OnceLock<ApiServer> = OnceLock::new();
    let definitions = DEFINITIONS.get_or_init(|| {
        let crds: Vec<Value> = crds::member().into_iter().chain(crds::volcano()).collect();
        site::definitions(&crds, BEGIN)
    });
    let cluster = Cluster::Member(plan.name.as_str().into());
    Site::new(cluster, seed.wrapping_add(1 + index as u64), definitions, &objects, cores, now)
}

fn node(plan: &MemberPlan, index: usize) -> Value {
    let name = format!("{}-{index}", plan.name);
    let memory = format!("{}Gi", plan.memory_gib);
    let mut resources = json!({ "cpu": plan.cpus.to_string(), "memory": memory, "pods": "110" });
    for (resource, quantity) in &plan.devices {
        resources[resource] = json!(quantity);
    }
    let mut labels = json!({ "kubernetes.io/hostname": name });
    for (key, value) in plan.labels.iter().cycle().nth(index).into_iter().flatten() {
        labels[key] = json!(value);
    }
    json!({
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": { "name": name, "labels": labels },
        "status": {
            "capacity": resources,
            "allocatable": resources,
            "conditions": [{ "type": "Ready", "status": "True", "reason": "KubeletReady" }],
        },
    })
}
