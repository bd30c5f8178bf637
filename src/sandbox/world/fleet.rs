//! What a sandbox's fleet is made of: members with nodes and queues, from a YAML file or by default; and from that the
//! objects that stand in each cluster at the start, and the cores around it.
//! Must not know how clusters run.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use thiserror::Error;

use super::Surrounding;
use super::collector::Collector;
use super::endpoints::Endpoints;
use super::jobs::Jobs;
use super::namespaces::Namespaces;
use super::nodes::Nodes;
use super::object::{post, text};
use super::resource::Resource;
use super::scheduler::kube::DefaultScheduler;
use super::scheduler::{Configuration, QueuePlugin, Settings, Volcano};
use super::simulated::Profile;
use crate::api::crds;
use crate::api::quantity::Quantity;
use crate::api::wire::Request;
use crate::api::{Kind, MemberName};

/// A sandbox's fleet. The hub has no nodes and needs no description.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Fleet {
    /// Member clusters, at least one.
    pub members: Vec<Member>,
    /// PriorityClasses on the hub and on every member: name → value.
    #[serde(default)]
    pub priority_classes: BTreeMap<String, i32>,
}

/// One member.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Member {
    /// Its name in the fleet.
    pub name: String,
    /// Its nodes.
    pub nodes: Vec<NodeSpec>,
    /// Its Volcano queues besides `default` and `root`.
    #[serde(default)]
    pub queues: Vec<QueueSpec>,
    /// Its scheduler looks at a PodGroup only when it is this old, in seconds.
    #[serde(default)]
    pub scheduler_delay_seconds: u64,
    /// Time between sessions of its scheduler, in milliseconds.
    #[serde(default = "default_period_ms")]
    pub scheduler_period_ms: u64,
    /// Factor of the overcommit plugin; 0 turns the plugin off.
    #[serde(default = "default_factor")]
    pub overcommit_factor: f64,
    /// Which plugin limits queues.
    #[serde(default)]
    pub queue_plugin: Plugin,
}

/// Which plugin limits queues.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Plugin {
    /// Up to its capability.
    #[default]
    Capacity,
    /// Up to its share by weight; Volcano's own default.
    Proportion,
}

/// Equal nodes.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct NodeSpec {
    /// How many.
    #[serde(default = "one")]
    pub count: u32,
    /// Processors of each.
    pub cpu: String,
    /// Memory of each.
    pub memory: String,
    /// GPUs of each (`nvidia.com/gpu`).
    #[serde(default)]
    pub gpu: u32,
    /// Labels besides the host name.
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
    /// Taints as Kubernetes has them.
    #[serde(default)]
    pub taints: Vec<Value>,
}

/// A queue.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct QueueSpec {
    /// Its name.
    pub name: String,
    /// Its weight.
    #[serde(default = "one")]
    pub weight: u32,
    /// Its priority.
    #[serde(default)]
    pub priority: u32,
    /// Its upper limit.
    #[serde(default)]
    pub capability: BTreeMap<String, String>,
    /// What is kept free for it.
    #[serde(default)]
    pub guarantee: BTreeMap<String, String>,
}

fn one() -> u32 {
    1
}

fn default_period_ms() -> u64 {
    1000
}

fn default_factor() -> f64 {
    1.2
}

/// What is wrong with a fleet's file, for the person who wrote it.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum FleetError {
    /// Not YAML, or not of this shape.
    #[error("the fleet's description cannot be read: {0}")]
    Yaml(String),
    /// A value that cannot be.
    #[error("{place}: {why}")]
    Value {
        /// `members[eu].nodes[0].cpu`
        place: String,
        /// In words.
        why: String,
    },
}

impl Default for Fleet {
    /// Three members whose queue `ml` differs.
    fn default() -> Self {
        let member = |name: &str, nodes: u32, cpu: &str, memory: &str| Member {
            name: name.to_owned(),
            nodes: vec![NodeSpec {
                count: nodes,
                cpu: "8".to_owned(),
                memory: "32Gi".to_owned(),
                gpu: 0,
                labels: BTreeMap::new(),
                taints: Vec::new(),
            }],
            queues: vec![QueueSpec {
                name: "ml".to_owned(),
                weight: 1,
                priority: 0,
                capability: [("cpu", cpu), ("memory", memory)].map(|(k, v)| (k.to_owned(), v.to_owned())).into(),
                guarantee: BTreeMap::new(),
            }],
            scheduler_delay_seconds: 0,
            scheduler_period_ms: default_period_ms(),
            overcommit_factor: default_factor(),
            queue_plugin: Plugin::Capacity,
        };
        Self {
            members: vec![member("eu", 1, "4", "16Gi"), member("us", 2, "12", "48Gi"), member("ap", 1, "6", "24Gi")],
            priority_classes: BTreeMap::new(),
        }
    }
}

impl Fleet {
    /// From YAML; says where it is wrong.
    pub fn parse(yaml: &str) -> Result<Self, FleetError> {
        let fleet: Fleet = serde_saphyr::from_str(yaml).map_err(|e| FleetError::Yaml(e.to_string()))?;
        fleet.check()?;
        Ok(fleet)
    }

    /// `count` members: the default ones first, then more like them with numbers.
    pub fn of_size(count: usize) -> Self {
        let mut fleet = Self::default();
        let known = fleet.members.clone();
        while fleet.members.len() < count {
            let at = fleet.members.len();
            let mut next = known[at % known.len()].clone();
            next.name = format!("{}-{}", next.name, at / known.len() + 1);
            fleet.members.push(next);
        }
        fleet.members.truncate(count);
        fleet
    }

    fn check(&self) -> Result<(), FleetError> {
        let wrong = |place: String, why: &str| Err(FleetError::Value { place, why: why.to_owned() });
        if self.members.is_empty() {
            return wrong("members".to_owned(), "at least one is needed");
        }
        let mut names = std::collections::BTreeSet::new();
        for member in &self.members {
            let at = format!("members[{}]", member.name);
            if !is_name(&member.name) || member.name == "hub" {
                return wrong(at, "a name has lower-case letters, digits and dashes, at most 40, and is not hub");
            }
            if !names.insert(&member.name) {
                return wrong(at, "the name is there twice");
            }
            if !member.overcommit_factor.is_finite() || member.overcommit_factor < 0.0 {
                return wrong(format!("{at}.overcommitFactor"), "must be 0 (off) or a positive number");
            }
            for (n, node) in member.nodes.iter().enumerate() {
                check_amounts(&format!("{at}.nodes[{n}]"), [("cpu", &node.cpu), ("memory", &node.memory)])?;
            }
            for queue in &member.queues {
                let at = format!("{at}.queues[{}]", queue.name);
                if !is_name(&queue.name) || queue.name == "root" {
                    return wrong(at, "a name has lower-case letters, digits and dashes, at most 40, and is not root");
                }
                if queue.weight == 0 {
                    return wrong(format!("{at}.weight"), "must be at least 1");
                }
                for (list, amounts) in [("capability", &queue.capability), ("guarantee", &queue.guarantee)] {
                    check_amounts(&format!("{at}.{list}"), amounts.iter().map(|(k, v)| (k.as_str(), v)))?;
                }
            }
        }
        Ok(())
    }

    /// What is created on the hub before anything runs, in order. Volcano's kinds too, of which a hub has none: one and
    /// the same kubectl command is right on hub and members.
    pub fn hub_set_up(&self) -> Vec<Request> {
        let mut out: Vec<Request> = crds::hub().iter().chain(&crds::volcano()).map(definition).collect();
        out.extend(self.priorities());
        out
    }

    /// What is created on a member before anything runs, in order. Its nodes come with its kubelets. For the same reason
    /// the fleet's kinds too, of which a member has none.
    pub fn member_set_up(&self, member: &Member) -> Vec<Request> {
        let mut out: Vec<Request> = crds::hub().iter().chain(&crds::volcano()).map(definition).collect();
        out.extend(self.priorities());
        let queues = Resource::of(Kind::Queue).collection("");
        out.extend(member.queues.iter().map(|queue| post(queues.as_str(), &queue.object())));
        let namespaces = Resource::of(Kind::Namespace).collection("");
        out.push(post(
            namespaces,
            &json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "volcano-system"}}),
        ));
        // Where Volcano's chart puts it: whoever wants to know the plugins reads it there.
        let configuration = json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": "volcano-scheduler-configmap", "namespace": "volcano-system"},
            "data": {"volcano-scheduler.conf": member.scheduler_text()},
        });
        out.push(post(Resource::of(Kind::ConfigMap).collection("volcano-system"), &configuration));
        out
    }

    fn priorities(&self) -> impl Iterator<Item = Request> {
        let target = Resource::of(Kind::PriorityClass).collection("");
        self.priority_classes.iter().map(move |(name, value)| {
            let class = json!({
                "apiVersion": Kind::PriorityClass.api_version(), "kind": "PriorityClass", "metadata": {"name": name},
                "value": value,
            });
            post(target.as_str(), &class)
        })
    }
}

impl Member {
    /// Its name as the product has it.
    pub fn member_name(&self) -> MemberName {
        MemberName::from(self.name.as_str())
    }

    /// Its Node objects, ready.
    pub fn node_objects(&self) -> Vec<Value> {
        let each = self.nodes.iter().flat_map(|spec| std::iter::repeat_n(spec, spec.count as usize));
        each.enumerate().map(|(at, spec)| spec.object(&format!("{}-node-{}", self.name, at + 1))).collect()
    }

    /// How its scheduler behaves.
    pub fn scheduler(&self) -> Settings {
        let factor = self.overcommit_factor;
        Settings {
            period: Duration::from_millis(self.scheduler_period_ms.max(1)),
            delay: Duration::from_secs(self.scheduler_delay_seconds),
            configuration: Configuration {
                queue_plugin: match self.queue_plugin {
                    Plugin::Capacity => QueuePlugin::Capacity,
                    Plugin::Proportion => QueuePlugin::Proportion,
                },
                overcommit: (factor > 0.0).then_some(factor),
                ..Configuration::default()
            },
        }
    }

    /// The same as Volcano's configuration text.
    fn scheduler_text(&self) -> String {
        let overcommit = if self.overcommit_factor > 0.0 {
            format!("  - name: overcommit\n    arguments:\n      overcommit-factor: {}\n", self.overcommit_factor)
        } else {
            String::new()
        };
        let limits = match self.queue_plugin {
            Plugin::Capacity => "capacity",
            Plugin::Proportion => "proportion",
        };
        format!(
            "actions: \"enqueue, allocate, backfill\"\ntiers:\n- plugins:\n  - name: priority\n  - name: gang\n- plugins:\n{overcommit}  - name: drf\n  - name: predicates\n  - name: {limits}\n  - name: nodeorder\n  - name: binpack\n"
        )
    }

    /// The cores around this member, with simulated containers. `network` tells pod addresses of members apart.
    pub fn simulated(&self, network: u8, profile: Profile) -> Vec<Box<dyn Surrounding>> {
        self.around(Nodes::simulated(self.node_objects(), network, profile))
    }

    /// The cores around this member, whose containers somebody else runs.
    pub fn real(&self, network: u8) -> Vec<Box<dyn Surrounding>> {
        self.around(Nodes::real(self.node_objects(), network))
    }

    /// The same without Kubernetes' own controllers, for a cluster that has them.
    pub fn simulated_nodes(&self, network: u8, profile: Profile) -> Vec<Box<dyn Surrounding>> {
        self.scheduled(Nodes::simulated(self.node_objects(), network, profile))
    }

    /// The same with containers that somebody else runs.
    pub fn real_nodes(&self, network: u8) -> Vec<Box<dyn Surrounding>> {
        self.scheduled(Nodes::real(self.node_objects(), network))
    }

    fn around(&self, nodes: Nodes) -> Vec<Box<dyn Surrounding>> {
        let mut cores = hub_cores();
        cores.extend(self.scheduled(nodes));
        cores
    }

    fn scheduled(&self, nodes: Nodes) -> Vec<Box<dyn Surrounding>> {
        vec![Box::new(Volcano::new(self.scheduler())), Box::new(DefaultScheduler::default()), Box::new(nodes)]
    }
}

/// The cores around a hub: Kubernetes' own controllers, no scheduler, no nodes.
pub fn hub_cores() -> Vec<Box<dyn Surrounding>> {
    vec![
        Box::new(Collector::default()),
        Box::new(Namespaces::default()),
        Box::new(Jobs::default()),
        Box::new(Endpoints::default()),
    ]
}

impl NodeSpec {
    fn object(&self, name: &str) -> Value {
        let mut amounts = json!({"cpu": self.cpu, "memory": self.memory, "pods": "110"});
        if self.gpu > 0 {
            amounts["nvidia.com/gpu"] = json!(self.gpu.to_string());
        }
        let mut labels =
            json!({"kubernetes.io/hostname": name, "kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64"});
        for (label, value) in &self.labels {
            labels[label] = json!(value);
        }
        let condition = |kind: &str, status: &str, reason: &str| json!({"type": kind, "status": status, "reason": reason, "message": ""});
        json!({
            "apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels},
            "spec": {"taints": self.taints},
            "status": {
                "capacity": amounts, "allocatable": amounts,
                "addresses": [{"type": "Hostname", "address": name}],
                "conditions": [
                    condition("MemoryPressure", "False", "KubeletHasSufficientMemory"),
                    condition("DiskPressure", "False", "KubeletHasNoDiskPressure"),
                    condition("Ready", "True", "KubeletReady"),
                ],
                "nodeInfo": {
                    "architecture": "amd64", "operatingSystem": "linux", "osImage": "RayFleet sandbox",
                    "kubeletVersion": "v1.36.3", "kubeProxyVersion": "", "containerRuntimeVersion": "rayfleet://sandbox",
                    "kernelVersion": "", "machineID": "", "systemUUID": "", "bootID": "",
                },
            },
        })
    }
}

impl QueueSpec {
    fn object(&self) -> Value {
        let mut spec = json!({"weight": self.weight, "reclaimable": true});
        if self.priority > 0 {
            spec["priority"] = json!(self.priority);
        }
        if !self.capability.is_empty() {
            spec["capability"] = json!(self.capability);
        }
        if !self.guarantee.is_empty() {
            spec["guarantee"] = json!({"resource": self.guarantee});
        }
        json!({"apiVersion": Kind::Queue.api_version(), "kind": "Queue", "metadata": {"name": self.name}, "spec": spec})
    }
}

fn definition(crd: &Value) -> Request {
    debug_assert!(text(crd, "/kind") == "CustomResourceDefinition", "only definitions come first");
    post(Resource::definitions().collection(""), crd)
}

fn is_name(name: &str) -> bool {
    let fits = name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-');
    fits && !name.is_empty() && name.len() <= 40 && !name.starts_with('-') && !name.ends_with('-')
}

fn check_amounts<'a>(place: &str, amounts: impl IntoIterator<Item = (&'a str, &'a String)>) -> Result<(), FleetError> {
    for (name, amount) in amounts {
        let place = format!("{place}.{name}");
        match amount.parse::<Quantity>() {
            Ok(quantity) if quantity >= Quantity::ZERO => {}
            Ok(_) => return Err(FleetError::Value { place, why: format!("{amount} is less than nothing") }),
            Err(e) => return Err(FleetError::Value { place, why: e.to_string() }),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_says_where_it_is_wrong() {
        let wrong = |yaml: &str| Fleet::parse(yaml).unwrap_err().to_string();
        assert!(wrong("members: []").contains("at least one"));
        assert!(wrong("members: [{name: eu, nodes: [{cpu: x, memory: 1Gi}]}]").contains("members[eu].nodes[0].cpu"));
        assert!(wrong("members: [{name: eu, nodes: [], speed: 3}]").contains("speed"));
        assert!(wrong("members: [{name: eu, nodes: []}, {name: eu, nodes: []}]").contains("twice"));
        assert!(wrong(": : :").contains("cannot be read"));
    }

    #[test]
    fn a_written_fleet_is_read_back() {
        let fleet = Fleet::of_size(5);
        assert_eq!(fleet.members.len(), 5);
        assert_eq!(fleet.members[3].name, "eu-2");
        let yaml = serde_json::to_string(&fleet).unwrap();
        assert_eq!(Fleet::parse(&yaml), Ok(fleet));
    }
}
