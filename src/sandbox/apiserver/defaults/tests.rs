//! What is filled in and refused, against the recordings of a real server.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::super::recorded;
use super::super::registry::{Registry, ResourceType};
use super::*;

fn type_behind<'a>(registry: &'a Registry, path: &str) -> Option<&'a ResourceType> {
    let parts: Vec<&str> = path.split('?').next()?.split('/').skip(1).collect();
    let (group, version, rest) = match parts.as_slice() {
        ["api", version, rest @ ..] => ("", *version, rest),
        ["apis", group, version, rest @ ..] => (*group, *version, rest),
        _ => return None,
    };
    match rest {
        ["namespaces", _, plural] | [plural] => registry.find(group, version, plural).map(AsRef::as_ref),
        _ => None,
    }
}

/// What another server chooses freely: addresses, random names, times.
fn comparable(mut object: Value) -> Value {
    let text = serde_json::to_string(&object).unwrap();
    if let Some(map) = object.as_object_mut() {
        map.remove("metadata");
    }
    let volume = text.split('"').find(|part| part.starts_with("kube-api-access-")).map(str::to_owned);
    let mut text = serde_json::to_string(&object).unwrap();
    if let Some(volume) = volume {
        text = text.replace(&volume, "kube-api-access-<rand>");
    }
    let mut object: Value = serde_json::from_str(&text).unwrap();
    if object["kind"] == "Service" && !matches!(object["spec"]["clusterIP"].as_str(), Some("None") | None) {
        object["spec"]["clusterIP"] = json!("<clusterIP>");
        object["spec"]["clusterIPs"] = json!(["<clusterIP>"]);
        for port in object["spec"]["ports"].as_array_mut().into_iter().flatten() {
            if port.get("nodePort").is_some() {
                port["nodePort"] = json!("<nodePort>");
            }
        }
    }
    object
}

/// Replays the creates of a case: what is stored, or why it is not.
fn replay(case: &str, registry: &Registry, topic: &Value) -> usize {
    let mut compared = 0;
    for exchange in recorded::exchanges(topic, case) {
        let (request, response) = (&exchange["request"], &exchange["response"]);
        let path = request["path"].as_str().unwrap();
        let Some(ty) = type_behind(registry, path).filter(|t| t.builtin) else { continue };
        if request["method"] != "POST" || !request["body"].is_object() {
            continue;
        }
        let answer = &response["body"];
        let mut object = request["body"].clone();
        let quantities = canonical_quantities(ty, &mut object);
        match response["status"].as_u64().unwrap() {
            201 => {
                quantities.unwrap();
                object["metadata"]["uid"] = answer["metadata"]["uid"].clone();
                object["metadata"]["name"] = answer["metadata"]["name"].clone();
                if object["spec"]["priorityClassName"] == "rec-pc" {
                    object["spec"]["priority"] = json!(10);
                }
                object["metadata"]["namespace"] = answer["metadata"]["namespace"].clone();
                if ty.has_status && ty.kind != "Node" {
                    object.as_object_mut().unwrap().remove("status");
                }
                apply(ty, &mut object, None);
                assert_eq!(validate(ty, &object, None), [], "{case}: {}", request["body"]);
                if ty.kind == "Service" {
                    allocate_addresses(&mut object, 5);
                }
                if ty.kind != "HorizontalPodAutoscaler" {
                    assert_eq!(comparable(object), comparable(answer.clone()), "{case}: {}", request["body"]);
                    compared += 1;
                }
            }
            422 => {
                quantities.unwrap();
                object["metadata"]["namespace"] = json!(path.split('/').skip_while(|p| *p != "namespaces").nth(1));
                apply(ty, &mut object, None);
                let mine: BTreeSet<_> = validate(ty, &object, None).into_iter().map(|c| (c.field, c.message)).collect();
                let text = |v: &Value| v.as_str().unwrap().to_owned();
                let theirs: BTreeSet<_> = answer["details"]["causes"]
                    .as_array()
                    .unwrap()
                    .iter()
                    .map(|c| (text(&c["field"]), text(&c["message"])))
                    .collect();
                assert_eq!(mine, theirs, "{case}: {}", request["body"]);
                compared += 1;
            }
            400 if answer["message"].as_str().unwrap().contains("quantities") => {
                assert!(answer["message"].as_str().unwrap().ends_with(&quantities.unwrap_err()));
                compared += 1;
            }
            _ => {}
        }
    }
    compared
}

#[test]
fn creates_are_completed_and_refused_as_recorded() {
    let Some(topic) = recorded::topic("defaults") else { return };
    let registry = Registry::new();
    let mut compared = 0;
    for case in [
        "pod",
        "pod-errors",
        "service",
        "job",
        "lease",
        "configmap-secret",
        "workloads",
        "node-namespace",
        "events",
        "other-kinds",
    ] {
        compared += replay(case, &registry, &topic);
    }
    assert!(compared >= 60, "{compared}");
}

#[test]
fn of_a_pod_only_a_few_things_change() {
    let registry = Registry::new();
    let ty = registry.find("", "v1", "pods").unwrap();
    let mut pod = json!({"metadata": {"name": "a", "uid": "u"}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    apply(ty, &mut pod, None);
    let mut other = pod.clone();
    other["spec"]["containers"][0]["image"] = json!("new");
    assert_eq!(validate(ty, &other, Some(&pod)), []);
    other["spec"]["restartPolicy"] = json!("Never");
    assert_eq!(validate(ty, &other, Some(&pod))[0].field, "spec");
}

#[test]
fn a_put_without_addresses_keeps_them() {
    let registry = Registry::new();
    let ty = registry.find("", "v1", "services").unwrap();
    let mut service = json!({"metadata": {"name": "a"}, "spec": {"ports": [{"port": 80}]}});
    apply(ty, &mut service, None);
    allocate_addresses(&mut service, 0);
    let mut put = json!({"metadata": {"name": "a"}, "spec": {"ports": [{"port": 90}]}});
    apply(ty, &mut put, Some(&service));
    assert_eq!(put["spec"]["clusterIP"], service["spec"]["clusterIP"]);
    assert_eq!(validate(ty, &put, Some(&service)), []);
}

#[test]
fn a_projected_token_lasts_an_hour_unless_its_volume_says_otherwise() {
    let source = |token: Value| json!({"name": "v", "projected": {"sources": [{"serviceAccountToken": token}]}});
    let mut volumes = [source(json!({"path": "token"})), source(json!({"path": "token", "expirationSeconds": 7200}))];
    volumes.iter_mut().for_each(pod::volume);
    let lasts = volumes.map(|v| v["projected"]["sources"][0]["serviceAccountToken"]["expirationSeconds"].clone());
    assert_eq!(lasts, [json!(3600), json!(7200)]);
}
