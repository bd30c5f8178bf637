//! The parts of objects' JSON that rows are made from, as serde reads them; whatever else stands there is skipped
//! without allocation. A `null` counts as absent, as it does for Kubernetes.
//! Must not know rules, or what becomes of the values.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use serde::de::{Deserializer, Error, IgnoredAny, MapAccess, Visitor};
use serde::{Deserialize, de};
use serde_json::Value;

use super::facts::{Quantities, ServicePort, Taint, Toleration};
use super::requests::{Asked, ContainerDemand};
use crate::api::Time;

pub(super) type Text = Arc<str>;
pub(super) type Map = BTreeMap<Text, Text>;

/// `null` or absent = the default.
pub(super) fn or_default<'de, D: Deserializer<'de>, T: Deserialize<'de> + Default>(d: D) -> Result<T, D::Error> {
    Ok(Option::<T>::deserialize(d)?.unwrap_or_default())
}

/// An object with spec and status of these shapes.
#[derive(Deserialize)]
#[serde(bound = "S: Deserialize<'de> + Default, T: Deserialize<'de> + Default")]
pub(super) struct Object<S: Default, T: Default> {
    #[serde(default, deserialize_with = "or_default")]
    pub(super) metadata: Metadata,
    #[serde(default, deserialize_with = "or_default")]
    pub(super) spec: S,
    #[serde(default, deserialize_with = "or_default")]
    pub(super) status: T,
}

/// A part that is not read.
#[derive(Default)]
pub(super) struct Skipped;

impl<'de> Deserialize<'de> for Skipped {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        IgnoredAny::deserialize(d).map(|_| Skipped)
    }
}

/// Object metadata.
#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Metadata {
    #[serde(deserialize_with = "or_default")]
    pub(super) name: Text,
    #[serde(deserialize_with = "or_default")]
    pub(super) namespace: Text,
    #[serde(deserialize_with = "or_default")]
    pub(super) uid: Text,
    #[serde(deserialize_with = "or_default")]
    pub(super) resource_version: Text,
    #[serde(deserialize_with = "or_default")]
    pub(super) generation: i64,
    #[serde(deserialize_with = "time")]
    pub(super) creation_timestamp: Option<Time>,
    #[serde(deserialize_with = "time")]
    pub(super) deletion_timestamp: Option<Time>,
    #[serde(deserialize_with = "or_default")]
    pub(super) finalizers: Vec<Text>,
    #[serde(deserialize_with = "or_default")]
    pub(super) owner_references: Vec<Owner>,
    #[serde(deserialize_with = "or_default")]
    pub(super) labels: Map,
    #[serde(deserialize_with = "or_default")]
    pub(super) annotations: Kept,
}

#[derive(Deserialize, Default)]
#[serde(default)]
pub(super) struct Owner {
    #[serde(deserialize_with = "or_default")]
    pub(super) uid: Text,
    #[serde(deserialize_with = "or_default")]
    pub(super) controller: bool,
}

/// The annotations that rules read.
#[derive(Default)]
pub(super) struct Kept(pub(super) Map);

const KEPT_PREFIXES: [&str; 4] = ["rayfleet.io/", "ray.io/", "scheduling.k8s.io/", "volcano.sh/"];

impl<'de> Deserialize<'de> for Kept {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        struct Annotations;
        impl<'de> Visitor<'de> for Annotations {
            type Value = Kept;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a map of annotations")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Kept, A::Error> {
                let mut kept = Map::new();
                while let Some(Borrowed(key)) = map.next_key()? {
                    if KEPT_PREFIXES.iter().any(|p| key.starts_with(p)) {
                        kept.insert(key.into(), map.next_value()?);
                    } else {
                        map.next_value::<IgnoredAny>()?;
                    }
                }
                Ok(Kept(kept))
            }
        }
        d.deserialize_map(Annotations)
    }
}

/// Text that is borrowed where it stands unescaped.
#[derive(Deserialize, Default)]
#[serde(transparent)]
pub(super) struct Borrowed<'a>(#[serde(borrow)] pub(super) Cow<'a, str>);

/// RFC 3339 text, absent or `null`.
pub(super) fn time<'de, D: Deserializer<'de>>(d: D) -> Result<Option<Time>, D::Error> {
    let Some(Borrowed(text)) = Option::<Borrowed<'de>>::deserialize(d)? else { return Ok(None) };
    if text.is_empty() {
        return Ok(None);
    }
    Time::parse(&text)
        .map(Some)
        .ok_or_else(|| D::Error::invalid_value(de::Unexpected::Other("text"), &"an RFC 3339 time"))
}

/// Quantities as written: as text or as a number.
#[derive(Default)]
pub(super) struct Amounts(pub(super) Quantities);

impl<'de> Deserialize<'de> for Amounts {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        Ok(Self(BTreeMap::<Text, Amount>::deserialize(d)?.into_iter().map(|(k, v)| (k, v.0)).collect()))
    }
}

struct Amount(Text);

impl<'de> Deserialize<'de> for Amount {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        struct TextOrNumber;
        impl Visitor<'_> for TextOrNumber {
            type Value = Amount;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a quantity")
            }
            fn visit_str<E: Error>(self, v: &str) -> Result<Amount, E> {
                Ok(Amount(v.into()))
            }
            fn visit_u64<E: Error>(self, v: u64) -> Result<Amount, E> {
                Ok(Amount(v.to_string().into()))
            }
            fn visit_i64<E: Error>(self, v: i64) -> Result<Amount, E> {
                Ok(Amount(v.to_string().into()))
            }
            fn visit_f64<E: Error>(self, v: f64) -> Result<Amount, E> {
                Ok(Amount(v.to_string().into()))
            }
        }
        d.deserialize_any(TextOrNumber)
    }
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct PodSpec {
    #[serde(deserialize_with = "or_default")]
    pub(super) node_name: Text,
    #[serde(deserialize_with = "or_default")]
    pub(super) restart_policy: Text,
    #[serde(deserialize_with = "or_default")]
    pub(super) scheduler_name: Text,
    #[serde(deserialize_with = "or_default")]
    pub(super) priority_class_name: Text,
    pub(super) containers: Option<Vec<ContainerDemand>>,
    pub(super) init_containers: Option<Vec<ContainerDemand>>,
    pub(super) overhead: Option<BTreeMap<Text, Value>>,
    pub(super) resources: Option<Asked>,
    #[serde(deserialize_with = "or_default")]
    pub(super) node_selector: Map,
    #[serde(deserialize_with = "or_default")]
    pub(super) tolerations: Vec<Tolerated>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
pub(super) struct Tolerated {
    #[serde(deserialize_with = "or_default")]
    key: Text,
    #[serde(deserialize_with = "or_default")]
    operator: Text,
    #[serde(deserialize_with = "or_default")]
    value: Text,
    #[serde(deserialize_with = "or_default")]
    effect: Text,
}

impl From<Tolerated> for Toleration {
    fn from(t: Tolerated) -> Self {
        Self { key: t.key, operator: t.operator, value: t.value, effect: t.effect }
    }
}

impl From<Tolerated> for Taint {
    fn from(t: Tolerated) -> Self {
        Self { key: t.key, value: t.value, effect: t.effect }
    }
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct PodStatus {
    #[serde(deserialize_with = "or_default")]
    pub(super) phase: Text,
    #[serde(deserialize_with = "or_default")]
    pub(super) reason: Text,
    #[serde(deserialize_with = "or_default")]
    pub(super) message: Text,
    #[serde(rename = "podIP", deserialize_with = "or_default")]
    pub(super) pod_ip: Text,
    #[serde(deserialize_with = "or_default")]
    pub(super) conditions: Vec<Condition>,
    #[serde(deserialize_with = "or_default")]
    pub(super) container_statuses: Vec<ContainerStatus>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Condition {
    #[serde(rename = "type", deserialize_with = "or_default")]
    pub(super) kind: Text,
    #[serde(deserialize_with = "or_default")]
    pub(super) status: Text,
    #[serde(deserialize_with = "or_default")]
    pub(super) reason: Text,
    #[serde(deserialize_with = "or_default")]
    pub(super) message: Text,
    #[serde(deserialize_with = "time")]
    pub(super) last_transition_time: Option<Time>,
}

/// Whether the condition of this type is `True`.
pub(super) fn is_true(conditions: &[Condition], kind: &str) -> bool {
    conditions.iter().any(|c| &*c.kind == kind && &*c.status == "True")
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct ContainerStatus {
    #[serde(deserialize_with = "or_default")]
    pub(super) name: Text,
    #[serde(deserialize_with = "or_default")]
    pub(super) restart_count: i32,
    #[serde(deserialize_with = "or_default")]
    pub(super) state: ContainerState,
}

#[derive(Deserialize, Default)]
#[serde(default)]
pub(super) struct ContainerState {
    pub(super) waiting: Option<Waiting>,
    pub(super) terminated: Option<Terminated>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
pub(super) struct Waiting {
    #[serde(deserialize_with = "or_default")]
    pub(super) reason: Text,
    #[serde(deserialize_with = "or_default")]
    pub(super) message: Text,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Terminated {
    #[serde(deserialize_with = "or_default")]
    pub(super) exit_code: i32,
    #[serde(deserialize_with = "or_default")]
    pub(super) reason: Text,
    #[serde(deserialize_with = "or_default")]
    pub(super) message: Text,
    #[serde(deserialize_with = "time")]
    pub(super) finished_at: Option<Time>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct ServiceSpec {
    #[serde(rename = "clusterIP", deserialize_with = "or_default")]
    pub(super) cluster_ip: Text,
    #[serde(rename = "type", deserialize_with = "or_default")]
    pub(super) service_type: Text,
    #[serde(deserialize_with = "or_default")]
    pub(super) selector: Map,
    #[serde(deserialize_with = "or_default")]
    pub(super) ports: Vec<Port>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Port {
    #[serde(deserialize_with = "or_default")]
    name: Text,
    #[serde(deserialize_with = "or_default")]
    port: i32,
    target_port: Value,
    #[serde(deserialize_with = "or_default")]
    node_port: i32,
}

impl From<Port> for ServicePort {
    fn from(p: Port) -> Self {
        let target = match p.target_port {
            Value::String(name) => name,
            Value::Number(port) if port.as_i64() != Some(0) => port.to_string(),
            _ => String::new(),
        };
        Self { name: p.name, port: p.port, target: target.into(), node_port: p.node_port }
    }
}

#[derive(Deserialize, Default)]
#[serde(default)]
pub(super) struct JobStatus {
    #[serde(deserialize_with = "or_default")]
    pub(super) conditions: Vec<Condition>,
    #[serde(deserialize_with = "or_default")]
    pub(super) active: i32,
    #[serde(deserialize_with = "or_default")]
    pub(super) succeeded: i32,
    #[serde(deserialize_with = "or_default")]
    pub(super) failed: i32,
}

#[derive(Deserialize, Default)]
#[serde(default)]
pub(super) struct NodeSpec {
    #[serde(deserialize_with = "or_default")]
    pub(super) unschedulable: bool,
    #[serde(deserialize_with = "or_default")]
    pub(super) taints: Vec<Tolerated>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
pub(super) struct NodeStatus {
    #[serde(deserialize_with = "or_default")]
    pub(super) allocatable: Amounts,
    #[serde(deserialize_with = "or_default")]
    pub(super) conditions: Vec<Condition>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct PodGroupSpec {
    #[serde(deserialize_with = "or_default")]
    pub(super) queue: Text,
    #[serde(deserialize_with = "or_default")]
    pub(super) min_member: i32,
    #[serde(deserialize_with = "or_default")]
    pub(super) min_task_member: BTreeMap<Text, i32>,
    #[serde(deserialize_with = "or_default")]
    pub(super) min_resources: Amounts,
    #[serde(deserialize_with = "or_default")]
    pub(super) priority_class_name: Text,
}

#[derive(Deserialize, Default)]
#[serde(default)]
pub(super) struct PodGroupStatus {
    #[serde(deserialize_with = "or_default")]
    pub(super) phase: Text,
    #[serde(deserialize_with = "or_default")]
    pub(super) running: i32,
}

#[derive(Deserialize, Default)]
#[serde(default)]
pub(super) struct QueueSpec {
    #[serde(deserialize_with = "or_default")]
    pub(super) weight: i32,
    #[serde(deserialize_with = "or_default")]
    pub(super) priority: i32,
    #[serde(deserialize_with = "or_default")]
    pub(super) parent: Text,
    pub(super) reclaimable: Option<bool>,
    #[serde(deserialize_with = "or_default")]
    pub(super) capability: Amounts,
    #[serde(deserialize_with = "or_default")]
    pub(super) deserved: Amounts,
    #[serde(deserialize_with = "or_default")]
    pub(super) guarantee: Guarantee,
}

#[derive(Deserialize, Default)]
#[serde(default)]
pub(super) struct Guarantee {
    #[serde(deserialize_with = "or_default")]
    pub(super) resource: Amounts,
}

#[derive(Deserialize, Default)]
#[serde(default)]
pub(super) struct QueueStatus {
    #[serde(deserialize_with = "or_default")]
    pub(super) state: Text,
    #[serde(deserialize_with = "or_default")]
    pub(super) allocated: Amounts,
}

#[derive(Deserialize)]
pub(super) struct PriorityClass {
    #[serde(default, deserialize_with = "or_default")]
    pub(super) metadata: Metadata,
    #[serde(default, deserialize_with = "or_default")]
    pub(super) value: i32,
}
