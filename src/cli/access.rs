//! The hub as commands reach it: which kubeconfig, context and namespace, and plain reads and writes of objects.
//! Must not know what the objects mean.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use clap::Args;
use serde_json::Value;

use crate::api::fleet::MemberCluster;
use crate::api::wire::{Method, Reply, Request};
use crate::api::{Cluster, Id, Kind};
use crate::row::{Row, decode_list};
use crate::shell::client::{Client, SendError};
use crate::shell::kubeconfig::{hub_config, hub_config_source};
use crate::shell::lanes::Lane;
use crate::shell::members::client_of;

const LIMIT: Duration = Duration::from_secs(10);

/// Options that say where the hub is.
#[derive(Args, Debug)]
pub(crate) struct Access {
    /// Kubeconfig of the hub (default: KUBECONFIG, ~/.kube/config, or the pod's service account)
    #[arg(long, global = true, value_name = "FILE", help_heading = "Hub")]
    pub(crate) kubeconfig: Option<PathBuf>,
    /// Context in that kubeconfig (default: its current one)
    #[arg(long, global = true, value_name = "NAME", help_heading = "Hub")]
    pub(crate) context: Option<String>,
    /// Namespace of the objects (default: the context's)
    #[arg(short, long, global = true, value_name = "NAME", help_heading = "Hub")]
    pub(crate) namespace: Option<String>,
}

/// The hub, and the namespace that commands work in.
#[derive(Debug)]
pub(crate) struct Hub {
    client: Client,
    /// Namespace of objects that name none.
    pub(crate) namespace: String,
    source: String,
}

impl Access {
    /// A client of the hub, not yet connected.
    pub(crate) async fn hub(&self) -> Result<Hub> {
        let source = hub_config_source(self.kubeconfig.as_deref());
        let config = hub_config(self.kubeconfig.as_deref(), self.context.as_deref()).await?;
        let namespace = self.namespace.clone().unwrap_or_else(|| config.default_namespace.clone());
        let client = Client::new(Cluster::Hub, config).with_context(|| source.clone())?;
        Ok(Hub { client, namespace, source })
    }
}

/// Whether the hub refused a write since the object is another by now, or is there already.
pub(crate) fn is_conflict(error: &anyhow::Error) -> bool {
    error.downcast_ref::<Refusal>().is_some_and(|refusal| refusal.status == 409)
}

/// An answer of the hub that is no success.
#[derive(Debug, thiserror::Error)]
#[error("{what}: {message}")]
pub(crate) struct Refusal {
    /// HTTP status.
    pub(crate) status: u16,
    what: String,
    message: String,
}

impl Hub {
    /// The object; `None` where there is none of that name.
    pub(crate) async fn get(&self, id: &Id) -> Result<Option<Value>> {
        let reply = self.send(&Request::get(id.path())).await?;
        match reply.status {
            404 if !is_missing_kind(&reply) => Ok(None),
            404 => Err(missing_kind(id.kind)),
            _ => Ok(Some(body(&reply, &id.to_string())?)),
        }
    }

    /// A client of a member, by the credentials that its `MemberCluster` names.
    pub(crate) async fn member(&self, name: &str) -> Result<Client> {
        let id = Id::new(Kind::MemberCluster, "", name);
        let Some(object) = self.get(&id).await? else {
            return Err(anyhow!("member {name} is not registered on the hub; those that are: rayfleet member list"));
        };
        let member: MemberCluster = serde_json::from_value(object).with_context(|| id.to_string())?;
        client_of(&self.client, &name.into(), &member.spec).await.with_context(|| format!("member {name}"))
    }

    /// All objects of a kind; in one namespace where `namespace` is given.
    pub(crate) async fn list(&self, kind: Kind, namespace: Option<&str>) -> Result<Vec<Value>> {
        let reply = self.send(&Request::get(kind.collection_path(namespace))).await?;
        if reply.status == 404 {
            return Err(missing_kind(kind));
        }
        let mut list = body(&reply, kind.plural())?;
        Ok(match list["items"].take() {
            Value::Array(items) => items,
            _ => Vec::new(),
        })
    }

    /// All objects of a kind as the product keeps them; what does not decode is left out with a warning.
    pub(crate) async fn rows(&self, kind: Kind) -> Result<Vec<Row>> {
        let reply = self.send(&Request::get(kind.collection_path(None))).await?;
        if reply.status == 404 {
            return Err(missing_kind(kind));
        }
        body(&reply, kind.plural())?;
        let page = decode_list(kind, &reply.body).map_err(|e| anyhow!("{}: {e}", kind.plural()))?;
        for (_, object) in &page.quarantined {
            tracing::warn!("{}", object.error);
        }
        Ok(page.rows)
    }

    /// Creates an object; unknown fields are an error. Returns it as it is now, and the hub's warnings.
    pub(crate) async fn create(&self, id: &Id, object: &Value) -> Result<(Value, Vec<String>)> {
        let namespace = (!id.namespace.is_empty()).then_some(&*id.namespace);
        let path = format!("{}?fieldValidation=Strict", id.kind.collection_path(namespace));
        self.write(Method::Post, path, id, object).await
    }

    /// Puts an object in place of the one that has its resourceVersion.
    pub(crate) async fn replace(&self, id: &Id, object: &Value) -> Result<(Value, Vec<String>)> {
        self.write(Method::Put, format!("{}?fieldValidation=Strict", id.path()), id, object).await
    }

    /// Asks for all the hub's checks of a write, of a new object or of one that is there, and writes nothing.
    pub(crate) async fn try_out(&self, id: &Id, object: &Value, is_new: bool) -> Result<()> {
        let (method, path) = if is_new {
            let namespace = (!id.namespace.is_empty()).then_some(&*id.namespace);
            (Method::Post, id.kind.collection_path(namespace))
        } else {
            (Method::Put, id.path())
        };
        self.write(method, format!("{path}?fieldValidation=Strict&dryRun=All"), id, object).await?;
        Ok(())
    }

    async fn write(&self, method: Method, path: String, id: &Id, object: &Value) -> Result<(Value, Vec<String>)> {
        let bytes = Arc::from(object.to_string().as_bytes());
        let reply = self.send(&Request::new(method, path, "application/json", bytes)).await?;
        let object = body(&reply, &id.to_string())?;
        let warnings =
            reply.headers.iter().filter(|(name, _)| name == "warning").map(|(_, text)| warning(text)).collect();
        Ok((object, warnings))
    }

    async fn send(&self, request: &Request) -> Result<Reply> {
        self.client.send(Lane::Effects, request, LIMIT).await.map_err(|e| match e {
            SendError::NotSent(why) => anyhow!("{why} ({}: {})", "kubeconfig", self.source),
            SendError::NoAnswer(why) => anyhow!("{why}; whether it was carried out is not known"),
        })
    }
}

fn missing_kind(kind: Kind) -> anyhow::Error {
    anyhow!(
        "the hub does not serve {}: install the definitions first (rayfleet crds | kubectl apply --server-side -f -)",
        kind.plural()
    )
}

/// The API server's own "no such path", as opposed to "no object of that name".
fn is_missing_kind(reply: &Reply) -> bool {
    let status: Value = serde_json::from_slice(&reply.body).unwrap_or_default();
    status["details"]["name"].as_str().unwrap_or("").is_empty()
}

fn body(reply: &Reply, what: &str) -> Result<Value> {
    let body: Value = serde_json::from_slice(&reply.body).unwrap_or_default();
    if reply.is_success() {
        return Ok(body);
    }
    let message = match (reply.status, body["message"].as_str()) {
        (401, _) => "the hub does not accept the kubeconfig's credentials".to_owned(),
        (_, Some(message)) => message.to_owned(),
        (status, None) => format!("the hub answered {status}"),
    };
    Err(Refusal { status: reply.status, what: what.to_owned(), message }.into())
}

/// The text of a `Warning` header: `299 - "text"`.
fn warning(header: &str) -> String {
    header.split_once('"').map_or(header, |(_, rest)| rest.strip_suffix('"').unwrap_or(rest)).replace("\\\"", "\"")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_warning_header_gives_its_text() {
        assert_eq!(warning("299 - \"unknown field \\\"spec.x\\\"\""), "unknown field \"spec.x\"");
    }

    #[test]
    fn a_refusal_says_what_and_why() {
        let reply = Reply { status: 409, headers: vec![], body: Arc::from(*b"{\"message\":\"it exists\"}") };
        let error = body(&reply, "RayJob a/b").unwrap_err();
        assert_eq!(error.to_string(), "RayJob a/b: it exists");
        assert_eq!(error.downcast_ref::<Refusal>().map(|r| r.status), Some(409));
    }
}
