//! `rayfleet demo`: a fleet of three members with real Ray, jobs that show placement, waiting, withdrawal, and a
//! controller that is killed while a job runs. Ends by itself, with a summary.
//! Must not know more than a user does: it starts this very program as processes and looks at the API.

mod children;
mod jobs;
mod story;
mod view;

use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};

use super::output;
use crate::shell::shutdown;
use children::Running;
use jobs::{JOBS, Job, LATE_NAMESPACE};
use story::{Story, Told};
use view::View;

/// How often the demo looks.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// How long the fleet may take until all members can be placed on.
const UP_WITHIN: Duration = Duration::from_secs(60);
/// How long the second controller may take to hold what the first one held.
const SUCCESSION_WITHIN: Duration = Duration::from_secs(30);
const FLEET_API: &str = "/apis/rayfleet.io/v1alpha1";

/// Options of `rayfleet demo`.
#[derive(clap::Args, Debug)]
#[command(after_help = "\
It starts a sandbox and a controller as processes of their own, and ends both. Their logs and the pods' stay in DIR.

Examples:
  rayfleet demo                 with real Ray from .venv (made by `make ray`)
  rayfleet demo --ray none      with simulated pods, where no Ray can be had")]
pub struct DemoArgs {
    /// Virtual environment that Ray is installed in; `none` simulates the pods
    #[arg(long, value_name = "VENV", default_value = ".venv", env = "RAYFLEET_RAY")]
    ray: String,
    /// Where the fleet keeps its files; emptied at the start
    #[arg(long, value_name = "DIR", default_value = ".sandbox/demo")]
    dir: PathBuf,
    /// Give up after this many seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 300)]
    limit_seconds: u64,
}

/// The running demo.
struct Demo {
    args: DemoArgs,
    started: Instant,
    sandbox: Running,
    controller: Option<Running>,
    view: View,
    told: Told,
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
    ended.and_then(|()| demo.told.check())?;
    demo.say("everything came true: no job was submitted twice, nothing is left running")
}

impl Demo {
    /// Starts the sandbox.
    fn start(args: DemoArgs) -> Result<Self> {
        let started = Instant::now();
        if args.dir.exists() {
            std::fs::remove_dir_all(&args.dir).with_context(|| format!("emptying {}", args.dir.display()))?;
        }
        std::fs::create_dir_all(&args.dir).with_context(|| format!("making {}", args.dir.display()))?;
        let fleet = args.dir.join("fleet.yaml");
        std::fs::write(&fleet, include_str!("fleet.yaml")).with_context(|| format!("writing {}", fleet.display()))?;
        let arguments = [
            "--members".as_ref(),
            fleet.as_os_str(),
            "--dir".as_ref(),
            args.dir.as_os_str(),
            "--ray".as_ref(),
            args.ray.as_ref(),
            "--no-controller".as_ref(),
        ];
        let sandbox = Running::start("sandbox", &args.dir, "sandbox.log", &arguments)?;
        let told = Told { stories: vec![Story::default(); JOBS.len()], controller_runs: 0, succession_seconds: None };
        let demo = Self { view: View::none()?, args, started, sandbox, controller: None, told };
        demo.say("a hub and three members: eu (queues ml, research), us (ml), ap (ml, its scheduler is slow)")?;
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
        self.controller.as_mut().map_or(Ok(()), Running::check)
    }

    /// Waits for the kubeconfig that is written once all servers listen.
    async fn sandbox_is_up(&mut self) -> Result<()> {
        let kubeconfig = self.args.dir.join("kubeconfig");
        while !kubeconfig.exists() {
            self.check_processes()?;
            tokio::time::sleep(LOOK_EVERY / 5).await;
        }
        self.view = View::new(&kubeconfig)?;
        Ok(())
    }

    fn start_controller(&mut self) -> Result<()> {
        let kubeconfig = self.args.dir.join("kubeconfig");
        let arguments = [
            "--profile".as_ref(),
            "fast".as_ref(),
            "--seat".as_ref(),
            "demo".as_ref(),
            "--listen".as_ref(),
            "127.0.0.1:0".as_ref(),
            "--kubeconfig".as_ref(),
            kubeconfig.as_os_str(),
            "--context".as_ref(),
            "hub".as_ref(),
        ];
        let controller = Running::start("run", &self.args.dir, "controller.log", &arguments)?;
        self.told.controller_runs += 1;
        self.say(&format!("controller process {} started", controller.id()))?;
        self.controller = Some(controller);
        Ok(())
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
            if ready.count() == 3 && known.len() == 3 {
                return self.say("all members are ready");
            }
            tokio::time::sleep(LOOK_EVERY / 5).await;
        }
    }

    /// Submits all jobs and follows them to their ends.
    async fn tell(&mut self) -> Result<()> {
        let up = async {
            self.sandbox_is_up().await?;
            self.start_controller()?;
            self.members_are_ready().await
        };
        tokio::time::timeout(UP_WITHIN, up).await.context("the fleet is not ready after a minute")??;
        self.submit().await?;
        let mut killed = false;
        loop {
            self.check_processes()?;
            for (index, job) in JOBS.iter().enumerate() {
                let root = self.look(index, job).await?;
                if job.name == "survivor" && root["status"]["jobStatus"] == "RUNNING" && !killed {
                    killed = true;
                    self.kill_controller().await?;
                }
            }
            let ended = |(job, story): (&Job, &Story)| job.name == "nowhere" || !story.result.is_empty();
            if killed && JOBS.iter().zip(&self.told.stories).all(ended) {
                return Ok(());
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }

    async fn submit(&mut self) -> Result<()> {
        let namespace = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": LATE_NAMESPACE } });
        self.view.create("hub", "/api/v1/namespaces", &namespace).await?;
        for (namespace, policy) in Job::policies() {
            let path = format!("{FLEET_API}/namespaces/{namespace}/placementpolicies");
            self.view.create("hub", &path, &policy).await?;
        }
        for job in JOBS {
            self.say(&format!("submit {:9} {}", job.name, job.shows))?;
            let path = format!("/apis/ray.io/v1/namespaces/{}/rayjobs", job.namespace);
            self.view.create("hub", &path, &job.manifest()).await?;
        }
        Ok(())
    }

    /// Looks at one job: its Placement, what Ray says of it, and whether it has ended.
    async fn look(&mut self, index: usize, job: &Job) -> Result<Value> {
        let path = format!("/apis/ray.io/v1/namespaces/{}/rayjobs/{}", job.namespace, job.name);
        let root = self.view.get("hub", &path).await?.unwrap_or_default();
        if !self.told.stories[index].result.is_empty() {
            return Ok(root);
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
        Ok(root)
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

    /// SIGKILL to the controller while `survivor` runs, and a new one.
    async fn kill_controller(&mut self) -> Result<()> {
        let Some(controller) = self.controller.take() else { return Ok(()) };
        self.say(&format!("SIGKILL to controller process {}: survivor runs on", controller.id()))?;
        controller.kill().await?;
        let held = self.units().await?;
        let killed = Instant::now();
        self.start_controller()?;
        loop {
            self.check_processes()?;
            let holds = self.units().await?;
            // The part behind # counts the processes on the seat.
            let taken = |unit: &(String, String)| holds.iter().any(|new| new.0 == unit.0 && new.1 == "demo#2");
            if held.iter().all(taken) {
                break;
            }
            if killed.elapsed() > SUCCESSION_WITHIN {
                bail!("the second controller does not hold all {} units after {SUCCESSION_WITHIN:?}", held.len());
            }
            tokio::time::sleep(LOOK_EVERY / 5).await;
        }
        let seconds = killed.elapsed().as_secs_f32();
        self.told.succession_seconds = Some(seconds);
        self.say(&format!("the new controller holds all {} units after {seconds:.1} s", held.len()))
    }

    /// Units and their holders, as the Leases say.
    async fn units(&self) -> Result<Vec<(String, String)>> {
        let leases = "/apis/coordination.k8s.io/v1/namespaces/rayfleet-system/leases";
        let leases = self.view.items("hub", leases).await?;
        let units =
            leases.iter().map(|lease| (text(&lease["metadata"]["name"]), text(&lease["spec"]["holderIdentity"])));
        let units = units.filter(|(name, _)| name.starts_with("q-") || name.starts_with("m-"));
        Ok(units.map(|(name, holder)| (name.to_owned(), holder.to_owned())).collect())
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
        for cluster in ["hub", "eu", "us", "ap"] {
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

    /// Ends both processes: the controller first, then the sandbox, which takes its pods with it.
    async fn stop(&mut self) {
        if let Some(controller) = &mut self.controller {
            controller.end().await;
        }
        self.sandbox.end().await;
    }
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}
