//! Which manifests are refused, and as what: the recordings decide.

use std::collections::BTreeMap;

use serde_json::Value;

use super::*;
use crate::api::ray::{RayCluster, RayJob};

/// Manifests of a recorded case by kind and name, and per name the reason of the Event that KubeRay wrote.
fn case(case: &str) -> (Vec<Value>, BTreeMap<String, String>) {
    let shared = std::env::var("RAYFLEET_SHARED").unwrap_or(concat!(env!("CARGO_MANIFEST_DIR"), "/../shared").into());
    let folder = std::path::Path::new(&shared).join("golden/cases").join(case);
    let read = |file: &str| {
        let path = folder.join(file);
        std::fs::read_to_string(&path)
            .unwrap_or_else(|e| panic!("recordings are read from {} (set RAYFLEET_SHARED): {e}", path.display()))
    };
    let manifests = read("manifest.yaml");
    let manifests = manifests.split("\n---").map(|d| serde_saphyr::from_str(d).unwrap()).collect();
    let golden: Value = serde_json::from_str(&read("golden.json")).unwrap();
    let mut reasons = BTreeMap::new();
    for event in golden["phases"][0]["events"].as_array().unwrap() {
        if event["action"] == "Validate" {
            let name = event["regarding"]["name"].as_str().unwrap().to_owned();
            reasons.insert(name, event["reason"].as_str().unwrap().to_owned());
        }
    }
    (manifests, reasons)
}

/// As the API server fills it in.
fn defaults(mut manifest: Value) -> Value {
    for path in ["/spec/workerGroupSpecs", "/spec/rayClusterSpec/workerGroupSpecs"] {
        for group in manifest.pointer_mut(path).and_then(Value::as_array_mut).into_iter().flatten() {
            for (key, value) in [("minReplicas", 0), ("maxReplicas", i32::MAX)] {
                if group[key].is_null() {
                    group[key] = value.into();
                }
            }
        }
    }
    manifest
}

#[test]
fn ray_clusters_that_kuberay_refuses_are_refused_for_the_same_reason() {
    for name in ["invalid-rayclusters-basic", "invalid-rayclusters-features"] {
        let (manifests, reasons) = case(name);
        assert!(!reasons.is_empty());
        for manifest in manifests {
            let cluster: RayCluster = serde_json::from_value(defaults(manifest)).unwrap();
            let name = cluster.metadata.name();
            if name == "v1-worker-restart-warning" {
                // Only warned about: the pass goes on.
                continue;
            }
            let ours = ray_cluster(&cluster).err().map(|r| r.event_reason).filter(|r| *r != NOT_BUILT);
            assert_eq!(ours, reasons.get(name).map(String::as_str), "{name}: {:?}", ray_cluster(&cluster));
        }
    }
}

#[test]
fn ray_jobs_that_kuberay_refuses_are_refused_for_the_same_reason() {
    let (manifests, reasons) = case("invalid-rayjobs-deletion");
    assert!(!reasons.is_empty());
    for manifest in manifests {
        let job: RayJob = serde_json::from_value(defaults(manifest)).unwrap();
        let name = job.metadata.name();
        let ours = ray_job(&job).err().map(|r| r.event_reason).filter(|r| *r != NOT_BUILT);
        assert_eq!(ours, reasons.get(name).map(String::as_str), "{name}: {:?}", ray_job(&job));
    }
}

fn job(edit: impl FnOnce(&mut Value)) -> Result<(), Refusal> {
    let mut value = serde_json::json!({
        "apiVersion": "ray.io/v1", "kind": "RayJob", "metadata": { "name": "train", "namespace": "default" },
        "spec": { "entrypoint": "true", "rayClusterSpec": {
            "headGroupSpec": { "template": { "spec": { "containers": [{ "name": "ray", "image": "i" }] } } },
        } },
    });
    edit(&mut value);
    ray_job(&serde_json::from_value(value).unwrap())
}

#[test]
fn a_plain_job_is_accepted() {
    assert_eq!(job(|_| {}), Ok(()));
}

#[test]
fn refusals_name_the_field() {
    let field = |edit: fn(&mut Value)| job(edit).unwrap_err().field;
    assert_eq!(field(|j| j["metadata"]["name"] = "x".repeat(48).into()), "metadata.name");
    assert_eq!(field(|j| j["spec"]["suspend"] = true.into()), "spec.suspend");
    assert_eq!(field(|j| j["spec"]["rayClusterSpec"] = serde_json::json!({})), "spec.rayClusterSpec.headGroupSpec");
    assert_eq!(field(|j| j["spec"]["runtimeEnvYAML"] = "abc".into()), "spec.runtimeEnvYAML");
    assert_eq!(field(|j| j["spec"]["submissionMode"] = "SidecarMode".into()), "spec.submissionMode");
    let limits = |value: &str| {
        let value = serde_json::json!({ "limits": { "cpu": value } });
        job(|j| j["spec"]["rayClusterSpec"]["headGroupSpec"]["template"]["spec"]["containers"][0]["resources"] = value)
    };
    let at = "spec.rayClusterSpec.headGroupSpec.template.spec.containers[0].resources.limits.cpu";
    assert_eq!(limits("many").unwrap_err().field, at);
    assert_eq!(limits("1500m"), Ok(()));
}

#[test]
fn a_template_of_another_shape_is_refused_not_tripped_over() {
    let head = |template: Value| job(|j| j["spec"]["rayClusterSpec"]["headGroupSpec"]["template"] = template);
    for template in [
        serde_json::json!("text"),
        serde_json::json!({ "metadata": 1, "spec": { "containers": [{}] } }),
        serde_json::json!({ "metadata": { "labels": "x" }, "spec": { "containers": [{}] } }),
        serde_json::json!({ "spec": "x" }),
        serde_json::json!({ "spec": { "containers": ["x"] } }),
        serde_json::json!({ "spec": { "containers": [{ "env": "x" }] } }),
        serde_json::json!({ "spec": { "containers": [{}], "initContainers": {} } }),
    ] {
        assert!(head(template.clone()).is_err(), "{template}");
    }
}
