//! What the operator did, as the recordings have it: one form for what was recorded and for what is played here.
//! Must not know how either came to be.

use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;

/// One life of one manifest.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Recording {
    /// One for each step.
    pub(super) phases: Vec<Phase>,
    /// JSON pointers of values that differed between recordings of the same.
    #[serde(default)]
    pub(super) unstable: Vec<String>,
}

/// What followed from one step.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Phase {
    /// One for each stimulus.
    pub(super) rounds: Vec<Round>,
    /// One for each object, type, reason, action and controller, with the first note.
    #[serde(default)]
    pub(super) events: Vec<Value>,
    /// What was there at the end.
    #[serde(default)]
    pub(super) objects: Vec<Value>,
    /// What the API server said to whoever applied or patched, where it refused or warned.
    #[serde(default)]
    pub(super) api_server_messages: Vec<String>,
    /// After the deletion: what was still there.
    #[serde(default)]
    pub(super) remaining: Vec<Value>,
}

/// What the operator did about one thing that happened.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Round {
    /// What happened, in words.
    #[serde(deserialize_with = "with_code")]
    pub(super) stimulus: String,
    /// The writes, in order within one controller.
    #[serde(default)]
    pub(super) writes: Vec<Write>,
    /// Questions to Ray.
    #[serde(default)]
    pub(super) dashboard_requests: Vec<Value>,
}

/// In the recordings of samples, whose submitters end well, the words have no exit code.
fn with_code<'de, D: Deserializer<'de>>(source: D) -> Result<String, D::Error> {
    let words = String::deserialize(source)?;
    Ok(words.replace("submitter container ended: ", "submitter container ended with 0: "))
}

/// One write request.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Write {
    /// The controller: raycluster, rayjob, rayservice, raycronjob, networkpolicy, mtls.
    pub(super) by: String,
    /// create, update, patch, delete, deletecollection
    pub(super) verb: String,
    /// `v1/pods`
    pub(super) resource: String,
    /// `status`
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) subresource: Option<String>,
    /// Name of the object; none for one that a refused server was to name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) name: Option<String>,
    /// Of a deletion of many.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) label_selector: Option<String>,
    /// What was sent.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub(super) body: Value,
    /// Status code of a refusal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) code: Option<u16>,
    /// Message of a refusal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) error: Option<String>,
}

impl Write {
    /// In a line, without the body.
    pub(super) fn title(&self) -> String {
        let mut line = format!("{} {} {}", self.by, self.verb, self.resource);
        for more in [&self.subresource, &self.name, &self.label_selector].into_iter().flatten() {
            line.push(' ');
            line.push_str(more);
        }
        if let Some(code) = self.code {
            line.extend([" (refused: ", &code.to_string(), ")"]);
        }
        line
    }

    /// Kind of object, as paths and entries name it: `ray.io/v1/rayclusters/status`.
    pub(super) fn class(&self) -> String {
        match &self.subresource {
            Some(sub) => format!("{}/{sub}", self.resource),
            None => self.resource.clone(),
        }
    }
}
