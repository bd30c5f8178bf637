//! What of a request its permission hangs on: verb, resource and where it is, or the path.
//! Must not know who asks, nor which resources exist: what does not exist may be forbidden too.

use serde_json::json;

use super::User;
use crate::api::wire::{Method, Request};
use crate::sandbox::apiserver::route::{Query, decoded};
use crate::sandbox::apiserver::status_reply::{Refusal, Refused, details};

/// What is to be done to what.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Attributes {
    /// `get`, `list`, `deletecollection`, …; of paths the method in lower case.
    pub verb: String,
    pub object: Object,
}

/// To what.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Object {
    Resource(Resource),
    /// A path that leads to no resource: `/version`.
    Path(String),
}

/// A resource, whole or in part. Empty texts stand for what is not named.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Resource {
    pub group: String,
    pub resource: String,
    pub subresource: String,
    pub namespace: String,
    pub name: String,
}

impl Resource {
    /// As rules name it: `pods/log`.
    pub(super) fn with_subresource(&self) -> String {
        if self.subresource.is_empty() {
            self.resource.clone()
        } else {
            format!("{}/{}", self.resource, self.subresource)
        }
    }
}

impl Attributes {
    /// Of a request, by its method and target alone (`RequestInfo` of the real server).
    pub(super) fn of(request: &Request) -> Self {
        let (path, query) = request.target.split_once('?').unwrap_or((&request.target, ""));
        let path = decoded(path, false);
        let parts: Vec<&str> = path.trim_matches('/').split('/').collect();
        let by_path =
            || Self { verb: request.method.as_str().to_lowercase(), object: Object::Path(path.clone().into_owned()) };
        let (group, rest) = match parts.as_slice() {
            ["api", _, rest @ ..] if !rest.is_empty() => ("", rest),
            ["apis", group, _, rest @ ..] if !rest.is_empty() => (*group, rest),
            _ => return by_path(),
        };
        let mut verb = match request.method {
            Method::Get => "get",
            Method::Post => "create",
            Method::Put => "update",
            Method::Patch => "patch",
            Method::Delete => "delete",
        };
        // Old style paths say the verb first. Only a read is one: whatever else is done there needs its own right.
        let rest = match rest {
            ["watch", rest @ ..] if !rest.is_empty() => {
                verb = if verb == "get" { "watch" } else { verb };
                rest
            }
            rest => rest,
        };
        let (namespace, rest) = match rest {
            ["namespaces", namespace, sub @ ("status" | "finalize")] => {
                (*namespace, &["namespaces", *namespace, *sub][..])
            }
            ["namespaces", namespace] => (*namespace, rest),
            ["namespaces", namespace, inner @ ..] => (*namespace, inner),
            _ => ("", rest),
        };
        let part = |at: usize| rest.get(at).copied().unwrap_or_default().to_owned();
        let (resource, mut name, subresource) = (part(0), part(1), part(2));
        if name.is_empty() && verb == "get" {
            let query = Query::parse(query);
            verb = if query.flag("watch").unwrap_or(false) { "watch" } else { "list" };
            name = query.get("fieldSelector").and_then(only_name).unwrap_or_default();
        } else if name.is_empty() && verb == "delete" {
            verb = "deletecollection";
        }
        let (group, namespace) = (group.to_owned(), namespace.to_owned());
        Self {
            verb: verb.to_owned(),
            object: Object::Resource(Resource { group, resource, subresource, namespace, name }),
        }
    }

    /// The same with another verb.
    pub(super) fn with_verb(&self, verb: impl Into<String>) -> Self {
        Self { verb: verb.into(), object: self.object.clone() }
    }

    /// Where it is; empty for what is in no namespace.
    pub(super) fn namespace(&self) -> &str {
        match &self.object {
            Object::Resource(resource) => &resource.namespace,
            Object::Path(_) => "",
        }
    }

    /// 403 in the words of the real server; `why` may be empty.
    pub(super) fn forbidden(&self, user: &User, why: &str) -> Refused {
        let (who, verb) = (&user.name, &self.verb);
        let why = if why.is_empty() { String::new() } else { format!(": {why}") };
        let resource = match &self.object {
            Object::Path(path) => {
                let message = format!("forbidden: User {who:?} cannot {verb} path {path:?}{why}");
                return Refusal::new(403, "Forbidden", message).with_details(json!({}));
            }
            Object::Resource(resource) => resource,
        };
        let Resource { group, resource: plural, namespace, name, .. } = resource;
        let whole = resource.with_subresource();
        let mut what = if group.is_empty() { plural.clone() } else { format!("{plural}.{group}") };
        if !name.is_empty() {
            what = format!("{what} {name:?}");
        }
        let place = if namespace.is_empty() {
            "at the cluster scope".to_owned()
        } else {
            format!("in the namespace {namespace:?}")
        };
        let message = format!(
            "{what} is forbidden: User {who:?} cannot {verb} resource {whole:?} in API group {group:?} {place}{why}"
        );
        Refusal::new(403, "Forbidden", message).with_details(details(group, plural, name).into())
    }
}

/// The one object that a field selector leaves.
fn only_name(selector: &str) -> Option<String> {
    selector.split(',').find_map(|term| {
        let name = term.strip_prefix("metadata.name=")?;
        Some(name.strip_prefix('=').unwrap_or(name).to_owned())
    })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    fn of(method: Method, target: &str) -> String {
        let request = Request::new(method, target, "", Arc::from([]));
        let Attributes { verb, object } = Attributes::of(&request);
        match object {
            Object::Path(path) => format!("{verb} {path}"),
            Object::Resource(r) => {
                format!("{verb} {}|{}|{}|{}", r.group, r.with_subresource(), r.namespace, r.name)
            }
        }
    }

    #[test]
    fn a_request_is_named_by_its_method_and_target() {
        use Method::{Delete, Get, Patch, Post, Put};
        for (method, target, expected) in [
            (Get, "/api/v1/namespaces/a/pods", "list |pods|a|"),
            (Get, "/api/v1/namespaces/a/pods?watch=1", "watch |pods|a|"),
            (Get, "/api/v1/namespaces/a/pods?watch=false", "list |pods|a|"),
            (Get, "/api/v1/watch/namespaces/a/pods/p", "watch |pods|a|p"),
            (Delete, "/api/v1/watch/namespaces/a/pods", "deletecollection |pods|a|"),
            (Get, "/api/v1/pods", "list |pods||"),
            (Get, "/api/v1/namespaces/a/pods/p", "get |pods|a|p"),
            (Get, "/api/v1/namespaces/a/pods/p/log?follow=1", "get |pods/log|a|p"),
            (Get, "/api/v1/namespaces/a/pods?fieldSelector=metadata.name%3Dp,spec.x%3Dy", "list |pods|a|p"),
            (Post, "/api/v1/namespaces/a/pods/p/binding", "create |pods/binding|a|p"),
            (Delete, "/apis/apps/v1/namespaces/a/deployments", "deletecollection apps|deployments|a|"),
            (Delete, "/apis/apps/v1/namespaces/a/deployments/d", "delete apps|deployments|a|d"),
            (Put, "/apis/x.dev/v1/namespaces/a/widgets/w/status", "update x.dev|widgets/status|a|w"),
            (Patch, "/api/v1/nodes/n", "patch |nodes||n"),
            (Get, "/api/v1/namespaces", "list |namespaces||"),
            (Get, "/api/v1/namespaces/a", "get |namespaces|a|a"),
            (Put, "/api/v1/namespaces/a/finalize", "update |namespaces/finalize|a|a"),
            (Get, "/api/v1/namespaces/a/services/s:w/proxy/x/y", "get |services/proxy|a|s:w"),
            (Get, "/apis/nope.dev/v1/x", "list nope.dev|x||"),
            (Get, "/api/v1", "get /api/v1"),
            (Get, "/apis/apps/v1", "get /apis/apps/v1"),
            (Post, "/metrics", "post /metrics"),
            (Get, "/", "get /"),
        ] {
            assert_eq!(of(method, target), expected, "{target}");
        }
    }
}
