//! What names on the command line may look like: Kubernetes' rules, checked before anything is asked or written.
//! Must not know what the names are for.

use std::ops::RangeInclusive;

/// Longest value of a label, and what else goes into names of other objects.
const SHORT: RangeInclusive<usize> = 1..=63;
/// Longest DNS name.
const LONG: RangeInclusive<usize> = 1..=253;

const SUBDOMAIN: &str = "lower-case letters, digits, '-' and '.', beginning and ending with a letter or digit, at most";

/// A name of a member or queue: an object's name that also stands in labels.
pub fn object(text: &str) -> Result<String, String> {
    checked(text, is_subdomain(text, &SHORT), &format!("{SUBDOMAIN} 63"))
}

/// A seat's name: it stands in the name of a Lease.
pub(super) fn seat(text: &str) -> Result<String, String> {
    checked(text, is_seat(text), &format!("{SUBDOMAIN} 200"))
}

/// See [`seat`].
pub(super) fn is_seat(text: &str) -> bool {
    is_subdomain(text, &(1..=200))
}

/// A DNS domain.
pub fn domain(text: &str) -> Result<String, String> {
    checked(text, is_subdomain(text, &LONG), &format!("{SUBDOMAIN} 253"))
}

/// A namespace's name.
pub fn namespace(text: &str) -> Result<String, String> {
    let right = "lower-case letters, digits and '-', beginning and ending with a letter or digit, at most 63";
    checked(text, is_subdomain(text, &SHORT) && !text.contains('.'), right)
}

/// An identity that is compared and shown, such as a fleet's: what may be a label's value.
pub fn identity(text: &str) -> Result<String, String> {
    checked(text, is_label_part(text), LABEL_PART)
}

const LABEL_PART: &str = "letters, digits, '-', '_' and '.', beginning and ending with a letter or digit, at most 63";

/// `KEY=VALUE` of a label; the value may be empty, the key may have a DNS name and `/` before it.
pub fn label(text: &str) -> Result<(String, String), String> {
    let Some((key, value)) = text.split_once('=') else { return Err("right is KEY=VALUE".to_owned()) };
    let (domain, name) = key.split_once('/').map_or((None, key), |(domain, name)| (Some(domain), name));
    if !is_label_part(name) || domain.is_some_and(|domain| !is_subdomain(domain, &LONG)) {
        let before = "before it a DNS name and '/' may stand";
        return Err(format!("the key '{key}' is none of a label; right are {LABEL_PART}; {before}"));
    }
    if !value.is_empty() && !is_label_part(value) {
        return Err(format!("'{value}' is no value of a label; right are {LABEL_PART}, or nothing"));
    }
    Ok((key.to_owned(), value.to_owned()))
}

/// A switch of KubeRay's that is on unless it says `false`, in any case.
pub(super) fn is_not_false(text: &str) -> bool {
    !text.eq_ignore_ascii_case("false")
}

fn checked(text: &str, is_right: bool, right: &str) -> Result<String, String> {
    if is_right { Ok(text.to_owned()) } else { Err(format!("right are {right}")) }
}

/// A DNS name in lower case (RFC 1123).
fn is_subdomain(text: &str, length: &RangeInclusive<usize>) -> bool {
    let inner = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
    let is_part =
        |part: &str| !part.is_empty() && part.bytes().all(inner) && !part.starts_with('-') && !part.ends_with('-');
    length.contains(&text.len()) && text.split('.').all(is_part)
}

fn is_label_part(text: &str) -> bool {
    let inner = |b: u8| b.is_ascii_alphanumeric() || b"-_.".contains(&b);
    let ends = |b: Option<u8>| b.is_some_and(|b| b.is_ascii_alphanumeric());
    SHORT.contains(&text.len())
        && text.bytes().all(inner)
        && ends(text.bytes().next())
        && ends(text.bytes().next_back())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_kubernetes_names() {
        for right in ["a", "eu-1", "prod.eu", "0"] {
            assert_eq!(object(right).as_deref(), Ok(right));
        }
        for wrong in ["", "-a", "A", "a_b", "a/b", "a.", "a..b", "a.-b", "Bad Q", "ä", &"a".repeat(64)] {
            let why = object(wrong).unwrap_err();
            assert!(why.contains("right are lower-case letters"), "{wrong}: {why}");
        }
        assert!(namespace("prod.eu").is_err() && namespace("prod-eu").is_ok());
        assert!(domain(&format!("{}.local", "a".repeat(64))).is_ok());
        assert!(seat(&"a".repeat(200)).is_ok() && seat(&"a".repeat(201)).is_err());
    }

    #[test]
    fn an_identity_may_be_a_labels_value() {
        for right in ["fleet", "Fleet_1", "a.b-c"] {
            assert_eq!(identity(right).as_deref(), Ok(right));
        }
        for wrong in ["", "Bad Fleet!", "-a", "a-", &"a".repeat(64)] {
            assert!(identity(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_switch_is_off_only_where_it_says_false() {
        for (text, on) in [("false", false), ("False", false), ("true", true), ("", true), ("no", true), ("0", true)] {
            assert_eq!(is_not_false(text), on, "{text}");
        }
    }

    #[test]
    fn a_label_is_refused_with_what_is_right() {
        let pair = |key: &str, value: &str| Ok((key.to_owned(), value.to_owned()));
        assert_eq!(label("zone=a"), pair("zone", "a"));
        assert_eq!(label("topology.example.com/zone="), pair("topology.example.com/zone", ""));
        assert_eq!(label("zone").unwrap_err(), "right is KEY=VALUE");
        for wrong in ["bad label!=x", "=x", "a/b/c=x", "/b=x", "B/b=", "a=b=c", "a=b c"] {
            let why = label(wrong).unwrap_err();
            assert!(why.contains("right are letters"), "{wrong}: {why}");
        }
    }
}
