//! How results are shown: a table for people, JSON or YAML for programs. No colours: what is piped equals what is seen.
//! Must not know what the results mean.

use anyhow::{Context, Result};
use clap::ValueEnum;
use comfy_table::{ContentArrangement, Table};
use serde::Serialize;

use crate::api::Time;

/// Form of a result.
#[derive(Clone, Copy, ValueEnum, Debug, PartialEq, Eq, Default)]
pub(crate) enum Format {
    /// For people.
    #[default]
    Table,
    /// For programs.
    Json,
    /// For programs and people.
    Yaml,
}

impl Format {
    /// The text of a result: `table` makes the one for people.
    pub(crate) fn render(self, value: &impl Serialize, table: impl FnOnce() -> String) -> Result<String> {
        Ok(match self {
            Format::Table => table(),
            Format::Json => serde_json::to_string_pretty(value).context("writing JSON")?,
            Format::Yaml => serde_saphyr::to_string(value).context("writing YAML")?,
        })
    }
}

/// Writes lines to standard output. A reader that closed its end (`| head`) is no error.
pub(crate) fn print(text: &str) -> Result<()> {
    use std::io::Write as _;
    match writeln!(std::io::stdout().lock(), "{}", text.trim_end_matches('\n')) {
        Err(e) if e.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
        written => written.context("writing the output"),
    }
}

/// Writes bytes to standard output as they are, at once. `false`: its reader has closed its end.
pub(crate) fn raw(bytes: &[u8]) -> Result<bool> {
    use std::io::Write as _;
    let mut out = std::io::stdout().lock();
    match out.write_all(bytes).and_then(|()| out.flush()) {
        Err(e) if e.kind() == std::io::ErrorKind::BrokenPipe => Ok(false),
        written => written.context("writing the output").map(|()| true),
    }
}

/// Writes a line for people to standard error, beside output that is somebody else's text.
pub(crate) fn note(text: &str) {
    use std::io::Write as _;
    // Nobody reads it where it cannot be written.
    let _closed = writeln!(std::io::stderr().lock(), "{text}");
}

/// The words of an error and of its causes, each once: many errors say their cause in their own words already.
pub(crate) fn words(error: &anyhow::Error) -> String {
    let mut words = String::new();
    for cause in error.chain().map(ToString::to_string) {
        if words.contains(&cause) {
            continue;
        }
        if !words.is_empty() {
            words.push_str(": ");
        }
        words.push_str(&cause);
    }
    words
}

/// A table as kubectl draws them: columns apart by spaces, no lines, never wrapped.
pub(crate) fn columns<R: IntoIterator<Item = String>>(header: &[&str], rows: impl IntoIterator<Item = R>) -> String {
    let mut table = Table::new();
    table.load_style(comfy_table::presets::NOTHING).set_content_arrangement(ContentArrangement::Disabled);
    table.set_header(header);
    for row in rows {
        table.add_row(row);
    }
    for column in table.column_iter_mut() {
        column.set_padding((0, 2));
    }
    table.lines().map(|line| line.trim_end().to_owned()).collect::<Vec<_>>().join("\n")
}

/// How long ago, as kubectl says it: `42s`, `5m`, `3h`, `12d`.
pub(crate) fn age(since: Time, now: Time) -> String {
    span(now.since(since).as_secs())
}

/// A length of time in its two largest units at most.
pub(crate) fn span(seconds: u64) -> String {
    match seconds {
        0..120 => format!("{seconds}s"),
        120..7_200 => format!("{}m", seconds / 60),
        7_200..172_800 => format!("{}h", seconds / 3_600),
        _ => format!("{}d", seconds / 86_400),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_has_aligned_columns_and_no_trailing_spaces() {
        let text = columns(
            &["NAME", "READY"],
            [["a-long-name".to_owned(), "True".to_owned()], ["b".to_owned(), String::new()]],
        );
        assert_eq!(text, "NAME         READY\na-long-name  True\nb");
    }

    #[test]
    fn each_cause_is_said_once() {
        let io = || std::io::Error::new(std::io::ErrorKind::AddrInUse, "port 80 is in use");
        #[derive(Debug, thiserror::Error)]
        #[error("{0}; name another")]
        struct Listen(#[from] std::io::Error);
        let quoting = anyhow::Error::new(Listen(io())).context("starting");
        assert_eq!(words(&quoting), "starting: port 80 is in use; name another");
        let silent = anyhow::Error::new(io()).context("reading a.yaml");
        assert_eq!(words(&silent), "reading a.yaml: port 80 is in use");
    }

    #[test]
    fn ages_read_like_kubectls() {
        assert_eq!([90, 600, 9_000, 200_000].map(span), ["90s", "10m", "2h", "2d"]);
    }
}
