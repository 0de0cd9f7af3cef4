//! Quicket as rows of the benchmark: over its blocking sockets, and over those for tokio.

mod blocking;
mod blocking_server;
mod port;
mod runtime;
mod sharing;

use std::sync::Arc;
use std::time::Duration;

use quicket::{
    Aead, ClientConfig, ClientTls, CongestionAlgorithm, EarlyData, HandshakeInfo, Identity,
    KeyExchange, MemorySessionStore, MtuDiscovery, ServerConfig, ServerTls, TransportConfig,
};
use quicket_workload::bench::{
    ALPN, Assignment, Cipher, Congestion, Failure, Link, Payload, Role, Session, WINDOW,
};

pub(super) use blocking::BlockingClient;
pub(super) use blocking_server::serve as serve_blocking;
pub(super) use runtime::{client as tokio_client, serve as serve_tokio};
pub(super) use sharing::Sharing;

/// How long a connection may be silent: longer than any load.
const IDLE: Duration = Duration::from_secs(300);
/// Streams that a client may have open at once.
const STREAMS: u64 = 1000;

pub(super) fn suite(cipher: Cipher) -> Aead {
    match cipher {
        Cipher::Aes128Gcm => Aead::Aes128Gcm,
        Cipher::Aes256Gcm => Aead::Aes256Gcm,
        Cipher::Chacha20Poly1305 => Aead::ChaCha20Poly1305,
    }
}

fn transport(assignment: &Assignment) -> TransportConfig {
    let conditions = assignment.conditions;
    let window = u64::from(WINDOW);
    let defaults = TransportConfig::default();
    let (initial_udp_payload_size, mtu_discovery) = match conditions.payload {
        Payload::Fixed(size) => (size, None),
        Payload::Discovered(upper_bound) => {
            let discovery = MtuDiscovery { upper_bound, ..MtuDiscovery::default() };
            (defaults.initial_udp_payload_size, Some(discovery))
        }
    };
    TransportConfig {
        max_idle_timeout: IDLE,
        initial_stream_window: window,
        max_stream_window: window,
        initial_receive_window: window,
        max_receive_window: window,
        max_streams_bidi: STREAMS,
        initial_udp_payload_size,
        mtu_discovery,
        congestion: match conditions.congestion {
            Congestion::Cubic => CongestionAlgorithm::Cubic,
            Congestion::Bbr => CongestionAlgorithm::Bbr,
        },
        disable_1rtt_encryption: !conditions.encryption,
        ..defaults
    }
}

fn server_config(assignment: &Assignment) -> Result<ServerConfig, Failure> {
    let Role::Server { certificate, key, .. } = &assignment.role else {
        return Err("not told to be a server".into());
    };
    let tls = ServerTls::builder(Identity::from_pem_files(certificate, key)?)
        .alpn([ALPN])
        .cipher_suites(&[suite(assignment.conditions.cipher)])
        .key_exchange(&[KeyExchange::X25519])
        .tickets(u8::from(assignment.conditions.tickets))
        .early_data(assignment.conditions.tickets)
        .build()?;
    Ok(ServerConfig::new(tls).transport(transport(assignment)))
}

fn client_config(assignment: &Assignment) -> Result<ClientConfig, Failure> {
    let Role::Client { roots, .. } = &assignment.role else {
        return Err("not told to be a client".into());
    };
    let tls = ClientTls::builder()
        .ca_file(roots)
        .alpn([ALPN])
        .cipher_suites(&[suite(assignment.conditions.cipher)])
        .key_exchange(&[KeyExchange::X25519])
        .early_data(assignment.conditions.tickets)
        .build()?;
    let config = ClientConfig::new(tls).transport(transport(assignment));
    Ok(if assignment.conditions.tickets {
        config.sessions(Arc::new(MemorySessionStore::default()))
    } else {
        config
    })
}

/// Checks that a handshake was of the kind asked for.
fn confirm(
    session: Session,
    handshake: Option<HandshakeInfo>,
    early_data: EarlyData,
) -> Result<(), Failure> {
    let resumed = handshake.is_some_and(|handshake| handshake.resumed);
    match session {
        Session::Resumed if !resumed => Err("the server did not resume the session".into()),
        Session::Early if early_data != EarlyData::Accepted => {
            Err(format!("early data: {early_data:?}").into())
        }
        Session::None | Session::Resumed | Session::Early => Ok(()),
    }
}

pub(super) fn link(handshake: Option<HandshakeInfo>, stats: &quicket::Stats) -> Link {
    let counters = &stats.counters;
    let mean = |bytes: u64, datagrams: u64| Some(bytes as f64 / datagrams.max(1) as f64);
    Link {
        cipher: handshake.map(|handshake| handshake.cipher_suite.to_owned()),
        mean_udp_payload: mean(counters.bytes_sent, counters.datagrams_sent),
        mean_udp_payload_received: mean(counters.bytes_received, counters.datagrams_received),
        lost_packets: Some(counters.packets_lost),
    }
}
