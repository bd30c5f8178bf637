//! A member's capacity as numbers: what a verdict counts with. Read from a `MemberCapacity`, plus gangs in flight.
//! Must not know the tests that are made on it.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::pack::fits_class;
use crate::api::Time;
use crate::api::fleet::{GangToleration, MemberCapacitySpec, NodeClass, QueuePicture};
use crate::plan::gang::{Gang, Task};
use crate::plan::quantity::{Limit, Resources};

/// Capacity of one member.
#[derive(Clone, Debug, Default)]
pub struct Picture {
    /// Volcano is there.
    pub installed: bool,
    /// Volcano gives no sign of life.
    pub silent: bool,
    /// The capacity plugin decides; else proportion.
    pub capacity_plugin: bool,
    /// Queues form a tree.
    pub hierarchy: bool,
    /// Overcommit factor; `None` = plugin off.
    pub overcommit: Option<f64>,
    /// T: allocatable of all nodes.
    pub total: Resources,
    /// Requests of all pods on nodes.
    pub used: Resources,
    /// What overcommit counts as promised.
    pub reserved: Resources,
    /// Queues by name.
    pub queues: BTreeMap<String, Queue>,
    /// Nodes that can take pods.
    pub classes: Vec<Class>,
    /// Pods that admitted gangs have yet to bring.
    pub promised: Vec<Task>,
}

/// A queue's terms (specs/volcano.md 3.3).
#[derive(Clone, Debug, Default)]
pub struct Queue {
    /// `Open` or something else.
    pub state: String,
    /// Weight, at least 1.
    pub weight: i64,
    /// Hard limit.
    pub capability: Resources,
    /// Kept free for it.
    pub guarantee: Resources,
    /// A: requests of its pods on nodes.
    pub allocated: Resources,
    /// I: promised beyond A.
    pub inqueue: Resources,
    /// E: what running gangs use beyond their minimum.
    pub elastic: Resources,
    /// Requests of all its pods, at least A + I.
    pub requested: Resources,
    /// PodGroups in it.
    pub pod_groups: i64,
}

/// Equal nodes.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Class {
    /// How many.
    pub count: i64,
    /// What one has left.
    pub free: Resources,
    /// What one has in all.
    pub allocatable: Resources,
    /// Labels.
    pub labels: BTreeMap<String, String>,
    /// Taints that keep pods away: key, value, effect.
    pub taints: Vec<(String, String, String)>,
}

/// The present version of a `MemberCapacity`, read once for all looks at it.
#[derive(Clone, Debug)]
pub struct Received {
    /// When it came.
    pub at: Time,
    /// Its numbers, or what could not be read.
    pub picture: Result<Arc<Picture>, String>,
}

impl Received {
    /// Reads what came at `at`.
    pub fn read(spec: &MemberCapacitySpec, at: Time) -> Self {
        Self { at, picture: Picture::parse(spec).map(Arc::new) }
    }
}

impl Picture {
    /// From the published picture. The error names what could not be read.
    pub fn parse(spec: &MemberCapacitySpec) -> Result<Self, String> {
        let mut queues = BTreeMap::new();
        for (name, queue) in &spec.queues {
            queues.insert(name.clone(), Queue::parse(queue).map_err(|e| format!("queue {name}: {e}"))?);
        }
        let factor = &spec.scheduler.overcommit_factor;
        Ok(Self {
            installed: spec.scheduler.installed,
            silent: spec.scheduler.silent,
            capacity_plugin: spec.scheduler.queue_plugin == "capacity",
            hierarchy: spec.scheduler.hierarchy,
            overcommit: if factor.is_empty() {
                None
            } else {
                // Volcano falls back to its default below 1 and on what is no number.
                Some(factor.parse().ok().filter(|f: &f64| *f >= 1.0).unwrap_or(1.2))
            },
            total: Resources::parse(&spec.allocatable)?,
            used: Resources::parse(&spec.used)?,
            reserved: Resources::parse(&spec.reserved)?,
            queues,
            classes: spec.node_classes.iter().map(Class::parse).collect::<Result<_, _>>()?,
            promised: spec.promised.iter().map(Task::parse).collect::<Result<_, _>>()?,
        })
    }

    /// Counts a gang that is on its way and not in the picture yet, as if it were admitted.
    pub fn assume(&mut self, queue: &str, gang: &Gang) {
        self.reserved.add(&gang.min);
        self.promised.extend(gang.tasks.iter().cloned());
        if let Some(queue) = self.queues.get_mut(queue) {
            queue.inqueue.add(&gang.min);
            queue.requested.add(&gang.full);
            queue.pod_groups += 1;
        }
    }

    /// What admitted gangs have yet to take of a dimension. A pod that no node takes, even an empty one, takes nothing.
    pub fn promised_of(&self, dimension: &str) -> i128 {
        let takes = |c: &Class, t: &Task| fits_class(c, t) && t.requests.over_node(&c.allocatable).is_none();
        let promised = self.promised.iter().filter(|t| self.classes.iter().any(|c| takes(c, t)));
        let pods: i128 = promised.map(|t| t.requests.get(dimension) * i128::from(t.count)).sum();
        pods.max(self.queues.values().map(|q| q.inqueue.get(dimension)).sum())
    }

    /// What nodes that take pods have left of a dimension, after what is promised.
    pub fn left_on_nodes(&self, dimension: &str) -> i128 {
        let free: i128 = self.classes.iter().map(|c| c.free.get(dimension).max(0) * i128::from(c.count)).sum();
        free - self.promised_of(dimension)
    }

    /// The most that a queue can ever use of a dimension (`RC`, flat queues, specs/volcano.md 3.6).
    pub fn real_capability(&self, queue: &Queue, dimension: &str) -> Limit {
        let guaranteed: i128 = self.queues.values().map(|q| q.guarantee.get(dimension)).sum();
        let shared = (self.total.get(dimension) - guaranteed).max(0) + queue.guarantee.get(dimension);
        Limit::At(shared).min(queue.capability.as_capability(dimension))
    }
}

impl Queue {
    fn parse(queue: &QueuePicture) -> Result<Self, String> {
        let allocated = Resources::parse(&queue.allocated)?;
        let inqueue = Resources::parse(&queue.inqueue)?;
        let requested = Resources::parse(&queue.requested)?.max(&allocated.clone().plus(&inqueue));
        Ok(Self {
            state: queue.state.clone(),
            weight: i64::from(queue.weight.max(1)),
            capability: Resources::parse(&queue.capability)?,
            guarantee: Resources::parse(&queue.guarantee)?,
            elastic: Resources::parse(&queue.elastic)?,
            pod_groups: i64::from(queue.pod_groups),
            allocated,
            inqueue,
            requested,
        })
    }
}

impl Class {
    fn parse(class: &NodeClass) -> Result<Self, String> {
        let taint = |text: &String| {
            let (pair, effect) = text.rsplit_once(':').unwrap_or((text, "NoSchedule"));
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            (key.to_owned(), value.to_owned(), effect.to_owned())
        };
        Ok(Self {
            count: i64::from(class.count),
            free: Resources::parse(&class.free)?,
            allocatable: Resources::parse(&class.allocatable)?,
            labels: class.labels.clone(),
            taints: class.taints.iter().map(taint).filter(|(_, _, effect)| effect != "PreferNoSchedule").collect(),
        })
    }

    /// Whether its labels are those that the pod selects.
    pub fn selected_by(&self, task: &Task) -> bool {
        task.node_selector.iter().all(|(key, value)| self.labels.get(key) == Some(value))
    }

    /// First taint that the pod does not tolerate.
    pub fn repels(&self, task: &Task) -> Option<&(String, String, String)> {
        self.taints.iter().find(|taint| !task.tolerations.iter().any(|t| tolerates(t, taint)))
    }
}

fn tolerates(toleration: &GangToleration, (key, value, effect): &(String, String, String)) -> bool {
    if !toleration.effect.is_empty() && toleration.effect != *effect {
        return false;
    }
    let exists = toleration.operator == "Exists";
    if toleration.key.is_empty() {
        return exists;
    }
    toleration.key == *key && (exists || toleration.value == *value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_toleration_matches_as_in_kubernetes() {
        let taint = ("gpu".to_owned(), "yes".to_owned(), "NoSchedule".to_owned());
        let t = |key: &str, operator: &str, value: &str, effect: &str| GangToleration {
            key: key.into(),
            operator: operator.into(),
            value: value.into(),
            effect: effect.into(),
        };
        assert!(tolerates(&t("gpu", "", "yes", ""), &taint));
        assert!(tolerates(&t("gpu", "Exists", "", "NoSchedule"), &taint));
        assert!(tolerates(&t("", "Exists", "", ""), &taint));
        assert!(!tolerates(&t("", "", "", ""), &taint));
        assert!(!tolerates(&t("gpu", "Equal", "no", ""), &taint));
        assert!(!tolerates(&t("gpu", "Exists", "", "NoExecute"), &taint));
    }
}
