//! What a schema takes away from an object and what it fills in.
//! Must not know what makes an object wrong (`validate`).

use serde_json::{Map, Value};

use super::metadata::FIELDS;
use super::schema::Schema;

/// Fields of an owner reference.
const OWNER: &[&str] = &["apiVersion", "kind", "name", "uid", "controller", "blockOwnerDeletion"];

impl Schema {
    /// Takes away what the schema does not know. `value` is a whole object with kind, apiVersion and metadata.
    /// Returns the paths of what went: those of `metadata` first, those in the metadata of embedded objects last.
    pub fn prune(&self, value: &mut Value) -> Vec<String> {
        let mut gone = Vec::new();
        let mut embedded = Vec::new();
        prune_metadata(value, "", &mut gone);
        self.prune_at(value, "", true, &mut gone, &mut embedded);
        gone.extend(embedded);
        gone
    }

    fn prune_at(&self, value: &mut Value, path: &str, object: bool, gone: &mut Vec<String>, meta: &mut Vec<String>) {
        match value {
            Value::Object(map) => {
                map.retain(|key, _| {
                    let known = self.preserve_unknown
                        || self.additional.is_some()
                        || self.properties.contains_key(key)
                        || (object && ["apiVersion", "kind", "metadata"].contains(&key.as_str()));
                    if !known {
                        gone.push(join(path, key));
                    }
                    known
                });
                for (key, child) in map.iter_mut() {
                    if object && ["apiVersion", "kind", "metadata"].contains(&key.as_str()) {
                        continue;
                    }
                    let schema = self.properties.get(key).or(self.additional.as_deref());
                    if let Some(schema) = schema {
                        let at = join(path, key);
                        schema.prune_at(child, &at, schema.embedded, gone, meta);
                        if schema.embedded {
                            prune_metadata(child, &at, meta);
                        }
                    }
                }
            }
            Value::Array(list) => {
                if let Some(schema) = &self.items {
                    for (i, child) in list.iter_mut().enumerate() {
                        let at = format!("{path}[{i}]");
                        schema.prune_at(child, &at, schema.embedded, gone, meta);
                        if schema.embedded {
                            prune_metadata(child, &at, meta);
                        }
                    }
                }
            }
            _ => {}
        }
    }

    /// Fills in defaults where their parent is there, and takes away nulls that are no value.
    pub fn default(&self, value: &mut Value) {
        match value {
            Value::Object(map) => {
                for (key, schema) in &self.properties {
                    let missing = match map.get(key) {
                        None => true,
                        Some(found) => found.is_null() && !schema.nullable,
                    };
                    if missing {
                        match &schema.default {
                            Some(default) => {
                                map.insert(key.clone(), default.clone());
                            }
                            None => {
                                map.remove(key);
                            }
                        }
                    }
                    if let Some(child) = map.get_mut(key) {
                        schema.default(child);
                    }
                }
                if let Some(schema) = &self.additional {
                    self.default_values(schema, map);
                }
            }
            Value::Array(list) => {
                if let Some(schema) = &self.items {
                    for child in list {
                        if let (true, false, Some(default)) = (child.is_null(), schema.nullable, &schema.default) {
                            *child = default.clone();
                        }
                        schema.default(child);
                    }
                }
            }
            _ => {}
        }
    }

    /// Values of a map: a null becomes the default, or goes.
    fn default_values(&self, schema: &Schema, map: &mut Map<String, Value>) {
        map.retain(|key, child| {
            if self.properties.contains_key(key) {
                return true;
            }
            if child.is_null() && !schema.nullable && !schema.preserve_unknown {
                let Some(default) = &schema.default else { return false };
                *child = default.clone();
            }
            schema.default(child);
            true
        });
    }
}

/// Takes unknown fields out of the `metadata` of an object at `path`.
fn prune_metadata(value: &mut Value, path: &str, gone: &mut Vec<String>) {
    let at = join(path, "metadata");
    let Some(metadata) = value.get_mut("metadata").and_then(Value::as_object_mut) else { return };
    keep_only(metadata, FIELDS, &at, gone);
    let owners = metadata.get_mut("ownerReferences").and_then(Value::as_array_mut);
    for (i, owner) in owners.into_iter().flatten().enumerate() {
        if let Some(owner) = owner.as_object_mut() {
            keep_only(owner, OWNER, &format!("{at}.ownerReferences[{i}]"), gone);
        }
    }
}

fn keep_only(map: &mut Map<String, Value>, known: &[&str], path: &str, gone: &mut Vec<String>) {
    map.retain(|key, _| {
        let keep = known.contains(&key.as_str());
        if !keep {
            gone.push(join(path, key));
        }
        keep
    });
}

/// `a.b`, or `b` at the root.
pub(super) fn join(path: &str, key: &str) -> String {
    if path.is_empty() { key.to_owned() } else { format!("{path}.{key}") }
}

#[cfg(test)]
mod tests {
    use super::super::recorded;
    use super::*;

    /// What a create leaves of an object, as recorded.
    #[test]
    fn objects_are_pruned_and_defaulted_as_recorded() {
        let (Some(topic), Some(schema)) = (recorded::topic("crd"), recorded::schema("widgets.example.dev", "v1"))
        else {
            return;
        };
        let mut compared = 0;
        for case in ["pruning", "defaulting"] {
            for exchange in recorded::exchanges(&topic, case) {
                let (request, response) = (&exchange["request"], &exchange["response"]);
                let path = request["path"].as_str().unwrap();
                if request["method"] != "POST" || !path.ends_with("/widgets") || response["status"] != 201 {
                    continue;
                }
                let mut object = request["body"].clone();
                let mut gone = schema.prune(&mut object);
                schema.default(&mut object);
                assert_eq!(object.get("spec"), response["body"].get("spec"));
                let mut warnings: Vec<String> = match &response["headers"]["warning"] {
                    Value::Array(list) => list.iter().map(|w| w.as_str().unwrap().to_owned()).collect(),
                    Value::String(one) => vec![one.clone()],
                    _ => Vec::new(),
                };
                let mut told: Vec<String> =
                    gone.drain(..).map(|path| format!("299 - \"unknown field \\\"{path}\\\"\"")).collect();
                warnings.sort();
                told.sort();
                assert_eq!(told, warnings);
                compared += 1;
            }
        }
        assert!(compared >= 4, "{compared}");
    }
}
