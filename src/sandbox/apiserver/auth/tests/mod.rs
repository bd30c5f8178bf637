//! A server with users, for tests, and what it does with whoever asks. The recorded texts are compared elsewhere.

mod reviews;
mod rights;
mod rules;
mod tokens;

use std::sync::Arc;

use serde_json::{Value, json};

use super::{Bearer, Credentials, MASTERS, User, Users};
use crate::api::Time;
use crate::api::wire::{Method, Reply, Request};
use crate::sandbox::apiserver::{Answer, ApiServer, Options};

const NOW: Time = Time(1_764_000_000_000);
const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const ACCOUNT: &str = "/api/v1/namespaces/default/serviceaccounts/default";

fn rule(verbs: &[&str], groups: &[&str], resources: &[&str], names: &[&str]) -> Value {
    json!({"verbs": verbs, "apiGroups": groups, "resources": resources, "resourceNames": names})
}

/// A server that knows two people, an administrator and one who is nobody.
struct World(ApiServer);

fn of(token: &str) -> Credentials {
    Credentials::token(token)
}

impl World {
    fn new() -> Self {
        let users = Users::new("https://here")
            .with("admin-token", User::new("admin", &[MASTERS]))
            .with("bob-token", User::new("bob", &["dev"]));
        Self(ApiServer::new(Options { auth: Some(Arc::new(users)), ..Options::default() }))
    }

    fn send(&mut self, by: &Credentials, method: Method, target: &str, body: &Value) -> (u16, Value) {
        self.send_at(by, method, target, body, NOW)
    }

    fn send_at(&mut self, by: &Credentials, method: Method, target: &str, body: &Value, now: Time) -> (u16, Value) {
        let text = if body.is_null() { Vec::new() } else { body.to_string().into_bytes() };
        let kind = if method == Method::Patch { "application/merge-patch+json" } else { "application/json" };
        match self.0.serve(&Request::new(method, target, kind, Arc::from(text)), by, now) {
            Answer::Reply(Reply { status, body, .. }) => (status, serde_json::from_slice(&body).unwrap_or_default()),
            other => panic!("{target}: {other:?}"),
        }
    }

    /// As the administrator, who must succeed.
    fn make(&mut self, target: &str, body: &Value) -> Value {
        let (status, made) = self.send(&of("admin-token"), Method::Post, target, body);
        assert_eq!(status, 201, "{target} {made}");
        made
    }

    fn bind(&mut self, name: &str, rules: &Value, subject: &Value) {
        const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1/namespaces/default";
        self.make(&format!("{RBAC}/roles"), &json!({"metadata": {"name": name}, "rules": rules}));
        let role = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name});
        let binding = json!({"metadata": {"name": name}, "roleRef": role, "subjects": [subject]});
        self.make(&format!("{RBAC}/rolebindings"), &binding);
    }
}

#[test]
fn without_users_everybody_may_do_everything() {
    let mut server = ApiServer::new(Options::default());
    for bearer in [Bearer::Nobody, Bearer::Token("whatever".into())] {
        let credentials = Credentials { bearer, ..Credentials::default() };
        let Answer::Reply(reply) = server.serve(&Request::get("/api/v1/secrets"), &credentials, NOW) else {
            panic!("a list is a reply")
        };
        assert_eq!(reply.status, 200);
    }
}

#[test]
fn the_server_itself_is_asked_nothing() {
    let mut world = World::new();
    let Answer::Reply(reply) = world.0.handle(&Request::get("/api/v1/secrets"), NOW) else {
        panic!("a list is a reply")
    };
    assert_eq!(reply.status, 200);
}

#[test]
fn rights_come_and_go_with_their_objects() {
    let mut world = World::new();
    let bob = of("bob-token");
    assert_eq!(world.send(&bob, Method::Get, MAPS, &Value::Null).0, 403);
    world.bind("r", &json!([rule(&["list"], &[""], &["configmaps"], &[])]), &json!({"kind": "Group", "name": "dev"}));
    assert_eq!(world.send(&bob, Method::Get, MAPS, &Value::Null).0, 200);
    assert_eq!(world.send(&bob, Method::Get, "/api/v1/configmaps", &Value::Null).0, 403);
    let role = "/apis/rbac.authorization.k8s.io/v1/namespaces/default/roles/r";
    assert_eq!(world.send(&of("admin-token"), Method::Delete, role, &Value::Null).0, 200);
    let (status, refusal) = world.send(&bob, Method::Get, MAPS, &Value::Null);
    assert_eq!(status, 403);
    let why = "RBAC: role.rbac.authorization.k8s.io \"r\" not found";
    assert!(refusal["message"].as_str().unwrap().ends_with(why), "{refusal}");
}

#[test]
fn tokens_are_neither_shown_nor_kept() {
    let world = World::new();
    let shown = format!("{:?}", world.0);
    assert!(!shown.contains("bob-token") && !shown.contains("admin-token"));
    assert!(shown.contains("\"bob\""));
}
