//! The end of a `Placement` on the hub: its root is gone, being deleted, or another one of the same name.
//! Must not know how members were cleaned.

use super::members::capacity_of;
use crate::api::Cluster;
use crate::api::fleet::Stage;
use crate::api::names::PLACEMENT_FINALIZER;
use crate::plan::registration::{Registration, registration};
use crate::plan::{Action, Plan, Precondition, Propagation, Seen, Why, decision};
use crate::row::Row;

/// Lets a `Waiting` `Placement` go once its member holds nothing of it any more (`docs/WALK.md` 7).
pub(super) fn plan(seen: &Seen, row: &Row) -> Plan {
    let Some(decided) = decision::of(row) else { return wait("its Placement cannot be read") };
    let spec = &decided.spec;
    if spec.stage != Stage::Waiting {
        return wait("its Placement is bound");
    }
    if let Some(member) = spec.member.as_deref().filter(|_| spec.generation > 0) {
        // A member that is registered no more is its operator's: nothing can be cleaned there from here.
        if registration(seen.hub, member) == Registration::Registered {
            let Some(capacity) = capacity_of(seen.hub, member) else {
                return wait(&format!("waits until {member} says that it holds nothing of it"));
            };
            if capacity.spec.tombstones.contains(&spec.root.root_id) {
                return wait(&format!("its withdrawn copy still holds the name on {member}"));
            }
            if capacity.spec.counts_up_to < row.version.0 {
                return wait(&format!("waits until {member} says that it holds nothing of it"));
            }
        }
    }
    let seen_as = Precondition::from(row);
    if row.deleting.is_none() {
        let delete = Action::Delete {
            cluster: Cluster::Hub,
            id: row.id.clone(),
            seen: seen_as,
            children: Propagation::Background,
        };
        return act(delete, "its Placement is deleted");
    }
    let Some(mut body) = decision::body(row) else { return wait("the body of its Placement is missing") };
    if let Some(list) = body["metadata"]["finalizers"].as_array_mut() {
        list.retain(|f| f != PLACEMENT_FINALIZER);
    }
    act(Action::Replace { cluster: Cluster::Hub, id: row.id.clone(), body, seen: seen_as }, "its Placement is let go")
}

fn wait(why: &str) -> Plan {
    Plan { why: Why::new(why), ..Plan::default() }
}

fn act(action: Action, why: &str) -> Plan {
    Plan { actions: vec![action], ..wait(why) }
}
