//! Sends what `shards` asks to the Leases of one namespace on the hub, and says when they cannot be reached.
//! Must not know what a Lease means.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use shards::{Ask, Call, Failure, Input};
use tokio::sync::mpsc;
use tokio::task::AbortHandle;

use super::requests::{self, Answered, Asked};
use crate::api::wire::Request;
use crate::shell::authority::Standing;
use crate::shell::client::{Client, Opened, SendError};
use crate::shell::clock::Clock;
use crate::shell::lanes::Lane;

/// A request that failed at once is answered no earlier than this: the core asks again at once.
const FAILURE_PAUSE: Duration = Duration::from_millis(250);

/// Trouble that lasts is said this often.
const COMPLAIN_EVERY: Duration = Duration::from_secs(30);

/// The Leases of one namespace on the hub.
pub(super) struct Leases {
    pub(super) client: Client,
    /// Made if it is missing.
    pub(super) namespace: String,
    /// Of one request.
    pub(super) limit: Duration,
    pub(super) clock: Arc<Clock>,
    pub(super) standing: Arc<Standing>,
    /// What goes wrong at present: `read`, `written`.
    pub(super) trouble: Mutex<BTreeMap<&'static str, Trouble>>,
}

/// Why Leases cannot be read or written.
pub(super) struct Trouble {
    /// When it was logged last.
    said: Instant,
    why: String,
}

impl Leases {
    /// Sends the request; its answer goes to `answers`, and all that a stream says.
    pub(super) fn ask(self: &Arc<Self>, call: Call, ask: Ask, answers: &mpsc::UnboundedSender<Input>) -> AbortHandle {
        let (this, answers) = (self.clone(), answers.clone());
        let task = tokio::spawn(async move {
            let answer = match &ask {
                Ask::Watch(_) => this.watch(call, &ask, &answers).await,
                _ => this.answer(call, &ask, &answers).await,
            };
            for why in &answer.skipped {
                tracing::warn!(%why, "a Lease was skipped");
            }
            if matches!(ask, Ask::Create(_)) && answer.failure == Some(Failure::Gone) {
                this.make_namespace().await;
            }
            let failed = answer.failure.is_some();
            this.complain(Asked::of(&ask), answer.failure);
            if failed {
                tokio::time::sleep(FAILURE_PAUSE).await;
            }
            // Nobody listens only when the process ends.
            let _ended = answers.send(answer.input);
        });
        task.abort_handle()
    }

    fn request(&self, ask: &Ask) -> Request {
        let limit_ms = u64::try_from(self.limit.as_millis()).unwrap_or(u64::MAX);
        requests::request(&self.namespace, ask, limit_ms, self.clock.now())
    }

    async fn answer(&self, call: Call, ask: &Ask, answers: &mpsc::UnboundedSender<Input>) -> Answered {
        let sent = self.standing.now();
        let reply = self.client.send(Lane::Leases, &self.request(ask), self.limit).await;
        if let Some(seconds) = reply.as_ref().ok().and_then(requests::hub_seconds) {
            // Nobody listens only when the process ends.
            let _ended = answers.send(Input::HubTime { seconds, sent });
        }
        requests::answered(call, Asked::of(ask), reply.as_ref().map_err(failure))
    }

    /// Passes a stream's lines on until it ends: how it ended.
    async fn watch(&self, call: Call, ask: &Ask, answers: &mpsc::UnboundedSender<Input>) -> Answered {
        let mut stream = match self.client.watch(&self.request(ask), self.limit).await {
            Ok(Opened::Stream(stream)) => stream,
            Ok(Opened::Reply(reply)) => return requests::answered(call, Asked::Watch, Ok(&reply)),
            Err(error) => return requests::answered(call, Asked::Watch, Err(failure(&error))),
        };
        loop {
            let line = match stream.next().await {
                Ok(Some(line)) => line,
                Ok(None) => return Answered { input: Input::Ended(call), failure: None, skipped: Vec::new() },
                Err(error) => {
                    let cut = Failure::Unknown(error.to_string());
                    return requests::answered(call, Asked::Watch, Err(cut));
                }
            };
            if let Some(input) = requests::line(call, &line) {
                // Nobody listens only when the process ends.
                let _ended = answers.send(input);
            }
        }
    }

    async fn make_namespace(&self) {
        let request = requests::make_namespace(&self.namespace);
        match self.client.send(Lane::Leases, &request, self.limit).await {
            Ok(reply) if reply.is_success() => {
                tracing::info!(namespace = %self.namespace, "made the namespace of the Leases");
            }
            Ok(reply) => {
                let status = reply.status;
                tracing::warn!(namespace = %self.namespace, status, "the namespace of the Leases is missing");
            }
            Err(error) => {
                tracing::warn!(namespace = %self.namespace, %error, "the namespace of the Leases is missing");
            }
        }
    }

    /// Says why Leases cannot be read or written: at the first time, and then not more often than every half minute; and
    /// when they can again. Reads and writes are told apart: who may read but not write has one lasting trouble. A lost
    /// race is none.
    fn complain(&self, asked: Asked, failure: Option<Failure>) {
        let mut trouble = self.trouble.lock().expect("no code panics while it holds the trouble");
        let what = if asked == Asked::Write { "written" } else { "read" };
        match failure {
            None | Some(Failure::Conflict | Failure::Gone) => {
                if trouble.remove(what).is_some() {
                    tracing::info!("the Leases on the hub can be {what} again");
                }
            }
            Some(Failure::Refused(why) | Failure::Unknown(why)) => {
                let lasting = trouble.get(what).map(|before| before.said);
                let said = match lasting {
                    Some(at) if at.elapsed() <= COMPLAIN_EVERY => at,
                    _ => {
                        tracing::warn!(%why, "the Leases on the hub cannot be {what}");
                        Instant::now()
                    }
                };
                trouble.insert(what, Trouble { said, why });
            }
        }
        let words: Vec<String> =
            trouble.iter().map(|(what, t)| format!("Leases cannot be {what}: {}", t.why)).collect();
        self.standing.trouble(words.join("; "));
    }
}

fn failure(error: &SendError) -> Failure {
    match error {
        SendError::NotSent(why) => Failure::Refused(why.clone()),
        SendError::NoAnswer(why) => Failure::Unknown(why.clone()),
    }
}
