//! Sets of field paths, in the form in which `fieldsV1` holds them.
//! Must not know types of objects.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

/// A set of paths. Steps are written as in `fieldsV1`: `f:name`, `k:{"name":"c"}`, `v:"x"`.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Set(BTreeMap<String, Node>);

/// What is known of a step: whether it is a member itself, and paths below.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
struct Node {
    own: bool,
    below: Set,
}

impl Set {
    pub(super) fn is_empty(&self) -> bool {
        self.0.values().all(|n| !n.own && n.below.is_empty())
    }

    pub(super) fn insert(&mut self, path: &[String]) {
        let Some((first, rest)) = path.split_first() else { return };
        let node = self.0.entry(first.clone()).or_default();
        if rest.is_empty() {
            node.own = true;
        } else {
            node.below.insert(rest);
        }
    }

    /// Whether the path of one step is a member.
    pub(super) fn has(&self, step: &str) -> bool {
        self.0.get(step).is_some_and(|n| n.own)
    }

    /// What is below a step, if anything is.
    pub(super) fn below(&self, step: &str) -> Option<&Set> {
        self.0.get(step).map(|n| &n.below).filter(|s| !s.is_empty())
    }

    /// The steps at the top, members or not.
    pub(super) fn steps(&self) -> impl Iterator<Item = &String> {
        self.0.keys()
    }

    pub(super) fn union(&self, other: &Set) -> Set {
        let mut out = self.clone();
        for (step, node) in &other.0 {
            let mine = out.0.entry(step.clone()).or_default();
            mine.own |= node.own;
            mine.below = mine.below.union(&node.below);
        }
        out
    }

    pub(super) fn difference(&self, other: &Set) -> Set {
        self.combined(other, |mine, theirs| mine && !theirs, |a, b| b.map_or_else(|| a.clone(), |b| a.difference(b)))
    }

    pub(super) fn intersection(&self, other: &Set) -> Set {
        self.combined(other, |mine, theirs| mine && theirs, |a, b| b.map_or_else(Set::default, |b| a.intersection(b)))
    }

    fn combined(&self, other: &Set, own: fn(bool, bool) -> bool, below: fn(&Set, Option<&Set>) -> Set) -> Set {
        let nodes = self.0.iter().filter_map(|(step, node)| {
            let theirs = other.0.get(step);
            let node = Node {
                own: own(node.own, theirs.is_some_and(|t| t.own)),
                below: below(&node.below, theirs.map(|t| &t.below)),
            };
            (node.own || !node.below.is_empty()).then(|| (step.clone(), node))
        });
        Set(nodes.collect())
    }

    /// Without all that begins with one of these steps.
    pub(super) fn without(&self, steps: &[&str]) -> Set {
        Set(self.0.iter().filter(|(s, _)| !steps.contains(&s.as_str())).map(|(s, n)| (s.clone(), n.clone())).collect())
    }

    /// Makes a step a member where `named` says that it is a field of its own.
    pub(super) fn mark(&mut self, step: &str) {
        if let Some(node) = self.0.get_mut(step) {
            node.own = true;
        }
    }

    /// What is below a step, to change.
    pub(super) fn below_mut(&mut self, step: &str) -> Option<&mut Set> {
        self.0.get_mut(step).map(|n| &mut n.below)
    }

    /// Every member, those of one level before those below it.
    pub(super) fn paths(&self) -> Vec<Vec<String>> {
        let mut out: Vec<Vec<String>> =
            self.0.iter().filter(|(_, n)| n.own).map(|(step, _)| vec![step.clone()]).collect();
        for (step, node) in &self.0 {
            out.extend(node.below.paths().into_iter().map(|rest| [vec![step.clone()], rest].concat()));
        }
        out
    }

    pub(super) fn to_json(&self) -> Value {
        let mut out = Map::new();
        for (step, node) in &self.0 {
            let mut below = match node.below.to_json() {
                Value::Object(map) => map,
                _ => Map::new(),
            };
            if node.own && !below.is_empty() {
                below.insert(".".to_owned(), Value::Object(Map::new()));
            }
            if node.own || !below.is_empty() {
                out.insert(step.clone(), Value::Object(below));
            }
        }
        Value::Object(out)
    }

    /// `None` where it is no set.
    pub(super) fn from_json(value: &Value) -> Option<Set> {
        let mut out = BTreeMap::new();
        for (step, below) in value.as_object()? {
            if step == "." {
                continue;
            }
            let inner = below.as_object()?;
            let own = inner.is_empty() || inner.contains_key(".");
            out.insert(step.clone(), Node { own, below: Set::from_json(below)? });
        }
        Some(Set(out))
    }
}

/// A path as messages show it: `.spec.containers[name="c"].image`.
pub(super) fn shown(path: &[String]) -> String {
    path.iter()
        .map(|step| match step.split_once(':') {
            Some(("f", name)) => format!(".{name}"),
            Some(("k", keys)) => {
                let keys: Map<String, Value> = serde_json::from_str(keys).unwrap_or_default();
                let parts: Vec<String> = keys.iter().map(|(k, v)| format!("{k}={v}")).collect();
                format!("[{}]", parts.join(","))
            }
            Some(("v", value)) => format!("[={value}]"),
            _ => step.clone(),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn sets_are_written_and_read_as_fields_v1() {
        let written =
            json!({"f:data": {".": {}, "f:k": {}}, "f:spec": {"k:{\"name\":\"c\"}": {".": {}, "f:image": {}}}});
        let set = Set::from_json(&written).unwrap();
        assert_eq!(set.to_json(), written);
        assert!(set.has("f:data") && !set.has("f:spec"));
        let paths: Vec<String> = set.paths().iter().map(|p| shown(p)).collect();
        assert_eq!(paths, [".data", ".data.k", ".spec[name=\"c\"]", ".spec[name=\"c\"].image"]);
        assert!(set.difference(&set).is_empty());
        assert_eq!(set.intersection(&set), set);
        assert_eq!(set.union(&Set::default()), set);
    }
}
