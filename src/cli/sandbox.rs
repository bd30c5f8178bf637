//! `rayfleet sandbox`: a whole fleet in one process.
//! Must not know how its parts work.

use anyhow::{Result, bail};

use super::End;

/// Options of `rayfleet sandbox`.
#[derive(clap::Args, Debug)]
pub(crate) struct SandboxArgs {}

pub(crate) async fn run(_args: SandboxArgs) -> Result<End> {
    bail!("the sandbox is not built yet")
}
