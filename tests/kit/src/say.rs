//! What programs print for people. Must not know what it is about.

use std::io::{ErrorKind, Write as _};

/// As a shell says it of a program that ended since the reader of its output had gone: 128 + SIGPIPE.
const READER_GONE: i32 = 141;

/// Prints a line. Where its reader has gone (`| head`) the program ends, without a word: whoever has read enough wants no
/// more work, and a run that was cut short is no success.
pub fn say(line: &str) {
    let Err(error) = writeln!(std::io::stdout().lock(), "{line}") else { return };
    if error.kind() == ErrorKind::BrokenPipe {
        std::process::exit(READER_GONE);
    }
    // Nobody reads it where it cannot be written.
    let _unread = writeln!(std::io::stderr().lock(), "writing the output: {error}");
    std::process::exit(1);
}
