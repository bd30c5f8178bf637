//! What a decision looks at: an immutable view on tables, answers and our own standing.
//! Must not know how it was gathered.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::Value;
use sha2::{Digest, Sha256};

use super::place::{Board, Received};
use super::{Asked, Dashboard};
use crate::api::{Cluster, Id, MemberName, Time, Version};
use crate::row::Tables;

/// The view of one look at one key. `now` is handed to the plan beside it.
#[derive(Clone, Copy)]
pub struct Seen<'a> {
    /// Tables of the hub.
    pub hub: &'a Tables,
    /// The member that the key or its `Placement` is on; `None` for keys that are not bound.
    pub member: Option<Member<'a>>,
    /// Members that cannot be talked to, and why in words (`Presence::Refused`).
    pub refused: &'a BTreeMap<MemberName, String>,
    /// All members whose tables this replica holds (it owns a unit of them).
    pub members: &'a BTreeMap<MemberName, Tables>,
    /// Answers of Ray dashboards.
    pub rays: &'a RayTable,
    /// Objects that were read on request.
    pub fetched: &'a BTreeMap<(Cluster, Id), Fetched>,
    /// The present version of each `MemberCapacity` by member name, with the time when it came.
    pub capacity_received: &'a BTreeMap<Arc<str>, Received>,
    /// Epochs in the records of all units, as last seen.
    pub epochs: &'a BTreeMap<Arc<str>, u64>,
    /// What root objects of the hub ask for, as far as it was worked out before: only speed depends on it.
    pub asks: &'a BTreeMap<Id, Asked>,
    /// What all waiting objects have in common, as far as it was worked out before: only speed depends on it.
    pub board: Option<&'a Board>,
    /// What became of the key's last write, where it failed, in words.
    pub trouble: Option<&'a str>,
    /// Our standing.
    pub me: &'a Me,
    /// Settings.
    pub flags: &'a Flags,
}

/// A member's tables.
#[derive(Clone, Copy)]
pub struct Member<'a> {
    /// Its name.
    pub name: &'a MemberName,
    /// What is seen there.
    pub tables: &'a Tables,
}

/// The standing in which the key is planned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Me {
    /// The unit that owns the key (κ).
    pub unit: Arc<str>,
    /// Our epoch of it.
    pub epoch: u64,
    /// When we took it over.
    pub since: Time,
    /// A request of ours to the member about this root object has an unknown outcome (`sharding.md` 1.11).
    pub unknown: bool,
    /// We (this unit, this epoch) sent at least one write to the member for this root object and generation.
    pub sent: bool,
    /// Highest resourceVersion of `Placement`s on the hub that we have taken in.
    pub placements_up_to: Version,
}

/// An object that was read on request.
#[derive(Clone, Debug, PartialEq)]
pub struct Fetched {
    /// When the read was begun.
    pub begun: Time,
    /// The object; `None` = it does not exist.
    pub body: Option<Arc<Value>>,
    /// The read failed: why, in words.
    pub error: Option<String>,
    /// How often in a row it has failed.
    pub failures: u32,
}

/// Answers of Ray dashboards, by member, dashboard and submission id.
#[derive(Clone, Debug, Default)]
pub struct RayTable {
    /// The views.
    pub jobs: BTreeMap<(MemberName, Dashboard, Arc<str>), JobView>,
}

/// What is known of one Ray job.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct JobView {
    /// Last whole answer to "what about this job", and when it came.
    pub answer: Option<(Time, JobAnswer)>,
    /// Last outcome of a submission by us, and when.
    pub submitted: Option<(Time, SubmitOutcome)>,
    /// A stop was answered at this time.
    pub stopped: Option<Time>,
}

/// Answer to `GET /api/jobs/<id>`.
#[derive(Clone, Debug, PartialEq)]
pub enum JobAnswer {
    /// The job's info as the dashboard gave it.
    Info(Arc<Value>),
    /// 404.
    NotFound,
    /// No answer, or one that makes no sense: in words.
    Failed(String),
}

/// Outcome of `POST /api/jobs/`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SubmitOutcome {
    /// Accepted.
    Accepted,
    /// Ray has a job of this id already: an earlier try got through.
    Exists,
    /// Refused, in words.
    Refused(String),
    /// Sent, and the answer is missing or says nothing: it may have happened. What came, in words.
    Unknown(String),
}

/// Settings of the controller that plans read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Flags {
    /// Identity of the fleet (`sharding.md` 1.5).
    pub fleet_id: Arc<str>,
    /// `rayfleet-<version>`, for annotation `ray.io/kuberay-version`.
    pub version: Arc<str>,
    /// Queue of root objects that name none where no policy says otherwise.
    pub default_queue: Arc<str>,
    /// DNS domain of the members: `cluster.local`.
    pub cluster_domain: Arc<str>,
    /// How long a tombstone of an unclean generation is kept, ms (`sharding.md` 1.13: 1 h with long-lived credentials).
    pub tombstone_hold_ms: u64,
    /// Age from which a `MemberCapacity` is stale, ms.
    pub capacity_stale_ms: u64,
    /// What tokens of Ray clusters are made from; without it none are made.
    pub token_key: Option<TokenKey>,
    /// Whether the state of a RayCluster in Redis goes with it.
    pub redis_cleanup: bool,
}

/// What tokens of Ray clusters are made from: 32 bytes that are known to one process. Never printed.
#[derive(Clone, PartialEq, Eq)]
pub struct TokenKey([u8; 32]);

impl TokenKey {
    /// From bytes that nobody can guess.
    pub fn new(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// The token of what has this UID: 32 bytes that tell nothing of the key, nor of other tokens (hashed twice under the
    /// key, so that no token is the beginning of another's computation).
    pub fn token(&self, uid: &str) -> [u8; 32] {
        let inner = Sha256::new().chain_update(self.0).chain_update(uid).finalize();
        Sha256::new().chain_update(self.0).chain_update(inner).finalize().into()
    }
}

impl std::fmt::Debug for TokenKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("TokenKey(hidden)")
    }
}

impl Default for Flags {
    fn default() -> Self {
        Self {
            fleet_id: "fleet".into(),
            version: concat!("rayfleet-", env!("CARGO_PKG_VERSION")).into(),
            default_queue: "default".into(),
            cluster_domain: "cluster.local".into(),
            tombstone_hold_ms: 3_600_000,
            capacity_stale_ms: 90_000,
            token_key: None,
            redis_cleanup: true,
        }
    }
}

impl Seen<'_> {
    /// The `Placement` row of a root object on the hub.
    pub fn placement_of(&self, root_kind: &str, namespace: &str, name: &str) -> Option<&crate::row::Row> {
        let placement = placement_name(root_kind, name);
        self.hub.table(crate::api::Kind::Placement).get(namespace, &placement)
    }
}

/// Name of the `Placement` of a root object: `rayjob-train` (`architecture.md` 6.5).
pub fn placement_name(root_kind: &str, name: &str) -> String {
    format!("{}-{name}", root_kind.to_lowercase())
}
