//! The one binary.

use std::process::ExitCode;

use rayfleet::sandbox::ray::{order, runner};

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    // Before everything else, since it needs a process with one thread.
    match args.split_first() {
        Some((first, rest)) if first == order::SUBCOMMAND => runner::run(rest),
        _ => rayfleet::cli::main(),
    }
}
