//! Roles and bindings that every cluster with RBAC has from its first moment: those that the recordings show, and that of
//! the administrators. Left out: what is for components of a cluster that are not here, and the roles for people
//! (`admin`, `edit`, `view`), which a controller puts together. Must not know how rules are matched.

use std::sync::Arc;

use serde_json::{Value, json};

use super::authorize::GROUP;
use super::{AUTHENTICATED, MASTERS, UNAUTHENTICATED};
use crate::api::Time;
use crate::api::wire::{Method, Request};
use crate::sandbox::apiserver::Answer;
use crate::sandbox::apiserver::server::ApiServer;

/// Name, rules, and the groups that have them.
fn roles() -> [(&'static str, Value, Vec<&'static str>); 4] {
    let public = ["/healthz", "/livez", "/readyz", "/version", "/version/"];
    let discovery = [
        "/api",
        "/api/*",
        "/apis",
        "/apis/*",
        "/healthz",
        "/livez",
        "/openapi",
        "/openapi/*",
        "/readyz",
        "/version",
        "/version/",
    ];
    let questions = ["selfsubjectaccessreviews", "selfsubjectrulesreviews"];
    [
        (
            "cluster-admin",
            json!([{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}, {"verbs": ["*"], "nonResourceURLs": ["*"]}]),
            vec![MASTERS],
        ),
        (
            "system:basic-user",
            json!([
                {"verbs": ["create"], "apiGroups": ["authorization.k8s.io"], "resources": questions},
                {"verbs": ["create"], "apiGroups": ["authentication.k8s.io"], "resources": ["selfsubjectreviews"]},
            ]),
            vec![AUTHENTICATED],
        ),
        ("system:discovery", json!([{"verbs": ["get"], "nonResourceURLs": discovery}]), vec![AUTHENTICATED]),
        (
            "system:public-info-viewer",
            json!([{"verbs": ["get"], "nonResourceURLs": public}]),
            vec![AUTHENTICATED, UNAUTHENTICATED],
        ),
    ]
}

impl ApiServer {
    /// Makes them in a new server.
    pub(in crate::sandbox::apiserver) fn make_default_roles(&mut self) {
        for (name, rules, groups) in roles() {
            let metadata = json!({
                "name": name,
                "labels": {"kubernetes.io/bootstrapping": "rbac-defaults"},
                "annotations": {"rbac.authorization.kubernetes.io/autoupdate": "true"},
            });
            let version = format!("{GROUP}/v1");
            let role = json!({"apiVersion": version, "kind": "ClusterRole", "metadata": metadata, "rules": rules});
            let subjects: Vec<Value> = groups.iter().map(|g| json!({"kind": "Group", "name": g})).collect();
            let binding = json!({
                "apiVersion": version, "kind": "ClusterRoleBinding", "metadata": metadata, "subjects": subjects,
                "roleRef": {"apiGroup": GROUP, "kind": "ClusterRole", "name": name},
            });
            for (plural, body) in [("clusterroles", role), ("clusterrolebindings", binding)] {
                let body = Arc::from(body.to_string().into_bytes());
                let target = format!("/apis/{GROUP}/v1/{plural}");
                let answer = self.handle(&Request::new(Method::Post, target, "application/json", body), Time(0));
                // Only what stands above is sent: it is taken, or wrong in the source.
                assert!(matches!(&answer, Answer::Reply(reply) if reply.is_success()), "{plural} {name}");
            }
        }
    }
}
