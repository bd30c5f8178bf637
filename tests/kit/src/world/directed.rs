//! What a story orders at a certain moment: a write that its author freezes or dies at, an API server that shows a replica
//! an old list, and which requests are under way in whose name.
//! Must not know the stories.

use std::collections::BTreeMap;
use std::time::Duration;

use rayfleet::api::wire::{Method, Reply};
use rayfleet::api::{Cluster, Time};
use rayfleet::sandbox::apiserver::Answer;
use serde_json::Value;

use super::{Death, World};
use crate::link::Fate;
use crate::wish::{InName, Outgoing};

/// What happens to the author of the write that a story waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trap {
    /// It freezes right before the write is sent.
    Freeze(Duration),
    /// It dies at the write.
    Die(Death),
    /// It cannot reach the server any more: the write is lost.
    Part,
    /// The write alone takes this long on its way.
    Slow(Duration),
}

/// A request in the name of a unit.
struct UnderWay {
    replica: usize,
    name: InName,
    what: String,
    until: Time,
}

#[derive(Default)]
pub(super) struct Directed {
    trap: Option<(Vec<String>, Trap)>,
    sprung: Option<usize>,
    /// The next message that is put on a link takes this long.
    slow: Option<Duration>,
    /// Lists as they were, by replica, cluster and path.
    old: BTreeMap<(usize, Cluster, String), Reply>,
    /// By replica, life and call.
    under_way: BTreeMap<(usize, u64, u64), UnderWay>,
}

impl Directed {
    pub(super) fn sent(&mut self, replica: usize, life: u64, out: &Outgoing, now: Time) {
        let Some(name) = out.name.clone() else { return };
        let until = now + Duration::from_millis(out.time_limit_ms);
        let what = format!("{} {}", out.request.method.as_str(), out.request.target);
        self.under_way.insert((replica, life, out.call), UnderWay { replica, name, what, until });
    }

    pub(super) fn answered(&mut self, replica: usize, life: u64, call: u64) {
        self.under_way.remove(&(replica, life, call));
    }

    /// What others have under way in the name of a unit that is now this replica's, in words.
    pub(super) fn under_way(&self, replica: usize, unit: &str, now: Time) -> Vec<String> {
        let others = self.under_way.values().filter(|r| r.replica != replica && *r.name.unit == *unit && now < r.until);
        others.map(|r| format!("{unit} changed hands while a request in its name was under way: {}", r.what)).collect()
    }

    /// What becomes of the message that is put on its link now.
    pub(super) fn fate(&mut self, ordinary: Fate) -> Fate {
        match (self.slow.take(), ordinary) {
            (Some(there), Fate::Answered(_, back)) => Fate::Answered(there, back),
            _ => ordinary,
        }
    }

    fn old(&self, replica: usize, out: &Outgoing) -> Option<&Reply> {
        if self.old.is_empty() || out.request.method != Method::Get {
            return None;
        }
        let path = out.request.target.split('?').next().unwrap_or_default();
        self.old.get(&(replica, out.cluster.clone(), path.to_owned()))
    }

    pub(super) fn old_list(&self, replica: usize, out: &Outgoing) -> Option<Reply> {
        self.old(replica, out).cloned()
    }

    pub(super) fn is_old_stream(&self, replica: usize, out: &Outgoing) -> bool {
        out.is_watch && self.old(replica, out).is_some()
    }
}

impl World {
    /// The author of the next write whose line in [`World::writes`] holds all these words is trapped.
    pub fn trap(&mut self, words: &[&str], trap: Trap) {
        self.directed.trap = Some((words.iter().map(|&word| word.to_owned()).collect(), trap));
        self.directed.sprung = None;
    }

    /// The replica that went into the trap.
    pub fn trapped(&self) -> Option<usize> {
        self.directed.sprung
    }

    /// The replica sends the write of this number now.
    pub(super) fn spring(&mut self, replica: usize, number: usize, cluster: &Cluster) {
        let is_meant = |words: &Vec<String>| words.iter().all(|word| self.writes[number].contains(word));
        let Some((_, trap)) = self.directed.trap.take_if(|(words, _)| is_meant(words)) else { return };
        self.directed.sprung = Some(replica);
        match trap {
            Trap::Freeze(length) => self.freeze(replica, length),
            Trap::Die(death) => self.die_at(number, death),
            Trap::Part => self.part(replica, &cluster.to_string(), true),
            Trap::Slow(way) => self.directed.slow = Some(way),
        }
    }

    /// From now on an API server that lags behind answers this replica: the list at `path` is what it is now, and its
    /// stream says nothing. Single objects are read as they are.
    pub fn lag(&mut self, replica: usize, cluster: &str, path: &str) {
        let now = self.now;
        let list = self.site_mut(cluster).request(Method::Get, path, None, now);
        self.directed.old.insert((replica, super::cluster_of(cluster), path.to_owned()), list);
    }

    /// It has caught up.
    pub fn catch_up(&mut self) {
        self.directed.old.clear();
    }

    /// A server has answered a write.
    pub(super) fn accepted(&mut self, out: &Outgoing, answer: &Answer) {
        let (Some(name), Answer::Reply(reply)) = (&out.name, answer) else { return };
        if !reply.is_success() {
            return;
        }
        let body: Value = serde_json::from_slice(&reply.body).unwrap_or_default();
        let place = if body["kind"] == "Status" { "/details/uid" } else { "/metadata/uid" };
        let Some(uid) = body.pointer(place).and_then(Value::as_str) else { return };
        let path = out.request.target.split('?').next().unwrap_or_default();
        let what = format!("{} {path}", out.request.method.as_str());
        self.recorder.accepted(&out.cluster.to_string(), uid, &name.unit, name.epoch, name.marks, &what);
    }
}
