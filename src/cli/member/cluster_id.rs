//! Which cluster a kubeconfig leads to: the UID of its namespace `kube-system`, which each cluster makes once for itself.
//! Must not know how members are registered.

use std::time::Duration;

use anyhow::{Result, anyhow, bail};
use serde_json::Value;

use crate::api::wire::Request;
use crate::api::{Cluster, Id, Kind};
use crate::cli::access::Hub;
use crate::shell::client::{Client, SendError};
use crate::shell::kubeconfig::member_config;
use crate::shell::lanes::Lane;

const LIMIT: Duration = Duration::from_secs(5);

fn kube_system() -> Id {
    Id::new(Kind::Namespace, "", "kube-system")
}

/// Of the cluster that a kubeconfig leads to; the error says why it is not known. `member`: its name in messages.
pub(super) async fn of_kubeconfig(member: &str, text: &str) -> Result<String> {
    let client = Client::new(Cluster::Member(member.into()), member_config(text, None).await?)?;
    let reply = client.send(Lane::Sight, &Request::get(kube_system().path()), LIMIT).await.map_err(|e| match e {
        SendError::NotSent(why) | SendError::NoAnswer(why) => anyhow!(why),
    })?;
    let body: Value = serde_json::from_slice(&reply.body).unwrap_or_default();
    match (reply.status, uid(&body)) {
        (200, Some(uid)) => Ok(uid),
        (401, _) => bail!("{member} does not accept the kubeconfig's credentials"),
        (status, _) => {
            let words = body["message"].as_str().unwrap_or_default();
            bail!("{member} does not show its namespace kube-system: {status} {words}")
        }
    }
}

/// Of the hub; the error says why it is not known.
pub(super) async fn of_hub(hub: &Hub) -> Result<String> {
    let found = hub.get(&kube_system()).await?;
    found.as_ref().and_then(uid).ok_or_else(|| anyhow!("the hub has no namespace kube-system"))
}

fn uid(namespace: &Value) -> Option<String> {
    namespace["metadata"]["uid"].as_str().filter(|uid| !uid.is_empty()).map(str::to_owned)
}

/// What is wrong with a cluster as this member. `found`: where the kubeconfig leads to, `hub`: the hub's own, where they
/// are known; `members`: the `MemberCluster`s with what the controller found of theirs.
pub(super) fn wrong(name: &str, found: &str, hub: Option<&str>, members: &[Value]) -> Option<String> {
    if hub == Some(found) {
        return Some(format!("this kubeconfig leads to the hub, which cannot be its own member {name}"));
    }
    let id_of = |member: &Value| member["status"]["clusterId"].as_str().unwrap_or_default().to_owned();
    let name_of = |member: &Value| member["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    if let Some(other) = members.iter().find(|other| name_of(other) != name && id_of(other) == found) {
        let other = name_of(other);
        return Some(format!(
            "this kubeconfig leads to the cluster of member {other}, which cannot be member {name} too: a cluster is one \
             member; to give it another name, remove {other} first (kubectl delete membercluster {other})"
        ));
    }
    let known = members.iter().find(|member| name_of(member) == name).map(id_of)?;
    if known.is_empty() || known == found {
        return None;
    }
    Some(format!(
        "this kubeconfig leads to another cluster than that of member {name} ({known}; here it is {found}, the UIDs of \
         their namespaces kube-system): what stands on {name} would be lost; register the other one under a name of its own"
    ))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn member(name: &str, id: Option<&str>) -> Value {
        json!({ "metadata": { "name": name }, "status": id.map_or(json!({}), |id| json!({ "clusterId": id })) })
    }

    #[test]
    fn a_cluster_is_one_member_and_a_member_stays_one_cluster() {
        let members = [member("eu", Some("e")), member("us", Some("u")), member("ap", None)];
        let judge = |name: &str, found: &str| wrong(name, found, Some("h"), &members).unwrap_or_default();
        assert!(judge("new", "h").contains("leads to the hub"));
        assert!(judge("eu", "h").contains("leads to the hub"));
        assert!(judge("new", "u").contains("the cluster of member us, which cannot be member new too"));
        assert!(judge("eu", "u").contains("the cluster of member us, which cannot be member eu too"));
        assert!(judge("ap", "u").contains("the cluster of member us, which cannot be member ap too"));
        let another = judge("eu", "x");
        assert!(another.contains("than that of member eu (e; here it is x"), "{another}");
        for (name, found) in [("eu", "e"), ("ap", "x"), ("new", "x")] {
            assert_eq!(wrong(name, found, Some("h"), &members), None, "{name}");
        }
        assert_eq!(wrong("new", "h", None, &members), None, "what the hub does not show is not compared");
    }
}
