//! `rayfleet logs`: the log of a RayJob, read on the member where it runs: Ray's own through the head's dashboard, or that
//! of the submitter's pod in K8sJobMode.
//! Must not show anything but the log: credentials of members come from their Secrets and stay here.

mod place;
mod source;

use std::time::{Duration, Instant};

use anyhow::{Result, anyhow, bail};
use serde_json::Value;

use self::place::{Place, has_ended};
use self::source::{Piece, Source};
use super::End;
use super::access::{Access, Hub, Refusal};
use super::explain::{object_id, placement_of};
use super::output;
use super::submit::named;
use crate::api::fleet::Placement;
use crate::api::{Id, Kind};

/// The hub is looked at this often at most.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// A hub or member that does not answer for this long ends the following.
const SILENCE_MAX: Duration = Duration::from_mins(1);

/// Options of `rayfleet logs`.
#[derive(clap::Args, Debug)]
#[command(after_help = "\
In HTTPMode, SidecarMode and InteractiveMode it is what Ray's dashboard says of the job, so it goes with the RayCluster;
in K8sJobMode it is the log of the submitter's pod, which stays. Reading the member's kubeconfig Secret on the hub must
be allowed. With -f it waits until there is a log, says on standard error what it waits for, and ends with the job.

Examples:
  rayfleet logs rayjob/train
  rayfleet logs rayjob/train -n research -f")]
pub(crate) struct LogsArgs {
    /// The job: rayjob/NAME
    #[arg(value_name = "RAYJOB")]
    object: String,
    /// Go on until the job ends
    #[arg(short, long)]
    follow: bool,
}

pub(crate) async fn run(args: LogsArgs, access: &Access) -> Result<End> {
    let hub = access.hub().await?;
    let id = if args.object.contains('/') {
        object_id(&args.object, &hub.namespace)?
    } else {
        Id::new(Kind::RayJob, hub.namespace.as_str(), args.object.as_str())
    };
    if id.kind != Kind::RayJob {
        bail!("{} has no log of its own: logs are of RayJobs (rayfleet logs rayjob/NAME)", named(&id));
    }
    if args.follow { follow(&hub, &id).await } else { once(&hub, &id).await }
}

async fn once(hub: &Hub, id: &Id) -> Result<End> {
    let look = look(hub, id).await?;
    let Some(root) = &look.root else { bail!("{id} is not on the hub; those that are: rayfleet get rayjobs -A") };
    match look.place(id) {
        Place::NotYet(why) => bail!("{} has no log yet: {why}", named(id)),
        Place::Gone(why) => bail!("{} has no log any more: {why}", named(id)),
        Place::At(spot) => {
            let mut source = Source::new(hub.member(&spot.member).await?, spot);
            match source.read(has_ended(root)).await? {
                Piece::Text(text) => output::raw(&text).map(|_closed| End::Done),
                Piece::NotYet(why) => bail!("{} has no log yet: {why}", named(id)),
                Piece::Gone(why) => bail!("{} has no log any more: {why}", named(id)),
            }
        }
    }
}

/// What the hub says of the job now.
struct Look {
    root: Option<Value>,
    placement: Option<Placement>,
}

impl Look {
    fn place(&self, id: &Id) -> Place {
        match &self.root {
            None => Place::Gone("it was deleted".to_owned()),
            Some(root) => place::of(id, root, self.placement.as_ref()),
        }
    }
}

async fn look(hub: &Hub, id: &Id) -> Result<Look> {
    let root = hub.get(id).await?;
    Ok(Look { root, placement: placement_of(hub, id).await? })
}

/// Prints what comes until the job has ended and its log with it.
async fn follow(hub: &Hub, id: &Id) -> Result<End> {
    let mut source: Option<Source> = None;
    let mut said = String::new();
    let (mut seen, mut printed) = (false, false);
    let mut heard = Instant::now();
    let mut say = |text: String| {
        if text != said {
            output::note(&text);
            said = text;
        }
    };
    loop {
        let mut pause = LOOK_EVERY;
        let step = step(hub, id, &mut source, &mut printed).await;
        match step {
            // A refusal will not mend itself; silence may.
            Err(error) if error.downcast_ref::<Refusal>().is_some_and(|r| r.status < 500) => return Err(error),
            Err(error) if heard.elapsed() > SILENCE_MAX => return Err(error),
            Err(error) => say(format!("{}: {}", named(id), output::words(&error))),
            Ok(step) => {
                heard = Instant::now();
                match step {
                    Step::Absent if !seen => bail!("{id} is not on the hub; those that are: rayfleet get rayjobs -A"),
                    Step::Absent => {
                        say(format!("{} was deleted", named(id)));
                        return Ok(End::Done);
                    }
                    Step::Waits(why) if printed => say(format!("{}: {why}", named(id))),
                    Step::Waits(why) => say(format!("{} has no log yet: {why}", named(id))),
                    Step::Over(Some(why)) if !printed => return Err(anyhow!("{} has no log: {why}", named(id))),
                    Step::Over(why) => {
                        if let Some(why) = why {
                            say(format!("{}: the end of its log may be missing: {why}", named(id)));
                        }
                        return Ok(End::Done);
                    }
                    // The job was watched meanwhile: what is not read soon after its end goes with its RayCluster.
                    Step::GoesOn => pause = Duration::ZERO,
                }
                seen = true;
            }
        }
        tokio::time::sleep(pause).await;
    }
}

/// What one look of a follower came to.
enum Step {
    /// There is no such job.
    Absent,
    /// There is nothing to read yet, and why.
    Waits(String),
    /// The job goes on.
    GoesOn,
    /// The job has ended; where its end could not be read, why.
    Over(Option<String>),
}

async fn step(hub: &Hub, id: &Id, source: &mut Option<Source>, printed: &mut bool) -> Result<Step> {
    let look = look(hub, id).await?;
    let Some(root) = &look.root else { return Ok(Step::Absent) };
    let ended = has_ended(root);
    let spot = match look.place(id) {
        Place::At(spot) => spot,
        Place::NotYet(why) => return Ok(Step::Waits(why)),
        Place::Gone(why) => {
            let whole = source.as_ref().is_some_and(Source::is_whole);
            return Ok(Step::Over(Some(why).filter(|_| !whole)));
        }
    };
    let source = match source {
        Some(source) if source.is_at(&spot) => source,
        _ => source.insert(Source::new(hub.member(&spot.member).await?, spot)),
    };
    let whole = source.is_whole();
    match source.follow(ended, printed).await? {
        // It stopped to read, and so do we.
        None => Ok(Step::Over(None)),
        Some(Piece::Text(_)) => Ok(if ended { Step::Over(None) } else { Step::GoesOn }),
        Some(Piece::NotYet(why)) => Ok(Step::Waits(why)),
        // The cluster goes soon after its job: what was read to its end before is not missed.
        Some(Piece::Gone(_)) if whole => Ok(Step::Over(None)),
        Some(Piece::Gone(why)) => Ok(Step::Over(Some(why))),
    }
}
