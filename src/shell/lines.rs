//! Splits a stream of bytes into lines, with a cap on the length of one.
//! Must not know what the lines mean.

use thiserror::Error;

/// A line is longer than is taken in.
#[derive(Debug, Error, Clone, Copy, PartialEq, Eq)]
#[error("a line of the stream is longer than {bytes_max} bytes")]
pub struct LineTooLong {
    /// The cap.
    pub bytes_max: usize,
}

/// Bytes that have come and are no whole line yet.
#[derive(Debug)]
pub struct Lines {
    buffer: Vec<u8>,
    /// Up to here no line feed was found.
    searched: usize,
    bytes_max: usize,
}

impl Lines {
    /// A splitter that refuses lines of more than `bytes_max` bytes.
    pub fn new(bytes_max: usize) -> Self {
        Self { buffer: Vec::new(), searched: 0, bytes_max }
    }

    /// Takes bytes in.
    pub fn push(&mut self, bytes: &[u8]) {
        self.buffer.extend_from_slice(bytes);
    }

    /// The next whole line, without its line feed; empty lines are skipped. `None`: more bytes are needed.
    pub fn next_line(&mut self) -> Result<Option<Vec<u8>>, LineTooLong> {
        loop {
            let found = self.buffer[self.searched..].iter().position(|b| *b == b'\n').map(|at| at + self.searched);
            let Some(end) = found else {
                self.searched = self.buffer.len();
                return if self.buffer.len() > self.bytes_max {
                    Err(LineTooLong { bytes_max: self.bytes_max })
                } else {
                    Ok(None)
                };
            };
            if end > self.bytes_max {
                return Err(LineTooLong { bytes_max: self.bytes_max });
            }
            let rest = self.buffer.split_off(end + 1);
            let mut line = std::mem::replace(&mut self.buffer, rest);
            self.searched = 0;
            while line.last().is_some_and(u8::is_ascii_whitespace) {
                line.pop();
            }
            if !line.is_empty() {
                return Ok(Some(line));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(lines: &mut Lines) -> Vec<String> {
        std::iter::from_fn(|| lines.next_line().unwrap()).map(|l| String::from_utf8(l).unwrap()).collect()
    }

    #[test]
    fn lines_are_the_same_however_the_bytes_are_cut() {
        let text = b"{\"a\":1}\n\r\n{\"b\":2}\r\n{\"c\"";
        for cut in 0..text.len() {
            let mut lines = Lines::new(100);
            lines.push(&text[..cut]);
            let mut got = all(&mut lines);
            lines.push(&text[cut..]);
            got.extend(all(&mut lines));
            assert_eq!(got, ["{\"a\":1}", "{\"b\":2}"]);
            lines.push(b"}\n");
            assert_eq!(all(&mut lines), ["{\"c\"}"]);
        }
    }

    #[test]
    fn a_line_that_is_too_long_is_an_error_also_without_its_end() {
        let mut lines = Lines::new(4);
        lines.push(b"1234\n12345");
        assert_eq!(lines.next_line(), Ok(Some(b"1234".to_vec())));
        assert_eq!(lines.next_line(), Err(LineTooLong { bytes_max: 4 }));
        let mut lines = Lines::new(4);
        lines.push(b"12345\n");
        assert_eq!(lines.next_line(), Err(LineTooLong { bytes_max: 4 }));
    }
}
