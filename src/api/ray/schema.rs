//! Pieces of schemas that the types of `ray.io/v1` share.
//! Must not know which fields use them.

use std::borrow::Cow;
use std::marker::PhantomData;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde_json::{Value, json};

/// Key of a schema that stands for a built-in type of Kubernetes: `crds` puts the type's own schema in its place.
pub const BUILTIN: &str = "x-builtin";

/// A field that is kept as JSON and has the schema of a built-in type.
pub(super) struct Builtin<T>(PhantomData<T>);

impl<T: JsonSchema> JsonSchema for Builtin<T> {
    fn schema_name() -> Cow<'static, str> {
        T::schema_name()
    }

    fn inline_schema() -> bool {
        true
    }

    /// The type's definitions by name, and which of them it is.
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        let mut generator = schemars::generate::SchemaSettings::openapi3().into_generator();
        let reference = generator.subschema_for::<T>();
        let definitions: Value = generator.take_definitions(true).into();
        json_schema!({ (BUILTIN): { "of": reference, "definitions": definitions } })
    }
}

/// Rules of `managedBy`: KubeRay's two values and ours; it never changes once set.
pub(super) fn managed_by_rules() -> Value {
    json!([
        { "message": "managedBy cannot be changed", "rule": "self == oldSelf" },
        {
            "message": "managedBy is one of 'ray.io/kuberay-operator', 'kueue.x-k8s.io/multikueue', 'rayfleet.io/hub'",
            "rule": "self in ['ray.io/kuberay-operator', 'kueue.x-k8s.io/multikueue', 'rayfleet.io/hub']",
        },
    ])
}

/// Form of a condition's type: one word, or a word behind a domain.
pub(super) const CONDITION_TYPE: &str =
    r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])$";

/// Form of a condition's reason: one word.
pub(super) const CONDITION_REASON: &str = "^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$";

/// Name → point in time.
pub(super) fn times(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "object", "additionalProperties": { "type": "string", "format": "date-time" } })
}
