//! Reading fields of objects that were decoded as plain JSON, and building requests on them.
//! Must not know any kind in particular.

use std::sync::Arc;

use serde_json::{Value, json};

use crate::api::Time;
use crate::api::wire::{Method, Reply, Request};

/// What stands at a JSON pointer. As `Value::pointer`, without its copies: cores read objects millions of times in a
/// simulation. The pointers written here hold no escaped characters.
fn at<'a>(object: &'a Value, pointer: &str) -> Option<&'a Value> {
    debug_assert!(!pointer.contains('~'), "{pointer}: read such a name with `entry`");
    pointer.split('/').skip(1).try_fold(object, |value, part| match value {
        Value::Object(map) => map.get(part),
        Value::Array(items) => items.get(part.parse::<usize>().ok()?),
        _ => None,
    })
}

/// Text at a JSON pointer; empty where there is none.
pub fn text<'a>(object: &'a Value, pointer: &str) -> &'a str {
    at(object, pointer).and_then(Value::as_str).unwrap_or("")
}

/// Whole number at a JSON pointer.
pub fn number(object: &Value, pointer: &str) -> Option<i64> {
    at(object, pointer).and_then(Value::as_i64)
}

/// List at a JSON pointer; empty where there is none.
pub fn list<'a>(object: &'a Value, pointer: &str) -> &'a [Value] {
    at(object, pointer).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

/// Fields at a JSON pointer; none where there is no object.
pub fn map<'a>(object: &'a Value, pointer: &str) -> impl Iterator<Item = (&'a String, &'a Value)> + use<'a> {
    at(object, pointer).and_then(Value::as_object).into_iter().flatten()
}

/// Whether something stands at a JSON pointer.
pub fn has(object: &Value, pointer: &str) -> bool {
    at(object, pointer).is_some_and(|v| !v.is_null())
}

/// Entry of a map of texts (labels, annotations): names may hold slashes.
pub fn entry<'a>(object: &'a Value, pointer: &str, name: &str) -> &'a str {
    at(object, pointer).and_then(|m| m.get(name)).and_then(Value::as_str).unwrap_or("")
}

/// `metadata.uid`
pub fn uid(object: &Value) -> &str {
    text(object, "/metadata/uid")
}

/// `metadata.name`
pub fn name(object: &Value) -> &str {
    text(object, "/metadata/name")
}

/// `metadata.namespace`
pub fn namespace(object: &Value) -> &str {
    text(object, "/metadata/namespace")
}

/// `namespace/name`
pub fn place(object: &Value) -> String {
    format!("{}/{}", namespace(object), name(object))
}

/// `metadata.resourceVersion` as a number; 0 where it is none.
pub fn version(object: &Value) -> u64 {
    text(object, "/metadata/resourceVersion").parse().unwrap_or(0)
}

/// Whether it is being deleted.
pub fn deleting(object: &Value) -> bool {
    has(object, "/metadata/deletionTimestamp")
}

/// When it was created; time zero where unreadable.
pub fn created(object: &Value) -> Time {
    Time::parse(text(object, "/metadata/creationTimestamp")).unwrap_or_default()
}

/// UID of the controlling owner; empty where there is none.
pub fn controller_uid(object: &Value) -> &str {
    list(object, "/metadata/ownerReferences")
        .iter()
        .find(|r| r.get("controller").and_then(Value::as_bool).unwrap_or(false))
        .map_or("", |r| text(r, "/uid"))
}

/// Whether it carries a finalizer.
pub fn has_finalizer(object: &Value, finalizer: &str) -> bool {
    list(object, "/metadata/finalizers").iter().any(|f| f == finalizer)
}

/// Whether labels match a plain map of names and values. An empty map matches nothing.
pub fn selects(selector: &Value, labels: Option<&Value>) -> bool {
    selector.as_object().is_some_and(|wanted| {
        !wanted.is_empty() && wanted.iter().all(|(k, v)| labels.and_then(|l| l.get(k)) == Some(v))
    })
}

/// Bytes of a JSON body.
pub fn bytes(body: &Value) -> Arc<[u8]> {
    Arc::from(body.to_string().into_bytes())
}

/// Creation of an object.
pub fn post(target: impl Into<String>, body: &Value) -> Request {
    Request::new(Method::Post, target, "application/json", bytes(body))
}

/// Replacement of an object or of its status.
pub fn put(target: impl Into<String>, body: &Value) -> Request {
    Request::new(Method::Put, target, "application/json", bytes(body))
}

/// Merge patch.
pub fn merge(target: impl Into<String>, body: &Value) -> Request {
    Request::new(Method::Patch, target, "application/merge-patch+json", bytes(body))
}

/// Deletion of exactly this object; `options` are further fields of DeleteOptions.
pub fn delete(target: impl Into<String>, uid: &str, options: Value) -> Request {
    let mut body = json!({"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": {"uid": uid}});
    if let (Some(body), Value::Object(options)) = (body.as_object_mut(), options) {
        body.extend(options);
    }
    Request::new(Method::Delete, target, "application/json", bytes(&body))
}

/// Body of an answer as JSON; null where it is none.
pub fn body(reply: &Reply) -> Value {
    serde_json::from_slice(&reply.body).unwrap_or(Value::Null)
}

/// The condition of a type.
pub fn condition<'a>(object: &'a Value, kind: &str) -> Option<&'a Value> {
    list(object, "/status/conditions").iter().find(|c| text(c, "/type") == kind)
}

/// FNV-1a, 64 bits: names that must be the same in every run.
pub fn fnv(parts: &[&str]) -> u64 {
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    for part in parts {
        for byte in part.bytes().chain([0]) {
            hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }
    hash
}

/// Five characters as Kubernetes' own random suffixes have them.
pub fn suffix(mut hash: u64) -> String {
    const ALPHABET: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
    (0..5)
        .map(|_| {
            let at = (hash % ALPHABET.len() as u64) as usize;
            hash /= ALPHABET.len() as u64;
            char::from(ALPHABET[at])
        })
        .collect()
}
