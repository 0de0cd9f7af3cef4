//! What to fetch, and from whom.

use std::fmt;
use std::fs;
use std::io::{self, Read};

use percent_encoding::percent_decode_str;
use url::{Host, Url};

use crate::args::{Get, Protocol, parse_url};
use crate::exit::{Failure, Kind};

/// The port of https.
const DEFAULT_PORT: u16 = 443;

/// A server and the protocol to speak with it: what shares a connection.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Authority {
    /// The name or address, without brackets.
    pub(crate) host: String,
    pub(crate) port: u16,
    pub(crate) protocol: Protocol,
}

impl fmt::Display for Authority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { host, port, .. } = self;
        if host.contains(':') { write!(f, "[{host}]:{port}") } else { write!(f, "{host}:{port}") }
    }
}

/// One thing to fetch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Target {
    pub(crate) url: Url,
    pub(crate) authority: Authority,
    /// The command line says hq://, in place of https://.
    is_hq: bool,
}

impl Target {
    /// Checks a URL.
    pub(crate) fn new(url: &Url, default: Protocol) -> Result<Self, Failure> {
        let is_hq = url.scheme() == "hq";
        let (url, protocol) = match url.scheme() {
            "https" => (url.clone(), default),
            // The library treats hosts and ports of known schemes better.
            "hq" => {
                let known = url.as_str().replacen("hq:", "https:", 1);
                let url = Url::parse(&known).map_err(|error| usage(url, &error.to_string()))?;
                (url, Protocol::HqInterop)
            }
            "http" => return Err(usage(url, "QUIC is always encrypted; write https://")),
            _ => return Err(usage(url, "only https:// and hq:// can be fetched")),
        };
        if !url.username().is_empty() || url.password().is_some() {
            return Err(usage(&url, "names and passwords in URLs are not sent; remove them"));
        }
        let host = match url.host() {
            Some(Host::Domain(name)) => name.to_owned(),
            Some(Host::Ipv4(address)) => address.to_string(),
            Some(Host::Ipv6(address)) => address.to_string(),
            None => return Err(usage(&url, "there is no host")),
        };
        let port = url.port().unwrap_or(DEFAULT_PORT);
        Ok(Self { authority: Authority { host, port, protocol }, url, is_hq })
    }

    /// The URL as it was given.
    pub(crate) fn shown(&self) -> String {
        let url = self.url.as_str();
        if self.is_hq { url.replacen("https:", "hq:", 1) } else { url.to_owned() }
    }

    /// The target of the request: path and query.
    pub(crate) fn path_and_query(&self) -> &str {
        &self.url[url::Position::BeforePath..url::Position::AfterQuery]
    }

    /// The names of the path, decoded; the last is empty for a directory. An error if one of them
    /// could not be a file's name, or would lead elsewhere.
    pub(crate) fn names(&self) -> Result<Vec<String>, Failure> {
        let names = self.url.path().split('/').skip(1);
        names
            .map(|name| {
                let name = percent_decode_str(name).decode_utf8_lossy().into_owned();
                let odd = name
                    .chars()
                    .any(|c| matches!(c, '/' | '\0') || cfg!(windows) && matches!(c, '\\' | ':'));
                if odd || name == "." || name == ".." {
                    let reason = "its path cannot be a file's name here; name one with --output";
                    return Err(usage(&self.url, reason));
                }
                Ok(name)
            })
            .collect()
    }
}

fn usage(url: &Url, reason: &str) -> Failure {
    Failure::new(Kind::Usage, format!("{url}: {reason}"))
}

/// All that the command line and the list of URLs name.
pub(crate) fn all(args: &Get) -> Result<Vec<Target>, Failure> {
    let mut targets = Vec::new();
    for url in &args.urls {
        targets.push(Target::new(url, args.alpn)?);
    }
    if let Some(path) = &args.input {
        let mut text = String::new();
        let read = if path.as_os_str() == "-" {
            io::stdin().read_to_string(&mut text).map(|_| ())
        } else {
            fs::read_to_string(path).map(|read| text = read)
        };
        let shown = path.display();
        read.map_err(|error| Failure::environment(format!("cannot read {shown}"), error))?;
        for (line, url) in (1..).zip(text.lines()) {
            let url = url.trim();
            if url.is_empty() || url.starts_with('#') {
                continue;
            }
            let url = parse_url(url).map_err(|error| {
                Failure::new(Kind::Usage, format!("{shown}, line {line}: {error}"))
            })?;
            targets.push(Target::new(&url, args.alpn)?);
        }
    }
    if targets.is_empty() {
        return Err(Failure::new(Kind::Usage, "the list holds no URL"));
    }
    Ok(targets)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target(url: &str) -> Result<Target, Failure> {
        Target::new(&Url::parse(url).unwrap(), Protocol::H3)
    }

    #[test]
    fn authorities_have_bare_hosts_and_a_port() {
        let v6 = target("https://[::1]:4433/a?b=c#d").unwrap();
        assert_eq!((v6.authority.host.as_str(), v6.authority.port), ("::1", 4433));
        assert_eq!(v6.authority.to_string(), "[::1]:4433");
        assert_eq!(v6.path_and_query(), "/a?b=c");
        let plain = target("https://example.org").unwrap();
        assert_eq!(
            (plain.authority.to_string().as_str(), plain.path_and_query()),
            ("example.org:443", "/")
        );
        let hq = target("hq://localhost:1/a b").unwrap();
        assert_eq!((hq.authority.protocol, hq.path_and_query()), (Protocol::HqInterop, "/a%20b"));
        assert_eq!(hq.shown(), "hq://localhost:1/a%20b");
    }

    #[test]
    fn what_cannot_be_fetched_is_refused() {
        for url in ["http://a/", "ftp://a/", "https://user@a/", "file:///etc/passwd"] {
            assert_eq!(target(url).unwrap_err().kind, Kind::Usage, "{url}");
        }
    }

    #[test]
    fn names_are_decoded_and_cannot_lead_elsewhere() {
        assert_eq!(target("https://a/x%20y/z").unwrap().names().unwrap(), ["x y", "z"]);
        assert_eq!(target("https://a/").unwrap().names().unwrap(), [""]);
        for url in ["https://a/..%2fb", "https://a/%2Fetc", "https://a/a%00"] {
            assert!(target(url).unwrap().names().is_err(), "{url}");
        }
        // The library resolves these.
        assert_eq!(target("https://a/%2e%2e/b").unwrap().names().unwrap(), ["b"]);
    }
}
