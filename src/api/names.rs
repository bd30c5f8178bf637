//! Labels, annotations and finalizers: each name once.
//! Must not know when they are set.

/// Root id, on everything that we write on a member.
pub const ROOT_ID: &str = "rayfleet.io/root-id";
/// Fleet id, on everything that we write on a member.
pub const FLEET_ID: &str = "rayfleet.io/fleet-id";
/// On namespace `kube-system` of a member: fleet, member and UID of the `MemberCluster` that it is registered as.
pub const REGISTERED_BY: &str = "rayfleet.io/registered-by";
/// Last epoch of each unit that wrote the object: JSON object, unit → epoch (`sharding.md` 1.8).
pub const STAMPS: &str = "rayfleet.io/stamps";
/// On a mirror: generation of its `Placement`.
pub const GENERATION: &str = "rayfleet.io/placement-generation";
/// On a mirror: kind, namespace and name of the root object on the hub, joined with `/`.
pub const ROOT: &str = "rayfleet.io/root";
/// On a mirror: hash of the root's spec that it was last made equal to.
pub const SPEC_HASH: &str = "rayfleet.io/spec-hash";
/// On a copied Secret, ConfigMap or ServiceAccount: hash of what was copied.
pub const COPY_HASH: &str = "rayfleet.io/copy-hash";
/// Index label on the root object for people and selectors: where it is.
pub const CLUSTER_LABEL: &str = "rayfleet.io/cluster";
/// Index label on the root object for people and selectors: stage of its `Placement`.
pub const STAGE_LABEL: &str = "rayfleet.io/stage";

/// KubeRay's, on a RayCluster: its head is not made again once all of it has run.
pub const DISABLE_HEAD_RESTART: &str = "ray.io/disable-provisioned-head-restart";

/// On a RayCronJob that is not carried out: why, in a sentence. Its status has no place for that.
pub const REFUSED: &str = "rayfleet.io/refused";

/// Holds the root object on the hub until what it has on members is gone.
pub const ROOT_FINALIZER: &str = "rayfleet.io/root";
/// Holds the `Placement`.
pub const PLACEMENT_FINALIZER: &str = "rayfleet.io/placement";
/// Holds a mirror, also a deleted one: then it is a tombstone (`sharding.md` 1.6).
pub const TOMBSTONE_FINALIZER: &str = "rayfleet.io/tombstone";
/// Holds a `MemberCluster` while anything stands on its member.
pub const MEMBER_FINALIZER: &str = "rayfleet.io/member";
/// On a `MemberCluster` that is being deleted, with its own name as value: a person's word that the cluster is gone for
/// good and nothing on it can run any more.
pub const GONE_FOR_GOOD: &str = "rayfleet.io/gone-for-good";
/// KubeRay's own finalizer of a RayJob (specs/rayjob.md 15).
pub const RAYJOB_FINALIZER: &str = "ray.io/rayjob-finalizer";
/// KubeRay's own finalizer of a RayCluster whose state in Redis goes with it (specs/raycluster.md 2.4).
pub const REDIS_FINALIZER: &str = "ray.io/gcs-ft-redis-cleanup-finalizer";
/// Kubernetes: set by a deletion in the foreground, until the collector has taken what is below.
pub const FOREGROUND_FINALIZER: &str = "foregroundDeletion";

/// Volcano's queue of an object.
pub const QUEUE_LABEL: &str = "volcano.sh/queue-name";
/// KubeRay: the RayCluster that a pod or service belongs to.
pub const RAY_CLUSTER_LABEL: &str = "ray.io/cluster";
/// KubeRay: `head`, `worker` or `redis-cleanup`.
pub const RAY_NODE_TYPE_LABEL: &str = "ray.io/node-type";
/// KubeRay: name of the worker group, or `headgroup`.
pub const RAY_GROUP_LABEL: &str = "ray.io/group";
/// KubeRay: name of the object that made this RayCluster.
pub const ORIGINATED_NAME_LABEL: &str = "ray.io/originated-from-cr-name";
/// KubeRay: kind of the object that made this RayCluster.
pub const ORIGINATED_KIND_LABEL: &str = "ray.io/originated-from-crd";
/// Volcano: PodGroup of a pod (annotation).
pub const POD_GROUP_ANNOTATION: &str = "scheduling.k8s.io/group-name";
/// Volcano: task of a pod within its PodGroup (annotation).
pub const TASK_SPEC_ANNOTATION: &str = "volcano.sh/task-spec";

/// `managedBy` values that mean us; unset means us too (`architecture.md` section 2).
pub const MANAGED_BY_US: &[&str] = &["ray.io/kuberay-operator", "rayfleet.io/hub"];
