//! Which types an API server serves: names, scope, verbs, subresources, storage. Built-in ones and those of CRDs.
//! Must not know objects, requests or how anything is stored.

use std::collections::BTreeMap;
use std::sync::Arc;

use sha2::{Digest, Sha256};

use super::builtin;
use super::schema::Schema;

/// A printer column of a custom resource (`additionalPrinterColumns`).
#[derive(Clone, PartialEq, Debug)]
pub struct Column {
    /// Heading.
    pub name: String,
    /// `string`, `integer`, `number`, `boolean` or `date`.
    pub kind: String,
    /// `date`, `int32`, …; empty where the CRD gives none.
    pub format: String,
    /// Explanation; may be empty.
    pub description: String,
    /// 0 is always shown, the rest with `-o wide`.
    pub priority: i64,
    /// Where the value stands: `.spec.size`.
    pub json_path: String,
}

/// Where the scale subresource reads and writes: simple JSON paths.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Scale {
    /// `.spec.replicas`
    pub spec_replicas: String,
    /// `.status.replicas`
    pub status_replicas: String,
    /// `.status.selector`; `None` where the type has none.
    pub label_selector: Option<String>,
}

/// A part of an object that has its own path.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Subresource {
    /// Last segment of the path: `status`.
    pub name: String,
    /// Group of what is sent and received.
    pub group: String,
    /// Version of it.
    pub version: String,
    /// Kind of it.
    pub kind: String,
    /// What may be done.
    pub verbs: Vec<String>,
}

/// A field that `fieldSelector` may name.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SelectableField {
    /// As the selector names it: `spec.nodeName`.
    pub label: String,
    /// Where it stands in the object of this version, dotted: `spec.nodeName`.
    pub path: String,
    /// What an object without the field counts as.
    pub default: String,
}

/// One version of one resource.
#[derive(Clone, PartialEq, Debug)]
pub struct ResourceType {
    /// API group; empty for the core group.
    pub group: String,
    /// Version within the group.
    pub version: String,
    /// `RayJob`
    pub kind: String,
    /// `RayJobList`
    pub list_kind: String,
    /// Segment of the path: `rayjobs`.
    pub plural: String,
    /// `rayjob`
    pub singular: String,
    /// What kubectl also takes.
    pub short_names: Vec<String>,
    /// `all`, …
    pub categories: Vec<String>,
    /// Whether objects live in a namespace.
    pub namespaced: bool,
    /// Whether status is written through its own path only.
    pub has_status: bool,
    /// Whether the server counts `metadata.generation`.
    pub has_generation: bool,
    /// Whether a PUT without a resourceVersion is taken (built-in kinds differ, custom resources never take it).
    pub unconditional_update: bool,
    /// Whether a PUT creates what does not exist.
    pub create_on_update: bool,
    /// The scale subresource, if the type has one.
    pub scale: Option<Scale>,
    /// Printer columns of a custom resource; built-in kinds have theirs in `table`.
    pub columns: Vec<Column>,
    /// Schema of a custom resource; `None` for built-in kinds.
    pub schema: Option<Arc<Schema>>,
    /// The schema as the CRD has it, for OpenAPI; `None` for built-in kinds.
    pub definition: Option<Arc<serde_json::Value>>,
    /// In the order in which discovery lists them.
    pub verbs: Vec<String>,
    /// In the order in which discovery lists them.
    pub subresources: Vec<Subresource>,
    /// Whether the type is compiled into the server.
    pub builtin: bool,
    /// Besides `metadata.name` and `metadata.namespace`.
    pub selectable_fields: Vec<SelectableField>,
    /// Objects of all types with the same key are the same objects (versions of a CRD; both kinds of Event).
    pub storage_key: Arc<str>,
    /// `apiVersion` that objects are stored as.
    pub storage_api_version: String,
    /// Sent as a warning with each answer, where the version is deprecated.
    pub deprecation: Option<String>,
    /// A CRD that is being deleted takes no new objects.
    pub terminating: bool,
    /// Short hash of the storage version in discovery; empty where nothing is stored.
    pub storage_hash: String,
}

impl ResourceType {
    /// As objects carry it: `ray.io/v1`, or `v1` in the core group.
    pub fn api_version(&self) -> String {
        api_version(&self.group, &self.version)
    }

    /// As Status messages name it: `rayjobs.ray.io`, or `pods` in the core group.
    pub fn qualified(&self) -> String {
        if self.group.is_empty() { self.plural.clone() } else { format!("{}.{}", self.plural, self.group) }
    }

    /// As messages about invalid objects name it: `RayJob.ray.io`, or `Pod` in the core group.
    pub fn qualified_kind(&self) -> String {
        if self.group.is_empty() { self.kind.clone() } else { format!("{}.{}", self.kind, self.group) }
    }

    /// Whether discovery lists the verb.
    pub fn allows(&self, verb: &str) -> bool {
        self.verbs.iter().any(|v| v == verb)
    }

    /// The subresource of this name.
    pub fn subresource(&self, name: &str) -> Option<&Subresource> {
        self.subresources.iter().find(|s| s.name == name)
    }
}

/// Group and version joined as in `apiVersion`.
pub fn api_version(group: &str, version: &str) -> String {
    if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") }
}

/// A group with its versions, the preferred one first.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Group {
    /// Empty for the core group.
    pub name: String,
    /// Preferred first.
    pub versions: Vec<String>,
}

/// All types of one server.
#[derive(Clone, PartialEq, Debug)]
pub struct Registry {
    /// Groups of built-in types in the server's order, then those of CRDs by name.
    builtin_groups: Vec<Group>,
    /// (group, version, plural) → type.
    types: BTreeMap<(String, String, String), Arc<ResourceType>>,
    /// Grows with every change; discovery's ETag stands on it.
    revision: u64,
}

impl Default for Registry {
    fn default() -> Self {
        Self::new()
    }
}

impl Registry {
    /// With all built-in types and nothing else.
    pub fn new() -> Self {
        let mut registry = Self { builtin_groups: builtin::groups(), types: BTreeMap::new(), revision: 0 };
        for ty in builtin::types() {
            registry.insert(ty);
        }
        registry
    }

    /// The type behind `/apis/<group>/<version>/…/<plural>`.
    pub fn find(&self, group: &str, version: &str, plural: &str) -> Option<&Arc<ResourceType>> {
        self.types.get(&(group.to_owned(), version.to_owned(), plural.to_owned()))
    }

    /// The type that objects of this `apiVersion` and `kind` have.
    pub fn find_kind(&self, api_version: &str, kind: &str) -> Option<&Arc<ResourceType>> {
        self.types.values().find(|t| t.kind == kind && t.api_version() == api_version)
    }

    /// The type that a person means: plural, singular, short name or kind in lower case, alone or followed by `.group`
    /// or `.version.group`. Built-in types win, then the preferred version.
    pub fn by_name(&self, name: &str) -> Option<&Arc<ResourceType>> {
        let (first, rest) = name.split_once('.').unwrap_or((name, ""));
        let named = |t: &&Arc<ResourceType>| {
            t.plural == first
                || t.singular == first
                || t.short_names.iter().any(|s| s == first)
                || t.kind.to_lowercase() == first
        };
        let place =
            |t: &&Arc<ResourceType>| rest.is_empty() || rest == t.group || rest == format!("{}.{}", t.version, t.group);
        let groups = self.groups();
        groups.iter().flat_map(|g| g.versions.iter().map(move |v| (&g.name, v))).find_map(|(group, version)| {
            self.types.values().find(|t| t.group == *group && t.version == *version && named(t) && place(t))
        })
    }

    /// All types of one version of a group, by plural.
    pub fn of_version<'a>(&'a self, group: &'a str, version: &'a str) -> impl Iterator<Item = &'a Arc<ResourceType>> {
        self.types.values().filter(move |t| t.group == group && t.version == version)
    }

    /// Every type of the server, by group, version and plural.
    pub fn all(&self) -> impl Iterator<Item = &Arc<ResourceType>> {
        self.types.values()
    }

    /// All groups, the core group first, in the order in which discovery lists them.
    pub fn groups(&self) -> Vec<Group> {
        let mut groups = self.builtin_groups.clone();
        let builtin = groups.len();
        for ty in self.types.values().filter(|t| !t.builtin) {
            match groups.iter_mut().find(|g| g.name == ty.group) {
                Some(group) if group.versions.contains(&ty.version) => {}
                Some(group) => group.versions.push(ty.version.clone()),
                None => groups.push(Group { name: ty.group.clone(), versions: vec![ty.version.clone()] }),
            }
        }
        for group in &mut groups[builtin..] {
            group.versions.sort_by(|a, b| version_order(b, a));
        }
        groups
    }

    /// The group of this name.
    pub fn group(&self, name: &str) -> Option<Group> {
        self.groups().into_iter().find(|g| g.name == name)
    }

    /// Adds a type, or replaces the one of the same group, version and plural.
    pub fn insert(&mut self, ty: ResourceType) {
        self.types.insert((ty.group.clone(), ty.version.clone(), ty.plural.clone()), Arc::new(ty));
        self.revision += 1;
    }

    /// Takes away all versions of a resource that a CRD brought.
    pub fn remove(&mut self, group: &str, plural: &str) {
        self.types.retain(|_, t| t.builtin || t.group != group || t.plural != plural);
        self.revision += 1;
    }

    /// Grows with every change of the types.
    pub fn revision(&self) -> u64 {
        self.revision
    }
}

/// What discovery shows of the stored form of a type: the first 8 bytes of a SHA-256 of its name, in base64.
pub fn storage_hash(group: &str, version: &str, kind: &str) -> String {
    let digest = Sha256::digest(format!("{group}/{version}/{kind}"));
    data_encoding::BASE64.encode(&digest[..8])
}

/// Order of versions by maturity and number, lowest first: `foo` < `v1alpha1` < `v1beta1` < `v1` < `v2`.
/// Source: "Version priority" of the CustomResourceDefinition documentation.
pub fn version_order(a: &str, b: &str) -> std::cmp::Ordering {
    let (x, y) = (version_key(a), version_key(b));
    // Versions that do not follow the pattern come last and among themselves in alphabetical order.
    x.cmp(&y).then_with(|| b.cmp(a))
}

/// (maturity, major, minor): GA 3, beta 2, alpha 1, other 0.
fn version_key(text: &str) -> (u8, u64, u64) {
    let parse = || -> Option<(u8, u64, u64)> {
        let rest = text.strip_prefix('v')?;
        for (word, rank) in [("alpha", 1), ("beta", 2)] {
            if let Some((major, minor)) = rest.split_once(word) {
                return Some((rank, major.parse().ok()?, minor.parse().ok()?));
            }
        }
        Some((3, rest.parse().ok()?, 0))
    };
    parse().unwrap_or((0, 0, 0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn built_in_types_are_found_by_path_kind_and_name() {
        let registry = Registry::new();
        let pods = registry.find("", "v1", "pods").unwrap();
        assert_eq!((pods.kind.as_str(), pods.namespaced, pods.has_status), ("Pod", true, true));
        assert_eq!(registry.find_kind("batch/v1", "Job").unwrap().plural, "jobs");
        for name in ["po", "pod", "pods", "deploy", "deployments.apps", "deployments.v1.apps", "sa", "crd", "leases"] {
            assert!(registry.by_name(name).is_some(), "{name}");
        }
        // Both kinds of Event have the same names: the core group wins.
        assert_eq!(registry.by_name("ev").unwrap().group, "");
        assert_eq!(registry.by_name("events.events.k8s.io").unwrap().group, "events.k8s.io");
    }

    #[test]
    fn both_kinds_of_event_are_one_store() {
        let registry = Registry::new();
        let (a, b) =
            (registry.find("", "v1", "events").unwrap(), registry.find("events.k8s.io", "v1", "events").unwrap());
        assert_eq!((&a.storage_key, &a.storage_api_version), (&b.storage_key, &b.storage_api_version));
    }

    #[test]
    fn the_hash_of_a_stored_type_is_the_recorded_one() {
        assert_eq!(storage_hash("apps", "v1", "Deployment"), "8aSe+NMegvE=");
        assert_eq!(storage_hash("", "v1", "Pod"), "xPOwRZ+Yhw8=");
    }

    #[test]
    fn versions_are_ordered_by_maturity() {
        let mut versions = ["foo", "v1", "v1alpha1", "v2", "v10", "v1beta2", "v1beta1", "bar"];
        versions.sort_by(|a, b| version_order(b, a));
        assert_eq!(versions, ["v10", "v2", "v1", "v1beta2", "v1beta1", "v1alpha1", "bar", "foo"]);
    }
}
