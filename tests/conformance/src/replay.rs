//! Sends the requests of a case to a server of ours and judges the answers.
//! Must not know what the server answers by itself.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, bail};
use rayfleet::api::Time;
use rayfleet::api::wire::{Method, Reply, Request};
use rayfleet::sandbox::apiserver::{Answer, ApiServer, Line, Options, WatchId};
use rayfleet::sandbox::world::Surrounding;
use rayfleet::sandbox::world::collector::Collector;
use rayfleet::sandbox::world::namespaces::Namespaces;
use rayfleet::sandbox::world::surroundings::Surroundings;
use serde_json::{Value, json};

use crate::compare::{Bound, Findings, without_managed_fields};
use crate::recording::{Case, Exchange};
use crate::scope;
use crate::sender;

/// What the comparison of a case says.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// Every answer is equal.
    Equal,
    /// Equal but for known differences, with their reasons.
    Explained(Vec<&'static str>),
    /// Not equal, with what differs.
    Different(Vec<String>),
    /// Asks for something that the server says it does not support.
    NotYet(String),
}

/// The clock stands still during a case, but for controllers; it goes on at the end, for bookmarks and time-outs.
const NOW: Time = Time(1_764_000_000_000);
/// How far it goes on: no watch that the recording's server ended lasted longer.
const LONGEST: Duration = Duration::from_secs(4);

/// Controllers whose next step is later than this have come to rest.
const CONTROLLERS: Duration = Duration::from_secs(2);

/// What the server says of what it does not have.
const NOT_SUPPORTED: &str = "is not supported by the sandbox";

fn post(server: &mut ApiServer, target: &str, body: &Value) -> Result<()> {
    let request = Request::new(Method::Post, target, "application/json", Arc::from(body.to_string().into_bytes()));
    match server.handle(&request, NOW) {
        Answer::Reply(reply) if reply.is_success() => Ok(()),
        other => bail!("{target}: {}", described(&other)),
    }
}

/// A server with the CustomResourceDefinitions of the recordings.
pub(crate) fn base_server(definitions: &[Value]) -> Result<ApiServer> {
    let mut server =
        ApiServer::new(Options { auth: Some(Arc::new(sender::users())), size_limits: true, ..Options::default() });
    for definition in definitions {
        post(&mut server, "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", definition)?;
    }
    Ok(server)
}

fn make_account(server: &mut ApiServer, namespace: &str) -> Result<()> {
    let account = json!({"metadata": {"name": "default"}});
    post(server, &format!("/api/v1/namespaces/{namespace}/serviceaccounts"), &account)
}

/// A watch that is open until the case ends.
struct Open<'a> {
    id: WatchId,
    number: usize,
    exchange: &'a Exchange,
}

struct Replay<'a> {
    server: ApiServer,
    /// Controllers beside the server: ordinary clients, as they were beside the recorded one.
    controllers: Option<Surroundings>,
    now: Time,
    bound: Bound,
    findings: Findings,
    lines: BTreeMap<WatchId, Vec<Line>>,
    open: Vec<Open<'a>>,
    /// Version when the case began.
    began: u64,
    /// The last token that the server issued for itself.
    issued: Option<String>,
}

/// Replays one case on a copy of the base server.
pub(crate) fn case(base: &ApiServer, topic: &str, case: &Case) -> Verdict {
    let controllers = (topic == scope::WITH_CONTROLLERS).then(|| {
        let cores: Vec<Box<dyn Surrounding>> = vec![Box::new(Collector::default()), Box::new(Namespaces::default())];
        Surroundings::new(cores, NOW)
    });
    let mut replay = Replay {
        server: base.clone(),
        controllers,
        now: NOW,
        bound: Bound::default(),
        findings: Findings::default(),
        lines: BTreeMap::new(),
        open: Vec::new(),
        began: 0,
        issued: None,
    };
    if let Some(namespace) = &case.namespace {
        let made = post(&mut replay.server, "/api/v1/namespaces", &json!({"metadata": {"name": namespace}}))
            .and_then(|()| make_account(&mut replay.server, namespace));
        if let Err(e) = made {
            return Verdict::Different(vec![format!("the namespace of the case: {e}")]);
        }
    }
    replay.collect();
    replay.controllers_rest();
    replay.lines.clear();
    replay.began = replay.server.version();
    if topic == "expired" {
        replay.server.compact(replay.began);
    }
    for (number, exchange) in case.exchanges.iter().enumerate() {
        if exchange.note.contains("and the restart") || exchange.note.contains("and restart") {
            replay.server.compact(replay.server.version());
        }
        if scope::waited(topic, &case.id, number) {
            replay.controllers_rest();
        }
        if let Err(reason) = replay.exchange(topic, &case.id, number, exchange) {
            if replay.findings.differences.is_empty() {
                return Verdict::NotYet(reason);
            }
            break;
        }
        if let (0, Some(counts)) = (number, &case.counts) {
            replay.race(exchange, case.exchanges.last(), counts);
        }
    }
    replay.finish(topic, &case.id);
    let Findings { differences, explained } = replay.findings;
    if !differences.is_empty() {
        Verdict::Different(differences)
    } else if explained.is_empty() {
        Verdict::Equal
    } else {
        Verdict::Explained(explained)
    }
}

fn described(answer: &Answer) -> String {
    match answer {
        Answer::Reply(reply) => format!("{} {}", reply.status, String::from_utf8_lossy(&reply.body)),
        other => format!("{other:?}"),
    }
}

impl<'a> Replay<'a> {
    /// One exchange; the error says why the case cannot go on.
    fn exchange(&mut self, topic: &str, case: &str, number: usize, exchange: &'a Exchange) -> Result<(), String> {
        let (method, path, headers) = (exchange.method(), exchange.path(), exchange.headers());
        if let Some(reason) = scope::not_askable(&method, &headers) {
            self.findings.explain(reason);
            return Ok(());
        }
        let credentials = sender::credentials(exchange, &headers, self.issued.as_deref())?;
        let Some(method) = Method::parse(&method) else { return Err(format!("method {method}")) };
        let Some(body) = exchange.body() else { return Err("the body of a request is not recorded".into()) };
        let object_path = path.split('?').next().unwrap_or_default().trim_end_matches("/status").to_owned();
        let random = self.bound.random.get(&object_path).cloned().unwrap_or_default();
        let time = NOW.seconds_text();
        let filled = (self.bound.filled(&path, &time, &random), self.bound.filled(&body, &time, &random));
        let (Some(target), Some(body)) = filled else {
            match scope::known(topic, case, number) {
                Some(reason) => self.findings.explain(reason),
                None => self.findings.differ(format!("{number}: a placeholder of the request was never answered")),
            }
            return Ok(());
        };
        let header = |name: &str| headers.get(name).cloned().unwrap_or_default();
        let request = Request {
            method,
            target,
            content_type: header("content-type"),
            accept: header("accept"),
            user_agent: header("user-agent"),
            body: Arc::from(body.into_bytes()),
        };
        let answer = self.server.serve(&request, &credentials, self.now);
        self.collect();
        let before = self.findings.differences.len();
        match answer {
            Answer::Reply(reply) => {
                if String::from_utf8_lossy(&reply.body).contains(NOT_SUPPORTED) {
                    if let Some(reason) = scope::known(topic, case, number) {
                        self.findings.explain(reason);
                        return Ok(());
                    }
                    let status: Value = serde_json::from_slice(&reply.body).unwrap_or_default();
                    return Err(status["message"].as_str().unwrap_or(NOT_SUPPORTED).to_owned());
                }
                self.reply(exchange, &reply);
                self.remember_random(&object_path, &reply);
                self.issued =
                    sender::issued(&serde_json::from_slice(&reply.body).unwrap_or_default()).or(self.issued.take());
            }
            Answer::Watch(id) => self.open.push(Open { id, number, exchange }),
            Answer::Proxy(_) => return Err("what stands behind a Service is not part of the server".into()),
            Answer::Log(_) => return Err("logs are not part of the server".into()),
        }
        if self.findings.differences.len() > before
            && let Some(reason) = scope::known(topic, case, number)
            // What the sandbox has less of is answered all the same.
            && !(reason == scope::GROUPS && self.findings.differences[before..].iter().any(|d| d.starts_with("status:")))
        {
            self.findings.differences.truncate(before);
            self.findings.explain(reason);
        }
        for difference in &mut self.findings.differences[before..] {
            *difference = format!("{number} {} {path}: {difference}", method.as_str());
        }
        Ok(())
    }

    /// Writers of one object at the same moment: of PUTs with one version one gets through, of patches without one all do.
    /// Which PUT came first is not recorded but in what is stored in the end, so that one is sent first.
    fn race(&mut self, made: &Exchange, last: Option<&Exchange>, recorded: &BTreeMap<String, u64>) {
        let target = format!("{}/a", made.path());
        let there = self.server.get(&target).cloned().unwrap_or_default();
        let in_the_end = last.and_then(|exchange| exchange.response.body.clone()).unwrap_or_default();
        let racers = recorded.get("labels in the end").copied().unwrap_or(0);
        let first = in_the_end["spec"]["size"].as_u64().unwrap_or(0);
        let mut counts: BTreeMap<String, u64> = recorded.keys().map(|what| (what.clone(), 0)).collect();
        let mut send = |server: &mut ApiServer, method: Method, body: &Value| {
            let (word, kind) = match method {
                Method::Put => ("put", "application/json"),
                _ => ("patch", "application/merge-patch+json"),
            };
            let request = Request::new(method, target.clone(), kind, Arc::from(body.to_string().into_bytes()));
            if let Answer::Reply(reply) = server.handle(&request, self.now) {
                *counts.entry(format!("{word} {}", reply.status)).or_default() += 1;
            }
        };
        for size in std::iter::once(first).chain((0..racers).filter(|size| *size != first)) {
            let mut body = there.clone();
            body["spec"]["size"] = size.into();
            send(&mut self.server, Method::Put, &body);
        }
        for racer in 0..racers {
            let label = format!("l{racer}");
            send(&mut self.server, Method::Patch, &json!({ "metadata": { "labels": { label: "1" } } }));
        }
        let there = self.server.get(&target).cloned().unwrap_or_default();
        let labels = there["metadata"]["labels"].as_object().map_or(0, serde_json::Map::len);
        counts.insert("labels in the end".to_owned(), u64::try_from(labels).unwrap_or(u64::MAX));
        if counts != *recorded {
            self.findings.differ(format!("a race: recorded {recorded:?}, ours {counts:?}"));
        }
        self.collect();
    }

    fn collect(&mut self) {
        for (id, line) in self.server.take_lines() {
            match self.controllers.as_mut().filter(|controllers| controllers.owns(id)) {
                Some(controllers) => controllers.line(id, &line, self.now),
                None => self.lines.entry(id).or_default().push(line),
            }
        }
    }

    /// Lets the controllers act until they have nothing to do for a while: the clock goes on with them.
    fn controllers_rest(&mut self) {
        let until = self.now + CONTROLLERS;
        loop {
            self.collect();
            let Some(controllers) = &mut self.controllers else { return };
            let Some(at) = controllers.next_at().filter(|at| *at <= until) else { return };
            self.now = self.now.max(at);
            for sent in controllers.due(self.now) {
                let answer = self.server.handle(&sent.request, self.now);
                controllers.answered(sent.id, &answer, self.now);
            }
        }
    }

    /// Which random suffix belongs to which object, for requests that send it back.
    fn remember_random(&mut self, path: &str, reply: &Reply) {
        let Some(random) = self.bound.take_random() else { return };
        let body: Value = serde_json::from_slice(&reply.body).unwrap_or_default();
        let name = body["metadata"]["name"].as_str().unwrap_or_default();
        let path = if path.ends_with(name) { path.to_owned() } else { format!("{path}/{name}") };
        self.bound.random.insert(path, random);
    }

    fn reply(&mut self, exchange: &Exchange, reply: &Reply) {
        let expected = &exchange.response;
        if expected.status != reply.status {
            let body = String::from_utf8_lossy(&reply.body);
            self.findings.differ(format!("status: recorded {}, ours {} {body}", expected.status, reply.status));
            return;
        }
        self.headers(exchange, reply);
        if let Some(text) = &expected.raw_text {
            self.raw_text(text, reply);
        } else if expected.body_note.is_some() {
            self.findings.explain(scope::SIZE_ONLY);
        } else if let Some(body) = &expected.body {
            self.body(body, reply);
        } else if let Some(lines) = &expected.lines {
            // Not a stream but one object.
            if let [line] = lines.as_slice() {
                self.body(line, reply);
            }
        }
    }

    fn body(&mut self, expected: &Value, reply: &Reply) {
        let text = String::from_utf8_lossy(&reply.body);
        let yaml = |text: &str| serde_saphyr::from_str::<Value>(text).unwrap_or_default();
        let is_yaml = reply.headers.iter().any(|(n, v)| n == "content-type" && v == "application/yaml");
        match expected {
            Value::String(expected) if is_yaml => {
                self.bound.value("", &yaml(expected), &yaml(&text), &mut self.findings);
            }
            Value::String(expected) => {
                if !self.bound.text(expected, &text) {
                    self.findings.differ(format!("body: recorded {expected:?}, ours {text:?}"));
                }
            }
            expected => match serde_json::from_str::<Value>(&text) {
                Ok(found) => self.bound.value("", expected, &found, &mut self.findings),
                Err(_) => self.findings.differ(format!("body: recorded {expected}, ours {text:?}")),
            },
        }
    }

    /// The exact text, or at least the same content.
    fn raw_text(&mut self, expected: &str, reply: &Reply) {
        let text = String::from_utf8_lossy(&reply.body).into_owned();
        let text = without_managed_fields(&text).unwrap_or(text);
        let expected = match without_managed_fields(expected) {
            Some(without) => without,
            None => expected.to_owned(),
        };
        if self.bound.text(&expected, &text) {
            return;
        }
        let parsed = (serde_json::from_str::<Value>(&expected), serde_json::from_str::<Value>(&text));
        let (Ok(a), Ok(b)) = parsed else {
            self.findings.differ(format!("text: recorded {expected:?}, ours {text:?}"));
            return;
        };
        let before = self.findings.differences.len();
        self.bound.value("", &a, &b, &mut self.findings);
        if self.findings.differences.len() == before {
            let sorted = a["apiVersion"].as_str().is_some_and(|v| v.contains('.'));
            if sorted {
                self.findings.differ(format!("text: recorded {expected:?}, ours {text:?}"));
            } else {
                self.findings.explain(scope::FIELD_ORDER);
            }
        }
    }

    fn headers(&mut self, exchange: &Exchange, reply: &Reply) {
        let list = |value: Option<&Value>| -> Vec<String> {
            match value {
                Some(Value::Array(all)) => all.iter().filter_map(|v| v.as_str().map(str::to_owned)).collect(),
                Some(Value::String(one)) => vec![one.clone()],
                _ => Vec::new(),
            }
        };
        for name in ["content-type", "warning", "retry-after", "allow", "location"] {
            let mut expected = list(exchange.response.headers.get(name));
            let mut found: Vec<String> =
                reply.headers.iter().filter(|(n, _)| n == name).map(|(_, v)| v.clone()).collect();
            expected.sort();
            found.sort();
            if expected == found {
                continue;
            }
            if expected == ["application/vnd.kubernetes.protobuf"] && found == ["application/json"] {
                self.findings.explain(scope::PROTOBUF);
                continue;
            }
            self.findings.differ(format!("header {name}: recorded {expected:?}, ours {found:?}"));
        }
    }

    /// Time goes on; then the watches are compared.
    fn finish(&mut self, topic: &str, case: &str) {
        self.controllers_rest();
        let until = self.now + LONGEST;
        while let Some(next) = self.server.next_tick().filter(|t| *t <= until) {
            self.server.tick(next);
        }
        self.collect();
        for open in std::mem::take(&mut self.open) {
            let before = self.findings.differences.len();
            self.stream(&open);
            if self.findings.differences.len() > before
                && let Some(reason) = scope::known(topic, case, open.number)
            {
                self.findings.differences.truncate(before);
                self.findings.explain(reason);
            }
            for difference in &mut self.findings.differences[before..] {
                *difference = format!("{} watch {}: {difference}", open.number, open.exchange.path());
            }
        }
    }

    fn stream(&mut self, open: &Open) {
        let expected = &open.exchange.response;
        let lines = self.lines.remove(&open.id).unwrap_or_default();
        let ended = lines.last() == Some(&Line::End);
        let by_server = expected.ended.as_deref() == Some("by the server");
        if expected.lines.is_some() && ended != by_server {
            let after = expected.ended_after_s;
            self.findings
                .differ(format!("end of the stream by the server: recorded {by_server} ({after:?}), ours {ended}"));
        }
        let found: Vec<Value> = lines
            .iter()
            .filter_map(|line| match line {
                Line::Event(event) => serde_json::from_slice(event.text()).ok(),
                Line::End => None,
            })
            .filter(counts)
            .collect();
        let one = expected.body.iter().filter(|b| b.is_object()).cloned().collect();
        let recorded: Vec<Value> = expected.lines.clone().unwrap_or(one);
        let recorded: Vec<Value> = recorded.into_iter().filter(counts).collect();
        if recorded.len() != found.len() {
            let names = |events: &[Value]| -> Vec<String> {
                events.iter().map(|e| format!("{} {}", e["type"], e["object"]["metadata"]["name"])).collect()
            };
            self.findings.differ(format!("events: recorded {:?}, ours {:?}", names(&recorded), names(&found)));
        }
        for (i, (a, b)) in recorded.iter().zip(&found).enumerate() {
            self.bound.value(&format!("[{i}]"), a, b, &mut self.findings);
        }
    }
}

/// Number and moment of bookmarks vary; only the one that ends the initial events is certain.
fn counts(event: &Value) -> bool {
    event["type"] != "BOOKMARK" || event["object"]["metadata"]["annotations"]["k8s.io/initial-events-end"] == "true"
}
