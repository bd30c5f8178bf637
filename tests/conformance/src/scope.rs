//! Which recordings are outside of what the sandbox's server is, and which differences are known and why.
//! Must not know how answers are compared.

/// Why a case is not replayed at all.
pub(crate) fn outside(topic: &str, case: &str) -> Option<&'static str> {
    match (topic, case) {
        ("auth", _) => Some("the sandbox knows no users: no tokens, no roles, no reviews, no limits by size"),
        ("with-controllers", _) => {
            Some("needs the garbage collector and namespace controller, which are ordinary clients")
        }
        ("wire", "concurrent") => Some("the exchanges of the race are not recorded one by one"),
        _ => None,
    }
}

/// Why one exchange cannot be asked of the core.
pub(crate) fn not_askable(method: &str, headers: &std::collections::BTreeMap<String, String>) -> Option<&'static str> {
    if matches!(method, "HEAD" | "OPTIONS" | "TRACE") {
        return Some("HEAD, OPTIONS and TRACE are answered by the HTTP front");
    }
    if headers.contains_key("accept-encoding") {
        return Some("compression is left to the HTTP front, which sends plain text");
    }
    None
}

/// `managedFields` in a recorded answer.
pub(crate) const MANAGED_FIELDS: &str = "metadata.managedFields is accepted and not kept: nothing here reads it";
/// Protobuf where JSON would also do.
pub(crate) const PROTOBUF: &str = "JSON is answered where protobuf and JSON are both accepted";
/// Raw text of built-in kinds.
pub(crate) const FIELD_ORDER: &str = "below metadata, fields of built-in kinds come in the order of their names";
/// Large documents.
pub(crate) const SIZE_ONLY: &str = "only the size of the recorded answer is known";
