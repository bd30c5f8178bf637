//! Whatever comes in: objects of a newer API, enormous and deeply nested ones, bytes that are no text. Each decoder gives a
//! value or an error, nothing stops the rest of a list, and nothing panics.
//!
//! Inputs are made at random from a seed that is printed; `RAYFLEET_SEED` repeats a run, `RAYFLEET_INPUTS` makes it longer.

#![expect(clippy::unwrap_used, clippy::print_stdout, reason = "what fails here fails the test, with its seed")]

use rayfleet::api::wire::{Method, Request};
use rayfleet::api::{Kind, Quantity, Time, crds, yaml};
use rayfleet::plan::{Flags, gang, validate};
use rayfleet::row::{WatchLine, decode, decode_line, decode_list};
use rayfleet::sandbox::apiserver::{Answer, ApiServer, Options};
use serde_json::{Value, json};

/// Inputs for each decoder and starting point.
const INPUTS: u64 = 150;
/// Deeper than any parser's stack.
const DEEP: usize = 100_000;

fn variable(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

/// Random changes of sound inputs.
struct Changes(fastrand::Rng);

impl Changes {
    /// Prints its seed: a test that fails shows it.
    fn new() -> Self {
        let seed = variable("RAYFLEET_SEED").unwrap_or_else(|| fastrand::u64(..));
        println!("RAYFLEET_SEED={seed}");
        Self(fastrand::Rng::with_seed(seed))
    }

    /// How many inputs are made.
    fn count() -> u64 {
        variable("RAYFLEET_INPUTS").unwrap_or(INPUTS)
    }

    /// A text with a few bytes added, dropped or replaced, or cut short: mostly no JSON, often no UTF-8.
    fn bytes(&mut self, sound: &[u8]) -> Vec<u8> {
        let mut bytes = sound.to_vec();
        for _ in 0..self.0.usize(1..6) {
            let at = self.0.usize(0..=bytes.len());
            match self.0.u8(0..5) {
                0 => bytes.truncate(at),
                1 => bytes.insert(at, self.0.u8(..)),
                2 => bytes.insert(at, *self.0.choice(b"{}[]\",:\\0-e\n\xff\xc3\xe2").unwrap()),
                3 if at < bytes.len() => drop(bytes.remove(at)),
                _ if at < bytes.len() => bytes[at] = self.0.u8(..),
                _ => {}
            }
        }
        bytes
    }

    /// An object of which a few places hold something else than they did.
    fn value(&mut self, sound: &Value) -> Value {
        let mut value = sound.clone();
        for _ in 0..self.0.usize(1..4) {
            self.change(&mut value);
        }
        value
    }

    fn change(&mut self, value: &mut Value) {
        let go_on = self.0.u8(0..8) > 0;
        match value {
            Value::Object(map) if !map.is_empty() && go_on => {
                let index = self.0.usize(0..map.len());
                let key = map.keys().nth(index).unwrap().clone();
                match self.0.u8(0..12) {
                    0 => drop(map.remove(&key)),
                    1 => {
                        let odd = self.odd();
                        map.insert(format!("{key}-newer"), odd);
                    }
                    _ => self.change(&mut map[&key]),
                }
            }
            Value::Array(list) if !list.is_empty() && go_on => {
                let index = self.0.usize(0..list.len());
                match self.0.u8(0..8) {
                    0 => drop(list.remove(index)),
                    1 => list.push(list[index].clone()),
                    _ => self.change(&mut list[index]),
                }
            }
            _ => *value = self.odd(),
        }
    }

    /// What no field expects.
    fn odd(&mut self) -> Value {
        match self.0.u8(0..16) {
            0 => Value::Null,
            1 => json!(true),
            2 => json!(-1),
            3 => json!(0),
            4 => json!(i64::MAX),
            5 => json!(u64::MAX),
            6 => json!(1e300),
            7 => json!(""),
            8 => json!("\u{0}\u{feff}ä𝄞\u{202e}"),
            9 => json!("x".repeat(self.0.usize(0..5000))),
            10 => json!([]),
            11 => json!({}),
            12 => json!([null, [[]], { "": {} }]),
            13 => json!({ "name": 7, "value": [], "containers": {} }),
            14 => json!("99999999999999999999999Ei"),
            _ => (0..self.0.usize(1..90)).fold(json!(1), |inner, _| json!([inner])),
        }
    }
}

fn template() -> Value {
    json!({
        "metadata": { "labels": { "a": "b" }, "annotations": { "ray.io/overwrite-container-cmd": "true" } },
        "spec": {
            "restartPolicy": "Never", "nodeSelector": { "a": "b" }, "tolerations": [{ "operator": "Exists" }],
            "volumes": [{ "name": "v", "emptyDir": {} }],
            "initContainers": [{ "name": "i", "image": "i", "resources": { "requests": { "cpu": "1" } } }],
            "containers": [{
                "name": "ray", "image": "rayproject/ray:2.52.0", "command": ["a"], "args": ["b"],
                "env": [{ "name": "E", "value": "1" }, { "name": "F", "valueFrom": { "secretKeyRef": { "name": "s", "key": "k" } } }],
                "ports": [{ "name": "gcs", "containerPort": 6379 }],
                "volumeMounts": [{ "name": "v", "mountPath": "/v" }],
                "resources": { "limits": { "cpu": "2", "memory": "4Gi", "nvidia.com/gpu": 1 }, "requests": { "cpu": "500m" } },
            }],
        },
    })
}

fn cluster_spec() -> Value {
    json!({
        "rayVersion": "2.56.0", "suspend": false, "managedBy": "rayfleet.io/hub",
        "upgradeStrategy": { "type": "None" }, "authOptions": { "mode": "disabled" },
        "autoscalerOptions": { "version": "v2", "idleTimeoutSeconds": 9, "env": [{ "name": "A", "value": "b" }] },
        "gcsFaultToleranceOptions": { "redisAddress": "r:1", "redisPassword": { "value": "x" }, "storage": { "size": "1Gi" } },
        "networkPolicy": { "mode": "DenyAll", "workerGroups": [{ "groupName": "w", "ingressRules": [{}] }] },
        "historyServerOptions": { "collectorOptions": { "image": "i", "env": [{ "name": "STORAGE_BACKEND", "value": "S3" }] } },
        "tlsOptions": { "enabled": true },
        "headGroupSpec": {
            "serviceType": "ClusterIP", "rayStartParams": { "num-cpus": "1" }, "labels": { "a": "b" }, "resources": { "CPU": "1" },
            "headService": { "metadata": { "name": "h" }, "spec": { "ports": [{ "name": "x", "port": 1 }] } },
            "ingressOptions": { "path": "/" }, "template": template(),
        },
        "workerGroupSpecs": [{
            "groupName": "w", "replicas": 1, "minReplicas": 0, "maxReplicas": 3, "numOfHosts": 1, "rayStartParams": {},
            "scaleStrategy": { "workersToDelete": ["p"] }, "template": template(),
        }],
    })
}

/// A plain cluster, so that more than the first rule is reached.
fn plain_spec() -> Value {
    let mut spec = cluster_spec();
    for field in [
        "upgradeStrategy",
        "gcsFaultToleranceOptions",
        "networkPolicy",
        "historyServerOptions",
        "tlsOptions",
        "autoscalerOptions",
    ] {
        spec.as_object_mut().unwrap().remove(field);
    }
    spec["headGroupSpec"].as_object_mut().unwrap().remove("resources");
    spec
}

fn manifests() -> Vec<(Kind, Value)> {
    let object = |kind: Kind, spec: Value| {
        let metadata = json!({
            "name": "a", "namespace": "default", "uid": "u", "resourceVersion": "7", "generation": 2,
            "labels": { "volcano.sh/queue-name": "ml" }, "annotations": { "ray.io/ft-enabled": "false" },
        });
        (kind, json!({ "apiVersion": "ray.io/v1", "kind": kind.name(), "metadata": metadata, "spec": spec }))
    };
    let job = |spec: Value| {
        json!({
            "entrypoint": "python x.py", "submissionMode": "K8sJobMode", "shutdownAfterJobFinishes": true,
            "runtimeEnvYAML": "pip: [a]\nenv_vars: {A: b}\n", "entrypointNumCpus": 0.5, "metadata": { "a": "b" },
            "submitterPodTemplate": template(), "rayClusterSpec": spec, "backoffLimit": 1, "ttlSecondsAfterFinished": 5,
        })
    };
    vec![
        object(Kind::RayJob, job(plain_spec())),
        object(Kind::RayJob, job(cluster_spec())),
        object(Kind::RayCluster, plain_spec()),
        object(Kind::RayCluster, cluster_spec()),
        object(
            Kind::RayService,
            json!({ "serveConfigV2": "a", "rayClusterConfig": plain_spec(), "upgradeStrategy": {
            "type": "NewCluster", "clusterUpgradeOptions": { "stepSizePercent": 1, "intervalSeconds": 1, "gatewayClassName": "g" },
        } }),
        ),
        object(
            Kind::RayCronJob,
            json!({ "schedule": "*/5 1-3 * jan mon", "timeZone": "UTC", "jobTemplate": job(plain_spec()) }),
        ),
    ]
}

/// An object of every kind with something in it that its decoder reads.
fn objects() -> Vec<(Kind, Value)> {
    let mut all = manifests();
    for kind in Kind::ALL {
        let mut object = json!({
            "metadata": {
                "name": "a", "uid": "u", "resourceVersion": "7", "labels": { "a": "b" }, "finalizers": ["f"],
                "annotations": { "rayfleet.io/stamps": "{\"m-eu-0\":4}" }, "creationTimestamp": "2026-11-29T12:00:00Z",
                "ownerReferences": [{ "apiVersion": "v1", "kind": "Pod", "name": "o", "uid": "o", "controller": true }],
            },
            "spec": {
                "nodeName": "n", "queue": "q", "minMember": 2, "capability": { "cpu": "1" }, "weight": 1, "stage": "Waiting",
                "tolerations": [{ "key": "k", "operator": "Exists" }], "ports": [{ "port": 1 }], "clusterIP": "1.2.3.4",
                "containers": [{ "name": "c", "resources": { "requests": { "cpu": "1" } } }],
                "root": { "kind": "RayJob", "name": "a", "uid": "u", "rootId": "u" }, "generation": 1,
            },
            "status": {
                "phase": "Running", "conditions": [{ "type": "Ready", "status": "True" }], "allocatable": { "cpu": "4" },
                "containerStatuses": [{ "name": "c", "state": { "terminated": { "exitCode": 1 } } }],
            },
            "value": 5,
        });
        if kind.namespaced() {
            object["metadata"]["namespace"] = json!("default");
        }
        all.push((*kind, object));
    }
    all
}

fn named(kind: Kind, name: &str) -> Value {
    let mut object = json!({ "metadata": { "name": name, "uid": name, "resourceVersion": "9" } });
    if kind.namespaced() {
        object["metadata"]["namespace"] = json!("default");
    }
    object
}

#[test]
fn an_object_that_does_not_decode_never_stops_the_others_of_its_kind() {
    let mut changes = Changes::new();
    for (kind, sound) in objects() {
        for _ in 0..Changes::count() {
            let items = [named(kind, "first"), changes.value(&sound), named(kind, "last")];
            let list = json!({ "metadata": { "resourceVersion": "70" }, "items": items }).to_string();
            let page = decode_list(kind, list.as_bytes()).unwrap_or_else(|e| panic!("{kind}: {e}\n{list}"));
            assert_eq!(page.rows.len() + page.quarantined.len(), 3, "{list}");
            let names: Vec<&str> = page.rows.iter().map(|row| &*row.id.name).collect();
            assert!(names.contains(&"first") && names.contains(&"last"), "{names:?}\n{list}");
            let line = json!({ "type": "MODIFIED", "object": items[1] }).to_string();
            let line = decode_line(kind, line.as_bytes()).unwrap_or_else(|e| panic!("{kind}: {e}\n{line}"));
            assert!(matches!(line, WatchLine::Modified(_) | WatchLine::Quarantined { .. }), "{line:?}");
        }
    }
}

#[test]
fn rows_come_of_any_bytes_or_an_error_does() {
    let mut changes = Changes::new();
    for (kind, sound) in objects() {
        let list = json!({ "metadata": { "resourceVersion": "70" }, "items": [sound] }).to_string();
        let line = json!({ "type": "ADDED", "object": sound }).to_string();
        for _ in 0..Changes::count() {
            // Which it is does not matter: that it comes back does.
            let _row = decode(kind, &changes.bytes(sound.to_string().as_bytes()));
            let _page = decode_list(kind, &changes.bytes(list.as_bytes()));
            let _line = decode_line(kind, &changes.bytes(line.as_bytes()));
        }
    }
}

#[test]
fn what_our_types_take_is_judged_and_what_is_valid_can_be_built() {
    let mut changes = Changes::new();
    let (mut valid, mut refused) = (0, 0);
    for (kind, sound) in manifests() {
        for _ in 0..Changes::count() * 4 {
            let object = changes.value(&sound);
            match validate::object(kind, &object) {
                Ok(()) => {
                    valid += 1;
                    // Builds every pod; a reason why it cannot be is as good.
                    let _shape = gang::shape(&object, &Flags::default());
                }
                Err(refusal) => {
                    refused += 1;
                    assert!(!refusal.field.is_empty() && !refusal.message.is_empty(), "{refusal:?}\n{object}");
                }
            }
            let _unknown = crds::unknown_fields(kind, &object);
        }
    }
    assert!(valid > 0 && refused > 0, "{valid} valid, {refused} refused");
}

#[test]
fn the_api_server_answers_any_bytes_and_serves_on() {
    let mut changes = Changes::new();
    let mut server = ApiServer::new(Options::default());
    let mut send = |method: Method, path: &str, kind: &str, body: Vec<u8>| match server
        .handle(&Request::new(method, path, kind, body.into()), Time(0))
    {
        Answer::Reply(reply) => reply.status,
        other => panic!("{path}: {other:?}"),
    };
    for crd in crds::hub() {
        let path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
        assert_eq!(send(Method::Post, path, "application/json", crd.to_string().into_bytes()), 201);
    }
    for (kind, sound) in manifests() {
        let path = kind.collection_path(Some("default"));
        for round in 0..Changes::count() / 2 {
            let body = changes.bytes(sound.to_string().as_bytes());
            send(Method::Post, &path, "application/json", body);
            let mut object = changes.value(&sound);
            if object["metadata"].is_object() {
                object["metadata"]["name"] = json!(format!("a{round}"));
                object["metadata"]["resourceVersion"] = Value::Null;
                object["metadata"]["uid"] = Value::Null;
            }
            send(Method::Post, &path, "application/json", object.to_string().into_bytes());
            let patch = changes.value(&json!({ "spec": { "suspend": true }, "metadata": { "labels": { "a": "b" } } }));
            let kind = *changes.0.choice(&["application/merge-patch+json", "application/json-patch+json"]).unwrap();
            send(Method::Patch, &format!("{path}/a{round}"), kind, patch.to_string().into_bytes());
        }
        assert_eq!(send(Method::Get, &path, "", Vec::new()), 200);
    }
}

#[test]
fn texts_of_people_are_read_or_refused() {
    let mut changes = Changes::new();
    let manifest = "# a job\napiVersion: ray.io/v1\nkind: RayJob\nmetadata: &m {name: a}\nspec:\n  mode: 0755\n  text: |\n    x\n---\n- *m\n";
    for _ in 0..Changes::count() * 4 {
        let text = String::from_utf8_lossy(&changes.bytes(manifest.as_bytes())).into_owned();
        let _documents = yaml::documents(&text);
        for sound in ["1500m", "1.5Gi", "1e3", "-.5E"] {
            let text = String::from_utf8_lossy(&changes.bytes(sound.as_bytes())).into_owned();
            let _quantity = text.parse::<Quantity>();
        }
        let text = String::from_utf8_lossy(&changes.bytes(b"2026-11-29T12:00:00.25Z")).into_owned();
        let _time = Time::parse(&text);
    }
}

#[test]
fn deeply_nested_objects_are_set_aside_and_named() {
    let deep = format!("{}1{}", "[".repeat(DEEP), "]".repeat(DEEP));
    let shallow = format!("{}1{}", "[".repeat(120), "]".repeat(120));
    for kind in Kind::ALL {
        for nest in [&deep, &shallow] {
            let mut bad = named(*kind, "deep").to_string();
            bad.truncate(bad.len() - 1);
            let list = format!(
                "{{\"metadata\":{{\"resourceVersion\":\"70\"}},\"items\":[{},{bad},\"spec\":{{\"x\":{nest}}}}},{}]}}",
                named(*kind, "first"),
                named(*kind, "last")
            );
            let page = decode_list(*kind, list.as_bytes()).unwrap();
            let names: Vec<&str> = page.rows.iter().map(|row| &*row.id.name).collect();
            assert!(names.contains(&"first") && names.contains(&"last"), "{kind}: {names:?}");
            // A row whose body is kept can be read again; one that could not is set aside under its name.
            for row in page.rows.iter().filter(|row| row.body.is_some()) {
                serde_json::from_str::<Value>(row.body.as_ref().unwrap()).unwrap_or_else(|e| panic!("{kind}: {e}"));
            }
            for (id, object) in &page.quarantined {
                assert!(&*id.name == "deep" && object.error.contains("nested"), "{kind}: {}", object.error);
            }
        }
    }
    for text in [deep.clone(), "- ".repeat(DEEP), "{a: ".repeat(DEEP), format!("runtimeEnvYAML: {deep}")] {
        assert!(yaml::documents(&text).is_err());
    }
    let bomb: String = std::iter::once("a0: &a0 [x]\n".to_owned())
        .chain((1..40).map(|i| format!("a{i}: &a{i} [*a{0},*a{0},*a{0},*a{0},*a{0},*a{0},*a{0},*a{0}]\n", i - 1)))
        .collect();
    assert!(yaml::documents(&bomb).is_err(), "an expansion without end is refused");
    let mut server = ApiServer::new(Options::default());
    let body =
        format!("{{\"apiVersion\":\"v1\",\"kind\":\"ConfigMap\",\"metadata\":{{\"name\":\"a\"}},\"data\":{deep}}}");
    let path = "/api/v1/namespaces/default/configmaps";
    let request = Request::new(Method::Post, path, "application/json", body.into_bytes().into());
    let Answer::Reply(reply) = server.handle(&request, Time(0)) else { panic!("no plain answer") };
    assert!((400..500).contains(&reply.status), "{}", reply.status);
}

#[test]
fn enormous_objects_are_judged_like_others() {
    let (kind, mut job) = manifests().remove(0);
    let container = job["spec"]["rayClusterSpec"]["headGroupSpec"]["template"]["spec"]["containers"][0].clone();
    let many: Vec<Value> = (0..20_000)
        .map(|i| {
            let mut one = container.clone();
            one["name"] = json!(format!("c{i}"));
            one
        })
        .collect();
    job["spec"]["rayClusterSpec"]["headGroupSpec"]["template"]["spec"]["containers"] = json!(many);
    job["spec"]["entrypoint"] = json!("x".repeat(4 << 20));
    assert_eq!(validate::object(kind, &job), Ok(()));
    let row = decode(kind, job.to_string().as_bytes()).unwrap();
    assert!(row.body.is_some_and(|body| body.len() > 4 << 20));
}

#[test]
fn fields_of_a_newer_api_are_kept() {
    for (kind, mut object) in manifests() {
        object["spec"]["aFieldOfTomorrow"] = json!({ "deep": [1, { "er": null }] });
        object["aPartOfTomorrow"] = json!("x");
        let row = decode(kind, object.to_string().as_bytes()).unwrap();
        let body: Value = serde_json::from_str(row.body.as_ref().unwrap()).unwrap();
        assert_eq!(body, object, "{kind}");
    }
}
