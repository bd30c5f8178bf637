//! From the schemas that Rust types give to those that a Kubernetes API server takes, and JSON as YAML.
//! Must not know kinds.

use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde_json::{Map, Value};

use super::builtin;
use crate::api::ray::BUILTIN;

/// What a type says of a field that may be null.
const NULLABLE: &str = "x-nullable";

/// Structural schema of a type: everything in place, no references, no `null`.
pub(super) fn of<Type: JsonSchema>() -> Value {
    let mut settings = SchemaSettings::openapi3();
    settings.inline_subschemas = true;
    settings.meta_schema = None;
    let schema = settings.into_generator().into_root_schema_for::<Type>();
    let mut value = schema.to_value();
    rewrite(&mut value);
    value
}

/// Rewrites one schema and all below it.
fn rewrite(schema: &mut Value) {
    let Value::Object(map) = schema else { return };
    lift_single_choice(map);
    if let Some(of) = map.get(BUILTIN) {
        let told = map.get("description").cloned();
        *schema = builtin::schema(of);
        if let (Some(told), Value::Object(map)) = (told, schema) {
            map.insert("description".into(), told);
        }
        return;
    }
    for noise in ["title", "$schema", "$defs", "components", "examples"] {
        map.remove(noise);
    }
    // A field that may be left out is not one that may be null, unless the type itself says so.
    map.remove("nullable");
    if map.remove(NULLABLE).is_some() {
        map.insert("nullable".into(), true.into());
    }
    choices_of_a_unit_enum(map);
    let kept = map.get("x-kubernetes-preserve-unknown-fields") == Some(&Value::Bool(true));
    if map.get("additionalProperties") == Some(&Value::Bool(true)) || kept && map.contains_key("additionalProperties") {
        map.remove("additionalProperties");
        map.insert("x-kubernetes-preserve-unknown-fields".into(), true.into());
    }
    if map.get("additionalProperties") == Some(&Value::Bool(false)) {
        map.remove("additionalProperties");
    }
    formats(map);
    plain_default(map);
    if let Some(Value::Object(properties)) = map.get_mut("properties") {
        properties.values_mut().for_each(rewrite);
    }
    for inner in ["items", "additionalProperties"] {
        if let Some(sub) = map.get_mut(inner) {
            rewrite(sub);
        }
    }
}

/// `Option<T>` of an inlined type comes as a choice of one, or of the type and null: the type is taken.
fn lift_single_choice(map: &mut Map<String, Value>) {
    if map.contains_key("x-kubernetes-int-or-string") {
        return;
    }
    for key in ["anyOf", "allOf", "oneOf"] {
        let Some(Value::Array(options)) = map.get(key) else { continue };
        let real: Vec<&Value> = options.iter().filter(|o| !is_null(o)).collect();
        if let [Value::Object(one)] = real.as_slice() {
            let one = one.clone();
            map.remove(key);
            for (name, value) in one {
                map.entry(name).or_insert(value);
            }
        }
    }
    if let Some(Value::Array(types)) = map.get("type") {
        let real: Vec<Value> = types.iter().filter(|t| *t != "null").cloned().collect();
        if let [one] = real.as_slice() {
            let one = one.clone();
            map.insert("type".into(), one);
        }
    }
}

fn is_null(schema: &Value) -> bool {
    schema["type"] == "null" || schema["enum"] == serde_json::json!([null])
}

/// An enum without fields whose variants carry docstrings comes as a choice of constants.
fn choices_of_a_unit_enum(map: &mut Map<String, Value>) {
    let Some(Value::Array(options)) = map.get("oneOf") else { return };
    let mut names = Vec::new();
    for option in options {
        match (&option["const"], &option["enum"]) {
            (Value::String(name), _) => names.push(Value::from(name.clone())),
            (_, Value::Array(many)) => names.extend(many.iter().cloned()),
            _ => return,
        }
    }
    map.remove("oneOf");
    map.insert("type".into(), "string".into());
    map.insert("enum".into(), Value::Array(names));
}

/// Kubernetes knows int32, int64, float, double and date-time; unsigned numbers become wide ones with a minimum.
fn formats(map: &mut Map<String, Value>) {
    let Some(format) = map.get("format").and_then(Value::as_str) else { return };
    match format {
        "uint32" | "uint64" => {
            map.insert("format".into(), "int64".into());
            map.insert("minimum".into(), 0.into());
        }
        "float" | "double" => {
            map.remove("format");
        }
        _ => {}
    }
    // A lower bound comes as a float; whole numbers read better.
    if let Some(minimum) = map.get("minimum").and_then(Value::as_f64)
        && minimum.fract() == 0.0
    {
        map.insert("minimum".into(), Value::from(minimum as i64));
    }
}

/// Defaults that Rust's `Default` gives are not what an API server should write into objects; those that a field says
/// itself (`extend("default")`) are whole numbers or words and stay.
fn plain_default(map: &mut Map<String, Value>) {
    let wanted = match map.get("default") {
        Some(Value::Number(_)) => true,
        Some(Value::String(text)) => matches!(text.as_str(), "K8sJobMode" | "DenyAll"),
        _ => false,
    };
    if !wanted {
        map.remove("default");
    }
}

/// Removes every default of a schema.
pub(super) fn without_defaults(schema: &mut Value) {
    let Value::Object(map) = schema else { return };
    map.remove("default");
    if let Some(Value::Object(properties)) = map.get_mut("properties") {
        properties.values_mut().for_each(without_defaults);
    }
    for inner in ["items", "additionalProperties"] {
        if let Some(sub) = map.get_mut(inner) {
            without_defaults(sub);
        }
    }
}

/// JSON as YAML: block style, every text in double quotes as JSON writes it, so nothing depends on YAML's guesses.
pub(super) fn yaml(value: &Value) -> String {
    let mut out = String::from("# Generated from the types in src/api by `rayfleet crds`. Do not edit.\n");
    block(value, 0, &mut out);
    out
}

fn block(value: &Value, indent: usize, out: &mut String) {
    let pad = "  ".repeat(indent);
    match value {
        Value::Object(map) => {
            for (key, value) in map {
                out.push_str(&pad);
                out.push_str(&plain(key));
                out.push(':');
                after(value, indent + 1, out);
            }
        }
        Value::Array(list) => {
            for value in list {
                out.push_str(&pad);
                out.push('-');
                match value {
                    Value::Object(map) if !map.is_empty() => {
                        let mut inner = String::new();
                        block(value, indent + 1, &mut inner);
                        out.push(' ');
                        out.push_str(inner.trim_start());
                    }
                    _ => after(value, indent + 1, out),
                }
            }
        }
        scalar => {
            out.push_str(&scalar.to_string());
            out.push('\n');
        }
    }
}

/// What follows `key:` or `-`.
fn after(value: &Value, indent: usize, out: &mut String) {
    let empty = value.as_object().is_some_and(Map::is_empty) || value.as_array().is_some_and(Vec::is_empty);
    match value {
        Value::Object(_) | Value::Array(_) if !empty => {
            out.push('\n');
            block(value, indent, out);
        }
        Value::String(text) => {
            out.push(' ');
            out.push_str(&plain(text));
            out.push('\n');
        }
        other => {
            out.push(' ');
            out.push_str(&other.to_string());
            out.push('\n');
        }
    }
}

/// A word that YAML cannot take for anything else stands bare, everything else in quotes.
fn plain(text: &str) -> String {
    let first = text.chars().next().is_some_and(|c| c.is_ascii_alphabetic());
    let rest = text.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '/'));
    let word =
        matches!(text.to_lowercase().as_str(), "true" | "false" | "yes" | "no" | "on" | "off" | "null" | "y" | "n");
    if first && rest && !word { text.to_owned() } else { Value::from(text).to_string() }
}
