//! Rights are not given by those who do not have them: checks on roles and bindings, and on writes that turn out to create.
//! Must not know how a decision is made.

use serde_json::Value;

use super::attributes::{Attributes, Object, Resource};
use super::authorize::GROUP;
use super::{MASTERS, User, rbac};
use crate::sandbox::apiserver::metadata;
use crate::sandbox::apiserver::server::{ApiServer, Call};
use crate::sandbox::apiserver::status_reply::{Refused, forbidden, not_found};

impl ApiServer {
    /// PUT and apply may make an object that was not there: that needs the right to create it.
    pub(in crate::sandbox::apiserver) fn admit_creation(&self, call: &Call, name: &str) -> Result<(), Refused> {
        let Some(user) = &self.user else { return Ok(()) };
        if call.request.method == crate::api::wire::Method::Post {
            return Ok(());
        }
        self.authorize(user, &on(call, "create", &call.ty().group, &call.ty().plural, name))
    }

    /// A role gives only what its writer has, unless he may `escalate` it; a binding only a role whose rules its writer has,
    /// unless he may `bind` it. `old` is what is stored.
    pub(in crate::sandbox::apiserver) fn admit_grant(
        &self,
        call: &Call,
        object: &Value,
        old: Option<&Value>,
    ) -> Result<(), Refused> {
        let (ty, Some(user)) = (call.ty(), &self.user) else { return Ok(()) };
        if !ty.builtin || ty.group != GROUP || user.is_in(MASTERS) {
            return Ok(());
        }
        let name = metadata::text(object, "name");
        let same = |field: &str| old.is_some_and(|old| old.get(field) == object.get(field));
        let wanted = match ty.plural.as_str() {
            "roles" | "clusterroles" => {
                let aggregated = object.get("aggregationRule").is_some_and(|a| !a.is_null());
                if (same("rules") && same("aggregationRule"))
                    || self.may(user, &on(call, "escalate", GROUP, &ty.plural, name))
                {
                    return Ok(());
                }
                let mut rules = list(object, "rules");
                if aggregated && !same("aggregationRule") {
                    // Whoever lets rules be collected must have all that could be.
                    rules.extend(everything());
                }
                rules
            }
            "rolebindings" | "clusterrolebindings" => {
                let role = &object["roleRef"];
                let role_name = role["name"].as_str().unwrap_or_default();
                let plural = if role["kind"] == "Role" { "roles" } else { "clusterroles" };
                let same = same("roleRef") && same("subjects");
                if same || self.may(user, &on(call, "bind", GROUP, plural, role_name)) {
                    return Ok(());
                }
                let found = self.role(role, &call.place.namespace);
                let missing = |_| {
                    let ty = self.registry.find(GROUP, "v1", plural).expect("roles are built in");
                    not_found(ty, role_name)
                };
                list(&found.map_err(missing)?.value, "rules")
            }
            _ => return Ok(()),
        };
        let (held, missing) = self.rules_of(user, &call.place.namespace);
        let uncovered = rbac::uncovered(&held, &wanted);
        if uncovered.is_empty() {
            return Ok(());
        }
        let groups: Vec<String> = user.groups.iter().map(|g| format!("{g:?}")).collect();
        let lines: Vec<String> = uncovered.iter().map(go_text).collect();
        let mut why = format!(
            "user {:?} (groups=[{}]) is attempting to grant RBAC permissions not currently held:\n{}",
            user.name,
            groups.join(" "),
            lines.join("\n")
        );
        if !missing.is_empty() {
            why = format!("{why}; resolution errors: [{}]", missing.join(", "));
        }
        Err(forbidden(ty, name, &why))
    }

    fn may(&self, user: &User, attributes: &Attributes) -> bool {
        self.decide(user, attributes).allowed
    }
}

/// What is asked beside the request itself, at the same place.
fn on(call: &Call, verb: &str, group: &str, plural: &str, name: &str) -> Attributes {
    let object = Object::Resource(Resource {
        group: group.to_owned(),
        resource: plural.to_owned(),
        subresource: String::new(),
        namespace: call.place.namespace.clone(),
        name: name.to_owned(),
    });
    Attributes { verb: verb.to_owned(), object }
}

fn list(object: &Value, field: &str) -> Vec<Value> {
    object[field].as_array().cloned().unwrap_or_default()
}

fn everything() -> [Value; 2] {
    [
        serde_json::json!({"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}),
        serde_json::json!({"verbs": ["*"], "nonResourceURLs": ["*"]}),
    ]
}

/// A rule as the real server prints it: `{APIGroups:[""], Resources:["pods"], Verbs:["get"]}`.
fn go_text(rule: &Value) -> String {
    let fields = [
        ("apiGroups", "APIGroups"),
        ("resources", "Resources"),
        ("resourceNames", "ResourceNames"),
        ("nonResourceURLs", "NonResourceURLs"),
        ("verbs", "Verbs"),
    ];
    let shown = fields.iter().filter_map(|(field, go)| {
        let texts: Vec<String> = rbac::texts(rule, field).map(|t| format!("{t:?}")).collect();
        (!texts.is_empty()).then(|| format!("{go}:[{}]", texts.join(" ")))
    });
    format!("{{{}}}", shown.collect::<Vec<_>>().join(", "))
}
