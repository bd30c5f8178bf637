//! The two servers that the table is sent to: the sandbox's in this process, and a real one.
//! Must not know stories, nor what answers are worth.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, bail};
use kit::planes::{ADMINISTRATOR, Binary, Part, Plane};
use rayfleet::api::wire::{Reply, Request};
use rayfleet::api::{Cluster, Time};
use rayfleet::sandbox::apiserver::{Answer, ApiServer, Line, Options, WatchId};
use rayfleet::shell::client::{Client, LineStream, Opened};
use rayfleet::shell::kubeconfig::member_config;
use rayfleet::shell::lanes::Lane;
use serde_json::Value;

/// Time for one answer of the real server.
const ANSWER_MAX: Duration = Duration::from_secs(30);
/// For events that must come.
const EVENTS_MAX: Duration = Duration::from_secs(10);
/// For events that must not come.
const SILENCE: Duration = Duration::from_millis(60);
/// How far the sandbox's clock goes on at the end of a story: no watch of the table lasts longer.
const STORY_MAX: Duration = Duration::from_secs(3);

/// What became of a request.
pub(crate) enum Got {
    Reply(Reply),
    /// A watch is open under this number.
    Watch(usize),
    /// Passed on to what is behind the API: a Service, a container's log.
    Beyond,
}

/// What came out of a watch until the end of its story.
#[derive(Debug)]
pub(crate) struct Seen {
    pub events: Vec<Value>,
    /// Whether the server ended it.
    pub ended: bool,
}

/// The sandbox's server, and the time that it is told.
pub(crate) struct Sandbox {
    server: ApiServer,
    open: Vec<WatchId>,
    lines: BTreeMap<WatchId, Vec<Line>>,
}

impl Sandbox {
    pub(crate) fn new() -> Self {
        Self { server: ApiServer::new(Options::default()), open: Vec::new(), lines: BTreeMap::new() }
    }

    pub(crate) fn ask(&mut self, request: &Request) -> Got {
        let got = match self.server.handle(request, now()) {
            Answer::Reply(reply) => Got::Reply(reply),
            Answer::Watch(id) => {
                self.open.push(id);
                Got::Watch(self.open.len() - 1)
            }
            Answer::Proxy(_) | Answer::Log(_) => Got::Beyond,
        };
        self.collect();
        got
    }

    fn collect(&mut self) {
        for (id, line) in self.server.take_lines() {
            self.lines.entry(id).or_default().push(line);
        }
    }

    /// Ends all watches; time goes on before.
    pub(crate) fn finish(&mut self) -> Vec<Seen> {
        let until = now() + STORY_MAX;
        while let Some(next) = self.server.next_tick().filter(|t| *t <= until) {
            self.server.tick(next);
        }
        self.collect();
        let open = std::mem::take(&mut self.open);
        let lines = std::mem::take(&mut self.lines);
        open.into_iter()
            .map(|id| {
                self.server.close_watch(id);
                let lines = lines.get(&id).map(Vec::as_slice).unwrap_or_default();
                let event = |line: &Line| match line {
                    Line::Event(event) => serde_json::from_slice(event.text()).ok(),
                    Line::End => None,
                };
                let events = lines.iter().filter_map(event).filter(counts).collect();
                Seen { events, ended: lines.last() == Some(&Line::End) }
            })
            .collect()
    }
}

/// A real control plane without controllers: what a client asks is all that happens.
pub(crate) struct Real {
    _plane: Plane,
    client: Client,
    open: Vec<LineStream>,
}

impl Real {
    pub(crate) async fn start(binary: &Binary) -> Result<Self> {
        let mut plane = Plane::start(binary, "conformance", &[]).await?;
        let config = member_config(&plane.kubeconfig(ADMINISTRATOR), None).await?;
        let client = Client::new(Cluster::Hub, config)?;
        // As in the sandbox's server: what controllers do comes from clients.
        plane.kill(Part::ControllerManager);
        Ok(Self { _plane: plane, client, open: Vec::new() })
    }

    pub(crate) async fn ask(&mut self, request: &Request, watch: bool) -> Result<Got> {
        if watch {
            return Ok(match self.client.watch(request, ANSWER_MAX).await? {
                Opened::Reply(reply) => Got::Reply(reply),
                Opened::Stream(stream) => {
                    self.open.push(stream);
                    Got::Watch(self.open.len() - 1)
                }
            });
        }
        Ok(Got::Reply(self.client.send(Lane::Effects, request, ANSWER_MAX).await?))
    }

    /// Asks until the status is as wanted.
    pub(crate) async fn ask_until(&self, request: &Request, status: u16) -> Result<Reply> {
        let deadline = tokio::time::Instant::now() + EVENTS_MAX;
        loop {
            let reply = self.client.send(Lane::Effects, request, ANSWER_MAX).await?;
            if reply.status == status {
                return Ok(reply);
            }
            if tokio::time::Instant::now() > deadline {
                bail!("{}: {} {}", request.target, reply.status, String::from_utf8_lossy(&reply.body));
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// Closes all watches unread.
    pub(crate) fn forget(&mut self) {
        self.open.clear();
    }

    /// Reads all watches: as far as the sandbox's went, and a moment longer, for what should not come.
    pub(crate) async fn finish(&mut self, like: &[Seen]) -> Result<Vec<Seen>> {
        let mut all = Vec::new();
        for (number, mut stream) in std::mem::take(&mut self.open).into_iter().enumerate() {
            let (wanted, ends) = like.get(number).map_or((0, false), |s| (s.events.len(), s.ended));
            let mut seen = Seen { events: Vec::new(), ended: false };
            loop {
                let enough = seen.events.len() >= wanted && !ends;
                let limit = if enough { SILENCE } else { EVENTS_MAX };
                match tokio::time::timeout(limit, stream.next()).await {
                    Err(_) => break,
                    Ok(Ok(Some(line))) => {
                        let event = serde_json::from_slice(&line).context("a line of a watch")?;
                        seen.events.extend(Some(event).filter(counts));
                    }
                    Ok(_) => {
                        seen.ended = true;
                        break;
                    }
                }
            }
            all.push(seen);
        }
        Ok(all)
    }
}

/// Number and moment of bookmarks vary; only the one that ends the initial events is certain.
fn counts(event: &Value) -> bool {
    event["type"] != "BOOKMARK" || event["object"]["metadata"]["annotations"]["k8s.io/initial-events-end"] == "true"
}

/// The wall clock: both servers are asked at the same time.
fn now() -> Time {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Time(i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
}

/// A request as data.
pub(crate) fn request(method: rayfleet::api::wire::Method, target: &str, content_type: &str, body: &str) -> Request {
    Request::new(method, target, content_type, Arc::from(body.as_bytes()))
}
