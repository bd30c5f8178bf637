//! The server over TCP and within the process.

use std::sync::{Arc, Mutex};

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::sync::mpsc::{Receiver, Sender, channel};

use super::*;
use crate::api::Time;
use crate::api::wire::{Method, Reply, Request};
use crate::sandbox::apiserver::auth::{User, Users};
use crate::sandbox::apiserver::{ApiServer, LogCall, Options, ProxyCall};

fn server() -> Arc<SharedServer> {
    SharedServer::new(ApiServer::new(Options::default()), wall_clock())
}

async fn listening(server: &Arc<SharedServer>) -> Listening {
    listen(0, server.clone(), Access::token("t"), Arc::new(Nothing), Arc::new(Nothing)).await.unwrap()
}

fn post(server: &Arc<SharedServer>, path: &str, body: &Value) -> Value {
    let body = Arc::from(body.to_string().into_bytes());
    let reply = server.ask(&Request::new(Method::Post, path, "application/json", body));
    assert_eq!(reply.status, 201, "{}", String::from_utf8_lossy(&reply.body));
    serde_json::from_slice(&reply.body).unwrap()
}

fn config_map(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}})
}

async fn get(url: &str, token: Option<&str>) -> http::Response<hyper::body::Incoming> {
    let client: Client<_, Full<Bytes>> = Client::builder(TokioExecutor::new()).build_http();
    let mut request = http::Request::get(url);
    if let Some(token) = token {
        request = request.header("authorization", format!("Bearer {token}"));
    }
    client.request(request.body(Full::default()).unwrap()).await.unwrap()
}

async fn text(response: http::Response<hyper::body::Incoming>) -> String {
    String::from_utf8(response.into_body().collect().await.unwrap().to_bytes().to_vec()).unwrap()
}

#[tokio::test]
async fn people_of_a_server_ask_beside_its_own_token() {
    let users = Users::new("https://here").with("of-bob", User::new("bob", &["dev"]));
    let options = Options { auth: Some(Arc::new(users)), ..Options::default() };
    let server = SharedServer::new(ApiServer::new(options), wall_clock());
    let listening = listening(&server).await;
    let url = format!("{}{MAPS}", listening.url());
    let who = "\"system:anonymous\"";
    for (url, token, status, says) in [
        (url.clone(), Some("t"), 200, "ConfigMapList"),
        (format!("{}/t{MAPS}", listening.url()), None, 200, "ConfigMapList"),
        (url.clone(), Some("of-bob"), 403, "\"bob\""),
        (url.clone(), Some("of-nobody"), 401, "Unauthorized"),
        (url, None, 403, who),
    ] {
        let response = get(&url, token).await;
        assert_eq!(response.status(), status, "{token:?}");
        let text = text(response).await.replace("\\\"", "\"");
        assert!(text.contains(says) && !text.contains("of-"), "{text}");
    }
    let client: Client<_, Full<Bytes>> = Client::builder(TokioExecutor::new()).build_http();
    let as_bob = http::Request::get(format!("{}/t{MAPS}", listening.url())).header("impersonate-user", "bob");
    let response = client.request(as_bob.body(Full::default()).unwrap()).await.unwrap();
    assert_eq!(response.status(), 403);
}

const MAPS: &str = "/api/v1/namespaces/default/configmaps";

#[tokio::test]
async fn each_event_of_a_watch_arrives_at_once_and_the_stream_ends_cleanly() {
    let server = server();
    let listening = listening(&server).await;
    let url = format!("{}{MAPS}?watch=1&timeoutSeconds=1", listening.url());
    let mut body = get(&url, Some("t")).await.into_body();
    for name in ["a", "b"] {
        post(&server, MAPS, &config_map(name));
        let frame = body.frame().await.unwrap().unwrap().into_data().unwrap();
        assert_eq!(frame.last(), Some(&b'\n'));
        let event: Value = serde_json::from_slice(&frame).unwrap();
        assert_eq!((&event["type"], &event["object"]["metadata"]["name"]), (&json!("ADDED"), &json!(name)));
    }
    // The server's own time-out, not a broken connection.
    assert!(body.frame().await.is_none());
    listening.stop().await;
}

#[tokio::test]
async fn a_watch_that_nobody_reads_any_more_is_closed() {
    let server = server();
    let Called::Watch(stream) = server.call(&Request::get(format!("{MAPS}?watch=1"))) else { panic!("no watch") };
    assert!(server.with(|s, _| s.next_tick()).is_some());
    drop(stream);
    assert_eq!(server.with(|s, _| s.next_tick()), None);
}

#[tokio::test]
async fn without_the_token_only_version_and_health_are_told() {
    let server = server();
    let listening = listening(&server).await;
    let url = |path: &str| format!("{}{path}", listening.url());
    assert_eq!(get(&url("/readyz"), None).await.status(), 200);
    assert_eq!(get(&url("/version"), None).await.status(), 200);
    let refused = get(&url(MAPS), None).await;
    assert_eq!(refused.status(), 403);
    assert!(
        text(refused).await.contains("configmaps is forbidden: User \\\"system:anonymous\\\" cannot list resource")
    );
    let wrong = get(&url("/readyz"), Some("x")).await;
    assert_eq!(wrong.status(), 401);
    assert_eq!(serde_json::from_str::<Value>(&text(wrong).await).unwrap()["message"], "Unauthorized");
    assert_eq!(get(&url(MAPS), Some("t")).await.status(), 200);
    // kubectl sends no token over plain HTTP: it stands in the path.
    assert_eq!(get(&url(&format!("/t{MAPS}")), None).await.status(), 200);
    assert_eq!(get(&url(&format!("/tt{MAPS}")), None).await.status(), 403);
}

/// Against the recordings: what callers without a token are told.
#[test]
fn refusals_are_the_recorded_ones() {
    let root = std::env::var("RAYFLEET_SHARED")
        .unwrap_or_else(|_| concat!(env!("CARGO_MANIFEST_DIR"), "/../shared").to_owned());
    let Ok(topic) = std::fs::read_to_string(format!("{root}/kube-api/auth.json")) else {
        kit::skipped::note("the recordings of kube-api cannot be read; set RAYFLEET_SHARED");
        return;
    };
    let topic: Value = serde_json::from_str(&topic).unwrap();
    let mut compared = 0;
    for exchange in topic["cases"][0]["exchanges"].as_array().unwrap() {
        let (request, response) = (&exchange["request"], &exchange["response"]);
        let given = match request["token"].as_str() {
            Some("none") => None,
            Some("wrong") => Some("Bearer wrong"),
            _ => continue,
        };
        let (method, path) = (request["method"].as_str().unwrap(), request["path"].as_str().unwrap());
        let refusal = Access::token("right").admit(given, method, path).err();
        assert_eq!(refusal.as_ref().map_or(200, |r| r.status), response["status"].as_u64().unwrap() as u16, "{path}");
        if let Some(refusal) = refusal {
            assert_eq!(serde_json::from_slice::<Value>(&refusal.body).unwrap(), response["body"], "{path}");
        }
        compared += 1;
    }
    assert!(compared >= 15, "{compared}");
}

#[tokio::test]
async fn a_port_in_use_is_said_so() {
    let server = server();
    let first = listening(&server).await;
    let port = first.address().port();
    let error =
        listen(port, server.clone(), Access::token("t"), Arc::new(Nothing), Arc::new(Nothing)).await.unwrap_err();
    assert_eq!(error.to_string(), format!("port {port} on 127.0.0.1 is in use"));
    first.stop().await;
    // And it is free again at once.
    listen(port, server, Access::token("t"), Arc::new(Nothing), Arc::new(Nothing)).await.unwrap();
}

#[tokio::test]
async fn kube_is_served_within_the_process() {
    let server = server();
    post(&server, MAPS, &config_map("a"));
    let service = ApiService::new(server, None, Arc::new(Nothing), Arc::new(Nothing));
    let client = kube::Client::new(service, "default");
    let maps: kube::Api<k8s_openapi::api::core::v1::ConfigMap> = kube::Api::default_namespaced(client);
    let found = maps.list(&kube::api::ListParams::default()).await.unwrap();
    assert_eq!(found.items[0].metadata.name.as_deref(), Some("a"));
}

struct OnePort(u16);

impl Backends for OnePort {
    fn find(&self, call: &ProxyCall, _: Time) -> Option<Backend> {
        (call.service == "s").then_some(Backend::Port(self.0))
    }
}

fn service_with_endpoints(server: &Arc<SharedServer>) {
    let service = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "s"},
        "spec": {"ports": [{"name": "dashboard", "port": 8265}]}});
    post(server, "/api/v1/namespaces/default/services", &service);
    let endpoints = json!({"apiVersion": "v1", "kind": "Endpoints", "metadata": {"name": "s"},
        "subsets": [{"addresses": [{"ip": "10.0.0.1"}], "ports": [{"name": "dashboard", "port": 8265}]}]});
    post(server, "/api/v1/namespaces/default/endpoints", &endpoints);
}

#[tokio::test]
async fn the_service_proxy_reaches_a_real_port() {
    let behind = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = behind.local_addr().unwrap().port();
    let asked = tokio::spawn(async move {
        let (mut stream, _) = behind.accept().await.unwrap();
        let mut seen = Vec::new();
        while !seen.ends_with(b"\r\n\r\n") {
            seen.push(stream.read_u8().await.unwrap());
        }
        stream.write_all(b"HTTP/1.1 418 Teapot\r\nx-y: z\r\ncontent-length: 2\r\n\r\nhi").await.unwrap();
        String::from_utf8(seen).unwrap()
    });
    let server = server();
    service_with_endpoints(&server);
    let listening = listen(0, server, Access::token("t"), Arc::new(OnePort(port)), Arc::new(Nothing)).await.unwrap();
    let url = format!("{}/api/v1/namespaces/default/services/s:dashboard/proxy/api/jobs/?a=b", listening.url());
    let response = get(&url, Some("t")).await;
    assert_eq!((response.status().as_u16(), response.headers()["x-y"].to_str().unwrap()), (418, "z"));
    assert_eq!(text(response).await, "hi");
    assert!(asked.await.unwrap().starts_with("GET /api/jobs/?a=b HTTP/1.1\r\n"));
    // Nobody listens there any more.
    let response = get(&url, Some("t")).await;
    assert_eq!(response.status(), 503);
    assert!(text(response).await.contains("error trying to reach service: dial tcp 127.0.0.1"));
}

struct OneLog(Mutex<Option<Receiver<Bytes>>>);

impl Logs for OneLog {
    fn open(&self, call: &LogCall, _: Time) -> Result<Receiver<Bytes>, Reply> {
        assert!(call.follow);
        Ok(self.0.lock().unwrap().take().unwrap())
    }
}

#[tokio::test]
async fn a_log_is_followed_until_its_end() {
    let server = server();
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"},
        "spec": {"containers": [{"name": "c", "image": "i"}]}});
    post(&server, "/api/v1/namespaces/default/pods", &pod);
    let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}});
    post(&server, "/api/v1/nodes", &node);
    let bound = json!({"apiVersion": "v1", "kind": "Binding", "metadata": {"name": "p"}, "target": {"name": "n"}});
    post(&server, "/api/v1/namespaces/default/pods/p/binding", &bound);
    let (pieces, received): (Sender<Bytes>, _) = channel(1);
    let logs = Arc::new(OneLog(Mutex::new(Some(received))));
    let listening = listen(0, server, Access::token("t"), Arc::new(Nothing), logs).await.unwrap();
    let url = format!("{}/api/v1/namespaces/default/pods/p/log?follow=true", listening.url());
    let mut body = get(&url, Some("t")).await.into_body();
    for piece in ["one\n", "two\n"] {
        pieces.send(piece.into()).await.unwrap();
        assert_eq!(body.frame().await.unwrap().unwrap().into_data().unwrap(), piece);
    }
    drop(pieces);
    assert!(body.frame().await.is_none());
}

#[test]
fn the_kubeconfig_has_one_context_for_each_server() {
    let entry = |name: &str| KubeconfigEntry {
        name: name.into(),
        url: "http://127.0.0.1:1".into(),
        token: format!("token-{name}"),
    };
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("kubeconfig");
    write_kubeconfig(&path, &[entry("hub"), entry("m1")]).unwrap();
    let read = kube::config::Kubeconfig::read_from(&path).unwrap();
    assert_eq!(read.current_context.as_deref(), Some("hub"));
    let names: Vec<&str> = read.contexts.iter().map(|c| c.name.as_str()).collect();
    assert_eq!(names, ["hub", "m1"]);
    assert_eq!(read.clusters[1].cluster.as_ref().unwrap().server.as_deref(), Some("http://127.0.0.1:1/token-m1"));
    let mode = std::os::unix::fs::PermissionsExt::mode(&std::fs::metadata(&path).unwrap().permissions());
    assert_eq!(mode & 0o777, 0o600);
}
