//! Stories of what stands beside the pods of a RayCluster and is watched by nobody.

use super::*;

/// A RayCluster with this changed in its spec, and with these annotations.
fn with(change: impl FnOnce(&mut Value), annotations: Value) -> (World, Id) {
    let mut world = World::new();
    let mut cluster = ray_cluster();
    change(&mut cluster["spec"]);
    cluster["metadata"]["annotations"] = annotations;
    let id = world.apply(cluster);
    world.settle();
    (world, id)
}

fn autoscaled(change: impl FnOnce(&mut Value)) -> (World, Id) {
    let on = |spec: &mut Value| {
        spec["enableInTreeAutoscaling"] = json!(true);
        change(spec);
    };
    with(on, Value::Null)
}

fn made(world: &World) -> Vec<&str> {
    world.log.iter().filter_map(|line| line.strip_prefix("create ")).map(|id| id.split(' ').next().unwrap()).collect()
}

#[test]
fn the_autoscaler_has_its_account_and_rights_before_its_head_is_made() {
    let (world, id) = autoscaled(|_| ());
    assert_eq!(made(&world)[..4], ["ServiceAccount", "Role", "RoleBinding", "Service"]);
    let head = world.of(Kind::Pod).into_iter().find(|(_, p)| p["metadata"]["labels"]["ray.io/node-type"] == "head");
    let head = head.unwrap().1;
    assert_eq!(head["spec"]["serviceAccountName"], "c");
    assert_eq!(head["spec"]["containers"][1]["name"], "autoscaler");
    assert_eq!(workers(&world).len(), 2);
    let subject = &world.get(Kind::RoleBinding, "c").unwrap()["subjects"][0];
    assert_eq!(subject, &json!({"kind": "ServiceAccount", "name": "c", "namespace": "default"}));
    assert!(world.get(Kind::ServiceAccount, "c").unwrap()["metadata"]["ownerReferences"][0]["uid"].is_string());
    drop(id);
}

#[test]
fn what_went_of_the_autoscaler_is_made_again_without_news() {
    let (mut world, _) = autoscaled(|_| ());
    world.run_pods();
    world.objects.remove(&Id::new(Kind::Role, "default", "c"));
    world.after(299);
    assert!(world.get(Kind::Role, "c").is_none());
    world.after(1);
    assert!(world.get(Kind::Role, "c").is_some());
}

#[test]
fn an_account_that_the_template_names_must_be_there() {
    let own = |spec: &mut Value| spec["headGroupSpec"]["template"]["spec"]["serviceAccountName"] = json!("mine");
    let (mut world, id) = autoscaled(own);
    assert_eq!(made(&world), [""; 0], "nothing is made without it");
    assert!(world.events[0].starts_with("AutoscalerServiceAccountNotFound"), "{:?}", world.events);
    assert!(world.why(&id).contains("mine"), "{}", world.why(&id));
    world.apply(json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "mine"}}));
    world.after(300);
    assert_eq!(made(&world)[..3], ["Role", "RoleBinding", "Service"]);
    assert_eq!(world.of(Kind::Pod).len(), 3);
    assert_eq!(world.get(Kind::RoleBinding, "c").unwrap()["subjects"][0]["name"], "mine");
}

#[test]
fn while_the_autoscaler_is_on_only_the_pods_that_it_names_go() {
    let (mut world, id) = autoscaled(|_| ());
    world.run_pods();
    replicas(&mut world, &id, 0);
    assert_eq!(workers(&world).len(), 2, "it names nobody yet");
    let victim = workers(&world)[0].0.clone();
    world.edit(&id, |c| {
        c["spec"]["workerGroupSpecs"][0]["scaleStrategy"] = json!({ "workersToDelete": [&*victim.name] });
    });
    replicas(&mut world, &id, 1);
    let left: Vec<Id> = workers(&world).into_iter().map(|(id, _)| id).collect();
    assert_eq!(left.len(), 1);
    assert_ne!(left[0], victim);
    replicas(&mut world, &id, 3);
    assert_eq!(workers(&world).len(), 3);
}

#[test]
fn an_ingress_is_kept_as_it_should_be_and_a_strangers_is_left_alone() {
    let ingress = |spec: &mut Value| spec["headGroupSpec"]["enableIngress"] = json!(true);
    let annotations = json!({"kubernetes.io/ingress.class": "nginx", "note": "mine"});
    let (mut world, _) = with(ingress, annotations);
    let id = Id::new(Kind::Ingress, "default", "c-head-ingress");
    let there = world.objects[&id].clone();
    assert_eq!(there["spec"]["ingressClassName"], "nginx");
    assert_eq!(there["metadata"]["annotations"], json!({"note": "mine"}));
    world.edit(&id, |ingress| {
        ingress["spec"]["rules"][0]["http"]["paths"][0]["path"] = json!("/elsewhere");
        ingress["metadata"]["labels"]["foreign"] = json!("label");
    });
    world.after(300);
    assert_eq!(world.objects[&id]["spec"], there["spec"]);
    assert_eq!(world.objects[&id]["metadata"]["labels"], there["metadata"]["labels"]);
    assert_eq!(world.events.iter().filter(|e| e.starts_with("UpdatedIngress")).count(), 1);
    // What marks it as ours is not taken back: found by the simulator as a write that never ended.
    world.edit(&id, |ingress| {
        ingress["metadata"]["labels"]["rayfleet.io/root-id"] = json!("r");
        ingress["metadata"]["annotations"]["rayfleet.io/stamps"] = json!("{}");
    });
    world.after(300);
    assert_eq!(world.events.iter().filter(|e| e.starts_with("UpdatedIngress")).count(), 1);
    // One that is not its own.
    world.edit(&id, |ingress| {
        ingress["metadata"]["ownerReferences"][0]["controller"] = json!(false);
        ingress["spec"]["rules"] = json!([]);
    });
    world.after(300);
    assert_eq!(world.objects[&id]["spec"]["rules"], json!([]));
    assert!(world.events.iter().any(|e| e.starts_with("FailedToCreateIngress")));
}

#[test]
fn a_token_is_made_once_and_never_without_a_key() {
    let auth = |spec: &mut Value| {
        spec["rayVersion"] = json!("2.52.0");
        spec["authOptions"] = json!({ "mode": "token" });
    };
    let (mut world, _) = with(auth, Value::Null);
    let token = world.get(Kind::Secret, "c").unwrap()["stringData"]["auth_token"].clone();
    assert_eq!(token.as_str().unwrap().len(), 44);
    world.flags.token_key = Some(crate::plan::TokenKey::new([8; 32]));
    world.after(600);
    assert_eq!(world.get(Kind::Secret, "c").unwrap()["stringData"]["auth_token"], token, "another process keeps it");
    let pods = world.of(Kind::Pod);
    let from = json!({"secretKeyRef": {"name": "c", "key": "auth_token"}});
    for (id, pod) in &pods {
        let env = pod["spec"]["containers"][0]["env"].as_array().unwrap();
        assert!(env.iter().any(|e| e["name"] == "RAY_AUTH_TOKEN" && e["valueFrom"] == from), "{id}");
    }
    assert_eq!(pods.len(), 3);

    let mut world = World::new();
    world.flags.token_key = None;
    let mut cluster = ray_cluster();
    auth(&mut cluster["spec"]);
    let id = world.apply(cluster);
    world.settle();
    assert_eq!(world.of(Kind::Pod).len(), 0);
    assert!(world.why(&id).contains("no key for tokens"), "{}", world.why(&id));
}

#[test]
fn a_serve_service_is_made_where_it_is_asked_for_and_there_is_a_port() {
    let on = json!({"ray.io/enable-serve-service": "true"});
    let (world, _) = with(|_| (), on.clone());
    let service = world.get(Kind::Service, "c-serve-svc").unwrap();
    assert_eq!(service["spec"]["selector"], json!({"ray.io/cluster": "c"}));
    assert_eq!(service["spec"]["ports"][0]["port"], 8000);
    assert!(service["spec"]["ports"][0]["appProtocol"].is_null());

    let ports = json!([{"name": "dashboard", "containerPort": 8265}]);
    let without = |spec: &mut Value| spec["headGroupSpec"]["template"]["spec"]["containers"][0]["ports"] = ports;
    let (world, id) = with(without, on);
    assert!(world.get(Kind::Service, "c-serve-svc").is_none());
    assert!(world.why(&id).contains("port serve"), "{}", world.why(&id));
}
