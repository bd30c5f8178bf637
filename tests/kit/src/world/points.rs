//! Crash points: which writes are stories of their own, and when a write that is held back arrives.
//! Must not know why a write is sent.

use std::time::Duration;

use rayfleet::api::wire::Method;
use serde_json::Value;

use super::{Event, World};
use crate::wish::Outgoing;

/// Where nobody goes on with what a dead replica did, its last write arrives this late: longer than a take-over, shorter
/// than Q.
const LATEST: Duration = Duration::from_secs(30);

/// Writes of these say nothing of a take-over: every replica renews its seat and reports on its members.
const OF_ALL: [&str; 4] = ["/leases", "/membercapacities", "/memberclusters", "/events"];

impl World {
    /// Every write but a Lease's is a point; of these, the first of its kind by each replica: renewals are all alike, and so
    /// are the first takes of 64 queue units.
    pub(super) fn note_point(&mut self, replica: usize, number: usize, out: &Outgoing) {
        let is_point = match lease_kind(out) {
            Some(kind) => self.lease_kinds.insert(format!("{replica} {kind}")),
            None => true,
        };
        if is_point {
            self.points.push(number);
        }
    }

    /// A replica has died; this write of it is still on its way.
    pub(super) fn hold_back(&mut self, out: Outgoing, replica: usize, life: u64) {
        self.held_back = Some((out, replica, life));
        self.push(self.now + LATEST, Event::CarryOutLate);
    }

    /// What is held back arrives now.
    pub(super) fn carry_out_late(&mut self) {
        if let Some((late, ..)) = self.held_back.take() {
            self.touched.insert(late.cluster.clone());
            self.carry_out(&late);
        }
    }

    /// Whether this is the first write of the successor of the replica whose write is held back. With one replica that is
    /// its next process; with several the one that acts in the name of the same unit, or writes the same object.
    pub(super) fn succeeds(&self, replica: usize, life: u64, out: &Outgoing) -> bool {
        let Some((late, author, its_life)) = &self.held_back else { return false };
        if (*author, *its_life) == (replica, life) {
            return false;
        }
        let unit = |out: &Outgoing| out.name.as_ref().map(|name| name.unit.clone());
        let tells = |out: &Outgoing| out.name.is_some() && !OF_ALL.iter().any(|path| out.request.target.contains(path));
        let goes_on =
            if tells(late) { tells(out) && unit(late) == unit(out) } else { object_of(out) == object_of(late) };
        goes_on || self.processes.len() == 1
    }
}

fn path(out: &Outgoing) -> &str {
    out.request.target.split('?').next().unwrap_or_default()
}

fn body(out: &Outgoing) -> Value {
    serde_json::from_slice(&out.request.body).unwrap_or_default()
}

/// Cluster and path of the object that is written.
fn object_of(out: &Outgoing) -> (String, String) {
    let name = |body: Value| body["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    let path = match out.request.method {
        Method::Post => format!("{}/{}", path(out), name(body(out))),
        _ => path(out).trim_end_matches("/status").to_owned(),
    };
    (out.cluster.to_string(), path)
}

/// What a write of a Lease does, in words that all alike share; `None` where it is no Lease's.
fn lease_kind(out: &Outgoing) -> Option<String> {
    if !path(out).contains("/leases") {
        return None;
    }
    let body = body(out);
    let name = body["metadata"]["name"].as_str().unwrap_or_default();
    let of = name.rsplit_once('-').map_or(name, |(of, _)| of);
    let annotations = &body["metadata"]["annotations"];
    let is_free = body["spec"]["holderIdentity"].as_str().is_none_or(str::is_empty);
    let (state, is_handed) = (&annotations["rayfleet.io/seat-state"], annotations["rayfleet.io/next-seat"].is_string());
    Some(format!("{} {of} {state} free: {is_free} handed: {is_handed}", out.request.method.as_str()))
}
