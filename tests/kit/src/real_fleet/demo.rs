//! `rayfleet demo` on real API servers, with a recorder beside it.
//! Must not know what the demo shows.

use std::path::Path;

use anyhow::{Context, Result};
use tokio::process::Command;

use super::{CONTROLLER, RealFleet};
use crate::planes::{ADMINISTRATOR, Binary, Plane};
use crate::recorder::history::Verdict;
use crate::recorder::{Recorder, Watched};

/// Fleet id of controllers that are given none.
const FLEET_ID: &str = "fleet";

/// What a recorder needs to know of the fleet's planes.
pub fn watched(fleet: &RealFleet) -> Vec<Watched> {
    let watched = |plane: &Plane| Watched {
        name: plane.name().to_owned(),
        kubeconfig: plane.kubeconfig(ADMINISTRATOR),
        audit_log: plane.audit_log(),
    };
    std::iter::once(&fleet.hub).chain(&fleet.members).map(watched).collect()
}

/// Plays the demo: whether all of it came true, and what the recorder says. The program `rayfleet` stands beside this one.
pub async fn run(ray: &str, replicas: u8, dir: &Path) -> Result<(bool, Verdict)> {
    let fleet = RealFleet::start(&Binary::find()?, &["us", "ap"]).await?;
    std::fs::create_dir_all(dir).with_context(|| dir.display().to_string())?;
    let recorder = Recorder::start(&watched(&fleet), CONTROLLER, FLEET_ID, &dir.join("timeline.jsonl")).await?;
    let controllers = fleet.tunnels().join("controllers.json");
    std::fs::write(&controllers, fleet.controllers_kubeconfig(fleet.hub.address()))?;
    let rayfleet = std::env::current_exe()?.with_file_name("rayfleet");
    let mut demo = Command::new(&rayfleet);
    demo.args(["demo", "--ray", ray, "--replicas", &replicas.to_string()])
        .arg("--attach")
        .arg(fleet.administrators())
        .arg("--controllers")
        .arg(controllers)
        .arg("--tunnels")
        .arg(fleet.tunnels())
        .arg("--dir")
        .arg(dir.join("demo"))
        .kill_on_drop(true);
    let ended = demo.status().await.with_context(|| format!("{} (make build)", rayfleet.display()))?;
    Ok((ended.success(), recorder.finish().await?))
}
