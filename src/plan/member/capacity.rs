//! What a member has room for, counted from its own tables (specs/volcano.md 3.2, 3.3) and the `Placement`s on the hub.
//! Must not know verdicts, or when the picture is published.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use super::scheduler;
use crate::api::fleet::{
    GangPods, GangShape, GangToleration, MemberCapacitySpec, NodeClass, Placement, QueuePicture, Stage,
};
use crate::api::names::{POD_GROUP_ANNOTATION, TASK_SPEC_ANNOTATION};
use crate::api::{Cluster, Id, Kind, Time};
use crate::plan::decision::brings_gang;
use crate::plan::gang::{Gang, SUBMITTER_GROUP, SUBMITTER_TASK, pod_group_name};
use crate::plan::place::Picture;
use crate::plan::quantity::{PODS, Resources};
use crate::plan::{Member, Seen, decision};
use crate::row::{Facts, NodeFacts, PodFacts, PodGroupFacts, QueueFacts, Row, Tables};

/// A PodGroup without any phase for this long in an open queue: the scheduler gives no sign of life.
const SILENT: Duration = Duration::from_mins(1);
/// State of a queue of which not all can be read: what follows says what.
const UNREADABLE: &str = "unreadable";
/// Labels of nodes that selectors name by custom; others are kept where a gang of ours names them.
const USUAL_LABELS: &[&str] = &[
    "kubernetes.io/arch",
    "kubernetes.io/os",
    "node.kubernetes.io/instance-type",
    "topology.kubernetes.io/region",
    "topology.kubernetes.io/zone",
    "nvidia.com/gpu.product",
    "cloud.google.com/gke-accelerator",
    "cloud.google.com/gke-nodepool",
    "eks.amazonaws.com/nodegroup",
];

/// The member's picture for the second and third check of one root object: without itself, and without gangs of ours whose
/// reservation began later. So of two that exclude each other exactly one goes on.
pub fn own_picture(seen: &Seen, on: Member, row: &Row, ours: &Placement, now: Time) -> Result<Picture, String> {
    let rank = |row: &Row, p: &Placement| (decision::stage_since(row, p), p.spec.root.root_id.clone());
    let own = rank(row, ours);
    let later: BTreeSet<&str> = seen
        .hub
        .rows(Kind::Placement)
        .filter_map(|row| Some((row, decision::of(row)?)))
        .filter(|(row, p)| {
            p.spec.root.root_id == ours.spec.root.root_id || (p.spec.stage == Stage::Reserving && rank(row, p) > own)
        })
        .map(|(_, p)| &*p.spec.root.root_id)
        .collect();
    Picture::parse(&observe(seen, on, now, &|root_id| later.contains(root_id))?)
}

/// The picture of a member; gangs whose root id `skip` names are left out. The error says what could not be read.
pub fn observe(seen: &Seen, on: Member, now: Time, skip: &dyn Fn(&str) -> bool) -> Result<MemberCapacitySpec, String> {
    let config = Id::new(Kind::ConfigMap, scheduler::NAMESPACE, scheduler::CONFIG_MAP);
    let read = seen.fetched.get(&(Cluster::Member(on.name.clone()), config));
    let silent_since = {
        // A kind that is not served there is no silence: the member answers.
        let mut tables = Kind::ALL.iter().map(|kind| on.tables.table(*kind)).filter(|table| table.unserved.is_none());
        tables.find_map(|table| table.silent.clone())
    };
    let mut spec = MemberCapacitySpec {
        counts_up_to: seen.me.placements_up_to.0,
        reachable: silent_since.is_none(),
        unreachable_reason: silent_since.map(|(_, why)| why).unwrap_or_default(),
        scheduler: scheduler::settings(read),
        ..MemberCapacitySpec::default()
    };
    let listed = |kind| on.tables.table(kind).listed.is_some();
    spec.scheduler.installed = listed(Kind::Queue) && listed(Kind::PodGroup);
    let nodes = Nodes::count(on.tables);
    spec.allocatable = nodes.total.texts();
    spec.used = nodes.used.texts();
    spec.node_classes = nodes.classes(seen.hub);
    let mut gangs = Gangs::default();
    for row in on.tables.rows(Kind::Queue) {
        if let Facts::Queue(facts) = &row.facts {
            gangs.queues.insert(row.id.name.to_string(), Terms::of(facts));
        }
    }
    let (placements, pods) = (bound(seen.hub, on), pods_by_group(on.tables));
    for row in on.tables.rows(Kind::PodGroup) {
        let Facts::PodGroup(group) = &row.facts else { continue };
        if row.root_id.as_ref().is_some_and(|root| skip(root.as_str())) {
            continue;
        }
        let waits = group.phase.is_empty() && row.deleting.is_none() && row.created + SILENT < now;
        spec.scheduler.silent |= waits && gangs.queues.get(&*group.queue).is_some_and(|q| &*q.state == "Open");
        let mine = row.root_id.as_ref().and_then(|root| placements.get(root.as_str())).map(|(_, placement)| *placement);
        if let Err(why) = gangs.count(group, pods.get(&row.id).map_or(&[], Vec::as_slice), mine) {
            // What cannot be read is nobody's room: its queue takes nothing, the others go on.
            gangs.unreadable(&group.queue, format!("PodGroup {}/{}: {why}", row.id.namespace, row.id.name));
        }
    }
    for (root, (id, placement)) in placements {
        let is_its = |row: &Row| row.root_id.as_ref().is_some_and(|id| id.as_str() == root);
        let there = on.tables.get(&id).filter(|row| is_its(row)).map(|row| &row.facts);
        let admitted = matches!(there, Some(Facts::PodGroup(g)) if !matches!(&*g.phase, "" | "Pending"));
        if !admitted && !skip(root) {
            let of_group = pods.get(&id).map_or(&[][..], Vec::as_slice);
            let its: Vec<_> =
                of_group.iter().filter(|(row, _)| row.root_id.is_none() || is_its(row)).copied().collect();
            gangs.promise(placement, &its, there.is_some())?;
        }
    }
    spec.reserved = gangs.reserved.texts();
    spec.promised = gangs.promised.into_values().collect();
    spec.queues = gangs.queues.into_iter().map(|(name, terms)| (name, terms.picture())).collect();
    Ok(spec)
}

/// `Placement`s whose gang is on the member or on its way there, with the id of their PodGroup, by root id: a RayJob and a
/// RayCluster of one name have PodGroups of one name.
fn bound<'a>(hub: &'a Tables, on: Member) -> BTreeMap<&'a str, (Id, &'a Placement)> {
    hub.rows(Kind::Placement)
        .filter_map(|row| Some((row, decision::of(row)?)))
        .filter(|(_, p)| p.spec.member.as_deref() == Some(on.name.as_str()))
        .filter(|(_, p)| matches!(p.spec.stage, Stage::Reserving | Stage::Admitted | Stage::Running))
        .filter(|(_, p)| brings_gang(p))
        .map(|(row, p)| {
            let group = Id::new(Kind::PodGroup, row.id.namespace.clone(), pod_group_name(&p.spec.root.name));
            (&*p.spec.root.root_id, (group, p))
        })
        .collect()
}

/// Pods by the id of their PodGroup.
fn pods_by_group(tables: &Tables) -> BTreeMap<Id, Vec<(&Row, &PodFacts)>> {
    let mut groups: BTreeMap<Id, Vec<(&Row, &PodFacts)>> = BTreeMap::new();
    for row in tables.rows(Kind::Pod) {
        let group = row.annotation(POD_GROUP_ANNOTATION);
        if let Facts::Pod(pod) = &row.facts
            && !group.is_empty()
        {
            groups.entry(Id::new(Kind::PodGroup, row.id.namespace.clone(), group)).or_default().push((row, pod));
        }
    }
    groups
}

fn requests(pod: &PodFacts) -> Result<Resources, String> {
    let mut requests = Resources::parse(&pod.requests)?;
    requests.set(PODS, 1);
    Ok(requests)
}

fn is_finished(pod: &PodFacts) -> bool {
    matches!(&*pod.phase, "Succeeded" | "Failed")
}

/// Nodes and what is used of them.
struct Nodes<'a> {
    total: Resources,
    used: Resources,
    by_name: BTreeMap<Arc<str>, (&'a Row, &'a NodeFacts, Resources, Resources)>,
}

impl<'a> Nodes<'a> {
    /// A node that cannot be read takes nothing; one with a pod that cannot be read takes nothing more.
    fn count(tables: &'a Tables) -> Self {
        let mut nodes = Self { total: Resources::new(), used: Resources::new(), by_name: BTreeMap::new() };
        for row in tables.rows(Kind::Node) {
            let Facts::Node(facts) = &row.facts else { continue };
            let Ok(allocatable) = Resources::parse(&facts.allocatable) else { continue };
            nodes.total.add(&allocatable);
            nodes.by_name.insert(row.id.name.clone(), (row, facts, allocatable.clone(), allocatable));
        }
        for row in tables.rows(Kind::Pod) {
            let Facts::Pod(pod) = &row.facts else { continue };
            if pod.node.is_empty() || is_finished(pod) {
                continue;
            }
            let asks = requests(pod);
            if let Ok(asks) = &asks {
                nodes.used.add(asks);
            }
            match (nodes.by_name.get_mut(&pod.node), asks) {
                (Some((_, _, free, _)), Ok(asks)) => free.sub(&asks),
                (Some((_, _, free, _)), Err(_)) => *free = Resources::new(),
                (None, _) => {}
            }
        }
        nodes
    }

    /// Nodes that take pods, equal ones together.
    fn classes(&self, hub: &Tables) -> Vec<NodeClass> {
        let named = named_labels(hub);
        let mut classes: Vec<NodeClass> = Vec::new();
        for (row, facts, free, allocatable) in self.by_name.values() {
            if !facts.ready || facts.unschedulable || row.deleting.is_some() {
                continue;
            }
            let relevant = |key: &str| USUAL_LABELS.contains(&key) || named.contains(key);
            let class = NodeClass {
                count: 1,
                free: free.texts(),
                allocatable: allocatable.texts(),
                labels: row
                    .labels
                    .iter()
                    .filter(|(k, _)| relevant(k))
                    .map(|(k, v)| (k.to_string(), v.to_string()))
                    .collect(),
                taints: facts.taints.iter().map(|t| format!("{}={}:{}", t.key, t.value, t.effect)).collect(),
            };
            match classes.iter_mut().find(|c| NodeClass { count: 1, ..(*c).clone() } == class) {
                Some(same) => same.count += 1,
                None => classes.push(class),
            }
        }
        classes
    }
}

/// Labels that gangs of ours select nodes by.
fn named_labels(hub: &Tables) -> BTreeSet<&str> {
    let placements = hub.rows(Kind::Placement).filter_map(decision::of);
    let pods = placements.filter_map(|p| p.status.gang.as_ref()).flat_map(|g| &g.pods);
    pods.flat_map(|p| p.node_selector.keys()).map(String::as_str).collect()
}

/// Terms of one queue.
#[derive(Default)]
struct Terms {
    state: Arc<str>,
    picture: QueuePicture,
    allocated: Resources,
    inqueue: Resources,
    elastic: Resources,
    requested: Resources,
}

impl Terms {
    fn of(facts: &QueueFacts) -> Self {
        let mut unreadable = None;
        let mut texts = |list: &crate::row::Quantities, field: &str| -> BTreeMap<String, String> {
            match Resources::parse(list) {
                Ok(_) => list.iter().map(|(k, v)| (k.to_string(), v.to_string())).collect(),
                Err(why) => {
                    unreadable.get_or_insert(format!("{UNREADABLE}: its {field}: {why}"));
                    BTreeMap::new()
                }
            }
        };
        let mut picture = QueuePicture {
            state: facts.state.to_string(),
            weight: facts.weight,
            priority: facts.priority,
            parent: facts.parent.to_string(),
            capability: texts(&facts.capability, "capability"),
            guarantee: texts(&facts.guarantee, "guarantee"),
            deserved: texts(&facts.deserved, "deserved"),
            ..QueuePicture::default()
        };
        if let Some(why) = unreadable {
            picture.state = why;
        }
        Self { state: facts.state.clone(), picture, ..Self::default() }
    }

    fn picture(self) -> QueuePicture {
        QueuePicture {
            allocated: self.allocated.texts(),
            inqueue: self.inqueue.texts(),
            elastic: self.elastic.texts(),
            requested: self.requested.texts(),
            ..self.picture
        }
    }
}

/// Sums over gangs.
#[derive(Default)]
struct Gangs {
    queues: BTreeMap<String, Terms>,
    reserved: Resources,
    promised: BTreeMap<String, GangPods>,
}

impl Gangs {
    /// Nothing is placed in this queue until what cannot be read is mended.
    fn unreadable(&mut self, queue: &str, why: String) {
        let queue = if queue.is_empty() { "default" } else { queue };
        if let Some(terms) = self.queues.get_mut(queue) {
            terms.picture.state = format!("{UNREADABLE}: {why}");
        }
    }

    /// One PodGroup with its pods (specs/volcano.md 3.3). `ours` is its `Placement`.
    fn count(
        &mut self,
        group: &PodGroupFacts,
        pods: &[(&Row, &PodFacts)],
        ours: Option<&Placement>,
    ) -> Result<(), String> {
        let least = Resources::parse(&group.min_resources)?;
        let (mut allocated, mut asked, mut placed) = (Resources::new(), Resources::new(), 0);
        let mut waiting = Vec::new();
        for (row, pod) in pods.iter().filter(|(row, pod)| row.deleting.is_none() && !is_finished(pod)) {
            let requests = requests(pod)?;
            asked.add(&requests);
            if !pod.node.is_empty() && matches!(&*pod.phase, "Pending" | "Running") {
                allocated.add(&requests);
                placed += 1;
            } else if pod.node.is_empty() {
                waiting.push((*row, *pod));
            }
        }
        let holds = match &*group.phase {
            "Inqueue" => true,
            "Running" => placed >= group.min_member,
            _ => false,
        };
        // Volcano forgets what an admitted gang lacks once it has fewer pods on nodes than its minimum (`holds`). Its
        // pods want their places all the same, in the queue and on nodes, and tables of two kinds need not be of one
        // moment: a PodGroup that runs may be seen before its pods are.
        let ours = ours.and_then(|p| p.status.gang.as_ref());
        let admitted = match &*group.phase {
            "Inqueue" | "Running" | "Unknown" => true,
            // All its pods have ended: those of a gang of ours that goes on are made anew.
            "Completed" => ours.is_some(),
            _ => false,
        };
        let lacks = least.clone().minus(&allocated).at_least_zero();
        let missing = if holds || (admitted && ours.is_some()) { lacks } else { Resources::new() };
        if holds {
            self.reserved.add(if &*group.phase == "Inqueue" { &least } else { &missing });
        }
        match ours.filter(|_| admitted) {
            Some(shape) => self.promise_rest(shape, pods),
            None if admitted => waiting.iter().for_each(|(_, pod)| self.promise_pods(of_pod(pod))),
            None => {}
        }
        let queue = if group.queue.is_empty() { "default" } else { &group.queue };
        let Some(terms) = self.queues.get_mut(queue) else { return Ok(()) };
        terms.elastic.add(&allocated.clone().minus(&least).at_least_zero());
        terms.allocated.add(&allocated);
        terms.requested.add(&asked);
        terms.inqueue.add(&missing);
        terms.picture.pod_groups += 1;
        terms.picture.pending += i32::from(matches!(&*group.phase, "" | "Pending"));
        Ok(())
    }

    /// What a gang still needs besides the pods that have their places.
    fn promise_rest(&mut self, shape: &GangShape, pods: &[(&Row, &PodFacts)]) {
        for pods_of in &shape.pods {
            let there = pods.iter().filter(|(row, pod)| has_its_place(row, pod, &pods_of.group)).count();
            let there = i32::try_from(there).unwrap_or(i32::MAX);
            self.promise_pods(GangPods { count: pods_of.count - there, ..pods_of.clone() });
        }
    }

    /// A gang of ours that Volcano has not admitted yet counts as if it had. It has pods where its PodGroup was lost, or is
    /// on its way from Unknown back to Running: what they have counts once.
    fn promise(&mut self, placement: &Placement, pods: &[(&Row, &PodFacts)], has_group: bool) -> Result<(), String> {
        let Some(shape) = &placement.status.gang else { return Ok(()) };
        let gang = Gang::parse(shape)?;
        let mut placed = Resources::new();
        for (_, pod) in pods.iter().filter(|(row, pod)| row.deleting.is_none() && !is_finished(pod)) {
            if !pod.node.is_empty() {
                placed.add(&requests(pod)?);
            }
        }
        let lacks = gang.min.clone().minus(&placed).at_least_zero();
        self.reserved.add(&lacks);
        self.promise_rest(shape, pods);
        if let Some(terms) = self.queues.get_mut(&placement.spec.queue) {
            // Pods of a PodGroup are counted with it; without one nobody else counts them.
            terms.inqueue.add(if has_group { &lacks } else { &gang.min });
            terms.requested.add(&gang.full);
            terms.picture.pod_groups += i32::from(!has_group);
        }
        Ok(())
    }

    /// Equal pods are kept together.
    fn promise_pods(&mut self, pods: GangPods) {
        if pods.count <= 0 {
            return;
        }
        let alike = GangPods { group: String::new(), count: 0, ..pods.clone() };
        let key = serde_json::to_string(&alike).unwrap_or_default();
        let group = pods.group;
        self.promised.entry(key).or_insert(GangPods { group, ..alike }).count += pods.count;
    }
}

/// Whether a pod is one of the gang's group that needs no place any more: it has one, or it is a submitter that is done.
/// One that has ended otherwise is made anew.
fn has_its_place(row: &Row, pod: &PodFacts, group: &str) -> bool {
    let stays = !is_finished(pod) || (group == SUBMITTER_GROUP && &*pod.phase == "Succeeded");
    is_of_group(row.annotation(TASK_SPEC_ANNOTATION), group) && !pod.node.is_empty() && stays
}

/// Whether a pod's task is a gang's group; the submitter's task has a name of its own (specs/volcano.md 5.2).
fn is_of_group(task: &str, group: &str) -> bool {
    task == group || (group == SUBMITTER_GROUP && task == SUBMITTER_TASK)
}

fn of_pod(pod: &PodFacts) -> GangPods {
    let text = |t: &Arc<str>| t.to_string();
    GangPods {
        group: String::new(),
        count: 1,
        requests: pod.requests.iter().map(|(k, v)| (text(k), text(v))).collect(),
        node_selector: pod.node_selector.iter().map(|(k, v)| (text(k), text(v))).collect(),
        tolerations: pod
            .tolerations
            .iter()
            .map(|t| GangToleration {
                key: text(&t.key),
                operator: text(&t.operator),
                value: text(&t.value),
                effect: text(&t.effect),
            })
            .collect(),
    }
}
