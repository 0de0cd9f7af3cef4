//! What several tests need.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use quicket_engine::time::{Duration, Time};
use quicket_engine::{
    ClientConfig, ConnectionError, EndpointConfig, EndpointEvent, ServerConfig, Side,
    TransportErrorCode,
};
use quicket_sim::attack::{Duel, DuelOptions, Party, Stage};

/// When floods begin.
pub(crate) const START: Time = Time::from_nanos(1_000_000_000);
/// The attacker as a client and as a server.
pub(crate) const BOTH: [Side; 2] = [Side::Client, Side::Server];
/// 1024 bytes.
pub(crate) const KIB: isize = 1 << 10;
/// 1024 KiB.
pub(crate) const MIB: isize = 1 << 20;

pub(crate) fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

/// An attacker in this role, after the handshake.
pub(crate) fn confirmed(attacker: Side) -> Duel {
    Duel::new(DuelOptions::new(attacker), Stage::Confirmed)
}

/// The code with which the victim has closed the connection, if it has.
pub(crate) fn code(duel: &mut Duel) -> Option<TransportErrorCode> {
    match duel.connection().close_reason()? {
        ConnectionError::Transport(error) => Some(error.code),
        other => panic!("the connection ended otherwise: {other}"),
    }
}

/// Fails unless the victim is as willing as before the attack.
#[track_caller]
pub(crate) fn assert_alive(duel: &mut Duel) {
    let reason = duel.connection().close_reason().cloned();
    assert!(reason.is_none(), "{reason:?}");
}

/// Where a server under attack is.
pub(crate) const SERVER: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1)), 443);

/// The address of one of many clients.
pub(crate) fn stranger(n: u32) -> SocketAddr {
    let [_, b, c, d] = n.to_be_bytes();
    SocketAddr::new(IpAddr::V4(Ipv4Addr::new(203, b, c, d)), 4_000)
}

/// A server that is to be flooded.
pub(crate) fn server(change: impl FnOnce(&mut ServerConfig)) -> Party {
    let DuelOptions { endpoint, mut server, crypto, .. } = DuelOptions::new(Side::Client);
    change(&mut server);
    Party::new(SERVER, endpoint, Some(server), crypto, 1)
}

/// First flights of many clients, of one datagram each.
pub(crate) struct Flights {
    party: Party,
    config: ClientConfig,
}

impl Flights {
    pub(crate) fn new() -> Self {
        let DuelOptions { client, crypto, .. } = DuelOptions::new(Side::Client);
        let endpoint = EndpointConfig::new([8; 32], [9; 32]);
        Self { party: Party::new(stranger(0), endpoint, None, crypto, 2), config: client }
    }

    /// The first flight of another client, with this token.
    pub(crate) fn next(&mut self, now: Time, token: &[u8]) -> Vec<u8> {
        let config = ClientConfig { token: token.to_vec(), ..self.config.clone() };
        let started = self.party.endpoint.connect(now, config, SERVER, None, "sim.example");
        let (handle, connection) = started.unwrap();
        self.party.connections.insert(handle, connection);
        let mut sent = self.party.transmit(now);
        assert_eq!(sent.len(), 1, "a first flight is one datagram");
        self.party.connections.clear();
        self.party.endpoint.handle_event(handle, EndpointEvent::Drained);
        sent.remove(0).data
    }
}
