//! Pure memory: tables, queue, requests in flight, units. Takes one thing that happened and the time, returns what the
//! shell should do, in order. Same inputs, same effects, bit for bit.
//! Must not know clients, clocks, tasks.

pub mod request;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde_json::Value;

use crate::api::fleet::MemberClusterSpec;
use crate::api::{Cluster, Id, Kind, MemberName, Time, Version};
use crate::plan::{Action, JobAnswer, Note, SubmitOutcome};
use crate::row::TableChange;

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
    /// Sent, no answer: it may have happened.
    Unknown,
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
    /// Hold exactly these units, besides the queue units: those of all members that are known.
    Units(BTreeSet<Arc<str>>),
    /// A member is known by this spec from now on: read its kubeconfig Secret, build its client, answer with
    /// `Input::Cluster`. `None`: its `MemberCluster` is gone.
    Member(MemberName, Option<Box<MemberClusterSpec>>),
    /// An object carries this epoch of this unit, higher than ours: the unit's record must be read again
    /// (`sharding.md` 2.9). Answer with `Input::Unit`: lost, or held with an epoch above it.
    Doubt(Arc<str>, u64),
    /// Write an Event, as far as the limits allow.
    Record(Note),
    /// Call again with `Input::Tick` at this time at the latest. The latest one counts.
    WakeAt(Time),
}

/// Members by name: alias for signatures.
pub type Members<T> = BTreeMap<MemberName, T>;
