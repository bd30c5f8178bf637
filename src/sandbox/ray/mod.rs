//! Real Ray processes behind the pods.
//! Must not know how pods are decided: it starts what a pod says, and tells what became of it.

pub mod order;
mod root;
pub mod runner;
