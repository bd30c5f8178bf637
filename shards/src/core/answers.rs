//! Which answer goes where, and what is asked again when there was none.

use std::collections::BTreeMap;

use super::calls::Purpose;
use super::message::{Ask, Call, Effect, Failure};
use super::{Shards, Stage};
use crate::Mono;
use crate::lease::Record;

impl Shards {
    pub(super) fn listed(
        &mut self,
        call: Call,
        result: Result<Vec<Record>, Failure>,
        now: Mono,
        out: &mut Vec<Effect>,
    ) {
        if self.calls.end(call).is_none() {
            return;
        }
        let Ok(records) = result else { return };
        self.view.heard(now);
        let mut seats = BTreeMap::new();
        let mut units = BTreeMap::new();
        for record in records {
            match record.seat().map(str::to_owned) {
                Some(seat) => seats.insert(seat, record),
                None => units.insert(record.name.clone(), record),
            };
        }
        self.view.listed(seats, &units, now);
        self.units_listed(call, units, out);
        if self.stage == Stage::New {
            self.stage = Stage::Joining;
        }
        self.attest_predecessor(out);
    }

    pub(super) fn read(
        &mut self,
        call: Call,
        result: Result<Option<Record>, Failure>,
        now: Mono,
        out: &mut Vec<Effect>,
    ) {
        let Some(purpose) = self.calls.end(call) else { return };
        // Nothing learnt: ask again.
        let Ok(found) = result else { return self.ask_again(purpose, out) };
        self.view.heard(now);
        match purpose {
            Purpose::ReadSeat => self.seat_read(found, out),
            Purpose::ReadUnit(unit) => self.unit_read(&unit, found, out),
            _ => {}
        }
    }

    /// Reads the record that a purpose is about.
    pub(super) fn ask_again(&mut self, purpose: Purpose, out: &mut Vec<Effect>) {
        let name = match &purpose {
            Purpose::ReadSeat => self.seat_name(),
            Purpose::ReadUnit(unit) => unit.clone(),
            _ => return,
        };
        self.ask(purpose, Ask::Read(name), out);
    }

    pub(super) fn written(&mut self, call: Call, result: Result<Record, Failure>, now: Mono, out: &mut Vec<Effect>) {
        let Some(purpose) = self.calls.end(call) else { return };
        if result.is_ok() {
            self.view.heard(now);
        }
        match purpose {
            Purpose::TakeSeat { sent } => self.seat_taken(result, sent, out),
            Purpose::Renew { sent } => self.renewed(result, sent, out),
            Purpose::EmptySeat => self.left(out),
            Purpose::Fence(seat) => match result {
                Ok(record) => self.view.seat_written(&seat, record),
                // It was renewed, or another fenced it: look.
                Err(_) => self.next_list = Mono(0),
            },
            Purpose::Acquire { unit, epoch } => self.acquired(unit, epoch, result, out),
            Purpose::Release(unit) => self.released(unit, result, out),
            Purpose::List | Purpose::ReadSeat | Purpose::ReadUnit(_) => {}
        }
    }
}
