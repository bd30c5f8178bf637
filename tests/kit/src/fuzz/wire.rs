//! Bytes from API servers and dashboards: lists, lines of watches, whole streams, answers of Ray.

use std::sync::Arc;

use rayfleet::api::json;
use rayfleet::api::wire::Reply;
use rayfleet::api::{Cluster, Kind, Time};
use rayfleet::engine::RayOutcome;
use rayfleet::engine::request::{LogAnswer, answered, log_answer};
use rayfleet::plan::{JobAnswer, Question};
use rayfleet::row::{Row, WatchLine, decode_line, decode_list, decode_status};
use rayfleet::shell::heartbeat::requests::{self, Asked};
use rayfleet::shell::informer::core::{End, Informer, InformerEvent, LINE_BYTES_MAX};
use rayfleet::shell::lines::Lines;
use serde_json::{Value, json};
use shards::{Call, Input};

use super::corpus::{Corpus, Sample};
use super::{Check, Verdict};

/// Effects of one event at most.
const EFFECTS_MAX: usize = 8;
/// A sentence about an answer, with escapes.
const QUOTED_BYTES_MAX: usize = 5_000;

/// Kinds that are watched, with their objects.
fn watched(corpus: &Corpus) -> Vec<Value> {
    Kind::ALL.iter().flat_map(|kind| corpus.of(kind.name()).into_iter().take(12)).collect()
}

/// The kind whose decoder is given an input: that of the object in it where it says one, else drawn from its bytes.
fn kind_of(input: &[u8]) -> Kind {
    let sum = input.iter().fold(input.len(), |sum, byte| sum.wrapping_mul(31).wrapping_add(usize::from(*byte)));
    let said = |kind: &&Kind| {
        let word = format!("\"kind\":\"{}", kind.name());
        input.windows(word.len()).any(|window| window == word.as_bytes())
    };
    let said = Kind::ALL.iter().find(said).filter(|_| sum % 8 != 0);
    *said.unwrap_or(&Kind::ALL[sum % Kind::ALL.len()])
}

fn line(what: &str, object: &Value) -> Value {
    json!({"type": what, "object": object})
}

pub(super) fn lines(corpus: &Corpus) -> Vec<Sample> {
    let words = ["ADDED", "MODIFIED", "DELETED"].iter().cycle();
    let mut all: Vec<Value> = watched(corpus).iter().zip(words).map(|(object, word)| line(word, object)).collect();
    all.push(line("BOOKMARK", &json!({"kind": "Pod", "metadata": {"resourceVersion": "77"}})));
    all.push(line("ERROR", &json!({"kind": "Status", "code": 410, "reason": "Expired", "message": "too old"})));
    all.into_iter().map(Sample::Json).collect()
}

pub(super) fn check_lines() -> Check {
    Box::new(|input| {
        let kind = kind_of(input);
        let _ = decode_status(input);
        let Ok(first) = decode_line(kind, input) else { return Ok(()) };
        // Of a key that stands twice only one value is written anew.
        let Ok(value) = json::distinct(input) else { return Ok(()) };
        let again = decode_line(kind, value.to_string().as_bytes());
        let again = again.map_err(|e| format!("the same line, written anew, is refused: {e}"))?;
        let (WatchLine::Added(one) | WatchLine::Modified(one), WatchLine::Added(two) | WatchLine::Modified(two)) =
            (&first, &again)
        else {
            let same = std::mem::discriminant(&first) == std::mem::discriminant(&again);
            return if same { Ok(()) } else { Err(format!("{first:?}, written anew, is {again:?}")) };
        };
        // Bodies are the text that came.
        let plain = |row: &Row| Row { body: None, ..row.clone() };
        if plain(one) != plain(two) {
            return Err(format!("{:?}, written anew, is {:?}", plain(one), plain(two)));
        }
        Ok(())
    })
}

pub(super) fn lists(corpus: &Corpus) -> Vec<Sample> {
    let list = |kind: &Kind| {
        let items: Vec<Value> = corpus.of(kind.name()).into_iter().take(4).collect();
        let list = json!({
            "kind": format!("{}List", kind.name()), "apiVersion": kind.api_version(),
            "metadata": {"resourceVersion": "77", "continue": "x"}, "items": items,
        });
        Sample::Json(list)
    };
    Kind::ALL.iter().map(list).collect()
}

pub(super) fn check_lists() -> Check {
    Box::new(|input| {
        let Ok(page) = decode_list(kind_of(input), input) else { return Ok(()) };
        let Ok(value) = json::distinct(input) else { return Ok(()) };
        let items = value["items"].as_array().map_or(0, Vec::len);
        let taken = page.rows.len() + page.quarantined.len();
        if items == taken { Ok(()) } else { Err(format!("of {items} items {taken} are rows or set aside")) }
    })
}

pub(super) fn streams(corpus: &Corpus) -> Vec<Sample> {
    let lines = lines(corpus);
    let stream = |lines: &[Sample]| {
        Sample::Text(lines.iter().flat_map(|line| [line.bytes(), b"\n".to_vec()].concat()).collect())
    };
    lines.chunks(5).map(stream).collect()
}

/// A whole life of an informer: its first list is in order, the stream is the input in pieces.
pub(super) fn check_streams() -> Check {
    Box::new(|input| {
        let kind = kind_of(input);
        let mut informer = Informer::new(Cluster::Hub, kind, 1);
        let mut now = Time(1_800_000_000_000);
        let mut take = |event: InformerEvent| {
            now.0 += 10;
            let effects = informer.handle(event, now).len();
            if effects <= EFFECTS_MAX { Ok(()) } else { Err(format!("{effects} effects of one event")) }
        };
        take(InformerEvent::Start)?;
        let empty = json!({"metadata": {"resourceVersion": "1"}, "items": []}).to_string().into_bytes();
        take(InformerEvent::ListReply { status: 200, body: Arc::from(empty) })?;
        take(InformerEvent::WatchOpened)?;
        let mut splitter = Lines::new(LINE_BYTES_MAX);
        // Pieces as a connection brings them.
        for piece in input.chunks(input.len() % 97 + 700) {
            splitter.push(piece);
            while let Some(line) = splitter.next_line().map_err(|e| e.to_string())? {
                take(InformerEvent::Line(decode_line(kind, &line)))?;
            }
        }
        take(InformerEvent::Ended(End::Cut))?;
        take(InformerEvent::Timer)?;
        take(InformerEvent::ListReply { status: 200, body: Arc::from(input) })?;
        take(InformerEvent::WatchRefused { status: 410, body: Arc::from(input) })
    })
}

/// Replies and lines of watches about Leases.
pub(super) fn lease_answers(corpus: &Corpus) -> Vec<Sample> {
    let leases: Vec<Value> = corpus.of("Lease");
    let mut all: Vec<Value> = leases.chunks(3).map(|some| {
        json!({"kind": "LeaseList", "apiVersion": "coordination.k8s.io/v1", "metadata": {"resourceVersion": "77"}, "items": some})
    }).collect();
    all.extend(leases.iter().map(|lease| line("MODIFIED", lease)));
    all.extend(leases.into_iter().take(4));
    all.push(line("BOOKMARK", &json!({"kind": "Lease", "metadata": {"resourceVersion": "77"}})));
    all.push(json!({"kind": "Status", "code": 409, "reason": "Conflict", "message": "the object has been modified"}));
    all.into_iter().map(Sample::Json).collect()
}

/// Of a list that can be read, each item is a record or is said to be none.
pub(super) fn check_lease_answers() -> Check {
    Box::new(|input| {
        let call = Call(7);
        let _ = requests::line(call, input);
        for status in [200, 201, 404, 409, 500] {
            let reply = Reply { status, headers: Vec::new(), body: Arc::from(input) };
            let _ = requests::hub_seconds(&reply);
            for asked in [Asked::List, Asked::Watch, Asked::Read, Asked::Write] {
                let answer = requests::answered(call, asked, Ok(&reply));
                let items = json::distinct(input).ok().and_then(|list| Some(list["items"].as_array()?.len()));
                if let (Input::Listed(_, Ok(listing)), Some(items)) = (&answer.input, items)
                    && listing.records.len() + answer.skipped.len() != items
                {
                    let taken = (listing.records.len(), answer.skipped.len());
                    return Err(format!("of {items} items {taken:?} are records or said to be none"));
                }
            }
        }
        Ok(())
    })
}

pub(super) fn ray_answers(corpus: &Corpus) -> Vec<Sample> {
    let sample = |bytes: &Vec<u8>| match serde_json::from_slice(bytes) {
        Ok(value @ Value::Object(_)) => Sample::Json(value),
        _ => Sample::Text(bytes.clone()),
    };
    let mut all: Vec<Sample> = corpus.ray.iter().map(sample).collect();
    let status =
        json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "message": "no endpoints available"});
    all.push(Sample::Json(status));
    all
}

pub(super) fn check_ray_answers() -> Check {
    let questions = [
        Question::Job { job: "train-1".into() },
        Question::Submit { job: "train-1".into(), body: json!({"entrypoint": "true"}) },
        Question::Stop { job: "train-1".into() },
    ];
    Box::new(move |input| {
        for status in [200, 404, 500, 503, 302] {
            let reply = Reply { status, headers: Vec::new(), body: Arc::from(input) };
            for question in &questions {
                let outcome = answered(question, Some(&reply));
                // What Ray says of a job is kept as it came; a sentence about an answer quotes a little of it.
                let kept = matches!(outcome, RayOutcome::Job(JobAnswer::Info(_)));
                bounded(if kept { String::new() } else { format!("{outcome:?}") })?;
            }
            let answer = log_answer(&reply);
            bounded(if matches!(answer, LogAnswer::Text(_)) { String::new() } else { format!("{answer:?}") })?;
        }
        Ok(())
    })
}

fn bounded(sentence: String) -> Verdict {
    let bytes = sentence.len();
    if bytes <= QUOTED_BYTES_MAX { Ok(()) } else { Err(format!("a sentence of {bytes} bytes about an answer")) }
}
