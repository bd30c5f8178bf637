//! What people type: one file per command, and how commands are named, logged and ended.
//! Must not decide anything about the fleet.

mod access;
mod crds;
pub mod demo;
mod explain;
mod follow;
mod forecast;
mod get;
mod logging;
mod logs;
pub mod manifest;
mod member;
pub mod names;
mod output;
mod run;
mod sandbox;
mod shards;
mod submit;
pub mod validate;
mod version;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use access::Access;
use logging::Logging;

/// How a command ended, besides by an error.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum End {
    /// As wanted.
    Done,
    /// `submit --wait`: the job failed, or was refused as invalid.
    JobFailed,
    /// `submit --wait`: the job was stopped.
    JobStopped,
    /// `submit --wait`: the job was deleted before it ended.
    JobDeleted,
    /// `--timeout` passed.
    TimedOut,
    /// `submit --wait`: asked to end by a signal; the jobs go on.
    Interrupted,
    /// `crds --check`: files differ.
    Differs,
    /// `validate`: something is wrong.
    Invalid,
}

impl End {
    fn code(self) -> u8 {
        match self {
            End::Done => 0,
            End::Differs | End::Invalid => 1,
            End::JobFailed => 3,
            End::JobStopped => 4,
            End::TimedOut => 5,
            End::JobDeleted => 6,
            // As a shell says it of a program that Ctrl-C ended.
            End::Interrupted => 130,
        }
    }
}

const AFTER_HELP: &str = "\
Exit codes:
  0  done; with submit --wait: every job SUCCEEDED
  1  it could not be done: the message names object, field and what would be right
  2  wrong usage
  3  submit --wait: a job FAILED    4  submit --wait: a job was STOPPED    5  --timeout passed
  6  submit --wait: a job was deleted before it ended    130  submit --wait: Ctrl-C or SIGTERM; the jobs go on

Examples:
  rayfleet sandbox                          a hub and three members on this machine
  rayfleet submit -f job.yaml --wait        submit and follow a RayJob; its result is the exit code
  rayfleet validate -f job.yaml             what is wrong with it, and what would be right
  rayfleet explain rayjob/train             why it is where it is: every member's verdict
  rayfleet get -A                           what there is, on which member, in which stage
  rayfleet logs rayjob/train -f             its log, wherever it runs
  rayfleet shards                           which replica holds what
  rayfleet member add eu --from eu.yaml     register a member by a kubeconfig";

/// Runs Ray on many Kubernetes clusters from one hub.
#[derive(Parser, Debug)]
#[command(name = "rayfleet", version, after_help = AFTER_HELP)]
struct Cli {
    #[command(subcommand)]
    command: Command,
    #[command(flatten)]
    access: Access,
    #[command(flatten)]
    logging: Logging,
}

#[derive(Subcommand, Debug)]
enum Command {
    /// Run the controller against a hub
    Run(run::RunArgs),
    /// Run a whole fleet on this machine: hub, members, scheduler, real Ray
    Sandbox(sandbox::SandboxArgs),
    /// Show placement, waiting, withdrawal and killed controllers, with real Ray; ends by itself
    Demo(demo::DemoArgs),
    /// Register member clusters, list them, or take no new work on one
    Member(member::MemberArgs),
    /// Submit RayJobs to the hub, and wait for their results
    Submit(submit::SubmitArgs),
    /// Say why a job is where it is, or where one would go
    Explain(explain::ExplainArgs),
    /// List the root objects of the fleet with member, stage and status
    Get(get::GetArgs),
    /// Print the log of a RayJob, wherever it runs
    Logs(logs::LogsArgs),
    /// Show which replica holds what, or why an object is a replica's
    Shards(shards::ShardsArgs),
    /// Print the custom resource definitions, write them to a folder, or check that folder
    Crds(crds::CrdsArgs),
    /// Say what a hub would refuse of manifests, and what is misspelt in them, without a hub
    Validate(validate::ValidateArgs),
    /// Print the version
    Version(version::VersionArgs),
}

/// The program behind `main`: parses the command line, runs the command, turns its end into an exit code.
pub fn main() -> ExitCode {
    let cli = Cli::parse();
    // Before the first client: rustls does not choose a provider by itself. An error means that one is installed already.
    let _installed = rustls::crypto::ring::default_provider().install_default();
    if let Err(error) = cli.logging.start(matches!(cli.command, Command::Run(_) | Command::Sandbox(_))) {
        return failed(&error);
    }
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return failed(&anyhow::Error::new(error).context("starting the runtime")),
    };
    let ended = runtime.block_on(dispatch(cli));
    // Requests whose answers nobody waits for any more.
    runtime.shutdown_timeout(std::time::Duration::from_secs(1));
    match ended {
        Ok(end) => ExitCode::from(end.code()),
        Err(error) => failed(&error),
    }
}

async fn dispatch(cli: Cli) -> anyhow::Result<End> {
    let Cli { command, access, .. } = cli;
    match command {
        Command::Run(args) => run::run(args, &access).await,
        Command::Sandbox(args) => sandbox::run(args).await,
        Command::Demo(args) => demo::run(args).await.map(|()| End::Done),
        Command::Member(args) => member::run(args, &access).await,
        Command::Submit(args) => submit::run(args, &access).await,
        Command::Explain(args) => explain::run(args, &access).await,
        Command::Get(args) => get::run(args, &access).await,
        Command::Logs(args) => logs::run(args, &access).await,
        Command::Shards(args) => shards::run(args, &access).await,
        Command::Crds(args) => crds::run(&args),
        Command::Validate(args) => validate::run(&args),
        Command::Version(args) => version::run(&args),
    }
}

fn failed(error: &anyhow::Error) -> ExitCode {
    output::note(&format!("error: {}", output::words(error)));
    ExitCode::FAILURE
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn every_command_and_option_has_a_help_text() {
        fn look(command: &clap::Command) {
            for argument in command.get_arguments() {
                assert!(argument.get_help().is_some(), "{} {}", command.get_name(), argument.get_id());
            }
            for inner in command.get_subcommands() {
                assert!(inner.get_about().is_some(), "{}", inner.get_name());
                look(inner);
            }
        }
        look(&Cli::command());
    }
}
