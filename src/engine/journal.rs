//! What each key waits for, since when, and its last trouble: for `explain`, diagnostics and back-off.
//! Must not decide anything.

use std::collections::BTreeMap;

use crate::api::{Key, Time};
use crate::plan::Why;

/// What is remembered of one key.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Entry {
    /// What it waits for.
    pub why: Why,
    /// Since when it says so.
    pub since: Time,
    /// Last look at it.
    pub looked: Time,
    /// Writes that failed in a row.
    pub failures: u32,
    /// The last failure, in words.
    pub trouble: Option<String>,
}

/// Entries by key.
#[derive(Debug, Default)]
pub(super) struct Journal {
    entries: BTreeMap<Key, Entry>,
}

impl Journal {
    /// A look came to this.
    pub(super) fn say(&mut self, key: &Key, why: Why, now: Time) {
        let entry = self.entries.entry(key.clone()).or_default();
        if entry.why != why {
            entry.why = why;
            entry.since = now;
        }
        entry.looked = now;
    }

    /// A write of the key failed; returns how many in a row.
    pub(super) fn trouble(&mut self, key: &Key, text: String) -> u32 {
        let entry = self.entries.entry(key.clone()).or_default();
        entry.failures = entry.failures.saturating_add(1);
        entry.trouble = Some(text);
        entry.failures
    }

    /// A write of the key succeeded.
    pub(super) fn success(&mut self, key: &Key) {
        if let Some(entry) = self.entries.get_mut(key) {
            entry.failures = 0;
            entry.trouble = None;
        }
    }

    pub(super) fn get(&self, key: &Key) -> Option<&Entry> {
        self.entries.get(key)
    }

    pub(super) fn forget(&mut self, key: &Key) {
        self.entries.remove(key);
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&Key, &Entry)> {
        self.entries.iter()
    }
}
