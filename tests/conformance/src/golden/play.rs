//! Plays one case: step by step, what happens in the surroundings and what the controller does about it.
//! Must not know what was recorded.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use anyhow::{Result, bail, ensure};
use kit::site::collection;
use rayfleet::api::{Kind, Time};
use rayfleet::plan::validate::NOT_BUILT;
use serde_json::{Value, json};

use super::cases::{Case, NAMESPACE, What, is_ray};
use super::heard::{self, Heard};
use super::node;
use super::recording::{Phase, Recording, Round};
use super::stage::{MEMBER, Stage};

/// How often it is looked whether something is due.
const STEP: Duration = Duration::from_millis(50);
/// The controller has been quiet for so long: the next thing happens.
const QUIET: Duration = Duration::from_millis(800);
/// The same, once many pods run.
const QUIET_OF_MANY: Duration = Duration::from_millis(500);
/// How many are many.
const MANY: u32 = 14;
/// A submitter ends so long after its job's end was told.
const SUBMITTER_ENDS: Duration = Duration::from_millis(500);

/// What came of a case.
pub(super) enum Played {
    /// It was played to its end.
    Whole(Recording),
    /// The controller refused it as not built: which words.
    NotBuilt(String),
}

/// Plays a case. An error: the manifest or a step cannot be carried out at all.
pub(super) fn play(case: &Case) -> Result<Played> {
    let more = case.steps.iter().filter_map(|step| match &step.what {
        What::ApplyMore(objects) => Some(objects.as_slice()),
        _ => None,
    });
    let all: Vec<Value> = case.objects.iter().chain(more.flatten()).cloned().collect();
    let mut player = Player::new(Stage::new(&all, &case.simulation)?);
    for object in case.objects.iter().filter(|object| !is_ray(object)) {
        player.apply(object)?;
    }
    player.stage.pass(Duration::from_secs(3));
    player.stage.world.keep_exchanges();
    let mut phases = Vec::new();
    for step in &case.steps {
        player.begin();
        match &step.what {
            What::Apply => player.apply_all(case)?,
            What::ApplyMore(objects) => {
                player.stimulus("apply".to_owned());
                for object in objects {
                    player.apply(object)?;
                }
            }
            What::Patch(kind, name, subresource, patch) => {
                player.stimulus(format!("patch {kind}"));
                player.patch(&all, kind, name, subresource.as_deref(), patch)?;
            }
            What::DeletePods(labels) => player.delete_pods(labels),
            What::Simulate(set) => {
                player.stimulus(format!("dashboard: {}", spaced(set)));
                player.set(set)?;
            }
            What::RegisterJob(id) => {
                player.stimulus(format!("user submits Ray job {id}"));
                player.stage.dashboard().register(id, "");
            }
            What::Delete => player.delete_all(),
        }
        player.until_quiet(step.quiet, step.limit, matches!(step.what, What::Delete));
        phases.push(player.end(matches!(step.what, What::Delete)));
        if let Some(words) = &player.not_built {
            return Ok(Played::NotBuilt(words.clone()));
        }
    }
    Ok(Played::Whole(Recording { phases, unstable: Vec::new() }))
}

/// A JSON map as recordings print it.
fn spaced(set: &Value) -> String {
    set.to_string().replace("\":", "\": ").replace(",\"", ", \"")
}

struct Player {
    stage: Stage,
    /// Exchanges that were taken up so far.
    taken: usize,
    phase: Phase,
    /// When something last happened or was written.
    active: Time,
    /// When something new was last written.
    written: Time,
    begun: Time,
    /// Ray objects that were applied: kind, name and path.
    applied: Vec<String>,
    /// Objects that the manifest brought, beside Ray's: they are no one's doing.
    brought: BTreeSet<(String, String)>,
    /// Questions that were listed.
    asked: BTreeSet<String>,
    /// Last write to each object, times apart.
    last: BTreeMap<String, String>,
    not_built: Option<String>,
}

impl Player {
    fn new(stage: Stage) -> Self {
        let now = stage.world.now;
        Self {
            stage,
            taken: 0,
            phase: Phase::default(),
            active: now,
            written: now,
            begun: now,
            applied: Vec::new(),
            brought: BTreeSet::new(),
            asked: BTreeSet::new(),
            last: BTreeMap::new(),
            not_built: None,
        }
    }

    fn now(&self) -> Time {
        self.stage.world.now
    }

    fn begin(&mut self) {
        self.phase = Phase::default();
        (self.begun, self.active, self.written) = (self.now(), self.now(), self.now());
    }

    /// Something happens now: a round begins.
    fn stimulus(&mut self, words: String) {
        self.listen();
        self.phase.rounds.push(Round { stimulus: words, ..Round::default() });
        self.active = self.now();
    }

    fn apply(&mut self, object: &Value) -> Result<()> {
        let path = collection(&self.stage.world.site(MEMBER).server, object);
        let reply = self.stage.apply(object);
        let answer: Value = serde_json::from_slice(&reply.body).unwrap_or_default();
        if is_ray(object) {
            if reply.is_success() {
                let name = answer["metadata"]["name"].as_str().unwrap_or_default();
                self.applied.push(format!("{path}/{name}"));
            } else {
                self.phase.api_server_messages.push(answer["message"].as_str().unwrap_or_default().to_owned());
            }
            return Ok(());
        }
        ensure!(reply.is_success(), "{} is refused: {}", object["metadata"]["name"], answer["message"]);
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        self.brought.insert((text(&object["kind"]), text(&object["metadata"]["name"])));
        Ok(())
    }

    fn apply_all(&mut self, case: &Case) -> Result<()> {
        let rays: Vec<&Value> = case.objects.iter().filter(|object| is_ray(object)).collect();
        if !case.one_by_one {
            self.stimulus("apply".to_owned());
            return rays.into_iter().try_for_each(|object| self.apply(object));
        }
        for (at, object) in rays.iter().enumerate() {
            let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
            self.stimulus(format!("apply {} {}", text(&object["kind"]), text(&object["metadata"]["name"])));
            self.apply(object)?;
            if at + 1 < rays.len() {
                while self.next() {}
            }
        }
        Ok(())
    }

    fn patch(&mut self, all: &[Value], kind: &str, name: &str, sub: Option<&str>, patch: &Value) -> Result<()> {
        let of_kind = all.iter().find(|object| object["kind"] == kind);
        let Some(object) = of_kind else { bail!("the manifest has no {kind}") };
        let collection = collection(&self.stage.world.site(MEMBER).server, object);
        let suffix = sub.map_or(String::new(), |sub| format!("/{sub}"));
        let mut patch = patch.clone();
        self.name_pods(&mut patch)?;
        let reply = self.stage.patch(&format!("{collection}/{name}{suffix}"), &patch);
        if !reply.is_success() {
            self.phase.api_server_messages.push(String::from_utf8_lossy(&reply.body).into_owned());
        }
        Ok(())
    }

    /// `{{pod:KEY=VALUE:N}}` in a patch is the name of the pod number N, from 0, of those with this label, by age.
    fn name_pods(&mut self, patch: &mut Value) -> Result<()> {
        match patch {
            Value::String(text) => {
                let Some(wanted) = text.strip_prefix("{{pod:").and_then(|rest| rest.strip_suffix("}}")) else {
                    return Ok(());
                };
                let parts =
                    wanted.rsplit_once(':').and_then(|(label, n)| Some((label.split_once('=')?, n.parse().ok()?)));
                let Some(((key, value), number)) = parts else {
                    bail!("{text} names no pod: {{{{pod:KEY=VALUE:N}}}} does")
                };
                let of_label = |pod: &Value| pod["metadata"]["labels"][key] == value;
                let Some(pod) = self.stage.pods().into_iter().filter(of_label).nth(number) else {
                    bail!("there is no pod for {text}")
                };
                name(&pod).clone_into(text);
            }
            Value::Array(list) => list.iter_mut().try_for_each(|inner| self.name_pods(inner))?,
            Value::Object(map) => map.values_mut().try_for_each(|inner| self.name_pods(inner))?,
            _ => {}
        }
        Ok(())
    }

    fn delete_pods(&mut self, labels: &BTreeMap<String, String>) {
        for pod in self.stage.pods() {
            if labels.iter().all(|(key, value)| pod["metadata"]["labels"][key] == value.as_str()) {
                self.stimulus(format!("deleted: {} pod {}", node::role(&pod), name(&pod)));
                self.stage.delete(&format!("{}/{}", Kind::Pod.collection_path(Some(NAMESPACE)), name(&pod)));
            }
        }
    }

    fn delete_all(&mut self) {
        self.stimulus("delete the applied Ray objects".to_owned());
        for path in std::mem::take(&mut self.applied) {
            self.stage.delete(&path);
        }
    }

    fn set(&mut self, set: &Value) -> Result<()> {
        for (key, value) in set.as_object().into_iter().flatten() {
            match key.as_str() {
                "hold_pods" => self.stage.holds_pods = value == true,
                "dash_fail" => {
                    let status = value.as_u64().and_then(|code| u16::try_from(code).ok());
                    self.stage.dashboard().fails_with = status;
                }
                other => bail!("the surroundings have no setting {other}"),
            }
        }
        Ok(())
    }

    /// Takes up what the controller has sent since the last time.
    fn listen(&mut self) {
        let heard: Vec<(Time, Heard)> = self.stage.world.exchanges()[self.taken..]
            .iter()
            .filter_map(|exchange| Some((exchange.at, heard::of(exchange)?)))
            .collect();
        self.taken = self.stage.world.exchanges().len();
        for (at, heard) in heard {
            match heard {
                Heard::Event(event) => {
                    if event["reason"] == NOT_BUILT {
                        self.not_built = event["note"].as_str().map(str::to_owned);
                    }
                    let key = |e: &Value| {
                        let kept = ["type", "reason", "action", "reportingController"].map(|field| e[field].clone());
                        (e["regarding"].clone(), kept)
                    };
                    if !self.phase.events.iter().any(|there| key(there) == key(&event)) {
                        self.phase.events.push(event);
                    }
                }
                Heard::Ask(ask) => {
                    let is_read = ask["method"] == "GET";
                    if !is_read {
                        (self.active, self.written) = (at, at);
                    }
                    if (!is_read || self.asked.insert(ask.to_string()))
                        && let Some(round) = self.phase.rounds.last_mut()
                    {
                        round.dashboard_requests.push(ask);
                    }
                }
                Heard::Write(write) => {
                    self.active = at;
                    let object = format!("{} {}", write.resource, write.name.as_deref().unwrap_or_default());
                    let text = super::normal::without_times(&serde_json::to_string(&write).unwrap_or_default());
                    let before = self.last.insert(object, text.clone());
                    // A name may be taken again: each creation is one of its own.
                    if write.verb != "create" && before == Some(text) {
                        continue;
                    }
                    self.written = at;
                    if let Some(round) = self.phase.rounds.last_mut() {
                        round.writes.push(write);
                    }
                }
            }
        }
    }

    /// Waits until the controller is quiet, then lets the next thing happen. `false`: nothing was left to happen, and it
    /// was quiet.
    fn next(&mut self) -> bool {
        let quiet = if self.stage.started >= MANY { QUIET_OF_MANY } else { QUIET };
        loop {
            self.stage.pass(STEP);
            self.listen();
            if self.end_submitter() {
                return true;
            }
            if self.now() >= self.active + quiet {
                return self.happen();
            }
            if self.now() >= self.begun + Duration::from_secs(600) {
                return false;
            }
        }
    }

    /// Goes on until nothing new was written for this long, or the phase has lasted for the limit.
    fn until_quiet(&mut self, quiet: Duration, limit: Duration, is_end: bool) {
        loop {
            let happened = if is_end { self.fade() } else { self.next() };
            let over = !happened && self.now() >= self.written.max(self.active) + quiet;
            if over || self.now() >= self.begun + limit {
                return;
            }
        }
    }

    /// The next thing that is due when the controller is quiet.
    fn happen(&mut self) -> bool {
        let pods = self.stage.pods();
        if let Some(pod) = pods.iter().find(|pod| !pod["metadata"]["deletionTimestamp"].is_null()) {
            self.stimulus(format!("removed: terminating {} pod {}", node::role(pod), name(pod)));
            self.stage.remove(pod);
            return true;
        }
        if let Some(route) = self.stage.unanswered_route() {
            let (kind, name) = (route["kind"].as_str().unwrap_or_default().to_lowercase(), name(&route));
            let word = if kind == "gateway" { "programmed" } else { "accepted" };
            self.stimulus(format!("{word}: {kind} {name}"));
            self.stage.accept_route(&route);
            return true;
        }
        let phase = |pod: &&Value, phase: &str| pod["status"]["phase"] == phase;
        if !self.stage.holds_pods
            && let Some(pod) = pods.iter().find(|pod| phase(pod, "Pending"))
        {
            if node::role(pod) == "redis-cleanup" {
                self.stimulus(format!("succeeded: redis-cleanup pod {}", name(pod)));
                self.stage.start(pod);
                self.stage.end(pod, 0);
                return true;
            }
            self.stimulus(format!("running: {} pod {}", node::role(pod), name(pod)));
            self.stage.start(pod);
            return true;
        }
        if self.stage.submitters.as_deref() == Some("Failed")
            && let Some(pod) = pods.iter().find(|pod| phase(pod, "Running") && node::role(pod) == "submitter")
        {
            self.stimulus(format!("failed: submitter pod {}", name(pod)));
            self.stage.end(pod, 1);
            return true;
        }
        false
    }

    /// A submitter whose job's end was told long enough ago ends: a pod well, whatever became of the job; one beside a head
    /// as the job did, if it waits for that.
    fn end_submitter(&mut self) -> bool {
        if self.stage.submitters.is_some() {
            return false;
        }
        let now = self.now();
        for pod in self.stage.pods() {
            let told = self.stage.dashboard().told(node::submission(&pod));
            let Some(state) = told.filter(|(at, _)| now >= *at + SUBMITTER_ENDS).map(|(_, state)| state.to_owned())
            else {
                continue;
            };
            if pod["status"]["phase"] == "Running" && node::role(&pod) == "submitter" {
                self.stimulus(format!("succeeded: submitter pod {}", name(&pod)));
                self.stage.end(&pod, 0);
                return true;
            }
            if node::sidecar_runs(&pod) {
                let code = node::sidecar_code(&pod, &state);
                self.stimulus(format!("submitter container ended with {code}: head pod {}", name(&pod)));
                self.stage.end_sidecar(&pod, code);
                return true;
            }
        }
        false
    }

    /// After the deletion: pods go without being told of, but those that clean up.
    fn fade(&mut self) -> bool {
        self.stage.pass(STEP);
        self.listen();
        if self.now() < self.active + QUIET {
            return false;
        }
        let pods = self.stage.pods();
        if let Some(pod) = pods.iter().find(|pod| !pod["metadata"]["deletionTimestamp"].is_null()) {
            self.stage.remove(pod);
            return true;
        }
        let cleans = |pod: &&Value| node::role(pod) == "redis-cleanup" && pod["status"]["phase"] == "Pending";
        if pods.iter().any(|pod| cleans(&pod)) {
            return self.happen();
        }
        false
    }

    /// The phase, with what is there at its end.
    fn end(&mut self, is_end: bool) -> Phase {
        self.listen();
        let mut phase = std::mem::take(&mut self.phase);
        let there: Vec<Value> =
            self.stage.world.site(MEMBER).objects().filter(|object| self.is_listed(object)).cloned().collect();
        if is_end {
            let short = |object: &Value| json!({ "kind": object["kind"], "name": object["metadata"]["name"] });
            phase.remaining = there.iter().map(short).collect();
        } else {
            phase.objects = there;
        }
        phase
    }

    fn is_listed(&self, object: &Value) -> bool {
        const LISTED: &[&str] = &[
            "Pod",
            "Service",
            "ServiceAccount",
            "Secret",
            "ConfigMap",
            "PersistentVolumeClaim",
            "Job",
            "Ingress",
            "NetworkPolicy",
            "Role",
            "RoleBinding",
            "RayCluster",
            "RayJob",
            "RayService",
            "RayCronJob",
            "PodGroup",
            "Gateway",
            "HTTPRoute",
            "Certificate",
            "Issuer",
            "Workload",
        ];
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let (kind, name) = (text(&object["kind"]), text(&object["metadata"]["name"]));
        let made_by_cluster =
            matches!((kind.as_str(), name.as_str()), ("ServiceAccount", "default") | ("ConfigMap", "kube-root-ca.crt"));
        object["metadata"]["namespace"] == NAMESPACE
            && LISTED.contains(&kind.as_str())
            && !made_by_cluster
            && !self.brought.contains(&(kind, name))
    }
}

fn name(object: &Value) -> &str {
    object["metadata"]["name"].as_str().unwrap_or_default()
}
