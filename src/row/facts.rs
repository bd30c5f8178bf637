//! The fields of spec and status that rules read, per kind.
//! Must not know rules.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::api::Time;
use crate::api::fleet::{MemberCapacity, MemberCluster, Placement, PlacementPolicy};

/// What rules read of one object. Kinds whose rules read the whole object have it in `Row::body` and `Body` here.
#[derive(Clone, Debug, PartialEq)]
pub enum Facts {
    /// Pods.
    Pod(Box<PodFacts>),
    /// Services.
    Service(ServiceFacts),
    /// Batch Jobs.
    Job(JobFacts),
    /// Nodes.
    Node(Box<NodeFacts>),
    /// Volcano's PodGroups.
    PodGroup(PodGroupFacts),
    /// Volcano's Queues.
    Queue(Box<QueueFacts>),
    /// The decision about a root object.
    Placement(Box<Placement>),
    /// How to reach a member.
    MemberCluster(Box<MemberCluster>),
    /// What a member has room for.
    MemberCapacity(Box<MemberCapacity>),
    /// How objects are placed.
    PlacementPolicy(Box<PlacementPolicy>),
    /// PriorityClass: its value.
    Priority(i32),
    /// RayJob, RayCluster: read from `Row::body`.
    Body,
    /// Kinds of which identity is enough.
    None,
}

/// Resource name → quantity text, as written in the object.
pub type Quantities = BTreeMap<Arc<str>, Arc<str>>;

/// A pod.
#[derive(Clone, Debug, PartialEq, Default)]
pub struct PodFacts {
    /// `status.phase`.
    pub phase: Arc<str>,
    /// `status.reason`, e.g. `Evicted`.
    pub reason: Arc<str>,
    /// `status.message`.
    pub message: Arc<str>,
    /// `spec.nodeName`; empty while not bound.
    pub node: Arc<str>,
    /// `status.podIP`.
    pub ip: Arc<str>,
    /// Condition `Ready` is `True`.
    pub ready: bool,
    /// Condition `Ready` as it stands, where the pod has one.
    pub ready_condition: Option<ConditionFact>,
    /// `spec.restartPolicy`.
    pub restart_policy: Arc<str>,
    /// `spec.schedulerName`.
    pub scheduler: Arc<str>,
    /// `spec.priorityClassName`.
    pub priority_class: Arc<str>,
    /// Effective requests of the whole pod by Kubernetes' rule (init containers, sidecars, overhead, pod-level
    /// resources), as quantity texts.
    pub requests: Quantities,
    /// `spec.nodeSelector`.
    pub node_selector: BTreeMap<Arc<str>, Arc<str>>,
    /// `spec.tolerations`.
    pub tolerations: Vec<Toleration>,
    /// Containers' states, in order of `status.containerStatuses`.
    pub containers: Vec<ContainerFact>,
}

/// A condition of an object.
#[derive(Clone, Debug, PartialEq, Default)]
pub struct ConditionFact {
    /// `True`, `False` or `Unknown`.
    pub status: Arc<str>,
    /// One word; may be empty.
    pub reason: Arc<str>,
    /// A sentence; may be empty.
    pub message: Arc<str>,
}

/// State of one container.
#[derive(Clone, Debug, PartialEq, Default)]
pub struct ContainerFact {
    /// Name.
    pub name: Arc<str>,
    /// `state.terminated.exitCode`, if it has ended.
    pub exit_code: Option<i32>,
    /// `state.terminated.reason` or `state.waiting.reason`.
    pub reason: Arc<str>,
    /// `state.terminated.message` or `state.waiting.message`.
    pub message: Arc<str>,
    /// `state.terminated.finishedAt`.
    pub finished: Option<Time>,
    /// `restartCount`.
    pub restarts: i32,
}

/// One toleration or, without operator, one taint's counterpart.
#[derive(Clone, Debug, PartialEq, Default)]
pub struct Toleration {
    /// Taint key; empty with `Exists` tolerates all.
    pub key: Arc<str>,
    /// `Equal` (default) or `Exists`.
    pub operator: Arc<str>,
    /// Value to equal.
    pub value: Arc<str>,
    /// Effect; empty = all.
    pub effect: Arc<str>,
}

/// A Service.
#[derive(Clone, Debug, PartialEq, Default)]
pub struct ServiceFacts {
    /// `spec.clusterIP`.
    pub cluster_ip: Arc<str>,
    /// `spec.type`.
    pub service_type: Arc<str>,
    /// `spec.selector`.
    pub selector: BTreeMap<Arc<str>, Arc<str>>,
    /// `spec.ports`.
    pub ports: Vec<ServicePort>,
}

/// A port of a Service.
#[derive(Clone, Debug, PartialEq, Default)]
pub struct ServicePort {
    /// Name.
    pub name: Arc<str>,
    /// Port.
    pub port: i32,
    /// `targetPort`, number or name; empty where it is not set.
    pub target: Arc<str>,
    /// `nodePort`; 0 where there is none.
    pub node_port: i32,
}

/// A condition with status `True`: type, reason, message, last transition.
pub(super) type TrueCondition = (Arc<str>, Arc<str>, Arc<str>, Option<Time>);

/// A batch Job.
#[derive(Clone, Debug, PartialEq, Default)]
pub struct JobFacts {
    /// Conditions that hold.
    pub conditions: Vec<TrueCondition>,
    /// `status.active`.
    pub active: i32,
    /// `status.succeeded`.
    pub succeeded: i32,
    /// `status.failed`.
    pub failed: i32,
}

/// A node.
#[derive(Clone, Debug, PartialEq, Default)]
pub struct NodeFacts {
    /// `status.allocatable`.
    pub allocatable: Quantities,
    /// `spec.unschedulable`.
    pub unschedulable: bool,
    /// Condition `Ready` is `True`.
    pub ready: bool,
    /// `spec.taints`.
    pub taints: Vec<Taint>,
}

/// A node's taint.
#[derive(Clone, Debug, PartialEq, Default)]
pub struct Taint {
    /// Key.
    pub key: Arc<str>,
    /// Value.
    pub value: Arc<str>,
    /// `NoSchedule`, `PreferNoSchedule` or `NoExecute`.
    pub effect: Arc<str>,
}

/// A PodGroup of Volcano.
#[derive(Clone, Debug, PartialEq, Default)]
pub struct PodGroupFacts {
    /// `spec.queue`.
    pub queue: Arc<str>,
    /// `spec.minMember`.
    pub min_member: i32,
    /// `spec.minTaskMember`.
    pub min_task_member: BTreeMap<Arc<str>, i32>,
    /// `spec.minResources`.
    pub min_resources: Quantities,
    /// `spec.priorityClassName`.
    pub priority_class: Arc<str>,
    /// `status.phase`; empty before Volcano's first session.
    pub phase: Arc<str>,
    /// `status.running`.
    pub running: i32,
}

/// A Queue of Volcano.
#[derive(Clone, Debug, PartialEq, Default)]
pub struct QueueFacts {
    /// `spec.weight`.
    pub weight: i32,
    /// `spec.priority`.
    pub priority: i32,
    /// `spec.parent`.
    pub parent: Arc<str>,
    /// `spec.reclaimable`; Volcano's default is true.
    pub reclaimable: Option<bool>,
    /// `spec.capability`.
    pub capability: Quantities,
    /// `spec.deserved`.
    pub deserved: Quantities,
    /// `spec.guarantee.resource`.
    pub guarantee: Quantities,
    /// `status.state`.
    pub state: Arc<str>,
    /// `status.allocated`.
    pub allocated: Quantities,
}
