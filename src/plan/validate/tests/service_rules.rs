//! Each rule of specs/rayservice.md 2, with what breaks it and where that is said.

use serde_json::json;

use super::{rules, service, service_by};
use crate::plan::validate::Gates;

const METADATA: &str = "InvalidRayServiceMetadata";
const SPEC: &str = "InvalidRayServiceSpec";
const OPTIONS: &str = "spec.upgradeStrategy.clusterUpgradeOptions";
const AUTOSCALING: &str = "spec.rayClusterConfig.enableInTreeAutoscaling";

/// An incremental upgrade with these options.
fn incremental(surge: i32, step: i32, interval: i32, class: &str) -> serde_json::Value {
    json!({"type": "NewClusterWithIncrementalUpgrade", "clusterUpgradeOptions": {
        "maxSurgePercent": surge, "stepSizePercent": step, "intervalSeconds": interval, "gatewayClassName": class,
    }})
}

rules! { service METADATA
    a_service_name_has_at_most_47_characters:
        [("metadata.name", json!("x".repeat(48)))] => "metadata.name";
    a_service_name_is_a_dns_1035_label:
        [("metadata.name", json!("0-serve"))] => "metadata.name";
    an_initializing_timeout_is_a_positive_duration:
        [("metadata.annotations", json!({"ray.io/initializing-timeout": "soon"}))]
            => "metadata.annotations[ray.io/initializing-timeout]",
        [("metadata.annotations", json!({"ray.io/initializing-timeout": "0"}))]
            => "metadata.annotations[ray.io/initializing-timeout]",
        [("metadata.annotations", json!({"ray.io/initializing-timeout": "-5m"}))]
            => "metadata.annotations[ray.io/initializing-timeout]";
}

rules! { service SPEC
    a_services_cluster_is_not_authenticated_by_kubernetes:
        [("spec.rayClusterConfig.authOptions", json!({"enableK8sTokenAuth": true}))]
            => "spec.rayClusterConfig.authOptions.enableK8sTokenAuth";
    a_services_cluster_keeps_the_rules_of_a_cluster_with_the_services_annotations:
        [("spec.rayClusterConfig.workerGroupSpecs[0].minReplicas", json!(5))]
            => "spec.rayClusterConfig.workerGroupSpecs[0].minReplicas",
        [("metadata.annotations", json!({"ray.io/ft-enabled": "true"})), ("spec.rayClusterConfig.gcsFaultToleranceOptions", json!({}))]
            => "spec.rayClusterConfig.gcsFaultToleranceOptions";
    a_services_head_service_has_no_name:
        [("spec.rayClusterConfig.headGroupSpec.headService", json!({"metadata": {"name": "h"}}))]
            => "spec.rayClusterConfig.headGroupSpec.headService.metadata.name";
    an_upgrade_type_is_one_of_three:
        [("spec.upgradeStrategy.type", json!("Rolling"))] => "spec.upgradeStrategy.type";
    the_delay_of_a_clusters_deletion_is_not_negative:
        [("spec.rayClusterDeletionDelaySeconds", json!(-1))] => "spec.rayClusterDeletionDelaySeconds";
    an_incremental_upgrade_needs_autoscaling:
        [("spec.upgradeStrategy", incremental(100, 10, 5, "g"))] => AUTOSCALING;
    an_incremental_upgrade_needs_options:
        [(AUTOSCALING, json!(true)), ("spec.upgradeStrategy.type", json!("NewClusterWithIncrementalUpgrade"))] => OPTIONS;
    the_surge_is_a_percentage:
        [(AUTOSCALING, json!(true)), ("spec.upgradeStrategy", incremental(101, 10, 5, "g"))]
            => "spec.upgradeStrategy.clusterUpgradeOptions.maxSurgePercent",
        [(AUTOSCALING, json!(true)), ("spec.upgradeStrategy", incremental(-1, 0, 5, "g"))]
            => "spec.upgradeStrategy.clusterUpgradeOptions.maxSurgePercent";
    the_step_is_a_percentage_of_at_most_the_surge:
        [(AUTOSCALING, json!(true)), ("spec.upgradeStrategy", incremental(100, 101, 5, "g"))]
            => "spec.upgradeStrategy.clusterUpgradeOptions.stepSizePercent",
        [(AUTOSCALING, json!(true)), ("spec.upgradeStrategy", incremental(20, 21, 5, "g"))]
            => "spec.upgradeStrategy.clusterUpgradeOptions.stepSizePercent";
    the_interval_of_steps_is_more_than_nothing:
        [(AUTOSCALING, json!(true)), ("spec.upgradeStrategy", incremental(100, 10, 0, "g"))]
            => "spec.upgradeStrategy.clusterUpgradeOptions.intervalSeconds";
    an_incremental_upgrade_names_a_gateway_class:
        [(AUTOSCALING, json!(true)), ("spec.upgradeStrategy", incremental(100, 10, 5, ""))]
            => "spec.upgradeStrategy.clusterUpgradeOptions.gatewayClassName";
}

#[test]
fn without_its_gate_an_incremental_upgrade_is_not_looked_at() {
    let edits = [("spec.upgradeStrategy", incremental(999, 999, 0, ""))];
    assert_eq!(service_by(&edits, Gates { incremental_upgrade: false, ..Gates::KUBERAY }), Ok(()));
}

#[test]
fn what_keeps_the_rules_of_a_service_is_taken() {
    for edits in [
        vec![],
        vec![("metadata.annotations", json!({"ray.io/initializing-timeout": ""}))],
        vec![("metadata.annotations", json!({"ray.io/initializing-timeout": "300"}))],
        vec![("metadata.annotations", json!({"ray.io/initializing-timeout": "1h30m"}))],
        vec![("spec.upgradeStrategy.type", json!("None"))],
        vec![(AUTOSCALING, json!(true)), ("spec.upgradeStrategy", incremental(100, 100, 1, "g"))],
    ] {
        assert_eq!(service(&edits), Ok(()), "{edits:?}");
    }
}
