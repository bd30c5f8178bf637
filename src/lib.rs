//! RayFleet runs Ray on many Kubernetes clusters from one hub. This page is the map, in reading order.
//!
//! * [`api`]: what users write and what stands on the wire. Types and names.
//! * [`row`]: what we keep of what we see.
//! * [`plan`]: pure decisions, total functions of what was seen and the time.
//! * [`engine`]: pure memory: tables, queue, requests in flight, units.
//! * [`shell`]: the only code that waits.
//! * [`serve`], [`cli`]: what people and programs ask.
//! * [`sandbox`]: a whole fleet in one process, beside the shell; the base of the simulator.
//!
//! Dependencies point one way: `api`, `row` ← `plan` ← `engine` ← `shell` ← `serve`, `cli`; the crate `shards` is below all.

pub mod api;
pub mod cli;
pub mod engine;
pub mod plan;
pub mod row;
pub mod sandbox;
pub mod serve;
pub mod shell;
