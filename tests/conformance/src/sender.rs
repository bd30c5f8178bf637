//! Who sent a recorded request: the people whom the recorded server knew, and the ServiceAccount whose token it issued.
//! Must not know what they may do.

use std::collections::BTreeMap;

use rayfleet::sandbox::apiserver::auth::{Bearer, Credentials, User, Users};
use serde_json::Value;

use crate::recording::Exchange;

/// The issuer of tokens on the recorded server.
const ISSUER: &str = "https://record.local";
/// Of the administrator; no recorded answer shows the real one.
const ADMIN: &str = "admintoken";
/// As a recorded TokenReview asks for it.
const BOB: &str = "bobtoken";

/// Whom the recorded server knew.
pub(crate) fn users() -> Users {
    let bob = User { uid: "3".to_owned(), ..User::new("bob", &["dev-team"]) };
    Users::new(ISSUER).with(ADMIN, User::new("admin", &["system:masters"])).with(BOB, bob)
}

/// What a request says of its sender; the error names one that is not known.
pub(crate) fn credentials(
    exchange: &Exchange,
    headers: &BTreeMap<String, String>,
    issued: Option<&str>,
) -> Result<Credentials, String> {
    let token = match exchange.token().as_str() {
        "" => ADMIN,
        "none" => "",
        "wrong" => "wrong",
        "user bob, group dev-team" => BOB,
        "the token of ServiceAccount default" => issued.ok_or("no token of a ServiceAccount was answered")?,
        other => return Err(format!("nobody knows {other}")),
    };
    let mut credentials = Credentials::from_headers(headers.iter().map(|(n, v)| (n.as_str(), v.as_str())));
    credentials.bearer = if token.is_empty() { Bearer::Nobody } else { Bearer::Token(token.to_owned()) };
    Ok(credentials)
}

/// The token in an answer, if it is one for the server itself.
pub(crate) fn issued(answer: &Value) -> Option<String> {
    let own = answer["kind"] == "TokenRequest" && answer["spec"]["audiences"][0] == ISSUER;
    answer["status"]["token"].as_str().filter(|_| own).map(str::to_owned)
}
