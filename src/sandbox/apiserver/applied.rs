//! Field managers at the server: who a request's writer is, and PATCH by server-side apply.
//! Must not know how ownership is worked out (`fields`).

use serde_json::{Value, json};

use super::body::{self, Body};
use super::cause::Cause;
use super::fields::{self, ApplyError, View, Writer};
use super::metadata;
use super::registry::ResourceType;
use super::server::{ApiServer, Call, Outcome};
use super::status_reply::{Refusal, Refused, bad_request, invalid, not_found, unclassified};
use super::update::check_name;
use super::write::{FieldChecks, write_options};

/// Longest name of a manager that is taken from a user agent.
const MANAGER_MAX: usize = 128;

/// The manager of a request: as it says itself, or the first word of its user agent.
fn manager(call: &Call) -> String {
    if let Some(name) = call.query.text("fieldManager") {
        return name.to_owned();
    }
    let agent = call.request.user_agent.split('/').next().unwrap_or_default();
    let name: String = agent.chars().filter(|c| !c.is_control()).take(MANAGER_MAX).collect();
    if name.is_empty() { "unknown".to_owned() } else { name }
}

/// Top fields that a write through this path cannot change, whatever it says.
fn reset(ty: &ResourceType, subresource: &str) -> &'static [&'static str] {
    match subresource {
        "status" if ty.builtin => &["spec"],
        "status" => &["spec", "metadata"],
        "" if ty.has_status => &["status"],
        _ => &[],
    }
}

impl ApiServer {
    /// Writes `metadata.managedFields` of `object`, which takes the place of `old` (null where there was nothing). `sent` is
    /// what the client wrote there.
    pub(super) fn note_managers(&self, call: &Call, object: &mut Value, old: &Value, sent: Option<&Value>) {
        let list = if let Some(applied) = &call.applied {
            Some(applied.clone()).filter(|l| !l.is_null())
        } else if self.options.field_managers {
            let (ty, name) = (call.ty(), manager(call));
            let subresource = call.place.subresource.as_str();
            let version = ty.api_version();
            let reset = reset(ty, subresource);
            let now = (subresource != "scale").then_some(call.now);
            let writer = Writer { name: &name, version: &version, subresource, reset, typed: ty.builtin, now };
            fields::update(View::of(ty), old, object, sent, &writer)
        } else {
            None
        };
        let before = old["metadata"].get("managedFields");
        metadata::set(object, "managedFields", list);
        // A write that changes nothing but times of managers changes nothing.
        if before.is_some()
            && same_but_times(object["metadata"].get("managedFields"), before)
            && same_but_managers(object, old)
        {
            metadata::set(object, "managedFields", before.cloned());
        }
    }

    /// PATCH with `application/apply-patch+yaml`.
    pub(super) fn apply_patch(&mut self, call: &Call) -> Result<Outcome, Refused> {
        let ty = call.ty().clone();
        let checks = write_options(call, "PatchOptions")?;
        let force = call.query.flag("force").unwrap_or(false);
        let Body { value: config, duplicates } =
            body::yaml(&call.request.body).map_err(|e| bad_request(format!("error decoding YAML: {e}")))?;
        if checks == FieldChecks::Strict && !duplicates.is_empty() {
            return Err(bad_request(format!("error strict decoding YAML: duplicate field {:?}", duplicates[0])));
        }
        let current = self.store.get(&ty.storage_key, &call.place.key()).cloned();
        if current.is_none() && !call.place.subresource.is_empty() {
            return Err(not_found(&ty, &call.place.name));
        }
        check_config(&ty, &config)?;
        if config["metadata"].get("managedFields").is_some_and(|m| !m.is_null()) {
            return Err(bad_request("metadata.managedFields must be nil"));
        }
        let live = current.as_ref().map_or(Value::Null, |e| super::watch::in_version(&e.value, &ty).into_owned());
        let (name, version) = (manager(call), ty.api_version());
        let subresource = call.place.subresource.as_str();
        let (reset, now) = (reset(&ty, subresource), Some(call.now));
        let writer = Writer { name: &name, version: &version, subresource, reset, typed: ty.builtin, now };
        let view = View::of(&ty);
        let unknown = fields::unknown(view, &config);
        if let Some(wrong) = unknown.first() {
            return Err(untyped(&config, wrong));
        }
        let mut object = fields::apply(view, &live, &config, force, &writer).map_err(|e| refused(&config, e))?;
        let managers = metadata::take_managers(&mut object);
        let applied = Some(managers.filter(|_| self.options.field_managers).unwrap_or_default());
        let call = &Call { applied, form: call.form, ..*call };
        Self::cleaned(&ty, &mut object)?;
        if current.is_none() {
            metadata::set(&mut object, "resourceVersion", None);
            let uid = metadata::text(&object, "uid");
            if !uid.is_empty() {
                // Said twice: by the checks of creation and of change.
                let cause = Cause::invalid("metadata.uid", &uid.into(), "field is immutable");
                return Err(invalid(&ty, &call.place.name, &[cause.clone(), cause]));
            }
        }
        check_name(call, &object)?;
        Self::place_namespace(call, &mut object)?;
        if current.is_some() {
            return self.update(call, object);
        }
        Self::admit_type(&ty, &call.place.name)?;
        self.admit_namespace(call, &call.place.name)?;
        self.insert(call, object)
    }
}

/// Group, version and kind as Go prints them: `/v1, Kind=ConfigMap`.
fn go_kind(version: &str, kind: &str) -> String {
    let slash = if version.contains('/') { "" } else { "/" };
    format!("{slash}{version}, Kind={kind}")
}

/// The configuration does not fit its type, or cannot be merged.
fn untyped(config: &Value, why: &str) -> Refused {
    let text = |v: &Value| v.as_str().unwrap_or_default().to_owned();
    let (namespace, name) = (text(&config["metadata"]["namespace"]), text(&config["metadata"]["name"]));
    let kind = go_kind(&text(&config["apiVersion"]), &text(&config["kind"]));
    unclassified(format!("failed to create typed patch object ({namespace}/{name}; {kind}): {why}"))
}

/// The configuration says what it is.
fn check_config(ty: &ResourceType, config: &Value) -> Result<(), Refused> {
    let text = |key: &str| config[key].as_str().unwrap_or_default();
    let (version, kind) = (text("apiVersion"), text("kind"));
    if ty.builtin && (version != ty.api_version() || kind != ty.kind) {
        return Err(bad_request(format!("invalid object type: {}", go_kind(version, kind))));
    }
    if version != ty.api_version() {
        return Err(bad_request(format!(
            "Incorrect version specified in apply patch. Specified patch version: {version}, expected: {}",
            ty.api_version()
        )));
    }
    Ok(())
}

fn refused(config: &Value, error: ApplyError) -> Refused {
    match error {
        ApplyError::Conflict(message, causes) => {
            let causes: Vec<Value> = causes
                .into_iter()
                .map(|(message, field)| json!({"reason": "FieldManagerConflict", "message": message, "field": field}))
                .collect();
            Refusal::new(409, "Conflict", message).with_details(json!({"causes": causes}))
        }
        ApplyError::Unmergeable(why) => untyped(config, &why),
    }
}

fn same_but_managers(object: &Value, old: &Value) -> bool {
    let without = |v: &Value| {
        let mut v = v.clone();
        metadata::take_managers(&mut v);
        v
    };
    without(object) == without(old)
}

fn same_but_times(a: Option<&Value>, b: Option<&Value>) -> bool {
    let without = |list: Option<&Value>| -> Vec<Value> {
        let entries = list.and_then(Value::as_array).into_iter().flatten();
        let mut all: Vec<Value> = entries
            .cloned()
            .map(|mut entry| {
                entry.as_object_mut().and_then(|e| e.remove("time"));
                entry
            })
            .collect();
        all.sort_by_key(Value::to_string);
        all
    };
    without(a) == without(b)
}
