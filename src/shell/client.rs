//! Sends one `api::wire::Request` to one API server and says what came back, or what is known where nothing came back.
//! The only place that makes clients. Must not know kinds, plans or units.

use std::error::Error as StdError;
use std::sync::{Arc, RwLock};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Limited};
use kube::client::Body;
use kube::config::Config;
use secrecy::{ExposeSecret, SecretString};
use thiserror::Error;
use tokio::sync::Notify;

use super::informer::core::LINE_BYTES_MAX;
use super::lanes::{Lane, Lanes, Turn};
use super::lines::Lines;
use crate::api::Cluster;
use crate::api::wire::{Reply, Request};

/// Bytes of one whole reply at most: a page of a list at 500 objects of 128 KiB.
pub const REPLY_BYTES_MAX: usize = 64 << 20;

const USER_AGENT: &str = concat!("rayfleet/", env!("CARGO_PKG_VERSION"));

/// No reply; the variants differ in what may have happened. Texts are for people and hold no secrets.
#[derive(Debug, Error, Clone, PartialEq, Eq)]
pub enum SendError {
    /// No byte of the request left: it did not happen.
    #[error("{0}")]
    NotSent(String),
    /// It was sent, or may have been: it may have happened.
    #[error("{0}")]
    NoAnswer(String),
}

/// A client could not be made of its settings.
#[derive(Debug, Error, Clone, PartialEq, Eq)]
#[error("no client can be made of the kubeconfig: {0}")]
pub struct UnusableConfig(&'static str);

/// One API server, for the life of a member: its credentials may be replaced, its lanes stay.
#[derive(Debug)]
pub struct Client {
    cluster: Cluster,
    kube: RwLock<Held>,
    lanes: Lanes,
    denied: Notify,
    agent: String,
}

/// kube's client does not print itself.
struct Held(kube::Client);

impl std::fmt::Debug for Held {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("kube::Client")
    }
}

/// What opening a watch came to.
#[derive(Debug)]
pub enum Opened {
    /// The stream is open.
    Stream(LineStream),
    /// A whole reply instead, such as 410 or 403.
    Reply(Reply),
}

/// The lines of a watch. Closed by dropping it.
#[derive(Debug)]
pub struct LineStream {
    body: Body,
    lines: Lines,
}

/// Why a watch ended other than by its server's orderly end.
#[derive(Debug, Error, Clone, PartialEq, Eq)]
pub enum StreamError {
    /// A line over the cap.
    #[error("{0}")]
    TooLong(#[from] super::lines::LineTooLong),
    /// The connection broke.
    #[error("the watch was cut: {0}")]
    Cut(String),
}

impl Client {
    /// A client of an API server. Must be called within a tokio runtime, which then carries its connections.
    pub fn new(cluster: Cluster, config: Config) -> Result<Self, UnusableConfig> {
        let kube = Held(build(config)?);
        Ok(Self {
            cluster,
            kube: RwLock::new(kube),
            lanes: Lanes::default(),
            denied: Notify::new(),
            agent: USER_AGENT.into(),
        })
    }

    /// The same in the name of a seat: an API server's audit log tells replicas apart by it. The field manager of plain
    /// writes is what stands before the slash, and the same for all.
    #[must_use]
    pub fn of_seat(mut self, seat: &str) -> Self {
        self.agent = format!("{USER_AGENT} (seat {seat})");
        self
    }

    /// Uses other settings from now on; requests under way end as they are.
    pub fn replace(&self, config: Config) -> Result<(), UnusableConfig> {
        let kube = Held(build(config)?);
        *self.kube.write().expect("no code panics while it holds the client") = kube;
        Ok(())
    }

    /// Which API server.
    pub fn cluster(&self) -> &Cluster {
        &self.cluster
    }

    /// Waits until a reply says that the credentials are not accepted (401).
    pub async fn denied(&self) {
        self.denied.notified().await;
    }

    /// Waits for a turn in the lane, `limit` at most. What must be true at the time of sending is checked after it.
    pub async fn turn(&self, lane: Lane, limit: Duration) -> Result<Turn<'_>, SendError> {
        let begun = tokio::time::Instant::now();
        let turn = self.lanes.turn(lane, limit).await;
        metrics::histogram!("rayfleet_request_wait_seconds", "lane" => lane.label())
            .record(begun.elapsed().as_secs_f64());
        turn.ok_or_else(|| {
            SendError::NotSent(format!(
                "the request budget ({}) of {} had no room for {limit:?}",
                lane.label(),
                self.cluster
            ))
        })
    }

    /// Waits for a turn, then sends. The limit holds for each of both.
    pub async fn send(&self, lane: Lane, request: &Request, limit: Duration) -> Result<Reply, SendError> {
        let turn = self.turn(lane, limit).await?;
        self.send_now(&turn, request, limit).await
    }

    /// Sends at once; the whole reply has to be there within `limit`.
    pub async fn send_now(&self, _turn: &Turn<'_>, request: &Request, limit: Duration) -> Result<Reply, SendError> {
        let late = || SendError::NoAnswer(format!("{} gave no answer within {limit:?}", self.cluster));
        let answer = tokio::time::timeout(limit, async {
            let response = self.head(request).await?;
            self.whole(response).await
        });
        answer.await.unwrap_or_else(|_| Err(late()))
    }

    /// Opens a watch: waits for a turn in the lane of lists and watches, then for the head of the reply, each `limit` at
    /// most. An open watch holds no turn.
    pub async fn watch(&self, request: &Request, limit: Duration) -> Result<Opened, SendError> {
        let _turn = self.turn(Lane::Sight, limit).await?;
        let late = || SendError::NoAnswer(format!("{} gave no answer within {limit:?}", self.cluster));
        let opened = tokio::time::timeout(limit, async {
            let response = self.head(request).await?;
            if response.status() == http::StatusCode::OK {
                let stream = LineStream { body: response.into_body(), lines: Lines::new(LINE_BYTES_MAX) };
                return Ok(Opened::Stream(stream));
            }
            self.whole(response).await.map(Opened::Reply)
        });
        opened.await.unwrap_or_else(|_| Err(late()))
    }

    async fn head(&self, request: &Request) -> Result<http::Response<Body>, SendError> {
        let request = to_http(request, &self.agent)?;
        let kube = self.kube.read().expect("no code panics while it holds the client").0.clone();
        let response = kube.send(request).await.map_err(|e| self.classified(&e))?;
        if response.status() == http::StatusCode::UNAUTHORIZED {
            self.denied.notify_one();
        }
        Ok(response)
    }

    async fn whole(&self, response: http::Response<Body>) -> Result<Reply, SendError> {
        let (parts, body) = response.into_parts();
        let headers = parts
            .headers
            .iter()
            .filter_map(|(name, value)| Some((name.as_str().to_owned(), value.to_str().ok()?.to_owned())))
            .collect();
        let body = Limited::new(body, REPLY_BYTES_MAX).collect().await.map_err(|e| {
            SendError::NoAnswer(format!("the reply of {} broke off: {}", self.cluster, last_cause(&*e)))
        })?;
        Ok(Reply { status: parts.status.as_u16(), headers, body: Arc::from(&*body.to_bytes()) })
    }

    /// Only a connection that was never made proves that nothing was sent.
    fn classified(&self, error: &kube::Error) -> SendError {
        let text = format!("{} cannot be reached: {}", self.cluster, last_cause(error));
        if never_connected(error) { SendError::NotSent(text) } else { SendError::NoAnswer(text) }
    }
}

impl LineStream {
    /// The next line; `None` at the server's orderly end. Waits for ever on a silent server; dropping the wait loses
    /// nothing.
    pub async fn next(&mut self) -> Result<Option<Vec<u8>>, StreamError> {
        loop {
            if let Some(line) = self.lines.next_line()? {
                return Ok(Some(line));
            }
            match self.body.frame().await {
                None => return Ok(None),
                Some(Ok(frame)) => {
                    if let Some(bytes) = frame.data_ref() {
                        self.lines.push(bytes);
                    }
                }
                Some(Err(e)) => return Err(StreamError::Cut(last_cause(&e))),
            }
        }
    }

    /// The next bytes as they come, for a stream that is no sequence of events, such as a log; `None` at its orderly end.
    /// Not to be mixed with [`LineStream::next`].
    pub async fn bytes(&mut self) -> Result<Option<Bytes>, StreamError> {
        loop {
            match self.body.frame().await {
                None => return Ok(None),
                Some(Ok(frame)) => {
                    if let Ok(bytes) = frame.into_data() {
                        return Ok(Some(bytes));
                    }
                }
                Some(Err(e)) => return Err(StreamError::Cut(last_cause(&e))),
            }
        }
    }
}

fn build(config: Config) -> Result<kube::Client, UnusableConfig> {
    // kube takes it for granted.
    let fits = |token: &SecretString| http::HeaderValue::from_str(token.expose_secret()).is_ok();
    if !config.auth_info.token.as_ref().is_none_or(fits) {
        return Err(UnusableConfig("its token holds a line break or another character that no header may have"));
    }
    // kube's texts could quote the PEM that they fail on.
    kube::Client::try_from(config).map_err(|e| {
        UnusableConfig(match e {
            kube::Error::RustlsTls(_) => "its certificates and key make no TLS identity",
            kube::Error::Auth(_) => "its user's credentials are not usable",
            _ => "its settings do not fit together",
        })
    })
}

fn to_http(request: &Request, agent: &str) -> Result<http::Request<Body>, SendError> {
    let mut builder = http::Request::builder().method(request.method.as_str()).uri(&request.target);
    if !request.content_type.is_empty() {
        builder = builder.header(http::header::CONTENT_TYPE, &request.content_type);
    }
    let accept = if request.accept.is_empty() { "application/json" } else { &request.accept };
    let agent = if request.user_agent.is_empty() { agent } else { &request.user_agent };
    builder
        .header(http::header::ACCEPT, accept)
        .header(http::header::USER_AGENT, agent)
        .body(Body::from(Bytes::copy_from_slice(&request.body)))
        .map_err(|e| SendError::NotSent(format!("the request is not well formed: {e}")))
}

fn never_connected(error: &(dyn StdError + 'static)) -> bool {
    let mut cause = Some(error);
    while let Some(error) = cause {
        if let Some(error) = error.downcast_ref::<hyper_util::client::legacy::Error>() {
            return error.is_connect();
        }
        // Credentials are read and refreshed before anything is sent.
        if matches!(error.downcast_ref::<kube::Error>(), Some(kube::Error::Auth(_))) {
            return true;
        }
        cause = error.source();
    }
    false
}

/// The innermost cause: "connection refused" rather than "client error (Connect)".
fn last_cause(error: &(dyn StdError + 'static)) -> String {
    let mut last = error;
    while let Some(cause) = last.source() {
        last = cause;
    }
    last.to_string()
}

#[cfg(test)]
mod tests {
    use super::super::scripted::{Scripted, Step, config_for};
    use super::*;
    use crate::api::wire::Method;

    const LIMIT: Duration = Duration::from_secs(20);
    const SHORT: Duration = Duration::from_millis(150);

    fn post() -> Request {
        Request::new(Method::Post, "/api/v1/namespaces/a/pods", "application/json", Arc::from(*b"{}"))
    }

    #[tokio::test]
    async fn a_reply_comes_whole_with_its_status() {
        let server = Scripted::start([Step::Reply(409, "{\"kind\":\"Status\"}".into())]).await;
        let reply = server.client().await.send(Lane::Effects, &post(), LIMIT).await.unwrap();
        assert_eq!((reply.status, &*reply.body), (409, b"{\"kind\":\"Status\"}".as_slice()));
        assert_eq!(server.seen(), ["POST /api/v1/namespaces/a/pods HTTP/1.1|{}"]);
    }

    #[tokio::test]
    async fn a_refused_connection_was_not_sent() {
        let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let client = Client::new(Cluster::Hub, config_for(free).await).unwrap();
        let error = client.send(Lane::Effects, &post(), LIMIT).await.unwrap_err();
        assert!(matches!(&error, SendError::NotSent(why) if why.contains("refused")), "{error:?}");
    }

    #[tokio::test]
    async fn silence_and_cuts_after_sending_leave_the_outcome_open() {
        let server = Scripted::start([Step::Hang, Step::Cut]).await;
        let client = server.client().await;
        let error = client.send(Lane::Effects, &post(), SHORT).await.unwrap_err();
        assert!(matches!(error, SendError::NoAnswer(_)), "{error:?}");
        let error = client.send(Lane::Effects, &post(), LIMIT).await.unwrap_err();
        assert!(matches!(error, SendError::NoAnswer(_)), "{error:?}");
        assert_eq!(server.seen().len(), 2, "nothing was repeated");
    }

    #[tokio::test]
    async fn a_gateway_timeout_is_not_repeated() {
        let server = Scripted::start([Step::Reply(504, "{}".into()), Step::Reply(201, "{}".into())]).await;
        let reply = server.client().await.send(Lane::Effects, &post(), LIMIT).await.unwrap();
        assert_eq!(reply.status, 504);
        assert_eq!(server.seen().len(), 1);
    }

    #[tokio::test]
    async fn a_denied_credential_is_told_to_who_waits_for_it() {
        let server = Scripted::start([Step::Reply(401, "{}".into())]).await;
        let client = server.client().await;
        client.send(Lane::Effects, &post(), LIMIT).await.unwrap();
        tokio::time::timeout(LIMIT, client.denied()).await.unwrap();
    }

    #[tokio::test]
    async fn a_watch_gives_lines_however_they_are_cut_and_ends_in_order() {
        let pieces = vec![b"{\"a\":".to_vec(), b"1}\n{\"b\"".to_vec(), b":2}\n".to_vec()];
        let server = Scripted::start([Step::Chunks(pieces, true)]).await;
        let Opened::Stream(mut stream) = server.client().await.watch(&Request::get("/w?watch=1"), LIMIT).await.unwrap()
        else {
            panic!("no stream")
        };
        assert_eq!(stream.next().await.unwrap(), Some(b"{\"a\":1}".to_vec()));
        assert_eq!(stream.next().await.unwrap(), Some(b"{\"b\":2}".to_vec()));
        assert_eq!(stream.next().await.unwrap(), None);
    }

    #[tokio::test]
    async fn a_watch_that_is_cut_or_endless_is_an_error_and_a_silent_one_waits() {
        let endless = vec![vec![b'x'; LINE_BYTES_MAX + 1]];
        let server = Scripted::start([
            Step::Chunks(vec![b"{\"a\":1}\n{".to_vec()], false),
            Step::Open(vec![b"{\"a\":1}\n".to_vec()]),
            Step::Open(endless),
            Step::Reply(410, "{\"code\":410}".into()),
        ])
        .await;
        let client = server.client().await;
        let open = async || match client.watch(&Request::get("/w?watch=1"), LIMIT).await.unwrap() {
            Opened::Stream(stream) => stream,
            Opened::Reply(reply) => panic!("{reply:?}"),
        };
        let mut cut = open().await;
        assert!(cut.next().await.unwrap().is_some());
        assert!(matches!(cut.next().await, Err(StreamError::Cut(_))));
        let mut silent = open().await;
        assert!(silent.next().await.unwrap().is_some());
        assert!(tokio::time::timeout(SHORT, silent.next()).await.is_err());
        assert!(matches!(open().await.next().await, Err(StreamError::TooLong(_))));
        let Opened::Reply(reply) = client.watch(&Request::get("/w?watch=1"), LIMIT).await.unwrap() else {
            panic!("a stream")
        };
        assert_eq!(reply.status, 410);
    }
}
