//! Makes `kinds.json`, what the sandbox's API server knows of the fields of built-in kinds, from the OpenAPI documents of
//! a real server. Must not know how it is used.

use std::collections::{BTreeMap, BTreeSet};

use rayfleet::sandbox::apiserver::registry::Registry;
use serde_json::{Map, Value, json};

/// What no one looks up.
const DROPPED: &[&str] = &["description", "title", "example"];
/// Kinds of bodies that are no resources of their own.
const BODIES: &[&str] = &["Scale", "Eviction", "DeleteOptions", "TokenRequest"];

/// From OpenAPI v3 documents, one for each version of a group: the schemas that the sandbox's types reach, without prose.
pub fn kinds(documents: &[Value]) -> Value {
    let mut all: BTreeMap<&str, Value> = BTreeMap::new();
    for schemas in documents.iter().filter_map(|d| d["components"]["schemas"].as_object()) {
        for (name, schema) in schemas {
            all.insert(name, plain(schema));
        }
    }
    let registry = Registry::new();
    let mut reached = BTreeSet::new();
    for (name, schema) in &all {
        let wanted = schema["x-kubernetes-group-version-kind"].as_array().into_iter().flatten().any(|gvk| {
            let text = |key: &str| gvk[key].as_str().unwrap_or_default();
            let version = if text("group").is_empty() {
                text("version").to_owned()
            } else {
                format!("{}/{}", text("group"), text("version"))
            };
            registry.find_kind(&version, text("kind")).is_some() || BODIES.contains(&text("kind"))
        });
        if wanted && !name.ends_with("List") {
            reach(name, &all, &mut reached);
        }
    }
    let mut kept: Map<String, Value> = all
        .iter()
        .filter(|(name, _)| reached.contains(**name))
        .map(|(name, schema)| ((*name).to_owned(), schema.clone()))
        .collect();
    // Every group names these two as its own: one line instead of hundreds.
    for name in
        ["io.k8s.apimachinery.pkg.apis.meta.v1.DeleteOptions", "io.k8s.apimachinery.pkg.apis.meta.v1.WatchEvent"]
    {
        if let Some(schema) = kept.get_mut(name) {
            schema["x-kubernetes-group-version-kind"] =
                json!([{"group": "", "version": "v1", "kind": "DeleteOptions"}]);
        }
    }
    Value::Object(kept)
}

/// One line for each schema, so that a change is seen as one.
pub fn text(kinds: &Value) -> String {
    let lines: Vec<String> =
        kinds.as_object().into_iter().flatten().map(|(name, schema)| format!("\"{name}\": {schema}")).collect();
    format!("{{\n{}\n}}\n", lines.join(",\n"))
}

fn reach<'a>(name: &'a str, all: &'a BTreeMap<&str, Value>, reached: &mut BTreeSet<&'a str>) {
    let Some((name, schema)) = all.get_key_value(name) else { return };
    if reached.insert(name) {
        references(schema, &mut |next| reach(next, all, reached));
    }
}

fn references<'a>(schema: &'a Value, found: &mut impl FnMut(&'a str)) {
    match schema {
        Value::Object(map) => {
            for (key, value) in map {
                match (key.as_str(), value) {
                    ("$ref", Value::String(name)) => found(name.trim_start_matches("#/components/schemas/")),
                    _ => references(value, found),
                }
            }
        }
        Value::Array(list) => list.iter().for_each(|v| references(v, found)),
        _ => {}
    }
}

/// Without prose; `allOf` of one reference is the reference.
fn plain(schema: &Value) -> Value {
    match schema {
        Value::Object(map) => {
            if let Some([Value::Object(only)]) = map.get("allOf").and_then(Value::as_array).map(Vec::as_slice) {
                let mut out = only.clone();
                let rest = map.iter().filter(|(k, v)| *k != "allOf" && *k != "description" && **v != json!({}));
                out.extend(rest.map(|(k, v)| (k.clone(), plain(v))));
                return Value::Object(out);
            }
            let kept = map.iter().filter(|(k, v)| !(DROPPED.contains(&k.as_str()) && v.is_string()));
            Value::Object(kept.map(|(k, v)| (k.clone(), plain(v))).collect())
        }
        Value::Array(list) => list.iter().map(plain).collect(),
        other => other.clone(),
    }
}
