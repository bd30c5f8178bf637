//! From a bearer token to the user that it stands for: people by the table, ServiceAccounts by a signature of this server.
//! Must not know what users may do. Says of a token only whether it counts, never why not.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::{AUTHENTICATED, TokenHash, User, Users, rbac, signature, token_hash};
use crate::api::Time;
use crate::sandbox::apiserver::server::ApiServer;
use crate::sandbox::apiserver::store::Entry;

/// How long a ServiceAccount's token that was found good is not looked at again: also when its account is gone meanwhile.
const REMEMBERED: Duration = Duration::from_secs(10);

/// Whose a token is, and for which of the audiences that were asked for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(in crate::sandbox::apiserver) struct Bearing {
    pub(super) user: User,
    pub(super) audiences: Vec<String>,
    /// Until when it is not looked at again.
    until: Time,
}

impl Users {
    /// What this server signs with. It follows from the seed, and from the tokens of the table: who knows the seed alone
    /// cannot sign.
    fn key(&self, seed: u64) -> TokenHash {
        let start = Sha256::new().chain_update(b"tokens of ServiceAccounts").chain_update(seed.to_be_bytes());
        self.by_token.keys().fold(start, Sha256::chain_update).finalize().into()
    }
}

impl ApiServer {
    /// Whose token it is; none for one that does not count for this server.
    pub(super) fn authenticate(&mut self, token: &str, now: Time) -> Option<User> {
        self.bearing(token, &[], now).map(|b| b.user)
    }

    /// The same for other audiences than this server; none are this server.
    pub(super) fn bearing(&mut self, token: &str, audiences: &[String], now: Time) -> Option<Bearing> {
        let users = self.options.auth.clone()?;
        let own = [users.issuer.clone()];
        let asked = if audiences.is_empty() { &own[..] } else { audiences };
        if let Some(user) = users.by_token.get(&token_hash(token)) {
            // Tokens of people are for this server.
            let audiences: Vec<String> = asked.iter().filter(|a| **a == users.issuer).cloned().collect();
            return (!audiences.is_empty()).then(|| Bearing { user: authenticated(user), audiences, until: now });
        }
        let known = token_hash(&json!([token, asked]).to_string());
        self.bearings.retain(|_, b| now < b.until);
        if let Some(found) = self.bearings.get(&known) {
            return Some(found.clone());
        }
        let found = self.of_account(&users, token, asked, now)?;
        self.bearings.insert(known, found.clone());
        Some(found)
    }

    /// A token that this server gave to a ServiceAccount which is still there.
    fn of_account(&self, users: &Users, token: &str, asked: &[String], now: Time) -> Option<Bearing> {
        let claims = signature::verify(&users.key(self.options.uid_seed), token)?;
        let seconds = now.0.div_euclid(1000);
        if claims["exp"].as_i64()? <= seconds || claims["nbf"].as_i64()? > seconds {
            return None;
        }
        let meant: Vec<&str> = rbac::texts(&claims, "aud").collect();
        let audiences: Vec<String> = asked.iter().filter(|a| meant.contains(&a.as_str())).cloned().collect();
        let bound = &claims["kubernetes.io"];
        let (namespace, name) = (bound["namespace"].as_str()?, bound["serviceaccount"]["name"].as_str()?);
        let uid = bound["serviceaccount"]["uid"].as_str()?;
        let account = self.account(namespace, name)?;
        if audiences.is_empty() || account.meta_text("uid") != uid {
            return None;
        }
        let mut user = account_user(namespace, name);
        uid.clone_into(&mut user.uid);
        let id = format!("JTI={}", claims["jti"].as_str()?);
        user.extra.insert("authentication.kubernetes.io/credential-id".to_owned(), vec![id]);
        Some(Bearing { user: authenticated(&user), audiences, until: now + REMEMBERED })
    }

    /// A ServiceAccount in the store.
    pub(super) fn account(&self, namespace: &str, name: &str) -> Option<Arc<Entry>> {
        let ty = self.registry.find("", "v1", "serviceaccounts").expect("service accounts are built in");
        self.store.get(&ty.storage_key, &format!("{namespace}/{name}")).cloned()
    }

    /// A token for a ServiceAccount, good for `seconds` from now, for these audiences.
    pub(super) fn sign_for(&mut self, account: &Entry, audiences: &Value, seconds: i64, now: Time) -> Option<String> {
        let users = self.options.auth.clone()?;
        let (namespace, name) = (account.meta_text("namespace"), account.meta_text("name"));
        let from = now.0.div_euclid(1000);
        let claims = json!({
            "aud": audiences, "exp": from + seconds, "iat": from, "nbf": from, "iss": users.issuer, "jti": self.new_uid(),
            "kubernetes.io": {"namespace": namespace, "serviceaccount": {"name": name, "uid": account.meta_text("uid")}},
            "sub": account_user(namespace, name).name,
        });
        Some(signature::sign(&users.key(self.options.uid_seed), &claims))
    }
}

/// A ServiceAccount as a user, with the groups that follow from its name.
pub(super) fn account_user(namespace: &str, name: &str) -> User {
    let inside = format!("system:serviceaccounts:{namespace}");
    User::new(format!("{}{namespace}:{name}", rbac::ACCOUNT), &["system:serviceaccounts", &inside])
}

/// A user as the server sees one who has said who he is.
fn authenticated(user: &User) -> User {
    let mut user = user.clone();
    if !user.is_in(AUTHENTICATED) {
        user.groups.push(AUTHENTICATED.to_owned());
    }
    user
}
