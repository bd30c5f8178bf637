//! What is refused before anything happens: names, missing arguments, directories and ports that somebody else has.

use super::{JOB, Sandbox, error_of, run, text};

/// The message of a command line that is wrong.
async fn usage_of(arguments: &[&str]) -> String {
    let output = run(arguments).await;
    assert_eq!(output.status.code(), Some(2), "{arguments:?}: {}{}", text(&output.stdout), text(&output.stderr));
    text(&output.stderr)
}

#[tokio::test]
async fn names_that_cannot_be_are_refused_with_what_is_right() {
    let add = ["member", "add", "eu", "--from", "eu.yaml"];
    for (arguments, option) in [
        (&["run", "--fleet-id", "Bad Fleet!"][..], "--fleet-id"),
        (&["run", "--default-queue", "Bad Q"], "--default-queue"),
        (&["run", "--seat", "a b"], "--seat"),
        (&["run", "--lease-namespace", "A"], "--lease-namespace"),
        (&["run", "--cluster-domain", "cluster..local"], "--cluster-domain"),
        (&["shards", "--lease-namespace", "A"], "--lease-namespace"),
        (&["member", "add", "Bad Name", "--from", "eu.yaml"], "<NAME>"),
        (&[&add[..], &["--default-queue", "Bad Q"]].concat(), "--default-queue"),
        (&[&add[..], &["--label", "bad label!=x"]].concat(), "--label"),
        (&[&add[..], &["--secret-namespace", "a.b"]].concat(), "--secret-namespace"),
        (&[&add[..], &["--units", "3"]].concat(), "--units"),
    ] {
        let why = usage_of(arguments).await;
        assert!(why.contains(option) && why.contains("right are"), "{arguments:?}: {why}");
    }
    let bare = usage_of(&["explain"]).await;
    assert!(bare.contains("KIND/NAME") && bare.contains("-f <FILE>"), "{bare}");
    let both = usage_of(&["explain", "rayjob/a", "-f", "a.yaml"]).await;
    assert!(both.contains("cannot be used with"), "{both}");
}

#[tokio::test]
async fn each_cause_is_said_once() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path().display().to_string();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    for (arguments, cause) in [
        (&["sandbox", "--ray", "none", "--dir", &dir, "--port", &port][..], "in use"),
        (&["sandbox", "--ray", "/nope", "--dir", &dir], "there is no Ray in /nope"),
        (&["sandbox", "--ray", "none", "--dir", "/proc/nope"], "No such file or directory"),
        (&["version", "--log", "rayfleet=nope=x"], "error parsing level filter"),
    ] {
        let why = error_of(arguments).await;
        assert_eq!(why.matches(cause).count(), 1, "{arguments:?}: {why}");
        assert!(why.starts_with("error: ") && why.trim_end().lines().count() == 1, "{why}");
    }
    assert!(error_of(&["sandbox", "--ray", "none", "--dir", "/proc/nope"]).await.contains("--dir /proc/nope: "));
}

#[tokio::test]
async fn a_directory_has_one_sandbox_until_it_ends_however_it_ends() {
    let mut sandbox = Sandbox::start(&["--members", "1", "--no-controller"]).await;
    let dir = sandbox.folder.path().join("fleet").display().to_string();
    let kubeconfig = std::fs::read_to_string(&sandbox.kubeconfig).unwrap();
    let pid = sandbox.process.id().unwrap();
    for command in ["sandbox", "demo"] {
        let why = error_of(&[command, "--ray", "none", "--dir", &dir]).await;
        assert!(why.contains(&format!("--dir {dir}: in use by a running sandbox (process {pid})")), "{command}: {why}");
    }
    assert_eq!(std::fs::read_to_string(&sandbox.kubeconfig).unwrap(), kubeconfig);

    // SIGKILL: nothing is tidied up.
    sandbox.process.kill().await.unwrap();
    let log = || std::fs::File::options().append(true).open(sandbox.folder.path().join("log")).unwrap();
    let second = super::program()
        .args(["sandbox", "--ray", "none", "--members", "1", "--dir", &dir])
        .stdout(log())
        .stderr(log())
        .spawn();
    sandbox.process = second.unwrap();
    sandbox
        .until("the second one has written its kubeconfig", async || {
            std::fs::read_to_string(&sandbox.kubeconfig).is_ok_and(|text| text != kubeconfig)
        })
        .await;
}

#[tokio::test]
async fn a_forecast_of_what_the_controller_would_refuse_is_the_refusal() {
    let sandbox = Sandbox::start(&["--members", "1"]).await;
    sandbox.members_are_ready().await;
    let long = "a".repeat(82);
    let manifest = JOB.replace("name: train", &format!("name: {long}")).replace("CPUS", "\"1\"");
    let job = sandbox.file("job.yaml", &manifest);
    let output = sandbox.ask(&["explain", "-f", &job]).await;
    let why = text(&output.stderr);
    assert_eq!((output.status.code(), &*text(&output.stdout)), (Some(1), ""), "{why}");
    let refusal = "metadata.name: has 82 characters, at most";
    assert!(why.contains(&format!("RayJob default/{long} of {job} is not valid: {refusal}")), "{why}");
    // The controller's own word on the same object.
    let output = sandbox.ask(&["submit", "-f", &job, "--wait", "--timeout", "60"]).await;
    let said = text(&output.stdout);
    assert_eq!(output.status.code(), Some(3), "{said}");
    assert!(said.contains("ValidationFailed") && said.contains(refusal), "{said}");
    sandbox.stop().await;
}
