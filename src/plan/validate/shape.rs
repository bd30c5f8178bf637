//! Whether a pod template has the shape that everything else takes for granted. Our CRDs keep templates as they come, so
//! this is the first to look at them.
//! Must not know Ray.

use serde_json::Value;

use super::{Rule, broken};
use crate::api::quantity::Quantity;
use crate::api::ray::PodTemplate;

/// Maps are maps, lists are lists, quantities are quantities. An absent `containers` is left to the rule that names it.
pub(super) fn template(template: &PodTemplate, at: &str) -> Rule {
    let value = &template.0;
    object(value, at)?;
    object(&value["metadata"], &format!("{at}.metadata"))?;
    for key in ["labels", "annotations"] {
        texts(&value["metadata"][key], &format!("{at}.metadata.{key}"))?;
    }
    let spec = &value["spec"];
    let at = format!("{at}.spec");
    object(spec, &at)?;
    objects(&spec["volumes"], &format!("{at}.volumes"))?;
    for key in ["containers", "initContainers"] {
        let at = format!("{at}.{key}");
        objects(&spec[key], &at)?;
        for (i, one) in spec[key].as_array().into_iter().flatten().enumerate() {
            container(one, &format!("{at}[{i}]"))?;
        }
    }
    Ok(())
}

fn container(container: &Value, at: &str) -> Rule {
    for key in ["env", "ports", "volumeMounts"] {
        objects(&container[key], &format!("{at}.{key}"))?;
    }
    for key in ["command", "args"] {
        let fine = match &container[key] {
            Value::Null => true,
            Value::Array(list) => list.iter().all(Value::is_string),
            _ => false,
        };
        if !fine {
            return broken(format!("{at}.{key}"), "must be a list of texts");
        }
    }
    object(&container["resources"], &format!("{at}.resources"))?;
    for key in ["limits", "requests"] {
        let at = format!("{at}.resources.{key}");
        object(&container["resources"][key], &at)?;
        for (name, value) in container["resources"][key].as_object().into_iter().flatten() {
            let text = match value {
                Value::String(text) => text.clone(),
                Value::Number(number) => number.to_string(),
                _ => return broken(format!("{at}.{name}"), "must be a quantity such as 500m or 2Gi"),
            };
            if let Err(error) = text.parse::<Quantity>() {
                return broken(format!("{at}.{name}"), error.to_string());
            }
        }
    }
    Ok(())
}

/// A map, or nothing.
pub(super) fn object(value: &Value, at: &str) -> Rule {
    if value.is_null() || value.is_object() { Ok(()) } else { broken(at, "must be a map") }
}

fn objects(value: &Value, at: &str) -> Rule {
    match value {
        Value::Null => Ok(()),
        Value::Array(list) if list.iter().all(Value::is_object) => Ok(()),
        _ => broken(at, "must be a list of maps"),
    }
}

fn texts(value: &Value, at: &str) -> Rule {
    match value {
        Value::Null => Ok(()),
        Value::Object(map) if map.values().all(Value::is_string) => Ok(()),
        _ => broken(at, "must be a map of texts"),
    }
}
