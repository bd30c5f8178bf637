//! What a node's core orders of whoever runs containers (simulated, or real processes), and what that one tells back.
//! Must not know how containers are run.

use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;

use crate::api::{Time, Uid};

/// An order about one pod.
#[derive(Clone, Debug, PartialEq)]
pub enum Order {
    /// Start it: init containers one after the other, then the others together.
    Start {
        /// The Pod as it stands.
        pod: Arc<Value>,
        /// The address that its status shows.
        ip: String,
        /// The node's address.
        host_ip: String,
    },
    /// Start an ended container once more, after a delay.
    Restart {
        /// Which pod.
        uid: Uid,
        /// Which container.
        container: String,
        /// How long to wait before.
        after: Duration,
    },
    /// End it politely, and after `grace` by force. May come again with less grace. [`Change::Gone`] follows.
    Stop {
        /// Which pod.
        uid: Uid,
        /// How long its processes have.
        grace: Duration,
    },
}

/// Something that happened to a pod's containers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodEvent {
    /// Which pod.
    pub uid: Uid,
    /// When.
    pub at: Time,
    /// What.
    pub change: Change,
}

/// What happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// The pod was not started. It is ordered again after a while if `again`; else it stays so.
    Refused {
        /// `CreateContainerConfigError`, …
        reason: String,
        /// In words.
        message: String,
        /// Whether waiting may help.
        again: bool,
    },
    /// A container runs.
    Running {
        /// Which container.
        container: String,
        /// New for each start.
        container_id: String,
    },
    /// Its startup probe succeeded, or it has none.
    Started {
        /// Which container.
        container: String,
    },
    /// Its readiness changed.
    Ready {
        /// Which container.
        container: String,
        /// Whether Services should lead to it.
        ready: bool,
    },
    /// It has ended, and stays so until [`Order::Restart`].
    Terminated {
        /// Which container.
        container: String,
        /// 128 + signal for a signal.
        exit_code: i32,
        /// `Completed`, `Error`, …
        reason: String,
        /// More, when there is more to say.
        message: String,
    },
    /// A container is about to be ended because a probe failed.
    Unhealthy {
        /// Which container.
        container: String,
        /// What the probe said.
        message: String,
    },
    /// Nothing of the pod runs any more.
    Gone,
}
