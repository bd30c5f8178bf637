//! The root object on the hub: what is read of it, and the writes that fleet plans make to it.
//! Must not know when they are made.

use std::cell::OnceCell;

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;
use serde_json::{Map, Value};
use sha2::{Digest, Sha256};

use super::decision::body;
use super::validate::{self, Refusal};
use super::{Action, Flags, Precondition};
use crate::api::fleet::PlacementPolicySpec;
use crate::api::names::{CLUSTER_LABEL, MANAGED_BY_US, QUEUE_LABEL, STAGE_LABEL};
use crate::api::{Cluster, Id, Kind};
use crate::row::{Facts, Row, Tables};

/// A root object. Most looks need a few of its fields: the whole is read only where it is asked for.
pub struct Root<'a> {
    /// Its row.
    pub row: &'a Row,
    glance: Glance,
    body: OnceCell<Value>,
}

/// What nearly every look needs. Anything may stand there: what is of another type counts as absent.
struct Glance {
    spec: GlanceSpec,
    status: Map<String, Value>,
}

#[derive(Deserialize)]
struct Halves<'a> {
    #[serde(borrow, default)]
    spec: Option<&'a RawValue>,
    #[serde(borrow, default)]
    status: Option<&'a RawValue>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct GlanceSpec {
    managed_by: Value,
    suspend: Value,
}

impl Glance {
    /// `None` where the text is no object.
    fn at(body: &str) -> Option<Self> {
        fn of<T: DeserializeOwned + Default>(half: Option<&RawValue>) -> T {
            half.and_then(|half| serde_json::from_str(half.get()).ok()).unwrap_or_default()
        }
        let halves: Halves<'_> = serde_json::from_str(body).ok()?;
        Some(Self { spec: of(halves.spec), status: of(halves.status) })
    }
}

impl<'a> Root<'a> {
    /// Reads a row; `None` where it keeps no body.
    pub fn read(row: &'a Row) -> Option<Self> {
        Some(Self { row, glance: Glance::at(row.body.as_deref()?)?, body: OnceCell::new() })
    }

    /// The whole object.
    pub fn body(&self) -> &Value {
        // What is kept of a row is JSON: `read` went through it.
        self.body.get_or_init(|| body(self.row).unwrap_or_default())
    }

    /// Its status; empty where it has none.
    pub fn status(&self) -> &Map<String, Value> {
        &self.glance.status
    }

    /// Whether it is ours to work on (`architecture.md` section 2).
    pub fn is_ours(&self) -> bool {
        match &self.glance.spec.managed_by {
            Value::Null => true,
            Value::String(by) => MANAGED_BY_US.contains(&by.as_str()),
            _ => false,
        }
    }

    /// `spec.suspend`.
    pub fn suspended(&self) -> bool {
        self.glance.spec.suspend == Value::Bool(true)
    }

    /// `status.jobDeploymentStatus` of a RayJob, `status.state` of a RayCluster.
    pub fn state(&self) -> &str {
        let field = if self.row.id.kind == Kind::RayJob { "jobDeploymentStatus" } else { "state" };
        self.glance.status.get(field).and_then(Value::as_str).unwrap_or_default()
    }

    /// Whether it breaks a rule of its kind, or needs what is not built yet.
    pub fn check(&self) -> Result<(), Refusal> {
        validate::object(self.row.id.kind, self.body())
    }

    /// Hash of what a mirror's spec is made from.
    pub fn spec_hash(&self) -> String {
        spec_hash(self.body())
    }

    /// Its spec as a mirror has it.
    pub fn mirror_spec(&self) -> Value {
        mirror_spec(self.body())
    }

    /// PUT of the object with these finalizers; `None` if it has exactly them.
    pub fn put_finalizers(&self, change: impl Fn(&mut Vec<Value>)) -> Option<Action> {
        let mut body = self.body().clone();
        let metadata = body["metadata"].as_object_mut()?;
        let before: Vec<Value> = metadata.get("finalizers").and_then(Value::as_array).cloned().unwrap_or_default();
        let mut after = before.clone();
        change(&mut after);
        if before == after {
            return None;
        }
        metadata.insert("finalizers".to_owned(), Value::Array(after));
        Some(self.replace(body))
    }

    /// PUT of the index labels; `None` if they are right. `cluster` empty = none.
    pub fn put_index(&self, cluster: &str, stage: &str) -> Option<Action> {
        if self.row.label(CLUSTER_LABEL) == cluster && self.row.label(STAGE_LABEL) == stage {
            return None;
        }
        let mut body = self.body().clone();
        let metadata = body["metadata"].as_object_mut()?;
        let labels = metadata.entry("labels").or_insert_with(|| Value::Object(Map::new())).as_object_mut()?;
        for (key, value) in [(CLUSTER_LABEL, cluster), (STAGE_LABEL, stage)] {
            if value.is_empty() {
                labels.remove(key);
            } else {
                labels.insert(key.to_owned(), value.into());
            }
        }
        Some(self.replace(body))
    }

    /// PUT of the object with changed metadata; `None` where it has none.
    pub fn put_metadata(&self, change: impl FnOnce(&mut Map<String, Value>)) -> Option<Action> {
        let mut body = self.body().clone();
        change(body["metadata"].as_object_mut()?);
        Some(self.replace(body))
    }

    fn replace(&self, body: Value) -> Action {
        Action::Replace { cluster: Cluster::Hub, id: self.row.id.clone(), body, seen: Precondition::from(self.row) }
    }

    /// PUT of this status; `None` if it is there already. A field that is empty equals one that is absent.
    pub fn put_status(&self, status: Map<String, Value>) -> Option<Action> {
        if without_empty(self.status()) == without_empty(&status) {
            return None;
        }
        let mut body = self.body().clone();
        body["status"] = Value::Object(status);
        Some(Action::Status {
            cluster: Cluster::Hub,
            id: self.row.id.clone(),
            body,
            seen: Precondition::from(self.row),
            decision: false,
        })
    }

    /// The status of a root object that is on no member: `state` empty or `Suspended`, reason and message in words.
    /// What a former generation left there goes, as in KubeRay's reset (specs/rayjob.md 4.2); counters and times stay.
    pub fn put_waiting_status(&self, suspended: bool, reason: &str, message: &str) -> Option<Action> {
        let mut status = self.status().clone();
        if self.row.id.kind == Kind::RayJob {
            for field in [
                "jobDeploymentStatus",
                "jobStatus",
                "jobId",
                "rayClusterName",
                "dashboardURL",
                "rayClusterStatus",
                "rayJobInfo",
                "jobStatusCheckFailureStartTime",
            ] {
                status.remove(field);
            }
            if suspended {
                status.insert("jobDeploymentStatus".to_owned(), "Suspended".into());
            }
            status.insert("reason".to_owned(), reason.into());
            status.insert("message".to_owned(), message.into());
        } else {
            status.clear();
            if suspended {
                status.insert("state".to_owned(), "suspended".into());
            }
            status.insert("reason".to_owned(), format!("{reason}: {message}").into());
        }
        self.put_status(status)
    }

    /// The status of a root object that breaks a rule (specs/rayjob.md 2).
    pub fn put_invalid_status(&self, message: &str) -> Option<Action> {
        let mut status = self.status().clone();
        if self.row.id.kind == Kind::RayJob {
            status.insert("jobDeploymentStatus".to_owned(), "ValidationFailed".into());
            status.insert("reason".to_owned(), "ValidationFailed".into());
            status.insert("message".to_owned(), message.into());
        } else {
            status.insert("state".to_owned(), "failed".into());
            status.insert("reason".to_owned(), message.into());
        }
        self.put_status(status)
    }
}

/// The spec of a root object as a mirror has it.
fn mirror_spec(root: &Value) -> Value {
    let mut spec = root["spec"].clone();
    if let Some(fields) = spec.as_object_mut() {
        fields.remove("managedBy");
    }
    spec
}

/// Hash of what a mirror's spec is made from.
pub(super) fn spec_hash(root: &Value) -> String {
    let text = mirror_spec(root).to_string();
    Sha256::digest(text.as_bytes()).iter().take(10).fold(String::new(), |hash, byte| hash + &format!("{byte:02x}"))
}

/// Without fields that say nothing.
fn without_empty(map: &Map<String, Value>) -> Map<String, Value> {
    map.iter()
        .filter_map(|(key, value)| match value {
            Value::Null => None,
            Value::String(text) if text.is_empty() => None,
            Value::Object(inner) => {
                let inner = without_empty(inner);
                (!inner.is_empty()).then(|| (key.clone(), Value::Object(inner)))
            }
            other => Some((key.clone(), other.clone())),
        })
        .collect()
}

/// Whether an object is there but does not decode: then nothing may be concluded from its absence.
pub fn is_unreadable(tables: &Tables, id: &Id) -> bool {
    tables.quarantined(id).is_some()
}

/// The policy of a namespace: the `PlacementPolicy` named `default` in it.
pub fn policy(hub: &Tables, namespace: &str) -> PlacementPolicySpec {
    match hub.table(Kind::PlacementPolicy).get(namespace, "default").map(|row| &row.facts) {
        Some(Facts::PlacementPolicy(policy)) => policy.spec.clone(),
        _ => PlacementPolicySpec::default(),
    }
}

/// Queue of a root object: its label, else its namespace's policy, else the fleet's default.
pub fn queue_of(hub: &Tables, root: &Row, flags: &Flags) -> String {
    let named = root.label(QUEUE_LABEL);
    if !named.is_empty() {
        return named.to_owned();
    }
    policy(hub, &root.id.namespace).default_queue.unwrap_or_else(|| flags.default_queue.to_string())
}

/// Units of a member; the default where its `MemberCluster` is not seen.
pub fn unit_count(hub: &Tables, member: &str) -> u32 {
    match hub.table(Kind::MemberCluster).get("", member).map(|row| &row.facts) {
        Some(Facts::MemberCluster(cluster)) => cluster.spec.unit_count(),
        _ => crate::api::fleet::MemberClusterSpec::default().unit_count(),
    }
}

/// The root object that a `Placement` is about.
pub fn root_id_of(placement: &Row) -> Option<Id> {
    let root = &super::decision::of(placement)?.spec.root;
    let kind = match &*root.kind {
        "RayJob" => Kind::RayJob,
        "RayCluster" => Kind::RayCluster,
        _ => return None,
    };
    Some(Id::new(kind, placement.id.namespace.clone(), root.name.clone()))
}
