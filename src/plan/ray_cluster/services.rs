//! Services of a RayCluster: created where they are missing, never changed (specs/raycluster.md 4.1 to 4.3).
//! Must not know what stands in them.

use serde_json::Value;

use super::Draft;
use crate::api::Kind;
use crate::api::names::{RAY_CLUSTER_LABEL, RAY_NODE_TYPE_LABEL};
use crate::plan::build;
use crate::plan::pass::Flow;
use crate::row::Row;

/// The head's.
pub(super) fn head(draft: &mut Draft<'_>) -> Flow {
    if head_services(draft).is_empty() {
        let body = build::head_service(&draft.cluster);
        return make(draft, body, "the head Service");
    }
    Flow::Next
}

/// The one that gives the hosts of replicas with several of them their names.
pub(super) fn headless(draft: &mut Draft<'_>) -> Flow {
    let Some(name) = build::headless_service_name(&draft.cluster) else { return Flow::Next };
    if draft.pass.child(Kind::Service, &name).is_some_and(|row| draft.pass.controls(row)) {
        return Flow::Next;
    }
    let body = build::headless_service(&draft.cluster, &name);
    make(draft, body, "the Service of its workers")
}

/// The one for Serve, where the RayCluster asks for it. KubeRay says nothing about it.
pub(super) fn serve(draft: &mut Draft<'_>) -> Flow {
    let Some(name) = build::serve_service_name(&draft.cluster) else { return Flow::Next };
    if draft.pass.child(Kind::Service, &name).is_some() {
        return Flow::Next;
    }
    let Some(body) = build::serve_service(&draft.cluster, &name) else {
        draft.failed = true;
        draft.pass.waits_for("annotation ray.io/enable-serve-service needs a port serve of the head's Ray container");
        return Flow::Stop;
    };
    draft.pass.create(Kind::Service, body);
    Flow::Next
}

fn make(draft: &mut Draft<'_>, body: Value, what: &str) -> Flow {
    let name = body["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    let full = draft.pass.full_name(&name);
    if draft.pass.child(Kind::Service, &name).is_some() {
        let text = format!("Service {full} is not this RayCluster's: {what} cannot be made");
        draft.pass.note(true, "FailedToCreateService", "Create", text.clone());
        draft.pass.waits_for(text);
        draft.failed = true;
        return Flow::Stop;
    }
    draft.pass.create(Kind::Service, body);
    draft.pass.note(false, "CreatedService", "Create", format!("Created service {full}"));
    Flow::Next
}

/// Services of the cluster that lead to its head.
pub(super) fn head_services<'a>(draft: &Draft<'a>) -> Vec<&'a Row> {
    let name = draft.pass.row.id.name.clone();
    let owned = draft.pass.tables.owned_by(&draft.pass.row.uid);
    owned
        .filter(|row| {
            row.id.kind == Kind::Service
                && row.label(RAY_CLUSTER_LABEL) == &*name
                && row.label(RAY_NODE_TYPE_LABEL) == "head"
        })
        .collect()
}
