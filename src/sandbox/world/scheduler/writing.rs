//! What Volcano writes: statuses of PodGroups and Queues, bindings, conditions, events, PodGroups of single pods.
//! Must not know when it is written.

use serde_json::{Value, json};

use super::amounts::{Amounts, of_pod};
use super::session::{allocated_of, counts, same_condition};
use super::snapshot::{Gang, Snapshot, Status, Task};
use crate::api::names::POD_GROUP_ANNOTATION;
use crate::api::wire::Request;
use crate::api::{Kind, Time};
use crate::sandbox::world::object::{entry, list, merge, name, namespace, post, put, text, uid};
use crate::sandbox::world::resource::Resource;

/// An event about a PodGroup.
#[derive(Debug)]
pub(super) struct GroupEvent<'a> {
    group: &'a Value,
    kind: &'static str,
    message: String,
}

impl GroupEvent<'_> {
    /// What it says, to notice repetitions.
    pub(super) fn words(&self) -> String {
        format!("{} {}", self.kind, self.message)
    }

    /// Its creation.
    pub(super) fn request(&self, now: Time) -> Request {
        event(self.group, "PodGroup", &Kind::PodGroup.api_version(), (self.kind, "Unschedulable"), &self.message, now)
    }
}

/// Creation of a core event.
pub(super) fn event(
    about: &Value,
    kind: &str,
    api_version: &str,
    (level, reason): (&str, &str),
    message: &str,
    now: Time,
) -> Request {
    let at = now.seconds_text();
    let target = format!("/api/v1/namespaces/{}/events", namespace(about));
    let hash = crate::sandbox::world::object::fnv(&[uid(about), reason, message, &now.0.to_string()]);
    post(
        target,
        &json!({
            "apiVersion": "v1", "kind": "Event",
            "metadata": {"name": format!("{}.{hash:016x}", name(about)), "namespace": namespace(about)},
            "involvedObject": {
                "apiVersion": api_version, "kind": kind, "namespace": namespace(about), "name": name(about), "uid": uid(about),
            },
            "type": level, "reason": reason, "message": message, "count": 1,
            "firstTimestamp": at, "lastTimestamp": at, "source": {"component": "volcano"},
        }),
    )
}

/// A refusal at enqueue (Normal), or that the gang is not ready (Warning), also said of one without pods.
pub(super) fn group_event<'a>(
    gang: &'a Gang,
    refusal: Option<&String>,
    unready: Option<&(String, String)>,
) -> Option<GroupEvent<'a>> {
    let group = gang.object.as_ref();
    if let Some(message) = refusal {
        return Some(GroupEvent { group, kind: "Normal", message: message.clone() });
    }
    if let Some((_, message)) = unready {
        return Some(GroupEvent { group, kind: "Warning", message: message.clone() });
    }
    (gang.tasks.is_empty() && gang.min_member > 0).then(|| GroupEvent {
        group,
        kind: "Warning",
        message: format!("0/0 tasks in gang unschedulable: pod group is not ready, {} minAvailable", gang.min_member),
    })
}

/// Binding of a pod to a node.
pub(super) fn bind(pod: &Value, node: &str) -> Request {
    let target = format!("{}/binding", Resource::of(Kind::Pod).path_of(pod));
    let body = json!({
        "apiVersion": "v1", "kind": "Binding",
        "metadata": {"name": name(pod), "namespace": namespace(pod), "uid": uid(pod)},
        "target": {"apiVersion": "v1", "kind": "Node", "name": node},
    });
    post(target, &body)
}

/// The PodGroup's status after the session, if it differs from what is stored. Volcano writes the whole object.
pub(super) fn group_status(gang: &Gang, unready: Option<&(String, String)>, now: Time) -> Option<Request> {
    let stored = gang.object.get("status").cloned().unwrap_or(Value::Null);
    let mut status = json!({"phase": gang.phase});
    for (field, count) in counts(gang) {
        if count > 0 {
            status[field] = json!(count);
        }
    }
    let mut conditions = list(&stored, "/conditions").to_vec();
    let told = match unready {
        Some((reason, message)) => Some(("Unschedulable", reason.as_str(), message.as_str())),
        None if !gang.tasks.is_empty() && gang.is_ready() => {
            Some(("Scheduled", "tasks in gang are ready to be scheduled", ""))
        }
        None => None,
    };
    if let Some((kind, reason, message)) = told {
        let new = json!({
            "type": kind, "status": "True", "reason": reason, "message": message,
            "lastTransitionTime": now.seconds_text(), "transitionID": uid(&gang.object),
        });
        match conditions.iter_mut().find(|c| text(c, "/type") == kind) {
            Some(old) if same_condition(old, &new) => {}
            Some(old) => *old = new,
            None => conditions.push(new),
        }
    }
    if !conditions.is_empty() {
        status["conditions"] = json!(conditions);
    }
    if stored == status {
        return None;
    }
    let mut body = (*gang.object).clone();
    body["status"] = status;
    Some(put(Resource::of(Kind::PodGroup).path_of(&gang.object), &body))
}

/// Why a pod of a gang has no node, if that is not yet said.
pub(super) fn unscheduled(task: &Task, of_gang: &str, now: Time) -> Option<Request> {
    if task.status != Status::Pending || task.gated {
        return None;
    }
    let own = task.failure.as_deref().filter(|f| !f.is_empty());
    let gang = of_gang.split(": ").skip(1).collect::<Vec<_>>().join(": ");
    not_scheduled(&task.pod, own.unwrap_or(&gang), now)
}

/// The condition of a pod without a node; `None` if it stands there already.
pub(super) fn not_scheduled(pod: &Value, message: &str, now: Time) -> Option<Request> {
    let new = json!({
        "type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message,
        "lastProbeTime": null, "lastTransitionTime": now.seconds_text(),
    });
    let mut conditions = list(pod, "/status/conditions").to_vec();
    match conditions.iter_mut().find(|c| text(c, "/type") == "PodScheduled") {
        Some(old) if same_condition(old, &new) => return None,
        Some(old) => *old = new,
        None => conditions.push(new),
    }
    let mut body = pod.clone();
    body["status"]["conditions"] = json!(conditions);
    Some(put(format!("{}/status", Resource::of(Kind::Pod).path_of(pod)), &body))
}

/// State and allocated of a queue, if they differ from what is stored. The queue `root` sums up all.
pub(super) fn queue_status(queue: &Value, snapshot: &Snapshot, groups: usize) -> Option<Request> {
    let stored = queue.get("status").cloned().unwrap_or_else(|| json!({}));
    let mut allocated = Amounts::default();
    if name(queue) == "root" {
        for gang in snapshot.gangs.values() {
            allocated.add(&gang.allocated().0);
        }
    } else {
        allocated = allocated_of(snapshot, name(queue));
    }
    let state = match text(&stored, "/state") {
        "" => "Open",
        "Closing" if groups == 0 => "Closed",
        "Closed" if groups > 0 => "Closing",
        other => other,
    };
    let mut status = stored.clone();
    status["state"] = json!(state);
    status["allocated"] = allocated.to_list();
    status["reservation"] = json!({});
    if stored == status {
        return None;
    }
    let mut body = queue.clone();
    body["status"] = status;
    Some(put(format!("{}/status", Resource::of(Kind::Queue).path_of(queue)), &body))
}

/// Name and body of the PodGroup that Volcano makes for a pod that names none.
pub(super) fn own_group(pod: &Value) -> (String, Value) {
    let owner = list(pod, "/metadata/ownerReferences").iter().find(|r| r.get("controller") == Some(&json!(true)));
    let of = owner.map_or(uid(pod), |r| text(r, "/uid"));
    let group = format!("podgroup-{of}");
    let queue = match entry(pod, "/metadata/annotations", "scheduling.volcano.sh/queue-name") {
        "" => "default",
        queue => queue,
    };
    let asks = of_pod(pod).to_list();
    let mut least = json!({"pods": "1", "count/pods": "1"});
    for (resource, amount) in asks.as_object().into_iter().flatten().filter(|(n, a)| *n != "pods" && **a != "0") {
        least[resource] = amount.clone();
        least[format!("requests.{resource}")] = amount.clone();
    }
    let reference = owner.cloned().unwrap_or_else(|| {
        json!({"apiVersion": "v1", "kind": "Pod", "name": name(pod), "uid": uid(pod), "controller": true, "blockOwnerDeletion": true})
    });
    let mut object = json!({
        "apiVersion": Kind::PodGroup.api_version(), "kind": "PodGroup",
        "metadata": {"name": group, "namespace": namespace(pod), "ownerReferences": [reference]},
        "spec": {"minMember": 1, "minResources": least, "queue": queue},
    });
    let priority = text(pod, "/spec/priorityClassName");
    if !priority.is_empty() {
        object["spec"]["priorityClassName"] = json!(priority);
    }
    (group, object)
}

/// Names the PodGroup on its pod.
pub(super) fn annotate(pod: &Value, group: &str) -> Request {
    let body = json!({"metadata": {"annotations": {POD_GROUP_ANNOTATION: group}}});
    merge(Resource::of(Kind::Pod).path_of(pod), &body)
}
