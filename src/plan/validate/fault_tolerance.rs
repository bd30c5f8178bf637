//! KubeRay's rules for the head's state outside the head (specs/raycluster.md 1.11, B6 to B9).
//! Must not know what is done with it.

use super::cluster::param;
use super::{Carrier, GATE_OFF, Rule, broken};
use crate::api::ray::{Container, GcsFaultToleranceOptions, PodTemplate, RayClusterSpec};

/// Name of the embedded store's volume, and where it is mounted.
const VOLUME: &str = "gcs-storage";
const MOUNT: &str = "/data/gcs";

/// All of them.
pub(super) fn rules(spec: &RayClusterSpec, ray: Container<'_>, at: &str, carrier: Carrier<'_>) -> Rule {
    let switch = carrier.metadata.annotation("ray.io/ft-enabled");
    let options = spec.gcs_fault_tolerance_options.as_ref();
    let at_options = format!("{at}.gcsFaultToleranceOptions");
    if !switch.is_empty() && options.is_some() {
        return broken(&at_options, "and annotation ray.io/ft-enabled exclude each other");
    }
    if options.is_none() && !switch.eq_ignore_ascii_case("true") && ray.has_env("RAY_REDIS_ADDRESS") {
        return broken(&at_options, "must be set if the head's environment has RAY_REDIS_ADDRESS");
    }
    let Some(options) = options else { return Ok(()) };
    let head = spec.head();
    if param(head.ray_start_params.as_ref(), "redis-password") || ray.has_env("REDIS_PASSWORD") {
        return broken(format!("{at_options}.redisPassword"), "is where the Redis password is given");
    }
    if ray.has_env("RAY_REDIS_ADDRESS") {
        return broken(format!("{at_options}.redisAddress"), "is where the Redis address is given");
    }
    if !carrier.metadata.annotation("ray.io/external-storage-namespace").is_empty() {
        return broken(format!("{at_options}.externalStorageNamespace"), "is where the storage namespace is given");
    }
    if options.backend.as_deref() == Some("rocksdb") {
        if !carrier.gates.embedded_storage {
            return broken(format!("{at_options}.backend"), format!("rocksdb {GATE_OFF}"));
        }
        return embedded(options, &head.template, ray, &at_options);
    }
    if options.storage.is_some() {
        return broken(format!("{at_options}.storage"), "belongs to backend rocksdb");
    }
    Ok(())
}

/// The embedded store: nothing of Redis, one source of the volume, and its names free.
fn embedded(options: &GcsFaultToleranceOptions, head: &PodTemplate, ray: Container<'_>, at: &str) -> Rule {
    let text = |value: &Option<String>| value.as_deref().is_some_and(|v| !v.is_empty());
    for (set, field) in [
        (text(&options.redis_address), "redisAddress"),
        (options.redis_username.is_some(), "redisUsername"),
        (options.redis_password.is_some(), "redisPassword"),
        (text(&options.external_storage_namespace), "externalStorageNamespace"),
    ] {
        if set {
            return broken(format!("{at}.{field}"), "belongs to backend redis");
        }
    }
    if let Some(storage) = &options.storage
        && text(&storage.claim_name)
    {
        for (set, field) in [
            (storage.size.is_some(), "size"),
            (text(&storage.storage_class_name), "storageClassName"),
            (storage.access_modes.as_ref().is_some_and(|modes| !modes.is_empty()), "accessModes"),
        ] {
            if set {
                return broken(format!("{at}.storage.{field}"), "and claimName exclude each other");
            }
        }
    }
    for name in ["RAY_gcs_storage", "RAY_gcs_storage_path"] {
        if ray.has_env(name) {
            return broken(format!("{at}.backend"), format!("and {name} in the head's environment exclude each other"));
        }
    }
    if ray.mounts().any(|(path, name)| path == MOUNT || name == VOLUME) {
        return broken(
            format!("{at}.backend"),
            format!("needs {MOUNT} and the name {VOLUME} free in the head's mounts"),
        );
    }
    if head.0["spec"]["volumes"].as_array().into_iter().flatten().any(|volume| volume["name"] == VOLUME) {
        return broken(format!("{at}.backend"), format!("needs the name {VOLUME} free among the head's volumes"));
    }
    Ok(())
}
