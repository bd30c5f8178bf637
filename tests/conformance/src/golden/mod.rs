//! Recorded lives of Ray objects, played in the simulator against the real core, and compared write by write: `conformance
//! golden`. The contract is the recordings' own README.
//!
//! * [`cases`]: manifests, steps and recordings of a folder; [`recording`]: their common form.
//! * [`stage`], [`node`], [`dashboard`]: the simulated surroundings; [`play`]: one case in them; [`heard`]: what was sent.
//! * [`normal`], [`pairs`], [`align`], [`compare`]: what is equal; [`explained`], [`rewrites`]: what is meant to be other.
//! * [`report`]: what is printed.

mod align;
mod cases;
mod compare;
mod dashboard;
mod explained;
mod heard;
mod node;
mod normal;
mod pairs;
mod play;
mod recording;
mod report;
mod rewrites;
mod stage;

use std::path::Path;

use anyhow::{Result, bail};
use rayfleet::api::names;
use serde_json::Value;

use cases::{Case, Operator};
use play::Played;
use recording::Recording;

pub use compare::Difference;
pub use explained::{ENTRIES, Entry, Explanations};
pub use report::{Outcome, Report, Verdict};

/// What is played.
#[derive(Clone, Debug, Default)]
pub struct Choice {
    /// One kind of root object; all if absent.
    pub kind: Option<String>,
    /// One case; all if absent. A sample's name means all of its runs.
    pub case: Option<String>,
    /// What was played is printed too, write by write.
    pub trace: bool,
}

impl Choice {
    fn holds(&self, case: &Case) -> bool {
        let named = |name: &String| case.name == *name || case.name.split(':').next() == Some(name);
        self.kind.as_deref().is_none_or(|kind| kind == case.kind) && self.case.as_ref().is_none_or(named)
    }
}

/// Plays what was chosen from the recordings in `dir`; manifests of samples stand in `samples`. Each outcome is handed to
/// `told` as soon as it is known. An error: a folder cannot be read, or nothing of it was chosen.
pub fn run(
    dir: &Path,
    samples: &Path,
    choice: &Choice,
    mut told: impl FnMut(&Outcome) -> Result<()>,
) -> Result<Report> {
    let mut report = Report::default();
    for case in cases::read(dir, samples)? {
        if !choice.holds(&case) {
            continue;
        }
        let (verdict, played) = judge(&case, &mut report.explanations);
        let trace = if choice.trace { played.as_ref().map(report::show).unwrap_or_default() } else { Vec::new() };
        let outcome = Outcome { kind: case.kind.to_owned(), case: case.name, verdict, trace };
        told(&outcome)?;
        report.outcomes.push(outcome);
    }
    if report.outcomes.is_empty() {
        bail!("no case of that kind and name is recorded");
    }
    Ok(report)
}

/// What becomes of one case, and what was played of it.
fn judge(case: &Case, explanations: &mut Explanations) -> (Verdict, Option<Recording>) {
    if let Some(why) = not_yet(case) {
        return (Verdict::NotYet(why), None);
    }
    let mut ours = match play::play(case) {
        Ok(Played::Whole(recording)) => recording,
        Ok(Played::NotBuilt(words)) => return (Verdict::NotYet(format!("refused as not built: {words}")), None),
        Err(error) => {
            let what = format!("{error:#}");
            let difference = Difference { at: String::new(), class: "cannot be played".into(), what };
            return (Verdict::Different(vec![difference]), None);
        }
    };
    let mut theirs = case.recorded.clone();
    normal::played(&mut ours);
    normal::recorded(&mut theirs);
    let mut used = Explanations::default();
    let differences = compare::compare(&ours, &theirs, &mut used);
    explanations.add(&used);
    let verdict = match (differences.is_empty(), used.uses.is_empty()) {
        (false, _) => Verdict::Different(differences),
        (true, true) => Verdict::Equal,
        (true, false) => Verdict::Explained(used.uses.into_keys().collect()),
    };
    (verdict, Some(ours))
}

/// The setting that our controller needs none for.
const VOLCANO: &str = "--batch-scheduler=volcano";

/// Why a case is not played at all.
fn not_yet(case: &Case) -> Option<String> {
    if matches!(case.kind, "RayService" | "RayCronJob") {
        return Some(format!("{} is not built yet", case.kind));
    }
    if case.objects.iter().any(|object| object["kind"] == "ResourceQuota") {
        return Some("the sandbox's API server enforces no ResourceQuota".to_owned());
    }
    let volcano = case.operator.flags.iter().any(|flag| flag == VOLCANO);
    let queued = |object: &Value| !object["metadata"]["labels"][names::QUEUE_LABEL].is_null();
    if !volcano && case.objects.iter().any(queued) {
        return Some("no setting of ours yet that turns Volcano off where a label names a queue".to_owned());
    }
    setting(&case.operator).map(|setting| format!("no setting of ours yet for the operator's {setting}"))
}

/// A setting of the operator's that the controller of the simulation cannot be given. Volcano needs none: a queue in the
/// labels asks for it.
fn setting(operator: &Operator) -> Option<String> {
    if let Some(variable) = operator.env.keys().next() {
        return Some(format!("environment ({variable}, …)"));
    }
    if !operator.config.is_null() {
        return Some("configuration file".to_owned());
    }
    operator.flags.iter().find(|flag| *flag != VOLCANO).map(|flag| {
        let (name, value) = flag.split_once('=').unwrap_or((flag, ""));
        let first = value.split(',').next().unwrap_or_default();
        format!("{name}={first}{}", if value.contains(',') { ",…" } else { "" })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_setting_that_the_controller_does_not_have_is_named() {
        let with = |flag: &str| Operator { flags: vec![flag.to_owned()], ..Operator::default() };
        assert_eq!(setting(&Operator::default()), None);
        assert_eq!(setting(&with(VOLCANO)), None);
        assert_eq!(setting(&with("--feature-gates=A=true,B=true")).unwrap(), "--feature-gates=A=true,…");
        let env = [("ENABLE_LOGIN_SHELL".to_owned(), "true".to_owned())].into();
        assert!(setting(&Operator { env, ..Operator::default() }).unwrap().contains("ENABLE_LOGIN_SHELL"));
    }
}
