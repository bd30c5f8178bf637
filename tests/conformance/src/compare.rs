//! Compares a recorded answer, in which placeholders stand for values of the recorded server, with one of ours.
//! Must not know requests.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::{bulk, scope};

/// Which of our values stand for the placeholders of a case so far.
#[derive(Default)]
pub(crate) struct Bound {
    values: BTreeMap<String, String>,
    /// Random suffixes by what was asked.
    pub random: BTreeMap<String, String>,
    last_random: Option<String>,
}

/// A comparison under way: what differs, and which explained differences were met.
#[derive(Default)]
pub(crate) struct Findings {
    pub differences: Vec<String>,
    pub explained: Vec<&'static str>,
}

impl Findings {
    pub(crate) fn differ(&mut self, what: String) {
        self.differences.push(what);
    }

    pub(crate) fn explain(&mut self, why: &'static str) {
        if !self.explained.contains(&why) {
            self.explained.push(why);
        }
    }
}

/// A piece of recorded text.
enum Piece<'a> {
    Text(&'a str),
    Placeholder(&'a str),
}

const CLASSES: &[&str] = &["rv", "uid", "time", "continue", "clusterIP", "nodePort", "rand", "jwt", "hash", "server"];

fn pieces(text: &str) -> Vec<Piece<'_>> {
    let mut out = Vec::new();
    let mut rest = text;
    let mut from = 0;
    while let Some(start) = rest[from..].find('<').map(|i| i + from) {
        let inner = rest[start + 1..].find('>').map(|end| &rest[start + 1..start + 1 + end]);
        let known = inner.filter(|i| CLASSES.contains(&i.split(':').next().unwrap_or_default()));
        let Some(inner) = known else {
            from = start + 1;
            continue;
        };
        if start > 0 {
            out.push(Piece::Text(&rest[..start]));
        }
        let end = start + inner.len() + 2;
        out.push(Piece::Placeholder(&rest[start..end]));
        rest = &rest[end..];
        from = 0;
    }
    if !rest.is_empty() {
        out.push(Piece::Text(rest));
    }
    out
}

/// Length of what may stand for a placeholder at the beginning of a text.
fn extent(placeholder: &str, text: &str) -> usize {
    let class = placeholder.trim_start_matches('<').split([':', '>']).next().unwrap_or_default();
    let fits = |c: char| match class {
        "rv" | "nodePort" => c.is_ascii_digit(),
        "uid" => c.is_ascii_hexdigit() || c == '-',
        "time" => c.is_ascii_digit() || "-:.TZ".contains(c),
        "continue" | "jwt" => c.is_ascii_alphanumeric() || "-_=.".contains(c),
        "clusterIP" => c.is_ascii_digit() || c == '.',
        "rand" => c.is_ascii_lowercase() || c.is_ascii_digit(),
        "server" | "hash" => c.is_ascii_alphanumeric() || ".:-+/=".contains(c),
        _ => false,
    };
    let whole = text.find(|c| !fits(c)).unwrap_or(text.len());
    if class == "rand" { whole.min(5) } else { whole }
}

impl Bound {
    /// Our value for a placeholder, if it is known.
    pub(crate) fn get(&self, placeholder: &str) -> Option<&str> {
        self.values.get(placeholder).map(String::as_str)
    }

    /// Recorded text with our values; `None` where one is not known.
    pub(crate) fn filled(&self, text: &str, time: &str, random: &str) -> Option<String> {
        let mut out = String::new();
        for piece in pieces(text) {
            match piece {
                Piece::Text(text) => out.push_str(text),
                Piece::Placeholder("<time>") => out.push_str(time),
                Piece::Placeholder("<rand>") => out.push_str(random),
                // An address that the recording's server gave to somebody else.
                Piece::Placeholder(p) if p.starts_with("<clusterIP") => {
                    out.push_str(self.get(p).unwrap_or("10.96.200.200"));
                }
                Piece::Placeholder(p) => out.push_str(self.get(p)?),
            }
        }
        Some(out)
    }

    /// The suffix met in the comparison since the last call.
    pub(crate) fn take_random(&mut self) -> Option<String> {
        self.last_random.take()
    }

    /// Whether our text is the recorded one.
    pub(crate) fn text(&mut self, expected: &str, found: &str) -> bool {
        if !expected.contains('<') {
            return expected == found;
        }
        let mut rest = found;
        for piece in pieces(expected) {
            match piece {
                Piece::Text(text) => match rest.strip_prefix(text) {
                    Some(after) => rest = after,
                    None => return false,
                },
                Piece::Placeholder(placeholder) => {
                    let length = extent(placeholder, rest);
                    if length == 0 || !self.bind(placeholder, &rest[..length]) {
                        return false;
                    }
                    rest = &rest[length..];
                }
            }
        }
        rest.is_empty()
    }

    fn bind(&mut self, placeholder: &str, value: &str) -> bool {
        match placeholder {
            "<rand>" => {
                self.last_random = Some(value.to_owned());
                return true;
            }
            "<time>" | "<nodePort>" | "<jwt>" | "<hash>" | "<server>" => return true,
            _ => {}
        }
        match self.values.get(placeholder) {
            Some(bound) => bound == value,
            None if placeholder.starts_with("<rv:") => self.bind_version(placeholder, value),
            None => {
                self.values.insert(placeholder.to_owned(), value.to_owned());
                true
            }
        }
    }

    /// A later version must be larger.
    fn bind_version(&mut self, placeholder: &str, value: &str) -> bool {
        let number = |p: &str| p.trim_start_matches("<rv:").trim_end_matches('>').parse::<u64>().unwrap_or_default();
        let (n, v) = (number(placeholder), value.parse::<u64>().unwrap_or_default());
        let ordered = self.values.iter().filter(|(p, _)| p.starts_with("<rv:")).all(|(p, bound)| {
            let bound = bound.parse::<u64>().unwrap_or_default();
            // Two placeholders may be one version here where the recorded server counted writes of others.
            (number(p) < n) == (bound < v) || bound == v
        });
        if ordered {
            self.values.insert(placeholder.to_owned(), value.to_owned());
        }
        ordered
    }

    /// The version of a list: any one between the last write to the kind and the last write at all.
    fn list_version(&mut self, expected: &str, found: &str) -> bool {
        let v = found.parse::<u64>().unwrap_or_default();
        match self.get(expected).map(|bound| bound.parse::<u64>().unwrap_or_default()) {
            Some(bound) => bound <= v,
            None => self.text(expected, found),
        }
    }

    /// Compares two values; `at` is the path to them.
    pub(crate) fn value(&mut self, at: &str, expected: &Value, found: &Value, out: &mut Findings) {
        match (expected, found) {
            (Value::Object(a), Value::Object(b)) => {
                let is_list = a.get("items").is_some_and(Value::is_array) || a.get("rows").is_some_and(Value::is_array);
                let several = a.get("causes").and_then(Value::as_array).is_some_and(|c| c.len() > 1);
                for (key, expected) in a {
                    let path = format!("{at}.{key}");
                    if key == "description" && at.contains(".columnDefinitions[") {
                        out.explain(scope::DESCRIPTIONS);
                        continue;
                    }
                    if key == "__bytes__" {
                        out.explain(scope::PROTOBUF);
                        return;
                    }
                    // Ports are the allocator's choice; the recordings keep some of them as they were.
                    if key == "nodePort" && b.get(key).is_some_and(Value::is_number) {
                        continue;
                    }
                    let Some(found) = b.get(key) else {
                        out.differ(format!("{path}: missing, recorded {expected}"));
                        continue;
                    };
                    if is_list && key == "metadata" {
                        self.list_metadata(&path, expected, found, out);
                    } else if several && key == "causes" {
                        self.unordered(&path, expected, found, out);
                    } else {
                        self.value(&path, expected, found, out);
                    }
                }
                for (key, found) in b.iter().filter(|(k, _)| !a.contains_key(*k)) {
                    // Left out of most recordings.
                    if key == "managedFields" && at.ends_with("metadata") {
                        continue;
                    }
                    out.differ(format!("{at}.{key}: not in the recording, ours {found}"));
                }
            }
            (Value::String(a), Value::String(b)) if at.contains(".cells[") && is_age(a) && is_age(b) => {}
            (Value::Array(a), Value::Array(b)) => {
                if a.len() != b.len() {
                    out.differ(format!("{at}: recorded {} elements, ours {}: {found}", a.len(), b.len()));
                }
                for (i, (expected, found)) in a.iter().zip(b).enumerate() {
                    self.value(&format!("{at}[{i}]"), expected, found, out);
                }
            }
            (Value::String(a), Value::String(b)) => {
                // After what may change, the real server prints a difference of its own structures.
                let (a, b) = match a.split_once("\n@@ ") {
                    Some((shown, _)) => {
                        out.explain(scope::GO);
                        (&shown.to_owned(), &b.trim_end().to_owned())
                    }
                    None => (a, b),
                };
                let equal = bulk::cut(a, b).unwrap_or_else(|| self.text(a, b))
                    || (at.ends_with(".message") && same_letters(self, a, b));
                if !equal {
                    out.differ(format!("{at}: recorded {a:?}, ours {b:?}"));
                }
            }
            (Value::String(a), Value::Number(b)) if a.starts_with('<') && self.text(a, &b.to_string()) => {}
            (Value::Number(a), Value::Number(b)) if a.as_f64() == b.as_f64() => {}
            _ if expected == found => {}
            _ => out.differ(format!("{at}: recorded {expected}, ours {found}")),
        }
    }

    fn list_metadata(&mut self, at: &str, expected: &Value, found: &Value, out: &mut Findings) {
        let (mut expected, mut found) = (expected.clone(), found.clone());
        let version = |v: &mut Value| v.as_object_mut().and_then(|m| m.remove("resourceVersion"));
        if let (Some(Value::String(a)), Some(Value::String(b))) = (version(&mut expected), version(&mut found))
            && !self.list_version(&a, &b)
        {
            out.differ(format!("{at}.resourceVersion: recorded {a} ({:?}), ours {b}", self.get(&a)));
        }
        self.value(at, &expected, &found, out);
    }

    /// Each recorded element has an equal one here; their order is free.
    fn unordered(&mut self, at: &str, expected: &Value, found: &Value, out: &mut Findings) {
        let mut left: Vec<&Value> = found.as_array().into_iter().flatten().collect();
        for expected in expected.as_array().into_iter().flatten() {
            let place = left.iter().position(|f| {
                let mut trial = Findings::default();
                self.value(at, expected, f, &mut trial);
                trial.differences.is_empty()
            });
            match place {
                Some(place) => drop(left.remove(place)),
                None => out.differ(format!("{at}: missing {expected}, ours {found}")),
            }
        }
        for extra in left {
            out.differ(format!("{at}: not in the recording, ours {extra}"));
        }
    }
}

/// How long ago something was, as tables show it.
fn is_age(text: &str) -> bool {
    text.ends_with(['s', 'm', 'h', 'd', 'y']) && text.starts_with(|c: char| c.is_ascii_digit())
}

/// Messages that list several causes do so in any order.
fn same_letters(bound: &Bound, expected: &str, found: &str) -> bool {
    let Some(expected) = bound.filled(expected, "<time>", "<rand>") else { return false };
    if !expected.contains('[') {
        return false;
    }
    let sorted = |text: &str| {
        let mut parts: Vec<String> =
            text.replace(['[', ']'], ", ").split(", ").map(|p| p.trim().to_owned()).filter(|p| !p.is_empty()).collect();
        parts.sort();
        parts
    };
    sorted(&expected) == sorted(found)
}

/// Text without `managedFields` and the comma that goes with it.
pub(crate) fn without_managed_fields(text: &str) -> Option<String> {
    let start = text.find("\"managedFields\"")?;
    let mut depth = 0;
    let mut end = start;
    for (i, c) in text[start..].char_indices() {
        match c {
            '[' => depth += 1,
            ']' => {
                depth -= 1;
                if depth == 0 {
                    end = start + i + 1;
                    break;
                }
            }
            _ => {}
        }
    }
    let (before, after) = (&text[..start], &text[end..]);
    let out = match after.strip_prefix(',') {
        Some(rest) => format!("{before}{}", rest.trim_start()),
        None => format!("{}{after}", before.trim_end().trim_end_matches(',')),
    };
    Some(without_managed_fields(&out).unwrap_or(out))
}
