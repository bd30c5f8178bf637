//! What people ask and say besides submitting: lists, logs, and members that take no new work.

use serde_json::Value;

use super::{JOB, Sandbox, client, text};

#[tokio::test]
async fn logs_are_read_on_the_member_where_the_job_is_and_lists_show_it() {
    let sandbox = Sandbox::start(&["--members", "1"]).await;
    sandbox.members_are_ready().await;
    let missing = sandbox.ask(&["logs", "rayjob/train", "-f"]).await;
    assert!(text(&missing.stderr).contains("RayJob default/train is not on the hub"), "{missing:?}");
    let empty = text(&sandbox.ask(&["get"]).await.stdout);
    assert!(empty.contains("none in namespace default"), "{empty}");

    let job = |name: &str, cpus: &str| {
        JOB.replace("name: train", &format!("name: {name}"))
            .replace("CPUS", cpus)
            .replace("python /code/job.py", "sleep 4")
    };
    let huge = sandbox.file("huge.yaml", &job("huge", "\"100\""));
    sandbox.ask(&["submit", "-f", &huge]).await;
    sandbox
        .until("it is said to wait", async || {
            let output = sandbox.ask(&["logs", "rayjob/huge"]).await;
            output.status.code() == Some(1)
                && text(&output.stderr).contains("rayjob/huge has no log yet: it waits on the hub: waits for capacity")
        })
        .await;

    // Ray's own log, while its RayCluster is there.
    let train = sandbox.file("train.yaml", &job("train", "\"1\"").replace("Finishes: true", "Finishes: false"));
    sandbox.ask(&["submit", "-f", &train]).await;
    let followed = sandbox.ask(&["logs", "train", "-f"]).await;
    let (log, notes) = (text(&followed.stdout), text(&followed.stderr));
    assert_eq!(followed.status.code(), Some(0), "{log}{notes}");
    assert!(log.starts_with("Running entrypoint for job train-"), "{log}{notes}");
    assert!(log.ends_with("(simulated: the entrypoint was not run)\n"), "followed to the end: {log}{notes}");
    assert_eq!(log.lines().count(), 2, "each line once: {log}");
    assert_eq!(text(&sandbox.ask(&["logs", "rayjob/train"]).await.stdout), log);
    let brief = sandbox.file("brief.yaml", &job("brief", "\"1\""));
    let output = sandbox.ask(&["submit", "-f", &brief, "--wait", "--timeout", "100"]).await;
    assert_eq!(output.status.code(), Some(0), "{}{}", text(&output.stdout), text(&output.stderr));
    sandbox
        .until("the RayCluster is gone, and its log", async || {
            let output = sandbox.ask(&["logs", "rayjob/brief"]).await;
            text(&output.stderr).contains("rayjob/brief has no log any more: the job has ended, and its log went")
        })
        .await;

    // The submitter's, which stays.
    let kept = job("kept", "\"1\"").replace("HTTPMode", "K8sJobMode").replace("Finishes: true", "Finishes: false");
    let kept = sandbox.file("kept.yaml", &kept);
    let output = sandbox.ask(&["submit", "-f", &kept, "--wait", "--timeout", "100"]).await;
    assert_eq!(output.status.code(), Some(0), "{}{}", text(&output.stdout), text(&output.stderr));
    for arguments in [&["logs", "rayjob/kept"][..], &["logs", "rayjob/kept", "-f"]] {
        let output = sandbox.ask(arguments).await;
        let log = text(&output.stdout);
        assert_eq!(log.matches("Running entrypoint for job kept-").count(), 1, "{log}{}", text(&output.stderr));
    }

    let list = text(&sandbox.ask(&["get", "-A"]).await.stdout);
    let words = |name: &str| -> Vec<String> {
        let line = list.lines().find(|line| line.contains(name)).unwrap_or_default();
        line.split_whitespace().map(str::to_owned).collect()
    };
    assert_eq!(words("rayjob/kept")[..5], ["default", "rayjob/kept", "eu", "Finished", "Complete/SUCCEEDED"], "{list}");
    assert_eq!(words("rayjob/huge")[..4], ["default", "rayjob/huge", "-", "Waiting"], "{list}");
    let output = sandbox.ask(&["get", "rayjob/kept", "-o", "json"]).await;
    let kept: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&kept["member"], &kept["jobStatus"]), (&"eu".into(), &"SUCCEEDED".into()));

    let (_, token) = sandbox.server("eu");
    for output in [&followed, &missing] {
        assert!(!text(&output.stdout).contains(&token) && !text(&output.stderr).contains(&token), "no secrets");
    }
    // Without the Secret nothing can be read, and the message names it.
    let (url, hub_token) = sandbox.server("hub");
    let client = client();
    let secrets = format!("{}/api/v1/secrets", url.trim_end_matches('/'));
    let list: Value = client.get(&secrets).bearer_auth(&hub_token).send().await.unwrap().json().await.unwrap();
    let metadata =
        &list["items"].as_array().unwrap().iter().find(|s| s["data"]["kubeconfig"].is_string()).unwrap()["metadata"];
    let (namespace, name) = (metadata["namespace"].as_str().unwrap(), metadata["name"].as_str().unwrap());
    let path = format!("{}/api/v1/namespaces/{namespace}/secrets/{name}", url.trim_end_matches('/'));
    client.delete(path).bearer_auth(&hub_token).send().await.unwrap();
    let refused = text(&sandbox.ask(&["logs", "rayjob/kept"]).await.stderr);
    assert!(refused.contains(&format!("member eu: Secret {namespace}/{name}")), "{refused}");
    sandbox.stop().await;
}

#[tokio::test]
async fn a_cordoned_member_shows_it_and_gets_nothing_until_it_is_uncordoned() {
    let sandbox = Sandbox::start(&["--members", "1"]).await;
    sandbox.members_are_ready().await;
    let say = async |arguments: &[&str]| {
        let output = sandbox.ask(arguments).await;
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
        text(&output.stdout).trim_end().to_owned()
    };
    assert_eq!(say(&["member", "cordon", "eu"]).await, "membercluster/eu cordoned");
    assert_eq!(say(&["member", "cordon", "eu"]).await, "membercluster/eu already cordoned");
    let unknown = sandbox.ask(&["member", "cordon", "mars"]).await;
    assert!(text(&unknown.stderr).contains("there is no member mars"), "{unknown:?}");
    // New credentials are no word about new work.
    let again = ["member", "add", "eu", "--from", &sandbox.kubeconfig, "--from-context", "eu"];
    say(&again).await;
    let list = say(&["member", "list"]).await;
    assert!(list.lines().next().unwrap().contains("CORDONED") && list.contains("True"), "{list}");
    let listed: Vec<Value> = serde_json::from_str(&say(&["member", "list", "-o", "json"]).await).unwrap();
    assert_eq!(listed[0]["spec"]["unschedulable"], true);
    let job = sandbox.file("job.yaml", &JOB.replace("CPUS", "\"1\""));
    let forecast = say(&["explain", "-f", &job]).await;
    assert!(forecast.contains("Cordoned") && forecast.contains("rayfleet member uncordon eu"), "{forecast}");
    say(&["submit", "-f", &job]).await;
    sandbox.until("the job waits for it", async || say(&["explain", "rayjob/train"]).await.contains("Cordoned")).await;
    assert_eq!(say(&["member", "uncordon", "eu"]).await, "membercluster/eu uncordoned");
    sandbox
        .until("the job has ended there", async || say(&["get", "rayjobs"]).await.contains("Complete/SUCCEEDED"))
        .await;
    sandbox.stop().await;
}
