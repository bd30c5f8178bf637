//! The protocol as a synchronous machine: a process takes its seat, renews it, and holds units by compare-and-swap on
//! their records. Inputs and time in, effects out.
//! Must not know a client, a clock, or what a unit stands for.
//!
//! Every write carries the resourceVersion that was read; whoever loses the race learns it from the conflict. A renewal
//! counts from the moment before it was handed out, never from its answer.

use std::collections::{BTreeMap, BTreeSet};

use crate::hash::{ALGORITHM, queue_units};
use crate::lease::{self, Record, SEAT_PREFIX};
use crate::{Authority, Mono};

/// Names one request; its answer comes back with it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
pub struct Call(pub u64);

/// Durations of the protocol, ms. D / (1 + ρ) ≥ H · (1 + ρ) + margin must hold for the worst clock rate error ρ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Profile {
    /// R: renew period.
    pub renew_ms: u64,
    /// H: how long a seat is trusted, from before its renewal was sent.
    pub hold_ms: u64,
    /// D: how long a seat must be silent before another may fence it.
    pub dead_ms: u64,
}

impl Profile {
    /// Crash failover within 7.5 s.
    pub const FAST: Profile = Profile { renew_ms: 1_000, hold_ms: 3_000, dead_ms: 5_000 };
    /// Crash failover within 17.5 s; the default.
    pub const DEFAULT: Profile = Profile { renew_ms: 3_000, hold_ms: 9_000, dead_ms: 15_000 };
    /// Crash failover within 32.5 s.
    pub const RELAXED: Profile = Profile { renew_ms: 5_000, hold_ms: 18_000, dead_ms: 30_000 };
}

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
    /// It may have happened: no answer.
    Unknown,
}

/// What the core is told.
#[derive(Clone, Debug)]
pub enum Input {
    /// Begin, or nothing but time passed.
    Tick,
    /// A consistent list of all records of the namespace.
    Listed(Call, Result<Vec<Record>, Failure>),
    /// A consistent read of one record.
    Read(Call, Result<Option<Record>, Failure>),
    /// A create or PUT: the record as it is now.
    Written(Call, Result<Record, Failure>),
    /// Besides the queue units, exactly these are to be held.
    Wanted(BTreeSet<String>),
    /// The process with this identity, which ran at this very place, has ended: known, not guessed.
    Dead(String),
    /// An object carries this stamp: the epoch of the unit must be above it.
    Stamp(String, u64),
    /// Give everything up in order: drain, release, leave.
    Leave,
    /// All that was in flight for this unit has ended: it may be released (answer to [`Effect::Quiesce`]).
    Quiesced(String),
}

/// What the core asks for.
#[derive(Clone, Debug, PartialEq)]
pub enum Effect {
    /// List all records, consistently.
    List(Call),
    /// Read one record, consistently.
    Read(Call, String),
    /// Create a record.
    Create(Call, Record),
    /// PUT a record with the version that it carries.
    Put(Call, Record),
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
    /// End the process: why. Nothing may be sent any more.
    Exit(String),
    /// Everything is released; the process may end.
    Left,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stage {
    /// Nothing is known yet.
    New,
    /// Looking at the seat until it can be taken.
    Joining,
    /// The seat is ours.
    Seated,
    /// Units are being given up.
    Leaving,
    /// Over.
    Ended,
}

#[derive(Clone, Debug)]
enum Purpose {
    List,
    TakeSeat { sent: Mono },
    Renew { sent: Mono },
    ReadSeat,
    Fence(String),
    Acquire { unit: String, epoch: u64 },
    ReadUnit(String),
    Release(String),
    EmptySeat,
}

/// What an observer remembers of another seat.
#[derive(Clone, Debug)]
struct Observed {
    version: String,
    changed: Mono,
}

/// The state of one process.
#[derive(Debug)]
pub struct Shards {
    me: Identity,
    profile: Profile,
    stage: Stage,
    calls: BTreeMap<Call, Purpose>,
    next_call: u64,
    /// The seat record as last known.
    seat: Option<Record>,
    incarnation: u64,
    until: Option<Mono>,
    next_renew: Mono,
    next_list: Mono,
    wanted: BTreeSet<String>,
    records: BTreeMap<String, Record>,
    held: BTreeMap<String, u64>,
    /// Number of the last call that was handed out when a unit's acquisition was answered: lists begun before are no news.
    acquired_at: BTreeMap<String, u64>,
    quiescing: BTreeSet<String>,
    /// Epochs that must be exceeded, from stamps seen on objects.
    floors: BTreeMap<String, u64>,
    seats: BTreeMap<String, Record>,
    observed: BTreeMap<String, Observed>,
    /// Seats that unit records name and that are not there: since when we see that.
    absent: BTreeMap<String, Mono>,
    /// Last success of our own towards the hub: silence of others counts only while we are heard.
    connected: Option<Mono>,
    dead: BTreeSet<String>,
    told: BTreeMap<String, u64>,
    dice: u64,
}

/// Shortest time to the next wake-up, ms.
const WAKE_MIN_MS: u64 = 20;

/// Requests for unit records that may be under way at once.
const IN_FLIGHT_MAX: usize = 16;

impl Shards {
    /// A process that has not begun. `seed` spreads renewals.
    pub fn new(me: Identity, profile: Profile, seed: u64) -> Self {
        Self {
            me,
            profile,
            stage: Stage::New,
            calls: BTreeMap::new(),
            next_call: 0,
            seat: None,
            incarnation: 0,
            until: None,
            next_renew: Mono(0),
            next_list: Mono(0),
            wanted: BTreeSet::new(),
            records: BTreeMap::new(),
            held: BTreeMap::new(),
            acquired_at: BTreeMap::new(),
            quiescing: BTreeSet::new(),
            floors: BTreeMap::new(),
            seats: BTreeMap::new(),
            observed: BTreeMap::new(),
            absent: BTreeMap::new(),
            connected: None,
            dead: BTreeSet::new(),
            told: BTreeMap::new(),
            dice: seed,
        }
    }

    /// What the executor may do at present.
    pub fn authority(&self) -> Authority {
        let units = self.held.iter().filter(|(u, _)| !self.quiescing.contains(*u));
        Authority { until: self.until, units: units.map(|(u, e)| (u.clone(), *e)).collect() }
    }

    /// Whether the seat is ours.
    pub fn seated(&self) -> bool {
        self.stage == Stage::Seated
    }

    /// Takes one thing in; gives what is to be done, in order.
    pub fn handle(&mut self, input: Input, now: Mono) -> Vec<Effect> {
        let mut out = Vec::new();
        if self.stage == Stage::Ended {
            return out;
        }
        match input {
            Input::Tick => {}
            Input::Wanted(units) => self.wanted = units,
            Input::Dead(process) => {
                self.dead.insert(process);
            }
            Input::Stamp(unit, epoch) => self.stamp(unit, epoch, &mut out),
            Input::Leave => self.leave(&mut out),
            Input::Quiesced(unit) => self.quiesced(&unit, &mut out),
            Input::Listed(call, result) => self.listed(call, result, now, &mut out),
            Input::Read(call, result) => self.read(call, result, now, &mut out),
            Input::Written(call, result) => self.written(call, result, now, &mut out),
        }
        self.move_on(now, &mut out);
        out
    }

    // What time and knowledge ask for.
    fn move_on(&mut self, now: Mono, out: &mut Vec<Effect>) {
        if self.stage == Stage::Ended {
            return;
        }
        if self.until.is_some_and(|until| now >= until) {
            self.drop_authority(out);
        }
        if now >= self.next_list && !self.pending(|p| matches!(p, Purpose::List)) {
            self.next_list = now + self.profile.renew_ms;
            let call = self.call(Purpose::List);
            out.push(Effect::List(call));
        }
        match self.stage {
            Stage::New | Stage::Ended => {}
            Stage::Joining => self.join(now, out),
            Stage::Seated => {
                self.renew(now, out);
                self.fence_silent(now, out);
                self.acquire(now, out);
                self.give_up_unwanted(out);
            }
            Stage::Leaving => {
                self.renew(now, out);
                self.leave_when_empty(out);
            }
        }
        self.tell_epochs(out);
        let mut next = self.next_list;
        if matches!(self.stage, Stage::Seated | Stage::Leaving) {
            next = next.min(self.next_renew);
        }
        if let Some(until) = self.until {
            next = next.min(until);
        }
        // What is overdue waits for an answer that is under way: never ask to be called at once, again and again.
        out.push(Effect::WakeAt(next.max(now + WAKE_MIN_MS)));
    }

    fn call(&mut self, purpose: Purpose) -> Call {
        self.next_call += 1;
        let call = Call(self.next_call);
        self.calls.insert(call, purpose);
        call
    }

    fn pending(&self, test: impl Fn(&Purpose) -> bool) -> bool {
        self.calls.values().any(test)
    }

    // Seat.

    fn join(&mut self, now: Mono, out: &mut Vec<Effect>) {
        if self.pending(|p| matches!(p, Purpose::TakeSeat { .. } | Purpose::ReadSeat)) {
            return;
        }
        let name = format!("{SEAT_PREFIX}{}", self.me.seat);
        let (mut record, exists) = match self.seats.get(&self.me.seat) {
            None => (Record { name, ..Record::default() }, false),
            Some(record) => {
                let free = record.holder.is_empty()
                    || record.holder == self.me.process
                    || self.dead.contains(&record.holder)
                    || self.silent(&self.me.seat, record.duration_seconds, now);
                if !free {
                    return;
                }
                (record.clone(), true)
            }
        };
        record.holder.clone_from(&self.me.process);
        // Above every incarnation that was ever seen: a seat that a person deletes must not begin to count anew, or the
        // unit records of its earlier lives would look alive for ever.
        let named = self.records.values().filter_map(Record::held_by).filter(|(seat, _)| *seat == self.me.seat);
        let highest = named.map(|(_, incarnation)| incarnation).max().unwrap_or(0);
        record.transitions = record.transitions.max(self.incarnation).max(highest) + 1;
        record.duration_seconds = self.profile.dead_ms / 1000;
        record.annotations.insert(lease::PLACE.to_owned(), self.me.place.clone());
        record.annotations.insert(lease::ALGORITHM.to_owned(), ALGORITHM.to_string());
        record.annotations.insert(lease::STATE.to_owned(), "ready".to_owned());
        let call = self.call(Purpose::TakeSeat { sent: now });
        out.push(if exists { Effect::Put(call, record) } else { Effect::Create(call, record) });
    }

    /// D of silence, observed on our own clock, while we ourselves were heard.
    fn silent(&self, seat: &str, duration_seconds: u64, now: Mono) -> bool {
        let dead_ms = if duration_seconds > 0 { duration_seconds * 1000 } else { self.profile.dead_ms };
        let heard = self.connected.is_some_and(|at| now.0.saturating_sub(at.0) <= 2 * self.profile.renew_ms);
        heard && self.observed.get(seat).is_some_and(|o| now.0.saturating_sub(o.changed.0) >= dead_ms)
    }

    fn renew(&mut self, now: Mono, out: &mut Vec<Effect>) {
        if now < self.next_renew
            || self.pending(|p| matches!(p, Purpose::Renew { .. } | Purpose::ReadSeat | Purpose::EmptySeat))
        {
            return;
        }
        let Some(record) = self.seat.clone() else { return };
        self.next_renew = now + self.jittered(self.profile.renew_ms);
        let call = self.call(Purpose::Renew { sent: now });
        out.push(Effect::Put(call, record));
    }

    /// ±10 %, from a small generator of our own (splitmix64): the crate's only dice, seeded from outside.
    fn jittered(&mut self, ms: u64) -> u64 {
        self.dice = self.dice.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.dice;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ms * 9 / 10 + (z ^ (z >> 31)) % (ms / 5).max(1)
    }

    fn seated_now(&mut self, record: Record, sent: Mono) {
        self.incarnation = record.transitions;
        self.until = Some(sent + self.profile.hold_ms);
        self.seats.insert(self.me.seat.clone(), record.clone());
        self.seat = Some(record);
        self.next_renew = sent + self.profile.renew_ms;
        self.stage = Stage::Seated;
    }

    fn drop_authority(&mut self, out: &mut Vec<Effect>) {
        self.until = None;
        self.seat = None;
        self.quiescing.clear();
        for unit in std::mem::take(&mut self.held).into_keys() {
            out.push(Effect::Lost(unit));
        }
        self.stage = Stage::Joining;
        self.next_list = Mono(0);
    }

    fn exit(&mut self, why: String, out: &mut Vec<Effect>) {
        self.drop_authority(out);
        self.stage = Stage::Ended;
        out.push(Effect::Exit(why));
    }

    // Other seats.

    fn fence_silent(&mut self, now: Mono, out: &mut Vec<Effect>) {
        let silent: Vec<Record> = self
            .seats
            .iter()
            .filter(|(name, record)| {
                **name != self.me.seat
                    && !record.holder.is_empty()
                    && self.silent(name, record.duration_seconds, now)
                    && !self.pending(|p| matches!(p, Purpose::Fence(n) if n == *name))
            })
            .map(|(_, record)| record.clone())
            .collect();
        for mut record in silent {
            let name = record.seat().unwrap_or_default().to_owned();
            record.holder.clear();
            record.transitions += 1;
            let call = self.call(Purpose::Fence(name));
            out.push(Effect::Put(call, record));
        }
    }

    /// A record names a holder that can never write again.
    fn dangling(&self, record: &Record, now: Mono) -> bool {
        match record.held_by() {
            None => record.holder.is_empty() || !record.holder.contains('#'),
            Some((seat, incarnation)) => match self.seats.get(seat) {
                // A seat that a person deleted: its holder may trust it for H yet.
                None => self.absent.get(seat).is_some_and(|since| now.0 - since.0 >= self.profile.dead_ms),
                Some(s) => s.transitions > incarnation || s.holder.is_empty(),
            },
        }
    }

    // Units.

    fn wants(&self) -> impl Iterator<Item = String> + '_ {
        queue_units().chain(self.wanted.iter().cloned())
    }

    fn acquire(&mut self, now: Mono, out: &mut Vec<Effect>) {
        let holder = format!("{}#{}", self.me.seat, self.incarnation);
        let busy = self.calls.values().filter(|p| matches!(p, Purpose::Acquire { .. } | Purpose::ReadUnit(_))).count();
        let mut room = IN_FLIGHT_MAX.saturating_sub(busy);
        let wants: Vec<String> = self.wants().collect();
        for unit in wants {
            if room == 0 {
                break;
            }
            let asked = self.pending(|p| match p {
                Purpose::Acquire { unit: u, .. } | Purpose::ReadUnit(u) | Purpose::Release(u) => *u == unit,
                _ => false,
            });
            if asked || self.held.contains_key(&unit) {
                continue;
            }
            let (mut record, exists) = match self.records.get(&unit) {
                None => (Record { name: unit.clone(), ..Record::default() }, false),
                Some(r) if r.holder == holder || self.dangling(r, now) => (r.clone(), true),
                Some(_) => continue,
            };
            let floor = self.floors.get(&unit).copied().unwrap_or(0).max(self.told.get(&unit).copied().unwrap_or(0));
            let epoch = record.transitions.max(floor) + 1;
            record.holder.clone_from(&holder);
            record.transitions = epoch;
            let call = self.call(Purpose::Acquire { unit, epoch });
            out.push(if exists { Effect::Put(call, record) } else { Effect::Create(call, record) });
            room -= 1;
        }
    }

    fn give_up_unwanted(&mut self, out: &mut Vec<Effect>) {
        let wants: BTreeSet<String> = self.wants().collect();
        let surplus: Vec<String> =
            self.held.keys().filter(|u| !wants.contains(*u) && !self.quiescing.contains(*u)).cloned().collect();
        for unit in surplus {
            self.quiescing.insert(unit.clone());
            out.push(Effect::Quiesce(unit));
        }
    }

    fn quiesced(&mut self, unit: &str, out: &mut Vec<Effect>) {
        if !self.quiescing.contains(unit) || self.pending(|p| matches!(p, Purpose::Release(u) if u == unit)) {
            return;
        }
        let Some(mut record) = self.records.get(unit).cloned() else { return };
        record.holder.clear();
        let call = self.call(Purpose::Release(unit.to_owned()));
        out.push(Effect::Put(call, record));
    }

    fn leave(&mut self, out: &mut Vec<Effect>) {
        if self.stage != Stage::Seated {
            self.stage = Stage::Ended;
            out.push(Effect::Left);
            return;
        }
        self.stage = Stage::Leaving;
        for unit in self.held.keys().cloned().collect::<Vec<_>>() {
            if self.quiescing.insert(unit.clone()) {
                out.push(Effect::Quiesce(unit));
            }
        }
    }

    fn leave_when_empty(&mut self, out: &mut Vec<Effect>) {
        if !self.held.is_empty()
            || self.pending(|p| {
                matches!(p, Purpose::Acquire { .. } | Purpose::Release(_) | Purpose::EmptySeat | Purpose::Renew { .. })
            })
        {
            return;
        }
        let Some(mut record) = self.seat.clone() else { return };
        record.holder.clear();
        record.annotations.insert(lease::STATE.to_owned(), "draining".to_owned());
        let call = self.call(Purpose::EmptySeat);
        out.push(Effect::Put(call, record));
    }

    /// A higher stamp of our own unit than our epoch: the hub may have been restored from a backup. Read the record; if
    /// it is still ours, the epoch is raised above the stamp.
    fn stamp(&mut self, unit: String, epoch: u64, out: &mut Vec<Effect>) {
        let floor = self.floors.entry(unit.clone()).or_default();
        *floor = (*floor).max(epoch);
        if self.held.get(&unit).is_some_and(|mine| *mine < epoch) {
            self.held.remove(&unit);
            self.quiescing.remove(&unit);
            out.push(Effect::Lost(unit.clone()));
            let call = self.call(Purpose::ReadUnit(unit.clone()));
            out.push(Effect::Read(call, unit));
        }
    }

    fn tell_epochs(&mut self, out: &mut Vec<Effect>) {
        let mut changed = BTreeMap::new();
        for (unit, record) in &self.records {
            if self.told.get(unit).is_none_or(|epoch| *epoch < record.transitions) {
                changed.insert(unit.clone(), record.transitions);
            }
        }
        if !changed.is_empty() {
            self.told.extend(changed.clone());
            out.push(Effect::Epochs(changed));
        }
    }

    // Answers.

    fn listed(&mut self, call: Call, result: Result<Vec<Record>, Failure>, now: Mono, out: &mut Vec<Effect>) {
        if self.calls.remove(&call).is_none() {
            return;
        }
        let Ok(records) = result else { return };
        self.connected = Some(now);
        let mut seats = BTreeMap::new();
        let mut units = BTreeMap::new();
        for record in records {
            match record.seat() {
                Some(seat) => {
                    seats.insert(seat.to_owned(), record);
                }
                None => {
                    units.insert(record.name.clone(), record);
                }
            }
        }
        for (name, record) in &seats {
            let seen = self.observed.get(name).is_some_and(|o| o.version == record.version);
            if !seen {
                self.observed.insert(name.clone(), Observed { version: record.version.clone(), changed: now });
            }
        }
        self.observed.retain(|name, _| seats.contains_key(name));
        let absent: BTreeSet<&str> = units
            .values()
            .filter_map(Record::held_by)
            .map(|(seat, _)| seat)
            .filter(|s| !seats.contains_key(*s))
            .collect();
        self.absent.retain(|seat, _| absent.contains(seat.as_str()));
        for seat in absent {
            self.absent.entry(seat.to_owned()).or_insert(now);
        }
        self.seats = seats;
        self.take_in_units(call, units, out);
        if self.stage == Stage::New {
            self.stage = Stage::Joining;
        }
        if self.stage == Stage::Joining
            && let Some(record) = self.seats.get(&self.me.seat)
            && !record.holder.is_empty()
            && record.annotations.get(lease::PLACE) == Some(&self.me.place)
            && !self.dead.contains(&record.holder)
            && record.holder != self.me.process
        {
            out.push(Effect::Attest(record.holder.clone()));
        }
    }

    /// Records as listed by `call`. Where an answer is under way, or our acquisition was answered after the list was
    /// begun, the list is no news.
    fn take_in_units(&mut self, call: Call, mut units: BTreeMap<String, Record>, out: &mut Vec<Effect>) {
        let busy: BTreeSet<String> = self
            .calls
            .values()
            .filter_map(|p| match p {
                Purpose::Acquire { unit, .. } | Purpose::ReadUnit(unit) | Purpose::Release(unit) => Some(unit.clone()),
                _ => None,
            })
            .chain(self.acquired_at.iter().filter(|(_, at)| call.0 <= **at).map(|(unit, _)| unit.clone()))
            .collect();
        let mine = format!("{}#{}", self.me.seat, self.incarnation);
        let known: BTreeSet<String> = self.records.keys().chain(self.held.keys()).cloned().collect();
        for unit in known.into_iter().filter(|unit| !busy.contains(unit)) {
            let listed = units.remove(&unit);
            let ours =
                listed.as_ref().is_some_and(|r| r.holder == mine && Some(&r.transitions) == self.held.get(&unit));
            if !ours && self.held.remove(&unit).is_some() {
                self.quiescing.remove(&unit);
                out.push(Effect::Lost(unit.clone()));
            }
            let old = match listed {
                Some(record) => self.records.insert(unit.clone(), record),
                None => self.records.remove(&unit),
            };
            // A record that a person deletes or sets back must not let an epoch come twice.
            let floor = self.floors.entry(unit).or_default();
            *floor = (*floor).max(old.map_or(0, |r| r.transitions));
        }
        self.records.extend(units.into_iter().filter(|(unit, _)| !busy.contains(unit)));
    }

    fn read(&mut self, call: Call, result: Result<Option<Record>, Failure>, now: Mono, out: &mut Vec<Effect>) {
        let Some(purpose) = self.calls.remove(&call) else { return };
        let Ok(found) = result else {
            // Nothing learnt: ask again with the next tick.
            self.read_again(purpose, out);
            return;
        };
        self.connected = Some(now);
        match purpose {
            Purpose::ReadSeat => self.seat_read(found, out),
            Purpose::ReadUnit(unit) => self.unit_read(&unit, found, out),
            _ => {}
        }
    }

    fn read_again(&mut self, purpose: Purpose, out: &mut Vec<Effect>) {
        let name = match &purpose {
            Purpose::ReadSeat => format!("{SEAT_PREFIX}{}", self.me.seat),
            Purpose::ReadUnit(unit) => unit.clone(),
            _ => return,
        };
        let call = self.call(purpose);
        out.push(Effect::Read(call, name));
    }

    fn seat_read(&mut self, found: Option<Record>, out: &mut Vec<Effect>) {
        let Some(record) = found else {
            self.seats.remove(&self.me.seat);
            self.drop_authority(out);
            return;
        };
        self.seats.insert(self.me.seat.clone(), record.clone());
        if record.holder == self.me.process && record.transitions == self.incarnation && self.seat.is_some() {
            // Our own renewal got through and its answer did not: go on from its version, renew at once.
            self.seat = Some(record);
            self.next_renew = Mono(0);
        } else if record.holder.is_empty() || record.holder == self.me.process {
            // Fenced: join again with a new incarnation.
            self.drop_authority(out);
        } else if self.stage == Stage::Joining {
            // Somebody was quicker.
        } else {
            self.exit(format!("seat {} is held by another process", self.me.seat), out);
        }
    }

    fn unit_read(&mut self, unit: &str, found: Option<Record>, out: &mut Vec<Effect>) {
        match found {
            None => {
                if let Some(old) = self.records.remove(unit) {
                    let floor = self.floors.entry(unit.to_owned()).or_default();
                    *floor = (*floor).max(old.transitions);
                }
                if self.held.remove(unit).is_some() {
                    out.push(Effect::Lost(unit.to_owned()));
                }
            }
            Some(record) => {
                self.records.insert(unit.to_owned(), record);
            }
        }
    }

    fn written(&mut self, call: Call, result: Result<Record, Failure>, now: Mono, out: &mut Vec<Effect>) {
        let Some(purpose) = self.calls.remove(&call) else { return };
        if result.is_ok() {
            self.connected = Some(now);
        }
        match (purpose, result) {
            (Purpose::TakeSeat { sent }, Ok(record)) => self.seated_now(record, sent),
            (Purpose::TakeSeat { .. }, Err(_)) => self.read_again(Purpose::ReadSeat, out),
            (Purpose::Renew { sent }, Ok(record)) => {
                if self.seat.is_some() {
                    self.until = Some(sent + self.profile.hold_ms);
                    self.seats.insert(self.me.seat.clone(), record.clone());
                    self.seat = Some(record);
                }
            }
            (Purpose::Renew { .. }, Err(_)) => self.read_again(Purpose::ReadSeat, out),
            (Purpose::Fence(seat), Ok(record)) => {
                self.seats.insert(seat, record);
            }
            (Purpose::Fence(_), Err(_)) => self.next_list = Mono(0),
            (Purpose::Acquire { unit, epoch }, Ok(record)) => {
                // An answer from before we lost the seat names another incarnation: not ours.
                let ours = record.held_by() == Some((self.me.seat.as_str(), self.incarnation));
                self.records.insert(unit.clone(), record);
                if self.stage == Stage::Seated && ours {
                    self.acquired_at.insert(unit.clone(), self.next_call);
                    self.held.insert(unit.clone(), epoch);
                    out.push(Effect::Held(unit, epoch));
                }
            }
            (Purpose::Acquire { unit, .. }, Err(_)) => self.read_again(Purpose::ReadUnit(unit), out),
            (Purpose::Release(unit), Ok(record)) => {
                self.records.insert(unit.clone(), record);
                self.quiescing.remove(&unit);
                if self.held.remove(&unit).is_some() {
                    out.push(Effect::Lost(unit));
                }
            }
            (Purpose::Release(unit), Err(_)) => {
                self.quiescing.remove(&unit);
                if self.held.remove(&unit).is_some() {
                    out.push(Effect::Lost(unit.clone()));
                }
                self.read_again(Purpose::ReadUnit(unit), out);
            }
            (Purpose::EmptySeat, _) => {
                self.until = None;
                self.seat = None;
                self.stage = Stage::Ended;
                out.push(Effect::Left);
            }
            (Purpose::List | Purpose::ReadSeat | Purpose::ReadUnit(_), _) => {}
        }
    }
}

#[cfg(test)]
#[path = "core_tests.rs"]
mod tests;
