//! Requests and replies of a Kubernetes API server as plain data. The shell sends them over TCP, the simulator hands
//! them to the sandbox's store directly: both speak exactly this.
//! Must not know sockets or clients.

use std::sync::Arc;

/// HTTP method of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Method {
    /// Read: get, list or watch.
    Get,
    /// Create, or a call such as an eviction.
    Post,
    /// Replace.
    Put,
    /// One of the patch types, by content type.
    Patch,
    /// Delete one object or a collection.
    Delete,
}

impl Method {
    /// As it stands in the request line.
    pub fn as_str(self) -> &'static str {
        match self {
            Method::Get => "GET",
            Method::Post => "POST",
            Method::Put => "PUT",
            Method::Patch => "PATCH",
            Method::Delete => "DELETE",
        }
    }

    /// From the request line; `None` for methods that no Kubernetes API uses.
    pub fn parse(text: &str) -> Option<Self> {
        Some(match text {
            "GET" => Method::Get,
            "POST" => Method::Post,
            "PUT" => Method::Put,
            "PATCH" => Method::Patch,
            "DELETE" => Method::Delete,
            _ => return None,
        })
    }
}

/// One request. `target` is path and query, percent-encoded as on the wire.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Request {
    /// What is done.
    pub method: Method,
    /// Path and query: `/api/v1/pods?watch=true&resourceVersion=7`.
    pub target: String,
    /// `Content-Type` of the body; empty where there is none.
    pub content_type: String,
    /// `Accept`; empty means JSON.
    pub accept: String,
    /// `User-Agent`; names the field manager of plain writes. May be empty.
    pub user_agent: String,
    /// Raw body; empty where there is none.
    pub body: Arc<[u8]>,
}

impl Request {
    /// A read.
    pub fn get(target: impl Into<String>) -> Self {
        Self::new(Method::Get, target, "", Arc::from([]))
    }

    /// Any request with a body.
    pub fn new(method: Method, target: impl Into<String>, content_type: &str, body: Arc<[u8]>) -> Self {
        Self {
            method,
            target: target.into(),
            content_type: content_type.to_owned(),
            accept: String::new(),
            user_agent: String::new(),
            body,
        }
    }

    /// Whether the reply is a stream of watch lines.
    pub fn is_watch(&self) -> bool {
        self.target
            .split_once('?')
            .is_some_and(|(_, query)| query.split('&').any(|p| p == "watch=true" || p == "watch=1" || p == "watch"))
    }
}

/// One whole reply.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Reply {
    /// HTTP status code.
    pub status: u16,
    /// Headers besides length and date, in lower case: content-type, warning, retry-after, allow, …
    pub headers: Vec<(String, String)>,
    /// Raw body.
    pub body: Arc<[u8]>,
}

impl Reply {
    /// Whether the request was carried out.
    pub fn is_success(&self) -> bool {
        (200..300).contains(&self.status)
    }
}
