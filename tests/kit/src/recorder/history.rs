//! What was recorded: every state of every object, and who wrote it; and what must hold of it.
//! Pure: events come in, sentences come out. Must not know how they were got.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use crate::real_fleet::audit::Entry;

/// On everything that a fleet writes on a member.
const FLEET_ID: &str = "rayfleet.io/fleet-id";
/// On a mirror, and on nothing that is made for it.
const GENERATION: &str = "rayfleet.io/placement-generation";
const ROOT_ID: &str = "rayfleet.io/root-id";
/// Where a fleet marks a cluster as its member.
const HOME: &str = "/kube-system";
/// Kinds of root objects and mirrors.
const ROOTS: [&str; 4] = ["rayjobs", "rayclusters", "rayservices", "raycronjobs"];
/// What is the fleet's own on a hub.
const OWN: [&str; 3] = ["placements", "memberclusters", "membercapacities"];
const LEASES: &str = "leases";
const LEASE_NAMESPACE: &str = "rayfleet-system/";
const SEATS: &str = "rayfleet-system/seat-";
/// Queue and bucket units, and members' reservation units.
const UNITS: [&str; 2] = ["rayfleet-system/q-", "rayfleet-system/m-"];
const FORBIDDEN: u64 = 403;
/// Written by anybody about anything, and watched nowhere.
const EVENTS: &str = "events";
/// Below an object: what is asked of it there changes nothing that is stored.
const NOTHING_STORED: [&str; 2] = ["token", "proxy"];

/// Plane, resource, `namespace/name`.
pub type Object = (String, String, String);

/// One state of an object.
#[derive(Clone, Debug)]
struct State {
    version: u64,
    stamped: bool,
    gone: bool,
}

/// A write by one of the fleet's controllers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Write {
    /// On what.
    pub object: Object,
    /// `update`, `update status`, …
    pub verb: String,
    /// The program that sent it.
    pub agent: String,
    /// HTTP status.
    pub code: u64,
    /// The version that it made.
    pub version: Option<u64>,
    /// UID of what it wrote; of a deletion, of what is gone.
    pub uid: Option<String>,
    /// It made an object that another one owns. Its name is no slot that is fenced: that of a mirror or `Placement` is.
    pub makes_child: bool,
    /// Of a Lease: who holds it by it.
    pub holder: Option<String>,
    /// When the answer was there: texts of one form, which sort by time.
    pub at: String,
}

impl Write {
    /// Whether it was carried out.
    pub fn is_accepted(&self) -> bool {
        (200..300).contains(&self.code)
    }

    /// Of a unit's Lease: the turn of its seat by which a seat holds it, the 3 of `a#3`.
    fn turn(&self) -> Option<u64> {
        let is_unit = self.object.1 == LEASES && UNITS.iter().any(|unit| self.object.2.starts_with(unit));
        self.holder.as_ref().filter(|_| is_unit)?.rsplit_once('#')?.1.parse().ok()
    }

    /// Whether it is about its own seat: the one thing that stays a replica's own while it stands still.
    pub fn is_of_a_seat(&self) -> bool {
        self.object.1 == LEASES && self.object.2.starts_with(SEATS)
    }

    /// Whether it was carried out before the other one on the same object: by the versions that both made; by the times of
    /// their answers where one made none, as a deletion, which is answered with what it met.
    fn is_before(&self, other: &Self) -> bool {
        let made = |write: &Self| write.version.filter(|_| write.verb != "delete");
        match (made(self), made(other)) {
            (Some(this), Some(that)) => this < that,
            _ => self.at < other.at,
        }
    }
}

/// All that was recorded.
#[derive(Debug)]
pub struct History {
    user: String,
    fleet: String,
    events: usize,
    states: BTreeMap<Object, Vec<State>>,
    /// Root id → objects that are its live mirrors now.
    live: BTreeMap<String, BTreeSet<Object>>,
    mirrors: BTreeMap<Object, String>,
    writes: Vec<Write>,
    violations: Vec<String>,
}

/// What is to be said in the end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// States of objects that were seen.
    pub events: usize,
    /// Writes of the fleet that were carried out.
    pub writes: usize,
    /// The object that was written most, and how often.
    pub most: Option<(Object, usize)>,
    /// What must not be.
    pub violations: Vec<String>,
}

impl History {
    /// Nothing yet. `user` is who the controllers are, `fleet` their fleet id.
    pub fn of(user: &str, fleet: &str) -> Self {
        Self {
            user: user.to_owned(),
            fleet: fleet.to_owned(),
            events: 0,
            states: BTreeMap::new(),
            live: BTreeMap::new(),
            mirrors: BTreeMap::new(),
            writes: Vec::new(),
            violations: Vec::new(),
        }
    }

    /// Takes in that a list of a kind holds nothing but these (`namespace/name`): what it lacks went while nobody watched.
    pub fn listed(&mut self, plane: &str, kind: &str, there: &BTreeSet<String>) {
        let mut gone = Vec::new();
        for (key, states) in &mut self.states {
            let last = states.last().map_or(0, |state| state.version);
            if key.0 == plane && key.1 == kind && !there.contains(&key.2) && states.last().is_some_and(|s| !s.gone) {
                states.push(State { version: last, stamped: false, gone: true });
                gone.push(key.clone());
            }
        }
        gone.iter().for_each(|key| self.mirror(key, None));
    }

    /// Takes in a state: `what` is the type of a watch's line, or `LISTED`. Gives the line of the timeline.
    pub fn event(&mut self, plane: &str, kind: &str, what: &str, object: &Value) -> Value {
        let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
        let place = format!("{}/{}", text("/metadata/namespace"), text("/metadata/name"));
        let key = (plane.to_owned(), kind.to_owned(), place);
        let version = text("/metadata/resourceVersion").parse().unwrap_or_default();
        let annotation = |name: &str| object["metadata"]["annotations"][name].as_str().unwrap_or_default();
        let gone = what == "DELETED";
        self.events += 1;
        let state = State { version, stamped: annotation(FLEET_ID) == self.fleet, gone };
        self.states.entry(key.clone()).or_default().push(state);
        let is_live = plane != "hub"
            && ROOTS.contains(&kind)
            && !annotation(GENERATION).is_empty()
            && !gone
            && object["metadata"]["deletionTimestamp"].is_null();
        let root = if is_live { Some(annotation(ROOT_ID).to_owned()) } else { None };
        self.mirror(&key, root);
        json!({"plane": plane, "what": what, "kind": kind, "object": key.2, "version": version,
               "manager": last_manager(object), "status": brief(&object["status"])})
    }

    /// An object is the live mirror of this root from now on, or of none.
    fn mirror(&mut self, key: &Object, root: Option<String>) {
        if let Some(before) = self.mirrors.remove(key)
            && let Some(live) = self.live.get_mut(&before)
        {
            live.remove(key);
        }
        let Some(root) = root else { return };
        let live = self.live.entry(root.clone()).or_default();
        live.insert(key.clone());
        if live.len() > 1 {
            self.violations.push(format!("root {root} has {} live mirrors: {live:?}", live.len()));
        }
        self.mirrors.insert(key.clone(), root);
    }

    /// Takes in a line of an audit log; gives the line of the timeline where it is a write of the fleet.
    pub fn asked(&mut self, plane: &str, entry: &Entry) -> Option<Value> {
        let (resource, sub) = entry.right.resource.split_once('/').unwrap_or((&entry.right.resource, ""));
        if entry.user == self.user && entry.code == FORBIDDEN && !entry.reason.starts_with("allow") {
            self.violations.push(format!("{plane}: the fleet may not {} {}", entry.right.verb, entry.right.resource));
        }
        if entry.user != self.user || !entry.is_write() || NOTHING_STORED.contains(&sub) {
            return None;
        }
        let verb = if sub.is_empty() { entry.right.verb.clone() } else { format!("{} {sub}", entry.right.verb) };
        let write = Write {
            object: (plane.to_owned(), resource.to_owned(), format!("{}/{}", entry.namespace, entry.name)),
            verb,
            agent: entry.agent.clone(),
            code: entry.code,
            version: entry.version,
            uid: ["/metadata/uid", "/details/uid"]
                .iter()
                .find_map(|at| Some(entry.object.pointer(at)?.as_str()?.to_owned())),
            makes_child: entry.right.verb == "create"
                && entry.object["metadata"]["ownerReferences"].as_array().is_some_and(|owners| !owners.is_empty()),
            holder: entry.object["spec"]["holderIdentity"].as_str().map(str::to_owned),
            at: entry.at.clone(),
        };
        let line = json!({"plane": plane, "what": "WRITE", "kind": resource, "object": write.object.2, "verb": write.verb,
                          "by": write.agent, "code": write.code, "version": write.version, "at": write.at});
        self.writes.push(write);
        Some(line)
    }

    /// The fleet's writes, each plane's in the order of their answers.
    pub fn writes(&self) -> &[Write] {
        &self.writes
    }

    /// Writes of an agent among those after the first `known` ones.
    pub fn writes_of<'a>(&'a self, agent: &'a str, known: usize) -> impl Iterator<Item = &'a Write> {
        self.writes.iter().skip(known).filter(move |write| write.agent == agent)
    }

    /// Those of them that were carried out although another had written the object after the first `known` ones. A child that
    /// is made under the name of one that is gone is another object (`sharding.md` E8: who owns it removes it).
    pub fn overtaken<'a>(&'a self, agent: &'a str, known: usize) -> Vec<&'a Write> {
        let others: Vec<_> = self.writes.iter().skip(known).filter(|w| w.agent != agent && w.is_accepted()).collect();
        let before = |other: &Write, write: &Write| {
            let is_another = write.makes_child && other.uid != write.uid;
            other.object == write.object && !is_another && other.is_before(write)
        };
        let accepted = self.writes_of(agent, known).filter(|write| write.is_accepted());
        accepted.filter(|write| others.iter().any(|other| before(other, write))).collect()
    }

    /// When an agent came to own a unit by a later turn of its seat than this one, among its writes after the first `known`.
    pub fn owns_again<'a>(&'a self, agent: &'a str, known: usize, turn: u64) -> Option<&'a str> {
        let taken = self.writes_of(agent, known).filter(|write| write.is_accepted() && write.turn() > Some(turn));
        taken.map(|write| write.at.as_str()).min()
    }

    /// The highest turn by which an agent has owned a unit.
    pub fn turn_of(&self, agent: &str) -> Option<u64> {
        self.writes_of(agent, 0).filter(|write| write.is_accepted()).filter_map(Write::turn).max()
    }

    /// Writes of an agent after the first `known` ones that are of its turn up to this one: sent before it owned anything
    /// anew, or about units by that turn. Those about its seat are left out.
    pub fn late<'a>(&'a self, agent: &'a str, known: usize, turn: u64) -> Vec<&'a Write> {
        let anew = self.owns_again(agent, known, turn);
        let is_late = |write: &&Write| {
            let before = anew.is_none_or(|anew| write.at.as_str() < anew);
            !write.is_of_a_seat() && (before || write.turn().is_some_and(|of| of <= turn))
        };
        self.writes_of(agent, known).filter(is_late).collect()
    }

    /// Whether the last that was seen of an object is its end.
    pub fn is_gone(&self, object: &Object) -> bool {
        self.states.get(object).and_then(|states| states.last()).is_some_and(|state| state.gone)
    }

    /// Accepted writes whose version no watch has told (yet). Of deletions it is not asked: their answers hold what was deleted.
    pub fn unseen(&self) -> Vec<&Write> {
        let seen = |write: &Write| {
            let states = self.states.get(&write.object);
            states.is_some_and(|states| states.iter().any(|state| Some(state.version) == write.version))
        };
        let told = |write: &&Write| write.version.is_some() && write.verb != "delete" && write.object.1 != EVENTS;
        self.accepted().filter(told).filter(|write| !seen(write)).collect()
    }

    fn accepted(&self) -> impl Iterator<Item = &Write> {
        self.writes.iter().filter(|write| write.is_accepted())
    }

    /// All that is wrong.
    pub fn judge(&self) -> Verdict {
        let mut violations = self.violations.clone();
        violations.extend(self.unseen().into_iter().map(|write| format!("no watch told of {write:?}")));
        violations.extend(
            self.accepted().filter(|write| !self.may(write)).map(|write| format!("a stranger's object: {write:?}")),
        );
        let mut counts: BTreeMap<&Object, usize> = BTreeMap::new();
        self.accepted().for_each(|write| *counts.entry(&write.object).or_default() += 1);
        // Leases are renewed for ever.
        let most = counts.iter().filter(|(object, _)| object.1 != LEASES).max_by_key(|(_, count)| **count);
        Verdict {
            events: self.events,
            writes: self.accepted().count(),
            most: most.map(|(object, count)| ((*object).clone(), *count)),
            violations,
        }
    }

    /// Whether the fleet may do that: make anything, change what is its own on the hub and root objects there, and on a
    /// member what bears its stamp, besides the mark by which it takes the cluster.
    fn may(&self, write: &Write) -> bool {
        let (plane, kind, _) = &write.object;
        if write.verb == "create" || kind == EVENTS {
            return true;
        }
        if plane == "hub" {
            return ROOTS.contains(&kind.as_str())
                || OWN.contains(&kind.as_str())
                || (kind == LEASES && write.object.2.starts_with(LEASE_NAMESPACE));
        }
        if kind == "namespaces" && write.object.2 == HOME && write.verb == "patch" {
            return true;
        }
        let states = self.states.get(&write.object).map_or(&[][..], Vec::as_slice);
        // The state that it met. A deletion is answered with what it met, or with that and a mark.
        let is_met = |state: &&State| match write.version {
            Some(made) if write.verb == "delete" => state.version <= made,
            Some(made) => state.version < made,
            None => true,
        };
        let met = states.iter().filter(|state| !state.gone).filter(is_met);
        met.max_by_key(|state| state.version).is_some_and(|state| state.stamped)
    }
}

/// Who wrote last, by the field managers.
fn last_manager(object: &Value) -> Value {
    let managers = object["metadata"]["managedFields"].as_array().into_iter().flatten();
    managers.max_by_key(|entry| entry["time"].as_str()).map_or(Value::Null, |entry| entry["manager"].clone())
}

/// What of a status a person wants to see in a timeline.
fn brief(status: &Value) -> Value {
    let fields = ["phase", "state", "jobStatus", "jobDeploymentStatus", "stage", "message"];
    let found = fields
        .iter()
        .filter(|field| status[**field].is_string())
        .map(|field| ((*field).to_owned(), status[*field].clone()));
    Value::Object(found.collect())
}

#[cfg(test)]
mod tests;
