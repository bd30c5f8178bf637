//! Which differences from the recordings are known and why, which exchanges cannot be asked, and when controllers had time.
//! Must not know how answers are compared.

/// Recorded with garbage collector and namespace controller beside the server.
pub(crate) const WITH_CONTROLLERS: &str = "with-controllers";

/// Whether the recorder gave the controllers time before this exchange: its answer shows what they did.
pub(crate) fn waited(topic: &str, case: &str, number: usize) -> bool {
    topic == WITH_CONTROLLERS
        && matches!(
            (case, number),
            ("propagation-background" | "propagation-foreground" | "propagation-orphan", 7)
                | ("finalizer-dependant", 4 | 7)
                | ("absent-owner" | "pods-of-owner", 4)
                | ("namespace-delete", 1 | 10)
        )
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

pub(crate) const GROUPS: &str = "discovery and OpenAPI show what the sandbox has, which is less";
pub(crate) const GO: &str = "the text shows insides of the real server's program";

/// Whether a difference at one exchange is known, and why it is there.
pub(crate) fn known(topic: &str, case: &str, number: usize) -> Option<&'static str> {
    Some(match (topic, case, number) {
        ("crud", "generate-name", 5) => "a random suffix was recorded as it was",
        ("crud", "type-meta-errors", 2) => "which of two mistakes of a foreign body is named first",
        ("crud", "field-validation", 15..=18) => "the recording keeps the body without its duplicate field",
        ("crud", "field-validation-update", 9) => "the quoted object has its fields in the order of Go's structs",
        ("patch", "patch-rv-in-body", 26) => "it names a version that no recorded answer showed",
        ("watch", "errors-cr", 10) => "how far back the history reaches: here to the first write",
        ("defaults", "pod-subresources", 25 | 26) => {
            "nothing in the sandbox starts a container in a running pod or changes its size: it is refused"
        }
        ("defaults", "job", 4) => GO,
        ("defaults", "node-namespace", 8) => "the version of a namespace that the server made itself",
        ("with-controllers", "propagation-background" | "propagation-foreground" | "propagation-orphan", 5)
        | (_, "propagation-orphan", 8 | 9) => "the collector's workers write in no fixed order",
        ("crd", "lifecycle", 6) => "a new type is served at once, not after a while of 429",
        ("discovery", "version-health", 0)
        | ("wire", "raw-text", 9)
        | ("auth", "tokens", 2)
        | ("auth", "forbidden", 12) => {
            "the version says what the server is, and the recorded one carries a build's placeholder"
        }
        ("discovery", "version-health", 11 | 14) => "it has no metrics of its own, and no keys that others could check",
        ("discovery", "openapi", 1 | 6) => "documents of OpenAPI are not written as protobuf",
        ("discovery", _, _) => GROUPS,
        ("wire", "numbers", 4 | 9) => "numbers beyond 64 bits are written and refused in other words",
        _ => return None,
    })
}

/// Protobuf where JSON would also do.
pub(crate) const PROTOBUF: &str = "JSON is answered where protobuf and JSON are both accepted";
/// Raw text of built-in kinds.
pub(crate) const FIELD_ORDER: &str = "below metadata, fields of built-in kinds come in the order of their names";
/// Large documents.
pub(crate) const SIZE_ONLY: &str = "only the size of the recorded answer is known";
/// Columns of tables.
pub(crate) const DESCRIPTIONS: &str = "columns of tables come without the long descriptions of the Go types";
