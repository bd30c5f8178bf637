//! `rayfleet explain -f`: where an object would go, judged by the product's own placement on what the hub shows now.
//! Must not write anything.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Result, anyhow, bail};

use super::access::Hub;
use super::explain::Explanation;
use super::manifest;
use super::submit::named;
use crate::api::fleet::Stage;
use crate::api::{Kind, Time};
use crate::plan::Flags;
use crate::plan::place::{self, Received};
use crate::row::{Facts, Tables};

/// What placement looks at on the hub.
const KINDS: &[Kind] =
    &[Kind::MemberCluster, Kind::MemberCapacity, Kind::Placement, Kind::PlacementPolicy, Kind::PriorityClass];

/// One explanation per root object of the manifest.
pub(crate) async fn explain(hub: &Hub, file: &Path, now: Time) -> Result<Vec<Explanation>> {
    let text = manifest::read(file)?;
    let documents = manifest::documents(&text, &file.display().to_string(), &hub.namespace)?;
    let roots: Vec<_> = documents.iter().filter(|d| matches!(d.id.kind, Kind::RayJob | Kind::RayCluster)).collect();
    if roots.is_empty() {
        bail!("{} holds no RayJob or RayCluster", file.display());
    }
    let mut rows = Vec::new();
    for kind in KINDS {
        rows.extend(hub.rows(*kind).await?);
    }
    let tables = Tables::from_rows(rows);
    // Read just now.
    let received: BTreeMap<Arc<str>, Received> = tables
        .rows(Kind::MemberCapacity)
        .filter_map(|row| match &row.facts {
            Facts::MemberCapacity(capacity) => Some((row.id.name.clone(), Received::read(&capacity.spec, now))),
            _ => None,
        })
        .collect();
    let flags = Flags::default();
    let mut explanations = Vec::new();
    for root in roots {
        let found = place::explain(&tables, &received, &root.body, &flags, now)
            .map_err(|why| anyhow!("{} of {}: {why}", root.id, file.display()))?;
        explanations.push(Explanation {
            object: named(&root.id),
            namespace: root.id.namespace.to_string(),
            stage: Some(Stage::Waiting),
            member: found.choice.unwrap_or_default(),
            queue: found.queue,
            message: found.message,
            gang: Some(found.gang),
            verdicts: found.verdicts,
            forecast: true,
            ..Explanation::default()
        });
    }
    Ok(explanations)
}
