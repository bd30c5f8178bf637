//! What the replica sent to its member, in the form of the recordings.
//! Must not know what ought to have been sent.

use kit::world::Exchange;
use rayfleet::api::wire::Method;
use rayfleet::api::{Cluster, names};
use serde_json::{Map, Value, json};

use super::cases::NAMESPACE;
use super::recording::Write;

/// One exchange, as far as recordings tell of such.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Heard {
    /// A write of a controller.
    Write(Write),
    /// An Event.
    Event(Value),
    /// A question to Ray, or an order.
    Ask(Value),
}

/// What is told of an exchange; `None`: reads, traffic with the hub, conflicts, and writes of our own protocol.
pub(super) fn of(exchange: &Exchange) -> Option<Heard> {
    let Cluster::Member(_) = exchange.cluster else { return None };
    let path = exchange.request.target.split('?').next().unwrap_or_default();
    let body: Value = serde_json::from_slice(&exchange.request.body).unwrap_or_default();
    let parts: Vec<&str> = path.trim_start_matches('/').split('/').collect();
    let (resource, place) = match parts.as_slice() {
        ["api", version, "namespaces", namespace, plural, rest @ ..] if *namespace == NAMESPACE => {
            (format!("{version}/{plural}"), rest)
        }
        ["apis", group, version, "namespaces", namespace, plural, rest @ ..] if *namespace == NAMESPACE => {
            (format!("{group}/{version}/{plural}"), rest)
        }
        // The mark of the registration; anything else beside the case's namespace would be told.
        ["api", "v1", "namespaces", "kube-system"] => return None,
        _ if exchange.request.method == Method::Get => return None,
        _ => (path.to_owned(), &[] as &[&str]),
    };
    if let [service, "proxy", rest @ ..] = place {
        return Some(Heard::Ask(ask(exchange.request.method, service, &rest.join("/"), body)));
    }
    if exchange.request.method == Method::Get {
        return None;
    }
    if resource == "events.k8s.io/v1/events" {
        return Some(Heard::Event(event(&body)));
    }
    let reply: Value =
        exchange.reply.as_ref().and_then(|reply| serde_json::from_slice(&reply.body).ok()).unwrap_or_default();
    let status = exchange.reply.as_ref().map_or(0, |reply| reply.status);
    let is_refused = !(200..300).contains(&status);
    if is_refused && reply["reason"] == "Conflict" {
        return None;
    }
    if !is_refused && exchange.request.method != Method::Delete && changes_nothing(exchange.before.as_ref(), &reply) {
        return None;
    }
    let name = place.first().map(|&name| name.to_owned());
    let subresource = place.get(1).map(|&sub| sub.to_owned());
    let name = name.or_else(|| body["metadata"]["name"].as_str().map(str::to_owned));
    let verb = match exchange.request.method {
        Method::Post => "create",
        Method::Put => "update",
        Method::Patch => "patch",
        Method::Delete => "delete",
        Method::Get => return None,
    };
    let by = by(&resource, verb, subresource.as_deref(), exchange.before.as_ref().unwrap_or(&body), &body);
    Some(Heard::Write(Write {
        by: by.to_owned(),
        verb: verb.to_owned(),
        body: told(&resource, verb, subresource.as_deref(), body),
        resource,
        subresource,
        name,
        label_selector: None,
        code: is_refused.then_some(status),
        error: is_refused.then(|| reply["message"].as_str().unwrap_or_default().to_owned()),
    }))
}

/// What recordings keep of a body.
fn told(resource: &str, verb: &str, subresource: Option<&str>, mut body: Value) -> Value {
    let Some(map) = body.as_object_mut() else { return body };
    if verb == "delete" {
        map.remove("apiVersion");
        map.remove("kind");
    } else if subresource == Some("status") {
        map.retain(|key, _| matches!(key.as_str(), "apiVersion" | "kind" | "status"));
    } else if resource.starts_with("ray.io/") {
        map.remove("status");
    }
    if map.is_empty() { Value::Null } else { body }
}

/// The controller of a write: of the object's kind, or of its owner's.
fn by(resource: &str, verb: &str, subresource: Option<&str>, object: &Value, body: &Value) -> &'static str {
    let owner = || {
        let owners = object["metadata"]["ownerReferences"].as_array();
        let mut controllers = owners.into_iter().flatten().filter(|owner| owner["controller"] == true);
        match controllers.next().and_then(|owner| owner["kind"].as_str()) {
            Some("RayJob") => "rayjob",
            Some("RayService") => "rayservice",
            Some("RayCronJob") => "raycronjob",
            _ => "raycluster",
        }
    };
    match resource {
        "ray.io/v1/rayclusters" if subresource.is_some() => "raycluster",
        // Its finalizer is its own controller's, its spec is its owner's.
        "ray.io/v1/rayclusters" if verb == "update" && object["spec"] == body["spec"] => "raycluster",
        "ray.io/v1/rayjobs" if verb == "create" => owner(),
        "ray.io/v1/rayjobs" => "rayjob",
        "ray.io/v1/rayservices" => "rayservice",
        "ray.io/v1/raycronjobs" => "raycronjob",
        _ => owner(),
    }
}

/// Whether a write left the object as it was, but for our own marks.
fn changes_nothing(before: Option<&Value>, after: &Value) -> bool {
    let Some(before) = before else { return false };
    let plain = |object: &Value| {
        let mut object = object.clone();
        strip(&mut object);
        if let Some(metadata) = object["metadata"].as_object_mut() {
            for field in ["resourceVersion", "managedFields", "generation"] {
                metadata.remove(field);
            }
        }
        object
    };
    // The same write of the operator's would have changed as little; only what bears marks is ours.
    before != after && plain(before) == plain(after) && marks(before) != marks(after)
}

/// All values of our own keys.
fn marks(object: &Value) -> String {
    let ours = |field: &str| -> Map<String, Value> {
        let map = object["metadata"][field].as_object();
        map.into_iter().flatten().filter(|(k, _)| is_ours(k)).map(|(k, v)| (k.clone(), v.clone())).collect()
    };
    let finalizers = object["metadata"]["finalizers"].as_array();
    let finalizers: Vec<&Value> =
        finalizers.into_iter().flatten().filter(|f| f.as_str().is_some_and(is_ours)).collect();
    json!([ours("labels"), ours("annotations"), finalizers]).to_string()
}

fn is_ours(key: &str) -> bool {
    const PREFIX: &str = "rayfleet.io/";
    debug_assert!(names::STAMPS.starts_with(PREFIX), "our keys have one prefix");
    key.starts_with(PREFIX)
}

/// Takes our own keys off an object, and the maps and lists that held nothing else.
pub(super) fn strip(value: &mut Value) {
    match value {
        Value::Object(map) => {
            for field in ["labels", "annotations"] {
                if let Some(Value::Object(keys)) = map.get_mut(field) {
                    let had = keys.len();
                    keys.retain(|key, _| !is_ours(key));
                    if keys.is_empty() && had > 0 {
                        map.remove(field);
                    }
                }
            }
            if let Some(Value::Array(list)) = map.get_mut("finalizers") {
                let had = list.len();
                list.retain(|name| !name.as_str().is_some_and(is_ours));
                if list.is_empty() && had > 0 {
                    map.remove("finalizers");
                }
            }
            map.values_mut().for_each(strip);
        }
        Value::Array(list) => list.iter_mut().for_each(strip),
        _ => {}
    }
}

fn event(body: &Value) -> Value {
    let regarding = json!({ "kind": body["regarding"]["kind"], "name": body["regarding"]["name"] });
    json!({
        "action": body["action"], "note": body["note"], "reason": body["reason"], "regarding": regarding,
        "reportingController": body["reportingController"], "type": body["type"],
    })
}

/// The operator asks the Service; we ask through the API server's proxy.
fn ask(method: Method, service: &str, rest: &str, body: Value) -> Value {
    let (name, port) = service.split_once(':').unwrap_or((service, "8265"));
    // Ports are asked for by the name that head Services give them.
    let port = if port == "dashboard" { "8265" } else { port };
    let url = format!("http://{name}.{NAMESPACE}.svc.cluster.local:{port}/{rest}");
    let mut ask = json!({ "method": method.as_str(), "url": url });
    if !body.is_null() {
        ask["body"] = body;
    }
    ask
}

#[cfg(test)]
mod tests {
    use rayfleet::api::Time;
    use rayfleet::api::wire::{Reply, Request};

    use super::*;

    const PODS: &str = "/api/v1/namespaces/golden/pods";

    fn exchange(
        method: Method,
        target: &str,
        body: &Value,
        before: Option<Value>,
        status: u16,
        reply: &Value,
    ) -> Exchange {
        let bytes = |value: &Value| value.to_string().into_bytes().into();
        Exchange {
            at: Time(0),
            replica: 0,
            cluster: Cluster::Member("here".into()),
            request: Request::new(method, target, "application/json", bytes(body)),
            before,
            reply: Some(Reply { status, headers: Vec::new(), body: bytes(reply) }),
        }
    }

    fn job(annotations: Value, version: &str) -> Value {
        json!({ "kind": "RayJob", "metadata": { "name": "a", "annotations": annotations, "resourceVersion": version } })
    }

    fn put_of_job(before: Value, after: &Value) -> Option<Heard> {
        of(&exchange(Method::Put, "/apis/ray.io/v1/namespaces/golden/rayjobs/a", after, Some(before), 200, after))
    }

    #[test]
    fn a_write_of_marks_alone_is_our_own_protocols_and_any_other_is_told() {
        let stamped = |value: &str| json!({ names::STAMPS: value });
        assert_eq!(put_of_job(job(stamped("1"), "1"), &job(stamped("2"), "2")), None);
        let other = json!({ names::STAMPS: "2", "note": "x" });
        assert!(put_of_job(job(stamped("1"), "1"), &job(other, "2")).is_some());
        let same = job(stamped("1"), "1");
        assert!(
            put_of_job(same.clone(), &same).is_some(),
            "what changes nothing at all is a write like the operator's"
        );
    }

    #[test]
    fn a_creation_is_its_owners_and_a_conflict_is_left_out() {
        let owner = json!([{ "kind": "RayJob", "controller": true }]);
        let body = json!({ "kind": "Pod", "metadata": { "name": "p", "ownerReferences": owner } });
        let told = of(&exchange(Method::Post, PODS, &body, None, 201, &body));
        let Some(Heard::Write(write)) = told else { unreachable!("{told:?}") };
        assert_eq!((&*write.by, &*write.verb, &*write.resource), ("rayjob", "create", "v1/pods"));
        assert_eq!((write.name.as_deref(), write.code), (Some("p"), None));
        let conflict = json!({ "kind": "Status", "reason": "Conflict" });
        assert_eq!(of(&exchange(Method::Post, PODS, &body, None, 409, &conflict)), None);
        let exists = json!({ "kind": "Status", "reason": "AlreadyExists", "message": "there" });
        assert!(of(&exchange(Method::Post, PODS, &body, None, 409, &exists)).is_some());
    }

    #[test]
    fn a_question_is_told_by_the_address_that_the_operator_would_use() {
        let target = "/api/v1/namespaces/golden/services/a-head-svc:8265/proxy/api/jobs/x";
        let told = of(&exchange(Method::Get, target, &Value::Null, None, 200, &Value::Null));
        let url = "http://a-head-svc.golden.svc.cluster.local:8265/api/jobs/x";
        assert_eq!(told, Some(Heard::Ask(json!({ "method": "GET", "url": url }))));
    }

    #[test]
    fn what_is_written_beside_the_cases_namespace_is_told_too() {
        let body = json!({ "metadata": { "name": "p" } });
        let told = of(&exchange(Method::Post, "/api/v1/namespaces/other/pods", &body, None, 201, &body));
        assert!(matches!(told, Some(Heard::Write(_))), "{told:?}");
    }
}
