//! Replays what a real Volcano did, where a scenario asks only for what this scheduler has, and compares phases, bound
//! pods, refusals, and states and allocations of queues.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::time::Duration;

use serde_json::{Value, json};

use super::{Configuration, QueuePlugin, Settings, Volcano};
use crate::api::Time;
use crate::api::wire::{Method, Reply, Request};
use crate::sandbox::apiserver::{Answer, ApiServer, Options};
use crate::sandbox::world::object::{self, deleting, entry, has, list, name, post, put, text, uid};
use crate::sandbox::world::settle::settle;
use crate::sandbox::world::surroundings::Surroundings;
use crate::sandbox::world::tests::upstream_crd;

/// Scenarios with something that this scheduler does not have or where the recorded answer comes from a part that is not
/// here, with the reason.
const NOT_OURS: &[(&str, &str)] =
    &[("queue-admission-rules", "only about admission"), ("namespace-quota", "plugin resourcequota")];

struct Replay {
    server: ApiServer,
    around: Option<Surroundings>,
    now: Time,
    how: Configuration,
    never_run: Vec<String>,
    hold: Vec<String>,
    probes: usize,
    differences: Vec<String>,
    unstable: BTreeSet<String>,
    /// Name of each plugin set → text of the configuration.
    plugin_sets: Value,
}

/// The configuration, if it names only what is here.
fn configuration(text: &str) -> Option<Configuration> {
    let other = ["reclaim", "preempt", "resourcequota", "enableHierarchy"];
    if other.iter().any(|w| text.lines().any(|l| l.contains(w) && !l.contains("enablePreemptable"))) {
        return None;
    }
    let overcommit = text.contains("name: overcommit").then(|| {
        let factor = text.lines().find_map(|l| l.trim().strip_prefix("overcommit-factor: "));
        factor.map_or(1.2, |f| f.parse().unwrap())
    });
    let tier_end = text.match_indices("- plugins:").nth(1).map_or(text.len(), |(at, _)| at);
    Some(Configuration {
        queue_plugin: if text.contains("name: capacity") { QueuePlugin::Capacity } else { QueuePlugin::Proportion },
        overcommit,
        overcommit_first: text.find("name: overcommit").is_some_and(|at| at < tier_end),
        enqueue: text.lines().next().unwrap_or("").contains("enqueue"),
    })
}

fn matches(pattern: &str, name: &str) -> bool {
    pattern.strip_suffix('*').map_or(pattern == name, |prefix| name.starts_with(prefix))
}

impl Replay {
    fn new(how: Configuration, scenario: &Value, plugin_sets: &Value) -> Self {
        let mut server = ApiServer::new(Options::default());
        let now = Time(1_795_000_000_000);
        for crd in ["scheduling.volcano.sh_queues.yaml", "scheduling.volcano.sh_podgroups.yaml"] {
            server.handle(&post("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", &upstream_crd(crd)), now);
        }
        let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}});
        server.handle(&post("/api/v1/namespaces/default/serviceaccounts", &account), now);
        let mut new = Self {
            server,
            around: None,
            now,
            how,
            never_run: Vec::new(),
            hold: Vec::new(),
            probes: 0,
            differences: Vec::new(),
            plugin_sets: plugin_sets.clone(),
            unstable: list(scenario, "/unstable").iter().filter_map(Value::as_str).map(str::to_owned).collect(),
        };
        new.kubelet(&scenario["inputs"]["kubelet"]);
        new
    }

    fn kubelet(&mut self, behaviour: &Value) {
        let names = |field: &str| list(behaviour, field).iter().filter_map(Value::as_str).map(str::to_owned).collect();
        if has(behaviour, "/never_run") {
            self.never_run = names("/never_run");
        }
        if has(behaviour, "/hold_terminating") {
            self.hold = names("/hold_terminating");
        }
    }

    fn start(&mut self) {
        let settings = Settings { period: Duration::from_millis(100), delay: Duration::ZERO, configuration: self.how };
        self.around = Some(Surroundings::new(vec![Box::new(Volcano::new(settings))], self.now));
    }

    fn ask(&mut self, request: &Request) -> Reply {
        match self.server.handle(request, self.now) {
            Answer::Reply(reply) => reply,
            other => panic!("{other:?}"),
        }
    }

    fn must(&mut self, request: &Request) -> Value {
        let reply = self.ask(request);
        let body = object::body(&reply);
        assert!(reply.is_success(), "{} {}: {body}", request.method.as_str(), request.target);
        body
    }

    fn all(&mut self, target: &str) -> Vec<Value> {
        let body = self.must(&Request::get(target));
        list(&body, "/items").to_vec()
    }

    fn collection(object: &Value) -> String {
        let kind = text(object, "/kind");
        let plural =
            if kind == "PriorityClass" { "priorityclasses".to_owned() } else { format!("{}s", kind.to_lowercase()) };
        let version = text(object, "/apiVersion");
        let base = if version.contains('/') { format!("/apis/{version}") } else { format!("/api/{version}") };
        let spaced = matches!(kind, "Pod" | "PodGroup" | "ResourceQuota");
        if spaced { format!("{base}/namespaces/default/{plural}") } else { format!("{base}/{plural}") }
    }

    fn create(&mut self, step: &Value) {
        let object = &step["object"];
        let count = step["replicas"].as_u64();
        for at in 0..count.unwrap_or(1) {
            let mut one = object.clone();
            if count.is_some() {
                one["metadata"]["name"] = json!(format!("{}-{at}", name(object)));
            }
            self.must(&post(Self::collection(&one), &one));
            if text(&one, "/kind") == "Node" {
                // What admission puts on a new node was taken away before each recording.
                let taints = one.pointer("/spec/taints").cloned().unwrap_or(Value::Null);
                let path = format!("{}/{}", Self::collection(&one), name(&one));
                self.must(&object::merge(path, &json!({"spec": {"taints": taints}})));
            }
        }
    }

    /// Lets everything happen that follows: sessions, and what the stand-in for the kubelet does.
    fn settle(&mut self, seconds: u64) {
        let end = self.now + Duration::from_secs(seconds);
        loop {
            if let Some(around) = &mut self.around {
                settle(&mut self.server, around, self.now, &mut |_, _| {});
            }
            if self.kubelets() {
                continue;
            }
            let next = self.around.as_ref().and_then(Surroundings::next_at).filter(|at| *at <= end);
            let Some(next) = next else { break };
            self.now = next.max(self.now);
        }
        self.now = end;
    }

    fn kubelets(&mut self) -> bool {
        let mut acted = false;
        for pod in self.all("/api/v1/pods") {
            let path = format!("/api/v1/namespaces/default/pods/{}", name(&pod));
            if deleting(&pod) {
                if !self.hold.iter().any(|p| matches(p, name(&pod))) {
                    self.must(&object::delete(path, uid(&pod), json!({"gracePeriodSeconds": 0})));
                    acted = true;
                }
            } else if has(&pod, "/spec/nodeName")
                && text(&pod, "/status/phase") == "Pending"
                && !self.never_run.iter().any(|p| matches(p, name(&pod)))
            {
                self.report(&pod, "Running");
                acted = true;
            }
        }
        acted
    }

    fn report(&mut self, pod: &Value, phase: &str) {
        let mut body = pod.clone();
        body["status"]["phase"] = json!(phase);
        self.must(&put(format!("/api/v1/namespaces/default/pods/{}/status", name(pod)), &body));
    }

    fn step(&mut self, step: &Value, observations: &mut std::slice::Iter<Value>, probes: &mut std::slice::Iter<Value>) {
        match text(step, "/op") {
            "create" => self.create(step),
            "settle" => self.settle(4),
            "hold" => self.settle(step["seconds"].as_u64().unwrap_or(5)),
            "observe" => {
                let wanted = observations.next().unwrap().clone();
                self.compare(&format!("observation {}", text(&wanted, "/label")), &wanted);
            }
            "probe" => {
                let wanted = probes.next().unwrap().clone();
                self.probe(step, &wanted);
            }
            "patch" => {
                let target = Self::path(step);
                let sub = text(step, "/subresource");
                let target = if sub.is_empty() { target } else { format!("{target}/{sub}") };
                self.must(&object::merge(target, &step["patch"]));
            }
            "delete" => {
                for target in Self::paths(step) {
                    self.must(&Request::new(Method::Delete, target, "", [].into()));
                }
            }
            "pod_phase" => {
                let wanted: Vec<&str> = list(step, "/names").iter().filter_map(Value::as_str).collect();
                // `count` of a gang's bound pods, whichever: a random choice in the recording, too.
                let gang = text(step, "/bound_of");
                let of_gang = |p: &Value| {
                    !gang.is_empty()
                        && has(p, "/spec/nodeName")
                        && entry(p, "/metadata/annotations", "scheduling.k8s.io/group-name") == gang
                };
                let count = step["count"].as_u64().map_or(usize::MAX, |n| n as usize);
                let chosen = |p: &Value| wanted.iter().any(|w| matches(w, name(p))) || of_gang(p);
                let pods: Vec<Value> = self.all("/api/v1/pods").into_iter().filter(chosen).take(count).collect();
                for pod in pods {
                    self.report(&pod, text(step, "/phase"));
                }
            }
            "scheduler_config" => {
                let text = self.plugin_sets[text(step, "/plugin_set")].as_str().unwrap();
                self.how = configuration(text).unwrap();
                let how = self.how;
                self.around.as_mut().unwrap().find_mut::<Volcano>().unwrap().configure(how);
            }
            "scheduler" if text(step, "/action") == "stop" => self.around = None,
            "scheduler" => self.start(),
            "queue_command" => {
                let path = format!("/apis/scheduling.volcano.sh/v1beta1/queues/{}", text(step, "/queue"));
                let state = if text(step, "/action") == "CloseQueue" { "Closing" } else { "Open" };
                self.must(&object::merge(format!("{path}/status"), &json!({"status": {"state": state}})));
            }
            "kubelet" => self.kubelet(step),
            other => panic!("step {other}"),
        }
    }

    fn path(step: &Value) -> String {
        Self::paths(step).remove(0)
    }

    fn paths(step: &Value) -> Vec<String> {
        let kind = text(step, "/kind");
        let group = match kind {
            "Pod" | "Node" => "v1",
            _ => "scheduling.volcano.sh/v1beta1",
        };
        let collection = Self::collection(&json!({"kind": kind, "apiVersion": group}));
        let names = list(step, "/names").iter().filter_map(Value::as_str);
        let one = Some(text(step, "/name")).filter(|n| !n.is_empty());
        names.chain(one).map(|n| format!("{collection}/{n}")).collect()
    }

    fn probe(&mut self, step: &Value, wanted: &Value) {
        self.probes += 1;
        let label = text(step, "/name");
        let fresh = format!("probe-{}", self.probes);
        let mut group = step["podgroup"].clone();
        let old = name(&group).to_owned();
        group["metadata"]["name"] = json!(fresh);
        self.must(&post(Self::collection(&group), &group));
        for pods in list(step, "/pods") {
            let mut pods = pods.clone();
            let annotation = &mut pods["object"]["metadata"]["annotations"]["scheduling.k8s.io/group-name"];
            if *annotation == json!(old) {
                *annotation = json!(fresh);
            }
            self.create(&pods);
        }
        self.settle(4);
        let path = format!("{}/{fresh}", Self::collection(&group));
        let phase = self.must(&Request::get(path.clone()))["status"]["phase"].as_str().unwrap_or("").to_owned();
        if phase != text(wanted, "/phase") {
            self.differ(format!("probe {label}: phase {phase:?}, recorded {}", wanted["phase"]));
        }
        let pods = self.all("/api/v1/pods");
        let mine: Vec<_> = pods
            .iter()
            .filter(|p| entry(p, "/metadata/annotations", "scheduling.k8s.io/group-name") == fresh)
            .collect();
        let bound = mine.iter().filter(|p| has(p, "/spec/nodeName")).count();
        if json!(bound) != *wanted.get("pods_bound").unwrap_or(&json!(0)) {
            self.differ(format!("probe {label}: {bound} bound, recorded {}", wanted["pods_bound"]));
        }
        let mine: Vec<String> = mine.iter().map(|p| name(p).to_owned()).collect();
        let refusals = self.refusals(&fresh);
        let recorded: BTreeSet<String> =
            list(wanted, "/refusals").iter().filter_map(Value::as_str).map(prefix).collect();
        if refusals != recorded {
            self.differ(format!("probe {label}: refusals {refusals:?}, recorded {recorded:?}"));
        }
        self.must(&Request::new(Method::Delete, path, "", [].into()));
        for pod in mine {
            self.must(&Request::new(Method::Delete, format!("/api/v1/namespaces/default/pods/{pod}"), "", [].into()));
        }
        self.settle(4);
    }

    fn refusals(&mut self, group: &str) -> BTreeSet<String> {
        let events = self.all("/api/v1/namespaces/default/events");
        let about = events.iter().filter(|e| text(e, "/involvedObject/name") == group && text(e, "/type") == "Normal");
        about.map(|e| prefix(text(e, "/message"))).collect()
    }

    fn differ(&mut self, what: String) {
        self.differences.push(what);
    }

    fn compare(&mut self, label: &str, wanted: &Value) {
        let pods = self.all("/api/v1/pods");
        let neutral = |group: &str| {
            let of = pods.iter().find(|p| group == format!("podgroup-{}", uid(p)));
            of.map_or_else(|| group.to_owned(), |p| format!("podgroup-<uid of pod {}>", name(p)))
        };
        let groups = self.all("/apis/scheduling.volcano.sh/v1beta1/podgroups");
        let mut mine: BTreeMap<String, Value> = BTreeMap::new();
        for group in &groups {
            let of: Vec<_> = pods
                .iter()
                .filter(|p| entry(p, "/metadata/annotations", "scheduling.k8s.io/group-name") == name(group))
                .collect();
            let bound = of.iter().filter(|p| has(p, "/spec/nodeName")).count();
            let phase = text(group, "/status/phase");
            mine.insert(neutral(name(group)), json!({"phase": phase, "bound": bound, "pods": of.len()}));
        }
        let recorded = wanted["podgroups"].as_object().cloned().unwrap_or_default();
        let recorded: BTreeMap<String, Value> = recorded
            .into_iter()
            .map(|(n, g)| {
                let seen = &g["pods_seen"];
                let phase = text(&g, "/phase").to_owned();
                (n, json!({"phase": phase, "bound": seen["bound"], "pods": seen["pods"]}))
            })
            .collect();
        let mut said = Vec::new();
        // Which of several single pods of one age are let in is chance.
        let single = |of: &BTreeMap<String, Value>| {
            let mut all: Vec<String> =
                of.iter().filter(|(n, _)| n.starts_with("podgroup-")).map(|(_, v)| v.to_string()).collect();
            all.sort();
            all
        };
        if single(&mine) != single(&recorded) {
            said.push(format!("{label}: single pods: {:?}, recorded {:?}", single(&mine), single(&recorded)));
        }
        let names = mine.keys().chain(recorded.keys()).filter(|n| !n.starts_with("podgroup-"));
        let names: BTreeSet<&String> = names.collect();
        for group in names {
            let (a, b) = (mine.get(group), recorded.get(group));
            let loose = self
                .unstable
                .iter()
                .any(|u| u.contains(group.as_str()) && (u.contains("phase") || u.contains("pods_seen")));
            if a != b && !loose {
                said.push(format!("{label}: {group}: {}, recorded {}", shown(a), shown(b)));
            }
        }
        for (queue, recorded) in wanted["queues"].as_object().into_iter().flatten() {
            let path = format!("/apis/scheduling.volcano.sh/v1beta1/queues/{queue}");
            let reply = self.ask(&Request::get(path));
            let status = object::body(&reply)["status"].clone();
            for field in ["state", "allocated"] {
                let loose = self.unstable.iter().any(|u| u.contains(queue.as_str()) && u.contains(field));
                if status[field] != recorded["status"][field] && !loose {
                    said.push(format!(
                        "{label}: queue {queue} {field}: {}, recorded {}",
                        status[field], recorded["status"][field]
                    ));
                }
            }
        }
        self.differences.extend(said);
    }
}

fn shown(value: Option<&Value>) -> String {
    value.map_or_else(|| "absent".to_owned(), Value::to_string)
}

/// Only the first words of a refusal are compared.
fn prefix(message: &str) -> String {
    message.split(':').next().unwrap_or("").to_owned()
}

fn supported(scenario: &Value) -> Result<Configuration, String> {
    if let Some((_, why)) = NOT_OURS.iter().find(|(n, _)| *n == text(scenario, "/name")) {
        return Err((*why).to_owned());
    }
    let Some(how) = configuration(text(scenario, "/scheduler_configuration")) else {
        return Err(format!("plugin set {}", text(scenario, "/plugin_set")));
    };
    let all = list(scenario, "/inputs/initial").iter().chain(list(scenario, "/steps"));
    for step in all {
        if has(step, "/expect") {
            return Err("admission by webhooks".to_owned());
        }
        if text(step, "/op") == "controllers" {
            return Err("controllers paused".to_owned());
        }
        if has(step, "/object/spec/parent") || text(step, "/object/kind") == "ResourceQuota" {
            return Err("queue tree or quota".to_owned());
        }
    }
    Ok(how)
}

fn replay(scenario: &Value, how: Configuration, plugin_sets: &Value) -> Vec<String> {
    let mut replay = Replay::new(how, scenario, plugin_sets);
    for step in list(scenario, "/inputs/initial") {
        replay.create(step);
    }
    replay.start();
    replay.settle(4);
    let mut observations = list(scenario, "/outcome/observations").iter();
    let mut probes = list(scenario, "/outcome/probes").iter();
    for step in list(scenario, "/steps") {
        replay.step(step, &mut observations, &mut probes);
    }
    replay.settle(4);
    replay.compare("final", &scenario["outcome"]["final"]);
    replay.differences
}

#[test]
fn recorded_scenarios_with_flat_queues_end_as_recorded() {
    let shared = std::env::var("RAYFLEET_SHARED")
        .unwrap_or_else(|_| concat!(env!("CARGO_MANIFEST_DIR"), "/../shared").to_owned());
    let dir = format!("{shared}/volcano-recordings");
    let mut files: Vec<_> = std::fs::read_dir(&dir)
        .unwrap_or_else(|e| panic!("{dir} is needed, set RAYFLEET_SHARED: {e}"))
        .map(|f| f.unwrap().path())
        .filter(|p| p.extension().is_some_and(|e| e == "json") && !p.ends_with("index.json"))
        .collect();
    files.sort();
    let read =
        |path: &std::path::Path| -> Value { serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap() };
    let plugin_sets = read(&std::path::Path::new(&dir).join("index.json"))["plugin_sets"].clone();
    let only = std::env::var("RAYFLEET_ONLY").unwrap_or_default();
    let (mut equal, mut different, mut not_ours, mut report) = (0, 0, 0, String::new());
    for file in files {
        let scenario = read(&file);
        let label = text(&scenario, "/name").to_owned();
        if !label.contains(&only) {
            continue;
        }
        match supported(&scenario) {
            Err(_) => not_ours += 1,
            Ok(how) => {
                let outcome = std::panic::catch_unwind(|| replay(&scenario, how, &plugin_sets));
                let differences = outcome.unwrap_or_else(|e| {
                    vec![format!("panic: {}", e.downcast_ref::<String>().map_or("?", String::as_str))]
                });
                if differences.is_empty() {
                    equal += 1;
                } else {
                    different += 1;
                    let _ = writeln!(report, "{label}");
                    for difference in differences.iter().take(6) {
                        let _ = writeln!(report, "    {difference}");
                    }
                }
            }
        }
    }
    #[expect(clippy::print_stdout, reason = "the count is the point of the test")]
    {
        println!("{report}volcano: {equal} equal, {different} different, {not_ours} ask for what is not here");
    }
    assert!(different == 0, "{report}");
}
