//! Each rule of specs/rayjob.md 2, with what breaks it and where that is said.

use serde_json::json;

use super::{job, job_by, job_by_us, rules};
use crate::plan::build::{TOPOLOGY_MODE_LABEL, TOPOLOGY_TIER_LABEL};
use crate::plan::validate::Gates;

const METADATA: &str = "InvalidRayJobMetadata";
const SPEC: &str = "InvalidRayJobSpec";
const STATUS: &str = "InvalidRayJobStatus";

const STRATEGY: &str = "spec.deletionStrategy";
const RULES: &str = "spec.deletionStrategy.deletionRules";
const SHUTDOWN: &str = "spec.shutdownAfterJobFinishes";
const SELECTOR: &str = "spec.clusterSelector";
const MODE: &str = "spec.submissionMode";

/// Both policies of the older form.
fn legacy(success: &str, failure: &str) -> serde_json::Value {
    json!({"onSuccess": {"policy": success}, "onFailure": {"policy": failure}})
}

/// A rule for jobs that succeeded.
fn rule(policy: &str, ttl: i32) -> serde_json::Value {
    json!({"policy": policy, "condition": {"jobStatus": "SUCCEEDED", "ttlSeconds": ttl}})
}

rules! { job METADATA
    a_job_name_has_at_most_47_characters:
        [("metadata.name", json!("x".repeat(48)))] => "metadata.name";
    a_job_name_is_a_dns_1035_label:
        [("metadata.name", json!("1-job"))] => "metadata.name",
        [("metadata.name", json!("job-"))] => "metadata.name";
}

rules! { job SPEC
    a_suspended_job_shuts_its_cluster_down:
        [("spec.suspend", json!(true))] => "spec.suspend";
    the_delay_after_the_end_is_not_negative:
        [("spec.ttlSecondsAfterFinished", json!(-1)), (SHUTDOWN, json!(true))] => "spec.ttlSecondsAfterFinished";
    a_delay_after_the_end_needs_shutdown:
        [("spec.ttlSecondsAfterFinished", json!(5))] => "spec.ttlSecondsAfterFinished";
    deletion_rules_and_shutdown_exclude_each_other:
        [(RULES, json!([rule("DeleteSelf", 0)])), (SHUTDOWN, json!(true))] => RULES;
    deletion_rules_and_the_older_policies_exclude_each_other:
        [(STRATEGY, legacy("DeleteSelf", "DeleteSelf")), (RULES, json!([rule("DeleteSelf", 0)]))] => STRATEGY;
    a_deletion_strategy_says_something:
        [(STRATEGY, json!({}))] => STRATEGY,
        [(RULES, json!([]))] => STRATEGY;
    the_older_policies_come_in_pairs:
        [(STRATEGY, json!({"onSuccess": {"policy": "DeleteSelf"}}))] => "spec.deletionStrategy.onFailure",
        [(STRATEGY, json!({"onFailure": {"policy": "DeleteSelf"}}))] => "spec.deletionStrategy.onSuccess",
        [(STRATEGY, json!({"onSuccess": {}, "onFailure": {"policy": "DeleteSelf"}}))]
            => "spec.deletionStrategy.onSuccess.policy";
    a_selected_cluster_is_not_deleted:
        [(STRATEGY, legacy("DeleteCluster", "DeleteSelf")), (SELECTOR, json!({"ray.io/cluster": "c"}))]
            => "spec.deletionStrategy.onSuccess",
        [(RULES, json!([rule("DeleteWorkers", 0)])), (SELECTOR, json!({"ray.io/cluster": "c"}))]
            => "spec.deletionStrategy.deletionRules[0]";
    workers_that_are_autoscaled_are_not_deleted:
        [(STRATEGY, legacy("DeleteWorkers", "DeleteSelf")), ("spec.rayClusterSpec.enableInTreeAutoscaling", json!(true))]
            => "spec.deletionStrategy.onSuccess",
        [(RULES, json!([rule("DeleteWorkers", 0)])), ("spec.rayClusterSpec.enableInTreeAutoscaling", json!(true))]
            => "spec.deletionStrategy.deletionRules[0]";
    shutdown_and_deleting_nothing_exclude_each_other:
        [(STRATEGY, legacy("DeleteSelf", "DeleteNone")), (SHUTDOWN, json!(true))] => "spec.deletionStrategy.onFailure";
    a_deletion_rule_has_one_condition:
        [(RULES, json!([{"policy": "DeleteSelf", "condition": {}}]))] => "spec.deletionStrategy.deletionRules[0]",
        [(RULES, json!([{"policy": "DeleteSelf", "condition": {"jobStatus": "FAILED", "jobDeploymentStatus": "Failed"}}]))]
            => "spec.deletionStrategy.deletionRules[0]";
    the_delay_of_a_deletion_rule_is_not_negative:
        [(RULES, json!([rule("DeleteSelf", -1)]))] => "spec.deletionStrategy.deletionRules[0].condition.ttlSeconds";
    deletion_rules_do_not_repeat_each_other:
        [(RULES, json!([rule("DeleteSelf", 1), rule("DeleteSelf", 2)]))] => "spec.deletionStrategy.deletionRules[1]";
    delays_grow_from_workers_to_cluster_to_the_job_itself:
        [(RULES, json!([rule("DeleteWorkers", 9), rule("DeleteCluster", 5)]))] => RULES,
        [(RULES, json!([rule("DeleteSelf", 1), rule("DeleteWorkers", 2)]))] => RULES;
    a_job_with_a_selected_cluster_is_not_suspended:
        [("spec.suspend", json!(true)), (SHUTDOWN, json!(true)), (SELECTOR, json!({"ray.io/cluster": "c"}))] => "spec.suspend";
    a_job_has_a_cluster_or_selects_one:
        [("spec.rayClusterSpec", json!(null))] => "spec.rayClusterSpec",
        [("spec.rayClusterSpec", json!(null)), (SELECTOR, json!({}))] => "spec.rayClusterSpec";
    a_selector_names_a_cluster:
        [(SELECTOR, json!({"other": "c"}))] => SELECTOR,
        [(SELECTOR, json!({"ray.io/cluster": ""}))] => SELECTOR;
    a_job_with_a_selected_cluster_has_no_sidecar_and_no_further_attempts:
        [(SELECTOR, json!({"ray.io/cluster": "c"})), (MODE, json!("SidecarMode"))] => SELECTOR,
        [(SELECTOR, json!({"ray.io/cluster": "c"})), ("spec.backoffLimit", json!(1))] => "spec.backoffLimit";
    an_interactive_job_has_no_further_attempts:
        [(MODE, json!("InteractiveMode")), ("spec.backoffLimit", json!(1))] => "spec.backoffLimit";
    a_sidecar_has_no_submitter_and_its_head_does_not_restart:
        [(MODE, json!("SidecarMode")), ("spec.submitterPodTemplate", json!({"spec": {"containers": [{"name": "s"}]}}))]
            => "spec.submitterPodTemplate",
        [(MODE, json!("SidecarMode")), ("spec.submitterConfig", json!({}))] => "spec.submitterConfig",
        [(MODE, json!("SidecarMode")), ("spec.rayClusterSpec.headGroupSpec.template.spec.restartPolicy", json!("Always"))]
            => "spec.rayClusterSpec.headGroupSpec.template.spec.restartPolicy";
    a_jobs_cluster_is_not_authenticated_by_kubernetes:
        [("spec.rayClusterSpec.authOptions", json!({"enableK8sTokenAuth": true}))]
            => "spec.rayClusterSpec.authOptions.enableK8sTokenAuth";
    a_jobs_cluster_keeps_the_rules_of_a_cluster_with_the_jobs_annotations:
        [("spec.rayClusterSpec.headGroupSpec.template.spec.containers", json!([]))]
            => "spec.rayClusterSpec.headGroupSpec.template.spec.containers",
        [("metadata.annotations", json!({"ray.io/ft-enabled": "true"})), ("spec.rayClusterSpec.gcsFaultToleranceOptions", json!({}))]
            => "spec.rayClusterSpec.gcsFaultToleranceOptions";
    a_runtime_environment_is_a_map:
        [("spec.runtimeEnvYAML", json!("abc"))] => "spec.runtimeEnvYAML",
        [("spec.runtimeEnvYAML", json!("a: ["))] => "spec.runtimeEnvYAML";
    deadlines_are_more_than_nothing:
        [("spec.activeDeadlineSeconds", json!(0))] => "spec.activeDeadlineSeconds",
        [("spec.preRunningDeadlineSeconds", json!(0))] => "spec.preRunningDeadlineSeconds";
    the_number_of_attempts_is_not_negative:
        [("spec.backoffLimit", json!(-1))] => "spec.backoffLimit";
}

rules! { job STATUS
    only_an_interactive_job_waits:
        [("status", json!({"jobDeploymentStatus": "Waiting"}))] => "status.jobDeploymentStatus";
}

rules! { job_by_us SPEC
    a_submitters_template_has_a_container:
        [("spec.submitterPodTemplate", json!({"spec": {"containers": []}}))]
            => "spec.submitterPodTemplate.spec.containers",
        [("spec.submitterPodTemplate", json!({"spec": {"containers": 7}}))]
            => "spec.submitterPodTemplate.spec.containers";
    resources_of_an_entrypoint_are_numbers:
        [(MODE, json!("HTTPMode")), ("spec.entrypointResources", json!("a: 1"))] => "spec.entrypointResources",
        [(MODE, json!("HTTPMode")), ("spec.entrypointResources", json!("{\"a\": \"x\"}"))]
            => "spec.entrypointResources";
    a_jobs_cluster_has_no_upgrade_strategy:
        [("spec.rayClusterSpec.upgradeStrategy", json!({"type": "Recreate"}))]
            => "spec.rayClusterSpec.upgradeStrategy.type";
    a_jobs_topology_tier_is_a_number:
        [("metadata.labels", json!({TOPOLOGY_MODE_LABEL: "hard", TOPOLOGY_TIER_LABEL: "two"}))]
            => "metadata.labels[volcano.sh/network-topology-highest-tier-allowed]";
}

#[test]
fn what_would_fail_later_is_refused_by_us_and_not_by_kuberays_rules() {
    for edits in [
        vec![("spec.submitterPodTemplate", json!({"spec": {"containers": []}}))],
        vec![(MODE, json!("HTTPMode")), ("spec.entrypointResources", json!("a: 1"))],
        vec![("spec.rayClusterSpec.upgradeStrategy", json!({"type": "Recreate"}))],
        vec![("metadata.labels", json!({TOPOLOGY_MODE_LABEL: "hard", TOPOLOGY_TIER_LABEL: "two"}))],
    ] {
        assert_eq!(job(&edits), Ok(()), "{edits:?}");
        assert!(job_by_us(&edits).is_err(), "{edits:?}");
    }
}

#[test]
fn a_deletion_strategy_needs_its_gate() {
    let edits = [(STRATEGY, legacy("DeleteSelf", "DeleteSelf"))];
    let gates = Gates { deletion_policy: false, ..Gates::KUBERAY };
    assert_eq!(job_by(&edits, gates).unwrap_err().field, STRATEGY);
    assert_eq!(job(&edits), Ok(()));
}

#[test]
fn what_keeps_the_rules_of_a_job_is_taken() {
    for edits in [
        vec![],
        vec![("metadata.name", json!("x".repeat(47)))],
        vec![("spec.suspend", json!(true)), (SHUTDOWN, json!(true))],
        vec![("spec.ttlSecondsAfterFinished", json!(5)), (SHUTDOWN, json!(true))],
        vec![(RULES, json!([rule("DeleteWorkers", 1), rule("DeleteCluster", 1), rule("DeleteSelf", 2)]))],
        vec![(RULES, json!([rule("DeleteNone", 9), rule("DeleteSelf", 0)]))],
        vec![(SELECTOR, json!({"ray.io/cluster": "c"})), ("spec.rayClusterSpec", json!(null))],
        vec![(MODE, json!("InteractiveMode")), ("status", json!({"jobDeploymentStatus": "Waiting"}))],
        vec![(MODE, json!("SidecarMode"))],
        vec![("spec.runtimeEnvYAML", json!("pip: [a]\n"))],
    ] {
        assert_eq!(job(&edits), Ok(()), "{edits:?}");
    }
}
