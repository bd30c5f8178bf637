//! Built-in types of Kubernetes inside our definitions: pod templates, Services, environment, policies.
//! Must not know which fields of ours have them.
//!
//! Names and types of fields are k8s-openapi's. What a Go client's markers say beyond them (which lists have keys, which
//! maps are replaced whole, what an absent field means) stands in the tables below, by type: the API server needs it to
//! merge and to default as it does where KubeRay's own definitions are installed.
//!
//! Every object stays open (`x-kubernetes-preserve-unknown-fields`): a field of a newer Kubernetes than k8s-openapi knows
//! is kept, and reaches the member's pod. The price is that a misspelt field of a template is kept too;
//! `rayfleet validate` names it.

use serde_json::{Map, Value, json};

/// Lists with one item per key: type, field, keys.
const KEYED: &[(&str, &str, &[&str])] = &[
    ("PodSpec", "containers", &["name"]),
    ("PodSpec", "initContainers", &["name"]),
    ("PodSpec", "ephemeralContainers", &["name"]),
    ("PodSpec", "volumes", &["name"]),
    ("PodSpec", "imagePullSecrets", &["name"]),
    ("PodSpec", "hostAliases", &["ip"]),
    ("PodSpec", "resourceClaims", &["name"]),
    ("PodSpec", "schedulingGates", &["name"]),
    ("PodSpec", "topologySpreadConstraints", &["topologyKey", "whenUnsatisfiable"]),
    ("Container", "env", &["name"]),
    ("Container", "ports", &["containerPort", "protocol"]),
    ("Container", "volumeDevices", &["devicePath"]),
    ("Container", "volumeMounts", &["mountPath"]),
    ("EphemeralContainer", "env", &["name"]),
    ("EphemeralContainer", "ports", &["containerPort", "protocol"]),
    ("EphemeralContainer", "volumeDevices", &["devicePath"]),
    ("EphemeralContainer", "volumeMounts", &["mountPath"]),
    ("ResourceRequirements", "claims", &["name"]),
    ("ServiceSpec", "ports", &["port", "protocol"]),
    ("ServiceStatus", "conditions", &["type"]),
];

/// Lists without an order: type and field.
const SETS: &[(&str, &str)] = &[("ContainerRestartRuleOnExitCodes", "values")];

/// Objects that one writer owns whole, wherever they stand.
const WHOLE: &[&str] = &[
    "ConfigMapEnvSource",
    "ConfigMapKeySelector",
    "ConfigMapProjection",
    "ConfigMapVolumeSource",
    "FileKeySelector",
    "LabelSelector",
    "LocalObjectReference",
    "NodeSelector",
    "NodeSelectorTerm",
    "ObjectFieldSelector",
    "ResourceFieldSelector",
    "SecretEnvSource",
    "SecretKeySelector",
    "SecretProjection",
    "SecretReference",
    "TypedLocalObjectReference",
];

/// Maps that one writer owns whole: type and field.
const WHOLE_FIELDS: &[(&str, &str)] = &[("PodSpec", "nodeSelector"), ("ServiceSpec", "selector")];

/// What an absent field becomes: type, field, JSON.
const DEFAULTS: &[(&str, &str, &str)] = &[
    ("AzureDiskVolumeSource", "fsType", r#""ext4""#),
    ("AzureDiskVolumeSource", "readOnly", "false"),
    ("ConfigMapEnvSource", "name", r#""""#),
    ("ConfigMapKeySelector", "name", r#""""#),
    ("ConfigMapProjection", "name", r#""""#),
    ("ConfigMapVolumeSource", "name", r#""""#),
    ("ContainerPort", "protocol", r#""TCP""#),
    ("FileKeySelector", "optional", "false"),
    ("GRPCAction", "service", r#""""#),
    ("ISCSIVolumeSource", "iscsiInterface", r#""default""#),
    ("LocalObjectReference", "name", r#""""#),
    ("RBDVolumeSource", "keyring", r#""/etc/ceph/keyring""#),
    ("RBDVolumeSource", "pool", r#""rbd""#),
    ("RBDVolumeSource", "user", r#""admin""#),
    ("ScaleIOVolumeSource", "fsType", r#""xfs""#),
    ("ScaleIOVolumeSource", "storageMode", r#""ThinProvisioned""#),
    ("SecretEnvSource", "name", r#""""#),
    ("SecretKeySelector", "name", r#""""#),
    ("SecretProjection", "name", r#""""#),
    ("ServicePort", "protocol", r#""TCP""#),
];

/// Bounds of texts and numbers: type, field, what is added to its schema as JSON.
const BOUNDS: &[(&str, &str, &str)] = &[
    ("Condition", "message", r#"{"maxLength":32768}"#),
    ("Condition", "observedGeneration", r#"{"minimum":0}"#),
    ("Condition", "reason", r#"{"maxLength":1024,"minLength":1,"pattern":"^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$"}"#),
    ("Condition", "status", r#"{"enum":["True","False","Unknown"]}"#),
    ("Condition", "type", QUALIFIED),
    ("PortStatus", "error", QUALIFIED),
];

/// Fields that must be there, though Kubernetes' own description leaves them open: type and field.
const DEMANDED: &[(&str, &str)] = &[("PortStatus", "error")];

/// A word, or a word behind a domain.
const QUALIFIED: &str = r#"{"maxLength":316,"pattern":"^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])$"}"#;

/// Form of a quantity that is written as text.
const QUANTITY: &str = r"^(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))))?$";

/// Fields of metadata that a template or a base object may carry; the API server fills in the others of real objects.
const METADATA: &[&str] = &["annotations", "finalizers", "labels", "name", "namespace"];

/// Schema of a built-in type from what `api::ray` says of it: which of the definitions it is.
pub(super) fn schema(of: &Value) -> Value {
    resolved(&of["of"], &of["definitions"])
}

/// A schema with every reference in it replaced by what it refers to. No built-in type that we have contains itself.
fn resolved(schema: &Value, definitions: &Value) -> Value {
    let reference = schema["$ref"].as_str().or_else(|| schema["allOf"][0]["$ref"].as_str());
    if let Some(path) = reference {
        let name = path.rsplit('/').next().unwrap_or_default();
        return definition(name.rsplit('.').next().unwrap_or_default(), &definitions[name], definitions);
    }
    plain(schema, definitions)
}

/// A schema of a field or an item: type, bounds and what is inside; no prose.
fn plain(schema: &Value, definitions: &Value) -> Value {
    let mut out = Map::new();
    for key in ["type", "format", "required"] {
        if let Some(value) = schema.get(key) {
            out.insert(key.into(), value.clone());
        }
    }
    if let Some(Value::Object(properties)) = schema.get("properties") {
        let inner = properties.iter().map(|(name, sub)| (name.clone(), resolved(sub, definitions)));
        out.insert("properties".into(), Value::Object(inner.collect()));
    }
    for key in ["items", "additionalProperties"] {
        if let Some(sub) = schema.get(key).filter(|sub| sub.is_object()) {
            out.insert(key.into(), resolved(sub, definitions));
        }
    }
    Value::Object(out)
}

/// A named type with what the tables say of it.
fn definition(name: &str, schema: &Value, definitions: &Value) -> Value {
    let choice = json!([{ "type": "integer" }, { "type": "string" }]);
    match name {
        "Quantity" => return json!({ "anyOf": choice, "pattern": QUANTITY, "x-kubernetes-int-or-string": true }),
        "IntOrString" => return json!({ "anyOf": choice, "x-kubernetes-int-or-string": true }),
        _ => {}
    }
    let mut out = plain(schema, definitions);
    if out["type"] != "object" {
        return out;
    }
    if let Some(properties) = out["properties"].as_object_mut() {
        if name == "ObjectMeta" {
            properties.retain(|field, _| METADATA.contains(&field.as_str()));
        }
        for (field, sub) in properties.iter_mut() {
            mark(name, field, sub);
        }
    }
    // What has a default need not be there, nor what k8s-openapi asks for because it always writes it.
    let spared = |field: &Value| field == "metadata" || DEFAULTS.iter().any(|(t, f, _)| *t == name && field == f);
    if let Some(required) = out["required"].as_array_mut() {
        required.retain(|field| !spared(field));
        required.extend(DEMANDED.iter().filter(|(t, _)| *t == name).map(|(_, f)| Value::from(*f)));
    }
    if out["required"].as_array().is_none_or(Vec::is_empty)
        && let Some(map) = out.as_object_mut()
    {
        map.remove("required");
    }
    if WHOLE.contains(&name) {
        out["x-kubernetes-map-type"] = "atomic".into();
    }
    out["x-kubernetes-preserve-unknown-fields"] = true.into();
    out
}

/// What the tables say of one field.
fn mark(name: &str, field: &str, schema: &mut Value) {
    let here = |(t, f): (&str, &str)| t == name && f == field;
    if schema["type"] == "array" && name != "ObjectMeta" {
        let keys = KEYED.iter().find(|(t, f, _)| here((t, f)));
        let set = SETS.iter().any(|entry| here(*entry));
        schema["x-kubernetes-list-type"] = match (keys, set) {
            (Some(_), _) => "map",
            (_, true) => "set",
            _ => "atomic",
        }
        .into();
        if let Some((_, _, keys)) = keys {
            schema["x-kubernetes-list-map-keys"] = json!(keys);
        }
    }
    if WHOLE_FIELDS.iter().any(|entry| here(*entry)) {
        schema["x-kubernetes-map-type"] = "atomic".into();
    }
    let told = |text: &str| -> Value { serde_json::from_str(text).unwrap_or_default() };
    if let Some((_, _, default)) = DEFAULTS.iter().find(|(t, f, _)| here((t, f))) {
        schema["default"] = told(default);
    }
    if let Some((_, _, bounds)) = BOUNDS.iter().find(|(t, f, _)| here((t, f))) {
        for (key, value) in told(bounds).as_object().into_iter().flatten() {
            schema[key] = value.clone();
        }
    }
}
