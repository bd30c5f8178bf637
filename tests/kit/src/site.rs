//! One simulated cluster: an API server and what surrounds it, acting on each other at virtual times.
//! Must not know replicas.

use std::collections::BTreeMap;
use std::sync::Arc;

use rayfleet::api::wire::{Method, Reply, Request};
use rayfleet::api::{Cluster, Time};
use rayfleet::sandbox::apiserver::{Answer, ApiServer, Line, Options, WatchId};
use rayfleet::sandbox::world::Surrounding;
use rayfleet::sandbox::world::dashboard::Dashboard;
use rayfleet::sandbox::world::nodes::Nodes;
use rayfleet::sandbox::world::surroundings::Surroundings;
use serde_json::Value;

use crate::check::{Recorder, Sight};

/// One cluster of the simulated fleet.
pub struct Site {
    /// Which one.
    pub cluster: Cluster,
    /// Its API server.
    pub server: ApiServer,
    around: Surroundings,
    /// The recorder's watches: path, and the version that each has reached.
    recorded: BTreeMap<WatchId, (&'static str, String)>,
}

/// A server that these definitions were installed on at `now`: sites serve what it does. To be kept: working out a
/// definition takes longer than a short story.
pub fn definitions(crds: &[Value], now: Time) -> ApiServer {
    // Far from the seeds of sites: no object of theirs may get the UID of a definition.
    let options = Options { uid_seed: 0x6465_6669_6e65_7321, field_managers: false, ..Options::default() };
    let mut server = ApiServer::new(options);
    for crd in crds {
        let body: Arc<[u8]> = serde_json::to_vec(crd).expect("JSON values serialise").into();
        let request = Request::new(Method::Post, collection(&server, crd), "application/json", body);
        match server.handle(&request, now) {
            Answer::Reply(reply) if reply.is_success() => {}
            other => panic!("a definition was refused: {crd}: {other:?}"),
        }
    }
    server
}

/// A line of a watch that belongs to somebody outside the site.
pub type Outside = (WatchId, Line);

impl Site {
    /// A cluster that serves what these definitions make known ([`definitions`]), with these objects, surrounded by these
    /// cores. The recorder watches from the start.
    pub fn new(
        cluster: Cluster,
        seed: u64,
        definitions: &ApiServer,
        objects: &[Value],
        cores: Vec<Box<dyn Surrounding>>,
        now: Time,
    ) -> Self {
        // A short memory: watchers that were away for long meet 410, and the fleet stays small.
        let options = Options {
            name: cluster.to_string(),
            uid_seed: seed,
            window: 500,
            field_managers: false,
            ..Options::default()
        };
        let server = ApiServer::with_definitions_of(options, definitions);
        let mut site = Self { cluster, server, around: Surroundings::new(cores, now), recorded: BTreeMap::new() };
        for object in objects {
            site.create(object, now);
        }
        let watched: &[&'static str] = match site.cluster {
            Cluster::Hub => &["/apis/ray.io/v1/rayjobs", "/apis/rayfleet.io/v1alpha1/placements"],
            Cluster::Member(_) => &["/apis/ray.io/v1/rayjobs", "/apis/ray.io/v1/rayclusters", "/api/v1/pods"],
        };
        for path in watched {
            site.watch(path, "0".to_owned(), now);
        }
        site
    }

    /// The recorder looks on from a version, so that it misses nothing when the server ends a watch.
    fn watch(&mut self, path: &'static str, version: String, now: Time) {
        let request = Request::get(format!("{path}?watch=true&allowWatchBookmarks=true&resourceVersion={version}"));
        let answer = self.server.handle(&request, now);
        let Answer::Watch(id) = answer else { panic!("the recorder cannot watch {path}: {answer:?}") };
        self.recorded.insert(id, (path, version));
    }

    /// Creates an object from outside, as a person does; it must be accepted.
    pub fn create(&mut self, object: &Value, now: Time) {
        let reply = self.request(Method::Post, &collection(&self.server, object), Some(object), now);
        assert!(reply.is_success(), "{} refused {object}: {}", self.cluster, String::from_utf8_lossy(&reply.body));
    }

    /// Any whole request from outside.
    pub fn request(&mut self, method: Method, target: &str, body: Option<&Value>, now: Time) -> Reply {
        let body = body.map_or_else(Vec::new, |b| serde_json::to_vec(b).expect("JSON values serialise"));
        let content_type = if method == Method::Patch { "application/merge-patch+json" } else { "application/json" };
        match self.server.handle(&Request::new(method, target, content_type, body.into()), now) {
            Answer::Reply(reply) => reply,
            other => panic!("{target} is no plain request: {other:?}"),
        }
    }

    /// The object at a path.
    pub fn get(&self, path: &str) -> Option<&Value> {
        self.server.get(path)
    }

    /// Every object that is stored.
    pub fn objects(&self) -> impl Iterator<Item = &Value> {
        self.server.objects()
    }

    /// Hands a request of a replica in; proxied calls are answered by what is behind the Service.
    pub fn handle(&mut self, request: &Request, now: Time) -> Answer {
        match self.server.handle(request, now) {
            Answer::Proxy(call) => Answer::Reply(self.around.proxy(&call, now).unwrap_or_else(|| Reply {
                status: 503,
                headers: Vec::new(),
                body: br#"{"kind":"Status","status":"Failure","message":"no endpoints available for service","code":503}"#
                    .as_slice()
                    .into(),
            })),
            other => other,
        }
    }

    /// Lets server and surroundings act until nothing is due at `now`. Returns lines of watches from outside.
    pub fn settle(&mut self, recorder: &mut Recorder, now: Time) -> Vec<Outside> {
        let mut outside = Vec::new();
        if self.server.next_tick().is_some_and(|at| at <= now) {
            self.server.tick(now);
        }
        // Bounded: a core that asks for ever at one instant is a fault of that core.
        for _ in 0..10_000 {
            let lines = self.server.take_lines();
            let quiet = lines.is_empty();
            for (watch, line) in lines {
                if self.around.owns(watch) {
                    self.around.line(watch, &line, now);
                } else if let Some(seen) = self.recorded.get_mut(&watch) {
                    match record(&self.cluster, recorder, &line) {
                        Some(version) => seen.1 = version,
                        None => {
                            if let Some((path, version)) = self.recorded.remove(&watch) {
                                self.watch(path, version, now);
                            }
                        }
                    }
                } else {
                    outside.push((watch, line));
                }
            }
            let due = self.around.next_at().is_some_and(|at| at <= now);
            if !due {
                if quiet {
                    return outside;
                }
                continue;
            }
            for sent in self.around.due(now) {
                let answer = self.server.handle(&sent.request, now);
                self.around.answered(sent.id, &answer, now);
            }
        }
        panic!("the surroundings of {} never come to rest at {now:?}", self.cluster);
    }

    /// When something is due here next.
    pub fn next_at(&self) -> Option<Time> {
        [self.server.next_tick(), self.around.next_at()].into_iter().flatten().min()
    }

    /// The core of a type among those around the server, to read what only it knows.
    pub fn core<T: Surrounding>(&self) -> Option<&T> {
        self.around.find()
    }

    /// The same, to tell it something.
    pub fn core_mut<T: Surrounding>(&mut self) -> Option<&mut T> {
        self.around.find_mut()
    }

    /// The Ray dashboards of this cluster.
    pub fn dashboard(&self) -> Option<&Dashboard> {
        self.core::<Nodes>().and_then(Nodes::dashboard)
    }
}

/// Lets the recorder see one line; gives the version that it carries, or `None` where the stream has ended.
fn record(cluster: &Cluster, recorder: &mut Recorder, line: &Line) -> Option<String> {
    let Line::Event(event) = line else { return None };
    let (kind_of_event, object) = (event.kind(), event.object());
    if kind_of_event != "BOOKMARK" {
        let cluster = cluster.to_string();
        recorder.see(&Sight { cluster: &cluster, kind_of_event, object });
    }
    Some(object["metadata"]["resourceVersion"].as_str().unwrap_or_default().to_owned())
}

/// Path of the collection that an object belongs to; its kind must be served.
pub fn collection(server: &ApiServer, object: &Value) -> String {
    let api_version = object["apiVersion"].as_str().unwrap_or_default();
    let kind = object["kind"].as_str().unwrap_or_default();
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    let found = server.registry().find_kind(api_version, kind);
    let found = found.unwrap_or_else(|| panic!("no such kind on {}: {api_version} {kind}", server.name()));
    let base = if group.is_empty() { format!("/api/{version}") } else { format!("/apis/{group}/{version}") };
    match object["metadata"]["namespace"].as_str() {
        Some(namespace) if found.namespaced => format!("{base}/namespaces/{namespace}/{}", found.plural),
        _ => format!("{base}/{}", found.plural),
    }
}

#[cfg(test)]
mod tests {
    use rayfleet::api::crds;

    use super::*;
    use crate::fleet;
    use crate::world::BEGIN;

    #[test]
    fn a_site_serves_and_stores_the_definitions_that_it_was_made_from() {
        let installed = definitions(&crds::hub(), BEGIN);
        let mut site = fleet::hub(7, &[], BEGIN);
        assert_eq!(site.server.registry(), installed.registry());
        let path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
        let reply = site.request(Method::Get, path, None, BEGIN);
        let list: Value = serde_json::from_slice(&reply.body).unwrap();
        assert_eq!(list["items"].as_array().map(Vec::len), Some(crds::hub().len()));
        for item in list["items"].as_array().unwrap() {
            let name = item["metadata"]["name"].as_str().unwrap();
            assert_eq!(site.get(&format!("{path}/{name}")), installed.get(&format!("{path}/{name}")));
        }
        // What is written from now on is newer than all of it, and bears no UID of it.
        let job = serde_json::json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": "later" } });
        site.create(&job, BEGIN);
        assert!(site.server.version() > installed.version());
        let uids: Vec<&Value> = site.objects().map(|object| &object["metadata"]["uid"]).collect();
        let different: std::collections::BTreeSet<String> = uids.iter().map(ToString::to_string).collect();
        assert_eq!(different.len(), uids.len());
    }
}
