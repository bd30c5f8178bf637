//! What a request asks for: path and query taken apart, and the form in which the answer is wanted.
//! Must not know stored objects.

use std::borrow::Cow;
use std::sync::Arc;

use super::registry::{Registry, ResourceType};
use super::status_reply::{Refusal, Refused, bad_request, no_such_page, no_such_resource, not_built};
use crate::api::wire::Request;

/// Parameters of a query, decoded.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Query<'a>(Vec<(Cow<'a, str>, Cow<'a, str>)>);

impl<'a> Query<'a> {
    pub(super) fn parse(text: &'a str) -> Self {
        Self(
            text.split('&')
                .filter(|p| !p.is_empty())
                .map(|part| {
                    let (name, value) = part.split_once('=').unwrap_or((part, ""));
                    (decoded(name, true), decoded(value, true))
                })
                .collect(),
        )
    }

    /// First value of a parameter.
    pub(super) fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(n, _)| n == name).map(|(_, v)| &**v)
    }

    /// First value of a parameter, unless empty.
    pub(super) fn text(&self, name: &str) -> Option<&str> {
        self.get(name).filter(|v| !v.is_empty())
    }

    /// As the real server reads booleans: all but `false` and `0` is true.
    pub(super) fn flag(&self, name: &str) -> Option<bool> {
        self.get(name).map(|v| v != "false" && v != "0")
    }

    /// A whole number.
    pub(super) fn number(&self, name: &str) -> Result<Option<i64>, Refused> {
        match self.text(name) {
            None => Ok(None),
            Some(text) => text
                .parse()
                .map(Some)
                .map_err(|_| bad_request(format!("strconv.ParseInt: parsing \"{text}\": invalid syntax"))),
        }
    }
}

/// Percent-decoding; `+` is a space in queries only.
pub(super) fn decoded(text: &str, query: bool) -> Cow<'_, str> {
    let plain = !text.contains('%');
    if plain && (!query || !text.contains('+')) {
        return Cow::Borrowed(text);
    }
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let hex = (bytes[at] == b'%')
            .then(|| bytes.get(at + 1..at + 3))
            .flatten()
            .and_then(|h| std::str::from_utf8(h).ok())
            .and_then(|h| u8::from_str_radix(h, 16).ok());
        if let Some(byte) = hex {
            out.push(byte);
            at += 3;
        } else {
            out.push(if query && bytes[at] == b'+' { b' ' } else { bytes[at] });
            at += 1;
        }
    }
    Cow::Owned(String::from_utf8_lossy(&out).into_owned())
}

/// A path below a resource.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Place {
    pub ty: Arc<ResourceType>,
    /// Empty: cluster-scoped, or all namespaces.
    pub namespace: String,
    /// Empty: the collection.
    pub name: String,
    /// Empty: the object itself.
    pub subresource: String,
    /// What follows the subresource, with its leading slash (proxy).
    pub rest: String,
    /// Old style `/watch/` path.
    pub watch: bool,
}

impl Place {
    /// Key within the collection.
    pub(super) fn key(&self) -> String {
        self.key_of(&self.name)
    }

    /// Key of an object of this type and namespace.
    pub(super) fn key_of(&self, name: &str) -> String {
        if self.namespace.is_empty() { name.to_owned() } else { format!("{}/{name}", self.namespace) }
    }

    /// What keys of the collection begin with.
    pub(super) fn prefix(&self) -> String {
        if self.namespace.is_empty() { String::new() } else { format!("{}/", self.namespace) }
    }
}

/// Where a path leads.
#[derive(Clone, PartialEq, Debug)]
pub(super) enum Target {
    /// To a resource.
    Place(Place),
    /// Elsewhere: discovery, health, versions.
    Other,
}

/// Takes a path apart. An unknown resource is refused as the real server does: built-in groups in JSON, others as text.
pub(super) fn target(registry: &Registry, path: &str) -> Result<Target, Refused> {
    let path = decoded(path, false);
    let mut parts: Vec<&str> = path.strip_prefix('/').unwrap_or(&path).split('/').collect();
    if parts.len() > 1 && parts.last() == Some(&"") {
        parts.pop();
    }
    let (group, version, mut rest) = match parts.as_slice() {
        ["api", "v1", rest @ ..] if !rest.is_empty() => ("", "v1", rest),
        ["api", "" | "v1"] | ["api"] => return Ok(Target::Other),
        ["api", ..] => return Err(no_such_resource()),
        ["apis", group, version, rest @ ..] if !rest.is_empty() => (*group, *version, rest),
        _ => return Ok(Target::Other),
    };
    let unknown = || {
        let builtin = registry.of_version(group, version).any(|t| t.builtin);
        if builtin { no_such_resource() } else { no_such_page() }
    };
    let watch = rest[0] == "watch";
    if watch {
        rest = &rest[1..];
    }
    let (namespace, rest) = match rest {
        ["namespaces", namespace, plural, ..]
            if !(group.is_empty() && matches!(*plural, "status" | "finalize") && rest.len() == 3) =>
        {
            (*namespace, &rest[2..])
        }
        _ => ("", rest),
    };
    let Some(plural) = rest.first() else { return Err(unknown()) };
    let ty = registry.find(group, version, plural).ok_or_else(unknown)?;
    if ty.namespaced == namespace.is_empty() && (!ty.namespaced || rest.len() > 1) {
        return Err(unknown());
    }
    let name = rest.get(1).copied().unwrap_or_default();
    if name == "." || name == ".." {
        return Err(bad_request(format!("Name parameter invalid: \"{name}\": may not be '{name}'")));
    }
    let subresource = rest.get(2).copied().unwrap_or_default();
    let more = rest.get(3..).unwrap_or_default();
    if !more.is_empty() && subresource != "proxy" {
        return Err(unknown());
    }
    let rest = more.iter().fold(String::new(), |path, part| path + "/" + part);
    Ok(Target::Place(Place {
        ty: ty.clone(),
        namespace: namespace.to_owned(),
        name: name.to_owned(),
        subresource: subresource.to_owned(),
        rest,
        watch,
    }))
}

/// Which part of an object is wanted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum View {
    Object,
    /// `PartialObjectMetadata`.
    Metadata,
    /// `PartialObjectMetadataList`.
    MetadataList,
    Table,
}

/// In which form the answer is wanted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Form {
    pub view: View,
    /// `meta.k8s.io/v1beta1` instead of `v1`, for tables.
    pub beta: bool,
    pub yaml: bool,
    pub pretty: bool,
}

const MEDIA: &str = "application/json, application/yaml, application/vnd.kubernetes.protobuf";

/// Reads `Accept`, `pretty` and the user agents of people.
pub(super) fn form(request: &Request, query: &Query, builtin: bool, watch: bool) -> Result<Form, Refused> {
    let people = ["curl", "Wget", "Mozilla/5.0"].iter().any(|a| request.user_agent.starts_with(a));
    let pretty = match query.get("pretty") {
        Some("") | None => people && query.get("pretty").is_none(),
        Some(text) => text != "false" && text != "0",
    };
    let mut form = Form { view: View::Object, beta: false, yaml: false, pretty };
    if request.accept.is_empty() || request.accept == "application/json" || request.accept == "*/*" {
        return Ok(form);
    }
    let mut clauses: Vec<(f64, &str)> = request.accept.split(',').map(|c| (quality(c), c.trim())).collect();
    clauses.sort_by(|a, b| b.0.total_cmp(&a.0));
    let mut known = false;
    let mut protobuf = false;
    for (_, clause) in clauses {
        let mut parts = clause.split(';').map(str::trim);
        let media = parts.next().unwrap_or_default();
        let yaml = match media {
            "application/json" | "*/*" | "application/*" => false,
            "application/yaml" if watch => {
                known = true;
                continue;
            }
            "application/yaml" => true,
            "application/vnd.kubernetes.protobuf" => {
                known = true;
                protobuf = true;
                continue;
            }
            _ => continue,
        };
        known = true;
        let named: Vec<(&str, &str)> = parts.filter_map(|p| p.split_once('=')).collect();
        let parameter = |name: &str| named.iter().find(|(k, _)| *k == name).map(|(_, v)| *v);
        let kind = parameter("as");
        form.beta = parameter("v") == Some("v1beta1");
        form.view = match kind {
            None | Some("") => View::Object,
            Some("PartialObjectMetadata") => View::Metadata,
            Some("PartialObjectMetadataList") => View::MetadataList,
            Some("Table") if matches!(parameter("v"), None | Some("v1" | "v1beta1")) => View::Table,
            Some(_) => continue,
        };
        form.yaml = yaml;
        return Ok(form);
    }
    if protobuf && builtin {
        return Err(not_built("the encoding application/vnd.kubernetes.protobuf"));
    }
    Err(not_acceptable(builtin && !known, watch, known))
}

fn quality(clause: &str) -> f64 {
    clause.split(';').find_map(|p| p.trim().strip_prefix("q=")).and_then(|q| q.parse().ok()).unwrap_or(1.0)
}

fn not_acceptable(by_router: bool, watch: bool, known: bool) -> Refused {
    const STREAMS: &str = "application/json;stream=watch, application/vnd.kubernetes.protobuf;stream=watch";
    if by_router {
        let more = if watch { format!(", {STREAMS}") } else { String::new() };
        return Refusal::new(
            406,
            "NotAcceptable",
            format!("406: Not Acceptable\n\nAvailable representations: {MEDIA}{more}"),
        )
        .with_details(serde_json::json!({}));
    }
    let media = if watch && known { STREAMS } else { MEDIA };
    Refusal::new(406, "NotAcceptable", format!("only the following media types are accepted: {media}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(path: &str) -> (String, String, String, String) {
        match target(&Registry::new(), path) {
            Ok(Target::Place(p)) => (p.ty.plural.clone(), p.namespace, p.name, p.subresource + &p.rest),
            other => panic!("{path}: {other:?}"),
        }
    }

    fn texts(a: &str, b: &str, c: &str, d: &str) -> (String, String, String, String) {
        (a.into(), b.into(), c.into(), d.into())
    }

    #[test]
    fn paths_are_taken_apart() {
        assert_eq!(place("/api/v1/namespaces/a/pods/p/log"), texts("pods", "a", "p", "log"));
        assert_eq!(place("/api/v1/namespaces/a"), texts("namespaces", "", "a", ""));
        assert_eq!(place("/api/v1/namespaces/a/status"), texts("namespaces", "", "a", "status"));
        assert_eq!(place("/api/v1/pods/"), texts("pods", "", "", ""));
        assert_eq!(place("/api/v1/namespaces/a/services/s:w/proxy/x/y"), texts("services", "a", "s:w", "proxy/x/y"));
        assert!(target(&Registry::new(), "/api/v1/bogus").is_err());
        assert!(target(&Registry::new(), "/api/v1/pods/p").is_err());
        assert_eq!(target(&Registry::new(), "/version"), Ok(Target::Other));
    }

    #[test]
    fn queries_are_decoded() {
        let query = Query::parse("labelSelector=e%20in%20%28x%29&watch&limit=x");
        assert_eq!(query.get("labelSelector"), Some("e in (x)"));
        assert_eq!(query.flag("watch"), Some(true));
        assert!(query.number("limit").is_err());
    }
}
