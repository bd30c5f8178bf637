//! Our definitions and KubeRay's on a real API server: it takes ours, and what it stores of a sample under ours is what it
//! stores under KubeRay's. Needs what `make planes` builds; without it the tests say so and do nothing.

#![expect(clippy::unwrap_used, clippy::panic, reason = "what fails here fails the test")]

#[path = "definitions/policy_cases.rs"]
mod policy_cases;

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use kit::planes::{ADMINISTRATOR, Binary, Plane};
use policy_cases::cases;
use rayfleet::api::wire::{Method, Reply, Request};
use rayfleet::api::{Cluster, Kind, crds, yaml};
use rayfleet::plan::validate;
use rayfleet::shell::client::Client;
use rayfleet::shell::kubeconfig::member_config;
use rayfleet::shell::lanes::Lane;
use serde_json::{Value, json};
use tokio::sync::Mutex;
use tokio::time::{Instant, sleep};

/// For what must come: long before, on a quiet machine.
const LIMIT: Duration = Duration::from_secs(180);
/// One plane at a time: three at once are slow to start on a machine that is busy.
static ONE: Mutex<()> = Mutex::const_new(());
const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

fn shared() -> PathBuf {
    let beside = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared");
    PathBuf::from(std::env::var("RAYFLEET_SHARED").unwrap_or_else(|_| beside.to_owned()))
}

/// A fresh plane with its administrator's client; none, which is counted, without the binary.
async fn plane(name: &str) -> Option<(Plane, Client)> {
    let binary = Binary::or_skip()?;
    let plane = Plane::start(&binary, name, &[]).await.unwrap();
    let config = member_config(&plane.kubeconfig(ADMINISTRATOR), None).await.unwrap();
    let client = Client::new(Cluster::Hub, config).unwrap();
    Some((plane, client))
}

async fn send(client: &Client, request: &Request) -> (u16, Value) {
    let Reply { status, body, .. } = client.send(Lane::Effects, request, LIMIT).await.unwrap();
    (status, serde_json::from_slice(&body).unwrap_or_default())
}

fn post(path: &str, object: &Value) -> Request {
    Request::new(Method::Post, path, "application/json", Arc::from(object.to_string().into_bytes()))
}

/// Installs definitions and waits until the server says of each that it is served and that its schema is structural.
async fn install(client: &Client, definitions: &[Value]) {
    for crd in definitions {
        let (status, answer) = send(client, &post(DEFINITIONS, crd)).await;
        assert_eq!(status, 201, "{}: {}", crd["metadata"]["name"], answer["message"]);
    }
    let deadline = Instant::now() + LIMIT;
    for crd in definitions {
        let path = format!("{DEFINITIONS}/{}", crd["metadata"]["name"].as_str().unwrap());
        loop {
            let (_, there) = send(client, &Request::get(&path)).await;
            let conditions = there["status"]["conditions"].as_array().cloned().unwrap_or_default();
            let is = |kind: &str| conditions.iter().any(|c| c["type"] == kind && c["status"] == "True");
            assert!(!is("NonStructuralSchema"), "{path}: {conditions:?}");
            if is("Established") {
                break;
            }
            assert!(Instant::now() < deadline, "{path}: {conditions:?}");
            sleep(Duration::from_millis(50)).await;
        }
    }
}

/// `ray.io/v1alpha1` of a document: without what it never had.
fn as_older(kind: Kind, document: &Value) -> Value {
    let mut older = document.clone();
    older["apiVersion"] = json!(format!("ray.io/{}", crds::OLDER));
    let mut pruned = older.clone();
    crds::lifted(&mut pruned).unwrap_or_else(|| panic!("{kind} has an older version"));
    pruned["apiVersion"] = older["apiVersion"].take();
    pruned
}

/// Ray's documents of all samples.
fn samples() -> Vec<(String, Kind, Value)> {
    let folder = shared().join("samples");
    let entries = std::fs::read_dir(&folder)
        .unwrap_or_else(|e| panic!("samples are read from {} (set RAYFLEET_SHARED): {e}", folder.display()));
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    let mut all = Vec::new();
    for path in paths.iter().filter(|path| path.extension().is_some_and(|e| e == "yaml")) {
        for document in yaml::documents(&std::fs::read_to_string(path).unwrap()).unwrap() {
            let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
            let kind = Kind::find(&text(&document["apiVersion"]), &text(&document["kind"]));
            if let Some(kind) = kind.filter(|kind| kind.group() == "ray.io") {
                all.push((path.file_name().unwrap().to_string_lossy().into_owned(), kind, document));
            }
        }
    }
    all
}

/// Creates each sample, takes it away again, and gives what the server stored: the object without what differs each time.
async fn stored(client: &Client, samples: &[(String, Kind, Value)]) -> Vec<Result<Value, String>> {
    let mut all = Vec::new();
    for (number, (_, kind, document)) in samples.iter().enumerate() {
        let namespace = document["metadata"]["namespace"].as_str().unwrap_or("default");
        let version = document["apiVersion"].as_str().unwrap_or_default();
        let path = kind.collection_path(Some(namespace)).replacen(&kind.api_version(), version, 1);
        let mut document = document.clone();
        // Many samples have the same name, and one has none but a beginning.
        document["metadata"]["name"] = json!(format!("sample-{number}"));
        // A server that has just established a type refuses it for a moment.
        let deadline = Instant::now() + LIMIT;
        let (status, mut answer) = loop {
            let (status, answer) = send(client, &post(&path, &document)).await;
            if !matches!(status, 404 | 429 | 503) || Instant::now() > deadline {
                break (status, answer);
            }
            sleep(Duration::from_millis(100)).await;
        };
        if status != 201 {
            all.push(Err(answer["message"].as_str().unwrap_or_default().to_owned()));
            continue;
        }
        for field in ["uid", "resourceVersion", "creationTimestamp", "managedFields"] {
            answer["metadata"].as_object_mut().unwrap().remove(field);
        }
        all.push(Ok(answer));
    }
    all
}

/// What a refusal names, in any order: a server that finds several faults in one object tells them as its maps give them.
fn causes(refusal: &str) -> BTreeSet<&str> {
    let list = refusal.split_once('[').map_or(refusal, |(_, list)| list.trim_end_matches(']'));
    list.split(", ").collect()
}

#[tokio::test]
async fn a_real_server_stores_the_same_under_our_definitions_as_under_kuberays() {
    let _one = ONE.lock().await;
    let mut samples = samples();
    assert!(samples.len() > 50, "{}", samples.len());
    let with_older = samples.iter().filter(|(_, kind, _)| *kind != Kind::RayCronJob);
    let older: Vec<_> =
        with_older.map(|(file, kind, document)| (file.clone(), *kind, as_older(*kind, document))).collect();
    samples.extend(older);
    let Some((ours, under_ours)) = plane("ours").await else { return };
    install(&under_ours, &crds::hub()).await;
    let mine = stored(&under_ours, &samples).await;
    drop(ours);

    let Some((_theirs, under_theirs)) = plane("theirs").await else { return };
    let upstream: Vec<Value> = ["rayjobs", "rayclusters", "rayservices", "raycronjobs"]
        .iter()
        .map(|plural| {
            let path = shared().join(format!("upstream-crds/ray.io_{plural}.yaml"));
            yaml::document(&std::fs::read_to_string(path).unwrap()).unwrap()
        })
        .collect();
    install(&under_theirs, &upstream).await;
    let theirs = stored(&under_theirs, &samples).await;

    for ((file, kind, sent), (mine, theirs)) in samples.iter().zip(mine.iter().zip(&theirs)) {
        // The older version asks for fields that samples of today leave out.
        if let (Err(mine), Err(theirs), false) = (mine, theirs, sent["apiVersion"] == kind.api_version()) {
            let same = causes(mine) == causes(theirs);
            assert!(same && mine.contains("Required value"), "{file}: {kind}: {mine} | {theirs}");
            continue;
        }
        let mine = mine.as_ref().unwrap_or_else(|e| panic!("{file}: {kind} is refused under our definitions: {e}"));
        let theirs = theirs.as_ref().unwrap_or_else(|e| panic!("{file}: {kind} is refused under KubeRay's: {e}"));
        if mine != theirs {
            // What KubeRay's definitions drop, ours keep: nothing else may differ.
            let lost = lost(mine, theirs, "");
            assert!(
                !lost.is_empty() && lost.iter().all(|path| !path.is_empty() && sent.pointer(path).is_some()),
                "{file}: {kind}: {lost:?}"
            );
        }
    }
}

/// JSON pointers of what stands in `whole` and not in `part`; an empty one where anything else differs.
fn lost(whole: &Value, part: &Value, at: &str) -> Vec<String> {
    match (whole, part) {
        (Value::Object(whole), Value::Object(part)) if part.keys().all(|key| whole.contains_key(key)) => {
            let inner = whole.iter().flat_map(|(key, value)| match part.get(key) {
                Some(other) => lost(value, other, &format!("{at}/{}", key.replace('~', "~0").replace('/', "~1"))),
                None => vec![format!("{at}/{}", key.replace('~', "~0").replace('/', "~1"))],
            });
            inner.collect()
        }
        (Value::Array(whole), Value::Array(part)) if whole.len() == part.len() => {
            let pairs = whole.iter().zip(part).enumerate();
            pairs.flat_map(|(i, (one, other))| lost(one, other, &format!("{at}/{i}"))).collect()
        }
        _ if whole == part => Vec::new(),
        _ => vec![String::new()],
    }
}

#[tokio::test]
async fn rules_in_cel_are_a_real_servers_to_judge() {
    let _one = ONE.lock().await;
    let Some((_plane, client)) = plane("rules").await else { return };
    install(&client, &crds::hub()).await;
    let spec = json!({"headGroupSpec": {"template": {"spec": {"containers": [{"name": "ray"}]}}}});
    let object = |kind: Kind, name: &str, spec: &Value| json!({"apiVersion": "ray.io/v1", "kind": kind.name(), "metadata": {"name": name}, "spec": spec});
    let jobs = Kind::RayJob.collection_path(Some("default"));
    let job = |name: &str, strategy: Value| {
        post(&jobs, &object(Kind::RayJob, name, &json!({"deletionStrategy": strategy, "rayClusterSpec": spec})))
    };
    let deadline = Instant::now() + LIMIT;
    let sound = json!({"deletionRules": [{"policy": "DeleteSelf", "condition": {"jobStatus": "FAILED"}}]});
    loop {
        let (status, answer) = send(&client, &job("sound", sound.clone())).await;
        if status == 201 {
            // A field of the upstream's that has a default.
            assert_eq!(answer["spec"]["deletionStrategy"]["deletionRules"][0]["condition"]["ttlSeconds"], 0);
            break;
        }
        assert!(matches!(status, 404 | 429 | 503) && Instant::now() < deadline, "{status}: {answer}");
        sleep(Duration::from_millis(100)).await;
    }
    for (name, wrong, why) in [
        ("neither", json!({}), "needs both onSuccess and onFailure"),
        ("half", json!({"onSuccess": {"policy": "DeleteSelf"}}), "needs both onSuccess and onFailure"),
        ("empty", json!({"deletionRules": []}), "at least 1 items"),
        ("none", json!({"deletionRules": [{"policy": "DeleteSelf", "condition": {}}]}), "one of jobStatus"),
        (
            "word",
            json!({"deletionRules": [{"policy": "Burn", "condition": {"jobStatus": "FAILED"}}]}),
            "Unsupported value",
        ),
    ] {
        let (status, answer) = send(&client, &job(name, wrong)).await;
        let message = answer["message"].as_str().unwrap_or_default();
        assert!(status == 422 && message.contains(why), "{name}: {status} {message}");
    }

    let clusters = Kind::RayCluster.collection_path(Some("default"));
    let mut managed = spec.clone();
    managed["managedBy"] = json!("rayfleet.io/hub");
    assert_eq!(send(&client, &post(&clusters, &object(Kind::RayCluster, "ours", &managed))).await.0, 201);
    managed["managedBy"] = json!("somebody.else");
    let (status, answer) = send(&client, &post(&clusters, &object(Kind::RayCluster, "theirs", &managed))).await;
    assert!(status == 422 && answer["message"].as_str().unwrap().contains("managedBy is one of"), "{answer}");
    let change = Request::new(
        Method::Patch,
        format!("{clusters}/ours"),
        "application/merge-patch+json",
        Arc::from(json!({"spec": {"managedBy": "ray.io/kuberay-operator"}}).to_string().into_bytes()),
    );
    let (status, answer) = send(&client, &change).await;
    assert!(status == 422 && answer["message"].as_str().unwrap().contains("cannot be changed"), "{answer}");

    // A field of tomorrow is kept, in a template too.
    let mut newer = spec.clone();
    newer["headGroupSpec"]["template"]["spec"]["fieldOfTomorrow"] = json!({"a": [1]});
    newer["fieldOfTomorrow"] = json!("x");
    let (status, answer) = send(&client, &post(&clusters, &object(Kind::RayCluster, "newer", &newer))).await;
    assert_eq!(status, 201, "{answer}");
    assert_eq!(answer["spec"]["fieldOfTomorrow"], "x");
    assert_eq!(answer["spec"]["headGroupSpec"]["template"]["spec"]["fieldOfTomorrow"], json!({"a": [1]}));
}

/// The policy of `deploy/`, and that it is in force: it refuses what it must, by its own words.
async fn enforce(client: &Client) {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../deploy/validation.yaml");
    for object in yaml::documents(&std::fs::read_to_string(path).unwrap()).unwrap() {
        let plural = format!("{}s", object["kind"].as_str().unwrap().to_lowercase()).replace("policys", "policies");
        let path = format!("/apis/admissionregistration.k8s.io/v1/{plural}");
        let (status, answer) = send(client, &post(&path, &object)).await;
        assert_eq!(status, 201, "{answer}");
    }
    let wrong = json!({"apiVersion": "ray.io/v1", "kind": "RayJob", "metadata": {"name": "1"}, "spec": {}});
    let path = format!("{}?dryRun=All", Kind::RayJob.collection_path(Some("default")));
    let deadline = Instant::now() + LIMIT;
    loop {
        let (status, answer) = send(client, &post(&path, &wrong)).await;
        if status == 422 && answer["message"].as_str().unwrap_or_default().contains("rayfleet-validation") {
            return;
        }
        assert!(Instant::now() < deadline, "the policy is not in force: {status} {answer}");
        sleep(Duration::from_millis(200)).await;
    }
}

#[tokio::test]
async fn the_admission_policy_refuses_what_the_controller_would_and_takes_every_sample() {
    let _one = ONE.lock().await;
    let Some((_plane, client)) = plane("policy").await else { return };
    install(&client, &crds::hub()).await;
    enforce(&client).await;
    let policy = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies/rayfleet-validation";
    let (_, policy) = send(&client, &Request::get(policy)).await;
    assert_eq!(policy["status"]["typeChecking"]["expressionWarnings"], Value::Null, "{}", policy["status"]);

    let (mut met, mut wrong) = (BTreeSet::new(), Vec::new());
    for case in cases() {
        let (kind, why) = (case.kind, case.why);
        let path = format!("{}?dryRun=All", kind.collection_path(Some("default")));
        let refused = case.refused();
        let (status, answer) = send(&client, &post(&path, &case.taken)).await;
        if status != 201 {
            wrong.push(format!("{kind}, {why}: not taken: {}", answer["message"]));
        }
        let (status, answer) = send(&client, &post(&path, &refused)).await;
        if status != 422 || !answer["message"].as_str().is_some_and(|message| message.contains(why)) {
            wrong.push(format!("{kind}, {why}: {} is answered {status} {}", case.change, answer["message"]));
        }
        // The controller says the same of it, and nothing of what is taken.
        let says = |object: &Value| validate::object(kind, object).err().filter(|said| !said.is_of_this_release());
        if says(&refused).is_none() || says(&case.taken).is_some() {
            wrong.push(format!("{kind}, {why}: the controller: {:?}, {:?}", says(&refused), says(&case.taken)));
        }
        met.insert(why);
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    let sentences = policy["spec"]["validations"].as_array().unwrap();
    let sentences: BTreeSet<&str> = sentences.iter().map(|one| one["message"].as_str().unwrap()).collect();
    assert_eq!(met, sentences, "each sentence of the policy, and no other");
    let samples = samples();
    for ((file, kind, _), stored) in samples.iter().zip(stored(&client, &samples).await) {
        assert!(stored.is_ok(), "{file}: {kind}: {stored:?}");
    }
}
