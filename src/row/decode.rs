//! From the bytes of one object to its row.
//! Must not know where the bytes come from.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use serde::Deserialize;
use serde::de::{DeserializeOwned, Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;
use thiserror::Error;

use super::facts::{
    ConditionFact, ContainerFact, Facts, JobFacts, NodeFacts, PodFacts, PodGroupFacts, QueueFacts, ServiceFacts,
};
use super::requests::PodDemand;
use super::shapes::{self, Metadata, Object, Skipped};
use super::{Row, Stamps, strict};
use crate::api::fleet::{
    MemberCapacity, MemberCapacitySpec, MemberCluster, MemberClusterSpec, MemberClusterStatus, Placement,
    PlacementPolicy, PlacementPolicySpec, PlacementSpec, PlacementStatus,
};
use crate::api::{Id, Kind, Time, Uid, Version, names};

/// Why an object is not a row. The text is for people; it names field and rule, and holds no values of the object
/// besides quantities.
#[derive(Debug, Error, Clone, PartialEq, Eq)]
#[error("{0}")]
pub struct DecodeError(pub String);

/// Levels of nesting that a kept body may have: with more, it could not be read again (serde_json reads 127), nor written.
const LEVELS_MAX: usize = 100;

/// Decodes one object of `kind` from its JSON, straight into the row; unknown fields are skipped.
/// Kinds with a body keep the text without `managedFields`, with `apiVersion` and `kind` (items of lists lack them).
pub fn decode(kind: Kind, json: &[u8]) -> Result<Row, DecodeError> {
    let (metadata, facts) = parts(kind, json)?;
    let mut row = from_metadata(kind, metadata, facts)?;
    if has_body(kind) {
        if levels(json) > LEVELS_MAX {
            return Err(DecodeError(format!("nested more than {LEVELS_MAX} levels deep")));
        }
        row.body = Some(body(kind, json)?);
    }
    Ok(row)
}

/// How deeply brackets stand within brackets.
fn levels(json: &[u8]) -> usize {
    let (mut open, mut most, mut in_text, mut escaped) = (0_usize, 0, false, false);
    for byte in json {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if in_text => escaped = true,
            b'"' => in_text = !in_text,
            _ if in_text => {}
            b'{' | b'[' => {
                open += 1;
                most = most.max(open);
            }
            b'}' | b']' => open = open.saturating_sub(1),
            _ => {}
        }
    }
    most
}

/// What is known of an object that does not decode: its metadata, if they do; nothing of specification and status.
pub(super) fn known(kind: Kind, json: &[u8]) -> Option<Row> {
    let object: Object<Skipped, Skipped> = parse_borrowed(json).ok()?;
    from_metadata(kind, object.metadata, Facts::None).ok()
}

/// Whether rows of the kind keep the whole object.
fn has_body(kind: Kind) -> bool {
    matches!(
        kind,
        Kind::RayJob
            | Kind::RayCluster
            | Kind::RayService
            | Kind::RayCronJob
            | Kind::Placement
            | Kind::PlacementPolicy
            | Kind::MemberCluster
            | Kind::MemberCapacity
    )
}

fn parts(kind: Kind, json: &[u8]) -> Result<(Metadata, Facts), DecodeError> {
    Ok(match kind {
        Kind::Pod => {
            let Object { metadata, spec, status } = parse::<Object<shapes::PodSpec, shapes::PodStatus>>(json)?;
            (metadata, Facts::Pod(Box::new(pod(spec, status)?)))
        }
        Kind::Service => {
            let Object { metadata, spec, .. } = parse::<Object<shapes::ServiceSpec, Skipped>>(json)?;
            let facts = ServiceFacts {
                cluster_ip: spec.cluster_ip,
                service_type: spec.service_type,
                selector: spec.selector,
                ports: spec.ports.into_iter().map(Into::into).collect(),
            };
            (metadata, Facts::Service(facts))
        }
        Kind::Job => {
            let Object { metadata, status, .. } = parse::<Object<Skipped, shapes::JobStatus>>(json)?;
            let conditions = status.conditions.into_iter().filter(|c| &*c.status == "True");
            let facts = JobFacts {
                conditions: conditions.map(|c| (c.kind, c.reason, c.message, c.last_transition_time)).collect(),
                active: status.active,
                succeeded: status.succeeded,
                failed: status.failed,
            };
            (metadata, Facts::Job(facts))
        }
        Kind::Node => {
            let Object { metadata, spec, status } = parse::<Object<shapes::NodeSpec, shapes::NodeStatus>>(json)?;
            let facts = NodeFacts {
                allocatable: status.allocatable.0,
                unschedulable: spec.unschedulable,
                ready: shapes::is_true(&status.conditions, "Ready"),
                taints: spec.taints.into_iter().map(Into::into).collect(),
            };
            (metadata, Facts::Node(Box::new(facts)))
        }
        Kind::PodGroup => {
            let Object { metadata, spec, status } =
                parse::<Object<shapes::PodGroupSpec, shapes::PodGroupStatus>>(json)?;
            let facts = PodGroupFacts {
                queue: spec.queue,
                min_member: spec.min_member,
                min_task_member: spec.min_task_member,
                min_resources: spec.min_resources.0,
                priority_class: spec.priority_class_name,
                phase: status.phase,
                running: status.running,
            };
            (metadata, Facts::PodGroup(facts))
        }
        Kind::Queue => {
            let Object { metadata, spec, status } = parse::<Object<shapes::QueueSpec, shapes::QueueStatus>>(json)?;
            let facts = QueueFacts {
                weight: spec.weight,
                priority: spec.priority,
                parent: spec.parent,
                reclaimable: spec.reclaimable,
                capability: spec.capability.0,
                deserved: spec.deserved.0,
                guarantee: spec.guarantee.resource.0,
                state: status.state,
                allocated: status.allocated.0,
            };
            (metadata, Facts::Queue(Box::new(facts)))
        }
        Kind::Placement => {
            let Object { metadata, spec, status } = parse::<Object<PlacementSpec, PlacementStatus>>(json)?;
            (metadata, Facts::Placement(Box::new(Placement { spec, status })))
        }
        Kind::MemberCluster => {
            let Object { metadata, spec, status } = parse::<Object<MemberClusterSpec, MemberClusterStatus>>(json)?;
            (metadata, Facts::MemberCluster(Box::new(MemberCluster { spec, status })))
        }
        Kind::MemberCapacity => {
            let Object { metadata, spec, .. } = parse::<Object<MemberCapacitySpec, Skipped>>(json)?;
            (metadata, Facts::MemberCapacity(Box::new(MemberCapacity { spec })))
        }
        Kind::PlacementPolicy => {
            let Object { metadata, spec, .. } = parse::<Object<PlacementPolicySpec, Skipped>>(json)?;
            (metadata, Facts::PlacementPolicy(Box::new(PlacementPolicy { spec })))
        }
        Kind::PriorityClass => {
            let class = parse::<shapes::PriorityClass>(json)?;
            (class.metadata, Facts::Priority(class.value))
        }
        Kind::RayJob | Kind::RayCluster | Kind::RayService | Kind::RayCronJob => {
            (parse::<Object<Skipped, Skipped>>(json)?.metadata, Facts::Body)
        }
        Kind::Secret
        | Kind::ConfigMap
        | Kind::ServiceAccount
        | Kind::Role
        | Kind::RoleBinding
        | Kind::Ingress
        | Kind::Namespace
        | Kind::Lease
        | Kind::Event => (parse::<Object<Skipped, Skipped>>(json)?.metadata, Facts::None),
    })
}

fn pod(spec: shapes::PodSpec, status: shapes::PodStatus) -> Result<PodFacts, DecodeError> {
    let demand = PodDemand {
        containers: spec.containers,
        init_containers: spec.init_containers,
        overhead: spec.overhead,
        resources: spec.resources,
    };
    let requests = demand.requests().map_err(|e| DecodeError(format!("requests of the pod: {e}")))?;
    let container = |c: shapes::ContainerStatus| {
        let (exit_code, reason, message, finished) = match (c.state.terminated, c.state.waiting) {
            (Some(ended), _) => (Some(ended.exit_code), ended.reason, ended.message, ended.finished_at),
            (None, Some(waiting)) => (None, waiting.reason, waiting.message, None),
            (None, None) => (None, Arc::default(), Arc::default(), None),
        };
        ContainerFact { name: c.name, exit_code, reason, message, finished, restarts: c.restart_count }
    };
    Ok(PodFacts {
        ready: shapes::is_true(&status.conditions, "Ready"),
        ready_condition: status.conditions.iter().find(|c| &*c.kind == "Ready").map(|c| ConditionFact {
            status: c.status.clone(),
            reason: c.reason.clone(),
            message: c.message.clone(),
        }),
        phase: status.phase,
        reason: status.reason,
        message: status.message,
        node: spec.node_name,
        ip: status.pod_ip,
        restart_policy: spec.restart_policy,
        scheduler: spec.scheduler_name,
        priority_class: spec.priority_class_name,
        requests: requests.into_iter().map(|(name, amount)| (name, amount.to_string().into())).collect(),
        node_selector: spec.node_selector,
        tolerations: spec.tolerations.into_iter().map(Into::into).collect(),
        containers: status.container_statuses.into_iter().map(container).collect(),
    })
}

fn from_metadata(kind: Kind, metadata: Metadata, facts: Facts) -> Result<Row, DecodeError> {
    let missing = |field: &str| DecodeError(format!("metadata.{field} is missing"));
    if metadata.name.is_empty() {
        return Err(missing("name"));
    }
    if kind.namespaced() && metadata.namespace.is_empty() {
        return Err(missing("namespace"));
    }
    if metadata.uid.is_empty() {
        return Err(missing("uid"));
    }
    let version = Version::parse(&metadata.resource_version)
        .ok_or_else(|| DecodeError("metadata.resourceVersion is no number".to_owned()))?;
    let annotations = metadata.annotations.0;
    let root_id = metadata.labels.get(names::ROOT_ID).or_else(|| annotations.get(names::ROOT_ID));
    let stamps = annotations.get(names::STAMPS).map_or(Ok(Stamps::new()), |text| {
        // An unreadable stamp must stop us, not let us pass: it may be the one that says that we were superseded.
        // No Lease holds an epoch above `i32::MAX`, so none of ours is.
        let stamps = serde_json::from_str(text).ok();
        let ours = stamps.filter(|stamps: &Stamps| stamps.values().all(|epoch| i32::try_from(*epoch).is_ok()));
        ours.ok_or_else(|| DecodeError(format!("annotation {} is no map of unit to epoch", names::STAMPS)))
    })?;
    Ok(Row {
        root_id: root_id.map(|id| id.as_ref().into()),
        id: Id { kind, namespace: metadata.namespace, name: metadata.name },
        uid: Uid(metadata.uid),
        version,
        generation: metadata.generation,
        created: metadata.creation_timestamp.unwrap_or(Time(0)),
        deleting: metadata.deletion_timestamp,
        finalizers: metadata.finalizers,
        owner: metadata.owner_references.iter().find(|o| o.controller).map(|o| Uid(o.uid.clone())),
        owners: metadata.owner_references.into_iter().map(|o| Uid(o.uid)).collect(),
        labels: metadata.labels,
        annotations,
        stamps,
        facts,
        body: None,
    })
}

/// Fields of an object in their order, values as they stand.
struct Fields<'a>(Vec<(Cow<'a, str>, &'a RawValue)>);

impl<'de> Deserialize<'de> for Fields<'de> {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        struct Collect;
        impl<'de> Visitor<'de> for Collect {
            type Value = Fields<'de>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Fields<'de>, A::Error> {
                let mut fields = Vec::new();
                while let Some(key) = map.next_key::<shapes::Borrowed<'de>>()? {
                    fields.push((key.0, map.next_value()?));
                }
                Ok(Fields(fields))
            }
        }
        d.deserialize_map(Collect)
    }
}

/// The object's text without `managedFields`, with `apiVersion` and `kind`.
fn body(kind: Kind, json: &[u8]) -> Result<Arc<str>, DecodeError> {
    let Fields(fields) = parse_borrowed(json)?;
    let mut text = String::with_capacity(json.len());
    text.push('{');
    if !fields.iter().any(|(key, _)| key == "apiVersion") {
        push_field(&mut text, "apiVersion", &quoted(&kind.api_version()));
    }
    if !fields.iter().any(|(key, _)| key == "kind") {
        push_field(&mut text, "kind", &quoted(kind.name()));
    }
    for (key, value) in fields {
        if key == "metadata" {
            let Fields(inner) = parse_borrowed(value.get().as_bytes())?;
            let mut metadata = String::from("{");
            for (key, value) in inner.into_iter().filter(|(key, _)| key != "managedFields") {
                push_field(&mut metadata, &key, value.get());
            }
            metadata.push('}');
            push_field(&mut text, &key, &metadata);
        } else {
            push_field(&mut text, &key, value.get());
        }
    }
    text.push('}');
    Ok(text.into())
}

fn push_field(text: &mut String, key: &str, value: &str) {
    if !text.ends_with('{') {
        text.push(',');
    }
    text.push_str(&quoted(key));
    text.push(':');
    text.push_str(value);
}

fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

fn parse<T: DeserializeOwned>(json: &[u8]) -> Result<T, DecodeError> {
    strict::from_slice(json).map_err(|error| explain(json, &error))
}

pub(super) fn parse_borrowed<'a, T: Deserialize<'a>>(json: &'a [u8]) -> Result<T, DecodeError> {
    strict::from_slice(json).map_err(|error| explain(json, &error))
}

/// The parser's complaint with the field's path instead of the value: values may be secret.
fn explain(json: &[u8], error: &serde_json::Error) -> DecodeError {
    if !error.is_data() {
        return DecodeError(format!("no JSON at line {}, column {}", error.line(), error.column()));
    }
    let text = error.to_string();
    let wanted = text.rsplit_once("expected ").map_or("not what its type demands", |(_, rest)| rest);
    let wanted = wanted.rsplit_once(" at line ").map_or(wanted, |(head, _)| head);
    let path = path_at(json, error.line(), error.column());
    DecodeError(format!("{}: expected {wanted}", if path.is_empty() { "the object" } else { &path }))
}

/// The path of the field that stands at this place: `spec.ports[0].port`. The text is JSON up to there.
fn path_at(json: &[u8], line: usize, column: usize) -> String {
    let line_start = match line {
        0 | 1 => 0,
        n => json.iter().enumerate().filter(|(_, b)| **b == b'\n').nth(n - 2).map_or(0, |(i, _)| i + 1),
    };
    let end = (line_start + column).min(json.len());
    // One entry per open bracket: the present key, or the present index.
    let mut open: Vec<Result<String, usize>> = Vec::new();
    let (mut at, mut key_next) = (0, false);
    while at < end {
        match json[at] {
            b'{' => {
                open.push(Ok(String::new()));
                key_next = true;
            }
            b'[' => {
                open.push(Err(0));
                key_next = false;
            }
            // The complaint may stand right at the bracket that closes its value.
            b'}' | b']' if at + 1 < end => {
                open.pop();
                key_next = false;
            }
            b',' => match open.last_mut() {
                Some(Ok(_)) => key_next = true,
                Some(Err(index)) => *index += 1,
                None => {}
            },
            b'"' => {
                let start = at + 1;
                at = start;
                while at < json.len() && json[at] != b'"' {
                    at += if json[at] == b'\\' { 2 } else { 1 };
                }
                if key_next && let Some(Ok(key)) = open.last_mut() {
                    *key = String::from_utf8_lossy(&json[start.min(json.len())..at.min(json.len())]).into_owned();
                    key_next = false;
                }
            }
            _ => {}
        }
        at += 1;
    }
    let mut path = String::new();
    for step in open {
        match step {
            Ok(key) if key.is_empty() => {}
            Ok(key) if path.is_empty() => path = key,
            Ok(key) => path = format!("{path}.{key}"),
            Err(index) => path = format!("{path}[{index}]"),
        }
    }
    path
}

#[cfg(test)]
#[path = "decode_tests.rs"]
mod tests;
