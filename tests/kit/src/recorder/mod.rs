//! An independent recorder of a fleet on real API servers: watches every plane on a path of its own, reads who wrote what in
//! the planes' audit logs, writes one timeline, and checks what must hold across planes.
//! Shares no code with the product: plain HTTP, plain JSON, and names written down here once more.

pub mod history;
mod watcher;

use std::fs::File;
use std::io::{BufWriter, Write as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::Value;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use self::history::{History, Verdict};
use crate::real_fleet::audit::AuditLog;

/// How often audit logs are read on.
const LOOK_EVERY: Duration = Duration::from_millis(250);
/// What was written is seen within this time, or counts as missed.
const SEEN_WITHIN: Duration = Duration::from_secs(10);

/// A plane to be watched.
#[derive(Clone, Debug)]
pub struct Watched {
    /// Its name; `hub` for the hub.
    pub name: String,
    /// Kubeconfig (JSON, token and authority inline) of somebody who may read everything.
    pub kubeconfig: String,
    /// Its audit log.
    pub audit_log: PathBuf,
}

/// A recorder at work. Ends when it is dropped.
#[derive(Debug)]
pub struct Recorder {
    shared: Arc<Shared>,
    tasks: JoinSet<()>,
}

#[derive(Debug)]
struct Shared {
    history: Mutex<History>,
    timeline: Mutex<BufWriter<File>>,
    logs: Mutex<Vec<(String, AuditLog)>>,
}

impl Recorder {
    /// Starts to watch; returns once the first state of every plane is known. `user` is who the fleet's controllers are,
    /// `fleet` their fleet id. The timeline, a line of JSON for each event, goes to the file.
    pub async fn start(planes: &[Watched], user: &str, fleet: &str, timeline: &Path) -> Result<Self> {
        let file = File::create(timeline).with_context(|| timeline.display().to_string())?;
        let logs = planes.iter().map(|plane| (plane.name.clone(), AuditLog::of(plane.audit_log.clone()))).collect();
        let shared = Arc::new(Shared {
            history: Mutex::new(History::of(user, fleet)),
            timeline: Mutex::new(BufWriter::new(file)),
            logs: Mutex::new(logs),
        });
        let mut tasks = JoinSet::new();
        for plane in planes {
            watcher::start(plane, &shared, &mut tasks).await.with_context(|| plane.name.clone())?;
        }
        let reading = shared.clone();
        tasks.spawn(async move {
            loop {
                // A line that cannot be read is found again at the end.
                let _ = reading.read_logs();
                sleep(LOOK_EVERY).await;
            }
        });
        Ok(Self { shared, tasks })
    }

    /// Looks at what was recorded so far.
    pub fn with<T>(&self, look: impl FnOnce(&History) -> T) -> Result<T> {
        self.shared.read_logs()?;
        Ok(look(&self.shared.history()))
    }

    /// Waits until every accepted write was seen by a watch, as long as that may take, and judges.
    pub async fn finish(self) -> Result<Verdict> {
        let deadline = Instant::now() + SEEN_WITHIN;
        while self.with(|history| !history.unseen().is_empty())? && Instant::now() < deadline {
            sleep(LOOK_EVERY).await;
        }
        drop(self.tasks);
        self.shared.timeline.lock().unwrap_or_else(PoisonError::into_inner).flush()?;
        Ok(self.shared.history().judge())
    }
}

impl Shared {
    fn history(&self) -> std::sync::MutexGuard<'_, History> {
        self.history.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A line of a watch.
    fn event(&self, plane: &str, kind: &str, what: &str, object: &Value) {
        let line = self.history().event(plane, kind, what, object);
        self.write(&line);
    }

    /// All that a list holds, before its objects.
    fn listed(&self, plane: &str, kind: &str, objects: &[Value]) {
        let name = |object: &Value| {
            let field = |name: &str| object["metadata"][name].as_str().unwrap_or_default();
            format!("{}/{}", field("namespace"), field("name"))
        };
        self.history().listed(plane, kind, &objects.iter().map(name).collect());
    }

    fn read_logs(&self) -> Result<()> {
        for (plane, log) in self.logs.lock().unwrap_or_else(PoisonError::into_inner).iter_mut() {
            for entry in log.news()? {
                let line = self.history().asked(plane, &entry);
                if let Some(line) = line {
                    self.write(&line);
                }
            }
        }
        Ok(())
    }

    fn write(&self, line: &Value) {
        let mut timeline = self.timeline.lock().unwrap_or_else(PoisonError::into_inner);
        writeln!(timeline, "{line}").expect("the timeline can be written");
    }
}
