//! Finds what `make planes` has built, and refuses what was built from something else.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

use anyhow::{Result, ensure};

use crate::skipped;

/// Folder that `make planes` builds into.
const BUILT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../.planes");
/// All that the binary is made from, in the Makefile's order.
const SOURCES: [&str; 3] = [
    include_str!("../../../planes/go.mod"),
    include_str!("../../../planes/go.sum"),
    include_str!("../../../planes/main.go"),
];

/// The one program that becomes any part of a control plane.
#[derive(Clone, Debug)]
pub struct Binary(PathBuf);

impl Binary {
    /// The binary of this checkout. Fails, with one line that says what to do, where it is missing or was made from other
    /// sources than those that are here.
    pub fn find() -> Result<Self> {
        let built = Path::new(BUILT);
        let binary = built.join("control-plane");
        ensure!(binary.is_file(), "no real API server here: `make planes` builds one");
        let made_from = fs::read_to_string(built.join("made-from")).unwrap_or_default();
        ensure!(
            made_from == SOURCES.concat(),
            "the real API server here is of another version: `make planes` builds it anew"
        );
        Ok(Self(binary))
    }

    /// The binary of this checkout for a test: `None` where there is none, which is counted. In CI (`CI` is set) that is a
    /// failure.
    pub fn or_skip() -> Option<Self> {
        match Self::find() {
            Ok(binary) => Some(binary),
            Err(why) => {
                assert!(env::var_os("CI").is_none(), "{why}");
                skipped::note(&why.to_string());
                None
            }
        }
    }

    /// A new key pair (PEM) with which an API server signs and checks the tokens of its service accounts.
    pub(super) fn service_account_key(&self) -> Result<Vec<u8>> {
        let made = Command::new(&self.0).arg("service-account-key").output()?;
        ensure!(made.status.success(), "no key: {}", String::from_utf8_lossy(&made.stderr));
        Ok(made.stdout)
    }

    pub(super) fn path(&self) -> &Path {
        &self.0
    }
}
