//! Who may ask: one bearer token for each server, which may do everything.
//! Must not know roles: there are none here.

use serde_json::{Map, Value, json};

use crate::api::wire::Reply;

/// The token of a server.
#[derive(Clone, PartialEq, Eq)]
pub struct Access {
    token: String,
}

impl std::fmt::Debug for Access {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Access(token withheld)")
    }
}

impl Access {
    /// All requests must carry this token.
    pub fn token(token: impl Into<String>) -> Self {
        Self { token: token.into() }
    }

    /// The refusal of a request with this `Authorization` header, or `None` if it may pass. Nobody is needed for
    /// version and health.
    pub(super) fn refusal(&self, authorization: Option<&str>, method: &str, target: &str) -> Option<Reply> {
        let Some(given) = authorization else {
            let (path, _) = target.split_once('?').unwrap_or((target, ""));
            let open = ["/version", "/healthz", "/readyz", "/livez"];
            let open = open.iter().any(|p| path == *p || path.strip_prefix(p).is_some_and(|r| r.starts_with('/')));
            return (!open).then(|| forbidden(method, target));
        };
        let token = given.strip_prefix("Bearer ").unwrap_or_default();
        (token != self.token)
            .then(|| status(401, json!({"message": "Unauthorized", "reason": "Unauthorized", "code": 401})))
    }
}

/// A failure in the form of Kubernetes.
pub(super) fn status(code: u16, parts: Value) -> Reply {
    let mut body = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure"});
    if let (Value::Object(body), Value::Object(parts)) = (&mut body, parts) {
        body.extend(parts);
    }
    Reply {
        status: code,
        headers: vec![("content-type".to_owned(), "application/json".to_owned())],
        body: body.to_string().into_bytes().into(),
    }
}

/// What an unnamed caller is told: as of a server whose roles give it nothing.
fn forbidden(method: &str, target: &str) -> Reply {
    const WHO: &str = "User \"system:anonymous\" cannot";
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let parts: Vec<&str> = path.split('/').skip(1).collect();
    let (group, rest) = match parts.as_slice() {
        ["api", _, rest @ ..] if !rest.is_empty() => ("", rest),
        ["apis", group, _, rest @ ..] if !rest.is_empty() => (*group, rest),
        _ => {
            let text = format!("forbidden: {WHO} {} path \"{path}\"", method.to_lowercase());
            return status(403, json!({"message": text, "reason": "Forbidden", "details": {}, "code": 403}));
        }
    };
    let (namespace, rest) = match rest {
        ["namespaces", namespace] => (Some(*namespace), rest),
        ["namespaces", namespace, rest @ ..] => (Some(*namespace), rest),
        _ => (None, rest),
    };
    let (plural, name, sub) =
        (rest[0], rest.get(1).copied().filter(|n| !n.is_empty()), rest.get(2).copied().filter(|n| !n.is_empty()));
    let watch = query.split('&').any(|p| matches!(p, "watch=1" | "watch=true" | "watch"));
    let verb = match (method, name) {
        ("GET", None) if watch => "watch",
        ("GET", None) => "list",
        ("GET", Some(_)) => "get",
        ("POST", _) => "create",
        ("PUT", _) => "update",
        ("PATCH", _) => "patch",
        ("DELETE", None) => "deletecollection",
        _ => "delete",
    };
    let qualified = if group.is_empty() { plural.to_owned() } else { format!("{plural}.{group}") };
    let named = name.map_or_else(String::new, |n| format!(" \"{n}\""));
    let resource = sub.map_or_else(|| plural.to_owned(), |s| format!("{plural}/{s}"));
    let place = namespace.map_or_else(|| "at the cluster scope".to_owned(), |ns| format!("in the namespace \"{ns}\""));
    let text = format!(
        "{qualified}{named} is forbidden: {WHO} {verb} resource \"{resource}\" in API group \"{group}\" {place}"
    );
    let mut details = Map::new();
    for (key, value) in [("name", name.unwrap_or_default()), ("group", group), ("kind", plural)] {
        if !value.is_empty() {
            details.insert(key.to_owned(), value.into());
        }
    }
    status(403, json!({"message": text, "reason": "Forbidden", "details": details, "code": 403}))
}
