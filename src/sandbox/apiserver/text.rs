//! JSON text as the real server writes it: kind, apiVersion and metadata of built-in kinds come first.
//! Must not know what is stored or who asks.

use serde::ser::{Serialize, SerializeMap, Serializer};
use serde_json::{Map, Value};

/// Fields that come first in objects of built-in kinds, in this order; the others follow by name.
const TOP: &[&str] = &["kind", "apiVersion", "metadata"];
/// Order within `metadata` of built-in kinds.
const METADATA: &[&str] = &[
    "name",
    "generateName",
    "namespace",
    "selfLink",
    "uid",
    "resourceVersion",
    "continue",
    "remainingItemCount",
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

/// A map with some fields first and some left out.
struct Ordered<'a> {
    map: &'a Map<String, Value>,
    first: &'a [&'a str],
    without: &'a [&'a str],
}

impl Serialize for Ordered<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut out = serializer.serialize_map(None)?;
        let mut write = |key: &str, value: &Value| match (key, value) {
            ("metadata", Value::Object(map)) => {
                out.serialize_entry(key, &Ordered { map, first: METADATA, without: &[] })
            }
            _ => out.serialize_entry(key, value),
        };
        for key in self.first {
            if let Some(value) = self.map.get(*key).filter(|_| !self.without.contains(key)) {
                write(key, value)?;
            }
        }
        for (key, value) in self.map {
            if !self.first.contains(&key.as_str()) && !self.without.contains(&key.as_str()) {
                write(key, value)?;
            }
        }
        out.end()
    }
}

fn written(value: &impl Serialize) -> Vec<u8> {
    let text = serde_json::to_vec(value).expect("a JSON value with text keys can always be written");
    if text.iter().any(|b| matches!(b, b'<' | b'>' | b'&')) { escaped(&text) } else { text }
}

/// Go's encoder escapes what would have a meaning in HTML. In JSON such characters stand within texts only.
fn escaped(text: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len() + 16);
    for byte in text {
        match byte {
            b'<' => out.extend(b"\\u003c"),
            b'>' => out.extend(b"\\u003e"),
            b'&' => out.extend(b"\\u0026"),
            other => out.push(*other),
        }
    }
    out
}

/// An object of a built-in kind, or a `Status`.
pub(super) fn ordered(value: &Value) -> Vec<u8> {
    match value {
        Value::Object(map) if map.get("kind").and_then(Value::as_str) == Some("Status") => {
            let first = &["kind", "apiVersion", "metadata", "status", "message", "reason", "details", "code"];
            written(&Ordered { map, first, without: &[] })
        }
        Value::Object(map) => written(&Ordered { map, first: TOP, without: &[] }),
        other => written(other),
    }
}

/// An object of a built-in kind as an item of a list: without kind and apiVersion.
pub(super) fn item(value: &Value) -> Vec<u8> {
    match value {
        Value::Object(map) => written(&Ordered { map, first: TOP, without: &["kind", "apiVersion"] }),
        other => written(other),
    }
}

/// A custom resource: fields by name.
pub(super) fn sorted(value: &Value) -> Vec<u8> {
    written(value)
}

/// Compact JSON with line breaks and two spaces, in the order in which it stands.
pub(super) fn pretty(compact: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(compact.len() * 2);
    let mut depth = 0usize;
    let mut in_text = false;
    let mut at = 0;
    let line = |out: &mut Vec<u8>, depth: usize| {
        out.push(b'\n');
        out.resize(out.len() + 2 * depth, b' ');
    };
    while let Some(byte) = compact.get(at).copied() {
        at += 1;
        if in_text {
            out.push(byte);
            if byte == b'\\' {
                out.extend(compact.get(at));
                at += 1;
            }
            in_text = byte != b'"';
            continue;
        }
        match byte {
            b'{' | b'[' if matches!(compact.get(at), Some(b'}' | b']')) => {
                out.extend([byte, compact[at]]);
                at += 1;
            }
            b'{' | b'[' => {
                depth += 1;
                out.push(byte);
                line(&mut out, depth);
            }
            b'}' | b']' => {
                depth = depth.saturating_sub(1);
                line(&mut out, depth);
                out.push(byte);
            }
            b',' => {
                out.push(byte);
                line(&mut out, depth);
            }
            b':' => out.extend(b": "),
            b'\n' => {}
            _ => {
                in_text = byte == b'"';
                out.push(byte);
            }
        }
    }
    out
}
