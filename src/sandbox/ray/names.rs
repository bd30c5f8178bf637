//! Services and the pods behind them: which loopback port a name and a port of a cluster lead to.
//! Pure. Must not know processes or files.

use std::collections::BTreeMap;

use serde_json::Value;

use super::ports::PodPorts;
use super::text;

/// (cluster, namespace, name).
pub type Place = (String, String, String);

/// All names of all clusters.
#[derive(Debug, Default)]
pub struct Names {
    services: BTreeMap<Place, Service>,
    pods: BTreeMap<Place, Backend>,
}

#[derive(Debug)]
struct Service {
    selector: BTreeMap<String, String>,
    ports: Vec<ServicePort>,
}

#[derive(Debug)]
struct ServicePort {
    name: String,
    number: u16,
    target: String,
}

/// A pod with processes, as Services see it.
#[derive(Clone, Debug, Default)]
pub struct Backend {
    /// Its labels.
    pub labels: BTreeMap<String, String>,
    /// The address that the sandbox gave it.
    pub ip: String,
    /// Its loopback ports.
    pub ports: PodPorts,
    /// Whether it is ready.
    pub ready: bool,
    /// Later ones are preferred among equals.
    pub number: u64,
}

impl Names {
    /// A Service was created or changed.
    pub fn service_changed(&mut self, cluster: &str, service: &Value) {
        let spec = &service["spec"];
        let ports = spec["ports"].as_array().into_iter().flatten().filter_map(|port| {
            let number = u16::try_from(port["port"].as_u64()?).ok()?;
            let target = match &port["targetPort"] {
                Value::String(name) => name.clone(),
                Value::Number(target) => target.to_string(),
                _ => number.to_string(),
            };
            Some(ServicePort { name: text(&port["name"]).to_owned(), number, target })
        });
        let entry = Service { selector: super::strings(&spec["selector"]), ports: ports.collect() };
        self.services.insert(place(cluster, service), entry);
    }

    /// A Service is gone.
    pub fn service_gone(&mut self, cluster: &str, namespace: &str, name: &str) {
        self.services.remove(&(cluster.into(), namespace.into(), name.into()));
    }

    /// A pod has processes now.
    pub fn pod_added(&mut self, place: Place, pod: Backend) {
        self.pods.insert(place, pod);
    }

    /// Its readiness changed.
    pub fn pod_ready(&mut self, place: &Place, ready: bool) {
        if let Some(pod) = self.pods.get_mut(place) {
            pod.ready = ready;
        }
    }

    /// Its processes are gone. `number` keeps a later pod of the same name.
    pub fn pod_gone(&mut self, place: &Place, number: u64) {
        if self.pods.get(place).is_some_and(|p| p.number == number) {
            self.pods.remove(place);
        }
    }

    /// The loopback port behind a port of a Service: by name or number, or empty for its only one.
    pub fn service_port(&self, cluster: &str, namespace: &str, name: &str, port: &str) -> Option<u16> {
        let service = self.services.get(&(cluster.into(), namespace.into(), name.into()))?;
        let target = match &service.ports[..] {
            [only] if port.is_empty() => only,
            ports => ports.iter().find(|p| p.name == port || p.number.to_string() == port)?,
        };
        self.backends(cluster, namespace, service).find_map(|pod| pod.ports.of(&target.target))
    }

    /// The loopback port behind a port (name or number) of a pod.
    pub fn pod_port(&self, place: &Place, port: &str) -> Option<u16> {
        self.pods.get(place)?.ports.of(port)
    }

    /// The loopback port behind a port at the address that the sandbox gave a pod.
    pub fn port_at(&self, cluster: &str, ip: &str, port: &str) -> Option<u16> {
        let at = |((of, _, _), pod): &(&Place, &Backend)| of == cluster && pod.ip == ip;
        self.pods.iter().find(at)?.1.ports.of(port)
    }

    /// What the pods of a cluster are told: `<service>.<namespace>:<port>` and `<pod ip>:<port>` → loopback port.
    ///
    /// A name of a Service leads to every port of the pod behind it, as the headless Services of Ray heads do.
    pub fn of_cluster(&self, cluster: &str) -> BTreeMap<String, u16> {
        let mut entries = BTreeMap::new();
        for ((_, namespace, name), service) in self.services.iter().filter(|((c, _, _), _)| c == cluster) {
            let Some(pod) = self.backends(cluster, namespace, service).next() else { continue };
            entries.extend(pod.ports.real.iter().map(|(port, real)| (format!("{name}.{namespace}:{port}"), *real)));
            for port in &service.ports {
                if let Some(real) = pod.ports.of(&port.target) {
                    entries.insert(format!("{name}.{namespace}:{}", port.number), real);
                }
            }
        }
        for (_, pod) in self.pods.iter().filter(|((c, _, _), pod)| c == cluster && !pod.ip.is_empty()) {
            entries.extend(pod.ports.real.iter().map(|(port, real)| (format!("{}:{port}", pod.ip), *real)));
        }
        entries
    }

    /// Best first. One that is not ready is better than none: heads are looked up while they start.
    fn backends(&self, cluster: &str, namespace: &str, service: &Service) -> impl Iterator<Item = &Backend> {
        let chosen = |(place, pod): &(&Place, &Backend)| {
            place.0 == cluster
                && place.1 == namespace
                && !service.selector.is_empty()
                && service.selector.iter().all(|(k, v)| pod.labels.get(k) == Some(v))
        };
        let mut pods: Vec<&Backend> = self.pods.iter().filter(chosen).map(|(_, pod)| pod).collect();
        pods.sort_by_key(|pod| std::cmp::Reverse((pod.ready, pod.number)));
        pods.into_iter()
    }
}

/// Where an object is.
pub fn place(cluster: &str, object: &Value) -> Place {
    let meta = &object["metadata"];
    (cluster.to_owned(), text(&meta["namespace"]).to_owned(), text(&meta["name"]).to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn backend(label: &str, real: u16, ready: bool, number: u64) -> Backend {
        let ports = PodPorts { real: [(8265, real)].into(), ..PodPorts::default() };
        Backend { labels: [("ray".into(), label.into())].into(), ip: String::new(), ports, ready, number }
    }

    #[test]
    fn a_service_name_leads_to_the_ready_pod_of_its_own_cluster() {
        let mut names = Names::default();
        names.service_changed(
            "eu",
            &json!({"metadata": {"namespace": "ml", "name": "head-svc"}, "spec": {"selector": {"ray": "a"},
                    "ports": [{"name": "dashboard", "port": 80, "targetPort": 8265}]}}),
        );
        let at = |cluster: &str, pod: &str| (cluster.to_owned(), "ml".to_owned(), pod.to_owned());
        names.pod_added(at("us", "head"), backend("a", 1, true, 0));
        assert_eq!(names.service_port("eu", "ml", "head-svc", "dashboard"), None);
        names.pod_added(at("eu", "old"), backend("a", 2, true, 1));
        names.pod_added(at("eu", "new"), backend("a", 3, false, 2));
        assert_eq!(names.service_port("eu", "ml", "head-svc", "80"), Some(2));
        names.pod_ready(&at("eu", "new"), true);
        assert_eq!(names.service_port("eu", "ml", "head-svc", "80"), Some(3));
        assert_eq!(names.of_cluster("eu").get("head-svc.ml:8265"), Some(&3));
        names.pod_gone(&at("eu", "new"), 2);
        assert_eq!(names.of_cluster("eu").get("head-svc.ml:80"), Some(&2));
    }
}
