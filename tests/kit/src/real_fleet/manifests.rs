//! The manifests that a user applies: `crds/` and `deploy/`, as objects and as the rules that their roles hold.
//! Must not know what the rules are for.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use rayfleet::shell::client::Client;
use serde_json::Value;

use super::create;

const CHECKOUT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

/// One thing that a role allows, or that somebody did: verb, API group, resource with its subresource.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Right {
    /// API group; empty for the core group.
    pub group: String,
    /// `pods`, `rayjobs/status`.
    pub resource: String,
    /// `get`, `list`, …
    pub verb: String,
}

/// Whose definitions of `ray.io` stand on hub and members.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Definitions {
    /// Those in `crds/`.
    Ours,
    /// KubeRay's own, as they were released.
    KubeRays,
}

/// The definitions that hub and members have: the fleet's own are those in `crds/` in any case.
pub(super) fn definitions(whose: Definitions) -> Result<Vec<Value>> {
    let ours = Path::new(CHECKOUT).join("crds");
    let shared =
        std::env::var_os("RAYFLEET_SHARED").map_or_else(|| Path::new(CHECKOUT).join("../shared"), PathBuf::from);
    let mut all = Vec::new();
    for entry in fs::read_dir(&ours)? {
        let path = entry?.path();
        let ray = path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("ray.io_"));
        all.extend(match (whose, path.file_name()) {
            (Definitions::KubeRays, Some(name)) if ray => documents(&shared.join("upstream-crds").join(name))?,
            _ => documents(&path)?,
        });
    }
    Ok(all)
}

/// The objects of `deploy/<file>.yaml`.
pub(super) fn of(file: &str) -> Result<Vec<Value>> {
    documents(&Path::new(CHECKOUT).join("deploy").join(format!("{file}.yaml")))
}

/// One thing that a role allows.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Allowed {
    /// `ClusterRole "rayfleet-hub"`, as audit logs name it.
    pub role: String,
    /// What.
    pub right: Right,
    /// On the object of this name alone.
    pub only: Option<String>,
}

/// All that the roles in `deploy/<file>.yaml` allow.
pub fn allowed(file: &str) -> Result<BTreeSet<Allowed>> {
    let texts = |list: &Value| -> Vec<String> {
        list.as_array().into_iter().flatten().filter_map(|text| Some(text.as_str()?.to_owned())).collect()
    };
    let mut rights = BTreeSet::new();
    for object in of(file)? {
        let role = format!("{} {}", object["kind"].as_str().unwrap_or_default(), object["metadata"]["name"]);
        for rule in object["rules"].as_array().into_iter().flatten() {
            let names = texts(&rule["resourceNames"]);
            let names = if names.is_empty() { vec![None] } else { names.into_iter().map(Some).collect() };
            let (resources, verbs) = (texts(&rule["resources"]), texts(&rule["verbs"]));
            let pairs = |group: &String| -> Vec<(String, String)> {
                resources.iter().map(|resource| (group.clone(), resource.clone())).collect()
            };
            let on: Vec<_> = texts(&rule["apiGroups"]).iter().flat_map(pairs).collect();
            for (group, resource) in on {
                for verb in &verbs {
                    let right = Right { group: group.clone(), resource: resource.clone(), verb: verb.clone() };
                    let one = |only: &Option<String>| Allowed {
                        role: role.clone(),
                        right: right.clone(),
                        only: only.clone(),
                    };
                    rights.extend(names.iter().map(one));
                }
            }
        }
    }
    Ok(rights)
}

/// Creates the objects in order; what is there already stays.
pub(super) async fn apply(client: &Client, objects: &[Value]) -> Result<()> {
    for object in objects {
        create(client, &collection(object)?, object).await?;
    }
    Ok(())
}

fn documents(path: &Path) -> Result<Vec<Value>> {
    let text = fs::read_to_string(path).with_context(|| path.display().to_string())?;
    serde_saphyr::from_multiple(&text).with_context(|| path.display().to_string())
}

fn collection(object: &Value) -> Result<String> {
    let field = |pointer: &str| object.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
    let plural = match field("/kind") {
        "Namespace" => "namespaces",
        "ServiceAccount" => "serviceaccounts",
        "ClusterRole" => "clusterroles",
        "ClusterRoleBinding" => "clusterrolebindings",
        "Role" => "roles",
        "RoleBinding" => "rolebindings",
        "CustomResourceDefinition" => "customresourcedefinitions",
        other => bail!("no path is known for a {other}"),
    };
    let version = field("/apiVersion");
    let base = if version.contains('/') { format!("/apis/{version}") } else { format!("/api/{version}") };
    Ok(match field("/metadata/namespace") {
        "" => format!("{base}/{plural}"),
        namespace => format!("{base}/namespaces/{namespace}/{plural}"),
    })
}
