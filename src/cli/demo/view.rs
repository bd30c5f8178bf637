//! A plain view on the API servers of the demo's fleet: an HTTP client with the sandbox's kubeconfig, as any outsider has.
//! Must not know the controller's code: what the demo shows is what the API says.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use data_encoding::BASE64;
use reqwest::Method;
use serde_json::Value;

/// One API server: address and token, and whom it is known by.
struct Server {
    client: reqwest::Client,
    url: String,
    token: String,
}

/// All API servers of the fleet, by context name.
pub(super) struct View {
    servers: BTreeMap<String, Server>,
}

/// A client of servers that this authority (base64 of PEM) vouches for, or of servers without certificates.
fn client(authority: Option<&str>) -> Result<reqwest::Client> {
    let mut builder = reqwest::Client::builder().timeout(Duration::from_secs(10)).no_proxy();
    if let Some(authority) = authority {
        let pem = BASE64.decode(authority.as_bytes()).context("a cluster's authority")?;
        builder = builder.tls_certs_only([reqwest::Certificate::from_pem(&pem)?]);
    }
    Ok(builder.build()?)
}

impl View {
    /// A view on nothing, until there is a kubeconfig.
    pub(super) fn none() -> Self {
        Self { servers: BTreeMap::new() }
    }

    /// From the kubeconfig that the sandbox wrote.
    pub(super) fn new(kubeconfig: &Path) -> Result<Self> {
        let text = std::fs::read_to_string(kubeconfig).with_context(|| format!("reading {}", kubeconfig.display()))?;
        let config: Value = serde_saphyr::from_str(&text).context("the sandbox's kubeconfig")?;
        let named = |list: &str, name: &Value, field: &str| -> Option<Value> {
            config[list].as_array()?.iter().find(|entry| &entry["name"] == name).map(|entry| entry[field].clone())
        };
        let mut servers = BTreeMap::new();
        for context in config["contexts"].as_array().into_iter().flatten() {
            let cluster =
                named("clusters", &context["context"]["cluster"], "cluster").context("a context's cluster")?;
            let user = named("users", &context["context"]["user"], "user").context("a context's user")?;
            servers.insert(
                context["name"].as_str().unwrap_or_default().to_owned(),
                Server {
                    client: client(cluster["certificate-authority-data"].as_str())?,
                    url: cluster["server"].as_str().context("a cluster's server")?.trim_end_matches('/').to_owned(),
                    token: user["token"].as_str().context("a user's token")?.to_owned(),
                },
            );
        }
        Ok(Self { servers })
    }

    fn request(&self, context: &str, method: Method, path: &str) -> Result<reqwest::RequestBuilder> {
        let server = self.servers.get(context).with_context(|| format!("no context {context} in the kubeconfig"))?;
        Ok(server.client.request(method, format!("{}{path}", server.url)).bearer_auth(&server.token))
    }

    /// The JSON at a path; `None` for 404.
    pub(super) async fn get(&self, context: &str, path: &str) -> Result<Option<Value>> {
        let reply = self.request(context, Method::GET, path)?.send().await?;
        if reply.status().as_u16() == 404 {
            return Ok(None);
        }
        if !reply.status().is_success() {
            bail!("GET {path} on {context}: {} {}", reply.status(), reply.text().await.unwrap_or_default());
        }
        Ok(Some(reply.json().await?))
    }

    /// The objects of the collection at a path; none where the path is not served yet.
    pub(super) async fn items(&self, context: &str, path: &str) -> Result<Vec<Value>> {
        let list = self.get(context, path).await?.unwrap_or_default();
        Ok(list["items"].as_array().cloned().unwrap_or_default())
    }

    /// Creates an object in the collection at `path`; an object that is there already is left as it is.
    pub(super) async fn create(&self, context: &str, path: &str, body: &Value) -> Result<()> {
        let reply = self.request(context, Method::POST, path)?.json(body).send().await?;
        if !reply.status().is_success() && reply.status().as_u16() != 409 {
            bail!("POST {path} on {context}: {} {}", reply.status(), reply.text().await.unwrap_or_default());
        }
        Ok(())
    }

    /// Asks the dashboard of a RayCluster through the member's Service proxy.
    pub(super) async fn dashboard(&self, member: &str, namespace: &str, cluster: &str, path: &str) -> Result<Value> {
        let path = format!("/api/v1/namespaces/{namespace}/services/{cluster}-head-svc:8265/proxy{path}");
        self.get(member, &path).await?.with_context(|| format!("no dashboard behind {cluster}-head-svc on {member}"))
    }
}
