//! Metrics in Prometheus' text form: what the process counted, and what a report shows at the time of asking.
//! Must not use labels without a bound: cluster, kind, stage, verb and outcome are bounded, names only by KubeRay's.

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle};

use serde_json::Value;

use crate::api::{Kind, names};
use crate::shell::report::Report;

/// Seconds; from a plan to a request across continents.
const SECONDS: &[f64] = &[0.000_1, 0.001, 0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0];
const UPKEEP_EVERY: Duration = Duration::from_secs(5);

/// The process's metrics.
#[derive(Clone)]
pub struct Metrics {
    handle: Arc<PrometheusHandle>,
}

impl std::fmt::Debug for Metrics {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Metrics")
    }
}

impl Metrics {
    /// Counts from now on; once per process. Must be called within a tokio runtime.
    pub fn start() -> Result<Self, String> {
        let recorder = PrometheusBuilder::new()
            .set_buckets_for_metric(Matcher::Suffix("_seconds".to_owned()), SECONDS)
            .map_err(|e| e.to_string())?
            .build_recorder();
        let handle = Arc::new(recorder.handle());
        metrics::set_global_recorder(recorder).map_err(|e| e.to_string())?;
        describe();
        let kept = handle.clone();
        tokio::spawn(async move {
            loop {
                tokio::time::sleep(UPKEEP_EVERY).await;
                kept.run_upkeep();
            }
        });
        Ok(Self { handle })
    }

    /// The text for Prometheus.
    pub fn render(&self, report: Option<&Report>) -> String {
        let mut text = self.handle.render();
        if let Some(report) = report {
            of_report(report, &mut text);
        }
        text
    }
}

fn describe() {
    metrics::describe_counter!("rayfleet_requests_total", "Writes and questions to API servers, by outcome");
    metrics::describe_histogram!("rayfleet_request_seconds", "Time from the wish to its outcome");
    metrics::describe_histogram!("rayfleet_request_wait_seconds", "Time in the request budget's lane before sending");
    metrics::describe_counter!("rayfleet_informer_lists_total", "Lists that informers began");
    metrics::describe_counter!("rayfleet_events_dropped_total", "Events for people that were over the limits");
    metrics::describe_histogram!("rayfleet_engine_seconds", "Time that the engine took for one input");
    metrics::describe_gauge!("rayfleet_keys_queued", "Keys that wait to be looked at");
    metrics::describe_gauge!("rayfleet_requests_in_flight", "Requests whose outcome is not known yet");
    metrics::describe_gauge!("rayfleet_units_held", "Units held by this replica");
    metrics::describe_gauge!("rayfleet_objects_quarantined", "Objects that do not decode");
    metrics::describe_counter!("rayfleet_units_gained_total", "Units that came to this replica, by reason");
    metrics::describe_counter!("rayfleet_units_lost_total", "Units that went from this replica, by reason");
    metrics::describe_gauge!("rayfleet_units_unowned", "Units that nobody owns, as this replica sees it");
    metrics::describe_gauge!("rayfleet_units_unowned_oldest_seconds", "How long the oldest of them has been nobody's");
    metrics::describe_counter!("rayfleet_clock_stood_still_total", "Times that the hub's clock left ours behind");
    metrics::describe_gauge!("rayfleet_seat_held", "1 while this replica holds its seat");
}

/// Objects of one kind on one cluster that do not decode and are named. More of them have one cause.
const QUARANTINED_MAX: usize = 20;

/// What is read off a report rather than counted.
fn of_report(report: &Report, text: &mut String) {
    let mut family = |name: &str, help: &str, lines: Vec<(String, f64)>| {
        // Writing to a String cannot fail.
        let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} gauge");
        for (labels, value) in lines {
            let _ = writeln!(text, "{name}{{{labels}}} {value}");
        }
        text.push('\n');
    };
    let tables = |value: &dyn Fn(&crate::shell::report::TableReport) -> Option<f64>| {
        report
            .tables
            .iter()
            .filter_map(|t| Some((format!("cluster=\"{}\",kind=\"{}\"", escaped(&t.cluster), t.kind), value(t)?)))
            .collect::<Vec<_>>()
    };
    family("rayfleet_rows", "Objects seen", tables(&|t| Some(t.rows as f64)));
    family(
        "rayfleet_table_heard_seconds_ago",
        "Seconds since the last sign of life of a table",
        tables(&|t| t.heard_seconds_ago.map(|s| s as f64)),
    );
    let aside = |t: &crate::shell::report::TableReport| {
        let label = |name: &str| {
            format!("cluster=\"{}\",kind=\"{}\",object=\"{}\"", escaped(&t.cluster), t.kind, escaped(name))
        };
        t.quarantined.keys().take(QUARANTINED_MAX).map(|name| (label(name), 1.0)).collect::<Vec<_>>()
    };
    let aside = report.tables.iter().flat_map(aside).collect();
    family("rayfleet_object_quarantined", "An object that does not decode", aside);
    let stages = report.placements.iter().map(|(stage, n)| (format!("stage=\"{stage}\""), *n as f64)).collect();
    family("rayfleet_placements", "Placements by stage", stages);
    for (name, help, lines) in of_kuberay(report) {
        family(name, help, lines);
    }
}

type Family = (&'static str, &'static str, Vec<(String, f64)>);

/// KubeRay's metrics of the same names and meanings (specs/rayjob.md 19, raycluster.md 7.5), with the label `cluster`
/// besides. They name objects: the report bounds how many.
fn of_kuberay(report: &Report) -> Vec<Family> {
    let [mut job_info, mut job_status, mut cluster_info, mut provisioned] = [const { Vec::new() }; 4];
    for object in &report.ray_objects {
        let body: Value = serde_json::from_str(&object.body).unwrap_or_default();
        let (id, status) = (&object.id, &body["status"]);
        let own = format!(
            "cluster=\"{}\",name=\"{}\",namespace=\"{}\",uid=\"{}\"",
            escaped(&object.cluster),
            escaped(&id.name),
            escaped(&id.namespace),
            escaped(object.uid.as_str())
        );
        let with = |label: &str, value: &str| (format!("{own},{label}=\"{}\"", escaped(value)), 1.0);
        if id.kind == Kind::RayJob {
            job_status.push(with("deployment_status", status["jobDeploymentStatus"].as_str().unwrap_or_default()));
            job_info.push((own, 1.0));
        } else {
            let owner = body["metadata"]["labels"][names::ORIGINATED_KIND_LABEL].as_str().unwrap_or("None");
            cluster_info.push(with("owner_kind", owner));
            let conditions = status["conditions"].as_array().into_iter().flatten();
            let up = conditions.filter(|c| c["type"] == "RayClusterProvisioned").any(|c| c["status"] == "True");
            provisioned.push(with("condition", if up { "true" } else { "false" }));
        }
    }
    vec![
        ("kuberay_job_info", "Metadata of RayJobs", job_info),
        ("kuberay_job_deployment_status", "Deployment status of RayJobs", job_status),
        ("kuberay_cluster_info", "Metadata of RayClusters", cluster_info),
        ("kuberay_cluster_condition_provisioned", "Whether RayClusters were provisioned", provisioned),
    ]
}

fn escaped(label: &str) -> String {
    label.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::Id;
    use crate::shell::report::{RayObject, TableReport};

    #[test]
    fn every_metric_is_documented_and_everything_documented_is_a_metric() {
        let names = |text: &str| -> std::collections::BTreeSet<String> {
            let word = |at: usize| text[at..].split(|c: char| !c.is_ascii_lowercase() && c != '_').next();
            let found = text.match_indices("rayfleet_").filter_map(|(at, _)| word(at));
            found.map(str::to_owned).collect()
        };
        // Up to here, without the tests.
        let source = include_str!("metrics.rs").split("mod tests").next().unwrap_or_default();
        assert_eq!(names(source), names(include_str!("../../docs/METRICS.md")));
    }

    #[test]
    fn a_report_becomes_families_with_bounded_labels() {
        let table = TableReport {
            cluster: "eu".into(),
            kind: "Pod",
            rows: 3,
            version: 7,
            listed: String::new(),
            heard_seconds_ago: Some(2),
            silent: None,
            unserved: false,
            quarantined: [("n/bad \"x\"".to_owned(), "spec.nodeName: expected a string".to_owned())].into(),
        };
        let object = RayObject {
            cluster: "eu".into(),
            id: Id::new(Kind::RayJob, "ns", "train"),
            uid: "u".into(),
            body: "{\"status\":{\"jobDeploymentStatus\":\"Running\"}}".into(),
        };
        let report = Report {
            tables: vec![table],
            placements: [("Waiting".to_owned(), 2)].into(),
            ray_objects: vec![object],
            ..Report::default()
        };
        let mut text = String::new();
        of_report(&report, &mut text);
        assert!(text.contains("# TYPE rayfleet_rows gauge\nrayfleet_rows{cluster=\"eu\",kind=\"Pod\"} 3\n"), "{text}");
        assert!(text.contains("rayfleet_table_heard_seconds_ago{cluster=\"eu\",kind=\"Pod\"} 2\n"), "{text}");
        let job = "cluster=\"eu\",name=\"train\",namespace=\"ns\",uid=\"u\",deployment_status=\"Running\"";
        assert!(text.contains(&format!("kuberay_job_deployment_status{{{job}}} 1\n")), "{text}");
        let aside = r#"rayfleet_object_quarantined{cluster="eu",kind="Pod",object="n/bad \"x\""} 1"#;
        assert!(text.contains(aside), "{text}");
        assert!(text.contains("rayfleet_placements{stage=\"Waiting\"} 2\n"), "{text}");
    }
}
