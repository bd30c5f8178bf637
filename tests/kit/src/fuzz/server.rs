//! Requests to the sandbox's API server: what anybody on the machine may send to it.
//! Every request is answered, with a status and a body that is what it says, and what is stored stays whole.

use std::sync::Arc;

use rayfleet::api::wire::{Method, Request};
use rayfleet::api::{Time, crds};
use rayfleet::sandbox::apiserver::{Answer, ApiServer, Options};
use serde_json::{Value, json};

use super::corpus::{Corpus, Sample};
use super::{Check, Verdict};

/// Requests before the server begins anew: what they leave behind must not slow the later ones.
const REQUESTS_MAX: u32 = 500;

pub(super) fn requests(corpus: &Corpus) -> Vec<Sample> {
    // Recorded namespaces do not exist here.
    let here = |request: &Value| {
        let mut request = request.clone();
        let path = request["path"].as_str().unwrap_or_default();
        let mut parts: Vec<&str> = path.split('/').collect();
        if let Some(at) = parts.iter().position(|part| *part == "namespaces").filter(|at| at + 2 < parts.len()) {
            parts[at + 1] = "default";
        }
        request["path"] = parts.join("/").into();
        if let Some(Value::Object(metadata)) = request.pointer_mut("/body/metadata") {
            metadata.remove("namespace");
        }
        request
    };
    let mut all: Vec<Value> = corpus.requests.iter().map(here).collect();
    for object in crds::hub() {
        let path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
        if object.to_string().len() < 20_000 {
            all.push(json!({"method": "PUT", "path": format!("{path}/x"), "body": object}));
        }
    }
    for kind in ["RayJob", "RayCluster"] {
        for mut object in corpus.of(kind).into_iter().take(10) {
            if let Some(Value::Object(metadata)) = object.pointer_mut("/metadata") {
                metadata.remove("namespace");
            }
            for version in ["v1", crds::OLDER] {
                object["apiVersion"] = json!(format!("ray.io/{version}"));
                let path = format!("/apis/ray.io/{version}/namespaces/default/{}s", kind.to_lowercase());
                all.push(json!({"method": "POST", "path": path, "body": object}));
            }
        }
    }
    all.into_iter().map(Sample::Json).collect()
}

/// With our definitions, and nothing else.
fn fresh() -> ApiServer {
    let mut server = ApiServer::new(Options::default());
    for crd in crds::hub() {
        let body = crd.to_string().into_bytes();
        let path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
        server.handle(&Request::new(Method::Post, path, "application/json", body.into()), Time(0));
    }
    server
}

pub(super) fn check_requests() -> Check {
    let base = fresh();
    let (mut server, mut asked) = (base.clone(), 0);
    Box::new(move |input| {
        asked += 1;
        if asked % REQUESTS_MAX == 0 {
            server = base.clone();
        }
        let now = Time(1_800_000_000_000 + i64::from(asked));
        let request = request(input);
        let verdict = match server.handle(&request, now) {
            Answer::Reply(reply) => {
                let json = reply.headers.iter().any(|(name, value)| name == "content-type" && value.contains("json"));
                match serde_json::from_slice::<Value>(&reply.body) {
                    _ if !(200..600).contains(&reply.status) => Err(format!("an answer with status {}", reply.status)),
                    Err(why) if json && !reply.body.is_empty() => Err(format!("its JSON is none: {why}")),
                    _ => Ok(()),
                }
            }
            _ => Ok(()),
        };
        server.take_lines();
        verdict.and_then(|()| if asked % 50 == 0 { whole(&mut server, now) } else { Ok(()) })
    })
}

/// The request that an input describes; an input that describes none is a body.
fn request(input: &[u8]) -> Request {
    let value: Value = serde_json::from_slice(input).unwrap_or_default();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let method = Method::parse(&text(&value["method"])).unwrap_or(Method::Post);
    let path = value["path"].as_str().unwrap_or("/api/v1/namespaces/default/configmaps");
    let body = match &value["body"] {
        Value::String(body) => body.clone().into_bytes(),
        Value::Null if value.is_null() => input.to_vec(),
        Value::Null => Vec::new(),
        body => body.to_string().into_bytes(),
    };
    let content_type = match text(&value["headers"]["content-type"]) {
        empty if empty.is_empty() => "application/json".to_owned(),
        said => said,
    };
    let mut request = Request::new(method, path, &content_type, Arc::from(body));
    request.accept = text(&value["headers"]["accept"]);
    request
}

/// Everything that is stored can be listed and read, in each version and as a table.
fn whole(server: &mut ApiServer, now: Time) -> Verdict {
    let paths: Vec<String> = server
        .registry()
        .all()
        .filter(|ty| ty.allows("list"))
        .map(|ty| {
            let base =
                if ty.group.is_empty() { "/api/v1".to_owned() } else { format!("/apis/{}/{}", ty.group, ty.version) };
            format!("{base}/{}", ty.plural)
        })
        .collect();
    for path in paths {
        for accept in ["", "application/json;as=Table;v=v1;g=meta.k8s.io"] {
            let mut request = Request::get(&path);
            accept.clone_into(&mut request.accept);
            let Answer::Reply(reply) = server.handle(&request, now) else { return Err(format!("{path} is no list")) };
            if reply.status != 200 {
                return Err(format!(
                    "{path} is answered with {}: {}",
                    reply.status,
                    String::from_utf8_lossy(&reply.body)
                ));
            }
            serde_json::from_slice::<Value>(&reply.body).map_err(|e| format!("{path} is no JSON: {e}"))?;
        }
    }
    Ok(())
}
