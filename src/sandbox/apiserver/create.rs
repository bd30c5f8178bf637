//! Creating objects: name, UID, times, and what a client may not choose.
//! Must not know how bodies are parsed.

use serde_json::Value;

use super::body;
use super::crd;
use super::defaults;
use super::definitions::is_definition;
use super::limit_range;
use super::metadata;
use super::quota;
use super::registry::ResourceType;
use super::server::{ApiServer, Call, Outcome};
use super::status_reply::{Refused, already_exists, forbidden, not_built, unclassified};
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
        Self::admit_type(call.ty(), metadata::text(&object, "name"))?;
        self.admit_namespace(call, metadata::text(&object, "name"))?;
        self.insert(call, object)
    }

    /// A definition that is ending takes no new objects.
    pub(super) fn admit_type(ty: &ResourceType, name: &str) -> Result<(), Refused> {
        if ty.terminating {
            return Err(forbidden(ty, name, "create not allowed while custom resource definition is terminating"));
        }
        Ok(())
    }

    /// Stores an object that was not there.
    pub(super) fn insert(&mut self, call: &Call, mut object: Value) -> Result<Outcome, Refused> {
        let ty = call.ty();
        let sent = metadata::take_managers(&mut object);
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
        self.admit_pod(call, &mut object)?;
        if ty.builtin && ty.plural == "pods" {
            limit_range::fill_pod(&self.beside(call, "/limitranges"), &mut object);
        }
        defaults::apply(ty, &mut object, None);
        if ty.builtin && ty.plural == "pods" {
            super::pods::note_gates(&mut object, call.now);
        }
        self.note_managers(call, &mut object, &Value::Null, sent.as_ref());
        if is_definition(ty) {
            crd::fill(&mut object);
            object["status"] = crd::first_status(&object);
        }
        self.admit_creation(call, metadata::text(&object, "name"))?;
        self.admit_grant(call, &object, None)?;
        let mut causes = Self::problems(ty, &object, None, false);
        causes.extend(self.oversize(ty, &object));
        Self::refuse(ty, &object, &causes)?;
        self.admit_amounts(call, &object)?;
        let name = metadata::text(&object, "name").to_owned();
        let key = call.place.key_of(&name);
        if version != 0 {
            return Err(unclassified("resourceVersion should not be set on objects to be created"));
        }
        if let Some(existing) = self.store.get(&ty.storage_key, &key) {
            return Err(already_exists(ty, &name, existing.meta("deletionTimestamp").is_some()));
        }
        if ty.builtin && ty.plural == "services" {
            defaults::allocate_addresses(&mut object, self.addresses);
            self.addresses += 1;
        }
        self.warn_of_names(ty, &object);
        if call.dry_run() {
            return Ok(Outcome::Value(201, object));
        }
        self.check_storable(ty, &object)?;
        let ty = ty.clone();
        let entry = self.store_object(&ty, &key, object);
        if is_definition(&ty) {
            self.settle_definition(&ty, &key, call.now);
        }
        Ok(Outcome::Entry(201, entry))
    }

    /// Objects of another collection in the namespace of a call.
    fn beside(&self, call: &Call, collection: &str) -> Vec<&Value> {
        let prefix = call.place.prefix();
        if prefix.is_empty() {
            return Vec::new();
        }
        self.store.collection(collection).range(&prefix, &prefix).map(|(_, entry)| &*entry.value).collect()
    }

    /// What LimitRanges and ResourceQuotas of the namespace say.
    fn admit_amounts(&self, call: &Call, object: &Value) -> Result<(), Refused> {
        let ty = call.ty();
        let name = metadata::text(object, "name");
        if ty.builtin && ty.plural == "resourcequotas" {
            return quota::unsupported(object).map_or(Ok(()), |what| Err(not_built(what)));
        }
        if ty.builtin && ty.group.is_empty() {
            let refusals = limit_range::refusals(&self.beside(call, "/limitranges"), &ty.kind, object);
            match refusals.as_slice() {
                [] => {}
                [one] => return Err(forbidden(ty, name, one)),
                several => return Err(forbidden(ty, name, &format!("[{}]", several.join(", ")))),
            }
        }
        let quotas = self.beside(call, "/resourcequotas");
        if quotas.is_empty() {
            return Ok(());
        }
        let mut used = quota::Usage::new();
        let prefix = call.place.prefix();
        for (_, entry) in self.store.collection(&ty.storage_key).range(&prefix, &prefix) {
            for (what, amount) in quota::usage(ty, &entry.value) {
                *used.entry(what).or_default() += amount;
            }
        }
        match quotas.into_iter().find_map(|quota| quota::refusal(quota, ty, object, &used)) {
            Some(why) => Err(forbidden(ty, name, &why)),
            None => Ok(()),
        }
    }

    /// What a real server's admission asks of pods: a ServiceAccount that exists, and a known priority class.
    fn admit_pod(&self, call: &Call, object: &mut Value) -> Result<(), Refused> {
        let ty = call.ty();
        if !(ty.builtin && ty.plural == "pods") {
            return Ok(());
        }
        let name = metadata::text(object, "name").to_owned();
        let spec = &object["spec"];
        let account = ["serviceAccountName", "serviceAccount"]
            .iter()
            .find_map(|f| spec[*f].as_str().filter(|s| !s.is_empty()))
            .unwrap_or("default");
        let accounts = self.registry.find("", "v1", "serviceaccounts").expect("service accounts are built in");
        if self.store.get(&accounts.storage_key, &call.place.key_of(account)).is_none() {
            let namespace = &call.place.namespace;
            let why = format!(
                "error looking up service account {namespace}/{account}: serviceaccount \"{account}\" not found"
            );
            return Err(forbidden(ty, &name, &why));
        }
        let class = spec["priorityClassName"].as_str().filter(|c| !c.is_empty() && !c.starts_with("system-"));
        if let Some(class) = class {
            let classes = self.registry.find("scheduling.k8s.io", "v1", "priorityclasses");
            let found = classes.and_then(|c| self.store.get(&c.storage_key, class)).map(|e| e.value["value"].clone());
            match found {
                Some(value) => object["spec"]["priority"] = value,
                None => {
                    return Err(forbidden(ty, &name, &format!("no PriorityClass with name {class} was found")));
                }
            }
        }
        Ok(())
    }
}
