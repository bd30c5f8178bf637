//! The scale subresource: one number of an object, read and written in the form of `autoscaling/v1`.
//! Must not know which kinds have it.

use serde_json::{Value, json};

use super::body::{self, media_type};
use super::cause::Cause;
use super::metadata;
use super::patch;
use super::registry::{ResourceType, Scale};
use super::server::{ApiServer, Call, Outcome};
use super::status_reply::{
    Refused, internal, invalid, invalid_object, method_not_allowed, not_built, not_found, stale,
};
use super::write::version_in;
use crate::api::wire::Method;

impl ApiServer {
    pub(super) fn scale(&mut self, call: &Call) -> Result<Outcome, Refused> {
        let ty = call.ty().clone();
        let name = &call.place.name;
        let Some(paths) = ty.scale.clone() else { return Err(not_found(&ty, name)) };
        let key = call.place.key();
        let current = self.store.get(&ty.storage_key, &key).cloned().ok_or_else(|| not_found(&ty, name))?;
        let before = scale_of(&ty, &paths, &current.value)?;
        let wanted = match call.request.method {
            Method::Get => return Ok(Outcome::Value(200, before)),
            Method::Put => body::object(call.request, &ty)?.value,
            Method::Patch => {
                let kind = media_type(&call.request.content_type);
                if !matches!(kind, "application/merge-patch+json" | "application/json-patch+json") {
                    return Err(not_built("this kind of patch of a scale"));
                }
                let mut scale = before.clone();
                patch::apply(kind, &call.request.body, &mut scale, self.steps_max())?;
                scale
            }
            Method::Post | Method::Delete => return Err(method_not_allowed()),
        };
        let version = version_in(&wanted)?;
        if version != 0 && version != current.version {
            return Err(stale(&ty, name));
        }
        let replicas = wanted["spec"]["replicas"].as_i64().unwrap_or(0);
        if replicas < 0 {
            let field = if ty.builtin { "spec.replicas" } else { &paths.spec_replicas };
            let why =
                if ty.builtin { "must be greater than or equal to 0" } else { "should be a non-negative integer" };
            let cause = Cause::invalid(field, &replicas.into(), why);
            return Err(if ty.builtin {
                invalid_object("autoscaling", "Scale", name, &[cause])
            } else {
                invalid(&ty, name, &[cause])
            });
        }
        let mut object = Value::clone(&current.value);
        put(&mut object, &paths.spec_replicas, replicas.into());
        if object == *current.value {
            return Ok(Outcome::Value(200, before));
        }
        if ty.has_generation {
            let generation = object["metadata"]["generation"].as_i64().unwrap_or(0) + 1;
            metadata::set(&mut object, "generation", Some(generation.into()));
        }
        let sent = metadata::take_managers(&mut object);
        self.note_managers(call, &mut object, &current.value, sent.as_ref());
        if call.dry_run() {
            return Ok(Outcome::Value(200, scale_of(&ty, &paths, &object)?));
        }
        let entry = self.store_object(&ty, &key, object);
        Ok(Outcome::Value(200, scale_of(&ty, &paths, &entry.value)?))
    }
}

fn parts(path: &str) -> impl Iterator<Item = &str> {
    path.split('.').filter(|p| !p.is_empty())
}

fn read<'a>(object: &'a Value, path: &str) -> Option<&'a Value> {
    parts(path).try_fold(object, |at, part| at.get(part))
}

fn put(object: &mut Value, path: &str, value: Value) {
    let mut at = object;
    for part in parts(path) {
        at = &mut at[part];
    }
    *at = value;
}

fn scale_of(ty: &ResourceType, paths: &Scale, object: &Value) -> Result<Value, Refused> {
    let Some(replicas) = read(object, &paths.spec_replicas) else {
        return Err(internal(&format!("the spec replicas field \"{}\" does not exist", paths.spec_replicas)));
    };
    let mut meta = json!({});
    for field in ["name", "namespace", "uid", "resourceVersion", "creationTimestamp"] {
        if let Some(value) = object["metadata"].get(field) {
            meta[field] = value.clone();
        }
    }
    let mut spec = json!({});
    if replicas.as_i64() != Some(0) {
        spec["replicas"] = replicas.clone();
    }
    let mut status = json!({"replicas": read(object, &paths.status_replicas).and_then(Value::as_i64).unwrap_or(0)});
    let selector = if ty.builtin {
        selector_text(&object["spec"]["selector"])
    } else {
        paths.label_selector.as_deref().and_then(|p| read(object, p)).and_then(Value::as_str).map(str::to_owned)
    };
    if let Some(selector) = selector.filter(|s| !s.is_empty()) {
        status["selector"] = selector.into();
    }
    Ok(json!({"kind": "Scale", "apiVersion": "autoscaling/v1", "metadata": meta, "spec": spec, "status": status}))
}

/// `matchLabels` in the notation of queries.
fn selector_text(selector: &Value) -> Option<String> {
    let labels = selector["matchLabels"].as_object()?;
    Some(labels.iter().map(|(k, v)| format!("{k}={}", v.as_str().unwrap_or_default())).collect::<Vec<_>>().join(","))
}
