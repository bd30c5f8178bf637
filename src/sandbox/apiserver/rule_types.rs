//! Rules in CEL against the types of their schema, when a definition is written: fields that are not there, names that
//! nobody declares, comparisons of what cannot be equal. Must not know values.
//!
//! What cannot be told for sure is taken for right: a real server knows more of a rule's types than this does.

use cel::Program;
use cel::common::ast::{EntryExpr, Expr, IdedExpr, LiteralValue, SourceInfo};
use serde_json::Value;

use super::cause::Cause;

/// Names that stand for types.
const TYPES: &[&str] =
    &["bool", "bytes", "double", "dyn", "int", "list", "map", "null_type", "string", "type", "uint", "optional"];
/// Operators that compare two values of one type.
const COMPARISONS: &[&str] = &["_==_", "_!=_", "_<_", "_<=_", "_>_", "_>=_"];
/// What Kubernetes lets rules see of an object's metadata.
const METADATA: &[&str] = &["name", "generateName"];

/// What is known of an expression.
#[derive(Clone, Copy)]
enum Type<'a> {
    /// A value that this schema describes.
    Of(&'a Value),
    /// The metadata of a whole object.
    Metadata,
    /// A scalar, by CEL's name of its type.
    Scalar(&'static str),
    /// Anything.
    Any,
}

/// What is wrong with the rules of a schema and of those below it. `at` is the schema's path in the definition.
pub(super) fn check(schema: &Value, at: &str, root: bool, out: &mut Vec<Cause>) {
    for (i, rule) in schema["x-kubernetes-validations"].as_array().into_iter().flatten().enumerate() {
        let text = rule["rule"].as_str().unwrap_or_default();
        let Ok(program) = Program::compile(text) else { continue };
        let mut walk = Walk { schema, root, info: program.source_info(), variables: Vec::new(), wrong: Vec::new() };
        walk.expression(program.expression());
        walk.wrong.sort_by_key(|(place, _)| *place);
        let told: Vec<String> = walk.wrong.iter().map(|(place, what)| told(text, *place, what)).collect();
        if !told.is_empty() {
            out.push(Cause {
                reason: "FieldValueInvalid",
                message: format!("Invalid value: {}: compilation failed: {}", in_go(rule), told.join("\n")),
                field: format!("{at}.x-kubernetes-validations[{i}].rule"),
            });
        }
    }
    for (name, below) in schema["properties"].as_object().into_iter().flatten() {
        check(below, &format!("{at}.properties[{name}]"), false, out);
    }
    for inner in ["additionalProperties", "items"] {
        if schema[inner].is_object() {
            check(&schema[inner], &format!("{at}.{inner}"), false, out);
        }
    }
}

/// The rule as the server's own struct prints.
fn in_go(rule: &Value) -> String {
    let text = |key: &str| Value::from(rule[key].as_str().unwrap_or_default());
    format!(
        "{{\"Rule\":{},\"Message\":{},\"MessageExpression\":{},\"Reason\":{},\"FieldPath\":{},\"OptionalOldSelf\":{}}}",
        text("rule"),
        text("message"),
        text("messageExpression"),
        rule["reason"],
        text("fieldPath"),
        rule["optionalOldSelf"]
    )
}

/// A mistake with its place, as the compiler shows it: line, column, the line itself and a pointer.
fn told(text: &str, place: usize, what: &str) -> String {
    let before = text.get(..place).unwrap_or_default();
    let line = before.matches('\n').count();
    let column = before.rsplit('\n').next().unwrap_or_default().chars().count();
    let shown = text.split('\n').nth(line).unwrap_or_default();
    format!("ERROR: <input>:{}:{}: {what}\n | {shown}\n | {}^", line + 1, column + 1, ".".repeat(column))
}

struct Walk<'a> {
    schema: &'a Value,
    /// Whether the schema is that of a whole object.
    root: bool,
    info: &'a SourceInfo,
    variables: Vec<(&'a str, Type<'a>)>,
    /// Place in the text, and what is wrong there.
    wrong: Vec<(usize, String)>,
}

impl<'a> Walk<'a> {
    fn mistake(&mut self, at: &IdedExpr, what: String) {
        // What a macro was made into has no place of its own: nothing is said of it.
        if let Some((place, _)) = self.info.offset_for(at.id) {
            self.wrong.push((place as usize, what));
        }
    }

    fn expression(&mut self, one: &'a IdedExpr) -> Type<'a> {
        match &one.expr {
            Expr::Ident(name) => self.name(one, name),
            Expr::Select(select) => {
                let operand = self.expression(&select.operand);
                self.field(one, operand, &select.field)
            }
            Expr::Call(call) => {
                let target = call.target.as_ref().map(|target| self.expression(target));
                let types: Vec<Type<'a>> = call.args.iter().map(|arg| self.expression(arg)).collect();
                self.call(one, &call.func_name, target, &types)
            }
            Expr::Comprehension(loop_) => {
                let range = self.expression(&loop_.iter_range);
                self.expression(&loop_.accu_init);
                let known = self.variables.len();
                let (first, second) = elements(range, loop_.iter_var2.is_some());
                self.variables.push((&loop_.accu_var, Type::Any));
                self.variables.push((&loop_.iter_var, first));
                self.variables.extend(loop_.iter_var2.as_deref().map(|name| (name, second)));
                self.expression(&loop_.loop_cond);
                self.expression(&loop_.loop_step);
                self.expression(&loop_.result);
                self.variables.truncate(known);
                Type::Any
            }
            Expr::List(list) => {
                for element in &list.elements {
                    self.expression(element);
                }
                Type::Any
            }
            Expr::Map(map) => {
                self.entries(map.entries.iter().map(|entry| &entry.expr));
                Type::Any
            }
            Expr::Struct(value) => {
                self.entries(value.entries.iter().map(|entry| &entry.expr));
                Type::Any
            }
            Expr::Literal(value) => match value {
                LiteralValue::Boolean(_) => Type::Scalar("bool"),
                LiteralValue::Int(_) => Type::Scalar("int"),
                LiteralValue::String(_) => Type::Scalar("string"),
                _ => Type::Any,
            },
            Expr::Unspecified => Type::Any,
        }
    }

    fn entries(&mut self, all: impl Iterator<Item = &'a EntryExpr>) {
        for entry in all {
            match entry {
                EntryExpr::StructField(field) => {
                    self.expression(&field.value);
                }
                EntryExpr::MapEntry(entry) => {
                    self.expression(&entry.key);
                    self.expression(&entry.value);
                }
            }
        }
    }

    fn name(&mut self, one: &IdedExpr, name: &'a str) -> Type<'a> {
        if let Some((_, found)) = self.variables.iter().rev().find(|(variable, _)| *variable == name) {
            return *found;
        }
        match name {
            "self" | "oldSelf" => Type::Of(self.schema),
            _ if TYPES.contains(&name) || name.starts_with(['@', '#', '.']) => Type::Any,
            _ => {
                self.mistake(one, format!("undeclared reference to '{name}' (in container '')"));
                Type::Any
            }
        }
    }

    fn field(&mut self, one: &IdedExpr, operand: Type<'a>, field: &str) -> Type<'a> {
        match operand {
            Type::Of(schema) => {
                let whole = self.root && std::ptr::eq(schema, self.schema) || is_embedded(schema);
                if whole && ["apiVersion", "kind"].contains(&field) {
                    return Type::Scalar("string");
                }
                if whole && field == "metadata" {
                    return Type::Metadata;
                }
                if schema["additionalProperties"].is_object() {
                    return Type::Of(&schema["additionalProperties"]);
                }
                match (schema["properties"].as_object(), scalar(schema)) {
                    (Some(fields), _) => {
                        let found = fields.get(&unescaped(field));
                        if found.is_none() {
                            self.mistake(one, format!("undefined field '{field}'"));
                        }
                        found.map_or(Type::Any, Type::Of)
                    }
                    (None, _) if is_bare(schema) => {
                        self.mistake(one, format!("undefined field '{field}'"));
                        Type::Any
                    }
                    (None, Some(kind)) => {
                        self.mistake(one, format!("type '{kind}' does not support field selection"));
                        Type::Any
                    }
                    _ => Type::Any,
                }
            }
            Type::Metadata if METADATA.contains(&field) => Type::Scalar("string"),
            Type::Metadata => {
                self.mistake(one, format!("undefined field '{field}'"));
                Type::Any
            }
            Type::Scalar(kind) => {
                self.mistake(one, format!("type '{kind}' does not support field selection"));
                Type::Any
            }
            Type::Any => Type::Any,
        }
    }

    fn call(&mut self, one: &IdedExpr, name: &str, target: Option<Type<'a>>, types: &[Type<'a>]) -> Type<'a> {
        match (name, types) {
            ("_[_]", [Type::Of(schema), _]) => {
                let inner = ["items", "additionalProperties"].into_iter().find(|inner| schema[*inner].is_object());
                inner.map_or(Type::Any, |inner| Type::Of(&schema[inner]))
            }
            ("_?_:_", [_, Type::Of(schema), _]) => Type::Of(schema),
            (_, [one_type, other]) if COMPARISONS.contains(&name) && target.is_none() => {
                if let (Some(left), Some(right)) = (plain(*one_type), plain(*other))
                    && left != right
                    && !(name.len() == 4 && name != "_==_" && numbers(left, right))
                    && !(name.len() == 5 && numbers(left, right))
                {
                    self.mistake(
                        one,
                        format!("found no matching overload for '{name}' applied to '({left}, {right})'"),
                    );
                }
                Type::Scalar("bool")
            }
            ("size", _) => Type::Scalar("int"),
            ("!_" | "_&&_" | "_||_" | "_in_" | "@in" | "startsWith" | "endsWith" | "contains" | "matches", _) => {
                Type::Scalar("bool")
            }
            _ => Type::Any,
        }
    }
}

/// Whether two types are both of numbers: they can be put in order.
fn numbers(left: &str, right: &str) -> bool {
    let number = |kind: &str| matches!(kind, "int" | "double" | "uint");
    number(left) && number(right)
}

/// What a loop's variables stand for.
fn elements(range: Type<'_>, two: bool) -> (Type<'_>, Type<'_>) {
    let Type::Of(schema) = range else { return (Type::Any, Type::Any) };
    match (schema["items"].is_object(), schema["additionalProperties"].is_object()) {
        (true, _) if two => (Type::Scalar("int"), Type::Of(&schema["items"])),
        (true, _) => (Type::Of(&schema["items"]), Type::Any),
        (_, true) => (Type::Scalar("string"), Type::Of(&schema["additionalProperties"])),
        _ => (Type::Any, Type::Any),
    }
}

/// An object of no fields.
fn is_bare(schema: &Value) -> bool {
    schema["type"] == "object" && schema["x-kubernetes-preserve-unknown-fields"] != true
}

fn is_embedded(schema: &Value) -> bool {
    schema["x-kubernetes-embedded-resource"] == true
}

/// CEL's name of a scalar's type, where it is certain: a format may make it another one.
fn scalar(schema: &Value) -> Option<&'static str> {
    if schema["x-kubernetes-int-or-string"] == true || schema["nullable"] == true {
        return None;
    }
    match (schema["type"].as_str()?, schema["format"].as_str()) {
        ("string", None) => Some("string"),
        ("integer", None | Some("int32" | "int64")) => Some("int"),
        ("number", None | Some("float" | "double")) => Some("double"),
        ("boolean", _) => Some("bool"),
        _ => None,
    }
}

fn plain(of: Type<'_>) -> Option<&'static str> {
    match of {
        Type::Of(schema) => scalar(schema),
        Type::Scalar(kind) => Some(kind),
        Type::Metadata | Type::Any => None,
    }
}

/// A field's name as the schema has it: words and signs that CEL has no room for are written otherwise in rules.
fn unescaped(field: &str) -> String {
    let inner = field.strip_prefix("__").and_then(|rest| rest.strip_suffix("__"));
    if let Some(word) = inner.filter(|word| !word.is_empty() && word.chars().all(|c| c.is_ascii_lowercase())) {
        let signs = ["dot", "dash", "slash", "underscores"];
        if !signs.contains(&word) {
            return word.to_owned();
        }
    }
    field.replace("__dot__", ".").replace("__dash__", "-").replace("__slash__", "/").replace("__underscores__", "__")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_object_that_names_no_fields_has_none() {
        let rules = json!([{"rule": "self.nope == 1"}]);
        let mut out = Vec::new();
        check(&json!({"type": "object", "x-kubernetes-validations": rules}), "s", false, &mut out);
        let whole = "Invalid value: {\"Rule\":\"self.nope == 1\",\"Message\":\"\",\"MessageExpression\":\"\",\"Reason\":null,\
                     \"FieldPath\":\"\",\"OptionalOldSelf\":null}: compilation failed: ERROR: <input>:1:5: undefined field \
                     'nope'\n | self.nope == 1\n | ....^";
        assert_eq!(out[0].message, whole);
        let open =
            json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true, "x-kubernetes-validations": rules});
        check(&open, "s", false, &mut out);
        assert_eq!(out.len(), 1);
    }

    fn wrong(rule: &str) -> Vec<String> {
        let schema = json!({"type": "object", "properties": {"spec": {
            "type": "object", "x-kubernetes-validations": [{"rule": rule}],
            "properties": {
                "a": {"type": "integer"}, "t": {"type": "string"}, "in": {"type": "boolean"}, "d": {"type": "string", "format": "date-time"},
                "list": {"type": "array", "items": {"type": "object", "properties": {"x": {"type": "integer"}}}},
                "map": {"type": "object", "additionalProperties": {"type": "string"}},
                "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
            },
        }}});
        let mut out = Vec::new();
        check(&schema, "s", true, &mut out);
        out.into_iter().map(|cause| cause.message.split("compilation failed: ").nth(1).unwrap().to_owned()).collect()
    }

    #[test]
    fn a_field_that_is_not_there_is_named_where_it_stands() {
        assert_eq!(
            wrong("self.nope == 1"),
            ["ERROR: <input>:1:5: undefined field 'nope'\n | self.nope == 1\n | ....^"]
        );
        assert!(wrong("self.list.all(e, e.y > 1)")[0].contains("undefined field 'y'"));
        assert!(wrong("nobody == 1")[0].contains("1:1: undeclared reference to 'nobody' (in container '')"));
        assert!(wrong("self.a.b == 1")[0].contains("type 'int' does not support field selection"));
        assert!(wrong("self.a == 'x'")[0].contains("found no matching overload for '_==_' applied to '(int, string)'"));
    }

    #[test]
    fn what_is_right_or_cannot_be_told_passes() {
        for rule in [
            "self.a > 1 && self.t.size() > self.a",
            "self.list.all(e, e.x > 1) && self.list[0].x == 2",
            "self.map.all(k, self.map[k] == 'x' && k != '') && self.map.any == 'y'",
            "self.free.anything == 1",
            "self.__in__ || has(self.d) && self.d > timestamp('2026-01-01T00:00:00Z')",
            "self == oldSelf",
            "self.a < 1.5",
            "type(self.a) == int",
            "self.list.map(e, e.x).exists_one(n, n == 3)",
        ] {
            assert_eq!(wrong(rule), Vec::<String>::new(), "{rule}");
        }
    }
}
