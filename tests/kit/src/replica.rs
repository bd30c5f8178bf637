//! One simulated `rayfleet run`: the real engine, informers and shards core, and what the shell does between them.
//! Must not know delays or faults: calls go out as data, answers come in as data.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use rayfleet::api::wire::{Reply, Request};
use rayfleet::api::{Cluster, Id, Kind, Time};
use rayfleet::engine::{Effect, Engine, Input, Outcome, Presence, Standing, Ticket, request};
use rayfleet::plan::{Action, Flags, Question, TokenKey};
use rayfleet::row::TableChange;
use rayfleet::shell::heartbeat::requests::{self as leases, Asked};
use rayfleet::shell::informer::core::{End, Informer, InformerEffect, InformerEvent};
use shards::{Failure, Identity, Mono, Shards};

use crate::dangers::Danger;
use crate::dangers::mutant::{Mutant, is_marking};
use crate::wish::{InName, Outgoing, Setup, Wish};
use crate::world::SentLine;

/// Namespace of the Leases.
const LEASES: &str = "rayfleet-system";

/// What a call is for, and so what its answer means.
#[derive(Clone, Debug)]
enum Purpose {
    Write(Ticket, Box<Action>, InName),
    Fetch(Ticket, Id, Time),
    Ask(Ticket, Box<Question>, InName),
    Informer(Cluster, Kind, u64),
    Lease(shards::Call, Asked, Mono),
    Note,
}

impl Purpose {
    fn name(&self) -> Option<&InName> {
        match self {
            Purpose::Write(_, _, name) | Purpose::Ask(_, _, name) => Some(name),
            _ => None,
        }
    }
}

struct Stream {
    informer: Informer,
    serial: u64,
    open: Option<u64>,
    timer: Option<Time>,
}

/// One running process.
pub struct Replica {
    /// The engine, for checks.
    pub engine: Engine,
    shards: Shards,
    born: Time,
    informers: BTreeMap<(Cluster, Kind), Stream>,
    calls: BTreeMap<u64, Purpose>,
    next_call: u64,
    engine_wake: Option<Time>,
    shards_wake: Option<Time>,
    members: BTreeSet<Cluster>,
    seed: u64,
    /// Units that are being given up while requests in their name are under way.
    quiescing: BTreeSet<Arc<str>>,
    /// Predecessors that the host knows to have ended.
    dead: BTreeSet<String>,
    /// It may have come to act for a unit since this was last looked at.
    gained: bool,
    /// For how long its clock stood still.
    stood: Duration,
    mutant: Mutant,
}

/// Time limit of reads, ms.
const READ_LIMIT_MS: u64 = 5_000;
/// Time limit of writes of Leases, ms: three tries fit into the time that a seat is trusted.
const LEASE_LIMIT_MS: u64 = 2_000;

impl Replica {
    /// A process that starts at `now`.
    pub fn start(setup: Setup, now: Time) -> (Self, Vec<Wish>) {
        let Setup { seat, process, profile, seed, dead, members, hold, dangers } = setup;
        let me = Identity { seat, process, place: "host".to_owned() };
        let mutant = Mutant::new(dangers);
        let flags = Flags {
            tombstone_hold_ms: hold.as_millis() as u64,
            token_key: Some(TokenKey::new([7; 32])),
            ..Flags::default()
        };
        let mut replica = Self {
            engine: mutant.engine(flags, seed),
            mutant,
            shards: Shards::new(me, profile, seed),
            born: now,
            informers: BTreeMap::new(),
            calls: BTreeMap::new(),
            next_call: 0,
            engine_wake: None,
            shards_wake: None,
            members,
            seed,
            quiescing: BTreeSet::new(),
            dead,
            gained: false,
            stood: Duration::ZERO,
        };
        let mut wishes = Vec::new();
        replica.feed_engine(Input::Cluster(Cluster::Hub, Presence::Added), now, &mut wishes);
        replica.feed_shards(shards::Input::Tick, now, &mut wishes);
        (replica, wishes)
    }

    fn mono(&self, now: Time) -> Mono {
        let stood_ms = self.stood.as_millis() as u64 + self.mutant.stood_still_ms;
        Mono((now.since(self.born).as_millis() as u64).saturating_sub(stood_ms))
    }

    /// Its machine stands still for this long, and with it its clock.
    pub fn stand_still(&mut self, length: Duration) {
        self.stood += length;
    }

    /// SIGTERM: gives up what it holds, in order.
    pub fn leave(&mut self, now: Time) -> Vec<Wish> {
        let mut wishes = Vec::new();
        self.feed_shards(shards::Input::Leave, now, &mut wishes);
        wishes
    }

    /// The units for which it may act at `now`, with their epochs.
    pub fn authorities(&self, now: Time) -> impl Iterator<Item = (&str, u64)> {
        let mono = self.mono(now);
        self.shards.may_act(mono)
    }

    /// Whether it may have come to act for a unit since the last call.
    pub fn take_gained(&mut self) -> bool {
        std::mem::take(&mut self.gained)
    }

    /// A time that was asked for has come.
    pub fn wake(&mut self, now: Time) -> Vec<Wish> {
        let mut wishes = Vec::new();
        if self.shards_wake.is_some_and(|at| at <= now) {
            self.shards_wake = None;
            self.feed_shards(shards::Input::Tick, now, &mut wishes);
        }
        let due: Vec<_> = self
            .informers
            .iter()
            .filter(|(_, s)| s.timer.is_some_and(|at| at <= now))
            .map(|(k, _)| k.clone())
            .collect();
        for key in due {
            if let Some(stream) = self.informers.get_mut(&key) {
                stream.timer = None;
            }
            self.feed_informer(&key, InformerEvent::Timer, now, &mut wishes);
        }
        if self.engine_wake.is_some_and(|at| at <= now) {
            self.engine_wake = None;
            self.feed_engine(Input::Tick, now, &mut wishes);
        }
        wishes
    }

    /// The answer to a call; `None` where none came within its time limit.
    pub fn answer(&mut self, call: u64, reply: Option<&Reply>, now: Time) -> Vec<Wish> {
        let mut wishes = Vec::new();
        let Some(purpose) = self.calls.remove(&call) else { return wishes };
        match purpose {
            Purpose::Write(ticket, action, name) => {
                let outcome = request::outcome(&action, reply);
                self.feed_engine(Input::Done(ticket, outcome), now, &mut wishes);
                self.check_quiesced(&name.unit, now, &mut wishes);
            }
            Purpose::Fetch(ticket, id, begun) => {
                let result = request::fetched(&id, reply);
                self.feed_engine(Input::Fetched(ticket, begun, result), now, &mut wishes);
            }
            Purpose::Ask(ticket, question, name) => {
                let outcome = request::answered(&question, reply);
                self.feed_engine(Input::Ray(ticket, outcome), now, &mut wishes);
                self.check_quiesced(&name.unit, now, &mut wishes);
            }
            Purpose::Informer(cluster, kind, serial) => {
                let key = (cluster, kind);
                let Some(stream) = self.informers.get_mut(&key) else { return wishes };
                if stream.serial != serial {
                    return wishes;
                }
                let watch = stream.open == Some(call);
                stream.open = None;
                let event = match reply {
                    None => InformerEvent::Failed("no answer".to_owned()),
                    Some(r) if watch => InformerEvent::WatchRefused { status: r.status, body: r.body.clone() },
                    Some(r) => InformerEvent::ListReply { status: r.status, body: r.body.clone() },
                };
                self.feed_informer(&key, event, now, &mut wishes);
            }
            Purpose::Lease(call, asked, sent) => {
                if reply.is_some() && !self.mutant.counts_from_answers() {
                    let seconds = u64::try_from(now.0 / 1000).unwrap_or_default();
                    self.feed_shards(shards::Input::HubTime { seconds, sent }, now, &mut wishes);
                }
                self.mutant.lease_answered(call, reply, now);
                let reply = reply.ok_or_else(|| Failure::Unknown("no answer".to_owned()));
                let input = leases::answered(call, asked, reply).input;
                self.feed_shards(input, now, &mut wishes);
            }
            Purpose::Note => {}
        }
        wishes
    }

    /// The stream of a call has begun.
    pub fn opened(&mut self, call: u64, now: Time) -> Vec<Wish> {
        self.stream_event(call, InformerEvent::WatchOpened, now)
    }

    /// A line of a stream.
    pub fn line(&mut self, call: u64, line: &SentLine, now: Time) -> Vec<Wish> {
        let event = match self.calls.get(&call) {
            Some(Purpose::Lease(watch, ..)) => {
                let mut wishes = Vec::new();
                if let Some(input) = leases::line(*watch, line.bytes()) {
                    self.lease_event(call, input, now, &mut wishes);
                }
                return wishes;
            }
            Some(Purpose::Informer(_, kind, _)) => InformerEvent::Line(line.decoded(*kind)),
            _ => return Vec::new(),
        };
        self.stream_event(call, event, now)
    }

    fn lease_event(&mut self, call: u64, input: shards::Input, now: Time, wishes: &mut Vec<Wish>) {
        if matches!(input, shards::Input::Ended(_)) {
            self.calls.remove(&call);
        }
        self.feed_shards(input, now, wishes);
    }

    /// A stream has ended.
    pub fn ended(&mut self, call: u64, end: End, now: Time) -> Vec<Wish> {
        self.stream_event(call, InformerEvent::Ended(end), now)
    }

    fn stream_event(&mut self, call: u64, event: InformerEvent, now: Time) -> Vec<Wish> {
        let mut wishes = Vec::new();
        if let Some(Purpose::Lease(watch, ..)) = self.calls.get(&call) {
            if matches!(event, InformerEvent::Ended(_)) {
                let ended = shards::Input::Ended(*watch);
                self.lease_event(call, ended, now, &mut wishes);
            }
            return wishes;
        }
        let Some(Purpose::Informer(cluster, kind, serial)) = self.calls.get(&call).cloned() else { return wishes };
        let key = (cluster, kind);
        if self.informers.get(&key).is_none_or(|s| s.serial != serial) {
            return wishes;
        }
        if matches!(event, InformerEvent::Ended(_)) {
            self.calls.remove(&call);
            if let Some(stream) = self.informers.get_mut(&key) {
                stream.open = None;
            }
        }
        self.feed_informer(&key, event, now, &mut wishes);
        wishes
    }

    fn send(
        &mut self,
        purpose: Purpose,
        cluster: Cluster,
        request: Request,
        time_limit_ms: u64,
        wishes: &mut Vec<Wish>,
    ) -> u64 {
        self.next_call += 1;
        let call = self.next_call;
        let is_write = match &purpose {
            Purpose::Write(..) | Purpose::Note => true,
            Purpose::Ask(_, question, _) => !question.is_read(),
            Purpose::Lease(_, asked, _) => *asked == Asked::Write,
            Purpose::Fetch(..) | Purpose::Informer(..) => false,
        };
        let is_watch = request.is_watch();
        let name = purpose.name().cloned();
        self.calls.insert(call, purpose);
        wishes.push(Wish::Send(Outgoing { call, cluster, request, time_limit_ms, is_write, is_watch, name }));
        call
    }

    /// A unit that is given up is free once nothing that was sent in its name is under way.
    fn check_quiesced(&mut self, unit: &Arc<str>, now: Time, wishes: &mut Vec<Wish>) {
        let under_way = |p: &Purpose| p.name().is_some_and(|name| name.unit == *unit);
        let waits = !self.mutant.has(Danger::ReleaseBeforeQuiesce) && self.calls.values().any(under_way);
        if self.quiescing.contains(unit) && !waits {
            self.quiescing.remove(unit);
            self.feed_shards(shards::Input::Quiesced(unit.to_string()), now, wishes);
        }
    }

    fn feed_engine(&mut self, input: Input, now: Time, wishes: &mut Vec<Wish>) {
        let effects = self.engine.handle(input, now);
        for effect in effects {
            self.carry_out(effect, now, wishes);
        }
    }

    fn carry_out(&mut self, effect: Effect, now: Time, wishes: &mut Vec<Wish>) {
        match effect {
            Effect::Write { ticket, unit, epoch, action, time_limit_ms } => {
                let left = self.shards.authority().left_ms(&unit, epoch, self.mono(now));
                let (left, action) = match self.mutant.sends(&self.engine, left, action, epoch) {
                    Ok(sending) => sending,
                    Err(why) => {
                        let why = why.unwrap_or_else(|| format!("authority for {unit} at epoch {epoch} has ended"));
                        self.feed_engine(Input::Done(ticket, Outcome::NotSent(why)), now, wishes);
                        return;
                    }
                };
                let limit = time_limit_ms.min(left).max(1);
                let cluster = action.cluster();
                let name = InName { unit, epoch, marks: is_marking(&action) };
                if let Action::Ask { dashboard, question, .. } = &action {
                    let request = request::ask(dashboard, question);
                    let question = Box::new(question.clone());
                    self.send(Purpose::Ask(ticket, question, name), cluster, request, limit, wishes);
                } else {
                    let request = request::write(&action, limit).expect("every other action is a request");
                    self.send(Purpose::Write(ticket, Box::new(action), name), cluster, request, limit, wishes);
                }
            }
            Effect::Fetch(ticket, cluster, id) => {
                let request = request::fetch(&id);
                self.send(Purpose::Fetch(ticket, id, now), cluster, request, READ_LIMIT_MS, wishes);
            }
            Effect::Watch(cluster, kinds) => self.watch(&cluster, &kinds, now, wishes),
            Effect::Relist(cluster, kinds) => {
                for kind in kinds {
                    match self.mutant.list_from_memory(&self.engine, &cluster, kind, now) {
                        Some(list) => self.rows(&cluster, kind, list, now, wishes),
                        None => self.feed_informer(&(cluster.clone(), kind), InformerEvent::Relist, now, wishes),
                    }
                }
            }
            Effect::Units(units) => {
                let wanted = units.iter().map(ToString::to_string).collect();
                self.feed_shards(shards::Input::Wanted(wanted), now, wishes);
            }
            Effect::Member(name, spec) => {
                let cluster = Cluster::Member(name);
                let presence = match spec {
                    None => Presence::Gone,
                    Some(_) if self.members.contains(&cluster) => Presence::Added,
                    Some(_) => Presence::Refused("no such member in this simulation".to_owned()),
                };
                self.feed_engine(Input::Cluster(cluster, presence), now, wishes);
            }
            Effect::Doubt(unit, epoch) => {
                self.feed_shards(shards::Input::Stamp(unit.to_string(), epoch), now, wishes);
            }
            Effect::Record(note) => {
                let cluster = note.cluster.clone();
                let request = request::note(&note, now);
                self.send(Purpose::Note, cluster, request, READ_LIMIT_MS, wishes);
            }
            Effect::Warm => self.feed_shards(shards::Input::Ready, now, wishes),
            Effect::WakeAt(at) => {
                self.engine_wake = Some(at);
                wishes.push(Wish::WakeAt(at));
            }
        }
    }

    fn watch(&mut self, cluster: &Cluster, kinds: &BTreeSet<Kind>, now: Time, wishes: &mut Vec<Wish>) {
        let surplus: Vec<_> =
            self.informers.keys().filter(|(c, kind)| c == cluster && !kinds.contains(kind)).cloned().collect();
        for key in surplus {
            if let Some(call) = self.informers.remove(&key).and_then(|s| s.open) {
                wishes.push(Wish::Close(call));
            }
        }
        for kind in kinds {
            let key = (cluster.clone(), *kind);
            if self.informers.contains_key(&key) {
                continue;
            }
            self.seed = self.seed.wrapping_add(1);
            let informer = Informer::new(cluster.clone(), *kind, self.seed);
            self.informers.insert(key.clone(), Stream { informer, serial: 0, open: None, timer: None });
            self.feed_informer(&key, InformerEvent::Start, now, wishes);
        }
    }

    fn feed_informer(&mut self, key: &(Cluster, Kind), event: InformerEvent, now: Time, wishes: &mut Vec<Wish>) {
        let Some(stream) = self.informers.get_mut(key) else { return };
        for effect in stream.informer.handle(event, now) {
            match effect {
                InformerEffect::Send(request) => {
                    let Some(stream) = self.informers.get_mut(key) else { return };
                    stream.serial += 1;
                    let serial = stream.serial;
                    if let Some(call) = stream.open.take() {
                        self.calls.remove(&call);
                        wishes.push(Wish::Close(call));
                    }
                    let watch = request.is_watch();
                    let purpose = Purpose::Informer(key.0.clone(), key.1, serial);
                    let call = self.send(purpose, key.0.clone(), request, 60_000, wishes);
                    if let Some(stream) = self.informers.get_mut(key)
                        && watch
                    {
                        stream.open = Some(call);
                    }
                }
                InformerEffect::Cancel => {
                    let Some(stream) = self.informers.get_mut(key) else { return };
                    stream.serial += 1;
                    if let Some(call) = stream.open.take() {
                        self.calls.remove(&call);
                        wishes.push(Wish::Close(call));
                    }
                }
                InformerEffect::Timer(at) => {
                    let Some(stream) = self.informers.get_mut(key) else { return };
                    stream.timer = Some(at);
                    wishes.push(Wish::WakeAt(at));
                }
                InformerEffect::Change(change) => self.rows(&key.0, key.1, change, now, wishes),
                InformerEffect::Relisting(_) => {}
            }
        }
    }

    fn rows(&mut self, cluster: &Cluster, kind: Kind, mut change: TableChange, now: Time, wishes: &mut Vec<Wish>) {
        self.mutant.tell(&mut change, || self.shards.authority());
        self.feed_engine(Input::Rows(cluster.clone(), kind, change), now, wishes);
    }

    fn lost(&mut self, unit: Arc<str>, now: Time, wishes: &mut Vec<Wish>) {
        if !self.mutant.has(Danger::NoOwnerCheck) {
            self.feed_engine(Input::Unit(unit, Standing::Lost), now, wishes);
        }
    }

    fn feed_shards(&mut self, input: shards::Input, now: Time, wishes: &mut Vec<Wish>) {
        let mono = self.mono(now);
        self.gained = true;
        for effect in self.shards.handle(input, mono) {
            match effect {
                shards::Effect::Ask(call, ask) => {
                    let asked = Asked::of(&ask);
                    self.mutant.lease_asked(call, &ask, now);
                    let limit = if asked == Asked::Write { LEASE_LIMIT_MS } else { READ_LIMIT_MS };
                    let request = leases::request(LEASES, &ask, limit, now);
                    self.send(Purpose::Lease(call, asked, mono), Cluster::Hub, request, limit, wishes);
                }
                shards::Effect::Close(watch) => {
                    let open = |p: &Purpose| matches!(p, Purpose::Lease(call, ..) if *call == watch);
                    if let Some(call) = self.calls.iter().find(|(_, p)| open(p)).map(|(call, _)| *call) {
                        self.calls.remove(&call);
                        wishes.push(Wish::Close(call));
                    }
                }
                shards::Effect::Attest(process) => {
                    if self.dead.contains(&process) {
                        self.feed_shards(shards::Input::Dead(process), now, wishes);
                    }
                }
                shards::Effect::Held(unit, epoch) => {
                    wishes.push(Wish::Held(unit.clone()));
                    let hub = Cluster::Hub;
                    if let Some(list) = self.mutant.list_from_memory(&self.engine, &hub, Kind::Placement, now) {
                        self.rows(&hub, Kind::Placement, list, now, wishes);
                    }
                    self.feed_engine(Input::Unit(unit.into(), Standing::Held(epoch)), now, wishes);
                }
                shards::Effect::Lost(unit) => self.lost(unit.into(), now, wishes),
                shards::Effect::Quiesce(unit) => {
                    let unit: Arc<str> = unit.into();
                    self.lost(unit.clone(), now, wishes);
                    self.quiescing.insert(unit.clone());
                    self.check_quiesced(&unit, now, wishes);
                }
                shards::Effect::Epochs(epochs) => {
                    let epochs: BTreeMap<Arc<str>, u64> = epochs.into_iter().map(|(u, e)| (u.into(), e)).collect();
                    self.feed_engine(Input::Epochs(epochs), now, wishes);
                }
                shards::Effect::WakeAt(at) => {
                    let at = at.0.saturating_add(self.mutant.stood_still_ms);
                    let at = self.born + self.stood + Duration::from_millis(at);
                    self.shards_wake = Some(at);
                    wishes.push(Wish::WakeAt(at));
                }
                shards::Effect::StoodStill(_) => wishes.push(Wish::StoodStill),
                shards::Effect::Exit(why) => wishes.push(Wish::Exit(why)),
                shards::Effect::Left => wishes.push(Wish::Left),
            }
        }
    }
}
