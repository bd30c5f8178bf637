//! A replica of real API servers' fleet that stands still for longer than its seat is trusted, with writes on their way.
//! Needs the binary of `make planes`.

#![expect(clippy::unwrap_used, clippy::print_stdout, reason = "a test fails by panicking")]

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;
use std::{env, fs, io};

use kit::planes::{Binary, Mode, Proxy};
use kit::real_fleet::demo::watched;
use kit::real_fleet::{CONTROLLER, RealFleet, create, get, until};
use kit::recorder::Recorder;
use kit::recorder::history::{History, Write};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use rayfleet::plan::Flags;
use rayfleet::sandbox::world::fleet::Fleet;
use rayfleet::shell::client::Client;
use rayfleet::shell::kubeconfig::hub_config;
use rayfleet::shell::run::{Controller, Settings};
use serde_json::{Value, json};
use shards::core::Profile;
use tokio::io::AsyncWriteExt;
use tokio::process::{Child, Command};
use tokio::time::sleep;

/// Tells this program that it is a replica: its seat, then the kubeconfig's file.
const REPLICA: &str = "REPLICA_OF_A_REAL_FLEET";
const TEST: &str = "what_a_frozen_replica_had_sent_is_refused_when_it_arrives_late";
const PROFILE: Profile = Profile::FAST;
const JOBS: &str = "/apis/ray.io/v1/namespaces/default/rayjobs";
const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/rayfleet-system/leases";
/// Jobs that are under way when the replica freezes: each is written to about once a second.
const JOB_COUNT: usize = 8;
/// Freezes at most: which requests are held each time is the machine's chance.
const ROUNDS_MAX: usize = 5;
/// Its User-Agent.
const FROZEN: &str = concat!("rayfleet/", env!("CARGO_PKG_VERSION"), " (seat a)");
/// What an API server says to a write of a version that is not the latest, and to a second creation.
const CONFLICT: u64 = 409;
/// Runs as a replica from the first line of standard input to its end.
async fn be_replica(words: &str) {
    io::stdin().read_line(&mut String::new()).unwrap();
    let (seat, kubeconfig) = words.split_once(' ').unwrap();
    let settings = Settings {
        hub: hub_config(Some(Path::new(kubeconfig)), None).await.unwrap(),
        seat: seat.into(),
        namespace: "rayfleet-system".into(),
        profile: PROFILE,
        flags: Flags::default(),
    };
    let (controller, _questions) = Controller::new(settings);
    let end = async {
        // Whatever it says, the test has ended.
        let _ = tokio::task::spawn_blocking(|| io::copy(&mut io::stdin(), &mut io::sink())).await;
    };
    controller.run(end).await.unwrap();
}

/// A replica as a process of its own, which waits to be let go.
fn replica(seat: &str, kubeconfig: &Path) -> Child {
    Command::new(env::current_exe().unwrap())
        .args(["--exact", TEST, "--nocapture"])
        .env(REPLICA, format!("{seat} {}", kubeconfig.display()))
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .unwrap()
}

async fn let_go(child: &mut Child) {
    child.stdin.as_mut().unwrap().write_all(b"\n").await.unwrap();
}

fn signal(child: &Child, signal: Signal) {
    kill(Pid::from_raw(i32::try_from(child.id().unwrap()).unwrap()), signal).unwrap();
}

/// Units that seats hold: seats by name.
async fn holders(hub: &Client) -> BTreeSet<String> {
    let leases = get(hub, LEASES).await.unwrap().unwrap_or_default();
    let units = leases["items"].as_array().cloned().unwrap_or_default();
    let is_unit = |lease: &&Value| {
        let name = lease["metadata"]["name"].as_str().unwrap_or_default();
        name.starts_with("q-") || name.starts_with("m-")
    };
    let holder = |lease: &Value| lease["spec"]["holderIdentity"].as_str().unwrap_or_default().to_owned();
    units.iter().filter(is_unit).map(holder).filter_map(|h| Some(h.rsplit_once('#')?.0.to_owned())).collect()
}

fn on_member(write: &Write) -> bool {
    write.object.0 == "us"
}

async fn submit(hub: &Client, name: &str) {
    let container = json!({"name": "ray-head", "image": "rayproject/ray:2.60.0",
                           "resources": {"requests": {"cpu": "1", "memory": "1Gi"}}});
    let head = json!({"rayStartParams": {}, "template": {"spec": {"containers": [container]}}});
    let job = json!({
        "apiVersion": "ray.io/v1", "kind": "RayJob",
        "metadata": {"name": name, "namespace": "default", "labels": {"volcano.sh/queue-name": "ml"}},
        "spec": {"entrypoint": "sleep 4", "submissionMode": "HTTPMode", "shutdownAfterJobFinishes": true,
                 "rayClusterSpec": {"rayVersion": "2.60.0", "headGroupSpec": head}},
    });
    create(hub, JOBS, &job).await.unwrap();
}

async fn all_ended(hub: &Client) -> bool {
    let jobs = get(hub, JOBS).await.unwrap().unwrap_or_default();
    let mut jobs = jobs["items"].as_array().into_iter().flatten();
    jobs.all(|job| job["status"]["jobDeploymentStatus"] == "Complete")
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_frozen_replica_had_sent_is_refused_when_it_arrives_late() {
    if let Ok(words) = env::var(REPLICA) {
        return be_replica(&words).await;
    }
    let Some(binary) = Binary::or_skip() else { return };
    let fleet = RealFleet::start(&binary, &["us"]).await.unwrap();
    let mut described = Fleet::default();
    described.members.retain(|member| member.name == "us");
    let mut surroundings = fleet.surroundings(described).await.unwrap();
    surroundings.while_whole(play(&fleet)).await.unwrap();
    surroundings.stop().await;
}

async fn play(fleet: &RealFleet) {
    let hub = fleet.administrator().await.unwrap();
    let timeline = fleet.tunnels().join("timeline.jsonl");
    let recorder = Recorder::start(&watched(fleet), CONTROLLER, "fleet", &timeline).await.unwrap();
    let proxy = Proxy::start(fleet.hub.address()).await.unwrap();
    // What it has to say to the hub, and to the member.
    let ways = [&proxy, &fleet.ways[0]];
    let on_its_way = || ways.map(Proxy::bytes_to_server);
    let kubeconfig = |name: &str, address| {
        let path = fleet.tunnels().join(format!("{name}.json"));
        fs::write(&path, fleet.controllers_kubeconfig(address)).unwrap();
        path
    };
    let (direct, proxied) = (kubeconfig("direct", fleet.hub.address()), kubeconfig("proxied", proxy.address()));
    // Nobody's connections, until it is known whose.
    ways.iter().for_each(|way| way.only(0));
    let mut others = [replica("b", &direct), replica("c", &direct)];
    for other in &mut others {
        let_go(other).await;
    }
    let (mut refused, mut reached) = (0, 0);
    let mut round = 0;
    while refused == 0 || reached == 0 {
        assert!(round < ROUNDS_MAX, "of {ROUNDS_MAX} rounds: {refused} late writes refused, {reached} on the member");
        let mut frozen = replica("a", &proxied);
        ways.iter().for_each(|way| way.only(frozen.id().unwrap()));
        let_go(&mut frozen).await;
        until("all three hold units", async || holders(&hub).await.len() == 3).await;
        for at in 0..JOB_COUNT {
            submit(&hub, &format!("job-{round}-{at}")).await;
        }
        let count = || recorder.with(|history| history.writes().len()).unwrap();
        let known = count();
        let at_work = |history: &History| history.writes_of(FROZEN, known).any(on_member);
        until("a works on the jobs", async || recorder.with(at_work).unwrap()).await;
        // What it sends from now on is on its way when it freezes.
        ways.iter().for_each(|way| way.set(Mode::RequestsHeld));
        sleep(Duration::from_millis(PROFILE.renew_ms)).await;
        signal(&frozen, Signal::SIGSTOP);
        let known = count();
        let turn = recorder.with(|history| history.turn_of(FROZEN)).unwrap().unwrap();
        sleep(Duration::from_millis(2 * PROFILE.dead_ms)).await;
        until("the others have taken over", async || !holders(&hub).await.contains("a")).await;
        until("all jobs have ended", async || all_ended(&hub).await).await;
        assert!(on_its_way()[0] > 0, "it sends all the time");
        println!("round {round}: {:?} bytes arrive late at hub and member", on_its_way());
        // It arrives while nobody waits for its answer: what refuses it is the object's version, no time limit.
        ways.iter().for_each(|way| way.set(Mode::Pass));
        until("all of it has arrived", async || on_its_way() == [0, 0]).await;
        let answered = |history: &History| history.writes_of(FROZEN, known).count() > 0;
        until("the hub has answered", async || recorder.with(answered).unwrap()).await;
        signal(&frozen, Signal::SIGCONT);
        // The same process takes part again, by a new turn of its seat: until then nothing is its own but the seat.
        let owns_again = |history: &History| history.owns_again(FROZEN, known, turn).is_some();
        until("it owns a unit again", async || recorder.with(owns_again).unwrap()).await;
        let (late, accepted) = recorder
            .with(|history| {
                let late = history.late(FROZEN, known, turn);
                let overtaken = history.overtaken(FROZEN, known);
                let accepted = late.iter().filter(|write| overtaken.contains(write)).copied().cloned();
                (late.iter().copied().cloned().collect::<Vec<_>>(), accepted.collect::<Vec<_>>())
            })
            .unwrap();
        assert!(accepted.is_empty(), "{accepted:#?}");
        // A child of a job that has ended meanwhile has no slot that would refuse it: who owns the job removes it.
        let children = late.iter().filter(|write| write.makes_child && write.is_accepted());
        for Write { object, .. } in children {
            let is_gone = |history: &History| history.is_gone(object);
            until(&format!("{object:?}, which came late, is gone"), async || recorder.with(is_gone).unwrap()).await;
        }
        reached += late.iter().filter(|write| on_member(write)).count();
        refused += late.iter().filter(|write| write.code == CONFLICT).count();
        for Write { object: (plane, kind, name), verb, code, .. } in &late {
            println!("round {round}: late {verb} of {kind} {name} on {plane}: {code}");
        }
        until("all three hold units", async || holders(&hub).await.len() == 3).await;
        frozen.kill().await.unwrap();
        until("two hold all units", async || holders(&hub).await.len() == 2).await;
        round += 1;
    }
    let verdict = recorder.finish().await.unwrap();
    assert!(verdict.violations.is_empty(), "{:#?}", verdict.violations);
}
