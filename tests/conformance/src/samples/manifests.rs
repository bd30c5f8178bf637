//! The manifests of a folder, by name.
//! Must not know kinds.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use rayfleet::api::yaml;
use serde_json::Value;

/// One file.
pub(super) struct Manifest {
    /// Its path below the folder.
    pub(super) file: String,
    /// Its objects; items of a `List` are objects of their own.
    pub(super) documents: Vec<Value>,
    /// Why it could not be read.
    pub(super) error: Option<String>,
}

/// All of them, in the order of their names. It is an error if there is none.
pub(super) fn read(dir: &Path) -> Result<Vec<Manifest>> {
    let mut paths = Vec::new();
    walk(dir, &mut paths)?;
    paths.sort();
    if paths.is_empty() {
        bail!("{} holds no manifest", dir.display());
    }
    let manifests = paths.iter().map(|path| {
        let file = path.strip_prefix(dir).unwrap_or(path).display().to_string();
        let documents = std::fs::read_to_string(path).map_err(|e| e.to_string()).and_then(|text| documents(&text));
        let error = documents.as_ref().err().cloned();
        Manifest { file, documents: documents.unwrap_or_default(), error }
    });
    Ok(manifests.collect())
}

fn walk(dir: &Path, into: &mut Vec<PathBuf>) -> Result<()> {
    let entries = std::fs::read_dir(dir)
        .with_context(|| format!("manifests are read from {} (set RAYFLEET_SHARED, or --dir)", dir.display()))?;
    for entry in entries {
        let path = entry?.path();
        let extension = path.extension().and_then(|e| e.to_str()).unwrap_or_default();
        if path.is_dir() {
            walk(&path, into)?;
        } else if matches!(extension, "yaml" | "yml" | "json") {
            into.push(path);
        }
    }
    Ok(())
}

fn documents(text: &str) -> Result<Vec<Value>, String> {
    let values = yaml::documents(text).map_err(|error| format!("is not YAML: {error}"))?;
    let mut objects = Vec::new();
    for value in values {
        match &value["items"] {
            Value::Array(items) if value["kind"].as_str().is_some_and(|k| k.ends_with("List")) => {
                objects.extend(items.iter().cloned());
            }
            _ => objects.push(value),
        }
    }
    Ok(objects)
}
