//! Members come and go: reads each one's kubeconfig Secret on the hub, makes its client, keeps its credentials fresh.
//! Knows where credentials stand. Must not know what is done on a member; a member that is refused does not touch others.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use kube::config::Config;
use serde_json::Value;
use thiserror::Error;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use super::client::{Client, UnusableConfig};
use super::kubeconfig::member_config;
use super::lanes::Lane;
use crate::api::fleet::{MemberClusterSpec, SecretKey};
use crate::api::wire::Request;
use crate::api::{Cluster, Id, Kind, MemberName};

const READ_LIMIT: Duration = Duration::from_secs(5);
/// A Secret is watched nowhere: it is read again this often.
const REREAD_EVERY: Duration = Duration::from_secs(30);
const NO_SECRET: &str = "spec.kubeconfigSecret is not set: name a Secret on the hub that holds the member's kubeconfig";
const BACK_OFF_MIN: Duration = Duration::from_secs(1);
const BACK_OFF_MAX: Duration = Duration::from_mins(1);

/// What is known of a member's reachability.
#[derive(Debug)]
pub enum MemberNews {
    /// Its client is there.
    Reached(MemberName, Arc<Client>),
    /// It cannot be asked, and why.
    Refused(MemberName, String),
}

/// One task per member.
#[derive(Debug)]
pub struct Members {
    hub: Arc<Client>,
    seat: Arc<str>,
    news: mpsc::Sender<MemberNews>,
    tended: BTreeMap<MemberName, Tended>,
}

#[derive(Debug)]
struct Tended {
    secret: Option<SecretKey>,
    task: JoinHandle<()>,
}

impl Drop for Tended {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Members {
    /// Members whose Secrets stand on `hub`, asked in the name of `seat`; what is found goes to `news`.
    pub fn new(hub: Arc<Client>, seat: &str, news: mpsc::Sender<MemberNews>) -> Self {
        Self { hub, seat: seat.into(), news, tended: BTreeMap::new() }
    }

    /// A member is known by this spec from now on; `None`: it is gone. A spec that names the
    /// Secret that is tended already changes nothing.
    pub fn set(&mut self, name: &MemberName, spec: Option<&MemberClusterSpec>) {
        let Some(spec) = spec else {
            self.tended.remove(name);
            return;
        };
        let secret = spec.kubeconfig_secret.clone();
        // A task that has ended, however it came to that, tends nobody: it is begun anew.
        if self.tended.get(name).is_some_and(|t| t.secret == secret && !t.task.is_finished()) {
            return;
        }
        let task =
            tokio::spawn(tend(name.clone(), secret.clone(), self.hub.clone(), self.seat.clone(), self.news.clone()));
        self.tended.insert(name.clone(), Tended { secret, task });
    }
}

/// A client of a member for one who asks once, by the credentials that stand on `hub`.
pub async fn client_of(hub: &Client, name: &MemberName, spec: &MemberClusterSpec) -> Result<Client, CredentialError> {
    let secret = spec.kubeconfig_secret.as_ref().ok_or_else(|| CredentialError::Bad(NO_SECRET.to_owned()))?;
    let config = usable(&read(hub, secret).await?).await?;
    Client::new(Cluster::Member(name.clone()), config).map_err(|e| CredentialError::Bad(e.to_string()))
}

/// Why a member's credentials are not there. The texts hold none of them.
#[derive(Debug, Error)]
pub enum CredentialError {
    /// The hub said so, or the credentials are unusable: the member is refused.
    #[error("{0}")]
    Bad(String),
    /// The hub did not answer: what was known holds.
    #[error("{0}")]
    Unread(String),
}

async fn tend(
    name: MemberName,
    secret: Option<SecretKey>,
    hub: Arc<Client>,
    seat: Arc<str>,
    news: mpsc::Sender<MemberNews>,
) {
    let Some(secret) = secret else {
        let _ended = news.send(MemberNews::Refused(name, NO_SECRET.to_owned())).await;
        return;
    };
    let mut client: Option<Arc<Client>> = None;
    let mut text_used = String::new();
    let mut address = None;
    let mut refused: Option<String> = None;
    let mut back_off = BACK_OFF_MIN;
    loop {
        let found = match read(&hub, &secret).await {
            Ok(text) if client.is_some() && refused.is_none() && text == text_used => Ok(None),
            Ok(text) => usable(&text).await.map(|config| Some((text, config))),
            Err(e) => Err(e),
        };
        let made = match found {
            Ok(None) => Ok(false),
            Ok(Some((text, config))) => {
                // Rows that another server gave say nothing about this one: all is listed anew.
                let moved = address.as_ref().is_some_and(|before| *before != config.cluster_url);
                address = Some(config.cluster_url.clone());
                let why = "its kubeconfig names another address: everything there is listed anew".to_owned();
                if moved && news.send(MemberNews::Refused(name.clone(), why)).await.is_err() {
                    return;
                }
                apply(&name, &seat, &mut client, config).map(|()| {
                    text_used = text;
                    true
                })
            }
            Err(e) => Err(e),
        };
        match made {
            Ok(anew) => {
                back_off = BACK_OFF_MIN;
                if let (Some(client), true) = (&client, anew) {
                    refused = None;
                    if news.send(MemberNews::Reached(name.clone(), client.clone())).await.is_err() {
                        return;
                    }
                }
            }
            Err(CredentialError::Unread(why)) if client.is_some() => {
                tracing::debug!(member = %name, %why, "the kubeconfig Secret could not be read again");
            }
            Err(error) => {
                let why = error.to_string();
                if refused.as_ref() != Some(&why) {
                    tracing::warn!(member = %name, %why, "member refused");
                    refused = Some(why.clone());
                    if news.send(MemberNews::Refused(name.clone(), why)).await.is_err() {
                        return;
                    }
                }
            }
        }
        let pause = if refused.is_some() || client.is_none() { back_off } else { REREAD_EVERY };
        let denied = async {
            match &client {
                Some(client) if refused.is_none() => {
                    client.denied().await;
                    // A member that denies everything is asked for its Secret with back-off too.
                    tokio::time::sleep(back_off).await;
                }
                _ => std::future::pending().await,
            }
        };
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            () = denied => {}
        }
        back_off = (back_off * 2).min(BACK_OFF_MAX);
    }
}

fn apply(
    name: &MemberName,
    seat: &str,
    client: &mut Option<Arc<Client>>,
    config: Config,
) -> Result<(), CredentialError> {
    let bad = |e: UnusableConfig| CredentialError::Bad(e.to_string());
    if let Some(client) = client {
        return client.replace(config).map_err(bad);
    }
    *client = Some(Arc::new(Client::new(Cluster::Member(name.clone()), config).map_err(bad)?.of_seat(seat)));
    Ok(())
}

async fn usable(text: &str) -> Result<Config, CredentialError> {
    member_config(text, None).await.map_err(|e| CredentialError::Bad(e.to_string()))
}

/// The kubeconfig's text from its Secret on the hub.
async fn read(hub: &Client, secret: &SecretKey) -> Result<String, CredentialError> {
    let id = Id::new(Kind::Secret, secret.namespace.as_str(), secret.name.as_str());
    let reply = hub
        .send(Lane::Effects, &Request::get(id.path()), READ_LIMIT)
        .await
        .map_err(|e| CredentialError::Unread(format!("the hub did not give the {id}: {e}")))?;
    match reply.status {
        200 => {}
        404 => return Err(CredentialError::Bad(format!("{id} (spec.kubeconfigSecret) is not on the hub"))),
        403 => {
            return Err(CredentialError::Bad(format!(
                "reading {id} (spec.kubeconfigSecret) on the hub is forbidden to us"
            )));
        }
        status => return Err(CredentialError::Unread(format!("the hub answered {status} for {id}"))),
    }
    kubeconfig_in(&reply.body, &id, &secret.key)
}

/// The kubeconfig's text in the body of a Secret, under this key of its data; an empty one means `kubeconfig`. An error
/// says what is wrong with the object, and shows nothing of its data.
pub fn kubeconfig_in(body: &[u8], id: &Id, key: &str) -> Result<String, CredentialError> {
    let key = if key.is_empty() { "kubeconfig" } else { key };
    let body: Value = serde_json::from_slice(body)
        .map_err(|_| CredentialError::Unread(format!("the hub's reply for {id} is no JSON")))?;
    let Some(encoded) = body["data"][key].as_str() else {
        return Err(CredentialError::Bad(format!("{id} has no key '{key}' in its data")));
    };
    let decoded = data_encoding::BASE64.decode(encoded.as_bytes()).ok().and_then(|bytes| String::from_utf8(bytes).ok());
    decoded.ok_or_else(|| CredentialError::Bad(format!("key '{key}' of {id} is no base64 of text")))
}

#[cfg(test)]
mod tests {
    use super::super::scripted::{Scripted, Step};
    use super::*;

    const LIMIT: Duration = Duration::from_secs(20);

    fn secret_with(kubeconfig: &str) -> Step {
        let data = data_encoding::BASE64.encode(kubeconfig.as_bytes());
        Step::Reply(200, format!("{{\"data\":{{\"kubeconfig\":\"{data}\"}}}}"))
    }

    fn kubeconfig(user: &str) -> String {
        format!(
            "{{current-context: m, clusters: [{{name: c, cluster: {{server: 'http://127.0.0.1:9'}}}}], \
             users: [{{name: u, user: {user}}}], contexts: [{{name: m, context: {{cluster: c, user: u}}}}]}}"
        )
    }

    fn spec() -> MemberClusterSpec {
        let secret = SecretKey { namespace: "fleet".into(), name: "eu".into(), key: String::new() };
        MemberClusterSpec { kubeconfig_secret: Some(secret), ..MemberClusterSpec::default() }
    }

    #[tokio::test]
    async fn a_refused_kubeconfig_is_told_once_and_taken_when_it_is_mended() {
        let bad = secret_with(&kubeconfig("{exec: {command: /bin/true}}"));
        let server = Scripted::start([bad.clone(), bad, secret_with(&kubeconfig("{token: t}"))]).await;
        let (news, mut got) = mpsc::channel(8);
        let mut members = Members::new(server.client().await, "seat-a", news);
        members.set(&"eu".into(), Some(&spec()));
        let first = tokio::time::timeout(LIMIT, got.recv()).await.unwrap().unwrap();
        assert!(matches!(&first, MemberNews::Refused(_, why) if why.contains("exec")), "{first:?}");
        let second = tokio::time::timeout(LIMIT, got.recv()).await.unwrap().unwrap();
        assert!(matches!(&second, MemberNews::Reached(name, _) if name.as_str() == "eu"), "{second:?}");
    }

    #[tokio::test]
    async fn a_token_that_fits_no_header_is_refused_and_the_member_taken_when_it_is_mended() {
        let bad = secret_with(&kubeconfig("{token: \"s3cret\\n\"}"));
        let server = Scripted::start([bad.clone(), bad, secret_with(&kubeconfig("{token: t}"))]).await;
        let (news, mut got) = mpsc::channel(8);
        let mut members = Members::new(server.client().await, "seat-a", news);
        members.set(&"eu".into(), Some(&spec()));
        let first = tokio::time::timeout(LIMIT, got.recv()).await.unwrap().unwrap();
        let told = matches!(&first, MemberNews::Refused(_, why) if why.contains("token") && !why.contains("s3cret"));
        assert!(told, "{first:?}");
        let second = tokio::time::timeout(LIMIT, got.recv()).await.unwrap().unwrap();
        assert!(matches!(&second, MemberNews::Reached(name, _) if name.as_str() == "eu"), "{second:?}");
    }

    #[tokio::test]
    async fn a_task_that_has_ended_is_begun_anew() {
        let server = Scripted::start([]).await;
        let (news, mut got) = mpsc::channel(8);
        let mut members = Members::new(server.client().await, "seat-a", news);
        for _ in 0..2 {
            // Without a Secret there is nothing to tend: the task says so and ends.
            members.set(&"eu".into(), Some(&MemberClusterSpec::default()));
            let told = tokio::time::timeout(LIMIT, got.recv()).await.unwrap().unwrap();
            assert!(matches!(&told, MemberNews::Refused(_, why) if why == NO_SECRET), "{told:?}");
            while !members.tended.values().all(|tended| tended.task.is_finished()) {
                tokio::task::yield_now().await;
            }
        }
    }

    #[tokio::test]
    async fn a_missing_secret_is_named() {
        let server = Scripted::start([Step::Reply(404, "{}".into())]).await;
        let (news, mut got) = mpsc::channel(8);
        let mut members = Members::new(server.client().await, "seat-a", news);
        members.set(&"eu".into(), Some(&spec()));
        let first = tokio::time::timeout(LIMIT, got.recv()).await.unwrap().unwrap();
        assert!(matches!(&first, MemberNews::Refused(_, why) if why.contains("Secret fleet/eu")), "{first:?}");
    }
}
