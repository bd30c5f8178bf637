//! Every document of every manifest of a folder: accepted by the sandbox's API server under our definitions, kept whole by
//! our types, passed by our validation, and carried out in the simulated fleet as far as its kind is built.
//! Must not know what stands in the manifests.

mod acceptance;
mod life;
mod manifests;

use std::fmt;
use std::path::Path;

use anyhow::{Result, bail};
use rayfleet::api::{Kind, crds};
use rayfleet::plan::validate;
use serde_json::Value;

use acceptance::Server;
pub(crate) use acceptance::stranger;
use manifests::Manifest;

/// What came of one document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Standing {
    /// All that is to be had of it; what that was, in words.
    Equal(String),
    /// It needs what is not built yet, and the object says so; which.
    Explained(String),
    /// It was refused, changed, or went astray; how.
    Different(String),
}

/// One document with what came of it.
#[derive(Clone, Debug)]
pub struct Sample {
    /// File, kind and name.
    pub document: String,
    /// What came of it.
    pub standing: Standing,
}

impl fmt::Display for Sample {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (word, text) = match &self.standing {
            Standing::Equal(text) => ("equal    ", text),
            Standing::Explained(text) => ("explained", text),
            Standing::Different(text) => ("DIFFERENT", text),
        };
        write!(f, "{word}  {}: {text}", self.document)
    }
}

/// Equal, explained, different.
pub fn counts(samples: &[Sample]) -> [usize; 3] {
    let mut counts = [0; 3];
    for sample in samples {
        counts[match sample.standing {
            Standing::Equal(_) => 0,
            Standing::Explained(_) => 1,
            Standing::Different(_) => 2,
        }] += 1;
    }
    counts
}

/// The last line of the report.
pub fn summary(samples: &[Sample]) -> String {
    let [equal, explained, different] = counts(samples);
    format!("samples: {equal} equal, {explained} explained, {different} different")
}

/// Looks at the manifests (`*.yaml`, `*.yml`, `*.json`) below `dir`; `only` is part of a file's name. Each sample is handed
/// to `told` as soon as it is known.
pub fn run(dir: &Path, only: Option<&str>, mut told: impl FnMut(&Sample) -> Result<()>) -> Result<Vec<Sample>> {
    let mut samples = Vec::new();
    for manifest in manifests::read(dir)? {
        if only.is_some_and(|part| !manifest.file.contains(part)) {
            continue;
        }
        for sample in look(&manifest) {
            told(&sample)?;
            samples.push(sample);
        }
    }
    if samples.is_empty() {
        bail!("no manifest in {} has {:?} in its name", dir.display(), only.unwrap_or_default());
    }
    Ok(samples)
}

/// The documents of one manifest, on a server of their own.
fn look(manifest: &Manifest) -> Vec<Sample> {
    let whole = |error: String| vec![Sample { document: manifest.file.clone(), standing: Standing::Different(error) }];
    if let Some(error) = &manifest.error {
        return whole(error.clone());
    }
    if manifest.documents.is_empty() {
        return whole("it holds no object".to_owned());
    }
    let mut server = match Server::new(&manifest.documents) {
        Ok(server) => server,
        Err(error) => return whole(error),
    };
    let mut samples = Vec::new();
    for document in &manifest.documents {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let name = format!("{} {} {}", manifest.file, text(&document["kind"]), text(&document["metadata"]["name"]));
        let standing = server.create(document).map_or_else(Standing::Different, |mut stored| {
            // An object of the older version lives as the one of today that it is stored as.
            let mut sent = document.clone();
            crds::lifted(&mut sent);
            crds::lifted(&mut stored);
            let kind = Kind::find(&text(&sent["apiVersion"]), &text(&sent["kind"]));
            match kind.filter(|kind| kind.group() == "ray.io") {
                Some(kind) => ray(kind, &sent, &stored, manifest).unwrap_or_else(Standing::Different),
                None => Standing::Equal("accepted".to_owned()),
            }
        });
        samples.push(Sample { document: name, standing });
    }
    samples
}

/// A document of Ray's: what was sent, and what the server stored.
fn ray(kind: Kind, sent: &Value, stored: &Value, manifest: &Manifest) -> Result<Standing, String> {
    // A server keeps no status of what is created.
    let mut kept = sent.clone();
    kept.as_object_mut().and_then(|fields| fields.remove("status"));
    acceptance::keeps(stored, &kept, "")?;
    let typed = acceptance::through_our_types(kind, sent)?;
    if typed != *sent {
        acceptance::keeps(&typed, sent, "")?;
        return Err("our types add something to it".to_owned());
    }
    match validate::object(kind, stored) {
        Err(refusal) if !refusal.is_of_this_release() => Err(format!("{}: {refusal}", refusal.event_reason)),
        Err(refusal) if matches!(kind, Kind::RayService | Kind::RayCronJob) => {
            // Of a kind that is not built as a whole, being kept is all that there is.
            if refusal.field != "kind" {
                return Ok(Standing::Explained(refusal.to_string()));
            }
            Ok(Standing::Equal("accepted, lossless, valid; its kind is not carried out yet".to_owned()))
        }
        refusal => {
            // Where only a beginning of the name was sent, the server has made up the rest.
            let mut root = sent.clone();
            root["metadata"]["name"] = stored["metadata"]["name"].clone();
            life::of(kind, &root, refusal.err().as_ref(), manifest)
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn standings(documents: Vec<Value>) -> Vec<Standing> {
        let manifest = Manifest { file: "a.yaml".to_owned(), documents, error: None };
        look(&manifest).into_iter().map(|sample| sample.standing).collect()
    }

    #[test]
    fn what_is_misspelt_in_a_group_of_ours_or_empty_is_not_accepted() {
        let misspelt = json!({"apiVersion": "ray.io/v1", "kind": "RayCuster", "metadata": {"name": "a"}});
        assert!(matches!(standings(vec![misspelt]).as_slice(), [Standing::Different(_)]));
        assert!(matches!(standings(Vec::new()).as_slice(), [Standing::Different(_)]));
        let stranger = json!({"apiVersion": "gateway.example.io/v1", "kind": "Gateway", "metadata": {"name": "a"}});
        assert_eq!(standings(vec![stranger]), [Standing::Equal("accepted".to_owned())]);
    }

    #[test]
    fn an_object_of_the_older_version_is_judged_like_one_of_today() {
        let containers = json!([{"name": "ray", "image": "i"}]);
        let cluster =
            json!({"headGroupSpec": {"rayStartParams": {}, "template": {"spec": {"containers": containers}}}});
        let name = "a".repeat(68);
        let job = json!({"apiVersion": "ray.io/v1alpha1", "kind": "RayJob", "metadata": {"name": name},
                         "spec": {"entrypoint": "true", "rayClusterSpec": cluster}});
        let standings = standings(vec![job]);
        assert!(matches!(standings.as_slice(), [Standing::Different(why)] if why.contains("name")), "{standings:?}");
    }
}
