//! One control plane: which processes it has, with which flags, when it is ready, and what can be done to it.
//! Must not know who uses it. The flags and the order are those that were tried by hand with Kubernetes 1.36 and etcd 3.6.

use std::collections::BTreeMap;
use std::fmt::{self, Display, Formatter};
use std::fs;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use nix::sys::signal::Signal;
use rayfleet::api::Cluster;
use rayfleet::api::wire::Request;
use rayfleet::shell::client::Client;
use rayfleet::shell::kubeconfig::member_config;
use rayfleet::shell::lanes::Lane;
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep};

use super::access::{self, ADMINISTRATOR, Access, CONTROLLER_MANAGER};
use super::binary::Binary;
use super::process::Process;

/// Time for one step of a start. An API server is ready after 4 s on two idle cores.
const STEP_MAX: Duration = Duration::from_secs(120);
/// Between two looks at whether a step is done.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// Time for one answer during a start.
const ANSWER_MAX: Duration = Duration::from_secs(5);
/// Where ports are drawn: below those that the kernel gives to outgoing connections (from 32768), so that nobody gets a
/// plane's port while its server is down.
const PORTS: std::ops::Range<u16> = 20_000..32_000;
/// Draws until enough free ports must have been found.
const PORT_DRAWS_MAX: usize = 1_000;
/// Pods are refused before it is there.
const DEFAULT_SERVICE_ACCOUNT: &str = "/api/v1/namespaces/default/serviceaccounts/default";
/// What tests of a fleet need; nodes are left alone.
const CONTROLLERS: &str = "garbage-collector-controller,namespace-controller,serviceaccount-controller,job-controller,\
                           pod-garbage-collector-controller,endpoints-controller,endpointslice-controller";
/// Who asked for what, and what came of it: of all but the administrator and Kubernetes' own parts. Answers to writes are
/// whole, for the version that each write made: a plane is no place for secrets.
const AUDIT_POLICY: &str = r#"{"apiVersion": "audit.k8s.io/v1", "kind": "Policy", "omitStages": ["RequestReceived"], "rules": [
    {"level": "None", "userGroups": ["system:masters", "system:nodes", "system:serviceaccounts:kube-system"]},
    {"level": "None", "users": ["system:kube-controller-manager", "system:apiserver", "system:anonymous"]},
    {"level": "RequestResponse", "verbs": ["create", "update", "patch", "delete", "deletecollection"]},
    {"level": "Metadata"}]}"#;

/// One process of a plane, in the order of starting.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Part {
    /// The store.
    Etcd,
    /// The API server.
    ApiServer,
    /// Garbage collection, namespaces, service accounts, Jobs.
    ControllerManager,
}

impl Part {
    /// All of a plane.
    pub const ALL: [Self; 3] = [Self::Etcd, Self::ApiServer, Self::ControllerManager];

    /// What it is called, to the binary too.
    pub fn name(self) -> &'static str {
        match self {
            Self::Etcd => "etcd",
            Self::ApiServer => "kube-apiserver",
            Self::ControllerManager => "kube-controller-manager",
        }
    }
}

impl Display for Part {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A control plane. Its processes end and its folder goes when it is dropped; the processes end with this process too,
/// however that ends.
#[derive(Debug)]
pub struct Plane {
    name: String,
    binary: Binary,
    dir: tempfile::TempDir,
    access: Access,
    ports: Ports,
    /// Through which its API server reaches pods.
    tunnel: Option<PathBuf>,
    running: BTreeMap<Part, Process>,
}

/// Each a port of loopback.
#[derive(Clone, Copy, Debug)]
struct Ports {
    etcd: u16,
    etcd_peers: u16,
    api_server: u16,
    controller_manager: u16,
}

impl Plane {
    /// Starts an empty plane and waits until it takes Pods. Besides the administrator it knows `users`, who may do nothing
    /// until RBAC objects say so. Fails with the last lines of the logs where it does not come up.
    pub async fn start(binary: &Binary, name: &str, users: &[&str]) -> Result<Self> {
        Self::begin(binary, name, users, None).await
    }

    /// The same for a plane whose API server reaches pods (by Services, as `proxy` subresource) through a Unix socket on
    /// which somebody takes HTTP CONNECT. It need not be there yet.
    pub async fn start_with_pods(binary: &Binary, name: &str, users: &[&str], tunnel: &Path) -> Result<Self> {
        Self::begin(binary, name, users, Some(tunnel.to_owned())).await
    }

    async fn begin(binary: &Binary, name: &str, users: &[&str], tunnel: Option<PathBuf>) -> Result<Self> {
        let dir = tempfile::Builder::new().prefix("plane-").tempdir()?;
        let access = Access::draw(&dir.path().join("tokens.csv"), users)?;
        fs::write(dir.path().join("service-account.key"), binary.service_account_key()?)?;
        let [etcd, etcd_peers, api_server, controller_manager] = free_ports()?;
        let ports = Ports { etcd, etcd_peers, api_server, controller_manager };
        fs::write(dir.path().join("audit-policy.json"), AUDIT_POLICY)?;
        if let Some(tunnel) = &tunnel {
            fs::write(dir.path().join("egress.json"), egress(tunnel).to_string())?;
        }
        let (name, binary) = (name.to_owned(), binary.clone());
        let mut plane = Self { name, binary, dir, access, ports, tunnel, running: BTreeMap::new() };
        plane.restart().await?;
        Ok(plane)
    }

    /// Where its API server listens: the same for the plane's whole life.
    pub fn address(&self) -> SocketAddr {
        loopback(self.ports.api_server)
    }

    /// The text of a kubeconfig for the administrator or another of its users.
    pub fn kubeconfig(&self, user: &str) -> String {
        self.kubeconfig_by(self.address(), user)
    }

    /// The same by way of another loopback address, such as a proxy's.
    pub fn kubeconfig_by(&self, address: SocketAddr, user: &str) -> String {
        self.access.kubeconfig(user, address, &self.ca().expect("a plane that was ready has made its certificate"))
    }

    /// The same with a token of somebody whom the plane knows otherwise, such as a ServiceAccount.
    pub fn kubeconfig_with(&self, address: SocketAddr, user: &str, token: &str) -> String {
        access::kubeconfig(user, token, address, &self.ca().expect("a plane that was ready has made its certificate"))
    }

    /// What it was called at its start.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The file to which its API server writes who asked for what: a line of JSON (`audit.k8s.io/v1`) each, before the
    /// answer leaves. Kubernetes' own parts and the administrator are left out.
    pub fn audit_log(&self) -> PathBuf {
        self.dir.path().join("audit.log")
    }

    /// Stops a part (SIGSTOP): connections to it open, and nothing comes.
    pub fn pause(&mut self, part: Part) -> Result<()> {
        self.signal(part, Signal::SIGSTOP)
    }

    /// Lets a paused part go on (SIGCONT).
    pub fn resume(&mut self, part: Part) -> Result<()> {
        self.signal(part, Signal::SIGCONT)
    }

    /// Kills a part (SIGKILL), paused or not; what it stored stays. Nothing where it has ended already.
    pub fn kill(&mut self, part: Part) {
        self.running.remove(&part);
    }

    /// Starts the parts that are not there, and waits until the plane takes Pods. No part may be paused.
    pub async fn restart(&mut self) -> Result<()> {
        self.running.retain(|_, process| process.ended().is_none());
        self.run(Part::Etcd)?;
        let etcd = loopback(self.ports.etcd);
        self.until("etcd listens", async |_| TcpStream::connect(etcd).await.map(drop).map_err(Into::into)).await?;
        self.run(Part::ApiServer)?;
        self.until("the API server is ready", async |plane| plane.answers("/readyz").await).await?;
        self.run(Part::ControllerManager)?;
        self.until("Pods are taken", async |plane| plane.answers(DEFAULT_SERVICE_ACCOUNT).await).await
    }

    /// Kills all parts, forgets all objects and starts again: another cluster at the same address, with the same
    /// certificate, tokens and keys.
    pub async fn wipe(&mut self) -> Result<()> {
        self.running.clear();
        fs::remove_dir_all(self.dir.path().join("etcd"))?;
        self.restart().await
    }

    /// Process ids of the parts that run.
    pub fn process_ids(&self) -> BTreeMap<Part, u32> {
        self.running.iter().map(|(part, process)| (*part, process.id())).collect()
    }

    fn signal(&mut self, part: Part, signal: Signal) -> Result<()> {
        let process = self.running.get_mut(&part).with_context(|| format!("{}: {part} does not run", self.name))?;
        process.signal(signal).with_context(|| format!("{}: {part} takes no {signal}", self.name))
    }

    fn run(&mut self, part: Part) -> Result<()> {
        if !self.running.contains_key(&part) {
            let args = self.args(part)?;
            let process = Process::start(self.binary.path(), &args, self.log(part))?;
            self.running.insert(part, process);
        }
        Ok(())
    }

    fn args(&self, part: Part) -> Result<Vec<String>> {
        let Self { name, ports, .. } = self;
        let dir = self.dir.path().display();
        let flags = match part {
            Part::Etcd => {
                let [clients, peers] = [ports.etcd, ports.etcd_peers].map(|port| format!("http://{}", loopback(port)));
                vec![
                    format!("--name={name}"),
                    format!("--data-dir={dir}/etcd"),
                    format!("--listen-client-urls={clients}"),
                    format!("--advertise-client-urls={clients}"),
                    format!("--listen-peer-urls={peers}"),
                    format!("--initial-advertise-peer-urls={peers}"),
                    format!("--initial-cluster={name}={peers}"),
                ]
            }
            Part::ApiServer => [
                "--bind-address=127.0.0.1".into(),
                "--advertise-address=127.0.0.1".into(),
                format!("--secure-port={}", ports.api_server),
                // A loopback address is no endpoint, and it would try to publish it as one.
                "--endpoint-reconciler-type=none".into(),
                format!("--etcd-servers=http://{}", loopback(ports.etcd)),
                format!("--cert-dir={dir}/certificates"),
                "--service-cluster-ip-range=10.0.0.0/24".into(),
                format!("--service-account-issuer=https://{name}.local"),
                format!("--service-account-key-file={dir}/service-account.key"),
                format!("--service-account-signing-key-file={dir}/service-account.key"),
                format!("--token-auth-file={dir}/tokens.csv"),
                "--authorization-mode=RBAC".into(),
                "--profiling=false".into(),
                format!("--audit-policy-file={dir}/audit-policy.json"),
                format!("--audit-log-path={dir}/audit.log"),
            ]
            .into_iter()
            .chain(self.tunnel.as_ref().map(|_| format!("--egress-selector-config-file={dir}/egress.json")))
            .collect(),
            Part::ControllerManager => {
                let kubeconfig = format!("{dir}/controller-manager.kubeconfig");
                fs::write(&kubeconfig, self.kubeconfig(CONTROLLER_MANAGER))?;
                vec![
                    format!("--kubeconfig={kubeconfig}"),
                    "--bind-address=127.0.0.1".into(),
                    format!("--secure-port={}", ports.controller_manager),
                    format!("--cert-dir={dir}/controller-manager-certificates"),
                    format!("--controllers={CONTROLLERS}"),
                    "--leader-elect=false".into(),
                    "--use-service-account-credentials=true".into(),
                    "--profiling=false".into(),
                ]
            }
        };
        Ok([part.name().to_owned()].into_iter().chain(flags).collect())
    }

    /// Waits until `done` succeeds. Fails at once where a part has ended, and where it takes too long.
    async fn until(&mut self, what: &str, done: impl AsyncFn(&Self) -> Result<()>) -> Result<()> {
        let deadline = Instant::now() + STEP_MAX;
        loop {
            let Err(why) = done(self).await else { return Ok(()) };
            for (part, process) in &mut self.running {
                if let Some(status) = process.ended() {
                    bail!("{}: {part} ended ({status}) before {what}:\n{}", self.name, process.tail());
                }
            }
            if Instant::now() >= deadline {
                let tails = self.running.iter().map(|(part, process)| format!("\n{part}:\n{}", process.tail()));
                bail!("{}: after {STEP_MAX:?}, before {what}: {why:#}{}", self.name, tails.collect::<String>());
            }
            sleep(LOOK_EVERY).await;
        }
    }

    /// Whether the administrator's read of `target` succeeds. Makes a client each time: the certificate may be new.
    async fn answers(&self, target: &str) -> Result<()> {
        let text = self.access.kubeconfig(ADMINISTRATOR, self.address(), &self.ca()?);
        let client = Client::new(Cluster::Hub, member_config(&text, None).await?)?;
        let reply = client.send(Lane::Effects, &Request::get(target), ANSWER_MAX).await?;
        ensure!(reply.status == 200, "{target}: {} {}", reply.status, String::from_utf8_lossy(&reply.body));
        Ok(())
    }

    /// The certificate that the API server has made for itself, which is what vouches for it. PEM.
    fn ca(&self) -> Result<Vec<u8>> {
        Ok(fs::read(self.dir.path().join("certificates/apiserver.crt"))?)
    }

    fn log(&self, part: Part) -> PathBuf {
        self.dir.path().join(part.name()).with_extension("log")
    }
}

/// How an API server is told about the socket to its pods.
fn egress(tunnel: &Path) -> Value {
    let transport = json!({"uds": {"udsName": tunnel}});
    json!({"apiVersion": "apiserver.k8s.io/v1beta1", "kind": "EgressSelectorConfiguration", "egressSelections": [
        {"name": "cluster", "connection": {"proxyProtocol": "HTTPConnect", "transport": transport}}]})
}

fn loopback(port: u16) -> SocketAddr {
    (Ipv4Addr::LOCALHOST, port).into()
}

/// Ports that nobody listens on. All are held until the last is found, so that none comes twice.
fn free_ports<const N: usize>() -> Result<[u16; N]> {
    let held: Vec<_> =
        (0..PORT_DRAWS_MAX).filter_map(|_| TcpListener::bind(loopback(fastrand::u16(PORTS))).ok()).take(N).collect();
    let ports = held.iter().map(|listener| Ok(listener.local_addr()?.port())).collect::<Result<Vec<_>>>()?;
    ports.try_into().map_err(|_| anyhow::anyhow!("no {N} free ports among {PORTS:?}"))
}
