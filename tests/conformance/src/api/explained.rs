//! Differences between the sandbox's API server and a real one that are meant to be: each with the requests that it
//! concerns, one place, what makes both sides equal there, and why. Must not know how answers are got.

use std::fmt::Write as _;

use serde_json::Value;

use super::story::{Step, Verb};

/// More than this would hide what the sandbox is not.
pub(super) const ENTRIES_MAX: usize = 20;

/// One difference that is meant to be.
pub(super) struct Explained {
    /// What it is called in reports.
    pub name: &'static str,
    /// Which requests: beginning of the line of the request, such as `GET /apis`.
    requests: &'static str,
    /// JSON pointer into `{status, headers, body}`.
    pointer: &'static str,
    rewrite: Rewrite,
    reason: &'static str,
}

/// What makes both sides equal at the place.
#[derive(Clone, Copy)]
enum Rewrite {
    /// Nothing is compared there.
    Leave,
}

impl Rewrite {
    fn words(self) -> &'static str {
        match self {
            Self::Leave => "left out on both sides",
        }
    }
}

const ALL: &[Explained] = &[];

impl Explained {
    pub(super) fn all() -> &'static [Self] {
        ALL
    }

    /// Whether the request is of the class.
    pub(super) fn concerns(&self, step: &Step) -> bool {
        let (verb, path) = self.requests.split_once(' ').unwrap_or((self.requests, ""));
        let same_verb = verb == step.verb_text() || (verb == "ANY" && step.verb != Verb::Watch);
        same_verb && step.target.starts_with(path)
    }

    /// Rewrites both sides; whether anything changed.
    pub(super) fn rewrite(&self, real: &mut Value, here: &mut Value) -> bool {
        let (a, b) = (real.pointer(self.pointer).cloned(), here.pointer(self.pointer).cloned());
        if a == b {
            return false;
        }
        match self.rewrite {
            Rewrite::Leave => {
                for side in [real, here] {
                    if let Some(place) = side.pointer_mut(self.pointer) {
                        *place = Value::Null;
                    }
                }
            }
        }
        true
    }
}

/// The list of all of them as a page for `docs/`.
pub fn page() -> String {
    let mut out = String::from(
        "# Where the sandbox's API server differs from a real one\n\nMade by `cargo run -p conformance -- api --page`; a \
         test compares.\nEach line is a difference that the comparison with a real API server meets and explains. \
         Everything else in the table of requests (`tests/conformance/stories/`) is equal.\n\n| name | requests | place \
         | rewrite | why |\n|---|---|---|---|---|\n",
    );
    for e in ALL {
        let _ = writeln!(out, "| {} | `{}` | `{}` | {} | {} |", e.name, e.requests, e.pointer, e.rewrite.words(), e.reason);
    }
    out
}
