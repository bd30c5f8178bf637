//! `ray.io/v1alpha1`: the older version of the definitions, taken from the schema of `v1`.
//! Must not know how schemas come about, or what the fields mean.
//!
//! KubeRay still serves it, says that it is deprecated, and adds nothing to it any more (specs/raycluster.md 1.1). So what
//! it has is a closed list of fields; all about them is as in `v1`. Fields that it lacks are dropped, as under KubeRay's
//! definitions: what came in through it would not have been checked by the rules of `v1`.

use serde_json::{Value, json};

use crate::api::Kind;

/// The version's name.
pub const OLDER: &str = "v1alpha1";

/// First release of KubeRay that no longer serves it.
const GONE_WITH: &str = "KubeRay 1.9";

/// An object as the older version has it.
struct Had {
    fields: &'static [(&'static str, Field)],
    required: &'static [&'static str],
}

/// A field of it.
#[derive(Clone, Copy)]
enum Field {
    /// As in `v1`, with all that is inside.
    Same,
    /// An object with fewer fields, or a list of such objects.
    Fewer(&'static Had),
    /// A map of objects with fewer fields.
    Each(&'static Had),
    /// A point in time that `v1` has no more.
    Time,
}

use Field::{Each, Fewer, Same, Time};

const AUTOSCALER: Had = Had {
    fields: &[
        ("env", Same),
        ("envFrom", Same),
        ("idleTimeoutSeconds", Same),
        ("image", Same),
        ("imagePullPolicy", Same),
        ("resources", Same),
        ("securityContext", Same),
        ("upscalingMode", Same),
        ("volumeMounts", Same),
    ],
    required: &[],
};

const HEAD: Had = Had {
    fields: &[
        ("enableIngress", Same),
        ("headService", Same),
        ("rayStartParams", Same),
        ("serviceType", Same),
        ("template", Same),
    ],
    required: &["rayStartParams", "template"],
};

const GROUP: Had = Had {
    fields: &[
        ("groupName", Same),
        ("maxReplicas", Same),
        ("minReplicas", Same),
        ("rayStartParams", Same),
        ("replicas", Same),
        ("scaleStrategy", Same),
        ("template", Same),
    ],
    required: &["groupName", "maxReplicas", "minReplicas", "rayStartParams", "template"],
};

const CLUSTER: Had = Had {
    fields: &[
        ("autoscalerOptions", Fewer(&AUTOSCALER)),
        ("enableInTreeAutoscaling", Same),
        ("headGroupSpec", Fewer(&HEAD)),
        ("headServiceAnnotations", Same),
        ("rayVersion", Same),
        ("suspend", Same),
        ("workerGroupSpecs", Fewer(&GROUP)),
    ],
    required: &["headGroupSpec"],
};

const CLUSTER_STATUS: Had = Had {
    fields: &[
        ("availableWorkerReplicas", Same),
        ("desiredCPU", Same),
        ("desiredGPU", Same),
        ("desiredMemory", Same),
        ("desiredTPU", Same),
        ("desiredWorkerReplicas", Same),
        ("endpoints", Same),
        ("head", Fewer(&Had { fields: &[("podIP", Same), ("serviceIP", Same)], required: &[] })),
        ("lastUpdateTime", Same),
        ("maxWorkerReplicas", Same),
        ("minWorkerReplicas", Same),
        ("observedGeneration", Same),
        ("readyWorkerReplicas", Same),
        ("reason", Same),
        ("state", Same),
    ],
    required: &[],
};

const JOB: Had = Had {
    fields: &[
        ("clusterSelector", Same),
        ("entrypoint", Same),
        ("entrypointNumCpus", Same),
        ("entrypointNumGpus", Same),
        ("entrypointResources", Same),
        ("jobId", Same),
        ("metadata", Same),
        ("rayClusterSpec", Fewer(&CLUSTER)),
        ("runtimeEnvYAML", Same),
        ("shutdownAfterJobFinishes", Same),
        ("submitterPodTemplate", Same),
        ("suspend", Same),
        ("ttlSecondsAfterFinished", Same),
    ],
    required: &["entrypoint"],
};

const JOB_STATUS: Had = Had {
    fields: &[
        ("dashboardURL", Same),
        ("endTime", Same),
        ("jobDeploymentStatus", Same),
        ("jobId", Same),
        ("jobStatus", Same),
        ("message", Same),
        ("observedGeneration", Same),
        ("rayClusterName", Same),
        ("rayClusterStatus", Fewer(&CLUSTER_STATUS)),
        ("startTime", Same),
    ],
    required: &[],
};

const SERVICE: Had = Had {
    fields: &[
        ("deploymentUnhealthySecondThreshold", Same),
        ("rayClusterConfig", Fewer(&CLUSTER)),
        ("serveConfigV2", Same),
        ("serveService", Same),
        ("serviceUnhealthySecondThreshold", Same),
    ],
    required: &[],
};

const DEPLOYMENT: Had =
    Had { fields: &[("healthLastUpdateTime", Time), ("message", Same), ("status", Same)], required: &[] };

const APPLICATION: Had = Had {
    fields: &[
        ("healthLastUpdateTime", Time),
        ("message", Same),
        ("serveDeploymentStatuses", Each(&DEPLOYMENT)),
        ("status", Same),
    ],
    required: &[],
};

const SERVED: Had = Had {
    fields: &[
        ("applicationStatuses", Each(&APPLICATION)),
        ("rayClusterName", Same),
        ("rayClusterStatus", Fewer(&CLUSTER_STATUS)),
    ],
    required: &[],
};

const SERVICE_STATUS: Had = Had {
    fields: &[
        ("activeServiceStatus", Fewer(&SERVED)),
        ("lastUpdateTime", Same),
        ("observedGeneration", Same),
        ("pendingServiceStatus", Fewer(&SERVED)),
        ("serviceStatus", Same),
    ],
    required: &[],
};

/// Spec and status of a kind in the older version, and whether it has columns of its own there.
fn had(kind: Kind) -> Option<(&'static Had, &'static Had, bool)> {
    match kind {
        Kind::RayCluster => Some((&CLUSTER, &CLUSTER_STATUS, true)),
        Kind::RayJob => Some((&JOB, &JOB_STATUS, false)),
        Kind::RayService => Some((&SERVICE, &SERVICE_STATUS, false)),
        _ => None,
    }
}

/// The older version of a definition, from its `v1`; none for kinds that never had it.
pub(super) fn version(kind: Kind, newer: &Value) -> Option<Value> {
    let (spec, status, columns) = had(kind)?;
    let mut schema = newer["schema"]["openAPIV3Schema"].clone();
    schema["properties"]["spec"] = of(&schema["properties"]["spec"], spec);
    schema["properties"]["status"] = of(&schema["properties"]["status"], status);
    closed(&mut schema);
    let (group, name) = (kind.group(), kind.name());
    let mut version = json!({
        "name": OLDER,
        "served": true,
        "storage": false,
        "deprecated": true,
        "deprecationWarning": format!(
            "{group}/{OLDER} {name} is deprecated: write {}; {GONE_WITH} serves {OLDER} no more",
            kind.api_version()
        ),
        "schema": { "openAPIV3Schema": schema },
        "subresources": newer["subresources"],
    });
    if columns {
        version["additionalPrinterColumns"] = newer["additionalPrinterColumns"].clone();
    }
    Some(version)
}

/// Makes an object of the older version one of `v1`, as an API server does that stores it. Returns the paths of the fields
/// that it drops on the way; none where the object is not of the older version of a kind that has one.
pub fn lifted(object: &mut Value) -> Option<Vec<String>> {
    let kind = [Kind::RayJob, Kind::RayCluster, Kind::RayService]
        .into_iter()
        .find(|kind| object["kind"] == kind.name() && object["apiVersion"] == format!("{}/{OLDER}", kind.group()))?;
    let (spec, status, _) = had(kind)?;
    let mut dropped = Vec::new();
    for (part, had) in [("spec", spec), ("status", status)] {
        if let Some(value) = object.get_mut(part) {
            drop_newer(value, had, part, &mut dropped);
        }
    }
    object["apiVersion"] = kind.api_version().into();
    Some(dropped)
}

/// Takes what the older version did not have out of a value.
fn drop_newer(value: &mut Value, had: &Had, at: &str, dropped: &mut Vec<String>) {
    let Value::Object(map) = value else { return };
    map.retain(|key, inner| {
        let path = format!("{at}.{key}");
        let field = had.fields.iter().find(|(name, _)| name == key).map(|(_, field)| field);
        match (field, inner) {
            (Some(Fewer(had)), Value::Array(list)) => {
                let items = list.iter_mut().enumerate();
                items.for_each(|(i, item)| drop_newer(item, had, &format!("{path}[{i}]"), dropped));
            }
            (Some(Each(had)), inner) => {
                let values = inner.as_object_mut().into_iter().flatten();
                values.for_each(|(key, value)| drop_newer(value, had, &format!("{path}.{key}"), dropped));
            }
            (Some(Fewer(had)), inner) => drop_newer(inner, had, &path, dropped),
            (Some(Same), _) => {}
            (Some(Time) | None, _) => {
                dropped.push(path);
                return false;
            }
        }
        true
    });
}

/// A schema with the fields that the older version had; lists and maps by what is in them.
fn of(newer: &Value, had: &Had) -> Value {
    let mut schema = newer.clone();
    for inner in ["items", "additionalProperties"] {
        if newer[inner].is_object() {
            schema[inner] = of(&newer[inner], had);
            return schema;
        }
    }
    let field = |(name, field): &(&str, Field)| {
        let sub = &newer["properties"][*name];
        let older = match field {
            Same => sub.clone(),
            Fewer(had) | Each(had) => of(sub, had),
            Time => json!({ "type": "string", "format": "date-time" }),
        };
        ((*name).to_owned(), older)
    };
    schema["properties"] = Value::Object(had.fields.iter().map(field).collect());
    let Some(map) = schema.as_object_mut() else { return schema };
    map.remove("required");
    if !had.required.is_empty() {
        map.insert("required".into(), json!(had.required));
    }
    schema
}

/// Without prose, which `v1` has, and without doors for fields that are not named.
fn closed(schema: &mut Value) {
    let Value::Object(map) = schema else { return };
    map.remove("description");
    map.remove("x-kubernetes-preserve-unknown-fields");
    if let Some(Value::Object(properties)) = map.get_mut("properties") {
        properties.values_mut().for_each(closed);
    }
    for inner in ["items", "additionalProperties"] {
        if let Some(sub) = map.get_mut(inner) {
            closed(sub);
        }
    }
}
