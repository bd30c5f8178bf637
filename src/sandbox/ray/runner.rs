//! The small parent of one container, `rayfleet pod-runner`: starts it, and lets nothing of it outlive it or the sandbox.
//! Must not know pods, Ray or the sandbox's state: an order comes in, reports go out.
//!
//! Two stages, because nothing may run between fork and exec without `unsafe`: `hold` is the parent and a child subreaper,
//! so that whatever the container's processes leave behind becomes its own child; `enter` is the container's process,
//! which makes a session and a view of the file system, and then becomes the container's program.
//! The input of `hold` is a pipe from the sandbox: it closes when the sandbox ends, however it ends.

use std::fs;
use std::io::{self, BufRead, Read, Write};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Child, Command, ExitCode, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use nix::errno::Errno;
use nix::sys::prctl::{set_child_subreaper, set_pdeathsig};
use nix::sys::signal::{SigSet, Signal, kill};
use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid, waitpid};
use nix::unistd::{Pid, getpid, getppid, setsid};

use super::order::{Order, Report, Root, SUBCOMMAND, TERMINATE};
use super::root;

/// This program, also when its file has been replaced meanwhile.
const SELF: &str = "/proc/self/exe";
/// What a container's exit code is when its program could not be started (as containerd has it).
const NOT_STARTED: u8 = 128;

/// The subcommand. `args` are those after `pod-runner`: `hold`, `enter <pid of the parent>`, or `try <dir>` or
/// `try-user <dir>`, which say by their exit code whether a private root is possible, the second in a user namespace.
pub fn run(args: &[String]) -> ExitCode {
    match args.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["hold"] => hold(),
        ["enter", parent] => enter(parent),
        ["try", at] => try_root(Path::new(at), false),
        ["try-user", at] => try_root(Path::new(at), true),
        _ => complain("this subcommand is for the sandbox's own use"),
    }
}

/// First stage. Ends when everything below it has ended.
fn hold() -> ExitCode {
    // Only the sandbox's pipe and SIGKILL end a runner; Ctrl-C in a terminal is the sandbox's business.
    let signals = SigSet::from_iter([Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP]);
    if let Err(e) = signals.thread_block().and_then(|()| set_child_subreaper(true)) {
        return complain(&format!("cannot become the parent of a container: {e}"));
    }
    let mut line = String::new();
    let order: Order = match io::stdin().lock().read_line(&mut line).map(|_| serde_json::from_str(&line)) {
        Ok(Ok(order)) => order,
        Ok(Err(e)) => return complain(&format!("unreadable order: {e}")),
        Err(e) => return complain(&format!("no order: {e}")),
    };
    let main = match start(&order, &line) {
        Ok(child) => Pid::from_raw(child.id() as i32),
        Err(e) => {
            report(&Report::Ended { code: NOT_STARTED.into(), signal: None, failure: Some(e.to_string()) });
            return ExitCode::SUCCESS;
        }
    };
    report(&Report::Started { pid: main.as_raw() });

    // Held while children are counted and killed, and while one is taken off the list: no signal meets a reused number.
    let reaping = Arc::new(Mutex::new(Reaping { main: Some(main), status: None, kill_all: false }));
    let listening = Arc::clone(&reaping);
    thread::spawn(move || listen(&listening));
    while reap_one(&reaping) {}

    let status = reaping.lock().unwrap_or_else(PoisonError::into_inner).status.unwrap_or_default();
    report(&ended(status, &order.failure));
    ExitCode::SUCCESS
}

#[derive(Debug)]
struct Reaping {
    /// The main process until it has been reaped.
    main: Option<Pid>,
    status: Option<ExitStatus>,
    /// The main process has ended, or the sandbox says so: whatever becomes a child from now on is killed.
    kill_all: bool,
}

fn start(order: &Order, line: &str) -> io::Result<Child> {
    let log = fs::OpenOptions::new().create(true).append(true).open(&order.log)?;
    let mut child = Command::new(SELF)
        .arg0("rayfleet")
        .args([SUBCOMMAND, "enter", &getpid().to_string()])
        .stdin(Stdio::piped())
        .stdout(log.try_clone()?)
        .stderr(log)
        .spawn()?;
    let mut input = child.stdin.take().expect("the pipe was asked for in this function");
    input.write_all(line.as_bytes())?;
    Ok(child)
}

/// Waits for the end of any child and takes it off the list. When the main process has ended, the rest is killed.
/// False when there is no child left.
fn reap_one(reaping: &Mutex<Reaping>) -> bool {
    // Looks without taking: the lock is not held while waiting.
    match waitid(Id::All, WaitPidFlag::WEXITED | WaitPidFlag::WNOWAIT) {
        Ok(_) | Err(Errno::EINTR) => {}
        Err(_) => return false,
    }
    let mut state = reaping.lock().unwrap_or_else(PoisonError::into_inner);
    let ended = waitpid(None, Some(WaitPidFlag::WNOHANG));
    if let Some((pid, status)) = ended.ok().and_then(exit_of)
        && state.main == Some(pid)
    {
        (state.main, state.status, state.kill_all) = (None, Some(status), true);
    }
    if state.kill_all {
        // Children only, and again after each that ended: what it left behind is a child now.
        kill_children();
    }
    true
}

fn exit_of(status: WaitStatus) -> Option<(Pid, ExitStatus)> {
    match status {
        WaitStatus::Exited(pid, code) => Some((pid, ExitStatus::from_raw(code << 8))),
        WaitStatus::Signaled(pid, signal, _) => Some((pid, ExitStatus::from_raw(signal as i32))),
        _ => None,
    }
}

/// Carries out what the sandbox says until the pipe closes, then kills everything.
fn listen(reaping: &Mutex<Reaping>) {
    for line in io::stdin().lock().lines() {
        match line {
            Ok(line) if line == TERMINATE => {
                let state = reaping.lock().unwrap_or_else(PoisonError::into_inner);
                if let Some(main) = state.main {
                    // Cannot fail: the process exists until it is reaped, which needs the lock.
                    let _ = kill(main, Signal::SIGTERM);
                }
            }
            Ok(_) => {}
            Err(_) => break,
        }
    }
    let mut state = reaping.lock().unwrap_or_else(PoisonError::into_inner);
    state.kill_all = true;
    kill_children();
}

/// SIGKILL for every direct child. The caller holds the lock on reaping, so none of the numbers can be another's.
fn kill_children() {
    for pid in children(getpid()) {
        // A child that has ended meanwhile is a zombie, for which this is no error.
        let _ = kill(pid, Signal::SIGKILL);
    }
}

/// Processes whose parent is `of`. From `stat`, since not every kernel has `/proc/PID/task/*/children`.
fn children(of: Pid) -> Vec<Pid> {
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    let pids = entries.filter_map(|e| e.ok()?.file_name().to_str()?.parse::<i32>().ok());
    pids.filter(|pid| parent_of(*pid) == Some(of.as_raw())).map(Pid::from_raw).collect()
}

fn parent_of(pid: i32) -> Option<i32> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name may hold anything, also brackets: the fields after it begin behind the last one.
    stat.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse().ok()
}

fn ended(status: ExitStatus, failure: &Path) -> Report {
    let failure = fs::read_to_string(failure).ok().filter(|text| !text.is_empty());
    let signal = status.signal();
    let code = status.code().unwrap_or_else(|| 128 + signal.unwrap_or(0));
    Report::Ended { code, signal, failure }
}

/// A reader that is gone is no reason to stop: the end of the input already says what to do.
fn report(report: &Report) {
    let line = serde_json::to_string(report).expect("a report is plain data");
    let mut out = io::stdout().lock();
    let _ = writeln!(out, "{line}").and_then(|()| out.flush());
}

/// Second stage: becomes the container's program, or says why not and ends.
fn enter(parent: &str) -> ExitCode {
    let mut line = String::new();
    let order: Order = match io::stdin().lock().read_to_string(&mut line).map(|_| serde_json::from_str(&line)) {
        Ok(Ok(order)) => order,
        Ok(Err(e)) => return complain(&format!("unreadable order: {e}")),
        Err(e) => return complain(&format!("no order: {e}")),
    };
    let why = match become_program(&order, parent) {
        Ok(never) => match never {},
        Err(why) => why,
    };
    // The failure file lies outside of the new root's mounts, but inside the machine's files, which are visible in both.
    if let Err(e) = fs::write(&order.failure, &why) {
        return complain(&format!("{why} (and this could not be reported: {e})"));
    }
    complain(&why)
}

fn become_program(order: &Order, parent: &str) -> Result<std::convert::Infallible, String> {
    setsid().map_err(|e| format!("no session of its own: {e}"))?;
    // The runner's mask is inherited.
    SigSet::all().thread_unblock().map_err(|e| format!("no signals: {e}"))?;
    if let Some(root) = &order.root {
        root::enter(root).map_err(|e| format!("volumes cannot be mounted: {e}"))?;
    }
    // After the namespace: a change of credentials forgets it. Should the parent be killed, the main process goes too.
    set_pdeathsig(Signal::SIGKILL).map_err(|e| format!("no death signal: {e}"))?;
    if getppid().to_string() != parent {
        return Err("the runner has ended".into());
    }
    let (program, args) = order.argv.split_first().ok_or("no command")?;
    let error = Command::new(program)
        .args(args)
        .env_clear()
        .envs(&order.env)
        .current_dir(&order.cwd)
        .stdin(Stdio::null())
        .exec();
    Err(format!("exec {program} in {}: {error}", order.cwd.display()))
}

/// Does what [`enter`] does to its root, for a file that does not exist on the machine.
fn try_root(dir: &Path, user: bool) -> ExitCode {
    let source = dir.join("source");
    let target = Path::new("/rayfleet-probe/volume");
    let at = dir.join("root");
    let tried = fs::create_dir_all(&source)
        .and_then(|()| fs::create_dir_all(&at))
        .and_then(|()| fs::write(source.join("file"), "there"))
        .map_err(|e| e.to_string())
        .and_then(|()| {
            let mount = super::order::Mount { source, target: target.into(), read_only: true };
            root::enter(&Root { at, user, mounts: vec![mount] }).map_err(|e| e.to_string())
        })
        .and_then(|()| fs::read_to_string(target.join("file")).map_err(|e| e.to_string()));
    match tried {
        Ok(_) => ExitCode::SUCCESS,
        Err(why) => complain(&why),
    }
}

fn complain(what: &str) -> ExitCode {
    // The container's log when it is there, else the sandbox's.
    let _ = writeln!(io::stderr(), "rayfleet: {what}");
    ExitCode::from(NOT_STARTED)
}
