//! Texts that people and other programs write: quantities, schedules, times, names, kubeconfigs, YAML of several sorts.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::sync::Arc;

use rayfleet::api::ray::RayJob;
use rayfleet::api::{Cluster, Id, Kind, Quantity, Time, yaml};
use rayfleet::cli::validate::Checker;
use rayfleet::cli::{manifest, names};
use rayfleet::plan::member::scheduler;
use rayfleet::plan::{Fetched, build, quantity, validate};
use rayfleet::sandbox::world::fleet::Fleet;
use rayfleet::shell::client::Client;
use rayfleet::shell::kubeconfig::{member_config, portable};
use rayfleet::shell::members::kubeconfig_in;
use serde_json::{Value, json};
use tokio::runtime::Builder;

use super::corpus::{Corpus, Sample};
use super::objects::same;
use super::{Check, Verdict};

fn texts(all: &[&str]) -> Vec<Sample> {
    all.iter().map(|text| Sample::Text(text.as_bytes().to_vec())).collect()
}

/// The input as text. Bytes that are no text never reach these decoders: something stands for them.
fn of_text(check: impl Fn(&str) -> Verdict + 'static) -> Check {
    Box::new(move |input| check(&String::from_utf8_lossy(input)))
}

pub(super) fn quantities(_: &Corpus) -> Vec<Sample> {
    texts(&["4", "500m", "1.5Gi", "0.1", "1e3", "12E", "7Ei", "-3Ki", "+2k", "100n", "1u", "0", "9223372036854775807"])
}

pub(super) fn check_quantities() -> Check {
    of_text(|text| {
        let Ok(one) = text.parse::<Quantity>() else { return Ok(()) };
        let written = one.to_string();
        let again: Quantity = written.parse().map_err(|e| format!("{written:?} is refused: {e}"))?;
        if again != one || again.to_string() != written {
            return Err(format!("{written:?} reads as {again}"));
        }
        for name in ["cpu", "memory", "nvidia.com/gpu"] {
            if let Some(amount) = quantity::in_unit(name, one) {
                let _ = (quantity::people(name, amount), quantity::quantity_of(name, amount));
            }
        }
        let _ = (one.millis_up(), one.units_up(), one.times(i64::MAX), one + one, one - again);
        Ok(())
    })
}

pub(super) fn schedules(_: &Corpus) -> Vec<Sample> {
    texts(&[
        "*/15 0,12 1-5 jan-mar mon#1",
        "0 0 * * *",
        "5-50/7 23 31 12 6",
        "@hourly",
        "@every 1h30m",
        "@every 1.5h",
        "TZ=UTC 0 * * * *",
        "CRON_TZ=Europe/Berlin 0 1 * * sun",
    ])
}

pub(super) fn check_schedules() -> Check {
    of_text(|text| {
        // A schedule, and a zone of the same words.
        let job = |schedule: &str, zone: &str| {
            json!({
                "apiVersion": "ray.io/v1", "kind": "RayCronJob", "metadata": {"name": "a"},
                "spec": {"schedule": schedule, "timeZone": zone, "jobTemplate": {"entrypoint": "true",
                    "rayClusterSpec": {"headGroupSpec": {"template": {"spec": {"containers": [{"name": "r"}]}}}}}},
            })
        };
        let _ = validate::object(Kind::RayCronJob, &job(text, "UTC"));
        let _ = validate::object(Kind::RayCronJob, &job("0 * * * *", text));
        Ok(())
    })
}

pub(super) fn times(_: &Corpus) -> Vec<Sample> {
    texts(&["2026-11-29T12:00:00Z", "2026-11-29T12:00:00.123456+02:00", "1970-01-01T00:00:00Z", "9999-12-31T23:59:60Z"])
}

pub(super) fn check_times() -> Check {
    of_text(|text| {
        let Some(time) = Time::parse(text) else { return Ok(()) };
        let (seconds, micros) = (time.seconds_text(), time.micro_text());
        let whole = Time(time.0.div_euclid(1_000) * 1_000);
        let read = (Time::parse(&seconds), Time::parse(&micros));
        if read == (Some(whole), Some(time)) { Ok(()) } else { Err(format!("{seconds} and {micros} are {read:?}")) }
    })
}

/// Stands in all that a sample kubeconfig names: no refusal may show it.
const MARK: &str = "q7";

pub(super) fn kubeconfigs(_: &Corpus) -> Vec<Sample> {
    let certificate = data_encoding::BASE64.encode(b"-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n");
    let marked = |word: &str| format!("{MARK}{word}");
    let user = |user: &Value| {
        let server = format!("https://{MARK}host:6443");
        json!({
            "apiVersion": "v1", "kind": "Config", "current-context": marked("c"),
            "clusters": [{"name": marked("k"), "cluster": {"server": server, "insecure-skip-tls-verify": true}}],
            "users": [{"name": marked("u"), "user": user}],
            "contexts": [{"name": marked("c"), "context": {
                "cluster": marked("k"), "user": marked("u"), "namespace": marked("n"),
            }}],
        })
    };
    let exec = json!({
        "apiVersion": "client.authentication.k8s.io/v1", "command": marked("sh"), "args": ["-c", marked("id")],
    });
    let mut all = vec![
        user(&json!({"token": marked("token")})),
        user(&json!({"client-certificate-data": certificate, "client-key-data": certificate})),
        user(&json!({ "exec": exec })),
        user(&json!({"username": marked("a"), "password": marked("b")})),
    ];
    all[0]["clusters"][0]["cluster"] =
        json!({"server": format!("https://{MARK}k8s:443"), "certificate-authority-data": certificate});
    let yaml = all.iter().filter_map(|value| serde_saphyr::to_string(value).ok()).map(String::into_bytes);
    let yaml: Vec<Sample> = yaml.map(Sample::Text).collect();
    all.into_iter().map(Sample::Json).chain(yaml).collect()
}

pub(super) fn check_kubeconfigs() -> Check {
    let runtime = Builder::new_current_thread().build();
    of_text(move |text| {
        let runtime = runtime.as_ref().map_err(|e| format!("no runtime: {e}"))?;
        runtime.block_on(async {
            let refusal = match portable(text, None).await {
                Ok(small) => {
                    let one = member_config(text, None).await.map_err(|e| format!("portable and not usable: {e}"))?;
                    let two = member_config(&small, None)
                        .await
                        .map_err(|e| format!("its portable form is not usable: {e}"))?;
                    let same = (one.cluster_url == two.cluster_url, one.root_cert == two.root_cert);
                    if same != (true, true) {
                        return Err("its portable form means another cluster".to_owned());
                    }
                    match Client::new(Cluster::Hub, two) {
                        Ok(_) => return Ok(()),
                        Err(refusal) => refusal.to_string(),
                    }
                }
                Err(refusal) => refusal.to_string(),
            };
            // Names may be credentials that came to stand in the wrong place.
            if refusal.contains(MARK) {
                return Err(format!("a refusal shows what stands in the file: {refusal}"));
            }
            Ok(())
        })
    })
}

/// Kubeconfigs in Secrets, as the hub hands them over.
pub(super) fn secrets(corpus: &Corpus) -> Vec<Sample> {
    let encoded = kubeconfigs(corpus).into_iter().map(|sample| data_encoding::BASE64.encode(&sample.bytes()));
    let secret = |data: String| {
        json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "member-eu", "namespace": "rayfleet-system"},
               "data": {"kubeconfig": data, "other": format!("{MARK}text")}})
    };
    encoded.map(|data| Sample::Json(secret(data))).collect()
}

/// What is wrong with one is said without its data.
pub(super) fn check_secrets() -> Check {
    let id = Id::new(Kind::Secret, "rayfleet-system", "member-eu");
    Box::new(move |input| {
        for key in ["", "other"] {
            if let Err(refusal) = kubeconfig_in(input, &id, key)
                && refusal.to_string().contains(MARK)
            {
                return Err(format!("a refusal shows what stands in the Secret: {refusal}"));
            }
        }
        Ok(())
    })
}

pub(super) fn fleets(_: &Corpus) -> Vec<Sample> {
    let all = [1, 3, 5].map(Fleet::of_size);
    let yaml = all.iter().filter_map(|fleet| serde_saphyr::to_string(fleet).ok());
    yaml.map(|text| Sample::Text(text.into_bytes())).collect()
}

/// What is taken for the description of a fleet has all that a fleet is made of.
pub(super) fn check_fleets() -> Check {
    of_text(|text| {
        let Ok(fleet) = Fleet::parse(text) else { return Ok(()) };
        let names: BTreeSet<&str> = fleet.members.iter().map(|member| member.name.as_str()).collect();
        if names.len() != fleet.members.len() || names.contains("") || names.contains("hub") {
            return Err(format!("members are called {names:?}"));
        }
        Ok(())
    })
}

pub(super) fn runtime_envs(corpus: &Corpus) -> Vec<Sample> {
    let jobs = corpus.of("RayJob");
    let written = jobs.iter().filter_map(|job| job["spec"]["runtimeEnvYAML"].as_str());
    let written = written.map(|text| Sample::Text(text.as_bytes().to_vec()));
    let known = "pip: [a==1, b]\nenv_vars:\n  A: \"1\"\n  B: &x text\n  C: *x\nworking_dir: \"https://h/x.zip\"\nconfig: {t: 1.5}\n";
    written.chain(texts(&[known])).collect()
}

pub(super) fn check_runtime_envs() -> Check {
    of_text(|text| {
        let mut job = RayJob::default();
        job.spec.runtime_env_yaml = Some(text.to_owned());
        let read = build::runtime_env(&job);
        if let Ok(Some(env)) = &read
            && !env.is_object()
        {
            return Err(format!("a runtime environment that is no map: {env}"));
        }
        match (read, build::submit_body(&job, "id")) {
            (Ok(env), Ok(body)) if body.get("runtime_env") == env.as_ref() => Ok(()),
            (Err(_), Err(_)) => Ok(()),
            (read, body) => Err(format!("{read:?} is submitted as {body:?}")),
        }
    })
}

pub(super) fn settings(_: &Corpus) -> Vec<Sample> {
    texts(&[
        "actions: \"enqueue, allocate, backfill\"\ntiers:\n- plugins:\n  - name: priority\n  - name: gang\n- plugins:\n  \
             - name: overcommit\n    arguments:\n      overcommit-factor: 1.2\n  - name: capacity\n    enableHierarchy: true\n",
    ])
}

pub(super) fn check_settings() -> Check {
    of_text(|text| {
        let body = Some(Arc::new(json!({"data": {"volcano-scheduler.conf": text}})));
        let fetched = Fetched { begun: Time(0), body, error: None, failures: 0 };
        let one = scheduler::settings(Some(&fetched));
        if one == scheduler::settings(Some(&fetched)) {
            Ok(())
        } else {
            Err("settings are read in two ways".to_owned())
        }
    })
}

pub(super) fn names(_: &Corpus) -> Vec<Sample> {
    texts(&["eu", "eu-1.example", "a", "rayfleet.io/region=eu", "zone=", "10.0.0.1", "a.b-c.d9"])
}

/// What is taken for a name goes into paths, labels and names of Leases as it is.
pub(super) fn check_names() -> Check {
    of_text(|text| {
        let plain = |c: char| c.is_ascii_alphanumeric() || "-._".contains(c);
        for read in [names::object(text), names::domain(text), names::namespace(text), names::identity(text)] {
            if let Ok(name) = read
                && (name != text || name.is_empty() || name.len() > 253 || !name.chars().all(plain))
            {
                return Err(format!("{text:?} passes for a name"));
            }
        }
        if let Ok((key, value)) = names::label(text)
            && format!("{key}={value}") != text
        {
            return Err(format!("{text:?} reads as label {key} {value}"));
        }
        Ok(())
    })
}

pub(super) fn manifests(corpus: &Corpus) -> Vec<Sample> {
    let small = corpus.manifests.iter().filter(|text| text.len() < 12_000);
    small.map(|text| Sample::Text(text.clone().into_bytes())).collect()
}

pub(super) fn check_manifests() -> Check {
    of_text(|text| {
        let _ = manifest::documents(text, "x.yaml", "default");
        let Ok(values) = yaml::documents(text) else { return Ok(()) };
        // What was read as values is read as the same from JSON.
        for value in values {
            match yaml::documents(&value.to_string()).as_deref() {
                // Equal but for the last digit of a number.
                Ok([again]) if *again == value || same(&value, again) => {}
                Ok(_) => return Err("the same document as JSON is another".to_owned()),
                Err(why) if why.contains("budget") || why.contains("depth") => {}
                Err(why) => return Err(format!("the same document as JSON is refused: {why}")),
            }
        }
        Ok(())
    })
}

pub(super) fn check_validated() -> Check {
    let checker = RefCell::new(Checker::new());
    of_text(move |text| {
        let mut checker = checker.borrow_mut();
        let checker = checker.as_mut().map_err(|e| format!("no checker: {e}"))?;
        let lines = checker.judge(text);
        if lines.iter().any(String::is_empty) { Err("a finding without words".to_owned()) } else { Ok(()) }
    })
}
