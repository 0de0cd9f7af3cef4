//! One client's connection.

use std::sync::Arc;
use std::time::Instant;

use quicket::ConnectionError;
use quicket::tokio::Connection;

use super::tally::{Ended, Tally};
use super::{Origin, Protocol, datagrams, quic, sockets};
use crate::carry::{Pace, code};
use crate::clients::Held;
use crate::credentials::Credentials;
use crate::front::Shared;
use crate::pace::{Payers, Rate};
use crate::stage::Ending;

/// A client, for what comes on its connection.
pub(super) struct Client {
    pub(super) connection: Connection,
    pub(super) protocol: Arc<Protocol>,
    pub(super) alpn: Vec<u8>,
    pub(super) name: Option<String>,
    /// What the client was asked for, in DER.
    pub(super) certificate: Option<Vec<u8>>,
    pub(super) tally: Tally,
    shared: Arc<Shared>,
}

/// Carries what comes on a connection until it ends or, once the gateway stops, until its streams have.
pub(crate) async fn serve(connection: Connection, shared: Arc<Shared>) {
    let (snapshot, log) = shared.current();
    let begun = Instant::now();
    let alpn = connection.alpn().unwrap_or_default();
    // The name is known once the handshake is complete. Where it makes no difference, early data goes on.
    let early = snapshot.protocols.find(&alpn, None).filter(|protocol| protocol.early_data);
    if early.is_none() && connection.wait_established().await.is_err() {
        return;
    }
    let name = connection.handshake().and_then(|handshake| handshake.server_name);
    let Some(protocol) = snapshot.protocols.find(&alpn, name.as_deref()).cloned() else {
        return connection.close(code::NOT_SERVED, b"nothing is served by this protocol and name");
    };
    let credentials = Credentials::of_quic(&connection);
    let certificate = match &protocol.rule {
        Some(rule) => {
            let own = |name: Option<&str>| snapshot.protocols.find(&alpn, name)?.rule.as_ref();
            match credentials.meet(rule, own, &shared.metrics) {
                Ok(shown) => shown.certificate().map(ToOwned::to_owned),
                Err(reason) => {
                    shared.metrics.refused(reason);
                    return connection.close(code::NOT_SERVED, reason.as_bytes());
                }
            }
        }
        None => None,
    };
    drop(snapshot);
    // What comes from sockets comes in the pieces in which it was sent.
    connection.set_nodelay(true);
    let ending = shared.ending.clone();
    let alpn_text = String::from_utf8_lossy(&alpn).into_owned();
    let tally = Tally::new(shared.metrics.protocol(&alpn_text));
    let _followed = shared.metrics.follow(alpn_text.clone(), &connection);
    let _open = shared.metrics.connected(alpn_text);
    let client = Arc::new(Client { connection, protocol, alpn, name, certificate, tally, shared });
    let address = client.connection.remote_addr();
    let error = client.carry(ending).await;
    log.note(&client.tally.record(Ended {
        client: address,
        protocol: String::from_utf8_lossy(&client.alpn).into_owned(),
        host: client.connection.handshake().and_then(|handshake| handshake.server_name),
        took_ms: begun.elapsed().as_micros() as f64 / 1000.0,
        error,
    }));
}

impl Client {
    /// Who pays for what is carried, as the file says now.
    pub(super) fn pace(&self) -> Pace {
        let rate = self.shared.current().0.limits.client.bytes_per_second;
        let address = self.connection.remote_addr().ip();
        let client = rate.map(|rate| (Arc::clone(&self.shared.clients), address, rate));
        let service = self.protocol.rate.as_ref().map(Rate::account);
        Pace::of_client(Payers { service, client })
    }

    /// Counts a stream among the requests of the client's address, until what is returned is dropped; fails if
    /// there are too many.
    pub(super) fn counted(&self) -> Result<Option<Held>, u64> {
        let allowed = self.shared.current().0.limits.client;
        let address = self.connection.remote_addr().ip();
        self.shared.clients.ask(address, &allowed).map_err(|_| code::TOO_MANY)
    }

    /// What the connection ended with, if not well.
    async fn carry(self: &Arc<Self>, mut ending: Ending) -> Option<String> {
        let stops = ending.stops();
        let ended = match &self.protocol.origin {
            Origin::Quic(origin) => tokio::select! {
                ended = quic::carry(self, origin) => ended,
                () = stops => {
                    // Streams to another connection are its own business, and may last for ever.
                    self.connection.close(code::STOPS, b"the gateway stops");
                    self.connection.closed().await
                }
            },
            Origin::Sockets { streams, datagrams } => tokio::select! {
                ended = self.connection.closed() => ended,
                () = sockets::carry(self, streams.as_ref(), stops) => {
                    self.connection.close(code::STOPS, b"the gateway stops");
                    self.connection.closed().await
                }
                never = sockets::refuse(self) => match never {},
                never = datagrams::carry(self, datagrams.as_ref()) => match never {},
            },
        };
        match ended {
            ConnectionError::PeerApplication { code: 0, .. } => None,
            ConnectionError::Local { code, .. } if code == code::STOPS => None,
            ended => Some(ended.to_string()),
        }
    }
}
