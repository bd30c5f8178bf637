//! Members as people register them: which clusters are refused, what a second `member add` changes, and what it leaves.

use reqwest::Method;
use serde_json::{Value, json};

use super::{Sandbox, client, error_of, text};

const MEMBERS: &str = "/apis/rayfleet.io/v1alpha1/memberclusters";
const SECRET: &str = "/api/v1/namespaces/rayfleet-system/secrets/member-far";

async fn hub(sandbox: &Sandbox, method: Method, path: &str, body: &Value) -> Value {
    ask(sandbox, "hub", method, path, body).await
}

async fn ask(sandbox: &Sandbox, cluster: &str, method: Method, path: &str, body: &Value) -> Value {
    let (url, token) = sandbox.server(cluster);
    let request = client().request(method, format!("{}{path}", url.trim_end_matches('/'))).bearer_auth(token);
    let request = request.header("content-type", "application/merge-patch+json").body(body.to_string());
    let reply = request.send().await.expect("the hub answers");
    assert!(reply.status().is_success(), "{path}: {}", reply.text().await.unwrap_or_default());
    reply.json().await.expect("it answers in JSON")
}

async fn read(sandbox: &Sandbox, path: &str) -> Value {
    hub(sandbox, Method::GET, path, &json!({})).await
}

#[tokio::test]
async fn a_second_add_changes_what_it_names_and_a_refused_one_nothing() {
    let sandbox = Sandbox::start(&["--members", "1", "--no-controller"]).await;
    let other = Sandbox::start(&["--members", "1", "--no-controller"]).await;
    let add = async |more: &[&str]| {
        let from = ["member", "add", "far", "--from", &other.kubeconfig, "--from-context", "eu"];
        let output = sandbox.ask(&[&from, more].concat()).await;
        (output.status.code(), text(&output.stdout), text(&output.stderr))
    };
    let (code, said, _) = add(&["--label", "zone=a", "--default-queue", "ml"]).await;
    assert_eq!(code, Some(0), "{said}");
    assert_eq!(
        said,
        "secret/member-far created in rayfleet-system\nmembercluster/far created; see: rayfleet member list\n"
    );
    let member = format!("{MEMBERS}/far");
    let spec = read(&sandbox, &member).await["spec"].clone();
    assert_eq!(
        (&spec["units"], &spec["labels"], &spec["defaultQueue"]),
        (&4.into(), &json!({"zone": "a"}), &"ml".into())
    );

    // Other credentials, and something of somebody else beside them.
    let other_data = json!({ "data": { "kubeconfig": "e30=", "note": "eA==" } });
    hub(&sandbox, Method::PATCH, SECRET, &other_data).await;
    let before = (read(&sandbox, SECRET).await, read(&sandbox, &member).await);
    let (code, said, why) = add(&["--units", "8", "--label", "zone=b"]).await;
    assert_eq!((code, &*said), (Some(1), ""), "{why}");
    assert!(why.contains("membercluster/far has 4 units, which cannot be changed"), "{why}");
    assert_eq!((read(&sandbox, SECRET).await, read(&sandbox, &member).await), before, "nothing is written");

    let (code, said, why) = add(&[]).await;
    assert_eq!(code, Some(0), "{why}");
    assert_eq!(
        said,
        "membercluster/far unchanged; see: rayfleet member list\nsecret/member-far configured in rayfleet-system\n"
    );
    assert_eq!(read(&sandbox, &member).await, before.1, "credentials are no word about settings");
    let secret = read(&sandbox, SECRET).await;
    assert_eq!(secret["data"]["note"], "eA==");
    assert_ne!(secret["data"]["kubeconfig"], "e30=");

    let (code, _, why) = add(&["--label", "tier=gold"]).await;
    assert_eq!(code, Some(0), "{why}");
    assert_eq!(read(&sandbox, &member).await["spec"]["labels"], json!({ "zone": "a", "tier": "gold" }));
    other.stop().await;
    sandbox.stop().await;
}

#[tokio::test]
async fn what_the_hub_would_refuse_of_a_member_leaves_no_secret_behind() {
    let sandbox = Sandbox::start(&["--members", "1", "--no-controller"]).await;
    let other = Sandbox::start(&["--members", "1", "--no-controller"]).await;
    // Somebody else's rule about MemberClusters, as the hub itself enforces it.
    let path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/memberclusters.rayfleet.io";
    let mut definition = read(&sandbox, path).await;
    let spec = "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/defaultQueue/maxLength";
    let parent = definition.pointer_mut(spec.rsplit_once('/').unwrap().0).expect("the field is in the schema");
    parent["maxLength"] = json!(2);
    let versions = json!({ "spec": { "versions": definition["spec"]["versions"] } });
    hub(&sandbox, Method::PATCH, path, &versions).await;
    let from = ["member", "add", "far", "--from", &other.kubeconfig, "--from-context", "eu", "--default-queue", "long"];
    let output = sandbox.ask(&from).await;
    let why = text(&output.stderr);
    assert_eq!((output.status.code(), &*text(&output.stdout)), (Some(1), ""), "{why}");
    assert!(why.contains("defaultQueue"), "{why}");
    let secrets = read(&sandbox, "/api/v1/namespaces/rayfleet-system/secrets").await;
    let names: Vec<&Value> = secrets["items"].as_array().unwrap().iter().map(|s| &s["metadata"]["name"]).collect();
    assert!(!names.contains(&&json!("member-far")), "{names:?}");
    other.stop().await;
    sandbox.stop().await;
}

#[tokio::test]
async fn the_hub_and_a_member_that_is_being_deleted_are_refused_and_an_absent_cluster_is_not() {
    let sandbox = Sandbox::start(&["--members", "1", "--no-controller"]).await;
    let hub_itself = sandbox.ask(&["member", "add", "far", "--from", &sandbox.kubeconfig]).await;
    let why = text(&hub_itself.stderr);
    assert_eq!(hub_itself.status.code(), Some(1), "{why}");
    assert!(why.contains("leads to the hub, which cannot be its own member far"), "{why}");
    assert!(why.contains("--from-context chooses another one of its 2"), "{why}");

    let gone = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let absent = sandbox.file(
        "absent.yaml",
        &format!(
            "{{current-context: m, clusters: [{{name: c, cluster: {{server: 'http://{gone}'}}}}], \
             users: [{{name: u, user: {{token: t}}}}], contexts: [{{name: m, context: {{cluster: c, user: u}}}}]}}"
        ),
    );
    let output = sandbox.ask(&["member", "add", "far", "--from", &absent]).await;
    let warned = text(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{warned}");
    assert!(warned.contains("warning: far cannot be reached") && warned.contains("not checked now"), "{warned}");

    let held = json!({ "metadata": { "finalizers": ["rayfleet.io/member"] } });
    hub(&sandbox, Method::PATCH, &format!("{MEMBERS}/far"), &held).await;
    hub(&sandbox, Method::DELETE, &format!("{MEMBERS}/far"), &json!({})).await;
    let before = read(&sandbox, SECRET).await;
    let again = ["--kubeconfig", &sandbox.kubeconfig, "--context", "hub", "member", "add", "far", "--from", &absent];
    let why = error_of(&again).await;
    assert!(why.contains("membercluster/far is being deleted") && why.contains("kubectl wait"), "{why}");
    assert_eq!(read(&sandbox, SECRET).await, before);
    sandbox.stop().await;
}

#[tokio::test]
async fn a_cluster_that_is_another_member_and_another_cluster_than_the_members_are_refused() {
    let sandbox = Sandbox::start(&["--members", "2", "--no-controller"]).await;
    let other = Sandbox::start(&["--members", "1", "--no-controller"]).await;
    // What the controller found, by hand; the field is served whatever the definitions say of it.
    let path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/memberclusters.rayfleet.io";
    let mut definition = read(&sandbox, path).await;
    let status = "/spec/versions/0/schema/openAPIV3Schema/properties/status/properties";
    definition.pointer_mut(status).expect("it has a status")["clusterId"] = json!({ "type": "string" });
    hub(&sandbox, Method::PATCH, path, &json!({ "spec": { "versions": definition["spec"]["versions"] } })).await;
    for member in ["eu", "us"] {
        let namespace = ask(&sandbox, member, Method::GET, "/api/v1/namespaces/kube-system", &json!({})).await;
        let found = json!({ "status": { "clusterId": namespace["metadata"]["uid"] } });
        let written = hub(&sandbox, Method::PATCH, &format!("{MEMBERS}/{member}/status"), &found).await;
        assert!(written["status"]["clusterId"].is_string(), "{written}");
    }
    let secrets = "/api/v1/namespaces/rayfleet-system/secrets";
    let before = read(&sandbox, secrets).await["items"].clone();
    for (name, from, context, why) in [
        ("new", &sandbox, "us", "the cluster of member us, which cannot be member new too"),
        ("eu", &sandbox, "us", "the cluster of member us, which cannot be member eu too"),
        ("eu", &other, "eu", "another cluster than that of member eu"),
    ] {
        let output = sandbox.ask(&["member", "add", name, "--from", &from.kubeconfig, "--from-context", context]).await;
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(said.contains(why) && said.contains("--from-context"), "{said}");
    }
    assert_eq!(read(&sandbox, secrets).await["items"], before, "nothing is written");
    let same = ["member", "add", "eu", "--from", &sandbox.kubeconfig, "--from-context", "eu"];
    let output = sandbox.ask(&same).await;
    assert_eq!((output.status.code(), &*text(&output.stderr)), (Some(0), ""));
    other.stop().await;
    sandbox.stop().await;
}
