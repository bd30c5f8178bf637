//! Requests to the sandbox: its API server, the dashboards of its simulated heads, the way to its pods. Anybody on the
//! machine may send them. Every request is answered, with a status and a body that is what it says, and what is stored
//! stays whole.

use std::sync::Arc;

use rayfleet::api::wire::{Method, Request};
use rayfleet::api::{Time, crds};
use rayfleet::sandbox::apiserver::{Answer, ApiServer, Options};
use rayfleet::sandbox::attached::tunnel::asked_for;
use rayfleet::sandbox::world::dashboard::Dashboard;
use serde_json::{Value, json};
use tokio::runtime::Builder;

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

/// What is asked of a head's dashboard: a line with method and path, then the body.
pub(super) fn dashboard_calls(_: &Corpus) -> Vec<Sample> {
    let submit = json!({"entrypoint": "sleep 5; exit 3", "submission_id": "train-1", "metadata": {"a": "b"},
                        "runtime_env": {"pip": ["a"]}, "entrypoint_num_cpus": 1.5});
    let calls = [
        format!("POST /api/jobs/\n{submit}"),
        "GET /api/jobs/train-1\n".to_owned(),
        "GET /api/jobs/train-1/logs?x=%41\n".to_owned(),
        "POST /api/jobs/train-1/stop\n".to_owned(),
        "DELETE /api/jobs/train-1\n".to_owned(),
        "GET /api/version\n".to_owned(),
    ];
    calls.into_iter().map(|call| Sample::Text(call.into_bytes())).collect()
}

/// Each call is answered, and all jobs are listed after it.
pub(super) fn check_dashboard_calls() -> Check {
    let (mut dashboard, mut asked) = (Dashboard::default(), 0);
    Box::new(move |input| {
        asked += 1;
        if asked % REQUESTS_MAX == 1 {
            dashboard = Dashboard::default();
            dashboard.head_up("head");
        }
        let now = Time(1_800_000_000_000 + i64::from(asked));
        let end = input.iter().position(|byte| *byte == b'\n').unwrap_or(0);
        let (first, body) = (String::from_utf8_lossy(&input[..end]), &input[end..]);
        let (word, path) = first.split_once(' ').unwrap_or(("POST", "/api/jobs/"));
        let method = Method::parse(word).unwrap_or(Method::Post);
        for (method, path, body) in [(method, path, body), (Method::Get, "/api/jobs/", &[][..])] {
            let reply = dashboard.answer("head", method, path, body, now).ok_or("a head without an answer")?;
            if !(200..600).contains(&reply.status) {
                return Err(format!("an answer with status {}", reply.status));
            }
            let json = reply.headers.iter().any(|(name, value)| name == "content-type" && value.contains("json"));
            if json {
                serde_json::from_slice::<Value>(&reply.body).map_err(|e| format!("its JSON is none: {e}"))?;
            }
        }
        Ok(())
    })
}

pub(super) fn tunnel_heads(_: &Corpus) -> Vec<Sample> {
    let heads = [
        "CONNECT 10.0.0.1:8265 HTTP/1.1\r\nHost: 10.0.0.1:8265\r\nUser-Agent: kube-apiserver\r\n\r\n",
        "CONNECT node-1:10250 HTTP/1.1\r\n\r\n",
        "CONNECT a HTTP/1.1\n\n",
        "GET / HTTP/1.1\r\n\r\n",
    ];
    heads.iter().map(|head| Sample::Text(head.as_bytes().to_vec())).collect()
}

/// An address is one word of the first line, and the whole head was there.
pub(super) fn check_tunnel_heads() -> Check {
    let runtime = Builder::new_current_thread().build();
    Box::new(move |input| {
        let runtime = runtime.as_ref().map_err(|e| format!("no runtime: {e}"))?;
        let Ok((_, address)) = runtime.block_on(asked_for(input)) else { return Ok(()) };
        let first = input.split(|byte| *byte == b'\n').next().unwrap_or_default();
        let named = address.is_empty() || first.windows(address.len()).any(|part| part == address.as_bytes());
        if named && input.ends_with(b"\n") { Ok(()) } else { Err(format!("{address:?} is asked for")) }
    })
}
