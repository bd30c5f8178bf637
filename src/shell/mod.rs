//! The only code that waits: clients, informers, the executor, the heartbeat, and the loop that joins them to the engine.
//! Must not decide: what to do comes as effects, what happened goes back as inputs.

pub mod client;
pub mod kubeconfig;
pub mod lanes;
pub mod lines;
#[cfg(test)]
mod scripted;
