//! Real Ray behind pods that are written as KubeRay writes them. Needs the environment of `make ray` (or the one that
//! RAYFLEET_RAY names); without it each test says so in a line and ends.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "a test says what it sees, and fails by panicking"
)]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rayfleet::api::Uid;
use rayfleet::sandbox::apiserver::LogCall;
use rayfleet::sandbox::ray::install;
use rayfleet::sandbox::ray::nodes::{RealPods, Settings, Told};
use rayfleet::sandbox::ray::pod::{PodStart, Refusal};
use rayfleet::sandbox::world::container::{Change, Order};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::Mutex;
use tokio::sync::mpsc::UnboundedReceiver;

/// Two cores start one Ray at a time.
static ONE_AT_A_TIME: Mutex<()> = Mutex::const_new(());
const PATIENCE: Duration = Duration::from_mins(3);
const FQDN: &str = "train-head-svc.ml.svc.cluster.local";

fn venv() -> Option<PathBuf> {
    let venv = std::env::var_os("RAYFLEET_RAY")
        .map_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join(".venv"), PathBuf::from);
    match install::find(&venv) {
        Ok(venv) => Some(venv),
        Err(why) => {
            kit::skipped::note(&why.to_string());
            None
        }
    }
}

fn settings(venv: PathBuf, workdir: &Path) -> Settings {
    Settings { runner: env!("CARGO_BIN_EXE_rayfleet").into(), ..Settings::new(venv, workdir) }
}

fn named(name: &str, labels: Value, spec: Value) -> Value {
    let meta = json!({"name": name, "namespace": "ml", "uid": format!("uid-{name}"), "labels": labels});
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec})
}

/// Fields that KubeRay gives head and workers alike.
fn ray_container(name: &str, start: &str, mut env: Vec<Value>) -> Value {
    let field = |name: &str, path: &str| json!({"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}});
    env.extend([
        field("RAY_CLUSTER_NAME", "metadata.labels['ray.io/cluster']"),
        field("RAY_CLUSTER_NAMESPACE", "metadata.namespace"),
        field("RAY_CLOUD_INSTANCE_ID", "metadata.name"),
        field("RAY_NODE_TYPE_NAME", "metadata.labels['ray.io/group']"),
        json!({"name": "KUBERAY_GEN_RAY_START_CMD", "value": start}),
        json!({"name": "RAY_PORT", "value": "6379"}),
        json!({"name": "RAY_USAGE_STATS_KUBERAY_IN_USE", "value": "1"}),
        json!({"name": "RAY_DASHBOARD_ENABLE_K8S_DISK_USAGE", "value": "1"}),
    ]);
    let probe = |delay: u32, failures: u32| {
        json!({"httpGet": {"path": "/api/healthz", "port": 52365}, "initialDelaySeconds": delay, "timeoutSeconds": 5,
               "periodSeconds": 5, "successThreshold": 1, "failureThreshold": failures})
    };
    json!({
        "name": name, "image": "rayproject/ray:2.60.0",
        "command": ["/bin/bash", "-c", "--"],
        "args": [format!("ulimit -n ${{RAY_START_ULIMIT_OPEN_FILES:-65536}}; {start}")],
        "env": env,
        "ports": [{"name": "metrics", "containerPort": 8080}],
        "livenessProbe": probe(30, 120), "readinessProbe": probe(2, 10),
        "volumeMounts": [{"name": "shared-mem", "mountPath": "/dev/shm"}, {"name": "ray-logs", "mountPath": "/tmp/ray"},
                         {"name": "code", "mountPath": "/home/ray/samples"}],
    })
}

fn volumes() -> Value {
    json!([{"name": "shared-mem", "emptyDir": {"medium": "Memory"}}, {"name": "ray-logs", "emptyDir": {}},
           {"name": "code", "configMap": {"name": "code", "items": [{"key": "script", "path": "job.py"}]}}])
}

fn head() -> Value {
    let start = "ray start --head  --block  --dashboard-agent-listen-port=52365  --dashboard-host=0.0.0.0  \
                 --memory=2147483648  --metrics-export-port=8080  --num-cpus=0 ";
    let container = ray_container("ray-head", start, vec![json!({"name": "RAY_ADDRESS", "value": "127.0.0.1:6379"})]);
    let labels = json!({"ray.io/cluster": "train", "ray.io/node-type": "head", "ray.io/group": "headgroup"});
    named("train-head", labels, json!({"containers": [container], "volumes": volumes()}))
}

fn without_code(mut pod: Value) -> Value {
    let container = &mut pod["spec"]["containers"][0];
    container["volumeMounts"].as_array_mut().unwrap().retain(|m| m["name"] != "code");
    pod
}

fn worker() -> Value {
    let start = format!(
        "ray start  --address={FQDN}:6379  --block  --dashboard-agent-listen-port=52365  --memory=1073741824  \
         --metrics-export-port=8080  --num-cpus=1 "
    );
    let names = vec![json!({"name": "FQ_RAY_IP", "value": FQDN}), json!({"name": "RAY_IP", "value": "train-head-svc"})];
    let mut env = names.clone();
    env.push(json!({"name": "RAY_ADDRESS", "value": format!("{FQDN}:6379")}));
    let container = ray_container("ray-worker", &start, env);
    let script =
        format!("until ray health-check --address {FQDN}:6379 > /dev/null 2>&1; do sleep 5; done; echo head answers");
    let wait = json!({"name": "wait-gcs-ready", "command": ["/bin/bash", "-c", "--"], "args": [script], "env": names});
    let labels = json!({"ray.io/cluster": "train", "ray.io/node-type": "worker", "ray.io/group": "small"});
    named("train-worker", labels, json!({"initContainers": [wait], "containers": [container], "volumes": volumes()}))
}

fn submitter() -> Value {
    let address = format!("http://{FQDN}:8265");
    let probe = format!(
        "python -c \"import urllib.request,sys; r=urllib.request.urlopen('{address}/api/gcs_healthz', timeout=10); \
         sys.exit(0 if b'success' in r.read() else 1)\""
    );
    let script = format!(
        "until {probe} >/dev/null 2>&1 ; do echo \"waiting for {address}\" ; sleep 2 ; done ; \
         if ! ray job status --address {address} train-1 >/dev/null 2>&1 ; then \
         ray job submit --address {address} --no-wait --submission-id train-1 -- python /home/ray/samples/job.py ; \
         fi ; ray job logs --address {address} --follow train-1"
    );
    let container = json!({"name": "ray-job-submitter", "command": ["/bin/bash", "-ce", "--"], "args": [script],
        "env": [{"name": "PYTHONUNBUFFERED", "value": "1"}, {"name": "RAY_DASHBOARD_ADDRESS", "value": address},
                {"name": "RAY_JOB_SUBMISSION_ID", "value": "train-1"}]});
    named("train-submit", json!({}), json!({"restartPolicy": "Never", "containers": [container]}))
}

fn head_service() -> Value {
    json!({"metadata": {"namespace": "ml", "name": "train-head-svc"},
        "spec": {"clusterIP": "None", "selector": {"ray.io/cluster": "train", "ray.io/node-type": "head"},
            "ports": [{"name": "gcs-server", "port": 6379, "targetPort": 6379}, {"name": "dashboard", "port": 8265, "targetPort": 8265}]}})
}

const SCRIPT: &str = r#"
import os, ray
ray.init()

@ray.remote(num_cpus=1)
def where():
    print("task speaks")
    return os.environ["RAY_CLOUD_INSTANCE_ID"]

print("ran on", ray.get(where.remote()), "as", open("/home/ray/samples/job.py").readline().strip() or "mounted")
"#;

fn start(cluster: &str, pod: Value) -> PodStart {
    let code = json!({"kind": "ConfigMap", "data": {"script": SCRIPT}});
    PodStart { cluster: cluster.into(), pod, config_maps: [("code".to_owned(), code)].into(), ..PodStart::default() }
}

/// Waits for an event; those before it are kept in order.
async fn until(
    events: &mut UnboundedReceiver<Told>,
    seen: &mut Vec<Told>,
    what: &str,
    wanted: impl Fn(&Told) -> bool,
) -> Told {
    if let Some(event) = seen.iter().find(|e| wanted(e)) {
        return event.clone();
    }
    let wait = async {
        loop {
            let event = events.recv().await.expect("the sandbox holds the other end");
            println!("  {:?} {} {}: {:?}", event.event.at, event.cluster, event.pod, event.event.change);
            seen.push(event.clone());
            if wanted(&event) {
                return event;
            }
        }
    };
    tokio::time::timeout(PATIENCE, wait).await.unwrap_or_else(|_| panic!("not within {PATIENCE:?}: {what}"))
}

async fn get(address: std::net::SocketAddr, path: &str) -> Value {
    let mut stream = tokio::net::TcpStream::connect(address).await.unwrap();
    let request = format!("GET {path} HTTP/1.0\r\nHost: localhost\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    let (_, body) = answer.split_once("\r\n\r\n").unwrap();
    serde_json::from_str(body).unwrap_or_else(|e| panic!("{e}: {answer}"))
}

/// Processes with their start times, which no other process of the same number has.
fn below(of: u32) -> BTreeMap<u32, String> {
    let mut parents = BTreeMap::new();
    for pid in fs::read_dir("/proc").unwrap().filter_map(|e| e.ok()?.file_name().to_str()?.parse::<u32>().ok()) {
        if let Some((parent, born)) = stat(pid) {
            parents.insert(pid, (parent, born));
        }
    }
    let mut found = BTreeMap::new();
    let mut front = BTreeSet::from([of]);
    while !front.is_empty() {
        let next: BTreeMap<u32, String> =
            parents.iter().filter(|(_, (p, _))| front.contains(p)).map(|(pid, (_, b))| (*pid, b.clone())).collect();
        front = next.keys().copied().collect();
        found.extend(next);
    }
    found
}

fn stat(pid: u32) -> Option<(u32, String)> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    // A zombie waits only for its parent to look.
    (fields[0] != "Z").then(|| (fields[1].parse().expect("a pid"), fields[19].to_owned()))
}

fn alive(processes: &BTreeMap<u32, String>) -> Vec<String> {
    let same = |(pid, born): &(&u32, &String)| stat(**pid).is_some_and(|(_, b)| b == **born);
    let name = |pid: &u32| fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default().replace('\0', " ");
    processes.iter().filter(same).map(|(pid, _)| format!("{pid} {}", name(pid))).collect()
}

#[expect(clippy::disallowed_methods, reason = "the kernel tells nobody but the parent that a process has ended")]
fn all_gone(processes: &BTreeMap<u32, String>, within: Duration) {
    let end = Instant::now() + within;
    while !alive(processes).is_empty() {
        assert!(Instant::now() < end, "still there: {:#?}", alive(processes));
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Listening sockets of these processes that others on the network could reach.
fn exposed(processes: &BTreeMap<u32, String>) -> Vec<String> {
    let mut own = BTreeMap::new();
    for pid in processes.keys() {
        for fd in fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().filter_map(Result::ok) {
            if let Ok(to) = fs::read_link(fd.path()) {
                own.insert(to.display().to_string(), *pid);
            }
        }
    }
    let loopback = ["0100007F", "0000000000000000FFFF00000100007F", "00000000000000000000000001000000"];
    let tables = ["/proc/net/tcp", "/proc/net/tcp6"].map(|t| fs::read_to_string(t).unwrap_or_default());
    let lines = tables.iter().flat_map(|t| t.lines().skip(1)).map(|l| l.split_whitespace().collect::<Vec<_>>());
    lines
        .filter(|f| f[3] == "0A" && !loopback.contains(&f[1].split(':').next().expect("an address")))
        .filter_map(|f| Some(format!("{} of process {}", f[1], own.get(&format!("socket:[{}]", f[9]))?)))
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_runs_on_real_ray_and_nothing_is_left_when_its_pods_end() {
    let Some(venv) = venv() else { return };
    let _one = ONE_AT_A_TIME.lock().await;
    let workdir = tempfile::tempdir().unwrap();
    let (pods, mut events) = RealPods::open(settings(venv, workdir.path())).await.unwrap();
    println!("isolation: {:?}", pods.isolation());
    let mut seen = Vec::new();
    // The same names in two members, side by side.
    for member in ["eu", "us"] {
        pods.service_changed(member, &head_service());
    }
    if !pods.isolation().allowed() {
        kit::skipped::note(&format!("no mount namespaces here ({:?})", pods.isolation()));
        return;
    }
    pods.start(start("eu", head())).unwrap();
    pods.start(start("eu", worker())).unwrap();
    pods.start(start("us", head())).unwrap();

    let ready = |cluster: &'static str, pod: &'static str| {
        move |e: &Told| {
            e.cluster == cluster && e.pod == pod && matches!(e.event.change, Change::Ready { ready: true, .. })
        }
    };
    until(&mut events, &mut seen, "the worker is ready", ready("eu", "train-worker")).await;
    until(&mut events, &mut seen, "the other member's head is ready", ready("us", "train-head")).await;
    pods.start(start("eu", submitter())).unwrap();
    until(&mut events, &mut seen, "the submitter runs", |e| e.pod == "train-submit").await;
    let call = LogCall {
        namespace: "ml".into(),
        pod: "train-submit".into(),
        container: "ray-job-submitter".into(),
        follow: true,
        tail_lines: None,
        previous: false,
    };
    let mut following = pods.open_log("eu", &call).unwrap();
    let mut log = String::new();
    while let Some(piece) = following.recv().await {
        log += std::str::from_utf8(&piece).unwrap();
    }
    let done = until(&mut events, &mut seen, "the submitter has ended", |e| {
        e.pod == "train-submit" && matches!(e.event.change, Change::Terminated { .. })
    });
    let done = done.await;
    assert!(matches!(done.event.change, Change::Terminated { exit_code: 0, .. }), "{done:?}\n{log}");
    assert!(log.contains("ran on train-worker as mounted"), "{log}");
    assert!(log.contains("task speaks"), "{log}");

    let dashboard = pods.service_address("eu", "ml", "train-head-svc", "dashboard").unwrap();
    let job = get(dashboard, "/api/jobs/train-1").await;
    assert_eq!(job["status"], "SUCCEEDED", "{job}");
    let other = pods.service_address("us", "ml", "train-head-svc", "8265").unwrap();
    assert_eq!(get(other, "/api/jobs/").await, json!([]));

    // A worker that loses its main process ends as a whole, and joins again when it is started again.
    let lost = below(std::process::id()).into_keys().filter(|pid| {
        let line = fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default().replace('\0', " ");
        line.contains("ray start --address=")
    });
    for pid in lost {
        let killed = Command::new("kill").args(["-9", &pid.to_string()]).status().unwrap();
        assert!(killed.success());
    }
    seen.clear();
    until(&mut events, &mut seen, "the worker has ended", |e| {
        e.pod == "train-worker" && matches!(e.event.change, Change::Terminated { exit_code: 137, .. })
    })
    .await;
    pods.restart("eu", &Uid::from("uid-train-worker"), "ray-worker", Duration::ZERO);
    until(&mut events, &mut seen, "the worker is back", ready("eu", "train-worker")).await;
    // The dashboard learns of nodes some time after the probes do.
    let alive_nodes = async |wanted: usize| {
        let mut nodes = Value::Null;
        let joined = async {
            loop {
                nodes = get(dashboard, "/nodes?view=summary").await;
                let summary = nodes["data"]["summary"].as_array().into_iter().flatten();
                if summary.filter(|n| n["raylet"]["state"] == "ALIVE").count() == wanted {
                    return;
                }
                tokio::time::sleep(Duration::from_millis(200)).await;
            }
        };
        let joined = tokio::time::timeout(PATIENCE, joined).await;
        joined.unwrap_or_else(|_| panic!("not {wanted} nodes within {PATIENCE:?}: {nodes}"));
    };
    alive_nodes(2).await;

    let mine = below(std::process::id());
    assert!(mine.len() > 20, "{mine:?}");
    assert_eq!(exposed(&mine), Vec::<String>::new());
    let began = Instant::now();
    assert!(pods.stop("eu", &Uid::from("uid-train-worker"), Duration::from_secs(30)));
    until(&mut events, &mut seen, "the worker is gone", |e| e.pod == "train-worker" && e.event.change == Change::Gone)
        .await;
    println!("the worker was gone after {:?}", began.elapsed());
    assert_eq!(pods.log_path("eu", "ml", "train-worker", "ray-worker", false), None);
    pods.shutdown(Duration::from_secs(5)).await;
    all_gone(&mine, Duration::ZERO);
}

/// Not a test: the part of the next one that is killed.
#[tokio::test]
#[ignore = "started by another test, in a process of its own"]
async fn hold_a_sandbox() {
    let workdir = PathBuf::from(std::env::var_os("RAYFLEET_TEST_WORKDIR").expect("started by the other test"));
    // As on a machine that allows no namespaces: what KubeRay itself mounts must not need any.
    let settings = Settings { mounts: false, ..settings(venv().unwrap(), &workdir) };
    let (pods, mut events) = RealPods::open(settings).await.unwrap();
    pods.service_changed("eu", &head_service());
    assert!(
        matches!(pods.start(start("eu", head())), Err(Refusal::NoNamespaces { path, .. }) if path == "/home/ray/samples")
    );
    pods.start(start("eu", without_code(head()))).unwrap();
    let leaver =
        json!({"name": "leaver", "command": ["bash", "-c", "setsid sleep 1000 & setsid -f sleep 1000; sleep 1000"]});
    pods.start(start("eu", named("leaver", json!({}), json!({"containers": [leaver]})))).unwrap();
    let mut seen = Vec::new();
    until(&mut events, &mut seen, "the head is ready", |e| {
        e.pod == "train-head" && matches!(e.event.change, Change::Ready { ready: true, .. })
    })
    .await;
    println!("\nholding");
    std::future::pending::<()>().await;
}

#[test]
fn nothing_survives_a_sandbox_that_is_killed() {
    if venv().is_none() {
        return;
    }
    let _one = ONE_AT_A_TIME.blocking_lock();
    let workdir = tempfile::tempdir().unwrap();
    let mut holder = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "hold_a_sandbox", "--ignored", "--nocapture"])
        .env("RAYFLEET_TEST_WORKDIR", workdir.path())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(holder.stdout.take().unwrap()).lines().map_while(Result::ok);
    let up = lines.inspect(|l| println!("{l}")).any(|l| l == "holding");
    let all = below(holder.id());
    holder.kill().unwrap();
    holder.wait().unwrap();
    assert!(up, "the sandbox ended by itself");
    assert!(all.len() > 12, "{all:?}");
    all_gone(&all, Duration::from_secs(10));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_waits_for_its_config_map_restarts_by_order_and_keeps_its_logs() {
    let Some(venv) = venv() else { return };
    let workdir = tempfile::tempdir().unwrap();
    let (pods, mut events) = RealPods::open(settings(venv, workdir.path())).await.unwrap();
    let script =
        "echo $GREETING; cat /etc/greeting/text; test -f /shared/mark || { touch /shared/mark; exit 3; }; echo again";
    let pod = named(
        "small",
        json!({}),
        json!({"containers": [{"name": "c", "command": ["bash", "-c", script],
            "env": [{"name": "GREETING", "valueFrom": {"configMapKeyRef": {"name": "code", "key": "script"}}}],
            "volumeMounts": [{"name": "g", "mountPath": "/etc/greeting"}, {"name": "e", "mountPath": "/shared"}]}],
            "volumes": [{"name": "g", "configMap": {"name": "code", "items": [{"key": "script", "path": "text"}]}}, {"name": "e", "emptyDir": {}}]}),
    );
    let order = Order::Start { pod: Arc::new(pod), ip: "10.0.0.9".into(), host_ip: "10.0.0.1".into() };
    let mut seen = Vec::new();
    pods.obey("eu", &order, |_, _, _| None);
    let refused = until(&mut events, &mut seen, "a refusal", |_| true).await.event.change;
    let message = "ConfigMap code not found".to_owned();
    assert_eq!(refused, Change::Refused { reason: "CreateContainerConfigError".into(), message, again: true });
    pods.obey("eu", &order, |_, _, _| Some(json!({"data": {"script": "hello"}})));
    if !pods.isolation().allowed() {
        seen.clear();
        let refused = until(&mut events, &mut seen, "a refusal", |_| true).await.event.change;
        assert!(matches!(refused, Change::Refused { again: false, .. }), "{refused:?}");
        return;
    }
    let ended =
        |code: i32| move |e: &Told| matches!(e.event.change, Change::Terminated { exit_code, .. } if exit_code == code);
    until(&mut events, &mut seen, "the first end", ended(3)).await;
    pods.restart("eu", &Uid::from("uid-small"), "c", Duration::ZERO);
    until(&mut events, &mut seen, "the second end", ended(0)).await;
    let log = |previous| fs::read_to_string(pods.log_path("eu", "ml", "small", "c", previous).unwrap()).unwrap();
    assert_eq!((log(true).as_str(), log(false).as_str()), ("hello\nhello", "hello\nhelloagain\n"));
    assert!(!Path::new("/shared").exists() && !Path::new("/etc/greeting").exists());
    pods.shutdown(Duration::ZERO).await;
}
