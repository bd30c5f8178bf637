//! The request table: stories in YAML, each a sequence of requests that build on each other.
//! Must not know servers or answers. What may stand in a story is explained in `stories/README.md`.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, Result, bail, ensure};
use rayfleet::api::wire::Method;
use serde::Deserialize;
use serde_json::{Map, Value};

/// One file of stories.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Page {
    /// Abbreviations of paths: `{maps}` in a request stands for the path of `maps`.
    #[serde(default)]
    paths: BTreeMap<String, String>,
    stories: Vec<Written>,
}

/// A story as it is written.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    story: String,
    by: Sender,
    #[serde(default)]
    managers: bool,
    requests: Vec<Value>,
}

/// Who sends requests of this sort.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Sender {
    /// The product itself: no difference may be explained away.
    Controller,
    /// kubectl.
    Kubectl,
    /// Other clients, kube-rs above all, and whoever makes mistakes.
    Clients,
}

/// Requests that build on each other, in a namespace of their own that is called like the story.
#[derive(Clone, Debug)]
pub(crate) struct Story {
    pub name: String,
    pub by: Sender,
    /// Whether `managedFields` are compared.
    pub managers: bool,
    pub steps: Vec<Step>,
}

/// One request of a story.
#[derive(Clone, Debug)]
pub(crate) struct Step {
    pub verb: Verb,
    /// Path and query; may hold references to earlier answers.
    pub target: String,
    pub body: Body,
    pub content_type: String,
    pub accept: String,
    pub agent: String,
    /// Later requests name the answer so.
    pub keep: Option<String>,
    /// Only prepares: a real server is asked until it answers with this status, and nothing is compared.
    pub until: Option<u16>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Verb {
    Once(Method),
    /// A watch, open until the story ends.
    Watch,
}

#[derive(Clone, Debug)]
pub(crate) enum Body {
    None,
    Json(Value),
    Text(String),
}

impl Step {
    pub(crate) fn verb_text(&self) -> &'static str {
        match self.verb {
            Verb::Once(method) => method.as_str(),
            Verb::Watch => "WATCH",
        }
    }

    /// What a difference is reported with: `GET /api/v1/namespaces/…`.
    pub(crate) fn line(&self) -> String {
        format!("{} {}", self.verb_text(), self.target)
    }

    /// The body as it is written, for seeing what a client made up itself.
    pub(crate) fn body_text(&self) -> String {
        match &self.body {
            Body::None => String::new(),
            Body::Json(value) => value.to_string(),
            Body::Text(text) => text.clone(),
        }
    }
}

/// All stories of the `.yaml` files in a folder, by file name.
pub(crate) fn read(dir: &Path) -> Result<Vec<Story>> {
    let mut files: Vec<_> = std::fs::read_dir(dir)
        .with_context(|| format!("reading {}", dir.display()))?
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| path.extension().is_some_and(|e| e == "yaml"))
        .collect();
    files.sort();
    let mut stories: Vec<Story> = Vec::new();
    for file in files {
        let text = std::fs::read_to_string(&file)?;
        let page: Page = serde_saphyr::from_str_with_options(&text, options())
            .with_context(|| format!("reading {}", file.display()))?;
        for written in page.stories {
            let name = written.story.clone();
            ensure!(stories.iter().all(|s| s.name != name), "{}: two stories are called {name}", file.display());
            stories.push(story(written, &page.paths).with_context(|| format!("{}: {name}", file.display()))?);
        }
    }
    Ok(stories)
}

/// `y` and `n` are letters.
fn options() -> serde_saphyr::Options {
    serde_saphyr::options! { strict_booleans: true }
}

fn story(written: Written, paths: &BTreeMap<String, String>) -> Result<Story> {
    let steps = written
        .requests
        .iter()
        .map(|request| step(request, &written.story, paths).with_context(|| request.to_string()))
        .collect::<Result<_>>()?;
    Ok(Story { name: written.story, by: written.by, managers: written.managers, steps })
}

const VERBS: &[(&str, Verb)] = &[
    ("GET", Verb::Once(Method::Get)),
    ("POST", Verb::Once(Method::Post)),
    ("PUT", Verb::Once(Method::Put)),
    ("PATCH", Verb::Once(Method::Patch)),
    ("DELETE", Verb::Once(Method::Delete)),
    ("WATCH", Verb::Watch),
];

fn step(request: &Value, namespace: &str, paths: &BTreeMap<String, String>) -> Result<Step> {
    let empty = Map::new();
    let verb_of = |line: &str| VERBS.iter().find(|(word, _)| line.split(' ').next() == Some(*word)).map(|(_, v)| *v);
    let (line, body, options) = match request {
        Value::String(line) => (line.as_str(), &Value::Null, &empty),
        Value::Object(map) => {
            let Some((line, body)) = map.iter().find(|(key, _)| verb_of(key).is_some()) else {
                bail!("no line begins with a verb");
            };
            (line.as_str(), body, map)
        }
        _ => bail!("neither a line nor a map"),
    };
    let Some(verb) = verb_of(line) else { bail!("no verb") };
    let text = |key: &str| options.get(key).and_then(Value::as_str).map(|t| t.replace("NS", namespace));
    for key in options.keys().filter(|k| *k != line) {
        ensure!(["as", "accept", "agent", "keep", "until", "raw"].contains(&key.as_str()), "'{key}' says nothing here");
    }
    let mut target = line.split_once(' ').map(|(_, target)| target.trim().to_owned()).unwrap_or_default();
    for (name, path) in paths {
        target = target.replace(&format!("{{{name}}}"), path);
    }
    ensure!(!target.contains('{'), "an abbreviation is not explained");
    let body = match (text("raw"), body) {
        (Some(text), _) => Body::Text(text),
        (None, Value::Null) => Body::None,
        (None, body) => Body::Json(serde_json::from_str(&body.to_string().replace("NS", namespace))?),
    };
    let given = text("as");
    let content_type = match (given.as_deref(), &body, verb) {
        (Some("merge"), ..) => "application/merge-patch+json",
        (Some("json"), ..) => "application/json-patch+json",
        (Some("strategic"), ..) => "application/strategic-merge-patch+json",
        (Some("apply"), ..) => "application/apply-patch+yaml",
        (Some("yaml"), ..) => "application/yaml",
        (Some(other), ..) => other,
        (None, Body::None, _) => "",
        (None, _, Verb::Once(Method::Patch)) => bail!("a patch says `as:` which one it is"),
        (None, ..) => "application/json",
    };
    let accept = text("accept");
    let accept = match accept.as_deref() {
        Some("table") => "application/json;as=Table;v=v1;g=meta.k8s.io,application/json",
        Some("metadata") => "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io,application/json",
        Some("metadata-list") => "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io,application/json",
        Some(other) => other,
        None => "",
    };
    Ok(Step {
        verb,
        target: target.replace("NS", namespace),
        body,
        content_type: content_type.to_owned(),
        accept: accept.to_owned(),
        agent: text("agent").unwrap_or_default(),
        keep: text("keep"),
        until: options.get("until").and_then(Value::as_u64).map(u16::try_from).transpose()?,
    })
}
