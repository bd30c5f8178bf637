//! A member of a few objects for tests of plans: carries out what plans say, at once and without faults.
//! Must not know rules.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::{
    Action, Fetch, Fetched, Flags, JobAnswer, JobView, Me, Member, Plan, Question, RayTable, Seen, SubmitOutcome,
};
use super::{ray_cluster, ray_job};
use crate::api::{Cluster, Id, Kind, MemberName, Time, Uid};
use crate::row::{Row, Tables, decode};

pub(super) struct World {
    pub(super) objects: BTreeMap<Id, Value>,
    pub(super) hub: Vec<Row>,
    pub(super) now: Time,
    pub(super) rays: RayTable,
    /// What Ray says about every job from now on; `None` = it does not know it.
    pub(super) ray_says: Option<Value>,
    /// No question about a job is answered.
    pub(super) ray_is_silent: bool,
    /// What becomes of submissions; the job is known afterwards where they are accepted.
    pub(super) ray_takes: SubmitOutcome,
    pub(super) submissions: Vec<(String, Value)>,
    pub(super) events: Vec<String>,
    /// Every action that was carried out, in words.
    pub(super) log: Vec<String>,
    pub(super) last: BTreeMap<Id, Plan>,
    pub(super) flags: Flags,
    /// What was read on request.
    fetched: BTreeMap<(Cluster, Id), Fetched>,
    version: u64,
}

impl World {
    pub(super) fn new() -> Self {
        Self {
            objects: BTreeMap::new(),
            hub: Vec::new(),
            now: Time::parse("2026-11-29T12:00:00Z").unwrap(),
            rays: RayTable::default(),
            ray_says: None,
            ray_is_silent: false,
            ray_takes: SubmitOutcome::Accepted,
            submissions: Vec::new(),
            events: Vec::new(),
            log: Vec::new(),
            last: BTreeMap::new(),
            flags: Flags { token_key: Some(super::TokenKey::new([7; 32])), ..Flags::default() },
            fetched: BTreeMap::new(),
            version: 0,
        }
    }

    pub(super) fn apply(&mut self, mut object: Value) -> Id {
        let kind = Kind::find(object["apiVersion"].as_str().unwrap(), object["kind"].as_str().unwrap()).unwrap();
        self.version += 1;
        let metadata = &mut object["metadata"];
        if metadata["namespace"].is_null() {
            metadata["namespace"] = json!("default");
        }
        metadata["uid"] = json!(format!("uid-{}", self.version));
        metadata["resourceVersion"] = json!(self.version.to_string());
        metadata["generation"] = json!(1);
        metadata["creationTimestamp"] = json!(self.now.seconds_text());
        if kind == Kind::Service {
            for port in object["spec"]["ports"].as_array_mut().into_iter().flatten() {
                port["targetPort"] = port["port"].clone();
            }
        }
        let metadata = &object["metadata"];
        let id = Id::new(kind, metadata["namespace"].as_str().unwrap(), metadata["name"].as_str().unwrap());
        assert!(!self.objects.contains_key(&id), "{id} exists");
        self.objects.insert(id.clone(), object);
        id
    }

    pub(super) fn edit(&mut self, id: &Id, edit: impl FnOnce(&mut Value)) {
        self.version += 1;
        let object = self.objects.get_mut(id).unwrap_or_else(|| panic!("no {id}"));
        edit(object);
        object["metadata"]["resourceVersion"] = json!(self.version.to_string());
    }

    pub(super) fn get(&self, kind: Kind, name: &str) -> Option<&Value> {
        self.objects.get(&Id::new(kind, "default", name))
    }

    pub(super) fn of(&self, kind: Kind) -> Vec<(Id, Value)> {
        self.objects.iter().filter(|(id, _)| id.kind == kind).map(|(id, v)| (id.clone(), v.clone())).collect()
    }

    /// Plans one key.
    pub(super) fn plan(&self, id: &Id) -> Plan {
        self.plan_seeing(id, |_| {}, &self.fetched)
    }

    /// Plans one key on tables that have changed since, and with what was read.
    pub(super) fn plan_seeing(
        &self,
        id: &Id,
        change: impl FnOnce(&mut Tables),
        fetched: &BTreeMap<(Cluster, Id), Fetched>,
    ) -> Plan {
        let rows = self.objects.iter().map(|(id, body)| decode(id.kind, body.to_string().as_bytes()).unwrap());
        let mut tables = Tables::from_rows(rows.collect::<Vec<_>>());
        change(&mut tables);
        let hub = Tables::from_rows(self.hub.clone());
        let name = MemberName::from("eu");
        let me = Me {
            unit: "m-eu-0".into(),
            epoch: 1,
            since: Time(0),
            unknown: false,
            sent: false,
            placements_up_to: crate::api::Version(0),
        };
        let seen = Seen {
            hub: &hub,
            member: Some(Member { name: &name, tables: &tables }),
            refused: &BTreeMap::new(),
            members: &BTreeMap::new(),
            rays: &self.rays,
            fetched,
            capacity_received: &BTreeMap::new(),
            board: None,
            epochs: &BTreeMap::new(),
            asks: &BTreeMap::new(),
            trouble: None,
            me: &me,
            flags: &self.flags,
        };
        match id.kind {
            Kind::RayJob => ray_job::plan(&seen, id, self.now),
            Kind::RayCluster => ray_cluster::plan(&seen, id, self.now),
            other => panic!("nobody plans a {other}"),
        }
    }

    /// Plans every Ray object until nobody has anything to do.
    pub(super) fn settle(&mut self) {
        for _ in 0..40 {
            let keys: Vec<Id> =
                self.objects.keys().filter(|id| matches!(id.kind, Kind::RayJob | Kind::RayCluster)).cloned().collect();
            let mut quiet = true;
            for id in keys {
                if !self.objects.contains_key(&id) {
                    continue;
                }
                let plan = self.plan(&id);
                quiet &= plan.actions.is_empty() && plan.fetch.is_empty();
                for Fetch { cluster, id, .. } in plan.fetch.clone() {
                    let body = self.objects.get(&id).cloned().map(Into::into);
                    self.fetched.insert((cluster, id), Fetched { begun: self.now, body, error: None, failures: 0 });
                }
                self.events.extend(plan.events.iter().map(|e| format!("{} {}", e.reason, e.note)));
                for action in plan.actions.clone() {
                    self.carry_out(action);
                }
                self.last.insert(id, plan);
            }
            self.collect();
            if quiet {
                return;
            }
        }
        panic!("it does not settle: {:#?}", self.log);
    }

    /// Lets time pass, then settles.
    pub(super) fn after(&mut self, seconds: i64) {
        self.now = Time(self.now.0 + seconds * 1000);
        self.settle();
    }

    fn carry_out(&mut self, action: Action) {
        let (Action::Create { id, .. } | Action::Replace { id, .. }) = &action else {
            return self.carry_out_on_seen(action);
        };
        self.fetched.remove(&(action.cluster(), id.clone()));
        self.carry_out_on_seen(action);
    }

    fn carry_out_on_seen(&mut self, action: Action) {
        match action {
            Action::Create { id, body, .. } => {
                self.log.push(format!("create {id}"));
                assert_eq!(self.apply(body), id);
            }
            Action::Replace { id, body, seen, .. } => {
                self.log.push(format!("replace {id}"));
                self.expect(&id, &seen.uid);
                self.edit(&id, |object| {
                    let status = object["status"].take();
                    *object = body;
                    object["status"] = status;
                });
            }
            Action::Status { id, body, seen, .. } => {
                let state = &body["status"]["jobDeploymentStatus"];
                self.log.push(format!("status {id} {}", state.as_str().unwrap_or_default()));
                self.expect(&id, &seen.uid);
                self.edit(&id, |object| object["status"] = body["status"].clone());
            }
            Action::Merge { id, patch, seen, .. } => {
                self.log.push(format!("merge {id}"));
                self.expect(&id, &seen.uid);
                self.edit(&id, |object| json_patch::merge(object, &patch));
            }
            Action::Delete { id, seen, .. } => {
                self.log.push(format!("delete {id}"));
                self.expect(&id, &seen.uid);
                self.delete(&id);
            }
            Action::Ask { member, dashboard, question } => {
                let key = (member, dashboard, question.job().clone());
                let now = self.now;
                let view: &mut JobView = self.rays.jobs.entry(key).or_default();
                match question {
                    Question::Job { .. } => {
                        let answer = match self.ray_says.clone() {
                            _ if self.ray_is_silent => JobAnswer::Failed("silence".into()),
                            Some(info) => JobAnswer::Info(info.into()),
                            None => JobAnswer::NotFound,
                        };
                        view.answer = Some((now, answer));
                    }
                    Question::Submit { job, body } => {
                        self.submissions.push((job.to_string(), body));
                        view.submitted = Some((now, self.ray_takes.clone()));
                        if self.ray_takes == SubmitOutcome::Accepted {
                            self.ray_says = Some(json!({ "status": "PENDING" }));
                        }
                    }
                    Question::Stop { job } => {
                        self.log.push(format!("stop {job}"));
                        view.stopped = Some(now);
                    }
                }
            }
        }
    }

    fn expect(&self, id: &Id, uid: &Uid) {
        let object = self.objects.get(id).unwrap_or_else(|| panic!("no {id}"));
        assert_eq!(object["metadata"]["uid"], uid.as_str());
    }

    /// As an API server: with finalizers it stays, marked. Pods stay until [`World::bury`].
    pub(super) fn delete(&mut self, id: &Id) {
        let now = self.now.seconds_text();
        self.edit(id, |object| object["metadata"]["deletionTimestamp"] = json!(now));
    }

    /// Pods that are going are gone.
    pub(super) fn bury(&mut self) {
        self.objects.retain(|id, o| id.kind != Kind::Pod || o["metadata"]["deletionTimestamp"].is_null());
    }

    /// Removes what is marked and not held, and marks what has lost its owner.
    fn collect(&mut self) {
        loop {
            let held = |id: &Id, o: &Value| {
                id.kind == Kind::Pod || o["metadata"]["finalizers"].as_array().is_some_and(|f| !f.is_empty())
            };
            let before = self.objects.len();
            self.objects.retain(|id, o| o["metadata"]["deletionTimestamp"].is_null() || held(id, o));
            let alive: Vec<Value> = self.objects.values().map(|o| o["metadata"]["uid"].clone()).collect();
            let orphans: Vec<Id> = self
                .objects
                .iter()
                .filter(|(_, o)| {
                    let owner = &o["metadata"]["ownerReferences"][0]["uid"];
                    !owner.is_null() && !alive.contains(owner) && o["metadata"]["deletionTimestamp"].is_null()
                })
                .map(|(id, _)| id.clone())
                .collect();
            for id in &orphans {
                self.delete(id);
            }
            if orphans.is_empty() && self.objects.len() == before {
                return;
            }
        }
    }

    /// Every pod that is there runs and is ready.
    pub(super) fn run_pods(&mut self) {
        for (n, (id, _)) in self.of(Kind::Pod).into_iter().enumerate() {
            self.edit(&id, |pod| {
                pod["status"] = json!({
                    "phase": "Running", "podIP": format!("10.0.0.{}", n + 1),
                    "conditions": [{ "type": "Ready", "status": "True" }],
                });
            });
        }
        self.settle();
    }

    /// The status of a RayJob or RayCluster.
    pub(super) fn status(&self, id: &Id) -> Value {
        self.objects[id]["status"].clone()
    }

    /// What the object waits for.
    pub(super) fn why(&self, id: &Id) -> String {
        self.plan(id).why.0.to_string()
    }
}

/// A RayJob with one worker group.
pub(super) fn ray_job(mode: &str) -> Value {
    let container = |name: &str| {
        json!({ "containers": [{
            "name": name, "image": "ray",
            "resources": { "requests": { "cpu": "1", "memory": "1Gi" }, "limits": { "cpu": "1", "memory": "1Gi" } },
        }] })
    };
    json!({
        "apiVersion": "ray.io/v1", "kind": "RayJob", "metadata": { "name": "train" },
        "spec": {
            "entrypoint": "python train.py", "submissionMode": mode, "backoffLimit": 0,
            "rayClusterSpec": {
                "headGroupSpec": { "template": { "spec": container("head") } },
                "workerGroupSpecs": [{
                    "groupName": "w", "replicas": 2, "minReplicas": 0, "maxReplicas": 4, "numOfHosts": 1,
                    "template": { "spec": container("worker") },
                }],
            },
        },
    })
}
