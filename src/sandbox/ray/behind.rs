//! What the API server of one cluster is told about its real pods: who is behind a Service, what a container wrote.
//! Must not know requests beyond these two.

use std::sync::Arc;

use bytes::Bytes;
use serde_json::json;
use tokio::sync::mpsc::Receiver;

use super::nodes::RealPods;
use crate::api::Time;
use crate::api::wire::Reply;
use crate::sandbox::apiserver::{LogCall, ProxyCall};
use crate::sandbox::http::{Backend, Backends, Logs};

/// The real pods of one cluster.
#[derive(Clone)]
pub struct ClusterPods {
    pods: RealPods,
    cluster: String,
}

impl ClusterPods {
    /// Those of the cluster of this name.
    pub fn new(pods: RealPods, cluster: impl Into<String>) -> Self {
        Self { pods, cluster: cluster.into() }
    }
}

impl Backends for ClusterPods {
    fn find(&self, call: &ProxyCall, _: Time) -> Option<Backend> {
        let address = self.pods.service_address(&self.cluster, &call.namespace, &call.service, &call.port)?;
        Some(Backend::Port(address.port()))
    }
}

impl Logs for ClusterPods {
    fn open(&self, call: &LogCall, _: Time) -> Result<Receiver<Bytes>, Reply> {
        self.pods.open_log(&self.cluster, call).ok_or_else(|| not_there(call))
    }
}

/// As kubelets say it.
fn not_there(call: &LogCall) -> Reply {
    let (container, pod) = (&call.container, &call.pod);
    let message = if call.previous {
        format!("previous terminated container \"{container}\" in pod \"{pod}\" not found")
    } else {
        format!("container \"{container}\" in pod \"{pod}\" is waiting to start: ContainerCreating")
    };
    let status = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "message": message,
                        "reason": "BadRequest", "code": 400});
    let headers = vec![("content-type".to_owned(), "application/json".to_owned())];
    Reply { status: 400, headers, body: Arc::from(status.to_string().into_bytes()) }
}
