//! What a root object asks for, worked out once per specification: every pod is built for it, and a waiting object is
//! looked at again at each change of any member.
//! Must not know members, or who keeps it.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::gang::{self, Gang};
use super::root::{Root, spec_hash};
use super::validate::{self, Refusal};
use super::{Flags, Seen};
use crate::api::Uid;
use crate::api::fleet::GangShape;
use crate::row::Row;

/// What follows from specification, labels and annotations of a root object alone.
#[derive(Debug, PartialEq)]
pub struct Ask {
    /// The rule that it breaks, if any.
    pub refusal: Option<Refusal>,
    /// Its gang as it is stored and in numbers; or why it has none, in a sentence.
    pub gang: Result<(GangShape, Gang), String>,
    /// Hash of what a mirror's spec is made from.
    pub spec_hash: String,
}

impl Ask {
    /// Its gang as it is stored.
    pub fn shape(&self) -> Option<&GangShape> {
        self.gang.as_ref().ok().map(|(shape, _)| shape)
    }
}

/// An [`Ask`], and of which rows it is true.
#[derive(Clone, Debug)]
pub struct Asked {
    uid: Uid,
    generation: i64,
    labels: BTreeMap<Arc<str>, Arc<str>>,
    annotations: BTreeMap<Arc<str>, Arc<str>>,
    /// What is asked for.
    pub ask: Arc<Ask>,
}

impl Asked {
    /// Works it out; `None` where the row keeps no body.
    pub fn read(row: &Row, flags: &Flags) -> Option<Self> {
        Some(Self {
            uid: row.uid.clone(),
            generation: row.generation,
            labels: row.labels.clone(),
            annotations: row.annotations.clone(),
            ask: Arc::new(ask(&Root::read(row)?, flags)),
        })
    }

    /// Whether it is true of this row as well: the same specification, labels and annotations that rules read. Where the
    /// server counts no generations nothing is known.
    pub fn holds_for(&self, row: &Row) -> bool {
        row.generation > 0
            && self.generation == row.generation
            && self.uid == row.uid
            && self.labels == row.labels
            && self.annotations == row.annotations
    }
}

/// What the root object asks for: as it is remembered, if that is of this specification.
pub(super) fn of(seen: &Seen, root: &Root) -> Arc<Ask> {
    match seen.asks.get(&root.row.id).filter(|asked| asked.holds_for(root.row)) {
        Some(asked) => asked.ask.clone(),
        None => Arc::new(ask(root, seen.flags)),
    }
}

fn ask(root: &Root, flags: &Flags) -> Ask {
    // The status on the hub is ours: it changes often, and nothing here follows from it.
    let mut body = root.body().clone();
    if let Some(fields) = body.as_object_mut() {
        fields.remove("status");
    }
    let gang = gang::shape(&body, flags).and_then(|shape| Gang::parse(&shape).map(|gang| (shape, gang)));
    Ask { refusal: validate::object(root.row.id.kind, &body).err(), gang, spec_hash: spec_hash(&body) }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::plan::testing;

    fn row(change: impl FnOnce(&mut Value)) -> Row {
        let mut job = testing::ray_job("train", "ml", "2");
        job["metadata"]["generation"] = json!(3);
        change(&mut job);
        testing::row(&job, 7)
    }

    #[test]
    fn an_answer_holds_for_another_status_and_for_nothing_else() {
        let asked = Asked::read(&row(|_| {}), &Flags::default()).unwrap();
        let holds = |change: fn(&mut Value)| asked.holds_for(&row(change));
        assert!(holds(|job| job["status"] = json!({"jobDeploymentStatus": "Waiting", "message": "x"})));
        assert!(!holds(|job| job["metadata"]["generation"] = json!(4)));
        assert!(!holds(|job| job["metadata"]["uid"] = json!("another")));
        assert!(!holds(|job| job["metadata"]["labels"]["ray.io/priority-class-name"] = json!("high")));
        assert!(!holds(|job| job["metadata"]["annotations"] = json!({"ray.io/ft-enabled": "true"})));
        let uncounted = row(|job| job["metadata"]["generation"] = json!(0));
        assert!(!Asked::read(&uncounted, &Flags::default()).unwrap().holds_for(&uncounted));
    }

    #[test]
    fn no_status_changes_the_answer() {
        let read = |status: Value| Asked::read(&row(|job| job["status"] = status), &Flags::default()).unwrap().ask;
        let bare = read(Value::Null);
        assert_eq!((&bare.refusal, bare.shape().unwrap().min_member), (&None, 2));
        for status in [json!({"jobDeploymentStatus": "Waiting"}), json!({"rayClusterName": "x", "dashboardURL": "y"})] {
            assert_eq!(read(status), bare);
        }
    }
}
