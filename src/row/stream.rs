//! From the bytes of a list and of a watch's lines to rows. One object that does not decode never stops the others.
//! Must not know who asked for them.

use std::borrow::Cow;
use std::sync::Arc;

use serde::Deserialize;
use serde_json::value::RawValue;

use super::decode::{DecodeError, decode, known, parse_borrowed};
use super::shapes::{Borrowed, Metadata, or_default};
use super::text::{Text, WithMetadata};
use super::{Quarantined, Row, strict};
use crate::api::{Id, Kind, Uid, Version};

/// One page of a list.
#[derive(Clone, Debug, PartialEq)]
pub struct ListPage {
    /// Objects that decode.
    pub rows: Vec<Row>,
    /// Those that do not: which, as far as it can be read.
    pub quarantined: Vec<(Id, Quarantined)>,
    /// Version of the list.
    pub version: Version,
    /// Where the next page begins; `None` on the last one.
    pub next: Option<String>,
}

/// One line of a watch.
#[derive(Clone, Debug, PartialEq)]
pub enum WatchLine {
    /// A new object.
    Added(Arc<Row>),
    /// A new version of an object.
    Modified(Arc<Row>),
    /// The object is gone.
    Deleted {
        /// Which.
        id: Id,
        /// Which incarnation.
        uid: Uid,
        /// Version of the deletion.
        version: Version,
    },
    /// Everything up to this version was sent.
    Bookmark(Version),
    /// The server ends the watch: HTTP-like code, reason, message.
    Error {
        /// 410 = the version asked for is too old.
        code: u16,
        /// `Expired`, …
        reason: String,
        /// A sentence of the server.
        message: String,
    },
    /// An object that does not decode.
    Quarantined {
        /// Which, as far as it can be read.
        id: Id,
        /// Its version; 0 where that cannot be read either.
        version: Version,
        /// Why, and what is known of it.
        object: Quarantined,
    },
}

#[derive(Deserialize)]
struct WireList<'a> {
    #[serde(default)]
    metadata: WireListMeta,
    #[serde(borrow, default, deserialize_with = "or_default")]
    items: Vec<&'a RawValue>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct WireListMeta {
    #[serde(deserialize_with = "or_default")]
    resource_version: String,
    #[serde(deserialize_with = "or_default")]
    r#continue: String,
}

#[derive(Deserialize)]
struct WireLine<'a> {
    #[serde(borrow, rename = "type")]
    what: Borrowed<'a>,
    #[serde(borrow)]
    object: &'a RawValue,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct WireStatus {
    #[serde(deserialize_with = "or_default")]
    kind: String,
    #[serde(deserialize_with = "or_default")]
    code: u16,
    #[serde(deserialize_with = "or_default")]
    reason: String,
    #[serde(deserialize_with = "or_default")]
    message: String,
}

#[derive(Deserialize)]
struct WireMeta {
    #[serde(default, deserialize_with = "or_default")]
    metadata: Metadata,
}

/// Enough of an object's metadata to say which one it is, even where the rest of them has wrong types.
#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct WireNameMeta<'a> {
    #[serde(borrow)]
    name: Option<&'a RawValue>,
    #[serde(borrow)]
    namespace: Option<&'a RawValue>,
    #[serde(borrow)]
    resource_version: Option<&'a RawValue>,
}

/// Decodes one page of a list of `kind`. Fails only where the list as a whole is none.
pub fn decode_list(kind: Kind, json: &[u8]) -> Result<ListPage, DecodeError> {
    page(kind, &Text::of(json)).or_else(|error| page(kind, &Text::repaired(json, error)?))
}

/// Decodes one line of a watch of `kind`. Fails only where the line as a whole is none.
pub fn decode_line(kind: Kind, json: &[u8]) -> Result<WatchLine, DecodeError> {
    line(kind, &Text::of(json)).or_else(|error| line(kind, &Text::repaired(json, error)?))
}

fn page(kind: Kind, text: &Text<'_>) -> Result<ListPage, DecodeError> {
    let list: WireList<'_> = parse_borrowed(&text.json)?;
    let version = Version::parse(&list.metadata.resource_version)
        .ok_or_else(|| DecodeError(format!("list of {kind}: metadata.resourceVersion is no number")))?;
    let (mut rows, mut quarantined) = (Vec::with_capacity(list.items.len()), Vec::new());
    for item in list.items {
        match text.check(item.get()).and_then(|()| decode(kind, item.get().as_bytes())) {
            Ok(row) => rows.push(row),
            Err(error) => {
                let (id, _) = which(kind, item.get());
                let object = as_far_as_known(&id, item.get(), text, &error);
                quarantined.push((id, object));
            }
        }
    }
    let next = Some(list.metadata.r#continue).filter(|token| !token.is_empty());
    Ok(ListPage { rows, quarantined, version, next })
}

fn line(kind: Kind, text: &Text<'_>) -> Result<WatchLine, DecodeError> {
    let line: WireLine<'_> = parse_borrowed(&text.json)?;
    let object = line.object.get();
    let aside = |error: &DecodeError| {
        let (id, version) = which(kind, object);
        let object = as_far_as_known(&id, object, text, error);
        WatchLine::Quarantined { id, version, object }
    };
    Ok(match &*line.what.0 {
        "ADDED" | "MODIFIED" => match text.check(object).and_then(|()| decode(kind, object.as_bytes())) {
            Ok(row) if line.what.0 == "ADDED" => WatchLine::Added(Arc::new(row)),
            Ok(row) => WatchLine::Modified(Arc::new(row)),
            Err(error) => aside(&error),
        },
        // Of one that is gone, nothing but its metadata matters.
        "DELETED" => match text.check_metadata(object).and_then(|()| parse_borrowed::<WireMeta>(object.as_bytes())) {
            Ok(WireMeta { metadata: m }) if !m.name.is_empty() => match Version::parse(&m.resource_version) {
                Some(version) => WatchLine::Deleted {
                    id: Id { kind, namespace: m.namespace, name: m.name },
                    uid: Uid(m.uid),
                    version,
                },
                None => aside(&DecodeError("metadata.resourceVersion is no number".to_owned())),
            },
            Ok(_) => aside(&DecodeError("metadata.name is missing".to_owned())),
            Err(error) => aside(&error),
        },
        "BOOKMARK" => {
            let (_, version) = which(kind, object);
            if version == Version(0) {
                return Err(DecodeError(format!("bookmark of {kind}: metadata.resourceVersion is no number")));
            }
            WatchLine::Bookmark(version)
        }
        "ERROR" => {
            let status: WireStatus = parse_borrowed(object.as_bytes())?;
            WatchLine::Error { code: status.code, reason: status.reason, message: status.message }
        }
        _ => return Err(DecodeError(format!("watch of {kind}: a line of an unknown type"))),
    })
}

/// Reason and message of a Status object, if the bytes are one.
pub fn decode_status(json: &[u8]) -> Option<(String, String)> {
    let status: WireStatus = strict::from_slice(json).ok()?;
    (status.kind == "Status").then_some((status.reason, status.message))
}

fn as_far_as_known(id: &Id, object: &str, text: &Text<'_>, error: &DecodeError) -> Quarantined {
    let metadata = text.check_metadata(object).ok();
    let known = metadata.and_then(|()| known(id.kind, object.as_bytes())).map(Box::new);
    Quarantined { error: format!("{id}: {error}"), known }
}

/// Identity and version of an object, as far as they can be read.
fn which(kind: Kind, object: &str) -> (Id, Version) {
    fn text(raw: Option<&RawValue>) -> Cow<'_, str> {
        raw.and_then(|raw| serde_json::from_str::<Borrowed<'_>>(raw.get()).ok()).unwrap_or_default().0
    }
    let metadata = strict::from_slice::<WithMetadata<'_>>(object.as_bytes()).unwrap_or_default().metadata;
    let meta = metadata.and_then(|raw| strict::from_slice::<WireNameMeta<'_>>(raw.get().as_bytes()).ok());
    let meta = meta.unwrap_or_default();
    let version = Version::parse(&text(meta.resource_version)).unwrap_or_default();
    (Id::new(kind, &*text(meta.namespace), &*text(meta.name)), version)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_bad_item_does_not_spoil_a_list() {
        let json = br#"{"metadata":{"resourceVersion":"70","continue":"abc"},"items":[
            {"metadata":{"name":"a","namespace":"n","uid":"1","resourceVersion":"7"}},
            {"metadata":{"name":"b","namespace":"n","uid":"2","resourceVersion":"8"},"status":{"active":"many"}}]}"#;
        let page = decode_list(Kind::Job, json).unwrap();
        assert_eq!(page.rows.len(), 1);
        assert_eq!(page.quarantined[0].0, Id::new(Kind::Job, "n", "b"));
        assert_eq!(page.quarantined[0].1.error, "Job n/b: status.active: expected i32");
        assert_eq!((page.version, page.next.as_deref()), (Version(70), Some("abc")));
        let empty = decode_list(Kind::Job, br#"{"metadata":{"resourceVersion":"7"},"items":null}"#).unwrap();
        assert!(empty.rows.is_empty() && empty.next.is_none());
        assert!(decode_list(Kind::Job, br#"{"kind":"Status"}"#).is_err());
        assert!(decode_list(Kind::Job, b"<html>").is_err());
    }

    /// A Pod as the server sends it, with one byte that is no UTF-8 where `\u{1}` stands.
    fn broken(json: &str) -> Vec<u8> {
        json.bytes().map(|byte| if byte == 1 { 0xff } else { byte }).collect()
    }

    #[test]
    fn a_byte_that_is_no_utf8_sets_aside_the_object_that_it_stands_in_and_no_other() {
        let pod = |name: &str, spec: &str| {
            format!(
                r#"{{"metadata":{{"name":"{name}","namespace":"n","uid":"u","resourceVersion":"9"}},"spec":{{"nodeName":"{spec}"}}}}"#
            )
        };
        let list = |items: &[String]| {
            let items = items.join(",");
            broken(&format!(r#"{{"metadata":{{"resourceVersion":"70"}},"items":[{items}]}}"#))
        };
        let (whole, inside, name) = (pod("a", "ü?"), pod("b", "x\u{1}\u{1}é"), pod("c\u{1}", "x"));
        let page = decode_list(Kind::Pod, &list(&[inside.clone(), whole.clone(), name.clone()])).unwrap();
        assert_eq!(page.rows, [decode(Kind::Pod, whole.as_bytes()).unwrap()], "untouched");
        let aside: Vec<_> = page.quarantined.iter().map(|(_, o)| (o.error.as_str(), o.known.is_some())).collect();
        let told = [
            ("Pod n/b: no UTF-8 at byte 94 of the object", true),
            ("Pod n/c?: no UTF-8 at byte 22 of the object", false),
        ];
        assert_eq!(aside, told, "what its metadata say is known where they are sound");
        // In the list's own fields it spoils the list.
        let spoiled = broken("{\"metadata\":{\"resourceVersion\":\"7\u{1}\"},\"items\":[]}");
        assert!(decode_list(Kind::Pod, &spoiled).is_err());

        let line = |what: &str, object: &str| {
            decode_line(Kind::Pod, &broken(&format!(r#"{{"type":"{what}","object":{object}}}"#)))
        };
        let Ok(WatchLine::Quarantined { id, version, object }) = line("MODIFIED", &inside) else {
            panic!("it decodes")
        };
        assert_eq!((id, version, object.known.is_some()), (Id::new(Kind::Pod, "n", "b"), Version(9), true));
        let gone = WatchLine::Deleted { id: Id::new(Kind::Pod, "n", "b"), uid: "u".into(), version: Version(9) };
        assert_eq!(line("DELETED", &inside), Ok(gone), "its spec does not matter any more");
        assert!(matches!(line("DELETED", &name), Ok(WatchLine::Quarantined { .. })));
    }

    #[test]
    fn lines_of_a_watch_are_told_apart() {
        let line = |what: &str, object: &str| {
            decode_line(Kind::Pod, format!(r#"{{"type":"{what}","object":{object}}}"#).as_bytes())
        };
        let pod = r#"{"metadata":{"name":"p","namespace":"n","uid":"u","resourceVersion":"9"}}"#;
        assert!(matches!(line("ADDED", pod), Ok(WatchLine::Added(_))));
        assert!(matches!(line("MODIFIED", pod), Ok(WatchLine::Modified(_))));
        let gone = WatchLine::Deleted { id: Id::new(Kind::Pod, "n", "p"), uid: "u".into(), version: Version(9) };
        assert_eq!(line("DELETED", pod), Ok(gone));
        assert_eq!(line("BOOKMARK", r#"{"metadata":{"resourceVersion":"12"}}"#), Ok(WatchLine::Bookmark(Version(12))));
        let status = r#"{"kind":"Status","code":410,"reason":"Expired","message":"too old"}"#;
        let error = WatchLine::Error { code: 410, reason: "Expired".into(), message: "too old".into() };
        assert_eq!(line("ERROR", status), Ok(error));
        let bad = r#"{"metadata":{"name":"p","namespace":"n","uid":"u","resourceVersion":"10"},"spec":{"nodeName":7}}"#;
        let Ok(WatchLine::Quarantined { id, version, object }) = line("MODIFIED", bad) else { panic!("it decodes") };
        assert_eq!((id, version), (Id::new(Kind::Pod, "n", "p"), Version(10)));
        assert_eq!(object.error, "Pod n/p: spec.nodeName: expected a string");
        let known = object.known.expect("its metadata are sound");
        assert_eq!((known.uid.as_str(), known.facts, known.body), ("u", crate::row::Facts::None, None));
        let worse = r#"{"metadata":{"name":"p","namespace":"n","uid":"u","resourceVersion":"10","labels":7}}"#;
        let unknown = line("MODIFIED", worse);
        assert!(matches!(&unknown, Ok(WatchLine::Quarantined { object, .. }) if object.known.is_none()), "{unknown:?}");
        let list = r#"[{"name":"p","namespace":"n","uid":"u","resourceVersion":"10"}]"#;
        let listed = line("ADDED", list);
        assert!(matches!(&listed, Ok(WatchLine::Quarantined { object, .. }) if object.known.is_none()), "{listed:?}");
        assert!(line("SOMETHING", pod).is_err());
        assert!(decode_line(Kind::Pod, b"{\"type\":\"ADDED\"").is_err());
    }
}
