//! JSON that a server sent, and what to do where it is no UTF-8: JSON is (RFC 8259, 8.1), but a byte that a broken store or
//! proxy put into one object must not take the others along.
//! Must not know what the text is about.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::value::RawValue;

use super::decode::DecodeError;
use super::strict;

/// What stands for a byte that is none of UTF-8: as long, so that all the rest keeps its place.
const REPLACEMENT: u8 = b'?';

/// A text to be read, in which everything that was sent stands at its place.
pub(super) struct Text<'a> {
    /// What is read.
    pub(super) json: Cow<'a, [u8]>,
    /// What was sent, where that is something else.
    sent: Option<&'a [u8]>,
}

/// An object, for the place of its metadata.
#[derive(Deserialize, Default)]
#[serde(default)]
pub(super) struct WithMetadata<'a> {
    #[serde(borrow)]
    pub(super) metadata: Option<&'a RawValue>,
}

impl<'a> Text<'a> {
    /// A text as it was sent.
    pub(super) fn of(json: &'a [u8]) -> Self {
        Self { json: Cow::Borrowed(json), sent: None }
    }

    /// The same, readable as far as UTF-8 goes. Where that is not what is wrong with it, the error is given back.
    pub(super) fn repaired(sent: &'a [u8], error: DecodeError) -> Result<Self, DecodeError> {
        if std::str::from_utf8(sent).is_ok() {
            return Err(error);
        }
        let mut json = Vec::with_capacity(sent.len());
        for chunk in sent.utf8_chunks() {
            json.extend_from_slice(chunk.valid().as_bytes());
            json.resize(json.len() + chunk.invalid().len(), REPLACEMENT);
        }
        Ok(Self { json: Cow::Owned(json), sent: Some(sent) })
    }

    /// Fails where this part of the text is not what was sent. The place is counted from the part's beginning, in bytes.
    pub(super) fn check(&self, part: &str) -> Result<(), DecodeError> {
        let Some(sent) = self.sent else { return Ok(()) };
        let start = part.as_ptr().addr() - self.json.as_ptr().addr();
        match std::str::from_utf8(&sent[start..start + part.len()]) {
            Ok(_) => Ok(()),
            Err(error) => Err(DecodeError(format!("no UTF-8 at byte {} of the object", error.valid_up_to()))),
        }
    }

    /// The same for the metadata of an object, which is a part of the text.
    pub(super) fn check_metadata(&self, object: &str) -> Result<(), DecodeError> {
        if self.sent.is_none() {
            return Ok(());
        }
        let read = strict::from_slice::<WithMetadata<'_>>(object.as_bytes()).ok();
        let metadata = read.and_then(|object| object.metadata);
        metadata
            .map_or_else(|| self.check(object), |metadata| self.check(metadata.get()).or_else(|_| self.check(object)))
    }
}
