//! A manifest of `ray.io/v1alpha1`, which KubeRay still serves: stored as `v1` and carried out.
//! Must not look into the product: what is asserted is what the API says.

#![expect(clippy::unwrap_used, reason = "what fails here fails the test")]

use std::time::Duration;

use kit::fleet::MemberPlan;
use kit::job::ray_job;
use kit::world::World;
use rayfleet::api::Time;
use rayfleet::api::wire::{Method, Reply};
use serde_json::{Value, json};

const JOBS: &str = "/apis/ray.io/v1alpha1/namespaces/default/rayjobs";

/// As it was written when there was nothing newer, with a field that was never there.
fn old_job() -> Value {
    let mut job = ray_job("old").manifest();
    job["apiVersion"] = json!("ray.io/v1alpha1");
    job["spec"].as_object_mut().unwrap().remove("submissionMode");
    job["spec"]["fieldOfNobody"] = json!(1);
    job
}

fn ask(world: &mut World, method: Method, target: &str, body: Option<&Value>) -> (Reply, Value) {
    let reply = world.site_mut("hub").request(method, target, body, Time(0));
    let object = serde_json::from_slice(&reply.body).unwrap();
    (reply, object)
}

#[test]
fn a_manifest_of_the_older_version_is_stored_as_v1_and_carried_out() {
    let mut world = World::new(7, &[MemberPlan::new("eu", 1, 4)]);
    world.submit(&old_job());
    let stored = world.root("old").unwrap();
    assert_eq!((&stored["apiVersion"], &stored["spec"]["fieldOfNobody"]), (&json!("ray.io/v1"), &Value::Null));
    // What v1 fills in is there: the older version has no such field.
    assert_eq!(stored["spec"]["submissionMode"], "K8sJobMode");

    assert!(world.until(Duration::from_secs(1800), |w| w.recorder.ending("old").is_some()), "{:?}", world.root("old"));
    assert_eq!(world.recorder.ending("old").unwrap().0, "SUCCEEDED");
    assert_eq!(world.recorder.violations, Vec::<String>::new());

    let (_, seen) = ask(&mut world, Method::Get, &format!("{JOBS}/old"), None);
    assert_eq!((&seen["apiVersion"], &seen["status"]["jobStatus"]), (&json!("ray.io/v1alpha1"), &json!("SUCCEEDED")));
    assert_eq!((&seen["spec"]["submissionMode"], &seen["status"]["succeeded"]), (&Value::Null, &Value::Null));
    assert_eq!(world.root("old").unwrap()["status"]["succeeded"], 1);
}

#[test]
fn who_writes_the_older_version_is_told_that_it_is_deprecated_and_what_it_drops() {
    let mut world = World::new(7, &[MemberPlan::new("eu", 1, 4)]);
    let (reply, object) = ask(&mut world, Method::Post, &format!("{JOBS}?dryRun=All"), Some(&old_job()));
    assert_eq!(reply.status, 201, "{object}");
    let warnings: Vec<&str> =
        reply.headers.iter().filter(|(name, _)| name == "warning").map(|(_, text)| text.as_str()).collect();
    assert!(warnings.iter().any(|text| text.contains("ray.io/v1alpha1 RayJob is deprecated")), "{warnings:?}");
    assert!(warnings.iter().any(|text| text.contains("spec.fieldOfNobody")), "{warnings:?}");

    let mut short = old_job();
    short["spec"]["rayClusterSpec"]["headGroupSpec"].as_object_mut().unwrap().remove("rayStartParams");
    let (reply, refusal) = ask(&mut world, Method::Post, &format!("{JOBS}?dryRun=All"), Some(&short));
    assert_eq!(reply.status, 422, "{refusal}");
    assert!(refusal["message"].as_str().unwrap().contains("headGroupSpec.rayStartParams"), "{refusal}");
}
