//! The wish to end: SIGTERM or SIGINT, and for a child process the end of its parent.
//! Must not know what has to be done before the end.

use tokio::signal::unix::{SignalKind, signal};

/// Waits for the first signal that asks to end; gives its name.
pub async fn asked() -> std::io::Result<&'static str> {
    let mut term = signal(SignalKind::terminate())?;
    let mut int = signal(SignalKind::interrupt())?;
    Ok(tokio::select! {
        _ = term.recv() => "SIGTERM",
        _ = int.recv() => "SIGINT",
    })
}

/// Waits for the end of standard input: a parent that holds the other end of the pipe has ended, however it ended.
/// What comes in is thrown away. An error is the same as the end.
pub async fn input_closed() {
    let (closed, told) = tokio::sync::oneshot::channel();
    // A read cannot be called back: its thread ends with the process.
    std::thread::spawn(move || {
        let _read = std::io::copy(&mut std::io::stdin().lock(), &mut std::io::sink());
        // An error means that the process is ending for another reason.
        let _ending = closed.send(());
    });
    // Whether it was said or the thread has ended: there is no input any more.
    let _closed = told.await;
}
