//! Bodies of requests: JSON (with its duplicate fields noted) and YAML into values, and what a Go server says of bad ones.
//! Must not know stored objects.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

use super::registry::ResourceType;
use super::status_reply::{Refused, bad_request, not_built, unsupported_media_type};
use crate::api::wire::Request;

/// A parsed body.
pub(super) struct Body {
    pub value: Value,
    /// Paths of fields that stood there twice; the last one counts.
    pub duplicates: Vec<String>,
}

/// Media type without parameters.
pub(super) fn media_type(content_type: &str) -> &str {
    content_type.split(';').next().unwrap_or_default().trim()
}

/// The body of a create or replace.
pub(super) fn object(request: &Request, ty: &ResourceType) -> Result<Body, Refused> {
    let body = match media_type(&request.content_type) {
        "" | "application/json" => json(&request.body).map_err(|e| unrecognized(ty, &request.body, &e))?,
        "application/yaml" => {
            yaml(&request.body).map_err(|e| bad_request(format!("error converting YAML to JSON: {e}")))?
        }
        "application/vnd.kubernetes.protobuf" => {
            return Err(not_built("the encoding application/vnd.kubernetes.protobuf"));
        }
        _ => {
            return Err(unsupported_media_type(
                "application/json, application/yaml, application/vnd.kubernetes.protobuf",
            ));
        }
    };
    match &body.value {
        Value::Object(_) => Ok(body),
        Value::Null if ty.builtin => Ok(Body { value: Value::Object(Map::new()), duplicates: Vec::new() }),
        Value::Null => Err(kind_missing(ty, &request.body)),
        other => {
            let what = go_type(other);
            let e = format!(
                "json: cannot unmarshal {what} into Go value of type struct {{ APIVersion string \
                 \"json:\\\"apiVersion,omitempty\\\"\"; Kind string \"json:\\\"kind,omitempty\\\"\" }}"
            );
            Err(unrecognized(ty, &request.body, &e))
        }
    }
}

fn unrecognized(ty: &ResourceType, body: &[u8], error: &str) -> Refused {
    bad_request(format!(
        "the object provided is unrecognized (must be of type {}): couldn't get version/kind; json parse error: {error} ({})",
        ty.kind,
        summary(body)
    ))
}

/// Custom resources must say what they are.
pub(super) fn kind_missing(ty: &ResourceType, body: &[u8]) -> Refused {
    bad_request(format!(
        "the object provided is unrecognized (must be of type {}): Object 'Kind' is missing in '{}' ({})",
        ty.kind,
        String::from_utf8_lossy(body),
        summary(body)
    ))
}

/// The beginning of a body: as text if it may be JSON, else in hexadecimal.
fn summary(body: &[u8]) -> String {
    if body.is_empty() {
        return "<empty>".into();
    }
    let head = &body[..body.len().min(30)];
    let text = if body[0] == b'{' {
        String::from_utf8_lossy(head).into_owned()
    } else {
        head.iter().fold(String::new(), |text, byte| text + &format!("{byte:02x}"))
    };
    if body.len() > 30 { text + " ..." } else { text }
}

/// What Go's JSON decoder calls a value.
pub(super) fn go_type(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

/// JSON; the error is the text of Go's decoder.
pub(super) fn json(text: &[u8]) -> Result<Body, String> {
    let mut seen = Seen { path: String::new(), duplicates: Vec::new() };
    let mut source = serde_json::Deserializer::from_slice(text);
    let value = Part(&mut seen).deserialize(&mut source).and_then(|v| source.end().map(|()| v));
    match value {
        Ok(value) => Ok(Body { value, duplicates: seen.duplicates }),
        Err(_) => Err(go_error(text)),
    }
}

/// YAML as the API machinery reads it.
pub(super) fn yaml(text: &[u8]) -> Result<Body, String> {
    let text = std::str::from_utf8(text).map_err(|e| e.to_string())?;
    let value = crate::api::yaml::document(text)?;
    Ok(Body { value, duplicates: Vec::new() })
}

struct Seen {
    path: String,
    duplicates: Vec<String>,
}

struct Part<'a>(&'a mut Seen);

impl<'de> DeserializeSeed<'de> for Part<'_> {
    type Value = Value;
    fn deserialize<D: Deserializer<'de>>(self, source: D) -> Result<Value, D::Error> {
        source.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Part<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any JSON value")
    }
    fn visit_bool<E>(self, v: bool) -> Result<Value, E> {
        Ok(Value::Bool(v))
    }
    fn visit_i64<E>(self, v: i64) -> Result<Value, E> {
        Ok(Value::Number(v.into()))
    }
    fn visit_u64<E>(self, v: u64) -> Result<Value, E> {
        // Beyond 64 bits with sign, Go's server keeps numbers as floats.
        Ok(i64::try_from(v).map_or_else(|_| float(v as f64), |v| Value::Number(v.into())))
    }
    fn visit_f64<E>(self, v: f64) -> Result<Value, E> {
        Ok(float(v))
    }
    fn visit_str<E>(self, v: &str) -> Result<Value, E> {
        Ok(Value::String(v.to_owned()))
    }
    fn visit_string<E>(self, v: String) -> Result<Value, E> {
        Ok(Value::String(v))
    }
    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut source: A) -> Result<Value, A::Error> {
        let mut out = Vec::new();
        let length = self.0.path.len();
        loop {
            self.0.path.push('[');
            self.0.path.push_str(&out.len().to_string());
            self.0.path.push(']');
            let next = source.next_element_seed(Part(self.0))?;
            self.0.path.truncate(length);
            match next {
                Some(value) => out.push(value),
                None => return Ok(Value::Array(out)),
            }
        }
    }

    fn visit_map<A: MapAccess<'de>>(self, mut source: A) -> Result<Value, A::Error> {
        let mut out = Map::new();
        let length = self.0.path.len();
        while let Some(key) = source.next_key::<String>()? {
            if length > 0 {
                self.0.path.push('.');
            }
            self.0.path.push_str(&key);
            let value = source.next_value_seed(Part(self.0))?;
            if out.insert(key, value).is_some() {
                self.0.duplicates.push(self.0.path.clone());
            }
            self.0.path.truncate(length);
        }
        Ok(Value::Object(out))
    }
}

/// A float; a whole one that fits becomes an integer, as Go's server does.
fn float(v: f64) -> Value {
    if v.fract() == 0.0 && v.abs() < 9.0e15 {
        return Value::Number((v as i64).into());
    }
    Number::from_f64(v).map_or(Value::Null, Value::Number)
}

/// What Go's decoder says of text that is not JSON.
pub(super) fn go_error(text: &[u8]) -> String {
    let mut scan = Scan { text, at: 0, open: 0 };
    match scan.value().and_then(|()| scan.space_then_end()) {
        Err(e) => e,
        Ok(()) => "invalid value".into(),
    }
}

/// Levels of nesting that are looked at: serde_json has given up before. Go's decoder does so at 10 000.
const LEVELS_MAX: usize = 200;

struct Scan<'a> {
    text: &'a [u8],
    at: usize,
    open: usize,
}

impl Scan<'_> {
    fn peek(&mut self) -> Option<u8> {
        while self.text.get(self.at).is_some_and(u8::is_ascii_whitespace) {
            self.at += 1;
        }
        self.text.get(self.at).copied()
    }

    fn fail(byte: Option<u8>, place: &str) -> String {
        match byte {
            None => "unexpected end of JSON input".into(),
            Some(b'\'') => format!("invalid character '\\'' {place}"),
            // As Go quotes what cannot be printed.
            Some(byte @ (0x80..=0xa0 | 0xad)) => format!("invalid character '\\u{byte:04x}' {place}"),
            Some(byte) => format!("invalid character '{}' {place}", byte as char),
        }
    }

    fn space_then_end(&mut self) -> Result<(), String> {
        match self.peek() {
            None => Ok(()),
            byte => Err(Self::fail(byte, "after top-level value")),
        }
    }

    fn value(&mut self) -> Result<(), String> {
        if self.open > LEVELS_MAX {
            let byte = self.peek();
            return Err(Self::fail(byte, "exceeded max depth"));
        }
        self.open += 1;
        let inner = self.one_value();
        self.open -= 1;
        inner
    }

    fn one_value(&mut self) -> Result<(), String> {
        match self.peek() {
            Some(b'{') => self.object(),
            Some(b'[') => self.array(),
            Some(b'"') => self.string(),
            Some(b'-' | b'0'..=b'9') => {
                while self.text.get(self.at).is_some_and(|b| b"+-.eE0123456789".contains(b)) {
                    self.at += 1;
                }
                Ok(())
            }
            Some(b't') => self.word("true"),
            Some(b'f') => self.word("false"),
            Some(b'n') => self.word("null"),
            byte => Err(Self::fail(byte, "looking for beginning of value")),
        }
    }

    fn word(&mut self, word: &str) -> Result<(), String> {
        for (i, expected) in word.bytes().enumerate() {
            let byte = self.text.get(self.at).copied();
            if byte != Some(expected) {
                let place = format!("in literal {word} (expecting '{}')", expected as char);
                debug_assert!(i > 0, "the first byte has chosen the word");
                return Err(Self::fail(byte, &place));
            }
            self.at += 1;
        }
        Ok(())
    }

    fn string(&mut self) -> Result<(), String> {
        self.at += 1;
        loop {
            match self.text.get(self.at).copied() {
                Some(b'"') => {
                    self.at += 1;
                    return Ok(());
                }
                Some(b'\\') => self.at += 2,
                Some(byte) if byte < 0x20 => return Err(Self::fail(Some(byte), "in string literal")),
                Some(_) => self.at += 1,
                None => return Err(Self::fail(None, "")),
            }
        }
    }

    fn object(&mut self) -> Result<(), String> {
        self.at += 1;
        if self.peek() == Some(b'}') {
            self.at += 1;
            return Ok(());
        }
        loop {
            match self.peek() {
                Some(b'"') => self.string()?,
                byte => return Err(Self::fail(byte, "looking for beginning of object key string")),
            }
            match self.peek() {
                Some(b':') => self.at += 1,
                byte => return Err(Self::fail(byte, "after object key")),
            }
            self.value()?;
            match self.peek() {
                Some(b',') => self.at += 1,
                Some(b'}') => {
                    self.at += 1;
                    return Ok(());
                }
                byte => return Err(Self::fail(byte, "after object key:value pair")),
            }
        }
    }

    fn array(&mut self) -> Result<(), String> {
        self.at += 1;
        if self.peek() == Some(b']') {
            self.at += 1;
            return Ok(());
        }
        loop {
            self.value()?;
            match self.peek() {
                Some(b',') => self.at += 1,
                Some(b']') => {
                    self.at += 1;
                    return Ok(());
                }
                byte => return Err(Self::fail(byte, "after array element")),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn duplicate_fields_are_noted_and_the_last_counts() {
        let body = json(br#"{"spec":{"size":1,"size":2,"l":[{"a":1,"a":1}]}}"#).unwrap();
        assert_eq!(body.value["spec"]["size"], 2);
        assert_eq!(body.duplicates, ["spec.size", "spec.l[0].a"]);
    }

    #[test]
    fn bad_json_is_named_as_go_names_it() {
        for (text, error) in [
            ("{\"apiVersion\":", "unexpected end of JSON input"),
            ("", "unexpected end of JSON input"),
            ("{x", "invalid character 'x' looking for beginning of object key string"),
            ("apiVersion: v1", "invalid character 'a' looking for beginning of value"),
            ("[{", "unexpected end of JSON input"),
        ] {
            assert_eq!(json(text.as_bytes()).err().unwrap(), error);
        }
    }

    #[test]
    fn whole_floats_become_integers() {
        let body = json(b"[1.0, 1e2, 9007199254740993, 1.5, -0.0]").unwrap();
        assert_eq!(body.value.to_string(), "[1,100,9007199254740993,1.5,0]");
    }
}
