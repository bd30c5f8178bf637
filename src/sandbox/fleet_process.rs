//! A running sandbox: the API servers of a fleet on their ports, the cores around them, and real pods where Ray is there.
//! Puts parts together. Must not know how an API server, a scheduler or a pod works.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use data_encoding::BASE64;
use serde_json::{Value, json};
use thiserror::Error;
use tokio::sync::mpsc;
use tokio::task::{self, JoinSet};

use super::apiserver::{ApiServer, Options};
use super::dir_lock::{DirLock, LockError};
use super::http::{
    Access, Backends, KubeconfigEntry, ListenError, Listening, Logs, SharedServer, kubeconfig_text, listen, wall_clock,
    write_kubeconfig,
};
use super::panics;
use super::ray::Isolation;
use super::ray::behind::ClusterPods;
use super::ray::nodes::{OpenError, RealPods, Settings as RaySettings};
use super::world::driver::{Around, Wish};
use super::world::fleet::{Fleet, hub_cores};
use super::world::nodes::ServiceChange;
use super::world::simulated::Profile;
use crate::api::wire::{Method, Reply, Request};
use crate::api::{Id, Kind};

/// Namespace on the hub of the Secrets with the members' kubeconfigs.
const SECRETS_NAMESPACE: &str = "rayfleet-system";
/// Pods' addresses of the first member start with `10.200`; each member has its own network.
pub(super) const FIRST_NETWORK: u8 = 200;
/// How long real pods may take to end with the sandbox.
const GRACE: Duration = Duration::from_secs(5);

/// What a sandbox is started with.
#[derive(Debug)]
pub struct Settings {
    /// Members, nodes, queues.
    pub fleet: Fleet,
    /// Virtual environment with Ray; `None`: pods are simulated.
    pub ray: Option<PathBuf>,
    /// Where the kubeconfig and the pods' logs go.
    pub dir: PathBuf,
    /// Port of the hub, members on the next ones; 0 takes free ones.
    pub port: u16,
}

/// Why a sandbox does not start.
#[derive(Debug, Error)]
pub enum StartError {
    /// A port cannot be had.
    #[error("{0}; name another with --port, or 0 for free ones")]
    Listen(#[from] ListenError),
    /// No Ray, or the wrong one.
    #[error("{0} (--ray none simulates the pods)")]
    Ray(#[from] OpenError),
    /// The directory cannot be had.
    #[error("--dir {}: {error}; name another directory with --dir", dir.display())]
    Dir {
        /// Which.
        dir: PathBuf,
        /// Why.
        error: LockError,
    },
    /// Files cannot be written.
    #[error("{path}: {error}")]
    Files {
        /// Which.
        path: PathBuf,
        /// Why.
        error: std::io::Error,
    },
    /// An object that stands at the beginning was refused by the sandbox's own API server.
    #[error("setting up {cluster}: {what}: {message}")]
    SetUp {
        /// Cluster.
        cluster: String,
        /// Path of the request.
        what: String,
        /// What the server said.
        message: String,
    },
    /// The fleet is larger than there are networks or ports for.
    #[error("{0} members are too many: at most {max}", max = 255 - FIRST_NETWORK)]
    TooMany(usize),
}

/// A part of the sandbox has panicked. What is left of it would look alive and do nothing.
#[derive(Debug, Error)]
#[error("{part} has broken: {words}")]
pub struct Broken {
    part: String,
    words: String,
}

/// One API server of the sandbox.
#[derive(Debug)]
pub struct Server {
    /// `hub`, or the member's name.
    pub name: String,
    /// Where it listens.
    pub url: String,
    listening: Listening,
}

/// A running sandbox. Dropping it ends everything in it; [`FleetProcess::stop`] ends it in order.
pub struct FleetProcess {
    /// The hub first; none where they run elsewhere.
    pub servers: Vec<Server>,
    /// The kubeconfig that was written, or that names the servers elsewhere.
    pub kubeconfig: PathBuf,
    /// Whether volumes can be mounted; `None` where pods are simulated.
    pub isolation: Option<Isolation>,
    pods: Option<RealPods>,
    tasks: JoinSet<()>,
    /// What each of them is, for a person.
    names: BTreeMap<task::Id, String>,
    /// Held to the end: another sandbox here would overwrite the kubeconfig.
    _dir: DirLock,
}

impl std::fmt::Debug for FleetProcess {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FleetProcess").field("servers", &self.servers).finish_non_exhaustive()
    }
}

/// One cluster before it runs.
struct Cluster {
    name: String,
    server: Arc<SharedServer>,
    around: Around,
}

impl FleetProcess {
    /// Starts everything; when this returns, all servers answer and the kubeconfig is written.
    pub async fn start(settings: Settings) -> Result<Self, StartError> {
        let members = settings.fleet.members.len();
        if members > usize::from(255 - FIRST_NETWORK) {
            return Err(StartError::TooMany(members));
        }
        let files = |path: &Path| {
            let path = path.to_owned();
            move |error| StartError::Files { path, error }
        };
        let lock = DirLock::take(&settings.dir);
        let lock = lock.map_err(|error| StartError::Dir { dir: settings.dir.clone(), error })?;
        let opened = match &settings.ray {
            Some(venv) => Some(RealPods::open(RaySettings::new(venv, &settings.dir)).await?),
            None => None,
        };
        let (pods, told) = opened.map_or((None, None), |(pods, told)| (Some(pods), Some(told)));
        let clusters = make_clusters(&settings.fleet, pods.is_some())?;
        let mut servers = Vec::new();
        let mut entries = Vec::new();
        for (at, cluster) in (0_u16..).zip(&clusters) {
            let port = if settings.port == 0 { 0 } else { settings.port.saturating_add(at) };
            let token = token();
            let (backends, logs) = passers(cluster, pods.as_ref());
            let listening = listen(port, cluster.server.clone(), Access::token(token.clone()), backends, logs).await?;
            entries.push(KubeconfigEntry { name: cluster.name.clone(), url: listening.url(), token });
            servers.push(Server { name: cluster.name.clone(), url: listening.url(), listening });
        }
        if let Some((hub, members)) = clusters.split_first() {
            register(&hub.server, members, &entries[1..]).map_err(|(what, message)| StartError::SetUp {
                cluster: hub.name.clone(),
                what,
                message,
            })?;
        }
        let kubeconfig = settings.dir.join("kubeconfig");
        write_kubeconfig(&kubeconfig, &entries).map_err(files(&kubeconfig))?;
        let mut process = Self { servers, ..Self::new(kubeconfig, pods.clone(), lock) };
        if let Some(told) = told {
            let arounds = clusters.iter().map(|c| (c.name.clone(), c.around.clone())).collect();
            process.spawn("the news of pods".to_owned(), pass_on(told, arounds));
        }
        for cluster in clusters {
            process.spawn(format!("the surroundings of {}", cluster.name), run_around(cluster, pods.clone()));
        }
        Ok(process)
    }

    /// Nothing yet, for servers that run elsewhere.
    pub(super) fn new(kubeconfig: PathBuf, pods: Option<RealPods>, dir: DirLock) -> Self {
        let isolation = pods.as_ref().map(|pods| pods.isolation().clone());
        let (tasks, names) = (JoinSet::new(), BTreeMap::new());
        Self { servers: Vec::new(), kubeconfig, isolation, pods, tasks, names, _dir: dir }
    }

    pub(super) fn spawn(&mut self, name: String, part: impl Future<Output = ()> + Send + 'static) {
        let id = self.tasks.spawn(part).id();
        self.names.insert(id, name);
    }

    /// Goes on with `work` as long as every part of the sandbox lives.
    pub async fn while_whole<T>(&mut self, work: impl Future<Output = T>) -> Result<T, Broken> {
        let Self { servers, pods, tasks, names, .. } = self;
        let mut ends: JoinsAny<'_> = Vec::new();
        for server in servers {
            let name = format!("the API server of {}", server.name);
            ends.push(Box::pin(async move { Broken { part: name, words: server.listening.broken().await } }));
        }
        if let Some(pods) = pods {
            ends.push(Box::pin(async move { Broken { part: "a pod".to_owned(), words: pods.broken().await } }));
        }
        ends.push(Box::pin(async move {
            let Some(ended) = tasks.join_next_with_id().await else { return std::future::pending().await };
            let (id, words) = match ended {
                Ok((id, ())) => (id, None),
                Err(error) => (error.id(), panics::words(error)),
            };
            let part = names.get(&id).cloned().unwrap_or_default();
            Broken { part, words: words.unwrap_or_else(|| "it ended".to_owned()) }
        }));
        tokio::select! {
            done = work => Ok(done),
            broken = first(ends) => Err(broken),
        }
    }

    /// Ends schedulers and kubelets, then pods, then servers.
    pub async fn stop(mut self) {
        // First whoever would start again what ends.
        self.tasks.shutdown().await;
        if let Some(pods) = &self.pods
            && tokio::time::timeout(GRACE * 2, pods.shutdown(GRACE)).await.is_err()
        {
            tracing::warn!("not all pods ended in time: what is left is killed");
        }
        for server in self.servers {
            server.listening.stop().await;
        }
    }
}

/// Futures of which the first that is done counts.
type JoinsAny<'a> = Vec<Pin<Box<dyn Future<Output = Broken> + Send + 'a>>>;

async fn first(mut ends: JoinsAny<'_>) -> Broken {
    std::future::poll_fn(|cx| {
        let done = ends.iter_mut().find_map(|end| match end.as_mut().poll(cx) {
            Poll::Ready(broken) => Some(broken),
            Poll::Pending => None,
        });
        done.map_or(Poll::Pending, Poll::Ready)
    })
    .await
}

fn make_clusters(fleet: &Fleet, real: bool) -> Result<Vec<Cluster>, StartError> {
    let seed = fastrand::u64(..);
    let server = |at: u64, name: &str| {
        let options = Options { name: name.to_owned(), uid_seed: seed.wrapping_add(at), ..Options::default() };
        SharedServer::new(ApiServer::new(options), wall_clock())
    };
    let hub = server(0, "hub");
    set_up("hub", &hub, fleet.hub_set_up())?;
    let mut clusters = vec![Cluster { name: "hub".into(), around: Around::new(&hub, hub_cores()), server: hub }];
    for (at, member) in (1_u8..).zip(&fleet.members) {
        let shared = server(u64::from(at), &member.name);
        set_up(&member.name, &shared, fleet.member_set_up(member))?;
        let network = FIRST_NETWORK.saturating_add(at - 1);
        let cores = if real { member.real(network) } else { member.simulated(network, Profile::default()) };
        clusters.push(Cluster { name: member.name.clone(), around: Around::new(&shared, cores), server: shared });
    }
    Ok(clusters)
}

fn set_up(cluster: &str, server: &Arc<SharedServer>, requests: Vec<Request>) -> Result<(), StartError> {
    for request in requests {
        let reply = server.ask(&request);
        // What the server makes by itself is no fault.
        if !reply.is_success() && reply.status != 409 {
            let (what, message) = (request.target, words(&reply));
            return Err(StartError::SetUp { cluster: cluster.to_owned(), what, message });
        }
    }
    Ok(())
}

/// Registers the members on the hub as `rayfleet member add` does. The error names path and message.
fn register(hub: &Arc<SharedServer>, members: &[Cluster], entries: &[KubeconfigEntry]) -> Result<(), (String, String)> {
    let create = |id: &Id, body: Value| {
        let namespace = (!id.namespace.is_empty()).then_some(&*id.namespace);
        let path = id.kind.collection_path(namespace);
        let bytes = Arc::from(body.to_string().as_bytes());
        let reply = hub.ask(&Request::new(Method::Post, path.as_str(), "application/json", bytes));
        if reply.is_success() || reply.status == 409 { Ok(()) } else { Err((path, words(&reply))) }
    };
    let namespace = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": SECRETS_NAMESPACE } });
    create(&Id::new(Kind::Namespace, "", SECRETS_NAMESPACE), namespace)?;
    for (member, entry) in members.iter().zip(entries) {
        let text = kubeconfig_text(std::slice::from_ref(entry)).map_err(|e| (member.name.clone(), e.to_string()))?;
        let secret = format!("member-{}", member.name);
        let body = json!({
            "apiVersion": "v1", "kind": "Secret", "type": "Opaque",
            "metadata": { "name": secret, "namespace": SECRETS_NAMESPACE },
            "data": { "kubeconfig": BASE64.encode(text.as_bytes()) },
        });
        create(&Id::new(Kind::Secret, SECRETS_NAMESPACE, secret.as_str()), body)?;
        let body = json!({
            "apiVersion": Kind::MemberCluster.api_version(), "kind": Kind::MemberCluster.name(),
            "metadata": { "name": member.name },
            "spec": { "kubeconfigSecret": { "namespace": SECRETS_NAMESPACE, "name": secret, "key": "kubeconfig" } },
        });
        create(&Id::new(Kind::MemberCluster, "", member.name.as_str()), body)?;
    }
    Ok(())
}

pub(super) fn words(reply: &Reply) -> String {
    let body: Value = serde_json::from_slice(&reply.body).unwrap_or_default();
    body["message"].as_str().map_or_else(|| format!("status {}", reply.status), str::to_owned)
}

/// A token that nobody guesses: 128 bits from the kernel. Loopback is shared by all users of a machine.
fn token() -> String {
    let mut bytes = [0_u8; 16];
    let read = std::fs::File::open("/dev/urandom").and_then(|mut f| std::io::Read::read_exact(&mut f, &mut bytes));
    if read.is_err() {
        bytes = fastrand::u128(..).to_le_bytes();
    }
    data_encoding::HEXLOWER.encode(&bytes)
}

/// Runs the cores of one cluster; what its nodes wish for goes to the real pods.
async fn run_around(cluster: Cluster, pods: Option<RealPods>) {
    let Cluster { name, server, around } = cluster;
    around
        .run(move |wish| {
            let Some(pods) = &pods else { return };
            match wish {
                Wish::Pod(order) => {
                    pods.obey(&name, &order, |kind, namespace, object| read(&server, kind, namespace, object));
                }
                Wish::Service(ServiceChange::Applied(service)) => pods.service_changed(&name, &service),
                Wish::Service(ServiceChange::Gone(service)) => {
                    let field = |field: &str| service["metadata"][field].as_str().unwrap_or_default();
                    pods.service_gone(&name, field("namespace"), field("name"));
                }
            }
        })
        .await;
}

fn read(server: &Arc<SharedServer>, kind: Kind, namespace: &str, name: &str) -> Option<Value> {
    let reply = server.ask(&Request::get(Id::new(kind, namespace, name).path()));
    reply.is_success().then(|| serde_json::from_slice(&reply.body).ok()).flatten()
}

/// What happened to real pods goes to the nodes of their cluster.
pub(super) async fn pass_on(
    mut told: mpsc::UnboundedReceiver<super::ray::nodes::Told>,
    arounds: Vec<(String, Around)>,
) {
    while let Some(told) = told.recv().await {
        if let Some((_, around)) = arounds.iter().find(|(name, _)| *name == told.cluster) {
            around.told(told.event);
        }
    }
}

fn passers(cluster: &Cluster, pods: Option<&RealPods>) -> (Arc<dyn Backends>, Arc<dyn Logs>) {
    match pods {
        Some(pods) => {
            let real = Arc::new(ClusterPods::new(pods.clone(), cluster.name.clone()));
            (real.clone(), real)
        }
        None => (Arc::new(cluster.around.clone()), Arc::new(cluster.around.clone())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sandbox::http::Nothing;

    async fn start(dir: &Path) -> FleetProcess {
        let settings = Settings { fleet: Fleet::of_size(1), ray: None, dir: dir.to_owned(), port: 0 };
        FleetProcess::start(settings).await.unwrap()
    }

    const LIMIT: Duration = Duration::from_mins(1);

    #[tokio::test]
    async fn a_sandbox_with_a_dead_part_does_not_go_on_and_says_which() {
        let dir = tempfile::tempdir().unwrap();
        let mut process = start(dir.path()).await;
        process.spawn("the surroundings of mars".to_owned(), async { panic!("no air") });
        let work = process.while_whole(std::future::pending::<()>());
        let broken = tokio::time::timeout(LIMIT, work).await.unwrap().unwrap_err();
        assert_eq!(broken.to_string(), "the surroundings of mars has broken: no air");
        process.stop().await;
    }

    #[tokio::test]
    async fn an_api_server_that_panics_over_a_request_ends_the_sandbox() {
        let dir = tempfile::tempdir().unwrap();
        let mut process = start(dir.path()).await;
        let clock = Arc::new(|| panic!("fell over a request"));
        let server = SharedServer::new(ApiServer::new(Options::default()), clock);
        let (backends, logs) = (Arc::new(Nothing), Arc::new(Nothing));
        let listening = listen(0, server, Access::token("t"), backends, logs).await.unwrap();
        let address = listening.address();
        process.servers.push(Server { name: "mars".into(), url: listening.url(), listening });
        let ask = async {
            let mut stream = tokio::net::TcpStream::connect(address).await.unwrap();
            let request = b"GET /api/v1/pods HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer t\r\n\r\n";
            tokio::io::AsyncWriteExt::write_all(&mut stream, request).await.unwrap();
            std::future::pending::<()>().await;
        };
        let broken = tokio::time::timeout(LIMIT, process.while_whole(ask)).await.unwrap().unwrap_err();
        assert_eq!(broken.to_string(), "the API server of mars has broken: fell over a request");
        process.stop().await;
    }

    #[tokio::test]
    async fn a_whole_sandbox_goes_on_until_its_work_is_done() {
        let dir = tempfile::tempdir().unwrap();
        let mut process = start(dir.path()).await;
        assert_eq!(process.while_whole(async { 7 }).await.unwrap(), 7);
        process.stop().await;
    }
}
