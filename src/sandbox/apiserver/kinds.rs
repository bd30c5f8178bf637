//! What the fields of built-in kinds are: read once from `kinds.json`, which `conformance kinds` makes of a real server's
//! OpenAPI. Must not know objects or requests.

use std::collections::BTreeMap;
use std::sync::OnceLock;

use serde_json::{Map, Value, json};

/// Schemas by name, without prose.
const TEXT: &str = include_str!("kinds.json");
const REFERENCE: &str = "#/components/schemas/";

/// What a value looks like.
#[derive(Clone, Debug)]
pub(super) enum Shape {
    /// Text, a number or a truth value, with the name that Go gives its type.
    Scalar(Scalar),
    List {
        items: Box<Shape>,
        merging: Merging,
    },
    Map {
        values: Box<Shape>,
        atomic: bool,
    },
    /// The struct of this number.
    Struct(usize),
    /// Any JSON.
    Any,
}

/// Values without parts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Scalar {
    Text,
    Int32,
    Int64,
    Float,
    Bool,
    /// Base64.
    Bytes,
    Time,
    MicroTime,
    Quantity,
    IntOrText,
    Duration,
}

/// How two lists become one where field managers share an object.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Merging {
    /// One replaces the other.
    Atomic,
    /// Plain values, each once.
    Set,
    /// Elements with equal values of these fields are the same; with what counts where such a field is missing.
    Keys(Vec<(String, Option<Value>)>),
}

/// A field of a struct.
#[derive(Clone, Debug)]
pub(super) struct Field {
    pub shape: Shape,
    /// Whether it is written also where it is empty.
    pub required: bool,
}

/// An object with known fields.
#[derive(Clone, Debug)]
pub(super) struct Struct {
    /// Name in Go, without the package.
    pub name: String,
    pub fields: BTreeMap<String, Field>,
    /// One manager owns it as a whole.
    pub atomic: bool,
}

/// All that is known.
pub(super) struct Kinds {
    structs: Vec<Struct>,
    /// By group, version, kind.
    kinds: BTreeMap<(String, String, String), usize>,
    by_name: BTreeMap<String, usize>,
    /// The schemas as they stand in OpenAPI.
    schemas: Map<String, Value>,
}

/// What `kinds.json` says.
pub(super) fn kinds() -> &'static Kinds {
    static KINDS: OnceLock<Kinds> = OnceLock::new();
    KINDS.get_or_init(|| {
        let schemas: Map<String, Value> = serde_json::from_str(TEXT).expect("a test reads the file");
        Kinds::parse(schemas)
    })
}

impl Kinds {
    fn parse(schemas: Map<String, Value>) -> Self {
        let structs_of = |(name, schema): (&String, &Value)| schema["properties"].is_object().then(|| name.clone());
        let names: Vec<String> = schemas.iter().filter_map(structs_of).collect();
        let by_name: BTreeMap<String, usize> = names.iter().enumerate().map(|(i, n)| (n.clone(), i)).collect();
        let (mut structs, mut kinds) = (Vec::new(), BTreeMap::new());
        for (number, name) in names.iter().enumerate() {
            let schema = &schemas[name];
            for gvk in schema["x-kubernetes-group-version-kind"].as_array().into_iter().flatten() {
                let text = |key: &str| gvk[key].as_str().unwrap_or_default().to_owned();
                kinds.insert((text("group"), text("version"), text("kind")), number);
            }
            let required: Vec<&Value> = schema["required"].as_array().into_iter().flatten().collect();
            let fields = schema["properties"].as_object().into_iter().flatten().map(|(key, schema)| {
                let required = required.iter().any(|r| **r == *key);
                (key.clone(), Field { shape: shape(schema, &by_name, &schemas), required })
            });
            structs.push(Struct {
                name: name.rsplit('.').next().unwrap_or_default().to_owned(),
                fields: fields.collect(),
                atomic: schema["x-kubernetes-map-type"] == "atomic",
            });
        }
        Self { structs, kinds, by_name, schemas }
    }

    /// The struct of a kind.
    pub(super) fn kind(&self, group: &str, version: &str, kind: &str) -> Option<usize> {
        self.kinds.get(&(group.to_owned(), version.to_owned(), kind.to_owned())).copied()
    }

    pub(super) fn of(&self, number: usize) -> &Struct {
        &self.structs[number]
    }

    /// `ObjectMeta`.
    pub(super) fn metadata(&self) -> usize {
        self.by_name["io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"]
    }

    /// Adds to `found` the schema of a kind and all that it refers to, as they stand in OpenAPI.
    pub(super) fn reach(&self, group: &str, version: &str, kind: &str, found: &mut Map<String, Value>) {
        let number = self.kind(group, version, kind);
        let name = self.by_name.iter().find(|(_, n)| Some(**n) == number).map(|(name, _)| name);
        if let Some(name) = name {
            self.reach_name(name, found);
        }
    }

    fn reach_name(&self, name: &str, found: &mut Map<String, Value>) {
        let Some(schema) = self.schemas.get(name).filter(|_| !found.contains_key(name)) else { return };
        found.insert(name.to_owned(), published(schema));
        let mut left = vec![schema];
        while let Some(value) = left.pop() {
            match value {
                Value::Object(map) => {
                    if let Some(reference) = map.get("$ref").and_then(Value::as_str) {
                        self.reach_name(reference.trim_start_matches(REFERENCE), found);
                    }
                    left.extend(map.values());
                }
                Value::Array(list) => left.extend(list),
                _ => {}
            }
        }
    }
}

/// A schema as documents have it: a reference stands in `allOf`.
fn published(schema: &Value) -> Value {
    match schema {
        Value::Object(map) => {
            let mut out = Map::new();
            for (key, value) in map {
                if key == "$ref" {
                    out.insert("allOf".into(), json!([{"$ref": value}]));
                } else {
                    out.insert(key.clone(), published(value));
                }
            }
            Value::Object(out)
        }
        Value::Array(list) => list.iter().map(published).collect(),
        other => other.clone(),
    }
}

fn shape(schema: &Value, by_name: &BTreeMap<String, usize>, schemas: &Map<String, Value>) -> Shape {
    if let Some(reference) = schema["$ref"].as_str() {
        let name = reference.trim_start_matches(REFERENCE);
        return match (by_name.get(name), name.rsplit('.').next()) {
            (Some(number), _) => Shape::Struct(*number),
            (None, Some("Quantity")) => Shape::Scalar(Scalar::Quantity),
            (None, Some("IntOrString")) => Shape::Scalar(Scalar::IntOrText),
            (None, Some("Time")) => Shape::Scalar(Scalar::Time),
            (None, Some("MicroTime")) => Shape::Scalar(Scalar::MicroTime),
            (None, Some("Duration")) => Shape::Scalar(Scalar::Duration),
            (None, _) => schemas.get(name).map_or(Shape::Any, |s| match s["type"].as_str() {
                Some("object") | None => Shape::Any,
                Some(_) => shape(s, by_name, schemas),
            }),
        };
    }
    match (schema["type"].as_str(), schema["format"].as_str()) {
        (Some("array"), _) => Shape::List {
            items: Box::new(shape(&schema["items"], by_name, schemas)),
            merging: merging(schema, schemas),
        },
        (Some("object"), _) if schema["additionalProperties"].is_object() => Shape::Map {
            values: Box::new(shape(&schema["additionalProperties"], by_name, schemas)),
            atomic: schema["x-kubernetes-map-type"] == "atomic",
        },
        (Some("string"), Some("byte")) => Shape::Scalar(Scalar::Bytes),
        (Some("string"), Some("date-time")) => Shape::Scalar(Scalar::Time),
        (Some("string"), _) => Shape::Scalar(Scalar::Text),
        (Some("integer"), Some("int64")) => Shape::Scalar(Scalar::Int64),
        (Some("integer"), _) => Shape::Scalar(Scalar::Int32),
        (Some("number"), _) => Shape::Scalar(Scalar::Float),
        (Some("boolean"), _) => Shape::Scalar(Scalar::Bool),
        _ => Shape::Any,
    }
}

fn merging(schema: &Value, schemas: &Map<String, Value>) -> Merging {
    match schema["x-kubernetes-list-type"].as_str() {
        Some("set") => Merging::Set,
        Some("map") => {
            let of = schema["items"]["$ref"].as_str().unwrap_or_default().trim_start_matches(REFERENCE);
            let default = |key: &str| schemas.get(of).and_then(|s| s["properties"][key].get("default")).cloned();
            let keys = schema["x-kubernetes-list-map-keys"].as_array().into_iter().flatten().filter_map(Value::as_str);
            Merging::Keys(keys.map(|k| (k.to_owned(), default(k))).collect())
        }
        // Before there were list types, strategic merge said the same.
        _ if schema["x-kubernetes-patch-strategy"].as_str().is_some_and(|s| s.contains("merge")) => {
            match schema["x-kubernetes-patch-merge-key"].as_str() {
                Some(key) => Merging::Keys(vec![(key.to_owned(), None)]),
                None => Merging::Set,
            }
        }
        _ => Merging::Atomic,
    }
}

#[cfg(test)]
mod tests {
    use super::super::registry::Registry;
    use super::*;

    #[test]
    fn every_stored_built_in_kind_has_its_fields() {
        for ty in Registry::new().all() {
            let number = kinds().kind(&ty.group, &ty.version, &ty.kind);
            let known = number.is_some_and(|n| kinds().of(n).fields.contains_key("metadata"));
            assert!(known, "{} {}", ty.api_version(), ty.kind);
        }
    }

    #[test]
    fn lists_know_how_they_are_merged() {
        let pod = kinds().of(kinds().kind("", "v1", "Pod").unwrap());
        let Shape::Struct(spec) = pod.fields["spec"].shape else { panic!("{:?}", pod.fields["spec"]) };
        let containers = &kinds().of(spec).fields["containers"];
        let Shape::List { merging, items } = &containers.shape else { panic!("{containers:?}") };
        assert_eq!(*merging, Merging::Keys(vec![("name".into(), Some("".into()))]));
        let Shape::Struct(container) = **items else { panic!("{items:?}") };
        let Shape::List { merging, .. } = &kinds().of(container).fields["ports"].shape else { panic!() };
        let keys = vec![("containerPort".into(), Some(0.into())), ("protocol".into(), Some("TCP".into()))];
        assert_eq!(*merging, Merging::Keys(keys));
    }
}
