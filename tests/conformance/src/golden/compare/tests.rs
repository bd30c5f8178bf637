//! What is different, and what is not.

use serde_json::json;

use super::*;

fn write(name: &str, label: &str) -> Write {
    Write {
        by: "raycluster".into(),
        verb: "create".into(),
        resource: "v1/pods".into(),
        name: Some(name.into()),
        body: json!({ "kind": "Pod", "metadata": { "name": name, "labels": { "a": label } } }),
        ..Write::default()
    }
}

fn recording(writes: Vec<Write>) -> Recording {
    let round = Round { stimulus: "apply".into(), writes, dashboard_requests: Vec::new() };
    Recording { phases: vec![Phase { rounds: vec![round], ..Phase::default() }], unstable: Vec::new() }
}

fn classes(ours: &Recording, theirs: &Recording) -> Vec<String> {
    compare(ours, theirs, &mut Explanations::default()).into_iter().map(|d| d.class).collect()
}

#[test]
fn the_same_is_equal_under_other_names() {
    let ours = recording(vec![write("c-<rand:bcdfg>", "x")]);
    assert_eq!(classes(&ours, &recording(vec![write("c-<rand:1>", "x")])), Vec::<String>::new());
}

#[test]
fn a_changed_label_in_a_body_is_different() {
    let (ours, theirs) = (recording(vec![write("c", "x")]), recording(vec![write("c", "y")]));
    assert_eq!(classes(&ours, &theirs), ["create v1/pods: /metadata/labels/a"]);
    let mut unstable = theirs.clone();
    unstable.unstable = vec!["/phases/0/rounds/0/writes/0/body/metadata/labels".into()];
    assert_eq!(classes(&ours, &unstable), Vec::<String>::new(), "what is not stable is not compared");
}

#[test]
fn a_missing_and_an_extra_write_are_different() {
    let (one, two) = (recording(vec![write("a", "x")]), recording(vec![write("a", "x"), write("b", "x")]));
    assert_eq!(classes(&one, &two), ["write missing: raycluster create v1/pods"]);
    assert_eq!(classes(&two, &one), ["write extra: raycluster create v1/pods"]);
}

#[test]
fn order_counts_within_a_controller_and_not_between_two() {
    let (a, b) = (write("a", "x"), write("b", "x"));
    let differences = classes(&recording(vec![b.clone(), a.clone()]), &recording(vec![a.clone(), b.clone()]));
    assert_eq!(differences.len(), 2, "{differences:?}");
    let mut other = b;
    other.by = "rayjob".into();
    let (ours, theirs) = (recording(vec![other.clone(), a.clone()]), recording(vec![a, other]));
    assert_eq!(classes(&ours, &theirs), Vec::<String>::new());
}

#[test]
fn hashes_are_different_exactly_where_the_operators_are() {
    let hashed = |name: &str, hash: &str| write(name, &format!("<hash:{hash}>"));
    let theirs = recording(vec![hashed("a", "T"), hashed("b", "T")]);
    assert_eq!(classes(&recording(vec![hashed("a", "O"), hashed("b", "O")]), &theirs), Vec::<String>::new());
    assert_eq!(classes(&recording(vec![hashed("a", "O"), hashed("b", "P")]), &theirs).len(), 1);
}

#[test]
fn a_missing_object_and_a_missing_event_are_different() {
    let mut theirs = recording(Vec::new());
    theirs.phases[0].objects = vec![json!({ "kind": "Pod", "metadata": { "name": "a" } })];
    theirs.phases[0].events =
        vec![json!({ "reason": "CreatedHeadPod", "regarding": { "kind": "RayCluster", "name": "c" } })];
    let differences = classes(&recording(Vec::new()), &theirs);
    assert_eq!(differences.len(), 2, "{differences:?}");
    assert!(differences[0].starts_with("object missing"), "{differences:?}");
    assert!(differences[1].starts_with("event missing"), "{differences:?}");
}

#[test]
fn a_deletion_of_many_is_the_set_of_single_ones() {
    let delete = |verb: &str, name: Option<&str>| Write {
        by: "raycluster".into(),
        verb: verb.into(),
        resource: "v1/pods".into(),
        name: name.map(str::to_owned),
        ..Write::default()
    };
    let ours = recording(vec![delete("delete", Some("a")), delete("delete", Some("b"))]);
    assert_eq!(classes(&ours, &recording(vec![delete("deletecollection", None)])), Vec::<String>::new());
}
