//! What commands write to people and to other programs.
//!
//! Standard error is for people: a line that cannot be written (a full disk, a reader that has gone) is lost, and ends
//! nothing. Standard output is what was asked for: where it cannot be written, the command has failed. The macros of
//! the standard library panic in both cases, and the lints of `main.rs` forbid them.

use std::fmt;
use std::io::{self, ErrorKind, Write};

use crate::exit::Failure;

/// Writes a line on standard error, now. What runs for long and must not wait for who reads has `serve::say`.
macro_rules! tell {
    ($($text:tt)*) => { $crate::out::line(format_args!($($text)*)) };
}
pub(crate) use tell;

/// What [`tell!`] does, in one piece, as others write there, too.
pub(crate) fn line(text: fmt::Arguments<'_>) {
    let _ = io::stderr().write_all(format!("{text}\n").as_bytes());
}

/// Prints an answer as a line. Whoever reads may have had enough.
pub(crate) fn print(text: &str) -> Result<(), Failure> {
    write(format!("{text}\n").as_bytes())
}

/// Writes an answer as it is. Whoever reads may have had enough.
pub(crate) fn write(bytes: &[u8]) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    match out.write_all(bytes).and_then(|()| out.flush()) {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        written => written.map_err(|error| unwritable(&error)),
    }
}

/// Standard output cannot be written.
pub(crate) fn unwritable(error: &io::Error) -> Failure {
    Failure::file("cannot write standard output", error)
}
