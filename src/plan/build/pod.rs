//! Head and worker pods of a RayCluster (specs/raycluster.md 3).
//! Must not know names of single pods, or which pods exist.

use data_encoding::BASE32HEX;
use serde_json::{Map, Value, json};
use sha1::{Digest, Sha1};

use super::pod_group::volcano_metadata;
use super::ray_start::{self, Head, Node};
use super::{
    auth, autoscaler, creator, fault_tolerance, go, head_service_name, is_on, owner_reference, probes, push, push_env,
    push_env_if_absent, push_if_absent,
};
use crate::api::names::{RAY_CLUSTER_LABEL, RAY_GROUP_LABEL, RAY_NODE_TYPE_LABEL};
use crate::api::ray::{Container, PodTemplate, RayCluster, RayClusterSpec, Texts, WorkerGroupSpec};
use crate::plan::{Flags, names};

/// Annotation of RayCluster or template: the user's command stays as it is.
const OVERWRITE: &str = "ray.io/overwrite-container-cmd";

/// The head pod, whole but for its name (which the template may give).
pub fn head_pod(cluster: &RayCluster, flags: &Flags) -> Value {
    let mut pod = unmarked_head(cluster, flags);
    let annotations = &mut pod["metadata"]["annotations"];
    annotations["ray.io/upgrade-strategy-recreate-hash"] = json!(spec_hash(&cluster.spec));
    annotations["ray.io/kuberay-version"] = json!(&*flags.version);
    volcano_metadata(cluster, "headgroup", &mut pod);
    pod
}

/// The head pod without what tells of which spec and controller it is, and of its gang.
pub(super) fn unmarked_head(cluster: &RayCluster, flags: &Flags) -> Value {
    let head = cluster.spec.head();
    let part = Part {
        node: Node::Head,
        group: "headgroup",
        template: &head.template,
        labels: head.labels.as_ref(),
        resources: head.resources.as_ref(),
        params: head.ray_start_params.as_ref(),
    };
    let mut pod = build(cluster, &part, flags);
    fault_tolerance::annotate(cluster, &mut pod["metadata"]["annotations"]);
    pod
}

/// Where a worker pod belongs within its group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slot<'a> {
    /// Number of the replica.
    pub replica: i32,
    /// Where a replica has several hosts: its name, and the number of the host within it.
    pub host: Option<(&'a str, i32)>,
}

/// A worker pod of a group, whole but for its name.
pub fn worker_pod(cluster: &RayCluster, group: &WorkerGroupSpec, slot: Slot<'_>, flags: &Flags) -> Value {
    let part = Part {
        node: Node::Worker,
        group: &group.group_name,
        template: &group.template,
        labels: group.labels.as_ref(),
        resources: group.resources.as_ref(),
        params: group.ray_start_params.as_ref(),
    };
    let mut pod = build(cluster, &part, flags);
    if let Some(metadata) = pod["metadata"].as_object_mut() {
        metadata.remove("name");
    }
    let labels = &mut pod["metadata"]["labels"];
    labels["ray.io/worker-group-replica-index"] = json!(slot.replica.to_string());
    if let Some((replica, host)) = slot.host {
        labels["ray.io/worker-group-replica-name"] = json!(replica);
        labels["ray.io/replica-host-index"] = json!(host.to_string());
    }
    volcano_metadata(cluster, &group.group_name, &mut pod);
    pod
}

/// What differs between head and workers.
struct Part<'a> {
    node: Node,
    group: &'a str,
    template: &'a PodTemplate,
    labels: Option<&'a Texts>,
    resources: Option<&'a Texts>,
    params: Option<&'a Texts>,
}

fn build(cluster: &RayCluster, part: &Part<'_>, flags: &Flags) -> Value {
    let service = head_service_name(cluster);
    let fqdn = format!("{service}.{}.svc.{}", cluster.metadata.namespace(), flags.cluster_domain);
    let head = cluster.spec.head();
    let port = head.ray_start_params.as_ref().and_then(|p| p.get("port")).map_or("6379", String::as_str);
    let at = Head { fqdn: &fqdn, port };

    let mut spec = part.template.0["spec"].clone();
    let user = spec["containers"][0].clone();
    let mut params = ray_start::defaults(part.node, part.params, part.resources, part.labels, &at);
    if part.node == Node::Head {
        if cluster.spec.autoscaling() {
            params.insert("no-monitor".into(), "true".into());
        }
        fault_tolerance::parameters(cluster, &mut params);
    }
    ray_start::from_container(&mut params, Container(&user));
    let command = ray_start::command(part.node, &params);
    let metadata = metadata(cluster, part);
    let overwritten = metadata["annotations"][OVERWRITE].as_str().is_some_and(is_on);

    init_containers(&mut spec, part.node, cluster, &user, &service, &at);
    auth::add_volume(cluster, &mut spec);
    let sidecar = (part.node == Node::Head && cluster.spec.autoscaling())
        .then(|| autoscaler::container(cluster, Container(&user)));
    let mut container = user;
    if let Some(text) = ray_start::shell_text(&container, overwritten, &command) {
        container["command"] = json!(["/bin/bash", "-c", "--"]);
        container["args"] = json!([text]);
    }
    match part.node {
        Node::Head => {
            autoscaler::switch(&cluster.spec).into_iter().for_each(|switch| push(&mut container, "env", switch));
            fault_tolerance::head_env(cluster, &params, &mut container);
        }
        Node::Worker => fault_tolerance::worker_env(cluster, &mut container),
    }
    auth::add_to(cluster, &mut container);
    environment(&mut container, part.node, cluster, &service, &at, &command, flags);
    if !Container(&container).ports().any(|(name, _)| name == "metrics") {
        push(&mut container, "ports", json!({ "name": "metrics", "containerPort": 8080 }));
    }
    shared_memory(&mut spec, &mut container, &params);
    probes::add(&mut container, part.node, cluster.spec.ray_version.as_deref().unwrap_or_default(), &params);
    if let Some(mut sidecar) = sidecar {
        share_logs(&mut spec, [&mut container, &mut sidecar]);
        push(&mut spec, "containers", sidecar);
        spec["serviceAccountName"] = json!(autoscaler::account_name(cluster));
    }
    if cluster.spec.autoscaling() && autoscaler::is_v2(&cluster.spec) {
        // Ray replaces nodes itself.
        spec["restartPolicy"] = json!("Never");
    }
    if let Some(first) = spec["containers"].as_array_mut().and_then(|list| list.first_mut()) {
        *first = container;
    }
    json!({ "apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec })
}

/// Labels: KubeRay's, the template's and the group's over them, except the three that selectors stand on.
fn metadata(cluster: &RayCluster, part: &Part<'_>) -> Value {
    let name = cluster.metadata.name();
    let node_type = if part.node == Node::Head { "head" } else { "worker" };
    let mut labels = Texts::from([
        ("ray.io/is-ray-node".to_owned(), "yes".to_owned()),
        (RAY_CLUSTER_LABEL.to_owned(), name.to_owned()),
        (RAY_NODE_TYPE_LABEL.to_owned(), node_type.to_owned()),
        (RAY_GROUP_LABEL.to_owned(), part.group.to_owned()),
        ("ray.io/identifier".to_owned(), names::label_value(&format!("{name}-{node_type}"))),
        ("app.kubernetes.io/name".to_owned(), "kuberay".to_owned()),
        ("app.kubernetes.io/created-by".to_owned(), "kuberay-operator".to_owned()),
    ]);
    let group = part.labels.into_iter().flatten().map(|(k, v)| (k.as_str(), v.as_str()));
    for (key, value) in part.template.labels().chain(group) {
        if ![RAY_NODE_TYPE_LABEL, RAY_GROUP_LABEL, RAY_CLUSTER_LABEL].contains(&key) {
            labels.insert(key.to_owned(), value.to_owned());
        }
    }
    let mut metadata = match &part.template.0["metadata"] {
        Value::Object(map) => map.clone(),
        _ => Map::new(),
    };
    let mut annotations = match metadata.remove("annotations") {
        Some(Value::Object(map)) => map,
        _ => Map::new(),
    };
    if is_on(cluster.metadata.annotation(OVERWRITE)) {
        annotations.insert(OVERWRITE.into(), "true".into());
    }
    if part.node == Node::Head || !annotations.is_empty() {
        metadata.insert("annotations".into(), Value::Object(annotations));
    }
    metadata.insert("labels".into(), json!(labels));
    metadata.insert("namespace".into(), json!(cluster.metadata.namespace()));
    metadata.insert("ownerReferences".into(), json!([owner_reference("RayCluster", &cluster.metadata)]));
    Value::Object(metadata)
}

/// Environment of the Ray container after the user's own, in KubeRay's order (specs/raycluster.md 3.5).
fn environment(
    container: &mut Value,
    node: Node,
    cluster: &RayCluster,
    service: &str,
    head: &Head<'_>,
    command: &str,
    flags: &Flags,
) {
    if node == Node::Worker {
        push_env(container, "FQ_RAY_IP", head.fqdn);
        push_env(container, "RAY_IP", service);
    }
    for (name, path) in [
        ("RAY_CLUSTER_NAME", "metadata.labels['ray.io/cluster']"),
        ("RAY_CLUSTER_NAMESPACE", "metadata.namespace"),
        ("RAY_CLOUD_INSTANCE_ID", "metadata.name"),
        ("RAY_NODE_TYPE_NAME", "metadata.labels['ray.io/group']"),
    ] {
        push(container, "env", json!({ "name": name, "valueFrom": { "fieldRef": { "fieldPath": path } } }));
    }
    push_env(container, "KUBERAY_GEN_RAY_START_CMD", command);
    push_env_if_absent(container, "RAY_PORT", head.port);
    let host = if node == Node::Head { "127.0.0.1" } else { head.fqdn };
    push_env_if_absent(container, "RAY_ADDRESS", &format!("{host}:{}", head.port));
    push_env_if_absent(container, "RAY_USAGE_STATS_KUBERAY_IN_USE", "1");
    if node == Node::Head {
        let tags = format!("kuberay_version={};kuberay_crd={}", flags.version, creator(cluster));
        push_env(container, "RAY_USAGE_STATS_EXTRA_TAGS", &tags);
    }
    push_env_if_absent(container, "RAY_DASHBOARD_ENABLE_K8S_DISK_USAGE", "1");
}

/// Every init container learns where the head is; a worker gets one more, which waits for it.
fn init_containers(spec: &mut Value, node: Node, cluster: &RayCluster, user: &Value, service: &str, head: &Head<'_>) {
    if node == Node::Worker {
        let mut wait = json!({
            "name": "wait-gcs-ready",
            "command": ["/bin/bash", "-c", "--"],
            "args": [wait_text(&format!("{}:{}", head.fqdn, head.port))],
            "resources": {
                "limits": { "cpu": "200m", "memory": "256Mi" },
                "requests": { "cpu": "200m", "memory": "256Mi" },
            },
        });
        for key in ["image", "imagePullPolicy", "securityContext", "env", "volumeMounts"] {
            if !user[key].is_null() {
                wait[key] = user[key].clone();
            }
        }
        auth::add_to(cluster, &mut wait);
        push(spec, "initContainers", wait);
    }
    // Not by index: that would leave a null where a head has none.
    let all = spec.get_mut("initContainers").and_then(Value::as_array_mut);
    for container in all.into_iter().flatten() {
        push_env(container, "FQ_RAY_IP", head.fqdn);
        push_env(container, "RAY_IP", service);
    }
}

/// Asks for the GCS every 5 s until it answers; quiet for two minutes, then showing what Ray says.
fn wait_text(address: &str) -> String {
    format!(
        "started=$SECONDS; quiet=yes; \
         until if [ $quiet = yes ]; then ray health-check --address {address} >/dev/null 2>&1; \
         else ray health-check --address {address}; fi; do \
         waited=$((SECONDS - started)); echo \"no GCS at {address} after $waited s\"; \
         if [ $quiet = yes ] && [ $waited -gt 120 ]; then quiet=no; \
         echo \"what Ray says about it is shown from now on; is the head pod running?\"; fi; \
         sleep 5; done; echo \"GCS at {address} answers\""
    )
}

/// `/dev/shm` as large as the container's memory, unless the user has his own.
fn shared_memory(spec: &mut Value, container: &mut Value, params: &Texts) {
    const NAME: &str = "shared-mem";
    let mounted = Container(container).mounts().any(|(path, _)| path == "/dev/shm");
    if mounted || params.contains_key("plasma-directory") {
        return;
    }
    let there = spec["volumes"].as_array().into_iter().flatten().any(|v| v["name"] == NAME);
    if !there {
        let view = Container(container);
        let mut volume = json!({ "name": NAME, "emptyDir": { "medium": "Memory" } });
        if let Some(limit) = view.resource("limits", "memory").or_else(|| view.resource("requests", "memory")) {
            volume["emptyDir"]["sizeLimit"] = json!(limit);
        }
        push(spec, "volumes", volume);
    }
    push(container, "volumeMounts", json!({ "name": NAME, "mountPath": "/dev/shm" }));
}

/// Ray's logs, for containers of a pod that read each other's.
fn share_logs<const N: usize>(spec: &mut Value, containers: [&mut Value; N]) {
    const NAME: &str = "ray-logs";
    const PATH: &str = "/tmp/ray";
    push_if_absent(spec, "volumes", json!({ "name": NAME, "emptyDir": {} }));
    for container in containers {
        if !Container(container).mounts().any(|(path, _)| path == PATH) {
            push(container, "volumeMounts", json!({ "name": NAME, "mountPath": PATH }));
        }
    }
}

/// Hash of what makes running pods outdated (specs/raycluster.md 2.9): base32hex of SHA-1. Equal specs give equal
/// hashes here; they are not KubeRay's, whose order of fields is Go's.
pub fn spec_hash(spec: &RayClusterSpec) -> String {
    let mut value = serde_json::to_value(spec).unwrap_or_default();
    let Some(map) = value.as_object_mut() else { return String::new() };
    map.remove("upgradeStrategy");
    let strip = |group: &mut Value| {
        if let Some(spec) = group["template"]["spec"].as_object_mut() {
            spec.remove("tolerations");
            spec.remove("schedulingGates");
        }
    };
    if let Some(head) = map.get_mut("headGroupSpec") {
        strip(head);
    }
    for group in map.get_mut("workerGroupSpecs").and_then(Value::as_array_mut).into_iter().flatten() {
        strip(group);
        if let Some(group) = group.as_object_mut() {
            for key in ["replicas", "minReplicas", "maxReplicas", "scaleStrategy"] {
                group.remove(key);
            }
        }
    }
    BASE32HEX.encode(&Sha1::digest(go::json(&value).as_bytes()))
}
