//! The kubelets of one cluster: takes pods that are bound to its nodes through their phases, by orders to whoever runs
//! containers and by what that one tells, and writes their status as kubelets do.
//! Must not know how containers run, nor what they are for.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};

use super::container::{Change, Order, PodEvent};
use super::object::{delete, deleting, list, number, put, text, uid, version};
use super::pod_status::{self, End, Facts, Run, State};
use super::resource::Resource;
use super::writes::Writes;
use super::{WorldEvent, WorldRequest};
use crate::api::{Kind, Time, Uid};

/// A pod that could not be started for want of something is tried again after this time.
const START_AGAIN: Duration = Duration::from_secs(2);
/// First pause before a container is started again the second time; doubled each time.
const CRASH_BACK_OFF: Duration = Duration::from_secs(10);
/// The longest such pause.
const LONGEST_BACK_OFF: Duration = Duration::from_mins(5);

/// One pod on one of the nodes.
#[derive(Debug)]
struct Held {
    pod: Arc<Value>,
    init: Vec<Run>,
    main: Vec<Run>,
    ip: String,
    host_ip: String,
    start: Time,
    /// Least grace with which an end was ordered, in seconds.
    stop: Option<i64>,
    /// Nothing of it runs any more, by word of whoever ran it.
    gone: bool,
    /// Was ordered and not refused since.
    ordered: bool,
    /// Order it again then.
    again: Option<Time>,
    /// Its object no longer exists.
    deleted: bool,
}

/// The kubelets of one cluster.
#[derive(Debug)]
pub struct Kubelet {
    /// Node name → its address.
    nodes: BTreeMap<String, String>,
    /// Second octet of pod addresses: each cluster has its own.
    network: u8,
    next_ip: u32,
    held: BTreeMap<String, Held>,
    dirty: BTreeSet<String>,
    orders: VecDeque<Order>,
    writes: Writes,
}

impl Kubelet {
    /// `network` tells the pod addresses of clusters apart.
    pub fn new(network: u8) -> Self {
        Self {
            nodes: BTreeMap::new(),
            network,
            next_ip: 1,
            held: BTreeMap::new(),
            dirty: BTreeSet::new(),
            orders: VecDeque::new(),
            writes: Writes::default(),
        }
    }

    /// A node of this cluster exists. Its address follows from the order of the names' appearance.
    pub fn node(&mut self, name: &str) {
        let at = self.nodes.len() + 1;
        let ip = format!("192.168.{}.{}", self.network, at % 250 + 1);
        self.nodes.entry(name.to_owned()).or_insert(ip);
    }

    /// The orders since the last call.
    pub fn take_orders(&mut self) -> Vec<Order> {
        self.orders.drain(..).collect()
    }

    /// A pod that is held here.
    pub fn pod(&self, uid: &str) -> Option<&Arc<Value>> {
        self.held.get(uid).map(|h| &h.pod)
    }

    /// Takes in what concerns pods.
    pub fn handle(&mut self, event: &WorldEvent, now: Time) -> Vec<WorldRequest> {
        match event {
            WorldEvent::Applied(resource, pod) if resource.kind == "Pod" => self.applied(pod, now),
            WorldEvent::Deleted(resource, pod) if resource.kind == "Pod" => {
                let id = uid(pod);
                self.writes.gone(id);
                if let Some(held) = self.held.get_mut(id) {
                    held.deleted = true;
                    self.dirty.insert(id.to_owned());
                }
            }
            WorldEvent::Answered(id, reply) => {
                if let Some(done) = self.writes.answered(*id, reply, now) {
                    self.dirty.insert(done.key);
                }
            }
            WorldEvent::Tick => {
                let rested = self.writes.rested(now);
                self.dirty.extend(rested);
                let again = self.held.iter().filter(|(_, h)| h.again.is_some_and(|at| at <= now));
                self.dirty.extend(again.map(|(id, _)| id.clone()));
            }
            _ => {}
        }
        self.work(now)
    }

    /// Takes in what happened to containers.
    pub fn told(&mut self, event: &PodEvent, now: Time) -> Vec<WorldRequest> {
        let id = event.uid.to_string();
        if let Some(held) = self.held.get_mut(&id) {
            let restart = held.told(event);
            if let Some((container, after)) = restart {
                self.orders.push_back(Order::Restart { uid: event.uid.clone(), container, after });
            }
            self.dirty.insert(id);
        }
        self.work(now)
    }

    /// When time alone leads to something.
    pub fn next_tick(&self) -> Option<Time> {
        self.held.values().filter_map(|h| h.again).chain(self.writes.next_at()).min()
    }

    fn applied(&mut self, pod: &Arc<Value>, now: Time) {
        let id = uid(pod).to_owned();
        self.writes.seen(&id, version(pod));
        if let Some(held) = self.held.get_mut(&id) {
            held.pod = pod.clone();
        } else {
            let finished = matches!(text(pod, "/status/phase"), "Succeeded" | "Failed");
            let Some(host_ip) = self.nodes.get(text(pod, "/spec/nodeName")) else { return };
            if finished && !deleting(pod) {
                return;
            }
            let ip = format!("10.{}.{}.{}", self.network, self.next_ip / 250, self.next_ip % 250 + 2);
            self.next_ip += 1;
            self.held.insert(id.clone(), Held::new(pod, ip, host_ip.clone(), now));
        }
        self.dirty.insert(id);
    }

    fn work(&mut self, now: Time) -> Vec<WorldRequest> {
        let mut out = Vec::new();
        for id in std::mem::take(&mut self.dirty) {
            self.look(&id, now, &mut out);
        }
        out
    }

    fn look(&mut self, id: &str, now: Time, out: &mut Vec<WorldRequest>) {
        let Some(held) = self.held.get_mut(id) else { return };
        held.order(now, &mut self.orders);
        if held.deleted && held.gone {
            self.held.remove(id);
            return;
        }
        if held.deleted || self.writes.busy(id, now) {
            return;
        }
        let facts = held.facts();
        let phase = pod_status::phase(&held.pod, &facts);
        // What ended because its pod was deleted has failed, unless it ended well.
        let phase = if held.gone && !matches!(phase, "Succeeded" | "Failed") { "Failed" } else { phase };
        let target = Resource::of(Kind::Pod).path_of(&held.pod);
        let status = pod_status::status(&held.pod, &facts, phase, now);
        if held.pod.get("status") != Some(&status) {
            let mut body = (*held.pod).clone();
            body["status"] = status;
            out.push(self.writes.send(id, put(format!("{target}/status"), &body)));
        } else if held.gone
            && deleting(&held.pod)
            && number(&held.pod, "/metadata/deletionGracePeriodSeconds") != Some(0)
        {
            out.push(self.writes.send(id, delete(target, id, json!({"gracePeriodSeconds": 0}))));
        }
    }
}

impl Held {
    fn new(pod: &Arc<Value>, ip: String, host_ip: String, now: Time) -> Self {
        let has_init = !list(pod, "/spec/initContainers").is_empty();
        let reason = if has_init { "PodInitializing" } else { "ContainerCreating" };
        let runs = |pointer: &str| list(pod, pointer).iter().map(|c| Run::new(c, reason)).collect();
        Self {
            init: runs("/spec/initContainers"),
            main: runs("/spec/containers"),
            pod: pod.clone(),
            ip,
            host_ip,
            start: now,
            stop: None,
            gone: false,
            ordered: false,
            again: Some(now),
            deleted: false,
        }
    }

    fn facts(&self) -> Facts<'_> {
        let policy = text(&self.pod, "/spec/restartPolicy");
        Facts {
            init: &self.init,
            main: &self.main,
            restart_policy: if policy.is_empty() { "Always" } else { policy },
            host_ip: &self.host_ip,
            ip: &self.ip,
            start: self.start,
        }
    }

    /// Starts it, or ends it, if that was not ordered yet.
    fn order(&mut self, now: Time, orders: &mut VecDeque<Order>) {
        let id = Uid::from(uid(&self.pod));
        if self.deleted || deleting(&self.pod) {
            self.again = None;
            if !self.ordered {
                self.gone = true;
                return;
            }
            let grace =
                if self.deleted { 0 } else { number(&self.pod, "/metadata/deletionGracePeriodSeconds").unwrap_or(30) };
            if !self.gone && self.stop.is_none_or(|before| grace < before) {
                self.stop = Some(grace);
                orders.push_back(Order::Stop { uid: id, grace: Duration::from_secs(grace.max(0).unsigned_abs()) });
            }
        } else if self.again.is_some_and(|at| at <= now) {
            self.again = None;
            self.ordered = true;
            let (pod, ip, host_ip) = (self.pod.clone(), self.ip.clone(), self.host_ip.clone());
            orders.push_back(Order::Start { pod, ip, host_ip });
        }
    }

    /// Takes in an event; the container that is to be started again, if any, and after what time.
    fn told(&mut self, event: &PodEvent) -> Option<(String, Duration)> {
        let at = event.at;
        match &event.change {
            Change::Refused { reason, message, again } => {
                self.ordered = false;
                self.again = again.then_some(at + START_AGAIN);
                for run in self.main.iter_mut().filter(|r| r.id.is_empty()) {
                    run.state = State::Waiting { reason: reason.clone(), message: message.clone() };
                }
            }
            Change::Running { container, container_id } => {
                if let Some(run) = self.run(container) {
                    if let State::Terminated(end) = &run.state {
                        run.last = Some(end.clone());
                    }
                    // A run that had an end before this start is a repetition.
                    run.restarts = if run.last.is_some() { run.restarts + 1 } else { 0 };
                    run.state = State::Running { since: at };
                    run.id.clone_from(container_id);
                }
            }
            Change::Started { container } => {
                if let Some(run) = self.run(container) {
                    run.started = true;
                }
            }
            Change::Ready { container, ready } => {
                if let Some(run) = self.run(container) {
                    run.ready = *ready;
                }
            }
            Change::Terminated { container, exit_code, reason, message } => {
                return self.ended(container, *exit_code, reason, message, at);
            }
            Change::Unhealthy { .. } => {}
            Change::Gone => self.all_ended(at),
        }
        None
    }

    fn run(&mut self, container: &str) -> Option<&mut Run> {
        self.init.iter_mut().chain(&mut self.main).find(|r| r.name == container)
    }

    fn ended(
        &mut self,
        container: &str,
        exit_code: i32,
        reason: &str,
        message: &str,
        at: Time,
    ) -> Option<(String, Duration)> {
        let policy = text(&self.pod, "/spec/restartPolicy").to_owned();
        let is_init = self.init.iter().any(|r| r.name == container);
        let sidecar = is_init && pod_status::is_sidecar(&self.pod, container);
        let stopping = self.stop.is_some() || deleting(&self.pod);
        let run = self.run(container)?;
        let started = if let State::Running { since } = run.state { since } else { at };
        let end = End { exit_code, reason: reason.to_owned(), message: message.to_owned(), started, finished: at };
        // An init container that has done its work counts as ready.
        run.ready = is_init && !sidecar && exit_code == 0;
        run.started = false;
        run.state = State::Terminated(end.clone());
        let again = match policy.as_str() {
            "Never" => sidecar,
            "OnFailure" => exit_code != 0 || sidecar,
            _ => !is_init || exit_code != 0 || sidecar,
        };
        if !again || stopping {
            return None;
        }
        let after = match run.restarts {
            0 => Duration::ZERO,
            n => (CRASH_BACK_OFF * 2_u32.pow((n - 1).min(5))).min(LONGEST_BACK_OFF),
        };
        if !after.is_zero() {
            run.last = Some(end);
            let message = format!("back-off {}s restarting failed container={container}", after.as_secs());
            run.state = State::Waiting { reason: "CrashLoopBackOff".to_owned(), message };
        }
        Some((container.to_owned(), after))
    }

    /// Containers about which nothing was told before the pod's end ended with it.
    fn all_ended(&mut self, at: Time) {
        self.gone = true;
        for run in self.init.iter_mut().chain(&mut self.main) {
            if let State::Running { since } = run.state {
                run.state = State::Terminated(End {
                    exit_code: 137,
                    reason: "Error".to_owned(),
                    message: String::new(),
                    started: since,
                    finished: at,
                });
            }
            run.ready = false;
            run.started = false;
        }
    }
}
