//! Tables as `kubectl get` asks for them: columns and cells of built-in kinds and of custom resources.
//! Must not know requests or the store. Descriptions of built-in columns are left empty.

use serde_json::{Value, json};

use super::json_path::Path;
use super::print;
use super::registry::ResourceType;
use crate::api::Time;

/// What each row carries of its object.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum IncludeObject {
    /// Nothing.
    None,
    /// Kind and metadata: what a server does unless asked otherwise.
    #[default]
    Metadata,
    /// All of it.
    Object,
}

impl IncludeObject {
    /// From the query parameter `includeObject`; `None` if it is no such word.
    pub fn parse(text: &str) -> Option<Self> {
        Some(match text {
            "" | "Metadata" => Self::Metadata,
            "None" => Self::None,
            "Object" => Self::Object,
            _ => return None,
        })
    }
}

/// A column of a built-in kind.
#[derive(Clone, Copy, Debug)]
pub(super) struct Heading {
    pub(super) name: &'static str,
    /// 0 is always shown, 1 with `-o wide`.
    pub(super) priority: i64,
}

/// `meta.k8s.io/v1` Table of the items, which are whole objects. `list_meta` is the metadata of the answer.
pub fn render(ty: &ResourceType, items: &[&Value], list_meta: Value, now: Time, include: IncludeObject) -> Value {
    let paths: Vec<Option<Path>> = ty.columns.iter().map(|c| Path::parse(&c.json_path)).collect();
    let rows: Vec<Value> = items
        .iter()
        .map(|item| {
            let cells = if ty.builtin { print::cells(ty, item, now) } else { custom_cells(ty, &paths, item, now) };
            json!({"cells": cells, "object": object(item, include)})
        })
        .collect();
    json!({"kind": "Table", "apiVersion": "meta.k8s.io/v1", "metadata": list_meta, "columnDefinitions": columns(ty), "rows": rows})
}

fn object(item: &Value, include: IncludeObject) -> Value {
    match include {
        IncludeObject::None => Value::Null,
        IncludeObject::Object => item.clone(),
        IncludeObject::Metadata => {
            json!({"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": item["metadata"]})
        }
    }
}

fn columns(ty: &ResourceType) -> Vec<Value> {
    let column = |name: &str, kind: &str, format: &str, description: &str, priority: i64| json!({"name": name, "type": kind, "format": format, "description": description, "priority": priority});
    if !ty.builtin {
        let mut all = vec![column("Name", "string", "name", "", 0)];
        all.extend(ty.columns.iter().map(|c| {
            let given = if c.description.is_empty() {
                format!("Custom resource definition column (in JSONPath format): {}", c.json_path)
            } else {
                c.description.clone()
            };
            column(&c.name, &c.kind, &c.format, &given, c.priority)
        }));
        return all;
    }
    let headings = print::headings(ty);
    headings
        .iter()
        .map(|h| match h.name {
            "Name" => column(h.name, "string", "name", "", h.priority),
            "Created At" => column(h.name, "date", "", "", h.priority),
            "Value" | "Desired" | "Current" | "Allowed Disruptions" => column(h.name, "integer", "", "", h.priority),
            _ => column(h.name, "string", "", "", h.priority),
        })
        .collect()
}

fn custom_cells(ty: &ResourceType, paths: &[Option<Path>], item: &Value, now: Time) -> Vec<Value> {
    let mut cells = vec![item["metadata"]["name"].clone()];
    for (column, path) in ty.columns.iter().zip(paths) {
        let found = path.as_ref().and_then(|p| p.first(item));
        cells.push(found.map_or(Value::Null, |value| custom_cell(&column.kind, value, now)));
    }
    cells
}

/// A value as the type of its column asks; null where it does not fit.
fn custom_cell(kind: &str, value: &Value, now: Time) -> Value {
    match kind {
        "integer" => value.as_i64().or_else(|| value.as_f64().map(|f| f as i64)).map_or(Value::Null, Value::from),
        "number" => value.as_f64().map_or(Value::Null, Value::from),
        "boolean" => value.as_bool().map_or(Value::Null, Value::from),
        "date" => match value.as_str() {
            Some(text) => Time::parse(text).map_or_else(|| "<invalid>".into(), |t| print::age_between(t, now).into()),
            None => Value::Null,
        },
        _ => match value {
            Value::Null => Value::Null,
            Value::String(text) => text.clone().into(),
            other => other.to_string().into(),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::super::registry::Registry;
    use super::super::{crd, recorded};
    use super::*;

    fn registry() -> Option<Registry> {
        let mut registry = Registry::new();
        for name in ["widgets.example.dev", "gadgets.example.dev", "rayjobs.ray.io", "rayclusters.ray.io"] {
            let mut found = recorded::crd(name)?;
            crd::fill(&mut found);
            crd::types(&found).into_iter().for_each(|t| registry.insert(t));
        }
        Some(registry)
    }

    fn type_behind<'a>(registry: &'a Registry, path: &str) -> Option<&'a ResourceType> {
        let parts: Vec<&str> = path.split('?').next()?.split('/').skip(1).collect();
        let (group, version, rest) =
            if parts[0] == "api" { ("", parts[1], &parts[2..]) } else { (parts[1], parts[2], &parts[3..]) };
        let plural = match rest {
            ["namespaces"] | ["namespaces", _] => "namespaces",
            ["namespaces", _, plural, ..] | [plural, ..] => plural,
            [] => return None,
        };
        registry.find(group, version, plural).map(AsRef::as_ref)
    }

    /// Columns of every recorded table, descriptions aside (those are upstream's sentences).
    #[test]
    fn columns_are_the_recorded_ones() {
        let (Some(topic), Some(registry)) = (recorded::topic("list"), registry()) else { return };
        let mut compared = 0;
        for exchange in recorded::exchanges(&topic, "table") {
            let table = &exchange["response"]["body"];
            if table["kind"] != "Table" {
                continue;
            }
            let path = exchange["request"]["path"].as_str().unwrap();
            let ty = type_behind(&registry, path).unwrap();
            let mine = render(ty, &[], json!({}), Time(0), IncludeObject::Metadata);
            let plain = |table: &Value| -> Vec<Value> {
                let columns = table["columnDefinitions"].as_array().unwrap();
                columns.iter().map(|c| json!([c["name"], c["type"], c["format"], c["priority"]])).collect()
            };
            assert_eq!(plain(&mine), plain(table), "{path}");
            compared += 1;
        }
        assert!(compared >= 20, "{compared}");
    }

    /// Cells of the recorded rows that carry their whole object.
    #[test]
    fn cells_are_the_recorded_ones() {
        let (Some(topic), Some(registry)) = (recorded::topic("list"), registry()) else { return };
        let mut compared = 0;
        for exchange in recorded::exchanges(&topic, "table") {
            let path = exchange["request"]["path"].as_str().unwrap();
            if !path.contains("includeObject=Object") {
                continue;
            }
            let ty = type_behind(&registry, path).unwrap();
            for row in exchange["response"]["body"]["rows"].as_array().unwrap() {
                let mut item = row["object"].clone();
                item["metadata"]["creationTimestamp"] = Time(0).seconds_text().into();
                let mine = render(ty, &[&item], json!({}), Time(0), IncludeObject::Object);
                assert_eq!(mine["rows"][0]["cells"], row["cells"], "{path}");
                compared += 1;
            }
        }
        assert!(compared >= 2, "{compared}");
    }
}
