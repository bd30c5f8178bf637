//! Shape of a gang: which pods a root object brings, what each asks for, what its PodGroup says.
//! Knows KubeRay's counting (specs/volcano.md 5.2, specs/raycluster.md 2.6). Must not know members.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;

use super::quantity::{PODS, Resources};
use super::{Flags, build, validate};
use crate::api::fleet::{GangPods, GangShape, GangToleration};
use crate::api::ray::{RayCluster, RayClusterSpec, RayJob};
use crate::row::pod_requests;

/// Group name of the head.
pub const HEAD_GROUP: &str = "headgroup";
/// Group name of the submitter pod.
pub const SUBMITTER_GROUP: &str = "submitter";
/// Volcano task of the submitter pod, as KubeRay marks it.
pub const SUBMITTER_TASK: &str = "submittergroup";
/// Label with the priority class of a Ray object.
const PRIORITY_LABEL: &str = "ray.io/priority-class-name";

/// Shape of the gang that a root object (RayJob or RayCluster, whole JSON) brings. The error is a sentence for its user.
pub fn shape(root: &Value, flags: &Flags) -> Result<GangShape, String> {
    let kind = root["kind"].as_str().unwrap_or_default();
    let (cluster, submitter) = match kind {
        "RayJob" => {
            let job = RayJob::deserialize(root).map_err(|e| e.to_string())?;
            if let Some(template) = &job.spec.submitter_pod_template {
                validate::template_shape(template, "spec.submitterPodTemplate")?;
            }
            if let Some(name) = job.spec.selected_cluster() {
                return on_cluster(name);
            }
            let Some(spec) = &job.spec.ray_cluster_spec else {
                return Err("spec.rayClusterSpec or spec.clusterSelector must be set".into());
            };
            templates(spec, "spec.rayClusterSpec")?;
            let cluster = build::cluster_of(&job, job.metadata.name())?;
            let submits = job.spec.mode() == "K8sJobMode";
            let submitter = if submits { Some(build::submitter_template(&job, &cluster)?) } else { None };
            (cluster, submitter)
        }
        "RayCluster" => {
            let cluster = RayCluster::deserialize(root).map_err(|e| e.to_string())?;
            templates(&cluster.spec, "spec")?;
            (cluster, None)
        }
        other => return Err(format!("{other} is not a kind that is placed")),
    };
    let priority = root["metadata"]["labels"][PRIORITY_LABEL].as_str().unwrap_or_default();
    of_cluster(&cluster, submitter.as_ref(), priority, flags)
}

/// A job on a RayCluster that is there already brings nothing that room is kept for (ADR 8).
fn on_cluster(name: &str) -> Result<GangShape, String> {
    if name.is_empty() {
        return Err("spec.clusterSelector must have a value for ray.io/cluster".into());
    }
    Ok(GangShape { runs_on: name.to_owned(), ..GangShape::default() })
}

/// Whether pods can be built from the templates at all: an API server with other definitions may have let anything in.
fn templates(spec: &RayClusterSpec, at: &str) -> Result<(), String> {
    if let Some(head) = &spec.head_group_spec {
        validate::template_shape(&head.template, &format!("{at}.headGroupSpec.template"))?;
    }
    for (i, group) in spec.groups().iter().enumerate() {
        validate::template_shape(&group.template, &format!("{at}.workerGroupSpecs[{i}].template"))?;
    }
    Ok(())
}

/// Pods are counted as they will be built, injected containers included.
fn of_cluster(
    cluster: &RayCluster,
    submitter: Option<&Value>,
    priority: &str,
    flags: &Flags,
) -> Result<GangShape, String> {
    let spec = &cluster.spec;
    if spec.head_group_spec.is_none() {
        return Err("headGroupSpec is missing".into());
    }
    let mut pods = vec![group(HEAD_GROUP, 1, &build::head_pod(cluster, flags)["spec"])?];
    for worker in spec.groups() {
        // With autoscaling the demand is the minimum (`placement.md` section 4).
        let count = if spec.autoscaling() { build::min_pods(worker) } else { build::desired_pods(worker) };
        if worker.group_name == HEAD_GROUP || worker.group_name == SUBMITTER_GROUP {
            return Err(format!("a worker group must not be called {}", worker.group_name));
        }
        if count > 0 {
            let slot = build::Slot { replica: 0, host: None };
            let pod = build::worker_pod(cluster, worker, slot, flags);
            pods.push(group(&worker.group_name, count, &pod["spec"])?);
        }
    }
    let members: i64 = pods.iter().map(|p| i64::from(p.count)).sum();
    let min_member = i32::try_from(members).map_err(|_| format!("{members} pods are more than a gang can have"))?;
    if let Some(template) = submitter {
        pods.push(group(SUBMITTER_GROUP, 1, &template["spec"])?);
    }
    let mut shape = GangShape { min_member, priority_class: priority.to_owned(), pods, ..GangShape::default() };
    let mut sum = Gang::parse(&shape)?.full;
    sum.remove(PODS);
    shape.min_resources = sum.texts();
    Ok(shape)
}

fn group(name: &str, count: i32, pod_spec: &Value) -> Result<GangPods, String> {
    let requests = pod_requests(pod_spec).map_err(|e| format!("group {name}: {e}"))?;
    // An API server refuses such a pod; counted, it would make room for others.
    if let Some((dimension, amount)) = requests.iter().find(|(_, amount)| amount.nanos() < 0) {
        return Err(format!("group {name}: {dimension} {amount} is negative: requests and limits are 0 or more"));
    }
    let texts = |v: &Value| -> BTreeMap<String, String> {
        v.as_object()
            .into_iter()
            .flatten()
            .map(|(k, v)| (k.clone(), v.as_str().unwrap_or_default().to_owned()))
            .collect()
    };
    let text = |v: &Value| v.as_str().unwrap_or_default().to_owned();
    let tolerations = pod_spec["tolerations"].as_array().into_iter().flatten();
    Ok(GangPods {
        group: name.to_owned(),
        count,
        requests: requests.into_iter().map(|(n, q)| (n.to_string(), q.to_string())).collect(),
        node_selector: texts(&pod_spec["nodeSelector"]),
        tolerations: tolerations
            .map(|t| GangToleration {
                key: text(&t["key"]),
                operator: text(&t["operator"]),
                value: text(&t["value"]),
                effect: text(&t["effect"]),
            })
            .collect(),
    })
}

/// A gang in numbers.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Gang {
    /// minResources of its PodGroup, without `pods`.
    pub min: Resources,
    /// Sum of all its pods, `pods` included.
    pub full: Resources,
    /// Its pods, equal ones together.
    pub tasks: Vec<Task>,
}

/// Equal pods.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Task {
    /// Group name.
    pub group: String,
    /// How many.
    pub count: i64,
    /// What one asks for, `pods: 1` included.
    pub requests: Resources,
    /// Labels that its node must have.
    pub node_selector: BTreeMap<String, String>,
    /// Taints that it tolerates.
    pub tolerations: Vec<GangToleration>,
}

impl Gang {
    /// From the shape that is stored. The error names group and dimension.
    pub fn parse(shape: &GangShape) -> Result<Self, String> {
        let mut gang = Gang { min: Resources::parse(&shape.min_resources)?, ..Gang::default() };
        for pods in &shape.pods {
            let task = Task::parse(pods)?;
            gang.full.add(&task.requests.times(task.count));
            gang.tasks.push(task);
        }
        Ok(gang)
    }
}

impl Task {
    /// From stored pods.
    pub fn parse(pods: &GangPods) -> Result<Self, String> {
        let mut requests = Resources::parse(&pods.requests).map_err(|e| format!("group {}: {e}", pods.group))?;
        requests.set(PODS, 1);
        Ok(Self {
            group: pods.group.clone(),
            count: i64::from(pods.count),
            requests,
            node_selector: pods.node_selector.clone(),
            tolerations: pods.tolerations.clone(),
        })
    }
}

/// Name of the PodGroup of a root object (specs/volcano.md 5.2), the same for RayJob and RayCluster.
pub fn pod_group_name(root_name: &str) -> String {
    format!("ray-{root_name}-pg")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn template(cpu: &str, memory: &str, more: &[(&str, &str)]) -> Value {
        let mut requests = json!({"cpu": cpu, "memory": memory});
        for (name, amount) in more {
            requests[*name] = json!(amount);
        }
        json!({"spec": {"containers": [{"name": "ray", "resources": {"requests": requests}}]}})
    }

    /// specs/volcano.md 5.3.
    fn cluster(autoscaling: bool) -> Value {
        json!({
            "enableInTreeAutoscaling": autoscaling,
            "headGroupSpec": {"template": template("2", "8Gi", &[])},
            "workerGroupSpecs": [
                {"groupName": "a", "replicas": 4, "minReplicas": 1, "maxReplicas": 8,
                 "template": template("8", "32Gi", &[("nvidia.com/gpu", "1")])},
                {"groupName": "b", "replicas": 2, "minReplicas": 1, "maxReplicas": 2, "numOfHosts": 4,
                 "template": template("16", "64Gi", &[("google.com/tpu", "4")])},
            ],
        })
    }

    #[test]
    fn a_template_that_no_pod_can_be_built_from_is_a_sentence() {
        let odd = [("containers", json!([[]])), ("initContainers", json!(5)), ("volumes", json!(["x"]))];
        for (field, value) in odd {
            let mut spec = cluster(false);
            spec["headGroupSpec"]["template"]["spec"][field] = value;
            let root = json!({"kind": "RayCluster", "metadata": {"name": "a"}, "spec": spec});
            let why = shape(&root, &Flags::default()).unwrap_err();
            assert!(why.starts_with(&format!("spec.headGroupSpec.template.spec.{field}")), "{why}");
        }
    }

    fn sums(shape: &GangShape) -> (i32, &str, &str) {
        (shape.min_member, &shape.min_resources["cpu"], &shape.min_resources["memory"])
    }

    #[test]
    fn a_cluster_counts_head_and_workers() {
        let root = json!({"kind": "RayCluster", "spec": cluster(false)});
        let shape = shape(&root, &Flags::default()).unwrap();
        assert_eq!(sums(&shape), (13, "162", "648Gi"));
        assert_eq!((&*shape.min_resources["nvidia.com/gpu"], &*shape.min_resources["google.com/tpu"]), ("4", "32"));
    }

    #[test]
    fn with_autoscaling_the_minimum_is_the_gang_and_the_autoscaler_counts() {
        let root = json!({"kind": "RayCluster", "spec": cluster(true)});
        // 74 cores and 296 GiB, and what the container beside the head asks for.
        assert_eq!(sums(&shape(&root, &Flags::default()).unwrap()), (6, "74500m", "303616Mi"));
    }

    #[test]
    fn a_submitter_counts_in_min_resources_but_not_in_min_member() {
        let job =
            |mode: &str| json!({"kind": "RayJob", "spec": {"submissionMode": mode, "rayClusterSpec": cluster(false)}});
        let with = shape(&job("K8sJobMode"), &Flags::default()).unwrap();
        assert_eq!(sums(&with), (13, "162500m", "663752Mi"));
        assert_eq!(with.pods.last().unwrap().group, "submitter");
        assert_eq!(sums(&shape(&job("HTTPMode"), &Flags::default()).unwrap()), (13, "162", "648Gi"));
    }

    #[test]
    fn replicas_are_held_between_minimum_and_maximum_and_suspended_groups_are_none() {
        let mut spec = cluster(false);
        spec["workerGroupSpecs"][0]["replicas"] = json!(10);
        let root = json!({"kind": "RayCluster", "spec": spec});
        assert_eq!(sums(&shape(&root, &Flags::default()).unwrap()).0, 17);
        let mut spec = cluster(false);
        spec["workerGroupSpecs"][1]["suspend"] = json!(true);
        let root = json!({"kind": "RayCluster", "spec": spec});
        assert_eq!(sums(&shape(&root, &Flags::default()).unwrap()), (5, "34", "136Gi"));
    }

    #[test]
    fn a_small_worker_asks_for_what_its_waiting_container_needs() {
        let root = json!({"kind": "RayCluster", "spec": {
            "headGroupSpec": {"template": template("1", "1Gi", &[])},
            "workerGroupSpecs": [{"groupName": "w", "replicas": 1, "template": template("100m", "1Gi", &[])}],
        }});
        let shape = shape(&root, &Flags::default()).unwrap();
        assert_eq!(shape.pods[1].requests["cpu"], "200m");
    }

    #[test]
    fn a_job_on_a_raycluster_that_is_there_brings_no_gang() {
        for own in [Value::Null, cluster(false)] {
            let spec = json!({"clusterSelector": {"ray.io/cluster": "shared"}, "rayClusterSpec": own});
            let shape = shape(&json!({"kind": "RayJob", "spec": spec}), &Flags::default()).unwrap();
            assert_eq!(shape, GangShape { runs_on: "shared".into(), ..GangShape::default() });
        }
        let neither = shape(&json!({"kind": "RayJob", "spec": {}}), &Flags::default()).unwrap_err();
        assert_eq!(neither, "spec.rayClusterSpec or spec.clusterSelector must be set");
    }

    #[test]
    fn what_has_no_shape_says_why() {
        let no_head = json!({"kind": "RayCluster", "spec": {}});
        assert_eq!(shape(&no_head, &Flags::default()).unwrap_err(), "headGroupSpec is missing");
        let mut bad = json!({"kind": "RayCluster", "spec": cluster(false)});
        bad["spec"]["headGroupSpec"]["template"] = template("2x", "1Gi", &[]);
        let why = shape(&bad, &Flags::default()).unwrap_err();
        assert!(why.starts_with("spec.headGroupSpec.template.spec.containers[0].resources.requests.cpu: "), "{why}");
    }
}
