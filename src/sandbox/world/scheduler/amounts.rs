//! Amounts of resources as Volcano counts them: floating-point, cpu in thousandths, memory in bytes, the rest in
//! thousandths except `pods` (specs/volcano.md 3.3 to 3.6 and "More exact" 4).
//! Must not know queues or pods.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::api::quantity::Quantity;

/// The name of the dimension that counts pods; it is never tested at enqueue.
pub const PODS: &str = "pods";

/// Resource name → amount. A name may stand with zero: that it stands there can mean something.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Amounts(pub BTreeMap<String, f64>);

impl Amounts {
    /// From a Kubernetes resource list. Names that Volcano does not count, and unreadable amounts, are left out.
    pub fn parse(list: Option<&Value>) -> Self {
        let entries = list.and_then(Value::as_object).into_iter().flatten();
        Self(entries.filter(|(n, _)| counts(n)).filter_map(|(n, v)| Some((n.clone(), amount(n, v)?))).collect())
    }

    /// Amount of a dimension; zero where it is not named.
    pub fn get(&self, name: &str) -> f64 {
        self.0.get(name).copied().unwrap_or(0.0)
    }

    /// Adds another vector.
    pub fn add(&mut self, other: &Amounts) {
        for (name, amount) in &other.0 {
            *self.0.entry(name.clone()).or_insert(0.0) += amount;
        }
    }

    /// Takes another vector away; may become negative.
    pub fn sub(&mut self, other: &Amounts) {
        for (name, amount) in &other.0 {
            *self.0.entry(name.clone()).or_insert(0.0) -= amount;
        }
    }

    /// `max(0, self − other)` in the dimensions of `self`.
    pub fn beyond(&self, other: &Amounts) -> Amounts {
        Amounts(self.0.iter().map(|(n, a)| (n.clone(), (a - other.get(n)).max(0.0))).collect())
    }

    /// The larger of both in each dimension of either.
    pub fn larger(&self, other: &Amounts) -> Amounts {
        let mut out = self.clone();
        for (name, amount) in &other.0 {
            let mine = out.0.entry(name.clone()).or_insert(*amount);
            *mine = mine.max(*amount);
        }
        out
    }

    /// The dimensions that ask for something.
    pub fn asked(&self) -> impl Iterator<Item = (&str, f64)> {
        self.0.iter().filter(|(_, a)| **a > 0.0).map(|(n, a)| (n.as_str(), *a))
    }

    /// A resource list as Kubernetes writes it: cpu and memory always, others where they are not zero.
    pub fn to_list(&self) -> Value {
        let mut out = serde_json::Map::new();
        for name in ["cpu", "memory"] {
            out.insert(name.to_owned(), written(name, self.get(name)).into());
        }
        for (name, amount) in self.0.iter().filter(|(_, a)| **a != 0.0) {
            out.insert(name.clone(), written(name, *amount).into());
        }
        Value::Object(out)
    }
}

/// What a whole pod asks for: containers together, or the peak of init containers if that is more, plus overhead, plus one
/// pod. Limits stand for missing requests; requests of the whole pod go before those of its containers.
pub fn of_pod(pod: &Value) -> Amounts {
    let empty = Vec::new();
    let containers = |at: &str| pod.pointer(at).and_then(Value::as_array).unwrap_or(&empty).iter();
    let mut sum = Amounts::default();
    for container in containers("/spec/containers") {
        sum.add(&of_container(container));
    }
    let (mut sidecars, mut peak) = (Amounts::default(), Amounts::default());
    for init in containers("/spec/initContainers") {
        let mut asks = of_container(init);
        if init.get("restartPolicy").and_then(Value::as_str) == Some("Always") {
            sum.add(&asks);
            sidecars.add(&asks);
            peak = peak.larger(&sidecars);
        } else {
            asks.add(&sidecars);
            peak = peak.larger(&asks);
        }
    }
    let mut out = sum.larger(&peak);
    for (name, amount) in of_container(pod.get("spec").unwrap_or(&Value::Null)).0 {
        out.0.insert(name, amount);
    }
    out.add(&Amounts::parse(pod.pointer("/spec/overhead")));
    out.0.insert(PODS.to_owned(), 1.0);
    out
}

fn of_container(container: &Value) -> Amounts {
    let mut out = Amounts::parse(container.pointer("/resources/limits"));
    out.0.extend(Amounts::parse(container.pointer("/resources/requests")).0);
    out
}

/// Native names, extended ones (with a domain), huge pages and local disk; quotas' names are not resources.
fn counts(name: &str) -> bool {
    matches!(name, "cpu" | "memory" | PODS | "ephemeral-storage")
        || name.starts_with("hugepages-")
        || (name.contains('/') && !name.starts_with("requests.") && !name.starts_with("count/"))
}

fn amount(name: &str, value: &Value) -> Option<f64> {
    let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    let quantity: Quantity = text.parse().ok()?;
    Some(match name {
        "memory" | PODS => quantity.units_up() as f64,
        _ => quantity.millis_up() as f64,
    })
}

fn written(name: &str, amount: f64) -> String {
    let whole = amount as i64;
    match name {
        "memory" => {
            let powers = [(40, "Ti"), (30, "Gi"), (20, "Mi"), (10, "Ki")];
            let fitting = powers.iter().find(|(p, _)| whole != 0 && whole % (1_i64 << p) == 0);
            fitting.map_or_else(|| whole.to_string(), |(p, unit)| format!("{}{unit}", whole >> p))
        }
        PODS => whole.to_string(),
        _ if whole % 1000 == 0 => (whole / 1000).to_string(),
        _ => format!("{whole}m"),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn amounts_round_up_and_are_written_as_they_came() {
        let a =
            Amounts::parse(Some(&json!({"cpu": "2500m", "memory": "136Gi", "nvidia.com/gpu": 4, "requests.cpu": "1"})));
        assert_eq!(a.get("cpu") as i64, 2500);
        assert_eq!(a.get("nvidia.com/gpu") as i64, 4000);
        assert_eq!(a.to_list(), json!({"cpu": "2500m", "memory": "136Gi", "nvidia.com/gpu": "4"}));
        assert_eq!(Amounts::parse(Some(&json!({"cpu": "0.1m"}))).get("cpu") as i64, 1);
    }

    #[test]
    fn init_containers_count_by_their_peak() {
        let pod = json!({"spec": {
            "initContainers": [{"resources": {"requests": {"cpu": "3"}}}],
            "containers": [{"resources": {"limits": {"cpu": "1"}}}, {"resources": {"requests": {"cpu": "1", "memory": "1Gi"}}}],
        }});
        let asks = of_pod(&pod);
        let whole = ["cpu", "memory", PODS].map(|name| asks.get(name) as i64);
        assert_eq!(whole, [3000, 1 << 30, 1]);
    }
}
