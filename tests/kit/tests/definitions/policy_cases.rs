//! For each sentence of `deploy/validation.yaml`, objects that are taken and what makes them refused by it.
//! Must not know how they are sent.

use rayfleet::api::Kind;
use serde_json::{Map, Value, json};

/// An object that is taken, and the change (RFC 7386) after which it is refused with this sentence.
pub(crate) struct Case {
    pub(crate) kind: Kind,
    pub(crate) taken: Value,
    pub(crate) change: Value,
    pub(crate) why: &'static str,
}

impl Case {
    /// What is refused.
    pub(crate) fn refused(&self) -> Value {
        merged(self.taken.clone(), &self.change)
    }
}

fn merged(mut value: Value, change: &Value) -> Value {
    let Value::Object(fields) = change else { return change.clone() };
    if !value.is_object() {
        value = Value::Object(Map::new());
    }
    for (key, change) in fields {
        if change.is_null() {
            value.as_object_mut().map(|map| map.remove(key));
        } else {
            value[key] = merged(value[key].take(), change);
        }
    }
    value
}

fn pod(extra: &Value) -> Value {
    merged(json!({"spec": {"containers": [{"name": "r", "image": "i"}]}}), extra)
}

/// A pod whose first container has this environment.
fn pod_with_env(name: &str, value: &str) -> Value {
    json!({"spec": {"containers": [{"name": "r", "image": "i", "env": [{"name": name, "value": value}]}]}})
}

fn cluster_spec() -> Value {
    json!({"headGroupSpec": {"rayStartParams": {}, "template": pod(&json!({}))}, "workerGroupSpecs": [group(&json!({}))]})
}

fn group(change: &Value) -> Value {
    merged(json!({"groupName": "w", "minReplicas": 0, "maxReplicas": 2, "template": pod(&json!({}))}), change)
}

fn groups(change: &Value) -> Value {
    json!({"spec": {"workerGroupSpecs": [group(change)]}})
}

fn head(change: &Value) -> Value {
    json!({"spec": {"headGroupSpec": change}})
}

/// The sound object of a kind.
pub(crate) fn sound(kind: Kind) -> Value {
    let job = json!({"entrypoint": "true", "rayClusterSpec": cluster_spec()});
    let spec = match kind {
        Kind::RayJob => job,
        Kind::RayService => json!({"rayClusterConfig": cluster_spec()}),
        Kind::RayCronJob => json!({"schedule": "0 * * * *", "jobTemplate": job}),
        _ => cluster_spec(),
    };
    json!({"apiVersion": "ray.io/v1", "kind": kind.name(), "metadata": {"name": "a"}, "spec": spec})
}

/// All of them.
pub(crate) fn cases() -> Vec<Case> {
    let mut all = Vec::new();
    let mut of = |kind: Kind, sound_with: Value, change: Value, why: &'static str| {
        all.push(Case { kind, taken: merged(sound(kind), &sound_with), change, why });
    };
    names(&mut of);
    clusters(&mut of);
    fault_tolerance(&mut of);
    autoscaler(&mut of);
    jobs(&mut of);
    deletion(&mut of);
    services(&mut of);
    all
}

type Add<'a> = dyn FnMut(Kind, Value, Value, &'static str) + 'a;

fn names(of: &mut Add<'_>) {
    let lengths = "metadata.name: at most 53 characters are allowed for a RayCluster, 47 for a RayJob or RayService, 36 for a \
                   RayCronJob";
    for (kind, most) in [(Kind::RayCluster, 53), (Kind::RayJob, 47), (Kind::RayService, 47), (Kind::RayCronJob, 36)] {
        let named = |length: usize| json!({"metadata": {"name": "a".repeat(length)}});
        of(kind, named(most), named(most + 1), lengths);
    }
    let letters =
        "metadata.name: must consist of small letters, digits and dashes, begin with a letter and not end with a dash";
    for name in ["1a", "a.b"] {
        of(Kind::RayCluster, json!({}), json!({"metadata": {"name": name}}), letters);
    }
}

fn clusters(of: &mut Add<'_>) {
    let none = json!({"template": {"spec": {"containers": []}}});
    let containers = "template.spec.containers: must have at least one container";
    of(Kind::RayCluster, json!({}), head(&none), containers);
    of(Kind::RayCluster, json!({}), groups(&none), containers);
    of(Kind::RayJob, json!({}), json!({"spec": {"rayClusterSpec": {"headGroupSpec": none}}}), containers);
    let twice = "resources: and the same in rayStartParams exclude each other";
    let resources = json!({"resources": {"CPU": "1"}});
    of(Kind::RayCluster, head(&resources), head(&json!({"rayStartParams": {"num-cpus": "2"}})), twice);
    let labels = "rayStartParams.labels: is not supported; use the field labels of the group";
    of(Kind::RayCluster, json!({}), head(&json!({"rayStartParams": {"labels": "a=b"}})), labels);
    let words = "labels: of a group must be label keys and values";
    for (good, bad) in [(("a.b/c", "D_e"), ("a/b/c", "")), (("a", ""), ("a", "-")), (("a", "b"), ("-a", "b"))] {
        let with = |(key, value): (&str, &str)| json!({"labels": {key: value}});
        of(Kind::RayCluster, head(&with(good)), head(&with(bad)), words);
        of(Kind::RayCluster, groups(&with(good)), groups(&with(bad)), words);
    }
    let negative = "workerGroupSpecs: minReplicas and maxReplicas must not be negative";
    of(Kind::RayCluster, json!({}), groups(&json!({"minReplicas": -1})), negative);
    of(Kind::RayCluster, json!({}), groups(&json!({"maxReplicas": -1})), negative);
    let order = "workerGroupSpecs: minReplicas is more than maxReplicas";
    of(Kind::RayCluster, groups(&json!({"minReplicas": 2})), groups(&json!({"minReplicas": 3})), order);
    let token = json!({"spec": {"rayVersion": "2.55.0", "authOptions": {"mode": "token"}}});
    let by_kubernetes = json!({"authOptions": {"enableK8sTokenAuth": true}});
    let needs = "authOptions.enableK8sTokenAuth: needs mode token";
    of(Kind::RayCluster, json!({}), json!({ "spec": by_kubernetes }), needs);
    let secret = "authOptions.secretName: and enableK8sTokenAuth exclude each other";
    let both = json!({"spec": {"authOptions": {"enableK8sTokenAuth": true, "secretName": "s"}}});
    of(Kind::RayCluster, merged(token, &json!({ "spec": by_kubernetes })), both, secret);
    let alone = "authOptions.enableK8sTokenAuth: is for RayClusters that stand for themselves";
    of(Kind::RayJob, json!({}), json!({"spec": {"rayClusterSpec": by_kubernetes}}), alone);
    of(Kind::RayService, json!({}), json!({"spec": {"rayClusterConfig": by_kubernetes}}), alone);
    let tier = "metadata.labels: volcano.sh/network-topology-highest-tier-allowed must be a whole number";
    let topology = |tier: &str| {
        json!({"metadata": {"labels": {"volcano.sh/network-topology-mode": "hard",
                                       "volcano.sh/network-topology-highest-tier-allowed": tier}}})
    };
    for kind in [Kind::RayCluster, Kind::RayJob] {
        of(kind, topology("2"), topology("1.5"), tier);
    }
    let child = "spec.upgradeStrategy.type: must not be set on a RayCluster that a RayJob or RayService made";
    let made = json!({"metadata": {"labels": {"ray.io/originated-from-crd": "RayJob"}}});
    of(Kind::RayCluster, json!({"spec": {"upgradeStrategy": {"type": "Recreate"}}}), made, child);
}

fn fault_tolerance(of: &mut Add<'_>) {
    let options = |options: Value| json!({"spec": {"gcsFaultToleranceOptions": options}});
    let redis = options(json!({"redisAddress": "redis:6379"}));
    let annotated = |key: &str, value: &str| json!({"metadata": {"annotations": {key: value}}});
    let both = "gcsFaultToleranceOptions: and annotation ray.io/ft-enabled exclude each other";
    of(Kind::RayCluster, redis.clone(), annotated("ray.io/ft-enabled", "true"), both);
    let namespace = "gcsFaultToleranceOptions.externalStorageNamespace: is where the storage namespace is given";
    of(Kind::RayCluster, redis.clone(), annotated("ray.io/external-storage-namespace", "n"), namespace);
    let storage = "gcsFaultToleranceOptions.storage: belongs to backend rocksdb";
    of(Kind::RayCluster, redis.clone(), options(json!({"storage": {}})), storage);
    let env = |name: &str| head(&json!({"template": pod_with_env(name, "x")}));
    let address = "gcsFaultToleranceOptions: must be set if the head's environment has RAY_REDIS_ADDRESS";
    of(Kind::RayCluster, json!({}), env("RAY_REDIS_ADDRESS"), address);
    let switched = merged(annotated("ray.io/ft-enabled", "True"), &env("RAY_REDIS_ADDRESS"));
    of(Kind::RayCluster, switched, json!({"metadata": {"annotations": null}}), address);
    let password = "gcsFaultToleranceOptions.redisPassword: is where the Redis password is given";
    of(Kind::RayCluster, redis.clone(), env("REDIS_PASSWORD"), password);
    of(Kind::RayCluster, redis.clone(), head(&json!({"rayStartParams": {"redis-password": "x"}})), password);
    let twice = "gcsFaultToleranceOptions.redisAddress: is where the Redis address is given";
    of(Kind::RayCluster, redis, env("RAY_REDIS_ADDRESS"), twice);
    let user = "gcsFaultToleranceOptions.redisUsername: is where the Redis user is given";
    of(Kind::RayCluster, json!({}), env("REDIS_USERNAME"), user);
    of(Kind::RayCluster, json!({}), head(&json!({"rayStartParams": {"redis-username": "x"}})), user);
}

fn autoscaler(of: &mut Add<'_>) {
    let with = |options: Value| json!({"spec": {"enableInTreeAutoscaling": true, "autoscalerOptions": options}});
    let v2 = || with(json!({"version": "v2"}));
    let suspended = "workerGroupSpecs: suspend and autoscaling exclude each other";
    of(Kind::RayCluster, v2(), groups(&json!({"suspend": true})), suspended);
    let never = "template.spec.restartPolicy: must be Never with autoscaler v2";
    let restarts = json!({"template": pod(&json!({"spec": {"restartPolicy": "Always"}}))});
    of(Kind::RayCluster, v2(), head(&restarts), never);
    of(Kind::RayCluster, v2(), groups(&restarts), never);
    let idle = "autoscalerOptions.idleTimeoutSeconds: must not be negative";
    of(Kind::RayCluster, v2(), with(json!({"idleTimeoutSeconds": -1})), idle);
    let command = "autoscalerOptions.env: must not set KUBERAY_GEN_AUTOSCALER_START_CMD";
    let set = json!({"env": [{"name": "KUBERAY_GEN_AUTOSCALER_START_CMD", "value": "x"}]});
    of(Kind::RayCluster, v2(), with(set), command);
    let switch = head(&json!({"template": pod_with_env("RAY_enable_autoscaler_v2", "true")}));
    let needed = "enableInTreeAutoscaling: must be true if RAY_enable_autoscaler_v2 is set";
    of(Kind::RayCluster, json!({}), switch.clone(), needed);
    let twice = "autoscalerOptions.version: and RAY_enable_autoscaler_v2 exclude each other";
    of(Kind::RayCluster, v2(), switch, twice);
    let group_idle = "workerGroupSpecs: idleTimeoutSeconds must not be negative";
    let timed = |seconds: i32| groups(&json!({"idleTimeoutSeconds": seconds}));
    of(Kind::RayCluster, merged(v2(), &timed(5)), timed(-5), group_idle);
    of(Kind::RayCluster, json!({}), timed(5), "workerGroupSpecs: idleTimeoutSeconds needs autoscaler v2");
    let newer = json!({"spec": {"rayVersion": "2.56.0"}});
    let priority = groups(&json!({"priority": 5}));
    of(Kind::RayCluster, newer, priority, "workerGroupSpecs: priority needs autoscaler v2");
}

fn jobs(of: &mut Add<'_>) {
    let job = |spec: Value| json!({ "spec": spec });
    let cron = |spec: Value| json!({"spec": {"jobTemplate": spec}});
    let suspend = "suspend: needs shutdownAfterJobFinishes: true";
    of(Kind::RayJob, json!({}), job(json!({"suspend": true})), suspend);
    of(Kind::RayCronJob, json!({}), cron(json!({"suspend": true})), suspend);
    let shut = job(json!({"shutdownAfterJobFinishes": true}));
    let delay = "ttlSecondsAfterFinished: must not be negative";
    of(Kind::RayJob, shut.clone(), job(json!({"ttlSecondsAfterFinished": -5})), delay);
    let no_delay = "ttlSecondsAfterFinished: needs shutdownAfterJobFinishes: true";
    of(Kind::RayJob, json!({}), job(json!({"ttlSecondsAfterFinished": 5})), no_delay);
    let selects = json!({"clusterSelector": {"ray.io/cluster": "c"}});
    let both = "suspend: and clusterSelector exclude each other";
    of(Kind::RayJob, merged(shut, &job(selects.clone())), job(json!({"suspend": true})), both);
    of(Kind::RayJob, json!({}), job(json!({"rayClusterSpec": null})), "rayClusterSpec: or clusterSelector must be set");
    let value = "clusterSelector: must have a value for ray.io/cluster";
    of(Kind::RayJob, json!({}), job(json!({"clusterSelector": {"a": "b"}})), value);
    let sidecar = json!({"submissionMode": "SidecarMode"});
    of(Kind::RayJob, job(selects.clone()), job(sidecar.clone()), "clusterSelector: and SidecarMode exclude each other");
    let attempts = "backoffLimit: and clusterSelector or InteractiveMode exclude each other";
    of(Kind::RayJob, job(selects), job(json!({"backoffLimit": 1})), attempts);
    let interactive = job(json!({"submissionMode": "InteractiveMode", "entrypoint": ""}));
    of(Kind::RayJob, interactive, job(json!({"backoffLimit": 1})), attempts);
    of(Kind::RayJob, json!({}), job(json!({"backoffLimit": -1})), "backoffLimit: must not be negative");
    let submitter = "submitterPodTemplate, submitterConfig: and SidecarMode exclude each other";
    of(Kind::RayJob, job(sidecar.clone()), job(json!({"submitterConfig": {"backoffLimit": 1}})), submitter);
    of(Kind::RayJob, job(sidecar.clone()), job(json!({"submitterPodTemplate": pod(&json!({}))})), submitter);
    let no_container = "submitterPodTemplate.spec.containers: must have at least one container";
    let none = json!({"submitterPodTemplate": {"spec": {"containers": []}}});
    of(Kind::RayJob, job(json!({"submitterPodTemplate": pod(&json!({}))})), job(none), no_container);
    let never = "rayClusterSpec.headGroupSpec.template.spec.restartPolicy: must be Never in SidecarMode";
    let restarts = json!({"template": pod(&json!({"spec": {"restartPolicy": "Always"}}))});
    of(Kind::RayJob, job(sidecar), job(json!({"rayClusterSpec": {"headGroupSpec": restarts}})), never);
    of(Kind::RayJob, json!({}), job(json!({"activeDeadlineSeconds": 0})), "activeDeadlineSeconds: must be more than 0");
    let upgrade = "rayClusterSpec.upgradeStrategy.type: must not be set on a RayCluster that a RayJob makes";
    of(Kind::RayJob, json!({}), job(json!({"rayClusterSpec": {"upgradeStrategy": {"type": "Recreate"}}})), upgrade);
    let zone = "spec.schedule: must not hold TZ or CRON_TZ; the zone stands in timeZone";
    of(Kind::RayCronJob, json!({}), json!({"spec": {"schedule": "TZ=UTC 0 * * * *"}}), zone);
}

fn deletion(of: &mut Add<'_>) {
    let strategy = |strategy: Value| json!({"spec": {"deletionStrategy": strategy}});
    let older = |policy: &str| strategy(json!({"onSuccess": {"policy": policy}, "onFailure": {"policy": policy}}));
    let rule = |policy: &str, status: &str, seconds: i32| json!({"policy": policy, "condition": {"jobStatus": status, "ttlSeconds": seconds}});
    let rules = |rules: &[Value]| strategy(json!({ "deletionRules": rules }));
    let shut = json!({"spec": {"shutdownAfterJobFinishes": true}});
    let cluster = rules(&[rule("DeleteCluster", "SUCCEEDED", 5)]);
    let both = "deletionStrategy.deletionRules: and shutdownAfterJobFinishes exclude each other";
    of(Kind::RayJob, cluster.clone(), shut.clone(), both);
    let says = "deletionStrategy: onSuccess and onFailure need a policy each";
    of(Kind::RayJob, older("DeleteCluster"), strategy(json!({"onSuccess": {"policy": null}})), says);
    let selects = json!({"spec": {"clusterSelector": {"ray.io/cluster": "c"}}});
    let selected = "deletionStrategy: DeleteCluster and DeleteWorkers exclude clusterSelector";
    of(Kind::RayJob, cluster, selects.clone(), selected);
    of(Kind::RayJob, older("DeleteWorkers"), selects, selected);
    let scaled = json!({"spec": {"rayClusterSpec": {"enableInTreeAutoscaling": true}}});
    let autoscaled = "deletionStrategy: DeleteWorkers and autoscaling exclude each other";
    of(Kind::RayJob, rules(&[rule("DeleteWorkers", "FAILED", 0)]), scaled.clone(), autoscaled);
    of(Kind::RayJob, older("DeleteWorkers"), scaled, autoscaled);
    let nothing = "deletionStrategy: DeleteNone and shutdownAfterJobFinishes exclude each other";
    of(Kind::RayJob, older("DeleteNone"), shut, nothing);
    let pair = |second: Value| rules(&[rule("DeleteCluster", "SUCCEEDED", 5), second]);
    let repeat = "deletionStrategy.deletionRules: repeat a policy for one condition";
    let other = pair(rule("DeleteCluster", "FAILED", 9));
    of(Kind::RayJob, other, pair(rule("DeleteCluster", "SUCCEEDED", 9)), repeat);
    let order = "deletionStrategy.deletionRules: what is larger is deleted before what it holds";
    for (good, bad) in [
        (rule("DeleteSelf", "SUCCEEDED", 5), rule("DeleteSelf", "SUCCEEDED", 4)),
        (rule("DeleteWorkers", "SUCCEEDED", 5), rule("DeleteWorkers", "SUCCEEDED", 6)),
        (rule("DeleteSelf", "FAILED", 4), rule("DeleteSelf", "SUCCEEDED", 4)),
    ] {
        of(Kind::RayJob, pair(good), pair(bad), order);
    }
}

fn services(of: &mut Add<'_>) {
    let service = |spec: Value| json!({ "spec": spec });
    let strategy = |kind: &str| service(json!({"upgradeStrategy": {"type": kind}}));
    let name = "headService.metadata.name: must not be set: each cluster has its own";
    let named = json!({"rayClusterConfig": {"headGroupSpec": {"headService": {"metadata": {"name": "h"}}}}});
    of(Kind::RayService, json!({}), service(named), name);
    let one_of = "spec.upgradeStrategy.type: is none of NewCluster, None, NewClusterWithIncrementalUpgrade";
    of(Kind::RayService, strategy("NewCluster"), strategy("Rolling"), one_of);
    let options = |options: &Value| service(json!({"upgradeStrategy": {"clusterUpgradeOptions": options}}));
    let whole = json!({"gatewayClassName": "g", "intervalSeconds": 5, "stepSizePercent": 10, "maxSurgePercent": 50});
    let autoscaling = |on: bool| service(json!({"rayClusterConfig": {"enableInTreeAutoscaling": on}}));
    let steps = [autoscaling(true), options(&whole)].iter().fold(strategy("NewClusterWithIncrementalUpgrade"), merged);
    let scaled = "spec.rayClusterConfig.enableInTreeAutoscaling: must be true for NewClusterWithIncrementalUpgrade";
    of(Kind::RayService, steps.clone(), autoscaling(false), scaled);
    let needs = "spec.upgradeStrategy.clusterUpgradeOptions: must be set for NewClusterWithIncrementalUpgrade";
    of(Kind::RayService, steps.clone(), options(&Value::Null), needs);
    let surge = "spec.upgradeStrategy.clusterUpgradeOptions.maxSurgePercent: must be within 0 to 100";
    of(Kind::RayService, steps.clone(), options(&json!({"maxSurgePercent": 101})), surge);
    let step = "spec.upgradeStrategy.clusterUpgradeOptions.stepSizePercent: must be within 0 and maxSurgePercent";
    for percent in [-1, 51] {
        of(Kind::RayService, steps.clone(), options(&json!({"stepSizePercent": percent})), step);
    }
    let interval = "spec.upgradeStrategy.clusterUpgradeOptions.intervalSeconds: must be more than 0";
    of(Kind::RayService, steps.clone(), options(&json!({"intervalSeconds": 0})), interval);
    let class = "spec.upgradeStrategy.clusterUpgradeOptions.gatewayClassName: must be set";
    of(Kind::RayService, steps, options(&json!({"gatewayClassName": ""})), class);
}
