//! Writes Events for people: at most so many per object, repeats counted in a series instead of written again.
//! Knows the shape of `events.k8s.io/v1`. Must not hold anything back for them: what does not fit is counted and dropped.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use tokio::sync::mpsc;

use super::client::Client;
use super::clock::Clock;
use super::doors::Doors;
use super::lanes::Lane;
use crate::api::wire::{Method, Request};
use crate::api::{Cluster, Id, Kind, Time, Uid};
use crate::engine::request;
use crate::plan::Note;

/// Events that wait to be written at most; more are dropped and counted.
const QUEUE_LENGTH_MAX: usize = 256;
/// Different Events of one object in a row, and how fast that room comes back (client-go's limits).
const BURST: u32 = 25;
const REFILL_MS: i64 = 300_000;
/// A repeat within this time is counted in the series of the first.
const SERIES_MS: i64 = 600_000;
/// A series is written at most this often.
const SERIES_WRITTEN_EVERY_MS: i64 = 30_000;
/// Objects that are remembered at most; the oldest go first.
const REMEMBERED_MAX: usize = 4096;
const WRITE_LIMIT: Duration = Duration::from_secs(5);

/// Takes Events in, never waits.
#[derive(Clone, Debug)]
pub struct EventSink {
    queue: mpsc::Sender<Note>,
}

impl EventSink {
    /// Starts the writer. `instance` names this process in the Events.
    pub fn start(doors: Arc<Doors>, clock: Arc<Clock>, instance: Arc<str>) -> Self {
        let (queue, notes) = mpsc::channel(QUEUE_LENGTH_MAX);
        tokio::spawn(write_all(notes, doors, clock, instance));
        Self { queue }
    }

    /// Hands an Event over; drops it where too many wait.
    pub fn record(&self, note: Note) {
        if self.queue.try_send(note).is_err() {
            metrics::counter!("rayfleet_events_dropped_total", "reason" => "queue").increment(1);
        }
    }
}

async fn write_all(mut notes: mpsc::Receiver<Note>, doors: Arc<Doors>, clock: Arc<Clock>, instance: Arc<str>) {
    let mut limits = Limits::default();
    while let Some(note) = notes.recv().await {
        let Some(client) = doors.get(&note.cluster) else { continue };
        let now = clock.now();
        let request = match limits.judge(&note, now) {
            Verdict::Drop => {
                metrics::counter!("rayfleet_events_dropped_total", "reason" => "limit").increment(1);
                continue;
            }
            Verdict::Quiet => continue,
            Verdict::Create { name } => request::event(&note, &name, &instance, now),
            Verdict::Series { name, count } => series(&note, &name, count, now),
        };
        // One at a time per process would let a silent member hold back the others.
        tokio::spawn(send(client, request, note.about.clone()));
    }
}

async fn send(client: Arc<Client>, request: Request, about: Id) {
    match client.send(Lane::Effects, &request, WRITE_LIMIT).await {
        Ok(reply) if reply.is_success() => {}
        Ok(reply) => {
            tracing::debug!(%about, cluster = %client.cluster(), status = reply.status, "an Event was refused");
        }
        Err(error) => tracing::debug!(%about, cluster = %client.cluster(), %error, "an Event was not written"),
    }
}

/// What becomes of one Event.
#[derive(Debug, PartialEq, Eq)]
enum Verdict {
    Create {
        name: String,
    },
    Series {
        name: String,
        count: u32,
    },
    /// Counted; written with a later one.
    Quiet,
    Drop,
}

type What = (Cluster, Uid, Arc<str>, String);

/// What was written lately. Pure: time is handed in.
#[derive(Debug, Default)]
struct Limits {
    series: BTreeMap<What, Series>,
    budgets: BTreeMap<(Cluster, Uid), (u32, Time)>,
    written: u64,
}

#[derive(Debug)]
struct Series {
    name: String,
    count: u32,
    last: Time,
    written: Time,
}

impl Limits {
    fn judge(&mut self, note: &Note, now: Time) -> Verdict {
        let what = (note.cluster.clone(), note.uid.clone(), note.reason.clone(), note.note.clone());
        if let Some(series) = self.series.get_mut(&what)
            && now.0 - series.last.0 < SERIES_MS
        {
            series.count += 1;
            series.last = now;
            if now.0 - series.written.0 < SERIES_WRITTEN_EVERY_MS {
                return Verdict::Quiet;
            }
            series.written = now;
            return Verdict::Series { name: series.name.clone(), count: series.count };
        }
        if !self.spend(&note.cluster, &note.uid, now) {
            return Verdict::Drop;
        }
        self.written += 1;
        // Unique among processes by time, within one by the count.
        let name = format!("{}.{:x}.{:x}", note.about.name, now.0, self.written);
        self.forget_oldest();
        self.series.insert(what, Series { name: name.clone(), count: 1, last: now, written: now });
        Verdict::Create { name }
    }

    fn spend(&mut self, cluster: &Cluster, uid: &Uid, now: Time) -> bool {
        let (left, since) = self.budgets.entry((cluster.clone(), uid.clone())).or_insert((BURST, now));
        let refilled = u32::try_from((now.0 - since.0).max(0) / REFILL_MS).unwrap_or(u32::MAX);
        if refilled > 0 {
            *left = left.saturating_add(refilled).min(BURST);
            *since = now;
        }
        if *left == 0 {
            return false;
        }
        *left -= 1;
        true
    }

    fn forget_oldest(&mut self) {
        if self.series.len() >= REMEMBERED_MAX
            && let Some(oldest) = self.series.iter().min_by_key(|(_, s)| s.last).map(|(what, _)| what.clone())
        {
            self.series.remove(&oldest);
        }
        if self.budgets.len() >= REMEMBERED_MAX
            && let Some(oldest) = self.budgets.iter().min_by_key(|(_, (_, since))| *since).map(|(who, _)| who.clone())
        {
            self.budgets.remove(&oldest);
        }
    }
}

fn series(note: &Note, name: &str, count: u32, now: Time) -> Request {
    let body = json!({ "series": { "count": count, "lastObservedTime": now.micro_text() } });
    let path = format!("{}/{name}", Kind::Event.collection_path(Some(request::event_namespace(&note.about))));
    Request::new(Method::Patch, path, "application/merge-patch+json", Arc::from(body.to_string().as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn note(text: &str) -> Note {
        Note {
            cluster: Cluster::Hub,
            about: Id::new(Kind::RayJob, "default", "train"),
            uid: "u".into(),
            warning: true,
            reason: "InvalidRayJobSpec".into(),
            action: "Validate".into(),
            note: text.to_owned(),
        }
    }

    #[test]
    fn repeats_are_counted_in_one_series() {
        let mut limits = Limits::default();
        let Verdict::Create { name } = limits.judge(&note("a"), Time(0)) else { panic!("not created") };
        assert_eq!(limits.judge(&note("a"), Time(1_000)), Verdict::Quiet);
        assert_eq!(limits.judge(&note("a"), Time(31_000)), Verdict::Series { name, count: 3 });
        assert!(matches!(limits.judge(&note("a"), Time(31_000 + SERIES_MS)), Verdict::Create { .. }));
    }

    #[test]
    fn one_object_has_a_limit_and_another_its_own() {
        let mut limits = Limits::default();
        let written = (0..100).filter(|i| limits.judge(&note(&i.to_string()), Time(0)) != Verdict::Drop).count();
        assert_eq!(written, BURST as usize);
        let other = Note { uid: "v".into(), ..note("x") };
        assert!(matches!(limits.judge(&other, Time(0)), Verdict::Create { .. }));
        assert!(matches!(limits.judge(&note("later"), Time(REFILL_MS)), Verdict::Create { .. }));
    }

    #[test]
    fn an_event_carries_what_kubectl_shows() {
        let request = request::event(&note(&"ü".repeat(600)), "train.1", "seat-a", Time(0));
        let body: serde_json::Value = serde_json::from_slice(&request.body).unwrap();
        assert_eq!(request.target, "/apis/events.k8s.io/v1/namespaces/default/events");
        assert_eq!(body["regarding"]["uid"], "u");
        assert_eq!(body["reportingController"], "rayjob-controller");
        assert_eq!(body["note"].as_str().unwrap().len(), 1024);
        assert_eq!(body["eventTime"], "1970-01-01T00:00:00.000000Z");
    }
}
