//! The table in docs/VALIDATION.md and the tests say the same.

use std::collections::BTreeSet;
use std::path::Path;

/// Names of tests in a file: those of the macro, and plain ones.
fn tests_of(text: &str) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for line in text.lines() {
        let line = line.trim();
        let name = line.strip_prefix("fn ").and_then(|rest| rest.split_once("() {")).map(|(name, _)| name);
        let name = name.or_else(|| line.strip_suffix(':'));
        let is_name = |name: &&str| {
            name.contains('_') && name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_')
        };
        names.extend(name.filter(is_name).map(str::to_owned));
    }
    names
}

#[test]
fn every_rule_in_the_table_has_its_test_and_every_test_of_a_rule_stands_in_the_table() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let read = |path: &str| {
        let path = root.join(path);
        std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
    };
    let mut there = BTreeSet::new();
    for kind in ["cluster", "job", "service", "cron_job"] {
        there.extend(tests_of(&read(&format!("src/plan/validate/tests/{kind}_rules.rs"))));
    }
    let table = read("docs/VALIDATION.md");
    let rows = table.lines().filter(|line| line.starts_with("| ")).filter_map(|line| line.rsplit('|').nth(1));
    let told: BTreeSet<String> = rows
        .flat_map(|cell| cell.split('`').skip(1).step_by(2))
        .filter(|name| name.contains('_'))
        .map(str::to_owned)
        .collect();
    assert!(told.len() > 80, "{}", told.len());
    let missing: Vec<_> = told.difference(&there).collect();
    assert!(missing.is_empty(), "docs/VALIDATION.md names tests that do not exist: {missing:?}");
    let untold: Vec<_> = there.difference(&told).collect();
    assert!(untold.is_empty(), "docs/VALIDATION.md does not name: {untold:?}");
}
