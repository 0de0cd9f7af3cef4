//! Where a server is, and what it speaks.

use std::fmt;
use std::path::PathBuf;

use http::uri::Authority;

/// What is written in a file.
const FORMS: &str = "http://HOST[:PORT], https://…, h2c://…, h3://…, unix:/PATH or h2c+unix:/PATH";

/// Where a server is, and what it speaks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    pub(super) at: At,
    pub(super) protocol: Protocol,
}

/// Where a server is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum At {
    /// A DNS name or an address without brackets, and a port.
    Host(String, u16),
    /// A Unix socket.
    Unix(PathBuf),
}

/// What a server speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Protocol {
    /// HTTP/1.1 without TLS.
    Plain,
    /// HTTP/2 without TLS, with prior knowledge (RFC 9113, Section 3.3).
    PlainTwo,
    /// HTTP/2 or HTTP/1.1 over TLS, as ALPN says.
    Tls,
    /// HTTP/3.
    Three,
}

impl Protocol {
    /// By the scheme, with its port.
    fn read(scheme: &str) -> Option<(Self, u16)> {
        match scheme {
            "http" => Some((Self::Plain, 80)),
            "h2c" => Some((Self::PlainTwo, 80)),
            "https" => Some((Self::Tls, 443)),
            "h3" => Some((Self::Three, 443)),
            _ => None,
        }
    }

    const fn scheme(self) -> &'static str {
        match self {
            Self::Plain => "http",
            Self::PlainTwo => "h2c",
            Self::Tls => "https",
            Self::Three => "h3",
        }
    }
}

impl Place {
    /// Reads `http://HOST[:PORT]`, `https://…`, `h2c://…`, `h3://…`, `unix:/PATH` or `h2c+unix:/PATH`.
    ///
    /// # Errors
    ///
    /// What is wrong, and what to write.
    pub fn parse(text: &str) -> Result<Self, String> {
        let wrong = || format!("{text:?} is none of {FORMS}");
        for (prefix, protocol) in [("unix:", Protocol::Plain), ("h2c+unix:", Protocol::PlainTwo)] {
            if let Some(path) = text.strip_prefix(prefix) {
                return match path.starts_with('/') {
                    true => Ok(Self { at: At::Unix(PathBuf::from(path)), protocol }),
                    false => Err(wrong()),
                };
            }
        }
        let (scheme, rest) = text.split_once("://").ok_or_else(wrong)?;
        let (protocol, port) = Protocol::read(scheme).ok_or_else(wrong)?;
        let bare = rest.strip_suffix('/').unwrap_or(rest);
        if bare.contains(['/', '?', '#']) {
            return Err(format!("{text:?} has more than host and port: paths are those of routes"));
        }
        let authority: Authority = bare.parse().map_err(|_| wrong())?;
        let host = authority.host();
        // What follows the host is a port of 16 bits, or nothing.
        let is_port = match authority.as_str().strip_prefix(host) {
            Some("") => true,
            Some(port) => port.strip_prefix(':').is_some_and(|port| port.parse::<u16>().is_ok()),
            None => false,
        };
        if url::Host::parse(host).is_err() || !is_port {
            return Err(wrong());
        }
        let host = host.trim_start_matches('[').trim_end_matches(']');
        let at = At::Host(host.to_owned(), authority.port_u16().unwrap_or(port));
        Ok(Self { at, protocol })
    }

    /// Whether the server has to prove who it is.
    pub fn is_tls(&self) -> bool {
        matches!(self.protocol, Protocol::Tls | Protocol::Three)
    }

    /// Whether the server speaks HTTP/3 and nothing else.
    pub(crate) fn is_three(&self) -> bool {
        self.protocol == Protocol::Three
    }

    /// The name or address that the server's certificate is for, if the file gives no other.
    pub(super) fn host(&self) -> &str {
        match &self.at {
            At::Host(host, _) => host,
            At::Unix(_) => "localhost",
        }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = self.protocol.scheme();
        match &self.at {
            At::Host(host, port) if host.contains(':') => write!(f, "{scheme}://[{host}]:{port}"),
            At::Host(host, port) => write!(f, "{scheme}://{host}:{port}"),
            At::Unix(path) if self.protocol == Protocol::PlainTwo => {
                write!(f, "h2c+unix:{}", path.display())
            }
            At::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_read() {
        let host = |protocol, host: &str, port| {
            Ok(Place { at: At::Host(host.to_owned(), port), protocol })
        };
        assert_eq!(Place::parse("http://a.example"), host(Protocol::Plain, "a.example", 80));
        assert_eq!(
            Place::parse("http://127.0.0.1:8080/"),
            host(Protocol::Plain, "127.0.0.1", 8080)
        );
        assert_eq!(Place::parse("http://[::1]:8080"), host(Protocol::Plain, "::1", 8080));
        assert_eq!(Place::parse("https://a.example"), host(Protocol::Tls, "a.example", 443));
        assert_eq!(Place::parse("https://a.example:80"), host(Protocol::Tls, "a.example", 80));
        assert_eq!(Place::parse("h2c://a:9"), host(Protocol::PlainTwo, "a", 9));
        let unix = |protocol| Ok(Place { at: At::Unix("/run/a.sock".into()), protocol });
        assert_eq!(Place::parse("unix:/run/a.sock"), unix(Protocol::Plain));
        assert_eq!(Place::parse("h2c+unix:/run/a.sock"), unix(Protocol::PlainTwo));
        for text in
            ["http://a:1", "https://[::1]:2", "h2c://b:3", "h3://c:4", "unix:/a", "h2c+unix:/a"]
        {
            assert_eq!(Place::parse(text).unwrap().to_string(), text);
        }
    }

    #[test]
    fn what_is_no_place_is_refused() {
        for wrong in [
            "",
            "a:80",
            "ftp://a",
            "unix:a",
            "http://",
            "https://",
            "http://a/b",
            "http://u:p@a",
            "http://a?b",
            "http://a:",
            "http://a:99999",
            "http://a b",
            "http://[::1",
            "h2c+unix:x",
        ] {
            assert!(Place::parse(wrong).is_err(), "{wrong:?}");
        }
    }
}
