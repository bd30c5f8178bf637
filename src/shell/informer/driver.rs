//! Drives one informer's core: sends its lists, reads its watches, rings its timer, passes its news on.
//! Must not decide when to list or what a line means: the core does.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use super::core::{End, Informer, InformerEffect, InformerEvent};
use crate::api::wire::Request;
use crate::api::{Cluster, Kind, Time};
use crate::row::{TableChange, decode_line};
use crate::shell::client::{LineStream, Opened, StreamError};
use crate::shell::clock::Clock;
use crate::shell::doors::Doors;
use crate::shell::lanes::Lane;

/// Longer than the core's own limits: it cancels by its timer, this is for the case that it does not.
const REQUEST_LIMIT: Duration = Duration::from_secs(40);

/// What an informer says, and of what.
pub type RowNews = (Cluster, Kind, TableChange);

/// A running informer; ends when dropped.
#[derive(Debug)]
pub struct Driver {
    relist: mpsc::Sender<()>,
    task: JoinHandle<()>,
}

impl Drop for Driver {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Driver {
    /// Starts an informer of one kind of one cluster; its news go to `news`, which may push back.
    pub fn start(
        cluster: Cluster,
        kind: Kind,
        doors: Arc<Doors>,
        clock: Arc<Clock>,
        news: mpsc::Sender<RowNews>,
    ) -> Self {
        let (relist, wishes) = mpsc::channel(1);
        let informer = Informer::new(cluster, kind, fastrand::u64(..));
        let drive = Drive { informer, doors, clock, news, work: Work::Idle, timer: None };
        Self { relist, task: tokio::spawn(drive.run(wishes)) }
    }

    /// Asks for a new consistent list, begun from now on.
    pub fn relist(&self) {
        // A full queue holds such a wish that has not been looked at: a later list serves both.
        let _queued = self.relist.try_send(());
    }
}

struct Drive {
    informer: Informer,
    doors: Arc<Doors>,
    clock: Arc<Clock>,
    news: mpsc::Sender<RowNews>,
    work: Work,
    timer: Option<Time>,
}

/// What is under way; kept across waits, so that a wish or the timer does not tear it.
enum Work {
    Idle,
    Request(Pin<Box<dyn Future<Output = Answer> + Send>>),
    Stream(LineStream),
}

enum Answer {
    Event(InformerEvent),
    Opened(LineStream),
}

impl Drive {
    async fn run(mut self, mut wishes: mpsc::Receiver<()>) {
        if !self.handle(InformerEvent::Start).await {
            return;
        }
        let kind = self.informer.kind();
        loop {
            let ring = self.timer.map_or(Duration::MAX, |at| self.clock.until(at));
            let event = tokio::select! {
                biased;
                wish = wishes.recv() => match wish {
                    Some(()) => InformerEvent::Relist,
                    None => return,
                },
                () = tokio::time::sleep(ring), if self.timer.is_some() => {
                    self.timer = None;
                    InformerEvent::Timer
                }
                event = self.work.next(kind) => event,
            };
            if !self.handle(event).await {
                return;
            }
        }
    }

    /// Carries out what the core says to the event; false when nobody listens any more.
    async fn handle(&mut self, event: InformerEvent) -> bool {
        let now = self.clock.now();
        for effect in self.informer.handle(event, now) {
            match effect {
                InformerEffect::Send(request) => self.work = self.send(request),
                InformerEffect::Cancel => self.work = Work::Idle,
                InformerEffect::Timer(at) => self.timer = Some(at),
                InformerEffect::Relisting(reason) => {
                    let (cluster, kind) = (self.informer.cluster(), self.informer.kind());
                    metrics::counter!("rayfleet_informer_lists_total", "cluster" => cluster.to_string(), "kind" => kind.name())
                        .increment(1);
                    tracing::debug!(%cluster, %kind, %reason, "list");
                }
                InformerEffect::Change(change) => {
                    let news = (self.informer.cluster().clone(), self.informer.kind(), change);
                    if self.news.send(news).await.is_err() {
                        return false;
                    }
                }
            }
        }
        true
    }

    fn send(&self, request: Request) -> Work {
        let cluster = self.informer.cluster();
        let Some(client) = self.doors.get(cluster) else {
            let gone = format!("{cluster} cannot be reached: it has no client");
            return Work::Request(Box::pin(std::future::ready(Answer::Event(InformerEvent::Failed(gone)))));
        };
        Work::Request(Box::pin(async move {
            if !request.is_watch() {
                return Answer::Event(match client.send(Lane::Sight, &request, REQUEST_LIMIT).await {
                    Ok(reply) => InformerEvent::ListReply { status: reply.status, body: reply.body },
                    Err(error) => InformerEvent::Failed(error.to_string()),
                });
            }
            match client.watch(&request, REQUEST_LIMIT).await {
                Ok(Opened::Stream(stream)) => Answer::Opened(stream),
                Ok(Opened::Reply(reply)) => {
                    Answer::Event(InformerEvent::WatchRefused { status: reply.status, body: reply.body })
                }
                Err(error) => Answer::Event(InformerEvent::Failed(error.to_string())),
            }
        }))
    }
}

impl Work {
    /// The next event of what is under way. Dropping the future loses nothing.
    async fn next(&mut self, kind: Kind) -> InformerEvent {
        match self {
            Work::Idle => std::future::pending().await,
            Work::Request(request) => match request.await {
                Answer::Event(event) => {
                    *self = Work::Idle;
                    event
                }
                Answer::Opened(stream) => {
                    *self = Work::Stream(stream);
                    InformerEvent::WatchOpened
                }
            },
            Work::Stream(stream) => {
                let end = match stream.next().await {
                    Ok(Some(line)) => return InformerEvent::Line(decode_line(kind, &line)),
                    Ok(None) => End::Clean,
                    Err(StreamError::TooLong(_)) => End::TooLong,
                    Err(StreamError::Cut(_)) => End::Cut,
                };
                *self = Work::Idle;
                InformerEvent::Ended(end)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shell::scripted::{Scripted, Step};

    const LIMIT: Duration = Duration::from_secs(20);

    fn list(version: u32, names: &[&str]) -> Step {
        let items: Vec<String> = names.iter().map(|name| object(name, version)).collect();
        Step::Reply(
            200,
            format!("{{\"metadata\":{{\"resourceVersion\":\"{version}\"}},\"items\":[{}]}}", items.join(",")),
        )
    }

    fn object(name: &str, version: u32) -> String {
        format!(
            "{{\"apiVersion\":\"v1\",\"kind\":\"Namespace\",\"metadata\":{{\"name\":\"{name}\",\"uid\":\"u-{name}\",\
             \"resourceVersion\":\"{version}\",\"creationTimestamp\":\"2026-11-29T00:00:00Z\"}}}}"
        )
    }

    async fn next(news: &mut mpsc::Receiver<RowNews>) -> TableChange {
        tokio::time::timeout(LIMIT, news.recv()).await.expect("news within the limit").expect("it runs").2
    }

    #[tokio::test]
    async fn rows_come_through_a_list_a_watch_and_a_list_on_demand() {
        let line = format!("{{\"type\":\"ADDED\",\"object\":{}}}\n", object("b", 6));
        let (half, rest) = line.split_at(20);
        let server = Scripted::start([
            list(5, &["a"]),
            Step::Open(vec![half.as_bytes().to_vec(), rest.as_bytes().to_vec()]),
            list(9, &["a", "b", "c"]),
            Step::Open(vec![]),
        ])
        .await;
        let doors = Arc::new(Doors::default());
        let client = server.client().await;
        let cluster = client.cluster().clone();
        doors.open(client);
        let (sender, mut news) = mpsc::channel(16);
        let driver = Driver::start(cluster, Kind::Namespace, doors, Arc::new(Clock::default()), sender);
        assert!(matches!(next(&mut news).await, TableChange::Reset { rows, .. } if rows.len() == 1));
        assert!(matches!(next(&mut news).await, TableChange::Upsert(row) if &*row.id.name == "b"));
        driver.relist();
        assert!(matches!(next(&mut news).await, TableChange::Reset { rows, .. } if rows.len() == 3));
        assert!(server.seen()[1].contains("resourceVersion=5") && server.seen()[1].contains("watch=true"));
    }

    #[tokio::test]
    async fn a_member_that_cannot_be_reached_is_silent_with_its_reason() {
        let (sender, mut news) = mpsc::channel(16);
        let cluster = Cluster::Member("eu".into());
        let _driver = Driver::start(cluster, Kind::Pod, Arc::default(), Arc::default(), sender);
        let TableChange::Silent { error, .. } = next(&mut news).await else { panic!("not silent") };
        assert!(error.contains("no client"), "{error}");
    }
}
