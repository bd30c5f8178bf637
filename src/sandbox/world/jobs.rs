//! Kubernetes' Job controller for jobs without an index: pods up to completions and parallelism, counted once each under
//! the tracking finalizer, back-off, deadline, and conditions as recorded.
//! Must not know what the pods do.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};

use super::object::{
    condition, controller_uid, delete, deleting, fnv, has_finalizer, list, merge, name, namespace, number, post, put,
    suffix, text, uid, version,
};
use super::resource::Resource;
use super::writes::Writes;
use super::{Surrounding, WorldEvent, WorldRequest};
use crate::api::{Kind, Time};

const TRACKING: &str = "batch.kubernetes.io/job-tracking";
/// Pause after the first failed pod; doubled with each.
const BACK_OFF: Duration = Duration::from_secs(10);
/// Pause after a pod could not be made.
const REFUSED: Duration = Duration::from_secs(1);
const LONGEST_BACK_OFF: Duration = Duration::from_mins(10);

/// The Job controller of one API server.
#[derive(Debug)]
pub struct Jobs {
    watches: [Arc<Resource>; 2],
    synced: usize,
    /// By UID.
    known: BTreeMap<String, Arc<Value>>,
    /// Pods that a Job controls, by UID.
    pods: BTreeMap<String, Arc<Value>>,
    /// Pods made for a job so far, seen or not: their names follow from it.
    made: BTreeMap<String, u64>,
    /// Names of pods that were ordered and not seen yet, by job.
    expected: BTreeMap<String, BTreeSet<String>>,
    /// When a job's last pod failed.
    failed_at: BTreeMap<String, Time>,
    dirty: BTreeSet<String>,
    again: BTreeMap<String, Time>,
    /// No pod is made for these jobs until then: one was refused.
    refused: BTreeMap<String, Time>,
    writes: Writes,
}

impl Default for Jobs {
    fn default() -> Self {
        Self {
            watches: [Kind::Pod, Kind::Job].map(Resource::of),
            synced: 0,
            known: BTreeMap::new(),
            pods: BTreeMap::new(),
            made: BTreeMap::new(),
            expected: BTreeMap::new(),
            failed_at: BTreeMap::new(),
            dirty: BTreeSet::new(),
            again: BTreeMap::new(),
            refused: BTreeMap::new(),
            writes: Writes::default(),
        }
    }
}

impl Surrounding for Jobs {
    fn name(&self) -> &'static str {
        "job-controller"
    }

    fn watches(&self) -> &[Arc<Resource>] {
        &self.watches
    }

    fn handle(&mut self, event: &WorldEvent, now: Time) -> Vec<WorldRequest> {
        match event {
            WorldEvent::Applied(resource, object) if resource.kind == "Job" => {
                self.writes.seen(uid(object), version(object));
                self.known.insert(uid(object).to_owned(), object.clone());
                self.dirty.insert(uid(object).to_owned());
            }
            WorldEvent::Deleted(resource, object) if resource.kind == "Job" => {
                let id = uid(object);
                self.writes.gone(id);
                self.known.remove(id);
                for map in [&mut self.again, &mut self.failed_at, &mut self.refused] {
                    map.remove(id);
                }
                self.made.remove(id);
                self.expected.remove(id);
                self.dirty.insert(id.to_owned());
            }
            WorldEvent::Applied(_, pod) => self.pod(pod),
            WorldEvent::Deleted(_, pod) => {
                self.writes.gone(uid(pod));
                self.pods.remove(uid(pod));
                self.dirty.insert(controller_uid(pod).to_owned());
            }
            WorldEvent::Synced(_) => self.synced += 1,
            WorldEvent::Answered(id, reply) => {
                let Some(done) = self.writes.answered(*id, reply, now) else { return Vec::new() };
                // A pod that could not be made is no longer expected; one that exists already will be seen.
                if let Some((job, pod)) = done.key.split_once(' ') {
                    if !reply.is_success() && reply.status != 409 {
                        self.expected.entry(job.to_owned()).or_default().remove(pod);
                        self.refused.insert(job.to_owned(), now + REFUSED);
                    }
                    self.dirty.insert(job.to_owned());
                } else {
                    let of_pod = self.pods.get(&done.key).map(|p| controller_uid(p).to_owned());
                    self.dirty.insert(of_pod.unwrap_or(done.key));
                }
            }
            WorldEvent::Tick => {
                self.writes.rested(now);
                self.again.retain(|_, at| *at > now);
                self.dirty.extend(self.known.keys().cloned());
            }
        }
        if self.synced < self.watches.len() {
            return Vec::new();
        }
        let mut out = Vec::new();
        for job in std::mem::take(&mut self.dirty) {
            self.look(&job, now, &mut out);
        }
        out
    }

    fn next_tick(&self) -> Option<Time> {
        self.again.values().copied().chain(self.writes.next_at()).min()
    }
}

impl Jobs {
    fn pod(&mut self, pod: &Arc<Value>) {
        let job = controller_uid(pod).to_owned();
        let by_job =
            list(pod, "/metadata/ownerReferences").iter().any(|r| text(r, "/uid") == job && text(r, "/kind") == "Job");
        if job.is_empty() || !by_job {
            return;
        }
        self.writes.seen(uid(pod), version(pod));
        if let Some(expected) = self.expected.get_mut(&job) {
            expected.remove(name(pod));
        }
        self.pods.insert(uid(pod).to_owned(), pod.clone());
        self.dirty.insert(job);
    }

    fn look(&mut self, id: &str, now: Time, out: &mut Vec<WorldRequest>) {
        let pods: Vec<Arc<Value>> = self.pods.values().filter(|p| controller_uid(p) == id).cloned().collect();
        let Some(job) = self.known.get(id).cloned() else {
            // Nobody counts them any more.
            self.release(pods.iter(), now, out);
            return;
        };
        if deleting(&job) {
            self.release(pods.iter(), now, out);
            return;
        }
        if self.writes.busy(id, now) {
            return;
        }
        let view = View::of(&job, &pods, now);
        if view.newly_failed {
            self.failed_at.insert(id.to_owned(), now);
        }
        if job.get("status") != Some(&view.status) {
            let mut body = (*job).clone();
            body["status"] = view.status.clone();
            out.push(self.writes.send(id, put(format!("{}/status", Resource::of(Kind::Job).path_of(&job)), &body)));
            return;
        }
        let counted = list(&view.status, "/uncountedTerminatedPods/succeeded")
            .iter()
            .chain(list(&view.status, "/uncountedTerminatedPods/failed"));
        let counted: BTreeSet<&str> = counted.filter_map(Value::as_str).collect();
        self.release(pods.iter().filter(|p| view.over || counted.contains(uid(p))), now, out);
        if view.stops {
            for pod in pods.iter().filter(|p| !finished(p) && !deleting(p)) {
                if !self.writes.busy(uid(pod), now) {
                    let target = Resource::of(Kind::Pod).path_of(pod);
                    out.push(
                        self.writes
                            .send(uid(pod), delete(target, uid(pod), json!({"propagationPolicy": "Background"}))),
                    );
                }
            }
        } else if !view.over {
            self.make_pods(&job, &view, now, out);
        }
        if let Some(at) = view.deadline.filter(|at| *at > now && !view.over) {
            self.again.insert(id.to_owned(), at);
        }
    }

    /// Takes the tracking finalizer from pods.
    fn release<'a>(&mut self, pods: impl Iterator<Item = &'a Arc<Value>>, now: Time, out: &mut Vec<WorldRequest>) {
        for pod in pods.filter(|p| has_finalizer(p, TRACKING)) {
            if self.writes.busy(uid(pod), now) {
                continue;
            }
            let rest: Vec<&Value> = list(pod, "/metadata/finalizers").iter().filter(|f| *f != TRACKING).collect();
            let rest = if rest.is_empty() { Value::Null } else { json!(rest) };
            let patch = json!({"metadata": {
                "uid": uid(pod), "resourceVersion": text(pod, "/metadata/resourceVersion"), "finalizers": rest,
            }});
            out.push(self.writes.send(uid(pod), merge(Resource::of(Kind::Pod).path_of(pod), &patch)));
        }
    }

    fn make_pods(&mut self, job: &Value, view: &View, now: Time, out: &mut Vec<WorldRequest>) {
        let id = uid(job);
        let expected = self.expected.entry(id.to_owned()).or_default();
        let missing = view.wanted - view.active - expected.len() as i64;
        if missing <= 0 {
            return;
        }
        if let Some(due) = self.refused.get(id).filter(|due| **due > now) {
            self.again.insert(id.to_owned(), *due);
            return;
        }
        if let Some(failed) = self.failed_at.get(id) {
            let doubled = 2_u32.pow(u32::try_from(view.failed.clamp(1, 7) - 1).unwrap_or(0));
            let due = *failed + (BACK_OFF * doubled).min(LONGEST_BACK_OFF);
            if now < due {
                self.again.insert(id.to_owned(), due);
                return;
            }
        }
        for _ in 0..missing {
            let made = self.made.entry(id.to_owned()).or_insert(view.existing);
            *made += 1;
            let pod_name = format!("{}-{}", short(name(job)), suffix(fnv(&[id, &made.to_string()])));
            self.expected.entry(id.to_owned()).or_default().insert(pod_name.clone());
            let pod = pod_of(job, &pod_name);
            let target = Resource::of(Kind::Pod).collection(namespace(job));
            out.push(self.writes.send(&format!("{id} {pod_name}"), post(target, &pod)));
        }
    }
}

/// What a job's status should be, and what follows from it.
struct View {
    status: Value,
    /// Pods that should be active.
    wanted: i64,
    active: i64,
    failed: i64,
    /// Pods that exist, whatever their state.
    existing: u64,
    /// No pod may go on.
    stops: bool,
    /// Complete or Failed.
    over: bool,
    newly_failed: bool,
    deadline: Option<Time>,
}

impl View {
    fn of(job: &Value, pods: &[Arc<Value>], now: Time) -> Self {
        let mut status = job.get("status").cloned().unwrap_or_else(|| json!({}));
        let over = ["Complete", "Failed"].iter().any(|c| holds(&status, c));
        let suspended = job.pointer("/spec/suspend").and_then(Value::as_bool).unwrap_or(false);
        let completions = number(job, "/spec/completions").unwrap_or(1);
        let mut view = Self {
            wanted: 0,
            active: pods.iter().filter(|p| !finished(p) && !deleting(p)).count() as i64,
            failed: number(&status, "/failed").unwrap_or(0),
            existing: pods.len() as u64,
            stops: suspended,
            over,
            newly_failed: false,
            deadline: None,
            status: Value::Null,
        };
        if over {
            view.status = status;
            return view;
        }
        if text(&status, "/startTime").is_empty() && !suspended {
            status["startTime"] = json!(now.seconds_text());
        }
        let (succeeded, failed) = view.count(&mut status, pods);
        view.failed = failed;
        if text(job, "/spec/completionMode") == "Indexed" {
            fail(&mut status, "NotSupported", "completionMode Indexed is not supported by the sandbox", now);
        } else {
            view.judge(job, &mut status, succeeded, completions, now);
        }
        let ending = holds(&status, "SuccessCriteriaMet") || holds(&status, "FailureTarget");
        view.stops |= ending;
        let parallelism = number(job, "/spec/parallelism").unwrap_or(1);
        view.wanted = if view.stops { 0 } else { parallelism.min(completions - succeeded).max(0) };
        let terminating = pods.iter().filter(|p| !finished(p) && deleting(p)).count();
        let ready = pods.iter().filter(|p| condition(p, "Ready").is_some_and(|c| text(c, "/status") == "True")).count();
        set(&mut status, "active", view.active);
        status["terminating"] = json!(terminating);
        status["ready"] = json!(ready);
        // The last word comes when the first stands, every pod is counted and none is left to end.
        let quiet = view.active == 0 && terminating == 0 && uncounted(&status) == 0;
        let stood = |kind| condition(job, kind).is_some_and(|c| text(c, "/status") == "True");
        if quiet && stood("SuccessCriteriaMet") {
            repeat(&mut status, "SuccessCriteriaMet", "Complete", now);
            status["completionTime"] = json!(now.seconds_text());
        } else if quiet && stood("FailureTarget") {
            repeat(&mut status, "FailureTarget", "Failed", now);
        }
        view.status = status;
        view
    }

    /// Moves pods from finished to uncounted, and from uncounted to the sums when their finalizer is gone.
    fn count(&mut self, status: &mut Value, pods: &[Arc<Value>]) -> (i64, i64) {
        let mut sums = [number(status, "/succeeded").unwrap_or(0), number(status, "/failed").unwrap_or(0)];
        let mut lists = [Vec::new(), Vec::new()];
        for (at, field) in ["succeeded", "failed"].iter().enumerate() {
            for id in list(status, &format!("/uncountedTerminatedPods/{field}")) {
                let held = pods.iter().any(|p| *id == uid(p) && has_finalizer(p, TRACKING));
                if held { lists[at].push(id.clone()) } else { sums[at] += 1 }
            }
        }
        for pod in pods.iter().filter(|p| has_finalizer(p, TRACKING) && (finished(p) || deleting(p))) {
            let at = usize::from(text(pod, "/status/phase") != "Succeeded");
            let known = lists.iter().flatten().any(|id| *id == uid(pod));
            if !known {
                lists[at].push(json!(uid(pod)));
                self.newly_failed |= at == 1;
            }
        }
        let [succeeded, failed] = lists;
        let waiting = [succeeded.len() as i64, failed.len() as i64];
        let mut uncounted = json!({});
        for (field, ids) in [("succeeded", succeeded), ("failed", failed)] {
            if !ids.is_empty() {
                uncounted[field] = json!(ids);
            }
        }
        status["uncountedTerminatedPods"] = uncounted;
        set(status, "succeeded", sums[0]);
        set(status, "failed", sums[1]);
        (sums[0] + waiting[0], sums[1] + waiting[1])
    }

    fn judge(&mut self, job: &Value, status: &mut Value, succeeded: i64, completions: i64, now: Time) {
        let started = Time::parse(text(status, "/startTime"));
        let seconds = number(job, "/spec/activeDeadlineSeconds").map(|s| Duration::from_secs(s.max(0).unsigned_abs()));
        self.deadline = started.zip(seconds).map(|(at, s)| at + s);
        if holds(status, "SuccessCriteriaMet") || holds(status, "FailureTarget") {
            return;
        }
        if succeeded >= completions {
            let new =
                word("SuccessCriteriaMet", "CompletionsReached", "Reached expected number of succeeded pods", now);
            push(status, new);
        } else if self.failed > number(job, "/spec/backoffLimit").unwrap_or(6) {
            fail(status, "BackoffLimitExceeded", "Job has reached the specified backoff limit", now);
        } else if self.deadline.is_some_and(|at| at <= now) {
            fail(status, "DeadlineExceeded", "Job was active longer than specified deadline", now);
        }
    }
}

fn fail(status: &mut Value, reason: &str, message: &str, now: Time) {
    if !holds(status, "FailureTarget") {
        push(status, word("FailureTarget", reason, message, now));
    }
}

fn word(kind: &str, reason: &str, message: &str, now: Time) -> Value {
    let at = now.seconds_text();
    json!({
        "type": kind, "status": "True", "reason": reason, "message": message, "lastProbeTime": at, "lastTransitionTime": at,
    })
}

/// The same words once more under another type.
fn repeat(status: &mut Value, from: &str, to: &str, now: Time) {
    let Some(old) = list(status, "/conditions").iter().find(|c| text(c, "/type") == from) else { return };
    let new = word(to, text(old, "/reason"), text(old, "/message"), now);
    push(status, new);
}

fn push(status: &mut Value, new: Value) {
    match status.get_mut("conditions").and_then(Value::as_array_mut) {
        Some(conditions) => conditions.push(new),
        None => status["conditions"] = json!([new]),
    }
}

fn holds(status: &Value, kind: &str) -> bool {
    list(status, "/conditions").iter().any(|c| text(c, "/type") == kind && text(c, "/status") == "True")
}

fn uncounted(status: &Value) -> usize {
    ["succeeded", "failed"].iter().map(|f| list(status, &format!("/uncountedTerminatedPods/{f}")).len()).sum()
}

/// Counts of zero are left out, as a real server does.
fn set(status: &mut Value, field: &str, count: i64) {
    if count > 0 {
        status[field] = json!(count);
    } else if let Some(status) = status.as_object_mut() {
        status.remove(field);
    }
}

fn finished(pod: &Value) -> bool {
    matches!(text(pod, "/status/phase"), "Succeeded" | "Failed")
}

/// Names of pods are at most 63 characters.
fn short(job: &str) -> &str {
    job.get(..57).unwrap_or(job)
}

fn pod_of(job: &Value, pod_name: &str) -> Value {
    let mut metadata = job.pointer("/spec/template/metadata").cloned().unwrap_or_else(|| json!({}));
    metadata["name"] = json!(pod_name);
    metadata["generateName"] = json!(format!("{}-", short(name(job))));
    metadata["namespace"] = json!(namespace(job));
    metadata["finalizers"] = json!([TRACKING]);
    for label in ["batch.kubernetes.io/controller-uid", "controller-uid"] {
        metadata["labels"][label] = json!(uid(job));
    }
    for label in ["batch.kubernetes.io/job-name", "job-name"] {
        metadata["labels"][label] = json!(name(job));
    }
    metadata["ownerReferences"] = json!([{
        "apiVersion": "batch/v1", "kind": "Job", "name": name(job), "uid": uid(job), "controller": true,
        "blockOwnerDeletion": true,
    }]);
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": job.pointer("/spec/template/spec")})
}
