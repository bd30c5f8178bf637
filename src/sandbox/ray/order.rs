//! What the sandbox and the small parent of one container say to each other: one order, then a line per happening.
//! Must not know pods: here a container is a command line, an environment, files and a place for its output.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// Everything a runner needs to start one container; its first line of input, as JSON.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Order {
    /// Program and arguments. The program is looked up in `PATH` of [`Order::env`].
    pub argv: Vec<String>,
    /// The whole environment: nothing is inherited.
    pub env: BTreeMap<String, String>,
    /// Where it starts, as seen by the container.
    pub cwd: PathBuf,
    /// Both outputs are appended here.
    pub log: PathBuf,
    /// The files it sees. `None`: the machine's own.
    pub root: Option<Root>,
    /// Where the runner says why the program could not be started, if so. Outside of the container's view.
    pub failure: PathBuf,
}

/// A private view of the file system: the machine's, with volumes put in.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Root {
    /// An empty directory of this container's own, on which the new root is built.
    pub at: PathBuf,
    /// Whether a user namespace is needed first (not root).
    pub user: bool,
    /// What is put where.
    pub mounts: Vec<Mount>,
}

/// One directory or file, seen at another place.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mount {
    /// What: an existing directory or file of the machine.
    pub source: PathBuf,
    /// Where: an absolute path, which need not exist.
    pub target: PathBuf,
    /// Whether writing is refused.
    pub read_only: bool,
}

/// A line of a runner's output.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", tag = "event")]
pub enum Report {
    /// The container's main process exists.
    Started {
        /// Its process id, which is also its session.
        pid: i32,
    },
    /// The main process has ended, and after it everything it had started.
    Ended {
        /// Exit code; 128 + signal when a signal ended it; 128 when it could not be started.
        code: i32,
        /// The signal that ended it.
        signal: Option<i32>,
        /// Why it could not be started at all.
        failure: Option<String>,
    },
}

/// The order, given after the first line, to end the main process politely. The end of input means: kill everything now.
pub const TERMINATE: &str = "terminate";

/// First argument of the hidden subcommand that [`super::runner::run`] carries out.
pub const SUBCOMMAND: &str = "pod-runner";
