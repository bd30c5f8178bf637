//! Who may ask: one token for each server, which may do everything. It comes as a bearer token, or as the first segment
//! of the path: kubectl sends no credentials over plain HTTP, and pods of the sandbox are processes of whoever runs it,
//! so nobody else on the machine may make any. Must not know roles: there are none here.

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

    /// The target of a request that may pass, without the token; else the refusal. Nobody's token is needed for version,
    /// health and the documents of OpenAPI (older kubectl asks for them without its server's path).
    pub(super) fn admit<'a>(
        &self,
        authorization: Option<&str>,
        method: &str,
        target: &'a str,
    ) -> Result<&'a str, Reply> {
        if let Some(rest) = target.strip_prefix('/').and_then(|t| t.strip_prefix(self.token.as_str()))
            && (rest.starts_with('/') || rest.starts_with('?'))
        {
            return Ok(rest);
        }
        let Some(given) = authorization else {
            let (path, _) = target.split_once('?').unwrap_or((target, ""));
            let open = ["/version", "/healthz", "/readyz", "/livez"];
            let open = open.iter().any(|p| path == *p || path.strip_prefix(p).is_some_and(|r| r.starts_with('/')))
                || path.starts_with("/openapi/v3/");
            return if open { Ok(target) } else { Err(forbidden(method, target)) };
        };
        if given.strip_prefix("Bearer ") == Some(self.token.as_str()) {
            return Ok(target);
        }
        Err(status(401, json!({"message": "Unauthorized", "reason": "Unauthorized", "code": 401})))
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
