//! A server with a port and a kubeconfig, and kubectl to ask it with. Must not know what is asked.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;

use bytes::Bytes;
use rayfleet::api::Time;
use rayfleet::api::wire::{Method, Reply, Request};
use rayfleet::sandbox::apiserver::{ApiServer, LogCall, Options};
use rayfleet::sandbox::http::{
    Access, KubeconfigEntry, Listening, Logs, Nothing, SharedServer, listen, wall_clock, write_kubeconfig,
};
use serde_json::Value;
use tokio::io::AsyncWriteExt as _;
use tokio::process::Command;
use tokio::sync::mpsc::{Receiver, channel};

/// A server, its port, and a kubeconfig in a directory of its own.
pub(crate) struct Bench {
    pub server: Arc<SharedServer>,
    pub listening: Listening,
    pub dir: tempfile::TempDir,
}

pub(crate) struct Output {
    pub ok: bool,
    pub out: String,
    pub err: String,
}

struct TwoLines;

impl Logs for TwoLines {
    fn open(&self, call: &LogCall, _: Time) -> Result<Receiver<Bytes>, Reply> {
        let (sender, receiver) = channel(2);
        let lines = ["first\n", "second\n"];
        let from = lines.len() - call.tail_lines.unwrap_or(lines.len()).min(lines.len());
        for line in &lines[from..] {
            sender.try_send(Bytes::from_static(line.as_bytes())).expect("the channel holds two");
        }
        Ok(receiver)
    }
}

pub(crate) fn has_kubectl() -> bool {
    let found = std::process::Command::new("kubectl").args(["version", "--client"]).output();
    let found = found.is_ok_and(|o| o.status.success());
    if !found {
        assert!(std::env::var_os("CI").is_none(), "no kubectl here: in CI it is no choice");
        kit::skipped::note("no kubectl on this machine");
    }
    found
}

impl Bench {
    pub(crate) async fn start() -> Self {
        let server = SharedServer::new(ApiServer::new(Options::default()), wall_clock());
        let listening =
            listen(0, server.clone(), Access::token("secret"), Arc::new(Nothing), Arc::new(TwoLines)).await.unwrap();
        let dir = tempfile::tempdir().unwrap();
        let entry = KubeconfigEntry { name: "hub".into(), url: listening.url(), token: "secret".into() };
        write_kubeconfig(&dir.path().join("kubeconfig"), &[entry]).unwrap();
        Self { server, listening, dir }
    }

    pub(crate) fn kubeconfig(&self) -> PathBuf {
        self.dir.path().join("kubeconfig")
    }

    pub(crate) async fn kubectl(&self, args: &[&str], input: &str) -> Output {
        kubectl(&self.kubeconfig(), self.dir.path(), args, input).await
    }

    /// kubectl that must succeed; its standard output.
    pub(crate) async fn run(&self, args: &[&str], input: &str) -> String {
        let output = self.kubectl(args, input).await;
        assert!(output.ok, "kubectl {args:?}\n{}\n{}", output.out, output.err);
        output.out
    }

    /// The same with a variable of the environment.
    pub(crate) async fn run_with(&self, name: &str, value: &str, args: &[&str]) -> String {
        let output = Command::new("kubectl")
            .args(args)
            .env("KUBECONFIG", self.kubeconfig())
            .env("HOME", self.dir.path())
            .env(name, value)
            .stdin(Stdio::null())
            .output()
            .await
            .unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        assert!(output.status.success(), "kubectl {args:?}\n{}\n{}", text(&output.stdout), text(&output.stderr));
        text(&output.stdout)
    }

    pub(crate) fn send(&self, method: Method, path: &str, content_type: &str, body: &Value) {
        let request = Request::new(method, path, content_type, Arc::from(body.to_string().into_bytes()));
        let reply = self.server.ask(&request);
        assert!(reply.is_success(), "{path}: {}", String::from_utf8_lossy(&reply.body));
    }
}

pub(crate) async fn kubectl(kubeconfig: &Path, home: &Path, args: &[&str], input: &str) -> Output {
    let mut child = Command::new("kubectl")
        .args(args)
        .env("KUBECONFIG", kubeconfig)
        // Its cache of discovery belongs to this server only.
        .env("HOME", home)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(input.as_bytes()).await.unwrap();
    drop(stdin);
    let output = child.wait_with_output().await.unwrap();
    Output {
        ok: output.status.success(),
        out: String::from_utf8_lossy(&output.stdout).into_owned(),
        err: String::from_utf8_lossy(&output.stderr).into_owned(),
    }
}
