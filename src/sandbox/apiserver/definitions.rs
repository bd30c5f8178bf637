//! CustomResourceDefinitions in the server: a new one brings its types, a changed one changes them, a deleted one takes
//! its objects with it. What the real server's own controllers do some time later happens here at once.
//! Must not know what makes a definition valid (`crd`).

use std::sync::Arc;

use serde_json::{Value, json};

use super::crd;
use super::delete::{DeleteOptions, Deletion};
use super::metadata;
use super::registry::ResourceType;
use super::server::ApiServer;
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
                collection.objects.iter().filter(|(k, _)| &***k != key).map(|(_, e)| &e.value).collect();
            let Some(status) = crd::next_status(&entry.value, &others, now) else { break };
            let mut object = entry.value.clone();
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
        let mut object = current.value.clone();
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
        if let Some(served) = served.first() {
            let keys: Vec<Arc<str>> = self.store.collection(&served.storage_key).objects.keys().cloned().collect();
            for key in keys {
                self.remove_object(served, &key);
            }
            self.end_watches(&served.storage_key);
            self.registry.remove(group, plural);
        }
        self.remove_object(ty, key).ok_or_else(|| not_found(ty, key))?;
        Ok(Deletion::Stays(marked))
    }
}

/// Group and plural of what a definition defines.
fn named(definition: &Value) -> (&str, &str) {
    let spec = &definition["spec"];
    (spec["group"].as_str().unwrap_or_default(), spec["names"]["plural"].as_str().unwrap_or_default())
}
