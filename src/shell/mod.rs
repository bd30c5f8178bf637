//! The only code that waits: clients, informers, the executor, the heartbeat, and the loop that joins them to the engine.
//! Must not decide: what to do comes as effects, what happened goes back as inputs.

pub mod authority;
pub mod client;
pub mod clock;
pub mod doors;
pub mod events;
pub mod executor;
pub mod heartbeat;
pub mod informer;
pub mod kubeconfig;
pub mod lanes;
pub mod lines;
pub mod members;
pub mod process;
pub mod ray;
pub mod report;
pub mod run;
#[cfg(test)]
mod scripted;
pub mod shutdown;
