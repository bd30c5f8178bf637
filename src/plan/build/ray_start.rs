//! The `ray start` command of a node: its parameters and the shell text around it (specs/raycluster.md 3.6, 3.7).
//! Must not know pods.

use serde_json::{Map, Value};

use super::go;
use crate::api::quantity::Quantity;
use crate::api::ray::{Container, Texts};

/// Which side of a Ray cluster a node is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Node {
    /// The head.
    Head,
    /// A worker.
    Worker,
}

/// Where workers find the head.
pub(super) struct Head<'a> {
    /// Full name of the head Service.
    pub(super) fqdn: &'a str,
    /// GCS port.
    pub(super) port: &'a str,
}

/// Parameters of `ray start` as far as the container has no say: what the user gave, what the group says, defaults.
pub(super) fn defaults(
    node: Node,
    given: Option<&Texts>,
    resources: Option<&Texts>,
    labels: Option<&Texts>,
    head: &Head<'_>,
) -> Texts {
    let mut params = given.cloned().unwrap_or_default();
    from_group_resources(&mut params, resources);
    if let Some(labels) = labels.filter(|l| !l.is_empty()) {
        let pairs: Vec<String> = labels.iter().map(|(k, v)| format!("{k}={v}")).collect();
        params.insert("labels".into(), pairs.join(","));
    }
    let mut default = |key: &str, value: String| {
        params.entry(key.to_owned()).or_insert(value);
    };
    match node {
        Node::Worker => default("address", format!("{}:{}", head.fqdn, head.port)),
        Node::Head => default("dashboard-host", "0.0.0.0".into()),
    }
    default("metrics-export-port", "8080".into());
    default("dashboard-agent-listen-port", "52365".into());
    params.insert("block".into(), "true".into());
    params
}

/// The group's logical resources override parameters.
fn from_group_resources(params: &mut Texts, resources: Option<&Texts>) {
    let mut custom = Map::new();
    for (name, text) in resources.into_iter().flatten() {
        let Ok(quantity) = text.parse::<Quantity>() else { continue };
        let lower = name.to_lowercase();
        let key = match lower.as_str() {
            "cpu" => "num-cpus",
            "memory" => "memory",
            other if is_gpu(other) => "num-gpus",
            _ => {
                custom.insert(name.clone(), go::number(quantity.nanos() as f64 / 1e9));
                continue;
            }
        };
        params.insert(key.into(), quantity.units_up().to_string());
    }
    if !custom.is_empty() {
        params.insert("resources".into(), format!("'{}'", go::json(&Value::Object(custom))));
    }
}

/// The Ray container's resources fill what is still missing.
pub(super) fn from_container(params: &mut Texts, container: Container<'_>) {
    let amount = |which: &str, name: &str| {
        let quantity: Option<Quantity> = container.resource(which, name).and_then(|q| q.parse().ok());
        quantity.filter(|q| !q.is_zero())
    };
    if !params.contains_key("num-cpus")
        && let Some(cpu) = amount("limits", "cpu").or_else(|| amount("requests", "cpu"))
    {
        params.insert("num-cpus".into(), cpu.units_up().to_string());
    }
    if !params.contains_key("memory")
        && let Some(memory) = amount("limits", "memory")
    {
        params.insert("memory".into(), memory.units_up().to_string());
    }
    accelerators(params, container);
}

/// GPUs, and at most one custom accelerator, from the limits.
fn accelerators(params: &mut Texts, container: Container<'_>) {
    let limits: Vec<(&str, Quantity)> = {
        let mut limits: Vec<_> =
            container.resources("limits").filter_map(|(n, q)| q.parse().ok().map(|q: Quantity| (n, q))).collect();
        limits.sort_by_key(|(name, _)| *name);
        limits
    };
    if limits.is_empty() {
        return;
    }
    let text = params.get("resources").map_or("", |t| t.trim_matches(['\'', '"', '`', ' ']));
    let mut custom: Map<String, Value> = match serde_json::from_str(text) {
        Ok(map) => map,
        Err(_) if text.is_empty() => Map::new(),
        // What the user wrote is not readable: then nothing of this is derived, as in KubeRay.
        Err(_) => return,
    };
    let gpus = limits.iter().find(|(name, amount)| is_gpu(name) && !amount.is_zero());
    if let Some((_, amount)) = gpus {
        params.entry("num-gpus".into()).or_insert_with(|| amount.units_up().to_string());
    }
    if custom.contains_key("neuron_cores") || custom.contains_key("TPU") {
        return;
    }
    for (name, amount) in limits {
        let ray_name = match name {
            "aws.amazon.com/neuroncore" => "neuron_cores",
            "google.com/tpu" => "TPU",
            _ => continue,
        };
        if !amount.is_zero() {
            custom.insert(ray_name.into(), go::number(amount.units_up() as f64));
            params.insert("resources".into(), format!("'{}'", go::json(&Value::Object(custom))));
            return;
        }
    }
}

/// Whether a resource counts as GPUs: `…gpu`, or a slice of one such as `nvidia.com/mig-1g.5gb`.
pub(super) fn is_gpu(name: &str) -> bool {
    if name.ends_with("gpu") {
        return true;
    }
    let digits = |t: &str| !t.is_empty() && t.bytes().all(|b| b.is_ascii_digit());
    let slice = name.rsplit_once("nvidia.com/mig-").and_then(|(_, slice)| slice.strip_suffix("gb"));
    slice.and_then(|s| s.split_once("g.")).is_some_and(|(parts, memory)| digits(parts) && digits(memory))
}

/// `ray start …` with every parameter: a space on either side of each, as KubeRay writes them.
pub(super) fn command(node: Node, params: &Texts) -> String {
    const TAKE_A_VALUE: &[&str] = &["log-color", "include-dashboard", "include-log-monitor"];
    let mut text = String::from(match node {
        Node::Head => "ray start --head ",
        Node::Worker => "ray start ",
    });
    for (key, value) in params {
        let flag = value.eq_ignore_ascii_case("true") || value.eq_ignore_ascii_case("false");
        if !flag || TAKE_A_VALUE.contains(&key.as_str()) {
            text.extend([" --", key, "=", value, " "]);
        } else if value.eq_ignore_ascii_case("true") {
            text.extend([" --", key, " "]);
        }
    }
    text
}

/// The shell text of the Ray container; `None` where the user's own command stays (specs/raycluster.md 3.7).
pub(super) fn shell_text(container: &Value, overwritten: bool, ray_start: &str) -> Option<String> {
    let words = |key: &str| container[key].as_array().into_iter().flatten().filter_map(Value::as_str);
    let own: String = words("command").chain(words("args")).flat_map(|word| [" ", word, " "]).collect();
    if overwritten || own.contains("ray start") {
        return None;
    }
    let generated = format!("ulimit -n ${{RAY_START_ULIMIT_OPEN_FILES:-65536}}; {ray_start}");
    Some(if own.is_empty() { generated } else { format!("{own} && {generated}") })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn of(container: &Value, given: &[(&str, &str)]) -> Texts {
        let given: Texts = given.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
        let head = Head { fqdn: "h", port: "6379" };
        let mut params = defaults(Node::Worker, Some(&given), None, None, &head);
        from_container(&mut params, Container(container));
        params
    }

    #[test]
    fn accelerators_come_from_limits_and_only_one_custom_kind() {
        let c = json!({"resources": {"limits": {"google.com/tpu": 4, "aws.amazon.com/neuroncore": "2", "nvidia.com/gpu": 1}}});
        let params = of(&c, &[]);
        assert_eq!(params["num-gpus"], "1");
        assert_eq!(params["resources"], r#"'{"neuron_cores":2}'"#);
        let kept = of(&c, &[("resources", r#"'{"TPU": 8}'"#)]);
        assert_eq!(kept["resources"], r#"'{"TPU": 8}'"#);
        let unreadable = of(&c, &[("resources", "nonsense")]);
        assert!(!unreadable.contains_key("num-gpus"));
    }

    #[test]
    fn slices_of_gpus_count_as_gpus() {
        assert!(is_gpu("nvidia.com/gpu") && is_gpu("amd.com/gpu") && is_gpu("nvidia.com/mig-1g.5gb"));
        assert!(!is_gpu("nvidia.com/mig-1g.5") && !is_gpu("cpu") && !is_gpu("memory"));
    }

    #[test]
    fn cpus_are_rounded_up_and_requests_stand_in_for_limits() {
        assert_eq!(of(&json!({"resources": {"limits": {"cpu": "1500m"}}}), &[])["num-cpus"], "2");
        assert_eq!(of(&json!({"resources": {"requests": {"cpu": "500m"}}}), &[])["num-cpus"], "1");
        assert!(!of(&json!({}), &[]).contains_key("num-cpus"));
    }
}
