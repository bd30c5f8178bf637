//! Each rule of specs/raycluster.md 1.11, with what breaks it and where that is said.

use serde_json::json;

use super::{all_gates, cluster, cluster_by, group, rules};
use crate::plan::build::{TOPOLOGY_MODE_LABEL, TOPOLOGY_TIER_LABEL};
use crate::plan::validate::{Gates, ray_cluster_warning};

const METADATA: &str = "InvalidRayClusterMetadata";
const SPEC: &str = "InvalidRayClusterSpec";
const STATUS: &str = "InvalidRayClusterStatus";

const HEAD_ENV: &str = "spec.headGroupSpec.template.spec.containers[0].env";
const GCS: &str = "spec.gcsFaultToleranceOptions";

rules! { cluster METADATA
    a_cluster_name_has_at_most_53_characters:
        [("metadata.name", json!("x".repeat(54)))] => "metadata.name";
    a_cluster_name_is_a_dns_1035_label:
        [("metadata.name", json!("1c"))] => "metadata.name",
        [("metadata.name", json!("C"))] => "metadata.name",
        [("metadata.name", json!("c."))] => "metadata.name";
}

rules! { cluster SPEC
    a_head_has_a_container:
        [("spec.headGroupSpec.template.spec.containers", json!([]))] => "spec.headGroupSpec.template.spec.containers";
    resources_stand_in_the_group_or_in_its_start_params:
        [("spec.headGroupSpec.resources", json!({"CPU": "1"})), ("spec.headGroupSpec.rayStartParams.num-cpus", json!("1"))]
            => "spec.headGroupSpec.resources",
        [("spec.workerGroupSpecs[0].resources", json!({"GPU": "1"})), ("spec.workerGroupSpecs[0].rayStartParams.memory", json!("1"))]
            => "spec.workerGroupSpecs[0].resources";
    labels_do_not_stand_in_start_params:
        [("spec.headGroupSpec.rayStartParams.labels", json!(""))] => "spec.headGroupSpec.rayStartParams.labels",
        [("spec.workerGroupSpecs[0].rayStartParams.labels", json!("a=b"))] => "spec.workerGroupSpecs[0].rayStartParams.labels";
    labels_of_a_group_are_labels:
        [("spec.headGroupSpec.labels", json!({"a b": "c"}))] => "spec.headGroupSpec.labels",
        [("spec.workerGroupSpecs[0].labels", json!({"a": "-b"}))] => "spec.workerGroupSpecs[0].labels";
    a_worker_group_has_a_container:
        [("spec.workerGroupSpecs[0].template.spec.containers", json!([]))]
            => "spec.workerGroupSpecs[0].template.spec.containers";
    without_autoscaling_a_group_has_both_bounds:
        [("spec.workerGroupSpecs[0].minReplicas", json!(null))] => "spec.workerGroupSpecs[0].minReplicas",
        [("spec.workerGroupSpecs[0].maxReplicas", json!(null))] => "spec.workerGroupSpecs[0].maxReplicas";
    bounds_of_a_group_are_not_negative:
        [("spec.workerGroupSpecs[0].minReplicas", json!(-1))] => "spec.workerGroupSpecs[0].minReplicas",
        [("spec.workerGroupSpecs[0].maxReplicas", json!(-1))] => "spec.workerGroupSpecs[0].maxReplicas";
    the_lower_bound_of_a_group_is_not_above_its_upper_one:
        [("spec.workerGroupSpecs[0].minReplicas", json!(3))] => "spec.workerGroupSpecs[0].minReplicas";
    an_idle_timeout_of_a_group_needs_autoscaler_v2:
        [("spec.workerGroupSpecs[0].idleTimeoutSeconds", json!(-1))] => "spec.workerGroupSpecs[0].idleTimeoutSeconds",
        [("spec.workerGroupSpecs[0].idleTimeoutSeconds", json!(60))] => "spec.workerGroupSpecs[0].idleTimeoutSeconds";
    a_priority_of_a_group_needs_ray_2_56_and_autoscaler_v2:
        [("spec.workerGroupSpecs[0].priority", json!(1))] => "spec.workerGroupSpecs[0].priority",
        [("spec.workerGroupSpecs[0].priority", json!(1)), ("spec.rayVersion", json!("nightly"))]
            => "spec.workerGroupSpecs[0].priority",
        [("spec.workerGroupSpecs[0].priority", json!(1)), ("spec.rayVersion", json!("2.55.9"))]
            => "spec.workerGroupSpecs[0].priority",
        [("spec.workerGroupSpecs[0].priority", json!(1)), ("spec.rayVersion", json!("2.56.0"))]
            => "spec.workerGroupSpecs[0].priority";
    the_annotation_and_the_options_of_fault_tolerance_exclude_each_other:
        [(GCS, json!({})), ("metadata.annotations", json!({"ray.io/ft-enabled": "false"}))] => GCS;
    a_redis_address_in_the_head_needs_fault_tolerance:
        [(HEAD_ENV, json!([{"name": "RAY_REDIS_ADDRESS", "value": "r:1"}]))] => GCS;
    with_options_redis_is_described_in_them_alone:
        [(GCS, json!({})), ("spec.headGroupSpec.rayStartParams.redis-password", json!("x"))]
            => "spec.gcsFaultToleranceOptions.redisPassword",
        [(GCS, json!({})), (HEAD_ENV, json!([{"name": "REDIS_PASSWORD", "value": "x"}]))]
            => "spec.gcsFaultToleranceOptions.redisPassword",
        [(GCS, json!({})), (HEAD_ENV, json!([{"name": "RAY_REDIS_ADDRESS", "value": "x"}]))]
            => "spec.gcsFaultToleranceOptions.redisAddress",
        [(GCS, json!({})), ("metadata.annotations", json!({"ray.io/external-storage-namespace": "x"}))]
            => "spec.gcsFaultToleranceOptions.externalStorageNamespace";
    the_embedded_store_needs_its_gate:
        [(GCS, json!({"backend": "rocksdb"}))] => "spec.gcsFaultToleranceOptions.backend";
    storage_belongs_to_the_embedded_store:
        [(GCS, json!({"redisAddress": "r:1", "storage": {}}))] => "spec.gcsFaultToleranceOptions.storage";
    a_redis_user_is_given_in_the_options_alone:
        [("spec.headGroupSpec.rayStartParams.redis-username", json!("x"))]
            => "spec.gcsFaultToleranceOptions.redisUsername",
        [(HEAD_ENV, json!([{"name": "REDIS_USERNAME", "value": "x"}]))] => "spec.gcsFaultToleranceOptions.redisUsername";
    autoscaler_v2_in_the_heads_environment_needs_autoscaling:
        [(HEAD_ENV, json!([{"name": "RAY_enable_autoscaler_v2", "value": "1"}]))] => "spec.enableInTreeAutoscaling";
    no_group_is_suspended_with_autoscaling:
        [("spec.enableInTreeAutoscaling", json!(true)), ("spec.workerGroupSpecs[0].suspend", json!(true))]
            => "spec.workerGroupSpecs[0].suspend";
    the_autoscalers_version_stands_in_one_place:
        [("spec.enableInTreeAutoscaling", json!(true)), ("spec.autoscalerOptions.version", json!("v1")),
         (HEAD_ENV, json!([{"name": "RAY_enable_autoscaler_v2", "value": "0"}]))] => "spec.autoscalerOptions.version";
    with_autoscaler_v2_no_pod_restarts:
        [("spec.enableInTreeAutoscaling", json!(true)), ("spec.autoscalerOptions.version", json!("v2")),
         ("spec.headGroupSpec.template.spec.restartPolicy", json!("Always"))]
            => "spec.headGroupSpec.template.spec.restartPolicy",
        [("spec.enableInTreeAutoscaling", json!(true)), ("spec.autoscalerOptions.version", json!("v2")),
         ("spec.workerGroupSpecs[0].template.spec.restartPolicy", json!("OnFailure"))]
            => "spec.workerGroupSpecs[0].template.spec.restartPolicy";
    the_autoscalers_idle_timeout_is_not_negative:
        [("spec.autoscalerOptions.idleTimeoutSeconds", json!(-1))] => "spec.autoscalerOptions.idleTimeoutSeconds";
    the_autoscalers_start_command_is_not_set:
        [("spec.autoscalerOptions.env", json!([{"name": "KUBERAY_GEN_AUTOSCALER_START_CMD"}]))]
            => "spec.autoscalerOptions.env";
    the_history_server_needs_its_gate:
        [("spec.historyServerOptions", json!({}))] => "spec.historyServerOptions";
    token_authentication_needs_ray_2_52:
        [("spec.authOptions.mode", json!("token"))] => "spec.authOptions.mode",
        [("spec.authOptions.mode", json!("token")), ("spec.rayVersion", json!("2.51.9"))] => "spec.authOptions.mode";
    authentication_by_kubernetes_needs_ray_2_55_and_no_secret_and_mode_token:
        [("spec.authOptions", json!({"mode": "token", "enableK8sTokenAuth": true})), ("spec.rayVersion", json!("2.54.0"))]
            => "spec.authOptions.enableK8sTokenAuth",
        [("spec.authOptions", json!({"mode": "token", "enableK8sTokenAuth": true, "secretName": "s"})),
         ("spec.rayVersion", json!("2.55.0"))] => "spec.authOptions.secretName",
        [("spec.authOptions", json!({"enableK8sTokenAuth": true})), ("spec.rayVersion", json!("2.55.0"))]
            => "spec.authOptions.enableK8sTokenAuth";
    network_policies_need_their_gate:
        [("spec.networkPolicy", json!({}))] => "spec.networkPolicy";
    mtls_needs_its_gate_also_when_it_is_off:
        [("spec.tlsOptions", json!({"enabled": false}))] => "spec.tlsOptions";
    an_upgrade_strategy_is_recreate_or_none:
        [("spec.upgradeStrategy.type", json!("Rolling"))] => "spec.upgradeStrategy.type";
    a_cluster_that_a_job_or_service_made_has_no_upgrade_strategy:
        [("spec.upgradeStrategy.type", json!("None")), ("metadata.labels", json!({"ray.io/originated-from-crd": "RayJob"}))]
            => "spec.upgradeStrategy.type",
        [("spec.upgradeStrategy.type", json!("Recreate")),
         ("metadata.labels", json!({"ray.io/originated-from-crd": "RayService"}))] => "spec.upgradeStrategy.type";
}

rules! { cluster STATUS
    a_cluster_is_not_suspending_and_suspended_at_once:
        [("status.conditions", json!([
            {"type": "RayClusterSuspending", "status": "True"}, {"type": "RayClusterSuspended", "status": "True"},
        ]))] => "status.conditions";
}

const COLLECTOR: &str = "spec.historyServerOptions.collectorOptions";
const COLLECTOR_ENV: &str = "spec.historyServerOptions.collectorOptions.env";

/// A collector with this environment.
fn collector(env: &[(&str, &str)]) -> serde_json::Value {
    let env: Vec<_> = env.iter().map(|(name, value)| json!({"name": name, "value": value})).collect();
    json!({"image": "i", "env": env})
}

// With every gate on.
rules! { all_gates SPEC
    the_embedded_store_takes_nothing_of_redis:
        [(GCS, json!({"backend": "rocksdb", "redisAddress": "r"}))] => "spec.gcsFaultToleranceOptions.redisAddress",
        [(GCS, json!({"backend": "rocksdb", "redisUsername": {}}))] => "spec.gcsFaultToleranceOptions.redisUsername",
        [(GCS, json!({"backend": "rocksdb", "redisPassword": {}}))] => "spec.gcsFaultToleranceOptions.redisPassword",
        [(GCS, json!({"backend": "rocksdb", "externalStorageNamespace": "x"}))]
            => "spec.gcsFaultToleranceOptions.externalStorageNamespace";
    a_claim_that_exists_is_not_described:
        [(GCS, json!({"backend": "rocksdb", "storage": {"claimName": "c", "size": "1Gi"}}))]
            => "spec.gcsFaultToleranceOptions.storage.size",
        [(GCS, json!({"backend": "rocksdb", "storage": {"claimName": "c", "storageClassName": "s"}}))]
            => "spec.gcsFaultToleranceOptions.storage.storageClassName",
        [(GCS, json!({"backend": "rocksdb", "storage": {"claimName": "c", "accessModes": ["ReadWriteOnce"]}}))]
            => "spec.gcsFaultToleranceOptions.storage.accessModes";
    the_embedded_stores_names_are_free:
        [(GCS, json!({"backend": "rocksdb"})), (HEAD_ENV, json!([{"name": "RAY_gcs_storage", "value": "x"}]))]
            => "spec.gcsFaultToleranceOptions.backend",
        [(GCS, json!({"backend": "rocksdb"})), (HEAD_ENV, json!([{"name": "RAY_gcs_storage_path", "value": "x"}]))]
            => "spec.gcsFaultToleranceOptions.backend",
        [(GCS, json!({"backend": "rocksdb"})),
         ("spec.headGroupSpec.template.spec.containers[0].volumeMounts", json!([{"name": "v", "mountPath": "/data/gcs"}]))]
            => "spec.gcsFaultToleranceOptions.backend",
        [(GCS, json!({"backend": "rocksdb"})), ("spec.headGroupSpec.template.spec.volumes", json!([{"name": "gcs-storage"}]))]
            => "spec.gcsFaultToleranceOptions.backend";
    the_history_server_has_a_collector_with_an_image:
        [("spec.historyServerOptions", json!({}))] => "spec.historyServerOptions.collectorOptions",
        [(COLLECTOR, json!({"image": ""}))] => "spec.historyServerOptions.collectorOptions.image";
    the_collectors_own_variables_are_not_set:
        [(COLLECTOR, collector(&[("STORAGE_BACKEND", "x"), ("RAY_ROLE", "x")]))] => COLLECTOR_ENV;
    the_collectors_storage_is_described:
        [(COLLECTOR, collector(&[]))] => COLLECTOR_ENV,
        [(COLLECTOR, collector(&[("STORAGE_BACKEND", "gcs")]))] => COLLECTOR_ENV,
        [(COLLECTOR, collector(&[("STORAGE_BACKEND", "S3")]))] => COLLECTOR_ENV,
        [(COLLECTOR, collector(&[("STORAGE_BACKEND", "AzureBlob")]))] => COLLECTOR_ENV,
        [(COLLECTOR, collector(&[("STORAGE_BACKEND", "AzureBlob"), ("AZURE_STORAGE_AUTH_MODE", " Connection_String"),
            ("AZURE_STORAGE_ACCOUNT_URL", "x")]))] => COLLECTOR_ENV,
        [(COLLECTOR, collector(&[("STORAGE_BACKEND", "AzureBlob"), ("AZURE_STORAGE_AUTH_MODE", "default"),
            ("AZURE_STORAGE_CONNECTION_STRING", "x")]))] => COLLECTOR_ENV,
        [(COLLECTOR, collector(&[("STORAGE_BACKEND", "ALIYUNOSS"), ("OSS_BUCKET", "b"), ("OSS_ENDPOINT", "e")]))]
            => COLLECTOR_ENV;
    the_collectors_name_is_free:
        [(COLLECTOR, collector(&[("STORAGE_BACKEND", "local")])),
         ("spec.workerGroupSpecs[0].template.spec.containers[0].name", json!("ray-history-collector"))]
            => "spec.workerGroupSpecs[0].template.spec.containers[0].name";
    network_rules_fit_the_mode:
        [("spec.networkPolicy", json!({"mode": "DenyAllEgress", "head": {"ingressRules": [{}]}}))]
            => "spec.networkPolicy.head.ingressRules",
        [("spec.networkPolicy", json!({"mode": "DenyAllIngress", "worker": {"egressRules": [{}]}}))]
            => "spec.networkPolicy.worker.egressRules",
        [("spec.networkPolicy", json!({"mode": "DenyAllIngress", "workerGroups": [{"groupName": "w", "egressRules": [{}]}]}))]
            => "spec.networkPolicy.workerGroups[0].egressRules";
    with_network_policies_group_names_are_dns_1123_labels:
        [("spec.networkPolicy", json!({})), ("spec.workerGroupSpecs[0].groupName", json!("W_1"))]
            => "spec.workerGroupSpecs[0].groupName";
    network_rules_name_groups_that_exist:
        [("spec.networkPolicy", json!({"workerGroups": [{"groupName": "other"}]}))]
            => "spec.networkPolicy.workerGroups[0].groupName";
    with_mtls_its_variables_and_mounts_are_free:
        [("spec.tlsOptions", json!({"enabled": true})), (HEAD_ENV, json!([{"name": "RAY_USE_TLS", "value": "1"}]))]
            => HEAD_ENV,
        [("spec.tlsOptions", json!({"enabled": true})),
         ("spec.workerGroupSpecs[0].template.spec.containers[0].volumeMounts", json!([{"name": "ray-tls", "mountPath": "/x"}]))]
            => "spec.workerGroupSpecs[0].template.spec.containers[0].volumeMounts",
        [("spec.tlsOptions", json!({"enabled": true})),
         ("spec.autoscalerOptions.env", json!([{"name": "RAY_TLS_CA_CERT", "value": "x"}]))] => "spec.autoscalerOptions.env",
        [("spec.tlsOptions", json!({"enabled": true})),
         ("spec.autoscalerOptions.volumeMounts", json!([{"name": "x", "mountPath": "/etc/ray/tls"}]))]
            => "spec.autoscalerOptions.volumeMounts";
}

rules! { cluster SPEC
    a_clusters_topology_tier_is_a_number:
        [("metadata.labels", json!({TOPOLOGY_MODE_LABEL: "hard", TOPOLOGY_TIER_LABEL: "1.5"}))]
            => "metadata.labels[volcano.sh/network-topology-highest-tier-allowed]";
}

#[test]
fn mtls_needs_cert_manager() {
    let gates = Gates { mtls: true, cert_manager: false, ..Gates::KUBERAY };
    let refusal = cluster_by(&[("spec.tlsOptions", json!({"enabled": true}))], gates).unwrap_err();
    assert_eq!((&*refusal.field, refusal.event_reason), ("spec.tlsOptions.enabled", SPEC));
    assert_eq!(cluster_by(&[("spec.tlsOptions", json!({"enabled": false}))], gates), Ok(()));
}

#[test]
fn a_suspended_group_needs_the_gate_of_deletion_policies() {
    let suspended = [("spec.workerGroupSpecs[0].suspend", json!(true))];
    let gates = Gates { deletion_policy: false, ..Gates::KUBERAY };
    assert_eq!(cluster_by(&suspended, gates).unwrap_err().field, "spec.workerGroupSpecs[0].suspend");
    assert_eq!(cluster(&suspended), Ok(()));
}

#[test]
fn restarting_workers_under_autoscaler_v1_are_only_warned_of() {
    let edits = [
        ("spec.enableInTreeAutoscaling", json!(true)),
        ("spec.autoscalerOptions.version", json!("v1")),
        ("spec.workerGroupSpecs[0].template.spec.restartPolicy", json!("Always")),
    ];
    assert_eq!(cluster(&edits), Ok(()));
    let object: crate::api::ray::RayCluster =
        serde_json::from_value(super::edited(super::ray_cluster_manifest(), &edits)).unwrap();
    let warning = ray_cluster_warning(&object.spec, "spec").unwrap();
    assert_eq!((&*warning.field, warning.event_reason), ("spec.workerGroupSpecs", SPEC));
    assert!(warning.message.ends_with("in groups w"), "{warning}");
}

#[test]
fn what_keeps_the_rules_of_a_cluster_is_taken() {
    let env = json!([{"name": "RAY_enable_autoscaler_v2", "value": "true"}]);
    for edits in [
        vec![],
        vec![("metadata.name", json!("x".repeat(53)))],
        vec![("spec.workerGroupSpecs[0].replicas", json!(9))],
        vec![("spec.enableInTreeAutoscaling", json!(true)), ("spec.workerGroupSpecs[0].minReplicas", json!(null))],
        vec![
            ("spec.enableInTreeAutoscaling", json!(true)),
            (HEAD_ENV, env),
            ("spec.rayVersion", json!("2.56.0rc1")),
            ("spec.workerGroupSpecs[0].priority", json!(1)),
        ],
        vec![(GCS, json!({"redisAddress": "r:1"}))],
        vec![
            ("metadata.annotations", json!({"ray.io/ft-enabled": "TRUE"})),
            (HEAD_ENV, json!([{"name": "RAY_REDIS_ADDRESS", "value": "r:1"}])),
        ],
        vec![("spec.authOptions", json!({"mode": "token"})), ("spec.rayVersion", json!(" v2.52.0"))],
        vec![("spec.upgradeStrategy.type", json!("Recreate"))],
        vec![("spec.workerGroupSpecs", json!([group("a"), group("b")]))],
    ] {
        assert_eq!(cluster(&edits), Ok(()), "{edits:?}");
    }
    for edits in [
        vec![(GCS, json!({"backend": "rocksdb", "storage": {"size": "1Gi"}}))],
        vec![(COLLECTOR, collector(&[("STORAGE_BACKEND", "s3"), ("S3_REGION", "x")]))],
        vec![(
            COLLECTOR,
            json!({"image": "i", "env": [
                {"name": "STORAGE_BACKEND", "value": "gcs"},
                {"name": "GCS_BUCKET", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}},
            ]}),
        )],
        vec![(COLLECTOR, collector(&[("STORAGE_BACKEND", "AzureBlob"), ("AZURE_STORAGE_CONNECTION_STRING", "x")]))],
        vec![("spec.networkPolicy", json!({"mode": "DenyAll", "head": {"ingressRules": [{}], "egressRules": [{}]}}))],
        vec![("spec.tlsOptions", json!({"enabled": true}))],
        vec![
            ("spec.tlsOptions", json!({"enabled": false})),
            (HEAD_ENV, json!([{"name": "RAY_USE_TLS", "value": "1"}])),
        ],
    ] {
        assert_eq!(all_gates(&edits), Ok(()), "{edits:?}");
    }
}
