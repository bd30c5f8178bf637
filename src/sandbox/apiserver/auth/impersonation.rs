//! Asking in the name of somebody else: who may, by the narrow verbs of KEP 5284 (`impersonate:user-info` together with
//! `impersonate-on:user-info:list`) or by the old verb `impersonate`.
//! Must not know headers. Left out: the narrow verb for the node of one's own pod, whose tokens are not given out here.

use super::attributes::{Attributes, Object, Resource};
use super::credentials::Wanted;
use super::{ANONYMOUS, AUTHENTICATED, MASTERS, UNAUTHENTICATED, User, rbac, token};
use crate::sandbox::apiserver::server::ApiServer;
use crate::sandbox::apiserver::status_reply::Refused;

/// Prefix of the names of nodes.
const NODE: &str = "system:node:";

/// Which verbs are asked for.
#[derive(Clone, Copy)]
enum Mode {
    /// By the kind of the user who is wanted.
    Narrow(&'static str),
    /// `impersonate`, whatever is asked in his name.
    Wide,
}

impl ApiServer {
    /// The user that a request goes on as; 403 in the words of the first check that failed.
    pub(super) fn impersonated(&self, asker: &User, wanted: &Wanted, request: &Attributes) -> Result<User, Refused> {
        let narrow = narrow_mode(wanted).map(|mode| self.impersonated_as(mode, asker, wanted, request));
        match narrow {
            Some(Ok(user)) => Ok(user),
            Some(Err(first)) => self.impersonated_as(Mode::Wide, asker, wanted, request).map_err(|_| first),
            None => self.impersonated_as(Mode::Wide, asker, wanted, request),
        }
    }

    fn impersonated_as(
        &self,
        mode: Mode,
        asker: &User,
        wanted: &Wanted,
        request: &Attributes,
    ) -> Result<User, Refused> {
        let (verb, group) = match mode {
            Mode::Narrow(kind) => {
                self.authorize(asker, &request.with_verb(format!("impersonate-on:{kind}:{}", request.verb)))?;
                (format!("impersonate:{kind}"), "authentication.k8s.io")
            }
            Mode::Wide => ("impersonate".to_owned(), ""),
        };
        let check = |group: &str, resource: &str, part: &str, namespace: &str, name: &str| {
            let object = Object::Resource(Resource {
                group: group.to_owned(),
                resource: resource.to_owned(),
                subresource: part.to_owned(),
                namespace: namespace.to_owned(),
                name: name.to_owned(),
            });
            self.authorize(asker, &Attributes { verb: verb.clone(), object })
        };
        let mut user = wanted.user.clone();
        match (mode, account(&user.name), node(&user.name)) {
            (_, Some((namespace, name)), _) => {
                if user.groups.is_empty() {
                    user.groups = token::account_user(namespace, name).groups;
                }
                check(group, "serviceaccounts", "", namespace, name)?;
            }
            (Mode::Narrow(_), _, Some(name)) => {
                user.groups = vec!["system:nodes".to_owned()];
                check(group, "nodes", "", "", name)?;
            }
            _ => check(group, "users", "", "", &user.name)?,
        }
        if !user.uid.is_empty() {
            check("authentication.k8s.io", "uids", "", "", &user.uid)?;
        }
        for name in &wanted.user.groups {
            check_group(mode, asker, &verb, name)?;
            check(group, "groups", "", "", name)?;
        }
        for (key, values) in &user.extra {
            for value in values {
                check("authentication.k8s.io", "userextras", key, "", value)?;
            }
        }
        let last = if user.name == ANONYMOUS { UNAUTHENTICATED } else { AUTHENTICATED };
        if !user.is_in(last) && !user.is_in(UNAUTHENTICATED) {
            user.groups.push(last.to_owned());
        }
        Ok(user)
    }
}

/// Nobody becomes an administrator by a narrow verb, or is in a group without a name.
fn check_group(mode: Mode, asker: &User, verb: &str, group: &str) -> Result<(), Refused> {
    let why = match (mode, group) {
        (Mode::Narrow(_), "") => "impersonating the empty string group is not allowed",
        (Mode::Narrow(_), MASTERS) => "impersonating the system:masters group is not allowed",
        _ => return Ok(()),
    };
    let resource = Resource {
        group: "authentication.k8s.io".to_owned(),
        resource: "groups".to_owned(),
        name: group.to_owned(),
        ..Resource::default()
    };
    Err(Attributes { verb: verb.to_owned(), object: Object::Resource(resource) }.forbidden(asker, why))
}

/// The narrow verbs that are for such a user. Of ServiceAccounts and nodes only the name may be wanted.
fn narrow_mode(wanted: &Wanted) -> Option<Mode> {
    let user = &wanted.user;
    let only_name = user.uid.is_empty() && user.groups.is_empty() && user.extra.is_empty();
    let kind = match (account(&user.name), node(&user.name)) {
        (Some(_), _) => "serviceaccount",
        (_, Some(_)) => "arbitrary-node",
        _ => return Some(Mode::Narrow("user-info")),
    };
    only_name.then_some(Mode::Narrow(kind))
}

/// Namespace and name of a ServiceAccount.
fn account(user: &str) -> Option<(&str, &str)> {
    let (namespace, name) = user.strip_prefix(rbac::ACCOUNT)?.split_once(':')?;
    (!namespace.is_empty() && !name.is_empty() && !name.contains(':')).then_some((namespace, name))
}

fn node(user: &str) -> Option<&str> {
    user.strip_prefix(NODE).filter(|name| !name.is_empty())
}
