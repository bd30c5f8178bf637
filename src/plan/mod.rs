//! Pure decisions: total functions of what was seen and the time. No I/O, clock, randomness, await.
//! Must not know clients, or how a plan is carried out.

mod asked;
pub mod bound;
pub mod build;
pub mod decision;
pub mod dependencies;
pub mod gang;
mod hidden;
pub mod identity;
pub mod member;
pub mod mirror;
pub mod names;
mod pass;
pub mod place;
pub mod quantity;
pub mod ray_cluster;
pub mod ray_job;
pub mod registration;
pub mod reserve;
pub mod root;
mod seen;
#[cfg(test)]
pub(crate) mod testing;
pub mod validate;
pub mod withdraw;

#[cfg(test)]
mod tiny_world;

pub use asked::{Ask, Asked};
pub use seen::{
    Fetched, Flags, JobAnswer, JobView, Me, Member, RayTable, Seen, SubmitOutcome, TokenKey, placement_name,
};

use std::sync::Arc;

use serde_json::Value;

use crate::api::{Cluster, Id, Kind, MemberName, Time, Uid, Version};

/// What one look at one key comes to.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Plan {
    /// Writes that are safe together. What depends on their result waits for the next look.
    pub actions: Vec<Action>,
    /// Objects that must be read before the next look; the answer comes as [`Fetched`].
    pub fetch: Vec<Fetch>,
    /// Kinds of the key's member that must be listed anew, consistently, by a list begun at this time or later, before
    /// the next look (confirming that something is gone).
    pub relist: Vec<(Kind, Time)>,
    /// Events for people.
    pub events: Vec<Note>,
    /// When to look again even if nothing changes.
    pub next: Option<Time>,
    /// What this key waits for, in a sentence that can stand in `rayfleet explain`.
    pub why: Why,
}

impl Plan {
    /// Adds what another look comes to. What both want is wanted once; what was said first stays.
    pub fn join(&mut self, other: Plan) {
        fn add<T: PartialEq>(list: &mut Vec<T>, more: Vec<T>) {
            for one in more {
                if !list.contains(&one) {
                    list.push(one);
                }
            }
        }
        add(&mut self.actions, other.actions);
        add(&mut self.fetch, other.fetch);
        add(&mut self.relist, other.relist);
        add(&mut self.events, other.events);
        self.next = self.next.into_iter().chain(other.next).min();
        if self.why.0.is_empty() {
            self.why = other.why;
        }
    }
}

/// What a key waits for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Why(pub Arc<str>);

impl Why {
    /// A sentence, in the words of the people who read it.
    pub fn new(sentence: impl Into<Arc<str>>) -> Self {
        Self(sentence.into())
    }
}

/// The incarnation and version that a write applies to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Precondition {
    /// UID that was seen.
    pub uid: Uid,
    /// resourceVersion that was seen.
    pub version: Version,
}

impl From<&crate::row::Row> for Precondition {
    fn from(row: &crate::row::Row) -> Self {
        Self { uid: row.uid.clone(), version: row.version }
    }
}

/// One write, complete: whoever carries it out decides nothing (`sharding.md` E1, E2).
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// Fails with "exists" if the name is taken; that is an answer, not an error.
    Create {
        /// Where.
        cluster: Cluster,
        /// What; equals the names in `body`.
        id: Id,
        /// The whole object.
        body: Value,
    },
    /// PUT of the whole object; fails with "conflict" unless it is exactly the one that was seen.
    Replace {
        /// Where.
        cluster: Cluster,
        /// What.
        id: Id,
        /// The whole object; uid and resourceVersion are filled in from `seen`.
        body: Value,
        /// Precondition.
        seen: Precondition,
    },
    /// PUT of the status subresource of the object that was seen.
    Status {
        /// Where.
        cluster: Cluster,
        /// What.
        id: Id,
        /// The whole object with the new `status`.
        body: Value,
        /// Precondition.
        seen: Precondition,
        /// The status carries a decision (job id, cluster name, retry): in a new epoch the metadata must be stamped
        /// before (`sharding.md` 1.8).
        decision: bool,
    },
    /// A merge patch of exactly the version that was seen (PodGroups).
    Merge {
        /// Where.
        cluster: Cluster,
        /// What.
        id: Id,
        /// The patch; uid and resourceVersion are filled in from `seen`.
        patch: Value,
        /// Precondition.
        seen: Precondition,
    },
    /// Deletes this incarnation or nothing.
    Delete {
        /// Where.
        cluster: Cluster,
        /// What.
        id: Id,
        /// Precondition.
        seen: Precondition,
        /// What becomes of its children.
        children: Propagation,
    },
    /// A call to a Ray dashboard.
    Ask {
        /// On which member.
        member: MemberName,
        /// Where the dashboard is.
        dashboard: Dashboard,
        /// What is asked. Repeats are recognisable by the job id (`sharding.md` E10).
        question: Question,
    },
}

impl Action {
    /// The cluster that the action writes to.
    pub fn cluster(&self) -> Cluster {
        match self {
            Action::Create { cluster, .. }
            | Action::Replace { cluster, .. }
            | Action::Status { cluster, .. }
            | Action::Merge { cluster, .. }
            | Action::Delete { cluster, .. } => cluster.clone(),
            Action::Ask { member, .. } => Cluster::Member(member.clone()),
        }
    }
}

/// What becomes of an object's children when it is deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Propagation {
    /// The object goes at once, the collector takes the children.
    Background,
    /// The collector takes the children, then the object goes.
    Foreground,
}

/// The head Service whose dashboard is asked.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Dashboard {
    /// Namespace of the Service.
    pub namespace: Arc<str>,
    /// Name of the Service.
    pub service: Arc<str>,
    /// Port number or name.
    pub port: Arc<str>,
}

impl Dashboard {
    /// From `status.dashboardURL` of a RayJob in this namespace (`<service>.<namespace>.svc.<domain>:<port>`); `None` where
    /// it names no Service.
    pub fn of(namespace: &Arc<str>, url: &str) -> Option<Self> {
        let (host, port) = url.rsplit_once(':')?;
        let service = host.split('.').next().filter(|service| !service.is_empty())?;
        Some(Self { namespace: namespace.clone(), service: service.into(), port: port.into() })
    }
}

/// A question to a Ray dashboard (specs/rayjob.md 16).
#[derive(Clone, Debug, PartialEq)]
pub enum Question {
    /// `GET /api/jobs/<id>`.
    Job {
        /// Submission id.
        job: Arc<str>,
    },
    /// `POST /api/jobs/`. The id is in the body too: Ray refuses a second one.
    Submit {
        /// Submission id.
        job: Arc<str>,
        /// Request body.
        body: Value,
    },
    /// `POST /api/jobs/<id>/stop`.
    Stop {
        /// Submission id.
        job: Arc<str>,
    },
}

impl Question {
    /// The submission id that it is about.
    pub fn job(&self) -> &Arc<str> {
        match self {
            Question::Job { job } | Question::Submit { job, .. } | Question::Stop { job } => job,
        }
    }

    /// Whether it changes nothing.
    pub fn is_read(&self) -> bool {
        matches!(self, Question::Job { .. })
    }
}

/// A read that a plan asks for.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Fetch {
    /// Where.
    pub cluster: Cluster,
    /// What.
    pub id: Id,
    /// The read must have been begun at this time or later; an older answer that is still kept will do if it is.
    pub not_before: Time,
}

/// An Event of Kubernetes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Note {
    /// Where it is written.
    pub cluster: Cluster,
    /// About which object.
    pub about: Id,
    /// Its UID.
    pub uid: Uid,
    /// `Normal` or `Warning`.
    pub warning: bool,
    /// KubeRay's reason where it has one.
    pub reason: Arc<str>,
    /// KubeRay's action where it has one.
    pub action: Arc<str>,
    /// A sentence.
    pub note: String,
}
