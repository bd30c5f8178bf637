//! Who may ask a plane, and with what: tokens, and kubeconfigs as text.
//! Must not know processes.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Read;
use std::net::SocketAddr;
use std::path::Path;

use anyhow::Result;
use data_encoding::{BASE64, HEXLOWER};
use serde_json::json;

/// The user that may do everything.
pub const ADMINISTRATOR: &str = "administrator";
/// The user to which Kubernetes' built-in roles give what the controller manager needs.
pub(super) const CONTROLLER_MANAGER: &str = "system:kube-controller-manager";

/// The users of one plane and their tokens.
#[derive(Clone, Debug)]
pub(super) struct Access {
    tokens: BTreeMap<String, String>,
}

impl Access {
    /// Draws a token for the administrator, the controller manager and each of `users` (who may do what RBAC objects will
    /// grant them). Writes the API server's table of them to `file`.
    pub(super) fn draw(file: &Path, users: &[&str]) -> Result<Self> {
        let mut random = File::open("/dev/urandom")?;
        let mut tokens = BTreeMap::new();
        let mut table = String::new();
        for user in [ADMINISTRATOR, CONTROLLER_MANAGER].iter().chain(users) {
            let mut bytes = [0; 16];
            random.read_exact(&mut bytes)?;
            let token = HEXLOWER.encode(&bytes);
            let groups = if *user == ADMINISTRATOR { ",system:masters" } else { "" };
            table.extend([&token, ",", user, ",", user, groups, "\n"]);
            tokens.insert((*user).to_owned(), token);
        }
        fs::write(file, table)?;
        Ok(Self { tokens })
    }

    /// A kubeconfig, credentials inline, of a user that the plane was started with. `ca` is PEM.
    pub(super) fn kubeconfig(&self, user: &str, server: SocketAddr, ca: &[u8]) -> String {
        let token = self.tokens.get(user).unwrap_or_else(|| panic!("the plane was started without a user '{user}'"));
        kubeconfig(user, token, server, ca)
    }
}

/// A kubeconfig with a token inline. `ca` is PEM.
pub(super) fn kubeconfig(user: &str, token: &str, server: SocketAddr, ca: &[u8]) -> String {
    json!({
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "plane",
        "contexts": [{"name": "plane", "context": {"cluster": "plane", "user": user}}],
        "clusters": [{"name": "plane", "cluster": {
            "server": format!("https://{server}"),
            "certificate-authority-data": BASE64.encode(ca),
        }}],
        "users": [{"name": user, "user": {"token": token}}],
    })
    .to_string()
}
