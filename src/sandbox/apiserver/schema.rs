//! Structural schemas of custom resources: parsed once from a CRD's `openAPIV3Schema`.
//! Must not know names of types, requests or stored objects.
//!
//! `allOf`, `anyOf`, `oneOf` and `not` are kept for reading back and not evaluated.

use std::collections::BTreeMap;

use regex_lite::Regex;
use serde_json::Value;

use super::rules::Rule;

/// What a value must look like, and what happens to what does not.
#[derive(Clone, Debug, Default)]
pub struct Schema {
    /// `object`, `array`, `string`, `integer`, `number`, `boolean`; empty for int-or-string and for "anything".
    pub kind: String,
    /// `int32`, `date-time`, …; may be empty.
    pub format: String,
    /// Fields of an object.
    pub properties: BTreeMap<String, Schema>,
    /// Values of a map.
    pub additional: Option<Box<Schema>>,
    /// Elements of an array.
    pub items: Option<Box<Schema>>,
    /// Fields that must be there.
    pub required: Vec<String>,
    /// The only values allowed, if any.
    pub allowed: Vec<Value>,
    /// Filled in where the field is missing.
    pub default: Option<Value>,
    /// Whether null is a value.
    pub nullable: bool,
    /// Whether unknown fields stay.
    pub preserve_unknown: bool,
    /// Whether an integer and a string are both fine.
    pub int_or_string: bool,
    /// Whether the object has kind, apiVersion and metadata of its own.
    pub embedded: bool,
    /// Whether a map has one owner among field managers.
    pub atomic_map: bool,
    /// `set`, `map` or `atomic`; empty means atomic.
    pub list_type: String,
    /// Fields that tell the elements of a map list apart.
    pub list_keys: Vec<String>,
    /// What text must match, with the text of the expression.
    pub pattern: Option<Pattern>,
    /// Limits of numbers, lengths and counts.
    pub limits: Limits,
    /// Whether this schema or one below has rules in CEL.
    pub has_rules: bool,
    /// Its own rules.
    pub rules: Vec<Rule>,
}

/// A regular expression and its text.
#[derive(Clone, Debug)]
pub struct Pattern {
    /// As the CRD has it.
    pub text: String,
    /// Compiled; `None` where this engine cannot (look-around): then it is not checked.
    pub regex: Option<Regex>,
}

/// Bounds; `None` is no bound.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Limits {
    /// Smallest number.
    pub minimum: Option<f64>,
    /// Largest number.
    pub maximum: Option<f64>,
    /// Whether `minimum` itself is out.
    pub exclusive_minimum: bool,
    /// Whether `maximum` itself is out.
    pub exclusive_maximum: bool,
    /// A whole multiple of this.
    pub multiple_of: Option<f64>,
    /// Characters of text.
    pub min_length: Option<u64>,
    /// Characters of text.
    pub max_length: Option<u64>,
    /// Elements of an array.
    pub min_items: Option<u64>,
    /// Elements of an array.
    pub max_items: Option<u64>,
    /// Fields of an object.
    pub min_properties: Option<u64>,
    /// Fields of an object.
    pub max_properties: Option<u64>,
}

impl PartialEq for Schema {
    fn eq(&self, other: &Self) -> bool {
        self.kind == other.kind
            && self.format == other.format
            && self.properties == other.properties
            && self.additional == other.additional
            && self.items == other.items
            && self.required == other.required
            && self.allowed == other.allowed
            && self.default == other.default
            && self.nullable == other.nullable
            && self.preserve_unknown == other.preserve_unknown
            && self.int_or_string == other.int_or_string
            && self.embedded == other.embedded
            && self.atomic_map == other.atomic_map
            && self.list_type == other.list_type
            && self.list_keys == other.list_keys
            && self.pattern.as_ref().map(|p| &p.text) == other.pattern.as_ref().map(|p| &p.text)
            && self.limits == other.limits
            && self.has_rules == other.has_rules
            && self.rules == other.rules
    }
}

impl Schema {
    /// From the `openAPIV3Schema` of a CRD that passed validation (`crd`); what is of the wrong type counts as absent.
    pub fn parse(value: &Value) -> Self {
        let text = |key: &str| value[key].as_str().unwrap_or_default().to_owned();
        let flag = |key: &str| value[key].as_bool().unwrap_or(false);
        let texts = |key: &str| -> Vec<String> {
            value[key].as_array().into_iter().flatten().filter_map(|v| v.as_str().map(str::to_owned)).collect()
        };
        let properties: BTreeMap<String, Schema> =
            value["properties"].as_object().into_iter().flatten().map(|(k, v)| (k.clone(), Self::parse(v))).collect();
        let additional = match &value["additionalProperties"] {
            Value::Object(map) => Some(Box::new(Self::parse(&Value::Object(map.clone())))),
            Value::Bool(true) => Some(Box::new(Self { preserve_unknown: true, ..<Self as Default>::default() })),
            _ => None,
        };
        let items = value["items"].is_object().then(|| Box::new(Self::parse(&value["items"])));
        let rules = Rule::parse_all(value);
        let has_rules = !rules.is_empty()
            || properties.values().any(|s| s.has_rules)
            || additional.as_ref().is_some_and(|s| s.has_rules)
            || items.as_ref().is_some_and(|s| s.has_rules);
        Self {
            kind: text("type"),
            format: text("format"),
            properties,
            additional,
            items,
            required: texts("required"),
            allowed: value["enum"].as_array().cloned().unwrap_or_default(),
            default: value.get("default").cloned(),
            nullable: flag("nullable"),
            preserve_unknown: flag("x-kubernetes-preserve-unknown-fields"),
            int_or_string: flag("x-kubernetes-int-or-string"),
            embedded: flag("x-kubernetes-embedded-resource"),
            atomic_map: value["x-kubernetes-map-type"] == "atomic",
            list_type: text("x-kubernetes-list-type"),
            list_keys: texts("x-kubernetes-list-map-keys"),
            pattern: value["pattern"].as_str().map(|p| Pattern { text: p.to_owned(), regex: Regex::new(p).ok() }),
            limits: Limits::parse(value),
            has_rules,
            rules,
        }
    }
}

impl Limits {
    fn parse(value: &Value) -> Self {
        let number = |key: &str| value[key].as_f64();
        let count = |key: &str| value[key].as_u64();
        let flag = |key: &str| value[key].as_bool().unwrap_or(false);
        Self {
            minimum: number("minimum"),
            maximum: number("maximum"),
            exclusive_minimum: flag("exclusiveMinimum"),
            exclusive_maximum: flag("exclusiveMaximum"),
            multiple_of: number("multipleOf"),
            min_length: count("minLength"),
            max_length: count("maxLength"),
            min_items: count("minItems"),
            max_items: count("maxItems"),
            min_properties: count("minProperties"),
            max_properties: count("maxProperties"),
        }
    }
}
