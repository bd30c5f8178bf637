//! The recorder: an ordinary watcher of every API server that knows only what the API says, and judges it.
//! Must not know the product's tables or decisions.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use crate::say::say;

/// What a watcher sees of one server.
#[derive(Clone, Debug)]
pub struct Sight<'a> {
    /// `hub` or the member's name.
    pub cluster: &'a str,
    /// `ADDED`, `MODIFIED` or `DELETED`.
    pub kind_of_event: &'a str,
    /// The object.
    pub object: &'a Value,
}

/// Numbers for the summary.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Placements that were bound to a member.
    pub bound: u64,
    /// Placements that were withdrawn.
    pub withdrawals: u64,
    /// Withdrawn because Volcano did not admit the gang in time, or it did not start.
    pub refused_after_bind: u64,
    /// A unit changed hands while a root object of it was between its binding and running.
    pub takeovers_inside_handshake: u64,
    /// The member's owner found that the gang does not fit after the queue's owner had said `Fits`.
    pub wrong_fits: u64,
}

/// Everything the recorder remembers.
#[derive(Clone, Debug, Default)]
pub struct Recorder {
    /// Live mirrors by root id: (member, uid).
    live_mirrors: BTreeMap<String, BTreeSet<(String, String)>>,
    /// Live RayClusters by root id.
    live_ray_clusters: BTreeMap<String, BTreeSet<(String, String)>>,
    /// Last stamps by (cluster, uid).
    stamps: BTreeMap<(String, String), BTreeMap<String, u64>>,
    /// UIDs of all pods that ever were, by (member, namespace, name).
    pods: BTreeMap<(String, String, String), BTreeSet<String>>,
    /// UIDs of RayClusters that were seen to go.
    gone_ray_clusters: BTreeSet<String>,
    /// A replica was frozen with a write in hand: a child may come after its owner went, for the collector to take
    /// (`sharding.md` E8). Such a pod is not held against anybody.
    pub late_children: bool,
    /// Live head pods by (member, namespace, RayCluster).
    live_heads: BTreeMap<(String, String, String), BTreeSet<String>>,
    /// Final statuses of roots by uid: (jobStatus, jobDeploymentStatus).
    endings: BTreeMap<String, (String, String)>,
    /// Submission ids that a root ever had, by uid of the root.
    pub job_ids: BTreeMap<String, BTreeSet<String>>,
    /// Stage and withdrawal reason of each placement, by uid.
    stages: BTreeMap<String, String>,
    /// UID of the last root of each name.
    uids: BTreeMap<String, String>,
    /// Highest epoch of each unit whose mark an object bears, by (cluster, uid): of writes that carry a stamp, and of
    /// statuses with a decision.
    marks: BTreeMap<(String, String), BTreeMap<String, u64>>,
    /// Units that went to a replica while a request of another in their name was under way: what a crash brings about and
    /// a release must not. Judged by stories.
    pub overlaps: Vec<String>,
    /// Changes of objects whose name contains this are printed.
    pub trace: Option<String>,
    /// Numbers.
    pub counts: Counts,
    /// What must never be, in the order in which it was seen.
    pub violations: Vec<String>,
}

fn text<'a>(value: &'a Value, path: &str) -> &'a str {
    value.pointer(path).and_then(Value::as_str).unwrap_or_default()
}

fn show(sight: &Sight<'_>) {
    let of = |path: &str| text(sight.object, path).to_owned();
    let state = [
        "/metadata/deletionTimestamp",
        "/status/phase",
        "/status/reason",
        "/status/state",
        "/status/jobDeploymentStatus",
    ];
    let state: Vec<String> = state.map(of).into_iter().filter(|word| !word.is_empty()).collect();
    let [kind, name, uid, version] = ["/kind", "/metadata/name", "/metadata/uid", "/metadata/resourceVersion"].map(of);
    say(&format!(
        "         {} {} {kind} {name} {uid} {version} {}",
        sight.kind_of_event,
        sight.cluster,
        state.join(" ")
    ));
}

impl Recorder {
    /// Takes one event in.
    pub fn see(&mut self, sight: &Sight<'_>) {
        let object = sight.object;
        if self.trace.as_ref().is_some_and(|word| text(object, "/metadata/name").contains(word.as_str())) {
            show(sight);
        }
        self.stamps(sight);
        match text(object, "/kind") {
            "RayJob" if sight.cluster == "hub" => self.root(sight),
            "RayJob" => {
                self.live_once(sight, "mirror");
            }
            "RayCluster" if sight.cluster != "hub" => {
                if sight.kind_of_event == "DELETED" {
                    self.gone_ray_clusters.insert(text(object, "/metadata/uid").to_owned());
                }
                self.live_once(sight, "RayCluster");
            }
            "Pod" => self.pod(sight),
            "Placement" => self.placement(sight),
            _ => {}
        }
    }

    /// I3: the epochs of one unit on one object never go back.
    fn stamps(&mut self, sight: &Sight<'_>) {
        let raw = sight.object["metadata"]["annotations"]["rayfleet.io/stamps"].as_str();
        let Some(now) = raw.and_then(|raw| serde_json::from_str::<BTreeMap<String, u64>>(raw).ok()) else { return };
        let key = (sight.cluster.to_owned(), text(sight.object, "/metadata/uid").to_owned());
        let before = self.stamps.entry(key).or_default();
        for (unit, epoch) in &now {
            if before.get(unit).is_some_and(|b| b > epoch) {
                self.violations.push(format!(
                    "I3: stamp of {unit} on {} {} went back from {} to {epoch}",
                    text(sight.object, "/kind"),
                    text(sight.object, "/metadata/name"),
                    before[unit]
                ));
            }
        }
        *before = now;
    }

    /// S2: once an epoch of a unit has left its mark on an object, none below it is accepted there. `marks`: so does this
    /// write.
    pub fn accepted(&mut self, cluster: &str, uid: &str, unit: &str, epoch: u64, marks: bool, what: &str) {
        let epochs = self.marks.entry((cluster.to_owned(), uid.to_owned())).or_default();
        let highest = epochs.get(unit).copied().unwrap_or(0);
        if epoch < highest {
            self.violations.push(format!(
                "S2: {what} on {cluster} was accepted in epoch {epoch} of {unit}, after one in epoch {highest}"
            ));
        } else if marks {
            epochs.insert(unit.to_owned(), epoch);
        }
    }

    /// I4: at most one live mirror, and one live RayCluster, per root id over all members.
    fn live_once(&mut self, sight: &Sight<'_>, what: &str) {
        let object = sight.object;
        let root = text(object, "/metadata/labels/rayfleet.io~1root-id");
        if root.is_empty() {
            return;
        }
        let map = if what == "mirror" { &mut self.live_mirrors } else { &mut self.live_ray_clusters };
        let set = map.entry(root.to_owned()).or_default();
        let me = (sight.cluster.to_owned(), text(object, "/metadata/uid").to_owned());
        if sight.kind_of_event == "DELETED" || object["metadata"]["deletionTimestamp"].is_string() {
            set.remove(&me);
        } else if set.insert(me) && set.len() > 1 {
            self.violations.push(format!("I4: {} live copies ({what}) of root {root}: {set:?}", set.len()));
        }
    }

    /// No pod twice: a name is borne once, and a RayCluster has one live head.
    fn pod(&mut self, sight: &Sight<'_>) {
        let object = sight.object;
        let uid = text(object, "/metadata/uid").to_owned();
        let goes = sight.kind_of_event == "DELETED" || object["metadata"]["deletionTimestamp"].is_string();
        let head_of = (text(object, "/metadata/labels/ray.io~1node-type") == "head").then(|| {
            let cluster = text(object, "/metadata/labels/ray.io~1cluster");
            (sight.cluster.to_owned(), text(object, "/metadata/namespace").to_owned(), cluster.to_owned())
        });
        // Also of a RayCluster that has gone: another one of its name may have come from a write that was late.
        if goes && let Some(heads) = head_of.as_ref().and_then(|place| self.live_heads.get_mut(place)) {
            heads.remove(&uid);
        }
        if self.late_children && self.gone_ray_clusters.contains(text(object, "/metadata/ownerReferences/0/uid")) {
            return;
        }
        let (namespace, name) = (text(object, "/metadata/namespace"), text(object, "/metadata/name"));
        let key = (sight.cluster.to_owned(), namespace.to_owned(), name.to_owned());
        let bearers = self.pods.entry(key).or_default();
        if bearers.insert(uid.clone()) && bearers.len() > 1 {
            self.violations.push(format!(
                "pod {namespace}/{name} on {} was created {} times",
                sight.cluster,
                bearers.len()
            ));
        }
        if let Some(place) = head_of.filter(|_| !goes) {
            let heads = self.live_heads.entry(place.clone()).or_default();
            if heads.insert(uid) && heads.len() > 1 {
                let (cluster, _, of) = place;
                self.violations.push(format!("RayCluster {of} on {cluster} has {} live heads", heads.len()));
            }
        }
    }

    /// One terminal status: what a root has ended with stands.
    fn root(&mut self, sight: &Sight<'_>) {
        let object = sight.object;
        let uid = text(object, "/metadata/uid").to_owned();
        let name = text(object, "/metadata/name");
        if self.uids.get(name) != Some(&uid) {
            self.uids.insert(name.to_owned(), uid.clone());
        }
        let job_id = text(object, "/status/jobId");
        if !job_id.is_empty() {
            self.job_ids.entry(uid.clone()).or_default().insert(job_id.to_owned());
        }
        let now =
            (text(object, "/status/jobStatus").to_owned(), text(object, "/status/jobDeploymentStatus").to_owned());
        if let Some(before) = self.endings.get(&uid) {
            if *before != now {
                self.violations.push(format!(
                    "root {} had ended as {before:?} and now says {now:?}",
                    text(object, "/metadata/name")
                ));
            }
        } else if now.1 == "Complete" || now.1 == "Failed" {
            self.endings.insert(uid, now);
        }
    }

    fn placement(&mut self, sight: &Sight<'_>) {
        let uid = text(sight.object, "/metadata/uid").to_owned();
        if sight.kind_of_event == "DELETED" {
            self.stages.remove(&uid);
            return;
        }
        let stage = text(sight.object, "/spec/stage").to_owned();
        let before = self.stages.insert(uid, stage.clone()).unwrap_or_default();
        if before == stage {
            return;
        }
        match (before.as_str(), stage.as_str()) {
            (_, "Reserving") => self.counts.bound += 1,
            ("Reserving", "Waiting") => self.counts.wrong_fits += 1,
            (_, "Withdrawing") => {
                self.counts.withdrawals += 1;
                match text(sight.object, "/spec/withdrawal/reason") {
                    "NoLongerFits" => self.counts.wrong_fits += 1,
                    "AdmissionDeadline" | "StartDeadline" => self.counts.refused_after_bind += 1,
                    _ => {}
                }
            }
            _ => {}
        }
    }

    /// How many roots have ended.
    pub fn ended(&self) -> usize {
        self.endings.len()
    }

    /// Final status of the last root of this name: (jobStatus, jobDeploymentStatus).
    pub fn ending(&self, name: &str) -> Option<&(String, String)> {
        self.endings.get(self.uids.get(name)?)
    }

    /// How many pods were ever created on members whose name starts with `prefix`.
    pub fn pods_ever(&self, prefix: &str) -> usize {
        self.pods.iter().filter(|((_, _, name), _)| name.starts_with(prefix)).map(|(_, uids)| uids.len()).sum()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn mirror(uid: &str) -> Value {
        json!({ "kind": "RayJob", "metadata": { "name": "train", "uid": uid, "labels": { "rayfleet.io/root-id": "r" } } })
    }

    #[test]
    fn a_second_live_mirror_is_a_violation_and_a_tombstone_is_not() {
        let mut recorder = Recorder::default();
        let mut first = mirror("1");
        recorder.see(&Sight { cluster: "eu", kind_of_event: "ADDED", object: &first });
        first["metadata"]["deletionTimestamp"] = json!("2026-11-29T00:00:00Z");
        recorder.see(&Sight { cluster: "eu", kind_of_event: "MODIFIED", object: &first });
        recorder.see(&Sight { cluster: "us", kind_of_event: "ADDED", object: &mirror("2") });
        assert_eq!(recorder.violations, Vec::<String>::new());
        recorder.see(&Sight { cluster: "ap", kind_of_event: "ADDED", object: &mirror("3") });
        assert_eq!(recorder.violations.len(), 1, "{:?}", recorder.violations);
    }

    #[test]
    fn a_second_live_head_is_a_violation_and_one_that_goes_with_its_raycluster_is_none() {
        let head = |name: &str, cluster: &str| {
            let labels = json!({ "ray.io/node-type": "head", "ray.io/cluster": "c" });
            let owners = json!([{ "uid": cluster }]);
            json!({ "kind": "Pod", "metadata": { "name": name, "uid": name, "labels": labels, "ownerReferences": owners } })
        };
        let cluster = json!({ "kind": "RayCluster", "metadata": { "name": "c", "uid": "c-1" } });
        let mut recorder = Recorder { late_children: true, ..Recorder::default() };
        let mut see = |kind_of_event: &'static str, object: &Value| {
            recorder.see(&Sight { cluster: "eu", kind_of_event, object });
            recorder.violations.len()
        };
        see("ADDED", &cluster);
        see("ADDED", &head("h-1", "c-1"));
        // The RayCluster goes before its head does, and one of its name comes.
        see("DELETED", &cluster);
        let mut going = head("h-1", "c-1");
        going["metadata"]["deletionTimestamp"] = json!("2026-11-29T00:00:00Z");
        see("MODIFIED", &going);
        assert_eq!(see("ADDED", &head("h-2", "c-2")), 0);
        assert_eq!(see("ADDED", &head("h-3", "c-2")), 1);
    }

    #[test]
    fn a_stamp_that_goes_back_is_a_violation() {
        let mut recorder = Recorder::default();
        for (epoch, bad) in [(1, 0), (2, 0), (1, 1)] {
            let object = json!({ "kind": "Placement", "metadata": { "uid": "p",
                "annotations": { "rayfleet.io/stamps": format!("{{\"q-00\":{epoch}}}") } } });
            recorder.see(&Sight { cluster: "hub", kind_of_event: "MODIFIED", object: &object });
            assert_eq!(recorder.violations.len(), bad);
        }
    }

    #[test]
    fn a_write_of_an_epoch_below_one_that_left_its_mark_is_a_violation() {
        let mut recorder = Recorder::default();
        let writes = [("q-00", 2, false, 0), ("q-00", 1, true, 0), ("q-01", 3, true, 0), ("q-00", 2, true, 0)];
        for (unit, epoch, marks, bad) in writes.into_iter().chain([("q-00", 1, false, 1)]) {
            recorder.accepted("hub", "uid", unit, epoch, marks, "PUT");
            assert_eq!(recorder.violations.len(), bad, "{unit} {epoch}: {:?}", recorder.violations);
        }
    }
}
