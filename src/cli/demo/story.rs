//! What became of the demo's jobs, and whether it is what the demo claims.
//! Must not know how it was found out.

use std::io::IsTerminal as _;

use anyhow::{Result, bail};
use comfy_table::{ContentArrangement, Table};
use serde_json::Value;

use super::jobs::JOBS;
use super::replicas::{Ending, HandOver};

/// Width of the summary where there is no terminal.
const WIDTH: u16 = 150;

/// What became of one job.
#[derive(Clone, Default)]
pub(super) struct Story {
    /// Members that it was bound to, in order.
    pub(super) members: Vec<String>,
    /// Members that it was withdrawn from, in order.
    pub(super) withdrawn: Vec<String>,
    /// What it waited for, as its Placement said.
    pub(super) waited: Vec<String>,
    /// Every member's verdict at the last decision.
    pub(super) verdicts: String,
    /// Final `status.jobStatus`.
    pub(super) result: String,
    /// What the Ray job printed, last line.
    pub(super) printed: String,
    /// Submissions in Ray's own job list, the most that were seen.
    pub(super) submissions: Option<usize>,
    /// Lines of the Placement's history that were told.
    pub(super) told: usize,
}

/// What the demo saw.
pub(super) struct Told {
    /// In the order of [`JOBS`].
    pub(super) stories: Vec<Story>,
    /// What happened to replicas.
    pub(super) hand_overs: Vec<HandOver>,
}

impl Story {
    /// Takes in a Placement; gives back what is new in it, in sentences.
    pub(super) fn follow(&mut self, placement: &Value) -> Vec<String> {
        let (spec, status) = (&placement["spec"], &placement["status"]);
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let mut lines = Vec::new();
        let history: Vec<&Value> = status["history"].as_array().into_iter().flatten().collect();
        for entry in history.iter().skip(self.told) {
            let (event, member, why) = (text(&entry["event"]), text(&entry["member"]), text(&entry["message"]));
            match event.as_str() {
                "Bound" => {
                    self.members.push(member);
                    self.verdicts = verdicts(placement);
                    lines.push(why);
                }
                "Withdrawn" => {
                    lines.push(format!("withdrawn from {member}: {why}"));
                    self.withdrawn.push(member);
                }
                _ => {}
            }
        }
        self.told = history.len();
        let waits = if spec["stage"] == "Waiting" { text(&status["message"]) } else { String::new() };
        if !waits.is_empty() && self.waited.last() != Some(&waits) {
            lines.push(format!("waits: {waits}"));
            self.waited.push(waits);
            self.verdicts = verdicts(placement);
        }
        lines
    }
}

/// `ap Fits, eu QueueFull, us Fits`
fn verdicts(placement: &Value) -> String {
    let all = placement["status"]["verdicts"].as_array().into_iter().flatten();
    let words = all.filter_map(|v| Some(format!("{} {}", v["member"].as_str()?, v["verdict"].as_str()?)));
    words.collect::<Vec<_>>().join(", ")
}

impl Told {
    /// A table for people.
    pub(super) fn summary(&self) -> String {
        let mut table = Table::new();
        table.load_style(comfy_table::presets::UTF8_HORIZONTAL_ONLY);
        table.set_content_arrangement(ContentArrangement::Dynamic);
        if !std::io::stdout().is_terminal() {
            table.set_width(WIDTH);
        }
        table.set_header(["JOB", "MEMBERS", "RESULT", "VERDICTS", "SUBMITTED", "RAY PRINTED", "WAITED FOR"]);
        for (job, s) in JOBS.iter().zip(&self.stories) {
            table.add_row([
                job.name.to_owned(),
                s.members.join(" → "),
                if s.result.is_empty() { "waits".to_owned() } else { s.result.clone() },
                s.verdicts.clone(),
                s.submissions.map_or_else(String::new, |n| format!("{n}×")),
                s.printed.clone(),
                s.waited.last().cloned().unwrap_or_default(),
            ]);
        }
        let jobs = table.lines().map(|line| line.trim_end().to_owned());
        let hand_overs = self.hand_overs.iter().map(HandOver::sentence);
        jobs.chain(std::iter::once(String::new())).chain(hand_overs).collect::<Vec<_>>().join("\n")
    }

    /// What the demo claims; an error names every claim that did not come true.
    pub(super) fn check(&self, replicas: usize) -> Result<()> {
        let story = |name: &str| {
            JOBS.iter().zip(&self.stories).find(|(job, _)| job.name == name).map(|(_, s)| s).expect("a job of the demo")
        };
        let mut broken = Vec::new();
        let mut claim = |holds: bool, sentence: String| {
            if !holds {
                broken.push(sentence);
            }
        };
        for name in ["fits-one", "pair-a", "pair-b", "patient", "survivor"] {
            let story = story(name);
            claim(story.result == "SUCCEEDED", format!("{name} succeeds"));
            claim(story.submissions == Some(1), format!("Ray's job list has one submission of {name}"));
            claim(!story.printed.is_empty(), format!("Ray has what {name} printed"));
        }
        let waited_for_room = |name: &str| story(name).waited.iter().any(|why| why.contains("QueueFull"));
        claim(story("fits-one").members == ["us"], "fits-one runs on us, the only member that it fits in".into());
        claim(waited_for_room("pair-a") || waited_for_room("pair-b"), "one of the pair waits for a full queue".into());
        claim(story("nowhere").members.is_empty(), "nowhere is bound to no member".into());
        claim(story("nowhere").waited.iter().any(|why| why.contains("NeverFits")), "nowhere says why it waits".into());
        let patient = story("patient");
        claim(patient.members == ["ap", "us"], "patient is bound to ap, then to us".into());
        claim(patient.withdrawn == ["ap"], "patient is withdrawn from ap".into());
        claim(story("survivor").members.len() == 1, "survivor stays where it is".into());
        let count =
            |ending: Ending| self.hand_overs.iter().filter(|h| h.ending == ending && h.seconds.is_some()).count();
        let (kills, leaves) = if replicas > 1 { (2, 1) } else { (1, 0) };
        claim(
            count(Ending::Killed) == kills,
            format!("{kills} controllers were killed, and what they held is held again"),
        );
        claim(count(Ending::Asked) == leaves, format!("{leaves} controllers left in order"));
        if broken.is_empty() {
            return Ok(());
        }
        bail!("did not come true: {}", broken.join("; "))
    }
}
