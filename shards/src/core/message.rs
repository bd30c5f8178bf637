//! What goes into the core and what comes out of it.

use std::collections::{BTreeMap, BTreeSet};

use crate::Mono;
use crate::lease::Record;

/// Names one request; its answer comes back with it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
pub struct Call(pub u64);

/// Who this process is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Stable name of the seat, without prefix.
    pub seat: String,
    /// This process and no other: it contains a random part.
    pub process: String,
    /// Where it runs: pod UID, or boot id of the host.
    pub place: String,
}

/// Why a request gave nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Failure {
    /// Another version is there, or the name is taken.
    Conflict,
    /// It is not there.
    Gone,
    /// It did not happen: refused, or not sent. In words.
    Refused(String),
    /// It may have happened: no answer. In words.
    Unknown(String),
}

/// One request to the store of records.
#[derive(Clone, Debug, PartialEq)]
pub enum Ask {
    /// All records, consistently.
    List,
    /// A stream of all changes after this version of the whole, until it ends or is closed.
    Watch(String),
    /// One record, consistently.
    Read(String),
    /// A record that is not there yet.
    Create(Record),
    /// A record with the version that it carries.
    Put(Record),
}

/// All records at one moment.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Listing {
    /// Version of the whole: changes after it can be watched.
    pub version: String,
    /// The records.
    pub records: Vec<Record>,
}

/// One change of a record.
#[derive(Clone, Debug, PartialEq)]
pub enum Change {
    /// It is new, or another one now.
    Put(Record),
    /// It is gone, since this version.
    Deleted {
        /// Its name.
        name: String,
        /// Version of the deletion.
        version: String,
    },
}

/// What the core is told.
#[derive(Clone, Debug)]
pub enum Input {
    /// Begin, or nothing but time passed.
    Tick,
    /// Answer to [`Ask::List`].
    Listed(Call, Result<Listing, Failure>),
    /// From the stream of [`Ask::Watch`], in the order of the changes.
    Changed(Call, Change),
    /// The stream of [`Ask::Watch`] has ended, or could not be had.
    Ended(Call),
    /// Answer to [`Ask::Read`]: the record, `None` where there is none.
    Read(Call, Result<Option<Record>, Failure>),
    /// Answer to [`Ask::Create`] and [`Ask::Put`]: the record as it is now.
    Written(Call, Result<Record, Failure>),
    /// What this process needs before it can work is there: its seat counts from now on.
    Ready,
    /// Besides the queue units, these are there; which of them are to be held here, the ring says.
    Wanted(BTreeSet<String>),
    /// The process with this identity, which ran at this very place, has ended: known, not guessed.
    Dead(String),
    /// An object carries this stamp: the epoch of the unit must be above it.
    Stamp(String, u64),
    /// The process stands still (true), or moves again: one that stands still keeps nothing alive.
    Stalled(bool),
    /// A reply of the hub said what time it is there (`Date`); before what else the reply says.
    HubTime {
        /// Since 1970.
        seconds: u64,
        /// When the request was sent.
        sent: Mono,
    },
    /// Give everything up in order: drain, release, leave.
    Leave,
    /// All that was in flight for this unit has ended: it may be released (answer to [`Effect::Quiesce`]).
    Quiesced(String),
}

/// What the core asks for.
#[derive(Clone, Debug, PartialEq)]
pub enum Effect {
    /// Ask the store; the answer is an input with the same call.
    Ask(Call, Ask),
    /// The stream of this call is not wanted any more.
    Close(Call),
    /// Find out whether the process with this identity, which held our seat at our place, still runs; answer `Dead` if not.
    Attest(String),
    /// The unit is ours with this epoch.
    Held(String, u64),
    /// The unit is not ours any more.
    Lost(String),
    /// Stop taking work of the unit; answer `Quiesced` when nothing of it is in flight.
    Quiesce(String),
    /// Epochs in the records, of all units, as far as they changed.
    Epochs(BTreeMap<String, u64>),
    /// Call again at this time.
    WakeAt(Mono),
    /// The hub's clock went at least so many ms further than ours: the seat was given up, and is taken again.
    StoodStill(u64),
    /// End the process: why. Nothing may be sent any more.
    Exit(String),
    /// Everything is released; the process may end.
    Left,
}
