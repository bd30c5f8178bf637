//! Resource quantities in objects of built-in kinds: numbers become text, and text its canonical form.
//! Must not know which amounts make sense.

use serde_json::Value;

use super::super::registry::ResourceType;
use crate::api::quantity::Quantity;

/// Brings all amounts of the object into the form in which a server keeps them.
/// The error is the reason for which a server does not take the body.
pub fn canonical_quantities(ty: &ResourceType, object: &mut Value) -> Result<(), String> {
    let pod_spec = match ty.kind.as_str() {
        "Pod" => Some("/spec"),
        "Job" | "Deployment" | "ReplicaSet" | "StatefulSet" | "DaemonSet" => Some("/spec/template/spec"),
        "CronJob" => Some("/spec/jobTemplate/spec/template/spec"),
        _ => None,
    };
    if let Some(spec) = pod_spec.filter(|_| ty.builtin).and_then(|path| object.pointer_mut(path)) {
        for key in ["containers", "initContainers", "ephemeralContainers"] {
            for container in spec.get_mut(key).and_then(Value::as_array_mut).into_iter().flatten() {
                amounts(container, &["/resources/limits", "/resources/requests"])?;
            }
        }
        amounts(spec, &["/overhead", "/resources/limits", "/resources/requests"])?;
    }
    match ty.kind.as_str() {
        "Node" => amounts(object, &["/status/capacity", "/status/allocatable"]),
        "PersistentVolumeClaim" => amounts(object, &["/spec/resources/requests", "/spec/resources/limits"]),
        "LimitRange" => {
            for limit in object["spec"]["limits"].as_array_mut().into_iter().flatten() {
                amounts(limit, &["/max", "/min", "/default", "/defaultRequest", "/maxLimitRequestRatio"])?;
            }
            Ok(())
        }
        "ResourceQuota" => amounts(object, &["/spec/hard", "/status/hard", "/status/used"]),
        _ => Ok(()),
    }
}

fn amounts(object: &mut Value, paths: &[&str]) -> Result<(), String> {
    for path in paths {
        for amount in object.pointer_mut(path).and_then(Value::as_object_mut).into_iter().flatten().map(|(_, v)| v) {
            let written = match amount {
                Value::String(text) => text.clone(),
                Value::Number(number) => number.to_string(),
                Value::Null => "0".to_owned(),
                _ => return Err(REFUSAL.to_owned()),
            };
            let quantity: Quantity = written.parse().map_err(|_| REFUSAL.to_owned())?;
            *amount = quantity.to_string().into();
        }
    }
    Ok(())
}

const REFUSAL: &str = "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'";
