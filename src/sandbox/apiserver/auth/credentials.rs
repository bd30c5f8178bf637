//! What a request's headers say of its sender: a bearer token, and in whose name he asks.
//! Must not know who that is. What is in a token is never shown.

use std::fmt;

use super::User;
use crate::sandbox::apiserver::route::decoded;

/// On whose behalf a request says it comes.
#[derive(Clone, PartialEq, Eq, Default)]
pub enum Bearer {
    /// It says nothing.
    #[default]
    Nobody,
    /// The bearer of this token.
    Token(String),
    /// Whoever runs the server: already known to be so.
    Server,
}

impl fmt::Debug for Bearer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Nobody => "Nobody",
            Self::Token(_) => "Token(withheld)",
            Self::Server => "Server",
        })
    }
}

/// Somebody in whose name is asked (`Impersonate-User` and what goes with it). Without a name it is a mistake.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Wanted {
    pub user: User,
}

/// Sender of a request.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Credentials {
    /// Who he says he is.
    pub bearer: Bearer,
    pub(super) wanted: Option<Wanted>,
}

impl Credentials {
    /// The bearer of a token.
    pub fn token(token: impl Into<String>) -> Self {
        Self { bearer: Bearer::Token(token.into()), wanted: None }
    }

    /// From the headers of a request, names in any case. Other schemes than `Bearer` and an empty token say nothing.
    pub fn from_headers<'a>(headers: impl Iterator<Item = (&'a str, &'a str)>) -> Self {
        let mut out = Self::default();
        for (name, value) in headers {
            let name = name.to_ascii_lowercase();
            if name == "authorization" {
                out.bearer = bearer(value);
                continue;
            }
            let Some(what) = name.strip_prefix("impersonate-") else { continue };
            let user = &mut out.wanted.get_or_insert_default().user;
            match what {
                "user" => value.clone_into(&mut user.name),
                "uid" => value.clone_into(&mut user.uid),
                "group" => user.groups.push(value.to_owned()),
                _ => {
                    if let Some(key) = what.strip_prefix("extra-") {
                        let key = decoded(key, false).into_owned();
                        user.extra.entry(key).or_default().push(value.to_owned());
                    }
                }
            }
        }
        out.wanted = out.wanted.filter(|w| w.user != User::default());
        out
    }

    /// The same for a request that is known to be of whoever runs the server.
    #[must_use]
    pub fn of_server(mut self) -> Self {
        self.bearer = Bearer::Server;
        self
    }
}

fn bearer(value: &str) -> Bearer {
    match value.trim().split_once(' ') {
        Some((scheme, token)) if scheme.eq_ignore_ascii_case("bearer") && !token.trim().is_empty() => {
            Bearer::Token(token.trim().to_owned())
        }
        _ => Bearer::Nobody,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_bearer_token_says_who_sends() {
        let of = |value: &str| Credentials::from_headers([("Authorization", value)].into_iter()).bearer;
        assert_eq!(of("Bearer t"), Bearer::Token("t".into()));
        assert_eq!(of("bearer  t "), Bearer::Token("t".into()));
        for nothing in ["", "Bearer", "Bearer ", "Basic dDp0", "t"] {
            assert_eq!(of(nothing), Bearer::Nobody, "{nothing:?}");
        }
    }

    #[test]
    fn a_token_is_not_shown() {
        assert!(!format!("{:?}", Credentials::token("secret")).contains("secret"));
    }

    #[test]
    fn headers_say_in_whose_name_is_asked() {
        let headers = [
            ("Impersonate-User", "bob"),
            ("Impersonate-Group", "a"),
            ("impersonate-group", "b"),
            ("Impersonate-Extra-Acme.com%2Fproject", "x"),
            ("Impersonate-Uid", "7"),
        ];
        let user = Credentials::from_headers(headers.into_iter()).wanted.unwrap().user;
        assert_eq!((user.name.as_str(), user.uid.as_str()), ("bob", "7"));
        assert_eq!(user.groups, ["a", "b"]);
        assert_eq!(user.extra["acme.com/project"], ["x"]);
        assert_eq!(Credentials::from_headers([("accept", "a"), ("impersonate-user", "")].into_iter()).wanted, None);
    }
}
