//! Reading what containers wrote, from a file that may still grow.
//! Must not know pods: whoever asks says when a file will grow no more.

use std::io::SeekFrom;
use std::path::Path;
use std::time::Duration;

use bytes::Bytes;
use tokio::fs::File;
use tokio::io::{AsyncReadExt, AsyncSeekExt};
use tokio::sync::mpsc::{Receiver, Sender, channel};
use tokio::time::sleep;

/// Pieces that wait for a slow reader.
const QUEUE: usize = 16;
const PIECE_BYTES: usize = 16 * 1024;
/// How often a file is looked at for more: the writers are processes that tell nobody.
const LOOK_AGAIN: Duration = Duration::from_millis(200);

/// What to read.
#[derive(Clone, Copy, Debug, Default)]
pub struct Wanted {
    /// Go on until it grows no more.
    pub follow: bool,
    /// Only the last lines, and what comes after.
    pub tail_lines: Option<usize>,
}

/// The contents of `log` in pieces; closed at the end. `grows` is asked before each look at the file.
pub(super) fn open(log: &Path, wanted: Wanted, grows: impl Fn() -> bool + Send + 'static) -> Receiver<Bytes> {
    let (pieces, receiver) = channel(QUEUE);
    let log = log.to_owned();
    tokio::spawn(async move {
        if let Err(e) = copy(&log, wanted, grows, pieces).await {
            tracing::warn!(log = %log.display(), error = %e, "a log could not be read to its end");
        }
    });
    receiver
}

async fn copy(log: &Path, wanted: Wanted, grows: impl Fn() -> bool, pieces: Sender<Bytes>) -> std::io::Result<()> {
    let mut file = File::open(log).await?;
    if let Some(lines) = wanted.tail_lines {
        let from = start_of_last(&mut file, lines).await?;
        file.seek(SeekFrom::Start(from)).await?;
    }
    loop {
        // Asked first: what is written between the look and the answer would be lost otherwise.
        let more = wanted.follow && grows();
        let mut piece = vec![0; PIECE_BYTES];
        loop {
            let read = file.read(&mut piece).await?;
            if read == 0 {
                break;
            }
            if pieces.send(Bytes::copy_from_slice(&piece[..read])).await.is_err() {
                return Ok(());
            }
        }
        if !more || pieces.is_closed() {
            return Ok(());
        }
        sleep(LOOK_AGAIN).await;
    }
}

/// Where the last `lines` lines begin.
async fn start_of_last(file: &mut File, lines: usize) -> std::io::Result<u64> {
    let end = file.seek(SeekFrom::End(0)).await?;
    let (mut at, mut found) = (end, 0);
    while at > 0 {
        let size = at.min(PIECE_BYTES as u64);
        at -= size;
        file.seek(SeekFrom::Start(at)).await?;
        let mut piece = vec![0; size as usize];
        file.read_exact(&mut piece).await?;
        for (index, _) in piece.iter().enumerate().rev().filter(|(_, byte)| **byte == b'\n') {
            let after = at + index as u64 + 1;
            // The line feed at the very end closes the last line.
            if after == end {
                continue;
            }
            found += 1;
            if found == lines {
                return Ok(after);
            }
        }
    }
    Ok(if lines == 0 { end } else { 0 })
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn all(mut pieces: Receiver<Bytes>) -> String {
        let mut text = Vec::new();
        while let Some(piece) = pieces.recv().await {
            text.extend_from_slice(&piece);
        }
        String::from_utf8(text).unwrap()
    }

    #[tokio::test]
    async fn the_last_lines_are_counted_from_the_end() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "one\ntwo\nthree\n").unwrap();
        let tail = |n| Wanted { follow: false, tail_lines: Some(n) };
        assert_eq!(all(open(file.path(), tail(2), || false)).await, "two\nthree\n");
        assert_eq!(all(open(file.path(), tail(9), || false)).await, "one\ntwo\nthree\n");
        assert_eq!(all(open(file.path(), tail(0), || false)).await, "");
        std::fs::write(file.path(), "one\ntwo").unwrap();
        assert_eq!(all(open(file.path(), tail(1), || false)).await, "two");
    }

    #[tokio::test]
    async fn a_follower_sees_what_is_written_before_the_end() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let (say, grows) = tokio::sync::watch::channel(true);
        let following = open(file.path(), Wanted { follow: true, tail_lines: None }, move || *grows.borrow());
        std::fs::write(file.path(), "late\n").unwrap();
        say.send_replace(false);
        assert_eq!(all(following).await, "late\n");
    }
}
