//! `rayfleet run`: the controller, until it is asked to end.
//! Must not know how it works.

use std::net::SocketAddr;

use anyhow::{Context, Result, anyhow};
use clap::ValueEnum;
use clap::builder::{StringValueParser, TypedValueParser as _};
use shards::core::Profile;

use super::access::Access;
use super::{End, names};
use crate::plan::{Flags, TokenKey};
use crate::serve::{Metrics, Port};
use crate::shell::kubeconfig::hub_config;
use crate::shell::run::{Controller, Settings};
use crate::shell::shutdown;

/// Options of `rayfleet run`.
#[derive(clap::Args, Debug)]
#[command(after_help = "\
It serves /healthz, /readyz, /metrics and /debug/keys (why each object waits, what does not decode, how fresh the
tables are) on --listen. On SIGTERM it takes no more work, waits for its own requests, gives its units and seat up, and
ends with 0. It ends with 1 if another process holds its seat.

Examples:
  rayfleet run --kubeconfig hub.yaml
  rayfleet run --kubeconfig .sandbox/kubeconfig --context hub --profile fast --log debug")]
pub(crate) struct RunArgs {
    #[command(flatten)]
    pub(crate) options: RunOptions,
    /// End when standard input closes, for a program that starts this one and must not leave it behind
    #[arg(long, hide = true)]
    end_with_input: bool,
}

/// Options of a controller, also of the one inside a sandbox.
#[derive(clap::Args, Debug, Clone)]
pub(crate) struct RunOptions {
    /// Stable name of this replica's seat (default: the host's name; in a StatefulSet that is the pod's)
    #[arg(long, env = "RAYFLEET_SEAT", value_name = "NAME", value_parser = names::seat)]
    pub(crate) seat: Option<String>,
    /// How fast a dead replica is replaced, for how many writes to the hub
    #[arg(long, env = "RAYFLEET_PROFILE", value_enum, default_value_t = Speed::Default)]
    pub(crate) profile: Speed,
    /// Address for health, metrics and diagnostics; port 0 takes a free one
    #[arg(long, env = "RAYFLEET_LISTEN", value_name = "ADDRESS", default_value = "127.0.0.1:8080")]
    pub(crate) listen: SocketAddr,
    /// Namespace on the hub for the Leases; made if it is missing
    #[arg(
        long,
        env = "RAYFLEET_LEASE_NAMESPACE",
        value_name = "NAME",
        default_value = "rayfleet-system",
        value_parser = names::namespace
    )]
    pub(crate) lease_namespace: String,
    /// Identity of the fleet; never changes once members were used
    #[arg(
        long,
        env = "RAYFLEET_FLEET_ID",
        value_name = "NAME",
        default_value = "fleet",
        value_parser = names::identity
    )]
    pub(crate) fleet_id: String,
    /// Queue of jobs that name none, where no policy says otherwise
    #[arg(
        long,
        env = "RAYFLEET_DEFAULT_QUEUE",
        value_name = "NAME",
        default_value = "default",
        value_parser = names::object
    )]
    pub(crate) default_queue: String,
    /// DNS domain of the members
    #[arg(
        long,
        env = "CLUSTER_DOMAIN",
        value_name = "DOMAIN",
        default_value = "cluster.local",
        value_parser = names::domain
    )]
    pub(crate) cluster_domain: String,
    /// Whether what a RayCluster keeps in Redis is cleared when it is deleted; `false` turns it off
    #[arg(
        long,
        env = "ENABLE_GCS_FT_REDIS_CLEANUP",
        value_name = "BOOL",
        default_value = "true",
        action = clap::ArgAction::Set,
        value_parser = StringValueParser::new().map(|text| names::is_not_false(&text))
    )]
    pub(crate) redis_cleanup: bool,
}

/// Durations of the ownership protocol.
#[derive(Clone, Copy, ValueEnum, Debug, PartialEq, Eq)]
pub(crate) enum Speed {
    /// Within 8 s; a write per second and replica.
    Fast,
    /// Within 18 s; a write each 3 s.
    Default,
    /// Within 33 s; a write each 5 s.
    Relaxed,
}

impl Speed {
    fn profile(self) -> Profile {
        match self {
            Speed::Fast => Profile::FAST,
            Speed::Default => Profile::DEFAULT,
            Speed::Relaxed => Profile::RELAXED,
        }
    }
}

impl RunOptions {
    /// The controller's settings for a hub.
    pub(crate) fn settings(&self, hub: kube::config::Config) -> Result<Settings> {
        let seat = match &self.seat {
            Some(seat) => seat.clone(),
            None => host_name().context("the host has no usable name: give --seat NAME")?,
        };
        let flags = Flags {
            fleet_id: self.fleet_id.as_str().into(),
            default_queue: self.default_queue.as_str().into(),
            cluster_domain: self.cluster_domain.as_str().into(),
            token_key: Some(token_key()?),
            redis_cleanup: self.redis_cleanup,
            ..Flags::default()
        };
        Ok(Settings { hub, seat, namespace: self.lease_namespace.clone(), profile: self.profile.profile(), flags })
    }
}

/// A key for tokens of Ray clusters, of this process alone.
fn token_key() -> Result<TokenKey> {
    let mut bytes = [0; 32];
    let random = rustls::crypto::ring::default_provider().secure_random;
    random.fill(&mut bytes).map_err(|_| anyhow!("the system gives no random numbers"))?;
    Ok(TokenKey::new(bytes))
}

pub(crate) async fn run(args: RunArgs, access: &Access) -> Result<End> {
    let hub = hub_config(access.kubeconfig.as_deref(), access.context.as_deref()).await?;
    // Not the whole address: a sandbox's has a token in its path.
    let server = hub.cluster_url.authority().map(ToString::to_string).unwrap_or_default();
    tracing::info!(server, version = env!("CARGO_PKG_VERSION"), "rayfleet starts");
    let settings = args.options.settings(hub)?;
    serve(settings, args.options.listen, asked_to_end(args.end_with_input)).await?;
    Ok(End::Done)
}

/// Runs a controller and its port until `stop` is done.
pub(crate) async fn serve(settings: Settings, listen: SocketAddr, stop: impl Future<Output = ()>) -> Result<()> {
    let port = Port::bind(listen).await?;
    let metrics = Metrics::start().map_err(|why| anyhow!("metrics do not start: {why}"))?;
    tracing::info!(address = %port.address, seat = settings.seat, "serving health, metrics and diagnostics");
    let (controller, questions) = Controller::new(settings);
    let (done, ended) = tokio::sync::oneshot::channel::<()>();
    let mut served = tokio::spawn(port.serve(questions, metrics, async move {
        // Both an answer and its absence mean the end.
        let _done = ended.await;
    }));
    let result = tokio::select! {
        result = controller.run(stop) => result,
        ended = &mut served => {
            let why = ended.map_err(anyhow::Error::from).and_then(|served| served.map_err(Into::into)).err();
            return Err(why.unwrap_or_else(|| anyhow!("it ended by itself")).context("the port of health and metrics"));
        }
    };
    drop(done);
    if tokio::time::timeout(std::time::Duration::from_secs(1), served).await.is_err() {
        tracing::debug!("a scrape hangs; it does not hold the end back");
    }
    result.map_err(Into::into)
}

/// Waits for the wish to end; with `input` also for the end of standard input.
pub(crate) async fn asked_to_end(input: bool) {
    let closed = async {
        if input {
            shutdown::input_closed().await;
        } else {
            std::future::pending::<()>().await;
        }
    };
    tokio::select! {
        asked = shutdown::asked() => match asked {
            Ok(signal) => tracing::info!(signal, "asked to end"),
            Err(error) => tracing::error!(%error, "signals cannot be heard: ending"),
        },
        () = closed => tracing::info!("standard input was closed: ending"),
    }
}

fn host_name() -> Option<String> {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").ok()?;
    let name: String = name.trim().to_lowercase();
    names::is_seat(&name).then_some(name)
}
