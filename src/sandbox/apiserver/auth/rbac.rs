//! Rules of roles: whether one allows something, whom a binding means, and whether rules cover others.
//! Must not know the store. Source: "Using RBAC Authorization" of the Kubernetes documentation.

use serde_json::Value;

use super::User;
use super::attributes::{Attributes, Object};

/// Prefix of the names of ServiceAccounts.
pub(super) const ACCOUNT: &str = "system:serviceaccount:";

/// Texts of a list, none for anything else.
pub(super) fn texts<'a>(rule: &'a Value, field: &str) -> impl Iterator<Item = &'a str> + use<'a> {
    rule.get(field).and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str)
}

/// Whether a `PolicyRule` allows it.
pub(super) fn allows(rule: &Value, attributes: &Attributes) -> bool {
    if !has(rule, "verbs", &attributes.verb) {
        return false;
    }
    match &attributes.object {
        Object::Path(path) => texts(rule, "nonResourceURLs").any(|pattern| url_fits(pattern, path)),
        Object::Resource(asked) => {
            let whole = asked.with_subresource();
            has(rule, "apiGroups", &asked.group)
                && texts(rule, "resources").any(|r| resource_fits(r, &whole))
                && (texts(rule, "resourceNames").next().is_none()
                    || texts(rule, "resourceNames").any(|n| n == asked.name))
        }
    }
}

/// Whether a list has the text, or `*`.
fn has(rule: &Value, field: &str, text: &str) -> bool {
    texts(rule, field).any(|t| t == "*" || t == text)
}

/// `*` is everything, `*/scale` this part of everything; a resource alone is not its parts.
fn resource_fits(pattern: &str, whole: &str) -> bool {
    if pattern == "*" || pattern == whole {
        return true;
    }
    match (pattern.strip_prefix("*/"), whole.split_once('/')) {
        (Some(part), Some((_, asked))) => part == asked,
        _ => false,
    }
}

/// A star at the end stands for any rest.
fn url_fits(pattern: &str, path: &str) -> bool {
    pattern == path || pattern.strip_suffix('*').is_some_and(|prefix| path.starts_with(prefix))
}

/// Whether a subject of a binding is this user. `namespace` is the binding's, empty for a ClusterRoleBinding.
pub(super) fn is_subject(subject: &Value, user: &User, namespace: &str) -> bool {
    let part = |field: &str| subject[field].as_str().unwrap_or_default();
    match part("kind") {
        "User" => user.name == part("name"),
        "Group" => user.is_in(part("name")),
        "ServiceAccount" => {
            let of = if part("namespace").is_empty() { namespace } else { part("namespace") };
            !of.is_empty() && user.name.strip_prefix(ACCOUNT) == Some(&format!("{of}:{}", part("name")))
        }
        _ => false,
    }
}

/// The parts of `wanted`, each as a rule of its own with one of everything, that no rule of `held` covers.
pub(super) fn uncovered(held: &[Value], wanted: &[Value]) -> Vec<Value> {
    wanted.iter().flat_map(parts).filter(|part| !held.iter().any(|rule| covers(rule, part))).collect()
}

/// A rule as rules of one verb and one resource or URL each.
fn parts(rule: &Value) -> Vec<Value> {
    let mut out = Vec::new();
    let names: Vec<&str> = texts(rule, "resourceNames").collect();
    for verb in texts(rule, "verbs") {
        for group in texts(rule, "apiGroups") {
            for resource in texts(rule, "resources") {
                let one = serde_json::json!({"verbs": [verb], "apiGroups": [group], "resources": [resource]});
                if names.is_empty() {
                    out.push(one.clone());
                }
                for name in &names {
                    let mut one = one.clone();
                    one["resourceNames"] = serde_json::json!([name]);
                    out.push(one);
                }
            }
        }
        out.extend(
            texts(rule, "nonResourceURLs").map(|u| serde_json::json!({"verbs": [verb], "nonResourceURLs": [u]})),
        );
    }
    out
}

/// Whether a rule allows all that a part does. A pattern in the part is covered by patterns only.
fn covers(rule: &Value, part: &Value) -> bool {
    let all = |field: &str| texts(part, field).all(|t| has(rule, field, t));
    let names = || {
        let mut own = texts(rule, "resourceNames").peekable();
        let mut asked = texts(part, "resourceNames").peekable();
        own.peek().is_none() || (asked.peek().is_some() && asked.all(|n| texts(rule, "resourceNames").any(|o| o == n)))
    };
    let resources = || texts(part, "resources").all(|asked| texts(rule, "resources").any(|r| resource_fits(r, asked)));
    let urls = || {
        texts(part, "nonResourceURLs")
            .all(|asked| texts(rule, "nonResourceURLs").any(|pattern| url_fits(pattern, asked)))
    };
    // A rule with resources says nothing of URLs, and the other way round: empty lists are covered by anything.
    all("verbs") && all("apiGroups") && resources() && names() && urls()
}
