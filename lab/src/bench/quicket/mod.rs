//! Quicket as rows of the benchmark: over its blocking sockets, and over those for tokio.

mod blocking;
mod blocking_server;
mod runtime;
mod runtime_server;

use std::time::Duration;

use quicket::{
    Aead, ClientConfig, ClientTls, Identity, KeyExchange, ServerConfig, ServerTls, TransportConfig,
};
use quicket_workload::bench::{ALPN, Assignment, Cipher, Failure, Link, Role, WINDOW};

pub(super) use blocking::BlockingClient;
pub(super) use blocking_server::serve as serve_blocking;
pub(super) use runtime::TokioClient;
pub(super) use runtime_server::serve as serve_tokio;

/// How long a connection may be silent: longer than any load.
const IDLE: Duration = Duration::from_secs(300);
/// Streams that a client may have open at once.
const STREAMS: u64 = 1000;

fn suite(cipher: Cipher) -> Aead {
    match cipher {
        Cipher::Aes128Gcm => Aead::Aes128Gcm,
        Cipher::Aes256Gcm => Aead::Aes256Gcm,
        Cipher::Chacha20Poly1305 => Aead::ChaCha20Poly1305,
    }
}

fn transport(assignment: &Assignment) -> TransportConfig {
    let window = u64::from(WINDOW);
    TransportConfig {
        max_idle_timeout: IDLE.into(),
        initial_stream_window: window,
        max_stream_window: window,
        initial_receive_window: window,
        max_receive_window: window,
        max_streams_bidi: STREAMS,
        initial_udp_payload_size: assignment.udp_payload,
        mtu_discovery: None,
        ..TransportConfig::default()
    }
}

fn server_config(assignment: &Assignment) -> Result<ServerConfig, Failure> {
    let Role::Server { certificate, key, .. } = &assignment.role else {
        return Err("not told to be a server".into());
    };
    let tls = ServerTls::builder(Identity::from_pem_files(certificate, key)?)
        .alpn([ALPN])
        .cipher_suites(&[suite(assignment.cipher)])
        .key_exchange(&[KeyExchange::X25519])
        .tickets(0)
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
        .cipher_suites(&[suite(assignment.cipher)])
        .key_exchange(&[KeyExchange::X25519])
        .early_data(false)
        .build()?;
    Ok(ClientConfig::new(tls).transport(transport(assignment)))
}

fn link(handshake: Option<quicket::HandshakeInfo>, stats: &quicket::Stats) -> Link {
    let counters = &stats.counters;
    Link {
        cipher: handshake.map(|handshake| handshake.cipher_suite.to_owned()),
        mean_udp_payload: Some(counters.bytes_sent as f64 / counters.datagrams_sent.max(1) as f64),
        lost_packets: Some(counters.packets_lost),
    }
}
