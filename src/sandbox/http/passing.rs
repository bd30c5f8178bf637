//! What an API server passes on: calls through the Service proxy, and logs.
//! Must not know who is behind: whoever runs the servers says so.

use std::net::Ipv4Addr;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use serde_json::json;
use tokio::sync::mpsc::Receiver;

use super::access::status;
use super::service::{ReplyBody, whole};
use crate::api::Time;
use crate::api::wire::Reply;
use crate::sandbox::apiserver::{LogCall, ProxyCall};

/// Who answers for a Service.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Backend {
    /// A real process on a loopback port.
    Port(u16),
    /// It answered at once.
    Reply(Reply),
}

/// Knows what is behind Services.
pub trait Backends: Send + Sync {
    /// Who is behind `call.service` and `call.port`; `None` if nobody is there.
    fn find(&self, call: &ProxyCall, now: Time) -> Option<Backend>;
}

/// Knows what containers wrote.
pub trait Logs: Send + Sync {
    /// The pieces of the log from its beginning (or its last lines), as asked; closed at the end: with `call.follow` when
    /// the container has ended. The error is the whole reply instead.
    fn open(&self, call: &LogCall, now: Time) -> Result<Receiver<Bytes>, Reply>;
}

/// Nobody is behind any Service, and there are no logs.
#[derive(Clone, Copy, Debug, Default)]
pub struct Nothing;

impl Backends for Nothing {
    fn find(&self, _: &ProxyCall, _: Time) -> Option<Backend> {
        None
    }
}

impl Logs for Nothing {
    fn open(&self, call: &LogCall, _: Time) -> Result<Receiver<Bytes>, Reply> {
        let text = format!("no log is kept of container {} of pod {}", call.container, call.pod);
        Err(status(404, json!({"message": text, "reason": "NotFound", "code": 404})))
    }
}

pub(super) type ForwardClient = Client<HttpConnector, Full<Bytes>>;

pub(super) fn forward_client() -> ForwardClient {
    Client::builder(TokioExecutor::new()).build_http()
}

/// Asks the process on the port; its answer is passed on as it comes.
pub(super) async fn forward(client: &ForwardClient, call: ProxyCall, port: u16) -> http::Response<ReplyBody> {
    let address = Ipv4Addr::LOCALHOST;
    let mut request = http::Request::builder()
        .method(call.request.method.as_str())
        .uri(format!("http://{address}:{port}{}", call.target));
    for (name, value) in [
        (http::header::CONTENT_TYPE, &call.request.content_type),
        (http::header::ACCEPT, &call.request.accept),
        (http::header::USER_AGENT, &call.request.user_agent),
    ] {
        if !value.is_empty() {
            request = request.header(name, value);
        }
    }
    let request = match request.body(Full::new(Bytes::copy_from_slice(&call.request.body))) {
        Ok(request) => request,
        Err(e) => return unreachable(&call, &e.to_string()),
    };
    match client.request(request).await {
        Ok(response) => {
            let (mut parts, body) = response.into_parts();
            // Framing is this connection's own affair.
            for name in [http::header::CONNECTION, http::header::TRANSFER_ENCODING] {
                parts.headers.remove(name);
            }
            http::Response::from_parts(parts, body.map_err(std::io::Error::other).boxed_unsync())
        }
        Err(e) => unreachable(&call, &format!("dial tcp {address}:{port}: {}", root_cause(&e))),
    }
}

fn root_cause(error: &dyn std::error::Error) -> String {
    let mut at = error;
    while let Some(source) = at.source() {
        at = source;
    }
    at.to_string()
}

/// Nobody is behind the Service, or it does not answer.
pub(super) fn unreachable(call: &ProxyCall, why: &str) -> http::Response<ReplyBody> {
    let text = if why.is_empty() {
        format!("no endpoints available for service \"{}\"", call.service)
    } else {
        format!("error trying to reach service: {why}")
    };
    whole(&status(503, json!({"message": text, "reason": "ServiceUnavailable", "code": 503})))
}
