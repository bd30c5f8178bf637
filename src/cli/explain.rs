//! `rayfleet explain`: where a root object is and why, from its `Placement`; or where one would go, without creating it.
//! Must not judge by itself: verdicts are the controller's, word for word.

use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use serde::Serialize;
use serde_json::Value;

use super::End;
use super::access::{Access, Hub};
use super::output::{self, Format};
use super::submit::named;
use crate::api::fleet::{GangShape, MemberVerdict, Placement, Stage};
use crate::api::{Id, Kind, Time};
use crate::plan::placement_name;
use crate::shell::clock::Clock;

/// Options of `rayfleet explain`.
#[derive(clap::Args, Debug)]
#[command(group(clap::ArgGroup::new("asked").required(true).args(["object", "filename"])))]
#[command(override_usage = "\
rayfleet explain [OPTIONS] <KIND/NAME>
       rayfleet explain [OPTIONS] -f <FILE>")]
#[command(after_help = "\
Examples:
  rayfleet explain rayjob/train
  rayfleet explain raycluster/shared -n research -o json
  rayfleet explain -f job.yaml            where it would go, without creating anything")]
pub(crate) struct ExplainArgs {
    /// The object: rayjob/NAME or raycluster/NAME
    #[arg(value_name = "KIND/NAME")]
    object: Option<String>,
    /// Manifest of an object that is not created: say where it would go
    #[arg(short, long, value_name = "FILE")]
    filename: Option<PathBuf>,
    /// Form of the output
    #[arg(short, long, value_enum, default_value_t = Format::Table)]
    output: Format,
}

pub(crate) async fn run(args: ExplainArgs, access: &Access) -> Result<End> {
    let hub = access.hub().await?;
    let now = Clock::default().now();
    let explanations = match (&args.object, &args.filename) {
        (Some(object), _) => vec![existing(&hub, &object_id(object, &hub.namespace)?).await?],
        (None, Some(file)) => super::forecast::explain(&hub, file, now).await?,
        (None, None) => bail!("name an object (rayjob/train) or a manifest (-f job.yaml)"),
    };
    let text = args
        .output
        .render(&explanations, || explanations.iter().map(|e| e.text(now)).collect::<Vec<_>>().join("\n\n"))?;
    output::print(&text)?;
    Ok(End::Done)
}

/// `rayjob/train` → the object's id.
pub(super) fn object_id(text: &str, namespace: &str) -> Result<Id> {
    let right = "right is rayjob/NAME or raycluster/NAME";
    let Some((kind, name)) = text.split_once('/').filter(|(_, name)| !name.is_empty()) else {
        bail!("'{text}' names no object: {right}");
    };
    let kind = match kind.to_lowercase().as_str() {
        "rayjob" | "rayjobs" => Kind::RayJob,
        "raycluster" | "rayclusters" => Kind::RayCluster,
        other => bail!("'{other}' is no kind that is placed: {right}"),
    };
    Ok(Id::new(kind, namespace, name))
}

/// What is said about one object. Programs get exactly this.
#[derive(Debug, Serialize, Default)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Explanation {
    /// `rayjob/train`.
    pub(crate) object: String,
    /// Its namespace.
    pub(crate) namespace: String,
    /// Stage of its `Placement`; absent where it has none.
    pub(crate) stage: Option<Stage>,
    /// Since when, RFC 3339.
    pub(crate) since: String,
    /// The member that it is on, or is to be on.
    pub(crate) member: String,
    /// Volcano queue.
    pub(crate) queue: String,
    /// Place in that queue: 1 = next; absent where it does not wait.
    pub(crate) position: Option<u32>,
    /// What it waits for, or why it is where it is.
    pub(crate) message: String,
    /// What it needs.
    pub(crate) gang: Option<GangShape>,
    /// When verdicts were last given, RFC 3339.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) decided_at: String,
    /// Each member's verdict, as of then.
    pub(crate) verdicts: Vec<MemberVerdict>,
    /// Earlier generations: one line each.
    pub(crate) history: Vec<String>,
    /// It does not exist: this is where it would go.
    pub(crate) forecast: bool,
}

async fn existing(hub: &Hub, id: &Id) -> Result<Explanation> {
    let Some(root) = hub.get(id).await? else {
        bail!("{id} is not on the hub; those that are: kubectl get {} -A", id.kind.plural());
    };
    Ok(of(id, &root, placement_of(hub, id).await?.as_ref()))
}

/// The `Placement` of a root object; an error where it cannot be read.
pub(super) async fn placement_of(hub: &Hub, root: &Id) -> Result<Option<Placement>> {
    let id = Id::new(Kind::Placement, root.namespace.clone(), placement_name(root.kind.name(), &root.name));
    let object = hub.get(&id).await?;
    object.map(serde_json::from_value).transpose().with_context(|| format!("{id} cannot be read"))
}

/// What root object and `Placement` say.
fn of(id: &Id, root: &Value, placement: Option<&Placement>) -> Explanation {
    let mut explanation =
        Explanation { object: named(id), namespace: id.namespace.to_string(), ..Explanation::default() };
    let Some(placement) = placement else {
        explanation.message = without_placement(root);
        return explanation;
    };
    let Placement { spec, status } = placement;
    explanation.stage = Some(spec.stage);
    explanation.since = spec.stage_since.clone().unwrap_or_default();
    explanation.queue.clone_from(&spec.queue);
    explanation.position = status.position;
    if spec.stage != Stage::Waiting {
        explanation.member = spec.member.clone().unwrap_or_default();
    }
    let withdrawal = spec.withdrawal.as_ref().filter(|_| spec.stage == Stage::Withdrawing);
    explanation.message = withdrawal.map_or_else(|| status.message.clone(), |w| w.message.clone());
    explanation.gang.clone_from(&status.gang);
    explanation.decided_at.clone_from(&status.decided_at);
    explanation.verdicts.clone_from(&status.verdicts);
    explanation.history = status
        .history
        .iter()
        .map(|h| {
            format!(
                "{} {} on {} (generation {}){}{}",
                h.at,
                h.event,
                h.member,
                h.generation,
                if h.message.is_empty() { "" } else { ": " },
                h.message
            )
        })
        .collect();
    explanation
}

/// Why a root object has no `Placement`.
pub(super) fn without_placement(root: &Value) -> String {
    let managed_by = root["spec"]["managedBy"].as_str().unwrap_or("");
    if !managed_by.is_empty() && !crate::api::names::MANAGED_BY_US.contains(&managed_by) {
        return format!("it is left alone: spec.managedBy is {managed_by}");
    }
    let text = |field: &str| root["status"][field].as_str().unwrap_or("");
    match (text("jobDeploymentStatus"), text("message")) {
        ("", "") => "no controller has looked at it yet; is one running? (rayfleet run)".to_owned(),
        (status, "") => status.to_owned(),
        ("", message) => message.to_owned(),
        (status, message) => format!("{status}: {message}"),
    }
}

impl Explanation {
    /// For people (`taste.md`, "words on the outside").
    fn text(&self, now: Time) -> String {
        let headline = self.headline(now);
        // "runs on eu" and "has ended on eu" are the headline's own words.
        let told = headline.contains(&self.message);
        let mut parts = vec![headline];
        // Of an object that waits the table says more than the sentence that sums it up.
        let summed_up = self.stage == Some(Stage::Waiting) && !self.verdicts.is_empty();
        if !told && self.stage.is_some() && !summed_up {
            parts.push(self.message.clone());
        }
        if let Some(gang) = &self.gang {
            parts.push(gang_line(gang));
        }
        if !self.verdicts.is_empty() {
            parts.push(String::new());
            parts.extend(self.verdicts_as_of(now));
            parts.push(output::columns(
                &["MEMBER", "VERDICT", "NEED", "HAVE", "BOUND"],
                self.verdicts.iter().map(|v| {
                    // The amount names its resource, or the verdict does.
                    let with = |amount: &str| match amount {
                        "" => String::new(),
                        named if v.dimension.is_empty() || named.contains(&v.dimension) => named.to_owned(),
                        bare => format!("{} {bare}", v.dimension),
                    };
                    [v.member.clone(), v.verdict.clone(), with(&v.need), with(&v.have), v.bound.clone()]
                }),
            ));
        }
        if !self.history.is_empty() {
            parts.push(String::new());
            parts.push("History:".to_owned());
            parts.extend(self.history.iter().map(|line| format!("  {line}")));
        }
        parts.join("\n")
    }

    /// Of an object that is bound the verdicts are from when it was placed: members have changed since.
    fn verdicts_as_of(&self, now: Time) -> Option<String> {
        if self.forecast || self.stage == Some(Stage::Waiting) {
            return None;
        }
        let at = Time::parse(&self.decided_at)?;
        Some(format!("Verdicts as of its placement at {}, {} ago:", at.seconds_text(), output::age(at, now)))
    }

    fn headline(&self, now: Time) -> String {
        let name = self.object.split_once('/').map_or(self.object.as_str(), |(_, name)| name);
        let member = &self.member;
        let since = Time::parse(&self.since).map_or_else(String::new, |at| format!(" for {}", output::age(at, now)));
        let Some(stage) = self.stage else {
            return format!("{name} has no placement: {}", self.message);
        };
        if self.forecast {
            let place =
                if member.is_empty() { "would wait on the hub".to_owned() } else { format!("would go to {member}") };
            return format!("{name} {place}, queue {}", self.queue);
        }
        let place = match stage {
            Stage::Waiting => format!("waits on the hub{since}"),
            Stage::Reserving => format!("is being reserved on {member}{since}"),
            Stage::Admitted => format!("is admitted on {member}{since}"),
            Stage::Running => format!("runs on {member}{since}"),
            Stage::Finished => format!("has ended on {member}"),
            Stage::Withdrawing => format!("is being withdrawn from {member}{since}"),
        };
        let mut details = Vec::new();
        if let Some(class) = self.gang.as_ref().map(|g| &g.priority_class).filter(|class| !class.is_empty()) {
            details.push(format!("priority {class}"));
        }
        if let (Stage::Waiting, Some(position)) = (stage, self.position) {
            details.push(format!("number {position} in it"));
        }
        let details = if details.is_empty() { String::new() } else { format!(" ({})", details.join(", ")) };
        format!("{name} {place}, queue {}{details}", self.queue)
    }
}

fn gang_line(gang: &GangShape) -> String {
    if let Some(name) = gang.cluster() {
        return format!("runs on raycluster/{name}, and needs no room besides");
    }
    let amounts = |list: &std::collections::BTreeMap<String, String>| {
        list.iter().map(|(resource, amount)| format!("{resource} {amount}")).collect::<Vec<_>>().join(", ")
    };
    let pods: Vec<String> =
        gang.pods.iter().map(|p| format!("{} × {} ({})", p.count, p.group, amounts(&p.requests))).collect();
    format!("needs {} at once: {}", amounts(&gang.min_resources), pods.join(", "))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde_json::json;

    use super::*;
    use crate::api::fleet::{GangPods, PlacementSpec, PlacementStatus};

    fn id() -> Id {
        Id::new(Kind::RayJob, "default", "train")
    }

    #[test]
    fn a_waiting_job_is_explained_with_every_members_numbers() {
        let verdict =
            |member: &str, verdict: &str, dimension: &str, need: &str, have: &str, bound: &str| MemberVerdict {
                member: member.into(),
                verdict: verdict.into(),
                dimension: dimension.into(),
                need: need.into(),
                have: have.into(),
                bound: bound.into(),
            };
        let placement = Placement {
            spec: PlacementSpec {
                queue: "ml".into(),
                stage_since: Some("1970-01-01T00:00:00.000000Z".into()),
                ..PlacementSpec::default()
            },
            status: PlacementStatus {
                position: Some(2),
                message: "no member has room for the whole gang".into(),
                gang: Some(GangShape {
                    min_member: 2,
                    min_resources: BTreeMap::from([("cpu".into(), "48".into())]),
                    priority_class: "high".into(),
                    pods: vec![GangPods {
                        node_selector: BTreeMap::new(),
                        tolerations: Vec::new(),
                        group: "headgroup".into(),
                        count: 1,
                        requests: BTreeMap::from([("cpu".into(), "48".into())]),
                    }],
                    runs_on: String::new(),
                }),
                verdicts: vec![
                    verdict("eu", "Overcommit", "cpu", "48", "41.5", "allocatable 320 × 1.2 − used 342.5"),
                    verdict("us", "Unreachable", "", "", "", "no answer since 40 s"),
                ],
                ..PlacementStatus::default()
            },
        };
        let text = of(&id(), &json!({}), Some(&placement)).text(Time(240_000));
        assert_eq!(
            text,
            "train waits on the hub for 4m, queue ml (priority high, number 2 in it)\n\
             needs cpu 48 at once: 1 × headgroup (cpu 48)\n\
             \n\
             MEMBER  VERDICT      NEED    HAVE      BOUND\n\
             eu      Overcommit   cpu 48  cpu 41.5  allocatable 320 × 1.2 − used 342.5\n\
             us      Unreachable                    no answer since 40 s"
        );
    }

    #[test]
    fn an_object_that_is_bound_says_its_place_once_and_how_old_the_verdicts_are() {
        let at = "1970-01-01T00:00:00.000000Z".to_owned();
        let mut placement = Placement {
            spec: PlacementSpec {
                queue: "ml".into(),
                stage: Stage::Finished,
                member: Some("us".into()),
                stage_since: Some(at.clone()),
                ..PlacementSpec::default()
            },
            status: PlacementStatus {
                message: "has ended on us".into(),
                decided_at: at,
                verdicts: vec![MemberVerdict {
                    member: "us".into(),
                    verdict: "Fits".into(),
                    ..MemberVerdict::default()
                }],
                ..PlacementStatus::default()
            },
        };
        let text = |placement: &Placement| of(&id(), &json!({}), Some(placement)).text(Time(240_000));
        assert_eq!(
            text(&placement),
            "train has ended on us, queue ml\n\nVerdicts as of its placement at 1970-01-01T00:00:00Z, 4m ago:\n\
             MEMBER  VERDICT  NEED  HAVE  BOUND\nus      Fits"
        );
        placement.spec.stage = Stage::Running;
        placement.status.message = "runs on us".into();
        assert!(text(&placement).starts_with("train runs on us for 4m, queue ml\n\nVerdicts"));
        placement.spec.stage = Stage::Reserving;
        placement.status.message = "goes to us: room for 3".into();
        let reserving = text(&placement);
        assert!(reserving.contains("for 4m, queue ml\ngoes to us: room for 3\n\nVerdicts"), "{reserving}");
    }

    #[test]
    fn an_object_without_a_placement_says_why() {
        let foreign = json!({"spec": {"managedBy": "kueue.x-k8s.io/multikueue"}});
        assert!(of(&id(), &foreign, None).text(Time(0)).ends_with("spec.managedBy is kueue.x-k8s.io/multikueue"));
        let invalid = json!({"status": {"jobDeploymentStatus": "ValidationFailed", "message": "no head"}});
        assert_eq!(of(&id(), &invalid, None).text(Time(0)), "train has no placement: ValidationFailed: no head");
    }

    #[test]
    fn a_wrong_name_is_refused_with_what_is_right() {
        for text in ["train", "rayjob/", "pod/x"] {
            let error = object_id(text, "default").unwrap_err().to_string();
            assert!(error.contains("right is rayjob/NAME or raycluster/NAME"), "{error}");
        }
        assert_eq!(object_id("RayJobs/train", "default").unwrap(), id());
    }
}
