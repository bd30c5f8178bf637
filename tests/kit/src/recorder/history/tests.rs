//! Facts about what a recording shows, told with made-up entries and states.

use super::*;
use crate::real_fleet::audit::Right;

const USER: &str = "controller";

fn object(version: u64, annotations: &Value) -> Value {
    json!({"metadata": {"namespace": "n", "name": "a", "resourceVersion": version.to_string(), "annotations": annotations}})
}

fn write(verb: &str, resource: &str, version: Option<u64>) -> Entry {
    Entry {
        user: USER.into(),
        agent: "rayfleet (seat a)".into(),
        right: Right { group: String::new(), resource: resource.into(), verb: verb.into() },
        namespace: "n".into(),
        name: "a".into(),
        code: 200,
        reason: String::new(),
        version,
        at: String::new(),
        object: Value::Null,
    }
}

#[test]
fn a_second_live_mirror_is_noticed_and_a_tombstone_is_none() {
    let mirror = |version, deleted: bool| {
        let mut mirror = object(version, &json!({GENERATION: "1", ROOT_ID: "r", FLEET_ID: "f"}));
        if deleted {
            mirror["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
        }
        mirror
    };
    let mut history = History::of(USER, "f");
    history.event("eu", "rayjobs", "ADDED", &mirror(1, false));
    history.event("eu", "rayjobs", "MODIFIED", &mirror(2, true));
    history.event("us", "rayjobs", "ADDED", &mirror(1, false));
    assert!(history.judge().violations.is_empty());
    history.event("ap", "rayjobs", "ADDED", &mirror(9, false));
    assert_eq!(history.judge().violations.len(), 1);
    // One that a list lacks is gone.
    history.listed("us", "rayjobs", &BTreeSet::new());
    history.listed("ap", "rayjobs", &BTreeSet::new());
    history.event("eu", "rayjobs", "ADDED", &mirror(10, false));
    assert_eq!(history.judge().violations.len(), 1);
}

#[test]
fn a_change_of_a_strangers_object_is_noticed_also_where_the_change_stamps_it() {
    for (verb, before, wrong) in
        [("patch", json!({}), 1), ("patch", json!({FLEET_ID: "f"}), 0), ("patch", json!({FLEET_ID: "g"}), 1)]
    {
        let mut history = History::of(USER, "f");
        history.event("eu", "pods", "ADDED", &object(1, &before));
        history.event("eu", "pods", "MODIFIED", &object(2, &json!({FLEET_ID: "f"})));
        history.asked("eu", &write(verb, "pods", Some(2)));
        assert_eq!(history.judge().violations.len(), wrong, "{before}");
    }
    let mut history = History::of(USER, "f");
    history.event("eu", "pods", "ADDED", &object(1, &json!({})));
    history.asked("eu", &write("delete", "pods", None));
    history.asked("hub", &write("update", "configmaps", None));
    assert_eq!(history.judge().violations.len(), 2);
    let mut history = History::of(USER, "f");
    history.event("eu", "services", "ADDED", &object(1, &json!({FLEET_ID: "f"})));
    history.asked("eu", &write("delete", "services", Some(1)));
    assert!(history.judge().violations.is_empty());
}

#[test]
fn a_request_that_no_role_allows_is_noticed() {
    let mut history = History::of(USER, "f");
    let forbidden = Entry { code: 403, reason: "forbid: ".into(), ..write("list", "secrets", None) };
    assert_eq!(history.asked("eu", &forbidden), None);
    assert_eq!(history.judge().violations, ["eu: the fleet may not list secrets"]);
}

#[test]
fn a_write_after_anothers_is_told_from_one_before_it_and_from_one_refused() {
    let by = |agent: &str, version, code| Entry { agent: agent.into(), code, ..write("update", "rayjobs", version) };
    let mut history = History::of(USER, "f");
    history.asked("hub", &by("other", Some(1), 200));
    for (entry, overtaken) in [
        (by("frozen", Some(2), 200), 0),
        (by("other", Some(3), 200), 0),
        (by("frozen", None, 409), 0),
        (by("frozen", Some(4), 200), 1),
    ] {
        history.asked("hub", &entry);
        assert_eq!(history.overtaken("frozen", 1).len(), overtaken, "{entry:?}");
    }
    assert_eq!(history.writes_of("frozen", 2).count(), 2);
}

#[test]
fn a_deletion_comes_before_or_after_others_by_the_time_of_its_answer() {
    let by = |agent: &str, verb: &str, version, second: u64| Entry {
        agent: agent.into(),
        at: format!("2026-01-01T00:00:{second:02}.000000Z"),
        ..write(verb, "rayclusters", version)
    };
    for (first, late, overtaken) in [
        // What another wrote, or made anew, is deleted late; and what another deleted is made late: a mirror.
        (by("other", "update", Some(5), 1), by("frozen", "delete", None, 2), 1),
        (by("other", "create", Some(5), 1), by("frozen", "delete", Some(5), 2), 1),
        (by("other", "delete", Some(5), 1), by("frozen", "create", Some(9), 2), 1),
        (by("other", "update", Some(5), 2), by("frozen", "delete", Some(4), 1), 0),
        (by("other", "delete", None, 2), by("frozen", "update", Some(4), 1), 0),
    ] {
        let mut history = History::of(USER, "f");
        history.asked("us", &first);
        history.asked("us", &late);
        assert_eq!(history.overtaken("frozen", 0).len(), overtaken, "{first:?}, {late:?}");
    }
}

#[test]
fn what_is_late_of_a_replica_ends_where_it_owns_a_unit_by_a_new_turn_and_not_where_it_renews_an_old_one() {
    let lease = |agent: &str, name: &str, holder: &str, version, second: u64| Entry {
        agent: agent.into(),
        namespace: "rayfleet-system".into(),
        name: name.into(),
        at: format!("2026-01-01T00:00:{second:02}.000000Z"),
        object: json!({"spec": {"holderIdentity": holder}}),
        ..write("update", "leases", Some(version))
    };
    let job = |agent: &str, version, second: u64| Entry {
        agent: agent.into(),
        at: format!("2026-01-01T00:00:{second:02}.000000Z"),
        ..write("update", "rayjobs", Some(version))
    };
    let mut history = History::of(USER, "f");
    history.asked("hub", &lease("frozen", "q-00", "a#3", 1, 1));
    assert_eq!(history.turn_of("frozen"), Some(3));
    let known = history.writes().len();
    for entry in [
        lease("other", "q-00", "b#1", 2, 2),
        job("other", 3, 3),
        // Its seat is its own; a renewal of what another has taken is not, nor what it writes because of it.
        lease("frozen", "seat-a", "a-process", 4, 4),
        lease("frozen", "q-00", "a#3", 5, 5),
        job("frozen", 6, 6),
        lease("frozen", "q-01", "a#4", 7, 7),
        job("other", 8, 8),
        job("frozen", 9, 9),
        lease("frozen", "q-00", "a#3", 10, 10),
    ] {
        history.asked("hub", &entry);
    }
    assert_eq!(history.owns_again("frozen", known, 3), Some("2026-01-01T00:00:07.000000Z"));
    let late: Vec<_> = history.late("frozen", known, 3).iter().map(|write| write.version).collect();
    assert_eq!(late, [Some(5), Some(6), Some(10)]);
    assert!(history.late("frozen", known, 3).iter().all(|write| history.overtaken("frozen", known).contains(write)));
}

#[test]
fn a_child_that_is_made_late_under_the_name_of_one_that_is_gone_is_another_object() {
    let of = |uid: &str, owned: bool| {
        let owners = if owned { json!([{"uid": "o"}]) } else { json!([]) };
        json!({"metadata": {"uid": uid, "ownerReferences": owners}})
    };
    for (late, overtaken) in [(of("2", true), 0), (of("1", true), 1), (of("2", false), 1)] {
        let mut history = History::of(USER, "f");
        let gone = json!({"kind": "Status", "details": {"uid": "1"}});
        let mine = |agent: &str, second: u64, object: &Value, entry: Entry| Entry {
            agent: agent.into(),
            at: format!("2026-01-01T00:00:{second:02}.000000Z"),
            object: object.clone(),
            ..entry
        };
        history.asked("us", &mine("other", 1, &gone, write("delete", "rayclusters", None)));
        history.asked("us", &mine("frozen", 2, &late, write("create", "rayclusters", Some(9))));
        assert_eq!(history.overtaken("frozen", 0).len(), overtaken, "{late}");
    }
}

#[test]
fn what_is_written_below_an_object_counts_as_a_write_of_it_unless_nothing_is_stored_there() {
    let mut history = History::of(USER, "f");
    history.event("eu", "pods", "ADDED", &object(1, &json!({})));
    for (below, wrong) in [("token", 0), ("proxy", 0), ("status", 1), ("resize", 2), ("eviction", 3)] {
        history.asked("eu", &write("patch", &format!("pods/{below}"), None));
        assert_eq!(history.judge().violations.len(), wrong, "{below}");
    }
}

#[test]
fn a_write_that_no_watch_told_is_noticed() {
    let mut history = History::of(USER, "f");
    history.event("hub", "rayjobs", "ADDED", &object(1, &json!({})));
    history.asked("hub", &write("update/status", "rayjobs", Some(1)));
    history.asked("hub", &write("update", "rayjobs", Some(2)));
    assert_eq!(history.unseen().len(), 1);
    assert_eq!(history.judge().violations.len(), 1);
}
