//! What is logged, how, and where to: standard error, so that output can be piped.
//! Must not know what the commands do.

use std::io::IsTerminal;

use anyhow::{Context, Result};
use clap::{Args, ValueEnum};
use tracing_subscriber::EnvFilter;

/// kube logs a warning for every 5xx and its client's spans at debug: the shell says it in its own words.
const QUIET: &str = "kube_client=off,hyper=warn,rustls=warn,tower=warn";

/// Options of logging.
#[derive(Args, Debug)]
pub(crate) struct Logging {
    /// What to log: a level, or directives such as `rayfleet=debug,kube=warn` (default: info for run and sandbox, else warn)
    #[arg(long, global = true, env = "RUST_LOG", value_name = "FILTER", help_heading = "Logging")]
    log: Option<String>,
    /// Form of the log lines
    #[arg(long, global = true, env = "RAYFLEET_LOG_FORMAT", value_enum, default_value_t = Form::Text, help_heading = "Logging")]
    log_format: Form,
}

#[derive(Clone, Copy, ValueEnum, Debug, PartialEq, Eq)]
enum Form {
    /// Lines for people.
    Text,
    /// One JSON object per line.
    Json,
}

impl Logging {
    /// Starts logging for this process. `serves`: a command that runs until it is stopped.
    pub(crate) fn start(&self, serves: bool) -> Result<()> {
        let wanted = self.log.clone().unwrap_or_else(|| if serves { "info" } else { "warn" }.to_owned());
        let filter = EnvFilter::try_new(format!("{QUIET},{wanted}"))
            .with_context(|| format!("--log {wanted:?} is no filter; right are e.g. info, debug, rayfleet=debug"))?;
        // A line that cannot be written would be said to be so on standard error: whose reader has gone (`2>&1 | head`), and
        // that is a panic.
        let builder =
            tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).log_internal_errors(false);
        let started = match self.log_format {
            Form::Json => builder.json().flatten_event(true).try_init(),
            Form::Text => builder.with_ansi(std::io::stderr().is_terminal()).try_init(),
        };
        started.map_err(|e| anyhow::anyhow!("logging does not start: {e}"))
    }
}
