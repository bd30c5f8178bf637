//! `rayfleet member add`: registers a member, or gives a registered one other credentials or settings.
//! All is checked before the first write, and the write that switches credentials is the last one.

use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};

use super::{TRIES, cluster_id};
use crate::api::{Id, Kind};
use crate::cli::access::{Access, Hub, is_conflict};
use crate::cli::{End, manifest, names, output};
use crate::shell::kubeconfig::portable;

/// Where the Secrets of new members go.
const SECRET_NAMESPACE: &str = "rayfleet-system";
const SECRET_KEY: &str = "kubeconfig";
/// Units of a member whose `spec.units` is not given, and of a new one.
const UNITS: u64 = 4;

/// Options of `rayfleet member add`.
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Only credentials that stand in the kubeconfig itself are taken: a token, or client-certificate-data and
client-key-data. One with exec, auth-provider, tokenFile or file paths is refused: the controller runs nothing
and reads no file that a kubeconfig names. For a cluster with such a login, make a service account and use its token:
  kubectl create token rayfleet --duration 720h

For a member that is registered it replaces the credentials; settings that are not named stay as they are. A kubeconfig
that leads to the hub, to the cluster of another member, or for a registered member to another cluster, is refused.

Examples:
  rayfleet member add eu --from eu.yaml
  rayfleet member add eu --from ~/.kube/config --from-context prod-eu --default-queue research")]
pub(super) struct AddArgs {
    /// Name of the member
    #[arg(value_parser = names::object)]
    name: String,
    /// Kubeconfig with the member's address and credentials; `-` reads standard input
    #[arg(long, value_name = "FILE")]
    from: PathBuf,
    /// Context in that kubeconfig (default: its current one)
    #[arg(long, value_name = "NAME")]
    from_context: Option<String>,
    /// Namespace on the hub for the Secret with the credentials; made if it is missing (default: rayfleet-system)
    #[arg(long, value_name = "NAME", value_parser = names::namespace)]
    secret_namespace: Option<String>,
    /// Queue for jobs that name none, on this member
    #[arg(long, value_name = "NAME", value_parser = names::object)]
    default_queue: Option<String>,
    /// Into how many units the member's work is divided: a power of two up to 32; cannot be changed later (default: 4)
    #[arg(long, value_name = "COUNT", value_parser = units)]
    units: Option<u64>,
    /// Label of the member, for policies; may be given more than once
    #[arg(long = "label", value_name = "KEY=VALUE", value_parser = names::label)]
    labels: Vec<(String, String)>,
}

fn units(text: &str) -> Result<u64, String> {
    let count = text.parse().ok().filter(|count: &u64| count.is_power_of_two() && *count <= 32);
    count.ok_or_else(|| "right are 1, 2, 4, 8, 16 and 32".to_owned())
}

pub(super) async fn run(args: &AddArgs, access: &Access) -> Result<End> {
    let text = manifest::read(&args.from)?;
    let carried = portable(&text, args.from_context.as_deref())
        .await
        .with_context(|| format!("{} is not taken", args.from.display()))?;
    let hub = access.hub().await?;
    let found = match cluster_id::of_kubeconfig(&args.name, &carried).await {
        Ok(found) => Some(found),
        Err(error) => {
            not_compared(&error);
            None
        }
    };
    for _ in 0..TRIES {
        match register(&hub, args, &text, &carried, found.as_deref()).await {
            // Its controller writes to it too: all is looked at again.
            Err(error) if is_conflict(&error) => {}
            registered => return registered,
        }
    }
    bail!("membercluster/{} was changed by others {TRIES} times meanwhile: try again", args.name)
}

fn not_compared(error: &anyhow::Error) {
    let words = output::words(error);
    output::note(&format!(
        "warning: {words}; so it is not checked now that this cluster is neither the hub nor another member: the controller \
         does when it can"
    ));
}

/// One object as it is to be.
struct Wanted {
    id: Id,
    there: Option<Value>,
    body: Value,
}

impl Wanted {
    fn is_there(&self) -> bool {
        self.there.as_ref() == Some(&self.body)
    }

    async fn try_out(&self, hub: &Hub) -> Result<()> {
        if self.is_there() { Ok(()) } else { hub.try_out(&self.id, &self.body, self.there.is_none()).await }
    }

    /// What became of it, in a word.
    async fn write(&self, hub: &Hub) -> Result<&'static str> {
        if self.is_there() {
            return Ok("unchanged");
        }
        if self.there.is_some() {
            hub.replace(&self.id, &self.body).await?;
            return Ok("configured");
        }
        hub.create(&self.id, &self.body).await?;
        Ok("created")
    }
}

/// All checks, then all writes. An error that [`is_conflict`] means: look again.
async fn register(hub: &Hub, args: &AddArgs, text: &str, carried: &str, found: Option<&str>) -> Result<End> {
    let id = Id::new(Kind::MemberCluster, "", args.name.as_str());
    let there = hub.get(&id).await?;
    if let Some(why) = there.as_ref().and_then(|there| leaving(&args.name, there)) {
        bail!("{why}");
    }
    if let Some(found) = found {
        compare(hub, args, text, found).await?;
    }
    let member = Wanted { id, body: member(there.as_ref(), args)?, there };
    let secret = secret(hub, &member.body, carried).await?;
    let namespace_id = Id::new(Kind::Namespace, "", secret.id.namespace.clone());
    let namespace = hub.get(&namespace_id).await?;
    member.try_out(hub).await?;
    if namespace.is_some() {
        secret.try_out(hub).await?;
    }

    if namespace.is_none() {
        let metadata = json!({ "name": &*namespace_id.name });
        let body = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": metadata });
        hub.create(&namespace_id, &body).await?;
    }
    // A Secret that the member names already is a switch; else the member is, which names it from then on.
    let before = member.there.as_ref().map(|there| &there["spec"]["kubeconfigSecret"]);
    let switches = before == Some(&member.body["spec"]["kubeconfigSecret"]);
    if switches {
        tell_member(&member, hub).await?;
        tell_secret(&secret, hub).await?;
    } else {
        tell_secret(&secret, hub).await?;
        tell_member(&member, hub).await?;
    }
    Ok(End::Done)
}

async fn tell_secret(secret: &Wanted, hub: &Hub) -> Result<()> {
    let what = secret.write(hub).await?;
    output::print(&format!("secret/{} {what} in {}", secret.id.name, secret.id.namespace))
}

async fn tell_member(member: &Wanted, hub: &Hub) -> Result<()> {
    let what = member.write(hub).await?;
    output::print(&format!("membercluster/{} {what}; see: rayfleet member list", member.id.name))
}

/// Refuses a cluster that must not be this member.
async fn compare(hub: &Hub, args: &AddArgs, text: &str, found: &str) -> Result<()> {
    let members = hub.list(Kind::MemberCluster, None).await?;
    let own = match cluster_id::of_hub(hub).await {
        Ok(own) => Some(own),
        Err(error) => {
            not_compared(&error);
            None
        }
    };
    let Some(why) = cluster_id::wrong(&args.name, found, own.as_deref(), &members) else { return Ok(()) };
    let contexts = match contexts(text) {
        0 | 1 => String::new(),
        several => format!("; --from-context chooses another one of its {several} (kubectl config get-contexts)"),
    };
    bail!("{}: {why}{contexts}", args.from.display())
}

/// How many contexts a kubeconfig has. Their names are the file's, and nothing of it is shown.
fn contexts(text: &str) -> usize {
    let kubeconfig: Value = serde_saphyr::from_str(text).unwrap_or_default();
    kubeconfig["contexts"].as_array().map_or(0, Vec::len)
}

/// What is to be done about a member that is being deleted.
fn leaving(name: &str, there: &Value) -> Option<String> {
    let since = there["metadata"]["deletionTimestamp"].as_str()?;
    let conditions = there["status"]["conditions"].as_array().into_iter().flatten();
    let held = conditions
        .filter(|condition| condition["type"] == "RemovalBlocked" && condition["status"] == "True")
        .filter_map(|condition| condition["message"].as_str())
        .map(|message| format!(". It is held: {message}"));
    let secret = &there["spec"]["kubeconfigSecret"];
    let text = |field: &str| secret[field].as_str().unwrap_or_default();
    let credentials = if secret.is_object() {
        format!(
            "; if its credentials have run out before what stands on it was taken away, put new ones into the Secret {}/{}",
            text("namespace"),
            text("name")
        )
    } else {
        String::new()
    };
    Some(format!(
        "membercluster/{name} is being deleted since {since}: wait until it is gone (kubectl wait --for=delete \
         membercluster/{name}), then add it again{credentials}{}",
        held.collect::<String>()
    ))
}

/// The `MemberCluster` as it is to be: what is not named on the command line stays.
fn member(there: Option<&Value>, args: &AddArgs) -> Result<Value> {
    let name = &args.name;
    let mut member = there.cloned().unwrap_or_else(|| {
        json!({
            "apiVersion": Kind::MemberCluster.api_version(),
            "kind": Kind::MemberCluster.name(),
            "metadata": { "name": name },
            "spec": { "units": args.units.unwrap_or(UNITS) },
        })
    });
    let spec = &mut member["spec"];
    let has = spec["units"].as_u64().unwrap_or(UNITS);
    if args.units.is_some_and(|wanted| wanted != has) {
        bail!("membercluster/{name} has {has} units, which cannot be changed: leave --units out, or say --units {has}");
    }
    let named = spec["kubeconfigSecret"]["namespace"].as_str().map(str::to_owned);
    let wanted = args.secret_namespace.clone().or_else(|| named.clone()).unwrap_or_else(|| SECRET_NAMESPACE.to_owned());
    if named.as_ref() != Some(&wanted) {
        spec["kubeconfigSecret"] = json!({ "namespace": wanted, "name": format!("member-{name}"), "key": SECRET_KEY });
    }
    for (key, value) in &args.labels {
        spec["labels"][key] = json!(value);
    }
    if let Some(queue) = &args.default_queue {
        spec["defaultQueue"] = json!(queue);
    }
    Ok(member)
}

/// The Secret that the member names, with these credentials; what else is in it stays.
async fn secret(hub: &Hub, member: &Value, carried: &str) -> Result<Wanted> {
    let named = |field: &str| member["spec"]["kubeconfigSecret"][field].as_str().unwrap_or_default();
    let id = Id::new(Kind::Secret, named("namespace"), named("name"));
    let there = hub.get(&id).await?;
    let mut body = there.clone().unwrap_or_else(|| {
        json!({
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": { "name": &*id.name, "namespace": &*id.namespace },
            "type": "Opaque",
        })
    });
    let key = Some(named("key")).filter(|key| !key.is_empty()).unwrap_or(SECRET_KEY);
    body["data"][key] = json!(data_encoding::BASE64.encode(carried.as_bytes()));
    Ok(Wanted { id, there, body })
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: AddArgs,
    }

    fn args(more: &[&str]) -> AddArgs {
        Line::parse_from([&["x", "eu", "--from", "eu.yaml"], more].concat()).args
    }

    #[test]
    fn what_is_not_named_stays() {
        let new = member(None, &args(&["--label", "zone=a", "--default-queue", "ml"])).unwrap();
        let own = json!({ "namespace": "rayfleet-system", "name": "member-eu", "key": "kubeconfig" });
        let spec = json!({ "kubeconfigSecret": own, "units": 4, "labels": { "zone": "a" }, "defaultQueue": "ml" });
        assert_eq!(new["spec"], spec);

        let there = json!({
            "metadata": { "name": "eu", "resourceVersion": "7", "annotations": { "a": "b" } },
            "spec": {
                "kubeconfigSecret": { "namespace": "secrets", "name": "eu", "key": "k" },
                "labels": { "zone": "a" }, "defaultQueue": "ml", "unschedulable": true, "mode": "Full",
            },
            "status": { "nodes": 3 },
        });
        for same in [&[][..], &["--units", "4"], &["--label", "zone=a"], &["--secret-namespace", "secrets"]] {
            assert_eq!(member(Some(&there), &args(same)).unwrap(), there, "{same:?}");
        }
        let mut changed = there.clone();
        changed["spec"]["labels"]["tier"] = json!("gold");
        changed["spec"]["kubeconfigSecret"] = json!({ "namespace": "n", "name": "member-eu", "key": "kubeconfig" });
        let given = args(&["--label", "tier=gold", "--secret-namespace", "n"]);
        assert_eq!(member(Some(&there), &given).unwrap(), changed);
        let refused = member(Some(&there), &args(&["--units", "8"])).unwrap_err().to_string();
        assert!(refused.contains("has 4 units, which cannot be changed"), "{refused}");
    }

    #[test]
    fn a_member_that_is_being_deleted_is_left_with_what_to_do() {
        let there = json!({
            "metadata": { "name": "eu", "deletionTimestamp": "2026-01-01T00:00:00Z" },
            "spec": { "kubeconfigSecret": { "namespace": "n", "name": "s" } },
            "status": { "conditions": [{ "type": "RemovalBlocked", "status": "True", "message": "2 still on it" }] },
        });
        let why = leaving("eu", &there).unwrap();
        for part in ["is being deleted", "kubectl wait --for=delete membercluster/eu", "Secret n/s", "2 still on it"] {
            assert!(why.contains(part), "{part}: {why}");
        }
        assert_eq!(leaving("eu", &json!({ "metadata": { "name": "eu" } })), None);
    }

    #[test]
    fn contexts_of_a_kubeconfig_are_counted() {
        assert_eq!(contexts("contexts: [{name: hub}, {name: eu}]"), 2);
        assert_eq!(contexts("{}"), 0);
    }
}
