//! What stands between a plan and its writes: the rules for effects that no plan needs to think of (`sharding.md` 2.7,
//! `docs/WALK.md` section 2). Stop on a higher stamp, claim before writing to a member, no two open sides of one root
//! object, no deletion on old sight, stamps, preconditions.
//! Must not know the queue, or what plans are for.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Map, Value, json};

use super::inflight::Open;
use super::owner::Owner;
use super::tables::{World, decision};
use crate::api::fleet::{PlacementSpec, Stage};
use crate::api::{Cluster, Id, Key, Kind, Time, Version, names};
use crate::plan::{Action, Precondition};
use crate::row::{Row, Stamps};

/// Sight that a deletion may rest on.
const SIGHT_MS: i64 = 15_000;

/// What is known of our standing when the actions are judged.
pub(super) struct Gate<'a> {
    pub(super) world: &'a World,
    pub(super) key: &'a Key,
    pub(super) owner: &'a Owner,
    pub(super) epoch: u64,
    pub(super) fleet_id: &'a str,
    /// Open writes for the root object, of all keys.
    pub(super) open: Open,
    /// The root object's key wants to hand it over: no new writes to the member until then.
    pub(super) closing: bool,
    /// A write to the member for this generation has, or had, an unknown outcome.
    pub(super) unknown: bool,
    /// Versions that our writes to the member got back.
    pub(super) written: &'a BTreeMap<Kind, Version>,
    pub(super) now: Time,
}

/// What may be done.
#[derive(Debug, PartialEq)]
pub(super) enum Verdict {
    /// Send these; `whole` = it is all that the plan wanted.
    Send { actions: Vec<Action>, whole: bool },
    /// Nothing now: these kinds are to be listed first.
    Relist(Cluster, Vec<Kind>),
    /// Nothing now: other writes for the root object are open. `handing_over`: ours is the one that must come first.
    Wait { handing_over: bool },
    /// We were superseded: a higher epoch of our unit was seen.
    Superseded(u64),
}

impl Gate<'_> {
    /// Judges a plan's actions.
    pub(super) fn judge(&self, actions: Vec<Action>) -> Verdict {
        if let Some(epoch) = self.higher_stamp(&actions) {
            return Verdict::Superseded(epoch);
        }
        if let Some((cluster, kinds)) = self.old_sight(&actions) {
            return Verdict::Relist(cluster, kinds);
        }
        let wanted = actions.len();
        let writes_to_member = actions.iter().any(writes_member);
        let mut actions = actions;
        if writes_to_member {
            // A hand-over is the last thing that an owner does: it waits for the next look.
            actions.retain(|action| !self.hands_over(action));
        }
        if let Some(root) = &self.owner.root {
            if writes_to_member {
                if self.open.hub > 0 || (self.closing && root.key != *self.key) {
                    return Verdict::Wait { handing_over: false };
                }
                if let Some(claim) = self.claim() {
                    return Verdict::Send { actions: vec![claim], whole: false };
                }
            }
            if self.open.member > 0 && actions.iter().any(|action| self.hands_over(action)) {
                return Verdict::Wait { handing_over: true };
            }
        }
        let actions = self.stamp_first(actions);
        let whole = actions.len() == wanted;
        Verdict::Send { actions: actions.into_iter().map(|action| self.complete(action)).collect(), whole }
    }

    fn row(&self, action: &Action) -> Option<&Row> {
        self.world.tables(&action.cluster())?.get(target(action)?)
    }

    fn placement(&self) -> Option<(&Row, &PlacementSpec)> {
        let row = self.world.hub.get(self.owner.root.as_ref()?.placement.as_ref()?)?;
        Some((row, &decision(row)?.spec))
    }

    // --- superseded ---

    /// A higher epoch of our unit, on what is to be written or on the `Placement` behind it (E3).
    fn higher_stamp(&self, actions: &[Action]) -> Option<u64> {
        if actions.is_empty() {
            return None;
        }
        let unit = &self.owner.unit;
        let on_placement = self.placement().map(|(row, spec)| {
            let claim = spec.claims.get(&**unit).copied().unwrap_or(0);
            claim.max(row.stamps.get(unit).copied().unwrap_or(0))
        });
        let on_targets = actions.iter().filter_map(|action| self.stamps(action).get(unit).copied());
        on_targets.chain(on_placement).filter(|epoch| *epoch > self.epoch).max()
    }

    /// Stamps of the object that is to be written: of its row, else (nobody watches it) of the body that was read.
    fn stamps(&self, action: &Action) -> Stamps {
        if let Some(row) = self.row(action) {
            return row.stamps.clone();
        }
        let (Action::Replace { body, .. } | Action::Status { body, .. }) = action else { return Stamps::new() };
        let text = body.pointer("/metadata/annotations").and_then(|a| a.get(names::STAMPS)).and_then(Value::as_str);
        text.and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default()
    }

    // --- old sight ---

    /// Tables that were not heard of lately and that a deletion rests on.
    fn old_sight(&self, actions: &[Action]) -> Option<(Cluster, Vec<Kind>)> {
        let deletion = actions.iter().find(|action| matches!(action, Action::Delete { .. }))?;
        let cluster = deletion.cluster();
        let tables = self.world.tables(&cluster)?;
        let deleted = actions.iter().filter(|a| matches!(a, Action::Delete { .. }) && a.cluster() == cluster);
        let mut kinds: Vec<Kind> = deleted.filter_map(|a| Some(target(a)?.kind)).collect();
        if self.key.cluster == cluster {
            kinds.push(self.key.id.kind);
        }
        kinds.sort_unstable();
        kinds.dedup();
        // What nobody watches was fetched for the purpose: its age is the plan's to judge.
        kinds.retain(|kind| {
            tables.table(*kind).listed.is_some_and(|_| self.now.0 - tables.table(*kind).heard.0 > SIGHT_MS)
        });
        (!kinds.is_empty()).then_some((cluster, kinds))
    }

    // --- the root object's two sides ---

    /// Whether this is a write of the `Placement` that moves it to another stage, hence maybe to another owner.
    fn hands_over(&self, action: &Action) -> bool {
        let Action::Replace { id, body, .. } = action else { return false };
        let Some((row, spec)) = self.placement() else { return false };
        *id == row.id && new_stage(body) != Some(spec.stage)
    }

    /// The write that claims the generation for our epoch (1.10), if it is not ours yet.
    fn claim(&self) -> Option<Action> {
        let (row, spec) = self.placement()?;
        if spec.claims.get(&*self.owner.unit) == Some(&self.epoch) {
            return None;
        }
        let mut body: Value = serde_json::from_str(row.body.as_deref()?).ok()?;
        body["spec"]["claims"][&*self.owner.unit] = json!(self.epoch);
        body["spec"]["unclean"] = json!(true);
        let claim = Action::Replace { cluster: Cluster::Hub, id: row.id.clone(), body, seen: Precondition::from(row) };
        Some(self.complete(claim))
    }

    // --- stamps and preconditions ---

    /// In a new epoch a status with a decision needs the object stamped before (1.8): a status write cannot carry a stamp.
    fn stamp_first(&self, actions: Vec<Action>) -> Vec<Action> {
        let needs_stamp = |action: &Action| {
            matches!(action, Action::Status { decision: true, .. })
                && self.stamps(action).get(&self.owner.unit) != Some(&self.epoch)
        };
        let stamped: Vec<(Cluster, Id)> = actions
            .iter()
            .filter(|action| needs_stamp(action))
            .filter_map(|action| Some((action.cluster(), target(action)?.clone())))
            .collect();
        if stamped.is_empty() {
            return actions;
        }
        let replaced = |action: &Action| {
            target(action).is_some_and(|id| stamped.iter().any(|(c, stamped)| stamped == id && *c == action.cluster()))
        };
        let mut out: Vec<Action> = Vec::with_capacity(actions.len());
        for action in actions {
            match action {
                Action::Status { cluster, id, body, seen, decision: true }
                    if needs_stamp(&Action::Status {
                        cluster: cluster.clone(),
                        id: id.clone(),
                        body: body.clone(),
                        seen: seen.clone(),
                        decision: true,
                    }) =>
                {
                    // The main resource ignores the status in it.
                    out.push(Action::Replace { cluster, id, body, seen });
                }
                other if replaced(&other) => {}
                other => out.push(other),
            }
        }
        out
    }

    /// Fills in what makes a write complete.
    fn complete(&self, action: Action) -> Action {
        let stamps = self.stamps_text(&action);
        let hands_over = self.hands_over(&action);
        match action {
            Action::Create { cluster, id, mut body } => {
                let metadata = object(&mut body, "metadata");
                if let (Cluster::Member(_), Some(root)) = (&cluster, &self.owner.root) {
                    object_in(metadata, "labels").insert(names::ROOT_ID.to_owned(), json!(root.identity.as_str()));
                    let annotations = object_in(metadata, "annotations");
                    annotations.insert(names::FLEET_ID.to_owned(), json!(self.fleet_id));
                    if !annotations.contains_key(names::ROOT_ID) && annotations.contains_key(names::ROOT) {
                        annotations.insert(names::ROOT_ID.to_owned(), json!(root.identity.as_str()));
                    }
                }
                object_in(metadata, "annotations").insert(names::STAMPS.to_owned(), stamps);
                if id.kind == Kind::Job && self.owner.root.is_some() && body["spec"]["template"].is_object() {
                    // The pods are made by others, and are ours all the same: a withdrawal deletes them one by one.
                    let of_pods = object(&mut body["spec"]["template"], "metadata");
                    object_in(of_pods, "annotations").insert(names::FLEET_ID.to_owned(), json!(self.fleet_id));
                }
                Action::Create { cluster, id, body }
            }
            Action::Replace { cluster, id, mut body, seen } => {
                if hands_over {
                    self.hand_over(&mut body);
                }
                let metadata = object(&mut body, "metadata");
                precondition(metadata, &seen);
                object_in(metadata, "annotations").insert(names::STAMPS.to_owned(), stamps);
                Action::Replace { cluster, id, body, seen }
            }
            Action::Status { cluster, id, mut body, seen, decision } => {
                precondition(object(&mut body, "metadata"), &seen);
                Action::Status { cluster, id, body, seen, decision }
            }
            Action::Merge { cluster, id, mut patch, seen } => {
                let metadata = object(&mut patch, "metadata");
                precondition(metadata, &seen);
                object_in(metadata, "annotations").insert(names::STAMPS.to_owned(), stamps);
                Action::Merge { cluster, id, patch, seen }
            }
            other @ (Action::Delete { .. } | Action::Ask { .. }) => other,
        }
    }

    /// The stamps of the object with ours set.
    fn stamps_text(&self, action: &Action) -> Value {
        let mut stamps = self.stamps(action);
        stamps.insert(self.owner.unit.clone(), self.epoch);
        json!(serde_json::to_string(&stamps).unwrap_or_default())
    }

    /// What the next owner must have seen, and that the generation is not clean any more if a write of ours may still be
    /// under way (1.11).
    fn hand_over(&self, body: &mut Value) {
        let Some((_, spec)) = self.placement() else { return };
        let root = self.owner.root.as_ref().and_then(|root| self.world.hub.get(&root.key.id));
        if let Some(root) = root {
            // Not the larger one: `not_reached` was waited out, so a lower number than the stored is a hub that was restored.
            object_in(object(body, "spec"), "root").insert("version".to_owned(), json!(root.version.0));
        }
        let same_generation = body["spec"]["generation"].as_i64().unwrap_or(0) == spec.generation;
        if !same_generation {
            return;
        }
        if !self.written.is_empty() {
            let up_to = object_in(object(body, "spec"), "writtenUpTo");
            for (kind, version) in self.written {
                let before = up_to.get(kind.name()).and_then(Value::as_u64).unwrap_or(0);
                up_to.insert(kind.name().to_owned(), json!(before.max(version.0)));
            }
        }
        if self.unknown && new_stage(body) == Some(Stage::Withdrawing) {
            body["spec"]["unclean"] = json!(true);
        }
    }
}

/// The object that an action writes; none for questions to Ray.
pub(super) fn target(action: &Action) -> Option<&Id> {
    match action {
        Action::Create { id, .. }
        | Action::Replace { id, .. }
        | Action::Status { id, .. }
        | Action::Merge { id, .. }
        | Action::Delete { id, .. } => Some(id),
        Action::Ask { .. } => None,
    }
}

/// Whether it changes something on a member. A question that only reads does not.
pub(super) fn writes_member(action: &Action) -> bool {
    match action {
        Action::Ask { question, .. } => !question.is_read(),
        other => other.cluster() != Cluster::Hub,
    }
}

fn new_stage(body: &Value) -> Option<Stage> {
    serde_json::from_value(body.get("spec")?.get("stage")?.clone()).ok()
}

fn precondition(metadata: &mut Map<String, Value>, seen: &Precondition) {
    metadata.insert("uid".to_owned(), json!(seen.uid.as_str()));
    metadata.insert("resourceVersion".to_owned(), json!(seen.version.to_string()));
}

/// The object under this name; made where there is none or something else.
fn object<'a>(value: &'a mut Value, name: &str) -> &'a mut Map<String, Value> {
    if !value.is_object() {
        *value = Value::Object(Map::new());
    }
    object_in(value.as_object_mut().expect("it was just made an object"), name)
}

fn object_in<'a>(map: &'a mut Map<String, Value>, name: &str) -> &'a mut Map<String, Value> {
    let value = map.entry(name.to_owned()).or_insert(Value::Null);
    if !value.is_object() {
        *value = Value::Object(Map::new());
    }
    value.as_object_mut().expect("it was just made an object")
}

/// A table with the version that it is to reach.
pub(super) type Reach = (Cluster, Kind, Version);

/// What the former owner of a key saw or wrote and is not in sight here yet: tables with the version to reach.
pub(super) fn not_reached(world: &World, key: &Key, owner: &Owner) -> Vec<Reach> {
    let Some(placement) = owner.root.as_ref().and_then(|root| root.placement.as_ref()) else { return Vec::new() };
    let Some(spec) = world.hub.get(placement).and_then(decision).map(|p| &p.spec) else { return Vec::new() };
    let mut wanted = Vec::new();
    if key.cluster == Cluster::Hub {
        // Tables of the hub follow each other at no fixed distance: a decision is not judged by an older root object.
        wanted.push((Cluster::Hub, key.id.kind, Version(spec.root.version)));
    }
    if let Some(member) = owner.member.clone().filter(|member| !world.is_given_up(member)) {
        let kind = |name: &str| Kind::ALL.iter().copied().find(|kind| kind.name() == name);
        let written = spec.written_up_to.iter().filter_map(|(name, version)| Some((kind(name)?, Version(*version))));
        wanted.extend(written.map(|(kind, version)| (Cluster::Member(member.clone()), kind, version)));
    }
    wanted.retain(|(cluster, kind, version)| {
        let table = world.tables(cluster).map(|tables| tables.table(*kind));
        // Kinds that nobody watches are read afresh by whoever needs them.
        table.is_some_and(|table| table.listed.is_some() && table.version < *version)
    });
    wanted
}

/// Name of the unit, for the sentence that says who else may plan a key.
pub(super) fn not_ours(unit: &Arc<str>) -> String {
    format!("unit {unit} is not held by this replica")
}
