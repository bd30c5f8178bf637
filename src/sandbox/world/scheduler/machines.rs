//! Where a pod fits: nodes with what is left of them, selectors, taints. For both schedulers.
//! Must not know queues, gangs or the API.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::Value;

use super::amounts::{Amounts, of_pod};
use crate::sandbox::world::object::{list, name, text, uid};

/// A node and what its pods leave.
#[derive(Clone, Debug)]
pub struct Machine {
    /// Its name.
    pub name: String,
    object: Arc<Value>,
    /// In all.
    pub allocatable: Amounts,
    /// Requests of its pods that have not finished.
    pub used: Amounts,
}

impl Machine {
    /// Empty.
    pub fn new(node: &Arc<Value>) -> Self {
        Self {
            name: name(node).to_owned(),
            object: node.clone(),
            allocatable: Amounts::parse(node.pointer("/status/allocatable")),
            used: Amounts::default(),
        }
    }

    /// Why a pod cannot go here, in the words of a FailedScheduling event; `None` if it can.
    pub fn refuses(&self, pod: &Value, asks: &Amounts) -> Option<String> {
        let ready = list(&self.object, "/status/conditions").iter().find(|c| text(c, "/type") == "Ready");
        if ready.is_some_and(|c| text(c, "/status") != "True") {
            return Some("node(s) were not ready".to_owned());
        }
        let cordoned = self.object.pointer("/spec/unschedulable").and_then(Value::as_bool).unwrap_or(false);
        if cordoned && !tolerates(pod, "node.kubernetes.io/unschedulable", "", "NoSchedule") {
            return Some("node(s) were unschedulable".to_owned());
        }
        for taint in list(&self.object, "/spec/taints") {
            let (key, value, effect) = (text(taint, "/key"), text(taint, "/value"), text(taint, "/effect"));
            if effect != "PreferNoSchedule" && !tolerates(pod, key, value, effect) {
                return Some(format!("node(s) had untolerated taint {{{key}: {value}}}"));
            }
        }
        if !self.selected(pod) {
            return Some("node(s) didn't match Pod's node affinity/selector.".to_owned());
        }
        asks.asked()
            .find(|(name, amount)| self.used.get(name) + amount > self.allocatable.get(name))
            .map(|(name, _)| if name == "pods" { "Too many pods.".to_owned() } else { format!("Insufficient {name}.") })
    }

    /// How full the node would be with the pod, by its fullest dimension: fuller is better.
    pub fn fullness(&self, asks: &Amounts) -> f64 {
        let parts = asks.asked().filter(|(n, _)| *n != "pods" && self.allocatable.get(n) > 0.0);
        parts.map(|(n, a)| (self.used.get(n) + a) / self.allocatable.get(n)).fold(0.0, f64::max)
    }

    fn selected(&self, pod: &Value) -> bool {
        let labels = self.object.pointer("/metadata/labels");
        let label = |key: &str| labels.and_then(|l| l.get(key)).and_then(Value::as_str);
        let plain = pod.pointer("/spec/nodeSelector").and_then(Value::as_object);
        if !plain.into_iter().flatten().all(|(k, v)| label(k) == v.as_str()) {
            return false;
        }
        let required = "/spec/affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution/nodeSelectorTerms";
        let terms = list(pod, required);
        terms.is_empty() || terms.iter().any(|term| self.matches(term, label))
    }

    fn matches<'a>(&self, term: &Value, label: impl Fn(&str) -> Option<&'a str>) -> bool {
        let holds = |e: &Value, found: Option<&str>| {
            let among = |f: &str| list(e, "/values").iter().any(|v| v == f);
            let bound = || list(e, "/values").first().and_then(Value::as_str).and_then(|v| v.parse::<i64>().ok());
            let value = || found.and_then(|f| f.parse::<i64>().ok());
            match text(e, "/operator") {
                "In" => found.is_some_and(among),
                "NotIn" => !found.is_some_and(among),
                "Exists" => found.is_some(),
                "DoesNotExist" => found.is_none(),
                "Gt" => value().zip(bound()).is_some_and(|(v, b)| v > b),
                "Lt" => value().zip(bound()).is_some_and(|(v, b)| v < b),
                _ => false,
            }
        };
        list(term, "/matchExpressions").iter().all(|e| holds(e, label(text(e, "/key"))))
            && list(term, "/matchFields").iter().all(|e| holds(e, Some(&self.name)))
    }
}

fn tolerates(pod: &Value, key: &str, value: &str, effect: &str) -> bool {
    list(pod, "/spec/tolerations").iter().any(|t| {
        let key_fits = text(t, "/key") == key || (text(t, "/key").is_empty() && text(t, "/operator") == "Exists");
        let value_fits = text(t, "/operator") == "Exists" || text(t, "/value") == value;
        key_fits && value_fits && (text(t, "/effect").is_empty() || text(t, "/effect") == effect)
    })
}

/// Whether a pod has ended and uses nothing any more.
pub fn finished(pod: &Value) -> bool {
    matches!(text(pod, "/status/phase"), "Succeeded" | "Failed")
}

/// All nodes, with the pods on them; `assumed` are pods that were bound a moment ago (UID → node).
pub fn machines<'a>(
    nodes: impl Iterator<Item = &'a Arc<Value>>,
    pods: impl Iterator<Item = &'a Arc<Value>>,
    assumed: &BTreeMap<String, String>,
) -> BTreeMap<String, Machine> {
    let mut all: BTreeMap<String, Machine> = nodes.map(|n| (name(n).to_owned(), Machine::new(n))).collect();
    for pod in pods.filter(|p| !finished(p)) {
        let bound = text(pod, "/spec/nodeName");
        let at = if bound.is_empty() { assumed.get(uid(pod)).map_or("", String::as_str) } else { bound };
        if let Some(machine) = all.get_mut(at) {
            machine.used.add(&of_pod(pod));
        }
    }
    all
}

/// The fullest node that takes the pod, or why none does: reason → number of nodes.
pub fn choose<'a>(
    machines: impl Iterator<Item = &'a Machine>,
    pod: &Value,
    asks: &Amounts,
) -> Result<String, BTreeMap<String, usize>> {
    let mut reasons = BTreeMap::new();
    let mut best: Option<(&Machine, f64)> = None;
    for machine in machines {
        if let Some(reason) = machine.refuses(pod, asks) {
            *reasons.entry(reason).or_insert(0) += 1;
            continue;
        }
        let full = machine.fullness(asks);
        if best.is_none_or(|(_, b)| full > b) {
            best = Some((machine, full));
        }
    }
    best.map(|(m, _)| m.name.clone()).ok_or(reasons)
}

/// `0/3 nodes are unavailable: 2 Insufficient cpu., 1 node(s) …`
pub fn unavailable(reasons: &BTreeMap<String, usize>) -> String {
    let all: usize = reasons.values().sum();
    let parts: Vec<String> = reasons.iter().map(|(r, n)| format!("{n} {r}")).collect();
    if parts.is_empty() {
        "no nodes available to schedule pods".to_owned()
    } else {
        format!("0/{all} nodes are unavailable: {}", parts.join(", "))
    }
}
