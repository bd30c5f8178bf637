//! Drives the core of `shards`: reads and writes the Leases of seats and units on the hub. On its own thread with its own
//! runtime and connections, so that a busy executor cannot starve it; and not at all when the rest of the process stands
//! still (`sharding.md` 2.4).
//! Must not decide who owns what, or know what a unit stands for.

mod leases;
mod meters;
pub mod requests;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use kube::config::Config;
use shards::{Ask, Effect, Identity, Input, Mono, Profile, Shards};
use tokio::sync::mpsc;
use tokio::task::AbortHandle;

use super::authority::Standing;
use super::client::Client;
use super::clock::Clock;
use super::process;
use crate::api::Cluster;
use leases::Leases;
use meters::Meters;

/// A process whose loop did not turn for this long keeps no units: it does not renew.
const PROGRESS_MAX_MS: u64 = 5_000;
/// A loop that stands still is looked at this often.
const STALLED_LOOK_MS: u64 = 500;
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
    /// The process is warm: its seat takes its share from now on.
    Ready,
    /// Besides the queue units, exactly these are there.
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

async fn beat(
    settings: Settings,
    standing: Arc<Standing>,
    clock: Arc<Clock>,
    progress: Arc<AtomicU64>,
    mut orders: mpsc::UnboundedReceiver<Order>,
    beats: mpsc::UnboundedSender<Beat>,
) -> Result<(), String> {
    let Settings { hub, namespace, seat, profile } = settings;
    let client = Client::new(Cluster::Hub, hub).map_err(|e| e.to_string())?.of_seat(&seat);
    let me = Identity { seat, process: process::identity(), place: process::place() };
    let mut core = Shards::new(me.clone(), profile, fastrand::u64(..));
    // Three tries fit into the time that a seat is trusted.
    let limit = Duration::from_millis(profile.renew_ms * 2 / 3);
    let leases = Arc::new(Leases {
        client,
        namespace,
        limit,
        clock,
        standing: standing.clone(),
        trouble: std::sync::Mutex::default(),
    });
    let (answered, mut answers) = mpsc::unbounded_channel();
    let mut stream: Option<AbortHandle> = None;
    let (mut wake, mut stalled) = (Mono(0), false);
    let mut meters = Meters::default();
    loop {
        let until = Duration::from_millis(wake.0.saturating_sub(standing.now().0));
        let input = tokio::select! {
            biased;
            answer = answers.recv() => answer.ok_or("the heartbeat lost its own answers")?,
            order = orders.recv() => match order {
                Some(Order::Ready) => Input::Ready,
                Some(Order::Wanted(units)) => Input::Wanted(units),
                Some(Order::Stamp(unit, epoch)) => Input::Stamp(unit, epoch),
                Some(Order::Quiesced(unit)) => Input::Quiesced(unit),
                Some(Order::Leave) => Input::Leave,
                None => return Ok(()),
            },
            () = tokio::time::sleep(until) => Input::Tick,
        };
        let now = standing.now();
        let stands = now.0.saturating_sub(progress.load(Ordering::Relaxed)) > PROGRESS_MAX_MS;
        let mut inputs = vec![input];
        if stands != stalled {
            stalled = stands;
            inputs.push(Input::Stalled(stalled));
            if stalled {
                tracing::warn!("the loop stands still: the seat is not renewed");
            }
        }
        while let Some(input) = inputs.pop() {
            let effects = core.handle(input, now);
            standing.publish(core.authority());
            for effect in effects {
                match effect {
                    Effect::Ask(call, ask) => {
                        let is_stream = matches!(ask, Ask::Watch(_));
                        let task = leases.ask(call, ask, &answered);
                        if is_stream {
                            stream = Some(task);
                        }
                    }
                    // There is one at a time.
                    Effect::Close(_) => {
                        if let Some(task) = stream.take() {
                            task.abort();
                        }
                    }
                    Effect::Attest(holder) => {
                        if process::has_ended(&holder) {
                            inputs.push(Input::Dead(holder));
                        }
                    }
                    Effect::WakeAt(at) => wake = at,
                    Effect::StoodStill(ms) => {
                        metrics::counter!("rayfleet_clock_stood_still_total").increment(1);
                        tracing::warn!(
                            stood_still_ms = ms,
                            "the hub's clock went on while ours stood still (a paused or migrated machine?): the seat is \
                             given up and taken again"
                        );
                    }
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
        meters.look(&mut core, now);
        if stalled {
            // To see when it moves again.
            wake = now + STALLED_LOOK_MS;
        }
    }
}

/// Nobody listens only when the process ends.
fn tell(beats: &mpsc::UnboundedSender<Beat>, beat: Beat) {
    let _ended = beats.send(beat);
}
