//! Patches: JSON (RFC 6902, as lenient as the library of the real server), merge (RFC 7396) and strategic merge.
//! Must not know what may change in an object (`update`), nor who owns what (`applied`).

use serde_json::{Map, Value, json};

use super::body::{self, go_type, media_type};
use super::cause::Cause;
use super::server::{ApiServer, Call, Outcome};
use super::status_reply::{
    Refusal, Refused, bad_request, invalid_object, not_built, not_found, unclassified, unsupported_media_type,
};
use super::strategic;
use super::update::check_name;
use super::write::{FieldChecks, Wrong, write_options};

const APPLY: &str = "application/apply-patch+yaml";
const STRATEGIC: &str = "application/strategic-merge-patch+json";

impl ApiServer {
    /// PATCH of an object or of its status.
    pub(super) fn patch(&mut self, call: &Call) -> Result<Outcome, Refused> {
        let ty = call.ty().clone();
        let kind = media_type(&call.request.content_type);
        let known = match kind {
            "application/json-patch+json" | "application/merge-patch+json" => true,
            STRATEGIC => ty.builtin,
            APPLY => return self.apply_patch(call),
            "application/apply-patch+cbor" => return Err(not_built("an apply patch in CBOR")),
            _ => false,
        };
        if !known {
            if ty.builtin {
                let refusal = Refusal::new(415, "UnsupportedMediaType", "415: Unsupported Media Type");
                return Err(refusal.with_details(json!({})));
            }
            return Err(unsupported_media_type(
                "application/json-patch+json, application/merge-patch+json, application/apply-patch+yaml",
            ));
        }
        let checks = write_options(call, "PatchOptions")?;
        let Some(current) = self.store.get(&ty.storage_key, &call.place.key()).cloned() else {
            return Err(not_found(&ty, &call.place.name));
        };
        let mut object = super::watch::in_version(&current.value, &ty).into_owned();
        let duplicates = apply(kind, &call.request.body, &mut object, self.steps_max())?;
        let patched = object.clone();
        let version = object["apiVersion"].as_str().unwrap_or_default().to_owned();
        if version != ty.api_version() {
            self.warn_of_foreign_version(&ty, &version, &object);
        }
        let shown = || match kind {
            STRATEGIC => strategic::go_text(&body::json(&call.request.body).map(|b| b.value).unwrap_or_default()),
            _ => patched.to_string(),
        };
        let refused = |why: &str| invalid_object("", "", "", &[Cause::invalid("patch", &shown().into(), why)]);
        if ty.builtin && (object["kind"] != ty.kind.as_str() || version != ty.api_version()) {
            return Err(refused(&self.unconvertible(&ty, &version, object["kind"].as_str().unwrap_or_default())));
        }
        let unknown = Self::decoded(&ty, &mut object).map_err(|wrong| match wrong {
            Wrong::Type(why)
                if kind == STRATEGIC
                    && why.contains("unmarshal array into Go struct field")
                    && why.contains("map[") =>
            {
                refused("cannot restore map from slice")
            }
            Wrong::Type(why) => refused(&why),
            Wrong::Metadata(refusal) => refusal,
        })?;
        let wrong = duplicates
            .iter()
            .map(|d| format!("duplicate field \"{d}\""))
            .chain(unknown.iter().map(|f| format!("unknown field \"{f}\"")));
        match checks {
            FieldChecks::Strict => {
                let wrong: Vec<String> = wrong.collect();
                if !wrong.is_empty() {
                    return Err(refused(&format!("strict decoding error: {}", wrong.join(", "))));
                }
            }
            FieldChecks::Warn => {
                let wrong: Vec<String> = wrong.collect();
                self.warnings.extend(wrong);
            }
            FieldChecks::Ignore => {}
        }
        check_name(call, &object)?;
        Self::place_namespace(call, &mut object)?;
        self.update(call, object)
    }
}

/// Applies a patch of this media type, a JSON patch of at most `steps_max` operations. Returns duplicate fields of the patch.
pub(super) fn apply(kind: &str, text: &[u8], object: &mut Value, steps_max: usize) -> Result<Vec<String>, Refused> {
    let patch = body::json(text).map_err(|e| bad_request(format!("error decoding patch: {e}")))?;
    if kind == "application/json-patch+json" {
        let Value::Array(steps) = &patch.value else {
            let what = go_type(&patch.value);
            return Err(bad_request(format!(
                "error decoding patch: json: cannot unmarshal {what} into Go value of type []handlers.jsonPatchOp"
            )));
        };
        super::size_limits::check_steps(steps.len(), steps_max)?;
        for one in steps {
            step(object, one).ok_or_else(|| {
                Refusal::new(422, "Invalid", "the server rejected our request due to an error in our request")
                    .with_details(json!({}))
            })?;
        }
        return Ok(Vec::new());
    }
    if !patch.value.is_object() {
        let what = go_type(&patch.value);
        return Err(bad_request(format!(
            "error decoding patch: json: cannot unmarshal {what} into Go value of type map[string]interface {{}}"
        )));
    }
    if kind == STRATEGIC {
        strategic::merge(object, &patch.value).map_err(unclassified)?;
    } else {
        merge(object, &patch.value);
    }
    Ok(patch.duplicates)
}

/// RFC 7396.
pub(super) fn merge(target: &mut Value, patch: &Value) {
    let Value::Object(patch) = patch else {
        target.clone_from(patch);
        return;
    };
    if !target.is_object() {
        *target = Value::Object(Map::new());
    }
    let Some(target) = target.as_object_mut() else { return };
    for (key, value) in patch {
        if value.is_null() {
            target.remove(key);
        } else {
            merge(target.entry(key.as_str()).or_insert(Value::Null), value);
        }
    }
}

/// One operation; `None` if it cannot be carried out.
fn step(object: &mut Value, step: &Value) -> Option<()> {
    let path = step["path"].as_str()?;
    match step["op"].as_str()? {
        "add" => add(object, path, step.get("value")?.clone(), true),
        "remove" => remove(object, path).map(|_| ()),
        // Replacing what is not there adds it, if its parent is there.
        "replace" => add(object, path, step.get("value")?.clone(), false),
        "move" => {
            let value = remove(object, step["from"].as_str()?)?;
            add(object, path, value, true)
        }
        // Copying what is not there copies null.
        "copy" => {
            let value = object.pointer(step["from"].as_str()?).cloned().unwrap_or(Value::Null);
            add(object, path, value, true)
        }
        "test" => {
            let found = object.pointer(path);
            match (found, step.get("value").unwrap_or(&Value::Null)) {
                (Some(found), expected) if found == expected => Some(()),
                _ => None,
            }
        }
        _ => None,
    }
}

fn parent<'a>(object: &'a mut Value, path: &str) -> Option<(&'a mut Value, String)> {
    let (parent, last) = path.rsplit_once('/')?;
    Some((object.pointer_mut(parent)?, last.replace("~1", "/").replace("~0", "~")))
}

fn add(object: &mut Value, path: &str, value: Value, insert: bool) -> Option<()> {
    if path.is_empty() {
        *object = value;
        return Some(());
    }
    let (parent, last) = parent(object, path)?;
    match parent {
        Value::Object(map) => {
            map.insert(last, value);
        }
        Value::Array(list) if last == "-" => list.push(value),
        Value::Array(list) => {
            let at: usize = last.parse().ok()?;
            if insert && at <= list.len() {
                list.insert(at, value);
            } else {
                *list.get_mut(at)? = value;
            }
        }
        _ => return None,
    }
    Some(())
}

fn remove(object: &mut Value, path: &str) -> Option<Value> {
    let (parent, last) = parent(object, path)?;
    match parent {
        Value::Object(map) => map.remove(&last),
        Value::Array(list) => {
            let at: usize = last.parse().ok()?;
            (at < list.len()).then(|| list.remove(at))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_merge_patch_removes_with_null_and_replaces_lists() {
        let mut target = json!({"a": {"b": 1, "c": [1, 2]}, "d": 1});
        merge(&mut target, &json!({"a": {"b": null, "c": [3]}, "e": {"f": null, "g": 1}}));
        assert_eq!(target, json!({"a": {"c": [3]}, "d": 1, "e": {"g": 1}}));
    }

    #[test]
    fn json_patches_follow_the_real_library() {
        let run = |patch: Value| {
            let mut object = json!({"data": {"a": "1"}, "l": ["x"]});
            apply("application/json-patch+json", patch.to_string().as_bytes(), &mut object, 9).ok().map(|_| object)
        };
        assert!(run(json!([{"op": "test", "path": "/data/a", "value": "2"}])).is_none());
        assert!(run(json!([{"op": "remove", "path": "/data/none"}])).is_none());
        assert!(run(json!([{"op": "add", "path": "/nope/deep", "value": 1}])).is_none());
        assert_eq!(run(json!([{"op": "replace", "path": "/data/n", "value": 1}])).unwrap()["data"]["n"], 1);
        assert_eq!(
            run(json!([{"op": "add", "path": "/l/-", "value": "y"}, {"op": "add", "path": "/l/0", "value": "w"}]))
                .unwrap()["l"],
            json!(["w", "x", "y"])
        );
    }
}
