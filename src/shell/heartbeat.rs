//! Drives the core of `shards`: reads and writes the Leases of seats and units on the hub. On its own thread with its own
//! runtime and connections, so that a busy executor cannot starve it; and not at all when the rest of the process stands
//! still (`sharding.md` 2.4).
//! Must not decide who owns what, or know what a unit stands for.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use kube::config::Config;
use serde_json::{Value, json};
use shards::core::{Call, Effect, Failure, Identity, Input, Profile, Shards};
use shards::{Mono, Record};
use tokio::sync::mpsc;

use super::authority::Standing;
use super::client::{Client, SendError};
use super::clock::Clock;
use super::lanes::Lane;
use super::process;
use crate::api::wire::{Method, Reply, Request};
use crate::api::{Cluster, Id, Kind};

/// A process whose loop did not turn for this long keeps no units: it does not renew.
const PROGRESS_MAX_MS: u64 = 5_000;
/// A request that failed at once is answered no earlier than this: the core asks again at once.
const FAILURE_PAUSE: Duration = Duration::from_millis(250);

/// Trouble that lasts is said this often.
const COMPLAIN_EVERY: Duration = Duration::from_secs(30);

/// What the heartbeat needs.
#[derive(Debug)]
pub struct Settings {
    /// How the hub is reached.
    pub hub: Config,
    /// Namespace of the Leases; made if it is missing.
    pub namespace: String,
    /// Stable name of the seat.
    pub seat: String,
    /// Durations.
    pub profile: Profile,
}

/// What the heartbeat is told.
#[derive(Debug)]
pub enum Order {
    /// Besides the queue units, hold exactly these.
    Wanted(BTreeSet<String>),
    /// An object carries this epoch of this unit.
    Stamp(String, u64),
    /// Nothing of the unit is in flight.
    Quiesced(String),
    /// Give everything up, in order.
    Leave,
}

/// What the heartbeat tells.
#[derive(Debug)]
pub enum Beat {
    /// The unit is ours with this epoch.
    Held(String, u64),
    /// The unit is not ours any more.
    Lost(String),
    /// Take no more work of the unit, and say when nothing of it is in flight.
    Quiesce(String),
    /// Epochs in the records.
    Epochs(BTreeMap<String, u64>),
    /// The process must end at once, and why.
    Exit(String),
    /// Everything is given up.
    Left,
}

/// The running heartbeat.
#[derive(Debug)]
pub struct Heartbeat {
    orders: mpsc::UnboundedSender<Order>,
    progress: Arc<AtomicU64>,
    standing: Arc<Standing>,
    thread: Option<JoinHandle<()>>,
}

impl Heartbeat {
    /// Starts the thread. Units come and go through `beats`; authority is published to `standing`.
    pub fn start(
        settings: Settings,
        standing: Arc<Standing>,
        clock: Arc<Clock>,
        beats: mpsc::UnboundedSender<Beat>,
    ) -> std::io::Result<Self> {
        let (orders, received) = mpsc::unbounded_channel();
        let progress = Arc::new(AtomicU64::new(standing.now().0));
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let (shared, seen) = (standing.clone(), progress.clone());
        let thread = std::thread::Builder::new().name("heartbeat".into()).spawn(move || {
            let result = runtime.block_on(beat(settings, shared.clone(), clock, seen, received, beats.clone()));
            shared.publish(shards::Authority::default());
            if let Err(why) = result {
                // An error means that the loop has ended already.
                let _ended = beats.send(Beat::Exit(why));
            }
        })?;
        Ok(Self { orders, progress, standing, thread: Some(thread) })
    }

    /// Passes an order on. After the end of the heartbeat it is for nobody.
    pub fn order(&self, order: Order) {
        let _ended = self.orders.send(order);
    }

    /// Where orders go, for tasks that outlive a borrow.
    pub fn orders(&self) -> mpsc::UnboundedSender<Order> {
        self.orders.clone()
    }

    /// The process's loop turns: without this for some seconds the seat is not renewed.
    pub fn progress(&self) {
        self.progress.store(self.standing.now().0, Ordering::Relaxed);
    }

    /// Waits for the thread, which ends by itself after [`Beat::Left`] or [`Beat::Exit`].
    pub fn join(mut self) {
        drop(self.orders);
        if let Some(thread) = self.thread.take() {
            let _panicked = thread.join();
        }
    }
}

/// An answer on its way back to the core.
enum Answer {
    Listed(Call, Result<Vec<Record>, Failure>),
    Read(Call, Result<Option<Record>, Failure>),
    Written(Call, Result<Record, Failure>),
}

async fn beat(
    settings: Settings,
    standing: Arc<Standing>,
    clock: Arc<Clock>,
    progress: Arc<AtomicU64>,
    mut orders: mpsc::UnboundedReceiver<Order>,
    beats: mpsc::UnboundedSender<Beat>,
) -> Result<(), String> {
    let Settings { hub, namespace, seat, profile } = settings;
    let client = Client::new(Cluster::Hub, hub).map_err(|e| e.to_string())?;
    let me = Identity { seat, process: process::identity(), place: process::place() };
    let mut core = Shards::new(me.clone(), profile, fastrand::u64(..));
    // Three tries fit into the time that a seat is trusted.
    let limit = Duration::from_millis(profile.renew_ms * 2 / 3);
    let leases = Arc::new(Leases { client, namespace, limit, clock, complained: Mutex::default() });
    let (answered, mut answers) = mpsc::unbounded_channel();
    let mut wake = Mono(0);
    loop {
        let until = Duration::from_millis(wake.0.saturating_sub(standing.now().0));
        let input = tokio::select! {
            biased;
            answer = answers.recv() => match answer {
                Some(Answer::Listed(call, result)) => Input::Listed(call, result),
                Some(Answer::Read(call, result)) => Input::Read(call, result),
                Some(Answer::Written(call, result)) => Input::Written(call, result),
                None => return Err("the heartbeat lost its own answers".into()),
            },
            order = orders.recv() => match order {
                Some(Order::Wanted(units)) => Input::Wanted(units),
                Some(Order::Stamp(unit, epoch)) => Input::Stamp(unit, epoch),
                Some(Order::Quiesced(unit)) => Input::Quiesced(unit),
                Some(Order::Leave) => Input::Leave,
                None => return Ok(()),
            },
            () = tokio::time::sleep(until) => Input::Tick,
        };
        let now = standing.now();
        if now.0.saturating_sub(progress.load(Ordering::Relaxed)) > PROGRESS_MAX_MS {
            // What was published runs out by itself.
            tracing::warn!("the loop stands still: the seat is not renewed");
            wake = now + 500;
            if matches!(input, Input::Tick) {
                continue;
            }
        }
        let mut inputs = vec![input];
        while let Some(input) = inputs.pop() {
            let effects = core.handle(input, now);
            standing.publish(core.authority());
            for effect in effects {
                match effect {
                    Effect::List(call) => {
                        leases.spawn(&answered, move |l| async move { Answer::Listed(call, l.list().await) });
                    }
                    Effect::Read(call, name) => {
                        leases.spawn(&answered, move |l| async move { Answer::Read(call, l.read(&name).await) });
                    }
                    Effect::Create(call, record) => {
                        leases.spawn(&answered, move |l| async move { Answer::Written(call, l.create(&record).await) });
                    }
                    Effect::Put(call, record) => {
                        leases.spawn(&answered, move |l| async move { Answer::Written(call, l.put(&record).await) });
                    }
                    Effect::Attest(holder) => {
                        if process::has_ended(&holder) {
                            inputs.push(Input::Dead(holder));
                        }
                    }
                    Effect::WakeAt(at) => wake = at,
                    Effect::Held(unit, epoch) => tell(&beats, Beat::Held(unit, epoch)),
                    Effect::Lost(unit) => tell(&beats, Beat::Lost(unit)),
                    Effect::Quiesce(unit) => tell(&beats, Beat::Quiesce(unit)),
                    Effect::Epochs(epochs) => tell(&beats, Beat::Epochs(epochs)),
                    Effect::Exit(why) => return Err(why),
                    Effect::Left => {
                        tell(&beats, Beat::Left);
                        return Ok(());
                    }
                }
            }
        }
    }
}

/// Nobody listens only when the process ends.
fn tell(beats: &mpsc::UnboundedSender<Beat>, beat: Beat) {
    let _ended = beats.send(beat);
}

/// The Leases of one namespace on the hub.
struct Leases {
    client: Client,
    namespace: String,
    limit: Duration,
    clock: Arc<Clock>,
    complained: Mutex<Option<std::time::Instant>>,
}

impl Leases {
    fn spawn<F, A>(self: &Arc<Self>, answers: &mpsc::UnboundedSender<Answer>, ask: A)
    where
        A: FnOnce(Arc<Self>) -> F,
        F: Future<Output = Answer> + Send + 'static,
    {
        let (asked, answers) = (ask(self.clone()), answers.clone());
        tokio::spawn(async move {
            let answer = asked.await;
            let failed = match &answer {
                Answer::Listed(_, result) => result.is_err(),
                Answer::Read(_, result) => result.is_err(),
                Answer::Written(_, result) => result.is_err(),
            };
            if failed {
                tokio::time::sleep(FAILURE_PAUSE).await;
            }
            let _ended = answers.send(answer);
        });
    }

    fn id(&self, name: &str) -> Id {
        Id::new(Kind::Lease, self.namespace.as_str(), name)
    }

    async fn list(&self) -> Result<Vec<Record>, Failure> {
        let body = self.send(&Request::get(Kind::Lease.collection_path(Some(&self.namespace)))).await?;
        let items = body["items"].as_array().cloned().unwrap_or_default();
        // A Lease that a person has bent beyond reading is left alone, not taken for absent ones' reason to stop.
        Ok(items
            .iter()
            .filter_map(|item| Record::parse(item).map_err(|error| tracing::warn!(%error, "skipped")).ok())
            .collect())
    }

    async fn read(&self, name: &str) -> Result<Option<Record>, Failure> {
        match self.send(&Request::get(self.id(name).path())).await {
            Ok(body) => parsed(&body).map(Some),
            Err(Failure::Gone) => Ok(None),
            Err(failure) => Err(failure),
        }
    }

    async fn create(&self, record: &Record) -> Result<Record, Failure> {
        let path = Kind::Lease.collection_path(Some(&self.namespace));
        match self.write(Method::Post, path, record).await {
            Err(Failure::Gone) => {
                self.make_namespace().await;
                Err(Failure::Refused(format!("namespace {} was missing", self.namespace)))
            }
            result => result,
        }
    }

    async fn put(&self, record: &Record) -> Result<Record, Failure> {
        self.write(Method::Put, self.id(&record.name).path(), record).await
    }

    async fn write(&self, method: Method, path: String, record: &Record) -> Result<Record, Failure> {
        let body = record.body(&self.namespace, &self.clock.now().micro_text());
        let path = format!("{path}?timeout={}ms", self.limit.as_millis());
        let bytes = Arc::from(body.to_string().as_bytes());
        parsed(&self.send(&Request::new(method, path, "application/json", bytes)).await?)
    }

    async fn make_namespace(&self) {
        let body = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": self.namespace } });
        let path = Kind::Namespace.collection_path(None);
        let bytes = Arc::from(body.to_string().as_bytes());
        match self.send(&Request::new(Method::Post, path, "application/json", bytes)).await {
            Ok(_) => tracing::info!(namespace = %self.namespace, "made the namespace of the Leases"),
            Err(failure) => {
                tracing::warn!(namespace = %self.namespace, ?failure, "the namespace of the Leases is missing");
            }
        }
    }

    async fn send(&self, request: &Request) -> Result<Value, Failure> {
        let (result, trouble) = match self.client.send(Lane::Leases, request, self.limit).await {
            Ok(reply) => judged(&reply),
            Err(SendError::NotSent(why)) => (Err(Failure::Refused(why.clone())), Some(why)),
            Err(SendError::NoAnswer(why)) => (Err(Failure::Unknown), Some(why)),
        };
        self.complain(trouble);
        result
    }

    /// Says why Leases cannot be read or written: at the first time, and then not more often than every half minute.
    fn complain(&self, trouble: Option<String>) {
        let mut last = self.complained.lock().expect("no code panics while it holds the time");
        match trouble {
            None => *last = None,
            Some(why) if last.is_none_or(|at| at.elapsed() > COMPLAIN_EVERY) => {
                *last = Some(std::time::Instant::now());
                tracing::warn!(%why, "the Leases on the hub cannot be read or written");
            }
            Some(_) => {}
        }
    }
}

fn parsed(body: &Value) -> Result<Record, Failure> {
    Record::parse(body).map_err(Failure::Refused)
}

/// What a reply says, and what is wrong if it is more than a lost race.
fn judged(reply: &Reply) -> (Result<Value, Failure>, Option<String>) {
    let body: Value = serde_json::from_slice(&reply.body).unwrap_or_default();
    let words = format!("{}: {}", reply.status, body["message"].as_str().unwrap_or("no explanation"));
    match reply.status {
        200..300 => (Ok(body), None),
        409 => (Err(Failure::Conflict), None),
        404 => (Err(Failure::Gone), None),
        500.. | 408 => (Err(Failure::Unknown), Some(words)),
        _ => (Err(Failure::Refused(words.clone())), Some(words)),
    }
}
