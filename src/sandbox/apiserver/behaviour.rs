//! What the controller relies on, asserted on the server's state and answers.
//! Must not know how the server is built inside.

use std::sync::Arc;

use serde_json::{Value, json};

use super::{Answer, ApiServer, Line, Options, WatchId};
use crate::api::Time;
use crate::api::wire::{Method, Reply, Request};

const NOW: Time = Time(1_764_000_000_000);

struct World(ApiServer);

impl World {
    fn new() -> Self {
        let mut world = Self(ApiServer::new(Options::default()));
        world.ok(Method::Post, "/api/v1/namespaces", json!({"metadata": {"name": "a"}}));
        let crd = json!({
            "metadata": {"name": "widgets.example.dev"},
            "spec": {
                "group": "example.dev", "scope": "Namespaced",
                "names": {"plural": "widgets", "singular": "widget", "kind": "Widget", "listKind": "WidgetList"},
                "versions": [{
                    "name": "v1", "served": true, "storage": true, "subresources": {"status": {}},
                    "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}},
                }],
            },
        });
        world.ok(Method::Post, "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", crd);
        world
    }

    fn send(&mut self, method: Method, target: &str, body: Value) -> Answer {
        let text = if body.is_null() { Vec::new() } else { body.to_string().into_bytes() };
        let kind = if method == Method::Patch { "application/merge-patch+json" } else { "application/json" };
        self.0.handle(&Request::new(method, target, kind, Arc::from(text)), NOW)
    }

    fn reply(&mut self, method: Method, target: &str, body: Value) -> (u16, Value) {
        match self.send(method, target, body) {
            Answer::Reply(Reply { status, body, .. }) => (status, serde_json::from_slice(&body).unwrap()),
            other => panic!("{target}: {other:?}"),
        }
    }

    fn ok(&mut self, method: Method, target: &str, body: Value) -> Value {
        let (status, value) = self.reply(method, target, body);
        assert!((200..300).contains(&status), "{target}: {value}");
        value
    }

    fn watch(&mut self, target: &str) -> WatchId {
        match self.send(Method::Get, target, Value::Null) {
            Answer::Watch(id) => id,
            other => panic!("{target}: {other:?}"),
        }
    }

    /// `TYPE name@version` of each event of a watch; `END`.
    fn events(&mut self, id: WatchId) -> Vec<String> {
        let lines = self.0.take_lines();
        lines
            .into_iter()
            .filter(|(of, _)| *of == id)
            .map(|(_, line)| match line {
                Line::End => "END".to_owned(),
                Line::Event(event) => {
                    let read: Value = serde_json::from_slice(event.text()).unwrap();
                    assert_eq!((&read["type"], &read["object"]), (&event.kind().into(), &**event.object()));
                    format!("{} {}", event.kind(), event.object()["metadata"]["name"].as_str().unwrap_or_default())
                }
            })
            .collect()
    }
}

const WIDGETS: &str = "/apis/example.dev/v1/namespaces/a/widgets";

fn widget(name: &str) -> Value {
    json!({"apiVersion": "example.dev/v1", "kind": "Widget", "metadata": {"name": name}, "spec": {"size": 1}})
}

fn version(object: &Value) -> &str {
    object["metadata"]["resourceVersion"].as_str().unwrap()
}

#[test]
fn a_write_with_a_stale_version_is_a_conflict_and_changes_nothing() {
    let mut world = World::new();
    let first = world.ok(Method::Post, WIDGETS, widget("w"));
    let path = format!("{WIDGETS}/w");
    let second = world.ok(Method::Patch, &path, json!({"spec": {"size": 2}}));
    assert_eq!(second["metadata"]["generation"], 2);
    let (status, reply) = world.reply(Method::Put, &path, first.clone());
    assert_eq!((status, reply["reason"].as_str().unwrap()), (409, "Conflict"));
    let patch = json!({"metadata": {"resourceVersion": version(&first)}, "spec": {"size": 9}});
    assert_eq!(world.reply(Method::Patch, &path, patch).0, 409);
    assert_eq!(world.0.get(&path).unwrap()["spec"]["size"], 2);
    // The status has the same counter.
    let status_put = json!({"apiVersion": "example.dev/v1", "kind": "Widget",
        "metadata": {"name": "w", "resourceVersion": version(&first)}, "status": {"phase": "X"}});
    assert_eq!(world.reply(Method::Put, &format!("{path}/status"), status_put).0, 409);
}

#[test]
fn a_write_to_another_incarnation_is_refused() {
    let mut world = World::new();
    let first = world.ok(Method::Post, WIDGETS, widget("w"));
    let path = format!("{WIDGETS}/w");
    world.ok(Method::Delete, &path, Value::Null);
    let second = world.ok(Method::Post, WIDGETS, widget("w"));
    assert_ne!(first["metadata"]["uid"], second["metadata"]["uid"]);
    let mut put = second.clone();
    put["metadata"]["uid"] = first["metadata"]["uid"].clone();
    assert_eq!(world.reply(Method::Put, &path, put).0, 409);
    let options = json!({"preconditions": {"uid": first["metadata"]["uid"]}});
    assert_eq!(world.reply(Method::Delete, &path, options).0, 409);
    assert!(world.0.get(&path).is_some());
}

#[test]
fn spec_and_status_are_written_apart() {
    let mut world = World::new();
    let mut body = widget("w");
    body["status"] = json!({"phase": "Made"});
    let created = world.ok(Method::Post, WIDGETS, body);
    assert!(created.get("status").is_none());
    let path = format!("{WIDGETS}/w");
    let after =
        world.ok(Method::Patch, &format!("{path}/status"), json!({"spec": {"size": 5}, "status": {"phase": "X"}}));
    assert_eq!((&after["spec"]["size"], &after["status"]["phase"]), (&json!(1), &json!("X")));
    assert_eq!(after["metadata"]["generation"], 1);
    let after = world.ok(Method::Patch, &path, json!({"spec": {"size": 5}, "status": {"phase": "Y"}}));
    assert_eq!((&after["spec"]["size"], &after["status"]["phase"]), (&json!(5), &json!("X")));
}

#[test]
fn a_write_that_changes_nothing_keeps_the_version_and_is_not_told() {
    let mut world = World::new();
    let created = world.ok(Method::Post, WIDGETS, widget("w"));
    let id = world.watch(&format!("{WIDGETS}?watch=1&resourceVersion={}", version(&created)));
    let same = world.ok(Method::Put, &format!("{WIDGETS}/w"), created.clone());
    assert_eq!(version(&same), version(&created));
    assert!(world.events(id).is_empty());
}

#[test]
fn an_object_with_finalizers_stays_until_the_last_is_gone() {
    let mut world = World::new();
    let mut body = widget("w");
    body["metadata"]["finalizers"] = json!(["x.dev/f"]);
    let created = world.ok(Method::Post, WIDGETS, body);
    let id = world.watch(&format!("{WIDGETS}?watch=1&resourceVersion={}", version(&created)));
    let path = format!("{WIDGETS}/w");
    let marked = world.ok(Method::Delete, &path, json!({"propagationPolicy": "Foreground"}));
    assert_eq!(marked["metadata"]["finalizers"], json!(["x.dev/f", "foregroundDeletion"]));
    assert!(marked["metadata"]["deletionTimestamp"].is_string());
    // A second deletion changes nothing; a new finalizer is refused.
    let again = world.ok(Method::Delete, &path, json!({"propagationPolicy": "Foreground"}));
    assert_eq!(version(&again), version(&marked));
    assert_eq!(world.reply(Method::Patch, &path, json!({"metadata": {"finalizers": ["x.dev/new"]}})).0, 422);
    world.ok(Method::Patch, &path, json!({"metadata": {"finalizers": ["foregroundDeletion"]}}));
    assert!(world.0.get(&path).is_some());
    world.ok(Method::Patch, &path, json!({"metadata": {"finalizers": null}}));
    assert!(world.0.get(&path).is_none());
    assert_eq!(world.events(id), ["MODIFIED w", "MODIFIED w", "DELETED w"]);
}

#[test]
fn a_watch_resumes_without_gap_and_without_repetition() {
    let mut world = World::new();
    let first = world.ok(Method::Post, WIDGETS, widget("w1"));
    let target = |v: &str| format!("{WIDGETS}?watch=1&resourceVersion={v}");
    let id = world.watch(&target(version(&first)));
    world.ok(Method::Post, WIDGETS, widget("w2"));
    assert_eq!(world.events(id), ["ADDED w2"]);
    world.0.close_watch(id);
    let seen = world.0.version().to_string();
    world.ok(Method::Post, WIDGETS, widget("w3"));
    world.ok(Method::Delete, &format!("{WIDGETS}/w1"), Value::Null);
    let id = world.watch(&target(&seen));
    assert_eq!(world.events(id), ["ADDED w3", "DELETED w1"]);
    world.ok(Method::Post, WIDGETS, widget("w4"));
    assert_eq!(world.events(id), ["ADDED w4"]);
}

#[test]
fn a_version_that_is_gone_is_told_as_410() {
    let mut world = World::new();
    let first = world.ok(Method::Post, WIDGETS, widget("w1"));
    world.ok(Method::Post, WIDGETS, widget("w2"));
    world.ok(Method::Post, WIDGETS, widget("w3"));
    let page = world.ok(Method::Get, &format!("{WIDGETS}?limit=1"), Value::Null);
    let token = page["metadata"]["continue"].as_str().unwrap().to_owned();
    world.ok(Method::Post, WIDGETS, widget("w4"));
    world.0.compact(world.0.version());
    let id = world.watch(&format!("{WIDGETS}?watch=1&resourceVersion={}", version(&first)));
    assert_eq!(world.events(id), ["ERROR ", "END"]);
    let (status, reply) = world.reply(Method::Get, &format!("{WIDGETS}?limit=1&continue={token}"), Value::Null);
    assert_eq!((status, reply["reason"].as_str().unwrap()), (410, "Expired"));
    // The newest version is still there to watch from.
    let id = world.watch(&format!("{WIDGETS}?watch=1&resourceVersion={}", world.0.version()));
    assert!(world.events(id).is_empty());
}

#[test]
fn pages_show_the_state_of_the_first_one() {
    let mut world = World::new();
    for name in ["a", "b", "c"] {
        world.ok(Method::Post, WIDGETS, widget(name));
    }
    let page = world.ok(Method::Get, &format!("{WIDGETS}?limit=1"), Value::Null);
    assert_eq!(page["metadata"]["remainingItemCount"], 2);
    world.ok(Method::Post, WIDGETS, widget("bb"));
    world.ok(Method::Delete, &format!("{WIDGETS}/c"), Value::Null);
    let token = page["metadata"]["continue"].as_str().unwrap();
    let rest = world.ok(Method::Get, &format!("{WIDGETS}?continue={token}"), Value::Null);
    let names: Vec<&str> =
        rest["items"].as_array().unwrap().iter().map(|i| i["metadata"]["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["b", "c"]);
    assert_eq!(rest["metadata"]["resourceVersion"], page["metadata"]["resourceVersion"]);
}

#[test]
fn selectors_of_a_watch_turn_changes_into_coming_and_going() {
    let mut world = World::new();
    let id = world.watch(&format!("{WIDGETS}?watch=1&labelSelector=s%3D1"));
    world.ok(Method::Post, WIDGETS, widget("w"));
    let path = format!("{WIDGETS}/w");
    for labels in [json!({"s": "1"}), json!({"s": "1", "q": "1"}), json!({"s": "2"}), json!({"s": "1"})] {
        world.ok(Method::Patch, &path, json!({"metadata": {"labels": labels}}));
    }
    world.ok(Method::Delete, &path, Value::Null);
    assert_eq!(world.events(id), ["ADDED w", "MODIFIED w", "DELETED w", "ADDED w", "DELETED w"]);
}

#[test]
fn bookmarks_and_the_end_of_a_watch_come_with_time() {
    let mut world = World::new();
    let id = world.watch(&format!("{WIDGETS}?watch=1&allowWatchBookmarks=true&timeoutSeconds=10"));
    assert_eq!(world.events(id), ["BOOKMARK "]);
    let first = world.0.next_tick().unwrap();
    world.0.tick(first);
    assert_eq!(world.events(id), ["BOOKMARK "]);
    let end = world.0.next_tick().unwrap();
    assert_eq!(end.since(NOW).as_secs(), 10);
    world.0.tick(end);
    assert_eq!(world.events(id), ["END"]);
    assert_eq!(world.0.next_tick(), None);
}

#[test]
fn nothing_is_created_in_a_namespace_that_is_missing_or_ending() {
    let mut world = World::new();
    let missing = "/api/v1/namespaces/none/configmaps";
    assert_eq!(world.reply(Method::Post, missing, json!({"metadata": {"name": "c"}})).0, 404);
    world.ok(Method::Delete, "/api/v1/namespaces/a", Value::Null);
    let (status, reply) = world.reply(Method::Post, WIDGETS, widget("w"));
    assert_eq!((status, reply["details"]["causes"][0]["reason"].as_str().unwrap()), (403, "NamespaceTerminating"));
}

#[test]
fn a_pod_on_a_node_is_deleted_with_grace_and_one_without_at_once() {
    let mut world = World::new();
    let pods = "/api/v1/namespaces/a/pods";
    let pod = |name: &str, node: Value| {
        json!({"metadata": {"name": name},
            "spec": {"containers": [{"name": "c", "image": "i"}], "nodeName": node, "serviceAccountName": "default"}})
    };
    world.ok(Method::Post, "/api/v1/namespaces/a/serviceaccounts", json!({"metadata": {"name": "default"}}));
    world.ok(Method::Post, pods, pod("bound", json!("n1")));
    let marked = world.ok(Method::Delete, &format!("{pods}/bound"), Value::Null);
    assert_eq!(marked["metadata"]["deletionGracePeriodSeconds"], 30);
    world.ok(Method::Delete, &format!("{pods}/bound?gracePeriodSeconds=0"), Value::Null);
    assert!(world.0.get(&format!("{pods}/bound")).is_none());
    world.ok(Method::Post, pods, pod("free", Value::Null));
    world.ok(Method::Delete, &format!("{pods}/free"), Value::Null);
    assert!(world.0.get(&format!("{pods}/free")).is_none());
}

#[test]
fn the_same_requests_give_the_same_answers() {
    let run = || {
        let mut world = World::new();
        let a = world.ok(Method::Post, WIDGETS, widget("w"));
        let b = world.ok(
            Method::Post,
            WIDGETS,
            json!({"apiVersion": "example.dev/v1", "kind": "Widget",
            "metadata": {"generateName": "g-"}}),
        );
        (a, b)
    };
    assert_eq!(run(), run());
}

#[test]
fn a_quota_counts_what_is_there_and_refuses_one_more_until_something_ends() {
    let mut world = World::new();
    world.ok(Method::Post, "/api/v1/namespaces/a/serviceaccounts", json!({"metadata": {"name": "default"}}));
    let quota = |name: &str, hard: Value| json!({"metadata": {"name": name}, "spec": {"hard": hard}});
    const QUOTAS: &str = "/api/v1/namespaces/a/resourcequotas";
    const PODS: &str = "/api/v1/namespaces/a/pods";
    world.ok(
        Method::Post,
        QUOTAS,
        quota("q", json!({"count/widgets.example.dev": "1", "requests.cpu": "3", "pods": "9"})),
    );
    let says = |world: &mut World, target: &str, body: Value| -> String {
        let (status, reply) = world.reply(Method::Post, target, body);
        if status == 201 { String::new() } else { reply["message"].as_str().unwrap_or_default().to_owned() }
    };
    let pod = |name: &str, resources: Value| json!({"metadata": {"name": name}, "spec": {"containers": [{"name": "c", "image": "i", "resources": resources}]}});
    let two = || json!({"requests": {"cpu": "2"}});
    assert_eq!(says(&mut world, WIDGETS, widget("one")), "");
    assert_eq!(
        says(&mut world, WIDGETS, widget("two")),
        "widgets.example.dev \"two\" is forbidden: exceeded quota: q, requested: count/widgets.example.dev=1, \
         used: count/widgets.example.dev=1, limited: count/widgets.example.dev=1"
    );
    assert_eq!(
        says(&mut world, PODS, pod("p", json!({}))),
        "pods \"p\" is forbidden: failed quota: q: must specify requests.cpu for: c"
    );
    assert_eq!(says(&mut world, PODS, pod("p", two())), "");
    assert_eq!(
        says(&mut world, PODS, pod("r", two())),
        "pods \"r\" is forbidden: exceeded quota: q, requested: requests.cpu=2, used: requests.cpu=2, limited: requests.cpu=3"
    );
    // What has ended asks for nothing any more.
    world.ok(Method::Patch, &format!("{PODS}/p/status"), json!({"status": {"phase": "Succeeded"}}));
    assert_eq!(says(&mut world, PODS, pod("r", two())), "");
    // In another namespace it counts nothing.
    world.ok(Method::Post, "/api/v1/namespaces", json!({"metadata": {"name": "b"}}));
    assert_eq!(says(&mut world, "/apis/example.dev/v1/namespaces/b/widgets", widget("two")), "");
    let scoped = json!({"metadata": {"name": "s"}, "spec": {"hard": {"pods": "1"}, "scopes": ["BestEffort"]}});
    assert!(says(&mut world, QUOTAS, scoped).contains("not supported by the sandbox"));
    let (status, _) = world.reply(Method::Patch, &format!("{QUOTAS}/q"), json!({"spec": {"scopes": ["BestEffort"]}}));
    assert_eq!(status, 422);
}

#[test]
fn calls_into_a_pod_name_what_is_missing_before_they_refuse() {
    let mut world = World::new();
    world.ok(Method::Post, "/api/v1/namespaces/a/serviceaccounts", json!({"metadata": {"name": "default"}}));
    let pod = json!({"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    world.ok(Method::Post, "/api/v1/namespaces/a/pods", pod);
    for call in ["exec?command=x", "attach", "portforward"] {
        let path = |name: &str| format!("/api/v1/namespaces/a/pods/{name}/{call}");
        assert_eq!(world.reply(Method::Post, &path("none"), Value::Null).0, 404, "{call}");
        assert_eq!(world.reply(Method::Post, &path("p"), Value::Null).0, 400, "{call}");
    }
}
