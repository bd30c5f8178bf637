//! Lists and watches of one API server, shared by all cores around it: list, then watch from the list's version, and
//! again when the stream ends or the version is too old. Tells each change once, also those missed in between.
//! Must not know who wants the events.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;

use super::WorldEvent;
use super::object::{body, list, text, uid, version};
use super::resource::Resource;
use crate::api::Time;
use crate::api::wire::{Reply, Request};
use crate::sandbox::apiserver::Line;

/// How long a failed list waits.
const BACK_OFF: Duration = Duration::from_millis(500);

#[derive(Debug)]
enum State {
    /// A list is to be sent at this time.
    Due(Time),
    /// A list was sent.
    Listing,
    /// A watch from this version is to be sent.
    Listed(String),
    /// A watch was sent, or is open.
    Watching,
}

#[derive(Debug)]
struct Stream {
    state: State,
    /// Version that the watch goes on from.
    version: String,
    synced: bool,
    /// What was told, by UID.
    known: BTreeMap<String, Arc<Value>>,
}

/// All streams of one API server.
#[derive(Debug, Default)]
pub struct Feed {
    streams: BTreeMap<Arc<Resource>, Stream>,
}

impl Feed {
    /// Starts a stream; nothing happens if it runs already.
    pub fn want(&mut self, resource: &Arc<Resource>, now: Time) {
        self.streams.entry(resource.clone()).or_insert_with(|| Stream {
            state: State::Due(now),
            version: String::new(),
            synced: false,
            known: BTreeMap::new(),
        });
    }

    /// Everything that was told of a collection and is still there, and whether its first list is complete.
    pub fn known(&self, resource: &Resource) -> (impl Iterator<Item = &Arc<Value>>, bool) {
        let stream = self.streams.get(resource);
        (stream.into_iter().flat_map(|s| s.known.values()), stream.is_some_and(|s| s.synced))
    }

    /// When there is something to send.
    pub fn next_at(&self) -> Option<Time> {
        self.streams
            .values()
            .filter_map(|s| match s.state {
                State::Due(at) => Some(at),
                State::Listed(_) => Some(Time(i64::MIN)),
                State::Listing | State::Watching => None,
            })
            .min()
    }

    /// The lists and watches that are due.
    pub fn due(&mut self, now: Time) -> Vec<(Arc<Resource>, Request)> {
        let mut out = Vec::new();
        for (resource, stream) in &mut self.streams {
            let base = resource.collection("");
            match &stream.state {
                State::Due(at) if *at <= now => {
                    stream.state = State::Listing;
                    out.push((resource.clone(), Request::get(base)));
                }
                State::Listed(version) => {
                    let target = format!("{base}?watch=true&resourceVersion={version}&allowWatchBookmarks=true");
                    stream.state = State::Watching;
                    out.push((resource.clone(), Request::get(target)));
                }
                _ => {}
            }
        }
        out
    }

    /// The answer to a list, or to a watch that was refused.
    pub fn answered(&mut self, resource: &Arc<Resource>, reply: &Reply, now: Time) -> Vec<WorldEvent> {
        let Some(stream) = self.streams.get_mut(resource) else { return Vec::new() };
        if !reply.is_success() || !matches!(stream.state, State::Listing) {
            // A watch is refused with 410, a list of a type that is not there with 404: both begin again with a list.
            stream.state = State::Due(now + BACK_OFF);
            return Vec::new();
        }
        let answer = body(reply);
        text(&answer, "/metadata/resourceVersion").clone_into(&mut stream.version);
        stream.state = State::Listed(stream.version.clone());
        let mut fresh = BTreeMap::new();
        let mut out = Vec::new();
        if let Value::Object(mut answer) = answer
            && let Some(Value::Array(items)) = answer.remove("items")
        {
            for item in items {
                let item = named(item, resource);
                let seen = stream.known.get(uid(&item)).is_some_and(|k| version(k) == version(&item));
                if !seen {
                    out.push(WorldEvent::Applied(resource.clone(), item.clone()));
                }
                fresh.insert(uid(&item).to_owned(), item);
            }
        }
        let gone = stream.known.iter().filter(|(uid, _)| !fresh.contains_key(*uid));
        // Departures first: a successor of the same name must not be taken for the one that left.
        let mut events: Vec<_> = gone.map(|(_, o)| WorldEvent::Deleted(resource.clone(), o.clone())).collect();
        events.append(&mut out);
        stream.known = fresh;
        if !stream.synced {
            stream.synced = true;
            events.push(WorldEvent::Synced(resource.clone()));
        }
        events
    }

    /// One line of a watch.
    pub fn line(&mut self, resource: &Arc<Resource>, line: &Line, now: Time) -> Option<WorldEvent> {
        let stream = self.streams.get_mut(resource)?;
        let Line::Event(event) = line else {
            // After an error the list comes first.
            if matches!(stream.state, State::Watching) {
                stream.state = State::Listed(stream.version.clone());
            }
            return None;
        };
        if event.kind() == "ERROR" {
            stream.state = State::Due(now + BACK_OFF);
            return None;
        }
        let object = event.object();
        text(object, "/metadata/resourceVersion").clone_into(&mut stream.version);
        match event.kind() {
            "ADDED" | "MODIFIED" => {
                stream.known.insert(uid(object).to_owned(), object.clone());
                Some(WorldEvent::Applied(resource.clone(), object.clone()))
            }
            "DELETED" => {
                stream.known.remove(uid(object));
                Some(WorldEvent::Deleted(resource.clone(), object.clone()))
            }
            // Bookmarks only move the version on.
            _ => None,
        }
    }
}

/// Items of lists of built-in kinds come without `apiVersion` and `kind`.
fn named(mut object: Value, resource: &Resource) -> Arc<Value> {
    if let Some(map) = object.as_object_mut() {
        map.entry("apiVersion").or_insert_with(|| resource.api_version().into());
        map.entry("kind").or_insert_with(|| resource.kind.clone().into());
    }
    debug_assert!(list(&object, "/items").is_empty(), "a list is not an object");
    Arc::new(object)
}
