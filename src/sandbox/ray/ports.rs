//! Which loopback port stands for which port of a pod, and which ports the Ray node in a pod uses.
//! Must not know processes. Asks the machine only whether a port is free.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{Ipv4Addr, SocketAddrV4, TcpListener};

use serde_json::Value;

use super::text;

/// What `ray start` in a pod says about itself, in the pod's own port numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RayNode {
    /// The container that runs `ray start`.
    pub container: String,
    /// Whether it starts a head.
    pub head: bool,
    /// `--port`: the GCS of a head.
    pub gcs: u16,
    /// `--dashboard-port` of a head.
    pub dashboard: u16,
    /// `--dashboard-agent-listen-port`.
    pub agent: u16,
    /// `--metrics-export-port`.
    pub metrics: u16,
    /// `--object-store-memory` in bytes, if given.
    pub object_store_bytes: Option<u64>,
}

/// Where Ray Serve listens unless told otherwise: HTTP, gRPC.
pub const SERVE: (u16, u16) = (8000, 9000);

impl RayNode {
    /// The Ray node of a pod: its first container whose command line has `ray start`. Defaults are Ray's.
    pub fn of(pod: &Value) -> Option<Self> {
        let containers = pod["spec"]["containers"].as_array()?;
        let (container, line) =
            containers.iter().map(|c| (c, command_line(c))).find(|(_, l)| l.contains("ray start"))?;
        let start = &line[line.find("ray start")?..];
        let port = |flag, default| option(start, flag).and_then(|v| v.parse().ok()).unwrap_or(default);
        Some(Self {
            container: text(&container["name"]).to_owned(),
            head: start.split_whitespace().any(|w| w == "--head"),
            gcs: port("port", 6379),
            dashboard: port("dashboard-port", 8265),
            agent: port("dashboard-agent-listen-port", 52365),
            metrics: port("metrics-export-port", 8080),
            object_store_bytes: option(start, "object-store-memory").and_then(|v| v.parse().ok()),
        })
    }

    fn ports(&self) -> Vec<u16> {
        let mut ports = vec![self.agent, self.metrics, SERVE.0, SERVE.1];
        if self.head {
            ports.extend([self.gcs, self.dashboard]);
        }
        ports
    }
}

/// `command` and `args` of a container as one text.
pub fn command_line(container: &Value) -> String {
    let words = ["command", "args"].iter().filter_map(|k| container[*k].as_array()).flatten();
    words.filter_map(Value::as_str).collect::<Vec<_>>().join(" ")
}

fn option<'a>(line: &'a str, flag: &str) -> Option<&'a str> {
    let mut words = line.split_whitespace();
    while let Some(word) = words.next() {
        let Some(rest) = word.strip_prefix("--").and_then(|w| w.strip_prefix(flag)) else { continue };
        match rest.strip_prefix('=') {
            Some(value) => return Some(value),
            None if rest.is_empty() => return words.next(),
            None => {}
        }
    }
    None
}

/// Loopback ports of one pod.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PodPorts {
    /// By the pod's own port number.
    pub real: BTreeMap<u16, u16>,
    /// For the two metrics servers of a head, which ask for fixed ports.
    pub spare: Vec<u16>,
    /// Container ports by name.
    pub named: BTreeMap<String, u16>,
}

impl PodPorts {
    /// The loopback port for a port of the pod, given as number or name.
    pub fn of(&self, port: &str) -> Option<u16> {
        let number = port.parse().ok().or_else(|| self.named.get(port).copied())?;
        self.real.get(&number).copied()
    }
}

/// Loopback ports not given to any pod.
#[derive(Debug)]
pub struct PortPool {
    next: u16,
    taken: BTreeSet<u16>,
}

/// Above what people's own services mostly use; the end is where Linux begins to hand out ports of its own by default.
const RANGE: std::ops::Range<u16> = 20_000..32_768;

impl PortPool {
    /// `seed` chooses where the search begins, so that two sandboxes on a machine seldom look at the same port.
    pub fn new(seed: u32) -> Self {
        let size = u32::from(RANGE.end - RANGE.start);
        Self { next: RANGE.start + (seed.wrapping_mul(97) % size) as u16, taken: BTreeSet::new() }
    }

    /// Ports for all that a pod's manifest names and for its Ray node. `None`: the machine has no free port left.
    pub fn take_for(&mut self, pod: &Value, node: Option<&RayNode>) -> Option<PodPorts> {
        let mut ports = PodPorts::default();
        let containers = pod["spec"]["containers"].as_array().into_iter().flatten();
        for port in containers.filter_map(|c| c["ports"].as_array()).flatten() {
            let Some(number) = port["containerPort"].as_u64().and_then(|n| u16::try_from(n).ok()) else { continue };
            ports.real.insert(number, 0);
            if let Some(name) = port["name"].as_str() {
                ports.named.insert(name.to_owned(), number);
            }
        }
        ports.real.extend(node.into_iter().flat_map(RayNode::ports).map(|p| (p, 0)));
        // A real port that some pod port is equal to would be mapped a second time.
        let own: BTreeSet<u16> = ports.real.keys().copied().collect();
        for real in ports.real.values_mut() {
            *real = self.take(&own)?;
        }
        if node.is_some_and(|n| n.head) {
            ports.spare = vec![self.take(&own)?, self.take(&own)?];
        }
        Some(ports)
    }

    /// Gives a pod's ports back.
    pub fn give_back(&mut self, ports: &PodPorts) {
        for port in ports.real.values().chain(&ports.spare) {
            self.taken.remove(port);
        }
    }

    fn take(&mut self, but: &BTreeSet<u16>) -> Option<u16> {
        for _ in RANGE {
            let port = self.next;
            self.next = if port + 1 < RANGE.end { port + 1 } else { RANGE.start };
            if !self.taken.contains(&port) && !but.contains(&port) && is_free(port) {
                self.taken.insert(port);
                return Some(port);
            }
        }
        None
    }
}

fn is_free(port: u16) -> bool {
    TcpListener::bind(SocketAddrV4::new(Ipv4Addr::LOCALHOST, port)).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_ray_node_is_read_from_the_command_that_kuberay_writes() {
        let args = "ulimit -n 65536; ray start --head  --block  --dashboard-agent-listen-port=52365  --dashboard-host=0.0.0.0  \
                    --dashboard-port=9265  --metrics-export-port=8081  --num-cpus=1 ";
        let pod = json!({"spec": {"containers": [
            {"name": "side", "command": ["sleep"], "args": ["1"]},
            {"name": "ray-head", "command": ["/bin/bash", "-c", "--"], "args": [args]}]}});
        let node = RayNode::of(&pod).unwrap();
        assert_eq!((node.container.as_str(), node.head), ("ray-head", true));
        assert_eq!((node.gcs, node.dashboard, node.agent, node.metrics), (6379, 9265, 52365, 8081));
    }

    #[test]
    fn two_pods_share_no_port_and_names_are_kept() {
        let pod = json!({"spec": {"containers": [{"name": "c", "ports": [{"name": "web", "containerPort": 80}]}]}});
        let mut pool = PortPool::new(std::process::id());
        let (one, two) = (pool.take_for(&pod, None).unwrap(), pool.take_for(&pod, None).unwrap());
        assert_eq!(one.of("web"), one.of("80"));
        assert_ne!(one.of("web"), two.of("web"));
        assert_eq!(one.of("81"), None);
    }
}
