//! Real API servers as tests use them: what a plane does when it is killed, paused and wiped, and what the proxy in front
//! of one lets through. Those with a plane need what `make planes` builds; without it they say so and do nothing.

#![expect(clippy::unwrap_used, reason = "what fails here fails the test")]

use std::collections::BTreeMap;
use std::io::{self, ErrorKind, Write as _};
use std::net::Ipv4Addr;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;
use std::{env, fs};

use kit::planes::{ADMINISTRATOR, Binary, Mode, Part, Plane, Proxy};
use rayfleet::api::Cluster;
use rayfleet::api::wire::{Method, Reply, Request};
use rayfleet::shell::client::{Client, SendError};
use rayfleet::shell::kubeconfig::member_config;
use rayfleet::shell::lanes::Lane;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::process::Command;
use tokio::time::{Instant, sleep, timeout};

/// For what must come.
const LIMIT: Duration = Duration::from_secs(60);
/// For what must not come: long enough for loopback.
const SHORT: Duration = Duration::from_millis(300);

const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";
const CONFIG_MAP: &str = "/api/v1/namespaces/default/configmaps/kept";
const DEFAULT_NAMESPACE: &str = "/api/v1/namespaces/default";

/// A fresh plane. Without the binary: none, with a line that no test harness swallows.
async fn plane(name: &str, users: &[&str]) -> Option<Plane> {
    let binary = Binary::or_skip()?;
    Some(Plane::start(&binary, name, users).await.unwrap())
}

async fn client(kubeconfig: &str) -> Client {
    Client::new(Cluster::Hub, member_config(kubeconfig, None).await.unwrap()).unwrap()
}

async fn get(client: &Client, target: &str) -> Reply {
    client.send(Lane::Effects, &Request::get(target), LIMIT).await.unwrap()
}

fn create(collection: &str, object: &Value) -> Request {
    Request::new(Method::Post, collection, "application/json", Arc::from(object.to_string().into_bytes()))
}

fn config_map() -> Request {
    create(CONFIG_MAPS, &json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "kept"}}))
}

fn body(reply: &Reply) -> Value {
    serde_json::from_slice(&reply.body).unwrap()
}

fn uid(reply: &Reply) -> String {
    body(reply)["metadata"]["uid"].as_str().unwrap().to_owned()
}

/// Waits until it is true.
async fn until(condition: impl AsyncFn() -> bool) {
    let deadline = Instant::now() + LIMIT;
    while !condition().await {
        assert!(Instant::now() < deadline, "not within {LIMIT:?}");
        sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn a_plane_serves_its_users_and_refuses_strangers() {
    let Some(plane) = plane("served", &["guest"]).await else { return };
    let administrator = client(&plane.kubeconfig(ADMINISTRATOR)).await;
    assert_eq!(body(&get(&administrator, "/version").await)["gitVersion"], "v1.36.3");
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"},
                     "spec": {"containers": [{"name": "c", "image": "i"}]}});
    let created = create("/api/v1/namespaces/default/pods", &pod);
    assert_eq!(administrator.send(Lane::Effects, &created, LIMIT).await.unwrap().status, 201);

    let kubeconfig = plane.kubeconfig("guest");
    assert_eq!(get(&client(&kubeconfig).await, CONFIG_MAPS).await.status, 403);
    let mut wrong: Value = serde_json::from_str(&kubeconfig).unwrap();
    wrong["users"][0]["user"]["token"] = "wrong".into();
    assert_eq!(get(&client(&wrong.to_string()).await, CONFIG_MAPS).await.status, 401);
}

#[tokio::test]
async fn objects_outlive_a_killed_api_server_and_end_with_a_wipe() {
    let Some(mut plane) = plane("killed", &[]).await else { return };
    let client = client(&plane.kubeconfig(ADMINISTRATOR)).await;
    let created = client.send(Lane::Effects, &config_map(), LIMIT).await.unwrap();

    plane.kill(Part::ApiServer);
    let error = client.send(Lane::Effects, &Request::get(CONFIG_MAP), LIMIT).await.unwrap_err();
    assert!(matches!(error, SendError::NotSent(_)), "{error:?}");
    plane.restart().await.unwrap();
    assert_eq!(uid(&get(&client, CONFIG_MAP).await), uid(&created));

    let before = uid(&get(&client, DEFAULT_NAMESPACE).await);
    plane.wipe().await.unwrap();
    assert_eq!(get(&client, CONFIG_MAP).await.status, 404);
    assert_ne!(uid(&get(&client, DEFAULT_NAMESPACE).await), before, "another cluster");
}

#[tokio::test]
async fn a_plane_stands_still_when_paused_and_a_held_answer_hides_a_write_that_happened() {
    let Some(mut plane) = plane("paused", &[]).await else { return };
    let direct = client(&plane.kubeconfig(ADMINISTRATOR)).await;
    plane.pause(Part::ApiServer).unwrap();
    let error = direct.send(Lane::Effects, &Request::get(DEFAULT_NAMESPACE), SHORT).await.unwrap_err();
    assert!(matches!(error, SendError::NoAnswer(_)), "{error:?}");
    plane.resume(Part::ApiServer).unwrap();
    assert_eq!(get(&direct, DEFAULT_NAMESPACE).await.status, 200);

    let proxy = Proxy::start(plane.address()).await.unwrap();
    let proxied = client(&plane.kubeconfig_by(proxy.address(), ADMINISTRATOR)).await;
    assert_eq!(get(&proxied, CONFIG_MAP).await.status, 404);
    proxy.set(Mode::AnswersHeld);
    let error = proxied.send(Lane::Effects, &config_map(), SHORT).await.unwrap_err();
    assert!(matches!(error, SendError::NoAnswer(_)), "{error:?}");
    until(async || get(&direct, CONFIG_MAP).await.status == 200).await;
}

#[tokio::test]
async fn a_killed_test_leaves_no_process_behind() {
    const HELD: &str = "HOLD_A_PLANE";
    if env::var_os(HELD).is_some() {
        return hold().await;
    }
    if Binary::find().is_err() {
        // Says so.
        assert!(plane("none", &[]).await.is_none());
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let mut held = Command::new(env::current_exe().unwrap())
        .args(["--exact", "a_killed_test_leaves_no_process_behind", "--nocapture"])
        .env(HELD, "1")
        .env("TMPDIR", dir.path())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(held.stdout.take().unwrap()).lines();
    let pids: BTreeMap<String, u32> = loop {
        let line = timeout(LIMIT, lines.next_line()).await.unwrap().unwrap().expect("it says which processes it has");
        if let Ok(pids) = serde_json::from_str(&line) {
            break pids;
        }
    };
    assert_eq!(pids.values().filter(|pid| is_alive(**pid)).count(), Part::ALL.len(), "{pids:?}");
    held.kill().await.unwrap();
    until(async || !pids.values().any(|pid| is_alive(*pid))).await;
}

/// Has a plane with a part that is paused, says which processes these are, and waits to be killed. Ends by itself when
/// who waits for that is gone.
async fn hold() {
    let mut plane = plane("held", &[]).await.unwrap();
    plane.pause(Part::ApiServer).unwrap();
    let pids: BTreeMap<_, _> = plane.process_ids().into_iter().map(|(part, pid)| (part.name(), pid)).collect();
    io::stdout().write_all(format!("\n{}\n", json!(pids)).as_bytes()).unwrap();
    // Nothing else goes on here that this could hold up.
    io::copy(&mut io::stdin(), &mut io::sink()).unwrap();
}

/// Whether the process runs or is stopped; one that nobody has reaped yet does not.
fn is_alive(pid: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(')').is_some_and(|(_, rest)| !rest.trim_start().starts_with(['Z', 'X']))
}

/// A proxy with a server of the test's own behind it.
struct Bench {
    proxy: Proxy,
    server: TcpListener,
}

impl Bench {
    async fn start() -> Self {
        let server = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        Self { proxy: Proxy::start(server.local_addr().unwrap()).await.unwrap(), server }
    }

    async fn dial(&self) -> TcpStream {
        TcpStream::connect(self.proxy.address()).await.unwrap()
    }

    /// Both ends of a connection through the proxy: the client's, the server's.
    async fn connect(&self) -> (TcpStream, TcpStream) {
        let client = self.dial().await;
        let (server, _) = timeout(LIMIT, self.server.accept()).await.unwrap().unwrap();
        (client, server)
    }
}

async fn hears(stream: &mut TcpStream, text: &str) {
    let mut heard = vec![0; text.len()];
    timeout(LIMIT, stream.read_exact(&mut heard)).await.unwrap().unwrap();
    assert_eq!(heard, text.as_bytes());
}

async fn is_silent(stream: &mut TcpStream) -> bool {
    timeout(SHORT, stream.read_u8()).await.is_err()
}

/// How reading ends where nothing comes any more.
async fn end(stream: &mut TcpStream) -> ErrorKind {
    timeout(LIMIT, stream.read_u8()).await.unwrap().unwrap_err().kind()
}

#[tokio::test]
async fn a_passing_proxy_carries_words_and_ends_both_ways() {
    let bench = Bench::start().await;
    let (mut client, mut server) = bench.connect().await;
    client.write_all(b"ask").await.unwrap();
    hears(&mut server, "ask").await;
    client.shutdown().await.unwrap();
    assert_eq!(end(&mut server).await, ErrorKind::UnexpectedEof);
    server.write_all(b"answer").await.unwrap();
    drop(server);
    hears(&mut client, "answer").await;
    assert_eq!(end(&mut client).await, ErrorKind::UnexpectedEof);
}

#[tokio::test]
async fn a_delay_makes_bytes_late() {
    let bench = Bench::start().await;
    let (mut client, mut server) = bench.connect().await;
    bench.proxy.set(Mode::Delay(SHORT));
    let begun = Instant::now();
    client.write_all(b"ask").await.unwrap();
    hears(&mut server, "ask").await;
    assert!(begun.elapsed() >= SHORT);
    server.write_all(b"answer").await.unwrap();
    hears(&mut client, "answer").await;
    assert!(begun.elapsed() >= 2 * SHORT);
}

#[tokio::test]
async fn late_bytes_do_not_wait_for_one_another() {
    let bench = Bench::start().await;
    let (mut client, _server) = bench.connect().await;
    // None of them arrives in this test's life.
    bench.proxy.set(Mode::Delay(Duration::from_secs(3600)));
    let long = "x".repeat(200_000);
    client.write_all(long.as_bytes()).await.unwrap();
    until(async || bench.proxy.bytes_to_server() == long.len()).await;
}

#[tokio::test]
async fn a_reset_meets_open_and_new_connections() {
    let bench = Bench::start().await;
    let (mut client, mut server) = bench.connect().await;
    bench.proxy.set(Mode::Reset);
    assert_eq!(end(&mut client).await, ErrorKind::ConnectionReset);
    assert_eq!(end(&mut server).await, ErrorKind::UnexpectedEof);
    assert_eq!(end(&mut bench.dial().await).await, ErrorKind::ConnectionReset);
}

#[tokio::test]
async fn what_fell_into_a_black_hole_arrives_when_it_is_gone() {
    let bench = Bench::start().await;
    let (mut client, mut server) = bench.connect().await;
    bench.proxy.set(Mode::BlackHole);
    client.write_all(b"ask").await.unwrap();
    server.write_all(b"answer").await.unwrap();
    let mut late = bench.dial().await;
    late.write_all(b"late").await.unwrap();
    assert!(is_silent(&mut client).await && is_silent(&mut server).await && is_silent(&mut late).await);
    bench.proxy.set(Mode::Pass);
    hears(&mut server, "ask").await;
    hears(&mut client, "answer").await;
    let (mut server, _) = timeout(LIMIT, bench.server.accept()).await.unwrap().unwrap();
    hears(&mut server, "late").await;
}

#[tokio::test]
async fn held_answers_follow_requests_that_arrived() {
    let bench = Bench::start().await;
    bench.proxy.set(Mode::AnswersHeld);
    let (mut client, mut server) = bench.connect().await;
    client.write_all(b"ask").await.unwrap();
    hears(&mut server, "ask").await;
    server.write_all(b"answer").await.unwrap();
    assert!(is_silent(&mut client).await);
    bench.proxy.set(Mode::Pass);
    hears(&mut client, "answer").await;
}

#[tokio::test]
async fn answers_go_on_while_requests_are_held() {
    let bench = Bench::start().await;
    let (mut client, mut server) = bench.connect().await;
    bench.proxy.set(Mode::RequestsHeld);
    client.write_all(b"ask").await.unwrap();
    server.write_all(b"answer").await.unwrap();
    hears(&mut client, "answer").await;
    assert!(is_silent(&mut server).await);
    assert_eq!(bench.proxy.bytes_to_server(), 3);
    bench.proxy.set(Mode::Pass);
    hears(&mut server, "ask").await;
    until(async || bench.proxy.bytes_to_server() == 0).await;
}

#[tokio::test]
async fn a_half_open_connection_stays_silent_for_good() {
    let bench = Bench::start().await;
    let (mut client, mut server) = bench.connect().await;
    bench.proxy.set(Mode::HalfOpen);
    assert_eq!(end(&mut server).await, ErrorKind::UnexpectedEof);
    client.write_all(b"ask").await.unwrap();
    bench.proxy.set(Mode::Pass);
    assert!(is_silent(&mut client).await);
    let (mut client, mut server) = bench.connect().await;
    client.write_all(b"ask").await.unwrap();
    hears(&mut server, "ask").await;
}

#[tokio::test]
async fn a_server_that_is_not_there_shows_as_a_reset() {
    let Bench { proxy, server } = Bench::start().await;
    drop(server);
    let mut client = TcpStream::connect(proxy.address()).await.unwrap();
    assert_eq!(end(&mut client).await, ErrorKind::ConnectionReset);
}
