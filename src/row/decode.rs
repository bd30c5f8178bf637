//! From the bytes of one object to its row.
//! Must not know where the bytes come from.

use thiserror::Error;

use super::Row;
use crate::api::Kind;

/// Why an object is not a row. The text is for people; it holds no values of the object.
#[derive(Debug, Error, Clone, PartialEq, Eq)]
#[error("{0}")]
pub struct DecodeError(pub String);

/// Decodes one object of `kind` from its JSON, straight into the row; unknown fields are skipped.
/// Kinds with a body keep the text without `managedFields`.
pub fn decode(kind: Kind, json: &[u8]) -> Result<Row, DecodeError> {
    let _ = json;
    Err(DecodeError(format!("decoding of {kind} is not built yet")))
}
