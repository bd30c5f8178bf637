//! The demo's RayJobs, as people write them.
//! Must not know how they are run or watched.

use serde_json::{Value, json};

/// Namespace of the job that is withdrawn from a member: it has a policy of its own.
pub(super) const LATE_NAMESPACE: &str = "late";

/// What a job of the demo is made from.
pub(super) struct Job {
    /// Namespace on the hub.
    pub(super) namespace: &'static str,
    /// Name.
    pub(super) name: &'static str,
    /// Volcano queue.
    pub(super) queue: &'static str,
    /// CPUs of the head.
    pub(super) head_cpus: u32,
    /// Workers, of one CPU each.
    pub(super) workers: u32,
    /// `K8sJobMode` or `HTTPMode`.
    pub(super) mode: &'static str,
    /// Python, run by `python -c`.
    pub(super) script: &'static str,
    /// What the job is there to show.
    pub(super) shows: &'static str,
}

const COUNT: &str = "import ray; ray.init(); \
    f = ray.remote(lambda i: i * i); \
    print('squares', sum(ray.get([f.remote(i) for i in range(10)])), 'on', len([n for n in ray.nodes() if n['Alive']]), 'nodes')";

const SLOW: &str =
    "import ray, time; ray.init(); print('at work', flush=True); time.sleep(25); print('survived the controller')";

/// All jobs, in the order in which they are submitted.
pub(super) const JOBS: &[Job] = &[
    Job {
        namespace: "default",
        name: "fits-one",
        queue: "ml",
        head_cpus: 3,
        workers: 1,
        mode: "K8sJobMode",
        script: COUNT,
        shows: "fits in one member only",
    },
    Job {
        namespace: "default",
        name: "pair-a",
        queue: "research",
        head_cpus: 2,
        workers: 0,
        mode: "HTTPMode",
        script: COUNT,
        shows: "takes the queue",
    },
    Job {
        namespace: "default",
        name: "pair-b",
        queue: "research",
        head_cpus: 2,
        workers: 0,
        mode: "HTTPMode",
        script: COUNT,
        shows: "waits for pair-a with its reason, then runs",
    },
    Job {
        namespace: "default",
        name: "nowhere",
        queue: "ml",
        head_cpus: 64,
        workers: 0,
        mode: "HTTPMode",
        script: COUNT,
        shows: "fits nowhere and says why",
    },
    Job {
        namespace: LATE_NAMESPACE,
        name: "patient",
        queue: "ml",
        head_cpus: 1,
        workers: 0,
        mode: "HTTPMode",
        script: COUNT,
        shows: "its first member admits too late: withdrawn, runs elsewhere",
    },
    Job {
        namespace: "default",
        name: "survivor",
        queue: "ml",
        head_cpus: 1,
        workers: 0,
        mode: "HTTPMode",
        script: SLOW,
        shows: "the controller is killed while it runs",
    },
];

impl Job {
    /// The manifest.
    pub(super) fn manifest(&self) -> Value {
        let pod = |name: &str, cpus: u32| {
            json!({ "spec": { "containers": [{
                "name": name,
                "image": "rayproject/ray:2.60.0",
                "resources": {
                    "requests": { "cpu": cpus.to_string(), "memory": "1Gi" },
                    "limits": { "cpu": cpus.to_string(), "memory": "1Gi" },
                },
            }] } })
        };
        let mut cluster = json!({
            "rayVersion": "2.60.0",
            "headGroupSpec": { "rayStartParams": {}, "template": pod("ray-head", self.head_cpus) },
        });
        if self.workers > 0 {
            cluster["workerGroupSpecs"] = json!([{
                "groupName": "small",
                "replicas": self.workers,
                "minReplicas": self.workers,
                "maxReplicas": self.workers,
                "rayStartParams": {},
                "template": pod("ray-worker", 1),
            }]);
        }
        json!({
            "apiVersion": "ray.io/v1",
            "kind": "RayJob",
            "metadata": {
                "namespace": self.namespace,
                "name": self.name,
                "labels": { "volcano.sh/queue-name": self.queue },
            },
            "spec": {
                "entrypoint": format!("python -c \"{}\"", self.script),
                "submissionMode": self.mode,
                "shutdownAfterJobFinishes": true,
                // Long enough to ask Ray itself what ran.
                "ttlSecondsAfterFinished": 5,
                "rayClusterSpec": cluster,
            },
        })
    }

    /// Policies: where jobs go when several members fit. In [`LATE_NAMESPACE`] the member that is slow comes first, and
    /// is not waited for long.
    pub(super) fn policies() -> [(&'static str, Value); 2] {
        let policy = |namespace: &'static str, spec: Value| {
            let body = json!({
                "apiVersion": "rayfleet.io/v1alpha1",
                "kind": "PlacementPolicy",
                "metadata": { "namespace": namespace, "name": "default" },
                "spec": spec,
            });
            (namespace, body)
        };
        [
            policy("default", json!({ "preference": ["eu", "us", "ap"] })),
            policy(LATE_NAMESPACE, json!({ "preference": ["ap", "us"], "admissionDeadlineSeconds": 8 })),
        ]
    }
}
