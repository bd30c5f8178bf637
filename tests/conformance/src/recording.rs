//! The recordings as they stand in their files.
//! Must not know the sandbox.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, Result};
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use crate::bulk;

#[derive(Deserialize)]
struct Topic {
    cases: Vec<Case>,
}

/// A row of exchanges that belong together.
#[derive(Deserialize)]
pub(crate) struct Case {
    pub id: String,
    /// Exists before the first exchange.
    pub namespace: Option<String>,
    pub exchanges: Vec<Exchange>,
    /// Of requests that were sent at once after the first exchange: how often which answer came.
    pub counts: Option<BTreeMap<String, u64>>,
}

/// A request and its answer.
#[derive(Deserialize)]
pub(crate) struct Exchange {
    request: BTreeMap<String, Box<RawValue>>,
    pub response: Response,
    #[serde(default)]
    pub note: String,
}

/// What the real server answered.
#[derive(Deserialize)]
pub(crate) struct Response {
    pub status: u16,
    #[serde(default)]
    pub headers: BTreeMap<String, Value>,
    pub body: Option<Value>,
    #[serde(rename = "rawText")]
    pub raw_text: Option<String>,
    #[serde(rename = "bodyNote")]
    pub body_note: Option<String>,
    pub lines: Option<Vec<Value>>,
    pub ended: Option<String>,
    #[serde(rename = "endedAfterSeconds")]
    pub ended_after_s: Option<f64>,
}

impl Exchange {
    fn text(&self, field: &str) -> String {
        self.request.get(field).and_then(|raw| serde_json::from_str(raw.get()).ok()).unwrap_or_default()
    }

    pub(crate) fn method(&self) -> String {
        self.text("method")
    }

    pub(crate) fn path(&self) -> String {
        self.text("path")
    }

    /// Who asked; empty for the administrator.
    pub(crate) fn token(&self) -> String {
        self.text("token")
    }

    pub(crate) fn headers(&self) -> BTreeMap<String, String> {
        self.request.get("headers").and_then(|raw| serde_json::from_str(raw.get()).ok()).unwrap_or_default()
    }

    /// The text that was sent, made anew where it was too big to keep; `None` where that cannot be done.
    pub(crate) fn body(&self) -> Option<String> {
        if self.request.contains_key("rawBody") {
            return Some(self.text("rawBody"));
        }
        let Some(body) = self.request.get("body") else {
            if self.request.contains_key("bodyNote") {
                return bulk::body(&self.text("bodyNote"), self.response.body.as_ref().unwrap_or(&Value::Null));
            }
            return Some(String::new());
        };
        let text = match serde_json::from_str::<Value>(body.get()) {
            // A lone word was JSON text in quotes; other text that is not JSON stands as it was sent.
            Ok(Value::String(text)) if text.len() > 2 || text.is_empty() || text.starts_with(['{', '[']) => text,
            _ => spaced(body.get()),
        };
        Some(text)
    }
}

/// JSON text with one space after each comma and colon, as the recorder sent it.
fn spaced(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut in_text = false;
    let mut escaped = false;
    for c in text.chars() {
        if in_text {
            out.push(c);
            in_text = escaped || c != '"';
            escaped = !escaped && c == '\\';
        } else if !c.is_whitespace() {
            out.push(c);
            if c == ',' || c == ':' {
                out.push(' ');
            }
            in_text = c == '"';
        }
    }
    out
}

/// The cases of a topic.
pub(crate) fn cases(file: &Path) -> Result<Vec<Case>> {
    let text = std::fs::read_to_string(file).with_context(|| file.display().to_string())?;
    Ok(serde_json::from_str::<Topic>(&text)?.cases)
}

/// The CustomResourceDefinitions that the recorded server had: those of the fixtures, and KubeRay's and Volcano's.
pub(crate) fn definitions(dir: &Path) -> Result<Vec<Value>> {
    let fixtures: Value = serde_json::from_str(&std::fs::read_to_string(dir.join("fixtures.json"))?)?;
    let mut out = fixtures["crds"].as_array().cloned().unwrap_or_default();
    let upstream = dir.join("../upstream-crds");
    let mut files: Vec<_> = std::fs::read_dir(&upstream)
        .with_context(|| upstream.display().to_string())?
        .filter_map(|entry| entry.ok().map(|e| e.path()))
        .filter(|path| path.extension().is_some_and(|e| e == "yaml"))
        .collect();
    files.sort();
    for file in files {
        let text = std::fs::read_to_string(&file)?;
        for document in text.split("\n---\n").filter(|d| d.contains("kind: CustomResourceDefinition")) {
            let value: Value = serde_saphyr::from_str(document).with_context(|| file.display().to_string())?;
            out.push(value);
        }
    }
    Ok(out)
}
