//! A server's port: accepts connections until it is told to stop.
//! Must not know what is served.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use thiserror::Error;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::{JoinError, JoinHandle, JoinSet};

use super::access::Access;
use super::passing::{Backends, Logs};
use super::service::ApiService;
use super::shared::SharedServer;
use crate::sandbox::panics;

/// Why a server does not listen.
#[derive(Debug, Error)]
pub enum ListenError {
    /// Somebody else has the port.
    #[error("port {0} on 127.0.0.1 is in use")]
    InUse(u16),
    /// Anything else.
    #[error("cannot listen on 127.0.0.1:{0}: {1}")]
    Other(u16, #[source] std::io::Error),
}

/// A server that listens. Stops when `stop` is called or when it is dropped.
#[derive(Debug)]
pub struct Listening {
    address: SocketAddr,
    stop: watch::Sender<bool>,
    task: Option<JoinHandle<()>>,
}

/// Goes on with the panic of one of a server's tasks: what it left of the server is not served.
fn not_broken(ended: Result<(), JoinError>) {
    if let Err(error) = ended
        && let Ok(panic) = error.try_into_panic()
    {
        std::panic::resume_unwind(panic);
    }
}

impl Listening {
    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// `http://127.0.0.1:<port>`
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Waits until the server ends by itself, which only a panic does: its words.
    pub async fn broken(&mut self) -> String {
        let Some(task) = &mut self.task else { return std::future::pending().await };
        let ended = task.await;
        self.task = None;
        ended.err().and_then(panics::words).unwrap_or_else(|| "it ended".to_owned())
    }

    /// Ends all connections, open watches too, and waits until nothing of the server runs any more.
    pub async fn stop(mut self) {
        self.stop.send_replace(true);
        if let Some(task) = self.task.take()
            && let Some(words) = task.await.err().and_then(panics::words)
        {
            tracing::error!(address = %self.address, %words, "the server panicked before it was stopped");
        }
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        if let Some(task) = self.task.take() {
            task.abort();
        }
    }
}

/// Serves on a loopback port, 0 for any free one. Must be called within a tokio runtime.
pub async fn listen(
    port: u16,
    server: Arc<SharedServer>,
    access: Access,
    backends: Arc<dyn Backends>,
    logs: Arc<dyn Logs>,
) -> Result<Listening, ListenError> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).await.map_err(|e| match e.kind() {
        std::io::ErrorKind::AddrInUse => ListenError::InUse(port),
        _ => ListenError::Other(port, e),
    })?;
    let address = listener.local_addr().map_err(|e| ListenError::Other(port, e))?;
    let service = ApiService::new(server.clone(), Some(access), backends, logs);
    let (stop, stopped) = watch::channel(false);
    let task = tokio::spawn(accept(listener, server, service, stopped));
    Ok(Listening { address, stop, task: Some(task) })
}

async fn accept(
    listener: TcpListener,
    server: Arc<SharedServer>,
    service: ApiService,
    mut stopped: watch::Receiver<bool>,
) {
    // Dropped with this task, and everything in it ends.
    let mut tasks = JoinSet::new();
    tasks.spawn(server.keep_time());
    loop {
        tokio::select! {
            () = told(&mut stopped) => break,
            Some(ended) = tasks.join_next() => not_broken(ended),
            connection = listener.accept() => match connection {
                Ok((stream, _)) => drop(tasks.spawn(serve(stream, service.clone()))),
                Err(e) => {
                    // Out of descriptors, mostly: those who are connected go on.
                    tracing::warn!(error = %e, "a connection was not accepted");
                    tokio::time::sleep(std::time::Duration::from_millis(50)).await;
                }
            },
        }
    }
    tasks.shutdown().await;
}

/// Returns when the server is to stop, or nobody is left who could say so.
async fn told(stopped: &mut watch::Receiver<bool>) {
    drop(stopped.wait_for(|s| *s).await);
}

async fn serve(stream: TcpStream, service: ApiService) {
    // Events must not wait for more of them.
    if let Err(e) = stream.set_nodelay(true) {
        tracing::debug!(error = %e, "the connection may be slower");
    }
    let connection = hyper::server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        .serve_connection(TokioIo::new(stream), TowerToHyperService::new(service));
    if let Err(e) = connection.await {
        tracing::debug!(error = %e, "a connection ended badly");
    }
}
