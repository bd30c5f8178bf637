//! Ray's autoscaler beside the head: its container, and the objects that let it work (specs/raycluster.md 3.8, 4.6).
//! Must not know which of them exist.

use serde_json::{Value, json};

use super::{auth, child_metadata, push};
use crate::api::ray::{Container, RayCluster, RayClusterSpec};
use crate::plan::names;

/// What Ray calls its autoscaler by; the two names are filled in by Kubernetes.
const COMMAND: &str =
    "ray kuberay-autoscaler --cluster-name $(RAY_CLUSTER_NAME) --cluster-namespace $(RAY_CLUSTER_NAMESPACE)";
/// What the autoscaler needs may differ for good reason, but not be nothing.
const CPU: &str = "500m";
const MEMORY: &str = "512Mi";

/// Whether version 2 is asked for by the spec.
pub(super) fn is_v2(spec: &RayClusterSpec) -> bool {
    version(spec) == Some("v2")
}

fn version(spec: &RayClusterSpec) -> Option<&str> {
    spec.autoscaler_options.as_ref().and_then(|options| options.version.as_deref())
}

/// The switch in the head's environment: only where autoscaling is on and a version is asked for.
pub(super) fn switch(spec: &RayClusterSpec) -> Option<Value> {
    let on = match version(spec).filter(|_| spec.autoscaling())? {
        "v2" => "true",
        "v1" => "false",
        _ => return None,
    };
    Some(json!({ "name": "RAY_enable_autoscaler_v2", "value": on }))
}

/// The container. `ray` is the head's Ray container as the user wrote it.
pub(super) fn container(cluster: &RayCluster, ray: Container<'_>) -> Value {
    let options = cluster.spec.autoscaler_options.clone().unwrap_or_default();
    let from = |name: &str, path: &str| json!({ "name": name, "valueFrom": { "fieldRef": { "fieldPath": path } } });
    let amounts = json!({ "cpu": CPU, "memory": MEMORY });
    let mut container = json!({
        "name": "autoscaler",
        "image": options.image.as_deref().filter(|image| !image.is_empty()).unwrap_or(ray.image()),
        "imagePullPolicy": options.image_pull_policy.as_deref().filter(|p| !p.is_empty()).unwrap_or("IfNotPresent"),
        "command": ["/bin/bash", "-c", "--"],
        "args": [COMMAND],
        "env": [
            from("RAY_CLUSTER_NAME", "metadata.labels['ray.io/cluster']"),
            from("RAY_CLUSTER_NAMESPACE", "metadata.namespace"),
            from("RAY_HEAD_POD_NAME", "metadata.name"),
            { "name": "KUBERAY_CRD_VER", "value": "v1" },
            { "name": "KUBERAY_GEN_AUTOSCALER_START_CMD", "value": COMMAND },
        ],
        "resources": options.resources.unwrap_or_else(|| json!({ "limits": amounts, "requests": amounts })),
    });
    auth::add_to(cluster, &mut container);
    let some = |list: Option<Vec<String>>| list.filter(|list| !list.is_empty());
    for (key, own) in [("command", some(options.command)), ("args", some(options.args))] {
        if let Some(own) = own {
            container[key] = json!(own);
        }
    }
    if let Some(context) = options.security_context {
        container["securityContext"] = context;
    }
    for (key, list) in [("env", options.env), ("envFrom", options.env_from), ("volumeMounts", options.volume_mounts)] {
        list.into_iter().flatten().for_each(|item| push(&mut container, key, item));
    }
    container
}

/// The ServiceAccount of the head: the template's, else one of the cluster's name.
pub fn account_name(cluster: &RayCluster) -> String {
    names::object(own_account(cluster).as_deref().unwrap_or(cluster.metadata.name()))
}

/// The ServiceAccount that the head's template names.
pub fn own_account(cluster: &RayCluster) -> Option<String> {
    let head = cluster.spec.head();
    let named = head.template.0["spec"]["serviceAccountName"].as_str().filter(|name| !name.is_empty());
    named.map(str::to_owned)
}

/// Name of its Role and RoleBinding.
pub fn role_name(cluster: &RayCluster) -> String {
    names::object(cluster.metadata.name())
}

/// The ServiceAccount, where the template names none.
pub fn account(cluster: &RayCluster) -> Value {
    json!({ "apiVersion": "v1", "kind": "ServiceAccount", "metadata": child_metadata(cluster, &account_name(cluster)) })
}

/// What the autoscaler may do: read and mark its pods, read and scale its RayCluster.
pub fn role(cluster: &RayCluster) -> Value {
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "Role",
        "metadata": child_metadata(cluster, &role_name(cluster)),
        "rules": [
            { "apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list", "watch", "patch"] },
            { "apiGroups": [""], "resources": ["pods/resize"], "verbs": ["patch"] },
            { "apiGroups": ["ray.io"], "resources": ["rayclusters"], "verbs": ["get", "patch"] },
        ],
    })
}

/// Who may do it: the head's ServiceAccount.
pub fn role_binding(cluster: &RayCluster) -> Value {
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "RoleBinding",
        "metadata": child_metadata(cluster, &role_name(cluster)),
        "subjects": [{
            "kind": "ServiceAccount",
            "name": account_name(cluster),
            "namespace": cluster.metadata.namespace(),
        }],
        "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": role_name(cluster) },
    })
}
