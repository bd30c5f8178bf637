//! A stand-in for the dashboards of simulated Ray heads: answers about jobs as a real one does, and counts submissions.
//! Must not know pods beyond the UID of the head that each dashboard belongs to. No ticks: a job's state follows from time.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};

use super::object::fnv;
use crate::api::Time;
use crate::api::wire::{Method, Reply};

/// How long a stop takes.
const STOPPING: Duration = Duration::from_millis(1400);

/// How long simulated jobs take, in milliseconds; each draws its own time from the range by its submission id.
#[derive(Clone, Copy, Debug)]
pub struct JobTimes {
    /// Before the entrypoint runs.
    pub pending_ms: (u64, u64),
    /// While it runs; `sleep N` in an entrypoint says it exactly.
    pub running_ms: (u64, u64),
}

impl Default for JobTimes {
    fn default() -> Self {
        Self { pending_ms: (200, 1500), running_ms: (1000, 8000) }
    }
}

#[derive(Clone, Debug)]
struct Job {
    entrypoint: String,
    metadata: Value,
    runtime_env: Value,
    submitted: Time,
    runs_from: Time,
    ends: Time,
    exit_code: i64,
    stopped: Option<Time>,
}

#[derive(Debug, Default)]
struct Head {
    jobs: BTreeMap<String, Job>,
    made_up: u64,
}

/// The dashboards of one cluster.
#[derive(Debug, Default)]
pub struct Dashboard {
    times: JobTimes,
    heads: BTreeMap<String, Head>,
    submissions: BTreeMap<String, u32>,
}

/// State of a job, as Ray names it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stage {
    Pending,
    Running,
    Succeeded,
    Failed,
    Stopped,
}

impl Job {
    fn stage(&self, now: Time) -> Stage {
        if let Some(at) = self.stopped
            && now >= at
        {
            return Stage::Stopped;
        }
        match () {
            () if now < self.runs_from => Stage::Pending,
            () if now < self.ends => Stage::Running,
            () if self.exit_code == 0 => Stage::Succeeded,
            () => Stage::Failed,
        }
    }

    fn terminal_at(&self) -> Time {
        self.stopped.map_or(self.ends, |at| at.min(self.ends))
    }

    fn answer(&self, id: &str, now: Time) -> Value {
        let stage = self.stage(now);
        let (name, message, error) = match stage {
            Stage::Pending => (
                "PENDING",
                "Job has not started yet. It may be waiting for the runtime environment to be set up.".to_owned(),
                None,
            ),
            Stage::Running => ("RUNNING", "Job is currently running.".to_owned(), None),
            Stage::Succeeded => ("SUCCEEDED", "Job finished successfully.".to_owned(), None),
            Stage::Stopped => ("STOPPED", "Job was intentionally stopped.".to_owned(), None),
            Stage::Failed => (
                "FAILED",
                format!("Job entrypoint command failed with exit code {}", self.exit_code),
                Some("JOB_ENTRYPOINT_COMMAND_ERROR"),
            ),
        };
        let over = matches!(stage, Stage::Succeeded | Stage::Failed | Stage::Stopped);
        let begun = stage != Stage::Pending;
        json!({
            "type": "SUBMISSION", "job_id": null, "submission_id": id, "driver_info": null, "status": name,
            "entrypoint": self.entrypoint, "message": message, "error_type": error, "start_time": self.submitted.0,
            "end_time": over.then_some(self.terminal_at().0), "metadata": self.metadata,
            "runtime_env": self.runtime_env,
            "driver_agent_http_address": begun.then_some("http://127.0.0.1:52365"),
            "driver_node_id": begun.then(|| format!("{:056x}", fnv(&[id]))),
            "driver_exit_code": matches!(stage, Stage::Succeeded | Stage::Failed).then_some(self.exit_code),
        })
    }

    fn log(&self, id: &str, now: Time) -> String {
        let mut out = format!("Running entrypoint for job {id}: {}\n", self.entrypoint);
        match self.stage(now) {
            Stage::Pending => out.clear(),
            Stage::Running => {}
            _ => out.push_str("(simulated: the entrypoint was not run)\n"),
        }
        out
    }
}

impl Dashboard {
    /// With these job times.
    pub fn new(times: JobTimes) -> Self {
        Self { times, ..Self::default() }
    }

    /// A head's dashboard answers from now on, without any job.
    pub fn head_up(&mut self, head: &str) {
        self.heads.entry(head.to_owned()).or_default();
    }

    /// A head is gone, and its jobs with it.
    pub fn head_gone(&mut self, head: &str) {
        self.heads.remove(head);
    }

    /// Whether a head's dashboard answers.
    pub fn is_up(&self, head: &str) -> bool {
        self.heads.contains_key(head)
    }

    /// How often a job of this submission id was taken by any head: the measure of "exactly once".
    pub fn submissions(&self, id: &str) -> u32 {
        self.submissions.get(id).copied().unwrap_or(0)
    }

    /// All submission ids ever taken, with how often.
    pub fn all_submissions(&self) -> &BTreeMap<String, u32> {
        &self.submissions
    }

    /// When a job ends, as it looks now; `None` where there is no such job.
    pub fn job_ends(&self, head: &str, id: &str) -> Option<Time> {
        self.heads.get(head)?.jobs.get(id).map(Job::terminal_at)
    }

    /// Whether a job has ended well by now.
    pub fn job_succeeded(&self, head: &str, id: &str, now: Time) -> bool {
        let job = self.heads.get(head).and_then(|head| head.jobs.get(id));
        job.is_some_and(|job| job.stage(now) == Stage::Succeeded)
    }

    /// What a job's log says by now.
    pub fn job_log(&self, head: &str, id: &str, now: Time) -> Option<String> {
        self.heads.get(head)?.jobs.get(id).map(|job| job.log(id, now))
    }

    /// Answers one request to a head's dashboard; `None` if that head has none.
    pub fn answer(&mut self, head: &str, method: Method, target: &str, body: &[u8], now: Time) -> Option<Reply> {
        let times = self.times;
        let state = self.heads.get_mut(head)?;
        let path = target.split('?').next().unwrap_or("");
        let reply = match (method, path) {
            (Method::Get, "/api/version") => json_reply(&json!({
                "version": "4", "ray_version": "2.60.0", "ray_commit": "simulated", "session_name": format!("session_{head}"),
            })),
            (Method::Get, "/api/gcs_healthz") => reply(200, "application/text; charset=utf-8", "success"),
            (Method::Get, "/api/authentication_mode") => json_reply(&json!({"authentication_mode": "disabled"})),
            (Method::Get, "/api/jobs/") => {
                json_reply(&state.jobs.iter().map(|(id, job)| job.answer(id, now)).collect::<Value>())
            }
            (Method::Post, "/api/jobs/") => {
                let (reply, taken) = state.submit(times, body, now);
                if let Some(id) = taken {
                    *self.submissions.entry(id).or_insert(0) += 1;
                }
                reply
            }
            _ => match path.strip_prefix("/api/jobs/") {
                Some(rest) if !rest.is_empty() => state.job(method, rest, now),
                _ => no_route(),
            },
        };
        Some(reply)
    }
}

impl Head {
    fn submit(&mut self, times: JobTimes, body: &[u8], now: Time) -> (Reply, Option<String>) {
        const KNOWN: &[&str] = &[
            "entrypoint",
            "submission_id",
            "job_id",
            "runtime_env",
            "metadata",
            "entrypoint_num_cpus",
            "entrypoint_num_gpus",
            "entrypoint_memory",
            "entrypoint_resources",
            "entrypoint_label_selector",
        ];
        let Ok(Value::Object(order)) = serde_json::from_slice::<Value>(body) else {
            let text = "500 Internal Server Error\n\nServer got itself in trouble";
            return (reply(500, PLAIN, text), None);
        };
        if let Some(field) = order.keys().find(|k| !KNOWN.contains(&k.as_str())) {
            return (reply(400, PLAIN, &format!("TypeError: got an unexpected keyword argument '{field}'\n")), None);
        }
        let text = |name: &str| order.get(name).and_then(Value::as_str).unwrap_or("").to_owned();
        if !order.contains_key("entrypoint") {
            return (reply(400, PLAIN, "TypeError: missing 1 required positional argument: 'entrypoint'\n"), None);
        }
        let asked = [text("submission_id"), text("job_id")].into_iter().find(|id| !id.is_empty());
        let id = asked.unwrap_or_else(|| {
            self.made_up += 1;
            format!("raysubmit_{:016x}", fnv(&["raysubmit", &self.made_up.to_string()]))
        });
        if self.jobs.contains_key(&id) {
            let text = format!(
                "ValueError: Job with submission_id {id} already exists. Please use a different submission_id.\n"
            );
            return (reply(500, PLAIN, &text), None);
        }
        let entrypoint = text("entrypoint");
        let runs_from = now + draw(times.pending_ms, &["pending", &id]);
        let runs_for = after_word(&entrypoint, "sleep")
            .map_or_else(|| draw(times.running_ms, &["running", &id]), |s| Duration::from_secs(s.unsigned_abs()));
        let job = Job {
            metadata: order.get("metadata").cloned().unwrap_or(Value::Null),
            runtime_env: order.get("runtime_env").cloned().unwrap_or(Value::Null),
            submitted: now,
            runs_from,
            ends: runs_from + runs_for,
            exit_code: after_word(&entrypoint, "exit").unwrap_or(0),
            stopped: None,
            entrypoint,
        };
        self.jobs.insert(id.clone(), job);
        (json_reply(&json!({"job_id": id, "submission_id": id})), Some(id))
    }

    fn job(&mut self, method: Method, rest: &str, now: Time) -> Reply {
        let (id, part) = rest.split_once('/').unwrap_or((rest, ""));
        let id = decoded(id);
        let unknown = || reply(404, PLAIN, &format!("Job {id} does not exist"));
        let known = self.jobs.get_mut(&id);
        match (method, part, known) {
            (Method::Get, "" | "logs", None) | (Method::Post, "stop", None) | (Method::Delete, "", None) => unknown(),
            (Method::Get, "", Some(job)) => json_reply(&job.answer(&id, now)),
            (Method::Get, "logs", Some(job)) => json_reply(&json!({"logs": job.log(&id, now)})),
            (Method::Post, "stop", Some(job)) => {
                let running = matches!(job.stage(now), Stage::Pending | Stage::Running);
                if running && job.stopped.is_none() {
                    job.stopped = Some(now + STOPPING);
                }
                json_reply(&json!({"stopped": running}))
            }
            (Method::Delete, "", Some(job)) => {
                let stage = job.stage(now);
                if matches!(stage, Stage::Pending | Stage::Running) {
                    let name = if stage == Stage::Pending { "PENDING" } else { "RUNNING" };
                    let text = format!("Attempted to delete job '{id}', but it is in a non-terminal state {name}.\n");
                    return reply(500, PLAIN, &text);
                }
                self.jobs.remove(&id);
                json_reply(&json!({"deleted": true}))
            }
            _ => no_route(),
        }
    }
}

const PLAIN: &str = "text/plain; charset=utf-8";

fn reply(status: u16, content_type: &str, text: &str) -> Reply {
    Reply {
        status,
        headers: vec![("content-type".to_owned(), content_type.to_owned())],
        body: Arc::from(text.as_bytes().to_vec()),
    }
}

fn json_reply(body: &Value) -> Reply {
    reply(200, "application/json; charset=utf-8", &body.to_string())
}

fn no_route() -> Reply {
    reply(404, PLAIN, "404: Not Found")
}

/// The same number for the same words, within the range.
pub(super) fn draw((least, most): (u64, u64), words: &[&str]) -> Duration {
    Duration::from_millis(least + fnv(words) % (most.saturating_sub(least) + 1))
}

/// The whole number behind the first mention of a word: `sleep 3`, `time.sleep(3)`, `exit 1`.
fn after_word(text: &str, word: &str) -> Option<i64> {
    let rest = text[text.find(word)? + word.len()..].trim_start_matches([' ', '(']);
    let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
    digits.parse().ok()
}

fn decoded(segment: &str) -> String {
    let mut out = Vec::new();
    let mut bytes = segment.bytes();
    while let Some(byte) = bytes.next() {
        let code = [bytes.clone().next(), bytes.clone().nth(1)].map(|b| b.and_then(|b| char::from(b).to_digit(16)));
        match (byte, code) {
            (b'%', [Some(high), Some(low)]) => {
                out.push((high * 16 + low) as u8);
                bytes.nth(1);
            }
            _ => out.push(byte),
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sandbox::world::object::body as parsed;

    const POST: Method = Method::Post;
    const GET: Method = Method::Get;

    fn up() -> Dashboard {
        let mut dashboard = Dashboard::new(JobTimes { pending_ms: (100, 100), running_ms: (1000, 1000) });
        dashboard.head_up("h");
        dashboard
    }

    fn ask(d: &mut Dashboard, method: Method, target: &str, body: &str, now: i64) -> Reply {
        d.answer("h", method, target, body.as_bytes(), Time(now)).unwrap()
    }

    fn status(d: &mut Dashboard, id: &str, now: i64) -> String {
        parsed(&ask(d, GET, &format!("/api/jobs/{id}"), "", now))["status"].as_str().unwrap().to_owned()
    }

    #[test]
    fn a_job_walks_from_pending_to_its_end() {
        let mut d = up();
        assert_eq!(ask(&mut d, GET, "/api/jobs/a", "", 0).status, 404);
        ask(&mut d, POST, "/api/jobs/", r#"{"entrypoint": "python x.py", "submission_id": "a"}"#, 0);
        ask(&mut d, POST, "/api/jobs/", r#"{"entrypoint": "sleep 2; exit 3", "submission_id": "b"}"#, 0);
        assert_eq!(status(&mut d, "a", 50), "PENDING");
        assert_eq!(status(&mut d, "a", 100), "RUNNING");
        assert_eq!(status(&mut d, "a", 1100), "SUCCEEDED");
        assert_eq!(status(&mut d, "b", 2099), "RUNNING");
        assert_eq!(status(&mut d, "b", 2100), "FAILED");
    }

    #[test]
    fn an_id_is_taken_once_and_counted() {
        let mut d = up();
        let order = r#"{"entrypoint": "x", "submission_id": "a"}"#;
        assert_eq!(ask(&mut d, POST, "/api/jobs/", order, 0).status, 200);
        let again = ask(&mut d, POST, "/api/jobs/", order, 1);
        assert_eq!(again.status, 500);
        assert!(String::from_utf8_lossy(&again.body).contains("already exists"));
        assert_eq!(d.submissions("a"), 1);
        d.head_gone("h");
        assert!(d.answer("h", GET, "/api/jobs/a", b"", Time(0)).is_none());
        d.head_up("h");
        ask(&mut d, POST, "/api/jobs/", order, 2);
        assert_eq!(d.submissions("a"), 2, "a new head knows no old ids");
    }

    #[test]
    fn a_stop_is_seen_some_time_later() {
        let mut d = up();
        ask(&mut d, POST, "/api/jobs/", r#"{"entrypoint": "sleep 600", "submission_id": "a"}"#, 0);
        assert_eq!(parsed(&ask(&mut d, POST, "/api/jobs/a/stop", "", 500)), json!({"stopped": true}));
        assert_eq!(status(&mut d, "a", 501), "RUNNING");
        assert_eq!(status(&mut d, "a", 1900), "STOPPED");
        assert_eq!(parsed(&ask(&mut d, POST, "/api/jobs/a/stop", "", 2000)), json!({"stopped": false}));
    }

    /// Every answer about jobs has the fields, status and content type of the recorded one.
    #[test]
    fn answers_have_the_shape_of_the_recorded_ones() {
        let shared = std::env::var("RAYFLEET_SHARED")
            .unwrap_or_else(|_| concat!(env!("CARGO_MANIFEST_DIR"), "/../shared").to_owned());
        let read = |name: &str| {
            std::fs::read_to_string(format!("{shared}/ray-api/{name}"))
                .unwrap_or_else(|e| panic!("recordings are needed, set RAYFLEET_SHARED: {name}: {e}"))
        };
        let index: Vec<Value> = serde_json::from_str(&read("index.json")).unwrap();
        let mut d = up();
        ask(&mut d, POST, "/api/jobs/", r#"{"entrypoint": "sleep 5", "submission_id": "ok"}"#, 0);
        ask(&mut d, POST, "/api/jobs/", r#"{"entrypoint": "exit 3", "submission_id": "bad"}"#, 0);
        ask(&mut d, POST, "/api/jobs/", r#"{"entrypoint": "sleep 600", "submission_id": "halt"}"#, 0);
        ask(&mut d, POST, "/api/jobs/halt/stop", "", 1000);
        let cases = [
            ("version.json", GET, "/api/version", "", 0),
            ("gcs_healthz.txt", GET, "/api/gcs_healthz", "", 0),
            ("authentication_mode_disabled.json", GET, "/api/authentication_mode", "", 0),
            ("unknown_path.txt", GET, "/api/nosuch", "", 0),
            ("jobs_no_trailing_slash.txt", GET, "/api/jobs", "", 0),
            ("job_get_unknown.txt", GET, "/api/jobs/nope", "", 0),
            ("job_get_pending.json", GET, "/api/jobs/ok", "", 50),
            ("job_get_running.json", GET, "/api/jobs/ok", "", 2000),
            ("job_get_succeeded.json", GET, "/api/jobs/ok", "", 9000),
            ("job_get_failed_exit_code.json", GET, "/api/jobs/bad", "", 9000),
            ("job_get_stopped.json", GET, "/api/jobs/halt", "", 9000),
            ("job_logs_succeeded.json", GET, "/api/jobs/ok/logs", "", 9000),
            ("job_logs_unknown.txt", GET, "/api/jobs/nope/logs", "", 0),
            ("job_stop_finished.json", POST, "/api/jobs/ok/stop", "", 9000),
            ("job_stop_unknown.txt", POST, "/api/jobs/nope/stop", "", 0),
            ("job_submit_bad_json.txt", POST, "/api/jobs/", "{not json", 0),
            ("job_submit_no_entrypoint.txt", POST, "/api/jobs/", r#"{"submission_id": "x"}"#, 0),
            ("job_submit_unknown_field.txt", POST, "/api/jobs/", r#"{"entrypoint": "true", "nosuchfield": 1}"#, 0),
            ("job_submit_no_id.json", POST, "/api/jobs/", r#"{"entrypoint": "true"}"#, 0),
            (
                "job_submit_duplicate_while_running.txt",
                POST,
                "/api/jobs/",
                r#"{"entrypoint": "x", "submission_id": "ok"}"#,
                0,
            ),
            ("job_delete_running.txt", Method::Delete, "/api/jobs/ok", "", 2000),
            ("job_delete_stopped.json", Method::Delete, "/api/jobs/halt", "", 9000),
            ("job_delete_unknown.txt", Method::Delete, "/api/jobs/nope", "", 0),
        ];
        for (file, method, target, body, at) in cases {
            let recorded = index.iter().find(|e| e["file"] == file).expect(file);
            let reply = ask(&mut d, method, target, body, at);
            assert_eq!(json!(reply.status), recorded["status"], "{file}");
            assert_eq!(json!(reply.headers[0].1), recorded["content_type"], "{file}");
            if let Ok(wanted) = serde_json::from_str::<Value>(&read(file)) {
                let keys = |v: &Value| v.as_object().map(|o| o.keys().cloned().collect::<Vec<_>>());
                let mine = parsed(&reply);
                assert_eq!(keys(&mine), keys(&wanted), "{file}");
                for field in ["type", "status", "message", "error_type", "driver_exit_code", "stopped", "deleted"] {
                    if field != "message" || wanted["status"] != "FAILED" {
                        assert_eq!(mine[field], wanted[field], "{file}: {field}");
                    }
                }
            }
        }
    }
}
