//! Which cluster a member is. Its identity is the UID of its namespace `kube-system`, recorded at registration; an annotation
//! there says which registration of which fleet it belongs to. One cluster under two names, a second fleet on it, the hub
//! itself, a kubeconfig that leads elsewhere: such a member is not planned, and nothing on it is touched
//! (`sharding.md` 2.9, two hubs that claim one member).
//! Must not know what is done on a member.

use serde_json::json;

use super::{Action, Flags, Precondition};
use crate::api::names::REGISTERED_BY;
use crate::api::{Cluster, Id, Kind, MemberName};
use crate::row::{Facts, Row, Tables};

/// The namespace whose UID stands for the cluster: there from its first moment, and never deleted.
pub const HOME: &str = "kube-system";

/// What is seen of a member's identity.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Identity {
    /// It is the cluster that was registered under this name, and nobody else's.
    Settled,
    /// It bears our mark; its UID is not recorded yet.
    Marked,
    /// Nobody has registered it, as far as is seen.
    Free,
    /// Not to be told yet: why.
    Unseen(&'static str),
    /// Another cluster, or somebody else's: why it is not touched, and what can be done.
    Wrong(String),
}

/// Where the identity stands, on any cluster.
pub fn home() -> Id {
    Id::new(Kind::Namespace, "", HOME)
}

/// The mark of a registration: fleet, name and UID of its `MemberCluster`.
pub fn mark(cluster: &Row, flags: &Flags) -> String {
    format!("{}/{}/{}", flags.fleet_id, cluster.id.name, cluster.uid)
}

/// What the member's tables show of its identity.
pub fn identity(cluster: &Row, tables: &Tables, flags: &Flags) -> Identity {
    let Facts::MemberCluster(known) = &cluster.facts else {
        return Identity::Unseen("its MemberCluster cannot be read");
    };
    let Some(row) = tables.get(&home()) else { return Identity::Unseen("its namespace kube-system was not seen yet") };
    let (name, recorded, here) = (&cluster.id.name, &known.status.cluster_id, &row.uid.0);
    if !recorded.is_empty() && **recorded != **here {
        return Identity::Wrong(format!(
            "its kubeconfig leads to another cluster (UID of {HOME}: {here}) than the one that was registered as {name} \
             ({recorded}): put the former kubeconfig back, and register the other cluster under a name of its own"
        ));
    }
    let stands = row.annotation(REGISTERED_BY);
    if stands == mark(cluster, flags) {
        return if recorded.is_empty() { Identity::Marked } else { Identity::Settled };
    }
    if stands.is_empty() {
        return Identity::Free;
    }
    let mut parts = stands.splitn(3, '/');
    let (fleet, other) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
    Identity::Wrong(format!(
        "this cluster is registered already, as member {other} of fleet {fleet} ({stands}): nothing on it is touched. Remove \
         one of the two registrations; if that one is gone for good: kubectl annotate namespace {HOME} {REGISTERED_BY}-"
    ))
}

/// The write on the member that takes it for this registration; of two that do so at once, the API server lets one through.
pub fn put_mark(member: &MemberName, cluster: &Row, tables: &Tables, flags: &Flags) -> Option<Action> {
    annotate(member, tables, json!(mark(cluster, flags)))
}

/// The write that takes our mark off a member that is let go; `None` where it is not there.
pub fn put_off_mark(member: &MemberName, cluster: &Row, tables: &Tables, flags: &Flags) -> Option<Action> {
    let ours = tables.get(&home())?.annotation(REGISTERED_BY) == mark(cluster, flags);
    if ours { annotate(member, tables, serde_json::Value::Null) } else { None }
}

fn annotate(member: &MemberName, tables: &Tables, value: serde_json::Value) -> Option<Action> {
    let row = tables.get(&home())?;
    Some(Action::Merge {
        cluster: Cluster::Member(member.clone()),
        id: row.id.clone(),
        patch: json!({ "metadata": { "annotations": { REGISTERED_BY: value } } }),
        seen: Precondition::from(row),
    })
}
