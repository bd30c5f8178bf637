//! Rules for what is deleted when a RayJob has ended (specs/rayjob.md 2, "deletion configuration").
//! Must not know when anything is deleted.

use std::collections::{BTreeMap, BTreeSet};

use super::{GATE_OFF, Gates, Rule, broken};
use crate::api::ray::{DeletionRule, DeletionStrategy, RayJobSpec};

/// All of them.
pub(super) fn rules(spec: &RayJobSpec, gates: Gates) -> Rule {
    let shutdown = spec.shutdown_after_job_finishes == Some(true);
    if spec.ttl_seconds_after_finished.unwrap_or(0) > 0 && !shutdown {
        return broken("spec.ttlSecondsAfterFinished", "needs shutdownAfterJobFinishes: true");
    }
    let Some(strategy) = &spec.deletion_strategy else { return Ok(()) };
    let at = "spec.deletionStrategy";
    if !gates.deletion_policy {
        return broken(at, GATE_OFF);
    }
    let legacy = strategy.on_success.is_some() || strategy.on_failure.is_some();
    let with_rules = strategy.deletion_rules.is_some();
    if with_rules && shutdown {
        return broken(format!("{at}.deletionRules"), "and shutdownAfterJobFinishes exclude each other");
    }
    if with_rules && legacy {
        return broken(at, "onSuccess/onFailure and deletionRules exclude each other");
    }
    let selects = spec.cluster_selector.as_ref().is_some_and(|s| !s.is_empty());
    let autoscaling = spec.ray_cluster_spec.as_ref().is_some_and(crate::api::ray::RayClusterSpec::autoscaling);
    if legacy {
        return legacy_policies(strategy, selects, autoscaling, shutdown);
    }
    match strategy.deletion_rules.as_deref() {
        None | Some([]) => broken(at, "needs both onSuccess and onFailure, or deletionRules"),
        Some(rules) => rule_list(rules, selects, autoscaling),
    }
}

fn legacy_policies(strategy: &DeletionStrategy, selects: bool, autoscaling: bool, shutdown: bool) -> Rule {
    let mut policies = Vec::new();
    for (field, side) in [("onSuccess", &strategy.on_success), ("onFailure", &strategy.on_failure)] {
        let at = format!("spec.deletionStrategy.{field}");
        let Some(side) = side else { return broken(at, "must be set too") };
        match side.policy.as_deref() {
            Some(policy) if !policy.is_empty() => policies.push((at, policy)),
            _ => return broken(format!("{at}.policy"), "must be set"),
        }
    }
    for (at, policy) in policies {
        allowed(&at, policy, selects, autoscaling)?;
        if policy == "DeleteNone" && shutdown {
            return broken(at, "DeleteNone and shutdownAfterJobFinishes exclude each other");
        }
    }
    Ok(())
}

fn allowed(at: &str, policy: &str, selects: bool, autoscaling: bool) -> Rule {
    if selects && matches!(policy, "DeleteCluster" | "DeleteWorkers") {
        return broken(at, format!("{policy} and clusterSelector exclude each other"));
    }
    if autoscaling && policy == "DeleteWorkers" {
        return broken(at, "DeleteWorkers and autoscaling exclude each other");
    }
    Ok(())
}

/// All rules' mistakes, joined: a user corrects them in one go.
fn rule_list(rules: &[DeletionRule], selects: bool, autoscaling: bool) -> Rule {
    let mut wrong: Vec<(String, String)> = Vec::new();
    let mut seen = BTreeSet::new();
    let mut delays: BTreeMap<(&str, &str), BTreeMap<&str, i32>> = BTreeMap::new();
    for (i, rule) in rules.iter().enumerate() {
        let at = format!("spec.deletionStrategy.deletionRules[{i}]");
        let condition = &rule.condition;
        let ttl = condition.ttl_seconds.unwrap_or(0);
        let group = match (condition.job_status.as_deref(), condition.job_deployment_status.as_deref()) {
            (Some(status), None) => ("jobStatus", status),
            (None, Some(status)) => ("jobDeploymentStatus", status),
            _ => {
                wrong.push((at, "needs exactly one of jobStatus and jobDeploymentStatus".into()));
                continue;
            }
        };
        if ttl < 0 {
            wrong.push((format!("{at}.condition.ttlSeconds"), "must not be negative".into()));
        }
        if let Err(mistake) = allowed(&at, &rule.policy, selects, autoscaling) {
            wrong.push(mistake);
        }
        if !seen.insert((group, rule.policy.as_str())) {
            wrong.push((at, format!("repeats {} for {} {}", rule.policy, group.0, group.1)));
            continue;
        }
        delays.entry(group).or_default().insert(&rule.policy, ttl);
    }
    for ((kind, value), by_policy) in &delays {
        let order = ["DeleteWorkers", "DeleteCluster", "DeleteSelf"];
        let present: Vec<(&str, i32)> = order.iter().filter_map(|p| by_policy.get(p).map(|t| (*p, *t))).collect();
        for pair in present.windows(2) {
            if pair[1].1 < pair[0].1 {
                let text = format!(
                    "for {kind} {value}: {} after {} s comes before {} after {} s",
                    pair[1].0, pair[1].1, pair[0].0, pair[0].1
                );
                wrong.push(("spec.deletionStrategy.deletionRules".into(), text));
            }
        }
    }
    match wrong.split_first() {
        None => Ok(()),
        Some(((field, first), rest)) => {
            let more: String = rest.iter().flat_map(|(field, message)| ["; ", field, ": ", message]).collect();
            broken(field.clone(), format!("{first}{more}"))
        }
    }
}
