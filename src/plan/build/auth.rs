//! Token authentication of a Ray cluster: what its containers get, and the Secret (specs/raycluster.md 3.5, 4.7).
//! Must not know whether the Secret exists.

use data_encoding::BASE64;
use serde_json::{Value, json};

use super::{owner_reference, push, push_env_if_absent, push_if_absent};
use crate::api::names::RAY_CLUSTER_LABEL;
use crate::api::ray::{AuthOptions, Container, RayCluster};
use crate::plan::{TokenKey, names};

/// Volume with a token of Kubernetes, and where it is mounted.
const VOLUME: &str = "ray-token";
const MOUNT: &str = "/var/run/secrets/ray.io/serviceaccount";
/// Key of the Secret.
const KEY: &str = "auth_token";

/// The options, where authentication is on: only mode `token` turns it on.
fn on(cluster: &RayCluster) -> Option<&AuthOptions> {
    cluster.spec.auth_options.as_ref().filter(|options| options.mode.as_deref() == Some("token"))
}

fn by_kubernetes(options: &AuthOptions) -> bool {
    options.enable_k8s_token_auth == Some(true)
}

fn own_secret(options: &AuthOptions) -> Option<&str> {
    options.secret_name.as_deref().filter(|name| !name.is_empty())
}

/// Environment and mount of a container that talks to Ray, each unless it is there.
pub(super) fn add_to(cluster: &RayCluster, container: &mut Value) {
    let Some(options) = on(cluster) else { return };
    push_env_if_absent(container, "RAY_AUTH_MODE", "token");
    if !by_kubernetes(options) {
        let name = own_secret(options).map_or_else(|| secret_name(cluster), str::to_owned);
        let from = json!({ "secretKeyRef": { "name": name, "key": KEY } });
        push_if_absent(container, "env", json!({ "name": "RAY_AUTH_TOKEN", "valueFrom": from }));
        return;
    }
    push_env_if_absent(container, "RAY_ENABLE_K8S_TOKEN_AUTH", "true");
    if !Container(container).mounts().any(|(path, name)| path == MOUNT || name == VOLUME) {
        push(container, "volumeMounts", json!({ "name": VOLUME, "mountPath": MOUNT, "readOnly": true }));
    }
}

/// The volume with the token of Kubernetes, where that is what is used.
pub(super) fn add_volume(cluster: &RayCluster, pod_spec: &mut Value) {
    if on(cluster).is_some_and(by_kubernetes) {
        let source = json!({ "sources": [{ "serviceAccountToken": { "path": "token" } }] });
        push_if_absent(pod_spec, "volumes", json!({ "name": VOLUME, "projected": source }));
    }
}

/// Whether the cluster has a Secret of its own: options are set, not disabled, and name no other source of tokens. Mode
/// `token` is not asked for here, as in KubeRay.
pub fn has_secret(cluster: &RayCluster) -> bool {
    cluster.spec.auth_options.as_ref().is_some_and(|options| {
        options.mode.as_deref() != Some("disabled") && !by_kubernetes(options) && own_secret(options).is_none()
    })
}

/// Name of that Secret.
pub fn secret_name(cluster: &RayCluster) -> String {
    names::object(cluster.metadata.name())
}

/// The Secret, with a token of 32 bytes that nobody without the key can tell.
pub fn secret(cluster: &RayCluster, key: &TokenKey) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {
            "name": secret_name(cluster),
            "namespace": cluster.metadata.namespace(),
            "labels": { RAY_CLUSTER_LABEL: cluster.metadata.name() },
            "ownerReferences": [owner_reference("RayCluster", &cluster.metadata)],
        },
        "stringData": { KEY: BASE64.encode(&key.token(cluster.metadata.uid())) },
    })
}
