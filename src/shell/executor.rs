//! Carries out one effect of the engine as one request, and says what came of it. Holds nothing across the wait but the
//! request; checks right before sending that it may.
//! Must not decide: actions are complete, replies are judged by `engine::request`.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::{Notify, mpsc};
use tokio::time::Instant;

use super::authority::Standing;
use super::client::{Client, SendError};
use super::clock::Clock;
use super::doors::Doors;
use super::lanes::Lane;
use super::ray;
use crate::api::{Cluster, Id};
use crate::engine::{Input, Outcome, Ticket, request};
use crate::plan::Action;

/// Time limit of a read.
const FETCH_LIMIT: Duration = Duration::from_secs(5);

/// One write as the engine asks for it.
#[derive(Debug)]
pub struct Write {
    /// Answered with this.
    pub ticket: Ticket,
    /// In whose name.
    pub unit: Arc<str>,
    /// Its epoch.
    pub epoch: u64,
    /// The write.
    pub action: Action,
    /// How long it may take.
    pub limit: Duration,
}

/// Sends the engine's requests.
#[derive(Clone, Debug)]
pub struct Executor {
    doors: Arc<Doors>,
    standing: Arc<Standing>,
    clock: Arc<Clock>,
    answers: mpsc::Sender<Input>,
    open: Arc<OpenRequests>,
}

impl Executor {
    /// Answers go to `answers`.
    pub fn new(doors: Arc<Doors>, standing: Arc<Standing>, clock: Arc<Clock>, answers: mpsc::Sender<Input>) -> Self {
        Self { doors, standing, clock, answers, open: Arc::default() }
    }

    /// Begins a write; its outcome comes as an answer.
    pub fn write(&self, write: Write) {
        let guard = self.open.enter(&write.unit);
        let this = self.clone();
        tokio::spawn(async move {
            let begun = Instant::now();
            let (limit, cluster) = (write.limit, write.action.cluster());
            let verb = verb(&write.action);
            let (answer, outcome) = this.carry_out(write).await;
            metrics::histogram!("rayfleet_request_seconds", "verb" => verb, "outcome" => outcome)
                .record(begun.elapsed().as_secs_f64());
            metrics::counter!("rayfleet_requests_total", "cluster" => cluster.to_string(), "verb" => verb, "outcome" => outcome)
                .increment(1);
            // Nobody listens any more: the process ends.
            let _ended = this.answers.send(answer).await;
            if outcome == "unknown" {
                // The server may act on it until its own limit: a unit is not given up before.
                tokio::time::sleep_until(begun + limit).await;
            }
            drop(guard);
        });
    }

    /// Begins a read of one object; it comes as an answer.
    pub fn fetch(&self, ticket: Ticket, cluster: &Cluster, id: Id) {
        let this = self.clone();
        let client = self.doors.get(cluster);
        let absent = format!("{cluster} cannot be reached");
        tokio::spawn(async move {
            let Some(client) = client else {
                let _ended = this.answers.send(Input::Fetched(ticket, this.clock.now(), Err(absent))).await;
                return;
            };
            let (begun, result) = this.read(&client, &id).await;
            let _ended = this.answers.send(Input::Fetched(ticket, begun, result)).await;
        });
    }

    async fn read(
        &self,
        client: &Client,
        id: &Id,
    ) -> (crate::api::Time, Result<Option<Arc<serde_json::Value>>, String>) {
        let turn = match client.turn(Lane::Effects, FETCH_LIMIT).await {
            Ok(turn) => turn,
            Err(error) => return (self.clock.now(), Err(error.to_string())),
        };
        let begun = self.clock.now();
        match client.send_now(&turn, &request::fetch(id), FETCH_LIMIT).await {
            Ok(reply) => (begun, request::fetched(id, Some(&reply))),
            Err(error) => (begun, Err(error.to_string())),
        }
    }

    /// Sends, and gives the answer for the engine and the outcome as a metric's label.
    async fn carry_out(&self, write: Write) -> (Input, &'static str) {
        let Write { ticket, unit, epoch, action, limit } = write;
        let not_sent = |why: String| (Input::Done(ticket, Outcome::NotSent(why)), "not_sent");
        let Some(client) = self.doors.get(&action.cluster()) else {
            return not_sent(format!("{} cannot be reached", action.cluster()));
        };
        let is_question = matches!(action, Action::Ask { .. });
        let lane = if is_question { Lane::Dashboards } else { Lane::Effects };
        // The limit holds for all of it: the engine judges by it when a missing answer can come no more.
        let deadline = Instant::now() + limit;
        let turn = match client.turn(lane, limit).await {
            Ok(turn) => turn,
            Err(error) => return not_sent(error.to_string()),
        };
        // After every wait, right before the bytes leave.
        let Some(left) = self.standing.time_left(&unit, epoch) else {
            return not_sent(format!("the authority for {unit} at epoch {epoch} has ended"));
        };
        let limit = left.min(deadline.saturating_duration_since(Instant::now()));
        if limit.is_zero() {
            return not_sent("no time was left to send it".to_owned());
        }
        if let Action::Ask { dashboard, question, .. } = &action {
            let reply = client.send_now(&turn, &ray::request(dashboard, question), limit).await;
            if let Err(SendError::NotSent(why)) = reply {
                return not_sent(why);
            }
            return (
                Input::Ray(ticket, ray::outcome(question, &reply)),
                if reply.is_ok() { "answered" } else { "unknown" },
            );
        }
        let limit_ms = u64::try_from(limit.as_millis()).unwrap_or(u64::MAX);
        let Some(request) = request::write(&action, limit_ms) else {
            return not_sent("it is no write".to_owned());
        };
        let outcome = match client.send_now(&turn, &request, limit).await {
            Ok(reply) => request::outcome(&action, Some(&reply)),
            Err(SendError::NotSent(why)) => Outcome::NotSent(why),
            Err(SendError::NoAnswer(why)) => Outcome::Unknown(None, why),
        };
        let label = label(&outcome);
        (Input::Done(ticket, outcome), label)
    }

    /// Waits until nothing sent in the name of the unit can still have an effect.
    pub fn quiet(&self, unit: Arc<str>) -> impl Future<Output = ()> + Send + 'static {
        let open = self.open.clone();
        async move { open.quiet(&unit).await }
    }
}

fn verb(action: &Action) -> &'static str {
    match action {
        Action::Create { .. } => "create",
        Action::Replace { .. } => "replace",
        Action::Status { .. } => "status",
        Action::Merge { .. } => "merge",
        Action::Delete { .. } => "delete",
        Action::Ask { .. } => "ask",
    }
}

fn label(outcome: &Outcome) -> &'static str {
    match outcome {
        Outcome::Ok { .. } => "ok",
        Outcome::Exists => "exists",
        Outcome::Conflict => "conflict",
        Outcome::Gone => "gone",
        Outcome::Refused(..) => "refused",
        Outcome::NotSent(_) => "not_sent",
        Outcome::Unknown(..) => "unknown",
    }
}

/// Requests that may still have an effect, counted by unit.
#[derive(Debug, Default)]
struct OpenRequests {
    counts: Mutex<BTreeMap<Arc<str>, usize>>,
    closed: Notify,
}

struct OpenRequest {
    open: Arc<OpenRequests>,
    unit: Arc<str>,
}

impl OpenRequests {
    fn enter(self: &Arc<Self>, unit: &Arc<str>) -> OpenRequest {
        *self.counts.lock().expect("no code panics while it counts").entry(unit.clone()).or_default() += 1;
        OpenRequest { open: self.clone(), unit: unit.clone() }
    }

    async fn quiet(&self, unit: &str) {
        loop {
            let closed = self.closed.notified();
            tokio::pin!(closed);
            // Before the look: a request that closes in between is not missed.
            closed.as_mut().enable();
            if !self.counts.lock().expect("no code panics while it counts").contains_key(unit) {
                return;
            }
            closed.await;
        }
    }
}

impl Drop for OpenRequest {
    fn drop(&mut self) {
        let mut counts = self.open.counts.lock().expect("no code panics while it counts");
        if let Some(count) = counts.get_mut(&self.unit) {
            *count -= 1;
            if *count == 0 {
                counts.remove(&self.unit);
            }
        }
        drop(counts);
        self.open.closed.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use shards::{Authority, Mono};

    use super::*;
    use crate::api::{Kind, Version};
    use crate::shell::scripted::{Scripted, Step};

    const LIMIT: Duration = Duration::from_secs(20);

    struct Bench {
        executor: Executor,
        standing: Arc<Standing>,
        answers: mpsc::Receiver<Input>,
        cluster: Cluster,
        server: Option<Scripted>,
    }

    async fn bench(steps: Vec<Step>) -> Bench {
        let server = Scripted::start(steps).await;
        let doors = Arc::new(Doors::default());
        let client = server.client().await;
        let cluster = client.cluster().clone();
        doors.open(client);
        let standing = Arc::new(Standing::default());
        standing.publish(Authority { until: Some(Mono(600_000)), units: [("q-01".to_owned(), 3)].into() });
        let (sender, answers) = mpsc::channel(16);
        let executor = Executor::new(doors, standing.clone(), Arc::default(), sender);
        Bench { executor, standing, answers, cluster, server: Some(server) }
    }

    impl Bench {
        fn create(&self, epoch: u64, limit: Duration) {
            let action = Action::Create {
                cluster: self.cluster.clone(),
                id: Id::new(Kind::Pod, "ns", "a"),
                body: json!({"metadata": {"name": "a"}}),
            };
            self.executor.write(Write { ticket: Ticket(1), unit: "q-01".into(), epoch, action, limit });
        }

        async fn outcome(&mut self) -> Outcome {
            match tokio::time::timeout(LIMIT, self.answers.recv()).await.expect("an answer").expect("it runs") {
                Input::Done(Ticket(1), outcome) => outcome,
                other => panic!("{other:?}"),
            }
        }
    }

    #[tokio::test]
    async fn replies_and_their_absence_become_outcomes() {
        let ok = json!({"metadata": {"uid": "u", "resourceVersion": "8"}}).to_string();
        let mut bench = bench(vec![
            Step::Reply(201, ok),
            Step::Reply(409, json!({"reason": "AlreadyExists"}).to_string()),
            Step::Reply(409, json!({"reason": "Conflict"}).to_string()),
            Step::Reply(504, json!({"message": "etcd is slow"}).to_string()),
            Step::Reply(403, json!({"message": "no"}).to_string()),
            Step::Cut,
        ])
        .await;
        for wanted in [
            Outcome::Ok { uid: "u".into(), version: Version(8) },
            Outcome::Exists,
            Outcome::Conflict,
            Outcome::Unknown(Some(504), "etcd is slow".into()),
            Outcome::Refused(403, "no".into()),
        ] {
            bench.create(3, LIMIT);
            assert_eq!(bench.outcome().await, wanted);
        }
        bench.create(3, LIMIT);
        let lost = bench.outcome().await;
        assert!(matches!(&lost, Outcome::Unknown(None, why) if !why.is_empty()), "{lost:?}");
    }

    #[tokio::test]
    async fn without_authority_nothing_is_sent() {
        let mut bench = bench(vec![]).await;
        bench.create(2, LIMIT);
        assert!(matches!(bench.outcome().await, Outcome::NotSent(why) if why.contains("authority")));
        bench.standing.publish(Authority::default());
        bench.create(3, LIMIT);
        assert!(matches!(bench.outcome().await, Outcome::NotSent(_)));
        assert_eq!(bench.server.as_ref().map(|s| s.seen().len()), Some(0));
    }

    #[tokio::test]
    async fn a_server_that_is_gone_means_not_sent() {
        let mut bench = bench(vec![]).await;
        let server = bench.server.take();
        drop(server);
        // The listener closes when its task has ended.
        let outcome = loop {
            bench.create(3, Duration::from_millis(500));
            let outcome = bench.outcome().await;
            if !matches!(outcome, Outcome::Unknown(..)) {
                break outcome;
            }
        };
        assert!(matches!(outcome, Outcome::NotSent(_)), "{outcome:?}");
    }

    #[tokio::test]
    async fn a_unit_is_quiet_only_after_the_limit_of_an_unknown_write() {
        let mut bench = bench(vec![Step::Cut, Step::Hang]).await;
        let limit = Duration::from_millis(300);
        let begun = Instant::now();
        bench.create(3, limit);
        assert!(matches!(bench.outcome().await, Outcome::Unknown(..)));
        tokio::time::timeout(LIMIT, bench.executor.quiet("q-01".into())).await.unwrap();
        assert!(begun.elapsed() >= limit);
        tokio::time::timeout(LIMIT, bench.executor.quiet("q-02".into())).await.unwrap();
    }
}
