//! `rayfleet validate`: what a hub would say of manifests, without one.
//! Must not send anything.

mod check;

use std::path::PathBuf;

use anyhow::Result;
use serde::Serialize;

use super::output::{self, Format};
use super::{End, manifest};
pub use check::Checker;

/// Options of `rayfleet validate`.
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Exit codes:
  0  nothing is wrong, though there may be warnings
  1  something is wrong, or would not be carried out by this release

Examples:
  rayfleet validate -f job.yaml
  helm template train | rayfleet validate -f -
  rayfleet validate -f job.yaml -f service.yaml -o json")]
pub(crate) struct ValidateArgs {
    /// Manifest, YAML or JSON, any number of documents; `-` reads standard input. May be repeated
    #[arg(short = 'f', long = "filename", value_name = "FILE", required = true)]
    files: Vec<PathBuf>,
    /// Form of the output
    #[arg(short, long, value_enum, default_value_t = Format::Table)]
    output: Format,
}

/// How much a finding weighs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
enum Severity {
    /// The API server or the controller refuses the object.
    Error,
    /// It is taken, and perhaps not as it was meant.
    Warning,
}

/// One thing that is to be said of one object. Programs get exactly this.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
struct Finding {
    /// As it was given.
    file: String,
    /// Number of the document in it, from 1; 0 where the file as a whole is meant.
    document: usize,
    /// Kind, namespace and name as far as they are known: `RayJob research/train`.
    object: String,
    severity: Severity,
    /// Reason of the Event that the controller would write; `Schema` where the API server refuses, `UnknownField`,
    /// `Unreadable`.
    reason: String,
    /// `spec.suspend`; empty where the whole object is meant.
    field: String,
    /// What is wrong and what would be right, in a sentence without the field.
    message: String,
}

/// What was looked at, and what was found.
#[derive(Debug, Default, Serialize)]
struct Report {
    objects: usize,
    errors: usize,
    warnings: usize,
    findings: Vec<Finding>,
}

pub(crate) fn run(args: &ValidateArgs) -> Result<End> {
    let mut checker = Checker::new()?;
    let mut report = Report::default();
    for path in &args.files {
        let file = if path.as_os_str() == "-" { "standard input".to_owned() } else { path.display().to_string() };
        match manifest::read(path) {
            Ok(text) => checker.file(&file, &text, &mut report),
            Err(error) => report.findings.push(Finding {
                file,
                document: 0,
                object: String::new(),
                severity: Severity::Error,
                reason: "Unreadable".to_owned(),
                field: String::new(),
                message: format!("{error:#}"),
            }),
        }
    }
    let count = |severity| report.findings.iter().filter(|finding| finding.severity == severity).count();
    (report.errors, report.warnings) = (count(Severity::Error), count(Severity::Warning));
    output::print(&args.output.render(&report, || table(&report))?)?;
    Ok(if report.errors > 0 { End::Invalid } else { End::Done })
}

/// A line for each finding, then what it comes to.
fn table(report: &Report) -> String {
    let mut lines: Vec<String> = report.findings.iter().map(line).collect();
    let plural = |n: usize, word: &str| format!("{n} {word}{}", if n == 1 { "" } else { "s" });
    let (objects, errors) = (plural(report.objects, "object"), plural(report.errors, "error"));
    lines.push(format!("{objects}: {errors}, {}", plural(report.warnings, "warning")));
    lines.join("\n")
}

fn line(finding: &Finding) -> String {
    let document = if finding.document > 0 { format!(", document {}", finding.document) } else { String::new() };
    let object = if finding.object.is_empty() { String::new() } else { format!(", {}", finding.object) };
    let field = if finding.field.is_empty() { String::new() } else { format!("{}: ", finding.field) };
    let warning = if finding.severity == Severity::Warning { "warning: " } else { "" };
    format!("{}{document}{object}: {warning}{field}{}", finding.file, finding.message)
}
