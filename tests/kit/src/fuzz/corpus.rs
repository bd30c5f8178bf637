//! What the outside really sends: objects, requests and answers from `../shared` (variable `RAYFLEET_SHARED`), and the
//! objects of a simulated fleet at work.
//! Must not know which decoder is given them.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use rayfleet::api::yaml;
use serde_json::Value;

use crate::fleet::MemberPlan;
use crate::job::ray_job;
use crate::site::Site;
use crate::world::World;

/// Objects of one kind at most: they repeat each other.
const PER_KIND: usize = 60;

/// What mutations begin with.
#[derive(Clone, Debug)]
pub enum Sample {
    /// Anything.
    Text(Vec<u8>),
    /// A value: its parts are exchanged as well as its bytes.
    Json(Value),
}

impl Sample {
    /// As it stands.
    pub fn bytes(&self) -> Vec<u8> {
        match self {
            Sample::Text(bytes) => bytes.clone(),
            Sample::Json(value) => value.to_string().into_bytes(),
        }
    }
}

/// All that was found.
pub struct Corpus {
    /// Kubernetes objects.
    pub objects: Vec<Value>,
    /// Manifests as people write them.
    pub manifests: Vec<String>,
    /// Requests to an API server with their bodies.
    pub requests: Vec<Value>,
    /// Answers of Ray.
    pub ray: Vec<Vec<u8>>,
}

impl Corpus {
    /// Reads it, in the order of names.
    pub fn read() -> Result<Self> {
        let beside = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared");
        let shared = PathBuf::from(std::env::var("RAYFLEET_SHARED").unwrap_or_else(|_| beside.to_owned()));
        let mut corpus = Self { objects: Vec::new(), manifests: Vec::new(), requests: Vec::new(), ray: Vec::new() };
        for path in files(&shared.join("samples"), "yaml")? {
            let text = std::fs::read_to_string(&path)?;
            corpus.objects.extend(yaml::documents(&text).map_err(anyhow::Error::msg)?);
            corpus.manifests.push(text);
        }
        for path in files(&shared.join("kube-api"), "json")? {
            let topic: Value = serde_json::from_slice(&std::fs::read(&path)?)?;
            let cases = topic["cases"].as_array().into_iter().flatten();
            for exchange in cases.flat_map(|case| case["exchanges"].as_array().into_iter().flatten()) {
                let request = &exchange["request"];
                if request["path"].is_string() && request.to_string().len() < 20_000 {
                    corpus.requests.push(request.clone());
                }
                objects_in(&exchange["response"]["body"], &mut corpus.objects);
            }
        }
        let cases = std::fs::read_dir(shared.join("golden/cases")).context("reading golden/cases")?;
        let mut cases: Vec<PathBuf> = cases.map(|entry| Ok(entry?.path())).collect::<Result<_>>()?;
        cases.sort();
        for case in cases {
            let text = std::fs::read(case.join("golden.json")).with_context(|| case.display().to_string())?;
            objects_in(&serde_json::from_slice(&text)?, &mut corpus.objects);
        }
        of_a_fleet(&mut corpus.objects);
        for path in files(&shared.join("ray-api"), "")? {
            corpus.ray.push(std::fs::read(path)?);
        }
        ensure!(corpus.objects.len() > 500 && corpus.ray.len() > 50, "{} holds too little", shared.display());
        Ok(corpus)
    }

    /// Objects of a kind, a few of all that there are.
    pub fn of(&self, kind: &str) -> Vec<Value> {
        let all: Vec<&Value> = self.objects.iter().filter(|object| object["kind"] == kind).collect();
        let step = all.len().div_ceil(PER_KIND).max(1);
        all.into_iter().step_by(step).cloned().collect()
    }
}

/// What stands on hub and members while jobs run and wait: the fleet's own kinds, its Leases, pods and their owners.
fn of_a_fleet(found: &mut Vec<Value>) {
    let mut world = World::with_replicas(7, &[MemberPlan::new("eu", 2, 4), MemberPlan::new("us", 1, 8)], 2);
    for (name, cpus) in [("a", 1), ("b", 3), ("c", 2), ("huge", 100)] {
        world.submit(&ray_job(name).cpus(cpus).workers(1, 1).manifest());
    }
    world.run_for(Duration::from_secs(40));
    let sites = std::iter::once(world.site("hub")).chain(world.members());
    for object in sites.flat_map(Site::objects) {
        if object.to_string().len() < 20_000 {
            found.push(object.clone());
        }
    }
}

/// Files whose name ends so, in the order of names.
fn files(folder: &Path, ending: &str) -> Result<Vec<PathBuf>> {
    let entries = std::fs::read_dir(folder)
        .with_context(|| format!("inputs are made from {} (set RAYFLEET_SHARED)", folder.display()))?;
    let mut all: Vec<PathBuf> = entries.map(|entry| Ok(entry?.path())).collect::<Result<_>>()?;
    all.retain(|path| path.is_file() && path.to_string_lossy().ends_with(ending));
    all.sort();
    Ok(all)
}

/// Every Kubernetes object inside a value.
fn objects_in(value: &Value, found: &mut Vec<Value>) {
    let object = value["kind"].is_string() && value["apiVersion"].is_string() && value["metadata"].is_object();
    if object && value.to_string().len() < 20_000 {
        found.push(value.clone());
        return;
    }
    match value {
        Value::Array(list) => list.iter().for_each(|inner| objects_in(inner, found)),
        Value::Object(map) => map.values().for_each(|inner| objects_in(inner, found)),
        _ => {}
    }
}
