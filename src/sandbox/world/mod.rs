//! What surrounds the API servers: Kubernetes' own few controllers, Volcano's scheduler, nodes and a stand-in for Ray's
//! dashboard, each a pure core that is an ordinary client of the API, and the loop that runs a set of them.
//! Must not know how an API server works inside, nor anything of the product's decisions.

pub mod collector;
pub mod container;
pub mod dashboard;
pub mod driver;
pub mod endpoints;
pub mod feed;
pub mod fleet;
pub mod jobs;
pub mod kubelet;
pub mod labels;
pub mod namespaces;
pub mod nodes;
pub mod object;
pub mod pod_status;
pub mod resource;
pub mod scheduler;
pub mod settle;
pub mod simulated;
pub mod surroundings;
pub mod writes;

#[cfg(test)]
pub(crate) mod tests;

use std::any::Any;
use std::sync::Arc;

use serde_json::Value;

use self::resource::Resource;
use crate::api::Time;
use crate::api::wire::{Reply, Request};
use crate::sandbox::apiserver::{LogCall, ProxyCall};

/// What a core is told.
#[derive(Clone, Debug)]
pub enum WorldEvent {
    /// An object is new or has changed; `apiVersion` and `kind` are filled in.
    Applied(Arc<Resource>, Arc<Value>),
    /// An object is gone; its last state.
    Deleted(Arc<Resource>, Arc<Value>),
    /// Everything that the first list held was told: only from now on does absence mean anything.
    Synced(Arc<Resource>),
    /// The answer to one of the core's own requests, by its id. Status 0: no answer came.
    Answered(u64, Reply),
    /// Time has reached what [`Surrounding::next_tick`] said.
    Tick,
}

/// A request of a core. The id is the core's own; answers carry it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct WorldRequest {
    /// Chosen by the core, unique within it.
    pub id: u64,
    /// What is asked of the API server.
    pub request: Request,
}

/// A pure core around one API server. Deterministic: the same events at the same times give the same requests.
pub trait Surrounding: Send + Any {
    /// For logs and as user agent: `garbage-collector`.
    fn name(&self) -> &'static str;

    /// The collections that it wants to see. Asked again after every event: more may be added at the end, none is removed.
    fn watches(&self) -> &[Arc<Resource>];

    /// Takes in one event; out come the requests that follow from it.
    fn handle(&mut self, event: &WorldEvent, now: Time) -> Vec<WorldRequest>;

    /// When it wants a [`WorldEvent::Tick`], if ever.
    fn next_tick(&self) -> Option<Time>;

    /// Answers a call through the Service proxy, if what is behind that Service is this core's.
    fn proxy(&mut self, _call: &ProxyCall, _now: Time) -> Option<Reply> {
        None
    }

    /// Answers a read of a container's log, if the container is this core's.
    fn log(&mut self, _call: &LogCall, _now: Time) -> Option<Reply> {
        None
    }
}
