//! The demo's controllers: replicas with seats of their own, who holds which unit by the Leases, and how long it takes
//! until what one of them held is held again.
//! Must not know jobs.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Result, bail};

use super::children::Running;
use super::view::View;

const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/rayfleet-system/leases";
/// How long the others may take to hold what a replica held.
const HAND_OVER_WITHIN: Duration = Duration::from_secs(30);

/// How a replica is ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Ending {
    /// SIGKILL: nobody is told.
    Killed,
    /// SIGTERM: it gives up what it holds, in order.
    Asked,
}

/// What one replica held, and when it was held again.
#[derive(Clone, Debug)]
pub(super) struct HandOver {
    pub(super) seat: String,
    pub(super) ending: Ending,
    /// What went on meanwhile.
    pub(super) during: &'static str,
    /// Units, with holders as the records named them (seat and life).
    units: BTreeMap<String, String>,
    begun: Instant,
    /// Until every unit had a new holder.
    pub(super) seconds: Option<f32>,
}

impl HandOver {
    /// For the summary.
    pub(super) fn sentence(&self) -> String {
        let signal = if self.ending == Ending::Killed { "SIGKILL" } else { "SIGTERM" };
        let after = self.seconds.map_or_else(|| "not yet".to_owned(), |s| format!("after {s:.1} s"));
        format!("{signal} to {} {}: its {} units were held again {after}", self.seat, self.during, self.units.len())
    }
}

/// All replicas.
pub(super) struct Replicas {
    /// Of the hub.
    kubeconfig: PathBuf,
    /// In it; `None`: the current one.
    context: Option<&'static str>,
    running: BTreeMap<String, Running>,
    /// Asked to end, and not waited for yet.
    leaving: Vec<Running>,
    /// In order; at most the last one is not done.
    pub(super) hand_overs: Vec<HandOver>,
}

/// Name of the seat with this index.
pub(super) fn seat_name(index: usize) -> String {
    format!("demo-{index}")
}

impl Replicas {
    /// None yet; they will reach the hub so.
    pub(super) fn of(kubeconfig: &Path, context: Option<&'static str>) -> Self {
        let kubeconfig = kubeconfig.to_owned();
        Self { kubeconfig, context, running: BTreeMap::new(), leaving: Vec::new(), hand_overs: Vec::new() }
    }

    /// Starts a controller on this seat.
    pub(super) fn start(&mut self, dir: &Path, seat: &str) -> Result<u32> {
        let mut arguments: Vec<&OsStr> = vec![
            "--profile".as_ref(),
            "fast".as_ref(),
            "--seat".as_ref(),
            seat.as_ref(),
            "--listen".as_ref(),
            "127.0.0.1:0".as_ref(),
            "--kubeconfig".as_ref(),
            self.kubeconfig.as_os_str(),
        ];
        if let Some(context) = self.context {
            arguments.extend::<[&OsStr; 2]>(["--context".as_ref(), context.as_ref()]);
        }
        let controller = Running::start("run", dir, &format!("controller-{seat}.log"), &arguments)?;
        let id = controller.id();
        self.running.insert(seat.to_owned(), controller);
        Ok(id)
    }

    /// An error if one has ended by itself.
    pub(super) fn check(&mut self) -> Result<()> {
        self.running.values_mut().try_for_each(Running::check)
    }

    /// Whether what the last one held is held again.
    pub(super) fn at_rest(&self) -> bool {
        self.hand_overs.last().is_none_or(|last| last.seconds.is_some())
    }

    /// Ends the replica that holds this unit, or the one that holds most where none is named. Nothing happens while the
    /// records name no living holder. Returns what there is to say.
    pub(super) async fn end(
        &mut self,
        view: &View,
        unit: Option<&str>,
        ending: Ending,
        during: &'static str,
    ) -> Result<Option<String>> {
        let held = units(view).await?;
        let seat_of = |holder: &str| holder.rsplit_once('#').map(|(seat, _)| seat.to_owned());
        let load = |seat: &String| held.values().filter(|h| seat_of(h).as_ref() == Some(seat)).count();
        let busiest = self.running.keys().max_by_key(|seat| load(seat)).cloned();
        let seat = unit.map_or(busiest, |unit| held.get(unit).and_then(|holder| seat_of(holder)));
        let Some((seat, controller)) = seat.and_then(|seat| self.running.remove_entry(&seat)) else { return Ok(None) };
        let id = controller.id();
        let begun = Instant::now();
        match ending {
            Ending::Killed => controller.kill().await?,
            Ending::Asked => {
                controller.ask_to_end();
                self.leaving.push(controller);
            }
        }
        let units: BTreeMap<String, String> =
            held.into_iter().filter(|(_, holder)| seat_of(holder).as_ref() == Some(&seat)).collect();
        let signal = if ending == Ending::Killed { "SIGKILL" } else { "SIGTERM" };
        let text = format!("{signal} to {seat} (process {id}) {during}; it held {} units", units.len());
        self.hand_overs.push(HandOver { seat, ending, during, units, begun, seconds: None });
        Ok(Some(text))
    }

    /// Looks whether what the last one held is held again; returns what there is to say then.
    pub(super) async fn look(&mut self, view: &View) -> Result<Option<String>> {
        let Some(last) = self.hand_overs.last_mut().filter(|last| last.seconds.is_none()) else { return Ok(None) };
        let now = units(view).await?;
        let again = |(unit, old): (&String, &String)| now.get(unit).is_some_and(|new| !new.is_empty() && new != old);
        if last.units.iter().all(again) {
            last.seconds = Some(last.begun.elapsed().as_secs_f32());
            return Ok(Some(last.sentence()));
        }
        if last.begun.elapsed() > HAND_OVER_WITHIN {
            bail!("what {} held is not held again after {HAND_OVER_WITHIN:?}", last.seat);
        }
        Ok(None)
    }

    /// Ends all in order.
    pub(super) async fn stop(&mut self) {
        for mut controller in self.leaving.drain(..).chain(std::mem::take(&mut self.running).into_values()) {
            controller.end().await;
        }
    }
}

/// Units and their holders, as the Leases say.
async fn units(view: &View) -> Result<BTreeMap<String, String>> {
    let text = |value: &serde_json::Value| value.as_str().unwrap_or_default().to_owned();
    let leases = view.items("hub", LEASES).await?;
    let units = leases.iter().map(|l| (text(&l["metadata"]["name"]), text(&l["spec"]["holderIdentity"])));
    Ok(units.filter(|(name, _)| name.starts_with("q-") || name.starts_with("m-")).collect())
}
