//! A RayJob or RayCluster in the simulated fleet: one member that has what the manifest asks for.
//! Must not know why it goes as it goes: it reads the object's status.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use kit::fleet::MemberPlan;
use kit::world::World;
use rayfleet::api::Kind;
use rayfleet::plan::validate::Refusal;
use serde_json::{Value, json};

use super::Standing;
use super::manifests::Manifest;

/// Virtual time within which it must have come to what it is to be.
const LIMIT: Duration = Duration::from_secs(1800);
/// Kinds that are created on the hub before the object, if they are in the same manifest: what its pods name.
const NAMED: &[&str] = &["ConfigMap", "Secret", "ServiceAccount"];

/// Lets it live. `refusal`: what it needs that is not built.
pub(super) fn of(kind: Kind, root: &Value, refusal: Option<&Refusal>, manifest: &Manifest) -> Result<Standing, String> {
    let mut world = World::new(1, &[member(root)]);
    let mut root = root.clone();
    let namespace = root["metadata"]["namespace"].as_str().unwrap_or("default").to_owned();
    root["metadata"]["namespace"] = namespace.as_str().into();
    if namespace != "default" {
        world.submit(&json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}));
    }
    for object in prerequisites(&root, &namespace, manifest) {
        world.submit(&object);
    }
    world.submit(&root);
    let name = root["metadata"]["name"].as_str().unwrap_or_default();
    let path = format!("{}/{name}", kind.collection_path(Some(&namespace)));
    let begin = world.now;
    if let Some(refusal) = refusal {
        // What it is refused for must stand on the object itself.
        let told = |w: &World| w.hub(&path).is_some_and(|o| o["status"].to_string().contains(&refusal.message));
        return if !world.until(LIMIT, told) {
            Err(format!("{refusal}, and the object does not say so: {}", status(&world, &path)))
        } else if refusal.is_by_gate() {
            Ok(Standing::Equal(format!("accepted, lossless; refused as by KubeRay with its default gates: {refusal}")))
        } else {
            Ok(Standing::Explained(format!("{refusal}")))
        };
    }
    let reached = |w: &World| w.hub(&path).is_some_and(|object| is_there(kind, object));
    if !world.until(LIMIT, reached) {
        return Err(format!("within {} min it only came to {}", LIMIT.as_secs() / 60, status(&world, &path)));
    }
    if let Some(wrong) = world.recorder.violations.first() {
        return Err(format!("the recorder says: {wrong}"));
    }
    let state = state(kind, world.hub(&path).unwrap_or(&Value::Null)).to_owned();
    let seconds = world.now.since(begin).as_secs();
    Ok(Standing::Equal(format!("accepted, lossless, valid; {state} after {seconds} s")))
}

fn state(kind: Kind, object: &Value) -> &str {
    let field = if kind == Kind::RayJob { "jobDeploymentStatus" } else { "state" };
    object["status"][field].as_str().unwrap_or_default()
}

/// Whether it is what its user wants: done, ready, suspended, or waiting for its user.
fn is_there(kind: Kind, object: &Value) -> bool {
    let suspended = object["spec"]["suspend"] == true;
    let interactive = object["spec"]["submissionMode"] == "InteractiveMode";
    match state(kind, object) {
        "Complete" | "ready" => !suspended,
        "Suspended" | "suspended" => suspended,
        "Waiting" => interactive,
        _ => false,
    }
}

fn status(world: &World, path: &str) -> String {
    world.hub(path).map_or_else(|| "nothing: it is gone".to_owned(), |object| object["status"].to_string())
}

/// Pod templates of the object, wherever they stand.
fn templates<'a>(value: &'a Value, into: &mut Vec<&'a Value>) {
    match value {
        Value::Object(map) => {
            for (key, inner) in map {
                if (key == "template" || key == "submitterPodTemplate") && inner["spec"]["containers"].is_array() {
                    into.push(inner);
                }
                templates(inner, into);
            }
        }
        Value::Array(list) => list.iter().for_each(|inner| templates(inner, into)),
        _ => {}
    }
}

/// A member with the queue, the devices and the labels of nodes that the object asks for.
fn member(root: &Value) -> MemberPlan {
    let mut all = Vec::new();
    templates(root, &mut all);
    let mut plan = MemberPlan::new("here", 12, 512).memory_gib(4096);
    let queue = root["metadata"]["labels"]["volcano.sh/queue-name"].as_str().unwrap_or("default");
    plan = plan.queue(queue, 12 * 512);
    let mut labels: BTreeSet<BTreeMap<String, String>> = BTreeSet::new();
    for template in all {
        for container in template["spec"]["containers"].as_array().into_iter().flatten() {
            for side in ["limits", "requests"] {
                for name in container["resources"][side].as_object().into_iter().flatten().map(|(name, _)| name) {
                    match name.as_str() {
                        "cpu" | "memory" => {}
                        "ephemeral-storage" => plan = plan.device(name, "4Ti"),
                        _ => plan = plan.device(name, "64"),
                    }
                }
            }
        }
        let selector = template["spec"]["nodeSelector"].as_object().into_iter().flatten();
        labels.insert(selector.filter_map(|(k, v)| Some((k.clone(), v.as_str()?.to_owned()))).collect());
    }
    for labels in labels {
        plan = plan.labelled(labels);
    }
    plan
}

/// What must be on the hub before the object: the manifest's own, and an empty one for every other name.
fn prerequisites(root: &Value, namespace: &str, manifest: &Manifest) -> Vec<Value> {
    let own = manifest.documents.iter().filter(|d| NAMED.iter().any(|kind| d["kind"] == *kind)).map(|document| {
        let mut document = document.clone();
        if document["metadata"]["namespace"].is_null() {
            document["metadata"]["namespace"] = namespace.into();
        }
        document
    });
    let mut all: Vec<Value> = own.collect();
    if let Some(name) = root["spec"]["clusterSelector"]["ray.io/cluster"].as_str() {
        all.push(selected(name, root, namespace));
    }
    let mut pods = Vec::new();
    templates(root, &mut pods);
    let mut named = BTreeSet::new();
    for template in pods {
        names(&template["spec"], &mut named);
    }
    for (kind, name) in named {
        let there = |d: &Value| d["kind"] == kind && d["metadata"]["name"] == name.as_str();
        if !all.iter().any(there) {
            let metadata = json!({ "name": name, "namespace": namespace });
            all.push(json!({ "apiVersion": "v1", "kind": kind, "metadata": metadata }));
        }
    }
    all
}

/// A RayCluster for a job that brings none, of the job's queue.
fn selected(name: &str, root: &Value, namespace: &str) -> Value {
    let resources = json!({ "requests": { "cpu": "1", "memory": "1Gi" } });
    let head = json!({ "containers": [{ "name": "ray-head", "image": "rayproject/ray", "resources": resources }] });
    json!({
        "apiVersion": "ray.io/v1",
        "kind": "RayCluster",
        "metadata": { "name": name, "namespace": namespace, "labels": root["metadata"]["labels"] },
        "spec": { "headGroupSpec": { "rayStartParams": {}, "template": { "spec": head } } },
    })
}

/// ConfigMaps, Secrets and ServiceAccounts that a pod names.
fn names(value: &Value, into: &mut BTreeSet<(&'static str, String)>) {
    match value {
        Value::Object(map) => {
            for (key, inner) in map {
                let (kind, field) = match key.as_str() {
                    "configMap" | "configMapRef" | "configMapKeyRef" => ("ConfigMap", "name"),
                    "secretRef" | "secretKeyRef" => ("Secret", "name"),
                    "secret" => ("Secret", if inner["secretName"].is_string() { "secretName" } else { "name" }),
                    "serviceAccountName" => ("ServiceAccount", ""),
                    _ => ("", ""),
                };
                let name = if field.is_empty() { inner } else { &inner[field] };
                if let (false, Some(name)) = (kind.is_empty(), name.as_str()) {
                    into.insert((kind, name.to_owned()));
                }
                names(inner, into);
            }
        }
        Value::Array(list) => list.iter().for_each(|inner| names(inner, into)),
        _ => {}
    }
}
