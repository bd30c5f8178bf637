//! The RayCluster that a RayJob makes, and what Ray is told about the job (specs/rayjob.md 6.2, 10, 16).
//! Must not know which RayClusters exist.

use serde_json::{Map, Value, json};

use super::pod_group::mark;
use super::submitter::sidecar;
use super::{owner_reference, push};
use crate::api::names::{DISABLE_HEAD_RESTART, ORIGINATED_KIND_LABEL, ORIGINATED_NAME_LABEL};
use crate::api::ray::{ObjectMeta, OwnerReference, RayCluster, RayClusterSpec, RayJob};

/// Annotations that belong to the mirror itself and do not go to its children.
const OURS: &str = "rayfleet.io/";

/// The RayCluster of this name for the RayJob. With a queue among the job's labels, Volcano's marks are on it. In SidecarMode
/// the submitter is part of its head; the error names the field that it cannot be made of.
pub fn cluster_of(job: &RayJob, name: &str) -> Result<RayCluster, String> {
    let mode = job.spec.mode();
    let mut labels = job.metadata.labels.clone().unwrap_or_default();
    labels.retain(|key, _| !key.starts_with(OURS));
    labels.insert(ORIGINATED_NAME_LABEL.into(), job.metadata.name().into());
    labels.insert(ORIGINATED_KIND_LABEL.into(), "RayJob".into());
    labels.insert("ray.io/job-submission-mode".into(), mode.into());
    let mut annotations = job.metadata.annotations.clone().unwrap_or_default();
    annotations.retain(|key, _| !key.starts_with(OURS));
    if mode == "K8sJobMode" {
        let mut marks = json!({ "metadata": {} });
        mark(&job.metadata, job.metadata.name(), "", &mut marks);
        let marked = marks["metadata"]["annotations"].as_object().into_iter().flatten();
        annotations.extend(marked.map(|(k, v)| (k.clone(), v.as_str().unwrap_or_default().to_owned())));
    }
    let mut spec = job.spec.ray_cluster_spec.clone().unwrap_or_default();
    if mode == "SidecarMode" {
        annotations.insert(DISABLE_HEAD_RESTART.into(), "true".into());
        with_submitter(job, &mut spec)?;
    }
    let owner: OwnerReference = serde_json::from_value(owner_reference("RayJob", &job.metadata)).unwrap_or_default();
    Ok(RayCluster {
        api_version: "ray.io/v1".into(),
        kind: "RayCluster".into(),
        metadata: ObjectMeta {
            name: Some(name.into()),
            namespace: job.metadata.namespace.clone(),
            labels: Some(labels),
            annotations: Some(annotations).filter(|a| !a.is_empty()),
            owner_references: Some(vec![owner]),
            ..ObjectMeta::default()
        },
        spec,
        ..RayCluster::default()
    })
}

/// The submitter beside the head, whose pod ends with it: what ran there once is not started again (7.3).
fn with_submitter(job: &RayJob, spec: &mut RayClusterSpec) -> Result<(), String> {
    let Some(head) = &mut spec.head_group_spec else { return Ok(()) };
    let Some(ray) = head.template.ray_container() else { return Ok(()) };
    let sidecar = sidecar(job, ray)?;
    push(&mut head.template.0["spec"], "containers", sidecar);
    head.template.0["spec"]["restartPolicy"] = json!("Never");
    Ok(())
}

/// The runtime environment as JSON; `None` where there is none. The error says what is wrong with the YAML.
pub fn runtime_env(job: &RayJob) -> Result<Option<Value>, String> {
    let text = job.spec.runtime_env_yaml.as_deref().unwrap_or_default();
    if text.trim().is_empty() {
        return Ok(None);
    }
    match serde_saphyr::from_str::<Value>(text) {
        Ok(Value::Null) => Ok(None),
        Ok(value @ Value::Object(_)) => Ok(Some(value)),
        Ok(_) => Err("it is not a map".into()),
        Err(error) => Err(error.to_string().lines().next().unwrap_or_default().to_owned()),
    }
}

/// Body of `POST /api/jobs/`: what is empty is left out. The error names the field.
pub fn submit_body(job: &RayJob, submission: &str) -> Result<Value, String> {
    let spec = &job.spec;
    let mut body = Map::new();
    body.insert("entrypoint".into(), json!(spec.entrypoint.as_deref().unwrap_or_default()));
    if !submission.is_empty() {
        body.insert("submission_id".into(), json!(submission));
    }
    if let Some(env) = runtime_env(job).map_err(|e| format!("spec.runtimeEnvYAML: {e}"))? {
        body.insert("runtime_env".into(), env);
    }
    if let Some(metadata) = spec.metadata.as_ref().filter(|m| !m.is_empty()) {
        body.insert("metadata".into(), json!(metadata));
    }
    for (key, number) in
        [("entrypoint_num_cpus", &spec.entrypoint_num_cpus), ("entrypoint_num_gpus", &spec.entrypoint_num_gpus)]
    {
        if let Some(number) = number.as_ref().filter(|n| n.as_f64().is_some_and(|n| n > 0.0)) {
            body.insert(key.into(), Value::Number(number.clone()));
        }
    }
    let resources = spec.entrypoint_resources.as_deref().unwrap_or_default();
    if !resources.is_empty() {
        let map: Map<String, Value> = serde_json::from_str(resources)
            .map_err(|_| "spec.entrypointResources: it is not a JSON object".to_owned())?;
        if let Some((name, _)) = map.iter().find(|(_, v)| !v.is_number()) {
            return Err(format!("spec.entrypointResources: {name} is not a number"));
        }
        body.insert("entrypoint_resources".into(), Value::Object(map));
    }
    Ok(Value::Object(body))
}
