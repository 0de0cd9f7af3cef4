//! What is to be captured, and what may be.

use std::fmt;
use std::time::Duration;

use ipnet::IpNet;
use serde::{Deserialize, Serialize};

/// The most networks of clients of a capture.
pub const MAX_CLIENTS: usize = 64;
/// The most connections of which one is captured.
const MAX_ONE_IN: u32 = 1_000_000;

/// What somebody wants to have captured.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Request {
    /// Whose datagrams and connections.
    pub clients: Vec<IpNet>,
    /// Of so many addresses and ports of them one is captured.
    pub one_in: u32,
    /// How long, in milliseconds.
    pub milliseconds: u64,
    /// How many bytes are written at most; as many as are allowed if not given.
    pub bytes: Option<u64>,
    /// Datagrams are captured.
    pub datagrams: bool,
    /// Only so many bytes of each datagram's payload are kept; all if not given.
    pub keep: Option<u16>,
    /// With the secrets of connections that begin meanwhile.
    pub secrets: bool,
    /// Connections get qlogs.
    pub qlog: bool,
    /// There are no addresses in qlogs.
    pub anonymous: bool,
}

/// What the file allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Allowed {
    /// Secrets, too.
    pub secrets: bool,
    /// How long a capture may take.
    pub time: Duration,
    /// How many bytes it may have.
    pub bytes: u64,
}

/// Why nothing is captured, in a sentence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused(pub String);

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Refused {}

impl Request {
    /// How long it takes.
    pub(super) const fn time(&self) -> Duration {
        Duration::from_millis(self.milliseconds)
    }

    /// Checks it against what the file allows.
    pub(super) fn check(&self, allowed: Option<&Allowed>) -> Result<Allowed, Refused> {
        let refused = |why: String| Err(Refused(why));
        let Some(allowed) = allowed else {
            return refused(
                "the file does not allow captures: [capture] with allow = true does, after a reload".to_owned(),
            );
        };
        if self.clients.is_empty() || self.clients.len() > MAX_CLIENTS {
            return refused(format!("a capture has from 1 to {MAX_CLIENTS} networks of clients"));
        }
        if !(1..=MAX_ONE_IN).contains(&self.one_in) {
            return refused(format!("one in {} is not within 1 and {MAX_ONE_IN}", self.one_in));
        }
        if self.secrets && !allowed.secrets {
            return refused(
                "the file allows captures without secrets only (capture.secrets = false): ask with --no-secrets"
                    .to_owned(),
            );
        }
        if self.milliseconds == 0 || self.time() > allowed.time {
            let most = allowed.time.as_secs();
            return refused(format!("the file allows from 1 ms to {most} s (capture.max_s)"));
        }
        let bytes = self.bytes.unwrap_or(allowed.bytes);
        if bytes == 0 || bytes > allowed.bytes {
            let most = allowed.bytes >> 20;
            return refused(format!("the file allows from 1 byte to {most} MiB (capture.max_mib)"));
        }
        if !self.datagrams && !self.qlog {
            return refused("neither datagrams nor qlogs are wanted".to_owned());
        }
        Ok(Allowed { bytes, time: self.time(), secrets: self.secrets })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request() -> Request {
        Request {
            clients: vec!["192.0.2.7/32".parse().unwrap()],
            one_in: 1,
            milliseconds: 30_000,
            bytes: None,
            datagrams: true,
            keep: None,
            secrets: true,
            qlog: false,
            anonymous: false,
        }
    }

    #[test]
    fn no_more_is_captured_than_the_file_allows() {
        let allowed = Allowed { secrets: true, time: Duration::from_secs(30), bytes: 1 << 20 };
        let refusal = |change: fn(&mut Request), allowed: Option<&Allowed>| {
            let mut request = request();
            change(&mut request);
            request.check(allowed).unwrap_err().to_string()
        };
        assert_eq!(request().check(Some(&allowed)), Ok(allowed));
        assert!(refusal(|_| {}, None).contains("allow = true"));
        let plain = Allowed { secrets: false, ..allowed };
        assert!(refusal(|_| {}, Some(&plain)).contains("--no-secrets"));
        assert!(Request { secrets: false, ..request() }.check(Some(&plain)).is_ok());
        let allowed = Some(&allowed);
        assert!(refusal(|it| it.milliseconds = 30_001, allowed).contains("30 s"));
        assert!(refusal(|it| it.milliseconds = 0, allowed).contains("1 ms"));
        assert!(refusal(|it| it.bytes = Some((1 << 20) + 1), allowed).contains("1 MiB"));
        assert!(refusal(|it| it.clients.clear(), allowed).contains("networks"));
        assert!(refusal(|it| it.one_in = 0, allowed).contains("one in 0"));
        assert!(refusal(|it| it.datagrams = false, allowed).contains("neither"));
    }
}
