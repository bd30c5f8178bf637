//! What makes ours the operator's: one function for each entry, true where it does.
//! Must not know reasons.

use serde_json::{Value, json};

use super::explained::Differs;
use super::pairs::masked;
use super::recording::Write;

fn last(pointer: &str) -> &str {
    pointer.rsplit('/').next().unwrap_or_default()
}

pub(super) fn go_writes_zero(differs: &Differs<'_>) -> bool {
    let Differs::Value { pointer, ours: None, theirs: Some(theirs), .. } = differs else { return false };
    let zero = match last(pointer) {
        "rayStartParams" if theirs.is_null() => Value::Null,
        "rayStartParams" => json!({}),
        "metadata" | "scaleStrategy" | "resources" | "loadBalancer" | "rayJobInfo" | "head" => json!({}),
        "spec" if pointer.ends_with("/headService/spec") => json!({}),
        "status" if pointer.ends_with("/headService/status") => json!({ "loadBalancer": {} }),
        "failed" | "succeeded" => json!(0),
        _ => return false,
    };
    zero == **theirs
}

pub(super) fn go_leaves_zero_out(differs: &Differs<'_>) -> bool {
    let Differs::Value { pointer, ours: Some(ours), theirs: None, .. } = differs else { return false };
    let zero = match last(pointer) {
        "ttlSecondsAfterFinished" | "ttlSeconds" | "minMember" => json!(0),
        "suspend" | "hostNetwork" => json!(false),
        "jobId" if *pointer == "/spec/jobId" => json!(""),
        "finalizers" => json!([]),
        _ => return false,
    };
    zero == **ours
}

pub(super) fn generation(differs: &Differs<'_>) -> bool {
    let Differs::Value { kind, pointer, ours: Some(ours), theirs: Some(theirs) } = differs else { return false };
    let counts = matches!(
        (*kind, *pointer),
        ("RayJob" | "RayCluster", "/metadata/generation") | ("RayCluster", "/status/observedGeneration")
    );
    counts && ours.as_i64().map(|ours| ours + 1) == theirs.as_i64()
}

pub(super) fn delete_options(differs: &Differs<'_>) -> bool {
    match differs {
        Differs::Value { kind: "Delete", pointer: "", ours: Some(ours), theirs } => {
            let mut ours = (*ours).clone();
            if let Some(options) = ours.as_object_mut() {
                options.remove("preconditions");
                if options.get("propagationPolicy") == Some(&json!("Background")) {
                    options.remove("propagationPolicy");
                }
            }
            ours == json!({}) && theirs.is_none_or(Value::is_null)
        }
        Differs::Value { kind: "Delete", pointer: "/preconditions", ours: Some(_), theirs: None } => true,
        _ => false,
    }
}

/// Two sentences: neither says nothing.
fn sentences<'a>(ours: Option<&'a Value>, theirs: Option<&'a Value>) -> Option<(&'a str, &'a str)> {
    let (ours, theirs) = (ours?.as_str()?, theirs?.as_str()?);
    (!ours.is_empty() && !theirs.is_empty()).then_some((ours, theirs))
}

pub(super) fn note(differs: &Differs<'_>) -> bool {
    let Differs::Value { kind: "Event", pointer: "/note", ours, theirs } = differs else { return false };
    sentences(*ours, *theirs).is_some()
}

pub(super) fn condition_message(differs: &Differs<'_>) -> bool {
    let Differs::Value { pointer, ours, theirs, .. } = differs else { return false };
    let is_message = pointer.starts_with("/status/") && pointer.ends_with("/conditions/-/message");
    is_message && sentences(*ours, *theirs).is_some()
}

/// What the controller itself decides; a message of Ray's begins otherwise.
pub(super) fn job_message(differs: &Differs<'_>) -> bool {
    let Differs::Value { kind: "RayJob", pointer: "/status/message", ours, theirs } = differs else { return false };
    let of_ray = |text: &str| text.starts_with("Job ") && !text.starts_with("Job submission has failed");
    sentences(*ours, *theirs).is_some_and(|(ours, theirs)| !of_ray(ours) && !of_ray(theirs))
}

pub(super) fn waiting_script(differs: &Differs<'_>) -> bool {
    let Differs::Value { pointer, ours, theirs, .. } = differs else { return false };
    let Some((ours, theirs)) = sentences(*ours, *theirs).filter(|_| pointer.ends_with("/args/-")) else { return false };
    if pointer.ends_with("/initContainers/-/args/-") {
        let asked = |script: &str| {
            let (_, rest) = script.split_once("ray health-check --address ")?;
            rest.split_whitespace().next().map(|address| masked(address.trim_end_matches(';')))
        };
        let loud_after = |script: &str| script.contains(" 120 ");
        return asked(ours).is_some() && asked(ours) == asked(theirs) && loud_after(ours) && loud_after(theirs);
    }
    if clears_redis(ours) && clears_redis(theirs) {
        return true;
    }
    let parts = |script: &str| {
        let (wait, rest) = script.split_once("; done ; ")?;
        let (_, address) = wait.split_once("urlopen('")?;
        Some((masked(address.split('\'').next()?), masked(rest)))
    };
    parts(ours).is_some() && parts(ours) == parts(theirs)
}

/// Whether the script has Ray clear its state in Redis: the address first in the list, user, password, TLS by the scheme,
/// under the cluster's prefix. Where no user is given the recorded one does not speak of it.
fn clears_redis(script: &str) -> bool {
    let told = ["'RAY_REDIS_ADDRESS'", "'REDIS_PASSWORD'", "'rediss'", "'RAY_external_storage_namespace'"];
    script.contains("cleanup_redis_storage(") && told.iter().all(|word| script.contains(word))
}

/// The recorded object has the fields of our patch.
pub(super) fn patched(differs: &Differs<'_>) -> bool {
    let Differs::Verb { ours, theirs } = differs else { return false };
    let kinds = ["PodGroup", "Service"];
    if ours.verb != "patch" || theirs.verb != "update" || !kinds.iter().any(|kind| theirs.body["kind"] == *kind) {
        return false;
    }
    let mut merged = theirs.body["spec"].clone();
    for (field, value) in ours.body["spec"].as_object().into_iter().flatten() {
        let mut value = value.clone();
        if let Some(map) = value.as_object_mut() {
            map.retain(|_, inner| !inner.is_null());
        }
        // Go leaves out a zero.
        if value != json!(0) {
            merged[field] = value;
        }
    }
    ours.body["spec"].is_object() && masked(&merged.to_string()) == masked(&theirs.body["spec"].to_string())
}

pub(super) fn useless_prefix(differs: &Differs<'_>) -> bool {
    let Differs::Value { kind, pointer, ours: None, theirs: Some(_) } = differs else { return false };
    matches!((*kind, *pointer), ("Pod", "/metadata/generateName") | ("Job", "/spec/template/metadata/generateName"))
}

pub(super) fn ports_in_any_order(differs: &Differs<'_>) -> bool {
    let Differs::Value { kind: "Service", pointer: "/spec/ports", ours: Some(ours), theirs: Some(theirs) } = differs
    else {
        return false;
    };
    let sorted = |ports: &Value| {
        let mut texts: Vec<String> = ports.as_array().into_iter().flatten().map(Value::to_string).collect();
        texts.sort();
        texts
    };
    sorted(ours) == sorted(theirs)
}

pub(super) fn repeated(differs: &Differs<'_>) -> bool {
    let Differs::Write { is_extra: false, at, side, .. } = differs else { return false };
    let write = side[*at];
    let plain = |write: &Write| {
        let mut body = write.body.clone();
        if let Some(metadata) = body["metadata"].as_object_mut() {
            metadata.remove("generation");
        }
        body
    };
    let same = |other: &&&Write| other.class() == write.class() && other.name == write.name && other.verb == write.verb;
    match (&*write.verb, write.code) {
        ("create", Some(409)) => return side[..*at].iter().any(|before| same(&before) && before.code.is_none()),
        // It is gone already.
        ("delete", Some(404)) => return true,
        _ => {}
    }
    write.verb == "update" && side[..*at].iter().rev().find(same).is_some_and(|before| plain(before) == plain(write))
}

pub(super) fn stop_of_nothing(differs: &Differs<'_>) -> bool {
    let Differs::Ask { is_extra: false, ask } = differs else { return false };
    ask["method"] == "POST" && ask["url"].as_str().is_some_and(|url| url.ends_with("/api/jobs/stop"))
}

/// A status of ours that a later one of the same round replaces; or the one of the two sides that is said before the
/// creations of the round on one side, and after them on the other.
pub(super) fn status_in_between(differs: &Differs<'_>) -> bool {
    let Differs::Write { is_extra, at, side, others } = differs else { return false };
    let write = side[*at];
    if write.subresource.as_deref() != Some("status") || write.code.is_some() {
        return false;
    }
    let of_it = |other: &&&Write| other.class() == write.class() && masked_name(other) == masked_name(write);
    // What a RayJob has come to is no matter of views.
    let stage =
        |write: &Write| ["jobDeploymentStatus", "jobStatus", "reason"].map(|field| write.body["status"][field].clone());
    if *is_extra && side[at + 1..].iter().find(of_it).is_some_and(|later| stage(later) == stage(write)) {
        return true;
    }
    let creates = side.iter().chain(*others).any(|other| other.verb == "create");
    creates && others.iter().filter(of_it).any(|other| said(other) == said(write))
}

fn masked_name(write: &Write) -> String {
    masked(write.name.as_deref().unwrap_or_default())
}

/// A status without names and sentences.
fn said(write: &Write) -> String {
    fn quiet(value: &mut Value) {
        match value {
            Value::Object(map) => {
                map.remove("message");
                map.values_mut().for_each(quiet);
            }
            Value::Array(list) => list.iter_mut().for_each(quiet),
            _ => {}
        }
    }
    let mut status = write.body["status"].clone();
    quiet(&mut status);
    masked(&status.to_string())
}
