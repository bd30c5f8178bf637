//! The informer's wits: list, then watch, then resume, for one kind of one cluster. Pure: events and the time go in,
//! requests and table changes come out; shell and simulator drive exactly this.
//! Must not know sockets, clocks, tasks.

use std::fmt::{self, Write as _};
use std::sync::Arc;
use std::time::Duration;

use fastrand::Rng;

use crate::api::wire::Request;
use crate::api::{Cluster, Id, Kind, Time, Version};
use crate::row::{DecodeError, Quarantined, Row, TableChange, WatchLine, decode_list, decode_status};

/// Objects per page of a list.
const PAGE_OBJECTS: u32 = 500;
/// A list of more bytes than this in all is given up.
const LIST_BYTES_MAX: usize = 1 << 30;
/// A line of a watch of more bytes than this is given up by the driver.
pub const LINE_BYTES_MAX: usize = 16 << 20;
/// A stream that lived shorter than this counts as a failure, however politely it ended: a server that ends each at
/// once would else be asked without pause.
const STREAM_AGE_MIN: Duration = Duration::from_secs(5);
/// A page of a list, or the head of a watch's reply, must come within this.
const REPLY_LIMIT: Duration = Duration::from_secs(30);
/// How long after its own time limit a watch may still be open before it counts as silent.
const SILENCE_GRACE: Duration = Duration::from_secs(10);
const BACK_OFF_FIRST_MS: u64 = 500;
const BACK_OFF_LAST_MS: u64 = 30_000;
/// So many failures to resume in a row from one version, and the version itself is doubted.
const RESUMES_MAX: u32 = 4;

/// One thing that happened. Answers belong to the request that was sent last: the driver delivers nothing of an earlier
/// one after [`InformerEffect::Send`] or [`InformerEffect::Cancel`].
#[derive(Clone, Debug, PartialEq)]
pub enum InformerEvent {
    /// Begin.
    Start,
    /// A page of a list came, or a refusal.
    ListReply {
        /// HTTP status.
        status: u16,
        /// Whole body.
        body: Arc<[u8]>,
    },
    /// The watch's reply has begun with status 200.
    WatchOpened,
    /// The watch was refused.
    WatchRefused {
        /// HTTP status.
        status: u16,
        /// Whole body.
        body: Arc<[u8]>,
    },
    /// One whole line of the watch, decoded by the informer's kind; or why it is none.
    Line(Result<WatchLine, DecodeError>),
    /// The watch's stream has ended.
    Ended(End),
    /// No answer: the connection could not be made or was lost before it. In words without secrets.
    Failed(String),
    /// Somebody wants a new consistent list, begun from now on.
    Relist,
    /// The time that was asked for has come.
    Timer,
}

/// How a stream ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// As HTTP wants it.
    Clean,
    /// In the middle.
    Cut,
    /// The driver noticed that the connection is dead.
    Silent,
    /// A line was longer than [`LINE_BYTES_MAX`].
    TooLong,
}

/// What the driver should do, in order.
#[derive(Clone, Debug, PartialEq)]
pub enum InformerEffect {
    /// Send this list or watch ([`Request::is_watch`]); whatever was under way before is dropped.
    Send(Request),
    /// Drop what is under way.
    Cancel,
    /// Call with [`InformerEvent::Timer`] at this time; replaces the former one.
    Timer(Time),
    /// News for the table.
    Change(TableChange),
    /// A list begins, for this reason: for metrics and logs.
    Relisting(Reason),
}

/// Why a list is taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reason {
    /// The first one.
    Start,
    /// Somebody asked for it: a barrier, a doubt.
    Asked,
    /// The version to resume from is too old for the server (410).
    Expired,
    /// The server showed a version older than one that we have seen: it was restored, or is another one.
    WentBack {
        /// Highest version seen before.
        from: Version,
        /// What it showed.
        to: Version,
    },
    /// Resuming failed again and again.
    Stuck,
    /// The list before this one failed.
    Again,
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Reason::Start => f.write_str("start"),
            Reason::Asked => f.write_str("asked for"),
            Reason::Expired => f.write_str("version expired"),
            Reason::WentBack { from, to } => write!(f, "the server went back from version {from} to {to}"),
            Reason::Stuck => f.write_str("resuming failed again and again"),
            Reason::Again => f.write_str("list failed"),
        }
    }
}

/// The informer of one kind of one cluster.
#[derive(Debug)]
pub struct Informer {
    cluster: Cluster,
    kind: Kind,
    rng: Rng,
    state: State,
    /// Highest version seen; 0 = nothing listed yet.
    version: Version,
    listed_once: bool,
    /// Failures since the last stream that lived long enough.
    failures: u32,
    /// Failures to resume since the last line.
    resumes_failed: u32,
    failing_since: Option<Time>,
    heard: Time,
    /// A list was asked for while one was under way.
    again: bool,
}

#[derive(Debug)]
enum State {
    Idle,
    /// Nothing under way until then.
    Waiting {
        until: Time,
        then: Next,
    },
    Listing(Listing),
    Watching {
        sent: Time,
        opened: Option<Time>,
        limit: Duration,
    },
}

#[derive(Debug, Clone)]
enum Next {
    List(Reason),
    Watch,
}

#[derive(Debug)]
struct Listing {
    begun: Time,
    page_sent: Time,
    rows: Vec<Row>,
    quarantined: Vec<(Id, Quarantined)>,
    bytes: usize,
}

type Effects = Vec<InformerEffect>;

impl Informer {
    /// An informer that does nothing until [`InformerEvent::Start`]. `seed` decides its jitter and nothing else.
    pub fn new(cluster: Cluster, kind: Kind, seed: u64) -> Self {
        Self {
            cluster,
            kind,
            rng: Rng::with_seed(seed),
            state: State::Idle,
            version: Version(0),
            listed_once: false,
            failures: 0,
            resumes_failed: 0,
            failing_since: None,
            heard: Time(0),
            again: false,
        }
    }

    /// The cluster.
    pub fn cluster(&self) -> &Cluster {
        &self.cluster
    }

    /// The kind.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// Takes one event in.
    pub fn handle(&mut self, event: InformerEvent, now: Time) -> Vec<InformerEffect> {
        let mut out = Vec::new();
        let deadline_before = self.deadline();
        match event {
            InformerEvent::Start => {
                if matches!(self.state, State::Idle) {
                    self.list(Reason::Start, now, &mut out);
                }
            }
            InformerEvent::Relist => self.relist_asked(now, &mut out),
            InformerEvent::ListReply { status, body } => self.on_page(status, &body, now, &mut out),
            InformerEvent::WatchOpened => {
                if let State::Watching { opened, .. } = &mut self.state {
                    opened.get_or_insert(now);
                    self.heard = now;
                    self.again = false;
                }
            }
            InformerEvent::WatchRefused { status, body } => {
                if matches!(self.state, State::Watching { .. }) {
                    self.on_watch_error(status, &refusal(status, &body), now, &mut out);
                }
            }
            InformerEvent::Line(line) => self.on_line(line, now, &mut out),
            InformerEvent::Ended(end) => self.on_end(end, now, &mut out),
            InformerEvent::Failed(error) => match self.state {
                State::Listing(_) => self.list_failed(&error, now, &mut out),
                State::Watching { .. } => self.resume_failed(&error, now, &mut out),
                State::Idle | State::Waiting { .. } => {}
            },
            InformerEvent::Timer => self.on_timer(now, &mut out),
        }
        if let Some(at) = self.deadline()
            && (deadline_before != Some(at) || out.iter().any(|e| matches!(e, InformerEffect::Send(_))))
        {
            out.push(InformerEffect::Timer(at));
        }
        out
    }

    /// When the timer must ring.
    fn deadline(&self) -> Option<Time> {
        match &self.state {
            State::Idle => None,
            State::Waiting { until, .. } => Some(*until),
            State::Listing(listing) => Some(listing.page_sent + REPLY_LIMIT),
            State::Watching { sent, opened: None, .. } => Some(*sent + REPLY_LIMIT),
            State::Watching { opened: Some(opened), limit, .. } => Some(*opened + *limit + SILENCE_GRACE),
        }
    }

    fn on_timer(&mut self, now: Time, out: &mut Effects) {
        let Some(at) = self.deadline() else { return };
        if now < at {
            // Rung early: whoever rings may go by a clock that runs faster than `now`.
            out.push(InformerEffect::Timer(at));
            return;
        }
        match &self.state {
            State::Idle => {}
            State::Waiting { then: Next::List(reason), .. } => self.list(reason.clone(), now, out),
            State::Waiting { then: Next::Watch, .. } => self.watch(now, out),
            State::Listing(_) => {
                out.push(InformerEffect::Cancel);
                self.list_failed("no answer in time", now, out);
            }
            State::Watching { opened: None, .. } => {
                out.push(InformerEffect::Cancel);
                self.resume_failed("no answer in time", now, out);
            }
            State::Watching { opened: Some(_), .. } => {
                out.push(InformerEffect::Cancel);
                self.on_end(End::Silent, now, out);
            }
        }
    }

    fn relist_asked(&mut self, now: Time, out: &mut Effects) {
        match &mut self.state {
            State::Idle => {}
            // The server is in trouble: what comes next will be the list, but not earlier.
            State::Waiting { then, .. } => {
                if matches!(then, Next::Watch) {
                    *then = Next::List(Reason::Asked);
                }
            }
            // The one under way may have been begun too early: it is finished (else many wishes could keep it from ever
            // ending), then another follows.
            State::Listing(listing) => self.again = listing.begun < now,
            State::Watching { .. } => {
                out.push(InformerEffect::Cancel);
                self.list(Reason::Asked, now, out);
            }
        }
    }

    // --- list ---

    fn list(&mut self, reason: Reason, now: Time, out: &mut Effects) {
        out.push(InformerEffect::Relisting(reason));
        self.again = false;
        let listing = Listing { begun: now, page_sent: now, rows: Vec::new(), quarantined: Vec::new(), bytes: 0 };
        self.state = State::Listing(listing);
        // No resourceVersion: the server answers with the latest state, not with what some cache of it happens to hold.
        let target = format!("{}?limit={PAGE_OBJECTS}", self.kind.collection_path(None));
        out.push(InformerEffect::Send(Request::get(target)));
    }

    fn on_page(&mut self, status: u16, body: &[u8], now: Time, out: &mut Effects) {
        let State::Listing(listing) = &mut self.state else { return };
        if status != 200 {
            let unserved = status == 404 && !self.listed_once;
            let begun = listing.begun;
            if unserved {
                out.push(InformerEffect::Change(TableChange::Unserved { begun }));
            }
            self.list_failed(&refusal(status, body), now, out);
            return;
        }
        listing.bytes = listing.bytes.saturating_add(body.len());
        if listing.bytes > LIST_BYTES_MAX {
            self.list_failed(&format!("the list is longer than {LIST_BYTES_MAX} bytes"), now, out);
            return;
        }
        let page = match decode_list(self.kind, body) {
            Ok(page) => page,
            Err(error) => {
                self.list_failed(&error.to_string(), now, out);
                return;
            }
        };
        listing.rows.extend(page.rows);
        listing.quarantined.extend(page.quarantined);
        if let Some(token) = page.next {
            listing.page_sent = now;
            let path = self.kind.collection_path(None);
            let target = format!("{path}?limit={PAGE_OBJECTS}&continue={}", query_escaped(&token));
            out.push(InformerEffect::Send(Request::get(target)));
            return;
        }
        let rows = std::mem::take(&mut listing.rows);
        let quarantined = std::mem::take(&mut listing.quarantined);
        let begun = listing.begun;
        // A consistent list is the truth, also where it is older than what we saw: say so, and go on from there.
        if page.version < self.version {
            out.push(InformerEffect::Relisting(Reason::WentBack { from: self.version, to: page.version }));
        }
        self.version = page.version;
        self.listed_once = true;
        self.failing_since = None;
        self.resumes_failed = 0;
        self.heard = now;
        out.push(InformerEffect::Change(TableChange::Reset { rows, quarantined, version: page.version, begun }));
        if self.again {
            self.list(Reason::Asked, now, out);
        } else {
            self.watch(now, out);
        }
    }

    fn list_failed(&mut self, error: &str, now: Time, out: &mut Effects) {
        self.failed(format!("list of {}: {error}", self.kind), now, out);
        self.wait(Next::List(Reason::Again), now);
    }

    // --- watch ---

    fn watch(&mut self, now: Time, out: &mut Effects) {
        // Spread over a minute: servers and we would else meet all ends at one moment.
        let seconds = self.rng.u64(60..=120);
        self.state = State::Watching { sent: now, opened: None, limit: Duration::from_secs(seconds) };
        let target = format!(
            "{}?allowWatchBookmarks=true&resourceVersion={}&timeoutSeconds={seconds}&watch=true",
            self.kind.collection_path(None),
            self.version
        );
        out.push(InformerEffect::Send(Request::get(target)));
    }

    fn on_line(&mut self, line: Result<WatchLine, DecodeError>, now: Time, out: &mut Effects) {
        if !matches!(self.state, State::Watching { .. }) {
            return;
        }
        self.heard = now;
        let change = match line {
            Ok(WatchLine::Added(row) | WatchLine::Modified(row)) => (row.version, TableChange::Upsert(row)),
            Ok(WatchLine::Deleted { id, uid, version }) => (version, TableChange::Remove { id, uid, version }),
            Ok(WatchLine::Bookmark(version)) => (version, TableChange::Progress(version)),
            Ok(WatchLine::Quarantined { id, version, object }) => {
                (version.max(self.version), TableChange::Quarantine { id, object, version })
            }
            Ok(WatchLine::Error { code, reason, message }) => {
                out.push(InformerEffect::Cancel);
                self.on_watch_error(code, &format!("{code} {reason}: {message}"), now, out);
                return;
            }
            Err(error) => {
                out.push(InformerEffect::Cancel);
                self.resume_failed(&error.to_string(), now, out);
                return;
            }
        };
        let (version, change) = change;
        if version < self.version {
            let reason = Reason::WentBack { from: self.version, to: version };
            out.push(InformerEffect::Cancel);
            self.failed(format!("watch of {}: {reason}", self.kind), now, out);
            self.relist(reason, now, out);
            return;
        }
        self.version = version;
        self.resumes_failed = 0;
        self.failing_since = None;
        out.push(InformerEffect::Change(change));
    }

    fn on_watch_error(&mut self, code: u16, error: &str, now: Time, out: &mut Effects) {
        if code == 410 {
            self.failed(format!("watch of {}: {error}", self.kind), now, out);
            self.relist(Reason::Expired, now, out);
        } else {
            self.resume_failed(error, now, out);
        }
    }

    fn on_end(&mut self, end: End, now: Time, out: &mut Effects) {
        let (lived, heard) = match &self.state {
            State::Watching { opened, .. } => (opened.map_or(Duration::ZERO, |at| now.since(at)), self.heard),
            State::Listing(_) => {
                self.list_failed("the answer was cut", now, out);
                return;
            }
            State::Idle | State::Waiting { .. } => return,
        };
        let error = match end {
            End::Clean if lived >= STREAM_AGE_MIN => {
                self.failures = 0;
                self.watch(now, out);
                return;
            }
            End::Cut if lived >= STREAM_AGE_MIN => {
                self.failures = 0;
                let delay = Duration::from_millis(self.rng.u64(0..1000));
                self.state = State::Waiting { until: now + delay, then: Next::Watch };
                return;
            }
            End::Clean | End::Cut => format!("the stream ended after {} ms", lived.as_millis()),
            End::Silent => {
                // Silent all along, not since now.
                self.failing_since.get_or_insert(heard);
                "the stream fell silent".to_owned()
            }
            End::TooLong => format!("a line is longer than {LINE_BYTES_MAX} bytes"),
        };
        self.resume_failed(&error, now, out);
    }

    /// The watch cannot go on: later from the same version, or, if that never works, from a new list.
    fn resume_failed(&mut self, error: &str, now: Time, out: &mut Effects) {
        self.resumes_failed += 1;
        self.failed(format!("watch of {}: {error}", self.kind), now, out);
        let next = if self.resumes_failed >= RESUMES_MAX { Next::List(Reason::Stuck) } else { Next::Watch };
        self.wait(next, now);
    }

    // --- failure ---

    /// A new list at once, if this is the first trouble in a while; else after the back-off.
    fn relist(&mut self, reason: Reason, now: Time, out: &mut Effects) {
        if self.failures <= 1 { self.list(reason, now, out) } else { self.wait(Next::List(reason), now) }
    }

    fn failed(&mut self, error: String, now: Time, out: &mut Effects) {
        let lived = match &self.state {
            State::Watching { opened: Some(at), .. } => now.since(*at) >= STREAM_AGE_MIN,
            _ => false,
        };
        self.failures = if lived { 1 } else { self.failures.saturating_add(1) };
        let since = *self.failing_since.get_or_insert(now);
        out.push(InformerEffect::Change(TableChange::Silent { since, error }));
    }

    fn wait(&mut self, then: Next, now: Time) {
        let full = BACK_OFF_FIRST_MS.saturating_mul(1 << self.failures.saturating_sub(1).min(10)).min(BACK_OFF_LAST_MS);
        let delay = Duration::from_millis(self.rng.u64(full / 2..=full));
        let then = if self.again { Next::List(Reason::Asked) } else { then };
        self.state = State::Waiting { until: now + delay, then };
    }
}

/// A refusal in words.
fn refusal(status: u16, body: &[u8]) -> String {
    match decode_status(body) {
        Some((reason, message)) => format!("{status} {reason}: {message}"),
        None => format!("HTTP status {status}"),
    }
}

/// Percent-encoded for a query value.
fn query_escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            out.push(char::from(byte));
        } else {
            let _ = write!(out, "%{byte:02X}");
        }
    }
    out
}

#[cfg(test)]
#[path = "core_tests.rs"]
mod tests;
