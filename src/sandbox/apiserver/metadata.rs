//! `metadata` of objects: put into the form in which it is stored, and checked: names, labels, finalizers, owners.
//! Must not know requests or the store.

use serde_json::{Map, Value, json};

use super::cause::Cause;
use super::registry::ResourceType;
use super::status_reply::{Refused, bad_request};

/// Fields of `ObjectMeta`; nothing else survives there, whatever a schema says.
pub(super) const FIELDS: &[&str] = &[
    "name",
    "generateName",
    "namespace",
    "selfLink",
    "uid",
    "resourceVersion",
    "generation",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "labels",
    "annotations",
    "ownerReferences",
    "finalizers",
    "managedFields",
];

/// Limit of all annotations together, in bytes.
const ANNOTATIONS_BYTES_MAX: usize = 256 * 1024;

/// Brings `metadata` into the stored form: no nulls, no empty lists and maps, no unknown fields. Returns the paths of
/// unknown fields. Wrong JSON types are refused in Go's words.
pub(super) fn normalize(object: &mut Value, ty: &ResourceType) -> Result<Vec<String>, Refused> {
    let Some(object) = object.as_object_mut() else { return Ok(Vec::new()) };
    let metadata = object.entry("metadata").or_insert_with(|| json!({}));
    if metadata.is_null() {
        *metadata = json!({});
    }
    let kind = super::body::go_type(metadata);
    let Some(map) = metadata.as_object_mut() else {
        return Err(cannot(ty, &format!("{kind} into Go value of type v1.ObjectMeta")));
    };
    let mut unknown = Vec::new();
    map.retain(|field, value| {
        let known = FIELDS.contains(&field.as_str());
        if !known {
            unknown.push(format!("metadata.{field}"));
        }
        known && !value.is_null() && field != "selfLink"
    });
    for field in ["labels", "annotations"] {
        texts(map, field, ty)?;
    }
    for field in ["name", "generateName", "namespace", "uid", "resourceVersion"] {
        match map.get(field) {
            Some(Value::String(text)) if text.is_empty() => {
                map.remove(field);
            }
            Some(Value::String(_)) | None => {}
            Some(other) => {
                let what = super::body::go_type(other);
                return Err(cannot(ty, &format!("{what} into Go struct field ObjectMeta.{field} of type string")));
            }
        }
    }
    for field in ["finalizers", "ownerReferences", "managedFields"] {
        match map.get(field) {
            // An empty list of managers means something: nobody manages any more.
            Some(Value::Array(list)) if list.is_empty() && field != "managedFields" => {
                map.remove(field);
            }
            Some(Value::Array(_)) | None => {}
            Some(other) => {
                let what = super::body::go_type(other);
                let of = match field {
                    "finalizers" => "[]string",
                    "ownerReferences" => "[]v1.OwnerReference",
                    _ => "[]v1.ManagedFieldsEntry",
                };
                return Err(cannot(ty, &format!("{what} into Go struct field ObjectMeta.{field} of type {of}")));
            }
        }
    }
    Ok(unknown)
}

fn cannot(ty: &ResourceType, what: &str) -> Refused {
    bad_request(format!(
        "{kind} in version \"{}\" cannot be handled as a {kind}: json: cannot unmarshal {what}",
        ty.version,
        kind = ty.kind
    ))
}

/// Labels and annotations: null values are empty text, empty maps fall away.
fn texts(map: &mut Map<String, Value>, field: &str, ty: &ResourceType) -> Result<(), Refused> {
    match map.get_mut(field) {
        None => return Ok(()),
        Some(Value::Object(texts)) => {
            for value in texts.values_mut() {
                match value {
                    Value::String(_) => {}
                    Value::Null => *value = "".into(),
                    other => {
                        let what = super::body::go_type(other);
                        return Err(cannot(
                            ty,
                            &format!("{what} into Go struct field ObjectMeta.{field} of type string"),
                        ));
                    }
                }
            }
        }
        Some(other) => {
            let what = super::body::go_type(other);
            return Err(cannot(
                ty,
                &format!("{what} into Go struct field ObjectMeta.{field} of type map[string]string"),
            ));
        }
    }
    if map[field].as_object().is_some_and(Map::is_empty) {
        map.remove(field);
    }
    Ok(())
}

/// A text field of `metadata`; empty if absent.
pub(super) fn text<'a>(object: &'a Value, field: &str) -> &'a str {
    object["metadata"][field].as_str().unwrap_or_default()
}

/// `metadata` for writing; the object is normalized.
pub(super) fn of(object: &mut Value) -> &mut Map<String, Value> {
    object
        .get_mut("metadata")
        .and_then(Value::as_object_mut)
        .expect("a normalized object has metadata, and it is a map")
}

/// Sets or, with `None`, removes a field of `metadata`.
pub(super) fn set(object: &mut Value, field: &str, value: Option<Value>) {
    match value {
        Some(value) => of(object).insert(field.to_owned(), value),
        None => of(object).remove(field),
    };
}

/// Takes what the client wrote as field managers, if anything.
pub(super) fn take_managers(object: &mut Value) -> Option<Value> {
    object.get_mut("metadata").and_then(Value::as_object_mut)?.remove("managedFields")
}

/// Whether the object has finalizers.
pub(super) fn has_finalizers(object: &Value) -> bool {
    object["metadata"]["finalizers"].as_array().is_some_and(|f| !f.is_empty())
}

const SUBDOMAIN: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', \
     and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is \
     '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";
const LABEL: &str = "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must \
     start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is \
     '[a-z0-9]([-a-z0-9]*[a-z0-9])?')";
const NAME_PART: &str = "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an \
     alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is \
     '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";
const LABEL_VALUE: &str = "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or \
     '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex \
     used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')";

fn is_label(text: &str) -> bool {
    let ok = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    let bytes = text.as_bytes();
    !bytes.is_empty() && ok(bytes[0]) && ok(bytes[bytes.len() - 1]) && bytes.iter().all(|b| ok(*b) || *b == b'-')
}

fn is_subdomain(text: &str) -> bool {
    !text.is_empty() && text.split('.').all(is_label)
}

fn is_name_part(text: &str) -> bool {
    let bytes = text.as_bytes();
    !bytes.is_empty()
        && bytes[0].is_ascii_alphanumeric()
        && bytes[bytes.len() - 1].is_ascii_alphanumeric()
        && bytes.iter().all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(b))
}

/// What is wrong with the name of an object of this type.
fn name_errors(ty: &ResourceType, name: &str) -> Vec<String> {
    let core = |plural: &str| ty.builtin && ty.group.is_empty() && ty.plural == plural;
    if ty.group == "rbac.authorization.k8s.io" {
        // Roles may be called almost anything that can stand in a path.
        return match name {
            "." | ".." => vec![format!("may not be '{name}'")],
            _ => ["/", "%"].iter().filter(|c| name.contains(**c)).map(|c| format!("may not contain '{c}'")).collect(),
        };
    }
    if core("services") || core("namespaces") {
        let mut out = Vec::new();
        if name.len() > 63 {
            out.push("must be no more than 63 characters".to_owned());
        }
        if !is_label(name) {
            out.push(if name.contains('.') && is_subdomain(name) {
                "must not contain dots".to_owned()
            } else {
                LABEL.to_owned()
            });
        }
        return out;
    }
    let mut out = Vec::new();
    if name.len() > 253 {
        out.push("must be no more than 253 characters".to_owned());
    }
    if !is_subdomain(name) {
        out.push(SUBDOMAIN.to_owned());
    }
    out
}

/// What is wrong with a label key, annotation key or finalizer.
fn key_errors(key: &str) -> Vec<String> {
    let (prefix, name) = match key.split('/').collect::<Vec<_>>().as_slice() {
        [name] => (None, *name),
        [prefix, name] => (Some(*prefix), *name),
        _ => {
            return vec![format!(
                "a valid label key {NAME_PART} with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"
            )];
        }
    };
    let mut out = Vec::new();
    match prefix {
        Some("") => out.push("prefix part must be non-empty".to_owned()),
        Some(prefix) if !is_subdomain(prefix) => out.push(format!("prefix part {SUBDOMAIN}")),
        _ => {}
    }
    if name.is_empty() {
        out.push("name part must be non-empty".to_owned());
    } else if name.len() > 63 {
        out.push("name part must be no more than 63 bytes".to_owned());
    }
    if !is_name_part(name) {
        out.push(format!("name part {NAME_PART}"));
    }
    out
}

/// Checks `metadata` of an object that is to be created.
pub(super) fn validate(object: &Value, ty: &ResourceType) -> Vec<Cause> {
    let metadata = &object["metadata"];
    let mut out = Vec::new();
    let generate = text(object, "generateName");
    if !generate.is_empty() {
        // The prefix is checked as a name that a suffix will follow.
        let prefix = generate.trim_end_matches('-');
        let shown = if prefix.len() < generate.len() { format!("{prefix}a") } else { generate.to_owned() };
        for error in name_errors(ty, &shown) {
            out.push(Cause::invalid("metadata.generateName", &generate.into(), &error));
        }
    }
    let name = text(object, "name");
    if name.is_empty() {
        out.push(Cause::required("metadata.name", "name or generateName is required"));
    } else {
        for error in name_errors(ty, name) {
            out.push(Cause::invalid("metadata.name", &name.into(), &error));
        }
    }
    if metadata["generation"].as_i64().is_some_and(|g| g < 0) {
        out.push(Cause::invalid("metadata.generation", &metadata["generation"], "must be greater than or equal to 0"));
    }
    out.extend(validate_maps(metadata));
    out.extend(validate_owners(metadata));
    out.extend(validate_finalizers(metadata, ty.builtin));
    out
}

fn validate_maps(metadata: &Value) -> Vec<Cause> {
    let mut out = Vec::new();
    for (key, value) in metadata["labels"].as_object().into_iter().flatten() {
        for error in key_errors(key) {
            out.push(Cause::invalid("metadata.labels", &key.as_str().into(), &error));
        }
        let text = value.as_str().unwrap_or_default();
        if text.len() > 63 {
            out.push(Cause::invalid("metadata.labels", value, "must be no more than 63 bytes"));
        }
        if !text.is_empty() && !is_name_part(text) {
            out.push(Cause::invalid("metadata.labels", value, LABEL_VALUE));
        }
    }
    let mut size = 0;
    for (key, value) in metadata["annotations"].as_object().into_iter().flatten() {
        size += key.len() + value.as_str().map_or(0, str::len);
        for error in key_errors(&key.to_lowercase()) {
            out.push(Cause::invalid("metadata.annotations", &key.as_str().into(), &error));
        }
    }
    if size > ANNOTATIONS_BYTES_MAX {
        out.push(Cause::too_long("metadata.annotations", ANNOTATIONS_BYTES_MAX as u64));
    }
    out
}

fn validate_owners(metadata: &Value) -> Vec<Cause> {
    const AT: &str = "metadata.ownerReferences";
    let empty = Vec::new();
    let owners = metadata["ownerReferences"].as_array().unwrap_or(&empty);
    let mut out = Vec::new();
    let mut controller: Option<String> = None;
    for owner in owners {
        let part = |field: &str| owner[field].as_str().unwrap_or_default();
        let version = part("apiVersion").rsplit('/').next().unwrap_or_default();
        if version.is_empty() {
            out.push(Cause::invalid(
                format!("{AT}.apiVersion"),
                &part("apiVersion").into(),
                "version must not be empty",
            ));
        }
        for field in ["kind", "name", "uid"] {
            if part(field).is_empty() {
                out.push(Cause::invalid(format!("{AT}.{field}"), &"".into(), "must not be empty"));
            }
        }
        if part("apiVersion") == "v1" && part("kind") == "Event" {
            out.push(Cause::invalid(AT, &part("kind").into(), "is disallowed from being an owner"));
        }
        if owner["controller"] == true {
            let name = format!("{}/{}", part("kind"), part("name"));
            match &controller {
                None => controller = Some(name),
                Some(first) => {
                    let list = owner_list(owners);
                    let detail = format!(
                        "Only one reference can have Controller set to true. Found \"true\" in references for {first} and {name}"
                    );
                    out.push(Cause {
                        reason: "FieldValueInvalid",
                        message: format!("Invalid value: {list}: {detail}"),
                        field: AT.to_owned(),
                    });
                }
            }
        }
    }
    out
}

/// Owner references in the order of their fields in Go.
fn owner_list(owners: &[Value]) -> String {
    let one = |owner: &Value| {
        let fields: Vec<String> = ["apiVersion", "kind", "name", "uid", "controller", "blockOwnerDeletion"]
            .iter()
            .filter_map(|f| owner.get(*f).map(|v| format!("\"{f}\":{v}")))
            .collect();
        format!("{{{}}}", fields.join(","))
    };
    format!("[{}]", owners.iter().map(one).collect::<Vec<_>>().join(","))
}

fn validate_finalizers(metadata: &Value, qualified: bool) -> Vec<Cause> {
    let mut out = Vec::new();
    let mut orphan = false;
    let mut foreground = false;
    for (i, finalizer) in metadata["finalizers"].as_array().into_iter().flatten().enumerate() {
        let name = finalizer.as_str().unwrap_or_default();
        for error in key_errors(name) {
            out.push(Cause::invalid("metadata.finalizers", finalizer, &error));
        }
        if !name.contains('/') {
            match name {
                "orphan" => orphan = true,
                "foregroundDeletion" => foreground = true,
                "kubernetes" => {}
                _ if !qualified => {}
                _ => out.push(Cause::invalid(
                    format!("metadata.finalizers[{i}]"),
                    finalizer,
                    "name is neither a standard finalizer name nor is it fully qualified",
                )),
            }
        }
    }
    if orphan && foreground {
        out.push(Cause::invalid(
            "metadata.finalizers",
            &metadata["finalizers"],
            "finalizer orphan and foregroundDeletion cannot be both set",
        ));
    }
    out
}

/// Checks `metadata` of an object that is to replace another: what may not change, and no new finalizers on an object
/// that is being deleted. The real server checks the immutable fields twice and reports them twice.
pub(super) fn validate_update(object: &Value, old: &Value, ty: &ResourceType) -> Vec<Cause> {
    let (new_meta, old_meta) = (&object["metadata"], &old["metadata"]);
    let mut once = Vec::new();
    once.extend(validate_maps(new_meta));
    once.extend(validate_owners(new_meta));
    once.extend(validate_finalizers(new_meta, ty.builtin));
    if !old_meta["deletionTimestamp"].is_null() {
        let before = old_meta["finalizers"].as_array().cloned().unwrap_or_default();
        let added: Vec<String> = new_meta["finalizers"]
            .as_array()
            .into_iter()
            .flatten()
            .filter(|f| !before.contains(f))
            .map(ToString::to_string)
            .collect();
        if !added.is_empty() {
            let detail = format!(
                "no new finalizers can be added if the object is being deleted, found new finalizers []string{{{}}}",
                added.join(", ")
            );
            once.push(Cause::forbidden("metadata.finalizers", &detail));
        }
    }
    for field in ["name", "namespace", "uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds"] {
        let (new, old) = (&new_meta[field], &old_meta[field]);
        if new != old && (field != "namespace" || ty.namespaced) {
            once.push(Cause::invalid(format!("metadata.{field}"), new, "field is immutable"));
        }
    }
    let mut out = once.clone();
    out.extend(once);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_follow_the_rules_of_their_kind() {
        let registry = super::super::registry::Registry::new();
        let wrong = |plural: &str, name: &str| !name_errors(registry.find("", "v1", plural).unwrap(), name).is_empty();
        for name in ["Upper", "a_b", "-a", "a..b", "", "."] {
            assert!(wrong("configmaps", name), "{name}");
        }
        assert!(!wrong("configmaps", "a.b-c.1"));
        assert!(wrong("namespaces", "a.b"));
        assert!(!wrong("services", "1a"));
    }

    #[test]
    fn empty_parts_of_metadata_fall_away() {
        let registry = super::super::registry::Registry::new();
        let ty = registry.find("", "v1", "configmaps").unwrap();
        let mut object =
            json!({"metadata": {"name": "a", "labels": {}, "annotations": {"a": null}, "finalizers": [], "nope": 1}});
        assert_eq!(normalize(&mut object, ty).unwrap(), ["metadata.nope"]);
        assert_eq!(object, json!({"metadata": {"name": "a", "annotations": {"a": ""}}}));
    }
}
