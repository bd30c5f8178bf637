//! Reads the recordings of a real server for the tests of this folder. They are facts kept outside the repository.
//! Must not know what is tested.

use std::fs;
use std::path::PathBuf;

use serde_json::Value;

/// Text of a file below the shared specifications; `None`, with a line that says so, where they are absent.
pub(super) fn text(file: &str) -> Option<String> {
    let root = std::env::var("RAYFLEET_SHARED")
        .map_or_else(|_| PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../shared")), PathBuf::from);
    let path = root.join(file);
    fs::read_to_string(&path)
        .inspect_err(|e| kit::skipped::note(&format!("{} cannot be read ({e}); set RAYFLEET_SHARED", path.display())))
        .ok()
}

/// A recorded topic, such as `crd`.
pub(super) fn topic(name: &str) -> Option<Value> {
    text(&format!("kube-api/{name}.json")).map(|t| serde_json::from_str(&t).expect("recordings are JSON"))
}

/// The exchanges of a case of a topic.
pub(super) fn exchanges(topic: &Value, case: &str) -> Vec<Value> {
    let cases = topic["cases"].as_array().expect("a topic has cases");
    let case = cases.iter().find(|c| c["id"] == case).expect("the case is recorded");
    case["exchanges"].as_array().expect("a case has exchanges").clone()
}

/// A CRD of the recordings by name: from the fixtures or from upstream.
pub(super) fn crd(name: &str) -> Option<Value> {
    if name.ends_with(".example.dev") {
        let fixtures: Value = serde_json::from_str(&text("kube-api/fixtures.json")?).expect("fixtures are JSON");
        return fixtures["crds"].as_array()?.iter().find(|c| c["metadata"]["name"] == name).cloned();
    }
    let (plural, group) = name.split_once('.')?;
    let yaml = text(&format!("upstream-crds/{group}_{plural}.yaml"))?;
    Some(serde_saphyr::from_str(&yaml).expect("upstream CRDs are YAML"))
}

/// The schema of a version of a CRD.
pub(super) fn schema(name: &str, version: &str) -> Option<super::schema::Schema> {
    let crd = crd(name)?;
    let versions = crd["spec"]["versions"].as_array()?;
    let found = versions.iter().find(|v| v["name"] == version)?;
    Some(super::schema::Schema::parse(&found["schema"]["openAPIV3Schema"]))
}
