//! Answers of Ray dashboards: where they are kept, and what a missing one means.
//! Must not know what a reply looks like.

use std::time::Duration;

use super::answers::READ_BACK_AGAIN;
use super::inflight::{Flight, Purpose};
use super::{Effect, Engine, Outcome, RayOutcome, Ticket};
use crate::api::Time;
use crate::plan::{Action, JobAnswer, Question, SubmitOutcome};

impl Engine {
    pub(super) fn ray_answered(&mut self, ticket: Ticket, outcome: RayOutcome, now: Time, out: &mut Vec<Effect>) {
        let Some(flight) = self.inflight.answered(ticket) else { return };
        let Purpose::Write(action) = &flight.purpose else { return };
        let action = (**action).clone();
        self.ray_ended(ticket, &flight, &action, outcome, now, out);
    }

    pub(super) fn ray_ended(
        &mut self,
        ticket: Ticket,
        flight: &Flight,
        action: &Action,
        outcome: RayOutcome,
        now: Time,
        out: &mut Vec<Effect>,
    ) {
        if let Action::Ask { member, dashboard, question } = action {
            let view = (member.clone(), dashboard.clone(), question.job().clone());
            let view = self.rays.jobs.entry(view).or_default();
            match outcome {
                RayOutcome::Job(answer) => view.answer = Some((now, answer)),
                RayOutcome::Submit(outcome) => {
                    view.submitted = Some((now, outcome.clone()));
                    self.submission_ended(flight, outcome, now);
                }
                RayOutcome::Stop(Ok(())) => view.stopped = Some(now),
                RayOutcome::Stop(Err(why)) => {
                    self.inflight.mark_failed(&flight.key);
                    self.journal.trouble(&flight.key, format!("stopping the Ray job: {why}"));
                    self.queue.put(&flight.key, now + READ_BACK_AGAIN);
                    self.queue.hold_until(&flight.key, now + Duration::from_secs(1));
                }
            }
        }
        self.finish(ticket, flight, now, out);
    }

    /// A submission that may yet be carried out starts work: it counts as any other write. (A stop can start nothing, and
    /// names a job that no other generation has: one without an answer is repeated, and leaves nothing to be feared.)
    fn submission_ended(&mut self, flight: &Flight, outcome: SubmitOutcome, now: Time) {
        match outcome {
            SubmitOutcome::Accepted | SubmitOutcome::Exists => self.journal.success(&flight.key),
            SubmitOutcome::Refused(_) => {}
            SubmitOutcome::Unknown(why) => {
                self.left_unknown(flight);
                self.inflight.mark_failed(&flight.key);
                let failures =
                    self.journal.trouble(&flight.key, format!("submitting the Ray job: outcome unknown: {why}"));
                let delay = self.back_off(failures);
                self.queue.hold_until(&flight.key, now + delay);
            }
        }
    }
}

/// A question that got no answer, in terms of its answers.
pub(super) fn no_answer(question: &Question, outcome: &Outcome) -> RayOutcome {
    let text = match outcome {
        Outcome::NotSent(why) => format!("not sent: {why}"),
        Outcome::Refused(status, why) | Outcome::Unknown(Some(status), why) => format!("{status}: {why}"),
        Outcome::Unknown(None, why) => why.clone(),
        _ => "no answer".to_owned(),
    };
    match question {
        Question::Job { .. } => RayOutcome::Job(JobAnswer::Failed(text)),
        Question::Stop { .. } => RayOutcome::Stop(Err(text)),
        Question::Submit { .. } if matches!(outcome, Outcome::NotSent(_) | Outcome::Refused(..)) => {
            RayOutcome::Submit(SubmitOutcome::Refused(text))
        }
        Question::Submit { .. } => RayOutcome::Submit(SubmitOutcome::Unknown(text)),
    }
}
