//! What the process says when it ends: exit codes, and errors in plain sentences.

use std::fmt;
use std::io;
use std::process::ExitCode;
use std::time::Duration;

/// Why a command failed, as far as exit codes go. `quicket --help` lists them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub(crate) enum Kind {
    /// The server answered, but not with the file: an HTTP status of 400 or above, a reset. In
    /// the laboratory: a case failed.
    Refused = 1,
    /// The command line makes no sense. The argument parser uses the same code.
    Usage = 2,
    /// No connection to the server, or it was lost.
    Connection = 3,
    /// The server is not known to be the right one.
    Trust = 4,
    /// What arrived is not what was asked for: length or hash differ.
    Content = 5,
    /// This machine: files, sockets, memory.
    Environment = 6,
    /// The laboratory does not know the test case; the QUIC interop runner asks for this code.
    Unsupported = 127,
    /// Ctrl-C.
    Interrupted = 130,
}

/// The exit codes, for the end of `--help` and of the manual.
pub(crate) const CODES: &str = "\
Exit codes:
  0    everything went well
  1    the server answered, but not with the file (such as 404), or a case failed in the lab
  2    the command line makes no sense
  3    no connection, or it was lost
  4    the server's certificate is not trusted
  5    what arrived is not what was expected (length, SHA-256)
  6    a file or socket of this machine cannot be used
  127  a test case that lab endpoint does not know
  130  interrupted";

/// An error that ends a command, or one of its downloads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Failure {
    /// What kind it is.
    pub(crate) kind: Kind,
    /// What happened and what to do next, in a sentence.
    pub(crate) message: String,
    /// It may be over after this time: the same can be tried again then.
    pub(crate) again: Option<Duration>,
}

impl Failure {
    /// A failure of a kind. Lost connections can be tried again, others cannot.
    pub(crate) fn new(kind: Kind, message: impl Into<String>) -> Self {
        let again = (kind == Kind::Connection).then_some(Duration::ZERO);
        Self { kind, message: message.into(), again }
    }

    /// The same, as something that may be over after this time.
    pub(crate) const fn passing(mut self, after: Duration) -> Self {
        self.again = Some(after);
        self
    }

    /// The same, as something that trying again does not change.
    pub(crate) const fn lasting(mut self) -> Self {
        self.again = None;
        self
    }

    /// A failure of this machine: `what` could not be done.
    pub(crate) fn environment(what: impl fmt::Display, error: impl fmt::Display) -> Self {
        Self::new(Kind::Environment, format!("{what}: {error}"))
    }

    /// A failure of the file system: `what` could not be done, and what can be done about that.
    pub(crate) fn file(what: impl fmt::Display, error: &io::Error) -> Self {
        let advice = match error.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
                "; make room there and try again"
            }
            io::ErrorKind::IsADirectory => "; name a file, or remove the directory",
            io::ErrorKind::NotADirectory => "; name a directory",
            io::ErrorKind::NotFound => "; is the name right?",
            io::ErrorKind::PermissionDenied => "; ls -l shows who may, id who you are",
            io::ErrorKind::ReadOnlyFilesystem => "; name a place that can be written to",
            _ => "",
        };
        Self::environment(what, format!("{error}{advice}"))
    }

    /// A failure of the system to give an address and a port: `what` could not be done, and what can be done about that.
    #[cfg(target_os = "linux")]
    pub(crate) fn address(what: impl fmt::Display, error: &io::Error) -> Self {
        let advice = match error.kind() {
            io::ErrorKind::AddrNotAvailable => {
                "; it is no address of this machine: ip address lists those that are"
            }
            io::ErrorKind::AddrInUse => "; ss -lntup says by which program",
            io::ErrorKind::PermissionDenied => {
                "; ports below 1024 take root or CAP_NET_BIND_SERVICE, protocols other than TCP and UDP root or \
                 CAP_NET_RAW"
            }
            _ => "",
        };
        Self::environment(what, format!("{error}{advice}"))
    }

    /// The code with which the process ends.
    pub(crate) fn exit_code(&self) -> ExitCode {
        ExitCode::from(self.kind as u8)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Failure {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_is_documented() {
        use Kind::*;
        for kind in
            [Refused, Usage, Connection, Trust, Content, Environment, Unsupported, Interrupted]
        {
            let code = format!("\n  {} ", kind as u8);
            assert!(CODES.contains(&code), "{kind:?}");
        }
    }
}
