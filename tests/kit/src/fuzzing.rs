//! `kit fuzz`: each decoder in a process of its own, as many at once as there are processors.
//! Must not know decoders.

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::sync::Mutex;
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use clap::builder::PossibleValuesParser;
use kit::fuzz::{self, Limit, TARGETS, Target};
use kit::say::say;
use nix::sys::resource::{Resource, setrlimit};

/// What one decoder's process may take of memory: past it, it dies, and with it the input that did it is known.
const BYTES_MAX: u64 = 6 << 30;

/// Options of `kit fuzz`.
#[derive(clap::Args)]
pub(super) struct FuzzArgs {
    /// How long each decoder is fed, seconds.
    #[arg(long, default_value_t = 60, env = "FUZZ_SECONDS", conflicts_with = "inputs")]
    seconds: u64,
    /// How many inputs each decoder is fed instead.
    #[arg(long)]
    inputs: Option<u64>,
    /// Seed of the inputs.
    #[arg(long, default_value_t = 1, env = "FUZZ_SEED")]
    seed: u64,
    /// Only this decoder, in this process.
    #[arg(long, value_parser = PossibleValuesParser::new(TARGETS.iter().map(|target| target.name)))]
    only: Option<String>,
    /// With --only: number of the first input.
    #[arg(long, default_value_t = 0, requires = "only")]
    from: u64,
    /// With --only: write the input of number --from here, and do nothing else.
    #[arg(long, requires = "only")]
    show: Option<PathBuf>,
    /// With --only: where the number of the input in work is kept.
    #[arg(long, requires = "only")]
    progress: Option<PathBuf>,
}

pub(super) fn run(args: &FuzzArgs) -> ExitCode {
    let right = match args.only.as_deref().and_then(fuzz::target) {
        Some(target) => one(target, args),
        None => all(args),
    };
    match right {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            say(&format!("fuzz: {error:#}"));
            ExitCode::FAILURE
        }
    }
}

/// One decoder, here.
fn one(target: Target, args: &FuzzArgs) -> Result<bool> {
    if let Some(path) = &args.show {
        let input = target.input(args.seed, args.from)?;
        std::fs::write(path, &input).with_context(|| format!("writing {}", path.display()))?;
        say(&format!("{}: {} bytes in {}", target.name, input.len(), path.display()));
        return Ok(true);
    }
    let limit = args.inputs.map_or(Limit::Time(Duration::from_secs(args.seconds)), Limit::Inputs);
    let ran = target.run(args.seed, args.from, limit, args.progress.as_deref())?;
    let (slowest, number) = ran.slowest;
    let Some((finding, input, wrong)) = ran.finding else {
        say(&format!("{}: {} inputs, slowest {slowest:.1?} (input {number})", target.name, ran.inputs));
        return Ok(true);
    };
    let shown: String = wrong.chars().take(600).collect();
    say(&format!("{}: input {finding} of seed {} ({} bytes): {shown}", target.name, args.seed, input.len()));
    say(&again(target.name, args.seed, finding));
    Ok(false)
}

fn again(name: &str, seed: u64, number: u64) -> String {
    format!("again: kit fuzz --only {name} --seed {seed} --from {number} --inputs 1   (--show FILE writes it)")
}

/// Every decoder, each in a process of its own: one that dies of a stack that is too deep takes nobody with it.
fn all(args: &FuzzArgs) -> Result<bool> {
    let at_once = thread::available_parallelism().map_or(1, usize::from);
    let span = args.inputs.map_or(format!("{} s", args.seconds), |inputs| format!("{inputs} inputs"));
    say(&format!("fuzz: {} decoders, {span} each, {at_once} at once, seed {}", TARGETS.len(), args.seed));
    // Inherited by the decoders' processes.
    setrlimit(Resource::RLIMIT_DATA, BYTES_MAX, BYTES_MAX).context("limiting memory")?;
    let folder = tempfile::tempdir().context("a temporary folder")?;
    let left = Mutex::new(TARGETS.iter());
    let wrong = Mutex::new(Vec::new());
    thread::scope(|scope| {
        for _ in 0..at_once {
            scope.spawn(|| {
                loop {
                    let Some(target) = left.lock().ok().and_then(|mut left| left.next()) else { return };
                    if let Err(error) = in_a_process(*target, args, folder.path())
                        && let Ok(mut wrong) = wrong.lock()
                    {
                        say(&format!("{error:#}"));
                        wrong.push(target.name);
                    }
                }
            });
        }
    });
    let wrong = wrong.into_inner().unwrap_or_default();
    say(&format!("fuzz: {} decoders, {} findings", TARGETS.len(), wrong.len()));
    Ok(wrong.is_empty())
}

fn in_a_process(target: Target, args: &FuzzArgs, folder: &Path) -> Result<()> {
    let progress = folder.join(target.name);
    let mut command = Command::new(std::env::current_exe().context("finding this program")?);
    command.args(["fuzz", "--only", target.name, "--seed", &args.seed.to_string(), "--progress"]).arg(&progress);
    match args.inputs {
        Some(inputs) => command.args(["--inputs", &inputs.to_string()]),
        None => command.args(["--seconds", &args.seconds.to_string()]),
    };
    let output =
        command.stdin(Stdio::null()).stderr(Stdio::piped()).output().context("starting a decoder's process")?;
    let told = String::from_utf8_lossy(&output.stdout);
    if output.status.success() {
        say(told.trim_end());
        return Ok(());
    }
    let died = String::from_utf8_lossy(&output.stderr);
    if output.status.code() == Some(1) {
        bail!("{}{}", told, died.trim_end());
    }
    let number = std::fs::read_to_string(&progress).unwrap_or_default().trim().parse().unwrap_or(0);
    let last = died.trim_end().lines().last().unwrap_or_default();
    bail!(
        "{}: input {number} ends the process ({}): {last}\n{}",
        target.name,
        output.status,
        again(target.name, args.seed, number)
    )
}
