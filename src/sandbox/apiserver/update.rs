//! Replacing objects: preconditions, what stays from before, generation, and objects that end with their last finalizer.
//! Must not know how the new content came about.

use serde_json::Value;

use super::body;
use super::cause::Cause;
use super::crd;
use super::defaults;
use super::definitions::is_definition;
use super::metadata;
use super::registry::ResourceType;
use super::server::{ApiServer, Call, Outcome};
use super::status_reply::{Refused, bad_request, conflict, invalid_object, not_found, stale};
use super::write::{version_in, write_options};

impl ApiServer {
    /// PUT of an object or of its status.
    pub(super) fn replace(&mut self, call: &Call) -> Result<Outcome, Refused> {
        let checks = write_options(call, "UpdateOptions")?;
        let body = body::object(call.request, call.ty())?;
        let mut object = self.take_in(call, body, checks)?;
        check_name(call, &object)?;
        Self::place_namespace(call, &mut object)?;
        let (ty, key) = (call.ty().clone(), call.place.key());
        let Some(current) = self.store.get(&ty.storage_key, &key).cloned() else {
            if ty.create_on_update && call.place.subresource.is_empty() {
                self.admit_namespace(call, &call.place.name)?;
                return self.insert(call, object);
            }
            return Err(not_found(&ty, &call.place.name));
        };
        let uid = metadata::text(&object, "uid");
        if !uid.is_empty() && uid != current.meta_text("uid") {
            let why = format!(
                "StorageError: invalid object, Code: 4, Key: {}, ResourceVersion: 0, AdditionalErrorMsg: Precondition \
                 failed: UID in precondition: {uid}, UID in object meta: {}",
                storage_path(&ty, &key),
                current.meta_text("uid")
            );
            return Err(conflict(&ty, &call.place.name, &why));
        }
        self.update(call, object)
    }

    /// Puts `object` in the place of the stored one.
    pub(super) fn update(&mut self, call: &Call, mut object: Value) -> Result<Outcome, Refused> {
        let (ty, key) = (call.ty().clone(), call.place.key());
        let name = &call.place.name;
        let current = self.store.get(&ty.storage_key, &key).cloned().ok_or_else(|| not_found(&ty, name))?;
        let sent = metadata::take_managers(&mut object);
        let version = version_in(&object)?;
        if version == 0 && !ty.unconditional_update {
            let cause = Cause::invalid("metadata.resourceVersion", &0.into(), "must be specified for an update");
            return Err(invalid_object(&ty.group, &ty.plural, name, &[cause]));
        }
        if version != 0 && version != current.version {
            return Err(stale(&ty, name));
        }
        let old = super::watch::in_version(&current.value, &ty);
        let status_only = call.place.subresource == "status";
        carry_over(&ty, &mut object, &old, &call.place.subresource);
        if ty.builtin && ty.plural == "pods" {
            super::pods::fill_status(&mut object);
        }
        if call.place.subresource != "finalize" || ty.plural == "namespaces" {
            defaults::apply(&ty, &mut object, Some(&old));
        }
        if is_definition(&ty) && !status_only {
            crd::fill(&mut object);
            crd::note_storage(&mut object);
        }
        self.note_managers(call, &mut object, &old, sent.as_ref());
        count_generation(&ty, &mut object, &old, status_only);
        self.admit_grant(call, &object, Some(&old))?;
        let mut causes = Self::problems(&ty, &object, Some(&old), status_only && !ty.builtin);
        causes.extend(self.oversize(&ty, &object));
        Self::refuse(&ty, &object, &causes)?;
        if ends(&ty, &object, &old) {
            if !call.dry_run() {
                self.remove_object(&ty, &key);
            }
            return Ok(Outcome::Value(200, object));
        }
        if object == *old {
            return Ok(Outcome::Entry(200, current));
        }
        self.warn_of_names(&ty, &object);
        if call.dry_run() {
            return Ok(Outcome::Value(200, object));
        }
        self.check_storable(&ty, &object)?;
        let entry = self.store_object(&ty, &key, object);
        if is_definition(&ty) {
            self.settle_definition(&ty, &key, call.now);
        }
        Ok(Outcome::Entry(200, entry))
    }
}

/// The name in the body is that of the path.
pub(super) fn check_name(call: &Call, object: &Value) -> Result<(), Refused> {
    let expected = &call.place.name;
    match metadata::text(object, "name") {
        "" => Err(bad_request(format!(
            "the name of the object ({expected} based on URL) was undeterminable: name must be provided"
        ))),
        name if name != expected => {
            Err(bad_request(format!("the name of the object ({name}) does not match the name on the URL ({expected})")))
        }
        _ => Ok(()),
    }
}

/// What a write cannot change stays as it was.
fn carry_over(ty: &ResourceType, object: &mut Value, old: &Value, subresource: &str) {
    let keep = |object: &mut Value, field: &str| match old.get(field) {
        Some(value) => object[field] = value.clone(),
        None => {
            if let Some(map) = object.as_object_mut() {
                map.remove(field);
            }
        }
    };
    match subresource {
        "status" if !ty.builtin => {
            let status = object.get("status").cloned();
            object.clone_from(old);
            match (status, object.as_object_mut()) {
                (Some(status), Some(map)) => map.insert("status".into(), status),
                (None, Some(map)) => map.remove("status"),
                _ => None,
            };
        }
        "status" => {
            keep(object, "spec");
            if ty.plural == "pods" {
                metadata::set(object, "ownerReferences", old["metadata"].get("ownerReferences").cloned());
            }
            if ty.plural == "deployments" {
                metadata::set(object, "labels", old["metadata"].get("labels").cloned());
            }
        }
        "finalize" => {
            let finalizers = object["spec"].get("finalizers").cloned();
            let metadata = object["metadata"].clone();
            object.clone_from(old);
            object["metadata"] = metadata;
            match (finalizers.filter(|f| f.as_array().is_some_and(|f| !f.is_empty())), object["spec"].as_object_mut()) {
                (Some(list), Some(spec)) => spec.insert("finalizers".into(), list),
                (None, Some(spec)) => spec.remove("finalizers"),
                _ => None,
            };
        }
        _ => {
            if ty.has_status {
                keep(object, "status");
            }
            if ty.builtin && ty.plural == "namespaces" {
                keep(object, "spec");
            }
        }
    }
    let before = &old["metadata"];
    metadata::set(object, "resourceVersion", before.get("resourceVersion").cloned());
    metadata::set(object, "creationTimestamp", before.get("creationTimestamp").cloned());
    metadata::set(object, "generation", before.get("generation").cloned());
    for field in ["uid", "deletionGracePeriodSeconds", "generateName"] {
        if object["metadata"].get(field).is_none_or(Value::is_null) {
            metadata::set(object, field, before.get(field).cloned());
        }
    }
    if let Some(time) = before.get("deletionTimestamp") {
        metadata::set(object, "deletionTimestamp", Some(time.clone()));
    }
}

/// A changed specification is a new generation.
fn count_generation(ty: &ResourceType, object: &mut Value, old: &Value, status_only: bool) {
    if !ty.has_generation || status_only {
        return;
    }
    let changed = if ty.builtin {
        let annotations = |v: &Value| v["metadata"].get("annotations").cloned();
        object.get("spec") != old.get("spec")
            || (ty.plural == "deployments" && annotations(object) != annotations(old))
            || (ty.plural == "endpointslices" && without_metadata(object, true) != without_metadata(old, true))
    } else {
        without_metadata(object, ty.has_status) != without_metadata(old, ty.has_status)
    };
    if changed {
        let generation = old["metadata"]["generation"].as_i64().unwrap_or(0) + 1;
        metadata::set(object, "generation", Some(generation.into()));
    }
}

fn without_metadata(object: &Value, without_status: bool) -> Vec<(&String, &Value)> {
    let fields = object.as_object().into_iter().flatten();
    fields.filter(|(k, _)| *k != "metadata" && !(without_status && *k == "status")).collect()
}

/// Whether this write takes away the last thing that held an object that is being deleted.
fn ends(ty: &ResourceType, object: &Value, old: &Value) -> bool {
    if metadata::has_finalizers(object) || old["metadata"]["deletionTimestamp"].is_null() {
        return false;
    }
    if ty.builtin && ty.plural == "namespaces" {
        return object["spec"]["finalizers"].as_array().is_none_or(Vec::is_empty);
    }
    old["metadata"]["deletionGracePeriodSeconds"] == 0
}

/// Where etcd keeps objects of a type.
fn storage_path(ty: &ResourceType, key: &str) -> String {
    let plural = match ty.plural.as_str() {
        "services" if ty.builtin => "services/specs",
        "endpoints" if ty.builtin => "services/endpoints",
        "nodes" if ty.builtin => "minions",
        plural => plural,
    };
    if ty.builtin { format!("/registry/{plural}/{key}") } else { format!("/registry/{}/{plural}/{key}", ty.group) }
}
