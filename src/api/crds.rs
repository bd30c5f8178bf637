//! The custom resource definitions: ours, Ray's and the part of Volcano's that the sandbox needs.
//! Knows names, columns and schemas. Must not know files or clusters.
//!
//! Ray's kinds are served with KubeRay's names, columns and defaults (specs/rayjob.md 1, raycluster.md 1.1), but keep
//! every field that is not typed: a manifest that is valid for KubeRay loses nothing here.

mod builtin;
mod older;
mod ray;
mod structural;
mod unknown;

pub use older::{OLDER, lifted};
pub use unknown::{Unknown, nearest, unknown_fields};

use std::collections::BTreeMap;
use std::sync::LazyLock;

use schemars::JsonSchema;
use serde_json::{Value, json};

use super::Kind;
use super::fleet::{MemberCapacity, MemberCluster, Placement, PlacementPolicy};

/// Definitions that belong on a hub: Ray's four kinds and the fleet's four.
pub fn hub() -> Vec<Value> {
    made().to_vec()
}

/// Made once: the pod templates in them are large, and simulated worlds ask for each of their servers.
fn made() -> &'static [Value] {
    static MADE: LazyLock<Vec<Value>> = LazyLock::new(|| {
        let mut all = ray::definitions();
        all.extend([placement(), placement_policy(), member_cluster(), member_capacity()]);
        all
    });
    &MADE
}

/// Definitions that a member needs from us: Ray's two kinds.
pub fn member() -> Vec<Value> {
    let needed = ["RayJob", "RayCluster"];
    hub().into_iter().filter(|crd| needed.contains(&text(&crd["spec"]["names"]["kind"]))).collect()
}

/// Volcano's two kinds with open schemas: for sandboxes. Real members have Volcano's own.
pub fn volcano() -> Vec<Value> {
    vec![pod_group(), queue()]
}

/// Name of the file in `crds/` → its YAML. Volcano's kinds are not among them: they are not ours to install.
pub fn render() -> BTreeMap<String, String> {
    hub()
        .into_iter()
        .map(|crd| {
            let names = &crd["spec"]["names"];
            let file = format!("{}_{}.yaml", text(&crd["spec"]["group"]), text(&names["plural"]));
            (file, structural::yaml(&crd))
        })
        .collect()
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// What differs between definitions.
struct Shape {
    kind: Kind,
    short: &'static [&'static str],
    categories: &'static [&'static str],
    columns: Vec<Value>,
    status: bool,
    schema: Value,
}

fn definition(shape: Shape) -> Value {
    let Shape { kind, short, categories, columns, status, schema } = shape;
    let mut names = json!({
        "kind": kind.name(),
        "listKind": format!("{}List", kind.name()),
        "plural": kind.plural(),
        "singular": kind.name().to_lowercase(),
    });
    if !short.is_empty() {
        names["shortNames"] = json!(short);
    }
    if !categories.is_empty() {
        names["categories"] = json!(categories);
    }
    let mut version = json!({
        "name": kind.version(),
        "served": true,
        "storage": true,
        "schema": { "openAPIV3Schema": schema },
        "additionalPrinterColumns": columns,
    });
    if status {
        version["subresources"] = json!({ "status": {} });
    }
    let older = older::version(kind, &version);
    let versions: Vec<Value> = [version].into_iter().chain(older).collect();
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": { "name": format!("{}.{}", kind.plural(), kind.group()) },
        "spec": {
            "group": kind.group(),
            "names": names,
            "scope": if kind.namespaced() { "Namespaced" } else { "Cluster" },
            "versions": versions,
        },
    })
}

fn column(name: &str, kind: &str, path: &str) -> Value {
    json!({ "name": name, "type": kind, "jsonPath": path })
}

fn wide(name: &str, kind: &str, path: &str) -> Value {
    json!({ "name": name, "type": kind, "jsonPath": path, "priority": 1 })
}

fn age() -> Value {
    column("age", "date", ".metadata.creationTimestamp")
}

/// Schema of a whole object from the types of its spec and status.
fn of_parts<Spec: JsonSchema, Status: JsonSchema>(about: &str) -> Value {
    whole(about, json!({ "spec": structural::of::<Spec>(), "status": structural::of::<Status>() }))
}

/// Schema of a whole object from a type with `spec` and perhaps `status`.
fn of_whole<Type: JsonSchema>(about: &str) -> Value {
    let mut schema = structural::of::<Type>();
    // What Rust takes for a missing field need not be written into objects.
    structural::without_defaults(&mut schema);
    whole(about, schema["properties"].clone())
}

fn whole(about: &str, mut properties: Value) -> Value {
    properties["apiVersion"] = json!({ "type": "string" });
    properties["kind"] = json!({ "type": "string" });
    properties["metadata"] = json!({ "type": "object" });
    json!({ "type": "object", "description": about, "properties": properties })
}

fn placement() -> Value {
    definition(Shape {
        kind: Kind::Placement,
        short: &[],
        categories: &["rayfleet"],
        columns: vec![
            column("stage", "string", ".spec.stage"),
            column("member", "string", ".spec.member"),
            column("queue", "string", ".spec.queue"),
            column("position", "integer", ".status.position"),
            column("message", "string", ".status.message"),
            wide("generation", "integer", ".spec.generation"),
            age(),
        ],
        // One stamped PUT changes decision and explanation together.
        status: false,
        schema: of_whole::<Placement>("Where a root object of the hub runs, and why."),
    })
}

fn placement_policy() -> Value {
    definition(Shape {
        kind: Kind::PlacementPolicy,
        short: &[],
        categories: &["rayfleet"],
        columns: vec![
            column("default queue", "string", ".spec.defaultQueue"),
            column("preference", "string", ".spec.preference"),
            age(),
        ],
        status: false,
        schema: of_whole::<PlacementPolicy>("How the root objects of a namespace are placed."),
    })
}

fn member_cluster() -> Value {
    definition(Shape {
        kind: Kind::MemberCluster,
        short: &[],
        categories: &["rayfleet"],
        columns: vec![
            column("ready", "string", ".status.conditions[?(@.type==\"Ready\")].status"),
            column("reason", "string", ".status.conditions[?(@.type==\"Ready\")].reason"),
            column("unschedulable", "boolean", ".spec.unschedulable"),
            column("nodes", "integer", ".status.nodes"),
            column("version", "string", ".status.kubernetesVersion"),
            age(),
        ],
        status: true,
        schema: of_whole::<MemberCluster>("A Kubernetes cluster that runs Ray: how it is reached and used."),
    })
}

fn member_capacity() -> Value {
    definition(Shape {
        kind: Kind::MemberCapacity,
        short: &[],
        categories: &["rayfleet"],
        columns: vec![
            column("reachable", "boolean", ".spec.reachable"),
            column("cpu used", "string", ".spec.used.cpu"),
            column("cpu", "string", ".spec.allocatable.cpu"),
            column("memory used", "string", ".spec.used.memory"),
            column("memory", "string", ".spec.allocatable.memory"),
            column("observed", "date", ".spec.observedAt"),
            age(),
        ],
        status: false,
        schema: of_whole::<MemberCapacity>("What a member has room for; written by its owner only."),
    })
}

fn open() -> Value {
    json!({ "type": "object", "x-kubernetes-preserve-unknown-fields": true })
}

fn pod_group() -> Value {
    let spec = json!({
        "type": "object",
        "x-kubernetes-preserve-unknown-fields": true,
        "properties": {
            "minMember": { "type": "integer", "format": "int32", "minimum": 0 },
            "queue": { "type": "string", "default": "default", "maxLength": 253 },
        },
    });
    definition(Shape {
        kind: Kind::PodGroup,
        short: &["pg", "podgroup-v1beta1"],
        categories: &[],
        columns: vec![
            column("STATUS", "string", ".status.phase"),
            column("minMember", "integer", ".spec.minMember"),
            column("RUNNINGS", "integer", ".status.running"),
            column("AGE", "date", ".metadata.creationTimestamp"),
            wide("QUEUE", "string", ".spec.queue"),
        ],
        // Volcano's own definition has none either: its scheduler writes status with the object.
        status: false,
        schema: whole("A gang of pods.", json!({ "spec": spec, "status": open() })),
    })
}

fn queue() -> Value {
    let spec = json!({
        "type": "object",
        "x-kubernetes-preserve-unknown-fields": true,
        "properties": {
            "weight": { "type": "integer", "format": "int32", "minimum": 1, "maximum": 65535, "default": 1 },
            "parent": { "type": "string", "maxLength": 253 },
        },
    });
    definition(Shape {
        kind: Kind::Queue,
        short: &["q", "queue-v1beta1"],
        categories: &[],
        columns: vec![column("PARENT", "string", ".spec.parent")],
        status: true,
        schema: whole("A share of a cluster.", json!({ "spec": spec, "status": open() })),
    })
}

#[cfg(test)]
mod tests;
