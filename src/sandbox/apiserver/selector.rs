//! Label and field selectors: how they are written, and which objects they choose.
//! Must not know the store.

use serde_json::Value;

use super::registry::ResourceType;

/// How one requirement compares.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Op {
    In(Vec<String>),
    NotIn(Vec<String>),
    Exists,
    Absent,
    GreaterThan(i64),
    LessThan(i64),
}

/// All of its requirements must hold.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct LabelSelector(Vec<(String, Op)>);

#[derive(Clone, PartialEq, Eq, Debug)]
enum Token {
    Word(String),
    Sign(&'static str),
    End,
}

impl Token {
    fn text(&self) -> &str {
        match self {
            Token::Word(word) => word,
            Token::Sign(sign) => sign,
            Token::End => "",
        }
    }
}

fn tokens(text: &str) -> Vec<Token> {
    const SIGNS: &[&str] = &["==", "!=", "=", "!", "(", ")", ",", ">", "<"];
    let mut out = Vec::new();
    let mut rest = text.trim_start();
    while !rest.is_empty() {
        if let Some(sign) = SIGNS.iter().find(|s| rest.starts_with(**s)) {
            out.push(Token::Sign(sign));
            rest = &rest[sign.len()..];
        } else {
            let end = rest.find(|c: char| c.is_whitespace() || "=!(),<>".contains(c)).unwrap_or(rest.len());
            out.push(Token::Word(rest[..end].to_owned()));
            rest = &rest[end..];
        }
        rest = rest.trim_start();
    }
    out.push(Token::End);
    out
}

struct Parser {
    tokens: Vec<Token>,
    at: usize,
}

impl Parser {
    fn peek(&self) -> &Token {
        &self.tokens[self.at.min(self.tokens.len() - 1)]
    }

    fn next(&mut self) -> Token {
        let token = self.peek().clone();
        self.at += 1;
        token
    }

    /// A value; none at all where the next thing is a comma or the end.
    fn value(&mut self) -> Result<String, String> {
        match self.peek().clone() {
            Token::Word(word) => {
                self.at += 1;
                Ok(word)
            }
            Token::Sign(",") | Token::End => Ok(String::new()),
            other @ Token::Sign(_) => Err(format!("found '{}', expected: identifier", other.text())),
        }
    }

    fn values(&mut self) -> Result<Vec<String>, String> {
        match self.next() {
            Token::Sign("(") => {}
            other => return Err(format!("found '{}' expected: '('", other.text())),
        }
        let mut out = Vec::new();
        if *self.peek() == Token::Sign(")") {
            self.at += 1;
            return Ok(vec![String::new()]);
        }
        loop {
            match self.next() {
                Token::Word(word) => out.push(word),
                Token::Sign(",") => {
                    out.push(String::new());
                    continue;
                }
                other => return Err(format!("found '{}', expected: ',', ')' or identifier", other.text())),
            }
            match self.next() {
                Token::Sign(",") => {}
                Token::Sign(")") => break,
                other => return Err(format!("found '{}', expected: ',' or ')'", other.text())),
            }
        }
        out.sort();
        out.dedup();
        Ok(out)
    }

    fn requirement(&mut self) -> Result<(String, Op), String> {
        let absent = *self.peek() == Token::Sign("!");
        if absent {
            self.at += 1;
        }
        let key = match self.next() {
            Token::Word(word) => word,
            other => return Err(format!("found '{}', expected: identifier", other.text())),
        };
        if absent {
            return Ok((key, Op::Absent));
        }
        if matches!(self.peek(), Token::End | Token::Sign(",")) {
            return Ok((key, Op::Exists));
        }
        let op = self.next();
        let op = match op.text() {
            "=" | "==" => Op::In(vec![self.value()?]),
            "!=" => Op::NotIn(vec![self.value()?]),
            "in" => Op::In(self.values()?),
            "notin" => Op::NotIn(self.values()?),
            ">" | "gt" => Op::GreaterThan(number(&self.value()?)?),
            "<" | "lt" => Op::LessThan(number(&self.value()?)?),
            other => return Err(format!("found '{other}', expected: in, notin, =, ==, !=, gt, lt")),
        };
        Ok((key, op))
    }
}

fn number(text: &str) -> Result<i64, String> {
    text.parse().map_err(|_| {
        format!("values[0][]: Invalid value: \"{text}\": for 'Gt', 'Lt' operators, the value must be an integer")
    })
}

impl LabelSelector {
    /// From a query; the error is the text of the real server.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let mut parser = Parser { tokens: tokens(text), at: 0 };
        let mut out = Vec::new();
        loop {
            match parser.peek().clone() {
                Token::Word(_) | Token::Sign("!") => {
                    let requirement = parser.requirement().map_err(|e| format!("unable to parse requirement: {e}"))?;
                    out.push(requirement);
                    match parser.next() {
                        Token::End => break,
                        Token::Sign(",") => match parser.peek() {
                            Token::Word(_) | Token::Sign("!") => {}
                            other => return Err(format!("found '{}', expected: identifier after ','", other.text())),
                        },
                        other => return Err(format!("found '{}', expected: ',' or 'end of string'", other.text())),
                    }
                }
                Token::End => break,
                other @ Token::Sign(_) => {
                    return Err(format!("found '{}', expected: !, identifier, or 'end of string'", other.text()));
                }
            }
        }
        Ok(Self(out))
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether the object's labels fulfil it.
    pub(super) fn matches(&self, object: &Value) -> bool {
        if self.0.is_empty() {
            return true;
        }
        let labels = object.get("metadata").and_then(|m| m.get("labels"));
        self.0.iter().all(|(key, op)| {
            let label = labels.and_then(|l| l.get(key)).and_then(Value::as_str);
            match op {
                Op::In(values) => label.is_some_and(|l| values.iter().any(|v| v == l)),
                Op::NotIn(values) => label.is_none_or(|l| values.iter().all(|v| v != l)),
                Op::Exists => label.is_some(),
                Op::Absent => label.is_none(),
                Op::GreaterThan(bound) => label.and_then(|l| l.parse::<i64>().ok()).is_some_and(|l| l > *bound),
                Op::LessThan(bound) => label.and_then(|l| l.parse::<i64>().ok()).is_some_and(|l| l < *bound),
            }
        })
    }
}

/// One requirement on a field.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Field {
    /// As written: `spec.nodeName`.
    label: String,
    /// Where it stands in the object.
    path: String,
    /// What an object without the field counts as.
    default: String,
    equal: bool,
    value: String,
}

/// All of its requirements must hold.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct FieldSelector(Vec<Field>);

impl FieldSelector {
    /// From a query, with the fields that the type knows; the error is the text of the real server.
    pub(super) fn parse(text: &str, ty: &ResourceType) -> Result<Self, String> {
        let mut out = Vec::new();
        for part in text.split(',').filter(|p| !p.is_empty()) {
            let (label, equal, value) = if let Some((f, v)) = part.split_once("!=") {
                (f, false, v)
            } else if let Some((f, v)) = part.split_once("==") {
                (f, true, v)
            } else if let Some((f, v)) = part.split_once('=') {
                (f, true, v)
            } else {
                return Err(format!("invalid selector: '{text}'; can't understand '{part}'"));
            };
            let known = ty.selectable_fields.iter().find(|f| f.label == label);
            let (path, default) = match known {
                Some(field) => (field.path.clone(), field.default.clone()),
                None if label == "metadata.name" || label == "metadata.namespace" => (label.to_owned(), String::new()),
                // Types with fields of their own refuse in other words than those without.
                None if ty.builtin && ty.selectable_fields.is_empty() => {
                    return Err(format!(
                        "\"{label}\" is not a known field selector: only \"metadata.name\", \"metadata.namespace\""
                    ));
                }
                None => return Err(format!("field label not supported: {label}")),
            };
            out.push(Field { label: label.to_owned(), path, default, equal, value: value.to_owned() });
        }
        Ok(Self(out))
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The name that objects must have, where it asks for exactly one.
    pub(super) fn exact_name(&self) -> Option<&str> {
        self.0.iter().find(|f| f.label == "metadata.name" && f.equal).map(|f| f.value.as_str())
    }

    /// Whether the object's fields fulfil it.
    pub(super) fn matches(&self, object: &Value) -> bool {
        self.0.iter().all(|field| {
            let found = field.path.split('.').try_fold(object, |at, part| at.get(part));
            let equal = match found {
                Some(Value::String(text)) => *text == field.value,
                None | Some(Value::Null) => field.default == field.value,
                Some(Value::Bool(flag)) => field.value == if *flag { "true" } else { "false" },
                Some(Value::Number(number)) => field.value.parse::<f64>().ok() == number.as_f64(),
                Some(_) => false,
            };
            equal == field.equal
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn label_selectors_choose_as_written() {
        let object = json!({"metadata": {"labels": {"e": "x", "t": "1"}}});
        for (text, expected) in [
            ("", true),
            ("e=x", true),
            ("e==x,t!=2", true),
            ("e!=x", false),
            ("e in (x, y)", true),
            ("e notin (x)", false),
            ("e", true),
            ("!e", false),
            ("!n", true),
            ("n!=1", true),
            ("t>0", true),
            ("t<1", false),
            ("e in ()", false),
            ("n=", false),
        ] {
            assert_eq!(LabelSelector::parse(text).unwrap().matches(&object), expected, "{text}");
        }
        assert_eq!(
            LabelSelector::parse("a b").unwrap_err(),
            "unable to parse requirement: found 'b', expected: in, notin, =, ==, !=, gt, lt"
        );
    }
}
