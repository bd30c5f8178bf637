//! `rayfleet submit`: creates what a manifest holds on the hub, and follows its RayJobs to their ends.
//! Must not decide where a job goes.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Result, bail};
use serde_json::{Value, json};

use super::End;
use super::access::{Access, Hub, Refusal};
use super::follow::{self, Submitted};
use super::manifest::{self, Document};
use super::output::{self, Format};
use crate::api::{Id, Kind};

/// Options of `rayfleet submit`.
#[derive(clap::Args, Debug)]
#[command(after_help = "\
ConfigMaps, Secrets, ServiceAccounts and policies of the manifest are created first, or updated where they differ.
A RayJob that exists already is an error: its name is taken.

Exit codes with --wait: 0 every job SUCCEEDED, 3 a job FAILED, 4 a job was STOPPED, 5 --timeout passed, 6 a job was
deleted before it ended, 130 Ctrl-C or SIGTERM. Neither --timeout nor Ctrl-C ends a job: delete it for that.

Examples:
  rayfleet submit -f job.yaml --wait
  rayfleet submit -f job.yaml --wait --timeout 600 -o json
  cat job.yaml | rayfleet submit -n research -f -")]
pub(crate) struct SubmitArgs {
    /// Manifest with one or more documents; `-` reads standard input
    #[arg(short, long, value_name = "FILE")]
    filename: PathBuf,
    /// Follow the RayJobs until they end; their result is the exit code
    #[arg(short, long)]
    wait: bool,
    /// With --wait: give up after this many seconds; the jobs go on
    #[arg(long, value_name = "SECONDS", requires = "wait")]
    timeout: Option<u64>,
    /// Form of the output
    #[arg(short, long, value_enum, default_value_t = Format::Table)]
    output: Format,
}

pub(crate) async fn run(args: SubmitArgs, access: &Access) -> Result<End> {
    // Before anything is created: a broken manifest leaves nothing behind.
    let text = manifest::read(&args.filename)?;
    let hub = access.hub().await?;
    let documents = manifest::documents(&text, &args.filename.display().to_string(), &hub.namespace)?;
    let people = args.output == Format::Table;
    let mut jobs = Vec::new();
    let mut made = Vec::new();
    for document in &documents {
        let (object, what) = put(&hub, document).await?;
        if people {
            output::print(&format!("{} {what}", named(&document.id)))?;
        }
        if document.id.kind == Kind::RayJob {
            let uid = object["metadata"]["uid"].as_str().unwrap_or_default().to_owned();
            jobs.push(Submitted { id: document.id.clone(), uid });
        }
        made.push(object);
    }
    if args.wait && jobs.is_empty() {
        bail!("--wait: {} holds no RayJob", args.filename.display());
    }
    if !args.wait {
        if !people {
            output::print(&args.output.render(&made, String::new)?)?;
        }
        return Ok(End::Done);
    }
    let ended = follow::until_ended(&hub, jobs, args.timeout.map(Duration::from_secs), people).await?;
    if !people {
        output::print(&args.output.render(&ended.jobs, String::new)?)?;
    }
    Ok(ended.end)
}

/// `rayjob/train`, as kubectl names things.
pub(crate) fn named(id: &Id) -> String {
    format!("{}/{}", id.kind.name().to_lowercase(), id.name)
}

/// Creates the object; one that exists is updated, unless it is a root object: those are not ours to overwrite.
async fn put(hub: &Hub, document: &Document) -> Result<(Value, &'static str)> {
    let Document { id, body } = document;
    let exists = match hub.create(id, body).await {
        Ok((object, warnings)) => {
            warn(id, &warnings);
            return Ok((object, "created"));
        }
        Err(error) => match error.downcast_ref::<Refusal>() {
            Some(refusal) if refusal.status == 409 => error,
            Some(refusal) if refusal.status == 404 => {
                return Err(error.context(format!(
                    "the hub has no namespace '{}', or does not serve {}",
                    id.namespace,
                    id.kind.plural()
                )));
            }
            _ => return Err(error),
        },
    };
    let Some(there) = hub.get(id).await? else { return Err(exists) };
    if matches!(id.kind, Kind::RayJob | Kind::RayCluster) {
        bail!(
            "{id} exists already: delete it first (kubectl delete {} -n {}), or choose another metadata.name",
            named(id),
            id.namespace
        );
    }
    let wanted = overlaid(&there, body);
    if wanted == there {
        return Ok((there, "unchanged"));
    }
    let (object, warnings) = hub.replace(id, &wanted).await?;
    warn(id, &warnings);
    Ok((object, "configured"))
}

/// What is there, with every top-level field of the manifest in place of its own; labels and annotations are added.
fn overlaid(there: &Value, manifest: &Value) -> Value {
    let mut wanted = there.clone();
    for (field, value) in manifest.as_object().into_iter().flatten() {
        match field.as_str() {
            "metadata" => {
                for map in ["labels", "annotations"] {
                    for (key, text) in value[map].as_object().into_iter().flatten() {
                        if wanted["metadata"][map].is_null() {
                            wanted["metadata"][map] = json!({});
                        }
                        wanted["metadata"][map][key] = text.clone();
                    }
                }
            }
            // The API server turns it into `data`; comparing would never find them equal.
            "stringData" => {
                for (key, text) in value.as_object().into_iter().flatten() {
                    if wanted["data"].is_null() {
                        wanted["data"] = json!({});
                    }
                    wanted["data"][key] = json!(data_encoding::BASE64.encode(text.as_str().unwrap_or("").as_bytes()));
                }
            }
            _ => wanted[field] = value.clone(),
        }
    }
    wanted
}

fn warn(id: &Id, warnings: &[String]) {
    for text in warnings {
        tracing::warn!("{id}: {text}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_equal_object_stays_and_a_changed_one_keeps_its_metadata() {
        let there =
            json!({"metadata": {"name": "a", "resourceVersion": "7", "labels": {"x": "1"}}, "data": {"k": "v"}});
        assert_eq!(overlaid(&there, &json!({"metadata": {"name": "a"}, "data": {"k": "v"}})), there);
        let changed = overlaid(&there, &json!({"metadata": {"name": "a", "labels": {"y": "2"}}, "data": {"k": "w"}}));
        assert_eq!(changed["metadata"], json!({"name": "a", "resourceVersion": "7", "labels": {"x": "1", "y": "2"}}));
        assert_eq!(changed["data"], json!({"k": "w"}));
        let secret = overlaid(&json!({"data": {"k": "dg=="}}), &json!({"stringData": {"k": "v"}}));
        assert_eq!(secret, json!({"data": {"k": "dg=="}}));
    }
}
