//! The simulator's programs as processes: how they end when they are asked for nothing, or nobody reads them.

#![expect(clippy::unwrap_used, reason = "what fails here fails the test")]

use std::process::{Command, Output, Stdio};

fn kit(arguments: &[&str], stdout: Stdio) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_kit"));
    let child = command.args(arguments).env_remove("SEED_BASE").stdout(stdout).stderr(Stdio::piped()).spawn();
    child.unwrap().wait_with_output().unwrap()
}

#[test]
fn a_run_of_nothing_is_refused_and_not_a_success() {
    for (arguments, word) in [
        (&["sim", "--seeds", "0"][..], "--seeds"),
        (&["sim", "--jobs", "0"], "--jobs"),
        (&["sim", "--replicas", "0"], "--replicas"),
        (&["sim", "--seeds", "2", "--seed-base", "18446744073709551615"], "--seed-base"),
        (&["crash-points", "--story", "nosuch"], "http, k8s"),
        (&["crash-points", "--replicas", "0"], "--replicas"),
        (&["crash-points", "--step", "0"], "--step"),
        (&["crash-points", "--at", "3", "--death", "nosuch"], "not-sent"),
        (&["crash-points", "--death", "not-sent"], "--at"),
        (&["crash-points", "--at-rest"], "--at"),
        (&["mutants", "--only", "nosuch"], "--only"),
    ] {
        let output = kit(arguments, Stdio::piped());
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {said}");
        assert!(said.contains(word), "{arguments:?}: {said}");
        assert!(output.stdout.is_empty(), "{arguments:?}: nothing is run");
    }
}

#[test]
fn a_program_whose_reader_has_gone_ends_without_a_word() {
    for arguments in [&["sim", "--seeds", "1", "--jobs", "1"][..], &["crash-points", "--at", "1", "--death", "none"]] {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let output = kit(arguments, writer.into());
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!((output.status.code(), &*said), (Some(141), ""), "{arguments:?}");
    }
}
