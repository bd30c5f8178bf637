//! What a real server's decoder makes of an object of a built-in kind: fields that the Go type does not have go, values of
//! the wrong type are refused in Go's words. Must not know defaults, nor what makes an object invalid.

use std::fmt::Write as _;

use data_encoding::{BASE64, DecodeKind};
use serde_json::Value;

use super::body::go_type;
use super::kinds::{Scalar, Shape, Struct, kinds};
use super::registry::ResourceType;

/// Structs that stand in others without a name of their own: the outer one, the inner one, and the fields that are not
/// the inner one's.
const EMBEDDED: &[(&str, &str, &[&str])] = &[
    (
        "Probe",
        "ProbeHandler",
        &[
            "initialDelaySeconds",
            "timeoutSeconds",
            "periodSeconds",
            "successThreshold",
            "failureThreshold",
            "terminationGracePeriodSeconds",
        ],
    ),
    ("Volume", "VolumeSource", &["name"]),
];

/// Takes unknown fields away; returns their paths. The error is that of Go's decoder.
pub(super) fn known(ty: &ResourceType, value: &mut Value) -> Result<Vec<String>, String> {
    let Some(number) = kinds().kind(&ty.group, &ty.version, &ty.kind) else { return Ok(Vec::new()) };
    let mut walk = Walk { path: String::new(), go_path: String::new(), unknown: Vec::new() };
    walk.fields(kinds().of(number), value)?;
    Ok(walk.unknown)
}

struct Walk {
    /// As warnings name it: `spec.containers[0].image`.
    path: String,
    /// As Go's decoder names it: `spec.containers.image`.
    go_path: String,
    unknown: Vec<String>,
}

impl Walk {
    fn fields(&mut self, of: &Struct, value: &mut Value) -> Result<(), String> {
        let Some(map) = value.as_object_mut() else { return Ok(()) };
        let (path, go_path) = (self.path.len(), self.go_path.len());
        let mut gone = Vec::new();
        for (name, child) in map.iter_mut() {
            if path > 0 {
                self.path.push('.');
            }
            self.path.push_str(name);
            let Some(field) = of.fields.get(name) else {
                self.unknown.push(self.path.clone());
                self.path.truncate(path);
                gone.push(name.clone());
                continue;
            };
            if go_path > 0 {
                self.go_path.push('.');
            }
            if let Some((_, inner, own)) = EMBEDDED.iter().find(|(outer, ..)| *outer == of.name)
                && !own.contains(&name.as_str())
            {
                self.go_path.push_str(inner);
                self.go_path.push('.');
            }
            self.go_path.push_str(name);
            let empty = match child {
                Value::Null => empty_when_null(&field.shape),
                Value::Array(list) => {
                    // An empty list of managers means that nobody is to be one any more.
                    let list_kept =
                        field.required || name == "managedFields" || !matches!(field.shape, Shape::List { .. });
                    list.is_empty() && !list_kept
                }
                Value::Object(map) => map.is_empty() && !field.required && matches!(field.shape, Shape::Map { .. }),
                _ => false,
            };
            if empty {
                gone.push(name.clone());
            } else {
                self.value(&field.shape, child, &of.name)?;
            }
            self.path.truncate(path);
            self.go_path.truncate(go_path);
        }
        for name in gone {
            map.remove(&name);
        }
        Ok(())
    }

    fn value(&mut self, shape: &Shape, value: &mut Value, within: &str) -> Result<(), String> {
        if value.is_null() {
            return Ok(());
        }
        let found = go_type(value);
        let wrong = |walk: &Self, wanted: &str| {
            Err(format!(
                "json: cannot unmarshal {found} into Go struct field {within}.{} of type {wanted}",
                walk.go_path
            ))
        };
        match shape {
            Shape::Any => Ok(()),
            Shape::Struct(number) if value.is_object() => self.fields(kinds().of(*number), value),
            Shape::List { items, .. } => {
                let Some(list) = value.as_array_mut() else { return wrong(self, &go_name(shape)) };
                let length = self.path.len();
                for (i, child) in list.iter_mut().enumerate() {
                    let _ = write!(self.path, "[{i}]");
                    self.value(items, child, within)?;
                    self.path.truncate(length);
                }
                Ok(())
            }
            Shape::Map { values, .. } => {
                let Some(map) = value.as_object_mut() else { return wrong(self, &go_name(shape)) };
                let length = self.path.len();
                for (name, child) in map.iter_mut() {
                    self.path.push('.');
                    self.path.push_str(name);
                    self.value(values, child, within)?;
                    self.path.truncate(length);
                }
                Ok(())
            }
            Shape::Struct(_) => wrong(self, &go_name(shape)),
            Shape::Scalar(scalar) => match (scalar, &value) {
                (Scalar::Quantity | Scalar::IntOrText | Scalar::Duration, _) => Ok(()),
                (Scalar::Time | Scalar::MicroTime, Value::String(text)) => time(*scalar, text),
                (Scalar::Bytes, Value::String(text)) => base64(text),
                (Scalar::Text, Value::String(_))
                | (Scalar::Bool, Value::Bool(_))
                | (Scalar::Float, Value::Number(_)) => Ok(()),
                (Scalar::Int32 | Scalar::Int64, Value::Number(number)) => {
                    let limit = if *scalar == Scalar::Int32 { i64::from(i32::MAX) } else { i64::MAX };
                    match number.as_i64() {
                        Some(n) if (-limit - 1..=limit).contains(&n) => Ok(()),
                        _ => Err(format!(
                            "json: cannot unmarshal number {number} into Go struct field {within}.{} of type {}",
                            self.go_path,
                            go_name(shape)
                        )),
                    }
                }
                _ => wrong(self, &go_name(shape)),
            },
        }
    }
}

/// Whether null is the same as no field at all.
fn empty_when_null(shape: &Shape) -> bool {
    !matches!(shape, Shape::Scalar(Scalar::Time | Scalar::MicroTime))
}

fn go_name(shape: &Shape) -> String {
    match shape {
        Shape::Scalar(scalar) => match scalar {
            Scalar::Text => "string",
            Scalar::Int32 => "int32",
            Scalar::Int64 => "int64",
            Scalar::Float => "float64",
            Scalar::Bool => "bool",
            Scalar::Bytes => "[]uint8",
            Scalar::Time => "v1.Time",
            Scalar::MicroTime => "v1.MicroTime",
            Scalar::Quantity => "resource.Quantity",
            Scalar::IntOrText => "intstr.IntOrString",
            Scalar::Duration => "v1.Duration",
        }
        .to_owned(),
        Shape::List { items, .. } => format!("[]{}", go_name(items)),
        Shape::Map { values, .. } => format!("map[string]{}", go_name(values)),
        Shape::Struct(number) => format!("v1.{}", kinds().of(*number).name),
        Shape::Any => "interface {}".to_owned(),
    }
}

/// Bytes are base64.
fn base64(text: &str) -> Result<(), String> {
    let text: String = text.chars().filter(|c| !matches!(c, '\r' | '\n')).collect();
    BASE64.decode(text.as_bytes()).map(drop).map_err(|e| {
        let at = match e.kind {
            DecodeKind::Length => text.len() / 4 * 4,
            _ => e.position,
        };
        // A byte that is no base64 at all is named first.
        let stray = text.bytes().position(|b| !(b.is_ascii_alphanumeric() || b"+/=".contains(&b)));
        format!("illegal base64 data at input byte {}", stray.unwrap_or(at))
    })
}

/// Layout of `MicroTime`.
const MICRO: &str = "2006-01-02T15:04:05.000000Z07:00";

/// Times are what Go's layout says.
fn time(scalar: Scalar, text: &str) -> Result<(), String> {
    if text.is_empty() {
        return Ok(());
    }
    if text.parse::<jiff::Timestamp>().is_ok() {
        // Six digits after the second, no more and no less.
        let after = text.get(19..).unwrap_or_default();
        let digits = after.strip_prefix('.').map_or(0, |d| d.bytes().take_while(u8::is_ascii_digit).count());
        return match scalar {
            Scalar::MicroTime if digits != 6 => {
                Err(format!("parsing time {text:?} as {MICRO:?}: cannot parse {after:?} as \".000000\""))
            }
            _ => Ok(()),
        };
    }
    let layout = if scalar == Scalar::MicroTime { MICRO } else { "2006-01-02T15:04:05Z07:00" };
    Err(format!("parsing time {text:?} as {layout:?}: cannot parse {text:?} as \"2006\""))
}
