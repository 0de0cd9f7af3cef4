//! Where the register of used tickets is.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use super::secured::Secured;

/// The port of Redis.
const PORT: u16 = 6379;
/// The longest path of a Unix socket, in bytes.
const MAX_PATH: usize = 100;

/// A store, and how it is asked.
#[derive(Clone)]
pub(crate) struct Place {
    pub(crate) address: Address,
    /// What the register is called in tickets.
    pub(crate) name: String,
    pub(crate) username: Option<String>,
    pub(crate) password: Option<String>,
    /// For a store over TLS.
    pub(crate) secured: Option<Secured>,
    pub(crate) deadline: Duration,
    pub(crate) replicas: usize,
}

impl Place {
    /// True if the same is asked in the same way; the password may be another one, and certificates, too.
    pub(crate) fn is_like(&self, other: &Self) -> bool {
        let of = |place: &Self| {
            let Self { address, name, username, password: _, secured: _, deadline, replicas } =
                place.clone();
            (address, name, username, deadline, replicas)
        };
        of(self) == of(other)
    }
}

/// Where a store listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Address {
    /// A host, a port, and the number of a database.
    Tcp(String, u16, u16),
    /// The same over TLS.
    Tls(String, u16, u16),
    Unix(PathBuf),
}

impl Address {
    /// Reads `redis://HOST[:PORT][/N]`, the same with `rediss`, or `unix:/PATH`.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        if let Some(path) = text.strip_prefix("unix:") {
            return match path.starts_with('/') && path.len() < MAX_PATH {
                true => Ok(Self::Unix(path.into())),
                false => Err(format!("{text:?} is no unix:/PATH of less than {MAX_PATH} bytes")),
            };
        }
        let neither =
            || format!("{text:?} is neither redis://HOST:PORT, rediss://HOST:PORT nor unix:/PATH");
        let url = url::Url::parse(text).map_err(|_| neither())?;
        let way = match url.scheme() {
            "redis" => Self::Tcp,
            "rediss" => Self::Tls,
            _ => return Err(neither()),
        };
        let host = url.host_str().ok_or_else(neither)?;
        if !url.username().is_empty() || url.password().is_some() {
            return Err(
                "has a password, which others could read here: say username and password_file"
                    .to_owned(),
            );
        }
        if url.query().is_some() || url.fragment().is_some() {
            return Err(neither());
        }
        let database = match url.path().trim_start_matches('/') {
            "" => Ok(0),
            number => number.parse(),
        };
        let database = database
            .map_err(|_| format!("{text:?}: what follows the slash is the number of a database"))?;
        // Brackets of an address of IPv6 are those of the URL.
        let host = host.trim_start_matches('[').trim_end_matches(']');
        Ok(way(host.to_owned(), url.port().unwrap_or(PORT), database))
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(host, port, database) | Self::Tls(host, port, database) => {
                write!(f, "{host}:{port}/{database}")
            }
            Self::Unix(path) => path.display().fmt(f),
        }
    }
}

/// Without the password.
impl fmt::Debug for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Place").field("address", &self.address).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_a_host_with_a_database_or_a_path() {
        let tcp = |host: &str, port, database| Ok(Address::Tcp(host.to_owned(), port, database));
        assert_eq!(Address::parse("redis://store"), tcp("store", PORT, 0));
        assert_eq!(Address::parse("redis://10.0.0.5:7000/3"), tcp("10.0.0.5", 7000, 3));
        assert_eq!(Address::parse("redis://[::1]:7000/"), tcp("::1", 7000, 0));
        let tls = Address::Tls("store".to_owned(), 7000, 3);
        assert_eq!(Address::parse("rediss://store:7000/3"), Ok(tls));
        assert_eq!(Address::parse("unix:/run/a"), Ok(Address::Unix("/run/a".into())));
        for wrong in
            ["", "redis://", "http://a", "redis:a", "redis://a/1/2", "redis://a?db=1", "unix:a"]
        {
            assert!(Address::parse(wrong).is_err(), "{wrong}");
        }
    }
}
