//! Plain watches of one plane: list, then watch from the list's version, and on from the last version that was seen.
//! Must not know what the objects mean.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use data_encoding::BASE64;
use reqwest::{Certificate, Client};
use serde_json::Value;
use tokio::task::JoinSet;
use tokio::time::sleep;

use super::{Shared, Watched};

/// What is watched on every plane: resource, as audit logs name it, and the path of all its objects.
pub(super) const KINDS: &[(&str, &str)] = &[
    ("rayjobs", "/apis/ray.io/v1/rayjobs"),
    ("rayclusters", "/apis/ray.io/v1/rayclusters"),
    ("rayservices", "/apis/ray.io/v1/rayservices"),
    ("raycronjobs", "/apis/ray.io/v1/raycronjobs"),
    ("placements", "/apis/rayfleet.io/v1alpha1/placements"),
    ("memberclusters", "/apis/rayfleet.io/v1alpha1/memberclusters"),
    ("membercapacities", "/apis/rayfleet.io/v1alpha1/membercapacities"),
    ("leases", "/apis/coordination.k8s.io/v1/leases"),
    ("pods", "/api/v1/pods"),
    ("services", "/api/v1/services"),
    ("secrets", "/api/v1/secrets"),
    ("configmaps", "/api/v1/configmaps"),
    ("serviceaccounts", "/api/v1/serviceaccounts"),
    ("namespaces", "/api/v1/namespaces"),
    ("jobs", "/apis/batch/v1/jobs"),
    ("ingresses", "/apis/networking.k8s.io/v1/ingresses"),
    ("roles", "/apis/rbac.authorization.k8s.io/v1/roles"),
    ("rolebindings", "/apis/rbac.authorization.k8s.io/v1/rolebindings"),
    ("podgroups", "/apis/scheduling.volcano.sh/v1beta1/podgroups"),
];
/// Between two tries at what did not work.
const TRY_AGAIN: Duration = Duration::from_millis(200);

/// Somebody who may read everything on a plane.
#[derive(Clone)]
struct Reader {
    client: Client,
    url: String,
    token: String,
}

/// Lists everything, then goes on in tasks.
pub(super) async fn start(plane: &Watched, shared: &Arc<Shared>, tasks: &mut JoinSet<()>) -> Result<()> {
    let reader = Reader::of(&plane.kubeconfig)?;
    for (kind, path) in KINDS {
        let watch = Watch { plane: plane.name.clone(), kind, path, reader: reader.clone(), shared: shared.clone() };
        // A kind that is not served yet is looked for later.
        let version = watch.list().await.ok();
        tasks.spawn(watch.go_on(version));
    }
    Ok(())
}

impl Reader {
    fn of(kubeconfig: &str) -> Result<Self> {
        let config: Value = serde_json::from_str(kubeconfig)?;
        let cluster = &config["clusters"][0]["cluster"];
        let authority = cluster["certificate-authority-data"].as_str().context("no authority")?;
        let authority = Certificate::from_pem(&BASE64.decode(authority.as_bytes())?)?;
        // An error means that one is installed already.
        let _installed = rustls::crypto::ring::default_provider().install_default();
        Ok(Self {
            client: Client::builder().no_proxy().tls_certs_only([authority]).build()?,
            url: cluster["server"].as_str().context("no server")?.to_owned(),
            token: config["users"][0]["user"]["token"].as_str().context("no token")?.to_owned(),
        })
    }

    async fn get(&self, target: &str) -> Result<reqwest::Response> {
        let reply = self.client.get(format!("{}{target}", self.url)).bearer_auth(&self.token).send().await?;
        ensure!(reply.status().is_success(), "{target}: {}", reply.status());
        Ok(reply)
    }
}

struct Watch {
    plane: String,
    kind: &'static str,
    path: &'static str,
    reader: Reader,
    shared: Arc<Shared>,
}

impl Watch {
    /// Records everything there is: the version from which a watch sees the rest.
    async fn list(&self) -> Result<String> {
        let list: Value = self.reader.get(self.path).await?.json().await?;
        let objects = list["items"].as_array().map_or(&[][..], Vec::as_slice);
        self.shared.listed(&self.plane, self.kind, objects);
        for object in objects {
            self.shared.event(&self.plane, self.kind, "LISTED", object);
        }
        Ok(list["metadata"]["resourceVersion"].as_str().context("a list without a version")?.to_owned())
    }

    async fn go_on(self, mut from: Option<String>) {
        loop {
            let Some(version) = &from else {
                from = self.list().await.ok();
                if from.is_none() {
                    sleep(TRY_AGAIN).await;
                }
                continue;
            };
            let target = format!("{}?watch=true&allowWatchBookmarks=true&resourceVersion={version}", self.path);
            match self.reader.get(&target).await {
                Ok(stream) => from = self.follow(stream, version.clone()).await,
                Err(error) if error.to_string().contains("410") => from = None,
                Err(_) => sleep(TRY_AGAIN).await,
            }
        }
    }

    /// Records until the stream ends: the version to go on from; `None` where a list is needed.
    async fn follow(&self, mut stream: reqwest::Response, mut version: String) -> Option<String> {
        let mut read = Vec::new();
        while let Ok(Some(bytes)) = stream.chunk().await {
            read.extend_from_slice(&bytes);
            while let Some(end) = read.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = read.drain(..=end).collect();
                let event: Value = serde_json::from_slice(&line).ok()?;
                let what = event["type"].as_str()?;
                if what == "ERROR" {
                    return None;
                }
                event["object"]["metadata"]["resourceVersion"].as_str()?.clone_into(&mut version);
                if what != "BOOKMARK" {
                    self.shared.event(&self.plane, self.kind, what, &event["object"]);
                }
            }
        }
        Some(version)
    }
}
