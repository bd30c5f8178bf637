//! Services: defaults, addresses, what is wrong with them.
//! Must not know which addresses others have: the caller hands in a number that it uses once.

use serde_json::{Value, json};

use super::super::cause::Cause;
use super::{default, each, list, part, text};

pub(super) fn fill(service: &mut Value, old: Option<&Value>) {
    let spec = part(service, "spec");
    default(spec, "type", json!("ClusterIP"));
    default(spec, "sessionAffinity", json!("None"));
    let kind = text(&spec["type"]).to_owned();
    for port in each(spec, "ports") {
        default(port, "protocol", json!("TCP"));
        let number = port["port"].clone();
        default(port, "targetPort", number);
    }
    if kind != "ExternalName" {
        if let Some(old) = old {
            // A client that leaves the addresses out keeps them.
            for key in ["clusterIP", "clusterIPs"] {
                if let Some(value) = old["spec"].get(key) {
                    default(spec, key, value.clone());
                }
            }
        }
        default(spec, "ipFamilies", json!(["IPv4"]));
        default(spec, "ipFamilyPolicy", json!("SingleStack"));
        default(spec, "internalTrafficPolicy", json!("Cluster"));
        if spec["clusterIP"].is_string() {
            let ip = spec["clusterIP"].clone();
            default(spec, "clusterIPs", json!([ip]));
        }
    }
    if matches!(kind.as_str(), "NodePort" | "LoadBalancer") {
        default(spec, "externalTrafficPolicy", json!("Cluster"));
    }
    if kind == "LoadBalancer" {
        default(spec, "allocateLoadBalancerNodePorts", json!(true));
    }
    if old.is_none() {
        service["status"] = json!({"loadBalancer": {}});
    }
}

/// First address of the range of Services, 10.96.0.0/12.
const FIRST_ADDRESS: u32 = 0x0a60_0000;
/// Addresses in that range.
const ADDRESSES: u32 = 1 << 20;
/// Node ports stand between 30000 and 32767.
const NODE_PORTS: u32 = 2768;

/// Gives a valid new Service its addresses. `number` is one that no other Service of the server got (a counter).
pub fn allocate_addresses(service: &mut Value, number: u32) {
    let spec = part(service, "spec");
    let kind = text(&spec["type"]).to_owned();
    if kind == "ExternalName" {
        return;
    }
    if text(&spec["clusterIP"]).is_empty() {
        // The first ten addresses are kept for the cluster's own Services.
        let ip = std::net::Ipv4Addr::from(FIRST_ADDRESS + (number + 10) % ADDRESSES).to_string();
        spec["clusterIP"] = json!(ip);
        spec["clusterIPs"] = json!([ip]);
    }
    if matches!(kind.as_str(), "NodePort" | "LoadBalancer") {
        for (i, port) in (0_u32..).zip(each(spec, "ports")) {
            // Steps of 7 leave room for Services of several ports, and 2768 has no factor 7.
            default(port, "nodePort", json!(30_000 + (number * 7 + i) % NODE_PORTS));
        }
    }
}

pub(super) fn check(service: &Value, old: Option<&Value>) -> Vec<Cause> {
    let mut out = Vec::new();
    let spec = &service["spec"];
    let kind = text(&spec["type"]);
    let kinds = ["ClusterIP", "ExternalName", "LoadBalancer", "NodePort"];
    super::pod_check::one_of(&spec["type"], "spec.type", &kinds, &mut out);
    let ports: Vec<&Value> = list(&spec["ports"]).collect();
    let headless = spec["clusterIP"] == "None";
    if ports.is_empty() && kind != "ExternalName" && !headless {
        out.push(Cause::required("spec.ports", ""));
    }
    if kind == "ExternalName" && text(&spec["externalName"]).is_empty() {
        out.push(Cause::required("spec.externalName", ""));
    }
    for (i, port) in ports.iter().enumerate() {
        if ports.len() > 1 && text(&port["name"]).is_empty() {
            out.push(Cause::required(format!("spec.ports[{i}].name"), ""));
        }
        for key in ["port", "targetPort"] {
            if let Some(number) = port[key].as_i64().filter(|n| !(1..=65535).contains(n)) {
                let detail = "must be between 1 and 65535, inclusive";
                out.push(Cause::invalid(format!("spec.ports[{i}].{key}"), &json!(number), detail));
            }
        }
        let twice = ports[..i].iter().any(|p| p["name"] == port["name"] && !text(&p["name"]).is_empty());
        if twice {
            out.push(Cause::duplicate(format!("spec.ports[{i}].name"), &port["name"]));
        }
    }
    // The same port by the same protocol: as Go shows the two fields that count.
    for (i, port) in ports.iter().enumerate() {
        if ports[..i].iter().any(|p| (&p["port"], &p["protocol"]) == (&port["port"], &port["protocol"])) {
            let shown = format!(
                "{{\"Name\":\"\",\"Protocol\":{},\"AppProtocol\":null,\"Port\":{},\"TargetPort\":0,\"NodePort\":0}}",
                port["protocol"], port["port"]
            );
            out.push(Cause {
                reason: "FieldValueDuplicate",
                message: format!("Duplicate value: {shown}"),
                field: format!("spec.ports[{i}]"),
            });
        }
    }
    check_address(spec, old, &mut out);
    out
}

fn check_address(spec: &Value, old: Option<&Value>, out: &mut Vec<Cause>) {
    let wanted = text(&spec["clusterIP"]);
    if let Some(old) = old {
        let before = text(&old["spec"]["clusterIP"]);
        if !before.is_empty() && before != wanted && spec["type"] != "ExternalName" {
            let detail = "may not change once set";
            out.push(Cause::invalid("spec.clusterIPs[0]", &json!([wanted]), detail));
        }
        return;
    }
    if wanted.is_empty() || wanted == "None" {
        return;
    }
    let inside = wanted
        .parse::<std::net::Ipv4Addr>()
        .is_ok_and(|ip| (FIRST_ADDRESS..FIRST_ADDRESS + ADDRESSES).contains(&u32::from(ip)));
    if !inside {
        let detail = format!("failed to allocate IP {wanted}: the provided network does not match the current range");
        out.push(Cause::invalid("spec.clusterIPs", &json!([wanted]), detail));
    }
}
