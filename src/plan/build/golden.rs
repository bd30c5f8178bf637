//! What we build against what KubeRay was recorded to build.
//! Left out: texts that are ours (scripts that wait), versions, hashes and made-up names.

use serde_json::Value;

use super::*;
use crate::api::names::REDIS_FINALIZER;
use crate::api::ray::{RayCluster, RayJob};
use crate::plan::validate::{NOT_BUILT, ray_job};
use crate::plan::{Flags, TokenKey};

fn flags() -> Flags {
    Flags { version: "nightly".into(), ..Flags::default() }
}

/// The phases of one recording.
fn phases(path: &str, run: Option<&str>) -> Vec<Value> {
    let shared = std::env::var("RAYFLEET_SHARED").unwrap_or(concat!(env!("CARGO_MANIFEST_DIR"), "/../shared").into());
    let path = std::path::Path::new(&shared).join("golden").join(path);
    let text = std::fs::read_to_string(&path)
        .unwrap_or_else(|e| panic!("recordings are read from {} (set RAYFLEET_SHARED): {e}", path.display()));
    let all: Value = serde_json::from_str(&text).unwrap();
    let run = run.map_or(&all, |run| &all["runs"][run]);
    run["phases"].as_array().cloned().unwrap_or_default()
}

/// Every write of a phase: (verb, resource, body).
fn writes(phase: &Value) -> Vec<(String, String, Value)> {
    let mut writes = Vec::new();
    for round in phase["rounds"].as_array().into_iter().flatten() {
        for write in round["writes"].as_array().into_iter().flatten() {
            let text = |key: &str| write[key].as_str().unwrap_or_default().to_owned();
            if write["subresource"].is_null() && write["error"].is_null() {
                writes.push((text("verb"), text("resource"), write["body"].clone()));
            }
        }
    }
    writes
}

/// The objects at the end of a phase.
fn objects(phase: &Value) -> Vec<Value> {
    phase["objects"].as_array().cloned().unwrap_or_default()
}

/// Removes what cannot be equal and what the API server makes equal.
fn normal(mut value: Value) -> Value {
    if let Some(metadata) = value["metadata"].as_object_mut() {
        metadata.remove("generateName");
        metadata.remove("name");
        if let Some(annotations) = metadata.get_mut("annotations").and_then(Value::as_object_mut) {
            annotations.remove("ray.io/upgrade-strategy-recreate-hash");
        }
    }
    for port in value["spec"]["ports"].as_array_mut().into_iter().flatten() {
        if port["targetPort"] == 0 {
            port.as_object_mut().unwrap().remove("targetPort");
        }
    }
    if let Some(ports) = value["spec"]["ports"].as_array_mut() {
        // With a service of the user's own KubeRay appends in random order.
        ports.sort_by_key(|port| port["name"].to_string());
    }
    for container in value
        .pointer_mut("/spec/headGroupSpec/template/spec/containers")
        .and_then(Value::as_array_mut)
        .into_iter()
        .flatten()
    {
        without_waiting(container);
    }
    for container in value["spec"]["containers"].as_array_mut().into_iter().flatten() {
        without_waiting(container);
    }
    for container in value["spec"]["initContainers"].as_array_mut().into_iter().flatten() {
        if container["name"] == "wait-gcs-ready" {
            container.as_object_mut().unwrap().remove("args");
        }
    }
    if let Some(container) = value.pointer_mut("/spec/template/spec/containers/0") {
        without_waiting(container);
    }
    if value["spec"]["hostNetwork"] == false {
        // Go leaves it out.
        value["spec"].as_object_mut().unwrap().remove("hostNetwork");
    }
    strip_empty(&mut value);
    value
}

/// A submitter's script without the loop that waits for the dashboard, whose words are ours.
fn without_waiting(container: &mut Value) {
    if let Some(text) = container.pointer_mut("/args/0")
        && let Some((_, rest)) = text.as_str().and_then(|t| t.split_once("; done ; "))
    {
        *text = Value::from(rest);
    }
}

/// Empty maps and lists are the same as none to an API server.
fn strip_empty(value: &mut Value) {
    match value {
        Value::Object(map) => {
            map.values_mut().for_each(strip_empty);
            map.retain(|_, v| {
                !v.is_null()
                    && v.as_object().is_none_or(|m| !m.is_empty())
                    && v.as_array().is_none_or(|l| !l.is_empty())
            });
        }
        Value::Array(list) => list.iter_mut().for_each(strip_empty),
        _ => {}
    }
}

/// A null is no field that is not set: it travels, and a reader of the request sees it.
fn holds_null(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Object(map) => map.values().any(holds_null),
        Value::Array(list) => list.iter().any(holds_null),
        _ => false,
    }
}

#[track_caller]
fn same(what: &str, ours: Value, theirs: Value) {
    assert!(!holds_null(&ours), "{what} holds a null: {ours}");
    let (ours, theirs) = (normal(ours), normal(theirs));
    assert!(
        ours == theirs,
        "{what}\nours:   {}\ntheirs: {}",
        serde_json::to_string_pretty(&ours).unwrap(),
        serde_json::to_string_pretty(&theirs).unwrap()
    );
}

/// Compares Services, pods, PodGroups of every RayCluster and the RayCluster, Service, Job of every RayJob.
fn compare(path: &str, run: Option<&str>) -> usize {
    let first = &phases(path, run)[0];
    let (writes, objects) = (writes(first), objects(first));
    let jobs: Vec<RayJob> = typed(&objects, "RayJob");
    let mut clusters: Vec<RayCluster> = typed(&objects, "RayCluster");
    if jobs.iter().any(|job| ray_job(job).is_err_and(|refusal| refusal.event_reason == NOT_BUILT)) {
        return 0;
    }
    let mut compared = 0;
    for (verb, resource, body) in &writes {
        if verb != "create" {
            continue;
        }
        let what = format!("{path} {resource} {}", body["metadata"]["name"]);
        let owner = &body["metadata"]["ownerReferences"][0];
        let job = jobs.iter().find(|j| owner["kind"] == "RayJob" && owner["name"] == j.metadata.name());
        let cluster = clusters.iter().find(|c| owner["kind"] == "RayCluster" && owner["name"] == c.metadata.name());
        let ours = match (resource.as_str(), job, cluster) {
            ("ray.io/v1/rayclusters", Some(job), _) => {
                let name = body["metadata"]["name"].as_str().unwrap();
                let mut built = cluster_of(job, name).unwrap();
                let value = serde_json::to_value(&built).unwrap();
                // The recorded one has no UID yet; its children name it by the one it got.
                built.metadata.uid = Some(uid_of(&writes, name));
                clusters.retain(|c| c.metadata.name() != name);
                clusters.push(built);
                value
            }
            ("v1/services", Some(job), _) => {
                let made_by = |c: &&RayCluster| body["spec"]["selector"]["ray.io/cluster"] == c.metadata.name();
                job_head_service(job, clusters.iter().find(made_by).unwrap())
            }
            ("batch/v1/jobs", Some(job), _) => {
                let name = job.status.as_ref().unwrap().ray_cluster_name.clone().unwrap();
                let cluster = clusters.iter().find(|c| c.metadata.name() == name).unwrap();
                submitter_job(job, cluster).unwrap()
            }
            ("v1/services", _, Some(cluster)) => match body["metadata"]["name"].as_str().unwrap() {
                name if Some(name) == headless_service_name(cluster).as_deref() => headless_service(cluster, name),
                name if Some(name) == serve_service_name(cluster).as_deref() => serve_service(cluster, name).unwrap(),
                _ => head_service(cluster),
            },
            ("v1/serviceaccounts", _, Some(cluster)) => account(cluster),
            ("rbac.authorization.k8s.io/v1/roles", _, Some(cluster)) => role(cluster),
            ("rbac.authorization.k8s.io/v1/rolebindings", _, Some(cluster)) => role_binding(cluster),
            ("networking.k8s.io/v1/ingresses", _, Some(cluster)) => ingress(cluster),
            ("v1/secrets", _, Some(cluster)) => {
                let mut secret = secret(cluster, &TokenKey::new([1; 32]));
                assert_eq!(secret["stringData"]["auth_token"].as_str().unwrap().len(), 44);
                secret["stringData"]["auth_token"] = "<random, 44 characters>".into();
                secret
            }
            ("scheduling.volcano.sh/v1beta1/podgroups", _, Some(cluster)) => {
                pod_group("RayCluster", &cluster.metadata, &size_of_cluster(&cluster.spec))
            }
            ("v1/pods", _, Some(cluster)) => {
                let group = body["metadata"]["labels"]["ray.io/group"].as_str().unwrap();
                let label = |key: &str| body["metadata"]["labels"][key].as_str();
                let replica = label("ray.io/worker-group-replica-index").unwrap_or("0").parse().unwrap();
                let host = label("ray.io/worker-group-replica-name").zip(label("ray.io/replica-host-index"));
                let host = host.map(|(replica, number)| (replica, number.parse().unwrap()));
                match cluster.spec.groups().iter().find(|g| g.group_name == group) {
                    Some(group) => worker_pod(cluster, group, Slot { replica, host }, &flags()),
                    None => head_pod(cluster, &flags()),
                }
            }
            _ => continue,
        };
        same(&what, ours, body.clone());
        compared += 1;
    }
    compared
}

fn uid_of(writes: &[(String, String, Value)], cluster: &str) -> String {
    let owners = writes.iter().map(|(_, _, body)| &body["metadata"]["ownerReferences"][0]);
    let mut named = owners.filter(|o| o["kind"] == "RayCluster" && o["name"] == cluster);
    named.next().and_then(|o| o["uid"].as_str()).unwrap_or_default().to_owned()
}

fn typed<T: serde::de::DeserializeOwned>(objects: &[Value], kind: &str) -> Vec<T> {
    let of_kind = objects.iter().filter(|o| o["kind"] == kind);
    of_kind.map(|o| serde_json::from_value(o.clone()).unwrap()).collect()
}

#[test]
fn children_of_the_samples_are_kuberays() {
    assert!(compare("samples/ray-job.sample.json", Some("default")) >= 6);
    assert!(compare("samples/ray-cluster.sample.json", Some("default")) >= 3);
    assert!(compare("samples/ray-job.volcano-scheduler-queue.json", Some("volcano")) >= 7);
    assert!(compare("samples/ray-cluster.volcano-scheduler-queue.json", Some("volcano")) >= 5);
}

#[test]
fn children_of_the_cases_are_kuberays() {
    for case in [
        "rc-accelerators",
        "rc-auth-variants",
        "rc-autoscaler-own-service-account",
        "rc-autoscaler-v1",
        "rc-autoscaler-v2",
        "rc-env-override",
        "rc-extra-containers",
        "rc-ft-annotation",
        "rc-ft-annotation-no-redis",
        "rc-ft-redis-values",
        "rc-head-service-type",
        "rc-ingress",
        "rc-ingress-options",
        "rc-minimal-head-only",
        "rc-old-ray-version",
        "rc-priority-class",
        "rc-start-params",
        "rc-two-groups",
        "rc-user-command",
        "rc-user-labels",
        "rc-volcano",
        "rj-k8s-mode-options",
        "rj-k8s-mode-quotes",
        "rj-submitter-template",
        "rc-scale",
        "rc-suspend-group",
        "rc-suspend-running",
        "rc-recreate",
        "rc-spec-change-no-strategy",
        "rj-interactive",
        "rj-shutdown-ttl",
        "rj-sidecar-job-fails",
        "rj-sidecar-mode",
        "rj-active-deadline",
        "rj-submitter-fails",
        "rj-dashboard-errors",
        "rj-submitter-template-no-command",
    ] {
        let compared = compare(&format!("cases/{case}/golden.json"), None);
        assert!(compared > 0, "{case}: nothing was compared");
    }
}

#[test]
fn children_of_every_sample_that_is_not_refused_are_kuberays() {
    let shared = std::env::var("RAYFLEET_SHARED").unwrap_or(concat!(env!("CARGO_MANIFEST_DIR"), "/../shared").into());
    let folder = std::path::Path::new(&shared).join("golden/samples");
    let entries = std::fs::read_dir(&folder)
        .unwrap_or_else(|e| panic!("recordings are read from {} (set RAYFLEET_SHARED): {e}", folder.display()));
    let mut compared = 0;
    for entry in entries {
        let name = entry.unwrap().file_name().into_string().unwrap();
        let ray = name.starts_with("ray-job.") || name.starts_with("ray-cluster.");
        // Recorded with and without Volcano; the label switches it on here.
        let ray = ray && !name.contains("volcano");
        if ray {
            compared += compare(&format!("samples/{name}"), Some("default"));
        }
    }
    assert!(compared >= 110, "{compared}");
}

/// Its script is ours, and nobody needs a beginning for the name of a pod that a Job makes.
#[test]
fn the_job_that_clears_redis_is_kuberays() {
    for (path, run) in [
        ("cases/rc-ft-annotation/golden.json", None),
        ("cases/rc-ft-annotation-no-redis/golden.json", None),
        ("cases/rc-ft-redis-values/golden.json", None),
        ("samples/ray-cluster.external-redis.json", Some("default")),
        ("samples/ray-cluster.persistent-redis.json", Some("default")),
        ("samples/ray-cluster.persistent-redis-sidecar.json", Some("default")),
    ] {
        let phases = phases(path, run);
        let clusters: Vec<RayCluster> = typed(&objects(&phases[0]), "RayCluster");
        let [cluster] = clusters.as_slice() else { panic!("{path}: {} clusters", clusters.len()) };
        assert_eq!(cluster.metadata.finalizers.as_deref().unwrap_or_default(), [REDIS_FINALIZER]);
        let jobs: Vec<Value> = writes(phases.last().unwrap())
            .into_iter()
            .filter_map(|(verb, resource, body)| (verb == "create" && resource == "batch/v1/jobs").then_some(body))
            .collect();
        let [theirs] = jobs.as_slice() else { panic!("{path}: {} Jobs", jobs.len()) };
        let name = redis_cleanup_name(cluster);
        assert_eq!(theirs["metadata"]["name"], name.as_str());
        let without = |mut job: Value| {
            let template = &mut job["spec"]["template"];
            template["metadata"].as_object_mut().unwrap().remove("generateName");
            template["spec"]["containers"][0]["args"].take();
            job
        };
        let ours = redis_cleanup_job(cluster, &name, &flags());
        assert!(ours["spec"]["template"]["spec"]["containers"][0]["args"][0].as_str().unwrap().contains("rediss"));
        assert!(!holds_null(&ours), "{ours}");
        let (ours, theirs) = (normal(without(ours)), normal(without(theirs.clone())));
        assert_eq!(ours, theirs, "{path}");
    }
}
