//! What a program serves: application protocols (ALPN) and server names.

use std::fmt;

/// How many protocols a registration has at most.
pub const MAX_PROTOCOLS: usize = 64;
/// How many server names a registration has at most.
pub const MAX_SERVER_NAMES: usize = 1024;
/// How many combinations of both a registration has at most.
pub const MAX_COMBINATIONS: usize = 4096;
/// The longest server name in bytes (RFC 1035, Section 2.3.4, without the root's dot).
const MAX_NAME: usize = 253;
/// The longest label of one (RFC 1035, Section 2.3.4).
const MAX_LABEL: usize = 63;
/// The longest protocol name in bytes (RFC 7301, Section 3.1).
const MAX_PROTOCOL: usize = 255;

/// A server name as it is registered: `example.org`, or `*.example.org` for all names that have one
/// label more (RFC 9525, Section 6.3).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ServerName {
    wildcard: bool,
    /// In lower case, without the asterisk.
    host: Box<str>,
}

impl ServerName {
    /// Reads a name. Case does not matter (RFC 4343).
    ///
    /// # Errors
    /// When it is no host name in ASCII, or has an asterisk that is not the whole first label.
    pub fn new(text: &str) -> Result<Self, NameError> {
        let invalid = || NameError::ServerName(shortened(text));
        let host = text.strip_prefix("*.").unwrap_or(text);
        let label_is_valid = |label: &str| {
            let octet = |octet: u8| octet.is_ascii_alphanumeric() || matches!(octet, b'-' | b'_');
            (1..=MAX_LABEL).contains(&label.len()) && label.bytes().all(octet)
        };
        if text.len() > MAX_NAME || !host.split('.').all(label_is_valid) {
            return Err(invalid());
        }
        let wildcard = host.len() != text.len();
        Ok(Self { wildcard, host: host.to_ascii_lowercase().into() })
    }

    /// Whether all that clients reach by the other name they could reach by this one.
    #[must_use]
    pub fn covers(&self, other: &Self) -> bool {
        let parent = other.host.split_once('.').map(|(_, parent)| parent);
        self == other || self.wildcard && !other.wildcard && parent == Some(&*self.host)
    }

    /// What a client that asks for `name` may reach, the most specific first: the name itself, then
    /// the wildcard. Empty if it is no host name.
    pub(super) fn of_client(name: &str) -> impl Iterator<Item = Self> + use<> {
        // A final dot is not sent (RFC 6066, Section 3), and tolerated.
        let exact = Self::new(name.strip_suffix('.').unwrap_or(name)).ok();
        let exact = exact.filter(|name| !name.wildcard);
        let parent = exact.as_ref().and_then(|name| name.host.split_once('.'));
        let wildcard = parent.map(|(_, parent)| Self { wildcard: true, host: parent.into() });
        exact.into_iter().chain(wildcard)
    }
}

impl fmt::Display for ServerName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.wildcard { "*." } else { "" })?;
        f.write_str(&self.host)
    }
}

/// The name of an application protocol (RFC 7301, Section 3.1).
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Protocol(Box<[u8]>);

impl Protocol {
    /// A name of 1 to 255 octets.
    ///
    /// # Errors
    /// When it is empty or longer.
    pub fn new(name: &[u8]) -> Result<Self, NameError> {
        if name.is_empty() || name.len() > MAX_PROTOCOL {
            return Err(NameError::Protocol(name.len()));
        }
        Ok(Self(name.into()))
    }

    /// The octets.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Display for Protocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.escape_ascii().fmt(f)
    }
}

impl fmt::Debug for Protocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{self}\"")
    }
}

/// What a registration serves: every combination of its protocols and its server names.
///
/// Without protocols it is the catch-all for clients that offer none, and for all clients where
/// nobody has any; without server names it serves those that nobody else has.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Names {
    /// Sorted, each once: the order in which a program lists them means nothing.
    protocols: Box<[Protocol]>,
    servers: Box<[ServerName]>,
}

impl Names {
    /// Protocols and server names, in any order.
    ///
    /// # Errors
    /// When there are more than [`MAX_PROTOCOLS`], [`MAX_SERVER_NAMES`] or [`MAX_COMBINATIONS`].
    pub fn new(
        protocols: impl IntoIterator<Item = Protocol>,
        servers: impl IntoIterator<Item = ServerName>,
    ) -> Result<Self, NameError> {
        let protocols = sorted(protocols, MAX_PROTOCOLS, NameError::TooManyProtocols)?;
        let servers = sorted(servers, MAX_SERVER_NAMES, NameError::TooManyServerNames)?;
        if protocols.len() * servers.len() > MAX_COMBINATIONS {
            return Err(NameError::TooManyCombinations(protocols.len() * servers.len()));
        }
        Ok(Self { protocols, servers })
    }

    /// The protocols, sorted.
    #[must_use]
    pub fn protocols(&self) -> &[Protocol] {
        &self.protocols
    }

    /// The server names, sorted.
    #[must_use]
    pub fn servers(&self) -> &[ServerName] {
        &self.servers
    }

    /// Where these are in the table of who gets what.
    pub(super) fn keys(&self) -> impl Iterator<Item = Key> + '_ {
        let server_keys = some_or_all(&self.servers);
        server_keys.flat_map(|server| {
            let protocols = some_or_all(&self.protocols);
            protocols
                .map(move |protocol| Key { server: server.cloned(), protocol: protocol.cloned() })
        })
    }
}

/// A combination that one group of listeners has; `None` stands for what nobody names.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Key {
    pub(super) server: Option<ServerName>,
    pub(super) protocol: Option<Protocol>,
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.protocol {
            Some(protocol) => write!(f, "protocol \"{protocol}\"")?,
            None => f.write_str("clients without a protocol")?,
        }
        match &self.server {
            Some(server) => write!(f, " of {server}"),
            None => Ok(()),
        }
    }
}

fn some_or_all<T>(list: &[T]) -> impl Iterator<Item = Option<&T>> {
    let all = list.is_empty().then_some(None);
    list.iter().map(Some).chain(all)
}

fn sorted<T: Ord>(
    list: impl IntoIterator<Item = T>,
    most: usize,
    error: NameError,
) -> Result<Box<[T]>, NameError> {
    let mut list: Vec<T> = list.into_iter().take(most + 1).collect();
    if list.len() > most {
        return Err(error);
    }
    list.sort();
    list.dedup();
    Ok(list.into())
}

fn shortened(text: &str) -> Box<str> {
    text.chars().take(80).collect::<String>().into()
}

/// Why something cannot be a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NameError {
    /// No host name.
    ServerName(Box<str>),
    /// A protocol name of this many octets.
    Protocol(usize),
    /// More than [`MAX_PROTOCOLS`].
    TooManyProtocols,
    /// More than [`MAX_SERVER_NAMES`].
    TooManyServerNames,
    /// So many combinations, more than [`MAX_COMBINATIONS`].
    TooManyCombinations(usize),
}

impl fmt::Display for NameError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ServerName(text) => write!(
                f,
                "\"{}\" is no server name: give a host name in ASCII, such as www.example.org, or \
                 *.example.org for all names with one label more",
                text.escape_debug()
            ),
            Self::Protocol(octets) => {
                write!(f, "a protocol name has 1 to {MAX_PROTOCOL} octets, not {octets}")
            }
            Self::TooManyProtocols => write!(
                f,
                "a registration has at most {MAX_PROTOCOLS} protocols: divide it, or leave them out \
                 to serve all"
            ),
            Self::TooManyServerNames => write!(
                f,
                "a registration has at most {MAX_SERVER_NAMES} server names: divide it, or use \
                 wildcards such as *.example.org"
            ),
            Self::TooManyCombinations(count) => write!(
                f,
                "{count} combinations of protocols and server names, and a registration has at most \
                 {MAX_COMBINATIONS}: use wildcards such as *.example.org"
            ),
        }
    }
}

impl std::error::Error for NameError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_reaches_its_name_and_then_the_wildcard_above() {
        let of =
            |name| ServerName::of_client(name).map(|name| name.to_string()).collect::<Vec<_>>();
        assert_eq!(of("WWW.example.org"), ["www.example.org", "*.example.org"]);
        assert_eq!(of("www.example.org."), ["www.example.org", "*.example.org"]);
        assert_eq!(of("localhost"), ["localhost"]);
        for none in ["", ".", "a..b", "*.example.org", "ex ample", &"a.".repeat(200)] {
            assert_eq!(of(none), [""; 0], "{none}");
        }
    }

    #[test]
    fn what_is_no_host_name_is_refused() {
        for good in ["a", "a.b", "*.b", "xn--bcher-kva.example", "_srv.example"] {
            assert_eq!(ServerName::new(good).unwrap().to_string(), good);
        }
        let long = format!("{}.org", "a".repeat(64));
        for bad in ["", "*", "*.", "a.*.b", "*a.b", "a b", "bücher.example", ".a", "a.", &long] {
            assert!(ServerName::new(bad).is_err(), "{bad}");
        }
        assert_eq!(Protocol::new(b""), Err(NameError::Protocol(0)));
        assert_eq!(Protocol::new(&[b'a'; 256]), Err(NameError::Protocol(256)));
    }

    #[test]
    fn a_registration_has_every_combination() {
        let protocol = |name: &str| Protocol::new(name.as_bytes()).unwrap();
        let server = |name: &str| ServerName::new(name).unwrap();
        let keys = |names: &Names| names.keys().map(|key| key.to_string()).collect::<Vec<_>>();
        let names = Names::new([protocol("h3"), protocol("a"), protocol("h3")], []).unwrap();
        assert_eq!(keys(&names), ["protocol \"a\"", "protocol \"h3\""]);
        let names = Names::new([protocol("h3")], [server("b.c"), server("*.c")]).unwrap();
        assert_eq!(keys(&names), ["protocol \"h3\" of b.c", "protocol \"h3\" of *.c"]);
        assert_eq!(keys(&Names::default()), ["clients without a protocol"]);
        let many = (0..=MAX_PROTOCOLS).map(|n| protocol(&n.to_string()));
        assert_eq!(Names::new(many, []), Err(NameError::TooManyProtocols));
    }
}
