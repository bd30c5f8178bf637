//! The wish to end: SIGTERM or SIGINT.
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
