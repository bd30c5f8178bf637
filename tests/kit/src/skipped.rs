//! Tests that cannot do their work on this machine: each says so in a line, and `make test` counts them.
//! Must not know what is missing.

use std::fs::OpenOptions;
use std::io::{self, Write as _};
use std::{env, thread};

/// File that gets a line for each of them, where `make test` names one: the test, a tab, why.
const FILE: &str = "RAYFLEET_SKIPPED";

/// Says that the test of this thread is skipped, and why, past every test harness that swallows what a test prints.
pub fn note(why: &str) {
    let why = why.replace(['\n', '\t'], " ");
    // Nobody is left to hear it where that fails.
    let _ = io::stderr().write_all(format!("skipped: {why}\n").as_bytes());
    let Some(path) = env::var_os(FILE) else { return };
    let line = format!("{}\t{why}\n", thread::current().name().unwrap_or("a test"));
    let written =
        OpenOptions::new().create(true).append(true).open(path).and_then(|mut f| f.write_all(line.as_bytes()));
    // Uncounted is not skipped.
    assert!(written.is_ok(), "{FILE}: {written:?}");
}
