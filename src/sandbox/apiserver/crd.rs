//! The life of a CustomResourceDefinition: defaults, what makes one wrong, its status, and the types it brings.
//! Must not know the store, nor what may stand in rules (`rule_types`). Not done: conversion webhooks are refused.

use serde_json::{Map, Value, json};

use super::cause::Cause;
use super::registry::{Column, ResourceType, Scale, SelectableField, Subresource, api_version, storage_hash};
use super::rule_types;
use super::schema::Schema;
use crate::api::Time;

/// Holds a CRD until its objects are gone.
pub const FINALIZER: &str = "customresourcecleanup.apiextensions.k8s.io";

/// Fills in what a person may leave out. Call on create and on update, before `validate`.
pub fn fill(crd: &mut Value) {
    let kind = crd["spec"]["names"]["kind"].as_str().unwrap_or_default().to_owned();
    let Some(spec) = crd.get_mut("spec").and_then(Value::as_object_mut) else { return };
    if let Some(names) = spec.get_mut("names").and_then(Value::as_object_mut) {
        let mut fill = |key: &str, value: String| {
            if names.get(key).and_then(Value::as_str).is_none_or(str::is_empty) && !kind.is_empty() {
                names.insert(key.to_owned(), value.into());
            }
        };
        fill("singular", kind.to_lowercase());
        fill("listKind", format!("{kind}List"));
    }
    if spec.get("conversion").is_none_or(Value::is_null) {
        spec.insert("conversion".to_owned(), json!({"strategy": "None"}));
    }
    if spec.get("preserveUnknownFields") == Some(&Value::Bool(false)) {
        spec.remove("preserveUnknownFields");
    }
}

/// The status of a new CRD. A real server answers the create before anything looked at the names.
pub fn first_status(crd: &Value) -> Value {
    let stored = storage_version(crd).map_or_else(Vec::new, |v| vec![v]);
    json!({"conditions": null, "acceptedNames": {"plural": "", "kind": ""}, "storedVersions": stored})
}

/// Notes that objects may be stored as the present storage version. Call on each change of the spec.
pub fn note_storage(crd: &mut Value) {
    let Some(version) = storage_version(crd) else { return };
    if let Some(stored) = crd["status"]["storedVersions"].as_array_mut()
        && !stored.iter().any(|v| *v == version)
    {
        stored.push(version.into());
    }
}

/// The status that the server's own controllers write next; `None` when nothing is left to do. Call it again after each
/// write: names are judged first, then the type is served. `others` are the other CRDs of the server.
pub fn next_status(crd: &Value, others: &[&Value], now: Time) -> Option<Value> {
    let mut status = crd["status"].as_object().cloned().unwrap_or_default();
    if crd["metadata"].get("deletionTimestamp").is_some() {
        let pending = condition(crd, "Terminating").is_some_and(|c| c["reason"] == "InstanceDeletionPending");
        if !pending {
            return None;
        }
        let text = "CustomResource deletion is in progress";
        set(&mut status, "Terminating", "True", "InstanceDeletionInProgress", text, now);
        return Some(Value::Object(status));
    }
    let (accepted, conflict) = judge_names(crd, others);
    match &conflict {
        Some((reason, text)) => set(&mut status, "NamesAccepted", "False", reason, text, now),
        None => set(&mut status, "NamesAccepted", "True", "NoConflicts", "no conflicts found", now),
    }
    let established = condition(crd, "Established").is_some_and(|c| c["status"] == "True");
    let text = "the initial names have been accepted";
    if conflict.is_some() && !established {
        set(&mut status, "Established", "False", "NotAccepted", "not all names are accepted", now);
    } else if !established {
        // Two writes: clients see `Installing` before the type is served.
        let installing = condition(crd, "Established").is_some_and(|c| c["reason"] == "Installing");
        if installing {
            set(&mut status, "Established", "True", "InitialNamesAccepted", text, now);
        } else {
            set(&mut status, "Established", "False", "Installing", text, now);
        }
    }
    status.insert("acceptedNames".to_owned(), accepted);
    let status = Value::Object(status);
    (status != crd["status"]).then_some(status)
}

/// The status of a CRD that is now being deleted.
pub fn deleting_status(crd: &Value, now: Time) -> Value {
    let mut status = crd["status"].as_object().cloned().unwrap_or_default();
    let text = "CustomResourceDefinition marked for deletion; CustomResource deletion will begin soon";
    set(&mut status, "Terminating", "True", "InstanceDeletionPending", text, now);
    Value::Object(status)
}

/// Whether the types of the CRD are served.
pub fn is_established(crd: &Value) -> bool {
    condition(crd, "Established").is_some_and(|c| c["status"] == "True")
}

fn condition<'a>(crd: &'a Value, kind: &str) -> Option<&'a Value> {
    crd["status"]["conditions"].as_array()?.iter().find(|c| c["type"] == kind)
}

/// Sets a condition; its time moves only when its status does.
fn set(status: &mut Map<String, Value>, kind: &str, value: &str, reason: &str, message: &str, now: Time) {
    let mut list = status.get("conditions").and_then(Value::as_array).cloned().unwrap_or_default();
    let old = list.iter().position(|c| c["type"] == kind);
    let time = old
        .filter(|i| list[*i]["status"] == value)
        .and_then(|i| list[i]["lastTransitionTime"].as_str())
        .map_or_else(|| now.seconds_text(), str::to_owned);
    let new = json!({"type": kind, "status": value, "lastTransitionTime": time, "reason": reason, "message": message});
    match old {
        Some(i) => list[i] = new,
        None => list.push(new),
    }
    status.insert("conditions".to_owned(), Value::Array(list));
}

/// The names that may be used, and what stands against the rest.
fn judge_names(crd: &Value, others: &[&Value]) -> (Value, Option<(&'static str, String)>) {
    let wanted = &crd["spec"]["names"];
    let rivals: Vec<&Value> = others
        .iter()
        .filter(|o| o["spec"]["group"] == crd["spec"]["group"] && o["metadata"]["name"] != crd["metadata"]["name"])
        .map(|o| &o["status"]["acceptedNames"])
        .collect();
    let word_taken = |word: &Value| {
        rivals.iter().any(|n| {
            n["plural"] == *word
                || n["singular"] == *word
                || n["shortNames"].as_array().is_some_and(|s| s.contains(word))
        })
    };
    let kind_taken = |word: &Value| rivals.iter().any(|n| n["kind"] == *word || n["listKind"] == *word);
    let mut accepted = Map::new();
    let mut conflict = None;
    let in_use = |word: &Value| format!("{word} is already in use");
    for (key, reason, kinds) in [
        ("plural", "PluralConflict", false),
        ("singular", "SingularConflict", false),
        ("kind", "KindConflict", true),
        ("listKind", "ListKindConflict", true),
    ] {
        let word = &wanted[key];
        let taken = if kinds { kind_taken(word) } else { word_taken(word) };
        if taken && !word.is_null() {
            conflict = Some((reason, in_use(word)));
            accepted.insert(key.to_owned(), "".into());
        } else if !word.is_null() {
            accepted.insert(key.to_owned(), word.clone());
        }
    }
    if let Some(short) = wanted["shortNames"].as_array() {
        match short.iter().find(|word| word_taken(word)) {
            Some(word) => conflict = Some(("ShortNamesConflict", in_use(word))),
            None => drop(accepted.insert("shortNames".to_owned(), json!(short))),
        }
    }
    if let Some(categories) = wanted.get("categories") {
        accepted.insert("categories".to_owned(), categories.clone());
    }
    (Value::Object(accepted), conflict)
}

fn versions(crd: &Value) -> &[Value] {
    crd["spec"]["versions"].as_array().map_or(&[], Vec::as_slice)
}

fn storage_version(crd: &Value) -> Option<String> {
    versions(crd).iter().find(|v| v["storage"] == true)?["name"].as_str().map(str::to_owned)
}

/// The types that an established CRD brings: one for each served version.
pub fn types(crd: &Value) -> Vec<ResourceType> {
    let stored = storage_version(crd).unwrap_or_default();
    versions(crd).iter().filter(|v| v["served"] == true).map(|v| type_of(crd, v, &stored)).collect()
}

fn type_of(crd: &Value, version: &Value, stored: &str) -> ResourceType {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let texts = |value: &Value| value.as_array().into_iter().flatten().map(text).collect::<Vec<_>>();
    let (spec, names) = (&crd["spec"], &crd["spec"]["names"]);
    let (group, name, kind, plural) =
        (text(&spec["group"]), text(&version["name"]), text(&names["kind"]), text(&names["plural"]));
    let sub = &version["subresources"];
    let scale = sub["scale"].as_object().map(|scale| Scale {
        spec_replicas: text(&scale["specReplicasPath"]),
        status_replicas: text(&scale["statusReplicasPath"]),
        label_selector: scale.get("labelSelectorPath").map(text).filter(|p| !p.is_empty()),
    });
    let part = |name: &str, group: &str, version: &str, kind: &str| Subresource {
        name: name.to_owned(),
        group: group.to_owned(),
        version: version.to_owned(),
        kind: kind.to_owned(),
        verbs: ["get", "patch", "update"].map(str::to_owned).to_vec(),
    };
    let has_status = sub["status"].is_object();
    let mut subresources = Vec::new();
    if has_status {
        subresources.push(part("status", &group, &name, &kind));
    }
    if scale.is_some() {
        subresources.push(part("scale", "autoscaling", "v1", "Scale"));
    }
    ResourceType {
        list_kind: text(&names["listKind"]),
        singular: text(&names["singular"]),
        short_names: texts(&names["shortNames"]),
        categories: texts(&names["categories"]),
        namespaced: spec["scope"] == "Namespaced",
        has_status,
        has_generation: true,
        unconditional_update: false,
        create_on_update: false,
        scale,
        columns: columns(version),
        schema: Some(std::sync::Arc::new(Schema::parse(&version["schema"]["openAPIV3Schema"]))),
        definition: Some(std::sync::Arc::new(version["schema"]["openAPIV3Schema"].clone())),
        verbs: ["delete", "deletecollection", "get", "list", "patch", "create", "update", "watch"]
            .map(str::to_owned)
            .to_vec(),
        subresources,
        builtin: false,
        selectable_fields: selectable(version),
        storage_key: format!("{group}/{plural}").into(),
        storage_api_version: api_version(&group, stored),
        deprecation: deprecation(version, &group, &name, &kind),
        terminating: crd["metadata"].get("deletionTimestamp").is_some(),
        storage_hash: storage_hash(&group, stored, &kind),
        group,
        version: name,
        kind,
        plural,
    }
}

fn deprecation(version: &Value, group: &str, name: &str, kind: &str) -> Option<String> {
    let plain = || format!("{group}/{name} {kind} is deprecated");
    (version["deprecated"] == true).then(|| version["deprecationWarning"].as_str().map_or_else(plain, str::to_owned))
}

fn columns(version: &Value) -> Vec<Column> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let listed = version["additionalPrinterColumns"].as_array().filter(|list| !list.is_empty());
    let Some(listed) = listed else {
        return vec![Column {
            name: "Age".to_owned(),
            kind: "date".to_owned(),
            format: String::new(),
            description: String::new(),
            priority: 0,
            json_path: ".metadata.creationTimestamp".to_owned(),
        }];
    };
    let column = |c: &Value| Column {
        name: text(&c["name"]),
        kind: text(&c["type"]),
        format: text(&c["format"]),
        description: text(&c["description"]),
        priority: c["priority"].as_i64().unwrap_or(0),
        json_path: text(&c["jsonPath"]),
    };
    listed.iter().map(column).collect()
}

fn selectable(version: &Value) -> Vec<SelectableField> {
    let paths = version["selectableFields"].as_array().into_iter().flatten();
    paths
        .filter_map(|f| f["jsonPath"].as_str())
        .map(|path| {
            let path = path.trim_start_matches('.').to_owned();
            SelectableField { label: path.clone(), path, default: String::new() }
        })
        .collect()
}

/// What is wrong with a CRD, defaults filled in. `old` is what it was before an update.
pub fn validate(crd: &Value, old: Option<&Value>) -> Vec<Cause> {
    let mut out = Vec::new();
    let spec = &crd["spec"];
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let (group, plural) = (text(&spec["group"]), text(&spec["names"]["plural"]));
    if crd["metadata"]["name"] != format!("{plural}.{group}") {
        let detail = "must be spec.names.plural+\".\"+spec.group";
        out.push(Cause::invalid("metadata.name", &crd["metadata"]["name"], detail));
    }
    for (field, value) in [
        ("spec.group", &spec["group"]),
        ("spec.names.plural", &spec["names"]["plural"]),
        ("spec.names.kind", &spec["names"]["kind"]),
    ] {
        if value.as_str().is_none_or(str::is_empty) {
            out.push(Cause::required(field, ""));
        }
    }
    match spec["scope"].as_str().unwrap_or_default() {
        "Cluster" | "Namespaced" => {}
        "" => out.push(Cause::required("spec.scope", "")),
        _ => {
            let allowed = ["Cluster", "Namespaced"].map(str::to_owned);
            out.push(Cause::unsupported("spec.scope", &spec["scope"], &allowed));
        }
    }
    if spec["conversion"]["strategy"] != "None" {
        // Refused here, though a real server would call the webhook: this one calls nobody.
        let detail = "this server converts with strategy None only";
        out.push(Cause::invalid("spec.conversion.strategy", &spec["conversion"]["strategy"], detail));
    }
    validate_versions(crd, old, &mut out);
    if let Some(old) = old {
        for (field, before, after) in [
            ("spec.group", &old["spec"]["group"], &spec["group"]),
            ("spec.scope", &old["spec"]["scope"], &spec["scope"]),
            ("spec.names.plural", &old["spec"]["names"]["plural"], &spec["names"]["plural"]),
            ("spec.names.kind", &old["spec"]["names"]["kind"], &spec["names"]["kind"]),
        ] {
            if before != after && is_established(old) {
                out.push(Cause::invalid(field, after, "field is immutable"));
            }
        }
    }
    out
}

fn validate_versions(crd: &Value, old: Option<&Value>, out: &mut Vec<Cause>) {
    let list = versions(crd);
    let single = list.len() == 1;
    if list.iter().filter(|v| v["storage"] == true).count() != 1 {
        // The value is shown in the server's own (Go) form, in which a single version's schema stands elsewhere.
        let shown: Vec<Value> = list
            .iter()
            .map(|v| {
                json!({"Name": v["name"], "Served": v["served"] == true, "Storage": v["storage"] == true,
                    "Deprecated": v["deprecated"] == true, "DeprecationWarning": v["deprecationWarning"],
                    "Schema": null, "Subresources": null, "AdditionalPrinterColumns": null, "SelectableFields": null})
            })
            .collect();
        let detail = "must have exactly one version marked as storage version";
        out.push(Cause {
            message: format!("Invalid value: {}: {detail}", go_order(&shown)),
            ..Cause::invalid("spec.versions", &Value::Null, "")
        });
        if storage_version(crd).is_none() {
            out.push(Cause::invalid("status.storedVersions", &Value::Null, "must have at least one stored version"));
        }
    }
    for (i, version) in list.iter().enumerate() {
        let schema = &version["schema"]["openAPIV3Schema"];
        if !schema.is_object() {
            out.push(Cause::required(format!("spec.versions[{i}].schema.openAPIV3Schema"), ""));
            continue;
        }
        // A single version's schema is reported under the name that it had in the first version of the CRD API.
        let path = if single {
            "spec.validation.openAPIV3Schema".to_owned()
        } else {
            format!("spec.versions[{i}].schema.openAPIV3Schema")
        };
        let mut found = Vec::new();
        structural(schema, &path, "at the root", &mut found);
        found.sort_by(|a, b| a.field.cmp(&b.field));
        // Rules that were let in once stay.
        let known = old.is_some_and(|old| versions(old).iter().any(|before| before["schema"] == version["schema"]));
        if found.is_empty() && !known {
            rule_types::check(schema, &path, true, &mut found);
        }
        out.append(&mut found);
    }
}

/// The versions as Go prints its struct: fields in order of declaration.
fn go_order(list: &[Value]) -> String {
    const FIELDS: [&str; 9] = [
        "Name",
        "Served",
        "Storage",
        "Deprecated",
        "DeprecationWarning",
        "Schema",
        "Subresources",
        "AdditionalPrinterColumns",
        "SelectableFields",
    ];
    let one = |v: &Value| {
        let fields: Vec<String> = FIELDS.iter().map(|f| format!("\"{f}\":{}", v[*f])).collect();
        format!("{{{}}}", fields.join(","))
    };
    format!("[{}]", list.iter().map(one).collect::<Vec<_>>().join(","))
}

/// Every part of a structural schema says its type, or that it has none on purpose.
fn structural(schema: &Value, path: &str, place: &str, out: &mut Vec<Cause>) {
    let free = schema["x-kubernetes-int-or-string"] == true || schema["x-kubernetes-preserve-unknown-fields"] == true;
    let kind = schema["type"].as_str().unwrap_or_default();
    if kind.is_empty() && (!free || place == "at the root") {
        out.push(Cause::required(format!("{path}.type"), &format!("must not be empty {place}")));
    }
    let known = ["", "object", "array", "string", "integer", "number", "boolean"];
    if !known.contains(&kind) {
        let allowed: Vec<String> =
            ["array", "boolean", "integer", "number", "object", "string"].map(str::to_owned).to_vec();
        out.push(Cause::unsupported(format!("{path}.type"), &schema["type"], &allowed));
    }
    for (key, child) in schema["properties"].as_object().into_iter().flatten() {
        structural(child, &format!("{path}.properties[{key}]"), "for specified object fields", out);
    }
    if schema["additionalProperties"].is_object() {
        let at = format!("{path}.additionalProperties");
        structural(&schema["additionalProperties"], &at, "for specified object fields", out);
    }
    if schema["items"].is_object() {
        structural(&schema["items"], &format!("{path}.items"), "for specified array items", out);
    }
}

#[cfg(test)]
mod tests {
    use super::super::recorded;
    use super::*;

    fn settled(mut crd: Value, others: &[&Value]) -> (Value, Vec<Value>) {
        fill(&mut crd);
        crd["status"] = first_status(&crd);
        let mut seen = vec![crd["status"].clone()];
        while let Some(status) = next_status(&crd, others, Time(0)) {
            crd["status"] = status.clone();
            seen.push(status);
        }
        (crd, seen)
    }

    /// Times are placeholders in the recordings.
    fn without_times(status: &Value) -> Value {
        let mut status = status.clone();
        for condition in status["conditions"].as_array_mut().into_iter().flatten() {
            condition["lastTransitionTime"] = "<time>".into();
        }
        status
    }

    #[test]
    fn a_crd_is_established_in_the_recorded_steps() {
        let Some(topic) = recorded::topic("crd") else { return };
        let exchanges = recorded::exchanges(&topic, "lifecycle");
        let create = exchanges.iter().find(|e| e["request"]["method"] == "POST").unwrap();
        let lines = exchanges.iter().find_map(|e| e["response"]["lines"].as_array()).unwrap();
        let (mut crd, seen) = settled(create["request"]["body"].clone(), &[]);
        for (step, line) in seen.iter().zip(lines) {
            assert_eq!(without_times(step), line["object"]["status"]);
        }
        assert!(is_established(&crd));
        crd["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
        crd["status"] = deleting_status(&crd, Time(0));
        assert_eq!(without_times(&crd["status"]), lines[3]["object"]["status"]);
        crd["status"] = next_status(&crd, &[], Time(0)).unwrap();
        assert_eq!(without_times(&crd["status"]), lines[4]["object"]["status"]);
        assert_eq!(next_status(&crd, &[], Time(0)), None);
    }

    #[test]
    fn bad_crds_are_refused_in_the_recorded_words() {
        let Some(topic) = recorded::topic("crd") else { return };
        let mut compared = 0;
        for exchange in recorded::exchanges(&topic, "crd-errors") {
            let answer = &exchange["response"]["body"];
            let rules = answer.to_string().contains("compilation failed");
            if exchange["response"]["status"] != 422 || rules {
                continue;
            }
            let mut crd = exchange["request"]["body"].clone();
            fill(&mut crd);
            let found: Vec<Value> = validate(&crd, None)
                .into_iter()
                .map(|c| json!({"reason": c.reason, "message": c.message, "field": c.field}))
                .collect();
            assert_eq!(json!(found), answer["details"]["causes"]);
            compared += 1;
        }
        assert!(compared >= 5, "{compared}");
    }

    #[test]
    fn a_kind_in_use_is_not_accepted() {
        let Some(topic) = recorded::topic("crd") else { return };
        let Some(widgets) = recorded::crd("widgets.example.dev") else { return };
        let (widgets, _) = settled(widgets, &[]);
        let exchanges = recorded::exchanges(&topic, "crd-errors");
        let create = exchanges.iter().find(|e| e["response"]["status"] == 201).unwrap();
        let read = exchanges.iter().find(|e| e["request"]["method"] == "GET").unwrap();
        let (crd, _) = settled(create["request"]["body"].clone(), &[&widgets]);
        assert_eq!(without_times(&crd["status"]), read["response"]["body"]["status"]);
        assert!(!is_established(&crd));
    }

    #[test]
    fn upstream_crds_are_valid_and_bring_their_types() {
        for (name, versions) in [("rayjobs.ray.io", 2), ("rayclusters.ray.io", 2), ("queues.scheduling.volcano.sh", 1)]
        {
            let Some(crd) = recorded::crd(name) else { return };
            let (crd, _) = settled(crd, &[]);
            assert_eq!(validate(&crd, None), []);
            assert_eq!(types(&crd).len(), versions, "{name}");
        }
    }
}
