//! How large things may be, where `Options::size_limits` is set: requests, what is stored of an object, data of ConfigMaps
//! and Secrets, steps of a JSON patch. Must not know what they hold. Annotations have their limit in any case (`metadata`).

use serde_json::Value;

use super::cause::Cause;
use super::registry::ResourceType;
use super::server::ApiServer;
use super::status_reply::{Refusal, Refused, unclassified};
use super::store;
use crate::api::wire::{Method, Request};

/// Bytes of a body.
const BODY_BYTES_MAX: usize = 3 * 1024 * 1024;
/// Bytes of all data of a ConfigMap or Secret.
const DATA_BYTES_MAX: usize = 1024 * 1024;
/// Bytes of a request to etcd (`--max-request-bytes`, as it is unless somebody sets it).
const STORED_BYTES_MAX: usize = 1536 * 1024;
/// Operations of a JSON patch.
const STEPS_MAX: usize = 10_000;

fn too_large(what: &str) -> Refused {
    Refusal::new(413, "RequestEntityTooLarge", format!("Request entity too large: {what}"))
}

/// Whether a JSON patch has too many operations.
pub(super) fn check_steps(found: usize, max: usize) -> Result<(), Refused> {
    if found <= max {
        return Ok(());
    }
    Err(too_large(&format!("The allowed maximum operations in a JSON patch is {max}, got {found}")))
}

impl ApiServer {
    /// 413 for a body that is not read to its end.
    pub(super) fn check_body(&self, request: &Request) -> Result<(), Refused> {
        if self.options.size_limits && request.method != Method::Get && request.body.len() > BODY_BYTES_MAX {
            return Err(too_large(&format!("limit is {BODY_BYTES_MAX}")));
        }
        Ok(())
    }

    /// Operations that a JSON patch may have.
    pub(super) fn steps_max(&self) -> usize {
        if self.options.size_limits { STEPS_MAX } else { usize::MAX }
    }

    /// What a server finds too large in an object before it goes to etcd.
    pub(super) fn oversize(&self, ty: &ResourceType, object: &Value) -> Option<Cause> {
        if !self.options.size_limits || !ty.builtin || !ty.group.is_empty() {
            return None;
        }
        let texts = |field: &str| object[field].as_object().into_iter().flatten().filter_map(|(_, v)| v.as_str());
        let decoded = |text: &str| text.trim_end_matches('=').len() * 3 / 4;
        let (bytes, field) = match ty.plural.as_str() {
            // The recorded path is that of a field without a name.
            "configmaps" => (texts("data").map(str::len).chain(texts("binaryData").map(decoded)).sum::<usize>(), "[]"),
            "secrets" => (texts("data").map(decoded).sum(), "data"),
            _ => return None,
        };
        (bytes > DATA_BYTES_MAX).then(|| Cause::too_long(field, DATA_BYTES_MAX as u64))
    }

    /// etcd refuses what does not fit into one of its requests. Its text here is JSON, as it is of custom resources there;
    /// built-in kinds are somewhat smaller in a real one.
    pub(super) fn check_storable(&self, ty: &ResourceType, object: &Value) -> Result<(), Refused> {
        if self.options.size_limits && store::written(object, ty.builtin).len() > STORED_BYTES_MAX {
            return Err(unclassified("etcdserver: request is too large"));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::json;

    use super::*;
    use crate::api::Time;
    use crate::api::wire::Reply;
    use crate::sandbox::apiserver::{Answer, Options};

    const MAPS: &str = "/api/v1/namespaces/default/configmaps";
    const SECRETS: &str = "/api/v1/namespaces/default/secrets";

    fn server(size_limits: bool) -> ApiServer {
        ApiServer::new(Options { size_limits, ..Options::default() })
    }

    fn send(server: &mut ApiServer, method: Method, target: &str, kind: &str, body: &Value) -> (u16, Value) {
        let request = Request::new(method, target, kind, Arc::from(body.to_string().into_bytes()));
        match server.handle(&request, Time(0)) {
            Answer::Reply(Reply { status, body, .. }) => (status, serde_json::from_slice(&body).unwrap()),
            other => panic!("{other:?}"),
        }
    }

    fn map(bytes: usize) -> Value {
        json!({"metadata": {"name": "m"}, "data": {"k": "x".repeat(bytes)}})
    }

    #[test]
    fn what_is_too_large_is_refused_where_there_are_limits() {
        let secret = |bytes: usize| {
            let data = data_encoding::BASE64.encode(&vec![b'x'; bytes]);
            json!({"metadata": {"name": "m"}, "data": {"k": data}})
        };
        let widget =
            |bytes: usize| json!({"metadata": {"name": "m"}, "immutable": false, "data": {"k": "x".repeat(bytes)}});
        for (target, body, status) in [
            (MAPS, map(DATA_BYTES_MAX), 201),
            (MAPS, map(DATA_BYTES_MAX + 1), 422),
            (SECRETS, secret(DATA_BYTES_MAX), 201),
            (SECRETS, secret(DATA_BYTES_MAX + 1), 422),
            (MAPS, widget(BODY_BYTES_MAX), 413),
            (
                "/apis/networking.k8s.io/v1/ingressclasses",
                json!({"metadata": {"name": "m"}, "spec": {"controller": "x".repeat(STORED_BYTES_MAX)}}),
                500,
            ),
        ] {
            assert_eq!(send(&mut server(true), Method::Post, target, "application/json", &body).0, status, "{target}");
            assert_eq!(send(&mut server(false), Method::Post, target, "application/json", &body).0, 201, "{target}");
        }
    }

    #[test]
    fn a_change_that_makes_an_object_too_large_is_refused_as_well() {
        let mut server = server(true);
        send(&mut server, Method::Post, MAPS, "application/json", &map(1));
        let path = format!("{MAPS}/m");
        let (status, _) = send(&mut server, Method::Put, &path, "application/json", &map(DATA_BYTES_MAX + 1));
        assert_eq!(status, 422);
        let steps = vec![json!({"op": "add", "path": "/data/a", "value": "1"}); STEPS_MAX + 1];
        let kind = "application/json-patch+json";
        assert_eq!(send(&mut server, Method::Patch, &path, kind, &steps[1..].into()).0, 200);
        assert_eq!(send(&mut server, Method::Patch, &path, kind, &steps.into()).0, 413);
    }
}
