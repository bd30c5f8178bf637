//! Rules in CEL of custom resources (`x-kubernetes-validations`): read once with the schema, evaluated on each write.
//! Must not know requests. Some of what Kubernetes adds to the language is not built (`rule_functions`): a definition with
//! such a rule is answered with a warning that names it, and the rule is not evaluated.

use std::sync::Arc;

use cel::objects::{Key, Map};
use cel::{Program, Value as Cel};
use serde_json::Value;

use super::cause::Cause;
use super::prune::join;
use super::rule_functions;
use super::schema::Schema;

/// The rule of nearly every schema: needs no interpreter.
const IMMUTABLE: &str = "self == oldSelf";

/// One rule.
#[derive(Clone, Debug)]
pub struct Rule {
    /// As the CRD has it.
    pub text: String,
    program: Option<Arc<Program>>,
    message: Option<String>,
    message_program: Option<Arc<Program>>,
    reason: String,
    field_path: String,
    /// Whether it compares with what was there before.
    transition: bool,
}

impl PartialEq for Rule {
    fn eq(&self, other: &Self) -> bool {
        (&self.text, &self.message, &self.reason, &self.field_path)
            == (&other.text, &other.message, &other.reason, &other.field_path)
    }
}

impl Rule {
    /// The rules of one schema.
    pub(super) fn parse_all(schema: &Value) -> Vec<Self> {
        let rules = schema["x-kubernetes-validations"].as_array().into_iter().flatten();
        rules.map(Self::parse).collect()
    }

    fn parse(rule: &Value) -> Self {
        let text = |key: &str| rule[key].as_str().unwrap_or_default().to_owned();
        let some = |key: &str| rule[key].as_str().map(|t| t.trim().to_owned()).filter(|t| !t.is_empty());
        let program = compiled(&text("rule"));
        let transition = text("rule").contains("oldSelf");
        Self {
            program,
            message: some("message"),
            message_program: some("messageExpression").and_then(|t| compiled(&t)),
            reason: text("reason"),
            field_path: text("fieldPath"),
            transition,
            text: text("rule"),
        }
    }

    /// Whether it is evaluated at all.
    pub fn is_evaluated(&self) -> bool {
        self.program.is_some()
    }

    /// What the rule finds wrong.
    fn check(&self, field: &str, value: &Value, old: Option<&Value>, schema: &Schema) -> Option<Cause> {
        if self.transition && old.is_none() {
            return None;
        }
        let program = self.program.as_ref()?;
        if self.text == IMMUTABLE {
            return (old != Some(value)).then(|| self.cause(field, value, None));
        }
        let mut context = rule_functions::context();
        context.add_variable_from_value("self", cel(value, Some(schema)));
        if let Some(old) = old {
            context.add_variable_from_value("oldSelf", cel(old, Some(schema)));
        }
        match program.execute(&context) {
            Ok(Cel::Bool(true)) => None,
            Ok(_) => {
                let said = self.message_program.as_ref().and_then(|p| match p.execute(&context) {
                    Ok(Cel::String(text)) => Some(text.to_string()).filter(|t| !t.trim().is_empty()),
                    _ => None,
                });
                Some(self.cause(field, value, said))
            }
            Err(why) => {
                let field = if field.is_empty() { "<nil>" } else { field };
                let detail = format!("{}: rule evaluation error: {why}", schema.kind);
                Some(Cause {
                    reason: "FieldValueInvalid",
                    message: format!("Invalid value: {detail}"),
                    field: field.to_owned(),
                })
            }
        }
    }

    fn cause(&self, field: &str, value: &Value, said: Option<String>) -> Cause {
        let detail =
            said.or_else(|| self.message.clone()).unwrap_or_else(|| format!("failed rule: {}", self.text.trim()));
        let field = match self.field_path.strip_prefix('.') {
            Some(path) => join(field, path),
            None => field.to_owned(),
        };
        let field = if field.is_empty() { "<nil>".to_owned() } else { field };
        let (reason, message) = match self.reason.as_str() {
            "FieldValueForbidden" => ("FieldValueForbidden", format!("Forbidden: {detail}")),
            "FieldValueRequired" => ("FieldValueRequired", format!("Required value: {detail}")),
            "FieldValueDuplicate" => ("FieldValueDuplicate", format!("Duplicate value: {detail}")),
            // Values that have parts are not shown.
            _ if value.is_object() || value.is_array() => ("FieldValueInvalid", format!("Invalid value: {detail}")),
            _ => ("FieldValueInvalid", format!("Invalid value: {value}: {detail}")),
        };
        Cause { reason, message, field }
    }
}

fn compiled(text: &str) -> Option<Arc<Program>> {
    let program = Program::compile(text).ok()?;
    let references = program.references();
    let known = |name: &&str| rule_functions::NAMES.contains(name) || name.starts_with(['_', '@', '!', '-']);
    let evaluated = references.functions().iter().all(known);
    evaluated.then(|| Arc::new(program))
}

impl Schema {
    /// What the rules of this schema and of those below find wrong. A rule that does not look back is not asked about what
    /// stayed as it was.
    pub(super) fn broken_rules(&self, field: &str, value: &Value, old: Option<&Value>, out: &mut Vec<Cause>) {
        if !self.has_rules || value.is_null() {
            return;
        }
        for rule in &self.rules {
            if rule.transition || old != Some(value) {
                out.extend(rule.check(field, value, old, self));
            }
        }
        match value {
            Value::Object(map) => {
                for (name, child) in map {
                    let below = self.properties.get(name).or(self.additional.as_deref());
                    if let Some(schema) = below.filter(|s| s.has_rules) {
                        let at = if self.properties.contains_key(name) {
                            join(field, name)
                        } else {
                            format!("{field}[{name}]")
                        };
                        schema.broken_rules(&at, child, old.and_then(|o| o.get(name)), out);
                    }
                }
            }
            Value::Array(list) => {
                let Some(schema) = self.items.as_deref().filter(|s| s.has_rules) else { return };
                for (i, child) in list.iter().enumerate() {
                    // Only elements with keys are known again.
                    let before = match self.list_type.as_str() {
                        "map" => old
                            .and_then(Value::as_array)
                            .into_iter()
                            .flatten()
                            .find(|o| self.list_keys.iter().all(|key| o.get(key) == child.get(key))),
                        _ => None,
                    };
                    schema.broken_rules(&format!("{field}[{i}]"), child, before, out);
                }
            }
            _ => {}
        }
    }

    /// Rules that are not evaluated here, in this schema and below.
    pub(super) fn unbuilt_rules(&self, out: &mut Vec<String>) {
        out.extend(self.rules.iter().filter(|r| !r.is_evaluated()).map(|r| r.text.clone()));
        let below = self.properties.values().chain(self.additional.as_deref()).chain(self.items.as_deref());
        below.filter(|s| s.has_rules).for_each(|s| s.unbuilt_rules(out));
    }
}

/// A value as CEL sees it: numbers as the schema says.
fn cel(value: &Value, schema: Option<&Schema>) -> Cel {
    match value {
        Value::Null => Cel::Null,
        Value::Bool(b) => Cel::Bool(*b),
        Value::Number(n) => match (n.as_i64(), schema.map(|s| s.kind.as_str())) {
            (Some(i), kind) if kind != Some("number") => Cel::Int(i),
            _ => Cel::Float(n.as_f64().unwrap_or(f64::NAN)),
        },
        Value::String(text) => Cel::String(Arc::new(text.clone())),
        Value::Array(list) => {
            let items = schema.and_then(|s| s.items.as_deref());
            Cel::List(Arc::new(list.iter().map(|v| cel(v, items)).collect()))
        }
        Value::Object(map) => {
            let of = |name: &str| schema.and_then(|s| s.properties.get(name).or(s.additional.as_deref()));
            let fields = map.iter().map(|(k, v)| (Key::from(k.as_str()), cel(v, of(k))));
            Cel::Map(Map { map: Arc::new(fields.collect()) })
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn schema(rules: Value) -> Schema {
        Schema::parse(&json!({
            "type": "object", "x-kubernetes-validations": rules,
            "properties": {"a": {"type": "integer"}, "b": {"type": "number"}, "l": {"type": "array", "items": {"type": "string"}}},
        }))
    }

    fn said(rules: Value, value: Value, old: Option<Value>) -> Vec<String> {
        let mut out = Vec::new();
        schema(rules).broken_rules("spec", &value, old.as_ref(), &mut out);
        out.into_iter().map(|c| format!("{}: {}", c.field, c.message)).collect()
    }

    #[test]
    fn a_broken_rule_says_its_message_where_it_points() {
        let rules = json!([
            {"rule": "!has(self.a) || self.a < 5", "message": "a is large"},
            {"rule": "!has(self.b) || self.b >= 0.5"},
            {"rule": "!has(self.l) || self.l.all(x, x.size() > 1)", "fieldPath": ".l", "reason": "FieldValueForbidden",
             "messageExpression": "'of ' + string(self.l.size())"},
        ]);
        assert!(said(rules.clone(), json!({"a": 4, "b": 1, "l": ["xx"]}), None).is_empty());
        assert_eq!(
            said(rules, json!({"a": 5, "b": 0, "l": ["x"]}), None),
            [
                "spec: Invalid value: a is large",
                "spec: Invalid value: failed rule: !has(self.b) || self.b >= 0.5",
                "spec.l: Forbidden: of 1"
            ]
        );
    }

    #[test]
    fn what_stayed_as_it_was_is_only_asked_by_rules_that_look_back() {
        let rules = json!([{"rule": "self.a < 5"}, {"rule": "self.a >= oldSelf.a", "message": "never less"}]);
        assert!(said(rules.clone(), json!({"a": 9}), Some(json!({"a": 9}))).is_empty());
        assert_eq!(said(rules.clone(), json!({"a": 3}), Some(json!({"a": 4}))), ["spec: Invalid value: never less"]);
        assert_eq!(said(rules, json!({"a": 9}), None), ["spec: Invalid value: failed rule: self.a < 5"]);
    }

    #[test]
    fn a_rule_that_is_not_built_is_named() {
        let mut out = Vec::new();
        schema(json!([{"rule": "isURL(self.a)"}, {"rule": "self.a > 1"}])).unbuilt_rules(&mut out);
        assert_eq!(out, ["isURL(self.a)"]);
    }
}
