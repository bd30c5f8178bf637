//! Rules and bindings by tables.

use std::sync::Arc;

use serde_json::json;

use super::rule;
use crate::api::wire::{Method, Request};
use crate::sandbox::apiserver::auth::attributes::Attributes;
use crate::sandbox::apiserver::auth::{User, rbac};

fn asks(method: Method, target: &str) -> Attributes {
    Attributes::of(&Request::new(method, target, "", Arc::from([])))
}

#[test]
fn a_rule_allows_what_all_of_its_lists_have() {
    use Method::{Delete, Get, Post, Put};
    const POD: &str = "/api/v1/namespaces/a/pods/p";
    const PODS: &str = "/api/v1/namespaces/a/pods";
    for (rule, method, target, allowed) in [
        (rule(&["get"], &[""], &["pods"], &[]), Get, POD, true),
        (rule(&["get"], &[""], &["pods"], &[]), Get, PODS, false),
        (rule(&["list"], &[""], &["pods"], &[]), Get, PODS, true),
        (rule(&["list"], &[""], &["pods"], &[]), Get, "/api/v1/pods?watch=1", false),
        (rule(&["*"], &[""], &["pods"], &[]), Delete, PODS, true),
        (rule(&["get"], &["apps"], &["pods"], &[]), Get, POD, false),
        (rule(&["get"], &["*"], &["pods"], &[]), Get, POD, true),
        (rule(&["get"], &["apps", ""], &["nodes", "pods"], &[]), Get, POD, true),
        // A resource is not its parts, and a part not its resource.
        (rule(&["get"], &[""], &["pods"], &[]), Get, "/api/v1/namespaces/a/pods/p/log", false),
        (rule(&["get"], &[""], &["pods/log"], &[]), Get, "/api/v1/namespaces/a/pods/p/log", true),
        (rule(&["get"], &[""], &["pods/log"], &[]), Get, POD, false),
        (rule(&["get"], &[""], &["*/log"], &[]), Get, "/api/v1/namespaces/a/pods/p/log", true),
        (rule(&["get"], &[""], &["*/log"], &[]), Get, POD, false),
        (rule(&["get"], &[""], &["pods/*"], &[]), Get, "/api/v1/namespaces/a/pods/p/log", false),
        (rule(&["*"], &["*"], &["*"], &[]), Put, "/apis/x.dev/v1/namespaces/a/widgets/w/status", true),
        // Names: also of a list that asks for one object; never of a creation.
        (rule(&["get"], &[""], &["pods"], &["p"]), Get, POD, true),
        (rule(&["get"], &[""], &["pods"], &["q", "r"]), Get, POD, false),
        (rule(&["get"], &[""], &["pods"], &["*"]), Get, POD, false),
        (rule(&["list"], &[""], &["pods"], &["p"]), Get, PODS, false),
        (rule(&["list"], &[""], &["pods"], &["p"]), Get, &format!("{PODS}?fieldSelector=metadata.name%3Dp"), true),
        (rule(&["create"], &[""], &["pods"], &["p"]), Post, PODS, false),
        // Paths.
        (json!({"verbs": ["get"], "nonResourceURLs": ["/metrics"]}), Get, "/metrics", true),
        (json!({"verbs": ["get"], "nonResourceURLs": ["/metrics"]}), Get, "/metrics/a", false),
        (json!({"verbs": ["get"], "nonResourceURLs": ["/metrics/*"]}), Get, "/metrics/a/b", true),
        (json!({"verbs": ["get"], "nonResourceURLs": ["/metrics/*"]}), Get, "/metrics", false),
        (json!({"verbs": ["post"], "nonResourceURLs": ["*"]}), Get, "/metrics", false),
        (json!({"verbs": ["*"], "nonResourceURLs": ["*"]}), Get, "/metrics", true),
        (json!({"verbs": ["*"], "nonResourceURLs": ["*"]}), Get, POD, false),
        (rule(&["*"], &["*"], &["*"], &[]), Get, "/metrics", false),
        (json!({}), Get, POD, false),
    ] {
        assert_eq!(rbac::allows(&rule, &asks(method, target)), allowed, "{rule} {method:?} {target}");
    }
}

#[test]
fn a_binding_means_users_groups_and_service_accounts_by_name() {
    let bob = User::new("bob", &["dev"]);
    let account = User::new("system:serviceaccount:a:s", &["system:serviceaccounts"]);
    for (subject, user, namespace, meant) in [
        (json!({"kind": "User", "name": "bob"}), &bob, "", true),
        (json!({"kind": "User", "name": "dev"}), &bob, "", false),
        (json!({"kind": "User", "name": "*"}), &bob, "", false),
        (json!({"kind": "Group", "name": "dev"}), &bob, "", true),
        (json!({"kind": "Group", "name": "bob"}), &bob, "", false),
        (json!({"kind": "ServiceAccount", "name": "s", "namespace": "a"}), &account, "", true),
        (json!({"kind": "ServiceAccount", "name": "s", "namespace": "b"}), &account, "a", false),
        (json!({"kind": "ServiceAccount", "name": "s"}), &account, "a", true),
        (json!({"kind": "ServiceAccount", "name": "s"}), &account, "", false),
        (json!({"kind": "User", "name": "system:serviceaccount:a:s"}), &account, "", true),
        (json!({"kind": "Group", "name": "system:serviceaccounts"}), &account, "", true),
        (json!({"kind": "ServiceAccount", "name": "bob", "namespace": "a"}), &bob, "", false),
    ] {
        assert_eq!(rbac::is_subject(&subject, user, namespace), meant, "{subject} {} {namespace:?}", user.name);
    }
}

#[test]
fn rules_are_covered_part_by_part() {
    let read = rule(&["get", "list"], &[""], &["pods"], &[]);
    let urls = |all: &[&str]| json!({"verbs": ["get"], "nonResourceURLs": all});
    for (held, wanted, left) in [
        (vec![read.clone()], rule(&["get"], &[""], &["pods"], &[]), 0),
        (vec![read.clone()], rule(&["get"], &[""], &["pods"], &["p"]), 0),
        (vec![read.clone()], rule(&["get", "delete"], &[""], &["pods", "nodes"], &[]), 3),
        (vec![read.clone()], rule(&["*"], &[""], &["pods"], &[]), 1),
        (vec![read.clone()], rule(&["get"], &["*"], &["pods"], &[]), 1),
        (
            vec![read.clone(), rule(&["delete"], &[""], &["pods"], &[])],
            rule(&["get", "delete"], &[""], &["pods"], &[]),
            0,
        ),
        (vec![rule(&["get"], &[""], &["pods"], &["p"])], rule(&["get"], &[""], &["pods"], &[]), 1),
        (vec![rule(&["get"], &[""], &["pods"], &["p"])], rule(&["get"], &[""], &["pods"], &["p", "q"]), 1),
        (vec![rule(&["*"], &["*"], &["*"], &[])], rule(&["*"], &["*"], &["*", "a/b", "*/c"], &[]), 0),
        (vec![rule(&["*"], &["*"], &["*"], &[])], urls(&["/metrics"]), 1),
        (vec![rule(&["*"], &["*"], &["*/log"], &[])], rule(&["get"], &[""], &["pods/log", "pods"], &[]), 1),
        (vec![urls(&["/a/*"])], urls(&["/a/b", "/a/*", "/b", "*"]), 2),
        (vec![urls(&["*"])], rule(&["get"], &[""], &["pods"], &[]), 1),
        (vec![], json!({}), 0),
    ] {
        assert_eq!(rbac::uncovered(&held, std::slice::from_ref(&wanted)).len(), left, "{held:?} {wanted}");
    }
}
