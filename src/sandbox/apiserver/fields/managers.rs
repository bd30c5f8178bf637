//! `metadata.managedFields`: how writes and applies change who owns what, and when an apply is a conflict.
//! Must not know the store.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde_json::{Map, Value, json};

use super::set::{Set, shown};
use super::view::View;
use super::walk::{compare, field_set, merge, with_named, without};
use crate::api::Time;

/// Managers by update beyond this many become one.
const UPDATERS_MAX: usize = 10;
const ANCIENT: &str = "ancient-changes";
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";
/// What a write does not own, whoever it is.
const NOBODYS: &[&[&str]] = &[
    &["apiVersion"],
    &["kind"],
    &["metadata"],
    &["metadata", "name"],
    &["metadata", "namespace"],
    &["metadata", "creationTimestamp"],
    &["metadata", "selfLink"],
    &["metadata", "uid"],
    &["metadata", "clusterName"],
    &["metadata", "generation"],
    &["metadata", "managedFields"],
    &["metadata", "resourceVersion"],
];

/// Who writes, and through what.
#[derive(Clone, Debug)]
pub(in super::super) struct Writer<'a> {
    /// From the request, or from its user agent.
    pub name: &'a str,
    /// `apiVersion` of the request.
    pub version: &'a str,
    /// `status`, `scale`, or empty.
    pub subresource: &'a str,
    /// Top fields that the write cannot change.
    pub reset: &'a [&'a str],
    /// Whether the kind is built in.
    pub typed: bool,
    /// When; not told by a write of the scale.
    pub now: Option<Time>,
}

/// Why an apply did not happen.
#[derive(Debug)]
pub(in super::super) enum ApplyError {
    /// Others own fields: message, and a cause for each field.
    Conflict(String, Vec<(String, String)>),
    /// The objects cannot be merged.
    Unmergeable(String),
}

/// Who a manager is.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Id {
    name: String,
    applied: bool,
    /// Two appliers of the same name are one, whatever their versions.
    version: String,
    subresource: String,
}

#[derive(Clone, Debug)]
struct Owned {
    set: Set,
    version: String,
    time: Option<String>,
}

#[derive(Clone, Debug, Default)]
struct Managers(BTreeMap<Id, Owned>);

impl Managers {
    /// From the list in `metadata`; `None` where it is none.
    fn read(list: Option<&Value>) -> Option<Self> {
        let mut out = BTreeMap::new();
        for entry in list.and_then(Value::as_array).into_iter().flatten() {
            let text = |key: &str| entry[key].as_str().unwrap_or_default().to_owned();
            let applied = match entry["operation"].as_str()? {
                "Apply" => true,
                "Update" => false,
                _ => return None,
            };
            let version = text("apiVersion");
            if version.is_empty() || entry["fieldsType"] != "FieldsV1" {
                return None;
            }
            let id = Id {
                name: text("manager"),
                applied,
                version: if applied { String::new() } else { version.clone() },
                subresource: text("subresource"),
            };
            let set = Set::from_json(entry.get("fieldsV1").unwrap_or(&json!({})))?;
            out.insert(id, Owned { set, version, time: entry["time"].as_str().map(str::to_owned) });
        }
        Some(Self(out))
    }

    fn written(&self) -> Value {
        let mut all: Vec<(&Id, &Owned)> = self.0.iter().collect();
        all.sort_by_key(|(id, owned)| {
            (!id.applied, owned.time.clone(), id.name.clone(), owned.version.clone(), id.subresource.clone())
        });
        let entry = |(id, owned): (&Id, &Owned)| {
            let mut out = Map::new();
            out.insert("manager".into(), id.name.clone().into());
            out.insert("operation".into(), if id.applied { "Apply" } else { "Update" }.into());
            out.insert("apiVersion".into(), owned.version.clone().into());
            if let Some(time) = &owned.time {
                out.insert("time".into(), time.clone().into());
            }
            out.insert("fieldsType".into(), "FieldsV1".into());
            out.insert("fieldsV1".into(), owned.set.to_json());
            if !id.subresource.is_empty() {
                out.insert("subresource".into(), id.subresource.clone().into());
            }
            Value::Object(out)
        };
        all.into_iter().map(entry).collect()
    }

    fn drop_empty(&mut self) {
        self.0.retain(|_, owned| !owned.set.is_empty());
    }

    /// The oldest updaters become one.
    fn cap(&mut self) {
        let mut updaters: Vec<(Option<String>, Id)> =
            self.0.iter().filter(|(id, _)| !id.applied).map(|(id, o)| (o.time.clone(), id.clone())).collect();
        if updaters.len() <= UPDATERS_MAX {
            return;
        }
        updaters.sort();
        let mut left = updaters.len();
        let mut first: BTreeMap<String, Id> = BTreeMap::new();
        for (time, id) in updaters {
            if left <= UPDATERS_MAX {
                break;
            }
            let bucket =
                Id { name: ANCIENT.into(), applied: false, version: id.version.clone(), subresource: String::new() };
            let Some(earlier) = first.get(&id.version).cloned() else {
                first.insert(id.version.clone(), id);
                continue;
            };
            if !self.0.contains_key(&bucket)
                && let Some(owned) = self.0.remove(&earlier)
            {
                self.0.insert(bucket.clone(), owned);
            }
            if let (Some(owned), Some(all)) = (self.0.remove(&id), self.0.get_mut(&bucket)) {
                all.set = all.set.union(&owned.set);
                all.time = time;
            }
            left -= 1;
        }
    }
}

/// What is compared: the object without what the server keeps on its own account.
fn stripped(object: &Value) -> Value {
    let mut out = object.clone();
    if let Some(metadata) = out.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.remove("managedFields");
    }
    out
}

fn nobodys() -> Set {
    let mut out = Set::default();
    for path in NOBODYS {
        out.insert(&path.iter().map(|step| format!("f:{step}")).collect::<Vec<_>>());
    }
    out
}

fn without_reset(set: &Set, writer: &Writer) -> Set {
    if writer.reset.is_empty() {
        return set.clone();
    }
    let steps: Vec<String> = writer.reset.iter().map(|f| format!("f:{f}")).collect();
    set.without(&steps.iter().map(String::as_str).collect::<Vec<_>>())
}

/// A plain write of `new` in place of `live` (null where there was nothing). `sent` is what the client wrote as
/// `managedFields`, if anything. Returns the new list; `None` where it is empty.
pub(in super::super) fn update(
    view: View,
    live: &Value,
    new: &Value,
    sent: Option<&Value>,
    writer: &Writer,
) -> Option<Value> {
    let before = live["metadata"].get("managedFields");
    let reset = |list: &Value| {
        // An empty list is no list to custom resources.
        let none = |l: &Vec<Value>| l.is_empty() && writer.typed;
        list.as_array().is_some_and(|l| none(l) || (l.len() == 1 && l[0].as_object().is_some_and(Map::is_empty)))
    };
    let mut managers = match sent {
        Some(list) if reset(list) && writer.subresource.is_empty() => Managers::default(),
        Some(list) if writer.subresource.is_empty() => Managers::read(Some(list))
            .filter(|m| !m.0.is_empty())
            .or_else(|| Managers::read(before))
            .unwrap_or_default(),
        _ => Managers::read(before).unwrap_or_default(),
    };
    if managers.0.is_empty() && !live.is_null() {
        // Nobody is tracked on this object any more.
        return None;
    }
    let id = Id {
        name: writer.name.to_owned(),
        applied: false,
        version: writer.version.to_owned(),
        subresource: writer.subresource.to_owned(),
    };
    updated(view, live, new, &mut managers, id, writer);
    managers.cap();
    if managers.0.is_empty() { None } else { Some(managers.written()) }
}

fn updated(view: View, live: &Value, new: &Value, managers: &mut Managers, id: Id, writer: &Writer) {
    let empty = json!({});
    let old = if live.is_null() { empty } else { stripped(live) };
    let all = compare(view, &old, &stripped(new));
    let [added, modified, removed] = [&all.added, &all.modified, &all.removed].map(|s| without_reset(s, writer));
    let changed = modified.union(&added);
    for owned in managers.0.values_mut() {
        owned.set = owned.set.difference(&changed).difference(&removed);
    }
    managers.drop_empty();
    let mine = changed.difference(&nobodys());
    if mine.is_empty() {
        return;
    }
    let time = writer.now.map(Time::seconds_text);
    match managers.0.get_mut(&id) {
        Some(owned) => {
            owned.set = owned.set.union(&mine);
            owned.time = time;
        }
        None => {
            managers.0.insert(id, Owned { set: mine, version: writer.version.to_owned(), time });
        }
    }
}

/// Server-side apply of `config` to `live` (null where there is nothing). Returns the merged object with its managers.
pub(in super::super) fn apply(
    view: View,
    live: &Value,
    config: &Value,
    force: bool,
    writer: &Writer,
) -> Result<Value, ApplyError> {
    let mut out = applied(view, live, config, force, writer);
    if let Err(ApplyError::Conflict(..)) = &out
        && writer.name == "kubectl"
        && let Some(allowed) = last_applied(view, live, writer)
    {
        // kubectl takes over from its own way of applying what is still as it left it.
        let open = conflicts(view, live, config, writer).filter(|set| !set.difference(&allowed).is_empty());
        if open.is_none() {
            out = applied(view, live, config, true, writer);
        }
    }
    let mut object = out?;
    if writer.name == "kubectl"
        && object["metadata"]["annotations"][LAST_APPLIED].as_str().is_some_and(|t| !t.is_empty())
    {
        let mut kept = stripped(config);
        if let Some(annotations) = kept["metadata"].get_mut("annotations").and_then(Value::as_object_mut) {
            annotations.remove(LAST_APPLIED);
        }
        object["metadata"]["annotations"][LAST_APPLIED] = format!("{kept}\n").into();
    }
    Ok(object)
}

/// Before the first apply, what is there belongs to whoever came before.
fn known_managers(view: View, live: &Value, writer: &Writer) -> Managers {
    let mut managers = Managers::read(live["metadata"].get("managedFields")).unwrap_or_default();
    if managers.0.is_empty() && !live.is_null() {
        let id = Id {
            name: "before-first-apply".into(),
            applied: false,
            version: writer.version.to_owned(),
            subresource: writer.subresource.to_owned(),
        };
        updated(view, &Value::Null, live, &mut managers, id, writer);
    }
    managers
}

fn applied(view: View, live: &Value, config: &Value, force: bool, writer: &Writer) -> Result<Value, ApplyError> {
    let mut managers = known_managers(view, live, writer);
    let old = if live.is_null() { json!({}) } else { stripped(live) };
    let merged = merge(view, &old, config).map_err(ApplyError::Unmergeable)?;
    let id = Id {
        name: writer.name.to_owned(),
        applied: true,
        version: String::new(),
        subresource: writer.subresource.to_owned(),
    };
    let last = managers.0.get(&id).cloned();
    let set = without_reset(&field_set(view, config), writer);
    let time = last.as_ref().and_then(|l| l.time.clone());
    managers.0.insert(id.clone(), Owned { set, version: writer.version.to_owned(), time });
    let new = match &last {
        Some(last) if !last.set.is_empty() => pruned(view, &merged, &managers, &last.set),
        _ => merged,
    };
    let all = compare(view, &old, &new);
    let changed = without_reset(&all.modified.union(&all.added), writer);
    let removed = without_reset(&all.removed, writer);
    if !force {
        let met: Vec<(Id, Owned, Set)> = managers
            .0
            .iter()
            .filter(|(other, _)| **other != id)
            .map(|(other, owned)| (other.clone(), owned.clone(), owned.set.intersection(&changed)))
            .filter(|(_, _, set)| !set.is_empty())
            .collect();
        if !met.is_empty() {
            return Err(conflict(&met));
        }
    }
    for (other, owned) in &mut managers.0 {
        if *other != id {
            owned.set = owned.set.difference(&changed).difference(&removed);
        }
    }
    managers.drop_empty();
    if let Some(mine) = managers.0.get_mut(&id) {
        mine.set = mine.set.difference(&nobodys());
    }
    managers.drop_empty();
    let unchanged = old == new && !live.is_null();
    if let Some(mine) = managers.0.get_mut(&id)
        && !unchanged
    {
        mine.time = writer.now.map(Time::seconds_text);
    }
    let mut object = new;
    if !managers.0.is_empty() {
        object["metadata"]["managedFields"] = managers.written();
    }
    Ok(object)
}

/// What the last apply named and this one does not goes, unless somebody else owns it.
fn pruned(view: View, merged: &Value, managers: &Managers, last: &Set) -> Value {
    let named = |set: &Set| with_named(view, set);
    let without = |value: &Value, gone: &Set| without(view, value, gone).unwrap_or_default();
    let first = without(merged, &named(last));
    let managed = managers.0.values().fold(Set::default(), |all, owned| all.union(&owned.set));
    let merged_set = named(&field_set(view, merged));
    let kept = named(&field_set(view, &first)).union(&named(&managed));
    let with_owned = without(merged, &merged_set.difference(&kept));
    let left = named(&field_set(view, &with_owned));
    without(merged, &merged_set.difference(&left).intersection(&named(last)))
}

/// The fields on which an apply is in conflict.
fn conflicts(view: View, live: &Value, config: &Value, writer: &Writer) -> Option<Set> {
    let managers = known_managers(view, live, writer);
    let old = stripped(live);
    let all = compare(view, &old, &merge(view, &old, config).ok()?);
    let changed = all.modified.union(&all.added);
    let others = managers.0.iter().filter(|(id, _)| !(id.applied && id.name == writer.name));
    Some(others.fold(Set::default(), |met, (_, owned)| met.union(&owned.set.intersection(&changed))))
}

/// What kubectl's annotation names and nobody has changed since.
fn last_applied(view: View, live: &Value, writer: &Writer) -> Option<Set> {
    let text = live["metadata"]["annotations"][LAST_APPLIED].as_str()?;
    let last: Value = serde_json::from_str(text).ok()?;
    if last["apiVersion"] != writer.version {
        return None;
    }
    let changes = compare(view, &last, &stripped(live));
    let set = field_set(view, &last);
    Some(set.difference(&changes.modified).difference(&changes.added).difference(&changes.removed))
}

fn conflict(met: &[(Id, Owned, Set)]) -> ApplyError {
    let who = |id: &Id, owned: &Owned| {
        let mut out = format!("{:?}", id.name);
        if !id.subresource.is_empty() {
            let _ = write!(out, " with subresource {:?}", id.subresource);
        }
        if !id.applied {
            let _ = write!(out, " using {}", owned.version);
        }
        out
    };
    let mut causes = Vec::new();
    let mut lines = Vec::new();
    for (id, owned, set) in met {
        lines.push(format!("conflicts with {}:", who(id, owned)));
        for path in set.paths() {
            lines.push(format!("- {}", shown(&path)));
            causes.push((format!("conflict with {}", who(id, owned)), shown(&path)));
        }
    }
    let message = match causes.as_slice() {
        [(what, path)] => format!("Apply failed with 1 conflict: {what}: {path}"),
        _ => format!("Apply failed with {} conflicts: {}", causes.len(), lines.join("\n")),
    };
    ApplyError::Conflict(message, causes)
}
