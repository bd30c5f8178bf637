//! `rayfleet member add | list | cordon | uncordon`: registers member clusters on the hub, shows what was found about them,
//! and says whether they take new work.
//! Must not talk to members: whether one can be reached is for the controller to find.

use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};

use super::End;
use super::access::{Access, Hub, Refusal};
use super::manifest;
use super::output::{self, Format};
use crate::api::fleet::{MemberCapacity, MemberCluster};
use crate::api::{Id, Kind, Time};
use crate::shell::clock::Clock;
use crate::shell::kubeconfig::portable;

/// An object that others change meanwhile is read and written so often.
const TRIES: u32 = 5;

/// Options of `rayfleet member`.
#[derive(clap::Args, Debug)]
pub(crate) struct MemberArgs {
    #[command(subcommand)]
    command: MemberCommand,
}

#[derive(clap::Subcommand, Debug)]
enum MemberCommand {
    /// Register a member by its kubeconfig
    Add(AddArgs),
    /// List the members with their conditions
    List(ListArgs),
    /// Take no new work on a member; what was admitted there goes on
    Cordon(NameArgs),
    /// Take new work on a member again
    Uncordon(NameArgs),
}

/// Options of `rayfleet member add`.
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Only credentials that stand in the kubeconfig itself are taken: a token, or client-certificate-data and
client-key-data. One with exec, auth-provider, tokenFile or file paths is refused: the controller runs nothing
and reads no file that a kubeconfig names. For a cluster with such a login, make a service account and use its token:
  kubectl create token rayfleet --duration 720h

Examples:
  rayfleet member add eu --from eu.yaml
  rayfleet member add eu --from ~/.kube/config --from-context prod-eu --default-queue research")]
struct AddArgs {
    /// Name of the member
    name: String,
    /// Kubeconfig with the member's address and credentials; `-` reads standard input
    #[arg(long, value_name = "FILE")]
    from: PathBuf,
    /// Context in that kubeconfig (default: its current one)
    #[arg(long, value_name = "NAME")]
    from_context: Option<String>,
    /// Namespace on the hub for the Secret with the credentials; made if it is missing
    #[arg(long, value_name = "NAME", default_value = "rayfleet-system")]
    secret_namespace: String,
    /// Queue for jobs that name none, on this member
    #[arg(long, value_name = "NAME")]
    default_queue: Option<String>,
    /// Into how many units the member's work is divided: a power of two up to 32; cannot be changed later
    #[arg(long, value_name = "COUNT", default_value_t = 4)]
    units: u32,
    /// Label of the member, for policies; may be given more than once
    #[arg(long = "label", value_name = "KEY=VALUE")]
    labels: Vec<String>,
}

/// Options of `rayfleet member list`.
#[derive(clap::Args, Debug)]
struct ListArgs {
    /// Form of the output
    #[arg(short, long, value_enum, default_value_t = Format::Table)]
    output: Format,
}

/// Options of `rayfleet member cordon` and `uncordon`.
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Nothing new is placed on a cordoned member, and what Volcano has not admitted there yet goes back to the hub and is
placed elsewhere. What was admitted goes on to its end. `rayfleet explain` shows the verdict Cordoned for it.

Examples:
  rayfleet member cordon eu
  rayfleet member uncordon eu")]
struct NameArgs {
    /// Name of the member
    name: String,
}

pub(crate) async fn run(args: MemberArgs, access: &Access) -> Result<End> {
    match args.command {
        MemberCommand::Add(args) => add(args, access).await,
        MemberCommand::List(args) => list(&args, access).await,
        MemberCommand::Cordon(args) => cordon(&args.name, true, access).await,
        MemberCommand::Uncordon(args) => cordon(&args.name, false, access).await,
    }
}

async fn add(args: AddArgs, access: &Access) -> Result<End> {
    if !args.units.is_power_of_two() || args.units > 32 {
        bail!("--units {}: right are 1, 2, 4, 8, 16 and 32", args.units);
    }
    let labels = labels(&args.labels)?;
    let text = manifest::read(&args.from)?;
    let carried = portable(&text, args.from_context.as_deref())
        .await
        .with_context(|| format!("{} is not taken", args.from.display()))?;
    let hub = access.hub().await?;
    let secret = Id::new(Kind::Secret, args.secret_namespace.as_str(), format!("member-{}", args.name));
    let namespace = Id::new(Kind::Namespace, "", args.secret_namespace.as_str());
    upsert(&hub, &namespace, json!({ "apiVersion": "v1", "kind": "Namespace" }), false).await?;
    let body = json!({
        "apiVersion": "v1",
        "kind": "Secret",
        "type": "Opaque",
        "data": { "kubeconfig": data_encoding::BASE64.encode(carried.as_bytes()) },
    });
    let what = upsert(&hub, &secret, body, true).await?;
    output::print(&format!("secret/{} {what} in {}", secret.name, secret.namespace))?;
    let mut spec = json!({
        "kubeconfigSecret": { "namespace": &*secret.namespace, "name": &*secret.name, "key": "kubeconfig" },
        "units": args.units,
        "labels": labels,
    });
    if let Some(queue) = &args.default_queue {
        spec["defaultQueue"] = json!(queue);
    }
    let member = Id::new(Kind::MemberCluster, "", args.name.as_str());
    if let Some(there) = hub.get(&member).await? {
        // New credentials are no word about new work.
        if is_cordoned(&there) {
            spec["unschedulable"] = json!(true);
        }
        let units = there["spec"]["units"].as_u64().unwrap_or(4);
        if units != u64::from(args.units) {
            bail!("membercluster/{} has {units} units, which cannot be changed: use --units {units}", args.name);
        }
    }
    let body = json!({
        "apiVersion": Kind::MemberCluster.api_version(),
        "kind": Kind::MemberCluster.name(),
        "spec": spec,
    });
    let what = upsert(&hub, &member, body, true).await?;
    output::print(&format!("membercluster/{} {what}; see: rayfleet member list", args.name))?;
    Ok(End::Done)
}

fn is_cordoned(member: &Value) -> bool {
    member["spec"]["unschedulable"] == true
}

/// Says on the hub whether the member takes new work.
async fn cordon(name: &str, cordoned: bool, access: &Access) -> Result<End> {
    let hub = access.hub().await?;
    let id = Id::new(Kind::MemberCluster, "", name);
    let wanted = if cordoned { "cordoned" } else { "uncordoned" };
    for _ in 0..TRIES {
        let Some(mut member) = hub.get(&id).await? else {
            bail!("there is no member {name}; those that are: rayfleet member list");
        };
        if is_cordoned(&member) == cordoned {
            output::print(&format!("membercluster/{name} already {wanted}"))?;
            return Ok(End::Done);
        }
        member["spec"]["unschedulable"] = json!(cordoned);
        match hub.replace(&id, &member).await {
            Ok(_) => {
                output::print(&format!("membercluster/{name} {wanted}"))?;
                return Ok(End::Done);
            }
            // Its controller writes to it too.
            Err(error) if error.downcast_ref::<Refusal>().is_some_and(|r| r.status == 409) => {}
            Err(error) => return Err(error),
        }
    }
    bail!("membercluster/{name} was changed by others {TRIES} times meanwhile: try again")
}

fn labels(given: &[String]) -> Result<Value> {
    let mut labels = json!({});
    for label in given {
        let Some((key, value)) = label.split_once('=').filter(|(key, _)| !key.is_empty()) else {
            bail!("--label {label}: right is KEY=VALUE");
        };
        labels[key] = json!(value);
    }
    Ok(labels)
}

/// Creates the object or, where `update` says so, puts these fields in place of those that are there.
async fn upsert(hub: &Hub, id: &Id, mut body: Value, update: bool) -> Result<&'static str> {
    body["metadata"] = json!({ "name": &*id.name });
    if !id.namespace.is_empty() {
        body["metadata"]["namespace"] = json!(&*id.namespace);
    }
    let taken = match hub.create(id, &body).await {
        Ok(_) => return Ok("created"),
        Err(error) if error.downcast_ref::<Refusal>().is_some_and(|r| r.status == 409) => error,
        Err(error) => return Err(error),
    };
    if !update {
        return Ok("unchanged");
    }
    let Some(mut there) = hub.get(id).await? else { return Err(taken) };
    let before = there.clone();
    for (field, value) in body.as_object_mut().into_iter().flatten().filter(|(field, _)| *field != "metadata") {
        there[field] = value.take();
    }
    if there == before {
        return Ok("unchanged");
    }
    hub.replace(id, &there).await?;
    Ok("configured")
}

async fn list(args: &ListArgs, access: &Access) -> Result<End> {
    let hub = access.hub().await?;
    let members = hub.list(Kind::MemberCluster, None).await?;
    let capacities = hub.list(Kind::MemberCapacity, None).await?;
    let now = Clock::default().now();
    let text = args.output.render(&members, || {
        if members.is_empty() {
            return "no members; register one: rayfleet member add NAME --from KUBECONFIG".to_owned();
        }
        output::columns(
            &["NAME", "READY", "REACHABLE", "VOLCANO", "NODES", "QUEUES", "UNITS", "CORDONED", "AGE", "WHY"],
            members.iter().map(|member| row(member, &capacities, now)),
        )
    })?;
    output::print(&text)?;
    Ok(End::Done)
}

fn row(object: &Value, capacities: &[Value], now: Time) -> [String; 10] {
    let name = object["metadata"]["name"].as_str().unwrap_or("?");
    let member: MemberCluster = serde_json::from_value(object.clone()).unwrap_or_default();
    let condition = |kind: &str| member.status.conditions.iter().find(|c| c.r#type == kind);
    let status = |kind: &str| condition(kind).map_or_else(|| "-".to_owned(), |c| c.status.clone());
    let bad = condition("RemovalBlocked")
        .or_else(|| member.status.conditions.iter().find(|c| c.status != "True" && !c.message.is_empty()));
    let capacity = capacities.iter().find(|c| c["metadata"]["name"] == name);
    let capacity: Option<MemberCapacity> = capacity.and_then(|c| serde_json::from_value(c.clone()).ok());
    let created = object["metadata"]["creationTimestamp"].as_str().and_then(Time::parse);
    [
        name.to_owned(),
        status("Ready"),
        status("Reachable"),
        status("VolcanoReady"),
        member.status.nodes.map_or_else(|| "-".to_owned(), |n| n.to_string()),
        capacity.map_or_else(|| "-".to_owned(), |c| c.spec.queues.len().to_string()),
        member.spec.unit_count().to_string(),
        if member.spec.unschedulable { "True" } else { "False" }.to_owned(),
        created.map_or_else(|| "-".to_owned(), |at| output::age(at, now)),
        bad.map_or_else(String::new, |c| c.message.clone()),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_shows_conditions_and_the_first_reason() {
        let member = json!({
            "metadata": { "name": "eu", "creationTimestamp": "1970-01-01T00:00:00Z" },
            "status": { "nodes": 3, "conditions": [
                { "type": "Ready", "status": "False", "message": "no answer since 40 s" },
                { "type": "Reachable", "status": "False" },
            ] },
        });
        let capacity = json!({ "metadata": { "name": "eu" }, "spec": { "queues": { "ml": {}, "research": {} } } });
        let got = row(&member, std::slice::from_ref(&capacity), Time(300_000));
        assert_eq!(
            got,
            ["eu", "False", "False", "-", "3", "2", "4", "False", "5m", "no answer since 40 s"].map(str::to_owned)
        );
        let mut removed = member;
        let blocked = json!({ "type": "RemovalBlocked", "status": "True", "message": "1 still on it" });
        removed["status"]["conditions"].as_array_mut().unwrap().push(blocked);
        removed["spec"]["unschedulable"] = json!(true);
        let got = row(&removed, &[capacity], Time(300_000));
        assert_eq!([&*got[7], &*got[9]], ["True", "1 still on it"]);
    }

    #[test]
    fn a_label_without_a_value_is_refused_with_what_is_right() {
        assert!(labels(&["zone".to_owned()]).unwrap_err().to_string().contains("right is KEY=VALUE"));
        assert_eq!(labels(&["zone=a".to_owned()]).unwrap(), json!({"zone": "a"}));
    }
}
