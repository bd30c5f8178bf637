//! A pod template as JSON, with a view on what KubeRay's rules read of it.
//! Must not know rules.

use std::borrow::Cow;

use k8s_openapi::api::core::v1::PodTemplateSpec;
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::schema::Builtin;

/// `core/v1` PodTemplateSpec, kept as it came.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct PodTemplate(pub Value);

impl JsonSchema for PodTemplate {
    fn schema_name() -> Cow<'static, str> {
        "PodTemplate".into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        Builtin::<PodTemplateSpec>::json_schema(generator)
    }
}

impl PodTemplate {
    /// `metadata.labels`: text values only.
    pub fn labels(&self) -> impl Iterator<Item = (&str, &str)> {
        texts(&self.0["metadata"]["labels"])
    }

    /// `metadata.annotations`: text values only.
    pub fn annotations(&self) -> impl Iterator<Item = (&str, &str)> {
        texts(&self.0["metadata"]["annotations"])
    }

    /// `spec.containers`.
    pub fn containers(&self) -> impl Iterator<Item = Container<'_>> {
        self.0["spec"]["containers"].as_array().into_iter().flatten().map(Container)
    }

    /// The container that runs Ray: the first one, whatever its name.
    pub fn ray_container(&self) -> Option<Container<'_>> {
        self.containers().next()
    }

    /// `spec.restartPolicy`; empty where it is not set.
    pub fn restart_policy(&self) -> &str {
        self.0["spec"]["restartPolicy"].as_str().unwrap_or_default()
    }
}

fn texts(map: &Value) -> impl Iterator<Item = (&str, &str)> {
    map.as_object().into_iter().flatten().filter_map(|(k, v)| v.as_str().map(|v| (k.as_str(), v)))
}

/// A view on one container of a template.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Container<'a>(pub &'a Value);

impl<'a> Container<'a> {
    /// Name; empty where there is none.
    pub fn name(self) -> &'a str {
        self.0["name"].as_str().unwrap_or_default()
    }

    /// Image; empty where there is none.
    pub fn image(self) -> &'a str {
        self.0["image"].as_str().unwrap_or_default()
    }

    /// Whether an environment variable of this name stands in it.
    pub fn has_env(self, name: &str) -> bool {
        self.env().any(|(n, _)| n == name)
    }

    /// The literal value of an environment variable; the last one of a name counts, as in Kubernetes.
    pub fn env_value(self, name: &str) -> Option<&'a str> {
        self.env().filter(|(n, _)| *n == name).last().and_then(|(_, v)| v)
    }

    /// Names of environment variables with their literal values.
    pub fn env(self) -> impl Iterator<Item = (&'a str, Option<&'a str>)> {
        let list = self.0["env"].as_array().into_iter().flatten();
        list.map(|e| (e["name"].as_str().unwrap_or_default(), e["value"].as_str()))
    }

    /// Ports: name (empty where there is none) and number.
    pub fn ports(self) -> impl Iterator<Item = (&'a str, i64)> {
        let list = self.0["ports"].as_array().into_iter().flatten();
        list.map(|p| (p["name"].as_str().unwrap_or_default(), p["containerPort"].as_i64().unwrap_or(0)))
    }

    /// Paths that something is mounted at, with the volume's name.
    pub fn mounts(self) -> impl Iterator<Item = (&'a str, &'a str)> {
        let list = self.0["volumeMounts"].as_array().into_iter().flatten();
        list.map(|m| (m["mountPath"].as_str().unwrap_or_default(), m["name"].as_str().unwrap_or_default()))
    }

    /// `resources.limits` or `resources.requests`: name and quantity as text; numbers are written out.
    pub fn resources(self, which: &str) -> impl Iterator<Item = (&'a str, String)> {
        let list = self.0["resources"][which].as_object().into_iter().flatten();
        list.filter_map(|(name, q)| quantity_text(q).map(|q| (name.as_str(), q)))
    }

    /// One quantity of `resources.limits` or `resources.requests`.
    pub fn resource(self, which: &str, name: &str) -> Option<String> {
        quantity_text(&self.0["resources"][which][name])
    }
}

/// A quantity as text: Kubernetes takes numbers too.
fn quantity_text(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        _ => None,
    }
}
