//! Runs a set of cores around one API server: gives each its events, and sends its requests under ids of its own.
//! Must not know a transport or a clock: requests go out as data, answers and watch lines come in as data.

use std::any::Any;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use super::feed::Feed;
use super::resource::Resource;
use super::{Surrounding, WorldEvent};
use crate::api::Time;
use crate::api::wire::{Reply, Request};
use crate::sandbox::apiserver::{Answer, Line, LogCall, ProxyCall, WatchId};

/// A request on its way to the API server.
#[derive(Clone, Debug)]
pub struct Sent {
    /// To be given back with the answer.
    pub id: u64,
    /// What is asked.
    pub request: Request,
}

#[derive(Debug)]
enum Asker {
    /// A core, by its place, and its own id.
    Core(usize, u64),
    /// A list or watch.
    Feed(Arc<Resource>),
}

/// The cores around one API server.
pub struct Surroundings {
    cores: Vec<Box<dyn Surrounding>>,
    /// How many of each core's collections are looked after.
    watching: Vec<usize>,
    /// Who is told of a collection, in order.
    subscribers: BTreeMap<Arc<Resource>, Vec<usize>>,
    feed: Feed,
    next_id: u64,
    asked: BTreeMap<u64, Asker>,
    streams: BTreeMap<WatchId, Arc<Resource>>,
    out: VecDeque<Sent>,
}

impl Surroundings {
    /// Cores in the order in which they are told of an event.
    pub fn new(cores: Vec<Box<dyn Surrounding>>, now: Time) -> Self {
        let mut new = Self {
            watching: vec![0; cores.len()],
            subscribers: BTreeMap::new(),
            cores,
            feed: Feed::default(),
            next_id: 0,
            asked: BTreeMap::new(),
            streams: BTreeMap::new(),
            out: VecDeque::new(),
        };
        for at in 0..new.cores.len() {
            new.look_for_watches(at, now);
        }
        new
    }

    /// The core of a type, to read what only it knows.
    pub fn find<T: Surrounding>(&self) -> Option<&T> {
        self.cores.iter().find_map(|core| (core.as_ref() as &dyn Any).downcast_ref())
    }

    /// The same, to tell it something.
    pub fn find_mut<T: Surrounding>(&mut self) -> Option<&mut T> {
        self.cores.iter_mut().find_map(|core| (core.as_mut() as &mut dyn Any).downcast_mut())
    }

    /// When [`Surroundings::due`] has something to do, if no event comes before. The past where it has now.
    pub fn next_at(&self) -> Option<Time> {
        if !self.out.is_empty() {
            return Some(Time(i64::MIN));
        }
        self.cores.iter().filter_map(|c| c.next_tick()).chain(self.feed.next_at()).min()
    }

    /// Lets time reach the cores; gives the requests that are to be sent.
    pub fn due(&mut self, now: Time) -> Vec<Sent> {
        for at in 0..self.cores.len() {
            if self.cores[at].next_tick().is_some_and(|t| t <= now) {
                self.tell(at, &WorldEvent::Tick, now);
            }
        }
        for (resource, request) in self.feed.due(now) {
            let id = self.id(Asker::Feed(resource));
            self.out.push_back(Sent { id, request });
        }
        self.out.drain(..).collect()
    }

    /// The answer to a request: a whole reply, or the watch that was opened.
    pub fn answered(&mut self, id: u64, answer: &Answer, now: Time) {
        let Some(asker) = self.asked.remove(&id) else { return };
        match (asker, answer) {
            (Asker::Core(at, own), Answer::Reply(reply)) => {
                self.tell(at, &WorldEvent::Answered(own, reply.clone()), now);
            }
            (Asker::Core(at, own), _) => {
                self.tell(at, &WorldEvent::Answered(own, no_reply()), now);
            }
            (Asker::Feed(resource), Answer::Watch(watch)) => {
                self.streams.insert(*watch, resource);
            }
            (Asker::Feed(resource), Answer::Reply(reply)) => {
                for event in self.feed.answered(&resource, reply, now) {
                    self.tell_all(&resource, &event, now);
                }
            }
            (Asker::Feed(resource), _) => {
                self.feed.answered(&resource, &no_reply(), now);
            }
        }
    }

    /// No answer came to a request, or the connection was cut.
    pub fn failed(&mut self, id: u64, now: Time) {
        self.answered(id, &Answer::Reply(no_reply()), now);
    }

    /// Whether a watch is one of these cores'.
    pub fn owns(&self, watch: WatchId) -> bool {
        self.streams.contains_key(&watch)
    }

    /// One line of one of the own watches; others are ignored.
    pub fn line(&mut self, watch: WatchId, line: &Line, now: Time) {
        let Some(resource) = self.streams.get(&watch).cloned() else { return };
        if *line == Line::End {
            self.streams.remove(&watch);
        }
        if let Some(event) = self.feed.line(&resource, line, now) {
            self.tell_all(&resource, &event, now);
        }
    }

    /// Answers a call through the Service proxy.
    pub fn proxy(&mut self, call: &ProxyCall, now: Time) -> Option<Reply> {
        self.cores.iter_mut().find_map(|c| c.proxy(call, now))
    }

    /// Answers a read of a log.
    pub fn log(&mut self, call: &LogCall, now: Time) -> Option<Reply> {
        self.cores.iter_mut().find_map(|c| c.log(call, now))
    }

    fn id(&mut self, asker: Asker) -> u64 {
        self.next_id += 1;
        self.asked.insert(self.next_id, asker);
        self.next_id
    }

    fn tell(&mut self, at: usize, event: &WorldEvent, now: Time) {
        let name = self.cores[at].name();
        for mut wanted in self.cores[at].handle(event, now) {
            if wanted.request.user_agent.is_empty() {
                name.clone_into(&mut wanted.request.user_agent);
            }
            let id = self.id(Asker::Core(at, wanted.id));
            self.out.push_back(Sent { id, request: wanted.request });
        }
        self.look_for_watches(at, now);
    }

    fn tell_all(&mut self, resource: &Arc<Resource>, event: &WorldEvent, now: Time) {
        for at in self.subscribers.get(resource).cloned().unwrap_or_default() {
            self.tell(at, event, now);
        }
    }

    /// A core that asks late for a collection that others watch already is told first what is there.
    fn look_for_watches(&mut self, at: usize, now: Time) {
        while let Some(resource) = self.cores[at].watches().get(self.watching[at]).cloned() {
            self.watching[at] += 1;
            self.subscribers.entry(resource.clone()).or_default().push(at);
            self.feed.want(&resource, now);
            let (known, synced) = self.feed.known(&resource);
            let mut events: Vec<_> = known.map(|o| WorldEvent::Applied(resource.clone(), o.clone())).collect();
            if synced {
                events.push(WorldEvent::Synced(resource.clone()));
            }
            for event in events {
                self.tell(at, &event, now);
            }
        }
    }
}

fn no_reply() -> Reply {
    Reply { status: 0, headers: Vec::new(), body: Arc::from([]) }
}
