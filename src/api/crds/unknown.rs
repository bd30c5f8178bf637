//! Fields that no definition of ours names: mostly misspelt. The API server keeps them, since a newer Kubernetes may know
//! them; a person wants to be told.
//! Must not know whether anything else is wrong with the object.

use serde_json::Value;

use super::made;
use crate::api::Kind;

/// A field that is not known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unknown {
    /// Where: `spec.rayClusterSpec.headGroupSpec.tmplate`.
    pub path: String,
    /// The known field of that place that it is most like, where one is near enough to be meant.
    pub nearest: Option<String>,
}

/// Fields of `metadata` that people write.
const METADATA: &[&str] = &[
    "annotations",
    "creationTimestamp",
    "deletionGracePeriodSeconds",
    "deletionTimestamp",
    "finalizers",
    "generateName",
    "generation",
    "labels",
    "managedFields",
    "name",
    "namespace",
    "ownerReferences",
    "resourceVersion",
    "selfLink",
    "uid",
];

/// Unknown fields that are reported of one object at most.
const REPORTED_MAX: usize = 100;

/// Unknown fields of an object of this kind, in the order of the object; none for kinds without a definition of ours.
pub fn unknown_fields(kind: Kind, object: &Value) -> Vec<Unknown> {
    let Some(crd) = made().iter().find(|crd| crd["spec"]["names"]["kind"] == kind.name()) else {
        return Vec::new();
    };
    let mut found = Vec::new();
    let schema = &crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
    look(schema, object, "", &mut found);
    let known = METADATA.iter().copied();
    for key in object["metadata"].as_object().into_iter().flatten().map(|(key, _)| key) {
        if !METADATA.contains(&key.as_str()) && found.len() < REPORTED_MAX {
            found.push(Unknown { path: format!("metadata.{key}"), nearest: nearest(key, known.clone()) });
        }
    }
    found
}

fn look(schema: &Value, value: &Value, at: &str, found: &mut Vec<Unknown>) {
    match value {
        Value::Object(map) => {
            let Some(known) = schema["properties"].as_object() else {
                // A map, or something that is open as a whole.
                if schema["additionalProperties"].is_object() {
                    for (key, inner) in map {
                        look(&schema["additionalProperties"], inner, &format!("{at}[{key}]"), found);
                    }
                }
                return;
            };
            for (key, inner) in map {
                let path = if at.is_empty() { key.clone() } else { format!("{at}.{key}") };
                match known.get(key) {
                    Some(sub) => look(sub, inner, &path, found),
                    None if found.len() < REPORTED_MAX => {
                        found.push(Unknown { path, nearest: nearest(key, known.keys().map(String::as_str)) });
                    }
                    None => {}
                }
            }
        }
        Value::Array(list) => {
            for (i, inner) in list.iter().enumerate() {
                look(&schema["items"], inner, &format!("{at}[{i}]"), found);
            }
        }
        _ => {}
    }
}

/// The name that takes the fewest changes, if they are few for a name of its length.
pub fn nearest<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> Option<String> {
    // Longer words are nobody's misspelling, and would take their square in time.
    if name.len() > 64 {
        return None;
    }
    let best = known.map(|other| (changes(&name.to_lowercase(), &other.to_lowercase()), other)).min();
    best.filter(|(changes, _)| *changes <= 1 + name.len() / 4).map(|(_, other)| other.to_owned())
}

/// Letters that are added, dropped, replaced or swapped with the next (optimal string alignment).
fn changes(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    let mut rows = vec![(0..=b.len()).collect::<Vec<_>>()];
    for i in 1..=a.len() {
        let mut row = vec![i];
        for j in 1..=b.len() {
            let replaced = rows[i - 1][j - 1] + usize::from(a[i - 1] != b[j - 1]);
            let mut least = replaced.min(rows[i - 1][j] + 1).min(row[j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                least = least.min(rows[i - 2][j - 2] + 1);
            }
            row.push(least);
        }
        rows.push(row);
    }
    rows[a.len()][b.len()]
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_misspelt_field_is_named_with_the_one_that_is_meant() {
        let job = json!({
            "apiVersion": "ray.io/v1", "kind": "RayJob", "metadata": { "name": "a", "lables": {} },
            "spec": {
                "entrypiont": "true",
                "rayClusterSpec": { "headGroupSpec": { "rayStartParams": { "any-flag": "1" }, "template": { "spec": {
                    "containers": [{ "name": "ray", "imagePullPolice": "Always" }], "wholly-unknown": 1,
                } } } },
            },
        });
        let told: Vec<(String, Option<String>)> =
            unknown_fields(Kind::RayJob, &job).into_iter().map(|u| (u.path, u.nearest)).collect();
        let some = |text: &str| Some(text.to_owned());
        let template = "spec.rayClusterSpec.headGroupSpec.template.spec";
        assert_eq!(
            told,
            [
                ("spec.entrypiont".to_owned(), some("entrypoint")),
                (format!("{template}.containers[0].imagePullPolice"), some("imagePullPolicy")),
                (format!("{template}.wholly-unknown"), None),
                ("metadata.lables".to_owned(), some("labels")),
            ]
        );
    }

    #[test]
    fn maps_and_kinds_without_a_definition_have_no_unknown_fields() {
        let config = json!({ "kind": "ConfigMap", "data": { "x": "y" }, "whatever": 1 });
        assert_eq!(unknown_fields(Kind::ConfigMap, &config), []);
    }
}
