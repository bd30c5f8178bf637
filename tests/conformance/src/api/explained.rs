//! Differences between the sandbox's API server and a real one that are meant to be: each with the requests that it
//! concerns, one place, what makes both sides equal there, and why. Must not know how answers are got.

use std::fmt::Write as _;

use serde_json::{Map, Value};

use super::story::Step;

/// More than this would hide what the sandbox is not.
#[cfg(test)]
const ENTRIES_MAX: usize = 20;

/// One difference that is meant to be.
pub(super) struct Explained {
    /// What it is called in reports.
    pub name: &'static str,
    /// Which requests: verb and path as a pattern, where `*` is any text.
    requests: &'static str,
    /// JSON pointer into `{status, headers, body}`, or `{status, events, ended}` for a watch.
    pointer: &'static str,
    rewrite: Rewrite,
    reason: &'static str,
}

/// What makes both sides equal at the place.
#[derive(Clone, Copy)]
enum Rewrite {
    /// Nothing is compared there.
    Leave,
    /// Of the real server's, only what the sandbox has too: fields by name, list elements by their `name`, `resource` or
    /// `metadata.name`.
    Part,
    /// Headings of tables without their descriptions.
    Headings,
    /// Only the first line, up to a Go struct in it.
    FirstLine,
    /// The quoted object in `Invalid value: "{…}": why` is left out.
    WithoutObject,
}

impl Rewrite {
    fn words(self) -> String {
        match self {
            Self::Leave => "left out on both sides".to_owned(),
            Self::Part => "of the real answer, what the sandbox has too".to_owned(),
            Self::Headings => "headings of tables without the field `description`".to_owned(),
            Self::FirstLine => "only the first line, up to a Go struct".to_owned(),
            Self::WithoutObject => "without the object that the message quotes".to_owned(),
        }
    }
}

const GROUPS: &str = "the sandbox serves the groups and kinds that Ray's surroundings use, not all of Kubernetes; what it \
                      serves is described as there";
const COLUMNS: &str = "headings of tables come without the long sentences of the Go types, which kubectl does not show";
const GO_DIFF: &str = "after what may change of a Pod or a Job's template, the real server prints Go structs";
/// How Go structs, and differences of them, begin in messages.
const GO_STRUCTS: &[&str] = &["Spec{", "Invalid value: {", "\n@@ "];
const GO_ORDER: &str = "messages quote the patched object with its fields in the order of Go's structs; here they come by \
                        name";

const ALL: &[Explained] = &[
    Explained {
        name: "groups",
        requests: "GET /apis",
        pointer: "/body/groups",
        rewrite: Rewrite::Part,
        reason: GROUPS,
    },
    Explained {
        name: "aggregated groups",
        requests: "GET /apis",
        pointer: "/body/items",
        rewrite: Rewrite::Part,
        reason: GROUPS,
    },
    Explained {
        name: "aggregated core group",
        requests: "GET /api",
        pointer: "/body/items",
        rewrite: Rewrite::Part,
        reason: GROUPS,
    },
    Explained {
        name: "core kinds",
        requests: "GET /api/v1",
        pointer: "/body/resources",
        rewrite: Rewrite::Part,
        reason: "componentstatuses, deprecated since 1.19, is not served",
    },
    Explained {
        name: "build",
        requests: "GET /version",
        pointer: "/body",
        rewrite: Rewrite::Part,
        reason: "names of the compiler, the commit and the platform are the real server's own",
    },
    Explained {
        name: "compiler",
        requests: "GET /version",
        pointer: "/body/compiler",
        rewrite: Rewrite::Leave,
        reason: "it says that this is the sandbox",
    },
    Explained {
        name: "documents of OpenAPI",
        requests: "GET /openapi/v3",
        pointer: "/body/paths",
        rewrite: Rewrite::Part,
        reason: GROUPS,
    },
    Explained {
        name: "OpenAPI of a group",
        requests: "GET /openapi/v3/*",
        pointer: "/body",
        rewrite: Rewrite::Part,
        reason: "the documents hold what kubectl reads: kinds with their fields, and which parameters writes take; prose, \
                 lists and reads are left out",
    },
    Explained { name: "headings", requests: "GET *", pointer: "/body", rewrite: Rewrite::Headings, reason: COLUMNS },
    Explained {
        name: "headings of a watch",
        requests: "WATCH *",
        pointer: "/events",
        rewrite: Rewrite::Headings,
        reason: COLUMNS,
    },
    Explained {
        name: "shown difference",
        requests: "PATCH *",
        pointer: "/body/message",
        rewrite: Rewrite::FirstLine,
        reason: GO_DIFF,
    },
    Explained {
        name: "shown difference in the cause",
        requests: "PATCH *",
        pointer: "/body/details/causes/0/message",
        rewrite: Rewrite::FirstLine,
        reason: GO_DIFF,
    },
    Explained {
        name: "quoted object",
        requests: "PATCH *",
        pointer: "/body/message",
        rewrite: Rewrite::WithoutObject,
        reason: GO_ORDER,
    },
    Explained {
        name: "quoted object in the cause",
        requests: "PATCH *",
        pointer: "/body/details/causes/0/message",
        rewrite: Rewrite::WithoutObject,
        reason: GO_ORDER,
    },
];

impl Explained {
    pub(super) fn all() -> &'static [Self] {
        ALL
    }

    /// Whether the request is of the class.
    pub(super) fn concerns(&self, step: &Step) -> bool {
        let line = step.line();
        match self.requests.split_once('*') {
            Some((before, after)) => line.starts_with(before) && line.ends_with(after),
            None => line.split('?').next() == Some(self.requests),
        }
    }

    /// Rewrites both sides; whether anything changed.
    pub(super) fn rewrite(&self, real: &mut Value, here: &mut Value) -> bool {
        let (Some(a), Some(b)) = (real.pointer_mut(self.pointer), here.pointer_mut(self.pointer)) else { return false };
        if a == b {
            return false;
        }
        match self.rewrite {
            Rewrite::Leave => {
                *a = Value::Null;
                *b = Value::Null;
            }
            Rewrite::Part => *a = part(a, b),
            Rewrite::Headings => {
                headings(a);
                headings(b);
            }
            Rewrite::FirstLine => {
                let shows_structs = |text: &str| GO_STRUCTS.iter().any(|shown| text.contains(shown));
                if !a.as_str().is_some_and(shows_structs) {
                    return false;
                }
                for side in [a, b] {
                    if let Some(text) = side.as_str() {
                        let line = text.lines().next().unwrap_or_default();
                        *side = line.split("Invalid value: {").next().unwrap_or_default().into();
                    }
                }
            }
            Rewrite::WithoutObject => {
                for side in [a, b] {
                    if let Some(text) = side.as_str() {
                        *side = without_object(text).into();
                    }
                }
            }
        }
        true
    }
}

/// What of `whole` is in `like` too.
fn part(whole: &Value, like: &Value) -> Value {
    let name = |v: &Value| {
        let named = ["name", "resource", "groupVersion", "version"].iter().find_map(|k| v[*k].as_str());
        named.or_else(|| v["metadata"]["name"].as_str()).map(str::to_owned)
    };
    match (whole, like) {
        // Nothing at all is no part: it would be equal to everything.
        (Value::Object(a), Value::Object(b)) if b.is_empty() && !a.is_empty() => whole.clone(),
        (Value::Array(a), Value::Array(b)) if b.is_empty() && !a.is_empty() => whole.clone(),
        (Value::Object(a), Value::Object(b)) => {
            let kept = a.iter().filter_map(|(k, v)| Some((k.clone(), part(v, b.get(k)?))));
            Value::Object(kept.collect::<Map<_, _>>())
        }
        (Value::Array(a), Value::Array(b)) if b.iter().all(|v| name(v).is_some()) && a.len() > b.len() => {
            let found = |v: &Value| b.iter().find(|w| name(w) == name(v)).map(|w| part(v, w));
            a.iter().filter_map(found).collect()
        }
        (Value::Array(a), Value::Array(b)) if a.len() == b.len() => a.iter().zip(b).map(|(v, w)| part(v, w)).collect(),
        (Value::String(_), Value::String(text)) if text.is_empty() => like.clone(),
        _ => whole.clone(),
    }
}

/// Takes the descriptions out of the headings of tables, wherever a table stands: nothing else has such.
fn headings(value: &mut Value) {
    match value {
        Value::Object(map) => {
            for (key, inner) in map.iter_mut() {
                match inner {
                    Value::Array(columns) if key == "columnDefinitions" => {
                        columns.iter_mut().filter_map(Value::as_object_mut).for_each(|column| {
                            column.remove("description");
                        });
                    }
                    inner => headings(inner),
                }
            }
        }
        Value::Array(list) => list.iter_mut().for_each(headings),
        _ => {}
    }
}

/// `Invalid value: "{…}": why` without what stands between the quotes.
fn without_object(text: &str) -> String {
    let Some((before, rest)) = text.split_once("Invalid value: \"{") else { return text.to_owned() };
    match rest.split_once("}\": ") {
        Some((_, why)) => format!("{before}Invalid value: <object>: {why}"),
        None => text.to_owned(),
    }
}

/// What is off, and what of it is not there when it is on.
const ACCESS: &str = "
## Users, roles and limits

They are off, and whoever reaches the server may do everything: reviews and `serviceaccounts/token` are refused with 501.
`Options::auth` and `Options::size_limits` of the server (`src/sandbox/apiserver/`) turn them on; how they answer then is compared with recordings (`make kube-api`, topic `auth`).
With them, these differ from a real server:

* Of the roles that a fresh cluster has there are `cluster-admin`, `system:basic-user`, `system:discovery` and `system:public-info-viewer`. No controller puts aggregated ClusterRoles together, and roles that were changed are not mended.
* Rules decide alone: there are no authorizer for nodes, no webhooks and no conditions on field or label selectors.
* Tokens of ServiceAccounts are signed with HS256 by a key of the server, so nobody else can check them. They are bound to no Pod, Secret or Node: such a request is refused with 501. Secrets of type `kubernetes.io/service-account-token` get no token.
* Who impersonates his own node needs the verb for any node.
* etcd's limit counts an object as JSON text, which is longer than what is kept of a built-in kind.
";

/// The list of all of them as a page for `docs/`.
pub fn page() -> String {
    let mut out = String::from(
        "# Where the sandbox's API server differs from a real one\n\nThe sandbox's API server and a real kube-apiserver are \
         sent the same requests (`make api`, table in `tests/conformance/stories/`) and must give the same answers.\nThe \
         differences that are meant to be stand here, none of them on a request that the controller sends.\nThis page is \
         what `cargo run -p conformance -- api --page` prints; a test compares.\n\n| name | requests | place in the \
         answer | made equal by | why |\n|---|---|---|---|---|\n",
    );
    for e in ALL {
        let words = e.rewrite.words();
        let _ = writeln!(out, "| {} | `{}` | `{}` | {words} | {} |", e.name, e.requests, e.pointer, e.reason);
    }
    out.push_str(ACCESS);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_explained_differences_are_few_and_stand_in_the_docs() {
        assert!(ALL.len() <= ENTRIES_MAX);
        let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/SANDBOX-API.md");
        let written = std::fs::read_to_string(file).unwrap_or_default();
        assert_eq!(written, page(), "cargo run -p conformance -- api --page >docs/SANDBOX-API.md");
    }
}
