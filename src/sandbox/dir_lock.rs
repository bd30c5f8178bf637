//! One sandbox per directory: who holds the lock has it, for as long as its process lives and however it ends.
//! Must not know what is in the directory.

use std::fs::File;
use std::io::{self, Read as _, Seek as _, Write as _};
use std::path::Path;

use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};
use thiserror::Error;

const LOCK: &str = "lock";

/// The directory is this process's until this is dropped. The kernel lets go of it with the process: no lock is ever stale.
#[derive(Debug)]
pub struct DirLock {
    _file: Flock<File>,
}

/// Why the directory is not to be had.
#[derive(Debug, Error)]
pub enum LockError {
    /// Another process has it, and which, where it has said so.
    #[error("in use by a running sandbox{}", .0.as_ref().map_or_else(String::new, |pid| format!(" (process {pid})")))]
    Taken(Option<String>),
    /// It cannot be made, or written to.
    #[error("{0}")]
    Io(#[from] io::Error),
}

impl DirLock {
    /// Makes the directory where it is missing, and takes it.
    pub fn take(dir: &Path) -> Result<Self, LockError> {
        std::fs::create_dir_all(dir)?;
        let file = File::options().create(true).truncate(false).read(true).write(true).open(dir.join(LOCK))?;
        let mut file = match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
            Ok(file) => file,
            Err((mut file, Errno::EWOULDBLOCK)) => {
                let mut text = String::new();
                // Which process it is helps, and is not needed.
                let _unread = file.read_to_string(&mut text);
                return Err(LockError::Taken(Some(text.trim().to_owned()).filter(|pid| !pid.is_empty())));
            }
            Err((_, errno)) => return Err(LockError::Io(errno.into())),
        };
        file.set_len(0)?;
        file.rewind()?;
        writeln!(file, "{}", std::process::id())?;
        Ok(Self { _file: file })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_is_taken_once_and_free_again_afterwards() {
        let dir = tempfile::tempdir().unwrap();
        let first = DirLock::take(dir.path()).unwrap();
        let refused = DirLock::take(dir.path()).unwrap_err();
        assert_eq!(refused.to_string(), format!("in use by a running sandbox (process {})", std::process::id()));
        drop(first);
        assert!(DirLock::take(dir.path()).is_ok());
    }

    #[test]
    fn what_cannot_be_made_is_said() {
        assert!(matches!(DirLock::take(Path::new("/proc/nope")), Err(LockError::Io(_))));
    }
}
