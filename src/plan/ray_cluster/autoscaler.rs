//! What lets Ray's autoscaler work beside the head: ServiceAccount, Role, RoleBinding (specs/raycluster.md 4.6).
//! Must not know its container.

use serde_json::Value;

use super::Draft;
use crate::api::Kind;
use crate::api::ray::RayCluster;
use crate::plan::build;
use crate::plan::pass::{Beside, Flow};

/// What it needs: kinds and names.
pub(super) fn wanted(cluster: &RayCluster) -> Vec<(Kind, String)> {
    if !cluster.spec.autoscaling() {
        return Vec::new();
    }
    let role = build::role_name(cluster);
    vec![(Kind::ServiceAccount, build::account_name(cluster)), (Kind::Role, role.clone()), (Kind::RoleBinding, role)]
}

/// Makes what is missing. The head waits for the ServiceAccount: an API server refuses its pod without.
pub(super) fn objects(draft: &mut Draft<'_>) -> Flow {
    if !draft.cluster.spec.autoscaling() {
        return Flow::Next;
    }
    let account = build::account_name(&draft.cluster);
    match draft.pass.beside(Kind::ServiceAccount, &account) {
        Beside::There(_) | Beside::Unread => {}
        Beside::Missing if build::own_account(&draft.cluster).is_some() => {
            let name = draft.pass.full_name(&account);
            let text = format!("ServiceAccount {name}, which the head's template names, is not there");
            draft.pass.note(true, "AutoscalerServiceAccountNotFound", "Validate", text.clone());
            draft.pass.waits_for(text);
            draft.failed = true;
            return Flow::Stop;
        }
        Beside::Missing => {
            let body = build::account(&draft.cluster);
            make(draft, Kind::ServiceAccount, body, "service account");
            draft.head_waits_for = Some("the ServiceAccount of its head is being made");
        }
    }
    let name = build::role_name(&draft.cluster);
    for (kind, body, words) in
        [(Kind::Role, build::role as fn(&_) -> Value, "role"), (Kind::RoleBinding, build::role_binding, "role binding")]
    {
        if let Beside::Missing = draft.pass.beside(kind, &name) {
            let body = body(&draft.cluster);
            make(draft, kind, body, words);
        }
    }
    Flow::Next
}

fn make(draft: &mut Draft<'_>, kind: Kind, body: Value, words: &str) {
    let name = draft.pass.full_name(body["metadata"]["name"].as_str().unwrap_or_default());
    draft.pass.create(kind, body);
    draft.pass.note(false, &format!("Created{kind}"), "Create", format!("Created {words} {name}"));
}
