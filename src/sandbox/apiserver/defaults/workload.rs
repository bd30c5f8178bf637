//! Kinds that make pods from a template: Jobs, CronJobs, Deployments and their like.
//! Must not know Pods beyond their template.

use serde_json::{Value, json};

use super::super::cause::Cause;
use super::{default, list, part, pod, pod_check, text};

/// A Job: selector and labels follow from its UID, unless it brings its own selector.
pub(super) fn fill_job(job: &mut Value, old: Option<&Value>) {
    let uid = job["metadata"]["uid"].clone();
    let name = job["metadata"]["name"].clone();
    let spec = part(job, "spec");
    default(spec, "completionMode", json!("NonIndexed"));
    let parallelism_given = spec["parallelism"].is_number();
    if !spec["completions"].is_number() && !parallelism_given {
        spec["completions"] = json!(1);
    }
    default(spec, "parallelism", json!(1));
    default(spec, "backoffLimit", json!(6));
    default(spec, "suspend", json!(false));
    default(spec, "podReplacementPolicy", json!("TerminatingOrFailed"));
    default(spec, "manualSelector", json!(false));
    pod::fill_spec(part(spec, "template"));
    if let Some(old) = old {
        if let Some(selector) = old["spec"].get("selector") {
            default(spec, "selector", selector.clone());
        }
        return;
    }
    let manual = spec["manualSelector"] == true;
    if !manual {
        spec["selector"] = json!({"matchLabels": {"batch.kubernetes.io/controller-uid": uid}});
        let labels = part(part(part(spec, "template"), "metadata"), "labels");
        for (key, value) in own_labels(&uid, &name) {
            labels[key] = value;
        }
    }
    // The Job itself takes over the labels of its template where it has none of its own.
    if job["metadata"]["labels"].as_object().is_none_or(serde_json::Map::is_empty) {
        job["metadata"]["labels"] = job["spec"]["template"]["metadata"]["labels"].clone();
    }
    job["status"] = json!({});
}

fn own_labels(uid: &Value, name: &Value) -> [(&'static str, Value); 4] {
    [
        ("batch.kubernetes.io/controller-uid", uid.clone()),
        ("batch.kubernetes.io/job-name", name.clone()),
        ("controller-uid", uid.clone()),
        ("job-name", name.clone()),
    ]
}

pub(super) fn fill_cron_job(job: &mut Value, old: Option<&Value>) {
    let spec = part(job, "spec");
    default(spec, "concurrencyPolicy", json!("Allow"));
    default(spec, "suspend", json!(false));
    default(spec, "successfulJobsHistoryLimit", json!(3));
    default(spec, "failedJobsHistoryLimit", json!(1));
    let template = part(spec, "jobTemplate");
    part(template, "metadata");
    let pods = part(part(template, "spec"), "template");
    part(pods, "metadata");
    pod::fill_spec(pods);
    if old.is_none() {
        job["status"] = json!({});
    }
}

/// Deployment, ReplicaSet, StatefulSet, DaemonSet.
pub(super) fn fill(kind: &str, object: &mut Value, old: Option<&Value>) {
    let spec = part(object, "spec");
    pod::fill_spec(part(spec, "template"));
    if kind != "DaemonSet" {
        default(spec, "replicas", json!(1));
    }
    if kind != "ReplicaSet" {
        default(spec, "revisionHistoryLimit", json!(10));
    }
    match kind {
        "Deployment" => {
            default(spec, "progressDeadlineSeconds", json!(600));
            let strategy = part(spec, "strategy");
            default(strategy, "type", json!("RollingUpdate"));
            if strategy["type"] == "RollingUpdate" {
                let rolling = part(strategy, "rollingUpdate");
                default(rolling, "maxUnavailable", json!("25%"));
                default(rolling, "maxSurge", json!("25%"));
            }
        }
        "StatefulSet" => {
            default(spec, "podManagementPolicy", json!("OrderedReady"));
            default(spec, "updateStrategy", json!({"type": "RollingUpdate", "rollingUpdate": {"partition": 0}}));
            let retain = json!({"whenDeleted": "Retain", "whenScaled": "Retain"});
            default(spec, "persistentVolumeClaimRetentionPolicy", retain);
        }
        "DaemonSet" => {
            let rolling = json!({"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 1, "maxSurge": 0}});
            default(spec, "updateStrategy", rolling);
            count_templates(object, old);
        }
        _ => {}
    }
    if kind == "Deployment"
        && let Some(status) = object.get_mut("status")
    {
        for condition in super::each(status, "conditions") {
            default(condition, "lastUpdateTime", Value::Null);
            default(condition, "lastTransitionTime", Value::Null);
        }
    }
    if old.is_none() {
        object["status"] = match kind {
            "ReplicaSet" => json!({"replicas": 0}),
            "StatefulSet" => json!({"replicas": 0, "availableReplicas": 0}),
            "DaemonSet" => json!({"currentNumberScheduled": 0, "numberMisscheduled": 0,
                "desiredNumberScheduled": 0, "numberReady": 0}),
            _ => json!({}),
        };
    }
}

/// How often the template of a DaemonSet has changed, where the first version of its API kept that.
fn count_templates(object: &mut Value, old: Option<&Value>) {
    const COUNT: &str = "deprecated.daemonset.template.generation";
    let counted = |object: &Value| -> i64 {
        let text = object["metadata"]["annotations"][COUNT].as_str();
        text.and_then(|text| text.parse().ok()).unwrap_or(0)
    };
    let count = match old {
        None => counted(object).max(1),
        Some(old) if old["spec"]["template"] == object["spec"]["template"] => counted(old),
        Some(old) => counted(old) + 1,
    };
    if count > 0 {
        part(part(object, "metadata"), "annotations")[COUNT] = count.to_string().into();
    }
}

pub(super) fn check_job(job: &Value, old: Option<&Value>) -> Vec<Cause> {
    let spec = &job["spec"];
    let mut out = Vec::new();
    for key in ["parallelism", "completions", "backoffLimit", "ttlSecondsAfterFinished", "activeDeadlineSeconds"] {
        if spec[key].as_i64().is_some_and(|n| n < 0) {
            out.push(Cause::invalid(format!("spec.{key}"), &spec[key], "must be greater than or equal to 0"));
        }
    }
    out.extend(pod_check::check_spec(&spec["template"]["spec"], "spec.template.spec"));
    if spec["template"]["spec"]["restartPolicy"] == "Always" {
        let detail = "valid values: \"OnFailure\", \"Never\"";
        out.push(Cause::required("spec.template.spec.restartPolicy", detail));
    }
    if let Some(old) = old {
        let mut fields =
            vec!["spec.selector", "spec.completionMode", "spec.podFailurePolicy", "spec.backoffLimitPerIndex"];
        if spec["completionMode"] != "Indexed" {
            fields.push("spec.completions");
        }
        // The template of a suspended Job that has not started may still change where it only steers scheduling.
        if !(old["spec"]["suspend"] == true && old["status"].get("startTime").is_none()) {
            fields.push("spec.template");
        }
        for field in fields {
            super::immutable(field, job, Some(old), &mut out);
        }
        if job["status"] != old["status"] {
            check_job_status(&job["status"], &mut out);
        }
    }
    out
}

/// A finished Job is finished in all its fields.
fn check_job_status(status: &Value, out: &mut Vec<Cause>) {
    let is = |kind: &str| list(&status["conditions"]).any(|c| c["type"] == kind && c["status"] == "True");
    if is("Complete") {
        if status.get("completionTime").is_none_or(Value::is_null) {
            out.push(Cause::required("status.completionTime", "completionTime is required for Complete jobs"));
        }
        if !is("SuccessCriteriaMet") {
            let text =
                "Invalid value: cannot set Complete=True condition without the SuccessCriteriaMet=true condition";
            out.push(Cause {
                reason: "FieldValueInvalid",
                message: text.to_owned(),
                field: "status.conditions".to_owned(),
            });
        }
    }
    if is("Failed") && !is("FailureTarget") {
        let text = "Invalid value: cannot set Failed=True condition without the FailureTarget=true condition";
        out.push(Cause {
            reason: "FieldValueInvalid",
            message: text.to_owned(),
            field: "status.conditions".to_owned(),
        });
    }
    if (is("Complete") || is("Failed")) && status["active"].as_i64().is_some_and(|n| n > 0) {
        let detail = "active>0 is invalid for finished job";
        out.push(Cause::invalid("status.active", &status["active"], detail));
    }
}

pub(super) fn check_cron_job(job: &Value) -> Vec<Cause> {
    let schedule = text(&job["spec"]["schedule"]);
    let fields: Vec<&str> = schedule.split_whitespace().collect();
    if schedule.is_empty() {
        return vec![Cause::required("spec.schedule", "")];
    }
    if fields.len() != 5 && !schedule.starts_with('@') {
        let detail = format!("expected exactly 5 fields, found {}: [{}]", fields.len(), fields.join(" "));
        return vec![Cause::invalid("spec.schedule", &json!(schedule), detail)];
    }
    Vec::new()
}

/// What of a StatefulSet never changes.
fn frozen(spec: &Value) -> Value {
    const FREE: &[&str] = &[
        "replicas",
        "ordinals",
        "template",
        "updateStrategy",
        "revisionHistoryLimit",
        "persistentVolumeClaimRetentionPolicy",
        "minReadySeconds",
    ];
    spec.as_object()
        .into_iter()
        .flatten()
        .filter(|(k, _)| !FREE.contains(&k.as_str()))
        .map(|(k, v)| (k.clone(), v.clone()))
        .collect::<serde_json::Map<_, _>>()
        .into()
}

pub(super) fn check(kind: &str, object: &Value, old: Option<&Value>) -> Vec<Cause> {
    let spec = &object["spec"];
    let mut out = Vec::new();
    if !spec["selector"].is_object() {
        out.push(Cause::required("spec.selector", ""));
        let detail = "`selector` does not match template `labels`";
        out.push(Cause::invalid("spec.template.metadata.labels", &spec["template"]["metadata"]["labels"], detail));
    }
    for key in ["replicas", "minReadySeconds", "revisionHistoryLimit"] {
        if spec[key].as_i64().is_some_and(|n| n < 0) {
            out.push(Cause::invalid(format!("spec.{key}"), &spec[key], "must be greater than or equal to 0"));
        }
    }
    let labels = &spec["template"]["metadata"]["labels"];
    let wanted = spec["selector"]["matchLabels"].as_object();
    if wanted.into_iter().flatten().any(|(key, value)| labels.get(key) != Some(value)) {
        let detail = "`selector` does not match template `labels`";
        out.push(Cause::invalid("spec.template.metadata.labels", labels, detail));
    }
    out.extend(pod_check::check_spec(&spec["template"]["spec"], "spec.template.spec"));
    match old {
        Some(old) if kind == "StatefulSet" && frozen(&old["spec"]) != frozen(spec) => {
            let detail = "updates to statefulset spec for fields other than 'replicas', 'ordinals', 'template', \
                          'updateStrategy', 'revisionHistoryLimit', 'persistentVolumeClaimRetentionPolicy' and \
                          'minReadySeconds' are forbidden";
            out.push(Cause::forbidden("spec", detail));
        }
        _ => super::immutable("spec.selector", object, old, &mut out),
    }
    out
}
