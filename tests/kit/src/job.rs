//! RayJobs for stories, built in a line: `ray_job("train").queue("ml").cpus(8).workers(2)`.
//! Must not know the world they are submitted to.

use serde_json::{Value, json};

/// A RayJob in the making.
#[derive(Clone, Debug)]
pub struct RayJob {
    namespace: String,
    name: String,
    queue: String,
    head_cpus: u32,
    workers: u32,
    worker_cpus: u32,
    mode: String,
    entrypoint: String,
    shutdown: bool,
    config_map: Option<String>,
    beside: bool,
    on: Option<String>,
}

/// A RayJob of one head with one CPU in HTTPMode, in namespace `default` and queue `ml`, that tears its cluster down.
pub fn ray_job(name: &str) -> RayJob {
    RayJob {
        namespace: "default".to_owned(),
        name: name.to_owned(),
        queue: "ml".to_owned(),
        head_cpus: 1,
        workers: 0,
        worker_cpus: 1,
        mode: "HTTPMode".to_owned(),
        entrypoint: "python -c 'print(1)'".to_owned(),
        shutdown: true,
        config_map: None,
        beside: false,
        on: None,
    }
}

impl RayJob {
    /// Its Volcano queue.
    pub fn queue(mut self, queue: &str) -> Self {
        queue.clone_into(&mut self.queue);
        self
    }

    /// CPUs of the head.
    pub fn cpus(mut self, cpus: u32) -> Self {
        self.head_cpus = cpus;
        self
    }

    /// Workers, and the CPUs of one.
    pub fn workers(mut self, count: u32, cpus: u32) -> Self {
        self.workers = count;
        self.worker_cpus = cpus;
        self
    }

    /// `K8sJobMode` or `HTTPMode`.
    pub fn mode(mut self, mode: &str) -> Self {
        mode.clone_into(&mut self.mode);
        self
    }

    /// What Ray runs.
    pub fn entrypoint(mut self, command: &str) -> Self {
        command.clone_into(&mut self.entrypoint);
        self
    }

    /// Whether the RayCluster goes when the job has ended.
    pub fn shutdown(mut self, shutdown: bool) -> Self {
        self.shutdown = shutdown;
        self
    }

    /// Mounts a ConfigMap into the head.
    pub fn config_map(mut self, name: &str) -> Self {
        self.config_map = Some(name.to_owned());
        self
    }

    /// With all that a cluster may have beside its pods: Ray's autoscaler and an Ingress, which nobody watches, and state in
    /// Redis, which is cleared by one more pod.
    pub fn beside(mut self) -> Self {
        self.beside = true;
        self
    }

    /// Runs on the RayCluster of this name instead of bringing one.
    pub fn on(mut self, cluster: &str) -> Self {
        self.on = Some(cluster.to_owned());
        self
    }

    /// The RayCluster that it runs on, where it brings none: a root object of its own.
    pub fn cluster_manifest(&self) -> Option<Value> {
        let name = self.on.as_ref()?;
        let mut cluster = RayJob { on: None, ..self.clone() }.manifest();
        cluster["kind"] = json!("RayCluster");
        cluster["metadata"]["name"] = json!(name);
        cluster["spec"] = cluster["spec"]["rayClusterSpec"].take();
        Some(cluster)
    }

    /// The manifest.
    pub fn manifest(&self) -> Value {
        let container = |name: &str, cpus: u32| {
            json!({
                "name": name,
                "image": "rayproject/ray:2.60.0",
                "resources": {
                    "requests": { "cpu": cpus.to_string(), "memory": "1Gi" },
                    "limits": { "cpu": cpus.to_string(), "memory": "1Gi" },
                },
            })
        };
        let mut head = json!({ "containers": [container("ray-head", self.head_cpus)] });
        if let Some(name) = &self.config_map {
            head["containers"][0]["volumeMounts"] = json!([{ "name": "code", "mountPath": "/home/ray/code" }]);
            head["volumes"] = json!([{ "name": "code", "configMap": { "name": name } }]);
        }
        let mut cluster = json!({
            "rayVersion": "2.60.0",
            "headGroupSpec": { "rayStartParams": {}, "template": { "spec": head } },
        });
        if self.workers > 0 {
            cluster["workerGroupSpecs"] = json!([{
                "groupName": "small",
                "replicas": self.workers,
                "minReplicas": self.workers,
                "maxReplicas": self.workers,
                "rayStartParams": {},
                "template": { "spec": { "containers": [container("ray-worker", self.worker_cpus)] } },
            }]);
        }
        if self.beside {
            cluster["enableInTreeAutoscaling"] = json!(true);
            cluster["headGroupSpec"]["enableIngress"] = json!(true);
            cluster["gcsFaultToleranceOptions"] = json!({ "redisAddress": "redis:6379" });
        }
        let mut job = json!({
            "apiVersion": "ray.io/v1",
            "kind": "RayJob",
            "metadata": {
                "namespace": self.namespace,
                "name": self.name,
                "labels": { "volcano.sh/queue-name": self.queue },
            },
            "spec": {
                "entrypoint": self.entrypoint,
                "submissionMode": self.mode,
                "shutdownAfterJobFinishes": self.shutdown,
                "rayClusterSpec": cluster,
            },
        });
        if let Some(name) = &self.on {
            job["spec"]["rayClusterSpec"] = Value::Null;
            job["spec"]["clusterSelector"] = json!({ "ray.io/cluster": name });
        }
        job
    }
}
