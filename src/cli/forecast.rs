//! `rayfleet explain -f`: where an object would go, judged by the product's own placement on what the hub shows now.
//! Must not write anything.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result, anyhow, bail};
use serde_json::json;

use super::access::Hub;
use super::explain::{Explanation, without_placement};
use super::manifest::{self, Document};
use super::submit::named;
use crate::api::fleet::Stage;
use crate::api::{Kind, Time};
use crate::plan::Flags;
use crate::plan::place::{self, Received};
use crate::plan::root::Root;
use crate::row::{Facts, Tables, decode};

/// What placement looks at on the hub.
const KINDS: &[Kind] = &[
    Kind::MemberCluster,
    Kind::MemberCapacity,
    Kind::Placement,
    Kind::PlacementPolicy,
    Kind::PriorityClass,
    Kind::RayCluster,
];

/// One explanation per root object of the manifest.
pub(crate) async fn explain(hub: &Hub, file: &Path, now: Time) -> Result<Vec<Explanation>> {
    let text = manifest::read(file)?;
    let documents = manifest::documents(&text, &file.display().to_string(), &hub.namespace)?;
    let roots: Vec<_> = documents.iter().filter(|d| matches!(d.id.kind, Kind::RayJob | Kind::RayCluster)).collect();
    if roots.is_empty() {
        bail!("{} holds no RayJob or RayCluster", file.display());
    }
    // All of them before the hub is asked: what the controller would refuse goes nowhere.
    let mut ours = Vec::new();
    for root in &roots {
        ours.push(check(root).with_context(|| format!("{} of {} is not valid", root.id, file.display()))?);
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
    for (root, is_ours) in roots.into_iter().zip(ours) {
        if !is_ours {
            explanations.push(Explanation {
                object: named(&root.id),
                namespace: root.id.namespace.to_string(),
                message: without_placement(&root.body),
                forecast: true,
                ..Explanation::default()
            });
            continue;
        }
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

/// The controller's own check of an object, as if it stood on the hub; whether it is one to work on.
fn check(document: &Document) -> Result<bool> {
    let Document { id, body } = document;
    let mut body = body.clone();
    // What the hub gives to each object.
    body["metadata"]["uid"] = json!("to-be-given");
    body["metadata"]["resourceVersion"] = json!("1");
    let row = decode(id.kind, body.to_string().as_bytes())?;
    let root = Root::read(&row).ok_or_else(|| anyhow!("it cannot be read"))?;
    if root.is_ours() {
        root.check().map_err(|refusal| anyhow!("{refusal}"))?;
    }
    Ok(root.is_ours())
}

#[cfg(test)]
mod tests {
    use super::*;

    const JOB: &str = "apiVersion: ray.io/v1\nkind: RayJob\nmetadata: {name: NAME}\nspec:\n  entrypoint: echo\n  \
                       shutdownAfterJobFinishes: true\n  rayClusterSpec:\n    headGroupSpec:\n      rayStartParams: {}\n      \
                       template: {spec: {containers: [{name: head, image: ray}]}}\n";

    fn checked(text: &str) -> Result<bool, String> {
        let documents = manifest::documents(text, "job.yaml", "default").unwrap();
        check(&documents[0]).map_err(|e| e.to_string())
    }

    #[test]
    fn what_the_controller_would_refuse_is_refused_in_its_words() {
        assert_eq!(checked(&JOB.replace("NAME", "train")), Ok(true));
        let long = checked(&JOB.replace("NAME", &"a".repeat(82))).unwrap_err();
        assert!(long.contains("metadata.name: has 82 characters, at most"), "{long}");
        let headless = checked(&JOB.replace("NAME", "train").replace("containers: [{name: head, image: ray}]", ""));
        assert!(headless.unwrap_err().contains("headGroupSpec"));
        let shapeless = checked(&JOB.replace("NAME", "train").replace("entrypoint: echo", "entrypoint: [1]"));
        assert!(shapeless.unwrap_err().contains("cannot be read"));
    }

    #[test]
    fn what_is_left_alone_is_not_judged() {
        let foreign =
            JOB.replace("NAME", &"a".repeat(82)).replace("spec:\n", "spec:\n  managedBy: kueue.x-k8s.io/multikueue\n");
        assert_eq!(checked(&foreign), Ok(false));
    }
}
