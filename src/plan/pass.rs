//! One pass over one object on a member: collects what is to be done about it.
//! Must not know rules of kinds.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::{Action, Fetch, Fetched, Note, Plan, Precondition, Propagation, Seen, Why};
use crate::api::fleet::PlacementSpec;
use crate::api::ray::Object;
use crate::api::{Cluster, Id, Kind, MemberName, Time, Version, names};
use crate::row::{Facts, Row, Tables};

/// What nobody watches is read again after this time.
const READ_EVERY: Duration = Duration::from_mins(5);
/// A read that failed is tried again after this time.
const TRY_AGAIN: Duration = Duration::from_secs(5);

/// What is known of an object that nobody watches.
#[derive(Clone, Copy, Debug)]
pub(super) enum Beside<'a> {
    /// It was read.
    There(&'a Value),
    /// It was looked for, and is not there.
    Missing,
    /// It is not read yet.
    Unread,
}

/// Whether the steps after this one follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Flow {
    /// They do.
    Next,
    /// They do not.
    Stop,
}

/// What a pass has come to so far.
pub(super) struct Pass<'a> {
    /// The object.
    pub(super) row: &'a Row,
    /// Tables of its member.
    pub(super) tables: &'a Tables,
    /// The member.
    pub(super) member: &'a MemberName,
    /// Now.
    pub(super) now: Time,
    /// What was read by itself.
    fetched: &'a BTreeMap<(Cluster, Id), Fetched>,
    /// Of a mirror: the queue that its pods are in.
    queue: Option<String>,
    /// The plan.
    pub(super) plan: Plan,
}

impl<'a> Pass<'a> {
    /// Begins a pass; `None` where object or member is not seen.
    pub(super) fn begin(seen: &Seen<'a>, id: &Id, now: Time) -> Option<Self> {
        let member = seen.member?;
        let row = member.tables.get(id)?;
        let is_mirror = !row.annotation(names::ROOT).is_empty();
        let queue = is_mirror.then(|| queue_of_mirror(seen, row)).flatten();
        let (tables, fetched) = (member.tables, seen.fetched);
        Some(Self { row, tables, member: member.name, now, fetched, queue, plan: Plan::default() })
    }

    /// The object's body, and the object typed; a mirror's has its queue among the labels. `None`: it cannot be read, which
    /// is said.
    pub(super) fn read<S, T>(&mut self) -> Option<(Value, Object<S, T>)>
    where
        S: DeserializeOwned + Default,
        T: DeserializeOwned,
    {
        let text = self.row.body.as_deref().unwrap_or("null");
        let typed = serde_json::from_str(text).and_then(|body: Value| {
            let object = Object::<S, T>::deserialize(&body)?;
            Ok((body, object))
        });
        match typed {
            Ok((body, mut object)) => {
                if let Some(queue) = &self.queue {
                    object.metadata.labels.get_or_insert_default().insert(names::QUEUE_LABEL.into(), queue.clone());
                }
                Some((body, object))
            }
            Err(error) => {
                let kind = self.row.id.kind.name();
                let text = format!("the {kind} cannot be read: {error}");
                self.note(true, &format!("Invalid{kind}Spec"), "Validate", text.clone());
                self.waits_for(text);
                None
            }
        }
    }

    /// Goes on where `managedBy` names us or nobody. An empty value counts as somebody else's, as in KubeRay.
    pub(super) fn if_ours(&mut self, managed_by: Option<&str>) -> Flow {
        if managed_by.is_none_or(|who| names::MANAGED_BY_US.contains(&who)) {
            return Flow::Next;
        }
        self.waits_for("managedBy names another controller");
        Flow::Stop
    }

    /// Whether the object is the mirror of a root object on the hub.
    pub(super) fn is_mirror(&self) -> bool {
        !self.row.annotation(names::ROOT).is_empty()
    }

    fn cluster(&self) -> Cluster {
        Cluster::Member(self.member.clone())
    }

    /// A child of this kind by name, in the object's namespace.
    pub(super) fn child(&self, kind: Kind, name: &str) -> Option<&'a Row> {
        self.tables.get(&Id::new(kind, self.row.id.namespace.clone(), name))
    }

    /// What is known of an object in this namespace that nobody watches. It is read where it was not, and again as often
    /// as KubeRay comes by without news (specs/raycluster.md 2.3).
    pub(super) fn beside(&mut self, kind: Kind, name: &str) -> Beside<'a> {
        let (cluster, id) = (self.cluster(), Id::new(kind, self.row.id.namespace.clone(), name));
        let Some(read) = self.fetched.get(&(cluster.clone(), id.clone())) else {
            self.fetch(cluster, id, Time::default());
            return Beside::Unread;
        };
        if let Some(why) = &read.error {
            self.waits_for(format!("{id} cannot be read: {why}"));
        }
        let again = read.begun + if read.error.is_some() { TRY_AGAIN } else { READ_EVERY };
        if again <= self.now {
            self.fetch(cluster, id, again);
        } else {
            self.look_at(again);
        }
        match (&read.error, &read.body) {
            (Some(_), _) => Beside::Unread,
            (None, Some(body)) => Beside::There(body),
            (None, None) => Beside::Missing,
        }
    }

    fn fetch(&mut self, cluster: Cluster, id: Id, not_before: Time) {
        let fetch = Fetch { cluster, id, not_before };
        if !self.plan.fetch.contains(&fetch) {
            self.plan.fetch.push(fetch);
        }
    }

    /// Whether the object controls the row.
    pub(super) fn controls(&self, row: &Row) -> bool {
        row.owner.as_ref() == Some(&self.row.uid)
    }

    /// `namespace/name` of something beside the object.
    pub(super) fn full_name(&self, name: &str) -> String {
        format!("{}/{name}", self.row.id.namespace)
    }

    /// Creates an object in this namespace; the name stands in the body.
    pub(super) fn create(&mut self, kind: Kind, body: Value) {
        let name = body["metadata"]["name"].as_str().unwrap_or_default();
        let id = Id::new(kind, self.row.id.namespace.clone(), name);
        self.plan.actions.push(Action::Create { cluster: self.cluster(), id, body });
    }

    /// Deletes exactly this row, unless it is being deleted already.
    pub(super) fn delete(&mut self, row: &Row, children: Propagation) -> bool {
        if row.deleting.is_some() {
            return false;
        }
        let seen = Precondition::from(row);
        self.plan.actions.push(Action::Delete { cluster: self.cluster(), id: row.id.clone(), seen, children });
        true
    }

    /// Whether an object is being deleted, or deleted by this pass.
    pub(super) fn is_going(&self, row: &Row) -> bool {
        let deletes = |action: &Action| matches!(action, Action::Delete { id, .. } if *id == row.id);
        row.deleting.is_some() || self.plan.actions.iter().any(deletes)
    }

    /// Replaces the whole object that was seen as this row.
    pub(super) fn replace(&mut self, row: &Row, body: Value) {
        let seen = Precondition::from(row);
        self.plan.actions.push(Action::Replace { cluster: self.cluster(), id: row.id.clone(), body, seen });
    }

    /// Replaces an object in this namespace that was read as this body.
    pub(super) fn replace_read(&mut self, kind: Kind, name: &str, read: &Value, body: Value) {
        let text = |field: &str| read["metadata"][field].as_str().unwrap_or_default();
        let version = Version(text("resourceVersion").parse().unwrap_or_default());
        let seen = Precondition { uid: text("uid").into(), version };
        let id = Id::new(kind, self.row.id.namespace.clone(), name);
        self.plan.actions.push(Action::Replace { cluster: self.cluster(), id, body, seen });
    }

    /// Patches exactly the version that was seen as this row.
    pub(super) fn merge(&mut self, row: &Row, patch: Value) {
        let seen = Precondition::from(row);
        self.plan.actions.push(Action::Merge { cluster: self.cluster(), id: row.id.clone(), patch, seen });
    }

    /// Writes the object's own status.
    pub(super) fn status(&mut self, body: Value, decision: bool) {
        let seen = Precondition::from(self.row);
        let id = self.row.id.clone();
        self.plan.actions.push(Action::Status { cluster: self.cluster(), id, body, seen, decision });
    }

    /// An Event about the object.
    pub(super) fn note(&mut self, warning: bool, reason: &str, action: &str, note: impl Into<String>) {
        self.plan.events.push(Note {
            cluster: self.cluster(),
            about: self.row.id.clone(),
            uid: self.row.uid.clone(),
            warning,
            reason: reason.into(),
            action: action.into(),
            note: note.into(),
        });
    }

    /// Says what the object waits for; the first thing said stays.
    pub(super) fn waits_for(&mut self, why: impl Into<Arc<str>>) {
        if self.plan.why.0.is_empty() {
            self.plan.why = Why::new(why);
        }
    }

    /// Looks again at this time at the latest.
    pub(super) fn look_at(&mut self, time: Time) {
        self.plan.next = Some(self.plan.next.map_or(time, |t| t.min(time)));
    }

    /// The plan. Where a child has gone, nothing is created before the object itself was read since: its own deletion may
    /// be what took the child, and the stream of its kind late. What is made for an object that is gone is collected and
    /// missed and made again.
    pub(super) fn finish(mut self) -> Plan {
        let creates = |action: &Action| matches!(action, Action::Create { .. });
        let Some(lost) = self.tables.lost_child(&self.row.uid) else { return self.plan };
        if !self.plan.actions.iter().any(creates) {
            return self.plan;
        }
        let itself = self.fetched.get(&(self.cluster(), self.row.id.clone()));
        match itself.filter(|fetched| fetched.begun >= lost && fetched.error.is_none()) {
            Some(fetched) if is_the_same(fetched.body.as_deref(), self.row) => return self.plan,
            Some(_) => self.plan.why = Why::new("it is gone, or going: the news of it are on the way"),
            None => {
                let fetch = Fetch { cluster: self.cluster(), id: self.row.id.clone(), not_before: lost };
                self.plan.fetch.push(fetch);
                self.plan.why = Why::new("something of it has gone: whether it is still there itself is read first");
            }
        }
        self.plan.actions.retain(|action| !creates(action));
        // They would tell of what is not made.
        self.plan.events.clear();
        self.plan
    }
}

/// Whether what was read is the object of this row, and not being deleted unless that was seen.
fn is_the_same(body: Option<&Value>, row: &Row) -> bool {
    body.is_some_and(|body| {
        let metadata = &body["metadata"];
        metadata["uid"] == *row.uid.0 && (row.deleting.is_some() || metadata["deletionTimestamp"].is_null())
    })
}

/// The decision about the root object of this kind and name, if there is one.
pub(super) fn placement_spec<'a>(seen: &Seen<'a>, kind: Kind, row: &Row) -> Option<&'a PlacementSpec> {
    let name = super::placement_name(kind.name(), &row.id.name);
    let placement = seen.hub.table(Kind::Placement).get(&row.id.namespace, &name)?;
    match &placement.facts {
        Facts::Placement(placement) => Some(&placement.spec),
        _ => None,
    }
}

/// The queue that a mirror's pods are in: its label, else the one that the decision was made for.
fn queue_of_mirror(seen: &Seen<'_>, row: &Row) -> Option<String> {
    let label = row.label(names::QUEUE_LABEL);
    if !label.is_empty() {
        return Some(label.to_owned());
    }
    placement_spec(seen, row.id.kind, row).map(|spec| spec.queue.clone()).filter(|queue| !queue.is_empty())
}
