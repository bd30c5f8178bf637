//! kubectl's ways of writing: apply (its own and the server's), diff, edit, patch, scale.

use crate::bench::{Bench, has_kubectl};

const DEPLOYMENT: &str = r"
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, labels: {app: web}}
spec:
  replicas: 2
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      containers:
      - {name: web, image: 'web:1', env: [{name: MODE, value: fast}], ports: [{containerPort: 80}]}
      - {name: side, image: 'side:1'}
";

const SERVICE: &str = r"
apiVersion: v1
kind: Service
metadata: {name: web}
spec: {selector: {app: web}, ports: [{name: http, port: 80}]}
";

async fn field(bench: &Bench, object: &str, path: &str) -> String {
    bench.run(&["get", object, "-o", &format!("jsonpath={{{path}}}")], "").await
}

#[tokio::test(flavor = "multi_thread")]
async fn built_in_kinds_are_applied_by_kubectl() {
    if !has_kubectl() {
        return;
    }
    let bench = Bench::start().await;
    let both = format!("{DEPLOYMENT}---{SERVICE}");
    let apply = ["apply", "-f", "-"];
    assert_eq!(bench.run(&apply, &both).await, "deployment.apps/web created\nservice/web created\n");
    assert_eq!(bench.run(&apply, &both).await, "deployment.apps/web unchanged\nservice/web unchanged\n");
    // One container goes, the other changes; what others have set stays.
    bench.run(&["annotate", "deployment", "web", "by=hand"], "").await;
    let changed = DEPLOYMENT.replace("      - {name: side, image: 'side:1'}\n", "").replace("web:1", "web:2");
    assert_eq!(bench.run(&apply, &changed).await, "deployment.apps/web configured\n");
    assert_eq!(field(&bench, "deployment/web", ".spec.template.spec.containers[*].image").await, "web:2");
    assert_eq!(field(&bench, "deployment/web", ".metadata.annotations.by").await, "hand");
    let wrong = bench.kubectl(&apply, &DEPLOYMENT.replace("replicas: 2", "replica: 2")).await;
    assert!(!wrong.ok && wrong.err.contains("unknown field \"spec.replica\""), "{}", wrong.err);
    bench.listening.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_server_applies_for_kubectl_and_keeps_managers_apart() {
    if !has_kubectl() {
        return;
    }
    let bench = Bench::start().await;
    let apply = ["apply", "--server-side", "-f", "-"];
    assert_eq!(bench.run(&apply, DEPLOYMENT).await, "deployment.apps/web serverside-applied\n");
    assert_eq!(bench.run(&apply, DEPLOYMENT).await, "deployment.apps/web serverside-applied\n");
    let other = DEPLOYMENT.replace("web:1", "web:3");
    let conflict = bench.kubectl(&["apply", "--server-side", "--field-manager=other", "-f", "-"], &other).await;
    assert!(!conflict.ok && conflict.err.contains("conflict with \"kubectl\""), "{}", conflict.err);
    assert!(conflict.err.contains(".spec.template.spec.containers[name=\"web\"].image"), "{}", conflict.err);
    let force = ["apply", "--server-side", "--field-manager=other", "--force-conflicts", "-f", "-"];
    bench.run(&force, &other).await;
    assert_eq!(field(&bench, "deployment/web", ".spec.template.spec.containers[0].image").await, "web:3");
    let managers = bench.run(
        &["get", "deployment", "web", "--show-managed-fields", "-o", "jsonpath={.metadata.managedFields[*].manager}"],
        "",
    );
    assert_eq!(managers.await, "kubectl other");
    // Applied by kubectl first, taken over by the server's way of applying.
    bench.run(&["apply", "-f", "-"], SERVICE).await;
    assert_eq!(bench.run(&apply, &SERVICE.replace("app: web", "app: new")).await, "service/web serverside-applied\n");
    assert_eq!(field(&bench, "service/web", ".spec.selector.app").await, "new");
    bench.listening.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_difference_is_shown_before_it_is_made() {
    if !has_kubectl() {
        return;
    }
    let bench = Bench::start().await;
    bench.run(&["apply", "-f", "-"], DEPLOYMENT).await;
    let same = bench.kubectl(&["diff", "-f", "-"], DEPLOYMENT).await;
    assert!(same.ok && same.out.is_empty(), "{}\n{}", same.out, same.err);
    let changed = DEPLOYMENT.replace("web:1", "web:2");
    for how in [&["diff", "-f", "-"][..], &["diff", "--server-side", "--force-conflicts", "-f", "-"]] {
        let found = bench.kubectl(how, &changed).await;
        let says = |line: &str| found.out.lines().any(|l| l.split_whitespace().collect::<Vec<_>>().join(" ") == line);
        assert!(!found.ok && says("- image: web:1") && says("+ image: web:2"), "{}\n{}", found.out, found.err);
    }
    assert_eq!(field(&bench, "deployment/web", ".spec.template.spec.containers[0].image").await, "web:1");
    bench.listening.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn objects_are_edited_patched_and_scaled() {
    if !has_kubectl() {
        return;
    }
    let bench = Bench::start().await;
    bench.run(&["apply", "-f", "-"], DEPLOYMENT).await;
    let strategic = r#"{"spec":{"template":{"spec":{"containers":[{"name":"side","image":"side:2"}]}}}}"#;
    bench.run(&["patch", "deployment", "web", "-p", strategic], "").await;
    assert_eq!(field(&bench, "deployment/web", ".spec.template.spec.containers[*].image").await, "web:1 side:2");
    bench
        .run(&["patch", "deployment", "web", "--type=merge", "-p", r#"{"metadata":{"labels":{"app":null}}}"#], "")
        .await;
    assert_eq!(field(&bench, "deployment/web", ".metadata.labels").await, "");
    let json = r#"[{"op":"replace","path":"/spec/minReadySeconds","value":3}]"#;
    bench.run(&["patch", "deployment", "web", "--type=json", "-p", json], "").await;
    assert_eq!(field(&bench, "deployment/web", ".spec.minReadySeconds").await, "3");
    bench.run(&["scale", "deployment", "web", "--replicas=5"], "").await;
    assert_eq!(field(&bench, "deployment/web", ".spec.replicas").await, "5");
    let stale = bench.kubectl(&["scale", "deployment", "web", "--current-replicas=2", "--replicas=1"], "").await;
    assert!(!stale.ok && stale.err.contains("Expected replicas to be 2, was 5"), "{}", stale.err);
    bench.run(&["set", "image", "deployment/web", "web=web:9"], "").await;
    bench.run(&["label", "deployment", "web", "tier=front"], "").await;
    // The editor is a program like any other.
    let edited = bench.run_with("EDITOR", "sed -i s/web:9/web:10/", &["edit", "deployment", "web"]).await;
    assert_eq!(edited, "deployment.apps/web edited\n");
    assert_eq!(field(&bench, "deployment/web", ".spec.template.spec.containers[0].image").await, "web:10");
    let explained = bench.run(&["explain", "deployment.spec.template.spec.containers.env"], "").await;
    assert!(explained.contains("valueFrom"), "{explained}");
    bench.listening.stop().await;
}
