//! Stories of one informer and the replies that it gets.
//! Must not look into its state: what is asserted is what it asks for and tells.

use serde_json::{Value, json};

use super::*;
use crate::row::decode_line;

const T0: Time = Time(1_000_000);

fn job(name: &str, version: u64) -> Value {
    json!({"metadata": {"name": name, "namespace": "n", "uid": format!("u-{name}"), "resourceVersion": version.to_string()}})
}

fn list(version: u64, items: Vec<Value>, next: &str) -> InformerEvent {
    let body = json!({"metadata": {"resourceVersion": version.to_string(), "continue": next}, "items": items});
    InformerEvent::ListReply { status: 200, body: body.to_string().into_bytes().into() }
}

fn line(what: &str, object: Value) -> InformerEvent {
    text(&json!({"type": what, "object": object}).to_string())
}

fn text(line: &str) -> InformerEvent {
    InformerEvent::Line(decode_line(Kind::Job, line.as_bytes()))
}

fn status(code: u16, reason: &str) -> Value {
    json!({"kind": "Status", "code": code, "reason": reason, "message": "m"})
}

struct Story {
    informer: Informer,
    now: Time,
}

impl Story {
    fn new() -> Self {
        Self { informer: Informer::new(Cluster::Hub, Kind::Job, 7), now: T0 }
    }

    /// Listed at version 10 with one object, and the watch is open.
    fn watching() -> Self {
        let mut story = Self::new();
        story.tell(InformerEvent::Start);
        story.tell(list(10, vec![job("a", 7)], ""));
        story.tell(InformerEvent::WatchOpened);
        story
    }

    fn tell(&mut self, event: InformerEvent) -> Effects {
        self.informer.handle(event, self.now)
    }

    fn after_ms(&mut self, ms: i64) -> &mut Self {
        self.now = Time(self.now.0 + ms);
        self
    }

    /// Lets the timer ring when it was asked for.
    fn ring(&mut self, effects: &Effects) -> Effects {
        self.now = timer(effects);
        self.tell(InformerEvent::Timer)
    }
}

fn sent(effects: &Effects) -> Vec<&str> {
    fn target(effect: &InformerEffect) -> Option<&str> {
        match effect {
            InformerEffect::Send(request) => Some(&request.target),
            _ => None,
        }
    }
    effects.iter().filter_map(target).collect()
}

fn timer(effects: &Effects) -> Time {
    let at = effects.iter().rev().find_map(|e| if let InformerEffect::Timer(at) = e { Some(*at) } else { None });
    at.expect("a timer was asked for")
}

fn changes(effects: &Effects) -> Vec<&TableChange> {
    effects.iter().filter_map(|e| if let InformerEffect::Change(c) = e { Some(c) } else { None }).collect()
}

fn reasons(effects: &Effects) -> Vec<&Reason> {
    effects.iter().filter_map(|e| if let InformerEffect::Relisting(r) = e { Some(r) } else { None }).collect()
}

fn is_list(target: &str) -> bool {
    target.starts_with("/apis/batch/v1/jobs?limit=")
}

fn is_watch_from(target: &str, version: u64) -> bool {
    target.contains("watch=true") && target.contains(&format!("resourceVersion={version}&"))
}

#[test]
fn it_lists_consistently_in_pages_then_watches_from_there() {
    let mut story = Story::new();
    let effects = story.tell(InformerEvent::Start);
    assert_eq!(sent(&effects), ["/apis/batch/v1/jobs?limit=500"]);
    let effects = story.after_ms(5).tell(list(10, vec![job("a", 7)], "t/1="));
    assert_eq!(sent(&effects), ["/apis/batch/v1/jobs?limit=500&continue=t%2F1%3D"]);
    assert!(changes(&effects).is_empty());
    let effects = story.after_ms(5).tell(list(10, vec![job("b", 9)], ""));
    let [TableChange::Reset { rows, version, begun, .. }] = changes(&effects)[..] else { unreachable!("one reset") };
    assert_eq!((rows.len(), *version, *begun), (2, Version(10), T0));
    let target = sent(&effects)[0];
    assert!(is_watch_from(target, 10) && target.contains("allowWatchBookmarks=true"), "{target}");
    let seconds: u64 = target.split("timeoutSeconds=").nth(1).unwrap().split('&').next().unwrap().parse().unwrap();
    assert!((60..=120).contains(&seconds));
}

#[test]
fn lines_become_changes_and_move_the_version_to_resume_from() {
    let mut story = Story::watching();
    let added = story.tell(line("ADDED", job("b", 11)));
    assert!(matches!(changes(&added)[..], [TableChange::Upsert(_)]));
    assert!(matches!(changes(&story.tell(line("DELETED", job("b", 12))))[..], [TableChange::Remove { .. }]));
    let mark = story.tell(line("BOOKMARK", json!({"metadata": {"resourceVersion": "20"}})));
    assert_eq!(changes(&mark), [&TableChange::Progress(Version(20))]);
    let effects = story.after_ms(60_000).tell(InformerEvent::Ended(End::Clean));
    assert!(is_watch_from(sent(&effects)[0], 20));
    assert!(changes(&effects).is_empty(), "a polite end is no failure");
}

#[test]
fn a_stream_that_ends_at_once_is_followed_by_a_growing_pause() {
    let mut story = Story::watching();
    let mut pauses = Vec::new();
    let mut lists = 0;
    for _ in 0..12 {
        let effects = story.after_ms(1).tell(InformerEvent::Ended(End::Clean));
        assert!(sent(&effects).is_empty());
        assert!(matches!(changes(&effects)[..], [TableChange::Silent { .. }]));
        pauses.push(timer(&effects).0 - story.now.0);
        let effects = story.ring(&effects);
        if is_list(sent(&effects)[0]) {
            lists += 1;
            story.tell(list(10, vec![], ""));
        }
        story.tell(InformerEvent::WatchOpened);
    }
    assert!((250..=500).contains(&pauses[0]), "{pauses:?}");
    assert!(pauses[11] >= 15_000 && pauses.iter().all(|p| *p <= 30_000), "{pauses:?}");
    assert_eq!(lists, 3, "what cannot be resumed is doubted");
    let effects = story.after_ms(6_000).tell(InformerEvent::Ended(End::Clean));
    assert_eq!(sent(&effects).len(), 1, "a stream that lived clears the record");
}

#[test]
fn gone_in_either_form_leads_to_a_new_list() {
    let refused =
        InformerEvent::WatchRefused { status: 410, body: status(410, "Expired").to_string().into_bytes().into() };
    for event in [line("ERROR", status(410, "Expired")), refused] {
        let mut story = Story::watching();
        let effects = story.after_ms(1).tell(event.clone());
        assert!(is_list(sent(&effects)[0]), "{effects:?}");
        assert_eq!(reasons(&effects), [&Reason::Expired]);
        // Again right after the list: now it waits first.
        story.tell(list(30, vec![], ""));
        story.tell(InformerEvent::WatchOpened);
        let effects = story.after_ms(1).tell(event);
        assert!(sent(&effects).is_empty() && timer(&effects) > story.now);
        assert!(is_list(sent(&story.ring(&effects))[0]));
    }
}

#[test]
fn an_object_that_does_not_decode_is_set_aside_and_the_rest_goes_on() {
    let mut story = Story::watching();
    let mut bad = job("b", 11);
    bad["status"] = json!({"active": "many"});
    let effects = story.tell(line("MODIFIED", bad));
    assert!(matches!(changes(&effects)[..], [TableChange::Quarantine { version: Version(11), .. }]));
    assert!(sent(&effects).is_empty());
    assert!(matches!(changes(&story.tell(line("ADDED", job("c", 12))))[..], [TableChange::Upsert(_)]));
    let effects = story.after_ms(60_000).tell(InformerEvent::Ended(End::Clean));
    assert!(is_watch_from(sent(&effects)[0], 12), "it is not asked for again");
}

#[test]
fn a_server_that_goes_back_in_time_is_listed_anew_and_it_is_said() {
    for event in [line("MODIFIED", job("a", 8)), line("BOOKMARK", json!({"metadata": {"resourceVersion": "8"}}))] {
        let mut story = Story::watching();
        let effects = story.after_ms(9_000).tell(event);
        let [TableChange::Silent { error, .. }] = changes(&effects)[..] else { unreachable!("it is said") };
        assert!(error.contains("went back from version 10 to 8"), "{error}");
        assert!(is_list(sent(&effects)[0]));
        let effects = story.tell(list(8, vec![job("a", 8)], ""));
        assert_eq!(reasons(&effects), [&Reason::WentBack { from: Version(10), to: Version(8) }]);
        assert!(matches!(changes(&effects)[..], [TableChange::Reset { version: Version(8), .. }]));
        assert!(is_watch_from(sent(&effects)[0], 8));
    }
}

#[test]
fn silence_is_noticed_within_130_seconds_and_dated_back() {
    let mut story = Story::watching();
    story.after_ms(20_000).tell(line("ADDED", job("b", 11)));
    let heard = story.now;
    story.now = story.informer.deadline().unwrap();
    assert!(story.now.since(T0) <= Duration::from_secs(130));
    let effects = story.tell(InformerEvent::Timer);
    assert!(effects.contains(&InformerEffect::Cancel));
    let [TableChange::Silent { since, .. }] = changes(&effects)[..] else { unreachable!("it is said") };
    assert_eq!(*since, heard);
    assert!(is_watch_from(sent(&story.ring(&effects))[0], 11));
}

#[test]
fn a_wish_for_a_list_is_met_by_one_begun_after_it() {
    let mut story = Story::watching();
    let effects = story.after_ms(1).tell(InformerEvent::Relist);
    assert!(effects[0] == InformerEffect::Cancel && is_list(sent(&effects)[0]));
    // While one is under way: it is finished, then another begins.
    let wish = story.after_ms(1).now;
    assert!(sent(&story.tell(InformerEvent::Relist)).is_empty());
    let effects = story.after_ms(1).tell(list(12, vec![], ""));
    assert!(is_list(sent(&effects)[0]));
    let effects = story.after_ms(1).tell(list(12, vec![], ""));
    let [TableChange::Reset { begun, .. }] = changes(&effects)[..] else { unreachable!("one reset") };
    assert!(*begun >= wish && is_watch_from(sent(&effects)[0], 12));
}

#[test]
fn refusals_are_reported_with_the_servers_words_and_tried_again() {
    let mut story = Story::new();
    story.tell(InformerEvent::Start);
    let body = status(403, "Forbidden").to_string().into_bytes().into();
    let effects = story.tell(InformerEvent::ListReply { status: 403, body });
    let since = story.now;
    let silent = TableChange::Silent { since, error: "list of Job: 403 Forbidden: m".into() };
    assert_eq!(changes(&effects), [&silent]);
    let effects = story.ring(&effects);
    assert!(is_list(sent(&effects)[0]));
    let effects = story.tell(InformerEvent::Failed("connection refused".into()));
    let silent = TableChange::Silent { since, error: "list of Job: connection refused".into() };
    assert_eq!(changes(&effects), [&silent], "failing since the first time");
}

#[test]
fn a_kind_that_is_not_served_is_told_only_before_the_first_list() {
    let not_found = || InformerEvent::ListReply { status: 404, body: Arc::from(*b"404 page not found") };
    let mut story = Story::new();
    story.tell(InformerEvent::Start);
    let effects = story.tell(not_found());
    assert!(matches!(changes(&effects)[..], [TableChange::Unserved { begun: T0 }, TableChange::Silent { .. }]));
    let mut story = Story::watching();
    story.tell(InformerEvent::Relist);
    assert!(matches!(changes(&story.tell(not_found()))[..], [TableChange::Silent { .. }]));
}

#[test]
fn an_expired_page_begins_the_list_again() {
    let mut story = Story::new();
    story.tell(InformerEvent::Start);
    story.tell(list(10, vec![job("a", 7)], "t"));
    let body = status(410, "Expired").to_string().into_bytes().into();
    let effects = story.tell(InformerEvent::ListReply { status: 410, body });
    assert_eq!(sent(&story.ring(&effects)), ["/apis/batch/v1/jobs?limit=500"]);
    let effects = story.tell(list(11, vec![job("b", 8)], ""));
    let [TableChange::Reset { rows, .. }] = changes(&effects)[..] else { unreachable!("one reset") };
    assert_eq!(rows.len(), 1, "nothing of the first try is kept");
}

#[test]
fn garbage_in_the_stream_is_a_failure_not_an_end() {
    let mut story = Story::watching();
    let mut effects = story.tell(text("{\"type\":"));
    for _ in 0..3 {
        let again = story.ring(&effects);
        assert!(is_watch_from(sent(&again)[0], 10));
        story.tell(InformerEvent::WatchOpened);
        effects = story.tell(text("{\"type\":"));
    }
    assert!(is_list(sent(&story.ring(&effects))[0]));
}

/// Whoever rings may go by a clock that runs faster.
#[test]
fn a_timer_that_rings_early_is_asked_for_again() {
    let mut story = Story::watching();
    let waiting = story.tell(text("garbage"));
    let at = timer(&waiting);
    story.now = Time(at.0 - 1);
    let early = story.tell(InformerEvent::Timer);
    assert_eq!((sent(&early), timer(&early)), (vec![], at));
    assert!(is_watch_from(sent(&story.ring(&early))[0], 10));
}

#[test]
fn an_unanswered_request_is_given_up() {
    let mut story = Story::new();
    let effects = story.tell(InformerEvent::Start);
    let effects = story.ring(&effects);
    assert!(effects.contains(&InformerEffect::Cancel));
    assert!(is_list(sent(&story.ring(&effects))[0]));
}

#[test]
fn the_same_seed_gives_the_same_requests() {
    let run = || {
        let mut story = Story::watching();
        (0..50).flat_map(|_| story.after_ms(61_000).tell(InformerEvent::Ended(End::Cut))).collect::<Vec<_>>()
    };
    assert_eq!(run(), run());
}
