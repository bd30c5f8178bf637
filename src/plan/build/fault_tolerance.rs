//! The head's state outside the head: what the nodes are told, and the Job that clears Redis
//! (specs/raycluster.md 1.7, 2.4, 3.5, 3.6). The embedded store is behind a gate, which validation keeps.
//! Must not know when the Job runs.

use serde_json::{Value, json};

use super::pod::unmarked_head;
use super::{is_on, push, push_env, push_env_if_absent};
use crate::api::names::RAY_NODE_TYPE_LABEL;
use crate::api::ray::{RayCluster, RedisCredential, Texts};
use crate::plan::{Flags, names};

/// Value of the node-type label of the Job and its pod.
pub const REDIS_CLEANUP: &str = "redis-cleanup";

const SWITCH: &str = "ray.io/ft-enabled";
const NAMESPACE: &str = "ray.io/external-storage-namespace";

/// What Ray is asked to do: everything that it keeps under this cluster's prefix goes. The user name is told only where
/// there is one: older Rays do not take it.
const CLEAR: &str = "\
import os, sys
from urllib.parse import urlparse
from ray._private.gcs_utils import cleanup_redis_storage
first = os.environ.get('RAY_REDIS_ADDRESS', '').split(',')[0]
url = urlparse(first if '://' in first else 'redis://' + first)
more = {}
if 'REDIS_USERNAME' in os.environ:
    more['username'] = os.environ['REDIS_USERNAME'] or url.username or ''
prefix = os.environ.get('RAY_external_storage_namespace')
done = cleanup_redis_storage(
    host=url.hostname, port=url.port, use_ssl=url.scheme == 'rediss',
    password=os.environ.get('REDIS_PASSWORD', url.password or ''), storage_namespace=prefix, **more)
if not done:
    sys.exit('Redis was not cleared: what begins with ' + repr(prefix) + ' is left there, to be deleted by hand')";

/// Whether the head's state is kept outside the head, in whatever store.
pub(super) fn is_tolerant(cluster: &RayCluster) -> bool {
    cluster.spec.gcs_fault_tolerance_options.is_some() || is_on(cluster.metadata.annotation(SWITCH))
}

/// Whether the head's state is kept in Redis.
pub fn uses_redis(cluster: &RayCluster) -> bool {
    let embedded =
        cluster.spec.gcs_fault_tolerance_options.as_ref().is_some_and(|o| o.backend.as_deref() == Some("rocksdb"));
    is_tolerant(cluster) && !embedded
}

/// Prefix of the cluster's keys in Redis: what its user says, else its UID, which no other cluster ever has.
fn storage_namespace(cluster: &RayCluster) -> &str {
    named_namespace(cluster).unwrap_or(cluster.metadata.uid())
}

fn named_namespace(cluster: &RayCluster) -> Option<&str> {
    let options = cluster.spec.gcs_fault_tolerance_options.as_ref();
    let own = options.and_then(|o| o.external_storage_namespace.as_deref()).filter(|n| !n.is_empty());
    own.or(Some(cluster.metadata.annotation(NAMESPACE)).filter(|n| !n.is_empty()))
}

/// Whether its user names the prefix of its keys in Redis: another cluster may then have the same.
pub fn shares_namespace(cluster: &RayCluster) -> bool {
    named_namespace(cluster).is_some()
}

/// Annotations of the head pod that say so.
pub(super) fn annotate(cluster: &RayCluster, annotations: &mut Value) {
    annotations[SWITCH] = json!(is_tolerant(cluster).to_string());
    if uses_redis(cluster) {
        annotations[NAMESPACE] = json!(storage_namespace(cluster));
    }
}

/// What the head is told by `ray start`: where the credentials stand in its environment.
pub(super) fn parameters(cluster: &RayCluster, params: &mut Texts) {
    let Some(options) = cluster.spec.gcs_fault_tolerance_options.as_ref().filter(|_| uses_redis(cluster)) else {
        return;
    };
    for (there, key, variable) in [
        (options.redis_username.is_some(), "redis-username", "$REDIS_USERNAME"),
        (options.redis_password.is_some(), "redis-password", "$REDIS_PASSWORD"),
    ] {
        if there {
            params.insert(key.into(), variable.into());
        }
    }
}

/// Environment of the head's Ray container, after the user's own.
pub(super) fn head_env(cluster: &RayCluster, params: &Texts, container: &mut Value) {
    if !uses_redis(cluster) {
        return;
    }
    push_env_if_absent(container, "RAY_external_storage_namespace", storage_namespace(cluster));
    let Some(options) = &cluster.spec.gcs_fault_tolerance_options else {
        if let Some(password) = params.get("redis-password") {
            push_env_if_absent(container, "REDIS_PASSWORD", password);
        }
        return;
    };
    push_env(container, "RAY_REDIS_ADDRESS", options.redis_address.as_deref().unwrap_or_default());
    for (name, credential) in [("REDIS_USERNAME", &options.redis_username), ("REDIS_PASSWORD", &options.redis_password)]
    {
        if let Some(credential) = credential {
            push(container, "env", variable(name, credential));
        }
    }
}

fn variable(name: &str, credential: &RedisCredential) -> Value {
    let mut variable = json!({ "name": name });
    if let Some(value) = credential.value.as_deref().filter(|v| !v.is_empty()) {
        variable["value"] = json!(value);
    }
    if let Some(from) = &credential.value_from {
        variable["valueFrom"] = from.clone();
    }
    variable
}

/// Environment of a worker's Ray container: it waits for a head that is on its way back.
pub(super) fn worker_env(cluster: &RayCluster, container: &mut Value) {
    if is_tolerant(cluster) {
        push_env_if_absent(container, "RAY_gcs_rpc_server_reconnect_timeout_s", "600");
    }
}

/// Name of the Job that clears Redis, as KubeRay cuts it.
pub fn redis_cleanup_name(cluster: &RayCluster) -> String {
    names::label_value(&format!("{}-{REDIS_CLEANUP}", cluster.metadata.name()))
}

/// The Job of this name that clears Redis: the head as it would be made now, with other work. Its pod is no node of the
/// gang, so Volcano is not told of it.
pub fn redis_cleanup_job(cluster: &RayCluster, name: &str, flags: &Flags) -> Value {
    let Value::Object(mut head) = unmarked_head(cluster, flags) else { return Value::Null };
    let (mut metadata, mut spec) = (head["metadata"].take(), head["spec"].take());
    if let Some(containers) = spec["containers"].as_array_mut() {
        containers.truncate(1);
        containers.iter_mut().for_each(clears);
    }
    spec["restartPolicy"] = json!("Never");
    metadata["labels"][RAY_NODE_TYPE_LABEL] = json!(REDIS_CLEANUP);
    json!({
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": name,
            "namespace": cluster.metadata.namespace(),
            "labels": metadata["labels"],
            "annotations": metadata["annotations"],
            "ownerReferences": metadata["ownerReferences"],
        },
        "spec": {
            "backoffLimit": 0,
            "activeDeadlineSeconds": 300,
            "template": { "metadata": metadata, "spec": spec },
        },
    })
}

/// Gives the head's Ray container the other work.
fn clears(container: &mut Value) {
    if let Some(fields) = container.as_object_mut() {
        for probe in ["livenessProbe", "readinessProbe", "startupProbe"] {
            fields.remove(probe);
        }
    }
    container["command"] = json!(["/bin/bash", "-c", "--"]);
    container["args"] = json!([format!("python -c \"{CLEAR}\"")]);
    push_env(container, "RAY_redis_db_connect_retries", "120");
    push_env(container, "RAY_redis_db_connect_wait_milliseconds", "500");
    let amounts = json!({ "cpu": "200m", "memory": "256Mi" });
    container["resources"] = json!({ "limits": amounts, "requests": amounts });
}
