//! The way from a cluster's API server into the network of its pods: a proxy that takes HTTP CONNECT on a Unix socket, as
//! API servers use with `--egress-selector-config-file`. Pods' addresses exist nowhere else.
//! Must not know what is said to a pod.

use std::convert::Infallible;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, AsyncWriteExt, BufReader, copy_bidirectional};
use tokio::net::{TcpStream, UnixListener, UnixStream};
use tokio::task::JoinSet;

use crate::api::wire::{Method, Request};
use crate::sandbox::ray::nodes::RealPods;
use crate::sandbox::world::driver::Around;
use crate::sandbox::world::nodes::Nodes;

/// Bytes of the head of a CONNECT.
const HEAD_BYTES_MAX: u64 = 4 << 10;
const OPEN: &[u8] = b"HTTP/1.1 200 Connection established\r\n\r\n";
const NOBODY: &[u8] = b"HTTP/1.1 502 No pod listens there\r\n\r\n";
/// Where an API server looks for the kubelet of a node: logs, exec and port-forward go there.
const KUBELET_PORT: &str = "10250";
/// The sentence reaches whoever asked: API servers quote it.
const NO_KUBELET: &[u8] =
    b"HTTP/1.1 501 these nodes have no kubelet to ask for logs or exec: rayfleet logs reads the log of a job\r\n\r\n";

/// Who is behind the addresses of a cluster's pods.
#[derive(Clone)]
pub(super) enum Behind {
    /// Real processes of the cluster of this name.
    Real(RealPods, Arc<str>),
    /// Simulated heads.
    Simulated(Around),
}

/// Serves until dropped.
pub(super) async fn serve(listener: UnixListener, behind: Behind) {
    let mut open = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => if let Ok((stream, _)) = accepted {
                open.spawn(carry(stream, behind.clone()));
            },
            Some(_) = open.join_next() => {}
        }
    }
}

/// One connection. How it fails, the API server sees.
async fn carry(stream: UnixStream, behind: Behind) -> io::Result<()> {
    let (mut stream, address) = asked_for(stream).await?;
    let Some((ip, port)) = address.rsplit_once(':') else { return stream.write_all(NOBODY).await };
    if port == KUBELET_PORT && ip.parse::<IpAddr>().is_err() {
        return stream.write_all(NO_KUBELET).await;
    }
    match behind {
        Behind::Real(pods, cluster) => {
            let Some(mut pod) = connected(pods.real_address(&cluster, ip, port)).await else {
                return stream.write_all(NOBODY).await;
            };
            stream.write_all(OPEN).await?;
            copy_bidirectional(&mut stream, &mut pod).await.map(drop)
        }
        Behind::Simulated(around) => {
            stream.write_all(OPEN).await?;
            let answer = service_fn(|request| dashboard(&around, ip, request));
            http1::Builder::new().serve_connection(TokioIo::new(stream), answer).await.map_err(io::Error::other)
        }
    }
}

async fn connected(address: Option<SocketAddr>) -> Option<TcpStream> {
    TcpStream::connect(address?).await.ok()
}

/// Reads `CONNECT <address> HTTP/1.1` and its headers, 4 KiB at most; gives the stream, on which the pod's part follows, and
/// the address. What is anything else is an error (`InvalidData`), as is a part of the pod's that did not wait for the answer.
pub async fn asked_for<S: AsyncRead + Unpin>(stream: S) -> io::Result<(S, String)> {
    let wrong = |what| Err(io::Error::new(io::ErrorKind::InvalidData, what));
    let mut reader = BufReader::new(stream).take(HEAD_BYTES_MAX);
    let mut first = String::new();
    reader.read_line(&mut first).await?;
    let words: Vec<&str> = first.trim_end_matches(['\r', '\n']).split(' ').collect();
    let ["CONNECT", address, "HTTP/1.0" | "HTTP/1.1"] = words[..] else { return wrong("no CONNECT") };
    let mut line = String::new();
    while !matches!(line.as_str(), "\r\n" | "\n") {
        line.clear();
        reader.read_line(&mut line).await?;
        if !line.ends_with('\n') {
            return wrong("a head without an end");
        }
    }
    let reader = reader.into_inner();
    if !reader.buffer().is_empty() {
        return wrong("sent before the answer");
    }
    Ok((reader.into_inner(), address.to_owned()))
}

async fn dashboard(
    around: &Around,
    ip: &str,
    request: http::Request<Incoming>,
) -> Result<http::Response<Full<Bytes>>, Infallible> {
    let (parts, body) = request.into_parts();
    let body = body.collect().await.map(http_body_util::Collected::to_bytes).unwrap_or_default();
    let reply = Method::parse(parts.method.as_str()).and_then(|method| {
        let target = parts.uri.path_and_query().map_or("/", http::uri::PathAndQuery::as_str);
        let request = Request::new(method, target, "application/json", Arc::from(&*body));
        around.with(|cores, now| cores.find_mut::<Nodes>()?.dashboard_at(ip, &request, now))
    });
    let mut response = http::Response::new(Full::default());
    let Some(reply) = reply else {
        *response.status_mut() = http::StatusCode::BAD_GATEWAY;
        return Ok(response);
    };
    *response.status_mut() = http::StatusCode::from_u16(reply.status).unwrap_or(http::StatusCode::BAD_GATEWAY);
    for (name, value) in &reply.headers {
        if let (Ok(name), Ok(value)) = (http::HeaderName::try_from(name), http::HeaderValue::try_from(value)) {
            response.headers_mut().append(name, value);
        }
    }
    *response.body_mut() = Full::from(Bytes::copy_from_slice(&reply.body));
    Ok(response)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_head_names_an_address_and_has_an_end_and_nothing_after_it() {
        let read =
            async |head: &str| asked_for(head.as_bytes()).await.map(|(_, address)| address).map_err(|e| e.kind());
        assert_eq!(read("CONNECT 10.0.0.1:8265 HTTP/1.1\r\nHost: a\r\n\r\n").await.as_deref(), Ok("10.0.0.1:8265"));
        assert_eq!(read("CONNECT a HTTP/1.0\n\n").await.as_deref(), Ok("a"));
        for wrong in [
            "GET / HTTP/1.1\r\n\r\n",
            "CONNECT HTTP/1.1\r\n\r\n",
            "CONNECT a aoHTTP/1.1\n\n",
            "CONNECT a HTTP/1.1",
            "CONNECT a HTTP/1.1\r\nHost: a\r\n",
            "CONNECT a HTTP/1.1\r\n\r",
            "CONNECT a HTTP/1.1\r\n\r\nmore",
        ] {
            assert_eq!(read(wrong).await, Err(io::ErrorKind::InvalidData), "{wrong:?}");
        }
    }
}
