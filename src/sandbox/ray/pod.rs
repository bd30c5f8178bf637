//! From a Pod to what is started: command lines unchanged, environments steered, files, probes.
//! Must not know when anything is started, or what became of it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::order::{Mount, Order, Root};
use super::ports::{PodPorts, RayNode, SERVE, command_line};
use super::probe::{self, Probe};
use super::{Isolation, text, volumes};

/// A pod that is to be started, with all that it refers to.
#[derive(Clone, Debug, Default)]
pub struct PodStart {
    /// Which cluster (the hub or a member), by its name.
    pub cluster: String,
    /// The Pod as the API server has it.
    pub pod: Value,
    /// ConfigMaps of its namespace, by name: those that [`needs`] names and that exist.
    pub config_maps: BTreeMap<String, Value>,
    /// Secrets of its namespace, by name, in the same way.
    pub secrets: BTreeMap<String, Value>,
    /// The address that its status shows. Nothing listens there.
    pub ip: String,
    /// The node's address.
    pub host_ip: String,
}

/// Why a pod was not started.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// Wait for it and start again.
    #[error("{kind} {name} not found")]
    Missing {
        /// ConfigMap or Secret.
        kind: &'static str,
        /// Its name.
        name: String,
    },
    /// The sandbox cannot do it.
    #[error("{0}")]
    Unsupported(String),
    /// This machine cannot do it.
    #[error("a volume at {path} needs a mount namespace, which this machine does not allow ({why})")]
    NoNamespaces {
        /// Where the volume should be.
        path: String,
        /// What the machine said.
        why: String,
    },
    /// A volume would hide what every pod needs.
    #[error("a volume at {path} would hide {hidden}, which the sandbox's pods run from")]
    Hides {
        /// Where the volume should be.
        path: String,
        /// What would be hidden.
        hidden: String,
    },
    /// All ports are taken.
    #[error("no free port between 20000 and 32767 on 127.0.0.1")]
    NoPorts,
    /// The disk or the like.
    #[error("{0}")]
    Io(String),
}

impl Refusal {
    /// The reason that a kubelet gives, and whether it tries again.
    pub fn reason(&self) -> (&'static str, bool) {
        match self {
            Refusal::Missing { .. } => ("CreateContainerConfigError", true),
            Refusal::NoPorts | Refusal::Io(_) => ("CreateContainerError", true),
            Refusal::Unsupported(_) | Refusal::NoNamespaces { .. } | Refusal::Hides { .. } => {
                ("CreateContainerError", false)
            }
        }
    }
}

/// Names of the ConfigMaps and of the Secrets that a pod refers to.
pub fn needs(pod: &Value) -> (BTreeSet<String>, BTreeSet<String>) {
    let (mut maps, mut secrets) = (BTreeSet::new(), BTreeSet::new());
    let mut note = |kind: &str, name: &Value| {
        if let Some(name) = name.as_str() {
            if kind == "configMap" {
                maps.insert(name.to_owned())
            } else {
                secrets.insert(name.to_owned())
            };
        }
    };
    for container in containers(pod).map(|(c, _)| c) {
        for source in container["envFrom"].as_array().into_iter().flatten() {
            note("configMap", &source["configMapRef"]["name"]);
            note("secret", &source["secretRef"]["name"]);
        }
        for from in container["env"].as_array().into_iter().flatten().map(|e| &e["valueFrom"]) {
            note("configMap", &from["configMapKeyRef"]["name"]);
            note("secret", &from["secretKeyRef"]["name"]);
        }
    }
    for volume in pod["spec"]["volumes"].as_array().into_iter().flatten() {
        let projected = volume["projected"]["sources"].as_array().into_iter().flatten();
        note("secret", &volume["secret"]["secretName"]);
        for source in projected.chain([volume]) {
            note("configMap", &source["configMap"]["name"]);
            note("secret", &source["secret"]["name"]);
        }
    }
    (maps, secrets)
}

/// Init containers, then containers; true for the former.
pub fn containers(pod: &Value) -> impl Iterator<Item = (&Value, bool)> {
    let list = |key: &str| pod["spec"][key].as_array().into_iter().flatten();
    list("initContainers").map(|c| (c, true)).chain(list("containers").map(|c| (c, false)))
}

impl PodStart {
    /// A field of the downward API.
    pub fn field(&self, path: &str) -> Option<String> {
        let meta = &self.pod["metadata"];
        let spec = &self.pod["spec"];
        let keyed = |map: &str| {
            let key = path.strip_prefix(&format!("metadata.{map}['"))?.strip_suffix("']")?;
            Some(text(&meta[map][key]).to_owned())
        };
        let all = |map: &str| {
            let lines: Vec<String> = super::strings(&meta[map]).iter().map(|(k, v)| format!("{k}={v:?}\n")).collect();
            lines.concat()
        };
        match path {
            "metadata.name" | "metadata.namespace" | "metadata.uid" => Some(text(&meta[&path[9..]]).to_owned()),
            "metadata.labels" | "metadata.annotations" => Some(all(&path[9..])),
            "spec.nodeName" => Some(text(&spec["nodeName"]).to_owned()),
            "spec.serviceAccountName" => Some(spec["serviceAccountName"].as_str().unwrap_or("default").to_owned()),
            "status.podIP" | "status.podIPs" => Some(self.ip.clone()),
            "status.hostIP" | "status.hostIPs" => Some(self.host_ip.clone()),
            _ => keyed("labels").or_else(|| keyed("annotations")),
        }
    }
}

/// What all pods of a sandbox share.
#[derive(Clone, Debug)]
pub struct Machine {
    /// The virtual environment with Ray.
    pub venv: PathBuf,
    /// The folder that stands first on `PYTHONPATH`.
    pub python: PathBuf,
    /// Whether volumes can be mounted.
    pub isolation: Isolation,
    /// Variables of the sandbox's own environment that pods get too: how pip reaches its registry.
    pub passed_on: BTreeMap<String, String>,
    /// Upper bound of each node's object store, in bytes.
    pub object_store_bytes: u64,
    /// Whether workers forward what their tasks print to the job's log (20 to 50 MiB a worker).
    pub log_monitor: bool,
}

/// Directories of one pod.
#[derive(Clone, Debug)]
pub struct PodDirs {
    /// Its `TMPDIR`; Ray's folder is `ray` in it.
    pub temp: PathBuf,
    /// Its volumes.
    pub volumes: PathBuf,
    /// Its `HOME`.
    pub home: PathBuf,
    /// An empty one to build the container's root on.
    pub root: PathBuf,
    /// The names of its cluster.
    pub names: PathBuf,
}

/// One container, ready to be started again and again.
#[derive(Clone, Debug)]
pub struct ContainerPlan {
    /// Its name.
    pub name: String,
    /// Whether it runs before the others.
    pub init: bool,
    /// What is started; log and failure file are set for each start.
    pub order: Order,
    /// Whether it is the pod's Ray node.
    pub ray_node: bool,
    /// `<name>:<port>` that it only waits for.
    pub waits_for: Option<String>,
    /// Asked first.
    pub startup: Option<Probe>,
    /// Whether Services lead to it.
    pub readiness: Option<Probe>,
    /// Whether it has to be started again.
    pub liveness: Option<Probe>,
}

/// The containers of a pod in the order of their start.
pub fn plan(
    start: &PodStart,
    machine: &Machine,
    dirs: &PodDirs,
    node: Option<&RayNode>,
    ports: &PodPorts,
) -> Result<Vec<ContainerPlan>, Refusal> {
    let written = volumes::write(start, &dirs.volumes, &dirs.temp.join("ray"))?;
    containers(&start.pod)
        .map(|(container, init)| {
            if init && container["restartPolicy"] == "Always" {
                let name = text(&container["name"]);
                let message = format!("init container {name}: restartPolicy Always is not supported in the sandbox");
                return Err(Refusal::Unsupported(message));
            }
            let own = environment(start, container)?;
            let command = command(container, &own)?;
            let mounts = volumes::mounts(container, &written, &own, machine.isolation.allowed())?;
            let root = root(machine, dirs, mounts)?;
            let ray_node = !init && node.is_some_and(|n| n.container == text(&container["name"]));
            let home =
                if root.as_ref().is_some_and(shows_home) { PathBuf::from(IMAGE_HOME) } else { dirs.home.clone() };
            let env = steered(start, machine, dirs, node, ports, own, &home);
            let cwd = container["workingDir"].as_str().map_or(home, PathBuf::from);
            let probe = |key| probe::of(container, key, ports);
            Ok(ContainerPlan {
                name: text(&container["name"]).to_owned(),
                init,
                waits_for: if init { waited_for(container, &env) } else { None },
                order: Order { argv: command, env, cwd, root, log: PathBuf::new(), failure: PathBuf::new() },
                ray_node,
                startup: probe("startupProbe"),
                readiness: probe("readinessProbe"),
                liveness: probe("livenessProbe"),
            })
        })
        .collect()
}

/// The container's own variables: `envFrom`, then `env`, the last of a name wins.
fn environment(start: &PodStart, container: &Value) -> Result<BTreeMap<String, String>, Refusal> {
    let mut env = BTreeMap::new();
    for source in container["envFrom"].as_array().into_iter().flatten() {
        let (kind, from) = match source.get("secretRef") {
            Some(from) => ("Secret", from),
            None => ("ConfigMap", &source["configMapRef"]),
        };
        let Some(data) = referred(start, kind, from)? else { continue };
        let prefix = text(&source["prefix"]);
        env.extend(data.into_iter().map(|(k, v)| (format!("{prefix}{k}"), String::from_utf8_lossy(&v).into_owned())));
    }
    for entry in container["env"].as_array().into_iter().flatten() {
        let value = match entry.get("valueFrom") {
            Some(from) => from_source(start, from)?,
            None => Some(expand(text(&entry["value"]), &env)),
        };
        if let Some(value) = value {
            env.insert(text(&entry["name"]).to_owned(), value);
        }
    }
    Ok(env)
}

fn from_source(start: &PodStart, from: &Value) -> Result<Option<String>, Refusal> {
    if let Some(path) = from["fieldRef"]["fieldPath"].as_str() {
        let value = start.field(path);
        return value
            .map(Some)
            .ok_or_else(|| Refusal::Unsupported(format!("fieldRef {path} is not supported in the sandbox")));
    }
    let (kind, from) = match (from.get("secretKeyRef"), from.get("configMapKeyRef")) {
        (Some(from), _) => ("Secret", from),
        (None, Some(from)) => ("ConfigMap", from),
        (None, None) => return Err(Refusal::Unsupported("resourceFieldRef is not supported in the sandbox".into())),
    };
    let Some(data) = referred(start, kind, from)? else { return Ok(None) };
    let key = text(&from["key"]);
    match data.get(key) {
        Some(value) => Ok(Some(String::from_utf8_lossy(value).into_owned())),
        None if from["optional"] == true => Ok(None),
        None => Err(Refusal::Missing { kind, name: format!("{} (key {key})", text(&from["name"])) }),
    }
}

fn referred(start: &PodStart, kind: &'static str, from: &Value) -> Result<Option<BTreeMap<String, Vec<u8>>>, Refusal> {
    let objects = if kind == "Secret" { &start.secrets } else { &start.config_maps };
    match objects.get(text(&from["name"])) {
        Some(object) => Ok(Some(volumes::object_data(object))),
        None if from["optional"] == true => Ok(None),
        None => Err(Refusal::Missing { kind, name: text(&from["name"]).to_owned() }),
    }
}

/// `$(NAME)` for the variables that there are; `$$` is a dollar sign. What is not known stays as it is.
pub fn expand(text: &str, env: &BTreeMap<String, String>) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some(at) = rest.find('$') {
        out.push_str(&rest[..at]);
        rest = &rest[at + 1..];
        let variable = rest.strip_prefix('(').and_then(|r| r.split_once(')'));
        match variable {
            _ if rest.starts_with('$') => {
                out.push('$');
                rest = &rest[1..];
            }
            Some((name, after)) if env.contains_key(name) => {
                out.push_str(&env[name]);
                rest = after;
            }
            _ => out.push('$'),
        }
    }
    out + rest
}

/// The words of the command line, as the manifest has them: there is no image to supply any.
fn command(container: &Value, env: &BTreeMap<String, String>) -> Result<Vec<String>, Refusal> {
    let words = |key: &str| container[key].as_array().into_iter().flatten().map(|w| expand(text(w), env));
    if words("command").next().is_none() {
        let name = text(&container["name"]);
        let message =
            format!("container {name} has no command: the sandbox runs no images, so it has no entry point to start");
        return Err(Refusal::Unsupported(message));
    }
    Ok(words("command").chain(words("args")).collect())
}

/// The home of Ray's images, where people's scripts expect to be.
const IMAGE_HOME: &str = "/home/ray";

fn shows_home(root: &Root) -> bool {
    root.mounts.iter().any(|m| m.target == Path::new(IMAGE_HOME))
}

/// The container's files: with its volumes, and with its home where images have it.
fn root(machine: &Machine, dirs: &PodDirs, mut mounts: Vec<Mount>) -> Result<Option<Root>, Refusal> {
    let user = match &machine.isolation {
        Isolation::None { why } => {
            return match mounts.first() {
                None => Ok(None),
                Some(m) => Err(Refusal::NoNamespaces { path: m.target.display().to_string(), why: why.clone() }),
            };
        }
        Isolation::Mounts => false,
        Isolation::UserAndMounts => true,
    };
    let mut kept = vec![machine.venv.as_path(), &machine.python, &dirs.temp];
    // What the environment's interpreter is a link to.
    let interpreter = std::fs::canonicalize(machine.venv.join("bin/python")).unwrap_or_default();
    kept.push(&interpreter);
    let hidden = |target: &Path| kept.iter().find(|k| k.starts_with(target));
    for mount in &mounts {
        if !mount.target.is_absolute() {
            return Err(Refusal::Unsupported(format!("mountPath {} is not absolute", mount.target.display())));
        }
        if let Some(hidden) = hidden(&mount.target) {
            let path = mount.target.display().to_string();
            return Err(Refusal::Hides { path, hidden: hidden.display().to_string() });
        }
    }
    let home = Path::new(IMAGE_HOME);
    if hidden(home).is_none() && !mounts.iter().any(|m| m.target == home) {
        mounts.push(Mount { source: dirs.home.clone(), target: home.into(), read_only: false });
    }
    Ok(Some(Root { at: dirs.root.clone(), user, mounts }))
}

/// The whole environment of a container: the machine's few, the pod's own, and what keeps Ray on loopback.
fn steered(
    start: &PodStart,
    machine: &Machine,
    dirs: &PodDirs,
    node: Option<&RayNode>,
    ports: &PodPorts,
    own: BTreeMap<String, String>,
    home: &Path,
) -> BTreeMap<String, String> {
    let show = |path: &Path| path.display().to_string();
    let mut env = machine.passed_on.clone();
    let mut set = |name: &str, value: String| env.insert(name.to_owned(), value);
    set("HOME", show(home));
    set("LANG", "C.UTF-8".into());
    set("HOSTNAME", text(&start.pod["metadata"]["name"]).to_owned());
    // Ray's own token mode follows a token lying about in the home of the user.
    set("RAY_AUTH_MODE", "disabled".into());
    // A dead node is seen in seconds, also on a machine that is slow to answer; a worker without head gives up soon.
    for (name, value) in [
        ("RAY_health_check_initial_delay_ms", "5000"),
        ("RAY_health_check_period_ms", "1000"),
        ("RAY_health_check_failure_threshold", "5"),
        ("RAY_gcs_rpc_server_reconnect_timeout_s", "20"),
        ("RAY_GRACEFUL_SHUTDOWN_DRAIN_TIMEOUT_S", "2"),
    ] {
        set(name, value.into());
    }
    env.extend(own);

    let before = |first: String, name: &str, sep: &str| match env.get(name) {
        Some(rest) if !rest.is_empty() => format!("{first}{sep}{rest}"),
        _ => first,
    };
    let system = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
    let path = format!("{}:{system}", before(show(&machine.venv.join("bin")), "PATH", ":"));
    let python = before(show(&machine.python), "PYTHONPATH", ":");
    let real = |port: u16| ports.real.get(&port).map(u16::to_string);
    let mut set = |name: &str, value: String| env.insert(name.to_owned(), value);
    set("PATH", path);
    set("PYTHONPATH", python);
    set("VIRTUAL_ENV", show(&machine.venv));
    set("TMPDIR", show(&dirs.temp));
    set("RAY_TMPDIR", show(&dirs.temp));
    set("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "0".into());
    set("RAY_USAGE_STATS_ENABLED", "0".into());
    set("RAYFLEET_NAMES", show(&dirs.names));
    set("RAYFLEET_NAMESPACE", text(&start.pod["metadata"]["namespace"]).to_owned());
    let local: BTreeMap<String, u16> = ports.real.iter().map(|(pod, real)| (pod.to_string(), *real)).collect();
    set("RAYFLEET_PORTS", json!(local).to_string());
    if let Some(node) = node {
        set("RAY_START_HOOK", "rayfleet_node.hook".into());
        set("RAYFLEET_NODE", params(start, machine, dirs, node, ports).to_string());
        for (name, port) in [("RAYFLEET_SERVE_HTTP", SERVE.0), ("RAYFLEET_SERVE_GRPC", SERVE.1)] {
            set(name, real(port).unwrap_or_default());
        }
        for (name, port) in ["AUTOSCALER_METRIC_PORT", "DASHBOARD_METRIC_PORT"].iter().zip(&ports.spare) {
            set(name, port.to_string());
        }
    }
    env
}

/// Fields of Ray's own parameters that this node must have. 0: the system chooses; null: none.
fn params(start: &PodStart, machine: &Machine, dirs: &PodDirs, node: &RayNode, ports: &PodPorts) -> Value {
    let real = |port: u16| json!(ports.real.get(&port));
    let store = node.object_store_bytes.unwrap_or(u64::MAX).min(machine.object_store_bytes);
    let mut params = json!({
        "node_name": start.pod["metadata"]["name"],
        "temp_dir": dirs.temp.join("ray"),
        "dashboard_agent_listen_port": real(node.agent),
        "metrics_export_port": real(node.metrics),
        "metrics_agent_port": 0, "runtime_env_agent_port": 0, "object_manager_port": 0, "node_manager_port": 0,
        "min_worker_port": 0, "max_worker_port": 0, "worker_port_list": null,
        "ray_client_server_port": null,
        "object_store_memory": store,
        "plasma_directory": null,
        "object_spilling_directory": null,
    });
    if node.head {
        params["gcs_server_port"] = real(node.gcs);
        params["dashboard_port"] = real(node.dashboard);
        params["no_monitor"] = json!(true);
    } else if !machine.log_monitor {
        params["include_log_monitor"] = json!(false);
    }
    params
}

/// `<name>:<port>` of a container that only runs `ray health-check` until it answers. Each of its attempts costs seconds
/// of a core, so it is started when there is somebody to answer.
fn waited_for(container: &Value, env: &BTreeMap<String, String>) -> Option<String> {
    let line = expand(&command_line(container), env);
    let check = &line[line.find("ray health-check")?..];
    let mut words = check.split_whitespace().skip_while(|w| *w != "--address");
    let address = words.nth(1)?.trim_end_matches([';', ')', '"']);
    let shell = |text: &str| text.strip_prefix("${").and_then(|t| t.strip_suffix('}')).map(str::to_owned);
    let known: Vec<String> = address
        .split(':')
        .map(|part| match shell(part).or_else(|| part.strip_prefix('$').map(str::to_owned)) {
            Some(name) => env.get(&name).cloned(),
            None => Some(part.to_owned()),
        })
        .collect::<Option<_>>()?;
    Some(known.join(":"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_expand_as_in_kubernetes() {
        let env = BTreeMap::from([("A".to_owned(), "1".to_owned())]);
        assert_eq!(expand("x$(A)y $(B) $$(A) $HOME $", &env), "x1y $(B) $(A) $HOME $");
    }

    #[test]
    fn a_waiting_init_container_is_known_by_its_health_check() {
        let script = "until ray health-check --address ${FQ_RAY_IP}:6379 > /dev/null 2>&1; do sleep 5; done";
        let container = json!({"command": ["/bin/bash", "-c", "--"], "args": [script]});
        let env = BTreeMap::from([("FQ_RAY_IP".to_owned(), "head.ns.svc.cluster.local".to_owned())]);
        assert_eq!(waited_for(&container, &env).as_deref(), Some("head.ns.svc.cluster.local:6379"));
        assert_eq!(waited_for(&json!({"command": ["sleep", "1"]}), &env), None);
    }

    #[test]
    fn what_a_pod_refers_to_is_listed() {
        let pod = json!({"spec": {"containers": [{"env": [{"name": "T", "valueFrom": {"secretKeyRef": {"name": "tok", "key": "k"}}}],
            "envFrom": [{"configMapRef": {"name": "settings"}}]}],
            "volumes": [{"name": "code", "configMap": {"name": "script"}}, {"name": "p", "projected": {"sources": [{"secret": {"name": "s"}}]}}]}});
        let (maps, secrets) = needs(&pod);
        assert_eq!(maps.into_iter().collect::<Vec<_>>(), ["script", "settings"]);
        assert_eq!(secrets.into_iter().collect::<Vec<_>>(), ["s", "tok"]);
    }
}
