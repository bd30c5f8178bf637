//! What a question to a Ray dashboard came to, where it was not even sent. How questions are asked and replies are read
//! stands in `engine::request`.
//! Must not know units, plans, or when something is asked.

use super::client::SendError;
use crate::api::wire::Reply;
use crate::engine::{RayOutcome, request};
use crate::plan::{JobAnswer, Question, SubmitOutcome};

pub use crate::engine::request::ask as request;

/// What the reply, or its absence, says about `question`.
pub fn outcome(question: &Question, reply: &Result<Reply, SendError>) -> RayOutcome {
    match (reply, question) {
        (Ok(reply), _) => request::answered(question, Some(reply)),
        (Err(error), Question::Job { .. }) => RayOutcome::Job(JobAnswer::Failed(error.to_string())),
        (Err(error), Question::Stop { .. }) => RayOutcome::Stop(Err(error.to_string())),
        (Err(SendError::NotSent(why)), Question::Submit { .. }) => {
            RayOutcome::Submit(SubmitOutcome::Refused(format!("not sent: {why}")))
        }
        (Err(SendError::NoAnswer(why)), Question::Submit { .. }) => {
            RayOutcome::Submit(SubmitOutcome::Unknown(why.clone()))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_submission_that_was_not_sent_is_known_not_to_have_happened() {
        let submit = Question::Submit { job: "a".into(), body: serde_json::Value::Null };
        let lost = outcome(&submit, &Err(SendError::NoAnswer("late".into())));
        assert_eq!(lost, RayOutcome::Submit(SubmitOutcome::Unknown("late".into())));
        let kept = outcome(&submit, &Err(SendError::NotSent("no connection".into())));
        assert_eq!(kept, RayOutcome::Submit(SubmitOutcome::Refused("not sent: no connection".into())));
    }
}
