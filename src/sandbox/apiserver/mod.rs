//! A Kubernetes API server as a pure, synchronous store with watch: requests and time in, replies and watch lines out.
//! Must not know sockets, clocks, or who asks. The simulator calls it directly; `http` wraps it for TCP.

mod applied;
pub mod auth;
#[cfg(test)]
mod behaviour;
mod body;
mod builtin;
pub mod cause;
pub mod crd;
mod create;
mod decode;
pub mod defaults;
mod definitions;
mod delete;
pub mod discovery;
mod events;
mod fields;
mod json_path;
mod kinds;
mod limit_range;
mod list;
mod metadata;
mod patch;
mod pod_resources;
mod pods;
mod print;
mod print_more;
mod print_pod;
mod proxy;
mod prune;
mod quota;
#[cfg(test)]
mod recorded;
pub mod registry;
mod route;
mod rule_functions;
mod rule_types;
pub mod rules;
mod scale;
pub mod schema;
mod seeded;
mod selector;
mod server;
mod size_limits;
mod status_reply;
mod store;
mod strategic;
pub mod table;
mod text;
mod update;
pub mod validate;
mod watch;
mod watch_event;
mod write;

pub use server::{ApiServer, Options};
pub use watch_event::WatchEvent;

use crate::api::wire::Reply;

/// One open watch of one API server.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct WatchId(pub u64);

/// What the server answers to one request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Answer {
    /// A whole reply.
    Reply(Reply),
    /// A watch was opened; its lines come out of `ApiServer::take_lines`.
    Watch(WatchId),
    /// `…/services/[scheme:]name[:port]/proxy/path`: whoever runs the server passes it on to what is behind the Service.
    Proxy(ProxyCall),
    /// `…/pods/name/log`: whoever runs the server knows the log.
    Log(LogCall),
}

/// A call through the Service proxy.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ProxyCall {
    /// Namespace of the Service.
    pub namespace: String,
    /// Name of the Service.
    pub service: String,
    /// Port name or number as asked; empty where the request named none.
    pub port: String,
    /// Path and query behind `/proxy`, with the leading slash.
    pub target: String,
    /// Method, body and headers of the original request.
    pub request: crate::api::wire::Request,
}

/// A read of a container's log.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LogCall {
    /// Namespace of the pod.
    pub namespace: String,
    /// Name of the pod; it exists.
    pub pod: String,
    /// Container; resolved to the only one where the request named none.
    pub container: String,
    /// Go on until the container ends.
    pub follow: bool,
    /// Only the last lines.
    pub tail_lines: Option<usize>,
    /// The log of the container's run before the present one.
    pub previous: bool,
}

/// One piece of a watch's stream.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Line {
    /// One event.
    Event(WatchEvent),
    /// The server ends the stream cleanly.
    End,
}
