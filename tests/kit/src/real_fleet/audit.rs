//! An API server's audit log: who asked for what, and what came of it, in the order of the answers.
//! Must not know what anybody should have asked for.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::PathBuf;

use anyhow::Result;
use serde_json::Value;

pub use super::manifests::{Allowed, Right, allowed};

/// A request and its answer.
#[derive(Clone, Debug)]
pub struct Entry {
    /// Who asked.
    pub user: String,
    /// With what program: its `User-Agent`.
    pub agent: String,
    /// On what.
    pub right: Right,
    /// Namespace; empty for none.
    pub namespace: String,
    /// Name of the object; of one that was created, the created one's.
    pub name: String,
    /// HTTP status.
    pub code: u64,
    /// Whether the request was allowed, and by which binding, in the server's words.
    pub reason: String,
    /// `metadata.resourceVersion` that a write made, where the answer holds the object.
    pub version: Option<u64>,
    /// When the answer was there, as the server writes it.
    pub at: String,
    /// The object that was answered, for writes.
    pub object: Value,
}

impl Entry {
    /// Whether something was to be changed.
    pub fn is_write(&self) -> bool {
        matches!(self.right.verb.as_str(), "create" | "update" | "patch" | "delete" | "deletecollection")
    }

    /// Whether it was carried out.
    pub fn is_success(&self) -> bool {
        (200..300).contains(&self.code)
    }

    fn of(event: &Value) -> Self {
        let text = |pointer: &str| event.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned();
        let resource = match (text("/objectRef/resource"), text("/objectRef/subresource")) {
            // No resource: a path of its own.
            (none, _) if none.is_empty() => text("/requestURI"),
            (resource, none) if none.is_empty() => resource,
            (resource, sub) => format!("{resource}/{sub}"),
        };
        let made = text("/responseObject/metadata/name");
        let decision = text("/annotations/authorization.k8s.io~1decision");
        Self {
            user: text("/user/username"),
            agent: text("/userAgent"),
            right: Right { group: text("/objectRef/apiGroup"), resource, verb: text("/verb") },
            // Of a namespace an audit log says that it is in itself.
            namespace: if text("/objectRef/resource") == "namespaces" {
                String::new()
            } else {
                text("/objectRef/namespace")
            },
            name: if text("/objectRef/name").is_empty() { made } else { text("/objectRef/name") },
            code: event.pointer("/responseStatus/code").and_then(Value::as_u64).unwrap_or_default(),
            reason: format!("{decision}: {}", text("/annotations/authorization.k8s.io~1reason")),
            version: text("/responseObject/metadata/resourceVersion").parse().ok(),
            at: text("/stageTimestamp"),
            object: event["responseObject"].clone(),
        }
    }
}

/// A log that is read on as it grows.
#[derive(Debug)]
pub struct AuditLog {
    path: PathBuf,
    read: u64,
}

impl AuditLog {
    /// From its beginning.
    pub fn of(path: PathBuf) -> Self {
        Self { path, read: 0 }
    }

    /// What has come since the last call. A watch has two entries, at its begin and its end.
    pub fn news(&mut self) -> Result<Vec<Entry>> {
        let mut file = File::open(&self.path)?;
        file.seek(SeekFrom::Start(self.read))?;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes)?;
        // The last line may not be whole yet.
        let whole = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
        self.read += whole as u64;
        let lines = bytes[..whole].split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
        lines.map(|line| Ok(Entry::of(&serde_json::from_slice(line)?))).collect()
    }
}
