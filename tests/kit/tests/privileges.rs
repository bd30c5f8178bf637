//! What the controller asks real API servers for in its objects' lives, and what `deploy/` allows it: the same. Needs the
//! binary of `make planes`.

#![expect(clippy::unwrap_used, clippy::print_stdout, reason = "a test fails by panicking, and lists what it saw")]

use std::collections::BTreeSet;
use std::time::Duration;

use kit::planes::Binary;
use kit::real_fleet::audit::{Allowed, AuditLog, Entry, Right, allowed};
use kit::real_fleet::{CONTROLLER, RealFleet, create, get, until};
use rayfleet::api::wire::{Method, Request};
use rayfleet::plan::{Flags, TokenKey};
use rayfleet::sandbox::world::fleet::Fleet;
use rayfleet::shell::client::Client;
use rayfleet::shell::kubeconfig::member_config;
use rayfleet::shell::lanes::Lane;
use rayfleet::shell::run::{Controller, Settings};
use serde_json::{Value, json};
use shards::core::Profile;

const LIMIT: Duration = Duration::from_secs(180);
const JOBS: &str = "/apis/ray.io/v1/namespaces/lives/rayjobs";
const SERVICES: &str = "/apis/ray.io/v1/namespaces/lives/rayservices";
const CRON_JOBS: &str = "/apis/ray.io/v1/namespaces/lives/raycronjobs";
const CLUSTERS: &str = "/apis/ray.io/v1/namespaces/lives/rayclusters";

/// Why what was written is read alone: `get` of each kind that is written.
const READ_BACK: &str = "what came of a write that was not answered is read back";
const GRANTED: &str = "held because it is granted to Ray's autoscaler";
const SERIES: &str = "an Event that repeats for longer than 30 s becomes a series";
/// What is allowed for code that the lives played here need not reach: role, verb, group, resource, when it is reached. A
/// machine that is slow enough reaches some of it.
const UNREACHED: &[(&str, &str, &str, &str, &str)] = &[
    ("rayfleet-leases", "get", "coordination.k8s.io", "leases", READ_BACK),
    ("rayfleet-hub", "get", "ray.io", "rayjobs", READ_BACK),
    ("rayfleet-hub", "get", "ray.io", "rayclusters", READ_BACK),
    ("rayfleet-hub", "get", "ray.io", "rayservices", READ_BACK),
    ("rayfleet-hub", "get", "ray.io", "raycronjobs", READ_BACK),
    ("rayfleet-hub", "get", "rayfleet.io", "membercapacities", READ_BACK),
    ("rayfleet-hub", "get", "rayfleet.io", "memberclusters", READ_BACK),
    ("rayfleet-hub", "patch", "events.k8s.io", "events", SERIES),
    ("rayfleet-member", "get", "", "pods", READ_BACK),
    ("rayfleet-member", "get", "", "services", READ_BACK),
    ("rayfleet-member", "get", "", "namespaces", READ_BACK),
    ("rayfleet-member", "get", "batch", "jobs", READ_BACK),
    ("rayfleet-member", "get", "scheduling.volcano.sh", "podgroups", READ_BACK),
    ("rayfleet-member", "patch", "", "services", "a retried RayJob's Service follows it to its next RayCluster"),
    ("rayfleet-member", "patch", "events.k8s.io", "events", SERIES),
    ("rayfleet-member", "patch", "", "pods/resize", GRANTED),
    ("rayfleet-member", "patch", "ray.io", "rayclusters", GRANTED),
    ("rayfleet-member", "update", "networking.k8s.io", "ingresses", "somebody changed the Ingress of a RayCluster"),
    (
        "rayfleet-member",
        "patch",
        "",
        "pods",
        "with strategy Recreate, a head that another version made is marked as ours",
    ),
];

fn job(name: &str, spec: Value) -> Value {
    let mut all = json!({
        "entrypoint": "sleep 1", "submissionMode": "HTTPMode", "shutdownAfterJobFinishes": true,
        "rayClusterSpec": cluster_spec(),
    });
    for (field, value) in spec.as_object().unwrap() {
        all[field] = value.clone();
    }
    let metadata = json!({"name": name, "namespace": "lives", "labels": {"volcano.sh/queue-name": "ml"}});
    json!({"apiVersion": "ray.io/v1", "kind": "RayJob", "metadata": metadata, "spec": all})
}

fn cluster_spec() -> Value {
    let requests = json!({"requests": {"cpu": "1", "memory": "1Gi"}});
    let container = json!({"name": "ray-head", "image": "rayproject/ray:2.60.0", "resources": requests});
    json!({"rayVersion": "2.60.0", "headGroupSpec": {"rayStartParams": {}, "template": {"spec": {"containers": [container]}}}})
}

async fn status(hub: &Client, path: &str, field: &str) -> String {
    let object = get(hub, path).await.unwrap().unwrap_or_default();
    object["status"][field].as_str().unwrap_or_default().to_owned()
}

async fn send(hub: &Client, request: Request) {
    let path = request.target.clone();
    let reply = hub.send(Lane::Effects, &request, LIMIT).await.unwrap();
    assert!(reply.is_success(), "{path}: {}", String::from_utf8_lossy(&reply.body));
}

/// Lives of root objects that together reach what a controller does.
async fn play(hub: &Client) {
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "lives"}});
    create(hub, "/api/v1/namespaces", &namespace).await.unwrap();
    for (kind, plural) in [("ConfigMap", "configmaps"), ("Secret", "secrets"), ("ServiceAccount", "serviceaccounts")] {
        let object = json!({"apiVersion": "v1", "kind": kind, "metadata": {"name": "named", "namespace": "lives"}});
        create(hub, &format!("/api/v1/namespaces/lives/{plural}"), &object).await.unwrap();
    }
    // Its pods name something of each kind that follows it to the member.
    let mut naming = cluster_spec();
    let pod = &mut naming["headGroupSpec"]["template"]["spec"];
    pod["serviceAccountName"] = "named".into();
    pod["containers"][0]["envFrom"] = json!([{"configMapRef": {"name": "named"}}, {"secretRef": {"name": "named"}}]);
    create(hub, JOBS, &job("naming", json!({"rayClusterSpec": naming}))).await.unwrap();
    // Its copies are the same objects, which it owns as well.
    create(hub, JOBS, &job("naming-too", json!({"rayClusterSpec": naming}))).await.unwrap();
    create(hub, JOBS, &job("by-submitter", json!({"submissionMode": "K8sJobMode"}))).await.unwrap();
    create(hub, JOBS, &job("suspended", json!({"entrypoint": "sleep 600", "submissionMode": "K8sJobMode"})))
        .await
        .unwrap();
    let rule = json!({"policy": "DeleteSelf", "condition": {"jobStatus": "SUCCEEDED"}});
    let deletes_itself = json!({"shutdownAfterJobFinishes": false, "deletionStrategy": {"deletionRules": [rule]}});
    create(hub, JOBS, &job("deletes-itself", deletes_itself)).await.unwrap();
    let mut standing = cluster_spec();
    standing["enableInTreeAutoscaling"] = true.into();
    standing["headGroupSpec"]["enableIngress"] = true.into();
    standing["authOptions"] = json!({"mode": "token"});
    let cluster = json!({"apiVersion": "ray.io/v1", "kind": "RayCluster", "spec": standing,
                         "metadata": {"name": "standing", "namespace": "lives", "labels": {"volcano.sh/queue-name": "ml"}}});
    create(hub, CLUSTERS, &cluster).await.unwrap();
    let metadata = |name: &str| json!({"name": name, "namespace": "lives"});
    let service = json!({"apiVersion": "ray.io/v1", "kind": "RayService", "metadata": metadata("served"),
                         "spec": {"rayClusterConfig": cluster_spec()}});
    create(hub, SERVICES, &service).await.unwrap();
    let cron = json!({"apiVersion": "ray.io/v1", "kind": "RayCronJob", "metadata": metadata("nightly"),
                      "spec": {"schedule": "0 0 * * *", "jobTemplate": job("x", json!({}))["spec"]}});
    create(hub, CRON_JOBS, &cron).await.unwrap();
    let told = async |path: String| {
        let object = get(hub, &path).await.unwrap().unwrap_or_default();
        object["status"]["conditions"].is_array()
            || object["metadata"]["annotations"]["rayfleet.io/refused"].is_string()
    };
    until("served is told", async || told(format!("{SERVICES}/served")).await).await;
    until("nightly is told", async || told(format!("{CRON_JOBS}/nightly")).await).await;
    let ended = async |name: &str| status(hub, &format!("{JOBS}/{name}"), "jobDeploymentStatus").await == "Complete";
    until("naming ends", async || ended("naming").await && ended("naming-too").await).await;
    until("deletes-itself does", async || get(hub, &format!("{JOBS}/deletes-itself")).await.unwrap().is_none()).await;
    until("by-submitter ends", async || ended("by-submitter").await).await;
    let suspended = format!("{JOBS}/suspended");
    until("suspended runs", async || status(hub, &suspended, "jobStatus").await == "RUNNING").await;
    let suspend = json!({"spec": {"suspend": true}}).to_string().into_bytes();
    send(hub, Request::new(Method::Patch, &suspended, "application/merge-patch+json", suspend.into())).await;
    until("suspended is", async || status(hub, &suspended, "jobDeploymentStatus").await == "Suspended").await;
    until("standing is ready", async || status(hub, &format!("{CLUSTERS}/standing"), "state").await == "ready").await;
    for path in [suspended, format!("{JOBS}/naming"), format!("{CLUSTERS}/standing")] {
        send(hub, Request::new(Method::Delete, &path, "", [].into())).await;
        until("it is gone", async || get(hub, &path).await.unwrap().is_none()).await;
    }
}

fn asked(log: &mut AuditLog) -> Vec<Entry> {
    log.news().unwrap().into_iter().filter(|entry| entry.user == CONTROLLER).collect()
}

/// The role by which a request was allowed, as the audit log says it: `ClusterRole "rayfleet-hub"`.
fn role_of(entry: &Entry) -> Option<String> {
    let by = entry.reason.strip_prefix("allow: RBAC: allowed by ")?;
    let (_, role) = by.split_once(" of ")?;
    let (role, _) = role.split_once(" to ")?;
    role.contains(" \"rayfleet-").then(|| role.to_owned())
}

/// Whether this is what allowed the request: by its role, and by name where the role says one.
fn covers(allowed: &Allowed, entry: &Entry) -> bool {
    role_of(entry).as_ref() == Some(&allowed.role)
        && entry.right == allowed.right
        && allowed.only.as_ref().is_none_or(|name| *name == entry.name)
}

/// Sentences about what the roles of a file and what was used of them do not share.
fn differences(file: &str, entries: &[Entry]) -> Vec<String> {
    let all = allowed(file).unwrap();
    let sentence =
        |right: &Right, what: &str| format!("{file}: {} {}/{} {what}", right.verb, right.group, right.resource);
    let mut wrong = BTreeSet::new();
    for one in &all {
        let Allowed { role, right, only } = one;
        let count = entries.iter().filter(|entry| covers(one, entry)).count();
        let name = only.as_deref().unwrap_or("");
        println!("{file:6} {:6} {:24} {:24} {name:12} {role:32} {count:6}", right.verb, right.group, right.resource);
        let explained = UNREACHED.iter().any(|(of, verb, group, resource, _)| {
            role.ends_with(&format!(" \"{of}\""))
                && (*verb, *group, *resource) == (&*right.verb, &*right.group, &*right.resource)
        });
        if count == 0 && !explained {
            wrong.insert(sentence(right, &format!("is allowed by {role} {name} and not used")));
        }
        if only.is_some() && all.iter().any(|wide| wide.only.is_none() && wide.right == *right) {
            wrong.insert(sentence(right, "is allowed for one name and for all"));
        }
    }
    let stray = entries.iter().filter(|entry| !all.iter().any(|one| covers(one, entry)));
    wrong.extend(stray.map(|entry| sentence(&entry.right, &format!("is used, and no role has it: {}", entry.reason))));
    wrong.into_iter().collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_controller_uses_exactly_what_deploy_allows_it() {
    let Some(binary) = Binary::or_skip() else { return };
    let fleet = RealFleet::start(&binary, &["us"]).await.unwrap();
    let mut described = Fleet::default();
    described.members.retain(|member| member.name == "us");
    let mut surroundings = fleet.surroundings(described).await.unwrap();
    let hub = fleet.administrator().await.unwrap();
    let settings = Settings {
        hub: member_config(&fleet.controllers_kubeconfig(fleet.hub.address()), None).await.unwrap(),
        seat: "a".into(),
        namespace: "rayfleet-system".into(),
        profile: Profile::FAST,
        flags: Flags { token_key: Some(TokenKey::new([7; 32])), ..Flags::default() },
    };
    let (controller, _questions) = Controller::new(settings);
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let controller = tokio::spawn(controller.run(async move { drop(stopped.await) }));
    surroundings.while_whole(play(&hub)).await.unwrap();
    drop(stop);
    controller.await.unwrap().unwrap();
    let on_hub = asked(&mut AuditLog::of(fleet.hub.audit_log()));
    let on_member = asked(&mut AuditLog::of(fleet.members[0].audit_log()));
    let wrong = [differences("hub", &on_hub), differences("member", &on_member)].concat();
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert!(on_hub.iter().all(|entry| entry.agent.ends_with("(seat a)")), "replicas can be told apart");
    surroundings.stop().await;
}
