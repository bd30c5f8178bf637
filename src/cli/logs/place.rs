//! Where the log of a job is to be had, as the hub's objects say.
//! Must not know how it is read.

use std::sync::Arc;

use serde_json::Value;

use crate::api::Id;
use crate::api::fleet::{Placement, Stage};
use crate::cli::explain::without_placement;
use crate::plan::Dashboard;

/// Where to look.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// Nowhere yet, and why.
    NotYet(String),
    /// Nowhere any more, and why.
    Gone(String),
    /// On a member.
    At(Spot),
}

/// A place on a member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Spot {
    /// Member.
    pub(super) member: String,
    /// What is read there.
    pub(super) of: What,
}

/// What holds the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum What {
    /// Ray, asked about this submission.
    Ray { dashboard: Dashboard, job: String },
    /// Pods of the submitter's Job.
    Submitter { namespace: Arc<str>, job: Arc<str> },
}

/// Whether the status says that nothing more will come (specs/rayjob.md 5).
pub(super) fn has_ended(root: &Value) -> bool {
    matches!(root["status"]["jobDeploymentStatus"].as_str(), Some("Complete" | "Failed" | "ValidationFailed"))
}

/// Where the log of this RayJob is.
pub(super) fn of(id: &Id, root: &Value, placement: Option<&Placement>) -> Place {
    let ended = has_ended(root);
    let Some(placement) = placement else {
        let why = without_placement(root);
        return if ended { Place::Gone(why) } else { Place::NotYet(why) };
    };
    let member = placement.spec.member.clone().unwrap_or_default();
    let message = &placement.status.message;
    let because = if message.is_empty() { String::new() } else { format!(": {message}") };
    match placement.spec.stage {
        Stage::Waiting if ended => return Place::Gone("it has ended, and nothing of it is on a member".to_owned()),
        Stage::Waiting => return Place::NotYet(format!("it waits on the hub{because}")),
        Stage::Reserving => return Place::NotYet(format!("it is being reserved on {member}{because}")),
        Stage::Withdrawing if ended => return Place::Gone(format!("it is being taken off {member}{because}")),
        Stage::Withdrawing => return Place::NotYet(format!("it is being withdrawn from {member}{because}")),
        Stage::Admitted | Stage::Running | Stage::Finished => {}
    }
    let status = &root["status"];
    let text = |field: &str| status[field].as_str().unwrap_or_default();
    let of = match root["spec"]["submissionMode"].as_str() {
        None | Some("" | "K8sJobMode") => What::Submitter { namespace: id.namespace.clone(), job: id.name.clone() },
        Some(_) => match (Dashboard::of(&id.namespace, text("dashboardURL")), text("jobId")) {
            (Some(dashboard), job) if !job.is_empty() => What::Ray { dashboard, job: job.to_owned() },
            _ if ended => return Place::Gone(format!("it ended before it had a Ray cluster: {}", text("message"))),
            _ => {
                let state = match text("jobDeploymentStatus") {
                    "" => "not begun",
                    state => state,
                };
                return Place::NotYet(format!("its Ray cluster on {member} is not up ({state})"));
            }
        },
    };
    Place::At(Spot { member, of })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::api::Kind;

    fn found(mode: &str, status: &Value, stage: Stage) -> Place {
        let mut placement = Placement::default();
        placement.spec.stage = stage;
        placement.spec.member = Some("eu".into());
        placement.status.message = "no room".into();
        let root = json!({ "spec": { "submissionMode": mode }, "status": status });
        of(&Id::new(Kind::RayJob, "ns", "train"), &root, Some(&placement))
    }

    fn up() -> Value {
        json!({ "jobId": "train-x", "dashboardURL": "train-y-head-svc.ns.svc.cluster.local:8265" })
    }

    #[test]
    fn the_log_is_rays_but_in_the_mode_with_a_submitter() {
        let dashboard = Dashboard { namespace: "ns".into(), service: "train-y-head-svc".into(), port: "8265".into() };
        let of = What::Ray { dashboard, job: "train-x".into() };
        assert_eq!(found("HTTPMode", &up(), Stage::Running), Place::At(Spot { member: "eu".into(), of }));
        for mode in ["", "K8sJobMode"] {
            let of = What::Submitter { namespace: "ns".into(), job: "train".into() };
            assert_eq!(found(mode, &json!({}), Stage::Finished), Place::At(Spot { member: "eu".into(), of }));
        }
    }

    #[test]
    fn a_job_without_a_log_says_where_it_stands() {
        let not_yet = |place| match place {
            Place::NotYet(why) => why,
            other => panic!("{other:?}"),
        };
        assert_eq!(not_yet(found("HTTPMode", &json!({}), Stage::Waiting)), "it waits on the hub: no room");
        assert_eq!(not_yet(found("HTTPMode", &up(), Stage::Reserving)), "it is being reserved on eu: no room");
        let starts = json!({ "jobDeploymentStatus": "Initializing" });
        let why = not_yet(found("HTTPMode", &starts, Stage::Admitted));
        assert_eq!(why, "its Ray cluster on eu is not up (Initializing)");
        let root = json!({ "spec": {}, "status": {} });
        let why = not_yet(of(&Id::new(Kind::RayJob, "ns", "train"), &root, None));
        assert!(why.contains("is one running? (rayfleet run)"), "{why}");
        let over = json!({ "jobDeploymentStatus": "Failed", "message": "no room in time" });
        assert!(matches!(found("HTTPMode", &over, Stage::Waiting), Place::Gone(_)));
        assert!(
            matches!(found("HTTPMode", &over, Stage::Finished), Place::Gone(why) if why.contains("no room in time"))
        );
    }
}
