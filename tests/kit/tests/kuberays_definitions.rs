//! A fleet whose hub and member have KubeRay's own definitions of `ray.io` instead of ours: everything works, since nothing
//! essential stands in a field that they would drop. Needs the binary of `make planes`.

#![expect(clippy::unwrap_used, clippy::panic, reason = "what fails here fails the test")]

use std::time::Duration;

use kit::planes::{ADMINISTRATOR, Binary};
use kit::real_fleet::{CONTROLLER, Definitions, RealFleet, client, create, demo, get, until};
use kit::recorder::Recorder;
use rayfleet::api::wire::{Method, Request};
use rayfleet::plan::Flags;
use rayfleet::sandbox::world::fleet::Fleet;
use rayfleet::shell::client::Client;
use rayfleet::shell::kubeconfig::member_config;
use rayfleet::shell::lanes::Lane;
use rayfleet::shell::run::{Controller, Settings};
use serde_json::{Value, json};
use shards::core::Profile;

const JOBS: &str = "/apis/ray.io/v1/namespaces/default/rayjobs";
const CLUSTERS: &str = "/apis/ray.io/v1/namespaces/default/rayclusters";
const SERVICES: &str = "/apis/ray.io/v1/namespaces/default/rayservices";
const CRON_JOBS: &str = "/apis/ray.io/v1/namespaces/default/raycronjobs";
const LIMIT: Duration = Duration::from_secs(30);

fn job(name: &str, version: &str, mode: &str) -> Value {
    let requests = json!({"requests": {"cpu": "1", "memory": "1Gi"}});
    let container = |name: &str| json!({"name": name, "image": "rayproject/ray:2.60.0", "resources": requests});
    let template = |name: &str| json!({"spec": {"containers": [container(name)]}});
    let group = json!({"groupName": "small", "replicas": 1, "minReplicas": 1, "maxReplicas": 1, "rayStartParams": {},
                       "template": template("ray-worker")});
    let mut spec = json!({
        "entrypoint": "sleep 5", "shutdownAfterJobFinishes": true,
        "rayClusterSpec": {"rayVersion": "2.60.0", "workerGroupSpecs": [group],
            "headGroupSpec": {"rayStartParams": {}, "template": template("ray-head")}},
    });
    if version == "v1" {
        spec["submissionMode"] = mode.into();
    }
    let metadata = json!({"name": name, "namespace": "default", "labels": {"volcano.sh/queue-name": "ml"}});
    json!({"apiVersion": format!("ray.io/{version}"), "kind": "RayJob", "metadata": metadata, "spec": spec})
}

/// Jobs in both ways of submitting, and one that was written for the older version, from the hub to their ends.
async fn play(hub: &Client, member: &Client) {
    for (name, version, mode) in
        [("by-http", "v1", "HTTPMode"), ("by-submitter", "v1", "K8sJobMode"), ("old", "v1alpha1", "")]
    {
        create(hub, &JOBS.replace("/v1/", &format!("/{version}/")), &job(name, version, mode)).await.unwrap();
    }
    until("a pod is bound", async || {
        let pods = get(member, "/api/v1/namespaces/default/pods").await.unwrap().unwrap();
        pods["items"].as_array().unwrap().iter().any(|pod| pod["spec"]["nodeName"].is_string())
    })
    .await;
    logs_need_a_kubelet(member).await;
    for name in ["by-http", "by-submitter", "old"] {
        let path = format!("{JOBS}/{name}");
        until(&format!("{name} ends"), async || {
            let object = get(hub, &path).await.unwrap().unwrap_or_default();
            assert_ne!(object["status"]["jobStatus"], "FAILED", "{object}");
            object["status"]["jobDeploymentStatus"] == "Complete"
        })
        .await;
        let object = get(hub, &path).await.unwrap().unwrap();
        assert_eq!(object["status"]["jobStatus"], "SUCCEEDED", "{object}");
        let clusters = "/apis/ray.io/v1/namespaces/default/rayclusters";
        until(&format!("the RayCluster of {name} is gone"), async || {
            let list = get(member, clusters).await.unwrap().unwrap();
            !list["items"]
                .as_array()
                .unwrap()
                .iter()
                .any(|c| c["metadata"]["labels"]["ray.io/originated-from-cr-name"] == name)
        })
        .await;
    }
}

/// The other kinds: a RayCluster comes up, is suspended, comes back and goes; what is not built yet says so on its object.
async fn play_others(hub: &Client, member: &Client) {
    let metadata =
        |name: &str| json!({"name": name, "namespace": "default", "labels": {"volcano.sh/queue-name": "ml"}});
    let object = |kind: &str, name: &str, spec: Value| json!({"apiVersion": "ray.io/v1", "kind": kind, "metadata": metadata(name), "spec": spec});
    let sound = job("x", "v1", "HTTPMode")["spec"].take();
    let cluster = sound["rayClusterSpec"].clone();
    create(hub, CLUSTERS, &object("RayCluster", "standing", cluster.clone())).await.unwrap();
    create(hub, SERVICES, &object("RayService", "served", json!({ "rayClusterConfig": cluster }))).await.unwrap();
    let nightly = json!({"schedule": "0 0 * * *", "jobTemplate": sound});
    create(hub, CRON_JOBS, &object("RayCronJob", "nightly", nightly)).await.unwrap();
    let read = async |path: String| get(hub, &path).await.unwrap().unwrap_or_default();
    until("served says that it is not built", async || {
        let conditions = read(format!("{SERVICES}/served")).await["status"]["conditions"].clone();
        conditions.as_array().is_some_and(|all| all.iter().any(|c| c["reason"] == "NotSupportedYet"))
    })
    .await;
    until("nightly says that it is not built", async || {
        read(format!("{CRON_JOBS}/nightly")).await["metadata"]["annotations"]["rayfleet.io/refused"].is_string()
    })
    .await;
    let standing = format!("{CLUSTERS}/standing");
    let pods = async || {
        let all = get(member, "/api/v1/namespaces/default/pods").await.unwrap().unwrap();
        let of = |pod: &&Value| pod["metadata"]["labels"]["ray.io/cluster"] == "standing";
        all["items"].as_array().unwrap().iter().filter(of).count()
    };
    for (suspend, state, count) in [(None, "ready", 2), (Some(true), "suspended", 0), (Some(false), "ready", 2)] {
        if let Some(suspend) = suspend {
            let change = json!({"spec": {"suspend": suspend}}).to_string().into_bytes();
            let request = Request::new(Method::Patch, &standing, "application/merge-patch+json", change.into());
            assert!(hub.send(Lane::Effects, &request, LIMIT).await.unwrap().is_success());
        }
        until(&format!("standing is {state}"), async || {
            read(standing.clone()).await["status"]["state"] == state && pods().await == count
        })
        .await;
    }
    let gone = Request::new(Method::Delete, &standing, "", [].into());
    assert!(hub.send(Lane::Effects, &gone, LIMIT).await.unwrap().is_success());
    until("standing is gone", async || get(hub, &standing).await.unwrap().is_none() && pods().await == 0).await;
}

/// What whoever asks for a pod's log on such a plane is told: that there is no kubelet, and where the log is.
async fn logs_need_a_kubelet(member: &Client) {
    let pods = get(member, "/api/v1/namespaces/default/pods").await.unwrap().unwrap();
    let pod = pods["items"].as_array().unwrap().iter().find(|pod| pod["spec"]["nodeName"].is_string());
    let Some(pod) = pod else { panic!("no pod is bound: {pods}") };
    let path = format!("/api/v1/namespaces/default/pods/{}/log", pod["metadata"]["name"].as_str().unwrap());
    let reply = member.send(Lane::Effects, &Request::get(path), Duration::from_secs(30)).await.unwrap();
    let said = String::from_utf8_lossy(&reply.body).into_owned();
    assert!(reply.status >= 500 && said.contains("these nodes have no kubelet"), "{}: {said}", reply.status);
    assert!(said.contains("rayfleet logs"), "{said}");
}

/// Whether the server has KubeRay's definition: a field that neither it nor anybody names is dropped, which ours keep.
async fn drops_strange_fields(client: &Client) -> bool {
    let mut strange = job("strange", "v1", "HTTPMode");
    strange["spec"]["fieldOfNobody"] = json!(1);
    let answer = create(client, &format!("{JOBS}?dryRun=All"), &strange).await.unwrap();
    answer["spec"]["entrypoint"] == "sleep 5" && answer["spec"]["fieldOfNobody"].is_null()
}

#[tokio::test(flavor = "multi_thread")]
async fn objects_live_where_kuberays_own_definitions_are_installed() {
    let Some(binary) = Binary::or_skip() else { return };
    let fleet = RealFleet::start_under(&binary, &["us"], Definitions::KubeRays).await.unwrap();
    let mut described = Fleet::default();
    described.members.retain(|member| member.name == "us");
    let mut surroundings = fleet.surroundings(described).await.unwrap();
    let hub = fleet.administrator().await.unwrap();
    let member = client(&fleet.members[0].kubeconfig(ADMINISTRATOR)).await.unwrap();
    assert!(drops_strange_fields(&hub).await && drops_strange_fields(&member).await);
    let timeline = tempfile::NamedTempFile::new().unwrap();
    let recorder = Recorder::start(&demo::watched(&fleet), CONTROLLER, "fleet", timeline.path()).await.unwrap();
    let settings = Settings {
        hub: member_config(&fleet.controllers_kubeconfig(fleet.hub.address()), None).await.unwrap(),
        seat: "a".into(),
        namespace: "rayfleet-system".into(),
        profile: Profile::FAST,
        flags: Flags::default(),
    };
    let (controller, _questions) = Controller::new(settings);
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let controller = tokio::spawn(controller.run(async move { drop(stopped.await) }));
    let lives = async { tokio::join!(play(&hub, &member), play_others(&hub, &member)) };
    surroundings.while_whole(lives).await.unwrap();
    drop(stop);
    controller.await.unwrap().unwrap();
    let verdict = recorder.finish().await.unwrap();
    assert_eq!(verdict.violations, Vec::<String>::new());
    assert!(verdict.writes > 0);
    surroundings.stop().await;
}
