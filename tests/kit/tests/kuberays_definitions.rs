//! A fleet whose hub and member have KubeRay's own definitions of `ray.io` instead of ours: everything works, since nothing
//! essential stands in a field that they would drop. Needs the binary of `make planes`.

#![expect(clippy::unwrap_used, clippy::panic, reason = "what fails here fails the test")]

use std::time::Duration;

use kit::planes::{ADMINISTRATOR, Binary};
use kit::real_fleet::{CONTROLLER, Definitions, RealFleet, client, create, demo, get, until};
use kit::recorder::Recorder;
use rayfleet::api::wire::Request;
use rayfleet::plan::Flags;
use rayfleet::sandbox::world::fleet::Fleet;
use rayfleet::shell::client::Client;
use rayfleet::shell::kubeconfig::member_config;
use rayfleet::shell::lanes::Lane;
use rayfleet::shell::run::{Controller, Settings};
use serde_json::{Value, json};
use shards::core::Profile;

const JOBS: &str = "/apis/ray.io/v1/namespaces/default/rayjobs";

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
async fn jobs_go_through_where_kuberays_own_definitions_are_installed() {
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
    surroundings.while_whole(play(&hub, &member)).await.unwrap();
    drop(stop);
    controller.await.unwrap().unwrap();
    let verdict = recorder.finish().await.unwrap();
    assert_eq!(verdict.violations, Vec::<String>::new());
    assert!(verdict.writes > 0);
    surroundings.stop().await;
}
