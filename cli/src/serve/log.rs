//! One line per request on standard error.

use std::fmt;
use std::io::{self, Write};
use std::net::SocketAddr;
use std::time::{Duration, SystemTime};

use crate::units::{Bytes, Time};

/// A request that was answered, or not.
#[derive(Debug)]
pub(crate) struct Record<'a> {
    pub(crate) remote: SocketAddr,
    pub(crate) protocol: &'static str,
    pub(crate) method: &'a str,
    pub(crate) target: &'a str,
    /// The status, if there is one.
    pub(crate) status: Option<u16>,
    /// How much of the body was sent.
    pub(crate) sent: u64,
    pub(crate) took: Duration,
    /// It came as 0-RTT data.
    pub(crate) early: bool,
    /// Why the answer is not complete.
    pub(crate) error: Option<String>,
}

impl fmt::Display for Record<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { remote, protocol, method, .. } = self;
        // What clients send must not reach the terminal as control characters.
        let target = self.target.escape_default();
        write!(f, "{remote} {protocol} {} {target}", method.escape_default())?;
        if let Some(status) = self.status {
            write!(f, " {status}")?;
        }
        write!(f, " {} {}", Bytes(self.sent), Time(self.took))?;
        if self.early {
            f.write_str(" 0-RTT")?;
        }
        match &self.error {
            Some(error) => write!(f, " incomplete: {}", error.escape_debug()),
            None => Ok(()),
        }
    }
}

impl Record<'_> {
    /// Writes the line, with the time of day.
    pub(crate) fn print(&self) {
        say(format_args!("{} {self}", httpdate::fmt_http_date(SystemTime::now())));
    }
}

/// Writes a line on standard error. If nobody reads that any more, such as a terminal that was
/// closed, serving goes on.
pub(crate) fn say(line: fmt::Arguments<'_>) {
    let _ = writeln!(io::stderr().lock(), "{line}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_say_all_and_have_no_control_characters() {
        let mut record = Record {
            remote: "127.0.0.1:5".parse().unwrap(),
            protocol: "h3",
            method: "GET",
            target: "/a\u{1b}[2J",
            status: Some(200),
            sent: 1500,
            took: Duration::from_millis(3),
            early: true,
            error: None,
        };
        let line = record.to_string();
        assert_eq!(line, "127.0.0.1:5 h3 GET /a\\u{1b}[2J 200 1.5 kB 3.0 ms 0-RTT");
        record.error = Some("reset".to_owned());
        assert!(record.to_string().ends_with("incomplete: reset"));
    }
}
