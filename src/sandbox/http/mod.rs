//! API servers over TCP, and the same servers for clients in this process.
//! Must not know what is served: everything here passes requests, replies and watch lines on. Loopback only.

mod access;
mod kubeconfig;
mod listen;
mod passing;
mod service;
mod shared;

pub use access::Access;
pub use kubeconfig::{KubeconfigEntry, kubeconfig_text, write_kubeconfig};
pub use listen::{ListenError, Listening, listen};
pub use passing::{Backend, Backends, Logs, Nothing};
pub use service::{ApiService, ReplyBody};
pub use shared::{Called, Clock, SharedServer, WatchStream, wall_clock};

#[cfg(test)]
mod tests;
