//! One event of a watch, as text and as object: whichever is asked for is made, once for all that are told.
//! Must not know who watches.

use std::fmt;
use std::sync::{Arc, OnceLock};

use serde_json::Value;

use super::store::{Change, What};

/// One event of a watch. Cheap to clone.
#[derive(Clone)]
pub struct WatchEvent(Form);

#[derive(Clone)]
enum Form {
    /// A change in the stored form, named as the watcher sees it.
    Stored(Arc<Change>, What),
    /// Anything else, ready as text.
    Written(Arc<Written>),
}

struct Written {
    kind: &'static str,
    text: Arc<[u8]>,
    object: OnceLock<Arc<Value>>,
}

impl WatchEvent {
    pub(super) fn of_change(change: Arc<Change>, what: What) -> Self {
        Self(Form::Stored(change, what))
    }

    /// `object` is the text of the object.
    pub(super) fn written(kind: &'static str, object: &[u8]) -> Self {
        Self(Form::Written(Arc::new(Written { kind, text: line(kind, object), object: OnceLock::new() })))
    }

    /// One line of another API server's watch, without the line feed; `None` where it is none.
    pub fn received(line: &[u8]) -> Option<Self> {
        let mut event: Value = serde_json::from_slice(line).ok()?;
        let known = ["ADDED", "MODIFIED", "DELETED", "BOOKMARK", "ERROR"];
        let kind = known.into_iter().find(|kind| event["type"] == *kind)?;
        let object = OnceLock::from(Arc::new(event["object"].take()));
        Some(Self(Form::Written(Arc::new(Written { kind, text: line.into(), object }))))
    }

    /// `ADDED`, `MODIFIED`, `DELETED`, `BOOKMARK` or `ERROR`.
    pub fn kind(&self) -> &'static str {
        match &self.0 {
            Form::Stored(_, what) => what.name(),
            Form::Written(written) => written.kind,
        }
    }

    /// `{"type":…,"object":…}` without the line feed.
    pub fn text(&self) -> &Arc<[u8]> {
        match &self.0 {
            Form::Stored(change, what) => change.line(*what),
            Form::Written(written) => &written.text,
        }
    }

    /// The object in it: what a reader of the text would get.
    pub fn object(&self) -> &Arc<Value> {
        match &self.0 {
            Form::Stored(change, _) => &change.new.value,
            Form::Written(written) => written.object.get_or_init(|| {
                let mut event: Value = serde_json::from_slice(&written.text).expect("the server writes JSON");
                Arc::new(event["object"].take())
            }),
        }
    }
}

impl PartialEq for WatchEvent {
    fn eq(&self, other: &Self) -> bool {
        self.text() == other.text()
    }
}

impl Eq for WatchEvent {}

impl fmt::Debug for WatchEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&String::from_utf8_lossy(self.text()))
    }
}

/// `{"type":…,"object":…}`.
pub(super) fn line(kind: &str, object: &[u8]) -> Arc<[u8]> {
    let mut line = Vec::with_capacity(object.len() + kind.len() + 22);
    line.extend_from_slice(b"{\"type\":\"");
    line.extend_from_slice(kind.as_bytes());
    line.extend_from_slice(b"\",\"object\":");
    line.extend_from_slice(object);
    line.push(b'}');
    line.into()
}
