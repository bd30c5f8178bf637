//! What `shards` asks of its store, as requests for Leases, and replies as its inputs: pure, shared by shell and
//! simulator.
//! Must not know how a request is sent, or what an answer leads to.

use std::sync::Arc;
use std::time::UNIX_EPOCH;

use serde_json::{Value, json};
use shards::{Ask, Call, Change, Failure, Input, Listing, Record};

use crate::api::wire::{Method, Reply, Request};
use crate::api::{Id, Kind, Time};

/// What was asked, as far as the meaning of the reply depends on it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Asked {
    /// All Leases.
    List,
    /// The stream of their changes: its lines are read by [`line`].
    Watch,
    /// One Lease.
    Read,
    /// A create or PUT.
    Write,
}

impl Asked {
    /// Of a request to the store.
    pub fn of(ask: &Ask) -> Self {
        match ask {
            Ask::List => Asked::List,
            Ask::Watch(_) => Asked::Watch,
            Ask::Read(_) => Asked::Read,
            Ask::Create(_) | Ask::Put(_) => Asked::Write,
        }
    }
}

/// An answer as `shards` takes it, and what a person should know of it.
#[derive(Debug)]
pub struct Answered {
    /// For the core.
    pub input: Input,
    /// Why it gave nothing.
    pub failure: Option<Failure>,
    /// Leases of the list that cannot be read, each with the reason: left out.
    pub skipped: Vec<String>,
}

/// The request that asks this of the Leases of `namespace`. `limit_ms` becomes the server's own limit for a write: what it
/// has not begun to store by then it refuses. `now` is for people who read the Lease.
pub fn request(namespace: &str, ask: &Ask, limit_ms: u64, now: Time) -> Request {
    let collection = || Kind::Lease.collection_path(Some(namespace));
    let object = |name: &str| Id::new(Kind::Lease, namespace, name).path();
    let write = |method, path: String, record: &Record| {
        let body: Arc<[u8]> = record.body(namespace, &now.micro_text()).to_string().into_bytes().into();
        Request::new(method, format!("{path}?timeout={}ms", limit_ms.max(1)), "application/json", body)
    };
    match ask {
        Ask::List => Request::get(collection()),
        // The server ends it when it thinks right: nothing is resumed.
        Ask::Watch(version) => Request::get(format!("{}?resourceVersion={version}&watch=true", collection())),
        Ask::Read(name) => Request::get(object(name)),
        Ask::Create(record) => write(Method::Post, collection(), record),
        Ask::Put(record) => write(Method::Put, object(&record.name), record),
    }
}

/// The request that makes the namespace of the Leases.
pub fn make_namespace(namespace: &str) -> Request {
    let body = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": namespace } });
    let path = Kind::Namespace.collection_path(None);
    Request::new(Method::Post, path, "application/json", body.to_string().into_bytes().into())
}

/// What the reply says; an error is what is known where there was none.
pub fn answered(call: Call, asked: Asked, reply: Result<&Reply, Failure>) -> Answered {
    let body = reply.and_then(whole);
    let mut skipped = Vec::new();
    let parsed = |body: Value| Record::parse(&body).map_err(Failure::Refused);
    let (input, failure) = match asked {
        Asked::List => {
            let listing = body.map(|list| listing(&list, &mut skipped));
            let failure = listing.as_ref().err().cloned();
            (Input::Listed(call, listing), failure)
        }
        // A whole reply to a watch is its refusal.
        Asked::Watch => (Input::Ended(call), body.err()),
        Asked::Read => {
            let found = match body.and_then(parsed) {
                Err(Failure::Gone) => Ok(None),
                found => found.map(Some),
            };
            let failure = found.as_ref().err().cloned();
            (Input::Read(call, found), failure)
        }
        Asked::Write => {
            let written = body.and_then(parsed);
            let failure = written.as_ref().err().cloned();
            (Input::Written(call, written), failure)
        }
    };
    Answered { input, failure, skipped }
}

/// What time it was at the hub when it replied, in seconds since 1970.
pub fn hub_seconds(reply: &Reply) -> Option<u64> {
    let (_, date) = reply.headers.iter().find(|(name, _)| name.eq_ignore_ascii_case("date"))?;
    let date = httpdate::parse_http_date(date).ok()?;
    Some(date.duration_since(UNIX_EPOCH).ok()?.as_secs())
}

/// A Lease that a person has bent beyond reading is as if it were not there: the others count.
fn listing(list: &Value, skipped: &mut Vec<String>) -> Listing {
    let items = list["items"].as_array().into_iter().flatten();
    let records = items.filter_map(|item| Record::parse(item).map_err(|why| skipped.push(why)).ok()).collect();
    Listing { version: version(list), records }
}

fn version(object: &Value) -> String {
    object["metadata"]["resourceVersion"].as_str().unwrap_or_default().to_owned()
}

/// What a line of the stream says; `None`: nothing of a record. What cannot be read ends the stream.
pub fn line(call: Call, line: &[u8]) -> Option<Input> {
    let Ok(event) = json_of(line) else { return Some(Input::Ended(call)) };
    let object = &event["object"];
    let deleted = || {
        let name = object["metadata"]["name"].as_str()?.to_owned();
        Some(Input::Changed(call, Change::Deleted { name, version: version(object) }))
    };
    match event["type"].as_str() {
        Some("ADDED" | "MODIFIED") => match Record::parse(object) {
            Ok(record) => Some(Input::Changed(call, Change::Put(record))),
            // As in a list: as if it were not there.
            Err(_) => deleted(),
        },
        Some("DELETED") => deleted(),
        Some("BOOKMARK") => None,
        _ => Some(Input::Ended(call)),
    }
}

/// JSON, also where bytes in it are no UTF-8: a Lease that somebody has spoilt must not hide the others, nor be taken for
/// what it never said. It has no specification that could be read.
fn json_of(text: &[u8]) -> serde_json::Result<Value> {
    match serde_json::from_slice(text) {
        Err(_) if std::str::from_utf8(text).is_err() => {
            let mut value: Value = serde_json::from_str(&String::from_utf8_lossy(text))?;
            let spoil = |lease: &mut Value| {
                if lease.is_object() && lease.to_string().contains(char::REPLACEMENT_CHARACTER) {
                    lease["spec"] = "no UTF-8".into();
                }
            };
            match (value.get("items").is_some(), value.get("object").is_some()) {
                (true, _) => value["items"].as_array_mut().into_iter().flatten().for_each(spoil),
                (_, true) => spoil(&mut value["object"]),
                _ => spoil(&mut value),
            }
            Ok(value)
        }
        read => read,
    }
}

/// The body of a reply that carried the request out, or what the reply means.
fn whole(reply: &Reply) -> Result<Value, Failure> {
    let body = json_of(&reply.body).unwrap_or_default();
    let words = || format!("{}: {}", reply.status, body["message"].as_str().unwrap_or("no explanation"));
    match reply.status {
        200..300 => Ok(body),
        404 => Err(Failure::Gone),
        409 => Err(Failure::Conflict),
        // The server, or something before it, gave up on the way: it may have been stored.
        408 | 500.. => Err(Failure::Unknown(words())),
        _ => Err(Failure::Refused(words())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_spoilt_lease_is_none_and_hides_no_other() {
        let lease = |name: &str, holder: &str| {
            json!({"metadata": {"name": name, "resourceVersion": "7"}, "spec": {"holderIdentity": holder}}).to_string()
        };
        // The byte 1 stands for one that is no UTF-8.
        let spoilt = |text: &str| text.bytes().map(|byte| if byte == 1 { 0xff } else { byte }).collect::<Vec<u8>>();
        let bad = lease("q-01", "b#\u{1}1").replace("\\u0001", "\u{1}");
        let list = format!(
            r#"{{"metadata":{{"resourceVersion":"9"}},"items":[{},{bad},{}]}}"#,
            lease("q-00", "a#1"),
            lease("q-02", "ü#1")
        );
        let reply = |text: &str| Reply { status: 200, headers: Vec::new(), body: spoilt(text).into() };
        let answer = answered(Call(1), Asked::List, Ok(&reply(&list)));
        let Input::Listed(_, Ok(listing)) = answer.input else { panic!("{:?}", answer.input) };
        let holders: Vec<_> = listing.records.iter().map(|record| record.holder.as_str()).collect();
        assert_eq!((holders, answer.skipped.len()), (vec!["a#1", "ü#1"], 1));
        let changed = line(Call(1), &spoilt(&format!(r#"{{"type":"MODIFIED","object":{bad}}}"#)));
        assert!(
            matches!(&changed, Some(Input::Changed(_, Change::Deleted { name, .. })) if name == "q-01"),
            "{changed:?}"
        );
        let read = answered(Call(1), Asked::Read, Ok(&reply(&bad)));
        assert!(matches!(&read.input, Input::Read(_, Err(Failure::Refused(_)))), "{:?}", read.input);
    }

    fn reply(status: u16, body: &Value) -> Reply {
        Reply { status, headers: Vec::new(), body: body.to_string().into_bytes().into() }
    }

    fn record() -> Record {
        Record { name: "q-1f".into(), version: "7".into(), holder: "a#3".into(), ..Record::default() }
    }

    #[test]
    fn every_ask_is_one_request_for_leases_of_the_namespace() {
        let line = |ask: &Ask| {
            let request = request("ns", ask, 2_000, Time(0));
            format!("{} {}", request.method.as_str(), request.target)
        };
        const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/ns/leases";
        assert_eq!(line(&Ask::List), format!("GET {LEASES}"));
        assert_eq!(line(&Ask::Watch("7".into())), format!("GET {LEASES}?resourceVersion=7&watch=true"));
        assert_eq!(line(&Ask::Read("seat-a".into())), format!("GET {LEASES}/seat-a"));
        assert_eq!(line(&Ask::Create(record())), format!("POST {LEASES}?timeout=2000ms"));
        assert_eq!(line(&Ask::Put(record())), format!("PUT {LEASES}/q-1f?timeout=2000ms"));
    }

    #[test]
    fn a_put_carries_the_version_that_was_read() {
        let body: Value = serde_json::from_slice(&request("ns", &Ask::Put(record()), 1, Time(0)).body).unwrap();
        assert_eq!(body["metadata"]["resourceVersion"], "7");
        assert_eq!(Record::parse(&body), Ok(record()));
    }

    #[test]
    fn only_a_reply_that_leaves_it_open_is_an_unknown_outcome() {
        let status = |status| {
            let reply = reply(status, &json!({ "message": "why" }));
            answered(Call(1), Asked::Write, Ok(&reply)).failure
        };
        assert_eq!(status(201), Some(Failure::Refused("a Lease: missing field `metadata`".into())));
        assert_eq!(status(409), Some(Failure::Conflict));
        assert_eq!(status(404), Some(Failure::Gone));
        assert_eq!(status(429), Some(Failure::Refused("429: why".into())));
        for open in [408, 500, 503, 504] {
            assert_eq!(status(open), Some(Failure::Unknown(format!("{open}: why"))));
        }
    }

    #[test]
    fn the_date_of_a_reply_is_read_where_there_is_one() {
        let dated = |date: &str| Reply {
            status: 200,
            headers: vec![("date".to_owned(), date.to_owned())],
            body: b"".as_slice().into(),
        };
        assert_eq!(hub_seconds(&dated("Sun, 06 Nov 1994 08:49:37 GMT")), Some(784_111_777));
        assert_eq!(hub_seconds(&dated("tomorrow")), None);
        assert_eq!(hub_seconds(&reply(200, &json!({}))), None);
    }

    #[test]
    fn a_lease_that_is_not_there_is_an_answer_to_a_read_and_none_to_a_write() {
        let gone = reply(404, &json!({}));
        assert!(matches!(answered(Call(1), Asked::Read, Ok(&gone)).input, Input::Read(Call(1), Ok(None))));
        assert!(matches!(
            answered(Call(1), Asked::Write, Ok(&gone)).input,
            Input::Written(Call(1), Err(Failure::Gone))
        ));
    }

    #[test]
    fn a_lease_beyond_reading_does_not_hide_the_others() {
        let list = json!({ "items": [{ "metadata": { "name": 4 } }, { "metadata": { "name": "q-00" } }] });
        let answer = answered(Call(1), Asked::List, Ok(&reply(200, &list)));
        assert!(matches!(answer.input, Input::Listed(_, Ok(listing)) if listing.records[0].name == "q-00"));
        assert_eq!(answer.skipped.len(), 1);
    }

    #[test]
    fn every_line_of_a_stream_is_a_change_or_nothing_or_its_end() {
        let say =
            |what: &str, object: Value| line(Call(1), json!({ "type": what, "object": object }).to_string().as_bytes());
        let lease = json!({ "metadata": { "name": "q-00", "resourceVersion": "9" } });
        let put = say("MODIFIED", lease.clone());
        assert!(matches!(put, Some(Input::Changed(Call(1), Change::Put(r))) if r.name == "q-00" && r.version == "9"));
        let bent = json!({ "metadata": { "name": "q-00", "resourceVersion": "9", "annotations": 4 } });
        for gone in [say("DELETED", lease), say("ADDED", bent)] {
            let expected = Change::Deleted { name: "q-00".into(), version: "9".into() };
            assert!(matches!(gone, Some(Input::Changed(_, change)) if change == expected));
        }
        assert!(say("BOOKMARK", json!({ "metadata": { "resourceVersion": "12" } })).is_none());
        assert!(matches!(say("ERROR", json!({ "code": 410 })), Some(Input::Ended(Call(1)))));
        assert!(matches!(line(Call(1), b"{\"type\":"), Some(Input::Ended(Call(1)))));
        let expired = reply(410, &json!({ "message": "too old" }));
        assert!(matches!(answered(Call(1), Asked::Watch, Ok(&expired)).input, Input::Ended(Call(1))));
    }
}
