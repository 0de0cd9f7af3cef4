//! Ways to servers.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use quicket::tokio::Endpoint;
use quicket::{
    BindError, ClientConfig, ClientTls, ConnectError, EndpointConfig, FileSessionStore, Qlog,
    UdpConfig,
};
use tokio::net::lookup_host;

use super::fallback::Memory;
use super::progress::Progress;
use super::race::{Winner, race};
use super::rate::Limit;
use super::target::Authority;
use super::transport::tcp::Dialer;
use super::transport::{Link, quic};
use crate::args::{Get, Protocol};
use crate::exit::{Failure, Kind};
use crate::{places, transport, trust};

/// Makes connections.
pub(crate) struct Linker {
    h3: ClientConfig,
    hq: ClientConfig,
    qlog: Option<Qlog>,
    early_data: bool,
    connect: Option<SocketAddr>,
    family: Family,
    ways: Ways,
    udp: UdpConfig,
    tcp: Dialer,
    memory: Memory,
}

/// How servers are reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ways {
    Quic,
    Tcp,
    /// By QUIC, and by TCP when QUIC has not answered in this time.
    Both(Duration),
}

/// Which addresses are used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Family {
    Both,
    V4,
    V6,
}

/// What silence may come from, too, where datagrams go by a port of the switch for packets: it drops what leads nowhere.
const BY_A_PORT: &str = " Ports reach ports of the same switch, and hosts that a device leads to (quicket switch attach)";

/// Whether nothing was heard.
const fn is_silence(error: &ConnectError) -> bool {
    use quicket::ConnectionError::{HandshakeTimeout, IdleTimeout};
    matches!(error, ConnectError::Lost(HandshakeTimeout | IdleTimeout))
}

impl Family {
    fn takes(self, address: &SocketAddr) -> bool {
        match self {
            Self::Both => true,
            Self::V4 => address.is_ipv4(),
            Self::V6 => address.is_ipv6(),
        }
    }
}

impl Linker {
    pub(crate) fn new(args: &Get) -> Result<Self, Failure> {
        transport::warn(&args.transport);
        trust::warn(&args.trust);
        let qlog = transport::qlog(&args.transport)?;
        let tls = tls(args, Protocol::H3)?;
        let mut udp = UdpConfig::default();
        args.port.configure(&mut udp)?;
        let silence = Duration::from_secs(args.transport.idle_timeout);
        let tcp = Dialer::new(&tls, silence, args.limit_rate)?;
        let remembers = !args.no_sessions;
        Ok(Self {
            h3: config(args, Protocol::H3, tls, qlog.as_ref())?,
            hq: config(
                args,
                Protocol::HqInterop,
                self::tls(args, Protocol::HqInterop)?,
                qlog.as_ref(),
            )?,
            tcp,
            udp,
            // A port has no TCP.
            ways: match (args.http3_only || args.port.is_wanted(), args.http2) {
                (true, _) => Ways::Quic,
                (_, true) => Ways::Tcp,
                _ => Ways::Both(Duration::from_millis(args.fallback_after)),
            },
            memory: Memory::new(match remembers {
                true => Some(match &args.sessions {
                    Some(dir) => dir.join("no-quic"),
                    None => places::state()?.join("no-quic"),
                }),
                false => None,
            }),
            qlog,
            early_data: !args.no_zero_rtt && !args.no_sessions,
            connect: args.connect,
            family: match (args.ipv4, args.ipv6) {
                (true, _) => Family::V4,
                (_, true) => Family::V6,
                _ => Family::Both,
            },
        })
    }

    /// Waits until everything that is logged is on the disk.
    pub(crate) fn flush(&self) {
        if let Some(qlog) = &self.qlog {
            qlog.flush();
        }
    }

    /// Connects to a server. With 0-RTT the handshake is still under way then.
    pub(crate) async fn connect(
        &self,
        authority: &Authority,
        progress: &Progress,
    ) -> Result<Link, Failure> {
        let addresses = self.addresses(authority).await?;
        if addresses.is_empty() {
            return Err(self.nowhere(authority));
        }
        let known = self.memory.holds(authority);
        let by_quic = self.by_quic(&addresses, authority, progress, !known);
        let by_tcp = self.by_tcp(&addresses, authority, progress);
        let head_start = match self.ways_to(authority) {
            Ways::Quic => return by_quic.await.map(Link::Quic),
            Ways::Tcp => return by_tcp.await,
            Ways::Both(_) if known => {
                progress.trace(|| {
                    format!("* {authority}: QUIC did not get through lately, TCP is tried at once")
                });
                Duration::ZERO
            }
            Ways::Both(head_start) => head_start,
        };
        // Who is not trusted over one is not trusted over the other.
        let is_final = |failure: &Failure| {
            matches!(failure.kind, Kind::Trust | Kind::Usage | Kind::Environment)
        };
        match race(by_quic, by_tcp, head_start, is_final).await {
            Ok(Winner::First(link)) => {
                if link.is_established() {
                    self.memory.forget(authority);
                }
                Ok(Link::Quic(link))
            }
            Ok(Winner::Second(link)) => {
                self.memory.note(authority);
                Ok(link)
            }
            Err((failure, None)) => Err(failure),
            Err((mut failure, Some(tcp))) => {
                failure.message = format!("{failure}; and over TCP: {tcp}");
                Err(failure)
            }
        }
    }

    /// QUIC did not get through to a server to which there is another way: that one is next.
    pub(crate) fn falls_back(&self, authority: &Authority) -> bool {
        let can = matches!(self.ways_to(authority), Ways::Both(_));
        if can {
            self.memory.note(authority);
        }
        can
    }

    fn ways_to(&self, authority: &Authority) -> Ways {
        match authority.protocol {
            Protocol::H3 => self.ways,
            // Nobody speaks that over TCP.
            Protocol::HqInterop => Ways::Quic,
        }
    }

    async fn by_quic(
        &self,
        addresses: &[SocketAddr],
        authority: &Authority,
        progress: &Progress,
        early_data: bool,
    ) -> Result<quic::Link, Failure> {
        let mut last = None;
        for &remote in addresses {
            progress.trace(|| format!("* connecting to {authority} at {remote} (UDP)"));
            match self.attempt(remote, authority, early_data && self.early_data).await {
                Ok(link) => {
                    progress.trace(|| link.described());
                    return Ok(link);
                }
                Err(error) => {
                    let mut failure = quic::failure(&error, authority, remote);
                    if self.udp.port_of.is_some() && is_silence(&error) {
                        failure.message.push_str(BY_A_PORT);
                    }
                    progress.trace(|| format!("* {failure}"));
                    last = Some(failure);
                }
            }
        }
        Err(last.unwrap_or_else(|| self.nowhere(authority)))
    }

    async fn by_tcp(
        &self,
        addresses: &[SocketAddr],
        authority: &Authority,
        progress: &Progress,
    ) -> Result<Link, Failure> {
        let mut last = None;
        for &remote in addresses {
            progress.trace(|| format!("* connecting to {authority} at {remote} (TCP)"));
            match self.tcp.connect(authority, remote).await {
                Ok(link) => {
                    progress.trace(|| link.described());
                    return Ok(Link::Tcp(link));
                }
                Err(failure) => {
                    progress.trace(|| format!("* {failure}"));
                    last = Some(failure);
                }
            }
        }
        Err(last.unwrap_or_else(|| self.nowhere(authority)))
    }

    /// No address is left to try.
    fn nowhere(&self, authority: &Authority) -> Failure {
        let host = &authority.host;
        let message = match self.family {
            Family::Both => format!("{host} has no address"),
            Family::V4 => format!("{host} has no IPv4 address; leave out -4 to try IPv6"),
            Family::V6 => format!("{host} has no IPv6 address; leave out -6 to try IPv4"),
        };
        Failure::new(Kind::Connection, message).lasting()
    }

    async fn addresses(&self, authority: &Authority) -> Result<Vec<SocketAddr>, Failure> {
        if let Some(address) = self.connect {
            return Ok(vec![address]);
        }
        let found = lookup_host((authority.host.as_str(), authority.port)).await;
        let usable = found.map(|all| all.filter(|address| self.family.takes(address)).collect());
        usable.map_err(|error| {
            let error = error.to_string();
            // What the standard library puts before the system's words.
            let reason = error.trim_start_matches("failed to lookup address information: ");
            let host = &authority.host;
            let message = format!(
                "{host} cannot be looked up: {reason}; is the name right, and is there a network?"
            );
            Failure::new(Kind::Connection, message)
        })
    }

    /// The address to bind: any, or with a port the one from which the system would send there.
    fn source(&self, remote: SocketAddr) -> Result<IpAddr, BindError> {
        let any: IpAddr = match remote {
            SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
            SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
        };
        if self.udp.port_of.is_none() {
            return Ok(any);
        }
        let way = || {
            let socket = std::net::UdpSocket::bind((any, 0))?;
            socket.connect(remote)?;
            socket.local_addr()
        };
        way().map(|local| local.ip()).map_err(|error| BindError::new(remote, error))
    }

    async fn attempt(
        &self,
        remote: SocketAddr,
        authority: &Authority,
        early_data: bool,
    ) -> Result<quic::Link, ConnectError> {
        let transport = match authority.protocol {
            Protocol::H3 => &self.h3,
            Protocol::HqInterop => &self.hq,
        };
        let config = EndpointConfig { udp: self.udp.clone(), ..EndpointConfig::default() };
        let endpoint = Endpoint::bind_with((self.source(remote)?, 0), config).await?;
        let begun = Instant::now();
        if early_data {
            let connection = endpoint.connect_early(remote, &authority.host, transport)?;
            if connection.early_data() == quicket::EarlyData::Offered {
                return quic::Link::open(endpoint, connection, authority, remote, begun).await;
            }
            connection.wait_established().await?;
            return quic::Link::open(endpoint, connection, authority, remote, begun).await;
        }
        let connection = endpoint.connect(remote, &authority.host, transport).await?;
        quic::Link::open(endpoint, connection, authority, remote, begun).await
    }
}

/// Whom to trust.
fn tls(args: &Get, protocol: Protocol) -> Result<ClientTls, Failure> {
    let key_log = transport::key_log(args.transport.keylog.as_deref())?;
    trust::tls(&args.trust, protocol.alpn(), None, key_log)
}

/// The configuration of connections that speak one protocol.
fn config(
    args: &Get,
    protocol: Protocol,
    tls: ClientTls,
    qlog: Option<&Qlog>,
) -> Result<ClientConfig, Failure> {
    let mut transport = transport::config(&args.transport);
    if let Some(rate) = args.limit_rate {
        // The server is not let further ahead than what is read in a second.
        let window = Limit::window(rate, transport.initial_stream_window);
        transport.initial_stream_window = window;
        transport.max_stream_window = window;
        transport.initial_receive_window = window;
        transport.max_receive_window = window;
    }
    let mut config = ClientConfig::new(tls).transport(transport).follow_network(!args.network.stay);
    if let Some(qlog) = qlog {
        config = config.qlog(qlog.clone());
    }
    if args.no_sessions {
        return Ok(config);
    }
    let dir = match &args.sessions {
        Some(dir) => dir.clone(),
        None => places::state()?.join("sessions"),
    };
    // A session is good for one protocol only.
    let dir = dir.join(protocol.alpn());
    let store = FileSessionStore::open(&dir).map_err(|error| places::no_sessions(&dir, &error))?;
    Ok(config.sessions(Arc::new(store)))
}
