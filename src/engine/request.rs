//! From actions to requests of the Kubernetes API and from replies to outcomes: pure, shared by shell and simulator.
//! Must not decide anything: an action is complete.

use std::sync::Arc;

use serde_json::{Value, json};

pub use super::event::{event, event_namespace, note};
pub use super::ray::{LogAnswer, answered, ask, ask_log, log_answer};

use super::Outcome;
use crate::api::wire::{Method, Reply, Request};
use crate::api::{Id, Uid, Version};
use crate::plan::{Action, Propagation};

/// The read of one object: no resourceVersion, hence the latest state.
pub fn fetch(id: &Id) -> Request {
    Request::get(id.path())
}

/// The request of a write; `None` for questions to Ray. `timeout_ms` becomes the server's own limit: what it has not
/// begun to store by then it refuses.
pub fn write(action: &Action, timeout_ms: u64) -> Option<Request> {
    const JSON: &str = "application/json";
    let timeout = format!("timeout={}ms", timeout_ms.max(1));
    let bytes = |body: &Value| -> Arc<[u8]> { body.to_string().into_bytes().into() };
    Some(match action {
        Action::Create { id, body, .. } => {
            let namespace = (!id.namespace.is_empty()).then_some(&*id.namespace);
            let path = id.kind.collection_path(namespace);
            Request::new(Method::Post, format!("{path}?{timeout}"), JSON, bytes(body))
        }
        Action::Replace { id, body, .. } => {
            Request::new(Method::Put, format!("{}?{timeout}", id.path()), JSON, bytes(body))
        }
        Action::Status { id, body, .. } => {
            Request::new(Method::Put, format!("{}/status?{timeout}", id.path()), JSON, bytes(body))
        }
        Action::Merge { id, patch, .. } => {
            let target = format!("{}?{timeout}", id.path());
            Request::new(Method::Patch, target, "application/merge-patch+json", bytes(patch))
        }
        Action::Delete { id, seen, children, .. } => {
            let propagation = match children {
                Propagation::Background => "Background",
                Propagation::Foreground => "Foreground",
            };
            let options = json!({
                "apiVersion": "v1",
                "kind": "DeleteOptions",
                "preconditions": {"uid": seen.uid.as_str(), "resourceVersion": seen.version.to_string()},
                "propagationPolicy": propagation,
            });
            Request::new(Method::Delete, format!("{}?{timeout}", id.path()), JSON, bytes(&options))
        }
        Action::Ask { .. } => return None,
    })
}

/// What the reply to [`write`] says. No reply at all (`None`) is the caller's to judge: only it knows whether the bytes
/// had left.
pub fn outcome(action: &Action, reply: Option<&Reply>) -> Outcome {
    let Some(reply) = reply else { return Outcome::Unknown(None, "no answer".to_owned()) };
    let body: Value = serde_json::from_slice(&reply.body).unwrap_or(Value::Null);
    let text = |field: &str| body.get(field).and_then(Value::as_str).unwrap_or("");
    let message = || if text("message").is_empty() { "no explanation".to_owned() } else { text("message").to_owned() };
    match reply.status {
        200..300 => {
            // A deletion is answered with a Status that names the object, or with the object.
            let place = if text("kind") == "Status" { "/details" } else { "/metadata" };
            let metadata = body.pointer(place);
            let field = |name| metadata.and_then(|m| m.get(name)).and_then(Value::as_str).unwrap_or("");
            Outcome::Ok {
                uid: field("uid").into(),
                version: Version::parse(field("resourceVersion")).unwrap_or_default(),
            }
        }
        409 if text("reason") == "AlreadyExists" => Outcome::Exists,
        409 => Outcome::Conflict,
        // For a creation "not found" is about something else: namespace or kind.
        404 if !matches!(action, Action::Create { .. }) => Outcome::Gone,
        // The server, or something before it, gave up on the way: it may have been stored.
        status @ (500 | 502..=504) => Outcome::Unknown(Some(status), message()),
        status => Outcome::Refused(status, message()),
    }
}

/// What the reply to [`fetch`] says: the object, `None` where there is none, or why it could not be read.
pub fn fetched(id: &Id, reply: Option<&Reply>) -> Result<Option<Arc<Value>>, String> {
    let Some(reply) = reply else { return Err(format!("{id}: no answer")) };
    match reply.status {
        200 => match serde_json::from_slice(&reply.body) {
            Ok(object) => Ok(Some(Arc::new(object))),
            // Never the parser's own words: it quotes what it saw, and this may be a Secret.
            Err(_) => Err(format!("{id}: the answer is no JSON")),
        },
        404 => Ok(None),
        status => {
            let message = crate::row::decode_status(&reply.body).map_or(String::new(), |(_, message)| message);
            Err(format!("{id}: {status} {message}").trim_end().to_owned())
        }
    }
}

/// UID and version of an object that was read.
pub(super) fn identity(object: &Value) -> (Uid, Version) {
    let field = |name: &str| object["metadata"][name].as_str().unwrap_or("");
    (field("uid").into(), Version::parse(field("resourceVersion")).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::{Cluster, Kind};
    use crate::plan::Precondition;

    fn seen() -> Precondition {
        Precondition { uid: "u".into(), version: Version(7) }
    }

    fn delete(children: Propagation) -> Action {
        Action::Delete { cluster: Cluster::Hub, id: Id::new(Kind::Pod, "n", "p"), seen: seen(), children }
    }

    fn create() -> Action {
        let id = Id::new(Kind::RayJob, "n", "a");
        Action::Create { cluster: Cluster::Hub, id, body: json!({"metadata": {"name": "a"}}) }
    }

    fn reply(status: u16, body: &Value) -> Reply {
        Reply { status, headers: Vec::new(), body: body.to_string().into_bytes().into() }
    }

    #[test]
    fn every_write_is_one_request_with_the_servers_own_limit() {
        let id = Id::new(Kind::RayJob, "n", "a");
        let body = json!({});
        let put = Action::Replace { cluster: Cluster::Hub, id: id.clone(), body: body.clone(), seen: seen() };
        let status =
            Action::Status { cluster: Cluster::Hub, id: id.clone(), body: body.clone(), seen: seen(), decision: false };
        let merge = Action::Merge { cluster: Cluster::Hub, id, patch: body, seen: seen() };
        let line = |action: &Action| {
            let request = write(action, 5000).unwrap();
            format!("{} {} {}", request.method.as_str(), request.target, request.content_type)
        };
        assert_eq!(line(&create()), "POST /apis/ray.io/v1/namespaces/n/rayjobs?timeout=5000ms application/json");
        assert_eq!(line(&put), "PUT /apis/ray.io/v1/namespaces/n/rayjobs/a?timeout=5000ms application/json");
        assert_eq!(line(&status), "PUT /apis/ray.io/v1/namespaces/n/rayjobs/a/status?timeout=5000ms application/json");
        assert_eq!(
            line(&merge),
            "PATCH /apis/ray.io/v1/namespaces/n/rayjobs/a?timeout=5000ms application/merge-patch+json"
        );
    }

    #[test]
    fn a_deletion_names_uid_and_version() {
        let request = write(&delete(Propagation::Foreground), 5000).unwrap();
        let body: Value = serde_json::from_slice(&request.body).unwrap();
        assert_eq!(body["preconditions"], json!({"uid": "u", "resourceVersion": "7"}));
        assert_eq!(body["propagationPolicy"], "Foreground");
    }

    #[test]
    fn replies_tell_what_happened() {
        let object = json!({"kind": "RayJob", "metadata": {"uid": "u", "resourceVersion": "8"}});
        assert_eq!(
            outcome(&create(), Some(&reply(201, &object))),
            Outcome::Ok { uid: "u".into(), version: Version(8) }
        );
        let status = json!({"kind": "Status", "status": "Success", "details": {"uid": "u"}});
        let done = outcome(&delete(Propagation::Background), Some(&reply(200, &status)));
        assert_eq!(done, Outcome::Ok { uid: "u".into(), version: Version(0) });
        let failure =
            |code: u16, reason: &str| reply(code, &json!({"kind": "Status", "reason": reason, "message": "m"}));
        assert_eq!(outcome(&create(), Some(&failure(409, "AlreadyExists"))), Outcome::Exists);
        assert_eq!(outcome(&create(), Some(&failure(409, "Conflict"))), Outcome::Conflict);
        assert_eq!(outcome(&create(), Some(&failure(404, "NotFound"))), Outcome::Refused(404, "m".into()));
        assert_eq!(outcome(&delete(Propagation::Background), Some(&failure(404, "NotFound"))), Outcome::Gone);
        assert_eq!(outcome(&create(), Some(&failure(422, "Invalid"))), Outcome::Refused(422, "m".into()));
        for code in [500, 502, 503, 504] {
            assert_eq!(outcome(&create(), Some(&failure(code, "x"))), Outcome::Unknown(Some(code), "m".into()));
        }
        assert_eq!(outcome(&create(), None), Outcome::Unknown(None, "no answer".into()));
    }

    #[test]
    fn a_read_tells_absence_from_failure_and_quotes_nothing() {
        let id = Id::new(Kind::Secret, "n", "s");
        assert_eq!(fetched(&id, Some(&reply(404, &json!({})))), Ok(None));
        assert!(fetched(&id, Some(&reply(403, &json!({"kind": "Status", "message": "no"})))).is_err());
        let garbage = Reply { status: 200, headers: Vec::new(), body: Arc::from(*b"hunter2") };
        assert_eq!(fetched(&id, Some(&garbage)), Err("Secret n/s: the answer is no JSON".into()));
    }
}
