//! Which client owns which field of an object (`metadata.managedFields`), and server-side apply on top of it.
//! Must not know requests or the store. Source: what `structured-merge-diff` 6 and `apimachinery` 0.36 do.

mod managers;
mod set;
mod view;
mod walk;

pub(super) use managers::{ApplyError, Writer, apply, update};
pub(super) use view::View;

/// What of a configuration does not fit its type, in the words of a real server.
pub(super) fn unknown(view: View, config: &serde_json::Value) -> Vec<String> {
    walk::misfits(view, config)
}
