//! The network in front of a plane, with its faults: carries TCP connections to one address, or does not. The faults can be
//! those of one process alone, as with a machine that is cut off.
//! Must not know what is said on the connections. What it cannot show: an address where nobody answers, since connections to it open.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, watch};
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::{Instant, sleep_until};

use super::connection_owner;

/// Bytes that are read at once.
const PIECE_BYTES: usize = 16 << 10;
/// Pieces under way in one direction; beyond them the sender has to wait.
const PIECES_MAX: usize = 64;

/// What becomes of the connections, those that are open and those to come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Bytes go through as they come.
    Pass,
    /// Bytes arrive this much later, in each direction.
    Delay(Duration),
    /// Connections are reset. To the server they end.
    Reset,
    /// Connections stand and nothing arrives, on either side, until the mode changes.
    BlackHole,
    /// Requests arrive; answers do, too, once the mode changes.
    AnswersHeld,
    /// Answers arrive, and what a watch tells; requests do, too, once the mode changes.
    RequestsHeld,
    /// To the server connections have ended, and the clients are not told: what meets this mode stays silent for good
    /// (RFC 9293, 3.5.1).
    HalfOpen,
}

/// Which way bytes go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    ToServer,
    ToClient,
}

impl Mode {
    fn lets_pass(self, way: Way) -> bool {
        match self {
            Self::Pass | Self::Delay(_) => true,
            Self::AnswersHeld => way == Way::ToServer,
            Self::RequestsHeld => way == Way::ToClient,
            Self::BlackHole | Self::Reset | Self::HalfOpen => false,
        }
    }

    fn delay(self) -> Duration {
        if let Self::Delay(delay) = self { delay } else { Duration::ZERO }
    }

    fn parts_ends(self) -> bool {
        matches!(self, Self::Reset | Self::HalfOpen)
    }
}

/// A proxy on loopback. Its connections break when it is dropped.
#[derive(Debug)]
pub struct Proxy {
    address: SocketAddr,
    mode: watch::Sender<Mode>,
    whose: watch::Sender<Option<u32>>,
    to_server: Arc<AtomicUsize>,
    accepting: AbortHandle,
}

/// What a connection is told: the mode, and where it counts bytes on their way to the server.
#[derive(Clone)]
struct Terms {
    mode: watch::Receiver<Mode>,
    to_server: Arc<AtomicUsize>,
}

impl Proxy {
    /// Listens on a free port and passes on to `server`. Must be called within a tokio runtime.
    pub async fn start(server: SocketAddr) -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let address = listener.local_addr()?;
        let (mode, seen) = watch::channel(Mode::Pass);
        let to_server = Arc::new(AtomicUsize::new(0));
        let terms = Terms { mode: seen, to_server: to_server.clone() };
        let (whose, of) = watch::channel(None);
        let accepting = tokio::spawn(accept(listener, server, terms, of)).abort_handle();
        Ok(Self { address, mode, whose, to_server, accepting })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// From now on the mode is for connections that this process (its id; 0 is nobody's) opens; others' are carried. Call it
    /// before the process connects: a connection's owner is looked up when it comes in.
    pub fn only(&self, process: u32) {
        self.whose.send_replace(Some(process));
    }

    /// Bytes that clients under the mode have sent and the server has not got yet.
    pub fn bytes_to_server(&self) -> usize {
        self.to_server.load(Ordering::Relaxed)
    }

    /// Changes the mode, for open connections as well. They see the mode that is there when their turn comes: one that is
    /// replaced before the runtime ran meets nobody.
    pub fn set(&self, mode: Mode) {
        self.mode.send_replace(mode);
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

async fn accept(listener: TcpListener, server: SocketAddr, terms: Terms, whose: watch::Receiver<Option<u32>>) {
    // Owned here: what it holds ends with this task.
    let mut open = JoinSet::new();
    let (_spared, pass) = watch::channel(Mode::Pass);
    let spared = Terms { mode: pass, to_server: Arc::default() };
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((client, from)) => {
                    let meant = whose.borrow().is_none_or(|process| connection_owner::opened(process, from));
                    let terms = if meant { &terms } else { &spared };
                    open.spawn(carry(client, server, terms.clone()));
                }
                Err(_) => return,
            },
            Some(_) = open.join_next() => {}
        }
    }
}

/// Carries one connection to its end.
async fn carry(mut client: TcpStream, server: SocketAddr, terms: Terms) {
    let (mut mode, mut parting) = (terms.mode.clone(), terms.mode.clone());
    let parted = tokio::select! {
        biased;
        mode = until(&mut parting, Mode::parts_ends) => mode,
        // What breaks on one side breaks on the other; a server that is not there shows as a reset.
        joined = join(&mut client, server, &terms) => if joined.is_ok() { return } else { Mode::Reset },
    };
    if parted == Mode::HalfOpen {
        tokio::select! {
            () = swallow(&mut client) => return,
            _ = until(&mut mode, |mode| mode == Mode::Reset) => {}
        }
    }
    // Fails where the client has gone.
    let _ = client.set_zero_linger();
}

/// Joins both ends until both have said all they had to say. The server's is closed when this ends or is dropped.
async fn join(client: &mut TcpStream, server: SocketAddr, terms: &Terms) -> io::Result<()> {
    until(&mut terms.mode.clone(), |mode| mode.lets_pass(Way::ToServer)).await;
    let mut server = TcpStream::connect(server).await?;
    server.set_nodelay(true)?;
    client.set_nodelay(true)?;
    let (from_client, to_client) = client.split();
    let (from_server, to_server) = server.split();
    let there = pump(from_client, to_server, terms.clone(), Way::ToServer);
    let back = pump(from_server, to_client, terms.clone(), Way::ToClient);
    tokio::try_join!(there, back).map(drop)
}

/// Moves bytes one way until their end, each piece when it is due and the mode lets it pass.
async fn pump(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    Terms { mode, to_server }: Terms,
    way: Way,
) -> io::Result<()> {
    let (pieces, mut under_way) = mpsc::channel(PIECES_MAX);
    let mut gate = mode.clone();
    // Of the other way nobody asks.
    let counter = if way == Way::ToServer { to_server } else { Arc::default() };
    let counted = counter.clone();
    let read = async move {
        let mut buffer = vec![0; PIECE_BYTES];
        loop {
            let length = from.read(&mut buffer).await?;
            counter.fetch_add(length, Ordering::Relaxed);
            let due = Instant::now() + mode.borrow().delay();
            let sent = pieces.send((due, buffer[..length].to_vec())).await;
            if length == 0 || sent.is_err() {
                return Ok(());
            }
        }
    };
    let write = async move {
        while let Some((due, piece)) = under_way.recv().await {
            sleep_until(due).await;
            until(&mut gate, |mode| mode.lets_pass(way)).await;
            if piece.is_empty() {
                return to.shutdown().await;
            }
            to.write_all(&piece).await?;
            counted.fetch_sub(piece.len(), Ordering::Relaxed);
        }
        Ok(())
    };
    tokio::try_join!(read, write).map(drop)
}

/// Waits for a mode of which this is true.
async fn until(mode: &mut watch::Receiver<Mode>, wanted: impl Fn(Mode) -> bool) -> Mode {
    match mode.wait_for(|mode| wanted(*mode)).await.map(|mode| *mode) {
        Ok(mode) => mode,
        // The proxy is being dropped, and this task with it.
        Err(_) => std::future::pending().await,
    }
}

/// Reads until the client ends.
async fn swallow(client: &mut TcpStream) {
    let mut buffer = vec![0; PIECE_BYTES];
    while client.read(&mut buffer).await.is_ok_and(|length| length > 0) {}
}
