//! Tokens of Initial packets: any bytes, and any plaintext under the server's own key, as from a
//! peer of a cluster that shares it.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use quicket_engine::crypto::{CryptoProvider, TAG_LEN};
use quicket_engine::time::Time;
use quicket_engine::{ClientConfig, EcnCodepoint, EndpointConfig, RetryPolicy, Side};

use crate::attack::{DuelOptions, Party};
use crate::test_crypto::TestCrypto;

const CLIENT: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1)), 50_000);
const SERVER: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1)), 443);
/// Longer tokens leave a first packet no room.
const MAX_TOKEN: usize = 900;
const NONCE_LEN: usize = 12;

pub(super) fn run(input: &[u8]) {
    let Some((first, bytes)) = input.split_first() else { return };
    let bytes = &bytes[..bytes.len().min(MAX_TOKEN)];
    let DuelOptions { endpoint, client, mut server, crypto, .. } = DuelOptions::new(Side::Client);
    let token = if first & 1 == 0 {
        bytes.to_vec()
    } else {
        let (nonce, plain) = bytes.split_at(NONCE_LEN.min(bytes.len()));
        let mut fixed = [0; NONCE_LEN];
        fixed[..nonce.len()].copy_from_slice(nonce);
        let mut sealed = plain.to_vec();
        sealed.resize(plain.len() + TAG_LEN, 0);
        let done = TestCrypto.seal_token(&endpoint.token_key, &fixed, &mut sealed);
        done.expect("the token is sealed");
        [&fixed[..], &sealed[..]].concat()
    };
    if first & 2 == 0 {
        server.retry = RetryPolicy::Always;
    }
    let now = Time::from_nanos(1_000_000_000);
    let mut server = Party::new(SERVER, endpoint, Some(server), crypto.clone(), 1);
    let mut party = Party::new(CLIENT, EndpointConfig::new([8; 32], [9; 32]), None, crypto, 2);
    let config = ClientConfig { token, ..client };
    let started = party.endpoint.connect(now, config, SERVER, None, "sim.example");
    let (handle, connection) = started.expect("the client starts");
    party.connections.insert(handle, connection);
    for mut sent in party.transmit(now) {
        for _ in 0..2 {
            server.receive(now, CLIENT, EcnCodepoint::NotEct, &mut sent.data);
        }
    }
    let answers: usize = server.transmit(now).iter().map(|sent| sent.data.len()).sum();
    assert!(answers <= 2 * 3 * 1_500, "{answers} bytes");
    assert!(server.endpoint.connections() <= 1);
}
