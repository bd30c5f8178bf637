//! The smallest recorded life, played whole: what is told of it, and that nothing in it differs.

use conformance::golden::{self, Choice, Verdict};

#[test]
fn a_recorded_cluster_lives_as_it_was_recorded() {
    let (dir, samples) = (conformance::shared().join("golden"), conformance::shared().join("samples"));
    if !dir.join("cases").is_dir() {
        assert!(std::env::var_os("CI").is_none(), "no recordings at {}: in CI they are no choice", dir.display());
        return kit::skipped::note(&format!("no recordings at {}; set RAYFLEET_SHARED", dir.display()));
    }
    let choice = Choice { case: Some("rc-minimal-head-only".to_owned()), trace: true, ..Choice::default() };
    let report = golden::run(&dir, &samples, &choice, |_| Ok(())).unwrap();
    let [outcome] = &report.outcomes[..] else { unreachable!("one case of that name: {:?}", report.outcomes) };
    assert!(matches!(outcome.verdict, Verdict::Equal | Verdict::Explained(_)), "{:?}", outcome.lines(usize::MAX));
    assert!(outcome.trace.iter().any(|line| line.contains("raycluster create v1/pods")), "{:?}", outcome.trace);
    assert!(report.summary()[0].ends_with(" 0 different, 0 not yet"), "{:?}", report.summary());
}
