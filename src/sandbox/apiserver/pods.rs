//! Calls on pods: binding to a node, eviction, logs.
//! Must not know who schedules, runs or reads them.

use std::sync::Arc;

use serde_json::{Value, json};

use super::body;
use super::cause::Cause;
use super::delete::DeleteOptions;
use super::registry::ResourceType;
use super::route::Place;
use super::server::{ApiServer, Call, Outcome};
use super::status_reply::{Refusal, Refused, bad_request, invalid_object, not_built, not_found, unclassified};
use super::{Answer, LogCall};
use crate::api::Time;
use crate::api::wire::Reply;

fn success() -> Outcome {
    Outcome::Value(201, json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201}))
}

impl ApiServer {
    fn pods(&self) -> Arc<ResourceType> {
        self.registry.find("", "v1", "pods").expect("pods are built in").clone()
    }

    /// POST of a `Binding`: gives a pod its node.
    pub(super) fn bind(&mut self, call: &Call) -> Result<Outcome, Refused> {
        let value = body::object(call.request, call.ty())?.value;
        let named = value["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        let name = if call.place.name.is_empty() { named.clone() } else { call.place.name.clone() };
        if name != named {
            return Err(bad_request("name in URL does not match name in Binding object"));
        }
        let node = value["target"]["name"].as_str().unwrap_or_default();
        if node.is_empty() {
            return Err(unclassified("target.name: Required value"));
        }
        let ty = self.pods();
        let key = call.place.key_of(&name);
        let current = self.store.get(&ty.storage_key, &key).cloned().ok_or_else(|| not_found(&ty, &name))?;
        let conflict = |why: String| {
            Refusal::new(409, "Conflict", format!("Operation cannot be fulfilled on pods/binding \"{name}\": {why}"))
                .with_details(json!({"name": name, "kind": "pods/binding"}))
        };
        if current.meta("deletionTimestamp").is_some() {
            return Err(conflict(format!("pod {name} is being deleted, cannot be assigned to a host")));
        }
        let bound = current.value["spec"]["nodeName"].as_str().unwrap_or_default();
        if !bound.is_empty() {
            return Err(conflict(format!("pod {name} is already assigned to node \"{bound}\"")));
        }
        let mut object = Value::clone(&current.value);
        object["spec"]["nodeName"] = node.into();
        for (key, text) in value["metadata"]["annotations"].as_object().into_iter().flatten() {
            object["metadata"]["annotations"][key] = text.clone();
        }
        set_condition(&mut object, "PodScheduled", None, call.now);
        if !call.dry_run() {
            self.store_object(&ty, &key, object);
        }
        Ok(success())
    }

    /// POST of an `Eviction`: a deletion that a disruption budget may refuse.
    pub(super) fn evict(&mut self, call: &Call) -> Result<Outcome, Refused> {
        let value = body::object(call.request, call.ty())?.value;
        let ty = self.pods();
        let key = call.place.key();
        let Some(pod) = self.store.get(&ty.storage_key, &key).cloned() else {
            return Err(not_found(&ty, &call.place.name));
        };
        self.check_budgets(call.place, &pod.value)?;
        let asked = &value["deleteOptions"];
        let words = |v: &Value| v.as_str().map(str::to_owned);
        let options = DeleteOptions {
            grace_s: asked["gracePeriodSeconds"].as_i64(),
            propagation: words(&asked["propagationPolicy"]),
            uid: words(&asked["preconditions"]["uid"]),
            version: words(&asked["preconditions"]["resourceVersion"]),
            dry_run: call.dry_run(),
            orphan: None,
        };
        if !call.dry_run() && pod.meta("deletionTimestamp").is_none() {
            let mut told = Value::clone(&pod.value);
            set_condition(
                &mut told,
                "DisruptionTarget",
                Some(("EvictionByEvictionAPI", "Eviction API: evicting")),
                call.now,
            );
            self.store_object(&ty, &key, told);
        }
        self.delete_object(&ty, &key, &call.place.name, &options, call.now)?;
        Ok(success())
    }

    /// Nobody counts healthy pods here, so a budget that fits has never been worked on.
    fn check_budgets(&self, place: &Place, pod: &Value) -> Result<(), Refused> {
        let running = pod["status"]["phase"] == "Running";
        let Some(budgets) = self.registry.find("policy", "v1", "poddisruptionbudgets") else { return Ok(()) };
        for (_, budget) in self.store.collection(&budgets.storage_key).range(&place.prefix(), &place.prefix()) {
            let wanted = budget.value["spec"]["selector"]["matchLabels"].as_object();
            let fits = wanted.is_some_and(|w| w.iter().all(|(k, v)| pod["metadata"]["labels"].get(k) == Some(v)));
            if !fits || !running {
                continue;
            }
            if budget.value["status"]["disruptionsAllowed"].as_i64().unwrap_or(0) > 0 {
                continue;
            }
            let name = budget.meta_text("name");
            let message = format!("The disruption budget {name} is still being processed by the server.");
            let mut refusal = Refusal::new(
                429,
                "TooManyRequests",
                "Cannot evict pod as it would violate the pod's disruption budget.",
            )
            .with_details(json!({
                "causes": [{"reason": "DisruptionBudget", "message": message}], "retryAfterSeconds": 10,
            }));
            refusal.headers.push(("retry-after".into(), "10".into()));
            return Err(refusal);
        }
        Ok(())
    }

    /// Calls into a running pod: they go through the kubelet of its node, and the sandbox's has no such door. A node that
    /// is not there is told by its name, as if it were the pod.
    pub(super) fn reach_into(&self, call: &Call) -> Result<Outcome, Refused> {
        let ty = self.pods();
        let name = &call.place.name;
        let pod = self.store.get(&ty.storage_key, &call.place.key()).ok_or_else(|| not_found(&ty, name))?;
        let node = pod.value["spec"]["nodeName"].as_str().unwrap_or_default();
        if node.is_empty() {
            return Err(bad_request(format!("pod {name} does not have a host assigned")));
        }
        if self.store.get("/nodes", node).is_none() {
            return Err(not_found(&ty, node));
        }
        Err(not_built(&format!("the subresource pods/{}", call.place.subresource)))
    }

    /// GET of a container's log: whoever runs the server has it.
    pub(super) fn log(&mut self, call: &Call) -> Result<Outcome, Refused> {
        let ty = self.pods();
        let name = &call.place.name;
        let pod = self.store.get(&ty.storage_key, &call.place.key()).ok_or_else(|| not_found(&ty, name))?;
        let spec = &pod.value["spec"];
        let names = |field: &str| -> Vec<&str> {
            spec[field].as_array().into_iter().flatten().filter_map(|c| c["name"].as_str()).collect()
        };
        let containers = names("containers");
        let container = match (call.query.text("container"), containers.as_slice()) {
            (Some(asked), _) => {
                if !containers.contains(&asked) && !names("initContainers").contains(&asked) {
                    return Err(bad_request(format!("container {asked} is not valid for pod {name}")));
                }
                asked.to_owned()
            }
            (None, [only]) => (*only).to_owned(),
            (None, several) => {
                return Err(bad_request(format!(
                    "a container name must be specified for pod {name}, choose one of: [{}]",
                    several.join(" ")
                )));
            }
        };
        if let Some(lines) = call.query.number("tailLines")?.filter(|n| *n < 0) {
            let cause = Cause::invalid("tailLines", &lines.into(), "must be greater than or equal to 0");
            return Err(invalid_object("", "PodLogOptions", name, &[cause]));
        }
        let node = spec["nodeName"].as_str().unwrap_or_default();
        if node.is_empty() {
            // A pod without a node has no log yet: an empty answer.
            return Ok(Outcome::Reply(Reply { status: 204, headers: Vec::new(), body: Arc::from([]) }));
        }
        let nodes = self.registry.find("", "v1", "nodes").expect("nodes are built in");
        if self.store.get(&nodes.storage_key, node).is_none() {
            // The real server reports the node in the words of the pod's resource.
            return Err(not_found(&ty, node));
        }
        Ok(Outcome::Answer(Answer::Log(LogCall {
            namespace: call.place.namespace.clone(),
            pod: name.clone(),
            container,
            follow: call.query.flag("follow").unwrap_or(false),
            tail_lines: call.query.number("tailLines")?.and_then(|n| usize::try_from(n).ok()),
            previous: call.query.flag("previous").unwrap_or(false),
        })))
    }
}

/// A pod's address stands in two fields, of which the older one has the say.
fn one_address(status: &mut serde_json::Map<String, Value>) {
    let first = status.get("podIPs").and_then(|list| list[0]["ip"].as_str()).unwrap_or_default().to_owned();
    let single = status.get("podIP").and_then(Value::as_str).unwrap_or_default().to_owned();
    if !single.is_empty() && single != first {
        status.insert("podIPs".into(), json!([{"ip": single}]));
    } else if single.is_empty() && !first.is_empty() {
        status.insert("podIP".into(), first.into());
    }
}

/// Fields of a pod's status that Go writes also where nobody set them.
pub(super) fn fill_status(object: &mut Value) {
    let Some(status) = object.get_mut("status").and_then(Value::as_object_mut) else { return };
    one_address(status);
    let fill = |status: &mut serde_json::Map<String, Value>, list: &str, fields: &[(&str, Value)]| {
        for element in status.get_mut(list).and_then(Value::as_array_mut).into_iter().flatten() {
            let Some(element) = element.as_object_mut() else { continue };
            for (field, value) in fields {
                element.entry(*field).or_insert_with(|| value.clone());
            }
        }
    };
    fill(status, "conditions", &[("lastProbeTime", Value::Null), ("lastTransitionTime", Value::Null)]);
    let container = [
        ("state", json!({})),
        ("lastState", json!({})),
        ("ready", json!(false)),
        ("restartCount", json!(0)),
        ("image", json!("")),
        ("imageID", json!("")),
    ];
    for list in ["containerStatuses", "initContainerStatuses", "ephemeralContainerStatuses"] {
        fill(status, list, &container);
        for element in status.get_mut(list).and_then(Value::as_array_mut).into_iter().flatten() {
            for path in ["/state", "/lastState"] {
                fill_times(element.pointer_mut(path));
            }
        }
    }
}

/// A new pod with gates says why it is not scheduled.
pub(super) fn note_gates(object: &mut Value, now: Time) {
    if object["spec"]["schedulingGates"].as_array().is_some_and(|g| !g.is_empty()) {
        object["status"]["conditions"] = json!([{
            "type": "PodScheduled", "status": "False", "lastProbeTime": null, "lastTransitionTime": now.seconds_text(),
            "reason": "SchedulingGated", "message": "Scheduling is blocked due to non-empty scheduling gates",
        }]);
    }
}

/// Times of a container's state that nobody set are null.
fn fill_times(state: Option<&mut Value>) {
    let Some(state) = state.and_then(Value::as_object_mut) else { return };
    for (kind, times) in [("terminated", &["startedAt", "finishedAt"][..]), ("running", &["startedAt"][..])] {
        if let Some(kind) = state.get_mut(kind).and_then(Value::as_object_mut) {
            for time in times {
                kind.entry(*time).or_insert(Value::Null);
            }
        }
    }
}

/// Sets a condition to true.
/// Sets a condition to true; `why`: its reason and message.
fn set_condition(object: &mut Value, kind: &str, why: Option<(&str, &str)>, now: Time) {
    let mut condition = json!({
        "type": kind, "status": "True", "lastProbeTime": null, "lastTransitionTime": now.seconds_text(),
    });
    if let Some((reason, message)) = why {
        condition["reason"] = reason.into();
        condition["message"] = message.into();
    }
    let conditions = &mut object["status"]["conditions"];
    match conditions.as_array_mut() {
        Some(list) => match list.iter_mut().find(|c| c["type"] == kind) {
            Some(found) => *found = condition,
            None => list.push(condition),
        },
        None => *conditions = json!([condition]),
    }
}
