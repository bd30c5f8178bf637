//! What the server says when it refuses, and the `Status` objects that carry it: the words of a real API server.
//! Must not know why a request is refused, nor what is stored.

use std::sync::Arc;

use serde_json::{Map, Value, json};

use super::cause::{self, Cause};
use super::registry::ResourceType;
use crate::api::wire::Reply;

/// A request that is not carried out.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Refusal {
    /// HTTP status.
    pub code: u16,
    /// Machine-readable reason; empty where the real server has none.
    pub reason: &'static str,
    /// Sentence for people.
    pub message: String,
    /// `details` of the `Status`, if any.
    pub details: Option<Value>,
    /// `metadata` of the `Status`.
    pub metadata: Value,
    /// Headers besides the content type.
    pub headers: Vec<(String, String)>,
    /// Not a `Status` but this text (paths that lead nowhere).
    pub plain: Option<&'static str>,
}

/// Refusals are rare and large: boxed, so that the good path stays small.
pub(super) type Refused = Box<Refusal>;

impl Refusal {
    pub(super) fn new(code: u16, reason: &'static str, message: impl Into<String>) -> Refused {
        Box::new(Self {
            code,
            reason,
            message: message.into(),
            details: None,
            metadata: json!({}),
            headers: Vec::new(),
            plain: None,
        })
    }

    pub(super) fn with_details(mut self: Box<Self>, details: Value) -> Refused {
        self.details = Some(details);
        self
    }

    /// The `Status` object.
    pub(super) fn status(&self) -> Value {
        let mut status = json!({
            "kind": "Status", "apiVersion": "v1", "metadata": self.metadata,
            "status": "Failure", "message": self.message, "code": self.code,
        });
        if !self.reason.is_empty() {
            status["reason"] = self.reason.into();
        }
        if let Some(details) = &self.details {
            status["details"] = details.clone();
        }
        status
    }

    pub(super) fn reply(&self) -> Reply {
        let mut headers = self.headers.clone();
        if let Some(text) = self.plain {
            headers.push(("content-type".into(), "text/plain; charset=utf-8".into()));
            return Reply { status: self.code, headers, body: Arc::from(text.as_bytes()) };
        }
        headers.push(("content-type".into(), "application/json".into()));
        Reply { status: self.code, headers, body: status_text(&self.status()) }
    }
}

/// `Status` in the order in which the real server writes its fields, with a line feed at the end.
pub(super) fn status_text(status: &Value) -> Arc<[u8]> {
    let mut text = super::text::ordered(status);
    text.push(b'\n');
    Arc::from(text)
}

/// `group` falls away for the core group, as everywhere in `details`.
pub(super) fn details(group: &str, kind: &str, name: &str) -> Map<String, Value> {
    let mut map = Map::new();
    if !name.is_empty() {
        map.insert("name".into(), name.into());
    }
    if !group.is_empty() {
        map.insert("group".into(), group.into());
    }
    if !kind.is_empty() {
        map.insert("kind".into(), kind.into());
    }
    map
}

fn resource_details(ty: &ResourceType, name: &str) -> Value {
    Value::Object(details(&ty.group, &ty.plural, name))
}

fn qualified(group: &str, name: &str) -> String {
    if group.is_empty() { name.to_owned() } else { format!("{name}.{group}") }
}

pub(super) fn not_found(ty: &ResourceType, name: &str) -> Refused {
    Refusal::new(404, "NotFound", format!("{} \"{name}\" not found", ty.qualified()))
        .with_details(resource_details(ty, name))
}

pub(super) fn already_exists(ty: &ResourceType, name: &str, being_deleted: bool) -> Refused {
    let prefix = if being_deleted { "object is being deleted: " } else { "" };
    Refusal::new(409, "AlreadyExists", format!("{prefix}{} \"{name}\" already exists", ty.qualified()))
        .with_details(resource_details(ty, name))
}

/// The resourceVersion in the request is not the stored one.
pub(super) fn stale(ty: &ResourceType, name: &str) -> Refused {
    conflict(ty, name, "the object has been modified; please apply your changes to the latest version and try again")
}

pub(super) fn conflict(ty: &ResourceType, name: &str, why: &str) -> Refused {
    Refusal::new(409, "Conflict", format!("Operation cannot be fulfilled on {} \"{name}\": {why}", ty.qualified()))
        .with_details(resource_details(ty, name))
}

/// Preconditions of a delete speak of the kind, not of the resource.
pub(super) fn conflict_of_kind(ty: &ResourceType, name: &str, why: &str) -> Refused {
    Refusal::new(409, "Conflict", format!("Operation cannot be fulfilled on {} \"{name}\": {why}", ty.qualified_kind()))
        .with_details(Value::Object(details(&ty.group, &ty.kind, name)))
}

pub(super) fn forbidden(ty: &ResourceType, name: &str, why: &str) -> Refused {
    let what = ty.qualified();
    let message = if name.is_empty() {
        format!("{what} is forbidden: {why}")
    } else {
        format!("{what} \"{name}\" is forbidden: {why}")
    };
    Refusal::new(403, "Forbidden", message).with_details(resource_details(ty, name))
}

pub(super) fn bad_request(message: impl Into<String>) -> Refused {
    Refusal::new(400, "BadRequest", message)
}

/// 500 without a reason: what the real server says of errors that no part of it has classified.
pub(super) fn unclassified(message: impl Into<String>) -> Refused {
    Refusal::new(500, "", message)
}

pub(super) fn internal(message: &str) -> Refused {
    Refusal::new(500, "InternalError", format!("Internal error occurred: {message}"))
        .with_details(json!({"causes": [{"message": message}]}))
}

pub(super) fn method_not_allowed() -> Refused {
    Refusal::new(405, "MethodNotAllowed", "the server does not allow this method on the requested resource")
        .with_details(json!({}))
}

/// Custom resources name themselves.
pub(super) fn verb_not_supported(ty: &ResourceType, verb: &str) -> Refused {
    Refusal::new(
        405,
        "MethodNotAllowed",
        format!("{verb} is not supported on resources of kind \"{}\"", ty.qualified()),
    )
    .with_details(resource_details(ty, ""))
}

pub(super) fn no_such_resource() -> Refused {
    Refusal::new(404, "NotFound", "the server could not find the requested resource").with_details(json!({}))
}

pub(super) fn no_such_page() -> Refused {
    let mut refusal = Refusal::new(404, "NotFound", "404 page not found");
    refusal.plain = Some("404 page not found\n");
    refusal
}

pub(super) fn unsupported_media_type(accepted: &str) -> Refused {
    Refusal::new(
        415,
        "UnsupportedMediaType",
        format!("the body of the request was in an unknown format - accepted media types include: {accepted}"),
    )
}

/// What this server does not have. Clients see a plain error, and the replay of recordings counts it as "not yet".
pub(super) fn not_built(what: &str) -> Refused {
    let code = if what.contains("patch") { 415 } else { 501 };
    let reason = if code == 415 { "UnsupportedMediaType" } else { "NotImplemented" };
    Refusal::new(code, reason, format!("{what} is not supported by the sandbox"))
}

/// 422 about an object of a type.
pub(super) fn invalid(ty: &ResourceType, name: &str, causes: &[Cause]) -> Refused {
    invalid_object(&ty.group, &ty.kind, name, causes)
}

/// 422 about anything that has a group, a kind and perhaps a name. Causes that say the same stand once in the message.
pub(super) fn invalid_object(group: &str, kind: &str, name: &str, causes: &[Cause]) -> Refused {
    let list = cause::summary(causes);
    let mut map = details(group, kind, name);
    let causes: Vec<Value> =
        causes.iter().map(|c| json!({"reason": c.reason, "message": c.message, "field": c.field})).collect();
    map.insert("causes".into(), Value::Array(causes));
    Refusal::new(422, "Invalid", format!("{} \"{name}\" is invalid: {list}", qualified(group, kind)))
        .with_details(Value::Object(map))
}

/// 422 about the options in the query or in a `DeleteOptions` body.
pub(super) fn invalid_options(kind: &str, causes: &[Cause]) -> Refused {
    invalid_object("meta.k8s.io", kind, "", causes)
}

/// A version that the server no longer has.
pub(super) fn expired(message: impl Into<String>) -> Refused {
    Refusal::new(410, "Expired", message)
}

/// The answer to a delete that left nothing behind.
pub(super) fn deleted(ty: &ResourceType, name: &str, uid: &str) -> Value {
    let mut map = details(&ty.group, &ty.plural, name);
    map.insert("uid".into(), uid.into());
    json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": map})
}
