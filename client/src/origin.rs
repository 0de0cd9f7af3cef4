//! Servers, as URLs and programs name them.

use http::Uri;

use crate::Error;

/// The port of https (RFC 9110, Section 4.2.2).
const HTTPS: u16 = 443;

/// A server.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Origin {
    /// Its name, or its address without brackets, in lower case.
    pub(crate) host: String,
    pub(crate) port: u16,
}

impl Origin {
    pub(crate) fn new(host: &str, port: u16) -> Self {
        let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
        Self { host: host.to_ascii_lowercase(), port }
    }

    /// The server of a URL.
    pub(crate) fn of(uri: &Uri) -> Result<Self, Error> {
        if uri.authority().is_some_and(|authority| authority.as_str().contains('@')) {
            let words = "a URL with a user is not asked for (RFC 9114, Section 4.3.1): send an authorization field";
            return Err(Error::Request(words.to_owned()));
        }
        let wrong = |words: &str| Error::Request(format!("{uri}: {words}"));
        match uri.scheme_str() {
            Some("https") => {}
            Some(_) => return Err(wrong("HTTP/3 has URLs that begin with https:// only")),
            None => return Err(wrong("a URL begins with its scheme; write https://HOST/PATH")),
        }
        let host = uri.host().filter(|host| !host.is_empty());
        let host = host.ok_or_else(|| wrong("a URL names a host"))?;
        Ok(Self::new(host, uri.port_u16().unwrap_or(HTTPS)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_name_servers() {
        let of = |url: &str| Origin::of(&url.parse().unwrap());
        let origin = of("https://Example.org/a?b").unwrap();
        assert_eq!(origin, Origin { host: "example.org".to_owned(), port: 443 });
        assert_eq!(of("https://[::1]:4433/").unwrap(), Origin::new("::1", 4433));
        for wrong in ["http://example.org/", "/path", "example.org:443"] {
            assert!(matches!(of(wrong), Err(Error::Request(_))), "{wrong}");
        }
        let error = of("https://user:secret@example.org/").unwrap_err().to_string();
        assert!(error.contains("user") && !error.contains("secret"), "{error}");
    }
}
