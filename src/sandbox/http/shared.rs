//! One API server for many callers: a lock around the core, and a channel for each open watch.
//! Must not know TCP. Whoever changes the core through `with` has its watch lines sent on before the lock is let go.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::{Duration, SystemTime};

use tokio::sync::Notify;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use crate::api::Time;
use crate::api::wire::{Reply, Request};
use crate::sandbox::apiserver::auth::Credentials;
use crate::sandbox::apiserver::{Answer, ApiServer, Line, LogCall, ProxyCall, WatchEvent, WatchId};

/// Tells the time; the core itself never asks.
pub type Clock = Arc<dyn Fn() -> Time + Send + Sync>;

/// The machine's clock.
pub fn wall_clock() -> Clock {
    Arc::new(|| {
        let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or(Duration::ZERO);
        Time(i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
    })
}

/// Lines that a watch may lag behind before it is cut, as a real server cuts slow watchers. Above any first state.
const LAG_LINES: usize = 100_000;

/// An API server that many tasks call.
pub struct SharedServer {
    inner: Mutex<Inner>,
    clock: Clock,
    authenticates: bool,
    /// The next tick may have moved.
    changed: Notify,
}

struct Inner {
    server: ApiServer,
    streams: BTreeMap<WatchId, Stream>,
}

struct Stream {
    lines: UnboundedSender<WatchEvent>,
    waiting: Arc<AtomicUsize>,
}

/// What came of a call.
pub enum Called {
    /// A whole reply.
    Reply(Reply),
    /// A watch; ends when dropped.
    Watch(WatchStream),
    /// Somebody else must be asked.
    Proxy(ProxyCall),
    /// Somebody else has the log.
    Log(LogCall),
}

/// The lines of one watch. Dropping it closes the watch.
pub struct WatchStream {
    id: WatchId,
    lines: UnboundedReceiver<WatchEvent>,
    waiting: Arc<AtomicUsize>,
    server: Arc<SharedServer>,
}

impl SharedServer {
    /// Wraps a server.
    pub fn new(server: ApiServer, clock: Clock) -> Arc<Self> {
        let authenticates = server.authenticates();
        let inner = Mutex::new(Inner { server, streams: BTreeMap::new() });
        Arc::new(Self { inner, clock, authenticates, changed: Notify::new() })
    }

    /// Whether the server asks who asks.
    pub fn authenticates(&self) -> bool {
        self.authenticates
    }

    /// Present time of the server's clock.
    pub fn now(&self) -> Time {
        (self.clock)()
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        // A panic elsewhere leaves the core as it was between two requests: it never waits or calls out.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs something on the core and sends on the watch lines that came of it.
    pub fn with<T>(&self, act: impl FnOnce(&mut ApiServer, Time) -> T) -> T {
        let now = self.now();
        let mut inner = self.lock();
        let out = act(&mut inner.server, now);
        inner.send_lines();
        drop(inner);
        self.changed.notify_one();
        out
    }

    /// One request of whoever runs the server.
    pub fn call(self: &Arc<Self>, request: &Request) -> Called {
        self.answered(|server, now| server.handle(request, now))
    }

    /// One request of whoever sent it.
    pub fn call_as(self: &Arc<Self>, request: &Request, credentials: &Credentials) -> Called {
        self.answered(|server, now| server.serve(request, credentials, now))
    }

    fn answered(self: &Arc<Self>, ask: impl FnOnce(&mut ApiServer, Time) -> Answer) -> Called {
        let now = self.now();
        let mut inner = self.lock();
        let answer = ask(&mut inner.server, now);
        let called = match answer {
            Answer::Reply(reply) => Called::Reply(reply),
            Answer::Proxy(call) => Called::Proxy(call),
            Answer::Log(call) => Called::Log(call),
            Answer::Watch(id) => {
                // The stream must be there before the first lines are sent on.
                let (lines, received) = unbounded_channel();
                let waiting = Arc::new(AtomicUsize::new(0));
                inner.streams.insert(id, Stream { lines, waiting: waiting.clone() });
                Called::Watch(WatchStream { id, lines: received, waiting, server: self.clone() })
            }
        };
        inner.send_lines();
        drop(inner);
        self.changed.notify_one();
        called
    }

    /// One request whose answer is a whole reply. Anything else is refused with status 501: for callers in this process
    /// that neither watch nor proxy.
    pub fn ask(self: &Arc<Self>, request: &Request) -> Reply {
        match self.call(request) {
            Called::Reply(reply) => reply,
            _ => Reply { status: 501, headers: Vec::new(), body: b"no whole reply".as_slice().into() },
        }
    }

    /// Sends bookmarks and ends watches when their time comes. Runs until dropped.
    pub async fn keep_time(self: Arc<Self>) {
        loop {
            let next = self.lock().server.next_tick();
            let changed = self.changed.notified();
            match next {
                Some(time) if time <= self.now() => self.with(ApiServer::tick),
                Some(time) => {
                    tokio::select! {
                        () = changed => {}
                        () = tokio::time::sleep(time.since(self.now())) => {}
                    }
                }
                None => changed.await,
            }
        }
    }
}

impl Inner {
    fn send_lines(&mut self) {
        for (id, line) in self.server.take_lines() {
            let keep = match (&line, self.streams.get(&id)) {
                (Line::Event(event), Some(stream)) => {
                    let behind = stream.waiting.fetch_add(1, Ordering::Relaxed);
                    behind < LAG_LINES && stream.lines.send(event.clone()).is_ok()
                }
                (Line::End, Some(_)) => false,
                (_, None) => continue,
            };
            if !keep {
                // Dropping the sender ends the stream for its reader, after the lines that it has not read yet.
                self.streams.remove(&id);
                self.server.close_watch(id);
            }
        }
    }
}

impl WatchStream {
    /// The next event; `None` when the server has ended the watch.
    pub async fn next(&mut self) -> Option<WatchEvent> {
        std::future::poll_fn(|cx| self.poll_next(cx)).await
    }

    /// `next` for those who poll.
    pub fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<WatchEvent>> {
        let line = self.lines.poll_recv(cx);
        if let Poll::Ready(Some(_)) = &line {
            self.waiting.fetch_sub(1, Ordering::Relaxed);
        }
        line
    }
}

impl Drop for WatchStream {
    fn drop(&mut self) {
        let mut inner = self.server.lock();
        if inner.streams.remove(&self.id).is_some() {
            inner.server.close_watch(self.id);
        }
    }
}
