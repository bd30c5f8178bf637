//! Probes of the Ray container (specs/raycluster.md 3.9).
//! Must not know pods.

use serde_json::{Value, json};

use super::go::version_at_least;
use super::ray_start::Node;
use crate::api::ray::Texts;

/// Adds the probes that the user left unset.
pub(super) fn add(container: &mut Value, node: Node, ray_version: &str, params: &Texts) {
    let timeout = if node == Node::Head { 5 } else { 2 };
    for (key, delay, failures) in [("livenessProbe", 30, 120), ("readinessProbe", 10, 10)] {
        if container[key].is_null() {
            let mut probe = question(node, ray_version, params);
            probe["initialDelaySeconds"] = json!(delay);
            probe["timeoutSeconds"] = json!(timeout);
            probe["periodSeconds"] = json!(5);
            probe["successThreshold"] = json!(1);
            probe["failureThreshold"] = json!(failures);
            container[key] = probe;
        }
    }
}

/// From Ray 2.53 the agent answers for the node; before, raylet and (on the head) GCS are asked one after the other.
fn question(node: Node, ray_version: &str, params: &Texts) -> Value {
    let port = |key: &str, default: i64| params.get(key).and_then(|p| p.parse().ok()).unwrap_or(default);
    let agent = port("dashboard-agent-listen-port", 52365);
    if version_at_least(ray_version, (2, 53, 0)) == Some(true) {
        return json!({ "httpGet": { "path": "/api/healthz", "port": agent } });
    }
    let ask = |seconds: u32, port: i64, path: &str| {
        format!("wget --tries 1 -T {seconds} -q -O- http://localhost:{port}/api/{path} | grep success")
    };
    let mut text = ask(2, agent, "local_raylet_healthz");
    if node == Node::Head {
        text = format!("{text} && {}", ask(10, port("dashboard-port", 8265), "gcs_healthz"));
    }
    json!({ "exec": { "command": ["bash", "-c", text] } })
}
