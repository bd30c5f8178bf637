//! `rayfleet demo`: a fleet of three members with real Ray, jobs that show placement, waiting and withdrawal, and
//! controllers that are killed while one reserves and while a job runs. Ends by itself, with a summary.
//! Must not know more than a user does: it starts this very program as processes and looks at the API.

mod children;
mod jobs;
mod replicas;
mod story;
mod view;

use std::ffi::OsStr;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use serde_json::{Value, json};

use super::output;
use crate::api::fleet::MemberClusterSpec;
use crate::api::{RootId, member_unit};
use crate::sandbox::dir_lock::DirLock;
use crate::shell::shutdown;
use children::Running;
use jobs::{JOBS, Job, LATE_NAMESPACE};
use replicas::{Ending, Replicas, seat_name};
use story::{Story, Told};
use view::View;

/// How often the demo looks.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// How long the fleet may take until all members can be placed on.
const UP_WITHIN: Duration = Duration::from_secs(60);
const FLEET_API: &str = "/apis/rayfleet.io/v1alpha1";

/// Options of `rayfleet demo`.
#[derive(clap::Args, Debug)]
#[command(after_help = "\
It starts a sandbox and controllers as processes of their own, and ends them. Their logs and the pods' stay in DIR.

Examples:
  rayfleet demo                 with real Ray from .venv (made by `make ray`)
  rayfleet demo --ray none      with simulated pods, where no Ray can be had
  rayfleet demo --attach planes.yaml --controllers hub.yaml --tunnels /run/planes
                                on API servers that run elsewhere, with the members us and ap registered on the hub")]
pub struct DemoArgs {
    /// Virtual environment that Ray is installed in; `none` simulates the pods
    #[arg(long, value_name = "VENV", default_value = ".venv", env = "RAYFLEET_RAY")]
    ray: String,
    /// Where the fleet keeps its files; emptied at the start
    #[arg(long, value_name = "DIR", default_value = ".sandbox/demo")]
    dir: PathBuf,
    /// Controller replicas; one alone is killed and started again, of several one is killed while it reserves, one while
    /// a job runs, and one is asked to leave
    #[arg(long, value_name = "COUNT", default_value_t = 3, value_parser = clap::value_parser!(u8).range(1..=9))]
    replicas: u8,
    /// Play on API servers that run elsewhere, as `rayfleet sandbox --attach` does: contexts hub, us and ap
    #[arg(long, value_name = "KUBECONFIG", requires = "controllers")]
    attach: Option<PathBuf>,
    /// Where the sockets to the pods of --attach are made
    #[arg(long, value_name = "DIR", requires = "attach")]
    tunnels: Option<PathBuf>,
    /// Kubeconfig of the hub of --attach for the controllers
    #[arg(long, value_name = "KUBECONFIG", requires = "attach")]
    controllers: Option<PathBuf>,
    /// Give up after this many seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 300)]
    limit_seconds: u64,
}

/// The running demo.
struct Demo {
    args: DemoArgs,
    started: Instant,
    sandbox: Running,
    replicas: Replicas,
    view: View,
    /// What is still to happen to replicas, in order.
    acts: Vec<Act>,
    told: Told,
    members: &'static [&'static str],
}

/// What happens to a replica.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Act {
    KillWhileReserving,
    KillWhileRunning,
    Ask,
}

/// Runs the demo; an error says what did not come true.
pub async fn run(args: DemoArgs) -> Result<()> {
    let mut demo = Demo::start(args)?;
    let limit = Duration::from_secs(demo.args.limit_seconds);
    let ended = tokio::select! {
        told = tokio::time::timeout(limit, demo.tell()) => told.unwrap_or_else(|_late| {
            Err(anyhow::anyhow!("not done after {} s; logs are in {}", demo.args.limit_seconds, demo.args.dir.display()))
        }),
        _signal = shutdown::asked() => Err(anyhow::anyhow!("interrupted")),
    };
    if ended.is_err() {
        demo.keep_state().await;
    }
    demo.stop().await;
    output::print(&format!("\n{}\n", demo.told.summary()))?;
    ended.and_then(|()| demo.told.check(usize::from(demo.args.replicas)))?;
    demo.say("everything came true: no job was submitted twice, nothing is left running")
}

impl Demo {
    /// Starts the sandbox.
    fn start(args: DemoArgs) -> Result<Self> {
        let started = Instant::now();
        if args.dir.exists() {
            // Not under the feet of another one.
            let _held = DirLock::take(&args.dir).with_context(|| format!("--dir {}", args.dir.display()))?;
            std::fs::remove_dir_all(&args.dir).with_context(|| format!("emptying {}", args.dir.display()))?;
        }
        std::fs::create_dir_all(&args.dir).with_context(|| format!("making {}", args.dir.display()))?;
        let fleet = args.dir.join("fleet.yaml");
        let text = if args.attach.is_some() { include_str!("fleet_of_two.yaml") } else { include_str!("fleet.yaml") };
        std::fs::write(&fleet, text).with_context(|| format!("writing {}", fleet.display()))?;
        let mut arguments: Vec<&OsStr> = vec![
            "--members".as_ref(),
            fleet.as_os_str(),
            "--dir".as_ref(),
            args.dir.as_os_str(),
            "--ray".as_ref(),
            args.ray.as_ref(),
            "--no-controller".as_ref(),
        ];
        for (option, value) in [("--attach", &args.attach), ("--tunnels", &args.tunnels)] {
            arguments.extend(value.iter().flat_map(|path| [option.as_ref(), path.as_os_str()]));
        }
        let sandbox = Running::start("sandbox", &args.dir, "sandbox.log", &arguments)?;
        let told = Told { stories: vec![Story::default(); JOBS.len()], hand_overs: Vec::new() };
        let acts = match args.replicas {
            1 => vec![Act::KillWhileRunning],
            _ => vec![Act::KillWhileReserving, Act::KillWhileRunning, Act::Ask],
        };
        let (replicas, members) = match &args.controllers {
            Some(kubeconfig) => (Replicas::of(kubeconfig, None), &["us", "ap"][..]),
            None => (Replicas::of(&args.dir.join("kubeconfig"), Some("hub")), &["eu", "us", "ap"][..]),
        };
        let demo = Self { acts, view: View::none(), args, started, sandbox, replicas, told, members };
        demo.say(if demo.args.attach.is_some() {
            "API servers that run elsewhere: a hub and two members, us (queues ml, research), ap (ml, its scheduler is slow)"
        } else {
            "a hub and three members: eu (queues ml, research), us (ml), ap (ml, its scheduler is slow)"
        })?;
        demo.say(match demo.args.ray.as_str() {
            "none" => "pods are SIMULATED (--ray none): no Ray runs, and what jobs would print is not there",
            _ => "pods are real Ray processes",
        })?;
        Ok(demo)
    }

    fn say(&self, text: &str) -> Result<()> {
        output::print(&format!("[{:5.1}s] {text}", self.started.elapsed().as_secs_f32()))
    }

    fn check_processes(&mut self) -> Result<()> {
        self.sandbox.check()?;
        self.replicas.check()
    }

    /// Waits for the kubeconfig that is written once all servers listen.
    async fn sandbox_is_up(&mut self) -> Result<()> {
        let kubeconfig = self.args.attach.clone().unwrap_or_else(|| self.args.dir.join("kubeconfig"));
        while !kubeconfig.exists() {
            self.check_processes()?;
            tokio::time::sleep(LOOK_EVERY / 5).await;
        }
        self.view = View::new(&kubeconfig)?;
        Ok(())
    }

    fn start_controller(&mut self, seat: &str) -> Result<()> {
        let id = self.replicas.start(&self.args.dir, seat)?;
        self.say(&format!("controller process {id} started on seat {seat}"))
    }

    /// Waits until every member is ready and its capacity is known.
    async fn members_are_ready(&mut self) -> Result<()> {
        loop {
            self.check_processes()?;
            let ready = self.view.items("hub", &format!("{FLEET_API}/memberclusters")).await?;
            let ready = ready.iter().filter(|member| {
                let conditions = member["status"]["conditions"].as_array().into_iter().flatten();
                conditions.into_iter().any(|c| c["type"] == "Ready" && c["status"] == "True")
            });
            let known = self.view.items("hub", &format!("{FLEET_API}/membercapacities")).await?;
            let known = known.iter().filter(|capacity| capacity["spec"]["queues"]["ml"]["state"] == "Open");
            if ready.count() == self.members.len() && known.count() == self.members.len() {
                return self.say("all members are ready");
            }
            tokio::time::sleep(LOOK_EVERY / 5).await;
        }
    }

    /// Submits all jobs and follows them to their ends.
    async fn tell(&mut self) -> Result<()> {
        let up = async {
            self.sandbox_is_up().await?;
            for index in 0..usize::from(self.args.replicas) {
                self.start_controller(&seat_name(index))?;
            }
            self.members_are_ready().await
        };
        tokio::time::timeout(UP_WITHIN, up).await.context("the fleet is not ready after a minute")??;
        self.submit().await?;
        loop {
            self.check_processes()?;
            for (index, job) in JOBS.iter().enumerate() {
                self.look(index, job).await?;
            }
            self.end_replicas().await?;
            let ended = |(job, story): (&Job, &Story)| job.name == "nowhere" || !story.result.is_empty();
            let all_ended = JOBS.iter().zip(&self.told.stories).all(ended);
            if all_ended && self.acts.is_empty() && self.replicas.at_rest() {
                return Ok(());
            }
            // A hand-over is shorter than the time between two looks at jobs.
            tokio::time::sleep(if self.replicas.at_rest() { LOOK_EVERY } else { LOOK_EVERY / 10 }).await;
        }
    }

    /// One after the other: whatever is to happen to replicas, as soon as its moment has come.
    async fn end_replicas(&mut self) -> Result<()> {
        if let Some(text) = self.replicas.look(&self.view).await? {
            self.say(&text)?;
            if let Some(last) = self.replicas.hand_overs.last().filter(|last| last.ending == Ending::Killed) {
                let seat = last.seat.clone();
                if self.args.replicas > 1 {
                    self.start_controller(&seat)?;
                }
            }
        }
        let Some(act) = self.acts.first().copied().filter(|_| self.replicas.at_rest()) else { return Ok(()) };
        let (unit, ending, during) = match act {
            Act::KillWhileReserving => {
                let Some(unit) = self.unit_of("patient", &["Reserving"]).await? else {
                    return self.skip_if_over("patient");
                };
                (Some(unit), Ending::Killed, "while patient is being reserved")
            }
            Act::KillWhileRunning => {
                let Some(unit) = self.unit_of("survivor", &["Running"]).await? else {
                    return self.skip_if_over("survivor");
                };
                (Some(unit), Ending::Killed, "while survivor runs")
            }
            Act::Ask => (None, Ending::Asked, "as an update does"),
        };
        let Some(text) = self.replicas.end(&self.view, unit.as_deref(), ending, during).await? else { return Ok(()) };
        self.acts.remove(0);
        self.say(&text)?;
        if self.args.replicas == 1 {
            // Nobody else is there to take over.
            self.start_controller(&seat_name(0))?;
        }
        Ok(())
    }

    /// An act whose moment did not come does not hold up the end: the claims will name it.
    fn skip_if_over(&mut self, job: &str) -> Result<()> {
        let over = |(at, story): (&Job, &Story)| at.name == job && !story.result.is_empty();
        if JOBS.iter().zip(&self.told.stories).any(over) {
            self.acts.remove(0);
            self.say(&format!("{job} has ended before its controller could be killed"))?;
        }
        Ok(())
    }

    /// The unit that works on the job, once its `Placement` is in one of these stages (and Ray runs it, where that is one).
    async fn unit_of(&self, name: &str, stages: &[&str]) -> Result<Option<String>> {
        let Some(job) = JOBS.iter().find(|job| job.name == name) else { return Ok(None) };
        let path = format!("{FLEET_API}/namespaces/{}/placements/rayjob-{name}", job.namespace);
        let placement = self.view.get("hub", &path).await?.unwrap_or_default();
        let (stage, member) = (text(&placement["spec"]["stage"]), text(&placement["spec"]["member"]));
        if !stages.contains(&stage) {
            return Ok(None);
        }
        if stage == "Reserving" {
            return Ok(Some(member_unit(member, 0).to_string()));
        }
        let path = format!("/apis/ray.io/v1/namespaces/{}/rayjobs/{name}", job.namespace);
        let root = self.view.get("hub", &path).await?.unwrap_or_default();
        let running = root["status"]["jobStatus"] == "RUNNING";
        let root_id = RootId::from(text(&placement["spec"]["root"]["rootId"]));
        // The members of the demo are registered with the default number of units.
        let units = MemberClusterSpec::default().unit_count();
        Ok(running.then(|| root_id.member_unit(member, units).to_string()))
    }

    async fn submit(&mut self) -> Result<()> {
        let namespace = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": LATE_NAMESPACE } });
        self.view.create("hub", "/api/v1/namespaces", &namespace).await?;
        for (namespace, policy) in Job::policies() {
            let path = format!("{FLEET_API}/namespaces/{namespace}/placementpolicies");
            self.view.create("hub", &path, &policy).await?;
        }
        // What fits nowhere goes first: once it is judged on all members, whoever places the queue sees all of them, and
        // where the others go does not hang on which member was seen first.
        let (first, others): (Vec<&Job>, Vec<&Job>) = JOBS.iter().partition(|job| job.name == "nowhere");
        for job in first {
            self.submit_one(job).await?;
            let judged = self.is_judged_everywhere(job);
            tokio::time::timeout(UP_WITHIN, judged)
                .await
                .context("no job is judged on all members after a minute")??;
        }
        for job in others {
            self.submit_one(job).await?;
        }
        Ok(())
    }

    async fn submit_one(&mut self, job: &Job) -> Result<()> {
        self.say(&format!("submit {:9} {}", job.name, job.shows))?;
        let path = format!("/apis/ray.io/v1/namespaces/{}/rayjobs", job.namespace);
        self.view.create("hub", &path, &job.manifest()).await
    }

    async fn is_judged_everywhere(&self, job: &Job) -> Result<()> {
        let path = format!("{FLEET_API}/namespaces/{}/placements/rayjob-{}", job.namespace, job.name);
        loop {
            let placement = self.view.get("hub", &path).await?.unwrap_or_default();
            let verdicts = placement["status"]["verdicts"].as_array().into_iter().flatten();
            if verdicts.filter(|verdict| verdict["verdict"] == "NeverFits").count() == self.members.len() {
                return Ok(());
            }
            tokio::time::sleep(LOOK_EVERY / 5).await;
        }
    }

    /// Looks at one job: its Placement, what Ray says of it, and whether it has ended.
    async fn look(&mut self, index: usize, job: &Job) -> Result<()> {
        let path = format!("/apis/ray.io/v1/namespaces/{}/rayjobs/{}", job.namespace, job.name);
        let root = self.view.get("hub", &path).await?.unwrap_or_default();
        if !self.told.stories[index].result.is_empty() {
            return Ok(());
        }
        let path = format!("{FLEET_API}/namespaces/{}/placements/rayjob-{}", job.namespace, job.name);
        let placement = self.view.get("hub", &path).await?.unwrap_or_default();
        for line in self.told.stories[index].follow(&placement) {
            self.say(&format!("{:9} {line}", job.name))?;
        }
        let status = &root["status"];
        let member = text(&placement["spec"]["member"]);
        if ["RUNNING", "SUCCEEDED", "FAILED", "STOPPED"].contains(&text(&status["jobStatus"])) && !member.is_empty() {
            self.ask_ray(index, job, member, status).await;
        }
        let deployment = text(&status["jobDeploymentStatus"]);
        if ["Complete", "Failed", "ValidationFailed"].contains(&deployment) {
            let result = Some(text(&status["jobStatus"])).filter(|r| !r.is_empty()).unwrap_or(deployment);
            result.clone_into(&mut self.told.stories[index].result);
            self.say(&format!("{:9} {result} on {member}: {}", job.name, text(&status["message"])))?;
        }
        Ok(())
    }

    /// Ray's own job list and log, through the member's API server. A head that does not answer just now is asked again
    /// with the next look.
    async fn ask_ray(&mut self, index: usize, job: &Job, member: &str, status: &Value) {
        let (cluster, id) = (text(&status["rayClusterName"]), text(&status["jobId"]));
        let ask = async |path: &str| self.view.dashboard(member, job.namespace, cluster, path).await.ok();
        let list = ask("/api/jobs/").await;
        let log = ask(&format!("/api/jobs/{id}/logs")).await.unwrap_or_default();
        let story = &mut self.told.stories[index];
        if let Some(jobs) = list.as_ref().and_then(Value::as_array) {
            let count = jobs.iter().filter(|j| j["type"] == "SUBMISSION").count();
            story.submissions = story.submissions.max(Some(count));
        }
        if let Some(last) = text(&log["logs"]).lines().rfind(|line| !line.trim().is_empty()) {
            last.clone_into(&mut story.printed);
        }
    }

    /// What a person needs who wants to know why: the objects of all clusters as they are now, one file for each kind.
    async fn keep_state(&self) {
        let kinds = [
            "/apis/ray.io/v1/rayjobs",
            "/apis/ray.io/v1/rayclusters",
            "/apis/rayfleet.io/v1alpha1/placements",
            "/api/v1/pods",
            "/api/v1/events",
        ];
        for cluster in ["hub"].iter().chain(self.members) {
            for path in kinds {
                // It failed already: what can be had is kept.
                let Ok(Some(list)) = self.view.get(cluster, path).await else { continue };
                let kind = path.rsplit('/').next().unwrap_or_default();
                let path = self.args.dir.join(format!("{cluster}-{kind}.json"));
                if let Err(error) = std::fs::write(&path, format!("{list:#}")) {
                    tracing::warn!(path = %path.display(), %error, "what failed could not be kept");
                }
            }
        }
    }

    /// Ends all processes: the controllers first, then the sandbox, which takes its pods with it.
    async fn stop(&mut self) {
        self.replicas.stop().await;
        self.told.hand_overs.clone_from(&self.replicas.hand_overs);
        self.sandbox.end().await;
    }
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}
