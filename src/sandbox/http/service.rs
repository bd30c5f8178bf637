//! The server as a tower service: HTTP requests in, HTTP responses out, for TCP and for clients in this process.
//! Must not know sockets.

use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::{Body, Frame};
use serde_json::json;
use tokio::sync::mpsc::Receiver;

use super::access::{Access, status};
use super::passing::{self, Backend, Backends, ForwardClient, Logs};
use super::shared::{Called, SharedServer, WatchStream};
use crate::api::wire::{Method, Reply, Request};
use crate::sandbox::apiserver::auth::Credentials;
use crate::sandbox::apiserver::{LogCall, ProxyCall};

/// Body of a response: whole, or a stream that ends when its source does.
pub type ReplyBody = UnsyncBoxBody<Bytes, io::Error>;

/// A real server takes no larger body.
const BODY_LIMIT: usize = 3 * 1024 * 1024;

/// One API server as a `tower::Service`.
#[derive(Clone)]
pub struct ApiService {
    server: Arc<SharedServer>,
    access: Option<Access>,
    backends: Arc<dyn Backends>,
    logs: Arc<dyn Logs>,
    client: ForwardClient,
}

impl ApiService {
    /// Without `access` everybody may do everything: for clients in this process.
    pub fn new(
        server: Arc<SharedServer>,
        access: Option<Access>,
        backends: Arc<dyn Backends>,
        logs: Arc<dyn Logs>,
    ) -> Self {
        Self { server, access, backends, logs, client: passing::forward_client() }
    }

    async fn answer<B>(self, request: http::Request<B>) -> http::Response<ReplyBody>
    where
        B: Body + Send + 'static,
        B::Data: Send,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let (parts, body) = request.into_parts();
        let mut target = parts.uri.path_and_query().map_or("/", http::uri::PathAndQuery::as_str).to_owned();
        let sent =
            Credentials::from_headers(parts.headers.iter().filter_map(|(n, v)| Some((n.as_str(), v.to_str().ok()?))));
        let mut credentials = sent.clone().of_server();
        if let Some(access) = &self.access {
            let given = text(&parts.headers, header::AUTHORIZATION);
            let given = parts.headers.contains_key(header::AUTHORIZATION).then_some(given.as_str());
            match access.admit(given, parts.method.as_str(), &target) {
                Ok(admitted) => target = admitted.to_owned(),
                // A server that knows people decides about them itself.
                Err(_) if self.server.authenticates() => credentials = sent,
                Err(refusal) => return whole(&refusal),
            }
        }
        let Some(method) = Method::parse(parts.method.as_str()) else {
            return whole(&Reply { status: 405, headers: Vec::new(), body: [].into() });
        };
        let body = match Limited::new(body, BODY_LIMIT).collect().await {
            Ok(body) => body.to_bytes(),
            Err(e) if e.is::<http_body_util::LengthLimitError>() => return whole(&too_large()),
            Err(e) => {
                let text = format!("the body did not arrive: {e}");
                return whole(&status(400, json!({"message": text, "reason": "BadRequest", "code": 400})));
            }
        };
        let request = Request {
            method,
            target,
            content_type: text(&parts.headers, header::CONTENT_TYPE),
            accept: text(&parts.headers, header::ACCEPT),
            user_agent: text(&parts.headers, header::USER_AGENT),
            body: Arc::from(body.as_ref()),
        };
        match self.server.call_as(&request, &credentials) {
            Called::Reply(reply) => whole(&reply),
            Called::Watch(stream) => watch(stream),
            Called::Proxy(call) => self.proxy(call).await,
            Called::Log(call) => self.log(&call),
        }
    }

    async fn proxy(&self, call: ProxyCall) -> http::Response<ReplyBody> {
        match self.backends.find(&call, self.server.now()) {
            Some(Backend::Reply(reply)) => whole(&reply),
            Some(Backend::Port(port)) => passing::forward(&self.client, call, port).await,
            None => passing::unreachable(&call, ""),
        }
    }

    fn log(&self, call: &LogCall) -> http::Response<ReplyBody> {
        match self.logs.open(call, self.server.now()) {
            Err(reply) => whole(&reply),
            Ok(pieces) => response(200, &[("content-type", "text/plain")], Pieces(pieces).boxed_unsync()),
        }
    }
}

impl<B> tower::Service<http::Request<B>> for ApiService
where
    B: Body + Send + 'static,
    B::Data: Send,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    type Response = http::Response<ReplyBody>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<B>) -> Self::Future {
        let this = self.clone();
        Box::pin(async move { Ok(this.answer(request).await) })
    }
}

fn text(headers: &HeaderMap, name: HeaderName) -> String {
    let all: Vec<&str> = headers.get_all(name).iter().filter_map(|v| v.to_str().ok()).collect();
    all.join(",")
}

fn too_large() -> Reply {
    let text = format!("Request entity too large: limit is {BODY_LIMIT}");
    status(413, json!({"message": text, "reason": "RequestEntityTooLarge", "code": 413}))
}

/// A whole reply as a response.
pub(super) fn whole(reply: &Reply) -> http::Response<ReplyBody> {
    let headers: Vec<(&str, &str)> = reply.headers.iter().map(|(n, v)| (n.as_str(), v.as_str())).collect();
    let body = Full::new(Bytes::copy_from_slice(&reply.body)).map_err(|never| match never {}).boxed_unsync();
    response(reply.status, &headers, body)
}

fn response(status: u16, headers: &[(&str, &str)], body: ReplyBody) -> http::Response<ReplyBody> {
    let mut response = http::Response::new(body);
    *response.status_mut() = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    for (name, value) in headers {
        // Warnings quote what the client sent: what is no header value is left out, not the whole answer.
        if let (Ok(name), Ok(value)) = (HeaderName::try_from(*name), HeaderValue::try_from(*value)) {
            response.headers_mut().append(name, value);
        }
    }
    response
}

fn watch(stream: WatchStream) -> http::Response<ReplyBody> {
    response(200, &[("content-type", "application/json")], Lines { stream }.boxed_unsync())
}

/// A watch as a body: one frame for each event, so that each is sent at once.
struct Lines {
    stream: WatchStream,
}

impl Body for Lines {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        self.stream.poll_next(cx).map(|event| {
            let event = event?;
            let mut text = Vec::with_capacity(event.text().len() + 1);
            text.extend_from_slice(event.text());
            text.push(b'\n');
            Some(Ok(Frame::data(text.into())))
        })
    }
}

/// Pieces of a log as a body.
struct Pieces(Receiver<Bytes>);

impl Body for Pieces {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        self.0.poll_recv(cx).map(|piece| piece.map(|p| Ok(Frame::data(p))))
    }
}
