//! A small world for tests of plans: objects of a hub and members as JSON, plans carried out at once.
//! Must not know what is right.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Value, json};

use super::place::Received;
use super::{Action, Fetch, Fetched, Flags, Me, Member, Plan, Propagation, RayTable, Seen};
use crate::api::fleet::MemberCapacity;
use crate::api::{Cluster, Id, Kind, MemberName, Time, Version, member_unit};
use crate::row::{ListPage, Row, TableChange, Tables, decode, decode_list};

/// A row of this object, at this version.
pub(crate) fn row(body: &Value, version: u64) -> Row {
    let mut body = body.clone();
    let metadata = &mut body["metadata"];
    metadata["resourceVersion"] = version.to_string().into();
    if metadata["uid"].is_null() {
        metadata["uid"] = format!("uid-{}", metadata["name"].as_str().unwrap_or_default()).into();
    }
    if metadata["creationTimestamp"].is_null() {
        metadata["creationTimestamp"] = "2026-11-29T10:00:00Z".into();
    }
    let kind = kind_of(&body);
    decode(kind, body.to_string().as_bytes()).unwrap_or_else(|e| panic!("{kind}: {e}"))
}

fn kind_of(body: &Value) -> Kind {
    let text = |f: &str| body[f].as_str().unwrap_or_default();
    Kind::find(text("apiVersion"), text("kind")).unwrap_or_else(|| panic!("kind of {body}"))
}

/// A pod template that asks for so many cores.
pub(crate) fn template(cpu: &str) -> Value {
    json!({"spec": {"containers": [{"name": "ray", "image": "ray", "resources": {"requests": {"cpu": cpu, "memory": "1Gi"}}}]}})
}

/// A RayJob in HTTPMode with a head and one worker of so many cores each.
pub(crate) fn ray_job(name: &str, queue: &str, cpu: &str) -> Value {
    json!({
        "apiVersion": "ray.io/v1", "kind": "RayJob",
        "metadata": {"name": name, "namespace": "default", "labels": {"volcano.sh/queue-name": queue}},
        "spec": {
            "submissionMode": "HTTPMode", "entrypoint": "python x.py",
            "rayClusterSpec": {
                "headGroupSpec": {"rayStartParams": {}, "template": template(cpu)},
                "workerGroupSpecs": [{"groupName": "w", "replicas": 1, "minReplicas": 1, "maxReplicas": 1, "rayStartParams": {}, "template": template(cpu)}],
            },
        },
    })
}

/// Everything there is.
pub(crate) struct World {
    objects: BTreeMap<(Cluster, Id), Value>,
    version: u64,
    pub(crate) now: Time,
    pub(crate) rays: RayTable,
    pub(crate) fetched: BTreeMap<(Cluster, Id), Fetched>,
    pub(crate) received: BTreeMap<Arc<str>, Received>,
    pub(crate) epochs: BTreeMap<Arc<str>, u64>,
    pub(crate) me: Me,
    pub(crate) flags: Flags,
    pub(crate) listed: Time,
    /// What became of the last write of whatever is looked at.
    pub(crate) trouble: Option<String>,
    sent: bool,
}

impl World {
    /// A hub and these members, each with one node of so many cores and an open queue `ml`.
    pub(crate) fn new(members: &[(&str, &str)]) -> Self {
        let now = Time::parse("2026-11-29T12:00:00Z").unwrap();
        let mut world = World {
            objects: BTreeMap::new(),
            version: 10,
            now,
            rays: RayTable::default(),
            fetched: BTreeMap::new(),
            received: BTreeMap::new(),
            epochs: BTreeMap::new(),
            me: Me { unit: "".into(), epoch: 1, since: now, unknown: false, sent: false, placements_up_to: Version(0) },
            flags: Flags::default(),
            listed: Time(0),
            trouble: None,
            sent: false,
        };
        for (name, cores) in members {
            let id = world.put(&Cluster::Hub, json!({"apiVersion": "rayfleet.io/v1alpha1", "kind": "MemberCluster", "metadata": {"name": name}, "spec": {}}));
            let on = Cluster::Member((*name).into());
            world.register(&on, &id);
            world.put(&on, json!({
                "apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"},
                "status": {"allocatable": {"cpu": cores, "memory": "100Gi", "pods": "110"}, "conditions": [{"type": "Ready", "status": "True"}]},
            }));
            world.put(
                &on,
                json!({
                    "apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "Queue", "metadata": {"name": "ml"},
                    "spec": {"weight": 1}, "status": {"state": "Open"},
                }),
            );
            for unit in 0..4 {
                world.epochs.insert(member_unit(name, unit), 1);
            }
        }
        world
    }

    /// The member is the cluster that its `MemberCluster` stands for.
    pub(crate) fn register(&mut self, on: &Cluster, id: &Id) {
        let uid = self.get(&Cluster::Hub, id).expect("a MemberCluster")["metadata"]["uid"].clone();
        let mark = format!("fleet/{}/{}", id.name, uid.as_str().unwrap_or_default());
        let annotations = json!({ crate::api::names::REGISTERED_BY: mark });
        let home = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "kube-system", "annotations": annotations}});
        let home = self.put(on, home);
        let cluster_id = self.get(on, &home).expect("a namespace")["metadata"]["uid"].clone();
        self.edit(&Cluster::Hub, id, |body| body["status"]["clusterId"] = cluster_id);
    }

    /// Puts an object; gives it UID, version and times where it has none.
    pub(crate) fn put(&mut self, cluster: &Cluster, mut body: Value) -> Id {
        self.version += 1;
        let kind = kind_of(&body);
        let text = |v: &Value| v.as_str().unwrap_or_default().to_owned();
        let id = Id::new(kind, text(&body["metadata"]["namespace"]), text(&body["metadata"]["name"]));
        if kind == Kind::MemberCapacity {
            let capacity: MemberCapacity = serde_json::from_value(body.clone()).unwrap();
            self.received.insert(id.name.clone(), Received::read(&capacity.spec, self.now));
        }
        let metadata = &mut body["metadata"];
        metadata["resourceVersion"] = self.version.to_string().into();
        if metadata["uid"].is_null() {
            metadata["uid"] = format!("u{}", self.version).into();
            metadata["creationTimestamp"] = self.now.seconds_text().into();
        }
        self.fetched.remove(&(cluster.clone(), id.clone()));
        let empty = metadata["finalizers"].as_array().is_none_or(Vec::is_empty);
        if empty && !metadata["deletionTimestamp"].is_null() {
            self.objects.remove(&(cluster.clone(), id.clone()));
        } else {
            self.objects.insert((cluster.clone(), id.clone()), body);
        }
        id
    }

    pub(crate) fn get(&self, cluster: &Cluster, id: &Id) -> Option<&Value> {
        self.objects.get(&(cluster.clone(), id.clone()))
    }

    /// Changes an object in place.
    pub(crate) fn edit(&mut self, cluster: &Cluster, id: &Id, change: impl FnOnce(&mut Value)) {
        let mut body = self.get(cluster, id).unwrap_or_else(|| panic!("{id} on {cluster}")).clone();
        change(&mut body);
        self.put(cluster, body);
    }

    pub(crate) fn remove(&mut self, cluster: &Cluster, id: &Id) {
        self.version += 1;
        self.objects.remove(&(cluster.clone(), id.clone()));
    }

    fn tables(&self, cluster: &Cluster) -> Tables {
        let mut tables = Tables::default();
        for kind in Kind::ALL {
            let of_kind = self.objects.iter().filter(|((c, id), _)| c == cluster && id.kind == *kind);
            let items: Vec<&Value> = of_kind.map(|(_, body)| body).collect();
            let list = json!({"metadata": {"resourceVersion": self.version.to_string()}, "items": items}).to_string();
            let ListPage { rows, quarantined, version, .. } = decode_list(*kind, list.as_bytes()).expect("a list");
            tables.apply(*kind, TableChange::Reset { rows, quarantined, version, begun: self.listed }, self.now);
        }
        tables
    }

    /// Hands a plan what it would see as the owner of `unit`.
    pub(crate) fn look(&self, unit: &str, member: Option<&str>, plan: impl FnOnce(&Seen, Time) -> Plan) -> Plan {
        let hub = self.tables(&Cluster::Hub);
        let name = member.map(MemberName::from);
        let on = name.as_ref().map(|n| self.tables(&Cluster::Member(n.clone())));
        let me = Me {
            unit: unit.into(),
            placements_up_to: Version(self.version),
            sent: self.sent || self.me.sent,
            ..self.me.clone()
        };
        let (members, refused) = (BTreeMap::new(), BTreeMap::new());
        let seen = Seen {
            hub: &hub,
            member: name.as_ref().zip(on.as_ref()).map(|(name, tables)| Member { name, tables }),
            refused: &refused,
            members: &members,
            rays: &self.rays,
            fetched: &self.fetched,
            capacity_received: &self.received,
            board: None,
            epochs: &self.epochs,
            asks: &BTreeMap::new(),
            trouble: self.trouble.as_deref(),
            me: &me,
            flags: &self.flags,
        };
        plan(&seen, self.now)
    }

    /// Carries a plan out: writes, reads and lists, all of them at once.
    pub(crate) fn carry_out(&mut self, plan: &Plan) {
        for action in &plan.actions {
            self.sent |= action.cluster() != Cluster::Hub;
            self.act(action);
        }
        for Fetch { cluster, id, .. } in &plan.fetch {
            let body = self.get(cluster, id).cloned().map(Arc::new);
            self.fetched
                .insert((cluster.clone(), id.clone()), Fetched { begun: self.now, body, error: None, failures: 0 });
        }
        if !plan.relist.is_empty() {
            self.listed = self.now;
        }
        self.now = Time(self.now.0 + 1);
    }

    fn act(&mut self, action: &Action) {
        match action {
            Action::Create { cluster, id, body } => {
                if self.get(cluster, id).is_none() {
                    let mut body = body.clone();
                    if cluster != &Cluster::Hub && id.kind != Kind::Namespace {
                        let root = body["metadata"]["labels"]["rayfleet.io/root-id"].clone();
                        if root.is_null()
                            && let Some(root) = self.root_of_owner(cluster, &body)
                        {
                            body["metadata"]["labels"]["rayfleet.io/root-id"] = root;
                        }
                    }
                    self.put(cluster, body);
                }
            }
            Action::Replace { cluster, id, body, seen } | Action::Status { cluster, id, body, seen, .. } => {
                let stored = self.get(cluster, id).unwrap_or_else(|| panic!("{id} on {cluster}")).clone();
                assert_eq!(
                    stored["metadata"]["resourceVersion"].as_str(),
                    Some(&*seen.version.to_string()),
                    "{id}: precondition"
                );
                let mut next = body.clone();
                if matches!(action, Action::Status { .. }) {
                    next = stored.clone();
                    next["status"] = body["status"].clone();
                } else if matches!(id.kind, Kind::RayJob | Kind::RayCluster | Kind::MemberCluster) {
                    next["status"] = stored["status"].clone();
                }
                next["metadata"]["uid"] = stored["metadata"]["uid"].clone();
                self.put(cluster, next);
            }
            Action::Delete { cluster, id, children, .. } => {
                let Some(mut body) = self.get(cluster, id).cloned() else { return };
                let metadata = &mut body["metadata"];
                metadata["deletionTimestamp"] = self.now.seconds_text().into();
                let mut list = metadata["finalizers"].as_array().cloned().unwrap_or_default();
                if *children == Propagation::Foreground {
                    list.push("foregroundDeletion".into());
                }
                metadata["finalizers"] = list.into();
                self.put(cluster, body);
            }
            Action::Merge { cluster, id, patch, .. } => self.edit(cluster, id, |body| json_patch::merge(body, patch)),
            Action::Ask { .. } => {}
        }
    }

    fn root_of_owner(&self, cluster: &Cluster, body: &Value) -> Option<Value> {
        let uid = body["metadata"]["ownerReferences"][0]["uid"].as_str()?;
        let owner = self.objects.iter().find(|((c, _), o)| c == cluster && o["metadata"]["uid"] == uid)?;
        Some(owner.1["metadata"]["labels"]["rayfleet.io/root-id"].clone())
    }

    /// Kubernetes' collector: children of what is gone or deleted in the foreground go, then the mark.
    pub(crate) fn collect(&mut self) {
        loop {
            let uids: Vec<(Cluster, String, bool)> = self
                .objects
                .iter()
                .map(|((c, _), o)| {
                    let marked =
                        o["metadata"]["finalizers"].as_array().into_iter().flatten().any(|f| f == "foregroundDeletion");
                    (c.clone(), o["metadata"]["uid"].as_str().unwrap_or_default().to_owned(), marked)
                })
                .collect();
            let orphan = self.objects.iter().find(|((c, _), o)| {
                let owners: Vec<&str> = o["metadata"]["ownerReferences"]
                    .as_array()
                    .into_iter()
                    .flatten()
                    .filter_map(|r| r["uid"].as_str())
                    .collect();
                !owners.is_empty()
                    && c != &Cluster::Hub
                    && owners.iter().all(|uid| !uids.iter().any(|(oc, u, marked)| oc == c && u == uid && !marked))
            });
            let Some(((cluster, id), _)) = orphan else { break };
            let (cluster, id) = (cluster.clone(), id.clone());
            self.remove(&cluster, &id);
        }
        let marked: Vec<(Cluster, Id)> = self
            .objects
            .iter()
            .filter(|(_, o)| {
                o["metadata"]["finalizers"].as_array().into_iter().flatten().any(|f| f == "foregroundDeletion")
            })
            .map(|(key, _)| key.clone())
            .collect();
        for (cluster, id) in marked {
            self.edit(&cluster, &id, |body| {
                if let Some(list) = body["metadata"]["finalizers"].as_array_mut() {
                    list.retain(|f| f != "foregroundDeletion");
                }
            });
        }
    }

    pub(crate) fn placement_of(&self, root: &Id) -> Option<crate::api::fleet::Placement> {
        let id = Id::new(Kind::Placement, root.namespace.clone(), super::placement_name(root.kind.name(), &root.name));
        let body = self.get(&Cluster::Hub, &id)?;
        Some(serde_json::from_value(json!({"spec": body["spec"], "status": body["status"]})).unwrap())
    }

    /// Starts a new generation's memory: nothing was sent for it.
    pub(crate) fn forget_sent(&mut self) {
        self.sent = false;
    }

    /// Looks at a member once and carries out what comes of it.
    pub(crate) fn tend(&mut self, member: &str) -> Plan {
        let plan = self
            .look(&member_unit(member, 0), Some(member), |seen, now| super::member::plan(seen, &member.into(), now));
        self.carry_out(&plan);
        plan
    }

    /// Looks at members until their pictures are published and count everything.
    pub(crate) fn publish(&mut self, members: &[&str]) {
        for _ in 0..4 {
            self.now = Time(self.now.0 + 1100);
            for member in members {
                self.tend(member);
            }
        }
    }

    /// Looks at a root object once, by the plan that its stage asks for, and carries it out.
    pub(crate) fn step(&mut self, root: &Id) -> Plan {
        use crate::api::fleet::Stage;
        let placement = self.placement_of(root);
        let (stage, member) = placement.map_or((Stage::Waiting, None), |p| (p.spec.stage, p.spec.member));
        let member = member.unwrap_or_default();
        let first = member_unit(&member, 0);
        let plan = match stage {
            Stage::Waiting => self.look("q-00", None, |seen, now| super::place::plan(seen, root, now)),
            Stage::Reserving => self.look(&first, Some(&member), |seen, now| super::reserve::plan(seen, root, now)),
            Stage::Withdrawing => self.look(&first, Some(&member), |seen, now| super::withdraw::plan(seen, root, now)),
            _ => self.look(&first, Some(&member), |seen, now| super::bound::plan(seen, root, now)),
        };
        if stage == Stage::Waiting {
            self.forget_sent();
        }
        self.carry_out(&plan);
        plan
    }
}
