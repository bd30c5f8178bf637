//! Kubeconfigs: what a member's may hold (data only, nothing that runs or reads a file), and where the hub's comes from.
//! Knows kube's configuration types. Must not know connections; must not let a credential into a message.

use std::path::{Path, PathBuf};
use std::time::Duration;

use kube::config::{AuthInfo, Config, KubeConfigOptions, Kubeconfig, KubeconfigError, NamedAuthInfo};
use thiserror::Error;

/// Bytes that a member's kubeconfig may have at most: an API server's own limit for a Secret.
pub const KUBECONFIG_BYTES_MAX: usize = 1 << 20;
/// Time to make a connection. Below the time limit of a write (5 s), so that a member that swallows packets is known as
/// "not sent" rather than "unknown".
const CONNECT_TIMEOUT_MS: u64 = 3_000;

/// Why a kubeconfig cannot be used. No text holds a byte of the file: anything in it, a name as well, may be a credential
/// that came to stand in the wrong place. What a refusal quotes, the caller gave.
#[derive(Debug, Error, Clone, PartialEq, Eq)]
pub enum KubeconfigRefusal {
    /// It is too large.
    #[error("the kubeconfig has {0} bytes; at most {KUBECONFIG_BYTES_MAX} are read")]
    TooLarge(usize),
    /// None is found.
    #[error(
        "no kubeconfig names the hub: give --kubeconfig FILE or set KUBECONFIG (and this is no pod with a service account)"
    )]
    Missing,
    /// It lacks the context that the caller named.
    #[error("the kubeconfig has no context '{0}'; those that it has: kubectl config get-contexts")]
    NoContext(String),
    /// Its file cannot be read.
    #[error("the kubeconfig is not usable: {file} cannot be read: {why}")]
    Unread {
        /// The file.
        file: String,
        /// Why.
        why: std::io::ErrorKind,
    },
    /// It does not parse, or names what it does not hold.
    #[error("the kubeconfig is not usable: {0}")]
    Unusable(&'static str),
    /// The same of a file that the caller named.
    #[error("the kubeconfig is not usable: {file}: {why}")]
    UnusableFile {
        /// The file.
        file: String,
        /// Why.
        why: &'static str,
    },
    /// It asks for something that would run a program or read a file here.
    #[error("the kubeconfig's {field} is refused (it stands in the {part} that the context names): {why}; {instead}")]
    Refused {
        /// Field as it is written.
        field: &'static str,
        /// `user` or `cluster`.
        part: &'static str,
        /// Why.
        why: &'static str,
        /// What would be right.
        instead: &'static str,
    },
}

const INLINE: &str =
    "put the credential itself into the kubeconfig (token, or client-certificate-data and client-key-data)";

/// The connection settings of a member from the text of its kubeconfig. Only inline credentials pass; `context` names
/// another context than the current one. No program is run, no file or environment variable is read.
pub async fn member_config(text: &str, context: Option<&str>) -> Result<Config, KubeconfigRefusal> {
    let kubeconfig = parse(text)?;
    let (cluster, user) = used_names(&kubeconfig, context)?;
    let server = kubeconfig.clusters.iter().find(|c| c.name == cluster).and_then(|c| c.cluster.as_ref());
    let Some(server) = server else {
        return Err(KubeconfigRefusal::Unusable("its context names a cluster that it does not hold"));
    };
    let refuse = |field, why, instead| Err(KubeconfigRefusal::Refused { field, part: "cluster", why, instead });
    if filled(server.certificate_authority.as_ref()) {
        return refuse("certificate-authority", "it names a file of another machine", "use certificate-authority-data");
    }
    if filled(server.proxy_url.as_ref()) {
        return refuse("proxy-url", "proxies are not supported", "name a server that is reached directly");
    }
    if let Some(user) = kubeconfig.auth_infos.iter().find(|u| u.name == user) {
        refuse_user(user)?;
    }
    let options = KubeConfigOptions { context: context.map(str::to_owned), cluster: None, user: None };
    let config = Config::from_custom_kubeconfig(kubeconfig, &options).await.map_err(|e| worded(&e))?;
    check_server(&config)?;
    Ok(tuned(config, false))
}

/// The connection settings of the hub: `--kubeconfig` where given, else `KUBECONFIG` or `~/.kube/config`, else the
/// service account of the pod. This one belongs to who started the process, so all that kube supports is allowed.
pub async fn hub_config(file: Option<&Path>, context: Option<&str>) -> Result<Config, KubeconfigRefusal> {
    let options = KubeConfigOptions { context: context.map(str::to_owned), cluster: None, user: None };
    let kubeconfig = match file {
        Some(path) => Some(Kubeconfig::read_from(path).map_err(|e| named(path, &e))?),
        None => match Kubeconfig::read() {
            Ok(kubeconfig) => Some(kubeconfig),
            Err(KubeconfigError::ReadConfig(e, _)) if e.kind() == std::io::ErrorKind::NotFound => None,
            Err(KubeconfigError::FindPath) => None,
            Err(e) => return Err(worded(&e)),
        },
    };
    let Some(kubeconfig) = kubeconfig else {
        return Config::incluster().map(|c| tuned(c, false)).map_err(|_| KubeconfigRefusal::Missing);
    };
    let (cluster, _) = used_names(&kubeconfig, context)?;
    let proxied = kubeconfig
        .clusters
        .iter()
        .any(|c| c.name == cluster && c.cluster.as_ref().is_some_and(|c| filled(c.proxy_url.as_ref())));
    let config = Config::from_custom_kubeconfig(kubeconfig, &options).await.map_err(|e| worded(&e))?;
    check_server(&config)?;
    Ok(tuned(config, proxied))
}

/// The text of a kubeconfig with one cluster, user and context (all called `member`) that holds what `context` of the
/// given kubeconfig means, so that it can travel in a Secret. Refuses what [`member_config`] refuses.
pub async fn portable(text: &str, context: Option<&str>) -> Result<String, KubeconfigRefusal> {
    member_config(text, context).await?;
    let kubeconfig = parse(text)?;
    let (cluster_name, user_name) = used_names(&kubeconfig, context)?;
    let context_name = context.map(str::to_owned).or(kubeconfig.current_context.clone()).unwrap_or_default();
    let mut only = Kubeconfig {
        clusters: kubeconfig.clusters.into_iter().filter(|c| c.name == cluster_name).collect(),
        auth_infos: kubeconfig.auth_infos.into_iter().filter(|u| u.name == user_name).collect(),
        contexts: kubeconfig.contexts.into_iter().filter(|c| c.name == context_name).collect(),
        current_context: Some(context_name),
        kind: Some("Config".into()),
        api_version: Some("v1".into()),
        ..Kubeconfig::default()
    };
    without_the_unknown(&mut only);
    serde_json::to_string(&only).map_err(|_| KubeconfigRefusal::Unusable("it cannot be written again"))
}

/// Takes out what nobody here reads: other tools' notes, which need not even be readable once they are written as JSON.
fn without_the_unknown(kubeconfig: &mut Kubeconfig) {
    for named in &mut kubeconfig.clusters {
        named.other.clear();
        if let Some(cluster) = &mut named.cluster {
            cluster.other.clear();
            cluster.extensions = None;
        }
    }
    for named in &mut kubeconfig.auth_infos {
        named.other.clear();
        if let Some(user) = &mut named.auth_info {
            user.other.clear();
            user.extensions = None;
        }
    }
    for named in &mut kubeconfig.contexts {
        named.other.clear();
        if let Some(context) = &mut named.context {
            context.other.clear();
            context.extensions = None;
        }
    }
}

/// File of a kubeconfig, for messages: what `--kubeconfig` or the environment would name.
pub fn hub_config_source(file: Option<&Path>) -> String {
    match (file, std::env::var_os("KUBECONFIG").map(PathBuf::from)) {
        (Some(path), _) => path.display().to_string(),
        (None, Some(path)) => format!("{} (KUBECONFIG)", path.display()),
        (None, None) => "~/.kube/config or the pod's service account".into(),
    }
}

fn parse(text: &str) -> Result<Kubeconfig, KubeconfigRefusal> {
    if text.len() > KUBECONFIG_BYTES_MAX {
        return Err(KubeconfigRefusal::TooLarge(text.len()));
    }
    Kubeconfig::from_yaml(text).map_err(|e| worded(&e))
}

/// Names of cluster and user that the context means.
fn used_names(kubeconfig: &Kubeconfig, context: Option<&str>) -> Result<(String, String), KubeconfigRefusal> {
    let Some(name) = context.or(kubeconfig.current_context.as_deref()).filter(|n| !n.is_empty()) else {
        return Err(KubeconfigRefusal::Unusable("it has no current-context, and none was named"));
    };
    let found = kubeconfig.contexts.iter().find(|c| c.name == name).and_then(|c| c.context.as_ref());
    let Some(found) = found else {
        return Err(context.map_or(
            KubeconfigRefusal::Unusable("its current-context names a context that it does not hold"),
            |given| KubeconfigRefusal::NoContext(given.to_owned()),
        ));
    };
    Ok((found.cluster.clone(), found.user.clone().unwrap_or_default()))
}

fn refuse_user(named: &NamedAuthInfo) -> Result<(), KubeconfigRefusal> {
    let Some(user) = &named.auth_info else { return Ok(()) };
    let AuthInfo { token_file, client_certificate, client_key, auth_provider, exec, .. } = user;
    let refuse = |field, why| Err(KubeconfigRefusal::Refused { field, part: "user", why, instead: INLINE });
    if exec.is_some() {
        return refuse("exec", "it would run a program here");
    }
    if auth_provider.is_some() {
        return refuse("auth-provider", "it would run a plugin here");
    }
    if filled(token_file.as_ref()) {
        return refuse("tokenFile", "it names a file of another machine");
    }
    if filled(client_certificate.as_ref()) {
        return refuse("client-certificate", "it names a file of another machine");
    }
    if filled(client_key.as_ref()) {
        return refuse("client-key", "it names a file of another machine");
    }
    Ok(())
}

fn filled(field: Option<&String>) -> bool {
    field.is_some_and(|text| !text.is_empty())
}

fn check_server(config: &Config) -> Result<(), KubeconfigRefusal> {
    let url = &config.cluster_url;
    // It is shown where connections are told of.
    if url.authority().is_some_and(|authority| authority.as_str().contains('@')) {
        return Err(KubeconfigRefusal::Unusable(
            "its cluster's server names a user before the host: credentials belong into the user that the context names",
        ));
    }
    if matches!(url.scheme_str(), Some("http" | "https")) && url.host().is_some() {
        return Ok(());
    }
    Err(KubeconfigRefusal::Unusable("its cluster's server is no http:// or https:// address"))
}

/// Settings that hold for every client: no hidden repeats of writes, short connects, our own time limits elsewhere, and
/// no proxy that only the environment names.
fn tuned(mut config: Config, proxied: bool) -> Config {
    config.default_retry = false;
    config.connect_timeout = Some(Duration::from_millis(CONNECT_TIMEOUT_MS));
    config.read_timeout = None;
    config.disable_compression = true;
    if !proxied {
        config.proxy_url = None;
    }
    config
}

fn named(path: &Path, error: &KubeconfigError) -> KubeconfigRefusal {
    match worded(error) {
        KubeconfigRefusal::Unusable(why) => KubeconfigRefusal::UnusableFile { file: path.display().to_string(), why },
        // It names the path already.
        other => other,
    }
}

/// kube's errors quote names, and the text that they failed on: only the kind of the error is passed on.
fn worded(error: &KubeconfigError) -> KubeconfigRefusal {
    KubeconfigRefusal::Unusable(match error {
        KubeconfigError::ReadConfig(e, path) => {
            return KubeconfigRefusal::Unread { file: path.display().to_string(), why: e.kind() };
        }
        KubeconfigError::Parse(_) => "it is not the YAML of a kubeconfig",
        KubeconfigError::CurrentContextNotSet => "it has no current-context",
        KubeconfigError::LoadContext(_) => "it does not hold the context",
        KubeconfigError::LoadClusterOfContext(_) => "its context names a cluster that it does not hold",
        KubeconfigError::MissingClusterUrl => "its cluster has no server",
        KubeconfigError::ParseClusterUrl(_) => "its cluster's server is no address",
        KubeconfigError::LoadCertificateAuthority(_) | KubeconfigError::ParseCertificates(_) => {
            "its certificate-authority-data is no base64 of PEM certificates"
        }
        KubeconfigError::LoadClientCertificate(_) => "its client-certificate-data is no base64",
        KubeconfigError::LoadClientKey(_) => "its client-key-data is no base64",
        KubeconfigError::ParseProxyUrl(_) => "its proxy-url is no address",
        _ => "its parts do not fit together",
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with_user(user: &str) -> String {
        format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: m\n\
             clusters: [{{name: c, cluster: {{server: 'http://127.0.0.1:1'}}}}]\n\
             users: [{{name: u, user: {user}}}]\n\
             contexts: [{{name: m, context: {{cluster: c, user: u}}}}]\n"
        )
    }

    #[tokio::test]
    async fn inline_credentials_pass() {
        let config = member_config(&with_user("{token: abc}"), None).await.unwrap();
        assert_eq!(config.cluster_url.host(), Some("127.0.0.1"));
        assert!(!config.default_retry);
        assert!(config.proxy_url.is_none());
    }

    #[tokio::test]
    async fn what_would_run_a_program_or_read_a_file_is_refused_with_its_field() {
        for (user, field) in [
            ("{exec: {apiVersion: v1, command: /bin/touch, args: [/tmp/x]}}", "exec"),
            ("{auth-provider: {name: gcp}}", "auth-provider"),
            ("{tokenFile: /var/token}", "tokenFile"),
            ("{client-certificate: /a.pem, client-key-data: eA==}", "client-certificate"),
            ("{client-key: /a.pem, client-certificate-data: eA==}", "client-key"),
        ] {
            let refusal = member_config(&with_user(user), None).await.unwrap_err();
            let KubeconfigRefusal::Refused { field: named, part, .. } = &refusal else { panic!("{refusal}") };
            assert_eq!((*named, *part), (field, "user"));
            assert!(refusal.to_string().contains("put the credential itself"), "{refusal}");
        }
        let ca = with_user("{token: a}").replace("server:", "certificate-authority: /ca.pem, server:");
        assert!(member_config(&ca, None).await.unwrap_err().to_string().contains("certificate-authority-data"));
        let proxy = with_user("{token: a}").replace("server:", "proxy-url: 'http://p:1', server:");
        assert!(member_config(&proxy, None).await.unwrap_err().to_string().contains("proxy-url"));
    }

    #[tokio::test]
    async fn what_travels_holds_no_notes_of_other_tools() {
        // YAML takes a key of this length only where it is written with a question mark.
        let long = "k".repeat(2_000);
        let text = format!(
            "{{\"current-context\": c, clusters: [{{name: k, cluster: {{server: 'https://h:1', x: 1}}}}], users: [{{name: u, user: \
             {{token: t}}}}], contexts: [{{name: c, context: {{cluster: k, user: u, {long}}}}}]}}"
        );
        let carried = portable(&text, None).await.unwrap();
        assert!(!carried.contains(&long) && !carried.contains("\"x\""), "{carried}");
        assert!(member_config(&carried, None).await.is_ok());
    }

    #[tokio::test]
    async fn another_user_with_exec_does_not_matter() {
        let text = with_user("{token: abc}").replace("users: [", "users: [{name: other, user: {exec: {command: x}}}, ");
        assert!(member_config(&text, None).await.is_ok());
        let carried = portable(&text, None).await.unwrap();
        assert!(!carried.contains("exec") && carried.contains("abc"), "{carried}");
        assert!(member_config(&carried, None).await.is_ok());
    }

    #[tokio::test]
    async fn no_refusal_holds_a_byte_of_the_kubeconfig() {
        let whole = |context: &str, cluster: &str, user: &str| {
            format!(
                "current-context: {context}\nclusters: [{{name: s3cret-c, cluster: {{{cluster}}}}}]\n\
                 users: [{{name: s3cret-u, user: {{{user}}}}}]\n\
                 contexts: [{{name: s3cret-m, context: {{cluster: s3cret-c, user: s3cret-u}}}}, \
                 {{name: s3cret-n, context: {{cluster: s3cret-none, user: s3cret-u}}}}]\n"
            )
        };
        let server = "server: 'https://h:1'";
        let mut refused = vec![
            "token: [s3cret".to_owned(),
            "s3cret".to_owned(),
            "{a: s3cret".to_owned(),
            "users: [{name: u, user: {token: {s3cret: 1}}}]".to_owned(),
            "\tx: s3cret".to_owned(),
            whole("s3cret", server, "token: s3cret"),
            whole("s3cret-n", server, "token: s3cret"),
        ];
        for cluster in [
            "server: 's3cret s3cret'",
            "server: 's3cret://h'",
            "server: 'https://s3cret:s3cret@h'",
            "certificate-authority: s3cret",
            "server: 'https://h:1', proxy-url: 'http://s3cret'",
            "server: 'https://h:1', certificate-authority-data: 's3cret!'",
            "server: {s3cret: 1}",
        ] {
            refused.push(whole("s3cret-m", cluster, "token: s3cret"));
        }
        for user in [
            "exec: {command: s3cret, args: [s3cret]}",
            "auth-provider: {name: s3cret}",
            "tokenFile: s3cret",
            "client-certificate: s3cret",
            "client-key: s3cret",
        ] {
            refused.push(whole("s3cret-m", server, user));
        }
        for text in refused {
            let message = member_config(&text, None).await.unwrap_err().to_string();
            assert!(!message.contains("s3cret"), "{message} of {text}");
            let file = tempfile::NamedTempFile::new().unwrap();
            std::fs::write(file.path(), &text).unwrap();
            // The hub's may name files and programs.
            if let Err(refusal) = hub_config(Some(file.path()), None).await {
                assert!(!refusal.to_string().contains("s3cret"), "{refusal} of {text}");
            }
        }
    }

    #[tokio::test]
    async fn a_context_that_is_not_there_is_named_as_it_was_asked_for() {
        let message = member_config(&with_user("{token: a}"), Some("x")).await.unwrap_err().to_string();
        assert!(message.contains("has no context 'x'; those that it has: kubectl config get-contexts"), "{message}");
        let message = hub_config(Some(Path::new("/nonexistent/kc")), None).await.unwrap_err().to_string();
        assert!(message.contains("/nonexistent/kc"), "{message}");
    }
}
