//! What a real server's decoder makes of an object of a built-in kind: fields that the Go type does not have go, values of
//! the wrong type are refused in Go's words. Must not know defaults, nor what makes an object invalid.

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
            if child.is_null() && empty_when_null(&field.shape) {
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
            Err(format!("json: cannot unmarshal {found} into Go struct field {within}.{} of type {wanted}", walk.go_path))
        };
        match shape {
            Shape::Any => Ok(()),
            Shape::Struct(number) if value.is_object() => self.fields(kinds().of(*number), value),
            Shape::List { items, .. } => {
                let Some(list) = value.as_array_mut() else { return wrong(self, &go_name(shape)) };
                let length = self.path.len();
                for (i, child) in list.iter_mut().enumerate() {
                    self.path.push_str(&format!("[{i}]"));
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
                (Scalar::Text | Scalar::Bytes, Value::String(_))
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

/// Times are what Go's layout says.
fn time(scalar: Scalar, text: &str) -> Result<(), String> {
    if text.is_empty() || text.parse::<jiff::Timestamp>().is_ok() {
        return Ok(());
    }
    let layout = if scalar == Scalar::MicroTime { "2006-01-02T15:04:05.000000Z07:00" } else { "2006-01-02T15:04:05Z07:00" };
    Err(format!("parsing time {text:?} as {layout:?}: cannot parse {text:?} as \"2006\""))
}
