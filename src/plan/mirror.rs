//! The copy of a root object on a member: how it is made, and whose an object of its name is.
//! Must not know when it is made or deleted.

use serde_json::{Map, Value, json};

use super::root::Root;
use super::{Action, Precondition, decision};
use crate::api::fleet::Placement;
use crate::api::names::{GENERATION, QUEUE_LABEL, ROOT, ROOT_ID, SPEC_HASH, TOMBSTONE_FINALIZER};
use crate::api::{Cluster, Id, MemberName, RootId};
use crate::row::{Row, Tables};

/// What stands on a member under the mirror's name.
#[derive(Debug)]
pub enum Slot<'a> {
    /// Nothing.
    Empty,
    /// The mirror of the present generation.
    Ours(&'a Row),
    /// A mirror of another generation of the same root id.
    Other(&'a Row, i64),
    /// Somebody else's object.
    Stranger(&'a Row),
}

/// Looks at the slot. A mirror is known by its annotations, or by the UID that the `Placement` stores: one whose
/// annotations were stripped must never become a direct object (`architecture.md` 6.2).
pub fn slot<'a>(tables: &'a Tables, id: &Id, placement: &Placement) -> Slot<'a> {
    let Some(row) = tables.get(id) else { return Slot::Empty };
    if placement.spec.mirror_uid.as_deref() == Some(&*row.uid.0) {
        return Slot::Ours(row);
    }
    if row.root_id.as_ref().map(RootId::as_str) != Some(&*placement.spec.root.root_id) {
        return Slot::Stranger(row);
    }
    match decision::generation_of(row) {
        generation if generation == placement.spec.generation => Slot::Ours(row),
        generation => Slot::Other(row, generation),
    }
}

/// Creates the mirror (`docs/WALK.md` 4.2). Where the root object is gone the body has no spec: it is made only to be
/// deleted, as a tombstone.
pub fn create(member: &MemberName, id: &Id, placement: &Placement, root: Option<&Root>) -> Action {
    let spec = &placement.spec;
    let mut metadata = json!({
        "name": id.name,
        "namespace": id.namespace,
        "finalizers": [TOMBSTONE_FINALIZER],
    });
    let mut labels = Map::new();
    let mut annotations = Map::new();
    let mut body = json!({ "apiVersion": id.kind.api_version(), "kind": id.kind.name() });
    match root {
        Some(root) => {
            let own = |field: &str| root.body()["metadata"][field].as_object().cloned().unwrap_or_default();
            labels.extend(own("labels").into_iter().filter(|(key, _)| is_copied(key)));
            annotations.extend(own("annotations").into_iter().filter(|(key, _)| is_copied(key)));
            annotations.insert(SPEC_HASH.to_owned(), root.spec_hash().into());
            body["spec"] = root.mirror_spec();
        }
        None => body["spec"] = least_spec(id),
    }
    // Where the queue came from a policy, the mirror names it: what is made from it must be Volcano's.
    labels.entry(QUEUE_LABEL).or_insert_with(|| (*spec.queue).into());
    labels.insert(ROOT_ID.to_owned(), (*spec.root.root_id).into());
    annotations.insert(ROOT_ID.to_owned(), (*spec.root.root_id).into());
    annotations.insert(ROOT.to_owned(), format!("{}/{}/{}", id.kind.name(), id.namespace, id.name).into());
    annotations.insert(GENERATION.to_owned(), spec.generation.to_string().into());
    metadata["labels"] = Value::Object(labels);
    metadata["annotations"] = Value::Object(annotations);
    body["metadata"] = metadata;
    Action::Create { cluster: Cluster::Member(member.clone()), id: id.clone(), body }
}

/// The smallest spec that the schema takes.
fn least_spec(id: &Id) -> Value {
    let cluster =
        json!({ "headGroupSpec": { "template": { "spec": { "containers": [{ "name": "none", "image": "none" }] } } } });
    if id.kind == crate::api::Kind::RayJob {
        json!({ "suspend": true, "shutdownAfterJobFinishes": true, "rayClusterSpec": cluster })
    } else {
        cluster
    }
}

/// Labels and annotations of a root object that its mirror gets.
pub fn is_copied(key: &str) -> bool {
    key != "kubectl.kubernetes.io/last-applied-configuration" && !key.starts_with("rayfleet.io/")
}

/// PUT of the mirror with the root's present spec.
pub fn put_spec(member: &MemberName, mirror: &Row, root: &Root) -> Option<Action> {
    let mut body = decision::body(mirror)?;
    let mut spec = root.mirror_spec();
    keep_scaling(&body["spec"], &mut spec);
    body["spec"] = spec;
    body["metadata"]["annotations"][SPEC_HASH] = root.spec_hash().into();
    Some(replace(member, mirror, body))
}

/// While Ray's autoscaler is on, what it wrote on the member stays: sizes of groups, which it knows by name, and pods that
/// are to go (`architecture.md` section 2). A new group begins with the hub's size.
fn keep_scaling(old: &Value, new: &mut Value) {
    if old["enableInTreeAutoscaling"] != true || new["enableInTreeAutoscaling"] != true {
        return;
    }
    let before = old["workerGroupSpecs"].as_array().map_or(&[][..], Vec::as_slice);
    for group in new["workerGroupSpecs"].as_array_mut().into_iter().flatten() {
        let Some(was) = before.iter().find(|was| was["groupName"] == group["groupName"]) else { continue };
        for key in ["replicas", "scaleStrategy"] {
            match (&was[key], group.as_object_mut()) {
                (Value::Null, Some(group)) => drop(group.remove(key)),
                (kept, Some(group)) => drop(group.insert(key.to_owned(), kept.clone())),
                _ => {}
            }
        }
    }
}

/// PUT of an object on a member without the finalizers that `drop` names; `None` if there is none of them.
pub fn put_without_finalizers(member: &MemberName, row: &Row, drop: impl Fn(&str) -> bool) -> Option<Action> {
    if !row.finalizers.iter().any(|f| drop(f)) {
        return None;
    }
    let mut body = decision::body(row)?;
    body["metadata"]["finalizers"].as_array_mut()?.retain(|f| !f.as_str().is_some_and(&drop));
    Some(replace(member, row, body))
}

fn replace(member: &MemberName, row: &Row, body: Value) -> Action {
    Action::Replace {
        cluster: Cluster::Member(member.clone()),
        id: row.id.clone(),
        body,
        seen: Precondition::from(row),
    }
}
