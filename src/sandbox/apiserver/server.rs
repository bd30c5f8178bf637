//! The server itself: what it holds, and which operation a request leads to.
//! Must not know how an operation is carried out, nor a clock.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde_json::{Value, json};

use super::auth::{Bearing, TokenHash, User, Users};
use super::registry::{Registry, ResourceType};
use super::route::{self, Form, Place, Query, Target, View};
use super::seeded::Seeded;
use super::status_reply::{
    Refused, bad_request, method_not_allowed, no_such_page, no_such_resource, not_built, not_found, verb_not_supported,
};
use super::store::{Change, Entry, Store};
use super::watch::{Due, Watch};
use super::{Answer, Line, WatchId, discovery, store, text};
use crate::api::Time;
use crate::api::wire::{Method, Reply, Request};

/// Group, version and plural of definitions.
pub(super) const DEFINITIONS: (&str, &str, &str) = ("apiextensions.k8s.io", "v1", "customresourcedefinitions");

/// How a server is made.
#[derive(Clone, Debug)]
pub struct Options {
    /// Name of the cluster, for people.
    pub name: String,
    /// All UIDs, name suffixes and time-outs follow from it.
    pub uid_seed: u64,
    /// resourceVersion before the first write.
    pub first_version: u64,
    /// How often a watch with bookmarks gets one.
    pub bookmark_period_ms: i64,
    /// Past changes that each collection keeps: a watch from before the oldest ends with 410.
    pub window: usize,
    /// Whether `managedFields` are kept. They cost more than all the rest of a write; who applies nothing needs none.
    pub field_managers: bool,
    /// Whom the server knows. Without it whoever asks may do everything, and the server has no roles of its own.
    pub auth: Option<Arc<Users>>,
    /// Whether requests and objects may be too large.
    pub size_limits: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            name: "sandbox".into(),
            uid_seed: 1,
            first_version: 1000,
            bookmark_period_ms: 60_000,
            window: 20_000,
            field_managers: true,
            auth: None,
            size_limits: false,
        }
    }
}

/// A Kubernetes API server: a store, the types that it serves, and its open watches. A clone is a server of its own that
/// goes on from the same state; it shares what does not change.
#[derive(Clone, Debug)]
pub struct ApiServer {
    pub(super) options: Options,
    pub(super) registry: Registry,
    pub(super) store: Store,
    pub(super) random: Seeded,
    pub(super) watches: BTreeMap<WatchId, Watch>,
    /// Watches of one kind of stored object.
    pub(super) watchers: BTreeMap<Arc<str>, BTreeSet<WatchId>>,
    pub(super) due: BTreeSet<(Time, WatchId, Due)>,
    pub(super) lines: Vec<(WatchId, Line)>,
    pub(super) next_watch: u64,
    /// Services that got an address so far.
    pub(super) addresses: u32,
    /// Time of the request in work.
    pub(super) now: Time,
    /// Warnings of the request in work.
    pub(super) warnings: Vec<String>,
    /// Who sent the request in work; none for the server itself.
    pub(super) user: Option<Arc<User>>,
    /// Tokens of ServiceAccounts that were found good a moment ago.
    pub(super) bearings: BTreeMap<TokenHash, Bearing>,
}

/// One request, taken apart.
pub(super) struct Call<'a> {
    pub place: &'a Place,
    pub query: &'a Query<'a>,
    pub request: &'a Request,
    pub form: Form,
    pub now: Time,
    /// `managedFields` that an apply has worked out already; null for none.
    pub applied: Option<Value>,
}

impl Call<'_> {
    pub(super) fn ty(&self) -> &Arc<ResourceType> {
        &self.place.ty
    }

    /// Nothing is stored.
    pub(super) fn dry_run(&self) -> bool {
        self.query.get("dryRun") == Some("All")
    }
}

/// What an operation gives back.
pub(super) enum Outcome {
    /// A stored object.
    Entry(u16, Arc<Entry>),
    /// An object that is not stored in this form.
    Value(u16, Value),
    /// A ready reply.
    Reply(Reply),
    /// Anything else.
    Answer(Answer),
}

impl ApiServer {
    /// A server with the built-in types, the namespaces that every cluster has with their service accounts, and nothing
    /// else.
    pub fn new(options: Options) -> Self {
        let mut server = Self {
            registry: Registry::new(),
            store: Store::new(options.first_version, options.window),
            random: Seeded::new(options.uid_seed),
            watches: BTreeMap::new(),
            watchers: BTreeMap::new(),
            due: BTreeSet::new(),
            lines: Vec::new(),
            next_watch: 1,
            addresses: 0,
            now: Time(0),
            warnings: Vec::new(),
            user: None,
            bearings: BTreeMap::new(),
            options,
        };
        for name in ["default", "kube-node-lease", "kube-public", "kube-system"] {
            server.made("/api/v1/namespaces", "Namespace", name);
            // As in a cluster that has been up for a moment: pods are not admitted without it.
            server.made(&format!("/api/v1/namespaces/{name}/serviceaccounts"), "ServiceAccount", "default");
        }
        if server.authenticates() {
            server.make_default_roles();
        }
        server
    }

    /// A server of its own that serves what the definitions of another one make known; nothing of them is worked out
    /// again. Of the other's objects it has the definitions only, and it goes on from the other's version.
    pub fn with_definitions_of(options: Options, other: &Self) -> Self {
        let mut server = Self::new(options);
        server.registry = other.registry.clone();
        let (group, version, plural) = DEFINITIONS;
        let definitions = server.registry.find(group, version, plural).expect("definitions are built in");
        server.store.take_collection(&other.store, &definitions.storage_key);
        server
    }

    /// Makes an object that every cluster has.
    fn made(&mut self, target: &str, kind: &str, name: &str) {
        let body = json!({"apiVersion": "v1", "kind": kind, "metadata": {"name": name}}).to_string();
        self.handle(&Request::new(Method::Post, target, "application/json", Arc::from(body.into_bytes())), Time(0));
    }

    /// Name of the cluster.
    pub fn name(&self) -> &str {
        &self.options.name
    }

    /// Version of the last write.
    pub fn version(&self) -> u64 {
        self.store.version()
    }

    /// Types that are served.
    pub fn registry(&self) -> &Registry {
        &self.registry
    }

    /// Every stored object, by kind and name. For checkers; requests go through `handle`.
    pub fn objects(&self) -> impl Iterator<Item = &Value> {
        self.store.collections().flat_map(|(_, c)| c.objects.values()).map(|e| &*e.value)
    }

    /// The stored object behind a path such as `/api/v1/namespaces/a/pods/p`. For checkers.
    pub fn get(&self, path: &str) -> Option<&Value> {
        match route::target(&self.registry, path) {
            Ok(Target::Place(place)) => self.store.get(&place.ty.storage_key, &place.key()).map(|e| &*e.value),
            _ => None,
        }
    }

    /// Forgets changes up to a version: watches and continued lists from before are told that it is gone (410).
    pub fn compact(&mut self, version: u64) {
        self.store.compact(version);
    }

    /// Answers one request. Events that it causes come out of `take_lines`.
    pub fn handle(&mut self, request: &Request, now: Time) -> Answer {
        let (path, query) = request.target.split_once('?').unwrap_or((&request.target, ""));
        let query = Query::parse(query);
        self.warnings.clear();
        self.now = now;
        let target = match route::target(&self.registry, path) {
            Ok(target) => target,
            Err(refusal) => return Answer::Reply(refusal.reply()),
        };
        let Target::Place(place) = target else { return self.elsewhere(request, path) };
        let watch = place.watch || (place.name.is_empty() && query.flag("watch").unwrap_or(false));
        let form = match route::form(request, &query, place.ty.builtin, watch && request.method == Method::Get) {
            Ok(form) => form,
            Err(refusal) if request.accept.starts_with("application/yaml") => {
                return Answer::Reply(in_yaml(refusal.reply()));
            }
            Err(refusal) => return Answer::Reply(refusal.reply()),
        };
        let call = Call { place: &place, query: &query, request, form, now, applied: None };
        let outcome = self.operate(&call, watch);
        self.answer(&call, outcome)
    }

    /// Paths that lead to no resource.
    fn elsewhere(&self, request: &Request, path: &str) -> Answer {
        let health = ["/healthz", "/livez", "/readyz"].iter().any(|p| path.starts_with(p));
        let reply = discovery::reply(&self.registry, &request.target, &request.accept);
        Answer::Reply(match reply {
            Some(reply) if request.method == Method::Get || health => reply,
            Some(_) => method_not_allowed().reply(),
            None => no_such_page().reply(),
        })
    }

    fn operate(&mut self, call: &Call, watch: bool) -> Result<Outcome, Refused> {
        if let Some(text) = call.query.text("timeout")
            && !is_duration(text)
        {
            return Err(bad_request(format!(
                "invalid timeout specified in the request URL - time: invalid duration \"{text}\""
            )));
        }
        self.check_body(call.request)?;
        if !call.place.subresource.is_empty() {
            return self.subresource(call);
        }
        if call.place.name.is_empty() {
            return self.collection(call, watch);
        }
        match call.request.method {
            Method::Get if call.query.get("export").is_some() => {
                Err(bad_request("the export parameter, deprecated since v1.14, is no longer supported"))
            }
            Method::Get if call.place.watch => self.open_watch(call),
            Method::Get => self.read(call),
            Method::Put => self.replace(call),
            Method::Patch => self.patch(call),
            Method::Delete => self.delete(call),
            Method::Post if call.ty().builtin => Err(method_not_allowed()),
            Method::Post => self.create(call),
        }
    }

    fn collection(&mut self, call: &Call, watch: bool) -> Result<Outcome, Refused> {
        let ty = call.ty();
        let everywhere = ty.namespaced && call.place.namespace.is_empty();
        match call.request.method {
            Method::Get if !ty.allows("list") => Err(method_not_allowed()),
            Method::Get if watch => self.open_watch(call),
            Method::Get => self.list(call),
            _ if everywhere && ty.builtin => Err(method_not_allowed()),
            _ if everywhere => Err(no_such_page()),
            Method::Post if ty.allows("create") && ty.allows("list") => self.create(call),
            Method::Post if ty.plural == "bindings" && ty.builtin => self.bind(call),
            Method::Post if ty.allows("create") => self.review(call),
            Method::Delete if ty.allows("deletecollection") => self.delete_collection(call),
            Method::Put | Method::Patch if !ty.builtin => Err(bad_request("name must be provided")),
            _ => Err(method_not_allowed()),
        }
    }

    fn subresource(&mut self, call: &Call) -> Result<Outcome, Refused> {
        let (ty, place, method) = (call.ty(), call.place, call.request.method);
        let name = place.subresource.as_str();
        let Some(sub) = ty.subresource(name) else {
            return Err(if ty.builtin { no_such_resource() } else { not_found(ty, &place.name) });
        };
        match (name, method) {
            ("status", Method::Get) => self.read(call),
            ("status" | "finalize", Method::Put) => self.replace(call),
            ("status", Method::Patch) => self.patch(call),
            ("scale", _) => self.scale(call),
            ("binding", Method::Post) => self.bind(call),
            ("eviction", Method::Post) => self.evict(call),
            ("log", Method::Get) => self.log(call),
            ("token", Method::Post) if ty.builtin => self.request_token(call),
            ("proxy", _) => self.proxy(call),
            ("exec" | "attach" | "portforward", _) if ty.builtin => self.reach_into(call),
            ("status", Method::Delete) if !ty.builtin => Err(verb_not_supported(ty, "delete")),
            ("status" | "finalize" | "binding" | "eviction" | "log" | "token", _) => Err(method_not_allowed()),
            _ => Err(not_built(&format!("the subresource {}/{}", ty.plural, sub.name))),
        }
    }

    /// One object, or its status.
    fn read(&self, call: &Call) -> Result<Outcome, Refused> {
        self.check_not_too_new(call.query.text("resourceVersion"))?;
        super::watch::check_include(call)?;
        let place = call.place;
        let entry = self.store.get(&place.ty.storage_key, &place.key());
        entry.cloned().map(|e| Outcome::Entry(200, e)).ok_or_else(|| not_found(&place.ty, &place.name))
    }

    fn answer(&self, call: &Call, outcome: Result<Outcome, Refused>) -> Answer {
        let (status, body) = match outcome.and_then(|o| Self::rendered(call, o)) {
            Ok(Rendered::Answer(answer)) => return answer,
            Ok(Rendered::Body(status, body)) => (status, body),
            Err(mut refusal) => {
                refusal.headers.extend(call.ty().deprecation.iter().chain(&self.warnings).map(|w| warning(w)));
                if !call.form.yaml || refusal.plain.is_some() {
                    return Answer::Reply(refusal.reply());
                }
                return Answer::Reply(in_yaml(refusal.reply()));
            }
        };
        Answer::Reply(self.as_asked(call, status, body))
    }

    /// A body in JSON as a reply in the form that was asked for, with the warnings of the request.
    pub(super) fn as_asked(&self, call: &Call, status: u16, body: impl Into<Arc<[u8]>>) -> Reply {
        let mut headers = vec![("content-type".to_owned(), "application/json".to_owned())];
        headers.extend(call.ty().deprecation.iter().map(|w| warning(w)));
        headers.extend(self.warnings.iter().map(|w| warning(w)));
        let reply = Reply { status, headers, body: body.into() };
        if call.form.yaml {
            in_yaml(reply)
        } else if call.form.pretty {
            Reply { body: text::pretty(&reply.body).into(), ..reply }
        } else {
            reply
        }
    }

    fn rendered(call: &Call, outcome: Outcome) -> Result<Rendered, Refused> {
        let ty = call.ty();
        let (status, value, entry) = match outcome {
            Outcome::Answer(answer) => return Ok(Rendered::Answer(answer)),
            Outcome::Reply(reply) => return Ok(Rendered::Answer(Answer::Reply(reply))),
            Outcome::Entry(status, entry) => (status, None, Some(entry)),
            Outcome::Value(status, value) => (status, Some(value), None),
        };
        let stored = value.as_ref().or(entry.as_ref().map(|e| &*e.value)).expect("one of the two is there");
        let is_object = stored["kind"] == ty.kind.as_str();
        let body = match (call.form.view, &entry) {
            _ if !is_object => text::ordered(stored),
            (View::Object, Some(entry)) if ty.storage_api_version == ty.api_version() => {
                return Ok(Rendered::Body(status, with_line_feed(entry.text())));
            }
            (View::Object, _) => store::written(&super::watch::in_version(stored, ty), ty.builtin),
            (View::MetadataList, _) => return Err(super::list::not_a_list(ty)),
            _ => super::watch::in_view(stored, call),
        };
        Ok(Rendered::Body(status, with_line_feed(&body)))
    }

    /// Tells watchers of a change.
    pub(super) fn publish(&mut self, change: &Arc<Change>, ty: &ResourceType) {
        let Some(ids) = self.watchers.get(&ty.storage_key) else { return };
        for id in ids {
            if let Some(watch) = self.watches.get_mut(id)
                && let Some(event) = watch.event(change, self.now)
            {
                self.lines.push((*id, Line::Event(event)));
            }
        }
    }

    /// Takes the watch lines that have come up since the last call, in their order.
    pub fn take_lines(&mut self) -> Vec<(WatchId, Line)> {
        std::mem::take(&mut self.lines)
    }
}

enum Rendered {
    Body(u16, Arc<[u8]>),
    Answer(Answer),
}

fn with_line_feed(body: &[u8]) -> Arc<[u8]> {
    let mut out = Vec::with_capacity(body.len() + 1);
    out.extend_from_slice(body);
    out.push(b'\n');
    out.into()
}

fn warning(text: &str) -> (String, String) {
    ("warning".into(), format!("299 - \"{}\"", text.replace('\\', "\\\\").replace('"', "\\\"")))
}

pub(super) fn in_yaml(reply: Reply) -> Reply {
    let value: Value = serde_json::from_slice(&reply.body).unwrap_or_default();
    let text = serde_saphyr::to_string(&value).unwrap_or_default();
    let mut headers = reply.headers;
    headers.retain(|(name, _)| name != "content-type");
    headers.insert(0, ("content-type".into(), "application/yaml".into()));
    Reply { status: reply.status, headers, body: Arc::from(text.into_bytes()) }
}

/// Go's notation of durations: `1s`, `1m30s`, `0`.
fn is_duration(text: &str) -> bool {
    let rest = text.trim_start_matches(['-', '+']);
    if rest == "0" {
        return true;
    }
    let mut rest = rest;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
        let unit = ["ns", "us", "µs", "ms", "s", "m", "h"].iter().find(|u| rest[digits..].starts_with(**u));
        match unit {
            Some(unit) if digits > 0 => rest = &rest[digits + unit.len()..],
            _ => return false,
        }
    }
    !text.is_empty()
}
