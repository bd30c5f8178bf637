//! Watches of replicas: what a server writes on them travels in order, and may be cut.
//! Must not know what the lines say.

use std::sync::{Arc, OnceLock};

use rayfleet::api::Kind;
use rayfleet::api::{Cluster, Time};
use rayfleet::row::{DecodeError, WatchLine, decode_line};
use rayfleet::sandbox::apiserver::{Line, WatchId};
use rayfleet::shell::informer::core::End;

use super::{Event, World};

/// One line on its way to those who watch: decoded once, by whoever reads it first.
#[derive(Clone, Debug)]
pub struct SentLine {
    bytes: Arc<[u8]>,
    decoded: Arc<OnceLock<Result<WatchLine, DecodeError>>>,
}

impl SentLine {
    fn new(bytes: &Arc<[u8]>) -> Self {
        Self { bytes: bytes.clone(), decoded: Arc::default() }
    }

    /// As it was written.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// As a line about objects of `kind`: the kind of the watch that it came on.
    pub fn decoded(&self, kind: Kind) -> Result<WatchLine, DecodeError> {
        self.decoded.get_or_init(|| decode_line(kind, &self.bytes)).clone()
    }
}

pub(super) struct Stream {
    pub(super) replica: usize,
    pub(super) life: u64,
    pub(super) call: u64,
    /// Lines keep their order: none arrives before this.
    pub(super) not_before: Time,
    pub(super) cut: bool,
}

impl World {
    /// The replica does not want the stream of this call any more.
    pub(super) fn close_call(&mut self, replica: usize, life: u64, call: u64) {
        self.close_streams(|stream| stream.replica == replica && stream.life == life && stream.call == call);
    }

    pub(super) fn close_streams(&mut self, which: impl Fn(&Stream) -> bool) {
        let gone: Vec<_> = self.streams.iter().filter(|(_, s)| which(s)).map(|(key, _)| key.clone()).collect();
        for key in gone {
            self.streams.remove(&key);
            if let Some(site) = self.sites.get_mut(&key.0) {
                site.server.close_watch(key.1);
            }
        }
    }

    pub(super) fn cut_streams(&mut self, which: impl Fn(&(Cluster, WatchId), &Stream) -> bool) {
        let cut: Vec<_> = self.streams.iter().filter(|(key, s)| which(key, s)).map(|(key, _)| key.clone()).collect();
        for key in cut {
            self.cut_stream(&key);
        }
    }

    fn cut_stream(&mut self, key: &(Cluster, WatchId)) {
        let Some(stream) = self.streams.remove(key) else { return };
        if let Some(site) = self.sites.get_mut(&key.0) {
            site.server.close_watch(key.1);
        }
        let Stream { replica, life, call, not_before, .. } = stream;
        self.push(not_before, Event::Ended { replica, life, call, end: End::Cut });
    }

    pub(super) fn deliver(&mut self, cluster: &Cluster, watch: WatchId, line: Line) {
        let key = (cluster.clone(), watch);
        let Some(replica) = self.streams.get(&key).map(|s| s.replica) else { return };
        let link = self.link(replica, cluster);
        let (delay, cut) = (link.delay(), link.cuts());
        let now = self.now;
        let Some(stream) = self.streams.get_mut(&key) else { return };
        stream.not_before = stream.not_before.max(now + delay);
        stream.cut |= cut;
        let (life, call, at) = (stream.life, stream.call, stream.not_before);
        if stream.cut {
            self.cut_stream(&key);
            return;
        }
        match line {
            Line::Event(event) => {
                // All watches of a kind get the same text.
                let bytes = event.text();
                let line = match &self.last_line {
                    Some(last) if Arc::ptr_eq(&last.bytes, bytes) => last.clone(),
                    _ => SentLine::new(bytes),
                };
                self.last_line = Some(line.clone());
                self.push(at, Event::Line { replica, life, call, line });
            }
            Line::End => {
                self.streams.remove(&key);
                self.push(at, Event::Ended { replica, life, call, end: End::Clean });
            }
        }
    }
}
