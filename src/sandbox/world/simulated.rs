//! Containers that only seem to run: carries out a kubelet's orders on virtual time. Ray heads get a stand-in dashboard,
//! submitters submit through it once and follow their job, the rest runs or ends as its restart policy suggests.
//! Must not know the API: pods come in orders, Services are told.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};

use super::container::{Change, Order, PodEvent};
pub use super::dashboard::JobTimes;
use super::dashboard::{Dashboard, draw};
use super::object::{entry, list, namespace, place, selects, text, uid};
use crate::api::wire::Method;
use crate::api::{Time, Uid};

/// How long things take, in milliseconds; each pod draws its own from the ranges by its UID.
#[derive(Clone, Copy, Debug)]
pub struct Profile {
    /// From the order to the first container that runs.
    pub start_ms: (u64, u64),
    /// An init container that waits for nobody.
    pub init_ms: (u64, u64),
    /// From running to ready.
    pub ready_ms: (u64, u64),
    /// A container that is to end and of which nothing is known.
    pub run_ms: (u64, u64),
    /// From the order to stop until nothing runs; never longer than the grace.
    pub stop_ms: (u64, u64),
    /// Jobs.
    pub jobs: JobTimes,
}

impl Default for Profile {
    fn default() -> Self {
        Self {
            start_ms: (200, 1200),
            init_ms: (100, 500),
            ready_ms: (500, 3000),
            run_ms: (1000, 5000),
            stop_ms: (100, 1500),
            jobs: JobTimes::default(),
        }
    }
}

/// How often a container that waits for another pod looks again: the scripts sleep 2 s.
const LOOK_AGAIN: Duration = Duration::from_secs(2);
/// How often the follower of a job notices that its head is gone.
const FOLLOW: Duration = Duration::from_secs(5);

/// What a container is for.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Role {
    /// `ray start`: runs until it is stopped.
    RayNode,
    /// Submits a job and follows it.
    Submitter { service: String, id: String, entrypoint: String },
    /// Waits until the head of its cluster is up.
    WaitsForHead,
    /// Anything else.
    Other { exit_code: i32 },
}

#[derive(Clone, Debug)]
enum Step {
    StartInit(usize),
    EndInit(usize),
    StartMain,
    Ready(String),
    Submit(String),
    Follow(String, String),
    End(String, i32),
    Restart(String),
    Stopped,
}

#[derive(Debug)]
struct Pod {
    object: Arc<Value>,
    ip: String,
    running: BTreeMap<String, u32>,
    starts: u32,
}

/// All simulated pods of one cluster.
#[derive(Debug)]
pub struct Simulated {
    profile: Profile,
    /// What its heads answer.
    pub dashboard: Dashboard,
    pods: BTreeMap<String, Pod>,
    /// `namespace/name` of a Service → its selector.
    services: BTreeMap<String, Value>,
    queue: BTreeMap<(Time, u64), (String, Step)>,
    number: u64,
    events: VecDeque<PodEvent>,
}

impl Simulated {
    /// With these times.
    pub fn new(profile: Profile) -> Self {
        Self {
            profile,
            dashboard: Dashboard::new(profile.jobs),
            pods: BTreeMap::new(),
            services: BTreeMap::new(),
            queue: BTreeMap::new(),
            number: 0,
            events: VecDeque::new(),
        }
    }

    /// A Service exists.
    pub fn service(&mut self, service: &Value) {
        self.services.insert(place(service), service.pointer("/spec/selector").cloned().unwrap_or(Value::Null));
    }

    /// A Service is gone.
    pub fn service_gone(&mut self, service: &Value) {
        self.services.remove(&place(service));
    }

    /// Carries out an order.
    pub fn order(&mut self, order: &Order, now: Time) {
        match order {
            Order::Start { pod, ip, .. } => {
                let id = uid(pod).to_owned();
                let after = draw(self.profile.start_ms, &["start", &id]);
                let first =
                    if list(pod, "/spec/initContainers").is_empty() { Step::StartMain } else { Step::StartInit(0) };
                self.pods.insert(
                    id.clone(),
                    Pod { object: pod.clone(), ip: ip.clone(), running: BTreeMap::new(), starts: 0 },
                );
                self.later(&id, first, now + after);
            }
            Order::Restart { uid, container, after } => {
                self.later(&uid.to_string(), Step::Restart(container.clone()), now + *after);
            }
            Order::Stop { uid, grace } => {
                let id = uid.to_string();
                let after = draw(self.profile.stop_ms, &["stop", &id]).min(*grace);
                self.later(&id, Step::Stopped, now + after);
            }
        }
    }

    /// A container ends by itself: for faults.
    pub fn crash(&mut self, uid: &str, container: &str, exit_code: i32, now: Time) {
        self.later(uid, Step::End(container.to_owned(), exit_code), now);
    }

    /// When something happens next.
    pub fn next_at(&self) -> Option<Time> {
        self.queue.keys().next().map(|(at, _)| *at)
    }

    /// Everything that has happened by now.
    pub fn happened(&mut self, now: Time) -> Vec<PodEvent> {
        while let Some(first) = self.queue.first_entry() {
            let at = first.key().0;
            if at > now {
                break;
            }
            let (id, step) = first.remove();
            self.step(&id, step, at);
        }
        self.events.drain(..).collect()
    }

    /// The ready head behind a Service, and whether the Service exists.
    pub fn head_of(&self, namespace: &str, service: &str) -> Option<&str> {
        let selector = self.services.get(&format!("{namespace}/{service}"))?;
        let behind = |pod: &Pod| {
            super::object::namespace(&pod.object) == namespace
                && selects(selector, pod.object.pointer("/metadata/labels"))
        };
        let mut up = self.pods.iter().filter(|(id, pod)| self.dashboard.is_up(id) && behind(pod));
        up.next().map(|(id, _)| id.as_str())
    }

    /// The head with a dashboard at this address, if there is one.
    pub fn head_at(&self, ip: &str) -> Option<&str> {
        let at = |(id, pod): &(&String, &Pod)| pod.ip == ip && self.dashboard.is_up(id);
        self.pods.iter().find(at).map(|(id, _)| id.as_str())
    }

    /// What a container's log says; `None` if the pod is not here.
    pub fn log(&self, namespace: &str, pod: &str, container: &str, now: Time) -> Option<String> {
        let wanted = format!("{namespace}/{pod}");
        let (own, found) = self.pods.iter().find(|(_, p)| place(&p.object) == wanted)?;
        let role = role(&found.object, named(&found.object, container)?);
        Some(match role {
            Role::Submitter { service, id, .. } => Some(own.as_str())
                .filter(|_| service.is_empty())
                .or_else(|| self.head_of(namespace, &service))
                .and_then(|head| self.dashboard.job_log(head, &id, now))
                .unwrap_or_else(|| "Waiting for Ray Dashboard\n".to_owned()),
            Role::RayNode => "(simulated) Ray runtime started.\n".to_owned(),
            _ => "(simulated)\n".to_owned(),
        })
    }

    fn later(&mut self, id: &str, step: Step, at: Time) {
        self.number += 1;
        self.queue.insert((at, self.number), (id.to_owned(), step));
    }

    fn tell(&mut self, id: &str, change: Change, at: Time) {
        self.events.push_back(PodEvent { uid: Uid::from(id), at, change });
    }

    fn step(&mut self, id: &str, step: Step, now: Time) {
        let Some(pod) = self.pods.get(id) else { return };
        let object = pod.object.clone();
        match step {
            Step::StartInit(at) => {
                let Some(init) = list(&object, "/spec/initContainers").get(at) else { return };
                self.start(id, text(init, "/name"), now);
                let after = draw(self.profile.init_ms, &["init", id, text(init, "/name")]);
                // One that goes on beside the others holds nobody up.
                let next =
                    if text(init, "/restartPolicy") == "Always" { after_init(&object, at) } else { Step::EndInit(at) };
                self.later(id, next, now + after);
            }
            Step::EndInit(at) => {
                let Some(init) = list(&object, "/spec/initContainers").get(at) else { return };
                if role(&object, init) == Role::WaitsForHead && !self.cluster_is_up(&object) {
                    self.later(id, Step::EndInit(at), now + LOOK_AGAIN);
                    return;
                }
                self.end(id, text(init, "/name"), 0, now);
                let next = after_init(&object, at);
                self.later(id, next, now);
            }
            Step::StartMain => {
                for container in list(&object, "/spec/containers") {
                    self.start_main(id, &object, container, now);
                }
            }
            Step::Restart(container) => {
                if let Some(at) =
                    list(&object, "/spec/initContainers").iter().position(|c| text(c, "/name") == container)
                {
                    self.later(id, Step::StartInit(at), now);
                } else if let Some(container) = named(&object, &container) {
                    self.start_main(id, &object, container, now);
                }
            }
            Step::Ready(container) => {
                if pod.running.contains_key(&container) {
                    let is_head = entry(&object, "/metadata/labels", "ray.io/node-type") == "head";
                    let node = named(&object, &container).map(|c| role(&object, c));
                    if is_head && node == Some(Role::RayNode) {
                        self.dashboard.head_up(id);
                    }
                    self.tell(id, Change::Started { container: container.clone() }, now);
                    self.tell(id, Change::Ready { container, ready: true }, now);
                }
            }
            Step::Submit(container) => self.submit(id, &object, &container, now),
            Step::Follow(container, head) => self.follow(id, &object, &container, &head, now),
            Step::End(container, exit_code) => self.end(id, &container, exit_code, now),
            Step::Stopped => {
                for container in pod.running.keys().cloned().collect::<Vec<_>>() {
                    self.end(id, &container, 143, now);
                }
                self.dashboard.head_gone(id);
                self.pods.remove(id);
                self.tell(id, Change::Gone, now);
            }
        }
    }

    fn start(&mut self, id: &str, container: &str, now: Time) {
        let Some(pod) = self.pods.get_mut(id) else { return };
        pod.starts += 1;
        pod.running.insert(container.to_owned(), pod.starts);
        let container_id = format!("simulated://{id}-{}", pod.starts);
        self.tell(id, Change::Running { container: container.to_owned(), container_id }, now);
    }

    fn start_main(&mut self, id: &str, pod: &Value, container: &Value, now: Time) {
        let name = text(container, "/name").to_owned();
        self.start(id, &name, now);
        let ready = now + draw(self.profile.ready_ms, &["ready", id, &name]);
        let ends = text(pod, "/spec/restartPolicy");
        match role(pod, container) {
            Role::Submitter { .. } => {
                self.later(id, Step::Ready(name.clone()), now);
                self.later(id, Step::Submit(name), ready);
            }
            // What stands beside Ray serves it as long as it runs: the autoscaler, collectors of logs.
            Role::Other { exit_code } if (ends == "Never" || ends == "OnFailure") && !beside_ray(pod) => {
                self.later(id, Step::Ready(name.clone()), now);
                let over = now + draw(self.profile.run_ms, &["run", id, &name]);
                self.later(id, Step::End(name, exit_code), over);
            }
            _ => self.later(id, Step::Ready(name), ready),
        }
    }

    fn end(&mut self, id: &str, container: &str, exit_code: i32, now: Time) {
        let Some(pod) = self.pods.get_mut(id) else { return };
        if pod.running.remove(container).is_none() {
            return;
        }
        let object = pod.object.clone();
        if named(&object, container).is_some_and(|c| role(&object, c) == Role::RayNode) {
            self.dashboard.head_gone(id);
        }
        let reason = if exit_code == 0 { "Completed" } else { "Error" }.to_owned();
        let change = Change::Terminated { container: container.to_owned(), exit_code, reason, message: String::new() };
        self.tell(id, change, now);
    }

    /// Whether the head of a pod's Ray cluster answers.
    fn cluster_is_up(&self, pod: &Value) -> bool {
        let cluster = entry(pod, "/metadata/labels", "ray.io/cluster");
        self.pods.iter().any(|(id, other)| {
            self.dashboard.is_up(id)
                && namespace(&other.object) == namespace(pod)
                && entry(&other.object, "/metadata/labels", "ray.io/cluster") == cluster
        })
    }

    /// What the submitter's script does: wait for the dashboard, submit unless the job is known, follow.
    fn submit(&mut self, id: &str, pod: &Value, container: &str, now: Time) {
        let runs = self.pods.get(id).is_some_and(|p| p.running.contains_key(container));
        let Some(found) = named(pod, container).filter(|_| runs) else { return };
        let Role::Submitter { service, id: job, entrypoint } = role(pod, found) else { return };
        let head = match &*service {
            "" => Some(id).filter(|id| self.dashboard.is_up(id)),
            service => self.head_of(namespace(pod), service),
        };
        let Some(head) = head.map(str::to_owned) else {
            self.later(id, Step::Submit(container.to_owned()), now + LOOK_AGAIN);
            return;
        };
        let known = self.dashboard.job_ends(&head, &job).is_some();
        if !known {
            let order = json!({"entrypoint": entrypoint, "submission_id": job}).to_string();
            let taken = self.dashboard.answer(&head, Method::Post, "/api/jobs/", order.as_bytes(), now);
            if !taken.is_some_and(|reply| reply.is_success()) {
                self.end(id, container, 1, now);
                return;
            }
        }
        self.follow(id, pod, container, &head, now);
    }

    fn follow(&mut self, id: &str, pod: &Value, container: &str, head: &str, now: Time) {
        let runs = self.pods.get(id).is_some_and(|p| p.running.contains_key(container));
        let Some(found) = named(pod, container).filter(|_| runs) else { return };
        let Role::Submitter { id: job, service, .. } = role(pod, found) else { return };
        match self.dashboard.job_ends(head, &job) {
            // Waiting for the job ends as the job does; following the log ends well whatever became of it.
            Some(ends) if ends <= now => {
                let well = !service.is_empty() || self.dashboard.job_succeeded(head, &job, now);
                self.end(id, container, i32::from(!well), now);
            }
            Some(ends) => {
                let again = Step::Follow(container.to_owned(), head.to_owned());
                self.later(id, again, ends.min(now + FOLLOW));
            }
            None => self.end(id, container, 1, now),
        }
    }
}

fn named<'a>(pod: &'a Value, name: &str) -> Option<&'a Value> {
    let all = list(pod, "/spec/initContainers").iter().chain(list(pod, "/spec/containers"));
    all.into_iter().find(|c| text(c, "/name") == name)
}

fn after_init(pod: &Value, at: usize) -> Step {
    if at + 1 < list(pod, "/spec/initContainers").len() { Step::StartInit(at + 1) } else { Step::StartMain }
}

/// Whether the pod is a node of a Ray cluster.
fn beside_ray(pod: &Value) -> bool {
    matches!(entry(pod, "/metadata/labels", "ray.io/node-type"), "head" | "worker")
}

/// From the container's command line and its pod's labels.
fn role(pod: &Value, container: &Value) -> Role {
    let words = |pointer| list(container, pointer).iter().filter_map(Value::as_str).collect::<Vec<_>>();
    let line = [words("/command"), words("/args")].concat().join(" ");
    if line.contains("ray job submit")
        && let Some(submitter) = submitter(&line)
    {
        return submitter;
    }
    if line.contains("ray start") {
        return Role::RayNode;
    }
    if text(container, "/name") == "wait-gcs-ready" && !entry(pod, "/metadata/labels", "ray.io/cluster").is_empty() {
        return Role::WaitsForHead;
    }
    let code =
        line.find("exit ").and_then(|at| line[at + 5..].split(|c: char| !c.is_ascii_digit()).next()?.parse().ok());
    Role::Other { exit_code: code.unwrap_or(0) }
}

/// `ray job submit --address http://<service>.… --submission-id <id> … -- <entrypoint>` within a script.
fn submitter(line: &str) -> Option<Role> {
    let call = &line[line.find("ray job submit")?..];
    let (options, entrypoint) = call.split_once(" -- ")?;
    let option = |flag: &str| {
        let rest = options[options.find(flag)? + flag.len()..].trim_start_matches([' ', '=']);
        rest.split_whitespace().next()
    };
    let address = option("--address")?;
    let host = address.split_once("://").map_or(address, |(_, rest)| rest);
    // Beside its head a submitter goes by no Service.
    let own = host.starts_with("127.0.0.1:");
    let service = if own { String::new() } else { host.split(['.', ':', '/']).next()?.to_owned() };
    let id = option("--submission-id")?.to_owned();
    let entrypoint = entrypoint.split(" ; fi").next().unwrap_or(entrypoint).trim().trim_end_matches(" ;").to_owned();
    Some(Role::Submitter { service, id, entrypoint })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_submitter_is_known_by_its_script() {
        let script = "until false ; do sleep 2 ; done ; if ! ray job status --address http://t-x-head-svc.ns.svc:8265 t-1 ; \
                      then ray job submit --address http://t-x-head-svc.ns.svc:8265 --no-wait --submission-id t-1 -- python -c \
                      \"print(6)\" ; fi ; ray job logs --address http://t-x-head-svc.ns.svc:8265 --follow t-1";
        let container = json!({"name": "s", "command": ["/bin/bash", "-ce", "--"], "args": [script]});
        let expected = Role::Submitter {
            service: "t-x-head-svc".into(),
            id: "t-1".into(),
            entrypoint: "python -c \"print(6)\"".into(),
        };
        assert_eq!(role(&json!({}), &container), expected);
    }
}
