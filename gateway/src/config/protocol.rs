//! Private protocols of the file, and their check.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use quicket::{ClientConfig, ClientTls, TransportConfig};
use serde::Deserialize;

use super::check::Problems;
use super::site::is_dns_name;
use super::{ClientCertificates, Limits};
use crate::pace::Rate;
use crate::protocol::{self, Authority, Origin, Place, Protocols, QuicOrigin};
use crate::quota::Quota;
use crate::resolve::Resolver;

/// How often an origin over QUIC hears of a client that says nothing, so that it does not give up earlier.
const KEEP_ALIVE: Duration = Duration::from_secs(10);
/// Connections to an origin at once.
const CONNECTIONS: usize = 4096;
/// What the gateway itself speaks.
const OWN: [&str; 3] = ["h3", "h2", "http/1.1"];
/// How much is read from a socket at once, in bytes.
const BUFFER: usize = 64 << 10;
/// ... at most.
const MAX_BUFFER: usize = 16 << 20;

/// A private protocol: connections with another ALPN than HTTP's, and their origin.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Protocol {
    /// Its names in ALPN.
    pub alpn: Vec<String>,
    /// The server names that clients ask for: DNS names; `*.` and a name for its direct subdomains; `*` for
    /// all others, and for clients that ask for none.
    #[serde(default = "all")]
    pub names: Vec<String>,
    /// Where streams go: `tcp://HOST:PORT`, `unix:/PATH`, or `quic://HOST:PORT`.
    #[serde(default)]
    pub streams: Option<String>,
    /// Where datagrams go: `udp://HOST:PORT`, or the same `quic://HOST:PORT` as streams.
    #[serde(default)]
    pub datagrams: Option<String>,
    /// A file of PEM with the certificates that an origin over QUIC must lead to; the system's if there is none.
    #[serde(default)]
    pub ca: Option<PathBuf>,
    /// Tell the origin who the client is, by PROXY protocol version 2 at the beginning of each stream.
    #[serde(default)]
    pub proxy_protocol: bool,
    /// Do not let 0-RTT data, which an attacker can repeat, wait for the handshake.
    #[serde(default)]
    pub early_data: bool,
    /// Clients show certificates.
    #[serde(default)]
    pub client_certificates: Option<ClientCertificates>,
    /// How long a connection to the origin may take, in milliseconds.
    #[serde(default = "default_connect")]
    pub connect_timeout_ms: u64,
    /// How long a stream, or the datagrams of a client, may be silent in both directions, in milliseconds.
    #[serde(default = "default_idle")]
    pub idle_timeout_ms: u64,
    /// Streams of a client at once, of each kind; as many as `limits.requests` if it is not said.
    #[serde(default)]
    pub max_streams: Option<u32>,
    /// Connections to the origin at once, of all clients together; the datagrams of a client over UDP are one.
    #[serde(default = "default_connections")]
    pub max_connections: usize,
    /// Connections of clients at once, of all clients together. No limit if not given, as with those below.
    #[serde(default)]
    pub connections: Option<u32>,
    /// Handshakes of clients in a second, of all clients together.
    #[serde(default)]
    pub handshakes_per_s: Option<u32>,
    /// Bytes of streams and datagrams in a second, of all clients together, each way. No limit if not given.
    #[serde(default)]
    pub bytes_per_s: Option<u64>,
    /// How much is read from the origin for a stream before it is written, in bytes.
    #[serde(default = "default_buffer")]
    pub buffer_bytes: usize,
}

fn all() -> Vec<String> {
    vec!["*".to_owned()]
}
const fn default_connect() -> u64 {
    5_000
}
const fn default_idle() -> u64 {
    300_000
}
const fn default_connections() -> usize {
    CONNECTIONS
}
const fn default_buffer() -> usize {
    BUFFER
}

/// Checks all protocols of a file.
pub(super) fn protocols(
    all: &[Protocol],
    limits: &Limits,
    directory: &Path,
    resolver: &Arc<Resolver>,
    problems: &mut Problems,
) -> Protocols {
    let mut checked = Protocols::default();
    for (at, protocol) in all.iter().enumerate() {
        let place = format!("protocol {}", at + 1);
        let origin = origin(protocol, &place, (directory, resolver), problems);
        let mut rules = rules(protocol, origin, limits, &place, problems);
        if let Some(asked) = &protocol.client_certificates {
            rules.rule = asked.check(&place, directory, problems);
            if asked.headers.is_some() {
                problems.add(
                    format!("{place}.client_certificates.headers"),
                    "is for sites: here proxy_protocol = true tells the origin",
                );
            }
            if protocol.early_data {
                problems.add(
                    format!("{place}.early_data"),
                    "does not go with client_certificates: they are verified in the handshake",
                );
            }
        }
        names(protocol, &Arc::new(rules), &mut checked, &place, problems);
    }
    for (at, protocol) in all.iter().enumerate().filter(|(_, protocol)| protocol.early_data) {
        let shares = |other: &Protocol| other.alpn.iter().any(|alpn| protocol.alpn.contains(alpn));
        let is_shared = all.iter().enumerate().any(|(other, it)| other != at && shares(it));
        if is_shared || protocol.names != ["*"] || protocol.proxy_protocol {
            problems.add(
                format!("protocol {}.early_data", at + 1),
                "the server name is known once the handshake is complete: it goes neither with names, nor with \
                 another protocol of this ALPN, nor with proxy_protocol",
            );
        }
    }
    checked
}

fn names(
    protocol: &Protocol,
    rules: &Arc<protocol::Protocol>,
    checked: &mut Protocols,
    place: &str,
    problems: &mut Problems,
) {
    if protocol.alpn.is_empty() {
        problems.add(format!("{place}.alpn"), "there is none: alpn = [\"redis\"]");
    }
    if protocol.names.is_empty() {
        problems.add(format!("{place}.names"), "there is none: leave it out for all names");
    }
    for name in &protocol.names {
        let bare = name.strip_prefix("*.").unwrap_or(name);
        if name != "*" && !is_dns_name(bare) {
            problems.add(
                format!("{place}.names"),
                format!("{name:?} is no DNS name, nor *.NAME, nor *"),
            );
        }
    }
    for alpn in &protocol.alpn {
        let place = format!("{place}.alpn");
        if OWN.contains(&alpn.as_str()) {
            problems.add(&place, format!("{alpn} is the gateway's own: write a [[site]]"));
        } else if alpn.is_empty() || alpn.len() > 255 {
            problems.add(&place, format!("{alpn:?} is not of 1 to 255 bytes"));
        }
        for name in &protocol.names {
            if !checked.add(alpn, name, rules) {
                problems.add(&place, format!("{alpn} is there twice for the name {name}"));
            }
        }
    }
}

fn rules(
    protocol: &Protocol,
    origin: Origin,
    limits: &Limits,
    place: &str,
    problems: &mut Problems,
) -> protocol::Protocol {
    let max_streams = protocol.max_streams.unwrap_or(limits.requests);
    if max_streams == 0 || max_streams > limits.requests {
        problems.add(
            format!("{place}.max_streams"),
            format!(
                "is not within 1 and {}, which limits.requests lets clients open",
                limits.requests
            ),
        );
    }
    super::limits::rate(&format!("{place}.bytes_per_s"), protocol.bytes_per_s, problems);
    let counts =
        [("connections", protocol.connections), ("handshakes_per_s", protocol.handshakes_per_s)];
    for (name, value) in counts {
        super::limits::count(&format!("{place}.{name}"), value, problems);
    }
    if protocol.max_connections == 0 {
        problems.add(format!("{place}.max_connections"), "0 would let nobody through");
    }
    if !(1024..=MAX_BUFFER).contains(&protocol.buffer_bytes) {
        problems
            .add(format!("{place}.buffer_bytes"), format!("is not within 1024 and {MAX_BUFFER}"));
    }
    protocol::Protocol {
        origin,
        proxy_protocol: protocol.proxy_protocol,
        early_data: protocol.early_data,
        rule: None,
        connect: problems.wait(&format!("{place}.connect_timeout_ms"), protocol.connect_timeout_ms),
        idle: problems.wait(&format!("{place}.idle_timeout_ms"), protocol.idle_timeout_ms),
        max_streams: max_streams as usize,
        piece: protocol.buffer_bytes,
        room: Quota::new(Some(u32::try_from(protocol.max_connections).unwrap_or(u32::MAX)), None),
        clients: Quota::new(protocol.connections, protocol.handshakes_per_s),
        rate: protocol.bytes_per_s.map(Rate::new),
    }
}

fn origin(
    protocol: &Protocol,
    place: &str,
    (directory, resolver): (&Path, &Arc<Resolver>),
    problems: &mut Problems,
) -> Origin {
    if let Some(origin) = over_quic(protocol, place, (directory, resolver), problems) {
        return origin;
    }
    if protocol.streams.is_none() && protocol.datagrams.is_none() {
        problems.add(place, "goes nowhere: streams = \"tcp://127.0.0.1:6379\"");
    }
    if protocol.ca.is_some() {
        problems.add(format!("{place}.ca"), "is for origins with quic:// only");
    }
    if protocol.streams.is_none() && protocol.proxy_protocol {
        problems.add(format!("{place}.proxy_protocol"), "is for streams only, and there are none");
    }
    let streams = protocol.streams.as_deref().and_then(|text| {
        let unix = text.strip_prefix("unix:").filter(|path| path.starts_with('/'));
        let read = unix.map(|path| Place::Unix(path.into()));
        let read = read.or_else(|| Authority::parse(text, "tcp", resolver).map(Place::Tcp));
        let wanted = "tcp://HOST:PORT, unix:/PATH or quic://HOST:PORT";
        found(read, text, wanted, &format!("{place}.streams"), problems)
    });
    let datagrams = protocol.datagrams.as_deref().and_then(|text| {
        let wanted = "udp://HOST:PORT, or quic://HOST:PORT as streams";
        let read = Authority::parse(text, "udp", resolver);
        found(read, text, wanted, &format!("{place}.datagrams"), problems)
    });
    Origin::Sockets { streams, datagrams }
}

fn found<T>(
    read: Option<T>,
    text: &str,
    wanted: &str,
    place: &str,
    problems: &mut Problems,
) -> Option<T> {
    if read.is_none() {
        problems.add(place, format!("{text:?} is none of {wanted}"));
    }
    read
}

/// An origin that speaks QUIC; `None` if it does not, or cannot be read as one.
fn over_quic(
    protocol: &Protocol,
    place: &str,
    (directory, resolver): (&Path, &Arc<Resolver>),
    problems: &mut Problems,
) -> Option<Origin> {
    let at = Authority::parse(protocol.streams.as_deref()?, "quic", resolver)?;
    if protocol.datagrams.is_some() && protocol.datagrams != protocol.streams {
        problems.add(
            format!("{place}.datagrams"),
            "is not the same as streams: a connection of QUIC has both",
        );
    }
    let mut configs = Vec::new();
    for alpn in &protocol.alpn {
        let mut tls = ClientTls::builder().alpn([alpn]);
        if let Some(ca) = &protocol.ca {
            tls = tls.ca_file(directory.join(ca));
        }
        // A name that is wrong is told of already.
        let is_wrong = alpn.is_empty() || alpn.len() > 255;
        match tls.build() {
            Ok(tls) => {
                let transport =
                    TransportConfig { keep_alive: KEEP_ALIVE, ..TransportConfig::default() };
                configs.push((alpn.clone(), ClientConfig::new(tls).transport(transport)));
            }
            Err(_) if is_wrong => {}
            Err(error) => {
                problems.add(format!("{place}.ca"), error.to_string());
                break;
            }
        }
    }
    Some(Origin::Quic(QuicOrigin::new(at, configs, protocol.datagrams.is_some())))
}

#[cfg(test)]
mod tests {
    use crate::config::parse;

    fn problems(text: &str) -> String {
        let problems = parse(text, std::path::Path::new(".")).expect_err("it is wrong");
        let all: Vec<String> = problems.iter().map(ToString::to_string).collect();
        all.join("\n")
    }

    #[test]
    fn each_mistake_is_told_with_its_place() {
        let all = problems(
            "[[protocol]]\nalpn = []\n\
             [[protocol]]\nalpn = [\"h3\", \"a\", \"a\"]\nnames = [\"a b\"]\nstreams = \"tcp://a\"\n\
             datagrams = \"udp://a\"\nca = \"x\"\nconnect_timeout_ms = 0\nidle_timeout_ms = 0\n\
             max_streams = 101\nmax_connections = 0\nconnections = 0\nhandshakes_per_s = 1000001\nbuffer_bytes = 1\n\
             [[protocol]]\nalpn = [\"b\"]\nstreams = \"quic://a:1\"\ndatagrams = \"quic://b:1\"\n\
             ca = \"missing.pem\"\nearly_data = true\nproxy_protocol = true\n\
             [[protocol]]\nalpn = [\"c\"]\ndatagrams = \"udp://a:1\"\nproxy_protocol = true\nnames = []\n",
        );
        for what in [
            "protocol 1.alpn: there is none",
            "protocol 1: goes nowhere",
            "protocol 2.alpn: h3 is the gateway's own",
            "protocol 2.alpn: a is there twice for the name a b",
            "protocol 2.names: \"a b\" is no DNS name",
            "protocol 2.streams: \"tcp://a\"",
            "protocol 2.datagrams: \"udp://a\"",
            "protocol 2.ca: is for origins with quic",
            "protocol 2.connect_timeout_ms",
            "protocol 2.idle_timeout_ms",
            "protocol 2.max_streams",
            "protocol 2.max_connections",
            "protocol 2.connections: is not within 1 and",
            "protocol 2.handshakes_per_s: is not within 1 and",
            "protocol 2.buffer_bytes",
            "protocol 3.datagrams: is not the same",
            "protocol 3.ca: ",
            "protocol 3.early_data",
            "protocol 4.proxy_protocol: is for streams",
            "protocol 4.names: there is none",
        ] {
            assert!(all.contains(what), "{what:?} is not in\n{all}");
        }
        assert!(!all.contains("\nsite:"), "{all}");
    }
}
