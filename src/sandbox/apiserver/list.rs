//! Lists: selectors, pages, and the version at which a list is read.
//! Must not know how single objects are written.

use std::borrow::Cow;
use std::sync::Arc;

use data_encoding::{BASE64URL_NOPAD, DecodeKind};
use serde_json::{Value, json};

use super::cause::Cause;
use super::registry::ResourceType;
use super::route::View;
use super::selector::{FieldSelector, LabelSelector};
use super::server::{ApiServer, Call, Outcome};
use super::status_reply::{Refusal, Refused, bad_request, expired, invalid_options};
use super::store::Entry;
use crate::api::wire::Reply;

/// Which objects of a collection are meant.
#[derive(Clone, Debug, Default)]
pub(super) struct Selectors {
    pub labels: LabelSelector,
    pub fields: FieldSelector,
}

impl Selectors {
    pub(super) fn parse(call: &Call) -> Result<Self, Refused> {
        let labels = LabelSelector::parse(call.query.get("labelSelector").unwrap_or_default()).map_err(bad_request)?;
        let fields = FieldSelector::parse(call.query.get("fieldSelector").unwrap_or_default(), call.ty())
            .map_err(bad_request)?;
        Ok(Self { labels, fields })
    }

    pub(super) fn is_empty(&self) -> bool {
        self.labels.is_empty() && self.fields.is_empty()
    }

    pub(super) fn matches(&self, object: &Value) -> bool {
        self.labels.matches(object) && self.fields.matches(object)
    }
}

/// Objects with their keys, in the order of lists.
pub(super) type Items = Vec<(Arc<str>, Arc<Entry>)>;

/// One page, and what its metadata says.
struct Page {
    items: Items,
    version: u64,
    next: Option<String>,
    remaining: Option<usize>,
}

const TOO_OLD_TO_CONTINUE: &str = "The provided continue parameter is too old to display a consistent list result. You \
     can start a new list without the continue parameter, or use the continue token in this response to retrieve the \
     remainder of the results. Continuing with the provided token results in an inconsistent list - objects that were \
     created, modified, or deleted between the time the first chunk was returned and now may show up in the list.";

impl ApiServer {
    /// GET of a collection.
    pub(super) fn list(&mut self, call: &Call) -> Result<Outcome, Refused> {
        if call.form.view == View::Metadata {
            let ty = call.ty();
            let list =
                if ty.builtin { format!("core.{}", ty.list_kind) } else { "unstructured.UnstructuredList".to_owned() };
            return Err(Refusal::new(
                406,
                "NotAcceptable",
                format!("you requested PartialObjectMetadata, but the requested object is a list (*{list})"),
            ));
        }
        super::watch::check_include(call)?;
        let page = self.page(call)?;
        Ok(Outcome::Reply(self.list_reply(call, &page)))
    }

    /// The objects that a deletion of a collection means, and its answer.
    pub(super) fn chosen(&mut self, call: &Call) -> Result<(Items, Outcome), Refused> {
        let page = self.page(call)?;
        let reply = self.list_reply(call, &page);
        Ok((page.items, Outcome::Reply(reply)))
    }

    fn page(&self, call: &Call) -> Result<Page, Refused> {
        let query = call.query;
        let limit = query.number("limit")?.filter(|l| *l > 0).map(i64::unsigned_abs);
        check_options(call)?;
        let selectors = Selectors::parse(call)?;
        let asked = query.text("resourceVersion");
        let newest = self.store.version();
        let limit = if asked == Some("0") { None } else { limit };
        if let Some(token) = query.text("continue") {
            if asked.is_some_and(|v| v != "0") {
                return Err(bad_request("specifying resource version is not allowed when using continue"));
            }
            let (version, after) = continued(token)?;
            let after = call.place.prefix() + &after;
            return match version {
                Some(version) => self.cut(call, &selectors, &after, version, limit, true),
                None => self.cut(call, &selectors, &after, newest, limit, true),
            };
        }
        self.check_not_too_new(asked)?;
        let exact = query.get("resourceVersionMatch") == Some("Exact")
            || (query.text("resourceVersionMatch").is_none() && limit.is_some());
        let version = match asked.and_then(|v| v.parse::<u64>().ok()) {
            Some(version) if version > 0 && exact => version,
            _ => newest,
        };
        self.cut(call, &selectors, &call.place.prefix(), version, limit, false)
    }

    /// A page of the collection as it was at `version`.
    fn cut(
        &self,
        call: &Call,
        selectors: &Selectors,
        after: &str,
        version: u64,
        limit: Option<u64>,
        continued: bool,
    ) -> Result<Page, Refused> {
        let prefix = call.place.prefix();
        let collection = self.store.collection(&call.ty().storage_key);
        let mut items: Vec<(Arc<str>, Arc<Entry>)> = if version >= collection.last {
            let only = selectors.fields.exact_name().filter(|_| !prefix.is_empty() || !call.ty().namespaced);
            match only.map(|name| format!("{prefix}{name}")) {
                Some(key) if *key > *after => {
                    collection.objects.get_key_value(&*key).map(|(k, e)| (k.clone(), e.clone())).into_iter().collect()
                }
                Some(_) => Vec::new(),
                None => collection.range(&prefix, after).map(|(k, e)| (k.clone(), e.clone())).collect(),
            }
        } else {
            match collection.range_at(&prefix, after, version) {
                Some(items) => items,
                None if continued => return Err(too_old_to_continue(after.strip_prefix(&*prefix).unwrap_or(after))),
                None => return Err(expired("The resourceVersion for the provided list is too old.")),
            }
        };
        if !selectors.is_empty() {
            items.retain(|(_, e)| selectors.matches(&e.value));
        }
        let mut page = Page { items, version, next: None, remaining: None };
        let limit = limit.and_then(|l| usize::try_from(l).ok()).unwrap_or(usize::MAX);
        if page.items.len() > limit {
            page.remaining = selectors.is_empty().then(|| page.items.len() - limit);
            page.items.truncate(limit);
            let last = page.items.last().map(|(k, _)| &k[prefix.len()..]).unwrap_or_default();
            page.next = Some(token(Some(version), last));
        }
        Ok(page)
    }

    fn list_reply(&self, call: &Call, page: &Page) -> Reply {
        let ty = call.ty();
        let (kind, api_version) = match call.form.view {
            View::Object => (ty.list_kind.clone(), ty.api_version()),
            View::Table => return self.table_reply(call, page),
            _ => ("PartialObjectMetadataList".to_owned(), "meta.k8s.io/v1".to_owned()),
        };
        let as_builtin = ty.builtin || call.form.view != View::Object;
        let mut body = Vec::with_capacity(128 + page.items.iter().map(|(_, e)| e.text().len() + 1).sum::<usize>());
        let next = page.next.as_deref();
        if as_builtin {
            body.extend(format!("{{\"kind\":\"{kind}\",\"apiVersion\":\"{api_version}\",\"metadata\":").into_bytes());
            body.extend(list_metadata(page.version, next, page.remaining, false));
            body.extend(b",\"items\":[");
        } else {
            body.extend(format!("{{\"apiVersion\":\"{api_version}\",\"items\":[").into_bytes());
        }
        for (i, (_, entry)) in page.items.iter().enumerate() {
            if i > 0 {
                body.push(b',');
            }
            if call.form.view != View::Object {
                body.extend(super::watch::metadata_text(&entry.value));
            } else if ty.storage_api_version == api_version {
                body.extend_from_slice(entry.item_text());
            } else {
                let value = super::watch::in_version(&entry.value, ty);
                body.extend(if ty.builtin { super::text::item(&value) } else { super::text::sorted(&value) });
            }
        }
        if as_builtin {
            body.extend(b"]}\n");
        } else {
            body.extend(format!("],\"kind\":\"{kind}\",\"metadata\":").into_bytes());
            body.extend(list_metadata(page.version, next, page.remaining, true));
            body.extend(b"}\n");
        }
        self.as_asked(call, 200, body)
    }

    fn table_reply(&self, call: &Call, page: &Page) -> Reply {
        let items: Vec<Cow<Value>> =
            page.items.iter().map(|(_, e)| super::watch::in_version(&e.value, call.ty())).collect();
        let items: Vec<&Value> = items.iter().map(|i| &**i).collect();
        let mut meta = json!({"resourceVersion": page.version.to_string()});
        if let Some(next) = &page.next {
            meta["continue"] = next.as_str().into();
        }
        if let Some(remaining) = page.remaining {
            meta["remainingItemCount"] = remaining.into();
        }
        let table = super::watch::table_of(call, &items, meta);
        let mut body = super::text::ordered(&table);
        body.push(b'\n');
        self.as_asked(call, 200, body)
    }

    /// A version that the server has not reached yet cannot be waited for here.
    pub(super) fn check_not_too_new(&self, asked: Option<&str>) -> Result<(), Refused> {
        let Some(text) = asked else { return Ok(()) };
        let Ok(version) = text.parse::<u64>() else {
            return Err(bad_request(format!(
                "invalid resource version: resourceVersion: Invalid value: \"{text}\": strconv.ParseUint: parsing \
                 \"{text}\": invalid syntax"
            )));
        };
        let current = self.store.version();
        if version <= current {
            return Ok(());
        }
        let mut refusal =
            Refusal::new(504, "Timeout", format!("Timeout: Too large resource version: {version}, current: {current}"))
                .with_details(json!({
                    "causes": [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}],
                    "retryAfterSeconds": 1,
                }));
        refusal.headers.push(("retry-after".into(), "1".into()));
        Err(refusal)
    }
}

/// One object was asked for as if it were a list.
pub(super) fn not_a_list(ty: &ResourceType) -> Refused {
    if ty.builtin {
        let what = format!(
            "you requested PartialObjectMetadataList, but the requested object is not a list (*core.{})",
            ty.kind
        );
        Refusal::new(406, "NotAcceptable", what)
    } else {
        super::status_reply::unclassified("content is not a list")
    }
}

/// Custom resources always have `continue`; built-in kinds only where there is more.
fn list_metadata(version: u64, next: Option<&str>, remaining: Option<usize>, custom: bool) -> Vec<u8> {
    let next = match next {
        Some(next) => format!("\"continue\":\"{next}\""),
        None if custom => "\"continue\":\"\"".to_owned(),
        None => String::new(),
    };
    let remaining = remaining.map(|r| format!("\"remainingItemCount\":{r}")).unwrap_or_default();
    let version = format!("\"resourceVersion\":\"{version}\"");
    let parts = if custom { [next, remaining, version] } else { [version, next, remaining] };
    let parts: Vec<String> = parts.into_iter().filter(|p| !p.is_empty()).collect();
    format!("{{{}}}", parts.join(",")).into_bytes()
}

fn check_options(call: &Call) -> Result<(), Refused> {
    const AT: &str = "resourceVersionMatch";
    let query = call.query;
    let version = query.text("resourceVersion");
    let mut causes = Vec::new();
    match query.text(AT) {
        None => {}
        Some(_) if query.text("continue").is_some() => {
            causes.push(Cause::forbidden(AT, "resourceVersionMatch is forbidden when continue is provided"));
        }
        Some(_) if version.is_none() => {
            causes.push(Cause::forbidden(AT, "resourceVersionMatch is forbidden unless resourceVersion is provided"));
        }
        Some("Exact") if version == Some("0") => {
            causes.push(Cause::forbidden(AT, "resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\""));
        }
        Some("Exact" | "NotOlderThan") => {}
        Some(other) => {
            causes.push(Cause::unsupported(AT, &other.into(), &["Exact", "NotOlderThan", ""].map(str::to_owned)));
        }
    }
    if query.get("sendInitialEvents").is_some() {
        causes.push(Cause::forbidden("sendInitialEvents", "sendInitialEvents is forbidden for list"));
    }
    if causes.is_empty() { Ok(()) } else { Err(invalid_options("ListOptions", &causes)) }
}

/// A continue token: the version of the list (none: whatever is newest) and the key after which it goes on.
fn token(version: Option<u64>, after: &str) -> String {
    let version = version.map_or(-1, |v| i64::try_from(v).unwrap_or(i64::MAX));
    let text = json!({"v": "meta.k8s.io/v1", "rv": version, "start": format!("{after}\u{0}")}).to_string();
    BASE64URL_NOPAD.encode(text.as_bytes())
}

fn continued(token: &str) -> Result<(Option<u64>, String), Refused> {
    let bad = |why: &str| bad_request(format!("invalid continue token: continue key is not valid: {why}"));
    let bytes = BASE64URL_NOPAD.decode(token.as_bytes()).map_err(|e| {
        let at = match e.kind {
            DecodeKind::Length => token.len() / 4 * 4,
            _ => e.position,
        };
        bad(&format!("illegal base64 data at input byte {at}"))
    })?;
    let value: Value = serde_json::from_slice(&bytes).map_err(|_| bad(&super::body::go_error(&bytes)))?;
    let start = value["start"].as_str().unwrap_or_default();
    if value["v"] != "meta.k8s.io/v1" || start.is_empty() {
        return Err(bad("server does not recognize this encoded version"));
    }
    let version = match value["rv"].as_i64() {
        Some(version) if version > 0 => Some(version.unsigned_abs()),
        Some(-1) => None,
        _ => return Err(bad("incorrect encoded start resourceVersion (version meta.k8s.io/v1)")),
    };
    Ok((version, start.trim_end_matches('\u{0}').to_owned()))
}

fn too_old_to_continue(after: &str) -> Refused {
    let mut refusal = expired(TOO_OLD_TO_CONTINUE);
    refusal.metadata = json!({"continue": token(None, after)});
    refusal
}
