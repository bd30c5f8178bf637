//! Pure memory: tables, queue, requests in flight, units. Takes one thing that happened and the time, returns what the
//! shell should do, in order. Same inputs, same effects, bit for bit.
//! Must not know clients, clocks, tasks.

mod answers;
mod event;
mod gate;
mod identity;
mod inflight;
mod intake;
mod journal;
mod look;
mod owner;
mod plans;
mod queue;
mod ray;
mod ray_answers;
pub mod request;
mod tables;
#[cfg(test)]
mod tests;
mod units;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use fastrand::Rng;
use serde_json::Value;

pub use self::journal::Entry;
pub use self::owner::{UnitOf, Which, unit_of};
pub use self::plans::plan;
pub use self::units::{HUB_KINDS, MEMBER_KINDS};

use self::inflight::Inflight;
use self::journal::Journal;
use self::queue::Queue;
use self::tables::World;
use self::units::Units;
use crate::api::fleet::MemberClusterSpec;
use crate::api::{Cluster, Id, Key, Kind, MemberName, RootId, Time, Version};
use crate::plan::place::Board;
use crate::plan::{
    Action, Asked, Dashboard, Fetched, Flags, JobAnswer, Note, Plan, RayTable, Seen, SubmitOutcome, Why,
};
use crate::row::{TableChange, Tables};

/// Names one request of the engine; its answer comes back with it. Never used twice by one engine.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Ticket(pub u64);

/// One thing that happened.
#[derive(Clone, Debug)]
pub enum Input {
    /// An API server can be talked to from now on (its client is built), or no more.
    Cluster(Cluster, Presence),
    /// An informer's news.
    Rows(Cluster, Kind, TableChange),
    /// The outcome of a write.
    Done(Ticket, Outcome),
    /// The outcome of a read: begun when; the object, `None` where it does not exist; or why it failed.
    Fetched(Ticket, Time, Result<Option<Arc<Value>>, String>),
    /// The answer of a Ray dashboard.
    Ray(Ticket, RayOutcome),
    /// A unit became ours with this epoch, or is no longer ours.
    Unit(Arc<str>, Standing),
    /// The epochs in the records of units, as far as they were seen to change.
    Epochs(BTreeMap<Arc<str>, u64>),
    /// Nothing but time passed.
    Tick,
}

/// Whether an API server is there for us.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Presence {
    /// It can be asked.
    Added,
    /// It cannot be asked: why, in words without secrets (bad kubeconfig, …).
    Refused(String),
    /// Its `MemberCluster` is gone.
    Gone,
}

/// Our standing in a unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// Ours with this epoch; plans wait for the barrier (`sharding.md` 2.6).
    Held(u64),
    /// Not ours any more; nothing of it is sent from now on.
    Lost,
}

/// Outcome of a write.
#[derive(Clone, Debug, PartialEq)]
pub enum Outcome {
    /// Carried out; the object's uid and version after it (for deletes: of the object as it was last there, if told).
    Ok {
        /// UID of the object.
        uid: Arc<str>,
        /// Its version now.
        version: Version,
    },
    /// The name is taken.
    Exists,
    /// Another version or incarnation is there.
    Conflict,
    /// It is not there.
    Gone,
    /// Refused for another reason: HTTP status and message.
    Refused(u16, String),
    /// Not sent: the authority had ended, or the connection could not be made. It did not happen.
    NotSent(String),
    /// Sent, and the answer is missing or says nothing: it may have happened. HTTP status where there is one, and words.
    Unknown(Option<u16>, String),
}

/// Answer of a Ray dashboard.
#[derive(Clone, Debug, PartialEq)]
pub enum RayOutcome {
    /// To [`crate::plan::Question::Job`].
    Job(JobAnswer),
    /// To [`crate::plan::Question::Submit`].
    Submit(SubmitOutcome),
    /// To [`crate::plan::Question::Stop`]: stopped or not there, else why not.
    Stop(Result<(), String>),
}

/// What the engine asks of the shell.
#[derive(Clone, Debug, PartialEq)]
pub enum Effect {
    /// Send one write; stamped and complete. Authority for `unit` at `epoch` is checked right before; the request may
    /// take `time_limit_ms` at most.
    Write {
        /// Answer with this.
        ticket: Ticket,
        /// Unit in whose name.
        unit: Arc<str>,
        /// Its epoch.
        epoch: u64,
        /// The write.
        action: Action,
        /// Client time-out and `?timeout=`.
        time_limit_ms: u64,
    },
    /// Read one object, consistently.
    Fetch(Ticket, Cluster, Id),
    /// Watch exactly these kinds of this cluster from now on (the whole set; fewer = stop the others).
    Watch(Cluster, BTreeSet<Kind>),
    /// Take a new consistent list of these kinds: the barrier of a unit, or doubt.
    Relist(Cluster, BTreeSet<Kind>),
    /// Exactly these units are there, besides the queue units: those of all members that are known.
    Units(BTreeSet<Arc<str>>),
    /// A member is known by this spec from now on: read its kubeconfig Secret, build its client, answer with
    /// `Input::Cluster`. `None`: its `MemberCluster` is gone.
    Member(MemberName, Option<Box<MemberClusterSpec>>),
    /// An object carries this epoch of this unit, higher than ours: the unit's record must be read again
    /// (`sharding.md` 2.9). Answer with `Input::Unit`: lost, or held with an epoch above it.
    Doubt(Arc<str>, u64),
    /// Write an Event, as far as the limits allow.
    Record(Note),
    /// Everything on the hub was listed once: this process can take its share of the work. Told once.
    Warm,
    /// Call again with `Input::Tick` at this time at the latest. The latest one counts.
    WakeAt(Time),
}

/// Looks at one key: which plan, what is seen, which object, when.
pub type Plans = Box<dyn Fn(Which, &Seen<'_>, &Id, Time) -> Plan + Send>;

/// Looks per call at most: one input must not keep the shell from the next for long.
const LOOKS_MAX: usize = 128;

/// What is remembered about the present generation of a root object.
#[derive(Clone, Debug, Default)]
struct Memo {
    /// Of the root object.
    identity: Option<RootId>,
    generation: i64,
    /// A write to the member has, or had, an unknown outcome.
    unknown: bool,
    /// In whose name something was sent to the member.
    sent: BTreeSet<(Arc<str>, u64)>,
    /// Highest version per kind that writes to the member got back.
    written: BTreeMap<Kind, Version>,
    /// Until then no new writes to the member: the root object is to be handed over.
    closing: Option<Time>,
}

/// The controller's memory. See the module.
pub struct Engine {
    flags: Flags,
    plans: Plans,
    rng: Rng,
    world: World,
    units: Units,
    queue: Queue,
    inflight: Inflight,
    journal: Journal,
    memos: BTreeMap<Key, Memo>,
    /// What keys wait for that their former owners wrote, and since when.
    handovers: BTreeMap<Key, (Vec<gate::Reach>, Time)>,
    /// The root object that a queue's unit bound last.
    bound_last: BTreeMap<Arc<str>, Key>,
    presence: BTreeMap<Cluster, Presence>,
    refused: BTreeMap<MemberName, String>,
    /// Members that are watched: whether each is the cluster that it was registered as, else why it is not touched.
    identities: BTreeMap<MemberName, Result<(), Why>>,
    /// When a refused member is tried again.
    retries: BTreeMap<MemberName, Time>,
    watching: BTreeMap<Cluster, BTreeSet<Kind>>,
    wanted_units: BTreeSet<Arc<str>>,
    specs: BTreeMap<MemberName, MemberClusterSpec>,
    /// Lists that were asked for, and when.
    relists: BTreeMap<(Cluster, Kind), Time>,
    fetched: BTreeMap<(Cluster, Id), Fetched>,
    /// What root objects ask for, by the row that was looked at last.
    asks: BTreeMap<Id, Asked>,
    /// What all waiting objects have in common, of the state of the hub that was looked at last.
    board: Option<Board>,
    rays: RayTable,
    /// When each job was last asked about.
    asked: BTreeMap<(MemberName, Dashboard, Arc<str>), Time>,
    epochs: BTreeMap<Arc<str>, u64>,
    /// [`Effect::Warm`] was told.
    warm: bool,
    wake_at: Option<Time>,
    /// Next look at expectations that take too long.
    check_at: Option<Time>,
    /// Next time that what nobody uses any more is dropped.
    tidy_at: Time,
    no_tables: Tables,
}

/// Sizes, for metrics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sizes {
    /// Keys in the queue.
    pub queued: usize,
    /// Requests under way.
    pub in_flight: usize,
    /// Units held.
    pub units: usize,
    /// Objects that do not decode.
    pub quarantined: usize,
}

impl fmt::Debug for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Engine").field("sizes", &self.sizes()).finish_non_exhaustive()
    }
}

impl Engine {
    /// An engine that knows nothing yet. `seed` decides jitter of back-offs, nothing else.
    pub fn new(flags: Flags, seed: u64) -> Self {
        Self::with_plans(flags, seed, Box::new(plan))
    }

    /// An engine that knows nothing yet and looks with these plans. `seed` decides jitter of back-offs, nothing else.
    pub fn with_plans(flags: Flags, seed: u64, plans: Plans) -> Self {
        Self {
            world: World::new(flags.clone()),
            flags,
            plans,
            rng: Rng::with_seed(seed),
            units: Units::default(),
            queue: Queue::default(),
            inflight: Inflight::default(),
            journal: Journal::default(),
            memos: BTreeMap::new(),
            handovers: BTreeMap::new(),
            bound_last: BTreeMap::new(),
            presence: BTreeMap::new(),
            refused: BTreeMap::new(),
            identities: BTreeMap::new(),
            retries: BTreeMap::new(),
            watching: BTreeMap::new(),
            wanted_units: BTreeSet::new(),
            specs: BTreeMap::new(),
            relists: BTreeMap::new(),
            fetched: BTreeMap::new(),
            asks: BTreeMap::new(),
            board: None,
            rays: RayTable::default(),
            asked: BTreeMap::new(),
            epochs: BTreeMap::new(),
            warm: false,
            wake_at: None,
            check_at: None,
            tidy_at: Time(0),
            no_tables: Tables::default(),
        }
    }

    /// Takes one thing that happened, at `now`; returns what the shell should do, in order.
    pub fn handle(&mut self, input: Input, now: Time) -> Vec<Effect> {
        let mut out = Vec::new();
        // A tick may come early: whoever rings may go by a clock that runs faster than `now`. It is asked for again.
        if matches!(input, Input::Tick) || self.wake_at.is_some_and(|at| at <= now) {
            self.wake_at = None;
        }
        self.take_in(input, now, &mut out);
        if !self.warm && self.knows_the_hub() {
            self.warm = true;
            out.push(Effect::Warm);
        }
        self.ring(now, &mut out);
        for _ in 0..LOOKS_MAX {
            let Some(key) = self.queue.take(now) else { break };
            self.look(&key, now, &mut out);
        }
        self.ask_to_be_woken(&mut out);
        out
    }

    fn ask_to_be_woken(&mut self, out: &mut Vec<Effect>) {
        let retry = self.retries.values().copied().min();
        let times = [self.queue.next(), self.inflight.next_time(), self.check_at, retry];
        let Some(at) = times.into_iter().flatten().min() else { return };
        if self.wake_at != Some(at) {
            self.wake_at = Some(at);
            out.push(Effect::WakeAt(at));
        }
    }

    /// What a key waits for, since when, and its last trouble.
    pub fn why(&self, key: &Key) -> Option<&Entry> {
        self.journal.get(key)
    }

    /// What a key that is not looked at now waits for: its own requests.
    pub fn under_way(&self, key: &Key) -> Option<Arc<str>> {
        self.inflight.describe(key)
    }

    /// All keys that were looked at, with what they wait for.
    pub fn journal(&self) -> impl Iterator<Item = (&Key, &Entry)> {
        self.journal.iter()
    }

    /// The tables of a cluster, if it is watched.
    pub fn tables(&self, cluster: &Cluster) -> Option<&Tables> {
        self.world.tables(cluster)
    }

    /// Kinds of the hub that were never listed, by name; one that the hub does not serve counts as listed.
    pub fn not_listed(&self) -> Vec<&'static str> {
        self.missing_kinds().map(Kind::name).collect()
    }

    /// Whether all that decides something on the hub was listed once, so that units can be taken.
    fn knows_the_hub(&self) -> bool {
        self.missing_kinds().all(|kind| !units::decides(kind))
    }

    fn missing_kinds(&self) -> impl Iterator<Item = Kind> {
        let unknown = |kind: &Kind| {
            let table = self.world.hub.table(*kind);
            table.listed.is_none() && table.unserved.is_none()
        };
        units::HUB_KINDS.iter().copied().filter(unknown)
    }

    /// Sizes, for metrics.
    pub fn sizes(&self) -> Sizes {
        let tables = std::iter::once(&self.world.hub).chain(self.world.members.values());
        let quarantined = tables.flat_map(|t| t.kinds().map(|kind| t.table(kind).quarantined.len())).sum();
        Sizes { queued: self.queue.len(), in_flight: self.inflight.len(), units: self.units.len(), quarantined }
    }
}
