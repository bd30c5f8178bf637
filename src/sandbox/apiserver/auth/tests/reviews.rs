//! Reviews.

use super::*;

#[test]
fn reviews_answer_as_requests_would_be() {
    const REVIEWS: &str = "/apis/authorization.k8s.io/v1";
    let mut world = World::new();
    let read = rule(&["list"], &[""], &["configmaps"], &[]);
    world.bind("r", &json!([read]), &json!({"kind": "ServiceAccount", "name": "default", "namespace": "default"}));
    let user = "system:serviceaccount:default:default";
    let asked = |namespace: &str| json!({"namespace": namespace, "verb": "list", "resource": "configmaps"});
    let review = |namespace: &str| json!({"spec": {"user": user, "resourceAttributes": asked(namespace)}});
    let status = world.make(&format!("{REVIEWS}/subjectaccessreviews"), &review("default"))["status"].clone();
    let reason = "RBAC: allowed by RoleBinding \"r/default\" of Role \"r\" to ServiceAccount \"default/default\"";
    assert_eq!(status, json!({"allowed": true, "reason": reason}));
    let status = world.make(&format!("{REVIEWS}/subjectaccessreviews"), &review("kube-system"))["status"].clone();
    assert_eq!(status, json!({"allowed": false}));
    let local = format!("{REVIEWS}/namespaces/default/localsubjectaccessreviews");
    assert_eq!(world.make(&local, &review("default"))["status"]["allowed"], true);
    for (target, body) in [
        (format!("{REVIEWS}/subjectaccessreviews"), json!({"spec": {"resourceAttributes": asked("default")}})),
        (format!("{REVIEWS}/subjectaccessreviews"), json!({"spec": {"user": "bob"}})),
        (local.clone(), review("kube-system")),
        (local, json!({"spec": {"user": "bob", "nonResourceAttributes": {"path": "/", "verb": "get"}}})),
    ] {
        assert_eq!(world.send(&of("admin-token"), Method::Post, &target, &body).0, 422, "{body}");
    }
    let rules = world.make(&format!("{REVIEWS}/selfsubjectrulesreviews"), &json!({"spec": {"namespace": "default"}}));
    let all = json!({"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]});
    assert!(rules["status"]["resourceRules"].as_array().unwrap().contains(&all), "{rules}");
}

#[test]
fn without_users_nobody_can_be_asked_about() {
    let mut world = World(ApiServer::new(Options::default()));
    for (target, body) in [
        ("/apis/authentication.k8s.io/v1/selfsubjectreviews".to_owned(), json!({})),
        (format!("{ACCOUNT}/token"), json!({"spec": {}})),
    ] {
        assert_eq!(world.send(&Credentials::default(), Method::Post, &target, &body).0, 501, "{target}");
    }
}
