//! Which answer goes where, and what is asked again when there was none.

use super::Shards;
use super::calls::Purpose;
use super::message::{Ask, Call, Effect, Failure};
use crate::Mono;
use crate::lease::{Record, SEAT_PREFIX};

impl Shards {
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
        match purpose {
            Purpose::ReadSeat => self.seat_read(found, now, out),
            Purpose::ReadOther(seat) => match found {
                Some(record) => self.view.take_in(&seat, record, &self.profile, now),
                None => self.view.forget(&seat, now),
            },
            Purpose::ReadUnit(unit) => self.unit_read(&unit, found, out),
            _ => {}
        }
    }

    /// Reads the record that a purpose is about.
    pub(super) fn ask_again(&mut self, purpose: Purpose, out: &mut Vec<Effect>) {
        let name = match &purpose {
            Purpose::ReadSeat => self.seat_name(),
            Purpose::ReadOther(seat) => format!("{SEAT_PREFIX}{seat}"),
            Purpose::ReadUnit(unit) => unit.clone(),
            _ => return,
        };
        self.ask(purpose, Ask::Read(name), out);
    }

    pub(super) fn written(&mut self, call: Call, result: Result<Record, Failure>, now: Mono, out: &mut Vec<Effect>) {
        let Some(purpose) = self.calls.end(call) else { return };
        match purpose {
            Purpose::TakeSeat { sent } => self.seat_taken(result, sent, now, out),
            Purpose::Renew { sent } => self.renewed(result, sent, now, out),
            Purpose::EmptySeat => self.left(out),
            Purpose::Fence(seat) => match result {
                Ok(record) => self.view.take_in(&seat, record, &self.profile, now),
                // It was renewed, or another fenced it: look.
                Err(_) => self.ask_again(Purpose::ReadOther(seat), out),
            },
            Purpose::Acquire { unit, epoch, why } => self.acquired(unit, epoch, why, result, out),
            Purpose::Release(unit) => self.released(unit, result, out),
            Purpose::List | Purpose::Watch | Purpose::ReadSeat | Purpose::ReadOther(_) | Purpose::ReadUnit(_) => {}
        }
    }
}
