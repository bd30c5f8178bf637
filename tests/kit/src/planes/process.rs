//! One process: its output in a file, signals to it, and its end with that of its owner or of this whole process.
//! Must not know what it does.

use std::fs::{self, OpenOptions};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{LazyLock, mpsc};
use std::{io, thread};

use anyhow::{Context, Result, ensure};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// Lines of a log that an error shows.
const TAIL_LINES: usize = 12;
/// Tells the binary whose end is its own: tests/planes/main.go.
const PARENT_VARIABLE: &str = "PLANE_PARENT";

/// A running process, or one that has ended and was not looked at yet. Killed when dropped, also when it is stopped.
#[derive(Debug)]
pub(super) struct Process {
    child: Child,
    log: PathBuf,
}

impl Process {
    /// Starts the program; what it prints goes to the end of `log`.
    pub(super) fn start(program: &Path, args: &[String], log: PathBuf) -> Result<Self> {
        let output = OpenOptions::new().create(true).append(true).open(&log)?;
        let mut command = Command::new(program);
        command
            .args(args)
            .env(PARENT_VARIABLE, std::process::id().to_string())
            .stdin(Stdio::null())
            .stdout(output.try_clone()?)
            .stderr(output);
        let child = spawn(command).with_context(|| format!("{} cannot be started", program.display()))?;
        Ok(Self { child, log })
    }

    /// Sends a signal. Refuses where the process has ended: its number may be another's.
    pub(super) fn signal(&mut self, signal: Signal) -> Result<()> {
        let ended = self.ended();
        ensure!(ended.is_none(), "it has ended: {ended:?}");
        Ok(kill(Pid::from_raw(self.id() as i32), signal)?)
    }

    /// How it ended, if it has.
    pub(super) fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().ok().flatten()
    }

    /// Its process id.
    pub(super) fn id(&self) -> u32 {
        self.child.id()
    }

    /// The last lines that it printed.
    pub(super) fn tail(&self) -> String {
        let printed = fs::read(&self.log).unwrap_or_default();
        let printed = String::from_utf8_lossy(&printed);
        let lines: Vec<_> = printed.lines().collect();
        lines[lines.len().saturating_sub(TAIL_LINES)..].join("\n")
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Both fail only where it has ended and was reaped, which is what is wanted.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Starts a child from a thread that lives as long as this process does. To the kernel a child's parent is the thread that
/// made it: the child's wish to end with its parent would come true at the end of a test's thread or an idle runtime's.
fn spawn(command: Command) -> io::Result<Child> {
    type Order = (Command, mpsc::Sender<io::Result<Child>>);
    static ORDERS: LazyLock<mpsc::Sender<Order>> = LazyLock::new(|| {
        let (orders, inbox) = mpsc::channel::<Order>();
        thread::spawn(move || {
            for (mut command, answer) in inbox {
                answer.send(command.spawn()).expect("who orders waits for the answer");
            }
        });
        orders
    });
    let (answer, outcome) = mpsc::channel();
    ORDERS.send((command, answer)).expect("the thread ends with this process");
    outcome.recv().expect("the thread answers every order")
}
