//! `kit sim`, `kit crash-points` and `kit mutants`: the simulator's programs, and `kit demo-planes`: the demo on real API
//! servers; with progress for people and a last line for machines.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use clap::builder::{PossibleValuesParser, RangedU64ValueParser};
use clap::error::ErrorKind;
use clap::{CommandFactory, Parser, Subcommand};
use kit::dangers::{self, DANGERS, Danger};
use kit::say::say;
use kit::{crash_points, simulate};

mod fuzzing;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// A run of nothing would find nothing wrong.
fn count() -> RangedU64ValueParser<usize> {
    RangedU64ValueParser::new().range(1..)
}

fn stories() -> PossibleValuesParser {
    PossibleValuesParser::new(crash_points::stories().iter().map(|story| story.name))
}

/// The simulated fleet.
#[derive(Parser)]
struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// The controller dies at every write of one RayJob's life, in three variants, and comes back.
    CrashPoints {
        /// Seed of the delays.
        #[arg(long, default_value_t = 1)]
        seed: u64,
        /// Controller replicas: with more than one, another takes over.
        #[arg(long, default_value_t = 1, value_parser = count())]
        replicas: usize,
        /// Every so many writes (1 = all); without it each story's own measure.
        #[arg(long, value_parser = count())]
        step: Option<usize>,
        /// Only this story.
        #[arg(long, value_parser = stories())]
        story: Option<String>,
        /// Only this write, with all messages printed.
        #[arg(long)]
        at: Option<usize>,
        /// With --at: the job comes when the fleet is at rest.
        #[arg(long, requires = "at")]
        at_rest: bool,
        /// With --at: how it dies; none = no crash.
        #[arg(long, requires = "at", value_parser = ["not-sent", "answer-lost", "carried-out-late", "none"])]
        death: Option<String>,
    },
    /// 100 RayJobs over 3 members with watch cuts, conflicts, slow and lost answers.
    Sim {
        /// How many seeds.
        #[arg(long, default_value_t = 500, value_parser = clap::value_parser!(u64).range(1..))]
        seeds: u64,
        /// The first one.
        #[arg(long, default_value_t = 1, env = "SEED_BASE")]
        seed_base: u64,
        /// Jobs per seed.
        #[arg(long, default_value_t = simulate::JOBS, value_parser = count())]
        jobs: usize,
        /// Controller replicas.
        #[arg(long, default_value_t = 1, value_parser = count())]
        replicas: usize,
        /// Print every write to a target, or of an object, whose name contains this, and every change of such objects.
        #[arg(long)]
        trace: Option<String>,
    },
    /// Replicas that break one rule of the protocol each: a directed story must notice, and find nothing where the rule is
    /// kept.
    Mutants {
        /// Only this one.
        #[arg(long, value_parser = PossibleValuesParser::new(DANGERS.map(Danger::name)))]
        only: Option<String>,
        /// Print every write to a target, or of an object, whose name contains this: of the mutant's stories, then of the one with the rule kept.
        #[arg(long)]
        trace: Option<String>,
    },
    /// Hostile input for every decoder that takes bytes from outside: seeded mutations of what the outside sends.
    Fuzz(fuzzing::FuzzArgs),
    /// The demo on real API servers, hub and two members, with a recorder that watches them.
    DemoPlanes {
        /// Virtual environment with Ray; `none` simulates the pods.
        #[arg(long, default_value = ".venv")]
        ray: String,
        /// Controller replicas.
        #[arg(long, default_value_t = 3)]
        replicas: u8,
        /// Where logs and the recorder's timeline go.
        #[arg(long, default_value = ".sandbox/demo-planes")]
        dir: PathBuf,
    },
}

fn main() -> ExitCode {
    match Args::parse().command {
        Command::Fuzz(args) => fuzzing::run(&args),
        Command::CrashPoints { seed, replicas, step, story, at, at_rest, death } => {
            let setting = crash_points::Setting { seed, replicas, at_rest };
            match at {
                Some(at) => one_crash(setting, story.as_deref(), at, death.as_deref()),
                None => all_crashes(seed, replicas, step, story.as_deref()),
            }
        }
        Command::Sim { seeds, seed_base, jobs, replicas, trace } => {
            if seed_base.checked_add(seeds).is_none() {
                let words = format!("--seed-base {seed_base}: there are no {seeds} seeds from there on\n");
                Args::command().error(ErrorKind::ValueValidation, words).exit();
            }
            sim(seeds, seed_base, simulate::Plan { jobs, replicas, trace: trace.as_deref() })
        }
        Command::Mutants { only, trace } => mutants(only.as_deref(), trace.as_deref()),
        Command::DemoPlanes { ray, replicas, dir } => demo_planes(&ray, replicas, &dir),
    }
}

fn one_crash(setting: crash_points::Setting, story: Option<&str>, at: usize, death: Option<&str>) -> ExitCode {
    use kit::world::Death;
    let stories = crash_points::stories();
    let story = stories.iter().find(|s| story.is_none_or(|name| name == s.name));
    let story = story.expect("the command line takes the names of stories only");
    let death = match death {
        Some("not-sent") => Some((at, Death::NotSent)),
        Some("answer-lost") => Some((at, Death::AnswerLost)),
        Some("carried-out-late") => Some((at, Death::CarriedOutLate)),
        _ => None,
    };
    let (world, wrong) = crash_points::live(story, setting, death, true);
    for line in world.journal() {
        say(&line);
    }
    say(&format!("placement: {}", world.placement("train").map_or_else(String::new, |p| p["status"].to_string())));
    say(&format!("{} writes, {} steps; wrong: {wrong:#?}", world.writes.len(), world.steps));
    ExitCode::from(u8::from(!wrong.is_empty()))
}

fn all_crashes(seed: u64, replicas: usize, step: Option<usize>, only: Option<&str>) -> ExitCode {
    let began = Instant::now();
    let stories: Vec<_> =
        crash_points::stories().into_iter().filter(|s| only.is_none_or(|name| name == s.name)).collect();
    let settings = crash_points::Setting::all(seed, replicas);
    let total = crash_points::run(&stories, &settings, step, |line| say(&line));
    say(&format!("{:.1} s", began.elapsed().as_secs_f32()));
    say(&format!(
        "crash-points: {} points, {} variants, {} violations",
        total.points, total.variants, total.violations
    ));
    ExitCode::from(u8::from(total.violations > 0))
}

fn sim(seeds: u64, base: u64, plan: simulate::Plan<'_>) -> ExitCode {
    say(&format!("seeds {base} to {}", base + seeds.saturating_sub(1)));
    let began = Instant::now();
    let next = AtomicU64::new(0);
    let outcomes = Mutex::new(Vec::new());
    let workers = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    std::thread::scope(|scope| {
        for _ in 0..workers {
            scope.spawn(|| {
                loop {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    if index >= seeds {
                        return;
                    }
                    let outcome = simulate::run(base + index, plan);
                    for sentence in &outcome.violations {
                        say(&format!("seed {}: {sentence}", outcome.seed));
                    }
                    let mut all = outcomes.lock().expect("no thread panics with the lock");
                    all.push(outcome);
                    if all.len() % 25 == 0 {
                        say(&format!("{} seeds done", all.len()));
                    }
                }
            });
        }
    });
    let all = outcomes.into_inner().expect("no thread panics with the lock");
    let sum = |f: fn(&simulate::Outcome) -> u64| all.iter().map(f).sum::<u64>();
    let steps = sum(|o| o.steps);
    say(&format!(
        "bound {}, gangs refused after bind {}, withdrawals {}, wrong Fits {}",
        sum(|o| o.counts.bound),
        sum(|o| o.counts.refused_after_bind),
        sum(|o| o.counts.withdrawals),
        sum(|o| o.counts.wrong_fits),
    ));
    if plan.replicas > 1 {
        say(&format!(
            "crashes {}, freezes {}, partitions {}, leaves {}, take-overs inside the handshake {}",
            sum(|o| o.chaos.crashes),
            sum(|o| o.chaos.freezes),
            sum(|o| o.chaos.partitions),
            sum(|o| o.chaos.leaves),
            sum(|o| o.counts.takeovers_inside_handshake),
        ));
    }
    let seconds = began.elapsed().as_secs_f64();
    say(&format!("{seconds:.1} s, {:.0} steps/s", steps as f64 / seconds.max(0.001)));
    let violations = sum(|o| o.violations.len() as u64);
    say(&format!("sim: {} seeds, {steps} steps, {violations} violations", all.len()));
    ExitCode::from(u8::from(violations > 0 || all.len() as u64 != seeds))
}

fn mutants(only: Option<&str>, trace: Option<&str>) -> ExitCode {
    let began = Instant::now();
    let asked: Vec<Danger> = DANGERS.into_iter().filter(|d| only.is_none_or(|name| name == d.name())).collect();
    let next = AtomicU64::new(0);
    let verdicts = Mutex::new(BTreeMap::new());
    let workers = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    std::thread::scope(|scope| {
        for _ in 0..workers {
            scope.spawn(|| {
                while let Some(danger) = asked.get(next.fetch_add(1, Ordering::Relaxed) as usize) {
                    let verdict = dangers::judge(*danger, trace);
                    verdicts.lock().expect("no thread panics with the lock").insert(*danger, verdict);
                }
            });
        }
    });
    let verdicts = verdicts.into_inner().expect("no thread panics with the lock");
    for verdict in verdicts.values() {
        let caught = if verdict.caught { "caught" } else { "NOT CAUGHT" };
        let (name, seed, runs, seen) = (verdict.danger.name(), verdict.seed, verdict.runs, &verdict.seen);
        say(&format!("{name:<28} {caught:<10} seed {seed:>2}, {runs:>2} runs: {seen}"));
    }
    say(&format!("{:.1} s", began.elapsed().as_secs_f32()));
    let caught = verdicts.values().filter(|verdict| verdict.caught).count();
    say(&format!("mutants: {caught} of {} caught", asked.len()));
    ExitCode::from(u8::from(caught < asked.len()))
}

#[expect(clippy::print_stdout, reason = "a program for people")]
fn demo_planes(ray: &str, replicas: u8, dir: &Path) -> ExitCode {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("a runtime starts");
    match runtime.block_on(kit::real_fleet::demo::run(ray, replicas, dir)) {
        Ok((came_true, verdict)) => {
            for sentence in &verdict.violations {
                println!("recorder: {sentence}");
            }
            if let Some(((plane, kind, object), count)) = &verdict.most {
                println!("written most: {kind} {object} on {plane}, {count} times");
            }
            let violations = verdict.violations.len();
            println!("recorder: {} events, {} writes, {violations} violations", verdict.events, verdict.writes);
            ExitCode::from(u8::from(!came_true || violations > 0 || verdict.writes == 0))
        }
        Err(error) => {
            println!("demo-planes: {error:#}");
            ExitCode::from(1)
        }
    }
}
