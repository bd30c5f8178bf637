//! Replays recordings of a real Kubernetes API server on the sandbox's and compares the answers.
//! Must not know how the sandbox's server is built: it sends requests and reads answers.
//! Beside that, [`samples`]: manifests on their way through types, server and simulated fleet; and [`golden`]: what KubeRay's
//! operator was recorded to do, played against our core.

mod api;
mod bulk;
mod compare;
pub mod golden;
pub mod kinds;
mod recording;
mod replay;
pub mod samples;
mod scope;
mod sender;

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

pub use api::{ApiReport, api, page};
pub use replay::Verdict;

/// The topics that are replayed, in the order of their report.
const TOPICS: &[&str] = &[
    "crud",
    "patch",
    "delete",
    "list",
    "watch",
    "expired",
    "defaults",
    "crd",
    "discovery",
    "auth",
    "wire",
    "with-controllers",
];

/// What is replayed.
#[derive(Clone, Debug, Default)]
pub struct Choice {
    /// One topic (`crud`); all if absent.
    pub topic: Option<String>,
    /// One case (`core-lifecycle`); all if absent.
    pub case: Option<String>,
}

/// The outcome of one case.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// Topic and case: `crud/core-lifecycle`.
    pub case: String,
    /// What the comparison says.
    pub verdict: Verdict,
}

/// All outcomes.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// In the order of the recordings.
    pub outcomes: Vec<Outcome>,
}

impl Report {
    /// Cases that are equal, explained, different, not yet supported.
    pub fn counts(&self) -> [usize; 4] {
        let mut counts = [0; 4];
        for outcome in &self.outcomes {
            let place = match outcome.verdict {
                Verdict::Equal => 0,
                Verdict::Explained(_) => 1,
                Verdict::Different(_) => 2,
                Verdict::NotYet(_) => 3,
            };
            counts[place] += 1;
        }
        counts
    }

    /// The last line of the report.
    pub fn summary(&self) -> String {
        let [equal, explained, different, not_yet] = self.counts();
        format!("kube-api: {equal} equal, {explained} explained, {different} different, {not_yet} not yet")
    }
}

/// Where the shared specifications are: `RAYFLEET_SHARED`, else beside the repository.
pub fn shared() -> PathBuf {
    std::env::var_os("RAYFLEET_SHARED")
        .map_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared"), PathBuf::from)
}

/// Replays what was chosen from the recordings in `dir`.
pub fn run(dir: &Path, choice: &Choice) -> Result<Report> {
    let index = dir.join("index.json");
    if !index.is_file() {
        bail!("{} is absent: set RAYFLEET_SHARED or pass --dir", index.display());
    }
    let definitions = recording::definitions(dir).context("reading the CustomResourceDefinitions of the recordings")?;
    let base = replay::base_server(&definitions)?;
    let mut report = Report::default();
    for topic in TOPICS.iter().filter(|t| choice.topic.as_deref().is_none_or(|c| c == **t)) {
        let cases = recording::cases(&dir.join(format!("{topic}.json"))).with_context(|| format!("reading {topic}"))?;
        for case in cases.iter().filter(|c| choice.case.as_deref().is_none_or(|id| id == c.id)) {
            let verdict = replay::case(&base, topic, case);
            report.outcomes.push(Outcome { case: format!("{topic}/{}", case.id), verdict });
        }
    }
    if report.outcomes.is_empty() {
        bail!("no case of that name is recorded");
    }
    Ok(report)
}
