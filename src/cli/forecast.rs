//! `rayfleet explain -f`: where an object would go, judged by the product's own placement on what the hub shows now.
//! Must not write anything.

use std::path::Path;

use anyhow::{Result, bail};

use super::access::Hub;
use super::explain::Explanation;
use super::manifest;
use crate::api::{Kind, Time};

/// One explanation per root object of the manifest.
pub(crate) async fn explain(hub: &Hub, file: &Path, now: Time) -> Result<Vec<Explanation>> {
    let text = manifest::read(file)?;
    let documents = manifest::documents(&text, &file.display().to_string(), &hub.namespace)?;
    let roots: Vec<_> = documents.iter().filter(|d| matches!(d.id.kind, Kind::RayJob | Kind::RayCluster)).collect();
    if roots.is_empty() {
        bail!("{} holds no RayJob or RayCluster", file.display());
    }
    let _ = now;
    bail!("explain -f is not built yet; submit it and use: rayfleet explain KIND/NAME")
}
