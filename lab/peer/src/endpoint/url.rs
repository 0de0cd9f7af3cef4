//! The URLs that the runner passes to clients.

use std::net::SocketAddr;

use quicket_workload::bench::Failure;

/// The port of HTTPS.
const PORT: u16 = 443;

/// What to fetch, all from one server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Requests {
    /// Name or address, without brackets.
    pub(super) host: String,
    pub(super) port: u16,
    /// Each begins with a slash.
    pub(super) paths: Vec<String>,
}

impl Requests {
    /// Understands URLs separated by spaces.
    pub(super) fn parse(text: &str) -> Result<Self, Failure> {
        let mut requests: Option<Self> = None;
        for url in text.split_whitespace() {
            let (host, port, path) = split(url).ok_or_else(|| {
                format!("`{url}` is not a URL as https://server4:443/file; separate them by spaces")
            })?;
            let known = requests.get_or_insert_with(|| Self {
                host: host.to_owned(),
                port,
                paths: Vec::new(),
            });
            if (known.host.as_str(), known.port) != (host, port) {
                return Err(format!("{url}: all files must come from {}", known.host).into());
            }
            known.paths.push(path.to_owned());
        }
        requests.ok_or_else(|| "there is nothing to fetch: set REQUESTS or --requests".into())
    }

    /// The server's address, the first one if it has several.
    pub(super) async fn resolve(&self) -> Result<SocketAddr, Failure> {
        let found = tokio::net::lookup_host((self.host.as_str(), self.port)).await;
        let mut found = found.map_err(|error| format!("cannot resolve {}: {error}", self.host))?;
        found.next().ok_or_else(|| format!("{} has no address", self.host).into())
    }
}

fn split(url: &str) -> Option<(&str, u16, &str)> {
    let rest = url.strip_prefix("https://")?;
    let (authority, path) = rest.split_at(rest.find('/')?);
    let (host, port) = match authority.rsplit_once(':') {
        Some((host, port)) if !port.ends_with(']') => (host, port.parse().ok()?),
        _ => (authority, PORT),
    };
    let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    (!bare.is_empty()).then_some((bare, port, path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_of_one_server_are_understood() {
        let requests = Requests::parse(" https://server4:443/a  https://server4/b/c ").unwrap();
        assert_eq!((requests.host.as_str(), requests.port), ("server4", 443));
        assert_eq!(requests.paths, ["/a", "/b/c"]);
        let requests = Requests::parse("https://[::1]:4433/").unwrap();
        assert_eq!((requests.host.as_str(), requests.port), ("::1", 4433));
        assert_eq!(Requests::parse("https://[::1]/x").unwrap().port, 443);
    }

    #[test]
    fn what_makes_no_sense_is_said() {
        for (text, hint) in [
            ("", "nothing to fetch"),
            ("http://server4/a", "is not a URL"),
            ("https://server4:x/a", "is not a URL"),
            ("https://server4", "is not a URL"),
            ("https:///a", "is not a URL"),
            ("https://server4/a https://server6/a", "must come from server4"),
        ] {
            let error = Requests::parse(text).unwrap_err().to_string();
            assert!(error.contains(hint), "{text}: {error}");
        }
    }
}
