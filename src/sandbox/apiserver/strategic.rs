//! Strategic merge patches of built-in kinds: merge patches that know by which field the elements of a list are told apart.
//! Must not know which object is patched. Source: the API convention "strategic merge patch" and the recordings.

use serde_json::{Map, Value};

/// Merges `patch`, an object, into `target`. The error is what a real server answers with status 500.
pub(super) fn merge(target: &mut Value, patch: &Value) -> Result<(), String> {
    merge_map(target, patch, "")
}

/// How a list is merged. `parent` is the field that holds the object with the list.
enum Merging {
    /// Elements with the same value of this field are the same.
    By(&'static str),
    /// Plain values, each once.
    Set,
    /// The patch's list replaces it.
    Whole,
}

fn merging(parent: &str, field: &str) -> Merging {
    Merging::By(match field {
        "containers"
        | "initContainers"
        | "ephemeralContainers"
        | "env"
        | "volumes"
        | "imagePullSecrets"
        | "secrets"
        | "resourceClaims" => "name",
        "volumeMounts" => "mountPath",
        "volumeDevices" => "devicePath",
        "conditions" | "addresses" => "type",
        "ownerReferences" => "uid",
        "hostAliases" | "podIPs" => "ip",
        "topologySpreadConstraints" => "topologyKey",
        "ports" if parent.ends_with("ontainers") => "containerPort",
        "ports" if parent == "spec" => "port",
        "finalizers" => return Merging::Set,
        _ => return Merging::Whole,
    })
}

fn merge_map(target: &mut Value, patch: &Value, field: &str) -> Result<(), String> {
    let Some(patch) = patch.as_object() else {
        target.clone_from(patch);
        return Ok(());
    };
    match patch.get("$patch").and_then(Value::as_str) {
        Some("replace") => {
            *target = Value::Object(patch.iter().filter(|(k, _)| *k != "$patch").map(owned).collect());
            return Ok(());
        }
        Some("delete") => {
            *target = Value::Object(Map::new());
            return Ok(());
        }
        _ => {}
    }
    if !target.is_object() {
        *target = Value::Object(Map::new());
    }
    let Some(map) = target.as_object_mut() else { return Ok(()) };
    if let Some(kept) = patch.get("$retainKeys").and_then(Value::as_array) {
        map.retain(|key, _| kept.iter().any(|k| k == key));
    }
    for (key, value) in patch {
        if let Some(list) = key.strip_prefix("$deleteFromPrimitiveList/") {
            remove_values(map, list, value);
        }
        if key.starts_with('$') {
            continue;
        }
        if value.is_null() {
            map.remove(key);
            continue;
        }
        let order = patch.get(&format!("$setElementOrder/{key}")).and_then(Value::as_array);
        let old = map.entry(key.as_str()).or_insert(Value::Null);
        match (value, merging(field, key)) {
            (Value::Array(new), Merging::By(name)) => merge_list(old, new, order, key, name)?,
            (Value::Array(new), Merging::Set) => merge_set(old, new, order),
            (Value::Object(_), _) => merge_map(old, value, key)?,
            _ => old.clone_from(value),
        }
    }
    // An order without a list reorders what is there.
    for (key, order) in patch {
        if let (Some(list), Some(order)) = (key.strip_prefix("$setElementOrder/"), order.as_array())
            && !patch.contains_key(list)
            && let Some(old) = map.get_mut(list)
        {
            match merging(field, list) {
                Merging::By(name) => merge_list(old, &[], Some(order), list, name)?,
                Merging::Set => merge_set(old, &[], Some(order)),
                Merging::Whole => {}
            }
        }
    }
    Ok(())
}

fn owned((key, value): (&String, &Value)) -> (String, Value) {
    (key.clone(), value.clone())
}

fn remove_values(map: &mut Map<String, Value>, field: &str, gone: &Value) {
    let Some(list) = map.get_mut(field).and_then(Value::as_array_mut) else { return };
    list.retain(|v| !gone.as_array().is_some_and(|gone| gone.contains(v)));
    if list.is_empty() {
        map.remove(field);
    }
}

fn merge_list(
    old: &mut Value,
    patch: &[Value],
    order: Option<&Vec<Value>>,
    field: &str,
    name: &str,
) -> Result<(), String> {
    let before = old.as_array().cloned().unwrap_or_default();
    let replaces = patch.iter().any(|e| e["$patch"] == "replace" && e.get(name).is_none());
    let mut result = if replaces { Vec::new() } else { before.clone() };
    let mut in_patch = Vec::new();
    for element in patch.iter().filter(|e| !(e["$patch"] == "replace" && e.get(name).is_none())) {
        let Some(key) = element.get(name).cloned() else {
            return Err(format!("map: {} does not contain declared merge key: {name}", go_text(element)));
        };
        let at = result.iter().position(|r| r.get(name) == Some(&key));
        if element["$patch"] == "delete" {
            at.map(|at| result.remove(at));
            continue;
        }
        if let Some(at) = at {
            merge_map(&mut result[at], element, field)?;
        } else {
            let mut new = Value::Null;
            merge_map(&mut new, element, field)?;
            result.push(new);
        }
        in_patch.push(key);
    }
    let order: Vec<Value> = match order {
        Some(order) => order.iter().filter_map(|o| o.get(name).cloned()).collect(),
        None => in_patch,
    };
    let key = |e: &Value| e.get(name).cloned().unwrap_or_default();
    *old = Value::Array(ordered(result, &before, &order, key));
    Ok(())
}

fn merge_set(old: &mut Value, patch: &[Value], order: Option<&Vec<Value>>) {
    let before = old.as_array().cloned().unwrap_or_default();
    let mut result = before.clone();
    result.extend(patch.iter().filter(|v| !before.contains(v)).cloned());
    let order = order.map_or_else(|| patch.to_vec(), Clone::clone);
    *old = Value::Array(ordered(result, &before, &order, Value::clone));
}

/// Elements that the patch orders, in its order; between them the others, in the order in which they stood before.
fn ordered(all: Vec<Value>, before: &[Value], order: &[Value], key: impl Fn(&Value) -> Value) -> Vec<Value> {
    let place = |e: &Value| order.iter().position(|o| *o == key(e));
    let (mut left, right): (Vec<Value>, Vec<Value>) = all.into_iter().partition(|e| place(e).is_some());
    left.sort_by_key(place);
    let stood = |e: &Value| before.iter().position(|b| key(b) == key(e));
    let mut result = Vec::with_capacity(left.len() + right.len());
    let (mut left, mut right) = (left.into_iter().peekable(), right.into_iter().peekable());
    loop {
        let take_right = match (left.peek(), right.peek()) {
            (None, None) => return result,
            (Some(_), None) => false,
            (None, Some(_)) => true,
            // Only where both stood before is the old order known.
            (Some(l), Some(r)) => matches!((stood(l), stood(r)), (Some(l), Some(r)) if l > r),
        };
        result.extend(if take_right { right.next() } else { left.next() });
    }
}

/// A value as Go prints it: `map[a:1 b:[x y]]`.
pub(super) fn go_text(value: &Value) -> String {
    match value {
        Value::Object(map) => {
            let parts: Vec<String> = map.iter().map(|(k, v)| format!("{k}:{}", go_text(v))).collect();
            format!("map[{}]", parts.join(" "))
        }
        Value::Array(list) => format!("[{}]", list.iter().map(go_text).collect::<Vec<_>>().join(" ")),
        Value::String(text) => text.clone(),
        Value::Null => "<nil>".to_owned(),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::recorded;
    use super::*;

    /// Each recorded patch of the Deployment, one after the other, from the state that the server answered before.
    #[test]
    fn lists_of_a_template_are_merged_as_recorded() {
        let Some(topic) = recorded::topic("patch") else { return };
        let mut state = Value::Null;
        let mut compared = 0;
        for exchange in recorded::exchanges(&topic, "strategic") {
            let (request, answer) = (&exchange["request"], &exchange["response"]["body"]);
            if request["headers"]["content-type"] == "application/strategic-merge-patch+json" && state.is_object() {
                let merged = merge(&mut state, &request["body"]);
                match exchange["response"]["status"].as_u64() {
                    Some(200) if answer["kind"] == "Deployment" => {
                        merged.unwrap();
                        let names = |v: &Value| -> Vec<Value> {
                            let containers = v["spec"]["template"]["spec"]["containers"].as_array().unwrap();
                            containers.iter().map(|c| json!([c["name"], c["image"], c["env"]])).collect()
                        };
                        assert_eq!(names(&state), names(answer), "{}", request["body"]);
                        compared += 1;
                    }
                    Some(200) => {
                        merged.unwrap();
                        assert_eq!(state["metadata"].get("finalizers"), answer["metadata"].get("finalizers"));
                        compared += 1;
                    }
                    Some(500) => assert_eq!(json!(merged.unwrap_err()), answer["message"]),
                    _ => {}
                }
            }
            if answer["kind"] == "Deployment" || answer["kind"] == "ConfigMap" {
                state = answer.clone();
            }
        }
        assert!(compared >= 9, "{compared}");
    }

    #[test]
    fn a_list_without_a_key_is_replaced() {
        let mut pod = json!({"spec": {"tolerations": [{"key": "a"}]}});
        merge(&mut pod, &json!({"spec": {"tolerations": [{"key": "b"}]}})).unwrap();
        assert_eq!(pod, json!({"spec": {"tolerations": [{"key": "b"}]}}));
    }
}
