//! Events of Kubernetes as requests: pure, shared by shell and simulator.
//! Must not know how many Events are allowed.

use std::sync::Arc;

use serde_json::{Value, json};

use crate::api::wire::{Method, Request};
use crate::api::{Id, Kind, Time};
use crate::plan::Note;

/// `note` of an Event at most (API limit).
const NOTE_BYTES_MAX: usize = 1024;

/// The creation of an Event whose name follows from what it says and when.
pub fn note(note: &Note, now: Time) -> Request {
    let told = format!("{}/{}/{}/{}", note.uid, note.reason, note.note, now.0);
    event(note, &format!("{}.{:x}.{:02x}", note.about.name, now.0, shards::bucket(&told)), "rayfleet", now)
}

/// Events of cluster-scoped objects stand in `default`.
pub fn event_namespace(about: &Id) -> &str {
    if about.namespace.is_empty() { "default" } else { &about.namespace }
}

/// KubeRay's reporting controllers where it has one (specs/rayjob.md 18).
fn controller(kind: Kind) -> &'static str {
    match kind {
        Kind::RayJob => "rayjob-controller",
        Kind::RayCluster => "raycluster-controller",
        Kind::RayService => "rayservice-controller",
        Kind::RayCronJob => "raycronjob-controller",
        _ => "rayfleet",
    }
}

/// The creation of an Event under this name; `instance` names the process that writes it.
pub fn event(note: &Note, name: &str, instance: &str, now: Time) -> Request {
    let about = &note.about;
    let mut regarding = json!({
        "apiVersion": about.kind.api_version(),
        "kind": about.kind.name(),
        "name": &*about.name,
        "uid": note.uid.as_str(),
    });
    if !about.namespace.is_empty() {
        regarding["namespace"] = Value::from(&*about.namespace);
    }
    let body = json!({
        "apiVersion": Kind::Event.api_version(),
        "kind": Kind::Event.name(),
        "metadata": { "name": name, "namespace": event_namespace(about) },
        "eventTime": now.micro_text(),
        "reportingController": controller(about.kind),
        "reportingInstance": instance,
        "action": if note.action.is_empty() { "Reconcile" } else { &*note.action },
        "reason": &*note.reason,
        "regarding": regarding,
        "note": cut(&note.note),
        "type": if note.warning { "Warning" } else { "Normal" },
    });
    let path = Kind::Event.collection_path(Some(event_namespace(about)));
    Request::new(Method::Post, path, "application/json", Arc::from(body.to_string().as_bytes()))
}

fn cut(text: &str) -> &str {
    let end = (0..=NOTE_BYTES_MAX.min(text.len())).rfind(|at| text.is_char_boundary(*at)).unwrap_or(0);
    &text[..end]
}
