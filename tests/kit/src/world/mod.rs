//! The whole simulated fleet: one queue of events ordered by (time, sequence number), in one thread, on virtual time.
//! Same seed and story, same run, bit for bit.
//! Must not know what the product decides: it carries messages, and loses some.

mod directed;
mod exchange;
mod faults;
mod points;
mod streams;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use rayfleet::api::names::STAMPS;
use rayfleet::api::wire::{Method, Reply, Request};
use rayfleet::api::{Cluster, Time};
use rayfleet::sandbox::apiserver::{Answer, WatchId};
use rayfleet::shell::informer::core::End;
use serde_json::{Value, json};
use shards::Profile;

use self::directed::Directed;
pub use self::directed::Trap;
pub use self::exchange::Exchange;
pub use self::faults::{DEATHS, Death};
pub use self::streams::SentLine;
use self::streams::Stream;

use crate::check::Recorder;
use crate::dangers::{Danger, mutant};
use crate::fleet::{self, MemberPlan};
use crate::link::{Fate, Link, LinkProfile};
use crate::replica::Replica;
use crate::say::say;
use crate::site::Site;
use crate::wish::{Outgoing, Setup, Wish};

/// Where the simulated clock begins.
pub const BEGIN: Time = Time(1_700_000_000_000);

#[derive(Clone, Debug)]
enum Event {
    /// What a replica had decided to send before it froze.
    Send {
        replica: usize,
        life: u64,
        out: Outgoing,
    },
    Arrive {
        replica: usize,
        life: u64,
        out: Outgoing,
        fate: Fate,
    },
    Answer {
        replica: usize,
        life: u64,
        call: u64,
        reply: Option<Reply>,
    },
    Opened {
        replica: usize,
        life: u64,
        call: u64,
    },
    Line {
        replica: usize,
        life: u64,
        call: u64,
        line: SentLine,
    },
    Ended {
        replica: usize,
        life: u64,
        call: u64,
        end: End,
    },
    Wake {
        replica: usize,
        life: u64,
    },
    Site,
    Start {
        replica: usize,
    },
    /// No successor has written anything that the write which is held back could meet.
    CarryOutLate,
}

struct Process {
    seat: String,
    life: u64,
    replica: Option<Replica>,
    dead: BTreeSet<String>,
    /// Nothing reaches it and nothing leaves it before this time.
    frozen_until: Option<Time>,
}

/// The fleet.
pub struct World {
    /// Virtual time.
    pub now: Time,
    /// Events handled so far.
    pub steps: u64,
    /// What an outside watcher saw.
    pub recorder: Recorder,
    /// Writes that replicas have sent so far, and what each was.
    pub writes: Vec<String>,
    /// Numbers of those at which a crash of one of several replicas is a story of its own.
    pub points: Vec<usize>,
    /// Print every write to a target, or of an object, whose name contains this (for a person who follows one seed).
    pub trace: Option<String>,
    /// Rules that the replicas of this world do not keep.
    pub dangers: BTreeSet<Danger>,
    sites: BTreeMap<Cluster, Site>,
    processes: Vec<Process>,
    links: BTreeMap<(usize, Cluster), Link>,
    queue: BTreeMap<(Time, u64), Event>,
    sequence: u64,
    streams: BTreeMap<(Cluster, WatchId), Stream>,
    /// The line that was delivered last: others may get the same.
    last_line: Option<SentLine>,
    site_due: Option<Time>,
    /// Sites that were acted on since they last came to rest.
    touched: BTreeSet<Cluster>,
    /// When each site wants to act by itself.
    wants: BTreeMap<Cluster, Time>,
    death: Option<(usize, Death)>,
    /// How long a replica that died by order stays away.
    pub(crate) away: Duration,
    /// Q of all replicas: longer than any write of this world is late.
    pub(crate) hold: Duration,
    /// Kinds of writes of Leases that were seen.
    lease_kinds: BTreeSet<String>,
    /// Freezes that were ordered: length by number of the write at which each begins.
    freezes: BTreeMap<usize, Duration>,
    /// A write that is carried out only after the first write of a successor: author, its life.
    held_back: Option<(Outgoing, usize, u64)>,
    profile: LinkProfile,
    seed: u64,
    down: BTreeSet<Cluster>,
    /// Replicas whose clock stood still and that do not know it yet.
    wrong_clocks: BTreeSet<usize>,
    /// Links of single replicas that carry nothing at present.
    parted: BTreeSet<(usize, Cluster)>,
    directed: Directed,
    /// What replicas sent and were answered, where somebody wants to read it.
    exchanges: Option<Vec<Exchange>>,
}

impl World {
    /// A fleet of these members with one replica, whose links are calm.
    pub fn new(seed: u64, members: &[MemberPlan]) -> Self {
        Self::with_replicas(seed, members, 1)
    }

    /// A fleet of these members with this many replicas (seats `a`, `b`, …), whose links are calm.
    pub fn with_replicas(seed: u64, members: &[MemberPlan], replicas: usize) -> Self {
        let hub = fleet::hub(seed, members, BEGIN);
        let members = members.iter().enumerate().map(|(index, plan)| fleet::member(seed, index, plan, BEGIN));
        Self::of_sites(seed, std::iter::once(hub).chain(members), replicas)
    }

    /// A fleet of these sites, the hub among them, with this many replicas (seats `a`, `b`, …), whose links are calm.
    pub fn of_sites(seed: u64, sites: impl IntoIterator<Item = Site>, replicas: usize) -> Self {
        let sites = sites.into_iter().map(|site| (site.cluster.clone(), site)).collect();
        let mut world = Self {
            now: BEGIN,
            steps: 0,
            recorder: Recorder::default(),
            writes: Vec::new(),
            points: Vec::new(),
            trace: None,
            dangers: BTreeSet::new(),
            sites,
            processes: Vec::new(),
            links: BTreeMap::new(),
            queue: BTreeMap::new(),
            sequence: 0,
            streams: BTreeMap::new(),
            last_line: None,
            site_due: None,
            touched: BTreeSet::new(),
            wants: BTreeMap::new(),
            death: None,
            away: Duration::from_secs(1),
            // For credentials of 10 min (`sharding.md` E7).
            hold: Duration::from_secs(900),
            lease_kinds: BTreeSet::new(),
            freezes: BTreeMap::new(),
            held_back: None,
            profile: LinkProfile::calm(),
            seed,
            down: BTreeSet::new(),
            wrong_clocks: BTreeSet::new(),
            parted: BTreeSet::new(),
            directed: Directed::default(),
            exchanges: None,
        };
        world.touched = world.sites.keys().cloned().collect();
        for (replica, seat) in ('a'..='z').take(replicas).enumerate() {
            let process =
                Process { seat: seat.to_string(), life: 0, replica: None, dead: BTreeSet::new(), frozen_until: None };
            world.processes.push(process);
            world.push(BEGIN, Event::Start { replica });
        }
        world.settle();
        world
    }

    /// How links behave from now on.
    pub fn links(&mut self, profile: &LinkProfile) {
        // A write that is later than its author waits may make a child anew whose owner has gone: the collector's.
        self.recorder.late_children |= profile.slow_permille > 0;
        self.profile = profile.clone();
        for link in self.links.values_mut() {
            link.profile = profile.clone();
        }
    }

    /// What the running replica says of its keys: for a person who follows one run.
    pub fn journal(&self) -> Vec<String> {
        let Some(replica) = self.processes.first().and_then(|p| p.replica.as_ref()) else { return Vec::new() };
        let sizes = format!("{:?}", replica.engine.sizes());
        let keys = replica.engine.journal().map(|(key, entry)| format!("{key}: {entry:?}"));
        std::iter::once(sizes).chain(keys).collect()
    }

    /// The site of a cluster: `hub` or a member's name.
    pub fn site(&self, cluster: &str) -> &Site {
        &self.sites[&cluster_of(cluster)]
    }

    /// The same, to act as a person there.
    pub fn site_mut(&mut self, cluster: &str) -> &mut Site {
        self.touched.insert(cluster_of(cluster));
        self.sites.get_mut(&cluster_of(cluster)).expect("a site of this world")
    }

    /// All members' sites.
    pub fn members(&self) -> impl Iterator<Item = &Site> {
        self.sites.values().filter(|site| site.cluster != Cluster::Hub)
    }

    /// A person applies an object to the hub.
    pub fn submit(&mut self, object: &Value) {
        self.apply("hub", object);
    }

    /// A person creates an object.
    pub fn apply(&mut self, cluster: &str, object: &Value) {
        let now = self.now;
        self.site_mut(cluster).create(object, now);
        self.settle();
    }

    /// A person deletes an object.
    pub fn delete(&mut self, cluster: &str, path: &str) {
        let now = self.now;
        let reply = self.site_mut(cluster).request(Method::Delete, path, None, now);
        assert!(reply.is_success() || reply.status == 404, "delete {path}: {}", String::from_utf8_lossy(&reply.body));
        self.settle();
    }

    /// A person merge-patches an object.
    pub fn patch(&mut self, cluster: &str, path: &str, patch: &Value) {
        let now = self.now;
        let reply = self.site_mut(cluster).request(Method::Patch, path, Some(patch), now);
        assert!(reply.is_success(), "patch {path}: {}", String::from_utf8_lossy(&reply.body));
        self.settle();
    }

    /// A request from outside that is no watch, whatever its answer.
    pub fn send(&mut self, cluster: &str, request: &Request) -> Reply {
        let now = self.now;
        let answer = self.site_mut(cluster).handle(request, now);
        self.settle();
        match answer {
            Answer::Reply(reply) => reply,
            other => panic!("{} is no plain request: {other:?}", request.target),
        }
    }

    /// An object of the hub.
    pub fn hub(&self, path: &str) -> Option<&Value> {
        self.site("hub").get(path)
    }

    /// The RayJob of this name in namespace `default` on the hub.
    pub fn root(&self, name: &str) -> Option<&Value> {
        self.hub(&format!("/apis/ray.io/v1/namespaces/default/rayjobs/{name}"))
    }

    /// Its `Placement`.
    pub fn placement(&self, name: &str) -> Option<&Value> {
        self.hub(&format!("/apis/rayfleet.io/v1alpha1/namespaces/default/placements/rayjob-{name}"))
    }

    /// Submissions of all Ray jobs ever, by submission id, over all members.
    pub fn submissions(&self) -> BTreeMap<String, u32> {
        let mut all = BTreeMap::new();
        for dashboard in self.members().filter_map(Site::dashboard) {
            for (id, count) in dashboard.all_submissions() {
                *all.entry(id.clone()).or_default() += count;
            }
        }
        all
    }

    /// Goes on until the condition holds, at most for `limit` of virtual time; says whether it does.
    pub fn until(&mut self, limit: Duration, condition: impl Fn(&World) -> bool) -> bool {
        let end = self.now + limit;
        loop {
            if condition(self) {
                return true;
            }
            match self.queue.first_key_value() {
                Some((&(at, _), _)) if at <= end => self.step(),
                _ => return false,
            }
        }
    }

    /// Goes on for this much virtual time.
    pub fn run_for(&mut self, time: Duration) {
        let end = self.now + time;
        while self.queue.first_key_value().is_some_and(|(&(at, _), _)| at <= end) {
            self.step();
        }
        self.now = end;
    }

    fn push(&mut self, at: Time, event: Event) {
        self.sequence += 1;
        self.queue.insert((at.max(self.now), self.sequence), event);
    }

    fn link(&mut self, replica: usize, cluster: &Cluster) -> &mut Link {
        let (seed, profile) = (self.seed, &self.profile);
        self.links.entry((replica, cluster.clone())).or_insert_with(|| {
            let own = cluster
                .to_string()
                .bytes()
                .fold(seed ^ ((replica as u64) << 32), |h, b| (h ^ u64::from(b)).wrapping_mul(0x0000_0100_0000_01b3));
            Link::new(profile.clone(), own)
        })
    }

    fn step(&mut self) {
        let Some(((at, _), event)) = self.queue.pop_first() else { return };
        self.now = self.now.max(at);
        self.steps += 1;
        if let Some(thaw) = self.thaw(&event) {
            self.push(thaw, event);
            return;
        }
        match event {
            Event::Send { replica, life, out } => {
                if self.processes[replica].life == life {
                    self.dispatch(replica, life, out);
                }
            }
            Event::Arrive { replica, life, out, fate } => self.arrive(replica, life, &out, fate),
            Event::Answer { replica, life, call, reply } => {
                self.directed.answered(replica, life, call);
                self.tell(replica, life, |r, now| r.answer(call, reply.as_ref(), now));
            }
            Event::Opened { replica, life, call } => self.tell(replica, life, |r, now| r.opened(call, now)),
            Event::Line { replica, life, call, line } => self.tell(replica, life, |r, now| r.line(call, &line, now)),
            Event::Ended { replica, life, call, end } => self.tell(replica, life, |r, now| r.ended(call, end, now)),
            Event::Wake { replica, life } => self.tell(replica, life, Replica::wake),
            Event::Site => {
                if self.site_due.is_some_and(|due| due <= self.now) {
                    self.site_due = None;
                }
            }
            Event::Start { replica } => self.start(replica),
            Event::CarryOutLate => self.carry_out_late(),
        }
        self.settle();
    }

    fn start(&mut self, index: usize) {
        // Killed twice before it came back, or while it was away: the first start counts. Two processes of one life would
        // share the numbers of their calls, and one get what the other asked for.
        if self.processes[index].replica.is_some() {
            return;
        }
        let members = self.sites.keys().filter(|c| **c != Cluster::Hub).cloned().collect();
        let process = &self.processes[index];
        let setup = Setup {
            seat: process.seat.clone(),
            process: process_name(&process.seat, process.life),
            profile: Profile::DEFAULT,
            seed: self.seed.wrapping_mul(31).wrapping_add(process.life),
            dead: process.dead.clone(),
            members,
            hold: self.hold,
            dangers: self.dangers.clone(),
        };
        let (replica, wishes) = Replica::start(setup, self.now);
        let life = process.life;
        self.processes[index].replica = Some(replica);
        self.grant(index, life, wishes);
    }

    fn tell(&mut self, index: usize, life: u64, tell: impl FnOnce(&mut Replica, Time) -> Vec<Wish>) {
        let now = self.now;
        let process = &mut self.processes[index];
        if process.life != life {
            return;
        }
        let Some(replica) = process.replica.as_mut() else { return };
        let wishes = tell(replica, now);
        self.grant(index, life, wishes);
        self.one_authority(index);
    }

    fn grant(&mut self, index: usize, life: u64, wishes: Vec<Wish>) {
        for wish in wishes {
            if self.processes[index].life != life {
                return;
            }
            match wish {
                Wish::Send(out) => self.sends(index, life, out),
                Wish::WakeAt(at) => self.push(at, Event::Wake { replica: index, life }),
                Wish::Close(call) => self.close_call(index, life, call),
                Wish::Held(unit) => self.taken_over(index, &unit),
                Wish::StoodStill => {
                    self.wrong_clocks.remove(&index);
                }
                Wish::Exit(why) => {
                    self.recorder.violations.push(format!("replica {} ended: {why}", self.processes[index].seat));
                    self.kill(index);
                }
                Wish::Left => self.kill(index),
            }
        }
    }

    fn sends(&mut self, replica: usize, life: u64, out: Outgoing) {
        if out.is_write {
            let number = self.writes.len();
            self.note_point(replica, number, &out);
            self.writes.push(format!("{} {} on {}", out.request.method.as_str(), out.request.target, out.cluster));
            if let Some(length) = self.freezes.remove(&number) {
                self.freeze(replica, length);
            }
            self.spring(replica, number, &out.cluster);
            if let Some((at, death)) = self.death
                && at == number
            {
                self.death = None;
                self.die(replica, life, out, death);
                return;
            }
            self.directed.sent(replica, life, &out, self.now);
        }
        match self.processes[replica].frozen_until {
            Some(thaw) => self.push(thaw, Event::Send { replica, life, out }),
            None => self.dispatch(replica, life, out),
        }
    }

    /// Puts a request on its link.
    fn dispatch(&mut self, replica: usize, life: u64, out: Outgoing) {
        let limit = Duration::from_millis(out.time_limit_ms);
        let down = self.is_down(replica, &out.cluster);
        let fate = self.link(replica, &out.cluster.clone()).fate();
        let fate = self.directed.fate(fate);
        let fate = if down || self.directed.is_old_stream(replica, &out) { Fate::Lost } else { fate };
        let late = Event::Answer { replica, life, call: out.call, reply: None };
        if !out.is_watch {
            self.push(self.now + limit, late);
        } else if fate == Fate::Lost {
            self.push(self.now + Duration::from_secs(10), late);
        }
        match fate {
            Fate::Lost => {}
            Fate::Answered(there, _) | Fate::AnswerLost(there) | Fate::Refused(there, _) => {
                let at = self.now + there;
                self.push(at, Event::Arrive { replica, life, out, fate });
            }
        }
    }

    fn arrive(&mut self, replica: usize, life: u64, out: &Outgoing, fate: Fate) {
        let now = self.now;
        self.touched.insert(out.cluster.clone());
        self.show(replica, out, fate);
        let answer = if let Fate::Refused(_, status) = fate {
            Answer::Reply(refusal(status))
        } else if let Some(old) = self.directed.old_list(replica, out) {
            Answer::Reply(old)
        } else {
            if out.is_write && matches!(out.request.method, Method::Put | Method::Patch) {
                self.meddle(replica, out);
            }
            let before = self.before(out);
            let answer = self.carry_out(out);
            self.exchanged(replica, out, before, &answer);
            answer
        };
        if out.is_write && self.succeeds(replica, life, out) {
            self.carry_out_late();
        }
        match answer {
            Answer::Reply(reply) => {
                let back = match fate {
                    Fate::Answered(_, back) => Some(back),
                    Fate::Refused(there, _) => Some(there),
                    Fate::AnswerLost(_) | Fate::Lost => None,
                };
                if let Some(back) = back.filter(|_| !self.is_down(replica, &out.cluster)) {
                    self.push(now + back, Event::Answer { replica, life, call: out.call, reply: Some(reply) });
                } else if out.is_watch {
                    self.push(
                        now + Duration::from_secs(10),
                        Event::Answer { replica, life, call: out.call, reply: None },
                    );
                }
            }
            Answer::Watch(watch) => {
                if self.processes[replica].life != life {
                    if let Some(site) = self.sites.get_mut(&out.cluster) {
                        site.server.close_watch(watch);
                    }
                    return;
                }
                let back = self.link(replica, &out.cluster.clone()).delay();
                let stream = Stream { replica, life, call: out.call, not_before: now + back, cut: false };
                self.streams.insert((out.cluster.clone(), watch), stream);
                self.push(now + back, Event::Opened { replica, life, call: out.call });
            }
            other => panic!("{} is no request of the product: {other:?}", out.request.target),
        }
    }

    fn carry_out(&mut self, out: &Outgoing) -> Answer {
        let now = self.now;
        let site = self.sites.get_mut(&out.cluster).expect("requests go to sites of this world");
        let answer = if mutant::is_unconditional(&self.dangers, out) {
            site.handle(&mutant::without_version(&out.request, site), now)
        } else {
            site.handle(&out.request, now)
        };
        self.accepted(out, &answer);
        answer
    }

    /// Another writer touches the object right before: the replica's write meets a conflict.
    fn meddle(&mut self, replica: usize, out: &Outgoing) {
        if !self.link(replica, &out.cluster.clone()).conflicts() {
            return;
        }
        let (now, target) = (self.now, out.request.target.split('?').next().unwrap_or_default().to_owned());
        if target.contains("/leases/") || target.ends_with("/status") || target.contains("/proxy/") {
            return;
        }
        let patch = json!({ "metadata": { "annotations": { "example.com/touched": now.0.to_string() } } });
        if let Some(site) = self.sites.get_mut(&out.cluster) {
            site.request(Method::Patch, &target, Some(&patch), now);
        }
    }

    /// Lets all sites act at the present time and sends lines of watches on their way.
    fn settle(&mut self) {
        let now = self.now;
        let mut due = std::mem::take(&mut self.touched);
        due.extend(self.wants.iter().filter(|(_, at)| **at <= now).map(|(cluster, _)| cluster.clone()));
        for cluster in due {
            let Some(site) = self.sites.get_mut(&cluster) else { continue };
            let lines = site.settle(&mut self.recorder, now);
            match site.next_at() {
                Some(at) => self.wants.insert(cluster.clone(), at),
                None => self.wants.remove(&cluster),
            };
            for (watch, line) in lines {
                self.deliver(&cluster, watch, line);
            }
        }
        let next = self.wants.values().min().copied();
        if let Some(at) = next
            && self.site_due.is_none_or(|due| at < due || due < now)
        {
            self.site_due = Some(at);
            self.push(at, Event::Site);
        }
    }

    /// One write: when, by whom, what, how it went; of the body's metadata its name and the stamps say enough.
    fn show(&self, replica: usize, out: &Outgoing, fate: Fate) {
        let Some(word) = self.trace.as_ref().filter(|_| out.is_write) else { return };
        let since = self.now.since(BEGIN).as_millis();
        let mut whole: Value = serde_json::from_slice(&out.request.body).unwrap_or_default();
        let metadata = whole.as_object_mut().and_then(|fields| fields.remove("metadata")).unwrap_or_default();
        let name = metadata["name"].as_str().unwrap_or("-");
        let (method, target) = (out.request.method.as_str(), &out.request.target);
        if !target.contains(word.as_str()) && !name.contains(word.as_str()) {
            return;
        }
        let stamps = metadata["annotations"][STAMPS].as_str().unwrap_or("-");
        let body: String = whole.to_string().chars().take(3000).collect();
        let (seat, cluster) = (&self.processes[replica].seat, &out.cluster);
        say(&format!("{since:>8} {seat} {method:<6} {cluster} {target} {name} {stamps} {fate:?} {body}"));
    }
}

fn cluster_of(name: &str) -> Cluster {
    if name == "hub" { Cluster::Hub } else { Cluster::Member(name.into()) }
}

fn process_name(seat: &str, life: u64) -> String {
    format!("{seat}/{life}")
}

fn refusal(status: u16) -> Reply {
    let body = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "reason": "TooManyRequests", "message": "the server is busy", "code": status,
    });
    let headers = vec![("content-type".to_owned(), "application/json".to_owned())];
    Reply { status, headers, body: body.to_string().into_bytes().into() }
}

/// A plain request, for tests that look at a server directly.
pub fn get(target: &str) -> Request {
    Request::get(target)
}
