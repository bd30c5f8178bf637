//! Conditions of a `MemberCluster`: reachable, credentials, Volcano, ready; what its credentials mean for tombstones; what
//! holds up its removal.
//! Must not know capacity.

use super::super::identity::{Identity, home, identity};
use super::super::{Action, Precondition, Seen, decision};
use super::removal::blocked;
use crate::api::fleet::{Condition, MemberClusterSpec};
use crate::api::{Cluster, Kind, MemberName, Time};
use crate::row::{Facts, Row, Tables};

/// Status PUT that makes the conditions true to what is seen; `None` if they are.
pub(super) fn put(seen: &Seen, row: &Row, member: &MemberName, now: Time) -> Option<Action> {
    let Facts::MemberCluster(stored) = &row.facts else { return None };
    let tables = seen.member.map(|on| on.tables);
    let refused = seen.refused.get(member).map(String::as_str);
    let mut found = judge(tables, refused);
    let removal = blocked(seen, row, member).map(|(reason, text)| ("RemovalBlocked", "True", reason, text));
    if found.is_none() && removal.is_none() {
        return None;
    }
    let here = tables.map(|tables| identity(row, tables, seen.flags));
    if let Some(found) = &mut found {
        let unready = match &here {
            Some(Identity::Wrong(why)) => Some(("WrongCluster", why.clone())),
            Some(Identity::Free) if tables.is_some_and(|tables| is_hub(seen, tables)) => {
                Some(("WrongCluster", THE_HUB.to_owned()))
            }
            Some(Identity::Free) => Some(("Registering", "it is being registered".to_owned())),
            _ => None,
        };
        if let Some((reason, why)) = unready
            && let Some(ready) = found.iter_mut().find(|c| c.0 == "Ready" && c.1 == "True")
        {
            *ready = ("Ready", "False", reason, why);
        }
        found.extend(long_lived(&stored.spec, seen.flags.tombstone_hold_ms));
    }
    let mut next = stored.status.clone();
    match &found {
        Some(_) => next.conditions.clear(),
        // Nothing is known of it at present: what was said of it stands.
        None => next.conditions.retain(|c| c.r#type != "RemovalBlocked"),
    }
    if let (Some(Identity::Marked), Some(home)) = (&here, tables.and_then(|tables| tables.get(&home()))) {
        next.cluster_id = home.uid.to_string();
    }
    if let Some(tables) = tables.filter(|t| t.table(Kind::Node).listed.is_some()) {
        next.nodes = i64::try_from(tables.table(Kind::Node).len()).ok();
    }
    for (kind, status, reason, message) in found.into_iter().flatten().chain(removal) {
        let before = stored.status.conditions.iter().find(|c| c.r#type == kind);
        let since = before
            .filter(|c| c.status == status)
            .map_or_else(|| now.seconds_text(), |c| c.last_transition_time.clone());
        next.conditions.push(Condition {
            r#type: kind.to_owned(),
            status: status.to_owned(),
            reason: reason.to_owned(),
            message,
            last_transition_time: since,
            observed_generation: Some(row.generation),
        });
    }
    if next == stored.status {
        return None;
    }
    let mut body = decision::body(row)?;
    body["status"] = serde_json::to_value(&next).ok()?;
    Some(Action::Status {
        cluster: Cluster::Hub,
        id: row.id.clone(),
        body,
        seen: Precondition::from(row),
        decision: false,
    })
}

/// Why a kubeconfig that leads to the hub is not taken.
pub(super) const THE_HUB: &str = "its kubeconfig leads to the hub itself, which is no member: name the member's own context \
                                  (rayfleet member add --from-context)";

/// Whether the member is the hub, as far as the hub has said which cluster it is.
pub(super) fn is_hub(seen: &Seen, tables: &Tables) -> bool {
    let hub = seen.fetched.get(&(Cluster::Hub, home())).and_then(|read| read.body.as_ref());
    let uid = hub.and_then(|body| body["metadata"]["uid"].as_str());
    uid.is_some() && uid == tables.get(&home()).map(|row| row.uid.as_str())
}

/// A credential that outlives an epoch lets a former owner's request through for longer (`sharding.md` E7): so the name of
/// an unclean withdrawn copy is held for Q.
fn long_lived(spec: &MemberClusterSpec, hold_ms: u64) -> Option<Found> {
    spec.kubeconfig_secret.as_ref().map(|_| {
        let text = format!(
            "the credentials in its kubeconfig are not minted for one owner and epoch: where a former owner's request may \
             still be under way, a withdrawn copy holds its name there for {} minutes",
            hold_ms / 60_000
        );
        ("LongLivedCredentials", "True", "Kubeconfig", text)
    })
}

type Found = (&'static str, &'static str, &'static str, String);

/// Type, status, reason and message of each condition; `None` while nothing is known either way.
fn judge(tables: Option<&Tables>, refused: Option<&str>) -> Option<Vec<Found>> {
    if let Some(why) = refused {
        return Some(vec![
            ("Ready", "False", "CredentialsRefused", why.to_owned()),
            ("Reachable", "Unknown", "NotTried", "there are no credentials to reach it with".to_owned()),
            ("VolcanoReady", "Unknown", "NotTried", "there are no credentials to reach it with".to_owned()),
            ("CredentialsValid", "False", "Refused", why.to_owned()),
        ]);
    }
    let tables = tables?;
    let core = [Kind::Node, Kind::Pod, Kind::RayJob, Kind::RayCluster];
    let volcano = [Kind::Queue, Kind::PodGroup];
    let failing = |kinds: &[Kind]| kinds.iter().find_map(|kind| tables.table(*kind).silent.clone());
    let listed = |kinds: &[Kind]| kinds.iter().all(|kind| tables.table(*kind).listed.is_some());
    let unserved = |kinds: &[Kind]| kinds.iter().copied().find(|kind| tables.table(*kind).unserved.is_some());
    let silent = failing(&core).filter(|_| unserved(&core).is_none());
    if unserved(&core).is_none() && silent.is_none() && !listed(&core) {
        return None;
    }
    let reachable: Found = match &silent {
        Some((_, error)) => ("Reachable", "False", "Silent", error.clone()),
        None => ("Reachable", "True", "Listed", "its API server answers".to_owned()),
    };
    let rejected = silent
        .as_ref()
        .filter(|(_, e)| ["401", "403", "Unauthorized", "Forbidden"].iter().any(|code| e.contains(code)));
    let credentials: Found = match (rejected, &silent) {
        (Some((_, error)), _) => ("CredentialsValid", "False", "Rejected", error.clone()),
        (None, Some(_)) => ("CredentialsValid", "Unknown", "Silent", "it does not answer".to_owned()),
        (None, None) => ("CredentialsValid", "True", "Accepted", "its API server takes them".to_owned()),
    };
    let volcano: Found = match (unserved(&volcano), failing(&volcano), listed(&volcano)) {
        (Some(kind), ..) => ("VolcanoReady", "False", "NotServed", format!("{kind} is not served there")),
        (None, Some((_, error)), _) => ("VolcanoReady", "False", "Silent", error),
        (None, None, false) => {
            ("VolcanoReady", "Unknown", "NotListed", "Queue and PodGroup were not listed yet".to_owned())
        }
        (None, None, true) => ("VolcanoReady", "True", "Served", "Queue and PodGroup are served".to_owned()),
    };
    let ready: Found = match [&reachable, &credentials, &volcano].into_iter().find(|c| c.1 != "True") {
        Some((kind, _, reason, message)) => ("Ready", "False", reason, format!("{kind}: {message}")),
        None if unserved(&core).is_some() => {
            let kind = unserved(&core).map_or_else(String::new, |kind| kind.to_string());
            ("Ready", "False", "KindNotServed", format!("{kind} is not served there: its CRD is missing"))
        }
        None => ("Ready", "True", "Ready", "gangs can be placed here".to_owned()),
    };
    Some(vec![ready, reachable, volcano, credentials])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::Version;
    use crate::row::TableChange;

    fn listed(kinds: &[Kind]) -> Tables {
        let mut tables = Tables::default();
        for kind in kinds {
            let change = TableChange::Reset { rows: vec![], quarantined: vec![], version: Version(1), begun: Time(0) };
            tables.apply(*kind, change, Time(0));
        }
        tables
    }

    fn of(tables: &Tables, kind: &str) -> Option<(&'static str, &'static str)> {
        judge(Some(tables), None)?.into_iter().find(|c| c.0 == kind).map(|c| (c.1, c.2))
    }

    const CORE: [Kind; 4] = [Kind::Node, Kind::Pod, Kind::RayJob, Kind::RayCluster];

    #[test]
    fn nothing_is_said_before_anything_is_known() {
        assert!(judge(Some(&Tables::default()), None).is_none());
        assert!(judge(None, None).is_none());
    }

    #[test]
    fn a_member_without_volcano_is_reachable_and_not_ready() {
        let mut tables = listed(&CORE);
        for kind in [Kind::Queue, Kind::PodGroup] {
            tables.apply(kind, TableChange::Unserved { begun: Time(0) }, Time(0));
        }
        assert_eq!(of(&tables, "Reachable"), Some(("True", "Listed")));
        assert_eq!(of(&tables, "VolcanoReady"), Some(("False", "NotServed")));
        assert_eq!(of(&tables, "Ready"), Some(("False", "NotServed")));
    }

    #[test]
    fn a_silent_member_and_refused_credentials_are_told_apart() {
        let mut tables = listed(&CORE);
        tables.apply(Kind::Pod, TableChange::Silent { since: Time(0), error: "connection refused".into() }, Time(0));
        assert_eq!(of(&tables, "Reachable"), Some(("False", "Silent")));
        assert_eq!(of(&tables, "CredentialsValid"), Some(("Unknown", "Silent")));
        tables.apply(Kind::Pod, TableChange::Silent { since: Time(0), error: "401 Unauthorized".into() }, Time(0));
        assert_eq!(of(&tables, "CredentialsValid"), Some(("False", "Rejected")));
        let refused = judge(None, Some("kubeconfig has exec")).unwrap();
        assert!(refused.iter().any(|c| c.0 == "CredentialsValid" && c.1 == "False"));
    }
}
