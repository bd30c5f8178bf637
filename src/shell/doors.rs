//! The API servers that can be talked to at present, by cluster: shared by everything that sends.
//! Must not know how clients are made or what is sent.

use std::collections::BTreeMap;
use std::sync::{Arc, RwLock};

use super::client::Client;
use crate::api::Cluster;

/// Clients by cluster.
#[derive(Debug, Default)]
pub struct Doors {
    clients: RwLock<BTreeMap<Cluster, Arc<Client>>>,
}

impl Doors {
    /// The client of a cluster, if it can be talked to.
    pub fn get(&self, cluster: &Cluster) -> Option<Arc<Client>> {
        self.clients.read().expect("no code panics while it holds the clients").get(cluster).cloned()
    }

    /// A cluster can be talked to from now on.
    pub fn open(&self, client: Arc<Client>) {
        let cluster = client.cluster().clone();
        self.clients.write().expect("no code panics while it holds the clients").insert(cluster, client);
    }

    /// A cluster can be talked to no more.
    pub fn close(&self, cluster: &Cluster) {
        self.clients.write().expect("no code panics while it holds the clients").remove(cluster);
    }
}
