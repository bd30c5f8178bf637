//! Which objects carry a label, so that a selector need not look at all of them.
//! Must not know what the objects are.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::object::{map, namespace};

/// A namespace, a label's name and its value.
pub type Pair = (String, String, String);

/// Names of objects under pairs.
#[derive(Debug, Default)]
pub struct LabelIndex(BTreeMap<Pair, BTreeSet<String>>);

impl LabelIndex {
    /// The object stood under some pairs, and stands under others now.
    pub fn replace(
        &mut self,
        object: &str,
        before: impl IntoIterator<Item = Pair>,
        now: impl IntoIterator<Item = Pair>,
    ) {
        for pair in before {
            if let Some(objects) = self.0.get_mut(&pair) {
                objects.remove(object);
                if objects.is_empty() {
                    self.0.remove(&pair);
                }
            }
        }
        for pair in now {
            self.0.entry(pair).or_default().insert(object.to_owned());
        }
    }

    /// The objects under a pair, in order.
    pub fn get(&self, pair: &Pair) -> impl Iterator<Item = &str> {
        self.0.get(pair).into_iter().flatten().map(String::as_str)
    }

    /// How many they are.
    pub fn count(&self, pair: &Pair) -> usize {
        self.0.get(pair).map_or(0, BTreeSet::len)
    }
}

/// The pairs of an object's map of texts (its labels, its selector), in its namespace.
pub fn pairs(object: &Value, pointer: &str) -> impl Iterator<Item = Pair> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    map(object, pointer).map(move |(name, value)| (namespace(object).to_owned(), name.clone(), text(value)))
}
