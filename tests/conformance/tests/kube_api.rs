//! The sandbox's API server answers as a recorded real one.

#[test]
fn no_answer_differs_and_every_case_is_supported() {
    let dir = conformance::shared().join("kube-api");
    if !dir.join("index.json").is_file() {
        assert!(std::env::var_os("CI").is_none(), "no recordings at {}: in CI they are no choice", dir.display());
        return kit::skipped::note(&format!("no recordings at {}; set RAYFLEET_SHARED", dir.display()));
    }
    let report = conformance::run(&dir, &conformance::Choice::default()).unwrap();
    let [.., different, not_yet] = report.counts();
    assert_eq!(different, 0, "{}", report.summary());
    assert_eq!(not_yet, 0, "{}", report.summary());
}
