//! Stories of one and two processes over a store in memory with real compare-and-swap.
//! Must not look into the core: what is asserted is what the store holds and what was told.

use std::collections::{BTreeMap, BTreeSet};

use super::*;
use crate::lease::Record;

#[derive(Default)]
struct Store {
    records: BTreeMap<String, Record>,
    version: u64,
    log: Vec<String>,
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
        Ok(record)
    }
}

struct Process {
    shards: Shards,
    held: BTreeMap<String, u64>,
    exit: Option<String>,
    left: bool,
    /// Processes that are known to have ended.
    dead: BTreeSet<String>,
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
        }
    }

    /// Handles an input and everything that follows from it at once.
    fn feed(&mut self, store: &mut Store, input: Input, now: Mono) {
        let mut queue = vec![input];
        while let Some(input) = queue.pop() {
            for effect in self.shards.handle(input, now) {
                match effect {
                    Effect::Ask(call, Ask::List) => {
                        queue.insert(0, Input::Listed(call, Ok(store.records.values().cloned().collect())));
                    }
                    Effect::Ask(call, Ask::Read(name)) => {
                        queue.insert(0, Input::Read(call, Ok(store.records.get(&name).cloned())));
                    }
                    Effect::Ask(call, Ask::Create(record)) => {
                        queue.insert(0, Input::Written(call, store.write(record, true)));
                    }
                    Effect::Ask(call, Ask::Put(record)) => {
                        queue.insert(0, Input::Written(call, store.write(record, false)));
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
                    Effect::Attest(_) | Effect::Epochs(_) | Effect::WakeAt(_) => {}
                }
            }
        }
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
    store.records.remove("q-05");
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
                        inputs.insert(0, Input::Listed(call, Ok(store.records.values().cloned().collect())));
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
    store.records.remove("seat-a");
    let mut b = Process::new("b", "b/1");
    b.run(&mut store, 2_000, 16_000);
    assert_eq!(b.held.len(), 0);
    b.run(&mut store, 16_250, 22_000);
    assert_eq!(b.held.len(), 64);
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
    store.records.remove("seat-a");
    b.run(&mut store, 4_250, 12_000);
    assert_eq!((b.held.len(), store.records["seat-a"].transitions), (64, 3));
    // The same while no process runs.
    store.records.remove("seat-a");
    let mut c = Process::new("a", "a/3");
    c.run(&mut store, 12_000, 16_000);
    assert_eq!((c.held.len(), store.records["seat-a"].transitions), (64, 4));
}
