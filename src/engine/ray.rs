//! Questions to Ray dashboards through the member's API server: how they are asked, and what the replies mean
//! (specs/rayjob.md 16). Pure, shared by shell and simulator.
//! Must not know units, plans, or when something is asked.

use std::sync::Arc;

use serde_json::Value;

use super::RayOutcome;
use crate::api::wire::{Method, Reply, Request};
use crate::plan::{Dashboard, JobAnswer, Question, SubmitOutcome};

/// Bytes of a dashboard's text that are passed on: the last line of a traceback, not all of it.
const TEXT_BYTES_MAX: usize = 400;

/// What a dashboard answers to [`ask_log`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LogAnswer {
    /// The whole log so far.
    Text(String),
    /// Ray does not know the job.
    NotFound,
    /// Nobody answers behind the Service, or not as a dashboard does: in words.
    Failed(String),
}

/// The request for the whole log of a job so far (`GET /api/jobs/<id>/logs`).
pub fn ask_log(dashboard: &Dashboard, job: &str) -> Request {
    Request::get(format!("{}{}/logs", base(dashboard), escaped(job)))
}

/// What the reply to [`ask_log`] says.
pub fn log_answer(reply: &Reply) -> LogAnswer {
    let body = serde_json::from_slice::<Value>(&reply.body);
    if let Ok(body) = &body
        && let Some(message) = of_api_server(body)
    {
        return LogAnswer::Failed(message);
    }
    match (reply.status, body.ok().and_then(|body| body["logs"].as_str().map(str::to_owned))) {
        (200, Some(text)) => LogAnswer::Text(text),
        (404, _) => LogAnswer::NotFound,
        (401 | 403, _) => LogAnswer::Failed("the dashboard asks for a token, which is not passed on".to_owned()),
        (status, _) => LogAnswer::Failed(format!("the dashboard answered {status}: {}", text(reply))),
    }
}

/// Path of the jobs of a dashboard, through the service proxy of its member's API server.
fn base(dashboard: &Dashboard) -> String {
    format!(
        "/api/v1/namespaces/{}/services/{}:{}/proxy/api/jobs/",
        escaped(&dashboard.namespace),
        escaped(&dashboard.service),
        escaped(&dashboard.port)
    )
}

/// The request that asks `question` of `dashboard` through the service proxy of its member's API server.
pub fn ask(dashboard: &Dashboard, question: &Question) -> Request {
    let base = base(dashboard);
    match question {
        Question::Job { job } => Request::get(format!("{base}{}", escaped(job))),
        Question::Submit { body, .. } => {
            Request::new(Method::Post, base, "application/json", Arc::from(body.to_string().as_bytes()))
        }
        Question::Stop { job } => {
            Request::new(Method::Post, format!("{base}{}/stop", escaped(job)), "application/json", Arc::from([]))
        }
    }
}

/// What the reply says about `question`; `None`: it was sent, and no answer came.
pub fn answered(question: &Question, reply: Option<&Reply>) -> RayOutcome {
    match question {
        Question::Job { .. } => RayOutcome::Job(job_answer(reply)),
        Question::Submit { .. } => RayOutcome::Submit(submit_outcome(reply)),
        Question::Stop { .. } => RayOutcome::Stop(stop_outcome(reply)),
    }
}

fn job_answer(reply: Option<&Reply>) -> JobAnswer {
    let Some(reply) = reply else { return JobAnswer::Failed("no answer".to_owned()) };
    let body = serde_json::from_slice::<Value>(&reply.body);
    if let Ok(body) = &body
        && let Some(message) = of_api_server(body)
    {
        return JobAnswer::Failed(message);
    }
    match (reply.status, body) {
        (404, _) => JobAnswer::NotFound,
        (_, Ok(info)) if info.is_object() => JobAnswer::Info(Arc::new(info)),
        (status, _) => JobAnswer::Failed(format!("the dashboard answered {status}: {}", text(reply))),
    }
}

/// Whether a job runs twice rests on this: everything that does not prove "not carried out" is unknown.
fn submit_outcome(reply: Option<&Reply>) -> SubmitOutcome {
    let Some(reply) = reply else { return SubmitOutcome::Unknown("no answer".to_owned()) };
    let whole = String::from_utf8_lossy(&reply.body);
    match reply.status {
        200..300 => SubmitOutcome::Accepted,
        // Ray answers 500 also to a client's mistake; only the text tells that the id is taken.
        500 if whole.contains("already exists") || whole.contains("Please use a different submission_id") => {
            SubmitOutcome::Exists
        }
        // The API server found nobody to pass it on to.
        503 if whole.contains("no endpoints available") || whole.contains("connection refused") => {
            SubmitOutcome::Refused(text(reply))
        }
        // The API server passed it on and lost the answer.
        status @ 502..=504 => SubmitOutcome::Unknown(format!("{status}: {}", text(reply))),
        status => SubmitOutcome::Refused(format!("{status}: {}", text(reply))),
    }
}

fn stop_outcome(reply: Option<&Reply>) -> Result<(), String> {
    let reply = reply.ok_or("no answer")?;
    let body = serde_json::from_slice::<Value>(&reply.body).unwrap_or_default();
    if let Some(message) = of_api_server(&body) {
        return Err(message);
    }
    match reply.status {
        // `stopped: false` means that it had ended before.
        200..300 | 404 => Ok(()),
        status => Err(format!("the dashboard answered {status}: {}", text(reply))),
    }
}

/// The message of a `Status`: such a reply is of the API server, not of the dashboard behind it.
fn of_api_server(body: &Value) -> Option<String> {
    let ours = body.get("kind").and_then(Value::as_str) == Some("Status") && body.get("apiVersion").is_some();
    ours.then(|| body.get("message").and_then(Value::as_str).unwrap_or("the API server refused").to_owned())
}

fn text(reply: &Reply) -> String {
    let whole = String::from_utf8_lossy(&reply.body);
    let last = whole.lines().map(str::trim).rfind(|l| !l.is_empty()).unwrap_or("").to_owned();
    let end = (0..=TEXT_BYTES_MAX.min(last.len())).rfind(|at| last.is_char_boundary(*at)).unwrap_or(0);
    last[..end].to_owned()
}

/// One segment of a path, percent-encoded: a submission id is a user's text.
fn escaped(segment: &str) -> String {
    use std::fmt::Write as _;
    let mut out = String::with_capacity(segment.len());
    for byte in segment.bytes() {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~') {
            out.push(char::from(byte));
        } else {
            let _ = write!(out, "%{byte:02X}");
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dashboard() -> Dashboard {
        Dashboard { namespace: "default".into(), service: "train-head-svc".into(), port: "dashboard".into() }
    }

    fn reply(status: u16, body: &[u8]) -> Reply {
        Reply { status, headers: Vec::new(), body: Arc::from(body) }
    }

    /// Body and status of a recorded answer of a real Ray head.
    fn recorded(file: &str) -> Reply {
        let shared =
            std::env::var("RAYFLEET_SHARED").unwrap_or(concat!(env!("CARGO_MANIFEST_DIR"), "/../shared").into());
        let folder = std::path::Path::new(&shared).join("ray-api");
        let index = std::fs::read(folder.join("index.json")).expect("recordings stand in RAYFLEET_SHARED/ray-api");
        let index: Value = serde_json::from_slice(&index).unwrap();
        let entry = index.as_array().unwrap().iter().find(|e| e["file"] == file).expect("a recording of that name");
        let status = u16::try_from(entry["status"].as_u64().unwrap()).unwrap();
        reply(status, &std::fs::read(folder.join(file)).unwrap())
    }

    fn submit() -> Question {
        Question::Submit { job: "a".into(), body: serde_json::json!({"submission_id": "a"}) }
    }

    #[test]
    fn a_submission_id_with_odd_characters_stays_one_segment() {
        let asked = ask(&dashboard(), &Question::Job { job: "a/../b c".into() });
        let base = "/api/v1/namespaces/default/services/train-head-svc:dashboard/proxy/api/jobs/";
        assert_eq!(asked.target, format!("{base}a%2F..%2Fb%20c"));
        assert_eq!(ask(&dashboard(), &submit()).target, base);
    }

    #[test]
    fn recorded_answers_of_ray_are_understood() {
        assert_eq!(submit_outcome(Some(&recorded("job_submit.json"))), SubmitOutcome::Accepted);
        for file in ["job_submit_duplicate_after_success.txt", "job_submit_duplicate_while_running.txt"] {
            assert_eq!(submit_outcome(Some(&recorded(file))), SubmitOutcome::Exists);
        }
        for file in ["job_submit_bad_json.txt", "job_submit_no_entrypoint.txt"] {
            assert!(matches!(submit_outcome(Some(&recorded(file))), SubmitOutcome::Refused(_)));
        }
        assert_eq!(job_answer(Some(&recorded("job_get_unknown.txt"))), JobAnswer::NotFound);
        let JobAnswer::Info(info) = job_answer(Some(&recorded("job_get_succeeded.json"))) else { panic!("no info") };
        assert_eq!(info["status"], "SUCCEEDED");
        for file in ["job_stop_running.json", "job_stop_finished.json", "job_stop_unknown.txt"] {
            assert_eq!(stop_outcome(Some(&recorded(file))), Ok(()));
        }
        assert!(matches!(job_answer(Some(&recorded("auth_none_job_get_unknown.txt"))), JobAnswer::Failed(_)));
    }

    #[test]
    fn recorded_logs_of_ray_are_understood() {
        let target = ask_log(&dashboard(), "a/b").target;
        assert!(target.ends_with("/services/train-head-svc:dashboard/proxy/api/jobs/a%2Fb/logs"), "{target}");
        let LogAnswer::Text(text) = log_answer(&recorded("job_logs_succeeded.json")) else { panic!("no text") };
        assert!(text.ends_with("hello\nbye\n"), "{text}");
        assert_eq!(log_answer(&recorded("job_logs_unknown.txt")), LogAnswer::NotFound);
        assert!(matches!(log_answer(&recorded("auth_none_job_get_unknown.txt")), LogAnswer::Failed(_)));
        let nobody = br#"{"kind":"Status","apiVersion":"v1","message":"no endpoints available","code":503}"#;
        assert_eq!(log_answer(&reply(503, nobody)), LogAnswer::Failed("no endpoints available".to_owned()));
    }

    #[test]
    fn a_missing_service_is_not_a_missing_job() {
        let status = br#"{"kind":"Status","apiVersion":"v1","message":"services \"x\" not found","code":404}"#;
        let JobAnswer::Failed(why) = job_answer(Some(&reply(404, status))) else {
            panic!("taken for an answer of Ray")
        };
        assert!(why.contains("not found"));
        assert!(stop_outcome(Some(&reply(404, status))).is_err());
    }

    #[test]
    fn whatever_a_dashboard_answers_is_an_answer() {
        // Each number is a seed: what it does to the answer can be repeated.
        for seed in 0..500 {
            let mut rng = fastrand::Rng::with_seed(seed);
            let mut body =
                br#"{"status":"RUNNING","message":"m","start_time":1,"end_time":null,"metadata":{"a":"b"}}"#.to_vec();
            for _ in 0..rng.usize(0..8) {
                let at = rng.usize(0..body.len());
                body[at] = rng.u8(..);
            }
            if seed % 10 == 0 {
                body = [b"[".repeat(100_000), body].concat();
            }
            let reply = reply(rng.u16(100..600), &body);
            let told = format!("seed {seed}: {reply:?}");
            match job_answer(Some(&reply)) {
                JobAnswer::Info(info) => assert!(info.is_object(), "{told}"),
                JobAnswer::Failed(why) => assert!(!why.is_empty() && why.len() < 10_000, "{told}"),
                JobAnswer::NotFound => assert_eq!(reply.status, 404, "{told}"),
            }
            // Only an answer of success says that the job was taken.
            let accepted = submit_outcome(Some(&reply)) == SubmitOutcome::Accepted;
            assert_eq!(accepted, (200..300).contains(&reply.status), "{told}");
            let _stopped = stop_outcome(Some(&reply));
            let _log = log_answer(&reply);
        }
    }

    #[test]
    fn a_submission_whose_answer_was_lost_is_unknown() {
        assert!(matches!(submit_outcome(None), SubmitOutcome::Unknown(_)));
        for status in [502, 503, 504] {
            let lost = submit_outcome(Some(&reply(status, b"error trying to reach service: EOF")));
            assert_eq!(lost, SubmitOutcome::Unknown(format!("{status}: error trying to reach service: EOF")));
        }
        let nobody = reply(503, b"no endpoints available for service");
        assert!(matches!(submit_outcome(Some(&nobody)), SubmitOutcome::Refused(_)));
    }
}
