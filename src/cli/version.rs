//! `rayfleet version`.
//! Must not ask anyone.

use anyhow::Result;
use serde_json::json;

use super::End;
use super::output::{self, Format};

/// Options of `rayfleet version`.
#[derive(clap::Args, Debug)]
pub(crate) struct VersionArgs {
    /// Form of the output
    #[arg(short, long, value_enum, default_value_t = Format::Table)]
    output: Format,
}

pub(crate) fn run(args: &VersionArgs) -> Result<End> {
    let version = env!("CARGO_PKG_VERSION");
    let value = json!({
        "version": version,
        "apis": ["ray.io/v1", "rayfleet.io/v1alpha1"],
    });
    output::print(&args.output.render(&value, || format!("rayfleet {version} (ray.io/v1, rayfleet.io/v1alpha1)"))?)?;
    Ok(End::Done)
}
