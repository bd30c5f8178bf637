//! The directory of one running sandbox: short of name, its own, and cleared away by the next one if this one is killed.
//! Must not know what is in it.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use nix::fcntl::{Flock, FlockArg};

/// Ray builds socket paths of at most 107 bytes on the directory it is given, which leaves 43 for it: a project's own
/// directory may be too long, so this one is below the system's.
const LONGEST_BASE: usize = 16;
const PREFIX: &str = "rf-";
const LOCK: &str = "lock";

/// Removed with its contents on [`RunDir::remove`], or by the next sandbox of the same user.
#[derive(Debug)]
pub(super) struct RunDir {
    path: PathBuf,
    /// Held as long as this process lives, however it ends.
    _lock: Flock<File>,
}

impl RunDir {
    /// A new one; those whose sandbox is no longer alive are removed.
    pub(super) fn make() -> io::Result<Self> {
        let system = std::env::temp_dir();
        let base = if system.as_os_str().len() <= LONGEST_BASE { system } else { "/tmp".into() };
        sweep(&base);
        let path = tempfile::Builder::new().prefix(PREFIX).tempdir_in(base)?.keep();
        // Locked before it has the name that a sweep looks for.
        let unnamed = path.join("lock-to-be");
        let lock = Flock::lock(File::create(&unnamed)?, FlockArg::LockExclusiveNonblock).map_err(|(_, e)| e)?;
        fs::rename(unnamed, path.join(LOCK))?;
        Ok(Self { path, _lock: lock })
    }

    /// Where it is.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Takes it away. What cannot be removed is left to the next sandbox.
    pub(super) fn remove(&self) {
        remove(&self.path);
    }
}

fn sweep(base: &Path) {
    let entries = fs::read_dir(base).into_iter().flatten().filter_map(Result::ok);
    for entry in entries.filter(|e| e.file_name().to_string_lossy().starts_with(PREFIX)) {
        // Another user's cannot be opened for writing.
        let Ok(file) = File::options().write(true).open(entry.path().join(LOCK)) else { continue };
        if let Ok(_held) = Flock::lock(file, FlockArg::LockExclusiveNonblock) {
            remove(&entry.path());
        }
    }
}

fn remove(path: &Path) {
    if let Err(e) = fs::remove_dir_all(path) {
        tracing::warn!(path = %path.display(), error = %e, "a directory of the sandbox could not be removed");
    }
}
