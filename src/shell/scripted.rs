//! For tests: an HTTP server on loopback that does what a script says, one step per request, in order.
//! Must not know Kubernetes.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use kube::config::Config;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use super::client::Client;
use super::kubeconfig::member_config;
use crate::api::{Cluster, MemberName};

/// What the server does with one request.
#[derive(Clone, Debug)]
pub(crate) enum Step {
    /// Reply with status and body.
    Reply(u16, String),
    /// Reply only when told to end the test: never.
    Hang,
    /// Read the request, then close the connection.
    Cut,
    /// A chunked reply with these pieces; then, if true, its orderly end, else the connection is cut.
    Chunks(Vec<Vec<u8>>, bool),
    /// A chunked reply with these pieces that stays open.
    Open(Vec<Vec<u8>>),
}

/// The server. Ends when dropped.
pub(crate) struct Scripted {
    pub(crate) port: u16,
    seen: Arc<Mutex<Vec<String>>>,
    task: tokio::task::JoinHandle<()>,
}

impl Drop for Scripted {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Scripted {
    /// Serves the steps; further requests get 500.
    pub(crate) async fn start(steps: impl IntoIterator<Item = Step>) -> Self {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("loopback has a free port");
        let port = listener.local_addr().expect("it is bound").port();
        let steps = Arc::new(Mutex::new(steps.into_iter().collect::<VecDeque<_>>()));
        let seen = Arc::new(Mutex::new(Vec::new()));
        let log = seen.clone();
        let task = tokio::spawn(async move {
            let mut open = tokio::task::JoinSet::new();
            while let Ok((socket, _)) = listener.accept().await {
                open.spawn(serve(socket, steps.clone(), log.clone()));
            }
        });
        Self { port, seen, task }
    }

    /// Head line and body of every request so far.
    pub(crate) fn seen(&self) -> Vec<String> {
        self.seen.lock().unwrap().clone()
    }

    /// Settings to reach it.
    pub(crate) async fn config(&self) -> Config {
        config_for(self.port).await
    }

    /// A client of it, as the member `eu`.
    pub(crate) async fn client(&self) -> Arc<Client> {
        Arc::new(Client::new(Cluster::Member(MemberName::from("eu")), self.config().await).unwrap())
    }
}

/// Settings to reach a port of loopback.
pub(crate) async fn config_for(port: u16) -> Config {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let text = format!(
        "{{current-context: m, clusters: [{{name: c, cluster: {{server: 'http://127.0.0.1:{port}'}}}}], \
         users: [{{name: u, user: {{token: t}}}}], contexts: [{{name: m, context: {{cluster: c, user: u}}}}]}}"
    );
    member_config(&text, None).await.expect("the test's kubeconfig is right")
}

async fn serve(mut socket: TcpStream, steps: Arc<Mutex<VecDeque<Step>>>, seen: Arc<Mutex<Vec<String>>>) {
    while let Some(request) = read_request(&mut socket).await {
        seen.lock().unwrap().push(request);
        let step = steps.lock().unwrap().pop_front().unwrap_or(Step::Reply(500, "no step left".into()));
        let chunked = |pieces: &[Vec<u8>]| {
            let mut bytes =
                b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n".to_vec();
            for piece in pieces {
                bytes.extend(format!("{:x}\r\n", piece.len()).bytes());
                bytes.extend(piece);
                bytes.extend(b"\r\n");
            }
            bytes
        };
        match step {
            Step::Reply(status, body) => {
                let text = format!(
                    "HTTP/1.1 {status} X\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
                    body.len()
                );
                let _ = socket.write_all(text.as_bytes()).await;
            }
            Step::Hang => std::future::pending::<()>().await,
            Step::Cut => return,
            Step::Chunks(pieces, orderly) => {
                let mut bytes = chunked(&pieces);
                if orderly {
                    bytes.extend(b"0\r\n\r\n");
                }
                let _ = socket.write_all(&bytes).await;
                if !orderly {
                    return;
                }
            }
            Step::Open(pieces) => {
                let _ = socket.write_all(&chunked(&pieces)).await;
                std::future::pending::<()>().await;
            }
        }
    }
}

async fn read_request(socket: &mut TcpStream) -> Option<String> {
    let mut bytes = Vec::new();
    let mut byte = [0];
    while !bytes.ends_with(b"\r\n\r\n") {
        socket.read_exact(&mut byte).await.ok()?;
        bytes.push(byte[0]);
    }
    let head = String::from_utf8_lossy(&bytes).into_owned();
    let length = head
        .lines()
        .filter_map(|l| l.split_once(':'))
        .find(|(name, _)| name.eq_ignore_ascii_case("content-length"))
        .and_then(|(_, value)| value.trim().parse::<usize>().ok())
        .unwrap_or(0);
    let mut body = vec![0; length];
    socket.read_exact(&mut body).await.ok()?;
    Some(format!("{}|{}", head.lines().next().unwrap_or(""), String::from_utf8_lossy(&body)))
}
