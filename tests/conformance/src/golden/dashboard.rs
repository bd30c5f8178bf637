//! The one dashboard behind all Services: jobs that walk from state to state with each question, and forget nothing when a
//! head goes.
//! Must not know who asks, nor what a pod is.

use std::collections::BTreeMap;
use std::sync::Arc;

use rayfleet::api::Time;
use rayfleet::api::wire::{Method, Reply};
use rayfleet::sandbox::apiserver::ProxyCall;
use rayfleet::sandbox::world::resource::Resource;
use rayfleet::sandbox::world::{Surrounding, WorldEvent, WorldRequest};
use serde_json::{Value, json};

/// States of a job where a case names none.
const STATES: &[&str] = &["PENDING", "RUNNING", "SUCCEEDED"];

/// One Ray job.
#[derive(Clone, Debug, Default)]
struct Job {
    /// How often its state was asked for.
    asked: usize,
    stopped: bool,
    entrypoint: String,
    begun: Option<Time>,
    /// When an answer first told that it has ended, and how.
    told: Option<(Time, String)>,
}

/// The dashboard.
#[derive(Debug)]
pub(super) struct Dashboard {
    /// States that every job walks through.
    pub(super) states: Vec<String>,
    /// Status code of every answer, if it is to fail.
    pub(super) fails_with: Option<u16>,
    jobs: BTreeMap<String, Job>,
}

impl Default for Dashboard {
    fn default() -> Self {
        let states = STATES.iter().map(|&state| state.to_owned()).collect();
        Self { states, fails_with: None, jobs: BTreeMap::new() }
    }
}

impl Dashboard {
    /// The job is known from now on.
    pub(super) fn register(&mut self, id: &str, entrypoint: &str) {
        let job = self.jobs.entry(id.to_owned()).or_default();
        entrypoint.clone_into(&mut job.entrypoint);
    }

    /// When somebody was first told that the job has ended, and in which state.
    pub(super) fn told(&self, id: &str) -> Option<(Time, &str)> {
        self.jobs.get(id)?.told.as_ref().map(|(at, state)| (*at, state.as_str()))
    }

    fn answer(&mut self, method: Method, target: &str, body: &[u8], now: Time) -> Reply {
        if let Some(status) = self.fails_with {
            return reply(status, "dashboard failure");
        }
        let path = target.split('?').next().unwrap_or_default();
        let Some(rest) = path.strip_prefix("/api/jobs/") else { return reply(404, "404: Not Found") };
        match (method, rest.strip_suffix("/stop").unwrap_or(rest)) {
            (Method::Post, "") => self.submit(body),
            (Method::Get, id) => self.ask(id, now),
            (Method::Post, id) => match self.jobs.get_mut(id) {
                Some(job) => {
                    job.stopped = true;
                    json_reply(&json!({ "stopped": true }))
                }
                None => reply(404, &format!("Job {id} does not exist")),
            },
            _ => reply(405, "405: Method Not Allowed"),
        }
    }

    fn submit(&mut self, body: &[u8]) -> Reply {
        let Ok(order) = serde_json::from_slice::<Value>(body) else { return reply(400, "no JSON") };
        let text = |field: &str| order[field].as_str().unwrap_or_default();
        let id = text("submission_id");
        if self.jobs.contains_key(id) {
            return reply(
                500,
                &format!("Job with submission_id {id} already exists. Please use a different submission_id."),
            );
        }
        self.register(id, text("entrypoint"));
        json_reply(&json!({ "job_id": id, "submission_id": id }))
    }

    fn ask(&mut self, id: &str, now: Time) -> Reply {
        let states = &self.states;
        let Some(job) = self.jobs.get_mut(id) else { return reply(404, &format!("Job {id} does not exist")) };
        let last = states.len().saturating_sub(1);
        let walked = states.get(job.asked.min(last)).map_or("PENDING", String::as_str);
        let state = if job.stopped { "STOPPED" } else { walked };
        job.asked += 1;
        let message = match state {
            "PENDING" => "Job has not started yet. It may be waiting for the runtime environment to be set up.",
            "RUNNING" => "Job is currently running.",
            "SUCCEEDED" => "Job finished successfully.",
            "STOPPED" => "Job was intentionally stopped.",
            _ => {
                "Job entrypoint command failed with exit code 3, last available logs (truncated to 20,000 chars):\n1\n"
            }
        };
        let over = matches!(state, "SUCCEEDED" | "STOPPED" | "FAILED");
        if over && job.told.is_none() {
            job.told = Some((now, state.to_owned()));
        }
        let begun = *job.begun.get_or_insert(now);
        json_reply(&json!({
            "type": "SUBMISSION", "job_id": null, "submission_id": id, "driver_info": null, "status": state,
            "entrypoint": job.entrypoint, "message": message, "error_type": null,
            "start_time": begun.0, "end_time": over.then_some(now.0),
            "metadata": {}, "runtime_env": {}, "driver_agent_http_address": null, "driver_node_id": null,
            "driver_exit_code": null,
        }))
    }
}

impl Surrounding for Dashboard {
    fn name(&self) -> &'static str {
        "dashboard"
    }

    fn watches(&self) -> &[Arc<Resource>] {
        &[]
    }

    fn handle(&mut self, _event: &WorldEvent, _now: Time) -> Vec<WorldRequest> {
        Vec::new()
    }

    fn next_tick(&self) -> Option<Time> {
        None
    }

    fn proxy(&mut self, call: &ProxyCall, now: Time) -> Option<Reply> {
        Some(self.answer(call.request.method, &call.target, &call.request.body, now))
    }
}

fn reply(status: u16, text: &str) -> Reply {
    let headers = vec![("content-type".to_owned(), "text/plain; charset=utf-8".to_owned())];
    Reply { status, headers, body: text.as_bytes().into() }
}

fn json_reply(body: &Value) -> Reply {
    let headers = vec![("content-type".to_owned(), "application/json; charset=utf-8".to_owned())];
    Reply { status: 200, headers, body: body.to_string().into_bytes().into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_takes_one_step_with_each_question_and_stays_at_the_last() {
        let mut dashboard = Dashboard::default();
        let ask = |d: &mut Dashboard| {
            let reply = d.answer(Method::Get, "/api/jobs/a", b"", Time(7));
            serde_json::from_slice::<Value>(&reply.body).map_or(reply.status.to_string(), |v| v["status"].to_string())
        };
        assert_eq!(ask(&mut dashboard), "404");
        dashboard.register("a", "x");
        let walked: Vec<String> = (0..4).map(|_| ask(&mut dashboard)).collect();
        assert_eq!(walked, ["\"PENDING\"", "\"RUNNING\"", "\"SUCCEEDED\"", "\"SUCCEEDED\""]);
        assert_eq!(dashboard.told("a"), Some((Time(7), "SUCCEEDED")));
    }

    #[test]
    fn a_dashboard_that_fails_does_so_for_every_question() {
        let mut dashboard = Dashboard { fails_with: Some(500), ..Dashboard::default() };
        assert_eq!(dashboard.answer(Method::Post, "/api/jobs/", b"{}", Time(0)).status, 500);
    }
}
