//! Typed objects: the four kinds of `ray.io`, the fleet's own, Leases.
//! What decodes keeps every field that it was sent, reads back from what it writes, and is judged without a panic.

use rayfleet::api::fleet::{MemberCapacity, MemberCluster, Placement, PlacementPolicy};
use rayfleet::api::json::distinct;
use rayfleet::api::ray::{RayCluster, RayCronJob, RayJob, RayService};
use rayfleet::api::{Kind, Time, crds};
use rayfleet::plan::place::{Picture, Received};
use rayfleet::plan::{Flags, build, gang, validate};
use rayfleet::row::decode;
use serde_json::{Value, json};

use super::corpus::{Corpus, Sample};
use super::{Check, Verdict};

/// Time that is handed to what asks for one.
const NOW: Time = Time(1_800_000_000_000);

/// What is written is read again as the same; `Ok(None)` where the input is no such object.
macro_rules! stable {
    ($type:ty, $input:expr) => {{
        let read = |text: &[u8]| serde_json::from_slice::<$type>(text);
        match read($input) {
            Err(_) => Ok(None),
            Ok(typed) => match serde_json::to_vec(&typed).map(|text| read(&text)) {
                Err(why) => Err(format!("cannot be written: {why}")),
                Ok(Err(why)) => Err(format!("what it writes is refused: {why}")),
                Ok(Ok(again)) if again == typed => Ok(Some(typed)),
                // Equal but for the last digit of a number.
                Ok(Ok(again)) => match (serde_json::to_value(&typed), serde_json::to_value(&again)) {
                    (Ok(one), Ok(other)) if lost(&one, &other, "").is_none() => Ok(Some(typed)),
                    _ => Err("what it writes reads back as something else".to_owned()),
                },
            },
        }
    }};
}

/// Typed objects keep all that came. `Ok(None)` where the input is no such object.
macro_rules! kept {
    ($type:ty, $input:expr) => {{
        let typed: Result<Option<$type>, String> = stable!($type, $input);
        typed.and_then(|typed| {
            // Of a key that stands twice only one value can be kept: nothing to compare.
            let (Some(typed), Ok(value)) = (typed, distinct($input)) else { return Ok(None) };
            let written = serde_json::to_value(&typed).map_err(|e| format!("cannot be written: {e}"))?;
            match lost(&value, &written, "") {
                Some(path) => Err(format!("{path} is lost or changed")),
                None => Ok(Some((value, typed))),
            }
        })
    }};
}

fn of_kind(corpus: &Corpus, kind: &str) -> Vec<Sample> {
    corpus.of(kind).into_iter().map(Sample::Json).collect()
}

pub(super) fn rayjobs(corpus: &Corpus) -> Vec<Sample> {
    of_kind(corpus, "RayJob")
}

pub(super) fn rayclusters(corpus: &Corpus) -> Vec<Sample> {
    of_kind(corpus, "RayCluster")
}

pub(super) fn rayservices(corpus: &Corpus) -> Vec<Sample> {
    of_kind(corpus, "RayService")
}

pub(super) fn raycronjobs(corpus: &Corpus) -> Vec<Sample> {
    of_kind(corpus, "RayCronJob")
}

pub(super) fn placements(corpus: &Corpus) -> Vec<Sample> {
    of_kind(corpus, "Placement")
}

pub(super) fn capacities(corpus: &Corpus) -> Vec<Sample> {
    of_kind(corpus, "MemberCapacity")
}

pub(super) fn members(corpus: &Corpus) -> Vec<Sample> {
    of_kind(corpus, "MemberCluster")
}

/// Nobody has written one yet: every field with a value, as its own type writes them.
pub(super) fn policies(_: &Corpus) -> Vec<Sample> {
    let spec = json!({"defaultQueue": "ml", "preference": ["eu", "us"], "admissionDeadlineSeconds": 30,
                      "startDeadlineSeconds": 300});
    let policy = json!({"apiVersion": "rayfleet.io/v1alpha1", "kind": "PlacementPolicy", "spec": spec,
                        "metadata": {"name": "default", "namespace": "ml", "uid": "u", "resourceVersion": "7"}});
    vec![Sample::Json(policy)]
}

pub(super) fn check_policies() -> Check {
    Box::new(|input| {
        stable!(PlacementPolicy, input)?;
        rowed(Kind::PlacementPolicy, input)
    })
}

pub(super) fn leases(corpus: &Corpus) -> Vec<Sample> {
    of_kind(corpus, "Lease")
}

pub(super) fn check_rayjobs() -> Check {
    Box::new(|input| {
        let Some((value, job)) = kept!(RayJob, input)? else { return judged(Kind::RayJob, input) };
        let _ = build::submit_body(&job, "id");
        let _ = build::cluster_of(&job, "train-abcde");
        shaped(&value);
        judged(Kind::RayJob, input)
    })
}

pub(super) fn check_rayclusters() -> Check {
    Box::new(|input| {
        if let Some((value, _)) = kept!(RayCluster, input)? {
            shaped(&value);
        }
        judged(Kind::RayCluster, input)
    })
}

pub(super) fn check_rayservices() -> Check {
    Box::new(|input| {
        kept!(RayService, input)?;
        judged(Kind::RayService, input)
    })
}

pub(super) fn check_raycronjobs() -> Check {
    Box::new(|input| {
        kept!(RayCronJob, input)?;
        judged(Kind::RayCronJob, input)
    })
}

pub(super) fn check_placements() -> Check {
    Box::new(|input| {
        stable!(Placement, input)?;
        rowed(Kind::Placement, input)
    })
}

pub(super) fn check_capacities() -> Check {
    Box::new(|input| {
        if let Some(capacity) = stable!(MemberCapacity, input)? {
            let _ = Picture::parse(&capacity.spec);
            let _ = Received::read(&capacity.spec, NOW);
        }
        rowed(Kind::MemberCapacity, input)
    })
}

pub(super) fn check_members() -> Check {
    Box::new(|input| {
        stable!(MemberCluster, input)?;
        rowed(Kind::MemberCluster, input)
    })
}

pub(super) fn check_leases() -> Check {
    Box::new(|input| {
        let Ok(value) = distinct(input) else { return Ok(()) };
        if let Ok(record) = shards::Record::parse(&value) {
            let _ = (record.seat(), record.held_by());
            let body = record.body("rayfleet", "2026-11-29T12:00:00.000000Z");
            let again = shards::Record::parse(&body).map_err(|e| format!("its own body is refused: {e}"))?;
            // A record that was never stored has no version and hence no UID.
            if !record.version.is_empty() && again != record {
                return Err(format!("{record:?} comes back as {again:?}"));
            }
        }
        rowed(Kind::Lease, input)
    })
}

/// Whether two values are equal but for the last digits of numbers, and for nulls.
pub(super) fn same(one: &Value, other: &Value) -> bool {
    lost(one, other, "").is_none() && lost(other, one, "").is_none()
}

/// Path of the first value that does not stand in `written`; a null may be left out.
fn lost(value: &Value, written: &Value, at: &str) -> Option<String> {
    match (value, written) {
        (Value::Null, _) => None,
        (Value::Object(all), Value::Object(some)) => {
            all.iter().filter(|(_, value)| !value.is_null()).find_map(|(key, value)| {
                let path = format!("{at}/{key}");
                match some.get(key) {
                    Some(written) => lost(value, written, &path),
                    None => Some(path),
                }
            })
        }
        (Value::Array(all), Value::Array(some)) if all.len() == some.len() => {
            all.iter().zip(some).enumerate().find_map(|(i, (one, other))| lost(one, other, &format!("{at}/{i}")))
        }
        _ if value == written || near(value, written) => None,
        _ => Some(at.to_owned()),
    }
}

/// Numbers beyond 64 bits are kept as floats, whose last digit may change with each reading.
fn near(one: &Value, other: &Value) -> bool {
    let (Value::Number(one), Value::Number(other)) = (one, other) else { return false };
    let (Some(x), Some(y)) = (one.as_f64(), other.as_f64()) else { return false };
    (one.is_f64() && other.is_f64()) && (x - y).abs() <= x.abs() * 1e-15
}

/// Rules and definitions are total, and say the same twice.
fn judged(kind: Kind, input: &[u8]) -> Verdict {
    let Ok(mut value) = serde_json::from_slice::<Value>(input) else { return Ok(()) };
    if validate::object(kind, &value) != validate::object(kind, &value) {
        return Err("the rules say two different things".to_owned());
    }
    let _ = crds::unknown_fields(kind, &value);
    rowed(kind, input)?;
    if value.is_object() {
        value["apiVersion"] = json!(format!("ray.io/{}", crds::OLDER));
        if crds::lifted(&mut value).is_some() && crds::lifted(&mut value).is_some() {
            return Err("an object of the stored version is lifted again".to_owned());
        }
    }
    Ok(())
}

fn shaped(root: &Value) {
    let flags = Flags::default();
    let Ok(shape) = gang::shape(root, &flags) else { return };
    let _ = gang::Gang::parse(&shape);
}

/// A row says of itself what it was decoded from.
fn rowed(kind: Kind, input: &[u8]) -> Verdict {
    let Ok(row) = decode(kind, input) else { return Ok(()) };
    let Ok(value) = distinct(input) else { return Ok(()) };
    let name = value["metadata"]["name"].as_str().unwrap_or_default();
    if row.id.kind != kind || &*row.id.name != name {
        return Err(format!("a row of {name:?} is called {}", row.id));
    }
    if let Some(body) = &row.body {
        serde_json::from_str::<Value>(body).map_err(|e| format!("a row's body is no JSON: {e}"))?;
    }
    Ok(())
}
