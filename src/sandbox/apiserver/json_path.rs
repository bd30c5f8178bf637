//! The simple JSON paths of printer columns: fields, elements, `[*]` and one filter of the form `[?(@.a=="b")]`.
//! Must not know columns.

use serde_json::Value;

/// A parsed path.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Path(Vec<Step>);

#[derive(Clone, PartialEq, Eq, Debug)]
enum Step {
    Field(String),
    Element(usize),
    Each,
    Where { path: Path, equals: String },
}

impl Path {
    /// `None` for what is no simple path.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let mut steps = Vec::new();
        let mut rest = text.trim();
        while !rest.is_empty() {
            if let Some(after) = rest.strip_prefix('[') {
                let (inner, tail) = bracket(after)?;
                steps.push(Step::parse(inner)?);
                rest = tail;
            } else {
                rest = rest.strip_prefix('.').unwrap_or(rest);
                let (field, tail) = field(rest);
                if !field.is_empty() {
                    steps.push(Step::Field(field));
                } else if !tail.starts_with('[') && !tail.is_empty() {
                    return None;
                }
                rest = tail;
            }
        }
        Some(Self(steps))
    }

    /// The first value that the path leads to.
    pub(super) fn first<'a>(&self, value: &'a Value) -> Option<&'a Value> {
        follow(&self.0, value)
    }
}

/// A field's name up to the next `.` or `[`; a backslash takes the next character as it is.
fn field(text: &str) -> (String, &str) {
    let mut name = String::new();
    let mut chars = text.char_indices();
    while let Some((i, c)) = chars.next() {
        match c {
            '\\' => name.extend(chars.next().map(|(_, c)| c)),
            '.' | '[' => return (name, &text[i..]),
            _ => name.push(c),
        }
    }
    (name, "")
}

/// What stands before the matching `]`, and what follows it. Brackets within quotes do not count.
fn bracket(text: &str) -> Option<(&str, &str)> {
    let mut quote = None;
    for (i, c) in text.char_indices() {
        match (quote, c) {
            (Some(q), c) if q == c => quote = None,
            (None, '\'' | '"') => quote = Some(c),
            (None, ']') => return Some((&text[..i], &text[i + 1..])),
            _ => {}
        }
    }
    None
}

impl Step {
    fn parse(inner: &str) -> Option<Self> {
        let unquote = |t: &str| {
            let t = t.trim();
            t.strip_prefix(['\'', '"']).and_then(|t| t.strip_suffix(['\'', '"'])).map(str::to_owned)
        };
        if inner == "*" {
            return Some(Self::Each);
        }
        if let Ok(i) = inner.parse() {
            return Some(Self::Element(i));
        }
        if let Some(filter) = inner.strip_prefix("?(").and_then(|t| t.strip_suffix(')')) {
            let (left, right) = filter.split_once("==")?;
            let path = Path::parse(left.trim().strip_prefix('@')?)?;
            return Some(Self::Where { path, equals: unquote(right)? });
        }
        unquote(inner).map(Self::Field)
    }
}

fn follow<'a>(steps: &[Step], value: &'a Value) -> Option<&'a Value> {
    let Some((step, rest)) = steps.split_first() else { return Some(value) };
    match step {
        Step::Field(name) => follow(rest, value.get(name)?),
        Step::Element(i) => follow(rest, value.get(i)?),
        Step::Each => value.as_array()?.iter().find_map(|v| follow(rest, v)),
        Step::Where { path, equals } => {
            let fits = |v: &&Value| path.first(v).and_then(Value::as_str) == Some(equals);
            value.as_array()?.iter().filter(fits).find_map(|v| follow(rest, v))
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn paths_lead_to_their_values() {
        let value = json!({"a": {"b.c": [1, 2]}, "conditions": [{"type": "A", "status": "no"}, {"type": "B", "status": "yes"}]});
        for (path, found) in [
            (r".a['b.c'][1]", json!(2)),
            (r".a.b\.c[0]", json!(1)),
            (r#".conditions[?(@.type=="B")].status"#, json!("yes")),
            (r".conditions[*].status", json!("no")),
        ] {
            assert_eq!(Path::parse(path).unwrap().first(&value), Some(&found), "{path}");
        }
        assert_eq!(Path::parse(".a.none").unwrap().first(&value), None);
        assert_eq!(Path::parse(".a[").map(|_| ()), None);
    }
}
