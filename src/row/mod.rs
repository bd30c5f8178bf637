//! What we keep of what we see: one small row per object, tables of rows per kind and cluster.
//! Knows fields of objects. Must not know what is decided from them.

mod decode;
mod facts;
mod requests;
mod shapes;
mod stream;
mod strict;
mod table;
mod text;

pub use decode::{DecodeError, decode};
pub use facts::{
    ConditionFact, ContainerFact, Facts, JobFacts, NodeFacts, PodFacts, PodGroupFacts, Quantities, QueueFacts,
    ServiceFacts, ServicePort, Taint, Toleration,
};
pub use requests::{Demand, PodDemand, pod_requests};
pub use stream::{ListPage, WatchLine, decode_line, decode_list, decode_status};
#[cfg(test)]
pub(crate) use table::rows_given_out;
pub use table::{Table, TableChange, Tables, Touched};

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::api::{Id, RootId, Time, Uid, Version};

/// Unit → last epoch of that unit which wrote the object (`sharding.md` 1.8).
pub type Stamps = BTreeMap<Arc<str>, u64>;

/// One object as we remember it.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// Kind, namespace and name.
    pub id: Id,
    /// This incarnation.
    pub uid: Uid,
    /// Version that was seen.
    pub version: Version,
    /// `metadata.generation`; 0 where the kind has none.
    pub generation: i64,
    /// `metadata.creationTimestamp`.
    pub created: Time,
    /// `metadata.deletionTimestamp`: the object is being deleted.
    pub deleting: Option<Time>,
    /// `metadata.finalizers`.
    pub finalizers: Vec<Arc<str>>,
    /// UID of the controlling owner.
    pub owner: Option<Uid>,
    /// UIDs of all owners, the controlling one included.
    pub owners: Vec<Uid>,
    /// All labels.
    pub labels: BTreeMap<Arc<str>, Arc<str>>,
    /// Annotations that rules read: those with a `rayfleet.io/`, `ray.io/`, `scheduling.k8s.io/` or `volcano.sh/` prefix.
    pub annotations: BTreeMap<Arc<str>, Arc<str>>,
    /// Stamps of ours, from annotation `rayfleet.io/stamps`.
    pub stamps: Stamps,
    /// Root id, from label or annotation `rayfleet.io/root-id`.
    pub root_id: Option<RootId>,
    /// What rules read of spec and status.
    pub facts: Facts,
    /// The whole object as it came, without `managedFields`: kept for RayJob, RayCluster and the fleet's own kinds,
    /// `None` for others.
    pub body: Option<Arc<str>>,
}

/// An object that does not decode.
#[derive(Clone, Debug, PartialEq)]
pub struct Quarantined {
    /// Why: for people, with the object's id, without values of it.
    pub error: String,
    /// Its metadata, without any facts; `None` where even they cannot be read.
    pub known: Option<Box<Row>>,
}

impl Row {
    /// A label's value; empty where it is not set.
    pub fn label(&self, key: &str) -> &str {
        self.labels.get(key).map_or("", |v| v)
    }

    /// An annotation's value, of those that are kept; empty where it is not set.
    pub fn annotation(&self, key: &str) -> &str {
        self.annotations.get(key).map_or("", |v| v)
    }

    /// Whether the finalizer stands on it.
    pub fn has_finalizer(&self, name: &str) -> bool {
        self.finalizers.iter().any(|f| &**f == name)
    }
}
