//! One look at the types of built-in kinds and of custom resources: what a value's parts are and how they are shared.
//! Must not know values' owners.

use serde_json::{Value, json};

use super::super::kinds::{Merging, Scalar, Shape, kinds};
use super::super::registry::ResourceType;
use super::super::schema::Schema;

/// The type of a value.
#[derive(Clone, Copy, Debug)]
pub(in super::super) enum View<'a> {
    Shape(&'a Shape),
    Struct(usize),
    Schema(&'a Schema),
    /// A custom resource as a whole: its metadata is everybody's.
    Resource(&'a Schema),
    /// Unknown: maps are shared, lists are not.
    Any,
}

/// How the elements of a list are told apart.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Sharing {
    /// The list has one owner.
    Atomic,
    Set,
    Keys(Vec<(String, Option<Value>)>),
}

impl<'a> View<'a> {
    pub(in super::super) fn of(ty: &'a ResourceType) -> Self {
        match &ty.schema {
            Some(schema) => Self::Resource(schema),
            None => kinds().kind(&ty.group, &ty.version, &ty.kind).map_or(Self::Any, Self::Struct),
        }
    }

    /// The type of a field, and whether it is a field of its own, not a key of a map.
    pub(super) fn field(self, name: &str) -> (View<'a>, bool) {
        match self {
            Self::Struct(number) => match kinds().of(number).fields.get(name) {
                Some(field) => (View::Shape(&field.shape).resolved(), true),
                None => (View::Any, false),
            },
            Self::Shape(Shape::Struct(number)) => Self::Struct(*number).field(name),
            Self::Shape(Shape::Map { values, .. }) => (View::Shape(values).resolved(), false),
            Self::Resource(_) if name == "metadata" => (View::Struct(kinds().metadata()), true),
            Self::Resource(_) if matches!(name, "apiVersion" | "kind") => (View::Any, true),
            Self::Schema(schema) if schema.embedded && name == "metadata" => (View::Struct(kinds().metadata()), true),
            Self::Schema(schema) | Self::Resource(schema) => match schema.properties.get(name) {
                Some(field) => (View::Schema(field), true),
                None => (schema.additional.as_deref().map_or(View::Any, View::Schema), false),
            },
            _ => (View::Any, false),
        }
    }

    /// Whether a field of this name may stand there.
    pub(super) fn knows(self, name: &str) -> bool {
        match self {
            Self::Struct(number) => kinds().of(number).fields.contains_key(name),
            Self::Resource(schema) => {
                matches!(name, "apiVersion" | "kind" | "metadata")
                    || schema.properties.contains_key(name)
                    || schema.additional.is_some()
                    || schema.preserve_unknown
            }
            Self::Schema(schema) => {
                schema.properties.contains_key(name)
                    || schema.additional.is_some()
                    || schema.preserve_unknown
                    || schema.embedded
            }
            _ => true,
        }
    }

    /// What the type wants instead of this value, where it does not fit.
    pub(super) fn mismatch(self, value: &Value) -> Option<&'static str> {
        let wanted = match self {
            Self::Struct(_) | Self::Resource(_) | Self::Shape(Shape::Map { .. } | Shape::Struct(_)) => "map",
            Self::Shape(Shape::List { .. }) => "list",
            Self::Shape(Shape::Scalar(scalar)) => match scalar {
                Scalar::Text | Scalar::Bytes | Scalar::Time | Scalar::MicroTime | Scalar::Duration => "string",
                Scalar::Int32 | Scalar::Int64 => "numeric (int or float)",
                Scalar::Float => "numeric (int or float)",
                Scalar::Bool => "boolean",
                Scalar::Quantity | Scalar::IntOrText => "scalar",
            },
            Self::Schema(schema) => match schema.kind.as_str() {
                "object" => "map",
                "array" => "list",
                "string" => "string",
                "integer" | "number" => "numeric (int or float)",
                "boolean" => "boolean",
                _ => return None,
            },
            Self::Shape(Shape::Any) | Self::Any => return None,
        };
        let fits = match value {
            Value::Null => true,
            Value::Object(_) => wanted == "map",
            Value::Array(_) => wanted == "list",
            Value::String(_) => matches!(wanted, "string" | "scalar"),
            Value::Number(_) => matches!(wanted, "numeric (int or float)" | "scalar"),
            Value::Bool(_) => matches!(wanted, "boolean" | "scalar"),
        };
        (!fits).then_some(wanted)
    }

    fn resolved(self) -> Self {
        match self {
            Self::Shape(Shape::Struct(number)) => Self::Struct(*number),
            Self::Shape(Shape::Any) => Self::Any,
            other => other,
        }
    }

    /// Whether a map of this type has one owner.
    pub(super) fn is_atomic_map(self) -> bool {
        match self {
            Self::Struct(number) => kinds().of(number).atomic,
            Self::Shape(Shape::Map { atomic, .. }) => *atomic,
            Self::Schema(schema) => schema.atomic_map,
            _ => false,
        }
    }

    /// The type of the elements of a list, and how they are told apart.
    pub(super) fn items(self) -> (View<'a>, Sharing) {
        match self {
            Self::Shape(Shape::List { items, merging }) => {
                let sharing = match merging {
                    Merging::Atomic => Sharing::Atomic,
                    Merging::Set => Sharing::Set,
                    Merging::Keys(keys) => Sharing::Keys(keys.clone()),
                };
                (View::Shape(items).resolved(), sharing)
            }
            Self::Schema(schema) => {
                let items = schema.items.as_deref();
                let default = |key: &str| items.and_then(|i| i.properties.get(key)).and_then(|p| p.default.clone());
                let sharing = match schema.list_type.as_str() {
                    "set" => Sharing::Set,
                    "map" => Sharing::Keys(schema.list_keys.iter().map(|k| (k.clone(), default(k))).collect()),
                    _ => Sharing::Atomic,
                };
                (items.map_or(View::Any, View::Schema), sharing)
            }
            _ => (View::Any, Sharing::Atomic),
        }
    }
}

impl Sharing {
    /// The step that leads to an element: `k:{…}` or `v:…`. `None` where it has no key.
    pub(super) fn step(&self, element: &Value) -> Option<String> {
        match self {
            Self::Atomic => None,
            Self::Set => {
                (!element.is_object() && !element.is_array() && !element.is_null()).then(|| format!("v:{element}"))
            }
            Self::Keys(keys) => {
                let mut found = json!({});
                for (key, default) in keys {
                    if let Some(value) = element.get(key).or(default.as_ref()) {
                        found[key] = value.clone();
                    }
                }
                (found != json!({})).then(|| format!("k:{found}"))
            }
        }
    }
}
