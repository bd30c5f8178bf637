//! What all writes share: options, taking an object in, admission by namespace, storing and telling.
//! Must not know which request it was.

use std::sync::Arc;

use serde_json::{Value, json};

use super::body::{self, Body};
use super::cause::Cause;
use super::crd;
use super::defaults;
use super::definitions::is_definition;
use super::events;
use super::metadata;
use super::registry::ResourceType;
use super::server::{ApiServer, Call};
use super::status_reply::{Refused, bad_request, forbidden, invalid_object, invalid_options, not_found, unclassified};
use super::store::Entry;
use super::validate::scale_fields;

/// Unknown fields in the order in which they stand in the body.
fn in_order_of(body: &[u8], unknown: &mut [String]) {
    let text = String::from_utf8_lossy(body);
    unknown.sort_by_key(|path| {
        let last = path.rsplit('.').next().unwrap_or_default();
        text.find(&format!("\"{last}\"")).unwrap_or(usize::MAX)
    });
}

/// Why a body cannot become an object.
pub(super) enum Wrong {
    /// A value of another type than the field's.
    Type(String),
    /// What stands in `metadata`, with the whole answer.
    Metadata(Refused),
}

/// The decoder cannot make the type of this body.
fn unusable(ty: &ResourceType, why: &str) -> Refused {
    let (kind, version) = (&ty.kind, &ty.version);
    bad_request(format!("{kind} in version \"{version}\" cannot be handled as a {kind}: {why}"))
}

/// What happens on fields that a type does not have.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum FieldChecks {
    Strict,
    Warn,
    Ignore,
}

/// Message that stands in for the rules of a schema that could not be looked at.
const RULES_NOT_CHECKED: &str = "some validation rules were not checked because the object was invalid; correct the \
     existing errors to complete validation";

/// Checks `dryRun`, `fieldValidation` and `fieldManager`.
pub(super) fn write_options(call: &Call, kind: &str) -> Result<FieldChecks, Refused> {
    let mut causes = Vec::new();
    if let Some(value) = call.query.get("dryRun").filter(|v| *v != "All") {
        causes.push(Cause::unsupported("dryRun", &json!([value]), &["All".to_owned()]));
    }
    let checks = match call.query.get("fieldValidation") {
        None | Some("" | "Warn") => FieldChecks::Warn,
        Some("Strict") => FieldChecks::Strict,
        Some("Ignore") => FieldChecks::Ignore,
        Some(other) => {
            let allowed = ["", "Ignore", "Strict", "Warn"].map(str::to_owned);
            causes.push(Cause::unsupported("fieldValidation", &other.into(), &allowed));
            FieldChecks::Ignore
        }
    };
    let manager = call.query.get("fieldManager").unwrap_or_default();
    if kind == "PatchOptions" {
        let apply = body::media_type(&call.request.content_type) == "application/apply-patch+yaml";
        if apply && manager.is_empty() {
            causes.push(Cause::required("fieldManager", "is required for apply patch"));
        }
        if !apply && call.query.get("force").is_some() {
            causes.push(Cause::forbidden("force", "may not be specified for non-apply patch"));
        }
    }
    if manager.len() > 128 {
        causes.push(Cause {
            reason: "FieldValueTooLong",
            message: "Too long: may not be more than 128 bytes".to_owned(),
            field: "fieldManager".to_owned(),
        });
    }
    if let Some((at, c)) = manager.chars().enumerate().find(|(_, c)| c.is_control()) {
        let shown = manager.replace(c, &format!("\\x{:02x}", c as u32));
        let message = format!("Invalid value: \"{shown}\": invalid character U+{:04X} (at position {at})", c as u32);
        causes.push(Cause { reason: "FieldValueInvalid", message, field: "fieldManager".to_owned() });
    }
    if causes.is_empty() { Ok(checks) } else { Err(invalid_options(kind, &causes)) }
}

impl ApiServer {
    /// A body becomes an object of the type: known fields only, defaults filled in, metadata in stored form.
    pub(super) fn take_in(&mut self, call: &Call, body: Body, checks: FieldChecks) -> Result<Value, Refused> {
        let ty = call.ty();
        let Body { mut value, duplicates } = body;
        self.check_type(call, &mut value)?;
        let mut wrong: Vec<String> = duplicates.iter().map(|d| format!("duplicate field \"{d}\"")).collect();
        let mut unknown = Self::cleaned(ty, &mut value)?;
        if ty.builtin && unknown.len() > 1 {
            in_order_of(&call.request.body, &mut unknown);
        }
        self.warn_of_owners(&mut value);
        wrong.extend(unknown.iter().map(|f| format!("unknown field \"{f}\"")));
        if !wrong.is_empty() {
            match checks {
                FieldChecks::Strict => {
                    return Err(bad_request(format!(
                        "{kind} in version \"{}\" cannot be handled as a {kind}: strict decoding error: {}",
                        ty.version,
                        wrong.join(", "),
                        kind = ty.kind
                    )));
                }
                FieldChecks::Warn => self.warnings.extend(wrong),
                FieldChecks::Ignore => {}
            }
        }
        Ok(value)
    }

    /// Owners that stand there twice count once.
    fn warn_of_owners(&mut self, value: &mut Value) {
        let Some(owners) = value.pointer_mut("/metadata/ownerReferences").and_then(Value::as_array_mut) else { return };
        let mut seen: Vec<Value> = Vec::new();
        let mut twice: Vec<String> = Vec::new();
        owners.retain(|owner| {
            let uid = owner["uid"].as_str().unwrap_or_default().to_owned();
            if seen.iter().any(|s| s["uid"] == uid.as_str()) && !twice.contains(&uid) {
                twice.push(uid);
            }
            let new = !seen.contains(owner);
            if new {
                seen.push(owner.clone());
            }
            new
        });
        if !twice.is_empty() {
            self.warnings.push(format!(
                ".metadata.ownerReferences contains duplicate entries; API server dedups owner references in 1.20+, and \
                 may reject such requests as early as 1.24; please fix your requests; duplicate UID(s) observed: {}",
                twice.join(", ")
            ));
        }
    }

    /// What the real server warns of before it stores an object.
    pub(super) fn warn_of_names(&mut self, ty: &ResourceType, object: &Value) {
        if ty.builtin && ty.plural == "pods" {
            let name = metadata::text(object, "name");
            let mut wrong = Vec::new();
            if name.len() > 63 {
                wrong.push("must be no more than 63 characters");
            }
            if name.contains('.') {
                wrong.push("must not contain dots");
            }
            if !wrong.is_empty() {
                self.warnings.push(format!(
                    "metadata.name: this is used in the Pod's hostname, which can result in surprising behavior; a DNS \
                     label is recommended: [{}]",
                    wrong.join(" ")
                ));
            }
        }
        if ty.builtin && ty.plural == "endpoints" {
            self.warnings
                .push("v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice".to_owned());
        }
        if is_definition(ty) {
            let mut unbuilt = Vec::new();
            crd::types(object).iter().filter_map(|t| t.schema.as_ref()).for_each(|s| s.unbuilt_rules(&mut unbuilt));
            let said =
                |rule: String| format!("x-kubernetes-validations: the rule {rule} is not supported by the sandbox");
            self.warnings.extend(unbuilt.into_iter().map(said));
        }
        if !ty.builtin {
            for name in object["metadata"]["finalizers"].as_array().into_iter().flatten().filter_map(Value::as_str) {
                if !name.contains('/') && !["orphan", "foregroundDeletion"].contains(&name) {
                    self.warnings.push(format!(
                        "metadata.finalizers: \"{name}\": prefer a domain-qualified finalizer name to avoid accidental \
                         conflicts with other finalizer writers"
                    ));
                }
            }
        }
    }

    /// Unknown fields away, defaults in. Returns the paths of unknown fields.
    pub(super) fn cleaned(ty: &ResourceType, value: &mut Value) -> Result<Vec<String>, Refused> {
        Self::decoded(ty, value).map_err(|wrong| match wrong {
            Wrong::Type(why) => unusable(ty, &why),
            Wrong::Metadata(refusal) => refusal,
        })
    }

    /// The same, for those who say in their own words what cannot be decoded.
    pub(super) fn decoded(ty: &ResourceType, value: &mut Value) -> Result<Vec<String>, Wrong> {
        let mut unknown = match &ty.schema {
            Some(schema) => schema.prune(value),
            None => super::decode::known(ty, value).map_err(Wrong::Type)?,
        };
        if ty.schema.is_some() {
            unknown.sort();
        }
        unknown.extend(metadata::normalize(value, ty).map_err(Wrong::Metadata)?);
        defaults::canonical_quantities(ty, value).map_err(Wrong::Type)?;
        if let Some(schema) = &ty.schema {
            schema.default(value);
        }
        Ok(unknown)
    }

    fn check_type(&mut self, call: &Call, value: &mut Value) -> Result<(), Refused> {
        let ty = call.ty();
        let expected = ty.api_version();
        let text = |field: &str| value[field].as_str().unwrap_or_default().to_owned();
        let (kind, version) = (text("kind"), text("apiVersion"));
        if ty.builtin {
            let kind = if kind.is_empty() { ty.kind.clone() } else { kind };
            let version = if version.is_empty() { expected.clone() } else { version };
            if kind != ty.kind || version != expected {
                if is_definition(ty) && kind == ty.kind {
                    return Err(bad_request(format!(
                        "the API version in the data ({version}) does not match the expected API version ({expected})"
                    )));
                }
                let short = version.rsplit('/').next().unwrap_or_default();
                let why = self.unconvertible(ty, &version, &kind);
                return Err(bad_request(format!(
                    "{kind} in version \"{short}\" cannot be handled as a {}: {why}",
                    ty.kind
                )));
            }
            value["kind"] = kind.into();
            value["apiVersion"] = version.into();
            return Ok(());
        }
        if kind.is_empty() {
            return Err(body::kind_missing(ty, &call.request.body));
        }
        if version != expected {
            self.warn_of_foreign_version(ty, &version, value);
            return Err(bad_request(format!(
                "the API version in the data ({version}) does not match the expected API version ({expected})"
            )));
        }
        Ok(())
    }

    /// Why an object of another kind does not become one of this built-in type.
    pub(super) fn unconvertible(&self, ty: &ResourceType, version: &str, kind: &str) -> String {
        if self.registry.find_kind(version, kind).is_none() {
            return format!(
                "no kind \"{kind}\" is registered for version \"{version}\" in scheme \"pkg/runtime/scheme.go:111\""
            );
        }
        let short = version.rsplit('/').next().unwrap_or_default();
        let package = ty.group.split('.').next().filter(|g| !g.is_empty()).unwrap_or("core");
        format!("converting ({short}.{kind}) to ({package}.{}): unknown conversion", ty.kind)
    }

    /// A version of the group that the CRD does not have knows no fields at all.
    pub(super) fn warn_of_foreign_version(&mut self, ty: &ResourceType, version: &str, value: &Value) {
        let foreign = |(group, version): (&str, &str)| {
            group == ty.group && self.registry.find(group, version, &ty.plural).is_none()
        };
        if version.split_once('/').is_some_and(foreign) {
            let own = ["apiVersion", "kind", "metadata"];
            let fields = value.as_object().into_iter().flatten().map(|(k, _)| k.as_str());
            let unknown = fields.filter(|f| !own.contains(f));
            self.warnings.extend(unknown.map(|f| format!("unknown field \"{f}\"")));
        }
    }

    /// The namespace of a new object must exist and not be ending.
    pub(super) fn admit_namespace(&self, call: &Call, name: &str) -> Result<(), Refused> {
        let namespace = &call.place.namespace;
        if !call.ty().namespaced {
            return Ok(());
        }
        let ty = self.registry.find("", "v1", "namespaces").expect("namespaces are built in");
        let Some(entry) = self.store.get(&ty.storage_key, namespace) else {
            return Err(not_found(ty, namespace));
        };
        if entry.meta("deletionTimestamp").is_none() {
            return Ok(());
        }
        let why = format!("unable to create new content in namespace {namespace} because it is being terminated");
        let mut refusal = forbidden(call.ty(), name, &why);
        if let Some(details) = &mut refusal.details {
            details["causes"] = json!([{
                "reason": "NamespaceTerminating",
                "message": format!("namespace {namespace} is being terminated"),
                "field": "metadata.namespace",
            }]);
        }
        Err(refusal)
    }

    /// The namespace in the body is that of the path; cluster-scoped objects have none.
    pub(super) fn place_namespace(call: &Call, object: &mut Value) -> Result<(), Refused> {
        let expected = &call.place.namespace;
        if !call.ty().namespaced {
            metadata::set(object, "namespace", None);
            return Ok(());
        }
        let found = metadata::text(object, "namespace");
        if !found.is_empty() && found != expected {
            return Err(bad_request(
                "the namespace of the provided object does not match the namespace sent on the request",
            ));
        }
        metadata::set(object, "namespace", Some(expected.as_str().into()));
        Ok(())
    }

    /// Everything wrong with an object that is to be stored.
    pub(super) fn problems(ty: &ResourceType, object: &Value, old: Option<&Value>, status_only: bool) -> Vec<Cause> {
        let mut causes = Vec::new();
        if !ty.builtin {
            if object["kind"] != ty.kind.as_str() {
                causes.push(Cause::invalid("kind", &object["kind"], format!("must be {}", ty.kind)));
                return causes;
            }
            let expected = ty.api_version();
            if object["apiVersion"] != expected.as_str() {
                causes.push(Cause::invalid("apiVersion", &object["apiVersion"], format!("must be {expected}")));
                return causes;
            }
        }
        causes.extend(match old {
            None => metadata::validate(object, ty),
            Some(old) => metadata::validate_update(object, old, ty),
        });
        if is_definition(ty) {
            causes.extend(crd::validate(object, old));
        }
        if ty.builtin {
            let found = defaults::validate(ty, object, old);
            if old.is_some() && ty.plural == "nodes" {
                // The real server looks at a node twice when it changes, and says twice what is wrong.
                causes.extend(found.clone());
            }
            causes.extend(found);
        }
        if let Some(schema) = &ty.schema {
            let mut found =
                if status_only { schema.validate_status(object, old) } else { schema.validate(object, old) };
            let blocked = schema.has_rules && causes.iter().chain(&found).any(Cause::blocks_rules);
            if blocked && !found.iter().any(|c| c.field == "<nil>" && c.message.contains(RULES_NOT_CHECKED)) {
                found.push(Cause::invalid("<nil>", &Value::Null, RULES_NOT_CHECKED));
            }
            causes.extend(found);
            if let Some(scale) = ty.scale.as_ref().filter(|_| !ty.builtin) {
                causes.extend(scale_fields(scale, object, status_only));
            }
        }
        causes
    }

    /// 422 with these causes, unless there are none.
    pub(super) fn refuse(ty: &ResourceType, object: &Value, causes: &[Cause]) -> Result<(), Refused> {
        if causes.is_empty() {
            return Ok(());
        }
        let kind = object["kind"].as_str().unwrap_or(&ty.kind);
        // Messages speak of the form in which an object is kept: Events are of the core group.
        let group = if ty.builtin && kind == "Event" { "" } else { &ty.group };
        Err(invalid_object(group, kind, metadata::text(object, "name"), causes))
    }

    /// Stores an object and tells the watchers. `object` carries the served apiVersion.
    pub(super) fn store_object(&mut self, ty: &ResourceType, key: &str, mut object: Value) -> Arc<Entry> {
        if object["apiVersion"] != ty.storage_api_version.as_str() {
            object = events::in_api_version(object, &ty.storage_api_version);
            // What the stored version does not know goes, and what it fills in is there for whoever reads it.
            let version = ty.storage_api_version.rsplit('/').next().unwrap_or_default();
            let stored = self.registry.find(&ty.group, version, &ty.plural);
            if let Some(schema) = stored.filter(|_| !ty.builtin).and_then(|stored| stored.schema.as_ref()) {
                schema.prune(&mut object);
                schema.default(&mut object);
            }
        }
        let change = self.store.put(&ty.storage_key, key, object, ty.builtin);
        self.publish(&change, ty);
        change.new.clone()
    }

    /// Takes an object away and tells the watchers. Returns it with the version of the deletion.
    pub(super) fn remove_object(&mut self, ty: &ResourceType, key: &str) -> Option<Arc<Entry>> {
        let change = self.store.remove(&ty.storage_key, key)?;
        self.publish(&change, ty);
        if ty.terminating {
            self.finish_definition(ty);
        }
        Some(change.new.clone())
    }

    /// A UID that follows from the seed.
    pub(super) fn new_uid(&mut self) -> String {
        let bits = u128::from(self.random.next()) << 64 | u128::from(self.random.next());
        format!(
            "{:08x}-{:04x}-4{:03x}-{:04x}-{:012x}",
            (bits >> 96) as u32,
            (bits >> 80) as u16,
            (bits >> 64) & 0xfff,
            0x8000 | ((bits >> 48) as u16 & 0x3fff),
            bits & 0xffff_ffff_ffff
        )
    }

    /// Five letters and digits, as the real server appends to `generateName`.
    pub(super) fn new_suffix(&mut self) -> String {
        const LETTERS: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
        (0..5).map(|_| LETTERS[(self.random.next() % LETTERS.len() as u64) as usize] as char).collect()
    }
}

/// The resourceVersion in an object: none and `0` are 0; text that is no number is refused as the real server does.
pub(super) fn version_in(object: &Value) -> Result<u64, Refused> {
    match metadata::text(object, "resourceVersion") {
        "" => Ok(0),
        text => {
            text.parse().map_err(|_| unclassified(format!("strconv.ParseUint: parsing \"{text}\": invalid syntax")))
        }
    }
}
