//! `rayfleet member add | list | cordon | uncordon`: registers member clusters on the hub, shows what was found about them,
//! and says whether they take new work.
//! Asks a member nothing but which cluster it is: whether one can be worked on is for the controller to find.

mod add;
mod cluster_id;

use anyhow::{Result, bail};
use serde_json::{Value, json};

use super::End;
use super::access::{Access, is_conflict};
use super::output::{self, Format};
use crate::api::fleet::{MemberCapacity, MemberCluster};
use crate::api::{Id, Kind, Time};
use crate::shell::clock::Clock;

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
    /// Register a member by its kubeconfig, or give it other credentials
    Add(add::AddArgs),
    /// List the members with their conditions
    List(ListArgs),
    /// Take no new work on a member; what was admitted there goes on
    Cordon(NameArgs),
    /// Take new work on a member again
    Uncordon(NameArgs),
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
        MemberCommand::Add(args) => add::run(&args, access).await,
        MemberCommand::List(args) => list(&args, access).await,
        MemberCommand::Cordon(args) => cordon(&args.name, true, access).await,
        MemberCommand::Uncordon(args) => cordon(&args.name, false, access).await,
    }
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
            Err(error) if is_conflict(&error) => {}
            Err(error) => return Err(error),
        }
    }
    bail!("membercluster/{name} was changed by others {TRIES} times meanwhile: try again")
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
}
