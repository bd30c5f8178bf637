//! What a Pod asks for as a whole: containers run together, init containers one after the other before them.
//! Must not know who limits or counts it.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::api::quantity::Quantity;

/// Amounts by the names of their resources.
pub(super) type Amounts = BTreeMap<String, Quantity>;

/// A resource list of Kubernetes. What is no quantity is left out.
pub(super) fn amounts(list: &Value) -> Amounts {
    let fields = list.as_object().into_iter().flatten();
    fields.filter_map(|(name, amount)| Some((name.clone(), amount.as_str()?.parse().ok()?))).collect()
}

/// Sums of `requests` or `limits` over a Pod: of its containers, and no less than any of its init containers.
pub(super) fn of_pod(pod: &Value, field: &str) -> Amounts {
    let of = |containers: &str| {
        let containers = pod["spec"][containers].as_array().into_iter().flatten();
        containers.flat_map(|container| amounts(&container["resources"][field])).collect::<Vec<_>>()
    };
    let mut whole = Amounts::new();
    for (name, amount) in of("containers") {
        *whole.entry(name).or_default() += amount;
    }
    for (name, amount) in of("initContainers") {
        let there = whole.entry(name).or_default();
        *there = (*there).max(amount);
    }
    whole
}
