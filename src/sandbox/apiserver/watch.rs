//! Watches: where they start, what each of them sees of a change, bookmarks and time-outs; and the forms of objects.
//! Must not know how objects come to change.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};

use super::cause::Cause;
use super::list::Selectors;
use super::registry::ResourceType;
use super::route::View;
use super::server::{ApiServer, Call, Outcome};
use super::status_reply::{Refused, bad_request, expired, invalid_options, unclassified};
use super::store::{Change, What, written};
use super::table::{self, IncludeObject};
use super::{Answer, Line, WatchEvent, WatchId, text};
use crate::api::Time;

/// What a watch's alarm is for.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Due {
    Bookmark,
    End,
}

/// An open watch.
#[derive(Clone, Debug)]
pub(super) struct Watch {
    ty: Arc<ResourceType>,
    prefix: String,
    selectors: Selectors,
    view: View,
    bookmarks: bool,
    /// Changes up to this version are not told.
    from: u64,
    /// What rows of a table carry; unused in other forms.
    include: IncludeObject,
    /// Whether a table has gone out already: only the first has its columns.
    columns_sent: bool,
    opened: Time,
    ends: Time,
}

/// Time-out of a watch that asks for none: the real server's smallest.
const TIMEOUT: Duration = Duration::from_mins(30);
/// The last bookmark comes this long before the end.
const LAST_BOOKMARK: Duration = Duration::from_secs(2);

impl Watch {
    /// The event that this watch gets of a change, if any.
    pub(super) fn event(&mut self, change: &Arc<Change>, now: Time) -> Option<WatchEvent> {
        if change.version <= self.from || !change.key.starts_with(&self.prefix) {
            return None;
        }
        let before = change.old.as_ref().is_some_and(|e| self.selectors.matches(&e.value));
        let after = change.what != What::Deleted && self.selectors.matches(&change.new.value);
        let what = match (before, after) {
            (false, false) => return None,
            (false, true) => What::Added,
            (true, true) => What::Modified,
            (true, false) => What::Deleted,
        };
        if what == What::Deleted && change.what != What::Deleted {
            return Some(self.written(what, &change.left(), now));
        }
        if self.view == View::Object && self.ty.storage_api_version == self.ty.api_version() {
            return Some(WatchEvent::of_change(change.clone(), what));
        }
        Some(self.written(what, &change.new.value, now))
    }

    fn written(&mut self, what: What, object: &Value, now: Time) -> WatchEvent {
        let body = match self.view {
            View::Table => {
                let object = in_version(object, &self.ty);
                let meta = json!({"resourceVersion": object["metadata"]["resourceVersion"]});
                let mut table = table::render(&self.ty, &[&object], meta, now, self.include);
                if self.columns_sent {
                    table["columnDefinitions"] = Value::Null;
                }
                self.columns_sent = true;
                text::ordered(&table)
            }
            View::Object => written(&in_version(object, &self.ty), self.ty.builtin),
            _ => metadata_text_of_kind(object),
        };
        WatchEvent::written(what.name(), &body)
    }

    fn bookmark(&self, version: u64, initial_end: bool) -> WatchEvent {
        let mut object = if self.view == View::Object {
            json!({"kind": self.ty.kind, "apiVersion": self.ty.api_version()})
        } else {
            json!({"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1"})
        };
        object["metadata"] = json!({"resourceVersion": version.to_string()});
        if initial_end {
            object["metadata"]["annotations"] = json!({"k8s.io/initial-events-end": "true"});
        }
        WatchEvent::written("BOOKMARK", &written(&object, self.ty.builtin || self.view != View::Object))
    }
}

impl ApiServer {
    /// GET with `watch`.
    pub(super) fn open_watch(&mut self, call: &Call) -> Result<Outcome, Refused> {
        let timeout_s = call.query.number("timeoutSeconds")?.filter(|s| *s > 0);
        let initial = check_options(call)?;
        let mut selectors = Selectors::parse(call)?;
        if call.place.watch && !call.place.name.is_empty() {
            let only = format!("metadata.name={}", call.place.name);
            selectors.fields =
                super::selector::FieldSelector::parse(&only, call.ty()).expect("every type can be selected by name");
        }
        let asked = call.query.text("resourceVersion");
        let start: Option<u64> = match asked {
            None | Some("0") => None,
            Some(text) => Some(text.parse().map_err(|_| {
                unclassified(format!(
                    "resourceVersion: Invalid value: \"{text}\": strconv.ParseUint: parsing \"{text}\": invalid syntax"
                ))
            })?),
        };
        let ends = call.now + timeout_s.map_or(TIMEOUT, |s| Duration::from_secs(s.unsigned_abs()));
        let mut watch = Watch {
            ty: call.ty().clone(),
            prefix: call.place.prefix(),
            selectors,
            view: if call.form.view == View::MetadataList { View::Metadata } else { call.form.view },
            bookmarks: call.query.flag("allowWatchBookmarks").unwrap_or(false),
            from: 0,
            include: include_object(call),
            columns_sent: false,
            opened: call.now,
            ends,
        };
        let id = WatchId(self.next_watch);
        self.next_watch += 1;
        let state = match initial {
            Initial::Yes => true,
            Initial::No => false,
            Initial::Unsaid => start.is_none(),
        };
        let newest = self.store.version();
        if state {
            self.send_state(id, &mut watch, call.now);
            watch.from = newest;
            if watch.bookmarks {
                self.lines.push((id, Line::Event(watch.bookmark(newest, true))));
            }
        } else {
            watch.from = start.unwrap_or(newest);
            if let Err(refusal) = self.send_history(id, &mut watch, call.now) {
                let status = text::ordered(&refusal.status());
                self.lines.push((id, Line::Event(WatchEvent::written("ERROR", &status))));
                self.lines.push((id, Line::End));
                return Ok(Outcome::Answer(Answer::Watch(id)));
            }
        }
        self.register(id, watch);
        Ok(Outcome::Answer(Answer::Watch(id)))
    }

    fn send_state(&mut self, id: WatchId, watch: &mut Watch, now: Time) {
        let collection = self.store.collection(&watch.ty.storage_key);
        let plain = watch.view == View::Object && watch.ty.storage_api_version == watch.ty.api_version();
        let prefix = watch.prefix.clone();
        for (_, entry) in collection.range(&prefix, &prefix) {
            if watch.selectors.matches(&entry.value) {
                let event = if plain {
                    WatchEvent::written(What::Added.name(), entry.text())
                } else {
                    watch.written(What::Added, &entry.value, now)
                };
                self.lines.push((id, Line::Event(event)));
            }
        }
    }

    fn send_history(&mut self, id: WatchId, watch: &mut Watch, now: Time) -> Result<(), Refused> {
        let collection = self.store.collection(&watch.ty.storage_key);
        if watch.from < collection.floor {
            let (from, floor) = (watch.from, collection.floor);
            return Err(expired(format!("too old resource version: {from} ({floor})")));
        }
        let start = collection.changes.partition_point(|c| c.version <= watch.from);
        for change in collection.changes.range(start..) {
            if let Some(event) = watch.event(change, now) {
                self.lines.push((id, Line::Event(event)));
            }
        }
        Ok(())
    }

    fn register(&mut self, id: WatchId, watch: Watch) {
        self.due.insert((watch.ends, id, Due::End));
        if watch.bookmarks {
            self.due.insert((self.next_bookmark(&watch, watch.opened), id, Due::Bookmark));
        }
        self.watchers.entry(watch.ty.storage_key.clone()).or_default().insert(id);
        self.watches.insert(id, watch);
    }

    fn next_bookmark(&self, watch: &Watch, now: Time) -> Time {
        let period = Duration::from_millis(self.options.bookmark_period_ms.unsigned_abs());
        let last = watch.ends - LAST_BOOKMARK;
        if last > now { last.min(now + period) } else { watch.ends }
    }

    /// When `tick` has something to do; none without open watches.
    pub fn next_tick(&self) -> Option<Time> {
        self.due.first().map(|(time, _, _)| *time)
    }

    /// Sends the bookmarks that are due and ends the watches whose time is over.
    pub fn tick(&mut self, now: Time) {
        while let Some((time, id, due)) = self.due.first().copied()
            && time <= now
        {
            self.due.pop_first();
            let Some(watch) = self.watches.get(&id) else { continue };
            match due {
                Due::End => {
                    self.lines.push((id, Line::End));
                    self.close_watch(id);
                }
                Due::Bookmark => {
                    let event = watch.bookmark(self.store.version().max(watch.from), false);
                    let next = self.next_bookmark(watch, time.max(now));
                    if next < watch.ends {
                        self.due.insert((next, id, Due::Bookmark));
                    }
                    self.lines.push((id, Line::Event(event)));
                }
            }
        }
    }

    /// The client is gone, or the server has ended the watch.
    pub fn close_watch(&mut self, id: WatchId) {
        if let Some(watch) = self.watches.remove(&id)
            && let Some(ids) = self.watchers.get_mut(&watch.ty.storage_key)
        {
            ids.remove(&id);
            self.due.retain(|(_, other, _)| *other != id);
        }
    }

    /// Ends all watches of a resource that is no longer served.
    pub(super) fn end_watches(&mut self, storage_key: &str) {
        let ids: Vec<WatchId> = self.watchers.get(storage_key).into_iter().flatten().copied().collect();
        for id in ids {
            self.lines.push((id, Line::End));
            self.close_watch(id);
        }
    }
}

/// Whether the present state comes first.
enum Initial {
    Yes,
    No,
    /// It does where no version is named.
    Unsaid,
}

fn check_options(call: &Call) -> Result<Initial, Refused> {
    const AT: &str = "resourceVersionMatch";
    let query = call.query;
    let send = query.flag("sendInitialEvents");
    let matching = query.text(AT);
    let mut causes = Vec::new();
    if query.text("continue").is_some() {
        causes.push(Cause::forbidden(AT, "resourceVersionMatch is forbidden when continue is provided"));
    } else if send.is_some() {
        if matching != Some("NotOlderThan") {
            causes
                .push(Cause::forbidden(AT, "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan"));
        }
        if let Some(other) = matching.filter(|m| *m != "NotOlderThan") {
            causes.push(Cause::unsupported(AT, &other.into(), &["NotOlderThan".to_owned()]));
        }
    } else if matching.is_some() {
        causes.push(Cause::forbidden(
            AT,
            "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided",
        ));
    }
    if !causes.is_empty() {
        return Err(invalid_options("ListOptions", &causes));
    }
    Ok(match send {
        Some(true) => Initial::Yes,
        Some(false) => Initial::No,
        None => Initial::Unsaid,
    })
}

/// An object in the version of the type through which it is read.
pub(super) fn in_version<'a>(object: &'a Value, ty: &ResourceType) -> Cow<'a, Value> {
    let version = ty.api_version();
    if object["apiVersion"] == version.as_str() {
        return Cow::Borrowed(object);
    }
    let mut object = super::events::in_api_version(object.clone(), &version);
    if let Some(schema) = &ty.schema {
        schema.prune(&mut object);
        schema.default(&mut object);
    }
    Cow::Owned(object)
}

/// What rows of a table carry of their object.
pub(super) fn include_object(call: &Call) -> IncludeObject {
    call.query.get("includeObject").and_then(IncludeObject::parse).unwrap_or_default()
}

/// An object as metadata only, or as a table.
pub(super) fn in_view(object: &Value, call: &Call) -> Vec<u8> {
    if call.form.view != View::Table {
        return metadata_text_of_kind(object);
    }
    let object = in_version(object, call.ty());
    let meta = json!({"resourceVersion": object["metadata"]["resourceVersion"]});
    text::ordered(&table_of(call, &[&object], meta))
}

/// A table in the version that was asked for.
pub(super) fn table_of(call: &Call, items: &[&Value], meta: Value) -> Value {
    let mut table = table::render(call.ty(), items, meta, call.now, include_object(call));
    if call.form.beta {
        table["apiVersion"] = "meta.k8s.io/v1beta1".into();
        for row in table.get_mut("rows").and_then(Value::as_array_mut).into_iter().flatten() {
            if row["object"]["apiVersion"] == "meta.k8s.io/v1" {
                row["object"]["apiVersion"] = "meta.k8s.io/v1beta1".into();
            }
        }
    }
    table
}

/// Refuses an `includeObject` that no table knows.
pub(super) fn check_include(call: &Call) -> Result<(), Refused> {
    match call.query.text("includeObject") {
        Some(text) if call.form.view == View::Table && IncludeObject::parse(text).is_none() => {
            Err(bad_request(format!(
                "Unable to convert to Table as requested: includeObject: Invalid value: \"{text}\": must be 'Metadata', \
                 'Object', 'None', or empty"
            )))
        }
        _ => Ok(()),
    }
}

fn metadata_text_of_kind(object: &Value) -> Vec<u8> {
    text::ordered(&json!({
        "kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": object["metadata"],
    }))
}

/// An item of a `PartialObjectMetadataList`.
pub(super) fn metadata_text(object: &Value) -> Vec<u8> {
    metadata_text_of_kind(object)
}
