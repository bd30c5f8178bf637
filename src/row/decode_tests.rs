//! Objects as servers send them, and what their rows say.
//! Must not look beyond the row.

use serde_json::{Value, json};

use super::*;

fn object(kind: Kind) -> Value {
    let mut metadata =
        json!({"name": "a", "uid": "u-1", "resourceVersion": "7", "creationTimestamp": "2026-11-29T12:00:00Z"});
    if kind.namespaced() {
        metadata["namespace"] = json!("n");
    }
    json!({"apiVersion": kind.api_version(), "kind": kind.name(), "metadata": metadata})
}

fn row(kind: Kind, object: &Value) -> Row {
    decode(kind, object.to_string().as_bytes()).unwrap()
}

#[test]
fn every_kind_decodes_from_its_metadata_alone() {
    for kind in Kind::ALL {
        let row = row(*kind, &object(*kind));
        assert_eq!((&*row.id.name, row.version, row.id.kind), ("a", Version(7), *kind));
        assert_eq!(row.created, Time::parse("2026-11-29T12:00:00Z").unwrap());
        assert_eq!(row.body.is_some(), has_body(*kind), "{kind}");
    }
}

#[test]
fn null_counts_as_absent() {
    for kind in Kind::ALL {
        let mut object = object(*kind);
        for field in ["spec", "status", "value"] {
            object[field] = Value::Null;
        }
        for field in
            ["labels", "annotations", "finalizers", "ownerReferences", "creationTimestamp", "deletionTimestamp"]
        {
            object["metadata"][field] = Value::Null;
        }
        assert_eq!(row(*kind, &object).created, Time(0));
    }
    let mut pod = object(Kind::Pod);
    pod["spec"] = json!({"containers": null, "nodeName": null, "tolerations": null, "overhead": null});
    pod["status"] = json!({"conditions": null, "containerStatuses": [{"name": "c", "state": null}]});
    row(Kind::Pod, &pod);
}

#[test]
fn metadata_is_taken_in_whole() {
    let mut object = object(Kind::Service);
    object["metadata"]["labels"] = json!({"x": "y", "rayfleet.io/root-id": "r-1"});
    object["metadata"]["annotations"] =
        json!({"other": "dropped", "ray.io/version": "2.52", "rayfleet.io/stamps": "{\"m-eu-0\":4}"});
    object["metadata"]["finalizers"] = json!(["f"]);
    object["metadata"]["deletionTimestamp"] = json!("2026-11-29T12:00:01Z");
    object["metadata"]["generation"] = json!(3);
    object["metadata"]["ownerReferences"] =
        json!([{"uid": "o-1", "kind": "X"}, {"uid": "o-2", "controller": true, "kind": "X"}]);
    let row = row(Kind::Service, &object);
    assert_eq!(row.label("x"), "y");
    assert_eq!(row.annotations.keys().map(|k| &**k).collect::<Vec<_>>(), ["ray.io/version", "rayfleet.io/stamps"]);
    assert_eq!(row.stamps.get("m-eu-0"), Some(&4));
    assert_eq!(row.root_id, Some("r-1".into()));
    assert_eq!((row.owner.clone(), row.owners.len()), (Some("o-2".into()), 2));
    assert!(row.deleting.is_some() && row.has_finalizer("f") && row.generation == 3);
}

#[test]
fn the_root_id_may_stand_in_an_annotation_alone() {
    let mut object = object(Kind::RayJob);
    object["metadata"]["annotations"] = json!({"rayfleet.io/root-id": "r-1"});
    assert_eq!(row(Kind::RayJob, &object).root_id, Some("r-1".into()));
}

#[test]
fn a_body_is_the_text_without_managed_fields() {
    let text = br#"{"metadata":{"name":"a","namespace":"n","uid":"u","resourceVersion":"7","managedFields":[{"manager":"x"}],"labels":{"a\"b":"c"}},"spec":{"n":1.50,"big":12345678901234567890123}}"#;
    let body = decode(Kind::RayJob, text).unwrap().body.unwrap();
    assert_eq!(
        &*body,
        r#"{"apiVersion":"ray.io/v1","kind":"RayJob","metadata":{"name":"a","namespace":"n","uid":"u","resourceVersion":"7","labels":{"a\"b":"c"}},"spec":{"n":1.50,"big":12345678901234567890123}}"#
    );
}

#[test]
fn errors_name_the_field_and_never_the_value() {
    let mut pod = object(Kind::Pod);
    pod["spec"] = json!({"containers": [{"name": "a"}, {"restartPolicy": 7}]});
    assert_eq!(
        decode(Kind::Pod, pod.to_string().as_bytes()).unwrap_err().to_string(),
        "spec.containers[1].restartPolicy: expected a string"
    );
    let mut secret = object(Kind::Secret);
    secret["metadata"]["generation"] = json!("hunter2");
    secret["data"] = json!({"password": "hunter2"});
    let error = decode(Kind::Secret, secret.to_string().as_bytes()).unwrap_err().to_string();
    assert_eq!(error, "metadata.generation: expected i64");
    let cut = &secret.to_string()[..60];
    assert!(decode(Kind::Secret, cut.as_bytes()).unwrap_err().to_string().starts_with("no JSON at line 1"));
}

#[test]
fn an_object_without_identity_is_refused() {
    for field in ["name", "namespace", "uid", "resourceVersion"] {
        let mut object = object(Kind::Pod);
        object["metadata"].as_object_mut().unwrap().remove(field);
        let error = decode(Kind::Pod, object.to_string().as_bytes()).unwrap_err().to_string();
        assert!(error.contains(field), "{error}");
    }
}

#[test]
fn unreadable_stamps_stop_the_object() {
    let mut object = object(Kind::RayJob);
    for stamps in ["none", "{\"m-eu-0\":18446744073709551615}", "{\"m-eu-0\":2147483648}"] {
        object["metadata"]["annotations"] = json!({ "rayfleet.io/stamps": stamps });
        let error = decode(Kind::RayJob, object.to_string().as_bytes()).unwrap_err().to_string();
        assert_eq!(error, "annotation rayfleet.io/stamps is no map of unit to epoch", "{stamps}");
    }
}

fn requests(spec: Value) -> Vec<(String, String)> {
    let mut pod = object(Kind::Pod);
    pod["spec"] = spec;
    let Facts::Pod(facts) = row(Kind::Pod, &pod).facts else { unreachable!("a pod has a pod's facts") };
    facts.requests.iter().map(|(k, v)| (k.to_string(), v.to_string())).collect()
}

fn cpu(amount: &str) -> Value {
    json!({"requests": {"cpu": amount}})
}

#[test]
fn a_pods_requests_follow_kubernetes_rule() {
    let sum = requests(json!({"containers": [
        {"name": "a", "resources": {"requests": {"cpu": "500m", "memory": "1Gi"}}},
        {"name": "b", "resources": {"requests": {"cpu": 1}, "limits": {"cpu": "2", "nvidia.com/gpu": 1}}}]}));
    let text = |list: &[(&str, &str)]| list.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect::<Vec<_>>();
    assert_eq!(sum, text(&[("cpu", "1500m"), ("memory", "1Gi"), ("nvidia.com/gpu", "1")]));

    // An init container counts only by what it needs beyond the rest.
    let init = |amount| {
        json!({"containers": [{"name": "a", "resources": cpu("2")}],
                               "initContainers": [{"name": "i", "resources": cpu(amount)}]})
    };
    assert_eq!(requests(init("3")), text(&[("cpu", "3")]));
    assert_eq!(requests(init("1")), text(&[("cpu", "2")]));

    // A sidecar runs beside all that follow it, init containers too.
    let sidecars = requests(json!({"containers": [{"name": "a", "resources": cpu("2")}], "initContainers": [
        {"name": "early", "resources": cpu("3")},
        {"name": "side", "restartPolicy": "Always", "resources": cpu("1")},
        {"name": "late", "resources": cpu("3")}]}));
    assert_eq!(sidecars, text(&[("cpu", "4")]));

    // What the pod asks for as a whole replaces the sums; overhead comes on top.
    let whole = requests(json!({"containers": [{"name": "a", "resources": {"requests": {"cpu": "2", "x.io/y": "1"}}}],
        "resources": {"requests": {"cpu": "5", "x.io/y": "9"}}, "overhead": {"cpu": "250m", "memory": "64Mi"}}));
    assert_eq!(whole, text(&[("cpu", "5250m"), ("memory", "64Mi"), ("x.io/y", "1")]));
}

#[test]
fn a_bad_quantity_is_named() {
    let mut pod = object(Kind::Pod);
    pod["spec"] = json!({"containers": [{"name": "a", "resources": cpu("lots")}]});
    let error = decode(Kind::Pod, pod.to_string().as_bytes()).unwrap_err().to_string();
    assert_eq!(error, "requests of the pod: cpu: \"lots\" is no quantity (like 500m, 4, 1.5Gi)");
}

#[test]
fn a_pods_status_is_read() {
    let mut pod = object(Kind::Pod);
    pod["spec"] = json!({"nodeName": "n1", "restartPolicy": "Never", "tolerations": [{"operator": "Exists"}]});
    pod["status"] = json!({"phase": "Failed", "podIP": "10.0.0.1",
        "conditions": [{"type": "Ready", "status": "True"}],
        "containerStatuses": [
            {"name": "a", "restartCount": 2, "state": {"terminated": {"exitCode": 137, "reason": "OOMKilled", "finishedAt": "2026-11-29T12:00:00Z"}}},
            {"name": "b", "state": {"waiting": {"reason": "ImagePullBackOff"}}},
            {"name": "c", "state": {"running": {}}}]});
    let Facts::Pod(facts) = row(Kind::Pod, &pod).facts else { unreachable!("a pod has a pod's facts") };
    assert!(facts.ready && &*facts.phase == "Failed" && &*facts.node == "n1" && &*facts.ip == "10.0.0.1");
    assert_eq!((facts.containers[0].exit_code, &*facts.containers[0].reason), (Some(137), "OOMKilled"));
    assert_eq!(facts.containers[0].restarts, 2);
    assert_eq!((facts.containers[1].exit_code, &*facts.containers[1].reason), (None, "ImagePullBackOff"));
    assert_eq!(facts.containers[2].exit_code, None);
    assert_eq!(&*facts.tolerations[0].operator, "Exists");
}

#[test]
fn volcanos_objects_and_ours_are_read() {
    let mut queue = object(Kind::Queue);
    queue["spec"] = json!({"weight": 2, "reclaimable": false, "capability": {"cpu": 8, "memory": "1.5Gi"}, "guarantee": {"resource": {"cpu": "1"}}});
    queue["status"] = json!({"state": "Open", "allocated": {"cpu": "0.5"}});
    let Facts::Queue(facts) = row(Kind::Queue, &queue).facts else { unreachable!("a queue has a queue's facts") };
    assert_eq!((facts.weight, facts.reclaimable, &*facts.capability["cpu"]), (2, Some(false), "8"));
    assert_eq!((&*facts.guarantee["cpu"], &*facts.allocated["cpu"], &*facts.state), ("1", "0.5", "Open"));

    let mut group = object(Kind::PodGroup);
    group["spec"] =
        json!({"queue": "ml", "minMember": 3, "minTaskMember": {"headgroup": 1}, "minResources": {"cpu": "3"}});
    group["status"] = json!({"phase": "Inqueue", "running": 1});
    let Facts::PodGroup(facts) = row(Kind::PodGroup, &group).facts else { unreachable!("its own facts") };
    assert_eq!((facts.min_member, &*facts.phase, facts.running), (3, "Inqueue", 1));

    let mut placement = object(Kind::Placement);
    placement["spec"] = json!({"root": {"kind": "RayJob", "name": "a", "uid": "u", "rootId": "u"}, "queue": "ml",
        "stage": "Reserving", "generation": 1, "member": "eu", "claims": {"m-eu-0": 4}});
    let Facts::Placement(facts) = row(Kind::Placement, &placement).facts else { unreachable!("its own facts") };
    assert_eq!((facts.spec.claims["m-eu-0"], facts.spec.generation), (4, 1));

    let mut class = object(Kind::PriorityClass);
    class["value"] = json!(1000);
    assert_eq!(row(Kind::PriorityClass, &class).facts, Facts::Priority(1000));
}
