//! Facts about the cores, each established against the real core of the API server.

use std::time::Duration;

use serde_json::{Value, json};

use super::collector::Collector;
use super::endpoints::Endpoints;
use super::jobs::Jobs;
use super::namespaces::Namespaces;
use super::nodes::Nodes;
use super::object::{delete, has_finalizer, list, merge, post, put, text, uid};
use super::scheduler::kube::DefaultScheduler;
use super::scheduler::{Settings, Volcano};
use super::settle::settle;
use super::simulated::Profile;
use super::surroundings::Surroundings;
use super::{Surrounding, object};
use crate::api::Time;
use crate::api::wire::{Method, Reply, Request};
use crate::sandbox::apiserver::{Answer, ApiServer, Options};

/// An API server, what surrounds it, and a clock.
pub(super) struct World {
    pub(super) server: ApiServer,
    pub(super) around: Surroundings,
    pub(super) now: Time,
}

/// A CRD as upstream has it.
pub(super) fn upstream_crd(file: &str) -> Value {
    let shared = std::env::var("RAYFLEET_SHARED")
        .unwrap_or_else(|_| concat!(env!("CARGO_MANIFEST_DIR"), "/../shared").to_owned());
    let path = format!("{shared}/upstream-crds/{file}");
    let text = std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{path} is needed, set RAYFLEET_SHARED: {e}"));
    serde_saphyr::from_str(&text).unwrap()
}

impl World {
    pub(super) fn new(cores: Vec<Box<dyn Surrounding>>) -> Self {
        let now = Time(1_795_000_000_000);
        let mut world = Self { server: ApiServer::new(Options::default()), around: Surroundings::new(cores, now), now };
        for crd in ["scheduling.volcano.sh_queues.yaml", "scheduling.volcano.sh_podgroups.yaml"] {
            world.create("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", &upstream_crd(crd));
        }
        world.settle();
        world
    }

    pub(super) fn ask(&mut self, request: &Request) -> Reply {
        match self.server.handle(request, self.now) {
            Answer::Reply(reply) => reply,
            other => panic!("{} {}: {other:?}", request.method.as_str(), request.target),
        }
    }

    pub(super) fn must(&mut self, request: &Request) -> Value {
        let reply = self.ask(request);
        let body = object::body(&reply);
        assert!(reply.is_success(), "{} {}: {body}", request.method.as_str(), request.target);
        body
    }

    pub(super) fn create(&mut self, target: &str, body: &Value) -> Value {
        self.must(&post(target, body))
    }

    pub(super) fn get(&mut self, target: &str) -> Option<Value> {
        let reply = self.ask(&Request::get(target));
        reply.is_success().then(|| object::body(&reply))
    }

    pub(super) fn list(&mut self, target: &str) -> Vec<Value> {
        let body = self.must(&Request::get(target));
        list(&body, "/items").to_vec()
    }

    pub(super) fn settle(&mut self) {
        settle(&mut self.server, &mut self.around, self.now, &mut |_, _| {});
    }

    /// Lets time pass until a condition holds; fails after `seconds`.
    pub(super) fn until(&mut self, what: &str, seconds: u64, mut holds: impl FnMut(&mut Self) -> bool) {
        let end = self.now + Duration::from_secs(seconds);
        loop {
            self.settle();
            if holds(self) {
                return;
            }
            let next = self.around.next_at().filter(|at| *at <= end);
            let Some(next) = next else { panic!("{what}: not within {seconds} s") };
            self.now = next.max(self.now);
        }
    }

    /// Lets time pass.
    pub(super) fn pass(&mut self, seconds: u64) {
        let end = self.now + Duration::from_secs(seconds);
        self.settle();
        while let Some(next) = self.around.next_at().filter(|at| *at <= end) {
            self.now = next.max(self.now);
            self.settle();
        }
        self.now = end;
        self.settle();
    }
}

const MAPS: &str = "/api/v1/namespaces/default/configmaps";

fn owned(name: &str, owner: &Value, block: bool, finalizers: &[&str]) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "finalizers": finalizers, "ownerReferences": [{
        "apiVersion": "v1", "kind": "ConfigMap", "name": object::name(owner), "uid": uid(owner), "controller": true,
        "blockOwnerDeletion": block,
    }]}})
}

fn family() -> (World, Value) {
    let mut world = World::new(vec![Box::new(Collector::default())]);
    let owner = world.create(MAPS, &json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "owner"}}));
    world.create(MAPS, &owned("d1", &owner, true, &[]));
    world.create(MAPS, &owned("d2", &owner, false, &[]));
    world.settle();
    (world, owner)
}

fn names(world: &mut World) -> Vec<String> {
    world.list(MAPS).iter().map(|m| object::name(m).to_owned()).collect()
}

#[test]
fn background_deletion_takes_dependants_afterwards() {
    let (mut world, owner) = family();
    world.must(&delete(format!("{MAPS}/owner"), uid(&owner), json!({"propagationPolicy": "Background"})));
    assert_eq!(names(&mut world), ["d1", "d2"]);
    world.settle();
    assert!(names(&mut world).is_empty());
}

#[test]
fn foreground_deletion_waits_for_a_dependant_that_blocks() {
    let (mut world, owner) = family();
    world.create(MAPS, &owned("slow", &owner, true, &["x.dev/f"]));
    world.settle();
    world.must(&delete(format!("{MAPS}/owner"), uid(&owner), json!({"propagationPolicy": "Foreground"})));
    world.settle();
    assert_eq!(names(&mut world), ["owner", "slow"]);
    world.must(&merge(format!("{MAPS}/slow"), &json!({"metadata": {"finalizers": null}})));
    world.settle();
    assert!(names(&mut world).is_empty());
}

#[test]
fn orphaning_leaves_dependants_without_owner() {
    let (mut world, owner) = family();
    world.must(&delete(format!("{MAPS}/owner"), uid(&owner), json!({"propagationPolicy": "Orphan"})));
    world.settle();
    let left = world.list(MAPS);
    assert_eq!(left.len(), 2);
    assert!(left.iter().all(|m| list(m, "/metadata/ownerReferences").is_empty()));
}

#[test]
fn an_owner_of_another_uid_is_absent_and_one_of_two_is_enough() {
    let (mut world, owner) = family();
    let mut never = owner.clone();
    never["metadata"]["uid"] = json!("11111111-2222-3333-4444-555555555555");
    world.create(MAPS, &owned("stray", &never, false, &[]));
    let mut two = owned("two", &owner, false, &[]);
    let second = owned("x", &never, false, &[])["metadata"]["ownerReferences"][0].clone();
    two["metadata"]["ownerReferences"].as_array_mut().unwrap().push(json!({
        "apiVersion": "v1", "kind": "ConfigMap", "name": "gone", "uid": second["uid"],
    }));
    world.create(MAPS, &two);
    world.settle();
    assert!(world.get(&format!("{MAPS}/stray")).is_none());
    let two = world.get(&format!("{MAPS}/two")).unwrap();
    assert_eq!(list(&two, "/metadata/ownerReferences").len(), 1);
}

#[test]
fn a_new_namespace_gets_its_service_account_and_an_ending_one_is_emptied() {
    let mut world = World::new(vec![Box::new(Namespaces::default())]);
    world.create("/api/v1/namespaces", &json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "gone"}}));
    world.settle();
    assert!(world.get("/api/v1/namespaces/gone/serviceaccounts/default").is_some());
    let maps = "/api/v1/namespaces/gone/configmaps";
    for (name, finalizers) in [("a", json!([])), ("b", json!(["x.dev/f"]))] {
        let map =
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "finalizers": finalizers}});
        world.create(maps, &map);
    }
    world.must(&Request::new(Method::Delete, "/api/v1/namespaces/gone", "", [].into()));
    world.pass(3);
    let left = world.get("/api/v1/namespaces/gone").unwrap();
    let remaining = object::condition(&left, "NamespaceFinalizersRemaining").unwrap();
    assert_eq!(text(remaining, "/status"), "True");
    world.must(&merge(format!("{maps}/b"), &json!({"metadata": {"finalizers": null}})));
    world.until("the namespace goes", 10, |w| w.get("/api/v1/namespaces/gone").is_none());
}

fn node(name: &str, cpu: &str) -> Value {
    let amounts = json!({"cpu": cpu, "memory": "64Gi", "pods": "110"});
    json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}, "spec": {}, "status": {
        "allocatable": amounts, "capacity": amounts, "conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady"}],
    }})
}

fn everything(nodes: Vec<Value>) -> World {
    World::new(vec![
        Box::new(Collector::default()),
        Box::new(Namespaces::default()),
        Box::new(Jobs::default()),
        Box::new(Endpoints::default()),
        Box::new(Volcano::new(Settings::default())),
        Box::new(DefaultScheduler::default()),
        Box::new(Nodes::simulated(nodes, 200, Profile::default())),
    ])
}

fn job(name: &str, script: &str, backoff: i64) -> Value {
    json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name, "namespace": "default"}, "spec": {
        "backoffLimit": backoff,
        "template": {"spec": {"restartPolicy": "Never", "containers": [
            {"name": "c", "image": "busybox", "command": ["sh", "-c"], "args": [script]},
        ]}},
    }})
}

const JOBS: &str = "/apis/batch/v1/namespaces/default/jobs";
const PODS: &str = "/api/v1/namespaces/default/pods";

#[test]
fn a_job_completes_as_recorded() {
    let mut world = everything(vec![node("n1", "8")]);
    world.create(JOBS, &job("good", "true", 2));
    let done =
        |w: &mut World| w.get(&format!("{JOBS}/good")).is_some_and(|j| object::condition(&j, "Complete").is_some());
    world.until("the job completes", 60, done);
    let status = world.get(&format!("{JOBS}/good")).unwrap()["status"].clone();
    let kinds: Vec<&str> = list(&status, "/conditions").iter().map(|c| text(c, "/type")).collect();
    assert_eq!(kinds, ["SuccessCriteriaMet", "Complete"]);
    assert_eq!((&status["succeeded"], &status["ready"], &status["terminating"]), (&json!(1), &json!(0), &json!(0)));
    assert_eq!(status["uncountedTerminatedPods"], json!({}));
    assert!(!text(&status, "/completionTime").is_empty());
    let pods = world.list(PODS);
    assert_eq!(pods.len(), 1);
    assert_eq!(text(&pods[0], "/status/phase"), "Succeeded");
    assert!(!has_finalizer(&pods[0], "batch.kubernetes.io/job-tracking"));
}

#[test]
fn a_job_fails_after_its_back_off_limit() {
    let mut world = everything(vec![node("n1", "8")]);
    world.create(JOBS, &job("bad", "exit 3", 1));
    let done = |w: &mut World| w.get(&format!("{JOBS}/bad")).is_some_and(|j| object::condition(&j, "Failed").is_some());
    world.until("the job fails", 120, done);
    let status = world.get(&format!("{JOBS}/bad")).unwrap()["status"].clone();
    let kinds: Vec<&str> = list(&status, "/conditions").iter().map(|c| text(c, "/type")).collect();
    assert_eq!(kinds, ["FailureTarget", "Failed"]);
    assert_eq!(status["failed"], json!(2));
    assert_eq!(text(&status, "/conditions/1/reason"), "BackoffLimitExceeded");
    assert_eq!(world.list(PODS).len(), 2);
}

#[test]
fn a_deleted_job_takes_its_pods_with_it() {
    let mut world = everything(vec![node("n1", "8")]);
    let long = job("long", "sleep 600", 0);
    let made = world.create(JOBS, &long);
    world.until("its pod runs", 60, |w| w.list(PODS).iter().any(|p| !text(p, "/spec/nodeName").is_empty()));
    world.must(&delete(format!("{JOBS}/long"), uid(&made), json!({"propagationPolicy": "Foreground"})));
    world.until("all is gone", 60, |w| w.list(PODS).is_empty() && w.list(JOBS).is_empty());
}

fn gang_pod(name: &str, group: &str, cpu: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {
        "name": name, "namespace": "default", "annotations": {"scheduling.k8s.io/group-name": group}, "labels": {"app": group},
    }, "spec": {"schedulerName": "volcano", "restartPolicy": "Always", "containers": [
        {"name": "c", "image": "x", "resources": {"requests": {"cpu": cpu}}},
    ]}})
}

fn group(name: &str, min: i64, cpu: &str) -> Value {
    json!({"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "PodGroup", "metadata": {"name": name}, "spec": {
        "minMember": min, "minResources": {"cpu": cpu}, "queue": "default",
    }})
}

const GROUPS: &str = "/apis/scheduling.volcano.sh/v1beta1/namespaces/default/podgroups";

fn phase(world: &mut World, name: &str) -> String {
    world.get(&format!("{GROUPS}/{name}")).map(|g| text(&g, "/status/phase").to_owned()).unwrap_or_default()
}

#[test]
fn a_gang_is_admitted_placed_as_a_whole_and_served() {
    let mut world = everything(vec![node("n1", "4"), node("n2", "4")]);
    world.settle();
    world.create(GROUPS, &group("g", 2, "6"));
    world.until("the gang is admitted before its pods", 5, |w| phase(w, "g") == "Inqueue");
    world.create(PODS, &gang_pod("g-0", "g", "3"));
    world.pass(5);
    assert!(world.list(PODS).iter().all(|p| text(p, "/spec/nodeName").is_empty()), "half a gang is not placed");
    world.create(PODS, &gang_pod("g-1", "g", "3"));
    world.create(
        "/api/v1/namespaces/default/services",
        &json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "s"},
        "spec": {"selector": {"app": "g"}, "ports": [{"port": 80}]}}),
    );
    world.until("the gang runs", 20, |w| phase(w, "g") == "Running");
    let nodes: Vec<String> = world.list(PODS).iter().map(|p| text(p, "/spec/nodeName").to_owned()).collect();
    assert_eq!(nodes.len(), 2);
    assert_ne!(nodes[0], nodes[1]);
    let serves = |w: &mut World| {
        w.get("/api/v1/namespaces/default/endpoints/s").is_some_and(|e| list(&e, "/subsets/0/addresses").len() == 2)
    };
    world.until("both pods are endpoints", 20, serves);
    let queue = world.get("/apis/scheduling.volcano.sh/v1beta1/queues/default").unwrap();
    assert_eq!(queue["status"]["allocated"], json!({"cpu": "6", "memory": "0", "pods": "2"}));
    assert_eq!(text(&queue, "/status/state"), "Open");
}

#[test]
fn a_pod_that_is_deleted_ends_within_its_grace() {
    let mut world = everything(vec![node("n1", "4")]);
    let mut pod = gang_pod("p", "g", "1");
    pod["spec"]["schedulerName"] = json!("default-scheduler");
    let made = world.create(PODS, &pod);
    world.until("it is ready", 20, |w| {
        w.get(&format!("{PODS}/p"))
            .is_some_and(|p| object::condition(&p, "Ready").is_some_and(|c| text(c, "/status") == "True"))
    });
    world.must(&delete(format!("{PODS}/p"), uid(&made), json!({})));
    world.settle();
    assert!(world.get(&format!("{PODS}/p")).is_some_and(|p| object::deleting(&p)));
    world.until("it is gone", 31, |w| w.get(&format!("{PODS}/p")).is_none());
}

#[test]
fn a_quiet_world_writes_nothing() {
    let mut world = everything(vec![node("n1", "4")]);
    world.create(JOBS, &job("good", "true", 2));
    world.create(GROUPS, &group("waits", 2, "600"));
    world.pass(120);
    let before = world.server.version();
    world.pass(600);
    assert_eq!(world.server.version(), before);
}

#[test]
fn a_late_scheduler_admits_late() {
    let settings = Settings { delay: Duration::from_secs(40), ..Settings::default() };
    let mut world = World::new(vec![
        Box::new(Volcano::new(settings)),
        Box::new(Nodes::simulated(vec![node("n1", "4")], 200, Profile::default())),
    ]);
    world.pass(2);
    world.create(GROUPS, &group("g", 1, "1"));
    world.pass(35);
    assert_ne!(phase(&mut world, "g"), "Inqueue");
    world.pass(8);
    assert_eq!(phase(&mut world, "g"), "Inqueue");
}

/// A Ray cluster and a submitter as KubeRay makes them, cut down to what the simulation looks at.
#[test]
fn a_submitter_submits_once_and_ends_with_its_job() {
    let mut world = everything(vec![node("n1", "8")]);
    world.create("/api/v1/namespaces/default/services", &json!({"apiVersion": "v1", "kind": "Service", "metadata": {
        "name": "t-head-svc"}, "spec": {"selector": {"ray.io/node-type": "head"}, "ports": [{"name": "dashboard", "port": 8265}]}}));
    world.create(
        PODS,
        &json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "head", "labels": {
        "ray.io/node-type": "head", "ray.io/cluster": "t"}}, "spec": {"containers": [
            {"name": "ray-head", "image": "ray", "args": ["ulimit -n 65536; ray start --head --block"]}]}}),
    );
    let script = "until python -c x ; do sleep 2 ; done ; if ! ray job status --address http://t-head-svc.default.svc:8265 t-1 \
                  ; then ray job submit --address http://t-head-svc.default.svc:8265 --no-wait --submission-id t-1 -- sleep 7 \
                  ; fi ; ray job logs --address http://t-head-svc.default.svc:8265 --follow t-1";
    world.create(JOBS, &job("submit", script, 2));
    let done =
        |w: &mut World| w.get(&format!("{JOBS}/submit")).is_some_and(|j| object::condition(&j, "Complete").is_some());
    world.until("the submitter completes", 60, done);
    let dashboard = world.around.find::<Nodes>().and_then(Nodes::dashboard).unwrap();
    assert_eq!(dashboard.submissions("t-1"), 1);
    let target = "/api/v1/namespaces/default/services/t-head-svc:8265/proxy/api/jobs/t-1";
    let Answer::Proxy(call) = world.server.handle(&Request::get(target), world.now) else { panic!("no proxy call") };
    let reply = world.around.proxy(&call, world.now).unwrap();
    assert_eq!(object::body(&reply)["status"], json!("SUCCEEDED"));
}

#[test]
fn a_stored_status_of_a_crashed_container_counts_restarts() {
    let mut world = everything(vec![node("n1", "8")]);
    let made = world.create(
        PODS,
        &json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": {
        "containers": [{"name": "c", "image": "x"}]}}),
    );
    world.until("it runs", 20, |w| w.get(&format!("{PODS}/p")).is_some_and(|p| text(&p, "/status/phase") == "Running"));
    let now = world.now;
    for _ in 0..2 {
        world.around.find_mut::<Nodes>().unwrap().crash(uid(&made), "c", 1, now);
        world.pass(15);
    }
    let pod = world.get(&format!("{PODS}/p")).unwrap();
    assert_eq!(text(&pod, "/status/phase"), "Running");
    assert_eq!(pod["status"]["containerStatuses"][0]["restartCount"], json!(2));
    assert_eq!(pod["status"]["containerStatuses"][0]["lastState"]["terminated"]["exitCode"], json!(1));
}

#[test]
fn a_queue_can_be_closed_by_its_status() {
    let mut world = everything(vec![node("n1", "8")]);
    world.pass(2);
    let path = "/apis/scheduling.volcano.sh/v1beta1/queues/default";
    let mut queue = world.get(path).unwrap();
    queue["status"]["state"] = json!("Closed");
    world.must(&put(format!("{path}/status"), &queue));
    world.create(GROUPS, &group("g", 1, "1"));
    world.pass(5);
    assert_eq!(phase(&mut world, "g"), "Pending");
}
