//! The sandbox's surroundings as clients of clusters that run elsewhere, such as real API servers without kubelets: Volcano's
//! scheduler, nodes, and real Ray behind the pods. Kubernetes' own controllers are the clusters'.
//! Puts parts together. Must not know how a scheduler, a node or a pod works.

pub mod remote;
pub mod tunnel;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use thiserror::Error;
use tokio::net::UnixListener;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep};

use self::remote::{Remote, RemoteError};
use self::tunnel::Behind;
use super::dir_lock::DirLock;
use super::fleet_process::{FIRST_NETWORK, FleetProcess, StartError, pass_on, words};
use super::ray::nodes::{RealPods, Settings as RaySettings};
use super::ray::pod;
use super::world::container::Order;
use super::world::driver::{Around, Wish};
use super::world::fleet::{Fleet, Member};
use super::world::nodes::ServiceChange;
use super::world::simulated::Profile;
use crate::api::wire::Request;
use crate::api::{Id, Kind};

/// A definition is served this long after it was made, at the latest, and the first answer may take as long.
const SET_UP_MAX: Duration = Duration::from_secs(60);
const TRY_AGAIN: Duration = Duration::from_millis(200);
/// Statuses of an API server that is not ready for the request yet: the kind is not served yet, or the server is busy.
const NOT_YET: [u16; 4] = [404, 429, 500, 503];

/// What surroundings are attached with.
#[derive(Debug)]
pub struct Settings {
    /// Members, nodes, queues.
    pub fleet: Fleet,
    /// Kubeconfig with a context `hub` and one for each member, of its name.
    pub kubeconfig: PathBuf,
    /// Where the Unix sockets are made through which API servers reach pods: `<member>.sock`. `None`: they cannot.
    pub tunnels: Option<PathBuf>,
    /// Virtual environment with Ray; `None`: pods are simulated.
    pub ray: Option<PathBuf>,
    /// Where the pods' logs go.
    pub dir: PathBuf,
}

/// Why surroundings do not start.
#[derive(Debug, Error)]
pub enum AttachError {
    /// As for a sandbox of its own.
    #[error(transparent)]
    Start(#[from] StartError),
    /// A cluster cannot be asked.
    #[error(transparent)]
    Remote(#[from] RemoteError),
    /// An object that stands at the beginning could not be made.
    #[error("{cluster}: {what}: {message}")]
    SetUp {
        /// Context.
        cluster: String,
        /// Path of the request.
        what: String,
        /// What the server said.
        message: String,
    },
    /// A socket cannot be made.
    #[error("{path}: {error}")]
    Tunnel {
        /// Which.
        path: PathBuf,
        /// Why.
        error: std::io::Error,
    },
}

/// Starts schedulers and nodes around the members; when this returns, definitions, queues and tunnels are there.
pub async fn attach(settings: Settings) -> Result<FleetProcess, AttachError> {
    let Settings { fleet, kubeconfig, tunnels, ray, dir } = settings;
    let members = fleet.members.len();
    if members > usize::from(255 - FIRST_NETWORK) {
        return Err(StartError::TooMany(members).into());
    }
    let lock = DirLock::take(&dir).map_err(|error| StartError::Dir { dir: dir.clone(), error })?;
    let hub = Remote::of(&kubeconfig, "hub").await?;
    let mut clusters = Vec::new();
    for member in &fleet.members {
        clusters.push((member, Remote::of(&kubeconfig, &member.name).await?));
    }
    let opened = match &ray {
        Some(venv) => Some(RealPods::open(RaySettings::new(venv, &dir)).await.map_err(StartError::from)?),
        None => None,
    };
    let (pods, told) = opened.map_or((None, None), |(pods, told)| (Some(pods), Some(told)));
    set_up("hub", &hub, fleet.hub_set_up()).await?;
    let mut process = FleetProcess::new(kubeconfig, pods.clone(), lock);
    let mut arounds = Vec::new();
    for ((member, remote), network) in clusters.into_iter().zip(FIRST_NETWORK..) {
        set_up(&member.name, &remote, fleet.member_set_up(member)).await?;
        let around = Around::at(remote.clone(), cores(member, network, pods.is_some()));
        arounds.push((member.name.clone(), around.clone()));
        if let Some(folder) = &tunnels {
            let name: Arc<str> = Arc::from(member.name.as_str());
            let behind = match &pods {
                Some(pods) => Behind::Real(pods.clone(), name),
                None => Behind::Simulated(around.clone()),
            };
            let listener = listener(&folder.join(format!("{}.sock", member.name)))?;
            process.spawn(format!("the tunnel of {}", member.name), tunnel::serve(listener, behind));
        }
        let (wishes, wished) = mpsc::unbounded_channel();
        if let Some(pods) = &pods {
            let cluster = RealCluster { name: member.name.clone(), remote, pods: pods.clone() };
            process.spawn(format!("the pods of {}", member.name), cluster.obey(wished));
        }
        let run = around.run(move |wish| {
            // Simulated nodes wish for nothing.
            let _ = wishes.send(wish);
        });
        process.spawn(format!("the surroundings of {}", member.name), run);
    }
    if let Some(told) = told {
        process.spawn("the news of pods".to_owned(), pass_on(told, arounds));
    }
    Ok(process)
}

fn cores(member: &Member, network: u8, real: bool) -> Vec<Box<dyn super::world::Surrounding>> {
    if real { member.real_nodes(network) } else { member.simulated_nodes(network, Profile::default()) }
}

fn listener(path: &Path) -> Result<UnixListener, AttachError> {
    let failed = |error| AttachError::Tunnel { path: path.to_owned(), error };
    // One that an earlier run left behind.
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(failed(error)),
        _ => {}
    }
    UnixListener::bind(path).map_err(failed)
}

/// Makes what is missing.
async fn set_up(cluster: &str, remote: &Remote, requests: Vec<Request>) -> Result<(), AttachError> {
    let deadline = Instant::now() + SET_UP_MAX;
    for request in requests {
        loop {
            let reply = remote.ask(&request).await;
            let status = reply.as_ref().map(|reply| reply.status);
            match status {
                // What is there already stays as it is.
                Some(200..300 | 409) => break,
                _ if status.is_none_or(|status| NOT_YET.contains(&status)) && Instant::now() < deadline => {
                    sleep(TRY_AGAIN).await;
                }
                _ => {
                    let message = reply.map_or_else(|| "no answer".to_owned(), |reply| words(&reply));
                    return Err(AttachError::SetUp { cluster: cluster.to_owned(), what: request.target, message });
                }
            }
        }
    }
    Ok(())
}

/// The real pods of one cluster.
struct RealCluster {
    name: String,
    remote: Arc<Remote>,
    pods: RealPods,
}

impl RealCluster {
    /// Does what the nodes wish for, one after the other.
    async fn obey(self, mut wishes: mpsc::UnboundedReceiver<Wish>) {
        while let Some(wish) = wishes.recv().await {
            match wish {
                Wish::Pod(order) => {
                    let objects = self.needed(&order).await;
                    let find =
                        |kind, namespace: &str, name: &str| objects.get(&Id::new(kind, namespace, name)).cloned();
                    self.pods.obey(&self.name, &order, find);
                }
                Wish::Service(ServiceChange::Applied(service)) => self.pods.service_changed(&self.name, &service),
                Wish::Service(ServiceChange::Gone(service)) => {
                    let field = |field: &str| service["metadata"][field].as_str().unwrap_or_default();
                    self.pods.service_gone(&self.name, field("namespace"), field("name"));
                }
            }
        }
        // The cores have ended, and this ends with them: the process is told so.
    }

    /// ConfigMaps and Secrets that a pod needs for its start, as far as they are there.
    async fn needed(&self, order: &Order) -> BTreeMap<Id, Value> {
        let mut found = BTreeMap::new();
        let Order::Start { pod, .. } = order else { return found };
        let namespace = pod["metadata"]["namespace"].as_str().unwrap_or_default();
        let (maps, secrets) = pod::needs(pod);
        let maps = maps.into_iter().map(|name| (Kind::ConfigMap, name));
        for (kind, name) in maps.chain(secrets.into_iter().map(|name| (Kind::Secret, name))) {
            let id = Id::new(kind, namespace, name.as_str());
            let reply = self.remote.ask(&Request::get(id.path())).await.filter(crate::api::wire::Reply::is_success);
            if let Some(object) = reply.and_then(|reply| serde_json::from_slice(&reply.body).ok()) {
                found.insert(id, object);
            }
        }
        found
    }
}
