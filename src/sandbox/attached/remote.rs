//! The API server of a cluster that runs elsewhere, as the cores around it ask it: requests in the order in which they
//! were wanted, each watch on its own.
//! Must not know the cores, nor what is asked.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Buf, BytesMut};
use http::header;
use http_body_util::{BodyExt, Limited};
use kube::client::Body;
use kube::config::{Config, KubeConfigOptions, Kubeconfig, KubeconfigError};
use secrecy::{ExposeSecret, SecretString};
use thiserror::Error;

use crate::api::wire::{Reply, Request};
use crate::sandbox::apiserver::WatchEvent;

/// Time for one answer: the cores try again what got none.
const ANSWER_MAX: Duration = Duration::from_secs(15);
const CONNECT_MAX: Duration = Duration::from_secs(5);
/// Bytes of one reply or watch line: above the largest list that a cluster of this size has.
const BYTES_MAX: usize = 64 << 20;

/// Why an API server cannot be asked.
#[derive(Debug, Error)]
pub enum RemoteError {
    /// The kubeconfig lacks the context.
    #[error("{file} has no context {context} (a fleet to attach to has one for the hub and one for each member)")]
    NoContext {
        /// The file.
        file: String,
        /// The context.
        context: String,
    },
    /// The kubeconfig cannot be read, or its parts do not fit together.
    #[error("{file}, context {context}: {error}")]
    Kubeconfig {
        /// The file.
        file: String,
        /// The context.
        context: String,
        /// Why: not in kube's words, which quote the file.
        error: &'static str,
    },
    /// Its settings make no client.
    #[error("context {context}: {error}")]
    Client {
        /// The context.
        context: String,
        /// Why: not in kube's words, which may quote the file.
        error: &'static str,
    },
}

/// An API server by kubeconfig.
pub struct Remote {
    client: kube::Client,
}

/// What opening a watch came to.
pub(in crate::sandbox) enum Opened {
    /// It is open.
    Lines(Lines),
    /// It was refused.
    Reply(Reply),
}

/// The events of a watch. Dropping it closes the watch.
pub(in crate::sandbox) struct Lines {
    body: Body,
    read: BytesMut,
}

impl Remote {
    /// A client of the cluster that `context` of the kubeconfig names; nothing is sent yet.
    pub async fn of(file: &Path, context: &str) -> Result<Arc<Self>, RemoteError> {
        let unusable = |error: KubeconfigError| RemoteError::Kubeconfig {
            file: file.display().to_string(),
            context: context.to_owned(),
            error: match error {
                KubeconfigError::ReadConfig(..) => "it cannot be read",
                KubeconfigError::Parse(_) => "it is not the YAML of a kubeconfig",
                _ => "the cluster and the user that the context names are not there, or not usable",
            },
        };
        let kubeconfig = Kubeconfig::read_from(file).map_err(unusable)?;
        if !kubeconfig.contexts.iter().any(|known| known.name == context) {
            return Err(RemoteError::NoContext { file: file.display().to_string(), context: context.to_owned() });
        }
        let options = KubeConfigOptions { context: Some(context.to_owned()), cluster: None, user: None };
        let mut config = Config::from_custom_kubeconfig(kubeconfig, &options).await.map_err(unusable)?;
        // The limits are here, and what got no answer the cores judge.
        config.default_retry = false;
        config.read_timeout = None;
        config.connect_timeout = Some(CONNECT_MAX);
        let no_client = |error: &'static str| RemoteError::Client { context: context.to_owned(), error };
        let fits = |token: &SecretString| http::HeaderValue::from_str(token.expose_secret()).is_ok();
        if !config.auth_info.token.as_ref().is_none_or(fits) {
            return Err(no_client("its token holds a line break or another character that no header may have"));
        }
        let client = kube::Client::try_from(config).map_err(|_| no_client("its settings make no client"))?;
        Ok(Arc::new(Self { client }))
    }

    /// One request; `None` where no answer came.
    pub(in crate::sandbox) async fn ask(&self, request: &Request) -> Option<Reply> {
        let answer = async { whole(self.head(request).await?).await };
        tokio::time::timeout(ANSWER_MAX, answer).await.ok().flatten()
    }

    /// Opens a watch; `None` where no answer came.
    pub(in crate::sandbox) async fn watch(&self, request: &Request) -> Option<Opened> {
        let opened = async {
            let response = self.head(request).await?;
            if response.status() == http::StatusCode::OK {
                return Some(Opened::Lines(Lines { body: response.into_body(), read: BytesMut::new() }));
            }
            whole(response).await.map(Opened::Reply)
        };
        tokio::time::timeout(ANSWER_MAX, opened).await.ok().flatten()
    }

    async fn head(&self, request: &Request) -> Option<http::Response<Body>> {
        let mut builder = http::Request::builder().method(request.method.as_str()).uri(&request.target);
        for (name, value) in [
            (header::CONTENT_TYPE, &request.content_type),
            (header::ACCEPT, &request.accept),
            (header::USER_AGENT, &request.user_agent),
        ] {
            if !value.is_empty() {
                builder = builder.header(name, value);
            }
        }
        let request = builder.body(Body::from(request.body.to_vec()));
        let sent = self.client.send(request.expect("the cores write well-formed requests")).await;
        sent.inspect_err(|error| tracing::debug!(%error, "no answer")).ok()
    }
}

async fn whole(response: http::Response<Body>) -> Option<Reply> {
    let (parts, body) = response.into_parts();
    let body = Limited::new(body, BYTES_MAX).collect().await.ok()?.to_bytes();
    let text = |(name, value): (&http::HeaderName, &http::HeaderValue)| {
        Some((name.as_str().to_owned(), value.to_str().ok()?.to_owned()))
    };
    let headers = parts.headers.iter().filter_map(text).collect();
    Some(Reply { status: parts.status.as_u16(), headers, body: Arc::from(&*body) })
}

impl Lines {
    /// The next event; `None` at the end, whatever ended it: the cores list again.
    pub(in crate::sandbox) async fn next(&mut self) -> Option<WatchEvent> {
        loop {
            if let Some(end) = self.read.iter().position(|byte| *byte == b'\n') {
                let line = self.read.split_to(end);
                self.read.advance(1);
                return WatchEvent::received(&line);
            }
            let frame = self.body.frame().await?.ok()?;
            self.read.extend_from_slice(frame.data_ref()?);
            if self.read.len() > BYTES_MAX {
                return None;
            }
        }
    }
}
