//! The custom resource definitions: ours, Ray's and the part of Volcano's that the sandbox needs.
//! Knows names, columns and schemas. Must not know files or clusters.
//!
//! Ray's kinds are served with KubeRay's names, columns and defaults (specs/rayjob.md 1, raycluster.md 1.1), but keep
//! every field that is not typed: a manifest that is valid for KubeRay loses nothing here.

mod structural;

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde_json::{Value, json};

use super::Kind;
use super::fleet::{MemberCapacity, MemberCluster, Placement, PlacementPolicy};
use super::ray::{RayClusterSpec, RayClusterStatus, RayJobSpec, RayJobStatus};

/// Definitions that belong on a hub: Ray's two kinds and the fleet's four.
pub fn hub() -> Vec<Value> {
    vec![ray_job(), ray_cluster(), placement(), placement_policy(), member_cluster(), member_capacity()]
}

/// Definitions that a member needs from us: Ray's two kinds.
pub fn member() -> Vec<Value> {
    vec![ray_job(), ray_cluster()]
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
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": { "name": format!("{}.{}", kind.plural(), kind.group()) },
        "spec": {
            "group": kind.group(),
            "names": names,
            "scope": if kind.namespaced() { "Namespaced" } else { "Cluster" },
            "versions": [version],
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

fn ray_job() -> Value {
    definition(Shape {
        kind: Kind::RayJob,
        short: &[],
        categories: &["all"],
        columns: vec![
            column("job status", "string", ".status.jobStatus"),
            column("deployment status", "string", ".status.jobDeploymentStatus"),
            column("ray cluster name", "string", ".status.rayClusterName"),
            column("start time", "string", ".status.startTime"),
            column("end time", "string", ".status.endTime"),
            age(),
        ],
        status: true,
        schema: of_parts::<RayJobSpec, RayJobStatus>("A Ray job and the cluster that it runs on."),
    })
}

fn ray_cluster() -> Value {
    definition(Shape {
        kind: Kind::RayCluster,
        short: &[],
        categories: &["all"],
        columns: vec![
            column("desired workers", "integer", ".status.desiredWorkerReplicas"),
            column("available workers", "integer", ".status.availableWorkerReplicas"),
            column("cpus", "string", ".status.desiredCPU"),
            column("memory", "string", ".status.desiredMemory"),
            column("gpus", "string", ".status.desiredGPU"),
            wide("tpus", "string", ".status.desiredTPU"),
            column("status", "string", ".status.state"),
            age(),
            wide("head pod IP", "string", ".status.head.podIP"),
            wide("head service IP", "string", ".status.head.serviceIP"),
        ],
        status: true,
        schema: of_parts::<RayClusterSpec, RayClusterStatus>("A Ray cluster: one head and groups of workers."),
    })
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
mod tests {
    use super::*;

    #[test]
    fn files_are_those_that_the_types_give() {
        let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("crds");
        for (file, yaml) in render() {
            let path = folder.join(&file);
            if std::env::var_os("UPDATE").is_some() {
                std::fs::create_dir_all(&folder).unwrap();
                std::fs::write(&path, &yaml).unwrap();
            }
            let there = std::fs::read_to_string(&path).unwrap_or_default();
            assert!(
                there == yaml,
                "crds/{file} is not what the types give: run `UPDATE=1 cargo test -p rayfleet --lib api::crds`"
            );
        }
    }

    #[test]
    fn yaml_reads_back_as_the_definition() {
        for crd in hub() {
            let back: Value = serde_saphyr::from_str(&structural::yaml(&crd)).unwrap();
            assert_eq!(back, crd);
        }
    }

    /// Every path of the upstream schema, as `spec.a[].b.*`.
    fn paths(schema: &Value, at: &str, found: &mut Vec<String>) {
        found.push(at.to_owned());
        for (name, sub) in schema["properties"].as_object().into_iter().flatten() {
            paths(sub, &format!("{at}/{name}"), found);
        }
        if schema["items"].is_object() {
            paths(&schema["items"], &format!("{at}/[]"), found);
        }
        if schema["additionalProperties"].is_object() {
            paths(&schema["additionalProperties"], &format!("{at}/*"), found);
        }
    }

    /// Whether a schema keeps a field at this path.
    fn keeps(schema: &Value, path: &[&str]) -> bool {
        let Some((first, rest)) = path.split_first() else { return true };
        match *first {
            "[]" if schema["items"].is_object() => keeps(&schema["items"], rest),
            "*" if schema["additionalProperties"].is_object() => keeps(&schema["additionalProperties"], rest),
            name if schema["properties"][name].is_object() => keeps(&schema["properties"][name], rest),
            _ => schema["x-kubernetes-preserve-unknown-fields"] == true,
        }
    }

    #[test]
    fn every_field_of_the_upstream_definitions_is_kept() {
        let shared =
            std::env::var("RAYFLEET_SHARED").unwrap_or(concat!(env!("CARGO_MANIFEST_DIR"), "/../shared").into());
        for (file, ours) in [("ray.io_rayjobs.yaml", ray_job()), ("ray.io_rayclusters.yaml", ray_cluster())] {
            let path = std::path::Path::new(&shared).join("upstream-crds").join(file);
            let text = std::fs::read_to_string(&path).unwrap_or_else(|e| {
                panic!("upstream definitions are read from {} (set RAYFLEET_SHARED): {e}", path.display())
            });
            let upstream: Value = serde_saphyr::from_str(&text).unwrap();
            let ours = &ours["spec"]["versions"][0];
            let theirs = upstream["spec"]["versions"].as_array().unwrap().iter().find(|v| v["name"] == "v1").unwrap();
            let mut all = Vec::new();
            paths(&theirs["schema"]["openAPIV3Schema"], "", &mut all);
            assert!(all.len() > 1000, "{}", all.len());
            for path in all {
                let steps: Vec<&str> = path.split('/').filter(|s| !s.is_empty()).collect();
                let metadata = steps.first() == Some(&"metadata");
                assert!(metadata || keeps(&ours["schema"]["openAPIV3Schema"], &steps), "{file}: {path}");
            }
            assert_eq!(ours["additionalPrinterColumns"], theirs["additionalPrinterColumns"], "{file}");
        }
    }

    #[test]
    fn schemas_are_structural() {
        fn check(schema: &Value, at: &str) {
            let typed = schema["type"].is_string() || schema["x-kubernetes-int-or-string"] == true;
            assert!(typed, "{at}: {schema}");
            for forbidden in ["$ref", "$defs", "$schema", "title", "oneOf", "allOf"] {
                assert!(schema.get(forbidden).is_none(), "{at} has {forbidden}");
            }
            for (name, sub) in schema["properties"].as_object().into_iter().flatten() {
                check(sub, &format!("{at}.{name}"));
            }
            for inner in ["items", "additionalProperties"] {
                if schema[inner].is_object() {
                    check(&schema[inner], &format!("{at}.{inner}"));
                }
            }
        }
        for crd in hub().into_iter().chain(volcano()) {
            let name = crd["metadata"]["name"].to_string();
            check(&crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"], &name);
        }
    }
}
