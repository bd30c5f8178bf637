//! `rayfleet demo`: a fleet of three members with real Ray, jobs that show placement, waiting, withdrawal, and a
//! controller that is killed while a job runs. Ends by itself, with a summary.
//! Must not know more than a user does: it starts this very program as processes and looks at the API.

mod jobs;
mod view;

use std::path::PathBuf;
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use comfy_table::Table;
use serde_json::{Value, json};
use tokio::process::{Child, Command};

use jobs::{JOBS, Job, LATE_NAMESPACE};
use view::View;

/// Options of `rayfleet demo`.
#[derive(clap::Args, Debug)]
pub struct DemoArgs {
    /// Virtual environment that Ray is installed in; `none` simulates the pods.
    #[arg(long, default_value = ".venv", env = "RAYFLEET_RAY")]
    ray: String,
    /// Where the fleet keeps its files; emptied at the start.
    #[arg(long, default_value = ".sandbox/demo")]
    dir: PathBuf,
    /// Give up after this many seconds.
    #[arg(long, default_value_t = 300)]
    limit_seconds: u64,
}

/// What became of one job.
#[derive(Clone, Default)]
struct Story {
    /// Members that it was bound to, in order.
    members: Vec<String>,
    /// What it waited for, as its status said.
    waited: Vec<String>,
    /// Final `status.jobStatus`.
    result: String,
    /// What the Ray job printed, last line.
    printed: String,
    /// Submissions in Ray's own job list.
    submissions: Option<usize>,
}

/// The running demo.
struct Demo {
    args: DemoArgs,
    started: Instant,
    sandbox: Child,
    controller: Option<Child>,
    view: View,
    stories: Vec<Story>,
    controller_runs: u32,
}

/// Runs the demo; an error says what did not come true.
pub async fn run(args: DemoArgs) -> Result<()> {
    let mut demo = Demo::start(args).await?;
    let told = demo.tell().await;
    let summary = demo.summary();
    demo.stop().await;
    say(demo.started, &summary);
    told
}

fn say(started: Instant, text: &str) {
    for line in text.lines() {
        anstream_line(&format!("[{:5.1}s] {line}", started.elapsed().as_secs_f32()));
    }
}

#[expect(clippy::print_stdout, reason = "the demo's output is its purpose")]
fn anstream_line(line: &str) {
    println!("{line}");
}

impl Demo {
    /// Starts the sandbox and a controller, each a process of its own.
    async fn start(args: DemoArgs) -> Result<Self> {
        let started = Instant::now();
        if args.dir.exists() {
            std::fs::remove_dir_all(&args.dir).with_context(|| format!("emptying {}", args.dir.display()))?;
        }
        std::fs::create_dir_all(&args.dir)?;
        let fleet = args.dir.join("fleet.yaml");
        std::fs::write(&fleet, include_str!("fleet.yaml"))?;
        say(
            started,
            "A hub and three members: eu (queues ml, research), us (ml, large), ap (ml, its scheduler is slow)",
        );
        let sandbox = Command::new(std::env::current_exe()?)
            .arg("sandbox")
            .args(["--members".as_ref(), fleet.as_os_str()])
            .args(["--dir".as_ref(), args.dir.as_os_str()])
            .args(["--ray", &args.ray, "--no-controller"])
            .stdin(Stdio::null())
            .stdout(log(&args, "sandbox.log")?)
            .stderr(log(&args, "sandbox.log")?)
            .kill_on_drop(true)
            .spawn()
            .context("starting the sandbox")?;
        let kubeconfig = args.dir.join("kubeconfig");
        let mut demo = Self {
            view: View::none()?,
            args,
            started,
            sandbox,
            controller: None,
            stories: vec![Story::default(); JOBS.len()],
            controller_runs: 0,
        };
        demo.until("the sandbox to be up", 60, || kubeconfig.exists()).await?;
        demo.view = View::new(&kubeconfig)?;
        let mut up = false;
        for _ in 0..300 {
            demo.check_processes()?;
            if demo.view.get("hub", "/apis/ray.io/v1/rayjobs").await.is_ok_and(|r| r.is_some()) {
                up = true;
                break;
            }
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
        if !up {
            bail!("the hub does not serve rayjobs; see {}", demo.args.dir.join("sandbox.log").display());
        }
        demo.start_controller()?;
        Ok(demo)
    }

    async fn until(&mut self, what: &str, seconds: u64, condition: impl Fn() -> bool) -> Result<()> {
        let deadline = Instant::now() + Duration::from_secs(seconds);
        while !condition() {
            self.check_processes()?;
            if Instant::now() > deadline {
                bail!("waited {seconds} s for {what}; logs are in {}", self.args.dir.display());
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        Ok(())
    }

    fn start_controller(&mut self) -> Result<()> {
        let child = Command::new(std::env::current_exe()?)
            .args(["run", "--profile", "fast", "--seat", "demo", "--listen", "127.0.0.1:0"])
            .args(["--kubeconfig".as_ref(), self.args.dir.join("kubeconfig").as_os_str()])
            .args(["--context", "hub"])
            .stdin(Stdio::null())
            .stdout(log(&self.args, "controller.log")?)
            .stderr(log(&self.args, "controller.log")?)
            .kill_on_drop(true)
            .spawn()
            .context("starting the controller")?;
        self.controller_runs += 1;
        say(self.started, &format!("controller process {} started", child.id().unwrap_or_default()));
        self.controller = Some(child);
        Ok(())
    }

    fn check_processes(&mut self) -> Result<()> {
        if let Some(status) = self.sandbox.try_wait()? {
            bail!("the sandbox ended ({status}); see {}", self.args.dir.join("sandbox.log").display());
        }
        if let Some(controller) = &mut self.controller
            && let Some(status) = controller.try_wait()?
        {
            bail!("the controller ended ({status}); see {}", self.args.dir.join("controller.log").display());
        }
        Ok(())
    }

    /// Submits all jobs and follows them to their ends.
    async fn tell(&mut self) -> Result<()> {
        let namespace = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": LATE_NAMESPACE } });
        self.view.create("hub", "/api/v1/namespaces", &namespace).await?;
        let policies = format!("/apis/rayfleet.io/v1alpha1/namespaces/{LATE_NAMESPACE}/placementpolicies");
        self.view.create("hub", &policies, &Job::late_policy()).await?;
        for job in JOBS {
            say(self.started, &format!("submit {:9} {}", job.name, job.shows));
            let path = format!("/apis/ray.io/v1/namespaces/{}/rayjobs", job.namespace);
            self.view.create("hub", &path, &job.manifest()).await?;
        }
        let mut killed = false;
        loop {
            self.check_processes()?;
            if self.started.elapsed() > Duration::from_secs(self.args.limit_seconds) {
                bail!("not done after {} s; logs are in {}", self.args.limit_seconds, self.args.dir.display());
            }
            let mut running = false;
            for (index, job) in JOBS.iter().enumerate() {
                let root = self.look(index, job).await?;
                let ray_runs = root["status"]["jobStatus"] == "RUNNING";
                running |= ray_runs && job.name == "survivor";
            }
            if running && !killed {
                killed = true;
                self.kill_controller().await?;
            }
            if killed && JOBS.iter().zip(&self.stories).all(|(job, s)| job.name == "nowhere" || !s.result.is_empty()) {
                break;
            }
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
        self.check()
    }

    /// Looks at one job: its status, its placement, and once it has ended what Ray says of it.
    async fn look(&mut self, index: usize, job: &Job) -> Result<Value> {
        let path = format!("/apis/ray.io/v1/namespaces/{}/rayjobs/{}", job.namespace, job.name);
        let root = self.view.get("hub", &path).await?.unwrap_or_default();
        let path = format!("/apis/rayfleet.io/v1alpha1/namespaces/{}/placements/rayjob-{}", job.namespace, job.name);
        let placement = self.view.get("hub", &path).await?.unwrap_or_default();
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let (stage, member) = (text(&placement["spec"]["stage"]), text(&placement["spec"]["member"]));
        let message = text(&root["status"]["message"]);
        let result = text(&root["status"]["jobStatus"]);
        let started = self.started;
        let story = &mut self.stories[index];
        if stage == "Reserving" && story.members.last() != Some(&member) && !member.is_empty() {
            say(started, &format!("{:9} bound to {member}", job.name));
            story.members.push(member.clone());
        } else if !member.is_empty() && story.members.last() != Some(&member) && stage != "Waiting" {
            say(started, &format!("{:9} is on {member}", job.name));
            story.members.push(member.clone());
        }
        let waits = if stage == "Waiting" { text(&placement["status"]["message"]) } else { String::new() };
        if !waits.is_empty() && story.waited.last() != Some(&waits) && story.waited.len() < 8 {
            say(started, &format!("{:9} waits: {waits}", job.name));
            story.waited.push(waits);
        }
        let live = ["RUNNING", "SUCCEEDED", "FAILED", "STOPPED"].contains(&result.as_str());
        if live && story.result.is_empty() && !member.is_empty() {
            let ray_cluster = text(&root["status"]["rayClusterName"]);
            let id = text(&root["status"]["jobId"]);
            if let Ok(list) = self.view.dashboard(&member, job.namespace, &ray_cluster, "/api/jobs/").await {
                let count = list.as_array().map_or(0, |jobs| {
                    jobs.iter().filter(|j| j["submission_id"] == id.as_str() || j["type"] == "SUBMISSION").count()
                });
                self.stories[index].submissions = Some(count.max(self.stories[index].submissions.unwrap_or(0)));
            }
            let logs = format!("/api/jobs/{id}/logs");
            if let Ok(logs) = self.view.dashboard(&member, job.namespace, &ray_cluster, &logs).await {
                let last = logs["logs"].as_str().unwrap_or_default().lines().rfind(|l| !l.trim().is_empty());
                if let Some(last) = last {
                    last.clone_into(&mut self.stories[index].printed);
                }
            }
        }
        let deployment = text(&root["status"]["jobDeploymentStatus"]);
        let story = &mut self.stories[index];
        if ["Complete", "Failed", "ValidationFailed"].contains(&deployment.as_str()) && story.result.is_empty() {
            story.result = if result.is_empty() { deployment } else { result };
            say(started, &format!("{:9} {} on {member}  {message}", job.name, story.result));
        }
        Ok(root)
    }

    /// SIGKILL to the controller while `survivor` runs, and a new one.
    async fn kill_controller(&mut self) -> Result<()> {
        let Some(mut controller) = self.controller.take() else { return Ok(()) };
        say(self.started, &format!("SIGKILL to controller process {}: survivor runs on", controller.id().unwrap_or(0)));
        controller.start_kill().context("killing the controller")?;
        controller.wait().await?;
        tokio::time::sleep(Duration::from_secs(2)).await;
        self.start_controller()
    }

    /// What the demo claims; an error names the claim that did not come true.
    fn check(&self) -> Result<()> {
        let story = |name: &str| {
            JOBS.iter().zip(&self.stories).find(|(job, _)| job.name == name).map(|(_, s)| s).expect("a job of the demo")
        };
        let mut broken = Vec::new();
        let mut claim = |holds: bool, sentence: &str| {
            if !holds {
                broken.push(sentence.to_owned());
            }
        };
        for name in ["fits-one", "pair-a", "pair-b", "patient", "survivor"] {
            claim(story(name).result == "SUCCEEDED", &format!("{name} succeeds"));
        }
        claim(story("fits-one").members == ["us"], "fits-one runs on us, the only member that it fits in");
        claim(
            !story("pair-a").waited.is_empty() || !story("pair-b").waited.is_empty(),
            "one of the pair waits with its reason",
        );
        claim(story("nowhere").members.is_empty(), "nowhere is bound to no member");
        claim(!story("nowhere").waited.is_empty(), "nowhere says why it waits");
        claim(
            story("patient").members.first().map(String::as_str) == Some("ap")
                && story("patient").members.last().map(String::as_str) == Some("us"),
            "patient is withdrawn from ap and runs on us",
        );
        claim(self.controller_runs == 2, "the controller was killed once and started again");
        claim(story("survivor").submissions == Some(1), "Ray's job list has one submission of survivor");
        for (job, s) in JOBS.iter().zip(&self.stories) {
            claim(s.submissions.is_none_or(|n| n == 1), &format!("Ray's job list has one submission of {}", job.name));
        }
        if broken.is_empty() {
            return Ok(());
        }
        bail!("did not come true: {}", broken.join("; "))
    }

    fn summary(&self) -> String {
        let mut table = Table::new();
        table.load_style(comfy_table::presets::UTF8_BORDERS_ONLY);
        table.set_header(["JOB", "SHOWS", "MEMBERS", "RESULT", "SUBMISSIONS", "WAITED FOR", "RAY PRINTED"]);
        for (job, s) in JOBS.iter().zip(&self.stories) {
            table.add_row([
                job.name.to_owned(),
                job.shows.to_owned(),
                s.members.join(" → "),
                if s.result.is_empty() { "waits".to_owned() } else { s.result.clone() },
                s.submissions.map_or_else(|| "–".to_owned(), |n| n.to_string()),
                s.waited.last().cloned().unwrap_or_default(),
                s.printed.clone(),
            ]);
        }
        table.to_string()
    }

    /// Ends both processes: the controller first, then the sandbox, which takes its pods with it.
    async fn stop(&mut self) {
        for child in [self.controller.as_mut(), Some(&mut self.sandbox)].into_iter().flatten() {
            if let Some(pid) = child.id().and_then(|id| i32::try_from(id).ok()) {
                // An error means that it is gone already.
                let _gone = nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid), nix::sys::signal::Signal::SIGTERM);
                if tokio::time::timeout(Duration::from_secs(20), child.wait()).await.is_err() {
                    let _gone = child.start_kill();
                    let _status = child.wait().await;
                }
            }
        }
    }
}

fn log(args: &DemoArgs, name: &str) -> Result<std::fs::File> {
    let path = args.dir.join(name);
    std::fs::OpenOptions::new()
        .create(true)
        .append(true)
        .open(&path)
        .with_context(|| format!("opening {}", path.display()))
}
