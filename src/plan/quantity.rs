//! Amounts of resources as Volcano counts them: which dimension in which unit, sums, comparisons, texts for people.
//! Exact integers. Must not know queues, nodes or who asks. The only module of `plan` that the sandbox's scheduler uses.

use std::collections::BTreeMap;
use std::sync::Arc;

pub use crate::api::quantity::{Quantity, QuantityError};

/// The dimension of processors.
pub const CPU: &str = "cpu";
/// The dimension of memory.
pub const MEMORY: &str = "memory";
/// The dimension that counts pods.
pub const PODS: &str = "pods";

/// Dimension → amount in Volcano's unit of it (specs/volcano.md 7.2): `cpu` milli-cores, `memory` bytes, `pods` pieces, all
/// others thousandths of one (1 gpu = 1000). Amounts may be negative. Equal means: the same dimensions with the same
/// amounts; a dimension with amount 0 is not the same as an absent one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Resources(BTreeMap<Arc<str>, i128>);

/// An upper bound of one dimension.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    /// No bound.
    Unlimited,
    /// Up to this much, in the dimension's unit.
    At(i128),
}

impl Limit {
    /// The tighter of both.
    pub fn min(self, other: Limit) -> Limit {
        match (self, other) {
            (Limit::Unlimited, x) | (x, Limit::Unlimited) => x,
            (Limit::At(a), Limit::At(b)) => Limit::At(a.min(b)),
        }
    }

    /// Whether this much is within the bound: a plain `<=`, no tolerance.
    pub fn admits(self, amount: i128) -> bool {
        match self {
            Limit::Unlimited => true,
            Limit::At(most) => amount <= most,
        }
    }

    /// What is left of it after `amount`.
    pub fn minus(self, amount: i128) -> Limit {
        match self {
            Limit::Unlimited => Limit::Unlimited,
            Limit::At(most) => Limit::At(most - amount),
        }
    }
}

impl Resources {
    /// Nothing.
    pub fn new() -> Self {
        Self::default()
    }

    /// From quantity texts. Volcano's rounding: up to whole milli-cores, bytes, pods, thousandths.
    /// Names that Volcano ignores (`count/…`, `requests.…`, unknown names that are no extended resource) are left out.
    /// The error names the dimension.
    pub fn parse<K: AsRef<str>, V: AsRef<str>>(list: impl IntoIterator<Item = (K, V)>) -> Result<Self, String> {
        let mut sum = Self::new();
        for (name, text) in list {
            let name = name.as_ref();
            let quantity = text.as_ref().trim().parse::<Quantity>().map_err(|e| format!("{name}: {e}"))?;
            sum.put(name, quantity);
        }
        Ok(sum)
    }

    /// From quantities, with the same rules.
    pub fn of<K: AsRef<str>>(list: impl IntoIterator<Item = (K, Quantity)>) -> Self {
        let mut sum = Self::new();
        for (name, quantity) in list {
            sum.put(name.as_ref(), quantity);
        }
        sum
    }

    fn put(&mut self, name: &str, quantity: Quantity) {
        if let Some(amount) = in_unit(name, quantity) {
            self.add_one(name, amount);
        }
    }

    /// Adds to one dimension; it is there afterwards, also with 0.
    pub fn add_one(&mut self, name: &str, amount: i128) {
        if let Some(present) = self.0.get_mut(name) {
            *present += amount;
        } else {
            self.0.insert(name.into(), amount);
        }
    }

    /// Sets one dimension.
    pub fn set(&mut self, name: &str, amount: i128) {
        self.0.insert(name.into(), amount);
    }

    /// Takes a dimension out.
    pub fn remove(&mut self, name: &str) {
        self.0.remove(name);
    }

    /// Amount of a dimension; 0 where absent.
    pub fn get(&self, name: &str) -> i128 {
        self.0.get(name).copied().unwrap_or(0)
    }

    /// Whether the dimension is named.
    pub fn names(&self, name: &str) -> bool {
        self.0.contains_key(name)
    }

    /// Whether no dimension has an amount other than 0.
    pub fn is_zero(&self) -> bool {
        self.0.values().all(|&amount| amount == 0)
    }

    /// Dimensions and amounts, by name.
    pub fn iter(&self) -> impl Iterator<Item = (&Arc<str>, i128)> {
        self.0.iter().map(|(name, &amount)| (name, amount))
    }

    /// Adds all of `other`.
    pub fn add(&mut self, other: &Resources) {
        for (name, amount) in other.iter() {
            self.add_one(name, amount);
        }
    }

    /// Takes all of `other` away; the result may be negative.
    pub fn sub(&mut self, other: &Resources) {
        for (name, amount) in other.iter() {
            self.add_one(name, -amount);
        }
    }

    /// Sum of both.
    pub fn plus(mut self, other: &Resources) -> Resources {
        self.add(other);
        self
    }

    /// Difference; may be negative.
    pub fn minus(mut self, other: &Resources) -> Resources {
        self.sub(other);
        self
    }

    /// So many times.
    pub fn times(&self, count: i64) -> Resources {
        Self(self.0.iter().map(|(name, amount)| (name.clone(), amount * i128::from(count))).collect())
    }

    /// Per dimension the larger amount; an absent one counts as 0.
    pub fn max(mut self, other: &Resources) -> Resources {
        for (name, amount) in other.iter() {
            let most = self.get(name).max(amount);
            self.set(name, most);
        }
        self
    }

    /// Per dimension the smaller amount; an absent one counts as 0.
    pub fn min(mut self, other: &Resources) -> Resources {
        for (name, amount) in &mut self.0 {
            *amount = (*amount).min(other.get(name));
        }
        for (name, amount) in other.iter() {
            if !self.names(name) {
                self.set(name, amount.min(0));
            }
        }
        self
    }

    /// Per dimension at least 0.
    pub fn at_least_zero(mut self) -> Resources {
        for amount in self.0.values_mut() {
            *amount = (*amount).max(0);
        }
        self
    }

    /// The bound that a queue's capability sets on a dimension (specs/volcano.md 3.6, corrections 4): not named means no
    /// bound; zero of cpu or memory means no bound, zero of anything else is closed.
    pub fn as_capability(&self, name: &str) -> Limit {
        match self.0.get(name) {
            None => Limit::Unlimited,
            Some(0) if name == CPU || name == MEMORY => Limit::Unlimited,
            Some(&amount) => Limit::At(amount),
        }
    }

    /// The dimensions that a queue check tests for this request: those asked for with more than 0, never `pods`.
    pub fn asked(&self) -> impl Iterator<Item = (&Arc<str>, i128)> {
        self.iter().filter(|(name, amount)| *amount > 0 && &***name != PODS)
    }

    /// First dimension, by name, where a node with `idle` left cannot take this request; `pods` counts here.
    /// Dimensions not asked for are not tested.
    pub fn over_node(&self, idle: &Resources) -> Option<&Arc<str>> {
        self.iter().find(|(name, amount)| *amount > 0 && *amount > idle.get(name)).map(|(name, _)| name)
    }

    /// Quantity texts, as an object carries them: cpu and scalars in decimal, memory with binary suffixes.
    pub fn texts(&self) -> BTreeMap<String, String> {
        self.iter().map(|(name, amount)| (name.to_string(), quantity_of(name, amount).to_string())).collect()
    }

    /// For people: `cpu 41.5, gpu 6, memory 12Gi`; only amounts other than 0; `nothing` where there are none.
    pub fn people(&self) -> String {
        let parts: Vec<String> =
            self.iter().filter(|(_, amount)| *amount != 0).map(|(name, amount)| people(name, amount)).collect();
        if parts.is_empty() { "nothing".to_owned() } else { parts.join(", ") }
    }
}

/// Amount of a quantity in the dimension's unit, rounded up; `None` where Volcano ignores the name.
pub fn in_unit(name: &str, quantity: Quantity) -> Option<i128> {
    match name {
        CPU => Some(quantity.millis_up()),
        MEMORY | PODS => Some(quantity.units_up()),
        _ if is_scalar(name) => Some(quantity.millis_up()),
        _ => None,
    }
}

/// The quantity that an amount in the dimension's unit is.
pub fn quantity_of(name: &str, amount: i128) -> Quantity {
    match name {
        MEMORY => bytes(amount),
        PODS => Quantity::from_nanos(amount.saturating_mul(1_000_000_000)),
        _ => Quantity::from_nanos(amount.saturating_mul(1_000_000)),
    }
}

/// Whole bytes, to be written with binary suffixes.
fn bytes(amount: i128) -> Quantity {
    "1Ki".parse().unwrap_or(Quantity::ZERO).with(amount.saturating_mul(1_000_000_000))
}

/// Whether Volcano counts a name beside cpu, memory and pods.
fn is_scalar(name: &str) -> bool {
    if name.starts_with("count/") || name.starts_with("requests.") {
        return false;
    }
    name == "ephemeral-storage"
        || name.starts_with("hugepages-")
        || name.starts_with("attachable-volumes-")
        || name.contains('/')
}

/// A dimension in one word: `gpu` for `nvidia.com/gpu`.
pub fn short_name(name: &str) -> &str {
    name.rsplit('/').next().unwrap_or(name)
}

/// One amount for people: `cpu 41.5`, `gpu 6`, `memory 648.5Gi`.
pub fn people(name: &str, amount: i128) -> String {
    format!("{} {}", short_name(name), people_amount(name, amount))
}

/// The amount alone: `41.5`, `6`, `648.5Gi`.
pub fn people_amount(name: &str, amount: i128) -> String {
    match name {
        MEMORY => bytes_for_people(amount),
        PODS => amount.to_string(),
        _ => {
            let (sign, size) = (if amount < 0 { "-" } else { "" }, amount.unsigned_abs());
            let fraction = format!("{:03}", size % 1000);
            let fraction = fraction.trim_end_matches('0');
            let dot = if fraction.is_empty() { "" } else { "." };
            format!("{sign}{}{dot}{fraction}", size / 1000)
        }
    }
}

/// Bytes with the binary suffix that leaves 1 to 1023 before the point, and at most two decimals; an amount that this would
/// round is written exactly instead, so that need and have never look equal when they are not.
fn bytes_for_people(bytes: i128) -> String {
    let mut unit: i128 = 1;
    let mut suffix = "";
    for next in ["Ki", "Mi", "Gi", "Ti", "Pi", "Ei"] {
        if bytes.abs() < unit * 1024 {
            break;
        }
        unit *= 1024;
        suffix = next;
    }
    let hundredths = bytes * 100;
    if hundredths % unit != 0 {
        return self::bytes(bytes).to_string();
    }
    let hundredths = hundredths / unit;
    let (sign, size) = (if hundredths < 0 { "-" } else { "" }, hundredths.unsigned_abs());
    let fraction = format!("{:02}", size % 100);
    let fraction = fraction.trim_end_matches('0');
    let dot = if fraction.is_empty() { "" } else { "." };
    format!("{sign}{}{dot}{fraction}{suffix}", size / 100)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resources(list: &[(&str, &str)]) -> Resources {
        Resources::parse(list.iter().copied()).expect("quantities of the test")
    }

    #[test]
    fn amounts_are_rounded_up_to_volcanos_units() {
        let r = resources(&[("cpu", "100.5m"), ("memory", "0.3Ki"), ("nvidia.com/gpu", "1"), ("pods", "3")]);
        assert_eq!((r.get(CPU), r.get(MEMORY), r.get("nvidia.com/gpu"), r.get(PODS)), (101, 308, 1000, 3));
    }

    #[test]
    fn names_that_volcano_ignores_are_left_out() {
        let r = resources(&[("count/pods", "3"), ("requests.cpu", "1"), ("storage", "1"), ("hugepages-2Mi", "1Gi")]);
        assert_eq!(r.iter().map(|(n, _)| n.to_string()).collect::<Vec<_>>(), ["hugepages-2Mi"]);
    }

    #[test]
    fn a_bad_quantity_names_its_dimension() {
        let error = Resources::parse([("memory", "1 Gi")]).expect_err("refused");
        assert!(error.starts_with("memory: \"1 Gi\""), "{error}");
    }

    #[test]
    fn a_capability_of_zero_is_no_bound_for_cpu_and_memory_but_closes_scalars() {
        let c = resources(&[("cpu", "0"), ("nvidia.com/gpu", "0"), ("memory", "1Gi")]);
        assert_eq!(c.as_capability(CPU), Limit::Unlimited);
        assert_eq!(c.as_capability("nvidia.com/gpu"), Limit::At(0));
        assert_eq!(c.as_capability("amd.com/gpu"), Limit::Unlimited);
        assert_eq!(c.as_capability(MEMORY), Limit::At(1 << 30));
    }

    #[test]
    fn a_node_takes_what_fits_in_every_dimension_that_is_asked_for() {
        let idle = resources(&[("cpu", "2"), ("pods", "1")]);
        assert_eq!(resources(&[("cpu", "2"), ("pods", "1")]).over_node(&idle), None);
        assert_eq!(resources(&[("cpu", "2001m")]).over_node(&idle).map(|n| &**n), Some("cpu"));
        assert_eq!(resources(&[("pods", "2")]).over_node(&idle).map(|n| &**n), Some("pods"));
        assert_eq!(resources(&[("memory", "0")]).over_node(&idle), None);
        assert_eq!(resources(&[("memory", "1")]).over_node(&idle).map(|n| &**n), Some("memory"));
    }

    #[test]
    fn sums_and_differences_keep_their_sign() {
        let a = resources(&[("cpu", "1"), ("memory", "1Gi")]);
        let b = resources(&[("cpu", "3"), ("nvidia.com/gpu", "1")]);
        let d = a.clone().minus(&b);
        assert_eq!((d.get(CPU), d.get("nvidia.com/gpu"), d.get(MEMORY)), (-2000, -1000, 1 << 30));
        assert_eq!(a.clone().max(&b).get(CPU), 3000);
        assert_eq!(a.clone().min(&b).get(MEMORY), 0);
        assert_eq!(d.at_least_zero().get(CPU), 0);
        assert_eq!(a.times(3).get(CPU), 3000);
    }

    #[test]
    fn people_read_amounts_with_units() {
        assert_eq!(people("cpu", 41_500), "cpu 41.5");
        assert_eq!(people("nvidia.com/gpu", 6000), "gpu 6");
        assert_eq!(people("memory", 648 << 30), "memory 648Gi");
        assert_eq!(people("memory", (1 << 30) + (1 << 29)), "memory 1.5Gi");
        assert_eq!(people("memory", (1 << 30) + 1), "memory 1073741825");
        assert_eq!(people("cpu", -500), "cpu -0.5");
        assert_eq!(resources(&[("cpu", "2"), ("memory", "1Gi")]).people(), "cpu 2, memory 1Gi");
        assert_eq!(Resources::new().people(), "nothing");
    }

    #[test]
    fn texts_are_quantities_of_the_same_amount() {
        let r = resources(&[("cpu", "1500m"), ("memory", "200Mi"), ("nvidia.com/gpu", "2"), ("pods", "4")]);
        assert_eq!(Resources::parse(r.texts()), Ok(r.clone()));
        assert_eq!(r.texts()["memory"], "200Mi");
    }
}
