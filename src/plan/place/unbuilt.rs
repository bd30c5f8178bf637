//! Root objects of kinds that are served and kept, and that no plan carries out yet: the object says so itself, once for
//! each reason.
//! Must not know members.

use serde_json::{Map, Value, json};

use super::told::warning;
use super::wait;
use crate::api::names::REFUSED;
use crate::api::{Kind, Time};
use crate::plan::root::Root;
use crate::plan::validate::NOT_BUILT;
use crate::plan::{Action, Plan};

/// Says on the object what is wrong with it, or that its kind is not built yet.
pub(super) fn plan(root: &Root, now: Time) -> Plan {
    let Err(refusal) = root.check() else { return wait("nothing carries it out yet") };
    let message = refusal.to_string();
    let action = if root.row.id.kind == Kind::RayService {
        let reason = if refusal.event_reason == NOT_BUILT { NOT_BUILT } else { "ValidationFailed" };
        not_ready(root, reason, &message, now)
    } else {
        annotated(root, &message)
    };
    let mut plan = wait(message.clone());
    if let Some(action) = action {
        plan.actions.push(action);
        plan.events.push(warning(root.row, refusal.event_reason, "Validate", &message));
    }
    plan
}

/// Condition Ready of a RayService, as KubeRay writes it for a broken rule (specs/rayservice.md 2); `None` if it stands.
fn not_ready(root: &Root, reason: &str, message: &str, now: Time) -> Option<Action> {
    let mut status = root.status().clone();
    let conditions = status.entry("conditions").or_insert_with(|| json!([])).as_array_mut()?;
    let mut ready = json!({
        "type": "Ready",
        "status": "False",
        "reason": reason,
        "message": message,
        "lastTransitionTime": now.seconds_text(),
        "observedGeneration": root.row.generation,
    });
    match conditions.iter_mut().find(|c| c["type"] == "Ready") {
        Some(there) => {
            if there["status"] == "False" {
                ready["lastTransitionTime"] = there["lastTransitionTime"].clone();
            }
            *there = ready;
        }
        None => conditions.push(ready),
    }
    status.remove("serviceStatus");
    status.insert("observedGeneration".into(), root.row.generation.into());
    root.put_status(status)
}

/// The annotation of a RayCronJob: KubeRay tells a broken rule by an Event alone (specs/raycronjob.md 2), which is gone
/// after an hour.
fn annotated(root: &Root, message: &str) -> Option<Action> {
    if root.body()["metadata"]["annotations"][REFUSED] == message {
        return None;
    }
    root.put_metadata(|metadata| {
        let annotations = metadata.entry("annotations").or_insert_with(|| Value::Object(Map::new())).as_object_mut();
        annotations.map(|map| map.insert(REFUSED.into(), message.into()));
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::Cluster;
    use crate::plan::testing::{World, template};

    fn cluster() -> Value {
        json!({ "headGroupSpec": { "rayStartParams": {}, "template": template("1") } })
    }

    fn root(kind: &str, spec: &Value) -> Value {
        json!({
            "apiVersion": "ray.io/v1", "kind": kind,
            "metadata": { "name": "serve", "namespace": "default", "generation": 1 }, "spec": spec,
        })
    }

    #[test]
    fn a_service_says_in_its_condition_that_it_is_not_carried_out_and_then_is_quiet() {
        let mut world = World::new(&[]);
        let id = world.put(&Cluster::Hub, root("RayService", &json!({ "rayClusterConfig": cluster() })));
        let plan = world.step(&id);
        assert_eq!((plan.events.len(), &*plan.events[0].reason), (1, NOT_BUILT));
        let status = world.get(&Cluster::Hub, &id).unwrap()["status"].clone();
        let ready = &status["conditions"][0];
        assert_eq!(
            (&ready["type"], &ready["status"], &ready["reason"]),
            (&"Ready".into(), &"False".into(), &NOT_BUILT.into())
        );
        let plan = world.step(&id);
        assert_eq!((plan.actions.len(), plan.events.len()), (0, 0), "{plan:?}");
    }

    #[test]
    fn a_service_that_breaks_a_rule_says_which() {
        let mut world = World::new(&[]);
        let spec = json!({ "rayClusterConfig": cluster(), "upgradeStrategy": { "type": "Rolling" } });
        let id = world.put(&Cluster::Hub, root("RayService", &spec));
        let plan = world.step(&id);
        assert_eq!(&*plan.events[0].reason, "InvalidRayServiceSpec");
        let ready = world.get(&Cluster::Hub, &id).unwrap()["status"]["conditions"][0].clone();
        assert_eq!(ready["reason"], "ValidationFailed");
        assert!(ready["message"].as_str().unwrap().starts_with("spec.upgradeStrategy.type"), "{ready}");
    }

    #[test]
    fn a_cron_job_carries_the_reason_as_an_annotation_and_then_is_quiet() {
        let mut world = World::new(&[]);
        let spec =
            json!({ "schedule": "0 * * * *", "jobTemplate": { "entrypoint": "true", "rayClusterSpec": cluster() } });
        let id = world.put(&Cluster::Hub, root("RayCronJob", &spec));
        let plan = world.step(&id);
        assert_eq!((plan.events.len(), &*plan.events[0].reason), (1, NOT_BUILT));
        let body = world.get(&Cluster::Hub, &id).unwrap();
        assert!(body["metadata"]["annotations"][REFUSED].as_str().unwrap().contains("not built yet"));
        let plan = world.step(&id);
        assert_eq!((plan.actions.len(), plan.events.len()), (0, 0), "{plan:?}");
    }

    #[test]
    fn an_object_that_another_controller_manages_is_left_alone() {
        let mut world = World::new(&[]);
        let spec = json!({ "rayClusterConfig": cluster(), "managedBy": "kueue.x-k8s.io/multikueue" });
        let id = world.put(&Cluster::Hub, root("RayService", &spec));
        assert_eq!(world.step(&id).actions.len(), 0);
    }
}
