//! What people are told of a root object that cannot go on as it stands: by an Event, and on its status where that can be
//! written. Must not know what is to be done about it.

use super::wait;
use crate::api::Cluster;
use crate::plan::root::Root;
use crate::plan::{Note, Plan};
use crate::row::{Quarantined, Row};

/// A root object that does not decode, in whatever stage. Nothing can be written to it; an Event says what is wrong, where
/// its UID is known.
pub(in crate::plan) fn unreadable(object: &Quarantined) -> Plan {
    let mut plan = wait(format!("it cannot be read: {}", object.error));
    plan.events.extend(object.known.as_deref().map(|row| warning(row, "Unreadable", "Read", &object.error)));
    plan
}

/// A root object whose `Placement` does not decode: nothing is decided about it until that is mended.
pub(super) fn placement_unreadable(row: &Row, object: &Quarantined) -> Plan {
    let message = format!("its Placement cannot be read: {}", object.error);
    let mut plan = wait(message.clone());
    plan.events.push(warning(row, "Unreadable", "Read", &message));
    plan
}

pub(super) fn warning(row: &Row, reason: &str, action: &str, note: &str) -> Note {
    Note {
        cluster: Cluster::Hub,
        about: row.id.clone(),
        uid: row.uid.clone(),
        warning: true,
        reason: reason.into(),
        action: action.into(),
        note: note.to_owned(),
    }
}

/// A root object whose status is of an earlier life, or was written by somebody else. That one has ended is no news.
pub(super) fn has_run(row: &Row, state: &str) -> Plan {
    if matches!(state, "Complete" | "Failed") {
        return wait("has ended; it is not started a second time");
    }
    let message = format!(
        "has run before (its status says {state}) and has no Placement: it is not started a second time; \
         apply it under a new name"
    );
    let mut plan = wait(message.clone());
    plan.events.push(warning(row, "NotStarted", "Place", &message));
    plan
}

/// A root object that breaks a rule: its status says so, once.
pub(super) fn invalid(root: &Root, reason: &str, message: &str) -> Plan {
    let mut plan = wait(format!("breaks a rule: {message}"));
    if let Some(action) = root.put_invalid_status(message) {
        plan.actions.push(action);
        plan.events.push(warning(root.row, reason, "Validate", message));
    }
    plan
}

/// KubeRay's Event about a RayCluster that a job selects and that is not there.
pub(super) fn not_found(job: &Row, name: &str) -> Note {
    let note = format!("RayCluster {}/{name}, which clusterSelector names, is not on the hub", job.id.namespace);
    warning(job, "RayClusterNotFound", "Validate", &note)
}
