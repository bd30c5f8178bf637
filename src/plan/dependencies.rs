//! What follows a root object to its member: Secrets, ConfigMaps and ServiceAccounts that its pods name.
//! Knows pod templates and copies. Must not know stages: `reserve` makes the copies, `bound` keeps them up to date.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};

use super::mirror::is_copied;
use super::root::Root;
use super::{Action, Fetch, Precondition, Seen};
use crate::api::names::COPY_HASH;
use crate::api::{Cluster, Id, Kind, MemberName, Time, Uid, Version};
use crate::row::Row;

/// An answer that is in the way is read again after this time.
pub const READ_AGAIN: Duration = Duration::from_secs(3);

/// What was found on the hub before anything is bound counts this long; longer than any read takes.
const COUNTS: Duration = Duration::from_secs(15);
/// What was missing there is looked for again after this time at first, ever more rarely the longer the object waits.
const LOOK_AGAIN: Duration = Duration::from_secs(5);
/// At least so often.
const LOOK_RARELY: Duration = Duration::from_mins(1);
/// A read that fails this often in a row counts as missing: one that fails once costs nobody its turn.
const FAILURES: u32 = 3;

/// What a look at the dependencies comes to.
#[derive(Debug, Default)]
pub struct Dependencies {
    /// `Secret/name` and so on: all that were found on the hub.
    pub names: Vec<String>,
    /// Reads that are needed first.
    pub fetch: Vec<Fetch>,
    /// Copies to be made or renewed.
    pub actions: Vec<Action>,
    /// What is in the way, in a sentence.
    pub blocked: Option<String>,
    /// It is in the way for good: missing on the hub, or a stranger's on the member. Else it could not be read.
    pub lacking: bool,
}

/// Names that the pod templates of a root object give, and whether each may be missing.
pub fn named(root: &Root) -> BTreeMap<Id, bool> {
    let mut found = BTreeMap::new();
    let spec = &root.body()["spec"];
    let selects = spec["clusterSelector"].as_object().is_some_and(|selector| !selector.is_empty());
    let cluster = match &spec["rayClusterSpec"] {
        // Its pods are there already; a rayClusterSpec beside the selector counts for nothing.
        _ if selects => &Value::Null,
        of_job @ Value::Object(_) => of_job,
        _ => spec,
    };
    let mut pods = vec![&cluster["headGroupSpec"]["template"]["spec"], &spec["submitterPodTemplate"]["spec"]];
    pods.extend(cluster["workerGroupSpecs"].as_array().into_iter().flatten().map(|g| &g["template"]["spec"]));
    for pod in pods {
        of_pod(pod, &root.row.id.namespace, &mut found);
    }
    of_pod(&by_options(cluster), &root.row.id.namespace, &mut found);
    found
}

/// What options of a RayCluster bring into its pods, as a pod: the Secret with its token, where user and password of Redis
/// stand, what the autoscaler is told, and certificates of its Ingress, without which it starts all the same.
fn by_options(cluster: &Value) -> Value {
    let auth = &cluster["authOptions"];
    let mut env = cluster["autoscalerOptions"]["env"].as_array().cloned().unwrap_or_default();
    if auth["mode"] == "token" && auth["enableK8sTokenAuth"] != true {
        env.push(json!({ "valueFrom": { "secretKeyRef": { "name": auth["secretName"] } } }));
    }
    let redis = &cluster["gcsFaultToleranceOptions"];
    env.extend(
        [&redis["redisUsername"], &redis["redisPassword"]]
            .map(|credential| json!({ "valueFrom": credential["valueFrom"] })),
    );
    let container = json!({ "env": env, "envFrom": cluster["autoscalerOptions"]["envFrom"] });
    let certificates = cluster["headGroupSpec"]["ingressOptions"]["tls"].as_array().into_iter().flatten();
    let volume = |tls: &Value| json!({ "secret": { "secretName": tls["secretName"], "optional": true } });
    json!({ "containers": [container], "volumes": certificates.map(volume).collect::<Vec<_>>() })
}

fn of_pod(pod: &Value, namespace: &std::sync::Arc<str>, found: &mut BTreeMap<Id, bool>) {
    let mut note = |kind: Kind, name: &Value, optional: &Value| {
        if let Some(name) = name.as_str().filter(|n| !n.is_empty()) {
            let may_miss = optional == &Value::Bool(true);
            let entry = found.entry(Id::new(kind, namespace.clone(), name)).or_insert(may_miss);
            *entry &= may_miss;
        }
    };
    let list = |v: &'_ Value| v.as_array().cloned().unwrap_or_default();
    for volume in list(&pod["volumes"]) {
        note(Kind::Secret, &volume["secret"]["secretName"], &volume["secret"]["optional"]);
        note(Kind::ConfigMap, &volume["configMap"]["name"], &volume["configMap"]["optional"]);
        for source in list(&volume["projected"]["sources"]) {
            note(Kind::Secret, &source["secret"]["name"], &source["secret"]["optional"]);
            note(Kind::ConfigMap, &source["configMap"]["name"], &source["configMap"]["optional"]);
        }
    }
    for container in list(&pod["containers"]).iter().chain(&list(&pod["initContainers"])) {
        for env in list(&container["env"]) {
            let from = &env["valueFrom"];
            note(Kind::Secret, &from["secretKeyRef"]["name"], &from["secretKeyRef"]["optional"]);
            note(Kind::ConfigMap, &from["configMapKeyRef"]["name"], &from["configMapKeyRef"]["optional"]);
        }
        for from in list(&container["envFrom"]) {
            note(Kind::Secret, &from["secretRef"]["name"], &from["secretRef"]["optional"]);
            note(Kind::ConfigMap, &from["configMapRef"]["name"], &from["configMapRef"]["optional"]);
        }
    }
    for secret in list(&pod["imagePullSecrets"]) {
        note(Kind::Secret, &secret["name"], &Value::Null);
    }
    // Every namespace has a `default` one.
    if pod["serviceAccountName"] != "default" {
        note(Kind::ServiceAccount, &pod["serviceAccountName"], &Value::Null);
    }
}

/// What the hub has of what a root object names.
#[derive(Debug, Default)]
pub struct OnHub {
    /// Reads that are needed, first or again.
    pub fetch: Vec<Fetch>,
    /// What it lacks, in sentences; nothing while it is not read.
    pub missing: Vec<String>,
    /// A read failed, and not often enough yet to count as missing.
    pub unread: bool,
    /// When what is missing or unread is to be looked for again.
    pub next: Option<Time>,
}

impl OnHub {
    /// Whether all was read and is there.
    pub fn is_complete(&self) -> bool {
        self.fetch.is_empty() && self.missing.is_empty() && !self.unread
    }
}

/// Looks for what a root object that waits since `since` names on the hub, before a place is taken for it. The reservation
/// reads it afresh.
pub fn on_hub(seen: &Seen, root: &Root, since: Time, now: Time) -> OnHub {
    let rarely = (now.since(since) / 10).clamp(LOOK_AGAIN, LOOK_RARELY);
    let mut result = OnHub::default();
    for id in named(root).into_iter().filter_map(|(id, may_miss)| (!may_miss).then_some(id)) {
        let cluster = Cluster::Hub;
        let Some(read) = seen.fetched.get(&(cluster.clone(), id.clone())) else {
            result.fetch.push(Fetch { cluster, id, not_before: Time::default() });
            continue;
        };
        let (again, there) = match (&read.error, &read.body) {
            (None, Some(_)) => (read.begun + COUNTS, true),
            (None, None) => {
                result.missing.push(format!("{id} is missing on the hub"));
                (read.begun + rarely, false)
            }
            (Some(_), _) if read.failures < FAILURES => {
                result.unread = true;
                (read.begun + READ_AGAIN, false)
            }
            (Some(_), _) => {
                // Without the cause, which may have other words each time.
                result.missing.push(format!("{id} cannot be read on the hub"));
                (read.begun + rarely, false)
            }
        };
        if again <= now {
            result.fetch.push(Fetch { cluster, id, not_before: again });
        } else if !there {
            result.next = Some(result.next.map_or(again, |at| at.min(again)));
        }
    }
    result
}

/// Compares what the root object names on the hub with the copies on the member; `mirror` owns the copies.
/// Reads that were begun before `since` are asked for again.
pub fn look(seen: &Seen, member: &MemberName, root: &Root, mirror: &Row, since: Time, now: Time) -> Dependencies {
    let mut result = Dependencies::default();
    // A time that is yet to come was written by another clock: no read could ever be later.
    let since = if since > now { now - READ_AGAIN } else { since };
    let there = Cluster::Member(member.clone());
    for (id, may_miss) in named(root) {
        let (original, copy) = (read(seen, Cluster::Hub, &id, since), read(seen, there.clone(), &id, since));
        result.fetch.extend(original.as_ref().err().cloned().into_iter().chain(copy.as_ref().err().cloned()));
        let (Ok(original), Ok(copy)) = (original, copy) else { continue };
        let free = result.blocked.is_none();
        match (original, copy) {
            (Err(why), _) => result.block(format!("{id} cannot be read on the hub: {why}")),
            (_, Err(why)) => result.block(format!("{id} cannot be read on {member}: {why}")),
            (Ok(None), _) if may_miss => {}
            (Ok(None), _) => {
                result.lacking |= free;
                result.block(format!("{id} is missing on the hub"));
            }
            (Ok(Some(original)), Ok(copy)) => {
                result.names.push(format!("{}/{}", id.kind, id.name));
                match renew(&there, &id, original, copy, mirror) {
                    Ok(action) => result.actions.extend(action),
                    Err(why) => {
                        result.lacking |= free;
                        result.block(why);
                    }
                }
            }
        }
        if free && result.blocked.is_some() {
            // What is in the way may have gone: both are read again after a while.
            for cluster in [Cluster::Hub, there.clone()] {
                let begun = seen.fetched.get(&(cluster.clone(), id.clone())).map(|f| f.begun);
                if begun.is_some_and(|begun| begun + READ_AGAIN <= now) {
                    result.fetch.push(Fetch { cluster, id: id.clone(), not_before: now });
                }
            }
        }
    }
    result
}

impl Dependencies {
    fn block(&mut self, why: String) {
        self.blocked.get_or_insert(why);
    }
}

/// What was read, or the read that is needed. A read that failed is asked for again after a while.
type Read<'a> = Result<Result<Option<&'a Value>, String>, Fetch>;

fn read<'a>(seen: &Seen<'a>, cluster: Cluster, id: &Id, since: Time) -> Read<'a> {
    match seen.fetched.get(&(cluster.clone(), id.clone())) {
        Some(fetched) if fetched.begun >= since => Ok(match &fetched.error {
            Some(error) => Err(error.clone()),
            None => Ok(fetched.body.as_deref()),
        }),
        _ => Err(Fetch { cluster, id: id.clone(), not_before: since }),
    }
}

/// The write that makes the copy equal to the original and owned by the mirror; `None` if it is.
fn renew(
    there: &Cluster,
    id: &Id,
    original: &Value,
    copy: Option<&Value>,
    mirror: &Row,
) -> Result<Option<Action>, String> {
    let wanted = copy_of(id, original);
    let hash = hash_of(&wanted);
    let owner = json!({
        "apiVersion": mirror.id.kind.api_version(),
        "kind": mirror.id.kind.name(),
        "name": mirror.id.name,
        "uid": mirror.uid,
    });
    let Some(copy) = copy else {
        let mut body = wanted;
        body["metadata"]["annotations"][COPY_HASH] = hash.into();
        body["metadata"]["ownerReferences"] = json!([owner]);
        return Ok(Some(Action::Create { cluster: there.clone(), id: id.clone(), body }));
    };
    let metadata = &copy["metadata"];
    let Some(present) = metadata["annotations"][COPY_HASH].as_str() else {
        return Err(format!("{id} on {there} is not ours and is not overwritten"));
    };
    if !metadata["deletionTimestamp"].is_null() {
        return Err(format!("{id} on {there} is being deleted"));
    }
    let owners = metadata["ownerReferences"].as_array().cloned().unwrap_or_default();
    let owned = owners.iter().any(|o| o["uid"].as_str() == Some(&mirror.uid.0));
    if owned && present == hash {
        return Ok(None);
    }
    let mut body = wanted;
    body["metadata"] = metadata.clone();
    body["metadata"]["annotations"][COPY_HASH] = hash.into();
    let mut owners = owners;
    if !owned {
        owners.push(owner);
    }
    body["metadata"]["ownerReferences"] = Value::Array(owners);
    let text = |field: &str| metadata[field].as_str().unwrap_or_default();
    let version = Version::parse(text("resourceVersion")).ok_or_else(|| format!("{id} on {there} has no version"))?;
    let seen = Precondition { uid: Uid::from(text("uid")), version };
    Ok(Some(Action::Replace { cluster: there.clone(), id: id.clone(), body, seen }))
}

/// The original without what belongs to its cluster.
fn copy_of(id: &Id, original: &Value) -> Value {
    let mut body = original.clone();
    let own = |field: &str| -> Map<String, Value> {
        let map = original["metadata"][field].as_object().cloned().unwrap_or_default();
        map.into_iter().filter(|(key, _)| is_copied(key)).collect()
    };
    if let Some(fields) = body.as_object_mut() {
        fields.remove("status");
        // Tokens of the hub's own service accounts mean nothing elsewhere.
        if id.kind == Kind::ServiceAccount {
            fields.remove("secrets");
        }
        fields.insert("apiVersion".to_owned(), id.kind.api_version().into());
        fields.insert("kind".to_owned(), id.kind.name().into());
    }
    body["metadata"] = json!({
        "name": id.name,
        "namespace": id.namespace,
        "labels": own("labels"),
        "annotations": own("annotations"),
    });
    body
}

fn hash_of(body: &Value) -> String {
    Sha256::digest(body.to_string().as_bytes())
        .iter()
        .take(10)
        .fold(String::new(), |hash, byte| hash + &format!("{byte:02x}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::testing::{ray_job, row};

    #[test]
    fn everything_that_a_pod_names_is_found_and_optional_only_where_all_say_so() {
        let mut body = ray_job("train", "ml", "1");
        body["spec"]["rayClusterSpec"]["headGroupSpec"]["template"]["spec"] = json!({
            "serviceAccountName": "runner",
            "imagePullSecrets": [{"name": "pull"}],
            "volumes": [
                {"name": "a", "configMap": {"name": "script", "optional": true}},
                {"name": "b", "projected": {"sources": [{"secret": {"name": "token"}}]}},
            ],
            "containers": [{
                "name": "ray",
                "env": [{"name": "X", "valueFrom": {"configMapKeyRef": {"name": "script", "key": "x"}}}],
                "envFrom": [{"secretRef": {"name": "env", "optional": true}}],
            }],
        });
        let row = row(&body, 1);
        let root = Root::read(&row).unwrap();
        let found: Vec<(String, bool)> =
            named(&root).into_iter().map(|(id, o)| (format!("{}/{}", id.kind, id.name), o)).collect();
        let expected = [
            ("Secret/env", true),
            ("Secret/pull", false),
            ("Secret/token", false),
            ("ConfigMap/script", false),
            ("ServiceAccount/runner", false),
        ];
        assert_eq!(found, expected.map(|(n, o)| (n.to_owned(), o)));
    }

    #[test]
    fn a_raycluster_spec_beside_a_selector_names_nothing() {
        let mut body = ray_job("train", "ml", "1");
        let naming = |name: &str| json!({"spec": {"volumes": [{"name": "a", "configMap": {"name": name}}]}});
        body["spec"]["rayClusterSpec"]["headGroupSpec"]["template"] = naming("head");
        body["spec"]["submitterPodTemplate"] = naming("submitter");
        let names = |body: &Value| -> Vec<String> {
            let row = row(body, 1);
            named(&Root::read(&row).unwrap()).into_keys().map(|id| id.name.to_string()).collect()
        };
        assert_eq!(names(&body), ["head", "submitter"]);
        body["spec"]["clusterSelector"] = json!({"ray.io/cluster": "shared"});
        assert_eq!(names(&body), ["submitter"]);
    }

    #[test]
    fn where_user_and_password_of_redis_stand_is_found() {
        let from = |kind: &str, name: &str| json!({ "valueFrom": { kind: { "name": name, "key": "x" } } });
        let mut body = ray_job("train", "ml", "1");
        body["spec"]["rayClusterSpec"]["gcsFaultToleranceOptions"] = json!({
            "redisAddress": "redis:6379",
            "redisUsername": from("configMapKeyRef", "user"),
            "redisPassword": from("secretKeyRef", "redis"),
        });
        let row = row(&body, 1);
        let found: Vec<Id> = named(&Root::read(&row).unwrap()).into_keys().collect();
        assert_eq!(
            found.iter().map(ToString::to_string).collect::<Vec<_>>(),
            ["Secret default/redis", "ConfigMap default/user"]
        );
        // Written out they name nothing.
        body["spec"]["rayClusterSpec"]["gcsFaultToleranceOptions"] =
            json!({ "redisUsername": { "value": "u" }, "redisPassword": { "value": "p" } });
        let row = crate::plan::testing::row(&body, 1);
        assert!(named(&Root::read(&row).unwrap()).is_empty());
    }

    #[test]
    fn a_strangers_object_is_not_overwritten_and_our_copy_gets_a_second_owner() {
        let mirror = row(&ray_job("train", "ml", "1"), 7);
        let id = Id::new(Kind::ConfigMap, "default", "script");
        let original = json!({"metadata": {"name": "script", "uid": "x", "resourceVersion": "5"}, "data": {"a": "b"}});
        let there = Cluster::Member("eu".into());
        let stranger = json!({"metadata": {"name": "script", "uid": "s", "resourceVersion": "3"}, "data": {}});
        assert!(renew(&there, &id, &original, Some(&stranger), &mirror).unwrap_err().contains("not overwritten"));
        let Ok(Some(Action::Create { body, .. })) = renew(&there, &id, &original, None, &mirror) else {
            panic!("created")
        };
        assert_eq!(body["data"]["a"], "b");
        let mut copy = body.clone();
        copy["metadata"]["uid"] = "c".into();
        copy["metadata"]["resourceVersion"] = "9".into();
        assert_eq!(renew(&there, &id, &original, Some(&copy), &mirror), Ok(None));
        copy["metadata"]["ownerReferences"][0]["uid"] = "other".into();
        let Ok(Some(Action::Replace { body, .. })) = renew(&there, &id, &original, Some(&copy), &mirror) else {
            panic!("owned")
        };
        assert_eq!(body["metadata"]["ownerReferences"].as_array().unwrap().len(), 2);
    }
}
