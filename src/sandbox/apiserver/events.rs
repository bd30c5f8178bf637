//! Events are one set of objects with two forms: that of the core group, in which they are kept, and `events.k8s.io`.
//! Must not know requests or the store.

use serde_json::{Value, json};

/// Fields of the core group and what they are called in `events.k8s.io`.
const NAMES: &[(&str, &str)] = &[
    ("involvedObject", "regarding"),
    ("message", "note"),
    ("source", "deprecatedSource"),
    ("firstTimestamp", "deprecatedFirstTimestamp"),
    ("lastTimestamp", "deprecatedLastTimestamp"),
    ("count", "deprecatedCount"),
    ("reportingComponent", "reportingController"),
];

/// The object with another `apiVersion` of its kind; only Events differ in more than that.
pub(super) fn in_api_version(mut object: Value, api_version: &str) -> Value {
    object["apiVersion"] = api_version.into();
    if object["kind"] != "Event" || !matches!(api_version, "v1" | "events.k8s.io/v1") {
        return object;
    }
    let to_core = api_version == "v1";
    let Some(map) = object.as_object_mut() else { return object };
    for (core, newer) in NAMES {
        let (from, to) = if to_core { (newer, core) } else { (core, newer) };
        if let Some(value) = map.remove(*from) {
            map.insert((*to).to_owned(), value);
        }
    }
    if to_core {
        for field in ["reportingComponent", "reportingInstance"] {
            map.entry(field).or_insert_with(|| json!(""));
        }
    } else {
        // Texts without content are left out in this form.
        map.retain(|k, v| !(["reportingController", "reportingInstance"].contains(&k.as_str()) && *v == ""));
    }
    object
}
