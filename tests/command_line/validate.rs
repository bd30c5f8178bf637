//! `rayfleet validate` as a process: what is printed, and the exit code.

use serde_json::Value;

use super::{run, text};

const JOB: &str = "apiVersion: ray.io/v1\nkind: RayJob\nmetadata: {name: train}\nspec:\n  entrypoint: echo\n  \
                   rayClusterSpec: {headGroupSpec: {rayStartParams: {}, template: {spec: {containers: [{name: r}]}}}}\n";

async fn validate(manifest: &[u8], more: &[&str]) -> (Option<i32>, String) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("job.yaml");
    std::fs::write(&path, manifest).expect("a file in it");
    let path = path.display().to_string();
    let arguments: Vec<&str> = ["validate", "-f", &path].into_iter().chain(more.iter().copied()).collect();
    let output = run(&arguments).await;
    assert_eq!(text(&output.stderr), "");
    (output.status.code(), text(&output.stdout).replace(&path, "job.yaml"))
}

#[tokio::test]
async fn a_sound_manifest_ends_with_0_and_a_wrong_one_with_1_and_its_field() {
    let (code, told) = validate(JOB.as_bytes(), &[]).await;
    assert_eq!((code, &*told), (Some(0), "1 object: 0 errors, 0 warnings\n"));
    let wrong = JOB.replace("entrypoint: echo", "suspend: true\n  entrypiont: echo");
    let (code, told) = validate(wrong.as_bytes(), &[]).await;
    assert_eq!(code, Some(1), "{told}");
    let lines: Vec<&str> = told.lines().collect();
    assert_eq!(
        lines,
        [
            "job.yaml, document 1, RayJob train: warning: spec.entrypiont: is no field that is known here; perhaps \
             entrypoint is meant",
            "job.yaml, document 1, RayJob train: spec.suspend: needs shutdownAfterJobFinishes: true",
            "1 object: 1 error, 1 warning",
        ]
    );
}

#[tokio::test]
async fn programs_get_the_findings_as_json() {
    let (code, told) = validate(JOB.replace("RayJob", "RayJub").as_bytes(), &["-o", "json"]).await;
    assert_eq!(code, Some(1));
    let report: Value = serde_json::from_str(&told).expect("JSON");
    assert_eq!((&report["objects"], &report["errors"]), (&1.into(), &1.into()));
    let finding = &report["findings"][0];
    assert_eq!(
        (&finding["severity"], &finding["field"], &finding["document"]),
        (&"error".into(), &"kind".into(), &1.into())
    );
}

#[tokio::test]
async fn what_is_no_text_is_an_error_and_no_panic() {
    for bytes in [&b"\xff\xfe\x00spec"[..], b"a: [", "[".repeat(100_000).as_bytes()] {
        let (code, told) = validate(bytes, &[]).await;
        assert_eq!(code, Some(1), "{told}");
        assert!(told.starts_with("job.yaml: "), "{told}");
    }
}
