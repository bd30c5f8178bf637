//! Creating objects: name, UID, times, and what a client may not choose.
//! Must not know how bodies are parsed.

use serde_json::Value;

use super::body;
use super::crd;
use super::definitions::is_definition;
use super::metadata;
use super::server::{ApiServer, Call, Outcome};
use super::status_reply::{Refused, already_exists, unclassified};
use super::write::{version_in, write_options};

/// Longest prefix of a generated name.
const GENERATE_NAME_MAX: usize = 58;

impl ApiServer {
    /// POST to a collection.
    pub(super) fn create(&mut self, call: &Call) -> Result<Outcome, Refused> {
        let checks = write_options(call, "CreateOptions")?;
        let body = body::object(call.request, call.ty())?;
        let mut object = self.take_in(call, body, checks)?;
        Self::place_namespace(call, &mut object)?;
        self.admit_namespace(call, metadata::text(&object, "name"))?;
        self.insert(call, object)
    }

    /// Stores an object that was not there.
    pub(super) fn insert(&mut self, call: &Call, mut object: Value) -> Result<Outcome, Refused> {
        let ty = call.ty();
        let generate = metadata::text(&object, "generateName").to_owned();
        if metadata::text(&object, "name").is_empty() && !generate.is_empty() {
            let prefix: String = generate.chars().take(GENERATE_NAME_MAX).collect();
            let name = prefix + &self.new_suffix();
            metadata::set(&mut object, "name", Some(name.into()));
        }
        let version = version_in(&object)?;
        for field in ["deletionTimestamp", "deletionGracePeriodSeconds", "resourceVersion"] {
            metadata::set(&mut object, field, None);
        }
        let uid = self.new_uid();
        metadata::set(&mut object, "uid", Some(uid.into()));
        metadata::set(&mut object, "creationTimestamp", Some(call.now.seconds_text().into()));
        if ty.has_generation {
            metadata::set(&mut object, "generation", Some(1.into()));
        }
        if ty.has_status
            && let Some(map) = object.as_object_mut()
            && !(ty.builtin && ty.plural == "nodes")
        {
            map.remove("status");
        }
        if is_definition(ty) {
            crd::fill(&mut object);
            object["status"] = crd::first_status(&object);
        }
        let causes = Self::problems(ty, &object, None, false);
        Self::refuse(ty, &object, &causes)?;
        let name = metadata::text(&object, "name").to_owned();
        let key = call.place.key_of(&name);
        if version != 0 {
            return Err(unclassified("resourceVersion should not be set on objects to be created"));
        }
        if let Some(existing) = self.store.get(&ty.storage_key, &key) {
            return Err(already_exists(ty, &name, existing.meta("deletionTimestamp").is_some()));
        }
        if call.dry_run() {
            return Ok(Outcome::Value(201, object));
        }
        let ty = ty.clone();
        let entry = self.store_object(&ty, &key, object);
        if is_definition(&ty) {
            self.settle_definition(&ty, &key, call.now);
        }
        Ok(Outcome::Entry(201, entry))
    }
}
