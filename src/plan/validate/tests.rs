//! Which manifests are refused, and as what: one test for each rule, and the recordings, which decide.

mod cluster_rules;
mod cron_job_rules;
mod job_rules;
mod service_rules;
mod table;

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::*;
use crate::api::ray::{RayCluster, RayCronJob, RayJob, RayService};

/// A change of a manifest: which field, and what stands there then.
type Edit<'a> = (&'a str, Value);

/// Tests that are called after a rule: what breaks it, and at which field that is said, for which reason.
macro_rules! rules {
    ($check:ident $reason:ident $($name:ident: $([$(($path:expr, $value:expr)),+] => $field:expr),+;)+) => { $(
        #[test]
        fn $name() {
            $(
                let edits = [$(($path, $value)),+];
                let refusal = super::$check(&edits).expect_err(stringify!($name));
                assert_eq!((&*refusal.field, refusal.event_reason), ($field, $reason), "{edits:?}: {refusal}");
                assert!(!refusal.message.is_empty());
            )+
        }
    )+ };
}
use rules;

/// A manifest with other values at some places; what lies on the way is made.
fn edited(mut manifest: Value, edits: &[Edit<'_>]) -> Value {
    for (path, value) in edits {
        let mut at = &mut manifest;
        for step in path.split('.') {
            let (name, index) = match step.split_once('[') {
                Some((name, index)) => (name, index.trim_end_matches(']').parse::<usize>().ok()),
                None => (step, None),
            };
            at = &mut at[name];
            if let Some(index) = index {
                at = &mut at[index];
            }
        }
        *at = value.clone();
    }
    manifest
}

fn group(name: &str) -> Value {
    json!({
        "groupName": name, "replicas": 1, "minReplicas": 0, "maxReplicas": 2, "rayStartParams": {},
        "template": { "spec": { "containers": [{ "name": "ray", "image": "i" }] } },
    })
}

fn cluster_spec() -> Value {
    json!({
        "headGroupSpec": {
            "rayStartParams": {}, "template": { "spec": { "containers": [{ "name": "ray", "image": "i" }] } },
        },
        "workerGroupSpecs": [group("w")],
    })
}

fn manifest(kind: &str, spec: &Value) -> Value {
    json!({
        "apiVersion": "ray.io/v1", "kind": kind, "metadata": { "name": "a", "namespace": "default" }, "spec": spec,
    })
}

fn ray_cluster_manifest() -> Value {
    manifest("RayCluster", &cluster_spec())
}

fn typed<T: serde::de::DeserializeOwned>(manifest: Value, edits: &[Edit<'_>]) -> T {
    serde_json::from_value(edited(manifest, edits)).unwrap()
}

fn cluster_by(edits: &[Edit<'_>], gates: Gates) -> Result<(), Refusal> {
    let object: RayCluster = typed(ray_cluster_manifest(), edits);
    cluster::ray_cluster_by(&object, gates)
}

fn cluster(edits: &[Edit<'_>]) -> Result<(), Refusal> {
    cluster_by(edits, Gates::KUBERAY)
}

fn all_gates(edits: &[Edit<'_>]) -> Result<(), Refusal> {
    let on = Gates { embedded_storage: true, history_server: true, network_policy: true, ..Gates::KUBERAY };
    cluster_by(edits, Gates { mtls: true, cert_manager: true, ..on })
}

fn job_by(edits: &[Edit<'_>], gates: Gates) -> Result<(), Refusal> {
    let spec = json!({ "entrypoint": "true", "rayClusterSpec": cluster_spec() });
    job::ray_job_by(&typed::<RayJob>(manifest("RayJob", &spec), edits), gates)
}

fn job(edits: &[Edit<'_>]) -> Result<(), Refusal> {
    job_by(edits, Gates::KUBERAY)
}

/// With what is refused besides KubeRay's rules.
fn job_by_us(edits: &[Edit<'_>]) -> Result<(), Refusal> {
    let spec = json!({ "entrypoint": "true", "rayClusterSpec": cluster_spec() });
    job::ray_job(&typed::<RayJob>(manifest("RayJob", &spec), edits))
}

fn service_by(edits: &[Edit<'_>], gates: Gates) -> Result<(), Refusal> {
    let spec = json!({ "serveConfigV2": "", "rayClusterConfig": cluster_spec() });
    service::ray_service_by(&typed::<RayService>(manifest("RayService", &spec), edits), gates)
}

fn service(edits: &[Edit<'_>]) -> Result<(), Refusal> {
    service_by(edits, Gates::KUBERAY)
}

fn cron_job(edits: &[Edit<'_>]) -> Result<(), Refusal> {
    let template = json!({ "entrypoint": "true", "rayClusterSpec": cluster_spec() });
    let spec = json!({ "schedule": "*/5 * * * *", "jobTemplate": template });
    cron_job::ray_cron_job_by(&typed::<RayCronJob>(manifest("RayCronJob", &spec), edits), Gates::KUBERAY)
}

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

fn whole_job(edit: impl FnOnce(&mut Value)) -> Result<(), Refusal> {
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
    assert_eq!(whole_job(|_| {}), Ok(()));
}

#[test]
fn refusals_name_the_field() {
    let field = |edit: fn(&mut Value)| whole_job(edit).unwrap_err().field;
    assert_eq!(field(|j| j["metadata"]["name"] = "x".repeat(48).into()), "metadata.name");
    assert_eq!(field(|j| j["spec"]["suspend"] = true.into()), "spec.suspend");
    assert_eq!(field(|j| j["spec"]["rayClusterSpec"] = serde_json::json!({})), "spec.rayClusterSpec.headGroupSpec");
    assert_eq!(field(|j| j["spec"]["runtimeEnvYAML"] = "abc".into()), "spec.runtimeEnvYAML");
    let store = |j: &mut Value| {
        j["spec"]["rayClusterSpec"]["gcsFaultToleranceOptions"] = serde_json::json!({ "backend": "rocksdb" });
    };
    assert_eq!(field(store), "spec.rayClusterSpec.gcsFaultToleranceOptions.backend");
    let tokens = |j: &mut Value| {
        j["spec"]["rayClusterSpec"]["rayVersion"] = "2.52.0".into();
        j["spec"]["rayClusterSpec"]["authOptions"] = serde_json::json!({ "mode": "token" });
    };
    assert_eq!(field(tokens), "spec.rayClusterSpec.authOptions");
    let limits = |value: &str| {
        let value = serde_json::json!({ "limits": { "cpu": value } });
        whole_job(|j| {
            j["spec"]["rayClusterSpec"]["headGroupSpec"]["template"]["spec"]["containers"][0]["resources"] = value;
        })
    };
    let at = "spec.rayClusterSpec.headGroupSpec.template.spec.containers[0].resources.limits.cpu";
    assert_eq!(limits("many").unwrap_err().field, at);
    assert_eq!(limits("1500m"), Ok(()));
}

#[test]
fn a_template_of_another_shape_is_refused_not_tripped_over() {
    let head = |template: Value| whole_job(|j| j["spec"]["rayClusterSpec"]["headGroupSpec"]["template"] = template);
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
