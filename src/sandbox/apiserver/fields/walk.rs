//! What two versions of an object have in common by type: sets of fields, differences, merging, taking away.
//! Must not know managers.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde_json::{Map, Value};

use super::set::Set;
use super::view::{Sharing, View};

/// What became of fields between two versions.
#[derive(Clone, Debug, Default)]
pub(super) struct Comparison {
    pub added: Set,
    pub modified: Set,
    pub removed: Set,
}

fn field_step(name: &str) -> String {
    format!("f:{name}")
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Object(map) => map.is_empty(),
        Value::Array(list) => list.is_empty(),
        _ => false,
    }
}

/// All fields that an object names.
pub(super) fn field_set(view: View, value: &Value) -> Set {
    let mut out = Set::default();
    fields_at(view, value, &mut Vec::new(), &mut out);
    out
}

fn fields_at(view: View, value: &Value, path: &mut Vec<String>, out: &mut Set) {
    match value {
        Value::Object(_) if view.is_atomic_map() => out.insert(path),
        Value::Object(map) => {
            for (name, child) in map {
                let (child_view, named) = view.field(name);
                path.push(field_step(name));
                fields_at(child_view, child, path, out);
                if child.is_null() || child.as_object().is_some_and(Map::is_empty) || !named {
                    out.insert(path);
                }
                path.pop();
            }
        }
        Value::Array(list) => {
            let (items, sharing) = view.items();
            if sharing == Sharing::Atomic {
                return out.insert(path);
            }
            let steps: Vec<Option<String>> = list.iter().map(|e| sharing.step(e)).collect();
            for (element, step) in list.iter().zip(&steps) {
                let Some(step) = step else { continue };
                path.push(step.clone());
                // An element that stands there twice is owned as a whole.
                if steps.iter().filter(|s| s.as_ref() == Some(step)).count() == 1 {
                    fields_at(items, element, path, out);
                }
                out.insert(path);
                path.pop();
            }
        }
        Value::Null => {}
        _ => out.insert(path),
    }
}

/// What is different in `new`.
pub(super) fn compare(view: View, old: &Value, new: &Value) -> Comparison {
    let mut out = Comparison::default();
    compare_at(view, Some(old), Some(new), &mut Vec::new(), &mut out);
    out
}

fn compare_at(view: View, old: Option<&Value>, new: Option<&Value>, path: &mut Vec<String>, out: &mut Comparison) {
    if old == new {
        return;
    }
    let map = |v: Option<&Value>| v.is_none_or(|v| v.is_object() || v.is_null());
    let list = |v: Option<&Value>| v.is_none_or(|v| v.is_array() || v.is_null());
    let empty = old.is_none_or(is_empty) && new.is_none_or(is_empty);
    let leaf = if empty {
        true
    } else if map(old) && map(new) {
        view.is_atomic_map()
    } else if list(old) && list(new) {
        view.items().1 == Sharing::Atomic
    } else {
        true
    };
    match (old, new) {
        (None, _) => out.added.insert(path),
        (_, None) => out.removed.insert(path),
        _ if leaf => out.modified.insert(path),
        _ => {}
    }
    if leaf {
        return;
    }
    if map(old) && map(new) {
        let nothing = Map::new();
        let fields = |v: Option<&'_ Value>| v.and_then(Value::as_object).cloned();
        let (old, new) = (fields(old).unwrap_or_else(|| nothing.clone()), fields(new).unwrap_or(nothing));
        let mut names: Vec<&String> = old.keys().chain(new.keys()).collect();
        names.sort();
        names.dedup();
        for name in names {
            path.push(field_step(name));
            compare_at(view.field(name).0, old.get(name), new.get(name), path, out);
            path.pop();
        }
        return;
    }
    let (items, sharing) = view.items();
    let elements = |v: Option<&Value>| -> BTreeMap<String, Vec<Value>> {
        let mut found: BTreeMap<String, Vec<Value>> = BTreeMap::new();
        for element in v.and_then(Value::as_array).into_iter().flatten() {
            if let Some(step) = sharing.step(element) {
                found.entry(step).or_default().push(element.clone());
            }
        }
        found
    };
    let (old, new) = (elements(old), elements(new));
    let mut steps: Vec<&String> = old.keys().chain(new.keys()).collect();
    steps.sort();
    steps.dedup();
    for step in steps {
        let (a, b) = (old.get(step).map_or(&[][..], Vec::as_slice), new.get(step).map_or(&[][..], Vec::as_slice));
        path.push(step.clone());
        match (a, b) {
            ([] | [_], [] | [_]) => compare_at(items, a.first(), b.first(), path, out),
            ([_, _, ..], [_, _, ..]) if a != b => out.modified.insert(path),
            ([_, _, ..], [_, _, ..]) => {}
            ([_, _, ..], _) => {
                compare_at(items, None, b.first(), path, out);
                out.removed.insert(path);
            }
            (_, _) => {
                compare_at(items, a.first(), None, path, out);
                out.added.insert(path);
            }
        }
        path.pop();
    }
}

/// `config` laid over `live`. The error names what cannot be.
pub(super) fn merge(view: View, live: &Value, config: &Value) -> Result<Value, String> {
    merge_at(view, Some(live), Some(config), "").map(Option::unwrap_or_default)
}

fn merge_at(view: View, live: Option<&Value>, config: Option<&Value>, at: &str) -> Result<Option<Value>, String> {
    let Some(config) = config else { return Ok(live.cloned()) };
    match (live, config) {
        (_, Value::Object(new)) if !view.is_atomic_map() && !new.is_empty() => {
            let mut out = live.and_then(Value::as_object).cloned().unwrap_or_default();
            for (name, value) in new {
                let at = format!("{at}.{name}");
                if let Some(merged) = merge_at(view.field(name).0, out.get(name), Some(value), &at)? {
                    out.insert(name.clone(), merged);
                }
            }
            Ok(Some(Value::Object(out)))
        }
        (Some(Value::Object(old)), Value::Object(new)) if new.is_empty() && !view.is_atomic_map() => {
            Ok(Some(Value::Object(old.clone())))
        }
        (_, Value::Array(new)) if view.items().1 != Sharing::Atomic => merge_list(view, live, new, at).map(Some),
        _ => Ok(Some(config.clone())),
    }
}

/// Elements of both: those of `config` in its order, the others where they stood among them.
fn merge_list(view: View, live: Option<&Value>, config: &[Value], at: &str) -> Result<Value, String> {
    let (items, sharing) = view.items();
    let old: Vec<&Value> = live.and_then(Value::as_array).into_iter().flatten().collect();
    let step = |e: &Value| sharing.step(e).unwrap_or_else(|| e.to_string());
    let left: Vec<String> = old.iter().map(|e| step(e)).collect();
    let mut right: Vec<String> = Vec::new();
    for element in config {
        let Some(step) = sharing.step(element) else {
            let keys: Vec<String> = match &sharing {
                Sharing::Keys(keys) => keys.iter().map(|(k, _)| format!("{k:?}")).collect(),
                _ => Vec::new(),
            };
            return Err(format!(
                "{at}: element {}: associative list with keys has an element that omits all key fields [{}] (and doesn't \
                 have default values for any key fields)",
                right.len(),
                keys.join(" ")
            ));
        };
        if right.contains(&step) {
            return Err(format!("{at}: duplicate entries for key {}", super::set::shown(&[step])));
        }
        right.push(step);
    }
    let mut shared: std::collections::VecDeque<&String> = right.iter().filter(|s| left.contains(s)).collect();
    let mut next = shared.pop_front();
    let (mut l, mut r, mut out, mut done) = (0, 0, Vec::new(), Vec::new());
    let find = |step: &String| left.iter().position(|s| s == step).map(|i| old[i]);
    while l < left.len() || r < right.len() {
        if l < left.len() && r < right.len() {
            if left[l] == right[r] {
                done.push(&left[l]);
                out.extend(merge_at(items, Some(old[l]), Some(&config[r]), at)?);
                l += 1;
                r += 1;
                next = shared.pop_front();
                continue;
            }
            if right.contains(&left[l]) && next.is_some_and(|n| *n != left[l]) {
                l += 1;
                continue;
            }
        }
        if l < left.len() {
            if !right.contains(&left[l]) {
                out.push(old[l].clone());
                l += 1;
                continue;
            } else if done.contains(&&left[l]) {
                l += 1;
            }
        }
        if r < right.len() {
            done.push(&right[r]);
            out.extend(merge_at(items, find(&right[r]), Some(&config[r]), at)?);
            if next == Some(&right[r]) {
                next = shared.pop_front();
            }
            r += 1;
        }
    }
    Ok(Value::Array(out))
}

/// The value without the paths of `gone`; `None` where nothing is left of a list or map.
pub(super) fn without(view: View, value: &Value, gone: &Set) -> Option<Value> {
    match value {
        Value::Object(map) if map.is_empty() || view.is_atomic_map() => None,
        Value::Object(map) => {
            let mut out = Map::new();
            for (name, child) in map {
                let step = field_step(name);
                if gone.has(&step) {
                    continue;
                }
                let left = match gone.below(&step) {
                    Some(below) => without(view.field(name).0, child, below).unwrap_or(Value::Null),
                    None => child.clone(),
                };
                out.insert(name.clone(), left);
            }
            (!out.is_empty()).then_some(Value::Object(out))
        }
        Value::Array(list) => {
            let (items, sharing) = view.items();
            if list.is_empty() || sharing == Sharing::Atomic {
                return None;
            }
            let mut out = Vec::new();
            for element in list {
                let step = sharing.step(element).unwrap_or_default();
                if gone.has(&step) {
                    continue;
                }
                out.push(match gone.below(&step) {
                    Some(below) => without(items, element, below).unwrap_or(Value::Null),
                    None => element.clone(),
                });
            }
            (!out.is_empty()).then_some(Value::Array(out))
        }
        other => Some(other.clone()),
    }
}

/// Fields of structs that lead to members become members.
pub(super) fn with_named(view: View, set: &Set) -> Set {
    let mut out = set.clone();
    let steps: Vec<String> = set.steps().cloned().collect();
    for step in steps {
        let (below_view, named) = match step.strip_prefix("f:") {
            Some(name) => view.field(name),
            None => (view.items().0, false),
        };
        if let Some(below) = out.below_mut(&step).filter(|b| !b.is_empty()) {
            *below = with_named(below_view, below);
            if named {
                out.mark(&step);
            }
        }
    }
    out
}

/// What of a configuration does not fit its type: `.spec.nothing: field not declared in schema`.
pub(super) fn misfits(view: View, value: &Value) -> Vec<String> {
    let mut out = Vec::new();
    misfits_at(view, value, &mut String::new(), &mut out);
    out
}

fn misfits_at(view: View, value: &Value, at: &mut String, out: &mut Vec<String>) {
    if let Some(wanted) = view.mismatch(value) {
        let found = match value {
            Value::Object(_) => "map",
            Value::Array(_) => "list",
            _ => "",
        };
        let shown =
            if found.is_empty() { format!("&value.valueUnstructured{{Value:{value}}}") } else { found.to_owned() };
        out.push(format!("{at}: expected {wanted}, got {shown}"));
        return;
    }
    let length = at.len();
    match value {
        Value::Object(map) => {
            for (name, child) in map {
                at.push('.');
                at.push_str(name);
                if view.knows(name) {
                    misfits_at(view.field(name).0, child, at, out);
                } else {
                    out.push(format!("{at}: field not declared in schema"));
                }
                at.truncate(length);
            }
        }
        Value::Array(list) => {
            let (items, sharing) = view.items();
            for (i, child) in list.iter().enumerate() {
                match sharing.step(child) {
                    Some(step) => at.push_str(&super::set::shown(&[step])),
                    None => drop(write!(at, "[{i}]")),
                }
                misfits_at(items, child, at, out);
                at.truncate(length);
            }
        }
        _ => {}
    }
}
