//! `conformance kube-api`: replays the recordings and reports. `conformance samples`: lets manifests live. `conformance
//! golden`: plays recorded lives. Exit code 1 if anything differs.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use clap::{Parser, Subcommand};
use conformance::{Choice, Report, Verdict, golden};

#[derive(Parser)]
#[command(about = "Replays what real servers and the real operator were recorded to do")]
struct Arguments {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    /// The recorded answers of a real Kubernetes API server.
    KubeApi {
        /// Folder with the recordings.
        #[arg(long)]
        dir: Option<PathBuf>,
        /// Only one topic: crud, patch, …
        #[arg(long)]
        file: Option<String>,
        /// Only one case.
        #[arg(long)]
        case: Option<String>,
        /// Every case with its verdict.
        #[arg(short, long)]
        verbose: bool,
    },
    /// Sample manifests: accepted, kept whole, valid, and carried out as far as their kinds are built.
    Samples {
        /// Folder with the manifests.
        #[arg(long)]
        dir: Option<PathBuf>,
        /// Only files with this in their name.
        #[arg(long)]
        file: Option<String>,
        /// What is explained counts as different.
        #[arg(long)]
        strict: bool,
    },
    /// What KubeRay's operator was recorded to do, played in the simulator against our core and compared write by write.
    ///
    /// The last lines are, for each kind: golden KIND: N equal, N explained, N different, N not yet. Exit code 0 only where
    /// nothing is different. Not yet: the kind or what the case needs is not built, and the object says so.
    Golden {
        /// Folder with the recordings (cases/ and samples/); else golden/ of RAYFLEET_SHARED.
        #[arg(long)]
        dir: Option<PathBuf>,
        /// Folder with the manifests of recorded samples; else samples/ of RAYFLEET_SHARED.
        #[arg(long)]
        samples: Option<PathBuf>,
        /// Only cases of one kind.
        #[arg(long, value_parser = ["RayCluster", "RayJob", "RayService", "RayCronJob"])]
        kind: Option<String>,
        /// Only one case, such as rc-scale; of a sample all runs, such as ray-job.sample, or one: ray-job.sample:volcano.
        #[arg(long)]
        case: Option<String>,
        /// All of it as one JSON document instead of lines.
        #[arg(long)]
        json: bool,
        /// Every case with its verdict, and all of its differences.
        #[arg(short, long)]
        verbose: bool,
        /// What was played too, write by write.
        #[arg(long, conflicts_with = "json")]
        trace: bool,
    },
    /// The request table, sent to the sandbox's API server and to a real one.
    Api {
        /// Only stories whose name contains this.
        #[arg(long)]
        story: Option<String>,
        /// Prints the page of explained differences for `docs/` and sends nothing.
        #[arg(long)]
        page: bool,
    },
    /// Writes what the sandbox knows of the fields of built-in kinds, from a folder of OpenAPI v3 documents.
    Kinds {
        /// Such as `api/openapi-spec/v3` of Kubernetes' sources.
        dir: PathBuf,
    },
}

fn main() -> Result<ExitCode> {
    match Arguments::parse().what {
        What::KubeApi { dir, file, case, verbose } => kube_api(dir, file, case, verbose),
        What::Samples { dir, file, strict } => samples(dir, file.as_deref(), strict),
        What::Golden { dir, samples, kind, case, json, verbose, trace } => {
            golden(dir, samples, &golden::Choice { kind, case, trace }, json, verbose)
        }
        What::Api { page: true, .. } => {
            std::io::stdout().lock().write_all(conformance::page().as_bytes())?;
            Ok(ExitCode::SUCCESS)
        }
        What::Kinds { dir } => {
            let mut documents = Vec::new();
            for entry in std::fs::read_dir(dir)? {
                documents.push(serde_json::from_str(&std::fs::read_to_string(entry?.path())?)?);
            }
            let kinds = conformance::kinds::kinds(&documents);
            std::io::stdout().lock().write_all(conformance::kinds::text(&kinds).as_bytes())?;
            Ok(ExitCode::SUCCESS)
        }
        What::Api { story, .. } => api(story.as_deref()),
    }
}

fn samples(dir: Option<PathBuf>, file: Option<&str>, strict: bool) -> Result<ExitCode> {
    let dir = dir.unwrap_or_else(|| conformance::shared().join("samples"));
    let all = conformance::samples::run(&dir, file, |sample| Ok(writeln!(std::io::stdout(), "{sample}")?))?;
    writeln!(std::io::stdout(), "{}", conformance::samples::summary(&all))?;
    let [_, explained, different] = conformance::samples::counts(&all);
    Ok(if different > 0 || (strict && explained > 0) { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

fn golden(
    dir: Option<PathBuf>,
    samples: Option<PathBuf>,
    choice: &golden::Choice,
    json: bool,
    verbose: bool,
) -> Result<ExitCode> {
    let dir = dir.unwrap_or_else(|| conformance::shared().join("golden"));
    let samples = samples.unwrap_or_else(|| conformance::shared().join("samples"));
    let mut out = std::io::stdout().lock();
    let report = golden::run(&dir, &samples, choice, |outcome| {
        let is_news = verbose || choice.trace || matches!(outcome.verdict, golden::Verdict::Different(_));
        if is_news && !json {
            let most = if verbose { usize::MAX } else { 3 };
            for line in outcome.trace.iter().chain(&outcome.lines(most)) {
                writeln!(out, "{line}")?;
            }
        }
        Ok(())
    })?;
    if json {
        writeln!(out, "{:#}", report.json())?;
    } else {
        for (class, cases, example) in report.classes() {
            writeln!(out, "{cases:>4} cases: {class}\n            {example}")?;
        }
        for line in report.explained().iter().chain(&report.summary()) {
            writeln!(out, "{line}")?;
        }
    }
    Ok(if report.differs() { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// Exit code 1 where answers differ, 3 where there is no real server to ask (2 is a command line that is wrong).
fn api(story: Option<&str>) -> Result<ExitCode> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let mut out = std::io::stdout().lock();
    let report = match runtime.block_on(conformance::api(story))? {
        Ok(report) => report,
        Err(why) => {
            writeln!(out, "api: not compared: {why}")?;
            return Ok(ExitCode::from(3));
        }
    };
    for difference in &report.different {
        writeln!(out, "DIFFERENT  {difference}")?;
    }
    for (name, times) in &report.used {
        writeln!(out, "explained: {name}: {times} times")?;
    }
    writeln!(out, "{}", report.summary())?;
    Ok(if report.different.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn kube_api(dir: Option<PathBuf>, file: Option<String>, case: Option<String>, verbose: bool) -> Result<ExitCode> {
    let dir = dir.unwrap_or_else(|| conformance::shared().join("kube-api"));
    let topic = file.map(|f| f.trim_end_matches(".json").to_owned());
    let report = conformance::run(&dir, &Choice { topic, case })?;
    print(&report, verbose, &mut std::io::stdout().lock())?;
    Ok(if report.counts()[2] > 0 { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

fn print(report: &Report, verbose: bool, out: &mut impl Write) -> Result<()> {
    let mut explained: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    let mut not_yet: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for outcome in &report.outcomes {
        match &outcome.verdict {
            Verdict::Equal if verbose => writeln!(out, "equal      {}", outcome.case)?,
            Verdict::Equal => {}
            Verdict::Explained(reasons) => {
                for reason in reasons {
                    explained.entry(reason).or_default().push(&outcome.case);
                }
            }
            Verdict::NotYet(reason) => not_yet.entry(reason).or_default().push(&outcome.case),
            Verdict::Different(differences) => {
                writeln!(out, "DIFFERENT  {}", outcome.case)?;
                let shown = if verbose { differences.len() } else { 3 };
                for difference in differences.iter().take(shown) {
                    writeln!(out, "    {difference}")?;
                }
            }
        }
    }
    for (title, table) in [("explained", &explained), ("not yet", &not_yet)] {
        for (reason, cases) in table {
            writeln!(out, "{title}: {reason}\n    {}", cases.join(" "))?;
        }
    }
    writeln!(out, "{}", report.summary())?;
    Ok(())
}
