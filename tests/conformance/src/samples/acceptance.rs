//! Whether an API server takes an object and keeps it, and whether our types do.
//! Must not know what becomes of it.

use std::collections::BTreeSet;

use rayfleet::api::ray::{RayCluster, RayCronJob, RayJob, RayService};
use rayfleet::api::wire::{Method, Request};
use rayfleet::api::{Kind, Time, crds};
use rayfleet::sandbox::apiserver::{Answer, ApiServer, Options};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

/// When everything happens.
const NOW: Time = Time(1_800_000_000_000);

/// A hub's API server: our definitions and Volcano's.
pub(super) struct Server(ApiServer);

/// Groups whose definitions are all there: what they do not know is misspelt.
const OURS: &[&str] = &["ray.io", "rayfleet.io", "scheduling.volcano.sh"];

impl Server {
    /// With the namespaces that the documents name. Of a kind that is somebody else's (a Gateway, say) the definition is
    /// that one's to install, before the manifest: here it is one that takes everything.
    pub(super) fn new(documents: &[Value]) -> Result<Self, String> {
        let mut server = Self(ApiServer::new(Options::default()));
        for crd in crds::hub().iter().chain(&crds::volcano()) {
            server.must_take(crd)?;
        }
        let mut namespaces = BTreeSet::new();
        for document in documents {
            let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
            let (api_version, kind) = (text(&document["apiVersion"]), text(&document["kind"]));
            if let Some((group, version)) = api_version.split_once('/')
                && group.contains('.')
                && !OURS.contains(&group)
                && server.0.registry().find_kind(&api_version, &kind).is_none()
            {
                server.must_take(&stranger(group, version, &kind))?;
            }
            let namespace = text(&document["metadata"]["namespace"]);
            if !matches!(namespace.as_str(), "" | "default" | "kube-system") && namespaces.insert(namespace.clone()) {
                server.must_take(&json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}))?;
            }
        }
        Ok(server)
    }

    fn must_take(&mut self, object: &Value) -> Result<(), String> {
        self.create(object).map(drop).map_err(|refused| format!("{}: {refused}", object["metadata"]["name"]))
    }

    /// Creates it as `kubectl create` does. What was stored, or the server's words.
    pub(super) fn create(&mut self, object: &Value) -> Result<Value, String> {
        let path = self.collection(object)?;
        let body = object.to_string().into_bytes();
        let request = Request::new(Method::Post, path, "application/json", body.into());
        let Answer::Reply(reply) = self.0.handle(&request, NOW) else { return Err("no plain answer".to_owned()) };
        let answer: Value = serde_json::from_slice(&reply.body).map_err(|e| format!("its answer is no JSON: {e}"))?;
        if reply.is_success() {
            return Ok(answer);
        }
        Err(format!("refused with {}: {}", reply.status, answer["message"].as_str().unwrap_or_default()))
    }

    fn collection(&self, object: &Value) -> Result<String, String> {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let (api_version, kind) = (text(&object["apiVersion"]), text(&object["kind"]));
        let found = self.0.registry().find_kind(&api_version, &kind);
        let found = found.ok_or_else(|| format!("the server has no {api_version} {kind}"))?;
        let base = if found.group.is_empty() { "/api" } else { "/apis" };
        let namespace = match object["metadata"]["namespace"].as_str() {
            Some(namespace) if !namespace.is_empty() => namespace,
            _ => "default",
        };
        Ok(if found.namespaced {
            format!("{base}/{api_version}/namespaces/{namespace}/{}", found.plural)
        } else {
            format!("{base}/{api_version}/{}", found.plural)
        })
    }
}

/// A definition that takes everything.
pub(crate) fn stranger(group: &str, version: &str, kind: &str) -> Value {
    let plural = format!("{}s", kind.to_lowercase());
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": { "name": format!("{plural}.{group}") },
        "spec": {
            "group": group,
            "names": { "kind": kind, "plural": plural, "singular": kind.to_lowercase(), "listKind": format!("{kind}List") },
            "scope": "Namespaced",
            "versions": [{
                "name": version, "served": true, "storage": true,
                "schema": { "openAPIV3Schema": { "type": "object", "x-kubernetes-preserve-unknown-fields": true } },
            }],
        },
    })
}

/// Whether `kept` has everything that `sent` has; else what is missing or other. A field that is null counts as absent.
pub(super) fn keeps(kept: &Value, sent: &Value, at: &str) -> Result<(), String> {
    match (kept, sent) {
        (Value::Object(kept), Value::Object(sent)) => {
            sent.iter().filter(|(_, value)| !value.is_null()).try_for_each(|(key, value)| match kept.get(key) {
                Some(mine) => keeps(mine, value, &format!("{at}.{key}")),
                None => Err(format!("{at}.{key} is lost")),
            })
        }
        (Value::Array(kept), Value::Array(sent)) if kept.len() == sent.len() => kept
            .iter()
            .zip(sent)
            .enumerate()
            .try_for_each(|(i, (mine, value))| keeps(mine, value, &format!("{at}[{i}]"))),
        (kept, sent) if kept == sent => Ok(()),
        _ => Err(format!("{at} is {kept}, not {sent}")),
    }
}

/// The document after it was read into our type of its kind and written again.
pub(super) fn through_our_types(kind: Kind, document: &Value) -> Result<Value, String> {
    fn through<T: Serialize + DeserializeOwned>(document: &Value) -> Result<Value, String> {
        let typed: T =
            serde_json::from_value(document.clone()).map_err(|e| format!("our type does not take it: {e}"))?;
        serde_json::to_value(typed).map_err(|e| e.to_string())
    }
    match kind {
        Kind::RayJob => through::<RayJob>(document),
        Kind::RayService => through::<RayService>(document),
        Kind::RayCronJob => through::<RayCronJob>(document),
        _ => through::<RayCluster>(document),
    }
}
