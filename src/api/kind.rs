//! The kinds of Kubernetes objects that RayFleet reads or writes: group, version, plural, scope.
//! Knows names only. Must not know what stands in the objects.

use std::fmt;

macro_rules! kinds {
    ($($name:ident, $group:literal, $version:literal, $plural:literal, $namespaced:literal;)*) => {
        /// A kind that the product has a row for.
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        pub enum Kind {
            $(#[doc = concat!("`", $group, "/", $version, "`, ", $plural)] $name,)*
        }

        impl Kind {
            /// Every kind, in the order of their declaration.
            pub const ALL: &'static [Kind] = &[$(Kind::$name),*];

            /// The `kind` field of the object: `RayJob`.
            pub fn name(self) -> &'static str {
                match self { $(Kind::$name => stringify!($name),)* }
            }

            /// API group; empty for the core group.
            pub fn group(self) -> &'static str {
                match self { $(Kind::$name => $group,)* }
            }

            /// Version within the group.
            pub fn version(self) -> &'static str {
                match self { $(Kind::$name => $version,)* }
            }

            /// Resource name in paths: `rayjobs`.
            pub fn plural(self) -> &'static str {
                match self { $(Kind::$name => $plural,)* }
            }

            /// Whether objects of the kind live in a namespace.
            pub fn namespaced(self) -> bool {
                match self { $(Kind::$name => $namespaced,)* }
            }
        }
    };
}

kinds! {
    RayJob, "ray.io", "v1", "rayjobs", true;
    RayCluster, "ray.io", "v1", "rayclusters", true;
    RayService, "ray.io", "v1", "rayservices", true;
    RayCronJob, "ray.io", "v1", "raycronjobs", true;
    Placement, "rayfleet.io", "v1alpha1", "placements", true;
    PlacementPolicy, "rayfleet.io", "v1alpha1", "placementpolicies", true;
    MemberCluster, "rayfleet.io", "v1alpha1", "memberclusters", false;
    MemberCapacity, "rayfleet.io", "v1alpha1", "membercapacities", false;
    Pod, "", "v1", "pods", true;
    Service, "", "v1", "services", true;
    Secret, "", "v1", "secrets", true;
    ConfigMap, "", "v1", "configmaps", true;
    ServiceAccount, "", "v1", "serviceaccounts", true;
    Role, "rbac.authorization.k8s.io", "v1", "roles", true;
    RoleBinding, "rbac.authorization.k8s.io", "v1", "rolebindings", true;
    Ingress, "networking.k8s.io", "v1", "ingresses", true;
    Node, "", "v1", "nodes", false;
    Namespace, "", "v1", "namespaces", false;
    Job, "batch", "v1", "jobs", true;
    PodGroup, "scheduling.volcano.sh", "v1beta1", "podgroups", true;
    Queue, "scheduling.volcano.sh", "v1beta1", "queues", false;
    PriorityClass, "scheduling.k8s.io", "v1", "priorityclasses", false;
    Lease, "coordination.k8s.io", "v1", "leases", true;
    Event, "events.k8s.io", "v1", "events", true;
}

impl Kind {
    /// Kinds of root objects.
    pub const ROOTS: [Kind; 4] = [Kind::RayJob, Kind::RayCluster, Kind::RayService, Kind::RayCronJob];

    /// `apiVersion` as objects carry it: `ray.io/v1`, or `v1` for the core group.
    pub fn api_version(self) -> String {
        if self.group().is_empty() { self.version().to_owned() } else { format!("{}/{}", self.group(), self.version()) }
    }

    /// The kind with this `apiVersion` and `kind`, if it is one of ours.
    pub fn find(api_version: &str, kind: &str) -> Option<Kind> {
        Kind::ALL.iter().copied().find(|k| k.name() == kind && k.api_version() == api_version)
    }

    /// Path of the collection: `/apis/ray.io/v1/namespaces/ns/rayjobs`; all namespaces where `namespace` is `None`.
    pub fn collection_path(self, namespace: Option<&str>) -> String {
        let base = if self.group().is_empty() {
            format!("/api/{}", self.version())
        } else {
            format!("/apis/{}/{}", self.group(), self.version())
        };
        match namespace {
            Some(ns) if self.namespaced() => format!("{base}/namespaces/{ns}/{}", self.plural()),
            _ => format!("{base}/{}", self.plural()),
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_is_found_by_its_own_names() {
        for kind in Kind::ALL {
            assert_eq!(Kind::find(&kind.api_version(), kind.name()), Some(*kind));
        }
        assert_eq!(Kind::find("ray.io/v2", "RayJob"), None);
    }

    #[test]
    fn paths_follow_group_and_scope() {
        assert_eq!(Kind::Pod.collection_path(Some("a")), "/api/v1/namespaces/a/pods");
        assert_eq!(Kind::Node.collection_path(Some("a")), "/api/v1/nodes");
        assert_eq!(Kind::RayJob.collection_path(None), "/apis/ray.io/v1/rayjobs");
    }
}
