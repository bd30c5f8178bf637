//! `rayfleet run`: the controller.
//! Must not know how it works.

use anyhow::{Result, bail};

use super::End;
use super::access::Access;

/// Options of `rayfleet run`.
#[derive(clap::Args, Debug)]
pub(crate) struct RunArgs {}

pub(crate) async fn run(_args: RunArgs, _access: &Access) -> Result<End> {
    bail!("the controller is not built yet")
}
