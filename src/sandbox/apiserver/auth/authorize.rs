//! Decides by the roles and bindings in the store, and collects the rules that a user has.
//! Must not know how a rule is matched.

use std::ops::{Bound, ControlFlow};

use serde_json::Value;

use super::attributes::Attributes;
use super::{MASTERS, User, rbac};
use crate::sandbox::apiserver::server::ApiServer;
use crate::sandbox::apiserver::status_reply::Refused;
use crate::sandbox::apiserver::store::Entry;

/// Group of roles and bindings.
pub(super) const GROUP: &str = "rbac.authorization.k8s.io";

/// What the server thinks of a wish.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Decision {
    pub allowed: bool,
    /// Which binding allows it, or what could not be looked at; may be empty.
    pub reason: String,
}

/// One thing that bindings give a user.
enum Grant<'a> {
    Rule(&'a Value, Source<'a>),
    /// A role that is not there.
    Missing(String),
}

/// A binding, and whom it meant.
#[derive(Clone, Copy)]
struct Source<'a> {
    binding: &'a Entry,
    subject: &'a Value,
}

impl Source<'_> {
    fn text(&self) -> String {
        let part = |value: &Value, field: &str| value[field].as_str().unwrap_or_default().to_owned();
        let (namespace, mut name) = (self.binding.meta_text("namespace"), self.binding.meta_text("name").to_owned());
        let kind = if namespace.is_empty() { "ClusterRoleBinding" } else { "RoleBinding" };
        if !namespace.is_empty() {
            name = format!("{name}/{namespace}");
        }
        let role = &self.binding.value["roleRef"];
        let mut who = part(self.subject, "name");
        if part(self.subject, "kind") == "ServiceAccount" {
            let of = part(self.subject, "namespace");
            who = format!("{who}/{}", if of.is_empty() { namespace } else { &of });
        }
        format!(
            "RBAC: allowed by {kind} {name:?} of {} {:?} to {} {who:?}",
            part(role, "kind"),
            part(role, "name"),
            part(self.subject, "kind"),
        )
    }
}

impl ApiServer {
    /// Whether a user may; 403 if not.
    pub(super) fn authorize(&self, user: &User, attributes: &Attributes) -> Result<(), Refused> {
        let decision = self.decide(user, attributes);
        if decision.allowed { Ok(()) } else { Err(attributes.forbidden(user, &decision.reason)) }
    }

    /// The same, with the reason.
    pub(super) fn decide(&self, user: &User, attributes: &Attributes) -> Decision {
        if user.is_in(MASTERS) {
            return Decision { allowed: true, reason: String::new() };
        }
        let mut missing: Vec<String> = Vec::new();
        let found = self.grants(user, attributes.namespace(), |grant| match grant {
            Grant::Rule(rule, source) if rbac::allows(rule, attributes) => ControlFlow::Break(source.text()),
            Grant::Rule(..) => ControlFlow::Continue(()),
            Grant::Missing(why) => {
                if !missing.contains(&why) {
                    missing.push(why);
                }
                ControlFlow::Continue(())
            }
        });
        match (found, missing.as_slice()) {
            (Some(reason), _) => Decision { allowed: true, reason },
            (None, []) => Decision { allowed: false, reason: String::new() },
            (None, [one]) => Decision { allowed: false, reason: format!("RBAC: {one}") },
            (None, several) => Decision { allowed: false, reason: format!("RBAC: [{}]", several.join(", ")) },
        }
    }

    /// All rules that a user has in a namespace, those of the whole cluster first; and which roles are not there.
    pub(super) fn rules_of(&self, user: &User, namespace: &str) -> (Vec<Value>, Vec<String>) {
        let (mut rules, mut missing) = (Vec::new(), Vec::new());
        self.grants(user, namespace, |grant| {
            match grant {
                Grant::Rule(rule, _) => rules.push(rule.clone()),
                Grant::Missing(why) => missing.push(why),
            }
            ControlFlow::<()>::Continue(())
        });
        (rules, missing)
    }

    /// Goes through what bindings give a user, until somebody has seen enough.
    fn grants<'a, T>(
        &'a self,
        user: &User,
        namespace: &str,
        mut visit: impl FnMut(Grant<'a>) -> ControlFlow<T>,
    ) -> Option<T> {
        // The real server has its bindings in no order of their own; this is that of its recorded answers.
        let of_cluster = self.store.collection(&key("clusterrolebindings")).objects.values().rev();
        let prefix = format!("{namespace}/");
        let inside = self
            .store
            .collection(&key("rolebindings"))
            .objects
            .range::<str, _>((Bound::Included(&*prefix), Bound::Unbounded));
        let inside =
            inside.take_while(|(key, _)| !namespace.is_empty() && key.starts_with(&prefix)).map(|(_, entry)| entry);
        for binding in of_cluster.chain(inside) {
            let of = binding.meta_text("namespace");
            let mut subjects = binding.value["subjects"].as_array().into_iter().flatten();
            let Some(subject) = subjects.find(|s| rbac::is_subject(s, user, of)) else { continue };
            match self.role(&binding.value["roleRef"], of) {
                Err(why) => {
                    if let ControlFlow::Break(out) = visit(Grant::Missing(why)) {
                        return Some(out);
                    }
                }
                Ok(role) => {
                    for rule in role.value["rules"].as_array().into_iter().flatten() {
                        if let ControlFlow::Break(out) = visit(Grant::Rule(rule, Source { binding, subject })) {
                            return Some(out);
                        }
                    }
                }
            }
        }
        None
    }

    /// The role that a binding in `namespace` names; the error says that it is not there.
    pub(super) fn role(&self, named: &Value, namespace: &str) -> Result<&Entry, String> {
        let name = named["name"].as_str().unwrap_or_default();
        let (found, what) = if named["kind"] == "Role" {
            (self.store.get(&key("roles"), &format!("{namespace}/{name}")), "role")
        } else {
            (self.store.get(&key("clusterroles"), name), "clusterrole")
        };
        found.map(|e| &**e).ok_or_else(|| format!("{what}.{GROUP} {name:?} not found"))
    }
}

/// Where objects of a type of the group are kept.
fn key(plural: &str) -> String {
    format!("{GROUP}/{plural}")
}
