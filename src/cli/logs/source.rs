//! Reads a log where it stands: from Ray's dashboard through the Service proxy of the member's API server, or of a pod.
//! Must not know the hub, or when there is enough.

use std::time::Duration;

use anyhow::{Result, anyhow};
use serde_json::Value;

use super::place::{Spot, What};
use crate::api::wire::{Reply, Request};
use crate::api::{Id, Kind};
use crate::cli::output;
use crate::engine::RayOutcome;
use crate::engine::request::{LogAnswer, answered, ask, ask_log, log_answer};
use crate::plan::{Dashboard, JobAnswer, Question};
use crate::shell::client::{Client, Opened};
use crate::shell::lanes::Lane;

const LIMIT: Duration = Duration::from_secs(10);
/// The status of a job that is followed is asked this often.
const STATUS_EVERY: Duration = Duration::from_millis(250);
/// Its log is read after so many looks at most.
const LOOKS: u32 = 4;

/// What a look at a log gave.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Piece {
    /// The whole log so far; of a follower, what has not been printed yet.
    Text(Vec<u8>),
    /// Nothing yet, and why.
    NotYet(String),
    /// Nothing any more, and why.
    Gone(String),
}

/// A log on a member, and how far it was printed.
pub(super) struct Source {
    member: Client,
    spot: Spot,
    /// The pod that `printed` is about; empty for Ray's own log.
    pod: String,
    printed: usize,
    /// It was read after Ray had said that the job has ended: nothing is missing.
    whole: bool,
}

/// A pod of the submitter.
struct Pod {
    id: Id,
    container: String,
}

impl Source {
    pub(super) fn new(member: Client, spot: Spot) -> Self {
        Self { member, spot, pod: String::new(), printed: 0, whole: false }
    }

    pub(super) fn is_at(&self, spot: &Spot) -> bool {
        self.spot == *spot
    }

    /// Whether the log was printed to its end.
    pub(super) fn is_whole(&self) -> bool {
        self.whole
    }

    /// The whole log so far. `ended`: the job has, so what is not there will not come.
    pub(super) async fn read(&mut self, ended: bool) -> Result<Piece> {
        match self.spot.of.clone() {
            What::Ray { dashboard, job } => self.of_ray(&ask_log(&dashboard, &job), ended).await,
            What::Submitter { .. } => match self.newest_pod(ended).await? {
                Err(piece) => Ok(piece),
                Ok(pod) => {
                    let reply = self.send(Lane::Effects, &log_request(&pod, false)).await?;
                    Ok(self.pod_log(&reply, ended).unwrap_or_else(|| Piece::Text(reply.body.to_vec())))
                }
            },
        }
    }

    /// Prints what has come since, and goes on while it streams. `None`: nobody reads what is printed any more.
    pub(super) async fn follow(&mut self, ended: bool, printed: &mut bool) -> Result<Option<Piece>> {
        match self.spot.of.clone() {
            What::Ray { dashboard, job } => {
                let mut over = self.is_over(&dashboard, &job).await?;
                for _ in 0..LOOKS {
                    // Ray gives the log only whole: it is read now and then, and at once when the job is over.
                    if over || ended {
                        break;
                    }
                    tokio::time::sleep(STATUS_EVERY).await;
                    over = self.is_over(&dashboard, &job).await?;
                }
                // Asked for after the status: what is there now is all of it if the job was over then.
                match self.read(ended).await? {
                    Piece::Text(text) => {
                        if !self.print(&text, printed)? {
                            return Ok(None);
                        }
                        self.whole |= over;
                        if over && !ended {
                            // Another try may follow: the hub will say.
                            tokio::time::sleep(STATUS_EVERY).await;
                        }
                        Ok(Some(Piece::Text(Vec::new())))
                    }
                    other => Ok(Some(other)),
                }
            }
            What::Submitter { .. } => match self.newest_pod(ended).await? {
                Err(piece) => Ok(Some(piece)),
                Ok(pod) => {
                    let piece = self.stream(&pod, ended, printed).await?;
                    if !ended {
                        // A stream that ends at once must not be opened again and again.
                        tokio::time::sleep(STATUS_EVERY).await;
                    }
                    Ok(piece)
                }
            },
        }
    }

    /// Whether Ray says that the job has ended.
    async fn is_over(&self, dashboard: &Dashboard, job: &str) -> Result<bool> {
        let question = Question::Job { job: job.into() };
        let reply = self.send(Lane::Dashboards, &ask(dashboard, &question)).await?;
        Ok(match answered(&question, Some(&reply)) {
            RayOutcome::Job(JobAnswer::Info(info)) => {
                matches!(info["status"].as_str(), Some("STOPPED" | "SUCCEEDED" | "FAILED"))
            }
            _ => false,
        })
    }

    /// Prints what is new of the whole log so far. `false`: nobody reads.
    fn print(&mut self, text: &[u8], printed: &mut bool) -> Result<bool> {
        if text.len() < self.printed {
            // Another log under the same name: a head that began anew.
            self.printed = 0;
        }
        let new = &text[self.printed..];
        *printed |= !new.is_empty();
        self.printed = text.len();
        output::raw(new)
    }

    async fn of_ray(&self, request: &Request, ended: bool) -> Result<Piece> {
        let member = &self.spot.member;
        let reply = self.send(Lane::Dashboards, request).await?;
        Ok(match (log_answer(&reply), ended) {
            (LogAnswer::Text(text), _) => Piece::Text(text.into_bytes()),
            (LogAnswer::NotFound, false) => Piece::NotYet(format!("Ray on {member} does not know the job yet")),
            (LogAnswer::NotFound, true) => Piece::Gone(format!("Ray on {member} does not know the job")),
            (LogAnswer::Failed(why), false) => Piece::NotYet(format!("Ray on {member} does not answer: {why}")),
            (LogAnswer::Failed(why), true) => Piece::Gone(format!(
                "the job has ended, and its log went with its RayCluster on {member} ({why}); spec.submissionMode \
                 K8sJobMode keeps it"
            )),
        })
    }

    /// The last pod of the submitter's Job, or why there is none.
    async fn newest_pod(&mut self, ended: bool) -> Result<Result<Pod, Piece>> {
        let What::Submitter { namespace, job } = &self.spot.of else {
            return Err(anyhow!("this log is not a pod's"));
        };
        let path = Kind::Pod.collection_path(Some(namespace));
        let reply = self.send(Lane::Sight, &Request::get(format!("{path}?labelSelector=job-name%3D{job}"))).await?;
        if !reply.is_success() {
            return Err(self.refused(&reply, "its pods cannot be listed"));
        }
        let mut list: Value = serde_json::from_slice(&reply.body).unwrap_or_default();
        let text =
            |object: &Value, path: &str| object.pointer(path).and_then(Value::as_str).unwrap_or_default().to_owned();
        let pods = list["items"].as_array_mut().map(std::mem::take).unwrap_or_default();
        let newest =
            pods.into_iter().max_by_key(|pod| (text(pod, "/metadata/creationTimestamp"), text(pod, "/metadata/name")));
        let Some(pod) = newest else {
            let member = &self.spot.member;
            return Ok(Err(if ended {
                Piece::Gone(format!("its submitter's pods are gone from {member}, and its log with them"))
            } else {
                Piece::NotYet(format!("its submitter on {member} has no pod yet"))
            }));
        };
        let uid = text(&pod, "/metadata/uid");
        if self.pod != uid {
            (self.pod, self.printed) = (uid, 0);
        }
        // The first container is the submitter, whatever a user's template calls it (specs/rayjob.md 9).
        let container = text(&pod, "/spec/containers/0/name");
        let id = Id::new(Kind::Pod, namespace.clone(), text(&pod, "/metadata/name"));
        Ok(Ok(Pod { id, container }))
    }

    /// Copies the log of a pod while it streams.
    async fn stream(&mut self, pod: &Pod, ended: bool, printed: &mut bool) -> Result<Option<Piece>> {
        let opened = self.member.watch(&log_request(pod, true), LIMIT).await.map_err(|e| anyhow!("{e}"))?;
        let mut stream = match opened {
            Opened::Stream(stream) => stream,
            Opened::Reply(reply) => {
                let nothing = || Piece::Text(Vec::new());
                return Ok(Some(self.pod_log(&reply, ended).unwrap_or_else(nothing)));
            }
        };
        // It begins with what was printed before.
        let mut old = self.printed;
        while let Some(bytes) = stream.bytes().await? {
            let known = old.min(bytes.len());
            old -= known;
            let new = &bytes[known..];
            *printed |= !new.is_empty();
            self.printed += new.len();
            if !output::raw(new)? {
                return Ok(None);
            }
        }
        Ok(Some(Piece::Text(Vec::new())))
    }

    /// What a reply other than a log means.
    fn pod_log(&self, reply: &Reply, ended: bool) -> Option<Piece> {
        let message = || {
            let body: Value = serde_json::from_slice(&reply.body).unwrap_or_default();
            body["message"].as_str().unwrap_or("no explanation").to_owned()
        };
        match reply.status {
            // A pod without a node has no log.
            204 => Some(Piece::NotYet(format!("its submitter on {} is not on a node yet", self.spot.member))),
            200 => None,
            _ if ended => Some(Piece::Gone(format!("{}: {}", self.spot.member, message()))),
            _ => Some(Piece::NotYet(format!("{}: {}", self.spot.member, message()))),
        }
    }

    fn refused(&self, reply: &Reply, what: &str) -> anyhow::Error {
        let body: Value = serde_json::from_slice(&reply.body).unwrap_or_default();
        let why = body["message"].as_str().unwrap_or("no explanation");
        anyhow!("member {}: {what}: {} {why}", self.spot.member, reply.status)
    }

    async fn send(&self, lane: Lane, request: &Request) -> Result<Reply> {
        let reply = self.member.send(lane, request, LIMIT).await.map_err(|e| anyhow!("{e}"))?;
        if reply.status == 401 {
            return Err(anyhow!("member {} does not accept the credentials that stand on the hub", self.spot.member));
        }
        Ok(reply)
    }
}

fn log_request(pod: &Pod, follow: bool) -> Request {
    let follow = if follow { "&follow=true" } else { "" };
    let mut request = Request::get(format!("{}/log?container={}{follow}", pod.id.path(), pod.container));
    // A log is text, its refusal is JSON.
    "application/json, */*".clone_into(&mut request.accept);
    request
}
