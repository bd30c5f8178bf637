//! ConfigMaps and Secrets.
//! Must not know who reads them.

use data_encoding::BASE64;
use serde_json::{Value, json};

use super::super::cause::Cause;
use super::{default, part, text};

/// Text of `stringData` goes into `data`.
pub(super) fn fill_secret(secret: &mut Value) {
    let plain = secret.as_object_mut().and_then(|map| map.remove("stringData"));
    if let Some(Value::Object(plain)) = plain
        && !plain.is_empty()
    {
        let data = part(secret, "data");
        for (key, value) in plain {
            data[key] = BASE64.encode(text(&value).as_bytes()).into();
        }
    }
    default(secret, "type", json!("Opaque"));
}

pub(super) fn check_config_map(map: &Value, old: Option<&Value>) -> Vec<Cause> {
    let mut out = Vec::new();
    keys(map, "data", &mut out);
    keys(map, "binaryData", &mut out);
    for key in map["data"].as_object().into_iter().flatten().map(|(key, _)| key) {
        if map["binaryData"].get(key).is_some() {
            out.push(Cause::invalid(format!("data[{key}]"), &json!(key), "duplicate of key present in binaryData"));
        }
    }
    frozen(map, old, &["data", "binaryData"], &mut out);
    out
}

pub(super) fn check_secret(secret: &Value, old: Option<&Value>) -> Vec<Cause> {
    let mut out = Vec::new();
    keys(secret, "data", &mut out);
    super::immutable("type", secret, old, &mut out);
    frozen(secret, old, &["data"], &mut out);
    match text(&secret["type"]) {
        "kubernetes.io/service-account-token" => {
            const NAME: &str = "kubernetes.io/service-account.name";
            if text(&secret["metadata"]["annotations"][NAME]).is_empty() {
                out.push(Cause::required(format!("metadata.annotations[{NAME}]"), ""));
            }
        }
        "kubernetes.io/tls" => {
            for key in ["tls.crt", "tls.key"] {
                if secret["data"].get(key).is_none() {
                    out.push(Cause::required(format!("data[{key}]"), ""));
                }
            }
        }
        _ => {}
    }
    out
}

fn keys(object: &Value, field: &str, out: &mut Vec<Cause>) {
    for key in object[field].as_object().into_iter().flatten().map(|(key, _)| key) {
        let fits = !key.is_empty() && key.chars().all(|c| c.is_ascii_alphanumeric() || "-._".contains(c));
        if !fits {
            let detail = "a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. \
                          'key.name',  or 'KEY_NAME',  or 'key-name', regex used for validation is \
                          '[-._a-zA-Z0-9]+')";
            out.push(Cause::invalid(format!("{field}[{key}]"), &json!(key), detail));
        }
    }
}

/// What says of itself that it is immutable stays as it is.
fn frozen(object: &Value, old: Option<&Value>, fields: &[&str], out: &mut Vec<Cause>) {
    let Some(old) = old.filter(|o| o["immutable"] == true) else { return };
    let detail = "field is immutable when `immutable` is set";
    if object["immutable"] != true {
        out.push(Cause::forbidden("immutable", detail));
    }
    for field in fields {
        if object.get(field) != old.get(field) {
            out.push(Cause::forbidden(*field, detail));
        }
    }
}
