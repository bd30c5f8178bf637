//! Who asks, and whether he may: users by bearer token, roles from the store, as a real server decides with RBAC alone.
//! Off unless `Options::auth` is set; must not know how an operation is carried out.

mod attributes;
mod authorize;
mod credentials;
mod default_roles;
mod escalation;
mod impersonation;
mod rbac;
mod review;
mod signature;
#[cfg(test)]
mod tests;
mod token;
mod token_request;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use sha2::{Digest, Sha256};

pub use credentials::{Bearer, Credentials};
pub(super) use token::Bearing;

use self::attributes::Attributes;
use super::Answer;
use super::server::{ApiServer, in_yaml};
use super::status_reply::{Refusal, Refused, bad_request};
use crate::api::Time;
use crate::api::wire::Request;

/// Who may do everything, whatever roles say.
pub(super) const MASTERS: &str = "system:masters";
/// Group of whoever has said who he is.
const AUTHENTICATED: &str = "system:authenticated";
/// Group of the others.
const UNAUTHENTICATED: &str = "system:unauthenticated";
/// Name of the others.
const ANONYMOUS: &str = "system:anonymous";

/// Somebody who asks.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct User {
    /// `bob`, `system:serviceaccount:ns:name`
    pub name: String,
    /// Tells users of one name apart; may be empty.
    pub uid: String,
    /// In the order in which they were given.
    pub groups: Vec<String>,
    /// What else is known of him, by key.
    pub extra: BTreeMap<String, Vec<String>>,
}

impl User {
    /// A user of these groups.
    pub fn new(name: impl Into<String>, groups: &[&str]) -> Self {
        Self { name: name.into(), groups: groups.iter().map(|g| (*g).to_owned()).collect(), ..Self::default() }
    }

    /// The server itself and those who hold it in their hands.
    fn server() -> Self {
        Self::new("system:apiserver", &[MASTERS, AUTHENTICATED])
    }

    fn anonymous() -> Self {
        Self::new(ANONYMOUS, &[UNAUTHENTICATED])
    }

    fn is_in(&self, group: &str) -> bool {
        self.groups.iter().any(|g| g == group)
    }
}

/// Hash under which a token is known: the token itself is kept nowhere.
pub(super) type TokenHash = [u8; 32];

fn token_hash(token: &str) -> TokenHash {
    Sha256::digest(token.as_bytes()).into()
}

/// Whom a server knows. Tokens are kept as hashes.
#[derive(Clone, PartialEq, Eq)]
pub struct Users {
    issuer: String,
    by_token: BTreeMap<TokenHash, User>,
}

impl fmt::Debug for Users {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> = self.by_token.values().map(|u| u.name.as_str()).collect();
        f.debug_struct("Users").field("issuer", &self.issuer).field("names", &names).finish()
    }
}

impl Users {
    /// Nobody but ServiceAccounts. `issuer` names the server in their tokens, and is the audience of those that are meant
    /// for it. As long as nobody else is known, whoever knows the server's seed could sign such tokens himself.
    pub fn new(issuer: impl Into<String>) -> Self {
        Self { issuer: issuer.into(), by_token: BTreeMap::new() }
    }

    /// Somebody more, by his token. A token that is there already is his from now on.
    #[must_use]
    pub fn with(mut self, token: &str, user: User) -> Self {
        self.by_token.insert(token_hash(token), user);
        self
    }
}

impl ApiServer {
    /// Whether the server asks who asks.
    pub fn authenticates(&self) -> bool {
        self.options.auth.is_some()
    }

    /// Answers one request as `handle` does, if whoever sent it may: 401 for a token that is not known, 403 for what no
    /// role allows. Without `Options::auth` everybody may do everything.
    pub fn serve(&mut self, request: &Request, credentials: &Credentials, now: Time) -> Answer {
        if !self.authenticates() {
            return self.handle(request, now);
        }
        match self.admit(request, credentials, now) {
            Ok(user) => {
                self.user = Some(Arc::new(user));
                let answer = self.handle(request, now);
                self.user = None;
                answer
            }
            Err(refusal) if request.accept.starts_with("application/yaml") => Answer::Reply(in_yaml(refusal.reply())),
            Err(refusal) => Answer::Reply(refusal.reply()),
        }
    }

    fn admit(&mut self, request: &Request, credentials: &Credentials, now: Time) -> Result<User, Refused> {
        let user = match &credentials.bearer {
            Bearer::Server => User::server(),
            Bearer::Nobody => User::anonymous(),
            Bearer::Token(token) => self.authenticate(token, now).ok_or_else(unauthorized)?,
        };
        let attributes = Attributes::of(request);
        let user = match &credentials.wanted {
            None => user,
            Some(wanted) if wanted.user.name.is_empty() => {
                return Err(bad_request(
                    "a UID, groups or extras are to be impersonated without impersonating a user name",
                ));
            }
            Some(wanted) => self.impersonated(&user, wanted, &attributes)?,
        };
        self.authorize(&user, &attributes)?;
        Ok(user)
    }

    /// Who sent the request in work.
    pub(super) fn asker(&self) -> Arc<User> {
        self.user.clone().unwrap_or_else(|| Arc::new(User::server()))
    }
}

fn unauthorized() -> Refused {
    Refusal::new(401, "Unauthorized", "Unauthorized")
}
