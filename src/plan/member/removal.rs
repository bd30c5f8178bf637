//! The end of a member: its `MemberCluster` is held until nothing stands on the member any more, and says what does.
//! Must not know how objects are taken away.

use super::super::identity::{Identity, home, identity};
use super::super::registration::{Registration, is_held, registration};
use super::super::{Action, Precondition, Seen, decision};
use super::strays;
use crate::api::fleet::Stage;
use crate::api::names::{GONE_FOR_GOOD, MEMBER_FINALIZER};
use crate::api::{Cluster, Kind, MemberName};
use crate::row::{Facts, Row, Tables};

/// So many objects are named in the condition.
const NAMED: usize = 5;

/// The PUT that adds the finalizer to a new `MemberCluster`, or takes it off one that is deleted and holds nothing.
pub(super) fn put(seen: &Seen, cluster: &Row, member: &MemberName) -> Option<Action> {
    let wanted = cluster.deleting.is_none();
    if wanted == is_held(cluster) || (!wanted && blocked(seen, cluster, member).is_some()) {
        return None;
    }
    let mut body = decision::body(cluster)?;
    let mut finalizers: Vec<String> = cluster.finalizers.iter().map(ToString::to_string).collect();
    finalizers.retain(|f| f != MEMBER_FINALIZER);
    if wanted {
        finalizers.push(MEMBER_FINALIZER.to_owned());
    }
    body["metadata"]["finalizers"] = finalizers.into();
    Some(Action::Replace { cluster: Cluster::Hub, id: cluster.id.clone(), body, seen: Precondition::from(cluster) })
}

/// What keeps a `MemberCluster` that is being deleted: reason and a sentence that says what to do.
pub(super) fn blocked(seen: &Seen, cluster: &Row, member: &MemberName) -> Option<(&'static str, String)> {
    cluster.deleting?;
    let standing = standing(seen, member);
    let way_out = format!(
        "if the cluster is gone for good and nothing can run there any more, annotate this MemberCluster \
         {GONE_FOR_GOOD}={member}: what stands there is then given up, and placed again elsewhere unless it is being deleted"
    );
    if !standing.is_empty() {
        let named = standing.iter().take(NAMED).cloned().collect::<Vec<_>>().join(", ");
        let words = match standing.len().saturating_sub(NAMED) {
            0 => named,
            more => format!("{named} and {more} more"),
        };
        let text = format!(
            "{} still on it: {words}. They go on to their end and are reported; delete them, or suspend those that run, to \
             be done sooner; {way_out}",
            standing.len()
        );
        return Some(("ObjectsRemain", text));
    }
    if registration(seen.hub, member.as_str()) == Registration::GoneForGood {
        return None;
    }
    let Some(on) = seen.member.filter(|on| !seen.refused.contains_key(member) && super::is_listed(*on)) else {
        return Some((
            "NotSeen",
            format!("it does not answer, so what withdrawn copies are left there is not known; {way_out}"),
        ));
    };
    match identity(cluster, on.tables, seen.flags) {
        // What stands there is another registration's.
        Identity::Wrong(_) if !is_recorded_elsewhere(cluster, on.tables) => return None,
        Identity::Wrong(why) => {
            return Some(("NotSeen", format!("what withdrawn copies are left on it is not known: {why}; {way_out}")));
        }
        _ => {}
    }
    let held = strays::held(seen.hub, on, seen.flags).len();
    let text = format!("{held} withdrawn copies still hold their names there, and are let go by themselves; {way_out}");
    (held > 0).then_some(("CopiesRemain", text))
}

/// Whether its kubeconfig leads away from the cluster that was registered.
fn is_recorded_elsewhere(cluster: &Row, tables: &Tables) -> bool {
    let Facts::MemberCluster(known) = &cluster.facts else { return false };
    let recorded = &known.status.cluster_id;
    !recorded.is_empty() && tables.get(&home()).is_none_or(|home| *recorded != *home.uid.0)
}

/// Objects whose `Placement` stands on the member, with their stages.
fn standing(seen: &Seen, member: &MemberName) -> Vec<String> {
    seen.hub
        .rows(Kind::Placement)
        .filter_map(|row| Some((row, &decision::of(row)?.spec)))
        .filter(|(_, spec)| spec.stage != Stage::Waiting && spec.member.as_deref() == Some(member.as_str()))
        .map(|(row, spec)| {
            let kind = spec.root.kind.to_lowercase();
            format!("{kind} {}/{} ({:?})", row.id.namespace, spec.root.name, spec.stage)
        })
        .collect()
}
