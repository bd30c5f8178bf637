//! Leases on the hub as permissions and people spoil them: a controller process says what is wrong, and goes on.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use reqwest::Method;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use super::{Controller, LIMIT, Sandbox, client, error_of, terminate, text};

const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/rayfleet-system/leases";

/// A door before the hub that, while it is told to, refuses whoever asks for Leases as an API server does.
struct Door {
    kubeconfig: String,
    refuses: Arc<AtomicBool>,
    task: tokio::task::JoinHandle<()>,
}

impl Drop for Door {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Door {
    async fn before(sandbox: &Sandbox) -> Self {
        let (url, _) = sandbox.server("hub");
        let address = url.split('/').nth(2).expect("a host and a port").to_owned();
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("loopback has a free port");
        let own = listener.local_addr().expect("it is bound").to_string();
        let original = std::fs::read_to_string(&sandbox.kubeconfig).expect("the kubeconfig");
        let kubeconfig = sandbox.file("door.yaml", &original.replace(&url, &url.replace(&address, &own)));
        let refuses = Arc::new(AtomicBool::new(true));
        let told = refuses.clone();
        let task = tokio::spawn(async move {
            let mut open = tokio::task::JoinSet::new();
            while let Ok((socket, _)) = listener.accept().await {
                let (address, told) = (address.clone(), told.clone());
                // A connection that breaks is its client's affair.
                open.spawn(async move { pass(socket, &address, &told).await.ok() });
            }
        });
        Self { kubeconfig, refuses, task }
    }
}

/// One connection: the heartbeat has its own, so the first request tells what all on it are for.
async fn pass(mut socket: TcpStream, hub: &str, refuses: &AtomicBool) -> std::io::Result<()> {
    let mut head = Vec::new();
    while !head.windows(4).any(|end| end == b"\r\n\r\n") {
        if socket.read_buf(&mut head).await? == 0 {
            return Ok(());
        }
    }
    let line = String::from_utf8_lossy(&head).lines().next().unwrap_or_default().to_owned();
    if line.contains("/leases") && refuses.load(Ordering::Relaxed) {
        let body = json!({
            "kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "Forbidden", "code": 403,
            "message": "leases.coordination.k8s.io is forbidden: User \"rayfleet\" cannot list resource \"leases\"",
        })
        .to_string();
        let length = body.len();
        let reply = format!(
            "HTTP/1.1 403 Forbidden\r\ncontent-type: application/json\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{body}"
        );
        return socket.write_all(reply.as_bytes()).await;
    }
    let mut server = TcpStream::connect(hub).await?;
    server.write_all(&head).await?;
    tokio::io::copy_bidirectional(&mut socket, &mut server).await.map(|_bytes| ())
}

#[tokio::test]
async fn without_permission_on_leases_a_process_says_so_and_goes_on_trying() {
    let sandbox = Sandbox::start(&["--members", "1", "--no-controller"]).await;
    let hub = ["--kubeconfig", sandbox.kubeconfig.as_str(), "--context", "hub"];
    let never = error_of(&[&hub[..], &["shards"]].concat()).await;
    assert!(never.contains("no replica has ever run") && never.contains("rayfleet run"), "{never}");

    let door = Door::before(&sandbox).await;
    let mut controller = Controller::start_at(&sandbox, &door.kubeconfig, "denied");
    sandbox
        .until("it says what it may not", async || {
            let (status, body) = controller.page("/readyz").await;
            status == 503 && body.contains("its seat is not held: Leases cannot be read: 403: leases.coordination")
        })
        .await;
    let log = std::fs::read_to_string(&controller.log).unwrap();
    assert!(log.contains("the Leases on the hub cannot be read") && log.contains("is forbidden"), "{log}");
    assert_eq!(controller.page("/healthz").await.0, 200);
    door.refuses.store(false, Ordering::Relaxed);
    sandbox.until("it works", async || controller.page("/readyz").await.0 == 200).await;
    let log = std::fs::read_to_string(&controller.log).unwrap();
    assert!(log.contains("the Leases on the hub can be read again"), "{log}");

    terminate(&mut controller.process).await;
    let left = text(&sandbox.ask(&["shards"]).await.stdout);
    assert!(left.contains("No replica runs") && left.contains("units are held by nobody"), "{left}");
    sandbox.stop().await;
}

/// What a person does to an object of the hub.
async fn by_hand(sandbox: &Sandbox, method: Method, path: &str, patch: &Value) {
    let (url, token) = sandbox.server("hub");
    let request = client().request(method, format!("{}{path}", url.trim_end_matches('/'))).bearer_auth(token);
    let request = request.header("content-type", "application/merge-patch+json").body(patch.to_string());
    let reply = request.send().await.expect("the hub answers");
    assert!(reply.status().is_success(), "{path}: {}", reply.text().await.unwrap_or_default());
}

async fn ownership(sandbox: &Sandbox) -> Value {
    serde_json::from_slice(&sandbox.ask(&["shards", "-o", "json"]).await.stdout).unwrap_or_default()
}

/// Epoch of a unit that is held.
fn epoch(ownership: &Value, unit: &str) -> u64 {
    let units = ownership["units"].as_array().into_iter().flatten();
    let found = units.into_iter().find(|u| u["name"] == unit && u["seat"] == "one");
    found.and_then(|u| u["epoch"].as_u64()).unwrap_or(0)
}

#[tokio::test]
async fn leases_that_a_person_edits_or_deletes_are_taken_again_and_a_taken_seat_ends_its_process() {
    let sandbox = Sandbox::start(&["--members", "1", "--no-controller"]).await;
    let mut controller = Controller::start(&sandbox, "one");
    let all_held = async || {
        let ownership = ownership(&sandbox).await;
        ownership["units"].as_array().is_some_and(|u| u.len() == 68) && ownership["unowned"] == 0
    };
    sandbox.until("every unit is held", &all_held).await;
    let before = ownership(&sandbox).await;

    by_hand(&sandbox, Method::DELETE, &format!("{LEASES}/q-00"), &json!({})).await;
    let stranger = json!({ "spec": { "holderIdentity": "stranger#1" } });
    by_hand(&sandbox, Method::PATCH, &format!("{LEASES}/q-01"), &stranger).await;
    let set_back = json!({ "spec": { "leaseTransitions": 0 } });
    by_hand(&sandbox, Method::PATCH, &format!("{LEASES}/q-02"), &set_back).await;
    sandbox
        .until("they are held at higher epochs", async || {
            let now = ownership(&sandbox).await;
            ["q-00", "q-01", "q-02"].iter().all(|unit| epoch(&now, unit) > epoch(&before, unit))
        })
        .await;
    sandbox
        .until("it is counted", async || {
            let (_, metrics) = controller.page("/metrics").await;
            metrics.contains("rayfleet_units_lost_total{reason=\"taken\"} 3")
                && metrics.contains("rayfleet_units_unowned 0")
        })
        .await;

    by_hand(&sandbox, Method::DELETE, &format!("{LEASES}/seat-one"), &json!({})).await;
    sandbox
        .until("the seat is taken with another incarnation", async || {
            let now = ownership(&sandbox).await;
            now["seats"][0]["incarnation"].as_u64() > before["seats"][0]["incarnation"].as_u64()
        })
        .await;
    sandbox.until("every unit is held", &all_held).await;
    assert_eq!(controller.page("/healthz").await.0, 200);

    let taken = json!({ "spec": { "holderIdentity": "another/1/process" } });
    by_hand(&sandbox, Method::PATCH, &format!("{LEASES}/seat-one"), &taken).await;
    let status = tokio::time::timeout(LIMIT, controller.process.wait()).await.expect("it ends").expect("its status");
    let log = std::fs::read_to_string(&controller.log).unwrap();
    assert_eq!(status.code(), Some(1), "{log}");
    assert!(log.contains("seat one is held by another process"), "{log}");
    sandbox.stop().await;
}
