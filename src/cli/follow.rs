//! Follows RayJobs on the hub to their ends and says what happens: a spinner on a terminal, lines elsewhere.
//! Must not know more than the hub's objects say.

use std::io::IsTerminal;
use std::pin::pin;
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow};
use indicatif::{MultiProgress, ProgressBar, ProgressStyle};
use serde::Serialize;
use serde_json::Value;

use super::End;
use super::access::{Hub, Refusal};
use super::explain::placement_of;
use super::output;
use super::submit::named;
use crate::api::Id;
use crate::api::fleet::{Placement, Stage};
use crate::shell::shutdown;

const LOOK_EVERY: Duration = Duration::from_millis(500);
/// A hub that does not answer for this long ends the following.
const SILENCE_MAX: Duration = Duration::from_mins(1);

/// How the jobs ended.
#[derive(Debug)]
pub(crate) struct Ended {
    /// The worst end of all.
    pub(crate) end: End,
    /// One entry per job.
    pub(crate) jobs: Vec<JobEnd>,
}

/// How one job ended, for programs.
#[derive(Debug, Serialize, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub(crate) struct JobEnd {
    namespace: String,
    name: String,
    /// Last member that it was on; empty where it never was on one.
    member: String,
    /// `status.jobStatus`.
    job_status: String,
    /// `status.jobDeploymentStatus`.
    job_deployment_status: String,
    /// `status.message`, or what it waits for.
    message: String,
    seconds: u64,
}

/// A job as it was created.
#[derive(Debug)]
pub(crate) struct Submitted {
    /// Which.
    pub(crate) id: Id,
    /// Its UID: another of its name is another job.
    pub(crate) uid: String,
}

/// Looks at the jobs until each has ended, `timeout` has passed, or a signal asks to end. `people`: say what happens.
pub(crate) async fn until_ended(
    hub: &Hub,
    jobs: Vec<Submitted>,
    timeout: Option<Duration>,
    people: bool,
) -> Result<Ended> {
    let begun = Instant::now();
    let screen = Screen::new(people);
    let mut open: Vec<Followed> = jobs.into_iter().map(|job| Followed::new(job, &screen)).collect();
    let limit = async {
        match timeout {
            Some(limit) => tokio::time::sleep(limit).await,
            None => std::future::pending().await,
        }
    };
    let asked = async {
        // Where signals cannot be heard they end the process by themselves.
        if shutdown::asked().await.is_err() {
            std::future::pending::<()>().await;
        }
    };
    let cut = tokio::select! {
        followed = follow(hub, &mut open, begun, &screen) => followed.map(|()| None)?,
        () = pin!(limit) => Some((End::TimedOut, "--timeout")),
        () = pin!(asked) => Some((End::Interrupted, "interrupted")),
    };
    if let Some((end, why)) = cut {
        for job in open.iter_mut().filter(|j| j.end.is_none()) {
            job.leave(end, why, begun.elapsed(), &screen)?;
        }
    }
    let end = open.iter().filter_map(|j| j.end).max().unwrap_or(End::Done);
    Ok(Ended { end, jobs: open.into_iter().map(|j| j.told).collect() })
}

async fn follow(hub: &Hub, open: &mut [Followed], begun: Instant, screen: &Screen) -> Result<()> {
    let mut heard = Instant::now();
    loop {
        for job in open.iter_mut().filter(|j| j.end.is_none()) {
            match look(hub, &job.id).await {
                Ok((root, placement)) => {
                    heard = Instant::now();
                    job.take_in(root.as_ref(), placement.as_ref(), begun.elapsed(), screen)?;
                }
                // A refusal will not mend itself; silence may.
                Err(error) if error.downcast_ref::<Refusal>().is_some_and(|r| r.status < 500) => return Err(error),
                Err(error) if heard.elapsed() > SILENCE_MAX => return Err(error),
                Err(error) => job.bar.set_message(format!("{}: {}", named(&job.id), output::words(&error))),
            }
        }
        if open.iter().all(|j| j.end.is_some()) {
            return Ok(());
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

async fn look(hub: &Hub, id: &Id) -> Result<(Option<Value>, Option<Placement>)> {
    let root = hub.get(id).await?;
    Ok((root, placement_of(hub, id).await?))
}

/// Where lines and spinners go.
struct Screen {
    bars: Option<MultiProgress>,
    lines: bool,
}

impl Screen {
    fn new(people: bool) -> Self {
        let live = people && std::io::stderr().is_terminal() && std::io::stdout().is_terminal();
        Self { bars: live.then(MultiProgress::new), lines: people }
    }

    fn bar(&self) -> ProgressBar {
        match &self.bars {
            None => ProgressBar::hidden(),
            Some(bars) => {
                let bar = bars.add(ProgressBar::new_spinner());
                if let Ok(style) = ProgressStyle::with_template("{spinner} {elapsed:>4} {wide_msg}") {
                    bar.set_style(style);
                }
                bar.enable_steady_tick(Duration::from_millis(120));
                bar
            }
        }
    }

    fn line(&self, text: &str) -> Result<()> {
        match &self.bars {
            Some(bars) => bars.println(text).map_err(|e| anyhow!("writing to the terminal: {e}")),
            None if self.lines => output::print(text),
            None => Ok(()),
        }
    }
}

struct Followed {
    id: Id,
    uid: String,
    bar: ProgressBar,
    said: String,
    end: Option<End>,
    told: JobEnd,
}

impl Followed {
    fn new(job: Submitted, screen: &Screen) -> Self {
        let Submitted { id, uid } = job;
        let told = JobEnd {
            namespace: id.namespace.to_string(),
            name: id.name.to_string(),
            member: String::new(),
            job_status: String::new(),
            job_deployment_status: String::new(),
            message: String::new(),
            seconds: 0,
        };
        Self { id, uid, bar: screen.bar(), said: String::new(), end: None, told }
    }

    fn take_in(
        &mut self,
        root: Option<&Value>,
        placement: Option<&Placement>,
        passed: Duration,
        screen: &Screen,
    ) -> Result<()> {
        let Some(root) = root.filter(|root| root["metadata"]["uid"] == *self.uid) else {
            "the RayJob was deleted before it ended".clone_into(&mut self.told.message);
            let last = if self.said.is_empty() { String::new() } else { format!(" (last: {})", self.said) };
            return self.close(End::JobDeleted, &format!("was deleted before it ended{last}"), passed, screen);
        };
        let text = |field: &str| root["status"][field].as_str().unwrap_or("").to_owned();
        self.told.job_status = text("jobStatus");
        self.told.job_deployment_status = text("jobDeploymentStatus");
        self.told.message = text("message");
        if let Some(placement) = placement
            && placement.spec.stage != Stage::Waiting
        {
            self.told.member = placement.spec.member.clone().unwrap_or_default();
        }
        let state = match root["metadata"]["deletionTimestamp"].as_str() {
            Some(_) => "is being deleted".to_owned(),
            None => state(&self.told, placement),
        };
        if state != self.said {
            self.said.clone_from(&state);
            screen.line(&format!("{:>5}  {}  {state}", output::span(passed.as_secs()), named(&self.id)))?;
        }
        self.bar.set_message(format!("{}  {state}", named(&self.id)));
        match ended(&self.told) {
            None => Ok(()),
            Some(end) => {
                let on = if self.told.member.is_empty() { String::new() } else { format!(" on {}", self.told.member) };
                let mut words = if self.told.job_status.is_empty() {
                    self.told.job_deployment_status.clone()
                } else {
                    self.told.job_status.clone()
                };
                words.push_str(&on);
                if end != End::Done && !self.told.message.is_empty() {
                    words = format!("{words}: {}", self.told.message);
                }
                self.close(end, &words, passed, screen)
            }
        }
    }

    /// It goes on, and is not followed any more.
    fn leave(&mut self, end: End, why: &str, passed: Duration, screen: &Screen) -> Result<()> {
        self.end = Some(end);
        self.told.seconds = passed.as_secs();
        self.bar.finish_and_clear();
        let (name, namespace) = (named(&self.id), &self.id.namespace);
        let line = format!(
            "{name} has not ended after {} ({why}); it goes on. Follow it: rayfleet logs {name} -n {namespace} -f; where it \
             is: rayfleet explain {name} -n {namespace}",
            output::span(passed.as_secs())
        );
        if !screen.lines {
            // Beside what is for programs.
            output::note(&line);
            return Ok(());
        }
        screen.line(&line)
    }

    fn close(&mut self, end: End, words: &str, passed: Duration, screen: &Screen) -> Result<()> {
        self.end = Some(end);
        self.told.seconds = passed.as_secs();
        self.bar.finish_and_clear();
        // A log's last lines may be in it: the time belongs to the first.
        let (first, rest) = words.split_at(words.find('\n').unwrap_or(words.len()));
        screen.line(&format!("{} {first}, after {}{rest}", named(&self.id), output::span(passed.as_secs())))
    }
}

/// What a job is doing, in one line.
fn state(told: &JobEnd, placement: Option<&Placement>) -> String {
    let Some(placement) = placement else {
        return match told.message.as_str() {
            "" if told.job_deployment_status.is_empty() => "is taken in".to_owned(),
            "" => told.job_deployment_status.clone(),
            message => message.to_owned(),
        };
    };
    let member = placement.spec.member.as_deref().unwrap_or("?");
    let why = &placement.status.message;
    let colon = if why.is_empty() { "" } else { ": " };
    match placement.spec.stage {
        Stage::Waiting if why.starts_with("waits") => why.clone(),
        Stage::Waiting => format!("waits on the hub{colon}{why}"),
        Stage::Reserving => format!("is reserved on {member}{colon}{why}"),
        Stage::Withdrawing => {
            let reason = placement.spec.withdrawal.as_ref().map_or("", |w| w.message.as_str());
            format!("is withdrawn from {member}{}{reason}", if reason.is_empty() { "" } else { ": " })
        }
        Stage::Admitted | Stage::Running | Stage::Finished => {
            let mut line = format!("on {member}");
            for status in [&told.job_deployment_status, &told.job_status] {
                if !status.is_empty() {
                    line = format!("{line}, {status}");
                }
            }
            line
        }
    }
}

/// The end that the status tells, if it tells one (specs/rayjob.md: `Complete`, `Failed` and `ValidationFailed` are final).
fn ended(told: &JobEnd) -> Option<End> {
    match (told.job_deployment_status.as_str(), told.job_status.as_str()) {
        ("Complete", "SUCCEEDED") => Some(End::Done),
        ("Complete" | "Failed", "STOPPED") => Some(End::JobStopped),
        ("Complete" | "Failed" | "ValidationFailed", _) => Some(End::JobFailed),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::Kind;
    use serde_json::json;

    fn followed(screen: &Screen) -> Followed {
        let job = Submitted { id: Id::new(Kind::RayJob, "default", "train"), uid: "u1".into() };
        Followed::new(job, screen)
    }

    fn take(status: &Value, stage: Stage) -> Followed {
        let screen = Screen { bars: None, lines: false };
        let mut job = followed(&screen);
        let mut placement = Placement::default();
        placement.spec.stage = stage;
        placement.spec.member = Some("eu".into());
        placement.status.message = "no member has room".into();
        let root = json!({ "metadata": { "uid": "u1" }, "status": status });
        job.take_in(Some(&root), Some(&placement), Duration::ZERO, &screen).unwrap();
        job
    }

    #[test]
    fn the_result_of_the_job_is_the_end() {
        for (deployment, job, end) in [
            ("Running", "RUNNING", None),
            ("Retrying", "FAILED", None),
            ("Complete", "SUCCEEDED", Some(End::Done)),
            ("Failed", "FAILED", Some(End::JobFailed)),
            ("Complete", "STOPPED", Some(End::JobStopped)),
            ("ValidationFailed", "", Some(End::JobFailed)),
        ] {
            let got = take(&json!({"jobDeploymentStatus": deployment, "jobStatus": job}), Stage::Running);
            assert_eq!(got.end, end, "{deployment} {job}");
        }
    }

    #[test]
    fn a_job_that_is_gone_or_another_of_its_name_was_deleted() {
        let screen = Screen { bars: None, lines: false };
        for there in [None, Some(json!({ "metadata": { "uid": "u2" }, "status": { "jobStatus": "RUNNING" } }))] {
            let mut job = followed(&screen);
            job.take_in(there.as_ref(), None, Duration::ZERO, &screen).unwrap();
            assert_eq!(job.end, Some(End::JobDeleted));
            assert_eq!(job.told.message, "the RayJob was deleted before it ended");
        }
        let mut job = followed(&screen);
        let leaving = json!({ "metadata": { "uid": "u1", "deletionTimestamp": "2026-01-01T00:00:00Z" } });
        job.take_in(Some(&leaving), None, Duration::ZERO, &screen).unwrap();
        assert_eq!((job.end, &*job.said), (None, "is being deleted"));
    }

    #[test]
    fn a_line_says_where_it_is_and_why() {
        assert_eq!(take(&json!({}), Stage::Waiting).said, "waits on the hub: no member has room");
        assert_eq!(
            take(&json!({}), Stage::Waiting).told.member,
            "",
            "the member of an earlier generation is not shown"
        );
        assert_eq!(take(&json!({}), Stage::Reserving).said, "is reserved on eu: no member has room");
        let running = json!({"jobDeploymentStatus": "Running", "jobStatus": "RUNNING"});
        assert_eq!(take(&running, Stage::Running).said, "on eu, Running, RUNNING");
    }
}
