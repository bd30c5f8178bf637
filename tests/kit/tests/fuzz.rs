//! Every decoder is fed some hundred hostile inputs, always the same; `make fuzz` feeds them for as long as one likes.

#![expect(clippy::unwrap_used, reason = "what fails here fails the test")]

use std::process::Command;

use kit::fuzz::corpus::Corpus;
use kit::fuzz::{TARGETS, target};

fn fuzz(arguments: &[&str]) -> (bool, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_kit")).arg("fuzz").args(arguments).output().unwrap();
    (output.status.success(), String::from_utf8(output.stdout).unwrap())
}

#[test]
fn no_decoder_is_broken_by_the_inputs_of_this_seed() {
    let (sound, told) = fuzz(&["--seed", "7", "--inputs", "250"]);
    assert!(sound, "{told}");
    let last = format!("fuzz: {} decoders, 0 findings\n", TARGETS.len());
    assert!(told.contains("seed 7") && told.ends_with(&last), "{told}");
}

#[test]
fn an_input_is_repeated_by_its_target_seed_and_number() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("input");
    let path_text = path.display().to_string();
    let (_, told) = fuzz(&["--only", "rayjobs", "--seed", "7", "--from", "12", "--show", &path_text]);
    let input = std::fs::read(&path).unwrap_or_else(|e| panic!("{told}: {e}"));
    assert_eq!(input, target("rayjobs").unwrap().input(7, 12).unwrap());
}

#[test]
fn the_outside_is_there_in_all_its_kinds() {
    let corpus = Corpus::read().unwrap();
    for kind in ["RayJob", "RayCluster", "RayService", "RayCronJob", "Placement", "MemberCapacity", "MemberCluster"] {
        assert!(!corpus.of(kind).is_empty(), "no {kind}");
    }
    assert!(corpus.of("Pod").len() > 20 && corpus.of("Lease").len() > 3 && corpus.requests.len() > 500);
}
