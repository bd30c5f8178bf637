//! One session's picture of a cluster: queues, PodGroups with their pods, nodes; decoded afresh for each session.
//! Must not know how decisions are made or carried out.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::Value;

use super::amounts::{Amounts, of_pod};
use super::machines::{Machine, machines};
use crate::api::Time;
use crate::api::names::{POD_GROUP_ANNOTATION, TASK_SPEC_ANNOTATION};
use crate::sandbox::world::object::{created, deleting, entry, has, list, name, number, place, text, uid};

/// Everything that the scheduler has seen, as it came.
#[derive(Debug, Default)]
pub struct Seen {
    /// By name.
    pub queues: BTreeMap<String, Arc<Value>>,
    /// By `namespace/name`.
    pub groups: BTreeMap<String, Arc<Value>>,
    /// By UID.
    pub pods: BTreeMap<String, Arc<Value>>,
    /// By name.
    pub nodes: BTreeMap<String, Arc<Value>>,
    /// Value of each PriorityClass.
    pub priorities: BTreeMap<String, i64>,
    /// Pods that were bound but not yet seen so: UID → node.
    pub assumed: BTreeMap<String, String>,
}

/// What a pod is to the scheduler.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Status {
    /// Waits for a node.
    Pending,
    /// Given a node in this session or a moment ago.
    Binding,
    /// Has a node.
    Bound,
    /// Runs.
    Running,
    /// Is being deleted and has a node.
    Releasing,
    /// Has ended well.
    Succeeded,
    /// Has ended otherwise.
    Failed,
}

/// A pod of a gang.
#[derive(Clone, Debug)]
pub struct Task {
    /// The Pod.
    pub pod: Arc<Value>,
    /// What it asks for.
    pub asks: Amounts,
    /// What it is now.
    pub status: Status,
    /// Role in its gang; empty where it has none.
    pub role: String,
    /// Held by scheduling gates.
    pub gated: bool,
    /// Why it got no node in this session.
    pub failure: Option<String>,
    /// A node was found for it in this session, but not for enough others.
    pub possible: bool,
}

/// A PodGroup with its pods.
#[derive(Clone, Debug)]
pub struct Gang {
    /// The PodGroup.
    pub object: Arc<Value>,
    /// Its queue.
    pub queue: String,
    /// Pods needed.
    pub min_member: i64,
    /// Pods needed of each role.
    pub min_task_member: BTreeMap<String, i64>,
    /// Demand at enqueue, if it names one.
    pub min_resources: Option<Amounts>,
    /// Of its PriorityClass.
    pub priority: i64,
    /// Age.
    pub created: Time,
    /// As stored; changed by the session.
    pub phase: String,
    /// Its pods, oldest first.
    pub tasks: Vec<Task>,
}

impl Gang {
    /// Requests of tasks that have or were given a node and are not ending (`a_p`), and their number (`n_p`).
    pub fn allocated(&self) -> (Amounts, i64) {
        let mut sum = Amounts::default();
        let mut count = 0;
        for task in self.tasks.iter().filter(|t| t.holds()) {
            sum.add(&task.asks);
            count += 1;
        }
        (sum, count)
    }

    /// Requests of everything allocated or waiting.
    pub fn requested(&self) -> Amounts {
        let mut sum = Amounts::default();
        for task in self.tasks.iter().filter(|t| t.holds() || t.status == Status::Pending) {
            sum.add(&task.asks);
        }
        sum
    }

    /// Tasks that count for readiness.
    pub fn ready(&self) -> i64 {
        self.tasks.iter().filter(|t| t.holds() || t.status == Status::Succeeded).count() as i64
    }

    /// Whether the gang may start or go on: enough tasks ready, also of each role where the roles' sum is the minimum.
    pub fn is_ready(&self) -> bool {
        self.ready() >= self.min_member && self.roles_hold(|t| t.holds() || t.status == Status::Succeeded)
    }

    /// Whether there are pods enough to try.
    pub fn is_valid(&self) -> bool {
        let usable = |t: &Task| !matches!(t.status, Status::Failed | Status::Releasing);
        self.tasks.iter().filter(|t| usable(t)).count() as i64 >= self.min_member && self.roles_hold(usable)
    }

    fn roles_hold(&self, counts: impl Fn(&Task) -> bool) -> bool {
        if self.min_member < self.min_task_member.values().sum() {
            return true;
        }
        self.min_task_member
            .iter()
            .all(|(role, min)| self.tasks.iter().filter(|t| t.role == *role && counts(t)).count() as i64 >= *min)
    }

    /// Demand of the tasks that gates hold.
    pub fn gated(&self) -> Amounts {
        let mut sum = Amounts::default();
        for task in self.tasks.iter().filter(|t| t.gated) {
            sum.add(&task.asks);
        }
        sum
    }

    /// What it reserves beyond what it has (`i_p`).
    pub fn inqueue(&self) -> Amounts {
        let Some(min) = &self.min_resources else { return Amounts::default() };
        let (have, count) = self.allocated();
        match self.phase.as_str() {
            "Inqueue" => min.beyond(&have).beyond(&self.gated()),
            "Running" if count >= self.min_member => min.beyond(&have).beyond(&self.gated()),
            _ => Amounts::default(),
        }
    }

    /// What it has beyond its demand (`e_p`).
    pub fn elastic(&self) -> Amounts {
        let none = Amounts::default();
        self.allocated().0.beyond(self.min_resources.as_ref().unwrap_or(&none))
    }
}

impl Task {
    /// Whether it holds room: has or was given a node and is not ending.
    pub fn holds(&self) -> bool {
        matches!(self.status, Status::Binding | Status::Bound | Status::Running)
    }
}

/// A queue.
#[derive(Clone, Debug)]
pub struct Queue {
    /// Its name.
    pub name: String,
    /// `status.state`; the empty state is not Open.
    pub open: bool,
    /// Share in the proportion plugin.
    pub weight: f64,
    /// Order among queues.
    pub priority: i64,
    /// Age.
    pub created: Time,
    /// Upper limit of the dimensions that it names.
    pub capability: Amounts,
    /// Kept free for it.
    pub guarantee: Amounts,
    /// Share in the capacity plugin.
    pub deserved: Amounts,
}

/// The picture.
#[derive(Debug)]
pub struct Snapshot {
    /// By name.
    pub queues: BTreeMap<String, Queue>,
    /// PodGroups whose queue exists, by `namespace/name`.
    pub gangs: BTreeMap<String, Gang>,
    /// By name.
    pub machines: BTreeMap<String, Machine>,
    /// Sum of allocatable of all nodes, cordoned and not ready ones included.
    pub total: Amounts,
}

impl Snapshot {
    /// Decodes what was seen.
    pub fn of(seen: &Seen) -> Self {
        let machines = machines(seen.nodes.values(), seen.pods.values(), &seen.assumed);
        let mut total = Amounts::default();
        for machine in machines.values() {
            total.add(&machine.allocatable);
        }
        let queues: BTreeMap<_, _> = seen.queues.iter().map(|(n, q)| (n.clone(), queue(q))).collect();
        let known = seen.groups.iter().filter(|(_, g)| queues.contains_key(queue_of(g)));
        let mut gangs: BTreeMap<_, _> = known.map(|(p, g)| (p.clone(), gang(g, seen))).collect();
        for pod in seen.pods.values() {
            if let Some(gang) = gangs.get_mut(&group_of(pod)) {
                gang.tasks.push(task(pod, &seen.assumed));
            }
        }
        for gang in gangs.values_mut() {
            gang.tasks
                .sort_by_key(|t| (std::cmp::Reverse(number(&t.pod, "/spec/priority")), created(&t.pod), place(&t.pod)));
        }
        Self { queues, gangs, machines, total }
    }
}

/// `namespace/name` of the PodGroup that a pod belongs to; no such place if it names none.
pub fn group_of(pod: &Value) -> String {
    format!(
        "{}/{}",
        crate::sandbox::world::object::namespace(pod),
        entry(pod, "/metadata/annotations", POD_GROUP_ANNOTATION)
    )
}

/// The queue of a PodGroup.
pub fn queue_of(group: &Value) -> &str {
    match text(group, "/spec/queue") {
        "" => "default",
        queue => queue,
    }
}

fn queue(object: &Arc<Value>) -> Queue {
    Queue {
        name: name(object).to_owned(),
        open: text(object, "/status/state") == "Open",
        weight: number(object, "/spec/weight").unwrap_or(1) as f64,
        priority: number(object, "/spec/priority").unwrap_or(0),
        created: created(object),
        capability: Amounts::parse(object.pointer("/spec/capability")),
        guarantee: Amounts::parse(object.pointer("/spec/guarantee/resource")),
        deserved: Amounts::parse(object.pointer("/spec/deserved")),
    }
}

fn gang(object: &Arc<Value>, seen: &Seen) -> Gang {
    let roles = object.pointer("/spec/minTaskMember").and_then(Value::as_object);
    Gang {
        object: object.clone(),
        queue: queue_of(object).to_owned(),
        min_member: number(object, "/spec/minMember").unwrap_or(0),
        min_task_member: roles.into_iter().flatten().filter_map(|(r, n)| Some((r.clone(), n.as_i64()?))).collect(),
        min_resources: has(object, "/spec/minResources").then(|| Amounts::parse(object.pointer("/spec/minResources"))),
        priority: seen.priorities.get(text(object, "/spec/priorityClassName")).copied().unwrap_or(0),
        created: created(object),
        phase: text(object, "/status/phase").to_owned(),
        tasks: Vec::new(),
    }
}

fn task(pod: &Arc<Value>, assumed: &BTreeMap<String, String>) -> Task {
    let bound = !text(pod, "/spec/nodeName").is_empty();
    let status = match (text(pod, "/status/phase"), deleting(pod)) {
        ("Succeeded", _) => Status::Succeeded,
        ("Failed", _) => Status::Failed,
        (_, true) => Status::Releasing,
        ("Running", false) => Status::Running,
        _ if bound => Status::Bound,
        _ if assumed.contains_key(uid(pod)) => Status::Binding,
        _ => Status::Pending,
    };
    let role = entry(pod, "/metadata/annotations", TASK_SPEC_ANNOTATION);
    let role = if role.is_empty() { entry(pod, "/metadata/labels", TASK_SPEC_ANNOTATION) } else { role };
    Task {
        pod: pod.clone(),
        asks: of_pod(pod),
        status,
        role: role.to_owned(),
        gated: !list(pod, "/spec/schedulingGates").is_empty(),
        failure: None,
        possible: false,
    }
}
