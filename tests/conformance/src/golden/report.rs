//! What is printed of played cases.
//! Must not know how they were judged.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::cases::KINDS;
use super::compare::Difference;
use super::explained::{ENTRIES, Explanations};
use super::recording::Recording;

/// What the comparison says of a case.
#[derive(Clone, Debug)]
pub enum Verdict {
    /// Nothing differs.
    Equal,
    /// Only what these entries explain, by their place.
    Explained(Vec<usize>),
    /// These differences.
    Different(Vec<Difference>),
    /// It needs what is not built; which.
    NotYet(String),
}

/// The outcome of one case.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// Kind of the root object.
    pub kind: String,
    /// Its name.
    pub case: String,
    /// What the comparison says.
    pub verdict: Verdict,
    /// What was played, in lines, if that was asked for.
    pub trace: Vec<String>,
}

impl Outcome {
    fn place(&self) -> usize {
        match self.verdict {
            Verdict::Equal => 0,
            Verdict::Explained(_) => 1,
            Verdict::Different(_) => 2,
            Verdict::NotYet(_) => 3,
        }
    }

    /// In lines; of its differences at most this many.
    pub fn lines(&self, most: usize) -> Vec<String> {
        match &self.verdict {
            Verdict::Equal => vec![format!("equal      {}", self.case)],
            Verdict::Explained(entries) => {
                let numbers: Vec<String> = entries.iter().map(|at| (at + 1).to_string()).collect();
                vec![format!("explained  {} (entries {})", self.case, numbers.join(", "))]
            }
            Verdict::NotYet(why) => vec![format!("not yet    {}: {why}", self.case)],
            Verdict::Different(differences) => {
                let shown =
                    differences.iter().take(most).map(|d| format!("    {}\n        {}: {}", d.class, d.at, d.what));
                let more = differences.len().saturating_sub(most);
                let rest = (more > 0).then(|| format!("    … and {more} more"));
                std::iter::once(format!("DIFFERENT  {}", self.case)).chain(shown).chain(rest).collect()
            }
        }
    }
}

/// All outcomes.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// In the order of the recordings.
    pub outcomes: Vec<Outcome>,
    /// How often each entry was used.
    pub explanations: Explanations,
}

impl Report {
    /// Cases of a kind that are equal, explained, different, not yet.
    pub fn counts(&self, kind: &str) -> [usize; 4] {
        let mut counts = [0; 4];
        self.outcomes.iter().filter(|outcome| outcome.kind == kind).for_each(|outcome| counts[outcome.place()] += 1);
        counts
    }

    /// Whether any case differs.
    pub fn differs(&self) -> bool {
        self.outcomes.iter().any(|outcome| matches!(outcome.verdict, Verdict::Different(_)))
    }

    /// One line for each kind that was played.
    pub fn summary(&self) -> Vec<String> {
        let kinds = KINDS.iter().rev().filter(|kind| self.outcomes.iter().any(|outcome| outcome.kind == **kind));
        kinds
            .map(|kind| {
                let [equal, explained, different, not_yet] = self.counts(kind);
                format!("golden {kind}: {equal} equal, {explained} explained, {different} different, {not_yet} not yet")
            })
            .collect()
    }

    /// Like differences of all cases together: class, in how many cases it stands, and one of these; most frequent first.
    pub fn classes(&self) -> Vec<(String, usize, String)> {
        let mut classes: BTreeMap<&str, BTreeMap<&str, &Difference>> = BTreeMap::new();
        for outcome in &self.outcomes {
            let Verdict::Different(differences) = &outcome.verdict else { continue };
            for difference in differences {
                classes.entry(&difference.class).or_default().entry(&outcome.case).or_insert(difference);
            }
        }
        let mut listed: Vec<(String, usize, String)> = classes
            .into_iter()
            .filter_map(|(class, cases)| {
                let (case, first) = cases.first_key_value()?;
                Some((class.to_owned(), cases.len(), format!("{case} {}: {}", first.at, first.what)))
            })
            .collect();
        listed.sort_by_key(|(_, cases, _)| std::cmp::Reverse(*cases));
        listed
    }

    /// The entries that were used, and how often.
    pub fn explained(&self) -> Vec<String> {
        let uses = self.explanations.uses.iter();
        uses.map(|(at, uses)| {
            let entry = &ENTRIES[*at];
            format!("explained {}: {} {}: {uses} times: {}", at + 1, entry.kind, entry.at, entry.reason)
        })
        .collect()
    }

    /// All of it, for programs.
    pub fn json(&self) -> Value {
        let cases: Vec<Value> = self
            .outcomes
            .iter()
            .map(|outcome| {
                let (word, more) = match &outcome.verdict {
                    Verdict::Equal => ("equal", Value::Null),
                    Verdict::Explained(entries) => {
                        ("explained", json!(entries.iter().map(|at| at + 1).collect::<Vec<_>>()))
                    }
                    Verdict::NotYet(why) => ("not yet", json!(why)),
                    Verdict::Different(differences) => {
                        let one = |d: &Difference| json!({ "at": d.at, "class": d.class, "what": d.what });
                        ("different", differences.iter().map(one).collect())
                    }
                };
                json!({ "kind": outcome.kind, "case": outcome.case, "verdict": word, "details": more })
            })
            .collect();
        let entries: Vec<Value> = ENTRIES
            .iter()
            .enumerate()
            .map(|(at, entry)| {
                let uses = self.explanations.uses.get(&at).copied().unwrap_or(0);
                json!({ "entry": at + 1, "kind": entry.kind, "at": entry.at, "reason": entry.reason, "uses": uses })
            })
            .collect();
        json!({ "cases": cases, "explained": entries, "summary": self.summary() })
    }
}

/// What was played, in lines, for a person who follows one case.
pub(super) fn show(recording: &Recording) -> Vec<String> {
    let mut lines = Vec::new();
    for phase in &recording.phases {
        lines.push("PHASE".to_owned());
        for round in &phase.rounds {
            lines.push(format!("  ROUND {}", round.stimulus));
            for write in &round.writes {
                lines.push(format!("    {}", write.title()));
                lines.push(format!("        {}", write.body));
            }
            lines.extend(round.dashboard_requests.iter().map(|ask| format!("    {ask}")));
        }
        lines.extend(phase.events.iter().map(|event| format!("  EVENT {event}")));
    }
    lines
}
