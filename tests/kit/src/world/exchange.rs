//! What replicas sent and what they were answered, for those who read it afterwards.
//! Must not know what a request means.

use rayfleet::api::wire::{Reply, Request};
use rayfleet::api::{Cluster, Time};
use rayfleet::sandbox::apiserver::Answer;
use serde_json::Value;

use super::World;
use crate::wish::Outgoing;

/// One request of a replica that a server has answered.
#[derive(Clone, Debug)]
pub struct Exchange {
    /// When the server had it.
    pub at: Time,
    /// Whose it was.
    pub replica: usize,
    /// Where it went.
    pub cluster: Cluster,
    /// Target, verb and body.
    pub request: Request,
    /// The object at the target's path before the request, if there was one. Of reads nothing is kept.
    pub before: Option<Value>,
    /// The answer. `None`: a watch was opened.
    pub reply: Option<Reply>,
}

impl World {
    /// Keeps what replicas exchange with servers from now on.
    pub fn keep_exchanges(&mut self) {
        self.exchanges.get_or_insert_default();
    }

    /// What they have exchanged since then, in the order in which servers had it. Empty where nothing is kept.
    pub fn exchanges(&self) -> &[Exchange] {
        self.exchanges.as_deref().unwrap_or_default()
    }

    /// The object that a write is about to change.
    pub(super) fn before(&self, out: &Outgoing) -> Option<Value> {
        if self.exchanges.is_none() || !out.is_write {
            return None;
        }
        let path = out.request.target.split('?').next().unwrap_or_default();
        let path = path.strip_suffix("/status").unwrap_or(path);
        self.sites.get(&out.cluster)?.get(path).cloned()
    }

    pub(super) fn exchanged(&mut self, replica: usize, out: &Outgoing, before: Option<Value>, answer: &Answer) {
        let Some(exchanges) = &mut self.exchanges else { return };
        let reply = match answer {
            Answer::Reply(reply) => Some(reply.clone()),
            _ => None,
        };
        let (cluster, request) = (out.cluster.clone(), out.request.clone());
        exchanges.push(Exchange { at: self.now, replica, cluster, request, before, reply });
    }
}
