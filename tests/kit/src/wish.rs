//! What goes between a replica and its world: how it is started, what it wants done, and the requests that it sends.
//! Must not know either of them.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use rayfleet::api::wire::Request;
use rayfleet::api::{Cluster, Time};
use shards::Profile;

use crate::dangers::Danger;

/// In whose name a request is sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InName {
    /// The unit.
    pub unit: Arc<str>,
    /// Its epoch.
    pub epoch: u64,
    /// It leaves a mark of the epoch: it carries a stamp, or is a status with a decision.
    pub marks: bool,
}

/// A request that leaves the replica.
#[derive(Clone, Debug)]
pub struct Outgoing {
    /// Comes back with the answer.
    pub call: u64,
    /// Where to.
    pub cluster: Cluster,
    /// What.
    pub request: Request,
    /// The answer is waited for this long.
    pub time_limit_ms: u64,
    /// It changes something: a crash point.
    pub is_write: bool,
    /// Its reply is a stream.
    pub is_watch: bool,
    /// The unit in whose name it is sent, if it is a write of the engine.
    pub name: Option<InName>,
}

/// What the world must do for the replica.
#[derive(Clone, Debug)]
pub enum Wish {
    /// Send this.
    Send(Outgoing),
    /// Call [`Replica::wake`] at this time.
    WakeAt(Time),
    /// The stream of this call is not wanted any more.
    Close(u64),
    /// The world is told that a unit is this process's from now on.
    Held(String),
    /// It found that its clock stood still, and has given everything up.
    StoodStill,
    /// The process ends: why.
    Exit(String),
    /// Everything is given up in order: the process ends.
    Left,
}

/// What a process is started with.
#[derive(Clone, Debug)]
pub struct Setup {
    /// Its seat.
    pub seat: String,
    /// Its own name, which no other process ever has.
    pub process: String,
    /// Times of the protocol.
    pub profile: Profile,
    /// Seed of jitter.
    pub seed: u64,
    /// Predecessors that the host knows to have ended.
    pub dead: BTreeSet<String>,
    /// Clusters that it can build a client for.
    pub members: BTreeSet<Cluster>,
    /// Q: how long a tombstone keeps a name.
    pub hold: Duration,
    /// Rules that it does not keep.
    pub dangers: BTreeSet<Danger>,
}
