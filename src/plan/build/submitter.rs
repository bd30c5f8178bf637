//! The submitter: command and pod template, in a Job of its own or beside the head (specs/rayjob.md 7.3, 8, 9).
//! Must not know which Jobs exist.

use serde_json::{Value, json};

use super::pod_group::{mark, uses_volcano};
use super::{cluster::runtime_env, go, owner_reference, push, push_env};
use crate::api::names::{ORIGINATED_KIND_LABEL, ORIGINATED_NAME_LABEL};
use crate::api::ray::{Container, RayCluster, RayJob};

/// Name of the submitter's container, where it is ours.
pub const SUBMITTER: &str = "ray-job-submitter";

/// Pod template of the submitter. The job's stored status gives address and submission id; both may still be empty, as
/// when only its requests are asked for. The error names the field that cannot be used.
pub fn submitter_template(job: &RayJob, cluster: &RayCluster) -> Result<Value, String> {
    let mut template = match &job.spec.submitter_pod_template {
        Some(own) => own.0.clone(),
        None => default_template(cluster),
    };
    let status = job.status.clone().unwrap_or_default();
    let address = status.dashboard_url.unwrap_or_default();
    let submission = status.job_id.unwrap_or_default();
    // Built also where the user has his own command: its errors block the job all the same, as in KubeRay.
    let text = command_text(job, &Dashboard::at(&address), &submission)?;
    let Some(container) = template["spec"]["containers"].as_array_mut().and_then(|list| list.first_mut()) else {
        return Err("spec.submitterPodTemplate.spec.containers is empty".into());
    };
    if container["command"].as_array().is_none_or(Vec::is_empty) {
        container["command"] = json!(["/bin/bash", "-ce", "--"]);
        container["args"] = json!([text]);
    }
    push_env(container, "PYTHONUNBUFFERED", "1");
    push_env(container, "RAY_DASHBOARD_ADDRESS", &address);
    push_env(container, "RAY_JOB_SUBMISSION_ID", &submission);

    for (key, value) in labels(job) {
        template["metadata"]["labels"][key] = json!(value);
    }
    // On a RayCluster that was there before there is no PodGroup of the job's that it could be in (ADR 8).
    if job.spec.selected_cluster().is_none() {
        mark(&job.metadata, job.metadata.name(), "submittergroup", &mut template);
        if uses_volcano(&job.metadata) {
            template["spec"]["schedulerName"] = json!("volcano");
        }
    }
    Ok(template)
}

fn labels(job: &RayJob) -> [(&'static str, &str); 3] {
    [
        (ORIGINATED_NAME_LABEL, job.metadata.name()),
        (ORIGINATED_KIND_LABEL, "RayJob"),
        ("app.kubernetes.io/created-by", "kuberay-operator"),
    ]
}

fn default_template(cluster: &RayCluster) -> Value {
    let head = cluster.spec.head();
    let image = head.template.ray_container().map_or("", Container::image);
    json!({ "metadata": {}, "spec": { "containers": [default_container(image)], "restartPolicy": "Never" } })
}

fn default_container(image: &str) -> Value {
    json!({
        "name": SUBMITTER,
        "image": image,
        "resources": {
            "limits": { "cpu": "1", "memory": "1Gi" },
            "requests": { "cpu": "500m", "memory": "200Mi" },
        },
    })
}

/// The submitter beside a head whose Ray container this is: SidecarMode. Its submission id is the stored one. The error
/// names the field that cannot be used.
pub(super) fn sidecar(job: &RayJob, ray: Container<'_>) -> Result<Value, String> {
    let submission = job.status.as_ref().and_then(|status| status.job_id.as_deref()).unwrap_or_default();
    let port = ray.ports().find(|(name, _)| *name == "dashboard").map_or(8265, |(_, port)| port);
    let mut container = default_container(ray.image());
    container["command"] = json!(["/bin/bash", "-ce", "--"]);
    container["args"] = json!([command_text(job, &Dashboard::beside(port), submission)?]);
    push_env(&mut container, "PYTHONUNBUFFERED", "1");
    // Where the dashboard will be is not known while the RayCluster is made.
    push(&mut container, "env", json!({ "name": "RAY_DASHBOARD_ADDRESS" }));
    push_env(&mut container, "RAY_JOB_SUBMISSION_ID", submission);
    Ok(container)
}

/// Where a submitter finds the dashboard.
struct Dashboard {
    /// For `ray job`.
    address: String,
    /// For the question whether it is there.
    probed: String,
    /// Whether the submitter may be started again: then it looks whether Ray has the job, and follows it by its log.
    starts_again: bool,
}

impl Dashboard {
    fn at(url: &str) -> Self {
        let address = if url.starts_with("http://") { url.to_owned() } else { format!("http://{url}") };
        Self { probed: address.clone(), address, starts_again: true }
    }

    fn beside(port: i64) -> Self {
        let address = format!("http://127.0.0.1:{port}");
        Self { address, probed: format!("http://localhost:{port}"), starts_again: false }
    }
}

/// The shell text: wait for the dashboard, submit and wait for the end. One that may be started again submits unless Ray
/// knows the id already, then follows the log.
fn command_text(job: &RayJob, dashboard: &Dashboard, submission: &str) -> Result<String, String> {
    let spec = &job.spec;
    let Dashboard { address, probed, starts_again } = dashboard;
    let probe = format!(
        "python -c \"import sys, urllib.request as u; \
         sys.exit(b'success' not in u.urlopen('{probed}/api/gcs_healthz', timeout=10).read())\""
    );
    let mut words =
        vec![format!("until {probe} >/dev/null 2>&1 ; do echo \"no healthy Ray at {address} yet\" ; sleep 2 ; done ;")];
    if *starts_again {
        words.push(format!("if ! ray job status --address {address} {submission} >/dev/null 2>&1 ; then"));
    }
    words.push(format!("ray job submit --address {address}"));
    if *starts_again {
        words.push("--no-wait".to_owned());
    }
    if let Some(env) = runtime_env(job).map_err(|e| format!("spec.runtimeEnvYAML: {e}"))? {
        words.push(format!("--runtime-env-json {}", go::quoted(&go::json(&env))));
    }
    if let Some(metadata) = spec.metadata.as_ref().filter(|m| !m.is_empty()) {
        metadata_is_understood(job)?;
        words.push(format!("--metadata-json {}", go::quoted(&go::json(&json!(metadata)))));
    }
    if !submission.is_empty() {
        words.push(format!("--submission-id {submission}"));
    }
    for (flag, number) in [("cpus", &spec.entrypoint_num_cpus), ("gpus", &spec.entrypoint_num_gpus)] {
        if let Some(number) = number.as_ref().and_then(serde_json::Number::as_f64).filter(|n| *n > 0.0) {
            words.push(format!("--entrypoint-num-{flag} {:.6}", number as f32));
        }
    }
    let resources = spec.entrypoint_resources.as_deref().unwrap_or_default();
    if !resources.is_empty() {
        words.push(format!("--entrypoint-resources {}", go::quoted(resources)));
    }
    words.push(format!("-- {} ;", spec.entrypoint.as_deref().unwrap_or_default().trim()));
    if *starts_again {
        words.push(format!("fi ; ray job logs --address {address} --follow {submission}"));
    }
    Ok(words.join(" "))
}

/// Ray takes metadata on the command line from 2.6 on.
fn metadata_is_understood(job: &RayJob) -> Result<(), String> {
    let version = job.spec.ray_cluster_spec.as_ref().and_then(|s| s.ray_version.as_deref()).unwrap_or_default();
    match go::version_at_least(version, (2, 6, 0)) {
        Some(true) => Ok(()),
        Some(false) => Err(format!("spec.metadata needs Ray 2.6.0, spec.rayClusterSpec.rayVersion is {version}")),
        None if version.is_empty() => Ok(()),
        None => Err(format!("spec.rayClusterSpec.rayVersion: {version:?} is no version")),
    }
}

/// The batch Job of the submitter.
pub fn submitter_job(job: &RayJob, cluster: &RayCluster) -> Result<Value, String> {
    let tries = job.spec.submitter_config.as_ref().and_then(|c| c.backoff_limit).unwrap_or(2);
    let labels: serde_json::Map<String, Value> =
        labels(job).into_iter().map(|(k, v)| (k.to_owned(), json!(v))).collect();
    Ok(json!({
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": job.metadata.name(),
            "namespace": job.metadata.namespace(),
            "labels": labels,
            "ownerReferences": [owner_reference("RayJob", &job.metadata)],
        },
        "spec": { "backoffLimit": tries, "template": submitter_template(job, cluster)? },
    }))
}
