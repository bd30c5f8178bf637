//! Compares what was played with what was recorded, both normalised.
//! Must not know which differences are meant to be: it asks.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

use super::align::{align, collected, likeness};
use super::explained::{Differs, Explanations};
use super::pairs::{Pairs, masked};
use super::recording::{Phase, Recording, Round, Write};

/// One difference.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Difference {
    /// Where in the recording.
    pub at: String,
    /// The same without numbers, so that like differences of many cases are found together.
    pub class: String,
    /// What is there, in a line.
    pub what: String,
}

/// What a comparison has come to.
pub(super) struct Comparison<'a> {
    /// What differs and is not explained.
    pub(super) differences: Vec<Difference>,
    explanations: &'a mut Explanations,
    pairs: Pairs,
    unstable: BTreeSet<String>,
}

/// Controllers in the order in which their writes are listed.
const CONTROLLERS: &[&str] = &["raycronjob", "rayjob", "rayservice", "raycluster", "networkpolicy", "mtls"];

/// Compares; the differences that nothing explains.
pub(super) fn compare(ours: &Recording, theirs: &Recording, explanations: &mut Explanations) -> Vec<Difference> {
    let unstable = theirs.unstable.iter().cloned().collect();
    let mut comparison = Comparison { differences: Vec::new(), explanations, pairs: Pairs::default(), unstable };
    for (at, phase) in theirs.phases.iter().enumerate() {
        match ours.phases.get(at) {
            Some(own) => comparison.phase(&format!("/phases/{at}"), own, phase),
            None => comparison.tell(&format!("/phases/{at}"), "phase", "it was not played".to_owned()),
        }
    }
    comparison.differences
}

impl Comparison<'_> {
    fn tell(&mut self, at: &str, class: &str, what: String) {
        if !self.is_unstable(at) {
            self.differences.push(Difference { at: at.to_owned(), class: class.to_owned(), what });
        }
    }

    /// Whether a value, or something that it stands in, differed between recordings.
    fn is_unstable(&self, at: &str) -> bool {
        self.unstable.iter().any(|pointer| at.strip_prefix(pointer).is_some_and(|r| r.is_empty() || r.starts_with('/')))
    }

    fn phase(&mut self, at: &str, ours: &Phase, theirs: &Phase) {
        let stimuli = |phase: &Phase| phase.rounds.iter().map(|r| masked(&r.stimulus)).collect::<Vec<_>>();
        let steps = align(&stimuli(ours), &stimuli(theirs), |a, b| u32::from(a == b));
        for step in steps {
            match step {
                (Some(i), Some(j)) => self.round(&format!("{at}/rounds/{j}"), &ours.rounds[i], &theirs.rounds[j]),
                (Some(i), None) => self.lone_round(at, &ours.rounds[i], Side::Ours),
                (None, Some(j)) => self.lone_round(&format!("{at}/rounds/{j}"), &theirs.rounds[j], Side::Theirs),
                (None, None) => {}
            }
        }
        let refuses = |phase: &Phase| phase.api_server_messages.iter().any(|line| !line.starts_with("Warning:"));
        if refuses(ours) != refuses(theirs) {
            let what = format!("{:?} / {:?}", ours.api_server_messages, theirs.api_server_messages);
            self.tell(&format!("{at}/apiServerMessages"), "what the API server refuses", what);
        }
        self.listed(&format!("{at}/objects"), &ours.objects, &theirs.objects);
        self.events(&format!("{at}/events"), &ours.events, &theirs.events);
        self.listed(&format!("{at}/remaining"), &ours.remaining, &theirs.remaining);
    }

    fn lone_round(&mut self, at: &str, round: &Round, side: Side) {
        let class =
            format!("round {}: {}", side.word(), masked(&round.stimulus).split(" pod ").next().unwrap_or_default());
        let what = format!("{} ({} writes)", round.stimulus, round.writes.len());
        self.tell(at, &class, what);
    }

    fn round(&mut self, at: &str, ours: &Round, theirs: &Round) {
        if !self.pairs.same(&ours.stimulus, &theirs.stimulus) {
            self.tell(&format!("{at}/stimulus"), "stimulus", format!("{} / {}", ours.stimulus, theirs.stimulus));
        }
        if !self.is_unstable(&format!("{at}/writes")) {
            for by in CONTROLLERS {
                self.writes(at, by, ours, theirs);
            }
        }
        let list =
            |round: &Round| round.dashboard_requests.iter().map(|ask| masked(&ask.to_string())).collect::<Vec<_>>();
        for step in align(&list(ours), &list(theirs), |a, b| u32::from(a == b)) {
            let (side, ask) = match step {
                (Some(i), None) => (Side::Ours, &ours.dashboard_requests[i]),
                (None, Some(j)) => (Side::Theirs, &theirs.dashboard_requests[j]),
                (Some(i), Some(j)) => {
                    let (own, there) = (&ours.dashboard_requests[i], &theirs.dashboard_requests[j]);
                    if !self.pairs.same(&own.to_string(), &there.to_string()) {
                        self.tell(at, "dashboard request about another job", format!("{own} / {there}"));
                    }
                    continue;
                }
                (None, None) => continue,
            };
            let differs = Differs::Ask { is_extra: side == Side::Ours, ask };
            if !self.explanations.explain(&differs) {
                let method = ask["method"].as_str().unwrap_or_default();
                self.tell(at, &format!("{method} of the dashboard {}", side.word()), ask.to_string());
            }
        }
    }

    fn writes(&mut self, at: &str, by: &str, ours: &Round, theirs: &Round) {
        let own: Vec<Write> = ours.writes.iter().filter(|write| write.by == by).cloned().collect();
        let there: Vec<(usize, &Write)> = theirs.writes.iter().enumerate().filter(|(_, w)| w.by == by).collect();
        let own = collected(own, &there);
        let steps = align(&own, &there, |a, (_, b)| likeness(a, b));
        for step in steps {
            match step {
                (Some(i), Some(j)) => {
                    let (number, write) = there[j];
                    self.write(&format!("{at}/writes/{number}"), &own[i], write);
                }
                (Some(i), None) => {
                    let others: Vec<&Write> = there.iter().map(|(_, write)| *write).collect();
                    let differs = Differs::Write {
                        is_extra: true,
                        at: i,
                        side: &own.iter().collect::<Vec<_>>(),
                        others: &others,
                    };
                    if !self.explanations.explain(&differs) {
                        self.lone_write(at, &own[i], Side::Ours);
                    }
                }
                (None, Some(j)) => {
                    let (number, write) = there[j];
                    let side: Vec<&Write> = there.iter().map(|(_, write)| *write).collect();
                    let others: Vec<&Write> = own.iter().collect();
                    let differs = Differs::Write { is_extra: false, at: j, side: &side, others: &others };
                    if !self.explanations.explain(&differs) {
                        self.lone_write(&format!("{at}/writes/{number}"), write, Side::Theirs);
                    }
                }
                (None, None) => {}
            }
        }
    }

    fn lone_write(&mut self, at: &str, write: &Write, side: Side) {
        let class = format!("write {}: {} {} {}", side.word(), write.by, write.verb, write.class());
        let body: String = write.body.to_string().chars().take(600).collect();
        self.tell(at, &class, format!("{} {body}", write.title()));
    }

    fn write(&mut self, at: &str, ours: &Write, theirs: &Write) {
        let kind = kind_of(theirs);
        if theirs.verb == "deletecollection" {
            return;
        }
        if ours.verb != theirs.verb && !self.explanations.explain(&Differs::Verb { ours, theirs }) {
            let class = format!("verb: {} instead of {} {}", ours.verb, theirs.verb, theirs.class());
            self.tell(&format!("{at}/verb"), &class, ours.body.to_string());
            return;
        }
        if ours.verb != theirs.verb {
            return;
        }
        let name = |write: &Write| write.name.clone().unwrap_or_default();
        if !self.pairs.same(&name(ours), &name(theirs)) {
            let class = format!("name: {} {}", theirs.verb, theirs.class());
            let what = format!("{} is {} there", name(ours), self.pairs.translated(&name(theirs)));
            self.tell(&format!("{at}/name"), &class, what);
        }
        if ours.code != theirs.code {
            self.tell(&format!("{at}/code"), "code of a refusal", format!("{:?} / {:?}", ours.code, theirs.code));
        }
        let place = Place {
            at: format!("{at}/body"),
            kind,
            within: String::new(),
            of: format!("{} {}", theirs.verb, theirs.class()),
        };
        self.value(&place, Some(&ours.body), Some(&theirs.body));
    }

    /// Objects by kind and name.
    fn listed(&mut self, at: &str, ours: &[Value], theirs: &[Value]) {
        if self.is_unstable(at) {
            return;
        }
        let key = |object: &Value| {
            let name = object["metadata"]["name"].as_str().or(object["name"].as_str());
            (object["kind"].as_str().unwrap_or_default().to_owned(), name.unwrap_or_default().to_owned())
        };
        let mut left: Vec<&Value> = ours.iter().collect();
        for (number, object) in theirs.iter().enumerate() {
            let (kind, name) = key(object);
            let found = left.iter().position(|own| {
                let (own_kind, own_name) = key(own);
                own_kind == kind && self.pairs.translated(&own_name) == name
            });
            // What neither side has written about so far, such as pods of Jobs, has no partner yet.
            let found = found.or_else(|| {
                let masks = |own: &&Value| key(own).0 == kind && masked(&key(own).1) == masked(&name);
                left.iter().position(|own| masks(own) && self.pairs.clone().same(&key(own).1, &name))
            });
            let place = format!("{at}/{number}");
            match found {
                Some(at) => {
                    let own = left.remove(at);
                    let place =
                        Place { at: place, kind: kind.clone(), within: String::new(), of: format!("object {kind}") };
                    self.value(&place, Some(own), Some(object));
                }
                None => self.tell(&place, &format!("object missing: {kind}"), name),
            }
        }
        for own in left {
            let (kind, name) = key(own);
            self.tell(at, &format!("object extra: {kind}"), name);
        }
    }

    fn events(&mut self, at: &str, ours: &[Value], theirs: &[Value]) {
        if self.is_unstable(at) {
            return;
        }
        let fields = ["type", "reason", "action", "reportingController"];
        let title = |event: &Value| {
            let words = fields.map(|field| event[field].as_str().unwrap_or_default());
            format!("{} {}", event["regarding"]["kind"].as_str().unwrap_or_default(), words.join(" "))
        };
        let name = |event: &Value| event["regarding"]["name"].as_str().unwrap_or_default().to_owned();
        let mut left: Vec<&Value> = ours.iter().collect();
        for (number, event) in theirs.iter().enumerate() {
            let place = format!("{at}/{number}");
            let found = left
                .iter()
                .position(|own| title(own) == title(event) && self.pairs.clone().same(&name(own), &name(event)));
            match found {
                Some(at) => {
                    let own = left.remove(at);
                    let place = Place { at: place, kind: "Event".into(), within: String::new(), of: "event".into() };
                    self.value(&place, Some(own), Some(event));
                }
                None => self.tell(&place, &format!("event missing: {}", title(event)), event["note"].to_string()),
            }
        }
        for own in left {
            self.tell(at, &format!("event extra: {}", title(own)), own["note"].to_string());
        }
    }

    fn value(&mut self, place: &Place, ours: Option<&Value>, theirs: Option<&Value>) {
        if self.is_unstable(&place.at) {
            return;
        }
        match (ours, theirs) {
            (Some(Value::Object(own)), Some(Value::Object(there))) => self.map(place, own, there),
            (Some(Value::Array(own)), Some(Value::Array(there))) if own.len() == there.len() => {
                let differs = Differs::Value { kind: &place.kind, pointer: &place.within, ours, theirs };
                if own != there && self.explanations.explain(&differs) {
                    return;
                }
                for (number, (mine, yours)) in own.iter().zip(there).enumerate() {
                    self.value(&place.item(number), Some(mine), Some(yours));
                }
            }
            (Some(Value::String(own)), Some(Value::String(there))) if self.pairs.same(own, there) => {}
            (own, there) if own == there => {}
            _ => self.leaf(place, ours, theirs),
        }
    }

    fn map(&mut self, place: &Place, ours: &Map<String, Value>, theirs: &Map<String, Value>) {
        let keys: BTreeSet<&String> = ours.keys().chain(theirs.keys()).collect();
        for key in keys {
            self.value(&place.field(key), ours.get(key), theirs.get(key));
        }
    }

    fn leaf(&mut self, place: &Place, ours: Option<&Value>, theirs: Option<&Value>) {
        let differs = Differs::Value { kind: &place.kind, pointer: &place.within, ours, theirs };
        if self.explanations.explain(&differs) {
            return;
        }
        let text =
            |value: Option<&Value>| value.map_or("absent".to_owned(), |v| v.to_string().chars().take(400).collect());
        self.tell(&place.at, &format!("{}: {}", place.of, place.within), format!("{} / {}", text(ours), text(theirs)));
    }
}

/// Which side has what the other lacks.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Side {
    Ours,
    Theirs,
}

impl Side {
    fn word(self) -> &'static str {
        if self == Side::Ours { "extra" } else { "missing" }
    }
}

/// A value on its way down.
struct Place {
    /// Pointer in the recording.
    at: String,
    kind: String,
    /// Pointer in the object, with `-` for every number.
    within: String,
    of: String,
}

impl Place {
    fn field(&self, key: &str) -> Place {
        let escaped = key.replace('~', "~0").replace('/', "~1");
        Place { at: format!("{}/{escaped}", self.at), within: format!("{}/{escaped}", self.within), ..self.same() }
    }

    fn item(&self, number: usize) -> Place {
        Place { at: format!("{}/{number}", self.at), within: format!("{}/-", self.within), ..self.same() }
    }

    fn same(&self) -> Place {
        Place { at: String::new(), kind: self.kind.clone(), within: String::new(), of: self.of.clone() }
    }
}

fn kind_of(write: &Write) -> String {
    let kind = write.body["kind"].as_str().filter(|_| write.verb != "delete");
    kind.unwrap_or(if write.verb == "delete" { "Delete" } else { "" }).to_owned()
}

#[cfg(test)]
mod tests;
