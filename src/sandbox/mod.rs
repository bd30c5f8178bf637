//! A whole fleet in one process: API servers, Kubernetes' own few controllers, Volcano's scheduler, nodes, real Ray.
//! Shares the wire (`api::wire`) and quantities with the product, never its decisions.

pub mod apiserver;
pub mod attached;
pub mod dir_lock;
pub mod fleet_process;
pub mod http;
mod panics;
pub mod ray;
pub mod world;
