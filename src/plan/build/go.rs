//! How Go writes strings, JSON and numbers where KubeRay lets it: users' shells and Ray see these texts.
//! Must not know what they are for.

use std::fmt::Write;

use serde_json::Value;

/// A Go string literal (`%q`): quotes, backslashes and control characters escaped, nothing else: `$` stays.
pub(super) fn quoted(text: &str) -> String {
    let mut out = String::from("\"");
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\u{7}' => out.push_str("\\a"),
            '\u{8}' => out.push_str("\\b"),
            '\u{b}' => out.push_str("\\v"),
            '\u{c}' => out.push_str("\\f"),
            c if (c as u32) < 0x20 || c == '\u{7f}' => push_escape(&mut out, format_args!("\\x{:02x}", c as u32)),
            c if c.is_control() || (c.is_whitespace() && c != ' ') => {
                push_escape(&mut out, format_args!("\\u{:04x}", c as u32));
            }
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

fn push_escape(out: &mut String, escape: std::fmt::Arguments<'_>) {
    // Writing to a String cannot fail.
    let _ = out.write_fmt(escape);
}

/// Go's JSON: keys sorted, no spaces, `<`, `>` and `&` escaped, whole numbers without a point.
pub(super) fn json(value: &Value) -> String {
    let mut out = String::new();
    for c in whole_numbers(value).to_string().chars() {
        match c {
            '<' => out.push_str("\\u003c"),
            '>' => out.push_str("\\u003e"),
            '&' => out.push_str("\\u0026"),
            '\u{2028}' => out.push_str("\\u2028"),
            '\u{2029}' => out.push_str("\\u2029"),
            c => out.push(c),
        }
    }
    out
}

fn whole_numbers(value: &Value) -> Value {
    match value {
        Value::Number(n) => n.as_f64().filter(|_| n.is_f64()).map_or_else(|| value.clone(), number),
        Value::Array(list) => Value::Array(list.iter().map(whole_numbers).collect()),
        Value::Object(map) => Value::Object(map.iter().map(|(k, v)| (k.clone(), whole_numbers(v))).collect()),
        _ => value.clone(),
    }
}

/// A number as Go writes a float: 4, not 4.0.
pub(super) fn number(n: f64) -> Value {
    if n.fract() == 0.0 && n.abs() < 1e15 { Value::from(n as i64) } else { Value::from(n) }
}

/// Whether a Ray version is at least (major, minor, patch); `None` where it cannot be read (specs/raycluster.md 1.11):
/// optional spaces and `v`, two or three numbers with dots, any trailing text.
pub fn version_at_least(version: &str, wanted: (u64, u64, u64)) -> Option<bool> {
    let text = version.trim();
    let text = text.strip_prefix('v').unwrap_or(text);
    let mut numbers = Vec::new();
    let mut rest = text;
    loop {
        let end = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
        if end == 0 {
            break;
        }
        numbers.push(rest[..end].parse::<u64>().ok()?);
        match rest[end..].strip_prefix('.') {
            Some(more) => rest = more,
            None => break,
        }
    }
    if numbers.len() < 2 || (text.len() > 1 && text.starts_with('0') && text.as_bytes()[1].is_ascii_digit()) {
        return None;
    }
    let at = |i: usize| numbers.get(i).copied().unwrap_or(0);
    Some((at(0), at(1), at(2)) >= wanted)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json as value;

    #[test]
    fn text_is_quoted_as_go_does() {
        assert_eq!(quoted("a \"b\" \\ $X\n"), r#""a \"b\" \\ $X\n""#);
        assert_eq!(json(&value!({"b": "<x>", "a": 1.0})), r#"{"a":1,"b":"\u003cx\u003e"}"#);
        assert_eq!(number(0.5), value!(0.5));
    }

    #[test]
    fn versions_are_read_as_kuberay_reads_them() {
        assert_eq!(version_at_least("2.53.0rc1", (2, 53, 0)), Some(true));
        assert_eq!(version_at_least(" v2.52", (2, 53, 0)), Some(false));
        assert_eq!(version_at_least("nightly", (2, 53, 0)), None);
        assert_eq!(version_at_least("2", (2, 53, 0)), None);
        assert_eq!(version_at_least("", (2, 53, 0)), None);
    }
}
