//! The Ingress of the head's dashboard, kept as it should be (specs/raycluster.md 4.4).
//! Must not know what stands in it.

use serde_json::Value;

use super::Draft;
use crate::api::Kind;
use crate::api::ray::RayCluster;
use crate::plan::build;
use crate::plan::pass::{Beside, Flow};

/// What it needs: kind and name.
pub(super) fn wanted(cluster: &RayCluster) -> Vec<(Kind, String)> {
    if build::has_ingress(cluster) { vec![(Kind::Ingress, build::ingress_name(cluster))] } else { Vec::new() }
}

/// Makes the Ingress, and takes back what others changed of one that is the RayCluster's.
pub(super) fn object(draft: &mut Draft<'_>) -> Flow {
    if !build::has_ingress(&draft.cluster) {
        return Flow::Next;
    }
    let wanted = build::ingress(&draft.cluster);
    let name = build::ingress_name(&draft.cluster);
    let full = draft.pass.full_name(&name);
    match draft.pass.beside(Kind::Ingress, &name) {
        Beside::Unread => {}
        Beside::Missing => {
            draft.pass.create(Kind::Ingress, wanted);
            draft.pass.note(false, "CreatedIngress", "Create", format!("Created ingress {full}"));
        }
        Beside::There(there) if !is_of(there, &draft.pass.row.uid.0) => {
            let text = format!("Ingress {full} is not this RayCluster's: it stays as it is");
            draft.pass.note(true, "FailedToCreateIngress", "Create", text);
        }
        Beside::There(there) => {
            if let Some(body) = corrected(there, wanted) {
                draft.pass.replace_read(Kind::Ingress, &name, there, body);
                draft.pass.note(false, "UpdatedIngress", "Update", format!("Updated ingress {full}"));
            }
        }
    }
    Flow::Next
}

fn is_of(object: &Value, uid: &str) -> bool {
    let owners = object["metadata"]["ownerReferences"].as_array().into_iter().flatten();
    owners.into_iter().any(|owner| owner["controller"] == true && owner["uid"] == uid)
}

/// What is there, with labels, annotations and spec as wanted; `None` where they are. A class that nobody asked for stays.
fn corrected(there: &Value, mut wanted: Value) -> Option<Value> {
    let class = &there["spec"]["ingressClassName"];
    if wanted["spec"]["ingressClassName"].is_null() && !class.is_null() {
        wanted["spec"]["ingressClassName"] = class.clone();
    }
    let mut body = there.clone();
    body["spec"] = wanted["spec"].take();
    for key in ["labels", "annotations"] {
        let mut map = wanted["metadata"][key].as_object().cloned().unwrap_or_default();
        // What the engine writes on all that is ours is nobody's change.
        let marks = there["metadata"][key].as_object().into_iter().flatten();
        map.extend(marks.filter(|(key, _)| key.starts_with("rayfleet.io/")).map(|(k, v)| (k.clone(), v.clone())));
        match body["metadata"].as_object_mut() {
            Some(metadata) if map.is_empty() => drop(metadata.remove(key)),
            Some(metadata) => drop(metadata.insert(key.to_owned(), Value::Object(map))),
            None => {}
        }
    }
    if body == *there {
        return None;
    }
    // Whoever serves it writes that; a PUT of the object does not.
    if let Some(fields) = body.as_object_mut() {
        fields.remove("status");
    }
    Some(body)
}
