//! The program as people run it: real processes on loopback, a sandbox with simulated pods behind them.
//! Asserts on what is printed, on exit codes, and on what the API shows; never on how it came about.

#[path = "command_line/leases.rs"]
mod leases;
#[path = "command_line/members.rs"]
mod members;
#[path = "command_line/people.rs"]
mod people;
#[path = "command_line/readers.rs"]
mod readers;
#[path = "command_line/usage.rs"]
mod usage;
#[path = "command_line/validate.rs"]
mod validate;

use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;
use tokio::process::{Child, Command};

/// Everything here is done long before, on a quiet machine.
const LIMIT: Duration = Duration::from_mins(2);

fn program() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_rayfleet"));
    for name in ["KUBECONFIG", "RUST_LOG", "RAYFLEET_RAY", "RAYFLEET_SEAT", "RAYFLEET_LISTEN", "HOME"] {
        command.env_remove(name);
    }
    command.stdin(Stdio::null()).kill_on_drop(true);
    command
}

async fn run(arguments: &[&str]) -> Output {
    let output = program().args(arguments).output();
    tokio::time::timeout(LIMIT, output).await.expect("the command ends").expect("the program starts")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// The one line that says why a command failed.
async fn error_of(arguments: &[&str]) -> String {
    let output = run(arguments).await;
    assert_eq!(output.status.code(), Some(1), "{arguments:?}: {}{}", text(&output.stdout), text(&output.stderr));
    text(&output.stderr)
}

/// A running sandbox in a folder of its own; ends with its test.
struct Sandbox {
    folder: tempfile::TempDir,
    kubeconfig: String,
    process: Child,
}

impl Sandbox {
    async fn start(more: &[&str]) -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let dir = folder.path().join("fleet");
        let log = std::fs::File::create(folder.path().join("log")).expect("a file in it");
        let process = program()
            .args(["sandbox", "--ray", "none", "--dir"])
            .arg(&dir)
            .args(more)
            .stdout(log.try_clone().expect("one more handle"))
            .stderr(log)
            .spawn()
            .expect("the program starts");
        let kubeconfig = dir.join("kubeconfig");
        let sandbox = Self { kubeconfig: kubeconfig.display().to_string(), folder, process };
        sandbox.until("the kubeconfig is written", async || kubeconfig.exists()).await;
        sandbox
    }

    fn file(&self, name: &str, content: &str) -> String {
        let path = self.folder.path().join(name);
        std::fs::write(&path, content).expect("a file in the folder");
        path.display().to_string()
    }

    async fn ask(&self, arguments: &[&str]) -> Output {
        let mut all = vec!["--kubeconfig", &self.kubeconfig, "--context", "hub"];
        all.extend(arguments);
        run(&all).await
    }

    async fn until(&self, what: &str, condition: impl AsyncFn() -> bool) {
        let begun = Instant::now();
        while !condition().await {
            let log = || std::fs::read_to_string(self.folder.path().join("log")).unwrap_or_default();
            assert!(begun.elapsed() < LIMIT, "waited {LIMIT:?} until {what}; the sandbox said: {}", log());
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    async fn members_are_ready(&self) {
        self.until("the members are ready and their capacity is known", async || {
            let list = text(&self.ask(&["member", "list"]).await.stdout);
            let members: Vec<Vec<&str>> = list.lines().skip(1).map(|l| l.split_whitespace().collect()).collect();
            // READY, and QUEUES, which come with the capacity.
            !members.is_empty()
                && members.iter().all(|m| m.get(1) == Some(&"True") && m.get(5).is_some_and(|q| *q != "-"))
        })
        .await;
    }

    async fn stop(mut self) {
        terminate(&mut self.process).await;
    }

    /// Address and token of an API server, from the kubeconfig.
    fn server(&self, context: &str) -> (String, String) {
        let text = std::fs::read_to_string(&self.kubeconfig).expect("the kubeconfig");
        let config: Value = serde_saphyr::from_str(&text).expect("a kubeconfig is YAML");
        let named = |list: &str| config[list].as_array().and_then(|l| l.iter().find(|e| e["name"] == context)).cloned();
        let word = |object: Option<Value>, path: &str| {
            object.as_ref().and_then(|o| o.pointer(path)).and_then(Value::as_str).unwrap_or_default().to_owned()
        };
        (word(named("clusters"), "/cluster/server"), word(named("users"), "/user/token"))
    }
}

/// A client of the sandbox's servers.
fn client() -> reqwest::Client {
    // An error means that another test has installed it.
    let _installed = rustls::crypto::ring::default_provider().install_default();
    reqwest::Client::builder().no_proxy().build().expect("a client")
}

async fn terminate(process: &mut Child) {
    let pid = process.id().and_then(|id| i32::try_from(id).ok()).expect("it runs");
    nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid), nix::sys::signal::Signal::SIGTERM).expect("it is ours");
    let status = tokio::time::timeout(LIMIT, process.wait()).await.expect("it ends when asked").expect("its status");
    assert_eq!(status.code(), Some(0));
}

const JOB: &str = "
apiVersion: v1
kind: ConfigMap
metadata: { name: code }
data: { job.py: print(1) }
---
apiVersion: ray.io/v1
kind: RayJob
metadata:
  name: train
  labels: { volcano.sh/queue-name: ml }
spec:
  entrypoint: python /code/job.py
  submissionMode: HTTPMode
  shutdownAfterJobFinishes: true
  rayClusterSpec:
    headGroupSpec:
      rayStartParams: {}
      template:
        spec:
          containers:
            - name: ray-head
              image: rayproject/ray:2.60.0
              resources: { requests: { cpu: CPUS, memory: 1Gi }, limits: { cpu: CPUS, memory: 1Gi } }
              volumeMounts: [{ name: code, mountPath: /code }]
          volumes: [{ name: code, configMap: { name: code } }]
";

#[tokio::test]
async fn a_submitted_job_is_followed_to_its_result_and_explained() {
    let sandbox = Sandbox::start(&["--members", "2"]).await;
    sandbox.members_are_ready().await;
    let job = sandbox.file("job.yaml", &JOB.replace("CPUS", "\"5\""));

    let forecast = sandbox.ask(&["explain", "-f", &job]).await;
    let forecast = text(&forecast.stdout);
    assert!(forecast.starts_with("train would go to us, queue ml\n"), "{forecast}");
    assert!(forecast.contains("MEMBER  VERDICT"), "{forecast}");
    let there = sandbox.ask(&["explain", "rayjob/train"]).await;
    assert!(text(&there.stderr).contains("RayJob default/train is not on the hub"), "a forecast creates nothing");

    let output = sandbox.ask(&["submit", "-f", &job, "--wait", "--timeout", "100"]).await;
    let said = text(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{said}{}", text(&output.stderr));
    assert!(said.starts_with("configmap/code created\nrayjob/train created\n"), "{said}");
    assert!(said.trim_end().lines().last().unwrap().starts_with("rayjob/train SUCCEEDED on us, after "), "{said}");
    assert!(!said.contains('\u{1b}'), "no colours in a pipe");

    let explained = text(&sandbox.ask(&["explain", "rayjob/train"]).await.stdout);
    assert!(explained.starts_with("train has ended on us, queue ml\n"), "{explained}");
    let output = sandbox.ask(&["explain", "rayjob/train", "-o", "json"]).await;
    let explained: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&explained[0]["stage"], &explained[0]["member"]), (&"Finished".into(), &"us".into()));

    let again = sandbox.ask(&["submit", "-f", &job]).await;
    assert_eq!(again.status.code(), Some(1));
    assert!(text(&again.stdout).contains("configmap/code unchanged"));
    assert!(text(&again.stderr).contains("RayJob default/train exists already: delete it first"));
    sandbox.stop().await;
}

#[tokio::test]
async fn a_job_that_fits_nowhere_waits_with_every_members_reason() {
    let sandbox = Sandbox::start(&["--members", "2"]).await;
    sandbox.members_are_ready().await;
    let job = sandbox.file("job.yaml", &JOB.replace("CPUS", "\"100\""));
    let output = sandbox.ask(&["submit", "-f", &job, "--wait", "--timeout", "4"]).await;
    assert_eq!(output.status.code(), Some(5), "{}", text(&output.stderr));
    assert!(text(&output.stdout).contains("rayjob/train  waits"), "{}", text(&output.stdout));
    let explained = text(&sandbox.ask(&["explain", "rayjob/train"]).await.stdout);
    for member in ["eu      NeverFits", "us      NeverFits"] {
        assert!(explained.contains(member), "{explained}");
    }
    let no_head =
        sandbox.file("bad.yaml", &JOB.replace("name: train", "name: bad").replace("headGroupSpec", "headGroup"));
    let output = sandbox.ask(&["submit", "-f", &no_head, "--wait", "--timeout", "60"]).await;
    assert!(matches!(output.status.code(), Some(1 | 3)), "{}{}", text(&output.stdout), text(&output.stderr));
    sandbox.stop().await;
}

#[tokio::test]
async fn bad_input_is_refused_where_it_stands() {
    let sandbox = Sandbox::start(&["--members", "1", "--no-controller"]).await;
    let hub = ["--kubeconfig", sandbox.kubeconfig.as_str()];
    let with = |more: &[&'static str]| [hub.as_slice(), more].concat();

    assert!(error_of(&["--kubeconfig", "/none", "member", "list"]).await.contains("/none cannot be read"));
    assert!(error_of(&["member", "list"]).await.contains("give --kubeconfig FILE or set KUBECONFIG"));
    assert!(
        error_of(&with(&["--context", "x", "member", "list"])).await.contains("no context 'x'; those that it has:")
    );
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let original = std::fs::read_to_string(&sandbox.kubeconfig).unwrap();
    let port =
        original.split("127.0.0.1:").nth(1).unwrap().chars().take_while(char::is_ascii_digit).collect::<String>();
    let gone = sandbox.file("gone.yaml", &original.replace(&port, &free.port().to_string()));
    let refused = error_of(&["--kubeconfig", &gone, "--context", "hub", "member", "list"]).await;
    assert!(refused.contains("refused") && refused.contains("gone.yaml"), "{refused}");

    let not_yaml = sandbox.file("not.yaml", "a: [");
    assert!(error_of(&[&hub[..], &["submit", "-f", &not_yaml]].concat()).await.contains("not.yaml is not YAML"));
    let other = sandbox.file("other.yaml", "{apiVersion: apps/v1, kind: Deployment, metadata: {name: a}}");
    let refused = error_of(&[&hub[..], &["submit", "-f", &other]].concat()).await;
    assert!(refused.contains("apps/v1 Deployment cannot be submitted; right are"), "{refused}");

    let with_exec = |line: &str| match line.split_once("token:") {
        Some((indent, _)) => format!("{indent}exec: {{ command: /bin/true }}"),
        None => line.to_owned(),
    };
    let exec = original.lines().map(with_exec).collect::<Vec<_>>().join("\n");
    let exec = sandbox.file("exec.yaml", &exec);
    let refused =
        error_of(&[&hub[..], &["member", "add", "x", "--from", &exec, "--from-context", "eu"]].concat()).await;
    assert!(refused.contains("exec is refused") && refused.contains("would run a program"), "{refused}");

    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let refused = error_of(&[&hub[..], &["run", "--listen", &address]].concat()).await;
    assert!(refused.contains(&address) && refused.contains("in use"), "{refused}");
    let port = taken.local_addr().unwrap().port().to_string();
    let dir = sandbox.folder.path().join("other").display().to_string();
    let refused = error_of(&["sandbox", "--ray", "none", "--dir", &dir, "--port", &port]).await;
    assert!(refused.contains("in use") && refused.contains("--port"), "{refused}");
    let refused = error_of(&["sandbox", "--ray", "/nonexistent", "--dir", &dir]).await;
    assert!(refused.contains("no Ray in /nonexistent") && refused.contains("--ray none"), "{refused}");
    sandbox.stop().await;
}

#[tokio::test]
async fn a_member_is_added_by_its_kubeconfig_and_becomes_ready() {
    let sandbox = Sandbox::start(&["--members", "1"]).await;
    let other = Sandbox::start(&["--members", "1", "--no-controller"]).await;
    let output = sandbox
        .ask(&["member", "add", "far", "--from", &other.kubeconfig, "--from-context", "eu", "--label", "zone=a"])
        .await;
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let said = text(&output.stdout);
    assert!(said.contains("secret/member-far created in rayfleet-system\nmembercluster/far created"), "{said}");
    sandbox.members_are_ready().await;
    let list = text(&sandbox.ask(&["member", "list"]).await.stdout);
    assert!(list.starts_with("NAME  READY  REACHABLE  VOLCANO"), "{list}");
    assert_eq!(list.lines().filter(|line| line.contains("True   True")).count(), 2, "{list}");
    other.stop().await;
    sandbox.stop().await;
}

#[tokio::test]
async fn members_that_hang_or_are_gone_do_not_hold_back_the_others() {
    let sandbox = Sandbox::start(&["--members", "1"]).await;
    sandbox.members_are_ready().await;
    // Takes connections in, never answers.
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let gone = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    for (name, address) in [("silent", silent.local_addr().unwrap()), ("gone", gone)] {
        let kubeconfig = format!(
            "{{current-context: m, clusters: [{{name: c, cluster: {{server: 'http://{address}'}}}}], \
             users: [{{name: u, user: {{token: t}}}}], contexts: [{{name: m, context: {{cluster: c, user: u}}}}]}}"
        );
        let file = sandbox.file(name, &kubeconfig);
        let output = sandbox.ask(&["member", "add", name, "--from", &file]).await;
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    }
    let job = sandbox.file("job.yaml", &JOB.replace("CPUS", "\"1\""));
    let output = sandbox.ask(&["submit", "-f", &job, "--wait", "--timeout", "100"]).await;
    assert_eq!(output.status.code(), Some(0), "{}{}", text(&output.stdout), text(&output.stderr));
    for (name, why) in [("silent", "no answer"), ("gone", "refused")] {
        sandbox
            .until(&format!("{name} is said to be unreachable"), async || {
                let list = text(&sandbox.ask(&["member", "list"]).await.stdout);
                let line = list.lines().find(|line| line.starts_with(name)).unwrap_or_default().to_owned();
                line.contains("False") && line.contains(why)
            })
            .await;
    }
    sandbox.stop().await;
}

/// A controller process of its own.
struct Controller {
    process: Child,
    log: PathBuf,
}

impl Controller {
    fn start(sandbox: &Sandbox, name: &str) -> Self {
        Self::start_at(sandbox, &sandbox.kubeconfig, name)
    }

    /// One whose kubeconfig is another than the sandbox's.
    fn start_at(sandbox: &Sandbox, kubeconfig: &str, name: &str) -> Self {
        let log = sandbox.folder.path().join(name);
        let file = std::fs::File::create(&log).expect("a file in the folder");
        let process = program()
            .args(["--kubeconfig", kubeconfig, "--context", "hub", "run", "--seat", "one", "--profile", "fast"])
            .args(["--listen", "127.0.0.1:0"])
            .stdout(Stdio::null())
            .stderr(file)
            .spawn()
            .expect("the program starts");
        Self { process, log }
    }

    /// Status and body of a page of it; 0 while it does not listen.
    async fn page(&self, path: &str) -> (u16, String) {
        let Some(address) = address(&self.log) else { return (0, String::new()) };
        let output = get(&address, path).await.unwrap_or_default();
        let status = output.split_whitespace().nth(1).and_then(|s| s.parse().ok()).unwrap_or(0);
        (status, output.split_once("\r\n\r\n").map_or(String::new(), |(_, body)| body.to_owned()))
    }
}

fn address(log: &Path) -> Option<String> {
    let text = std::fs::read_to_string(log).ok()?;
    let rest = text.split("address=").nth(1)?;
    Some(rest.split_whitespace().next()?.to_owned())
}

async fn get(address: &str, path: &str) -> std::io::Result<String> {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let mut socket = tokio::net::TcpStream::connect(address).await?;
    socket.write_all(format!("GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").as_bytes()).await?;
    let mut reply = String::new();
    socket.read_to_string(&mut reply).await?;
    Ok(reply)
}

#[tokio::test]
async fn a_second_process_of_one_seat_waits_until_the_first_has_ended() {
    let sandbox = Sandbox::start(&["--members", "1", "--no-controller"]).await;
    let mut first = Controller::start(&sandbox, "first");
    sandbox.until("the first is ready", async || first.page("/readyz").await.0 == 200).await;
    sandbox.members_are_ready().await;
    assert_eq!(first.page("/healthz").await.0, 200);
    sandbox
        .until("64 queue units and four of the member are held", async || {
            first.page("/metrics").await.1.contains("rayfleet_units_held 68")
        })
        .await;
    let (_, keys) = first.page("/debug/keys?cluster=hub").await;
    assert!(keys.contains("\"kind\":\"MemberCluster\""), "{keys}");

    let mut second = Controller::start(&sandbox, "second");
    sandbox.until("the second listens", async || second.page("/healthz").await.0 == 200).await;
    sandbox
        .until("the second says what is missing", async || {
            let (status, body) = second.page("/readyz").await;
            status == 503 && body == "its seat is not held\n"
        })
        .await;
    assert_eq!(first.page("/readyz").await.0, 200);
    // SIGKILL: nothing is given up in order.
    first.process.kill().await.unwrap();
    sandbox.until("the second is ready", async || second.page("/readyz").await.0 == 200).await;
    terminate(&mut second.process).await;
    sandbox.stop().await;
}
