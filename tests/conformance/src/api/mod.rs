//! One request table, two servers: sends the stories to the sandbox's API server and to a real one and compares the
//! answers. Must not know how either server is built.

mod asked;
mod explained;
mod normal;
mod story;

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use kit::planes::Binary;
use rayfleet::api::wire::{Method, Request};
use serde_json::{Value, json};

use asked::{Got, Real, Sandbox, Seen};
use explained::Explained;
use normal::Normal;
use story::{Body, Sender, Step, Story, Verb};

pub use explained::page;

/// What the comparison of all stories says.
#[derive(Clone, Debug, Default)]
pub struct ApiReport {
    /// Requests with equal answers.
    pub equal: usize,
    /// Requests whose answers are equal after an explained difference.
    pub explained: usize,
    /// Differences, each in a few lines.
    pub different: Vec<String>,
    /// How often each explained difference was met.
    pub used: BTreeMap<&'static str, usize>,
}

/// A table of fewer requests says little.
const REQUESTS_MIN: usize = 300;

impl ApiReport {
    /// What only all stories together show: a table that has shrunk, and explanations that explain nothing any more.
    fn judge_whole(&mut self) {
        let sent = self.equal + self.explained + self.different.len();
        if sent < REQUESTS_MIN {
            self.different.push(format!("the table has {sent} requests, fewer than {REQUESTS_MIN}"));
        }
        let unused = Explained::all().iter().filter(|known| !self.used.contains_key(known.name));
        let unused: Vec<String> =
            unused.map(|known| format!("the explained difference '{}' was never met", known.name)).collect();
        self.different.extend(unused);
    }

    /// The last line of the report.
    pub fn summary(&self) -> String {
        format!("api: {} equal, {} explained, {} different", self.equal, self.explained, self.different.len())
    }
}

/// Sends all stories, or those whose name contains `only`, to both servers. `None` with the reason where there is no real
/// one.
pub async fn api(only: Option<&str>) -> Result<std::result::Result<ApiReport, String>> {
    let stories = stories()?;
    let binary = match Binary::find() {
        Ok(binary) => binary,
        Err(why) => return Ok(Err(format!("{why:#}"))),
    };
    let mut report = ApiReport::default();
    let mut pair = Pair { real: Real::start(&binary).await?, sandbox: Sandbox::new() };
    for story in stories.iter().filter(|s| only.is_none_or(|part| s.name.contains(part))) {
        // The other stories are worth hearing all the same.
        if let Err(why) = pair.play(story, &mut report).await {
            report.different.push(format!("{}: it cannot be told: {why:#}", story.name));
            pair.real.forget();
            pair.sandbox.finish();
        }
    }
    if only.is_none() {
        report.judge_whole();
    }
    Ok(Ok(report))
}

fn stories() -> Result<Vec<Story>> {
    story::read(&Path::new(env!("CARGO_MANIFEST_DIR")).join("stories"))
}

/// Both servers.
struct Pair {
    real: Real,
    sandbox: Sandbox,
}

/// What one server has answered in one story.
struct Side {
    normal: Normal,
    /// Kept answers by name, as they came.
    kept: BTreeMap<String, Value>,
    /// Normalised answers by step; a watch has its number.
    answers: Vec<Answered>,
}

enum Answered {
    Nothing,
    Whole(Value),
    Watch(usize),
}

impl Side {
    fn new(story: &Story) -> Self {
        let sent = story.steps.iter().map(|s| s.target.clone() + &s.body_text()).collect();
        Self { normal: Normal::new(sent, story.managers), kept: BTreeMap::new(), answers: Vec::new() }
    }

    fn note(&mut self, step: &Step, got: Got) {
        let answered = match got {
            Got::Reply(reply) => {
                if let Some(name) = &step.keep {
                    self.kept.insert(name.clone(), serde_json::from_slice(&reply.body).unwrap_or_default());
                }
                Answered::Whole(self.normal.reply(&reply))
            }
            Got::Watch(number) => Answered::Watch(number),
            Got::Beyond => Answered::Whole(json!({"status": 0, "body": "passed on"})),
        };
        self.answers.push(answered);
    }

    /// The request with what this server answered before put in for `<name:/pointer>`.
    fn request(&self, step: &Step) -> Result<Request> {
        let target = self.filled(&step.target)?;
        let body = match &step.body {
            Body::None => String::new(),
            Body::Text(text) => self.filled(text)?,
            Body::Json(value) => {
                let mut value = value.clone();
                self.fill(&mut value)?;
                value.to_string()
            }
        };
        let method = match step.verb {
            Verb::Once(method) => method,
            Verb::Watch => Method::Get,
        };
        let mut request = asked::request(method, &target, &step.content_type, &body);
        step.accept.clone_into(&mut request.accept);
        step.agent.clone_into(&mut request.user_agent);
        Ok(request)
    }

    /// A text that is one reference becomes the value itself, of whatever type.
    fn fill(&self, value: &mut Value) -> Result<()> {
        match value {
            Value::String(text) if text.starts_with('<') && text.ends_with('>') && text.contains(":/") => {
                *value = self.looked_up(&text[1..text.len() - 1])?.clone();
            }
            Value::String(text) => *text = self.filled(text)?,
            Value::Array(list) => list.iter_mut().try_for_each(|v| self.fill(v))?,
            Value::Object(map) => map.values_mut().try_for_each(|v| self.fill(v))?,
            _ => {}
        }
        Ok(())
    }

    fn filled(&self, text: &str) -> Result<String> {
        let mut out = String::new();
        let mut rest = text;
        while let Some((before, after)) = rest.split_once('<') {
            out.push_str(before);
            if let Some((inner, after)) = after.split_once('>').filter(|(inner, _)| inner.contains(":/")) {
                let value = self.looked_up(inner)?;
                out.push_str(&value.as_str().map_or_else(|| value.to_string(), str::to_owned));
                rest = after;
            } else {
                out.push('<');
                rest = after;
            }
        }
        Ok(out + rest)
    }

    fn looked_up(&self, reference: &str) -> Result<&Value> {
        let (name, pointer) = reference.split_once(':').context("a reference has a name and a pointer")?;
        let kept = self.kept.get(name).with_context(|| format!("no answer was kept as '{name}'"))?;
        kept.pointer(pointer.trim_end_matches('/')).with_context(|| format!("{name} has no {pointer}: {kept}"))
    }
}

impl Pair {
    async fn play(&mut self, story: &Story, report: &mut ApiReport) -> Result<()> {
        self.prepare(&story.name).await?;
        let (mut ours, mut theirs) = (Side::new(story), Side::new(story));
        for step in &story.steps {
            let real = theirs.request(step).with_context(|| format!("the real server, before {}", step.line()))?;
            let here = ours.request(step).with_context(|| format!("the sandbox, before {}", step.line()))?;
            let got = match step.until {
                Some(status) => {
                    let asked = self.real.ask_until(&real, status).await;
                    let before = || match theirs.answers.last() {
                        Some(Answered::Whole(answer)) => answer.to_string(),
                        _ => String::new(),
                    };
                    Got::Reply(asked.with_context(|| format!("after the answer {}", before()))?)
                }
                None => self.real.ask(&real, step.verb == Verb::Watch || real.is_watch()).await?,
            };
            theirs.note(step, got);
            let ours_got = self.sandbox.ask(&here);
            if let (Some(status), Got::Reply(reply)) = (step.until, &ours_got)
                && reply.status != status
            {
                let body = String::from_utf8_lossy(&reply.body);
                report.different.push(format!("{}: {}: here {} {body}", story.name, step.line(), reply.status));
            }
            ours.note(step, ours_got);
            if step.until.is_some() {
                theirs.answers.pop();
                ours.answers.pop();
                theirs.answers.push(Answered::Nothing);
                ours.answers.push(Answered::Nothing);
            }
        }
        let here = self.sandbox.finish();
        let real = self.real.finish(&here).await?;
        for ((step, ours_at), theirs_at) in story.steps.iter().zip(0..).zip(0..) {
            let real = whole(&mut theirs.normal, &theirs.answers[theirs_at], &real);
            let here = whole(&mut ours.normal, &ours.answers[ours_at], &here);
            let (Some(real), Some(here)) = (real, here) else { continue };
            judge(story, step, real, here, report);
        }
        Ok(())
    }

    /// A namespace and what Pods need in it: what the controllers of a cluster would make.
    async fn prepare(&mut self, namespace: &str) -> Result<()> {
        let make =
            |target: &str, body: Value| asked::request(Method::Post, target, "application/json", &body.to_string());
        let space = make("/api/v1/namespaces", json!({"metadata": {"name": namespace}}));
        let accounts = format!("/api/v1/namespaces/{namespace}/serviceaccounts");
        let account = make(&accounts, json!({"metadata": {"name": "default"}}));
        for request in [space, account] {
            self.real.ask_until(&request, 201).await?;
            match self.sandbox.ask(&request) {
                Got::Reply(reply) => ensure!(reply.status == 201, "{}", String::from_utf8_lossy(&reply.body)),
                _ => anyhow::bail!("a namespace is answered with a whole reply"),
            }
        }
        Ok(())
    }
}

/// The whole answer of a step: of a watch, what came out of it.
fn whole(normal: &mut Normal, answered: &Answered, watches: &[Seen]) -> Option<Value> {
    match answered {
        Answered::Nothing => None,
        Answered::Whole(value) => Some(value.clone()),
        Answered::Watch(number) => {
            let seen = watches.get(*number)?;
            let events: Vec<Value> = seen.events.iter().map(|e| normal.event(e)).collect();
            Some(json!({"status": 200, "events": events, "ended": seen.ended}))
        }
    }
}

fn judge(story: &Story, step: &Step, real: Value, here: Value, report: &mut ApiReport) {
    if real == here {
        report.equal += 1;
        return;
    }
    let (mut left, mut right) = (real, here);
    let mut met = Vec::new();
    // Tables are for people, whatever the story.
    if story.by != Sender::Controller || step.accept.contains("as=Table") {
        for known in Explained::all().iter().filter(|e| e.concerns(step)) {
            if known.rewrite(&mut left, &mut right) {
                met.push(known.name);
            }
        }
    }
    if left == right {
        report.explained += 1;
        met.iter().for_each(|name| *report.used.entry(name).or_default() += 1);
        return;
    }
    let mut lines = vec![format!("{}: {}", story.name, step.line())];
    differences("", &left, &right, &mut lines);
    report.different.push(lines.join("\n    "));
}

/// Where two values differ, by JSON pointer.
fn differences(at: &str, real: &Value, here: &Value, out: &mut Vec<String>) {
    match (real, here) {
        (Value::Object(a), Value::Object(b)) => {
            for (key, value) in a {
                let path = format!("{at}/{}", key.replace('~', "~0").replace('/', "~1"));
                match b.get(key) {
                    Some(other) => differences(&path, value, other, out),
                    None => out.push(format!("{path}: real {value}, here nothing")),
                }
            }
            for (key, value) in b.iter().filter(|(key, _)| !a.contains_key(*key)) {
                out.push(format!("{at}/{key}: real nothing, here {value}"));
            }
        }
        (Value::Array(a), Value::Array(b)) if a.len() == b.len() => {
            for (i, (x, y)) in a.iter().zip(b).enumerate() {
                differences(&format!("{at}/{i}"), x, y, out);
            }
        }
        (a, b) if a == b => {}
        _ => out.push(format!("{at}: real {real}\n      here {here}")),
    }
}
