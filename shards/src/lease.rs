//! The two kinds of records, both `coordination.k8s.io/v1` Leases: seats and units.
//! Must not know when they are written.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// Prefix of seat Leases.
pub const SEAT_PREFIX: &str = "seat-";
/// Annotation: where the holder of a seat runs (pod UID, or boot id of the host), for succession.
pub const PLACE: &str = "rayfleet.io/holder-place";
/// Annotation: version of the hashing algorithms.
pub const ALGORITHM: &str = "rayfleet.io/ring-algorithm";
/// Annotation: [`JOINING`], [`READY`] or [`DRAINING`].
pub const STATE: &str = "rayfleet.io/seat-state";
/// State of a seat whose process is not warm yet: no unit comes to it.
pub const JOINING: &str = "joining";
/// State of a seat that takes its share.
pub const READY: &str = "ready";
/// State of a seat that is being left: its units go to others.
pub const DRAINING: &str = "draining";

/// Annotation of a unit's record that was given free: the seat that should take it.
pub const NEXT: &str = "rayfleet.io/next-seat";

/// Whether a version is later than another one of the same record. Versions that are no numbers cannot be ordered: another
/// one is taken for news.
pub(crate) fn is_newer(version: &str, than: &str) -> bool {
    match (version.parse::<u64>(), than.parse::<u64>()) {
        (Ok(version), Ok(than)) => version > than,
        _ => version != than,
    }
}

/// One Lease, as much of it as the protocol reads; the rest is kept.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Record {
    /// `metadata.name`.
    pub name: String,
    /// `metadata.resourceVersion`; empty for a record that does not exist yet.
    pub version: String,
    /// `metadata.uid`.
    pub uid: String,
    /// `spec.holderIdentity`; empty = free. Seats: the process. Units: `<seat>#<incarnation>`.
    pub holder: String,
    /// `spec.leaseTransitions`: the incarnation of a seat, the epoch of a unit.
    pub transitions: u64,
    /// `spec.leaseDurationSeconds`: D of the holder's profile.
    pub duration_seconds: u64,
    /// Annotations, ours and others'.
    pub annotations: BTreeMap<String, String>,
}

#[derive(Deserialize)]
struct Shape {
    metadata: Meta,
    #[serde(default)]
    spec: Spec,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Meta {
    name: String,
    #[serde(default)]
    uid: String,
    #[serde(default)]
    resource_version: String,
    #[serde(default)]
    annotations: BTreeMap<String, String>,
}

#[derive(Deserialize, Serialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct Spec {
    holder_identity: Option<String>,
    lease_transitions: Option<i64>,
    lease_duration_seconds: Option<i64>,
}

impl Record {
    /// From a Lease; an error says what does not fit.
    pub fn parse(lease: &Value) -> Result<Self, String> {
        // serde takes a list for what has fields, its elements in their order.
        for (part, value) in [("it", lease), ("metadata", &lease["metadata"]), ("spec", &lease["spec"])] {
            if value.is_array() {
                return Err(format!("a Lease: {part} is a list, and must be an object"));
            }
        }
        let shape: Shape = serde_json::from_value(lease.clone()).map_err(|e| format!("a Lease: {e}"))?;
        Ok(Self {
            name: shape.metadata.name,
            version: shape.metadata.resource_version,
            uid: shape.metadata.uid,
            holder: shape.spec.holder_identity.unwrap_or_default(),
            transitions: shape.spec.lease_transitions.unwrap_or(0).max(0) as u64,
            duration_seconds: shape.spec.lease_duration_seconds.unwrap_or(0).max(0) as u64,
            annotations: shape.metadata.annotations,
        })
    }

    /// The whole Lease, for create and PUT. `renewed` is for people only; nobody compares it with a clock.
    pub fn body(&self, namespace: &str, renewed: &str) -> Value {
        let mut metadata = json!({ "name": self.name, "namespace": namespace, "annotations": self.annotations });
        if !self.version.is_empty() {
            metadata["resourceVersion"] = self.version.clone().into();
            metadata["uid"] = self.uid.clone().into();
        }
        let mut spec = json!({ "leaseTransitions": self.transitions, "renewTime": renewed });
        if !self.holder.is_empty() {
            spec["holderIdentity"] = self.holder.clone().into();
        }
        if self.duration_seconds > 0 {
            spec["leaseDurationSeconds"] = self.duration_seconds.into();
        }
        json!({ "apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata, "spec": spec })
    }

    /// The seat's name, if this is a seat Lease.
    pub fn seat(&self) -> Option<&str> {
        self.name.strip_prefix(SEAT_PREFIX)
    }

    /// Of a unit record: seat and incarnation of its holder.
    pub fn held_by(&self) -> Option<(&str, u64)> {
        let (seat, incarnation) = self.holder.rsplit_once('#')?;
        Some((seat, incarnation.parse().ok()?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_goes_there_and_back() {
        let record = Record {
            name: "q-1f".into(),
            version: "7".into(),
            uid: "u".into(),
            holder: "a#3".into(),
            transitions: 9,
            duration_seconds: 15,
            annotations: [("x".to_owned(), "y".to_owned())].into(),
        };
        let body = record.body("rayfleet-system", "2026-11-29T00:00:00.000000Z");
        assert_eq!(Record::parse(&body), Ok(record.clone()));
        assert_eq!(record.held_by(), Some(("a", 3)));
        assert_eq!(record.seat(), None);
    }

    #[test]
    fn versions_are_ordered_as_numbers() {
        assert!(is_newer("10", "9") && !is_newer("9", "10") && !is_newer("9", "9"));
        assert!(is_newer("b", "a") && is_newer("a", "b") && !is_newer("a", "a"));
    }

    #[test]
    fn a_lease_edited_by_hand_is_read_as_far_as_it_goes() {
        let record = Record::parse(&json!({ "metadata": { "name": "q-00" }, "spec": { "leaseTransitions": -4 } }));
        assert_eq!(record.map(|r| (r.transitions, r.holder)), Ok((0, String::new())));
        assert!(Record::parse(&json!({ "spec": {} })).is_err());
    }

    #[test]
    fn a_list_is_no_lease_nor_a_part_of_one() {
        for lease in [
            json!([{ "name": "q-00" }]),
            json!({ "metadata": ["q-00"] }),
            json!({ "metadata": { "name": "q-00" }, "spec": ["a#1", 7, 15] }),
        ] {
            let why = Record::parse(&lease).unwrap_err();
            assert!(why.contains("is a list"), "{why}");
        }
    }
}
