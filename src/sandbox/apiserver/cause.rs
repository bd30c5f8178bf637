//! What is wrong with a field of an object, in the words of a real server (`metav1.StatusCause`).
//! Must not know which fields objects have.

use serde_json::Value;

/// One mistake.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Cause {
    /// `FieldValueInvalid`, …
    pub reason: &'static str,
    /// `Invalid value: 5: must be …`
    pub message: String,
    /// `spec.ports[0].name`; `<nil>` where there is none.
    pub field: String,
}

impl Cause {
    /// A value that breaks a rule.
    pub fn invalid(field: impl Into<String>, value: &Value, detail: impl AsRef<str>) -> Self {
        Self {
            reason: "FieldValueInvalid",
            message: format!("Invalid value: {}: {}", shown(value), detail.as_ref()),
            field: field.into(),
        }
    }

    /// A value of the wrong type.
    pub fn wrong_type(field: impl Into<String>, found: &str, detail: impl AsRef<str>) -> Self {
        Self {
            reason: "FieldValueTypeInvalid",
            message: format!("Invalid value: {found:?}: {}", detail.as_ref()),
            field: field.into(),
        }
    }

    /// A field that must be there; `detail` may be empty.
    pub fn required(field: impl Into<String>, detail: &str) -> Self {
        let message = if detail.is_empty() { "Required value".to_owned() } else { format!("Required value: {detail}") };
        Self { reason: "FieldValueRequired", message, field: field.into() }
    }

    /// A value outside a list.
    pub fn unsupported(field: impl Into<String>, value: &Value, allowed: &[String]) -> Self {
        let list: Vec<String> = allowed.iter().map(|a| format!("{a:?}")).collect();
        Self {
            reason: "FieldValueNotSupported",
            message: format!("Unsupported value: {}: supported values: {}", shown(value), list.join(", ")),
            field: field.into(),
        }
    }

    /// A value that is there twice.
    pub fn duplicate(field: impl Into<String>, value: &Value) -> Self {
        Self {
            reason: "FieldValueDuplicate",
            message: format!("Duplicate value: {}", shown(value)),
            field: field.into(),
        }
    }

    /// Something that may not be done.
    pub fn forbidden(field: impl Into<String>, detail: impl AsRef<str>) -> Self {
        Self { reason: "FieldValueForbidden", message: format!("Forbidden: {}", detail.as_ref()), field: field.into() }
    }

    /// Text with more than `max` bytes.
    pub fn too_long(field: impl Into<String>, max: u64) -> Self {
        Self {
            reason: "FieldValueTooLong",
            message: format!("Too long: may not be more than {max} bytes"),
            field: field.into(),
        }
    }

    /// A list or map with more than `max` elements.
    pub fn too_many(field: impl Into<String>, found: usize, max: u64) -> Self {
        Self {
            reason: "FieldValueTooMany",
            message: format!("Too many: {found}: must have at most {max} items"),
            field: field.into(),
        }
    }

    /// Whether a server stops here and does not look at rules that stand on a well-formed object.
    pub fn blocks_rules(&self) -> bool {
        matches!(
            self.reason,
            "FieldValueNotSupported"
                | "FieldValueRequired"
                | "FieldValueTooLong"
                | "FieldValueTooMany"
                | "FieldValueTypeInvalid"
        )
    }
}

/// All mistakes as one text: a single one plain, several in brackets, each once.
pub fn summary(causes: &[Cause]) -> String {
    let mut texts: Vec<String> = Vec::new();
    for cause in causes {
        let text = format!("{}: {}", cause.field, cause.message);
        if !texts.contains(&text) {
            texts.push(text);
        }
    }
    if texts.len() == 1 { texts.remove(0) } else { format!("[{}]", texts.join(", ")) }
}

/// A value as the messages show it.
fn shown(value: &Value) -> String {
    match value {
        Value::String(text) => format!("{text:?}"),
        other => other.to_string(),
    }
}
