//! What a panic in a task said. A process whose half is dead must not go on: whoever waits for a task hears it here.

use tokio::task::JoinError;

/// The words of the panic that ended a task; `None` for a task that was cancelled.
pub(super) fn words(error: JoinError) -> Option<String> {
    let said = error.try_into_panic().ok()?;
    let words = said.downcast_ref::<String>().cloned().or_else(|| said.downcast_ref::<&str>().map(ToString::to_string));
    Some(words.unwrap_or_else(|| "no words".to_owned()))
}
