//! CustomResourceDefinitions in the server: a new one brings its types, a changed one changes them, a deleted one takes
//! its objects with it. What the real server's own controllers do some time later happens here at once.
//! Must not know what makes a definition valid (`crd`).

use std::sync::Arc;

use serde_json::{Value, json};

use super::crd;
use super::delete::{DeleteOptions, Deletion};
use super::metadata;
use super::registry::ResourceType;
use super::server::{ApiServer, DEFINITIONS};
use super::status_reply::{Refused, not_found};
use super::store::Entry;
use crate::api::Time;

/// Whether objects of the type are definitions.
pub(super) fn is_definition(ty: &ResourceType) -> bool {
    ty.builtin && ty.plural == "customresourcedefinitions"
}

impl ApiServer {
    /// Judges the names of a definition that was just stored, writes its conditions, and serves its types.
    pub(super) fn settle_definition(&mut self, ty: &ResourceType, key: &str, now: Time) {
        loop {
            let collection = self.store.collection(&ty.storage_key);
            let Some(entry) = collection.objects.get(key) else { return };
            let others: Vec<&Value> =
                collection.objects.iter().filter(|(k, _)| &***k != key).map(|(_, e)| &*e.value).collect();
            let Some(status) = crd::next_status(&entry.value, &others, now) else { break };
            let mut object = Value::clone(&entry.value);
            object["status"] = status;
            self.store_object(ty, key, object);
        }
        let Some(entry) = self.store.get(&ty.storage_key, key).cloned() else { return };
        if crd::is_established(&entry.value) {
            let (group, plural) = named(&entry.value);
            self.registry.remove(group, plural);
            for served in crd::types(&entry.value) {
                self.registry.insert(served);
            }
        }
    }

    /// Objects go first, then the definition; watches of them end.
    pub(super) fn delete_definition(
        &mut self,
        ty: &Arc<ResourceType>,
        key: &str,
        current: &Arc<Entry>,
        options: &DeleteOptions,
        now: Time,
    ) -> Result<Deletion, Refused> {
        let mut object = Value::clone(&current.value);
        metadata::set(&mut object, "deletionTimestamp", Some(now.seconds_text().into()));
        metadata::set(&mut object, "finalizers", Some(json!([crd::FINALIZER])));
        object["status"] = crd::deleting_status(&object, now);
        if options.dry_run {
            return Ok(Deletion::Would(object));
        }
        let marked = self.store_object(ty, key, object);
        let (group, plural) = named(&marked.value);
        let served: Vec<Arc<ResourceType>> =
            self.registry.all().filter(|t| t.group == group && t.plural == plural).cloned().collect();
        let Some(storage_key) = served.first().map(|t| t.storage_key.clone()) else {
            self.remove_object(ty, key).ok_or_else(|| not_found(ty, key))?;
            return Ok(Deletion::Stays(marked));
        };
        let mut object = Value::clone(&marked.value);
        object["status"] = deletion_in_progress(&object["status"]);
        self.store_object(ty, key, object);
        for served in &served {
            self.registry.insert(ResourceType { terminating: true, ..(**served).clone() });
        }
        let served = self.registry.all().find(|t| t.storage_key == storage_key).cloned();
        let served = served.expect("the types were put in just now");
        let keys: Vec<Arc<str>> = self.store.collection(&storage_key).objects.keys().cloned().collect();
        for key in &keys {
            let name = key.rsplit('/').next().unwrap_or_default();
            self.delete_object(&served, key, name, &DeleteOptions::default(), now)?;
        }
        if keys.is_empty() {
            self.finish_definition(&served);
        }
        Ok(Deletion::Stays(marked))
    }

    /// With its last object gone, a definition that is being deleted goes too, and the watches of its objects end.
    pub(super) fn finish_definition(&mut self, served: &ResourceType) {
        if !self.store.collection(&served.storage_key).objects.is_empty() {
            return;
        }
        self.end_watches(&served.storage_key);
        self.registry.remove(&served.group, &served.plural);
        let (group, version, plural) = DEFINITIONS;
        let definitions = self.registry.find(group, version, plural).cloned();
        let definitions = definitions.expect("definitions are built in");
        self.remove_object(&definitions, &format!("{}.{}", served.plural, served.group));
    }
}

/// The condition that says that objects are being deleted.
fn deletion_in_progress(status: &Value) -> Value {
    let mut status = status.clone();
    for condition in status["conditions"].as_array_mut().into_iter().flatten() {
        if condition["type"] == "Terminating" {
            condition["reason"] = "InstanceDeletionInProgress".into();
            condition["message"] = "CustomResource deletion is in progress".into();
        }
    }
    status
}

/// Group and plural of what a definition defines.
fn named(definition: &Value) -> (&str, &str) {
    let spec = &definition["spec"];
    (spec["group"].as_str().unwrap_or_default(), spec["names"]["plural"].as_str().unwrap_or_default())
}
