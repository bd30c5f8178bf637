//! What the running controller knows of itself, for `/debug/keys`, `/readyz` and `/metrics`: why per key, freshness of
//! tables, what does not decode.
//! Must not hold whole objects: some of what they hold is nobody's business.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::Serialize;

use crate::api::{Cluster, Id, Kind, Time, Uid};
use crate::engine::Engine;
use crate::row::{Facts, Table};

/// Keys in a report at most.
pub const KEYS_MAX: usize = 5_000;

/// Objects with metrics of their own at most.
pub const RAY_OBJECTS_MAX: usize = 2_000;

/// One picture.
#[derive(Clone, Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Report {
    /// When it was drawn, RFC 3339.
    pub at: String,
    /// Units held, with their epochs.
    pub units: BTreeMap<String, u64>,
    /// Keys that wait to be looked at.
    pub queued: usize,
    /// Requests under way.
    pub in_flight: usize,
    /// Tables.
    pub tables: Vec<TableReport>,
    /// Placements by stage.
    pub placements: BTreeMap<String, usize>,
    /// Keys and what they wait for; at most [`KEYS_MAX`].
    pub keys: Vec<KeyReport>,
    /// Keys that were left out.
    pub keys_left_out: usize,
    /// RayJobs and RayClusters on members, for KubeRay's metrics; at most [`RAY_OBJECTS_MAX`].
    #[serde(skip)]
    pub ray_objects: Vec<RayObject>,
}

/// One RayJob or RayCluster on a member.
#[derive(Clone, Debug)]
pub struct RayObject {
    /// Member.
    pub cluster: String,
    /// Which object.
    pub id: Id,
    /// Its UID.
    pub uid: Uid,
    /// The whole object.
    pub body: Arc<str>,
}

/// One table.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct TableReport {
    /// Cluster.
    pub cluster: String,
    /// Kind.
    pub kind: &'static str,
    /// Rows.
    pub rows: usize,
    /// resourceVersion reached.
    pub version: u64,
    /// Begin of the list behind it, RFC 3339; empty before the first.
    pub listed: String,
    /// Seconds since the last sign of life; absent before the first.
    pub heard_seconds_ago: Option<u64>,
    /// Why it fails, and for how long, if it does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub silent: Option<String>,
    /// The cluster does not serve the kind.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub unserved: bool,
    /// Objects that do not decode: `namespace/name` → why.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub quarantined: BTreeMap<String, String>,
}

/// One key.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct KeyReport {
    /// Cluster.
    pub cluster: String,
    /// Kind.
    pub kind: &'static str,
    /// Namespace.
    pub namespace: String,
    /// Name.
    pub name: String,
    /// What it waits for.
    pub why: String,
    /// Since when, RFC 3339.
    pub since: String,
    /// Writes of it that failed in a row.
    #[serde(skip_serializing_if = "is_zero")]
    pub failures: u32,
    /// The last failure.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trouble: Option<String>,
    /// Its own requests under way.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub under_way: Option<String>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands references to skip_serializing_if")]
fn is_zero(n: &u32) -> bool {
    *n == 0
}

/// Draws a picture of the engine; `clusters` are those that can be talked to.
pub fn draw(engine: &Engine, clusters: &[Cluster], units: BTreeMap<String, u64>, now: Time) -> Report {
    let sizes = engine.sizes();
    let mut report =
        Report { at: now.micro_text(), units, queued: sizes.queued, in_flight: sizes.in_flight, ..Report::default() };
    for cluster in clusters {
        let Some(tables) = engine.tables(cluster) else { continue };
        if matches!(cluster, Cluster::Member(_)) {
            let rows = [Kind::RayJob, Kind::RayCluster].into_iter().flat_map(|kind| tables.rows(kind));
            let room = RAY_OBJECTS_MAX - report.ray_objects.len();
            report.ray_objects.extend(rows.take(room).filter_map(|row| {
                let (cluster, body) = (cluster.to_string(), row.body.clone()?);
                Some(RayObject { cluster, id: row.id.clone(), uid: row.uid.clone(), body })
            }));
        }
        report.tables.extend(tables.kinds().map(|kind| table(cluster, kind, tables.table(kind), now)));
    }
    if let Some(hub) = engine.tables(&Cluster::Hub) {
        for row in hub.rows(Kind::Placement) {
            if let Facts::Placement(placement) = &row.facts {
                *report.placements.entry(format!("{:?}", placement.spec.stage)).or_default() += 1;
            }
        }
    }
    for (key, entry) in engine.journal() {
        if report.keys.len() == KEYS_MAX {
            report.keys_left_out += 1;
            continue;
        }
        report.keys.push(KeyReport {
            cluster: key.cluster.to_string(),
            kind: key.id.kind.name(),
            namespace: key.id.namespace.to_string(),
            name: key.id.name.to_string(),
            why: entry.why.0.to_string(),
            since: entry.since.micro_text(),
            failures: entry.failures,
            trouble: entry.trouble.clone(),
            under_way: engine.under_way(key).map(|text| text.to_string()),
        });
    }
    report
}

fn table(cluster: &Cluster, kind: Kind, table: &Table, now: Time) -> TableReport {
    let heard = table.listed.is_some() || table.heard > Time(0);
    TableReport {
        cluster: cluster.to_string(),
        kind: kind.name(),
        rows: table.len(),
        version: table.version.0,
        listed: table.listed.map_or_else(String::new, Time::micro_text),
        heard_seconds_ago: heard.then(|| now.since(table.heard).as_secs()),
        silent: table.silent.as_ref().map(|(since, why)| format!("{why} (for {} s)", now.since(*since).as_secs())),
        unserved: table.unserved.is_some(),
        quarantined: table
            .quarantined
            .iter()
            .map(|((namespace, name), object)| (format!("{namespace}/{name}"), object.error.clone()))
            .collect(),
    }
}
