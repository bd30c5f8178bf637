//! Facts about the engine, told with scripted plans.

mod effects;
mod handing_over;
mod identity;
mod keys;
mod standing;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};

use super::*;
use crate::api::names;
use crate::plan::{Action, Precondition, Propagation, Why};
use crate::row::{Quarantined, Row, decode};

const T0: Time = Time(1_000_000);

type Scripted = Arc<dyn Fn(&Seen<'_>, &Id) -> Plan + Send + Sync>;

/// What plans say, and who was looked at.
#[derive(Default)]
struct Script {
    plans: BTreeMap<Which, Scripted>,
    looks: Vec<(Which, Id)>,
}

/// An engine with the time and the script of its plans.
struct Story {
    engine: Engine,
    script: Arc<Mutex<Script>>,
    now: Time,
    version: u64,
}

impl Story {
    fn new() -> Self {
        let script = Arc::new(Mutex::new(Script::default()));
        let read = script.clone();
        let plans: Plans = Box::new(move |which, seen, id, _| {
            let plan = {
                let mut script = read.lock().unwrap();
                script.looks.push((which, id.clone()));
                script.plans.get(&which).cloned()
            };
            plan.map_or_else(Plan::default, |plan| plan(seen, id))
        });
        Self { engine: Engine::with_plans(Flags::default(), 1, plans), script, now: T0, version: 100 }
    }

    /// Hub and member `eu` (four units) are watched and listed; all units are held with epoch 5.
    fn ready() -> Self {
        Self::ready_with(vec![], vec![])
    }

    fn ready_with(hub: Vec<Row>, eu: Vec<Row>) -> Self {
        let mut story = Self::new();
        story.tell(Input::Cluster(Cluster::Hub, Presence::Added));
        let mut rows = vec![row(Kind::MemberCluster, json!({"metadata": {"name": "eu"}}), 1)];
        rows.extend(hub);
        story.list(&Cluster::Hub, HUB_KINDS, rows);
        story.tell(Input::Cluster(eu_cluster(), Presence::Added));
        for unit in (0..64).map(|n| format!("q-{n:02x}")).chain((0..4).map(|n| format!("m-eu-{n}"))) {
            story.tell(Input::Unit(unit.into(), Standing::Held(5)));
        }
        story.later(1);
        let rows: Vec<Row> = story.rows_of(&Cluster::Hub);
        story.list(&Cluster::Hub, HUB_KINDS, rows);
        story.list(&eu_cluster(), MEMBER_KINDS, eu);
        story.later(1_000);
        story
    }

    fn rows_of(&self, cluster: &Cluster) -> Vec<Row> {
        let tables = self.engine.tables(cluster).unwrap();
        tables.kinds().flat_map(|kind| tables.rows(kind).cloned().collect::<Vec<_>>()).collect()
    }

    /// Consistent lists of these kinds, begun now.
    fn list(&mut self, cluster: &Cluster, kinds: &[Kind], rows: Vec<Row>) -> Vec<Effect> {
        let mut effects = Vec::new();
        let mut rows = rows;
        if let Cluster::Member(name) = cluster
            && !rows.iter().any(|row| *row.id.name == *"kube-system")
        {
            rows.push(home(name.as_str()));
        }
        for kind in kinds {
            let of_kind = rows.iter().filter(|row| row.id.kind == *kind).cloned().collect();
            let version = Version(self.version);
            let change = TableChange::Reset { rows: of_kind, quarantined: vec![], version, begun: self.now };
            effects.extend(self.tell(Input::Rows(cluster.clone(), *kind, change)));
        }
        effects
    }

    fn tell(&mut self, input: Input) -> Vec<Effect> {
        self.engine.handle(input, self.now)
    }

    fn later(&mut self, ms: i64) -> Vec<Effect> {
        self.now = Time(self.now.0 + ms);
        self.tell(Input::Tick)
    }

    /// A row came through a watch.
    fn see(&mut self, cluster: &Cluster, row: Row) -> Vec<Effect> {
        self.version = self.version.max(row.version.0);
        self.tell(Input::Rows(cluster.clone(), row.id.kind, TableChange::Upsert(Arc::new(row))))
    }

    fn gone(&mut self, cluster: &Cluster, row: &Row, version: u64) -> Vec<Effect> {
        let change = TableChange::Remove { id: row.id.clone(), uid: row.uid.clone(), version: Version(version) };
        self.tell(Input::Rows(cluster.clone(), row.id.kind, change))
    }

    fn plan(&self, which: Which, plan: impl Fn(&Seen<'_>, &Id) -> Plan + Send + Sync + 'static) {
        self.script.lock().unwrap().plans.insert(which, Arc::new(plan));
    }

    /// The plan says this once, then waits.
    fn once(&self, which: Which, plan: Plan) {
        let plan = Mutex::new(Some(plan));
        self.plan(which, move |_, _| plan.lock().unwrap().take().unwrap_or_default());
    }

    /// Looks since the last call.
    fn looks(&self) -> Vec<(Which, String)> {
        let looks = std::mem::take(&mut self.script.lock().unwrap().looks);
        looks.into_iter().map(|(which, id)| (which, id.name.to_string())).collect()
    }

    fn looked(&self, which: Which) -> bool {
        self.looks().iter().any(|(w, _)| *w == which)
    }
}

/// Where a member says that it is registered as the `MemberCluster` of this name.
fn home(member: &str) -> Row {
    let mark = format!("fleet/{member}/u-{member}");
    let metadata = json!({"name": "kube-system", "annotations": {names::REGISTERED_BY: mark}});
    row(Kind::Namespace, json!({ "metadata": metadata }), 1)
}

fn eu() -> MemberName {
    "eu".into()
}

fn eu_cluster() -> Cluster {
    Cluster::Member(eu())
}

/// A row as it would come from the wire: uid `u-<name>` and namespace `n` unless given.
fn row(kind: Kind, mut object: Value, version: u64) -> Row {
    let metadata = object["metadata"].as_object_mut().unwrap();
    let name = metadata["name"].as_str().unwrap().to_owned();
    if kind.namespaced() {
        metadata.entry("namespace").or_insert(json!("n"));
    }
    metadata.entry("uid").or_insert(json!(format!("u-{name}")));
    metadata.insert("resourceVersion".into(), json!(version.to_string()));
    if kind == Kind::MemberCluster && object["status"].is_null() {
        object["status"] = json!({"clusterId": "u-kube-system"});
    }
    decode(kind, object.to_string().as_bytes()).unwrap()
}

fn root(version: u64) -> Row {
    row(Kind::RayJob, json!({"metadata": {"name": "train", "labels": {"volcano.sh/queue-name": "ml"}}}), version)
}

/// `Placement` of `train` on `eu`, generation 1; claims of all units at epoch 5.
fn placement(stage: &str, version: u64) -> Row {
    placement_with(stage, version, json!({}))
}

/// The job runs on `eu`; hub, mirror and one pod are in sight.
fn running() -> Story {
    let cluster = ray_cluster("train-abcde", Some("u-mirror"), 6);
    let hub = vec![root(3), placement("Running", 4)];
    let story = Story::ready_with(hub, vec![mirror(5), cluster, pod("p", "u-train-abcde", 7)]);
    story.looks();
    story
}

fn placement_with(stage: &str, version: u64, more: Value) -> Row {
    let mut spec = json!({
        "root": {"kind": "RayJob", "name": "train", "uid": "u-train", "rootId": "r-1"},
        "queue": "ml", "stage": stage, "generation": 1, "member": "eu",
        "claims": {"m-eu-0": 5, "m-eu-1": 5, "m-eu-2": 5, "m-eu-3": 5},
    });
    for (key, value) in more.as_object().unwrap() {
        spec[key] = value.clone();
    }
    row(Kind::Placement, json!({"metadata": {"name": "rayjob-train"}, "spec": spec}), version)
}

fn mirror(version: u64) -> Row {
    mirror_with(version, json!({"rayfleet.io/root": "RayJob/n/train", "rayfleet.io/placement-generation": "1"}))
}

fn mirror_with(version: u64, annotations: Value) -> Row {
    let metadata = json!({"name": "train", "uid": "u-mirror", "annotations": annotations,
        "labels": {"rayfleet.io/root-id": "r-1"}});
    row(Kind::RayJob, json!({"metadata": metadata}), version)
}

fn pod(name: &str, owner: &str, version: u64) -> Row {
    let owners = json!([{"uid": owner, "controller": true}]);
    row(Kind::Pod, json!({"metadata": {"name": name, "ownerReferences": owners}}), version)
}

fn ray_cluster(name: &str, owner: Option<&str>, version: u64) -> Row {
    let owners = owner.map_or(json!([]), |uid| json!([{"uid": uid, "controller": true}]));
    row(Kind::RayCluster, json!({"metadata": {"name": name, "ownerReferences": owners}}), version)
}

fn bucket_unit() -> String {
    shards::member_unit("eu", shards::bucket("r-1"), 4)
}

fn create_pod(name: &str) -> Action {
    let id = Id::new(Kind::Pod, "n", name);
    Action::Create { cluster: eu_cluster(), id, body: json!({"metadata": {"name": name, "namespace": "n"}}) }
}

fn replace(cluster: Cluster, row: &Row, change: impl FnOnce(&mut Value)) -> Action {
    let mut body: Value =
        row.body.as_deref().map_or_else(|| json!({"metadata": {}}), |b| serde_json::from_str(b).unwrap());
    change(&mut body);
    Action::Replace { cluster, id: row.id.clone(), body, seen: Precondition::from(row) }
}

fn delete(row: &Row) -> Action {
    let (id, seen) = (row.id.clone(), Precondition::from(row));
    Action::Delete { cluster: eu_cluster(), id, seen, children: Propagation::Background }
}

fn does(actions: Vec<Action>) -> Plan {
    Plan { actions, ..Plan::default() }
}

/// Writes among the effects.
fn writes(effects: &[Effect]) -> Vec<(Ticket, Action)> {
    let write = |effect: &Effect| match effect {
        Effect::Write { ticket, action, .. } => Some((*ticket, action.clone())),
        _ => None,
    };
    effects.iter().filter_map(write).collect()
}

fn only_write(effects: &[Effect]) -> (Ticket, Action) {
    let mut writes = writes(effects);
    assert_eq!(writes.len(), 1, "{effects:?}");
    writes.remove(0)
}

fn fetches(effects: &[Effect]) -> Vec<(Ticket, Id)> {
    let fetch = |effect: &Effect| match effect {
        Effect::Fetch(ticket, _, id) => Some((*ticket, id.clone())),
        _ => None,
    };
    effects.iter().filter_map(fetch).collect()
}

fn relists(effects: &[Effect]) -> Vec<(Cluster, BTreeSet<Kind>)> {
    let relist = |effect: &Effect| match effect {
        Effect::Relist(cluster, kinds) => Some((cluster.clone(), kinds.clone())),
        _ => None,
    };
    effects.iter().filter_map(relist).collect()
}

fn ok(version: u64) -> Outcome {
    Outcome::Ok { uid: "u".into(), version: Version(version) }
}

fn lost() -> Outcome {
    Outcome::Unknown(None, "cut off".into())
}

fn body(action: &Action) -> &Value {
    match action {
        Action::Create { body, .. } | Action::Replace { body, .. } | Action::Status { body, .. } => body,
        Action::Merge { patch, .. } => patch,
        other => unreachable!("no body: {other:?}"),
    }
}

fn stamps(action: &Action) -> Value {
    serde_json::from_str(body(action)["metadata"]["annotations"]["rayfleet.io/stamps"].as_str().unwrap()).unwrap()
}
