//! The kubeconfig that people use with the sandbox: one context for each server.
//! Must not know how the servers were started.

use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use serde::Serialize;

/// One server.
#[derive(Clone, PartialEq, Eq)]
pub struct KubeconfigEntry {
    /// Name of context, cluster and user: `hub`.
    pub name: String,
    /// `http://127.0.0.1:<port>`
    pub url: String,
    /// Token. Safe in a path: letters, digits, `-`, `.`, `_`.
    pub token: String,
}

#[derive(Serialize)]
struct Kubeconfig<'a> {
    #[serde(rename = "apiVersion")]
    api_version: &'a str,
    kind: &'a str,
    #[serde(rename = "current-context")]
    current_context: &'a str,
    clusters: Vec<Named<'a, ClusterPart>>,
    contexts: Vec<Named<'a, ContextPart<'a>>>,
    users: Vec<Named<'a, UserPart<'a>>>,
}

/// Each part stands under a field of its own name.
#[derive(Serialize)]
struct Named<'a, T> {
    name: &'a str,
    #[serde(flatten)]
    part: T,
}

#[derive(Serialize)]
struct ClusterPart {
    cluster: Server,
}

#[derive(Serialize)]
struct Server {
    server: String,
}

#[derive(Serialize)]
struct ContextPart<'a> {
    context: Pair<'a>,
}

#[derive(Serialize)]
struct Pair<'a> {
    cluster: &'a str,
    user: &'a str,
    namespace: &'a str,
}

#[derive(Serialize)]
struct UserPart<'a> {
    user: Token<'a>,
}

#[derive(Serialize)]
struct Token<'a> {
    token: &'a str,
}

/// The file's text; the first server's context is the current one. The error is the serialiser's.
pub fn kubeconfig_text(servers: &[KubeconfigEntry]) -> io::Result<String> {
    let config = Kubeconfig {
        api_version: "v1",
        kind: "Config",
        current_context: servers.first().map_or("", |s| &s.name),
        clusters: servers
            .iter()
            // The token stands in the path as well: kubectl sends no credentials over plain HTTP.
            .map(|s| {
                let server = format!("{}/{}", s.url, s.token);
                Named { name: &s.name, part: ClusterPart { cluster: Server { server } } }
            })
            .collect(),
        contexts: servers
            .iter()
            .map(|s| Named {
                name: &s.name,
                part: ContextPart { context: Pair { cluster: &s.name, user: &s.name, namespace: "default" } },
            })
            .collect(),
        users: servers
            .iter()
            .map(|s| Named { name: &s.name, part: UserPart { user: Token { token: &s.token } } })
            .collect(),
    };
    serde_saphyr::to_string(&config).map_err(io::Error::other)
}

/// Writes the file, readable by its owner only; a file that is there is replaced as a whole.
pub fn write_kubeconfig(path: &Path, servers: &[KubeconfigEntry]) -> io::Result<()> {
    let text = kubeconfig_text(servers)?;
    let draft = path.with_extension("new");
    // What an earlier run left behind would keep its own permissions.
    match std::fs::remove_file(&draft) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
        _ => {}
    }
    let mut file = std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&draft)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    std::fs::rename(&draft, path)
}
