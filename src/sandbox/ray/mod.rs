//! Real Ray processes behind the pods.
//! Must not know how pods are decided: it starts what a pod says, and tells what became of it.

pub mod behind;
mod container;
pub mod install;
pub mod logs;
pub mod names;
pub mod nodes;
pub mod order;
pub mod pod;
pub mod ports;
pub mod probe;
mod root;
mod run_dir;
pub mod runner;
mod volumes;

use std::collections::BTreeMap;

use serde_json::Value;

/// What this machine lets a container's files be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Isolation {
    /// Mount namespaces as root.
    Mounts,
    /// Mount namespaces within a user namespace.
    UserAndMounts,
    /// None; why.
    None {
        /// What the machine said.
        why: String,
    },
}

impl Isolation {
    /// Whether volumes can be mounted.
    pub fn allowed(&self) -> bool {
        !matches!(self, Isolation::None { .. })
    }
}

/// The text of a JSON string, empty for anything else.
fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// A JSON object of strings; anything else in it is left out.
fn strings(value: &Value) -> BTreeMap<String, String> {
    let entries = value.as_object().into_iter().flatten();
    entries.filter_map(|(k, v)| Some((k.clone(), v.as_str()?.to_owned()))).collect()
}
