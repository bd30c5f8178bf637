//! Objects of manifests before a hub's API server and the controller's rules.
//! Must not know how findings are shown.

use anyhow::{Context, Result, bail};
use serde_json::Value;

use super::{Finding, Report, Severity};
use crate::api::crds::{self, nearest, unknown_fields};
use crate::api::ray::RayClusterSpec;
use crate::api::wire::{Method, Request};
use crate::api::{Kind, Time, yaml};
use crate::plan::validate::{self, Refusal};
use crate::row;
use crate::sandbox::apiserver::{Answer, ApiServer, Options};

/// Kinds that have rules.
const RAY: &[Kind] = &[Kind::RayJob, Kind::RayCluster, Kind::RayService, Kind::RayCronJob];

/// What judges manifests offline: an API server in this process, with our definitions.
#[derive(Debug)]
pub struct Checker {
    server: ApiServer,
}

/// What one finding is about.
struct Place<'a> {
    file: &'a str,
    document: usize,
    object: String,
}

impl Place<'_> {
    fn finding(&self, severity: Severity, reason: &str, field: &str, message: impl Into<String>) -> Finding {
        Finding {
            file: self.file.to_owned(),
            document: self.document,
            object: self.object.clone(),
            severity,
            reason: reason.to_owned(),
            field: field.to_owned(),
            message: message.into(),
        }
    }

    fn refused(&self, severity: Severity, refusal: &Refusal) -> Finding {
        self.finding(severity, refusal.event_reason, &refusal.field, refusal.message.clone())
    }
}

impl Checker {
    /// A checker that has seen nothing yet.
    pub fn new() -> Result<Self> {
        let mut checker = Self { server: ApiServer::new(Options::default()) };
        let path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
        for crd in crds::hub() {
            let (status, answer) = checker.post(path, &crd)?;
            if !(200..300).contains(&status) {
                bail!("the definition of {} was refused: {}", crd["metadata"]["name"], answer["message"]);
            }
        }
        Ok(checker)
    }

    fn post(&mut self, path: &str, object: &Value) -> Result<(u16, Value)> {
        let body = object.to_string().into_bytes();
        let request = Request::new(Method::Post, path, "application/json", body.into());
        let Answer::Reply(reply) = self.server.handle(&request, Time(0)) else { bail!("{path} is no collection") };
        let answer = serde_json::from_slice(&reply.body).context("reading an answer of the API server")?;
        Ok((reply.status, answer))
    }

    /// What is wrong with a manifest, and what is remarkable: a line each, as the command prints them.
    pub fn judge(&mut self, text: &str) -> Vec<String> {
        let mut report = Report::default();
        self.file("manifest", text, &mut report);
        report.findings.iter().map(super::line).collect()
    }

    /// All objects of one file.
    pub(super) fn file(&mut self, file: &str, text: &str, report: &mut Report) {
        let whole = Place { file, document: 0, object: String::new() };
        let documents = match yaml::documents(text) {
            Ok(documents) => documents,
            Err(error) => {
                return report.findings.push(whole.finding(
                    Severity::Error,
                    "Unreadable",
                    "",
                    format!("is no YAML: {error}"),
                ));
            }
        };
        if documents.is_empty() {
            report.findings.push(whole.finding(Severity::Error, "Unreadable", "", "holds no object"));
        }
        for (index, value) in documents.into_iter().enumerate() {
            let items = match &value["items"] {
                Value::Array(items) if value["kind"].as_str().is_some_and(|kind| kind.ends_with("List")) => {
                    items.clone()
                }
                _ => vec![value],
            };
            for object in items {
                report.objects += 1;
                let place = Place { file, document: index + 1, object: title(&object) };
                if let Err(error) = self.object(&object, &place, report) {
                    report.findings.push(place.finding(Severity::Error, "Unreadable", "", format!("{error:#}")));
                }
            }
        }
    }

    fn object(&mut self, object: &Value, place: &Place<'_>, report: &mut Report) -> Result<()> {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let (api_version, kind) = (text(&object["apiVersion"]), text(&object["kind"]));
        for (field, value) in [("apiVersion", &api_version), ("kind", &kind)] {
            if value.is_empty() {
                let what = "must be set; a RayJob has apiVersion: ray.io/v1 and kind: RayJob";
                report.findings.push(place.finding(Severity::Error, "Schema", field, what));
                return Ok(());
            }
        }
        let mut lifted = object.clone();
        let dropped = crds::lifted(&mut lifted);
        let stored_as = text(&lifted["apiVersion"]);
        let Some(known) = RAY.iter().copied().find(|k| k.name() == kind && k.api_version() == stored_as) else {
            report.findings.extend(stranger(&api_version, &kind, place));
            return Ok(());
        };
        if let Some(dropped) = dropped {
            let message = format!("{} is deprecated; right is {stored_as}", crds::OLDER);
            report.findings.push(place.finding(Severity::Warning, "Deprecated", "apiVersion", message));
            for path in dropped {
                let message = format!("is no field of {} and would be dropped", crds::OLDER);
                report.findings.push(place.finding(Severity::Warning, "UnknownField", &path, message));
            }
            // That version has rules of its own.
            let version = format!("/{}/", known.version());
            let path = known.collection_path(Some("default")).replacen(&version, &format!("/{}/", crds::OLDER), 1);
            let (status, answer) = self.post(&format!("{path}?dryRun=All"), &in_default(object))?;
            if !(200..300).contains(&status) {
                report.findings.extend(refusals(&answer, place));
                return Ok(());
            }
        }
        let object = &lifted;
        for unknown in unknown_fields(known, object) {
            let meant = unknown.nearest.map(|name| format!("; perhaps {name} is meant")).unwrap_or_default();
            let message = format!("is no field that is known here{meant}");
            report.findings.push(place.finding(Severity::Warning, "UnknownField", &unknown.path, message));
        }
        let sent = in_default(object);
        let (status, answer) = self.post(&known.collection_path(Some("default")), &sent)?;
        // Two documents of one name are two objects of two namespaces, or one that is applied twice.
        let taken = answer["reason"] == "AlreadyExists";
        if !taken && !(200..300).contains(&status) {
            report.findings.extend(refusals(&answer, place));
            return Ok(());
        }
        let stored = if taken { sent } else { answer };
        if let Some((at, spec)) = cluster(known, &stored) {
            let warning = validate::ray_cluster_warning(&spec, at);
            report.findings.extend(warning.map(|warning| place.refused(Severity::Warning, &warning)));
            report.findings.extend(same_names(&spec, at, place));
        }
        if let Err(refusal) = validate::object(known, &stored) {
            report.findings.push(place.refused(Severity::Error, &refusal));
        }
        if let Err(error) = read_back(known, &stored) {
            report.findings.push(place.finding(Severity::Error, "Unreadable", "", error.to_string()));
        }
        if !taken {
            let name = text(&stored["metadata"]["name"]);
            let path = format!("{}/{name}", known.collection_path(Some("default")));
            let gone = Request::new(Method::Delete, path, "", [].into());
            let Answer::Reply(_) = self.server.handle(&gone, Time(0)) else { bail!("{name} cannot be let go") };
        }
        Ok(())
    }
}

/// The object in the namespace that the server has: which one it is in says nothing of it.
fn in_default(object: &Value) -> Value {
    let mut object = object.clone();
    if object["metadata"].is_object() {
        object["metadata"]["namespace"] = "default".into();
    }
    object
}

/// The RayCluster in an object, if there is one, and where it stands.
fn cluster(kind: Kind, object: &Value) -> Option<(&'static str, RayClusterSpec)> {
    let at = match kind {
        Kind::RayJob => "spec.rayClusterSpec",
        Kind::RayService => "spec.rayClusterConfig",
        Kind::RayCronJob => "spec.jobTemplate.rayClusterSpec",
        _ => "spec",
    };
    let spec = object.pointer(&format!("/{}", at.replace('.', "/")))?;
    Some((at, serde_json::from_value(spec.clone()).ok()?))
}

/// What the controller makes of an object that a server has stored.
fn read_back(kind: Kind, object: &Value) -> Result<(), row::DecodeError> {
    let mut stored = object.clone();
    for (field, value) in [("uid", "u"), ("resourceVersion", "1")] {
        if stored["metadata"][field].is_null() {
            stored["metadata"][field] = value.into();
        }
    }
    row::decode(kind, stored.to_string().as_bytes()).map(drop)
}

/// Worker groups that nothing tells apart: KubeRay takes them, and counts the pods of each as those of all.
fn same_names(spec: &RayClusterSpec, at: &str, place: &Place<'_>) -> Vec<Finding> {
    let groups = spec.groups();
    let first = |name: &str| groups.iter().position(|group| group.group_name == name);
    let again =
        groups.iter().enumerate().filter_map(|(i, group)| Some((i, first(&group.group_name).filter(|j| *j < i)?)));
    again
        .map(|(i, j)| {
            let field = format!("{at}.workerGroupSpecs[{i}].groupName");
            let message = format!("is the name of workerGroupSpecs[{j}] too: their pods cannot be told apart");
            place.finding(Severity::Warning, "SameName", &field, message)
        })
        .collect()
}

/// A kind that has no rules here: nothing to say, unless it looks like one that has.
fn stranger(api_version: &str, kind: &str, place: &Place<'_>) -> Option<Finding> {
    let group = api_version.split('/').next().unwrap_or_default();
    let names = RAY.iter().map(|kind| kind.name());
    if group == "ray.io" {
        let meant = nearest(kind, names.clone()).unwrap_or_else(|| names.collect::<Vec<_>>().join(", "));
        let message = format!("{api_version} {kind} does not exist; right is ray.io/v1 {meant}");
        return Some(place.finding(Severity::Error, "Schema", "kind", message));
    }
    if RAY.iter().any(|k| k.name() == kind) {
        let message = format!("{api_version} has no {kind}; right is ray.io/v1");
        return Some(place.finding(Severity::Error, "Schema", "apiVersion", message));
    }
    None
}

/// The API server's refusal, one finding for each cause.
fn refusals(answer: &Value, place: &Place<'_>) -> Vec<Finding> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let causes = answer["details"]["causes"].as_array().cloned().unwrap_or_default();
    if causes.is_empty() {
        return vec![place.finding(Severity::Error, "Schema", "", text(&answer["message"]))];
    }
    let finding =
        |cause: &Value| place.finding(Severity::Error, "Schema", &text(&cause["field"]), text(&cause["message"]));
    // The server's remark that it stopped looking is no mistake of its own.
    causes.iter().filter(|cause| cause["field"] != "<nil>").map(finding).collect()
}

/// `RayJob research/train`, as far as it is known.
fn title(object: &Value) -> String {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let (kind, namespace) = (text(&object["kind"]), text(&object["metadata"]["namespace"]));
    let name = text(&object["metadata"]["name"]);
    let name = if name.is_empty() { text(&object["metadata"]["generateName"]) } else { name };
    let full = if namespace.is_empty() { name } else { format!("{namespace}/{name}") };
    format!("{kind} {full}").trim().to_owned()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const JOB: &str = "apiVersion: ray.io/v1\nkind: RayJob\nmetadata: {name: train}\nspec:\n  entrypoint: echo\n  \
                       rayClusterSpec: {headGroupSpec: {rayStartParams: {}, template: {spec: {containers: [{name: r}]}}}}\n";

    fn findings(text: &str) -> Vec<(Severity, String, String)> {
        let mut report = Report::default();
        Checker::new().unwrap().file("job.yaml", text, &mut report);
        report.findings.into_iter().map(|f| (f.severity, f.field, f.message)).collect()
    }

    fn only(text: &str) -> (Severity, String, String) {
        let mut all = findings(text);
        assert_eq!(all.len(), 1, "{all:?}");
        all.remove(0)
    }

    #[test]
    fn a_good_job_has_no_findings_also_twice() {
        assert_eq!(findings(&format!("{JOB}---\n{JOB}")), []);
    }

    #[test]
    fn a_rule_of_the_controller_is_told_with_its_field() {
        let (severity, field, message) = only(&JOB.replace("entrypoint: echo", "suspend: true"));
        assert_eq!((severity, &*field), (Severity::Error, "spec.suspend"));
        assert!(message.contains("shutdownAfterJobFinishes"), "{message}");
    }

    #[test]
    fn a_rule_of_the_definition_is_told_with_its_field() {
        let (severity, field, _) = only(&JOB.replace("entrypoint: echo", "backoffLimit: many"));
        assert_eq!((severity, &*field), (Severity::Error, "spec.backoffLimit"));
    }

    #[test]
    fn a_misspelt_field_is_a_warning_that_names_the_right_one() {
        let (severity, field, message) = only(&JOB.replace("entrypoint: echo", "entrypiont: echo"));
        assert_eq!((severity, &*field), (Severity::Warning, "spec.entrypiont"));
        assert!(message.contains("perhaps entrypoint is meant"), "{message}");
    }

    #[test]
    fn a_misspelt_kind_is_an_error_that_names_the_right_one() {
        let (severity, field, message) = only(&JOB.replace("RayJob", "RayJub"));
        assert_eq!((severity, &*field), (Severity::Error, "kind"));
        assert!(message.contains("right is ray.io/v1 RayJob"), "{message}");
        assert_eq!(only(&JOB.replace("ray.io/v1", "ray.io/v2")).1, "kind");
    }

    #[test]
    fn a_manifest_of_the_older_version_is_judged_by_its_rules_then_by_those_of_the_stored_one() {
        let old = JOB.replace("ray.io/v1", "ray.io/v1alpha1");
        let (severity, field, message) = only(&old);
        assert_eq!(
            (severity, &*field, &*message),
            (Severity::Warning, "apiVersion", "v1alpha1 is deprecated; right is ray.io/v1")
        );
        // A field that it never had.
        let newer = findings(&old.replace("entrypoint: echo", "entrypoint: echo\n  backoffLimit: many"));
        assert_eq!(
            newer[1..],
            [(Severity::Warning, "spec.backoffLimit".into(), "is no field of v1alpha1 and would be dropped".into())]
        );
        // One that it asks for.
        let short = findings(&old.replace("rayStartParams: {}, ", ""));
        assert!(
            short.len() == 2 && short[1].0 == Severity::Error && short[1].1.ends_with("headGroupSpec.rayStartParams"),
            "{short:?}"
        );
        // A rule of the controller.
        let wrong = findings(&old.replace("entrypoint: echo", "entrypoint: echo\n  suspend: true"));
        assert!(wrong.len() == 2 && wrong[1].1 == "spec.suspend", "{wrong:?}");
    }

    #[test]
    fn what_is_not_built_is_an_error_of_its_own_reason() {
        let text =
            JOB.replace("rayClusterSpec: {", "rayClusterSpec: {rayVersion: 2.52.0, authOptions: {mode: token}, ");
        assert_eq!(only(&text).1, "spec.rayClusterSpec.authOptions");
    }

    #[test]
    fn two_groups_of_one_name_are_a_warning_that_names_both() {
        let group = |name: &str| {
            format!(
                "  - {{groupName: {name}, minReplicas: 0, maxReplicas: 1, rayStartParams: {{}}, template: {{spec: {{containers: [{{name: w, image: i}}]}}}}}}\n"
            )
        };
        let cluster = |names: &[&str]| {
            let groups: String = names.iter().map(|name| group(name)).collect();
            format!(
                "apiVersion: ray.io/v1\nkind: RayCluster\nmetadata: {{name: c}}\nspec:\n  headGroupSpec:\n    \
                 rayStartParams: {{}}\n    template: {{spec: {{containers: [{{name: h, image: i}}]}}}}\n  workerGroupSpecs:\n{groups}"
            )
        };
        assert_eq!(findings(&cluster(&["a", "b"])), []);
        let (severity, field, message) = only(&cluster(&["a", "b", "a"]));
        assert_eq!((severity, &*field), (Severity::Warning, "spec.workerGroupSpecs[2].groupName"));
        assert!(message.contains("workerGroupSpecs[0]"), "{message}");
    }

    #[test]
    fn what_the_controller_could_not_read_back_is_an_error() {
        let mut cluster = json!({
            "apiVersion": "ray.io/v1", "kind": "RayCluster", "metadata": {"name": "c"},
            "spec": {"headGroupSpec": {"rayStartParams": {}, "template": {"spec": {
                "containers": [{"name": "h", "image": "i"}],
            }}}},
        });
        assert_eq!(findings(&cluster.to_string()), []);
        cluster["spec"]["newer"] = (0..105).fold(json!(1), |inner, _| json!({ "a": inner }));
        let text = cluster.to_string();
        // The second of one name as well.
        let twice = findings(&json!({"apiVersion": "v1", "kind": "List", "items": [cluster, cluster]}).to_string());
        assert_eq!(twice.iter().filter(|f| f.2 == "nested more than 100 levels deep").count(), 2, "{twice:?}");
        let all = findings(&text);
        let error = all.iter().find(|f| f.0 == Severity::Error).expect("an error");
        assert_eq!((&*error.1, &*error.2), ("", "nested more than 100 levels deep"), "{all:?}");
        // In YAML so many levels are refused before.
        let deep = format!("spec: {}1{}", "{a: ".repeat(105), "}".repeat(105));
        assert!(matches!(&findings(&deep)[..], [(Severity::Error, ..)]));
    }

    #[test]
    fn kinds_without_rules_are_passed_over() {
        assert_eq!(findings("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: code}\n"), []);
    }

    #[test]
    fn a_text_that_is_no_manifest_is_one_error() {
        for text in ["a: [", "", "just text", "- 1\n- 2\n", "kind: RayJob", "apiVersion: ray.io/v1\nkind: RayJob\n"] {
            let all = findings(text);
            assert!(!all.is_empty() && all.iter().all(|f| f.0 == Severity::Error), "{text:?}: {all:?}");
        }
    }
}
