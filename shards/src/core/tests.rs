//! Stories of one and two processes over a store in memory with real compare-and-swap.
//! Must not look into the core: what is asserted is what the store holds and what was told.

use std::collections::{BTreeMap, BTreeSet};

use super::*;
use crate::hash::queue_units;
use crate::lease::Record;

mod many;

#[derive(Default)]
struct Store {
    records: BTreeMap<String, Record>,
    version: u64,
    log: Vec<String>,
    changes: Vec<(u64, Change)>,
}

impl Store {
    fn write(&mut self, mut record: Record, create: bool) -> Result<Record, Failure> {
        let there = self.records.get(&record.name);
        match there {
            Some(_) if create => return Err(Failure::Conflict),
            None if !create => return Err(Failure::Gone),
            Some(r) if r.version != record.version => return Err(Failure::Conflict),
            _ => {}
        }
        self.version += 1;
        record.version = self.version.to_string();
        record.uid = "u".into();
        self.log.push(format!("{} {} {}", record.name, record.holder, record.transitions));
        self.records.insert(record.name.clone(), record.clone());
        self.changes.push((self.version, Change::Put(record.clone())));
        Ok(record)
    }

    /// A person deletes a record.
    fn delete(&mut self, name: &str) {
        self.version += 1;
        self.records.remove(name);
        let version = self.version.to_string();
        self.changes.push((self.version, Change::Deleted { name: name.to_owned(), version }));
    }

    fn list(&self) -> Listing {
        Listing { version: self.version.to_string(), records: self.records.values().cloned().collect() }
    }

    /// The present record with another holder, as another process would write it.
    fn taken_by(&self, name: &str, holder: &str) -> Record {
        let record = &self.records[name];
        Record { holder: holder.to_owned(), transitions: record.transitions + 1, ..record.clone() }
    }
}

struct Process {
    shards: Shards,
    held: BTreeMap<String, u64>,
    exit: Option<String>,
    left: bool,
    /// Processes that are known to have ended.
    dead: BTreeSet<String>,
    stream: Option<(Call, u64)>,
    /// It has what it needs to work.
    warm: bool,
    /// The next release of a unit is not carried out, and answered so.
    release_fails: Option<Failure>,
    /// Its streams say nothing.
    mute: bool,
    lists: usize,
}

impl Process {
    fn new(seat: &str, process: &str) -> Self {
        let me = Identity { seat: seat.into(), process: process.into(), place: "here".into() };
        Self {
            shards: Shards::new(me, Profile::DEFAULT, 7),
            held: BTreeMap::new(),
            exit: None,
            left: false,
            dead: BTreeSet::new(),
            stream: None,
            warm: true,
            release_fails: None,
            mute: false,
            lists: 0,
        }
    }

    /// Handles an input and everything that follows from it at once, the stream's news too.
    fn feed(&mut self, store: &mut Store, input: Input, now: Mono) {
        let ready = self.warm.then_some(Input::Ready);
        let mut queue: Vec<Input> = ready.into_iter().chain([input]).collect();
        while let Some(input) = queue.pop().or_else(|| self.news(store)) {
            for effect in self.shards.handle(input, now) {
                match effect {
                    Effect::Ask(call, Ask::List) => {
                        self.lists += 1;
                        queue.insert(0, Input::Listed(call, Ok(store.list())));
                    }
                    Effect::Ask(call, Ask::Read(name)) => {
                        queue.insert(0, Input::Read(call, Ok(store.records.get(&name).cloned())));
                    }
                    Effect::Ask(call, Ask::Create(record)) => {
                        queue.insert(0, Input::Written(call, store.write(record, true)));
                    }
                    Effect::Ask(call, Ask::Put(record))
                        if record.holder.is_empty() && record.seat().is_none() && self.release_fails.is_some() =>
                    {
                        let failure = self.release_fails.take().expect("it was just there");
                        queue.insert(0, Input::Written(call, Err(failure)));
                    }
                    Effect::Ask(call, Ask::Put(record)) => {
                        queue.insert(0, Input::Written(call, store.write(record, false)));
                    }
                    Effect::Ask(call, Ask::Watch(version)) => self.stream = Some((call, version.parse().unwrap())),
                    Effect::Close(call) => {
                        assert_eq!(self.stream.take().map(|(stream, _)| stream), Some(call));
                    }
                    Effect::Attest(process) if self.dead.contains(&process) => queue.insert(0, Input::Dead(process)),
                    Effect::Held(unit, epoch) => {
                        self.held.insert(unit, epoch);
                    }
                    Effect::Lost(unit) => {
                        self.held.remove(&unit);
                    }
                    Effect::Quiesce(unit) => queue.insert(0, Input::Quiesced(unit)),
                    Effect::Exit(why) => self.exit = Some(why),
                    Effect::Left => self.left = true,
                    Effect::Attest(_) | Effect::Epochs(_) | Effect::WakeAt(_) | Effect::StoodStill(_) => {}
                }
            }
        }
    }

    fn news(&mut self, store: &Store) -> Option<Input> {
        let (call, seen) = self.stream.as_mut().filter(|_| !self.mute)?;
        let (version, change) = store.changes.iter().find(|(version, _)| version > seen)?;
        *seen = *version;
        Some(Input::Changed(*call, change.clone()))
    }

    fn end_stream(&mut self, store: &mut Store, now: Mono) {
        let (call, _) = self.stream.take().unwrap();
        self.feed(store, Input::Ended(call), now);
    }

    fn run(&mut self, store: &mut Store, from: u64, to: u64) {
        for ms in (from..=to).step_by(250) {
            self.feed(store, Input::Tick, Mono(ms));
        }
    }
}

#[test]
fn one_process_takes_its_seat_and_every_queue_unit() {
    let (mut store, mut a) = (Store::default(), Process::new("a", "a/1"));
    a.run(&mut store, 0, 2_000);
    assert_eq!(a.held.len(), 64);
    assert!(a.held.values().all(|epoch| *epoch == 1));
    assert_eq!(store.records["q-1f"].holder, "a#1");
    assert_eq!(a.shards.authority().left_ms("q-1f", 1, Mono(2_000)), Some(7_000));
}

#[test]
fn wanted_units_are_taken_and_unwanted_ones_released() {
    let (mut store, mut a) = (Store::default(), Process::new("a", "a/1"));
    a.run(&mut store, 0, 1_000);
    a.feed(&mut store, Input::Wanted(["m-eu-0".to_owned()].into()), Mono(1_000));
    assert_eq!(a.held.get("m-eu-0"), Some(&1));
    a.feed(&mut store, Input::Wanted(BTreeSet::new()), Mono(1_500));
    assert_eq!(a.held.get("m-eu-0"), None);
    assert_eq!(store.records["m-eu-0"].holder, "");
    assert_eq!(store.records["m-eu-0"].transitions, 1, "a release keeps the epoch");
}

#[test]
fn a_restarted_process_takes_every_unit_with_the_next_epoch() {
    let (mut store, mut a) = (Store::default(), Process::new("a", "a/1"));
    a.run(&mut store, 0, 2_000);
    let mut b = Process::new("a", "a/2");
    b.dead.insert("a/1".into());
    b.run(&mut store, 2_000, 3_000);
    assert_eq!(b.held.len(), 64, "succession does not wait for silence");
    assert!(b.held.values().all(|epoch| *epoch == 2));
}

#[test]
fn without_proof_of_death_a_seat_is_taken_only_after_d_of_silence() {
    let (mut store, mut a) = (Store::default(), Process::new("a", "a/1"));
    a.run(&mut store, 0, 2_000);
    let mut b = Process::new("a", "a/2");
    b.run(&mut store, 0, 14_000);
    assert_eq!(b.held.len(), 0);
    b.run(&mut store, 14_250, 20_000);
    assert_eq!(b.held.len(), 64);
}

#[test]
fn a_seat_that_is_renewed_is_never_taken() {
    let (mut store, mut a, mut b) = (Store::default(), Process::new("a", "a/1"), Process::new("a", "a/2"));
    for ms in (0..60_000).step_by(250) {
        a.feed(&mut store, Input::Tick, Mono(ms));
        b.feed(&mut store, Input::Tick, Mono(ms + 100));
    }
    assert_eq!((a.held.len(), b.held.len()), (64, 0));
}

#[test]
fn authority_ends_h_after_the_last_renewal_was_sent_also_when_the_hub_is_silent() {
    let (mut store, mut a) = (Store::default(), Process::new("a", "a/1"));
    a.run(&mut store, 0, 2_000);
    // The hub answers nothing from now on: effects are dropped.
    let mut lost = 0;
    for ms in (2_250..20_000).step_by(250) {
        lost += a.shards.handle(Input::Tick, Mono(ms)).iter().filter(|e| matches!(e, Effect::Lost(_))).count();
        let authority = a.shards.authority();
        if ms >= 9_000 {
            assert_eq!(authority.left_ms("q-00", 1, Mono(ms)), None, "at {ms}");
        }
    }
    assert_eq!(lost, 64);
}

#[test]
fn a_process_whose_clock_stood_still_gives_its_seat_up_and_takes_it_again() {
    let (mut store, mut a) = (Store::default(), Process::new("a", "a/1"));
    a.run(&mut store, 0, 2_000);
    let hub = |seconds| Input::HubTime { seconds, sent: Mono(2_000) };
    assert_eq!(a.shards.handle(hub(1_000), Mono(2_010)).len(), 1, "nothing but the next wake-up");
    let effects = a.shards.handle(hub(1_060), Mono(2_020));
    assert!(matches!(effects[0], Effect::StoodStill(58_000..=60_000)), "{:?}", effects[0]);
    assert_eq!(effects.iter().filter(|e| matches!(e, Effect::Lost(_))).count(), 64);
    assert_eq!(a.shards.may_act(Mono(2_020)).count(), 0);
    let mut b = Process::new("a", "a/1");
    b.run(&mut store, 2_250, 12_000);
    assert_eq!(store.records["seat-a"].transitions, 2, "with a new incarnation");
}

#[test]
fn a_fenced_process_drops_its_units_and_joins_again_with_a_new_incarnation() {
    let (mut store, mut a) = (Store::default(), Process::new("a", "a/1"));
    a.run(&mut store, 0, 2_000);
    let mut seat = store.records["seat-a"].clone();
    seat.holder.clear();
    seat.transitions += 1;
    store.write(seat, false).unwrap();
    a.run(&mut store, 2_250, 12_000);
    assert_eq!(a.held.len(), 64);
    assert!(a.held.values().all(|epoch| *epoch == 2));
    assert_eq!(store.records["seat-a"].transitions, 3);
}

#[test]
fn a_second_process_of_the_same_seat_that_took_it_ends_the_first() {
    let (mut store, mut a) = (Store::default(), Process::new("a", "a/1"));
    a.run(&mut store, 0, 2_000);
    let mut seat = store.records["seat-a"].clone();
    seat.holder = "a/9".into();
    seat.transitions += 1;
    store.write(seat, false).unwrap();
    a.run(&mut store, 2_250, 6_000);
    assert!(a.exit.is_some());
    assert_eq!(a.held.len(), 0);
}

#[test]
fn an_epoch_never_comes_twice_also_when_a_person_deletes_the_record() {
    let (mut store, mut a) = (Store::default(), Process::new("a", "a/1"));
    a.run(&mut store, 0, 4_000);
    store.delete("q-05");
    a.run(&mut store, 4_250, 10_000);
    assert_eq!(a.held.get("q-05"), Some(&2));
    let mut record = store.records["q-06"].clone();
    record.transitions = 0;
    record.holder = String::new();
    store.write(record, false).unwrap();
    a.run(&mut store, 10_250, 20_000);
    assert_eq!(a.held.get("q-06"), Some(&2));
}

#[test]
fn a_stamp_above_our_epoch_raises_the_epoch_above_it() {
    let (mut store, mut a) = (Store::default(), Process::new("a", "a/1"));
    a.run(&mut store, 0, 2_000);
    a.feed(&mut store, Input::Stamp("q-07".into(), 41), Mono(2_100));
    assert_eq!(a.held.get("q-07"), Some(&42));
}

#[test]
fn a_renewal_whose_answer_is_lost_is_found_by_reading() {
    let (mut store, mut a) = (Store::default(), Process::new("a", "a/1"));
    a.run(&mut store, 0, 2_000);
    let mut lost = false;
    for ms in (2_250..30_000).step_by(250) {
        let mut inputs = vec![Input::Tick];
        while let Some(input) = inputs.pop() {
            for effect in a.shards.handle(input, Mono(ms)) {
                match effect {
                    Effect::Ask(call, Ask::Put(record)) if record.name == "seat-a" && !lost => {
                        lost = true;
                        store.write(record, false).unwrap();
                        inputs.insert(0, Input::Written(call, Err(Failure::Unknown("no answer".into()))));
                    }
                    Effect::Ask(call, Ask::Put(record)) => {
                        inputs.insert(0, Input::Written(call, store.write(record, false)));
                    }
                    Effect::Ask(call, Ask::Read(name)) => {
                        inputs.insert(0, Input::Read(call, Ok(store.records.get(&name).cloned())));
                    }
                    Effect::Ask(call, Ask::List) => {
                        inputs.insert(0, Input::Listed(call, Ok(store.list())));
                    }
                    Effect::Lost(unit) => panic!("lost {unit} at {ms}"),
                    _ => {}
                }
            }
        }
    }
    assert!(lost && a.shards.seated());
}

#[test]
fn leaving_releases_every_unit_and_empties_the_seat_last() {
    let (mut store, mut a) = (Store::default(), Process::new("a", "a/1"));
    a.run(&mut store, 0, 2_000);
    a.feed(&mut store, Input::Leave, Mono(2_100));
    a.run(&mut store, 2_250, 3_000);
    assert!(a.left);
    assert!(store.records.values().all(|r| r.holder.is_empty()));
    assert!(store.log.last().is_some_and(|l| l.starts_with("seat-a ")));
}

#[test]
fn units_of_a_seat_that_is_silent_for_d_are_taken_over() {
    let (mut store, mut a) = (Store::default(), Process::new("a", "a/1"));
    a.run(&mut store, 0, 2_000);
    let mut b = Process::new("b", "b/1");
    b.run(&mut store, 2_000, 16_000);
    assert_eq!(b.held.len(), 0, "D of silence has not passed since b saw a last");
    b.run(&mut store, 16_250, 25_000);
    assert_eq!(b.held.len(), 64);
    assert!(b.held.values().all(|epoch| *epoch == 2));
}

#[test]
fn units_of_a_seat_that_a_person_deleted_are_taken_over_only_after_d() {
    let (mut store, mut a) = (Store::default(), Process::new("a", "a/1"));
    a.run(&mut store, 0, 2_000);
    store.delete("seat-a");
    let mut b = Process::new("b", "b/1");
    b.run(&mut store, 2_000, 16_000);
    assert_eq!(b.held.len(), 0);
    b.run(&mut store, 16_250, 22_000);
    assert_eq!(b.held.len(), 64);
}

#[test]
fn units_of_a_seat_that_was_deleted_while_it_was_fenced_are_taken_over() {
    let (mut store, mut a) = (Store::default(), Process::new("a", "a/1"));
    a.run(&mut store, 0, 2_000);
    let mut b = Process::new("b", "b/1");
    b.run(&mut store, 2_000, 16_750);
    // The stream tells of the deletion only after the fencing write found nothing.
    b.mute = true;
    store.delete("seat-a");
    b.run(&mut store, 17_000, 17_250);
    b.mute = false;
    let lists = b.lists;
    b.run(&mut store, 17_500, 30_000);
    assert_eq!(b.held.len(), 0, "its holder may trust it yet");
    b.run(&mut store, 30_250, 40_000);
    assert_eq!((b.held.len(), b.lists), (64, lists), "the stream alone has to be enough");
}

#[test]
fn what_a_person_edits_in_a_seat_is_set_right_by_the_next_renewal() {
    let (mut store, mut a) = (Store::default(), Process::new("a", "a/1"));
    a.run(&mut store, 0, 4_000);
    let before = store.records["seat-a"].clone();
    let edited = Record { annotations: BTreeMap::new(), duration_seconds: 3_600, ..before.clone() };
    store.write(edited, false).unwrap();
    a.run(&mut store, 4_250, 10_000);
    let after = &store.records["seat-a"];
    assert_eq!((&after.annotations, after.duration_seconds), (&before.annotations, before.duration_seconds));
    assert_eq!(after.transitions, before.transitions, "it was ours all the time");
    a.feed(&mut store, Input::Wanted(["m-eu-0".to_owned()].into()), Mono(10_000));
    assert_eq!(a.held.len(), 65, "it counts as ready");
}

#[test]
fn a_process_never_asks_to_be_woken_at_once_while_the_hub_is_silent() {
    let (mut store, mut a) = (Store::default(), Process::new("a", "a/1"));
    a.run(&mut store, 0, 2_000);
    for ms in (2_250..40_000).step_by(250) {
        for effect in a.shards.handle(Input::Tick, Mono(ms)) {
            if let Effect::WakeAt(at) = effect {
                assert!(at > Mono(ms), "at {ms}");
            }
        }
    }
}

#[test]
fn a_seat_that_a_person_deleted_counts_on_and_its_units_are_taken_again() {
    let (mut store, mut a) = (Store::default(), Process::new("a", "a/1"));
    a.run(&mut store, 0, 2_000);
    let mut b = Process::new("a", "a/2");
    b.dead.insert("a/1".into());
    b.run(&mut store, 2_000, 4_000);
    store.delete("seat-a");
    b.run(&mut store, 4_250, 12_000);
    assert_eq!((b.held.len(), store.records["seat-a"].transitions), (64, 3));
    // The same while no process runs.
    store.delete("seat-a");
    let mut c = Process::new("a", "a/3");
    // The one before may trust its seat for H yet.
    c.run(&mut store, 12_000, 24_000);
    assert_eq!((c.held.len(), store.records.get("seat-a")), (0, None));
    c.run(&mut store, 24_000, 40_000);
    assert_eq!((c.held.len(), store.records["seat-a"].transitions), (64, 4));
}

#[test]
fn with_a_seat_a_process_follows_a_stream_and_lists_no_more() {
    let (mut store, mut a) = (Store::default(), Process::new("a", "a/1"));
    a.run(&mut store, 0, 120_000);
    assert_eq!((a.lists, a.held.len()), (1, 64));
    store.write(store.taken_by("q-05", "b#1"), false).unwrap();
    a.feed(&mut store, Input::Tick, Mono(120_001));
    assert_eq!(a.held.get("q-05"), None, "what the stream tells counts at once");
    assert_eq!(a.lists, 1);
}

#[test]
fn behind_a_stream_that_ends_stands_a_list_and_the_next_stream() {
    let (mut store, mut a) = (Store::default(), Process::new("a", "a/1"));
    a.run(&mut store, 0, 20_000);
    a.end_stream(&mut store, Mono(20_001));
    store.write(store.taken_by("q-05", "b#1"), false).unwrap();
    a.run(&mut store, 20_250, 24_000);
    assert_eq!((a.lists, a.held.get("q-05")), (2, None));
    assert!(a.stream.is_some());
}

#[test]
fn streams_that_end_at_once_do_not_make_more_than_one_list_per_renew_period() {
    let (mut store, mut a) = (Store::default(), Process::new("a", "a/1"));
    for ms in (0..60_000).step_by(50) {
        a.feed(&mut store, Input::Tick, Mono(ms));
        if a.stream.is_some() {
            a.end_stream(&mut store, Mono(ms));
        }
    }
    assert!(a.lists <= 21, "{}", a.lists);
}

#[test]
fn a_stream_in_which_our_own_renewals_are_missing_is_closed_for_a_list() {
    let (mut store, mut a) = (Store::default(), Process::new("a", "a/1"));
    let mut b = Process::new("b", "b/1");
    for ms in (0..10_000).step_by(250) {
        a.feed(&mut store, Input::Tick, Mono(ms));
        b.feed(&mut store, Input::Tick, Mono(ms));
    }
    a.mute = true;
    for ms in (10_000..60_000).step_by(250) {
        a.feed(&mut store, Input::Tick, Mono(ms));
        b.feed(&mut store, Input::Tick, Mono(ms));
    }
    assert!(a.lists > 3, "{}", a.lists);
    assert!(!store.log.iter().any(|l| l.starts_with("seat-b  ")), "what is not heard is not fenced");
}

#[test]
fn a_process_that_stands_still_keeps_nothing_alive_whatever_it_hears() {
    let (mut store, mut a) = (Store::default(), Process::new("a", "a/1"));
    let mut b = Process::new("b", "b/1");
    for ms in (0..4_000).step_by(250) {
        a.feed(&mut store, Input::Tick, Mono(ms));
        b.feed(&mut store, Input::Tick, Mono(ms));
    }
    a.feed(&mut store, Input::Stalled(true), Mono(4_000));
    for ms in (4_000..40_000).step_by(250) {
        a.feed(&mut store, Input::Tick, Mono(ms));
        b.feed(&mut store, Input::Tick, Mono(ms));
    }
    assert_eq!((a.held.len(), b.held.len()), (0, 64));
    a.feed(&mut store, Input::Stalled(false), Mono(40_000));
    a.run(&mut store, 40_250, 42_000);
    assert!(a.shards.seated());
}

#[test]
fn a_fenced_process_learns_it_from_the_stream() {
    let (mut store, mut a) = (Store::default(), Process::new("a", "a/1"));
    a.run(&mut store, 0, 3_100);
    store.write(store.taken_by("seat-a", ""), false).unwrap();
    a.feed(&mut store, Input::Tick, Mono(3_200));
    assert!(a.held.values().all(|epoch| *epoch == 2), "it did not wait for its next renewal: {:?}", a.held);
    assert_eq!(store.records["seat-a"].transitions, 3);
}

#[test]
fn after_an_outage_of_the_hub_nobody_is_taken_for_dead_who_was_not_heard_for_d_since() {
    let (mut store, mut a) = (Store::default(), Process::new("a", "a/1"));
    let mut b = Process::new("b", "b/1");
    for ms in (0..10_000).step_by(250) {
        a.feed(&mut store, Input::Tick, Mono(ms));
        b.feed(&mut store, Input::Tick, Mono(ms));
    }
    // The hub answers nobody for a minute.
    let mut late = Vec::new();
    for process in [&mut a, &mut b] {
        let mut unanswered = Vec::new();
        for ms in (10_000..70_000).step_by(250) {
            let mut inputs = std::mem::take(&mut unanswered);
            inputs.push(Input::Tick);
            for effect in inputs.into_iter().flat_map(|input| process.shards.handle(input, Mono(ms))) {
                let silent = Failure::Unknown("no answer".into());
                match effect {
                    Effect::Ask(call, Ask::List) => unanswered.push(Input::Listed(call, Err(silent))),
                    Effect::Ask(call, Ask::Read(_)) => unanswered.push(Input::Read(call, Err(silent))),
                    Effect::Ask(call, _) => unanswered.push(Input::Written(call, Err(silent))),
                    Effect::Close(_) => process.stream = None,
                    _ => {}
                }
            }
        }
        process.held.clear();
        late.push(unanswered);
    }
    let before = store.log.len();
    // The first one back is far ahead of the other.
    for input in late.swap_remove(0) {
        a.feed(&mut store, input, Mono(70_000));
    }
    a.run(&mut store, 70_000, 80_000);
    assert!(!store.log[before..].iter().any(|l| l.starts_with("seat-b ")), "{:?}", &store.log[before..]);
    a.run(&mut store, 80_250, 90_000);
    assert!(store.log[before..].iter().any(|l| l.starts_with("seat-b  ")), "silent for D since");
}

#[test]
fn an_acquisition_that_was_overtaken_is_not_held_when_its_answer_comes_late() {
    let (mut store, mut a) = (Store::default(), Process::new("a", "a/1"));
    a.run(&mut store, 0, 4_000);
    let mut answer = None;
    for effect in a.shards.handle(Input::Wanted(["m-eu-0".to_owned()].into()), Mono(4_100)) {
        if let Effect::Ask(call, Ask::Create(record)) = effect {
            answer = Some((call, store.write(record, true)));
        }
    }
    store.write(store.taken_by("m-eu-0", "b#1"), false).unwrap();
    a.feed(&mut store, Input::Tick, Mono(4_200));
    let (call, result) = answer.unwrap();
    a.feed(&mut store, Input::Written(call, result), Mono(4_300));
    assert_eq!(a.held.get("m-eu-0"), None);
    assert_eq!(store.records["m-eu-0"].holder, "b#1");
}
