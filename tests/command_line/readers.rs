//! How commands that go on for long end or go on: when nobody reads them any more, when Ctrl-C is typed, and when what
//! they wait for is deleted.

use std::process::Stdio;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use tokio::process::Child;

use super::{Controller, JOB, LIMIT, Sandbox, client, program, terminate, text};

/// The writing end of a pipe whose reader has gone.
fn unread() -> Stdio {
    let (reader, writer) = std::io::pipe().expect("a pipe");
    drop(reader);
    writer.into()
}

#[tokio::test]
async fn controllers_and_sandboxes_go_on_when_nobody_reads_what_they_say() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path().join("fleet");
    let kubeconfig = dir.join("kubeconfig");
    let process = program()
        .args(["sandbox", "--ray", "none", "--members", "1", "--no-controller", "--log", "debug", "--dir"])
        .arg(&dir)
        .stdout(unread())
        .stderr(unread())
        .spawn()
        .unwrap();
    let sandbox = Sandbox { kubeconfig: kubeconfig.display().to_string(), folder, process };
    sandbox.until("the kubeconfig is written", async || kubeconfig.exists()).await;
    for form in ["text", "json"] {
        let mut controller = program()
            .args(["--kubeconfig", &sandbox.kubeconfig, "--context", "hub", "run", "--seat", "one"])
            .args(["--profile", "fast", "--listen", "127.0.0.1:0", "--log", "debug", "--log-format", form])
            .stdout(unread())
            .stderr(unread())
            .spawn()
            .unwrap();
        sandbox.members_are_ready().await;
        let job = sandbox.file("job.yaml", &JOB.replace("name: train", &format!("name: {form}")).replace("CPUS", "1"));
        let wait = ["--kubeconfig", &sandbox.kubeconfig, "--context", "hub", "submit", "-f", &job, "--wait"];
        let followed = program().args(wait).stdout(unread()).stderr(unread()).status();
        let status = tokio::time::timeout(LIMIT, followed).await.expect("the job ends").unwrap();
        assert_eq!(status.code(), Some(0), "{form}: the end is the job's");
        terminate(&mut controller).await;
    }
    sandbox.stop().await;
}

#[tokio::test]
async fn an_error_that_nobody_reads_is_an_error_and_no_panic() {
    let refused =
        program().args(["--kubeconfig", "/none", "member", "list"]).stdout(unread()).stderr(unread()).status();
    assert_eq!(refused.await.unwrap().code(), Some(1));
}

/// Whether a process has a handler of its own for a signal.
fn hears(process: &Child, signal: Signal) -> bool {
    let pid = process.id().expect("it runs");
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:"));
    let caught = caught.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0);
    caught & (1 << (signal as i32 - 1)) != 0
}

/// `submit --wait` of a job that waits for ever, once it has said so.
async fn waiting(sandbox: &Sandbox, name: &str, more: &[&str]) -> (Child, std::path::PathBuf) {
    let job = JOB.replace("name: train", &format!("name: {name}")).replace("CPUS", "\"100\"");
    let job = sandbox.file(&format!("{name}.yaml"), &job);
    let log = sandbox.folder.path().join(format!("{name}.log"));
    let file = std::fs::File::create(&log).expect("a file in the folder");
    let process = program()
        .args(["--kubeconfig", &sandbox.kubeconfig, "--context", "hub", "submit", "-f", &job, "--wait"])
        .args(more)
        .stdout(file.try_clone().expect("one more handle"))
        .stderr(file)
        .spawn()
        .expect("the program starts");
    sandbox
        .until("the job waits", async || {
            let output = sandbox.ask(&["explain", &format!("rayjob/{name}")]).await;
            text(&output.stdout).contains("waits on the hub")
        })
        .await;
    (process, log)
}

#[tokio::test]
async fn a_follower_that_is_interrupted_says_that_the_job_goes_on_and_one_of_a_deleted_job_that_it_is_gone() {
    let sandbox = Sandbox::start(&["--members", "1", "--no-controller"]).await;
    let mut controller = Controller::start(&sandbox, "controller");
    sandbox.members_are_ready().await;
    for (name, form) in [("seen", &[][..]), ("parsed", &["-o", "json"])] {
        let (mut follower, log) = waiting(&sandbox, name, form).await;
        let said = || std::fs::read_to_string(&log).unwrap();
        sandbox.until("it hears signals", async || hears(&follower, Signal::SIGINT)).await;
        kill(Pid::from_raw(follower.id().unwrap().try_into().unwrap()), Signal::SIGINT).unwrap();
        let status = tokio::time::timeout(LIMIT, follower.wait()).await.expect("it ends").unwrap();
        assert_eq!(status.code(), Some(130), "{}", said());
        let hint = format!("it goes on. Follow it: rayfleet logs rayjob/{name} -n default -f");
        assert!(said().contains("(interrupted)") && said().contains(&hint), "{}", said());
        let explained = sandbox.ask(&["explain", &format!("rayjob/{name}")]).await;
        assert!(text(&explained.stdout).contains("waits on the hub"), "it does go on");
    }

    let (mut follower, log) = waiting(&sandbox, "gone", &[]).await;
    let said = || std::fs::read_to_string(&log).unwrap();
    sandbox.until("it follows", async || said().contains("waits")).await;
    let (url, token) = sandbox.server("hub");
    let path = format!("{}/apis/ray.io/v1/namespaces/default/rayjobs/gone", url.trim_end_matches('/'));
    let reply = client().delete(path).bearer_auth(token).send().await.unwrap();
    assert!(reply.status().is_success());
    let _deleted: Value = reply.json().await.unwrap();
    let status = tokio::time::timeout(LIMIT, follower.wait()).await.expect("it ends").unwrap();
    assert_eq!(status.code(), Some(6), "{}", said());
    assert!(said().contains("rayjob/gone was deleted before it ended"), "{}", said());
    terminate(&mut controller.process).await;
    sandbox.stop().await;
}
