//! Manifests as people write them: YAML or JSON with any number of documents, checked for what a hub takes.
//! Must not send anything, or judge a spec: the API server and the controller do.

use std::io::Read as _;
use std::path::Path;

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};

use crate::api::{Id, Kind, crds, yaml};

/// Bytes of a manifest at most.
const BYTES_MAX: u64 = 16 << 20;

/// Kinds that `submit` takes, in the order in which they are created: what a job needs goes first.
const KINDS: &[Kind] = &[
    Kind::Namespace,
    Kind::PlacementPolicy,
    Kind::ServiceAccount,
    Kind::Secret,
    Kind::ConfigMap,
    Kind::RayCluster,
    Kind::RayJob,
];

/// One document of a manifest.
#[derive(Debug, Clone, PartialEq)]
pub struct Document {
    /// Which object; the namespace is filled in.
    pub id: Id,
    /// The whole object.
    pub body: Value,
}

/// Reads a file, or standard input for `-`.
pub(crate) fn read(path: &Path) -> Result<String> {
    let mut text = String::new();
    let read = if path == Path::new("-") {
        std::io::stdin().lock().take(BYTES_MAX).read_to_string(&mut text)
    } else {
        std::fs::File::open(path).and_then(|file| file.take(BYTES_MAX).read_to_string(&mut text))
    };
    read.with_context(|| format!("reading {}", path.display()))?;
    Ok(text)
}

/// The documents of `text`, which came from `source`, in the order in which they are created. Objects without a namespace
/// get `namespace`.
pub fn documents(text: &str, source: &str, namespace: &str) -> Result<Vec<Document>> {
    let values = yaml::documents(text).map_err(|error| anyhow::anyhow!("{source} is not YAML: {error}"))?;
    let mut documents = Vec::new();
    for (index, value) in values.into_iter().enumerate() {
        for (item, value) in unlisted(value).into_iter().enumerate() {
            let place = format!(
                "{source}, document {}{}",
                index + 1,
                if item > 0 { format!(", item {}", item + 1) } else { String::new() }
            );
            documents.push(document(value, &place, namespace)?);
        }
    }
    if documents.is_empty() {
        bail!("{source} holds no object");
    }
    documents.sort_by_key(|d| KINDS.iter().position(|k| *k == d.id.kind));
    Ok(documents)
}

/// The items of a `List`; everything else is itself.
fn unlisted(value: Value) -> Vec<Value> {
    match &value["items"] {
        Value::Array(items) if value["kind"].as_str().is_some_and(|k| k.ends_with("List")) => items.clone(),
        _ => vec![value],
    }
}

fn document(mut body: Value, place: &str, namespace: &str) -> Result<Document> {
    if !body.is_object() {
        bail!("{place} is no object: a manifest has apiVersion, kind, metadata and spec");
    }
    if let Some(dropped) = crds::lifted(&mut body) {
        tracing::warn!(
            "{place}: {} is deprecated: taken as {}",
            crds::OLDER,
            body["apiVersion"].as_str().unwrap_or("")
        );
        for path in dropped {
            tracing::warn!("{place}: {path} is no field of {}: dropped", crds::OLDER);
        }
    }
    let field = |path: &[&str]| path.iter().fold(&body, |v, key| &v[key]).as_str().unwrap_or("").to_owned();
    let (api_version, kind) = (field(&["apiVersion"]), field(&["kind"]));
    for (name, value) in [("apiVersion", &api_version), ("kind", &kind)] {
        if value.is_empty() {
            bail!("{place} has no {name}; a RayJob has apiVersion: ray.io/v1 and kind: RayJob");
        }
    }
    let known = Kind::find(&api_version, &kind).filter(|k| KINDS.contains(k));
    let Some(known) = known else {
        let right = KINDS.iter().map(|k| format!("{} {}", k.api_version(), k.name())).collect::<Vec<_>>().join(", ");
        bail!("{place}: {api_version} {kind} cannot be submitted; right are {right}");
    };
    let name = field(&["metadata", "name"]);
    if name.is_empty() {
        bail!("{place}: {kind} has no metadata.name");
    }
    let own = field(&["metadata", "namespace"]);
    let in_namespace = match (known.namespaced(), own.is_empty()) {
        (false, _) => "",
        (true, true) => namespace,
        (true, false) => own.as_str(),
    };
    let id = Id::new(known, in_namespace, name.as_str());
    if known.namespaced() {
        body["metadata"]["namespace"] = json!(in_namespace);
    }
    Ok(Document { id, body })
}

#[cfg(test)]
mod tests {
    use super::*;

    const JOB: &str = "apiVersion: ray.io/v1\nkind: RayJob\nmetadata: {name: train}\nspec: {entrypoint: echo}\n";
    const MAP: &str = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: code, namespace: other}\ndata: {a.py: x}\n";

    fn message(text: &str) -> String {
        documents(text, "job.yaml", "default").unwrap_err().to_string()
    }

    #[test]
    fn what_a_job_needs_comes_before_it() {
        let all = documents(&format!("{JOB}---\n---\n{MAP}"), "job.yaml", "default").unwrap();
        let names: Vec<String> = all.iter().map(|d| d.id.to_string()).collect();
        assert_eq!(names, ["ConfigMap other/code", "RayJob default/train"]);
        assert_eq!(all[1].body["metadata"]["namespace"], "default");
    }

    #[test]
    fn json_and_lists_are_taken_too() {
        let text = "{\"kind\":\"List\",\"apiVersion\":\"v1\",\"items\":[{\"apiVersion\":\"ray.io/v1\",\"kind\":\"RayJob\",\"metadata\":{\"name\":\"a\"}}]}";
        assert_eq!(documents(text, "x", "ns").unwrap()[0].id, Id::new(Kind::RayJob, "ns", "a"));
    }

    #[test]
    fn the_older_version_is_taken_as_the_stored_one_without_what_it_never_had() {
        let text = JOB
            .replace("ray.io/v1", "ray.io/v1alpha1")
            .replace("{entrypoint: echo}", "{entrypoint: echo, backoffLimit: 3}");
        let all = documents(&text, "job.yaml", "default").unwrap();
        assert_eq!(
            (all[0].id.clone(), &all[0].body["apiVersion"]),
            (Id::new(Kind::RayJob, "default", "train"), &json!("ray.io/v1"))
        );
        assert_eq!(all[0].body["spec"], json!({"entrypoint": "echo"}));
        assert!(
            message(&text.replace("RayJob", "RayCronJob")).contains("ray.io/v1alpha1 RayCronJob cannot be submitted")
        );
    }

    #[test]
    fn errors_name_document_field_and_what_would_be_right() {
        assert!(message("a: [").starts_with("job.yaml is not YAML"));
        assert!(message("").contains("holds no object"));
        assert!(message("just text").contains("document 1 is no object"));
        assert!(message("kind: RayJob").contains("has no apiVersion; a RayJob has apiVersion: ray.io/v1"));
        assert!(
            message(&format!("{JOB}---\n{}", JOB.replace("train", "''")))
                .contains("document 2: RayJob has no metadata.name")
        );
        let other = message(&JOB.replace("RayJob", "RayJub"));
        assert!(
            other.contains("ray.io/v1 RayJub cannot be submitted; right are") && other.contains("ray.io/v1 RayJob")
        );
        let error = read(Path::new("/nonexistent.yaml")).unwrap_err();
        assert!(format!("{error:#}").contains("reading /nonexistent.yaml"));
    }
}
