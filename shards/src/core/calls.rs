//! Requests under way, and what each is for.

use std::collections::BTreeMap;

use super::message::Call;
use super::tally::Gain;
use crate::Mono;

/// What a request is for, and so what its answer means.
#[derive(Clone, Debug)]
pub(super) enum Purpose {
    List,
    Watch,
    TakeSeat {
        sent: Mono,
    },
    Renew {
        sent: Mono,
    },
    ReadSeat,
    EmptySeat,
    Fence(String),
    /// Of another seat, which could not be fenced.
    ReadOther(String),
    Acquire {
        unit: String,
        epoch: u64,
        why: Gain,
    },
    ReadUnit(String),
    Release(String),
}

impl Purpose {
    /// The unit whose record the request reads or writes.
    pub(super) fn unit(&self) -> Option<&str> {
        match self {
            Purpose::Acquire { unit, .. } | Purpose::ReadUnit(unit) | Purpose::Release(unit) => Some(unit),
            _ => None,
        }
    }
}

/// Numbered in the order in which they were handed out.
#[derive(Debug, Default)]
pub(super) struct Calls {
    open: BTreeMap<Call, Purpose>,
    last: u64,
}

impl Calls {
    pub(super) fn begin(&mut self, purpose: Purpose) -> Call {
        self.last += 1;
        let call = Call(self.last);
        self.open.insert(call, purpose);
        call
    }

    /// Takes an answered request out; `None` for one that nobody waits for.
    pub(super) fn end(&mut self, call: Call) -> Option<Purpose> {
        self.open.remove(&call)
    }

    pub(super) fn any(&self, test: impl Fn(&Purpose) -> bool) -> bool {
        self.open.values().any(test)
    }

    pub(super) fn open(&self) -> impl Iterator<Item = &Purpose> {
        self.open.values()
    }

    /// The last one that was handed out.
    pub(super) fn last(&self) -> Call {
        Call(self.last)
    }
}
