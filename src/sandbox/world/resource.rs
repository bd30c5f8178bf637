//! Names of one collection of objects, as a client needs them.
//! Must not know what stands in the objects.

use std::sync::Arc;

use serde_json::Value;

use super::object::{list, text};
use crate::api::Kind;

/// One collection: group, version, plural, kind, scope.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Resource {
    /// API group; empty for the core group.
    pub group: String,
    /// Version within the group.
    pub version: String,
    /// Segment of the path: `pods`.
    pub plural: String,
    /// `Pod`
    pub kind: String,
    /// Whether objects live in a namespace.
    pub namespaced: bool,
}

impl Resource {
    /// From its names.
    pub fn new(group: &str, version: &str, plural: &str, kind: &str, namespaced: bool) -> Arc<Self> {
        Arc::new(Self {
            group: group.to_owned(),
            version: version.to_owned(),
            plural: plural.to_owned(),
            kind: kind.to_owned(),
            namespaced,
        })
    }

    /// A kind that the product knows too.
    pub fn of(kind: Kind) -> Arc<Self> {
        Self::new(kind.group(), kind.version(), kind.plural(), kind.name(), kind.namespaced())
    }

    /// CustomResourceDefinitions.
    pub fn definitions() -> Arc<Self> {
        Self::new("apiextensions.k8s.io", "v1", "customresourcedefinitions", "CustomResourceDefinition", false)
    }

    /// Built-in collections whose objects may own, be owned, or fill a namespace, and that the sandbox serves.
    pub fn builtin() -> Vec<Arc<Self>> {
        let mut all: Vec<Arc<Self>> = [
            Kind::Pod,
            Kind::Service,
            Kind::Secret,
            Kind::ConfigMap,
            Kind::ServiceAccount,
            Kind::Role,
            Kind::RoleBinding,
            Kind::Ingress,
            Kind::Node,
            Kind::Namespace,
            Kind::Job,
            Kind::PriorityClass,
            Kind::Lease,
        ]
        .into_iter()
        .map(Self::of)
        .collect();
        all.extend([
            Self::new("", "v1", "endpoints", "Endpoints", true),
            Self::new("discovery.k8s.io", "v1", "endpointslices", "EndpointSlice", true),
        ]);
        all
    }

    /// What a CustomResourceDefinition defines: the first served version. `None` while it is not established or is
    /// being deleted.
    pub fn defined_by(definition: &Value) -> Option<Arc<Self>> {
        let established = list(definition, "/status/conditions")
            .iter()
            .any(|c| text(c, "/type") == "Established" && text(c, "/status") == "True");
        if !established || definition.pointer("/metadata/deletionTimestamp").is_some() {
            return None;
        }
        let version = list(definition, "/spec/versions")
            .iter()
            .find(|v| v.get("served").and_then(Value::as_bool).unwrap_or(false))?;
        Some(Self::new(
            text(definition, "/spec/group"),
            text(version, "/name"),
            text(definition, "/spec/names/plural"),
            text(definition, "/spec/names/kind"),
            text(definition, "/spec/scope") == "Namespaced",
        ))
    }

    /// `apiVersion` of its objects.
    pub fn api_version(&self) -> String {
        if self.group.is_empty() { self.version.clone() } else { format!("{}/{}", self.group, self.version) }
    }

    /// Path of the collection; of all namespaces where `namespace` is empty.
    pub fn collection(&self, namespace: &str) -> String {
        let base = if self.group.is_empty() {
            format!("/api/{}", self.version)
        } else {
            format!("/apis/{}/{}", self.group, self.version)
        };
        if self.namespaced && !namespace.is_empty() {
            format!("{base}/namespaces/{namespace}/{}", self.plural)
        } else {
            format!("{base}/{}", self.plural)
        }
    }

    /// Path of one object.
    pub fn path(&self, namespace: &str, name: &str) -> String {
        format!("{}/{name}", self.collection(namespace))
    }

    /// Path of an object that was seen.
    pub fn path_of(&self, object: &Value) -> String {
        self.path(text(object, "/metadata/namespace"), text(object, "/metadata/name"))
    }
}
