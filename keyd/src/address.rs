//! Where a key process is.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

/// Where a key process is: `unix:/PATH`, or `tcp:HOST:PORT` with mutual TLS.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Address {
    /// A Unix socket.
    Unix(PathBuf),
    /// A host, as a name or an address, and a port.
    Tcp {
        /// Without the brackets of IPv6.
        host: String,
        /// Not 0.
        port: u16,
    },
}

impl FromStr for Address {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = |what: &str| {
            format!("{text:?} {what}: unix:/run/quicket/keyd.sock and tcp:HOST:PORT are places")
        };
        if let Some(path) = text.strip_prefix("unix:") {
            let path = PathBuf::from(path);
            // The longest that an address of the system has (unix(7)).
            return match path.is_absolute() && path.as_os_str().len() < 108 {
                true => Ok(Self::Unix(path)),
                false => Err(wrong("is no absolute path of less than 108 bytes")),
            };
        }
        let rest = text.strip_prefix("tcp:").ok_or_else(|| wrong("is no place"))?;
        let (host, port) = rest.rsplit_once(':').ok_or_else(|| wrong("has no port"))?;
        let port = port.parse().ok().filter(|port| *port != 0);
        let port = port.ok_or_else(|| wrong("has no port from 1 to 65535"))?;
        let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
        match bare.is_empty() || host.contains(':') && bare.len() == host.len() {
            true => Err(wrong("has no host; an address of IPv6 is in brackets")),
            false => Ok(Self::Tcp { host: bare.to_owned(), port }),
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
            Self::Tcp { host, port } if host.contains(':') => write!(f, "tcp:[{host}]:{port}"),
            Self::Tcp { host, port } => write!(f, "tcp:{host}:{port}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_read_and_shown() {
        for text in ["unix:/run/keyd", "tcp:keys.example:7443", "tcp:[::1]:1", "tcp:10.0.0.1:65535"]
        {
            assert_eq!(text.parse::<Address>().unwrap().to_string(), text);
        }
        let long = format!("unix:/{}", "a".repeat(107));
        for text in ["", "keyd", "unix:keyd", "tcp:a", "tcp::1", "tcp:a:0", "tcp:::1:5", &long] {
            assert!(text.parse::<Address>().is_err(), "{text}");
        }
    }
}
