//! Runs the cores around one API server, of this process or elsewhere, in real time: the only part of `world` that waits.
//! Must not decide anything: requests come from the cores, answers and lines go to them.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use serde_json::Value;
use tokio::sync::Notify;
use tokio::sync::mpsc::{self, Receiver, UnboundedReceiver, UnboundedSender};
use tokio::task::JoinSet;

use super::Surrounding;
use super::container::{Order, PodEvent};
use super::nodes::{Nodes, ServiceChange};
use super::surroundings::{Sent, Surroundings};
use crate::api::Time;
use crate::api::wire::Reply;
use crate::sandbox::apiserver::{Answer, Line, LogCall, ProxyCall, WatchEvent, WatchId};
use crate::sandbox::attached::remote::{Lines, Opened, Remote};
use crate::sandbox::http::{Backend, Backends, Called, Clock, Logs, SharedServer, WatchStream, wall_clock};

/// The longest that nothing is looked at, should a timer be wrong.
const LONGEST_SLEEP: Duration = Duration::from_mins(1);

/// What the nodes of a cluster ask of whoever runs real containers.
#[derive(Clone, Debug)]
pub enum Wish {
    /// About a pod.
    Pod(Order),
    /// A Service exists, or is gone: names lead to pods by them.
    Service(ServiceChange),
}

/// The cores around one API server, for several tasks. Cheap to clone.
#[derive(Clone)]
pub struct Around {
    inner: Arc<Mutex<Surroundings>>,
    server: Server,
    clock: Clock,
    wake: Arc<Notify>,
}

/// Where the API server is.
#[derive(Clone)]
enum Server {
    Here(Arc<SharedServer>),
    Elsewhere(Arc<Remote>),
}

/// What came from it.
enum Heard {
    /// The answer to a request, if one came.
    Answered(u64, Option<Answer>),
    /// A line of a watch.
    Line(WatchId, Line),
}

impl Around {
    /// Puts cores around a server. Nothing happens before [`Around::run`].
    pub fn new(server: &Arc<SharedServer>, cores: Vec<Box<dyn Surrounding>>) -> Self {
        let server = server.clone();
        Self::with_clock(Server::Here(server.clone()), Arc::new(move || server.now()), cores)
    }

    /// Puts cores around a server elsewhere. The clock is this machine's.
    pub fn at(server: Arc<Remote>, cores: Vec<Box<dyn Surrounding>>) -> Self {
        Self::with_clock(Server::Elsewhere(server), wall_clock(), cores)
    }

    fn with_clock(server: Server, clock: Clock, cores: Vec<Box<dyn Surrounding>>) -> Self {
        let inner = Arc::new(Mutex::new(Surroundings::new(cores, clock())));
        Self { inner, server, clock, wake: Arc::new(Notify::new()) }
    }

    /// Looks at the cores, or tells them something; what follows is done at once.
    pub fn with<T>(&self, act: impl FnOnce(&mut Surroundings, Time) -> T) -> T {
        let now = (self.clock)();
        // A panic elsewhere leaves the cores as they were between two events: they never wait or call out.
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        let out = act(&mut inner, now);
        drop(inner);
        self.wake.notify_one();
        out
    }

    /// Tells what happened to a real pod of this cluster.
    pub fn told(&self, event: PodEvent) {
        self.with(|around, _| {
            if let Some(nodes) = around.find_mut::<Nodes>() {
                nodes.push(event);
            }
        });
    }

    /// Runs until dropped. `wish` gets what the nodes ask of whoever runs real containers; with simulated ones nothing.
    pub async fn run(self, mut wish: impl FnMut(Wish)) {
        let (sender, mut heard) = mpsc::unbounded_channel();
        let (orders, ordered) = mpsc::unbounded_channel();
        let mut tasks = JoinSet::new();
        if let Server::Elsewhere(remote) = &self.server {
            tasks.spawn(ask_in_order(remote.clone(), ordered, sender.clone()));
        }
        let mut next_watch = 0;
        loop {
            let woken = self.wake.notified();
            let (due, wishes) = self.look((self.clock)());
            wishes.into_iter().for_each(&mut wish);
            let mut answers = Vec::new();
            for sent in due {
                let Server::Here(server) = &self.server else {
                    // Whoever takes the orders ends with this.
                    let _ = orders.send(sent);
                    continue;
                };
                let answer = match server.call(&sent.request) {
                    Called::Reply(reply) => Some(Answer::Reply(reply)),
                    Called::Watch(stream) => {
                        next_watch += 1;
                        let (watch, sender) = (WatchId(next_watch), sender.clone());
                        tasks.spawn(pass_on(watch, Stream::Here(stream), sender));
                        Some(Answer::Watch(watch))
                    }
                    Called::Proxy(_) | Called::Log(_) => None,
                };
                answers.push(Heard::Answered(sent.id, answer));
            }
            if !answers.is_empty() {
                self.take_in(answers);
                continue;
            }
            let now = (self.clock)();
            let sleep = self.next_at().map_or(LONGEST_SLEEP, |at| at.since(now).min(LONGEST_SLEEP));
            tokio::select! {
                () = woken => {}
                () = tokio::time::sleep(sleep) => {}
                first = heard.recv() => {
                    let more = std::iter::from_fn(|| heard.try_recv().ok());
                    self.take_in(first.into_iter().chain(more));
                }
                Some(_) = tasks.join_next() => {}
            }
        }
    }

    fn look(&self, now: Time) -> (Vec<Sent>, Vec<Wish>) {
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        let due = inner.due(now);
        let nodes = inner.find_mut::<Nodes>().filter(|nodes| nodes.dashboard().is_none());
        let wishes = nodes.map(|nodes| {
            let services = nodes.take_services().into_iter().map(Wish::Service);
            services.chain(nodes.take_orders().into_iter().map(Wish::Pod)).collect()
        });
        (due, wishes.unwrap_or_default())
    }

    fn take_in(&self, all: impl IntoIterator<Item = Heard>) {
        let now = (self.clock)();
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        for heard in all {
            match heard {
                Heard::Answered(id, Some(answer)) => inner.answered(id, &answer, now),
                Heard::Answered(id, None) => inner.failed(id, now),
                Heard::Line(watch, line) => inner.line(watch, &line, now),
            }
        }
    }

    fn next_at(&self) -> Option<Time> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner).next_at()
    }
}

/// An open watch.
enum Stream {
    Here(WatchStream),
    Elsewhere(Lines),
}

impl Stream {
    async fn next(&mut self) -> Option<WatchEvent> {
        match self {
            Stream::Here(stream) => stream.next().await,
            Stream::Elsewhere(lines) => lines.next().await,
        }
    }
}

/// Asks a server elsewhere, one request after the other; watches go on beside them.
async fn ask_in_order(remote: Arc<Remote>, mut orders: UnboundedReceiver<Sent>, heard: UnboundedSender<Heard>) {
    let mut watches = JoinSet::new();
    let mut next_watch = 0;
    while let Some(Sent { id, request }) = orders.recv().await {
        let answer = if request.is_watch() {
            match remote.watch(&request).await {
                Some(Opened::Lines(lines)) => {
                    next_watch += 1;
                    let (watch, sender) = (WatchId(next_watch), heard.clone());
                    // Its lines mean nothing before the answer.
                    let _ = heard.send(Heard::Answered(id, Some(Answer::Watch(watch))));
                    watches.spawn(pass_on(watch, Stream::Elsewhere(lines), sender));
                    while watches.try_join_next().is_some() {}
                    continue;
                }
                Some(Opened::Reply(reply)) => Some(reply),
                None => None,
            }
        } else {
            remote.ask(&request).await
        };
        // Nobody listens while the sandbox ends.
        let _ = heard.send(Heard::Answered(id, answer.map(Answer::Reply)));
    }
}

/// Sends the lines of one watch on, and its end.
async fn pass_on(watch: WatchId, mut stream: Stream, heard: UnboundedSender<Heard>) {
    while let Some(event) = stream.next().await {
        if heard.send(Heard::Line(watch, Line::Event(event))).is_err() {
            return;
        }
    }
    // Nobody listens while the sandbox ends.
    let _ = heard.send(Heard::Line(watch, Line::End));
}

impl Backends for Around {
    fn find(&self, call: &ProxyCall, _: Time) -> Option<Backend> {
        self.with(|around, now| around.proxy(call, now)).map(Backend::Reply)
    }
}

impl Logs for Around {
    fn open(&self, call: &LogCall, _: Time) -> Result<Receiver<Bytes>, Reply> {
        let Some(reply) = self.with(|around, now| around.log(call, now)) else {
            let text = format!("no log is kept of container {} of pod {}", call.container, call.pod);
            let status = serde_json::json!({
                "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "message": text,
                "reason": "NotFound", "code": 404,
            });
            return Err(as_reply(404, &status));
        };
        let (pieces, received) = mpsc::channel(1);
        // One piece, and the end: what only seems to run writes nothing later.
        let _ = pieces.try_send(Bytes::copy_from_slice(&reply.body));
        Ok(received)
    }
}

fn as_reply(status: u16, body: &Value) -> Reply {
    let headers = vec![("content-type".to_owned(), "application/json".to_owned())];
    Reply { status, headers, body: super::object::bytes(body) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::wire::Request;
    use crate::sandbox::apiserver::{ApiServer, Options};
    use crate::sandbox::http::wall_clock;
    use crate::sandbox::world::fleet::Fleet;
    use crate::sandbox::world::object::{body, list, post, text};
    use crate::sandbox::world::simulated::{JobTimes, Profile};

    const FAST: Profile = Profile {
        start_ms: (1, 5),
        init_ms: (1, 5),
        ready_ms: (1, 5),
        run_ms: (1, 5),
        stop_ms: (1, 5),
        jobs: JobTimes { pending_ms: (1, 5), running_ms: (1, 5) },
    };

    #[tokio::test]
    async fn a_member_runs_a_job_in_real_time() {
        let server = SharedServer::new(ApiServer::new(Options::default()), wall_clock());
        let fleet = Fleet::default();
        let member = &fleet.members[0];
        for request in fleet.member_set_up(member) {
            let reply = server.ask(&request);
            assert!(reply.is_success(), "{}: {}", request.target, body(&reply));
        }
        let around = Around::new(&server, member.simulated(201, FAST));
        let running = tokio::spawn(around.run(|wish| panic!("simulated nodes wish for nothing: {wish:?}")));
        let jobs = "/apis/batch/v1/namespaces/default/jobs";
        let job = serde_json::json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "j"}, "spec": {
            "template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "x"}]}}}});
        assert!(server.ask(&post(jobs, &job)).is_success());
        let complete = async {
            loop {
                let status = body(&server.ask(&Request::get(format!("{jobs}/j"))));
                if list(&status, "/status/conditions").iter().any(|c| text(c, "/type") == "Complete") {
                    return;
                }
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        tokio::time::timeout(Duration::from_mins(1), complete).await.unwrap();
        running.abort();
    }
}
