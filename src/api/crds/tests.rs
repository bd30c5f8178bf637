//! What the definitions promise: the files in `crds/`, and KubeRay's own definitions.

use std::collections::BTreeSet;

use serde_json::Value;

use super::*;

#[test]
fn files_are_those_that_the_types_give() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("crds");
    for (file, yaml) in render() {
        let path = folder.join(&file);
        if std::env::var_os("UPDATE").is_some() {
            std::fs::create_dir_all(&folder).unwrap();
            std::fs::write(&path, &yaml).unwrap();
        }
        let there = std::fs::read_to_string(&path).unwrap_or_default();
        assert!(
            there == yaml,
            "crds/{file} is not what the types give: run `UPDATE=1 cargo test -p rayfleet --lib api::crds`"
        );
    }
}

#[test]
fn yaml_reads_back_as_the_definition() {
    for crd in hub() {
        let back: Value = serde_saphyr::from_str(&structural::yaml(&crd)).unwrap();
        assert_eq!(back, crd);
    }
}

/// What makes ours and the upstream's schema of one place differ, with where.
struct Comparison {
    file: &'static str,
    compared: usize,
    newer: BTreeSet<String>,
    differences: Vec<String>,
}

/// Keys of a schema that are about what is inside.
const INSIDE: &[&str] = &["properties", "items", "additionalProperties"];
/// Keys that ours may have beyond the upstream's: prose, and that unknown fields are kept.
const OURS_MAY: &[&str] = &["description", "x-kubernetes-preserve-unknown-fields"];

impl Comparison {
    /// Everything that the upstream says of a place must stand in ours, and ours may say nothing beyond it. The whole tree is
    /// compared so, pod templates and Services included; no subtree is left out.
    fn compare(&mut self, ours: &Value, theirs: &Value, at: &str) {
        self.compared += 1;
        for (key, wanted) in theirs.as_object().unwrap().iter().filter(|(key, _)| !INSIDE.contains(&key.as_str())) {
            let same = match key.as_str() {
                "required" => texts(&ours[key]) == texts(wanted),
                "x-kubernetes-validations" => rules(&ours[key]) == rules(wanted),
                _ => ours[key] == *wanted,
            };
            if !same {
                self.differences.push(format!("{} {at}: {key} is {}, not {wanted}", self.file, ours[key]));
            }
        }
        for (key, value) in ours.as_object().unwrap() {
            let known = INSIDE.contains(&key.as_str()) || OURS_MAY.contains(&key.as_str());
            if !known && theirs.get(key).is_none() {
                self.differences.push(format!("{} {at}: {key} is {value}, and the upstream has none", self.file));
            }
        }
        for (name, sub) in theirs["properties"].as_object().into_iter().flatten() {
            let at = format!("{at}.{name}");
            match ours["properties"].get(name) {
                Some(mine) => self.compare(mine, sub, &at),
                None => self.differences.push(format!("{} {at} is missing", self.file)),
            }
        }
        for name in ours["properties"].as_object().into_iter().flatten().map(|(name, _)| name) {
            if theirs["properties"].get(name).is_none() {
                self.newer(&ours["properties"][name], &format!("{at}.{name}"));
            }
        }
        for inner in ["items", "additionalProperties"] {
            let at = format!("{at}.{}", if inner == "items" { "[]" } else { "*" });
            match (ours[inner].is_object(), theirs[inner].is_object()) {
                (true, true) => self.compare(&ours[inner], &theirs[inner], &at),
                (false, false) => {}
                (mine, _) => self.differences.push(format!(
                    "{} {at} stands in {} only",
                    self.file,
                    if mine { "ours" } else { "theirs" }
                )),
            }
        }
    }

    /// A field that the upstream does not know: a newer Kubernetes has it. It must ask for nothing by its absence.
    fn newer(&mut self, ours: &Value, at: &str) {
        self.newer.insert(at.rsplit('.').next().unwrap().to_owned());
        if ours.get("default").is_some() {
            self.differences
                .push(format!("{} {at}: has a default, and the upstream does not know the field", self.file));
        }
    }
}

fn texts(list: &Value) -> BTreeSet<&str> {
    list.as_array().into_iter().flatten().filter_map(Value::as_str).collect()
}

/// CEL rules without their messages, which are ours. `managedBy` takes one value more here: the fleet itself.
fn rules(list: &Value) -> Vec<String> {
    let rule = |r: &Value| r["rule"].as_str().unwrap().replace(", 'rayfleet.io/hub'", "");
    list.as_array().into_iter().flatten().map(rule).collect()
}

/// What a version says of itself.
const FACTS: &[&str] =
    &["additionalPrinterColumns", "subresources", "served", "storage", "selectableFields", "deprecated"];

/// What a warning tells: names and numbers; the sentence is ours.
fn told(version: &Value) -> BTreeSet<&str> {
    let words = version["deprecationWarning"].as_str().unwrap_or_default().split([' ', ';', ':', ',']);
    let words = words.map(|word| word.trim_end_matches('.'));
    words.filter(|word| word.contains(|c: char| c.is_ascii_digit()) || word.starts_with("Ray")).collect()
}

#[test]
fn no_field_default_bound_rule_or_column_of_the_upstream_definitions_differs() {
    let shared = std::env::var("RAYFLEET_SHARED").unwrap_or(concat!(env!("CARGO_MANIFEST_DIR"), "/../shared").into());
    let mut differences = Vec::new();
    let mut newer = BTreeSet::new();
    for (file, kind) in [
        ("ray.io_rayjobs.yaml", "RayJob"),
        ("ray.io_rayclusters.yaml", "RayCluster"),
        ("ray.io_rayservices.yaml", "RayService"),
        ("ray.io_raycronjobs.yaml", "RayCronJob"),
    ] {
        let path = std::path::Path::new(&shared).join("upstream-crds").join(file);
        let text = std::fs::read_to_string(&path).unwrap_or_else(|e| {
            panic!("upstream definitions are read from {} (set RAYFLEET_SHARED): {e}", path.display())
        });
        let theirs: Value = serde_saphyr::from_str(&text).unwrap();
        let ours = hub().into_iter().find(|crd| crd["spec"]["names"]["kind"] == kind).unwrap();
        for field in ["group", "names", "scope"] {
            assert_eq!(ours["spec"][field], theirs["spec"][field], "{file}");
        }
        let names = |crd: &Value| -> Vec<Value> {
            crd["spec"]["versions"].as_array().unwrap().iter().map(|version| version["name"].clone()).collect()
        };
        assert_eq!(names(&ours), names(&theirs), "{file}");
        let pairs =
            ours["spec"]["versions"].as_array().unwrap().iter().zip(theirs["spec"]["versions"].as_array().unwrap());
        for (ours, theirs) in pairs {
            for field in FACTS {
                assert_eq!(ours[field], theirs[field], "{file}: {field} of {}", theirs["name"]);
            }
            assert_eq!(
                told(ours),
                told(theirs),
                "{file}: {} {}",
                ours["deprecationWarning"],
                theirs["deprecationWarning"]
            );
            let mut comparison = Comparison { file, compared: 0, newer: BTreeSet::new(), differences: Vec::new() };
            let schema = "openAPIV3Schema";
            comparison.compare(&ours["schema"][schema], &theirs["schema"][schema], "");
            assert!(comparison.compared > 2500, "{file}: {}", comparison.compared);
            differences.append(&mut comparison.differences);
            newer.append(&mut comparison.newer);
        }
    }
    assert!(differences.is_empty(), "{} differences\n{}", differences.len(), differences.join("\n"));
    // Fields of a newer Kubernetes, and none of Ray's.
    assert!(newer.len() < 40, "{newer:?}");
}

#[test]
fn schemas_are_structural() {
    fn check(schema: &Value, at: &str) {
        let typed = schema["type"].is_string() || schema["x-kubernetes-int-or-string"] == true;
        assert!(typed, "{at}: {schema}");
        for forbidden in ["$ref", "$defs", "$schema", "title", "oneOf", "allOf"] {
            assert!(schema.get(forbidden).is_none(), "{at} has {forbidden}");
        }
        for (name, sub) in schema["properties"].as_object().into_iter().flatten() {
            check(sub, &format!("{at}.{name}"));
        }
        for inner in ["items", "additionalProperties"] {
            if schema[inner].is_object() {
                check(&schema[inner], &format!("{at}.{inner}"));
            }
        }
    }
    for crd in hub().into_iter().chain(volcano()) {
        let name = crd["metadata"]["name"].to_string();
        for version in crd["spec"]["versions"].as_array().unwrap() {
            check(&version["schema"]["openAPIV3Schema"], &format!("{name} {}", version["name"]));
        }
    }
}

/// The older version of a kind's definition.
fn older_version(kind: Kind) -> Option<Value> {
    let crd = hub().into_iter().find(|crd| crd["spec"]["names"]["kind"] == kind.name())?;
    crd["spec"]["versions"].as_array()?.iter().find(|version| version["name"] == OLDER).cloned()
}

#[test]
fn the_older_version_drops_what_it_does_not_name_as_under_kuberays_definitions() {
    for kind in [Kind::RayJob, Kind::RayCluster, Kind::RayService] {
        let version = older_version(kind).unwrap();
        assert!(!version.to_string().contains("x-kubernetes-preserve-unknown-fields"), "{kind}");
    }
    assert_eq!(older_version(Kind::RayCronJob), None);
}

#[test]
fn definitions_fit_into_one_request_of_etcd() {
    for crd in hub() {
        let bytes = crd.to_string().len();
        assert!(bytes < 1_500_000, "{}: {bytes} bytes", crd["metadata"]["name"]);
    }
}
