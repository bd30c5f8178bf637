//! Recorded cases with their manifests and steps, found in two folders.
//! Must not know how a case is played.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};
use rayfleet::api::yaml;
use serde::Deserialize;
use serde_json::Value;

use super::recording::Recording;

/// Kinds of root objects, the one that counts first: a case is of the first kind that its manifest holds.
pub(super) const KINDS: &[&str] = &["RayCronJob", "RayService", "RayJob", "RayCluster"];

/// One recorded case.
pub(super) struct Case {
    /// Of a sample with more than one run: `ray-job.volcano-scheduler-queue:volcano`.
    pub(super) name: String,
    /// Kind of the root object.
    pub(super) kind: &'static str,
    /// How the operator was set.
    pub(super) operator: Operator,
    /// How the surroundings behave.
    pub(super) simulation: Simulation,
    /// The objects of the manifest, in its order.
    pub(super) objects: Vec<Value>,
    /// Objects are applied one after another, each with a round of its own.
    pub(super) one_by_one: bool,
    /// What is done, in order.
    pub(super) steps: Vec<Step>,
    /// What the operator did.
    pub(super) recorded: Recording,
}

/// Settings of the operator beyond its defaults.
#[derive(Clone, Debug, Default, Deserialize)]
pub(super) struct Operator {
    /// Flags.
    #[serde(default)]
    pub(super) flags: Vec<String>,
    /// Environment.
    #[serde(default)]
    pub(super) env: BTreeMap<String, String>,
    /// Configuration file.
    #[serde(default)]
    pub(super) config: Value,
}

/// How the surroundings behave where it is not as usual.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Simulation {
    /// States that a job walks through, one for each question.
    pub(super) job_states: Option<Vec<String>>,
    /// States that Serve applications walk through.
    pub(super) app_states: Option<Vec<String>>,
    /// Status code of every answer of the dashboard.
    pub(super) dash_fail: Option<u16>,
    /// No pod is started.
    pub(super) hold_pods: Option<bool>,
    /// `Failed`: every submitter fails; `hold`: it never ends.
    pub(super) submit_pod_result: Option<String>,
    /// What Serve proxies answer.
    pub(super) proxy_health: Option<u16>,
}

/// One step.
#[derive(Clone, Debug)]
pub(super) struct Step {
    /// What is done.
    pub(super) what: What,
    /// The phase ends when nothing new was written for this long.
    pub(super) quiet: Duration,
    /// The phase takes no longer than this.
    pub(super) limit: Duration,
}

/// What a step does.
#[derive(Clone, Debug)]
pub(super) enum What {
    /// The manifest is applied.
    Apply,
    /// Further objects are applied.
    ApplyMore(Vec<Value>),
    /// An object is patched: kind, name, subresource, patch (a list is a JSON patch, a map a merge patch).
    Patch(String, String, Option<String>, Value),
    /// Pods with these labels are deleted.
    DeletePods(BTreeMap<String, String>),
    /// The surroundings behave otherwise from now on.
    Simulate(Value),
    /// A user submits a job of this id to Ray.
    RegisterJob(String),
    /// The Ray objects that were applied are deleted.
    Delete,
}

#[derive(Deserialize)]
struct StepsFile {
    operator: Operator,
    #[serde(default)]
    simulation: Simulation,
    steps: Vec<RawStep>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct RawStep {
    op: String,
    quiet_seconds: Option<f64>,
    limit_seconds: Option<f64>,
    kind: Option<String>,
    name: Option<String>,
    subresource: Option<String>,
    patch: Option<Value>,
    manifest: Option<String>,
    select: Option<BTreeMap<String, String>>,
    set: Option<Value>,
    id: Option<String>,
}

#[derive(Deserialize)]
struct SampleFile {
    sample: String,
    runs: BTreeMap<String, Run>,
}

#[derive(Deserialize)]
struct Run {
    #[serde(flatten)]
    operator: Operator,
    #[serde(flatten)]
    recording: Recording,
}

/// Quiet after which a phase ends where the recording does not say: after `apply`, and after other steps.
const QUIET: [Duration; 2] = [Duration::from_secs(6), Duration::from_millis(4500)];
/// Longest phase where the recording does not say.
const LIMIT: Duration = Duration::from_secs(75);

/// All cases: `dir` has the layout of the recordings, `samples` holds the manifests of those of samples.
pub(super) fn read(dir: &Path, samples: &Path) -> Result<Vec<Case>> {
    let mut cases = Vec::new();
    for folder in entries(&dir.join("cases"))? {
        cases.push(own(&folder).with_context(|| format!("reading {}", folder.display()))?);
    }
    for file in entries(&dir.join("samples"))? {
        cases.extend(sample(&file, samples).with_context(|| format!("reading {}", file.display()))?);
    }
    Ok(cases)
}

fn entries(folder: &Path) -> Result<Vec<std::path::PathBuf>> {
    let listed = std::fs::read_dir(folder)
        .with_context(|| format!("recordings are read from {} (set RAYFLEET_SHARED, or --dir)", folder.display()))?;
    let mut paths = listed.map(|entry| entry.map(|e| e.path())).collect::<std::io::Result<Vec<_>>>()?;
    paths.sort();
    Ok(paths)
}

fn own(folder: &Path) -> Result<Case> {
    let text = |name: &str| std::fs::read_to_string(folder.join(name)).with_context(|| name.to_owned());
    let file: StepsFile = serde_json::from_str(&text("steps.json")?).context("steps.json")?;
    let recorded: Recording = serde_json::from_str(&text("golden.json")?).context("golden.json")?;
    let objects = documents(&text("manifest.yaml")?)?;
    let steps = file.steps.into_iter().map(step).collect::<Result<Vec<_>>>()?;
    let name = folder.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let (operator, simulation) = (file.operator, file.simulation);
    let rays = objects.iter().filter(|object| is_ray(object)).count();
    Ok(Case { name, kind: kind(&objects), operator, simulation, one_by_one: rays > 1, objects, steps, recorded })
}

fn sample(file: &Path, samples: &Path) -> Result<Vec<Case>> {
    let text = std::fs::read_to_string(file)?;
    let recorded: SampleFile = serde_json::from_str(&text)?;
    let manifest = samples.join(&recorded.sample);
    let text = std::fs::read_to_string(&manifest).with_context(|| format!("its manifest {}", manifest.display()))?;
    let objects = documents(&text)?;
    let stem = recorded.sample.trim_end_matches(".yaml").to_owned();
    // Where something is deleted some time after the end, that was waited for.
    let awaited = objects.iter().map(awaited_seconds).max().unwrap_or(0);
    let quiet = QUIET[0] + Duration::from_secs(awaited);
    let limit = LIMIT + Duration::from_secs(2 * awaited);
    let cases = recorded.runs.into_iter().map(|(run, Run { operator, recording })| Case {
        name: if run == "default" { stem.clone() } else { format!("{stem}:{run}") },
        kind: kind(&objects),
        operator,
        simulation: Simulation::default(),
        objects: objects.clone(),
        one_by_one: false,
        steps: vec![
            Step { what: What::Apply, quiet, limit },
            Step { what: What::Delete, quiet: QUIET[1], limit: LIMIT },
        ],
        recorded: recording,
    });
    Ok(cases.collect())
}

/// The longest time after its end that an object names, as far as recordings waited for such.
fn awaited_seconds(value: &Value) -> u64 {
    const LONGEST: u64 = 100;
    match value {
        Value::Object(map) => {
            let named = ["ttlSeconds", "ttlSecondsAfterFinished"].iter().filter_map(|field| map.get(*field)?.as_u64());
            let inner = map.values().map(awaited_seconds);
            named.filter(|seconds| *seconds <= LONGEST).chain(inner).max().unwrap_or(0)
        }
        Value::Array(list) => list.iter().map(awaited_seconds).max().unwrap_or(0),
        _ => 0,
    }
}

fn step(raw: RawStep) -> Result<Step> {
    let needed = |field: Option<String>, name: &str| field.with_context(|| format!("step {} has no {name}", raw.op));
    let what = match raw.op.as_str() {
        "apply" => What::Apply,
        "apply-more" => What::ApplyMore(documents(&needed(raw.manifest, "manifest")?)?),
        "patch" => What::Patch(
            needed(raw.kind, "kind")?,
            needed(raw.name, "name")?,
            raw.subresource,
            raw.patch.context("a patch without a body")?,
        ),
        "pod-delete" => What::DeletePods(raw.select.context("pod-delete without labels")?),
        "dashboard" => What::Simulate(raw.set.context("dashboard without settings")?),
        "register-job" => What::RegisterJob(needed(raw.id, "id")?),
        "delete" => What::Delete,
        other => anyhow::bail!("step {other} is not known"),
    };
    let seconds = |value: Option<f64>, usual| value.map_or(usual, Duration::from_secs_f64);
    let usual = if matches!(what, What::Apply) { QUIET[0] } else { QUIET[1] };
    Ok(Step { what, quiet: seconds(raw.quiet_seconds, usual), limit: seconds(raw.limit_seconds, LIMIT) })
}

/// The namespace of every recording.
pub(super) const NAMESPACE: &str = "golden";
/// Kinds that live in no namespace, among those that manifests bring.
const CLUSTER_SCOPED: &[&str] =
    &["Namespace", "ClusterRole", "ClusterRoleBinding", "PriorityClass", "StorageClass", "Queue", "ClusterIssuer"];

fn documents(text: &str) -> Result<Vec<Value>> {
    let text = text.replace("namespace: default", &format!("namespace: {NAMESPACE}"));
    let mut all = yaml::documents(&text).map_err(|error| anyhow::anyhow!("no YAML: {error}"))?;
    all.retain(|object| !object["apiVersion"].as_str().unwrap_or_default().starts_with("scheduling.run.ai/"));
    for object in &mut all {
        let scoped = CLUSTER_SCOPED.iter().any(|kind| object["kind"] == *kind);
        if !scoped && object["metadata"]["namespace"].is_null() {
            if object["metadata"].is_null() {
                object["metadata"] = Value::Object(serde_json::Map::new());
            }
            object["metadata"]["namespace"] = NAMESPACE.into();
        }
    }
    Ok(all)
}

/// Whether an object is one of Ray's own kinds.
pub(super) fn is_ray(object: &Value) -> bool {
    object["apiVersion"].as_str().is_some_and(|version| version.starts_with("ray.io/"))
}

fn kind(objects: &[Value]) -> &'static str {
    let holds = |kind: &&&str| objects.iter().any(|object| is_ray(object) && object["kind"] == ***kind);
    KINDS.iter().find(holds).copied().unwrap_or("RayCluster")
}
