//! What a whole pod asks a node for: containers, sidecars, init containers, overhead and pod-level resources together.
//! Knows Kubernetes' rule. Must not know who compares it with what.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::Deserialize;
use serde_json::Value;

use crate::api::quantity::{Quantity, QuantityError};

/// The part of a pod's spec that says what it asks for. Quantities stand as they came: text, number or null.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodDemand {
    pub(super) containers: Option<Vec<ContainerDemand>>,
    pub(super) init_containers: Option<Vec<ContainerDemand>>,
    pub(super) overhead: Option<BTreeMap<Arc<str>, Value>>,
    pub(super) resources: Option<Asked>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct ContainerDemand {
    restart_policy: Option<Arc<str>>,
    resources: Option<Asked>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Asked {
    requests: Option<BTreeMap<Arc<str>, Value>>,
    limits: Option<BTreeMap<Arc<str>, Value>>,
}

/// Resource → quantity.
pub type Demand = BTreeMap<Arc<str>, Quantity>;

/// Effective requests of the pod with this spec (`spec` of a Pod or of a pod template): per resource the larger of (sum of
/// containers and sidecars) and (peak of init containers with the sidecars started before them), replaced by pod-level
/// requests for cpu, memory and huge pages, plus overhead. A limit stands for a request that is missing.
/// The error names the resource.
pub fn pod_requests(spec: &Value) -> Result<Demand, String> {
    let demand = PodDemand::deserialize(spec).map_err(|e| format!("resources of a pod: {e}"))?;
    demand.requests()
}

impl PodDemand {
    /// See [`pod_requests`].
    pub fn requests(&self) -> Result<Demand, String> {
        let mut sum = Demand::new();
        for container in self.containers.iter().flatten() {
            add(&mut sum, &container.asked()?);
        }
        let (mut sidecars, mut peak) = (Demand::new(), Demand::new());
        for container in self.init_containers.iter().flatten() {
            let asked = container.asked()?;
            if container.restart_policy.as_deref() == Some("Always") {
                add(&mut sidecars, &asked);
                raise(&mut peak, &sidecars);
            } else {
                let mut at_its_time = sidecars.clone();
                add(&mut at_its_time, &asked);
                raise(&mut peak, &at_its_time);
            }
        }
        add(&mut sum, &sidecars);
        raise(&mut sum, &peak);
        if let Some(pod) = &self.resources {
            for (name, quantity) in pod.merged(&sum)? {
                if matches!(&*name, "cpu" | "memory") || name.starts_with("hugepages-") {
                    sum.insert(name, quantity);
                }
            }
        }
        if let Some(overhead) = &self.overhead {
            add(&mut sum, &quantities(overhead)?);
        }
        Ok(sum)
    }
}

impl ContainerDemand {
    fn asked(&self) -> Result<Demand, String> {
        self.resources.as_ref().map_or_else(|| Ok(Demand::new()), |r| r.merged(&Demand::new()))
    }
}

impl Asked {
    /// Requests, and limits for names that have neither a request here nor one in `known`.
    fn merged(&self, known: &Demand) -> Result<Demand, String> {
        let mut asked = match &self.limits {
            Some(limits) => quantities(limits)?,
            None => Demand::new(),
        };
        asked.retain(|name, _| !known.contains_key(name));
        if let Some(requests) = &self.requests {
            asked.extend(quantities(requests)?);
        }
        Ok(asked)
    }
}

fn quantities(list: &BTreeMap<Arc<str>, Value>) -> Result<Demand, String> {
    list.iter().map(|(name, value)| Ok((name.clone(), quantity(value).map_err(|e| format!("{name}: {e}"))?))).collect()
}

/// From JSON: a text, a number, or null, which is zero.
fn quantity(value: &Value) -> Result<Quantity, QuantityError> {
    match value {
        Value::Null => Ok(Quantity::ZERO),
        Value::String(text) => text.trim().parse(),
        other => other.to_string().parse(),
    }
}

fn add(sum: &mut Demand, more: &Demand) {
    for (name, quantity) in more {
        let before = sum.get(name).copied().unwrap_or(Quantity::ZERO);
        sum.insert(name.clone(), before + *quantity);
    }
}

fn raise(sum: &mut Demand, other: &Demand) {
    for (name, quantity) in other {
        let before = sum.get(name).copied().unwrap_or(Quantity::ZERO);
        sum.insert(name.clone(), before.max(*quantity));
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn texts(spec: Value) -> BTreeMap<String, String> {
        pod_requests(&spec).expect("valid").into_iter().map(|(n, q)| (n.to_string(), q.to_string())).collect()
    }

    fn map(list: &[(&str, &str)]) -> BTreeMap<String, String> {
        list.iter().map(|(a, b)| ((*a).to_owned(), (*b).to_owned())).collect()
    }

    #[test]
    fn containers_add_up_and_limits_stand_for_missing_requests() {
        let got = texts(json!({"containers": [
            {"resources": {"requests": {"cpu": "1"}, "limits": {"cpu": "2", "memory": "1Gi"}}},
            {"resources": {"limits": {"cpu": 1, "nvidia.com/gpu": 2}}},
            {},
        ]}));
        assert_eq!(got, map(&[("cpu", "2"), ("memory", "1Gi"), ("nvidia.com/gpu", "2")]));
    }

    #[test]
    fn an_init_container_counts_only_where_it_is_the_peak() {
        let got = texts(json!({
            "initContainers": [
                {"resources": {"requests": {"cpu": "3", "memory": "100Mi"}}},
                {"restartPolicy": "Always", "resources": {"requests": {"cpu": "500m", "memory": "200Mi"}}},
                {"resources": {"requests": {"cpu": "3"}}},
            ],
            "containers": [{"resources": {"requests": {"cpu": "1", "memory": "1Gi"}}}],
        }));
        assert_eq!(got, map(&[("cpu", "3500m"), ("memory", "1224Mi")]));
    }

    #[test]
    fn pod_level_requests_replace_sums_and_overhead_comes_on_top() {
        let got = texts(json!({
            "overhead": {"cpu": "250m"},
            "resources": {"requests": {"cpu": "4"}, "limits": {"cpu": "8", "memory": "2Gi"}},
            "containers": [{"resources": {"requests": {"cpu": "1", "nvidia.com/gpu": "1"}}}],
        }));
        assert_eq!(got, map(&[("cpu", "4250m"), ("memory", "2Gi"), ("nvidia.com/gpu", "1")]));
    }

    #[test]
    fn a_bad_quantity_is_named() {
        let error = pod_requests(&json!({"containers": [{"resources": {"requests": {"memory": "4 Gi"}}}]}))
            .expect_err("refused");
        assert!(error.starts_with("memory: \"4 Gi\""), "{error}");
    }
}
