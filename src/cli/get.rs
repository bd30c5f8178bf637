//! `rayfleet get`: the root objects of the fleet, each with its member, stage and status, as the hub's objects say.
//! Must not ask members, or judge: why something is where it is, `explain` says.

use std::collections::BTreeMap;

use anyhow::{Result, bail};
use serde::Serialize;
use serde_json::Value;

use super::End;
use super::access::{Access, Hub};
use super::explain::{object_id, placement_of, without_placement};
use super::output::{self, Format};
use crate::api::fleet::{Placement, Stage};
use crate::api::{Id, Kind, Time};
use crate::plan::placement_name;
use crate::shell::clock::Clock;

/// Kinds of root objects, in the order in which they are shown.
const ROOTS: &[Kind] = &[Kind::RayJob, Kind::RayCluster];

/// Options of `rayfleet get`.
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  rayfleet get                           RayJobs and RayClusters of the context's namespace
  rayfleet get rayjobs -A
  rayfleet get rayjob/train -n research -o yaml")]
pub(crate) struct GetArgs {
    /// rayjobs, rayclusters, all, or one object: rayjob/NAME or raycluster/NAME
    #[arg(value_name = "KIND", default_value = "all")]
    what: String,
    /// In all namespaces
    #[arg(short = 'A', long, conflicts_with = "namespace")]
    all_namespaces: bool,
    /// Form of the output
    #[arg(short, long, value_enum, default_value_t = Format::Table)]
    output: Format,
}

/// One root object. Programs get exactly this.
#[derive(Debug, Serialize, PartialEq)]
#[serde(rename_all = "camelCase")]
struct Line {
    kind: &'static str,
    namespace: String,
    name: String,
    /// The member that it is on, or is to be on; empty while it waits on the hub.
    member: String,
    /// Stage of its `Placement`; absent where it has none.
    stage: Option<Stage>,
    /// Volcano queue.
    queue: String,
    /// `status.jobDeploymentStatus` of a RayJob, `status.state` of a RayCluster; empty before the first.
    status: String,
    /// `status.jobStatus` of a RayJob: what Ray said last.
    job_status: String,
    /// What it waits for, or why it is where it is.
    message: String,
    /// When it was applied to the hub, RFC 3339.
    created: String,
}

pub(crate) async fn run(args: GetArgs, access: &Access) -> Result<End> {
    let hub = access.hub().await?;
    let now = Clock::default().now();
    if args.what.contains('/') {
        let id = object_id(&args.what, &hub.namespace)?;
        let line = one(&hub, &id).await?;
        let text = args.output.render(&line, || table(std::slice::from_ref(&line), false, now))?;
        output::print(&text)?;
        return Ok(End::Done);
    }
    let kinds = kinds(&args.what)?;
    let namespace = (!args.all_namespaces).then_some(hub.namespace.as_str());
    let placements = hub.list(Kind::Placement, namespace).await?;
    let placements: BTreeMap<(&str, &str), &Value> = placements.iter().map(|p| (place(p), p)).collect();
    let mut lines = Vec::new();
    for kind in kinds {
        for root in hub.list(*kind, namespace).await? {
            let (namespace, name) = place(&root);
            let placement = placements.get(&(namespace, &*placement_name(kind.name(), name))).copied();
            let placement = placement.cloned().map(serde_json::from_value).transpose();
            lines.push(line(*kind, &root, placement.map_err(|e| format!("its Placement cannot be read: {e}"))));
        }
    }
    let text = args.output.render(&lines, || {
        if lines.is_empty() {
            return match namespace {
                Some(namespace) => format!("none in namespace {namespace}; in all namespaces: rayfleet get -A"),
                None => "none; submit one: rayfleet submit -f job.yaml".to_owned(),
            };
        }
        table(&lines, args.all_namespaces, now)
    })?;
    output::print(&text)?;
    Ok(End::Done)
}

/// `rayjobs`, `all` → the kinds that are meant.
fn kinds(what: &str) -> Result<&'static [Kind]> {
    Ok(match what.to_lowercase().as_str() {
        "all" => ROOTS,
        "rayjob" | "rayjobs" => &ROOTS[..1],
        "raycluster" | "rayclusters" => &ROOTS[1..],
        other => bail!("'{other}' is no kind of root objects: right are rayjobs, rayclusters, all, or rayjob/NAME"),
    })
}

async fn one(hub: &Hub, id: &Id) -> Result<Line> {
    let Some(root) = hub.get(id).await? else { bail!("{id} is not on the hub; those that are: rayfleet get -A") };
    Ok(line(id.kind, &root, Ok(placement_of(hub, id).await?)))
}

/// Namespace and name.
fn place(object: &Value) -> (&str, &str) {
    let text = |field: &str| object["metadata"][field].as_str().unwrap_or_default();
    (text("namespace"), text("name"))
}

/// What root object and `Placement` say; an error says why the latter cannot be read.
fn line(kind: Kind, root: &Value, placement: Result<Option<Placement>, String>) -> Line {
    let text = |path: &str| root.pointer(path).and_then(Value::as_str).unwrap_or_default().to_owned();
    let status = if kind == Kind::RayJob { "/status/jobDeploymentStatus" } else { "/status/state" };
    let mut line = Line {
        kind: kind.name(),
        namespace: text("/metadata/namespace"),
        name: text("/metadata/name"),
        member: String::new(),
        stage: placement.as_ref().ok().and_then(Option::as_ref).map(|p| p.spec.stage),
        queue: String::new(),
        status: text(status),
        job_status: text("/status/jobStatus"),
        message: String::new(),
        created: text("/metadata/creationTimestamp"),
    };
    match placement {
        Err(why) => line.message = why,
        Ok(None) => line.message = without_placement(root),
        Ok(Some(Placement { spec, status })) => {
            if spec.stage != Stage::Waiting {
                line.member = spec.member.unwrap_or_default();
            }
            line.queue = spec.queue;
            line.message = status.message;
        }
    }
    line
}

fn table(lines: &[Line], namespaces: bool, now: Time) -> String {
    let dash = |text: &str| if text.is_empty() { "-".to_owned() } else { text.to_owned() };
    let mut header = vec!["NAME", "MEMBER", "STAGE", "STATUS", "QUEUE", "AGE"];
    if namespaces {
        header.insert(0, "NAMESPACE");
    }
    output::columns(
        &header,
        lines.iter().map(|line| {
            // Ray's own word says more, once there is one.
            let status = match (line.status.as_str(), line.job_status.as_str()) {
                (status, "") => dash(status),
                (status, job) => format!("{}/{job}", dash(status)),
            };
            let age = Time::parse(&line.created).map_or_else(|| "-".to_owned(), |at| output::age(at, now));
            let mut row = vec![
                format!("{}/{}", line.kind.to_lowercase(), line.name),
                dash(&line.member),
                line.stage.map_or_else(|| "-".to_owned(), |stage| format!("{stage:?}")),
                status,
                dash(&line.queue),
                age,
            ];
            if namespaces {
                row.insert(0, line.namespace.clone());
            }
            row
        }),
    )
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn root(status: &Value) -> Value {
        json!({
            "metadata": { "name": "train", "namespace": "ns", "creationTimestamp": "1970-01-01T00:00:00Z" },
            "status": status,
        })
    }

    fn placed(stage: Stage) -> Placement {
        let mut placement = Placement::default();
        placement.spec.stage = stage;
        placement.spec.member = Some("eu".into());
        placement.spec.queue = "ml".into();
        placement.status.message = "why".into();
        placement
    }

    #[test]
    fn a_line_shows_member_stage_status_and_age() {
        let running = root(&json!({ "jobDeploymentStatus": "Running", "jobStatus": "RUNNING" }));
        let line = line(Kind::RayJob, &running, Ok(Some(placed(Stage::Running))));
        let text = table(std::slice::from_ref(&line), true, Time(300_000));
        assert_eq!(
            text,
            "NAMESPACE  NAME          MEMBER  STAGE    STATUS           QUEUE  AGE\n\
             ns         rayjob/train  eu      Running  Running/RUNNING  ml     5m"
        );
    }

    #[test]
    fn what_waits_is_on_no_member_and_what_is_not_placed_has_no_stage() {
        let waits = line(Kind::RayJob, &root(&json!({})), Ok(Some(placed(Stage::Waiting))));
        assert_eq!((&*waits.member, waits.stage, &*waits.message), ("", Some(Stage::Waiting), "why"));
        let cluster = line(Kind::RayCluster, &root(&json!({ "state": "ready" })), Ok(None));
        assert_eq!((cluster.stage, &*cluster.status), (None, "ready"));
        let text = table(&[cluster], false, Time(300_000));
        assert!(text.ends_with("raycluster/train  -       -      ready   -      5m"), "{text}");
    }

    #[test]
    fn a_placement_that_cannot_be_read_is_not_taken_for_none() {
        let line = line(Kind::RayJob, &root(&json!({})), Err("its Placement cannot be read: x".to_owned()));
        assert_eq!((line.stage, &*line.message), (None, "its Placement cannot be read: x"));
    }

    #[test]
    fn a_kind_that_is_no_root_is_refused_with_what_is_right() {
        assert_eq!(kinds("RayJobs").unwrap(), [Kind::RayJob]);
        assert_eq!(kinds("all").unwrap().len(), 2);
        assert!(kinds("pods").unwrap_err().to_string().contains("right are rayjobs, rayclusters, all"));
    }
}
