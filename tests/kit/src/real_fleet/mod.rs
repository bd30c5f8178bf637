//! A fleet on real API servers: hub and members as planes, with the manifests of `crds/` and `deploy/` on them as a user
//! applies them, and Volcano's scheduler and nodes as their clients.
//! Must not know what is played on it.

pub mod audit;
pub mod demo;
mod manifests;

pub use manifests::Definitions;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use data_encoding::BASE64;
use rayfleet::api::Cluster;
use rayfleet::api::wire::{Method, Reply, Request};
use rayfleet::sandbox::attached::{self, Settings};
use rayfleet::sandbox::fleet_process::FleetProcess;
use rayfleet::sandbox::world::fleet::Fleet;
use rayfleet::shell::client::Client;
use rayfleet::shell::kubeconfig::member_config;
use rayfleet::shell::lanes::Lane;
use serde_json::{Value, json};
use tokio::runtime::Handle;
use tokio::task::spawn_blocking;
use tokio::time::{Instant, sleep};

use crate::planes::{ADMINISTRATOR, Binary, Plane, Proxy};

/// Who the controller is, on every cluster (deploy/).
pub const CONTROLLER: &str = "system:serviceaccount:rayfleet-system:rayfleet";
const NAMESPACE: &str = "rayfleet-system";
const ACCOUNT: &str = "/api/v1/namespaces/rayfleet-system/serviceaccounts/rayfleet";
/// Time for an answer, and for a definition to be served.
const LIMIT: Duration = Duration::from_secs(60);
/// Time for what a fleet is to come to.
const WAIT_MAX: Duration = Duration::from_secs(240);
const TRY_AGAIN: Duration = Duration::from_millis(100);

/// Hub and members. All ends when it is dropped.
#[derive(Debug)]
pub struct RealFleet {
    /// The hub.
    pub hub: Plane,
    /// The members, named as the hub knows them.
    pub members: Vec<Plane>,
    /// By way of which the controllers reach each member, in the same order; they pass until told otherwise.
    pub ways: Vec<Proxy>,
    /// Token of the controller on the hub.
    token: String,
    dir: tempfile::TempDir,
}

impl RealFleet {
    /// Starts the planes, applies `crds/` and `deploy/`, and registers the members with tokens of the controller's account
    /// there. Nodes and queues come with [`RealFleet::surroundings`] or `rayfleet sandbox --attach`.
    pub async fn start(binary: &Binary, members: &[&str]) -> Result<Self> {
        Self::start_under(binary, members, Definitions::Ours).await
    }

    /// The same under somebody's definitions of `ray.io`.
    pub async fn start_under(binary: &Binary, members: &[&str], whose: Definitions) -> Result<Self> {
        let definitions = manifests::definitions(whose)?;
        let dir = tempfile::Builder::new().prefix("fleet-").tempdir()?;
        let tunnel = |name: &str| dir.path().join(format!("{name}.sock"));
        // Side by side: a start waits more than it works.
        let starting: Vec<_> = members
            .iter()
            .map(|name| {
                let (binary, name, socket) = (binary.clone(), (*name).to_owned(), tunnel(name));
                let runtime = Handle::current();
                spawn_blocking(move || runtime.block_on(Plane::start_with_pods(&binary, &name, &[], &socket)))
            })
            .collect();
        let hub = Plane::start(binary, "hub", &[]).await?;
        let mut planes = Vec::new();
        for starting in starting {
            planes.push(starting.await??);
        }
        let hub_client = client(&hub.kubeconfig(ADMINISTRATOR)).await?;
        manifests::apply(&hub_client, &definitions).await?;
        manifests::apply(&hub_client, &manifests::of("hub")?).await?;
        let token = token(&hub_client).await?;
        let mut ways = Vec::new();
        for plane in &planes {
            let there = client(&plane.kubeconfig(ADMINISTRATOR)).await?;
            manifests::apply(&there, &definitions).await?;
            manifests::apply(&there, &manifests::of("member")?).await?;
            let way = Proxy::start(plane.address()).await?;
            let kubeconfig = plane.kubeconfig_with(way.address(), CONTROLLER, &self::token(&there).await?);
            register(&hub_client, plane.name(), &kubeconfig).await?;
            ways.push(way);
        }
        let fleet = Self { hub, members: planes, ways, token, dir };
        fs::write(fleet.administrators(), fleet.all_contexts().to_string())?;
        Ok(fleet)
    }

    /// A kubeconfig of the hub for the controller, by way of `address`: the plane's own, or a proxy's.
    pub fn controllers_kubeconfig(&self, address: std::net::SocketAddr) -> String {
        self.hub.kubeconfig_with(address, CONTROLLER, &self.token)
    }

    /// File with the kubeconfig of the administrators: a context for the hub and each member.
    pub fn administrators(&self) -> PathBuf {
        self.dir.path().join("administrators.json")
    }

    /// Folder of the sockets through which the members' API servers reach pods.
    pub fn tunnels(&self) -> &Path {
        self.dir.path()
    }

    /// A client of the hub's administrator.
    pub async fn administrator(&self) -> Result<Client> {
        client(&self.hub.kubeconfig(ADMINISTRATOR)).await
    }

    /// Volcano's scheduler and nodes with simulated pods around the members, which `fleet` describes.
    pub async fn surroundings(&self, fleet: Fleet) -> Result<FleetProcess> {
        let settings = Settings {
            fleet,
            kubeconfig: self.administrators(),
            tunnels: Some(self.tunnels().to_owned()),
            ray: None,
            dir: self.dir.path().join("pods"),
        };
        Ok(attached::attach(settings).await?)
    }

    fn all_contexts(&self) -> Value {
        let mut all = json!({"apiVersion": "v1", "kind": "Config", "current-context": "hub"});
        for part in ["clusters", "contexts", "users"] {
            all[part] = std::iter::once(&self.hub).chain(&self.members).map(|plane| named(plane, part)).collect();
        }
        all
    }
}

/// A part of an administrator's kubeconfig under the plane's name.
fn named(plane: &Plane, part: &str) -> Value {
    let config: Value = serde_json::from_str(&plane.kubeconfig(ADMINISTRATOR)).expect("a kubeconfig is JSON");
    let mut entry = config[part][0].clone();
    entry["name"] = plane.name().into();
    if part == "contexts" {
        entry["context"] = json!({"cluster": plane.name(), "user": plane.name()});
    }
    entry
}

/// A client by the text of a kubeconfig.
pub async fn client(kubeconfig: &str) -> Result<Client> {
    Ok(Client::new(Cluster::Hub, member_config(kubeconfig, None).await?)?)
}

/// Sends until it is carried out, or the object is there already, or there is no more time: the reply's body.
pub async fn create(client: &Client, path: &str, object: &Value) -> Result<Value> {
    let deadline = Instant::now() + LIMIT;
    let body: Arc<[u8]> = Arc::from(object.to_string().into_bytes());
    loop {
        let request = Request::new(Method::Post, path, "application/json", body.clone());
        let reply = client.send(Lane::Effects, &request, LIMIT).await?;
        match reply.status {
            200..300 | 409 => return json_of(&reply),
            // Definitions are served some time after they were made, and roles known.
            403 | 404 if Instant::now() < deadline => sleep(TRY_AGAIN).await,
            status => anyhow::bail!("POST {path}: {status} {}", String::from_utf8_lossy(&reply.body)),
        }
    }
}

/// The object at a path; `None` where there is none.
pub async fn get(client: &Client, path: &str) -> Result<Option<Value>> {
    let reply = client.send(Lane::Effects, &Request::get(path), LIMIT).await?;
    if reply.status == 404 {
        return Ok(None);
    }
    ensure!(reply.is_success(), "GET {path}: {} {}", reply.status, String::from_utf8_lossy(&reply.body));
    json_of(&reply).map(Some)
}

/// Waits until it is true. Panics, with what was waited for, where that takes too long.
pub async fn until(what: &str, condition: impl AsyncFn() -> bool) {
    let deadline = Instant::now() + WAIT_MAX;
    while !condition().await {
        assert!(Instant::now() < deadline, "not within {WAIT_MAX:?}: {what}");
        sleep(TRY_AGAIN).await;
    }
}

fn json_of(reply: &Reply) -> Result<Value> {
    serde_json::from_slice(&reply.body).context("a reply that is no JSON")
}

async fn token(client: &Client) -> Result<String> {
    let request = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest",
                         "spec": {"expirationSeconds": 7200}});
    let reply = create(client, &format!("{ACCOUNT}/token"), &request).await?;
    Ok(reply["status"]["token"].as_str().context("a token")?.to_owned())
}

/// As `rayfleet member add` does it.
async fn register(hub: &Client, name: &str, kubeconfig: &str) -> Result<()> {
    let secret = format!("member-{name}");
    let body = json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": {"namespace": NAMESPACE, "name": secret},
        "data": {"kubeconfig": BASE64.encode(kubeconfig.as_bytes())},
    });
    create(hub, &format!("/api/v1/namespaces/{NAMESPACE}/secrets"), &body).await?;
    let body = json!({
        "apiVersion": "rayfleet.io/v1alpha1", "kind": "MemberCluster", "metadata": {"name": name},
        "spec": {"kubeconfigSecret": {"namespace": NAMESPACE, "name": secret, "key": "kubeconfig"}},
    });
    create(hub, "/apis/rayfleet.io/v1alpha1/memberclusters", &body).await?;
    Ok(())
}
