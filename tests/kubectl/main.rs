//! The sandbox's API server as a person meets it: unmodified kubectl against it. Skipped, with a line, without kubectl.

#![expect(clippy::unwrap_used, reason = "what fails here fails the test")]

mod bench;
mod writes;

use bench::{Bench, has_kubectl, kubectl};
use rayfleet::api::wire::Method;
use rayfleet::sandbox::fleet_process::{FleetProcess, Settings};
use rayfleet::sandbox::world::fleet::Fleet;
use serde_json::json;

const CRD: &str = r"
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: boats.harbour.dev}
spec:
  group: harbour.dev
  scope: Namespaced
  names: {plural: boats, singular: boat, kind: Boat, shortNames: [bt], categories: [all]}
  versions:
  - name: v1
    served: true
    storage: true
    subresources: {status: {}}
    additionalPrinterColumns:
    - {name: Length, type: integer, jsonPath: .spec.length}
    - {name: Phase, type: string, jsonPath: .status.phase}
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec:
            type: object
            required: [length]
            properties:
              length: {type: integer, minimum: 1}
              flag: {type: string, default: none}
          status:
            type: object
            properties:
              phase: {type: string}
              conditions:
                type: array
                items: {type: object, x-kubernetes-preserve-unknown-fields: true}
";

fn boat(length: u32) -> String {
    format!("apiVersion: harbour.dev/v1\nkind: Boat\nmetadata: {{name: b}}\nspec: {{length: {length}}}\n")
}

async fn with_boats() -> Bench {
    let bench = Bench::start().await;
    bench.run(&["apply", "-f", "-"], CRD).await;
    bench.run(&["wait", "crd/boats.harbour.dev", "--for=condition=Established", "--timeout=30s"], "").await;
    bench
}

#[tokio::test(flavor = "multi_thread")]
async fn a_custom_resource_is_created_applied_shown_and_deleted() {
    if !has_kubectl() {
        return;
    }
    let bench = with_boats().await;
    assert_eq!(bench.run(&["create", "-f", "-"], &boat(5)).await, "boat.harbour.dev/b created\n");
    let table = bench.run(&["get", "bt"], "").await;
    let rows: Vec<Vec<&str>> = table.lines().map(|l| l.split_whitespace().collect()).collect();
    assert_eq!(rows, [vec!["NAME", "LENGTH", "PHASE"], vec!["b", "5"]]);
    assert_eq!(bench.run(&["get", "boat", "b", "-o", "jsonpath={.spec.flag}"], "").await, "none");
    assert!(bench.run(&["get", "all"], "").await.contains("boat.harbour.dev/b"));
    assert_eq!(bench.run(&["apply", "-f", "-"], &boat(6)).await, "boat.harbour.dev/b configured\n");
    assert_eq!(bench.run(&["apply", "-f", "-"], &boat(6)).await, "boat.harbour.dev/b unchanged\n");
    assert!(bench.run(&["describe", "boat", "b"], "").await.contains("Length:  6"));
    assert_eq!(bench.run(&["delete", "boat", "b"], "").await, "boat.harbour.dev \"b\" deleted\n");
    let gone = bench.kubectl(&["get", "boat", "b"], "").await;
    assert!(!gone.ok && gone.err.contains("(NotFound)"), "{}", gone.err);
    bench.listening.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn mistakes_are_told_as_a_real_server_tells_them() {
    if !has_kubectl() {
        return;
    }
    let bench = with_boats().await;
    let wrong = bench.kubectl(&["create", "-f", "-"], &boat(0)).await;
    assert!(!wrong.ok);
    assert!(wrong.err.contains("spec.length in body should be greater than or equal to 1"), "{}", wrong.err);
    let unknown = bench.kubectl(&["create", "-f", "-"], &format!("{}bogus: 1\n", boat(1))).await;
    assert!(!unknown.ok && unknown.err.contains("unknown field \"bogus\""), "{}", unknown.err);
    let nothing = bench.kubectl(&["get", "ships"], "").await;
    assert!(nothing.err.contains("the server doesn't have a resource type \"ships\""), "{}", nothing.err);
}

#[tokio::test(flavor = "multi_thread")]
async fn wait_returns_when_the_condition_comes() {
    if !has_kubectl() {
        return;
    }
    let bench = with_boats().await;
    bench.run(&["create", "-f", "-"], &boat(5)).await;
    let (kubeconfig, home) = (bench.kubeconfig(), bench.dir.path().to_owned());
    let waiting = tokio::spawn(async move {
        let args = ["wait", "boat/b", "--for=jsonpath={.status.phase}=Afloat", "--timeout=60s"];
        kubectl(&kubeconfig, &home, &args, "").await
    });
    let body = json!({"status": {"phase": "Afloat"}});
    let path = "/apis/harbour.dev/v1/namespaces/default/boats/b/status";
    bench.send(Method::Patch, path, "application/merge-patch+json", &body);
    let done = waiting.await.unwrap();
    assert!(done.ok && done.out.contains("condition met"), "{}{}", done.out, done.err);
}

#[tokio::test(flavor = "multi_thread")]
async fn built_in_kinds_are_created_and_shown() {
    if !has_kubectl() {
        return;
    }
    let bench = Bench::start().await;
    let map = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: script}\ndata: {main.py: print()}\n";
    assert_eq!(bench.run(&["create", "-f", "-"], map).await, "configmap/script created\n");
    assert!(bench.run(&["get", "cm"], "").await.contains("script"));
    assert!(bench.run(&["describe", "cm", "script"], "").await.contains("main.py"));
    let again = bench.kubectl(&["create", "-f", "-"], map).await;
    assert!(again.err.contains("(AlreadyExists)"), "{}", again.err);
    // What create made, apply takes over and changes with a strategic merge patch.
    bench.run(&["apply", "-f", "-"], &map.replace("print()", "exit()")).await;
    assert_eq!(bench.run(&["get", "cm", "script", "-o", "jsonpath={.data}"], "").await, r#"{"main.py":"exit()"}"#);
    let namespaces = bench.run(&["get", "ns", "-o", "name"], "").await;
    assert!(namespaces.contains("namespace/default"), "{namespaces}");
    assert!(bench.run(&["api-resources"], "").await.contains("configmaps"));
    assert!(bench.run(&["version"], "").await.contains("Server Version"));
    let dry = map.replace("name: script", "name: other");
    bench.run(&["create", "--dry-run=server", "-f", "-"], &dry).await;
    assert!(!bench.kubectl(&["get", "cm", "other"], "").await.ok);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_is_shown_and_its_log_read() {
    if !has_kubectl() {
        return;
    }
    let bench = Bench::start().await;
    let pod = "apiVersion: v1\nkind: Pod\nmetadata: {name: p}\nspec: {containers: [{name: c, image: i}]}\n";
    bench.run(&["create", "-f", "-"], pod).await;
    let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}});
    bench.send(Method::Post, "/api/v1/nodes", "application/json", &node);
    let bound = json!({"apiVersion": "v1", "kind": "Binding", "metadata": {"name": "p"}, "target": {"name": "n1"}});
    bench.send(Method::Post, "/api/v1/namespaces/default/pods/p/binding", "application/json", &bound);
    let status = json!({"status": {"phase": "Running", "containerStatuses": [
        {"name": "c", "ready": true, "restartCount": 0, "image": "i", "imageID": "", "state": {"running": {}}}]}});
    let path = "/api/v1/namespaces/default/pods/p/status";
    bench.send(Method::Patch, path, "application/merge-patch+json", &status);
    let row = bench.run(&["get", "pods", "-o", "wide", "--no-headers"], "").await;
    let cells: Vec<&str> = row.split_whitespace().collect();
    assert_eq!(&cells[..4], ["p", "1/1", "Running", "0"], "{row}");
    assert!(row.contains("n1"), "{row}");
    assert!(bench.run(&["describe", "pod", "p"], "").await.contains("Node:"));
    assert_eq!(bench.run(&["logs", "p"], "").await, "first\nsecond\n");
    assert_eq!(bench.run(&["logs", "-f", "p", "-c", "c", "--tail=1"], "").await, "second\n");
    bench.run(&["delete", "pod", "p", "--grace-period=0", "--force"], "").await;
}

const RAY_JOB: &str = r#"
apiVersion: ray.io/v1
kind: RayJob
metadata: {name: train, labels: {volcano.sh/queue-name: default}}
spec:
  entrypoint: python /home/ray/main.py
  rayClusterSpec:
    rayVersion: 2.52.0
    headGroupSpec:
      rayStartParams: {}
      template:
        spec:
          containers:
          - {name: ray-head, image: "rayproject/ray:2.52.0", resources: {limits: {cpu: 1, memory: 1Gi}}}
    workerGroupSpecs:
    - groupName: small
      replicas: 2
      minReplicas: 2
      maxReplicas: 2
      rayStartParams: {}
      template:
        spec:
          containers:
          - {name: ray-worker, image: "rayproject/ray:2.52.0", resources: {limits: {cpu: 1, memory: 1Gi}}}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: train-code}
data: {main.py: print(1)}
"#;

#[tokio::test(flavor = "multi_thread")]
async fn a_ray_job_manifest_is_applied_as_it_is() {
    if !has_kubectl() {
        return;
    }
    let bench = Bench::start().await;
    for crd in rayfleet::api::crds::hub() {
        let path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
        bench.send(Method::Post, path, "application/json", &crd);
    }
    let applied = bench.run(&["apply", "-f", "-"], RAY_JOB).await;
    assert_eq!(applied, "rayjob.ray.io/train created\nconfigmap/train-code created\n");
    // kubectl sends the list of worker groups again, for the server filled defaults into it; nothing changes by that.
    bench.run(&["apply", "-f", "-"], RAY_JOB).await;
    assert_eq!(bench.run(&["get", "rayjob", "train", "-o", "jsonpath={.metadata.generation}"], "").await, "1");
    let table = bench.run(&["get", "rayjob"], "").await;
    assert!(table.starts_with("NAME") && table.contains("JOB STATUS") && table.contains("train"), "{table}");
    let both = bench.run(&["get", "rayjob,raycluster,placements", "-o", "name"], "").await;
    assert_eq!(both, "rayjob.ray.io/train\n");
    assert!(bench.run(&["describe", "rayjob", "train"], "").await.contains("python /home/ray/main.py"));
    bench.run(&["delete", "rayjob", "train"], "").await;
}

/// What a user of KubeRay and Volcano looks at, with our own kind.
const LOOK: &str = "rayjob,raycluster,pods,podgroups,queues,placements";

#[tokio::test(flavor = "multi_thread")]
async fn one_command_shows_jobs_clusters_gangs_queues_and_placements_on_hub_and_members() {
    if !has_kubectl() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let settings = Settings { fleet: Fleet::of_size(1), ray: None, dir: dir.path().to_owned(), port: 0 };
    let process = FleetProcess::start(settings).await.unwrap();
    let kubeconfig = process.kubeconfig.clone();
    // The scheduler makes the default queue of a member.
    let made = kubectl(
        &kubeconfig,
        dir.path(),
        &["--context", "eu", "wait", "queue/default", "--for=create", "--timeout=60s"],
        "",
    );
    let made = made.await;
    assert!(made.ok, "{}", made.err);
    for context in ["hub", "eu"] {
        let applied = kubectl(&kubeconfig, dir.path(), &["--context", context, "apply", "-f", "-"], RAY_JOB).await;
        assert!(applied.ok, "{}", applied.err);
        let shown = kubectl(&kubeconfig, dir.path(), &["--context", context, "get", LOOK], "").await;
        assert!(shown.ok && shown.err.is_empty(), "{context}: {}", shown.err);
        assert!(shown.out.contains("rayjob.ray.io/train"), "{context}: {}", shown.out);
        assert_eq!(shown.out.contains("queue.scheduling.volcano.sh/default"), context == "eu", "{}", shown.out);
    }
    process.stop().await;
}
