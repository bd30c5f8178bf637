//! Who is meant: members, clusters, objects, incarnations. Small, cheap to copy, ordered.
//! Must not know what the objects hold.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::kind::Kind;

macro_rules! name_type {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, Default)]
        #[serde(transparent)]
        pub struct $name(pub Arc<str>);

        impl $name {
            /// The text of it.
            pub fn as_str(&self) -> &str { &self.0 }
            /// Whether there is none.
            pub fn is_empty(&self) -> bool { self.0.is_empty() }
        }
        impl From<&str> for $name { fn from(s: &str) -> Self { Self(s.into()) } }
        impl From<String> for $name { fn from(s: String) -> Self { Self(s.into()) } }
        impl fmt::Display for $name { fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result { f.write_str(&self.0) } }
        impl fmt::Debug for $name { fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result { write!(f, "{:?}", &*self.0) } }
    };
}

name_type!(/// Name of a `MemberCluster`.
    MemberName);
name_type!(/// UID of one incarnation of an object.
    Uid);
name_type!(/// The identity of a root object that survives the loss of the hub (`sharding.md` 1.5): the UID it had when first bound.
    RootId);

impl RootId {
    /// 0 ..= 255: the top 8 bits of FNV-1a-64 of the root id.
    pub fn bucket(&self) -> u8 {
        shards::bucket(&self.0)
    }

    /// The unit of a member with `units` units that owns this root object from `Admitted` on (`sharding.md` 1.1).
    pub fn member_unit(&self, member: &str, units: u32) -> Arc<str> {
        member_unit(member, u32::from(self.bucket()) * units / 256)
    }
}

/// Name of a member's unit: `m-eu-0`.
pub fn member_unit(member: &str, index: u32) -> Arc<str> {
    format!("m-{member}-{index}").into()
}

/// A Kubernetes cluster that we talk to.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Cluster {
    /// Where users submit and our own objects live.
    Hub,
    /// Where Ray runs.
    Member(MemberName),
}

impl Cluster {
    /// The member's name, unless this is the hub.
    pub fn member(&self) -> Option<&MemberName> {
        match self {
            Cluster::Hub => None,
            Cluster::Member(name) => Some(name),
        }
    }
}

impl fmt::Display for Cluster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Cluster::Hub => f.write_str("hub"),
            Cluster::Member(name) => write!(f, "{name}"),
        }
    }
}

/// An object within one cluster. `namespace` is empty for cluster-scoped kinds.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Id {
    /// What it is.
    pub kind: Kind,
    /// Where it is; empty for cluster-scoped kinds.
    pub namespace: Arc<str>,
    /// What it is called.
    pub name: Arc<str>,
}

impl Id {
    /// An object of a kind; pass an empty namespace for cluster-scoped kinds.
    pub fn new(kind: Kind, namespace: impl Into<Arc<str>>, name: impl Into<Arc<str>>) -> Self {
        Self { kind, namespace: namespace.into(), name: name.into() }
    }

    /// Path of the object on its API server.
    pub fn path(&self) -> String {
        let namespace = (!self.namespace.is_empty()).then_some(&*self.namespace);
        format!("{}/{}", self.kind.collection_path(namespace), self.name)
    }
}

impl fmt::Display for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.namespace.is_empty() {
            write!(f, "{} {}", self.kind, self.name)
        } else {
            write!(f, "{} {}/{}", self.kind, self.namespace, self.name)
        }
    }
}

/// An object somewhere in the fleet.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Key {
    /// In which cluster.
    pub cluster: Cluster,
    /// Which object there.
    pub id: Id,
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} on {}", self.id, self.cluster)
    }
}

/// A resourceVersion. Comparable within one kind of one cluster (KEP-5504, stable in 1.35). 0 = never seen.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Version(pub u64);

impl Version {
    /// From the text that the API server gave; `None` where it is no number.
    pub fn parse(text: &str) -> Option<Self> {
        text.parse().ok().map(Self)
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_are_pinned() {
        // FNV-1a-64 of the empty text and of "a" are published test vectors.
        assert_eq!(RootId::from("").bucket(), 0xcb);
        assert_eq!(RootId::from("a").bucket(), 0xaf);
        assert_eq!(&*RootId::from("a").member_unit("eu", 4), "m-eu-2");
        assert_eq!(&*RootId::from("").member_unit("eu", 1), "m-eu-0");
    }
}
