//! One container of a real pod: its starts, its probes, its end.
//! Must not know other pods. Restarts happen only when they are ordered.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::net::TcpStream;
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, watch};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, sleep_until, timeout};

use super::nodes::PodTask;
use super::order::{Order, Report, SUBCOMMAND, TERMINATE};
use super::pod::ContainerPlan;
use super::probe::{self, Probe, Question};
use crate::sandbox::world::container::Change;

/// The longest that a Ray node keeps others from starting, and that a container waits for its head before it looks itself.
const LONGEST_START: Duration = Duration::from_mins(1);
/// A container that fails its liveness probe has the grace that Kubernetes gives by default.
const LIVENESS_GRACE: Duration = Duration::from_secs(30);
const NOT_STARTED: i32 = 128;

type Restarts = mpsc::UnboundedReceiver<Duration>;

/// An init container: started again by order until it succeeds. False: the pod was stopped.
pub(super) async fn run_until_done(task: &PodTask, plan: ContainerPlan, mut restarts: Restarts) -> bool {
    while run_once(task, &plan).await != Some(0) {
        if !next_start(task, &mut restarts).await {
            return false;
        }
    }
    task.stop.borrow().is_none()
}

/// Any other container: started again by order until the pod is stopped.
pub(super) async fn run_until_stopped(task: &PodTask, plan: ContainerPlan, mut restarts: Restarts) {
    loop {
        run_once(task, &plan).await;
        if !next_start(task, &mut restarts).await {
            return;
        }
    }
}

/// Waits for the order to start again, and for its delay. False: the pod was stopped.
async fn next_start(task: &PodTask, restarts: &mut Restarts) -> bool {
    let mut stop = task.stop.clone();
    let order = async {
        match restarts.recv().await {
            Some(after) => sleep(after).await,
            None => std::future::pending().await,
        }
    };
    tokio::select! {
        biased;
        _ = stop.wait_for(Option::is_some) => false,
        () = order => true,
    }
}

/// From before the start to after the end. None: stopped before it started.
async fn run_once(task: &PodTask, plan: &ContainerPlan) -> Option<i32> {
    let mut stop = task.stop.clone();
    let slot = tokio::select! {
        biased;
        _ = stop.wait_for(Option::is_some) => return None,
        slot = may_start(task, plan) => slot,
    };
    let started = match start(task, plan) {
        Ok(started) => started,
        Err(e) => {
            task.tell(terminated(plan, NOT_STARTED, Some(format!("the container could not be started: {e}"))));
            return Some(NOT_STARTED);
        }
    };
    let watched = slot.map(|slot| tokio::spawn(hold_until_up(slot, task.place.2.clone(), agent_port(task))));
    let code = follow(task, plan, started).await;
    if let Some(watched) = watched {
        watched.abort();
    }
    Some(code)
}

/// Waits for whom this container only waits for, and for its turn if it is a Ray node.
async fn may_start(task: &PodTask, plan: &ContainerPlan) -> Option<OwnedSemaphorePermit> {
    if let Some(name) = &plan.waits_for {
        let answers = async {
            while !accepts(task.shared.real_address(task, name)).await {
                sleep(Duration::from_millis(250)).await;
            }
        };
        if timeout(LONGEST_START, answers).await.is_err() {
            // It looks for itself then, and says in its log what it misses.
            let (pod, container) = (&task.place.2, &plan.name);
            tracing::info!(%pod, %container, %name, "starts although what it waits for does not answer");
        }
    }
    if !plan.ray_node {
        return None;
    }
    let slots: &std::sync::Arc<Semaphore> = &task.shared.starting;
    slots.clone().acquire_owned().await.ok()
}

async fn accepts(address: Option<String>) -> bool {
    match address {
        Some(address) => TcpStream::connect(address).await.is_ok(),
        None => false,
    }
}

fn agent_port(task: &PodTask) -> Option<u16> {
    task.node.as_ref().and_then(|n| task.ports.real.get(&n.agent).copied())
}

/// A Ray node's agent is the last of its processes to listen; what comes then costs little.
async fn hold_until_up(slot: OwnedSemaphorePermit, pod: String, agent: Option<u16>) {
    let up = async {
        while !accepts(agent.map(|port| format!("127.0.0.1:{port}"))).await {
            sleep(Duration::from_millis(250)).await;
        }
    };
    if timeout(LONGEST_START, up).await.is_err() {
        tracing::warn!(%pod, "the Ray node is not up after {LONGEST_START:?}: others start beside it");
    }
    drop(slot);
}

/// A started runner.
struct Started {
    child: Child,
    input: ChildStdin,
    reports: Lines<BufReader<ChildStdout>>,
    order: Order,
    id: String,
}

fn start(task: &PodTask, plan: &ContainerPlan) -> std::io::Result<Started> {
    let (attempt, log) = task.next_attempt(&plan.name)?;
    let failure = task.dir.join(format!("{}.failure", plan.name));
    std::fs::write(&failure, "")?;
    let mut order = Order { log, failure, ..plan.order.clone() };
    if plan.ray_node {
        // Ray's processes that are not Python take this as it is.
        let real = order.env.get("RAY_ADDRESS").and_then(|a| task.shared.real_address(task, a));
        order.env.extend(real.map(|real| ("RAY_ADDRESS".to_owned(), real)));
    }
    let (child, input, reports) = spawn(&task.shared.settings.runner)?;
    Ok(Started { child, input, reports, order, id: format!("rayfleet://{}/{}/{attempt}", task.uid, plan.name) })
}

type Pipes = (Child, ChildStdin, Lines<BufReader<ChildStdout>>);

fn spawn(runner: &Path) -> std::io::Result<Pipes> {
    // A group of its own: Ctrl-C in the sandbox's terminal is for the sandbox, which then ends its pods in order.
    let mut command = Command::new(runner);
    command.arg0("rayfleet").args([SUBCOMMAND, "hold"]).process_group(0);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
    let input = child.stdin.take().expect("the pipe was asked for in this function");
    let output = child.stdout.take().expect("the pipe was asked for in this function");
    Ok((child, input, BufReader::new(output).lines()))
}

/// Follows a container until it and all that it started have ended; its exit code.
async fn follow(task: &PodTask, plan: &ContainerPlan, started: Started) -> i32 {
    let Started { mut child, input, mut reports, order, id } = started;
    let mut input = Some(input);
    say(&mut input, &serde_json::to_string(&order).expect("an order is plain data")).await;
    let (verdicts, mut said) = mpsc::unbounded_channel();
    let mut probes: Vec<JoinHandle<()>> = Vec::new();
    let mut stop = task.stop.clone();
    let (mut grace, mut deadline) = (None::<Duration>, None::<Instant>);
    let ended = loop {
        tokio::select! {
            report = next_report(&mut reports) => match report {
                Ok(Some(Report::Started { .. })) => {
                    task.tell(Change::Running { container: plan.name.clone(), container_id: id.clone() });
                    if plan.init {
                        // Ready is what an init container is when it has ended; it has no probes.
                        continue;
                    }
                    let asking = ask_all(plan.clone(), order.clone(), task.shared.settings.runner.clone(), verdicts.clone());
                    probes.push(tokio::spawn(asking));
                }
                Ok(Some(Report::Ended { code, failure, .. })) => break (code, failure),
                // Killed from outside: what the container's main process was told then is to die with it.
                Ok(None) => break (137, Some("the container's parent process was killed".to_owned())),
                // Nothing is known of it any more. The end of its input, below, is the order to kill.
                Err(why) => break (137, Some(why)),
            },
            Some(verdict) = said.recv() => match verdict {
                Verdict::Started => task.tell(Change::Started { container: plan.name.clone() }),
                Verdict::Ready(ready) => task.tell(Change::Ready { container: plan.name.clone(), ready }),
                Verdict::Failed(message) => {
                    task.tell(Change::Unhealthy { container: plan.name.clone(), message });
                    deadline.get_or_insert_with(|| Instant::now() + LIVENESS_GRACE);
                    say(&mut input, TERMINATE).await;
                }
            },
            // Again when the grace is shortened.
            given = other_grace(&mut stop, grace) => {
                let first = grace.is_none();
                grace = Some(given);
                let until = Instant::now() + given;
                deadline = Some(deadline.map_or(until, |d| d.min(until)));
                if first {
                    say(&mut input, TERMINATE).await;
                }
            },
            () = sleep_until(deadline.unwrap_or_else(Instant::now)), if deadline.is_some() => {
                // The end of its input is the order to kill.
                input = None;
                deadline = None;
            },
        }
    };
    for probe in probes {
        probe.abort();
    }
    drop(input);
    if let Err(e) = child.wait().await {
        tracing::warn!(container = %plan.name, error = %e, "the end of a container's parent could not be waited for");
    }
    let (code, failure) = ended;
    task.tell(terminated(plan, code, failure));
    code
}

/// Waits for the order to stop, or for one with another grace than the known one.
async fn other_grace(stop: &mut watch::Receiver<Option<Duration>>, known: Option<Duration>) -> Duration {
    match stop.wait_for(|g| g.is_some() && *g != known).await.map(|g| g.unwrap_or_default()) {
        Ok(grace) => grace,
        Err(_) => std::future::pending().await,
    }
}

/// The runner's next report; none when it has ended.
async fn next_report(reports: &mut Lines<BufReader<ChildStdout>>) -> Result<Option<Report>, String> {
    let what = "the reports of the container's parent process cannot be read";
    let Some(line) = reports.next_line().await.map_err(|e| format!("{what}: {e}"))? else { return Ok(None) };
    serde_json::from_str(&line).map(Some).map_err(|e| format!("{what}: {e}"))
}

/// A runner that has ended hears nothing; its report says the rest. One that lives and cannot hear is not left alone: the
/// end of its input is the order to kill.
async fn say(input: &mut Option<ChildStdin>, line: &str) {
    if let Some(pipe) = input
        && let Err(e) = pipe.write_all(format!("{line}\n").as_bytes()).await
    {
        tracing::debug!(error = %e, "the parent process of a container hears nothing any more");
        *input = None;
    }
}

fn terminated(plan: &ContainerPlan, exit_code: i32, failure: Option<String>) -> Change {
    let reason = match (&failure, exit_code) {
        (Some(_), NOT_STARTED) => "StartError",
        (_, 0) => "Completed",
        _ => "Error",
    };
    let (container, message) = (plan.name.clone(), failure.unwrap_or_default());
    Change::Terminated { container, exit_code, reason: reason.to_owned(), message }
}

/// What a container's probes say.
enum Verdict {
    Started,
    Ready(bool),
    Failed(String),
}

type Verdicts = mpsc::UnboundedSender<Verdict>;

/// Carries out a container's probes until it is aborted. Verdicts that nobody hears are lost on purpose.
async fn ask_all(plan: ContainerPlan, order: Order, runner: PathBuf, verdicts: Verdicts) {
    let asker = Asker { order, runner };
    if let Some(startup) = &plan.startup
        && let Err(why) = asker.first_success(startup).await
    {
        let _ = verdicts.send(Verdict::Failed(format!("Startup probe failed: {why}")));
        return;
    }
    let _ = verdicts.send(Verdict::Started);
    let readiness = async {
        match &plan.readiness {
            Some(probe) => asker.readiness(probe, &verdicts).await,
            None => drop(verdicts.send(Verdict::Ready(true))),
        }
    };
    let liveness = async {
        if let Some(probe) = &plan.liveness {
            asker.liveness(probe, &verdicts).await;
        }
    };
    tokio::join!(readiness, liveness);
}

struct Asker {
    order: Order,
    runner: PathBuf,
}

impl Asker {
    async fn first_success(&self, probe: &Probe) -> Result<(), String> {
        sleep(probe.delay).await;
        let mut why = String::new();
        for _ in 0..probe.failures {
            match self.ask(probe).await {
                Ok(()) => return Ok(()),
                Err(e) => why = e,
            }
            sleep(probe.period).await;
        }
        Err(why)
    }

    async fn readiness(&self, probe: &Probe, verdicts: &Verdicts) {
        sleep(probe.delay).await;
        let (mut ready, mut successes, mut failures) = (false, 0, 0);
        loop {
            let good = self.ask(probe).await.is_ok();
            (successes, failures) = if good { (successes + 1, 0) } else { (0, failures + 1) };
            let now_ready = if ready { failures < probe.failures } else { successes >= probe.successes };
            if now_ready != ready {
                ready = now_ready;
                let _ = verdicts.send(Verdict::Ready(ready));
            }
            sleep(probe.period).await;
        }
    }

    async fn liveness(&self, probe: &Probe, verdicts: &Verdicts) {
        sleep(probe.delay).await;
        let mut failures = 0;
        loop {
            match self.ask(probe).await {
                Ok(()) => failures = 0,
                Err(why) => {
                    failures += 1;
                    if failures >= probe.failures {
                        let _ = verdicts.send(Verdict::Failed(format!("Liveness probe failed: {why}")));
                        return;
                    }
                }
            }
            sleep(probe.period).await;
        }
    }

    async fn ask(&self, probe: &Probe) -> Result<(), String> {
        let asked = async {
            match &probe.question {
                Question::Http(gets) => {
                    for get in gets {
                        probe::get(get).await?;
                    }
                    Ok(())
                }
                Question::Tcp { real } => {
                    TcpStream::connect(("127.0.0.1", *real)).await.map(drop).map_err(|e| e.to_string())
                }
                Question::Exec(argv) => self.exec(argv).await,
                Question::Impossible(why) => Err(why.clone()),
            }
        };
        timeout(probe.timeout, asked).await.unwrap_or_else(|_| Err(format!("timed out after {:?}", probe.timeout)))
    }

    /// Runs a program as the container's are run. When this is dropped, the end of its input kills it.
    async fn exec(&self, argv: &[String]) -> Result<(), String> {
        let (mut child, input, mut reports) = spawn(&self.runner).map_err(|e| e.to_string())?;
        let failure = self.order.failure.with_extension("probe-failure");
        std::fs::write(&failure, "").map_err(|e| e.to_string())?;
        let order = Order { argv: argv.to_vec(), log: "/dev/null".into(), failure, ..self.order.clone() };
        let mut input = Some(input);
        say(&mut input, &serde_json::to_string(&order).expect("an order is plain data")).await;
        while let Some(report) = next_report(&mut reports).await? {
            if let Report::Ended { code, failure, .. } = report {
                drop(input);
                child.wait().await.map_err(|e| e.to_string())?;
                let why = failure.unwrap_or_else(|| format!("command exited with {code}"));
                return if code == 0 { Ok(()) } else { Err(why) };
            }
        }
        Err("the probe's process was killed".into())
    }
}
