//! A client's connection as another connection of QUIC to the origin: streams of both kinds, opened by either
//! side, and datagrams. Codes of the application go through as they are.

use std::fmt;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use quicket::tokio::{Connection, Endpoint, Stream};
use quicket::{ClientConfig, ConnectionError, DatagramError};
use tokio::sync::{OnceCell, Semaphore};
use tokio::time::timeout;

use super::serve::Client;
use super::tally::Count;
use super::{Authority, proxy_header};
use crate::carry::{self, Ends, Meter, Pace, Rules, Sink, Source, code};

/// An origin that speaks QUIC.
pub(crate) struct QuicOrigin {
    at: Authority,
    /// By ALPN: the origin is asked for what the client has asked for.
    configs: Vec<(String, ClientConfig)>,
    datagrams: bool,
    starts: Arc<Starts>,
}

/// Where connections to addresses of either family start.
#[derive(Default)]
struct Starts {
    v4: OnceCell<Endpoint>,
    v6: OnceCell<Endpoint>,
}

impl Starts {
    async fn towards(&self, remote: SocketAddr) -> io::Result<&Endpoint> {
        let (endpoint, any): (_, SocketAddr) = match remote {
            SocketAddr::V4(_) => (&self.v4, (Ipv4Addr::UNSPECIFIED, 0).into()),
            SocketAddr::V6(_) => (&self.v6, (Ipv6Addr::UNSPECIFIED, 0).into()),
        };
        endpoint.get_or_try_init(|| Endpoint::bind(any)).await.map_err(io::Error::other)
    }
}

impl fmt::Debug for QuicOrigin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("QuicOrigin").field("at", &self.at).finish_non_exhaustive()
    }
}

impl QuicOrigin {
    pub(crate) fn new(
        at: Authority,
        configs: Vec<(String, ClientConfig)>,
        datagrams: bool,
    ) -> Self {
        Self { at, configs, datagrams, starts: Arc::default() }
    }

    /// True if the other is at the same place.
    pub(super) fn is_at(&self, other: &Self) -> bool {
        self.at == other.at
    }

    async fn connect(&self, alpn: &[u8], limit: Duration) -> io::Result<Connection> {
        let config = self.configs.iter().find(|(name, _)| name.as_bytes() == alpn);
        let (_, config) = config.ok_or(io::ErrorKind::InvalidInput)?;
        let connecting = self.at.connect_by(|remote| {
            let (starts, config) = (Arc::clone(&self.starts), config.clone());
            let name = self.at.host.clone();
            async move {
                let endpoint = starts.towards(remote).await?;
                Ok(endpoint.connect(remote, &name, &config).await?)
            }
        });
        timeout(limit, connecting).await.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
    }
}

/// Carries all of a client's connection until one side ends; how the client's has ended.
pub(super) async fn carry(client: &Arc<Client>, origin: &QuicOrigin) -> ConnectionError {
    let Client { connection: near, protocol, .. } = &**client;
    // One for as long as this lasts.
    let Ok(_room) = protocol.room.take_place() else {
        near.close(code::TOO_MANY, b"there are too many connections to the origin");
        return near.closed().await;
    };
    let connected = tokio::select! {
        connected = origin.connect(&client.alpn, protocol.connect) => connected,
        ended = near.closed() => return ended,
    };
    let far = match connected {
        Ok(far) => far,
        Err(error) => {
            client.tally.unreachable.add(1);
            log::debug!("{}: quic://{}: {error}", near.remote_addr(), origin.at);
            near.close(code::UNREACHABLE, b"the origin cannot be reached");
            return near.closed().await;
        }
    };
    far.set_nodelay(true);
    let tally = &client.tally;
    let streams = async {
        tokio::join!(
            streams(client, near, &far, Way::There),
            streams(client, &far, near, Way::Back),
            unidirectional(client, near, &far, Way::There),
            unidirectional(client, &far, near, Way::Back),
            datagrams(
                near,
                &far,
                origin.datagrams,
                (&tally.datagrams_received, Way::There),
                client
            ),
            datagrams(&far, near, origin.datagrams, (&tally.datagrams_sent, Way::Back), client),
        )
    };
    tokio::select! {
        ended = near.closed() => {
            far.close(code_of(&ended), b"");
            ended
        }
        ended = far.closed() => {
            near.close(code_of(&ended), b"");
            ended
        }
        // Both connections have ended.
        _ = streams => near.closed().await,
    }
}

/// The code of an application, or that the connection is lost.
const fn code_of(ended: &ConnectionError) -> u64 {
    match ended {
        ConnectionError::PeerApplication { code, .. } | ConnectionError::Local { code, .. } => {
            *code
        }
        _ => code::LOST,
    }
}

/// From the client to the origin, or the other way.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    There,
    Back,
}

impl Way {
    /// Who pays for what goes this way.
    fn pace(self, client: &Client) -> Pace {
        match self {
            Self::There => client.pace(),
            Self::Back => client.pace().turned(),
        }
    }
}

/// Carries each bidirectional stream that comes on `from` until that has ended.
async fn streams(client: &Arc<Client>, from: &Connection, to: &Connection, way: Way) {
    let room = Arc::new(Semaphore::new(client.protocol.max_streams));
    loop {
        let Ok(permit) = Arc::clone(&room).acquire_owned().await else { return };
        let Ok(stream) = from.accept_bi().await else { return };
        client.tally.streams.add(1);
        let (client, to) = (Arc::clone(client), to.clone());
        tokio::spawn(async move {
            stream_to(&client, &to, stream, way).await;
            drop(permit);
        });
    }
}

async fn stream_to(client: &Client, to: &Connection, stream: Stream, way: Way) {
    let mut near = Ends::of_stream(stream);
    let Ok(_counted) = client.counted() else { return near.give_up(code::TOO_MANY) };
    let opened = timeout(client.protocol.connect, to.open_bi()).await;
    let Ok(Ok(mut opened)) = opened else {
        client.tally.unreachable.add(1);
        return near.give_up(code::TOO_MANY);
    };
    // Whoever accepts it may be the one who speaks first.
    let _ = opened.announce();
    let mut far = Ends::of_stream(opened);
    let rules = Rules { idle: client.protocol.idle, coupled: false };
    let meter = Meter::new();
    if !introduced(client, &mut far.writer, way, &meter).await {
        client.tally.broken.add(1);
        near.give_up(code::RESET);
        return far.give_up(code::RESET);
    }
    let pace = way.pace(client);
    if carry::carry(&mut near, &mut far, rules, (&meter, &pace)).await.is_err() {
        client.tally.broken.add(1);
    }
    client.tally.carried(&meter, way == Way::There);
}

/// Tells the origin who the client is, if it wants to know; false if it did not take it. What follows would be taken
/// for the header, or the client for somebody else: then there is nothing to be carried.
async fn introduced(client: &Client, sink: &mut impl Sink, way: Way, meter: &Meter) -> bool {
    if !client.protocol.proxy_protocol || way == Way::Back {
        return true;
    }
    let (name, near) = (client.name.as_deref(), &client.connection);
    let (remote, local, alpn) = (near.remote_addr(), near.local_addr(), &client.alpn);
    let header =
        proxy_header::header(remote, local, Some(alpn), name, client.certificate.as_deref());
    let Ok(header) = header else { return false };
    // An origin may give a stream no room at all.
    tokio::select! {
        begun = carry::begin_with(sink, &header) => begun,
        () = meter.idle(client.protocol.idle) => false,
    }
}

/// Carries each unidirectional stream that comes on `from` until that has ended.
async fn unidirectional(client: &Arc<Client>, from: &Connection, to: &Connection, way: Way) {
    let room = Arc::new(Semaphore::new(client.protocol.max_streams));
    loop {
        let Ok(permit) = Arc::clone(&room).acquire_owned().await else { return };
        let Ok(mut source) = from.accept_uni().await else { return };
        client.tally.streams.add(1);
        let (client, to) = (Arc::clone(client), to.clone());
        tokio::spawn(async move {
            let protocol = &client.protocol;
            let Ok(_counted) = client.counted() else {
                return Source::stop(&mut source, code::TOO_MANY);
            };
            let Ok(Ok(mut sink)) = timeout(protocol.connect, to.open_uni()).await else {
                client.tally.unreachable.add(1);
                return Source::stop(&mut source, code::TOO_MANY);
            };
            let meter = Meter::new();
            if !introduced(&client, &mut sink, way, &meter).await {
                client.tally.broken.add(1);
                Source::stop(&mut source, code::RESET);
                return Sink::reset(&mut sink, code::RESET);
            }
            let counted = (&meter, &way.pace(&client));
            let carried =
                carry::carry_one_way(&mut source, &mut sink, protocol.idle, counted).await;
            if carried.is_err() {
                client.tally.broken.add(1);
            }
            client.tally.carried(&meter, way == Way::There);
            drop(permit);
        });
    }
}

/// Carries datagrams, the latest first where there is no room for all.
async fn datagrams(
    from: &Connection,
    to: &Connection,
    carried: bool,
    (count, way): (&Count, Way),
    client: &Client,
) {
    let tally = &client.tally;
    let (pace, meter) = (way.pace(client), Meter::new());
    while let Ok(datagram) = from.recv_datagram().await {
        if !carried {
            tally.datagrams_dropped.add(1);
            continue;
        }
        match to.send_latest_datagram(&datagram) {
            Ok(()) => count.add(1),
            Err(DatagramError::TooLarge { .. }) => tally.datagrams_too_large.add(1),
            Err(_) => tally.datagrams_dropped.add(1),
        }
        // What comes meanwhile and finds no room is lost, as on a slow network.
        pace.went(datagram.len(), &meter).await;
    }
}
