//! `rayfleet sandbox`: a whole fleet in one process, until it is asked to end.
//! Must not know how its parts work.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use super::End;
use super::output;
use super::run::{self, RunOptions, Speed};
use crate::sandbox::attached;
use crate::sandbox::fleet_process::{FleetProcess, Settings};
use crate::sandbox::ray::Isolation;
use crate::sandbox::world::fleet::Fleet;
use crate::shell::kubeconfig::hub_config;

/// Options of `rayfleet sandbox`.
#[derive(clap::Args, Debug)]
#[command(after_help = "\
A hub and members, each a Kubernetes API server on its own port of 127.0.0.1, with Volcano's queues, nodes, and real
Ray processes behind the pods where Ray is there. A kubeconfig with one context each is written to DIR/kubeconfig.
Nothing is kept: all ends with the process, its pods too.

With --attach, the API servers are yours: contexts `hub` and one for each member, by its name. What is missing there is
made (definitions of Ray, RayFleet and Volcano, queues, nodes), and Volcano's scheduler and the nodes with their pods run
here. It is meant for API servers without kubelets and schedulers. Register the members with `rayfleet member add`.
An API server reaches the pods (Services, dashboards) through the Unix socket DIR/MEMBER.sock of --tunnels, if it was
started with an --egress-selector-config-file that names it for `cluster` (HTTPConnect).

A file for --members:
  members:
    - name: eu
      nodes: [{ count: 2, cpu: \"8\", memory: 32Gi }]
      queues: [{ name: ml, capability: { cpu: \"12\", memory: 48Gi } }]

Examples:
  rayfleet sandbox                              three members, real Ray from .venv, a controller inside
  rayfleet sandbox --members 5 --ray none       five members, simulated pods
  rayfleet sandbox --members fleet.yaml --no-controller
  rayfleet sandbox --members fleet.yaml --attach planes.yaml --tunnels /run/planes")]
pub(crate) struct SandboxArgs {
    /// How many members, or a YAML file that describes members, nodes and queues
    #[arg(long, value_name = "COUNT|FILE", default_value = "3")]
    members: String,
    /// Virtual environment that Ray is installed in (made by `make ray`); `none` simulates the pods
    #[arg(long, value_name = "VENV", default_value = ".venv", env = "RAYFLEET_RAY")]
    ray: String,
    /// Run a controller inside (the default)
    #[arg(long, overrides_with = "no_controller")]
    controller: bool,
    /// Run no controller inside: start one with `rayfleet run`
    #[arg(long, overrides_with = "controller")]
    no_controller: bool,
    /// Where the kubeconfig and the pods' logs go; one sandbox at a time
    #[arg(long, value_name = "DIR", default_value = ".sandbox")]
    dir: PathBuf,
    /// Port of the hub, members on the next ones; 0 takes free ones
    #[arg(long, value_name = "PORT", default_value_t = 0)]
    port: u16,
    /// Be scheduler, nodes and pods of clusters that run elsewhere: their kubeconfig. No controller runs inside
    #[arg(long, value_name = "KUBECONFIG", conflicts_with_all = ["controller", "port"])]
    attach: Option<PathBuf>,
    /// Where the Unix sockets are made through which the API servers of --attach reach pods
    #[arg(long, value_name = "DIR", requires = "attach")]
    tunnels: Option<PathBuf>,
    /// End when standard input closes, for a program that starts this one and must not leave it behind
    #[arg(long, hide = true)]
    end_with_input: bool,
}

pub(crate) async fn run(args: SandboxArgs) -> Result<End> {
    let fleet = fleet(&args.members)?;
    let ray = (args.ray != "none").then(|| PathBuf::from(&args.ray));
    let members = fleet.members.len();
    if let Some(kubeconfig) = args.attach {
        let settings = attached::Settings { fleet, kubeconfig, tunnels: args.tunnels, ray, dir: args.dir };
        return attach(settings, args.end_with_input).await;
    }
    let settings = Settings { fleet, ray, dir: args.dir.clone(), port: args.port };
    let mut process = FleetProcess::start(settings).await?;
    output::print(&first_lines(&process, members, !args.no_controller))?;
    let (stop, kubeconfig) = (run::asked_to_end(args.end_with_input), process.kubeconfig.clone());
    let ended = process
        .while_whole(async {
            if args.no_controller {
                stop.await;
                Ok(())
            } else {
                // As large as all that it waits for.
                Box::pin(controller(&kubeconfig, stop)).await
            }
        })
        .await;
    // Pods end with the sandbox, also when the controller failed or a part has broken.
    process.stop().await;
    ended??;
    Ok(End::Done)
}

/// Surroundings of clusters that run elsewhere, until it is asked to end.
async fn attach(settings: attached::Settings, end_with_input: bool) -> Result<End> {
    let names: Vec<String> = settings.fleet.members.iter().map(|member| member.name.clone()).collect();
    let mut process = attached::attach(settings).await?;
    let pods = about_pods(process.isolation.as_ref());
    output::print(&format!("Attached to hub and {}.\n{pods}\nCtrl-C ends the pods.", names.join(", ")))?;
    let ended = process.while_whole(run::asked_to_end(end_with_input)).await;
    process.stop().await;
    ended?;
    Ok(End::Done)
}

fn fleet(members: &str) -> Result<Fleet> {
    if let Ok(count) = members.parse::<usize>() {
        anyhow::ensure!(count > 0, "--members {members}: at least one is needed");
        return Ok(Fleet::of_size(count));
    }
    let text = std::fs::read_to_string(members)
        .with_context(|| format!("--members {members} is no number and no file that can be read"))?;
    Fleet::parse(&text).with_context(|| members.to_owned())
}

/// A controller of this sandbox, in this process.
async fn controller(kubeconfig: &Path, stop: impl Future<Output = ()>) -> Result<()> {
    let hub = hub_config(Some(kubeconfig), Some("hub")).await?;
    let options = RunOptions {
        seat: Some("sandbox".into()),
        profile: Speed::Fast,
        listen: ([127, 0, 0, 1], 0).into(),
        lease_namespace: "rayfleet-system".into(),
        fleet_id: "sandbox".into(),
        default_queue: "default".into(),
        cluster_domain: "cluster.local".into(),
        redis_cleanup: true,
    };
    run::serve(options.settings(hub)?, options.listen, stop).await
}

/// What a person has to know first.
fn first_lines(process: &FleetProcess, members: usize, controller: bool) -> String {
    let pods = about_pods(process.isolation.as_ref());
    let servers: Vec<String> =
        process.servers.iter().map(|server| format!("  {:10} {}", server.name, server.url)).collect();
    // Whole, so that it can be copied into any shell.
    let kubeconfig = std::path::absolute(&process.kubeconfig).unwrap_or_else(|_| process.kubeconfig.clone());
    let kubeconfig = kubeconfig.display();
    let run = format!("rayfleet run --kubeconfig {kubeconfig} --context hub");
    let controller = if controller {
        "A controller runs inside.".to_owned()
    } else {
        format!("No controller runs; start one: {run}")
    };
    format!(
        "A hub and {members} members:\n{}\n{pods}\n{controller}\n\nexport KUBECONFIG={kubeconfig}\n\
         kubectl --context hub get rayjobs,placements\nrayfleet member list\nCtrl-C ends it all.",
        servers.join("\n")
    )
}

fn about_pods(isolation: Option<&Isolation>) -> String {
    match isolation {
        None => "Pods are SIMULATED: no Ray runs, a stand-in answers for its dashboard.".to_owned(),
        Some(Isolation::None { why }) => {
            format!("Pods are real Ray processes. Volumes cannot be mounted here ({why}): pods that mount are refused.")
        }
        Some(_) => "Pods are real Ray processes, with their volumes.".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_member_without_a_context_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let kubeconfig = dir.path().join("kubeconfig");
        std::fs::write(
            &kubeconfig,
            "{contexts: [{name: hub, context: {cluster: c, user: u}}], users: [{name: u, user: {token: t}}], \
             clusters: [{name: c, cluster: {server: 'http://127.0.0.1:9'}}]}",
        )
        .unwrap();
        let fleet = Fleet::of_size(1);
        let settings = attached::Settings { fleet, kubeconfig, tunnels: None, ray: None, dir: dir.path().to_owned() };
        let error = attached::attach(settings).await.unwrap_err().to_string();
        assert!(error.contains("has no context eu"), "{error}");
    }

    #[test]
    fn members_are_a_number_or_a_file() {
        assert_eq!(fleet("2").unwrap().members.len(), 2);
        assert!(fleet("0").unwrap_err().to_string().contains("at least one"));
        assert!(fleet("/nonexistent.yaml").unwrap_err().to_string().contains("no number and no file"));
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "members: []").unwrap();
        let error = format!("{:#}", fleet(&file.path().display().to_string()).unwrap_err());
        assert!(error.contains(&file.path().display().to_string()) && error.contains("members"), "{error}");
    }
}
