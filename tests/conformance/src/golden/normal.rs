//! Makes what was played and what was recorded comparable: only what a recording cannot keep, and what the rules of reading
//! name.
//! Must not know why two values might differ otherwise.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;

use regex_lite::Regex;
use serde_json::{Map, Value};

use super::heard;
use super::recording::{Recording, Write};

/// Hashes of specifications: equal or different exactly where the other side's are.
const HASHES: &[&str] = &[
    "ray.io/upgrade-strategy-recreate-hash",
    "ray.io/hash-without-replicas-and-workers-to-delete",
    "ray.io/serve-config-hash",
];
const VERSION: &str = "ray.io/kuberay-version";

/// Text with every point in time replaced.
pub(super) fn without_times(text: &str) -> String {
    TIME.replace_all(text, "<time>").into_owned()
}

static TIME: LazyLock<Regex> = LazyLock::new(|| compiled(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z"));
static UID: LazyLock<Regex> =
    LazyLock::new(|| compiled("[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"));
static VOLUME: LazyLock<Regex> = LazyLock::new(|| compiled("kube-api-access-[a-z0-9]{5}"));
static TAG: LazyLock<Regex> = LazyLock::new(|| compiled("kuberay_version=[^;]*"));
/// Five characters of Kubernetes' alphabet of made-up suffixes.
static SUFFIX: LazyLock<Regex> = LazyLock::new(|| compiled("-([bcdfghjklmnpqrstvwxz2456789]{5})$"));

fn compiled(pattern: &str) -> Regex {
    Regex::new(pattern).expect("a fixed pattern")
}

/// What was played, with the placeholders of recordings.
pub(super) fn played(recording: &mut Recording) {
    let mut names = Names::of(recording);
    let one = |names: &Names, value: &mut Value| {
        heard::strip(value);
        secret(value);
        names.replace(value);
    };
    // In order of time: a name that is used again is another one's from then on.
    for phase in &mut recording.phases {
        for round in &mut phase.rounds {
            round.stimulus = names.text(&round.stimulus);
            for write in &mut round.writes {
                if write.verb == "create" && write.code.is_none() {
                    names.born(write.name.as_deref().unwrap_or_default());
                }
                one(&names, &mut write.body);
                for text in [&mut write.name, &mut write.error].into_iter().flatten() {
                    *text = names.text(text);
                }
            }
            round.dashboard_requests.iter_mut().for_each(|ask| one(&names, ask));
        }
        for value in phase.events.iter_mut().chain(&mut phase.objects).chain(&mut phase.remaining) {
            one(&names, value);
        }
    }
    both(recording);
}

/// What was recorded.
pub(super) fn recorded(recording: &mut Recording) {
    both(recording);
}

/// What is normalised on both sides.
fn both(recording: &mut Recording) {
    each(recording, &mut common);
    for phase in &mut recording.phases {
        for write in phase.rounds.iter_mut().flat_map(|round| &mut round.writes) {
            generated(write);
        }
        phase.objects.iter_mut().for_each(unprefixed);
    }
}

/// Every body, object, event and question.
fn each(recording: &mut Recording, change: &mut impl FnMut(&mut Value)) {
    for phase in &mut recording.phases {
        for round in &mut phase.rounds {
            round.writes.iter_mut().for_each(|write| change(&mut write.body));
            round.dashboard_requests.iter_mut().for_each(&mut *change);
        }
        phase.events.iter_mut().for_each(&mut *change);
        phase.objects.iter_mut().for_each(&mut *change);
        phase.remaining.iter_mut().for_each(&mut *change);
    }
}

fn common(value: &mut Value) {
    match value {
        Value::Object(map) => {
            if let Some(Value::Object(metadata)) = map.get_mut("metadata") {
                for field in ["managedFields", "resourceVersion", "creationTimestamp"] {
                    metadata.remove(field);
                }
                if let Some(Value::Object(annotations)) = metadata.get_mut("annotations") {
                    comparable(annotations);
                }
            }
            // Built-in kinds travel in a form without "not set" for numbers.
            if map.get("targetPort") == Some(&Value::from(0)) {
                map.remove("targetPort");
            }
            map.values_mut().for_each(common);
        }
        Value::Array(list) => list.iter_mut().for_each(common),
        Value::String(text) if text.contains("kuberay_version=") => {
            *text = TAG.replace_all(text, "kuberay_version=<version>").into_owned();
        }
        _ => {}
    }
}

/// Of secret values only the length is told.
fn secret(object: &mut Value) {
    if object["kind"] != "Secret" {
        return;
    }
    for field in ["data", "stringData"] {
        for value in object.get_mut(field).and_then(Value::as_object_mut).into_iter().flatten().map(|(_, value)| value)
        {
            let length = value.as_str().unwrap_or_default().len();
            *value = format!("<random, {length} characters>").into();
        }
    }
}

fn comparable(annotations: &mut Map<String, Value>) {
    for key in HASHES {
        if let Some(Value::String(hash)) = annotations.get_mut(*key) {
            *hash = format!("<hash:{hash}>");
        }
    }
    if let Some(version) = annotations.get_mut(VERSION) {
        *version = "<version>".into();
    }
}

/// A name that the server was to make up is as good as one of this form.
fn generated(write: &mut Write) {
    if write.verb != "create" {
        return;
    }
    let (Some(name), Some(metadata)) = (&write.name, write.body["metadata"].as_object_mut()) else { return };
    metadata.insert("name".to_owned(), name.as_str().into());
    unprefixed(&mut write.body);
}

fn unprefixed(object: &mut Value) {
    let Some(metadata) = object["metadata"].as_object_mut() else { return };
    let text = |field: &str| metadata.get(field).and_then(Value::as_str).unwrap_or_default();
    let rest = text("name").strip_prefix(text("generateName")).unwrap_or_default();
    if rest.starts_with("<rand:") {
        metadata.remove("generateName");
    }
}

/// What stands for itself nowhere but in one run.
#[derive(Default)]
struct Names {
    suffixes: BTreeSet<String>,
    /// How often an object of a name was created.
    births: BTreeMap<String, usize>,
    addresses: BTreeSet<String>,
    node_ports: BTreeSet<String>,
}

impl Names {
    fn of(recording: &Recording) -> Self {
        let mut names = Self::default();
        for phase in &recording.phases {
            // Pods of Jobs may be gone before anybody lists them.
            for stimulus in phase.rounds.iter().map(|round| &round.stimulus).filter(|words| words.contains(" pod ")) {
                names.learn(&Value::Null, stimulus.rsplit(' ').next(), true);
            }
            for write in phase.rounds.iter().flat_map(|round| &round.writes) {
                names.learn(&write.body, write.name.as_deref(), write.verb == "create");
            }
            for object in &phase.objects {
                let made_up = !object["metadata"]["generateName"].is_null();
                names.learn(object, object["metadata"]["name"].as_str(), made_up);
            }
        }
        names
    }

    fn learn(&mut self, object: &Value, name: Option<&str>, made_up: bool) {
        let mut made = Vec::new();
        if made_up && object["kind"] != "Service" {
            made.extend(name);
        }
        made.extend(["jobId", "rayClusterName"].iter().filter_map(|field| object["status"][*field].as_str()));
        made.extend(object["metadata"]["labels"]["ray.io/worker-group-replica-name"].as_str());
        for name in made {
            self.suffixes.extend(SUFFIX.captures(name).map(|found| found[1].to_owned()));
        }
        if object["kind"] == "Service" {
            let addresses = object["spec"]["clusterIPs"].as_array().into_iter().flatten().filter_map(Value::as_str);
            self.addresses.extend(addresses.filter(|address| *address != "None").map(str::to_owned));
            let ports = object["spec"]["ports"].as_array().into_iter().flatten();
            self.node_ports.extend(ports.filter_map(|port| port["nodePort"].as_u64()).map(|port| port.to_string()));
        }
    }

    /// An object of this name is created: names follow from a place here, and a place may be taken again.
    fn born(&mut self, name: &str) {
        let suffix = name.rsplit('-').next().unwrap_or_default();
        if self.suffixes.contains(suffix) {
            *self.births.entry(suffix.to_owned()).or_default() += 1;
        }
    }

    fn replace(&self, value: &mut Value) {
        match value {
            Value::String(text) => *text = self.text(text),
            Value::Array(list) => list.iter_mut().for_each(|inner| self.replace(inner)),
            Value::Object(map) => {
                if map.get("nodePort").is_some_and(|port| self.node_ports.contains(&port.to_string())) {
                    map.insert("nodePort".to_owned(), "<nodePort>".into());
                }
                map.values_mut().for_each(|inner| self.replace(inner));
            }
            _ => {}
        }
    }

    fn text(&self, text: &str) -> String {
        if self.addresses.contains(text) {
            return "<clusterIP>".to_owned();
        }
        if self.node_ports.contains(text) {
            return "<nodePort>".to_owned();
        }
        let text = TIME.replace_all(text, "<time>");
        let text = VOLUME.replace_all(&text, "kube-api-access-<x>");
        let text = UID.replace_all(&text, "<uid:$0>");
        let mut out = String::with_capacity(text.len());
        let mut rest: &str = &text;
        // One after another: the dash behind a suffix may be the one before the next.
        while let Some((before, behind)) = rest.split_once('-') {
            out.push_str(before);
            out.push('-');
            let end = behind.find(|c: char| !c.is_ascii_alphanumeric()).unwrap_or(behind.len());
            if self.suffixes.contains(&behind[..end]) {
                let again = self.births.get(&behind[..end]).filter(|births| **births > 1);
                let again = again.map_or(String::new(), |births| format!(".{births}"));
                out.extend(["<rand:", &behind[..end], &again, ">"]);
                rest = &behind[end..];
            } else {
                rest = behind;
            }
        }
        out.push_str(rest);
        out
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::recording::{Phase, Round};
    use super::*;

    fn of_write(write: Write) -> Recording {
        let round = Round { stimulus: "apply".into(), writes: vec![write], dashboard_requests: Vec::new() };
        Recording { phases: vec![Phase { rounds: vec![round], ..Phase::default() }], unstable: Vec::new() }
    }

    fn create(name: &str, metadata: Value) -> Write {
        Write {
            by: "raycluster".into(),
            verb: "create".into(),
            resource: "v1/pods".into(),
            name: Some(name.into()),
            body: json!({ "kind": "Pod", "metadata": metadata }),
            ..Write::default()
        }
    }

    fn body(recording: &Recording) -> &Value {
        &recording.phases[0].rounds[0].writes[0].body
    }

    #[test]
    fn our_keys_go_and_other_labels_stay() {
        let metadata = json!({
            "name": "c-head-bcdfg", "labels": { "rayfleet.io/x": "1", "ray.io/cluster": "c" },
            "annotations": { "rayfleet.io/stamps": "{}" }, "finalizers": ["rayfleet.io/root", "ray.io/y"],
        });
        let mut recording = of_write(create("c-head-bcdfg", metadata));
        played(&mut recording);
        let expected = json!({
            "name": "c-head-<rand:bcdfg>", "labels": { "ray.io/cluster": "c" }, "finalizers": ["ray.io/y"],
        });
        assert_eq!(body(&recording)["metadata"], expected);
    }

    #[test]
    fn a_made_up_name_is_a_prefix_and_five_characters() {
        let mut ours = of_write(create("c-head-bcdfg", json!({ "name": "c-head-bcdfg" })));
        played(&mut ours);
        let mut theirs = of_write(create("c-head-<rand:1>", json!({ "generateName": "c-head-" })));
        recorded(&mut theirs);
        assert_eq!(body(&ours), &json!({ "kind": "Pod", "metadata": { "name": "c-head-<rand:bcdfg>" } }));
        assert_eq!(body(&theirs), &json!({ "kind": "Pod", "metadata": { "name": "c-head-<rand:1>" } }));
        let mut fixed = of_write(create("c-head-1", json!({ "name": "c-head-1", "generateName": "c-head-" })));
        recorded(&mut fixed);
        assert_eq!(body(&fixed)["metadata"]["generateName"], "c-head-", "a name that is not made up is none of these");
    }

    #[test]
    fn suffixes_follow_each_other_and_uids_and_times_become_placeholders() {
        let uid = "0b2d3f4a-1111-4222-8333-444455556666";
        let text = format!("golden/c-bcdfg-head-vwxz2 of {uid} since 2026-01-02T03:04:05Z");
        let metadata = json!({ "name": "c-bcdfg-head-vwxz2", "annotations": { "a": text } });
        let mut recording = of_write(create("c-bcdfg-head-vwxz2", metadata));
        let cluster = create("c-bcdfg", json!({ "name": "c-bcdfg" }));
        recording.phases[0].rounds[0].writes.push(cluster);
        played(&mut recording);
        let expected = format!("golden/c-<rand:bcdfg>-head-<rand:vwxz2> of <uid:{uid}> since <time>");
        assert_eq!(body(&recording)["metadata"]["annotations"]["a"], expected);
    }

    #[test]
    fn a_name_that_is_used_again_is_another() {
        let one = || create("c-head-bcdfg", json!({ "name": "c-head-bcdfg" }));
        let mut recording = of_write(one());
        recording.phases[0].rounds[0].writes.push(one());
        played(&mut recording);
        let names = recording.phases[0].rounds[0].writes.iter().filter_map(|write| write.name.as_deref());
        assert_eq!(names.collect::<Vec<_>>(), ["c-head-<rand:bcdfg>", "c-head-<rand:bcdfg.2>"]);
    }

    #[test]
    fn of_a_secret_only_the_length_is_compared() {
        let mut write = create("s", json!({ "name": "s" }));
        write.body["kind"] = "Secret".into();
        write.body["stringData"] = json!({ "auth_token": "abcd" });
        let mut recording = of_write(write);
        played(&mut recording);
        assert_eq!(body(&recording)["stringData"]["auth_token"], "<random, 4 characters>");
    }

    #[test]
    fn versions_are_the_same_and_hashes_are_kept_apart() {
        let annotations = |hash: &str, version: &str| json!({ "annotations": { HASHES[0]: hash, VERSION: version } });
        let mut ours = of_write(create("x", annotations("AAA", "rayfleet-0.1.0")));
        played(&mut ours);
        let mut theirs = of_write(create("x", annotations("BBB", "nightly")));
        recorded(&mut theirs);
        let (ours, theirs) = (&body(&ours)["metadata"]["annotations"], &body(&theirs)["metadata"]["annotations"]);
        assert_eq!(ours[VERSION], theirs[VERSION]);
        assert_eq!((ours[HASHES[0]].as_str(), theirs[HASHES[0]].as_str()), (Some("<hash:AAA>"), Some("<hash:BBB>")));
    }
}
