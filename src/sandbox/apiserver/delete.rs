//! Deleting objects: options, preconditions, grace, finalizers of the propagation policies, collections.
//! Must not know what collects dependants.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};

use super::body;
use super::cause::Cause;
use super::metadata;
use super::registry::ResourceType;
use super::server::{ApiServer, Call, Outcome};
use super::status_reply::{Refused, bad_request, conflict_of_kind, deleted, forbidden, invalid_options, not_found};
use super::store::Entry;
use crate::api::Time;

const ORPHAN: &str = "orphan";
const FOREGROUND: &str = "foregroundDeletion";

/// Kinds whose deletion is answered with the object.
const ANSWERED_WITH_OBJECT: &[&str] = &[
    "pods",
    "services",
    "serviceaccounts",
    "persistentvolumeclaims",
    "podtemplates",
    "resourcequotas",
    "persistentvolumes",
];

/// `DeleteOptions`.
#[derive(Clone, Debug, Default)]
pub(super) struct DeleteOptions {
    pub grace_s: Option<i64>,
    pub propagation: Option<String>,
    pub orphan: Option<bool>,
    pub uid: Option<String>,
    pub version: Option<String>,
    pub dry_run: bool,
}

/// From the body if there is one, else from the query.
pub(super) fn options(call: &Call) -> Result<DeleteOptions, Refused> {
    let mut out = DeleteOptions { dry_run: call.dry_run(), ..DeleteOptions::default() };
    let text = &call.request.body;
    if text.is_empty() {
        out.grace_s = call.query.number("gracePeriodSeconds")?;
        out.propagation = call.query.text("propagationPolicy").map(str::to_owned);
        out.orphan = call.query.flag("orphanDependents");
    } else {
        let body = match body::media_type(&call.request.content_type) {
            "application/yaml" => body::yaml(text),
            _ => body::json(text),
        };
        let value = body.map_err(|e| bad_request(format!("couldn't get version/kind; json parse error: {e}")))?.value;
        let kind = value["kind"].as_str().unwrap_or_default();
        if !matches!(kind, "" | "DeleteOptions") {
            let version = value["apiVersion"].as_str().unwrap_or_default();
            return Err(bad_request(format!(
                "no kind \"{kind}\" is registered for version \"{version}\" in scheme \"pkg/runtime/scheme.go:111\""
            )));
        }
        let words = |v: &Value| v.as_str().map(str::to_owned);
        out.grace_s = value["gracePeriodSeconds"].as_i64();
        out.propagation = words(&value["propagationPolicy"]);
        out.orphan = value["orphanDependents"].as_bool();
        out.uid = words(&value["preconditions"]["uid"]);
        out.version = words(&value["preconditions"]["resourceVersion"]);
        if let Some(wrong) = value["dryRun"].as_array().filter(|d| d.iter().any(|v| v != "All")) {
            let cause = Cause::unsupported("dryRun", &json!(wrong), &["All".to_owned()]);
            return Err(invalid_options("DeleteOptions", &[cause]));
        }
        out.dry_run |= value["dryRun"].as_array().is_some_and(|d| d.iter().any(|v| v == "All"));
    }
    check(&out)?;
    Ok(out)
}

fn check(options: &DeleteOptions) -> Result<(), Refused> {
    let Some(policy) = &options.propagation else { return Ok(()) };
    let value = Value::from(policy.as_str());
    let cause = if options.orphan.is_some() {
        Cause::invalid("propagationPolicy", &value, "orphanDependents and deletionPropagation cannot be both set")
    } else if !["Foreground", "Background", "Orphan"].contains(&policy.as_str()) {
        Cause::unsupported(
            "propagationPolicy",
            &value,
            &["Foreground", "Background", "Orphan", "nil"].map(str::to_owned),
        )
    } else {
        return Ok(());
    };
    Err(invalid_options("DeleteOptions", &[cause]))
}

/// What became of an object.
pub(super) enum Deletion {
    /// It is gone; this is it with the version of its deletion.
    Gone(Arc<Entry>),
    /// It stays for now.
    Stays(Arc<Entry>),
    /// Dry run: what the object would look like.
    Would(Value),
}

impl ApiServer {
    /// DELETE of one object.
    pub(super) fn delete(&mut self, call: &Call) -> Result<Outcome, Refused> {
        let options = options(call)?;
        let ty = call.ty().clone();
        if ty.builtin
            && ty.plural == "namespaces"
            && ["default", "kube-system", "kube-public"].contains(&call.place.name.as_str())
        {
            return Err(forbidden(&ty, &call.place.name, "this namespace may not be deleted"));
        }
        let default_orphans = ty.group == "batch" && ty.plural == "jobs";
        if default_orphans && options.propagation.is_none() && options.orphan.is_none() {
            self.warnings.push(
                "child pods are preserved by default when jobs are deleted; set propagationPolicy=Background to remove \
                 them or set propagationPolicy=Orphan to suppress this warning"
                    .to_owned(),
            );
        }
        let deletion = self.delete_object(&ty, &call.place.key(), &call.place.name, &options, call.now)?;
        Ok(match deletion {
            Deletion::Gone(entry) if ty.builtin && ANSWERED_WITH_OBJECT.contains(&ty.plural.as_str()) => {
                Outcome::Entry(200, entry)
            }
            Deletion::Gone(entry) => Outcome::Value(200, deleted(&ty, &call.place.name, entry.meta_text("uid"))),
            Deletion::Stays(entry) => Outcome::Entry(200, entry),
            Deletion::Would(value) if value["metadata"]["finalizers"].is_array() => Outcome::Value(200, value),
            Deletion::Would(value) => {
                Outcome::Value(200, deleted(&ty, &call.place.name, metadata::text(&value, "uid")))
            }
        })
    }

    /// DELETE of a collection: each chosen object as if alone. Answers with the list of before.
    pub(super) fn delete_collection(&mut self, call: &Call) -> Result<Outcome, Refused> {
        let options = options(call)?;
        let ty = call.ty().clone();
        let (chosen, reply) = self.chosen(call)?;
        for (key, entry) in chosen {
            let name = entry.meta_text("name").to_owned();
            match self.delete_object(&ty, &key, &name, &options, call.now) {
                Err(refusal) if refusal.code != 404 => return Err(refusal),
                _ => {}
            }
        }
        Ok(reply)
    }

    /// The rules of deletion for one object.
    pub(super) fn delete_object(
        &mut self,
        ty: &Arc<ResourceType>,
        key: &str,
        name: &str,
        options: &DeleteOptions,
        now: Time,
    ) -> Result<Deletion, Refused> {
        let current = self.store.get(&ty.storage_key, key).cloned().ok_or_else(|| not_found(ty, name))?;
        check_preconditions(ty, name, &current, options)?;
        if ty.builtin && ty.plural == "namespaces" {
            return Ok(self.delete_namespace(ty, key, &current, options, now));
        }
        if ty.builtin && ty.plural == "customresourcedefinitions" {
            return self.delete_definition(ty, key, &current, options, now);
        }
        let mut object = Value::clone(&current.value);
        let graceful = match begin_grace(ty, &mut object, options.grace_s, now) {
            Grace::Pending => return Ok(Deletion::Stays(current)),
            Grace::None => None,
            Grace::Seconds(s) => Some(s),
        };
        set_propagation(ty, &mut object, options);
        let held = metadata::has_finalizers(&object);
        if held && graceful.is_none() {
            mark(&mut object, now);
        }
        if options.dry_run {
            return Ok(Deletion::Would(object));
        }
        if (held || graceful.is_some()) && object != *current.value {
            let entry = self.store_object(ty, key, object);
            if held || graceful.is_some_and(|s| s > 0) {
                return Ok(Deletion::Stays(entry));
            }
        } else if held {
            return Ok(Deletion::Stays(current));
        }
        let gone = self.remove_object(ty, key).ok_or_else(|| not_found(ty, name))?;
        Ok(Deletion::Gone(gone))
    }

    /// A namespace ends when its own finalizers are gone; until then it is terminating.
    fn delete_namespace(
        &mut self,
        ty: &Arc<ResourceType>,
        key: &str,
        current: &Arc<Entry>,
        options: &DeleteOptions,
        now: Time,
    ) -> Deletion {
        if current.meta("deletionTimestamp").is_some() {
            return Deletion::Stays(current.clone());
        }
        let mut object = Value::clone(&current.value);
        metadata::set(&mut object, "deletionTimestamp", Some(now.seconds_text().into()));
        object["status"]["phase"] = "Terminating".into();
        if options.dry_run {
            return Deletion::Would(object);
        }
        Deletion::Stays(self.store_object(ty, key, object))
    }
}

fn check_preconditions(ty: &ResourceType, name: &str, current: &Entry, options: &DeleteOptions) -> Result<(), Refused> {
    let found = current.meta_text("uid");
    if let Some(uid) = &options.uid
        && uid != found
    {
        let why = format!(
            "the UID in the precondition ({uid}) does not match the UID in record ({found}). The object might have been \
             deleted and then recreated"
        );
        return Err(conflict_of_kind(ty, name, &why));
    }
    let found = current.meta_text("resourceVersion");
    if let Some(version) = &options.version
        && version != found
    {
        let why = format!(
            "the ResourceVersion in the precondition ({version}) does not match the ResourceVersion in record ({found}). \
             The object might have been modified"
        );
        return Err(conflict_of_kind(ty, name, &why));
    }
    Ok(())
}

enum Grace {
    /// The kind knows no grace, or its time is over.
    None,
    /// Begun or shortened now.
    Seconds(i64),
    /// Running already; nothing changes.
    Pending,
}

/// Only pods are deleted with grace; without a node or after their end at once.
fn begin_grace(ty: &ResourceType, object: &mut Value, asked_s: Option<i64>, now: Time) -> Grace {
    if !(ty.builtin && ty.plural == "pods") {
        return Grace::None;
    }
    let running = object["metadata"]["deletionGracePeriodSeconds"].as_i64();
    if let Some(since) = object["metadata"]["deletionTimestamp"].as_str().and_then(Time::parse) {
        let Some(running) = running.filter(|s| *s > 0) else { return Grace::None };
        let Some(asked) = asked_s.map(at_least_one).filter(|s| *s < running) else { return Grace::Pending };
        let end = since - Duration::from_secs(running.unsigned_abs()) + Duration::from_secs(asked.unsigned_abs());
        metadata::set(object, "deletionTimestamp", Some(end.seconds_text().into()));
        metadata::set(object, "deletionGracePeriodSeconds", Some(asked.into()));
        return Grace::Seconds(asked);
    }
    let bound = object["spec"]["nodeName"].as_str().is_some_and(|n| !n.is_empty());
    let over = matches!(object["status"]["phase"].as_str(), Some("Succeeded" | "Failed"));
    let own = object["spec"]["terminationGracePeriodSeconds"].as_i64().unwrap_or(30);
    let seconds = if bound && !over { at_least_one(asked_s.unwrap_or(own)) } else { 0 };
    let end = now + Duration::from_secs(seconds.unsigned_abs());
    metadata::set(object, "deletionTimestamp", Some(end.seconds_text().into()));
    metadata::set(object, "deletionGracePeriodSeconds", Some(seconds.into()));
    next_generation(object);
    Grace::Seconds(seconds)
}

/// A negative grace counts as one second.
fn at_least_one(seconds: i64) -> i64 {
    if seconds < 0 { 1 } else { seconds }
}

fn next_generation(object: &mut Value) {
    if let Some(generation) = object["metadata"]["generation"].as_i64().filter(|g| *g > 0) {
        metadata::set(object, "generation", Some((generation + 1).into()));
    }
}

/// Marks an object that finalizers hold as being deleted.
fn mark(object: &mut Value, now: Time) {
    if object["metadata"]["deletionTimestamp"].is_null() {
        next_generation(object);
        metadata::set(object, "deletionTimestamp", Some(now.seconds_text().into()));
    }
    metadata::set(object, "deletionGracePeriodSeconds", Some(0.into()));
}

/// The finalizers by which the garbage collector learns what to do with dependants.
fn set_propagation(ty: &ResourceType, object: &mut Value, options: &DeleteOptions) {
    if ty.builtin && ty.plural == "events" {
        return;
    }
    let before: Vec<Value> = object["metadata"]["finalizers"].as_array().cloned().unwrap_or_default();
    let had = |name: &str| before.iter().any(|f| f == name);
    let (orphan, foreground) = match (options.orphan, options.propagation.as_deref()) {
        (Some(orphan), _) => (orphan, false),
        (None, Some(policy)) => (policy == "Orphan", policy == "Foreground"),
        (None, None) if had(ORPHAN) || had(FOREGROUND) => (had(ORPHAN), had(FOREGROUND)),
        (None, None) => (ty.group == "batch" && ty.plural == "jobs", false),
    };
    let mut after: Vec<Value> = before.iter().filter(|f| *f != ORPHAN && *f != FOREGROUND).cloned().collect();
    if orphan {
        after.push(json!(ORPHAN));
    }
    if foreground {
        after.push(json!(FOREGROUND));
    }
    let same = before.len() == after.len() && before.iter().all(|f| after.contains(f));
    if !same {
        metadata::set(object, "finalizers", (!after.is_empty()).then_some(Value::Array(after)));
    }
}
