//! The processes of the demo: this very program as sandbox and as controller, with their logs in files.
//! Must not know what they are for. They end with the demo, however it ends: their standard input is a pipe from it.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use tokio::process::{Child, Command};

/// How long a process may take to end in order before it is killed.
const GRACE: Duration = Duration::from_secs(20);
/// How much of a log an error shows.
const LAST_LINES: usize = 5;

/// One process.
pub(super) struct Running {
    name: &'static str,
    child: Child,
    log: PathBuf,
}

impl Running {
    /// Starts `rayfleet <name> <arguments>`; its output is appended to `<log>` in `dir`.
    pub(super) fn start(name: &'static str, dir: &Path, log: &str, arguments: &[&std::ffi::OsStr]) -> Result<Self> {
        let log = dir.join(log);
        let open = || {
            let file = std::fs::OpenOptions::new().create(true).append(true).open(&log);
            file.with_context(|| format!("opening {}", log.display()))
        };
        let child = Command::new(std::env::current_exe()?)
            .arg(name)
            .args(arguments)
            .arg("--end-with-input")
            .stdin(Stdio::piped())
            .stdout(open()?)
            .stderr(open()?)
            .kill_on_drop(true)
            .spawn()
            .with_context(|| format!("starting rayfleet {name}"))?;
        Ok(Self { name, child, log })
    }

    /// Its process id; 0 once it has ended.
    pub(super) fn id(&self) -> u32 {
        self.child.id().unwrap_or_default()
    }

    /// An error with the end of its log if it has ended.
    pub(super) fn check(&mut self) -> Result<()> {
        let Some(status) = self.child.try_wait()? else { return Ok(()) };
        let text = std::fs::read_to_string(&self.log).unwrap_or_default();
        let lines: Vec<&str> = text.lines().collect();
        let last = lines[lines.len().saturating_sub(LAST_LINES)..].join("\n");
        bail!("rayfleet {} ended ({status}); {} ends with:\n{last}", self.name, self.log.display())
    }

    /// SIGKILL, and waits until it is gone.
    pub(super) async fn kill(mut self) -> Result<()> {
        self.child.kill().await.with_context(|| format!("killing rayfleet {}", self.name))
    }

    /// SIGTERM; does not wait.
    pub(super) fn ask_to_end(&self) {
        let Some(pid) = self.child.id().and_then(|id| i32::try_from(id).ok()) else { return };
        // An error means that it is gone already.
        let _gone = nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid), nix::sys::signal::Signal::SIGTERM);
    }

    /// SIGTERM, and SIGKILL where that is not enough.
    pub(super) async fn end(&mut self) {
        self.ask_to_end();
        if tokio::time::timeout(GRACE, self.child.wait()).await.is_err() {
            let _gone = self.child.kill().await;
        }
    }
}
