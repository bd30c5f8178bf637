//! What a server says about itself: version, health, groups and resources, plain and aggregated, and OpenAPI as far as
//! kubectl reads it before it creates or applies.
//! Must not know objects. OpenAPI documents name paths, kinds and query parameters; schemas of kinds are not in them.

use serde_json::{Map, Value, json};
use sha2::{Digest, Sha512};

use super::kinds::kinds;
use super::registry::{Registry, ResourceType, Subresource, api_version};
use crate::api::wire::Reply;

/// The release that the server behaves like.
pub const GIT_VERSION: &str = "v1.36.3";
/// The same for documents.
const VERSION: &str = "1.36";
const AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";

/// The answer to a GET of `target` (path and query), or `None` if it is no path of this file.
pub fn reply(registry: &Registry, target: &str, accept: &str) -> Option<Reply> {
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let parts: Vec<&str> = path.split('/').skip(1).collect();
    Some(match parts.as_slice() {
        [""] => json_reply(&json!({"paths": root_paths(registry)})),
        ["version"] | ["version", ""] => version(accept),
        ["healthz" | "readyz" | "livez", rest @ ..] => health(parts[0], rest, query),
        ["api"] | ["api", ""] => match form(accept) {
            Form::Aggregated => aggregated(registry, true),
            Form::Plain => json_reply(&api_versions()),
            Form::Unknown => not_acceptable(),
        },
        ["apis"] | ["apis", ""] => match form(accept) {
            Form::Aggregated => aggregated(registry, false),
            Form::Plain => json_reply(&groups(registry)),
            Form::Unknown => not_acceptable(),
        },
        ["api", "v1"] => json_reply(&resources(registry, "", "v1")),
        ["apis", group] | ["apis", group, ""] => match registry.group(group).filter(|_| !group.is_empty()) {
            Some(found) => json_reply(&with_type("APIGroup", group_body(&found.name, &found.versions))),
            None => not_found(),
        },
        ["apis", group, version] => {
            if registry.of_version(group, version).next().is_none() {
                return Some(not_found());
            }
            json_reply(&resources(registry, group, version))
        }
        ["openapi", rest @ ..] => openapi(registry, rest, accept),
        _ => return None,
    })
}

/// Under which a client keeps a document.
fn etag(body: &[u8]) -> (String, String) {
    ("etag".to_owned(), format!("\"{}\"", data_encoding::HEXUPPER.encode(&Sha512::digest(body))))
}

fn text_reply(status: u16, text: &str) -> Reply {
    Reply {
        status,
        headers: vec![("content-type".to_owned(), "text/plain; charset=utf-8".to_owned())],
        body: text.as_bytes().into(),
    }
}

/// A path that the server does not have.
pub fn not_found() -> Reply {
    text_reply(404, "404 page not found\n")
}

fn json_reply(body: &Value) -> Reply {
    Reply {
        status: 200,
        headers: vec![("content-type".to_owned(), "application/json".to_owned())],
        body: body.to_string().into_bytes().into(),
    }
}

fn not_acceptable() -> Reply {
    let text = "only the following media types are accepted: application/json, application/yaml, \
                application/vnd.kubernetes.protobuf";
    let body = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "message": text,
        "reason": "NotAcceptable", "code": 406});
    Reply { status: 406, ..json_reply(&body) }
}

/// In which form discovery is asked for.
#[derive(Debug, PartialEq, Eq)]
enum Form {
    Plain,
    Aggregated,
    Unknown,
}

/// The first form that we have; a real server takes them in the order in which the client lists them.
fn form(accept: &str) -> Form {
    if accept.is_empty() {
        return Form::Plain;
    }
    for range in accept.split(',') {
        let mut parts = range.split(';').map(str::trim);
        let media = parts.next().unwrap_or_default();
        let parameters: Vec<&str> = parts.collect();
        let json = matches!(media, "application/json" | "application/*" | "*/*" | "");
        let transformed = parameters.iter().any(|p| p.starts_with("as="));
        if json && !transformed {
            return Form::Plain;
        }
        if json && parameters.contains(&"v=v2") && parameters.contains(&"as=APIGroupDiscoveryList") {
            return Form::Aggregated;
        }
    }
    Form::Unknown
}

fn version(accept: &str) -> Reply {
    if accept == "application/yaml" {
        let text = "apiVersion: v1\ncode: 406\ndetails: {}\nkind: Status\nmessage: |-\n  406: Not Acceptable\n\n  \
                    Available representations: application/json\nmetadata: {}\nreason: NotAcceptable\nstatus: Failure\n";
        return Reply {
            status: 406,
            headers: vec![("content-type".to_owned(), "application/yaml".to_owned())],
            body: text.as_bytes().into(),
        };
    }
    json_reply(&json!({
        "major": "1", "minor": "36", "emulationMajor": "1", "emulationMinor": "36",
        "minCompatibilityMajor": "1", "minCompatibilityMinor": "35",
        "gitVersion": GIT_VERSION, "gitCommit": "", "gitTreeState": "",
        "buildDate": "1970-01-01T00:00:00Z", "goVersion": "", "compiler": "rayfleet sandbox", "platform": "",
    }))
}

/// The only thing that can be wrong with this server is that it does not answer.
fn health(kind: &str, rest: &[&str], query: &str) -> Reply {
    let verbose = query.split('&').any(|p| p == "verbose" || p.starts_with("verbose="));
    match rest {
        [] if verbose => text_reply(200, &format!("[+]ping ok\n{kind} check passed\n")),
        [] | ["ping" | "etcd"] => text_reply(200, "ok"),
        _ => not_found(),
    }
}

fn root_paths(registry: &Registry) -> Vec<String> {
    let mut paths: Vec<String> = ["/api", "/api/v1", "/apis", "/apis/"].map(str::to_owned).to_vec();
    for group in registry.groups().into_iter().filter(|g| !g.name.is_empty()) {
        paths.push(format!("/apis/{}", group.name));
        paths.extend(group.versions.iter().map(|v| format!("/apis/{}/{v}", group.name)));
    }
    for path in ["/healthz", "/livez", "/openapi/v2", "/openapi/v3", "/openapi/v3/", "/readyz", "/version"] {
        paths.push(path.to_owned());
    }
    paths.sort();
    paths
}

fn api_versions() -> Value {
    json!({"kind": "APIVersions", "versions": ["v1"],
        "serverAddressByClientCIDRs": [{"clientCIDR": "0.0.0.0/0", "serverAddress": "127.0.0.1"}]})
}

fn group_body(name: &str, versions: &[String]) -> Map<String, Value> {
    let one = |v: &String| json!({"groupVersion": api_version(name, v), "version": v});
    let mut body = Map::new();
    body.insert("name".to_owned(), name.into());
    body.insert("versions".to_owned(), versions.iter().map(one).collect());
    body.insert("preferredVersion".to_owned(), versions.first().map_or(Value::Null, one));
    body
}

fn with_type(kind: &str, mut body: Map<String, Value>) -> Value {
    body.insert("kind".to_owned(), kind.into());
    body.insert("apiVersion".to_owned(), "v1".into());
    Value::Object(body)
}

fn groups(registry: &Registry) -> Value {
    let all: Vec<Value> = registry
        .groups()
        .iter()
        .filter(|g| !g.name.is_empty())
        .map(|g| Value::Object(group_body(&g.name, &g.versions)))
        .collect();
    json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": all})
}

fn resources(registry: &Registry, group: &str, version: &str) -> Value {
    let mut list = Vec::new();
    for ty in registry.of_version(group, version) {
        list.push(plain_resource(ty));
        list.extend(ty.subresources.iter().map(|s| plain_subresource(ty, s)));
    }
    let mut body = Map::new();
    body.insert("groupVersion".to_owned(), api_version(group, version).into());
    body.insert("resources".to_owned(), list.into());
    let mut all = with_type("APIResourceList", body);
    if group.is_empty()
        && let Some(map) = all.as_object_mut()
    {
        // The core group's list is older than the rule that every answer names its version.
        map.remove("apiVersion");
    }
    all
}

fn plain_resource(ty: &ResourceType) -> Value {
    let mut body = json!({"name": ty.plural, "singularName": ty.singular, "namespaced": ty.namespaced, "kind": ty.kind,
        "verbs": ty.verbs});
    names(ty, &mut body);
    if !ty.storage_hash.is_empty() {
        body["storageVersionHash"] = ty.storage_hash.clone().into();
    }
    body
}

fn names(ty: &ResourceType, body: &mut Value) {
    if !ty.short_names.is_empty() {
        body["shortNames"] = json!(ty.short_names);
    }
    if !ty.categories.is_empty() {
        body["categories"] = json!(ty.categories);
    }
}

fn plain_subresource(ty: &ResourceType, sub: &Subresource) -> Value {
    let mut body = json!({"name": format!("{}/{}", ty.plural, sub.name), "singularName": "",
        "namespaced": ty.namespaced, "kind": sub.kind, "verbs": sub.verbs});
    if (&sub.group, &sub.version) != (&ty.group, &ty.version) {
        body["group"] = sub.group.clone().into();
        body["version"] = sub.version.clone().into();
    }
    body
}

/// The core group alone (`/api`) or all the others (`/apis`), each with its versions and resources.
fn aggregated(registry: &Registry, core: bool) -> Reply {
    let mut items = Vec::new();
    for group in registry.groups().into_iter().filter(|g| g.name.is_empty() == core) {
        let versions: Vec<Value> = group
            .versions
            .iter()
            .map(|v| {
                let list: Vec<Value> = registry.of_version(&group.name, v).map(|t| aggregated_resource(t)).collect();
                json!({"version": v, "resources": list, "freshness": "Current"})
            })
            .collect();
        let metadata = if core { json!({}) } else { json!({"name": group.name}) };
        items.push(json!({"metadata": metadata, "versions": versions}));
    }
    let body = json!({"kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2", "metadata": {}, "items": items});
    let mut reply = json_reply(&body);
    reply.headers = vec![("content-type".to_owned(), AGGREGATED.to_owned()), etag(&reply.body)];
    reply
}

fn aggregated_resource(ty: &ResourceType) -> Value {
    // Built-in types leave out what equals their own group and version.
    let kind_of = |group: &str, version: &str, kind: &str| {
        let own = ty.builtin && group == ty.group && version == ty.version;
        let (group, version) = if own { ("", "") } else { (group, version) };
        json!({"group": group, "version": version, "kind": kind})
    };
    let mut body = json!({"resource": ty.plural, "responseKind": kind_of(&ty.group, &ty.version, &ty.kind),
        "scope": if ty.namespaced { "Namespaced" } else { "Cluster" },
        "singularResource": ty.singular, "verbs": ty.verbs});
    names(ty, &mut body);
    if !ty.subresources.is_empty() {
        let one = |s: &Subresource| json!({"subresource": s.name, "responseKind": kind_of(&s.group, &s.version, &s.kind), "verbs": s.verbs});
        body["subresources"] = ty.subresources.iter().map(one).collect();
    }
    body
}

fn openapi(registry: &Registry, rest: &[&str], accept: &str) -> Reply {
    // kubectl falls back to JSON where the packed form is not to be had.
    if !accept.is_empty() && !accept.split(',').any(|r| r.contains("json") || r.contains("*/*")) {
        return not_acceptable();
    }
    match rest {
        // The real one calls its index plain text.
        ["v3"] | ["v3", ""] => {
            let text = "text/plain; charset=utf-8".to_owned();
            Reply { headers: vec![("content-type".to_owned(), text)], ..json_reply(&openapi_index(registry)) }
        }
        ["v3", "api", "v1"] => document_reply(&openapi_document(registry, "", "v1")),
        ["v3", "apis", group, version] if registry.of_version(group, version).next().is_some() => {
            document_reply(&openapi_document(registry, group, version))
        }
        ["v3", ..] => Reply { status: 404, headers: Vec::new(), body: [].into() },
        ["v2"] => json_reply(&json!({"swagger": "2.0", "info": {"title": "Kubernetes", "version": GIT_VERSION},
            "paths": {}, "definitions": {}})),
        _ => not_found(),
    }
}

fn document_reply(document: &Value) -> Reply {
    let mut reply = json_reply(document);
    reply.headers.push(etag(&reply.body));
    reply
}

fn openapi_index(registry: &Registry) -> Value {
    let mut paths = Map::new();
    for group in registry.groups() {
        for version in &group.versions {
            let path =
                if group.name.is_empty() { format!("api/{version}") } else { format!("apis/{}/{version}", group.name) };
            // Clients keep a document for good under its hash.
            let hash = Sha512::digest(openapi_document(registry, &group.name, version).to_string());
            let hash = data_encoding::HEXUPPER.encode(&hash);
            let url = json!({"serverRelativeURL": format!("/openapi/v3/{path}?hash={hash}")});
            paths.insert(path, url);
        }
    }
    json!({"paths": paths})
}

/// Paths of one version of a group with the parameters that kubectl looks for: whether the server checks fields and
/// takes dry runs.
fn openapi_document(registry: &Registry, group: &str, version: &str) -> Value {
    let root = if group.is_empty() { format!("/api/{version}") } else { format!("/apis/{group}/{version}") };
    let (mut paths, mut schemas) = (Map::new(), Map::new());
    for ty in registry.of_version(group, version) {
        let place = if ty.namespaced { "/namespaces/{namespace}" } else { "" };
        let kind = json!({"group": ty.group, "version": ty.version, "kind": ty.kind});
        let parameters: Vec<Value> = ["dryRun", "fieldManager", "fieldValidation"]
            .iter()
            .map(|name| json!({"name": name, "in": "query", "schema": {"type": "string", "uniqueItems": true}}))
            .collect();
        let operation = |action: &str| {
            json!({"parameters": parameters, "responses": {"200": {"description": "OK"}},
                "x-kubernetes-action": action, "x-kubernetes-group-version-kind": kind})
        };
        let collection = format!("{root}{place}/{}", ty.plural);
        if ty.allows("create") {
            paths.insert(collection.clone(), json!({"post": operation("post")}));
        }
        if ty.allows("patch") {
            let object = json!({"put": operation("put"), "patch": operation("patch")});
            paths.insert(format!("{collection}/{{name}}"), object);
        }
        match &ty.definition {
            Some(schema) => {
                let mut schema = Value::clone(schema);
                schema["x-kubernetes-group-version-kind"] = json!([kind]);
                schemas.insert(schema_name(ty), schema);
            }
            None => kinds().reach(&ty.group, &ty.version, &ty.kind, &mut schemas),
        }
    }
    json!({"openapi": "3.0.0", "info": {"title": "Kubernetes", "version": VERSION}, "paths": paths,
        "components": {"schemas": schemas}})
}

/// Name of a kind in OpenAPI: the group turned round, `dev.example.v1.Widget`.
fn schema_name(ty: &ResourceType) -> String {
    let group = if ty.group.is_empty() { "core" } else { &ty.group };
    let mut parts: Vec<&str> = group.split('.').rev().collect();
    parts.extend([ty.version.as_str(), ty.kind.as_str()]);
    parts.join(".")
}

#[cfg(test)]
mod tests {
    use super::super::{crd, recorded};
    use super::*;

    fn registry() -> Option<Registry> {
        let mut registry = Registry::new();
        for name in [
            "widgets.example.dev",
            "gadgets.example.dev",
            "plants.example.dev",
            "rayjobs.ray.io",
            "rayclusters.ray.io",
            "rayservices.ray.io",
            "raycronjobs.ray.io",
            "podgroups.scheduling.volcano.sh",
            "queues.scheduling.volcano.sh",
        ] {
            let mut found = recorded::crd(name)?;
            crd::fill(&mut found);
            crd::types(&found).into_iter().for_each(|t| registry.insert(t));
        }
        Some(registry)
    }

    fn body(registry: &Registry, path: &str, accept: &str) -> Value {
        let reply = reply(registry, path, accept).unwrap();
        serde_json::from_slice(&reply.body).unwrap_or_else(|_| String::from_utf8_lossy(&reply.body).into())
    }

    /// Lists in discovery have no order that clients stand on.
    fn sorted(mut list: Vec<Value>, key: &str) -> Vec<Value> {
        list.sort_by_key(|v| v[key].as_str().unwrap_or_default().to_owned());
        list
    }

    #[test]
    fn each_group_and_version_is_described_as_recorded() {
        let (Some(topic), Some(registry)) = (recorded::topic("discovery"), registry()) else { return };
        let mut compared = 0;
        for exchange in topic["cases"].as_array().unwrap().iter().flat_map(|c| c["exchanges"].as_array().unwrap()) {
            let theirs = &exchange["response"]["body"];
            let path = exchange["request"]["path"].as_str().unwrap();
            if theirs["kind"] == "APIGroup" {
                assert_eq!(&body(&registry, path, "application/json"), theirs, "{path}");
                compared += 1;
            } else if theirs["kind"] == "APIResourceList" {
                let mine = body(&registry, path, "application/json");
                let list = |v: &Value| {
                    let all = v["resources"].as_array().unwrap().clone();
                    sorted(all.into_iter().filter(|r| r["kind"] != "ComponentStatus").collect(), "name")
                };
                assert_eq!(list(&mine), list(theirs), "{path}");
                compared += 1;
            }
        }
        assert!(compared >= 18, "{compared}");
    }

    #[test]
    fn aggregated_discovery_equals_the_recorded_one_for_the_groups_served() {
        let (Some(topic), Some(registry)) = (recorded::topic("discovery"), registry()) else { return };
        let mut compared = 0;
        for exchange in topic["cases"].as_array().unwrap().iter().flat_map(|c| c["exchanges"].as_array().unwrap()) {
            let theirs = &exchange["response"]["body"];
            if theirs["kind"] != "APIGroupDiscoveryList" {
                continue;
            }
            let path = exchange["request"]["path"].as_str().unwrap();
            let mine = body(&registry, path, exchange["request"]["headers"]["accept"].as_str().unwrap());
            for group in mine["items"].as_array().unwrap() {
                let same = |g: &&Value| g["metadata"] == group["metadata"];
                let mut other = theirs["items"].as_array().unwrap().iter().find(same).unwrap().clone();
                for version in other["versions"].as_array_mut().unwrap() {
                    version["resources"].as_array_mut().unwrap().retain(|r| r["resource"] != "componentstatuses");
                }
                assert_eq!(group, &other);
                compared += 1;
            }
        }
        assert!(compared >= 18, "{compared}");
    }

    #[test]
    fn kubectl_finds_field_validation_in_openapi() {
        let Some(registry) = registry() else { return };
        let index = body(&registry, "/openapi/v3?timeout=32s", "application/json, */*");
        let url = index["paths"]["apis/ray.io/v1"]["serverRelativeURL"].as_str().unwrap();
        let document = body(&registry, url, "application/json");
        let patch = &document["paths"]["/apis/ray.io/v1/namespaces/{namespace}/rayjobs/{name}"]["patch"];
        assert_eq!(patch["x-kubernetes-group-version-kind"]["kind"], "RayJob");
        assert!(patch["parameters"].as_array().unwrap().iter().any(|p| p["name"] == "fieldValidation"));
    }

    #[test]
    fn what_is_no_path_of_discovery_is_left_to_others() {
        let registry = Registry::new();
        assert_eq!(reply(&registry, "/api/v1/pods", ""), None);
        assert_eq!(reply(&registry, "/apis/apps/v1/deployments", ""), None);
        assert_eq!(reply(&registry, "/apis/nope", "").unwrap().status, 404);
        assert_eq!(reply(&registry, "/apis/nope/v1", "").unwrap().status, 404);
        assert_eq!(reply(&registry, "/healthz", "").unwrap().body.as_ref(), b"ok");
        assert_eq!(form("application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList"), Form::Unknown);
    }
}
