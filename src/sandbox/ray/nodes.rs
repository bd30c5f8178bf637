//! The driver of real pods: starts and ends their processes, carries out their probes, tells what happened.
//! Must not decide anything about pods: phases and restarts are the caller's.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use serde_json::{Value, json};
use tokio::process::Command;
use tokio::sync::{Semaphore, mpsc, watch};

use super::install::{self, RayMissing};
use super::logs::{self, Wanted};
use super::names::{Backend, Names, Place, place};
use super::order::SUBCOMMAND;
use super::pod::{self, ContainerPlan, Machine, PodDirs, PodStart, Refusal};
use super::ports::{PodPorts, PortPool, RayNode};
use super::run_dir::RunDir;
use super::{Isolation, container, strings, text};
use crate::api::{Kind, Time, Uid};
use crate::sandbox::apiserver::LogCall;
use crate::sandbox::panics;
use crate::sandbox::world::container::{Change, Order, PodEvent};

/// How real pods are run.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The virtual environment with Ray.
    pub venv: PathBuf,
    /// Where logs are kept; the sandbox's directory.
    pub workdir: PathBuf,
    /// The `rayfleet` binary, which is also the small parent of each container.
    pub runner: PathBuf,
    /// Bound of each Ray node's object store, in bytes.
    pub object_store_bytes: u64,
    /// Whether workers forward what their tasks print.
    pub log_monitor: bool,
    /// Ray nodes that start at the same time: their start is bound by the processor.
    pub starts_at_once: usize,
    /// Whether volumes may be mounted where the machine allows it. Without, a pod with volumes is refused as on other machines.
    pub mounts: bool,
}

impl Settings {
    /// For a small machine: 100 MiB of objects a node (Ray's minimum is 75), two nodes starting at a time.
    pub fn new(venv: impl Into<PathBuf>, workdir: impl Into<PathBuf>) -> Self {
        Self {
            venv: venv.into(),
            workdir: workdir.into(),
            // This program, also when its file has been replaced meanwhile.
            runner: "/proc/self/exe".into(),
            object_store_bytes: 100 * 1024 * 1024,
            log_monitor: true,
            starts_at_once: 2,
            mounts: true,
        }
    }
}

/// Why there can be no real pods here.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// No Ray, or another one.
    #[error(transparent)]
    Ray(#[from] RayMissing),
    /// Files cannot be written.
    #[error("cannot prepare the sandbox's directories: {0}")]
    Io(#[from] std::io::Error),
}

/// Something that happened to a pod's processes, and whose they are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Told {
    /// The cluster's name.
    pub cluster: String,
    /// Namespace of the pod.
    pub namespace: String,
    /// Name of the pod.
    pub pod: String,
    /// What happened, as its kubelet takes it in.
    pub event: PodEvent,
}

/// All pods with real processes, of all clusters of a sandbox. Cheap to clone.
#[derive(Clone)]
pub struct RealPods {
    shared: Arc<Shared>,
}

pub(super) struct Shared {
    pub(super) settings: Settings,
    pub(super) machine: Machine,
    run: RunDir,
    events: mpsc::UnboundedSender<Told>,
    state: Mutex<State>,
    /// See [`Settings::starts_at_once`].
    pub(super) starting: Arc<Semaphore>,
    /// Words of the first panic in a pod's task.
    broken: watch::Sender<Option<String>>,
}

struct State {
    pool: PortPool,
    names: Names,
    pods: BTreeMap<(String, Uid), Running>,
    written: BTreeMap<String, BTreeMap<String, u16>>,
    number: u64,
}

struct Running {
    place: Place,
    ports: PodPorts,
    number: u64,
    stop: watch::Sender<Option<Duration>>,
    restarts: BTreeMap<String, mpsc::UnboundedSender<Duration>>,
    logs: PathBuf,
    /// Starts of each container so far.
    attempts: BTreeMap<String, u32>,
    /// Containers that may still write.
    writing: BTreeSet<String>,
}

/// What the tasks of one pod share.
pub(super) struct PodTask {
    pub(super) shared: Arc<Shared>,
    pub(super) place: Place,
    pub(super) uid: Uid,
    pub(super) node: Option<RayNode>,
    pub(super) ports: PodPorts,
    pub(super) dir: PathBuf,
    pub(super) stop: watch::Receiver<Option<Duration>>,
}

impl RealPods {
    /// Checks Ray and the machine. Events come out of the receiver, in order for each pod.
    pub async fn open(settings: Settings) -> Result<(Self, mpsc::UnboundedReceiver<Told>), OpenError> {
        let venv = install::find(&settings.venv)?;
        let run = RunDir::make()?;
        let python = run.path().join("py");
        std::fs::create_dir_all(&python)?;
        std::fs::create_dir_all(run.path().join("names"))?;
        std::fs::create_dir_all(&settings.workdir)?;
        std::fs::write(python.join("rayfleet_node.py"), include_str!("python/rayfleet_node.py"))?;
        std::fs::write(python.join("sitecustomize.py"), include_str!("python/sitecustomize.py"))?;
        let isolation = if settings.mounts {
            try_isolation(&settings.runner, run.path()).await?
        } else {
            Isolation::None { why: "it is turned off".into() }
        };
        let machine = Machine {
            venv,
            python,
            isolation,
            passed_on: passed_on(),
            object_store_bytes: settings.object_store_bytes,
            log_monitor: settings.log_monitor,
        };
        let (events, receiver) = mpsc::unbounded_channel();
        let state = State {
            pool: PortPool::new(std::process::id()),
            names: Names::default(),
            pods: BTreeMap::new(),
            written: BTreeMap::new(),
            number: 0,
        };
        let starting = Arc::new(Semaphore::new(settings.starts_at_once));
        let (broken, _) = watch::channel(None);
        let shared = Shared { settings, machine, run, events, state: Mutex::new(state), starting, broken };
        Ok((Self { shared: Arc::new(shared) }, receiver))
    }

    /// Whether volumes can be mounted here; for the sandbox's first lines.
    pub fn isolation(&self) -> &Isolation {
        &self.shared.machine.isolation
    }

    /// Waits until the task of a pod has panicked: its words. What it was to tell, nobody will.
    pub async fn broken(&self) -> String {
        let mut broken = self.shared.broken.subscribe();
        // The sender is ours: it does not go away while we wait.
        broken.wait_for(Option::is_some).await.map(|words| words.clone().unwrap_or_default()).unwrap_or_default()
    }

    /// Carries out what the kubelet of a cluster orders. `find` gives a ConfigMap or Secret by kind, namespace and name; a
    /// pod that cannot be started is answered with [`Change::Refused`].
    pub fn obey(&self, cluster: &str, order: &Order, find: impl Fn(Kind, &str, &str) -> Option<Value>) {
        match order {
            Order::Start { pod, ip, host_ip } => {
                let namespace = text(&pod["metadata"]["namespace"]);
                let (maps, secrets) = pod::needs(pod);
                let all = |kind, names: BTreeSet<String>| {
                    names.into_iter().filter_map(|n| Some((n.clone(), find(kind, namespace, &n)?))).collect()
                };
                let start = PodStart {
                    cluster: cluster.to_owned(),
                    pod: (**pod).clone(),
                    config_maps: all(Kind::ConfigMap, maps),
                    secrets: all(Kind::Secret, secrets),
                    ip: ip.clone(),
                    host_ip: host_ip.clone(),
                };
                if let Err(refusal) = self.start(start) {
                    let (reason, again) = refusal.reason();
                    let change = Change::Refused { reason: reason.to_owned(), message: refusal.to_string(), again };
                    self.tell(cluster, pod, change);
                }
            }
            Order::Restart { uid, container, after } => self.restart(cluster, uid, container, *after),
            Order::Stop { uid, grace } => {
                if !self.stop(cluster, uid, *grace) {
                    // It was refused, or is gone already: whoever waits must hear it all the same.
                    let nobody = json!({"metadata": {"uid": uid.as_str()}});
                    self.tell(cluster, &nobody, Change::Gone);
                }
            }
        }
    }

    fn tell(&self, cluster: &str, pod: &Value, change: Change) {
        let (cluster, namespace, name) = place(cluster, pod);
        let event = PodEvent { uid: Uid::from(text(&pod["metadata"]["uid"])), at: now(), change };
        // Nobody listens while the sandbox ends.
        let _ = self.shared.events.send(Told { cluster, namespace, pod: name, event });
    }

    /// Starts a pod: its init containers one after the other, then the others together. A pod that is already there is
    /// left as it is.
    pub fn start(&self, start: PodStart) -> Result<(), Refusal> {
        let place = place(&start.cluster, &start.pod);
        let uid = Uid::from(text(&start.pod["metadata"]["uid"]));
        let key = (start.cluster.clone(), uid.clone());
        let node = RayNode::of(&start.pod);
        let mut state = self.shared.state();
        if state.pods.contains_key(&key) {
            return Ok(());
        }
        let ports = state.pool.take_for(&start.pod, node.as_ref()).ok_or(Refusal::NoPorts)?;
        state.number += 1;
        let number = state.number;
        let dir = self.shared.run.path().join(number.to_string());
        let planned = self
            .shared
            .dirs(&dir, &start.cluster)
            .map_err(|e| Refusal::Io(e.to_string()))
            .and_then(|dirs| pod::plan(&start, &self.shared.machine, &dirs, node.as_ref(), &ports));
        let plans = match planned {
            Ok(plans) => plans,
            Err(refusal) => {
                state.pool.give_back(&ports);
                // Before anything was written there is none.
                if let Err(e) = std::fs::remove_dir_all(&dir)
                    && e.kind() != std::io::ErrorKind::NotFound
                {
                    tracing::warn!(path = %dir.display(), error = %e, "the files of a refused pod could not be removed");
                }
                return Err(refusal);
            }
        };
        let (stop, stopped) = watch::channel(None);
        let (restarts, waiting): (BTreeMap<_, _>, BTreeMap<_, _>) = plans
            .iter()
            .map(|plan| {
                let (sender, receiver) = mpsc::unbounded_channel();
                ((plan.name.clone(), sender), (plan.name.clone(), receiver))
            })
            .unzip();
        let logs =
            self.shared.settings.workdir.join("logs").join(&place.0).join(format!("{}_{}_{uid}", place.1, place.2));
        let running = Running {
            place: place.clone(),
            ports: ports.clone(),
            number,
            stop,
            restarts,
            logs,
            attempts: BTreeMap::new(),
            writing: BTreeSet::new(),
        };
        let labels = strings(&start.pod["metadata"]["labels"]);
        let backend = Backend { labels, ip: start.ip.clone(), ports: ports.clone(), ready: false, number };
        state.names.pod_added(place.clone(), backend);
        state.pods.insert(key.clone(), running);
        self.shared.write_names(&mut state, &place.0);
        drop(state);
        let task = PodTask { shared: Arc::clone(&self.shared), place, uid, node, ports, dir, stop: stopped };
        let shared = Arc::clone(&self.shared);
        let pod = tokio::spawn(run_pod(task, plans, waiting));
        tokio::spawn(async move {
            if let Some(words) = pod.await.err().and_then(panics::words) {
                shared.broken.send_replace(Some(words));
            }
        });
        Ok(())
    }

    /// Starts an ended container once more, after a delay (the back-off is the caller's).
    pub fn restart(&self, cluster: &str, uid: &Uid, container: &str, after: Duration) {
        let state = self.shared.state();
        let sender = state.pods.get(&(cluster.to_owned(), uid.clone())).and_then(|p| p.restarts.get(container));
        if let Some(sender) = sender {
            // A pod that is ending listens no more.
            let _ = sender.send(after);
        }
    }

    /// Ends a pod: SIGTERM to each container's main process, after `grace` SIGKILL to whatever is left. May be called again
    /// with less grace. [`Change::Gone`] follows. False: there is no such pod, and none will be told gone.
    pub fn stop(&self, cluster: &str, uid: &Uid, grace: Duration) -> bool {
        let mut state = self.shared.state();
        let Some(pod) = state.pods.get(&(cluster.to_owned(), uid.clone())) else { return false };
        pod.stop.send_replace(Some(grace));
        let place = pod.place.clone();
        state.names.pod_ready(&place, false);
        self.shared.write_names(&mut state, cluster);
        true
    }

    /// A Service was created or changed.
    pub fn service_changed(&self, cluster: &str, service: &Value) {
        let mut state = self.shared.state();
        state.names.service_changed(cluster, service);
        self.shared.write_names(&mut state, cluster);
    }

    /// A Service is gone.
    pub fn service_gone(&self, cluster: &str, namespace: &str, name: &str) {
        let mut state = self.shared.state();
        state.names.service_gone(cluster, namespace, name);
        self.shared.write_names(&mut state, cluster);
    }

    /// Where a port (name or number) of a Service really is.
    pub fn service_address(&self, cluster: &str, namespace: &str, name: &str, port: &str) -> Option<SocketAddr> {
        self.shared.state().names.service_port(cluster, namespace, name, port).map(loopback)
    }

    /// Where a port (name or number) of a pod really is.
    pub fn pod_address(&self, cluster: &str, namespace: &str, pod: &str, port: &str) -> Option<SocketAddr> {
        self.shared.state().names.pod_port(&(cluster.into(), namespace.into(), pod.into()), port).map(loopback)
    }

    /// Where a port at the address that a pod was given really is.
    pub fn real_address(&self, cluster: &str, ip: &str, port: &str) -> Option<SocketAddr> {
        self.shared.state().names.port_at(cluster, ip, port).map(loopback)
    }

    /// The file with a container's output: of its newest start, or of the one before. None if it never started.
    pub fn log_path(
        &self,
        cluster: &str,
        namespace: &str,
        pod: &str,
        container: &str,
        previous: bool,
    ) -> Option<PathBuf> {
        let state = self.shared.state();
        let (_, pod) = state.newest(cluster, namespace, pod)?;
        pod.log(container, previous)
    }

    /// A container's output in pieces, as the API server is asked for it; None if it never started. Followed until the
    /// container ends.
    pub fn open_log(&self, cluster: &str, call: &LogCall) -> Option<mpsc::Receiver<Bytes>> {
        let state = self.shared.state();
        let (key, pod) = state.newest(cluster, &call.namespace, &call.pod)?;
        let log = pod.log(&call.container, call.previous)?;
        let (key, container, shared) = (key.clone(), call.container.clone(), Arc::clone(&self.shared));
        let same = log.clone();
        // As long as it runs, and has not been started again with another file.
        let grows = move || {
            let state = shared.state();
            let pod = state.pods.get(&key);
            pod.is_some_and(|p| p.writing.contains(&container) && p.log(&container, false).as_ref() == Some(&same))
        };
        let wanted = Wanted { follow: call.follow, tail_lines: call.tail_lines };
        Some(logs::open(&log, wanted, grows))
    }

    /// Ends all pods, and waits until nothing of them is left.
    pub async fn shutdown(&self, grace: Duration) {
        let keys: Vec<(String, Uid)> = self.shared.state().pods.keys().cloned().collect();
        for (cluster, uid) in keys {
            self.stop(&cluster, &uid, grace);
        }
        while !self.shared.state().pods.is_empty() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        self.shared.run.remove();
    }
}

impl State {
    /// The latest incarnation of a pod.
    fn newest(&self, cluster: &str, namespace: &str, pod: &str) -> Option<(&(String, Uid), &Running)> {
        let place = (cluster.to_owned(), namespace.to_owned(), pod.to_owned());
        self.pods.iter().filter(|(_, p)| p.place == place).max_by_key(|(_, p)| p.number)
    }
}

impl Running {
    fn log(&self, container: &str, previous: bool) -> Option<PathBuf> {
        let attempts = self.attempts.get(container)?.checked_sub(u32::from(previous))?;
        (attempts > 0).then(|| log_file(&self.logs, container, attempts))
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn dirs(&self, dir: &Path, cluster: &str) -> std::io::Result<PodDirs> {
        let names = self.run.path().join("names").join(format!("{cluster}.json"));
        let at = |name: &str| dir.join(name);
        let dirs = PodDirs { temp: at("t"), volumes: at("v"), home: at("h"), root: at("r"), names };
        for made in [&dirs.temp.join("ray"), &dirs.volumes, &dirs.home, &dirs.root] {
            std::fs::create_dir_all(made)?;
        }
        Ok(dirs)
    }

    /// Tells the pods of a cluster which names there are, if that has changed.
    fn write_names(&self, state: &mut State, cluster: &str) {
        let names = state.names.of_cluster(cluster);
        if state.written.get(cluster) == Some(&names) {
            return;
        }
        let at = self.run.path().join("names").join(format!("{cluster}.json"));
        let text = serde_json::to_string(&names).expect("names are plain data");
        // Replaced in one step: pods read it at any time.
        let new = at.with_extension("new");
        if let Err(e) = std::fs::write(&new, text).and_then(|()| std::fs::rename(&new, &at)) {
            tracing::error!(cluster, error = %e, "names of Services could not be written: pods of this cluster will not find each other");
            return;
        }
        state.written.insert(cluster.to_owned(), names);
    }

    /// `host:port` of a cluster as an address that programs without our names understand.
    pub(super) fn real_address(&self, task: &PodTask, address: &str) -> Option<String> {
        let (host, port) = address.rsplit_once(':')?;
        let port: u16 = port.parse().ok()?;
        if matches!(host, "127.0.0.1" | "localhost") {
            return task.ports.real.get(&port).map(|real| format!("127.0.0.1:{real}"));
        }
        let mut parts = host.split('.');
        let service = parts.next()?;
        let namespace = parts.next().unwrap_or(&task.place.1);
        let names = self.state().names.of_cluster(&task.place.0);
        names.get(&format!("{service}.{namespace}:{port}")).map(|real| format!("127.0.0.1:{real}"))
    }
}

impl PodTask {
    pub(super) fn tell(&self, change: Change) {
        let (cluster, namespace, pod) = self.place.clone();
        if let Change::Terminated { container, .. } = &change {
            let mut state = self.shared.state();
            if let Some(pod) = state.pods.get_mut(&(cluster.clone(), self.uid.clone())) {
                pod.writing.remove(container);
            }
        }
        if let Change::Ready { ready, container } = &change {
            // Services lead to a Ray node when it is ready; a pod of several counts by its Ray node, else by any.
            if self.node.as_ref().is_none_or(|n| n.container == *container) {
                let mut state = self.shared.state();
                state.names.pod_ready(&self.place, *ready);
                self.shared.write_names(&mut state, &cluster);
            }
        }
        // Nobody listens while the sandbox ends.
        let event = PodEvent { uid: self.uid.clone(), at: now(), change };
        let _ = self.shared.events.send(Told { cluster, namespace, pod, event });
    }

    /// Counts one more start of a container: its number, and the file for its output.
    pub(super) fn next_attempt(&self, container: &str) -> std::io::Result<(u32, PathBuf)> {
        let mut state = self.shared.state();
        let pod = state.pods.get_mut(&(self.place.0.clone(), self.uid.clone()));
        let pod = pod.expect("a pod is in the table until its task has ended");
        let attempt = pod.attempts.entry(container.to_owned()).or_insert(0);
        *attempt += 1;
        let log = log_file(&pod.logs, container, *attempt);
        let attempt = *attempt;
        pod.writing.insert(container.to_owned());
        drop(state);
        std::fs::create_dir_all(log.parent().expect("a log file has a directory"))?;
        std::fs::File::create(&log)?;
        Ok((attempt, log))
    }
}

/// The life of one pod, from its first init container until nothing is left of it.
async fn run_pod(
    task: PodTask,
    plans: Vec<ContainerPlan>,
    mut waiting: BTreeMap<String, mpsc::UnboundedReceiver<Duration>>,
) {
    let task = Arc::new(task);
    let (init, main): (Vec<_>, Vec<_>) = plans.into_iter().partition(|p| p.init);
    let mut go_on = true;
    for plan in init {
        let orders = waiting.remove(&plan.name).expect("every container has its channel");
        go_on = go_on && container::run_until_done(&task, plan, orders).await;
    }
    if go_on {
        let containers: Vec<_> = main
            .into_iter()
            .map(|plan| {
                let orders = waiting.remove(&plan.name).expect("every container has its channel");
                let task = Arc::clone(&task);
                tokio::spawn(async move { container::run_until_stopped(&task, plan, orders).await })
            })
            .collect();
        for container in containers {
            if let Err(e) = container.await {
                tracing::error!(pod = %task.place.2, error = %e, "the task of a container failed");
                task.shared.broken.send_replace(panics::words(e));
            }
        }
    }
    let mut state = task.shared.state();
    let key = (task.place.0.clone(), task.uid.clone());
    if let Some(pod) = state.pods.remove(&key) {
        state.pool.give_back(&pod.ports);
        state.names.pod_gone(&pod.place, pod.number);
        task.shared.write_names(&mut state, &task.place.0);
    }
    drop(state);
    if let Err(e) = std::fs::remove_dir_all(&task.dir) {
        tracing::warn!(path = %task.dir.display(), error = %e, "the files of a pod could not be removed");
    }
    task.tell(Change::Gone);
}

async fn try_isolation(runner: &Path, run: &Path) -> std::io::Result<Isolation> {
    let mut why = String::new();
    for (how, isolation) in [("try", Isolation::Mounts), ("try-user", Isolation::UserAndMounts)] {
        let dir = run.join(how);
        let tried = Command::new(runner).args([SUBCOMMAND, how]).arg(&dir).output().await?;
        if tried.status.success() {
            return Ok(isolation);
        }
        why = String::from_utf8_lossy(&tried.stderr).trim().replacen("rayfleet: ", "", 1);
    }
    Ok(Isolation::None { why })
}

/// How pip reaches its registry is a matter of the machine, not of a pod's manifest.
fn passed_on() -> BTreeMap<String, String> {
    let wanted = |name: &str| name.starts_with("PIP_") || matches!(name, "SSL_CERT_FILE" | "REQUESTS_CA_BUNDLE" | "TZ");
    std::env::vars().filter(|(name, _)| wanted(name)).collect()
}

fn log_file(logs: &Path, container: &str, attempt: u32) -> PathBuf {
    logs.join(container).join(format!("{}.log", attempt - 1))
}

fn loopback(port: u16) -> SocketAddr {
    (Ipv4Addr::LOCALHOST, port).into()
}

/// This driver's clock.
pub(super) fn now() -> Time {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    Time(since.as_millis() as i64)
}
