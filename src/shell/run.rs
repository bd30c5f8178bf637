//! The one loop: what happened goes into the engine, what it asks for goes out to executor, informers, members, heartbeat
//! and Events. Nothing here waits for any of them.
//! Must not decide: the engine does.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use kube::config::Config;
use shards::core::Profile;
use thiserror::Error;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::Instant;

use super::authority::Standing;
use super::client::{Client, UnusableConfig};
use super::clock::Clock;
use super::doors::Doors;
use super::events::EventSink;
use super::executor::{Executor, Write};
use super::heartbeat::{self, Beat, Heartbeat, Order};
use super::informer::driver::{Driver, RowNews};
use super::members::{MemberNews, Members};
use super::report::{self, Report};
use crate::api::{Cluster, Kind, Time};
use crate::engine::{self, Effect, Engine, Input, Presence};
use crate::plan::Flags;

/// News that may wait to be taken in; more make their senders wait.
const NEWS_MAX: usize = 1024;
/// Inputs of one source in a row before the others are looked at.
const BATCH_MAX: usize = 64;
/// The loop turns at least this often: the heartbeat looks at it.
const TICK: Duration = Duration::from_millis(500);
/// What is still open this long after the wish to end is left.
const LEAVE_LIMIT: Duration = Duration::from_secs(15);

/// A seat that is not held for this long is worth a word: longer than taking over a dead process's in the default profile.
const SEAT_LATE: Duration = Duration::from_secs(20);

/// What a controller is started with.
#[derive(Debug)]
pub struct Settings {
    /// How the hub is reached.
    pub hub: Config,
    /// Stable name of its seat.
    pub seat: String,
    /// Namespace of the Leases on the hub.
    pub namespace: String,
    /// Durations of the ownership protocol.
    pub profile: Profile,
    /// What plans read.
    pub flags: Flags,
}

/// Why a controller ended other than as it was asked to.
#[derive(Debug, Error)]
pub enum RunError {
    /// The hub's kubeconfig makes no client.
    #[error(transparent)]
    Config(#[from] UnusableConfig),
    /// The machine gave no thread.
    #[error("the heartbeat does not start: {0}")]
    Thread(#[from] std::io::Error),
    /// The heartbeat says that this process must not go on.
    #[error("this replica has to end: {0}")]
    Exit(String),
}

/// State for `/readyz`, twice a second.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Readiness {
    /// What is missing, in words; nothing: it is ready.
    pub missing: Vec<String>,
}

/// Where others ask the running controller.
#[derive(Clone, Debug)]
pub struct Questions {
    reports: mpsc::Sender<oneshot::Sender<Report>>,
    readiness: watch::Receiver<Readiness>,
}

impl Questions {
    /// A picture of now; `None` when the controller has ended or does not answer in time.
    pub async fn report(&self) -> Option<Report> {
        let (sender, report) = oneshot::channel();
        let asked = async {
            self.reports.send(sender).await.ok()?;
            report.await.ok()
        };
        tokio::time::timeout(Duration::from_secs(5), asked).await.ok().flatten()
    }

    /// Whether it is ready, as last found.
    pub fn readiness(&self) -> Readiness {
        self.readiness.borrow().clone()
    }
}

/// A controller that has not begun.
#[derive(Debug)]
pub struct Controller {
    settings: Settings,
    asked: mpsc::Receiver<oneshot::Sender<Report>>,
    readiness: watch::Sender<Readiness>,
}

impl Controller {
    /// The controller, and where to ask it.
    pub fn new(settings: Settings) -> (Self, Questions) {
        let (reports, asked) = mpsc::channel(4);
        let starting = Readiness { missing: vec!["it is starting".into()] };
        let (sender, readiness) = watch::channel(starting);
        (Self { settings, asked, readiness: sender }, Questions { reports, readiness })
    }

    /// Runs until `stop` is done, then gives up what it holds and ends.
    pub async fn run(self, stop: impl Future<Output = ()>) -> Result<(), RunError> {
        let Controller { settings, mut asked, readiness } = self;
        let clock = Arc::new(Clock::default());
        let standing = Arc::new(Standing::default());
        let doors = Arc::new(Doors::default());
        let hub = Arc::new(Client::new(Cluster::Hub, settings.hub.clone())?.of_seat(&settings.seat));
        doors.open(hub.clone());
        let seat = settings.seat.clone();
        let (beat_sender, mut beats) = mpsc::unbounded_channel();
        let (row_sender, mut rows) = mpsc::channel::<RowNews>(NEWS_MAX);
        let (answer_sender, mut answers) = mpsc::channel::<Input>(NEWS_MAX);
        let (member_sender, mut member_news) = mpsc::channel::<MemberNews>(NEWS_MAX);
        let heartbeat = Heartbeat::start(
            heartbeat::Settings {
                hub: settings.hub,
                namespace: settings.namespace,
                seat: seat.clone(),
                profile: settings.profile,
            },
            standing.clone(),
            clock.clone(),
            beat_sender,
        )?;
        let mut hands = Hands {
            executor: Executor::new(doors.clone(), standing.clone(), clock.clone(), answer_sender),
            events: EventSink::start(doors.clone(), clock.clone(), seat.as_str().into()),
            members: Members::new(hub, &seat, member_sender),
            informers: BTreeMap::new(),
            clusters: BTreeSet::from([Cluster::Hub]),
            wake: None,
            heartbeat,
            doors,
            clock: clock.clone(),
            rows: row_sender,
        };
        let mut engine = Engine::new(settings.flags, fastrand::u64(..));
        hands.tell(&mut engine, Input::Cluster(Cluster::Hub, Presence::Added));
        let mut tick = tokio::time::interval(TICK);
        tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        tokio::pin!(stop);
        let mut leaving: Option<Instant> = None;
        let mut seat_watch = SeatWatch { since: Instant::now(), said: false };
        loop {
            let ring = hands.wake.map_or(Duration::MAX, |at| clock.until(at));
            tokio::select! {
                biased;
                () = &mut stop, if leaving.is_none() => {
                    tracing::info!("asked to end: giving up units and seat");
                    leaving = Some(Instant::now() + LEAVE_LIMIT);
                    hands.heartbeat.order(Order::Leave);
                }
                beat = beats.recv() => match beat {
                    Some(Beat::Exit(why)) => return Err(RunError::Exit(why)),
                    Some(Beat::Left) => break,
                    // Its thread has panicked: what it keeps alive is given up, and nothing else may go on.
                    None => return Err(RunError::Exit("the heartbeat has broken; the log says where".to_owned())),
                    Some(beat) => hands.beat(&mut engine, beat),
                },
                _ = tick.tick() => {
                    hands.heartbeat.progress();
                    seat_watch.look(&standing, &seat);
                    readiness.send_replace(look_at(&engine, &standing, leaving.is_some()));
                    gauge(&engine, &standing);
                    if leaving.is_some_and(|until| Instant::now() > until) {
                        tracing::warn!("not everything could be given up in time: what is left is taken over by others");
                        break;
                    }
                }
                Some(question) = asked.recv() => {
                    let clusters: Vec<Cluster> = hands.clusters.iter().cloned().collect();
                    // An error means that the asker has gone.
                    let _gone = question.send(report::draw(&engine, &clusters, standing.units(), clock.now()));
                }
                Some(news) = member_news.recv() => hands.member(&mut engine, news),
                Some(answer) = answers.recv() => {
                    hands.tell(&mut engine, answer);
                    for _ in 1..BATCH_MAX {
                        let Ok(answer) = answers.try_recv() else { break };
                        hands.tell(&mut engine, answer);
                    }
                }
                Some((cluster, kind, change)) = rows.recv() => {
                    hands.tell(&mut engine, Input::Rows(cluster, kind, change));
                    for _ in 1..BATCH_MAX {
                        let Ok((cluster, kind, change)) = rows.try_recv() else { break };
                        hands.tell(&mut engine, Input::Rows(cluster, kind, change));
                    }
                }
                () = tokio::time::sleep(ring), if hands.wake.is_some() => {
                    hands.wake = None;
                    hands.tell(&mut engine, Input::Tick);
                }
            }
        }
        standing.publish(shards::Authority::default());
        // The thread ends by itself once nobody gives orders.
        let heartbeat = hands.heartbeat;
        let _joined =
            tokio::time::timeout(Duration::from_secs(2), tokio::task::spawn_blocking(move || heartbeat.join())).await;
        Ok(())
    }
}

/// Everything that carries effects out.
struct Hands {
    executor: Executor,
    events: EventSink,
    members: Members,
    informers: BTreeMap<(Cluster, Kind), Driver>,
    clusters: BTreeSet<Cluster>,
    wake: Option<Time>,
    heartbeat: Heartbeat,
    doors: Arc<Doors>,
    clock: Arc<Clock>,
    rows: mpsc::Sender<RowNews>,
}

impl Hands {
    /// Tells the engine and does what it asks for.
    fn tell(&mut self, engine: &mut Engine, input: Input) {
        let begun = std::time::Instant::now();
        let effects = engine.handle(input, self.clock.now());
        metrics::histogram!("rayfleet_engine_seconds").record(begun.elapsed().as_secs_f64());
        for effect in effects {
            self.carry_out(effect);
        }
        // Many inputs in a row may take long: each that is done with shows that the loop turns.
        self.heartbeat.progress();
    }

    fn carry_out(&mut self, effect: Effect) {
        match effect {
            Effect::Write { ticket, unit, epoch, action, time_limit_ms } => {
                let limit = Duration::from_millis(time_limit_ms);
                self.executor.write(Write { ticket, unit, epoch, action, limit });
            }
            Effect::Fetch(ticket, cluster, id) => self.executor.fetch(ticket, &cluster, id),
            Effect::Watch(cluster, kinds) => self.watch(&cluster, &kinds),
            Effect::Relist(cluster, kinds) => {
                for kind in kinds {
                    if let Some(driver) = self.informers.get(&(cluster.clone(), kind)) {
                        driver.relist();
                    }
                }
            }
            Effect::Units(units) => {
                self.heartbeat.order(Order::Wanted(units.iter().map(ToString::to_string).collect()));
            }
            Effect::Member(name, spec) => {
                self.members.set(&name, spec.as_deref());
                if spec.is_none() {
                    let cluster = Cluster::Member(name);
                    self.doors.close(&cluster);
                    self.clusters.remove(&cluster);
                    self.informers.retain(|(c, _), _| *c != cluster);
                }
            }
            Effect::Doubt(unit, epoch) => self.heartbeat.order(Order::Stamp(unit.to_string(), epoch)),
            Effect::Record(note) => self.events.record(note),
            Effect::Warm => self.heartbeat.order(Order::Ready),
            Effect::WakeAt(at) => self.wake = Some(at),
        }
    }

    fn watch(&mut self, cluster: &Cluster, kinds: &BTreeSet<Kind>) {
        self.informers.retain(|(c, kind), _| c != cluster || kinds.contains(kind));
        for kind in kinds {
            self.informers.entry((cluster.clone(), *kind)).or_insert_with(|| {
                Driver::start(cluster.clone(), *kind, self.doors.clone(), self.clock.clone(), self.rows.clone())
            });
        }
    }

    fn member(&mut self, engine: &mut Engine, news: MemberNews) {
        match news {
            MemberNews::Reached(name, client) => {
                tracing::info!(member = %name, "member can be reached");
                let cluster = Cluster::Member(name);
                self.doors.open(client);
                self.clusters.insert(cluster.clone());
                self.tell(engine, Input::Cluster(cluster, Presence::Added));
            }
            MemberNews::Refused(name, why) => {
                let cluster = Cluster::Member(name);
                self.doors.close(&cluster);
                self.tell(engine, Input::Cluster(cluster, Presence::Refused(why)));
            }
        }
    }

    fn beat(&mut self, engine: &mut Engine, beat: Beat) {
        match beat {
            Beat::Held(unit, epoch) => {
                tracing::debug!(unit, epoch, "unit held");
                self.tell(engine, Input::Unit(unit.into(), engine::Standing::Held(epoch)));
            }
            Beat::Lost(unit) => {
                tracing::debug!(unit, "unit lost");
                self.tell(engine, Input::Unit(unit.into(), engine::Standing::Lost));
            }
            Beat::Quiesce(unit) => {
                self.tell(engine, Input::Unit(unit.as_str().into(), engine::Standing::Lost));
                let quiet = self.executor.quiet(unit.as_str().into());
                let orders = self.heartbeat.orders();
                tokio::spawn(async move {
                    quiet.await;
                    // An error means that the heartbeat has ended.
                    let _ended = orders.send(Order::Quiesced(unit));
                });
            }
            Beat::Epochs(epochs) => {
                let epochs = epochs.into_iter().map(|(unit, epoch)| (unit.into(), epoch)).collect();
                self.tell(engine, Input::Epochs(epochs));
            }
            Beat::Exit(_) | Beat::Left => {}
        }
    }
}

/// Says it when the seat is not held for long, and when it is held again.
struct SeatWatch {
    since: Instant,
    said: bool,
}

impl SeatWatch {
    fn look(&mut self, standing: &Standing, seat: &str) {
        if standing.seated() {
            if self.said {
                tracing::info!(seat, "the seat is held");
            }
            *self = Self { since: Instant::now(), said: false };
        } else if !self.said && self.since.elapsed() > SEAT_LATE {
            self.said = true;
            tracing::warn!(
                seat,
                "the seat is not held, so nothing is done: another process holds it (give --seat another name), or the hub does not answer"
            );
        }
    }
}

fn look_at(engine: &Engine, standing: &Standing, leaving: bool) -> Readiness {
    let mut missing = Vec::new();
    if leaving {
        missing.push("it is ending".to_owned());
    }
    if !standing.seated() {
        let why = standing.troubled();
        missing.push(match &*why {
            "" => "its seat is not held".to_owned(),
            why => format!("its seat is not held: {why}"),
        });
    }
    let kinds = engine.not_listed();
    if !kinds.is_empty() {
        missing.push(format!("not yet listed on the hub: {}", kinds.join(", ")));
    }
    Readiness { missing }
}

fn gauge(engine: &Engine, standing: &Standing) {
    let sizes = engine.sizes();
    metrics::gauge!("rayfleet_keys_queued").set(sizes.queued as f64);
    metrics::gauge!("rayfleet_requests_in_flight").set(sizes.in_flight as f64);
    metrics::gauge!("rayfleet_units_held").set(sizes.units as f64);
    metrics::gauge!("rayfleet_objects_quarantined").set(sizes.quarantined as f64);
    metrics::gauge!("rayfleet_seat_held").set(f64::from(u8::from(standing.seated())));
}
