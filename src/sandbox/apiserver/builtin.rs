//! The built-in types of the sandbox's API servers, as a real one of 1.36 serves them.
//! Must not know what their objects hold. Left out: groups that nothing here uses (admission, certificates, DRA, …).

use super::registry::{Group, ResourceType, Scale, SelectableField, Subresource, api_version};

const ALL: &[&str] = &["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"];
const NO_COLLECTION: &[&str] = &["create", "delete", "get", "list", "patch", "update", "watch"];
const READ_WRITE: &[&str] = &["get", "patch", "update"];

const CORE: &str = "";
const APPS: &str = "apps";
const EVENTS: &str = "events.k8s.io";
const AUTHENTICATION: &str = "authentication.k8s.io";
const AUTHORIZATION: &str = "authorization.k8s.io";
const AUTOSCALING: &str = "autoscaling";
const BATCH: &str = "batch";
const NETWORKING: &str = "networking.k8s.io";
const POLICY: &str = "policy";
const RBAC: &str = "rbac.authorization.k8s.io";
const STORAGE: &str = "storage.k8s.io";
const EXTENSIONS: &str = "apiextensions.k8s.io";
const SCHEDULING: &str = "scheduling.k8s.io";
const COORDINATION: &str = "coordination.k8s.io";
const DISCOVERY: &str = "discovery.k8s.io";

/// All groups in the order in which discovery lists them, the core group first.
pub(super) fn groups() -> Vec<Group> {
    [
        CORE,
        APPS,
        EVENTS,
        AUTHENTICATION,
        AUTHORIZATION,
        AUTOSCALING,
        BATCH,
        NETWORKING,
        POLICY,
        RBAC,
        STORAGE,
        EXTENSIONS,
        SCHEDULING,
        COORDINATION,
        DISCOVERY,
    ]
    .into_iter()
    .map(|name| Group {
        name: name.to_owned(),
        versions: if name == AUTOSCALING { vec!["v2".to_owned(), "v1".to_owned()] } else { vec!["v1".to_owned()] },
    })
    .collect()
}

/// Every built-in type.
pub(super) fn types() -> Vec<ResourceType> {
    let mut types = core();
    types.extend(workloads());
    types.extend(rest());
    types
}

fn core() -> Vec<ResourceType> {
    vec![
        call(CORE, "Binding").scoped(true),
        stored(CORE, "v1", "ConfigMap").short("cm"),
        stored(CORE, "v1", "Endpoints").short("ep").plural("endpoints"),
        event(CORE),
        stored(CORE, "v1", "LimitRange").short("limits"),
        stored(CORE, "v1", "Namespace")
            .short("ns")
            .scoped(false)
            .verbs(NO_COLLECTION)
            .sub("finalize", &["update"])
            .status()
            .field("status.phase", "status.phase", ""),
        stored(CORE, "v1", "Node")
            .short("no")
            .scoped(false)
            .sub_of("proxy", CORE, "v1", "NodeProxyOptions", PROXY)
            .status()
            .field("spec.unschedulable", "spec.unschedulable", "false"),
        stored(CORE, "v1", "PersistentVolumeClaim").short("pvc").status(),
        stored(CORE, "v1", "PersistentVolume").short("pv").scoped(false).status(),
        pod(),
        stored(CORE, "v1", "PodTemplate"),
        stored(CORE, "v1", "ReplicationController").short("rc").all().generation().scaled().status().field(
            "status.replicas",
            "status.replicas",
            "0",
        ),
        stored(CORE, "v1", "ResourceQuota").short("quota").status(),
        stored(CORE, "v1", "Secret").field("type", "type", ""),
        stored(CORE, "v1", "ServiceAccount").short("sa").sub_of(
            "token",
            AUTHENTICATION,
            "v1",
            "TokenRequest",
            &["create"],
        ),
        stored(CORE, "v1", "Service")
            .short("svc")
            .all()
            .sub_of("proxy", CORE, "v1", "ServiceProxyOptions", PROXY)
            .status()
            .field("spec.clusterIP", "spec.clusterIP", "")
            .field("spec.type", "spec.type", ""),
    ]
}

const PROXY: &[&str] = &["create", "delete", "get", "patch", "update"];

fn pod() -> ResourceType {
    let mut pod = stored(CORE, "v1", "Pod")
        .short("po")
        .all()
        .generation()
        .sub_of("attach", CORE, "v1", "PodAttachOptions", &["create", "get"])
        .sub_of("binding", CORE, "v1", "Binding", &["create"])
        .sub("ephemeralcontainers", READ_WRITE)
        .sub_of("eviction", POLICY, "v1", "Eviction", &["create"])
        .sub_of("exec", CORE, "v1", "PodExecOptions", &["create", "get"])
        .sub("log", &["get"])
        .sub_of("portforward", CORE, "v1", "PodPortForwardOptions", &["create", "get"])
        .sub_of("proxy", CORE, "v1", "PodProxyOptions", PROXY)
        .sub("resize", READ_WRITE)
        .status()
        .field("spec.hostNetwork", "spec.hostNetwork", "false");
    for label in [
        "spec.nodeName",
        "spec.restartPolicy",
        "spec.schedulerName",
        "spec.serviceAccountName",
        "status.nominatedNodeName",
        "status.phase",
        "status.podIP",
    ] {
        pod = pod.field(label, label, "");
    }
    pod
}

fn workloads() -> Vec<ResourceType> {
    vec![
        stored(APPS, "v1", "ControllerRevision"),
        stored(APPS, "v1", "DaemonSet").short("ds").all().generation().status(),
        stored(APPS, "v1", "Deployment").short("deploy").all().generation().scaled().status(),
        stored(APPS, "v1", "ReplicaSet").short("rs").all().generation().scaled().status().field(
            "status.replicas",
            "status.replicas",
            "0",
        ),
        stored(APPS, "v1", "StatefulSet").short("sts").all().generation().scaled().status(),
        stored(BATCH, "v1", "CronJob").short("cj").all().generation().status(),
        stored(BATCH, "v1", "Job").all().generation().status().field("status.successful", "status.succeeded", "0"),
    ]
}

fn rest() -> Vec<ResourceType> {
    vec![
        event(EVENTS),
        call(AUTHENTICATION, "SelfSubjectReview"),
        call(AUTHENTICATION, "TokenReview"),
        call(AUTHORIZATION, "LocalSubjectAccessReview").scoped(true),
        call(AUTHORIZATION, "SelfSubjectAccessReview"),
        call(AUTHORIZATION, "SelfSubjectRulesReview"),
        call(AUTHORIZATION, "SubjectAccessReview"),
        stored(AUTOSCALING, "v2", "HorizontalPodAutoscaler").short("hpa").all().stored_as("v2").status(),
        stored(AUTOSCALING, "v1", "HorizontalPodAutoscaler").short("hpa").all().stored_as("v2").status(),
        stored(NETWORKING, "v1", "IngressClass").scoped(false).plural("ingressclasses").generation(),
        stored(NETWORKING, "v1", "Ingress").short("ing").plural("ingresses").generation().status(),
        stored(NETWORKING, "v1", "IPAddress").short("ip").scoped(false).plural("ipaddresses").field(
            "spec.parentRef.name",
            "spec.parentRef.name",
            "",
        ),
        stored(NETWORKING, "v1", "NetworkPolicy").short("netpol").plural("networkpolicies").generation(),
        stored(NETWORKING, "v1", "ServiceCIDR").scoped(false).status(),
        stored(POLICY, "v1", "PodDisruptionBudget").short("pdb").generation().status(),
        stored(RBAC, "v1", "ClusterRoleBinding").scoped(false),
        stored(RBAC, "v1", "ClusterRole").scoped(false),
        stored(RBAC, "v1", "RoleBinding"),
        stored(RBAC, "v1", "Role"),
        stored(STORAGE, "v1", "CSIDriver").scoped(false),
        stored(STORAGE, "v1", "CSINode").scoped(false),
        stored(STORAGE, "v1", "CSIStorageCapacity").plural("csistoragecapacities"),
        stored(STORAGE, "v1", "StorageClass").short("sc").scoped(false).plural("storageclasses"),
        stored(STORAGE, "v1", "VolumeAttachment").scoped(false).status(),
        stored(STORAGE, "v1", "VolumeAttributesClass").short("vac").scoped(false).plural("volumeattributesclasses"),
        stored(EXTENSIONS, "v1", "CustomResourceDefinition")
            .short("crd")
            .short("crds")
            .category("api-extensions")
            .hashed_as("v1beta1")
            .scoped(false)
            .generation()
            .status(),
        stored(SCHEDULING, "v1", "PriorityClass").short("pc").scoped(false).plural("priorityclasses").generation(),
        stored(COORDINATION, "v1", "Lease").conditional(),
        stored(DISCOVERY, "v1", "EndpointSlice").generation(),
    ]
}

/// Both kinds of Event are one set of objects; they are kept in the form of the core group.
fn event(group: &str) -> ResourceType {
    let mut ty = stored(group, "v1", "Event").short("ev");
    ty.storage_key = "/events".into();
    "v1".clone_into(&mut ty.storage_api_version);
    ty.storage_hash = super::registry::storage_hash("", "v1", "Event");
    let object = if group == CORE { "involvedObject" } else { "regarding" };
    for part in ["apiVersion", "fieldPath", "kind", "name", "namespace", "resourceVersion", "uid"] {
        // Selectors look at what is stored, whatever it is called in this group.
        ty = ty.field(&format!("{object}.{part}"), &format!("involvedObject.{part}"), "");
    }
    if group == CORE {
        ty.field("reason", "reason", "")
            .field("reportingComponent", "reportingComponent", "")
            .field("source", "source.component", "")
            .field("type", "type", "")
    } else {
        ty.field("reason", "reason", "")
            .field("reportingController", "reportingComponent", "")
            .field("type", "type", "")
    }
}

/// A type with objects: namespaced, all verbs, plural with `s`.
fn stored(group: &str, version: &str, kind: &str) -> ResourceType {
    let singular = kind.to_lowercase();
    ResourceType {
        group: group.to_owned(),
        version: version.to_owned(),
        kind: kind.to_owned(),
        list_kind: format!("{kind}List"),
        plural: format!("{singular}s"),
        short_names: Vec::new(),
        categories: Vec::new(),
        namespaced: true,
        has_status: false,
        has_generation: false,
        unconditional_update: true,
        create_on_update: CREATE_ON_UPDATE.contains(&kind),
        scale: None,
        columns: Vec::new(),
        schema: None,
        definition: None,
        verbs: ALL.iter().map(|v| (*v).to_owned()).collect(),
        subresources: Vec::new(),
        builtin: true,
        selectable_fields: Vec::new(),
        storage_key: format!("{group}/{singular}s").into(),
        storage_api_version: api_version(group, version),
        deprecation: None,
        terminating: false,
        storage_hash: super::registry::storage_hash(group, version, kind),
        singular,
    }
}

/// Kinds that a PUT may create (`AllowCreateOnUpdate` of their strategies).
const CREATE_ON_UPDATE: &[&str] = &[
    "Endpoints",
    "Event",
    "LimitRange",
    "Lease",
    "Service",
    "ClusterRole",
    "ClusterRoleBinding",
    "Role",
    "RoleBinding",
];

/// A question that is answered and not kept.
fn call(group: &str, kind: &str) -> ResourceType {
    ResourceType { storage_hash: String::new(), ..stored(group, "v1", kind).verbs(&["create"]).scoped(false) }
}

/// Only this file builds types step by step.
impl ResourceType {
    fn plural(mut self, plural: &str) -> Self {
        plural.clone_into(&mut self.plural);
        self.storage_key = format!("{}/{plural}", self.group).into();
        if self.kind == "Endpoints" {
            plural.clone_into(&mut self.singular);
        }
        self
    }

    fn short(mut self, name: &str) -> Self {
        self.short_names.push(name.to_owned());
        self
    }

    fn category(mut self, name: &str) -> Self {
        self.categories.push(name.to_owned());
        self
    }

    fn all(self) -> Self {
        self.category("all")
    }

    fn scoped(mut self, namespaced: bool) -> Self {
        self.namespaced = namespaced;
        self
    }

    fn verbs(mut self, verbs: &[&str]) -> Self {
        self.verbs = verbs.iter().map(|v| (*v).to_owned()).collect();
        self
    }

    /// A PUT must name the version that it replaces.
    fn conditional(mut self) -> Self {
        self.unconditional_update = false;
        self
    }

    fn generation(mut self) -> Self {
        self.has_generation = true;
        self
    }

    fn stored_as(mut self, version: &str) -> Self {
        self.storage_api_version = api_version(&self.group, version);
        self.storage_hash = super::registry::storage_hash(&self.group, version, &self.kind);
        self
    }

    /// CRDs are stored in a version that is no longer served: only the hash shows it.
    fn hashed_as(mut self, version: &str) -> Self {
        self.storage_hash = super::registry::storage_hash(&self.group, version, &self.kind);
        self
    }

    fn field(mut self, label: &str, path: &str, default: &str) -> Self {
        self.selectable_fields.push(SelectableField {
            label: label.to_owned(),
            path: path.to_owned(),
            default: default.to_owned(),
        });
        self
    }

    /// A part of the object in the form of the whole object.
    fn sub(self, name: &str, verbs: &[&str]) -> Self {
        let (group, version, kind) = (self.group.clone(), self.version.clone(), self.kind.clone());
        self.sub_of(name, &group, &version, &kind, verbs)
    }

    fn sub_of(mut self, name: &str, group: &str, version: &str, kind: &str, verbs: &[&str]) -> Self {
        self.subresources.push(Subresource {
            name: name.to_owned(),
            group: group.to_owned(),
            version: version.to_owned(),
            kind: kind.to_owned(),
            verbs: verbs.iter().map(|v| (*v).to_owned()).collect(),
        });
        self
    }

    fn status(mut self) -> Self {
        self.has_status = true;
        self.sub("status", READ_WRITE)
    }

    fn scaled(mut self) -> Self {
        self.scale = Some(Scale {
            spec_replicas: ".spec.replicas".to_owned(),
            status_replicas: ".status.replicas".to_owned(),
            label_selector: None,
        });
        self.sub_of("scale", AUTOSCALING, "v1", "Scale", READ_WRITE)
    }
}
