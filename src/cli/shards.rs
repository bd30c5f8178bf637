//! `rayfleet shards`: which replica holds what, from the records on the hub, beside what the ring says; and why an object
//! is a replica's.
//! Must not decide or write anything: the records are the truth, and the rule (κ) is the engine's own.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Result, anyhow, bail};
use serde::Serialize;
use serde_json::Value;
use shards::Record;
use shards::hash::{ALGORITHM, queue_units};
use shards::lease;

use super::End;
use super::access::{Access, Hub};
use super::explain::object_id;
use super::output::{self, Format};
use crate::api::fleet::MemberCluster;
use crate::api::{Id, Kind, Time, member_unit};
use crate::engine;
use crate::plan::Flags;
use crate::row::Tables;
use crate::shell::clock::Clock;

/// Options of `rayfleet shards`.
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  rayfleet shards                        seats, and how many units each holds
  rayfleet shards --units                every unit: holder, epoch, and where the ring puts it
  rayfleet shards why rayjob/train       the unit of an object, and the replica that works on it")]
pub(crate) struct ShardsArgs {
    #[command(subcommand)]
    command: Option<ShardsCommand>,
    /// Every unit, not only the seats
    #[arg(long)]
    units: bool,
    /// Namespace on the hub with the Leases
    #[arg(
        long,
        env = "RAYFLEET_LEASE_NAMESPACE",
        value_name = "NAME",
        default_value = "rayfleet-system",
        value_parser = super::names::namespace,
        global = true
    )]
    lease_namespace: String,
    /// Form of the output
    #[arg(short, long, value_enum, default_value_t = Format::Table, global = true)]
    output: Format,
}

#[derive(clap::Subcommand, Debug)]
enum ShardsCommand {
    /// Say which unit an object belongs to, and which replica works on it
    Why {
        /// The object: rayjob/NAME or raycluster/NAME
        #[arg(value_name = "KIND/NAME")]
        object: String,
    },
}

/// Who holds what. Programs get exactly this.
#[derive(Debug, Serialize, PartialEq)]
#[serde(rename_all = "camelCase")]
struct Ownership {
    seats: Vec<Seat>,
    units: Vec<Unit>,
    /// Units that no replica holds.
    unowned: usize,
    /// The one that nobody has held for longest.
    oldest_unowned: Option<Unit>,
}

#[derive(Debug, Serialize, PartialEq, Clone)]
#[serde(rename_all = "camelCase")]
struct Seat {
    name: String,
    /// `joining`, `ready`, `draining`, or `free` where no process holds it.
    state: String,
    /// The process that holds it.
    process: String,
    incarnation: u64,
    /// Since its last renewal, by the clocks of its process and of this machine: for people.
    renewed_seconds_ago: Option<u64>,
    /// Units held.
    units: usize,
    /// Units that the ring gives it.
    target: usize,
}

#[derive(Debug, Serialize, PartialEq, Clone)]
#[serde(rename_all = "camelCase")]
struct Unit {
    name: String,
    /// The seat that holds it; absent where nobody does.
    seat: Option<String>,
    epoch: u64,
    /// Since its record was last written, as above; absent where there is none.
    seconds: Option<u64>,
    /// The seat that the ring gives it to.
    target: Option<String>,
}

/// Why an object is a replica's. Programs get exactly this.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Why {
    object: String,
    namespace: String,
    /// What in the object decides.
    because: String,
    unit: Unit,
    seat: Option<Seat>,
}

pub(crate) async fn run(args: ShardsArgs, access: &Access) -> Result<End> {
    let hub = access.hub().await?;
    let now = Clock::default().now();
    let leases = hub.list(Kind::Lease, Some(&args.lease_namespace)).await?;
    let members = hub.list(Kind::MemberCluster, None).await?;
    let ownership = read(&leases, &members, now);
    if ownership.seats.is_empty() {
        bail!(
            "no replica has ever run: there is no seat in namespace {} (--lease-namespace names another); \
             start one: rayfleet run",
            args.lease_namespace
        );
    }
    let text = match &args.command {
        None => args.output.render(&ownership, || table(&ownership, args.units))?,
        Some(ShardsCommand::Why { object }) => {
            let why = why(&hub, &object_id(object, &hub.namespace)?, &ownership).await?;
            args.output.render(&why, || sentence(&why))?
        }
    };
    output::print(&text)?;
    Ok(End::Done)
}

/// What the records say, and the ring on the seats that are ready.
fn read(leases: &[Value], members: &[Value], now: Time) -> Ownership {
    let mut seats = BTreeMap::new();
    let mut records = BTreeMap::new();
    for lease in leases {
        let record = match Record::parse(lease) {
            Ok(record) => record,
            Err(why) => {
                // As the replicas do: as if it were not there.
                let name = lease["metadata"]["name"].as_str().unwrap_or("?");
                tracing::warn!("Lease {name} cannot be read: {why}");
                continue;
            }
        };
        let written = lease["spec"]["renewTime"].as_str().and_then(Time::parse);
        let ago = written.map(|at| now.since(at).as_secs());
        match record.seat().map(str::to_owned) {
            Some(seat) => seats.insert(seat, (record, ago)),
            None => records.insert(record.name.clone(), (record, ago)),
        };
    }
    let names = all_units(members);
    let ready: Vec<String> =
        seats.iter().filter(|(_, (seat, _))| is_ready(seat)).map(|(name, _)| name.clone()).collect();
    let targets = shards::ring::targets(&ready, names.iter().map(String::as_str));
    let units: Vec<Unit> = names
        .into_iter()
        .map(|name| {
            let found = records.get(&name);
            let holder = found.and_then(|(record, _)| record.held_by()).filter(|(seat, incarnation)| {
                seats.get(*seat).is_some_and(|(s, _)| s.transitions == *incarnation && !s.holder.is_empty())
            });
            Unit {
                seat: holder.map(|(seat, _)| seat.to_owned()),
                epoch: found.map_or(0, |(record, _)| record.transitions),
                seconds: found.and_then(|(_, ago)| *ago),
                target: targets.get(&name).cloned(),
                name,
            }
        })
        .collect();
    let count = |seat: &String, of: fn(&Unit) -> &Option<String>| {
        units.iter().filter(|unit| of(unit).as_ref() == Some(seat)).count()
    };
    let seats = seats
        .into_iter()
        .map(|(name, (record, ago))| Seat {
            state: if record.holder.is_empty() { "free".to_owned() } else { state(&record) },
            process: record.holder,
            incarnation: record.transitions,
            renewed_seconds_ago: ago,
            units: count(&name, |unit| &unit.seat),
            target: count(&name, |unit| &unit.target),
            name,
        })
        .collect();
    let unowned: Vec<&Unit> = units.iter().filter(|unit| unit.seat.is_none()).collect();
    let oldest_unowned = unowned.iter().max_by_key(|unit| unit.seconds).map(|&unit| unit.clone());
    Ownership { seats, unowned: unowned.len(), oldest_unowned, units }
}

fn state(seat: &Record) -> String {
    seat.annotations.get(lease::STATE).cloned().unwrap_or_else(|| "unknown".to_owned())
}

fn is_ready(seat: &Record) -> bool {
    let same = seat.annotations.get(lease::ALGORITHM).is_some_and(|version| *version == ALGORITHM.to_string());
    !seat.holder.is_empty() && state(seat) == lease::READY && same
}

/// The queue units, and those of all members.
fn all_units(members: &[Value]) -> BTreeSet<String> {
    let of = |member: &Value| {
        let name = member["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        let member: MemberCluster = serde_json::from_value(member.clone()).unwrap_or_default();
        (0..member.spec.unit_count()).map(move |index| member_unit(&name, index).to_string())
    };
    queue_units().chain(members.iter().flat_map(of)).collect()
}

fn table(ownership: &Ownership, all: bool) -> String {
    let ago = |seconds: Option<u64>| seconds.map_or_else(|| "-".to_owned(), output::span);
    let dash = |text: &Option<String>| text.clone().unwrap_or_else(|| "-".to_owned());
    let seats = output::columns(
        &["SEAT", "STATE", "UNITS", "TARGET", "LIFE", "RENEWED", "PROCESS"],
        ownership.seats.iter().map(|seat| {
            [
                seat.name.clone(),
                seat.state.clone(),
                seat.units.to_string(),
                seat.target.to_string(),
                seat.incarnation.to_string(),
                ago(seat.renewed_seconds_ago),
                if seat.process.is_empty() { "-".to_owned() } else { seat.process.clone() },
            ]
        }),
    );
    let units = all.then(|| {
        output::columns(
            &["UNIT", "SEAT", "EPOCH", "WRITTEN", "TARGET"],
            ownership.units.iter().map(|unit| {
                [unit.name.clone(), dash(&unit.seat), unit.epoch.to_string(), ago(unit.seconds), dash(&unit.target)]
            }),
        )
    });
    let held = match &ownership.oldest_unowned {
        None => format!("Every one of {} units is held.", ownership.units.len()),
        Some(unit) => format!(
            "{} of {} units are held by nobody; for longest {} ({}).",
            ownership.unowned,
            ownership.units.len(),
            unit.name,
            unit.seconds.map_or_else(|| "never held".to_owned(), |s| format!("since {}", output::span(s)))
        ),
    };
    let nobody =
        ownership.seats.iter().all(|seat| seat.process.is_empty()).then(|| {
            "No replica runs: nothing is placed, followed or reported until one does (rayfleet run).".to_owned()
        });
    std::iter::once(seats).chain(units).chain(nobody).chain([held]).collect::<Vec<_>>().join("\n\n")
}

async fn why(hub: &Hub, id: &Id, ownership: &Ownership) -> Result<Why> {
    let mut rows = Vec::new();
    for kind in [id.kind, Kind::Placement, Kind::PlacementPolicy, Kind::MemberCluster] {
        rows.extend(hub.rows(kind).await?);
    }
    let tables = Tables::from_rows(rows);
    if tables.get(id).is_none() {
        bail!("{id} is not on the hub; those that are: kubectl get {} -A", id.kind.plural());
    }
    let found = engine::unit_of(tables, Flags::default(), id).map_err(|why| anyhow!("{id}: {}", why.0))?;
    let unit = ownership.units.iter().find(|unit| *unit.name == *found.unit).cloned();
    let unit = unit.ok_or_else(|| anyhow!("{id} belongs to unit {}, which is not there", found.unit))?;
    let seat = unit.seat.as_ref().and_then(|name| ownership.seats.iter().find(|seat| seat.name == *name)).cloned();
    Ok(Why {
        object: super::submit::named(id),
        namespace: id.namespace.to_string(),
        because: found.because,
        unit,
        seat,
    })
}

fn sentence(why: &Why) -> String {
    let Why { object, namespace, because, unit, seat } = why;
    let held = match seat {
        Some(seat) => format!(
            "seat {} holds it at epoch {} (process {}{})",
            seat.name,
            unit.epoch,
            seat.process,
            seat.renewed_seconds_ago.map_or_else(String::new, |s| format!(", renewed {} ago", output::span(s)))
        ),
        None => "nobody holds it".to_owned(),
    };
    let target = match (&unit.target, &unit.seat) {
        (Some(target), Some(seat)) if target == seat => "the ring says the same".to_owned(),
        (Some(target), _) => format!("the ring gives it to seat {target}"),
        (None, _) => "no seat is ready to take it".to_owned(),
    };
    format!(
        "{object} in namespace {namespace}\n  unit    {}: {because}\n  holder  {held}\n  target  {target}",
        unit.name
    )
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn lease(name: &str, holder: &str, transitions: u64, second: u32, state: Option<&str>) -> Value {
        let mut lease = json!({
            "metadata": { "name": name },
            "spec": {
                "holderIdentity": holder, "leaseTransitions": transitions,
                "renewTime": format!("1970-01-01T00:00:{second:02}.000000Z"),
            },
        });
        if let Some(state) = state {
            lease["metadata"]["annotations"] = json!({ lease::STATE: state, lease::ALGORITHM: ALGORITHM.to_string() });
        }
        lease
    }

    #[test]
    fn a_unit_of_a_fenced_life_is_held_by_nobody() {
        let leases = [
            lease("seat-a", "a/1", 3, 50, Some("ready")),
            lease("seat-b", "", 8, 20, Some("ready")),
            lease("q-00", "a#3", 5, 10, None),
            lease("q-01", "a#2", 4, 10, None),
            lease("q-02", "b#7", 2, 5, None),
        ];
        let found = read(&leases, &[], Time(60_000));
        let unit = |name: &str| found.units.iter().find(|unit| unit.name == name).unwrap();
        assert_eq!((unit("q-00").seat.as_deref(), unit("q-00").epoch), (Some("a"), 5));
        assert_eq!((unit("q-01").seat.as_deref(), unit("q-02").seat.as_deref()), (None, None));
        assert_eq!((found.units.len(), found.unowned), (64, 63));
        assert_eq!(found.oldest_unowned.as_ref().map(|unit| &*unit.name), Some("q-02"));
        assert_eq!(found.seats[0].renewed_seconds_ago, Some(10));
        assert_eq!((found.seats[0].units, found.seats[0].target), (1, 64));
        assert_eq!((&*found.seats[1].state, found.seats[1].target), ("free", 0));
        assert!(table(&found, true).contains("63 of 64 units are held by nobody; for longest q-02 (since 55s)."));
    }

    #[test]
    fn seats_that_are_all_free_are_said_to_be_no_replica() {
        let leases = [lease("seat-a", "", 8, 20, Some("draining")), lease("q-00", "", 5, 10, None)];
        let text = table(&read(&leases, &[], Time(60_000)), false);
        assert!(text.contains("No replica runs") && text.contains("64 of 64 units are held by nobody"), "{text}");
        let runs = [lease("seat-a", "a/1", 8, 20, Some("joining"))];
        assert!(!table(&read(&runs, &[], Time(60_000)), false).contains("No replica runs"));
    }

    #[test]
    fn units_of_members_are_among_them() {
        let members = [json!({ "metadata": { "name": "eu" }, "spec": { "units": 2 } })];
        let units = all_units(&members);
        assert!(units.contains("m-eu-0") && units.contains("m-eu-1") && !units.contains("m-eu-2"));
    }
}
