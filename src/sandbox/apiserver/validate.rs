//! What a schema finds wrong with an object, in the words of a real server.
//! Must not know how the object came about, nor how rules in CEL are evaluated (`rules`).

use serde_json::{Value, json};

use super::cause::Cause;
use super::prune::join;
use super::registry::Scale;
use super::schema::Schema;

impl Schema {
    /// Everything wrong with a whole object. What is the same in `old` is not looked at again (ratcheting).
    pub fn validate(&self, value: &Value, old: Option<&Value>) -> Vec<Cause> {
        self.check("", "", value, old)
    }

    /// Everything wrong with the status alone, as a write through the status subresource is looked at. `value` and
    /// `old` are whole objects.
    pub fn validate_status(&self, value: &Value, old: Option<&Value>) -> Vec<Cause> {
        match (self.properties.get("status"), value.get("status")) {
            (Some(schema), Some(status)) => schema.check("status", "", status, old.and_then(|o| o.get("status"))),
            _ => Vec::new(),
        }
    }

    fn check(&self, field: &str, name: &str, value: &Value, old: Option<&Value>) -> Vec<Cause> {
        let mut out = Vec::new();
        self.at(&Place { field: field.to_owned(), name: name.to_owned() }, value, old, &mut out);
        self.embedded_objects(field, value, &mut out);
        self.unique_elements(field, value, &mut out);
        if self.has_rules && out.iter().any(Cause::blocks_rules) {
            out.push(Cause::invalid("<nil>", &Value::Null, RULES_NOT_CHECKED));
        } else {
            self.broken_rules(field, value, old, &mut out);
        }
        out
    }

    fn at(&self, place: &Place, value: &Value, old: Option<&Value>, out: &mut Vec<Cause>) {
        if old == Some(value) {
            return;
        }
        if value.is_null() {
            if !self.nullable && !self.types().is_empty() {
                out.push(place.wrong_type(&self.types().join(","), "null"));
            }
            return;
        }
        let fits = self.check_type(place, value, out);
        if !self.allowed.is_empty() && !self.allowed.contains(value) {
            let allowed: Vec<String> =
                self.allowed.iter().map(|v| v.as_str().map_or_else(|| v.to_string(), str::to_owned)).collect();
            out.push(Cause::unsupported(&place.field, value, &allowed));
        }
        match value {
            Value::Number(number) => self.check_number(place, value, number.as_f64().unwrap_or(f64::NAN), out),
            Value::String(text) if fits => self.check_text(place, text, out),
            Value::Array(list) if fits => self.check_list(place, list, old, out),
            Value::Object(map) if fits => self.check_object(place, map, old, out),
            _ => {}
        }
    }

    fn types(&self) -> Vec<&str> {
        if self.int_or_string {
            vec!["integer", "string"]
        } else if self.kind.is_empty() {
            Vec::new()
        } else {
            vec![&self.kind]
        }
    }

    /// Follows go-openapi's type validator, whose wording depends on whether a format is given.
    fn check_type(&self, place: &Place, value: &Value, out: &mut Vec<Cause>) -> bool {
        let types = self.types();
        if types.is_empty() {
            return true;
        }
        let (kind, format) = match value {
            Value::Number(n) if n.is_f64() => ("number", "float64"),
            Value::Number(_) => ("integer", "int64"),
            Value::String(_) => ("string", ""),
            Value::Bool(_) => ("boolean", ""),
            Value::Array(_) => ("array", ""),
            Value::Object(_) => ("object", ""),
            Value::Null => ("null", ""),
        };
        let whole = value.as_f64().is_some_and(|f| f.fract() == 0.0);
        let fits = types.contains(&kind)
            || (kind == "number" && whole && types.contains(&"integer"))
            || (kind == "integer" && types.contains(&"number"));
        if !fits {
            let by_format = !self.format.is_empty() && !matches!(value, Value::String(_) | Value::Array(_));
            out.push(if by_format {
                place.wrong_type(&self.format, format)
            } else {
                place.wrong_type(&types.join(","), kind)
            });
        }
        fits
    }

    fn check_number(&self, place: &Place, value: &Value, number: f64, out: &mut Vec<Cause>) {
        let limits = &self.limits;
        if self.kind == "integer" {
            let fits = number.fract() == 0.0 && (self.format != "int32" || i32::try_from(number as i64).is_ok());
            if !fits {
                let form = if self.format.is_empty() {
                    "(default format)".to_owned()
                } else {
                    format!("with format {}", self.format)
                };
                let text = format!("Checked value must be of type integer {form} in {}", place.name);
                out.push(Cause::invalid("<nil>", &json!(""), text));
            }
        }
        let mut wrong = |text: String| out.push(Cause::invalid(&place.field, value, place.body(&text)));
        if let Some(max) = limits.maximum {
            if limits.exclusive_maximum && number >= max {
                wrong(format!("should be less than {max}"));
            } else if number > max {
                wrong(format!("should be less than or equal to {max}"));
            }
        }
        if let Some(min) = limits.minimum {
            if limits.exclusive_minimum && number <= min {
                wrong(format!("should be greater than {min}"));
            } else if number < min {
                wrong(format!("should be greater than or equal to {min}"));
            }
        }
        if let Some(step) = limits.multiple_of
            && (number / step).fract() != 0.0
        {
            wrong(format!("should be a multiple of {step}"));
        }
    }

    fn check_text(&self, place: &Place, text: &str, out: &mut Vec<Cause>) {
        let length = text.chars().count() as u64;
        if let Some(max) = self.limits.max_length.filter(|max| length > *max) {
            out.push(Cause::too_long(&place.field, max));
        }
        if let Some(min) = self.limits.min_length.filter(|min| length < *min) {
            let detail = place.body(&format!("should be at least {min} chars long"));
            out.push(Cause::invalid(&place.field, &json!(text), detail));
        }
        // A pattern is not looked at in text that has the wrong length already: recorded, one cause only.
        let wrong_length = self.limits.max_length.is_some_and(|max| length > max)
            || self.limits.min_length.is_some_and(|min| length < min);
        if let Some(pattern) = &self.pattern
            && !wrong_length
            && pattern.regex.as_ref().is_some_and(|r| !r.is_match(text))
        {
            let detail = place.body(&format!("should match '{}'", pattern.text));
            out.push(Cause::invalid(&place.field, &json!(text), detail));
        }
        if !format_holds(&self.format, text) {
            out.push(place.wrong_type(&self.format, text));
        }
    }

    fn check_list(&self, place: &Place, list: &[Value], old: Option<&Value>, out: &mut Vec<Cause>) {
        if let Some(max) = self.limits.max_items.filter(|max| list.len() as u64 > *max) {
            out.push(Cause::too_many(&place.field, list.len(), max));
        }
        if let Some(min) = self.limits.min_items.filter(|min| (list.len() as u64) < *min) {
            let detail = place.body(&format!("should have at least {min} items"));
            out.push(Cause::invalid(&place.field, &json!(list.len()), detail));
        }
        let Some(schema) = &self.items else { return };
        let before = old.and_then(Value::as_array);
        for (i, element) in list.iter().enumerate() {
            // Only elements of map lists have an identity; of other lists none is "the same as before".
            let same = before
                .filter(|_| self.list_type == "map")
                .and_then(|b| b.iter().find(|o| self.list_keys.iter().all(|k| o.get(k) == element.get(k))));
            schema.at(&place.element(i), element, same, out);
        }
    }

    fn check_object(
        &self,
        place: &Place,
        map: &serde_json::Map<String, Value>,
        old: Option<&Value>,
        out: &mut Vec<Cause>,
    ) {
        if let Some(max) = self.limits.max_properties.filter(|max| map.len() as u64 > *max) {
            out.push(Cause::too_many(&place.field, map.len(), max));
        }
        if let Some(min) = self.limits.min_properties.filter(|min| (map.len() as u64) < *min) {
            let detail = place.body(&format!("should have at least {min} properties"));
            out.push(Cause::invalid(&place.field, &json!(map.len()), detail));
        }
        for key in self.required.iter().filter(|key| !map.contains_key(*key)) {
            out.push(Cause::required(join(&place.field, key), ""));
        }
        for (key, child) in map {
            if let Some(schema) = self.properties.get(key).or(self.additional.as_deref()) {
                schema.at(&place.child(key), child, old.and_then(|o| o.get(key)), out);
            }
        }
    }

    /// Objects within the object need a kind and an apiVersion of their own.
    fn embedded_objects(&self, field: &str, value: &Value, out: &mut Vec<Cause>) {
        if self.embedded && value.is_object() {
            for key in ["apiVersion", "kind"] {
                if value[key].as_str().is_none_or(str::is_empty) {
                    out.push(Cause::required(join(field, key), ""));
                }
            }
        }
        self.walk(field, value, &mut |schema, at, child| schema.embedded_objects(at, child, out));
    }

    /// Sets and map lists hold each element once.
    fn unique_elements(&self, field: &str, value: &Value, out: &mut Vec<Cause>) {
        if let (Some(list), "set" | "map") = (value.as_array(), self.list_type.as_str()) {
            let mut seen: Vec<Value> = Vec::new();
            for (i, element) in list.iter().enumerate() {
                let identity = if self.list_type == "set" { element.clone() } else { self.identity(element) };
                if seen.contains(&identity) {
                    out.push(Cause::duplicate(format!("{field}[{i}]"), &identity));
                } else {
                    seen.push(identity);
                }
            }
        }
        self.walk(field, value, &mut |schema, at, child| schema.unique_elements(at, child, out));
    }

    /// The keys of an element of a map list.
    fn identity(&self, element: &Value) -> Value {
        let keys = self.list_keys.iter().filter_map(|k| Some((k.clone(), element.get(k)?.clone())));
        Value::Object(keys.collect())
    }

    /// Calls `visit` for each child that has a schema.
    fn walk(&self, field: &str, value: &Value, visit: &mut dyn FnMut(&Schema, &str, &Value)) {
        match value {
            Value::Object(map) => {
                for (key, child) in map {
                    if let Some(schema) = self.properties.get(key).or(self.additional.as_deref()) {
                        visit(schema, &join(field, key), child);
                    }
                }
            }
            Value::Array(list) => {
                if let Some(schema) = &self.items {
                    for (i, child) in list.iter().enumerate() {
                        visit(schema, &format!("{field}[{i}]"), child);
                    }
                }
            }
            _ => {}
        }
    }
}

const RULES_NOT_CHECKED: &str = "some validation rules were not checked because the object was invalid; correct the \
                                 existing errors to complete validation";

/// Where we are: as causes name it and as messages do (they differ when only the status is looked at).
struct Place {
    field: String,
    name: String,
}

impl Place {
    fn child(&self, key: &str) -> Self {
        Self { field: join(&self.field, key), name: join(&self.name, key) }
    }

    fn element(&self, i: usize) -> Self {
        Self { field: format!("{}[{i}]", self.field), name: format!("{}[{i}]", self.name) }
    }

    fn body(&self, text: &str) -> String {
        format!("{} in body {text}", self.name)
    }

    fn wrong_type(&self, wanted: &str, found: &str) -> Cause {
        Cause::wrong_type(&self.field, found, self.body(&format!("must be of type {wanted}: {found:?}")))
    }
}

/// Whether text has the form that the format names. Formats that nobody here uses are not looked at.
fn format_holds(format: &str, text: &str) -> bool {
    match format {
        "date-time" | "datetime" => text.parse::<jiff::Timestamp>().is_ok(),
        "date" => text.parse::<jiff::civil::Date>().is_ok(),
        "byte" => data_encoding::BASE64.decode(text.as_bytes()).is_ok(),
        "ipv4" => text.parse::<std::net::Ipv4Addr>().is_ok(),
        "ipv6" => text.parse::<std::net::Ipv6Addr>().is_ok(),
        _ => true,
    }
}

/// What is wrong with the fields that the scale subresource stands on: they must be integers, and not negative.
/// `only_status` leaves the wish alone, as a write of the status does.
pub fn scale_fields(scale: &Scale, object: &Value, only_status: bool) -> Vec<Cause> {
    let mut out = Vec::new();
    let paths = [(!only_status, &scale.spec_replicas), (true, &scale.status_replicas)];
    for (_, path) in paths.into_iter().filter(|(wanted, _)| *wanted) {
        match integer_at(object, path) {
            Ok(Some(n)) if n < 0 => {
                out.push(Cause::invalid(path, &json!(n), "should be a non-negative integer"));
            }
            Ok(Some(n)) if i32::try_from(n).is_err() => {
                let text = format!("should be less than or equal to {}", i32::MAX);
                out.push(Cause::invalid(path, &json!(n), text));
            }
            Ok(_) => {}
            Err(text) => out.push(Cause::invalid(path, &json!(0), text)),
        }
    }
    out
}

/// The integer at a path such as `.spec.replicas`; an error in the words of Go's accessor.
fn integer_at(object: &Value, path: &str) -> Result<Option<i64>, String> {
    let mut at = object;
    for key in path.trim_start_matches('.').split('.') {
        match at {
            Value::Object(map) => match map.get(key) {
                Some(child) => at = child,
                None => return Ok(None),
            },
            Value::Null => return Ok(None),
            other => return Err(accessor(path, other, "map[string]interface {}")),
        }
    }
    at.as_i64().map(Some).ok_or_else(|| accessor(path, at, "int64"))
}

fn accessor(path: &str, found: &Value, wanted: &str) -> String {
    let (shown, kind) = match found {
        Value::String(text) => (text.clone(), "string"),
        Value::Bool(flag) => (flag.to_string(), "bool"),
        Value::Number(n) if n.is_f64() => (n.to_string(), "float64"),
        Value::Number(n) => (n.to_string(), "int64"),
        Value::Array(_) => (found.to_string(), "[]interface {}"),
        Value::Object(_) => (found.to_string(), "map[string]interface {}"),
        Value::Null => ("<nil>".to_owned(), "<nil>"),
    };
    format!("{path} accessor error: {shown} is of the type {kind}, expected {}", wanted.replace(" {}", "{}"))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::super::recorded;
    use super::*;

    /// Causes that only a CEL rule of the CRD finds.
    fn needs_rules(message: &str) -> bool {
        ["size must not exceed max", "fixed is immutable", "deletionStrategy requires"]
            .iter()
            .any(|part| message.contains(part))
    }

    /// Replays the creates of a case; returns how many answers were compared.
    fn replay(case: &str, resource: &str, crd: &str, version: &str) -> Option<usize> {
        let topic = recorded::topic("crd")?;
        let schema = recorded::schema(crd, version)?;
        let mut compared = 0;
        for exchange in recorded::exchanges(&topic, case) {
            let request = &exchange["request"];
            let path = request["path"].as_str().unwrap();
            let body = &exchange["response"]["body"];
            if request["method"] != "POST" || !path.contains(resource) || !request["body"].is_object() {
                continue;
            }
            let causes = body["details"]["causes"].as_array().cloned().unwrap_or_default();
            if causes.iter().any(|c| needs_rules(c["message"].as_str().unwrap())) {
                continue;
            }
            let mut object = request["body"].clone();
            schema.prune(&mut object);
            schema.default(&mut object);
            let found = schema.validate(&object, None);
            let texts =
                |c: &Value| (c["field"].as_str().unwrap().to_owned(), c["message"].as_str().unwrap().to_owned());
            let wanted: BTreeSet<_> = causes.iter().map(texts).filter(|(f, _)| !f.starts_with("metadata")).collect();
            let got: BTreeSet<_> = found.into_iter().map(|c| (c.field, c.message)).collect();
            assert_eq!(got, wanted, "{}", request["body"]);
            compared += 1;
        }
        Some(compared)
    }

    #[test]
    fn causes_are_the_recorded_ones() {
        for (case, resource, crd, version, least) in [
            ("validation", "widgets", "widgets.example.dev", "v1", 20),
            ("pruning", "widgets", "widgets.example.dev", "v1", 3),
            ("rayjob-validation", "rayjobs", "rayjobs.ray.io", "v1", 6),
        ] {
            let Some(compared) = replay(case, resource, crd, version) else { return };
            assert!(compared >= least, "{case}: {compared}");
        }
    }

    #[test]
    fn an_old_mistake_does_not_stop_a_change_elsewhere() {
        let schema = Schema::parse(&json!({"type": "object", "properties": {
            "a": {"type": "string", "maxLength": 1}, "b": {"type": "integer"}}}));
        let old = json!({"a": "long", "b": 1});
        assert!(schema.validate(&json!({"a": "long", "b": 2}), Some(&old)).is_empty());
        assert_eq!(schema.validate(&json!({"a": "longer", "b": 2}), Some(&old)).len(), 1);
    }

    #[test]
    fn scale_fields_must_be_integers() {
        let scale = Scale {
            spec_replicas: ".spec.replicas".into(),
            status_replicas: ".status.replicas".into(),
            label_selector: None,
        };
        assert!(scale_fields(&scale, &json!({"spec": {}}), false).is_empty());
        let causes = scale_fields(&scale, &json!({"spec": "x"}), false);
        assert_eq!(
            causes[0].message,
            "Invalid value: 0: .spec.replicas accessor error: x is of the type string, expected map[string]interface{}"
        );
    }
}
