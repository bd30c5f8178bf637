//! Hostile input for every decoder that takes bytes from outside: seeded mutations of what the outside really sends.
//! What must hold: no panic, bounded time and memory, and what decodes keeps what it says.
//! Must not know how inputs are made (`mutate`, `corpus`) or what a decoder promises (`objects`, `wire`, `texts`, `server`).
//!
//! An input is a function of target, seed and number alone: a finding is repeated by its three words.

pub mod corpus;
mod mutate;
mod objects;
mod server;
mod texts;
mod wire;

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use nix::sys::resource::{UsageWho, getrusage};
use nix::time::{ClockId, clock_gettime};

use corpus::{Corpus, Sample};

/// Time of this thread's processor that one input may take: a thousand times what it takes.
const CPU_LIMIT: Duration = Duration::from_secs(2);
/// Growth of the process by one input.
const GROWTH_KB_MAX: i64 = 512 << 10;

/// What is wrong with what a decoder made of an input.
type Verdict = Result<(), String>;

/// A decoder before one input after another; may keep something between them.
type Check = Box<dyn FnMut(&[u8]) -> Verdict>;

/// One decoder, or a few that take the same bytes.
#[derive(Clone, Copy)]
pub struct Target {
    /// As the command line names it.
    pub name: &'static str,
    /// What stands in for the outside: picked from what was recorded.
    samples: fn(&Corpus) -> Vec<Sample>,
    check: fn() -> Check,
}

/// Every decoder.
pub const TARGETS: &[Target] = &[
    Target { name: "watch-lines", samples: wire::lines, check: wire::check_lines },
    Target { name: "lists", samples: wire::lists, check: wire::check_lists },
    Target { name: "streams", samples: wire::streams, check: wire::check_streams },
    Target { name: "ray-answers", samples: wire::ray_answers, check: wire::check_ray_answers },
    Target { name: "rayjobs", samples: objects::rayjobs, check: objects::check_rayjobs },
    Target { name: "rayclusters", samples: objects::rayclusters, check: objects::check_rayclusters },
    Target { name: "rayservices", samples: objects::rayservices, check: objects::check_rayservices },
    Target { name: "raycronjobs", samples: objects::raycronjobs, check: objects::check_raycronjobs },
    Target { name: "placements", samples: objects::placements, check: objects::check_placements },
    Target { name: "member-capacities", samples: objects::capacities, check: objects::check_capacities },
    Target { name: "member-clusters", samples: objects::members, check: objects::check_members },
    Target { name: "placement-policies", samples: objects::policies, check: objects::check_policies },
    Target { name: "leases", samples: objects::leases, check: objects::check_leases },
    Target { name: "lease-answers", samples: wire::lease_answers, check: wire::check_lease_answers },
    Target { name: "quantities", samples: texts::quantities, check: texts::check_quantities },
    Target { name: "schedules", samples: texts::schedules, check: texts::check_schedules },
    Target { name: "times", samples: texts::times, check: texts::check_times },
    Target { name: "kubeconfigs", samples: texts::kubeconfigs, check: texts::check_kubeconfigs },
    Target { name: "member-secrets", samples: texts::secrets, check: texts::check_secrets },
    Target { name: "fleets", samples: texts::fleets, check: texts::check_fleets },
    Target { name: "runtime-envs", samples: texts::runtime_envs, check: texts::check_runtime_envs },
    Target { name: "scheduler-settings", samples: texts::settings, check: texts::check_settings },
    Target { name: "member-names", samples: texts::names, check: texts::check_names },
    Target { name: "manifests", samples: texts::manifests, check: texts::check_manifests },
    Target { name: "validated-manifests", samples: texts::manifests, check: texts::check_validated },
    Target { name: "dashboard-calls", samples: server::dashboard_calls, check: server::check_dashboard_calls },
    Target { name: "tunnel-heads", samples: server::tunnel_heads, check: server::check_tunnel_heads },
    Target { name: "requests", samples: server::requests, check: server::check_requests },
];

/// How long a target is run.
#[derive(Clone, Copy, Debug)]
pub enum Limit {
    /// So many inputs.
    Inputs(u64),
    /// As many as fit.
    Time(Duration),
}

/// What came of a run.
#[derive(Debug)]
pub struct Ran {
    /// Inputs that were tried.
    pub inputs: u64,
    /// The slowest input's time on the processor, and its number.
    pub slowest: (Duration, u64),
    /// The first input that broke something: its number, the input itself, what it broke.
    pub finding: Option<(u64, Vec<u8>, String)>,
}

/// The target of this name.
pub fn target(name: &str) -> Option<Target> {
    TARGETS.iter().copied().find(|target| target.name == name)
}

impl Target {
    /// Runs inputs from number `from` on, until the limit or the first finding. `progress` holds the number of the input
    /// in work, for whoever sees this process die.
    pub fn run(self, seed: u64, from: u64, limit: Limit, progress: Option<&Path>) -> Result<Ran> {
        let samples = (self.samples)(&Corpus::read()?);
        anyhow::ensure!(!samples.is_empty(), "no samples for {}", self.name);
        let progress = progress.map(|path| File::options().write(true).create(true).truncate(false).open(path));
        let progress = progress.transpose().context("opening the file of the input in work")?;
        let mut check = (self.check)();
        let begun = Instant::now();
        let mut ran = Ran { inputs: 0, slowest: (Duration::ZERO, from), finding: None };
        let mut size = resident_kb();
        loop {
            let over = match limit {
                Limit::Inputs(count) => ran.inputs >= count,
                Limit::Time(time) => begun.elapsed() >= time,
            };
            if over {
                return Ok(ran);
            }
            let number = from + ran.inputs;
            if let Some(file) = &progress {
                note(file, number)?;
            }
            let input = mutate::input(self.name, &samples, seed, number);
            let before = processor();
            let verdict = caught(&mut check, &input);
            let took = processor().saturating_sub(before);
            let grown = resident_kb() - size;
            size += grown.max(0);
            ran.inputs += 1;
            if took > ran.slowest.0 {
                ran.slowest = (took, number);
            }
            let wrong = match verdict {
                Err(wrong) => Some(wrong),
                Ok(()) if took > CPU_LIMIT => Some(format!("took {took:?}")),
                // The first ones fill caches.
                Ok(()) if grown > GROWTH_KB_MAX && ran.inputs > 1 => Some(format!("the process grew by {grown} KiB")),
                Ok(()) => None,
            };
            if let Some(wrong) = wrong {
                ran.finding = Some((number, input, wrong));
                return Ok(ran);
            }
        }
    }

    /// One input, for looking at it.
    pub fn input(self, seed: u64, number: u64) -> Result<Vec<u8>> {
        Ok(mutate::input(self.name, &(self.samples)(&Corpus::read()?), seed, number))
    }
}

fn note(file: &File, number: u64) -> io::Result<()> {
    file.write_all_at(format!("{number:<20}").as_bytes(), 0)
}

fn caught(check: &mut Check, input: &[u8]) -> Verdict {
    match catch_unwind(AssertUnwindSafe(|| check(input))) {
        Ok(verdict) => verdict,
        Err(panic) => {
            let text = panic.downcast_ref::<String>().cloned();
            let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
            Err(format!("panics: {}", text.unwrap_or_default()))
        }
    }
}

/// Time that this thread has had on the processor.
fn processor() -> Duration {
    clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).map(Duration::from).unwrap_or_default()
}

/// The most memory that this process ever had, KiB.
fn resident_kb() -> i64 {
    getrusage(UsageWho::RUSAGE_SELF).map(|usage| usage.max_rss()).unwrap_or_default()
}
