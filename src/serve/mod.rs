//! What programs ask a running controller over HTTP: health, readiness, metrics, and why each key waits.
//! Must not change anything, or show what a Secret or a spec holds.

mod metrics;

pub use metrics::Metrics;

use std::net::SocketAddr;

use axum::Router;
use axum::extract::{Query, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Json, Response};
use axum::routing::get;
use serde::Deserialize;
use thiserror::Error;
use tokio::net::TcpListener;

use crate::shell::run::Questions;

/// Why nothing is served.
#[derive(Debug, Error)]
pub enum ServeError {
    /// The port cannot be had.
    #[error("--listen {address}: {why}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// What is wrong, and what would be right.
        why: String,
    },
}

/// A bound port that nothing is served on yet.
#[derive(Debug)]
pub struct Port {
    listener: TcpListener,
    /// Where it listens: the port that was given where 0 was asked for.
    pub address: SocketAddr,
}

impl Port {
    /// Takes the port, before anything else is begun: a port in use ends the start at once.
    pub async fn bind(address: SocketAddr) -> Result<Self, ServeError> {
        let refused = |e: std::io::Error| ServeError::Listen {
            address,
            why: match e.kind() {
                std::io::ErrorKind::AddrInUse => {
                    "the port is in use; name another (port 0 takes a free one)".to_owned()
                }
                std::io::ErrorKind::PermissionDenied => "not allowed; ports from 1024 on are".to_owned(),
                _ => e.to_string(),
            },
        };
        let listener = TcpListener::bind(address).await.map_err(refused)?;
        let address = listener.local_addr().map_err(refused)?;
        Ok(Self { listener, address })
    }

    /// Serves until `stop` is done.
    pub async fn serve(
        self,
        questions: Questions,
        metrics: Metrics,
        stop: impl Future<Output = ()> + Send + 'static,
    ) -> std::io::Result<()> {
        axum::serve(self.listener, router(questions, metrics)).with_graceful_shutdown(stop).await
    }
}

#[derive(Clone)]
struct Asked {
    questions: Questions,
    metrics: Metrics,
}

fn router(questions: Questions, metrics: Metrics) -> Router {
    Router::new()
        .route("/healthz", get(async || "ok\n"))
        .route("/readyz", get(readyz))
        .route("/metrics", get(show_metrics))
        .route("/debug/keys", get(keys))
        .with_state(Asked { questions, metrics })
}

/// 200 once the hub is listed and the seat is held; else 503 and what is missing.
async fn readyz(State(asked): State<Asked>) -> Response {
    let missing = asked.questions.readiness().missing;
    if missing.is_empty() {
        return "ok\n".into_response();
    }
    (StatusCode::SERVICE_UNAVAILABLE, format!("{}\n", missing.join("\n"))).into_response()
}

async fn show_metrics(State(asked): State<Asked>) -> Response {
    let report = asked.questions.report().await;
    let text = asked.metrics.render(report.as_ref());
    ([("content-type", "text/plain; version=0.0.4; charset=utf-8")], text).into_response()
}

/// Narrows `/debug/keys`.
#[derive(Debug, Default, Deserialize)]
struct Wanted {
    cluster: Option<String>,
    namespace: Option<String>,
    name: Option<String>,
}

/// Why per key, quarantined objects and the freshness of tables, as JSON.
async fn keys(State(asked): State<Asked>, Query(wanted): Query<Wanted>) -> Response {
    let Some(mut report) = asked.questions.report().await else {
        return (StatusCode::SERVICE_UNAVAILABLE, "the controller does not answer\n").into_response();
    };
    let fits = |wish: &Option<String>, value: &str| wish.as_ref().is_none_or(|w| w == value);
    report.keys.retain(|key| {
        fits(&wanted.cluster, &key.cluster) && fits(&wanted.namespace, &key.namespace) && fits(&wanted.name, &key.name)
    });
    report.tables.retain(|table| fits(&wanted.cluster, &table.cluster));
    Json(report).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_port_in_use_is_said_with_a_way_out() {
        let first = Port::bind(([127, 0, 0, 1], 0).into()).await.unwrap();
        let error = Port::bind(first.address).await.unwrap_err().to_string();
        assert!(error.contains(&first.address.to_string()) && error.contains("in use; name another"), "{error}");
    }
}
