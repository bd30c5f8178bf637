//! The proxy to a Service: who is meant, and whether anybody is there.
//! Must not know how to reach it.

use serde_json::Value;

use super::server::{ApiServer, Call, Outcome};
use super::status_reply::{Refusal, Refused, not_built, not_found};
use super::{Answer, ProxyCall};

impl ApiServer {
    /// Any method on `…/services/[scheme:]name[:port]/proxy/…`.
    pub(super) fn proxy(&mut self, call: &Call) -> Result<Outcome, Refused> {
        let ty = call.ty();
        if ty.plural != "services" {
            // `[scheme:]name[:port]`: what is not there is told first, as for a Service.
            let parts: Vec<&str> = call.place.name.split(':').collect();
            let name = match parts.as_slice() {
                [name] | [name, _] | [_, name, _] => *name,
                _ => return Err(not_found(ty, &call.place.name)),
            };
            if self.store.get(&ty.storage_key, &call.place.key_of(name)).is_none() {
                return Err(not_found(ty, name));
            }
            return Err(not_built(&format!("the proxy to {}", ty.plural)));
        }
        let parts: Vec<&str> = call.place.name.split(':').collect();
        let (name, port) = match parts.as_slice() {
            [name] => (*name, ""),
            [name, port] | [_, name, port] => (*name, *port),
            _ => return Err(not_found(ty, &call.place.name)),
        };
        let key = call.place.key_of(name);
        let service = self.store.get(&ty.storage_key, &key).ok_or_else(|| not_found(ty, name))?;
        let known = |p: &Value| {
            port.is_empty() || p["name"] == port || p["port"].as_u64().is_some_and(|n| n.to_string() == port)
        };
        let ports = service.value["spec"]["ports"].as_array();
        let open = ports.is_some_and(|p| p.iter().any(known));
        let endpoints = self.registry.find("", "v1", "endpoints").expect("endpoints are built in");
        let Some(endpoints) = self.store.get(&endpoints.storage_key, &key) else {
            return Err(not_found(ty, name));
        };
        let ready = endpoints.value["subsets"]
            .as_array()
            .is_some_and(|s| s.iter().any(|s| s["addresses"].as_array().is_some_and(|a| !a.is_empty())));
        if !ready || !open {
            return Err(Refusal::new(
                503,
                "ServiceUnavailable",
                format!("no endpoints available for service \"{name}\""),
            ));
        }
        // As it was sent: Ray's dashboard tells `/api/jobs/` from `/api/jobs`.
        let sent = call.request.target.split_once("/services/").and_then(|(_, rest)| rest.split_once("/proxy"));
        let sent = sent.map_or("", |(_, rest)| rest);
        let slash = if sent.starts_with('/') { "" } else { "/" };
        Ok(Outcome::Answer(Answer::Proxy(ProxyCall {
            namespace: call.place.namespace.clone(),
            service: name.to_owned(),
            port: port.to_owned(),
            target: format!("{slash}{sent}"),
            request: call.request.clone(),
        })))
    }
}
